// Measured limits of a machine: on ref, on a fake GPU, on one whose clock is faked too, with little memory and none,
// stopped, and out of the cache.
#include <math.h>

#include "engine/engine_lazy.h"
#include "fake_gpu.h"
#include "json_file.h"
#include "measure/measure_int.h"
#include "record/record_findings.h"
#include "workload/fixture.h"

static const brim_machine_sizes small = {.least = 16,
                                         .most = 64,
                                         .most_fp32 = 32,
                                         .copy_bytes = 65536,
                                         .h2d_bytes = 65536,
                                         .product_ms = 1000,
                                         .window_ms = 0.02,
                                         .windows = 2,
                                         .spread = 1e9};  // any spread of this machine is fine

#define assert_rate(rate) assert_true(isfinite(rate) && (rate) > 0)

static uint64_t live_bytes(void) {
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  return stats.live_bytes[BRIM_MEM_PLANNED] + stats.live_bytes[BRIM_MEM_OVERHEAD];
}

static brim_device *open_gpu(void) {
  memset(&gpu, 0, sizeof gpu);
  gpu.total = 1024 * MIB;
  return fake_device_open();
}

static void close_gpu(brim_device *device) {
  assert_int_equal(gpu.allocated, 0);
  brim_device_close(device);
}

//---------------------------------- what is measured ----------------------------------

static void test_ref(void **state) {
  (void)state;
  fixture f;
  brim_machine_options how = {0};
  brim_machine_ceilings c;
  bool cut;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  uint64_t before = live_bytes();
  assert_ok(brim_machine_measure(f.device, &small, &how, &c, &cut));
  assert_int_equal(live_bytes(), before);
  assert_false(cut);
  assert_rate(c.gemm_fp32_flops);
  assert_rate(c.gemm_bf16_flops);
  assert_rate(c.gemm_fp16_flops);
  assert_rate(c.copy_bytes_per_s);
  assert_rate(c.launches_per_s);
  // tf32 would be fp32 by another name; and the device is the host
  assert_true(isnan(c.gemm_tf32_flops));
  assert_true(isnan(c.h2d_pinned_bytes_per_s) && isnan(c.h2d_pageable_bytes_per_s));
  fixture_close(&f);
}

static void test_gpu(void **state) {
  (void)state;
  brim_machine_options how = {0};
  brim_machine_ceilings c;
  bool cut;
  brim_device *device = open_gpu();
  gpu.half = true;  // no f16: not an error
  assert_ok(brim_machine_measure(device, &small, &how, &c, &cut));
  assert_false(cut);
  assert_true(isnan(c.gemm_fp16_flops));
  assert_rate(c.gemm_fp32_flops);
  assert_rate(c.gemm_tf32_flops);
  assert_rate(c.gemm_bf16_flops);
  assert_rate(c.copy_bytes_per_s);
  assert_rate(c.h2d_pinned_bytes_per_s);
  assert_rate(c.h2d_pageable_bytes_per_s);
  close_gpu(device);
}

static void test_sizes(void **state) {
  (void)state;
  const brim_backend cpu = {.name = "cpu"};
  brim_device device;
  memset(&device, 0, sizeof device);
  device.backend = &cpu;
  device.info.kind = BRIM_DEVICE_GPU;
  device.info.total_bytes = 140ull << 30;
  brim_machine_sizes s = brim_machine_sizes_of(&device);
  assert_true(s.most == 8192 && s.most_fp32 == 4096);
  // a small card: its buffers still take an eighth
  device.info.total_bytes = 2ull << 30;
  s = brim_machine_sizes_of(&device);
  assert_true(s.most == 4096 && s.most_fp32 == 4096);
  assert_true(3 * s.copy_bytes <= (2ull << 30) / 8);
  device.info.kind = BRIM_DEVICE_CPU;
  device.info.total_bytes = 0;
  device.info.threads = 64;
  assert_true(brim_machine_sizes_of(&device).copy_bytes == 512 * MIB);
  device.info.threads = 2;
  assert_true(brim_machine_sizes_of(&device).copy_bytes == 128 * MIB);
  device.info.total_bytes = 64 * MIB;
  s = brim_machine_sizes_of(&device);
  assert_true(s.most >= s.least && s.most_fp32 <= s.most && s.copy_bytes % 65536 == 0);
}

