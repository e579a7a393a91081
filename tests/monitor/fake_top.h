// Up to eight GPUs and their slices behind a fake NVML, for the live view. The figures are those of an H200 under load
// (driver 580, nvidia-smi dmon and -q), in NVML's units. One per test program; the clock is the test's own.
#ifndef BRIM_TESTS_MONITOR_FAKE_TOP_H_
#define BRIM_TESTS_MONITOR_FAKE_TOP_H_

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "monitor/monitor_nvml_abi.h"
#include "test.h"

#define FAKE_TOP_S 1000000000LL
#define FAKE_TOP_MIB (1ULL << 20)
#define FAKE_TOP_AT(member) offsetof(brim_nvml_api, member)

enum { FAKE_TOP_GPUS = 8, FAKE_TOP_SLICES = 4, FAKE_TOP_SAMPLES = 64, FAKE_TOP_PROCESSES = 40 };

typedef struct fake_top_gpu {
  char uuid[64];
  bool lost;
  bool slice;
  unsigned instance;  // id of a slice
  unsigned mig;       // MIG mode
  unsigned slices;    // number of fake_top.slice
  unsigned gpu, memory, encoder, decoder, jpeg, ofa, power_mw, limit_mw, temperature, state;
  unsigned clock[4], pcie_generation, pcie_width, replays, persistence, compute_mode;
  unsigned remapped[4], retired[2];
  unsigned long long energy_mj, reasons, ecc[2][2];
  brim_nvml_violation violation[2];
  double gpm[64];
  brim_nvml_process compute[FAKE_TOP_PROCESSES], graphics[4], mps[4];
  unsigned compute_count, graphics_count, mps_count;
  brim_nvml_process_use_v1 use[FAKE_TOP_PROCESSES];
  unsigned use_count;
} fake_top_gpu;

typedef struct fake_top_sample {
  bool alive, taken;
  const void *of;
  unsigned instance;
  int64_t time_ns;
} fake_top_sample;

static struct {
  int64_t now_ns;
  unsigned count;
  fake_top_gpu gpu[FAKE_TOP_GPUS], slice[FAKE_TOP_SLICES];
  int init_code;
  size_t fail_at;  // this member of the table returns fail_code; 0 = none
  int fail_code;
  bool fail_all;  // every call about a GPU does
  int calls[sizeof(brim_nvml_api) / sizeof(void *)];
  brim_nvml_event events[100];
  int event_count, event_next, sets, registered;
  fake_top_sample samples[FAKE_TOP_SAMPLES];
  int shutdowns;
} fake_top;

//---------------------------------- the figures ----------------------------------

static inline void fake_top_fill(fake_top_gpu *g, const char *uuid) {
  memset(g, 0, sizeof *g);
  snprintf(g->uuid, sizeof g->uuid, "%s", uuid);
  g->gpu = 99;
  g->memory = 3;
  g->power_mw = 203000;
  g->limit_mw = 700000;
  g->temperature = 41;
  g->clock[1] = 1980;
  g->clock[2] = 3201;
  g->clock[3] = 1545;
  g->pcie_generation = 5;
  g->pcie_width = 16;
  g->persistence = 1;
  g->energy_mj = 5000000;
  g->gpm[BRIM_NVML_GPM_GRAPHICS_UTIL] = 99;
  g->gpm[BRIM_NVML_GPM_SM_UTIL] = 32;
  g->gpm[BRIM_NVML_GPM_SM_OCCUPANCY] = 2;
  g->gpm[BRIM_NVML_GPM_ANY_TENSOR_UTIL] = 0;
  g->gpm[BRIM_NVML_GPM_DRAM_BW_UTIL] = 1;
  g->gpm[BRIM_NVML_GPM_PCIE_RX] = 290;
  g->gpm[BRIM_NVML_GPM_PCIE_TX] = 70;
}

static inline void fake_top_reset(unsigned count) {
  memset(&fake_top, 0, sizeof fake_top);
  fake_top.now_ns = 1000 * FAKE_TOP_S;
  fake_top.count = count;
  for (unsigned i = 0; i < FAKE_TOP_GPUS; i++) {
    char uuid[64];
    snprintf(uuid, sizeof uuid, "GPU-%u", i);
    fake_top_fill(&fake_top.gpu[i], uuid);
  }
  for (unsigned i = 0; i < FAKE_TOP_SLICES; i++) {
    char uuid[64];
    snprintf(uuid, sizeof uuid, "MIG-%u", i);
    fake_top_fill(&fake_top.slice[i], uuid);
    fake_top.slice[i].slice = true;
    fake_top.slice[i].instance = i + 1;
  }
}

