// What multi-agent PPO watches for: outputs and gradients that are no numbers, a policy that no longer
// explores, updates that move it too far, a critic that diverges, and a policy that stays worse than random
// actions.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "workload/mappo/mappo_int.h"

enum { NOT_FINITE, SKIPPED, ENTROPY, FAR, VALUES, LOW, TROUBLES };

static const brim_work_trouble_row troubles[TROUBLES] = {
    [NOT_FINITE] = {.name = "outputs_not_finite",
                    .label = BRIM_N_("warning"),
                    .one = BRIM_N_("%lld sample had no finite loss or action, by step %lld"),
                    .many =
                        BRIM_N_("%lld samples had no finite loss or action, from step %lld on")},
    [SKIPPED] = {.name = "gradient_not_finite",
                 .label = BRIM_N_("skipped"),
                 .one = BRIM_N_("%lld update whose gradients were not finite, by step %lld"),
                 .many =
                     BRIM_N_("%lld updates whose gradients were not finite, from step %lld on")},
    [ENTROPY] = {.name = "entropy_collapsed",
                 .label = BRIM_N_("warning"),
                 .one = BRIM_N_("%lld time the entropy collapsed, by step %lld"),
                 .many = BRIM_N_("%lld times the entropy collapsed, first by step %lld"),
                 .always = true},
    [FAR] = {.name = "policy_moved_far",
             .label = BRIM_N_("warning"),
             .one = BRIM_N_("%lld iteration moved the policy too far, by step %lld"),
             .many = BRIM_N_("%lld iterations moved the policy too far, from step %lld on")},
    [VALUES] = {.name = "value_loss_exploded",
                .label = BRIM_N_("warning"),
                .one = BRIM_N_("%lld time the value loss was many times its median, by step %lld"),
                .many = BRIM_N_(
                    "%lld times the value loss was many times its median, first by step %lld")},
    [LOW] = {.name = "below_random",
             .label = BRIM_N_("warning"),
             .one = BRIM_N_("%lld time the policy stayed below random actions, by step %lld"),
             .many =
                 BRIM_N_("%lld times the policy stayed below random actions, first by step %lld"),
             .always = true},
};

// A policy with less of the entropy of equally likely actions hardly explores. Updates of PPO move a policy
// by 0.005 to 0.03; ten times as much is no trust region. A value loss that doubles is a new part of the
// world; ten times the median, and more than at first, is none.
static const double least_entropy = 0.02, most_kl = 0.2;
enum { VALUE_TIMES = 10, FEW = 8, LOW_EVALS = 3, ERRORS = 2 };

static brim_work_trouble *begin(brim_work_trouble *t, int kind, int64_t count) {
  memset(t, 0, sizeof *t);
  t->kind = kind;
  t->count = count;
  return t;
}

static void field(brim_work_trouble *t, const char *key, double value) {
  t->fields[t->field_count].key = key;
  t->fields[t->field_count++].value = value;
}

static void advise(brim_mappo *w, brim_work_trouble *t, const char *advice) {
  snprintf(t->advice, sizeof t->advice, "%s", advice);
  snprintf(w->watch.advice, sizeof w->watch.advice, "%s", advice);
}

static void smaller_steps(const brim_mappo *w, double lr, char *out, size_t size) {
  brim_words_add(
      out, size,
      BRIM_N_("try a lower learning rate (now %g), fewer mappo.update_epochs (now %d) or "
              "training.clip_norm=0.5"),
      lr, w->how.epochs);
}

//---------------------------------- of training ----------------------------------

static size_t take_numbers(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const brim_work_metrics *m = at->metrics;
  char advice[400] = "";
  size_t n = 0;
  smaller_steps(w, at->lr, advice, sizeof advice);
  if (m->bad > 0) {
    brim_work_trouble *t = begin(&out[n++], NOT_FINITE, m->bad);
    brim_words_add(
        t->text, sizeof t->text,
        BRIM_N_("%" PRId64 " samples had no finite loss or action by step %" PRId64 ": %s"),
        t->count, at->step, advice);
    advise(w, t, advice);
  }
  if (w->now.skipped > w->watch.skipped) {
    brim_work_trouble *t = begin(&out[n++], SKIPPED, w->now.skipped - w->watch.skipped);
    t->silent = m->searching;  // fp16 finds its loss scale by such updates
    w->watch.skipped = w->now.skipped;
    brim_words_add(t->text, sizeof t->text,
                   BRIM_N_("skipped %" PRId64 " updates by step %" PRId64
                           ", because their gradients were not finite: %s"),
                   t->count, at->step, advice);
    if (!t->silent) advise(w, t, advice);
  }
  return n;
}

