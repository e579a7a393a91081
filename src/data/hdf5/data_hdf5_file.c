// All calls of libhdf5 for reading: its lock, the drivers through which it reads the mapped file and
// writes a new one, the list of datasets, their layout, labels and attributes, and rows that only the
// library can read. Callers: the hdf5 source while it opens, the helper program, and the code that
// writes HDF5. Other rows are read without the library (data_hdf5_array.c).
#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_fs.h"
#include "data/hdf5/data_hdf5.h"

//---------------------------------- data in other files ----------------------------------

// Datasets of an HDF5 file whose data lie in other files: external storage, virtual datasets and
// external links. A file can name any other file this way, /etc/passwd too, so brim follows such a
// name only with the user's consent. It then checks that every such source exists and is long enough:
// the library reads a missing source as fill values, without an error.

enum {
  MAX_NEST = 4,            // depth of virtual datasets of virtual datasets
  MAX_BLOCKS = 1 << 20,    // sources of one mapping with a number in its name
  MAX_MAPPINGS = 1 << 20,  // mappings of one virtual dataset
  MAX_NAME = 4096,
};

//---------------------------------- access ----------------------------------

// True for pipes and devices: the library's open of them would block. The library refuses folders itself.
static bool would_block(const char *folder, const char *name) {
  struct stat st;
  char *path = brim_fs_join(folder, name);
  bool found = !path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
  brim_free(path);
  return found;
}

// True if opening the file of an external link would block. The library tries the file by its own name,
// below each folder of HDF5_EXT_PREFIX, beside the file with the link, and beside that file's real path.
static bool link_would_block(const char *parent, const char *name) {
  if (would_block("", name)) return true;
  const char *last = name[0] == '/' ? brim_fs_basename(name) : name;
  char *folder = brim_fs_dirname(parent), *real = realpath(parent, NULL);
  char *beside = real ? brim_fs_dirname(real) : NULL;
  bool found =
      !folder || would_block(folder, last) || (real && (!beside || would_block(beside, last)));
  const char *prefix = getenv("HDF5_EXT_PREFIX");
  while (prefix && *prefix && !found) {
    size_t n = strcspn(prefix, ":");
    char prefix_folder[MAX_NAME];
    found = n >= sizeof prefix_folder;
    if (!found && n > 0) {
      memcpy(prefix_folder, prefix, n);
      prefix_folder[n] = '\0';
      found = would_block(prefix_folder, last);
    }
    prefix += n + (prefix[n] == ':');
  }
  brim_free(beside);
  free(real);
  brim_free(folder);
  return found;
}

// Refuses external links. ctx: char[MAX_NAME], gets the name of the linked file; or NULL.
static herr_t refuse_link(const char *parent_file, const char *parent_group, const char *child_file,
                          const char *child_object, unsigned *flags, hid_t fapl, void *ctx) {
  (void)parent_file, (void)parent_group, (void)child_object, (void)flags, (void)fapl;
  if (ctx) snprintf(ctx, MAX_NAME, "%s", child_file);
  return -1;
}

static herr_t follow_link(const char *parent_file, const char *parent_group, const char *child_file,
                          const char *child_object, unsigned *flags, hid_t fapl, void *ctx) {
  (void)parent_group, (void)child_object, (void)flags, (void)fapl, (void)ctx;
  return link_would_block(parent_file, child_file) ? -1 : 0;
}

// Opens with default properties, except that on_link decides about external links.
static hid_t open_dataset(hid_t file, const char *name, H5L_elink_traverse_t on_link, void *ctx) {
  hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  bool good = access >= 0 && H5Pset_elink_cb(access, on_link, ctx) >= 0;
  hid_t dataset = good ? H5Dopen2(file, name, access) : -1;
  if (access >= 0) (void)H5Pclose(access);
  return dataset;
}

// Creates the property list to open datasets and links with; -1 on failure. External links fail unless
// `outside`.
static int64_t hdf5_access(bool outside) {
  hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  if (access < 0) return -1;
  herr_t good = -1;
  if (outside) {
    // The library's own driver, not ours, opens the file of an external link. External storage is
    // looked up in the folder of the file that names it; the library's default is the current folder.
    hid_t files = H5Pcreate(H5P_FILE_ACCESS);
    if (files >= 0 && H5Pset_elink_fapl(access, files) >= 0 &&
        H5Pset_elink_cb(access, follow_link, NULL) >= 0)
      good = H5Pset_efile_prefix(access, "${ORIGIN}");
    if (files >= 0) (void)H5Pclose(files);
  } else {
    good = H5Pset_elink_cb(access, refuse_link, NULL);
  }
  if (good >= 0) return access;
  (void)H5Pclose(access);
  return -1;
}

//---------------------------------- names of sources ----------------------------------

// The name of a source file or source dataset as stored in the file; brim_free. NULL: the library does
// not tell it, or out of memory.
static char *virtual_name(hid_t created, size_t i, bool of_file) {
  ssize_t n = of_file ? H5Pget_virtual_filename(created, i, NULL, 0)
                      : H5Pget_virtual_dsetname(created, i, NULL, 0);
  char *name = n >= 0 && n < MAX_NAME ? brim_alloc((size_t)n + 1) : NULL;
  if (!name) return NULL;
  ssize_t got = of_file ? H5Pget_virtual_filename(created, i, name, (size_t)n + 1)
                        : H5Pget_virtual_dsetname(created, i, name, (size_t)n + 1);
  if (got == n) return name;
  brim_free(name);
  return NULL;
}

static bool is_same_file(const char *file) { return strcmp(file, ".") == 0; }

// "%b" stands for the number of a block, "%%" for "%".
static bool is_numbered(const char *name) {
  for (const char *p = name; *p; p++) {
    if (*p == '%' && p[1] == 'b') return true;
    if (*p == '%' && p[1]) p++;
  }
  return false;
}

static char *with_number(const char *name, uint64_t number) {
  brim_str out;
  brim_str_init(&out);
  for (const char *p = name; *p; p++) {
    if (*p == '%' && p[1] == 'b') {
      brim_str_printf(&out, "%" PRIu64, number);
      p++;
    } else {
      brim_str_append_char(&out, *p);
      if (*p == '%' && p[1] == '%') p++;
    }
  }
  char *text = brim_str_status(&out) ? NULL : brim_strdup(out.data ? out.data : "");
  brim_str_deinit(&out);
  return text;
}

//---------------------------------- pipes ----------------------------------

// True if a file of this name is in one of the places where the library looks for it.
static bool exists_beside(const char *parent, const char *name) {
  struct stat st;
  char *folder = brim_fs_dirname(parent);
  char *beside = folder ? brim_fs_join(folder, name) : NULL;
  bool found = stat(name, &st) == 0 || (beside && stat(beside, &st) == 0);
  brim_free(beside);
  brim_free(folder);
  return found;
}

// True if a source file of this mapping would block; its name is in `out`. In numbered names the library
// counts from 0 until a file is missing.
static bool mapping_would_block(const char *path, const char *from, char *out, size_t room) {
  bool numbered = is_numbered(from);
  for (uint64_t b = 0; b < (numbered ? MAX_BLOCKS : 1); b++) {
    char *name = with_number(from, b);
    bool found = !name || link_would_block(path, name);
    bool last = !name || !exists_beside(path, name);
    if (found) snprintf(out, room, "%s", name ? name : from);
    brim_free(name);
    if (found || last) return found;
  }
  return false;
}

bool brim_hdf5_sources_wait(const char *path, int64_t dataset, char *out, size_t room) {
  hid_t created = H5Dget_create_plist(dataset);
  size_t count = 0;
  bool found = false;
  if (created >= 0 && H5Pget_layout(created) == H5D_VIRTUAL &&
      H5Pget_virtual_count(created, &count) < 0)
    count = 0;
  for (size_t i = 0; i < count && i < MAX_MAPPINGS && !found; i++) {
    char *from = virtual_name(created, i, true);
    if (from && !is_same_file(from)) found = mapping_would_block(path, from, out, room);
    brim_free(from);
  }
  if (created >= 0) (void)H5Pclose(created);
  return found;
}

//---------------------------------- the first source outside ----------------------------------

// Number of blocks of a mapping with numbered names, within the dataset's current size; at least one.
static uint64_t block_count(hid_t dataset, hid_t created, size_t i) {
  hsize_t dim[H5S_MAX_RANK], start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK],
      block[H5S_MAX_RANK];
  hid_t all = H5Dget_space(dataset), part = H5Pget_virtual_vspace(created, i);
  int rank = all >= 0 ? H5Sget_simple_extent_dims(all, dim, NULL) : -1;
  uint64_t blocks = 1;
  if (rank > 0 && part >= 0 && H5Sget_simple_extent_ndims(part) == rank &&
      H5Sis_regular_hyperslab(part) > 0 &&
      H5Sget_regular_hyperslab(part, start, stride, count, block) >= 0) {
    for (int d = 0; d < rank; d++) {
      if (count[d] != H5S_UNLIMITED || dim[d] <= start[d] || stride[d] == 0) continue;
      uint64_t n = (dim[d] - start[d] - 1) / stride[d] + 1;
      if (n > blocks) blocks = n;
    }
  }
  if (all >= 0) (void)H5Sclose(all);
  if (part >= 0) (void)H5Sclose(part);
  return blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS;
}

