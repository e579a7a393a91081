// Files: reading whole, writing whole or not at all, locks, folders and paths.

#include "base/base_fs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
#include "base/base_alloc.h"
#include "base/base_status.h"
#include "base/base_xxh64.h"

//-------------------------------------- reading and paths --------------------------------------

static brim_status out_of_memory(const char *path) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
}

// Reads to the end of fd. `guess` is stat's size, which may be wrong: it is 0 in /proc, and files grow.
static brim_status read_all(int fd, const char *path, size_t guess, size_t max_bytes, char **out,
                            size_t *out_size) {
  size_t cap = guess + 1, len = 0;
  char *data = brim_alloc(cap + 1);
  if (!data) return out_of_memory(path);
  for (;;) {
    if (len == cap) {
      char *grown = cap > SIZE_MAX / 4 ? NULL : brim_realloc(data, cap * 2 + 4096 + 1);
      if (!grown) {
        brim_free(data);
        return out_of_memory(path);
      }
      data = grown;
      cap = cap * 2 + 4096;
    }
    ssize_t n = read(fd, data + len, cap - len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int err = errno;
      brim_free(data);
      return brim_fail(BRIM_EIO, "cannot read %s: %s", path, brim_errno_text(err));
    }
    if (n == 0) break;
    len += (size_t)n;
    if (max_bytes && len > max_bytes) {
      brim_free(data);
      return brim_fail(BRIM_ELIMIT, "%s is larger than the limit of %zu bytes", path, max_bytes);
    }
  }
  data[len] = '\0';
  *out = data;
  if (out_size) *out_size = len;
  return BRIM_OK;
}

brim_status brim_fs_open_status(int err) {
  static const int refused[] = {EACCES, EPERM, EISDIR, ELOOP, ENAMETOOLONG, ENXIO};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    if (err == refused[i]) return BRIM_EINVAL;
  }
  return brim_errno_status(err);
}

// O_NONBLOCK, since opening a FIFO would wait for a writer.
brim_status brim_fs_open_regular(const char *path, int *out, uint64_t *size) {
  *out = -1;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    int err = errno;
    return brim_fail(brim_fs_open_status(err), "cannot open %s: %s", path, brim_errno_text(err));
  }
  struct stat st;
  brim_status status = BRIM_OK;
  if (fstat(fd, &st) != 0) {
    status = brim_fail(BRIM_EIO, "cannot read %s: %s", path, brim_errno_text(errno));
  } else if (S_ISDIR(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL, "%s is a folder, not a file", path);
  } else if (!S_ISREG(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL,
                       "%s is not a regular file but a pipe, a socket or a device; brim reads "
                       "regular files",
                       path);
  }
  if (status) {
    close(fd);
    return status;
  }
  *size = (uint64_t)st.st_size;
  *out = fd;
  return BRIM_OK;
}

brim_status brim_fs_read(const char *path, size_t max_bytes, char **out, size_t *out_size) {
  *out = NULL;
  if (out_size) *out_size = 0;
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(path, &fd, &size));
  brim_status status = BRIM_OK;
  if (max_bytes && size > max_bytes) {
    status = brim_fail(BRIM_ELIMIT, "%s is larger than the limit of %zu bytes", path, max_bytes);
  } else {
    status = read_all(fd, path, (size_t)size, max_bytes, out, out_size);
  }
  close(fd);
  return status;
}

brim_status brim_fs_append_line(const char *path, const char *line) {
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) {
    int err = errno;
    return brim_fail(brim_errno_status(err), "cannot open %s: %s", path, brim_errno_text(err));
  }
  struct stat before = {0};
  bool regular = fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
  char newline[] = "\n";
  size_t length = strlen(line);
  struct iovec parts[2] = {{.iov_base = (char *)(uintptr_t)line, .iov_len = length},
                           {.iov_base = newline, .iov_len = 1}};
  ssize_t n;
  do {
    n = writev(fd, parts, 2);
  } while (n < 0 && errno == EINTR);
  int err = n < 0 ? errno : (size_t)n != length + 1 ? ENOSPC : 0;
  // Remove half a line, or the next line would be appended to it.
  if (n > 0 && err && regular) (void)!ftruncate(fd, before.st_size);
  if (close(fd) != 0 && !err) err = errno;
  if (err) return brim_fail(BRIM_EIO, "cannot write %s: %s", path, brim_errno_text(err));
  return BRIM_OK;
}

