// After the sweep, on a GPU: a few steps of the settings that are named, under the GPU's own records.
#include "cli/bench/cli_bench.h"

static bool has_run(const bench *b, int index) {
  return index >= 0 && brim_result_ran(&b->results[index]);
}

static bool trace_one(bench *b, brim_gpu_trace *trace, int index) {
  const brim_cli_job *job = b->job;
  brim_setting setting = b->settings.setting[index];
  if (brim_trial_trace(job->work, job->device, &setting, trace, &b->results[index])) {
    brim_log_info("bench", "a setting could not be traced: %s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  return true;
}

bool brim_cli_bench_trace(bench *b) {
  brim_gpu_trace *trace = NULL;
  if (!b->job->memory.uuid[0] || !b->job->work) return false;
  if (!has_run(b, b->picks.recommended)) return false;
  if (brim_gpu_trace_open(&trace)) {
    brim_log_info("bench", "the GPU's own records are not read: %s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  bool traced = trace_one(b, trace, b->picks.recommended);
  if (b->picks.highest != b->picks.recommended) {
    traced = trace_one(b, trace, b->picks.highest) || traced;
  }
  brim_gpu_trace_close(trace);
  return traced;
}
