// Findings of a sweep and their prices.

#include "base/base_words.h"

#include <math.h>
#include <string.h>

#include "record/record_findings.h"
#include "tune/tune_int.h"

//------------------------------------------- findings -------------------------------------------
// Finds what costs time in one trial. Each finding has a price in ms per step and the knob that would help. There are
// findings of the machine (other processes, CPU quota, checkpoints, clocks) and of the workload. Notes on memory and
// on doubtful figures follow.

static void find_memory(const brim_findings *v) {
  brim_result *r = v->r;
  double need = brim_result_memory(r), share = need / r->free_bytes;
  if (isnan(share) || share < 0.8) return;
  char bytes[32];
  brim_finding *f = brim_finding_add(r, "memory_high", (double)NAN);
  if (!f) return;
  f->note = true;
  brim_format_bytes((uint64_t)need, bytes);
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("%s are %.1f %% of the memory that is free: another process, or a longer "
                         "sample, ends the run"),
                 bytes, brim_shown(100 * share));
  if (v->r->knob_set && v->r->knob_set->less_memory) {
    brim_words_put(f->remedy, sizeof f->remedy, v->r->knob_set->less_memory);
  }
}

//---------------------------------- the machine ----------------------------------

static bool is_worth(const brim_result *r, double ms) {
  return ms >= BRIM_FINDING_LEAST * r->total_ms.median;
}

// The milliseconds of a step that need the host's cores. Without a GPU that is the whole step.
static double host_ms(const brim_result *r) {
  if (!brim_result_has_gpu(r)) return r->total_ms.mean;
  return brim_result_phase_ms(r, BRIM_PHASE_IO) + brim_result_phase_ms(r, BRIM_PHASE_TRANSFORM) +
         brim_result_phase_ms(r, BRIM_PHASE_ENV) + brim_result_phase_ms(r, BRIM_PHASE_OTHER);
}

// The share of time in which the quota held ready threads back. CPU time plus time held back, per step time, is the
// number of CPUs that the threads asked for.
static double held_share(const brim_result *r) {
  double total = r->total_ms.mean;
  double asked = (r->quota_cpu_ms + r->quota_throttled_ms) / total;
  double held = r->quota_throttled_ms / fmax(1, asked) / total;
  return held > 0 ? fmin(held, 1) : 0;
}

// The price is the time held back. If brim's threads compute, are busy and are as many as the quota allows, the price
// includes the cores beyond the quota that more threads would use.
static void find_quota(const brim_findings *v) {
  brim_result *r = v->r;
  if (!(r->quota_cpus > 0) || !(r->quota_cpus < r->quota_cores)) return;
  double held = held_share(r), lost = host_ms(r) * held;
  bool computes = !brim_result_has_gpu(r) && r->threads == (int)ceil(r->quota_cpus);
  if (computes && r->cpu_percent >= 75) {
    lost += r->quota_cpu_ms / r->threads * (1 - r->threads / r->quota_cores);
  }
  if (!is_worth(r, lost)) return;
  brim_finding *f = brim_finding_add(r, "cpu_quota", lost);
  if (!f) return;
  f->predicted_ms = lost;
  brim_words_add(
      f->text, sizeof f->text,
      BRIM_N_("the control group may use %.3g of %.0f cores; threads that were ready were held "
              "back %.0f %% of the time"),
      r->quota_cpus, r->quota_cores, brim_shown(100 * held));
  brim_words_add(
      f->remedy, sizeof f->remedy,
      BRIM_N_("raise the quota to %.0f CPUs: cpu.max of the group, `docker --cpus`, or the "
              "pod's CPU limit"),
      r->quota_cores);
}

// Rounds up to one of 1, 2, 5, 10, 20, 50, ...
static double round_up(double least) {
  for (double unit = 1; unit < 1e15; unit *= 10) {
    if (unit >= least) return unit;
    if (2 * unit >= least) return 2 * unit;
    if (5 * unit >= least) return 5 * unit;
  }
  return least;
}

