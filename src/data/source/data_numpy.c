// The source `numpy`: an array of inputs and one of targets, in two .npy files of a folder or in one
// .npz file. Which is which and of which split goes by their names, as in HDF5 files. Inputs stay in
// their file and are read sample by sample, those of a compressed archive lie in planned memory, as
// the targets do. Labels are checked when the source is opened; text is the names of classes.
// Arguments: path=P (over data.path), split, limit=N, inputs=NAME, targets=NAME or none (names of
// arrays), classes=N (0 = regression), layout=NCHW, NHWC, NCL or NLC.
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "data/data_int.h"
#include "data/hdf5/data_hdf5.h"

enum { MAX_CLASSES = 1000000, NAME_ROOM = 512, PIECE = 1 << 14, LISTED = 12 };
enum { TEXT_PIECE = 1 << 20 };                      // bytes of text labels read at once
enum { SIGNAL_CHANNELS = 16, SIGNAL_STRETCH = 8 };  // as in data_hdf5_set.c

// The arrays that a path has, by name.
typedef struct entries {
  char *path;  // of the folder or the archive
  bool archive;
  bool whole;  // all are of the split asked for
  brim_npz_member *item;
  size_t count;
} entries;

typedef struct numpy_state {
  char *input_path, *target_path;  // the latter NULL: no targets
  char *input_name;                // of the array in an archive
  brim_npy_array inputs, targets;
  int32_t *labels;            // of text, planned; NULL = the targets have them
  brim_data_classes classes;  // of text labels
  bool planes, binary, val_is_test;
  uint64_t row;    // numbers in a sample
  uint64_t plane;  // and in a channel of it
  uint64_t width;  // of a row of targets
  uint64_t samples;
  brim_source_info info;
} numpy_state;

static brim_status fail_memory(const char *path) {
  return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
}

//---------------------------------- elements ----------------------------------

// A whole number; one too large for int64_t is the largest.
static int64_t whole_of(const brim_npy *h, const uint8_t *p) {
  uint64_t v = 0;
  memcpy(&v, p, h->element_bytes);  // little-endian, as every machine brim runs on
  unsigned shift = 64 - 8 * (unsigned)h->element_bytes;
  if (h->kind == 'i') return (int64_t)(v << shift) >> shift;
  return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

static double number_of(const brim_npy *h, const uint8_t *p) {
  if (h->kind != 'f') return (double)whole_of(h, p);
  float f;
  double d;
  if (h->element_bytes == 4) {
    memcpy(&f, p, 4);
    return (double)f;
  }
  memcpy(&d, p, 8);
  return d;
}

static const uint8_t *target_at(const numpy_state *s, uint64_t i) {
  return s->targets.memory + s->targets.at + i * s->targets.header.element_bytes;
}

static int64_t label_of(const void *state, uint64_t i) {
  const numpy_state *s = state;
  const brim_npy *h = &s->targets.header;
  if (s->labels) return s->labels[i];
  return h->kind == 'f' ? (int64_t)number_of(h, target_at(s, i)) : whole_of(h, target_at(s, i));
}

//---------------------------------- finding the arrays ----------------------------------

static void free_entries(entries *e) {
  brim_npz_free(e->item, e->count);
  brim_free(e->path);
  *e = (entries){0};
}

static int split_number(const char *split) {
  for (int i = 0; i < BRIM_HDF5_SPLIT_COUNT; i++) {
    if (strcmp(brim_hdf5_split_names[i][0], split) == 0) return i;
  }
  return BRIM_HDF5_NO_SPLIT;
}

static brim_status open_archive(const char *path, entries *out) {
  out->archive = true;
  out->path = brim_strdup(path);
  return out->path ? brim_npz_list(path, &out->item, &out->count) : fail_memory(path);
}

// The archive of a folder for a split: train.npz, or the only one. *out NULL: none.
static brim_status find_archive(const char *folder, char *const *names, size_t count, int split,
                                char **out, bool *whole) {
  size_t archives = 0, only = 0;
  *out = NULL;
  for (size_t i = 0; i < count; i++) {
    char plain[NAME_ROOM], stem[NAME_ROOM];
    if (!brim_str_ends(names[i], ".npz")) continue;
    only = i;
    archives++;
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(names[i]) - 4), names[i]);
    if (*out || brim_hdf5_split_of(stem, plain, sizeof plain) != split) continue;
    *out = brim_fs_join(folder, names[i]);
    if (!*out) return fail_memory(folder);
    *whole = true;
  }
  if (*out || archives != 1) return BRIM_OK;
  char plain[NAME_ROOM], stem[NAME_ROOM];
  snprintf(stem, sizeof stem, "%.*s", (int)(strlen(names[only]) - 4), names[only]);
  if (brim_hdf5_split_of(stem, plain, sizeof plain) != BRIM_HDF5_NO_SPLIT) return BRIM_OK;
  *out = brim_fs_join(folder, names[only]);
  return *out ? BRIM_OK : fail_memory(folder);
}

