// A run on several ranks: what has to be the same on all of them although clocks, files and signals are
// each rank's own. The first rank alone writes; where it decides, the others follow.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "run/run_loop.h"

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
