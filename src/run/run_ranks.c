// Ranks of one training: opening their communicator and the watch, their end, their shares of a machine.
#include "run/run_ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/run_ranks_int.h"

#define CAUSE_NS \
  (1000000000)  // an exchange that fails is mostly another rank's doing: its reason follows

//---------------------------------- opening ----------------------------------

// What ranks tell each other about the machine they are on.
typedef struct rank_machine {
  char host[64];
  cpu_set_t cpus;
} rank_machine;

static brim_status count_neighbours(brim_ranks *ranks) {
  rank_machine *all = brim_calloc((size_t)ranks->size + 1, sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  rank_machine *mine = &all[ranks->size];
  (void)gethostname(mine->host, sizeof mine->host - 1);
  CPU_ZERO(&mine->cpus);
  if (sched_getaffinity(0, sizeof mine->cpus, &mine->cpus))
    memset(&mine->cpus, 0xff, sizeof mine->cpus);
  brim_status status = brim_comm_all_gather(ranks->comm, mine, all, sizeof *all);
  ranks->cpu_ranks = 0;
  for (int r = 0; !status && r < ranks->size; r++) {
    cpu_set_t both;
    CPU_AND(&both, &all[r].cpus, &mine->cpus);
    if (strcmp(all[r].host, mine->host) == 0 && CPU_COUNT(&both) > 0) ranks->cpu_ranks++;
  }
  if (ranks->cpu_ranks < 1) ranks->cpu_ranks = 1;
  brim_free(all);
  return status;
}

static brim_status open_comm(const brim_ranks_place *place, brim_ranks *ranks) {
  if (place->origin == BRIM_RANKS_BRIM) {
    ranks->local_rank = place->rank;
    ranks->local_size = place->size;
    snprintf(ranks->name, sizeof ranks->name, "%s", place->name);
    return brim_comm_open_shm(place->name, place->rank, place->size, BRIM_RANKS_OPEN_NS,
                              &ranks->comm);
  }
  BRIM_TRY(brim_comm_open_mpi(&ranks->comm, &ranks->local_rank, &ranks->local_size));
  if (brim_comm_size(ranks->comm) == place->size) return BRIM_OK;
  return brim_fail(
      BRIM_EUNSUPPORTED,
      "the launcher started %d ranks, but MPI knows %d: use the mpirun of brim's MPI, or "
      "srun --mpi=pmix",
      place->size, brim_comm_size(ranks->comm));
}

brim_status brim_ranks_open_twin(brim_ranks *ranks, brim_comm **out) {
  int local_rank, local_size;
  char name[sizeof ranks->name + 8];
  if (ranks->origin == BRIM_RANKS_MPI) return brim_comm_open_mpi(out, &local_rank, &local_size);
  snprintf(name, sizeof name, "%s-twin", ranks->name);
  return brim_comm_open_shm(name, ranks->rank, ranks->size, BRIM_RANKS_OPEN_NS, out);
}

brim_status brim_ranks_open(const brim_ranks_place *place, const brim_ranks_options *options,
                            brim_ranks **out) {
  *out = NULL;
  if (place->origin == BRIM_RANKS_ALONE) return BRIM_OK;
  brim_ranks *ranks = brim_calloc(1, sizeof *ranks);
  if (!ranks) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  ranks->origin = place->origin;
  brim_status status = open_comm(place, ranks);
  if (!status) {
    ranks->rank = brim_comm_rank(ranks->comm);
    ranks->size = brim_comm_size(ranks->comm);
    status = count_neighbours(ranks);
  }
  if (!status) status = brim_ranks_watch_open(ranks, options, &ranks->watch);
  if (status) {
    if (ranks->comm) brim_comm_abandon(ranks->comm);
    brim_ranks_close(ranks);
    return status;
  }
  *out = ranks;
  return BRIM_OK;
}

void brim_ranks_close(brim_ranks *ranks) {
  if (!ranks) return;
  // The communicator first: MPI waits here for the other ranks, and they may still fail.
  brim_ranks_watch_leave(ranks->watch);
  brim_comm_destroy(ranks->device_comm);
  brim_comm_destroy(ranks->comm);
  brim_ranks_watch_close(ranks->watch);
  brim_free(ranks);
}

//---------------------------------- failures ----------------------------------

// A mistake in the config is every rank's own, whichever of them is the first to say so.
static bool is_input(brim_status status) {
  return status == BRIM_EINVAL || status == BRIM_EPARSE || status == BRIM_ENOENT ||
         status == BRIM_EEXIST || status == BRIM_EUNSUPPORTED;
}

brim_status brim_ranks_fail(brim_ranks *ranks, brim_status status) {
  if (!ranks || !status) return status;
  char detail[1024], why[1400];
  bool own = false;
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  bool ended = brim_ranks_watch_ended(ranks->watch, status == BRIM_EIO ? CAUSE_NS : 0, why,
                                      sizeof why, &own);
  if (!ended) {
    brim_ranks_watch_fail(ranks->watch, status, detail);
    ended = brim_ranks_watch_ended(ranks->watch, 0, why, sizeof why, &own);
  }
  brim_comm_abandon(ranks->comm);
  brim_comm_abandon(ranks->device_comm);
  if (ended && !own && !is_input(status)) {
    brim_status_set_detail(why);
    return BRIM_ERANK;
  }
  brim_status_set_detail(detail);
  return status;
}

bool brim_ranks_reports(const brim_ranks *ranks) {
  if (!ranks || ranks->rank == 0) return true;
  char why[1400];
  bool own;
  // Without an answer of rank 0 each says what it knows.
  if (!brim_ranks_watch_ended(ranks->watch, 0, why, sizeof why, &own)) return true;
  // The launcher of brim sees what became of rank 0.
  return ranks->rank == 1 && ranks->origin == BRIM_RANKS_MPI &&
         brim_ranks_watch_lost_first(ranks->watch);
}

//---------------------------------- shares of a machine ----------------------------------

int brim_ranks_threads(const brim_ranks *ranks, int threads) {
  const int each = ranks ? threads / ranks->cpu_ranks : threads;
  return each > 0 ? each : 1;
}

void brim_ranks_device(const brim_ranks *ranks, const char *const *devices, size_t count, int gpus,
                       char *out, size_t size) {
  const int local = ranks ? ranks->local_rank : 0;
  const char *named = count > 0 ? devices[(size_t)local % count] : "auto";
  const bool open = strcmp(named, "cuda") == 0 || strcmp(named, "auto") == 0;
  if (ranks && count <= 1 && open && gpus > 0) {
    snprintf(out, size, "cuda:%d", local % gpus);
  } else {
    snprintf(out, size, "%s", named);
  }
}
