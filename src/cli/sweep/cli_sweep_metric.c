// Which metric stands for an experiment, and how it is shown: what workloads declare.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_grid.h"

static const char *keep_name(brim_cli_metric_names *all, const char *name) {
  for (size_t i = 0; i < all->count; i++) {
    if (strcmp(all->names[i], name) == 0) return all->names[i];
  }
  if (all->count == sizeof all->names / sizeof all->names[0]) return "";
  snprintf(all->names[all->count], sizeof all->names[0], "%s", name);
  return all->names[all->count++];
}

static void add_name(const brim_metric *row, brim_metric_stage stage, brim_str *out) {
  char name[BRIM_METRIC_NAME];
  if (!brim_metric_name(row, stage, BRIM_METRIC_COLUMN, name)) return;
  // The first is the metric shown until one is recorded (lab_store.h).
  if (out->len == 0) brim_str_append(out, name);
  brim_str_printf(out, " %s", name);
}

// The row that checkpoint.best names, then those that decide, by rank: of evaluations, of training.
static void add_names(const brim_workload_table *table, const brim_config *point, const char *best,
                      brim_metric_stage stage, brim_str *out) {
  const brim_metric_set *set = table->metric_set;
  for (size_t i = 0; best && i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    bool same = strcmp(row->key, best) == 0 || strcmp(brim_metric_best_name(row), best) == 0;
    if (same && (row->stages & BRIM_METRIC_AT(stage))) add_name(row, stage, out);
  }
  for (int at = stage == BRIM_METRIC_TRAIN ? 1 : 0; at < 2; at++) {
    double measured[BRIM_METRIC_MAX];
    brim_metric_unknown(measured);
    for (size_t i = 0; i < set->count; i++) {
      if (!table->measures || table->measures(point, set->rows[i].key)) measured[i] = 0;
    }
    const brim_metric_stage of = at ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
    for (int row; (row = brim_metric_deciding(set, of, measured, false)) >= 0;) {
      add_name(&set->rows[row], of, out);
      measured[row] = (double)NAN;
    }
  }
}

brim_status brim_cli_sweep_describe(void *ctx, const brim_config *point, brim_lab_point *out) {
  const brim_workload_table *table = brim_workload_find(brim_config_string(point, "workload"));
  const char *best = brim_config_string(point, "checkpoint.best");
  brim_metric_stage stage = BRIM_METRIC_EVAL;
  brim_str names;
  out->metric_key = "";
  out->epochs = brim_config_int(point, "training.epochs");
  if (best && !best[0]) best = NULL;
  if (!table) return BRIM_OK;
  if (best && brim_str_starts(best, "train_")) {
    stage = BRIM_METRIC_TRAIN;
    best += 6;
  } else if (best && (brim_str_starts(best, "val_") || brim_str_starts(best, "eval_"))) {
    best = strchr(best, '_') + 1;
  }
  brim_str_init(&names);
  add_names(table, point, best, stage, &names);
  if (names.len > 0) out->metric_key = keep_name(ctx, names.data);
  brim_status status = brim_str_status(&names);
  brim_str_deinit(&names);
  return status;
}

bool brim_cli_sweep_metric(const char *key, brim_sweep_metric *out) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (brim_sweep_metric_of(table->metric_set, key, out)) return true;
  }
  return false;
}
