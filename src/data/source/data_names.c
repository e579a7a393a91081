// Names of classes, where a data set has them: folders of images by their folders, text labels as
// they are, HDF5 files by the attribute class_names, CIFAR and STL-10 by what they are. Labels are
// the order of the names.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_int.h"
#include "data/image/data_folder.h"
#include "data/pack/data_pack.h"

enum { MAX_NAMES_FILE = 1 << 20 };

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for the names of the classes");
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

//---------------------------------- folders ----------------------------------

// A folder of ROOT/BASE that is a class; in ROOT itself it has to have images.
static brim_status is_class(const char *folder, const char *name, bool in_root, bool *out) {
  *out = false;
  if (name[0] == '.') return BRIM_OK;
  char *inner = brim_fs_join(folder, name);
  if (!inner) return no_memory();
  *out = brim_fs_is_dir(inner);
  brim_free(inner);
  return *out && in_root ? brim_folder_has_images(folder, name, out) : BRIM_OK;
}

// Classes in ROOT/BASE ("" = ROOT itself) that are not in the list yet.
static brim_status add_folders(brim_arena *arena, const char *root, const char *base,
                               const char **list, size_t *count, size_t most) {
  char *folder = base[0] ? brim_fs_join(root, base) : brim_strdup(root);
  if (!folder) return no_memory();
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
    if (*count < most && !list[*count]) status = no_memory();
    ++*count;  // past `most`: there are more folders than classes
  }
  brim_fs_list_free(names, found);
  brim_free(folder);
  size_t kept = *count < most ? *count : most;
  if (!status) qsort(list, kept, sizeof *list, by_name);
  return status;
}

// As the source folder numbers them (data_folder.c): by ROOT/train where it is there, else by the
// split's own folder, and by all of them together for `all`.
static brim_status folder_names(brim_arena *arena, const char *root, const char *split,
                                int64_t classes, const char *const **out) {
  const char **list = brim_arena_calloc(arena, (size_t)classes + 1, sizeof *list);
  if (!list) return no_memory();
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

// One name a line.
static brim_status file_names(brim_arena *arena, const char *path, int64_t classes,
                              const char *const **out) {
  char *text = NULL;
  size_t size = 0, count = 0;
  if (!brim_fs_exists(path) || brim_fs_read(path, MAX_NAMES_FILE, &text, &size)) {
    brim_status_clear();
    return BRIM_OK;
  }
  const char **list = brim_arena_calloc(arena, (size_t)classes + 1, sizeof *list);
  brim_status status = list ? BRIM_OK : no_memory();
  char *rest = NULL;
  for (char *line = strtok_r(text, "\r\n", &rest); line && !status;
       line = strtok_r(NULL, "\r\n", &rest)) {
    if (count < (size_t)classes) list[count] = brim_arena_strdup(arena, line);
    if (count < (size_t)classes && !list[count]) status = no_memory();
    count++;
  }
  if (!status && count == (size_t)classes) *out = list;
  brim_free(text);
  return status;
}

// CIFAR-100's names lie beside its files, or in the folder its archive unpacks to.
static brim_status cifar100_names(brim_arena *arena, const char *path, int64_t classes,
                                  const char *const **out) {
  static const char *const places[] = {"fine_label_names.txt",
                                       "cifar-100-binary/fine_label_names.txt"};
  for (size_t i = 0; i < 2 && !*out; i++) {
    char *file = brim_fs_join(path, places[i]);
    if (!file) return no_memory();
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
    if (!file) return no_memory();
    brim_status status = brim_fs_exists(file)
                             ? brim_pack_class_names(arena, file, split, classes, outside, out)
                             : BRIM_OK;
    brim_free(file);
    if (status) return status;
  }
  return BRIM_OK;
}

//---------------------------------- all of them ----------------------------------

// Bytes that are no UTF-8 as \xNN: files and screens take nothing else. The same bytes always give
// the same name, so that the names of two sets can be compared.
static const char *as_text(brim_arena *arena, const char *name) {
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

static brim_status make_text(brim_arena *arena, int64_t classes, const char *const **names) {
  bool good = true;
  for (int64_t i = 0; *names && i < classes; i++) {
    good = good && brim_utf8_valid((*names)[i], strlen((*names)[i]));
  }
  if (!*names || good) return BRIM_OK;
  const char **list = brim_arena_calloc(arena, (size_t)classes + 1, sizeof *list);
  for (int64_t i = 0; list && i < classes; i++) {
    list[i] = as_text(arena, (*names)[i]);
    if (!list[i]) return no_memory();
  }
  if (!list) return no_memory();
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
  const char *const *own = source->class_names ? source->class_names(source->state) : NULL;
  if (own) {
    const char **list = brim_arena_calloc(arena, (size_t)classes + 1, sizeof *list);
    if (!list) return no_memory();
    for (int64_t i = 0; i < classes; i++) {
      list[i] = as_text(arena, own[i]);
      if (!list[i]) return no_memory();
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
  return make_text(arena, classes, names);
}
