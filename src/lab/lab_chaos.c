// The chaos test (lab_chaos.h): sweeps as child processes, and what disturbs them.
#include "lab/lab_chaos.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lab/lab_chaos_int.h"
#include "lab/store/lab_store.h"

enum {
  ROUND = 48,            // experiments of a round
  LEASE_S = 2,           // of the sweeps
  ORPHAN_MS = 20000,     // processes have this long to end after their sweep
  SMALL_FILE = 32 << 10  // bytes a file may have on the full disk
};

//---------------------------------- the sweep ----------------------------------

static brim_status on_line(void *ctx, const brim_child_line *line) {
  brim_chaos *c = ctx;
  snprintf(c->tail, sizeof c->tail, "%.*s", (int)(line->size < 900 ? line->size : 900), line->text);
  return BRIM_OK;
}

static brim_status start_sweep(brim_chaos *c, const char *grid, const char *store,
                               const char *folder) {
  char jobs[24], lease[24];
  snprintf(jobs, sizeof jobs, "%lld", (long long)c->options->executors);
  snprintf(lease, sizeof lease, "%d", LEASE_S);
  const char *const argv[] = {
      c->options->program, "--quiet", "sweep",        grid, "--store", store,
      "--output-dir",      folder,    "--jobs",       jobs, "--lease", lease,
      "--backoff",         "0.2",     "--keep-going", NULL};
  const brim_child_options how = {.argv = argv,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_PIPE,
                                  .die_with_parent = true,
                                  .on_line = on_line,
                                  .ctx = c};
  c->tail[0] = '\0';
  c->killed = false;
  c->full_until = 0;
  c->report->starts++;
  return brim_child_start(&how, &c->sweep);
}

// *ended: this sweep's process has ended; *done: and its grid with it.
static brim_status poll_sweep(brim_chaos *c, bool *ended, bool *done) {
  *ended = *done = false;
  BRIM_TRY(brim_child_poll(c->sweep, ended));
  if (!*ended) return BRIM_OK;
  const brim_child_result *r = brim_child_get_result(c->sweep);
  bool expected = c->killed || brim_clock_ms() - c->full_ms < 3000 ||
                  (!r->signal && brim_chaos_disk_failed(c->tail));
  *done = r->signal == 0 && r->exit_code == 0;
  if (!*done && !expected) {
    brim_chaos_violation(c, "the sweep ended by itself with exit code %d, signal %d: %.300s",
                         r->exit_code, r->signal, c->tail);
  }
  brim_child_close(c->sweep);
  c->sweep = NULL;
  return BRIM_OK;
}

//---------------------------------- disturbances ----------------------------------

// Processes that were stopped, and the disk.
static void continue_due(brim_chaos *c, bool all) {
  int64_t now = brim_clock_ms();
  brim_chaos_continue(c, all);
  if (c->sweep && c->full_until && (all || now >= c->full_until)) {
    struct rlimit limit = {0};
    pid_t pid = brim_child_pid(c->sweep);
    if (prlimit(pid, RLIMIT_FSIZE, NULL, &limit) == 0) {
      limit.rlim_cur = limit.rlim_max;
      (void)prlimit(pid, RLIMIT_FSIZE, &limit, NULL);
    }
    c->full_until = 0;
    c->full_ms = now;
  }
}

static void fill_disk(brim_chaos *c) {
  struct rlimit limit = {0};
  pid_t pid = brim_child_pid(c->sweep);
  if (prlimit(pid, RLIMIT_FSIZE, NULL, &limit) != 0) return;
  limit.rlim_cur = SMALL_FILE;
  if (prlimit(pid, RLIMIT_FSIZE, &limit, NULL) != 0) return;
  c->full_until = brim_clock_ms() + brim_chaos_between(c, 200, 1500);
  c->full_ms = c->full_until;
}

