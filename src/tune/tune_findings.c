// Findings of one trial, each priced in ms per step and with the knob that would help. First those of the
// workload, in seed guide 002's order of reading; then memory, and what makes the figures themselves
// doubtful.
#include <math.h>
#include <string.h>

#include "record/record_findings.h"
#include "tune/tune.h"

static void find_memory(const brim_findings *v) {
  brim_result *r = v->r;
  double need = brim_result_memory(r), share = need / r->free_bytes;
  if (isnan(share) || share < 0.8) return;
  char bytes[32];
  brim_finding *f = brim_finding_add(r, "memory_high", (double)NAN);
  if (!f) return;
  brim_format_bytes((uint64_t)need, bytes);
  snprintf(f->text, sizeof f->text,
           brim_tr("%s are %.0f %% of the memory that is free: another process, or a longer "
                   "sample, ends the run"),
           bytes, 100 * share);
  snprintf(
      f->remedy, sizeof f->remedy, "%s",
      v->r->knob_set && v->r->knob_set->less_memory ? brim_tr(v->r->knob_set->less_memory) : "");
}

//---------------------------------- doubts ----------------------------------

static void find_throttle(const brim_findings *v) {
  brim_result *r = v->r;
  if (!r->throttle[0]) return;
  double lost = r->clock_max_mhz > 0 ? r->total_ms.median * (1 - r->clock_mhz / r->clock_max_mhz)
                                     : (double)NAN;
  brim_finding *f = brim_finding_add(r, r->throttled ? "throttled" : "power_cap", lost);
  if (!f) return;
  if (isnan(lost)) {
    snprintf(f->text, sizeof f->text, brim_tr("the clock was limited: %s"), r->throttle);
  } else {
    snprintf(f->text, sizeof f->text, brim_tr("the clock was limited to %.0f of %.0f MHz: %s"),
             r->clock_mhz, r->clock_max_mhz, r->throttle);
  }
  snprintf(
      f->remedy, sizeof f->remedy, "%s",
      r->throttled
          ? brim_tr("check the cooling and other jobs on the card; measure again when it is cool")
          : brim_tr("as this card is set up; a lower precision does more work per joule"));
}

// By what made it unstable: the spread of its steps, or of its repeats.
static double spread_of(const brim_result *r) {
  double steps =
      fmax(r->total_ms.mad, (r->total_ms.ci_high - r->total_ms.ci_low) / 2) / r->total_ms.median;
  double repeats = (r->samples_per_s_high - r->samples_per_s_low) / 2 / r->samples_per_s;
  return fmax(steps, repeats);
}

static void find_noise(const brim_findings *v) {
  brim_result *r = v->r;
  if (r->stable) return;
  bool one = brim_result_one_sample(r);
  brim_finding *f =
      brim_finding_add(r, "unstable", one ? (double)NAN : spread_of(r) * r->total_ms.median);
  if (!f) return;
  if (one) {
    snprintf(f->text, sizeof f->text, "%s",
             brim_tr("one sample is not enough to show whether the times are stable"));
    snprintf(f->remedy, sizeof f->remedy, "%s", brim_tr("more --steps, or --repeats 2 or more"));
    return;
  }
  snprintf(f->text, sizeof f->text,
           brim_tr("step times vary by %.0f %% around the median; something else uses the machine"),
           100 * spread_of(r));
  snprintf(f->remedy, sizeof f->remedy, "%s",
           brim_tr("measure again on a quiet machine, or with more --steps"));
}

static const brim_work_findings_table *findings_of(const brim_result *r) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (strcmp(table->name, r->workload) == 0) return table->findings;
  }
  return NULL;
}

void brim_diagnose(brim_result *results, size_t count, size_t index) {
  const brim_findings v = {&results[index], results, count};
  if (!brim_result_ran(v.r) || !(v.r->total_ms.median > 0)) return;
  v.r->finding_count = 0;
  const brim_work_findings_table *own = findings_of(v.r);
  if (own) own->find(&v);
  find_memory(&v);
  find_throttle(&v);
  find_noise(&v);
}