static bool copy_name(const char *name, char *out, size_t room) {
  snprintf(out, room, "%s", name ? name : "?");
  return true;
}

static bool first_outside(hid_t file, hid_t dataset, int depth, char *out, size_t room);

// first_outside for one mapping of a virtual dataset. A mapping of unknown source counts as outside, so
// that it is not read.
static bool outside_mapping(hid_t file, hid_t dataset, hid_t created, size_t i, int depth,
                            char *out, size_t room) {
  char *source_file = virtual_name(created, i, true), *set = virtual_name(created, i, false);
  bool known = source_file && set && is_same_file(source_file),
       found = !known && copy_name(source_file, out, room);
  uint64_t blocks = known && is_numbered(set) ? block_count(dataset, created, i) : 1;
  if (blocks == MAX_BLOCKS) found = copy_name(NULL, out, room);
  for (uint64_t b = 0; b < blocks && !found; b++) {
    char *source_name = with_number(set, b);
    char linked[MAX_NAME] = "";
    hid_t source = source_name ? open_dataset(file, source_name, refuse_link, linked) : -1;
    if (source >= 0) {
      found = first_outside(file, source, depth + 1, out, room);
    } else if (!source_name || linked[0]) {
      found = copy_name(source_name ? linked : NULL, out, room);
    }
    if (source >= 0) (void)H5Dclose(source);
    brim_free(source_name);
  }
  brim_free(source_file);
  brim_free(set);
  return found;
}

// True if the dataset, or a dataset of this file that it is made of, takes data from another file; its
// name is in `out`, "?" if unknown.
static bool first_outside(hid_t file, hid_t dataset, int depth, char *out, size_t room) {
  hid_t created = H5Dget_create_plist(dataset);
  if (created < 0) return copy_name(NULL, out, room);
  bool found = false;
  if (H5Pget_external_count(created) > 0) {
    char name[MAX_NAME + 1] = "";
    off_t offset;
    hsize_t size;
    bool known = H5Pget_external(created, 0, MAX_NAME, name, &offset, &size) >= 0;
    found = copy_name(known ? name : NULL, out, room);
  } else if (H5Pget_layout(created) == H5D_VIRTUAL) {
    size_t count = 0;
    if (H5Pget_virtual_count(created, &count) < 0 || depth >= MAX_NEST)
      found = copy_name(NULL, out, room);
    for (size_t i = 0; i < count && !found; i++)
      found = outside_mapping(file, dataset, created, i, depth, out, room);
  }
  (void)H5Pclose(created);
  return found;
}

bool brim_hdf5_outside(const brim_hdf5_file *f, int64_t dataset, char *out, size_t room) {
  H5O_info_t own, other;
  if (H5Oget_info2(f->file, &own, H5O_INFO_BASIC) < 0 ||
      H5Oget_info2(dataset, &other, H5O_INFO_BASIC) < 0)
    return copy_name(NULL, out, room);
  if (own.fileno != other.fileno) {  // behind an external link
    char name[MAX_NAME] = "";
    bool known = H5Fget_name(dataset, name, sizeof name) > 0;
    return copy_name(known ? name : NULL, out, room);
  }
  return first_outside(f->file, dataset, 0, out, room);
}

//---------------------------------- checking all sources ----------------------------------

// The file and dataset to read, for messages.
typedef struct sources {
  const char *path, *name;
} sources;

// An open file in which sources lie.
typedef struct place {
  char *path;
  hid_t file;  // -1 = none
} place;

static brim_status fail_source(const sources *s, const char *file, const char *what) {
  return brim_fail(BRIM_EPARSE, "%s: /%s takes data from %s: %s", s->path, s->name, file, what);
}

static brim_status no_memory(const sources *s) {
  return brim_fail(BRIM_ENOMEM, "%s: out of memory", s->path);
}

// Finds a source and its size as the library does: a relative name lies in `folder`, the folder of the
// file that names it; an absolute name that does not exist is looked for there too. brim_free *out.
static brim_status find_source(const sources *s, const char *folder, const char *name, char **out,
                               uint64_t *bytes) {
  struct stat st;
  *out = brim_fs_join(folder, name);
  if (!*out) return no_memory(s);
  if (name[0] == '/' && stat(*out, &st) != 0 && errno == ENOENT) {
    char *beside = brim_fs_join(folder, brim_fs_basename(name));
    if (!beside) return no_memory(s);
    if (stat(beside, &st) == 0) {
      brim_free(*out);
      *out = beside;
    } else {
      brim_free(beside);
    }
  }
  if (stat(*out, &st) != 0) {
    int err = errno;
    return fail_source(s, *out,
                       err == ENOENT ? brim_tr("the file does not exist") : brim_errno_text(err));
  }
  // Opening a pipe would block.
  if (!S_ISREG(st.st_mode)) return fail_source(s, *out, brim_tr("not a regular file"));
  *bytes = (uint64_t)st.st_size;
  return BRIM_OK;
}

// Checks that the files of external storage are long enough: the library would read zeros past an end.
static brim_status check_external(const sources *s, const char *folder, hid_t dataset,
                                  hid_t created, bool nested) {
  int count = H5Pget_external_count(created);
  hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
  hssize_t points = space >= 0 ? H5Sget_simple_extent_npoints(space) : 0;
  uint64_t left = 0;
  if (points > 0 && type >= 0 &&
      __builtin_mul_overflow((uint64_t)points, (uint64_t)H5Tget_size(type), &left))
    left = UINT64_MAX;
  if (space >= 0) (void)H5Sclose(space);
  if (type >= 0) (void)H5Tclose(type);
  for (int i = 0; i < count && left > 0; i++) {
    char name[MAX_NAME + 1] = "", *path = NULL;
    off_t offset = 0;
    hsize_t size = 0;
    uint64_t file_bytes = 0;
    if (H5Pget_external(created, (unsigned)i, MAX_NAME, name, &offset, &size) < 0)
      return fail_source(s, "?", brim_tr("the file does not name it"));
    // Below a virtual dataset the library looks in the current folder and ignores our setting.
    if (nested && name[0] != '/')
      return brim_fail(
          BRIM_EUNSUPPORTED,
          "%s: /%s takes data from %s through a virtual dataset, which brim reads only "
          "by an absolute path; write the dataset again without external storage",
          s->path, s->name, name);
    brim_status status = find_source(s, folder, name, &path, &file_bytes);
    uint64_t need = size < left ? size : left, from = offset > 0 ? (uint64_t)offset : 0;
    if (!status && (from > file_bytes || need > file_bytes - from))
      status = brim_fail(BRIM_EPARSE,
                         "%s: /%s takes data from %s: %" PRIu64 " bytes from offset %" PRIu64
                         " on, and the file has %" PRIu64,
                         s->path, s->name, path, need, from, file_bytes);
    brim_free(path);
    BRIM_TRY(status);
    left -= need;
  }
  return BRIM_OK;
}

static brim_status check_dataset(const sources *s, const place *in, hid_t dataset, int depth);

// The part of a source that a mapping takes.
typedef struct taken {
  hid_t selection;  // in the source; -1 = not known
  uint64_t points;  // values of the source, if all are taken; 0 = a part is taken, or unknown
} taken;

static taken find_taken(hid_t created, size_t i, bool numbered) {
  hsize_t start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK], block[H5S_MAX_RANK];
  taken t = {.selection = H5Pget_virtual_srcspace(created, i)};
  if (t.selection < 0 || H5Sget_select_type(t.selection) != H5S_SEL_ALL) return t;
  hid_t part = H5Pget_virtual_vspace(created, i);
  int rank = part >= 0 ? H5Sget_simple_extent_ndims(part) : 0;
  if (part >= 0 && H5Sis_regular_hyperslab(part) > 0 &&
      H5Sget_regular_hyperslab(part, start, stride, count, block) >= 0) {
    t.points = 1;
    for (int d = 0; d < rank; d++)
      t.points *= count[d] == H5S_UNLIMITED ? (numbered ? block[d] : 0) : count[d] * block[d];
  } else if (part >= 0 && !numbered) {
    hssize_t n = H5Sget_select_npoints(part);
    if (n > 0) t.points = (uint64_t)n;
  }
  if (part >= 0) (void)H5Sclose(part);
  return t;
}

