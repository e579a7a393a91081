// GPUs by NVML: which there are, how they are set up, and the thread that samples one for intervals that others mark.

#include "monitor/monitor_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "monitor/monitor_gpu_setup.h"

//--------------------------------------------- list ---------------------------------------------
// Which GPUs this machine has, by NVML. A GPU in MIG mode runs nothing itself: its slices are listed.

enum { MAX_GPUS = 256, MAX_SLICES = 64 };

typedef struct listing {
  brim_gpu_monitor *monitor;
  brim_gpu_listed *items;
  size_t count, room;
} listing;

static brim_status add(listing *l, void *device, bool slice) {
  brim_gpu_listed item = {.slice = slice};
  const brim_nvml_api *api = &l->monitor->api;
  if (api->uuid(device, item.uuid, sizeof item.uuid - 1) != BRIM_NVML_SUCCESS) return BRIM_OK;
  if (!item.uuid[0]) return BRIM_OK;
  if (!api->name || api->name(device, item.name, sizeof item.name - 1) != BRIM_NVML_SUCCESS) {
    item.name[0] = '\0';
  }
  if (l->count == l->room) {
    size_t room = l->room ? l->room * 2 : 8;
    brim_gpu_listed *items = (brim_gpu_listed *)brim_realloc(l->items, room * sizeof *items);
    if (!items) return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
    l->items = items;
    l->room = room;
  }
  l->items[l->count++] = item;
  return BRIM_OK;
}

static bool in_mig_mode(const brim_nvml_api *api, void *device) {
  unsigned now = 0, pending = 0;
  return api->mig_mode && api->mig_count && api->mig_by_index &&
         api->mig_mode(device, &now, &pending) == BRIM_NVML_SUCCESS && now == 1;
}

static brim_status add_slices(listing *l, void *device) {
  const brim_nvml_api *api = &l->monitor->api;
  unsigned most = 0;
  if (api->mig_count(device, &most) != BRIM_NVML_SUCCESS) return BRIM_OK;
  for (unsigned i = 0; i < most && i < MAX_SLICES; i++) {
    void *slice = NULL;
    // places without a slice are answered with NOT_FOUND
    if (api->mig_by_index(device, i, &slice) != BRIM_NVML_SUCCESS) continue;
    BRIM_TRY(add(l, slice, true));
  }
  return BRIM_OK;
}

static brim_status add_all(listing *l, unsigned count) {
  const brim_nvml_api *api = &l->monitor->api;
  for (unsigned i = 0; i < count && i < MAX_GPUS; i++) {
    void *device = NULL;
    if (api->by_index(i, &device) != BRIM_NVML_SUCCESS) continue;
    if (in_mig_mode(api, device)) {
      BRIM_TRY(add_slices(l, device));
    } else {
      BRIM_TRY(add(l, device, false));
    }
  }
  return BRIM_OK;
}

brim_status brim_gpu_list(brim_gpu_monitor *monitor, brim_gpu_listed **out, size_t *count) {
  *out = NULL;
  *count = 0;
  const brim_nvml_api *api = &monitor->api;
  unsigned n = 0;
  int code = BRIM_NVML_NOT_SUPPORTED;
  if (api->device_count && api->by_index && api->uuid) code = api->device_count(&n);
  if (code != BRIM_NVML_SUCCESS) {
    return brim_fail(BRIM_EUNSUPPORTED, "NVML: %s: %s (%d)", "nvmlDeviceGetCount",
                     brim_gpu_error_text(monitor, code), code);
  }
  listing l = {.monitor = monitor};
  brim_status status = add_all(&l, n);
  if (status) {
    brim_free(l.items);
    return status;
  }
  *out = l.items;
  *count = l.count;
  return BRIM_OK;
}

//-------------------------------------------- setup --------------------------------------------
// How a GPU is set up, as NVML tells it. A call that is missing or fails costs its own fact alone.

typedef int (*unsigned_call)(void *device, unsigned *out);

static double number_of(unsigned_call call, void *device, double scale) {
  unsigned value = 0;
  if (!call || call(device, &value) != BRIM_NVML_SUCCESS) return (double)NAN;
  return (double)value * scale;
}