//---------------------------------- by a clock of its own ----------------------------------

// Nanoseconds that the late device's events report, one after the other; the last one repeats.
static struct {
  brim_backend table;
  const brim_backend *inner;
  const int64_t *ns;
  size_t count, asked, stop_at;
  volatile sig_atomic_t stop;
} ticks;

static brim_status elapsed(void *impl, void *start, void *end, int64_t *ns) {
  (void)start;
  BRIM_TRY(ticks.inner->event_sync(impl, end));
  *ns = ticks.ns[ticks.asked < ticks.count ? ticks.asked : ticks.count - 1];
  if (++ticks.asked == ticks.stop_at) ticks.stop = 1;
  return BRIM_OK;
}

static brim_device *open_late(int refuse_capture, const int64_t *ns, size_t count) {
  memset(&ticks, 0, sizeof ticks);
  brim_device *device = lazy_open(refuse_capture);
  ticks.inner = device->backend;
  ticks.table = *device->backend;
  ticks.table.event_elapsed = elapsed;
  ticks.ns = ns;
  ticks.count = count;
  device->backend = &ticks.table;
  device->info.kind = BRIM_DEVICE_GPU;
  return device;
}

static void assert_near(double value, double expected) {
  assert_true(fabs(value - expected) <= 1e-9 * expected);
}

// Everything takes a microsecond here: rates follow from the sizes alone.
static void test_rates(void **state) {
  (void)state;
  static const int64_t us[] = {1000};
  brim_machine_options how = {0};
  brim_machine_ceilings c;
  bool cut;
  for (int refused = 0; refused < 4; refused++) {
    brim_device *device = open_late(refused, us, 1);
    assert_ok(brim_machine_measure(device, &small, &how, &c, &cut));
    assert_false(cut);
    // four products in one launch: a quarter of a microsecond each
    assert_near(c.gemm_bf16_flops, 2.0 * 64 * 64 * 64 / 0.25e-6);
    assert_near(c.gemm_tf32_flops, 2.0 * 64 * 64 * 64 / 0.25e-6);
    assert_near(c.gemm_fp32_flops, 2.0 * 32 * 32 * 32 / 0.25e-6);
    assert_near(c.copy_bytes_per_s, 2.0 * 65536 / 0.25e-6);
    assert_near(c.h2d_pinned_bytes_per_s, 65536 / 0.25e-6);
    assert_near(c.h2d_pageable_bytes_per_s, 65536 / 0.25e-6);
    assert_int_equal(lazy_count(device)->captures > 0, refused == 0);
    lazy_close(device);
  }
  // a single operation that is long enough is not repeated in one launch; an addition moves three buffers
  brim_machine_sizes longer = small;
  longer.window_ms = 1e-6;
  brim_device *device = open_late(0, us, 1);
  assert_ok(brim_machine_measure(device, &longer, &how, &c, &cut));
  assert_near(c.copy_bytes_per_s, 3.0 * 65536 / 1e-6);
  assert_int_equal(lazy_count(device)->captures, 0);
  lazy_close(device);
  // products that would take too long stay small: one of 32 is predicted to take 8 us
  longer.product_ms = 7e-3;
  device = open_late(0, us, 1);
  assert_ok(brim_machine_measure(device, &longer, &how, &c, &cut));
  assert_near(c.gemm_bf16_flops, 2.0 * 16 * 16 * 16 / 1e-6);
  assert_false(cut);
  lazy_close(device);
}

static void test_the_best_median_counts(void **state) {
  (void)state;
  // two warm-up runs, then two windows of three
  static const int64_t ns[] = {90, 2000000, 900, 500, 700, 600, 100, 800};
  char from[8] = "", to[8];
  const brim_device_work work = {.dst = to, .src = from, .bytes = 8, .direction = BRIM_COPY_H2D};
  brim_device_timer t;
  double seconds;
  brim_device *device = open_late(0, ns, 8);
  assert_ok(brim_device_timer_init(&t, device, NULL));
  assert_ok(brim_device_timer_measure(&t, &work, 2, 2, &seconds));
  assert_int_equal(ticks.asked, 8);
  assert_near(seconds, 600e-9);
  brim_device_timer_deinit(&t);
  lazy_close(device);
}

