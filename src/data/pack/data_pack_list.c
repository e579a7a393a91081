// What lies in an HDF5 file: every dataset with its shape, type and storage, as the library tells
// it. For `brim data info`; samples are read by data_hdf5.c.
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

#include "data/hdf5/data_hdf5_helper.h"
#include "data/hdf5/data_hdf5_lib.h"
#include "data/pack/data_pack.h"

enum { MAX_ENTRIES = 1000 };

static void type_text(hid_t type, char *out, size_t size) {
  H5T_class_t class = H5Tget_class(type);
  unsigned bits = 8 * (unsigned)H5Tget_size(type);
  const char *order = bits > 8 && H5Tget_order(type) == H5T_ORDER_BE ? " big-endian" : "";
  if (class == H5T_INTEGER) {
    snprintf(out, size, "%sint%u%s", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", bits, order);
  } else if (class == H5T_FLOAT) {
    snprintf(out, size, "float%u%s", bits, order);
  } else {
    snprintf(out, size, "%s",
             class == H5T_STRING     ? "string"
             : class == H5T_COMPOUND ? "compound"
             : class == H5T_ENUM     ? "enum"
                                     : "other");
  }
}

static void add_filters(hid_t plist, char *out, size_t size) {
  for (int i = 0; i < H5Pget_nfilters(plist); i++) {
    unsigned flags, values[8] = {0};
    size_t count = 8;
    char name[32] = "";
    H5Z_filter_t id =
        H5Pget_filter2(plist, (unsigned)i, &flags, &count, values, sizeof name, name, NULL);
    size_t used = strlen(out);
    if (id == H5Z_FILTER_DEFLATE) {
      snprintf(out + used, size - used, ", deflate %u", values[0]);
    } else {
      snprintf(out + used, size - used, ", %s",
               id == H5Z_FILTER_SHUFFLE ? "shuffle"
               : name[0]                ? name
                                        : "another filter");
    }
  }
}

static void storage_text(hid_t plist, char *out, size_t size) {
  hsize_t dims[H5S_MAX_RANK];
  int rank;
  switch (H5Pget_layout(plist)) {
    case H5D_CONTIGUOUS:
      snprintf(out, size, H5Pget_external_count(plist) > 0 ? "external files" : "contiguous");
      return;
    case H5D_COMPACT:
      snprintf(out, size, "compact");
      return;
    case H5D_CHUNKED:
      snprintf(out, size, "chunked (");
      rank = H5Pget_chunk(plist, H5S_MAX_RANK, dims);
      for (int i = 0; i < rank; i++) {
        size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%llu", i ? ", " : "", (unsigned long long)dims[i]);
      }
      strncat(out, ")", size - strlen(out) - 1);
      add_filters(plist, out, size);
      return;
    default:
      snprintf(out, size, "virtual");
  }
}

static void fill_entry(hid_t dataset, brim_pack_dataset *out) {
  hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
  hid_t plist = H5Dget_create_plist(dataset);
  hsize_t dims[H5S_MAX_RANK];
  out->rank = H5Sget_simple_extent_dims(space, dims, NULL);
  if (out->rank < 0) out->rank = 0;
  if (out->rank > 8) out->rank = 8;
  for (int i = 0; i < out->rank; i++) out->dim[i] = (int64_t)dims[i];
  type_text(type, out->type, sizeof out->type);
  storage_text(plist, out->storage, sizeof out->storage);
  out->bytes = H5Dget_storage_size(dataset);
  if (plist >= 0) H5Pclose(plist);
  if (type >= 0) H5Tclose(type);
  if (space >= 0) H5Sclose(space);
}

// As a source lists them: behind links too, each name once. One that cannot be opened has the reason in
// place of its storage.
static void list_one(const brim_hdf5_file *f, const brim_hdf5_entry *e, brim_pack_dataset *out) {
  char why[BRIM_HDF5_REASON] = "";
  hid_t dataset = e->outside ? brim_hdf5_library_dataset(&f->map, f->file, e->path, f->outside, why)
                             : H5Dopen2(f->file, e->path, f->access);
  if (dataset < 0 && !e->outside) brim_hdf5_reason(why, sizeof why);
  if (dataset >= 0 && e->outside && brim_hdf5_sources_wait(f->path, dataset, why, sizeof why)) {
    H5Dclose(dataset);  // its shape would be waited for
    dataset = -1;
  }
  snprintf(out->name, sizeof out->name, "/%s", e->path);
  if (dataset < 0) {
    snprintf(out->type, sizeof out->type, "%s", e->link ? "link" : "damaged");
    snprintf(out->storage, sizeof out->storage, "%s", e->trouble ? e->trouble : why);
    return;
  }
  fill_entry(dataset, out);
  H5Dclose(dataset);
}

static brim_status list_locked(const brim_hdf5_file *f, brim_pack_dataset **out, size_t *count) {
  size_t n = f->entry_count < MAX_ENTRIES ? f->entry_count : MAX_ENTRIES;
  brim_pack_dataset *list = brim_calloc(n + 1, sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  for (size_t i = 0; i < n; i++) list_one(f, &f->entries[i], &list[i]);
  *out = list;
  *count = n;
  return BRIM_OK;
}

static brim_status list_file(const char *path, bool outside, brim_pack_dataset **out,
                             size_t *count) {
  brim_hdf5_file f;
  brim_hdf5_scope scope;
  BRIM_TRY(brim_hdf5_file_open(path, NULL, 0, outside, &f));
  brim_hdf5_enter(&scope);
  brim_status status = list_locked(&f, out, count);
  brim_hdf5_leave(&scope);
  brim_hdf5_file_close(&f);
  return status;
}

void brim_pack_job_list(const brim_hdf5_job *job) {
  brim_pack_dataset *sets = NULL;
  size_t count = 0;
  (void)list_file(job->at, brim_hdf5_job_int(job, "outside") != 0, &sets, &count);
}

static brim_status probe_list(const char *path, bool outside) {
  brim_hdf5_request r;
  brim_hdf5_request_init(&r, "list");
  brim_hdf5_request_int(&r, "outside", outside);
  brim_status status = brim_hdf5_probe(path, &r);
  brim_hdf5_request_deinit(&r);
  return status;
}

brim_status brim_pack_list(const char *path, bool outside, brim_pack_dataset **out, size_t *count) {
  *out = NULL;
  *count = 0;
  BRIM_TRY(probe_list(path, outside));
  return list_file(path, outside, out, count);
}

//---------------------------------- names of classes ----------------------------------

// Strings of an attribute or a dataset, of fixed or of any length; NULL in *names when it is
// something else.
static brim_status read_names(brim_arena *arena, hid_t object, hid_t type, size_t count,
                              const char *const **names) {
  bool dataset = H5Iget_type(object) == H5I_DATASET;
  bool any = H5Tis_variable_str(type) > 0;
  size_t size = any ? sizeof(char *) : H5Tget_size(type);
  if (size == 0 || size > 4096) return BRIM_OK;
  const char **list = brim_arena_calloc(arena, count + 1, sizeof *list);
  char *data = brim_calloc(count, size);
  brim_status status = list && data ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory");
  bool good = !status && (dataset ? H5Dread(object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data)
                                  : H5Aread(object, type, data)) >= 0;
  for (size_t i = 0; i < count && good && !status; i++) {
    const char *text = data + i * size;
    if (any) memcpy(&text, data + i * size, sizeof text);
    list[i] = any ? brim_arena_strdup(arena, text ? text : "")
                  : brim_arena_strndup(arena, text, strnlen(text, size));
    if (!list[i]) status = brim_fail(BRIM_ENOMEM, "out of memory");
  }
  if (good && any) {
    hid_t space = dataset ? H5Dget_space(object) : H5Aget_space(object);
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);
    H5Sclose(space);
  }
  brim_free(data);
  if (good && !status) *names = list;
  return status;
}

static brim_status read_attribute(brim_arena *arena, const brim_hdf5_file *f, const char *object,
                                  int64_t classes, const char *const **names) {
  if (H5Aexists_by_name(f->file, object, "class_names", f->access) <= 0) return BRIM_OK;
  hid_t attribute = H5Aopen_by_name(f->file, object, "class_names", H5P_DEFAULT, f->access);
  hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1;
  hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
  brim_status status = BRIM_OK;
  bool text = type >= 0 && H5Tget_class(type) == H5T_STRING;
  hssize_t count = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
  if (text && count == classes) {
    status = read_names(arena, attribute, type, (size_t)classes, names);
  }
  if (!status && !*names) {
    brim_log_warn(
        "data",
        "%s: brim ignores the attribute class_names of %s: expected %lld names, found %lld %s",
        f->path, object, (long long)classes, (long long)count,
        text ? brim_tr("of them") : brim_tr("values that are no text"));
  }
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (attribute >= 0) H5Aclose(attribute);
  return status;
}

// A dataset of the file that lists the names, as list_classes of the cat/non-cat files.
static brim_status read_list(brim_arena *arena, const brim_hdf5_file *f, const char *name,
                             int64_t classes, const char *const **names) {
  H5L_info_t link;
  char other[16];
  if (H5Lexists(f->file, name, H5P_DEFAULT) <= 0) return BRIM_OK;
  if (H5Lget_info(f->file, name, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) {
    return BRIM_OK;
  }
  hid_t dataset = H5Oopen(f->file, name, H5P_DEFAULT);
  if (dataset < 0) return BRIM_OK;
  if (H5Iget_type(dataset) != H5I_DATASET) {
    H5Oclose(dataset);
    return BRIM_OK;
  }
  hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
  brim_status status = BRIM_OK;
  if (type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
      !brim_hdf5_outside(f, dataset, other, sizeof other) &&
      H5Sget_simple_extent_npoints(space) == classes) {
    status = read_names(arena, dataset, type, (size_t)classes, names);
  }
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  H5Oclose(dataset);
  return status;
}

static brim_status names_locked(brim_arena *arena, const brim_hdf5_file *f, const char *split,
                                int64_t classes, const char *const **names) {
  char y[64];
  snprintf(y, sizeof y, "%s/y", split);
  const char *const places[] = {split, y, "/", "y"};
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < sizeof places / sizeof places[0] && !status && !*names; i++) {
    // A path through a group that is not there is an error of its own, not an absent attribute.
    if (i < 2 && H5Lexists(f->file, split, f->access) <= 0) continue;
    status = read_attribute(arena, f, places[i], classes, names);
  }
  for (const char *const *name = brim_hdf5_class_lists; *name && !status && !*names; name++) {
    status = read_list(arena, f, *name, classes, names);
  }
  return status;
}

typedef struct names_job {
  brim_arena *arena;
  const char *split;
  int64_t classes;
  bool outside;
} names_job;

// A file that cannot be opened has no names; reading its samples reports why.
static brim_status names_of(const names_job *job, const char *path, const char *const **names) {
  brim_hdf5_file f;
  brim_hdf5_scope scope;
  *names = NULL;
  brim_status status = brim_hdf5_file_open(path, NULL, 0, job->outside, &f);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    brim_status_clear();
    return BRIM_OK;
  }
  brim_hdf5_enter(&scope);
  status = names_locked(job->arena, &f, job->split, job->classes, names);
  brim_hdf5_leave(&scope);
  brim_hdf5_file_close(&f);
  return status;
}

