// Classes: decides whether whole numbers are classes or values to predict, numbers the classes of text
// labels in byte order, and finds the names of classes (folders of images, text labels, HDF5's
// class_names, CIFAR, STL-10).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_text.h"
#include "data/data_int.h"
#include "data/image/data_image.h"
#include "data/pack/data_pack.h"

//---------------------------------- labels that are numbers ----------------------------------

void brim_data_warn_absent(const char *path, int64_t (*label)(const void *ctx, uint64_t i),
                           const void *ctx, uint64_t rows, int64_t classes) {
  if (classes < 2) return;
  unsigned char *seen = (unsigned char *)brim_calloc((size_t)classes, 1);
  if (!seen) return;  // only a warning is lost
  int64_t absent = classes;
  for (uint64_t i = 0; i < rows; i++) {
    unsigned char *at = &seen[label(ctx, i)];
    absent -= *at == 0;
    *at = 1;
  }
  brim_free(seen);
  // With fewer rows than classes, some classes must be absent. Then warn only if at most half as many classes
  // occur as there are rows, since correct labels would seldom repeat so often.
  bool few = rows < (uint64_t)classes && (uint64_t)(classes - absent) > rows / 2;
  if (absent <= classes / 2 || few) return;
  brim_log_warn("data",
                "%s: the labels go up to %lld, so there are %lld classes, but %lld of them never "
                "occur; is a label wrong? Number the classes from 0 without gaps, or set classes=N",
                path, (long long)classes - 1, (long long)classes, (long long)absent);
}

brim_status brim_data_are_values(const char *path, const brim_data_whole *whole, bool *out) {
  // FEW: a column that does not start at 0 or 1 and has more different values than this is no subset of a set
  // of classes. SMALL: numbers that are all below this may be class numbers, even if they lie far apart.
  enum { FEW = 20, SMALL = 100, MOST = 1 << 24 };
  *out = whole->rows > 0 && whole->least < -1;
  if (*out || whole->rows == 0 || whole->least < 0) return BRIM_OK;
  uint8_t *seen = brim_calloc(MOST / 8, 1);  // values from MOST on do not count as different
  if (!seen) return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
  int64_t different = 0;
  for (uint64_t i = 0; i < whole->rows; i++) {
    int64_t v = whole->value(whole->ctx, i);
    if (v >= MOST || seen[v / 8] & 1 << v % 8) continue;
    seen[v / 8] = (uint8_t)(seen[v / 8] | 1 << v % 8);
    different++;
  }
  brim_free(seen);
  *out = whole->least > 1 && different > FEW;
  if (*out || whole->most < SMALL || (whole->least <= 1 && different <= FEW)) return BRIM_OK;
  // Values from here on lie far above the number of different values: twice it, or four times it if the
  // values start at 0 or 1.
  int64_t far = (whole->least > 1 ? 2 : 4) * different;
  uint64_t beyond = 0;
  for (uint64_t i = 0; i < whole->rows; i++) beyond += whole->value(whole->ctx, i) >= far;
  *out = beyond > whole->rows / 2;
  return BRIM_OK;
}

//---------------------------------- labels that are text ----------------------------------

// Names are bounded in number and length, so that a column of ids or of free text is refused before it
// fills the memory.
enum { MOST_CLASSES = 1 << 16, FEW = 10 };  // FEW: least limit, unless the user sets it

static brim_status fail_memory(const char *what) {
  return brim_fail(BRIM_ENOMEM, "%s: out of memory", what);
}

void brim_data_classes_init(brim_data_classes *c, uint64_t rows, int64_t given) {
  *c = (brim_data_classes){.rows = rows, .most = rows / 2 < MOST_CLASSES ? rows / 2 : MOST_CLASSES};
  if (c->most < FEW) c->most = FEW;
  c->given = given > 0;
  if (given > 0) c->most = (uint64_t)given;
}

void brim_data_classes_deinit(brim_data_classes *c) {
  brim_arena_destroy(c->arena);
  brim_free(c->names);
  brim_free(c->numbers);
  *c = (brim_data_classes){0};
}

