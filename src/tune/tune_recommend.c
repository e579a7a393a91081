// The recommendation: chooses a setting, gives the reasons, and advises how to use it.

#include "tune/tune.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "tune/tune_int.h"

//-------------------------------------------- reason --------------------------------------------
// Says why a setting is recommended: the knobs by which it is certainly faster, and the values that cannot be told
// apart. The evidence is the settings that differ from it in one knob.

enum { LIST_BYTES = 96 };

// "64, 128 and 3 more"
typedef struct value_list {
  char text[LIST_BYTES + 48];
  int more;  // number of values that did not fit in `text`
} value_list;

typedef struct knob_evidence {
  value_list certain, open;
  double least;  // the smallest certain factor
} knob_evidence;

static void add(value_list *list, const char *value) {
  size_t n = strlen(list->text);
  if (list->more > 0 || n + strlen(value) + 2 >= LIST_BYTES) {
    list->more++;
  } else {
    snprintf(list->text + n, LIST_BYTES - n, "%s%s", n ? ", " : "", value);
  }
}

static void end_list(value_list *list) {
  size_t n = strlen(list->text);
  if (list->more > 0) {
    snprintf(list->text + n, sizeof list->text - n, brim_tr(" and %d more"), list->more);
  }
}

// Widens an interval so that a sentence about several settings holds for all of them at once. At 95 % ten settings
// need 1.5 times the interval of one.
#define ALL_AT_ONCE 1.5

static double certain_factor(brim_interval ratio) {
  return exp(log(ratio.value) - ALL_AT_ONCE * log(ratio.value / ratio.low));
}

// Rounds down to two decimals, so that the text never claims more than is certain.
static double rounded_down(double factor) { return floor(brim_shown(100 * factor)) / 100; }

// True if two results differ in this knob and in no other.
static bool differ_in(const brim_result *a, const brim_result *b, size_t knob) {
  for (size_t k = 0; k < a->knob_count; k++) {
    const brim_result_knob *other = brim_result_knob_find(b, a->knobs[k].name);
    bool same = other && strcmp(other->value, a->knobs[k].value) == 0;
    if (same != (k != knob)) return false;
  }
  return true;
}

static void gather(const brim_result *results, size_t count, int pick, size_t knob, brim_race *race,
                   knob_evidence *out) {
  *out = (knob_evidence){.least = INFINITY};
  for (size_t i = 0; i < count; i++) {
    if ((int)i == pick || !brim_result_ran(&results[i])) continue;
    if (!differ_in(&results[pick], &results[i], knob)) continue;
    brim_interval ratio = brim_compare_results(results, (size_t)pick, i, race);
    const char *value = results[i].knobs[knob].value;
    if (ratio.high < 1) continue;  // faster but withheld: shown as `beside`
    double least = certain_factor(ratio);
    bool certain = least > 1;
    if (ratio.low > 1 && !(rounded_down(least) > 1)) continue;  // too small to show
    add(certain ? &out->certain : &out->open, value);
    if (certain) out->least = fmin(out->least, least);
  }
  end_list(&out->certain);
  end_list(&out->open);
}

// Appends a sentence if it fits whole.
static void say(char out[512], const char *text) {
  size_t n = strlen(out);
  if (n + strlen(text) + 2 >= 512) return;
  snprintf(out + n, 512 - n, "%s%s", n ? "; " : "", text);
}

void brim_recommend_reason(const brim_result *results, size_t count, const brim_recommendation *r,
                           brim_race *race, char out[512]) {
  out[0] = '\0';
  if (r->recommended < 0) return;
  const brim_result *pick = &results[r->recommended];
  for (size_t k = 0; k < pick->knob_count; k++) {
    const brim_result_knob *knob = &pick->knobs[k];
    knob_evidence e;
    char text[384];
    gather(results, count, r->recommended, k, race, &e);
    if (e.certain.text[0]) {
      brim_msg_format(text, sizeof text, brim_tr("%s %s is at least %.3gx faster than %s"),
                      knob->name, knob->value, rounded_down(e.least), e.certain.text);
      say(out, text);
    }
    if (e.open.text[0]) {
      brim_msg_format(text, sizeof text, brim_tr("%s %s and %s cannot be told apart in this sweep"),
                      knob->name, knob->value, e.open.text);
      say(out, text);
    }
  }
}

