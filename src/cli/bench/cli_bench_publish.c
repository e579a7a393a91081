// What a sweep of settings publishes for `brim top` while it measures: which setting, how many are left.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/cli_bench.h"
#include "monitor/monitor_job.h"

enum { PERIOD_NS = 500000000 };

void brim_cli_bench_publish_start(bench *b) {
  brim_job *job = &b->published;
  const brim_device *device = b->job->device;
  if (b->plan_only) return;
  brim_job_init(job);
  snprintf(job->command, sizeof job->command, "bench");
  snprintf(job->workload, sizeof job->workload, "%.31s", b->job->work->table->name);
  if (device) {
    brim_device_spec_text(device, job->device, sizeof job->device);
    snprintf(job->device_id, sizeof job->device_id, "%.63s", device->info.id);
  }
  job->phase = BRIM_JOB_START;
  b->publisher = brim_job_publisher_start(job);
}

void brim_cli_bench_publish_stop(bench *b) {
  brim_job_publisher_stop(b->publisher);
  b->publisher = NULL;
}

// Figures belong to the setting whose name stands beside them: another one begins without.
static void take_name(brim_job *job, const char *title) {
  char name[sizeof job->name];
  snprintf(name, sizeof name, "%.63s", title ? title : "");
  brim_utf8_trim(name);
  if (strcmp(name, job->name) == 0) return;
  memcpy(job->name, name, sizeof job->name);
  job->samples_per_s = (double)NAN;
  job->finding_count = 0;
}

void brim_cli_bench_publish(bench *b, const brim_progress *progress) {
  brim_job *job = &b->published;
  brim_time now = brim_clock_now();
  take_name(job, progress->title);
  job->phase = BRIM_JOB_MEASURE;
  job->eta_s = progress->eta_s;  // its steps are settings, which the title counts
  if (!b->publisher || brim_time_since_ns(b->published_at, now) < PERIOD_NS) return;
  b->published_at = now;
  brim_job_publisher_set(b->publisher, job);
}

void brim_cli_bench_publish_result(bench *b, const brim_result *result) {
  brim_job *job = &b->published;
  job->samples_per_s = result->samples_per_s;
  snprintf(job->unit, sizeof job->unit, "%.23s", brim_result_unit(result));
  job->finding_count = 0;
  for (size_t i = 0; i < result->finding_count && i < BRIM_JOB_FINDINGS; i++) {
    job->findings[job->finding_count++] = result->findings[i];
  }
  brim_job_publisher_set(b->publisher, job);
}
