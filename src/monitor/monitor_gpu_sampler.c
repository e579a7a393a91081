// The thread that reads a GPU, and the intervals that others mark on it. Readings are NVML's cheap
// calls; the counters of GPM are compared between a mark and a read by the caller that marks, so
// the thread never touches them. A call that is not supported is asked once; a GPU that is lost is
// reported once, and everything about it is unknown from then on.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "monitor/monitor_int.h"

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
