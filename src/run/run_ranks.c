// Ranks of one training: which one this process is, their communicator, their agreement, their end.

#include "run/run_ranks.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend_exchange.h"
#include "run/run_loop.h"
#include "run/run_ranks_int.h"

static brim_status brim_ranks_open_twin(brim_ranks *ranks, brim_comm **out);

//------------------------------------------ which rank ------------------------------------------
// Which rank this process is, by the environment that its launcher made.

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

//------------------------------------------- devices -------------------------------------------
// A device becomes a rank's: which way its exchanges go, and a communicator of their own where they run
// beside the thread that trains.

// NCCL wants a GPU for each rank.
static brim_status each_its_own(const brim_ranks *ranks, const brim_device *device, bool *out) {
  char mine[sizeof device->info.id] = "";
  size_t size = sizeof mine;
  char *all = brim_calloc((size_t)ranks->size, size);
  if (!all) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  snprintf(mine, size, "%s", device->info.id);
  brim_status status = brim_comm_all_gather(ranks->comm, mine, all, size);
  *out = true;
  for (int a = 0; !status && a < ranks->size; a++) {
    const char *id = all + (size_t)a * size;
    if (!id[0]) *out = false;
    for (int b = 0; b < a; b++) *out = *out && strcmp(id, all + (size_t)b * size) != 0;
  }
  brim_free(all);
  return status;
}

static brim_status attach_gpu(brim_ranks *ranks, brim_device *device, char why[256]) {
  bool apart = false;
  BRIM_TRY(each_its_own(ranks, device, &apart));
  BRIM_TRY(brim_device_set_ranks(device, ranks->device_comm, apart, why));
  if (!apart) snprintf(why, 256, "%s", brim_tr("ranks share a GPU"));
  return BRIM_OK;
}

brim_status brim_ranks_attach(brim_ranks *ranks, brim_device *device, char why[256]) {
  why[0] = 0;
  if (!ranks) {
    // to measure what exchanging costs
    return getenv("BRIM_EXCHANGE_ALONE") ? brim_device_set_ranks(device, NULL, true, why) : BRIM_OK;
  }
  if (!ranks->device_comm) {
    BRIM_TRY(brim_ranks_open_twin(ranks, &ranks->device_comm));
    brim_ranks_watch_add(ranks->watch, ranks->device_comm);
  }
  if (device->info.host_memory) {
    return brim_device_set_ranks(device, ranks->device_comm, false, why);
  }
  return attach_gpu(ranks, device, why);
}

//-------------------------------------------- ranks --------------------------------------------
// Ranks of one training: opening their communicator and the watch, their end, their shares of a machine.

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

