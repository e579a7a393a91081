// Inside the monitor room: the open NVML, activity counters, and the live view's host.
#ifndef BRIM_MONITOR_INT_H_
#define BRIM_MONITOR_INT_H_

#include <pthread.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "monitor/monitor_nvml_abi.h"

enum { BRIM_GPU_ROOT_BYTES = 256 };

struct brim_gpu_monitor {
  brim_nvml_api api;
  brim_dl *dl;          // NULL if the table was given by a test
  pthread_mutex_t gpm;  // NVML does not promise that GPM calls are thread-safe
  char root[BRIM_GPU_ROOT_BYTES];
};

// Finds a GPU, or a slice with the same id behind "MIG-". *slice (may be NULL): it is a slice.
brim_status brim_gpu_find(brim_gpu_monitor *monitor, const char *uuid, void **device, bool *slice);
// Number of slots for slices of a GPU in MIG mode, 0 if NVML does not say; -1 = not in MIG mode.
int brim_gpu_mig_slots(const brim_nvml_api *api, void *device);
// NVML's text for a code; "failed" if it has none.
const char *brim_gpu_error_text(const brim_gpu_monitor *monitor, int code);

// Reads a list of processes, for brim_free. Returns NVML's code, or BRIM_GPU_LIST_NO_MEMORY.
enum { BRIM_GPU_LIST_NO_MEMORY = -1 };
typedef int (*brim_nvml_list_call)(void *device, unsigned *count, brim_nvml_process *out);
int brim_gpu_read_list(brim_nvml_list_call call, void *device, brim_nvml_process **out,
                       unsigned *count);
// Fills in command, user, self and elsewhere of p->pid. `root` is put in front of /proc.
void brim_gpu_identify(const char *root, brim_gpu_process *p);

// brim_nvml_is_final: the call will never succeed. brim_nvml_is_lost: the GPU is lost.
bool brim_nvml_is_final(int code);
bool brim_nvml_is_lost(int code);

//---------------------------------- GPM ----------------------------------

// GPM needs at least this much time between samples.
#define BRIM_GPM_SHORTEST_NS INT64_C(100000000)

typedef struct brim_gpm {
  brim_gpu_monitor *monitor;
  void *device;
  bool on;     // false: not supported, or it has failed for good
  bool slice;  // sample the GPU instance `instance` of `device`
  unsigned instance;
  void *first, *second;  // samples
  brim_nvml_gpm_metrics metrics;
} brim_gpm;

// `instance`: the slice (MIG) of `device`; NULL = the whole GPU.
void brim_gpm_open(brim_gpm *gpm, brim_gpu_monitor *monitor, void *device,
                   const unsigned *instance);
void brim_gpm_close(brim_gpm *gpm);
// Takes a sample: gpm->first or gpm->second. Returns NVML's code.
int brim_gpm_take(brim_gpm *gpm, void *sample, int64_t *time_ns);
// Metrics between the two samples; NaN = unknown. Returns NVML's code.
int brim_gpm_between(brim_gpm *gpm, const unsigned *ids, double *values, unsigned count);
// Limits a percentage to 100. Above 110 the counter was reset, and the result is NaN.
double brim_gpm_percent(double value);

// Translates NVML's reasons to bits 1 << BRIM_THROTTLE_BIT_...
uint32_t brim_throttle_bits(unsigned long long reasons);

// Takes one reading now. Only tests that set the clock call this.
void brim_gpu_sampler_take(brim_gpu_sampler *sampler);

//---------------------------------- the live view's host ----------------------------------

// Values that seldom change are read again after this time.
#define BRIM_TOP_SLOW_NS INT64_C(5000000000)

enum { BRIM_TOP_PATH_BYTES = 512 };

typedef struct brim_top_counters {
  int64_t time_ns;
  double cpu_total, cpu_idle, cpu_iowait;                // ticks
  double periods, throttled;                             // of the cgroup's quota
  double disk_read, disk_write, network_rx, network_tx;  // bytes
  size_t core_count;
  double core_total[BRIM_TOP_CORES], core_idle[BRIM_TOP_CORES];  // ticks; NaN = offline
} brim_top_counters;

typedef struct brim_top_host_state {
  char root[BRIM_GPU_ROOT_BYTES];
  char throttle_path[BRIM_TOP_PATH_BYTES];  // cpu.stat of the group with the quota; "" = none
  brim_top_host slow;
  int64_t slow_ns;
  brim_top_counters last;
} brim_top_host_state;

void brim_top_host_open(brim_top_host_state *state, const char *root, int64_t now_ns);
void brim_top_host_read(brim_top_host_state *state, int64_t now_ns, brim_top_host *out);
// "docker 0123456789ab" from the text of /proc/PID/cgroup; "" if it names no container.
void brim_top_container(const char *cgroup, char *out, size_t size);

#endif  // BRIM_MONITOR_INT_H_