//------------------------------------------- setting -------------------------------------------
// Chooses the setting to recommend (rules: brim_recommendation in record.h). Ties go to the earlier setting. Settings
// are compared by the race that measured them, or by their intervals.

// A setting counts as good as the best if its interval allows it and its estimate is this near to the best.
#define NEAR 0.97
// The same for a setting that differs only by fewer workers.
#define NEAR_WORKERS 0.90

typedef struct choice {
  const brim_result *results;
  size_t count;
  const brim_recommend_options *options;
  bool any_memory;    // no setting leaves a fifth of the memory free: accept every setting
  bool any_learning;  // all settings are withheld: accept every setting
  int reference;      // index of a result that is only a reference; -1 = none
} choice;

// Half of a result's interval, as a logarithm, without the allowance for other programs.
static double log_half(const brim_result *r) {
  bool known = r->samples_per_s_low > 0 && r->samples_per_s_high >= r->samples_per_s_low;
  if (!known) return (double)NAN;
  double half = 0.5 * log(r->samples_per_s_high / r->samples_per_s_low);
  return fmax(0, half - brim_result_log_load(r));
}

// The ratio of two rates. With `quiet` the interval allows for other programs that slowed only one of the two
// settings; repeats do not show that.
static brim_interval ratio_of(const brim_result *results, size_t a, size_t b, brim_race *race,
                              bool quiet) {
  brim_interval ratio = {(double)NAN, (double)NAN, (double)NAN};
  if (!brim_result_ran(&results[a]) || !brim_result_ran(&results[b])) return ratio;
  if (race) ratio = brim_race_ratio(race, a, b);
  if (isnan(ratio.value)) {
    double half = hypot(log_half(&results[a]), log_half(&results[b]));
    ratio.value = results[a].samples_per_s / results[b].samples_per_s;
    ratio.low = ratio.value * exp(-half);
    ratio.high = ratio.value * exp(half);
  }
  if (quiet && a != b) {
    double load = exp(brim_result_log_load(&results[a]) + brim_result_log_load(&results[b]));
    ratio.low /= load;
    ratio.high *= load;
  }
  if (!(ratio.high <= BRIM_TUNE_WIDEST * ratio.low)) ratio.low = ratio.high = (double)NAN;
  return ratio;
}

brim_interval brim_compare_results(const brim_result *results, size_t a, size_t b,
                                   brim_race *race) {
  return ratio_of(results, a, b, race, true);
}

static brim_interval compare(const choice *c, int a, int b) {
  return brim_compare_results(c->results, (size_t)a, (size_t)b, c->options->race);
}

static bool leaves_memory(const brim_result *r) {
  return isnan(r->free_bytes) || brim_result_memory(r) < 0.8 * r->free_bytes;
}

// True if the setting ran each time.
static bool reliable(const choice *c, size_t i) {
  return !c->options->race || !isnan(brim_race_rate(c->options->race, i).value);
}

