// Records fsync and rename as the code under test calls them, in order. The linker puts these functions in their place
// (-Wl,--wrap=fsync,--wrap=rename). They do the real work, or fail when a test asks for it.
#ifndef BRIM_TESTS_SYNC_CALLS_H_
#define BRIM_TESTS_SYNC_CALLS_H_

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/base.h"
#include "test.h"

typedef struct sync_call {
  char what;        // 's' sync of a file, 'd' of a folder, 'r' a rename
  char path[1024];  // of a rename the new name, as given; otherwise the absolute path
} sync_call;

enum { SYNC_CALLS = 4096 };
static sync_call sync_calls[SYNC_CALLS];
static size_t sync_count;
static int sync_errno;                       // errno of the next fsync of a file; 0 = success
static void (*sync_hook)(const char *path);  // called before the fsync of a file; may be NULL
static pthread_mutex_t sync_lock = PTHREAD_MUTEX_INITIALIZER;

int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

static void sync_note(char what, const char *path) {
  pthread_mutex_lock(&sync_lock);
  if (sync_count < SYNC_CALLS) {
    sync_calls[sync_count].what = what;
    snprintf(sync_calls[sync_count++].path, sizeof sync_calls->path, "%s", path);
  }
  pthread_mutex_unlock(&sync_lock);
}

int __wrap_fsync(int fd) {
  char link[64], path[1024] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n > 0) path[n] = '\0';
  bool folder = brim_fs_is_dir(path);
  sync_note(folder ? 'd' : 's', path);
  if (!folder && sync_hook) sync_hook(path);
  if (!folder && sync_errno) {
    errno = sync_errno;
    sync_errno = 0;
    return -1;
  }
  return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to) {
  int rc = __real_rename(from, to);
  int err = errno;
  if (rc == 0) sync_note('r', to);
  errno = err;
  return rc;
}

static inline void sync_begin(void) { sync_count = 0; }

static inline bool sync_ends(const char *path, const char *end) {
  size_t n = strlen(path), m = strlen(end);
  return n >= m && strcmp(path + n - m, end) == 0;
}

// True if the folder `name` (the last part of its path) was synced after call `at`, before the next rename of the same
// file.
static inline bool sync_folder_after(size_t at, const char *name) {
  for (size_t i = at + 1; i < sync_count; i++) {
    if (sync_calls[i].what == 'd' && sync_ends(sync_calls[i].path, name)) return true;
  }
  return false;
}

// True if a temporary of the file (BASE.tmp.) was synced before call `at`.
static inline bool sync_file_before(size_t at, const char *base) {
  char mark[1024];
  snprintf(mark, sizeof mark, "/%s.tmp.", base);
  for (size_t i = at; i > 0; i--) {
    if (sync_calls[i - 1].what == 's' && strstr(sync_calls[i - 1].path, mark)) return true;
    if (sync_calls[i - 1].what == 'r' && sync_ends(sync_calls[i - 1].path, base)) return false;
  }
  return false;
}

#endif  // BRIM_TESTS_SYNC_CALLS_H_
