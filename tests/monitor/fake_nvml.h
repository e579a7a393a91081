// A scripted GPU behind a fake NVML. The script is a list of states with start times; every figure follows from it
// (energy, GPM counters, utilisation of the last sixth of a second). The clock is the machine's or the test's own. One
// per test program; threads may read while a test writes.
#ifndef BRIM_TESTS_MONITOR_FAKE_NVML_H_
#define BRIM_TESTS_MONITOR_FAKE_NVML_H_

#include <pthread.h>
#include <stdbool.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "monitor/monitor_nvml_abi.h"
#include "test.h"

#define FAKE_NVML_UUID "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define FAKE_NVML_MS 1000000LL  // in nanoseconds

typedef struct fake_nvml_state {
  double gpu, sm, occupancy, tensor, dram;  // percent
  double power_w, clock_mhz, temperature_c;
  unsigned long long reasons;  // NVML's bits
} fake_nvml_state;

// Idle; busy; busy and too hot, at three fifths of the clock.
static const fake_nvml_state FAKE_NVML_IDLE = {
    .power_w = 75, .clock_mhz = 345, .temperature_c = 30, .reasons = BRIM_NVML_REASON_IDLE};
static const fake_nvml_state FAKE_NVML_BUSY = {.gpu = 100,
                                               .sm = 90,
                                               .occupancy = 40,
                                               .tensor = 50,
                                               .dram = 60,
                                               .power_w = 600,
                                               .clock_mhz = 1980,
                                               .temperature_c = 60};
static const fake_nvml_state FAKE_NVML_HOT = {
    .gpu = 100,
    .sm = 90,
    .occupancy = 40,
    .tensor = 30,
    .dram = 36,
    .power_w = 300,
    .clock_mhz = 1200,
    .temperature_c = 88,
    .reasons = BRIM_NVML_REASON_HW_SLOWDOWN | BRIM_NVML_REASON_HW_THERMAL};

typedef enum fake_nvml_call {
  FAKE_NVML_UTILISATION,
  FAKE_NVML_POWER,
  FAKE_NVML_POWER_LIMIT,
  FAKE_NVML_ENERGY,
  FAKE_NVML_CLOCK,
  FAKE_NVML_CLOCK_MAX,
  FAKE_NVML_EVENT_REASONS,
  FAKE_NVML_THROTTLE_REASONS,
  FAKE_NVML_TEMPERATURE,
  FAKE_NVML_TEMPERATURE_V,
  FAKE_NVML_GPM_SUPPORT,
  FAKE_NVML_GPM_ALLOC,
  FAKE_NVML_GPM_FREE,
  FAKE_NVML_GPM_SAMPLE,
  FAKE_NVML_GPM_METRICS,
  FAKE_NVML_CALL_COUNT
} fake_nvml_call;

typedef struct fake_nvml_sample {
  bool alive, taken;
  int64_t time_ns;
} fake_nvml_sample;

enum { FAKE_NVML_STATES = 64, FAKE_NVML_SAMPLES = 8 };

static pthread_mutex_t fake_nvml_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  bool own_time;  // now_ns below, not the machine's
  int64_t now_ns, start_ns;
  struct {
    int64_t from_ns;
    fake_nvml_state state;
  } states[FAKE_NVML_STATES];
  int state_count;
  const char *known_uuid;
  int64_t energy_step_ns;               // the counter moves this often; 0 = at once
  unsigned long long energy_offset_mj;  // subtracted: a counter that starts again
  double gpm_scale;                     // 1; another value for wrong counters
  int code[FAKE_NVML_CALL_COUNT];       // status of each call; 0 = success
  int metric_code[16];                  // by GPM's metric id
  bool lost;                            // every call reports it lost
  int calls[FAKE_NVML_CALL_COUNT], inits, shutdowns;
  fake_nvml_sample samples[FAKE_NVML_SAMPLES];
} fake_nvml;

//---------------------------------- the script ----------------------------------

static inline int64_t fake_nvml_now_locked(void) {
  return fake_nvml.own_time ? fake_nvml.now_ns : brim_clock_now().ns;
}

static inline int64_t fake_nvml_now(void) {
  pthread_mutex_lock(&fake_nvml_lock);
  int64_t now = fake_nvml_now_locked();
  pthread_mutex_unlock(&fake_nvml_lock);
  return now;
}

