// Writes data sets: the part that all formats share. It checks the samples and the target, makes the
// temporary, counts samples and gives the temporary the target's name. The formats are data_pack_hdf5.c
// and data_pack_files.c.
//
// A folder set holds the mark, a file `.brim-dataset`: the line "brim data set", then "format NAME" and
// "files N" (without the mark). A folder is replaced only if every entry in it was written by brim.
#include "data/pack/data_pack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_int.h"
#include "data/image/data_image.h"
#include "data/pack/data_pack_int.h"

static const struct {
  const char *name, *source;
  bool folder;
  const brim_pack_writer *writer;
} formats[BRIM_PACK_FORMAT_COUNT] = {
    [BRIM_PACK_HDF5] = {"hdf5", "hdf5", false, &brim_pack_writer_hdf5},
    [BRIM_PACK_IDX] = {"idx", "idx", true, &brim_pack_writer_files},
    [BRIM_PACK_CIFAR10] = {"cifar10", "cifar10", true, &brim_pack_writer_files},
    [BRIM_PACK_CIFAR100] = {"cifar100", "cifar100", true, &brim_pack_writer_files},
    [BRIM_PACK_STL10] = {"stl10", "stl10", true, &brim_pack_writer_files},
    [BRIM_PACK_PNG] = {"png", "folder", true, &brim_pack_writer_images},
    [BRIM_PACK_JPG] = {"jpg", "folder", true, &brim_pack_writer_images},
};

const char *brim_pack_format_name(brim_pack_format format) { return formats[format].name; }
const char *brim_pack_format_source(brim_pack_format format) { return formats[format].source; }

brim_status brim_pack_no_memory(const brim_pack *pack) {
  return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", pack->path);
}

enum {
  MAX_DEPTH = 128,  // of folders; more than data_folder.c reads
  MAX_MARK = 4096   // bytes of the mark
};

//---------------------------------- folders ----------------------------------

static brim_status walk_tree(const char *path, int depth, brim_pack_visit_fn visit, void *ctx) {
  struct stat st;
  if (lstat(path, &st) != 0) {
    return brim_fail(brim_errno_status(errno), "%s: %s", path, brim_errno_text(errno));
  }
  if (S_ISDIR(st.st_mode)) {
    if (depth >= MAX_DEPTH) return brim_fail(BRIM_ELIMIT, "%s: folders nested too deep", path);
    char **names;
    size_t count;
    BRIM_TRY(brim_fs_list(path, &names, &count));
    brim_status status = BRIM_OK;
    for (size_t i = 0; i < count && !status; i++) {
      char *child = brim_fs_join(path, names[i]);
      status = child ? walk_tree(child, depth + 1, visit, ctx)
                     : brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
      brim_free(child);
    }
    brim_fs_list_free(names, count);
    BRIM_TRY(status);
  }
  return visit(ctx, path, &st);
}

typedef struct disk_sum {
  const char *root;  // real path of the set
  brim_folder_seen seen;
  uint64_t bytes, files;
} disk_sum;

static bool is_within(const char *path, const char *folder);
static brim_status add_one(void *ctx, const char *path, const struct stat *st);

// Counts the folder that a link of the set leads to. A folder inside the set is skipped, as walk_tree
// counts it anyway; so is a folder that contains the set.
static brim_status add_linked(disk_sum *sum, const char *path, const struct stat *to) {
  bool seen_before = false;
  char *real = realpath(path, NULL);
  brim_status status = BRIM_OK;
  if (real && !is_within(real, sum->root) && !is_within(sum->root, real)) {
    status = brim_folder_seen_add(&sum->seen, to->st_dev, to->st_ino, &seen_before);
    if (!status && !seen_before) status = walk_tree(real, 0, add_one, sum);
  }
  free(real);
  return status;
}

static brim_status add_one(void *ctx, const char *path, const struct stat *st) {
  disk_sum *sum = ctx;
  struct stat to = *st;
  if (S_ISLNK(st->st_mode) && stat(path, &to) != 0) return BRIM_OK;
  if (S_ISLNK(st->st_mode) && S_ISDIR(to.st_mode)) return add_linked(sum, path, &to);
  if (!S_ISREG(to.st_mode) || strcmp(brim_fs_basename(path), BRIM_PACK_MARK) == 0) return BRIM_OK;
  sum->bytes += (uint64_t)to.st_size;
  sum->files++;
  return BRIM_OK;
}

brim_status brim_data_disk_bytes(const char *path, uint64_t *bytes, uint64_t *files) {
  disk_sum sum = {0};
  *bytes = *files = 0;
  char *real = realpath(path, NULL);  // the path itself may be a link
  if (!real) {
    return brim_fail(brim_errno_status(errno), "%s: %s", path, brim_errno_text(errno));
  }
  sum.root = real;
  brim_status status = walk_tree(real, 0, add_one, &sum);
  brim_folder_seen_deinit(&sum.seen);
  free(real);
  *bytes = sum.bytes;
  *files = sum.files;
  return status;
}

