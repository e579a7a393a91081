// A disk that fails now and then: when preloaded, it ends one write or fsync in FAILING_DISK_ONE_IN with EIO, for files
// below FAILING_DISK, and adds a byte to FAILING_DISK/failed. It begins with the first round of `brim sweep chaos`, and
// spares that test's undisturbed trainings and its own process.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

static uint64_t chance;
static const char *below;  // NULL: nothing fails
static uint64_t one_in;

__attribute__((constructor)) static void begin(void) {
  char words[4096];
  struct timespec now;
  const char *number = getenv("FAILING_DISK_ONE_IN");
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? 0 : read(fd, words, sizeof words);
  if (fd >= 0) close(fd);
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  chance = (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)getpid();
  one_in = number ? strtoull(number, NULL, 10) : 0;
  if (one_in > 0 && size > 0 && !memmem(words, (size_t)size, "\0chaos", 7)) {
    below = getenv("FAILING_DISK");
  }
}

static void count_failure(void) {
  static __typeof__(&write) real;
  char path[2048];
  if (!real) real = REAL(write);
  snprintf(path, sizeof path, "%s/failed", below);
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd >= 0) (void)!real(fd, "x", 1);
  if (fd >= 0) close(fd);
}

static int fails(int fd) {
  char name[64], path[2048], first[2048];
  struct stat st;
  if (!below || fstat(fd, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) return 0;
  uint64_t draw = __atomic_add_fetch(&chance, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
  draw = (draw ^ (draw >> 30)) * 0xbf58476d1ce4e5b9u;
  draw = (draw ^ (draw >> 27)) * 0x94d049bb133111ebu;
  if ((draw ^ (draw >> 31)) % one_in != 0) return 0;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(name, path, sizeof path - 1);
  path[size > 0 ? size : 0] = '\0';
  if (strncmp(path, below, strlen(below)) != 0 || strstr(path, "/reference/")) return 0;
  snprintf(first, sizeof first, "%s/round-1.yaml", below);
  if (access(first, F_OK) != 0) return 0;
  count_failure();
  errno = EIO;
  return 1;
}

API ssize_t write(int fd, const void *data, size_t size) {
  static __typeof__(&write) real;
  if (!real) real = REAL(write);
  return fails(fd) ? -1 : real(fd, data, size);
}

API ssize_t pwrite(int fd, const void *data, size_t size, off_t from) {
  static __typeof__(&pwrite) real;
  if (!real) real = REAL(pwrite);
  return fails(fd) ? -1 : real(fd, data, size, from);
}

API ssize_t pwrite64(int fd, const void *data, size_t size, off64_t from) {
  static __typeof__(&pwrite64) real;
  if (!real) real = REAL(pwrite64);
  return fails(fd) ? -1 : real(fd, data, size, from);
}

API ssize_t writev(int fd, const struct iovec *parts, int count) {
  static __typeof__(&writev) real;
  if (!real) real = REAL(writev);
  return fails(fd) ? -1 : real(fd, parts, count);
}

API int fsync(int fd) {
  static __typeof__(&fsync) real;
  if (!real) real = REAL(fsync);
  return fails(fd) ? -1 : real(fd);
}

API int fdatasync(int fd) {
  static __typeof__(&fdatasync) real;
  if (!real) real = REAL(fdatasync);
  return fails(fd) ? -1 : real(fd);
}
