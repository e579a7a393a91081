// Samples one NVIDIA GPU: a thread reads NVML's cheap calls, and the caller marks and reads intervals.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/monitor_int.h"

//---------------------------------- sums over an interval ----------------------------------

// NVML's utilisation is the share of the driver's last period in which a kernel ran. A period lasts a sixth of a
// second to a second, depending on the product. A reading within that time after the start still covers time before
// the start.
static const int64_t UTILISATION_WINDOW_NS = 1000000000 / 6;
// Take power from the energy counter only if the times of its first and last step are known to within a
// tenth of the time between them.
enum { EDGE_PRECISION = 10 };
enum { THROTTLE_SHARE = 10 };  // report a throttle reason seen in a tenth of the readings

typedef struct brim_gpu_reading {
  int64_t time_ns;
  double gpu_percent, power_w, energy_j, clock_mhz, temperature_c;  // NaN = unknown
  bool reasons_known;
  bool idle;          // the driver says that the clock is low for lack of work
  uint32_t throttle;  // 1 << BRIM_THROTTLE_BIT_...
} brim_gpu_reading;
// A step of the energy counter, at `time_ns` or up to `doubt_ns` before.
typedef struct brim_gpu_edge {
  bool seen;
  int64_t time_ns, doubt_ns;
  double energy_j;
} brim_gpu_edge;

enum { BRIM_GPU_CLOCK_BINS = 8192 };  // one per MHz

// Sums of an interval, of constant size.
typedef struct brim_gpu_tally {
  int64_t start_ns;
  int readings;
  double gpu_sum, power_sum, temperature_high;
  int gpu_count, power_count, reasons_count;
  int throttle_count[BRIM_THROTTLE_COUNT];
  uint32_t clock_count, clock_bins[BRIM_GPU_CLOCK_BINS];
  bool energy_known, energy_fell;  // fell: the driver was loaded again
  int64_t energy_time_ns;
  double energy_j;  // at the last reading
  brim_gpu_edge first, last;
} brim_gpu_tally;

static void reading_clear(brim_gpu_reading *reading) {
  const double unknown = (double)NAN;
  *reading = (brim_gpu_reading){.gpu_percent = unknown,
                                .power_w = unknown,
                                .energy_j = unknown,
                                .clock_mhz = unknown,
                                .temperature_c = unknown};
}

// `before`: a reading at the start. Only its energy counter is used: its other values cover time
// before the start.
static void tally_start(brim_gpu_tally *tally, const brim_gpu_reading *before) {
  memset(tally, 0, sizeof *tally);
  tally->start_ns = before->time_ns;
  tally->temperature_high = (double)NAN;
  tally->energy_known = !isnan(before->energy_j);
  tally->energy_time_ns = before->time_ns;
  tally->energy_j = before->energy_j;
}

// The counter is in millijoules but moves only every 10 to 100 ms (about 100 on a Hopper). The difference between two
// readings is off by up to two steps, which is a large error in 300 ms. The difference between two steps is exact;
// only their times are uncertain.
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

static void tally_add(brim_gpu_tally *tally, const brim_gpu_reading *reading) {
  tally->readings++;
  bool in_interval = reading->time_ns - tally->start_ns >= UTILISATION_WINDOW_NS;
  if (in_interval && !isnan(reading->gpu_percent)) {
    tally->gpu_sum += reading->gpu_percent;
    tally->gpu_count++;
  }
  if (!isnan(reading->power_w)) {
    tally->power_sum += reading->power_w;
    tally->power_count++;
  }
  tally->temperature_high =
      fmax(tally->temperature_high, reading->temperature_c);  // fmax ignores NaN
  if (reading->reasons_known) {
    tally->reasons_count++;
    for (int i = 0; i < BRIM_THROTTLE_COUNT; i++) {
      tally->throttle_count[i] += (int)(reading->throttle >> i & 1u);
    }
  }
  add_energy(tally, reading);
  // an idle GPU's clock says nothing about its speed under load
  if (isnan(reading->clock_mhz) || reading->idle) return;
  double bin = fmin(fmax(reading->clock_mhz, 0), BRIM_GPU_CLOCK_BINS - 1);
  tally->clock_bins[(int)bin]++;
  tally->clock_count++;
}

static double mean(double sum, int count) { return count > 0 ? sum / count : (double)NAN; }

// The clock of the reading with this rank, in order of clock; rank 0 is the lowest.
static double clock_at(const brim_gpu_tally *tally, uint32_t rank) {
  uint32_t below = 0;
  for (int i = 0; i < BRIM_GPU_CLOCK_BINS; i++) {
    below += tally->clock_bins[i];
    if (below > rank) return i;
  }
  return (double)NAN;
}

// On most cards since Ampere the driver's power reading is a mean over a second: steady, but late. The energy counter
// is right if the interval has several of its steps.
static double mean_power(const brim_gpu_tally *tally) {
  const brim_gpu_edge *first = &tally->first, *last = &tally->last;
  if (first->seen && last->seen && !tally->energy_fell) {
    int64_t span = last->time_ns - first->time_ns;
    int64_t doubt = first->doubt_ns > last->doubt_ns ? first->doubt_ns : last->doubt_ns;
    if (span > 0 && span / EDGE_PRECISION >= doubt) {
      return (last->energy_j - first->energy_j) / ((double)span * 1e-9);
    }
  }
  return mean(tally->power_sum, tally->power_count);
}

