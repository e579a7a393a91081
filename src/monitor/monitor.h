// What the machine is and how busy it is. Metrics stand in one table that gives the array index,
// the key in JSON and the unit; a value that cannot be had is NaN, never 0. A provider fills
// samples: the host's own here, a fake one in tests. Of GPUs: their memory and the processes that
// hold it. Callers: run, measure, the commands.
#ifndef BRIM_MONITOR_H_
#define BRIM_MONITOR_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- facts ----------------------------------

// Texts are "" and numbers NaN (counts 0) where unknown.
typedef struct brim_host_info {
  char cpu[128];  // "Neoverse-V1", "AMD EPYC 9654 96-Core Processor"
  char hostname[64];
  char os[128];      // "Debian GNU/Linux 12 (bookworm)"
  char kernel[128];  // "Linux 6.1.0 aarch64"
  int cores;         // this process may use
  int cores_online;
  double memory_total_bytes;
  double memory_available_bytes;
  double memory_limit_bytes;  // of the control group; NaN = none
} brim_host_info;

brim_status brim_host_get_info(brim_host_info *out);

//---------------------------------- samples ----------------------------------

// Counters grow since the start of the process or machine; the others are now.
typedef enum brim_host_metric {
  BRIM_HOST_PROCESS_CPU_S,
  BRIM_HOST_PROCESS_RSS,       // bytes
  BRIM_HOST_PROCESS_PEAK_RSS,  // bytes
  BRIM_HOST_SYSTEM_BUSY_S,
  BRIM_HOST_SYSTEM_TOTAL_S,
  BRIM_HOST_ALLOWED_BUSY_S,  // the same of the CPUs that this process may use
  BRIM_HOST_ALLOWED_TOTAL_S,
  BRIM_HOST_MEMORY_AVAILABLE,   // bytes
  BRIM_HOST_CPU_FREQUENCY,      // Hz
  BRIM_HOST_CPU_MAX_FREQUENCY,  // Hz
  BRIM_HOST_CPU_THROTTLE_COUNT,
  BRIM_HOST_METRIC_COUNT
} brim_host_metric;

typedef struct brim_host_sample {
  int64_t time_ns;                       // CLOCK_MONOTONIC
  double value[BRIM_HOST_METRIC_COUNT];  // NaN = unknown
} brim_host_sample;

void brim_host_sample_clear(brim_host_sample *sample);  // everything unknown

// Where samples come from. `sample` leaves NaN what it cannot tell and fails only when it can tell
// nothing.
typedef struct brim_host_provider {
  const char *name;  // "host", "fake"
  void *ctx;
  brim_status (*sample)(void *ctx, brim_host_sample *out);
} brim_host_provider;

// The machine itself. `root` stands in front of /proc, /sys and /etc ("" = the real ones; tests
// give a folder) and must outlive the provider.
brim_host_provider brim_host_provider_system(const char *root);
brim_status brim_host_read_sample(const brim_host_provider *provider, brim_host_sample *out);
// From here on the process's peak counts what it holds now. Where the kernel cannot do that it stays.
void brim_host_forget_peak(void);
// As brim_host_get_info, with another root.
brim_status brim_host_read_info(const char *root, brim_host_info *out);

// Between two samples of one provider; NaN where either end is unknown or no time has passed.
typedef struct brim_host_usage {
  double seconds;
  double process_cpu_percent;  // 100 = one core
  double system_cpu_percent;   // 100 = all cores
  double others_cpu_percent;   // of the CPUs that this process may use, without it
  double throttle_events;
} brim_host_usage;
brim_host_usage brim_host_usage_between(const brim_host_sample *start, const brim_host_sample *end);

//---------------------------------- GPUs ----------------------------------

// NVML, opened at run time. Everything it cannot tell is unknown, not an error of the caller's work:
// callers that only want to say more take NULL for a monitor that did not open.
typedef struct brim_gpu_monitor brim_gpu_monitor;
struct brim_nvml_api;  // monitor_nvml_abi.h

// BRIM_EUNSUPPORTED when the library or the driver is not here.
brim_status brim_gpu_monitor_open(brim_gpu_monitor **out);
// The same over another table of calls, and with `root` in front of /proc (tests). Both are copied.
brim_status brim_gpu_monitor_open_api(const struct brim_nvml_api *api, const char *root,
                                      brim_gpu_monitor **out);
void brim_gpu_monitor_close(brim_gpu_monitor *monitor);  // NULL is fine
// The driver's version, "580.65.06"; "" when unknown.
void brim_gpu_driver(brim_gpu_monitor *monitor, char *out, size_t size);

