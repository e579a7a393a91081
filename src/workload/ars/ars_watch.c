// What a policy search watches for: a return that collapses, updates that change nothing, episodes that
// diverge. A collapse shows at evaluations, whose episodes are always the same: by how far the mean is
// below the best so far, and below that of the zero policy without getting better.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "workload/ars/ars_int.h"

// Two of three evaluations, so that one bad draw of directions is none, and at the floor, where means go
// up and down by chance, one that is up hides nothing. Four standard errors are no accident; and of what
// the best had gained on the zero policy, more than half is gone. It is over after two that are
// fine.
enum { OF_LAST = 3, TOO_MANY = 2, ERRORS = 4, RISE_ERRORS = 2, FINE = 2 };
static const double most_lost = 0.5;

//---------------------------------- collapsing ----------------------------------

// The error of a difference.
static double both(double x, double y) {
  return sqrt((isnan(x) ? 0 : x * x) + (isnan(y) ? 0 : y * y));
}

// Better than the evaluations before it: by more than chance, or than each of some. A run that
// begins below the zero policy is on its way then.
static bool rises(const brim_ars_collapse *c, double now, double error) {
  double sum = 0, most = c->before[0];
  if (c->count == 0) return true;  // the first: nothing is known
  for (int i = 0; i < c->count; i++) {
    sum += c->before[i];
    most = fmax(most, c->before[i]);
  }
  return now - sum / c->count > RISE_ERRORS * error || (c->count > 1 && now > most);
}

static void remember(brim_ars_collapse *c, double now, bool low, bool fine) {
  memmove(c->before + 1, c->before, (BRIM_ARS_BEFORE - 1) * sizeof *c->before);
  c->before[0] = now;
  if (c->count < BRIM_ARS_BEFORE) c->count++;
  c->low = (c->low << 1 | low) & ((1u << OF_LAST) - 1);
  c->fine = !fine ? 0 : c->fine < FINE ? c->fine + 1 : FINE;
}

bool brim_ars_collapse_take(brim_ars_collapse *c, const brim_ars_returns *returns, double zero,
                            double zero_error) {
  double now = brim_returns_mean(returns), best = brim_returns_mean(&c->best);
  if (isnan(now)) return false;
  double gained = isnan(zero) ? (double)NAN : best - zero;
  bool below_best =
      best - now > ERRORS * both(brim_returns_error(&c->best), brim_returns_error(returns)) &&
      (isnan(gained) || best - now > most_lost * gained);
  // without a gain there is nothing to lose but what the zero policy has
  if (gained <= 0) below_best = false;
  double error = both(zero_error, brim_returns_error(returns));
  c->below_zero = zero - now > ERRORS * error;
  bool low = below_best || (c->below_zero && !rises(c, now, error));
  remember(c, now, low, !below_best && !c->below_zero);
  if (isnan(best) || now > best) c->best = *returns;
  if (c->fine == FINE) c->reported = false;
  unsigned lows = 0;
  for (unsigned bits = c->low; bits; bits >>= 1) lows += bits & 1;
  if (c->reported || !low || lows < TOO_MANY) return false;
  c->reported = true;
  return true;
}

// The three remedies of seed guide 000, each with the figure that speaks for it or against it.
void brim_ars_collapse_advice(const double *train, const brim_config *config,
                              const brim_rollout_shape *shape, char *out, size_t size) {
  double step = brim_config_float(config, "ars.step_size");
  double noise = brim_config_float(config, "ars.noise_std");
  double mean = train[BRIM_ARS_RETURN], sigma = train[BRIM_ARS_SIGMA];
  double update = train[BRIM_ARS_UPDATE_NORM];
  // a policy of zeros that was not changed: 0 of 0
  double moved = update > 0 ? 100 * update / train[BRIM_ARS_POLICY_NORM] : 0;
  double scatter = 100 * sigma / fabs(mean);
  char label[64] = "";
  out[0] = '\0';
  brim_words_put(label, sizeof label, shape->row->ended.label);
  brim_words_add(out, size,
                 BRIM_N_("try a smaller ars.step_size (now %g; the last update was %.3g %% of the "
                         "policy), "),
                 step, moved);
  // directions that are all alike say nothing, ones that scatter widely fall off the policy
  brim_words_add(out, size,
                 scatter < 1 ? BRIM_N_("a larger ars.noise_std (now %g; returns of the directions "
                                       "deviate by %.3g, %.3g %% of their mean), ")
                             : BRIM_N_("a smaller ars.noise_std (now %g; returns of the directions "
                                       "deviate by %.3g, %.3g %% of their mean), "),
                 noise, sigma, scatter);
  brim_words_add(
      out, size,
      BRIM_N_("or a shorter ars.episode_length (now %lld; %s in %.3g %% of the episodes, which are "
              "%.4g steps long on average)"),
      (long long)shape->episode_length, label, 100 * train[BRIM_ARS_ENDED_RATE],
      train[BRIM_ARS_LENGTH]);
}

