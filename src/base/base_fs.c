// Files: reading whole, appending a line, folders and paths. Atomic writing is in base_fs_writer.c.
#include "base/base_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_status.h"

static brim_status out_of_memory(const char *path) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
}

// Reads to the end of fd. The size from stat is only a first guess: /proc says 0, files grow.
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

// O_NONBLOCK: a FIFO in the place of a file would wait for a writer for ever.
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
  // half a line would become part of the next one
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

// One folder, or none where it is there already. mkdir's errno is kept: looking at what is there
// sets its own.
static brim_status make_folder(const char *path) {
  if (mkdir(path, 0777) == 0) return BRIM_OK;
  int err = errno;
  struct stat st;
  bool there = stat(path, &st) == 0;
  if (there && S_ISDIR(st.st_mode)) return BRIM_OK;
  if (there) {
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

// One more name; false when out of memory, with the list still whole.
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
