// Ranks of a command: how many the config asks for, which one this process is, and the reason of a failure, which is
// printed once for all of them. The launcher starts them as processes of the same command line.
#include "cli/job/cli_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

struct brim_cli_ranks {
  brim_ranks *ranks;
  atomic_bool reported;  // a thread has printed the reason of a failure
  atomic_int exit_code;  // for on_stuck: the thread that watches the ranks may end the process
};

brim_ranks *brim_cli_ranks_get(const brim_cli_ranks *r) { return r ? r->ranks : NULL; }

//---------------------------------- the number of ranks ----------------------------------

static brim_status check_gpus(const brim_cli_job *job, int64_t gpus, size_t devices) {
  if (devices > 1) {
    if ((size_t)gpus <= devices) return BRIM_OK;
    return brim_fail(BRIM_EINVAL, "gpus is %d, but device names %zu devices", (int)gpus, devices);
  }
  const int gpus_here = brim_cli_job_gpus(job);
  if (gpus <= gpus_here) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "gpus is %d, but this machine has %d GPUs; ranks=%d shares what is there",
                   (int)gpus, gpus_here, (int)gpus);
}

// Fails if `device` lists a GPU that this machine does not have. Checked before the ranks start, so
// that the message appears once.
static brim_status check_devices(const brim_cli_job *job, size_t devices) {
  const int gpus_here = brim_cli_job_gpus(job);
  for (size_t i = 0; i < devices; i++) {
    const char *spec = NULL;
    int64_t index = 0;
    BRIM_TRY(brim_work_device_at(job->config, i, &spec));
    const char *colon = strchr(spec, ':');
    bool gpu = brim_str_starts(spec, "cuda"), number = brim_parse_i64(spec, &index);
    if (!(gpu || number) || (colon && !brim_parse_i64(colon + 1, &index))) continue;
    if (index < gpus_here) continue;
    return brim_fail(BRIM_EDEVICE,
                     "device names %s, but this machine has %d GPUs; --device cpu trains without, "
                     "brim doctor says what is missing",
                     spec, gpus_here);
  }
  return BRIM_OK;
}

brim_status brim_cli_ranks_wanted(const brim_cli_job *job, int *out) {
  const size_t devices = brim_work_device_count(job->config);
  const int64_t gpus =
      brim_config_is_set(job->config, "gpus") ? brim_config_int(job->config, "gpus") : 0;
  const int64_t ranks =
      brim_config_is_set(job->config, "ranks") ? brim_config_int(job->config, "ranks") : 0;
  *out = ranks > 0 ? (int)ranks : gpus > 0 ? (int)gpus : (int)devices;
  if (devices > 1) BRIM_TRY(check_devices(job, devices));
  if (gpus > 1 && ranks <= 0) BRIM_TRY(check_gpus(job, gpus, devices));
  if (ranks > 0 && gpus > 0 && ranks != gpus) {
    return brim_fail(BRIM_EINVAL, "ranks is %d and gpus is %d; set only one of them", (int)ranks,
                     (int)gpus);
  }
  return BRIM_OK;
}

//---------------------------------- one rank ----------------------------------

// Silences a rank other than the first, except for failures.
static void be_quiet(brim_cli *cli) {
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  cli->quiet = true;
  cli->json = false;
  brim_cli_log(cli);
  cli->stop = brim_cli_signals(false, BRIM_CLI_SAVES);
  if (nowhere < 0) return;
  fflush(stdout);
  (void)dup2(nowhere, STDOUT_FILENO);
  close(nowhere);
}

// Called by the watch: another rank failed, and this one has not ended in time.
static void on_stuck(void *ctx, const char *why) {
  brim_cli_ranks *r = ctx;
  if (!atomic_exchange(&r->reported, true) && brim_ranks_reports(r->ranks)) {
    fprintf(stderr, "\nbrim: %s %s\n", brim_tr("error:"), why);
  }
  _exit(atomic_load(&r->exit_code));
}

// Warns if mpirun bound this rank to a single core (its default): loader, exchange and driver share it.
static void warn_of_binding(const brim_ranks *ranks) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (ranks->origin != BRIM_RANKS_MPI || ranks->rank > 0) return;
  if (brim_cpu_count() > 1 || cores <= ranks->local_size) return;
  brim_log_warn("train",
                "this rank may use 1 of %ld cores, which makes it slow; start it with mpirun "
                "--bind-to none, or srun --cpus-per-task",
                cores);
}

brim_status brim_cli_ranks_open(brim_cli *cli, brim_cli_ranks **out) {
  brim_ranks_place place;
  *out = NULL;
  BRIM_TRY(brim_ranks_find(getenv, &place));
  if (place.origin == BRIM_RANKS_ALONE) return BRIM_OK;
  if (place.rank > 0) be_quiet(cli);
  brim_cli_ranks *r = brim_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  atomic_init(&r->reported, false);
  atomic_init(&r->exit_code, BRIM_CLI_EXIT_RANK);
  const brim_ranks_options how = {.on_stuck = on_stuck, .ctx = r};
  brim_status status = brim_ranks_open(&place, &how, &r->ranks);
  if (status) {
    brim_free(r);
    return status;
  }
  warn_of_binding(r->ranks);
  *out = r;
  return BRIM_OK;
}

