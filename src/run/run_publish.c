// What a run publishes while it runs (monitor_job.h): phase, epoch, step, throughput.
// It costs a step one look at the clock; twice a second a copy. Nothing here can fail a run.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run/run_loop.h"

enum { PERIOD_NS = 500000000 };

// A setting's name, or that of the folder.
static const char *name_of(const brim_run_loop *l) {
  const char *name = brim_config_string(l->config, "name");
  return name && name[0] ? name : brim_fs_basename(l->options->output_dir);
}

void brim_run_publish_start(brim_run_loop *l) {
  brim_job *job = &l->job;
  if (!l->options->publish) return;
  brim_job_init(job);
  snprintf(job->command, sizeof job->command, "%.15s", l->options->publish);
  snprintf(job->workload, sizeof job->workload, "%.31s", l->work->table->name);
  snprintf(job->name, sizeof job->name, "%.63s", name_of(l));
  snprintf(job->folder, sizeof job->folder, "%.255s", l->options->output_dir);
  brim_utf8_trim(job->name);
  brim_utf8_trim(job->folder);
  const brim_device *device = l->work->context.device;
  if (device) {
    brim_device_spec_text(device, job->device, sizeof job->device);
    snprintf(job->device_id, sizeof job->device_id, "%.63s", device->info.id);
  }
  if (l->info.unit) snprintf(job->unit, sizeof job->unit, "%.23s", l->info.unit);
  job->phase = BRIM_JOB_START;
  l->publisher = brim_job_publisher_start(job);
  l->publish_time = brim_clock_now();
  l->watch.job = job;
}

void brim_run_publish_stop(brim_run_loop *l) {
  brim_job_publisher_stop(l->publisher);
  l->publisher = NULL;
}

// The first row that has a value while it trains. One that was shown keeps its last value where an epoch
// has none yet.
static void put_metric(const brim_run_loop *l, brim_job *job) {
  double values[BRIM_METRIC_MAX];
  const brim_metric_set *set = l->work->metrics;
  brim_run_epoch_values(l, values);
  for (size_t i = 0; i < set->count; i++) {
    if (!(set->rows[i].stages & BRIM_METRIC_AT(BRIM_METRIC_STEPS))) continue;
    if (!isfinite(values[i]) && strcmp(set->rows[i].key, job->metric_key) == 0) return;
    if (!isfinite(values[i])) continue;
    snprintf(job->metric_key, sizeof job->metric_key, "%s", set->rows[i].key);
    job->metric = values[i];
    return;
  }
}

static void put_place(const brim_run_loop *l, brim_job *job) {
  int64_t last = l->info.steps > 0 ? l->info.steps : l->epochs * l->info.steps_per_epoch;
  if (l->limit > 0 && l->limit < last) last = l->limit;
  job->epoch = l->epoch + 1 < l->epochs ? l->epoch + 1 : l->epochs;
  job->epochs = l->epochs;
  job->step = l->step;
  job->steps = last > 0 ? last : -1;
}

void brim_run_publish_phase(brim_run_loop *l, brim_job_phase phase) {
  if (!l->publisher) return;
  l->job.phase = phase;
  put_place(l, &l->job);
  brim_job_publisher_set(l->publisher, &l->job);
}

void brim_run_publish_step(brim_run_loop *l) {
  if (!l->publisher) return;
  brim_time now = brim_clock_now();
  int64_t ns = brim_time_since_ns(l->publish_time, now);
  if (ns < PERIOD_NS) return;
  brim_job *job = &l->job;
  double seconds = l->train_seconds - l->publish_seconds;  // evaluations do not count
  int64_t steps = l->step - l->publish_step;
  if (steps <= 0 || !(seconds > 0)) return;
  put_place(l, job);
  put_metric(l, job);
  job->phase = BRIM_JOB_TRAIN;
  job->samples_per_s = (double)(l->train_samples - l->publish_samples) / seconds;
  double step_s = (double)ns * 1e-9 / (double)steps;
  job->eta_s = job->steps >= l->step ? step_s * (double)(job->steps - l->step) : (double)NAN;
  brim_job_publisher_set(l->publisher, job);
  l->publish_time = now;
  l->publish_seconds = l->train_seconds;
  l->publish_samples = l->train_samples;
  l->publish_step = l->step;
}