static inline void fake_top_pass(double seconds) {
  int64_t ns = (int64_t)(seconds * 1e9);
  fake_top.now_ns += ns;
  for (unsigned i = 0; i < FAKE_TOP_GPUS; i++) {
    fake_top_gpu *g = &fake_top.gpu[i];
    g->energy_mj += (unsigned long long)(g->power_mw * seconds);
    for (int k = 0; k < 2; k++) g->violation[k].reference_us += (unsigned long long)ns / 1000;
  }
}

static inline void fake_top_xid(unsigned gpu, unsigned long long xid) {
  fake_top.events[fake_top.event_count++] =
      (brim_nvml_event){.device = gpu < FAKE_TOP_GPUS ? (void *)&fake_top.gpu[gpu] : NULL,
                        .type = BRIM_NVML_EVENT_XID,
                        .data = xid};
}

static inline int fake_top_calls(size_t member) { return fake_top.calls[member / sizeof(void *)]; }

static inline int fake_top_alive(void) {
  int n = 0;
  for (int i = 0; i < FAKE_TOP_SAMPLES; i++) n += fake_top.samples[i].alive;
  return n;
}

//---------------------------------- the library ----------------------------------

static inline int64_t fake_top_now(void) { return fake_top.now_ns; }

// The status of a call about a GPU.
static inline int fake_top_enter(const void *device, size_t member) {
  const fake_top_gpu *g = (const fake_top_gpu *)device;
  fake_top.calls[member / sizeof(void *)]++;
  if (g && g->lost) return BRIM_NVML_GPU_IS_LOST;
  if (fake_top.fail_all || (fake_top.fail_at && member == fake_top.fail_at)) {
    return fake_top.fail_code;
  }
  return 0;
}

static inline int fake_top_init(void) { return fake_top.init_code; }
static inline int fake_top_shutdown(void) {
  fake_top.shutdowns++;
  return 0;
}
static inline const char *fake_top_error(int code) { return code == 15 ? "GPU is lost" : "odd"; }
static inline int fake_top_driver(char *text, unsigned size) {
  snprintf(text, size, "580.159.04");
  return 0;
}
static inline int fake_top_by_uuid(const char *uuid, void **device) {
  (void)uuid;
  (void)device;
  return BRIM_NVML_NOT_FOUND;
}
static inline int fake_top_count(unsigned *count) {
  *count = fake_top.count;
  return fake_top_enter(NULL, FAKE_TOP_AT(device_count));
}
static inline int fake_top_by_index(unsigned index, void **device) {
  *device = &fake_top.gpu[index];
  return fake_top_enter(NULL, FAKE_TOP_AT(by_index));
}
static inline int fake_top_uuid(void *device, char *text, unsigned size) {
  snprintf(text, size, "%s", ((fake_top_gpu *)device)->uuid);
  return fake_top_enter(device, FAKE_TOP_AT(uuid));
}
static inline int fake_top_name(void *device, char *text, unsigned size) {
  snprintf(text, size, "NVIDIA H200");
  return fake_top_enter(device, FAKE_TOP_AT(name));
}
static inline int fake_top_pci(void *device, brim_nvml_pci *out) {
  *out = (brim_nvml_pci){.bus = 0x3b, .bus_id = "00000000:3B:00.0"};
  return fake_top_enter(device, FAKE_TOP_AT(pci));
}

// A call that returns one member of the GPU.
#define FAKE_TOP_VALUE(call, type, value)                      \
  static inline int fake_top_##call(void *device, type *out) { \
    const fake_top_gpu *g = (const fake_top_gpu *)device;      \
    int code = fake_top_enter(device, FAKE_TOP_AT(call));      \
    if (code == 0) *out = (value);                             \
    return code;                                               \
  }
