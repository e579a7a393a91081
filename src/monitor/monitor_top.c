// The live view of this machine: GPUs by NVML, processes, brim's jobs and events, compared with the last reading.
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "monitor/monitor_int.h"

//---------------------------------- a GPU ----------------------------------

typedef struct brim_top_gpu_state {
  brim_gpu_monitor *monitor;
  void *device;
  brim_nvml_api api;  // unsupported calls are NULL
  bool has_slices;    // in MIG mode: processes and activity belong to the slices
  bool lost, started;
  int last_code, asked, answers;  // the last call's code; calls of one reading, answered calls
  int silent;                     // readings in a row without an answer
  int64_t slow_ns;
  brim_top_gpu slow;  // values that seldom change
  brim_nvml_violation power, thermal;
  bool power_known, thermal_known;
  double energy_last_j, energy_sum_j;
  double pcie_tx, pcie_rx;  // last measured by NVML
  brim_gpm gpm;
  bool gpm_marked, gpm_no_pcie;
  int64_t gpm_ns;
  // use of the GPU by process, in this reading
  brim_nvml_process_use_v1 *uses;
  unsigned use_count, use_room;
  bool use_old;  // `uses` is from the older call, which lacks jpeg and ofa
  unsigned long long use_since_us;
} brim_top_gpu_state;

enum { SILENT_READINGS = 3, FIRST_USES = 32, MOST_USES = 65536 };
static const double MIB = 1048576;

static bool answered(brim_top_gpu_state *s, int code) {
  s->last_code = code;
  s->asked++;
  if (code == BRIM_NVML_SUCCESS) s->answers++;
  if (brim_nvml_is_lost(code)) s->lost = true;
  return code == BRIM_NVML_SUCCESS;
}

// Makes a call of the table, unless it is NULL or the GPU is lost. True if it answered. Sets a call that will never
// answer to NULL.
#define ASK(s, call, ...)                        \
  ((s)->api.call && !(s)->lost &&                \
   (answered((s), (s)->api.call(__VA_ARGS__)) || \
    (brim_nvml_is_final((s)->last_code) && ((s)->api.call = NULL, false))))

// Makes a call that returns one unsigned, as a scaled number or as a count.
#define NUMBER(s, call, to, scale)                                   \
  do {                                                               \
    unsigned value_ = 0;                                             \
    if (ASK(s, call, (s)->device, &value_)) (to) = value_ * (scale); \
  } while (0)
#define COUNT(s, call, to)                                 \
  do {                                                     \
    unsigned value_ = 0;                                   \
    if (ASK(s, call, (s)->device, &value_)) (to) = value_; \
  } while (0)

static brim_top_flag flag(unsigned on) { return on ? BRIM_TOP_YES : BRIM_TOP_NO; }

static double bytes_of(unsigned long long bytes) {
  return bytes == BRIM_NVML_UNKNOWN ? (double)NAN : (double)bytes;
}

// The NUMA node of a PCI device, from /sys; -1 = unknown.
static int64_t read_numa(const brim_gpu_monitor *m, const brim_nvml_pci *pci) {
  char path[128], text[32];
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node", pci->domain,
           pci->bus, pci->device);
  int64_t node = -1;
  if (!brim_machine_read_text(m->root, path, text, sizeof text)) return -1;
  text[strcspn(text, "\n")] = '\0';
  return brim_parse_i64(text, &node) ? node : -1;
}

// Reads the values that never change.
static void read_fixed(brim_top_gpu_state *s) {
  brim_top_gpu *to = &s->slow;
  brim_nvml_pci pci = {.domain = 0};
  if (!ASK(s, uuid, s->device, to->uuid, sizeof to->uuid - 1)) to->uuid[0] = '\0';
  if (!ASK(s, name, s->device, to->name, sizeof to->name - 1)) to->name[0] = '\0';
  if (ASK(s, pci, s->device, &pci)) {
    snprintf(to->bus, sizeof to->bus, "%.31s", pci.bus_id);
    to->numa = read_numa(s->monitor, &pci);
  }
  unsigned mhz = 0, celsius = 0, low = 0, high = 0;
  if (ASK(s, clock_max, s->device, BRIM_NVML_CLOCK_SM, &mhz)) to->clock_max_mhz = mhz;
  if (ASK(s, clock_max, s->device, BRIM_NVML_CLOCK_MEMORY, &mhz)) to->memory_clock_max_mhz = mhz;
  if (ASK(s, threshold, s->device, BRIM_NVML_THRESHOLD_SLOWDOWN, &celsius)) {
    to->slowdown_c = celsius;
  }
  if (ASK(s, threshold, s->device, BRIM_NVML_THRESHOLD_SHUTDOWN, &celsius)) {
    to->shutdown_c = celsius;
  }
  NUMBER(s, power_default, to->power_limit_default_w, 1e-3);
  if (ASK(s, power_bounds, s->device, &low, &high)) to->power_limit_max_w = high * 1e-3;
  COUNT(s, pcie_generation_max, to->pcie_generation_max);
  COUNT(s, pcie_width_max, to->pcie_width_max);
}

// Values that seldom change: read_ecc, read_repairs and read_modes.
static void read_ecc(brim_top_gpu_state *s) {
  brim_top_gpu *to = &s->slow;
  unsigned now = 0, pending = 0;
  if (ASK(s, ecc_mode, s->device, &now, &pending)) to->ecc = flag(now);
  const struct {
    int type, counter;
    int64_t *to;
  } rows[] = {
      {BRIM_NVML_ECC_CORRECTED, BRIM_NVML_ECC_VOLATILE, &to->ecc_corrected},
      {BRIM_NVML_ECC_UNCORRECTED, BRIM_NVML_ECC_VOLATILE, &to->ecc_uncorrected},
      {BRIM_NVML_ECC_CORRECTED, BRIM_NVML_ECC_AGGREGATE, &to->ecc_corrected_total},
      {BRIM_NVML_ECC_UNCORRECTED, BRIM_NVML_ECC_AGGREGATE, &to->ecc_uncorrected_total},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    unsigned long long count = 0;
    bool known = ASK(s, ecc_errors, s->device, rows[i].type, rows[i].counter, &count);
    *rows[i].to = known && count <= INT64_MAX ? (int64_t)count : -1;
  }
}

// GPUs before Ampere retire pages, later ones remap rows. Without room for addresses the call returns the count.
static void read_repairs(brim_top_gpu_state *s) {
  brim_top_gpu *to = &s->slow;
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (ASK(s, remapped_rows, s->device, &corrected, &uncorrected, &pending, &failed)) {
    to->remapped_corrected = corrected;
    to->remapped_uncorrected = uncorrected;
    to->remap_pending = flag(pending);
    to->remap_failed = flag(failed);
  } else if (ASK(s, retired_pending, s->device, &pending)) {
    to->remap_pending = flag(pending);
  }
  int64_t pages = 0;
  for (int cause = BRIM_NVML_RETIRED_SINGLE_BIT; cause <= BRIM_NVML_RETIRED_DOUBLE_BIT; cause++) {
    unsigned count = 0;
    bool known = ASK(s, retired_pages, s->device, cause, &count, NULL);
    if (!known && s->api.retired_pages) known = s->last_code == BRIM_NVML_INSUFFICIENT_SIZE;
    pages = known && pages >= 0 ? pages + count : -1;
  }
  to->retired_pages = pages;
}