static int count_of(unsigned_call call, void *device) {
  double value = number_of(call, device, 1);
  return value > 0 && value < 1000 ? (int)value : -1;
}

static brim_gpu_switch switch_of(unsigned value) {
  return value ? BRIM_GPU_SWITCH_ON : BRIM_GPU_SWITCH_OFF;
}

// NVML writes the domain in eight digits and letters in capitals, sysfs four and small ones.
static void read_bus(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  brim_nvml_pci pci;
  memset(&pci, 0, sizeof pci);
  if (!api->pci || api->pci(device, &pci) != BRIM_NVML_SUCCESS) return;
  pci.bus_id[sizeof pci.bus_id - 1] = '\0';
  size_t domain = strcspn(pci.bus_id, ":");
  const char *from = pci.bus_id;
  if (domain == 8 && strncmp(from, "0000", 4) == 0) from += 4;
  snprintf(out->bus_id, sizeof out->bus_id, "%s", from);
  for (char *c = out->bus_id; *c; c++) *c = (char)tolower((unsigned char)*c);
}

static double errors_of(const brim_nvml_api *api, void *device, int type) {
  unsigned long long count = 0;
  if (!api->ecc_errors ||
      api->ecc_errors(device, type, BRIM_NVML_ECC_VOLATILE, &count) != BRIM_NVML_SUCCESS) {
    return (double)NAN;
  }
  return (double)count;
}

static void read_health(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  unsigned now = 0, pending = 0;
  unsigned corrected = 0, uncorrected = 0, waits = 0, failed = 0;
  if (api->ecc_mode && api->ecc_mode(device, &now, &pending) == BRIM_NVML_SUCCESS) {
    out->ecc = switch_of(now);
    out->ecc_pending = switch_of(pending);
  }
  out->ecc_corrected = errors_of(api, device, BRIM_NVML_ECC_CORRECTED);
  out->ecc_uncorrected = errors_of(api, device, BRIM_NVML_ECC_UNCORRECTED);
  if (api->remapped_rows &&
      api->remapped_rows(device, &corrected, &uncorrected, &waits, &failed) == BRIM_NVML_SUCCESS) {
    out->rows_remapped = (double)corrected + (double)uncorrected;
    out->remap_pending = switch_of(waits);
    out->remap_failed = switch_of(failed);
  }
}

static void read_modes(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  unsigned now = 0, pending = 0, mode = 0;
  if (api->mig_mode && api->mig_mode(device, &now, &pending) == BRIM_NVML_SUCCESS) {
    out->mig = switch_of(now);
  }
  if (api->persistence && api->persistence(device, &mode) == BRIM_NVML_SUCCESS) {
    out->persistence = switch_of(mode);
  }
  if (api->compute_mode && api->compute_mode(device, &mode) == BRIM_NVML_SUCCESS) {
    out->compute_mode = mode == BRIM_NVML_COMPUTE_DEFAULT      ? BRIM_GPU_COMPUTE_SHARED
                        : mode == BRIM_NVML_COMPUTE_PROHIBITED ? BRIM_GPU_COMPUTE_PROHIBITED
                                                               : BRIM_GPU_COMPUTE_EXCLUSIVE;
  }
}

static void read_power(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  out->power_limit_w = number_of(api->power_limit, device, 1e-3);
  out->power_default_w = number_of(api->power_default, device, 1e-3);
}

static void read_clocks(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  unsigned value = 0, state = 0;
  unsigned long long reasons = 0;
  if (api->clock && api->clock(device, BRIM_NVML_CLOCK_SM, &value) == BRIM_NVML_SUCCESS) {
    out->clock_mhz = (double)value;
  }
  if (api->clock_max && api->clock_max(device, BRIM_NVML_CLOCK_SM, &value) == BRIM_NVML_SUCCESS) {
    out->clock_max_mhz = (double)value;
  }
  if (api->temperature &&
      api->temperature(device, BRIM_NVML_TEMPERATURE_GPU, &value) == BRIM_NVML_SUCCESS) {
    out->temperature_c = (double)value;
  }
  if (api->threshold &&
      api->threshold(device, BRIM_NVML_THRESHOLD_SLOWDOWN, &value) == BRIM_NVML_SUCCESS) {
    out->slowdown_c = (double)value;
  }
  if (api->performance_state && api->performance_state(device, &state) == BRIM_NVML_SUCCESS &&
      state < 16) {
    out->performance_state = (int)state;
  }
  int (*ask)(void *, unsigned long long *) =
      api->event_reasons ? api->event_reasons : api->throttle_reasons;
  if (!ask || ask(device, &reasons) != BRIM_NVML_SUCCESS) return;
  out->reasons_known = true;
  out->idle = (reasons & BRIM_NVML_REASON_IDLE) != 0;
  out->throttle = brim_throttle_bits(reasons);
}