FAKE_TOP_VALUE(power, unsigned, g->power_mw)
FAKE_TOP_VALUE(power_limit, unsigned, g->limit_mw)
FAKE_TOP_VALUE(power_default, unsigned, g->limit_mw)
FAKE_TOP_VALUE(energy, unsigned long long, g->energy_mj)
FAKE_TOP_VALUE(event_reasons, unsigned long long, g->reasons)
FAKE_TOP_VALUE(throttle_reasons, unsigned long long, g->reasons)
FAKE_TOP_VALUE(pcie_replays, unsigned, g->replays)
FAKE_TOP_VALUE(pcie_generation, unsigned, g->pcie_generation)
FAKE_TOP_VALUE(pcie_width, unsigned, g->pcie_width)
FAKE_TOP_VALUE(pcie_generation_max, unsigned, g->pcie_generation)
FAKE_TOP_VALUE(pcie_width_max, unsigned, g->pcie_width)
FAKE_TOP_VALUE(retired_pending, unsigned, g->retired[1] > 0)
FAKE_TOP_VALUE(performance_state, unsigned, g->state)
FAKE_TOP_VALUE(persistence, unsigned, g->persistence)
FAKE_TOP_VALUE(compute_mode, unsigned, g->compute_mode)
FAKE_TOP_VALUE(fan, unsigned, 33u + 0u * g->mig)
FAKE_TOP_VALUE(gpu_instance, unsigned, g->instance)
FAKE_TOP_VALUE(mig_count, unsigned, FAKE_TOP_SLICES + 0u * g->mig)

#define FAKE_TOP_PERCENT(call)                                                          \
  static inline int fake_top_##call(void *device, unsigned *out, unsigned *period_us) { \
    int code = fake_top_enter(device, FAKE_TOP_AT(call));                               \
    if (code == 0) *out = ((const fake_top_gpu *)device)->call;                         \
    *period_us = 166666;                                                                \
    return code;                                                                        \
  }
FAKE_TOP_PERCENT(encoder)
FAKE_TOP_PERCENT(decoder)
FAKE_TOP_PERCENT(jpeg)
FAKE_TOP_PERCENT(ofa)