// A stop at every measurement in turn: nothing stays allocated, and nothing is remembered.
static void test_stopped(void **state) {
  (void)state;
  static const int64_t us[] = {1000};
  brim_fs_remove("stopped/ceilings.json");
  brim_status status = BRIM_EINTERRUPTED;
  for (size_t at = 1; status == BRIM_EINTERRUPTED; at += 17) {
    brim_device *device = open_late(0, us, 1);
    brim_machine_options how = {.stop = &ticks.stop, .folder = "stopped"};
    brim_machine_ceilings c;
    uint64_t before = live_bytes();
    ticks.stop_at = at;
    assert_false(brim_fs_exists("stopped/ceilings.json"));
    status = brim_machine_get(device, &small, &how, &c);
    assert_int_equal(live_bytes(), before);
    assert_int_equal(lazy_count(device)->waiting, 0);
    assert_int_equal(ticks.stop, status == BRIM_EINTERRUPTED);
    lazy_close(device);
    assert_true(at < 100000);
  }
  assert_ok(status);
  assert_true(brim_fs_exists("stopped/ceilings.json"));
}

//---------------------------------- little memory ----------------------------------

static void test_little_memory(void **state) {
  (void)state;
  brim_machine_sizes larger = small;
  brim_machine_options how = {.folder = "little"};
  brim_machine_ceilings c;
  bool cut;
  larger.most = larger.most_fp32 = 256;  // 768 KiB for three of floats
  larger.copy_bytes = larger.h2d_bytes = 4 * MIB;
  larger.windows = 1;
  brim_fs_remove("little/ceilings.json");
  for (int way = 0; way < 3; way++) {
    brim_device *device = open_gpu();
    how.memory_limit = 0;
    if (way == 0) gpu.others = gpu.total - gpu.context - 2 * MIB;
    if (way == 1) how.memory_limit = MIB / 2;  // a limit that the user set
    // another process takes the memory when the first buffer is asked for: the allocation fails
    if (way == 2) gpu.others_at_alloc = gpu.total - gpu.context - 2 * MIB;
    assert_ok(brim_machine_measure(device, &larger, &how, &c, &cut));
    assert_true(cut);
#define X(name) assert_rate(c.name);
    BRIM_MACHINE_MAP(X)
#undef X
    close_gpu(device);
  }
  // no memory at all
  brim_device *device = open_gpu();
  gpu.others = gpu.total;
  assert_ok(brim_machine_get(device, &small, &how, &c));
#define X(name) assert_true(isnan(c.name));
  BRIM_MACHINE_MAP(X)
#undef X
  assert_false(brim_fs_exists("little/ceilings.json"));  // there may be more next time
  close_gpu(device);
}

static void test_every_allocation_may_fail(void **state) {
  (void)state;
  static const int64_t us[] = {1000};
  brim_machine_sizes tiny = small;
  tiny.most = tiny.most_fp32 = 16;
  tiny.window_ms = 1e-6;
  tiny.windows = 1;
  uint64_t failed = 1;
  for (uint64_t n = 1; failed > 0; n++) {
    brim_device *device = open_late(0, us, 1);
    brim_machine_options how = {.folder = "failing"};
    brim_machine_ceilings c;
    uint64_t before = live_bytes(), injected = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_machine_get(device, &tiny, &how, &c);
    brim_alloc_fail_nth(0, 0);
    assert_ok(status);
    failed = brim_alloc_failures() - injected;
    assert_int_equal(live_bytes(), before);
    lazy_close(device);
    brim_fs_remove("failing/ceilings.json");
    assert_true(n < 10000);
  }
}

//---------------------------------- the cache ----------------------------------

