// Inside the room: the open NVML, one reading of a GPU, and what readings of an interval add up to.
#ifndef BRIM_MONITOR_INT_H_
#define BRIM_MONITOR_INT_H_

#include <pthread.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "monitor/monitor_nvml_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_GPU_ROOT_BYTES = 256 };

struct brim_gpu_monitor {
  brim_nvml_api api;
  brim_dl *dl;          // NULL over a table that was given
  pthread_mutex_t gpm;  // GPM's calls, unlike the others, are not said to be safe between threads
  char root[BRIM_GPU_ROOT_BYTES];
};

// The library's names of the table's calls, for brim_dl_open; how many there are.
enum { BRIM_NVML_MAX_CALLS = 96 };

// `slice` (may be NULL): the handle is a MIG device's, not the whole GPU's.
brim_status brim_gpu_find(brim_gpu_monitor *monitor, const char *uuid, void **device, bool *slice);
// What NVML calls an error of its own, "failed" when it does not say.
const char *brim_gpu_error_text(const brim_gpu_monitor *monitor, int code);

// One of NVML's lists of processes; the caller frees it. NVML's code, or the one below.
enum { BRIM_GPU_LIST_NO_MEMORY = -1 };
typedef int (*brim_nvml_list_call)(void *device, unsigned *count, brim_nvml_process *out);
int brim_gpu_read_list(brim_nvml_list_call call, void *device, brim_nvml_process **out,
                       unsigned *count);
// Command and user of p->pid, and whether it is this process or none of this machine's. `root` stands in
// front of /proc.
void brim_gpu_identify(const char *root, brim_gpu_process *p);

// Answers that will not change, and those that end everything about a GPU.
bool brim_nvml_is_final(int code);
bool brim_nvml_is_lost(int code);

//---------------------------------- GPM ----------------------------------

// GPM's counters tell nothing over less.
#define BRIM_GPM_SHORTEST_NS INT64_C(100000000)

typedef struct brim_gpm {
  brim_gpu_monitor *monitor;
  void *device;
  bool on;     // false: not supported, or no longer
  bool slice;  // of `device`, by its GPU instance
  unsigned instance;
  void *first, *second;  // samples; what was allocated stays until the end
  brim_nvml_gpm_metrics metrics;
} brim_gpm;

void brim_gpm_open(brim_gpm *gpm, brim_gpu_monitor *monitor, void *device);
// A slice (MIG) of the GPU `device`.
void brim_gpm_open_slice(brim_gpm *gpm, brim_gpu_monitor *monitor, void *device, unsigned instance);
void brim_gpm_close(brim_gpm *gpm);
// NVML's code. `sample`: first or second.
int brim_gpm_take(brim_gpm *gpm, void *sample, int64_t *time_ns);
// From first to second; NaN for a metric that is not known.
int brim_gpm_between(brim_gpm *gpm, const unsigned *ids, double *values, unsigned count);
// A little above 100 is rounding; more is a counter that was reset.
double brim_gpm_percent(double value);

//---------------------------------- readings ----------------------------------

typedef struct brim_gpu_reading {
  int64_t time_ns;
  double gpu_percent, power_w, energy_j, clock_mhz, temperature_c;  // NaN = unknown
  bool reasons_known;
  bool idle;          // the driver says the clock is low because there is nothing to do
  uint32_t throttle;  // 1 << BRIM_THROTTLE_BIT_...
} brim_gpu_reading;
// The driver's bits as ours.
uint32_t brim_throttle_bits(unsigned long long reasons);

// The energy counter was seen to have moved: at `time_ns`, or up to `doubt_ns` before.
typedef struct brim_gpu_edge {
  bool seen;
  int64_t time_ns, doubt_ns;
  double energy_j;
} brim_gpu_edge;

enum { BRIM_GPU_CLOCK_BINS = 8192 };  // one per MHz

// An interval's sums: as large after a year as after a second.
typedef struct brim_gpu_tally {
  int64_t start_ns;
  int readings;
  double gpu_sum, power_sum, temperature_high;
  int gpu_count, power_count, reasons_count;
  int throttle_count[BRIM_THROTTLE_COUNT];
  uint32_t clock_count, clock_bins[BRIM_GPU_CLOCK_BINS];
  bool energy_known, energy_fell;  // fell: the driver was loaded again, there is no difference
  int64_t energy_time_ns;
  double energy_j;  // of the last reading
  brim_gpu_edge first, last;
} brim_gpu_tally;

//---------------------------------- sampler ----------------------------------

// One reading now, which is what the thread does once in a period (tests, with a time of their own).
void brim_gpu_sampler_take(brim_gpu_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MONITOR_INT_H_
