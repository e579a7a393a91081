// The state of a machine at one moment: host, GPUs, processes, events, brim's jobs. A source
// (monitor.h: this machine, or a recording) fills it; `brim top` draws it, records it and replays it. It holds no
// handle and no clock.
//
// brim.top/1, one JSON object per line:
//   schema "brim.top/1" | when_s (since 1970) | interval_s | driver | notes [text]
//   host       {name, cpu, os, kernel, container, cores, ...}: the members of brim_top_host
//   gpus       [{index, uuid, name, ...}]: the members of brim_top_gpu; throttle is a list of names
//              of BRIM_TOP_THROTTLE_MAP, targets is {utilisation, memory, power} with true, false, null
//   processes  [{pid, gpu, ...}]: the members of brim_top_process
//   events     [{when_s, gpu, kind, code, text}]   since the source was opened, the oldest first
//   jobs       [brim.job/1 objects] (record_job.h)
// Keys are the members' names. Unknown is null, never 0. Bytes, bytes/s, W, J, MHz, degrees Celsius,
// percent. Reading: unknown keys are skipped, missing keys stay unknown, a value of the wrong kind is
// BRIM_EPARSE with its key. An impossible number is read as unknown: below 0 (degrees Celsius:
// below -300), above 1e16 (percentages: above 1e6).
#ifndef BRIM_RECORD_TOP_H_
#define BRIM_RECORD_TOP_H_

#include "record/record.h"
#include "record/record_job.h"

#define BRIM_TOP_SCHEMA "brim.top/1"

// null, false, true in JSON.
typedef enum brim_top_flag {
  BRIM_TOP_UNKNOWN,
  BRIM_TOP_NO,
  BRIM_TOP_YES,
  BRIM_TOP_FLAG_COUNT
} brim_top_flag;

// Reasons why a clock is below its maximum: the driver's reasons under brim's names.
#define BRIM_TOP_THROTTLE_MAP(X)          \
  X(IDLE, "idle")                         \
  X(APPLICATION, "application_clocks")    \
  X(POWER_CAP, "power_cap")               \
  X(HARDWARE, "hardware_slowdown")        \
  X(SYNC_BOOST, "sync_boost")             \
  X(THERMAL, "thermal")                   \
  X(HARDWARE_THERMAL, "hardware_thermal") \
  X(POWER_BRAKE, "power_brake")           \
  X(DISPLAY, "display_clocks")            \
  X(OTHER, "other")

typedef enum brim_top_throttle {
#define X(id, name) BRIM_TOP_THROTTLE_##id,
  BRIM_TOP_THROTTLE_MAP(X)
#undef X
      BRIM_TOP_THROTTLE_COUNT
} brim_top_throttle;
// Returns English words; translate them with brim_tr.
const char *brim_top_throttle_words(brim_top_throttle reason);

// Targets for a busy GPU: utilisation above 90 %, memory above 80 %, power at least 75 % of the limit.
typedef enum brim_top_target {
  BRIM_TOP_TARGET_UTILISATION,
  BRIM_TOP_TARGET_MEMORY,
  BRIM_TOP_TARGET_POWER,
  BRIM_TOP_TARGET_COUNT
} brim_top_target;

enum { BRIM_TOP_CORES = 512 };

// A machine without its GPUs. Unknown texts are "", counts -1, numbers NaN.
typedef struct brim_top_host {
  char name[64], cpu[128], os[128], kernel[128];
  // the container in which brim runs: "docker", "podman", "wsl2"; "" = none seen
  char container[64];
  int64_t cores, cores_online;  // cores that this process may use, and that are online
  double cpu_percent;           // 100 = all cores that are online
  // By core number; core_percent in JSON. NaN = offline, or unknown. Cores from BRIM_TOP_CORES on are left out.
  size_t core_count;
  double core_percent[BRIM_TOP_CORES];
  double iowait_percent;  // idle with a disk request waiting, percent of all CPU time
  double cpu_mhz, cpu_max_mhz;
  double load_1, load_5, load_15;
  double quota_cores;  // quota of the control group; NaN = none, or unknown
  // Quota periods of the interval in which the group was throttled, in percent.
  double quota_throttled_percent;
  double memory_total, memory_used, memory_available;
  double memory_limit;  // limit of the control group; NaN = none, or unknown
  double swap_total, swap_used, shm_total, shm_used;
  double disk_read, disk_write, network_rx, network_tx;  // bytes/s in the interval
  double uptime_s;
  int64_t tasks, tasks_running;
} brim_top_host;

