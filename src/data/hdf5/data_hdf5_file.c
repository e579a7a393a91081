// libhdf5, first half: the driver through which it reads the mapped file, and the list of datasets. It
// is called while a source is opened; rows are read without it (data_hdf5_array.c).
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5/data_hdf5_lib.h"

//---------------------------------- the driver ----------------------------------

// The library reads the file through the map that rows are read from later, so both see the same
// one.
typedef struct brim_hdf5_driver_file {
  H5FD_t pub;
  const brim_map *map;       // NULL: closed, but not by the library
  brim_hdf5_record *record;  // the same
  struct brim_hdf5_driver_file *next;
  haddr_t eoa;
} driver_file;

typedef struct driver_info {
  const brim_map *map;
  brim_hdf5_record *record;
} driver_info;

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr) {
  const driver_info *info = H5Pget_driver_info(fapl);
  (void)maxaddr;
  // A virtual dataset opens other files the same way: those are not in this map.
  if (!info || (flags & H5F_ACC_RDWR) || strcmp(name, info->map->path) != 0) return NULL;
  driver_file *f = brim_calloc(1, sizeof *f);
  info->record->no_memory = !f;
  if (!f) return NULL;
  f->map = info->map;
  f->record = info->record;
  f->next = info->record->open;
  info->record->open = f;
  return &f->pub;
}

static herr_t driver_close(H5FD_t *file) {
  driver_file *f = (driver_file *)(void *)file;
  driver_file **at = f->record ? &f->record->open : NULL;
  while (at && *at && *at != f) at = &(*at)->next;
  if (at && *at) *at = f->next;
  brim_free(f);
  return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *file, H5FD_mem_t type) {
  (void)type;
  return ((const driver_file *)(const void *)file)->eoa;
}

static herr_t driver_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t eoa) {
  (void)type;
  ((driver_file *)(void *)file)->eoa = eoa;
  return 0;
}

static haddr_t driver_get_eof(const H5FD_t *file, H5FD_mem_t type) {
  (void)type;
  const driver_file *f = (const driver_file *)(const void *)file;
  return f->map ? f->map->size : 0;
}

static herr_t driver_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size,
                          void *out) {
  const driver_file *f = (const driver_file *)(const void *)file;
  (void)type;
  (void)dxpl;
  if (!f->map) return -1;
  if (f->record->buffer && out == f->record->buffer) {  // only to learn where a chunk lies
    f->record->address = address;
    f->record->size = size;
    f->record->hit = true;
    return 0;
  }
  size_t there = address < f->map->size ? f->map->size - (size_t)address : 0;
  if (there > size) there = size;
  if (there && brim_map_copy(f->map, address, out, there)) return -1;
  memset((uint8_t *)out + there, 0, size - there);  // as the library's own driver does
  return 0;
}

static herr_t driver_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size,
                           const void *data) {
  (void)file, (void)type, (void)dxpl, (void)address, (void)size, (void)data;
  return -1;
}

static const H5FD_class_t driver_class = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = H5_VFD_RESERVED + 77,
#endif
    .name = "brim_map",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(driver_info),
    .open = driver_open,
    .close = driver_close,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

// *why: what the library says, before it forgets with the next call.
static hid_t open_mapped(brim_hdf5_file *f, char *why, size_t room) {
  driver_info info = {.map = &f->map, .record = f->record};
  f->driver = H5FDregister(&driver_class);
  hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
  hid_t file = -1;
  if (f->driver >= 0 && fapl >= 0 && H5Pset_driver(fapl, f->driver, &info) >= 0)
    file = H5Fopen(f->path, H5F_ACC_RDONLY, fapl);
  if (file < 0) brim_hdf5_reason(why, room);
  if (fapl >= 0) (void)H5Pclose(fapl);
  return file;
}

//---------------------------------- the list ----------------------------------

enum { MAX_LINKED = 4, MAX_PATH = 4096 };  // groups behind external links in one another

typedef struct visit {
  brim_hdf5_file *file;
  size_t *room;
  brim_status status;
  char last[256];      // the object being looked at
  const char *prefix;  // where names begin: "", or "link/" behind an external link
  int depth;
} visit;

