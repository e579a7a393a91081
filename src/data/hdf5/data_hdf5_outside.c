// Datasets of an HDF5 file whose data lie in other files: external storage, virtual datasets and
// external links. A file can name any other file this way, /etc/passwd too, so brim follows such a
// name only with the user's consent, and then checks that every source exists and is long enough:
// the library reads a missing one as fill values, without an error.
#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base_fs.h"
#include "data/hdf5/data_hdf5.h"

enum {
  MAX_NEST = 4,            // virtual datasets of virtual datasets
  MAX_BLOCKS = 1 << 20,    // sources of one mapping with a number in its name
  MAX_MAPPINGS = 1 << 20,  // mappings of one virtual dataset
  MAX_NAME = 4096,
};

//---------------------------------- access ----------------------------------

// True for pipes and devices, on which the library's open would block. It refuses folders itself.
static bool waits(const char *folder, const char *name) {
  struct stat st;
  char *path = brim_fs_join(folder, name);
  bool found = !path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
  brim_free(path);
  return found;
}

// The library tries an external link's file by its own name, below each folder of HDF5_EXT_PREFIX,
// and beside the file with the link, also where a symbolic link leads. Check each of these places.
bool brim_hdf5_link_waits(const char *parent, const char *name) {
  if (waits("", name)) return true;
  const char *last = name[0] == '/' ? brim_fs_basename(name) : name;
  char *folder = brim_fs_dirname(parent), *real = realpath(parent, NULL);
  char *beside = real ? brim_fs_dirname(real) : NULL;
  bool found = !folder || waits(folder, last) || (real && (!beside || waits(beside, last)));
  const char *prefix = getenv("HDF5_EXT_PREFIX");
  while (prefix && *prefix && !found) {
    size_t n = strcspn(prefix, ":");
    char one[MAX_NAME];
    found = n >= sizeof one;
    if (!found && n > 0) {
      memcpy(one, prefix, n);
      one[n] = '\0';
      found = waits(one, last);
    }
    prefix += n + (prefix[n] == ':');
  }
  brim_free(beside);
  free(real);
  brim_free(folder);
  return found;
}

// ctx: char[MAX_NAME] for the name of the file, or NULL.
static herr_t refuse_link(const char *parent_file, const char *parent_group, const char *child_file,
                          const char *child_object, unsigned *flags, hid_t fapl, void *ctx) {
  (void)parent_file, (void)parent_group, (void)child_object, (void)flags, (void)fapl;
  if (ctx) snprintf(ctx, MAX_NAME, "%s", child_file);
  return -1;
}

static herr_t follow_link(const char *parent_file, const char *parent_group, const char *child_file,
                          const char *child_object, unsigned *flags, hid_t fapl, void *ctx) {
  (void)parent_group, (void)child_object, (void)flags, (void)fapl, (void)ctx;
  return brim_hdf5_link_waits(parent_file, child_file) ? -1 : 0;
}

// Opens with default properties, except for what external links do on the way.
static hid_t open_dataset(hid_t file, const char *name, H5L_elink_traverse_t on_link, void *ctx) {
  hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  bool good = access >= 0 && H5Pset_elink_cb(access, on_link, ctx) >= 0;
  hid_t dataset = good ? H5Dopen2(file, name, access) : -1;
  if (access >= 0) (void)H5Pclose(access);
  return dataset;
}

