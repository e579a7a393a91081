// Readings of a GPU added up over an interval: pure arithmetic, no NVML. The sampler calls it.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/monitor_int.h"

// NVML's utilisation is the share of the driver's last period in which a kernel ran; a period is
// between a sixth of a second and a second, by product. A reading sooner than that after the start
// is about the time before it.
static const int64_t UTILISATION_WINDOW_NS = 1000000000 / 6;
// Power by the energy counter when the moments of its steps are known to a tenth of the time
// between them.
enum { EDGE_SHARE = 10 };
enum { THROTTLE_SHARE = 10 };  // a tenth of the readings

//---------------------------------- why a clock is held down ----------------------------------

// In English whatever the language: it stands in records.
void brim_throttle_text(uint32_t bits, char *out, size_t size) {
  static const char *const texts[BRIM_THROTTLE_COUNT] = {
#define X(id, text) text,
      BRIM_THROTTLE_MAP(X)
#undef X
  };
  size_t used = 0;
  if (size > 0) out[0] = '\0';
  for (int i = 0; i < BRIM_THROTTLE_COUNT; i++) {
    if (!(bits >> i & 1u) || used >= size) continue;
    int n = snprintf(out + used, size - used, "%s%s", used ? ", " : "", texts[i]);
    used += n > 0 ? (size_t)n : 0;
  }
}

uint32_t brim_throttle_bits(unsigned long long reasons) {
  const unsigned long long heat = BRIM_NVML_REASON_SW_THERMAL | BRIM_NVML_REASON_HW_THERMAL;
  const unsigned long long named = BRIM_NVML_REASON_HW_THERMAL | BRIM_NVML_REASON_HW_POWER_BRAKE;
  uint32_t bits = 0;
  if (reasons & BRIM_NVML_REASON_SW_POWER_CAP) bits |= 1u << BRIM_THROTTLE_BIT_POWER_CAP;
  if (reasons & BRIM_NVML_REASON_HW_POWER_BRAKE) bits |= 1u << BRIM_THROTTLE_BIT_POWER_BRAKE;
  if (reasons & heat) bits |= 1u << BRIM_THROTTLE_BIT_THERMAL;
  // the general bit stands beside each of its causes; alone it is a cause that has no name
  if ((reasons & BRIM_NVML_REASON_HW_SLOWDOWN) && !(reasons & named)) {
    bits |= 1u << BRIM_THROTTLE_BIT_HARDWARE;
  }
  if (reasons & BRIM_NVML_REASON_APPLICATION_CLOCKS) bits |= 1u << BRIM_THROTTLE_BIT_APPLICATION;
  return bits;
}

//---------------------------------- adding up ----------------------------------

void brim_gpu_reading_clear(brim_gpu_reading *reading) {
  const double unknown = (double)NAN;
  *reading = (brim_gpu_reading){.gpu_percent = unknown,
                                .power_w = unknown,
                                .energy_j = unknown,
                                .clock_mhz = unknown,
                                .temperature_c = unknown};
}

void brim_gpu_tally_start(brim_gpu_tally *tally, const brim_gpu_reading *before) {
  memset(tally, 0, sizeof *tally);
  tally->start_ns = before->time_ns;
  tally->temperature_high = (double)NAN;
  tally->energy_known = !isnan(before->energy_j);
  tally->energy_time_ns = before->time_ns;
  tally->energy_j = before->energy_j;
}

// The counter is in millijoules but moves only every 10 to 100 ms (about 100 on a Hopper), so the
// difference between two readings is wrong by up to two steps: much, in an interval of 300 ms. From
// step to step it is exact; what remains is when exactly a step was.
static void add_energy(brim_gpu_tally *tally, const brim_gpu_reading *reading) {
  if (isnan(reading->energy_j)) return;
  if (tally->energy_known && reading->energy_j > tally->energy_j) {
    brim_gpu_edge *edge = tally->first.seen ? &tally->last : &tally->first;
    *edge = (brim_gpu_edge){.seen = true,
                            .time_ns = reading->time_ns,
                            .doubt_ns = reading->time_ns - tally->energy_time_ns,
                            .energy_j = reading->energy_j};
  }
  if (tally->energy_known && reading->energy_j < tally->energy_j) tally->energy_fell = true;
  tally->energy_known = true;
  tally->energy_time_ns = reading->time_ns;
  tally->energy_j = reading->energy_j;
}

