// What follows from samples alone; no file is read here.
#include <math.h>

#include "base/base.h"
#include "monitor/monitor.h"

void brim_host_sample_clear(brim_host_sample *sample) {
  sample->time_ns = 0;
  for (int i = 0; i < BRIM_HOST_METRIC_COUNT; i++) sample->value[i] = NAN;
}

brim_status brim_host_read_sample(const brim_host_provider *provider, brim_host_sample *out) {
  brim_host_sample_clear(out);
  out->time_ns = brim_clock_now().ns;
  return provider->sample(provider->ctx, out);
}

brim_host_usage brim_host_usage_between(const brim_host_sample *start,
                                        const brim_host_sample *end) {
  brim_host_usage u;
  double d[BRIM_HOST_METRIC_COUNT];
  for (int i = 0; i < BRIM_HOST_METRIC_COUNT; i++) d[i] = end->value[i] - start->value[i];
  u.seconds = (double)(end->time_ns - start->time_ns) * 1e-9;
  u.process_cpu_percent = u.seconds > 0 ? 100 * d[BRIM_HOST_PROCESS_CPU_S] / u.seconds : NAN;
  u.system_cpu_percent = d[BRIM_HOST_SYSTEM_TOTAL_S] > 0
                             ? 100 * d[BRIM_HOST_SYSTEM_BUSY_S] / d[BRIM_HOST_SYSTEM_TOTAL_S]
                             : NAN;
  u.others_cpu_percent = NAN;
  // two busy programs on the two CPUs of a job take all of it, however many CPUs the machine has
  bool allowed = d[BRIM_HOST_ALLOWED_TOTAL_S] > 0;
  double total = d[allowed ? BRIM_HOST_ALLOWED_TOTAL_S : BRIM_HOST_SYSTEM_TOTAL_S];
  double busy = d[allowed ? BRIM_HOST_ALLOWED_BUSY_S : BRIM_HOST_SYSTEM_BUSY_S];
  if (total > 0) {
    double others = busy - d[BRIM_HOST_PROCESS_CPU_S];
    u.others_cpu_percent = 100 * (others < 0 ? 0 : others) / total;
  }
  u.throttle_events = d[BRIM_HOST_CPU_THROTTLE_COUNT];
  return u;
}
