// What goes wrong in numbers: losses and gradients that are not finite, and ones that are suddenly many
// times what they were. Judged at every reading of the device's sums; nothing is asked of the device
// for it.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "run/run_int.h"

// A median needs some readings. A loss that doubles is a hard batch; ten times the median and more than
// it ever began with is none. Norms scatter more, and early ones are the largest.
enum { FEW = 8, LOSS_TIMES = 10, NORM_TIMES = 30 };

const char *brim_anomaly_name(brim_anomaly anomaly) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_ANOMALY_MAP(X)
#undef X
  };
  return (unsigned)anomaly < BRIM_ANOMALY_COUNT ? names[anomaly] : "?";
}

static bool is_half(const brim_config *config) {
  const char *precision = brim_config_string(config, "training.precision");
  return precision && strcmp(precision, "fp16") == 0;
}

void brim_anomaly_advice(brim_anomaly anomaly, const brim_config *config, double lr, char *out,
                         size_t size) {
  bool clips = brim_config_float(config, "training.clip_norm") > 0;
  bool finite = anomaly == BRIM_ANOMALY_LOSS_EXPLODED || anomaly == BRIM_ANOMALY_GRADIENT_EXPLODED;
  int n = snprintf(out, size, brim_tr("try a lower learning rate (now %g)"), lr);
  if (n > 0 && (size_t)n < size) {
    n += snprintf(
        out + n, size - (size_t)n, "%s",
        clips ? brim_tr(" or a smaller training.clip_norm") : brim_tr(" or training.clip_norm=1"));
  }
  if (n > 0 && (size_t)n < size && is_half(config)) {
    n += snprintf(out + n, size - (size_t)n, "%s", brim_tr(", or precision bf16"));
  }
  if (n > 0 && (size_t)n < size && !finite) {
    snprintf(out + n, size - (size_t)n, "%s",
             brim_tr("; `brim data verify PATH` tells whether the data hold NaN"));
  }
}

//---------------------------------- medians ----------------------------------

// How many times the running median `value` is; NaN while there are too few. Takes it in afterwards.
static double times_median(brim_run_window *w, double value) {
  double median = (double)NAN;
  if (!isfinite(value)) return (double)NAN;
  size_t n = w->count < BRIM_RUN_WINDOW ? (size_t)w->count : BRIM_RUN_WINDOW;
  if (w->count == 0) w->first = value;
  if (n >= FEW && brim_stats_median(w->values, n, &median)) {
    brim_status_clear();  // out of memory: not judged
    median = (double)NAN;
  }
  w->values[w->count++ % BRIM_RUN_WINDOW] = value;
  return median > 0 ? value / median : (double)NAN;
}

//---------------------------------- telling ----------------------------------

typedef struct trouble {
  brim_anomaly kind;
  int64_t count;        // samples, steps, or 1
  double value, times;  // of a figure that exploded; NaN otherwise
  bool silent;          // is part of how it works: not said
} trouble;

// `fmt` says what happened, by the trouble's figures.
static void say(const trouble *t, const brim_run_reading *at, const char *advice) {
  switch (t->kind) {
    case BRIM_ANOMALY_LOSS_NOT_FINITE:
      brim_log_warn("run",
                    "%" PRId64 " samples gave a loss that is not finite by step %" PRId64 ": %s",
                    t->count, at->step, advice);
      return;
    case BRIM_ANOMALY_GRADIENT_NOT_FINITE:
      brim_log_warn("run",
                    "%" PRId64 " steps skipped by step %" PRId64
                    ", their gradients were not finite: %s",
                    t->count, at->step, advice);
      return;
    case BRIM_ANOMALY_LOSS_EXPLODED:
      brim_log_warn("run", "loss %.4g by step %" PRId64 ", %.3g times its running median: %s",
                    t->value, at->step, t->times, advice);
      return;
    case BRIM_ANOMALY_GRADIENT_EXPLODED:
      brim_log_warn("run",
                    "gradient norm %.4g by step %" PRId64 ", %.3g times its running median: %s",
                    t->value, at->step, t->times, advice);
      return;
    case BRIM_ANOMALY_COUNT:
      return;
  }
}

static brim_status log_trouble(brim_run_watch *w, const trouble *t, const brim_run_reading *at) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "kind", json_string(brim_anomaly_name(t->kind)));
  if (!s) s = brim_json_put(f, "count", json_integer(t->count));
  if (!s && !isnan(t->times)) s = brim_json_put(f, "value", brim_json_number(t->value));
  if (!s && !isnan(t->times)) s = brim_json_put(f, "times_median", brim_json_number(t->times));
  if (!s) s = brim_json_put(f, "lr", brim_json_number(at->lr));
  if (!s) return brim_run_log_event(w->log, "anomaly", at->epoch, at->step, f);
  json_decref(f);
  return s;
}

static brim_status meet(brim_run_watch *w, const trouble *t, const brim_run_reading *at) {
  brim_run_result *r = w->result;
  if (!r->first_anomaly[t->kind]) r->first_anomaly[t->kind] = at->step;
  r->anomalies[t->kind] += t->count;
  int64_t times = ++w->times[t->kind];
  if (!t->silent && (times & (times - 1)) == 0) {  // the 1st, 2nd, 4th, 8th, ... time
    char advice[512];
    brim_anomaly_advice(t->kind, w->config, at->lr, advice, sizeof advice);
    say(t, at, advice);
  }
  return log_trouble(w, t, at);
}

void brim_run_watch_init(brim_run_watch *watch, const brim_config *config, brim_run_log *log,
                         brim_run_result *result, int64_t skipped) {
  memset(watch, 0, sizeof *watch);
  watch->config = config;
  watch->log = log;
  watch->result = result;
  watch->skipped = skipped;
}

brim_status brim_run_watch_take(brim_run_watch *w, const brim_run_reading *at) {
  const brim_work_metrics *m = at->metrics;
  trouble t = {.value = (double)NAN, .times = (double)NAN};
  if (m->bad > 0) {
    t.kind = BRIM_ANOMALY_LOSS_NOT_FINITE;
    t.count = m->bad;
    BRIM_TRY(meet(w, &t, at));
  }
  if (m->skipped > w->skipped) {
    t.kind = BRIM_ANOMALY_GRADIENT_NOT_FINITE;
    t.count = m->skipped - w->skipped;
    t.silent = m->loss_scale > 1;  // fp16 finds its loss scale by such steps
    w->skipped = m->skipped;
    BRIM_TRY(meet(w, &t, at));
  }
  t.silent = false;
  t.count = 1;
  t.value = m->samples > 0 ? m->loss : (double)NAN;
  t.times = times_median(&w->loss, t.value);
  if (t.times > LOSS_TIMES && t.value > w->loss.first) {
    t.kind = BRIM_ANOMALY_LOSS_EXPLODED;
    BRIM_TRY(meet(w, &t, at));
  }
  t.value = m->grad_norm_max;
  t.times = times_median(&w->norm, t.value);
  if (t.times > NORM_TIMES && t.value > w->norm.first) {
    t.kind = BRIM_ANOMALY_GRADIENT_EXPLODED;
    BRIM_TRY(meet(w, &t, at));
  }
  return BRIM_OK;
}
