// The source `folder`: ROOT/CLASS/*.jpg, *.png, ... (brim_image_is_name, any case, also in folders
// below the class). Classes are the folders' names in byte order, numbered from 0; the files of a
// class are in byte order too. The folders of ROOT/train number the classes of val and test; a class
// that only val or test has is refused. A folder without images keeps its number, with a warning.
// Images right in ROOT, with none in folders, are samples without a target. Links are followed, names
// that begin with a dot are skipped.
//
// Splits, in any case: ROOT/train (training), ROOT/val (valid, validation, dev; else test), ROOT/test
// (testing), ROOT/unlabeled; `all` is the first three together. A ROOT without such folders is
// `train` and `all`. A ROOT whose `train` directly holds images, next to other folders of images, is
// `train` and `all` too: there `train` is a class.
//
// Opening walks the folders once, without a stat for each file, and reads every image's header:
// images of one size are read at that size, else info.varies. An unreadable file is an error of that
// sample, not of the source. A path that is one image (photo.jpg) is a set of one sample without a
// target, whatever the split.
//
// Arguments: path=P (over data.path), split, limit=N (the first N files), color=rgb|gray, strict
// (false accepts JPEG files with stray bytes and PNG files with more data than pixels).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "base/base_log.h"
#include "base/base_status.h"
#include "data/data_int.h"
#include "data/image/data_image.h"
#include "data/pack/data_pack_int.h"

//---------------------------------- folders visited ----------------------------------

// The slot for an inode; 0 marks a free slot, since no inode is 0.
static size_t place_of(const brim_folder_seen *seen, uint64_t dev, uint64_t ino) {
  uint64_t h = (ino ^ dev << 32 ^ dev >> 32) * 0x9e3779b97f4a7c15u;
  size_t at = (size_t)(h >> 20) & (seen->room - 1);
  while (seen->slots[at].ino && (seen->slots[at].ino != ino || seen->slots[at].dev != dev)) {
    at = (at + 1) & (seen->room - 1);
  }
  return at;
}

static brim_status grow_seen(brim_folder_seen *seen) {
  brim_folder_seen larger = {.room = seen->room ? 2 * seen->room : 64, .count = seen->count};
  larger.slots = brim_calloc(larger.room, sizeof *larger.slots);
  if (!larger.slots) {
    return brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
  }
  for (size_t i = 0; i < seen->room; i++) {
    if (!seen->slots[i].ino) continue;
    larger.slots[place_of(&larger, seen->slots[i].dev, seen->slots[i].ino)] = seen->slots[i];
  }
  brim_free(seen->slots);
  *seen = larger;
  return BRIM_OK;
}

brim_status brim_folder_seen_add(brim_folder_seen *seen, uint64_t dev, uint64_t ino,
                                 bool *seen_before) {
  *seen_before = false;
  if (ino == 0) return BRIM_OK;
  if (2 * (seen->count + 1) > seen->room) BRIM_TRY(grow_seen(seen));
  size_t at = place_of(seen, dev, ino);
  *seen_before = seen->slots[at].ino != 0;
  if (*seen_before) return BRIM_OK;
  seen->slots[at].dev = dev;
  seen->slots[at].ino = ino;
  seen->count++;
  return BRIM_OK;
}

static void seen_clear(brim_folder_seen *seen) {
  if (seen->count) memset(seen->slots, 0, seen->room * sizeof *seen->slots);
  seen->count = 0;
}

void brim_folder_seen_deinit(brim_folder_seen *seen) {
  brim_free(seen->slots);
  *seen = (brim_folder_seen){0};
}

//---------------------------------- splits ----------------------------------

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "folder: out of memory"); }

// Names of a split's folder, in any case. A name that is not never_class may also be a class, so it
// must pass counts_as_split.
static const struct split_name {
  const char *split, *name;
  bool never_class;
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

// True if a folder in `root` (also one named like a split, with splits_too) has images in it or
// below it.
static brim_status any_image_folder(const char *root, bool splits_too, bool *out) {
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
    // Opening the source reports a folder that cannot be read.
    if (status != BRIM_ENOMEM) status = BRIM_OK;
  }
  brim_fs_list_free(names, count);
  return status;
}

static brim_status has_direct_images(const char *folder, bool *out) {
  char **names;
  size_t count;
  *out = false;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; i < count && !*out; i++) *out = brim_image_is_name(names[i]);
  brim_fs_list_free(names, count);
  return BRIM_OK;
}

// True if ROOT/FOLDER, called train or similar, is a class.
static brim_status train_is_class(const char *root, const char *folder, bool *out) {
  *out = false;
  char *train = brim_fs_join(root, folder);
  if (!train) return no_memory();
  bool direct = false, below = false;
  brim_status status = has_direct_images(train, &direct);
  if (!status && direct) status = any_image_folder(train, true, &below);
  brim_free(train);
  if (status == BRIM_ENOMEM) return status;
  brim_status_clear();  // opening the source reports a folder that cannot be read
  return direct && !below ? any_image_folder(root, false, out) : BRIM_OK;
}

