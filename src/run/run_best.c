// Which epoch is best, by checkpoint.best, and early stopping by the same figure. Both are part of a
// checkpoint, so that a resumed run chooses as the uninterrupted one does.
#include <math.h>
#include <string.h>

#include "run/run_int.h"

brim_status brim_run_put_double(json_t *object, const char *key, double value) {
  char text[32];
  brim_format_f64(value, text);
  return brim_json_put(object, key, json_string(text));
}

void brim_run_get_double(const json_t *object, const char *key, double *out) {
  const char *text = json_string_value(json_object_get(object, key));
  double value;
  if (text && brim_parse_f64(text, &value) && !(fabs(value) > 9007199254740992.0)) *out = value;
}

//---------------------------------- checkpoint.best ----------------------------------

// The row that a name stands for: its key, or its name in checkpoints. One that evaluations have comes
// first, then one of training alone; where training was asked for, only what training has will do.
static int row_of(const brim_metric_set *set, const char *name, brim_metric_stage stage) {
  int found = -1;
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    if (row->rank == 0) continue;
    if (strcmp(row->key, name) != 0 && strcmp(brim_metric_best_name(row), name) != 0) continue;
    if (row->stages & BRIM_METRIC_AT(stage)) return (int)i;
    if (found < 0 && stage != BRIM_METRIC_TRAIN) found = (int)i;
  }
  return found;
}

static bool others_have(const char *name, brim_metric_stage stage) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (row_of(table->metric_set, name, stage) >= 0) return true;
  }
  return false;
}

static brim_status no_metric(const brim_metric_set *set, const char *name) {
  brim_str keys;
  brim_str_init(&keys);
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    if (row->rank == 0) continue;
    brim_str_printf(&keys, "%s%s", keys.len > 0 ? ", " : "", row->key);
    bool eval = row->stages & BRIM_METRIC_AT(BRIM_METRIC_EVAL);
    bool train = row->stages & BRIM_METRIC_AT(BRIM_METRIC_TRAIN);
    if (eval && train) brim_str_printf(&keys, ", val_%s", row->key);
    if (train) brim_str_printf(&keys, ", train_%s", row->key);
  }
  brim_status status = brim_fail(BRIM_EINVAL, "checkpoint.best is '%s', expected one of %s", name,
                                 keys.data ? keys.data : "");
  brim_str_deinit(&keys);
  return status;
}

brim_status brim_run_best_init(brim_run_best *best, const brim_config *config,
                               const brim_metric_set *metrics) {
  memset(best, 0, sizeof *best);
  brim_metric_unknown(best->values);
  best->metrics = metrics;
  best->by = best->row = -1;
  best->reference = (double)NAN;
  best->patience = brim_config_int(config, "training.early_stopping_patience");
  best->delta = brim_config_float(config, "training.early_stopping_delta");
  const char *name = brim_config_string(config, "checkpoint.best");
  if (!name || !name[0]) return BRIM_OK;
  const char *key = name;
  best->training = brim_str_starts(name, "train_");
  if (best->training) key += 6;
  if (brim_str_starts(name, "val_")) key += 4;
  if (brim_str_starts(name, "eval_")) key += 5;
  brim_metric_stage stage = best->training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  best->by = row_of(metrics, key, stage);
  if (best->by >= 0) return BRIM_OK;
  if (!others_have(key, stage)) return no_metric(metrics, name);
  best->wanted = name;
  return BRIM_OK;
}

void brim_run_best_start(brim_run_best *best, bool evaluates) {
  const brim_metric_set *set = best->metrics;
  if (evaluates || best->by < 0) return;
  const brim_metric *asked = &set->rows[best->by];
  if (asked->stages & BRIM_METRIC_AT(BRIM_METRIC_TRAIN)) return;
  best->by = -1;
  brim_log_warn("run",
                "checkpoint.best is %s, but this run has nothing to evaluate it on; brim uses the "
                "training metrics",
                asked->key);
}

//---------------------------------- epochs ----------------------------------

// The row that decides where no other was asked for, or where the one that was is unknown.
static int by_rank(const brim_metric_set *set, brim_metric_stage stage, const double *values) {
  int row = brim_metric_deciding(set, stage, values, false);
  for (size_t i = 0; row < 0 && i < set->count; i++) {
    const brim_metric *r = &set->rows[i];
    bool must = r->rank > 0 && (r->flags & BRIM_METRIC_FINITE);
    if (must && (r->stages & BRIM_METRIC_AT(stage))) row = (int)i;
  }
  return row >= 0 ? row : brim_metric_deciding(set, stage, values, true);
}

// As checkpoint.best names it: "accuracy", "train_loss".
static void name_row(const brim_run_best *best, int row, char out[BRIM_METRIC_NAME]) {
  snprintf(out, BRIM_METRIC_NAME, "%s%s", best->training ? "train_" : "",
           brim_metric_best_name(&best->metrics->rows[row]));
}

static void say_another(brim_run_best *best, const char *asked, int row) {
  if (!best->said && row >= 0) {
    char used[BRIM_METRIC_NAME];
    name_row(best, row, used);
    brim_log_warn("run", "checkpoint.best is %s, which this run does not have; brim uses %s", asked,
                  used);
  }
  best->said = true;
}