static brim_status open_folder(const char *folder, int split, entries *out) {
  char **names;
  size_t count;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  brim_status status = BRIM_OK;
  out->path = brim_strdup(folder);
  out->item = brim_calloc(count + 1, sizeof *out->item);
  if (!out->path || !out->item) status = fail_memory(folder);
  for (size_t i = 0; i < count && !status; i++) {
    size_t n = strlen(names[i]);
    if (n <= 4 || names[i][0] == '.' || strcmp(names[i] + n - 4, ".npy") != 0) continue;
    char *name = brim_strdup(names[i]);
    if (!name) {
      status = fail_memory(folder);
    } else {
      name[n - 4] = '\0';
      out->item[out->count++].name = name;
    }
  }
  char *archive = NULL;
  bool whole = false;
  if (!status && !out->count) status = find_archive(folder, names, count, split, &archive, &whole);
  brim_fs_list_free(names, count);
  if (!status && archive) {
    free_entries(out);
    out->whole = whole;
    status = open_archive(archive, out);
  }
  brim_free(archive);
  return status;
}

static bool is_name(const char *plain, bool targets) {
  const char *const *names = targets ? brim_hdf5_target_names : brim_hdf5_input_names;
  if (strcmp(plain, targets ? "arr_1" : "arr_0") == 0) return true;  // numpy.savez(file, x, y)
  for (size_t i = 0; names[i]; i++) {
    if (strcasecmp(names[i], plain) == 0) return true;
  }
  return false;
}

// The array of a split that `named` asks for (NULL: the usual names). Arrays that bear no split's name
// are training data, unless the whole file is the split's.
static size_t find_array(const entries *e, int split, const char *named, bool targets) {
  char wanted[NAME_ROOM] = "", plain[NAME_ROOM];
  if (named) (void)brim_hdf5_split_of(named, wanted, sizeof wanted);
  for (int pass = 0; pass < 2; pass++) {
    if (pass == 1 && split != BRIM_HDF5_TRAIN && !e->whole) break;
    for (size_t i = 0; i < e->count; i++) {
      int here = brim_hdf5_split_of(e->item[i].name, plain, sizeof plain);
      if (here != (pass ? BRIM_HDF5_NO_SPLIT : split)) continue;
      if (named ? strcmp(plain, wanted) == 0 : is_name(plain, targets)) return i;
    }
  }
  return SIZE_MAX;
}

