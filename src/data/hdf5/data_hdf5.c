// The hdf5 source: datasets of one file as inputs and targets, with their labels, shapes and places
// in a sample. Opening reads the layout with libhdf5, in the helper program first and then here; rows
// then come from the mapped file without the library's lock (data_hdf5_array.c).
#include "data/hdf5/data_hdf5.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

//---------------------------------- choosing datasets ----------------------------------

// Inputs and targets are given by name, or found by usual names, by rank and by length. A split is found
// by its group, its name or its file in a folder. The functions depend on the list of datasets alone,
// except those that look for files.

enum { MAX_LISTED = 24, MAX_PLAIN = 512 };

const char *const brim_hdf5_split_names[BRIM_HDF5_SPLIT_COUNT][5] = {
    {"train", "training"},
    {"val", "valid", "validation", "dev"},
    {"test", "testing"},
    {"unlabeled", "unlabelled"},
};
const char *const brim_hdf5_input_names[] = {
    "x",       "data",   "inputs",  "input",     "images", "image", "features",
    "signals", "signal", "samples", "sequences", "set_x",  NULL};
const char *const brim_hdf5_target_names[] = {"y",      "labels", "targets", "label",
                                              "target", "set_y",  NULL};
// Datasets that list class names: neither inputs nor targets nor a split.
const char *const brim_hdf5_class_lists[] = {
    "list_classes", "class_names", "classes_names", "label_names", "labels_names",
    "target_names", NULL};

typedef struct candidates {
  const brim_hdf5_file *file;
  struct {
    const brim_hdf5_entry *entry;
    char *plain;
  } * row;
  size_t count;
  int split;  // the split of all rows; BRIM_HDF5_NO_SPLIT: none
  bool all;   // the rows are all datasets, of any split
} candidates;

//---------------------------------- splits ----------------------------------

static int split_named(const char *word, size_t n) {
  for (int s = 0; s < BRIM_HDF5_SPLIT_COUNT; s++) {
    for (const char *const *name = brim_hdf5_split_names[s]; *name; name++) {
      if (strlen(*name) == n && strncasecmp(*name, word, n) == 0) return s;
    }
  }
  return BRIM_HDF5_NO_SPLIT;
}