static void read_modes(brim_top_gpu_state *s) {
  brim_top_gpu *to = &s->slow;
  unsigned value = 0, pending = 0;
  if (ASK(s, persistence, s->device, &value)) to->persistence = flag(value);
  if (ASK(s, mig_mode, s->device, &value, &pending)) to->mig = flag(value);
  if (ASK(s, compute_mode, s->device, &value)) {
    static const char *const names[] = {"default", "exclusive_thread", "prohibited",
                                        "exclusive_process"};
    const char *name = value < sizeof names / sizeof *names ? names[value] : "";
    snprintf(to->compute_mode, sizeof to->compute_mode, "%s", name);
  }
  NUMBER(s, power_limit, to->power_limit_w, 1e-3);
  brim_nvml_memory guarded = {0};
  if (ASK(s, protected_memory, s->device, &guarded)) to->confidential_used = bytes_of(guarded.used);
  COUNT(s, pcie_replays, to->pcie_replays);
  COUNT(s, pcie_generation, to->pcie_generation);
  COUNT(s, pcie_width, to->pcie_width);
  if (ASK(s, clock, s->device, BRIM_NVML_CLOCK_VIDEO, &value)) to->video_clock_mhz = value;
  NUMBER(s, fan, to->fan_percent, 1);
}

static void read_memory(brim_top_gpu_state *s, brim_top_gpu *to) {
  brim_nvml_memory_v2 v2 = {.version = BRIM_NVML_MEMORY_V2_VERSION};
  brim_nvml_memory v1 = {0}, bar1 = {0};
  if (ASK(s, memory_v2, s->device, &v2)) {
    to->memory_total = bytes_of(v2.total);
    to->memory_used = bytes_of(v2.used);
    to->memory_reserved = bytes_of(v2.reserved);
  } else if (!s->api.memory_v2 && ASK(s, memory, s->device, &v1)) {
    to->memory_total = bytes_of(v1.total);
    to->memory_used = bytes_of(v1.used);
  }
  if (ASK(s, bar1, s->device, &bar1)) {
    to->bar1_total = bytes_of(bar1.total);
    to->bar1_used = bytes_of(bar1.used);
  }
}

// The counter is in millijoules. It falls when it wraps or the driver is loaded again; such a difference is not added.
static void read_energy(brim_top_gpu_state *s, brim_top_gpu *to) {
  unsigned long long mj = 0;
  if (!ASK(s, energy, s->device, &mj)) return;
  double joules = (double)mj * 1e-3;
  if (joules > s->energy_last_j) s->energy_sum_j += joules - s->energy_last_j;
  s->energy_last_j = joules;
  to->energy_total_j = joules;
  to->energy_j = isnan(s->energy_sum_j) ? 0 : s->energy_sum_j;
  s->energy_sum_j = to->energy_j;
}

static void read_temperatures(brim_top_gpu_state *s, brim_top_gpu *to) {
  unsigned celsius = 0;
  brim_nvml_temperature v = {.version = BRIM_NVML_TEMPERATURE_VERSION,
                             .sensor = BRIM_NVML_TEMPERATURE_GPU};
  if (ASK(s, temperature, s->device, BRIM_NVML_TEMPERATURE_GPU, &celsius)) {
    to->temperature_c = celsius;
  } else if (!s->api.temperature && ASK(s, temperature_v, s->device, &v)) {
    to->temperature_c = v.celsius;
  }
  brim_nvml_field memory = {.id = BRIM_NVML_FIELD_MEMORY_TEMPERATURE};
  if (ASK(s, fields, s->device, 1, &memory) && memory.code == BRIM_NVML_SUCCESS &&
      memory.type == BRIM_NVML_TYPE_UINT) {
    to->memory_temperature_c = memory.value.u32;
  }
}

static void read_reasons(brim_top_gpu_state *s, brim_top_gpu *to) {
  static const struct {
    unsigned long long bit;
    brim_top_throttle reason;
  } rows[] = {
      {BRIM_NVML_REASON_IDLE, BRIM_TOP_THROTTLE_IDLE},
      {BRIM_NVML_REASON_APPLICATION_CLOCKS, BRIM_TOP_THROTTLE_APPLICATION},
      {BRIM_NVML_REASON_SW_POWER_CAP, BRIM_TOP_THROTTLE_POWER_CAP},
      {BRIM_NVML_REASON_HW_SLOWDOWN, BRIM_TOP_THROTTLE_HARDWARE},
      {BRIM_NVML_REASON_SYNC_BOOST, BRIM_TOP_THROTTLE_SYNC_BOOST},
      {BRIM_NVML_REASON_SW_THERMAL, BRIM_TOP_THROTTLE_THERMAL},
      {BRIM_NVML_REASON_HW_THERMAL, BRIM_TOP_THROTTLE_HARDWARE_THERMAL},
      {BRIM_NVML_REASON_HW_POWER_BRAKE, BRIM_TOP_THROTTLE_POWER_BRAKE},
      {BRIM_NVML_REASON_DISPLAY, BRIM_TOP_THROTTLE_DISPLAY},
  };
  unsigned long long bits = 0;
  if (!ASK(s, event_reasons, s->device, &bits)) {
    if (s->api.event_reasons || !ASK(s, throttle_reasons, s->device, &bits)) return;
  }
  to->throttle_known = true;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (bits & rows[i].bit) to->throttle |= 1u << rows[i].reason;
    bits &= ~rows[i].bit;
  }
  if (bits) to->throttle |= 1u << BRIM_TOP_THROTTLE_OTHER;  // a reason of a newer driver
}

// Percent of the time since the last reading that a policy lowered clocks, by the driver's clock.
static double read_violation(brim_top_gpu_state *s, int policy, brim_nvml_violation *last,
                             bool *known) {
  brim_nvml_violation now = {0, 0}, before = *last;
  bool had = *known;
  *known = ASK(s, violation, s->device, policy, &now);
  if (!*known) return (double)NAN;
  *last = now;
  if (!had || now.reference_us <= before.reference_us || now.violation_ns < before.violation_ns) {
    return (double)NAN;
  }
  double ns = (double)(now.violation_ns - before.violation_ns);
  return fmin(100, ns / ((double)(now.reference_us - before.reference_us) * 1e3) * 100);
}

static void read_use(brim_top_gpu_state *s, brim_top_gpu *to) {
  brim_nvml_utilisation use = {0};
  unsigned mhz = 0, percent = 0, period = 0, state = 0;
  if (ASK(s, utilisation, s->device, &use)) {
    to->gpu_percent = use.gpu;
    to->memory_busy_percent = use.memory;
  }
  if (ASK(s, encoder, s->device, &percent, &period)) to->encoder_percent = percent;
  if (ASK(s, decoder, s->device, &percent, &period)) to->decoder_percent = percent;
  if (ASK(s, jpeg, s->device, &percent, &period)) to->jpeg_percent = percent;
  if (ASK(s, ofa, s->device, &percent, &period)) to->ofa_percent = percent;
  NUMBER(s, power, to->power_w, 1e-3);
  if (ASK(s, clock, s->device, BRIM_NVML_CLOCK_SM, &mhz)) to->clock_mhz = mhz;
  if (ASK(s, clock, s->device, BRIM_NVML_CLOCK_MEMORY, &mhz)) to->memory_clock_mhz = mhz;
  if (ASK(s, performance_state, s->device, &state) && state <= 15) to->pstate = state;
}

