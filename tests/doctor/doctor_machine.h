// A fake machine: files below a folder, variables, sizes of file systems, and GPUs with their own NVML. It starts as a
// good one; a test changes the part that it checks.
#ifndef BRIM_TESTS_DOCTOR_MACHINE_H_
#define BRIM_TESTS_DOCTOR_MACHINE_H_

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "doctor/doctor.h"
#include "monitor/monitor_nvml_abi.h"
#include "test.h"

#define GIB_U (1ULL << 30)

typedef struct fake_gpu {
  const char *uuid, *name, *bus;
  unsigned long long total, free;
  unsigned ecc, mig, persistence, compute_mode, power_mw, power_default_mw, clock, temperature;
  unsigned generation, generation_max, width, width_max, state;
  unsigned remap_pending, remap_failed, remapped;
  unsigned long long uncorrected, corrected, reasons;
  brim_nvml_process processes[4];
  unsigned process_count;
} fake_gpu;

enum { FAKE_GPUS = 2, FAKE_VARIABLES = 8 };
static struct {
  char root[512];
  fake_gpu gpus[FAKE_GPUS];
  unsigned gpu_count;
  bool silent;  // every call about a GPU's setup is refused
  int cuda;
  const char *names[FAKE_VARIABLES], *values[FAKE_VARIABLES];
  brim_doctor_space shm, disk;
  bool no_shm, no_disk;
} fake;

//---------------------------------- files ----------------------------------

static inline void fake_file(const char *path, const char *text) {
  char full[1024];
  snprintf(full, sizeof full, "%s%s", fake.root, path);
  char *folder = brim_fs_dirname(full);
  assert_ok(brim_fs_mkdirs(folder));
  brim_free(folder);
  FILE *f = fopen(full, "w");  // unlike brim_fs_write, which waits for the disk each time
  assert_non_null(f);
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
}

static inline void fake_gone(const char *path) {
  char full[1024];
  snprintf(full, sizeof full, "%s%s", fake.root, path);
  if (brim_fs_exists(full)) assert_ok(brim_fs_remove(full));
}

static inline const char *fake_env(void *ctx, const char *name) {
  (void)ctx;
  for (int i = 0; i < FAKE_VARIABLES; i++) {
    if (fake.names[i] && strcmp(fake.names[i], name) == 0) return fake.values[i];
  }
  return NULL;
}

static inline void fake_set(const char *name, const char *value) {
  for (int i = 0; i < FAKE_VARIABLES; i++) {
    if (fake.names[i]) continue;
    fake.names[i] = name;
    fake.values[i] = value;
    return;
  }
  fail_msg("too many variables");
}

static inline bool fake_space(void *ctx, const char *path, brim_doctor_space *out) {
  (void)ctx;
  bool shm = strcmp(path, "/dev/shm") == 0;
  *out = shm ? fake.shm : fake.disk;
  return shm ? !fake.no_shm : !fake.no_disk;
}

//---------------------------------- NVML ----------------------------------

