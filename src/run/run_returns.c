// Returns of a policy as a run keeps them: their sums in a checkpoint, and a return that collapses. It
// is judged at evaluations, whose episodes are always the same: by how far the mean is below the best so
// far, and below that of doing nothing.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "run/run_int.h"

// Two evaluations running, so that one bad draw of directions is none. Four standard errors are no
// accident; and of what the best had gained on doing nothing, more than half is gone.
enum { IN_A_ROW = 2, ERRORS = 4 };
static const double most_lost = 0.5;

//---------------------------------- in a checkpoint ----------------------------------

enum { FIELDS = 9 };

static void pack(const brim_work_returns *r, double out[FIELDS]) {
  const double values[FIELDS] = {(double)r->count,    r->sum,           r->sum_sq,
                                 (double)r->episodes, (double)r->falls, (double)r->diverged,
                                 (double)r->steps,    r->distance,      r->seconds};
  memcpy(out, values, sizeof values);
}

static void unpack(const double v[FIELDS], brim_work_returns *out) {
  *out = (brim_work_returns){.count = (int64_t)v[0],
                             .sum = v[1],
                             .sum_sq = v[2],
                             .episodes = (int64_t)v[3],
                             .falls = (int64_t)v[4],
                             .diverged = (int64_t)v[5],
                             .steps = (int64_t)v[6],
                             .distance = v[7],
                             .seconds = v[8]};
}

static brim_status put_numbers(json_t *metadata, const char *key, const double *v, size_t n) {
  brim_str text;
  brim_str_init(&text);
  for (size_t i = 0; i < n; i++) {
    char number[32];
    brim_format_f64(v[i], number);
    brim_str_printf(&text, "%s%s", i ? " " : "", number);
  }
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(metadata, key, json_string(text.data));
  brim_str_deinit(&text);
  return status;
}

brim_status brim_run_put_returns(json_t *metadata, const char *key, const brim_work_returns *r) {
  double v[FIELDS];
  if (r->steps == 0) return BRIM_OK;
  pack(r, v);
  return put_numbers(metadata, key, v, FIELDS);
}

void brim_run_get_returns(const json_t *metadata, const char *key, brim_work_returns *out) {
  double v[FIELDS];
  const char *text = json_string_value(json_object_get(metadata, key));
  if (brim_run_read_numbers(text, v, FIELDS) == FIELDS) unpack(v, out);
}

// How often each was met, evaluations that were low in a row, the return before, and the best.
enum { NUMBERS = BRIM_ANOMALY_COUNT - BRIM_ANOMALY_RETURN_COLLAPSED + 2 + FIELDS };

brim_status brim_run_collapse_put(const brim_run_watch *w, json_t *metadata) {
  const brim_run_collapse *c = &w->collapse;
  double v[NUMBERS];
  size_t n = 0;
  if (c->best.count == 0 && c->training.steps == 0) return BRIM_OK;
  for (int i = BRIM_ANOMALY_RETURN_COLLAPSED; i < BRIM_ANOMALY_COUNT; i++) {
    v[n++] = (double)w->times[i];
  }
  v[n++] = (double)c->low;
  v[n++] = c->before;
  pack(&c->best, v + n);
  return put_numbers(metadata, "brim.watch_returns", v, NUMBERS);
}

void brim_run_collapse_get(brim_run_watch *w, const json_t *metadata) {
  double v[NUMBERS];
  size_t n = 0;
  const char *text = json_string_value(json_object_get(metadata, "brim.watch_returns"));
  if (brim_run_read_numbers(text, v, NUMBERS) != NUMBERS) return;
  for (int i = BRIM_ANOMALY_RETURN_COLLAPSED; i < BRIM_ANOMALY_COUNT; i++) {
    w->times[i] = v[n] >= 0 && v[n] < 9e15 ? (int64_t)v[n] : 0;
    n++;
  }
  w->collapse.low = v[n] >= 0 && v[n] < 1e6 ? (int)v[n] : 0;
  w->collapse.before = v[n + 1];
  unpack(v + n + 2, &w->collapse.best);
  w->collapse.judged = w->collapse.best.count > 0;
}

//---------------------------------- collapsing ----------------------------------

static double error_of(const brim_work_returns *a, const brim_work_returns *b) {
  double x = brim_returns_error(a), y = brim_returns_error(b);
  return sqrt((isnan(x) ? 0 : x * x) + (isnan(y) ? 0 : y * y));
}

bool brim_run_collapse_take(brim_run_collapse *c, const brim_work_metrics *eval) {
  double now = brim_returns_mean(&eval->returns), best = brim_returns_mean(&c->best);
  double zero = brim_returns_mean(&eval->baseline);
  if (isnan(now)) return false;
  double gained = isnan(zero) ? (double)NAN : best - zero;
  bool below_best = best - now > ERRORS * error_of(&c->best, &eval->returns) &&
                    (isnan(gained) || gained <= 0 || best - now > most_lost * gained);
  // one that begins below and rises is on its way
  bool below_zero = zero - now > ERRORS * error_of(&eval->baseline, &eval->returns) && c->judged &&
                    now <= c->before;
  // without a gain there is nothing to lose but what doing nothing has
  if (gained <= 0) below_best = false;
  c->low = below_best || below_zero ? c->low + 1 : 0;
  c->below_zero = below_zero;
  c->judged = true;
  c->before = now;
  if (isnan(best) || now > best) c->best = eval->returns;
  return c->low >= IN_A_ROW;
}

void brim_run_collapse_read(brim_run_collapse *c, const brim_work_metrics *m) {
  c->training = m->returns;
  c->update_norm = m->update_norm;
  c->policy_norm = m->policy_norm;
  c->sigma = m->sigma;
}

// The three remedies of seed guide 000, each with the figure that speaks for it or against it.
void brim_run_collapse_advice(const brim_run_collapse *c, const brim_config *config,
                              int64_t episode_length, char *out, size_t size) {
  double step = brim_config_float(config, "ars.step_size");
  double noise = brim_config_float(config, "ars.noise_std");
  double mean = brim_returns_mean(&c->training);
  double moved = c->policy_norm > 0 ? 100 * c->update_norm / c->policy_norm : (double)NAN;
  double scatter = mean != 0 ? 100 * c->sigma / fabs(mean) : (double)NAN;
  int n =
      snprintf(out, size,
               brim_tr("try a smaller ars.step_size (now %g; the last update was %.3g %% of the "
                       "policy), "),
               step, moved);
  if (n < 0 || (size_t)n >= size) return;
  // directions that are all alike say nothing, ones that scatter widely fall off the policy
  n += snprintf(out + n, size - (size_t)n,
                scatter < 1 ? brim_tr("a larger ars.noise_std (now %g; returns of the directions "
                                      "deviate by %.3g, %.3g %% of their mean), ")
                            : brim_tr("a smaller ars.noise_std (now %g; returns of the directions "
                                      "deviate by %.3g, %.3g %% of their mean), "),
                noise, c->sigma, scatter);
  if (n < 0 || (size_t)n >= size) return;
  snprintf(
      out + n, size - (size_t)n,
      brim_tr("or a shorter ars.episode_length (now %lld; %.3g %% of the episodes end early, by "
              "a fall, and they are %.4g steps long on average)"),
      (long long)episode_length, 100 * brim_returns_falls(&c->training),
      brim_returns_length(&c->training));
}
