// Threads, waiting with a time limit, and a pool for parallel loops.
#ifndef BRIM_BASE_THREAD_H_
#define BRIM_BASE_THREAD_H_

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

int brim_cpu_count(void);  // cores this process may use (affinity respected), >= 1

// A plain thread; fn's result is not kept.
typedef struct brim_thread brim_thread;
brim_status brim_thread_start(void (*fn)(void *ctx), void *ctx, const char *name,
                              brim_thread **out);
void brim_thread_join(brim_thread *thread);  // joins and frees; NULL is fine
// Frees the handle of a thread that has begun: it ends when its function does, or with the process. NULL is
// fine.
void brim_thread_detach(brim_thread *thread);

// A condition that waits by brim_clock_now, which never jumps. 0, or an errno.
int brim_cond_init(pthread_cond_t *cond);
// Until it is signalled or the clock reads `until_ns`. False: that time has come.
bool brim_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ns);

// Pool of n workers in all, the caller counted (n = 1 runs inline).
typedef struct brim_pool brim_pool;
brim_status brim_pool_create(int threads, brim_pool **out);
void brim_pool_destroy(brim_pool *pool);
int brim_pool_threads(const brim_pool *pool);
// Split [0, count) into one contiguous range per thread, always the same split for the same pool
// size, and wait. fn gets its range and thread index. Not re-entrant.
typedef void (*brim_range_fn)(void *ctx, int64_t begin, int64_t end, int thread);
void brim_pool_run(brim_pool *pool, int64_t count, brim_range_fn fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_THREAD_H_