static inline int nvml_ok(void) { return 0; }
static inline const char *nvml_error(int code) {
  (void)code;
  return "refused";
}
static inline int nvml_driver(char *text, unsigned size) {
  snprintf(text, size, "580.159.04");
  return 0;
}
static inline int nvml_cuda(int *version) {
  *version = fake.cuda;
  return 0;
}
static inline int nvml_count(unsigned *count) {
  *count = fake.gpu_count;
  return 0;
}
static inline int nvml_at(unsigned index, void **device) {
  *device = &fake.gpus[index];
  return 0;
}
static inline int nvml_by_uuid(const char *uuid, void **device) {
  for (unsigned i = 0; i < FAKE_GPUS; i++) {
    if (!fake.gpus[i].uuid || strcmp(fake.gpus[i].uuid, uuid) != 0) continue;
    *device = &fake.gpus[i];
    return 0;
  }
  return BRIM_NVML_NOT_FOUND;
}
static inline int nvml_uuid(void *device, char *text, unsigned size) {
  snprintf(text, size, "%s", ((fake_gpu *)device)->uuid);
  return 0;
}
static inline int nvml_name(void *device, char *text, unsigned size) {
  snprintf(text, size, "%s", ((fake_gpu *)device)->name);
  return 0;
}
static inline int nvml_memory(void *device, brim_nvml_memory_v2 *out) {
  const fake_gpu *g = device;
  if (fake.silent) return BRIM_NVML_NOT_SUPPORTED;
  out->total = g->total;
  out->reserved = GIB_U / 2;
  out->free = g->free;
  out->used = g->total - g->free - GIB_U / 2;
  return 0;
}
static inline int nvml_processes(void *device, unsigned *count, brim_nvml_process *out) {
  const fake_gpu *g = device;
  if (fake.silent) return BRIM_NVML_NOT_SUPPORTED;
  unsigned room = *count;
  *count = g->process_count;
  if (room < g->process_count) return BRIM_NVML_INSUFFICIENT_SIZE;
  memcpy(out, g->processes, g->process_count * sizeof *out);
  return 0;
}
static inline int nvml_none(void *device, unsigned *count, brim_nvml_process *out) {
  (void)device;
  (void)out;
  *count = 0;
  return 0;
}
static inline int nvml_pci(void *device, brim_nvml_pci *out) {
  memset(out, 0, sizeof *out);
  snprintf(out->bus_id, sizeof out->bus_id, "%s", ((fake_gpu *)device)->bus);
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}
static inline int nvml_ecc(void *device, unsigned *now, unsigned *pending) {
  *now = *pending = ((fake_gpu *)device)->ecc;
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}
static inline int nvml_errors(void *device, int type, int counter, unsigned long long *count) {
  const fake_gpu *g = device;
  (void)counter;
  *count = type == BRIM_NVML_ECC_UNCORRECTED ? g->uncorrected : g->corrected;
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}
static inline int nvml_rows(void *device, unsigned *corrected, unsigned *uncorrected,
                            unsigned *pending, unsigned *failed) {
  const fake_gpu *g = device;
  *corrected = g->remapped;
  *uncorrected = 0;
  *pending = g->remap_pending;
  *failed = g->remap_failed;
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}
static inline int nvml_mig(void *device, unsigned *now, unsigned *pending) {
  *now = *pending = ((fake_gpu *)device)->mig;
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}
// The second fake GPU gets one slice in MIG mode.
static inline int nvml_mig_count(void *device, unsigned *count) {
  (void)device;
  *count = 1;
  return 0;
}
static inline int nvml_mig_at(void *device, unsigned index, void **slice) {
  (void)device;
  (void)index;
  *slice = &fake.gpus[1];
  return 0;
}
#define NVML_UNSIGNED(name, member)                            \
  static inline int nvml_##name(void *device, unsigned *out) { \
    *out = ((fake_gpu *)device)->member;                       \
    return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;          \
  }
NVML_UNSIGNED(persistence, persistence)
NVML_UNSIGNED(compute_mode, compute_mode)
NVML_UNSIGNED(power_limit, power_mw)
NVML_UNSIGNED(power_default, power_default_mw)
NVML_UNSIGNED(generation, generation)
NVML_UNSIGNED(generation_max, generation_max)
NVML_UNSIGNED(width, width)
NVML_UNSIGNED(width_max, width_max)
NVML_UNSIGNED(state, state)
static inline int nvml_clock(void *device, int type, unsigned *mhz) {
  (void)type;
  return nvml_ok() + (*mhz = ((fake_gpu *)device)->clock, fake.silent ? 3 : 0);
}
static inline int nvml_clock_max(void *device, int type, unsigned *mhz) {
  (void)device;
  (void)type;
  *mhz = 1980;
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}
static inline int nvml_temperature(void *device, int sensor, unsigned *celsius) {
  (void)sensor;
  *celsius = ((fake_gpu *)device)->temperature;
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}
static inline int nvml_threshold(void *device, int which, unsigned *celsius) {
  (void)device;
  (void)which;
  *celsius = 92;
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}
static inline int nvml_reasons(void *device, unsigned long long *bits) {
  *bits = ((fake_gpu *)device)->reasons;
  return fake.silent ? BRIM_NVML_NOT_SUPPORTED : 0;
}