void brim_pack_job_names(const brim_hdf5_job *job) {
  brim_arena *arena = NULL;
  const char *const *names;
  if (brim_arena_create(0, &arena)) return;
  const names_job own = {.arena = arena,
                         .split = brim_hdf5_job_text(job, "split"),
                         .classes = brim_hdf5_job_int(job, "classes"),
                         .outside = brim_hdf5_job_int(job, "outside") != 0};
  if (own.split) (void)names_of(&own, job->at, &names);
}

static brim_status probe_names(const names_job *job, const char *path) {
  brim_hdf5_request r;
  brim_hdf5_request_init(&r, "names");
  brim_hdf5_request_text(&r, "split", job->split);
  brim_hdf5_request_int(&r, "classes", job->classes);
  brim_hdf5_request_int(&r, "outside", job->outside);
  brim_status status = brim_hdf5_probe(path, &r);
  brim_hdf5_request_deinit(&r);
  return status;
}

brim_status brim_pack_class_names(brim_arena *arena, const char *path, const char *split,
                                  int64_t classes, bool outside, const char *const **names) {
  names_job job = {.arena = arena, .split = split, .classes = classes, .outside = outside};
  *names = NULL;
  BRIM_TRY(probe_names(&job, path));
  return names_of(&job, path, names);
}