// A GPU, or a slice of one where the GPU is in MIG mode.
typedef struct brim_gpu_listed {
  char uuid[64];  // "GPU-...", "MIG-..."
  char name[96];  // "NVIDIA H200"; "" when unknown
  bool slice;
} brim_gpu_listed;
// All that can compute, in the order of the PCI bus, the slices of a GPU in its place. One that does
// not answer is left out. Array from brim_alloc; NULL when there are none. BRIM_EUNSUPPORTED when the
// driver gives no list.
brim_status brim_gpu_list(brim_gpu_monitor *monitor, brim_gpu_listed **out, size_t *count);

// Bytes of the whole GPU; NaN = unknown. `used` leaves out what the driver reserves for itself.
typedef struct brim_gpu_memory {
  double total, reserved, free, used;
} brim_gpu_memory;
// `uuid` as brim_device_info.id has it ("GPU-..."); a slice of a GPU (MIG) is found by it too.
// BRIM_EUNSUPPORTED when NVML does not know the GPU or does not tell.
brim_status brim_gpu_read_memory(brim_gpu_monitor *monitor, const char *uuid, brim_gpu_memory *out);

// A process that holds memory of a GPU.
typedef struct brim_gpu_process {
  uint32_t pid;
  double bytes;       // NaN = the driver does not say
  bool self;          // this process
  bool computes;      // false: it only draws
  bool elsewhere;     // no such process here: another container's
  char command[128];  // "python train.py"; "" when it cannot be read
  char user[64];      // its owner's name, or "uid 1000"; "" when unknown
} brim_gpu_process;
// All of them, the largest first, unknown sizes last. Array from brim_alloc; NULL when there are
// none. BRIM_EUNSUPPORTED when the driver gives no list.
brim_status brim_gpu_read_processes(brim_gpu_monitor *monitor, const char *uuid,
                                    brim_gpu_process **out, size_t *count);
// "pid 4711 python train.py (alice)", "another container's process (pid 12)".
void brim_gpu_process_text(const brim_gpu_process *process, char *out, size_t size);

//---------------------------------- what a GPU does ----------------------------------

// Why a clock is held down. Bits of ours, not the driver's.
#define BRIM_THROTTLE_MAP(X)       \
  X(POWER_CAP, "power cap")        \
  X(POWER_BRAKE, "power brake")    \
  X(THERMAL, "heat")               \
  X(HARDWARE, "hardware slowdown") \
  X(APPLICATION, "application clocks")

typedef enum brim_throttle_bit {
#define X(id, text) BRIM_THROTTLE_BIT_##id,
  BRIM_THROTTLE_MAP(X)
#undef X
      BRIM_THROTTLE_COUNT
} brim_throttle_bit;

// "power cap, heat"; "" for 0. In English always: it stands in records.
void brim_throttle_text(uint32_t bits, char *out, size_t size);

// Over an interval; NaN = unknown. The ladder from 'some kernel ran' to what the units really did:
// true activities come from NVML's GPM where the GPU has it (Hopper and later).
typedef struct brim_gpu_usage {
  double seconds;
  double gpu_percent;        // time in which a kernel ran
  double sm_percent;         // SMs with a warp on them
  double occupancy_percent;  // warps on SMs of what they could hold
  double tensor_percent;     // tensor pipes
  double dram_percent;       // device memory's bandwidth
  double power_w, power_limit_w;
  double energy_j;  // in the interval: power_w x seconds
  // Of the SMs: median, lowest seen, the card's top. Readings of an idle GPU, whose clock is low
  // because it has nothing to do, are left out.
  double clock_mhz, clock_low_mhz, clock_max_mhz;
  double temperature_c;  // highest seen
  uint32_t throttle;     // 1 << BRIM_THROTTLE_BIT_...: seen in at least a tenth of the readings
  int readings;
} brim_gpu_usage;

// A thread that reads one GPU every `period_s` (at least 0.02; cheap readings only: the list of
// processes and PCIe counters, which block, are never asked). Marks and reads may come from one
// other thread. The monitor must outlive it. A GPU that is lost is logged once; everything about it
// is unknown from then on.
typedef struct brim_gpu_sampler brim_gpu_sampler;
brim_status brim_gpu_sampler_start(brim_gpu_monitor *monitor, const char *uuid, double period_s,
                                   brim_gpu_sampler **out);
void brim_gpu_sampler_stop(brim_gpu_sampler *sampler);  // NULL is fine
// An interval begins here (the first one with the start); `read` tells what was since. Reading does
// not end it. Below 0.1 s GPM's activities are unknown, below a sixth of a second gpu_percent.
void brim_gpu_sampler_mark(brim_gpu_sampler *sampler);
void brim_gpu_sampler_read(brim_gpu_sampler *sampler, brim_gpu_usage *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MONITOR_H_
