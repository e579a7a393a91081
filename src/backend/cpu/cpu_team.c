// The thread team: libgomp's own, so that our loops and oneDNN's share one set of threads (two sets
// would spin against each other). Called by its ABI instead of by pragmas: clang emits calls of
// another runtime, and both compilers must build this.
#include "backend/cpu/cpu_int.h"

// The stable ABI behind `#pragma omp parallel` and `#pragma omp barrier` (libgomp since GCC 4.9).
void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_barrier(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
void omp_set_num_threads(int threads);
void omp_set_dynamic(int dynamic);

typedef struct team_call {
  brim_cpu_body body;
  void *arg;
} team_call;

static void team_entry(void *data) {
  const team_call *call = data;
  call->body(call->arg, omp_get_thread_num(), omp_get_num_threads());
}

void brim_cpu_team_run(int threads, brim_cpu_body body, void *arg) {
  if (threads <= 1) {
    body(arg, 0, 1);
    return;
  }
  team_call call = {body, arg};
  GOMP_parallel(team_entry, &call, (unsigned)threads, 0);
}

// Outside a team (size 1) libgomp's barrier returns at once.
void brim_cpu_team_barrier(void) { GOMP_barrier(); }

void brim_cpu_team_set_default(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
}