// Checks one source dataset of a virtual dataset; `in` is the open file it lies in.
static brim_status check_part(const sources *s, const place *in, const char *set, const taken *t,
                              int depth) {
  hsize_t dim[H5S_MAX_RANK], first[H5S_MAX_RANK], last[H5S_MAX_RANK];
  hid_t dataset = open_dataset(in->file, set, follow_link, NULL);
  if (dataset < 0)
    return brim_fail(BRIM_EPARSE, "%s: /%s takes data from %s: no dataset %s in it", s->path,
                     s->name, in->path, set);
  hid_t space = H5Dget_space(dataset);
  int rank = space >= 0 ? H5Sget_simple_extent_dims(space, dim, NULL) : -1;
  hssize_t value_count = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
  if (space >= 0) (void)H5Sclose(space);
  brim_status status = BRIM_OK;
  if (t->points && value_count >= 0 && (uint64_t)value_count != t->points)
    status = brim_fail(BRIM_EPARSE,
                       "%s: /%s takes data from %s: %" PRIu64
                       " values of dataset %s, which has "
                       "%lld",
                       s->path, s->name, in->path, t->points, set, (long long)value_count);
  // An unlimited selection has no bounds: the library ends it where the source ends.
  bool part = t->selection >= 0 && H5Sget_select_type(t->selection) != H5S_SEL_ALL;
  if (!status && part && rank > 0 && H5Sget_simple_extent_ndims(t->selection) == rank &&
      H5Sget_select_bounds(t->selection, first, last) >= 0) {
    for (int d = 0; d < rank && !status; d++) {
      if (last[d] < dim[d] || last[d] == H5S_UNLIMITED) continue;
      status = brim_fail(BRIM_EPARSE,
                         "%s: /%s takes data from %s: row %" PRIu64
                         " of dataset %s, which has "
                         "%" PRIu64 " (dimension %d)",
                         s->path, s->name, in->path, (uint64_t)last[d], set, (uint64_t)dim[d], d);
    }
  }
  if (!status) status = check_dataset(s, in, dataset, depth + 1);
  (void)H5Dclose(dataset);
  return status;
}

static void close_place(place *o) {
  if (o->file >= 0) (void)H5Fclose(o->file);
  brim_free(o->path);
  *o = (place){.file = -1};
}

// Opens the file of a source in *o, which keeps it open: usually the next source lies in it too.
static brim_status open_source(const sources *s, const char *folder, const char *name, place *o) {
  char *path = NULL;
  uint64_t bytes;
  brim_status status = find_source(s, folder, name, &path, &bytes);
  if (!status && o->path && strcmp(o->path, path) == 0) {
    brim_free(path);
    return BRIM_OK;
  }
  if (!status) {
    close_place(o);
    o->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (o->file < 0) {
      char why[160];
      brim_hdf5_reason(why, sizeof why);
      status = fail_source(s, path, why);
    }
  }
  if (status) {
    brim_free(path);
    return status;
  }
  o->path = path;
  return BRIM_OK;
}

static brim_status check_mapping(const sources *s, const place *in, hid_t dataset, hid_t created,
                                 size_t i, place *other, int depth) {
  char *source_file = virtual_name(created, i, true), *set = virtual_name(created, i, false);
  char *folder = brim_fs_dirname(in->path);
  brim_status status = source_file && set && folder ? BRIM_OK : no_memory(s);
  bool numbered = !status && (is_numbered(source_file) || is_numbered(set));
  uint64_t blocks = numbered ? block_count(dataset, created, i) : 1;
  taken t = find_taken(created, i, numbered);
  for (uint64_t b = 0; b < blocks && !status; b++) {
    char *file_name = with_number(source_file, b), *source_name = with_number(set, b);
    bool own = is_same_file(source_file);
    if (!file_name || !source_name) status = no_memory(s);
    if (!status && !own) status = open_source(s, folder, file_name, other);
    if (!status) status = check_part(s, own ? in : other, source_name, &t, depth);
    brim_free(file_name);
    brim_free(source_name);
  }
  if (t.selection >= 0) (void)H5Sclose(t.selection);
  brim_free(folder);
  brim_free(source_file);
  brim_free(set);
  return status;
}

static brim_status check_dataset(const sources *s, const place *in, hid_t dataset, int depth) {
  if (depth > MAX_NEST)
    return fail_source(s, in->path, brim_tr("virtual datasets nested too deep, or in a circle"));
  hid_t created = H5Dget_create_plist(dataset);
  if (created < 0) return fail_source(s, in->path, brim_tr("it cannot be opened"));
  brim_status status = BRIM_OK;
  size_t count = 0;
  if (H5Pget_external_count(created) > 0) {
    char *folder = brim_fs_dirname(in->path);
    status = folder ? check_external(s, folder, dataset, created, depth > 0) : no_memory(s);
    brim_free(folder);
  } else if (H5Pget_layout(created) == H5D_VIRTUAL &&
             (H5Pget_virtual_count(created, &count) < 0 || count > MAX_MAPPINGS)) {
    status = fail_source(s, in->path, brim_tr("it cannot be opened"));
    count = 0;
  }
  place other = {.file = -1};
  for (size_t i = 0; i < count && !status; i++)
    status = check_mapping(s, in, dataset, created, i, &other, depth);
  close_place(&other);
  (void)H5Pclose(created);
  return status;
}

// Checks that every source of the dataset exists and is long enough. The dataset must be open through
// the library's own driver.
static brim_status hdf5_outside_check(const char *path, const char *name, int64_t dataset) {
  const sources s = {.path = path, .name = name};
  char held[MAX_NAME] = "";
  place in = {.path = held, .file = H5Iget_file_id(dataset)};
  ssize_t n = H5Fget_name(dataset, held, sizeof held);
  brim_status status = in.file >= 0 && n > 0 && (size_t)n < sizeof held
                           ? check_dataset(&s, &in, dataset, 0)
                           : fail_source(&s, path, brim_tr("it cannot be opened"));
  if (in.file >= 0) (void)H5Fclose(in.file);
  return status;
}

// Tells where the library reads a chunk: the driver notes a read into `buffer` instead of doing it.
typedef struct brim_hdf5_record {
  const void *buffer;
  uint64_t address, size;
  bool hit;                            // a read was noted
  bool no_memory;                      // the driver could not allocate its file
  struct brim_hdf5_driver_file *open;  // files that the library has not closed yet
} brim_hdf5_record;

typedef struct hdf5_number {
  bool numeric, integer;
  bool plain;  // `type` describes it; else only the library can convert it
  brim_hdf5_type type;
  const char *other;  // its name in messages if it is not plain
} hdf5_number;

typedef struct hdf5_rows {
  int64_t dataset, type;
  int rank;
  const uint64_t *dim;
  uint64_t first, count;
  int64_t transfer;  // property list; 0 = the library's defaults
} hdf5_rows;

//---------------------------------- the library's lock and types ----------------------------------

// One lock for the process, as the library has one global state. Debian's build of the library has its
// own lock; other builds have none.
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static bool quiet_at_exit;  // guarded by the lock

// Turns messages off at exit: the library may keep objects of a damaged file open and complain about
// them, which no user could act on.
static void be_quiet(void) { (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL); }

void brim_data_leave_hdf5_open(void) { (void)H5dont_atexit(); }

// The lzf filter for libhdf5, which reads labels and some rows itself. It only unpacks: packing fails,
// which makes the library skip the filter if it is optional.
static size_t undo_lzf(unsigned flags, size_t count, const unsigned values[], size_t used,
                       size_t *size, void **data) {
  if (!(flags & H5Z_FLAG_REVERSE)) return 0;
  // The third value is the chunk's size, which may be wrong in a damaged file.
  size_t room = count > 2 && values[2] ? values[2] : *size, got = SIZE_MAX;
  for (; got == SIZE_MAX && room <= 256 * (used + 1); room *= 2) {
    void *out = H5allocate_memory(room, false);
    if (!out) return 0;
    got = brim_hdf5_unpack_lzf(*data, used, out, room);
    if (got == SIZE_MAX) {
      (void)H5free_memory(out);
      continue;
    }
    (void)H5free_memory(*data);
    *data = out;
    *size = room;
    return got;
  }
  return 0;
}

static void add_lzf(void) {
  static const H5Z_class2_t row = {
      H5Z_CLASS_T_VERS, BRIM_HDF5_LZF_NUMBER, 0, 1, "lzf", NULL, NULL, undo_lzf,
  };
  if (H5Zfilter_avail(BRIM_HDF5_LZF_NUMBER) <= 0) (void)H5Zregister(&row);
}