static const char *last_part(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// Finds a split's name at the start or the end of a dataset's name: x_train, train_x, or train itself.
// *rest gets the n bytes without it.
static int split_of_name(const char *name, const char **rest, size_t *n) {
  size_t all = strlen(name);
  const char *first = strchr(name, '_'), *last = strrchr(name, '_');
  int split = split_named(name, all);
  *rest = name;
  *n = all;
  if (split >= 0) {
    *rest = "data";
    *n = 4;
    return split;
  }
  if (!first) return BRIM_HDF5_NO_SPLIT;
  split = split_named(name, (size_t)(first - name));
  if (split >= 0 && first[1]) {
    *rest = first + 1;
    *n = all - (size_t)(first + 1 - name);
    return split;
  }
  split = split_named(last + 1, all - (size_t)(last + 1 - name));
  if (split >= 0 && last > name) *n = (size_t)(last - name);
  return last > name ? split : BRIM_HDF5_NO_SPLIT;
}

int brim_hdf5_split_of(const char *path, char *plain, size_t room) {
  const char *name = last_part(path);
  int split = BRIM_HDF5_NO_SPLIT;
  size_t used = 0;
  plain[0] = 0;
  for (const char *part = path; part < name;) {  // the groups
    const char *slash = strchr(part, '/');
    size_t n = (size_t)(slash - part);
    int here = split < 0 ? split_named(part, n) : BRIM_HDF5_NO_SPLIT;
    if (here >= 0) {
      split = here;
    } else if (used + n + 2 < room) {
      memcpy(plain + used, part, n + 1);
      used += n + 1;
      plain[used] = 0;
    }
    part = slash + 1;
  }
  const char *rest = name;
  size_t n = strlen(name);
  if (split < 0) split = split_of_name(name, &rest, &n);
  if (used + n + 1 < room) {
    memcpy(plain + used, rest, n);
    plain[used + n] = 0;
  }
  return split;
}

//---------------------------------- candidates ----------------------------------

static void list_entries(const brim_hdf5_file *f, brim_str *out) {
  brim_str_init(out);
  for (size_t i = 0; i < f->entry_count && i < MAX_LISTED; i++) {
    const brim_hdf5_entry *e = &f->entries[i];
    brim_str_printf(out, "%s%s (", i ? ", " : "", e->path);
    for (int d = 0; d < e->rank && d < BRIM_HDF5_MAX_RANK; d++)
      brim_str_printf(out, "%s%" PRIu64, d ? " x " : "", e->dim[d]);
    brim_str_printf(out, "%s%s)", e->rank > 0 ? " " : "", e->type);
  }
  if (f->entry_count > MAX_LISTED)
    brim_str_printf(out, brim_tr(" and %zu more"), f->entry_count - MAX_LISTED);
  if (f->entry_count == 0) brim_str_append(out, brim_tr("no dataset"));
}

// Fails with the message `what` + `name`, followed by the list of the file's datasets.
static brim_status fail_list(brim_status status, const brim_hdf5_file *f, const char *what,
                             const char *name) {
  brim_str list;
  list_entries(f, &list);
  brim_fail(status, "%s: %s%s; the file has %s", f->path, what, name, list.data);
  brim_str_deinit(&list);
  return status;
}

static brim_status fail_compound(const brim_hdf5_file *f, const brim_hdf5_entry *e) {
  return brim_fail(BRIM_EINVAL,
                   "%s: /%s is a compound table of %s, but brim reads plain numbers; write each "
                   "member as a dataset, in h5py: f['MEMBER'] = f['%s']['MEMBER']",
                   f->path, e->path, e->members, e->path);
}

static brim_status fail_damaged(const brim_hdf5_file *f, const brim_hdf5_entry *e) {
  if (e->link)
    return brim_fail(
        BRIM_EINVAL,
        "%s: /%s is %s; copy that dataset into this file (h5copy, h5py), or name others "
        "with both inputs= and targets=",
        f->path, e->path, e->trouble);
  return brim_fail(BRIM_EPARSE,
                   "%s: cannot open /%s: %s; the file is damaged, copy or download it again",
                   f->path, e->path, e->trouble);
}

// Refuses to guess if a dataset of this split cannot be opened: it may be the one to choose. Damaged
// datasets of other splits do not matter here. whole: every split counts.
static brim_status refuse_damaged(const brim_hdf5_file *f, const char *split, bool whole) {
  char plain[MAX_PLAIN];
  int wanted = split_named(split, strlen(split));
  for (size_t i = 0; i < f->entry_count; i++) {
    const brim_hdf5_entry *e = &f->entries[i];
    if (!e->trouble) continue;
    int own = brim_hdf5_split_of(e->path, plain, sizeof plain);
    bool other = wanted >= 0 && own >= 0 && own != wanted &&
                 !(wanted == BRIM_HDF5_VAL && own == BRIM_HDF5_TEST);
    if (whole || !other) return fail_damaged(f, e);
  }
  return BRIM_OK;
}

static void free_candidates(candidates *c) {
  for (size_t i = 0; i < c->count; i++) brim_free(c->row[i].plain);
  brim_free(c->row);
}

static brim_status add_candidate(candidates *c, const brim_hdf5_entry *e, const char *plain) {
  c->row[c->count].entry = e;
  c->row[c->count].plain = brim_strdup(plain);
  if (!c->row[c->count].plain) return brim_fail(BRIM_ENOMEM, "%s: out of memory", c->file->path);
  c->count++;
  return BRIM_OK;
}

static bool is_class_list(const brim_hdf5_entry *e) {
  for (const char *const *name = brim_hdf5_class_lists; *name; name++) {
    if (strcasecmp(last_part(e->path), *name) == 0) return true;
  }
  return false;
}

// Takes the datasets of one split, without the split's name in `plain`. unmarked: takes the datasets
// without a split instead.
static brim_status take_split(candidates *c, int split, bool unmarked) {
  char plain[MAX_PLAIN];
  c->split = unmarked ? BRIM_HDF5_NO_SPLIT : split;
  for (size_t i = 0; i < c->file->entry_count; i++) {
    const brim_hdf5_entry *e = &c->file->entries[i];
    int own = brim_hdf5_split_of(e->path, plain, sizeof plain);
    if (!e->numeric || is_class_list(e) || (unmarked ? own >= 0 : own != split)) continue;
    BRIM_TRY(add_candidate(c, e, plain));
  }
  return BRIM_OK;
}

static brim_status take_all(candidates *c) {
  c->split = BRIM_HDF5_NO_SPLIT;
  c->all = true;
  for (size_t i = 0; i < c->file->entry_count; i++) {
    const brim_hdf5_entry *e = &c->file->entries[i];
    if (e->numeric && !is_class_list(e)) BRIM_TRY(add_candidate(c, e, e->path));
  }
  return BRIM_OK;
}

// Adds text datasets: they may be labels of the numbers taken. Text is never an input.
static brim_status take_text(candidates *c) {
  char plain[MAX_PLAIN];
  for (size_t i = 0; i < c->file->entry_count; i++) {
    const brim_hdf5_entry *e = &c->file->entries[i];
    int own = brim_hdf5_split_of(e->path, plain, sizeof plain);
    if (!e->text || is_class_list(e) || (!c->all && own != c->split)) continue;
    BRIM_TRY(add_candidate(c, e, c->all ? e->path : plain));
  }
  return BRIM_OK;
}

static brim_status take_numbers(candidates *c, const char *split, bool whole) {
  const brim_hdf5_file *f = c->file;
  char plain[MAX_PLAIN];
  bool marked = false;
  int wanted = split_named(split, strlen(split));
  c->row = brim_calloc(f->entry_count + 1, sizeof *c->row);
  if (!c->row) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  for (size_t i = 0; i < f->entry_count; i++)
    marked = marked || (f->entries[i].numeric &&
                        brim_hdf5_split_of(f->entries[i].path, plain, sizeof plain) >= 0);
  if (!marked && (whole || wanted == BRIM_HDF5_TRAIN || strcmp(split, "all") == 0))
    return take_all(c);
  if (wanted >= 0) BRIM_TRY(take_split(c, wanted, false));
  if (!c->count && wanted == BRIM_HDF5_TRAIN) BRIM_TRY(take_split(c, wanted, true));
  // Without a val split the test set is evaluated, as with every source.
  if (!c->count && wanted == BRIM_HDF5_VAL) BRIM_TRY(take_split(c, BRIM_HDF5_TEST, false));
  if (!c->count && whole) return take_all(c);
  if (c->count) return BRIM_OK;
  if (marked) return fail_list(BRIM_ENOENT, f, brim_tr("holds no split "), split);
  return fail_list(BRIM_ENOENT, f,
                   brim_tr("has no groups train, val and test, so all of it is for training; set "
                           "data.val_fraction=0.1, or use split=train, part=(0, 0.9) and "
                           "split=train, part=(0.9, 1), instead of split "),
                   split);
}

static brim_status gather_candidates(candidates *c, const char *split, bool whole) {
  BRIM_TRY(take_numbers(c, split, whole));
  return take_text(c);
}

//---------------------------------- by name ----------------------------------

// A config names the training datasets. For another split the name of a training dataset means its
// counterpart in that split. Any other name is taken literally.
static void to_counterpart(const candidates *c, const char **name, char plain[MAX_PLAIN]) {
  int own = brim_hdf5_split_of(*name, plain, MAX_PLAIN);
  if (c->split >= 0 && own == BRIM_HDF5_TRAIN && own != c->split) *name = plain;
}

static brim_status find_by_name(const candidates *c, const char *name, bool targets,
                                const brim_hdf5_entry **out) {
  const brim_hdf5_file *f = c->file;
  const brim_hdf5_entry *loose = NULL;
  char plain[MAX_PLAIN];
  while (*name == '/') name++;
  to_counterpart(c, &name, plain);
  for (size_t i = 0; i < c->count; i++) {
    if (!targets && c->row[i].entry->text) continue;
    if (strcmp(c->row[i].plain, name) == 0 || strcmp(c->row[i].entry->path, name) == 0) {
      *out = c->row[i].entry;
      return BRIM_OK;
    }
    if (strcmp(last_part(c->row[i].plain), name) == 0) loose = c->row[i].entry;
  }
  for (size_t i = 0; i < f->entry_count; i++) {
    const brim_hdf5_entry *e = &f->entries[i];
    if (strcmp(e->path, name) != 0) continue;
    *out = e;
    if (e->numeric || (targets && e->text)) return BRIM_OK;
    if (e->trouble) return fail_damaged(f, e);
    if (e->members) return fail_compound(f, e);
    return brim_fail(BRIM_EINVAL, "%s: /%s: holds %s of rank %d, not numbers of rank 1 to %d",
                     f->path, name, e->type, e->rank, BRIM_HDF5_MAX_RANK);
  }
  for (size_t i = 0; i < f->entry_count; i++) {
    const brim_hdf5_entry *e = &f->entries[i];
    if (e->trouble && strcmp(last_part(e->path), name) == 0) return fail_damaged(f, e);
  }
  if (!loose) return fail_list(BRIM_ENOENT, f, brim_tr("has no dataset "), name);
  *out = loose;
  return BRIM_OK;
}

static brim_status find_all_by_name(const candidates *c, const json_t *names, bool targets,
                                    const brim_hdf5_entry **out, size_t *count) {
  const char *what = targets ? "targets" : "inputs";
  size_t n = json_is_array(names) ? json_array_size(names) : 1;
  *count = 0;
  if (n > BRIM_HDF5_MAX_ARRAYS)
    return brim_fail(BRIM_EINVAL, "hdf5: %s: at most %d datasets", what, BRIM_HDF5_MAX_ARRAYS);
  for (size_t i = 0; i < n; i++) {
    const json_t *item = json_is_array(names) ? json_array_get(names, i) : names;
    if (!json_is_string(item))
      return brim_fail(BRIM_EINVAL, "hdf5: %s must be the name of a dataset or a list of names",
                       what);
    BRIM_TRY(find_by_name(c, json_string_value(item), targets, &out[*count]));
    ++*count;
  }
  return BRIM_OK;
}

//---------------------------------- by guessing ----------------------------------

static bool is_named(const char *plain, const char *const *names) {
  for (; *names; names++) {
    if (strcasecmp(last_part(plain), *names) == 0) return true;
  }
  return false;
}

// Finds the dataset with the first name of the list that occurs; of several, the one with the shortest
// path.
static const brim_hdf5_entry *find_named(const candidates *c, const char *const *names, bool text) {
  for (; *names; names++) {
    const brim_hdf5_entry *best = NULL;
    size_t best_size = 0;
    for (size_t i = 0; i < c->count; i++) {
      size_t size = strlen(c->row[i].plain);
      if (c->row[i].entry->text != text) continue;
      if (strcasecmp(last_part(c->row[i].plain), *names) != 0) continue;
      if (best && size >= best_size) continue;
      best = c->row[i].entry;
      best_size = size;
    }
    if (best) return best;
  }
  return NULL;
}

static brim_status find_input(const candidates *c, const brim_hdf5_entry **out) {
  const brim_hdf5_entry *best = find_named(c, brim_hdf5_input_names, false);
  size_t same = 1;
  for (size_t i = 0; i < c->count && !find_named(c, brim_hdf5_input_names, false); i++) {
    const brim_hdf5_entry *e = c->row[i].entry;
    if (e->text || is_named(c->row[i].plain, brim_hdf5_target_names)) continue;
    if (best && e->rank == best->rank) same++;
    if (best && e->rank <= best->rank) continue;
    best = e;
    same = 1;
  }
  *out = best;
  if (best && same == 1) return BRIM_OK;
  for (size_t i = 0; i < c->file->entry_count && !best; i++) {
    if (c->file->entries[i].members) return fail_compound(c->file, &c->file->entries[i]);
  }
  if (c->file->entry_count == 0)
    return brim_fail(BRIM_EINVAL, "%s: the file holds no dataset", c->file->path);
  return fail_list(BRIM_EINVAL, c->file,
                   brim_tr("it is not clear which dataset holds the inputs; name it with "),
                   "inputs=");
}

// Fails if the input's split has a dataset with a usual target name that cannot be a target: the set is
// then not one without targets.
static brim_status refuse_other(const candidates *c, const brim_hdf5_choice *chosen) {
  const brim_hdf5_file *f = c->file;
  char plain[MAX_PLAIN];
  int split = brim_hdf5_split_of(chosen->inputs[0]->path, plain, sizeof plain);
  for (size_t i = 0; i < f->entry_count; i++) {
    const brim_hdf5_entry *e = &f->entries[i];
    int own = brim_hdf5_split_of(e->path, plain, sizeof plain);
    if (e->numeric || own != split || !is_named(plain, brim_hdf5_target_names)) continue;
    if (e->members) return fail_compound(f, e);
    return brim_fail(
        BRIM_EINVAL,
        "%s: /%s holds %s, which cannot be labels; store labels as numbers from 0 or as "
        "text, or use targets=none",
        f->path, e->path, e->type);
  }
  return BRIM_OK;
}

static brim_status find_target(const candidates *c, const brim_hdf5_choice *chosen,
                               const brim_hdf5_entry **out) {
  const brim_hdf5_entry *best = find_named(c, brim_hdf5_target_names, false);
  size_t found = 0;
  for (size_t i = 0; i < chosen->input_count; i++) {
    if (best == chosen->inputs[i]) best = NULL;
  }
  if (!best) best = find_named(c, brim_hdf5_target_names, true);
  // A list of class names is as long as there are classes; labels are as long as the inputs.
  if (best && best->text && best->dim[0] != chosen->inputs[0]->dim[0]) best = NULL;
  *out = best;
  if (best) return BRIM_OK;
  for (size_t i = 0; i < c->count; i++) {
    const brim_hdf5_entry *e = c->row[i].entry;
    bool input = false;
    for (size_t k = 0; k < chosen->input_count; k++) input = input || e == chosen->inputs[k];
    bool single = e->rank == 1 || (e->rank == 2 && e->dim[1] == 1);
    if (input || e->text || !single || e->dim[0] != chosen->inputs[0]->dim[0]) continue;
    *out = e;
    found++;
  }
  if (found == 1) return BRIM_OK;
  if (found == 0) return refuse_other(c, chosen);
  return fail_list(BRIM_EINVAL, c->file,
                   brim_tr("it is not clear which dataset holds the targets; name it with "),
                   "targets=");
}

static brim_status check_lengths(const brim_hdf5_file *f, const brim_hdf5_choice *c) {
  const brim_hdf5_entry *first = c->inputs[0];
  for (size_t i = 0; i < c->input_count + c->target_count; i++) {
    const brim_hdf5_entry *e = i < c->input_count ? c->inputs[i] : c->targets[i - c->input_count];
    if (e->dim[0] != first->dim[0])
      return brim_fail(BRIM_EINVAL, "%s: /%s has %" PRIu64 " rows, /%s has %" PRIu64, f->path,
                       first->path, first->dim[0], e->path, e->dim[0]);
    if (e->dim[0] == 0)
      return brim_fail(
          BRIM_EINVAL,
          "%s: /%s holds no data: it has 0 rows; did the program that wrote it finish?", f->path,
          e->path);
    for (int d = 1; d < e->rank; d++) {
      if (e->dim[d] == 0)
        return brim_fail(BRIM_EINVAL, "%s: /%s holds no data: size %d is 0", f->path, e->path, d);
    }
  }
  return BRIM_OK;
}

static brim_status choose_datasets(const candidates *c, const json_t *inputs, const json_t *targets,
                                   brim_hdf5_choice *out) {
  if (inputs) {
    BRIM_TRY(find_all_by_name(c, inputs, false, out->inputs, &out->input_count));
    if (!out->input_count) return brim_fail(BRIM_EINVAL, "hdf5: inputs names no dataset");
  } else {
    BRIM_TRY(find_input(c, &out->inputs[0]));
    out->input_count = 1;
  }
  const json_t *only = json_array_size(targets) == 1 ? json_array_get(targets, 0) : targets;
  const char *text = json_is_string(only) ? json_string_value(only) : "";
  if (targets && strcmp(text, "none") != 0) {
    BRIM_TRY(find_all_by_name(c, targets, true, out->targets, &out->target_count));
  } else if (!targets) {
    BRIM_TRY(find_target(c, out, &out->targets[0]));
    out->target_count = out->targets[0] ? 1 : 0;
  }
  return check_lengths(c->file, out);
}

// Chooses the datasets of a split. `inputs` and `targets` are names or lists of names, NULL = find
// them. whole: a file without splits serves any split.
static brim_status hdf5_find(const brim_hdf5_file *file, const char *split, bool whole,
                             const json_t *inputs, const json_t *targets, brim_hdf5_choice *out) {
  candidates c = {.file = file};
  *out = (brim_hdf5_choice){0};
  brim_status status = inputs && targets ? BRIM_OK : refuse_damaged(file, split, whole);
  if (!status) status = gather_candidates(&c, split, whole);
  if (!status) status = choose_datasets(&c, inputs, targets, out);
  if (status == BRIM_ENOENT && refuse_damaged(file, split, whole)) status = BRIM_EPARSE;
  free_candidates(&c);
  return status;
}

//---------------------------------- files ----------------------------------

bool brim_hdf5_is_name(const char *name) {
  return brim_str_ends(name, ".h5") || brim_str_ends(name, ".hdf5") || brim_str_ends(name, ".hdf");
}

// FOLDER/train.h5 for a split; NULL in *out if there is none. brim_free.
static brim_status hdf5_split_file(const char *folder, const char *split, char **out) {
  static const char *const ends[] = {"h5", "hdf5", "hdf"};
  *out = NULL;
  for (int s = 0; s < BRIM_HDF5_SPLIT_COUNT; s++) {
    if (strcmp(brim_hdf5_split_names[s][0], split) != 0) continue;
    for (const char *const *name = brim_hdf5_split_names[s]; *name; name++) {
      for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
        char file[64];
        snprintf(file, sizeof file, "%s.%s", *name, ends[e]);
        char *path = brim_fs_join(folder, file);
        if (!path) return brim_fail(BRIM_ENOMEM, "hdf5: out of memory");
        if (brim_fs_exists(path) && !brim_fs_is_dir(path)) {
          *out = path;
          return BRIM_OK;
        }
        brim_free(path);
      }
    }
  }
  return BRIM_OK;
}