static brim_status fail_find(const entries *e, brim_status status, const char *split, bool targets,
                             const char *named) {
  brim_str list;
  brim_str_init(&list);
  for (size_t i = 0; i < e->count && i < LISTED; i++) {
    brim_str_printf(&list, "%s%s", i ? ", " : "", e->item[i].name);
  }
  if (e->count > LISTED) brim_str_printf(&list, brim_tr(" and %zu more"), e->count - LISTED);
  if (brim_str_status(&list)) {
    status = fail_memory(e->path);
  } else if (named) {
    brim_fail(status, "%s: no array '%s' for %s; it has %s", e->path, named, split, list.data);
  } else if (targets) {
    brim_fail(
        status,
        "%s: the labels (y, labels, targets, ...) for %s are missing; it has %s; name them with "
        "targets=NAME, or set targets=none",
        e->path, split, list.data);
  } else {
    brim_fail(status,
              "%s: no inputs (x, data, images, ...) for %s; it has %s; name them with inputs=NAME",
              e->path, split, e->count ? list.data : brim_tr("no array"));
  }
  brim_str_deinit(&list);
  return status;
}

static brim_status open_entry(const entries *e, size_t i, brim_npy_array *array, char **path) {
  if (e->archive) {
    *path = brim_strdup(e->path);
  } else {
    brim_str name;
    brim_str_init(&name);
    brim_str_printf(&name, "%s.npy", e->item[i].name);
    *path = brim_str_status(&name) ? NULL : brim_fs_join(e->path, name.data);
    brim_str_deinit(&name);
  }
  if (!*path) return fail_memory(e->path);
  return brim_npy_array_open(*path, e->archive ? &e->item[i] : NULL, array);
}

// `only`: the inputs of the training split where the path is one .npy file.
static brim_status open_entries(const char *path, int split, entries *out, char only[NAME_ROOM]) {
  only[0] = '\0';
  if (brim_fs_is_dir(path)) return open_folder(path, split, out);
  brim_data_file file;
  uint8_t magic[8] = {0};
  BRIM_TRY(brim_data_file_open(path, &file));
  brim_status status = brim_data_file_read(&file, 0, magic, file.size < 8 ? file.size : 8);
  brim_data_file_close(&file);
  if (status) return status;
  if (brim_npz_is(magic, sizeof magic)) return open_archive(path, out);
  const char *name = brim_fs_basename(path);
  if (!brim_npy_is(magic, sizeof magic) || !brim_str_ends(name, ".npy")) {
    return brim_fail(BRIM_EPARSE, "%s: offset 0: neither a .npy nor a .npz file of NumPy", path);
  }
  snprintf(only, NAME_ROOM, "%.*s", (int)(strlen(name) - 4), name);
  char *folder = brim_fs_dirname(path);
  if (!folder) return fail_memory(path);
  status = open_folder(folder, split, out);
  brim_free(folder);
  return status;
}

static brim_status find_arrays(const brim_source_how *how, const char *inputs, const char *targets,
                               entries *e, numpy_state *s) {
  char only[NAME_ROOM];
  int split = split_number(how->split);
  BRIM_TRY(open_entries(how->path, split, e, only));
  if (only[0] && !inputs) inputs = only;
  size_t x = find_array(e, split, inputs, false);
  bool none = targets && strcmp(targets, "none") == 0;
  size_t y = none ? SIZE_MAX : find_array(e, split, targets, true);
  if (x == SIZE_MAX && y == SIZE_MAX && split == BRIM_HDF5_VAL) {
    free_entries(e);
    split = BRIM_HDF5_TEST;
    s->val_is_test = true;
    BRIM_TRY(open_entries(how->path, split, e, only));
    x = find_array(e, split, inputs, false);
    y = none ? SIZE_MAX : find_array(e, split, targets, true);
  }
  if (x == SIZE_MAX) {
    bool half = y != SIZE_MAX;  // something is missing, else the split is not there
    return fail_find(e, half ? BRIM_EPARSE : BRIM_ENOENT, how->split, false, inputs);
  }
  if (y == SIZE_MAX && !none) return fail_find(e, BRIM_EPARSE, how->split, true, targets);
  s->input_name = brim_strdup(e->item[x].name);
  if (!s->input_name) return fail_memory(how->path);
  BRIM_TRY(open_entry(e, x, &s->inputs, &s->input_path));
  return none ? BRIM_OK : open_entry(e, y, &s->targets, &s->target_path);
}