// One GPU, or a slice of one (MIG). Percentages are means over the interval where the driver gives
// them. brim_top_gpu_init: texts "", counts -1, flags unknown, numbers NaN.
typedef struct brim_top_gpu {
  int64_t index;  // index that nvidia-smi shows
  char uuid[64], name[96], bus[32];
  brim_top_flag slice;  // it is a slice of a GPU in MIG mode
  brim_top_flag lost;   // the driver no longer answers for it
  // Utilisation from coarse to fine: time with a kernel, SMs with a warp, warps held, tensor pipes, memory bandwidth.
  // The last four come from GPM, NVIDIA's GPU performance counters (Hopper and later).
  double gpu_percent, sm_percent, occupancy_percent, tensor_percent, dram_percent;
  double memory_busy_percent;  // NVML: time in which device memory was read or written
  // Busy time of the fixed-function units; ofa: optical flow accelerator.
  double encoder_percent, decoder_percent, jpeg_percent, ofa_percent;
  // tensor_percent x clock_mhz / clock_max_mhz: share of the card's peak FLOP/s at its highest clock
  double ofu_percent;
  double ceiling_percent;  // the best matrix product measured on this GPU, as share of that peak
  double memory_total, memory_used, memory_reserved, bar1_total, bar1_used;
  // Bytes used by confidential computing (column ccpm of nvidia-smi dmon).
  double confidential_used;
  double power_w, power_limit_w, power_limit_default_w, power_limit_max_w;
  double energy_j;        // J since the source was opened
  double energy_total_j;  // J since the driver was loaded
  double clock_mhz, clock_max_mhz, memory_clock_mhz, memory_clock_max_mhz, video_clock_mhz;
  // slowdown_c, shutdown_c: temperatures at which the GPU lowers its clock, or switches off.
  double temperature_c, memory_temperature_c, slowdown_c, shutdown_c;
  double fan_percent;
  int64_t pstate;
  bool throttle_known;
  uint32_t throttle;  // bits 1 << BRIM_TOP_THROTTLE_...; a list of names in JSON, null = unknown
  // Percent of the interval in which the power limit, or the temperature, lowered the clock.
  double power_violation_percent, thermal_violation_percent;
  int64_t pcie_generation, pcie_generation_max, pcie_width, pcie_width_max;
  double pcie_rx, pcie_tx;      // bytes/s
  double nvlink_rx, nvlink_tx;  // bytes/s, all links
  int64_t pcie_replays;
  brim_top_flag ecc;                                   // on or off
  int64_t ecc_corrected, ecc_uncorrected;              // counted since the driver was loaded
  int64_t ecc_corrected_total, ecc_uncorrected_total;  // in the GPU's life
  int64_t remapped_corrected, remapped_uncorrected;
  brim_top_flag remap_pending, remap_failed;
  int64_t retired_pages;
  int64_t xid;                // last Xid since the source was opened; -1 = none seen, or unknown
  brim_top_flag xid_watched;  // Xid events can be seen
  brim_top_flag mig, persistence;
  char compute_mode[24];  // "default", "exclusive_process", "prohibited"
  int64_t numa;
  // Set by brim_top_view_derive.
  double hang_s;       // seconds of full utilisation at idle power up to now; 0 = none
  brim_top_flag hang;  // hang_s is at least BRIM_TOP_HANG_S
  brim_top_flag targets[BRIM_TOP_TARGET_COUNT];
} brim_top_gpu;

enum { BRIM_TOP_HANG_S = 10 };

// A process that uses a GPU, one entry per GPU; also brim's jobs that use no GPU.
typedef struct brim_top_process {
  int64_t pid, gpu;  // gpu: brim_top_gpu.index; -1 = none
  char uuid[64];     // GPU or slice; "" = none
  char type[8];      // "C", "G", "C+G", "M" (through MPS)
  char user[64], container[64], command[256];
  brim_top_flag elsewhere;  // no such process here: it runs in another container
  double memory;            // bytes of GPU memory
  double sm_percent, memory_busy_percent, encoder_percent, decoder_percent, jpeg_percent,
      ofa_percent;
  double cpu_percent;  // 100 = one core
  double rss, elapsed_s;
} brim_top_process;

typedef struct brim_top_event {
  double when_s;
  int64_t gpu;     // index of the GPU; -1 = the machine
  char kind[24];   // "xid", "ecc_corrected", "ecc_uncorrected", "row_remap", "lost", ...
  int64_t code;    // code of an Xid; -1 = none
  char text[160];  // one line in English
} brim_top_event;

// Owns its lists; brim_top_view_deinit frees them.
typedef struct brim_top_view {
  double when_s, interval_s;
  char driver[64];  // "580.65.06"; "" = none
  brim_top_host host;
  brim_top_gpu *gpus;
  brim_top_process *processes;
  brim_top_event *events;
  brim_job *jobs;
  size_t gpu_count, process_count, event_count, job_count;
  // Readings that are unavailable here and why, in the user's language: "Xid events need ...".
  char (*notes)[160];
  size_t note_count;
  // Used by record_top.c: capacities of the lists.
  size_t gpu_cap, process_cap, event_cap, job_cap, note_cap;
} brim_top_view;

void brim_top_view_init(brim_top_view *view);
void brim_top_view_deinit(brim_top_view *view);
// Makes everything unknown and empty; keeps the memory for the next reading.
void brim_top_view_clear(brim_top_view *view);
void brim_top_host_init(brim_top_host *host);
void brim_top_gpu_init(brim_top_gpu *gpu);
// Each adds an initialised item to its list; NULL = out of memory.
brim_top_gpu *brim_top_view_add_gpu(brim_top_view *view);
brim_top_process *brim_top_view_add_process(brim_top_view *view);
brim_top_event *brim_top_view_add_event(brim_top_view *view);
brim_job *brim_top_view_add_job(brim_top_view *view);
brim_status brim_top_view_note(brim_top_view *view, const char *text);
brim_status brim_top_view_copy(const brim_top_view *view,
                               brim_top_view *out);  // `out`: initialised

// Finds a GPU by uuid, or by index if `uuid` is empty; NULL = not found.
const brim_top_gpu *brim_top_view_gpu(const brim_top_view *view, int64_t index, const char *uuid);
// memory used, percent of total; NaN = unknown
double brim_top_memory_percent(const brim_top_gpu *gpu);
double brim_top_power_percent(const brim_top_gpu *gpu);  // power drawn, percent of the limit

// Computes OFU, targets and the hang flag from the readings. `previous` is the view before this one, or NULL. A
// source calls it last.
void brim_top_view_derive(brim_top_view *view, const brim_top_view *previous);

brim_status brim_top_view_to_json(const brim_top_view *view, json_t **out);
// `out` must be initialised; it is cleared first. After a failure it has the values that were read up to the
// failure.
brim_status brim_top_view_from_json(const json_t *json, brim_top_view *out);

#endif  // BRIM_RECORD_TOP_H_
