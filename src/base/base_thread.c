// Threads and the pool for parallel loops. Plain mutexes and conditions: the work
// between two waits is large here, and this is easy to reason about. A range belongs to no thread: the
// caller takes those that no worker has begun, so a worker that other programs keep from running is not
// waited for.
#include "base/base_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_cores.h"
#include "base/base_cpu.h"
#include "base/base_status.h"

int brim_cpu_count(void) { return brim_cpu_threads(brim_cpu_root()); }

struct brim_thread {
  pthread_t handle;
  void (*fn)(void *ctx);
  void *ctx;
  char name[16];
};

static void *thread_main(void *arg) {
  brim_thread *thread = arg;
  if (thread->name[0]) (void)pthread_setname_np(pthread_self(), thread->name);
  thread->fn(thread->ctx);
  return NULL;
}

brim_status brim_thread_start(void (*fn)(void *ctx), void *ctx, const char *name,
                              brim_thread **out) {
  *out = NULL;
  brim_thread *thread = brim_alloc(sizeof *thread);
  if (!thread) return brim_fail(BRIM_ENOMEM, "out of memory for a thread");
  thread->fn = fn;
  thread->ctx = ctx;
  snprintf(thread->name, sizeof thread->name, "%s", name ? name : "");
  // Asynchronous signals stay with the threads of the program; a fault is still a fault.
  sigset_t block, before;
  sigfillset(&block);
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&block, faults[i]);
  pthread_sigmask(SIG_SETMASK, &block, &before);
  int err = pthread_create(&thread->handle, NULL, thread_main, thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (err) {
    brim_free(thread);
    return brim_fail(BRIM_ELIMIT, "cannot start a thread: %s", brim_errno_text(err));
  }
  *out = thread;
  return BRIM_OK;
}

int brim_cond_init(pthread_cond_t *cond) {
  pthread_condattr_t monotonic;
  int code = pthread_condattr_init(&monotonic);
  if (code) return code;
  code = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  if (!code) code = pthread_cond_init(cond, &monotonic);
  pthread_condattr_destroy(&monotonic);
  return code;
}

bool brim_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ns) {
  const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                                 .tv_nsec = (long)(until_ns % 1000000000)};
  return pthread_cond_timedwait(cond, lock, &until) == 0;
}

void brim_thread_join(brim_thread *thread) {
  if (!thread) return;
  pthread_join(thread->handle, NULL);
  brim_free(thread);
}

void brim_thread_detach(brim_thread *thread) {
  if (!thread) return;
  pthread_detach(thread->handle);
  brim_free(thread);
}

typedef struct pool_worker {
  brim_pool *pool;
  brim_thread *thread;
  int index;
  bool taken;  // range `index` of the round; under the lock
} pool_worker;

struct brim_pool {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  int threads;
  // Under the lock:
  uint64_t round;  // one more per run: how a worker tells new work from old
  int running;     // ranges that have not ended
  bool stop;
  int64_t count;
  brim_range_fn fn;
  void *ctx;
  brim_cores place;
  pid_t *ids;             // of the workers: 0 = has not begun
  pool_worker workers[];  // threads - 1; index 0 is the caller
};

// Range i of n: the first count % n ranges are one longer.
static void run_range(const brim_pool *pool, int64_t count, brim_range_fn fn, void *ctx, int i) {
  int64_t base = count / pool->threads, extra = count % pool->threads;
  int64_t begin = base * i + (i < extra ? i : extra);
  int64_t end = begin + base + (i < extra ? 1 : 0);
  if (begin < end) fn(ctx, begin, end, i);
}

// Runs the range of this index unless another thread has taken it; with the lock held, which it gives up
// meanwhile.
static void take_range_locked(brim_pool *pool, pool_worker *range) {
  if (range->taken) return;
  range->taken = true;
  int64_t count = pool->count;
  brim_range_fn fn = pool->fn;
  void *ctx = pool->ctx;
  pthread_mutex_unlock(&pool->lock);
  run_range(pool, count, fn, ctx, range->index);
  pthread_mutex_lock(&pool->lock);
  if (--pool->running == 0) pthread_cond_signal(&pool->done);
}

static void worker_main(void *arg) {
  pool_worker *worker = arg;
  brim_pool *pool = worker->pool;
  uint64_t seen = 0;
  __atomic_store_n(&pool->ids[worker->index - 1], (pid_t)syscall(SYS_gettid), __ATOMIC_RELAXED);
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->stop && pool->round == seen) pthread_cond_wait(&pool->work, &pool->lock);
    if (pool->stop) break;
    seen = pool->round;
    take_range_locked(pool, worker);
  }
  pthread_mutex_unlock(&pool->lock);
}

brim_status brim_pool_create(int threads, brim_pool **out) {
  *out = NULL;
  if (threads < 1 || threads > 4096) {
    return brim_fail(BRIM_EINVAL, "invalid pool of %d threads", threads);
  }
  const size_t workers = (size_t)(threads - 1);
  brim_pool *pool = brim_calloc(
      1, sizeof *pool + workers * sizeof pool->workers[0] + workers * sizeof pool->ids[0]);
  if (!pool) return brim_fail(BRIM_ENOMEM, "out of memory for a pool of %d threads", threads);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->done, NULL);
  pool->threads = threads;
  pool->ids = (pid_t *)(void *)&pool->workers[workers];
  brim_cores_init(&pool->place);
  for (int i = 1; i < threads; i++) {
    pool_worker *worker = &pool->workers[i - 1];
    worker->pool = pool;
    worker->index = i;
    worker->taken = true;
    brim_status status = brim_thread_start(worker_main, worker, "brim-pool", &worker->thread);
    if (status) {
      brim_pool_destroy(pool);
      return status;
    }
  }
  *out = pool;
  return BRIM_OK;
}

void brim_pool_destroy(brim_pool *pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  pool->stop = true;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 1; i < pool->threads; i++) brim_thread_join(pool->workers[i - 1].thread);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->lock);
  brim_free(pool);
}

int brim_pool_threads(const brim_pool *pool) { return pool->threads; }

void brim_pool_run(brim_pool *pool, int64_t count, brim_range_fn fn, void *ctx) {
  if (count <= 0) return;
  if (pool->threads == 1 || count == 1) {
    run_range(pool, count, fn, ctx, 0);
    return;
  }
  brim_cores_place(&pool->place, pool->ids, pool->threads - 1);
  pthread_mutex_lock(&pool->lock);
  pool->count = count;
  pool->fn = fn;
  pool->ctx = ctx;
  pool->running = pool->threads - 1;
  for (int i = 1; i < pool->threads; i++) pool->workers[i - 1].taken = false;
  pool->round++;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  run_range(pool, count, fn, ctx, 0);
  pthread_mutex_lock(&pool->lock);
  for (int i = 1; i < pool->threads; i++) take_range_locked(pool, &pool->workers[i - 1]);
  while (pool->running > 0) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}
