// After the recommendation: what a changed batch means for the learning rate, and seed guide 002's
// checklist before training, ticked by what the sweep saw.
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "tune/tune.h"

static double knob_of(const brim_work *work, const brim_setting *setting, brim_knob_role role) {
  int knob = brim_work_knob_as(work, role);
  return knob < 0 ? (double)NAN : (double)setting->value[knob];
}

void brim_advice_facts_of(const brim_work *work, brim_advice_facts *out) {
  brim_setting setting = brim_work_setting(work);
  brim_work_info info;
  memset(&info, 0, sizeof info);
  work->table->info(work->state, &info);
  *out = (brim_advice_facts){.batch = knob_of(work, &setting, BRIM_ROLE_BATCH),
                             .accumulation = knob_of(work, &setting, BRIM_ROLE_ACCUMULATION),
                             .learning_rate = info.learning_rate,
                             .adaptive = info.adaptive};
  if (isnan(out->accumulation)) out->accumulation = 1;
}

//---------------------------------- learning rate ----------------------------------

double brim_advise_rate(double learning_rate, double was, double now, bool adaptive) {
  return learning_rate * (adaptive ? sqrt(now / was) : now / was);
}

// The rule that people use for the optimiser comes first; neither is a law.
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

static bool has(const char *const *names, size_t count, const char *knob) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(names[i], knob) == 0) return true;
  }
  return false;
}

static bool has_several(const brim_advice_facts *f, const char *knob) {
  return has(f->several, f->several_count, knob);
}

static void check_knob(const brim_result *results, size_t count, const brim_result *r,
                       const brim_advice_facts *f, const brim_knob_row *row, brim_advice *out) {
  const brim_result_knob *k = r ? brim_result_knob_find(r, row->name) : NULL;
  bool swept = brim_result_knob_varies(results, count, row->name);
  if (has(f->idle, f->idle_count, row->name)) return;
  if (k && swept) {
    check(out, true, brim_tr(row->check->recommended), k->value);
  } else {
    const char *open = swept                       ? row->check->none
                       : has_several(f, row->name) ? row->check->ended
                                                   : row->check->one;
    check(out, false, "%s", brim_tr(open));
  }
}

// What a remedy that was measured would set the knob to; "" = there is none.
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

// The rate of the best larger batch over that of `r`; NaN = none ran.
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
  // what is learned without batches has no use for more of it
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