static void add_clock(brim_gpu_tally *tally, const brim_gpu_reading *reading) {
  // an idle GPU's clock says nothing about the speed at which it works
  if (isnan(reading->clock_mhz) || reading->idle) return;
  double bin = fmin(fmax(reading->clock_mhz, 0), BRIM_GPU_CLOCK_BINS - 1);
  tally->clock_bins[(int)bin]++;
  tally->clock_count++;
}

void brim_gpu_tally_add(brim_gpu_tally *tally, const brim_gpu_reading *reading) {
  tally->readings++;
  bool own = reading->time_ns - tally->start_ns >= UTILISATION_WINDOW_NS;
  if (own && !isnan(reading->gpu_percent)) {
    tally->gpu_sum += reading->gpu_percent;
    tally->gpu_count++;
  }
  if (!isnan(reading->power_w)) {
    tally->power_sum += reading->power_w;
    tally->power_count++;
  }
  tally->temperature_high = fmax(tally->temperature_high, reading->temperature_c);  // NaN gives way
  if (reading->reasons_known) {
    tally->reasons_count++;
    for (int i = 0; i < BRIM_THROTTLE_COUNT; i++) {
      tally->throttle_count[i] += (int)(reading->throttle >> i & 1u);
    }
  }
  add_energy(tally, reading);
  add_clock(tally, reading);
}

//---------------------------------- what it was ----------------------------------

static double mean(double sum, int count) { return count > 0 ? sum / count : (double)NAN; }

// The clock that `rank` of the readings are below; the lowest for 0.
static double clock_at(const brim_gpu_tally *tally, uint32_t rank) {
  uint32_t below = 0;
  for (int i = 0; i < BRIM_GPU_CLOCK_BINS; i++) {
    below += tally->clock_bins[i];
    if (below > rank) return i;
  }
  return (double)NAN;
}

// The driver's power reading is itself the mean of a second on most cards since Ampere: steady, but
// late. The energy counter is right about the interval once that is several of its steps long.
static double power(const brim_gpu_tally *tally) {
  const brim_gpu_edge *first = &tally->first, *last = &tally->last;
  if (first->seen && last->seen && !tally->energy_fell) {
    int64_t span = last->time_ns - first->time_ns;
    int64_t doubt = first->doubt_ns > last->doubt_ns ? first->doubt_ns : last->doubt_ns;
    if (span > 0 && span / EDGE_SHARE >= doubt) {
      return (last->energy_j - first->energy_j) / ((double)span * 1e-9);
    }
  }
  return mean(tally->power_sum, tally->power_count);
}

void brim_gpu_tally_usage(const brim_gpu_tally *tally, int64_t end_ns, brim_gpu_usage *out) {
  int64_t ns = end_ns - tally->start_ns;
  out->seconds = ns > 0 ? (double)ns * 1e-9 : (double)NAN;
  out->readings = tally->readings;
  out->gpu_percent = mean(tally->gpu_sum, tally->gpu_count);
  out->power_w = power(tally);
  out->energy_j = out->power_w * out->seconds;
  out->temperature_c = tally->temperature_high;
  uint32_t n = tally->clock_count;
  out->clock_mhz = n ? (clock_at(tally, (n - 1) / 2) + clock_at(tally, n / 2)) / 2 : (double)NAN;
  out->clock_low_mhz = clock_at(tally, 0);
  out->throttle = 0;
  for (int i = 0; i < BRIM_THROTTLE_COUNT; i++) {
    int64_t seen = tally->throttle_count[i];
    if (seen > 0 && seen * THROTTLE_SHARE >= tally->reasons_count) out->throttle |= 1u << i;
  }
}
