// NVML as a fake library: processes, unknown sizes, lists longer than the buffer, failing and missing calls; and the
// real library if it is installed.
#include <math.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "monitor/monitor_nvml_abi.h"
#include "test.h"

#define GIB (1ULL << 30)
#define UUID "GPU-00112233-4455-6677-8899-aabbccddeeff"

// Answers of the library to the next calls.
static struct {
  int init_code, uuid_code, memory_code, compute_code, graphics_code;
  int inits, shutdowns, memory_calls, compute_calls;
  unsigned version_seen;
  const char *known_uuid;
  brim_nvml_process compute[100], graphics[8];
  unsigned compute_count, graphics_count;
  bool grows;  // one more process at every call
} lib;

static int fake_init(void) {
  lib.inits++;
  return lib.init_code;
}
static int fake_shutdown(void) {
  lib.shutdowns++;
  return 0;
}
static const char *fake_error(int code) { return code == 4 ? "Insufficient Permissions" : "odd"; }
static int fake_driver(char *text, unsigned size) {
  snprintf(text, size, "580.65.06");
  return 0;
}
static int fake_uuid(const char *uuid, void **device) {
  if (lib.uuid_code) return lib.uuid_code;
  if (strcmp(uuid, lib.known_uuid) != 0) return BRIM_NVML_NOT_FOUND;
  *device = &lib;
  return 0;
}
static int fake_memory_v2(void *device, brim_nvml_memory_v2 *out) {
  assert_ptr_equal(device, &lib);
  lib.memory_calls++;
  lib.version_seen = out->version;
  if (lib.memory_code) return lib.memory_code;
  out->total = 140 * GIB;
  out->reserved = GIB;
  out->free = 46 * GIB;
  out->used = 93 * GIB;
  return 0;
}
static int fake_memory(void *device, brim_nvml_memory *out) {
  assert_ptr_equal(device, &lib);
  out->total = 140 * GIB;
  out->free = 46 * GIB;
  out->used = 94 * GIB;
  return 0;
}
static int answer(const brim_nvml_process *from, unsigned have, unsigned *count,
                  brim_nvml_process *out) {
  unsigned room = *count;
  *count = have;
  if (have > room) return BRIM_NVML_INSUFFICIENT_SIZE;
  memcpy(out, from, have * sizeof *out);
  return 0;
}
static int fake_compute(void *device, unsigned *count, brim_nvml_process *out) {
  assert_ptr_equal(device, &lib);
  lib.compute_calls++;
  if (lib.compute_code) return lib.compute_code;
  int code = answer(lib.compute, lib.compute_count, count, out);
  if (lib.grows) lib.compute_count++;
  return code;
}
static int fake_graphics(void *device, unsigned *count, brim_nvml_process *out) {
  assert_ptr_equal(device, &lib);
  if (lib.graphics_code) return lib.graphics_code;
  return answer(lib.graphics, lib.graphics_count, count, out);
}

static const brim_nvml_api api = {.init = fake_init,
                                  .shutdown = fake_shutdown,
                                  .by_uuid = fake_uuid,
                                  .error_string = fake_error,
                                  .driver_version = fake_driver,
                                  .memory_v2 = fake_memory_v2,
                                  .memory = fake_memory,
                                  .compute = fake_compute,
                                  .graphics = fake_graphics};

static brim_gpu_monitor *open_fake(const brim_nvml_api *table) {
  brim_gpu_monitor *m = NULL;
  memset(&lib, 0, sizeof lib);
  lib.known_uuid = UUID;
  assert_ok(brim_gpu_monitor_open_api(table, "root", &m));
  return m;
}

static void write_process(unsigned pid, const char *comm, const char *arguments, size_t size) {
  char path[128];
  snprintf(path, sizeof path, "root/proc/%u", pid);
  assert_ok(brim_fs_mkdirs(path));
  snprintf(path, sizeof path, "root/proc/%u/comm", pid);
  assert_ok(brim_fs_write(path, comm, strlen(comm)));
  snprintf(path, sizeof path, "root/proc/%u/cmdline", pid);
  assert_ok(brim_fs_write(path, arguments, size));
}