static const brim_nvml_api fake_api = {.init = nvml_ok,
                                       .shutdown = nvml_ok,
                                       .by_uuid = nvml_by_uuid,
                                       .error_string = nvml_error,
                                       .driver_version = nvml_driver,
                                       .cuda_version = nvml_cuda,
                                       .memory_v2 = nvml_memory,
                                       .compute = nvml_processes,
                                       .graphics = nvml_none,
                                       .power_limit = nvml_power_limit,
                                       .power_default = nvml_power_default,
                                       .clock = nvml_clock,
                                       .clock_max = nvml_clock_max,
                                       .event_reasons = nvml_reasons,
                                       .temperature = nvml_temperature,
                                       .threshold = nvml_threshold,
                                       .device_count = nvml_count,
                                       .by_index = nvml_at,
                                       .uuid = nvml_uuid,
                                       .name = nvml_name,
                                       .mig_mode = nvml_mig,
                                       .mig_count = nvml_mig_count,
                                       .mig_by_index = nvml_mig_at,
                                       .pci = nvml_pci,
                                       .ecc_mode = nvml_ecc,
                                       .ecc_errors = nvml_errors,
                                       .remapped_rows = nvml_rows,
                                       .persistence = nvml_persistence,
                                       .compute_mode = nvml_compute_mode,
                                       .pcie_generation = nvml_generation,
                                       .pcie_generation_max = nvml_generation_max,
                                       .pcie_width = nvml_width,
                                       .pcie_width_max = nvml_width_max,
                                       .performance_state = nvml_state};

//---------------------------------- machines ----------------------------------

static const fake_gpu GOOD_GPU = {.uuid = "GPU-0",
                                  .name = "NVIDIA H200",
                                  .bus = "00000000:3B:00.0",
                                  .total = 140 * GIB_U,
                                  .free = 139 * GIB_U,
                                  .ecc = 1,
                                  .persistence = 1,
                                  .power_mw = 700000,
                                  .power_default_mw = 700000,
                                  .clock = 1980,
                                  .temperature = 40,
                                  .generation = 5,
                                  .generation_max = 5,
                                  .width = 16,
                                  .width_max = 16};

// A machine with nothing readable and nothing set.
static inline void fake_bare(void) {
  static int number;
  memset(&fake, 0, sizeof fake);
  snprintf(fake.root, sizeof fake.root, "machine-%d-%d", (int)getpid(), number++);
  assert_ok(brim_fs_mkdirs(fake.root));
  fake.no_shm = fake.no_disk = true;
  fake.cuda = 13000;
}