brim_status brim_cli_ranks_failed(brim_cli *cli, brim_cli_ranks *r, brim_status status) {
  if (!r || !status) return status;
  if (status == BRIM_EINTERRUPTED) {  // all ranks agreed to stop
    if (r->ranks->rank > 0) cli->error_reported = true;
    return status;
  }
  status = brim_ranks_fail(r->ranks, status);
  atomic_store(&r->exit_code, brim_cli_exit_of(cli, status));
  const bool reports = brim_ranks_reports(r->ranks);
  cli->error_reported = true;
  if (atomic_exchange(&r->reported, true)) return status;  // the watch is about to end this process
  if (reports) brim_cli_error(cli, status);
  return status;
}

void brim_cli_ranks_close(brim_cli_ranks *r) {
  if (!r) return;
  brim_ranks_close(r->ranks);
  brim_free(r);
}

//------------------------------------------- launcher -------------------------------------------
// Starts the ranks of one machine as processes of the same command line; the environment tells each its rank. The first
// rank has the terminal; the launcher prints only stderr of the others.

#define POLL_MS 100
// After the first failure the watch of each other rank ends it within BRIM_RANKS_GRACE_NS.
#define GRACE_NS (BRIM_RANKS_GRACE_NS + (int64_t)500000000)

typedef struct rank_child {
  int rank;
  brim_child *child;
  pid_t pid;
  bool ended, killed;  // killed by this launcher
  int exit_code;       // -1 = a signal
  int signal;
} rank_child;

typedef struct launch {
  brim_cli *cli;
  rank_child *ranks;  // (count)
  int count;
  char shm_name[64];  // the shared memory of the ranks
  int64_t failed_ns;  // time of the first failure; 0 = none
  int first_failed;   // first rank that failed for a reason of its own; -1 = none
  bool passed_stop;
} launch;

//---------------------------------- starting ----------------------------------

static brim_status on_line(void *ctx, const brim_child_line *line) {
  const rank_child *r = ctx;
  if (line->size == 0) return BRIM_OK;
  fprintf(stderr, "[rank %d] %s\n", r->rank, line->text);
  return BRIM_OK;
}

static brim_status start_rank(launch *l, const char *const *argv, rank_child *r) {
  char rank[32], size[32], name[96];
  snprintf(rank, sizeof rank, BRIM_RANKS_ENV_RANK "=%d", r->rank);
  snprintf(size, sizeof size, BRIM_RANKS_ENV_SIZE "=%d", l->count);
  snprintf(name, sizeof name, BRIM_RANKS_ENV_NAME "=%s", l->shm_name);
  const char *const env[] = {rank, size, name, NULL};
  const bool first = r->rank == 0;
  const brim_child_options how = {.argv = argv,
                                  .env_change = env,
                                  .in = BRIM_CHILD_NULL,
                                  .out = first ? BRIM_CHILD_INHERIT : BRIM_CHILD_NULL,
                                  .err = first ? BRIM_CHILD_INHERIT : BRIM_CHILD_PIPE,
                                  .die_with_parent = true,
                                  .on_line = on_line,
                                  .ctx = r};
  BRIM_TRY(brim_child_start(&how, &r->child));
  r->pid = brim_child_pid(r->child);
  return BRIM_OK;
}

static brim_status start_all(launch *l) {
  char *program = NULL;
  BRIM_TRY(brim_fs_exe(&program));
  const char **argv = brim_calloc((size_t)l->cli->argc + 1, sizeof *argv);
  brim_status status =
      argv ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  if (argv) {
    argv[0] = program;
    for (int i = 1; i < l->cli->argc; i++) argv[i] = l->cli->argv[i];
  }
  for (int r = 0; r < l->count && !status; r++) {
    l->ranks[r].rank = r;
    status = start_rank(l, argv, &l->ranks[r]);
  }
  brim_free(argv);
  brim_free(program);
  return status;
}

//---------------------------------- waiting ----------------------------------

static void note_end(launch *l, rank_child *r) {
  const brim_child_result *end = brim_child_get_result(r->child);
  r->ended = true;
  r->exit_code = end->lost ? BRIM_CLI_EXIT_FAILED : end->exit_code;
  r->signal = end->signal;
  const bool good = r->exit_code == BRIM_CLI_EXIT_OK || r->exit_code == BRIM_CLI_EXIT_INTERRUPTED;
  if (good) return;
  if (!l->failed_ns) l->failed_ns = brim_clock_now().ns;
  const bool follows = r->exit_code == BRIM_CLI_EXIT_RANK || r->killed;
  if (!follows && l->first_failed < 0) l->first_failed = r->rank;
}