static void test_memory(void **state) {
  (void)state;
  brim_gpu_monitor *m = open_fake(&api);
  brim_gpu_memory memory;
  char driver[32];
  assert_ok(brim_gpu_read_memory(m, UUID, &memory));
  assert_int_equal(lib.version_seen, 0x02000028);
  assert_true(memory.total == 140.0 * GIB && memory.reserved == 1.0 * GIB);
  assert_true(memory.free == 46.0 * GIB && memory.used == 93.0 * GIB);
  brim_gpu_driver(m, driver, sizeof driver);
  assert_string_equal(driver, "580.65.06");
  // an older driver: the first version of the call, without the reserve
  lib.memory_code = BRIM_NVML_NOT_SUPPORTED;
  assert_ok(brim_gpu_read_memory(m, UUID, &memory));
  assert_true(isnan(memory.reserved) && memory.used == 94.0 * GIB);
  brim_gpu_monitor_close(m);
  assert_int_equal(lib.inits, 1);
  assert_int_equal(lib.shutdowns, 1);
}

static void test_slices_and_strangers(void **state) {
  (void)state;
  brim_gpu_monitor *m = open_fake(&api);
  brim_gpu_memory memory;
  lib.known_uuid = "MIG-00112233-4455-6677-8899-aabbccddeeff";
  assert_ok(brim_gpu_read_memory(m, UUID, &memory));
  lib.known_uuid = "GPU-other";
  assert_status(brim_gpu_read_memory(m, UUID, &memory), BRIM_EUNSUPPORTED);
  assert_true(isnan(memory.total) && isnan(memory.free));
  assert_non_null(strstr(brim_status_detail(), UUID));
  brim_gpu_monitor_close(m);
}

static void test_processes(void **state) {
  (void)state;
  static const char python[] = "/usr/bin/python3\0train.py\0--x\0";
  static const char odd[] = "a\nb\0\x1b[31m\0";
  write_process(4711, "python3\n", python, sizeof python - 1);
  write_process(4712, "compositor\n", "", 0);
  write_process(4713, "x\n", odd, sizeof odd - 1);
  brim_gpu_monitor *m = open_fake(&api);
  unsigned self = (unsigned)getpid();
  lib.compute[0] = (brim_nvml_process){.pid = 4713, .used_bytes = BRIM_NVML_UNKNOWN};
  lib.compute[1] = (brim_nvml_process){.pid = self, .used_bytes = 2 * GIB};
  lib.compute[2] = (brim_nvml_process){.pid = 4711, .used_bytes = 93 * GIB};
  lib.compute[3] = (brim_nvml_process){.pid = 99999, .used_bytes = 5 * GIB};
  lib.compute_count = 4;
  lib.graphics[0] = (brim_nvml_process){.pid = 4712, .used_bytes = GIB};
  lib.graphics[1] = (brim_nvml_process){.pid = 4711, .used_bytes = 93 * GIB};  // in both lists
  lib.graphics_count = 2;
  brim_gpu_process *list = NULL;
  size_t count = 0;
  assert_ok(brim_gpu_read_processes(m, UUID, &list, &count));
  assert_int_equal(count, 5);
  char text[256], expected[256];
  struct stat about;
  assert_int_equal(stat("root/proc/4711", &about), 0);
  struct passwd *owner = getpwuid(about.st_uid);
  assert_int_equal(list[0].pid, 4711);
  assert_true(list[0].bytes == 93.0 * GIB && !list[0].self && !list[0].elsewhere);
  assert_string_equal(list[0].command, "python3 train.py --x");
  for (size_t i = 0; i < count; i++) assert_int_equal(list[i].computes, list[i].pid != 4712);
  if (owner) assert_string_equal(list[0].user, owner->pw_name);
  brim_gpu_process_text(&list[0], text, sizeof text);
  snprintf(expected, sizeof expected, "pid 4711 python3 train.py --x (%s)", list[0].user);
  assert_string_equal(text, expected);
  // a process that our /proc does not have
  assert_int_equal(list[1].pid, 99999);
  assert_true(list[1].elsewhere);
  brim_gpu_process_text(&list[1], text, sizeof text);
  assert_non_null(strstr(text, "another container"));
  assert_true(list[2].self && !list[2].elsewhere);
  brim_gpu_process_text(&list[2], text, sizeof text);
  assert_string_equal(text, "this process");
  // a process without a command line: its short name
  assert_string_equal(list[3].command, "compositor");
  // unknown sizes come last; control characters are replaced
  assert_int_equal(list[4].pid, 4713);
  assert_true(isnan(list[4].bytes));
  assert_string_equal(list[4].command, "a?b ?[31m");
  brim_free(list);
  brim_gpu_monitor_close(m);
}

