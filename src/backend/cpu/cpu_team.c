// The thread team of this process. oneDNN's loops run on it too: the plug-in defines the six functions
// of the OpenMP ABI that oneDNN calls, and the linker finds the plug-in's before libgomp's. libgomp's team
// is slow when other programs use the cores too: a thread spins or waits in a barrier until another thread
// is scheduled again, and each parallel region loses a time slice. In this team
// - threads claim the ranks of a parallel region, and the caller takes ranks that no worker has begun. A
//   worker that is not scheduled costs nothing. A rank computes the same bits on any thread.
// - a wait spins for a time that adapts to earlier waits, then sleeps (futex).
// - workers keep off the caller's core (base_cores.h).
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/cpu_int.h"
#include "base/base_machine.h"

// Functions of libgomp that the plug-in does not define. They set the thread number in case another library
// loaded oneDNN first, so that oneDNN runs on libgomp's team.
void omp_set_num_threads(int threads);
void omp_set_dynamic(int dynamic);

enum {
  MOST_THREADS = 4096,  // the most that the configuration allows
  SPIN_LEAST_NS = 500,
  SPIN_MOST_NS = 50000,  // about the time to wake a sleeping thread of a virtual machine
};

typedef _Atomic uint32_t word;  // a thread can sleep on it (futex)

// Claim of a rank. While the rank is free, it is the number of the region, which is even. A thread claims the
// rank by adding 1.
typedef struct rank_claim {
  _Alignas(BRIM_CPU_ALIGN) word claim;
} rank_claim;

typedef struct team {
  pthread_mutex_t busy;  // one region at a time, as each wants all cores
  pid_t pid;             // process of the team; 0 = not used yet. Threads do not survive a fork
  int workers;           // worker threads that were started
  uint32_t spin_most, spin_least;  // iterations
  brim_cores place;
  // The current region. Threads that have claimed one of its ranks read body and arg.
  brim_cpu_body body;
  void *arg;
  atomic_int ranks;
  _Alignas(BRIM_CPU_ALIGN) word region;  // number of the region; workers sleep on it
  atomic_int sleepers;
  _Alignas(BRIM_CPU_ALIGN) word left;  // ranks that have not ended; the caller sleeps on it
  atomic_int caller_sleeps;
  _Alignas(BRIM_CPU_ALIGN) word phase;  // number of the barrier's current round
  atomic_int arrived, phase_sleepers;
} team;

// All devices of the process share this team, as they share the cores.
static team the_team = {.busy = PTHREAD_MUTEX_INITIALIZER};
static rank_claim claims[MOST_THREADS];
static pid_t worker_ids[MOST_THREADS];

// State of this thread in the region that it runs.
static _Thread_local struct {
  int rank, size;  // rank and size of the region; size 0 or 1 = no other thread takes part
  bool inside;     // this thread runs a rank: a nested region runs on this thread only
  int threads;     // number of threads that oneDNN takes
  uint32_t spin;   // iterations that a wait may spin
} self;

//---------------------------------- waiting ----------------------------------

static void futex_wait(word *at, uint32_t old) {
  syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

static void futex_wake(word *at, int count) {
  syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Converts SPIN_LEAST_NS and SPIN_MOST_NS to numbers of pauses. A pause takes 10 cycles on one CPU and 140
// on another. Uses the fastest of several tries, as that one was not interrupted.
static void measure_spin(team *t) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < 8; i++) {
    const int64_t start = now_ns();
    for (int k = 0; k < 64; k++) relax();
    const int64_t took = now_ns() - start;
    if (took < best) best = took;
  }
  if (best < 64) best = 64;
  t->spin_most = (uint32_t)(SPIN_MOST_NS * 64 / best);
  t->spin_least = (uint32_t)(SPIN_LEAST_NS * 64 / best) + 1;
}

static bool spin_while(word *at, uint32_t old) {
  for (uint32_t i = 0; i < self.spin; i++) {
    if (atomic_load_explicit(at, memory_order_acquire) != old) return true;
    relax();
  }
  return false;
}

// Waits until *at is no longer `old`: spins, then sleeps. After a short sleep the next wait spins twice as
// long, after a long sleep half as long. The thread that changes *at wakes others only if `sleepers` is not 0.
static void wait_while(const team *t, word *at, uint32_t old, atomic_int *sleepers) {
  if (self.spin < t->spin_least) self.spin = t->spin_least;
  if (spin_while(at, old)) return;
  const int64_t start = now_ns();
  atomic_fetch_add(sleepers, 1);
  while (atomic_load(at) == old) futex_wait(at, old);
  atomic_fetch_sub(sleepers, 1);
  if (now_ns() - start > 2 * SPIN_MOST_NS) {
    self.spin /= 2;
  } else if (self.spin < t->spin_most) {
    self.spin *= 2;
  }
}

//---------------------------------- ranks ----------------------------------

static void run_rank(team *t, int rank) {
  const int size = atomic_load_explicit(&t->ranks, memory_order_relaxed);
  self.rank = rank, self.size = size, self.inside = true;
  t->body(t->arg, rank, size);
  self.rank = 0, self.size = 1, self.inside = false;
  if (atomic_fetch_sub(&t->left, 1) == 1 && atomic_load(&t->caller_sleeps)) futex_wake(&t->left, 1);
}

static bool claim(int rank, uint32_t region) {
  uint32_t open = region;
  return atomic_compare_exchange_strong(&claims[rank].claim, &open, region + 1);
}