// The only key of a cache, or "" if it has none or several.
static void only_key(const char *path, char out[512]) {
  json_t *root = NULL;
  const char *key;
  json_t *value;
  out[0] = '\0';
  root = json_file(path);
  json_t *entries = json_object_get(root, "entries");
  assert_int_equal(json_object_size(entries), 1);
  json_object_foreach(entries, key, value) { snprintf(out, 512, "%s", key); }
  json_decref(root);
}

static const brim_machine_ceilings made_up = {1, 2, 3, 4, 5, 6, 7, 8, .load = 0};

static bool is_made_up(const brim_machine_ceilings *c) {
  return memcmp(c, &made_up, sizeof *c) == 0;
}

static void test_remembered_by_key(void **state) {
  (void)state;
  brim_machine_options how = {.folder = "known", .driver = "1.2.3"};
  brim_machine_ceilings c, again;
  char key[512];
  brim_fs_remove("known/ceilings.json");
  brim_device *device = open_gpu();
  gpu.half = true;
  assert_ok(brim_machine_get(device, &small, &how, &c));
  only_key("known/ceilings.json", key);
  assert_string_equal(key, "Fake 1 " FAKE_UUID " | 1.2.3 | fake 1.0 | cuda | brim " BRIM_VERSION);
  assert_ok(brim_machine_ceilings_load("known", key, &again));
  assert_true(again.gemm_bf16_flops == c.gemm_bf16_flops && isnan(again.gemm_fp16_flops));
  assert_ok(brim_machine_ceilings_store("known", key, &made_up));
  assert_ok(brim_machine_get(device, &small, &how, &c));
  assert_true(is_made_up(&c));
  // another driver, card or library: measured again, and the first entry stays
  how.driver = "1.2.4";
  assert_ok(brim_machine_get(device, &small, &how, &c));
  assert_false(is_made_up(&c));
  how.driver = "1.2.3";
  device->info.id[5] = 'f';
  assert_ok(brim_machine_get(device, &small, &how, &c));
  assert_false(is_made_up(&c));
  device->info.id[5] = FAKE_UUID[5];
  snprintf(device->info.library, sizeof device->info.library, "fake 1.1");
  assert_ok(brim_machine_get(device, &small, &how, &c));
  assert_false(is_made_up(&c));
  snprintf(device->info.library, sizeof device->info.library, "fake 1.0");
  assert_ok(brim_machine_get(device, &small, &how, &c));
  assert_true(is_made_up(&c));
  // a setting ran faster: measured again
  brim_machine_ceilings_doubt(device, &how);
  assert_ok(brim_machine_get(device, &small, &how, &c));
  assert_false(is_made_up(&c));
  assert_rate(c.gemm_fp32_flops);
  // a CPU's limits depend on its threads
  device->info.kind = BRIM_DEVICE_CPU;
  device->info.id[0] = '\0';
  brim_fs_remove("known/ceilings.json");
  device->info.threads = 2;
  assert_ok(brim_machine_get(device, &small, &how, &c));
  only_key("known/ceilings.json", key);
  assert_non_null(strstr(key, " | 2 threads | "));
  how.folder = "known/ceilings.json/x";
  brim_machine_ceilings_doubt(device, &how);  // no entry to forget is no failure
  close_gpu(device);
}

// A measurement that failed is not remembered. One that an earlier version remembered is made again.
static void test_nulls_are_not_remembered(void **state) {
  (void)state;
  brim_machine_options how = {.folder = "nulls", .driver = "1.2.3"};
  brim_machine_ceilings c, none, half = made_up;
  char key[512];
  brim_machine_ceilings_init(&none);
  half.gemm_fp32_flops = (double)NAN;
  brim_fs_remove("nulls/ceilings.json");
  brim_device *device = open_gpu();
  assert_ok(brim_machine_get(device, &small, &how, &c));
  only_key("nulls/ceilings.json", key);
  const brim_machine_ceilings *const left[] = {&none, &half};
  for (int i = 0; i < 2; i++) {
    assert_ok(brim_machine_ceilings_store("nulls", key, left[i]));
    assert_ok(brim_machine_get(device, &small, &how, &c));
    assert_rate(c.gemm_fp32_flops);
    assert_rate(c.copy_bytes_per_s);
    assert_ok(brim_machine_ceilings_load("nulls", key, &c));
    assert_rate(c.gemm_fp32_flops);
  }
  // a doubtful entry is marked, and the others stay
  assert_ok(brim_machine_ceilings_store("nulls", "another", &made_up));
  brim_machine_ceilings_doubt(device, &how);
  assert_ok(brim_machine_ceilings_load("nulls", key, &c));
  assert_rate(c.gemm_fp32_flops);
  assert_true(brim_machine_doubtful(&c));
  assert_ok(brim_machine_ceilings_load("nulls", "another", &c));
  assert_true(is_made_up(&c));
  close_gpu(device);
}

