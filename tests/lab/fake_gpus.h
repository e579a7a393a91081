// A scripted machine: up to eight GPUs of its own NVML, with their memory and processes, and a /proc in a folder of the
// test. One per test program.
#ifndef BRIM_TESTS_LAB_FAKE_GPUS_H_
#define BRIM_TESTS_LAB_FAKE_GPUS_H_

#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "monitor/monitor_nvml_abi.h"
#include "test.h"

#define FAKE_GIB (1ULL << 30)
#define FAKE_ROOT "root"

enum { FAKE_GPUS = 8, FAKE_SLICES = 4, FAKE_PROCESSES = 16 };

typedef struct fake_gpu {
  char uuid[64];
  const char *name;                          // NULL = "NVIDIA Fake"
  unsigned long long total, reserved, used;  // `used`: besides the processes' memory
  brim_nvml_process process[FAKE_PROCESSES];
  unsigned process_count;
  unsigned graphics;  // how many of the last processes only draw
  int memory_code, list_code, uuid_code;
  bool lies;  // reports more free memory than it has
  unsigned percent, milliwatts, celsius;
  int usage_code;  // status of the three usage calls
  bool mig;
  unsigned slice_count;
  struct fake_gpu *slices;
} fake_gpu;

static struct {
  unsigned count;
  int count_code;
  int64_t now_ns;  // the samplers' clock; 0 = the machine's
  fake_gpu gpu[FAKE_GPUS];
  fake_gpu slice[FAKE_SLICES];
} fake;

static inline fake_gpu *fake_gpu_of(const char *uuid) {
  for (unsigned i = 0; i < fake.count; i++) {
    if (strcmp(fake.gpu[i].uuid, uuid) == 0) return &fake.gpu[i];
    for (unsigned k = 0; k < fake.gpu[i].slice_count; k++) {
      if (strcmp(fake.gpu[i].slices[k].uuid, uuid) == 0) return &fake.gpu[i].slices[k];
    }
  }
  return NULL;
}

//---------------------------------- what the test says ----------------------------------

static inline void fake_gpu_init(fake_gpu *g, const char *uuid, unsigned long long total) {
  *g = (fake_gpu){.total = total, .reserved = total / 100, .used = 1 << 20};
  snprintf(g->uuid, sizeof g->uuid, "%s", uuid);
}

// Resets everything: GPUs of 80 GiB, nothing on them.
static inline void fake_reset(unsigned count) {
  memset(&fake, 0, sizeof fake);
  fake.count = count;
  for (unsigned i = 0; i < count; i++) {
    char uuid[64];
    snprintf(uuid, sizeof uuid, "GPU-%08x-0000-4000-8000-%012x", 0xa0u + i, i);
    fake_gpu_init(&fake.gpu[i], uuid, 80 * FAKE_GIB);
  }
  assert_int_equal(system("rm -rf root locks && mkdir -p root/proc locks"), 0);
}

static inline void fake_write(const char *path, const char *text, size_t size) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, size, f), size);
  assert_int_equal(fclose(f), 0);
}

// Adds a process to /proc, as a child of another.
static inline void fake_process(int pid, int parent, const char *command) {
  char path[256], text[256];
  snprintf(path, sizeof path, FAKE_ROOT "/proc/%d", pid);
  assert_true(mkdir(path, 0777) == 0 || brim_fs_is_dir(path));
  snprintf(path, sizeof path, FAKE_ROOT "/proc/%d/stat", pid);
  int n = snprintf(text, sizeof text, "%d (odd ) name) S %d 1 1 0 -1", pid, parent);
  fake_write(path, text, (size_t)n);
  snprintf(path, sizeof path, FAKE_ROOT "/proc/%d/cmdline", pid);
  fake_write(path, command, strlen(command) + 1);
}

static inline void fake_process_ends(int pid) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf root/proc/%d", pid);
  assert_int_equal(system(command), 0);
}

static inline void fake_use(fake_gpu *g, int pid, unsigned long long bytes) {
  assert_true(g->process_count < FAKE_PROCESSES);
  g->process[g->process_count++] = (brim_nvml_process){.pid = (unsigned)pid, .used_bytes = bytes};
}

static inline void fake_unuse(fake_gpu *g, int pid) {
  for (unsigned i = 0; i < g->process_count; i++) {
    if (g->process[i].pid != (unsigned)pid) continue;
    g->process[i] = g->process[--g->process_count];
    return;
  }
  fail_msg("pid %d is not on the GPU", pid);
}

//---------------------------------- the library ----------------------------------