//---------------------------------- diagnoses ----------------------------------

enum { COLLAPSED, SKIPPED, DIVERGED, TROUBLES };

static const brim_work_trouble_row troubles[TROUBLES] = {
    [COLLAPSED] = {.name = "return_collapsed",
                   .label = BRIM_N_("warning"),
                   .one = BRIM_N_("%lld time the return collapsed, by step %lld"),
                   .many = BRIM_N_("%lld times the return collapsed, first by step %lld"),
                   .always = true},
    [SKIPPED] = {.name = "update_skipped",
                 .label = BRIM_N_("warning"),
                 .one = BRIM_N_("%lld update did not change the policy, by step %lld"),
                 .many = BRIM_N_("%lld updates did not change the policy, from step %lld on")},
    [DIVERGED] = {.name = "episode_diverged",
                  .label = BRIM_N_("warning"),
                  .one = BRIM_N_("%lld episode diverged, by step %lld"),
                  .many = BRIM_N_("%lld episodes diverged, from step %lld on")},
};

static size_t take_evaluation(brim_ars *w, const brim_work_moment *at, brim_work_trouble *t) {
  const brim_work_metrics *eval = at->metrics;
  const brim_ars_returns returns = brim_returns_unpack(eval->sums);
  double best = brim_returns_mean(&w->collapse.best), zero = eval->baseline[BRIM_ARS_RETURN];
  double now = brim_returns_mean(&returns);
  if (!brim_ars_collapse_take(&w->collapse, &returns, zero, eval->baseline[BRIM_ARS_ERROR])) {
    return 0;
  }
  memset(t, 0, sizeof *t);
  t->kind = COLLAPSED;
  t->count = 1;
  brim_ars_collapse_advice(at->train, w->config, &w->shape, t->advice, sizeof t->advice);
  snprintf(w->collapse_advice, sizeof w->collapse_advice, "%s", t->advice);
  bool below = w->collapse.below_zero;
  double was = below ? zero : best;
  brim_words_add(t->text, sizeof t->text,
                 below ? BRIM_N_("the return collapsed to %.4g by step %" PRId64
                                 ", below the zero policy's %.4g: %s")
                       : BRIM_N_("the return collapsed to %.4g by step %" PRId64
                                 ", from %.4g at its best: %s"),
                 now, at->step, was, t->advice);
  t->fields[0].key = "value";
  t->fields[0].value = now;
  t->fields[1].key = below ? "baseline" : "best";
  t->fields[1].value = was;
  t->field_count = isnan(was) ? 0 : 2;
  return 1;
}

// Of training: no loss, no gradient; updates that were none and episodes that diverged.
static size_t watch_take(void *work, const brim_work_moment *at,
                         brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  brim_ars *w = (brim_ars *)work;
  const brim_work_metrics *m = at->metrics;
  size_t n = 0;
  if (at->evaluated) return take_evaluation(w, at, out);
  memset(out, 0, 2 * sizeof *out);
  if (m->skipped > w->watch.skipped) {
    brim_work_trouble *t = &out[n++];
    t->kind = SKIPPED;
    t->count = m->skipped - w->watch.skipped;
    w->watch.skipped = m->skipped;
    brim_words_add(t->text, sizeof t->text,
                   BRIM_N_("%" PRId64 " updates did not change the policy by step %" PRId64
                           ": no return was finite, or all returns were equal"),
                   t->count, at->step);
  }
  int64_t diverged = brim_returns_unpack(m->sums).diverged;
  if (diverged == 0) return n;
  brim_work_trouble *t = &out[n++];
  t->kind = DIVERGED;
  t->count = diverged;
  const brim_env_ended *ended = &w->shape.row->ended;
  char label[64] = "";
  brim_words_put(label, sizeof label, ended->label);
  if (ended->better == BRIM_BETTER_LOWER) {
    brim_words_add(t->text, sizeof t->text,
                   BRIM_N_("%" PRId64 " episodes diverged by step %" PRId64
                           ": the simulation overflowed; they count as %s"),
                   t->count, at->step, label);
  } else {
    brim_words_add(
        t->text, sizeof t->text,
        BRIM_N_("%" PRId64 " episodes diverged by step %" PRId64 ": the simulation overflowed"),
        t->count, at->step);
  }
  return n;
}

