// One setting under the GPU's own records: how long the device was busy in a step, with how many
// kernels. Apart from the trials, whose times would suffer.
#include <math.h>

#include "measure/measure_int.h"

enum { WARM_STEPS = 6, LEAST_STEPS = 5, MOST_STEPS = 200 };
#define TRACED_MS 100.0

static brim_status steps(brim_work *work, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    BRIM_TRY(work->table->step(work->state, NULL, &info));
  }
  return BRIM_OK;
}

brim_status brim_trial_trace(brim_work *work, brim_device *device, const brim_setting *setting,
                             brim_gpu_trace *trace, brim_result *result) {
  double per_step = result->total_ms.median;
  int count = (int)fmin(MOST_STEPS, fmax(LEAST_STEPS, ceil(TRACED_MS / fmax(per_step, 1e-3))));
  brim_gpu_trace_sum sum;
  BRIM_TRY(work->table->configure(work->state, setting));
  BRIM_TRY(steps(work, WARM_STEPS));
  BRIM_TRY(brim_device_sync(device));
  BRIM_TRY(brim_gpu_trace_start(trace));
  brim_status status = steps(work, count);
  brim_status synced = brim_device_sync(device);
  brim_status stopped = brim_gpu_trace_stop(trace, &sum);
  BRIM_TRY(status);
  BRIM_TRY(synced);
  BRIM_TRY(stopped);
  if (sum.dropped > 0) {
    return brim_fail(BRIM_ELIMIT, "the trace lost %lld records", (long long)sum.dropped);
  }
  result->gpu_busy_ms = sum.busy_ms / count;
  result->gpu_kernel_ms = sum.kernel_ms / count;
  result->gpu_copy_ms = (sum.h2d_ms + sum.d2h_ms + sum.d2d_ms) / count;
  result->kernels = (double)sum.kernels / count;
  return BRIM_OK;
}