static inline int fake_gpus_init(void) { return 0; }
static inline int fake_gpus_shutdown(void) { return 0; }
static inline const char *fake_gpus_error(int code) {
  return code == BRIM_NVML_GPU_IS_LOST ? "GPU is lost" : "odd";
}
static inline int fake_gpus_by_uuid(const char *uuid, void **device) {
  *device = fake_gpu_of(uuid);
  return *device ? ((fake_gpu *)*device)->uuid_code : BRIM_NVML_NOT_FOUND;
}
static inline int fake_gpus_memory(void *device, brim_nvml_memory_v2 *out) {
  const fake_gpu *g = (const fake_gpu *)device;
  if (g->memory_code) return g->memory_code;
  unsigned long long used = g->used;
  for (unsigned i = 0; i < g->process_count; i++) {
    if (g->process[i].used_bytes != BRIM_NVML_UNKNOWN) used += g->process[i].used_bytes;
  }
  out->total = g->total;
  out->reserved = g->reserved;
  out->used = used;
  out->free = g->total - g->reserved - used;
  if (g->lies) out->free = 2 * g->total;
  return 0;
}
static inline int fake_gpus_list(const fake_gpu *g, unsigned from, unsigned to, unsigned *count,
                                 brim_nvml_process *out) {
  if (g->list_code) return g->list_code;
  unsigned n = to - from;
  bool fits = n <= *count;
  for (unsigned i = 0; i < n && fits; i++) out[i] = g->process[from + i];
  *count = n;
  return fits ? 0 : BRIM_NVML_INSUFFICIENT_SIZE;
}
static inline int fake_gpus_compute(void *device, unsigned *count, brim_nvml_process *out) {
  const fake_gpu *g = (const fake_gpu *)device;
  return fake_gpus_list(g, 0, g->process_count - g->graphics, count, out);
}
static inline int fake_gpus_graphics(void *device, unsigned *count, brim_nvml_process *out) {
  const fake_gpu *g = (const fake_gpu *)device;
  return fake_gpus_list(g, g->process_count - g->graphics, g->process_count, count, out);
}
static inline int fake_gpus_count(unsigned *count) {
  *count = fake.count;
  return fake.count_code;
}
static inline int fake_gpus_by_index(unsigned index, void **device) {
  *device = &fake.gpu[index];
  return fake.gpu[index].uuid_code;
}
static inline int fake_gpus_uuid(void *device, char *text, unsigned size) {
  snprintf(text, size, "%s", ((const fake_gpu *)device)->uuid);
  return 0;
}
static inline int fake_gpus_name(void *device, char *text, unsigned size) {
  const char *name = ((const fake_gpu *)device)->name;
  snprintf(text, size, "%s", name ? name : "NVIDIA Fake");
  return 0;
}
static inline int fake_gpus_mig_mode(void *device, unsigned *now, unsigned *pending) {
  *now = *pending = ((const fake_gpu *)device)->mig;
  return 0;
}
static inline int fake_gpus_mig_count(void *device, unsigned *count) {
  (void)device;
  *count = 7;  // entries, most of them empty
  return 0;
}
static inline int fake_gpus_mig_by_index(void *device, unsigned index, void **slice) {
  const fake_gpu *g = (const fake_gpu *)device;
  if (index >= g->slice_count) return BRIM_NVML_NOT_FOUND;
  *slice = &g->slices[index];
  return 0;
}

static inline int fake_gpus_utilisation(void *device, brim_nvml_utilisation *out) {
  out->gpu = ((const fake_gpu *)device)->percent;
  return ((const fake_gpu *)device)->usage_code;
}
static inline int fake_gpus_power(void *device, unsigned *mw) {
  *mw = ((const fake_gpu *)device)->milliwatts;
  return ((const fake_gpu *)device)->usage_code;
}
static inline int fake_gpus_temperature(void *device, int sensor, unsigned *celsius) {
  (void)sensor;
  *celsius = ((const fake_gpu *)device)->celsius;
  return ((const fake_gpu *)device)->usage_code;
}
static inline int64_t fake_gpus_now(void) {
  return fake.now_ns ? fake.now_ns : brim_clock_now().ns;
}

static inline brim_gpu_monitor *fake_monitor(void) {
  const brim_nvml_api api = {.init = fake_gpus_init,
                             .shutdown = fake_gpus_shutdown,
                             .by_uuid = fake_gpus_by_uuid,
                             .error_string = fake_gpus_error,
                             .memory_v2 = fake_gpus_memory,
                             .compute = fake_gpus_compute,
                             .graphics = fake_gpus_graphics,
                             .device_count = fake_gpus_count,
                             .by_index = fake_gpus_by_index,
                             .uuid = fake_gpus_uuid,
                             .name = fake_gpus_name,
                             .mig_mode = fake_gpus_mig_mode,
                             .mig_count = fake_gpus_mig_count,
                             .mig_by_index = fake_gpus_mig_by_index,
                             .utilisation = fake_gpus_utilisation,
                             .power = fake_gpus_power,
                             .temperature = fake_gpus_temperature,
                             .now_ns = fake_gpus_now};
  brim_gpu_monitor *m = NULL;
  assert_ok(brim_gpu_monitor_open_api(&api, FAKE_ROOT, &m));
  return m;
}

#endif  // BRIM_TESTS_LAB_FAKE_GPUS_H_
