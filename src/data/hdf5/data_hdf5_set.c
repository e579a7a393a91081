// The datasets of an hdf5 source: labels, shapes, where rows go in a sample. Opened here, and by the
// helper program before that.
#include "data/hdf5/data_hdf5_set.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "data/hdf5/data_hdf5_helper.h"

//---------------------------------- labels ----------------------------------

static int64_t label_of(const void *labels, uint64_t i) { return ((const int32_t *)labels)[i]; }

// Whole-number targets: the classes they need, or values to predict.
typedef struct label_kind {
  bool found;   // in the training split
  bool values;  // to predict
  int32_t least, most;
} label_kind;

static brim_status read_kind(brim_hdf5_file *file, const brim_hdf5_entry *e, int32_t *labels,
                             brim_hdf5_whole *whole, label_kind *out) {
  BRIM_TRY(brim_hdf5_file_labels(file, e, labels, whole));
  const brim_data_whole all = {.value = label_of,
                               .ctx = labels,
                               .rows = e->dim[0],
                               .least = whole->least,
                               .most = whole->most};
  *out = (label_kind){.found = true, .least = whole->least, .most = whole->most};
  return brim_data_are_values(file->path, &all, &out->values);
}

// Of a split that is not kept. One that cannot be used (labels of -1 for unlabeled rows) says so when it
// is opened itself.
static brim_status look_at(brim_hdf5_file *file, const brim_hdf5_entry *e, label_kind *out) {
  brim_hdf5_whole whole;
  label_kind here;
  int32_t *labels = brim_alloc(e->dim[0] * sizeof *labels);
  if (!labels) return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory", file->path, e->path);
  brim_status status = read_kind(file, e, labels, &whole, &here);
  brim_free(labels);
  if (status == BRIM_ENOMEM) return status;
  if (!status && (here.values || !whole.wrong)) *out = here;
  return BRIM_OK;
}

// The training split in the same file: another split may lack a class. One that training lacks is found
// when the two are held against each other.
static brim_status other_splits(brim_hdf5_set *s, const brim_hdf5_entry *labels, label_kind *out) {
  char own[512], plain[512];
  int split = brim_hdf5_split_of(labels->path, own, sizeof own);
  for (size_t i = 0; i < s->file.entry_count; i++) {
    const brim_hdf5_entry *e = &s->file.entries[i];
    int other = brim_hdf5_split_of(e->path, plain, sizeof plain);
    if (other == split || other != BRIM_HDF5_TRAIN || !e->integer || !e->numeric ||
        strcmp(own, plain) != 0)
      continue;
    if (e->dim[0] == 0 || (e->rank > 1 && e->dim[1] != 1) || e->rank > 2) continue;
    BRIM_TRY(look_at(&s->file, e, out));
  }
  return BRIM_OK;
}

// The training split's file where the splits are files of one folder, and what it reads. *found false:
// there is none, or it is `args`' own; else the caller closes the file.
static brim_status open_training(const brim_hdf5_set_args *args, brim_hdf5_file *file,
                                 brim_hdf5_choice *choice, bool *found) {
  const char *split = brim_hdf5_split_names[BRIM_HDF5_TRAIN][0];
  char *path;
  *found = false;
  if (strcmp(split, args->split) == 0) return BRIM_OK;
  BRIM_TRY(brim_hdf5_split_file(args->path, split, &path));
  if (!path) return BRIM_OK;
  if (args->at) snprintf(args->at, BRIM_HDF5_PROBE_ROOM, "%s", path);
  brim_status status = brim_hdf5_file_open(path, NULL, 0, args->outside, file);
  brim_free(path);
  if (status) return status;
  *found = true;
  status = brim_hdf5_find(file, split, true, args->inputs, args->targets, choice);
  if (status) choice->target_count = 0;
  return status == BRIM_ENOMEM ? status : BRIM_OK;
}

// The same where the splits are files of one folder.
static brim_status other_files(const brim_hdf5_set_args *args, label_kind *out) {
  brim_hdf5_file file;
  brim_hdf5_choice choice;
  bool found;
  brim_status status = open_training(args, &file, &choice, &found);
  if (!status && found && choice.target_count == 1 && choice.targets[0]->integer) {
    status = look_at(&file, choice.targets[0], out);
  }
  if (found) brim_hdf5_file_close(&file);
  return status;
}