static void clear(brim_gpu_setup *out) {
  *out = (brim_gpu_setup){.ecc_corrected = (double)NAN,
                          .ecc_uncorrected = (double)NAN,
                          .rows_remapped = (double)NAN,
                          .power_limit_w = (double)NAN,
                          .power_default_w = (double)NAN,
                          .clock_mhz = (double)NAN,
                          .clock_max_mhz = (double)NAN,
                          .temperature_c = (double)NAN,
                          .slowdown_c = (double)NAN,
                          .pcie_generation = -1,
                          .pcie_generation_max = -1,
                          .pcie_width = -1,
                          .pcie_width_max = -1,
                          .performance_state = -1};
}

brim_status brim_gpu_read_setup(brim_gpu_monitor *monitor, const char *uuid, brim_gpu_setup *out) {
  void *device = NULL;
  clear(out);
  BRIM_TRY(brim_gpu_find(monitor, uuid, &device, NULL));
  const brim_nvml_api *api = &monitor->api;
  read_bus(api, device, out);
  read_health(api, device, out);
  read_modes(api, device, out);
  read_power(api, device, out);
  read_clocks(api, device, out);
  out->pcie_generation = count_of(api->pcie_generation, device);
  out->pcie_generation_max = count_of(api->pcie_generation_max, device);
  out->pcie_width = count_of(api->pcie_width, device);
  out->pcie_width_max = count_of(api->pcie_width_max, device);
  return BRIM_OK;
}

int brim_gpu_cuda_version(brim_gpu_monitor *monitor) {
  int version = 0;
  if (!monitor->api.cuda_version || monitor->api.cuda_version(&version) != BRIM_NVML_SUCCESS) {
    return 0;
  }
  return version > 0 ? version : 0;
}

//-------------------------------------- activity counters --------------------------------------
// GPM: a GPU's own counters of activity, compared between two samples. One user at a time per
// brim_gpm; calls are serialised for the whole monitor, because NVML does not promise that they are
// safe between threads. Callers: the sampler, the live view.

bool brim_nvml_is_final(int code) {
  return code == BRIM_NVML_INVALID_ARGUMENT || code == BRIM_NVML_NOT_SUPPORTED ||
         code == BRIM_NVML_NO_PERMISSION || code == BRIM_NVML_FUNCTION_NOT_FOUND ||
         code == BRIM_NVML_VERSION_MISMATCH || code == BRIM_NVML_DEPRECATED;
}

bool brim_nvml_is_lost(int code) {
  return code == BRIM_NVML_GPU_IS_LOST || code == BRIM_NVML_RESET_REQUIRED ||
         code == BRIM_NVML_UNINITIALIZED || code == BRIM_NVML_DRIVER_NOT_LOADED;
}

void brim_gpm_open(brim_gpm *gpm, brim_gpu_monitor *monitor, void *device) {
  const brim_nvml_api *a = &monitor->api;
  memset(gpm, 0, sizeof *gpm);
  gpm->monitor = monitor;
  gpm->device = device;
  brim_nvml_gpm_support support = {.version = BRIM_NVML_GPM_SUPPORT_VERSION};
  if (!a->gpm_support || !a->gpm_alloc || !a->gpm_free || !a->gpm_sample || !a->gpm_metrics) return;
  pthread_mutex_lock(&monitor->gpm);
  bool can = a->gpm_support(device, &support) == BRIM_NVML_SUCCESS && support.supported;
  if (can && a->gpm_alloc(&gpm->first) != BRIM_NVML_SUCCESS) gpm->first = NULL;
  if (gpm->first && a->gpm_alloc(&gpm->second) != BRIM_NVML_SUCCESS) gpm->second = NULL;
  pthread_mutex_unlock(&monitor->gpm);
  gpm->on = gpm->second != NULL;
}

