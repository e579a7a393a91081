// Threads, waiting with a time limit, a pool for parallel loops, and the user's wish to stop.
#ifndef BRIM_BASE_THREAD_H_
#define BRIM_BASE_THREAD_H_

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

int brim_cpu_count(void);  // usable cores by affinity and quota; at least 1

typedef struct brim_thread brim_thread;
brim_status brim_thread_start(void (*fn)(void *ctx), void *ctx, const char *name,
                              brim_thread **out);
void brim_thread_join(brim_thread *thread);  // joins and frees; NULL is fine
// Frees the handle; the thread continues to the end of its function. NULL is fine.
void brim_thread_detach(brim_thread *thread);

// Initialises a condition that uses the clock of brim_clock_now, which never jumps. Returns 0 or an errno.
int brim_cond_init(pthread_cond_t *cond);
// Waits for a signal until `until_ns`. Returns false if that time has come.
bool brim_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ns);

// A pool of n threads, including the caller (n = 1 runs inline).
typedef struct brim_pool brim_pool;
brim_status brim_pool_create(int threads, brim_pool **out);
void brim_pool_destroy(brim_pool *pool);
int brim_pool_threads(const brim_pool *pool);
// Splits [0, count) into one range per thread, runs fn on each, and waits. Pools of one size always make the same
// ranges. Not re-entrant.
typedef void (*brim_range_fn)(void *ctx, int64_t begin, int64_t end, int thread);
void brim_pool_run(brim_pool *pool, int64_t count, brim_range_fn fn, void *ctx);

//---------------------------------- the wish to stop ----------------------------------
// The user's wish to stop, for waits deep below the loop that checks it: for a sleeping helper process, a lost
// drive, a plan of many ops.

// Sets the flag that the program's signal handler raises; NULL = none. Process-wide, like signals. The flag must
// live as long as it is set.
void brim_stop_watch(const volatile sig_atomic_t *flag);
bool brim_stop_wanted(void);

// For loops that wait: call brim_stop_overdue every BRIM_STOP_LOOK_MS. It returns true once BRIM_STOP_PATIENCE_MS
// have passed since this wait first saw the wish, so that work that is about to end can end.
enum { BRIM_STOP_LOOK_MS = 100, BRIM_STOP_PATIENCE_MS = 1000 };
typedef struct brim_stop_wait {
  long long since_ns;  // time when this wait first saw the wish; 0 = not yet
} brim_stop_wait;
bool brim_stop_overdue(brim_stop_wait *wait);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_THREAD_H_