// Fills in the values that come from readings until `end_ns`. GPM values and limits come from elsewhere.
static void tally_usage(const brim_gpu_tally *tally, int64_t end_ns, brim_gpu_usage *out) {
  int64_t ns = end_ns - tally->start_ns;
  out->seconds = ns > 0 ? (double)ns * 1e-9 : (double)NAN;
  out->readings = tally->readings;
  out->gpu_percent = mean(tally->gpu_sum, tally->gpu_count);
  out->power_w = mean_power(tally);
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

//---------------------------------- sampler ----------------------------------
// A thread reads the GPU with NVML's cheap calls; the caller marks intervals. GPM counters are compared by the caller
// at mark and read, never by the thread. An unsupported call is made once. A lost GPU is reported once, and
// everything about it is unknown from then on.

static const double SHORTEST_PERIOD_S = 0.02, LONGEST_PERIOD_S = 86400;
enum { UUID_BYTES = 96, SILENT_READINGS = 10 };

struct brim_gpu_sampler {
  brim_gpu_monitor *monitor;
  void *device;
  char uuid[UUID_BYTES];
  int64_t period_ns;
  brim_thread *thread;
  pthread_cond_t wake;
  // Held while reading, so that a reading after a mark covers no time before the mark.
  pthread_mutex_t lock;
  bool stop, lost;
  int silent, last_code;  // readings in a row without an answer; the last call's code
  brim_nvml_api api;      // unsupported calls are NULL
  brim_gpu_tally tally;
  double power_limit_w, clock_max_mhz;
  // Used only by the thread that marks and reads.
  brim_gpm gpm;
  bool gpm_marked;
  int64_t gpm_mark_ns;
};

static int64_t now_ns(const brim_gpu_sampler *s) {
  return s->api.now_ns ? s->api.now_ns() : brim_clock_now().ns;
}

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

// Makes a call of the table, unless it is NULL or the GPU is lost. True if it answered. Sets a call that will never
// answer to NULL.
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

// True if a call of the table is still supported.
static bool has_sources(const brim_gpu_sampler *s) {
  const brim_nvml_api *a = &s->api;
  return a->utilisation || a->power || a->energy || a->clock || a->event_reasons ||
         a->throttle_reasons || a->temperature || a->temperature_v;
}

// False if no call answered.
static bool read_gpu(brim_gpu_sampler *s, brim_gpu_reading *out) {
  reading_clear(out);
  brim_nvml_utilisation utilisation = {0};
  unsigned mw = 0, mhz = 0;
  unsigned long long mj = 0;
  bool any = false;
  // read the energy counter next to its time
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
  if (!s->lost && read_gpu(s, &reading)) tally_add(&s->tally, &reading);
}

void brim_gpu_sampler_take(brim_gpu_sampler *sampler) {
  pthread_mutex_lock(&sampler->lock);
  take_locked(sampler);
  pthread_mutex_unlock(&sampler->lock);
}

static bool gpm_answered(brim_gpu_sampler *s, int code) {
  pthread_mutex_lock(&s->lock);
  if (brim_nvml_is_lost(code)) lose(s, code);
  pthread_mutex_unlock(&s->lock);
  return code == BRIM_NVML_SUCCESS;
}

static bool gpm_take(brim_gpu_sampler *s, void *sample, int64_t *time_ns) {
  pthread_mutex_lock(&s->lock);
  bool lost = s->lost;
  pthread_mutex_unlock(&s->lock);
  if (!s->gpm.on || lost) return false;
  return gpm_answered(s, brim_gpm_take(&s->gpm, sample, time_ns));
}

// *busy: gpu_percent over exactly the interval; the driver's own value lags.
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
  // read the limit again: an administrator may have changed it
  s->power_limit_w = ASK(s, power_limit, s->device, &mw) ? mw * 1e-3 : (double)NAN;
  reading_clear(&before);
  if (!s->lost) read_gpu(s, &before);
  before.time_ns = now_ns(s);
  tally_start(&s->tally, &before);
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
  // read once more, so that an interval shorter than the period has a reading
  int64_t end_ns = now_ns(s);
  take_locked(s);
  tally_usage(&s->tally, end_ns, out);
  if (!isnan(busy)) out->gpu_percent = busy;
  out->power_limit_w = s->power_limit_w;
  out->clock_max_mhz = s->clock_max_mhz;
  if (s->lost) usage_clear(out);
  pthread_mutex_unlock(&s->lock);
}

//---------------------------------- the thread ----------------------------------

// Waits a full period after a slow reading, so that a slow GPU is read less often.
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
  (void)brim_cond_init(&s->wake);
  pthread_mutex_init(&s->lock, NULL);
  unsigned mhz = 0;
  bool known = ASK(s, clock_max, s->device, BRIM_NVML_CLOCK_SM, &mhz);
  s->clock_max_mhz = known ? mhz : (double)NAN;
  // counters of the whole GPU include the other slices
  if (!slice) brim_gpm_open(&s->gpm, monitor, device, NULL);
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
