// Inside the profile of a workload: one run of it, on whatever device. Callers: measure_profile*.c.
#ifndef BRIM_MEASURE_PROFILE_GPU_H_
#define BRIM_MEASURE_PROFILE_GPU_H_

#include "measure/measure_profile_int.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_profiler {
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_setting *setting;
  const brim_profile_options *options;
  brim_profile *out;
  brim_trace *trace;
} brim_profiler;

// BRIM_EINTERRUPTED when the caller stops; otherwise `on_stage` is called.
brim_status brim_profiler_stage(const brim_profiler *p, const char *what);
// Of measuring the step, and again of tracing it.
double brim_profiler_seconds(const brim_profiler *p);
// What the ranks exchanged through the host since `before`, over so many steps.
void brim_profiler_take_exchange(const brim_profiler *p, const brim_comm_stats *before, int steps);
// How many steps to trace: as asked for, fewer where they would take more than `share` of the time.
int brim_profiler_steps(const brim_profiler *p, double share);
// The traced window of a GPU, by CUPTI or by events.
brim_status brim_profiler_trace_gpu(brim_profiler *p);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MEASURE_PROFILE_GPU_H_