// The entry of `names` that is the folder `name`, an exact match before another case. NULL = none.
static brim_status find_split_folder(char *const *names, size_t count, const char *root,
                                     const char *name, const char **out) {
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

// A lower-case name that is no word for a class is a split. Any other name is a split if the folder
// holds class folders, or if ROOT has no images in folders of other names.
static brim_status counts_as_split(const char *root, const struct split_name *s, const char *folder,
                                   bool *out) {
  bool others;
  *out = s->never_class && strcmp(folder, s->name) == 0;
  if (*out) return BRIM_OK;
  BRIM_TRY(any_image_folder(root, false, &others));
  *out = !others;
  if (*out) return BRIM_OK;
  char *path = brim_fs_join(root, folder);
  if (!path) return no_memory();
  brim_status status = any_image_folder(path, true, out);
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
    status = find_split_folder(names, count, root, s->name, &folder);
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

//---------------------------------- the list of files ----------------------------------

typedef struct folder_dir {  // a folder with files in it
  uint64_t first;            // its first file
  uint32_t name;             // in text: path from the root, "" for the root itself
  int32_t label;             // -1 = none
} folder_dir;

typedef struct image_size {
  uint16_t height, width;  // 0 = not known: the file is broken
} image_size;

// Files sorted by class, folder and name, in byte order. A base is a folder whose sub-folders are the
// classes: the root, or the folder of a split.
typedef struct folder_list {
  void *block;  // one planned block for all of the below
  size_t bytes;
  folder_dir *dirs;
  image_size *sizes;  // one a file; zero at first
  uint32_t *names;    // one a file: in text, without the folder
  char *text;
  size_t dir_count;
  uint64_t count;
  int64_t classes;  // 0 = the files lie in the bases themselves
} folder_list;

enum { MOST_BASES = 8, MAX_DEPTH = 64, WARNING_PATH_SIZE = 1024 };

//---------------------------------- names ----------------------------------

// Many names in two growing blocks.
typedef struct names {
  char *text;
  uint32_t *at;
  size_t text_used, text_room, count, room;
} name_list;

static void names_free(name_list *n) {
  brim_free(n->text);
  brim_free(n->at);
  *n = (name_list){0};
}

static brim_status grow(void **block, size_t *room, size_t need, size_t item) {
  if (need <= *room) return BRIM_OK;
  size_t more = *room ? *room * 2 : 64;
  if (more < need) more = need;
  void *larger = brim_realloc(*block, more * item);
  if (!larger) return brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
  *block = larger;
  *room = more;
  return BRIM_OK;
}

static brim_status names_add(name_list *n, const char *name) {
  size_t length = strlen(name) + 1;
  if (n->text_used + length > UINT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "folder: the names of the files take more than 4 GiB");
  }
  void *text = n->text, *at = n->at;
  brim_status status = grow(&text, &n->text_room, n->text_used + length, 1);
  n->text = text;
  if (!status) status = grow(&at, &n->room, n->count + 1, sizeof *n->at);
  n->at = at;
  if (status) return status;
  memcpy(n->text + n->text_used, name, length);
  n->at[n->count++] = (uint32_t)n->text_used;
  n->text_used += length;
  return BRIM_OK;
}

static const char *names_get(const name_list *n, size_t i) { return n->text + n->at[i]; }

static int compare_names(const void *a, const void *b, void *text) {
  const char *base = text;
  return strcmp(base + *(const uint32_t *)a, base + *(const uint32_t *)b);
}

static void names_sort(name_list *n, size_t from) {
  if (n->count - from < 2) return;
  qsort_r(n->at + from, n->count - from, sizeof *n->at, compare_names, n->text);
}

//---------------------------------- walking ----------------------------------

typedef struct walk_dir {
  uint64_t first;
  int32_t label;
} walk_dir;

// A folder and those above it, to tell a link that leads back up.
typedef struct ancestor {
  const struct ancestor *up;
  dev_t dev;
  ino_t ino;
} ancestor;

// Skipped entries: how many, and the path of the first.
typedef struct skipped {
  uint64_t count;
  char first[WARNING_PATH_SIZE];
} skipped;

typedef struct walk {
  int root_fd;
  ancestor base[MOST_BASES];  // the bases, chained: each counts as above every class
  const ancestor *top;        // the end of that chain
  const char *root;
  name_list files;
  name_list dir_names;
  walk_dir *dirs;
  size_t dir_room;
  brim_folder_seen seen;  // folders of this class
  skipped others;         // images of kinds that are not read
  skipped again;          // links to a folder of the same class that was visited already
  skipped deep;           // folders below MAX_DEPTH others
  skipped lost;           // links that lead nowhere
  bool stop_at_first;     // only ask if there is an image: stop at the first one, without warnings
} walk;

static void walk_free(walk *w) {
  names_free(&w->files);
  names_free(&w->dir_names);
  brim_free(w->dirs);
  brim_folder_seen_deinit(&w->seen);
}

static void note_skipped(skipped *p, const char *path, const char *name) {
  if (p->count++) return;
  snprintf(p->first, sizeof p->first, "%s%s%s", path, path[0] && name[0] ? "/" : "", name);
}

static brim_status walk_errno(const walk *w, const char *path, int err) {
  return brim_fail(brim_errno_status(err), "%s/%s: %s", w->root, path, brim_errno_text(err));
}

// Files that people take for images, but that brim does not read.
static bool is_other_image(const char *name) {
  static const char *const ends[] = {".gif",  ".webp", ".tif", ".tiff", ".heic",
                                     ".avif", ".jp2",  ".jxl", NULL};
  const char *dot = strrchr(name, '.');
  for (size_t i = 0; dot && ends[i]; i++) {
    if (strcasecmp(dot, ends[i]) == 0) return true;
  }
  return false;
}

typedef enum entry_kind { ENTRY_OTHER, ENTRY_FILE, ENTRY_FOLDER, ENTRY_LOST } entry_kind;

static entry_kind kind_of(int fd, const struct dirent *entry) {
  bool image = brim_image_is_name(entry->d_name);
  switch (entry->d_type) {
    case DT_DIR:
      return ENTRY_FOLDER;
    case DT_REG:
      return image ? ENTRY_FILE : ENTRY_OTHER;
    case DT_LNK:
      if (image) return ENTRY_FILE;  // sets made of links would pay a stat for each
      break;
    case DT_UNKNOWN:
      break;
    default:
      return ENTRY_OTHER;
  }
  struct stat st;
  if (fstatat(fd, entry->d_name, &st, 0)) return entry->d_type == DT_LNK ? ENTRY_LOST : ENTRY_OTHER;
  if (S_ISDIR(st.st_mode)) return ENTRY_FOLDER;
  return S_ISREG(st.st_mode) && image ? ENTRY_FILE : ENTRY_OTHER;
}

static brim_status read_entries(walk *w, DIR *dir, const char *path, name_list *subs) {
  for (;;) {
    errno = 0;
    const struct dirent *entry = readdir(dir);
    if (!entry) return errno ? walk_errno(w, path, errno) : BRIM_OK;
    if (entry->d_name[0] == '.') continue;
    entry_kind kind = kind_of(dirfd(dir), entry);
    if (kind == ENTRY_FILE) BRIM_TRY(names_add(&w->files, entry->d_name));
    if (w->stop_at_first && w->files.count) return BRIM_OK;
    if (kind == ENTRY_FOLDER) BRIM_TRY(names_add(subs, entry->d_name));
    if (kind == ENTRY_LOST) note_skipped(&w->lost, path, entry->d_name);
    if (kind == ENTRY_OTHER && is_other_image(entry->d_name))
      note_skipped(&w->others, path, entry->d_name);
  }
}

static brim_status add_dir(walk *w, const char *path, int32_t label) {
  void *dirs = w->dirs;
  brim_status status = grow(&dirs, &w->dir_room, w->dir_names.count + 1, sizeof *w->dirs);
  w->dirs = dirs;
  if (status) return status;
  w->dirs[w->dir_names.count] = (walk_dir){.first = w->files.count, .label = label};
  return names_add(&w->dir_names, path);
}

// Files of one folder, sorted; the names of its sub-folders, sorted, go to subs. A folder that is one
// of those above it, or that a link has led to before, is skipped.
static brim_status list_folder(walk *w, const char *path, int32_t label, ancestor *self,
                               name_list *subs) {
  int fd = openat(w->root_fd, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return walk_errno(w, path, errno);
  struct stat st;
  DIR *dir = fstat(fd, &st) ? NULL : fdopendir(fd);
  if (!dir) {
    brim_status status = walk_errno(w, path, errno);
    close(fd);
    return status;
  }
  self->dev = st.st_dev;
  self->ino = st.st_ino;
  bool loop = false;
  for (const ancestor *a = self->up; a && !loop; a = a->up) {
    loop = a->dev == st.st_dev && a->ino == st.st_ino;
  }
  bool again = false;
  brim_status status =
      label < 0 ? BRIM_OK : brim_folder_seen_add(&w->seen, st.st_dev, st.st_ino, &again);
  if (loop) {
    if (!w->stop_at_first) {
      brim_log_warn("data", "%s/%s is a link to a folder above it; brim skips it", w->root, path);
    }
  } else if (again) {
    note_skipped(&w->again, path, "");
  } else if (!status) {
    size_t first = w->files.count;
    status = add_dir(w, path, label);
    if (!status) status = read_entries(w, dir, path, subs);
    names_sort(&w->files, first);
    names_sort(subs, 0);
  }
  closedir(dir);
  return status;
}

static char *join(const char *path, const char *name) {
  return path[0] ? brim_fs_join(path, name) : brim_strdup(name);
}

static brim_status list_below(walk *w, const char *path, int32_t label, const ancestor *up,
                              int depth) {
  name_list subs = {0};
  ancestor self = {.up = up};
  brim_status status = list_folder(w, path, label, &self, &subs);
  for (size_t i = 0; i < subs.count && !status; i++) {
    if (w->stop_at_first && w->files.count) break;
    if (depth >= MAX_DEPTH) {
      note_skipped(&w->deep, path, names_get(&subs, i));
      continue;
    }
    char *sub = join(path, names_get(&subs, i));
    status = sub ? list_below(w, sub, label, &self, depth + 1)
                 : brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
    brim_free(sub);
  }
  names_free(&subs);
  return status;
}

static brim_status list_tree(walk *w, const char *path, int32_t label, const ancestor *up) {
  return list_below(w, path, label, up, 0);
}

//---------------------------------- classes ----------------------------------

// One class: its folders in all bases that have one.
static brim_status list_class(walk *w, const char *name, int32_t label, const char *const *bases,
                              size_t base_count, bool *there) {
  brim_status status = BRIM_OK;
  *there = false;
  seen_clear(&w->seen);  // another class may have the same images
  for (size_t i = 0; i < base_count && !status; i++) {
    char *path = join(bases[i], name);
    struct stat st;
    if (!path) {
      status = brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
    } else if (fstatat(w->root_fd, path, &st, 0) == 0 && S_ISDIR(st.st_mode)) {
      *there = true;
      status = list_tree(w, path, label, w->top);
    }
    brim_free(path);
  }
  return status;
}

// Lists the folders of a base.
static brim_status list_subs(const walk *w, const char *base, name_list *subs) {
  walk scratch = {.root_fd = w->root_fd, .root = w->root};
  ancestor self = {0};
  brim_status status = list_folder(&scratch, base, -1, &self, subs);
  walk_free(&scratch);
  return status;
}

// A class that the training set lacks has no number: images of it are an error.
static brim_status refuse_unknown(const walk *w, const name_list *subs, const name_list *known,
                                  const char *const *bases, const char *numbered_by) {
  for (size_t i = 0, k = 0; i < subs->count; i++) {
    const char *name = names_get(subs, i);
    while (k < known->count && strcmp(names_get(known, k), name) < 0) k++;
    if (k < known->count && strcmp(names_get(known, k), name) == 0) continue;
    walk scratch = {.root_fd = w->root_fd, .root = w->root};
    char *path = join(bases[0], name);
    brim_status status =
        path ? list_tree(&scratch, path, 0, NULL)
             : brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
    brim_free(path);
    if (!status && scratch.files.count) {
      status = brim_fail(BRIM_EPARSE,
                         "%s: class '%s' is in '%s' but not in '%s', which defines the class "
                         "numbers; move it, or create a folder of that name there",
                         w->root, name, bases[0], numbered_by);
    }
    walk_free(&scratch);
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

static void warn_empty(const walk *w, bool keep, size_t empty, size_t folders, const char *first) {
  if (keep) {
    brim_log_warn("data", "%s: %zu of %lld class folders have no images (%s); the first is '%s'",
                  w->root, empty, (long long)folders, brim_image_ends(), first);
  } else {
    brim_log_warn("data",
                  "%s: %zu of %zu class folders have no images (%s), so brim ignores them; the "
                  "first is '%s'",
                  w->root, empty, folders, brim_image_ends(), first);
  }
}

// Lists all classes. `subs`: the names of their folders, some of them twice; sorted here. `keep`: a
// folder without images is a class too. It is set for splits, since another split may have images of
// the class, but not for a root without splits, where people keep runs and notes beside their images.
static brim_status list_classes(walk *w, name_list *subs, const char *const *bases,
                                size_t base_count, bool keep, int64_t *classes) {
  size_t empty = 0, folders = 0;
  const char *first_empty = NULL;
  names_sort(subs, 0);
  *classes = 0;
  for (size_t i = 0; i < subs->count; i++) {
    const char *name = names_get(subs, i);
    if (i && strcmp(name, names_get(subs, i - 1)) == 0) continue;
    size_t before = w->files.count;
    if (*classes == INT32_MAX) return brim_fail(BRIM_ELIMIT, "%s: too many classes", w->root);
    bool there;
    BRIM_TRY(list_class(w, name, (int32_t)*classes, bases, base_count, &there));
    folders++;
    bool found = w->files.count > before;
    if (found || keep) ++*classes;
    if (found || !there) continue;
    if (!empty++) first_empty = name;
  }
  // Without any image there is no warning: the files beside the folders count then, or opening fails.
  if (empty && (keep || *classes)) warn_empty(w, keep, empty, folders, first_empty);
  return BRIM_OK;
}

//---------------------------------- packing ----------------------------------

// Folders [from, to) of the walk, with the first `limit` of their files.
typedef struct span {
  size_t dir_from, dir_to;
  uint64_t file_from, file_to;
} span;

static brim_status pack(const walk *w, const span *s, folder_list *out) {
  uint64_t count = s->file_to - s->file_from;
  size_t dirs = 0, text = 0;
  for (size_t i = s->dir_from; i < s->dir_to; i++) {
    uint64_t end = i + 1 < s->dir_to ? w->dirs[i + 1].first : s->file_to;
    if (w->dirs[i].first >= s->file_to || w->dirs[i].first == end) continue;
    dirs++;
    text += strlen(names_get(&w->dir_names, i)) + 1;
  }
  for (uint64_t i = s->file_from; i < s->file_to; i++) text += strlen(names_get(&w->files, i)) + 1;
  if (text > UINT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "folder: the names of the files take more than 4 GiB");
  }
  size_t file_bytes = sizeof *out->sizes + sizeof *out->names;
  out->bytes = dirs * sizeof *out->dirs + count * file_bytes + text;
  out->block = brim_alloc_tagged(out->bytes, BRIM_MEM_PLANNED);
  if (!out->block) return brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
  memset(out->block, 0, out->bytes);
  out->dirs = out->block;
  out->sizes = (image_size *)(out->dirs + dirs);
  out->names = (uint32_t *)(out->sizes + count);
  out->text = (char *)(out->names + count);
  out->count = count;
  char *p = out->text;
  for (size_t i = s->dir_from; i < s->dir_to; i++) {
    uint64_t end = i + 1 < s->dir_to ? w->dirs[i + 1].first : s->file_to;
    if (w->dirs[i].first >= s->file_to || w->dirs[i].first == end) continue;
    out->dirs[out->dir_count++] = (folder_dir){.first = w->dirs[i].first - s->file_from,
                                               .name = (uint32_t)(p - out->text),
                                               .label = w->dirs[i].label};
    p = stpcpy(p, names_get(&w->dir_names, i)) + 1;
  }
  for (uint64_t i = 0; i < count; i++) {
    out->names[i] = (uint32_t)(p - out->text);
    p = stpcpy(p, names_get(&w->files, s->file_from + i)) + 1;
  }
  return BRIM_OK;
}

// Decides what counts: files in class folders, or else those in the bases themselves.
static brim_status choose(const walk *w, size_t base_dirs, uint64_t base_files, uint64_t limit,
                          folder_list *out) {
  span s = {.dir_from = base_dirs,
            .dir_to = w->dir_names.count,
            .file_from = base_files,
            .file_to = w->files.count};
  if (s.file_to == s.file_from) {
    s = (span){.dir_to = base_dirs, .file_to = base_files};
    out->classes = 0;
  } else if (base_files) {
    brim_log_warn("data", "%s: brim ignores %llu images beside the class folders", w->root,
                  (unsigned long long)base_files);
  }
  if (limit && s.file_to - s.file_from > limit) s.file_to = s.file_from + limit;
  return pack(w, &s, out);
}

// Numbers the classes of one base by the folders of another, `known`.
static brim_status list_numbered(walk *w, name_list *subs, const char *const *bases,
                                 size_t base_count, const char *numbered_by, name_list *known,
                                 int64_t *classes) {
  if (numbered_by) BRIM_TRY(list_subs(w, numbered_by, known));
  bool keep = bases[0][0] != '\0';
  if (known->count == 0) return list_classes(w, subs, bases, base_count, keep, classes);
  names_sort(known, 0);
  names_sort(subs, 0);
  BRIM_TRY(refuse_unknown(w, subs, known, bases, numbered_by));
  return list_classes(w, known, bases, base_count, keep, classes);
}

static brim_status find_all(walk *w, const char *const *bases, size_t base_count,
                            const char *numbered_by, name_list *subs, folder_list *out,
                            uint64_t limit) {
  if (base_count > MOST_BASES) return brim_fail(BRIM_EINVAL, "folder: too many parts");
  for (size_t i = 0; i < base_count; i++) {
    BRIM_TRY(list_folder(w, bases[i], -1, &w->base[i], subs));
  }
  for (size_t i = 0; i < base_count; i++) {
    w->base[i].up = w->top;
    w->top = &w->base[i];
  }
  size_t base_dirs = w->dir_names.count;
  uint64_t base_files = w->files.count;
  name_list known = {0};
  brim_status status =
      list_numbered(w, subs, bases, base_count, numbered_by, &known, &out->classes);
  names_free(&known);
  return status ? status : choose(w, base_dirs, base_files, limit, out);
}

static void warn_skipped(const walk *w) {
  if (w->others.count) {
    brim_log_warn("data",
                  "%s: brim ignores %llu image files of kinds that it does not read (it reads %s); "
                  "the first is '%s'; convert them, or move them away",
                  w->root, (unsigned long long)w->others.count, brim_image_ends(), w->others.first);
  }
  if (w->again.count) {
    brim_log_warn("data",
                  "%s: %llu links lead to folders that are in the same class already; brim reads "
                  "each folder once. The first such link is '%s'",
                  w->root, (unsigned long long)w->again.count, w->again.first);
  }
  if (w->deep.count) {
    brim_log_warn("data",
                  "%s: %llu folders lie more than %d levels below their class and are not read; "
                  "the first is '%s'",
                  w->root, (unsigned long long)w->deep.count, (int)MAX_DEPTH, w->deep.first);
  }
  if (w->lost.count) {
    brim_log_warn("data", "%s: %llu links lead to nothing and are not read; the first is '%s'",
                  w->root, (unsigned long long)w->lost.count, w->lost.first);
  }
}

// Every image below the bases (paths from the root; "" is the root), whose folders are the classes,
// numbered by name in the order of bytes over all bases together. Names that begin with a dot are
// skipped. A folder without images is a class in a split, and none in the root. limit 0 = all.
// numbered_by (NULL = none): the base whose folders number the classes instead; for val and test it is
// the training split. A class with images that this base does not have is BRIM_EPARSE.
static brim_status make_list(int root_fd, const char *root, const char *const *bases,
                             size_t base_count, const char *numbered_by, uint64_t limit,
                             folder_list *out) {
  *out = (folder_list){0};
  walk w = {.root_fd = root_fd, .root = root};
  name_list subs = {0};
  brim_status status = find_all(&w, bases, base_count, numbered_by, &subs, out, limit);
  if (!status) warn_skipped(&w);
  names_free(&subs);
  walk_free(&w);
  return status;
}

brim_status brim_folder_has_images(const char *root, const char *name, bool *out) {
  *out = false;
  int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return brim_fail(brim_errno_status(errno), "%s: %s", root, brim_errno_text(errno));
  walk w = {.root_fd = fd, .root = root, .stop_at_first = true};
  struct stat st;
  brim_status status = BRIM_OK;
  if (fstat(fd, &st)) {
    status = brim_fail(brim_errno_status(errno), "%s: %s", root, brim_errno_text(errno));
  } else {
    ancestor top = {.dev = st.st_dev, .ino = st.st_ino};
    status = list_tree(&w, name, 0, &top);
  }
  *out = !status && w.files.count > 0;
  walk_free(&w);
  close(fd);
  return status;
}

//---------------------------------- the list ----------------------------------

// One file of the root, without a class.
static brim_status list_one(const char *name, folder_list *out) {
  *out = (folder_list){.count = 1, .dir_count = 1};
  size_t text = strlen(name) + 2,
         fixed = sizeof *out->dirs + sizeof *out->sizes + sizeof *out->names;
  out->bytes = fixed + text;
  out->block = brim_alloc_tagged(out->bytes, BRIM_MEM_PLANNED);
  if (!out->block) return brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
  memset(out->block, 0, out->bytes);
  out->dirs = out->block;
  out->sizes = (image_size *)(out->dirs + 1);
  out->names = (uint32_t *)(out->sizes + 1);
  out->text = (char *)(out->names + 1);
  out->dirs[0].label = -1;
  out->names[0] = 1;  // behind the folder's name, which is ""
  memcpy(out->text + 1, name, text - 1);
  return BRIM_OK;
}

static void list_free(folder_list *list) {
  brim_free(list->block);
  *list = (folder_list){0};
}

static const folder_dir *dir_of(const folder_list *list, uint64_t index) {
  size_t low = 0, high = list->dir_count;  // the last one whose first is not above index
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (list->dirs[middle].first <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return &list->dirs[low];
}

// Path of a file from the root. Returns its full length, like snprintf.
static size_t path_of(const folder_list *list, uint64_t index, char *out, size_t size) {
  const char *dir = list->text + dir_of(list, index)->name;
  const char *name = list->text + list->names[index];
  size_t dir_length = strlen(dir), name_length = strlen(name);
  size_t length = dir_length + (dir_length > 0) + name_length;
  if (length >= size) {
    snprintf(out, size, "%s%s%s", dir, dir_length ? "/" : "", name);
    return length;
  }
  memcpy(out, dir, dir_length);
  if (dir_length) out[dir_length++] = '/';
  memcpy(out + dir_length, name, name_length + 1);
  return length;
}

//---------------------------------- the source ----------------------------------

enum {
  SMALL_FILE = 16384,  // read onto the stack; larger ones into a block of their own
  SPLIT_BASES = BRIM_FOLDER_SPLITS,
  PROBE_THREADS = 16,  // at most; more than cores, since a cold disk is waited for
  PROBE_FEW = 256,     // not worth threads
};

typedef struct folder_state {
  char *root;
  size_t root_length;
  int root_fd;
  folder_list list;
  brim_image_want want;
  brim_source_info info;
  bool val_is_test;
} folder_state;

//---------------------------------- one file ----------------------------------

// One file: its path for messages, the part from the root on, and its bytes.
typedef struct folder_file {
  char path[PATH_MAX];
  const char *inner;
  uint8_t small[SMALL_FILE];
  uint8_t *large;  // NULL: all of it is in small
  size_t size;
} folder_file;

static const uint8_t *file_bytes(const folder_file *f) { return f->large ? f->large : f->small; }

static brim_status file_errno(const folder_file *f, int err) {
  return brim_fail(brim_errno_status(err), "%s: %s", f->path, brim_errno_text(err));
}

static brim_status name_file(const folder_state *s, uint64_t index, folder_file *f) {
  if (index >= s->list.count) {
    return brim_fail(BRIM_EINVAL, "%s: holds %" PRIu64 " images", s->root, s->list.count);
  }
  memcpy(f->path, s->root, s->root_length);
  f->path[s->root_length] = '/';
  f->inner = f->path + s->root_length + 1;
  size_t room = sizeof f->path - s->root_length - 1;
  if (path_of(&s->list, index, f->path + s->root_length + 1, room) >= room) {
    return brim_fail(BRIM_ELIMIT, "%s...: the path is longer than %zu bytes", f->path,
                     sizeof f->path);
  }
  return BRIM_OK;
}

static brim_status open_file(const folder_state *s, const folder_file *f, int *fd) {
  // Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
  *fd = openat(s->root_fd, f->inner, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  return *fd < 0 ? file_errno(f, errno) : BRIM_OK;
}

static brim_status read_up_to(const folder_file *f, int fd, uint8_t *out, size_t n, size_t *got) {
  while (*got < n) {
    ssize_t more = read(fd, out + *got, n - *got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return file_errno(f, errno);
    if (!more) break;
    *got += (size_t)more;
  }
  return BRIM_OK;
}

// Reads a file that does not fit on the stack; its size is only asked for now.
static brim_status read_large(folder_file *f, int fd) {
  struct stat st;
  if (fstat(fd, &st)) return file_errno(f, errno);
  if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_EINVAL, "%s: not a regular file", f->path);
  if ((uint64_t)st.st_size > BRIM_IMAGE_MAX_BYTES) {
    return brim_fail(BRIM_ELIMIT, "%s: %" PRIu64 " bytes, expected at most %zu", f->path,
                     (uint64_t)st.st_size, BRIM_IMAGE_MAX_BYTES);
  }
  size_t size = (size_t)st.st_size > f->size ? (size_t)st.st_size : f->size;
  f->large = brim_alloc(size);
  if (!f->large) return brim_fail(BRIM_ENOMEM, "%s: out of memory for %zu bytes", f->path, size);
  memcpy(f->large, f->small, f->size);
  return read_up_to(f, fd, f->large, size, &f->size);
}

static brim_status read_file(const folder_state *s, folder_file *f) {
  int fd;
  f->size = 0;
  BRIM_TRY(open_file(s, f, &fd));
  brim_status status = read_up_to(f, fd, f->small, sizeof f->small, &f->size);
  if (!status && f->size == sizeof f->small) status = read_large(f, fd);
  close(fd);
  return status;
}

// `exact`: the image must have the size that all had when the folder was opened.
static brim_status decode_file(const folder_state *s, uint64_t index, const brim_image_want *want,
                               bool exact, brim_image_pixels *out, void *target) {
  folder_file f;
  f.large = NULL;
  BRIM_TRY(name_file(s, index, &f));
  brim_status status = read_file(s, &f);
  if (!status) status = brim_image_decode(file_bytes(&f), f.size, f.path, want, out);
  if (!status && exact && (out->height != s->info.dim[0] || out->width != s->info.dim[1])) {
    status = brim_fail(BRIM_EPARSE,
                       "%s: %" PRId64 " x %" PRId64 " pixels; all were %" PRId64 " x %" PRId64
                       " when the folder was opened",
                       f.path, out->height, out->width, s->info.dim[0], s->info.dim[1]);
  }
  brim_free(f.large);
  if (!status && s->list.classes) {
    int32_t label = dir_of(&s->list, index)->label;
    memcpy(target, &label, sizeof label);
  }
  return status;
}

static brim_status probe_file(const folder_state *s, uint64_t index, brim_image_head *head) {
  folder_file f;
  int fd;
  BRIM_TRY(name_file(s, index, &f));
  BRIM_TRY(open_file(s, &f, &fd));
  brim_status status = brim_image_probe_file(fd, f.path, head);
  close(fd);
  return status;
}

//---------------------------------- all headers ----------------------------------

static void probe_range(void *ctx, int64_t begin, int64_t end, int thread) {
  folder_state *s = ctx;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    brim_image_head head;
    if (probe_file(s, (uint64_t)i, &head)) continue;  // stays 0
    s->list.sizes[i] = (image_size){.height = (uint16_t)head.height, .width = (uint16_t)head.width};
  }
}

static brim_status probe_all(folder_state *s) {
  int64_t count = (int64_t)s->list.count;
  int threads = 2 * brim_cpu_count();
  if (threads > PROBE_THREADS) threads = PROBE_THREADS;
  if (count < PROBE_FEW) {
    probe_range(s, 0, count, 0);
  } else {
    brim_pool *pool;
    BRIM_TRY(brim_pool_create(threads, &pool));
    brim_pool_run(pool, count, probe_range, s);
    brim_pool_destroy(pool);
  }
  uint64_t broken = 0, first = 0;
  image_size one = {0};
  for (uint64_t i = 0; i < s->list.count; i++) {
    image_size size = s->list.sizes[i];
    if (!size.height) {
      if (!broken++) first = i;
      continue;
    }
    if (!one.height) one = size;
    if (size.height != one.height || size.width != one.width) s->info.varies = 1;
    if (size.height > s->info.dim[0]) s->info.dim[0] = size.height;
    if (size.width > s->info.dim[1]) s->info.dim[1] = size.width;
  }
  if (!broken) return BRIM_OK;
  brim_image_head head;
  brim_status status = probe_file(s, first, &head);  // probe it again to get the error text
  if (!status) brim_fail(BRIM_EIO, "the file changed while brim read it");
  if (broken == s->list.count) {
    return brim_fail_context(status ? status : BRIM_EIO,
                             "%s: none of the %" PRIu64 " images can be read; the first", s->root,
                             broken);
  }
  brim_log_warn("data", "%s: cannot read %" PRIu64 " of %" PRIu64 " images; the first: %s", s->root,
                broken, s->list.count, brim_status_detail());
  return BRIM_OK;
}

//---------------------------------- splits ----------------------------------

static bool is_split_name(const char *split) {
  static const char *const names[] = {"train", "val", "test", "unlabeled", "all", NULL};
  for (const char *const *n = names; *n; n++) {
    if (strcmp(*n, split) == 0) return true;
  }
  return false;
}

static brim_status find_bases(const folder_state *s, const char *split,
                              const brim_folder_splits *splits, const char *bases[SPLIT_BASES],
                              size_t *count) {
  const char *other = NULL, *folder = NULL;
  if (!is_split_name(split)) {
    return brim_fail(BRIM_EINVAL,
                     "folder: no split '%s'; choose train, val, test, unlabeled or all", split);
  }
  bool all = strcmp(split, "all") == 0;
  const char *own = brim_folder_split_of(splits, split);
  *count = 0;
  if (own) bases[(*count)++] = own;
  for (size_t i = 0; i < splits->count; i++) {
    if (strcmp(splits->found[i].split, "unlabeled") == 0) continue;
    if (all) bases[(*count)++] = splits->found[i].folder;
    if (!other) folder = splits->found[i].folder;
    if (!other) other = splits->found[i].split;
  }
  if (*count) return BRIM_OK;
  if (other) {
    return brim_fail(BRIM_ENOENT,
                     "%s: found a folder '%s' but no '%s'; add one, or use a part of '%s' with "
                     "folder(split=%s, part=(0.9, 1)) or data.val_fraction=0.1",
                     s->root, folder, split, other, other);
  }
  if (all || strcmp(split, "train") == 0) {
    bases[(*count)++] = "";
    return BRIM_OK;
  }
  return brim_fail(BRIM_ENOENT,
                   "%s: no folder '%s', so all images are 'train'; use a part of them with "
                   "folder(split=train, part=(0.9, 1)) or data.val_fraction=0.1",
                   s->root, split);
}

//---------------------------------- the table ----------------------------------

static void folder_close(void *state) {
  folder_state *s = state;
  if (!s) return;
  if (s->root_fd >= 0) close(s->root_fd);
  list_free(&s->list);
  brim_free(s->root);
  brim_free(s);
}

static brim_status open_root(folder_state *s, const char *path) {
  if (!path || !path[0]) {
    return brim_fail(BRIM_EINVAL,
                     "folder needs data.path: the folder that holds the class folders");
  }
  if (brim_fs_exists(path) && !brim_fs_is_dir(path)) {
    return brim_fail(BRIM_EINVAL,
                     "%s: not a folder; folder needs the folder that holds the class folders",
                     path);
  }
  s->root = brim_strdup(path);
  if (!s->root) return brim_fail(BRIM_ENOMEM, "folder: out of memory");
  s->root_length = strlen(path);
  while (s->root_length > 1 && s->root[s->root_length - 1] == '/') s->root_length--;
  s->root[s->root_length] = 0;
  if (s->root_length + 2 >= PATH_MAX) return brim_fail(BRIM_ELIMIT, "%s: too long a path", path);
  s->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (s->root_fd < 0) {
    return brim_fail(brim_errno_status(errno), "%s: %s", path, brim_errno_text(errno));
  }
  return BRIM_OK;
}

bool brim_source_is_image(const char *path) {
  return path && path[0] && brim_image_is_name(path) && brim_fs_exists(path) &&
         !brim_fs_is_dir(path);
}

static brim_status open_one(folder_state *s, const char *path) {
  char *folder = brim_fs_dirname(path);
  if (!folder) return brim_fail(BRIM_ENOMEM, "folder: out of memory");
  brim_status status = open_root(s, folder);
  brim_free(folder);
  if (!status) status = list_one(brim_fs_basename(path), &s->list);
  if (status) return status;
  s->info.count = 1;
  return probe_all(s);
}

static brim_status read_color(folder_state *s, const json_t *args) {
  const char *color = "rgb";
  BRIM_TRY(brim_data_args_string(args, "folder", "color", &color));
  if (strcmp(color, "rgb") != 0 && strcmp(color, "gray") != 0) {
    return brim_fail(BRIM_EINVAL, "folder: color is rgb or gray, not '%s'", color);
  }
  const json_t *strict = json_object_get(args, "strict");
  if (strict && !json_is_boolean(strict)) {
    return brim_fail(BRIM_EINVAL, "folder: strict is true or false");
  }
  s->want = (brim_image_want){
      .channels = strcmp(color, "rgb") == 0 ? 3 : 1, .scale = 1, .lenient = json_is_false(strict)};
  brim_source_info *info = &s->info;
  info->type = BRIM_SAMPLE_U8;
  info->rank = 3;
  info->dim[2] = s->want.channels;
  info->costly = 1;
  if (s->want.channels == 3) {  // ImageNet's mean and deviation
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    info->channels = 3;
    memcpy(info->mean, mean, sizeof mean);
    memcpy(info->std, std, sizeof std);
  }
  return BRIM_OK;
}

static brim_status open_set(folder_state *s, const brim_source_how *how, const json_t *args) {
  const char *path = how->path, *bases[SPLIT_BASES];
  brim_folder_splits splits;
  size_t base_count;
  int64_t limit = 0;
  BRIM_TRY(brim_data_args_string(args, "folder", "path", &path));
  BRIM_TRY(brim_data_args_int(args, "folder", "limit", 1, INT64_MAX, &limit));
  BRIM_TRY(read_color(s, args));
  if (brim_source_is_image(path)) return open_one(s, path);
  BRIM_TRY(open_root(s, path));
  const char *split = how->split ? how->split : "train";
  BRIM_TRY(brim_folder_find_splits(s->root, &splits));
  BRIM_TRY(find_bases(s, split, &splits, bases, &base_count));
  bool evaluates = strcmp(split, "val") == 0 || strcmp(split, "test") == 0;
  s->val_is_test = true;
  for (size_t i = 0; i < splits.count; i++) {
    s->val_is_test = s->val_is_test && strcmp(splits.found[i].split, "val") != 0;
  }
  const char *numbered_by = evaluates ? brim_folder_split_of(&splits, "train") : NULL;
  BRIM_TRY(
      make_list(s->root_fd, s->root, bases, base_count, numbered_by, (uint64_t)limit, &s->list));
  if (!s->list.count) {
    // the split's folder exists, so the split is not missing
    return brim_fail(bases[0][0] ? BRIM_EPARSE : BRIM_ENOENT,
                     "%s%s%s: no images (%s), neither in class folders nor directly", s->root,
                     bases[0][0] ? "/" : "", bases[0], brim_image_ends());
  }
  s->info.count = s->list.count;
  s->info.classes = s->list.classes;
  return probe_all(s);
}

static brim_status folder_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {"path", "split", "limit", "color", "strict", NULL};
  json_t *args;
  BRIM_TRY(brim_data_args_parse("folder", how->args_json, known, &args));
  folder_state *s = brim_calloc(1, sizeof *s);
  if (s) s->root_fd = -1;
  brim_status status = s ? open_set(s, how, args) : brim_fail(BRIM_ENOMEM, "folder: out of memory");
  json_decref(args);
  if (status) {
    folder_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static void folder_info(void *state, brim_source_info *out) {
  *out = ((folder_state *)state)->info;
}

static brim_status folder_read(void *state, uint64_t index, void *input, void *target) {
  const folder_state *s = state;
  if (s->info.varies) {
    return brim_fail(BRIM_ESTATE,
                     "%s: images of several sizes; the first transform must bring them to one size",
                     s->root);
  }
  brim_image_pixels out = {
      .data = input,
      .capacity = (size_t)s->info.dim[0] * (size_t)s->info.dim[1] * (size_t)s->info.dim[2]};
  return decode_file(s, index, &s->want, true, &out, target);
}

static brim_status folder_size(void *state, uint64_t index, int64_t *height, int64_t *width) {
  const folder_state *s = state;
  brim_image_head head;
  if (index < s->list.count && s->list.sizes[index].height) {
    *height = s->list.sizes[index].height;
    *width = s->list.sizes[index].width;
    return BRIM_OK;
  }
  BRIM_TRY(probe_file(s, index, &head));  // to say what is wrong with it
  *height = head.height;
  *width = head.width;
  return BRIM_OK;
}

static brim_status folder_decode(void *state, uint64_t index, brim_source_image *image,
                                 void *target) {
  const folder_state *s = state;
  brim_image_want want = s->want;
  brim_image_pixels out = {.data = image->pixels, .capacity = image->capacity};
  want.scale = image->scale;
  BRIM_TRY(decode_file(s, index, &want, false, &out, target));
  image->height = out.height;
  image->width = out.width;
  return BRIM_OK;
}

static void folder_describe(void *state, uint64_t index, char *text, size_t size) {
  const folder_state *s = state;
  if (!size) return;
  text[0] = 0;
  if (index < s->list.count) path_of(&s->list, index, text, size);
}

static bool folder_val_is_test(void *state) { return ((folder_state *)state)->val_is_test; }

static uint64_t folder_host_bytes(void *state) { return ((folder_state *)state)->list.bytes; }

static int64_t folder_label(const void *state, uint64_t index) {
  return dir_of(&((const folder_state *)state)->list, index)->label;
}

const brim_source_table brim_source_folder = {
    .abi = BRIM_SOURCE_ABI,
    .name = "folder",
    .open = folder_open,
    .info = folder_info,
    .read = folder_read,
    .close = folder_close,
    .size = folder_size,
    .decode = folder_decode,
    .describe = folder_describe,
};

//---------------------------------- files that no split reads ----------------------------------

typedef struct unused_search {
  const char *root;
  const folder_list *lists[BRIM_UNUSED_SOURCES];
  size_t list_count;
  const char **read_dirs;  // sorted
  size_t read_count;
  int hidden;  // parent folders whose name begins with a dot; files below them are counted, not listed
  brim_unused *out;
} unused_search;

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static brim_status gather_dirs(unused_search *h) {
  size_t n = 0;
  for (size_t i = 0; i < h->list_count; i++) n += h->lists[i]->dir_count;
  h->read_dirs = brim_calloc(n + 1, sizeof *h->read_dirs);
  if (!h->read_dirs) return no_memory();
  for (size_t i = 0; i < h->list_count; i++) {
    const folder_list *l = h->lists[i];
    for (size_t d = 0; d < l->dir_count; d++) {
      h->read_dirs[h->read_count++] = l->text + l->dirs[d].name;
    }
  }
  qsort(h->read_dirs, h->read_count, sizeof *h->read_dirs, by_text);
  return BRIM_OK;
}

// `inner` is the path from the root, "" for the root. Links to folders are not followed: what lies
// behind them is not counted, so that a loop of links ends.
static brim_status search_folder(unused_search *h, const char *inner) {
  char **names;
  size_t count;
  char *folder = inner[0] ? brim_fs_join(h->root, inner) : brim_strdup(h->root);
  if (!folder) return no_memory();
  brim_status status = brim_fs_list(folder, &names, &count);
  if (status) {  // skip a folder that cannot be read
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
        status = search_folder(h, path);
        h->hidden -= hidden;
      } else if ((hidden || !used) &&
                 (S_ISREG(st.st_mode) || (S_ISLNK(st.st_mode) && !brim_fs_is_dir(full)))) {
        if (!hidden && !h->hidden) brim_unused_add(h->out, path);
        // like brim_data_disk_bytes: a link counts as what it leads to
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

static brim_status folder_unused(void *const *states, size_t count, brim_unused *out) {
  unused_search h = {.out = out};
  for (size_t i = 0; i < count && i < BRIM_UNUSED_SOURCES; i++) {
    const folder_state *s = states[i];
    const folder_list *list = &s->list;
    h.root = s->root;
    if (list->dir_count == 1 && list->count == 1 && !list->classes) return BRIM_OK;  // one image
    h.lists[h.list_count++] = list;
  }
  brim_status status = gather_dirs(&h);
  if (!status) status = search_folder(&h, "");
  brim_free(h.read_dirs);
  return status;
}

const brim_source_builtin brim_builtin_folder = {
    .table = &brim_source_folder,
    .host_bytes = folder_host_bytes,
    .label = folder_label,
    .val_is_test = folder_val_is_test,
    .unused = folder_unused,
};