// Passes a signal on to all ranks: they agree on the step to stop at.
static void pass_stop(launch *l) {
  if (!*l->cli->stop || l->passed_stop) return;
  l->passed_stop = true;
  for (int r = 0; r < l->count; r++) {
    if (!l->ranks[r].ended && brim_child_signal(l->ranks[r].child, SIGTERM)) brim_status_clear();
  }
}

static void kill_late(launch *l) {
  if (!l->failed_ns || brim_clock_now().ns - l->failed_ns < GRACE_NS) return;
  for (int r = 0; r < l->count; r++) {
    rank_child *c = &l->ranks[r];
    if (c->ended || c->killed) continue;
    c->killed = true;
    if (brim_child_signal_group(c->child, SIGKILL)) brim_status_clear();
  }
}

static void wait_all(launch *l, brim_child **children) {
  for (int running = l->count; running > 0;) {
    brim_child_wait_any(children, (size_t)l->count, POLL_MS);
    running = 0;
    for (int r = 0; r < l->count; r++) {
      rank_child *c = &l->ranks[r];
      bool ended = c->ended;
      if (!ended && brim_child_poll(c->child, &ended)) brim_status_clear();
      if (ended && !c->ended) note_end(l, c);
      running += !ended;
    }
    pass_stop(l);
    kill_late(l);
  }
}

//---------------------------------- the result ----------------------------------

static brim_status status_of(int exit_code) {
  switch (exit_code) {
    case BRIM_CLI_EXIT_USAGE:
      return BRIM_EINVAL;
    case BRIM_CLI_EXIT_DEVICE:
      return BRIM_EDEVICE;
    case BRIM_CLI_EXIT_MEMORY:
      return BRIM_EOOM;
    default:
      return BRIM_ECHILD;
  }
}

// The failure of a rank that did not report one itself.
static brim_status describe_failure(const rank_child *r) {
  if (r->killed) {
    return brim_fail(BRIM_ECHILD, "rank %d (PID %d) gave no sign of life", r->rank, (int)r->pid);
  }
  if (r->signal) {
    return brim_fail(BRIM_ECHILD, "rank %d (PID %d) was ended by signal %d (%s)", r->rank,
                     (int)r->pid, r->signal, strsignal(r->signal));
  }
  return brim_fail(BRIM_ECHILD, "rank %d (PID %d) failed with exit code %d", r->rank, (int)r->pid,
                   r->exit_code);
}

static brim_status result(launch *l) {
  if (!l->failed_ns) {
    bool interrupted = l->ranks[0].exit_code == BRIM_CLI_EXIT_INTERRUPTED;
    l->cli->error_reported = interrupted;
    return interrupted ? BRIM_EINTERRUPTED : BRIM_OK;
  }
  // The first rank prints the reason of any rank's failure, unless it crashed itself.
  const rank_child *first = &l->ranks[0];
  const bool told = first->exit_code > 0 && first->exit_code != BRIM_CLI_EXIT_INTERRUPTED;
  l->cli->error_reported = told;
  const rank_child *failed = l->first_failed >= 0 ? &l->ranks[l->first_failed] : NULL;
  for (int r = 0; r < l->count && !failed; r++) {
    if (l->ranks[r].killed) failed = &l->ranks[r];
  }
  if (!failed) failed = first;
  brim_status status = describe_failure(failed);
  return told && failed->exit_code > 0 ? status_of(failed->exit_code) : status;
}

static brim_status launch_init(launch *l) {
  uint32_t random = 0;
  if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) random = (uint32_t)getpid();
  snprintf(l->shm_name, sizeof l->shm_name, "/brim-%d-%08x", (int)getpid(), random);
  l->ranks = brim_calloc((size_t)l->count, sizeof *l->ranks);
  return l->ranks ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
}

// Removes shared memory of ranks that ended before all had opened it.
static void unlink_memory(const launch *l) {
  char device_comm_name[sizeof l->shm_name + 8];
  snprintf(device_comm_name, sizeof device_comm_name, "%s-twin", l->shm_name);
  shm_unlink(l->shm_name);
  shm_unlink(device_comm_name);
}

brim_status brim_cli_ranks_launch(brim_cli *cli, int count) {
  launch l = {.cli = cli, .count = count, .first_failed = -1};
  // The first rank answers a signal; this process passes it on.
  cli->stop = brim_cli_signals(false, BRIM_CLI_SAVES);
  BRIM_TRY(launch_init(&l));
  brim_child **children = brim_calloc((size_t)count, sizeof(brim_child *));
  brim_status status =
      children ? start_all(&l) : brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  if (!status) {
    for (int r = 0; r < count; r++) children[r] = l.ranks[r].child;
    wait_all(&l, children);
    status = result(&l);
  }
  for (int r = 0; r < count; r++) brim_child_close(l.ranks[r].child);
  unlink_memory(&l);
  brim_free(children);
  brim_free(l.ranks);
  return status;
}
