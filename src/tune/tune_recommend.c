// Which setting to take. The rules stand in tune.h; ties go to the earlier trial. Settings are compared by
// the race that measured them, or by their intervals where there is none (records that were read).
#include <math.h>
#include <string.h>

#include "tune/tune_int.h"

#define NEAR 0.97
// By estimate; of settings that cannot be told apart the one with fewer workers is taken from here on.
#define NEAR_WORKERS 0.90

typedef struct choice {
  const brim_result *results;
  size_t count;
  const brim_recommend_options *options;
  bool any_memory;    // none that may be applied leaves a fifth of the memory
  bool any_learning;  // none that runs may be applied
  int reference;      // measured to compare with, and not to be recommended; -1 = none
} choice;

static double log_half(const brim_result *r) {
  bool known = r->samples_per_s_low > 0 && r->samples_per_s_high >= r->samples_per_s_low;
  return known ? 0.5 * log(r->samples_per_s_high / r->samples_per_s_low) : (double)NAN;
}

brim_interval brim_compare_results(const brim_result *results, size_t a, size_t b,
                                   brim_race *race) {
  brim_interval ratio = {(double)NAN, (double)NAN, (double)NAN};
  if (!brim_result_ran(&results[a]) || !brim_result_ran(&results[b])) return ratio;
  if (race) ratio = brim_race_ratio(race, a, b);
  bool of_race = !isnan(ratio.value);
  if (!of_race) {
    double half = hypot(log_half(&results[a]), log_half(&results[b]));
    ratio.value = results[a].samples_per_s / results[b].samples_per_s;
    ratio.low = ratio.value * exp(-half);
    ratio.high = ratio.value * exp(half);
  }
  // What other programs took from one and not from the other, and may give back: noise that repeating does
  // not show. The records' own intervals have it.
  double load = exp(brim_result_log_load(&results[a]) + brim_result_log_load(&results[b]));
  if (of_race) {
    ratio.low /= load;
    ratio.high *= load;
  }
  if (!(ratio.high <= BRIM_TUNE_WIDEST * ratio.low)) ratio.low = ratio.high = (double)NAN;
  return ratio;
}

static brim_interval compare(const choice *c, int a, int b) {
  return brim_compare_results(c->results, (size_t)a, (size_t)b, c->options->race);
}

static bool safe(const brim_result *r) {
  return isnan(r->free_bytes) || brim_result_memory(r) < 0.8 * r->free_bytes;
}

// A setting that ran and later did not any more is the last resort.
static bool reliable(const choice *c, size_t i) {
  return !c->options->race || !isnan(brim_race_rate(c->options->race, i).value);
}

static bool eligible(const choice *c, size_t i) {
  const brim_result *r = &c->results[i];
  if (!brim_result_ran(r)) return false;
  if (!c->any_learning && c->options->withheld && c->options->withheld[i]) return false;
  return c->any_memory || (safe(r) && reliable(c, i));
}

static int fastest(const choice *c, bool all) {
  int best = -1;
  for (size_t i = 0; i < c->count; i++) {
    if (all ? !brim_result_ran(&c->results[i]) : !eligible(c, i)) continue;
    if (best < 0 || c->results[i].samples_per_s > c->results[best].samples_per_s) best = (int)i;
  }
  return best;
}

static int most_efficient(const choice *c, double floor) {
  int best = -1;
  double best_value = 0;
  for (size_t i = 0; i < c->count; i++) {
    const brim_result *r = &c->results[i];
    if (!brim_result_ran(r) || r->samples_per_s < floor) continue;
    double value = r->samples_per_s / fmax(brim_result_memory(r), 1);
    if (best < 0 || value > best_value) {
      best = (int)i;
      best_value = value;
    }
  }
  return best;
}

static bool fewer_workers(const brim_result *a, const brim_result *b) {
  return brim_result_number_as(a, BRIM_ROLE_WORKERS, 0) <
         brim_result_number_as(b, BRIM_ROLE_WORKERS, 0);
}

// Do two results differ in the number of workers alone?
static bool only_workers(const brim_result *a, const brim_result *b) {
  const brim_result_knob *workers = brim_result_knob_as(a, BRIM_ROLE_WORKERS);
  for (size_t k = 0; workers && k < a->knob_count; k++) {
    const brim_result_knob *other = brim_result_knob_find(b, a->knobs[k].name);
    bool same = other && strcmp(other->value, a->knobs[k].value) == 0;
    if (same == (&a->knobs[k] == workers)) return false;
  }
  return workers != NULL;
}

// Not told apart from it: not certainly slower, and within 3 % by estimate. Noise takes workers apart first,
// and each costs memory and a core: fewer of them need not be as near.
static bool as_good(const choice *c, int i, int best) {
  if (i == best) return true;
  const brim_result *a = &c->results[i], *b = &c->results[best];
  bool workers = only_workers(a, b) && fewer_workers(a, b);
  brim_interval ratio = compare(c, i, best);
  if (isnan(ratio.low)) return ratio.value >= NEAR;
  return ratio.high >= 1 && ratio.value >= (workers ? NEAR_WORKERS : NEAR);
}