// The remedy is an interval at which checkpoints cost a hundredth of the time.
static void find_checkpoints(const brim_findings *v) {
  brim_result *r = v->r;
  double each = r->checkpoint_ms, every = r->checkpoint_steps;
  if (!(each > 0) || !(every > 0) || !is_worth(r, each / every)) return;
  double rare = round_up(fmax(each / (0.01 * r->total_ms.median), 2 * every));
  brim_finding *f = brim_finding_add(r, "checkpoint", each / every - each / rare);
  if (!f) return;
  char value[32];
  f->predicted_ms = f->cost_ms;
  brim_words_add(
      f->text, sizeof f->text,
      every == 1 ? BRIM_N_("after its %.2f ms, every step waits %.2f ms for a checkpoint")
                 : BRIM_N_("after its %.2f ms, a step waits %.2f ms for a checkpoint, every %.0f "
                           "steps"),
      r->total_ms.median, each, every);
  snprintf(value, sizeof value, "%.0f", rare);
  snprintf(f->key, sizeof f->key, "checkpoint.interval");
  snprintf(f->value, sizeof f->value, "%s", value);
  brim_words_add(f->remedy, sizeof f->remedy, "checkpoint.interval %.0f -> %s", every, value);
}

static void find_sharing(const brim_findings *v) {
  brim_result *r = v->r;
  double lost = r->total_ms.median * r->shared_percent / 100;
  if (!is_worth(r, lost)) return;
  brim_finding *f = brim_finding_add(r, "shared_gpu", lost);
  if (!f) return;
  f->predicted_ms = lost;
  if (r->shared_with[0]) {
    brim_words_add(f->text, sizeof f->text,
                   BRIM_N_("other processes have the GPU %.0f %% of the time: %s"),
                   r->shared_percent, r->shared_with);
  } else {
    brim_words_add(f->text, sizeof f->text,
                   BRIM_N_("the GPU does something else %.0f %% of the time: a process that is not "
                           "visible here"),
                   r->shared_percent);
  }
  brim_words_put(f->remedy, sizeof f->remedy,
                 BRIM_N_("end them, wait for them, or choose another GPU: device=cuda:N"));
}

// A power cap is a setting of the card and is only noted. Heat and power brakes can be fixed.
static void find_throttle(const brim_findings *v) {
  brim_result *r = v->r;
  if (!r->throttle[0]) return;
  double lost = r->clock_max_mhz > 0 ? r->total_ms.median * (1 - r->clock_mhz / r->clock_max_mhz)
                                     : (double)NAN;
  if (!r->throttled && lost < 0.01 * r->total_ms.median) return;  // the power cap costs nothing
  brim_finding *f = r->throttled ? brim_finding_add(r, "throttled", lost)
                                 : brim_finding_add(r, "power_cap", (double)NAN);
  if (!f) return;
  f->note = !r->throttled;
  char why[160] = "";
  brim_words_put_list(why, sizeof why, r->throttle);
  if (isnan(lost)) {
    brim_words_add(f->text, sizeof f->text, BRIM_N_("the clock was limited: %s"), why);
  } else {
    brim_words_add(f->text, sizeof f->text,
                   BRIM_N_("the clock was limited to %.0f of %.0f MHz: %s"), r->clock_mhz,
                   r->clock_max_mhz, why);
  }
  brim_words_put(
      f->remedy, sizeof f->remedy,
      r->throttled
          ? BRIM_N_("check the cooling and other jobs on the card; measure again when it is cool")
          : BRIM_N_("as this card is set up; a lower precision does more work per joule"));
}

//---------------------------------- unexplained slowness ----------------------------------

// Small shapes and the ops between matrix products can explain a step at this share of the machine's limit. A lower
// share has a cause that no other finding names.
#define GOOD_SHARE 0.1