// The index of a name in the sorted list, or the index where it belongs.
static size_t place_of(const brim_data_classes *c, const char *text, size_t n, bool *found) {
  size_t low = 0, high = c->count;
  *found = false;
  while (low < high) {
    size_t middle = low + (high - low) / 2, own = strlen(c->names[middle]);
    int order = memcmp(c->names[middle], text, own < n ? own : n);
    if (order == 0 && own == n) {
      *found = true;
      return middle;
    }
    if (order < 0 || (order == 0 && own < n)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static brim_status insert(brim_data_classes *c, const char *what, size_t at, const char *text,
                          size_t n) {
  if (c->count == c->most && c->given) {
    return brim_fail(BRIM_EINVAL, "%s holds more than %" PRIu64 " classes, but classes=%" PRIu64,
                     what, c->most, c->most);
  }
  if (c->count == c->most) {
    return brim_fail(BRIM_EINVAL,
                     "%s holds more than %" PRIu64 " different texts in %" PRIu64
                     " rows; brim reads text as names of classes, not as ids or free text; name "
                     "the labels with targets=NAME, or use targets=none",
                     what, c->most, c->rows);
  }
  if (c->count == c->room) {
    size_t room = c->room ? 2 * c->room : 64;
    const char **names = brim_realloc(c->names, room * sizeof *names);
    if (names) c->names = names;
    int32_t *numbers = names ? brim_realloc(c->numbers, room * sizeof *numbers) : NULL;
    if (!numbers) return fail_memory(what);
    c->numbers = numbers;
    c->room = room;
  }
  if (!c->arena) BRIM_TRY(brim_arena_create(0, &c->arena));
  const char *name = brim_arena_strndup(c->arena, text, n);
  if (!name) return fail_memory(what);
  memmove(c->names + at + 1, c->names + at, (c->count - at) * sizeof *c->names);
  memmove(c->numbers + at + 1, c->numbers + at, (c->count - at) * sizeof *c->numbers);
  c->names[at] = name;
  c->numbers[at] = (int32_t)c->count++;
  return BRIM_OK;
}

brim_status brim_data_classes_label(brim_data_classes *c, const char *what, uint64_t row,
                                    const char *text, size_t n, int32_t *out) {
  const char *end = memchr(text, 0, n);
  if (end) n = (size_t)(end - text);
  size_t blank = 0;
  while (blank < n && strchr(" \t\r\n", text[blank])) blank++;
  if (blank == n) {
    return brim_fail(BRIM_EPARSE,
                     "%s[%" PRIu64
                     "] is empty; every sample needs the name of its class; remove the samples "
                     "without one, or use targets=none",
                     what, row);
  }
  if (n > BRIM_DATA_CLASS_BYTES) return brim_data_classes_fail_long(what);
  bool found;
  size_t at = place_of(c, text, n, &found);
  if (!found && c->fixed) {
    char plain[BRIM_DATA_CLASS_BYTES + 1], shown[4 * BRIM_DATA_CLASS_BYTES + 1];
    memcpy(plain, text, n);
    plain[n] = '\0';
    brim_text_plain(plain, shown, sizeof shown);
    return brim_fail(BRIM_EPARSE,
                     "%s[%" PRIu64
                     "] is '%s', a class that the training data does not have; the training data "
                     "defines the class numbers",
                     what, row, shown);
  }
  if (!found) BRIM_TRY(insert(c, what, at, text, n));
  *out = c->numbers[at];
  return BRIM_OK;
}

brim_status brim_data_classes_fail_long(const char *what) {
  return brim_fail(BRIM_EINVAL,
                   "%s holds text of more than %d bytes; brim reads text as names of classes, not "
                   "as free text; name the labels with targets=NAME, or use targets=none",
                   what, BRIM_DATA_CLASS_BYTES);
}

brim_status brim_data_classes_fix(brim_data_classes *c, const char *what, int64_t given,
                                  int32_t *labels) {
  if (given > 0 && (uint64_t)given != c->count) {
    return brim_fail(BRIM_EINVAL, "%s names %zu classes, but classes=%lld", what, c->count,
                     (long long)given);
  }
  c->fixed = true;
  int32_t *place = brim_alloc((c->count + 1) * sizeof *place);
  if (!place) return fail_memory(what);
  for (size_t i = 0; i < c->count; i++) {
    place[c->numbers[i]] = (int32_t)i;
    c->numbers[i] = (int32_t)i;
  }
  for (uint64_t i = 0; labels && i < c->rows; i++) labels[i] = place[labels[i]];
  brim_free(place);
  return BRIM_OK;
}

//---------------------------------- names of classes ----------------------------------

enum { MAX_NAMES_FILE = 1 << 20 };

static brim_status names_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for the names of the classes");
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

//---------------------------------- folders ----------------------------------

// Sets *out if FOLDER/NAME is the folder of a class: a folder that is not hidden. If FOLDER is ROOT itself
// (in_root), it must also hold images.
static brim_status is_class(const char *folder, const char *name, bool in_root, bool *out) {
  *out = false;
  if (name[0] == '.') return BRIM_OK;
  char *inner = brim_fs_join(folder, name);
  if (!inner) return names_memory();
  *out = brim_fs_is_dir(inner);
  brim_free(inner);
  return *out && in_root ? brim_folder_has_images(folder, name, out) : BRIM_OK;
}

// Adds the classes of ROOT/BASE ("" = ROOT itself) that are not in the list yet.
static brim_status add_folders(brim_arena *arena, const char *root, const char *base,
                               const char **list, size_t *count, size_t most) {
  char *folder = base[0] ? brim_fs_join(root, base) : brim_strdup(root);
  if (!folder) return names_memory();
  char **names = NULL;
  size_t found = 0, before = *count;
  brim_status status = brim_fs_list(folder, &names, &found);
  for (size_t i = 0; i < found && !status; i++) {
    bool counts;
    status = is_class(folder, names[i], !base[0], &counts);
    if (status || !counts) continue;
    const char *key = names[i];
    if (before && bsearch(&key, list, before, sizeof *list, by_name)) continue;
    if (*count < most) list[*count] = brim_arena_strdup(arena, key);
    if (*count < most && !list[*count]) status = names_memory();
    ++*count;  // counts on past `most`, so that folder_names sees a mismatch
  }
  brim_fs_list_free(names, found);
  brim_free(folder);
  size_t kept = *count < most ? *count : most;
  if (!status) qsort(list, kept, sizeof *list, by_name);
  return status;
}

// Lists the class names as the source `folder` numbers them: those of ROOT/train if it exists, else of
// the split's own folder; for the split `all` those of all splits.
static brim_status folder_names(brim_arena *arena, const char *root, const char *split,
                                int64_t classes, const char *const **out) {
  const char **list = brim_arena_calloc(arena, (size_t)classes + 1, sizeof *list);
  if (!list) return names_memory();
  size_t count = 0, most = (size_t)classes;
  brim_folder_splits splits;
  BRIM_TRY(brim_folder_find_splits(root, &splits));
  if (strcmp(split, "all") != 0) {
    const char *base = brim_folder_split_of(&splits, "train");
    if (!base) base = brim_folder_split_of(&splits, split);
    BRIM_TRY(add_folders(arena, root, base ? base : "", list, &count, most));
  } else {
    size_t bases = 0;
    for (size_t i = 0; i < splits.count; i++) {
      if (strcmp(splits.found[i].split, "unlabeled") == 0) continue;
      BRIM_TRY(add_folders(arena, root, splits.found[i].folder, list, &count, most));
      bases++;
    }
    if (bases == 0) BRIM_TRY(add_folders(arena, root, "", list, &count, most));
  }
  if (count == (size_t)classes) *out = list;
  return BRIM_OK;
}

//---------------------------------- lists ----------------------------------

static const char *const cifar10_names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                            "dog",      "frog",       "horse", "ship", "truck"};
static const char *const stl10_names[] = {"airplane", "bird",  "car",    "cat",  "deer",
                                          "dog",      "horse", "monkey", "ship", "truck"};

// Reads names from a file with one name a line. *out is set only if their number is right.
static brim_status file_names(brim_arena *arena, const char *path, int64_t classes,
                              const char *const **out) {
  char *text = NULL;
  size_t size = 0, count = 0;
  if (!brim_fs_exists(path) || brim_fs_read(path, MAX_NAMES_FILE, &text, &size)) {
    brim_status_clear();
    return BRIM_OK;
  }
  const char **list = brim_arena_calloc(arena, (size_t)classes + 1, sizeof *list);
  brim_status status = list ? BRIM_OK : names_memory();
  char *rest = NULL;
  for (char *line = strtok_r(text, "\r\n", &rest); line && !status;
       line = strtok_r(NULL, "\r\n", &rest)) {
    if (count < (size_t)classes) list[count] = brim_arena_strdup(arena, line);
    if (count < (size_t)classes && !list[count]) status = names_memory();
    count++;
  }
  if (!status && count == (size_t)classes) *out = list;
  brim_free(text);
  return status;
}

// Reads the names of CIFAR-100: they lie beside its files, or in the folder that its archive unpacks to.
static brim_status cifar100_names(brim_arena *arena, const char *path, int64_t classes,
                                  const char *const **out) {
  static const char *const places[] = {"fine_label_names.txt",
                                       "cifar-100-binary/fine_label_names.txt"};
  for (size_t i = 0; i < 2 && !*out; i++) {
    char *file = brim_fs_join(path, places[i]);
    if (!file) return names_memory();
    brim_status status = file_names(arena, file, classes, out);
    brim_free(file);
    if (status) return status;
  }
  return BRIM_OK;
}

static brim_status hdf5_names(brim_arena *arena, const char *path, const char *split,
                              int64_t classes, bool outside, const char *const **out) {
  if (!brim_fs_is_dir(path))
    return brim_pack_class_names(arena, path, split, classes, outside, out);
  static const char *const files[] = {"train.h5", "train.hdf5"};
  for (size_t i = 0; i < 2 && !*out; i++) {
    char *file = brim_fs_join(path, files[i]);
    if (!file) return names_memory();
    brim_status status = brim_fs_exists(file)
                             ? brim_pack_class_names(arena, file, split, classes, outside, out)
                             : BRIM_OK;
    brim_free(file);
    if (status) return status;
  }
  return BRIM_OK;
}

//---------------------------------- every source ----------------------------------

// Writes bytes that are not UTF-8 as \xNN, since files and screens take only UTF-8. Equal bytes give
// equal text, so the names of two sets can be compared.
static const char *escape_invalid_utf8(brim_arena *arena, const char *name) {
  brim_str text;
  brim_str_init(&text);
  for (const char *p = name; *p;) {
    size_t n = 1;
    unsigned char lead = (unsigned char)*p;
    if (lead >= 0x80) n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (strnlen(p, n) == n && brim_utf8_valid(p, n)) {
      brim_str_append_n(&text, p, n);
      p += n;
    } else {
      brim_str_printf(&text, "\\x%02X", lead);
      p++;
    }
  }
  const char *copy = brim_str_status(&text) ? NULL : brim_arena_strdup(arena, text.data);
  brim_str_deinit(&text);
  return copy;
}

static brim_status escape_all_names(brim_arena *arena, int64_t classes, const char *const **names) {
  bool good = true;
  for (int64_t i = 0; *names && i < classes; i++) {
    good = good && brim_utf8_valid((*names)[i], strlen((*names)[i]));
  }
  if (!*names || good) return BRIM_OK;
  const char **list = brim_arena_calloc(arena, (size_t)classes + 1, sizeof *list);
  for (int64_t i = 0; list && i < classes; i++) {
    list[i] = escape_invalid_utf8(arena, (*names)[i]);
    if (!list[i]) return names_memory();
  }
  if (!list) return names_memory();
  *names = list;
  return BRIM_OK;
}

static brim_status read_names(brim_arena *arena, const char *kind, const char *path,
                              const char *split, int64_t classes, const char *const **names) {
  if (strcmp(kind, "folder") == 0) return folder_names(arena, path, split, classes, names);
  if (strcmp(kind, "cifar100") == 0) return cifar100_names(arena, path, classes, names);
  return BRIM_OK;
}

brim_status brim_source_class_names(brim_arena *arena, const brim_source *source,
                                    const brim_component *component, const char *path,
                                    const char *split, const char *const **names) {
  const char *kind = source->table->name;
  int64_t classes = source->info.classes;
  *names = NULL;
  if (classes <= 0) return BRIM_OK;
  if (component) path = brim_component_string(component, "path", path);
  if (strcmp(kind, "cifar10") == 0 && classes == 10) *names = cifar10_names;
  if (strcmp(kind, "stl10") == 0 && classes == 10) *names = stl10_names;
  const char *const *own = brim_source_text_classes(source);
  if (own) {
    const char **list = brim_arena_calloc(arena, (size_t)classes + 1, sizeof *list);
    if (!list) return names_memory();
    for (int64_t i = 0; i < classes; i++) {
      list[i] = escape_invalid_utf8(arena, own[i]);
      if (!list[i]) return names_memory();
    }
    *names = list;
  }
  if (*names || !path) return BRIM_OK;
  const brim_value *outside = component ? brim_component_arg(component, "allow_external") : NULL;
  bool allowed = outside && outside->kind == BRIM_VALUE_BOOL && outside->boolean;
  if (strcmp(kind, "hdf5") == 0) {
    BRIM_TRY(hdf5_names(arena, path, split, classes, allowed, names));
  } else {
    BRIM_TRY(read_names(arena, kind, path, split, classes, names));
  }
  return escape_all_names(arena, classes, names);
}