bool brim_fs_exists(const char *path) {
  struct stat st;
  return stat(path, &st) == 0;
}

bool brim_fs_same(const char *a, const char *b) {
  struct stat sa, sb;
  return a && b && stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

bool brim_fs_is_dir(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

brim_status brim_fs_size(const char *path, uint64_t *out) {
  struct stat st;
  if (stat(path, &st) != 0) {
    int err = errno;
    return brim_fail(brim_errno_status(err), "cannot access %s: %s", path, brim_errno_text(err));
  }
  *out = (uint64_t)st.st_size;
  return BRIM_OK;
}

// Creates a folder unless it exists. Keeps mkdir's errno.
static brim_status make_folder(const char *path) {
  if (mkdir(path, 0777) == 0) return BRIM_OK;
  int err = errno;
  struct stat st;
  bool exists = stat(path, &st) == 0;
  if (exists && S_ISDIR(st.st_mode)) return BRIM_OK;
  if (exists) {
    return brim_fail(BRIM_EEXIST, "cannot create folder %s: %s is a file, not a folder", path,
                     path);
  }
  return brim_fail(brim_errno_status(err), "cannot create folder %s: %s", path,
                   brim_errno_text(err));
}

brim_status brim_fs_mkdirs(const char *path) {
  if (!*path) return brim_fail(BRIM_EINVAL, "cannot create a folder without a name");
  char *copy = brim_strdup(path);
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory while making folder %s", path);
  brim_status status = BRIM_OK;
  for (char *p = copy + 1; !status; p++) {
    bool end = *p == '\0';
    if (!end && *p != '/') continue;
    *p = '\0';
    status = make_folder(copy);
    if (end) break;
    *p = '/';
  }
  brim_free(copy);
  return status;
}

brim_status brim_fs_remove(const char *path) {
  if (remove(path) != 0) {
    int err = errno;
    return brim_fail(brim_errno_status(err), "cannot remove %s: %s", path, brim_errno_text(err));
  }
  return BRIM_OK;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

void brim_fs_list_free(char **names, size_t count) {
  for (size_t i = 0; names && i < count; i++) brim_free(names[i]);
  brim_free(names);
}

// Adds a name. False when out of memory; the list stays valid.
static bool list_add(char ***names, size_t *count, size_t *cap, const char *name) {
  if (*count == *cap) {
    size_t larger = *cap ? *cap * 2 : 16;
    char **grown = brim_realloc(*names, larger * sizeof **names);
    if (!grown) return false;
    *names = grown;
    *cap = larger;
  }
  (*names)[*count] = brim_strdup(name);
  if (!(*names)[*count]) return false;
  (*count)++;
  return true;
}

brim_status brim_fs_list(const char *path, char ***names, size_t *count) {
  *names = NULL;
  *count = 0;
  DIR *dir = opendir(path);
  if (!dir) {
    int err = errno;
    return brim_fail(brim_errno_status(err), "cannot list folder %s: %s", path,
                     brim_errno_text(err));
  }
  brim_status status = BRIM_OK;
  size_t cap = 0;
  for (;;) {
    errno = 0;
    struct dirent *entry = readdir(dir);
    if (!entry && errno) {
      status = brim_fail(BRIM_EIO, "cannot list folder %s: %s", path, brim_errno_text(errno));
      break;
    }
    if (!entry) break;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (!list_add(names, count, &cap, entry->d_name)) {
      status = brim_fail(BRIM_ENOMEM, "out of memory while listing folder %s", path);
      break;
    }
  }
  closedir(dir);
  if (status) {
    brim_fs_list_free(*names, *count);
    *names = NULL;
    *count = 0;
  } else if (*count) {
    qsort(*names, *count, sizeof **names, compare_names);
  }
  return status;
}

char *brim_fs_join(const char *dir, const char *name) {
  if (!dir || !*dir || name[0] == '/') return brim_strdup(name);
  size_t n = strlen(dir), m = strlen(name);
  bool slash = dir[n - 1] != '/';
  char *path = brim_alloc(n + slash + m + 1);
  if (!path) return NULL;
  memcpy(path, dir, n);
  if (slash) path[n] = '/';
  memcpy(path + n + slash, name, m + 1);
  return path;
}

const char *brim_fs_basename(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

char *brim_fs_dirname(const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return brim_strdup(".");
  while (slash > path && slash[-1] == '/') slash--;
  return slash == path ? brim_strdup("/") : brim_strndup(path, (size_t)(slash - path));
}

static ssize_t exe_path(char path[PATH_MAX]) {
  const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
  if (n > 0) path[n] = '\0';
  return n;
}

brim_status brim_fs_exe(char **out) {
  char path[PATH_MAX];
  *out = NULL;
  if (exe_path(path) <= 0) {
    return brim_fail(BRIM_EIO, "cannot find brim's own program: %s", brim_errno_text(errno));
  }
  *out = brim_strdup(path);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a path");
}

char *brim_fs_exe_dir(void) {
  char path[PATH_MAX];
  return exe_path(path) > 0 ? brim_fs_dirname(path) : NULL;
}

//---------------------------------- atomic writing ----------------------------------
// Atomic writing: the target appears whole or stays as it was. The temporary file is beside the target, since
// rename works only within a file system. It is removed unless it is committed.

enum { BUFFER_SIZE = 16 * 1024, COPY_SIZE = 256 * 1024, TEMP_TRIES = 1000 };

struct brim_fs_writer {
  char *path;
  char *temp;
  int fd;
  brim_status status;  // the first failure sticks: a file with a hole is never committed
  brim_xxh64 *sum;     // checksum of the written bytes; NULL = none
  size_t used;
  char buffer[BUFFER_SIZE];
};

// The size of the buffer for the name of a temporary file.
static size_t temp_size(const char *path) { return strlen(path) + 48; }

static void name_temp(char *temp, size_t size, const char *path, int n) {
  snprintf(temp, size, "%s" BRIM_FS_TEMP_MARK "%ld.%d", path, (long)getpid(), n);
}

// Opens with O_EXCL, so that no other writer of the same target gets this name.
static brim_status open_temp(brim_fs_writer *w, mode_t mode) {
  int err = EEXIST;
  for (int n = 0; n < TEMP_TRIES && err == EEXIST; n++) {
    name_temp(w->temp, temp_size(w->path), w->path, n);
    w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (w->fd >= 0) return BRIM_OK;
    err = errno;
  }
  return brim_fail(brim_errno_status(err), "cannot write %s: %s", w->path, brim_errno_text(err));
}

// Best effort: copies owner and permissions. Permissions of another user's file, or of a file behind a link, may
// only restrict the new file, never open it to more users.
static void keep_permissions(brim_fs_writer *w, const struct stat *target) {
  struct stat name, made;
  mode_t mode = target->st_mode & 0777;
  if (lstat(w->path, &name) != 0 || fstat(w->fd, &made) != 0) return;
  bool own = S_ISREG(name.st_mode) && name.st_uid == geteuid();
  if (!own) mode = made.st_mode & (mode | S_IRUSR | S_IWUSR) & 0777;
  (void)!fchmod(w->fd, mode);
}

static void writer_free(brim_fs_writer *w) {
  brim_free(w->temp);
  brim_free(w->path);
  brim_free(w);
}

brim_status brim_fs_writer_open(const char *path, brim_fs_writer **out) {
  *out = NULL;
  struct stat st;
  bool there = stat(path, &st) == 0;
  // a rename would replace a device or a pipe
  if (there && !S_ISREG(st.st_mode)) {
    return brim_fail(BRIM_EINVAL, "cannot write %s: it exists and is not a regular file", path);
  }
  brim_fs_writer *w = brim_alloc(sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  w->path = brim_strdup(path);
  w->temp = brim_alloc(temp_size(path));
  w->status = BRIM_OK;
  w->used = 0;
  w->sum = NULL;
  if (!w->path || !w->temp) {
    writer_free(w);
    return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  }
  brim_status status = open_temp(w, 0666);
  if (status) {
    writer_free(w);
    return status;
  }
  if (there) keep_permissions(w, &st);
  *out = w;
  return BRIM_OK;
}

static brim_status write_all(brim_fs_writer *w, const char *data, size_t size) {
  while (size && !w->status) {
    ssize_t n = write(w->fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      int err = n < 0 ? errno : ENOSPC;
      w->status = brim_fail(BRIM_EIO, "cannot write %s: %s", w->path, brim_errno_text(err));
      break;
    }
    data += n;
    size -= (size_t)n;
  }
  return w->status;
}

static brim_status flush(brim_fs_writer *w) {
  size_t n = w->used;
  w->used = 0;
  return write_all(w, w->buffer, n);
}

brim_status brim_fs_writer_write(brim_fs_writer *w, const void *data, size_t size) {
  if (w->status) return w->status;
  if (w->sum) brim_xxh64_update(w->sum, data, size);
  if (size > BUFFER_SIZE - w->used) {
    BRIM_TRY(flush(w));
    if (size >= BUFFER_SIZE) return write_all(w, data, size);
  }
  if (size) memcpy(w->buffer + w->used, data, size);
  w->used += size;
  return BRIM_OK;
}

void brim_fs_writer_sum(brim_fs_writer *w, brim_xxh64 *sum) { w->sum = sum; }

brim_status brim_fs_writer_patch(brim_fs_writer *w, size_t offset, const void *data, size_t size) {
  if (w->status) return w->status;
  BRIM_TRY(flush(w));
  for (const char *p = data; size;) {
    ssize_t n = pwrite(w->fd, p, size, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      int err = n < 0 ? errno : ENOSPC;
      w->status = brim_fail(BRIM_EIO, "cannot write %s: %s", w->path, brim_errno_text(err));
      return w->status;
    }
    p += n;
    offset += (size_t)n;
    size -= (size_t)n;
  }
  return BRIM_OK;
}

// Syncs the folder, so that the rename survives a power cut. Some file systems cannot do that.
static void sync_folder(const char *path) {
  char *dir = brim_fs_dirname(path);
  if (!dir) return;
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    (void)fsync(fd);
    close(fd);
  }
  brim_free(dir);
}

brim_status brim_fs_writer_commit(brim_fs_writer *w) {
  brim_status status = w->status ? w->status : flush(w);
  if (!status && fsync(w->fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
    status = brim_fail(BRIM_EIO, "cannot write %s: %s", w->path, brim_errno_text(errno));
  }
  int closed = close(w->fd);
  if (!status && closed != 0) {
    status = brim_fail(BRIM_EIO, "cannot write %s: %s", w->path, brim_errno_text(errno));
  }
  if (!status && rename(w->temp, w->path) != 0) {
    int err = errno;
    status =
        brim_fail(brim_errno_status(err), "cannot write %s: %s", w->path, brim_errno_text(err));
  }
  if (status) {
    (void)unlink(w->temp);
  } else {
    sync_folder(w->path);
  }
  writer_free(w);
  return status;
}

void brim_fs_writer_abort(brim_fs_writer *w) {
  if (!w) return;
  close(w->fd);
  (void)unlink(w->temp);
  writer_free(w);
}

brim_status brim_fs_write(const char *path, const void *data, size_t size) {
  brim_fs_writer *w;
  BRIM_TRY(brim_fs_writer_open(path, &w));
  brim_status status = brim_fs_writer_write(w, data, size);
  if (status) {
    brim_fs_writer_abort(w);
    return status;
  }
  return brim_fs_writer_commit(w);
}

//---------------------------------- checking a target ----------------------------------

brim_status brim_fs_refused(brim_status status) {
  return status == BRIM_EIO || status == BRIM_ENOENT ? BRIM_EINVAL : status;
}

brim_status brim_fs_check_target(const char *path) {
  if (!*path) return brim_fail(BRIM_EINVAL, "cannot write a file without a name");
  if (brim_fs_is_dir(path))
    return brim_fail(BRIM_EINVAL, "%s is a folder; name a file in it", path);
  brim_fs_writer *w = NULL;
  // Try to write: permissions are not enough, since a pseudo file system refuses even root.
  brim_status status = brim_fs_refused(brim_fs_writer_open(path, &w));
  brim_fs_writer_abort(w);
  return status;
}

//---------------------------------- links and copies ----------------------------------

brim_status brim_fs_link(const char *from, const char *to) {
  struct stat a, b;
  if (stat(from, &a) != 0) {
    int err = errno;
    return brim_fail(brim_errno_status(err), "cannot link %s: %s", from, brim_errno_text(err));
  }
  bool there = stat(to, &b) == 0;
  if (there && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return BRIM_OK;
  if (there && (!S_ISREG(b.st_mode) || a.st_mode != b.st_mode)) {
    return brim_fail(BRIM_EUNSUPPORTED, "cannot link %s to %s: its permissions differ", from, to);
  }
  char *temp = brim_alloc(temp_size(to));
  if (!temp) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", to);
  int err = EEXIST;
  for (int n = 0; n < TEMP_TRIES && err == EEXIST; n++) {
    name_temp(temp, temp_size(to), to, n);
    err = link(from, temp) == 0 ? 0 : errno;
  }
  if (!err && rename(temp, to) != 0) {
    err = errno;
    (void)unlink(temp);
  }
  brim_free(temp);
  if (err) {
    return brim_fail(BRIM_EUNSUPPORTED, "cannot link %s to %s: %s", from, to, brim_errno_text(err));
  }
  sync_folder(to);
  return BRIM_OK;
}

static brim_status copy_to(int fd, const char *from, brim_fs_writer *w, char *buffer) {
  for (;;) {
    ssize_t n = read(fd, buffer, COPY_SIZE);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return brim_fail(BRIM_EIO, "cannot read %s: %s", from, brim_errno_text(errno));
    if (n == 0) return BRIM_OK;
    BRIM_TRY(brim_fs_writer_write(w, buffer, (size_t)n));
  }
}

brim_status brim_fs_copy(const char *from, const char *to) {
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(from, &fd, &size));
  brim_fs_writer *w = NULL;
  char *buffer = brim_alloc(COPY_SIZE);
  brim_status status =
      buffer ? brim_fs_writer_open(to, &w) : brim_fail(BRIM_ENOMEM, "out of memory for %s", to);
  if (!status) {
    status = copy_to(fd, from, w, buffer);
    if (status) {
      brim_fs_writer_abort(w);
    } else {
      status = brim_fs_writer_commit(w);
    }
  }
  brim_free(buffer);
  close(fd);
  return status;
}

//---------------------------------- temporary files of dead processes ----------------------------------

static const char mark[] = BRIM_FS_TEMP_MARK;

// Parses at most 10 digits at *at; -1 if there are none.
static int64_t take_number(const char **at) {
  int64_t value = 0;
  int digits = 0;
  for (; isdigit((unsigned char)**at) && digits < 10; ++*at, digits++) {
    value = value * 10 + (**at - '0');
  }
  return digits ? value : -1;
}

int64_t brim_fs_temp_writer(const char *name, size_t *target) {
  const char *at = NULL;
  for (const char *p = strstr(name, mark); p; p = strstr(p + 1, mark)) at = p;
  if (!at || at == name) return 0;
  *target = (size_t)(at - name);
  at += sizeof mark - 1;
  int64_t pid = take_number(&at);
  if (pid <= 0 || pid > INT32_MAX || *at++ != '.') return 0;
  return take_number(&at) >= 0 && !*at ? pid : 0;
}

bool brim_fs_writer_gone(int64_t pid) { return kill((pid_t)pid, 0) != 0 && errno == ESRCH; }

// Removes temporary files of dead processes: those of the target `only`, or of all targets (NULL).
static void remove_in(const char *folder, const char *only) {
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(folder, &names, &count)) {
    brim_status_clear();  // best effort
    return;
  }
  for (size_t i = 0; i < count; i++) {
    size_t target;
    int64_t pid = brim_fs_temp_writer(names[i], &target);
    if (!pid || !brim_fs_writer_gone(pid)) continue;
    if (only && (strlen(only) != target || strncmp(names[i], only, target) != 0)) continue;
    char *path = brim_fs_join(folder, names[i]);
    struct stat st;
    if (path && lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
      if (brim_fs_remove(path)) {
        brim_status_clear();
      } else {
        brim_log_info("fs", "removed %s, which a terminated process left", path);
      }
    }
    brim_free(path);
  }
  brim_fs_list_free(names, count);
}

void brim_fs_remove_stale(const char *folder) { remove_in(folder, NULL); }

void brim_fs_remove_stale_of(const char *path) {
  char *folder = brim_fs_dirname(path);
  if (folder) remove_in(folder, brim_fs_basename(path));
  brim_free(folder);
}

//---------------------------------- locks ----------------------------------
// The lock is the kernel's (flock) and ends with its process. The PID in the file is for people.

enum { LOCK_TRIES = 100 };

struct brim_fs_lockfile {
  int fd;
  char path[];
};

// True if the path still names the open file. A holder that unlocks removes the name.
static bool same_file(int fd, const char *path) {
  struct stat open_file, named;
  return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

static brim_status fail_held(int fd, const char *path) {
  char text[32] = "";
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  long pid = n > 0 ? strtol(text, NULL, 10) : 0;
  // the holder writes its PID a moment after it takes the lock
  if (pid <= 0) return brim_fail(BRIM_EEXIST, "another process holds %s", path);
  return brim_fail(BRIM_EEXIST, "%s is held by process %ld", path, pid);
}

static brim_status fail_lock(int err, const char *path) {
  if (err == ENOSYS || err == EOPNOTSUPP || err == ENOLCK) {
    return brim_fail(BRIM_EUNSUPPORTED, "cannot lock %s: the file system does not support locks",
                     path);
  }
  return brim_fail(brim_errno_status(err), "cannot lock %s: %s", path, brim_errno_text(err));
}

bool brim_fs_is_lock(const char *text, size_t size) {
  static const char by_01[] = "\n", now[] = " brim\n";
  size_t digits = 0;
  while (digits < size && text[digits] >= '0' && text[digits] <= '9') digits++;
  const char *rest = text + digits;
  size_t left = size - digits;
  if (digits == 0) return size == 0;
  return (left == sizeof by_01 - 1 && memcmp(rest, by_01, left) == 0) ||
         (left == sizeof now - 1 && memcmp(rest, now, left) == 0);
}

// True for a lock file. A file of another program must not be changed or removed.
static bool is_lock(int fd) {
  char text[64];
  ssize_t n = pread(fd, text, sizeof text, 0);
  return n >= 0 && (size_t)n < sizeof text && brim_fs_is_lock(text, (size_t)n);
}

// Writes the PID as a best effort: the lock does not need it.
static void write_pid(int fd) {
  char text[32];
  int n = snprintf(text, sizeof text, "%ld brim\n", (long)getpid());
  if (ftruncate(fd, 0) == 0 && n > 0) (void)!pwrite(fd, text, (size_t)n, 0);
}

// Tries once. Returns BRIM_OK with *out -1 if the file was removed meanwhile.
static brim_status try_lock(const char *path, int *out) {
  *out = -1;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return fail_lock(errno, path);
  int rc;
  do {
    rc = flock(fd, LOCK_EX | LOCK_NB);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) {
    brim_status status = errno == EWOULDBLOCK ? fail_held(fd, path) : fail_lock(errno, path);
    close(fd);
    return status;
  }
  if (!same_file(fd, path)) {
    close(fd);
    return BRIM_OK;
  }
  if (!is_lock(fd)) {
    close(fd);
    return brim_fail(
        BRIM_EINVAL,
        "%s was not written by brim, and brim needs a lock of this name; move the file "
        "away",
        path);
  }
  *out = fd;
  return BRIM_OK;
}

brim_status brim_fs_lock(const char *path, brim_fs_lockfile **out) {
  *out = NULL;
  size_t size = strlen(path) + 1;
  brim_fs_lockfile *lock = brim_alloc(sizeof *lock + size);
  if (!lock) return brim_fail(BRIM_ENOMEM, "out of memory while locking %s", path);
  memcpy(lock->path, path, size);
  lock->fd = -1;
  brim_status status = BRIM_OK;
  for (int n = 0; n < LOCK_TRIES && !status && lock->fd < 0; n++) {
    status = try_lock(path, &lock->fd);
  }
  if (!status && lock->fd < 0) {
    status = brim_fail(BRIM_EIO, "cannot lock %s: another process keeps replacing the file", path);
  }
  if (status) {
    brim_free(lock);
    return status;
  }
  write_pid(lock->fd);
  *out = lock;
  return BRIM_OK;
}

void brim_fs_unlock(brim_fs_lockfile *lock) {
  if (!lock) return;
  // remove the name while holding the lock; afterwards it may belong to another process
  if (same_file(lock->fd, lock->path)) (void)unlink(lock->path);
  (void)flock(lock->fd, LOCK_UN);  // a forked child may still have the file open
  close(lock->fd);
  brim_free(lock);
}

brim_status brim_fs_lock_folder(const char *folder, brim_fs_lockfile **out) {
  *out = NULL;
  char *path = brim_fs_join(folder, "lock");
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory while locking %s", folder);
  brim_status status = brim_fs_lock(path, out);
  brim_free(path);
  if (status == BRIM_EEXIST)
    return brim_fail_context(status, "another run is writing to this folder");
  return status == BRIM_EUNSUPPORTED ? BRIM_OK : status;
}