// Lists the knobs that have another value in some other result (`tried`), or the knobs that have the same value in all.
static void put_knobs(const brim_findings *v, bool tried, brim_str *out) {
  for (size_t k = 0; k < v->r->knob_count; k++) {
    const brim_result_knob *knob = &v->r->knobs[k];
    bool varied = false;
    for (size_t i = 0; i < v->count && !varied; i++) {
      varied = strcmp(brim_result_knob_text(&v->results[i], knob->name), knob->value) != 0;
    }
    if (varied == tried) brim_str_printf(out, "%s%s", out->len ? ", " : "", knob->name);
  }
}

static void find_rest(const brim_findings *v) {
  brim_result *r = v->r;
  const char *precision;
  const double products = brim_result_product_share(r, &precision);
  const double memory = brim_result_memory_share(r);
  const bool by_memory = isnan(products) || memory > products;
  const double share = by_memory ? memory : products;
  // Do not compare a step with the device's limits if the loader bounds it.
  const bool loads = r->data_samples_per_s < r->compute_samples_per_s;
  if (!(share < GOOD_SHARE) || loads || brim_result_worth_fixing(r)) return;
  brim_finding *f = brim_finding_add(r, "below_ceiling", (double)NAN);
  if (!f) return;
  char what[64] = "", percent[16], nothing[32] = "";
  brim_str tried, left;
  brim_str_init(&tried);
  brim_str_init(&left);
  put_knobs(v, true, &tried);
  put_knobs(v, false, &left);
  if (by_memory) {
    brim_words_put(what, sizeof what, BRIM_N_("memory bandwidth"));
  } else {
    brim_words_add(what, sizeof what, BRIM_N_("%s matrix products"), precision);
  }
  brim_words_put(nothing, sizeof nothing, BRIM_N_("nothing"));
  if (share < 0.001) {
    snprintf(percent, sizeof percent, "<0.1 %%");
  } else {
    snprintf(percent, sizeof percent, "%.1f %%", brim_shown(100 * share));
  }
  brim_words_add(
      f->text, sizeof f->text,
      BRIM_N_("the step reaches %s of this machine's %s, and no finding says why; tried: %s"),
      percent, what, tried.len ? tried.data : nothing);
  if (left.len) {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("not tried: %s; `brim bench` measures them"), left.data);
  } else {
    brim_words_put(
        f->remedy, sizeof f->remedy,
        BRIM_N_("every knob was tried; a larger model or batch uses the machine better"));
  }
  brim_str_deinit(&tried);
  brim_str_deinit(&left);
}

//---------------------------------- doubts ----------------------------------

// Says which spread is largest: that of the steps, of their median, or of the repeats.
static void put_spread(const brim_result *r, brim_finding *f) {
  double median = r->total_ms.median, mad = r->total_ms.mad / median;
  double interval = (r->total_ms.ci_high - r->total_ms.ci_low) / 2 / median;
  double repeats = (r->samples_per_s_high - r->samples_per_s_low) / 2 / r->samples_per_s;
  double largest = fmax(mad, fmax(interval, repeats));
  brim_words_add(
      f->text, sizeof f->text,
      largest == mad
          ? BRIM_N_("step times have a MAD of %.0f %% of the median: the figures are rough")
      : largest == interval
          ? BRIM_N_(
                "the median step time is known within %.0f %% (95 %% interval): the figures are "
                "rough")
          : BRIM_N_("the rate is known within %.0f %% (95 %% interval): the figures are rough"),
      brim_shown(100 * largest));
}

static void find_noise(const brim_findings *v) {
  brim_result *r = v->r;
  if (r->stable) return;
  bool one_sample = brim_result_one_sample(r);
  brim_finding *f = brim_finding_add(r, "unstable", (double)NAN);
  if (!f) return;
  f->note = true;
  if (one_sample) {
    brim_words_put(f->text, sizeof f->text,
                   BRIM_N_("one sample is not enough to show whether the times are stable"));
    brim_words_put(f->remedy, sizeof f->remedy, BRIM_N_("more --steps, or --repeats 2 or more"));
    return;
  }
  put_spread(r, f);
  brim_words_put(f->remedy, sizeof f->remedy,
                 BRIM_N_("measure again on a quiet machine, or with more --steps"));
}