//---------------------------------- beside other programs ----------------------------------

// A second between two readings of a machine with two cores; other programs use `others` of them.
static struct {
  double others;
  int64_t asked;
} busy;

static brim_status read_busy(void *ctx, brim_host_sample *out) {
  (void)ctx;
  const double s = (double)++busy.asked;
  out->time_ns = busy.asked * 1000000000;
  out->value[BRIM_HOST_SYSTEM_TOTAL_S] = 2 * s;
  out->value[BRIM_HOST_SYSTEM_BUSY_S] = (0.5 + busy.others) * s;
  out->value[BRIM_HOST_PROCESS_CPU_S] = 0.5 * s;
  return BRIM_OK;
}

// Figures of a busy machine are measured again at each call until the machine is quiet. The higher figures stay.
static void test_busy_is_measured_again(void **state) {
  (void)state;
  const brim_host_provider host = {.name = "fake", .sample = read_busy};
  const brim_machine_options how = {.folder = "busy", .host = &host};
  fixture f;
  brim_machine_ceilings c;
  char key[512];
  brim_fs_remove("busy/ceilings.json");
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  busy.others = 1;
  assert_ok(brim_machine_get(f.device, &small, &how, &c));
  assert_true(fabs(c.load - 0.5) < 1e-6 && brim_machine_doubtful(&c));
  only_key("busy/ceilings.json", key);
  // still busy: the larger of both, at the load of the quieter time
  brim_machine_ceilings kept = made_up;
  kept.copy_bytes_per_s = 1e17;
  kept.load = 0.5;
  assert_ok(brim_machine_ceilings_store("busy", key, &kept));
  busy.others = 0.8;
  assert_ok(brim_machine_get(f.device, &small, &how, &c));
  assert_true(c.copy_bytes_per_s == 1e17 && c.gemm_fp32_flops > 1 && fabs(c.load - 0.4) < 1e-6);
  // quiet: measured once more, and then known
  busy.others = 0.02;
  assert_ok(brim_machine_get(f.device, &small, &how, &c));
  assert_false(brim_machine_doubtful(&c));
  assert_true(c.copy_bytes_per_s == 1e17);
  busy.asked = 0;
  busy.others = 2;
  assert_ok(brim_machine_get(f.device, &small, &how, &c));
  assert_true(busy.asked == 0 && fabs(c.load - 0.01) < 1e-6);
  fixture_close(&f);
}

// An older brim did not record how busy the machine was.
static void test_without_a_load_is_measured_again(void **state) {
  (void)state;
  const brim_host_provider host = {.name = "fake", .sample = read_busy};
  const brim_machine_options how = {.folder = "older", .host = &host};
  fixture f;
  brim_machine_ceilings c;
  char key[512];
  brim_fs_remove("older/ceilings.json");
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  busy.others = 0;
  assert_ok(brim_machine_get(f.device, &small, &how, &c));
  only_key("older/ceilings.json", key);
  json_t *root = json_file("older/ceilings.json");
  json_t *entry = json_object_get(json_object_get(root, "entries"), key);
  assert_int_equal(json_object_del(entry, "load"), 0);
  assert_int_equal(json_object_set_new(entry, "gemm_fp32_flops", json_real(1)), 0);
  assert_int_equal(json_dump_file(root, "older/ceilings.json", 0), 0);
  json_decref(root);
  assert_ok(brim_machine_get(f.device, &small, &how, &c));
  assert_true(c.gemm_fp32_flops > 1 && fabs(c.load) < 1e-6);
  fixture_close(&f);
}