// One more communicator between the same ranks; all of them call this.
static brim_status brim_ranks_open_twin(brim_ranks *ranks, brim_comm **out) {
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

//------------------------------------------ agreement ------------------------------------------
// A run on several ranks: what has to be the same on all of them although clocks, files and signals are
// each rank's own. The first rank alone writes; where it decides, the others follow.

bool brim_run_writes(const brim_run_loop *l) { return brim_comm_rank(l->comm) == 0; }

brim_status brim_run_agree_stop(brim_run_loop *l) {
  const volatile sig_atomic_t *stop = l->options->stop;
  int64_t any = stop && *stop;
  if (!l->comm) return BRIM_OK;
  BRIM_TRY(brim_comm_all_reduce(l->comm, &any, 1, BRIM_I64));
  l->agreed_stop = any > 0;
  return BRIM_OK;
}

bool brim_run_stopped(const brim_run_loop *l) {
  const volatile sig_atomic_t *stop = l->comm ? &l->agreed_stop : l->options->stop;
  return stop && *stop;
}

brim_status brim_run_decide(const brim_run_loop *l, bool *decision) {
  unsigned char first = *decision;
  if (!l->comm) return BRIM_OK;
  BRIM_TRY(brim_comm_broadcast(l->comm, &first, 1, 0));
  *decision = first != 0;
  return BRIM_OK;
}

// Bits of an evaluation may differ between machines, and what is best must not.
brim_status brim_run_decide_metrics(const brim_run_loop *l, brim_work_metrics *m) {
  const brim_metric_set *set = m->set;
  if (!l->comm) return BRIM_OK;
  brim_status status = brim_comm_broadcast(l->comm, m, sizeof *m, 0);
  m->set = set;
  return status;
}

brim_status brim_run_decide_path(const brim_run_loop *l, char **path) {
  char text[4096] = "";
  if (!l->comm) return BRIM_OK;
  if (*path && strlen(*path) >= sizeof text) {
    return brim_fail(BRIM_EINVAL, "the path of the checkpoint is longer than %zu bytes",
                     sizeof text - 1);
  }
  if (*path) strcpy(text, *path);
  BRIM_TRY(brim_comm_broadcast(l->comm, text, sizeof text, 0));
  brim_free(*path);
  *path = text[0] ? brim_strdup(text) : NULL;
  if (text[0] && !*path) return brim_fail(BRIM_ENOMEM, "out of memory while opening a checkpoint");
  return BRIM_OK;
}

//---------------------------------- what must be the same ----------------------------------

// Each machine has its own place for data, and its own way to read and to compute. Of knobs the figures
// below tell what has to be the same.
static bool may_differ(const brim_work *work, const char *line) {
  static const char *const keys[] = {"backend", "checkpoint.", "data.path", "dataset",
                                     "gpu.",    "log.",        "threads",   "training.weights"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (brim_str_starts(line, keys[i])) return true;
  }
  const size_t size = strcspn(line, " \n");
  const char *name = line;
  for (size_t i = 0; i < size; i++) {
    if (line[i] == '.') name = line + i + 1;
  }
  const size_t left = size - (size_t)(name - line);
  for (size_t i = 0; i < work->knob_count; i++) {
    const char *knob = work->knobs[i].name;
    if (strlen(knob) == left && memcmp(knob, name, left) == 0) return true;
  }
  return false;
}

// The next line from *at that has to be the same, without its end; NULL = there is none.
static const char *next_line(const brim_work *work, const char **at, int *size) {
  while (**at) {
    const char *line = *at;
    size_t n = strcspn(line, "\n");
    *at = line + n + (line[n] != 0);
    *size = (int)n;
    if (!may_differ(work, line)) return line;
  }
  *size = 0;
  return NULL;
}

static brim_status compare_configs(const brim_run_loop *l, const char *mine, const char *first) {
  for (;;) {
    int mine_size, first_size;
    const char *m = next_line(l->work, &mine, &mine_size);
    const char *f = next_line(l->work, &first, &first_size);
    if (!m && !f) return BRIM_OK;
    if (m && f && mine_size == first_size && memcmp(m, f, (size_t)mine_size) == 0) continue;
    // They are sorted: the smaller one is what the other config lacks. A key stands before a space.
    bool more = m && (!f || strncmp(m, f, (size_t)mine_size + 1) < 0);
    const char *key = more ? m : f;
    return brim_fail(BRIM_EINVAL,
                     "the config of rank %d is not that of the first rank: %.*s differs; start all "
                     "ranks with the same config",
                     brim_comm_rank(l->comm), (int)strcspn(key, " \n"), key);
  }
}

static brim_status same_config(const brim_run_loop *l) {
  brim_str mine;
  brim_str_init(&mine);
  brim_status status = brim_config_identity(l->config, BRIM_CONFIG_EXPERIMENT, &mine);
  int64_t size = (int64_t)mine.len;
  if (!status) status = brim_comm_broadcast(l->comm, &size, sizeof size, 0);
  char *first = status ? NULL : brim_calloc((size_t)size + 1, 1);
  if (!status && !first) status = brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  if (!status && mine.len > 0 && brim_run_writes(l)) memcpy(first, mine.data, mine.len);
  if (!status) status = brim_comm_broadcast(l->comm, first, (size_t)size, 0);
  if (!status) status = compare_configs(l, mine.len > 0 ? mine.data : "", first);
  brim_free(first);
  brim_str_deinit(&mine);
  return status;
}

brim_status brim_run_check_same(const brim_run_loop *l) {
  static const char *const names[] = {"training.epochs",
                                      "training.steps",
                                      "checkpoint.interval",
                                      "log.interval",
                                      "training.eval_interval",
                                      "the first step",
                                      "training samples",
                                      "steps of an epoch",
                                      "samples to evaluate",
                                      "samples of a micro-batch",
                                      "micro-batches of a step",
                                      "samples evaluated at once",
                                      "classes"};
  const brim_work_info *info = &l->info;
  const int64_t mine[] = {l->epochs,
                          l->limit,
                          l->interval,
                          l->log_interval,
                          l->eval_interval,
                          l->step,
                          info->samples_per_epoch,
                          info->steps_per_epoch,
                          info->eval_samples,
                          info->batch,
                          info->accumulation,
                          info->eval_batch,
                          info->classes};
  enum { COUNT = sizeof mine / sizeof *mine };
  _Static_assert(sizeof names / sizeof *names == COUNT, "a name for each");
  char version[32] = "", own[32] = "";
  int64_t first[COUNT];
  if (!l->comm) return BRIM_OK;
  memcpy(first, mine, sizeof first);
  snprintf(own, sizeof own, "%s", BRIM_VERSION);
  memcpy(version, own, sizeof version);
  BRIM_TRY(brim_comm_broadcast(l->comm, version, sizeof version, 0));
  if (strcmp(version, own) != 0) {
    return brim_fail(BRIM_EINVAL, "rank %d is brim %s, and the first rank is brim %.31s",
                     brim_comm_rank(l->comm), own, version);
  }
  BRIM_TRY(same_config(l));
  BRIM_TRY(brim_comm_broadcast(l->comm, first, sizeof first, 0));
  for (size_t i = 0; i < COUNT; i++) {
    if (first[i] == mine[i]) continue;
    return brim_fail(BRIM_EINVAL,
                     "rank %d and the first rank do not train on the same: %s is %" PRId64
                     " there and %" PRId64 " here",
                     brim_comm_rank(l->comm), names[i], first[i], mine[i]);
  }
  return BRIM_OK;
}
