// What the parts of a profile's run share: stages, and how long each may take.
#include <math.h>

#include "measure/measure_profile_gpu.h"

enum { USUAL_STEPS = 20, LEAST_STEPS = 3 };
#define USUAL_SECONDS 10.0

brim_status brim_profiler_stage(const brim_profiler *p, const char *what) {
  if (p->options->stop && *p->options->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
  if (p->options->on_stage) p->options->on_stage(p->options->ctx, what);
  return BRIM_OK;
}

double brim_profiler_seconds(const brim_profiler *p) {
  return p->options->max_seconds > 0 ? p->options->max_seconds : USUAL_SECONDS;
}

int brim_profiler_steps(const brim_profiler *p, double share) {
  int most = p->options->steps > 0 ? p->options->steps : USUAL_STEPS;
  double step_s = p->out->result.total_ms.median * 1e-3;
  double fit = floor(share * brim_profiler_seconds(p) / fmax(step_s, 1e-9));
  return (int)fmin(most, fmax(LEAST_STEPS < most ? LEAST_STEPS : most, fit));
}

void brim_profiler_take_exchange(const brim_profiler *p, const brim_comm_stats *before, int steps) {
  brim_profile *out = p->out;
  brim_comm_stats now;
  if (out->ranks == 0 || !brim_device_exchange_stats(p->device, &now)) return;
  out->exchange_ms = (double)(now.busy_ns - before->busy_ns) * 1e-6 / steps;
  out->exchange_bytes = (double)(now.bytes - before->bytes) / steps;
  if (!p->device->info.host_memory) return;  // a GPU is not waited for by the thread that asks
  out->exchange_exposed_ms = (double)(now.waited_ns - before->waited_ns) * 1e-6 / steps;
  // until a thread that waited runs again is part of an exchange
  out->exchange_ms = fmax(out->exchange_ms, out->exchange_exposed_ms);
}