void brim_hdf5_enter(brim_hdf5_scope *scope) {
  H5E_auto2_t print = NULL;
  pthread_mutex_lock(&library_lock);
  if (!quiet_at_exit) {
    quiet_at_exit = true;
    (void)H5open();  // registers the library's exit handler first, so that it runs after be_quiet
    (void)atexit(be_quiet);
    add_lzf();
  }
  scope->ctx = NULL;
  (void)H5Eget_auto2(H5E_DEFAULT, &print, &scope->ctx);
  scope->print = print;
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void brim_hdf5_leave(const brim_hdf5_scope *scope) {
  (void)H5Eset_auto2(H5E_DEFAULT, scope->print, scope->ctx);
  pthread_mutex_unlock(&library_lock);
}

typedef struct reason {
  char *text;
  size_t size;
} reason;

// Keeps the innermost error, which comes first; the errors of its callers follow.
static herr_t first_reason(unsigned n, const H5E_error2_t *error, void *ctx) {
  const reason *r = ctx;
  (void)n;
  snprintf(r->text, r->size, "%s", error->desc ? error->desc : "");
  return 1;
}

const char *brim_hdf5_reason(char *text, size_t size) {
  reason r = {.text = text, .size = size};
  text[0] = 0;
  (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_reason, &r);
  if (!text[0]) snprintf(text, size, "%s", brim_tr("no reason given"));
  return text;
}

//---------------------------------- numbers ----------------------------------

static bool plain_float(hid_t type, size_t size) {
  static const size_t exponent[9] = {[2] = 5, [4] = 8, [8] = 11};
  size_t sign, at, exponent_bits, mantissa_at, mantissa_bits;
  if (size > 8 || !exponent[size]) return false;
  if (H5Tget_fields(type, &sign, &at, &exponent_bits, &mantissa_at, &mantissa_bits) < 0)
    return false;
  return exponent_bits == exponent[size] && sign == 8 * size - 1 && mantissa_at == 0 &&
         mantissa_bits == at && at + exponent_bits == sign &&
         H5Tget_ebias(type) == ((size_t)1 << (exponent_bits - 1)) - 1 &&
         H5Tget_norm(type) == H5T_NORM_IMPLIED;
}

static bool plain_number(hid_t type, bool integer, brim_hdf5_type *out) {
  static const brim_hdf5_kind ints[9] = {
      [1] = BRIM_HDF5_I8, [2] = BRIM_HDF5_I16, [4] = BRIM_HDF5_I32, [8] = BRIM_HDF5_I64};
  static const brim_hdf5_kind floats[9] = {
      [2] = BRIM_HDF5_F16, [4] = BRIM_HDF5_F32, [8] = BRIM_HDF5_F64};
  size_t size = H5Tget_size(type);
  H5T_order_t order = H5Tget_order(type);
  if ((size != 1 && size != 2 && size != 4 && size != 8) || H5Tget_precision(type) != 8 * size ||
      H5Tget_offset(type) != 0)
    return false;
  if (size > 1 && order != H5T_ORDER_LE && order != H5T_ORDER_BE) return false;
  out->swap = size > 1 && order != H5Tget_order(H5T_NATIVE_INT);
  if (!integer) {
    out->kind = floats[size];
    return plain_float(type, size);
  }
  out->kind = ints[size];
  if (H5Tget_sign(type) == H5T_SGN_NONE) out->kind = (brim_hdf5_kind)(out->kind + 1);
  return true;
}

static hdf5_number number_of(int64_t type) {
  static const char *const other[] = {"numbers",  "numbers",   "time", "text",     "bits", "opaque",
                                      "compound", "reference", "enum", "variable", "array"};
  hdf5_number n = {.other = "unknown"};
  H5T_class_t class = H5Tget_class(type);
  if (class == H5T_ENUM) {  // h5py stores bool so
    hid_t base = H5Tget_super(type);
    if (base >= 0) n = number_of(base);
    if (base >= 0) (void)H5Tclose(base);
    return n;
  }
  if (class >= 0 && (size_t) class < sizeof other / sizeof *other) n.other = other[class];
  n.numeric = class == H5T_INTEGER || class == H5T_FLOAT;
  n.integer = class == H5T_INTEGER;
  n.plain = n.numeric && plain_number(type, n.integer, &n.type);
  return n;
}

//---------------------------------- the driver ----------------------------------

// The library reads the file through the map from which rows are read later: both see the same content.
typedef struct brim_hdf5_driver_file {
  H5FD_t pub;
  const brim_map *map;       // NULL: brim has closed the file, the library has not
  brim_hdf5_record *record;  // likewise
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
  // The library opens the source files of a virtual dataset through this driver too: refuse them.
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
  if (f->record->buffer && out == f->record->buffer) {  // see find_chunk
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

// Opens the file through the map. `why` gets the library's reason, which its next call forgets.
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

enum {
  MAX_LINKED = 4,  // depth of groups behind external links
  MAX_PATH = 4096
};

typedef struct visit {
  brim_hdf5_file *file;
  size_t *room;  // entries allocated
  brim_status status;
  char last[256];      // the object being visited
  const char *prefix;  // where names begin: "", or "link/" behind an external link
  int depth;
} visit;

// Adds an empty entry of this name.
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

// Lists the members of a compound type, which cannot be an array of numbers.
static brim_status add_members(const brim_hdf5_file *f, hid_t type, brim_hdf5_entry *e) {
  enum { MAX_MEMBERS = 16 };
  int count = H5Tget_nmembers(type);
  brim_str text;
  brim_str_init(&text);
  for (int i = 0; i < count && i < MAX_MEMBERS; i++) {
    char *name = H5Tget_member_name(type, (unsigned)i);
    hid_t own = H5Tget_member_type(type, (unsigned)i);
    hdf5_number n = {.other = "unknown"};
    if (own >= 0) n = number_of(own);
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
  hdf5_number n = {0};
  if (type >= 0) n = number_of(type);
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

// Fills the entry of a dataset with data in other files, which the user allowed. Its shape may depend on
// those files: if it has no rows, a missing file is the trouble to report.
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
    status = hdf5_outside_check(f->path, e->path, dataset);
  }
  if (!status || status == BRIM_ENOMEM) return status;
  e->numeric = e->text = false;
  e->trouble = brim_strdup(brim_status_detail());
  brim_status_clear();
  return e->trouble ? BRIM_OK : brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
}

// Fills the entry of a dataset with data in other files. If the user allowed them, it is opened through
// the library's own driver; else it gets a `trouble`, like a link that is not followed.
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

// Adds a dataset and closes it: the library does not open a dataset twice with different
// properties.
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

// Adds a link that is not followed: it may be the dataset the user wants.
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
    bool waits = H5Fget_name(group, parent, sizeof parent) > 0 && link_would_block(parent, file);
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

// Visits the group behind an external link: the library's own visit does not enter it.
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

//---------------------------------- truncated files ----------------------------------

// The file's size according to its superblock; 0 = unknown.
static uint64_t stated_end(const brim_map *map) {
  static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  uint8_t b[64];
  for (size_t at = 0; map->size >= 16 && at <= map->size - 16; at = at ? 2 * at : 512) {
    size_t n = map->size - at < sizeof b ? map->size - at : sizeof b;
    if (brim_map_copy(map, at, b, n)) return 0;
    if (memcmp(b, signature, sizeof signature) != 0) continue;
    // The end is the third address, after those of base and free space, or of base and extension.
    size_t first = b[8] == 0 ? 24 : b[8] == 1 ? 28 : 12, size = b[8] < 2 ? b[13] : b[9];
    if (b[8] > 3 || size < 2 || size > 8 || first + 3 * size > n) return 0;
    uint64_t end = 0;
    for (size_t i = size; i > 0; i--) end = end << 8 | b[first + 2 * size + i - 1];
    return end == UINT64_MAX >> (64 - 8 * size) ? 0 : end;  // all bits set: unknown
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
  f->access = hdf5_access(f->outside);
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
  // The library may keep objects of a damaged file, and so the driver's file, open until the process
  // ends. Take the map and the record away from such files.
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

//---------------------------------- rows only the library can read ----------------------------------

enum { REASON = BRIM_HDF5_REASON };

int64_t brim_hdf5_library_dataset(const brim_map *map, int64_t mapped, const char *name,
                                  bool outside, char *why) {
  bool other = map->fd >= 0;
  hid_t access = hdf5_access(outside);
  hid_t file = other ? H5Fopen(map->path, H5F_ACC_RDONLY, H5P_DEFAULT) : mapped;
  hid_t dataset = file >= 0 && access >= 0 ? H5Dopen2(file, name, access) : -1;
  if (dataset < 0) brim_hdf5_reason(why, REASON);
  if (other && file >= 0) (void)H5Fclose(file);
  if (access >= 0) (void)H5Pclose(access);
  return dataset;
}

// The type of a dataset's rows in memory: its own type, or floats if only the library can convert it.
static int64_t memory_type(int64_t type) {
  hdf5_number number = number_of(type);
  return H5Tcopy(number.plain ? type : H5T_NATIVE_FLOAT);
}

brim_status brim_hdf5_library_open(brim_hdf5_array *a) {
  char why[REASON];
  uint64_t elements = 1;
  a->dataset = brim_hdf5_library_dataset(a->map, -1, a->name, a->outside, why);
  if (a->dataset < 0) return brim_fail(BRIM_EPARSE, "%s: %s: %s", a->map->path, a->name, why);
  hid_t type = H5Dget_type(a->dataset);
  a->memory_type = type >= 0 ? memory_type(type) : -1;
  if (type >= 0) (void)H5Tclose(type);
  for (int d = 1; d < a->rank; d++) elements *= a->dim[d];
  if (a->memory_type >= 0 && H5Tget_size(a->memory_type) * elements == a->row_bytes) return BRIM_OK;
  return brim_fail(BRIM_EIO, "%s: the file was removed or replaced", a->map->path);
}

static bool library_rows(const hdf5_rows *rows, void *out, char *why) {
  hsize_t start[H5S_MAX_RANK] = {rows->first}, size[H5S_MAX_RANK] = {rows->count};
  for (int d = 1; d < rows->rank; d++) size[d] = rows->dim[d];
  hid_t space = H5Dget_space(rows->dataset), memory = H5Screate_simple(rows->rank, size, NULL);
  herr_t status = -1;
  if (space >= 0 && memory >= 0 &&
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) >= 0)
    status = H5Dread(rows->dataset, rows->type, memory, space, rows->transfer, out);
  if (status < 0) brim_hdf5_reason(why, REASON);
  if (space >= 0) (void)H5Sclose(space);
  if (memory >= 0) (void)H5Sclose(memory);
  return status >= 0;
}

brim_status brim_hdf5_library_row(const brim_hdf5_array *a, uint64_t index, uint8_t *row) {
  char why[REASON];
  const hdf5_rows rows = {a->dataset, a->memory_type, a->rank, a->dim, index, 1, H5P_DEFAULT};
  if (!library_rows(&rows, row, why))
    return brim_fail(BRIM_EIO, "%s: %s[%" PRIu64 "]: %s", a->map->path, a->name, index, why);
  return BRIM_OK;
}

//---------------------------------- the layout of a dataset, labels, attributes ----------------------------------

enum {
  LABEL_PIECE = 1 << 16,
  TEXT_PIECE = 1 << 12,  // rows of text read at once
  TEXT_ROOM = 2 << 20,   // bytes of their text: TEXT_PIECE names of BRIM_DATA_CLASS_BYTES fit
  BLOCK = 64,            // neighbouring rows read by one child, if there are no chunks
};

static brim_status fail_reason(const brim_hdf5_file *f, const char *name, const char *why) {
  return brim_fail(BRIM_EPARSE, "%s: /%s: %s", f->path, name, why);
}

// Fails with the library's reason. Call it right after the failed call: the next call of the library,
// even a close, forgets the reason.
static brim_status fail_library(const brim_hdf5_file *f, const char *name) {
  char text[160];
  return fail_reason(f, name, brim_hdf5_reason(text, sizeof text));
}

//---------------------------------- chunks ----------------------------------

// Finds the place in the file of the chunk that begins at element `at`. The library's query walks the
// whole index each time (HDF5 1.10, 16,000 chunks: 0.2 to 1.6 ms), but reading a chunk finds it at once.
// So the library is told to read, and the driver notes where.
static brim_status find_chunk(brim_hdf5_file *f, const char *name, hid_t dataset, const hsize_t *at,
                              uint8_t **buffer, brim_hdf5_chunk *out) {
  hsize_t size = 0;
  uint32_t mask = 0;
  *out = (brim_hdf5_chunk){0};
  // The chunk was never written, or its entry is damaged: find_chunks tells by the number of chunks.
  if (H5Dget_chunk_storage_size(dataset, at, &size) < 0 || size == 0) return BRIM_OK;
  if (size > UINT32_MAX || size > f->map.size)
    return brim_fail(BRIM_EPARSE, "%s: /%s: a chunk of %llu bytes in a file of %zu", f->path, name,
                     (unsigned long long)size, f->map.size);
  // A library version that reads in another way really writes into this buffer.
  if (!*buffer || brim_alloc_size(*buffer) < size) {
    brim_free(*buffer);
    *buffer = brim_alloc((size_t)size);
    if (!*buffer) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  }
  f->record->buffer = *buffer;
  f->record->hit = false;
  herr_t read = H5Dread_chunk(dataset, H5P_DEFAULT, at, &mask, *buffer);
  f->record->buffer = NULL;
  uint64_t address = f->record->address;
  if (read < 0) return BRIM_OK;
  if (!f->record->hit || f->record->size != size) {
    haddr_t slow = HADDR_UNDEF;
    hsize_t user_block = 0;
    hid_t created = H5Fget_create_plist(f->file);
    if (H5Dget_chunk_info_by_coord(dataset, at, &mask, &slow, &size) < 0 || created < 0 ||
        H5Pget_userblock(created, &user_block) < 0 || slow == HADDR_UNDEF) {
      brim_status status = fail_library(f, name);
      if (created >= 0) (void)H5Pclose(created);
      return status;
    }
    (void)H5Pclose(created);
    // Before HDF5 1.14 the address does not count the user block.
    address = slow + (H5_VERSION_GE(1, 14, 0) ? 0 : user_block);
  }
  *out = (brim_hdf5_chunk){.address = address, .bytes = (uint32_t)size, .mask = mask};
  return BRIM_OK;
}

// Fills the table of chunks. whole_edges_only: chunks that reach past the dataset are not filtered.
static brim_status find_chunks(brim_hdf5_file *f, const char *name, hid_t dataset,
                               bool whole_edges_only, brim_hdf5_array *a) {
  hsize_t at[BRIM_HDF5_MAX_RANK];
  uint8_t *buffer = NULL;
  brim_status status = BRIM_OK;
  a->chunks = brim_alloc_tagged(a->chunk_count * sizeof *a->chunks, BRIM_MEM_PLANNED);
  if (!a->chunks)
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for the table of %" PRIu64 " chunks",
                     f->path, name, a->chunk_count);
  for (uint64_t i = 0; i < a->chunk_count && !status; i++) {
    uint64_t rest = i;
    bool edge = false;
    for (int d = a->rank - 1; d >= 0; d--) {
      at[d] = rest % a->grid[d] * a->chunk[d];
      rest /= a->grid[d];
      edge = edge || at[d] + a->chunk[d] > a->dim[d];
    }
    status = find_chunk(f, name, dataset, at, &buffer, &a->chunks[i]);
    if (edge && whole_edges_only) a->chunks[i].mask = UINT32_MAX;
  }
  brim_free(buffer);
  if (status) return status;
  // A chunk that was never written looks like one that cannot be found, so compare the numbers.
  hsize_t stored = 0, found = 0;
  hid_t space = H5Dget_space(dataset);
  herr_t counted = space >= 0 ? H5Dget_num_chunks(dataset, space, &stored) : -1;
  if (counted < 0) status = fail_library(f, name);
  if (space >= 0) (void)H5Sclose(space);
  for (uint64_t i = 0; i < a->chunk_count; i++) found += a->chunks[i].bytes != 0;
  if (status) return status;
  if (found == stored) return BRIM_OK;
  return brim_fail(BRIM_EPARSE, "%s: /%s: found only %llu of its %llu chunks; is the file damaged?",
                   f->path, name, (unsigned long long)found, (unsigned long long)stored);
}

// Reads the filters into the array's list; false if brim cannot undo them all. *missing: a filter that
// libhdf5 lacks too.
static bool read_filters(hid_t created, int count, brim_hdf5_array *a, H5Z_filter_t *missing) {
  int seen[BRIM_HDF5_FILTER_COUNT] = {0};
  bool ours = count <= BRIM_HDF5_MAX_FILTERS;
  for (int i = 0; i < count; i++) {
    unsigned flags, values[8] = {0};
    size_t n = 8;
    H5Z_filter_t id = H5Pget_filter2(created, (unsigned)i, &flags, &n, values, 0, NULL, NULL);
    if (id < 0) return false;
    if (H5Zfilter_avail(id) <= 0) *missing = id;
    brim_hdf5_filter filter = {.id = BRIM_HDF5_FILTER_COUNT};
    if (id == H5Z_FILTER_DEFLATE) filter.id = BRIM_HDF5_DEFLATE;
    if (id == H5Z_FILTER_SHUFFLE) filter.id = BRIM_HDF5_SHUFFLE;
    if (id == BRIM_HDF5_LZF_NUMBER) filter.id = BRIM_HDF5_LZF;
    if (id == H5Z_FILTER_FLETCHER32) filter.id = BRIM_HDF5_FLETCHER32;
    // The library stores the element's size with the filter; 0 in damaged files.
    if (filter.id == BRIM_HDF5_SHUFFLE) filter.element = n ? values[0] : 0;
    // Shuffling packed bytes is refused, as they may be larger than a chunk's room.
    if (filter.id == BRIM_HDF5_FILTER_COUNT || seen[filter.id]++ ||
        (filter.id == BRIM_HDF5_SHUFFLE &&
         (!filter.element || seen[BRIM_HDF5_DEFLATE] || seen[BRIM_HDF5_LZF])))
      ours = false;
    if (ours) a->filters[i] = filter;
  }
  a->filter_count = ours ? count : 0;
  return ours;
}

// Common names of the most frequent filters, as registered with the HDF Group.
static const char *filter_name(H5Z_filter_t id) {
  static const struct {
    H5Z_filter_t id;
    const char *name;
  } known[] = {{4, " (szip)"},           {32001, " (blosc)"}, {32004, " (lz4)"},
               {32008, " (bitshuffle)"}, {32013, " (zfp)"},   {32015, " (zstd)"},
               {32026, " (blosc2)"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].id == id) return known[i].name;
  }
  return "";
}

static brim_status read_chunked(brim_hdf5_file *f, const char *name, hid_t dataset, hid_t created,
                                brim_hdf5_array *a) {
  hsize_t chunk[H5S_MAX_RANK];
  H5Z_filter_t missing = -1;
  unsigned options = 0;
  int count = H5Pget_nfilters(created);
  if (count < 0 || H5Pget_chunk(created, a->rank, chunk) != a->rank) return fail_library(f, name);
  bool ours = read_filters(created, count, a, &missing);
  if (missing >= 0)
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: /%s: written with HDF5 filter %d%s, which this libhdf5 does not have; "
                     "write it again with gzip or without a filter",
                     f->path, name, (int)missing, filter_name(missing));
  if (!ours) {
    a->where = BRIM_HDF5_LIBRARY;
    a->block = chunk[0] ? chunk[0] : 1;
    a->slow = brim_tr("its filters are not deflate, lzf, shuffle or fletcher32");
    return brim_hdf5_array_shape(a);
  }
  a->where = count ? BRIM_HDF5_PACKED : BRIM_HDF5_CHUNKS;
  for (int d = 0; d < a->rank; d++) a->chunk[d] = chunk[d];
  BRIM_TRY(brim_hdf5_array_shape(a));
  (void)H5Pget_chunk_opts(created, &options);
  return find_chunks(f, name, dataset, (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0, a);
}

//---------------------------------- layouts ----------------------------------

static brim_status read_layout(brim_hdf5_file *f, const char *name, hid_t dataset, hid_t created,
                               brim_hdf5_array *a) {
  H5D_space_status_t space = H5D_SPACE_STATUS_ERROR;
  H5D_layout_t layout = H5Pget_layout(created);
  haddr_t offset;
  a->where = BRIM_HDF5_LIBRARY;
  a->block = BLOCK;
  if (a->outside) a->slow = brim_tr("its data lie in other files");
  if (a->slow) return brim_hdf5_array_shape(a);  // other files, or a type for the library only
  if (H5Dget_space_status(dataset, &space) < 0) return fail_library(f, name);
  switch (layout) {
    case H5D_CONTIGUOUS:
      offset = H5Dget_offset(dataset);
      if (offset != HADDR_UNDEF) {
        a->where = BRIM_HDF5_MAPPED;
        a->offset = offset;
      } else if (space == H5D_SPACE_STATUS_NOT_ALLOCATED) {
        a->where = BRIM_HDF5_FILL;
      } else {
        a->slow = brim_tr("its place in the file is not known");
      }
      break;
    case H5D_CHUNKED:
      if (space != H5D_SPACE_STATUS_NOT_ALLOCATED)
        return read_chunked(f, name, dataset, created, a);
      a->where = BRIM_HDF5_FILL;
      break;
    case H5D_COMPACT:
      a->slow = brim_tr("it is stored in its own header");
      break;
    case H5D_VIRTUAL:
      a->slow = brim_tr("it is put together from other datasets");
      break;
    case H5D_LAYOUT_ERROR:
    case H5D_NLAYOUTS:
      return fail_library(f, name);
  }
  return brim_hdf5_array_shape(a);
}

static void read_fill(hid_t created, hid_t type, brim_hdf5_array *a) {
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  uint8_t fill[8] = {0};
  if (H5Pfill_value_defined(created, &defined) < 0 || defined == H5D_FILL_VALUE_UNDEFINED) return;
  if (H5Tget_size(type) <= sizeof fill && H5Pget_fill_value(created, type, fill) >= 0)
    memcpy(a->fill, fill, sizeof fill);
}

// Reads the whole dataset into memory. If that fails, the array stays LIBRARY: some rows may be good.
static brim_status read_whole(const brim_hdf5_file *f, const char *name, brim_hdf5_array *a,
                              char *why) {
  a->memory = brim_alloc_tagged(a->total_bytes, BRIM_MEM_PLANNED);
  if (!a->memory)
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " bytes", f->path, name,
                     a->total_bytes);
  if (H5Dread(a->dataset, a->memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, a->memory) >= 0) {
    a->where = BRIM_HDF5_MEMORY;
    return BRIM_OK;
  }
  brim_hdf5_reason(why, REASON);
  brim_free(a->memory);
  a->memory = NULL;
  return BRIM_OK;
}

// Prepares a dataset that only the library can read: reads all of it now if it has at most `keep` bytes,
// else creates the reader of its rows (for a file in memory: keeps the handle).
static brim_status read_library(const brim_hdf5_file *f, const char *name, uint64_t keep,
                                brim_hdf5_array *a) {
  char why[REASON];
  bool whole = a->total_bytes <= keep, bytes = f->map.fd < 0;
  if (whole || bytes) {
    a->dataset = brim_hdf5_library_dataset(&f->map, f->file, name, a->outside, why);
    if (a->dataset < 0) return fail_reason(f, name, why);
  }
  if (whole) {
    BRIM_TRY(read_whole(f, name, a, why));
    if (a->where == BRIM_HDF5_MEMORY) return BRIM_OK;
    if (bytes) return brim_fail(BRIM_EIO, "%s: cannot read /%s: %s", f->path, name, why);
    brim_log_warn("data", "%s: cannot read /%s as a whole, so brim reads it row by row: %s",
                  f->path, name, why);
  } else {
    brim_log_warn(
        "data",
        "%s: libhdf5 reads /%s slowly, row by row: %s; rewrite it as contiguous or gzip for speed",
        f->path, name, a->slow);
  }
  if (!bytes) {
    // Close the file here: a child opens it again.
    if (a->dataset >= 0) (void)H5Dclose(a->dataset);
    a->dataset = -1;
    return brim_hdf5_reader_create(a, &a->reader);
  }
  a->row = brim_alloc_tagged(a->row_bytes, BRIM_MEM_PLANNED);
  if (a->row) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " bytes", f->path, name,
                   a->row_bytes);
}