static inline int fake_top_utilisation(void *device, brim_nvml_utilisation *out) {
  const fake_top_gpu *g = (const fake_top_gpu *)device;
  int code = fake_top_enter(device, FAKE_TOP_AT(utilisation));
  if (g->slice || g->mig) code = code ? code : BRIM_NVML_NOT_SUPPORTED;
  if (code == 0) *out = (brim_nvml_utilisation){g->gpu, g->memory};
  return code;
}
static inline int fake_top_clock(void *device, int type, unsigned *mhz) {
  *mhz = ((fake_top_gpu *)device)->clock[type];
  return fake_top_enter(device, FAKE_TOP_AT(clock));
}
static inline int fake_top_clock_max(void *device, int type, unsigned *mhz) {
  *mhz = type == BRIM_NVML_CLOCK_SM ? 1980 : 3201;
  return fake_top_enter(device, FAKE_TOP_AT(clock_max));
}
static inline int fake_top_temperature(void *device, int sensor, unsigned *celsius) {
  (void)sensor;
  *celsius = ((fake_top_gpu *)device)->temperature;
  return fake_top_enter(device, FAKE_TOP_AT(temperature));
}
static inline int fake_top_threshold(void *device, int which, unsigned *celsius) {
  *celsius = which == BRIM_NVML_THRESHOLD_SHUTDOWN ? 95 : 89;
  return fake_top_enter(device, FAKE_TOP_AT(threshold));
}
static inline int fake_top_bounds(void *device, unsigned *low, unsigned *high) {
  *low = 200000;
  *high = 700000;
  return fake_top_enter(device, FAKE_TOP_AT(power_bounds));
}
static inline int fake_top_memory_v2(void *device, brim_nvml_memory_v2 *out) {
  assert_int_equal(out->version, BRIM_NVML_MEMORY_V2_VERSION);
  out->total = 143771 * FAKE_TOP_MIB;
  out->reserved = 616 * FAKE_TOP_MIB;
  out->used = 9663 * FAKE_TOP_MIB;
  return fake_top_enter(device, FAKE_TOP_AT(memory_v2));
}
static inline int fake_top_memory(void *device, brim_nvml_memory *out) {
  *out = (brim_nvml_memory){143771 * FAKE_TOP_MIB, 0, 10279 * FAKE_TOP_MIB};
  return fake_top_enter(device, FAKE_TOP_AT(memory));
}
static inline int fake_top_bar1(void *device, brim_nvml_memory *out) {
  *out = (brim_nvml_memory){262144 * FAKE_TOP_MIB, 0, 9664 * FAKE_TOP_MIB};
  return fake_top_enter(device, FAKE_TOP_AT(bar1));
}
static inline int fake_top_protected(void *device, brim_nvml_memory *out) {
  *out = (brim_nvml_memory){0, 0, 0};
  return fake_top_enter(device, FAKE_TOP_AT(protected_memory));
}
static inline int fake_top_violation(void *device, int policy, brim_nvml_violation *out) {
  *out = ((fake_top_gpu *)device)->violation[policy];
  return fake_top_enter(device, FAKE_TOP_AT(violation));
}
static inline int fake_top_ecc_mode(void *device, unsigned *now, unsigned *pending) {
  *now = *pending = 1;
  return fake_top_enter(device, FAKE_TOP_AT(ecc_mode));
}
static inline int fake_top_ecc(void *device, int type, int counter, unsigned long long *count) {
  *count = ((fake_top_gpu *)device)->ecc[type][counter];
  return fake_top_enter(device, FAKE_TOP_AT(ecc_errors));
}
static inline int fake_top_throughput(void *device, int counter, unsigned *kb) {
  *kb = counter == BRIM_NVML_PCIE_RX ? 300 * 1024 : 60 * 1024;
  return fake_top_enter(device, FAKE_TOP_AT(pcie_throughput));
}
static inline int fake_top_remapped(void *device, unsigned *corrected, unsigned *uncorrected,
                                    unsigned *pending, unsigned *failed) {
  const fake_top_gpu *g = (const fake_top_gpu *)device;
  *corrected = g->remapped[0];
  *uncorrected = g->remapped[1];
  *pending = g->remapped[2];
  *failed = g->remapped[3];
  return fake_top_enter(device, FAKE_TOP_AT(remapped_rows));
}
static inline int fake_top_retired(void *device, int cause, unsigned *count,
                                   unsigned long long *addresses) {
  assert_null(addresses);
  assert_int_equal(*count, 0);
  *count = ((fake_top_gpu *)device)->retired[cause];
  int code = fake_top_enter(device, FAKE_TOP_AT(retired_pages));
  return code ? code : *count ? BRIM_NVML_INSUFFICIENT_SIZE : 0;
}
static inline int fake_top_fields(void *device, int count, brim_nvml_field *in_out) {
  for (int i = 0; i < count; i++) {
    assert_int_equal(in_out[i].id, 82);
    in_out[i].type = BRIM_NVML_TYPE_UINT;
    in_out[i].code = 0;
    in_out[i].value.u32 = 40;
  }
  return fake_top_enter(device, FAKE_TOP_AT(fields));
}
static inline int fake_top_mig_mode(void *device, unsigned *now, unsigned *pending) {
  *now = *pending = ((fake_top_gpu *)device)->mig;
  return fake_top_enter(device, FAKE_TOP_AT(mig_mode));
}
static inline int fake_top_mig_by_index(void *device, unsigned index, void **slice) {
  if (index >= ((fake_top_gpu *)device)->slices) return BRIM_NVML_NOT_FOUND;
  *slice = &fake_top.slice[index];
  return fake_top_enter(device, FAKE_TOP_AT(mig_by_index));
}

static inline int fake_top_list(const brim_nvml_process *from, unsigned have, unsigned *count,
                                brim_nvml_process *out) {
  unsigned room = *count;
  *count = have;
  if (have > room) return BRIM_NVML_INSUFFICIENT_SIZE;
  if (have) memcpy(out, from, have * sizeof *out);
  return 0;
}
#define FAKE_TOP_LIST(call)                                                                  \
  static inline int fake_top_##call(void *device, unsigned *count, brim_nvml_process *out) { \
    const fake_top_gpu *g = (const fake_top_gpu *)device;                                    \
    int code = fake_top_enter(device, FAKE_TOP_AT(call));                                    \
    return code ? code : fake_top_list(g->call, g->call##_count, count, out);                \
  }
FAKE_TOP_LIST(compute)
FAKE_TOP_LIST(graphics)
FAKE_TOP_LIST(mps)