static bool one_a_row(const brim_hdf5_entry *e) {
  return e->rank == 1 || (e->rank == 2 && e->dim[1] == 1);
}

// Labels 1 to N make N + 1 classes, the first of which has no samples.
static void warn_from_one(const brim_hdf5_set *s, const brim_hdf5_set_args *args,
                          const brim_hdf5_entry *e, int32_t least, int64_t classes) {
  if (strcmp(args->split, "train") != 0 || least != 1) return;  // once is enough
  brim_log_warn("data",
                "%s: the labels /%s start at 1, so class 0 of the %lld classes never occurs; "
                "subtract 1 from every label to remove the unused output",
                s->file.path, e->path, (long long)classes);
}

static void warn_values(const brim_hdf5_set *s, const brim_hdf5_set_args *args,
                        const brim_hdf5_entry *e, const label_kind *own) {
  if (strcmp(args->split, "train") != 0) return;
  if (own->least < 0 || own->most >= BRIM_HDF5_MAX_CLASSES) {
    brim_log_warn("data",
                  "%s: brim treats the whole numbers of /%s as regression targets: they cannot be "
                  "class numbers",
                  s->file.path, e->path);
  } else {
    brim_log_warn("data",
                  "%s: brim treats the whole numbers of /%s, %d to %d, as regression targets; if "
                  "they are class numbers, set dataset: hdf5(classes=%d)",
                  s->file.path, e->path, own->least, own->most, own->most + 1);
  }
}

// *values: the targets are values to predict, nothing was kept.
static brim_status read_labels(brim_hdf5_set *s, const brim_hdf5_set_args *args,
                               const brim_hdf5_entry *e, bool folder, bool *values) {
  brim_hdf5_whole whole;
  label_kind own, train = {0};
  s->labels = brim_alloc_tagged(s->rows * sizeof *s->labels, BRIM_MEM_PLANNED);
  if (!s->labels)
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " labels", s->file.path,
                     e->path, s->rows);
  if (args->classes > 0 && !(e->integer && one_a_row(e))) {
    s->info.classes = args->classes;
    return brim_hdf5_file_class_labels(&s->file, e, args->classes, s->labels);
  }
  BRIM_TRY(read_kind(&s->file, e, s->labels, &whole, &own));
  float stated = 0;
  size_t count = 0;
  bool there = brim_hdf5_file_floats(&s->file, e, "classes", &stated, 1, &count);
  int64_t classes = args->classes > 0 ? args->classes : 0;
  if (!classes && count && stated > (float)BRIM_HDF5_MAX_CLASSES)
    return brim_fail(
        BRIM_EINVAL,
        "%s: /%s: its attribute classes is %g, expected at most %d; set the number with classes=",
        s->file.path, e->path, (double)stated, (int)BRIM_HDF5_MAX_CLASSES);
  bool fits = count && stated >= 1 && stated == floorf(stated);
  if (!classes && fits) classes = (int64_t)stated;
  if (there && !fits && args->classes < 0)
    brim_log_warn("data",
                  "%s: the attribute classes of /%s is not a whole number above 0, so brim counts "
                  "the labels; set the number with classes=",
                  s->file.path, e->path);
  if (!classes) {
    BRIM_TRY(other_splits(s, e, &train));
    if (folder) BRIM_TRY(other_files(args, &train));
    *values = train.found ? train.values : own.values;
    if (*values) {
      warn_values(s, args, e, &own);
      brim_free(s->labels);
      s->labels = NULL;
      return BRIM_OK;
    }
  }
  BRIM_TRY(brim_hdf5_file_check_labels(&s->file, e, &whole));
  int32_t max = own.most > 0 ? own.most : 0;
  if (train.found && train.most > max) max = train.most;
  if (classes && max >= classes)
    return brim_fail(BRIM_EINVAL, "%s: /%s holds label %d, expected 0 to below %lld (0 to %lld)",
                     s->file.path, e->path, max, (long long)classes, (long long)classes - 1);
  if (!classes) {
    classes = (int64_t)max + 1;
    warn_from_one(s, args, e, own.least, classes);
    if (strcmp(args->split, "train") == 0) {
      brim_data_warn_absent(s->file.path, label_of, s->labels, s->rows, classes);
    }
  }
  s->info.classes = classes;
  return BRIM_OK;
}