// The only HDF5 file of a folder, or NULL.
static brim_status only_file(const char *folder, char **out) {
  char **names;
  size_t count, found = 0, at = 0;
  *out = NULL;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; i < count; i++) {
    if (!brim_hdf5_is_name(names[i])) continue;
    at = i;
    found++;
  }
  brim_status status = BRIM_OK;
  if (found == 1) {
    *out = brim_fs_join(folder, names[at]);
    if (!*out) status = brim_fail(BRIM_ENOMEM, "hdf5: out of memory");
  }
  brim_fs_list_free(names, count);
  return status;
}

// The file itself, or a folder's file for the split. *whole: the file was chosen by split, so all of it
// belongs to the split.
static brim_status hdf5_find_file(const char *path, const char *split, char **out, bool *whole) {
  *whole = false;
  *out = NULL;
  if (!brim_fs_is_dir(path)) {
    *out = brim_strdup(path);
    return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "hdf5: out of memory");
  }
  BRIM_TRY(hdf5_split_file(path, split, out));
  // Without a val.h5 the test set is evaluated, as with every source.
  if (!*out && strcmp(split, "val") == 0) BRIM_TRY(hdf5_split_file(path, "test", out));
  *whole = *out != NULL;
  if (!*out) BRIM_TRY(only_file(path, out));
  if (*out) return BRIM_OK;
  return brim_fail(BRIM_ENOENT, "%s: no %s.h5, no %s.hdf5 and no single HDF5 file found", path,
                   split, split);
}