// Reads GPM counters. The sample of this reading is the first sample of the next interval.
static void read_activity(brim_top_gpu_state *s, brim_top_gpu *to) {
  static const unsigned ids[] = {
      BRIM_NVML_GPM_GRAPHICS_UTIL,   BRIM_NVML_GPM_SM_UTIL,      BRIM_NVML_GPM_SM_OCCUPANCY,
      BRIM_NVML_GPM_ANY_TENSOR_UTIL, BRIM_NVML_GPM_DRAM_BW_UTIL, BRIM_NVML_GPM_PCIE_TX,
      BRIM_NVML_GPM_PCIE_RX,         BRIM_NVML_GPM_NVLINK_RX,    BRIM_NVML_GPM_NVLINK_TX};
  enum { COUNT_IDS = sizeof ids / sizeof *ids };
  double v[COUNT_IDS];
  int64_t time_ns = 0;
  bool marked = s->gpm_marked;
  int64_t before_ns = s->gpm_ns;
  if (!s->gpm.on || s->lost) return;
  // too soon: keep the older sample
  int64_t now = s->api.now_ns ? s->api.now_ns() : brim_clock_now().ns;
  if (marked && now - before_ns < BRIM_GPM_SHORTEST_NS) return;
  if (!answered(s, brim_gpm_take(&s->gpm, s->gpm.second, &time_ns))) {
    s->gpm_marked = false;
    return;
  }
  if (marked && answered(s, brim_gpm_between(&s->gpm, ids, v, COUNT_IDS))) {
    double busy = brim_gpm_percent(v[0]);
    if (isnan(to->gpu_percent)) to->gpu_percent = busy;  // NVML has no utilisation for a slice
    to->sm_percent = brim_gpm_percent(v[1]);
    to->occupancy_percent = brim_gpm_percent(v[2]);
    to->tensor_percent = brim_gpm_percent(v[3]);
    to->dram_percent = brim_gpm_percent(v[4]);
    s->gpm_no_pcie = isnan(v[5]) || isnan(v[6]);
    to->pcie_tx = v[5] * MIB;
    to->pcie_rx = v[6] * MIB;
    to->nvlink_rx = v[7] * MIB;
    to->nvlink_tx = v[8] * MIB;
  }
  void *sample = s->gpm.first;
  s->gpm.first = s->gpm.second;
  s->gpm.second = sample;
  s->gpm_marked = true;
  s->gpm_ns = time_ns;
}

// True if a reading has to wait for PCIe rates.
static bool waits_for_pcie(const brim_top_gpu_state *state, unsigned want) {
  bool by_gpm = (want & BRIM_TOP_WANT_ACTIVITY) && state->gpm.on && !state->gpm_no_pcie;
  return (want & BRIM_TOP_WANT_PCIE) && !by_gpm && !state->lost && state->api.pcie_throughput;
}

// Measures PCIe rates, which takes 20 ms for each direction.
static void read_pcie(brim_top_gpu_state *s, brim_top_gpu *to) {
  unsigned kb = 0;
  if (isnan(to->pcie_tx) && ASK(s, pcie_throughput, s->device, BRIM_NVML_PCIE_TX, &kb)) {
    to->pcie_tx = kb * 1024.0;
  }
  if (isnan(to->pcie_rx) && ASK(s, pcie_throughput, s->device, BRIM_NVML_PCIE_RX, &kb)) {
    to->pcie_rx = kb * 1024.0;
  }
  s->pcie_tx = to->pcie_tx;
  s->pcie_rx = to->pcie_rx;
}

static bool reserve_uses(brim_top_gpu_state *s, unsigned count) {
  if (count <= s->use_room) return true;
  brim_nvml_process_use_v1 *uses =
      (brim_nvml_process_use_v1 *)brim_realloc(s->uses, count * sizeof *uses);
  if (!uses) return false;
  s->uses = uses;
  s->use_room = count;
  return true;
}

static bool read_uses_new(brim_top_gpu_state *s) {
  brim_nvml_processes_use use = {.version = BRIM_NVML_PROCESSES_USE_VERSION,
                                 .since_us = s->use_since_us};
  for (unsigned room = FIRST_USES; room <= MOST_USES && reserve_uses(s, room);) {
    use.count = s->use_room;
    use.list = s->uses;
    if (ASK(s, processes_use, s->device, &use)) {
      s->use_count = use.count < s->use_room ? use.count : s->use_room;
      return true;
    }
    if (!s->api.processes_use || s->last_code != BRIM_NVML_INSUFFICIENT_SIZE) return false;
    room = (use.count > s->use_room ? use.count : s->use_room) + FIRST_USES;
  }
  return false;
}

// Makes the call of older drivers, which lacks jpeg and ofa.
static void read_uses_old(brim_top_gpu_state *s) {
  for (unsigned room = FIRST_USES; room <= MOST_USES && reserve_uses(s, room);) {
    brim_nvml_process_use *list = (brim_nvml_process_use *)brim_calloc(room, sizeof *list);
    if (!list) return;
    unsigned count = room;
    bool good = ASK(s, process_use, s->device, list, &count, s->use_since_us);
    s->use_old = true;
    for (unsigned i = 0; good && i < count && i < room; i++) {
      s->uses[s->use_count++] = (brim_nvml_process_use_v1){.time_us = list[i].time_us,
                                                           .pid = list[i].pid,
                                                           .sm = list[i].sm,
                                                           .memory = list[i].memory,
                                                           .encoder = list[i].encoder,
                                                           .decoder = list[i].decoder};
    }
    brim_free(list);
    if (good || !s->api.process_use || s->last_code != BRIM_NVML_INSUFFICIENT_SIZE) return;
    room = (count > room ? count : room) + FIRST_USES;
  }
}

// Reads each process's use of the GPU since the last reading.
static void read_uses(brim_top_gpu_state *s) {
  s->use_count = 0;
  s->use_old = false;
  if (s->lost || s->has_slices) return;
  if (!read_uses_new(s) && !s->api.processes_use) read_uses_old(s);
  for (unsigned i = 0; i < s->use_count; i++) {
    if (s->uses[i].time_us > s->use_since_us) s->use_since_us = s->uses[i].time_us;
  }
}

// The newest entry of a process; NULL if the process did nothing since the last reading, or its use is unknown. Some
// drivers fill rows with garbage, recognised by percentages above 100.
static const brim_nvml_process_use_v1 *use_of(const brim_top_gpu_state *state, uint32_t pid) {
  const brim_nvml_process_use_v1 *found = NULL;
  for (unsigned i = 0; i < state->use_count; i++) {
    const brim_nvml_process_use_v1 *use = &state->uses[i];
    if (use->pid != pid || pid == 0 || use->sm > 100 || use->memory > 100) continue;
    if (!found || use->time_us > found->time_us) found = use;
  }
  return found;
}

