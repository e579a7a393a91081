// Trials: one setting, warmed up until steady, measured until the interval is tight, state
// restored. Who calls: tune, the public API.
#ifndef BRIM_MEASURE_H_
#define BRIM_MEASURE_H_

#include <signal.h>

#include "record/record.h"
#include "workload/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_trial_options {
  int steps;       // measured steps at most; 0 = 10
  int max_warmup;  // 0 = 20
  double
      ci_target;  // stop early when the 95 % interval of the median is within this share; 0 = off
  double max_seconds;     // per trial, warm-up included; 0 = no limit
  uint64_t memory_limit;  // device bytes the plan must fit in; 0 = what is free
  bool configured;        // measure the workload as it stands, and restore its state afterwards
  const volatile sig_atomic_t *stop;
  void (*on_step)(void *ctx, int step, int total);
  void *ctx;
} brim_trial_options;

// Run one trial. Failures of the setting itself (out of memory, unsupported, ...) are classed in
// out->failure and give BRIM_OK; BRIM_EINTERRUPTED when stopped. `config` may be NULL.
brim_status brim_trial_run(brim_work *work, const brim_config *config, brim_device *device,
                           const brim_setting *setting, const brim_trial_options *options,
                           brim_result *out);
// The same without running: plan only. failure is OOM_PLANNED when it does not fit.
brim_status brim_trial_plan(brim_work *work, const brim_config *config, brim_device *device,
                            const brim_setting *setting, const brim_trial_options *options,
                            brim_result *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MEASURE_H_
