// Returns of a policy as a run keeps them: their sums in a checkpoint, and a return that collapses. It
// is judged at evaluations, whose episodes are always the same: by how far the mean is below the best so
// far, and below that of doing nothing without getting better.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "run/run_int.h"

// Two of three evaluations, so that one bad draw of directions is none, and at the floor, where means go
// up and down by chance, one that is up hides nothing. Four standard errors are no accident; and of what
// the best had gained on doing nothing, more than half is gone. It is over after two that are fine.
enum { OF_LAST = 3, TOO_MANY = 2, ERRORS = 4, RISE_ERRORS = 2, FINE = 2 };
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

brim_status brim_run_put_returns(json_t *metadata, const char *key, const brim_work_returns *r) {
  double v[FIELDS];
  if (r->steps == 0) return BRIM_OK;
  pack(r, v);
  return brim_json_put_numbers(metadata, key, v, FIELDS);
}

void brim_run_get_returns(const json_t *metadata, const char *key, brim_work_returns *out) {
  double v[FIELDS];
  if (brim_run_get_numbers(metadata, key, v, FIELDS) == FIELDS) unpack(v, out);
}

// How often each was met, which evaluations were low, how many are fine, what was told, the means before,
// and the best.
enum {
  NUMBERS = BRIM_ANOMALY_COUNT - BRIM_ANOMALY_RETURN_COLLAPSED + 4 + BRIM_RUN_BEFORE + FIELDS
};

brim_status brim_run_collapse_put(const brim_run_watch *w, json_t *metadata) {
  const brim_run_collapse *c = &w->collapse;
  double v[NUMBERS];
  size_t n = 0;
  if (c->best.count == 0) return BRIM_OK;
  for (int i = BRIM_ANOMALY_RETURN_COLLAPSED; i < BRIM_ANOMALY_COUNT; i++) {
    v[n++] = (double)w->times[i];
  }
  v[n++] = (double)c->low;
  v[n++] = (double)c->fine;
  v[n++] = (double)c->told;
  v[n++] = (double)c->count;
  for (int i = 0; i < BRIM_RUN_BEFORE; i++) v[n++] = c->before[i];
  pack(&c->best, v + n);
  return brim_json_put_numbers(metadata, "brim.watch_returns", v, NUMBERS);
}

void brim_run_collapse_get(brim_run_watch *w, const json_t *metadata) {
  double v[NUMBERS];
  size_t n = 0;
  if (brim_run_get_numbers(metadata, "brim.watch_returns", v, NUMBERS) != NUMBERS) return;
  for (int i = BRIM_ANOMALY_RETURN_COLLAPSED; i < BRIM_ANOMALY_COUNT; i++) {
    w->times[i] = v[n] >= 0 && v[n] < 9e15 ? (int64_t)v[n] : 0;
    n++;
  }
  brim_run_collapse *c = &w->collapse;
  c->low = v[n] >= 0 && v[n] < 1 << OF_LAST ? (unsigned)v[n] : 0;
  c->fine = v[n + 1] > 0 && v[n + 1] <= FINE ? (int)v[n + 1] : 0;
  c->told = v[n + 2] > 0;
  c->count = v[n + 3] > 0 && v[n + 3] <= BRIM_RUN_BEFORE ? (int)v[n + 3] : 0;
  n += 4;
  for (int i = 0; i < BRIM_RUN_BEFORE; i++) c->before[i] = v[n++];
  unpack(v + n, &c->best);
}

//---------------------------------- collapsing ----------------------------------

static double error_of(const brim_work_returns *a, const brim_work_returns *b) {
  double x = brim_returns_error(a), y = brim_returns_error(b);
  return sqrt((isnan(x) ? 0 : x * x) + (isnan(y) ? 0 : y * y));
}

// Better than the evaluations before it: by more than chance, or than each of some. A run that begins
// below doing nothing is on its way then.
static bool rises(const brim_run_collapse *c, double now, double error) {
  double sum = 0, most = c->before[0];
  if (c->count == 0) return true;  // the first: nothing is known
  for (int i = 0; i < c->count; i++) {
    sum += c->before[i];
    most = fmax(most, c->before[i]);
  }
  return now - sum / c->count > RISE_ERRORS * error || (c->count > 1 && now > most);
}

static void remember(brim_run_collapse *c, double now, bool low, bool fine) {
  memmove(c->before + 1, c->before, (BRIM_RUN_BEFORE - 1) * sizeof *c->before);
  c->before[0] = now;
  if (c->count < BRIM_RUN_BEFORE) c->count++;
  c->low = (c->low << 1 | low) & ((1u << OF_LAST) - 1);
  c->fine = !fine ? 0 : c->fine < FINE ? c->fine + 1 : FINE;
}

bool brim_run_collapse_take(brim_run_collapse *c, const brim_work_metrics *eval) {
  double now = brim_returns_mean(&eval->returns), best = brim_returns_mean(&c->best);
  double zero = brim_returns_mean(&eval->baseline);
  if (isnan(now)) return false;
  double gained = isnan(zero) ? (double)NAN : best - zero;
  bool below_best = best - now > ERRORS * error_of(&c->best, &eval->returns) &&
                    (isnan(gained) || best - now > most_lost * gained);
  // without a gain there is nothing to lose but what doing nothing has
  if (gained <= 0) below_best = false;
  double error = error_of(&eval->baseline, &eval->returns);
  c->below_zero = zero - now > ERRORS * error;
  bool low = below_best || (c->below_zero && !rises(c, now, error));
  remember(c, now, low, !below_best && !c->below_zero);
  if (isnan(best) || now > best) c->best = eval->returns;
  if (c->fine == FINE) c->told = false;
  unsigned lows = 0;
  for (unsigned bits = c->low; bits; bits >>= 1) lows += bits & 1;
  if (c->told || !low || lows < TOO_MANY) return false;
  c->told = true;
  return true;
}

// The three remedies of seed guide 000, each with the figure that speaks for it or against it.
void brim_run_collapse_advice(const brim_run_trained *t, const brim_config *config,
                              int64_t episode_length, char *out, size_t size) {
  double step = brim_config_float(config, "ars.step_size");
  double noise = brim_config_float(config, "ars.noise_std");
  double mean = brim_returns_mean(&t->returns);
  // a policy of zeros that was not changed: 0 of 0
  double moved = t->update_norm > 0 ? 100 * t->update_norm / t->policy_norm : 0;
  double scatter = 100 * t->sigma / fabs(mean);
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
                noise, t->sigma, scatter);
  if (n < 0 || (size_t)n >= size) return;
  snprintf(
      out + n, size - (size_t)n,
      brim_tr("or a shorter ars.episode_length (now %lld; %.3g %% of the episodes end early, by "
              "a fall, and they are %.4g steps long on average)"),
      (long long)episode_length, 100 * brim_returns_falls(&t->returns),
      brim_returns_length(&t->returns));
}