static const brim_work_findings_table *findings_of(const brim_result *r) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (strcmp(table->name, r->workload) == 0) return table->findings;
  }
  return NULL;
}

void brim_diagnose_with(brim_result *results, size_t count, size_t index, bool probing) {
  const brim_findings v = {&results[index], results, count, probing};
  if (!brim_result_ran(v.r) || !(v.r->total_ms.median > 0)) return;
  v.r->finding_count = 0;
  find_sharing(&v);
  find_quota(&v);
  find_checkpoints(&v);
  const brim_work_findings_table *own = findings_of(v.r);
  if (own) own->find(&v);
  find_rest(&v);
  find_memory(&v);
  find_throttle(&v);
  find_noise(&v);
  brim_findings_sort(v.r);
}

void brim_diagnose(brim_result *results, size_t count, size_t index) {
  brim_diagnose_with(results, count, index, false);
}

//------------------------------------------- remedies -------------------------------------------
// Measured prices of findings: each remedy that is a knob runs for a moment beside the setting itself. The two
// alternate (A B B A), so that a machine that gets slower or faster meanwhile affects both alike. The results are
// evidence for the findings and are dropped afterwards.

enum { MOST_PROBES = 8, LEAST_SAMPLES = 4, HOST_WARMUP = 6 };
// Warm-up steps of the shortest visit.
enum { LEAST_WARMUP = 3 };
enum { CACHE_WARMUP = 2 };
#define FILL_SECONDS 5.0
#define DEFAULT_SECONDS 25.0
#define VISIT_SECONDS 2.5
// Skip the second pair if the first gains less than this: the remedy is not reported anyway.
#define HOPELESS 0.01
// The assumed part of a GPU that a step fills, if it is unknown.
#define UNKNOWN_PART 0.25

typedef struct remedies {
  brim_subject *subject;
  const brim_remedy_options *options;
  brim_result *all;  // the sweep's results (`known` of them), then the results measured here
  size_t count, index, known;
  bool cached;                // a cache was filled: visits have to be short enough to stay in it
  bool no_time[MOST_PROBES];  // by probe: no time was left to measure it
  brim_str unmeasured;        // names of the probes that were not measured
  brim_time start;
} remedies;

//---------------------------------- settings ----------------------------------

// Makes the setting with the value that the finding wants to try. False if the value makes no difference or cannot run.
static bool change_setting(const remedies *m, const brim_finding *f, brim_setting *out) {
  const brim_subject *subject = m->subject;
  int at = brim_subject_knob(subject, f->try_knob);
  if (at < 0) return false;
  const brim_knob *knob = &subject->knobs[at];
  *out = *m->options->setting;
  if (!brim_knob_read(knob, f->try_value, &out->value[at])) return false;
  if (out->value[at] < knob->min || out->value[at] > knob->max) return false;
  if (!brim_subject_knob_matters(subject, (size_t)at, m->options->setting)) return false;
  return !subject->table->sensible || subject->table->sensible(subject->state, out);
}

//---------------------------------- measuring ----------------------------------

static double spent_s(const remedies *m) {
  return (double)brim_time_since_ns(m->start, brim_clock_now()) * 1e-9;
}

static double budget_s(const remedies *m) {
  return m->options->seconds > 0 ? m->options->seconds : DEFAULT_SECONDS;
}

static double left_s(const remedies *m) { return budget_s(m) - spent_s(m); }

double brim_remedy_step_s(const brim_result *own, bool gpu, double more) {
  double part = gpu ? own->sm_percent * own->occupancy_percent * 1e-4 : 1;
  if (isnan(part)) part = UNKNOWN_PART;
  return own->total_ms.median * 1e-3 * fmax(1, more * fmin(1, part));
}