static bool eligible(const choice *c, size_t i) {
  const brim_result *r = &c->results[i];
  if (!brim_result_ran(r)) return false;
  if (!c->any_learning && c->options->withheld && c->options->withheld[i]) return false;
  return c->any_memory || (leaves_memory(r) && reliable(c, i));
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

// True if two results differ in the number of workers alone.
static bool only_workers(const brim_result *a, const brim_result *b) {
  const brim_result_knob *workers = brim_result_knob_as(a, BRIM_ROLE_WORKERS);
  for (size_t k = 0; workers && k < a->knob_count; k++) {
    const brim_result_knob *other = brim_result_knob_find(b, a->knobs[k].name);
    bool same = other && strcmp(other->value, a->knobs[k].value) == 0;
    if (same == (&a->knobs[k] == workers)) return false;
  }
  return workers != NULL;
}

// True if a setting cannot be told apart from the best: it is not certainly slower, and near the best by estimate.
// Each worker costs memory and a core, so a setting with fewer workers need not be as near.
static bool as_good(const choice *c, int i, int best) {
  if (i == best) return true;
  const brim_result *a = &c->results[i], *b = &c->results[best];
  bool workers = only_workers(a, b) && fewer_workers(a, b);
  brim_interval ratio = compare(c, i, best);
  if (isnan(ratio.low)) return ratio.value >= NEAR;
  return ratio.high >= 1 && ratio.value >= (workers ? NEAR_WORKERS : NEAR);
}

static bool needs_less(const brim_result *a, const brim_result *b) {
  double x = brim_result_memory(a), y = brim_result_memory(b);
  if (x != y) return x < y;
  if (fewer_workers(a, b) || fewer_workers(b, a)) return fewer_workers(a, b);
  return brim_result_number_as(a, BRIM_ROLE_THREADS, 0) <
         brim_result_number_as(b, BRIM_ROLE_THREADS, 0);
}

// True if another setting is certainly faster. A setting that cannot be told apart from the best may still be slower
// than a third.
static bool is_beaten(const choice *c, int pick) {
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
    if (needs_less(&c->results[i], &c->results[pick]) && !is_beaten(c, (int)i)) pick = (int)i;
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

// The config's own setting stays unless the pick is certainly faster: a change has to be worth it. A pick that was
// faster beside other programs is recommended as provisional.
static bool keeps_own(const choice *c, int pick) {
  int own = c->options->now;
  if (own < 0 || (size_t)own >= c->count || pick == own || !eligible(c, (size_t)own)) return false;
  if (c->any_memory && !reliable(c, (size_t)own)) return false;
  brim_interval gain = ratio_of(c->results, (size_t)pick, (size_t)own, c->options->race, false);
  if (!isnan(gain.low)) return !(gain.low > 1);
  return c->options->race || !(gain.value > 1 / NEAR);  // the interval is too wide
}

// True if the result is unsteady or was measured beside busy programs.
static bool is_doubtful(const choice *c, int pick) {
  const brim_result *r = &c->results[pick];
  return !r->stable || brim_result_log_load(r) > 0;
}

static void look_beside(const choice *c, brim_recommendation *out) {
  int best = -1;
  for (size_t i = 0; i < c->count && c->options->withheld; i++) {
    const brim_result *r = &c->results[i];
    if (!c->options->withheld[i] || !brim_result_ran(r) || !leaves_memory(r) || !reliable(c, i))
      continue;
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
  choice c = {.results = results, .count = count, .options = options, .reference = -1};
  brim_recommendation_init(out);
  out->highest = fastest(&c, true);
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
  out->own_is_fastest =
      options->now_is_reference && out->now == out->recommended && out->now == out->highest;
}

//---------------------------------- changes of learning ----------------------------------

bool brim_sweep_changes_learning(const brim_subject *subject, const bool *named,
                                 const brim_setting *setting) {
  brim_setting own = brim_subject_setting(subject);
  int batch = brim_subject_knob_as(subject, BRIM_ROLE_BATCH);
  int steps = brim_subject_knob_as(subject, BRIM_ROLE_ACCUMULATION);
  bool batch_named = false;
  for (size_t k = 0; k < subject->knob_count; k++) {
    bool asked = named && named[k];
    if (!subject->knobs[k].changes_learning) continue;
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

//-------------------------------------------- advice --------------------------------------------
// Advises on the learning rate for a changed batch, and fills in a checklist before training from the sweep.

void brim_advice_facts_of(const brim_subject *subject, brim_advice_facts *out) {
  int batch = brim_subject_knob_as(subject, BRIM_ROLE_BATCH);
  int steps = brim_subject_knob_as(subject, BRIM_ROLE_ACCUMULATION);
  brim_subject_facts facts = {.learning_rate = (double)NAN};
  if (subject->table->facts) subject->table->facts(subject->state, &facts);
  *out = (brim_advice_facts){.batch = batch < 0 ? (double)NAN : (double)subject->knobs[batch].value,
                             .accumulation = steps < 0 ? 1 : (double)subject->knobs[steps].value,
                             .learning_rate = facts.learning_rate,
                             .adaptive = facts.adaptive};
}

//---------------------------------- learning rate ----------------------------------

double brim_advise_rate(double learning_rate, double was, double now, bool adaptive) {
  return learning_rate * (adaptive ? sqrt(now / was) : now / was);
}

// Names two rules, the usual one for the optimiser first. Neither is a law.
static void rate_text(const brim_advice_facts *f, double was, double now, char out[256]) {
  double ratio = now / was, root = sqrt(ratio);
  if (isnan(f->learning_rate)) {
    snprintf(out, 256,
             brim_tr("The effective batch goes from %.0f to %.0f. Learning rate: times %.3g by the "
                     "square-root rule (Adam's kind), times %.3g by the linear rule (SGD)."),
             was, now, root, ratio);
    return;
  }
  double lr = f->learning_rate;
  snprintf(
      out, 256,
      f->adaptive
          ? brim_tr("The effective batch goes from %.0f to %.0f. Learning rate: %.3g -> %.3g by "
                    "the square-root rule (%.3g by the linear rule, for SGD).")
          : brim_tr("The effective batch goes from %.0f to %.0f. Learning rate: %.3g -> %.3g by "
                    "the linear rule (%.3g by the square-root rule, for Adam's kind)."),
      was, now, lr, brim_advise_rate(lr, was, now, f->adaptive),
      brim_advise_rate(lr, was, now, !f->adaptive));
}

void brim_advise_batch(const brim_advice_facts *facts, double now, char out[256]) {
  double was = facts->batch * facts->accumulation;
  out[0] = '\0';
  if (was > 0 && now > 0 && was != now) rate_text(facts, was, now, out);
}

static void advise_rate(const brim_result *r, const brim_advice_facts *f, brim_advice *out) {
  double batch = brim_result_number_as(r, BRIM_ROLE_BATCH, (double)NAN);
  double was = f->batch * f->accumulation,
         now = batch * brim_result_number_as(r, BRIM_ROLE_ACCUMULATION, 1);
  if (!(was > 0) || !(now > 0) || was == now) return;
  rate_text(f, was, now, out->learning_rate);
  double steps = was / batch;
  if (steps < 2 || steps != floor(steps)) return;
  snprintf(out->accumulation, sizeof out->accumulation,
           brim_tr("To keep the effective batch of %.0f: gradient_accumulation_steps: %.0f with "
                   "batch_size: %.0f; the learning rate then stays."),
           was, steps, batch);
}

//---------------------------------- checklist ----------------------------------

BRIM_PRINTF(3, 4)
static void check(brim_advice *out, bool done, const char *fmt, ...) {
  if (out->check_count == BRIM_ADVICE_MAX_CHECKS) return;
  brim_advice_check *c = &out->checks[out->check_count++];
  c->done = done;
  va_list args;
  va_start(args, fmt);
  vsnprintf(c->text, sizeof c->text, fmt, args);
  va_end(args);
}

static bool contains(const char *const *names, size_t count, const char *knob) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(names[i], knob) == 0) return true;
  }
  return false;
}

static bool has_several(const brim_advice_facts *f, const char *knob) {
  return contains(f->several, f->several_count, knob);
}

static void check_knob(const brim_result *results, size_t count, const brim_result *r,
                       const brim_advice_facts *f, const brim_knob_row *row, brim_advice *out) {
  const brim_result_knob *k = r ? brim_result_knob_find(r, row->name) : NULL;
  bool swept = brim_result_knob_varies(results, count, row->name);
  if (contains(f->idle, f->idle_count, row->name)) return;
  if (k && swept) {
    check(out, true, brim_tr(row->check->recommended), k->value);
  } else {
    const char *open = swept                       ? row->check->none
                       : has_several(f, row->name) ? row->check->ended
                                                   : row->check->one;
    check(out, false, "%s", brim_tr(open));
  }
}

// The value of a knob in a measured remedy; "" = none.
static const char *remedy_of(const brim_result *r, const char *knob) {
  for (size_t i = 0; i < r->finding_count; i++) {
    const brim_finding *f = &r->findings[i];
    if (f->measured && strcmp(f->knob, knob) == 0) return f->value;
  }
  return "";
}

static void check_precision(const brim_result *results, size_t count, const brim_result *r,
                            const brim_advice_facts *f, brim_advice *out) {
  const brim_result_knob *k = r ? brim_result_knob_as(r, BRIM_ROLE_PRECISION) : NULL;
  if (!k) return;
  const char *faster = remedy_of(r, k->name);
  if (faster[0]) {
    check(out, false, brim_tr("mixed precision: %s was measured and is faster than %s"), faster,
          k->value);
    return;
  }
  bool mixed = strcmp(k->value, "fp32") != 0,
       swept = brim_result_knob_varies(results, count, k->name);
  check(out, mixed || swept,
        mixed   ? brim_tr("mixed precision: on (%s)")
        : swept ? brim_tr("mixed precision: %s was the faster one here")
        : has_several(f, k->name)
            ? brim_tr("mixed precision: the sweep ended with %s alone measured")
            : brim_tr("mixed precision: off (%s); try --precisions fp32 bf16"),
        k->value);
}

// Rate of the best larger batch over the rate of `r`; NaN = no larger batch ran.
static double larger_rate(const brim_result *results, size_t count, const brim_result *r,
                          const brim_advice_facts *f) {
  double batch = brim_result_number_as(r, BRIM_ROLE_BATCH, (double)INFINITY);
  double best = f->larger > 0 ? f->larger : (double)NAN;
  for (size_t i = 0; i < count; i++) {
    if (!brim_result_ran(&results[i])) continue;
    if (!(brim_result_number_as(&results[i], BRIM_ROLE_BATCH, 0) > batch)) continue;
    best = fmax(best, results[i].samples_per_s / r->samples_per_s);
  }
  return best;
}

static bool planned_larger(const brim_result *results, size_t count, const brim_result *r) {
  double batch = brim_result_number_as(r, BRIM_ROLE_BATCH, (double)INFINITY);
  for (size_t i = 0; i < count; i++) {
    if (brim_result_number_as(&results[i], BRIM_ROLE_BATCH, 0) > batch) return true;
  }
  return false;
}

static void check_memory(const brim_result *results, size_t count, const brim_result *r,
                         const brim_advice_facts *f, brim_advice *out) {
  double share = r ? 100 * brim_result_memory(r) / r->free_bytes : (double)NAN;
  if (isnan(share)) return;
  double larger = larger_rate(results, count, r, f);
  if (share >= 50 && share <= 80) {
    check(out, true, brim_tr("memory: %.1f %% of what is free (50 to 80 %% is the aim)"),
          brim_shown(share));
  } else if (share > 80) {
    check(out, false, brim_tr("memory: %.1f %% of what is free, more than 80 %%"),
          brim_shown(share));
  } else if (larger > 1.03) {
    check(out, false,
          brim_tr("memory: %.1f %% of what is free; a larger batch was %.2f times as fast"),
          brim_shown(share), brim_shown(larger));
  } else if (!isnan(larger)) {
    check(out, true, brim_tr("memory: %.1f %% of what is free; larger batches gained under 3 %%"),
          brim_shown(share));
  } else if (planned_larger(results, count, r)) {
    check(out, true, brim_tr("memory: %.1f %% of what is free; no larger batch ran"),
          brim_shown(share));
  } else {
    check(out, false, brim_tr("memory: %.1f %% of what is free; larger batches were not tried"),
          brim_shown(share));
  }
}

static void check_knobs(const brim_result *results, size_t count, const brim_result *r,
                        const brim_advice_facts *f, brim_advice *out) {
  const brim_knob_set *set = count > 0 ? results[0].knob_set : NULL;
  for (size_t i = 0; set && i < set->count; i++) {
    const brim_knob_row *row = &set->rows[i];
    if (!row->check || !brim_result_knob_find(&results[0], row->name)) continue;
    check_knob(results, count, r, f, row, out);
  }
}

static void advise_checks(const brim_result *results, size_t count, const brim_result *r,
                          const brim_advice_facts *f, brim_advice *out) {
  size_t done = 0;
  for (size_t i = 0; i < count; i++) done += results[i].failure == BRIM_FAILURE_NONE;
  check(out, done > 0,
        done == 1 ? brim_tr("benchmark: %zu setting measured")
                  : brim_tr("benchmark: %zu settings measured"),
        done);
  check_knobs(results, count, r, f, out);
  check_precision(results, count, r, f, out);
  // without batches, free memory is of no use
  if (r && brim_result_knob_as(r, BRIM_ROLE_BATCH)) check_memory(results, count, r, f, out);
  if (r) {
    char rate[32];
    brim_format_count(r->samples_per_s, rate);
    check(out, r->stable,
          r->repeats > 1 ? brim_tr("throughput: %s %s/s, %d measurements")
                         : brim_tr("throughput: %s %s/s, %d measurement"),
          rate, brim_tr(brim_result_unit(r)), r->repeats > 1 ? r->repeats : 1);
  } else {
    check(out, false, "%s", brim_tr("throughput: nothing could be recommended"));
  }
}

void brim_advise(const brim_result *results, size_t count, int recommended,
                 const brim_advice_facts *facts, brim_advice *out) {
  memset(out, 0, sizeof *out);
  const brim_result *r =
      recommended >= 0 && (size_t)recommended < count ? &results[recommended] : NULL;
  if (r) advise_rate(r, facts, out);
  advise_checks(results, count, r, facts, out);
}
