// What a run tells of itself on the way: progress, the figures of an interval, an epoch's report.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "run/run_loop.h"

void brim_run_restart_clock(brim_run_loop *l) {
  l->log_start = brim_clock_now();
  l->log_samples = l->log_steps = 0;
}

void brim_run_restart_interval(brim_run_loop *l) {
  brim_run_restart_clock(l);
  l->log_bad = 0;
  memset(l->log_sums, 0, sizeof l->log_sums);
}

int64_t brim_run_count_time(brim_run_loop *l, brim_time start) {
  int64_t ns = brim_time_since_ns(start, brim_clock_now());
  l->epoch_ns += ns;
  l->train_seconds += (double)ns * 1e-9;
  return ns;
}

// Steps are only enqueued: what the device has left of them is waited for here, and is their time.
brim_status brim_run_take_metrics(brim_run_loop *l) {
  brim_work_metrics m;
  brim_time start = brim_clock_now();
  BRIM_TRY(l->work->table->metrics(l->work->state, true, &m));
  int64_t ns = brim_run_count_time(l, start);
  if (l->timer.used[BRIM_PHASE_COMPUTE]) l->timer.ns[BRIM_PHASE_COMPUTE] += ns;
  const size_t count = l->work->table->sums->count;
  for (size_t i = 0; i < count; i++) l->sums[i] += m.sums[i];
  for (size_t i = 0; i < count; i++) l->log_sums[i] += m.sums[i];
  memcpy(l->last, m.values, sizeof l->last);
  l->log_bad += m.bad;
  // a read that finds nothing is no step
  if (m.samples > 0 && m.skipped == l->result->skipped_steps) l->updated = l->step;
  l->searching = m.searching;
  l->result->bad_samples += m.bad;
  if (!m.searching && m.skipped > l->result->skipped_steps) {
    l->result->lost_steps += m.skipped - l->result->skipped_steps;
  }
  l->result->skipped_steps = m.skipped;
  const brim_work_moment at = {
      .epoch = l->epoch + 1, .step = l->step, .lr = l->last_lr, .metrics = &m};
  return brim_run_watch_take(&l->watch, &at, l->result->partial);
}

static void values_of(const brim_run_loop *l, const double *sums, double *values) {
  memcpy(values, l->last, sizeof l->last);
  l->work->table->figures(l->work->state, sums, values);
}

void brim_run_epoch_values(const brim_run_loop *l, double values[BRIM_METRIC_MAX]) {
  values_of(l, l->sums, values);
}

// Rows that are the throughput in other units: of the same time as it.
static void put_rates(const brim_run_loop *l, double samples_per_s, double *values) {
  for (size_t i = 0; i < l->info.rate_count; i++) {
    const brim_work_rate *rate = &l->info.rates[i];
    if (rate->row > 0) values[rate->row - 1] = samples_per_s * rate->per_sample;
  }
}

void brim_run_show_progress(brim_run_loop *l, bool force) {
  if (!l->options->on_progress || l->progress_steps == 0) return;
  int64_t ns = brim_time_since_ns(l->progress_start, brim_clock_now());
  if (!force && ns < 100000000) return;
  char title[64];
  snprintf(title, sizeof title, "epoch %" PRId64 "/%" PRId64, l->epoch + 1, l->epochs);
  brim_progress p;
  memset(&p, 0, sizeof p);
  int64_t in_epoch = l->step - l->epoch * l->info.steps_per_epoch;
  p.title = title;
  p.epoch = l->epoch + 1;
  p.epochs = l->epochs;
  p.done = in_epoch;
  p.total = l->info.steps_per_epoch;
  p.elapsed_s = (double)brim_time_since_ns(l->epoch_start, brim_clock_now()) * 1e-9;
  p.rate = ns > 0 ? (double)l->progress_samples / ((double)ns * 1e-9) : (double)NAN;
  double step_s = (double)ns * 1e-9 / (double)l->progress_steps;
  int64_t last = l->info.steps > 0 ? l->info.steps : l->epochs * l->info.steps_per_epoch;
  p.eta_s = step_s * (double)(last - l->step);
  p.unit = l->info.unit;
  double values[BRIM_METRIC_MAX];
  brim_run_epoch_values(l, values);
  p.metrics = l->work->metrics;
  p.values = values;
  p.baseline = l->info.has_baseline ? l->info.training_baseline : NULL;
  brim_phase_timer_shares(&l->timer, ns, p.phase_share);
  l->options->on_progress(l->options->ctx, &p);
  brim_phase_timer_reset(&l->timer);
  l->progress_start = brim_clock_now();
  l->progress_samples = l->progress_steps = 0;
}

brim_status brim_run_tell_steps(brim_run_loop *l, int64_t data_ns) {
  BRIM_TRY(brim_run_take_metrics(l));
  double seconds = (double)brim_time_since_ns(l->log_start, brim_clock_now()) * 1e-9;
  brim_run_steps s;
  memset(&s, 0, sizeof s);
  s.metrics = l->work->metrics;
  values_of(l, l->log_sums, s.values);
  s.loads = l->work->table->loading != NULL;
  s.epoch = l->epoch + 1;
  s.step = l->step;
  s.lr = l->last_lr;
  s.data_s = (double)data_ns * 1e-9 / (double)l->log_steps;
  s.compute_s = seconds / (double)l->log_steps - s.data_s;
  s.samples_per_s = seconds > 0 ? (double)l->log_samples / seconds : (double)NAN;
  put_rates(l, s.samples_per_s, s.values);
  brim_run_restart_interval(l);
  if (l->options->on_steps) l->options->on_steps(l->options->ctx, &s);
  brim_run_publish_waits(l, &s);
  return brim_run_log_steps(&l->log, &s);
}

void brim_run_fill_report(const brim_run_loop *l, brim_epoch_report *r) {
  memset(r, 0, sizeof *r);
  r->epoch = l->epoch + 1;
  r->epochs = l->epochs;
  r->metrics = l->work->metrics;
  brim_run_epoch_values(l, r->train);
  brim_metric_unknown(r->eval);
  memcpy(r->baseline, l->info.baseline, sizeof r->baseline);
  if (!l->info.has_baseline) brim_metric_unknown(r->baseline);
  r->watches_gpu = l->info.watches_gpu;
  r->gpu_percent = r->sm_percent = (double)NAN;
  const brim_run_options *o = l->options;
  if (o->usage) o->usage(o->ctx, &r->gpu_percent, &r->sm_percent);
  r->lr = l->last_lr;
  // of an epoch whose steps another process made is unknown
  bool made = l->epoch_samples > 0 && l->epoch_ns > 0;
  r->seconds = made ? (double)l->epoch_ns * 1e-9 : (double)NAN;
  r->samples_per_s = made ? (double)l->epoch_samples / r->seconds : (double)NAN;
  put_rates(l, r->samples_per_s, r->train);
}

brim_status brim_run_tell_lost(const brim_run_loop *l, int64_t epoch) {
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  l->result->diverged = true;
  if (d && d->lost) return d->lost(l->work->state, epoch, l->last_lr);
  return brim_fail(BRIM_ESTATE, "training diverged in epoch %" PRId64, epoch);
}