// `parent`: the GPU that a slice belongs to; NULL for a whole GPU.
static void gpu_open(brim_top_gpu_state *s, brim_gpu_monitor *monitor, void *device,
                     const brim_top_gpu_state *parent, int64_t index) {
  memset(s, 0, sizeof *s);
  s->monitor = monitor;
  s->device = device;
  s->api = monitor->api;
  s->energy_last_j = s->energy_sum_j = s->pcie_tx = s->pcie_rx = (double)NAN;
  brim_top_gpu_init(&s->slow);
  s->slow.index = index;
  s->slow.slice = flag(parent != NULL);
  s->slow.lost = BRIM_TOP_NO;
  read_fixed(s);
  unsigned instance = 0;
  if (!parent) {
    brim_gpm_open(&s->gpm, monitor, device, NULL);
  } else if (ASK(s, gpu_instance, device, &instance)) {
    brim_gpm_open(&s->gpm, monitor, parent->device, &instance);
  }
}

// A lost GPU keeps only its name and place.
static void forget(brim_top_gpu_state *s, brim_top_gpu *out) {
  const brim_top_gpu *from = &s->slow;
  brim_top_gpu_init(out);
  out->index = from->index;
  memcpy(out->uuid, from->uuid, sizeof out->uuid);
  memcpy(out->name, from->name, sizeof out->name);
  memcpy(out->bus, from->bus, sizeof out->bus);
  out->slice = from->slice;
  out->lost = BRIM_TOP_YES;
}

// `turn`: this reading may wait for PCIe rates; else it repeats the last rates.
static void gpu_read(brim_top_gpu_state *s, unsigned want, bool turn, int64_t now_ns,
                     brim_top_gpu *out) {
  s->answers = s->asked = 0;
  if (!s->started || now_ns - s->slow_ns >= BRIM_TOP_SLOW_NS) {
    s->started = true;
    s->slow_ns = now_ns;
    read_ecc(s);
    read_repairs(s);
    read_modes(s);
    read_energy(s, &s->slow);  // takes 5 ms on an H200, half the budget of a reading
  }
  *out = s->slow;
  read_use(s, out);
  read_memory(s, out);
  read_temperatures(s, out);
  read_reasons(s, out);
  out->power_violation_percent =
      read_violation(s, BRIM_NVML_POLICY_POWER, &s->power, &s->power_known);
  out->thermal_violation_percent =
      read_violation(s, BRIM_NVML_POLICY_THERMAL, &s->thermal, &s->thermal_known);
  if (want & BRIM_TOP_WANT_ACTIVITY) {
    read_activity(s, out);
  } else {
    s->gpm_marked = false;  // the old sample is too old for the next interval
  }
  if (waits_for_pcie(s, want)) {
    if (turn) {
      read_pcie(s, out);
    } else {
      out->pcie_tx = s->pcie_tx;
      out->pcie_rx = s->pcie_rx;
    }
  }
  s->silent = s->answers > 0 || s->asked == 0 ? 0 : s->silent + 1;
  if (s->silent >= SILENT_READINGS) s->lost = true;
  if (s->lost) forget(s, out);
}

//---------------------------------- processes ----------------------------------
// Processes on GPUs by NVML, brim's jobs, and without a GPU the busiest ones. /proc is read for these processes
// alone: owner, command and container once, then one file per reading. The driver numbers processes as the machine
// does. In a container that number may belong to another process, so brim believes it only if the process holds a
// GPU.

typedef struct brim_top_known {
  uint32_t pid;
  double start_ticks;  // distinguishes a process from a later one with the same PID
  brim_top_flag elsewhere;
  char user[64], container[64], command[256];
  double cpu_ticks, cpu_percent, rss, elapsed_s;
  int64_t time_ns;
  uint64_t reading;  // number of the last reading that had the process
  bool here;         // the PID is of this namespace: brim's job, or found in /proc
} brim_top_known;

// CPU time that a process has used.
typedef struct brim_top_ticks {
  uint32_t pid;
  double start, used;
} brim_top_ticks;

typedef struct brim_top_processes {
  char root[BRIM_GPU_ROOT_BYTES];
  int64_t namespace_id;  // this process's PID namespace; -1 = unknown
  bool shared_pids;      // the driver's PIDs are valid here: this is the machine's own namespace
  brim_top_known *known;
  size_t count, room;
  uint64_t reading;
  brim_top_ticks *ticks;  // of all processes at the last reading, by PID; only without a GPU
  size_t tick_count;
  int64_t ticks_ns;
} brim_top_processes;

enum { TEXT_BYTES = 4096, MOST_FDS = 4096 };

// The machine's own PID namespace always has this number (PROC_PID_INIT_INO).
static const char MACHINE_NAMESPACE[] = "pid:[4026531836]";

static size_t read_link(const char *root, const char *path, char *out, size_t size) {
  char full[BRIM_TOP_PATH_BYTES];
  snprintf(full, sizeof full, "%.255s%.255s", root, path);
  ssize_t n = readlink(full, out, size - 1);
  out[n > 0 ? n : 0] = '\0';
  return n > 0 ? (size_t)n : 0;
}

static void processes_open(brim_top_processes *state, const char *root) {
  char name[64];
  long long number = -1;
  memset(state, 0, sizeof *state);
  snprintf(state->root, sizeof state->root, "%s", root);
  state->shared_pids = read_link(root, "/proc/self/ns/pid", name, sizeof name) > 0 &&
                       strcmp(name, MACHINE_NAMESPACE) == 0;
  state->namespace_id = sscanf(name, "pid:[%lld]", &number) == 1 ? (int64_t)number : -1;
}

// Says whether the process has a GPU open; unknown if its files cannot be read.
static brim_top_flag holds_gpu(const char *root, uint32_t pid) {
  char path[BRIM_TOP_PATH_BYTES], name[64];
  snprintf(path, sizeof path, "%s/proc/%u/fd", root, pid);
  DIR *dir = opendir(path);
  if (!dir) return BRIM_TOP_UNKNOWN;
  brim_top_flag holds = BRIM_TOP_NO;
  int looked = 0;
  for (struct dirent *e = readdir(dir); e && holds == BRIM_TOP_NO; e = readdir(dir)) {
    if (e->d_name[0] == '.') continue;
    if (looked++ == MOST_FDS) holds = BRIM_TOP_UNKNOWN;
    snprintf(path, sizeof path, "/proc/%u/fd/%.32s", pid, e->d_name);
    read_link(root, path, name, sizeof name);
    if (brim_str_starts(name, "/dev/nvidia") || brim_str_starts(name, "/dev/dxg")) {
      holds = BRIM_TOP_YES;
    }
  }
  closedir(dir);
  return holds;
}

typedef struct proc_stat {
  double cpu_ticks, start_ticks, rss_pages;
} proc_stat;

// Parses "4711 (python) S 1 ...", where the name may contain spaces and parentheses.
static bool read_stat(const char *root, uint32_t pid, proc_stat *out) {
  char path[64], text[TEXT_BYTES];
  unsigned long long user = 0, system = 0, start = 0;
  long long rss = 0;
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  if (pid == 0 || !brim_machine_read_text(root, path, text, sizeof text)) return false;
  const char *rest = strrchr(text, ')');
  if (!rest || sscanf(rest + 1,
                      " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d "
                      "%*d %llu %*u %lld",
                      &user, &system, &start, &rss) != 4) {
    return false;
  }
  *out = (proc_stat){(double)(user + system), (double)start, (double)rss};
  return true;
}