static void test_more_than_the_buffer(void **state) {
  (void)state;
  brim_gpu_monitor *m = open_fake(&api);
  lib.compute_count = 60;
  lib.grows = true;
  for (unsigned i = 0; i < 100; i++) {
    lib.compute[i] = (brim_nvml_process){.pid = 70000 + i, .used_bytes = GIB + i};
  }
  brim_gpu_process *list = NULL;
  size_t count = 0;
  assert_ok(brim_gpu_read_processes(m, UUID, &list, &count));
  assert_int_equal(count, 61);  // 60 at the question of how many, 61 when they are read
  assert_int_equal(lib.compute_calls, 2);
  assert_int_equal(list[0].pid, 70060);
  assert_int_equal(list[60].pid, 70000);
  brim_free(list);
  // no processes
  lib.compute_count = 0;
  lib.grows = false;
  assert_ok(brim_gpu_read_processes(m, UUID, &list, &count));
  assert_int_equal(count, 0);
  assert_null(list);
  brim_gpu_monitor_close(m);
}

static void test_failures(void **state) {
  (void)state;
  brim_gpu_process *list = NULL;
  size_t count = 9;
  brim_gpu_monitor *m = open_fake(&api);
  lib.compute_code = BRIM_NVML_NO_PERMISSION;
  assert_status(brim_gpu_read_processes(m, UUID, &list, &count), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "Insufficient Permissions"));
  assert_null(list);
  assert_int_equal(count, 0);
  // if the graphics list fails, the other one still counts
  lib.compute_code = 0;
  lib.graphics_code = BRIM_NVML_NOT_SUPPORTED;
  lib.compute[0] = (brim_nvml_process){.pid = 99999, .used_bytes = GIB};
  lib.compute_count = 1;
  assert_ok(brim_gpu_read_processes(m, UUID, &list, &count));
  assert_int_equal(count, 1);
  brim_free(list);
  // each allocation fails in turn
  for (uint64_t n = 1; n < 5; n++) {
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_gpu_read_processes(m, UUID, &list, &count);
    bool failed = brim_alloc_failures() > 0 && status == BRIM_ENOMEM;
    brim_alloc_fail_nth(0, 0);
    assert_true(status == BRIM_OK || failed);
    brim_free(list);
  }
  brim_gpu_monitor_close(m);
  // a library whose init fails
  memset(&lib, 0, sizeof lib);
  lib.init_code = BRIM_NVML_DRIVER_NOT_LOADED;
  assert_status(brim_gpu_monitor_open_api(&api, "", &m), BRIM_EUNSUPPORTED);
  assert_null(m);
  assert_int_equal(lib.shutdowns, 0);
}