// An empty one of this name.
static brim_status new_entry(visit *v, const char *name, brim_hdf5_entry **out) {
  brim_hdf5_file *f = v->file;
  if (f->entry_count == *v->room) {
    size_t room = *v->room ? 2 * *v->room : 16;
    brim_hdf5_entry *more = brim_realloc(f->entries, room * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
    f->entries = more;
    *v->room = room;
  }
  brim_hdf5_entry *e = &f->entries[f->entry_count];
  memset(e, 0, sizeof *e);
  size_t bytes = strlen(v->prefix) + strlen(name) + 1;
  e->path = brim_alloc(bytes);
  if (e->path) snprintf(e->path, bytes, "%s%s", v->prefix, name);
  if (!e->path) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  f->entry_count++;
  *out = e;
  return BRIM_OK;
}

// The members of a compound, which no array of numbers is.
static brim_status add_members(const brim_hdf5_file *f, hid_t type, brim_hdf5_entry *e) {
  enum { MAX_MEMBERS = 16 };
  int count = H5Tget_nmembers(type);
  brim_str text;
  brim_str_init(&text);
  for (int i = 0; i < count && i < MAX_MEMBERS; i++) {
    char *name = H5Tget_member_name(type, (unsigned)i);
    hid_t own = H5Tget_member_type(type, (unsigned)i);
    brim_hdf5_number n = {.other = "unknown"};
    if (own >= 0) n = brim_hdf5_number_of(own);
    brim_str_printf(&text, "%s%s %s", i ? ", " : "", name ? name : "?",
                    n.plain ? brim_hdf5_kind_name(n.type.kind) : n.other);
    if (own >= 0) (void)H5Tclose(own);
    if (name) (void)H5free_memory(name);
  }
  if (count > MAX_MEMBERS) brim_str_printf(&text, brim_tr(" and %d more"), count - MAX_MEMBERS);
  if (!brim_str_status(&text)) e->members = brim_strdup(text.data ? text.data : "");
  brim_str_deinit(&text);
  return e->members ? BRIM_OK : brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
}

static brim_status fill_entry(const visit *v, hid_t dataset, brim_hdf5_entry *e) {
  hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
  hsize_t dim[H5S_MAX_RANK];
  int rank = space >= 0 ? H5Sget_simple_extent_dims(space, dim, NULL) : -1;
  brim_hdf5_number n = {0};
  if (type >= 0) n = brim_hdf5_number_of(type);
  e->rank = rank;
  e->numeric = n.numeric && rank >= 1 && rank <= BRIM_HDF5_MAX_RANK;
  e->integer = n.integer;
  for (int d = 0; d < rank && d < BRIM_HDF5_MAX_RANK; d++) e->dim[d] = dim[d];
  snprintf(e->type, sizeof e->type, "%s", n.plain ? brim_hdf5_kind_name(n.type.kind) : n.other);
  e->text =
      type >= 0 && H5Tget_class(type) == H5T_STRING && (rank == 1 || (rank == 2 && e->dim[1] == 1));
  brim_status status = BRIM_OK;
  if (type >= 0 && H5Tget_class(type) == H5T_COMPOUND) status = add_members(v->file, type, e);
  if (space >= 0) (void)H5Sclose(space);
  if (type >= 0) (void)H5Tclose(type);
  return status;
}

// Its shape may depend on other files. A virtual dataset without any has no rows, and the missing file
// is what there is to say.
static brim_status fill_allowed(const visit *v, hid_t dataset, brim_hdf5_entry *e) {
  const brim_hdf5_file *f = v->file;
  char pipe[512];
  brim_status status = BRIM_OK;
  e->outside = true;
  if (brim_hdf5_sources_wait(f->path, dataset, pipe, sizeof pipe)) {
    snprintf(e->type, sizeof e->type, "outside");
    status = brim_fail(BRIM_EPARSE, "%s: /%s takes data from %s: %s", f->path, e->path, pipe,
                       brim_tr("not a regular file"));
  } else {
    BRIM_TRY(fill_entry(v, dataset, e));
    if (e->rank < 1 || e->dim[0] > 0) return BRIM_OK;
    status = brim_hdf5_outside_check(f->path, e->path, dataset);
  }
  if (!status || status == BRIM_ENOMEM) return status;
  e->numeric = e->text = false;
  e->trouble = brim_strdup(brim_status_detail());
  brim_status_clear();
  return e->trouble ? BRIM_OK : brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
}

// Data in other files: refused like a link that is not followed, or looked at by the driver that can
// open those.
static brim_status fill_outside(const visit *v, const char *other, brim_hdf5_entry *e) {
  const brim_hdf5_file *f = v->file;
  char why[BRIM_HDF5_REASON];
  brim_str text;
  hid_t dataset = f->outside ? brim_hdf5_library_dataset(&f->map, f->file, e->path, true, why) : -1;
  if (dataset >= 0) {
    brim_status status = fill_allowed(v, dataset, e);
    (void)H5Dclose(dataset);
    return status;
  }
  brim_str_init(&text);
  e->link = true;
  snprintf(e->type, sizeof e->type, "outside");
  if (f->outside) {
    brim_str_printf(&text, brim_tr("a dataset with data in the file %s, and cannot be opened (%s)"),
                    other, why);
  } else {
    brim_str_printf(&text,
                    brim_tr("a dataset with data in another file, %s; brim reads that only with "
                            "--allow-external (data.allow_external: true)"),
                    other);
  }
  if (!brim_str_status(&text)) e->trouble = brim_strdup(text.data);
  brim_str_deinit(&text);
  return e->trouble ? BRIM_OK : brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
}

// Closes it: the library does not open a dataset twice with different properties.
static brim_status add_entry(visit *v, const char *name, hid_t dataset) {
  brim_hdf5_entry *e = NULL;
  char other[1024];
  brim_status status = new_entry(v, name, &e);
  bool outside = !status && brim_hdf5_outside(v->file, dataset, other, sizeof other);
  if (!status && !outside) status = fill_entry(v, dataset, e);
  (void)H5Oclose(dataset);
  return outside ? fill_outside(v, other, e) : status;
}

static brim_status add_trouble(visit *v, const char *name) {
  char text[160];
  brim_hdf5_entry *e;
  brim_hdf5_reason(text, sizeof text);
  BRIM_TRY(new_entry(v, name, &e));
  snprintf(e->type, sizeof e->type, "damaged");
  e->trouble = brim_strdup(text);
  return e->trouble ? BRIM_OK : brim_fail(BRIM_ENOMEM, "%s: out of memory", v->file->path);
}

// A link that is not followed: what it names may be just the dataset that is meant.
static brim_status add_link(visit *v, hid_t group, const char *name, const H5L_info_t *info) {
  char value[1024] = {0};
  brim_str text;
  brim_hdf5_entry *e;
  const char *file = NULL, *object = NULL;
  bool known = info->type >= H5L_TYPE_SOFT && info->u.val_size < sizeof value &&
               H5Lget_val(group, name, value, sizeof value - 1, H5P_DEFAULT) >= 0;
  BRIM_TRY(new_entry(v, name, &e));
  e->link = true;
  snprintf(e->type, sizeof e->type, "link");
  brim_str_init(&text);
  if (known && info->type == H5L_TYPE_EXTERNAL &&
      H5Lunpack_elink_val(value, info->u.val_size, NULL, &file, &object) >= 0) {
    char parent[MAX_PATH] = "";
    bool waits =
        H5Fget_name(group, parent, sizeof parent) > 0 && brim_hdf5_link_waits(parent, file);
    brim_str_printf(
        &text,
        !v->file->outside
            ? brim_tr("an external link to %s in the file %s; brim follows it only with "
                      "--allow-external (data.allow_external: true)")
        : waits ? brim_tr("an external link to %s in %s, which is not a regular file")
                : brim_tr("an external link to %s in the file %s, which cannot be opened"),
        object, file);
  } else if (known && info->type == H5L_TYPE_SOFT) {
    brim_str_printf(&text, brim_tr("a soft link to %s, which cannot be opened"), value);
  } else {
    brim_str_append(&text, brim_tr("a link of an unsupported kind"));
  }
  e->trouble = brim_strdup(text.data);
  brim_str_deinit(&text);
  return e->trouble ? BRIM_OK : brim_fail(BRIM_ENOMEM, "%s: out of memory", v->file->path);
}

static herr_t on_link(hid_t group, const char *name, const H5L_info_t *info, void *ctx);

// The library's own visit does not continue behind an external link.
static brim_status visit_linked(visit *v, hid_t group, const char *name) {
  char prefix[MAX_PATH];
  int n = snprintf(prefix, sizeof prefix, "%s%s/", v->prefix, name);
  if (v->depth >= MAX_LINKED || n < 0 || (size_t)n >= sizeof prefix) return BRIM_OK;
  visit inner = {.file = v->file, .room = v->room, .prefix = prefix, .depth = v->depth + 1};
  if (H5Lvisit(group, H5_INDEX_NAME, H5_ITER_INC, on_link, &inner) < 0 && !inner.status)
    return add_trouble(v, name);
  return inner.status;
}

static herr_t on_link(hid_t group, const char *name, const H5L_info_t *info, void *ctx) {
  visit *v = ctx;
  snprintf(v->last, sizeof v->last, "%s%s", v->prefix, name);
  bool external = info->type == H5L_TYPE_EXTERNAL;
  bool own =
      info->type == H5L_TYPE_HARD || info->type == H5L_TYPE_SOFT || (external && v->file->outside);
  hid_t object = own ? H5Oopen(group, name, v->file->access) : -1;
  if (object < 0) {
    v->status = info->type == H5L_TYPE_HARD ? add_trouble(v, name) : add_link(v, group, name, info);
  } else if (H5Iget_type(object) == H5I_DATASET) {
    v->status = add_entry(v, name, object);
    object = -1;
  } else if (external && H5Iget_type(object) == H5I_GROUP) {
    v->status = visit_linked(v, object, name);
  }
  if (object >= 0) (void)H5Oclose(object);
  return v->status ? 1 : 0;
}

//---------------------------------- cut off ----------------------------------

// The size a file ought to have, by its superblock; 0 = it does not tell.
static uint64_t stated_end(const brim_map *map) {
  static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  uint8_t b[64];
  for (size_t at = 0; map->size >= 16 && at <= map->size - 16; at = at ? 2 * at : 512) {
    size_t n = map->size - at < sizeof b ? map->size - at : sizeof b;
    if (brim_map_copy(map, at, b, n)) return 0;
    if (memcmp(b, signature, sizeof signature) != 0) continue;
    // The address of the end is the third one: behind base and free space, or base and extension.
    size_t first = b[8] == 0 ? 24 : b[8] == 1 ? 28 : 12, size = b[8] < 2 ? b[13] : b[9];
    if (b[8] > 3 || size < 2 || size > 8 || first + 3 * size > n) return 0;
    uint64_t end = 0;
    for (size_t i = size; i > 0; i--) end = end << 8 | b[first + 2 * size + i - 1];
    return end == UINT64_MAX >> (64 - 8 * size) ? 0 : end;  // all ones: not known
  }
  return 0;
}

//---------------------------------- open and close ----------------------------------

static brim_status open_locked(brim_hdf5_file *f) {
  char text[160];
  size_t room = 0;
  visit v = {.file = f, .room = &room, .prefix = ""};
  f->file = open_mapped(f, text, sizeof text);
  if (f->file < 0 && f->record->no_memory)
    return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  uint64_t end = f->file < 0 ? stated_end(&f->map) : 0;
  if (end > f->map.size)
    return brim_fail(BRIM_EPARSE,
                     "%s: truncated: the file has %zu bytes, but its superblock expects %llu; copy "
                     "or download it again",
                     f->path, f->map.size, (unsigned long long)end);
  if (f->file < 0)
    return brim_fail(BRIM_EPARSE, "%s: not an HDF5 file, or truncated: %s", f->path, text);
  f->access = brim_hdf5_access(f->outside);
  if (f->access < 0) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  if (H5Lvisit(f->file, H5_INDEX_NAME, H5_ITER_INC, on_link, &v) < 0 && !v.status)
    return brim_fail(BRIM_EPARSE, "%s: cannot list its datasets: /%s: %s", f->path, v.last,
                     brim_hdf5_reason(text, sizeof text));
  return v.status;
}

brim_status brim_hdf5_file_open(const char *path, const void *bytes, size_t size, bool outside,
                                brim_hdf5_file *f) {
  *f = (brim_hdf5_file){.driver = -1, .file = -1, .access = -1, .outside = outside};
  f->path = brim_strdup(path);
  f->record = brim_calloc(1, sizeof *f->record);
  brim_status status = BRIM_OK;
  if (!f->path || !f->record) {
    status = brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
  } else if (bytes) {
    brim_map_memory(bytes, size, f->path, &f->map);
  } else {
    status = brim_map_open(f->path, &f->map);
  }
  if (!status) {
    brim_hdf5_scope scope;
    brim_hdf5_enter(&scope);
    status = open_locked(f);
    brim_hdf5_leave(&scope);
  }
  if (status) brim_hdf5_file_close(f);
  return status;
}

static void close_mapped_locked(brim_hdf5_file *f) {
  if (f->file >= 0) (void)H5Fclose(f->file);
  // Of a damaged file the library may keep something open until the process ends, and the driver with
  // it: it finds neither the map nor the record any more.
  bool kept = f->record && f->record->open;
  while (f->record && f->record->open) {
    driver_file *left = f->record->open;
    f->record->open = left->next;
    left->map = NULL;
    left->record = NULL;
  }
  if (f->driver >= 0 && !kept) (void)H5FDunregister(f->driver);
  if (f->access >= 0) (void)H5Pclose(f->access);
  f->file = f->driver = f->access = -1;
}

void brim_hdf5_file_choose(brim_hdf5_file *f) {
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);
  close_mapped_locked(f);
  brim_hdf5_leave(&scope);
}

void brim_hdf5_file_close(brim_hdf5_file *f) {
  if (f->file >= 0 || f->driver >= 0 || f->access >= 0) {
    brim_hdf5_scope scope;
    brim_hdf5_enter(&scope);
    close_mapped_locked(f);
    brim_hdf5_leave(&scope);
  }
  for (size_t i = 0; i < f->entry_count; i++) {
    brim_free(f->entries[i].path);
    brim_free(f->entries[i].trouble);
    brim_free(f->entries[i].members);
  }
  brim_free(f->entries);
  brim_map_close(&f->map);
  brim_free(f->record);
  brim_free(f->path);
  *f = (brim_hdf5_file){.driver = -1, .file = -1, .access = -1};
}