static void identify(const brim_top_processes *s, brim_top_known *k) {
  char path[64], text[TEXT_BYTES];
  brim_gpu_process p = {.pid = k->pid};
  brim_top_flag here = BRIM_TOP_YES;
  bool sure = s->shared_pids || k->here || k->pid == (uint32_t)getpid();
  if (!sure) here = holds_gpu(s->root, k->pid);
  k->elsewhere = here == BRIM_TOP_YES  ? BRIM_TOP_NO
                 : here == BRIM_TOP_NO ? BRIM_TOP_YES
                                       : BRIM_TOP_UNKNOWN;
  k->user[0] = k->command[0] = k->container[0] = '\0';
  if (here != BRIM_TOP_YES) return;
  brim_gpu_identify(s->root, &p);
  snprintf(k->user, sizeof k->user, "%s", p.user);
  snprintf(k->command, sizeof k->command, "%s", p.command);
  snprintf(path, sizeof path, "/proc/%u/cgroup", k->pid);
  if (brim_machine_read_text(s->root, path, text, sizeof text)) {
    brim_top_container(text, k->container, sizeof k->container);
  }
}

// Finds the entry of a process, or adds it.
static brim_top_known *find(brim_top_processes *s, uint32_t pid) {
  for (size_t i = 0; i < s->count; i++) {
    if (s->known[i].pid == pid) return &s->known[i];
  }
  if (s->count == s->room) {
    size_t room = s->room ? s->room * 2 : 16;
    brim_top_known *known = (brim_top_known *)brim_realloc(s->known, room * sizeof *known);
    if (!known) return NULL;
    s->known = known;
    s->room = room;
  }
  brim_top_known *k = &s->known[s->count++];
  memset(k, 0, sizeof *k);
  k->pid = pid;
  k->start_ticks = (double)NAN;
  return k;
}

// Updates a process once per reading, however many GPUs it is on.
static void refresh(brim_top_processes *s, brim_top_known *k, int64_t now_ns, double uptime_s) {
  if (k->reading == s->reading) return;
  k->reading = s->reading;
  const double hz = (double)sysconf(_SC_CLK_TCK), page = (double)sysconf(_SC_PAGESIZE);
  proc_stat stat;
  double ticks = k->cpu_ticks, passed = (double)(now_ns - k->time_ns) * 1e-9;
  k->cpu_percent = k->rss = k->elapsed_s = (double)NAN;
  if (!read_stat(s->root, k->pid, &stat)) {
    // the process is in another container, or has just ended
    k->elsewhere = BRIM_TOP_YES;
    k->user[0] = k->command[0] = k->container[0] = '\0';
    k->start_ticks = (double)NAN;
    return;
  }
  bool same = stat.start_ticks == k->start_ticks;
  if (!same) identify(s, k);
  k->start_ticks = stat.start_ticks;
  k->cpu_ticks = stat.cpu_ticks;
  k->time_ns = now_ns;
  if (k->elsewhere != BRIM_TOP_NO) return;
  k->rss = stat.rss_pages * page;
  k->elapsed_s = hz > 0 ? fmax(0, uptime_s - stat.start_ticks / hz) : (double)NAN;
  if (same && hz > 0 && passed > 0 && stat.cpu_ticks >= ticks) {
    k->cpu_percent = (stat.cpu_ticks - ticks) / hz / passed * 100;
  }
}

static void forget_old(brim_top_processes *s) {
  size_t kept = 0;
  for (size_t i = 0; i < s->count; i++) {
    if (s->known[i].reading != s->reading) continue;
    if (kept != i) s->known[kept] = s->known[i];
    kept++;
  }
  s->count = kept;
}

static void set_type(brim_top_process *to, const char *type) {
  if (!strcmp(to->type, type)) return;
  if (!to->type[0] || !strcmp(to->type, "C")) {
    // the list of computing processes comes first; an MPS client may be in both
    const char *both = !to->type[0] ? type : !strcmp(type, "G") ? "C+G" : type;
    snprintf(to->type, sizeof to->type, "%s", both);
  }
}

static double larger(double a, double b) { return isnan(a) ? b : isnan(b) ? a : fmax(a, b); }

// Finds the entry of a process on this GPU, or adds it if no other list had the process.
static brim_top_process *add(brim_top_view *view, size_t first, const brim_top_gpu_state *gpu,
                             const brim_nvml_process *from) {
  for (size_t i = first; i < view->process_count; i++) {
    if (view->processes[i].pid == from->pid && from->pid != 0) return &view->processes[i];
  }
  brim_top_process *p = brim_top_view_add_process(view);
  if (!p) return NULL;
  p->pid = from->pid;
  p->gpu = gpu->slow.index;
  snprintf(p->uuid, sizeof p->uuid, "%s", gpu->slow.uuid);
  return p;
}

static void fill_use(const brim_top_gpu_state *gpu, brim_top_process *p) {
  const brim_nvml_process_use_v1 *use = use_of(gpu, (uint32_t)p->pid);
  if (!use) return;
  p->sm_percent = use->sm;
  p->memory_busy_percent = use->memory;
  p->encoder_percent = use->encoder;
  p->decoder_percent = use->decoder;
  if (gpu->use_old) return;
  p->jpeg_percent = use->jpeg;
  p->ofa_percent = use->ofa;
}

static brim_status read_gpu(brim_top_gpu_state *gpu, brim_top_view *view) {
  const struct {
    brim_nvml_list_call call;
    const char *type;
  } lists[] = {{gpu->api.compute, "C"}, {gpu->api.graphics, "G"}, {gpu->api.mps, "M"}};
  size_t first = view->process_count;
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < sizeof lists / sizeof *lists && !status; i++) {
    brim_nvml_process *list = NULL;
    unsigned count = 0;
    if (!lists[i].call || gpu->lost) continue;
    int code = brim_gpu_read_list(lists[i].call, gpu->device, &list, &count);
    if (code == BRIM_GPU_LIST_NO_MEMORY) status = BRIM_ENOMEM;
    for (unsigned k = 0; k < count && !status; k++) {
      brim_top_process *p = add(view, first, gpu, &list[k]);
      if (!p) {
        status = BRIM_ENOMEM;
        break;
      }
      unsigned long long bytes = list[k].used_bytes;
      p->memory = larger(p->memory, bytes == BRIM_NVML_UNKNOWN ? (double)NAN : (double)bytes);
      set_type(p, lists[i].type);
    }
    brim_free(list);
  }
  if (status) return brim_fail(status, "out of memory for the processes of a GPU");
  if (view->process_count > first) read_uses(gpu);
  for (size_t i = first; i < view->process_count; i++) fill_use(gpu, &view->processes[i]);
  return BRIM_OK;
}