// Opens a dataset of the list. If its data lie in other files, the user must have allowed them, and the
// library's own driver opens it.
static brim_status open_entry(const brim_hdf5_file *f, const brim_hdf5_entry *e, hid_t *out) {
  char why[REASON], other[512];
  hid_t dataset = e->outside ? brim_hdf5_library_dataset(&f->map, f->file, e->path, f->outside, why)
                             : H5Dopen2(f->file, e->path, f->access);
  if (dataset < 0) return e->outside ? fail_reason(f, e->path, why) : fail_library(f, e->path);
  brim_status status = BRIM_OK;
  if (!e->outside && brim_hdf5_outside(f, dataset, other, sizeof other))  // the file has changed
    status = brim_fail(BRIM_EINVAL, "%s: /%s: its data lie in another file, %s", f->path, e->path,
                       other);
  // A virtual dataset within one file may lack a source, too.
  if (!status) status = hdf5_outside_check(f->path, e->path, dataset);
  if (status) (void)H5Dclose(dataset);
  *out = status ? -1 : dataset;
  return status;
}

static brim_status array_locked(brim_hdf5_file *f, const brim_hdf5_entry *e, uint64_t keep,
                                brim_hdf5_array *a) {
  hid_t dataset;
  BRIM_TRY(open_entry(f, e, &dataset));
  hid_t created = H5Dget_create_plist(dataset);
  hid_t type = created >= 0 ? H5Dget_type(dataset) : -1;
  brim_status status = BRIM_OK;
  if (created < 0 || type < 0) {
    status = fail_library(f, e->path);
  } else {
    hdf5_number number = number_of(type);
    a->type = number.type;
    if (!number.plain) {
      a->slow = brim_tr("brim does not support its number type");
      a->type = (brim_hdf5_type){.kind = BRIM_HDF5_F32};
    } else {
      read_fill(created, type, a);
    }
    a->memory_type = memory_type(type);
    status = a->memory_type < 0 ? fail_library(f, e->path)
                                : read_layout(f, e->path, dataset, created, a);
    if (!status) status = brim_hdf5_array_check(a);
    if (!status && a->where == BRIM_HDF5_LIBRARY) status = read_library(f, e->path, keep, a);
  }
  if (type >= 0) (void)H5Tclose(type);
  if (created >= 0) (void)H5Pclose(created);
  (void)H5Dclose(dataset);
  return status;
}