// The row that decides, and the values it is of; -1 = none does.
static int choose(brim_run_best *best, const brim_epoch_report *r, brim_metric_stage stage,
                  const double **values) {
  const brim_metric_set *set = best->metrics;
  const brim_metric *asked = best->by >= 0 ? &set->rows[best->by] : NULL;
  if (asked && !(asked->stages & BRIM_METRIC_AT(stage))) {
    if (!best->said) {
      brim_log_warn(
          "run", "checkpoint.best is %s, but this evaluation has none; brim uses the training %s",
          asked->key, asked->key);
    }
    best->said = true;
    *values = r->train;
    return best->by;
  }
  if (asked && (!isnan((*values)[best->by]) || (asked->flags & BRIM_METRIC_FINITE))) {
    return best->by;
  }
  int row = by_rank(set, stage, *values);
  if (best->wanted) say_another(best, best->wanted, row);
  if (asked) say_another(best, asked->key, row);
  return row;
}

// Where a value that has to be finite is not, the network diverged, whatever the others are.
static bool sound(const brim_run_best *best, const double *values, brim_metric_stage stage,
                  int row) {
  if (!isfinite(values[row])) return false;
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *m = &best->metrics->rows[i];
    if (!(m->flags & BRIM_METRIC_FINITE) || !(m->stages & BRIM_METRIC_AT(stage))) continue;
    if (!isfinite(values[i])) return false;
  }
  return true;
}

// Without an evaluation set the figures of training decide; with one, epochs that were not evaluated
// are never best.
bool brim_run_best_take(brim_run_best *best, const brim_epoch_report *r, bool evaluates) {
  bool training = best->training || !evaluates;
  if (!training && !r->evaluated) return false;
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  const double *values = training ? r->train : r->eval;
  int row = choose(best, r, stage, &values);
  best->row = row;
  if (row < 0) return false;
  bool finite = sound(best, values, stage, row) && (training || !r->dead);
  bool lower = best->metrics->rows[row].better == BRIM_BETTER_LOWER;
  double value = lower ? -values[row] : values[row];
  if (best->patience > 0) {
    bool improved = finite && (isnan(best->reference) || value > best->reference + best->delta);
    best->waited = improved ? 0 : best->waited + 1;
    if (improved) best->reference = value;
  }
  if (!finite) return false;
  double so_far = lower ? -best->values[row] : best->values[row];
  if (!isnan(so_far) && !(value > so_far)) return false;
  for (size_t i = 0; i < best->metrics->count; i++) {
    if (best->metrics->rows[i].rank > 0) best->values[i] = training ? r->train[i] : r->eval[i];
  }
  best->values[row] = values[row];
  best->epoch = r->epoch;
  return true;
}

bool brim_run_best_stops(const brim_run_best *best) {
  return best->patience > 0 && best->waited >= best->patience;
}

// What decides, as checkpoints remember it.
static brim_status put_decides(const brim_run_best *best, json_t *metadata) {
  char name[BRIM_METRIC_NAME];
  if (best->row < 0) return BRIM_OK;
  name_row(best, best->row, name);
  return brim_json_put(metadata, "brim.best_by", json_string(name));
}

// By another figure than the checkpoint's, which is row `was`: the two cannot be compared.
static bool by_another(const brim_run_best *best, int was, bool training) {
  if (was < 0 || training != best->training) return true;
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  int now =
      best->by >= 0 ? best->by : brim_metric_deciding(best->metrics, stage, best->values, true);
  if (now < 0 || now == was) return false;
  const brim_metric *rows = best->metrics->rows;
  if (strcmp(brim_metric_best_name(&rows[now]), brim_metric_best_name(&rows[was])) == 0)
    return false;
  // of the only figure there is
  return rows[was].rank < rows[now].rank || !isnan(best->values[now]);
}

brim_status brim_run_best_put(const brim_run_best *best, json_t *metadata) {
  if (best->epoch > 0 || best->waited > 0) BRIM_TRY(put_decides(best, metadata));
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *row = &best->metrics->rows[i];
    char key[BRIM_METRIC_NAME + 16];
    if (row->rank == 0) continue;
    snprintf(key, sizeof key, "brim.best_%s", brim_metric_best_name(row));
    // two rows of one name: the one that is known
    if (isnan(best->values[i]) && json_object_get(metadata, key)) continue;
    BRIM_TRY(brim_run_put_double(metadata, key, best->values[i]));
  }
  BRIM_TRY(brim_run_put_double(metadata, "brim.best_epoch", (double)best->epoch));
  if (best->patience == 0) return BRIM_OK;
  BRIM_TRY(brim_run_put_double(metadata, "brim.stop_reference", best->reference));
  return brim_run_put_double(metadata, "brim.stop_waited", (double)best->waited);
}

void brim_run_best_get(brim_run_best *best, const json_t *metadata) {
  double epoch = 0, waited = 0;
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *row = &best->metrics->rows[i];
    char key[BRIM_METRIC_NAME + 16];
    if (row->rank == 0) continue;
    snprintf(key, sizeof key, "brim.best_%s", brim_metric_best_name(row));
    brim_run_get_double(metadata, key, &best->values[i]);
  }
  brim_run_get_double(metadata, "brim.best_epoch", &epoch);
  best->epoch = (int64_t)epoch;
  const char *was = json_string_value(json_object_get(metadata, "brim.best_by"));
  bool training = was && brim_str_starts(was, "train_");
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  int row = was ? row_of(best->metrics, training ? was + 6 : was, stage) : -1;
  if (was && by_another(best, row, training)) {
    brim_log_warn(
        "run",
        "the best epoch so far was selected by %s; brim now uses another metric and starts over",
        was);
    brim_metric_unknown(best->values);
    best->epoch = 0;
    return;
  }
  best->row = row;
  if (best->patience == 0) return;
  brim_run_get_double(metadata, "brim.stop_reference", &best->reference);
  brim_run_get_double(metadata, "brim.stop_waited", &waited);
  best->waited = waited > 0 ? (int64_t)waited : 0;
}
