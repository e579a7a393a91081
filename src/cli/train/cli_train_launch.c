// The launcher of ranks on one machine: as many processes of the same command line, whose environment says
// which rank they are. The first one has the terminal; of the others only failures are shown.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "cli/train/cli_train_ranks.h"

#define LOOK_MS 100
// After the first rank has failed the others end within BRIM_RANKS_GRACE_NS, by their watch.
#define GRACE_NS (BRIM_RANKS_GRACE_NS + (int64_t)500000000)

typedef struct rank_child {
  int rank;
  brim_child *child;
  pid_t pid;
  bool ended, killed;  // killed: by this launcher
  int exit_code;       // -1 = a signal
  int signal;
} rank_child;

typedef struct launch {
  brim_cli *cli;
  rank_child *ranks;  // (count)
  int count;
  char name[64];
  int64_t failed_ns;  // when the first rank failed; 0 = none has
  int first_failed;   // its number; -1 = none: a rank that follows another's failure does not count
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
  snprintf(name, sizeof name, BRIM_RANKS_ENV_NAME "=%s", l->name);
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

// The wish to stop goes to all: they agree on the step to stop at.
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
    brim_child_wait_any(children, (size_t)l->count, LOOK_MS);
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

// A rank that ended without a word, or did not end.
static brim_status tell(const rank_child *r) {
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
  // The first rank prints the reason, whichever rank's it is, unless it has no voice any more.
  const rank_child *first = &l->ranks[0];
  const bool told = first->exit_code > 0 && first->exit_code != BRIM_CLI_EXIT_INTERRUPTED;
  l->cli->error_reported = told;
  const rank_child *failed = l->first_failed >= 0 ? &l->ranks[l->first_failed] : NULL;
  for (int r = 0; r < l->count && !failed; r++) {
    if (l->ranks[r].killed) failed = &l->ranks[r];
  }
  if (!failed) failed = first;
  brim_status status = tell(failed);
  return told && failed->exit_code > 0 ? status_of(failed->exit_code) : status;
}

static brim_status launch_init(launch *l) {
  uint32_t random = 0;
  if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) random = (uint32_t)getpid();
  snprintf(l->name, sizeof l->name, "/brim-%d-%08x", (int)getpid(), random);
  l->ranks = brim_calloc((size_t)l->count, sizeof *l->ranks);
  return l->ranks ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
}

// Of ranks that ended before all had come.
static void unlink_memory(const launch *l) {
  char twin[sizeof l->name + 8];
  snprintf(twin, sizeof twin, "%s-twin", l->name);
  shm_unlink(l->name);
  shm_unlink(twin);
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
