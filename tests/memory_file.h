// Bytes as a file without a name, for code that opens files: a path under /proc. Without cmocka, so that fuzz targets
// can use it too.
#ifndef BRIM_TESTS_MEMORY_FILE_H_
#define BRIM_TESTS_MEMORY_FILE_H_

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY_FILE_PATH = 32 };

// Returns the descriptor, to be closed by the caller; `path` may be NULL.
static inline int memory_file(const void *data, size_t size, char path[MEMORY_FILE_PATH]) {
  int fd = memfd_create("brim_test", MFD_CLOEXEC);
  if (fd < 0) abort();
  for (size_t done = 0; done < size;) {
    ssize_t n = pwrite(fd, (const char *)data + done, size - done, (off_t)done);
    if (n <= 0) abort();
    done += (size_t)n;
  }
  if (path) snprintf(path, MEMORY_FILE_PATH, "/proc/self/fd/%d", fd);
  return fd;
}

#endif  // BRIM_TESTS_MEMORY_FILE_H_