static double step_s(const remedies *m, const brim_setting *setting) {
  double row_ratio =
      brim_subject_rows(m->subject, setting) / brim_subject_rows(m->subject, m->options->setting);
  return brim_remedy_step_s(&m->all[m->index], !m->subject->host, row_ratio);
}

// The least seconds for one visit to the present setting and one to the changed setting.
static double pair_s(const remedies *m, const brim_setting *changed) {
  int steps = LEAST_SAMPLES, most = m->options->trial.steps;
  if (most > 0 && most < steps) steps = most;
  return (steps + LEAST_WARMUP) * (step_s(m, m->options->setting) + step_s(m, changed));
}

// Notes a remedy that is not measured for lack of time.
static void leave_out(remedies *m, const char *name, const char *value) {
  brim_str_printf(&m->unmeasured, "%s%s%s%s", m->unmeasured.len ? ", " : "", name,
                  value[0] ? "=" : "", value);
}

static brim_trial_options short_options(const remedies *m, brim_result_visit *visit) {
  brim_trial_options how = m->options->trial;
  how.ceilings = false;
  how.configured = false;
  how.on_step = NULL;
  how.visit = visit;
  how.min_steps = LEAST_SAMPLES;
  if (how.steps > 0 && how.steps < how.min_steps) how.min_steps = how.steps;
  if (m->subject->host && how.max_warmup == 0) how.max_warmup = HOST_WARMUP;
  how.max_seconds = fmax(1e-3, fmin(VISIT_SECONDS, left_s(m) / 2));
  if (m->cached) {
    how.steps = LEAST_SAMPLES;
    how.max_warmup = CACHE_WARMUP;
  }
  return how;
}

// Runs a setting. *seen has a rate of NaN if the setting did not run.
static brim_status visit(remedies *m, const brim_setting *setting, brim_result *out,
                         brim_result_visit *seen) {
  const brim_subject_table *table = m->subject->table;
  const brim_trial_options how = short_options(m, seen);
  *seen = (brim_result_visit){.samples_per_s = (double)NAN, .log_se = (double)NAN};
  brim_status status = table->run(m->subject->state, setting, &how, out);
  if (!status && out->failure == BRIM_FAILURE_CRASH && table->recover) {
    status = table->recover(m->subject);
  }
  if (!status && brim_result_ran(out) && isnan(seen->samples_per_s)) {
    seen->samples_per_s = out->samples_per_s;
  }
  return status;
}

static brim_status visit_once(remedies *m, const brim_setting *setting, brim_result_visit *seen) {
  brim_result r;
  brim_status status = visit(m, setting, &r, seen);
  brim_result_deinit(&r);
  return status;
}

static bool fills_cache(const remedies *m, const brim_finding *f, const brim_setting *changed) {
  int at = brim_subject_knob(m->subject, f->try_knob);
  int64_t fills = m->subject->knobs[at].fills;
  return m->subject->table->warm && fills != 0 && changed->value[at] == fills;
}

double brim_remedy_gain(const brim_result_visit *own, const brim_result_visit *changed,
                        size_t pairs) {
  double sum = 0, low = (double)INFINITY, high = -(double)INFINITY, squares = 0;
  for (size_t i = 0; i < pairs; i++) {
    double gain = log(changed[i].samples_per_s) - log(own[i].samples_per_s);
    sum += gain;
    low = fmin(low, gain);
    high = fmax(high, gain);
    if (own[i].log_se >= 0) squares += own[i].log_se * own[i].log_se;
    if (changed[i].log_se >= 0) squares += changed[i].log_se * changed[i].log_se;
  }
  double mean = sum / (double)pairs;
  double error = fmax(sqrt(squares) / (double)pairs, (high - low) / 2);
  return mean > 0 && mean < 1.96 * error ? 0 : mean;
}