// A result faster than the machine: compared with the ceiling of the precision that ran.
static void test_exceeded(void **state) {
  (void)state;
  brim_result r[2];
  for (int i = 0; i < 2; i++) {
    brim_result_init(&r[i]);
    r[i].knob_set = brim_workload_find("supervised")->knob_set;
    brim_result_knob *k = &r[i].knobs[r[i].knob_count++];
    strcpy(k->name, "precision");
    strcpy(k->value, i ? "bf16" : "fp32");
    r[i].plan.flops_per_step = 1e9;
    r[i].total_ms.median = 10;  // 1e11 per second
    r[i].ceilings.gemm_fp32_flops = 2e11;
    r[i].ceilings.gemm_bf16_flops = 4e11;
  }
  assert_false(brim_machine_exceeded(r, 2));
  r[1].ceilings.gemm_bf16_flops = 0.9e11;
  assert_true(brim_machine_exceeded(r, 2));
  r[1].failure = BRIM_FAILURE_OTHER;
  assert_false(brim_machine_exceeded(r, 2));
  r[0].total_ms.median = 4;
  assert_true(brim_machine_exceeded(r, 2));
  r[0].ceilings.gemm_fp32_flops = (double)NAN;  // unknown: nothing to exceed
  assert_false(brim_machine_exceeded(r, 2));
}

// Another program uses the machine: the best figures count for this run, and are not remembered.
static void test_unsteady_is_not_remembered(void **state) {
  (void)state;
  // single operations of a millisecond and more; the second window of the first copies is slower
  static const int64_t steady[] = {1000000};
  // (the first two are warm-up)
  static const int64_t once[] = {2000000, 1000000, 9000000, 9000000, 9000000, 7000000,
                                 7000000, 7000000, 1000000, 1000000, 1000000, 1000000,
                                 1000000, 1300000, 1300000, 1300000, 1000000};
  brim_machine_sizes sizes = small;
  brim_machine_options how = {.folder = "unsteady"};
  brim_machine_ceilings c, quiet;
  sizes.least = sizes.most = sizes.most_fp32 = 16;
  sizes.spread = 0.15;
  brim_fs_remove("unsteady/ceilings.json");
  brim_device *device = open_late(0, once, sizeof once / sizeof *once);
  assert_ok(brim_machine_get(device, &sizes, &how, &c));
  lazy_close(device);
  assert_false(brim_fs_exists("unsteady/ceilings.json"));
  device = open_late(0, steady, 1);
  assert_ok(brim_machine_get(device, &sizes, &how, &quiet));
  lazy_close(device);
  assert_true(brim_fs_exists("unsteady/ceilings.json"));
  assert_rate(c.launches_per_s);  // by the real clock: no two are equal
  quiet.launches_per_s = c.launches_per_s;
  assert_true(memcmp(&c, &quiet, sizeof c) == 0);
}

static void test_a_broken_cache_is_replaced(void **state) {
  (void)state;
  static const char *const broken[] = {
      "",
      "{",
      "[1]",
      "{\"schema\": \"brim.overhead/1\", \"entries\": {}}",
      "{\"schema\": \"brim.ceilings/1\", \"entries\": 3}",
      "{\"schema\": \"brim.ceilings/1\", \"entries\": {\"a\": 3}}",
      ("{\"schema\": \"brim.ceilings/1\", \"entries\": {\"a\": {\"copy_bytes_per_s\": -1, "
       "\"gemm_fp32_flops\": 1e300, \"gemm_bf16_flops\": 0, \"gemm_tf32_flops\": \"x\"}}}")};
  brim_machine_ceilings c;
  assert_ok(brim_fs_mkdirs("broken"));
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    assert_ok(brim_fs_write("broken/ceilings.json", broken[i], strlen(broken[i])));
    assert_ok(brim_machine_ceilings_load("broken", "a", &c));
#define X(name) assert_true(isnan(c.name));
    BRIM_MACHINE_MAP(X)
#undef X
    assert_ok(brim_machine_ceilings_store("broken", "a", &made_up));
    assert_ok(brim_machine_ceilings_load("broken", "a", &c));
    assert_true(is_made_up(&c));
  }
  // folders that cannot exist
  brim_device *device = open_gpu();
  brim_machine_options how = {.folder = "broken/ceilings.json/x"};
  assert_ok(brim_machine_get(device, &small, &how, &c));
  assert_rate(c.gemm_fp32_flops);
  how.folder = NULL;
  assert_ok(brim_machine_get(device, &small, &how, &c));
  assert_rate(c.gemm_fp32_flops);
  close_gpu(device);
}