//---------------------------------- what they hold ----------------------------------

// Are channels stored before height and width, or before the steps of a signal? By what the sizes
// suggest where `layout` is not set, with the same rule as for HDF5.
static bool is_planes(const brim_npy *h, const char *layout) {
  if (h->rank != 3 && h->rank != 4) return false;
  if (layout && strcmp(layout, h->rank == 4 ? "NCHW" : "NCL") == 0) return true;
  if (layout && strcmp(layout, h->rank == 4 ? "NHWC" : "NLC") == 0) return false;
  uint64_t c = h->dim[1];
  if (h->rank == 3) {
    return h->kind == 'f' && c <= SIGNAL_CHANNELS && h->dim[2] >= SIGNAL_STRETCH * c;
  }
  if ((c == 1 || c == 3) && h->dim[2] == h->dim[3] && h->dim[2] > c) return true;
  return (c == 1 || c == 3 || c == 4) && h->dim[2] > 4 && h->dim[3] > 4;
}

static bool is_text(const brim_npy *h) { return h->kind == 'U' || h->kind == 'S'; }

static brim_status describe_inputs(numpy_state *s, const char *layout, const char *split) {
  const brim_npy *h = &s->inputs.header;
  brim_source_info *info = &s->info;
  if (is_text(h)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: %s is an array of text, but inputs are numbers; name the inputs with "
                     "inputs=NAME",
                     s->input_path, s->input_name);
  }
  s->samples = info->count = h->dim[0];
  s->row = h->body_bytes / h->element_bytes / h->dim[0];
  info->type = h->kind == 'u' && h->element_bytes == 1 ? BRIM_SAMPLE_U8 : BRIM_SAMPLE_F32;
  if (s->row > INT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "%s: rows of %" PRIu64 " values are too large", s->input_path,
                     s->row);
  }
  info->rank = 1;
  info->dim[0] = (int64_t)s->row;
  if (h->rank == 1 || h->rank - 1 > BRIM_SOURCE_MAX_RANK) return BRIM_OK;
  s->planes = is_planes(h, layout);
  info->rank = h->rank - 1;
  for (int d = 0; d < info->rank; d++) {
    info->dim[d] = (int64_t)h->dim[!s->planes ? d + 1 : d + 1 < info->rank ? d + 2 : 1];
  }
  s->plane = s->row / h->dim[1];
  if (!s->planes || h->dim[1] == 1 || strcmp(split, "train") != 0) return BRIM_OK;
  if (h->rank == 3) {
    brim_log_warn("data",
                  "%s: brim reads the array as signals of %" PRIu64 " steps and %" PRIu64
                  " channels, stored channels first; to read it as stored set dataset: "
                  "numpy(layout=NLC)",
                  s->input_path, h->dim[2], h->dim[1]);
  } else {
    brim_log_info("data", "%s: %s is stored channels first; brim converts it to channels last",
                  s->input_path, s->input_name);
  }
  return BRIM_OK;
}

// Class numbers: whole, from 0 to below `bound`.
static brim_status check_labels(const numpy_state *s, int64_t bound) {
  const brim_npy *h = &s->targets.header;
  for (uint64_t i = 0; i < s->samples; i++) {
    double v = number_of(h, target_at(s, i));
    if (v >= 0 && v < (double)bound && v == floor(v)) continue;
    return brim_fail(BRIM_EPARSE,
                     "%s: label %g of sample %" PRIu64 " is not a whole number in [0, %" PRId64
                     "); set the number of classes with numpy(classes=N), or classes=0 for "
                     "regression",
                     s->target_path, v, i, bound);
  }
  return BRIM_OK;
}

//---------------------------------- text labels ----------------------------------