static void disturb(brim_chaos *c) {
  static const int shares[BRIM_CHAOS_ACT_COUNT] = {
      [BRIM_CHAOS_KILL_EXECUTOR] = 48, [BRIM_CHAOS_STOP_EXECUTOR] = 10,
      [BRIM_CHAOS_KILL_TRAINING] = 22, [BRIM_CHAOS_KILL_SWEEP] = 8,
      [BRIM_CHAOS_STOP_SWEEP] = 5,     [BRIM_CHAOS_END_SWEEP] = 3,
      [BRIM_CHAOS_FULL_DISK] = 4};
  brim_lab_chaos_act act = brim_chaos_choose(c, shares);
  bool of_sweep = act >= BRIM_CHAOS_KILL_SWEEP;
  pid_t pid = of_sweep ? (c->sweep ? brim_child_pid(c->sweep) : 0)
                       : brim_chaos_any(c, act == BRIM_CHAOS_KILL_TRAINING);
  if (pid == 0) return;
  c->report->acts[act]++;
  switch (act) {
    case BRIM_CHAOS_STOP_EXECUTOR:
      brim_chaos_stop(c, pid, brim_chaos_between(c, 100, 2500 * LEASE_S));
      break;
    case BRIM_CHAOS_STOP_SWEEP:
      brim_chaos_stop(c, pid, brim_chaos_between(c, 100, 1500 * LEASE_S));
      break;
    case BRIM_CHAOS_FULL_DISK:
      fill_disk(c);
      break;
    case BRIM_CHAOS_KILL_SWEEP:
    case BRIM_CHAOS_END_SWEEP:
      c->killed = true;
      c->start_ms = brim_clock_ms() + brim_chaos_between(c, 0, 1000);
      (void)kill(pid, act == BRIM_CHAOS_KILL_SWEEP ? SIGKILL : SIGINT);
      break;
    default:
      (void)kill(pid, SIGKILL);
      break;
  }
}

//---------------------------------- what must hold all the time ----------------------------------

static size_t count_trainings(const brim_chaos_proc *all, size_t n, char twice[BRIM_CHAOS_ID]) {
  size_t trainings = 0;
  for (size_t i = 0; i < n; i++) {
    trainings += all[i].trains;
    for (size_t k = 0; k < i; k++) {
      if (all[i].trains && all[k].trains && strcmp(all[i].exp, all[k].exp) == 0) {
        memcpy(twice, all[i].exp, BRIM_CHAOS_ID);
      }
    }
  }
  return trainings;
}

// Processes are listed one after the other, and one may end meanwhile: what is wrong has to be so
// twice.
static void watch_processes(brim_chaos *c) {
  brim_chaos_proc all[BRIM_CHAOS_PROCS];
  char twice[BRIM_CHAOS_ID];
  size_t trainings = 0;
  for (int look = 0; look < 3; look++) {
    twice[0] = '\0';
    size_t n = brim_chaos_processes(c->folder, all, BRIM_CHAOS_PROCS);
    trainings = count_trainings(all, n, twice);
    if (!twice[0] && trainings <= (size_t)c->options->executors) return;
    brim_clock_sleep_ns(20000000);
  }
  if (twice[0]) brim_chaos_violation(c, "experiment %s is trained twice at once", twice);
  if (trainings > (size_t)c->options->executors) {
    brim_chaos_violation(c, "%zu trainings at once, more than the %lld slots", trainings,
                         (long long)c->options->executors);
  }
}

// At the end no process may be left.
static void watch_orphans(brim_chaos *c) {
  brim_chaos_proc all[BRIM_CHAOS_PROCS];
  int64_t until = brim_clock_ms() + ORPHAN_MS;
  size_t n;
  while ((n = brim_chaos_processes(c->folder, all, BRIM_CHAOS_PROCS)) > 0 &&
         brim_clock_ms() < until) {
    brim_clock_sleep_ns(100000000);
  }
  for (size_t i = 0; i < n; i++) {
    brim_chaos_violation(c, "process %ld of experiment %s is left", (long)all[i].pid, all[i].exp);
    (void)kill(all[i].pid, SIGKILL);
  }
}

//---------------------------------- rounds ----------------------------------

// A round until all of its experiments have ended; disturbed until end_ms. *late: they did not end in
// time.
static brim_status run_round(brim_chaos *c, int64_t round, int64_t end_ms, bool *late) {
  char grid[BRIM_CHAOS_PATH];
  bool done = false, ended = false;
  int64_t last_ms =
      (brim_clock_ms() > end_ms ? brim_clock_ms() : end_ms) + BRIM_CHAOS_DRAIN_S * 1000;
  int64_t next_act = brim_clock_ms() + brim_chaos_between(c, 200, 600), next_look = 0;
  c->hits_count = 0;
  brim_chaos_grid_path(c, round, grid);
  while (!done) {
    int64_t now = brim_clock_ms();
    bool calm = now >= end_ms;
    if (brim_chaos_is_stopped(c)) return brim_fail(BRIM_EINTERRUPTED, "the chaos test was stopped");
    if (now > last_ms) {
      brim_chaos_violation(c, "round %lld did not end within %d s", (long long)round,
                           BRIM_CHAOS_DRAIN_S);
      *late = true;
      return BRIM_OK;
    }
    continue_due(c, calm);
    if (!c->sweep && now >= c->start_ms) {
      BRIM_TRY(start_sweep(c, grid, c->store, c->folder));
    }
    if (c->sweep) BRIM_TRY(poll_sweep(c, &ended, &done));
    if (!calm && now >= next_act) {
      disturb(c);
      next_act = now + brim_chaos_between(c, 20, 300);
    }
    if (now >= next_look) {
      watch_processes(c);
      next_look = now + 100;
    }
    brim_clock_sleep_ns(10000000);
  }
  return BRIM_OK;
}