// The datasets of one source: opened with libhdf5, first by the helper, then by this process.
typedef struct hdf5_set {
  brim_hdf5_file file;
  brim_hdf5_choice choice;  // entries of the file
  brim_hdf5_array inputs[BRIM_HDF5_MAX_ARRAYS], targets[BRIM_HDF5_MAX_ARRAYS];
  size_t input_count, target_count;
  int32_t *labels;            // planned
  brim_data_classes classes;  // names of text labels
  uint64_t rows;              // rows in the file; info.count may be less
  brim_source_info info;
  bool binary_targets;
  bool fills;  // inputs that are not finite are read as `nan`
  float nan;
  uint64_t input_values;  // values of a sample
  bool val_is_test;       // the test split stands in for a missing val
} hdf5_set;

typedef struct set_args {
  const char *path, *split, *layout;
  const json_t *inputs, *targets;
  int64_t limit, classes;  // classes: 0 = regression, -1 = not given
  uint64_t cache;
  bool outside;   // data in other files may be read
  uint64_t keep;  // read datasets that only libhdf5 can read into memory up to this size
  bool fills;     // nan= was given
  float nan;
  char *at;  // in the helper: room for the file it works on; else NULL
} set_args;

//---------------------------------- labels stored as numbers ----------------------------------

// Datasets that only libhdf5 can read are kept in memory up to this size; larger ones are read slowly.
static const uint64_t KEEP_LIMIT = (uint64_t)64 << 20;
// Bytes of the chunk cache while labels are read.
static const uint64_t LABEL_CACHE = (uint64_t)16 << 20;

// The index of the single 1 in a one-hot row; -1 if the row is not one-hot, with the offending column in
// *wrong.
static int64_t find_hot_index(const float *row, uint64_t count, uint64_t *wrong) {
  int64_t place = -1;
  for (uint64_t i = 0; i < count; i++) {
    bool one = row[i] == 1;
    if ((!one && row[i] != 0) || (one && place >= 0)) {
      *wrong = i;
      return -1;
    }
    if (one) place = (int64_t)i;
  }
  *wrong = 0;
  return place;
}

static brim_status parse_label(const brim_hdf5_array *a, uint64_t index, const float *row,
                               int64_t classes, int32_t *out) {
  bool hot = a->row_elements > 1;
  uint64_t wrong = 0;
  if (hot) {
    int64_t place = find_hot_index(row, a->row_elements, &wrong);
    *out = (int32_t)place;
    if (place >= 0) return BRIM_OK;
    return brim_fail(BRIM_EPARSE,
                     "%s: %s[%" PRIu64 "] is not one-hot (value %g at place %" PRIu64
                     "); with classes=%lld a row must have one 1 and zeros otherwise",
                     a->map->path, a->name, index, (double)row[wrong], wrong, (long long)classes);
  }
  if (isfinite(row[0]) && row[0] >= 0 && (double)row[0] < (double)classes &&
      row[0] == floorf(row[0])) {
    *out = (int32_t)row[0];
    return BRIM_OK;
  }
  return brim_fail(BRIM_EPARSE,
                   "%s: %s[%" PRIu64
                   "] is %g; with classes=%lld labels are whole numbers from 0 "
                   "to %lld",
                   a->map->path, a->name, index, (double)row[0], (long long)classes,
                   (long long)classes - 1);
}

static brim_status read_rows(brim_hdf5_array *a, int64_t classes, int32_t *out) {
  if (a->where == BRIM_HDF5_PACKED) BRIM_TRY(brim_hdf5_cache_create(a, LABEL_CACHE, &a->cache));
  brim_hdf5_array_pack(a, 0);
  a->bytes = false;
  float *row = brim_calloc(a->row_elements, sizeof *row);
  if (!row) return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", a->map->path, a->name);
  brim_status status = BRIM_OK;
  for (uint64_t i = 0; i < a->dim[0] && !status; i++) {
    status = brim_hdf5_array_row(a, i, row);
    if (!status) status = parse_label(a, i, row, classes, &out[i]);
  }
  brim_free(row);
  return status;
}

// Reads labels from floats that are whole numbers, or from one-hot rows of `classes` columns. Checks
// every value.
static brim_status read_class_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                     int64_t classes, int32_t *out) {
  bool single = entry->rank == 1 || (entry->rank == 2 && entry->dim[1] == 1);
  bool hot = entry->rank == 2 && entry->dim[1] == (uint64_t)classes;
  if (!single && !hot) {
    return brim_fail(BRIM_EINVAL,
                     "%s: /%s cannot be labels of %lld classes; labels are one number per row, or "
                     "one-hot rows of %lld",
                     file->path, entry->path, (long long)classes, (long long)classes);
  }
  brim_hdf5_array a;
  BRIM_TRY(brim_hdf5_file_array(file, entry, KEEP_LIMIT, &a));
  brim_status status = read_rows(&a, classes, out);
  brim_hdf5_file_close_array(&a);
  return status;
}

// Float targets stay regression targets even if all are small whole numbers or one-hot rows. Usually
// such targets were meant as labels, so warn how to declare them.
static brim_status warn_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry) {
  enum { MOST_CLASSES = 1000 };
  uint64_t rows = entry->dim[0];
  bool hot = entry->rank == 2 && entry->dim[1] > 1;
  if (entry->rank > 2 || (hot && entry->dim[1] > BRIM_HDF5_MAX_CLASSES)) return BRIM_OK;
  int64_t classes = hot ? (int64_t)entry->dim[1] : MOST_CLASSES;
  int32_t max = 0, *labels = brim_alloc(rows * sizeof *labels);
  if (!labels) {
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " labels", file->path,
                     entry->path, rows);
  }
  // Fails at the first value that is no label.
  brim_status status = read_class_labels(file, entry, classes, labels);
  for (uint64_t i = 0; !status && i < rows; i++) max = labels[i] > max ? labels[i] : max;
  brim_free(labels);
  if (status == BRIM_ENOMEM) return status;
  if (!status && hot && rows > 1) {
    brim_log_warn(
        "data",
        "%s: every row of /%s is one-hot, but brim treats the columns as independent labels; "
        "for one class a row add --dataset 'hdf5(classes=%lld)'",
        file->path, entry->path, (long long)classes);
  } else if (!status && !hot && max > 0 && (uint64_t)max < rows / 2) {
    brim_log_warn("data",
                  "%s: /%s holds whole numbers from 0 to %d stored as floats, so brim treats them "
                  "as regression targets; for labels add --dataset 'hdf5(classes=%d)'",
                  file->path, entry->path, (int)max, (int)max + 1);
  }
  brim_status_clear();
  return BRIM_OK;
}

