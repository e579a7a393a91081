// What a folder of images holds besides its samples: which folders are splits, and which files no
// split reads. Looks at names only; called when a folder is opened, and by `info` and `init`.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/base.h"
#include "data/data_folder.h"
#include "data/data_image.h"
#include "data/data_pack_int.h"
#include "data/data_unused.h"

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "folder: out of memory"); }

//---------------------------------- splits ----------------------------------

// Names of a split's folder, in any case. Those that are not `plain` are also words for classes, so
// that more is asked of them (counts_as_split).
static const struct split_name {
  const char *split, *name;
  bool plain;
} split_names[BRIM_FOLDER_SPLITS] = {
    {"train", "train", true}, {"train", "training", false}, {"val", "val", true},
    {"val", "valid", true},   {"val", "validation", true},  {"val", "dev", false},
    {"test", "test", true},   {"test", "testing", false},   {"unlabeled", "unlabeled", true},
};

static bool is_split(const char *name) {
  for (size_t i = 0; i < BRIM_FOLDER_SPLITS; i++) {
    if (strcasecmp(split_names[i].name, name) == 0) return true;
  }
  return false;
}

// Whether a folder in `root` that `wanted` lets pass has images in it or below it.
static brim_status any_folder(const char *root, bool splits_too, bool *out) {
  char **names;
  size_t count;
  *out = false;
  BRIM_TRY(brim_fs_list(root, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status && !*out; i++) {
    if (names[i][0] == '.' || (!splits_too && is_split(names[i]))) continue;
    char *path = brim_fs_join(root, names[i]);
    bool folder = path && brim_fs_is_dir(path);
    if (!path) status = no_memory();
    brim_free(path);
    if (!folder) continue;
    status = brim_folder_has_images(root, names[i], out);
    if (status != BRIM_ENOMEM) status = BRIM_OK;  // opening it says what is wrong
  }
  brim_fs_list_free(names, count);
  return status;
}

static brim_status has_direct(const char *folder, bool *out) {
  char **names;
  size_t count;
  *out = false;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; i < count && !*out; i++) *out = brim_image_is_name(names[i]);
  brim_fs_list_free(names, count);
  return BRIM_OK;
}

// Whether ROOT/FOLDER, called train or so, is a class.
static brim_status train_is_class(const char *root, const char *folder, bool *out) {
  *out = false;
  char *train = brim_fs_join(root, folder);
  if (!train) return no_memory();
  bool direct = false, below = false;
  brim_status status = has_direct(train, &direct);
  if (!status && direct) status = any_folder(train, true, &below);
  brim_free(train);
  if (status == BRIM_ENOMEM) return status;
  brim_status_clear();  // one that may not be read is named when it is opened
  return direct && !below ? any_folder(root, false, out) : BRIM_OK;
}

// The spelling in `names` of a split's folder: the exact one before another case. NULL = none.
static brim_status spelled(char *const *names, size_t count, const char *root, const char *name,
                           const char **out) {
  *out = NULL;
  for (int exact = 1; exact >= 0 && !*out; exact--) {
    for (size_t i = 0; i < count && !*out; i++) {
      if (exact ? strcmp(names[i], name) != 0 : strcasecmp(names[i], name) != 0) continue;
      char *path = brim_fs_join(root, names[i]);
      if (!path) return no_memory();
      if (brim_fs_is_dir(path)) *out = names[i];
      brim_free(path);
    }
  }
  return BRIM_OK;
}

// A name in lower case that is no word for a class is a split. Others are where they hold class
// folders, or where ROOT has no images in folders of other names.
static brim_status counts_as_split(const char *root, const struct split_name *s, const char *folder,
                                   bool *out) {
  bool others;
  *out = s->plain && strcmp(folder, s->name) == 0;
  if (*out) return BRIM_OK;
  BRIM_TRY(any_folder(root, false, &others));
  *out = !others;
  if (*out) return BRIM_OK;
  char *path = brim_fs_join(root, folder);
  if (!path) return no_memory();
  brim_status status = any_folder(path, true, out);
  brim_free(path);
  if (status == BRIM_ENOMEM) return status;
  brim_status_clear();
  return BRIM_OK;
}