// Starts a state `after_ns` after the reset. Call it in order of time.
static inline void fake_nvml_at(int64_t after_ns, fake_nvml_state state) {
  pthread_mutex_lock(&fake_nvml_lock);
  int i = fake_nvml.state_count;
  if (i < FAKE_NVML_STATES) {
    fake_nvml.states[i].from_ns = fake_nvml.start_ns + after_ns;
    fake_nvml.states[i].state = state;
    fake_nvml.state_count++;
  }
  pthread_mutex_unlock(&fake_nvml_lock);
  assert_true(i < FAKE_NVML_STATES);
}

// Starts a state now, for tests that choose the moment by their own actions.
static inline void fake_nvml_becomes(fake_nvml_state state) {
  fake_nvml_at(fake_nvml_now() - fake_nvml.start_ns, state);
}

// Resets everything: busy from the start, and every call works. `own_time`: the clock starts at 1000 s and moves only
// by fake_nvml_pass.
static inline void fake_nvml_reset(bool own_time) {
  pthread_mutex_lock(&fake_nvml_lock);
  memset(&fake_nvml, 0, sizeof fake_nvml);
  fake_nvml.own_time = own_time;
  fake_nvml.now_ns = 1000000 * FAKE_NVML_MS;
  fake_nvml.start_ns = fake_nvml_now_locked();
  fake_nvml.known_uuid = FAKE_NVML_UUID;
  fake_nvml.gpm_scale = 1;
  fake_nvml.states[0].from_ns = fake_nvml.start_ns - 10000 * FAKE_NVML_MS;
  fake_nvml.states[0].state = FAKE_NVML_BUSY;
  fake_nvml.state_count = 1;
  pthread_mutex_unlock(&fake_nvml_lock);
}

static inline void fake_nvml_pass(int64_t ns) {
  pthread_mutex_lock(&fake_nvml_lock);
  fake_nvml.now_ns += ns;
  pthread_mutex_unlock(&fake_nvml_lock);
}

static inline int fake_nvml_calls(fake_nvml_call call) {
  pthread_mutex_lock(&fake_nvml_lock);
  int n = fake_nvml.calls[call];
  pthread_mutex_unlock(&fake_nvml_lock);
  return n;
}

static inline void fake_nvml_lose(void) {
  pthread_mutex_lock(&fake_nvml_lock);
  fake_nvml.lost = true;
  pthread_mutex_unlock(&fake_nvml_lock);
}

static inline int fake_nvml_samples_alive(void) {
  int n = 0;
  for (int i = 0; i < FAKE_NVML_SAMPLES; i++) n += fake_nvml.samples[i].alive;
  return n;
}

//---------------------------------- figures ----------------------------------

static inline const fake_nvml_state *fake_nvml_state_at(int64_t ns) {
  int i = fake_nvml.state_count - 1;
  while (i > 0 && fake_nvml.states[i].from_ns > ns) i--;
  return &fake_nvml.states[i].state;
}

// The integral of a member of the states (by its offset) over time.
static inline double fake_nvml_integral(size_t member, int64_t from, int64_t to) {
  double sum = 0;
  for (int i = 0; i < fake_nvml.state_count; i++) {
    int64_t a = fake_nvml.states[i].from_ns, b = to;
    if (i + 1 < fake_nvml.state_count) b = fake_nvml.states[i + 1].from_ns;
    a = a > from ? a : from;
    b = b < to ? b : to;
    double value;
    memcpy(&value, (const char *)&fake_nvml.states[i].state + member, sizeof value);
    if (b > a) sum += value * (double)(b - a) * 1e-9;
  }
  return sum;
}

#define FAKE_NVML_MEAN(member, from, to)                                       \
  (fake_nvml_integral(offsetof(fake_nvml_state, member), (from), (to)) * 1e9 / \
   (double)((to) - (from)))

//---------------------------------- the library ----------------------------------

