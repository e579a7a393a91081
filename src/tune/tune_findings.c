// Findings of one trial, each priced in ms per step and with the knob that would help, the dearest first:
// those of the machine (other processes, CPU quota, checkpoints, clocks) and those of the workload. Then
// notes: memory, and what makes the figures themselves doubtful.
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"
#include "tune/tune_int.h"

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

// The part of a step that waits for the host's cores: all of it where they compute.
static double host_ms(const brim_result *r) {
  if (!brim_result_has_gpu(r)) return r->total_ms.mean;
  return brim_result_phase_ms(r, BRIM_PHASE_IO) + brim_result_phase_ms(r, BRIM_PHASE_TRANSFORM) +
         brim_result_phase_ms(r, BRIM_PHASE_ENV) + brim_result_phase_ms(r, BRIM_PHASE_OTHER);
}

// The share of the time in which threads that were ready were held back, all at once: CPU time and time
// held back together are what the threads asked for, which is so many CPUs at a time.
static double held_share(const brim_result *r) {
  double total = r->total_ms.mean;
  double asked = (r->quota_cpu_ms + r->quota_throttled_ms) / total;
  double held = r->quota_throttled_ms / fmax(1, asked) / total;
  return held > 0 ? fmin(held, 1) : 0;
}

// Without a quota no thread is held back; and brim would also use the other cores, where its threads were
// as many as the quota allows and busy.
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

// 1, 2, 5, 10, 20, 50, ...: the first from `least` on.
static double round_up(double least) {
  for (double unit = 1; unit < 1e15; unit *= 10) {
    if (unit >= least) return unit;
    if (2 * unit >= least) return 2 * unit;
    if (5 * unit >= least) return 5 * unit;
  }
  return least;
}

// So rare that they cost a hundredth of the time.
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

// A power cap is how the card is set up: a note. Heat and brakes can be fixed.
static void find_throttle(const brim_findings *v) {
  brim_result *r = v->r;
  if (!r->throttle[0]) return;
  double lost = r->clock_max_mhz > 0 ? r->total_ms.median * (1 - r->clock_mhz / r->clock_max_mhz)
                                     : (double)NAN;
  if (!r->throttled && lost < 0.01 * r->total_ms.median)
    return;  // the cap is reached, and costs nothing
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

//---------------------------------- the rest ----------------------------------

// Small shapes, and ops between the products, explain a step that reaches a tenth of what the machine can.
// One below that is not good as it is, though nothing above says why.
#define GOOD_SHARE 0.1

// Knobs of this result by whether a setting beside it has another value.
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
  // The loader bounds the step: what the device could do is no measure of it.
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

// By what made it unstable, and by its name: the spread of its steps, of their median, or of its repeats.
static void put_spread(const brim_result *r, brim_finding *f) {
  double median = r->total_ms.median, mad = r->total_ms.mad / median;
  double interval = (r->total_ms.ci_high - r->total_ms.ci_low) / 2 / median;
  double repeats = (r->samples_per_s_high - r->samples_per_s_low) / 2 / r->samples_per_s;
  double most = fmax(mad, fmax(interval, repeats));
  brim_words_add(
      f->text, sizeof f->text,
      most == mad ? BRIM_N_("step times have a MAD of %.0f %% of the median: the figures are rough")
      : most == interval
          ? BRIM_N_(
                "the median step time is known within %.0f %% (95 %% interval): the figures are "
                "rough")
          : BRIM_N_("the rate is known within %.0f %% (95 %% interval): the figures are rough"),
      brim_shown(100 * most));
}

static void find_noise(const brim_findings *v) {
  brim_result *r = v->r;
  if (r->stable) return;
  bool one = brim_result_one_sample(r);
  brim_finding *f = brim_finding_add(r, "unstable", (double)NAN);
  if (!f) return;
  f->note = true;
  if (one) {
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