void brim_gpm_open_slice(brim_gpm *gpm, brim_gpu_monitor *monitor, void *device,
                         unsigned instance) {
  brim_gpm_open(gpm, monitor, device);
  gpm->slice = true;
  gpm->instance = instance;
  gpm->on = gpm->on && monitor->api.gpm_mig_sample != NULL;
}

void brim_gpm_close(brim_gpm *gpm) {
  if (!gpm->monitor) return;
  const brim_nvml_api *a = &gpm->monitor->api;
  pthread_mutex_lock(&gpm->monitor->gpm);
  if (gpm->first) a->gpm_free(gpm->first);
  if (gpm->second) a->gpm_free(gpm->second);
  pthread_mutex_unlock(&gpm->monitor->gpm);
  memset(gpm, 0, sizeof *gpm);
}

int brim_gpm_take(brim_gpm *gpm, void *sample, int64_t *time_ns) {
  if (!gpm->on) return BRIM_NVML_NOT_SUPPORTED;
  const brim_nvml_api *a = &gpm->monitor->api;
  pthread_mutex_lock(&gpm->monitor->gpm);
  int code = gpm->slice ? a->gpm_mig_sample(gpm->device, gpm->instance, sample)
                        : a->gpm_sample(gpm->device, sample);
  *time_ns = a->now_ns ? a->now_ns() : brim_clock_now().ns;
  pthread_mutex_unlock(&gpm->monitor->gpm);
  if (brim_nvml_is_final(code)) gpm->on = false;
  return code;
}

int brim_gpm_between(brim_gpm *gpm, const unsigned *ids, double *values, unsigned count) {
  brim_nvml_gpm_metrics *m = &gpm->metrics;
  memset(m, 0, offsetof(brim_nvml_gpm_metrics, metric) + count * sizeof m->metric[0]);
  m->version = BRIM_NVML_GPM_METRICS_VERSION;
  m->count = count;
  m->first = gpm->first;
  m->second = gpm->second;
  for (unsigned i = 0; i < count; i++) {
    m->metric[i].id = ids[i];
    values[i] = (double)NAN;
  }
  pthread_mutex_lock(&gpm->monitor->gpm);
  int code = gpm->monitor->api.gpm_metrics(m);
  pthread_mutex_unlock(&gpm->monitor->gpm);
  if (brim_nvml_is_final(code)) gpm->on = false;
  for (unsigned i = 0; i < count && code == BRIM_NVML_SUCCESS; i++) {
    const brim_nvml_gpm_metric *metric = &m->metric[i];
    bool good = metric->code == BRIM_NVML_SUCCESS && isfinite(metric->value) && metric->value >= 0;
    if (good) values[i] = metric->value;
  }
  return code;
}

double brim_gpm_percent(double value) {
  return value <= 110 ? fmin(value, 100) : (double)NAN;  // NaN stays
}

//------------------------------------ sums over an interval ------------------------------------
// Readings of a GPU added up over an interval: pure arithmetic, no NVML. The sampler calls it.

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

// everything unknown
static void brim_gpu_reading_clear(brim_gpu_reading *reading) {
  const double unknown = (double)NAN;
  *reading = (brim_gpu_reading){.gpu_percent = unknown,
                                .power_w = unknown,
                                .energy_j = unknown,
                                .clock_mhz = unknown,
                                .temperature_c = unknown};
}