// The names of the training split, where this is another one, number the classes of all splits.
static brim_status read_training_names(brim_hdf5_set *s, const brim_hdf5_set_args *args,
                                       const brim_hdf5_entry *own, bool folder) {
  const char *split = brim_hdf5_split_names[BRIM_HDF5_TRAIN][0];
  brim_hdf5_file other, *file = &s->file;
  brim_hdf5_choice choice;
  bool opened = false;
  brim_status status = BRIM_OK;
  if (strcmp(args->split, split) == 0 || strcmp(args->split, "all") == 0) return BRIM_OK;
  if (folder) {
    status = open_training(args, &other, &choice, &opened);
    if (!opened) choice.target_count = 0;
    file = &other;
  } else if (brim_hdf5_find(file, split, false, args->inputs, args->targets, &choice)) {
    choice.target_count = 0;  // there is none
    brim_status_clear();
  }
  const brim_hdf5_entry *e = choice.target_count == 1 ? choice.targets[0] : NULL;
  if (!status && e && e != own && e->text) {
    brim_data_classes_init(&s->classes, e->dim[0], args->classes);
    status = brim_hdf5_file_text_labels(file, e, &s->classes, NULL);
    if (!status) status = brim_data_classes_fix(&s->classes, file->path, args->classes, NULL);
  }
  if (opened) brim_hdf5_file_close(&other);
  return status;
}

static brim_status read_text(brim_hdf5_set *s, const brim_hdf5_set_args *args,
                             const brim_hdf5_entry *e, bool folder) {
  if (args->classes == 0)
    return brim_fail(BRIM_EINVAL,
                     "%s: /%s holds text, which cannot be regression targets; leave out classes=0",
                     s->file.path, e->path);
  s->labels = brim_alloc_tagged(s->rows * sizeof *s->labels, BRIM_MEM_PLANNED);
  if (!s->labels)
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " labels", s->file.path,
                     e->path, s->rows);
  BRIM_TRY(read_training_names(s, args, e, folder));
  bool known = s->classes.fixed;
  if (!known) brim_data_classes_init(&s->classes, s->rows, args->classes);
  BRIM_TRY(brim_hdf5_file_text_labels(&s->file, e, &s->classes, s->labels));
  if (!known) BRIM_TRY(brim_data_classes_fix(&s->classes, s->file.path, args->classes, s->labels));
  s->info.classes = (int64_t)s->classes.count;
  return BRIM_OK;
}

//---------------------------------- shapes ----------------------------------

enum {
  SIGNAL_CHANNELS = 16,  // most that a signal stored channels first is taken to have
  SIGNAL_STRETCH = 8,    // and its length is at least so many times as large
};

// What the sizes suggest: a few channels before the pixels, or before many steps of a float signal.
static bool looks_planar(const brim_hdf5_array *a) {
  uint64_t c = a->dim[1];
  if (a->rank == 3) {
    return a->type.kind >= BRIM_HDF5_F16 && c <= SIGNAL_CHANNELS && a->dim[2] >= SIGNAL_STRETCH * c;
  }
  if ((c == 1 || c == 3) && a->dim[2] == a->dim[3] && a->dim[2] > c) return true;
  return (c == 1 || c == 3 || c == 4) && a->dim[2] > 4 && a->dim[3] > 4;
}

