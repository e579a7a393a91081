// Mapped files, and the guard that turns SIGBUS on a lost page into a status. The guard is a jump buffer on the
// stack of the reading thread, so a read without a fault needs no lock and no system call.
#include "base/base_map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/base_status.h"

//---------------------------------- the guard ----------------------------------

typedef struct map_guard {
  sigjmp_buf env;
  const uint8_t *begin, *end;
  const uint8_t *volatile fault;
} map_guard;

// The active guard of this thread. Its TLS model is initial-exec, because a signal handler must not allocate.
static _Thread_local map_guard *volatile active __attribute__((tls_model("initial-exec")));
static _Thread_local volatile sig_atomic_t chaining __attribute__((tls_model("initial-exec")));

// The handler that was installed before brim's; one of the two is set. Process-wide, like signal handlers.
typedef void (*plain_handler)(int);
typedef void (*info_handler)(int, siginfo_t *, void *);
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(plain_handler) before_plain;
static _Atomic(info_handler) before_info;

// Passes on a fault that no guard covers.
static void call_previous(int number, siginfo_t *info, void *context) {
  info_handler with_info = atomic_load(&before_info);
  plain_handler plain = atomic_load(&before_plain);
  bool again = chaining;  // the previous handler has called this one
  if (!again && with_info) {
    chaining = 1;
    with_info(number, info, context);
    chaining = 0;
    return;
  }
  bool sent = info->si_code <= 0;  // sent by kill, not caused by a fault
  if (!again && plain == SIG_IGN && sent) return;
  if (!again && plain != SIG_DFL && plain != SIG_IGN) {
    chaining = 1;
    plain(number);
    chaining = 0;
    return;
  }
  struct sigaction none;
  memset(&none, 0, sizeof none);
  none.sa_handler = SIG_DFL;
  sigaction(number, &none, NULL);
  if (sent) raise(number);  // a fault happens again without this
}

static void on_bus(int number, siginfo_t *info, void *context) {
  map_guard *guard = active;
  const uint8_t *at = info->si_addr;
  if (guard && info->si_code > 0 && at >= guard->begin && at < guard->end) {
    guard->fault = at;
    active = NULL;
    // Restore the mask: sigsetjmp does not save it, because that costs a system call.
    pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)context)->uc_sigmask, NULL);
    siglongjmp(guard->env, 1);
  }
  int err = errno;
  call_previous(number, info, context);
  errno = err;
}

// Called for every map, since other code (a test runner) may have installed its own handler meanwhile.
static brim_status install(void) {
  struct sigaction now, ours;
  brim_status status = BRIM_OK;
  memset(&ours, 0, sizeof ours);
  ours.sa_sigaction = on_bus;
  ours.sa_flags =
      SA_SIGINFO | SA_NODEFER | SA_ONSTACK;  // NODEFER: the previous handler may fault too
  sigemptyset(&ours.sa_mask);
  pthread_mutex_lock(&install_lock);
  if (sigaction(SIGBUS, NULL, &now)) {
    status =
        brim_fail(BRIM_EIO, "cannot look at the handler of SIGBUS: %s", brim_errno_text(errno));
  } else if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_bus) {
    bool with_info = (now.sa_flags & SA_SIGINFO) != 0;
    atomic_store(&before_info, with_info ? now.sa_sigaction : NULL);
    atomic_store(&before_plain, with_info ? SIG_DFL : now.sa_handler);
    if (sigaction(SIGBUS, &ours, NULL)) {
      status = brim_fail(BRIM_EIO, "cannot set the handler of SIGBUS: %s", brim_errno_text(errno));
    }
  }
  pthread_mutex_unlock(&install_lock);
  return status;
}

brim_status brim_map_guard(const brim_map *map, brim_map_fn fn, void *ctx) {
  map_guard guard;
  guard.begin = map->data;
  guard.end = map->data + map->size;
  guard.fault = NULL;
  if (sigsetjmp(guard.env, 0)) {
    return brim_fail(
        BRIM_EIO,
        "%s: offset %zu: cannot read; the file became shorter during use, or the disk failed",
        map->path, (size_t)(guard.fault - map->data));
  }
  active = &guard;
  atomic_signal_fence(memory_order_seq_cst);
  brim_status status = fn(ctx, map->data, map->size);
  atomic_signal_fence(memory_order_seq_cst);
  active = NULL;
  return status;
}

typedef struct map_copy {
  void *out;
  uint64_t offset;
  size_t n;
} map_copy;

static brim_status copy_bytes(void *ctx, const uint8_t *data, size_t size) {
  const map_copy *c = ctx;
  (void)size;
  memcpy(c->out, data + c->offset, c->n);
  return BRIM_OK;
}

brim_status brim_map_copy(const brim_map *map, uint64_t offset, void *out, size_t n) {
  if (offset > map->size || n > map->size - offset) {
    return brim_fail(BRIM_EPARSE,
                     "%s: offset %zu: the file ends here, but brim needs %zu bytes from %llu on",
                     map->path, map->size, n, (unsigned long long)offset);
  }
  map_copy copy = {.out = out, .offset = offset, .n = n};
  return n ? brim_map_guard(map, copy_bytes, &copy) : BRIM_OK;
}

//---------------------------------- maps ----------------------------------

static brim_status fail_errno(const char *path, int err) {
  return brim_fail(brim_errno_status(err), "%s: %s", path, brim_errno_text(err));
}

static brim_status map_fd(const char *path, int fd, brim_map *out) {
  struct stat st;
  if (fstat(fd, &st)) return fail_errno(path, errno);
  if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_EINVAL, "%s: not a regular file", path);
  if (st.st_size == 0) return brim_fail(BRIM_EPARSE, "%s: offset 0: the file is empty", path);
  void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return fail_errno(path, errno);
  *out = (brim_map){.path = path, .data = data, .size = (size_t)st.st_size, .fd = fd};
  return BRIM_OK;
}

brim_status brim_map_open(const char *path, brim_map *out) {
  *out = (brim_map){.fd = -1};
  BRIM_TRY(install());
  // O_NONBLOCK, since opening a FIFO would wait for a writer
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return fail_errno(path, errno);
  brim_status status = map_fd(path, fd, out);
  if (status) close(fd);
  return status;
}

void brim_map_memory(const void *data, size_t size, const char *name, brim_map *out) {
  *out = (brim_map){.path = name, .data = data, .size = size, .fd = -1};
}

void brim_map_close(brim_map *map) {
  if (map->path && map->fd >= 0) {
    munmap((void *)(uintptr_t)map->data, map->size);
    close(map->fd);
  }
  *map = (brim_map){.fd = -1};
}

void brim_map_advise(const brim_map *map, uint64_t offset, uint64_t n, brim_map_use use) {
  static const int advice[BRIM_MAP_USE_COUNT] = {MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED};
  if (map->fd < 0 || offset >= map->size) return;
  if (n > map->size - offset) n = map->size - offset;
  long page = sysconf(_SC_PAGESIZE);
  uint64_t skip = page > 0 ? offset % (uint64_t)page : 0;
  (void)madvise((void *)(uintptr_t)(map->data + offset - skip), (size_t)(n + skip), advice[use]);
}