static inline int fake_top_processes_use(void *device, brim_nvml_processes_use *in_out) {
  const fake_top_gpu *g = (const fake_top_gpu *)device;
  int code = fake_top_enter(device, FAKE_TOP_AT(processes_use));
  assert_int_equal(in_out->version, 0x01000018);
  unsigned n = 0, room = in_out->count;
  for (unsigned i = 0; i < g->use_count && !code; i++) {
    if (g->use[i].time_us <= in_out->since_us) continue;
    if (n < room) in_out->list[n] = g->use[i];
    n++;
  }
  in_out->count = n;
  if (!code && n > room) return BRIM_NVML_INSUFFICIENT_SIZE;
  return code ? code : n ? 0 : BRIM_NVML_NOT_FOUND;
}
static inline int fake_top_process_use(void *device, brim_nvml_process_use *out, unsigned *count,
                                       unsigned long long since_us) {
  const fake_top_gpu *g = (const fake_top_gpu *)device;
  int code = fake_top_enter(device, FAKE_TOP_AT(process_use));
  unsigned n = 0, room = *count;
  for (unsigned i = 0; i < g->use_count && !code; i++) {
    const brim_nvml_process_use_v1 *u = &g->use[i];
    if (u->time_us <= since_us) continue;
    if (n < room) {
      out[n] =
          (brim_nvml_process_use){u->pid, u->time_us, u->sm, u->memory, u->encoder, u->decoder};
    }
    n++;
  }
  *count = n;
  if (!code && n > room) return BRIM_NVML_INSUFFICIENT_SIZE;
  return code ? code : n ? 0 : BRIM_NVML_NOT_FOUND;
}

static inline int fake_top_event_create(void **set) {
  int code = fake_top_enter(NULL, FAKE_TOP_AT(event_create));
  if (!code) fake_top.sets++;
  *set = &fake_top.events;
  return code;
}
static inline int fake_top_event_free(void *set) {
  assert_ptr_equal(set, &fake_top.events);
  fake_top.sets--;
  return 0;
}
static inline int fake_top_event_register(void *device, unsigned long long types, void *set) {
  assert_ptr_equal(set, &fake_top.events);
  assert_true(types == BRIM_NVML_EVENT_XID);
  int code = fake_top_enter(device, FAKE_TOP_AT(event_register));
  if (!code) fake_top.registered++;
  return code;
}
static inline int fake_top_event_wait(void *set, brim_nvml_event *out, unsigned timeout_ms) {
  assert_ptr_equal(set, &fake_top.events);
  assert_int_equal(timeout_ms, 0);  // a reading never waits
  if (fake_top.event_next == fake_top.event_count) return BRIM_NVML_TIMEOUT;
  *out = fake_top.events[fake_top.event_next++];
  return 0;
}

static inline int fake_top_gpm_support(void *device, brim_nvml_gpm_support *in_out) {
  in_out->supported = 1;
  return fake_top_enter(device, FAKE_TOP_AT(gpm_support));
}
static inline int fake_top_gpm_alloc(void **sample) {
  int i = 0;
  while (fake_top.samples[i].alive) i++;
  assert_true(i < FAKE_TOP_SAMPLES);
  fake_top.samples[i] = (fake_top_sample){.alive = true};
  *sample = &fake_top.samples[i];
  return 0;
}
static inline int fake_top_gpm_free(void *sample) {
  assert_true(((fake_top_sample *)sample)->alive);
  ((fake_top_sample *)sample)->alive = false;
  return 0;
}
static inline int fake_top_gpm_sample(void *device, void *sample) {
  fake_top_sample *to = (fake_top_sample *)sample;
  assert_true(to->alive);
  int code = fake_top_enter(device, FAKE_TOP_AT(gpm_sample));
  if (!code) *to = (fake_top_sample){true, true, device, 0, fake_top.now_ns};
  return code;
}
static inline int fake_top_gpm_mig_sample(void *device, unsigned instance, void *sample) {
  fake_top_sample *to = (fake_top_sample *)sample;
  assert_false(((fake_top_gpu *)device)->slice);  // only the whole GPU can be asked
  int code = fake_top_enter(device, FAKE_TOP_AT(gpm_mig_sample));
  if (!code) *to = (fake_top_sample){true, true, device, instance, fake_top.now_ns};
  return code;
}
static inline int fake_top_gpm_metrics(brim_nvml_gpm_metrics *in_out) {
  const fake_top_sample *a = (const fake_top_sample *)in_out->first;
  const fake_top_sample *b = (const fake_top_sample *)in_out->second;
  assert_true(a != b && a->alive && a->taken && b->alive && b->taken);
  assert_true(a->of == b->of && a->instance == b->instance);
  assert_true(b->time_ns - a->time_ns >= FAKE_TOP_S / 10);
  const fake_top_gpu *g = (const fake_top_gpu *)a->of;
  if (a->instance) g = &fake_top.slice[a->instance - 1];
  for (unsigned i = 0; i < in_out->count; i++) {
    brim_nvml_gpm_metric *m = &in_out->metric[i];
    m->value = g->gpm[m->id];
    m->code = m->id >= BRIM_NVML_GPM_NVLINK_RX ? BRIM_NVML_NOT_SUPPORTED : 0;
  }
  return fake_top_enter(a->of, FAKE_TOP_AT(gpm_metrics));
}