// Planes (C, H, W) or signals (C, L) are stored, pixels (H, W, C) or steps (L, C) are needed. The
// argument decides, else the attribute, else the sizes.
static bool is_planes(brim_hdf5_set *s, const brim_hdf5_set_args *args, const brim_hdf5_array *a,
                      const brim_hdf5_entry *e) {
  const char *asked = args->layout;
  char layout[16];
  if (a->rank != 4 && a->rank != 3) return false;
  const char *first = a->rank == 4 ? "NCHW" : "NCL", *last = a->rank == 4 ? "NHWC" : "NLC";
  if (asked && (strcasecmp(asked, first) == 0 || strcasecmp(asked, last) == 0))
    return strcasecmp(asked, first) == 0;
  bool there = brim_hdf5_file_text(&s->file, e, "layout", layout, sizeof layout);
  if (strcasecmp(layout, first) == 0 || strcasecmp(layout, last) == 0)
    return strcasecmp(layout, first) == 0;
  if (there && (a->rank == 3 || strcmp(layout, "N...") == 0)) return false;  // brim's own: as it is
  if (there)
    brim_log_warn("data",
                  "%s: the attribute layout of %s is neither NCHW nor NHWC; brim ignores it and "
                  "guesses the layout",
                  s->file.path, a->name);
  if (!looks_planar(a)) return false;
  if (a->rank == 3 && a->dim[1] > 1 && strcmp(args->split, "train") == 0)
    brim_log_warn("data",
                  "%s: brim reads %s as signals of %" PRIu64 " steps and %" PRIu64
                  " channels, stored channels first; to read it as stored add --dataset "
                  "'hdf5(layout=NLC)'",
                  s->file.path, a->name, a->dim[2], a->dim[1]);
  return true;
}

typedef struct sample_shape {
  int rank;
  uint64_t dim[BRIM_SOURCE_MAX_RANK];
} sample_shape;

static sample_shape shape_of(const brim_hdf5_array *a, bool planes) {
  sample_shape shape = {.rank = a->rank - 1};
  if (a->rank == 1 || shape.rank > BRIM_SOURCE_MAX_RANK) {
    shape.rank = 1;
    shape.dim[0] = a->row_elements;
    return shape;
  }
  for (int d = 0; d < shape.rank; d++) shape.dim[d] = a->dim[d + 1];
  for (int d = 0; d < shape.rank && planes; d++) {
    shape.dim[d] = a->dim[d + 1 < shape.rank ? d + 2 : 1];
  }
  return shape;
}

// Where the rows of one input go in a sample whose last size is `last`, from place `at` in it on.
static void place(brim_hdf5_array *a, const sample_shape *own, bool planes, uint64_t at,
                  uint64_t last) {
  uint64_t step[BRIM_SOURCE_MAX_RANK + 1] = {0}, next = last;
  bool alone = own->dim[own->rank - 1] == last;
  if (own->rank == 1 || (alone && (!planes || last == 1))) {
    brim_hdf5_array_pack(a, at);
    return;
  }
  step[own->rank] = 1;
  for (int d = own->rank - 1; d > 0; d--) {
    step[d] = next;
    next *= own->dim[d - 1];
  }
  for (int d = 1; d < a->rank; d++) a->step[d] = step[d];
  for (int d = 1; d < a->rank && planes; d++) a->step[d] = step[d == 1 ? own->rank : d - 1];
  a->base = at;
  a->packed = false;
}

static brim_status set_shape(brim_hdf5_set *s, const sample_shape *shape) {
  s->info.rank = shape->rank;
  for (int d = 0; d < shape->rank; d++) {
    if (shape->dim[d] > INT32_MAX)
      return brim_fail(BRIM_ELIMIT, "%s: %s: rows of %" PRIu64 " values are too large",
                       s->file.path, s->inputs[0].name, s->inputs[0].row_elements);
    s->info.dim[d] = (int64_t)shape->dim[d];
  }
  return BRIM_OK;
}

// One input as it is; several along the last axis where the others agree, else flat one after
// another.
static brim_status set_inputs(brim_hdf5_set *s, const brim_hdf5_set_args *args,
                              const brim_hdf5_choice *choice) {
  sample_shape own[BRIM_HDF5_MAX_ARRAYS] = {0}, shape;
  bool planes[BRIM_HDF5_MAX_ARRAYS] = {0};
  bool agree = true;
  uint64_t last = 0, flat = 0, at = 0;
  for (size_t i = 0; i < s->input_count; i++) {
    brim_hdf5_array *a = &s->inputs[i];
    planes[i] = is_planes(s, args, a, choice->inputs[i]);
    own[i] = shape_of(a, planes[i]);
    if (planes[i])
      brim_log_info("data", "%s: %s is stored channels first; brim converts it to channels last",
                    s->file.path, a->name);
    agree = agree && own[i].rank == own[0].rank;
    for (int d = 0; agree && d + 1 < own[0].rank; d++) agree = own[i].dim[d] == own[0].dim[d];
    last += own[i].dim[own[i].rank - 1];  // never more than flat
    if (__builtin_add_overflow(flat, a->row_elements, &flat) || flat > INT64_MAX / 8)
      return brim_fail(BRIM_ELIMIT, "%s: %s: rows of %" PRIu64 " values are too large",
                       s->file.path, a->name, a->row_elements);
  }
  shape = own[0];
  shape.dim[shape.rank - 1] = last;
  if (!agree) shape = (sample_shape){.rank = 1, .dim = {flat}};
  for (size_t i = 0; i < s->input_count; i++) {
    brim_hdf5_array *a = &s->inputs[i];
    a->bytes = s->input_count == 1 && a->type.kind == BRIM_HDF5_U8;
    if (agree) {
      place(a, &own[i], planes[i], at, last);
      at += own[i].dim[own[i].rank - 1];
    } else {
      brim_hdf5_array_pack(a, at);
      at += a->row_elements;
    }
  }
  s->info.type = s->inputs[0].bytes ? BRIM_SAMPLE_U8 : BRIM_SAMPLE_F32;
  return set_shape(s, &shape);
}

