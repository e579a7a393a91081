// What the GPU's sampler saw during a trial, as figures of its result.
#include <math.h>

#include "measure/measure_int.h"

// A power cap holds the clock of every heavy trial down, the same for all; the others come and go.
static uint32_t passing(uint32_t bits) {
  return bits & ~(1u << BRIM_THROTTLE_BIT_POWER_CAP | 1u << BRIM_THROTTLE_BIT_APPLICATION);
}

void brim_usage_take(const brim_gpu_usage *usage, double rows, brim_result *out) {
  out->gpu_percent = usage->gpu_percent;
  out->sm_percent = usage->sm_percent;
  out->occupancy_percent = usage->occupancy_percent;
  out->tensor_percent = usage->tensor_percent;
  out->dram_percent = usage->dram_percent;
  out->power_w = usage->power_w;
  out->power_limit_w = usage->power_limit_w;
  out->clock_mhz = usage->clock_mhz;
  out->clock_max_mhz = usage->clock_max_mhz;
  out->temperature_c = usage->temperature_c;
  brim_throttle_text(usage->throttle, out->throttle, sizeof out->throttle);
  out->throttled = passing(usage->throttle) != 0;
  if (rows > 0) out->joules_per_sample = usage->energy_j / rows;
}
