// Describes the machine and how busy it is: the host by /proc and /sys, GPUs by NVML, and the live view of both. An
// unknown value is NaN, never 0. Callers: run, measure, doctor, lab, the commands.
#ifndef BRIM_MONITOR_H_
#define BRIM_MONITOR_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/record_top.h"

//---------------------------------- facts ----------------------------------

// Unknown texts are "", unknown numbers NaN, unknown counts 0.
typedef struct brim_host_info {
  char cpu[128];  // "Neoverse-V1", "AMD EPYC 9654 96-Core Processor"
  char hostname[64];
  char os[128];      // "Debian GNU/Linux 12 (bookworm)"
  char kernel[128];  // "Linux 6.1.0 aarch64"
  int cores;         // usable by this process
  int cores_online;
  double memory_total_bytes;
  double memory_available_bytes;
  double memory_limit_bytes;  // of the cgroup; NaN = none
} brim_host_info;

brim_status brim_host_get_info(brim_host_info *out);

//---------------------------------- samples ----------------------------------

// Values in seconds and counts grow from the start of the process or machine; all others are current values.
typedef enum brim_host_metric {
  BRIM_HOST_PROCESS_CPU_S,
  BRIM_HOST_PROCESS_RSS,       // bytes
  BRIM_HOST_PROCESS_PEAK_RSS,  // bytes
  BRIM_HOST_SYSTEM_BUSY_S,
  BRIM_HOST_SYSTEM_TOTAL_S,
  BRIM_HOST_ALLOWED_BUSY_S,  // on the CPUs that this process may use
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

void brim_host_sample_clear(brim_host_sample *sample);  // sets everything to unknown

// A source of samples. `sample` leaves unknown values NaN and fails only if it knows none.
typedef struct brim_host_provider {
  const char *name;  // "host", "fake"
  void *ctx;
  brim_status (*sample)(void *ctx, brim_host_sample *out);
} brim_host_provider;

// This machine. `root` is put in front of /proc, /sys and /etc ("" = the real ones) and must outlive the provider.
brim_host_provider brim_host_provider_system(const char *root);
brim_status brim_host_read_sample(const brim_host_provider *provider, brim_host_sample *out);
// Resets the process's peak memory to what it holds now, if the kernel can.
void brim_host_forget_peak(void);
// Like brim_host_get_info, with another root.
brim_status brim_host_read_info(const char *root, brim_host_info *out);

// Differences of two samples of one provider; NaN if either is unknown or no time has passed.
typedef struct brim_host_usage {
  double seconds;
  double process_cpu_percent;  // 100 = one core
  double system_cpu_percent;   // 100 = all cores
  double others_cpu_percent;   // other processes, on the CPUs that this process may use
  double throttle_events;
} brim_host_usage;
brim_host_usage brim_host_usage_between(const brim_host_sample *start, const brim_host_sample *end);

//---------------------------------- GPUs ----------------------------------

// NVML, opened at run time. The monitor is optional: callers use NULL if it did not open.
typedef struct brim_gpu_monitor brim_gpu_monitor;
struct brim_nvml_api;  // monitor_nvml_abi.h

// BRIM_EUNSUPPORTED without the library or the driver.
brim_status brim_gpu_monitor_open(brim_gpu_monitor **out);
// For tests: the same with another table of calls, and `root` in front of /proc. Both are copied.
brim_status brim_gpu_monitor_open_api(const struct brim_nvml_api *api, const char *root,
                                      brim_gpu_monitor **out);
void brim_gpu_monitor_close(brim_gpu_monitor *monitor);  // NULL is fine
// The driver's version, "580.65.06"; "" when unknown.
void brim_gpu_driver(brim_gpu_monitor *monitor, char *out, size_t size);

// A GPU, or a slice of a GPU in MIG mode.
typedef struct brim_gpu_listed {
  char uuid[64];  // "GPU-...", "MIG-..."
  char name[96];  // "NVIDIA H200"; "" when unknown
  bool slice;
} brim_gpu_listed;
// Every CUDA device in PCI order; a MIG GPU is replaced by its slices. A GPU that does not answer is left out. Array
// for brim_free; NULL if there are none. BRIM_EUNSUPPORTED if the driver gives no list.
brim_status brim_gpu_list(brim_gpu_monitor *monitor, brim_gpu_listed **out, size_t *count);

// Bytes of the whole GPU; NaN = unknown. `used` excludes the driver's own reserve.
typedef struct brim_gpu_memory {
  double total, reserved, free, used;
} brim_gpu_memory;
// `uuid`: brim_device_info.id ("GPU-..."); finds a slice (MIG) too. BRIM_EUNSUPPORTED if NVML does not know.
brim_status brim_gpu_read_memory(brim_gpu_monitor *monitor, const char *uuid, brim_gpu_memory *out);

// A process that holds memory of a GPU.
typedef struct brim_gpu_process {
  uint32_t pid;
  double bytes;       // NaN = the driver does not say
  bool self;          // this process
  bool computes;      // false: graphics only
  bool elsewhere;     // in another container: its PID is unknown here
  char command[128];  // "python train.py"; "" = unknown
  char user[64];      // owner, or "uid 1000"; "" = unknown
} brim_gpu_process;
// All processes on a GPU, the largest first, unknown sizes last. Array for brim_free; NULL if there are none.
// BRIM_EUNSUPPORTED if the driver gives no list.
brim_status brim_gpu_read_processes(brim_gpu_monitor *monitor, const char *uuid,
                                    brim_gpu_process **out, size_t *count);
// "pid 4711 python train.py (alice)", "another container's process (pid 12)".
void brim_gpu_process_text(const brim_gpu_process *process, char *out, size_t size);

//---------------------------------- what a GPU does ----------------------------------

// Reasons for a low clock; brim's own bits, not the driver's.
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

// "power cap, heat"; "" for 0. Always English, since records contain it.
void brim_throttle_text(uint32_t bits, char *out, size_t size);

// Means over an interval; NaN = unknown. Activities (sm_percent to dram_percent) come from NVML's GPM, which Hopper and
// later GPUs have.
typedef struct brim_gpu_usage {
  double seconds;
  double gpu_percent;        // share of the time in which a kernel ran
  double sm_percent;         // share of SMs with a warp
  double occupancy_percent;  // warps on SMs, as a share of the most they can hold
  double tensor_percent;     // tensor pipes busy
  double dram_percent;       // bandwidth of device memory
  double power_w, power_limit_w;
  double energy_j;  // in the interval: power_w x seconds
  // SM clock: median, lowest, and the card's maximum. Readings of an idle GPU do not count.
  double clock_mhz, clock_low_mhz, clock_max_mhz;
  double temperature_c;  // highest
  uint32_t throttle;     // 1 << BRIM_THROTTLE_BIT_..., if in at least a tenth of the readings
  int readings;
} brim_gpu_usage;

// A thread that reads one GPU every `period_s` (at least 0.02), by cheap calls only. One other thread may mark and
// read. The monitor must outlive the sampler. A lost GPU is logged once; everything about it is unknown from then on.
typedef struct brim_gpu_sampler brim_gpu_sampler;
brim_status brim_gpu_sampler_start(brim_gpu_monitor *monitor, const char *uuid, double period_s,
                                   brim_gpu_sampler **out);
void brim_gpu_sampler_stop(brim_gpu_sampler *sampler);  // NULL is fine
// Begins an interval; the start begins the first. `read` reports the interval so far and does not end it. Activities
// need 0.1 s, gpu_percent a sixth of a second.
void brim_gpu_sampler_mark(brim_gpu_sampler *sampler);
void brim_gpu_sampler_read(brim_gpu_sampler *sampler, brim_gpu_usage *out);

//---------------------------------- how a GPU is set up ----------------------------------
// Settings and health: ECC, power limit, PCIe link, modes. They seldom change, so each is read once.

typedef enum brim_gpu_switch {
  BRIM_GPU_SWITCH_UNKNOWN,
  BRIM_GPU_SWITCH_OFF,
  BRIM_GPU_SWITCH_ON
} brim_gpu_switch;

// The number of processes that may compute on a GPU at once.
typedef enum brim_gpu_compute_mode {
  BRIM_GPU_COMPUTE_UNKNOWN,
  BRIM_GPU_COMPUTE_SHARED,
  BRIM_GPU_COMPUTE_EXCLUSIVE,  // one process
  BRIM_GPU_COMPUTE_PROHIBITED
} brim_gpu_compute_mode;

// NaN, "", UNKNOWN and -1 = unknown.
typedef struct brim_gpu_setup {
  char bus_id[32];  // spelled as in sysfs: "0000:00:06.0"
  brim_gpu_switch ecc, ecc_pending, mig, persistence;
  brim_gpu_compute_mode compute_mode;
  double ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  double rows_remapped;                   // replaced rows of device memory
  brim_gpu_switch remap_pending;          // a replacement waits for a reset
  brim_gpu_switch remap_failed;
  double power_limit_w, power_default_w;
  double clock_mhz, clock_max_mhz;  // SM clock
  double temperature_c, slowdown_c;
  int pcie_generation, pcie_generation_max;  // now, and the most that GPU and slot can do
  int pcie_width, pcie_width_max;
  int performance_state;  // 0 = P0, the fastest
  bool reasons_known;
  bool idle;          // the clock is low for lack of work
  uint32_t throttle;  // 1 << BRIM_THROTTLE_BIT_...
} brim_gpu_setup;

// BRIM_EUNSUPPORTED if NVML does not know the GPU. Little is known of a slice (MIG). Always sets *out.
brim_status brim_gpu_read_setup(brim_gpu_monitor *monitor, const char *uuid, brim_gpu_setup *out);
// The newest CUDA version that the driver runs: 13000 is 13.0; 0 = unknown.
int brim_gpu_cuda_version(brim_gpu_monitor *monitor);

//---------------------------------- the live view ----------------------------------
// Sources of brim_top_view for `brim top`: this machine, or a recording. A source fills all but the measured ceilings,
// which the caller adds. To measure a training's steps use the sampler above.

// Expensive parts of a reading. Ask only for the parts that are shown.
enum {
  BRIM_TOP_WANT_PROCESSES = 1,
  // GPM counters. Two programs that use them at the same time (such as DCGM) disturb each other.
  BRIM_TOP_WANT_ACTIVITY = 2,
  // PCIe rates. With GPM they come with ACTIVITY. Without it NVML measures 20 ms for each direction while the caller
  // waits; once each GPU has a value, a reading measures two GPUs.
  BRIM_TOP_WANT_PCIE = 4,
  BRIM_TOP_WANT_ALL = 7,  // everything but jobs
  // brim's running jobs, and with PROCESSES their processes that no GPU lists
  BRIM_TOP_WANT_JOBS = 8
};

typedef struct brim_top_source {
  const char *name;  // "machine", "recording"
  void *ctx;
  // Replaces *out, which must be initialised. Rates and means cover the time since the last reading or the opening;
  // below 0.1 s they are unknown. BRIM_EEND: the recording is over.
  brim_status (*read)(void *ctx, unsigned want, brim_top_view *out);
  // Damaged lines of a recording that were skipped so far; NULL = not a recording.
  long (*skipped)(void *ctx);
  void (*close)(void *ctx);
} brim_top_source;

// `root` is put in front of /proc and /sys ("" = the real ones). `api`: NVML's calls; NULL = the driver's library. Both
// are copied. Without a driver the view has no GPUs and a note with the reason.
brim_status brim_top_open_machine(const char *root, const struct brim_nvml_api *api,
                                  brim_top_source *out);
// A file of brim.top/1 lines, as `--record` writes it; each reading takes one. Lines that are no JSON, cut off by a
// full disk or a stop, are skipped and counted. JSON that is no brim.top/1 record is BRIM_EPARSE with its line
// number.
brim_status brim_top_open_recording(const char *path, brim_top_source *out);
void brim_top_close(brim_top_source *source);  // all zero is fine

// Opens and reads a source in a thread, so that a slow driver does not block keys and Ctrl-C. Call these from one
// thread.
typedef struct brim_top_reader brim_top_reader;

typedef enum brim_top_reader_state {
  BRIM_TOP_READER_OPENING,
  BRIM_TOP_READER_IDLE,
  BRIM_TOP_READER_READING,
  BRIM_TOP_READER_DONE,  // brim_top_reader_take has a view or a failure
  BRIM_TOP_READER_STATE_COUNT
} brim_top_reader_state;

typedef brim_status (*brim_top_open_fn)(void *ctx, brim_top_source *out);
brim_status brim_top_reader_start(brim_top_open_fn open, void *ctx, brim_top_reader **out);
// Ends the thread. A thread that still waits for the driver is detached and frees everything itself.
void brim_top_reader_stop(brim_top_reader *reader);  // NULL is fine
brim_top_reader_state brim_top_reader_poll(brim_top_reader *reader);
// Seconds that the current opening or reading has taken so far, or the last one took.
double brim_top_reader_busy_s(brim_top_reader *reader);
// For poll(2): readable if an opening or reading has ended since the last look.
int brim_top_reader_fd(const brim_top_reader *reader);
// Begins a reading if the reader is idle.
void brim_top_reader_request(brim_top_reader *reader, unsigned want);
// Takes the view or the failure of a reader that is done. The reader is idle afterwards. `out` must be initialised. A
// failed opening fails here.
brim_status brim_top_reader_take(brim_top_reader *reader, brim_top_view *out);

#endif  // BRIM_MONITOR_H_