static size_t take_entropy(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const double entropy = at->metrics->values[BRIM_MAPPO_ENTROPY];
  const double share = entropy / log((double)w->z.act);
  char advice[400] = "";
  if (!(share < least_entropy)) {
    if (share > 2 * least_entropy) w->watch.reported_entropy = false;
    return 0;
  }
  if (w->watch.reported_entropy) return 0;
  w->watch.reported_entropy = true;
  brim_work_trouble *t = begin(out, ENTROPY, 1);
  brim_words_add(
      advice, sizeof advice,
      BRIM_N_("if the return does not rise any more, try a larger mappo.entropy_coef (now %g) "
              "or a lower learning rate (now %g)"),
      (double)w->how.entropy, at->lr);
  brim_words_add(t->text, sizeof t->text,
                 BRIM_N_("entropy %.3g by step %" PRId64
                         ", %.1f %% of equally likely actions: the policy hardly explores; %s"),
                 entropy, at->step, brim_shown(100 * share), advice);
  advise(w, t, advice);
  field(t, "value", entropy);
  return 1;
}

static size_t take_distance(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const double kl = at->metrics->values[BRIM_MAPPO_KL];
  const double clipped = at->metrics->values[BRIM_MAPPO_CLIPPED];
  char advice[400] = "";
  if (!(kl > most_kl)) return 0;
  brim_work_trouble *t = begin(out, FAR, 1);
  smaller_steps(w, at->lr, advice, sizeof advice);
  brim_words_add(t->text, sizeof t->text,
                 BRIM_N_("the updates of an iteration moved the policy far by step %" PRId64
                         ": KL %.3g, %.0f %% of the samples clipped; %s"),
                 at->step, kl, brim_shown(100 * clipped), advice);
  advise(w, t, advice);
  field(t, "value", kl);
  field(t, "clipped", clipped);
  return 1;
}

// How many times the running median a value loss is; NaN while there are too few. Takes it in afterwards.
static double times_median(brim_mappo_watch *v, double value) {
  double median = (double)NAN;
  const size_t n = v->value_count < BRIM_MAPPO_WINDOW ? (size_t)v->value_count : BRIM_MAPPO_WINDOW;
  if (!isfinite(value)) return (double)NAN;
  if (v->value_count == 0) v->first_value_loss = value;
  if (n >= FEW && brim_stats_median(v->value_loss, n, &median)) {
    brim_status_clear();  // out of memory: not looked at
    median = (double)NAN;
  }
  v->value_loss[v->value_count++ % BRIM_MAPPO_WINDOW] = value;
  return median > 0 ? value / median : (double)NAN;
}

static size_t take_values(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const double loss = at->metrics->values[BRIM_MAPPO_VALUE_LOSS];
  const double times = times_median(&w->watch, loss);
  char advice[400] = "";
  if (!(times > VALUE_TIMES) || !(loss > w->watch.first_value_loss)) return 0;
  brim_work_trouble *t = begin(out, VALUES, 1);
  brim_words_add(advice, sizeof advice,
                 w->how.value_norm
                     ? BRIM_N_("try a lower learning rate (now %g) or mappo.huber=10")
                     : BRIM_N_("try mappo.value_norm=true, or a lower learning rate (now %g)"),
                 at->lr);
  brim_words_add(t->text, sizeof t->text,
                 BRIM_N_("value loss %.4g by step %" PRId64 ", %.3g times its running median: %s"),
                 loss, at->step, times, advice);
  advise(w, t, advice);
  field(t, "value", loss);
  field(t, "times_median", times);
  return 1;
}

//---------------------------------- of evaluations ----------------------------------

