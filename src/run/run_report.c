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
  memset(&l->log_returns, 0, sizeof l->log_returns);
  l->log_loss_sum = l->log_correct_sum = l->log_rows_sum = 0;
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
  if (m.samples > 0) {
    double rows = (double)m.samples;
    double correct = isnan(m.accuracy) ? 0 : m.accuracy * rows;
    l->loss_sum += m.loss * rows;
    l->correct_sum += correct;
    l->rows_sum += rows;
    l->log_loss_sum += m.loss * rows;
    l->log_correct_sum += correct;
    l->log_rows_sum += rows;
  }
  l->log_bad += m.bad;
  brim_returns_add(&l->returns, &m.returns);
  brim_returns_add(&l->log_returns, &m.returns);
  // a read that finds nothing is no step
  if (m.samples > 0 && m.skipped == l->result->skipped_steps) l->updated = l->step;
  l->update_norm = m.update_norm;
  l->policy_norm = m.policy_norm;
  l->sigma = m.sigma;
  l->grad_norm = m.grad_norm;
  l->loss_scale = m.loss_scale;
  l->result->bad_samples += m.bad;
  l->result->skipped_steps = m.skipped;
  l->result->scaled = m.loss_scale > 1;
  brim_run_reading reading = {.epoch = l->epoch + 1,
                              .step = l->step,
                              .lr = l->last_lr,
                              .metrics = &m,
                              .unlogged = l->result->partial,
                              .policy = l->info.policy};
  return brim_run_watch_take(&l->watch, &reading);
}

double brim_run_epoch_loss(const brim_run_loop *l) {
  return l->rows_sum > 0 ? l->loss_sum / l->rows_sum : (double)NAN;
}

double brim_run_epoch_accuracy(const brim_run_loop *l) {
  return l->rows_sum > 0 && l->info.classes > 0 ? l->correct_sum / l->rows_sum : (double)NAN;
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
  p.done = in_epoch;
  p.total = l->info.steps_per_epoch;
  p.elapsed_s = (double)brim_time_since_ns(l->epoch_start, brim_clock_now()) * 1e-9;
  p.rate = ns > 0 ? (double)l->progress_samples / ((double)ns * 1e-9) : (double)NAN;
  double step_s = (double)ns * 1e-9 / (double)l->progress_steps;
  int64_t last = l->info.steps > 0 ? l->info.steps : l->epochs * l->info.steps_per_epoch;
  p.eta_s = step_s * (double)(last - l->step);
  p.unit = l->info.unit;
  p.loss = brim_run_epoch_loss(l);
  p.accuracy = brim_run_epoch_accuracy(l);
  if (l->info.policy) {
    p.policy = true;
    p.reward = brim_returns_mean(&l->returns);
    p.spread = brim_returns_spread(&l->returns);
    p.falls = brim_returns_falls(&l->returns);
    p.baseline = brim_returns_mean(&l->info.training_baseline);
  }
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
  s.policy = l->info.policy;
  s.returns = l->log_returns;
  s.update_norm = l->update_norm;
  s.policy_norm = l->policy_norm;
  s.sigma = l->sigma;
  s.epoch = l->epoch + 1;
  s.step = l->step;
  s.loss = l->log_rows_sum > 0 ? l->log_loss_sum / l->log_rows_sum : (double)NAN;
  s.accuracy = l->log_rows_sum > 0 && l->info.classes > 0 ? l->log_correct_sum / l->log_rows_sum
                                                          : (double)NAN;
  s.lr = l->last_lr;
  s.grad_norm = l->grad_norm;
  s.data_s = (double)data_ns * 1e-9 / (double)l->log_steps;
  s.compute_s = seconds / (double)l->log_steps - s.data_s;
  s.loss_scale = l->loss_scale;
  s.samples_per_s = seconds > 0 ? (double)l->log_samples / seconds : (double)NAN;
  brim_run_restart_interval(l);
  if (l->options->on_steps) l->options->on_steps(l->options->ctx, &s);
  return brim_run_log_steps(&l->log, &s);
}

void brim_run_fill_report(const brim_run_loop *l, brim_epoch_report *r) {
  memset(r, 0, sizeof *r);
  r->epoch = l->epoch + 1;
  r->epochs = l->epochs;
  r->train_loss = brim_run_epoch_loss(l);
  r->train_accuracy = brim_run_epoch_accuracy(l);
  r->eval_loss = r->eval_accuracy = (double)NAN;
  r->gpu_percent = r->sm_percent = (double)NAN;
  const brim_run_options *o = l->options;
  if (o->usage) o->usage(o->ctx, &r->gpu_percent, &r->sm_percent);
  r->lr = l->last_lr;
  // of an epoch whose steps another process made nobody knows
  bool made = l->epoch_samples > 0 && l->epoch_ns > 0;
  r->seconds = made ? (double)l->epoch_ns * 1e-9 : (double)NAN;
  r->samples_per_s = made ? (double)l->epoch_samples / r->seconds : (double)NAN;
  if (!l->info.policy) return;
  r->policy = true;
  r->metric = "return";
  r->train_accuracy = brim_returns_mean(&l->returns);
  r->returns = l->returns;
  r->baseline = l->info.baseline;
  r->update_norm = l->update_norm;
  r->policy_norm = l->policy_norm;
  r->sigma = l->sigma;
}

brim_status brim_run_tell_lost(const brim_run_loop *l, int64_t epoch) {
  if (l->info.policy) {
    return brim_fail(BRIM_ESTATE,
                     "lost in epoch %" PRId64
                     ": the returns are not finite or all equal; try a smaller ars.step_size (now "
                     "%g) or another ars.noise_std, from an earlier checkpoint",
                     epoch, l->last_lr);
  }
  return brim_fail(BRIM_ESTATE,
                   "diverged in epoch %" PRId64
                   ": losses or gradients are no longer finite; look for NaN in the data with "
                   "`brim data verify %.200s`, or try a lower learning rate (now %g) or "
                   "training.clip_norm from an earlier checkpoint",
                   epoch, brim_run_data_path(l->config), l->last_lr);
}