//---------------------------------- in results ----------------------------------

static void test_results_have_it(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_setting setting = brim_work_setting(f.work);
  brim_trial_options options = {.steps = 1, .max_warmup = 1, .machine = &made_up};
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_true(is_made_up(&r.ceilings));
  brim_result_deinit(&r);
  options.machine = NULL;
  assert_ok(brim_trial_plan(f.work, f.config, f.device, &setting, &options, &r));
  assert_true(isnan(r.ceilings.copy_bytes_per_s));
  brim_result_deinit(&r);
  fixture_close(&f);
}

// `brim top` has no device open: it looks entries up by the GPU alone, and takes the best of all.
static void test_what_is_remembered_of_a_gpu(void **state) {
  (void)state;
  brim_machine_ceilings a, b, c;
  brim_fs_remove("of-gpu/ceilings.json");
  brim_machine_ceilings_init(&a);
  b = a;
  a.gemm_bf16_flops = 7e14;
  a.gemm_tf32_flops = 4e14;
  b.gemm_bf16_flops = 6e14;
  b.copy_bytes_per_s = 4e12;
  assert_ok(
      brim_machine_ceilings_store("of-gpu", "NVIDIA H200 GPU-1 | 580 | CUDA 13 | cuda | x", &a));
  assert_ok(
      brim_machine_ceilings_store("of-gpu", "NVIDIA H200 GPU-1 | 570 | CUDA 12 | cuda | x", &b));
  assert_ok(
      brim_machine_ceilings_store("of-gpu", "NVIDIA H200 GPU-11 | 580 | CUDA 13 | cuda | x", &a));
  assert_ok(brim_machine_ceilings_of_gpu("of-gpu", "GPU-1", &c));
  assert_true(c.gemm_bf16_flops == 7e14 && c.gemm_tf32_flops == 4e14);
  assert_true(c.copy_bytes_per_s == 4e12 && isnan(c.gemm_fp16_flops));
  assert_ok(brim_machine_ceilings_of_gpu("of-gpu", "GPU-2", &c));
  assert_true(isnan(c.gemm_bf16_flops));
  assert_ok(brim_machine_ceilings_of_gpu("nowhere", "GPU-1", &c));
  assert_true(isnan(c.gemm_bf16_flops));
  assert_ok(brim_machine_ceilings_of_gpu("", "GPU-1", &c));
  assert_true(isnan(c.gemm_bf16_flops));
}

int main(void) {
  brim_json_own_memory();
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ref),
      cmocka_unit_test(test_gpu),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_rates),
      cmocka_unit_test(test_the_best_median_counts),
      cmocka_unit_test(test_stopped),
      cmocka_unit_test(test_little_memory),
      cmocka_unit_test(test_every_allocation_may_fail),
      cmocka_unit_test(test_remembered_by_key),
      cmocka_unit_test(test_nulls_are_not_remembered),
      cmocka_unit_test(test_busy_is_measured_again),
      cmocka_unit_test(test_without_a_load_is_measured_again),
      cmocka_unit_test(test_exceeded),
      cmocka_unit_test(test_unsteady_is_not_remembered),
      cmocka_unit_test(test_a_broken_cache_is_replaced),
      cmocka_unit_test(test_results_have_it),
      cmocka_unit_test(test_what_is_remembered_of_a_gpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