// True if the targets are several columns of 0 and 1, and both values occur.
static brim_status find_binary_targets(brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                       bool *out) {
  enum { MOST_LABELS = 1 << 16 };
  *out = false;
  if (entry->rank != 2 || entry->dim[1] < 2 || entry->dim[1] > MOST_LABELS) return BRIM_OK;
  brim_hdf5_array a;
  BRIM_TRY(brim_hdf5_file_array(file, entry, KEEP_LIMIT, &a));
  brim_hdf5_array_pack(&a, 0);
  a.bytes = false;
  brim_status status = BRIM_OK;
  if (a.where == BRIM_HDF5_PACKED) status = brim_hdf5_cache_create(&a, LABEL_CACHE, &a.cache);
  float *row = brim_calloc(a.row_elements, sizeof *row);
  if (!status && !row) status = brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", file->path, a.name);
  bool binary = !status, zeros = false, ones = false;
  for (uint64_t i = 0; i < a.dim[0] && binary && !status; i++) {
    status = brim_hdf5_array_row(&a, i, row);
    if (status && status != BRIM_ENOMEM) {  // reading the sample later reports the row
      status = BRIM_OK;
      continue;
    }
    for (uint64_t k = 0; k < a.row_elements && binary; k++) {
      zeros = zeros || row[k] == 0;
      ones = ones || row[k] == 1;
      binary = row[k] == 0 || row[k] == 1;
    }
  }
  brim_free(row);
  brim_hdf5_file_close_array(&a);
  if (status != BRIM_ENOMEM) brim_status_clear();
  *out = binary && zeros && ones;
  return status;
}

//---------------------------------- labels ----------------------------------

static int64_t label_of(const void *labels, uint64_t i) { return ((const int32_t *)labels)[i]; }