// Compares the changed setting with the present one. `out` gets the changed setting's result, with its rate relative
// to results[index].
static brim_status compare(remedies *m, const brim_setting *changed, bool fills, brim_result *out) {
  const brim_setting *own = m->options->setting;
  brim_result_visit a[2], b[2];
  size_t pairs = 1;
  m->cached = false;
  BRIM_TRY(visit_once(m, own, &a[0]));
  if (fills) {
    // A setting that caches samples gains from the second epoch on, so fill its cache first: later visits read the
    // same samples. If the setting cannot run, its visit fails again.
    m->cached = true;
    BRIM_TRY(m->subject->table->warm(m->subject->state, changed, fmin(FILL_SECONDS, left_s(m) / 3),
                                     m->options->trial.stop));
  }
  BRIM_TRY(visit(m, changed, out, &b[0]));
  if (isnan(b[0].samples_per_s)) return BRIM_OK;
  if (log(b[0].samples_per_s) - log(a[0].samples_per_s) > HOPELESS &&
      pair_s(m, changed) <= left_s(m)) {
    BRIM_TRY(visit_once(m, changed, &b[1]));
    m->cached = false;
    BRIM_TRY(visit_once(m, own, &a[1]));
    if (!isnan(a[1].samples_per_s) && !isnan(b[1].samples_per_s)) pairs = 2;
  }
  double gain = brim_remedy_gain(a, b, pairs);
  if (isnan(gain)) return BRIM_OK;
  out->samples_per_s = m->all[m->index].samples_per_s * exp(gain);
  out->samples_per_s_low = out->samples_per_s_high = (double)NAN;  // the pairs give no interval
  return BRIM_OK;
}

// Makes a failed result for a setting that is not run, so that no finding asks for it again.
static void refuse(const remedies *m, const brim_finding *f, brim_result *out) {
  const brim_result *own = &m->all[m->index];
  brim_result_init(out);
  memcpy(out->knobs, own->knobs, sizeof out->knobs);
  out->knob_count = own->knob_count;
  out->failure = BRIM_FAILURE_UNSUPPORTED;
  for (size_t i = 0; i < out->knob_count; i++) {
    if (strcmp(out->knobs[i].name, f->try_knob) != 0) continue;
    snprintf(out->knobs[i].value, sizeof out->knobs[i].value, "%s", f->try_value);
  }
}

static void show(const remedies *m, const brim_finding *f) {
  if (!m->options->on_progress) return;
  char title[128];
  brim_progress p;
  memset(&p, 0, sizeof p);
  snprintf(title, sizeof title, brim_tr("what would help: %s=%s"), f->try_knob, f->try_value);
  p.title = title;
  p.done = -1;
  p.elapsed_s = spent_s(m);
  p.eta_s = fmax(0, budget_s(m) - p.elapsed_s);  // an upper bound
  p.rate = (double)NAN;
  p.unit = "trials";
  m->options->on_progress(m->options->ctx, &p);
}

static const brim_finding *next_try(const brim_result *r) {
  for (size_t i = 0; i < r->finding_count; i++) {
    if (r->findings[i].try_knob[0]) return &r->findings[i];
  }
  return NULL;
}

static brim_status probe(remedies *m, const brim_finding *f, brim_result *out) {
  brim_setting changed;
  brim_result_init(out);
  if (!change_setting(m, f, &changed)) {
    refuse(m, f, out);
    return BRIM_OK;
  }
  bool fills = fills_cache(m, f, &changed);
  double seconds =
      pair_s(m, &changed) + (fills ? BRIM_SUBJECT_WARM_STEPS * step_s(m, &changed) : 0);
  if (seconds > left_s(m)) {
    refuse(m, f, out);
    m->no_time[m->count - m->known] = true;
    leave_out(m, f->try_knob, f->try_value);
    return BRIM_OK;
  }
  show(m, f);
  return compare(m, &changed, fills, out);
}