// One element as UTF-8; numpy pads with zeros. SIZE_MAX: no Unicode.
static size_t text_of(const brim_npy *h, const uint8_t *p, char *out) {
  size_t n = 0;
  for (size_t i = 0; i < h->element_bytes && n <= BRIM_DATA_CLASS_BYTES; i += 4) {
    const uint8_t *b = p + i;
    uint32_t c = h->big ? (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]
                        : (uint32_t)b[3] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[1] << 8 | b[0];
    if (!c) break;
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return SIZE_MAX;
    if (c < 0x80) {
      out[n++] = (char)c;
      continue;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[4] = {0, 0xc0, 0xe0, 0xf0};
    out[n++] = (char)(lead[more] | c >> 6 * more);
    while (more-- > 0) out[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
  }
  return n;
}

// Labels to `out`, which may be NULL for the names alone.
static brim_status read_text(const brim_npy_array *a, const char *path, brim_data_classes *classes,
                             int32_t *out) {
  const brim_npy *h = &a->header;
  size_t most = TEXT_PIECE / h->element_bytes;
  if (!most) return brim_data_classes_fail_long(path);
  uint8_t *piece = brim_alloc(TEXT_PIECE);
  if (!piece) return fail_memory(path);
  brim_status status = BRIM_OK;
  for (uint64_t at = 0, n; at < h->dim[0] && !status; at += n) {
    n = h->dim[0] - at < most ? h->dim[0] - at : most;
    status =
        brim_npy_array_read(a, (size_t)at * h->element_bytes, piece, (size_t)n * h->element_bytes);
    for (uint64_t i = 0; i < n && !status; i++) {
      char text[BRIM_DATA_CLASS_BYTES + 8];
      const uint8_t *p = piece + i * h->element_bytes;
      bool bytes = h->kind == 'S';
      size_t size = bytes ? h->element_bytes : text_of(h, p, text);
      int32_t label = 0;
      if (size == SIZE_MAX) {
        status = brim_fail(BRIM_EPARSE, "%s[%" PRIu64 "] is no Unicode text; the file is damaged",
                           path, at + i);
      } else {
        status = brim_data_classes_label(classes, path, at + i, bytes ? (const char *)p : text,
                                         size, &label);
      }
      if (out) out[at + i] = label;
    }
  }
  brim_free(piece);
  return status;
}

// The names of the training split number the classes of all splits. None are read where it has no text.
static brim_status read_training_names(numpy_state *s, const brim_source_how *how,
                                       const char *targets, int64_t classes) {
  if (strcmp(how->split, "train") == 0) return BRIM_OK;
  char only[NAME_ROOM], *path = NULL;
  entries e = {0};
  brim_npy_array a = {0};
  brim_status status = open_entries(how->path, BRIM_HDF5_TRAIN, &e, only);
  size_t y = status ? SIZE_MAX : find_array(&e, BRIM_HDF5_TRAIN, targets, true);
  if (y != SIZE_MAX) status = open_entry(&e, y, &a, &path);
  if (!status && y != SIZE_MAX && is_text(&a.header) &&
      a.header.dim[0] * a.header.element_bytes == a.header.body_bytes) {
    brim_data_classes_init(&s->classes, a.header.dim[0], classes);
    status = read_text(&a, path, &s->classes, NULL);
    if (!status) status = brim_data_classes_fix(&s->classes, path, classes, NULL);
  }
  brim_npy_array_unload(&a);
  brim_free(path);
  free_entries(&e);
  return status;
}

static brim_status describe_text(numpy_state *s, const brim_source_how *how, const char *targets,
                                 int64_t classes) {
  const char *path = s->target_path;
  if (classes == 0) {
    return brim_fail(BRIM_EINVAL,
                     "%s holds text, which cannot be regression targets; leave out classes=0",
                     path);
  }
  if (s->width > 1) {
    return brim_fail(BRIM_EINVAL, "%s: text labels are one per sample, but the rows have %" PRIu64,
                     path, s->width);
  }
  s->labels = brim_alloc_tagged((size_t)s->samples * sizeof *s->labels, BRIM_MEM_PLANNED);
  if (!s->labels) return fail_memory(path);
  BRIM_TRY(read_training_names(s, how, targets, classes));
  bool known = s->classes.fixed;
  if (!known) brim_data_classes_init(&s->classes, s->samples, classes);
  BRIM_TRY(read_text(&s->targets, path, &s->classes, s->labels));
  if (!known) BRIM_TRY(brim_data_classes_fix(&s->classes, path, classes, s->labels));
  brim_npy_array_unload(&s->targets);
  s->info.classes = (int64_t)s->classes.count;
  return BRIM_OK;
}

//---------------------------------- targets ----------------------------------

// One whole number a row is a class, unless the numbers look like values to predict; anything else is
// numbers to predict. classes=N and classes=0 decide otherwise. Rows of only 0 and 1 are several labels.
static brim_status describe_targets(numpy_state *s, const brim_source_how *how, const char *targets,
                                    int64_t classes) {
  const brim_npy *h = &s->targets.header;
  const char *path = s->target_path;
  bool train = strcmp(how->split, "train") == 0;
  if (h->dim[0] != s->samples) {
    return brim_fail(BRIM_EPARSE, "%s: %" PRIu64 " labels for the %" PRIu64 " samples of %s", path,
                     h->dim[0], s->samples, s->input_path);
  }
  s->width = h->body_bytes / h->element_bytes / h->dim[0];
  if (s->width > INT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "%s: rows of %" PRIu64 " values are too large", path, s->width);
  }
  if (is_text(h)) return describe_text(s, how, targets, classes);
  // In memory, so that what is checked here stays as it is: a label out of range would be read as
  // an index later.
  BRIM_TRY(brim_npy_array_keep(&s->targets));
  s->info.target_dim = (int64_t)s->width;
  if (classes == 0) return BRIM_OK;
  if (s->width > 1) {
    if (classes > 0) {
      return brim_fail(BRIM_EINVAL,
                       "%s: classes= needs one label per sample, but the rows have %" PRIu64
                       " values; for one-hot rows save numpy.argmax(y, 1)",
                       path, s->width);
    }
    s->binary = true;
    for (uint64_t i = 0; i < s->samples * s->width && s->binary; i++) {
      double v = number_of(h, target_at(s, i));
      s->binary = v == 0 || v == 1;
    }
    return BRIM_OK;
  }
  if (h->kind == 'f' && classes < 0) {
    bool whole = true;
    for (uint64_t i = 0; i < s->samples && whole; i++) {
      double v = number_of(h, target_at(s, i));
      whole = v >= 0 && v < MAX_CLASSES && v == floor(v);
    }
    if (whole && train) {
      brim_log_warn("data",
                    "%s: brim treats the whole floats as regression targets; if they are class "
                    "numbers, set dataset: numpy(classes=N)",
                    path);
    }
    return BRIM_OK;
  }
  if (classes > 0) {
    BRIM_TRY(check_labels(s, classes));
    s->info.classes = classes;
    s->info.target_dim = 0;
    return BRIM_OK;
  }
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (uint64_t i = 0; i < s->samples; i++) {
    int64_t v = label_of(s, i);
    least = v < least ? v : least;
    most = v > most ? v : most;
  }
  const brim_data_whole all = {
      .value = label_of, .ctx = s, .rows = s->samples, .least = least, .most = most};
  bool values;
  BRIM_TRY(brim_data_are_values(path, &all, &values));
  if (values) {
    if (train) {
      brim_log_warn("data",
                    "%s: brim treats the whole numbers %lld to %lld as regression targets; if they "
                    "are class numbers, set dataset: numpy(classes=N)",
                    path, (long long)least, (long long)most);
    }
    return BRIM_OK;
  }
  BRIM_TRY(check_labels(s, MAX_CLASSES));
  s->info.classes = most + 1;
  s->info.target_dim = 0;
  if (!train) return BRIM_OK;
  if (least == 1) {
    brim_log_warn(
        "data",
        "%s: the labels start at 1, so class 0 of the %lld classes never occurs; subtract "
        "1 from every label, or set the number of classes with numpy(classes=N)",
        path, (long long)s->info.classes);
  }
  brim_data_warn_absent(path, label_of, s, s->samples, s->info.classes);
  return BRIM_OK;
}

static brim_status read_inputs(const void *ctx, size_t offset, void *out, size_t n) {
  return brim_npy_array_read(ctx, offset, out, n);
}

//---------------------------------- the table ----------------------------------

static void numpy_close(void *state) {
  numpy_state *s = state;
  if (!s) return;
  brim_npy_array_unload(&s->inputs);
  brim_npy_array_unload(&s->targets);
  brim_data_classes_deinit(&s->classes);
  brim_free(s->labels);
  brim_free(s->input_path);
  brim_free(s->input_name);
  brim_free(s->target_path);
  brim_free(s);
}

// A name, or a list of one: the form of data.inputs.
static brim_status name_argument(const json_t *args, const char *name, const char **out) {
  const json_t *v = json_object_get(args, name);
  if (json_is_array(v) && json_array_size(v) == 1) v = json_array_get(v, 0);
  if (!v) return BRIM_OK;
  if (!json_is_string(v)) return brim_fail(BRIM_EINVAL, "numpy: %s must name one array", name);
  *out = json_string_value(v);
  return BRIM_OK;
}

static brim_status open_arrays(const brim_source_how *how, const json_t *args, numpy_state *s) {
  static const char *const splits[] = {"train", "val", "test", NULL};
  static const char *const layouts[] = {"NCHW", "NHWC", "NCL", "NLC", NULL};
  brim_source_how here = *how;
  const char *inputs = NULL, *targets = NULL, *layout = NULL;
  int64_t classes = -1, limit = 0;
  BRIM_TRY(brim_data_args_split("numpy", how->split, splits));
  BRIM_TRY(brim_data_args_string(args, "numpy", "path", &here.path));
  BRIM_TRY(brim_data_args_int(args, "numpy", "limit", 1, INT64_MAX, &limit));
  BRIM_TRY(brim_data_args_int(args, "numpy", "classes", 0, MAX_CLASSES, &classes));
  BRIM_TRY(brim_data_args_string(args, "numpy", "layout", &layout));
  BRIM_TRY(name_argument(args, "inputs", &inputs));
  BRIM_TRY(name_argument(args, "targets", &targets));
  bool known = !layout;
  for (size_t i = 0; layout && layouts[i]; i++) known = known || strcmp(layouts[i], layout) == 0;
  if (!known) {
    return brim_fail(BRIM_EINVAL, "numpy: layout is NCHW, NHWC, NCL or NLC, not '%s'", layout);
  }
  if (!here.path || !here.path[0]) {
    return brim_fail(
        BRIM_EINVAL,
        "numpy needs data.path: a folder with x.npy and y.npy, one of these files or a "
        ".npz file");
  }
  if (!brim_fs_exists(here.path)) {
    return brim_fail(
        BRIM_ENOENT,
        "%s: no such file or folder; numpy needs a folder with x.npy and y.npy, one of "
        "these files or a .npz file",
        here.path);
  }
  entries e = {0};
  brim_status status = find_arrays(&here, inputs, targets, &e, s);
  free_entries(&e);
  if (status) return status;
  BRIM_TRY(describe_inputs(s, layout, how->split));
  if (s->target_path) BRIM_TRY(describe_targets(s, &here, targets, classes));
  const brim_data_measured all = {.read = read_inputs,
                                  .ctx = &s->inputs,
                                  .path = s->input_path,
                                  .bytes = (size_t)s->inputs.header.body_bytes,
                                  .planes = s->planes};
  BRIM_TRY(brim_data_measure(&s->info, &all));
  // Last, so that neither the classes nor the normalisation depend on it.
  if (limit && (uint64_t)limit < s->info.count) s->info.count = (uint64_t)limit;
  return BRIM_OK;
}

static brim_status numpy_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {"path",    "split",   "limit",  "inputs",
                                      "targets", "classes", "layout", NULL};
  json_t *args;
  BRIM_TRY(brim_data_args_parse("numpy", how->args_json, known, &args));
  numpy_state *s = brim_calloc(1, sizeof *s);
  brim_status status = s ? open_arrays(how, args, s) : fail_memory("numpy");
  json_decref(args);
  if (status) {
    numpy_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static void numpy_info(void *state, brim_source_info *out) { *out = ((numpy_state *)state)->info; }

static brim_status numpy_read(void *state, uint64_t index, void *input, void *target) {
  const numpy_state *s = state;
  const brim_npy *h = &s->inputs.header;
  if (index >= s->info.count) {
    return brim_fail(BRIM_EINVAL, "%s: holds %" PRIu64 " samples", s->input_path, s->info.count);
  }
  size_t size = h->element_bytes, from = (size_t)(index * s->row) * size;
  bool bytes = s->info.type == BRIM_SAMPLE_U8;
  if (!s->planes && (bytes || (h->kind == 'f' && size == sizeof(float)))) {
    BRIM_TRY(brim_npy_array_read(&s->inputs, from, input, (size_t)s->row * size));
  } else {
    uint8_t piece[PIECE];
    uint64_t channels = s->planes ? s->row / s->plane : 1;
    for (uint64_t at = 0; at < s->row;) {
      uint64_t n = s->row - at < PIECE / size ? s->row - at : PIECE / size;
      BRIM_TRY(brim_npy_array_read(&s->inputs, from + (size_t)at * size, piece, (size_t)n * size));
      for (uint64_t i = 0; i < n; i++, at++) {
        uint64_t to = s->planes ? at % s->plane * channels + at / s->plane : at;
        if (bytes) {
          ((uint8_t *)input)[to] = piece[i];
        } else {
          ((float *)input)[to] = (float)number_of(h, piece + i * size);
        }
      }
    }
  }
  if (s->info.classes) {
    *(int32_t *)target = (int32_t)label_of(s, index);
    return BRIM_OK;
  }
  for (uint64_t i = 0; i < s->width; i++) {
    ((float *)target)[i] = (float)number_of(&s->targets.header, target_at(s, index * s->width + i));
  }
  return BRIM_OK;
}

static void numpy_describe(void *state, uint64_t index, char *text, size_t size) {
  const numpy_state *s = state;
  const char *file = brim_fs_basename(s->input_path);
  bool member = !brim_str_ends(file, ".npy");
  snprintf(text, size, "%s%s%s[%" PRIu64 "]", file, member ? ":" : "", member ? s->input_name : "",
           index);
}

uint64_t brim_source_numpy_host_bytes(void *state) {
  const numpy_state *s = state;
  uint64_t labels = s->labels ? s->samples * sizeof *s->labels : 0;
  return s->inputs.memory_bytes + s->targets.memory_bytes + labels;
}

size_t brim_source_numpy_files(void *state, const char *paths[BRIM_SOURCE_FILES]) {
  const numpy_state *s = state;
  paths[0] = s->input_path;
  if (s->target_path) paths[1] = s->target_path;
  return s->target_path ? 2 : 1;
}

int64_t brim_source_numpy_label(void *state, uint64_t index) { return label_of(state, index); }

const char *const *brim_source_numpy_class_names(void *state) {
  return ((numpy_state *)state)->classes.names;
}

bool brim_source_numpy_binary_targets(void *state) { return ((numpy_state *)state)->binary; }

bool brim_source_numpy_val_is_test(void *state) { return ((numpy_state *)state)->val_is_test; }

const brim_source_table brim_source_numpy = {
    .abi = BRIM_SOURCE_ABI,
    .name = "numpy",
    .open = numpy_open,
    .info = numpy_info,
    .read = numpy_read,
    .close = numpy_close,
    .describe = numpy_describe,
};
