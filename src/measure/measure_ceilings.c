// The two ceilings of a job: how fast its data can come when nothing computes, and how fast the
// device computes when the data is there. The lower one is what the whole can reach at best.
#include <math.h>

#include "measure/measure_int.h"

// Shorter ones would time the clock and the wait at the end.
#define LEAST_MS 60.0

static bool stopped(const brim_ceilings *how) { return how->stop && *how->stop; }

static double since_ms(brim_time start) {
  return (double)brim_time_since_ns(start, brim_clock_now()) * 1e-6;
}

static brim_status interrupted(void) { return brim_fail(BRIM_EINTERRUPTED, "interrupted"); }

// What the ring holds was loaded while the device computed: it is used up first. Timed are at least
// as many steps as it holds, since they come in bursts of that size.
static brim_status load(const brim_ceilings *how, brim_result *out) {
  const brim_work_loading_table *loading = how->work->table->loading;
  brim_step_info info;
  double most_ms = 1e3 * how->budget_s;
  brim_time begin = brim_clock_now();
  int64_t rows = 0;
  int done = 0;
  for (int i = 0; i < how->ring + 1 && since_ms(begin) < most_ms; i++) {
    if (stopped(how)) return interrupted();
    BRIM_TRY(loading->load_only(how->work->state, &info));
  }
  BRIM_TRY(brim_device_sync(how->device));  // transforms may be the device's
  brim_time start = brim_clock_now();
  while (done == 0 || ((done < how->ring || since_ms(start) < LEAST_MS) &&
                       since_ms(start) < fmax(LEAST_MS, most_ms))) {
    if (stopped(how)) return interrupted();
    BRIM_TRY(loading->load_only(how->work->state, &info));
    rows += info.samples;
    done++;
  }
  BRIM_TRY(brim_device_sync(how->device));
  out->data_samples_per_s = (double)rows / (since_ms(start) * 1e-3);
  return BRIM_OK;
}

// Once to get going: the host's first launches, and on the CPU the batch into the caches.
static brim_status compute(const brim_ceilings *how, brim_result *out) {
  const brim_work_loading_table *loading = how->work->table->loading;
  brim_step_info info;
  double step_ms = fmax(how->step_ms, 1e-3);
  int steps = (int)fmin(1000, ceil(fmin(LEAST_MS, 1e3 * how->budget_s) / step_ms));
  if (steps < 1) steps = 1;
  int first = step_ms < LEAST_MS / 4 ? 2 : 0;
  int64_t ns = 0;
  if (first) BRIM_TRY(loading->compute_only(how->work->state, first, &ns, &info));
  if (stopped(how)) return interrupted();
  BRIM_TRY(loading->compute_only(how->work->state, steps, &ns, &info));
  if (ns > 0) out->compute_samples_per_s = (double)info.samples / ((double)ns * 1e-9);
  return BRIM_OK;
}

//---------------------------------- what was waited for ----------------------------------

static bool computes(int phase) {
  return phase == BRIM_PHASE_FORWARD || phase == BRIM_PHASE_BACKWARD ||
         phase == BRIM_PHASE_OPTIMIZER || phase == BRIM_PHASE_COMPUTE;
}

// The device stood still for `gap` while the host was neither reading nor copying: its data were on
// their way (rows that it fetches itself, copies that ran late). Less than 3 % is the ceiling's noise.
static void wait_for_data(brim_result *result, double gap, double compute) {
  brim_stats_summary *h2d = &result->phase_ms[BRIM_PHASE_H2D];
  if (!(gap > 0.03 * result->total_ms.mean) || !(gap < compute)) return;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (computes(p)) brim_summary_scale(&result->phase_ms[p], 1 - gap / compute);
  }
  double *const places[] = {&h2d->min, &h2d->max, &h2d->mean,   &h2d->median, &h2d->p05,
                            &h2d->p95, &h2d->p99, &h2d->ci_low, &h2d->ci_high};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) *places[i] += gap;
  result->phase_used[BRIM_PHASE_H2D] = true;
}

void brim_ceilings_expose(brim_result *result) {
  double total = result->total_ms.mean, compute = 0, host = 0;
  double rows = result->plan.samples_per_step;  // a short batch takes as long as a full one
  if (!(rows > 0)) rows = result->samples_per_s * result->total_ms.median * 1e-3;
  double device = rows / result->compute_samples_per_s * 1e3;
  // transforms that are a phase are the device's own: never hidden, and not among its time alone
  double own = result->phase_ms[BRIM_PHASE_TRANSFORM].mean;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (p != BRIM_PHASE_TRANSFORM) *(computes(p) ? &compute : &host) += result->phase_ms[p].mean;
  }
  double left = fmax(0, total - device);
  if (isnan(device) || !(compute > 0)) return;
  if (own + host <= left) {
    wait_for_data(result, left - own - host, compute);
    return;
  }
  double shown = fmin(own, left);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    double by = computes(p) ? (total - left) / compute : host > 0 ? (left - shown) / host : 0;
    if (p == BRIM_PHASE_TRANSFORM) by = own > 0 ? shown / own : 0;
    brim_summary_scale(&result->phase_ms[p], by);
  }
}

brim_status brim_ceilings_measure(const brim_ceilings *how, brim_result *out) {
  out->data_samples_per_s = out->compute_samples_per_s = (double)NAN;
  if (!how->work->table->loading) return BRIM_OK;
  BRIM_TRY(compute(how, out));
  return load(how, out);
}
