// A run on several ranks: what has to be the same on all of them although clocks, files and signals are
// each rank's own. The first rank alone writes; where it decides, the others follow.
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
