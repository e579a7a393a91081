// Threads, a pool for parallel loops, and the user's wish to stop.
#include "base/base_thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_machine.h"
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
  // Block asynchronous signals, which the program's own threads handle, but not faults.
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

//---------------------------------- pool ----------------------------------
// The caller also takes ranges that no worker has begun, so it does not wait for workers that other programs keep
// from running. Workers sleep on a futex and share no lock with the caller: pthread_cond_broadcast may wait for a
// waiter that was preempted inside pthread_cond_wait.

typedef struct pool_worker {
  brim_pool *pool;
  brim_thread *thread;
  int index;
  atomic_bool taken;  // a thread has taken range `index` of the round
} pool_worker;

struct brim_pool {
  _Atomic uint32_t round;    // increased by each run; workers sleep on it
  _Atomic uint32_t running;  // ranges that have not ended; the caller sleeps on it
  atomic_bool stop;
  int threads;
  // the work of the round; only threads that have taken a range read it
  int64_t count;
  brim_range_fn fn;
  void *ctx;
  brim_cores place;
  pid_t *ids;             // thread ids of the workers; 0 = not started
  pool_worker workers[];  // threads - 1; index 0 is the caller
};

static void futex_wait(_Atomic uint32_t *at, uint32_t old) {
  syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *at) {
  syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// Runs range i of the loop: the first count % threads ranges are one longer.
static void run_range(const brim_pool *pool, int64_t count, brim_range_fn fn, void *ctx, int i) {
  int64_t base = count / pool->threads, extra = count % pool->threads;
  int64_t begin = base * i + (i < extra ? i : extra);
  int64_t end = begin + base + (i < extra ? 1 : 0);
  if (begin < end) fn(ctx, begin, end, i);
}

// Runs the range unless another thread has taken it. A late worker may take a range of the next round, so a round
// is written completely before its ranges can be taken.
static void take_range(brim_pool *pool, pool_worker *range) {
  if (atomic_exchange(&range->taken, true)) return;
  run_range(pool, pool->count, pool->fn, pool->ctx, range->index);
  if (atomic_fetch_sub(&pool->running, 1) == 1) futex_wake(&pool->running);
}

static void worker_main(void *arg) {
  pool_worker *worker = arg;
  brim_pool *pool = worker->pool;
  uint32_t seen = 0;
  __atomic_store_n(&pool->ids[worker->index - 1], (pid_t)syscall(SYS_gettid), __ATOMIC_RELAXED);
  for (;;) {
    while (atomic_load(&pool->round) == seen) futex_wait(&pool->round, seen);
    if (atomic_load(&pool->stop)) return;
    seen = atomic_load(&pool->round);
    take_range(pool, worker);
  }
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
  pool->threads = threads;
  pool->ids = (pid_t *)(void *)&pool->workers[workers];
  brim_cores_init(&pool->place);
  for (int i = 1; i < threads; i++) {
    pool_worker *worker = &pool->workers[i - 1];
    worker->pool = pool;
    worker->index = i;
    atomic_store(&worker->taken, true);
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
  atomic_store(&pool->stop, true);
  atomic_fetch_add(&pool->round, 1);
  futex_wake(&pool->round);
  for (int i = 1; i < pool->threads; i++) brim_thread_join(pool->workers[i - 1].thread);
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
  pool->count = count;
  pool->fn = fn;
  pool->ctx = ctx;
  atomic_store(&pool->running, (uint32_t)(pool->threads - 1));
  for (int i = 1; i < pool->threads; i++) atomic_store(&pool->workers[i - 1].taken, false);
  atomic_fetch_add(&pool->round, 1);
  futex_wake(&pool->round);
  run_range(pool, count, fn, ctx, 0);
  for (int i = 1; i < pool->threads; i++) take_range(pool, &pool->workers[i - 1]);
  for (uint32_t left; (left = atomic_load(&pool->running)) > 0;) futex_wait(&pool->running, left);
}

//---------------------------------- the wish to stop ----------------------------------

static _Atomic(const volatile sig_atomic_t *) watched;

void brim_stop_watch(const volatile sig_atomic_t *flag) { atomic_store(&watched, flag); }

bool brim_stop_wanted(void) {
  const volatile sig_atomic_t *flag = atomic_load(&watched);
  return flag && *flag;
}

bool brim_stop_overdue(brim_stop_wait *wait) {
  if (!brim_stop_wanted()) return false;
  long long now = (long long)brim_clock_now().ns;
  if (wait->since_ns == 0) wait->since_ns = now > 0 ? now : 1;
  return now - wait->since_ns >= BRIM_STOP_PATIENCE_MS * 1000000LL;
}