// The kind of whole-number targets (classes, or values to predict) and their range.
typedef struct label_kind {
  bool found;   // the dataset exists and was read
  bool values;  // they are values to predict
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

// Reads the kind of the training split's labels while another split is opened. Unusable labels are
// ignored here: they fail when the training split itself is opened.
static brim_status read_kind_of_split(brim_hdf5_file *file, const brim_hdf5_entry *e,
                                      label_kind *out) {
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

// Reads the kind of the training split's labels in the same file: the split to open may lack a class. A
// class that training lacks is found later, when the two sets are compared.
static brim_status read_training_kind(hdf5_set *s, const brim_hdf5_entry *labels, label_kind *out) {
  char own[512], plain[512];
  int split = brim_hdf5_split_of(labels->path, own, sizeof own);
  for (size_t i = 0; i < s->file.entry_count; i++) {
    const brim_hdf5_entry *e = &s->file.entries[i];
    int other = brim_hdf5_split_of(e->path, plain, sizeof plain);
    if (other == split || other != BRIM_HDF5_TRAIN || !e->integer || !e->numeric ||
        strcmp(own, plain) != 0)
      continue;
    if (e->dim[0] == 0 || (e->rank > 1 && e->dim[1] != 1) || e->rank > 2) continue;
    BRIM_TRY(read_kind_of_split(&s->file, e, out));
  }
  return BRIM_OK;
}

// Opens the training split's file if splits are files of one folder, and chooses its datasets. *found
// false: the file does not exist, or args->split is the training split. Else the caller closes it.
static brim_status open_training(const set_args *args, brim_hdf5_file *file,
                                 brim_hdf5_choice *choice, bool *found) {
  const char *split = brim_hdf5_split_names[BRIM_HDF5_TRAIN][0];
  char *path;
  *found = false;
  if (strcmp(split, args->split) == 0) return BRIM_OK;
  BRIM_TRY(hdf5_split_file(args->path, split, &path));
  if (!path) return BRIM_OK;
  if (args->at) snprintf(args->at, BRIM_HDF5_PROBE_ROOM, "%s", path);
  brim_status status = brim_hdf5_file_open(path, NULL, 0, args->outside, file);
  brim_free(path);
  if (status) return status;
  *found = true;
  status = hdf5_find(file, split, true, args->inputs, args->targets, choice);
  if (status) choice->target_count = 0;
  return status == BRIM_ENOMEM ? status : BRIM_OK;
}

// Like read_training_kind, if splits are files of one folder.
static brim_status read_training_file_kind(const set_args *args, label_kind *out) {
  brim_hdf5_file file;
  brim_hdf5_choice choice;
  bool found;
  brim_status status = open_training(args, &file, &choice, &found);
  if (!status && found && choice.target_count == 1 && choice.targets[0]->integer) {
    status = read_kind_of_split(&file, choice.targets[0], out);
  }
  if (found) brim_hdf5_file_close(&file);
  return status;
}

static bool is_one_per_row(const brim_hdf5_entry *e) {
  return e->rank == 1 || (e->rank == 2 && e->dim[1] == 1);
}

// Warns of labels 1 to N: they make N + 1 classes, and class 0 has no samples.
static void warn_from_one(const hdf5_set *s, const set_args *args, const brim_hdf5_entry *e,
                          int32_t least, int64_t classes) {
  if (strcmp(args->split, "train") != 0 || least != 1) return;  // warn for one split only
  brim_log_warn("data",
                "%s: the labels /%s start at 1, so class 0 of the %lld classes never occurs; "
                "subtract 1 from every label to remove the unused output",
                s->file.path, e->path, (long long)classes);
}

static void warn_values(const hdf5_set *s, const set_args *args, const brim_hdf5_entry *e,
                        const label_kind *own) {
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

// Reads whole-number labels or, with classes=, float and one-hot labels. *values: the targets are values
// to predict, so no labels were kept.
static brim_status read_labels(hdf5_set *s, const set_args *args, const brim_hdf5_entry *e,
                               bool folder, bool *values) {
  brim_hdf5_whole whole;
  label_kind own, train = {0};
  s->labels = brim_alloc_tagged(s->rows * sizeof *s->labels, BRIM_MEM_PLANNED);
  if (!s->labels)
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " labels", s->file.path,
                     e->path, s->rows);
  if (args->classes > 0 && !(e->integer && is_one_per_row(e))) {
    s->info.classes = args->classes;
    return read_class_labels(&s->file, e, args->classes, s->labels);
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
    BRIM_TRY(read_training_kind(s, e, &train));
    if (folder) BRIM_TRY(read_training_file_kind(args, &train));
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

// Reads the class names of the training split: they number the classes of every split.
static brim_status read_training_names(hdf5_set *s, const set_args *args,
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
  } else if (hdf5_find(file, split, false, args->inputs, args->targets, &choice)) {
    choice.target_count = 0;  // there is no training split
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

static brim_status read_text(hdf5_set *s, const set_args *args, const brim_hdf5_entry *e,
                             bool folder) {
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
  SIGNAL_CHANNELS = 16,  // a signal stored channels first has at most this many channels,
  SIGNAL_STRETCH = 8,    // and at least this many times as many steps as channels
};

// Guesses from the sizes that channels come first: a few before the pixels, or before many steps of a
// float signal.
static bool looks_planar(const brim_hdf5_array *a) {
  uint64_t c = a->dim[1];
  if (a->rank == 3) {
    return a->type.kind >= BRIM_HDF5_F16 && c <= SIGNAL_CHANNELS && a->dim[2] >= SIGNAL_STRETCH * c;
  }
  if ((c == 1 || c == 3) && a->dim[2] == a->dim[3] && a->dim[2] > c) return true;
  return (c == 1 || c == 3 || c == 4) && a->dim[2] > 4 && a->dim[3] > 4;
}

// True if planes (C, H, W) or signals (C, L) are stored and must become pixels (H, W, C) or steps
// (L, C). The argument `layout` decides, else the attribute, else the sizes.
static bool is_planes(hdf5_set *s, const set_args *args, const brim_hdf5_array *a,
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
  if (there && (a->rank == 3 || strcmp(layout, "N...") == 0))
    return false;  // stored as samples are
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

// Places the rows of one input in a sample whose last dimension has size `last`, from index `at` of that
// dimension on.
static void place_rows(brim_hdf5_array *a, const sample_shape *own, bool planes, uint64_t at,
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

static brim_status set_shape(hdf5_set *s, const sample_shape *shape) {
  s->info.rank = shape->rank;
  for (int d = 0; d < shape->rank; d++) {
    if (shape->dim[d] > INT32_MAX)
      return brim_fail(BRIM_ELIMIT, "%s: %s: rows of %" PRIu64 " values are too large",
                       s->file.path, s->inputs[0].name, s->inputs[0].row_elements);
    s->info.dim[d] = (int64_t)shape->dim[d];
  }
  return BRIM_OK;
}

// Places the inputs in the sample. A single input keeps its shape. Several are joined along the last
// axis if their other sizes agree, else flattened one after another.
static brim_status set_inputs(hdf5_set *s, const set_args *args, const brim_hdf5_choice *choice) {
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
      place_rows(a, &own[i], planes[i], at, last);
      at += own[i].dim[own[i].rank - 1];
    } else {
      brim_hdf5_array_pack(a, at);
      at += a->row_elements;
    }
  }
  s->info.type = s->inputs[0].bytes ? BRIM_SAMPLE_U8 : BRIM_SAMPLE_F32;
  return set_shape(s, &shape);
}

// Reads the attributes mean and std of the dataset: one number for all channels, or one for each.
static void set_normalisation(hdf5_set *s, const brim_hdf5_entry *e) {
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

static brim_status open_arrays(hdf5_set *s, const set_args *args, const brim_hdf5_choice *choice,
                               bool folder) {
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
  bool values = args->classes == 0, single = choice->target_count == 1;
  if (single && !values && (args->classes > 0 || (first->integer && is_one_per_row(first)))) {
    BRIM_TRY(read_labels(s, args, first, folder, &values));
    if (!values) return BRIM_OK;
  } else if (single && !values && strcmp(args->split, "train") == 0) {
    BRIM_TRY(warn_labels(&s->file, first));
  }
  if (single && args->classes != 0)
    BRIM_TRY(find_binary_targets(&s->file, first, &s->binary_targets));
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

static brim_status open_set(hdf5_set *s, const set_args *args, const char *path, bool whole) {
  brim_hdf5_choice *choice = &s->choice;
  BRIM_TRY(brim_hdf5_file_open(path, NULL, 0, args->outside, &s->file));
  BRIM_TRY(hdf5_find(&s->file, args->split, whole, args->inputs, args->targets, choice));
  s->rows = choice->inputs[0]->dim[0];
  s->info.count = args->limit && (uint64_t)args->limit < s->rows ? (uint64_t)args->limit : s->rows;
  return open_arrays(s, args, choice, whole);
}

//---------------------------------- the helper ----------------------------------

// Packs the names of inputs and targets into one JSON text; brim_free.
static char *pack_names(const set_args *args) {
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

// Runs in the helper: opens the set as the calling process will.
void brim_hdf5_job_set(const brim_hdf5_job *job) {
  const char *file = brim_hdf5_job_text(job, "file"), *names = brim_hdf5_job_text(job, "names");
  set_args args = {.path = brim_hdf5_job_text(job, "path"),
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
  hdf5_set s = {.file = {.driver = -1, .file = -1, .access = -1}};
  (void)open_set(&s, &args, file, brim_hdf5_job_int(job, "whole") != 0);
}

static brim_status probe_set(const set_args *args, const char *file, bool whole) {
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

//---------------------------------- the source ----------------------------------

// Default bytes for unpacked chunks: an eighth of the memory, within these limits. If rows are read in
// random order, a chunk that is not kept is unpacked again for each of its rows.
static const uint64_t LEAST_CACHE = (uint64_t)256 << 20, MOST_CACHE = (uint64_t)4 << 30;
enum {
  NAN_ROWS = 256,  // rows checked for a dataset of nothing but NaN
};

//---------------------------------- memory ----------------------------------

// Shares the budget for unpacked chunks among the datasets by their size.
static brim_status create_caches(hdf5_set *s, uint64_t budget) {
  double all = 0;
  brim_hdf5_array *sets[2] = {s->inputs, s->targets};
  size_t counts[2] = {s->input_count, s->target_count};
  for (int pass = 0; pass < 2; pass++) {
    for (int k = 0; k < 2; k++) {
      for (size_t i = 0; i < counts[k]; i++) {
        brim_hdf5_array *a = &sets[k][i];
        if (a->where != BRIM_HDF5_PACKED) continue;
        double need = (double)a->chunk_count * (double)a->chunk_bytes;
        if (pass == 0) {
          all += need;
        } else {
          BRIM_TRY(brim_hdf5_cache_create(a, (uint64_t)((double)budget * (need / all)), &a->cache));
        }
      }
    }
  }
  return BRIM_OK;
}

// Prefetches a file of up to a quarter of the memory and 4 GiB. Turns read-ahead off for small rows of a
// file larger than half the memory.
static void advise_kernel(const hdf5_set *s) {
  uint64_t left = 0, memory = 0;
  brim_machine_free_memory("", &left, &memory);
  const brim_map *map = &s->file.map;
  if (map->size <= memory / 4 && map->size <= (uint64_t)4 << 30) {
    brim_map_advise(map, 0, map->size, BRIM_MAP_USE_SOON);
  } else if (map->size > memory / 2 && s->inputs[0].row_bytes < 64 << 10) {
    brim_map_advise(map, 0, map->size, BRIM_MAP_USE_RANDOM);
  }
}

// Refuses a dataset of floats if all values of a random choice of rows are NaN: it would train nothing.
static brim_status check_nan(const hdf5_set *s, const brim_hdf5_array *a) {
  if (a->type.kind < BRIM_HDF5_F16) return BRIM_OK;
  brim_hdf5_array flat = *a;
  brim_hdf5_array_pack(&flat, 0);
  flat.bytes = false;
  float *row = brim_calloc(a->row_elements, sizeof *row);
  if (!row) return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", s->file.path, a->name);
  brim_status status = BRIM_OK;
  bool good = false;
  uint64_t looked = 0;
  for (; looked < NAN_ROWS && looked < s->rows && !good && !status; looked++) {
    // Rows are drawn at random, because values may be missing at regular intervals.
    brim_philox4 r = brim_philox(0, 0, looked);
    uint64_t at = s->rows > NAN_ROWS ? brim_rng_below(r.v[0], r.v[1], s->rows) : looked;
    status = brim_hdf5_array_row(&flat, at, row);
    for (uint64_t i = 0; i < a->row_elements && !good && !status; i++) good = !isnan(row[i]);
    // An unreadable row counts as good here: reading the sample later reports or skips it.
    good = good || (status && status != BRIM_ENOMEM);
    if (status != BRIM_ENOMEM) status = BRIM_OK;
  }
  brim_free(row);
  if (status || good) return status;
  return brim_fail(BRIM_EINVAL, "%s: %s holds only NaN in the %" PRIu64 " rows checked",
                   s->file.path, a->name, looked);
}

static void warn_unwritten(const hdf5_set *s, const brim_hdf5_array *a) {
  uint64_t rows = brim_hdf5_array_unwritten(a);
  if (!rows) return;
  brim_log_warn("data",
                "%s: %" PRIu64 " of %" PRIu64
                " rows of %s were never written and read as the fill value; did the program that "
                "wrote the file finish?",
                s->file.path, rows, a->dim[0], a->name);
}

//---------------------------------- the table ----------------------------------

static void hdf5_close(void *state) {
  hdf5_set *s = state;
  if (!s) return;
  for (size_t i = 0; i < s->input_count; i++) brim_hdf5_file_close_array(&s->inputs[i]);
  for (size_t i = 0; i < s->target_count; i++) brim_hdf5_file_close_array(&s->targets[i]);
  brim_hdf5_file_close(&s->file);
  brim_data_classes_deinit(&s->classes);
  brim_free(s->labels);
  brim_free(s);
}

static brim_status start_readers(const hdf5_set *s) {
  for (size_t i = 0; i < s->input_count; i++) {
    if (s->inputs[i].reader) BRIM_TRY(brim_hdf5_reader_start(s->inputs[i].reader));
  }
  for (size_t i = 0; i < s->target_count; i++) {
    if (s->targets[i].reader) BRIM_TRY(brim_hdf5_reader_start(s->targets[i].reader));
  }
  return BRIM_OK;
}

// Notes whether val reads the test split: by the name of the file (`whole`) or of its first input.
static brim_status note_split(hdf5_set *s, const set_args *args, bool whole) {
  char *own = NULL, plain[512];
  if (strcmp(args->split, "val") != 0) return BRIM_OK;
  if (!whole) {
    int split = brim_hdf5_split_of(s->choice.inputs[0]->path, plain, sizeof plain);
    s->val_is_test = split == BRIM_HDF5_TEST;
    return BRIM_OK;
  }
  BRIM_TRY(hdf5_split_file(args->path, "val", &own));
  s->val_is_test = !own;
  brim_free(own);
  return BRIM_OK;
}

static brim_status open_probed(hdf5_set *s, const set_args *args) {
  char *path;
  bool whole;
  BRIM_TRY(hdf5_find_file(args->path, args->split, &path, &whole));
  set_args own = *args;
  brim_status status = probe_set(&own, path, whole);
  if (status == BRIM_EPARSE) {
    // The helper crashed, perhaps at one row of a dataset read into memory. Read row by row instead: the
    // other rows may be good.
    own.keep = 0;
    status = probe_set(&own, path, whole);
  }
  if (!status) status = open_set(s, &own, path, whole);
  brim_free(path);
  BRIM_TRY(status);
  BRIM_TRY(note_split(s, args, whole));
  BRIM_TRY(start_readers(s));
  BRIM_TRY(create_caches(s, args->cache));
  for (size_t i = 0; i < s->input_count; i++) warn_unwritten(s, &s->inputs[i]);
  for (size_t i = 0; i < s->target_count; i++) warn_unwritten(s, &s->targets[i]);
  for (size_t i = 0; i < s->input_count; i++) BRIM_TRY(check_nan(s, &s->inputs[i]));
  for (size_t i = 0; i < s->target_count; i++) BRIM_TRY(check_nan(s, &s->targets[i]));
  s->fills = args->fills;
  s->nan = args->nan;
  s->input_values = 1;
  for (int k = 0; k < s->info.rank; k++) s->input_values *= (uint64_t)s->info.dim[k];
  advise_kernel(s);
  brim_hdf5_file_choose(&s->file);
  return BRIM_OK;
}

static uint64_t default_cache(void) {
  uint64_t left = 0, total = 0;
  brim_machine_free_memory("", &left, &total);
  uint64_t cache = total / 8 < MOST_CACHE ? total / 8 : MOST_CACHE;
  return cache > LEAST_CACHE ? cache : LEAST_CACHE;
}

static brim_status cache_argument(const json_t *args, uint64_t *out) {
  const json_t *v = json_object_get(args, "chunk_cache");
  if (!v) return BRIM_OK;
  if (json_is_integer(v) && json_integer_value(v) >= 0) {
    *out = (uint64_t)json_integer_value(v);
  } else if (!json_is_string(v) || !brim_parse_bytes(json_string_value(v), out)) {
    return brim_fail(BRIM_EINVAL, "hdf5: chunk_cache must be a number of bytes, as 512MiB");
  }
  return BRIM_OK;
}

static brim_status layout_argument(const json_t *args, const char **out) {
  static const char *const layouts[] = {"NCHW", "NHWC", "NCL", "NLC", NULL};
  BRIM_TRY(brim_data_args_string(args, "hdf5", "layout", out));
  for (const char *const *l = layouts; *out && *l; l++) {
    if (strcasecmp(*l, *out) == 0) return BRIM_OK;
  }
  if (!*out) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "hdf5: layout is NCHW, NHWC, NCL or NLC, not '%s'", *out);
}

static brim_status read_args(const brim_source_how *how, const json_t *json, set_args *args) {
  *args = (set_args){.path = how->path,
                     .split = how->split,
                     .classes = -1,
                     .cache = default_cache(),
                     .keep = KEEP_LIMIT};
  BRIM_TRY(brim_data_args_string(json, "hdf5", "path", &args->path));
  BRIM_TRY(brim_data_args_int(json, "hdf5", "limit", 1, INT64_MAX, &args->limit));
  BRIM_TRY(brim_data_args_int(json, "hdf5", "classes", 0, BRIM_HDF5_MAX_CLASSES, &args->classes));
  BRIM_TRY(layout_argument(json, &args->layout));
  BRIM_TRY(cache_argument(json, &args->cache));
  const json_t *fill = json_object_get(json, "nan");
  if (fill && !json_is_number(fill)) return brim_fail(BRIM_EINVAL, "hdf5: nan must be a number");
  if (fill) {
    args->fills = true;
    args->nan = (float)json_number_value(fill);
  }
  const json_t *outside = json_object_get(json, "allow_external");
  if (outside && !json_is_boolean(outside))
    return brim_fail(BRIM_EINVAL, "hdf5: allow_external is true or false");
  args->outside = json_is_true(outside);
  args->inputs = json_object_get(json, "inputs");
  args->targets = json_object_get(json, "targets");
  if (!args->path || !args->path[0])
    return brim_fail(BRIM_EINVAL,
                     "hdf5 needs data.path: a file such as data.h5, or a folder of "
                     "train.h5 and val.h5");
  if (!args->split) args->split = "train";
  return BRIM_OK;
}

static brim_status hdf5_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {
      "path",    "split",       "limit",          "inputs", "targets", "classes", "part",
      "indices", "chunk_cache", "allow_external", "layout", "nan",     NULL};
  json_t *json;
  set_args args;
  BRIM_TRY(brim_data_args_parse("hdf5", how->args_json, known, &json));
  hdf5_set *s = brim_calloc(1, sizeof *s);
  brim_status status = BRIM_OK;
  if (s) {
    s->file.driver = s->file.file = s->file.access = -1;
    status = read_args(how, json, &args);
    if (!status) status = open_probed(s, &args);
  } else {
    status = brim_fail(BRIM_ENOMEM, "hdf5: out of memory");
  }
  json_decref(json);
  if (status) {
    hdf5_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static void hdf5_info(void *state, brim_source_info *out) { *out = ((hdf5_set *)state)->info; }

static brim_status check_row(const hdf5_set *s, uint64_t index) {
  if (index < s->info.count) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: holds %" PRIu64 " samples", s->file.path, s->info.count);
}

static brim_status read_target(const hdf5_set *s, uint64_t index, void *target) {
  for (size_t i = 0; i < s->target_count; i++)
    BRIM_TRY(brim_hdf5_array_row(&s->targets[i], index, target));
  if (s->labels) memcpy(target, &s->labels[index], sizeof s->labels[index]);
  return BRIM_OK;
}

// With nan=X, replaces values that are not finite by X.
static void replace_nonfinite(const hdf5_set *s, float *input) {
  for (uint64_t i = 0; i < s->input_values; i++) {
    if (!isfinite(input[i])) input[i] = s->nan;
  }
}

static brim_status read_sample(const hdf5_set *s, uint64_t index, void *input, void *target,
                               bool stream) {
  BRIM_TRY(check_row(s, index));
  for (size_t i = 0; i < s->input_count; i++)
    BRIM_TRY(stream ? brim_hdf5_array_stream(&s->inputs[i], index, input)
                    : brim_hdf5_array_row(&s->inputs[i], index, input));
  if (s->fills && s->info.type == BRIM_SAMPLE_F32) replace_nonfinite(s, input);
  return read_target(s, index, target);
}

static brim_status hdf5_read(void *state, uint64_t index, void *input, void *target) {
  return read_sample(state, index, input, target, false);
}

static brim_status hdf5_stream(void *state, uint64_t index, uint64_t next, void *input,
                               void *target) {
  const hdf5_set *s = state;
  if (next < s->info.count) {
    for (size_t i = 0; i < s->input_count; i++) brim_hdf5_array_prefetch(&s->inputs[i], next);
    for (size_t i = 0; i < s->target_count; i++) brim_hdf5_array_prefetch(&s->targets[i], next);
    if (s->labels) __builtin_prefetch(&s->labels[next]);
  }
  return read_sample(s, index, input, target, true);
}

// True for one contiguous dataset of numbers that a sample holds as they are.
static bool hdf5_rows(void *state, brim_source_rows *out) {
  const hdf5_set *s = state;
  const brim_hdf5_array *a = &s->inputs[0];
  if (s->fills || s->input_count != 1 || !brim_hdf5_array_direct(a)) return false;
  *out = (brim_source_rows){
      .first = a->map->data + a->offset, .stride = a->row_bytes, .count = s->info.count};
  return true;
}

static brim_status hdf5_target(void *state, uint64_t index, void *target) {
  const hdf5_set *s = state;
  BRIM_TRY(check_row(s, index));
  return read_target(s, index, target);
}

static void hdf5_describe(void *state, uint64_t index, char *text, size_t size) {
  const hdf5_set *s = state;
  snprintf(text, size, "%s:%s[%" PRIu64 "]", brim_fs_basename(s->file.path), s->inputs[0].name,
           index);
}

static void hdf5_describe_target(void *state, uint64_t index, int64_t value, char *text,
                                 size_t size) {
  const hdf5_set *s = state;
  const brim_hdf5_array *a = NULL;
  for (size_t i = 0; i < s->target_count; i++) {
    if (value >= (int64_t)s->targets[i].base) a = &s->targets[i];
  }
  if (a) snprintf(text, size, "%s:%s[%" PRIu64 "]", brim_fs_basename(s->file.path), a->name, index);
}

static bool hdf5_binary_targets(void *state) { return ((hdf5_set *)state)->binary_targets; }

static bool hdf5_val_is_test(void *state) { return ((hdf5_set *)state)->val_is_test; }

static uint64_t hdf5_host_bytes(void *state) {
  const hdf5_set *s = state;
  uint64_t n = s->labels ? s->rows * sizeof *s->labels : 0;
  for (size_t i = 0; i < s->input_count; i++) n += brim_hdf5_array_host_bytes(&s->inputs[i]);
  for (size_t i = 0; i < s->target_count; i++) n += brim_hdf5_array_host_bytes(&s->targets[i]);
  return n;
}

static int64_t hdf5_label(const void *state, uint64_t index) {
  return ((const hdf5_set *)state)->labels[index];
}

static const char *const *hdf5_class_names(void *state) {
  return ((const hdf5_set *)state)->classes.names;
}

const brim_source_table brim_source_hdf5 = {
    .abi = BRIM_SOURCE_ABI,
    .name = "hdf5",
    .open = hdf5_open,
    .info = hdf5_info,
    .read = hdf5_read,
    .close = hdf5_close,
    .describe = hdf5_describe,
};

//---------------------------------- datasets that no split reads ----------------------------------

static bool reads_entry(const hdf5_set *s, const brim_hdf5_entry *e) {
  for (size_t i = 0; i < s->choice.input_count; i++) {
    if (strcmp(s->choice.inputs[i]->path, e->path) == 0) return true;
  }
  for (size_t i = 0; i < s->choice.target_count; i++) {
    if (strcmp(s->choice.targets[i]->path, e->path) == 0) return true;
  }
  if (e->numeric || e->rank != 1 || e->dim[0] != (uint64_t)s->info.classes) return false;
  for (const char *const *name = brim_hdf5_class_lists; *name; name++) {
    if (strcmp(e->path, *name) == 0) return true;
  }
  return false;
}

static void add_entry(const brim_hdf5_entry *e, brim_unused *out) {
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "/%s (", e->path);
  for (int d = 0; d < e->rank && d < BRIM_HDF5_MAX_RANK; d++) {
    brim_str_printf(&text, "%s%" PRIu64, d ? " x " : "", e->dim[d]);
  }
  brim_str_printf(&text, "%s%s)", e->rank > 0 ? " " : "", e->type);
  brim_unused_add(out, text.data);
  brim_str_deinit(&text);
}

static brim_status hdf5_unused(void *const *states, size_t count, brim_unused *out) {
  for (size_t i = 0; i < count; i++) {
    const brim_hdf5_file *file = &((const hdf5_set *)states[i])->file;
    bool seen = false;  // by an earlier split of the same file
    for (size_t k = 0; k < i; k++) {
      seen = seen || strcmp(((const hdf5_set *)states[k])->file.path, file->path) == 0;
    }
    for (size_t e = 0; e < file->entry_count && !seen; e++) {
      bool used = false;
      for (size_t k = 0; k < count && !used; k++) {
        const hdf5_set *other = states[k];
        used = strcmp(other->file.path, file->path) == 0 && reads_entry(other, &file->entries[e]);
      }
      if (!used) add_entry(&file->entries[e], out);
    }
  }
  return BRIM_OK;
}

const brim_source_builtin brim_builtin_hdf5 = {
    .table = &brim_source_hdf5,
    .host_bytes = hdf5_host_bytes,
    .stream = hdf5_stream,
    .rows = hdf5_rows,
    .target = hdf5_target,
    .describe_target = hdf5_describe_target,
    .label = hdf5_label,
    .binary_targets = hdf5_binary_targets,
    .val_is_test = hdf5_val_is_test,
    .class_names = hdf5_class_names,
    .unused = hdf5_unused,
};