// Attributes mean and std of the dataset, one for all channels or one for each.
static void set_normalisation(brim_hdf5_set *s, const brim_hdf5_entry *e) {
  brim_source_info *info = &s->info;
  float mean[4], std[4];
  size_t means, stds;
  int64_t channels = info->rank == 3 ? info->dim[2] : 1;
  if (s->input_count != 1 || info->type != BRIM_SAMPLE_U8 || channels > 4) return;
  bool there = brim_hdf5_file_floats(&s->file, e, "mean", mean, 4, &means);
  there = brim_hdf5_file_floats(&s->file, e, "std", std, 4, &stds) || there;
  if (!there) return;
  bool fits = means && means == stds && (means == 1 || means == (size_t)channels);
  for (size_t i = 0; i < means && fits; i++)
    fits = isfinite(mean[i]) && isfinite(std[i]) && std[i] > 0;
  if (!fits) {
    brim_log_warn("data",
                  "%s: brim ignores the attributes mean and std of /%s; they must be one number, "
                  "or one for each of %d channels, with std above 0",
                  s->file.path, e->path, (int)channels);
    return;
  }
  for (int64_t c = 0; c < channels; c++) {
    info->mean[c] = mean[means == 1 ? 0 : c];
    info->std[c] = std[means == 1 ? 0 : c];
  }
  info->channels = (int32_t)channels;
}

//---------------------------------- open ----------------------------------

static brim_status open_arrays(brim_hdf5_set *s, const brim_hdf5_set_args *args,
                               const brim_hdf5_choice *choice, bool folder) {
  for (; s->input_count < choice->input_count; s->input_count++) {
    size_t i = s->input_count;
    BRIM_TRY(brim_hdf5_file_array(&s->file, choice->inputs[i], args->keep, &s->inputs[i]));
    brim_hdf5_where where = s->inputs[i].where;
    if (where == BRIM_HDF5_PACKED || where == BRIM_HDF5_LIBRARY) s->info.costly = 1;
  }
  BRIM_TRY(set_inputs(s, args, choice));
  set_normalisation(s, choice->inputs[0]);
  const brim_hdf5_entry *first = choice->targets[0];
  if (choice->target_count == 1 && first->text) return read_text(s, args, first, folder);
  for (size_t i = 0; i < choice->target_count; i++) {
    if (choice->targets[i]->text)
      return brim_fail(BRIM_EINVAL,
                       "%s: /%s holds text, so it must be the only target; name it alone with "
                       "targets=",
                       s->file.path, choice->targets[i]->path);
  }
  bool values = args->classes == 0, one = choice->target_count == 1;
  if (one && !values && (args->classes > 0 || (first->integer && one_a_row(first)))) {
    BRIM_TRY(read_labels(s, args, first, folder, &values));
    if (!values) return BRIM_OK;
  } else if (one && !values && strcmp(args->split, "train") == 0) {
    BRIM_TRY(brim_hdf5_warn_labels(&s->file, first));
  }
  if (one && args->classes != 0)
    BRIM_TRY(brim_hdf5_binary_targets(&s->file, first, &s->binary_targets));
  if (choice->target_count > 1 && args->classes > 0)
    return brim_fail(BRIM_EINVAL, "%s: classes= needs one dataset of labels, not %zu targets",
                     s->file.path, choice->target_count);
  for (; s->target_count < choice->target_count; s->target_count++) {
    brim_hdf5_array *a = &s->targets[s->target_count];
    BRIM_TRY(brim_hdf5_file_array(&s->file, choice->targets[s->target_count], args->keep, a));
    brim_hdf5_array_pack(a, (uint64_t)s->info.target_dim);
    if (a->row_elements > INT32_MAX)
      return brim_fail(BRIM_ELIMIT, "%s: %s: rows of %" PRIu64 " values are too large",
                       s->file.path, a->name, a->row_elements);
    s->info.target_dim += (int64_t)a->row_elements;
  }
  return BRIM_OK;
}