// Calls that only `brim top` makes.
static inline void fake_top_add_calls(brim_nvml_api *api) {
  api->gpu_instance = fake_top_gpu_instance;
  api->encoder = fake_top_encoder;
  api->decoder = fake_top_decoder;
  api->jpeg = fake_top_jpeg;
  api->ofa = fake_top_ofa;
  api->bar1 = fake_top_bar1;
  api->protected_memory = fake_top_protected;
  api->violation = fake_top_violation;
  api->ecc_mode = fake_top_ecc_mode;
  api->ecc_errors = fake_top_ecc;
  api->pcie_replays = fake_top_pcie_replays;
  api->pcie_throughput = fake_top_throughput;
  api->pcie_generation = fake_top_pcie_generation;
  api->pcie_width = fake_top_pcie_width;
  api->pcie_generation_max = fake_top_pcie_generation_max;
  api->pcie_width_max = fake_top_pcie_width_max;
  api->performance_state = fake_top_performance_state;
  api->persistence = fake_top_persistence;
  api->compute_mode = fake_top_compute_mode;
  api->fan = fake_top_fan;
  api->remapped_rows = fake_top_remapped;
  api->retired_pages = fake_top_retired;
  api->fields = fake_top_fields;
  api->process_use = fake_top_process_use;
  api->processes_use = fake_top_processes_use;
  api->event_create = fake_top_event_create;
  api->event_free = fake_top_event_free;
  api->event_register = fake_top_event_register;
  api->event_wait = fake_top_event_wait;
  api->now_ns = fake_top_now;
}

// The whole table. Members may be replaced or set to NULL.
static inline brim_nvml_api fake_top_api(void) {
  brim_nvml_api api = {.init = fake_top_init,
                       .shutdown = fake_top_shutdown,
                       .by_uuid = fake_top_by_uuid,
                       .error_string = fake_top_error,
                       .driver_version = fake_top_driver,
                       .memory_v2 = fake_top_memory_v2,
                       .memory = fake_top_memory,
                       .compute = fake_top_compute,
                       .graphics = fake_top_graphics,
                       .mps = fake_top_mps,
                       .utilisation = fake_top_utilisation,
                       .power = fake_top_power,
                       .power_limit = fake_top_power_limit,
                       .power_default = fake_top_power_default,
                       .power_bounds = fake_top_bounds,
                       .energy = fake_top_energy,
                       .clock = fake_top_clock,
                       .clock_max = fake_top_clock_max,
                       .event_reasons = fake_top_event_reasons,
                       .throttle_reasons = fake_top_throttle_reasons,
                       .temperature = fake_top_temperature,
                       .threshold = fake_top_threshold,
                       .gpm_support = fake_top_gpm_support,
                       .gpm_alloc = fake_top_gpm_alloc,
                       .gpm_free = fake_top_gpm_free,
                       .gpm_sample = fake_top_gpm_sample,
                       .gpm_mig_sample = fake_top_gpm_mig_sample,
                       .gpm_metrics = fake_top_gpm_metrics,
                       .device_count = fake_top_count,
                       .by_index = fake_top_by_index,
                       .uuid = fake_top_uuid,
                       .name = fake_top_name,
                       .pci = fake_top_pci,
                       .mig_mode = fake_top_mig_mode,
                       .mig_count = fake_top_mig_count,
                       .mig_by_index = fake_top_mig_by_index};
  fake_top_add_calls(&api);
  return api;
}

#endif  // BRIM_TESTS_MONITOR_FAKE_TOP_H_