// A driver so old that it has only the required calls.
static void test_missing_calls(void **state) {
  (void)state;
  const brim_nvml_api bare = {.init = fake_init, .shutdown = fake_shutdown, .by_uuid = fake_uuid};
  brim_gpu_monitor *m = open_fake(&bare);
  brim_gpu_memory memory;
  brim_gpu_process *list = NULL;
  size_t count;
  char driver[32] = "x";
  brim_gpu_driver(m, driver, sizeof driver);
  assert_string_equal(driver, "");
  assert_status(brim_gpu_read_memory(m, UUID, &memory), BRIM_EUNSUPPORTED);
  assert_status(brim_gpu_read_processes(m, UUID, &list, &count), BRIM_EUNSUPPORTED);
  brim_gpu_monitor_close(m);
}

//---------------------------------- the list ----------------------------------

// Two GPUs, the second cut into slices, and one that does not answer.
static char gpu_names[3][64], slice_names[2][64];
static int list_code;
static bool sliced;

static int list_count(unsigned *count) {
  *count = 3;
  return list_code;
}
static int list_by_index(unsigned index, void **device) {
  assert_true(index < 3);
  *device = gpu_names[index];
  return index == 1 ? BRIM_NVML_GPU_IS_LOST : 0;
}
static int list_uuid(void *device, char *text, unsigned size) {
  snprintf(text, size, "%s", (const char *)device);
  return 0;
}
static int list_name(void *device, char *text, unsigned size) {
  if (device == gpu_names[0]) return BRIM_NVML_UNKNOWN_ERROR;
  snprintf(text, size, "NVIDIA H200");
  return 0;
}
static int list_mig_mode(void *device, unsigned *now, unsigned *pending) {
  *pending = 1;
  *now = sliced && device == gpu_names[2];
  return device == gpu_names[0] ? BRIM_NVML_NOT_SUPPORTED : 0;
}
static int list_mig_count(void *device, unsigned *count) {
  assert_ptr_equal(device, gpu_names[2]);
  *count = 7;
  return 0;
}
static int list_mig_by_index(void *device, unsigned index, void **slice) {
  assert_ptr_equal(device, gpu_names[2]);
  if (index != 1 && index != 5) return BRIM_NVML_NOT_FOUND;
  *slice = slice_names[index == 5];
  return 0;
}

static void test_list(void **state) {
  (void)state;
  brim_nvml_api table = api;
  brim_gpu_listed *list = NULL;
  size_t count = 0;
  brim_gpu_monitor *m = open_fake(&table);
  assert_status(brim_gpu_list(m, &list, &count), BRIM_EUNSUPPORTED);  // an old driver
  brim_gpu_monitor_close(m);
  table.device_count = list_count;
  table.by_index = list_by_index;
  table.uuid = list_uuid;
  table.name = list_name;
  table.mig_mode = list_mig_mode;
  table.mig_count = list_mig_count;
  table.mig_by_index = list_mig_by_index;
  for (int i = 0; i < 3; i++) snprintf(gpu_names[i], sizeof gpu_names[i], "GPU-%d", i);
  for (int i = 0; i < 2; i++) snprintf(slice_names[i], sizeof slice_names[i], "MIG-%d", i);
  m = open_fake(&table);
  assert_ok(brim_gpu_list(m, &list, &count));
  assert_int_equal(count, 2);
  assert_string_equal(list[0].uuid, "GPU-0");
  assert_string_equal(list[0].name, "");
  assert_string_equal(list[1].uuid, "GPU-2");
  assert_string_equal(list[1].name, "NVIDIA H200");
  assert_false(list[1].slice);
  brim_free(list);
  sliced = true;
  assert_ok(brim_gpu_list(m, &list, &count));
  assert_int_equal(count, 3);
  assert_string_equal(list[1].uuid, "MIG-0");
  assert_string_equal(list[2].uuid, "MIG-1");
  assert_true(list[2].slice);
  brim_free(list);
  list_code = BRIM_NVML_UNKNOWN_ERROR;
  assert_status(brim_gpu_list(m, &list, &count), BRIM_EUNSUPPORTED);
  assert_null(list);
  brim_gpu_monitor_close(m);
}