// `before`: a reading at the start, of which the energy counter alone is used; the rest of it is
// about what was before.
static void brim_gpu_tally_start(brim_gpu_tally *tally, const brim_gpu_reading *before) {
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

static void brim_gpu_tally_add(brim_gpu_tally *tally, const brim_gpu_reading *reading) {
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

// What the readings told until `end_ns`; leaves alone what does not come from them (GPM, limits).
static void brim_gpu_tally_usage(const brim_gpu_tally *tally, int64_t end_ns, brim_gpu_usage *out) {
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

//------------------------------------------- sampler -------------------------------------------
// The thread that reads a GPU, and the intervals that others mark on it. Readings are NVML's cheap
// calls; the counters of GPM are compared between a mark and a read by the caller that marks, so
// the thread never touches them. A call that is not supported is asked once; a GPU that is lost is
// reported once, and everything about it is unknown from then on.

static const double SHORTEST_PERIOD_S = 0.02, LONGEST_PERIOD_S = 86400;
enum { UUID_BYTES = 96, SILENT_READINGS = 10 };

struct brim_gpu_sampler {
  brim_gpu_monitor *monitor;
  void *device;
  char uuid[UUID_BYTES];
  int64_t period_ns;
  brim_thread *thread;
  pthread_cond_t wake;
  // A reading is made under the lock: one after a mark is about the time after it.
  pthread_mutex_t lock;
  bool stop, lost;
  int silent, last_code;  // readings in a row that told nothing, and what the last call said
  brim_nvml_api api;      // what is not supported is NULL
  brim_gpu_tally tally;
  double power_limit_w, clock_max_mhz;
  // For the thread that marks and reads alone.
  brim_gpm gpm;
  bool gpm_marked;
  int64_t gpm_mark_ns;
};

static int64_t now_ns(const brim_gpu_sampler *s) {
  return s->api.now_ns ? s->api.now_ns() : brim_clock_now().ns;
}

//---------------------------------- asking ----------------------------------

static void lose(brim_gpu_sampler *s, int code) {
  if (s->lost) return;
  s->lost = true;
  brim_log_warn("monitor",
                "%s cannot be read any more (NVML: %s): its utilisation, power and clock are "
                "unknown from now on",
                s->uuid, brim_gpu_error_text(s->monitor, code));
}

static bool answered(brim_gpu_sampler *s, int code) {
  if (code == BRIM_NVML_SUCCESS) return true;
  s->last_code = code;
  if (brim_nvml_is_lost(code)) lose(s, code);
  return false;
}

// Asks member `call` of the table if it is there and nothing is lost; true when it answered. One
// that never will is dropped.
#define ASK(s, call, ...)                        \
  ((s)->api.call && !(s)->lost &&                \
   (answered((s), (s)->api.call(__VA_ARGS__)) || \
    (brim_nvml_is_final((s)->last_code) && ((s)->api.call = NULL, false))))

static bool ask_reasons(brim_gpu_sampler *s, brim_gpu_reading *out) {
  unsigned long long reasons = 0;
  if (!ASK(s, event_reasons, s->device, &reasons)) {
    if (s->api.event_reasons || !ASK(s, throttle_reasons, s->device, &reasons)) return false;
  }
  out->reasons_known = true;
  out->idle = (reasons & BRIM_NVML_REASON_IDLE) != 0;
  out->throttle = brim_throttle_bits(reasons);
  return true;
}

static bool ask_temperature(brim_gpu_sampler *s, brim_gpu_reading *out) {
  unsigned celsius = 0;
  brim_nvml_temperature v = {.version = BRIM_NVML_TEMPERATURE_VERSION,
                             .sensor = BRIM_NVML_TEMPERATURE_GPU};
  if (ASK(s, temperature, s->device, BRIM_NVML_TEMPERATURE_GPU, &celsius)) {
    out->temperature_c = celsius;
  } else if (!s->api.temperature && ASK(s, temperature_v, s->device, &v)) {
    out->temperature_c = v.celsius;
  } else {
    return false;
  }
  return true;
}

// Is there anything left to ask?
static bool has_sources(const brim_gpu_sampler *s) {
  const brim_nvml_api *a = &s->api;
  return a->utilisation || a->power || a->energy || a->clock || a->event_reasons ||
         a->throttle_reasons || a->temperature || a->temperature_v;
}

// False when the GPU told nothing at all.
static bool read_gpu(brim_gpu_sampler *s, brim_gpu_reading *out) {
  brim_gpu_reading_clear(out);
  brim_nvml_utilisation utilisation = {0};
  unsigned mw = 0, mhz = 0;
  unsigned long long mj = 0;
  bool any = false;
  // the counter first, next to the time that goes with it
  if (ASK(s, energy, s->device, &mj)) {
    out->energy_j = (double)mj * 1e-3;
    any = true;
  }
  out->time_ns = now_ns(s);
  if (ASK(s, utilisation, s->device, &utilisation)) {
    out->gpu_percent = utilisation.gpu;
    any = true;
  }
  if (ASK(s, power, s->device, &mw)) {
    out->power_w = mw * 1e-3;
    any = true;
  }
  if (ASK(s, clock, s->device, BRIM_NVML_CLOCK_SM, &mhz)) {
    out->clock_mhz = mhz;
    any = true;
  }
  any |= ask_reasons(s, out);
  any |= ask_temperature(s, out);
  s->silent = any ? 0 : s->silent + 1;
  if (s->silent >= SILENT_READINGS && has_sources(s)) lose(s, s->last_code);
  return any;
}

static void take_locked(brim_gpu_sampler *s) {
  brim_gpu_reading reading;
  if (!s->lost && read_gpu(s, &reading)) brim_gpu_tally_add(&s->tally, &reading);
}

void brim_gpu_sampler_take(brim_gpu_sampler *sampler) {
  pthread_mutex_lock(&sampler->lock);
  take_locked(sampler);
  pthread_mutex_unlock(&sampler->lock);
}

//---------------------------------- GPM ----------------------------------

static bool is_gone(brim_gpu_sampler *s) {
  pthread_mutex_lock(&s->lock);
  bool gone = s->lost;
  pthread_mutex_unlock(&s->lock);
  return gone;
}

static bool gpm_answered(brim_gpu_sampler *s, int code) {
  pthread_mutex_lock(&s->lock);
  if (brim_nvml_is_lost(code)) lose(s, code);
  pthread_mutex_unlock(&s->lock);
  return code == BRIM_NVML_SUCCESS;
}

static bool gpm_take(brim_gpu_sampler *s, void *sample, int64_t *time_ns) {
  if (!s->gpm.on || is_gone(s)) return false;
  return gpm_answered(s, brim_gpm_take(&s->gpm, sample, time_ns));
}

// `busy` is what gpu_percent is, over exactly the interval; the driver's own figure trails.
static void gpm_read(brim_gpu_sampler *s, brim_gpu_usage *out, double *busy) {
  static const unsigned ids[] = {BRIM_NVML_GPM_GRAPHICS_UTIL, BRIM_NVML_GPM_SM_UTIL,
                                 BRIM_NVML_GPM_SM_OCCUPANCY, BRIM_NVML_GPM_ANY_TENSOR_UTIL,
                                 BRIM_NVML_GPM_DRAM_BW_UTIL};
  double *const to[] = {busy, &out->sm_percent, &out->occupancy_percent, &out->tensor_percent,
                        &out->dram_percent};
  enum { COUNT = sizeof ids / sizeof *ids };
  double values[COUNT];
  int64_t time_ns = 0;
  if (!s->gpm_marked || now_ns(s) - s->gpm_mark_ns < BRIM_GPM_SHORTEST_NS) return;
  if (!gpm_take(s, s->gpm.second, &time_ns)) return;
  if (!gpm_answered(s, brim_gpm_between(&s->gpm, ids, values, COUNT))) return;
  for (int i = 0; i < COUNT; i++) *to[i] = brim_gpm_percent(values[i]);
}

//---------------------------------- intervals ----------------------------------

void brim_gpu_sampler_mark(brim_gpu_sampler *sampler) {
  brim_gpu_sampler *s = sampler;
  brim_gpu_reading before;
  unsigned mw = 0;
  s->gpm_marked = gpm_take(s, s->gpm.first, &s->gpm_mark_ns);
  pthread_mutex_lock(&s->lock);
  // an administrator may change it between two trials
  s->power_limit_w = ASK(s, power_limit, s->device, &mw) ? mw * 1e-3 : (double)NAN;
  brim_gpu_reading_clear(&before);
  if (!s->lost) read_gpu(s, &before);
  before.time_ns = now_ns(s);
  brim_gpu_tally_start(&s->tally, &before);
  pthread_mutex_unlock(&s->lock);
}

static void usage_clear(brim_gpu_usage *out) {
  const double unknown = (double)NAN;
  *out = (brim_gpu_usage){.seconds = out->seconds,
                          .gpu_percent = unknown,
                          .sm_percent = unknown,
                          .occupancy_percent = unknown,
                          .tensor_percent = unknown,
                          .dram_percent = unknown,
                          .power_w = unknown,
                          .power_limit_w = unknown,
                          .energy_j = unknown,
                          .clock_mhz = unknown,
                          .clock_low_mhz = unknown,
                          .clock_max_mhz = unknown,
                          .temperature_c = unknown};
}

void brim_gpu_sampler_read(brim_gpu_sampler *sampler, brim_gpu_usage *out) {
  brim_gpu_sampler *s = sampler;
  out->seconds = (double)NAN;
  usage_clear(out);
  double busy = (double)NAN;
  gpm_read(s, out, &busy);
  pthread_mutex_lock(&s->lock);
  // one more: an interval shorter than the period has a reading too
  int64_t end_ns = now_ns(s);
  take_locked(s);
  brim_gpu_tally_usage(&s->tally, end_ns, out);
  if (!isnan(busy)) out->gpu_percent = busy;
  out->power_limit_w = s->power_limit_w;
  out->clock_max_mhz = s->clock_max_mhz;
  if (s->lost) usage_clear(out);
  pthread_mutex_unlock(&s->lock);
}

//---------------------------------- the thread ----------------------------------

// A GPU that answers slowly is asked less often, not all the time.
static void sampler_main(void *ctx) {
  brim_gpu_sampler *s = (brim_gpu_sampler *)ctx;
  pthread_mutex_lock(&s->lock);
  int64_t due = brim_clock_now().ns;
  while (!s->stop && !s->lost && has_sources(s)) {
    int64_t now = brim_clock_now().ns;
    due = due + s->period_ns > now ? due + s->period_ns : now + s->period_ns;
    while (!s->stop && brim_cond_wait(&s->wake, &s->lock, due)) continue;
    if (!s->stop) take_locked(s);
  }
  pthread_mutex_unlock(&s->lock);
}

static void init_sync(brim_gpu_sampler *s) {
  (void)brim_cond_init(&s->wake);
  pthread_mutex_init(&s->lock, NULL);
}

brim_status brim_gpu_sampler_start(brim_gpu_monitor *monitor, const char *uuid, double period_s,
                                   brim_gpu_sampler **out) {
  *out = NULL;
  if (!(period_s >= SHORTEST_PERIOD_S)) {
    return brim_fail(BRIM_EINVAL, "a GPU cannot be read every %g s; the shortest period is %g s",
                     period_s, SHORTEST_PERIOD_S);
  }
  void *device = NULL;
  bool slice = false;
  BRIM_TRY(brim_gpu_find(monitor, uuid, &device, &slice));
  brim_gpu_sampler *s = (brim_gpu_sampler *)brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for reading a GPU");
  s->monitor = monitor;
  s->device = device;
  s->api = monitor->api;
  s->period_ns = (int64_t)(fmin(period_s, LONGEST_PERIOD_S) * 1e9);
  snprintf(s->uuid, sizeof s->uuid, "%s", uuid);
  init_sync(s);
  unsigned mhz = 0;
  bool known = ASK(s, clock_max, s->device, BRIM_NVML_CLOCK_SM, &mhz);
  s->clock_max_mhz = known ? mhz : (double)NAN;
  // counters of a whole GPU are no measure of a slice that others share it with
  if (!slice) brim_gpm_open(&s->gpm, monitor, device);
  brim_gpu_sampler_mark(s);
  brim_status status = brim_thread_start(sampler_main, s, "brim-gpu", &s->thread);
  if (status) {
    brim_gpu_sampler_stop(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

void brim_gpu_sampler_stop(brim_gpu_sampler *sampler) {
  if (!sampler) return;
  pthread_mutex_lock(&sampler->lock);
  sampler->stop = true;
  pthread_cond_signal(&sampler->wake);
  pthread_mutex_unlock(&sampler->lock);
  brim_thread_join(sampler->thread);
  brim_gpm_close(&sampler->gpm);
  pthread_cond_destroy(&sampler->wake);
  pthread_mutex_destroy(&sampler->lock);
  brim_free(sampler);
}