static size_t take_evaluation(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const double *now = at->metrics->values, *random = at->metrics->baseline;
  const double error = now[BRIM_MAPPO_ERROR], other = random[BRIM_MAPPO_ERROR];
  const double both = sqrt(error * error + other * other);
  const bool low = random[BRIM_MAPPO_RETURN] - now[BRIM_MAPPO_RETURN] > ERRORS * both;
  char advice[400] = "";
  w->watch.low = low ? w->watch.low + 1 : 0;
  if (!low) w->watch.reported_low = false;
  if (w->watch.low < LOW_EVALS || w->watch.reported_low) return 0;
  w->watch.reported_low = true;
  brim_work_trouble *t = begin(out, LOW, 1);
  brim_words_add(
      advice, sizeof advice,
      BRIM_N_("try a lower learning rate (now %g), more environments (mappo.num_envs is %d) "
              "or a larger mappo.entropy_coef (now %g)"),
      at->lr, w->sizes.envs, (double)w->how.entropy);
  brim_words_add(
      t->text, sizeof t->text,
      BRIM_N_("return %.4g by step %" PRId64 ", below the %.4g of random actions in %" PRId64
              " evaluations in a row: %s"),
      now[BRIM_MAPPO_RETURN], at->step, random[BRIM_MAPPO_RETURN], w->watch.low, advice);
  advise(w, t, advice);
  field(t, "value", now[BRIM_MAPPO_RETURN]);
  field(t, "baseline", random[BRIM_MAPPO_RETURN]);
  return 1;
}

static size_t watch_take(void *work, const brim_work_moment *at,
                         brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  brim_mappo *w = (brim_mappo *)work;
  if (at->evaluated) return take_evaluation(w, at, out);
  if (at->metrics->samples == 0) return 0;
  size_t n = take_numbers(w, at, out);
  n += take_entropy(w, at, out + n);
  n += take_distance(w, at, out + n);
  return n + take_values(w, at, out + n);
}

static void watch_advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  (void)counts, (void)lr;
  snprintf(out, size, "%s", ((const brim_mappo *)work)->watch.advice);
}

static brim_status watch_lost(void *work, int64_t epoch, double lr) {
  const brim_mappo *w = (const brim_mappo *)work;
  return brim_fail(BRIM_ESTATE,
                   "diverged in epoch %" PRId64
                   ": losses or gradients are no longer finite; try a lower learning rate (now "
                   "%g), training.clip_norm=0.5 or fewer mappo.update_epochs (now %d) from an "
                   "earlier checkpoint",
                   epoch, lr, w->how.epochs);
}

//---------------------------------- in a checkpoint ----------------------------------

enum { FACTS = 6, NUMBERS = TROUBLES + FACTS + BRIM_MAPPO_WINDOW };

static brim_status watch_put(void *work, const int64_t *times, json_t *metadata) {
  const brim_mappo_watch *v = &((const brim_mappo *)work)->watch;
  double numbers[NUMBERS];
  size_t n = 0;
  for (int i = 0; i < TROUBLES; i++) numbers[n++] = (double)times[i];
  const double facts[FACTS] = {(double)v->skipped,      (double)v->value_count,
                               v->first_value_loss,     (double)v->low,
                               (double)v->reported_low, (double)v->reported_entropy};
  memcpy(numbers + n, facts, sizeof facts);
  n += FACTS;
  memcpy(numbers + n, v->value_loss, sizeof v->value_loss);
  return brim_json_put_numbers(metadata, "brim.watch_mappo", numbers, NUMBERS);
}

static int64_t whole(double x) { return x >= 0 && x < 9e15 ? (int64_t)x : 0; }

static void watch_get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_mappo_watch *v = &((brim_mappo *)work)->watch;
  double numbers[NUMBERS];
  (void)skipped;
  if (brim_work_get_numbers(metadata, "brim.watch_mappo", numbers, NUMBERS) != NUMBERS) return;
  for (int i = 0; i < TROUBLES; i++) times[i] = whole(numbers[i]);
  const double *facts = numbers + TROUBLES;
  v->skipped = whole(facts[0]);
  v->value_count = whole(facts[1]);
  v->first_value_loss = facts[2];
  v->low = whole(facts[3]);
  v->reported_low = facts[4] > 0;
  v->reported_entropy = facts[5] > 0;
  memcpy(v->value_loss, facts + FACTS, sizeof v->value_loss);
}

const brim_work_diagnosis brim_mappo_diagnosis = {.rows = troubles,
                                                  .count = TROUBLES,
                                                  .take = watch_take,
                                                  .advice = watch_advice,
                                                  .lost = watch_lost,
                                                  .put = watch_put,
                                                  .get = watch_get};