static void close_handles_locked(brim_hdf5_array *a) {
  if (a->dataset >= 0) (void)H5Dclose(a->dataset);
  if (a->memory_type >= 0) (void)H5Tclose(a->memory_type);
  a->dataset = a->memory_type = -1;
}

brim_status brim_hdf5_file_array(brim_hdf5_file *f, const brim_hdf5_entry *e, uint64_t keep,
                                 brim_hdf5_array *a) {
  brim_hdf5_scope scope;
  *a = (brim_hdf5_array){
      .map = &f->map, .rank = e->rank, .outside = e->outside, .dataset = -1, .memory_type = -1};
  for (int d = 0; d < e->rank && d < BRIM_HDF5_MAX_RANK; d++) a->dim[d] = e->dim[d];
  size_t n = strlen(e->path) + 2;
  a->name = brim_alloc(n);
  if (!a->name) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  snprintf(a->name, n, "/%s", e->path);
  brim_hdf5_enter(&scope);
  brim_status status = array_locked(f, e, keep, a);
  if (status || a->where != BRIM_HDF5_LIBRARY) close_handles_locked(a);
  brim_hdf5_leave(&scope);
  if (status) brim_hdf5_array_deinit(a);
  return status;
}

void brim_hdf5_file_close_array(brim_hdf5_array *a) {
  if (a->dataset >= 0 || a->memory_type >= 0) {
    brim_hdf5_scope scope;
    brim_hdf5_enter(&scope);
    close_handles_locked(a);
    brim_hdf5_leave(&scope);
  }
  brim_hdf5_array_deinit(a);
}

