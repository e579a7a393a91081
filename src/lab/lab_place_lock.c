// A file in a folder that every user may write to: other users may have put anything there. It is
// never followed as a link, never created over something else, and never written to when it is not
// ours by its content, has a second name, or is no regular file.
#include "lab/lab_place_lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define MARK "brim-gpu "

static brim_status path_of(const char *folder, const char *uuid, char *out, size_t size) {
  int n = snprintf(out, size, "%s/brim-gpu-", folder);
  size_t at = n > 0 ? (size_t)n : size;
  for (const char *c = uuid; *c && at + 6 < size; c++) {
    out[at++] = (char)(isalnum((unsigned char)*c) || *c == '-' ? *c : '_');
  }
  if (at + 6 >= size)
    return brim_fail(BRIM_EINVAL, "the name of the folder %s is too long", folder);
  memcpy(out + at, ".lock", 6);
  return BRIM_OK;
}

// Opened first and created second: in a sticky folder the kernel refuses O_CREAT on another user's
// file (fs.protected_regular).
static brim_status open_file(const char *path, int *out) {
  for (int tries = 0; tries < 100; tries++) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
      fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0666);
      if (fd >= 0) (void)fchmod(fd, 0666);  // whatever the umask
      if (fd < 0 && errno == EEXIST) continue;
    }
    if (fd < 0) {
      return brim_fail(brim_errno_status(errno), "cannot lock %s: %s", path,
                       brim_errno_text(errno));
    }
    *out = fd;
    return BRIM_OK;
  }
  return brim_fail(BRIM_EIO, "cannot lock %s: another process keeps replacing the file", path);
}

static size_t read_content(int fd, char *text, size_t size) {
  ssize_t n = pread(fd, text, size - 1, 0);
  size_t got = n > 0 ? (size_t)n : 0;
  text[got] = '\0';
  return got;
}

static brim_status check_file(int fd, const char *path) {
  char text[16];
  struct stat about;
  bool ours = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 1;
  if (ours && read_content(fd, text, sizeof text) > 0) ours = brim_str_starts(text, MARK);
  if (ours) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "%s was not written by brim, and brim needs a lock of this name; move the file "
                   "away",
                   path);
}

static void read_user(int64_t uid, char *out, size_t size) {
  struct passwd entry, *found = NULL;
  char text[2048];
  if (getpwuid_r((uid_t)uid, &entry, text, sizeof text, &found) == 0 && found) {
    snprintf(out, size, "%s", entry.pw_name);
  } else {
    snprintf(out, size, "uid %lld", (long long)uid);
  }
}

static void read_holder(int fd, brim_lab_place_holder *holder) {
  char text[640];
  memset(holder, 0, sizeof *holder);
  read_content(fd, text, sizeof text);
  if (!brim_str_starts(text, MARK)) return;
  char *end = NULL;
  holder->pid = strtoll(text + sizeof MARK - 1, &end, 10);
  if (*end != ' ') return;
  int64_t uid = strtoll(end + 1, &end, 10);
  read_user(uid, holder->user, sizeof holder->user);
  if (*end != ' ') return;
  end[1 + strcspn(end + 1, "\n")] = '\0';
  snprintf(holder->store, sizeof holder->store, "%s", end + 1);
}

static void write_holder(int fd, const char *store) {
  char text[640];
  int n =
      snprintf(text, sizeof text, MARK "%ld %ld %.511s\n", (long)getpid(), (long)getuid(), store);
  // Best effort: the lock holds without it.
  if (ftruncate(fd, 0) == 0 && n > 0) (void)!pwrite(fd, text, (size_t)n, 0);
}

static bool same_file(int fd, const char *path) {
  struct stat open_file_of, named;
  return fstat(fd, &open_file_of) == 0 && lstat(path, &named) == 0 &&
         open_file_of.st_dev == named.st_dev && open_file_of.st_ino == named.st_ino;
}

static brim_status take(int fd, const char *path, int how, brim_lab_place_holder *holder) {
  int rc;
  do {
    rc = flock(fd, how | LOCK_NB);
  } while (rc != 0 && errno == EINTR);
  // removed in between (a cleaner of the folder): the next call makes another file
  if (rc == 0 && !same_file(fd, path)) return brim_fail(BRIM_EIO, "%s was removed", path);
  if (rc == 0) return BRIM_OK;
  if (errno != EWOULDBLOCK) {
    return brim_fail(brim_errno_status(errno), "cannot lock %s: %s", path, brim_errno_text(errno));
  }
  read_holder(fd, holder);
  return brim_fail(BRIM_EEXIST, "another process holds %s", path);
}

static brim_status lock(const char *folder, const char *uuid, int how, int *out,
                        brim_lab_place_holder *holder) {
  char path[512];
  int fd = -1;
  memset(holder, 0, sizeof *holder);
  BRIM_TRY(path_of(folder, uuid, path, sizeof path));
  BRIM_TRY(open_file(path, &fd));
  brim_status status = check_file(fd, path);
  if (!status) status = take(fd, path, how, holder);
  if (status) {
    close(fd);
    return status;
  }
  *out = fd;
  return BRIM_OK;
}

brim_status brim_lab_place_lock(const char *folder, const char *uuid, const char *store, int *fd,
                                brim_lab_place_holder *holder) {
  *fd = -1;
  BRIM_TRY(lock(folder, uuid, LOCK_EX, fd, holder));
  write_holder(*fd, store);
  return BRIM_OK;
}

brim_status brim_lab_place_lock_probe(const char *folder, const char *uuid,
                                      brim_lab_place_holder *holder) {
  int fd = -1;
  // shared: two sweeps that look at the same time do not see each other
  BRIM_TRY(lock(folder, uuid, LOCK_SH, &fd, holder));
  close(fd);
  return BRIM_OK;
}

void brim_lab_place_lock_touch(int fd) {
  if (fd >= 0) (void)futimens(fd, NULL);
}