//---------------------------------- the mark ----------------------------------

// Writes the mark into the temporary, which is a folder.
static brim_status mark_target(const brim_pack *pack) {
  uint64_t bytes, files;
  char text[128];
  BRIM_TRY(brim_data_disk_bytes(pack->temp, &bytes, &files));
  int n = snprintf(text, sizeof text, "brim data set\nformat %s\nfiles %" PRIu64 "\n",
                   brim_pack_format_name(pack->options.format), files);
  char *path = brim_fs_join(pack->temp, BRIM_PACK_MARK);
  if (!path) return brim_pack_no_memory(pack);
  brim_status status = brim_fs_write(path, text, (size_t)n);
  brim_free(path);
  return status;
}

// Reads the mark of a folder; *found false if brim did not write one.
static brim_status read_mark(const char *folder, bool *found, brim_pack_format *format,
                             uint64_t *files) {
  char name[16] = "", *text = NULL;
  size_t size = 0;
  struct stat st;
  *found = false;
  char *path = brim_fs_join(folder, BRIM_PACK_MARK);
  if (!path) return brim_fail(BRIM_ENOMEM, "%s: out of memory", folder);
  brim_status status = BRIM_OK;
  if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MAX_MARK) {
    status = brim_fs_read(path, MAX_MARK, &text, &size);
  }
  brim_free(path);
  if (status || !text) return status;
  if (sscanf(text, "brim data set\nformat %15s\nfiles %" SCNu64, name, files) == 2) {
    for (int f = 0; f < BRIM_PACK_FORMAT_COUNT && !*found; f++) {
      *format = (brim_pack_format)f;
      *found = strcmp(brim_pack_format_name(*format), name) == 0;
    }
  }
  brim_free(text);
  return BRIM_OK;
}

//---------------------------------- names that a format writes ----------------------------------

static bool is_one_of(const char *name, const char *const *list) {
  for (; *list; list++) {
    if (strcmp(name, *list) == 0) return true;
  }
  return false;
}

// True for SPLIT, SPLIT/CLASS and SPLIT/CLASS/NUMBER.png.
static bool is_image_entry(const char *inner, bool folder, const char *end) {
  static const char *const splits[] = {"train", "val", "test", NULL};
  char split[16];
  size_t n = strcspn(inner, "/");
  if (n >= sizeof split) return false;
  memcpy(split, inner, n);
  split[n] = '\0';
  if (!is_one_of(split, splits)) return false;
  const char *class = inner[n] ? inner + n + 1 : NULL;
  const char *name = class ? strchr(class, '/') : NULL;
  if (folder) return !name && (!class || class[0] != '.');
  if (!name) return false;
  size_t digits = strspn(++name, "0123456789");
  return digits >= 8 && strcmp(name + digits, end) == 0;
}

