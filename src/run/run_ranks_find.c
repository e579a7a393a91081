// Which rank this process is, by the environment that its launcher made.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/run_ranks.h"

typedef struct launcher {
  brim_ranks_origin origin;
  const char *size, *rank, *local_rank, *local_size;  // names of variables; NULL = it has none
} launcher;

// The first whose two first variables are there. Open MPI's mpirun within a Slurm job is Open MPI.
static const launcher launchers[] = {
    {BRIM_RANKS_BRIM, BRIM_RANKS_ENV_SIZE, BRIM_RANKS_ENV_RANK, BRIM_RANKS_ENV_RANK,
     BRIM_RANKS_ENV_SIZE},
    {BRIM_RANKS_MPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {BRIM_RANKS_MPI, "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {BRIM_RANKS_MPI, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL},
    {BRIM_RANKS_MPI, "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL},
};

// A number of the environment; -1 where it is missing or none.
static int64_t number(char *(*get)(const char *name), const char *name) {
  const char *text = name ? get(name) : NULL;
  int64_t value = -1;
  if (!text || !brim_parse_i64(text, &value) || value < 0 || value > INT_MAX) return -1;
  return value;
}

static brim_status read_launcher(char *(*get)(const char *name), const launcher *l,
                                 brim_ranks_place *out) {
  int64_t size = number(get, l->size), rank = number(get, l->rank);
  if (size < 1 || rank < 0 || rank >= size || size > BRIM_RANKS_MAX) {
    return brim_fail(BRIM_EINVAL, "%s=%s and %s=%s name no rank of 1 to %d", l->rank, get(l->rank),
                     l->size, get(l->size), BRIM_RANKS_MAX);
  }
  if (size == 1) return BRIM_OK;  // mpirun -n 1
  out->origin = l->origin;
  out->rank = (int)rank;
  out->size = (int)size;
  out->local_rank = (int)number(get, l->local_rank);
  out->local_size = (int)number(get, l->local_size);
  if (l->origin != BRIM_RANKS_BRIM) return BRIM_OK;
  const char *name = get(BRIM_RANKS_ENV_NAME);
  if (!name || name[0] != '/' || strlen(name) >= sizeof out->name) {
    return brim_fail(BRIM_EINVAL, "%s does not name the shared memory of the ranks",
                     BRIM_RANKS_ENV_NAME);
  }
  snprintf(out->name, sizeof out->name, "%s", name);
  return BRIM_OK;
}

brim_status brim_ranks_find(char *(*get)(const char *name), brim_ranks_place *out) {
  *out = (brim_ranks_place){.size = 1, .local_size = 1};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const launcher *l = &launchers[i];
    if (!get(l->size) || !get(l->rank)) continue;
    // A batch script has these too; only what srun started is a task of a step.
    if (strncmp(l->rank, "SLURM_", 6) == 0 && !get("SLURM_STEP_ID")) continue;
    return read_launcher(get, l, out);
  }
  return BRIM_OK;
}
