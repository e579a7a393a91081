// The files of an image folder: walked once when it is opened, without a stat for each (the folder's
// entries say what they are), sorted, and packed into one block. Decodes nothing.
#include "data/image/data_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "base/base_log.h"
#include "base/base_status.h"
#include "data/image/data_image.h"

enum { MAX_BASES = 8, MAX_DEPTH = 64, MAX_NAMED = 1024 };

//---------------------------------- names ----------------------------------

// Many names in two growing blocks.
typedef struct names {
  char *text;
  uint32_t *at;
  size_t text_used, text_room, count, room;
} names;

static void names_free(names *n) {
  brim_free(n->text);
  brim_free(n->at);
  *n = (names){0};
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

static brim_status names_add(names *n, const char *name) {
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

static const char *names_get(const names *n, size_t i) { return n->text + n->at[i]; }

static int compare_names(const void *a, const void *b, void *text) {
  const char *base = text;
  return strcmp(base + *(const uint32_t *)a, base + *(const uint32_t *)b);
}

static void names_sort(names *n, size_t from) {
  if (n->count - from < 2) return;
  qsort_r(n->at + from, n->count - from, sizeof *n->at, compare_names, n->text);
}

//---------------------------------- walking ----------------------------------

typedef struct walk_dir {
  uint64_t first;
  int32_t label;
} walk_dir;

// The folders above this one, to tell a link that leads back up.
typedef struct above {
  const struct above *up;
  dev_t dev;
  ino_t ino;
} above;

// What is skipped: how many, and the path of the first.
typedef struct passed {
  uint64_t count;
  char first[MAX_NAMED];
} passed;

typedef struct walk {
  int root_fd;
  above base[MAX_BASES];  // each above every class
  const above *top;       // the last of them
  const char *root;
  names files;
  names dir_names;
  walk_dir *dirs;
  size_t dir_room;
  brim_folder_seen seen;  // folders of this class
  passed others;          // images of kinds that are not read
  passed again;           // links to a folder of the same class that was visited already
  passed deep;            // folders below MAX_DEPTH others
  passed lost;            // links that lead nowhere
  bool look;              // is there any image? Stops at the first, and says nothing
} walk;

static void walk_free(walk *w) {
  names_free(&w->files);
  names_free(&w->dir_names);
  brim_free(w->dirs);
  brim_folder_seen_deinit(&w->seen);
}

static void pass_over(passed *p, const char *path, const char *name) {
  if (p->count++) return;
  snprintf(p->first, sizeof p->first, "%s%s%s", path, path[0] && name[0] ? "/" : "", name);
}

static brim_status fail_errno(const walk *w, const char *path, int err) {
  return brim_fail(brim_errno_status(err), "%s/%s: %s", w->root, path, brim_errno_text(err));
}

// What people take for an image, and is none here.
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

static brim_status read_entries(walk *w, DIR *dir, const char *path, names *subs) {
  for (;;) {
    errno = 0;
    const struct dirent *entry = readdir(dir);
    if (!entry) return errno ? fail_errno(w, path, errno) : BRIM_OK;
    if (entry->d_name[0] == '.') continue;
    entry_kind kind = kind_of(dirfd(dir), entry);
    if (kind == ENTRY_FILE) BRIM_TRY(names_add(&w->files, entry->d_name));
    if (w->look && w->files.count) return BRIM_OK;
    if (kind == ENTRY_FOLDER) BRIM_TRY(names_add(subs, entry->d_name));
    if (kind == ENTRY_LOST) pass_over(&w->lost, path, entry->d_name);
    if (kind == ENTRY_OTHER && is_other_image(entry->d_name))
      pass_over(&w->others, path, entry->d_name);
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
static brim_status list_folder(walk *w, const char *path, int32_t label, above *self, names *subs) {
  int fd = openat(w->root_fd, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail_errno(w, path, errno);
  struct stat st;
  DIR *dir = fstat(fd, &st) ? NULL : fdopendir(fd);
  if (!dir) {
    brim_status status = fail_errno(w, path, errno);
    close(fd);
    return status;
  }
  self->dev = st.st_dev;
  self->ino = st.st_ino;
  bool loop = false;
  for (const above *a = self->up; a && !loop; a = a->up) {
    loop = a->dev == st.st_dev && a->ino == st.st_ino;
  }
  bool again = false;
  brim_status status =
      label < 0 ? BRIM_OK : brim_folder_seen_add(&w->seen, st.st_dev, st.st_ino, &again);
  if (loop) {
    if (!w->look) {
      brim_log_warn("data", "%s/%s is a link to a folder above it; brim skips it", w->root, path);
    }
  } else if (again) {
    pass_over(&w->again, path, "");
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

static brim_status list_below(walk *w, const char *path, int32_t label, const above *up,
                              int depth) {
  names subs = {0};
  above self = {.up = up};
  brim_status status = list_folder(w, path, label, &self, &subs);
  for (size_t i = 0; i < subs.count && !status; i++) {
    if (w->look && w->files.count) break;
    if (depth >= MAX_DEPTH) {
      pass_over(&w->deep, path, names_get(&subs, i));
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

static brim_status list_tree(walk *w, const char *path, int32_t label, const above *up) {
  return list_below(w, path, label, up, 0);
}

//---------------------------------- classes ----------------------------------

// One class: its folders in all bases that have one.
static brim_status list_class(walk *w, const char *name, int32_t label, const char *const *bases,
                              size_t base_count, bool *there) {
  brim_status status = BRIM_OK;
  *there = false;
  brim_folder_seen_clear(&w->seen);  // another class may have the same images
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

// The folders of a base, and nothing else of it.
static brim_status list_subs(const walk *w, const char *base, names *subs) {
  walk scratch = {.root_fd = w->root_fd, .root = w->root};
  above self = {0};
  brim_status status = list_folder(&scratch, base, -1, &self, subs);
  walk_free(&scratch);
  return status;
}

// A class that the training set does not have has no number: images of it are an error.
static brim_status refuse_unknown(const walk *w, const names *subs, const names *known,
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

// All classes; `subs` are the names of their folders, sorted, some of them twice. `keep`: a folder
// without images is a class too (of a split, which another one may have images of). In a root without
// splits it is none: people keep runs and notes beside their images.
static brim_status list_classes(walk *w, names *subs, const char *const *bases, size_t base_count,
                                bool keep, int64_t *classes) {
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
  // without any image at all the files beside them are what counts, or there is an error
  if (empty && (keep || *classes)) warn_empty(w, keep, empty, folders, first_empty);
  return BRIM_OK;
}

//---------------------------------- packing ----------------------------------

// Folders [from, to) of the walk, and the first `limit` of their files.
typedef struct span {
  size_t dir_from, dir_to;
  uint64_t file_from, file_to;
} span;

static brim_status pack(const walk *w, const span *s, brim_folder_list *out) {
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
  out->sizes = (brim_folder_size *)(out->dirs + dirs);
  out->names = (uint32_t *)(out->sizes + count);
  out->text = (char *)(out->names + count);
  out->count = count;
  char *p = out->text;
  for (size_t i = s->dir_from; i < s->dir_to; i++) {
    uint64_t end = i + 1 < s->dir_to ? w->dirs[i + 1].first : s->file_to;
    if (w->dirs[i].first >= s->file_to || w->dirs[i].first == end) continue;
    out->dirs[out->dir_count++] = (brim_folder_dir){.first = w->dirs[i].first - s->file_from,
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

// Which of what was found counts: files in class folders, or else those in the bases themselves.
static brim_status choose(const walk *w, size_t base_dirs, uint64_t base_files, uint64_t limit,
                          brim_folder_list *out) {
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

// Numbers the classes of one base by the folders of another; `known` is that one's folders.
static brim_status list_numbered(walk *w, names *subs, const char *const *bases, size_t base_count,
                                 const char *numbered_by, names *known, int64_t *classes) {
  if (numbered_by) BRIM_TRY(list_subs(w, numbered_by, known));
  bool keep = bases[0][0] != '\0';
  if (known->count == 0) return list_classes(w, subs, bases, base_count, keep, classes);
  names_sort(known, 0);
  names_sort(subs, 0);
  BRIM_TRY(refuse_unknown(w, subs, known, bases, numbered_by));
  return list_classes(w, known, bases, base_count, keep, classes);
}

static brim_status find_all(walk *w, const char *const *bases, size_t base_count,
                            const char *numbered_by, names *subs, brim_folder_list *out,
                            uint64_t limit) {
  if (base_count > MAX_BASES) return brim_fail(BRIM_EINVAL, "folder: too many parts");
  for (size_t i = 0; i < base_count; i++) {
    BRIM_TRY(list_folder(w, bases[i], -1, &w->base[i], subs));
  }
  for (size_t i = 0; i < base_count; i++) {
    w->base[i].up = w->top;
    w->top = &w->base[i];
  }
  size_t base_dirs = w->dir_names.count;
  uint64_t base_files = w->files.count;
  names known = {0};
  brim_status status =
      list_numbered(w, subs, bases, base_count, numbered_by, &known, &out->classes);
  names_free(&known);
  return status ? status : choose(w, base_dirs, base_files, limit, out);
}

static void warn_passed(const walk *w) {
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

brim_status brim_folder_list_make(int root_fd, const char *root, const char *const *bases,
                                  size_t base_count, const char *numbered_by, uint64_t limit,
                                  brim_folder_list *out) {
  *out = (brim_folder_list){0};
  walk w = {.root_fd = root_fd, .root = root};
  names subs = {0};
  brim_status status = find_all(&w, bases, base_count, numbered_by, &subs, out, limit);
  if (!status) warn_passed(&w);
  names_free(&subs);
  walk_free(&w);
  return status;
}

brim_status brim_folder_has_images(const char *root, const char *name, bool *out) {
  *out = false;
  int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return brim_fail(brim_errno_status(errno), "%s: %s", root, brim_errno_text(errno));
  walk w = {.root_fd = fd, .root = root, .look = true};
  struct stat st;
  brim_status status = BRIM_OK;
  if (fstat(fd, &st)) {
    status = brim_fail(brim_errno_status(errno), "%s: %s", root, brim_errno_text(errno));
  } else {
    above top = {.dev = st.st_dev, .ino = st.st_ino};
    status = list_tree(&w, name, 0, &top);
  }
  *out = !status && w.files.count > 0;
  walk_free(&w);
  close(fd);
  return status;
}

//---------------------------------- the list ----------------------------------

brim_status brim_folder_list_one(const char *name, brim_folder_list *out) {
  *out = (brim_folder_list){.count = 1, .dir_count = 1};
  size_t text = strlen(name) + 2,
         fixed = sizeof *out->dirs + sizeof *out->sizes + sizeof *out->names;
  out->bytes = fixed + text;
  out->block = brim_alloc_tagged(out->bytes, BRIM_MEM_PLANNED);
  if (!out->block) return brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
  memset(out->block, 0, out->bytes);
  out->dirs = out->block;
  out->sizes = (brim_folder_size *)(out->dirs + 1);
  out->names = (uint32_t *)(out->sizes + 1);
  out->text = (char *)(out->names + 1);
  out->dirs[0].label = -1;
  out->names[0] = 1;  // behind the folder's name, which is ""
  memcpy(out->text + 1, name, text - 1);
  return BRIM_OK;
}

void brim_folder_list_free(brim_folder_list *list) {
  brim_free(list->block);
  *list = (brim_folder_list){0};
}

const brim_folder_dir *brim_folder_list_dir(const brim_folder_list *list, uint64_t index) {
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

size_t brim_folder_list_path(const brim_folder_list *list, uint64_t index, char *out, size_t size) {
  const char *dir = list->text + brim_folder_list_dir(list, index)->name;
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