int64_t brim_hdf5_access(bool outside) {
  hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  if (access < 0) return -1;
  herr_t good = -1;
  if (outside) {
    // The library's own driver, not ours, opens what an external link names. External storage is
    // looked up in the folder of the file; the library's default is the current folder.
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

// The name of a source as stored in the file; brim_free. NULL: the library does not say, or out of
// memory.
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

static bool is_own(const char *file) { return strcmp(file, ".") == 0; }

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
static bool is_there(const char *parent, const char *name) {
  struct stat st;
  char *folder = brim_fs_dirname(parent);
  char *beside = folder ? brim_fs_join(folder, name) : NULL;
  bool found = stat(name, &st) == 0 || (beside && stat(beside, &st) == 0);
  brim_free(beside);
  brim_free(folder);
  return found;
}

// One mapping: the library takes numbers from 0 on until a file is missing.
static bool mapping_waits(const char *path, const char *from, char *out, size_t room) {
  bool numbered = is_numbered(from);
  for (uint64_t b = 0; b < (numbered ? MAX_BLOCKS : 1); b++) {
    char *name = with_number(from, b);
    bool found = !name || brim_hdf5_link_waits(path, name);
    bool last = !name || !is_there(path, name);
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
    if (from && !is_own(from)) found = mapping_waits(path, from, out, room);
    brim_free(from);
  }
  if (created >= 0) (void)H5Pclose(created);
  return found;
}

//---------------------------------- the first one ----------------------------------

// Number of blocks of a mapping with a number in its name, within the dataset's current size; at
// least one.
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

// One mapping of a virtual dataset. If unsure, it counts as outside, so that it is not read.
static bool outside_mapping(hid_t file, hid_t dataset, hid_t created, size_t i, int depth,
                            char *out, size_t room) {
  char *from = virtual_name(created, i, true), *set = virtual_name(created, i, false);
  bool known = from && set && is_own(from), found = !known && copy_name(from, out, room);
  uint64_t blocks = known && is_numbered(set) ? block_count(dataset, created, i) : 1;
  if (blocks == MAX_BLOCKS) found = copy_name(NULL, out, room);
  for (uint64_t b = 0; b < blocks && !found; b++) {
    char *its = with_number(set, b);
    char linked[MAX_NAME] = "";
    hid_t source = its ? open_dataset(file, its, refuse_link, linked) : -1;
    if (source >= 0) {
      found = first_outside(file, source, depth + 1, out, room);
    } else if (!its || linked[0]) {
      found = copy_name(its ? linked : NULL, out, room);
    }
    if (source >= 0) (void)H5Dclose(source);
    brim_free(its);
  }
  brim_free(from);
  brim_free(set);
  return found;
}

// True if the dataset, or one of the same file that it is made of, takes data from another file.
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

//---------------------------------- all of them ----------------------------------

typedef struct sources {
  const char *path, *name;  // the file and dataset to read
} sources;

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

// The path of a source: beside the file that names it, unless the name is absolute; if an absolute
// one is gone, the library looks beside the file too. *out is brim_free's.
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

// The library reads the missing end of such a file as zeros.
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
    uint64_t there = 0;
    if (H5Pget_external(created, (unsigned)i, MAX_NAME, name, &offset, &size) < 0)
      return fail_source(s, "?", brim_tr("the file does not name it"));
    // Behind a virtual dataset the library looks in the current folder, whatever folder it was
    // given.
    if (nested && name[0] != '/')
      return brim_fail(
          BRIM_EUNSUPPORTED,
          "%s: /%s takes data from %s through a virtual dataset, which brim reads only "
          "by an absolute path; write the dataset again without external storage",
          s->path, s->name, name);
    brim_status status = find_source(s, folder, name, &path, &there);
    uint64_t need = size < left ? size : left, from = offset > 0 ? (uint64_t)offset : 0;
    if (!status && (from > there || need > there - from))
      status = brim_fail(BRIM_EPARSE,
                         "%s: /%s takes data from %s: %" PRIu64 " bytes from offset %" PRIu64
                         " on, and the file has %" PRIu64,
                         s->path, s->name, path, need, from, there);
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
  uint64_t points;  // all of the source, so many values; 0 = a part, or not known
} taken;

static taken what_is_taken(hid_t created, size_t i, bool numbered) {
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

// Checks one source of a virtual dataset, in the file that is open.
static brim_status check_part(const sources *s, const place *in, const char *set, const taken *t,
                              int depth) {
  hsize_t dim[H5S_MAX_RANK], first[H5S_MAX_RANK], last[H5S_MAX_RANK];
  hid_t dataset = open_dataset(in->file, set, follow_link, NULL);
  if (dataset < 0)
    return brim_fail(BRIM_EPARSE, "%s: /%s takes data from %s: no dataset %s in it", s->path,
                     s->name, in->path, set);
  hid_t space = H5Dget_space(dataset);
  int rank = space >= 0 ? H5Sget_simple_extent_dims(space, dim, NULL) : -1;
  hssize_t there = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
  if (space >= 0) (void)H5Sclose(space);
  brim_status status = BRIM_OK;
  if (t->points && there >= 0 && (uint64_t)there != t->points)
    status = brim_fail(BRIM_EPARSE,
                       "%s: /%s takes data from %s: %" PRIu64
                       " values of dataset %s, which has "
                       "%lld",
                       s->path, s->name, in->path, t->points, set, (long long)there);
  // A selection without an end has no bounds; the library ends it with the source.
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

// Keeps the file of the last source open: usually the next source lies in it too.
static brim_status reach(const sources *s, const char *folder, const char *name, place *o) {
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
  char *from = virtual_name(created, i, true), *set = virtual_name(created, i, false);
  char *folder = brim_fs_dirname(in->path);
  brim_status status = from && set && folder ? BRIM_OK : no_memory(s);
  bool numbered = !status && (is_numbered(from) || is_numbered(set));
  uint64_t blocks = numbered ? block_count(dataset, created, i) : 1;
  taken t = what_is_taken(created, i, numbered);
  for (uint64_t b = 0; b < blocks && !status; b++) {
    char *one = with_number(from, b), *its = with_number(set, b);
    bool own = is_own(from);
    if (!one || !its) status = no_memory(s);
    if (!status && !own) status = reach(s, folder, one, other);
    if (!status) status = check_part(s, own ? in : other, its, &t, depth);
    brim_free(one);
    brim_free(its);
  }
  if (t.selection >= 0) (void)H5Sclose(t.selection);
  brim_free(folder);
  brim_free(from);
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

brim_status brim_hdf5_outside_check(const char *path, const char *name, int64_t dataset) {
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