//---------------------------------- labels and attributes ----------------------------------

// Labels of rows [first, first + n). wide: values below 0 stand for large unsigned numbers.
typedef struct label_piece {
  const int64_t *values;
  uint64_t first, n;
  bool wide;
} label_piece;

static void take_labels(label_piece p, int32_t *out, brim_hdf5_whole *whole) {
  for (uint64_t i = 0; i < p.n; i++) {
    int64_t value = p.values[i];
    bool above = value >= BRIM_HDF5_MAX_CLASSES || (p.wide && value < 0);
    if ((above || value < 0) && !whole->wrong) {
      whole->wrong = true;
      whole->wrong_row = p.first + i;
      whole->wrong_value = value;
      whole->wide = p.wide;
    }
    int32_t near = above ? BRIM_HDF5_MAX_CLASSES : value < INT32_MIN ? INT32_MIN : (int32_t)value;
    if (near < whole->least) whole->least = near;
    if (near > whole->most) whole->most = near;
    out[p.first + i] = near;
  }
}

static brim_status labels_locked(brim_hdf5_file *f, const brim_hdf5_entry *e, int64_t *piece,
                                 int32_t *out, brim_hdf5_whole *whole) {
  hid_t dataset;
  BRIM_TRY(open_entry(f, e, &dataset));
  // An enum, such as h5py's bool, is read in its own type and widened below.
  hid_t type = H5Dget_type(dataset);
  bool narrow = type >= 0 && H5Tget_class(type) == H5T_ENUM;
  hdf5_number number = {0};
  if (type >= 0) number = number_of(type);
  bool wide = !narrow && number.plain && number.type.kind == BRIM_HDF5_U64;
  hid_t as = narrow ? type : wide ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
  size_t bytes = narrow ? H5Tget_size(type) : sizeof *piece;
  brim_status status = BRIM_OK;
  char why[REASON];
  if (type < 0) status = fail_library(f, e->path);
  if (narrow && !number.plain)
    status = fail_reason(f, e->path, brim_tr("brim does not support its number type"));
  for (uint64_t at = 0; at < e->dim[0] && !status; at += LABEL_PIECE) {
    uint64_t n = e->dim[0] - at < LABEL_PIECE ? e->dim[0] - at : LABEL_PIECE;
    const hdf5_rows rows = {dataset, as, e->rank, e->dim, at, n, H5P_DEFAULT};
    if (!library_rows(&rows, piece, why)) {
      status = fail_reason(f, e->path, why);
      break;
    }
    for (uint64_t i = n; narrow && i-- > 0;) {  // widened in place, from the end
      float value;
      brim_hdf5_convert(number.type, (const uint8_t *)piece + i * bytes, 1, &value, 1);
      // A float out of range becomes INT64_MAX, which no label is.
      piece[i] = fabsf(value) < (float)INT32_MAX ? (int64_t)value : INT64_MAX;
    }
    take_labels((label_piece){piece, at, n, wide}, out, whole);
  }
  if (type >= 0) (void)H5Tclose(type);
  (void)H5Dclose(dataset);
  return status;
}

brim_status brim_hdf5_file_labels(brim_hdf5_file *f, const brim_hdf5_entry *e, int32_t *out,
                                  brim_hdf5_whole *whole) {
  brim_hdf5_scope scope;
  *whole = (brim_hdf5_whole){.least = INT32_MAX, .most = INT32_MIN};
  // `piece` has room for one number a row.
  if (!e->integer || e->rank < 1 || e->rank > 2 || (e->rank == 2 && e->dim[1] != 1))
    return brim_fail(BRIM_EINVAL, "%s: /%s: labels must be one whole number per row", f->path,
                     e->path);
  int64_t *piece = brim_alloc(LABEL_PIECE * sizeof *piece);
  if (!piece) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  brim_hdf5_enter(&scope);
  brim_status status = labels_locked(f, e, piece, out, whole);
  brim_hdf5_leave(&scope);
  brim_free(piece);
  return status;
}

brim_status brim_hdf5_file_check_labels(const brim_hdf5_file *f, const brim_hdf5_entry *e,
                                        const brim_hdf5_whole *whole) {
  if (!whole->wrong) return BRIM_OK;
  if (whole->wrong_value < 0 && !whole->wide)
    return brim_fail(BRIM_EPARSE,
                     "%s: /%s[%" PRIu64 "] is %" PRId64
                     "; labels start at 0; to train on them as regression targets set "
                     "dataset: hdf5(classes=0)",
                     f->path, e->path, whole->wrong_row, whole->wrong_value);
  return brim_fail(BRIM_EPARSE,
                   "%s: /%s[%" PRIu64 "] is %" PRIu64
                   ", expected a class from 0 to %d; to train on them as regression targets set "
                   "dataset: hdf5(classes=0)",
                   f->path, e->path, whole->wrong_row, (uint64_t)whole->wrong_value,
                   (int)BRIM_HDF5_MAX_CLASSES - 1);
}

// Room for the variable-length strings of one piece of rows. The library gets its memory for strings
// from here, so a file with rows of megabytes cannot take more.
typedef struct text_room {
  uint8_t *bytes;
  size_t used;
  bool full;
} text_room;

// The library's allocator for strings.
static void *take_text(size_t size, void *ctx) {
  text_room *room = ctx;
  if (size > TEXT_ROOM - room->used) {
    room->full = true;
    return NULL;
  }
  void *out = room->bytes + room->used;
  room->used += (size + 7) / 8 * 8;
  if (room->used > TEXT_ROOM) room->used = TEXT_ROOM;
  return out;
}

// The library's free for strings: the whole room is reused for the next piece.
static void keep_text(void *text, void *ctx) { (void)text, (void)ctx; }

// Buffers to read one piece of rows.
typedef struct text_job {
  hdf5_rows rows;
  size_t size;      // bytes of a row in memory: its text, or a pointer to it
  bool any_length;  // a row is a pointer
  bool spaces;      // the text is padded with spaces
  uint8_t *piece;
  text_room room;
  const char *what;
} text_job;

static brim_status text_piece(const brim_hdf5_file *f, const brim_hdf5_entry *e, text_job *job,
                              brim_data_classes *classes, int32_t *out) {
  char why[REASON];
  job->room.used = 0;
  memset(job->piece, 0, job->rows.count * job->size);
  if (!library_rows(&job->rows, job->piece, why)) {
    return job->room.full ? brim_data_classes_fail_long(job->what) : fail_reason(f, e->path, why);
  }
  for (uint64_t i = 0; i < job->rows.count; i++) {
    const char *text = (const char *)job->piece + i * job->size;
    size_t n = job->size;
    int32_t label;
    if (job->any_length) {
      memcpy(&text, job->piece + i * job->size, sizeof text);
      if (!text) text = "";
      n = strlen(text);
    }
    while (job->spaces && n > 0 && text[n - 1] == ' ') n--;
    BRIM_TRY(brim_data_classes_label(classes, job->what, job->rows.first + i, text, n, &label));
    if (out) out[job->rows.first + i] = label;
  }
  return BRIM_OK;
}

