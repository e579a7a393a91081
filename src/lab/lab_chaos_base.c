// What the chaos tests of a sweep and of a pool share: chance, grids, processes that are hit, violations.
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_chaos_int.h"

enum { HITS = 4 };  // of one experiment's processes

const char *brim_lab_chaos_act_name(brim_lab_chaos_act act) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_LAB_CHAOS_MAP(X)
#undef X
  };
  return names[act];
}

const char *brim_lab_chaos_fault_name(brim_lab_chaos_fault fault) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_LAB_CHAOS_FAULT_MAP(X)
#undef X
  };
  return names[fault];
}

void brim_chaos_say(const brim_chaos *c, const char *text) {
  if (c->options->say) c->options->say(c->options->ctx, text);
}

void brim_chaos_violation(brim_chaos *c, const char *fmt, ...) {
  char text[sizeof c->report->first];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  brim_utf8_trim(text);
  if (c->report->violations++ == 0) memcpy(c->report->first, text, sizeof text);
  brim_chaos_say(c, text);
}

bool brim_chaos_is_stopped(const brim_chaos *c) { return c->options->stop && *c->options->stop; }

bool brim_chaos_disk_failed(const char *words) {
  return strstr(words, "disk I/O error") || strstr(words, brim_errno_text(EIO));
}

//---------------------------------- chance ----------------------------------

static uint64_t next_random(brim_chaos *c) {
  uint64_t z = (c->random += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t brim_chaos_between(brim_chaos *c, int64_t low, int64_t high) {
  return low + (int64_t)(next_random(c) % (uint64_t)(high - low + 1));
}

brim_lab_chaos_act brim_chaos_choose(brim_chaos *c, const int shares[BRIM_CHAOS_ACT_COUNT]) {
  int64_t at = brim_chaos_between(c, 0, 99);
  int act = 0;
  while (act + 1 < BRIM_CHAOS_ACT_COUNT && at >= shares[act]) at -= shares[act++];
  return (brim_lab_chaos_act)act;
}

//---------------------------------- files ----------------------------------

void brim_chaos_worker_folder(const brim_chaos *c, int worker, char *out, size_t size) {
  snprintf(out, size, "%.1000s/worker-%d", c->folder, worker);
}

void brim_chaos_grid_path(const brim_chaos *c, int64_t round, char *out) {
  snprintf(out, BRIM_CHAOS_PATH, "%s/round-%lld.yaml", c->folder, (long long)round);
}

// `copies` of each seed; they differ in how long a training waits for an improvement, which is always
// longer than it trains.
brim_status brim_chaos_write_grid(const brim_chaos *c, int64_t round, int64_t first, int64_t copies,
                                  char *path) {
  brim_str text;
  brim_str_init(&text);
  brim_str_append(&text,
                  "name: chaos\n"
                  "backend: ref\n"
                  "device: cpu\n"
                  "threads: 1\n"
                  "dataset: synthetic(shape=[6], classes=3, samples=96, seed=0)\n"
                  "model: mlp(depth=1, hidden=8)\n"
                  "data: {batch_size: 16, num_workers: 0}\n"
                  "retries: 1000\n"
                  "seed: [0, 1, 2, 3, 4, 5, 6, 7]\n");
  brim_str_printf(&text, "training.epochs: %d\ntraining.early_stopping_patience: [",
                  c->options->workers > 0 ? 60 : 25);
  for (int64_t i = 0; i < copies; i++) {
    brim_str_printf(&text, "%s%lld", i ? ", " : "", (long long)(1000 + first + i));
  }
  brim_str_append(&text, "]\n");
  brim_status status = brim_str_status(&text);
  brim_chaos_grid_path(c, round, path);
  if (!status) status = brim_fs_write(path, text.data, text.len);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- processes ----------------------------------

void brim_chaos_continue(brim_chaos *c, bool all) {
  int64_t now = brim_clock_ms();
  for (size_t i = 0; i < c->stopped_count;) {
    if (!all && now < c->stopped[i].until) {
      i++;
      continue;
    }
    (void)kill(c->stopped[i].pid, SIGCONT);
    c->stopped[i] = c->stopped[--c->stopped_count];
  }
}

void brim_chaos_stop(brim_chaos *c, pid_t pid, int64_t for_ms) {
  if (c->stopped_count == BRIM_CHAOS_STOPPED || kill(pid, SIGSTOP) != 0) return;
  c->stopped[c->stopped_count].pid = pid;
  c->stopped[c->stopped_count++].until = brim_clock_ms() + for_ms;
}

// The count of an experiment's hits.
static int *hits_of(brim_chaos *c, const char *exp) {
  size_t kept = c->hits_count < BRIM_CHAOS_PROCS ? c->hits_count : BRIM_CHAOS_PROCS;
  for (size_t i = 0; i < kept; i++) {
    if (strcmp(c->hits[i].exp, exp) == 0) return &c->hits[i].count;
  }
  size_t at = c->hits_count++ % BRIM_CHAOS_PROCS;
  memcpy(c->hits[at].exp, exp, BRIM_CHAOS_ID);
  c->hits[at].count = 0;
  return &c->hits[at].count;
}

// One of the executors, or of the trainings; 0 when there is none. The last experiments of a round
// would be hit over and over: a machine that fails eleven times without a checkpoint in between fails
// the experiment, and rightly so.
pid_t brim_chaos_any(brim_chaos *c, bool trains) {
  brim_chaos_proc all[BRIM_CHAOS_PROCS];
  size_t n = brim_chaos_processes(c->folder, all, BRIM_CHAOS_PROCS), kept = 0;
  for (size_t i = 0; i < n; i++) {
    if (all[i].trains == trains && *hits_of(c, all[i].exp) < HITS) all[kept++] = all[i];
  }
  if (kept == 0) return 0;
  const brim_chaos_proc *chosen = &all[next_random(c) % kept];
  ++*hits_of(c, chosen->exp);
  return chosen->pid;
}