static brim_status measure_all(remedies *m) {
  for (int i = 0; i < MOST_PROBES; i++) {
    brim_diagnose_with(m->all, m->count, m->index, true);
    const brim_finding *f = next_try(&m->all[m->index]);
    if (!f) break;
    brim_status status = probe(m, f, &m->all[m->count]);
    m->count++;
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

// Drops the results of remedies that were not measured for lack of time.
static void forget_unmeasured(remedies *m) {
  size_t kept = m->known;
  for (size_t i = m->known; i < m->count; i++) {
    if (m->no_time[i - m->known]) {
      brim_result_deinit(&m->all[i]);
    } else {
      m->all[kept++] = m->all[i];
    }
  }
  m->count = kept;
}

static void note_unmeasured(const remedies *m, brim_result *r) {
  brim_finding *f = m->unmeasured.len ? brim_finding_add(r, "not_priced", (double)NAN) : NULL;
  if (!f) return;
  f->note = true;
  brim_words_add(
      f->text, sizeof f->text,
      BRIM_N_("not measured, because it would take longer than the %.0f s for prices: %.300s"),
      budget_s(m), m->unmeasured.data);
}

// Measures checkpoints and other processes. A cost that cannot be measured stays unknown.
static brim_status measure_beside(remedies *m) {
  const brim_remedy_options *o = m->options;
  bool no_time = false;
  const brim_subject_beside how = {.folder = o->folder,
                                   .watch = o->trial.memory,
                                   .step_s = step_s(m, o->setting),
                                   .left_s = left_s(m),
                                   .no_time = &no_time};
  if (!m->subject->table->beside) return BRIM_OK;
  brim_status status =
      m->subject->table->beside(m->subject->state, o->setting, &how, &m->all[m->index]);
  if (no_time) leave_out(m, "checkpoint.interval", "");
  if (!status || status == BRIM_EDEVICE || status == BRIM_ENOMEM) return status;
  brim_log_warn("tune", "what checkpoints and other processes cost was not measured: %s",
                brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

//---------------------------------- the findings ----------------------------------

static void name_keys(const brim_subject *subject, brim_result *r) {
  for (size_t i = 0; i < r->finding_count; i++) {
    brim_finding *f = &r->findings[i];
    int at = f->knob[0] ? brim_subject_knob(subject, f->knob) : -1;
    if (at >= 0) snprintf(f->key, sizeof f->key, "%s", subject->knobs[at].key);
  }
}

static double larger_batch(const remedies *m, size_t from) {
  const brim_result *own = &m->all[m->index];
  double best = (double)NAN;
  for (size_t i = from; i < m->count; i++) {
    const brim_result *r = &m->all[i];
    if (!brim_result_ran(r)) continue;
    if (!(brim_result_number_as(r, BRIM_ROLE_BATCH, 0) >
          brim_result_number_as(own, BRIM_ROLE_BATCH, 0))) {
      continue;
    }
    best = fmax(best, r->samples_per_s / own->samples_per_s);
  }
  return best;
}

brim_status brim_remedies_measure(brim_subject *subject, const brim_remedy_options *options,
                                  brim_result *results, size_t count, size_t index) {
  if (options->larger) *options->larger = (double)NAN;
  if (!brim_result_ran(&results[index])) return BRIM_OK;
  remedies m = {.subject = subject,
                .options = options,
                .count = count,
                .index = index,
                .known = count,
                .start = brim_clock_now()};
  m.all = (brim_result *)brim_calloc(count + MOST_PROBES, sizeof *m.all);
  if (!m.all) return brim_fail(BRIM_ENOMEM, "out of memory for the prices of findings");
  memcpy(m.all, results, count * sizeof *m.all);
  brim_str_init(&m.unmeasured);
  brim_status status = measure_beside(&m);
  if (!status) status = measure_all(&m);
  forget_unmeasured(&m);
  brim_diagnose(m.all, m.count, index);
  note_unmeasured(&m, &m.all[index]);
  results[index] = m.all[index];  // with its findings and the costs beside the steps
  name_keys(m.subject, &results[index]);
  if (options->larger) *options->larger = larger_batch(&m, count);
  for (size_t i = count; i < m.count; i++) brim_result_deinit(&m.all[i]);
  brim_free(m.all);
  brim_str_deinit(&m.unmeasured);
  return status;
}