// Locks; the caller unlocks with fake_nvml_leave.
static inline int fake_nvml_enter(fake_nvml_call call) {
  pthread_mutex_lock(&fake_nvml_lock);
  fake_nvml.calls[call]++;
  return fake_nvml.lost ? BRIM_NVML_GPU_IS_LOST : fake_nvml.code[call];
}
static inline int fake_nvml_leave(int code) {
  pthread_mutex_unlock(&fake_nvml_lock);
  return code;
}
// No assertions between the two: a failing test must not keep the lock.
static inline void fake_nvml_require(bool holds) {
  if (!holds) pthread_mutex_unlock(&fake_nvml_lock);
  assert_true(holds);
}
static inline int fake_nvml_init(void) {
  fake_nvml.inits++;
  return 0;
}
static inline int fake_nvml_shutdown(void) {
  fake_nvml.shutdowns++;
  return 0;
}
static inline const char *fake_nvml_error(int code) {
  return code == BRIM_NVML_GPU_IS_LOST ? "GPU is lost" : "odd";
}
static inline int fake_nvml_by_uuid(const char *uuid, void **device) {
  *device = &fake_nvml;
  return strcmp(uuid, fake_nvml.known_uuid) == 0 ? 0 : BRIM_NVML_NOT_FOUND;
}
static inline int fake_nvml_utilisation(void *device, brim_nvml_utilisation *out) {
  (void)device;
  int code = fake_nvml_enter(FAKE_NVML_UTILISATION);
  int64_t now = fake_nvml_now_locked();
  if (!code) out->gpu = (unsigned)(FAKE_NVML_MEAN(gpu, now - 166 * FAKE_NVML_MS, now) + 0.5);
  return fake_nvml_leave(code);
}
static inline int fake_nvml_power(void *device, unsigned *mw) {
  (void)device;
  int code = fake_nvml_enter(FAKE_NVML_POWER);
  if (!code) *mw = (unsigned)(fake_nvml_state_at(fake_nvml_now_locked())->power_w * 1000);
  return fake_nvml_leave(code);
}
static inline int fake_nvml_power_limit(void *device, unsigned *mw) {
  (void)device;
  int code = fake_nvml_enter(FAKE_NVML_POWER_LIMIT);
  if (!code) *mw = 700000;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_energy(void *device, unsigned long long *mj) {
  (void)device;
  int code = fake_nvml_enter(FAKE_NVML_ENERGY);
  int64_t now = fake_nvml_now_locked(), step = fake_nvml.energy_step_ns;
  if (step) now -= now % step;
  double joules =
      fake_nvml_integral(offsetof(fake_nvml_state, power_w), fake_nvml.states[0].from_ns, now);
  if (!code) *mj = (unsigned long long)(joules * 1000) - fake_nvml.energy_offset_mj;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_clock(void *device, int type, unsigned *mhz) {
  (void)device;
  assert_int_equal(type, BRIM_NVML_CLOCK_SM);
  int code = fake_nvml_enter(FAKE_NVML_CLOCK);
  if (!code) *mhz = (unsigned)fake_nvml_state_at(fake_nvml_now_locked())->clock_mhz;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_clock_max(void *device, int type, unsigned *mhz) {
  (void)device;
  assert_int_equal(type, BRIM_NVML_CLOCK_SM);
  int code = fake_nvml_enter(FAKE_NVML_CLOCK_MAX);
  if (!code) *mhz = 1980;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_event_reasons(void *device, unsigned long long *bits) {
  (void)device;
  int code = fake_nvml_enter(FAKE_NVML_EVENT_REASONS);
  if (!code) *bits = fake_nvml_state_at(fake_nvml_now_locked())->reasons;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_throttle_reasons(void *device, unsigned long long *bits) {
  (void)device;
  int code = fake_nvml_enter(FAKE_NVML_THROTTLE_REASONS);
  if (!code) *bits = fake_nvml_state_at(fake_nvml_now_locked())->reasons;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_temperature(void *device, int sensor, unsigned *celsius) {
  (void)device;
  assert_int_equal(sensor, BRIM_NVML_TEMPERATURE_GPU);
  int code = fake_nvml_enter(FAKE_NVML_TEMPERATURE);
  if (!code) *celsius = (unsigned)fake_nvml_state_at(fake_nvml_now_locked())->temperature_c;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_temperature_v(void *device, brim_nvml_temperature *in_out) {
  (void)device;
  int code = fake_nvml_enter(FAKE_NVML_TEMPERATURE_V);
  fake_nvml_require(in_out->version == 0x0100000c);
  if (!code) in_out->celsius = (int)fake_nvml_state_at(fake_nvml_now_locked())->temperature_c;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_gpm_support(void *device, brim_nvml_gpm_support *in_out) {
  (void)device;
  int code = fake_nvml_enter(FAKE_NVML_GPM_SUPPORT);
  fake_nvml_require(in_out->version == 1);
  if (!code) in_out->supported = 1;
  return fake_nvml_leave(code);
}
static inline int fake_nvml_gpm_alloc(void **sample) {
  int code = fake_nvml_enter(FAKE_NVML_GPM_ALLOC);
  int i = 0;
  while (i < FAKE_NVML_SAMPLES && fake_nvml.samples[i].alive) i++;
  fake_nvml_require(i < FAKE_NVML_SAMPLES);
  if (!code) {
    fake_nvml.samples[i] = (fake_nvml_sample){.alive = true};
    *sample = &fake_nvml.samples[i];
  }
  return fake_nvml_leave(code);
}
static inline int fake_nvml_gpm_free(void *sample) {
  (void)fake_nvml_enter(FAKE_NVML_GPM_FREE);
  fake_nvml_require(((fake_nvml_sample *)sample)->alive);
  ((fake_nvml_sample *)sample)->alive = false;
  return fake_nvml_leave(0);
}
static inline int fake_nvml_gpm_sample(void *device, void *sample) {
  (void)device;
  fake_nvml_sample *to = (fake_nvml_sample *)sample;
  int code = fake_nvml_enter(FAKE_NVML_GPM_SAMPLE);
  fake_nvml_require(to->alive);
  if (!code) *to = (fake_nvml_sample){true, true, fake_nvml_now_locked()};
  return fake_nvml_leave(code);
}
static inline int fake_nvml_gpm_metrics(brim_nvml_gpm_metrics *in_out) {
  int code = fake_nvml_enter(FAKE_NVML_GPM_METRICS);
  const fake_nvml_sample *first = (const fake_nvml_sample *)in_out->first;
  const fake_nvml_sample *second = (const fake_nvml_sample *)in_out->second;
  fake_nvml_require(in_out->version == 1);
  fake_nvml_require(first->alive && first->taken && second->alive && second->taken);
  int64_t a = first->time_ns, b = second->time_ns;
  fake_nvml_require(b - a >= 100 * FAKE_NVML_MS);
  for (unsigned i = 0; i < in_out->count && !code; i++) {
    brim_nvml_gpm_metric *m = &in_out->metric[i];
    m->code = fake_nvml.metric_code[m->id & 15];
    if (m->id == BRIM_NVML_GPM_GRAPHICS_UTIL) m->value = FAKE_NVML_MEAN(gpu, a, b);
    if (m->id == BRIM_NVML_GPM_SM_UTIL) m->value = FAKE_NVML_MEAN(sm, a, b);
    if (m->id == BRIM_NVML_GPM_SM_OCCUPANCY) m->value = FAKE_NVML_MEAN(occupancy, a, b);
    if (m->id == BRIM_NVML_GPM_ANY_TENSOR_UTIL) m->value = FAKE_NVML_MEAN(tensor, a, b);
    if (m->id == BRIM_NVML_GPM_DRAM_BW_UTIL) m->value = FAKE_NVML_MEAN(dram, a, b);
    m->value *= fake_nvml.gpm_scale;
  }
  return fake_nvml_leave(code);
}

// The whole table. Members may be replaced or set to NULL before a monitor is opened with it.
static inline brim_nvml_api fake_nvml_api(void) {
  return (brim_nvml_api){.init = fake_nvml_init,
                         .shutdown = fake_nvml_shutdown,
                         .by_uuid = fake_nvml_by_uuid,
                         .error_string = fake_nvml_error,
                         .utilisation = fake_nvml_utilisation,
                         .power = fake_nvml_power,
                         .power_limit = fake_nvml_power_limit,
                         .energy = fake_nvml_energy,
                         .clock = fake_nvml_clock,
                         .clock_max = fake_nvml_clock_max,
                         .event_reasons = fake_nvml_event_reasons,
                         .throttle_reasons = fake_nvml_throttle_reasons,
                         .temperature = fake_nvml_temperature,
                         .temperature_v = fake_nvml_temperature_v,
                         .gpm_support = fake_nvml_gpm_support,
                         .gpm_alloc = fake_nvml_gpm_alloc,
                         .gpm_free = fake_nvml_gpm_free,
                         .gpm_sample = fake_nvml_gpm_sample,
                         .gpm_metrics = fake_nvml_gpm_metrics,
                         .now_ns = fake_nvml_now};
}

#endif  // BRIM_TESTS_MONITOR_FAKE_NVML_H_