static bool smaller(const brim_result *a, const brim_result *b) {
  double x = brim_result_memory(a), y = brim_result_memory(b);
  if (x != y) return x < y;
  return fewer_workers(a, b);
}

// Never one that another of them certainly beats: what is not told apart from the best may be from a
// third.
static bool beaten(const choice *c, int pick) {
  for (size_t i = 0; i < c->count; i++) {
    if (!eligible(c, i) || (int)i == pick) continue;
    if (compare(c, pick, (int)i).high < 1) return true;
  }
  return false;
}

static int smallest_as_good(const choice *c, int best) {
  int pick = best;
  for (size_t i = 0; i < c->count; i++) {
    if ((int)i == c->reference || !eligible(c, i) || !as_good(c, (int)i, best)) continue;
    if (smaller(&c->results[i], &c->results[pick]) && !beaten(c, (int)i)) pick = (int)i;
  }
  return pick;
}

static bool is_open(const choice *c, int pick) {
  for (size_t i = 0; i < c->count; i++) {
    if (!eligible(c, i) || (int)i == pick) continue;
    brim_interval ratio = compare(c, pick, (int)i);
    if (isnan(ratio.low) ? c->options->race || ratio.value < 1 / NEAR : ratio.low < NEAR) {
      return true;
    }
    if (c->options->race && c->results[pick].repeats == 1) return true;  // measured once
  }
  return false;
}

// The config's own setting stays as long as nothing is certainly faster: a change has to be worth it.
static bool keeps_own(const choice *c, int pick) {
  int own = c->options->now;
  if (own < 0 || (size_t)own >= c->count || pick == own || !eligible(c, (size_t)own)) return false;
  if (c->any_memory && !reliable(c, (size_t)own)) return false;
  brim_interval gain = compare(c, pick, own);
  if (!isnan(gain.low)) return !(gain.low > 1);
  return c->options->race || !(gain.value > 1 / NEAR);  // an interval too wide to say anything
}

// Steady, or certain all the same? What was measured beside a busy program is neither.
static bool is_doubtful(const choice *c, int pick) {
  const brim_result *r = &c->results[pick];
  return !r->stable || brim_result_log_load(r) > 0;
}

static void look_beside(const choice *c, brim_recommendation *out) {
  int best = -1;
  for (size_t i = 0; i < c->count && c->options->withheld; i++) {
    const brim_result *r = &c->results[i];
    if (!c->options->withheld[i] || !brim_result_ran(r) || !safe(r) || !reliable(c, i)) continue;
    if (best < 0 || r->samples_per_s > c->results[best].samples_per_s) best = (int)i;
  }
  if (best < 0 || best == out->recommended) return;
  brim_interval more = compare(c, best, out->recommended);
  if (!(more.low > 1)) return;
  out->beside = best;
  out->more = more;
}

void brim_recommend(const brim_result *results, size_t count, const brim_recommend_options *options,
                    brim_recommendation *out) {
  const brim_interval unknown = {(double)NAN, (double)NAN, (double)NAN};
  choice c = {.results = results, .count = count, .options = options, .reference = -1};
  *out = (brim_recommendation){.highest = fastest(&c, true),
                               .efficient = -1,
                               .recommended = -1,
                               .now = -1,
                               .gain = unknown,
                               .beside = -1,
                               .more = unknown};
  if (out->highest < 0) return;
  out->efficient = most_efficient(&c, 0.90 * results[out->highest].samples_per_s);
  int best = fastest(&c, false);
  c.any_memory = best < 0;
  if (best < 0) best = fastest(&c, false);
  c.any_learning = best < 0;
  if (best < 0) best = fastest(&c, false);
  if (options->now_is_reference) c.reference = options->now;
  out->recommended = best == c.reference ? best : smallest_as_good(&c, best);
  if (keeps_own(&c, out->recommended)) out->recommended = options->now;
  out->provisional =
      options->interrupted || is_open(&c, out->recommended) || is_doubtful(&c, out->recommended);
  look_beside(&c, out);
  if (options->now < 0 || (size_t)options->now >= count) return;
  if (!brim_result_ran(&results[options->now])) return;
  out->now = options->now;
  out->gain = compare(&c, out->recommended, out->now);
}

//---------------------------------- what changes learning ----------------------------------

bool brim_sweep_changes_learning(const brim_work *work, const bool *named,
                                 const brim_setting *setting) {
  brim_setting own = brim_work_setting(work);
  int batch = brim_work_knob_as(work, BRIM_ROLE_BATCH);
  int steps = brim_work_knob_as(work, BRIM_ROLE_ACCUMULATION);
  bool batch_named = false;
  for (size_t k = 0; k < work->knob_count; k++) {
    bool asked = named && named[k];
    if (!work->knobs[k].changes_learning) continue;
    if ((int)k == batch || (int)k == steps) {
      batch_named = batch_named || asked;
    } else if (!asked && setting->value[k] != own.value[k]) {
      return true;
    }
  }
  if (batch_named || batch < 0) return false;
  int64_t was = own.value[batch], now = setting->value[batch];
  if (steps >= 0) {
    was *= own.value[steps];
    now *= setting->value[steps];
  }
  return was != now;
}