// Claims and runs ranks, from rank `first` on. A worker begins with the rank that has its own number, whose
// data are likely in its core's cache.
static void run_claimed(team *t, int first, uint32_t region) {
  const int ranks = atomic_load_explicit(&t->ranks, memory_order_relaxed);
  for (int i = 0; i < ranks; i++) {
    const int rank = (first + i) % ranks;
    if (rank > 0 && claim(rank, region)) run_rank(t, rank);
  }
}

static void *worker_main(void *arg) {
  team *t = &the_team;
  const int rank = (int)(intptr_t)arg;
  uint32_t seen = 0;
  (void)pthread_setname_np(pthread_self(), "brim-team");
  __atomic_store_n(&worker_ids[rank - 1], (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
  for (;;) {
    const uint32_t region = atomic_load_explicit(&t->region, memory_order_acquire);
    if (region == seen) {
      wait_while(t, &t->region, seen, &t->sleepers);
      continue;
    }
    seen = region;
    run_claimed(t, rank, region);
  }
  return NULL;
}

//---------------------------------- the team ----------------------------------

static void lock_team(team *t) {
  const pid_t pid = getpid();
  // A forked process has no workers, and a region may have been running: start a new team.
  if (t->pid && t->pid != pid) {
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->busy, NULL);
  }
  pthread_mutex_lock(&t->busy);
  if (t->pid) return;
  t->pid = pid;
  brim_cores_init(&t->place);
  measure_spin(t);
}

static int start_worker(team *t) {
  // Signals go to the program's threads; faults still reach this thread.
  sigset_t block, before;
  sigfillset(&block);
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&block, faults[i]);
  pthread_t handle;
  worker_ids[t->workers] = 0;
  pthread_sigmask(SIG_SETMASK, &block, &before);
  const int err = pthread_create(&handle, NULL, worker_main, (void *)(intptr_t)(t->workers + 1));
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (err) return err;
  pthread_detach(handle);
  t->workers++;
  t->place.cpu = -1;  // the next region chooses the worker's core
  return 0;
}

int brim_cpu_team_start(int threads, int *started) {
  team *t = &the_team;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  lock_team(t);
  int err = 0;
  while (!err && t->workers + 1 < threads) err = start_worker(t);
  *started = t->workers + 1;
  pthread_mutex_unlock(&t->busy);
  return err;
}

static void wait_for_ranks(team *t) {
  for (;;) {
    const uint32_t left = atomic_load_explicit(&t->left, memory_order_acquire);
    if (left == 0) return;
    wait_while(t, &t->left, left, &t->caller_sleeps);
  }
}

void brim_cpu_team_run(int threads, brim_cpu_body body, void *arg) {
  if (threads <= 1 || self.inside) {
    const int rank = self.rank, size = self.size;
    self.rank = 0, self.size = 1;
    body(arg, 0, 1);
    self.rank = rank, self.size = size;
    return;
  }
  team *t = &the_team;
  lock_team(t);
  if (threads > t->workers + 1) threads = t->workers + 1;
  brim_cores_place(&t->place, worker_ids, threads - 1);
  const uint32_t region = atomic_load_explicit(&t->region, memory_order_relaxed) + 2;
  t->body = body;
  t->arg = arg;
  atomic_store_explicit(&t->ranks, threads, memory_order_relaxed);
  atomic_store_explicit(&t->left, (uint32_t)threads, memory_order_relaxed);
  for (int i = 1; i < threads; i++) {
    atomic_store_explicit(&claims[i].claim, region, memory_order_release);
  }
  atomic_store(&t->region, region);
  const int asleep = atomic_load(&t->sleepers);
  if (asleep > 0) futex_wake(&t->region, asleep < threads - 1 ? asleep : threads - 1);
  run_rank(t, 0);
  run_claimed(t, 1, region);
  wait_for_ranks(t);
  pthread_mutex_unlock(&t->busy);
}

void brim_cpu_team_set_default(int threads) {
  self.threads = threads;
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
}

//---------------------------------- for oneDNN ----------------------------------

typedef struct omp_call {
  void (*fn)(void *);
  void *data;
} omp_call;

static void omp_body(void *arg, int rank, int size) {
  (void)rank, (void)size;
  const omp_call *call = arg;
  call->fn(call->data);
}

#define OMP_ABI __attribute__((visibility("default")))

OMP_ABI void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
OMP_ABI void GOMP_barrier(void);
OMP_ABI int omp_get_thread_num(void);
OMP_ABI int omp_get_num_threads(void);
OMP_ABI int omp_get_max_threads(void);
OMP_ABI int omp_in_parallel(void);

// threads 0 means the number of omp_get_max_threads.
void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags) {
  (void)flags;
  omp_call call = {fn, data};
  brim_cpu_team_run(threads ? (int)threads : omp_get_max_threads(), omp_body, &call);
}

// Works only if all threads of the region run at once. Only oneDNN's regions have barriers.
void GOMP_barrier(void) {
  team *t = &the_team;
  if (self.size <= 1) return;
  const uint32_t phase = atomic_load_explicit(&t->phase, memory_order_acquire);
  if (atomic_fetch_add(&t->arrived, 1) + 1 < self.size) {
    wait_while(t, &t->phase, phase, &t->phase_sleepers);
    return;
  }
  atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
  atomic_store(&t->phase, phase + 1);
  if (atomic_load(&t->phase_sleepers)) futex_wake(&t->phase, self.size);
}

int omp_get_thread_num(void) { return self.rank; }
int omp_get_num_threads(void) { return self.size > 1 ? self.size : 1; }
int omp_get_max_threads(void) { return self.threads > 0 ? self.threads : 1; }
int omp_in_parallel(void) { return self.inside; }