static void end_sweep(brim_chaos *c) {
  continue_due(c, true);
  brim_child_close(c->sweep);
  c->sweep = NULL;
}

static brim_status run_rounds(brim_chaos *c) {
  const brim_lab_chaos_options *o = c->options;
  int64_t end_ms = brim_clock_ms() + (int64_t)(o->seconds * 1e3), first = 0;
  int64_t wanted = (o->experiments + BRIM_CHAOS_SEEDS - 1) / BRIM_CHAOS_SEEDS;
  bool late = false;
  // Rounds stay small: a sweep that is killed every second must get to its work in between.
  while (!late && (first == 0 || (wanted ? first < wanted : brim_clock_ms() < end_ms))) {
    int64_t copies = ROUND / BRIM_CHAOS_SEEDS;
    if (wanted && copies > wanted - first) copies = wanted - first;
    char path[BRIM_CHAOS_PATH], text[128];
    int64_t round = ++c->report->rounds;
    BRIM_TRY(brim_chaos_write_grid(c, round, first, copies, path));
    snprintf(text, sizeof text, brim_tr("round %lld: %lld experiments"), (long long)round,
             (long long)(copies * BRIM_CHAOS_SEEDS));
    brim_chaos_say(c, text);
    BRIM_TRY(run_round(c, round, end_ms, &late));
    first += copies;
  }
  return BRIM_OK;
}

// The undisturbed trainings.
static brim_status run_reference(brim_chaos *c) {
  char path[BRIM_CHAOS_PATH];
  bool ended = false, done = false;
  BRIM_TRY(brim_chaos_write_grid(c, 0, 0, 1, path));
  BRIM_TRY(start_sweep(c, path, c->reference, c->reference));
  while (!ended) {
    if (brim_chaos_is_stopped(c)) return brim_fail(BRIM_EINTERRUPTED, "the chaos test was stopped");
    BRIM_TRY(poll_sweep(c, &ended, &done));
    brim_clock_sleep_ns(10000000);
  }
  return done ? BRIM_OK : brim_fail(BRIM_ECHILD, "the undisturbed sweep failed: %.300s", c->tail);
}

static brim_status open_folder(brim_chaos *c) {
  char **names = NULL;
  size_t count = 0;
  BRIM_TRY(brim_fs_refused(brim_fs_mkdirs(c->options->folder)));
  BRIM_TRY(brim_fs_list(c->options->folder, &names, &count));
  brim_fs_list_free(names, count);
  if (count > 0) {
    return brim_fail(BRIM_EEXIST, "%s is not empty; the chaos test needs a folder of its own",
                     c->options->folder);
  }
  char *real = realpath(c->options->folder, NULL);
  c->folder = real ? brim_strdup(real) : NULL;
  free(real);
  c->reference = c->folder ? brim_fs_join(c->folder, "reference") : NULL;
  c->store = c->reference ? brim_strdup(c->options->store ? c->options->store : c->folder) : NULL;
  if (!c->store) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
  return c->options->store ? brim_chaos_check_empty(c->store) : BRIM_OK;
}

brim_status brim_lab_chaos(const brim_lab_chaos_options *options, brim_lab_chaos_report *out) {
  brim_lab_chaos_options o = *options;
  if (!(o.seconds > 0)) o.seconds = 120;
  if (o.executors <= 0) o.executors = 16;
  memset(out, 0, sizeof *out);
  out->seed = o.seed;
  out->workers = o.workers;
  brim_chaos c = {.options = &o, .report = out, .random = o.seed};
  int64_t start = brim_clock_ms();
  brim_status status = open_folder(&c);
  if (!status) status = run_reference(&c);
  if (!status) status = o.workers > 0 ? brim_chaos_pool(&c) : run_rounds(&c);
  end_sweep(&c);
  if (!status || status == BRIM_EINTERRUPTED) watch_orphans(&c);
  if (!status) status = brim_chaos_check(&c);
  out->seconds = (double)(brim_clock_ms() - start) / 1e3;
  brim_free(c.store);
  brim_free(c.reference);
  brim_free(c.folder);
  return status;
}
