// Which datasets are the inputs and the targets: given by name, or found by the names people use,
// by rank and by length; splits by group or by name; and the file of a folder that is meant. Pure
// functions of the list of datasets otherwise.
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "data/hdf5/data_hdf5.h"

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
  int split;  // that all of them belong to; BRIM_HDF5_NO_SPLIT: none
  bool all;   // whatever their split
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

// Finds a split's name at the start or the end of the last part: x_train, train_x, or train itself.
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

//---------------------------------- what the file has ----------------------------------

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

// Fails with `what`, a whole message, followed by what the file has.
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

// Refuses to guess while a dataset of this split cannot be opened: it may be the one. Damaged
// datasets of other splits do not matter here.
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

// Takes the datasets of one split, with the split's name removed from theirs.
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

// Adds text datasets, which may be labels of the numbers taken; text makes no split and no inputs.
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
  // Without a val split the test set is evaluated, as everywhere.
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

static brim_status gather(candidates *c, const char *split, bool whole) {
  BRIM_TRY(take_numbers(c, split, whole));
  return take_text(c);
}

//---------------------------------- by name ----------------------------------

// A config names the training datasets. For another split such a name means its counterpart there;
// any other name is taken literally.
static void to_split(const candidates *c, const char **name, char plain[MAX_PLAIN]) {
  int own = brim_hdf5_split_of(*name, plain, MAX_PLAIN);
  if (c->split >= 0 && own == BRIM_HDF5_TRAIN && own != c->split) *name = plain;
}

static brim_status by_name(const candidates *c, const char *name, bool targets,
                           const brim_hdf5_entry **out) {
  const brim_hdf5_file *f = c->file;
  const brim_hdf5_entry *loose = NULL;
  char plain[MAX_PLAIN];
  while (*name == '/') name++;
  to_split(c, &name, plain);
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

static brim_status all_by_name(const candidates *c, const json_t *names, bool targets,
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
    BRIM_TRY(by_name(c, json_string_value(item), targets, &out[*count]));
    ++*count;
  }
  return BRIM_OK;
}

//---------------------------------- found ----------------------------------

static bool is_named(const char *plain, const char *const *names) {
  for (; *names; names++) {
    if (strcasecmp(last_part(plain), *names) == 0) return true;
  }
  return false;
}

// The first name of the list that a dataset has; the shortest path where several have it.
static const brim_hdf5_entry *named(const candidates *c, const char *const *names, bool text) {
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
  const brim_hdf5_entry *best = named(c, brim_hdf5_input_names, false);
  size_t same = 1;
  for (size_t i = 0; i < c->count && !named(c, brim_hdf5_input_names, false); i++) {
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

// A dataset of the targets' names that cannot be any, beside the input, is not "no targets".
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
  const brim_hdf5_entry *best = named(c, brim_hdf5_target_names, false);
  size_t found = 0;
  for (size_t i = 0; i < chosen->input_count; i++) {
    if (best == chosen->inputs[i]) best = NULL;
  }
  if (!best) best = named(c, brim_hdf5_target_names, true);
  // the names of the classes are not the label of each sample
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
  if (found == 0) return refuse_other(c, chosen);  // else data without targets
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

static brim_status choose(const candidates *c, const json_t *inputs, const json_t *targets,
                          brim_hdf5_choice *out) {
  if (inputs) {
    BRIM_TRY(all_by_name(c, inputs, false, out->inputs, &out->input_count));
    if (!out->input_count) return brim_fail(BRIM_EINVAL, "hdf5: inputs names no dataset");
  } else {
    BRIM_TRY(find_input(c, &out->inputs[0]));
    out->input_count = 1;
  }
  const json_t *only = json_array_size(targets) == 1 ? json_array_get(targets, 0) : targets;
  const char *text = json_is_string(only) ? json_string_value(only) : "";
  if (targets && strcmp(text, "none") != 0) {
    BRIM_TRY(all_by_name(c, targets, true, out->targets, &out->target_count));
  } else if (!targets) {
    BRIM_TRY(find_target(c, out, &out->targets[0]));
    out->target_count = out->targets[0] ? 1 : 0;
  }
  return check_lengths(c->file, out);
}

brim_status brim_hdf5_find(const brim_hdf5_file *file, const char *split, bool whole,
                           const json_t *inputs, const json_t *targets, brim_hdf5_choice *out) {
  candidates c = {.file = file};
  *out = (brim_hdf5_choice){0};
  brim_status status = inputs && targets ? BRIM_OK : refuse_damaged(file, split, whole);
  if (!status) status = gather(&c, split, whole);
  if (!status) status = choose(&c, inputs, targets, out);
  if (status == BRIM_ENOENT && refuse_damaged(file, split, whole)) status = BRIM_EPARSE;
  free_candidates(&c);
  return status;
}

//---------------------------------- files ----------------------------------

bool brim_hdf5_is_name(const char *name) {
  return brim_str_ends(name, ".h5") || brim_str_ends(name, ".hdf5") || brim_str_ends(name, ".hdf");
}

brim_status brim_hdf5_split_file(const char *folder, const char *split, char **out) {
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

brim_status brim_hdf5_find_file(const char *path, const char *split, char **out, bool *whole) {
  *whole = false;
  *out = NULL;
  if (!brim_fs_is_dir(path)) {
    *out = brim_strdup(path);
    return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "hdf5: out of memory");
  }
  BRIM_TRY(brim_hdf5_split_file(path, split, out));
  // Without a val.h5 the test set is evaluated, as everywhere.
  if (!*out && strcmp(split, "val") == 0) BRIM_TRY(brim_hdf5_split_file(path, "test", out));
  *whole = *out != NULL;
  if (!*out) BRIM_TRY(only_file(path, out));
  if (*out) return BRIM_OK;
  return brim_fail(BRIM_ENOENT, "%s: no %s.h5, no %s.hdf5 and no single HDF5 file found", path,
                   split, split);
}
