// What a trial costs beside its phases: the process's CPU time, what a CPU quota held back, and the
// loader's threads by transform. Counters are read before and after the measured steps.
#include <math.h>
#include <string.h>

#include "measure/measure_int.h"

// The kernel counts in hundredths of a second: others' share of a shorter time says nothing.
#define LEAST_SECONDS 0.2

void brim_outside_read(const brim_work *work, brim_outside *out) {
  brim_host_provider host = brim_host_provider_system("");
  memset(out, 0, sizeof *out);
  // a machine that tells nothing leaves its columns unknown; the trial continues
  brim_host_sample_clear(&out->host);
  brim_host_read_sample(&host, &out->host);
  out->quota = brim_cpu_read_stat(brim_cpu_root());
  if (work->table->loading) work->table->loading->stats(work->state, &out->loading);
}

// Of the loader's threads, for the samples that they prepared meanwhile. A few of those are of later
// steps: the time is scaled to the samples of one.
void brim_outside_stages(const brim_work_loading *a, const brim_work_loading *b, double rows,
                         brim_result *r) {
  double samples = (double)(b->samples - a->samples);
  r->stage_count = 0;
  if (!(samples > 0) || a->stage_count != b->stage_count) return;
  for (size_t i = 0; i < b->stage_count && i < BRIM_RESULT_MAX_STAGES; i++) {
    brim_result_stage *stage = &r->stages[r->stage_count++];
    snprintf(stage->name, sizeof stage->name, "%s", b->stage[i]);
    stage->ms = (double)(b->stage_ns[i] - a->stage_ns[i]) * 1e-6 * rows / samples;
  }
}

// CPU time is the group's where it tells, else the process's.
static void take_quota(const brim_outside *before, const brim_outside *after, double steps,
                       brim_result *r) {
  double quota = brim_cpu_quota(brim_cpu_root());
  double used = after->quota.used_s - before->quota.used_s;
  if (isnan(used)) {
    used = after->host.value[BRIM_HOST_PROCESS_CPU_S] - before->host.value[BRIM_HOST_PROCESS_CPU_S];
  }
  r->quota_cpus = quota > 0 ? quota : (double)NAN;
  r->quota_cores = brim_cpu_cores();
  r->quota_cpu_ms = 1e3 * used / steps;
  r->quota_throttled_ms = 1e3 * (after->quota.throttled_s - before->quota.throttled_s) / steps;
}

void brim_outside_take(const brim_outside *before, const brim_outside *after, double rows,
                       brim_result *r) {
  brim_host_usage usage = brim_host_usage_between(&before->host, &after->host);
  double quota = brim_cpu_quota(brim_cpu_root());
  double cpus = quota > 0 && quota < r->cores ? quota : r->cores;
  if (cpus > 0) r->cpu_percent = usage.process_cpu_percent / cpus;
  if (usage.seconds >= LEAST_SECONDS) r->others_cpu_percent = usage.others_cpu_percent;
  r->peak_rss_bytes = after->host.value[BRIM_HOST_PROCESS_PEAK_RSS];
  take_quota(before, after, r->steps, r);
  brim_outside_stages(&before->loading, &after->loading, rows, r);
}
