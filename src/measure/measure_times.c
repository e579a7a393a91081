// The times of a result and what follows from them: rates, and whether they are steady. One place, so that
// a step that is measured again changes all of them.
#include <math.h>

#include "measure/measure_int.h"

void brim_summary_scale(brim_stats_summary *s, double by) {
  double *const all[] = {&s->min, &s->max, &s->mean, &s->stddev, &s->median, &s->mad,
                         &s->p05, &s->p95, &s->p99,  &s->ci_low, &s->ci_high};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] *= by;
}

// One sample has neither spread nor interval; to call that 0 would be to call it steady.
brim_status brim_times_summarize(const double *ms, size_t n, brim_stats_summary *out) {
  BRIM_TRY(brim_stats_summarize(ms, n, 1, out));
  if (n < 2) out->stddev = out->mad = out->ci_low = out->ci_high = (double)NAN;
  return BRIM_OK;
}

void brim_result_set_rates(brim_result *r, double rows, double epoch_samples) {
  r->samples_per_s = rows / (r->total_ms.median * 1e-3);
  r->samples_per_s_low = rows / (r->total_ms.ci_high * 1e-3);
  r->samples_per_s_high = rows / (r->total_ms.ci_low * 1e-3);
  r->epoch_s = epoch_samples / r->samples_per_s;
  // both: a median absolute deviation alone does not see a second mode below half of the steps
  r->stable = r->total_ms.mad <= 0.10 * r->total_ms.median &&
              r->total_ms.ci_high - r->total_ms.ci_low <= 0.25 * r->total_ms.median;
}

void brim_result_retime(brim_result *r, const brim_stats_summary *total) {
  const double by = total->median / r->total_ms.median;
  const double rows = r->samples_per_s * r->total_ms.median * 1e-3;
  const double epoch_samples = r->epoch_s * r->samples_per_s;
  r->total_ms = *total;
  r->steps = (int)total->n;
  r->quota_cpu_ms *= by;
  r->quota_throttled_ms *= by;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) brim_summary_scale(&r->phase_ms[p], by);
  brim_result_set_rates(r, rows, epoch_samples);
}

void brim_result_set_phase(brim_result *r, brim_phase phase, double ms) {
  brim_stats_summary *s = &r->phase_ms[phase];
  r->phase_used[phase] = ms > 0;
  if (s->median > 0) {
    brim_summary_scale(s, ms / s->median);
    return;
  }
  s->min = s->max = s->mean = s->median = s->p05 = s->p95 = s->p99 = ms;
  s->stddev = s->mad = s->ci_low = s->ci_high = (double)NAN;
}
