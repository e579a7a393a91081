// After the recommendation: what a changed batch means for the learning rate, and seed guide 002's
// checklist before training, ticked by what the sweep saw.
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "tune/tune.h"

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
  double batch = brim_result_knob_number(r, "batch_size", (double)NAN);
  double was = f->batch * f->accumulation,
         now = batch * brim_result_knob_number(r, "accumulation", 1);
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

static bool has_several(const brim_advice_facts *f, const char *knob) {
  for (size_t i = 0; i < f->several_count; i++) {
    if (strcmp(f->several[i], knob) == 0) return true;
  }
  return false;
}

typedef struct knob_check {
  const char *knob;
  // what is recommended, that of several tried none is, that only one was tried, and that a sweep of
  // several ended before the second
  const char *texts[4];
} knob_check;

static void check_knob(const brim_result *results, size_t count, const brim_result *r,
                       const brim_advice_facts *f, const knob_check *row, brim_advice *out) {
  const brim_result_knob *k = r ? brim_result_knob_find(r, row->knob) : NULL;
  bool swept = brim_result_knob_varies(results, count, row->knob);
  if (k && swept) {
    check(out, true, row->texts[0], k->value);
  } else {
    int which = swept ? 1 : has_several(f, row->knob) ? 3 : 2;
    check(out, false, "%s", row->texts[which]);
  }
}

static void check_precision(const brim_result *results, size_t count, const brim_result *r,
                            const brim_advice_facts *f, brim_advice *out) {
  const brim_result_knob *k = r ? brim_result_knob_find(r, "precision") : NULL;
  if (!k) return;
  bool mixed = strcmp(k->value, "fp32") != 0,
       swept = brim_result_knob_varies(results, count, "precision");
  check(out, mixed || swept,
        mixed   ? brim_tr("mixed precision: on (%s)")
        : swept ? brim_tr("mixed precision: %s was the faster one here")
        : has_several(f, "precision")
            ? brim_tr("mixed precision: the sweep ended with %s alone measured")
            : brim_tr("mixed precision: off (%s); try --precisions fp32 bf16"),
        k->value);
}

static bool tried_larger(const brim_result *results, size_t count, const brim_result *r) {
  double batch = brim_result_knob_number(r, "batch_size", (double)INFINITY);
  for (size_t i = 0; i < count; i++) {
    if (brim_result_knob_number(&results[i], "batch_size", 0) > batch) return true;
  }
  return false;
}

static void check_memory(const brim_result *results, size_t count, const brim_result *r,
                         brim_advice *out) {
  double share = r ? 100 * brim_result_memory(r) / r->free_bytes : (double)NAN;
  if (isnan(share)) return;
  bool aimed = share >= 50 && share <= 80, larger = tried_larger(results, count, r);
  check(out, aimed || (share < 50 && larger),
        aimed        ? brim_tr("memory: %.0f %% of what is free (50 to 80 %% is the aim)")
        : share > 80 ? brim_tr("memory: %.0f %% of what is free, more than 80 %%")
        : larger     ? brim_tr("memory: %.0f %% of what is free; larger batches gained under 3 %%")
                     : brim_tr("memory: %.0f %% of what is free; larger batches were not tried"),
        share);
}

static void check_knobs(const brim_result *results, size_t count, const brim_result *r,
                        const brim_advice_facts *f, brim_advice *out) {
  const knob_check rows[] = {
      {"batch_size",
       {brim_tr("batch size: %s"), brim_tr("batch size: several were tried, none is recommended"),
        brim_tr("batch size: only one was tried; --batch-sizes 128 256 512 ..."),
        brim_tr("batch size: the sweep ended with one alone measured")}},
      {"num_workers",
       {brim_tr("workers: %s"), brim_tr("workers: several were tried, none is recommended"),
        brim_tr("workers: only one number was tried; --num-workers 0 2 4 8"),
        brim_tr("workers: the sweep ended with one number alone measured")}},
      {"dir_chunk",
       {brim_tr("directions at once: %s"),
        brim_tr("directions at once: several were tried, none is recommended"),
        brim_tr("directions at once: only one number was tried; --dir-chunk 8 64"),
        brim_tr("directions at once: the sweep ended with one number alone measured")}},
  };
  // a workload without one of them has nothing to tick
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (count > 0 && !brim_result_knob_find(&results[0], rows[i].knob)) continue;
    if (count == 0 && i == 2) continue;
    check_knob(results, count, r, f, &rows[i], out);
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
  bool search = r && brim_result_knob_find(r, "num_envs");  // its memory is small, and no aim
  if (!search) check_memory(results, count, r, out);
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
