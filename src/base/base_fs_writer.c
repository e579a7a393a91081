// Atomic writing: the target appears whole or stays as it was. The temporary stands beside the
// target (rename works only within a file system) and is removed on every way out but commit.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "base/base_status.h"
#include "base/base_xxh64.h"

enum { BUFFER_SIZE = 16 * 1024, COPY_SIZE = 256 * 1024, TEMP_TRIES = 1000 };

struct brim_fs_writer {
  char *path;
  char *temp;
  int fd;
  brim_status status;  // the first failure sticks: a file with a hole is never committed
  brim_xxh64 *sum;     // of what is written; NULL = none
  size_t used;
  char buffer[BUFFER_SIZE];
};

// The nth name of a temporary; `size` is temp_size of the path.
static size_t temp_size(const char *path) { return strlen(path) + 48; }

static void name_temp(char *temp, size_t size, const char *path, int n) {
  snprintf(temp, size, "%s" BRIM_FS_TEMP_MARK "%ld.%d", path, (long)getpid(), n);
}

// O_EXCL makes the name ours, whatever else writes the same target.
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

// Best effort. Another user's file, or one behind a link, may close the new one, and not open it.
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
  // A rename would replace a device or a pipe itself; no user means that.
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

// The rename itself must survive a power cut. A file system that cannot sync a folder is no
// failure.
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

//---------------------------------- before the work ----------------------------------

brim_status brim_fs_refused(brim_status status) {
  return status == BRIM_EIO || status == BRIM_ENOENT ? BRIM_EINVAL : status;
}

brim_status brim_fs_check_target(const char *path) {
  if (!*path) return brim_fail(BRIM_EINVAL, "cannot write a file without a name");
  if (brim_fs_is_dir(path))
    return brim_fail(BRIM_EINVAL, "%s is a folder; name a file in it", path);
  brim_fs_writer *w = NULL;
  // Permissions alone do not tell: a pseudo file system refuses even root.
  brim_status status = brim_fs_refused(brim_fs_writer_open(path, &w));
  brim_fs_writer_abort(w);
  return status;
}

//---------------------------------- the same bytes again ----------------------------------

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