static void watch_advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  (void)counts, (void)lr;
  snprintf(out, size, "%s", ((brim_ars *)work)->collapse_advice);
}

static brim_status watch_lost(void *work, int64_t epoch, double lr) {
  const brim_rollout_shape *shape = &((const brim_ars *)work)->shape;
  if (brim_ars_all_equal(shape)) {
    return brim_fail(BRIM_ESTATE,
                     "lost in epoch %" PRId64
                     ": all returns are equal, since %s rewards every step alike; set "
                     "ars.restart=false, so that a rollout ends with its episode",
                     epoch, shape->row->name);
  }
  return brim_fail(BRIM_ESTATE,
                   "lost in epoch %" PRId64
                   ": the returns are not finite or all equal; try a smaller ars.step_size (now "
                   "%g) or another ars.noise_std, from an earlier checkpoint",
                   epoch, lr);
}

//---------------------------------- in a checkpoint ----------------------------------

// How often each was met, which evaluations were low, how many are fine, what was reported, the
// means before, and the best.
enum {
  BEFORE_SUMS = TROUBLES + 4 + BRIM_ARS_BEFORE,
  NUMBERS = BEFORE_SUMS + BRIM_ARS_SUMS,
  NUMBERS_0_1 = BEFORE_SUMS + BRIM_ARS_SUMS_0_1
};

static brim_status watch_put(void *work, const int64_t *times, json_t *metadata) {
  const brim_ars *w = (const brim_ars *)work;
  const brim_ars_collapse *c = &w->collapse;
  double v[NUMBERS];
  size_t n = 0;
  BRIM_TRY(brim_net_watch_put(&w->watch, NULL, metadata));
  if (c->best.count == 0) return BRIM_OK;
  for (int i = 0; i < TROUBLES; i++) v[n++] = (double)times[i];
  v[n++] = (double)c->low;
  v[n++] = (double)c->fine;
  v[n++] = (double)c->reported;
  v[n++] = (double)c->count;
  for (int i = 0; i < BRIM_ARS_BEFORE; i++) v[n++] = c->before[i];
  brim_returns_pack(&c->best, v + n);
  return brim_json_put_numbers(metadata, "brim.watch_returns", v, NUMBERS);
}

static void watch_get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_ars *w = (brim_ars *)work;
  double v[NUMBERS] = {0};
  size_t n = 0;
  brim_net_watch_get(&w->watch, metadata, skipped, NULL);
  if (brim_work_get_numbers(metadata, "brim.watch_returns", v, NUMBERS) < NUMBERS_0_1) return;
  for (int i = 0; i < TROUBLES; i++, n++) {
    times[i] = v[n] >= 0 && v[n] < 9e15 ? (int64_t)v[n] : 0;
  }
  brim_ars_collapse *c = &w->collapse;
  c->low = v[n] >= 0 && v[n] < 1 << OF_LAST ? (unsigned)v[n] : 0;
  c->fine = v[n + 1] > 0 && v[n + 1] <= FINE ? (int)v[n + 1] : 0;
  c->reported = v[n + 2] > 0;
  c->count = v[n + 3] > 0 && v[n + 3] <= BRIM_ARS_BEFORE ? (int)v[n + 3] : 0;
  n += 4;
  for (int i = 0; i < BRIM_ARS_BEFORE; i++) c->before[i] = v[n++];
  c->best = brim_returns_unpack(v + n);
}

const brim_work_diagnosis brim_ars_diagnosis = {.rows = troubles,
                                                .count = TROUBLES,
                                                .take = watch_take,
                                                .advice = watch_advice,
                                                .lost = watch_lost,
                                                .put = watch_put,
                                                .get = watch_get};