brim_status brim_hdf5_set_open(brim_hdf5_set *s, const brim_hdf5_set_args *args, const char *path,
                               bool whole) {
  brim_hdf5_choice *choice = &s->choice;
  BRIM_TRY(brim_hdf5_file_open(path, NULL, 0, args->outside, &s->file));
  BRIM_TRY(brim_hdf5_find(&s->file, args->split, whole, args->inputs, args->targets, choice));
  s->rows = choice->inputs[0]->dim[0];
  s->info.count = args->limit && (uint64_t)args->limit < s->rows ? (uint64_t)args->limit : s->rows;
  return open_arrays(s, args, choice, whole);
}

//---------------------------------- the helper ----------------------------------

// Names of datasets as one text, as they may be one or many.
static char *pack_names(const brim_hdf5_set_args *args) {
  char *text = NULL;
  json_t *both = json_object();
  if (both && args->inputs)
    (void)json_object_set(both, "inputs", (json_t *)(uintptr_t)args->inputs);
  if (both && args->targets)
    (void)json_object_set(both, "targets", (json_t *)(uintptr_t)args->targets);
  if (both) (void)brim_json_dump(both, 0, &text);
  json_decref(both);
  return text;
}

// In the helper: all that libhdf5 is needed for in the process that asks.
void brim_hdf5_job_set(const brim_hdf5_job *job) {
  const char *file = brim_hdf5_job_text(job, "file"), *names = brim_hdf5_job_text(job, "names");
  brim_hdf5_set_args args = {.path = brim_hdf5_job_text(job, "path"),
                             .split = brim_hdf5_job_text(job, "split"),
                             .layout = brim_hdf5_job_text(job, "layout"),
                             .limit = brim_hdf5_job_int(job, "limit"),
                             .classes = brim_hdf5_job_int(job, "classes"),
                             .outside = brim_hdf5_job_int(job, "outside") != 0,
                             .keep = (uint64_t)brim_hdf5_job_int(job, "keep"),
                             .at = job->at};
  json_t *both = NULL;
  if (!file || !args.path || !args.split || !names ||
      brim_json_parse(names, strlen(names), "names", &both))
    return;
  args.inputs = json_object_get(both, "inputs");
  args.targets = json_object_get(both, "targets");
  brim_hdf5_set s = {.file = {.driver = -1, .file = -1, .access = -1}};
  (void)brim_hdf5_set_open(&s, &args, file, brim_hdf5_job_int(job, "whole") != 0);
}

brim_status brim_hdf5_set_probe(const brim_hdf5_set_args *args, const char *file, bool whole) {
  brim_hdf5_request r;
  char *names = pack_names(args);
  if (!names) return brim_fail(BRIM_ENOMEM, "%s: out of memory", file);
  brim_hdf5_request_init(&r, "set");
  brim_hdf5_request_text(&r, "file", file);
  brim_hdf5_request_text(&r, "path", args->path);
  brim_hdf5_request_text(&r, "split", args->split);
  brim_hdf5_request_text(&r, "layout", args->layout);
  brim_hdf5_request_text(&r, "names", names);
  brim_hdf5_request_int(&r, "limit", args->limit);
  brim_hdf5_request_int(&r, "classes", args->classes);
  brim_hdf5_request_int(&r, "outside", args->outside);
  brim_hdf5_request_int(&r, "keep", (int64_t)args->keep);
  brim_hdf5_request_int(&r, "whole", whole);
  brim_status status = brim_hdf5_probe(file, &r);
  brim_hdf5_request_deinit(&r);
  brim_free(names);
  return status;
}