brim_status brim_folder_find_splits(const char *root, brim_folder_splits *out) {
  char **names;
  size_t count;
  bool no_splits = false;
  out->count = 0;
  BRIM_TRY(brim_fs_list(root, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < BRIM_FOLDER_SPLITS && !status && !no_splits; i++) {
    const struct split_name *s = &split_names[i];
    const char *folder;
    bool counts = false;
    status = spelled(names, count, root, s->name, &folder);
    if (!status && folder) status = counts_as_split(root, s, folder, &counts);
    if (status || !counts) continue;
    if (strcmp(s->split, "train") == 0) status = train_is_class(root, folder, &no_splits);
    out->found[out->count].split = s->split;
    snprintf(out->found[out->count++].folder, BRIM_FOLDER_SPLIT_ROOM, "%s", folder);
  }
  if (no_splits) out->count = 0;
  brim_fs_list_free(names, count);
  return status;
}

const char *brim_folder_split_of(const brim_folder_splits *splits, const char *split) {
  for (size_t i = 0; i < splits->count; i++) {
    if (strcmp(splits->found[i].split, split) == 0) return splits->found[i].folder;
  }
  return strcmp(split, "val") == 0 ? brim_folder_split_of(splits, "test") : NULL;
}

//---------------------------------- files that are not read ----------------------------------

typedef struct hunt {
  const char *root;
  const brim_folder_list *lists[BRIM_UNUSED_SOURCES];
  size_t list_count;
  const char **read_dirs;  // sorted
  size_t read_count;
  int hidden;  // folders above whose names begin with a dot: nothing in them is named
  brim_unused *out;
} hunt;

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static brim_status gather_dirs(hunt *h) {
  size_t n = 0;
  for (size_t i = 0; i < h->list_count; i++) n += h->lists[i]->dir_count;
  h->read_dirs = brim_calloc(n + 1, sizeof *h->read_dirs);
  if (!h->read_dirs) return no_memory();
  for (size_t i = 0; i < h->list_count; i++) {
    const brim_folder_list *l = h->lists[i];
    for (size_t d = 0; d < l->dir_count; d++) {
      h->read_dirs[h->read_count++] = l->text + l->dirs[d].name;
    }
  }
  qsort(h->read_dirs, h->read_count, sizeof *h->read_dirs, by_text);
  return BRIM_OK;
}

// `inner` is the path from the root on, "" for the root. Links to folders are not followed: what lies
// behind one is not counted, so that a loop of links ends.
static brim_status hunt_in(hunt *h, const char *inner) {
  char **names;
  size_t count;
  char *folder = inner[0] ? brim_fs_join(h->root, inner) : brim_strdup(h->root);
  if (!folder) return no_memory();
  brim_status status = brim_fs_list(folder, &names, &count);
  if (status) {  // one that may not be read
    brim_free(folder);
    return status == BRIM_ENOMEM ? status : BRIM_OK;
  }
  bool read = bsearch(&inner, h->read_dirs, h->read_count, sizeof *h->read_dirs, by_text) != NULL;
  for (size_t i = 0; i < count && !status; i++) {
    bool hidden = names[i][0] == '.';
    char *path = inner[0] ? brim_fs_join(inner, names[i]) : brim_strdup(names[i]);
    char *full = brim_fs_join(folder, names[i]);
    struct stat st;
    if (!path || !full) {
      status = no_memory();
    } else if (lstat(full, &st) == 0) {
      bool used = read && brim_image_is_name(names[i]);
      if (S_ISDIR(st.st_mode)) {
        h->hidden += hidden;
        status = hunt_in(h, path);
        h->hidden -= hidden;
      } else if ((hidden || !used) &&
                 (S_ISREG(st.st_mode) || (S_ISLNK(st.st_mode) && !brim_fs_is_dir(full)))) {
        if (!hidden && !h->hidden) brim_unused_add(h->out, path);
        // as brim_data_disk_bytes counts: a link by what it leads to
        bool mark = strcmp(names[i], BRIM_PACK_MARK) == 0;
        if (!mark && stat(full, &st) == 0 && S_ISREG(st.st_mode)) {
          h->out->files++;
          h->out->bytes += (uint64_t)st.st_size;
        }
      }
    }
    brim_free(path);
    brim_free(full);
  }
  brim_fs_list_free(names, count);
  brim_free(folder);
  return status;
}

brim_status brim_folder_unused(void *const *states, size_t count, brim_unused *out) {
  hunt h = {.out = out};
  for (size_t i = 0; i < count && i < BRIM_UNUSED_SOURCES; i++) {
    const brim_folder_list *list = brim_source_folder_files(states[i], &h.root);
    if (list->dir_count == 1 && list->count == 1 && !list->classes) return BRIM_OK;  // one image
    h.lists[h.list_count++] = list;
  }
  brim_status status = gather_dirs(&h);
  if (!status) status = hunt_in(&h, "");
  brim_free(h.read_dirs);
  return status;
}
