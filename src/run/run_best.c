// Which epoch is best, by checkpoint.best, and early stopping by the same figure. Both are part of a
// checkpoint, so that a resumed run judges as the uninterrupted one does.
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

static const struct {
  const char *name;
  bool loss, training;
} metrics[] = {
    {"accuracy", false, false},      {"loss", true, false},         {"val_accuracy", false, false},
    {"val_loss", true, false},       {"eval_loss", true, false},    {"eval_accuracy", false, false},
    {"train_accuracy", false, true}, {"train_loss", true, true},    {"knn", false, false},
    {"return", false, false},        {"eval_return", false, false}, {"train_return", false, true},
};

brim_status brim_run_best_init(brim_run_best *best, const brim_config *config) {
  memset(best, 0, sizeof *best);
  best->accuracy = best->loss = best->reference = (double)NAN;
  best->patience = brim_config_int(config, "training.early_stopping_patience");
  best->delta = brim_config_float(config, "training.early_stopping_delta");
  const char *name = brim_config_string(config, "checkpoint.best");
  if (!name || !name[0]) return BRIM_OK;
  for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
    if (strcmp(metrics[i].name, name) != 0) continue;
    best->by = metrics[i].loss ? BRIM_BEST_LOSS : BRIM_BEST_ACCURACY;
    best->training = metrics[i].training;
    best->wanted = strcmp(name, "knn") == 0 || strstr(name, "return") ? name : NULL;
    return BRIM_OK;
  }
  return brim_fail(BRIM_EINVAL,
                   "checkpoint.best is '%s', expected accuracy, loss, val_accuracy, val_loss, "
                   "train_accuracy, train_loss, knn or return",
                   name);
}

static bool by_loss(brim_run_best *best, double accuracy) {
  if (best->by == BRIM_BEST_LOSS || !isnan(accuracy)) return best->by == BRIM_BEST_LOSS;
  if (best->by == BRIM_BEST_ACCURACY && !best->said && !best->wanted) {
    brim_log_warn("run",
                  "checkpoint.best is accuracy, but this is no classification; brim uses loss");
  }
  best->said = true;
  return true;
}

// checkpoint.best names what another kind of training has: once.
static void check_wanted(brim_run_best *best, const brim_epoch_report *r, bool training,
                         bool of_loss) {
  if (!best->wanted) return;
  bool knn = strcmp(best->wanted, "knn") == 0;
  bool has = knn ? r->metric && strcmp(r->metric, "knn") == 0 : r->policy;
  const char *figure = of_loss ? "loss" : training || !r->metric ? "accuracy" : r->metric;
  if (!has) {
    brim_log_warn("run", "checkpoint.best is %s, which this run does not have; brim uses %s",
                  best->wanted, figure);
  }
  best->wanted = NULL;
}

// Higher accuracy, or lower loss where nothing is classified. Without an evaluation set the training
// figures decide; with one, epochs that were not evaluated are never best.
bool brim_run_best_take(brim_run_best *best, const brim_epoch_report *r, bool evaluates) {
  bool training = best->training || !evaluates;
  if (!training && !r->evaluated) return false;
  double accuracy = training ? r->train_accuracy : r->eval_accuracy;
  double loss = training ? r->train_loss : r->eval_loss;
  bool of_loss = by_loss(best, accuracy);
  check_wanted(best, r, training, of_loss);
  // else diverged, whatever the accuracy
  bool no_loss = r->policy || (!training && r->no_loss);
  if (of_loss && no_loss && !r->policy) {
    if (!best->said) {
      brim_log_warn(
          "run",
          "checkpoint.best is loss, but this evaluation has none; brim uses the training loss");
    }
    best->said = true;
    loss = r->train_loss;
  }
  best->of_loss = of_loss;
  bool finite = isfinite(loss) || (no_loss && !of_loss && isfinite(accuracy));
  if (!training && r->dead) finite = false;
  double value = of_loss ? -loss : accuracy;
  if (best->patience > 0) {
    bool improved = finite && (isnan(best->reference) || value > best->reference + best->delta);
    best->waited = improved ? 0 : best->waited + 1;
    if (improved) best->reference = value;
  }
  if (!finite) return false;
  bool better = of_loss ? (isnan(best->loss) || loss < best->loss)
                        : (isnan(best->accuracy) || accuracy > best->accuracy);
  if (!better) return false;
  best->accuracy = accuracy;
  best->loss = loss;
  best->epoch = r->epoch;
  return true;
}

bool brim_run_best_stops(const brim_run_best *best) {
  return best->patience > 0 && best->waited >= best->patience;
}

// What decides, as checkpoints remember it.
static const char *decides(const brim_run_best *best) {
  if (best->training) return best->of_loss ? "train_loss" : "train_accuracy";
  return best->of_loss ? "loss" : "accuracy";
}

// By another figure than the checkpoint's: the two cannot be compared.
static bool by_another(const brim_run_best *best, const char *was) {
  bool loss = strstr(was, "loss") != NULL, training = brim_str_starts(was, "train_");
  if (training != best->training) return true;
  if (loss && isnan(best->accuracy)) return false;  // of the only figure there is
  return loss != (best->by == BRIM_BEST_LOSS);
}

brim_status brim_run_best_put(const brim_run_best *best, json_t *metadata) {
  if (best->epoch > 0 || best->waited > 0) {
    BRIM_TRY(brim_json_put(metadata, "brim.best_by", json_string(decides(best))));
  }
  BRIM_TRY(brim_run_put_double(metadata, "brim.best_accuracy", best->accuracy));
  BRIM_TRY(brim_run_put_double(metadata, "brim.best_loss", best->loss));
  BRIM_TRY(brim_run_put_double(metadata, "brim.best_epoch", (double)best->epoch));
  if (best->patience == 0) return BRIM_OK;
  BRIM_TRY(brim_run_put_double(metadata, "brim.stop_reference", best->reference));
  return brim_run_put_double(metadata, "brim.stop_waited", (double)best->waited);
}

void brim_run_best_get(brim_run_best *best, const json_t *metadata) {
  double epoch = 0, waited = 0;
  brim_run_get_double(metadata, "brim.best_accuracy", &best->accuracy);
  brim_run_get_double(metadata, "brim.best_loss", &best->loss);
  brim_run_get_double(metadata, "brim.best_epoch", &epoch);
  best->epoch = (int64_t)epoch;
  const char *was = json_string_value(json_object_get(metadata, "brim.best_by"));
  if (was && by_another(best, was)) {
    brim_log_warn(
        "run",
        "the best epoch so far was selected by %s; brim now uses another metric and starts over",
        was);
    best->accuracy = best->loss = (double)NAN;
    best->epoch = 0;
    return;
  }
  best->of_loss = was && strstr(was, "loss");
  if (best->patience == 0) return;
  brim_run_get_double(metadata, "brim.stop_reference", &best->reference);
  brim_run_get_double(metadata, "brim.stop_waited", &waited);
  best->waited = waited > 0 ? (int64_t)waited : 0;
}
