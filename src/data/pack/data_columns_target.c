// The file of a table: without a name until it is whole (O_TMPFILE), so that a killed process leaves
// nothing; where the file system has no such files, under the name of a temporary that the next
// write of the same table removes. "-" is the standard output, to which rows go as they come.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_text.h"
#include "data/pack/data_columns_int.h"
#include "data/pack/data_pack_int.h"

enum { TEMP_TRIES = 1000, FD_NAME = 32 };

static brim_status fail_errno(const brim_columns *c, int err) {
  brim_status status = err == ENOMEM ? BRIM_ENOMEM : brim_errno_status(err);
  return brim_fail(status, "cannot write %s: %s", c->path, brim_errno_text(err));
}

static brim_status fail_there(const brim_columns *c) {
  return brim_fail(BRIM_EEXIST, "%s already exists; --force replaces it", c->path);
}

// TARGET.tmp.PID.N, as every temporary of brim is called; in *temp, brim_free. `from` NULL: a new
// file, open in *fd; else a second name of that one. An errno.
static int make_temp(const brim_columns *c, const char *from, char **temp, int *fd) {
  size_t size = strlen(c->path) + 48;
  char *name = brim_alloc(size);
  int err = name ? EEXIST : ENOMEM;
  for (int n = 0; n < TEMP_TRIES && err == EEXIST; n++) {
    snprintf(name, size, "%s" BRIM_FS_TEMP_MARK "%ld.%d", c->path, (long)getpid(), n);
    int made = from ? linkat(AT_FDCWD, from, AT_FDCWD, name, AT_SYMLINK_FOLLOW)
                    : (*fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    err = made < 0 ? errno : 0;
  }
  if (err) {
    brim_free(name);
  } else {
    *temp = name;
  }
  return err;
}

// A file without a name; -1 where there is no such thing, or no way to name it later.
static int open_nameless(const char *folder) {
  char name[FD_NAME];
  int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  if (access(name, F_OK) == 0) return fd;
  close(fd);
  return -1;
}

brim_status brim_columns_target_open(brim_columns *c) {
  struct stat st;
  if (c->to_stdout) {
    c->fd = STDOUT_FILENO;
    return BRIM_OK;
  }
  bool there = stat(c->path, &st) == 0;
  if (there && S_ISDIR(st.st_mode))
    return brim_fail(BRIM_EINVAL, "%s is a folder; name a file in it", c->path);
  if (there && !S_ISREG(st.st_mode))
    return brim_fail(BRIM_EINVAL, "cannot write %s: it exists and is not a regular file", c->path);
  if (there && !c->replace) return fail_there(c);
  char *folder = brim_fs_dirname(c->path);
  if (!folder) return fail_errno(c, ENOMEM);
  brim_data_remove_stale(c->path, false);
  c->fd = open_nameless(folder);
  brim_free(folder);
  if (c->fd < 0) {
    int err = make_temp(c, NULL, &c->temp, &c->fd);
    if (err) return fail_errno(c, err);
    (void)flock(c->fd, LOCK_SH | LOCK_NB);  // for brim_data_remove_stale of another process
  }
  if (there) (void)!fchmod(c->fd, st.st_mode & 07777);  // keep the permissions; best effort
  return BRIM_OK;
}

static brim_status write_all(const brim_columns *c, const char *data, size_t size) {
  while (size) {
    ssize_t n = write(c->fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(c, n < 0 ? errno : ENOSPC);
    data += n;
    size -= (size_t)n;
  }
  return BRIM_OK;
}

brim_status brim_columns_target_write(brim_columns *c, const char *data, size_t size) {
  if (!c->to_stdout || !isatty(c->fd)) return write_all(c, data, size);
  brim_str plain;  // a name may hold what a terminal would obey
  brim_str_init(&plain);
  brim_text_append_plain(&plain, data, size, NULL);
  brim_status status = brim_str_status(&plain);
  if (!status) status = write_all(c, plain.data, plain.len);
  brim_str_deinit(&plain);
  return status;
}

// An errno.
static int name_it(brim_columns *c) {
  char name[FD_NAME];
  snprintf(name, sizeof name, "/proc/self/fd/%d", c->fd);
  if (!c->temp) {
    if (linkat(AT_FDCWD, name, AT_FDCWD, c->path, AT_SYMLINK_FOLLOW) == 0) return 0;
    if (errno != EEXIST || !c->replace) return errno;
    int err = make_temp(c, name, &c->temp, NULL);  // only a rename replaces
    if (err) return err;
  }
  int err = c->replace ? (rename(c->temp, c->path) == 0 ? 0 : errno)
                       : brim_data_take_new(c->temp, c->path, false);
  if (err) return err;
  brim_free(c->temp);
  c->temp = NULL;
  return 0;
}

brim_status brim_columns_target_take(brim_columns *c) {
  if (c->to_stdout) return BRIM_OK;
  if (fsync(c->fd) != 0 && errno != EINVAL && errno != ENOTSUP) return fail_errno(c, errno);
  int err = name_it(c);
  if (err == EEXIST) return fail_there(c);
  if (err) return fail_errno(c, err);
  char *folder = brim_fs_dirname(c->path);
  int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    (void)fsync(fd);  // not every file system can
    close(fd);
  }
  brim_free(folder);
  return BRIM_OK;
}

void brim_columns_target_close(brim_columns *c) {
  if (c->fd >= 0 && !c->to_stdout) close(c->fd);
  if (c->temp) (void)unlink(c->temp);
  brim_free(c->temp);
  c->temp = NULL;
  c->fd = -1;
}
