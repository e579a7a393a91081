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

const char *brim_run_data_path(const brim_config *config) {
  const char *path = brim_config_string(config, "data.path");
  return path && *path ? path : "PATH";
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
    snprintf(out + n, size - (size_t)n,
             brim_tr("; `brim data verify %.200s` finds NaN in the data"),
             brim_run_data_path(config));
  }
}

//---------------------------------- medians ----------------------------------

// Places of a window that hold a reading.
static size_t used(int64_t count) {
  return count < BRIM_RUN_WINDOW ? (size_t)count : BRIM_RUN_WINDOW;
}

// How many times the running median `value` is; NaN while there are too few. Takes it in afterwards.
static double times_median(brim_run_window *w, double value) {
  double median = (double)NAN;
  if (!isfinite(value)) return (double)NAN;
  size_t n = used(w->count);
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
  int64_t count;  // samples, steps, or 1
  double value,
      times;        // of a figure that exploded; NaN otherwise. Of a return: it, and what it was
  bool below_zero;  // of a return: doing nothing has more
  bool silent;      // is part of how it works: not said
} trouble;

static void say_collapsed(const trouble *t, const brim_run_reading *at, const char *advice) {
  if (t->below_zero) {
    brim_log_warn(
        "run", "the return collapsed to %.4g by step %" PRId64 ", below the zero policy's %.4g: %s",
        t->value, at->step, t->times, advice);
  } else {
    brim_log_warn("run",
                  "the return collapsed to %.4g by step %" PRId64 ", from %.4g at its best: %s",
                  t->value, at->step, t->times, advice);
  }
}

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
                    "skipped %" PRId64 " steps by step %" PRId64
                    ", because their gradients were not finite: %s",
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
    case BRIM_ANOMALY_RETURN_COLLAPSED:
      say_collapsed(t, at, advice);
      return;
    case BRIM_ANOMALY_UPDATE_SKIPPED:
      brim_log_warn("run",
                    "%" PRId64 " updates did not change the policy by step %" PRId64
                    ": no return was finite, or all returns were equal",
                    t->count, at->step);
      return;
    case BRIM_ANOMALY_EPISODE_DIVERGED:
      brim_log_warn("run",
                    "%" PRId64 " episodes diverged by step %" PRId64
                    ": the simulation overflowed; each counts as a fall and costs as much",
                    t->count, at->step);
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
  bool fell = t->kind == BRIM_ANOMALY_RETURN_COLLAPSED;
  const char *times = !fell ? "times_median" : t->below_zero ? "baseline" : "best";
  if (!s && !isnan(t->times)) s = brim_json_put(f, times, brim_json_number(t->times));
  if (!s && fell) s = brim_json_put(f, "advice", json_string(w->result->collapse));
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
  // the 1st, 2nd, 4th, 8th, ... time; of a return each one is another collapse
  bool said = (times & (times - 1)) == 0 || t->kind == BRIM_ANOMALY_RETURN_COLLAPSED;
  if (!t->silent && said) {
    char advice[512];
    brim_anomaly_advice(t->kind, w->config, at->lr, advice, sizeof advice);
    say(t, at, t->kind == BRIM_ANOMALY_RETURN_COLLAPSED ? r->collapse : advice);
  }
  return at->unlogged ? BRIM_OK : log_trouble(w, t, at);
}

void brim_run_watch_init(brim_run_watch *watch, const brim_config *config, brim_run_log *log,
                         brim_run_result *result) {
  memset(watch, 0, sizeof *watch);
  watch->config = config;
  watch->log = log;
  watch->result = result;
}

// Of a policy: no loss, no gradient; updates that were none and episodes that diverged.
static brim_status take_policy(brim_run_watch *w, const brim_run_reading *at) {
  const brim_work_metrics *m = at->metrics;
  trouble t = {.value = (double)NAN, .times = (double)NAN};
  if (m->skipped > w->skipped) {
    t.kind = BRIM_ANOMALY_UPDATE_SKIPPED;
    t.count = m->skipped - w->skipped;
    w->skipped = m->skipped;
    BRIM_TRY(meet(w, &t, at));
  }
  if (m->returns.diverged == 0) return BRIM_OK;
  t.kind = BRIM_ANOMALY_EPISODE_DIVERGED;
  t.count = m->returns.diverged;
  return meet(w, &t, at);
}