static brim_status text_locked(brim_hdf5_file *f, const brim_hdf5_entry *e, text_job *job,
                               brim_data_classes *classes, int32_t *out) {
  hid_t dataset;
  BRIM_TRY(open_entry(f, e, &dataset));
  hid_t type = H5Dget_type(dataset), transfer = H5Pcreate(H5P_DATASET_XFER);
  brim_status status = BRIM_OK;
  bool text = type >= 0 && H5Tget_class(type) == H5T_STRING;
  if (!text || transfer < 0 ||
      H5Pset_vlen_mem_manager(transfer, take_text, &job->room, keep_text, NULL) < 0) {
    status = fail_library(f, e->path);
  } else {
    job->any_length = H5Tis_variable_str(type) > 0;
    job->spaces = H5Tget_strpad(type) == H5T_STR_SPACEPAD;
    job->size = job->any_length ? sizeof(char *) : H5Tget_size(type);
    job->rows = (hdf5_rows){
        .dataset = dataset, .type = type, .rank = e->rank, .dim = e->dim, .transfer = transfer};
    if (!job->size || job->size > TEXT_ROOM) status = brim_data_classes_fail_long(job->what);
  }
  uint64_t most = status ? 0 : TEXT_ROOM / job->size;
  if (most > TEXT_PIECE) most = TEXT_PIECE;
  for (uint64_t at = 0; at < e->dim[0] && !status; at += most) {
    job->rows.first = at;
    job->rows.count = e->dim[0] - at < most ? e->dim[0] - at : most;
    status = text_piece(f, e, job, classes, out);
  }
  if (transfer >= 0) (void)H5Pclose(transfer);
  if (type >= 0) (void)H5Tclose(type);
  (void)H5Dclose(dataset);
  return status;
}

brim_status brim_hdf5_file_text_labels(brim_hdf5_file *f, const brim_hdf5_entry *e,
                                       brim_data_classes *classes, int32_t *out) {
  brim_hdf5_scope scope;
  brim_str what;
  brim_str_init(&what);
  brim_str_printf(&what, "%s: /%s", f->path, e->path);
  text_job job = {.piece = brim_alloc(2 * TEXT_ROOM), .what = what.data};
  brim_status status = BRIM_OK;
  if (!job.piece || brim_str_status(&what)) {
    status = brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  } else {
    job.room.bytes = job.piece + TEXT_ROOM;
    brim_hdf5_enter(&scope);
    status = text_locked(f, e, &job, classes, out);
    brim_hdf5_leave(&scope);
  }
  brim_free(job.piece);
  brim_str_deinit(&what);
  return status;
}

static hid_t open_attribute(brim_hdf5_file *f, const brim_hdf5_entry *e, const char *name) {
  if (H5Aexists_by_name(f->file, e->path, name, f->access) <= 0) return -1;
  return H5Aopen_by_name(f->file, e->path, name, H5P_DEFAULT, f->access);
}

bool brim_hdf5_file_floats(brim_hdf5_file *f, const brim_hdf5_entry *e, const char *name,
                           float *out, size_t room, size_t *count) {
  brim_hdf5_scope scope;
  *count = 0;
  brim_hdf5_enter(&scope);
  hid_t attribute = open_attribute(f, e, name);
  hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
  hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : 0;
  if (n > 0 && (size_t)n <= room && H5Aread(attribute, H5T_NATIVE_FLOAT, out) >= 0)
    *count = (size_t)n;
  if (space >= 0) (void)H5Sclose(space);
  if (attribute >= 0) (void)H5Aclose(attribute);
  brim_hdf5_leave(&scope);
  return attribute >= 0;
}

static void read_text(hid_t attribute, hid_t type, char *out, size_t room) {
  size_t size = H5Tget_size(type);
  if (H5Tis_variable_str(type) > 0) {
    char *text = NULL;
    if (H5Aread(attribute, type, &text) >= 0 && text) snprintf(out, room, "%s", text);
    if (text) (void)H5free_memory(text);
  } else if (size > 0 && size < room) {
    if (H5Aread(attribute, type, out) < 0) size = 0;
    out[size] = 0;
  }
}

bool brim_hdf5_file_text(brim_hdf5_file *f, const brim_hdf5_entry *e, const char *name, char *out,
                         size_t room) {
  brim_hdf5_scope scope;
  out[0] = 0;
  brim_hdf5_enter(&scope);
  hid_t attribute = open_attribute(f, e, name);
  hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1;
  hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
  if (type >= 0 && H5Tget_class(type) == H5T_STRING && space >= 0 &&
      H5Sget_simple_extent_npoints(space) == 1)
    read_text(attribute, type, out, room);
  if (space >= 0) (void)H5Sclose(space);
  if (type >= 0) (void)H5Tclose(type);
  if (attribute >= 0) (void)H5Aclose(attribute);
  brim_hdf5_leave(&scope);
  return attribute >= 0;
}

//---------------------------------- the driver for writing ----------------------------------

// The driver through which the library writes. If the library learns of a full disk, as from its own
// driver, it can neither finish nor forget the file and crashes at exit. This driver keeps the error in
// brim_hdf5_out and reports success; the caller throws the file away.
typedef struct out_file {
  H5FD_t pub;
  brim_hdf5_out *out;
  haddr_t eoa, eof;
} out_file;

typedef struct out_info {
  brim_hdf5_out *out;
} out_info;

static out_file *out_of(H5FD_t *file) { return (out_file *)(void *)file; }
static const out_file *out_of_const(const H5FD_t *file) {
  return (const out_file *)(const void *)file;
}

static H5FD_t *out_open(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr) {
  const out_info *info = H5Pget_driver_info(fapl);
  (void)name;
  (void)flags;
  (void)maxaddr;
  out_file *f = info ? brim_calloc(1, sizeof *f) : NULL;
  if (info && !f) info->out->err = ENOMEM;
  if (!f) return NULL;
  f->out = info->out;
  return &f->pub;
}

static herr_t out_close(H5FD_t *file) {
  brim_free(file);
  return 0;
}

static haddr_t out_get_eoa(const H5FD_t *file, H5FD_mem_t type) {
  (void)type;
  return out_of_const(file)->eoa;
}

static herr_t out_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t eoa) {
  (void)type;
  out_of(file)->eoa = eoa;
  return 0;
}

static haddr_t out_get_eof(const H5FD_t *file, H5FD_mem_t type) {
  (void)type;
  return out_of_const(file)->eof;
}

void brim_hdf5_out_write(brim_hdf5_out *w, const void *data, size_t size, uint64_t offset) {
  const uint8_t *p = data;
  while (size && !w->err) {
    ssize_t n = pwrite(w->fd, p, size, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      w->err = n < 0 ? errno : ENOSPC;
      return;
    }
    p += n;
    offset += (uint64_t)n;
    size -= (size_t)n;
  }
}

static herr_t out_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size,
                        const void *data) {
  out_file *f = out_of(file);
  (void)type;
  (void)dxpl;
  brim_hdf5_out_write(f->out, data, size, address);
  if (address + size > f->eof) f->eof = address + size;
  return 0;
}

// Bytes beyond the end read as zero, as with the library's own driver.
static herr_t out_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size,
                       void *out) {
  const out_file *f = out_of_const(file);
  size_t done = 0;
  (void)type;
  (void)dxpl;
  while (done < size) {
    ssize_t n = pread(f->out->fd, (uint8_t *)out + done, size - done, (off_t)(address + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (size_t)n;
  }
  memset((uint8_t *)out + done, 0, size - done);
  return 0;
}

static herr_t out_truncate(H5FD_t *file, hid_t dxpl, hbool_t closing) {
  out_file *f = out_of(file);
  (void)dxpl;
  (void)closing;
  if (!f->out->err && ftruncate(f->out->fd, (off_t)f->eoa) != 0) f->out->err = errno;
  f->eof = f->eoa;
  return 0;
}

static const H5FD_class_t out_class = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = H5_VFD_RESERVED + 78,
#endif
    .name = "brim_out",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(out_info),
    .open = out_open,
    .close = out_close,
    .get_eoa = out_get_eoa,
    .set_eoa = out_set_eoa,
    .get_eof = out_get_eof,
    .read = out_read,
    .write = out_write,
    .truncate = out_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

int64_t brim_hdf5_out_create_plist(int64_t plist_class) {
  hid_t plist = H5Pcreate(plist_class);
  if (plist >= 0 && H5Pset_obj_track_times(plist, false) < 0) {
    H5Pclose(plist);
    return -1;
  }
  return plist;
}

int64_t brim_hdf5_out_create(brim_hdf5_out *out, const char *path) {
  out_info info = {.out = out};
  hid_t file = -1;
  out->driver = H5FDregister(&out_class);
  hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
  hid_t fcpl = brim_hdf5_out_create_plist(H5P_FILE_CREATE);  // properties of the root group
  if (out->driver >= 0 && fapl >= 0 && fcpl >= 0 && H5Pset_driver(fapl, out->driver, &info) >= 0) {
    file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
  }
  if (fcpl >= 0) H5Pclose(fcpl);
  if (fapl >= 0) H5Pclose(fapl);
  return file;
}

void brim_hdf5_out_close(brim_hdf5_out *out) {
  if (out->driver >= 0) H5FDunregister(out->driver);
  out->driver = -1;
}