// True if a format writes an entry of this name. `inner` is its path relative to the set's folder.
static bool format_writes(brim_pack_format format, const char *inner, bool folder) {
  static const char *const idx[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", NULL};
  static const char *const cifar10[] = {"data_batch_1.bin",
                                        "data_batch_2.bin",
                                        "data_batch_3.bin",
                                        "data_batch_4.bin",
                                        "data_batch_5.bin",
                                        "test_batch.bin",
                                        NULL};
  static const char *const cifar100[] = {"train.bin", "test.bin", NULL};
  static const char *const stl10[] = {"train_X.bin", "train_y.bin",     "test_X.bin",
                                      "test_y.bin",  "unlabeled_X.bin", NULL};
  if (!folder && strcmp(inner, BRIM_PACK_MARK) == 0) return true;
  switch (format) {
    case BRIM_PACK_IDX:
      return !folder && is_one_of(inner, idx);
    case BRIM_PACK_CIFAR10:
      return !folder && is_one_of(inner, cifar10);
    case BRIM_PACK_CIFAR100:
      return !folder && is_one_of(inner, cifar100);
    case BRIM_PACK_STL10:
      return !folder && is_one_of(inner, stl10);
    case BRIM_PACK_PNG:
      return is_image_entry(inner, folder, ".png");
    case BRIM_PACK_JPG:
      return is_image_entry(inner, folder, ".jpg");
    default:
      return false;
  }
}

//---------------------------------- the folder to replace ----------------------------------

// Entries of the folder to replace, children before their folder.
typedef struct old_set {
  char *root;
  dev_t dev;
  brim_pack_format format;
  char **inner;  // paths relative to `root`
  bool *folder;  // for each entry: it is a folder
  size_t count, room;
  uint64_t files;  // without the mark
} old_set;

static void old_free(old_set *old) {
  for (size_t i = 0; i < old->count; i++) brim_free(old->inner[i]);
  brim_free(old->inner);
  brim_free(old->folder);
  brim_free(old->root);
  memset(old, 0, sizeof *old);
}

static brim_status old_add(old_set *old, const char *inner, bool folder) {
  if (old->count == old->room) {
    size_t room = old->room ? 2 * old->room : 64;
    char **names = brim_realloc(old->inner, room * sizeof *names);
    if (names) old->inner = names;
    bool *kinds = names ? brim_realloc(old->folder, room * sizeof *kinds) : NULL;
    if (kinds) old->folder = kinds;
    if (!kinds) return brim_fail(BRIM_ENOMEM, "%s: out of memory", old->root);
    old->room = room;
  }
  old->inner[old->count] = brim_strdup(inner);
  if (!old->inner[old->count]) return brim_fail(BRIM_ENOMEM, "%s: out of memory", old->root);
  old->folder[old->count++] = folder;
  return BRIM_OK;
}

static brim_status list_one(void *ctx, const char *path, const struct stat *st) {
  old_set *old = ctx;
  size_t root = strlen(old->root);
  if (!path[root]) return BRIM_OK;
  const char *inner = path + root + 1;
  bool folder = S_ISDIR(st->st_mode);
  if ((!folder && !S_ISREG(st->st_mode)) || st->st_dev != old->dev ||
      !format_writes(old->format, inner, folder)) {
    return brim_fail(BRIM_EEXIST,
                     "%s holds a file that brim did not write: %s; brim does not replace the "
                     "folder, not even with --force",
                     old->root, inner);
  }
  if (!folder && strcmp(inner, BRIM_PACK_MARK) != 0) old->files++;
  return old_add(old, inner, folder);
}

static bool is_within(const char *path, const char *folder) {
  size_t n = strlen(folder);
  if (n == 1) return true;  // "/"
  return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

// Fails if `folder` (its real path: `real`) is, or contains, a place that must never be deleted.
static brim_status keep_place(const char *folder, const char *real, const char *place,
                              const char *what) {
  char *place_path = place && place[0] ? realpath(place, NULL) : NULL;
  bool inside = place_path && is_within(place_path, real);
  free(place_path);
  if (!inside) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s is not replaced: it is, or holds, %s", folder, what);
}

static brim_status check_place(const brim_pack *pack, const char *folder) {
  struct stat own, parent;
  char *real = realpath(folder, NULL), *up = real ? brim_fs_join(real, "..") : NULL;
  char *program = brim_fs_exe_dir();
  brim_status status = BRIM_OK;
  if (!real) {
    status = brim_fail(brim_errno_status(errno), "%s: %s", folder, brim_errno_text(errno));
  } else if (!up || !program) {
    status = brim_pack_no_memory(pack);
  } else if (stat(real, &own) != 0 || stat(up, &parent) != 0 || own.st_dev != parent.st_dev ||
             own.st_ino == parent.st_ino) {
    status = brim_fail(BRIM_EINVAL, "%s is not replaced: it is the root of a file system", folder);
  }
  if (!status) status = keep_place(folder, real, ".", brim_tr("the current folder"));
  if (!status) status = keep_place(folder, real, getenv("HOME"), brim_tr("your home folder"));
  if (!status) status = keep_place(folder, real, program, brim_tr("the program"));
  if (!status) status = keep_place(folder, real, pack->options.input, brim_tr("the data to read"));
  brim_free(program);
  brim_free(up);
  free(real);
  return status;
}

// Lists a folder's content; fails unless the folder may be deleted: it is empty, or holds a set written
// by brim and nothing else.
static brim_status list_old(const brim_pack *pack, const char *path, old_set *old) {
  struct stat st;
  char **names;
  size_t count;
  uint64_t files = 0;
  bool marked = false;
  memset(old, 0, sizeof *old);
  if (lstat(path, &st) != 0 || S_ISLNK(st.st_mode)) {
    return brim_fail(BRIM_EEXIST, "%s is a link; name the folder that it points to", path);
  }
  BRIM_TRY(check_place(pack, path));
  BRIM_TRY(brim_fs_list(path, &names, &count));
  char *first = count ? brim_strdup(names[0]) : NULL;
  brim_fs_list_free(names, count);
  if (count == 0) return BRIM_OK;
  if (!first) return brim_pack_no_memory(pack);
  brim_status status = read_mark(path, &marked, &old->format, &files);
  if (!status && !marked) {
    status = brim_fail(BRIM_EEXIST,
                       "%s is a folder that brim did not write (it holds %s, and no " BRIM_PACK_MARK
                       "); it is not replaced, not even with --force",
                       path, first);
  }
  brim_free(first);
  BRIM_TRY(status);
  old->dev = st.st_dev;
  old->root = brim_strdup(path);
  status = old->root ? walk_tree(path, 0, list_one, old) : brim_pack_no_memory(pack);
  if (!status && old->files > files) {
    status = brim_fail(BRIM_EEXIST,
                       "%s holds %" PRIu64 " files, but brim wrote %" PRIu64
                       "; brim does not replace the folder, not even with --force",
                       path, old->files, files);
  }
  if (status) old_free(old);
  return status;
}

// Checks that the target may be written. The detail of BRIM_EEXIST and BRIM_EINVAL says why not.
static brim_status check_target(const brim_pack *pack, bool folder) {
  struct stat st;
  old_set old;
  if (stat(pack->path, &st) != 0) {
    if (errno == ENOENT) return BRIM_OK;
    return brim_fail(brim_errno_status(errno), "cannot write %s: %s", pack->path,
                     brim_errno_text(errno));
  }
  const char *format = brim_pack_format_name(pack->options.format);
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
    return brim_fail(BRIM_EINVAL, "cannot write %s: it exists and is neither a file nor a folder",
                     pack->path);
  }
  if (folder != (S_ISDIR(st.st_mode) != 0)) {
    return brim_fail(BRIM_EEXIST, "%s is a %s, but %s is written as a %s", pack->path,
                     folder ? "file" : "folder", format, folder ? "folder" : "file");
  }
  if (!pack->options.replace) {
    return brim_fail(BRIM_EEXIST, "%s already exists; --force replaces it", pack->path);
  }
  if (!folder) return BRIM_OK;
  BRIM_TRY(list_old(pack, pack->path, &old));
  old_free(&old);
  return BRIM_OK;
}

//---------------------------------- replacing the target ----------------------------------

// Removes the old set, now at `aside`: only listed entries. A file added meanwhile stays, in its folders.
static void remove_listed(const old_set *old, const char *path, const char *aside) {
  int err = 0;
  int fd = open(aside, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) err = errno;
  for (size_t i = 0; i < old->count && fd >= 0; i++) {
    if (unlinkat(fd, old->inner[i], old->folder[i] ? AT_REMOVEDIR : 0) != 0 && !err) err = errno;
  }
  if (fd >= 0) close(fd);
  if (rmdir(aside) == 0) return;
  if (!err) err = errno;
  brim_log_warn("data", "%s: cannot remove the previous content (%s); it is now %s", path,
                brim_errno_text(err), aside);
}

// True if the file system or the kernel does not support renameat2 with flags.
static bool is_unsupported(int err) { return err == EINVAL || err == ENOSYS || err == ENOTSUP; }

int brim_data_take_new(const char *temp, const char *path, bool folder) {
  if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0) return 0;
  if (!is_unsupported(errno)) return errno;
  if (!folder && link(temp, path) == 0) return unlink(temp) == 0 ? 0 : errno;
  if (!folder && errno == EEXIST) return EEXIST;
  // Without hard links, and for folders: reserve the name with an empty file or folder, then replace it.
  int fd = -1;
  int claimed =
      folder ? mkdir(path, 0777) : (fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (claimed < 0) return errno;
  if (fd >= 0) close(fd);
  return rename(temp, path) == 0 ? 0 : errno;
}

static bool swap_names(const char *a, const char *b) {
  return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
}

// Deletes the old set, now at `aside`. Lists it again first: if another process has added a file
// meanwhile, the old set gets its name back and this fails.
static brim_status remove_old(brim_pack *pack, const char *aside, bool swapped) {
  old_set old = {0};
  brim_status status = list_old(pack, aside, &old);
  if (!status) {
    remove_listed(&old, pack->path, aside);
    old_free(&old);
    return BRIM_OK;
  }
  bool back = swapped ? swap_names(aside, pack->path)
                      : rename(pack->path, pack->temp) == 0 && rename(aside, pack->path) == 0;
  if (!back) {
    brim_log_error("data", "%s could not take its place and is now %s", pack->path, aside);
    pack->temp[0] = '\0';  // it may hold the old set: do not remove it
  }
  return status;
}

// A folder cannot be renamed over a folder with files. So the two exchange names: the target's name
// always exists, and a process killed here leaves the old set as a temporary. On file systems without
// exchange the old folder is first renamed to TEMP.old, which nothing removes as stale.
static brim_status replace_folder(brim_pack *pack) {
  if (swap_names(pack->temp, pack->path)) return remove_old(pack, pack->temp, true);
  int err = is_unsupported(errno) ? 0 : errno;
  size_t size = strlen(pack->temp) + 8;
  char *aside = brim_alloc(size);
  if (!aside) return brim_pack_no_memory(pack);
  snprintf(aside, size, "%s.old", pack->temp);
  if (!err && rename(pack->path, aside) != 0) err = errno;
  if (!err && rename(pack->temp, pack->path) != 0) {
    err = errno;
    if (rename(aside, pack->path) != 0) {
      brim_log_error("data", "%s could not take its place and is now %s", pack->path, aside);
    }
  }
  brim_status status = err ? brim_fail(brim_errno_status(err), "cannot replace %s: %s", pack->path,
                                       brim_errno_text(err))
                           : remove_old(pack, aside, false);
  brim_free(aside);
  return status;
}

// Moves the entries `names`, the mark last: a partly filled folder has no mark. If an entry cannot be
// moved, the moved ones go back. Returns an errno.
static int move_entries(int from, int to, char *const *names, size_t count) {
  int err = 0;
  size_t done = 0;
  for (; done < 2 * count && !err; done++) {
    const char *name = names[done % count];
    bool mark = strcmp(name, BRIM_PACK_MARK) == 0;
    if (mark != (done >= count)) continue;
    if (renameat2(from, name, to, name, RENAME_NOREPLACE) == 0) continue;
    err = is_unsupported(errno) ? 0 : errno;
    if (!err && renameat(from, name, to, name) != 0) err = errno;
  }
  if (!err) return 0;
  for (size_t i = 0; i + 1 < done; i++) {
    const char *name = names[i % count];
    bool mark = strcmp(name, BRIM_PACK_MARK) == 0;
    if (mark == (i >= count)) (void)!renameat(to, name, from, name);
  }
  return err;
}

// Moves the entries into the target, an empty folder, which keeps its owner and permissions.
static brim_status fill_folder(brim_pack *pack) {
  char **names = NULL;
  size_t count = 0;
  BRIM_TRY(brim_fs_list(pack->temp, &names, &count));
  int from = open(pack->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int to = from < 0 ? -1 : open(pack->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int err = to < 0 ? errno : move_entries(from, to, names, count);
  if (to >= 0) (void)!fsync(to);  // not every file system syncs folders
  if (to >= 0) close(to);
  if (from >= 0) close(from);
  brim_fs_list_free(names, count);
  if (err) {
    return brim_fail(brim_errno_status(err), "cannot write %s: %s", pack->path,
                     brim_errno_text(err));
  }
  if (rmdir(pack->temp) == 0) return BRIM_OK;
  brim_log_warn("data", "cannot remove the remaining %s: %s", pack->temp, brim_errno_text(errno));
  return BRIM_OK;
}

static brim_status replace_or_fill(brim_pack *pack, const struct stat *st) {
  old_set old = {0};
  BRIM_TRY(list_old(pack, pack->path, &old));  // it may have changed since check_target
  size_t count = old.count;
  old_free(&old);
  if (!count) return fill_folder(pack);
  if (chmod(pack->temp, st->st_mode & 07777) != 0) {
    return brim_fail(brim_errno_status(errno), "cannot write %s: %s", pack->path,
                     brim_errno_text(errno));
  }
  return replace_folder(pack);
}

// Gives the temporary the target's name. Only then is the old content removed, and of a folder only
// listed entries. Without `replace`, if several processes write the target, one gets the name and the
// others BRIM_EEXIST.
static brim_status take_target(brim_pack *pack, bool folder) {
  struct stat st;
  bool exists = stat(pack->path, &st) == 0;
  if (exists && pack->options.replace && S_ISDIR(st.st_mode)) return replace_or_fill(pack, &st);
  int err = 0;
  if (pack->options.replace && !folder) {
    err = rename(pack->temp, pack->path) == 0 ? 0 : errno;
  } else {
    err = exists && !pack->options.replace ? EEXIST
                                           : brim_data_take_new(pack->temp, pack->path, folder);
  }
  if (err == EEXIST) {
    return brim_fail(BRIM_EEXIST,
                     "%s appeared in the meantime: another process wrote it; --force replaces it",
                     pack->path);
  }
  if (!err) return BRIM_OK;
  return brim_fail(brim_errno_status(err), "cannot write %s: %s", pack->path, brim_errno_text(err));
}

//---------------------------------- temporaries left behind ----------------------------------

static int hold_temp(const char *temp) {
  int fd = open(temp, O_RDONLY | O_CLOEXEC);
  // A shared lock, because libhdf5 takes one too on a file that it reads.
  if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// True if no process holds the temporary. On file systems without locks it never counts as free.
static bool is_free(const char *path, bool folder) {
  int fd = open(path, (folder ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return locked;
}

typedef struct stale_set {
  size_t root;  // length of its path
  int64_t pid;  // its writer
  dev_t dev;
  bool remove;  // false: only check the entries
} stale_set;

// True if `inner` is a name that a pack writes, or the temporary of such a file.
static bool is_written_name(const stale_set *s, const char *inner, bool folder) {
  char name[4096];
  size_t n = strlen(inner), target;
  const char *base = brim_fs_basename(inner);
  if (!folder && brim_fs_temp_writer(base, &target) == s->pid) n = (size_t)(base - inner) + target;
  if (n >= sizeof name) return false;
  memcpy(name, inner, n);
  name[n] = '\0';
  for (int f = BRIM_PACK_IDX; f < BRIM_PACK_FORMAT_COUNT; f++) {
    if (format_writes((brim_pack_format)f, name, folder)) return true;
  }
  return false;
}

static brim_status check_or_remove(void *ctx, const char *path, const struct stat *st) {
  const stale_set *s = ctx;
  bool folder = S_ISDIR(st->st_mode), root = strlen(path) == s->root;
  if ((!folder && !S_ISREG(st->st_mode)) || st->st_dev != s->dev ||
      (!root && !is_written_name(s, path + s->root + 1, folder))) {
    return brim_fail(BRIM_EEXIST, "%s is not brim's", path);
  }
  if (!s->remove || (folder ? rmdir(path) : unlink(path)) == 0) return BRIM_OK;
  return brim_fail(BRIM_EIO, "%s stays", path);
}

static void remove_set(const char *path, int64_t pid, const struct stat *st) {
  stale_set s = {.root = strlen(path), .pid = pid, .dev = st->st_dev};
  brim_status status = walk_tree(path, 0, check_or_remove, &s);
  s.remove = true;
  if (!status) status = walk_tree(path, 0, check_or_remove, &s);
  if (status) {
    brim_log_info("data", "cannot remove %s, which a terminated process left: %s", path,
                  brim_status_detail());
    brim_status_clear();  // the caller's write does not depend on it
  } else {
    brim_log_info("data", "removed %s, which a terminated process left", path);
  }
}

void brim_data_remove_stale(const char *target_path, bool folder) {
  const char *base = brim_fs_basename(target_path);
  char *dir = brim_fs_dirname(target_path), **names = NULL;
  size_t count = 0;
  if (!dir || brim_fs_list(dir, &names, &count)) brim_status_clear();
  for (size_t i = 0; i < count; i++) {
    size_t target;
    struct stat st;
    int64_t pid = brim_fs_temp_writer(names[i], &target);
    if (!pid || target != strlen(base) || strncmp(names[i], base, target) != 0) continue;
    // In containers writers may share this process id: the lock (is_free) decides.
    if (pid != getpid() && !brim_fs_writer_gone(pid)) continue;
    char *path = brim_fs_join(dir, names[i]);
    if (path && lstat(path, &st) == 0 && (folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)) &&
        is_free(path, folder)) {
      remove_set(path, pid, &st);
    }
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  brim_free(dir);
}

enum { TEMP_TRIES = 1000 };

//---------------------------------- checks ----------------------------------

static void shape_text(const brim_source_info *info, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < info->rank; i++) {
    int n = snprintf(out + used, size - used, "%s%lld", i ? ", " : "", (long long)info->dim[i]);
    if (n < 0 || (size_t)n >= size - used) return;
    used += (size_t)n;
  }
}

// Checks samples for a format of images (side, side, 3) of bytes with at most `classes` classes.
static brim_status check_fixed(const char *name, const brim_source_info *info, int64_t side,
                               int64_t classes, bool unlabeled) {
  char shape[96];
  shape_text(info, shape, sizeof shape);
  if (info->type != BRIM_SAMPLE_U8 || info->rank != 3 || info->dim[0] != side ||
      info->dim[1] != side || info->dim[2] != 3) {
    return brim_fail(BRIM_EINVAL,
                     "%s files hold bytes of shape (%lld, %lld, 3); these samples are %s of (%s)",
                     name, (long long)side, (long long)side,
                     info->type == BRIM_SAMPLE_U8 ? "bytes" : "floats", shape);
  }
  if (!unlabeled && (info->classes < 1 || info->classes > classes)) {
    return brim_fail(BRIM_EINVAL,
                     "%s files hold labels of at most %lld classes, but the data has %lld; write "
                     "hdf5, idx or a folder",
                     name, (long long)classes, (long long)info->classes);
  }
  return BRIM_OK;
}

static brim_status check_images(const brim_source_info *info) {
  int64_t channels = info->rank == 3 ? info->dim[2] : info->rank == 2 ? 1 : 0;
  if (info->type != BRIM_SAMPLE_U8 || (channels != 1 && channels != 3)) {
    return brim_fail(BRIM_EINVAL,
                     "images are made of bytes of shape (height, width), (height, width, 1) or "
                     "(height, width, 3); these samples are something else");
  }
  if (info->classes < 1) {
    return brim_fail(BRIM_EINVAL,
                     "a folder of images has one folder per class; these samples have "
                     "no classes");
  }
  return BRIM_OK;
}

static brim_status check_idx(const brim_source_info *info) {
  if (info->rank > 3) {
    return brim_fail(BRIM_EINVAL, "IDX files hold samples of up to 3 dimensions; these have %d",
                     info->rank);
  }
  if (info->count > INT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "IDX files hold up to %d samples; these are %llu", INT32_MAX,
                     (unsigned long long)info->count);
  }
  if (info->classes == 0 && info->target_dim == 0) {
    return brim_fail(BRIM_EINVAL, "IDX files come with labels; these samples have none");
  }
  return BRIM_OK;
}

brim_status brim_pack_check(brim_pack_format format, const char *split,
                            const brim_source_info *info) {
  bool unlabeled = strcmp(split, "unlabeled") == 0, test = strcmp(split, "test") == 0;
  bool all = strcmp(split, "all") == 0;
  if (format != BRIM_PACK_HDF5 && (unlabeled || all) && !(format == BRIM_PACK_STL10 && unlabeled)) {
    return brim_fail(BRIM_EINVAL, "%s has no split '%s'; convert it to hdf5, or use another split",
                     brim_pack_format_name(format), split);
  }
  bool fixed = format == BRIM_PACK_IDX || format == BRIM_PACK_CIFAR10 ||
               format == BRIM_PACK_CIFAR100 || format == BRIM_PACK_STL10;
  if (fixed && strcmp(split, "val") == 0) {
    return brim_fail(BRIM_EINVAL,
                     "%s has the splits train and test only; convert to hdf5 or to a folder, which "
                     "have val too",
                     brim_pack_format_name(format));
  }
  switch (format) {
    case BRIM_PACK_IDX:
      return check_idx(info);
    case BRIM_PACK_CIFAR10:
      if (!test && info->count < 5) {
        return brim_fail(BRIM_EINVAL, "CIFAR-10's training set is five files: 5 samples at least");
      }
      return check_fixed("CIFAR-10", info, BRIM_CIFAR_SIDE, 10, false);
    case BRIM_PACK_CIFAR100:
      return check_fixed("CIFAR-100", info, BRIM_CIFAR_SIDE, 100, false);
    case BRIM_PACK_STL10:
      return check_fixed("STL-10", info, BRIM_STL10_SIDE, 10, unlabeled);
    case BRIM_PACK_PNG:
    case BRIM_PACK_JPG:
      return check_images(info);
    default:
      return BRIM_OK;
  }
}

//---------------------------------- the temporary ----------------------------------

static brim_status make_temp(brim_pack *pack, size_t size) {
  int err = EEXIST;
  for (int n = 0; n < TEMP_TRIES && err == EEXIST; n++) {
    snprintf(pack->temp, size, "%s" BRIM_FS_TEMP_MARK "%ld.%d", pack->path, (long)getpid(), n);
    if (formats[pack->options.format].folder) {
      if (mkdir(pack->temp, 0777) == 0) return BRIM_OK;
      err = errno;
      continue;
    }
    int fd = open(pack->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
      close(fd);
      return BRIM_OK;
    }
    err = errno;
  }
  return brim_fail(err == ENOENT ? BRIM_ENOENT : brim_errno_status(err), "cannot write %s: %s",
                   pack->path, brim_errno_text(err));
}

static void pack_free(brim_pack *pack) {
  if (pack->hold >= 0) close(pack->hold);
  brim_free(pack->temp);
  brim_free(pack->path);
  brim_free(pack);
}

brim_status brim_pack_create(const char *path, const brim_pack_options *options, brim_pack **out) {
  *out = NULL;
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;  // the temporary goes beside the target, not into it
  brim_pack *pack = brim_calloc(1, sizeof *pack);
  if (!pack) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  pack->hold = -1;
  pack->options = *options;
  pack->writer = formats[options->format].writer;
  pack->path = brim_strndup(path, n);
  pack->temp = brim_alloc(n + 48);
  brim_status status = pack->path && pack->temp
                           ? check_target(pack, formats[options->format].folder)
                           : brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  if (!status) brim_data_remove_stale(pack->path, formats[options->format].folder);
  if (!status) status = make_temp(pack, n + 48);
  if (status) {
    pack_free(pack);
    return status;
  }
  pack->hold = hold_temp(pack->temp);
  status = pack->writer->open(pack);
  if (status) {
    brim_pack_abort(pack);
    return status;
  }
  *out = pack;
  return BRIM_OK;
}

//---------------------------------- samples ----------------------------------

brim_status brim_pack_begin(brim_pack *pack, const char *split, const brim_source_info *info) {
  if (pack->open || pack->sealed) {
    return brim_fail(BRIM_ESTATE, "%s: a split is begun before the last one ended", pack->path);
  }
  BRIM_TRY(brim_pack_check(pack->options.format, split, info));
  pack->info = *info;
  pack->written = 0;
  snprintf(pack->split, sizeof pack->split, "%s", split);
  pack->input_bytes = info->type == BRIM_SAMPLE_U8 ? 1 : sizeof(float);
  for (int i = 0; i < info->rank; i++) pack->input_bytes *= (size_t)info->dim[i];
  pack->target_bytes =
      info->classes > 0 ? sizeof(int32_t) : (size_t)info->target_dim * sizeof(float);
  BRIM_TRY(pack->writer->begin(pack));
  pack->open = true;
  return BRIM_OK;
}

uint64_t brim_pack_granule(const brim_pack *pack) {
  return pack->writer->granule ? pack->writer->granule(pack) : 1;
}

brim_status brim_pack_put(brim_pack *pack, const void *inputs, const void *targets,
                          uint64_t count) {
  if (!pack->open || count > pack->info.count - pack->written) {
    return brim_fail(BRIM_ESTATE, "%s: more samples than split %s was begun with", pack->path,
                     pack->split);
  }
  bool last = pack->written + count == pack->info.count;
  if (!last && count % brim_pack_granule(pack) != 0) {
    return brim_fail(BRIM_EINVAL, "%s: a block of %llu samples does not end with a chunk",
                     pack->path, (unsigned long long)count);
  }
  BRIM_TRY(pack->writer->put(pack, inputs, targets, count));
  pack->written += count;
  return BRIM_OK;
}

brim_status brim_pack_end(brim_pack *pack) {
  if (!pack->open || pack->written != pack->info.count) {
    return brim_fail(BRIM_ESTATE, "%s: split %s ended after %llu of %llu samples", pack->path,
                     pack->split, (unsigned long long)pack->written,
                     (unsigned long long)pack->info.count);
  }
  pack->open = false;
  return pack->writer->end(pack);
}

uint64_t brim_pack_bytes(const brim_pack *pack) {
  uint64_t bytes, files;
  if (brim_data_disk_bytes(pack->temp, &bytes, &files)) brim_status_clear();
  return bytes;
}

//---------------------------------- the end ----------------------------------

brim_status brim_pack_seal(brim_pack *pack, const char **temporary) {
  if (pack->open || pack->sealed) {
    return brim_fail(BRIM_ESTATE, "%s: sealed before its last split ended", pack->path);
  }
  pack->sealed = true;  // close is called once
  BRIM_TRY(pack->writer->close(pack, true));
  if (formats[pack->options.format].folder) BRIM_TRY(mark_target(pack));
  *temporary = pack->temp;
  return BRIM_OK;
}

static brim_status remove_one(void *ctx, const char *path, const struct stat *st) {
  (void)ctx;
  if ((S_ISDIR(st->st_mode) ? rmdir(path) : unlink(path)) == 0) return BRIM_OK;
  return brim_fail(brim_errno_status(errno), "cannot remove %s: %s", path, brim_errno_text(errno));
}

// Removes the temporary if possible. Keeps the detail of the failure that led here.
static void remove_temp(brim_pack *pack) {
  char detail[1024];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  brim_status removed = walk_tree(pack->temp, 0, remove_one, NULL);
  (void)removed;
  brim_status_set_detail(detail);
}

static brim_status sync_path(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return brim_fail(BRIM_EIO, "cannot read %s: %s", path, brim_errno_text(errno));
  int failed = fsync(fd), err = errno;
  close(fd);
  if (failed && err != EINVAL && err != ENOTSUP) {
    return brim_fail(BRIM_EIO, "cannot write %s: %s", path, brim_errno_text(err));
  }
  return BRIM_OK;
}

static brim_status sync_one(void *ctx, const char *path, const struct stat *st) {
  (void)ctx, (void)st;
  return sync_path(path);
}

// Syncs every file and folder of the set before it gets its name. An fsync waits for the disk (2.5 ms on
// a virtual disk, ext4), so more than FEW files are synced by one syncfs of the whole file system.
static brim_status sync_set(const brim_pack *pack) {
  enum { FEW = 64 };
  uint64_t bytes, files;
  BRIM_TRY(brim_data_disk_bytes(pack->temp, &bytes, &files));
  int fd = files > FEW ? open(pack->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  bool synced = fd >= 0 && syncfs(fd) == 0;
  if (fd >= 0) close(fd);
  return synced ? BRIM_OK : walk_tree(pack->temp, 0, sync_one, NULL);
}

brim_status brim_pack_commit(brim_pack *pack) {
  bool folder = formats[pack->options.format].folder;
  brim_status status =
      !pack->sealed ? brim_fail(BRIM_ESTATE, "%s: committed before it was sealed", pack->path)
      : folder      ? sync_set(pack)
                    : sync_path(pack->temp);
  if (!status) status = take_target(pack, folder);
  if (!status) {
    char *parent = brim_fs_dirname(pack->path);
    if (parent && sync_path(parent)) brim_status_clear();  // not every file system syncs folders
    brim_free(parent);
    pack_free(pack);
    return BRIM_OK;
  }
  brim_pack_abort(pack);
  return status;
}

void brim_pack_abort(brim_pack *pack) {
  if (!pack) return;
  if (!pack->sealed) {
    char detail[1024];
    snprintf(detail, sizeof detail, "%s", brim_status_detail());
    brim_status closed = pack->writer->close(pack, false);
    (void)closed;
    brim_status_set_detail(detail);
  }
  remove_temp(pack);
  pack_free(pack);
}