brim_status brim_run_watch_judged(brim_run_watch *w, const brim_run_reading *at) {
  const brim_work_metrics *eval = at->metrics;
  double best = brim_returns_mean(&w->collapse.best);
  if (!brim_run_collapse_take(&w->collapse, eval)) return BRIM_OK;
  brim_run_collapse_advice(at->trained, w->config, at->episode_length, w->result->collapse,
                           sizeof w->result->collapse);
  bool below = w->collapse.below_zero;
  trouble t = {.kind = BRIM_ANOMALY_RETURN_COLLAPSED,
               .count = 1,
               .value = brim_returns_mean(&eval->returns),
               .times = below ? brim_returns_mean(&eval->baseline) : best,
               .below_zero = below};
  return meet(w, &t, at);
}

brim_status brim_run_watch_take(brim_run_watch *w, const brim_run_reading *at) {
  const brim_work_metrics *m = at->metrics;
  trouble t = {.value = (double)NAN, .times = (double)NAN};
  if (at->policy) return take_policy(w, at);
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

//---------------------------------- in a checkpoint ----------------------------------

// One text of numbers: steps skipped, how often each anomaly was met (those of a policy apart, in
// run_returns.c), and of losses and of norms how
// many were taken, the first and the window as it lies.
enum { KINDS = BRIM_ANOMALY_RETURN_COLLAPSED, NUMBERS = 1 + KINDS + 2 * (2 + BRIM_RUN_WINDOW) };

static size_t pack_window(const brim_run_window *w, double *out) {
  out[0] = (double)w->count;
  out[1] = w->first;
  memcpy(out + 2, w->values, used(w->count) * sizeof *out);
  return 2 + used(w->count);
}

brim_status brim_run_watch_put(const brim_run_watch *watch, json_t *metadata) {
  double numbers[NUMBERS];
  size_t n = 0;
  numbers[n++] = (double)watch->skipped;
  for (int i = 0; i < KINDS; i++) numbers[n++] = (double)watch->times[i];
  n += pack_window(&watch->loss, numbers + n);
  n += pack_window(&watch->norm, numbers + n);
  brim_status status = brim_json_put_numbers(metadata, "brim.watch", numbers, n);
  return status ? status : brim_run_collapse_put(watch, metadata);
}

size_t brim_run_get_numbers(const json_t *metadata, const char *key, double *out, size_t most) {
  size_t n = brim_json_get_numbers(metadata, key, out, most);
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(out[i])) return 0;
  }
  return n;
}

static bool is_count(double x) { return x >= 0 && x <= 9007199254740992.0 && x == floor(x); }

// What a window takes of n numbers; 0 when they are not one.
static size_t unpack_window(const double *from, size_t n, brim_run_window *w) {
  if (n < 2 || !is_count(from[0])) return 0;
  size_t values = used((int64_t)from[0]);
  if (n < 2 + values) return 0;
  w->count = (int64_t)from[0];
  w->first = from[1];
  memcpy(w->values, from + 2, values * sizeof *from);
  return 2 + values;
}

void brim_run_watch_get(brim_run_watch *watch, const json_t *metadata, int64_t skipped) {
  double numbers[NUMBERS];
  size_t n = brim_run_get_numbers(metadata, "brim.watch", numbers, NUMBERS), at = 1 + KINDS;
  brim_run_window loss = {0}, norm = {0};
  watch->skipped = skipped;
  brim_run_collapse_get(watch, metadata);
  for (size_t i = 0; i < at && i < n; i++) {
    if (!is_count(numbers[i])) return;
  }
  size_t of_loss = n > at ? unpack_window(numbers + at, n - at, &loss) : 0;
  if (!of_loss || unpack_window(numbers + at + of_loss, n - at - of_loss, &norm) == 0) return;
  watch->skipped = (int64_t)numbers[0];
  for (int i = 0; i < KINDS; i++) watch->times[i] = (int64_t)numbers[1 + i];
  watch->loss = loss;
  watch->norm = norm;
}
