// One GPU of the live view by NVML. A call that is not supported is asked once; what changes seldom is
// asked every few seconds; a GPU that is lost keeps its name and nothing else.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/monitor_top_int.h"

enum { SILENT_READINGS = 3, FIRST_USES = 32, MOST_USES = 65536 };
static const double MIB = 1048576;

//---------------------------------- asking ----------------------------------

static bool answered(brim_top_gpu_state *s, int code) {
  s->last_code = code;
  s->asked++;
  if (code == BRIM_NVML_SUCCESS) s->answers++;
  if (brim_nvml_is_lost(code)) s->lost = true;
  return code == BRIM_NVML_SUCCESS;
}

// Asks member `call` of the table if it is there and the GPU is not lost; true when it answered. One
// that never will is dropped.
#define ASK(s, call, ...)                        \
  ((s)->api.call && !(s)->lost &&                \
   (answered((s), (s)->api.call(__VA_ARGS__)) || \
    (brim_nvml_is_final((s)->last_code) && ((s)->api.call = NULL, false))))

// A call that gives one unsigned, as a number or as a count.
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

//---------------------------------- what never changes ----------------------------------

// "00000000:3B:00.0" to the name of the folder in /sys, "0000:3b:00.0".
static int64_t read_numa(const brim_gpu_monitor *m, const brim_nvml_pci *pci) {
  char path[128], text[32];
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node", pci->domain,
           pci->bus, pci->device);
  int64_t node = -1;
  if (!brim_machine_read_text(m->root, path, text, sizeof text)) return -1;
  text[strcspn(text, "\n")] = '\0';
  return brim_parse_i64(text, &node) ? node : -1;
}

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

//---------------------------------- what changes seldom ----------------------------------

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

// Pages were retired until Ampere, whose successors remap rows. Without room for addresses the call
// tells how many there are.
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

//---------------------------------- what changes ----------------------------------

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

// The counter is in millijoules. It falls when the driver is loaded again or it wraps: what was
// between is not known and not added.
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
  if (bits) to->throttle |= 1u << BRIM_TOP_THROTTLE_OTHER;  // of a later driver
}

// Share of the time since the last reading, by the driver's own clock.
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

//---------------------------------- GPM and PCIe ----------------------------------

// The sample of this reading is the first one of the next.
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
  // a reading too soon keeps the older sample
  int64_t now = s->api.now_ns ? s->api.now_ns() : brim_clock_now().ns;
  if (marked && now - before_ns < BRIM_GPM_SHORTEST_NS) return;
  if (!answered(s, brim_gpm_take(&s->gpm, s->gpm.second, &time_ns))) {
    s->gpm_marked = false;
    return;
  }
  if (marked && answered(s, brim_gpm_between(&s->gpm, ids, v, COUNT_IDS))) {
    double busy = brim_gpm_percent(v[0]);
    if (isnan(to->gpu_percent)) to->gpu_percent = busy;  // NVML has none for a slice
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

bool brim_top_gpu_waits(const brim_top_gpu_state *state, unsigned want) {
  bool by_gpm = (want & BRIM_TOP_WANT_ACTIVITY) && state->gpm.on && !state->gpm_no_pcie;
  return (want & BRIM_TOP_WANT_PCIE) && !by_gpm && !state->lost && state->api.pcie_throughput;
}

// Waits 20 ms for each direction.
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

//---------------------------------- processes ----------------------------------

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

// The older call, whose rows have no figures for jpeg and ofa.
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

void brim_top_gpu_read_uses(brim_top_gpu_state *state) {
  brim_top_gpu_state *s = state;
  s->use_count = 0;
  s->use_old = false;
  if (s->lost || s->has_slices) return;
  if (!read_uses_new(s) && !s->api.processes_use) read_uses_old(s);
  for (unsigned i = 0; i < s->use_count; i++) {
    if (s->uses[i].time_us > s->use_since_us) s->use_since_us = s->uses[i].time_us;
  }
}

// The newest one: a process may stand there several times. Drivers have been seen to fill rows with
// rubbish, told by figures above 100.
const brim_nvml_process_use_v1 *brim_top_gpu_use(const brim_top_gpu_state *state, uint32_t pid) {
  const brim_nvml_process_use_v1 *found = NULL;
  for (unsigned i = 0; i < state->use_count; i++) {
    const brim_nvml_process_use_v1 *use = &state->uses[i];
    if (use->pid != pid || pid == 0 || use->sm > 100 || use->memory > 100) continue;
    if (!found || use->time_us > found->time_us) found = use;
  }
  return found;
}

//---------------------------------- all of it ----------------------------------

void brim_top_gpu_open(brim_top_gpu_state *state, brim_gpu_monitor *monitor, void *device,
                       const brim_top_gpu_state *parent, int64_t index) {
  brim_top_gpu_state *s = state;
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
    brim_gpm_open(&s->gpm, monitor, device);
  } else if (ASK(s, gpu_instance, device, &instance)) {
    brim_gpm_open_slice(&s->gpm, monitor, parent->device, instance);
  }
}

void brim_top_gpu_close(brim_top_gpu_state *state) {
  brim_gpm_close(&state->gpm);
  brim_free(state->uses);
  memset(state, 0, sizeof *state);
}

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

void brim_top_gpu_read(brim_top_gpu_state *state, unsigned want, bool turn, int64_t now_ns,
                       brim_top_gpu *out) {
  brim_top_gpu_state *s = state;
  s->answers = s->asked = 0;
  if (!s->started || now_ns - s->slow_ns >= BRIM_TOP_SLOW_NS) {
    s->started = true;
    s->slow_ns = now_ns;
    read_ecc(s);
    read_repairs(s);
    read_modes(s);
    read_energy(s, &s->slow);  // 5 ms of a core on an H200: half of what a live view may use
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
    s->gpm_marked = false;  // what was before is not of the next interval
  }
  if (brim_top_gpu_waits(s, want)) {
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