// Adds brim's jobs that no GPU lists.
static brim_status add_jobs(brim_top_processes *s, brim_top_view *view) {
  for (size_t i = 0; i < view->job_count; i++) {
    const brim_job *job = &view->jobs[i];
    bool here = s->namespace_id >= 0 && job->pid_namespace == s->namespace_id;
    if (!here || job->pid <= 0 || job->pid > INT32_MAX) continue;
    brim_top_known *k = find(s, (uint32_t)job->pid);
    if (!k) return brim_fail(BRIM_ENOMEM, "out of memory for the processes of a GPU");
    if (!k->here) k->start_ticks = (double)NAN;  // identify it again: its PID is certain now
    k->here = true;
    bool listed = false;
    for (size_t n = 0; n < view->process_count; n++) listed |= view->processes[n].pid == job->pid;
    brim_top_process *p = listed ? NULL : brim_top_view_add_process(view);
    if (!listed && !p) return brim_fail(BRIM_ENOMEM, "out of memory for the processes of a GPU");
    if (p) p->pid = job->pid;
  }
  return BRIM_OK;
}

enum { BUSIEST = 10, MOST_PIDS = 65536 };

static int by_pid(const void *a, const void *b) {
  const brim_top_ticks *x = (const brim_top_ticks *)a, *y = (const brim_top_ticks *)b;
  return (x->pid > y->pid) - (x->pid < y->pid);
}

// Reads the CPU times of all processes, sorted by PID. Kernel threads are left out, since they have no memory.
static brim_status read_ticks(const brim_top_processes *s, brim_top_ticks **out, size_t *count) {
  char path[BRIM_TOP_PATH_BYTES];
  size_t room = 0;
  *out = NULL;
  *count = 0;
  snprintf(path, sizeof path, "%s/proc", s->root);
  DIR *dir = opendir(path);
  if (!dir) return BRIM_OK;
  brim_status status = BRIM_OK;
  for (struct dirent *e = readdir(dir); e && *count < MOST_PIDS; e = readdir(dir)) {
    int64_t pid = 0;
    proc_stat stat;
    if (e->d_name[0] < '1' || e->d_name[0] > '9' || !brim_parse_i64(e->d_name, &pid) ||
        pid > INT32_MAX || !read_stat(s->root, (uint32_t)pid, &stat) || stat.rss_pages <= 0) {
      continue;
    }
    if (*count == room) {
      room = room ? 2 * room : 256;
      brim_top_ticks *more = (brim_top_ticks *)brim_realloc(*out, room * sizeof *more);
      if (!more) {
        status = brim_fail(BRIM_ENOMEM, "out of memory for processes");
        break;
      }
      *out = more;
    }
    (*out)[(*count)++] = (brim_top_ticks){(uint32_t)pid, stat.start_ticks, stat.cpu_ticks};
  }
  closedir(dir);
  if (!status && *count > 0) qsort(*out, *count, sizeof **out, by_pid);
  return status;
}

static double used_since(const brim_top_processes *s, const brim_top_ticks *now) {
  const brim_top_ticks *before =
      s->tick_count > 0
          ? (const brim_top_ticks *)bsearch(now, s->ticks, s->tick_count, sizeof *now, by_pid)
          : NULL;
  return before && before->start == now->start ? now->used - before->used : 0;
}

// Adds the processes that used the CPU most since the last reading.
static brim_status add_busiest(brim_top_processes *s, int64_t now_ns, brim_top_view *view) {
  const double hz = (double)sysconf(_SC_CLK_TCK), passed = (double)(now_ns - s->ticks_ns) * 1e-9;
  brim_top_ticks *now = NULL;
  size_t count = 0;
  double most[BUSIEST] = {0};
  uint32_t pids[BUSIEST] = {0};
  brim_status status = read_ticks(s, &now, &count);
  for (size_t i = 0; i < count && !status; i++) {
    double used = used_since(s, &now[i]);
    uint32_t pid = now[i].pid;
    for (size_t k = 0; k < BUSIEST && used > 0; k++) {
      if (used <= most[k]) continue;
      const double was = most[k];
      const uint32_t other = pids[k];
      most[k] = used, pids[k] = pid;
      used = was, pid = other;
    }
  }
  for (size_t k = 0; k < BUSIEST && pids[k] && !status; k++) {
    bool listed = false;
    for (size_t n = 0; n < view->process_count; n++) listed |= view->processes[n].pid == pids[k];
    if (listed) continue;
    brim_top_known *known = find(s, pids[k]);
    brim_top_process *p = known ? brim_top_view_add_process(view) : NULL;
    if (!p) {
      status = brim_fail(BRIM_ENOMEM, "out of memory for processes");
      break;
    }
    if (!known->here) known->start_ticks = (double)NAN;
    known->here = true;
    p->pid = pids[k];
    if (hz > 0 && passed > 0) p->cpu_percent = most[k] / hz / passed * 100;
  }
  brim_free(s->ticks);
  s->ticks = status ? NULL : now;
  s->tick_count = status ? 0 : count;
  s->ticks_ns = now_ns;
  if (status) brim_free(now);
  return status;
}

static brim_status read_processes(brim_top_processes *state, brim_top_gpu_state *gpus, size_t count,
                                  int64_t now_ns, brim_top_view *view) {
  state->reading++;
  for (size_t i = 0; i < count; i++) {
    if (!gpus[i].has_slices) BRIM_TRY(read_gpu(&gpus[i], view));
  }
  BRIM_TRY(add_jobs(state, view));
  if (count == 0) BRIM_TRY(add_busiest(state, now_ns, view));
  for (size_t i = 0; i < view->process_count; i++) {
    brim_top_process *p = &view->processes[i];
    brim_top_known *k = find(state, (uint32_t)p->pid);
    if (!k) return brim_fail(BRIM_ENOMEM, "out of memory for the processes of a GPU");
    refresh(state, k, now_ns, view->host.uptime_s);
    p->elsewhere = k->elsewhere;
    memcpy(p->user, k->user, sizeof p->user);
    memcpy(p->container, k->container, sizeof p->container);
    memcpy(p->command, k->command, sizeof p->command);
    if (!isnan(k->cpu_percent)) p->cpu_percent = k->cpu_percent;
    p->rss = k->rss;
    p->elapsed_s = k->elapsed_s;
  }
  forget_old(state);
  return BRIM_OK;
}

//---------------------------------- jobs ----------------------------------

static brim_status add_job(void *ctx, const brim_job *job) {
  brim_top_view *view = (brim_top_view *)ctx;
  brim_job *more = brim_top_view_add_job(view);
  if (!more) return brim_fail(BRIM_ENOMEM, "out of memory");
  *more = *job;
  return BRIM_OK;
}

static brim_status read_jobs(brim_top_view *view) {
  size_t more = 0;
  char text[160];
  BRIM_TRY(brim_jobs_each(brim_clock_wall_s(), add_job, view, &more));
  if (more == 0) return BRIM_OK;
  snprintf(text, sizeof text, brim_tr("brim jobs that are not shown: %zu"), more);
  return brim_top_view_note(view, text);
}

//---------------------------------- the machine ----------------------------------

// Parts with counters, which the opening reads once.
enum { FIRST_WANT = BRIM_TOP_WANT_PROCESSES | BRIM_TOP_WANT_ACTIVITY | BRIM_TOP_WANT_JOBS };
enum { MOST_GPUS = 256, MOST_EVENTS = 64, PCIE_TURNS = 2 };

