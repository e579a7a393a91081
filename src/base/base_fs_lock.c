// One holder of a file at a time, between processes. The lock is the kernel's (flock), so it ends
// with its process and a file left behind by a dead one is no obstacle; the process number inside
// is for people only. It is advisory: it stops only processes that ask for it.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "base/base_status.h"

enum { LOCK_TRIES = 100 };

struct brim_fs_lockfile {
  int fd;
  char path[];
};

// Whether the path still names the open file: a holder that leaves takes the name away with it.
static bool same_file(int fd, const char *path) {
  struct stat open_file, named;
  return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

static brim_status fail_held(int fd, const char *path) {
  char text[32] = "";
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  long pid = n > 0 ? strtol(text, NULL, 10) : 0;
  // The holder writes its number a moment after it takes the lock.
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

// Another program's file must neither be written to nor removed.
static bool is_lock(int fd) {
  char text[64];
  ssize_t n = pread(fd, text, sizeof text, 0);
  return n >= 0 && (size_t)n < sizeof text && brim_fs_is_lock(text, (size_t)n);
}

// Best effort: the lock holds without it.
static void write_pid(int fd) {
  char text[32];
  int n = snprintf(text, sizeof text, "%ld brim\n", (long)getpid());
  if (ftruncate(fd, 0) == 0 && n > 0) (void)!pwrite(fd, text, (size_t)n, 0);
}

// One try. *out stays -1 with BRIM_OK when the file was taken away in between.
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
  // The name goes first, while the lock is still ours: afterwards it may be another's.
  if (same_file(lock->fd, lock->path)) (void)unlink(lock->path);
  (void)flock(lock->fd, LOCK_UN);  // also where a forked child still has the file open
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
