// Inside the room: the parts of the live view. One thread uses them.
#ifndef BRIM_MONITOR_TOP_INT_H_
#define BRIM_MONITOR_TOP_INT_H_

#include "monitor/monitor_int.h"
#include "monitor/monitor_top.h"

#ifdef __cplusplus
extern "C" {
#endif

// Facts that change seldom are read again after so long.
#define BRIM_TOP_SLOW_NS INT64_C(5000000000)

//---------------------------------- host ----------------------------------

enum { BRIM_TOP_PATH_BYTES = 512 };

typedef struct brim_top_counters {
  int64_t time_ns;
  double cpu_total, cpu_idle, cpu_iowait;                // ticks
  double periods, throttled;                             // of the control group's quota
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
// "docker 0123456789ab" by the text of /proc/PID/cgroup; "" when it names no container.
void brim_top_container(const char *cgroup, char *out, size_t size);

//---------------------------------- a GPU ----------------------------------

typedef struct brim_top_gpu_state {
  brim_gpu_monitor *monitor;
  void *device;
  brim_nvml_api api;  // what this GPU does not support is NULL
  bool has_slices;    // in MIG mode: processes and activity are the slices'
  bool lost, started;
  int last_code, asked, answers;  // of the calls of one reading
  int silent;                     // readings in a row without an answer
  int64_t slow_ns;
  brim_top_gpu slow;  // what changes seldom
  brim_nvml_violation power, thermal;
  bool power_known, thermal_known;
  double energy_last_j, energy_sum_j;
  double pcie_tx, pcie_rx;  // as NVML last measured them
  brim_gpm gpm;
  bool gpm_marked, gpm_no_pcie;
  int64_t gpm_ns;
  // What processes used, of this reading.
  brim_nvml_process_use_v1 *uses;
  unsigned use_count, use_room;
  bool use_old;  // by the older call: no jpeg and ofa
  unsigned long long use_since_us;
} brim_top_gpu_state;

// `parent` (NULL for a whole GPU): the GPU whose slice `device` is.
void brim_top_gpu_open(brim_top_gpu_state *state, brim_gpu_monitor *monitor, void *device,
                       const brim_top_gpu_state *parent, int64_t index);
void brim_top_gpu_close(brim_top_gpu_state *state);
// `turn`: it may wait for PCIe rates; else those of its last turn stay.
void brim_top_gpu_read(brim_top_gpu_state *state, unsigned want, bool turn, int64_t now_ns,
                       brim_top_gpu *out);
// Would a reading wait for them?
bool brim_top_gpu_waits(const brim_top_gpu_state *state, unsigned want);
// What processes used since the last reading.
void brim_top_gpu_read_uses(brim_top_gpu_state *state);
// The entry of a process; NULL = it did nothing since the last reading, or unknown.
const brim_nvml_process_use_v1 *brim_top_gpu_use(const brim_top_gpu_state *state, uint32_t pid);

//---------------------------------- processes ----------------------------------

typedef struct brim_top_known {
  uint32_t pid;
  double start_ticks;  // tells a process from a later one of the same number
  brim_top_flag elsewhere;
  char user[64], container[64], command[256];
  double cpu_ticks, cpu_percent, rss, elapsed_s;
  int64_t time_ns;
  uint64_t reading;  // the last one that had it
  bool here;         // its number is of this PID namespace: brim's job, or found in /proc
} brim_top_known;

// What a process of the machine has used of the CPU.
typedef struct brim_top_ticks {
  uint32_t pid;
  double start, used;
} brim_top_ticks;

typedef struct brim_top_processes {
  char root[BRIM_GPU_ROOT_BYTES];
  int64_t namespace_id;  // of PIDs; -1 = unknown
  bool shared_pids;      // the driver's numbers are ours: this is the machine's own PID namespace
  brim_top_known *known;
  size_t count, room;
  uint64_t reading;
  brim_top_ticks *ticks;  // of all processes at the last reading, by pid; where there is no GPU
  size_t tick_count;
  int64_t ticks_ns;
} brim_top_processes;

void brim_top_processes_open(brim_top_processes *state, const char *root);
void brim_top_processes_close(brim_top_processes *state);
// Those on GPUs, and those of the view's jobs; without a GPU those that use the CPU most.
brim_status brim_top_processes_read(brim_top_processes *state, brim_top_gpu_state *gpus,
                                    size_t count, int64_t now_ns, brim_top_view *view);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MONITOR_TOP_INT_H_