typedef struct machine {
  int64_t (*clock)(void);  // NULL = CLOCK_MONOTONIC
  brim_gpu_monitor *monitor;
  char driver[64];
  brim_top_host_state host;
  brim_top_gpu_state *gpus;
  size_t gpu_count, gpu_room;
  size_t pcie_next;  // the GPU whose PCIe rates are measured next
  brim_top_processes processes;
  void *event_set;         // for Xid events; NULL = they cannot be watched
  int64_t xid[MOST_GPUS];  // same order as `gpus`
  brim_top_flag watched[MOST_GPUS];
  brim_top_event events[MOST_EVENTS];  // the oldest first
  size_t event_count;
  char note[160];  // why there are no GPUs
  brim_top_view last;
  int64_t last_ns;
} machine;

static int64_t now_ns(const machine *m) { return m->clock ? m->clock() : brim_clock_now().ns; }

BRIM_PRINTF(5, 6)
static void add_event(machine *m, int64_t gpu, const char *kind, int64_t code, const char *fmt,
                      ...) {
  if (m->event_count == MOST_EVENTS) {
    memmove(m->events, m->events + 1, (MOST_EVENTS - 1) * sizeof *m->events);
    m->event_count--;
  }
  brim_top_event *e = &m->events[m->event_count++];
  memset(e, 0, sizeof *e);
  e->when_s = m->clock ? (double)m->clock() * 1e-9 : brim_clock_wall_s();
  e->gpu = gpu;
  e->code = code;
  snprintf(e->kind, sizeof e->kind, "%s", kind);
  va_list args;
  va_start(args, fmt);
  vsnprintf(e->text, sizeof e->text, fmt, args);
  va_end(args);
}

// NVIDIA's names of the Xid errors that matter to a training.
static const char *xid_text(unsigned long long xid) {
  static const struct {
    unsigned xid;
    const char *text;
  } rows[] = {{13, "graphics engine exception"},
              {31, "memory page fault"},
              {43, "GPU stopped processing"},
              {45, "preemptive cleanup of a program"},
              {48, "double-bit ECC error"},
              {62, "internal micro-controller halt"},
              {63, "row remapping recorded"},
              {64, "row remapping failed"},
              {74, "NVLink error"},
              {79, "GPU has fallen off the bus"},
              {92, "high rate of single-bit ECC errors"},
              {94, "contained ECC error"},
              {95, "uncontained ECC error"},
              {119, "timeout of the GPU's system processor"},
              {120, "error of the GPU's system processor"},
              {140, "unrecovered ECC error"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].xid == xid) return rows[i].text;
  }
  return "see NVIDIA's list of Xid errors";
}

static void open_events(machine *m) {
  const brim_nvml_api *a = &m->monitor->api;
  bool can = a->event_create && a->event_free && a->event_register && a->event_wait;
  if (can && a->event_create(&m->event_set) != BRIM_NVML_SUCCESS) m->event_set = NULL;
  for (size_t i = 0; i < m->gpu_count; i++) {
    m->xid[i] = -1;
    if (m->gpus[i].slow.slice == BRIM_TOP_YES) continue;
    int code = BRIM_NVML_NOT_SUPPORTED;
    if (m->event_set) {
      code = a->event_register(m->gpus[i].device, BRIM_NVML_EVENT_XID, m->event_set);
    }
    m->watched[i] = code == BRIM_NVML_SUCCESS ? BRIM_TOP_YES : BRIM_TOP_NO;
  }
}

// Takes the events since the last reading. Never waits.
static void read_events(machine *m) {
  if (!m->event_set) return;
  for (int taken = 0; taken < MOST_EVENTS; taken++) {
    brim_nvml_event event = {.device = NULL};
    if (m->monitor->api.event_wait(m->event_set, &event, 0) != BRIM_NVML_SUCCESS) return;
    if (!(event.type & BRIM_NVML_EVENT_XID)) continue;
    int64_t index = -1;
    for (size_t i = 0; i < m->gpu_count; i++) {
      if (m->gpus[i].device != event.device) continue;
      m->xid[i] = (int64_t)event.data;
      index = m->gpus[i].slow.index;
    }
    add_event(m, index, "xid", (int64_t)event.data, "Xid %llu: %s", event.data,
              xid_text(event.data));
  }
}

static bool grew(int64_t before, int64_t now) { return before >= 0 && now > before; }
static bool rose(brim_top_flag before, brim_top_flag now) {
  return before == BRIM_TOP_NO && now == BRIM_TOP_YES;
}

// Adds events for changed counters and flags, for which the driver sends no events.
static void add_changes(machine *m, const brim_top_gpu *a, const brim_top_gpu *b) {
  if (rose(a->lost, b->lost)) {
    add_event(m, b->index, "lost", -1, "the driver no longer answers for this GPU");
  }
  if (grew(a->ecc_corrected, b->ecc_corrected)) {
    add_event(m, b->index, "ecc_corrected", -1, "%lld corrected ECC errors",
              (long long)(b->ecc_corrected - a->ecc_corrected));
  }
  if (grew(a->ecc_uncorrected, b->ecc_uncorrected)) {
    add_event(m, b->index, "ecc_uncorrected", -1, "%lld uncorrected ECC errors",
              (long long)(b->ecc_uncorrected - a->ecc_uncorrected));
  }
  if (rose(a->remap_pending, b->remap_pending)) {
    add_event(m, b->index, "row_remap", -1, "row remap pending: reset the GPU");
  }
  if (rose(a->remap_failed, b->remap_failed)) {
    add_event(m, b->index, "row_remap", -1, "row remap failed: replace the GPU");
  }
  if (grew(a->retired_pages, b->retired_pages)) {
    add_event(m, b->index, "retired_pages", -1, "%lld memory pages retired",
              (long long)(b->retired_pages - a->retired_pages));
  }
}

static brim_top_gpu_state *add_gpu(machine *m) {
  if (m->gpu_count == m->gpu_room) {
    size_t room = m->gpu_room ? m->gpu_room * 2 : 8;
    void *gpus = brim_realloc(m->gpus, room * sizeof *m->gpus);
    if (!gpus) return NULL;
    m->gpus = (brim_top_gpu_state *)gpus;
    m->gpu_room = room;
  }
  return &m->gpus[m->gpu_count++];
}

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
}

static brim_status open_slices(machine *m, size_t parent) {
  const brim_nvml_api *a = &m->monitor->api;
  void *device = m->gpus[parent].device;
  const int slots = brim_gpu_mig_slots(a, device);
  for (int i = 0; i < slots && m->gpu_count < MOST_GPUS; i++) {
    void *slice = NULL;
    if (a->mig_by_index(device, (unsigned)i, &slice) != BRIM_NVML_SUCCESS) continue;
    brim_top_gpu_state *s = add_gpu(m);
    if (!s) return no_memory();
    m->gpus[parent].has_slices = true;
    gpu_open(s, m->monitor, slice, &m->gpus[parent], m->gpus[parent].slow.index);
  }
  return BRIM_OK;
}

