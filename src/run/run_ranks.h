// Ranks of one training: which one this process is, the way to the others, and the watch that ends all of
// them when one fails. Nothing is printed here, and no process is started. Callers: the train command opens
// them, the run loop exchanges through `comm`.
#ifndef BRIM_RUN_RANKS_H_
#define BRIM_RUN_RANKS_H_

#include "backend/backend_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- this process ----------------------------------

typedef enum brim_ranks_origin {
  BRIM_RANKS_ALONE,  // one process, no ranks
  BRIM_RANKS_BRIM,   // brim's own launcher, on this machine
  BRIM_RANKS_MPI,    // mpirun or srun
  BRIM_RANKS_ORIGIN_COUNT
} brim_ranks_origin;

typedef struct brim_ranks_place {
  brim_ranks_origin origin;
  int rank, size, local_rank, local_size;  // of MPI what its launcher says; -1 = it does not
  char name[64];                           // of brim's launcher: the shared memory
} brim_ranks_place;

// What brim's launcher gives its children.
#define BRIM_RANKS_ENV_RANK "BRIM_RANK"
#define BRIM_RANKS_ENV_SIZE "BRIM_RANKS"
#define BRIM_RANKS_ENV_NAME "BRIM_RANKS_NAME"

// By the environment: brim's launcher, Open MPI, PMI (MPICH, Intel MPI), Slurm. A launcher of one process
// is none. `get` is getenv, or a test's own. BRIM_EINVAL where it contradicts itself.
brim_status brim_ranks_find(char *(*get)(const char *name), brim_ranks_place *out);

//---------------------------------- ranks ----------------------------------

typedef struct brim_ranks_options {
  // May be NULL. From a thread of the watch: another rank failed and this process has not ended
  // in the time it has for that. It is expected to end the process.
  void (*on_stuck)(void *ctx, const char *why);
  void *ctx;
  int64_t silence_ns;  // a rank that is silent for so long has failed; 0 = BRIM_RANKS_SILENCE_NS
  bool over_tcp;       // the watch uses TCP also within one machine: for tests
} brim_ranks_options;

#define BRIM_RANKS_SILENCE_NS (5 * (int64_t)1000000000)
#define BRIM_RANKS_GRACE_NS (3 * (int64_t)1000000000)   // until on_stuck
#define BRIM_RANKS_OPEN_NS (120 * (int64_t)1000000000)  // until all ranks must have come

typedef struct brim_ranks {
  brim_ranks_origin origin;
  int rank, size, local_rank, local_size;
  int cpu_ranks;           // of this machine that share the cores of this one, itself counted
  brim_comm *comm;         // between all ranks
  brim_comm *device_comm;  // the same ranks, for exchanges of the device; NULL = not attached
  char name[64];           // of the shared memory
  struct brim_ranks_watch *watch;
} brim_ranks;

// Waits until all ranks have come. *out is NULL for a process without ranks; every function below takes
// that for one rank.
brim_status brim_ranks_open(const brim_ranks_place *place, const brim_ranks_options *options,
                            brim_ranks **out);
// The others are not to wait for this rank any more. After a failure call brim_ranks_fail first.
void brim_ranks_close(brim_ranks *ranks);

// A failure of this rank, with the detail of this thread: the others end with this reason, and this returns
// when rank 0 has it. Where another rank has failed first: BRIM_ERANK, and the detail names it and its
// reason. Else the same status. From the thread that trains.
brim_status brim_ranks_fail(brim_ranks *ranks, brim_status status);
// Whether this process prints the reason of a failure (once for all ranks): after brim_ranks_fail.
bool brim_ranks_reports(const brim_ranks *ranks);

static inline int brim_ranks_rank(const brim_ranks *ranks) { return ranks ? ranks->rank : 0; }
static inline int brim_ranks_size(const brim_ranks *ranks) { return ranks ? ranks->size : 1; }
static inline brim_comm *brim_ranks_comm(const brim_ranks *ranks) {
  return ranks ? ranks->comm : NULL;
}
// The device's exchanges are with the other ranks: by its own means (NCCL) where each rank has a GPU of its
// own, else through the host, and `why` says why. Before a workload is opened on it; ranks outlive it.
brim_status brim_ranks_attach(brim_ranks *ranks, brim_device *device, char why[256]);

// CPU threads for this rank, of `threads` that the process may use: ranks of one machine share its cores.
int brim_ranks_threads(const brim_ranks *ranks, int threads);
// The device of this rank: its own of a list, "cuda:<local rank>" of `gpus` visible ones where "cuda" or
// "auto" leaves it open (they share where there are fewer), else the one that is named.
void brim_ranks_device(const brim_ranks *ranks, const char *const *devices, size_t count, int gpus,
                       char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RUN_RANKS_H_