static void test_the_real_library(void **state) {
  (void)state;
  brim_gpu_monitor *m = NULL;
  brim_status status = brim_gpu_monitor_open(&m);
  if (status) {
    assert_int_equal(status, BRIM_EUNSUPPORTED);
    assert_null(m);
    assert_true(brim_status_detail()[0] != '\0');
    BRIM_SKIP("no NVML here");
  }
  char driver[96];
  brim_gpu_driver(m, driver, sizeof driver);
  assert_true(driver[0] != '\0');
  brim_gpu_memory memory;
  assert_status(brim_gpu_read_memory(m, "GPU-none", &memory), BRIM_EUNSUPPORTED);
  brim_gpu_monitor_close(m);
}

// The first GPU's id, by NVML calls that only this test needs.
static bool first_gpu(char *uuid, unsigned size) {
  static const char *const names[] = {"libnvidia-ml.so.1", NULL};
  int (*by_index)(unsigned, void **) = NULL;
  int (*get_uuid)(void *, char *, unsigned) = NULL;
  const brim_dl_symbol symbols[] = {
      {"nvmlDeviceGetHandleByIndex_v2", (void **)&by_index, true},
      {"nvmlDeviceGetUUID", (void **)&get_uuid, true},
  };
  brim_dl *dl = NULL;
  if (brim_dl_open(names, symbols, 2, true, &dl)) return false;
  void *device = NULL;
  bool found = by_index(0, &device) == 0 && get_uuid(device, uuid, size) == 0;
  brim_dl_close(dl);
  return found;
}

static void test_the_real_gpu(void **state) {
  (void)state;
  brim_gpu_monitor *m = NULL;
  char uuid[96];
  if (brim_gpu_monitor_open(&m)) BRIM_SKIP("no NVML here");
  if (!first_gpu(uuid, sizeof uuid)) {
    brim_gpu_monitor_close(m);
    BRIM_SKIP("no GPU here");
  }
  brim_gpu_sampler *s = NULL;
  brim_gpu_usage u;
  assert_ok(brim_gpu_sampler_start(m, uuid, 0.02, &s));
  brim_clock_sleep_ns(700 * 1000000LL);
  brim_gpu_sampler_read(s, &u);
  char text[96];
  brim_throttle_text(u.throttle, text, sizeof text);
  printf(
      "%s: %d readings in %.3f s; GPU %.1f SM %.2f occupancy %.2f tensor %.2f DRAM %.2f %%; "
      "%.1f of %.1f W, %.1f J; %.0f (%.0f to %.0f) MHz; %.0f C; '%s'\n",
      uuid, u.readings, u.seconds, u.gpu_percent, u.sm_percent, u.occupancy_percent,
      u.tensor_percent, u.dram_percent, u.power_w, u.power_limit_w, u.energy_j, u.clock_mhz,
      u.clock_low_mhz, u.clock_max_mhz, u.temperature_c, text);
  assert_true(u.readings > 0);
  assert_true(isnan(u.gpu_percent) || (u.gpu_percent >= 0 && u.gpu_percent <= 100));
  assert_true(isnan(u.power_w) || (u.power_w > 0 && u.power_w < 3000));
  assert_true(isnan(u.clock_max_mhz) || u.clock_max_mhz > 100);
  assert_false(u.clock_mhz > u.clock_max_mhz || u.clock_low_mhz > u.clock_mhz);
  brim_gpu_sampler_stop(s);
  brim_gpu_monitor_close(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),       cmocka_unit_test(test_slices_and_strangers),
      cmocka_unit_test(test_processes),    cmocka_unit_test(test_more_than_the_buffer),
      cmocka_unit_test(test_failures),     cmocka_unit_test(test_missing_calls),
      cmocka_unit_test(test_list),         cmocka_unit_test(test_the_real_library),
      cmocka_unit_test(test_the_real_gpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