static inline void fake_host(void) {
  fake_file("/etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  fake_file("/proc/sys/kernel/osrelease", "6.1.0\n");
  fake_file("/proc/cpuinfo", "model name\t: A Processor\n");
  fake_file("/proc/meminfo",
            "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\nSwapTotal: 8388608 kB\nSwapFree: "
            "8388608 kB\n");
  fake_file("/proc/loadavg", "1.50 1.00 1.00 2/100 42\n");
  fake_file("/proc/self/status", "Name:\tbrim\nCpus_allowed_list:\t0-15\n");
  fake_file("/proc/self/cgroup", "0::/box\n");
  fake_file("/proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units\n"
            "Max processes             50000                50000                processes\n"
            "Max open files            65536                1048576              files\n"
            "Max locked memory         unlimited            unlimited            bytes\n");
  fake_file("/sys/devices/system/cpu/online", "0-15\n");
  fake_file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  fake_file("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  fake_file("/sys/fs/cgroup/box/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
  fake_file("/sys/fs/cgroup/box/memory.events", "oom 0\noom_kill 0\n");
  fake_file("/dev/shm/semaphore", "");
  fake_file("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
  fake.shm = fake.disk = (brim_doctor_space){64.0 * (double)GIB_U, 50.0 * (double)GIB_U};
  fake.no_shm = fake.no_disk = false;
}

static inline void fake_good(void) {
  fake_bare();
  fake_host();
  fake.gpu_count = 1;
  fake.gpus[0] = GOOD_GPU;
  fake_file("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Nov 17\n");
  fake_file("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "0\n");
  fake_file("/sys/bus/pci/devices/0000:3b:00.0/local_cpulist", "0-7\n");
  static const char *const libraries[] = {
      "libcudart.so.13", "libcudart.so.13.0.48", "libcublasLt.so.13",  "libcudnn.so.9.12.0",
      "libnccl.so.2.27", "libcupti.so.13",       "libcudnn_graph.so.9"};
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
    char path[256];
    snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", libraries[i]);
    fake_file(path, "elf");
  }
}

//---------------------------------- asking ----------------------------------

static brim_doctor_report fake_report;
static const char *fake_data;
static const brim_registry *fake_registry;

// The states that each check had in the tests of this program.
enum { FAKE_CHECKS = 96 };
static struct {
  const char *key;
  bool had[BRIM_DOCTOR_STATE_COUNT];
} fake_seen[FAKE_CHECKS];

static inline void fake_remember(void) {
  for (size_t i = 0; i < fake_report.count; i++) {
    const brim_doctor_line *line = &fake_report.lines[i];
    int at = 0;
    while (at < FAKE_CHECKS && fake_seen[at].key && strcmp(fake_seen[at].key, line->key) != 0) at++;
    assert_true(at < FAKE_CHECKS);
    fake_seen[at].key = line->key;
    fake_seen[at].had[line->state] = true;
    // a good line has no remedy
    if (line->state == BRIM_DOCTOR_GOOD && line->fix[0]) fail_msg("%s has a fix", line->key);
  }
}

// Asserts that every check with this prefix was good in one test, and not good in another; `facts` cannot be bad.
static inline void assert_both_seen(const char *prefix, const char *const *facts) {
  size_t count = 0;
  for (int i = 0; i < FAKE_CHECKS && fake_seen[i].key; i++) {
    const char *key = fake_seen[i].key;
    bool fact = false;
    if (!brim_str_starts(key, prefix)) continue;
    count++;
    for (size_t k = 0; facts && facts[k]; k++) fact = fact || strcmp(facts[k], key) == 0;
    if (!fake_seen[i].had[BRIM_DOCTOR_GOOD]) fail_msg("%s was never good", key);
    bool wrong = fake_seen[i].had[BRIM_DOCTOR_WARN] || fake_seen[i].had[BRIM_DOCTOR_BAD];
    if (!fact && !wrong) fail_msg("%s was never bad", key);
  }
  assert_true(count > 0);
}

static brim_doctor_reading fake_reading;  // no passes = the files are read
static inline brim_status fake_speed(const brim_doctor_machine *machine, brim_doctor_reading *out) {
  if (fake_reading.passes == 0) return brim_doctor_read_passes(machine, out);
  *out = fake_reading;
  return BRIM_OK;
}

static inline brim_status fake_open(void *ctx, brim_gpu_monitor **out) {
  (void)ctx;
  *out = NULL;
  if (fake.gpu_count == 0) return brim_fail(BRIM_EUNSUPPORTED, "no library");
  return brim_gpu_monitor_open_api(&fake_api, fake.root, out);
}

static inline void fake_examine_with(const brim_doctor_gpus *gpus) {
  brim_doctor_report_deinit(&fake_report);
  const brim_doctor_machine machine = {.root = fake.root,
                                       .env = fake_env,
                                       .space = fake_space,
                                       .read_speed = fake_speed,
                                       .gpus = gpus,
                                       .waited_s = 10,
                                       .registry = fake_registry,
                                       .data = fake_data};
  assert_ok(brim_doctor_examine(&machine, &fake_report));
  fake_remember();
}

static inline void fake_examine(void) {
  brim_doctor_survey *survey = NULL;
  assert_ok(brim_doctor_survey_start(fake_open, NULL, &survey));
  const brim_doctor_gpus *gpus = brim_doctor_survey_wait(survey, 3600);
  assert_non_null(gpus);
  fake_examine_with(gpus);
  brim_doctor_survey_free(survey);
}

// The line of a check, and of one of its subjects (NULL = the first); NULL = none.
static inline const brim_doctor_line *fake_line(const char *key, const char *subject) {
  for (size_t i = 0; i < fake_report.count; i++) {
    const brim_doctor_line *line = &fake_report.lines[i];
    if (strcmp(line->key, key) != 0) continue;
    if (!subject || strcmp(line->subject, subject) == 0) return line;
  }
  return NULL;
}

// Asserts the line's state and text; a line that is not good must have a remedy.
static inline void assert_line(const char *key, const char *subject, brim_doctor_state state,
                               const char *text) {
  const brim_doctor_line *line = fake_line(key, subject);
  if (!line) fail_msg("no line %s", key);
  if (line->state != state || (text && !strstr(line->value, text))) {
    fail_msg("%s is %s: %s; expected %s: %s", key, brim_doctor_state_name(line->state), line->value,
             brim_doctor_state_name(state), text ? text : "anything");
  }
  assert_true(line->why[0] != '\0');
  bool wrong = state == BRIM_DOCTOR_WARN || state == BRIM_DOCTOR_BAD;
  if (wrong && !line->fix[0]) fail_msg("%s has no command that fixes it", key);
}

#endif  // BRIM_TESTS_DOCTOR_MACHINE_H_
