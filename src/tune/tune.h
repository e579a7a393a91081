// Sweeps and what follows from them: which settings to try, findings, the recommendation.
// Who calls: the bench command.
#ifndef BRIM_TUNE_H_
#define BRIM_TUNE_H_

#include "measure/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_sweep_axis {
  int knob;  // index into the workload's knobs
  const int64_t *values;
  size_t count;
} brim_sweep_axis;

typedef struct brim_sweep_options {
  const brim_sweep_axis *axes;  // last fastest
  size_t axis_count;
  brim_trial_options trial;  // its on_step is not used; see on_progress
  bool plan_only;
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_result)(void *ctx, const brim_result *result);
  void *ctx;
} brim_sweep_options;

// Every combination in turn. *out is an array from brim_alloc (deinit each, brim_free), also when
// BRIM_EINTERRUPTED: then it holds what was done.
brim_status brim_sweep_run(brim_work *work, const brim_config *config, brim_device *device,
                           const brim_sweep_options *options, brim_result **out, size_t *count);

// Indices into the results; -1 = none. Rules:
//   highest     most samples/s
//   efficient   most samples/s per GB among those with >= 90 % of the highest
//   recommended smallest memory among those within 3 % of the best whose planned memory is under
//               80 % of what is free; ties to fewer workers; never an unstable trial
typedef struct brim_recommendation {
  int highest, efficient, recommended;
} brim_recommendation;
void brim_recommend(const brim_result *results, size_t count, brim_recommendation *out);

// Findings of one result (waited I/O, small batch, ...), written into it.
void brim_diagnose(brim_result *result);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_TUNE_H_