static brim_status open_gpus(machine *m) {
  const brim_nvml_api *a = &m->monitor->api;
  unsigned count = 0;
  if (!a->device_count || !a->by_index || a->device_count(&count) != BRIM_NVML_SUCCESS) count = 0;
  for (unsigned i = 0; i < count && m->gpu_count < MOST_GPUS; i++) {
    void *device = NULL;
    int code = a->by_index(i, &device);
    if (code != BRIM_NVML_SUCCESS) {
      snprintf(m->note, sizeof m->note, brim_tr("GPU %u does not answer: %s"), i,
               brim_gpu_error_text(m->monitor, code));
      continue;
    }
    brim_top_gpu_state *s = add_gpu(m);
    if (!s) return no_memory();
    gpu_open(s, m->monitor, device, NULL, i);
    BRIM_TRY(open_slices(m, m->gpu_count - 1));
  }
  if (count == 0)
    snprintf(m->note, sizeof m->note, "%s", brim_tr("the NVIDIA driver lists no GPU"));
  open_events(m);
  return BRIM_OK;
}

static brim_status open_monitor(machine *m, const char *root, const brim_nvml_api *api) {
  brim_status status =
      api ? brim_gpu_monitor_open_api(api, root, &m->monitor) : brim_gpu_monitor_open(&m->monitor);
  if (status == BRIM_EUNSUPPORTED) {
    snprintf(m->note, sizeof m->note, "%s",
             brim_tr("no NVIDIA driver found: only the host is shown"));
    return BRIM_OK;
  }
  BRIM_TRY(status);
  snprintf(m->monitor->root, sizeof m->monitor->root, "%s", root);
  brim_gpu_driver(m->monitor, m->driver, sizeof m->driver);
  return open_gpus(m);
}

static brim_status add_notes(machine *m, unsigned want, brim_top_view *view) {
  char text[160];
  size_t whole = 0, without_gpm = 0, unwatched = 0, foreign = 0;
  if (m->note[0]) BRIM_TRY(brim_top_view_note(view, m->note));
  for (size_t i = 0; i < m->gpu_count; i++) {
    if (m->gpus[i].lost || m->gpus[i].slow.slice == BRIM_TOP_YES) continue;
    whole++;
    without_gpm += !m->gpus[i].gpm.on;
    unwatched += m->watched[i] == BRIM_TOP_NO;
  }
  for (size_t i = 0; i < view->process_count; i++) {
    foreign += view->processes[i].elsewhere != BRIM_TOP_NO;
  }
  if (without_gpm && (want & BRIM_TOP_WANT_ACTIVITY)) {
    snprintf(text, sizeof text,
             brim_tr("%zu of %zu GPUs have no GPM counters: activity of SMs, tensor pipes and DRAM "
                     "is unknown"),
             without_gpm, whole);
    BRIM_TRY(brim_top_view_note(view, text));
  }
  if (unwatched) {
    snprintf(text, sizeof text, brim_tr("Xid errors of %zu of %zu GPUs cannot be watched here"),
             unwatched, whole);
    BRIM_TRY(brim_top_view_note(view, text));
  }
  if (foreign) {
    BRIM_TRY(brim_top_view_note(
        view, brim_tr("processes of other containers show only what the driver tells")));
  }
  return BRIM_OK;
}

// Chooses the GPUs whose PCIe rates this reading measures. Measuring eight GPUs would take a third of a second, so
// after their first value they take turns.
static void give_turns(machine *m, unsigned want, bool *turns) {
  size_t given = 0, first = m->pcie_next;
  for (size_t i = 0; i < m->gpu_count; i++) turns[i] = isnan(m->gpus[i].pcie_tx);
  for (size_t k = 0; k < m->gpu_count && given < PCIE_TURNS; k++) {
    size_t i = (first + k) % m->gpu_count;
    if (turns[i] || !waits_for_pcie(&m->gpus[i], want)) continue;
    turns[i] = true;
    given++;
    m->pcie_next = i + 1;
  }
}

static brim_status read_gpus(machine *m, unsigned want, int64_t now, brim_top_view *view) {
  bool turns[MOST_GPUS];
  give_turns(m, want, turns);
  for (size_t i = 0; i < m->gpu_count; i++) {
    brim_top_gpu *gpu = brim_top_view_add_gpu(view);
    if (!gpu) return no_memory();
    gpu_read(&m->gpus[i], want, turns[i], now, gpu);
    gpu->xid = m->xid[i];
    gpu->xid_watched = m->watched[i];
    if (i < m->last.gpu_count) add_changes(m, &m->last.gpus[i], gpu);
  }
  return BRIM_OK;
}

static brim_status machine_read(void *ctx, unsigned want, brim_top_view *out) {
  machine *m = (machine *)ctx;
  int64_t now = now_ns(m);
  brim_top_view_clear(out);
  out->when_s = m->clock ? (double)now * 1e-9 : brim_clock_wall_s();
  out->interval_s = m->last_ns ? (double)(now - m->last_ns) * 1e-9 : (double)NAN;
  snprintf(out->driver, sizeof out->driver, "%s", m->driver);
  brim_top_host_read(&m->host, now, &out->host);
  if (m->monitor) {
    read_events(m);
    BRIM_TRY(read_gpus(m, want, now, out));
  }
  if (want & BRIM_TOP_WANT_JOBS) BRIM_TRY(read_jobs(out));
  if (want & BRIM_TOP_WANT_PROCESSES) {
    BRIM_TRY(read_processes(&m->processes, m->gpus, m->gpu_count, now, out));
  }
  for (size_t i = 0; i < m->event_count; i++) {
    brim_top_event *event = brim_top_view_add_event(out);
    if (!event) return no_memory();
    *event = m->events[i];
  }
  BRIM_TRY(add_notes(m, want, out));
  brim_top_view_derive(out, m->last_ns ? &m->last : NULL);
  m->last_ns = now;
  return brim_top_view_copy(out, &m->last);
}

static void machine_close(void *ctx) {
  machine *m = (machine *)ctx;
  for (size_t i = 0; i < m->gpu_count; i++) {
    brim_gpm_close(&m->gpus[i].gpm);
    brim_free(m->gpus[i].uses);
  }
  brim_free(m->gpus);
  brim_free(m->processes.known);
  brim_free(m->processes.ticks);
  if (m->event_set) m->monitor->api.event_free(m->event_set);
  brim_gpu_monitor_close(m->monitor);
  brim_top_view_deinit(&m->last);
  brim_free(m);
}

brim_status brim_top_open_machine(const char *root, const struct brim_nvml_api *api,
                                  brim_top_source *out) {
  memset(out, 0, sizeof *out);
  if (strlen(root) >= BRIM_GPU_ROOT_BYTES) {
    return brim_fail(BRIM_EINVAL, "the name of the folder that holds proc is too long");
  }
  machine *m = (machine *)brim_calloc(1, sizeof *m);
  if (!m) return no_memory();
  m->clock = api ? api->now_ns : NULL;
  brim_top_view_init(&m->last);
  brim_top_host_open(&m->host, root, now_ns(m));
  processes_open(&m->processes, root);
  brim_top_view first;
  brim_top_view_init(&first);
  // read counters once, so that the first view has rates
  brim_status status = open_monitor(m, root, api);
  if (!status) status = machine_read(m, FIRST_WANT, &first);
  brim_top_view_deinit(&first);
  if (status) {
    machine_close(m);
    return status;
  }
  *out =
      (brim_top_source){.name = "machine", .ctx = m, .read = machine_read, .close = machine_close};
  return BRIM_OK;
}
