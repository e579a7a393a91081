// Ranks of one training: the processes that share its batches, and how they exchange memory of the host.
// A communicator is a const table and an instance of it. Implementations: `shm` (ranks of one machine,
// linked in), `mpi` (a plug-in). Called by: backend_device.c for devices, run for all other exchanges.
#ifndef BRIM_BACKEND_COMM_H_
#define BRIM_BACKEND_COMM_H_

#include "backend/backend.h"

#define BRIM_RANKS_MAX 1024

// The functions of an implementation. Every rank makes the same calls in the same order, from one
// thread at a time. After a failed call the communicator is unusable.
typedef struct brim_host_comm_table {
  const char *name;  // "shm", "mpi"
  // Sums `data` over all ranks in place, adding in the order of ranks: the same bits on every rank and in
  // every run. F32, F64, I64.
  brim_status (*all_reduce)(void *impl, void *data, int64_t count, brim_dtype dtype);
  // Copies `mine` of rank r to all + r * bytes on every rank. `mine` may already lie there.
  brim_status (*all_gather)(void *impl, const void *mine, void *all, size_t bytes);
  brim_status (*broadcast)(void *impl, void *data, size_t bytes, int root);
  // Callable from any thread: calls that wait for other ranks, and all later calls, end with BRIM_EIO soon.
  // Other ranks learn of the end if the implementation can tell them.
  void (*abandon)(void *impl);
  void (*close)(void *impl);  // ranks that still wait for this one end too, as after abandon
} brim_host_comm_table;

typedef struct brim_comm brim_comm;

void brim_comm_destroy(brim_comm *comm);    // NULL is fine; abandons requests that are still posted
int brim_comm_rank(const brim_comm *comm);  // 0 of NULL
int brim_comm_size(const brim_comm *comm);  // 1 of NULL
const char *brim_comm_name(const brim_comm *comm);

// These three wait until they and all posted requests are done. A NULL communicator is a single rank.
// Once an exchange has failed, posted or not, every later call returns its status and detail.
brim_status brim_comm_all_reduce(brim_comm *comm, void *data, int64_t count, brim_dtype dtype);
brim_status brim_comm_all_gather(brim_comm *comm, const void *mine, void *all, size_t bytes);
brim_status brim_comm_broadcast(brim_comm *comm, void *data, size_t bytes, int root);
// Enqueues a sum and returns. `data` must stay untouched until brim_comm_wait returns. Requests are done
// in order.
brim_status brim_comm_post_all_reduce(brim_comm *comm, void *data, int64_t count, brim_dtype dtype);
// Waits until all posted requests are done.
brim_status brim_comm_wait(brim_comm *comm);
// Callable from any thread: calls of this rank, and of ranks that wait for it, end with BRIM_EIO soon.
void brim_comm_abandon(brim_comm *comm);

// Totals since the communicator was made.
typedef struct brim_comm_stats {
  uint64_t calls;
  uint64_t bytes;   // bytes summed, gathered (of all ranks) or broadcast
  int64_t busy_ns;  // time spent exchanging, on any thread
  // Time that callers waited for requests, posted or not: exchange time that no computing hides.
  int64_t waited_ns;
} brim_comm_stats;
void brim_comm_read_stats(brim_comm *comm, brim_comm_stats *out);

// Opens `size` ranks of this machine over shared memory (backend_comm.c). `name` begins with '/', is new,
// and is the same for all ranks (shm_open; the last rank that arrives unlinks it). Waits until all ranks
// came, at most timeout_ns; the detail names the missing ranks.
brim_status brim_comm_open_shm(const char *name, int rank, int size, int64_t timeout_ns,
                               brim_comm **out);

// Ranks that mpirun or srun started, over MPI. Only such processes load the plug-in
// lib/brim/ranks/libbrim_mpi.so. BRIM_ENOENT where it was not built, or the machine has no libmpi.
typedef struct brim_mpi_ranks {
  const brim_host_comm_table *table;
  void *impl;
  int rank, size;
  int local_rank, local_size;  // among the ranks of this machine
} brim_mpi_ranks;
// Name of the plug-in's extension.
#define BRIM_MPI_EXTENSION "ranks.mpi"
typedef struct brim_mpi_table {
  brim_status (*open)(
      brim_mpi_ranks *out);  // initialises MPI; closing the communicator finalises it
} brim_mpi_table;
brim_status brim_comm_open_mpi(brim_comm **out, int *local_rank, int *local_size);

#endif  // BRIM_BACKEND_COMM_H_
