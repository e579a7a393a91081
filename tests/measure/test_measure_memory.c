// Memory of a GPU, on a fake one: overhead measured and remembered, settings that fit or do not beside other processes,
// messages that name the holder, and a process that continues afterwards.
#include <math.h>

#include "fake_gpu.h"
#include "measure/measure.h"
#include "workload/fixture.h"

static const char yaml[] =
    "dataset: synthetic(shape=(6, 6), classes=4, samples=2000, noise=0.2)\n"
    "model: mlp(depth=2, hidden=64)\n"
    "optimizer: adamw(lr=1e-2)\n"
    "data: {batch_size: 512, num_workers: 0}\n"
    "seed: 7\n";

typedef struct bench_fixture {
  fixture f;
  brim_gpu_monitor *monitor;
  brim_memory_watch watch;
  brim_setting setting;
} bench_fixture;

// Opens the parts in the commands' order: the watch begins before the device is opened.
static void open_all(bench_fixture *b, const char *folder) {
  memset(b, 0, sizeof *b);
  memset(&gpu, 0, sizeof gpu);
  gpu.total = 1024 * MIB;
  gpu.modules_at_copy = 2 * MIB;
  b->monitor = fake_monitor_open();
  brim_memory_watch_init(&b->watch, b->monitor, FAKE_UUID, folder);
  brim_config_options options = {.text = yaml, .text_name = "test.yaml"};
  assert_ok(brim_config_load(&options, &b->f.config));
  assert_ok(brim_registry_create(&b->f.registry));
  b->f.device = fake_device_open();
  brim_memory_watch_opened(&b->watch, b->f.device);
  brim_work_context context = {.registry = b->f.registry, .device = b->f.device};
  assert_ok(brim_work_open(&context, b->f.config, &b->f.work));
  b->setting = brim_work_setting(b->f.work);
}

static void close_all(bench_fixture *b) {
  fixture_close(&b->f);
  brim_gpu_monitor_close(b->monitor);
  assert_int_equal(gpu.allocated, 0);
}

static void run(bench_fixture *b, int64_t batch, brim_result *r) {
  brim_trial_options options = {.steps = 2, .max_warmup = 1, .memory = &b->watch};
  b->setting.value[brim_work_knob(b->f.work, "batch_size")] = batch;
  assert_ok(brim_trial_run(b->f.work, b->f.config, b->f.device, &b->setting, &options, r));
}

static uint64_t planned(bench_fixture *b, int64_t batch) {
  brim_plan plan;
  b->setting.value[brim_work_knob(b->f.work, "batch_size")] = batch;
  assert_ok(b->f.work->table->plan(b->f.work->state, &b->setting, &plan));
  return plan.bytes[BRIM_PLACE_DEVICE];
}

// Failure class and message of a batch size; the result is dropped.
static brim_failure failure_of(bench_fixture *b, int64_t batch, char message[1024]) {
  brim_result r;
  run(b, batch, &r);
  brim_failure failure = r.failure;
  if (message) memcpy(message, r.message, sizeof r.message);
  brim_result_deinit(&r);
  return failure;
}

static void contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

//---------------------------------- overhead ----------------------------------

static void test_overhead_is_measured_and_remembered(void **state) {
  (void)state;
  bench_fixture b;
  brim_fs_remove("cache/overhead.json");
  open_all(&b, "cache");
  assert_true(b.watch.at_open == 3.0 * MIB);
  brim_overhead known = brim_memory_watch_known(&b.watch, b.f.work, b.f.config, &b.setting);
  assert_true(isnan(known.total));
  brim_result r;
  run(&b, 128, &r);
  assert_int_equal(r.failure, BRIM_FAILURE_NONE);
  // exact, because nothing else happens on this GPU
  assert_true(r.overhead_bytes == 5.0 * MIB);
  assert_true(r.real_bytes == r.overhead_bytes + (double)r.plan.bytes[BRIM_PLACE_DEVICE]);
  assert_int_equal(gpu.allocated, r.plan.bytes[BRIM_PLACE_DEVICE]);
  json_t *json = NULL;
  assert_ok(brim_result_to_json(&r, &json));
  const json_t *memory = json_object_get(json, "memory");
  assert_true(json_number_value(json_object_get(memory, "real")) == r.real_bytes);
  json_decref(json);
  brim_result_deinit(&r);
  close_all(&b);
  // another process knows the overhead before it runs, for any batch size but not for another precision
  open_all(&b, "cache");
  known = brim_memory_watch_known(&b.watch, b.f.work, b.f.config, &b.setting);
  assert_true(known.at_open == 3.0 * MIB && known.total == 5.0 * MIB);
  brim_trial_options options = {.memory = &b.watch};
  assert_ok(brim_trial_plan(b.f.work, b.f.config, b.f.device, &b.setting, &options, &r));
  assert_true(r.overhead_bytes == 5.0 * MIB);
  brim_result_deinit(&r);
  b.setting.value[brim_work_knob(b.f.work, "precision")] = 2;
  known = brim_memory_watch_known(&b.watch, b.f.work, b.f.config, &b.setting);
  assert_true(isnan(known.total));
  close_all(&b);
}

// Another process takes memory between the readings: the driver's figure of our own process decides.
static void test_others_do_not_count(void **state) {
  (void)state;
  bench_fixture b;
  brim_result r;
  open_all(&b, "");
  gpu.others_at_alloc = 300 * MIB;
  run(&b, 128, &r);
  assert_int_equal(r.failure, BRIM_FAILURE_NONE);
  assert_true(r.overhead_bytes == 5.0 * MIB);
  brim_result_deinit(&r);
  close_all(&b);
  // no list of processes (in a container): only the free memory is known
  open_all(&b, "");
  gpu.lists_nothing = true;
  run(&b, 128, &r);
  assert_true(r.overhead_bytes == 5.0 * MIB);
  brim_result_deinit(&r);
  close_all(&b);
}

static void test_without_nvml(void **state) {
  (void)state;
  bench_fixture b;
  brim_result r;
  open_all(&b, "");
  brim_memory_watch_init(&b.watch, NULL, FAKE_UUID, "");
  brim_memory_watch_opened(&b.watch, b.f.device);
  assert_true(isnan(b.watch.at_open));  // this device cannot report its memory before it is opened
  run(&b, 128, &r);
  assert_int_equal(r.failure, BRIM_FAILURE_NONE);
  assert_true(isnan(r.overhead_bytes) && isnan(r.real_bytes));
  brim_result_deinit(&r);
  // a device that can
  close_all(&b);
  open_all(&b, "");
  brim_memory_watch_init(&b.watch, NULL, FAKE_UUID, "");
  gpu.others = 100 * MIB;
  b.f.device->free_at_open = gpu.total - gpu.others;
  brim_memory_watch_opened(&b.watch, b.f.device);
  assert_true(b.watch.at_open == 3.0 * MIB);
  char message[1024];
  gpu.others = gpu.total - gpu.context - 65536;
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_OOM_PLANNED);
  contains(message, "but 64.0 KiB of 1.0 GiB are free; ");
  close_all(&b);
}

static void test_a_broken_cache_is_replaced(void **state) {
  (void)state;
  static const char *const broken[] = {"", "{", "[1]", "{\"schema\": \"other\"}",
                                       "{\"schema\": \"brim.overhead/1\", \"entries\": 3}"};
  const brim_overhead in = {1, 2};
  brim_overhead out;
  assert_ok(brim_fs_mkdirs("broken"));
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    assert_ok(brim_fs_write("broken/overhead.json", broken[i], strlen(broken[i])));
    assert_ok(brim_overhead_load("broken", "a", &out));
    assert_true(isnan(out.at_open) && isnan(out.total));
    assert_ok(brim_overhead_store("broken", "a", &in));
    assert_ok(brim_overhead_load("broken", "a", &out));
    assert_true(out.at_open == 1 && out.total == 2);
  }
  // figures no GPU has
  static const char odd[] =
      "{\"schema\": \"brim.overhead/1\", \"entries\": {\"a\": {\"at_open\": -5, \"total\": "
      "1e300}}}";
  assert_ok(brim_fs_write("broken/overhead.json", odd, sizeof odd - 1));
  assert_ok(brim_overhead_load("broken", "a", &out));
  assert_true(isnan(out.at_open) && isnan(out.total));
  // a second key does not change the first
  const brim_overhead other = {3, 4};
  assert_ok(brim_overhead_store("broken", "a", &in));
  assert_ok(brim_overhead_store("broken", "b", &other));
  assert_ok(brim_overhead_load("broken", "a", &out));
  assert_true(out.total == 2);
  // a folder that cannot exist: the trial still succeeds
  bench_fixture b;
  open_all(&b, "broken/overhead.json/x");
  assert_int_equal(failure_of(&b, 64, NULL), BRIM_FAILURE_NONE);
  close_all(&b);
}

//---------------------------------- fitting ----------------------------------

static void test_overhead_to_come_is_set_aside(void **state) {
  (void)state;
  bench_fixture b;
  char message[1024];
  brim_fs_remove("aside/overhead.json");
  open_all(&b, "aside");
  gpu.modules_at_copy = 400 * MIB;
  assert_int_equal(failure_of(&b, 512, NULL), BRIM_FAILURE_NONE);
  close_all(&b);
  // the plan fits into the memory that is free now, but not once the modules are loaded
  open_all(&b, "aside");
  gpu.modules_at_copy = 400 * MIB;
  gpu.others = gpu.total - gpu.context - planned(&b, 512) - 300 * MIB;
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_OOM_PLANNED);
  contains(message, "too little for the 400.0 MiB that CUDA and its libraries still need");
  assert_null(strstr(message, "checkpointing"));  // an mlp has no blocks to recompute
  gpu.others = gpu.total - gpu.context - planned(&b, 512) / 2 - 400 * MIB;
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_OOM_PLANNED);
  contains(message, "of which CUDA and its libraries need 400.0 MiB");
  // loaded modules are counted once, not twice
  gpu.others = 0;
  assert_int_equal(failure_of(&b, 512, NULL), BRIM_FAILURE_NONE);
  gpu.others = gpu_free() - MIB;
  assert_int_equal(failure_of(&b, 512, NULL), BRIM_FAILURE_NONE);
  close_all(&b);
}

// The memory of the current setting counts as free for the next one.
static void test_the_present_setting_is_given_back(void **state) {
  (void)state;
  bench_fixture b;
  open_all(&b, "");
  uint64_t small = planned(&b, 400), large = planned(&b, 512);
  assert_true(small > large / 2);
  gpu.others = gpu.total - gpu.context - gpu.modules_at_copy - large;
  assert_int_equal(failure_of(&b, 400, NULL), BRIM_FAILURE_NONE);
  assert_int_equal(failure_of(&b, 512, NULL), BRIM_FAILURE_NONE);
  assert_int_equal(failure_of(&b, 512, NULL), BRIM_FAILURE_NONE);
  assert_int_equal(failure_of(&b, 513, NULL), BRIM_FAILURE_OOM_PLANNED);
  assert_int_equal(failure_of(&b, 400, NULL), BRIM_FAILURE_NONE);
  close_all(&b);
}

static int64_t batch_in(const char *message) {
  static const char before[] = "batch_size ";
  const char *at = strstr(message, before);
  if (!at) fail_msg("no batch_size in: %s", message);
  return strtoll(at + sizeof before - 1, NULL, 10);
}

static void test_foreseen_beside_another_process(void **state) {
  (void)state;
  bench_fixture b;
  char message[1024], part[64], bytes[32];
  open_all(&b, "");
  gpu.others = gpu.total - gpu.context - planned(&b, 200);
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_OOM_PLANNED);
  contains(message, "of 1.0 GiB are free");
  contains(message, "pid 4711 python train.py (");
  brim_format_bytes(gpu.others, bytes);
  snprintf(part, sizeof part, ") uses %s", bytes);
  contains(message, part);
  contains(message, "this process uses 3.0 MiB");
  contains(message, "is the largest that fits now");
  contains(message, "gradient_accumulation_steps");
  contains(message, "wait until the other processes end");
  int64_t largest = batch_in(message);
  // the overhead is unknown: a sixteenth is reserved for it, and no more
  uint64_t advised = planned(&b, 200) - planned(&b, 200) / 16;
  assert_true(planned(&b, largest) <= advised && planned(&b, largest + 1) > advised);
  // modules that are not loaded yet need room too
  gpu.others -= gpu.modules_at_copy;
  assert_int_equal(failure_of(&b, largest, message), BRIM_FAILURE_NONE);
  // holders that cannot be seen are reported too
  gpu.lists_nothing = true;
  gpu.others = gpu.total - gpu_own();
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_OOM_PLANNED);
  contains(message, "processes that brim cannot see use 10");
  close_all(&b);
}

static void test_no_batch_fits(void **state) {
  (void)state;
  bench_fixture b;
  char message[1024];
  open_all(&b, "");
  gpu.others = gpu.total - gpu.context;
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_OOM_PLANNED);
  contains(message, "0 B of 1.0 GiB are free");
  contains(message, "no batch_size fits now");
  close_all(&b);
}

static void test_a_limit_is_told_as_one(void **state) {
  (void)state;
  bench_fixture b;
  brim_result r;
  open_all(&b, "");
  gpu.others = 100 * MIB;
  brim_trial_options options = {.steps = 2, .memory = &b.watch, .memory_limit = 4096};
  assert_ok(brim_trial_run(b.f.work, b.f.config, b.f.device, &b.setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_OOM_PLANNED);
  contains(r.message, "above the limit of 4.0 KiB");
  assert_null(strstr(r.message, "4711"));
  brim_result_deinit(&r);
  options.memory_limit =
      (uint64_t)((double)gpu.total * brim_config_float(b.f.config, "gpu.memory_fraction"));
  brim_setting huge = b.setting;
  huge.value[brim_work_knob(b.f.work, "batch_size")] = 1 << 22;
  gpu.others = 0;
  assert_ok(brim_trial_plan(b.f.work, b.f.config, b.f.device, &huge, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_OOM_PLANNED);
  contains(r.message, "above the gpu.memory_fraction limit of 921.6 MiB");
  // memory would hold a larger batch than the data can fill
  contains(r.message,
           "; batch_size 2000 is the largest that fits the training set of 2000 samples");
  assert_null(strstr(r.message, "gradient_accumulation_steps"));
  brim_result_deinit(&r);
  close_all(&b);
}

// Memory was free when it was checked and taken when it was needed: the allocation fails, the trial reports it, and the
// process survives.
static void test_met_at_allocation(void **state) {
  (void)state;
  bench_fixture b;
  char message[1024];
  open_all(&b, "");
  gpu.modules_at_copy = 4096;
  uint64_t room = planned(&b, 200) + gpu.modules_at_copy;
  gpu.others_at_alloc = gpu.total - gpu.context - room;
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_OOM_DEVICE);
  assert_int_equal(gpu.allocated, 0);  // the failed setting freed everything
  contains(message, "fakeMalloc: out of memory; this setting needs ");
  contains(message, "pid 4711 python train.py (");
  int64_t largest = batch_in(message);
  uint64_t advised = room - room / 16;
  assert_true(planned(&b, largest) <= advised && planned(&b, largest + 1) > advised);
  // the next smaller settings run in the same process
  assert_int_equal(failure_of(&b, 200, message), BRIM_FAILURE_NONE);
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_OOM_PLANNED);
  assert_int_equal(failure_of(&b, 100, message), BRIM_FAILURE_NONE);
  gpu.others = 0;
  assert_int_equal(failure_of(&b, 512, message), BRIM_FAILURE_NONE);
  close_all(&b);
}

// Others hold so much that CUDA itself cannot start: there is no plan yet, but the message names the holders.
static void test_met_at_opening(void **state) {
  (void)state;
  bench_fixture b;
  open_all(&b, "");
  gpu.others = gpu.total - 4 * MIB;
  assert_status(brim_fail(BRIM_EOOM, "device cuda:0: out of memory"), BRIM_EOOM);
  assert_status(brim_fit_explain_open(&b.watch), BRIM_EOOM);
  contains(brim_status_detail(), "device cuda:0: out of memory; ");
  contains(brim_status_detail(), "too little for CUDA itself; pid 4711 python train.py");
  contains(brim_status_detail(), "; wait until the other processes end");
  brim_memory_watch none = {0};
  assert_status(brim_fail(BRIM_EOOM, "no room"), BRIM_EOOM);
  assert_status(brim_fit_explain_open(&none), BRIM_EOOM);
  assert_string_equal(brim_status_detail(), "no room");
  close_all(&b);
}

// Each allocation of a setting is refused once: the next trial works every time.
static void test_any_refusal_is_survived(void **state) {
  (void)state;
  bench_fixture b;
  open_all(&b, "");
  gpu.total = 4096 * MIB;
  int refused = 0;
  for (uint64_t left = 0; left < planned(&b, 64); left += planned(&b, 64) / 16 + 1) {
    if (left > 0 && !test_is_sampled(left, 4)) continue;
    gpu.others_at_alloc = gpu.total - gpu.context - gpu.modules - left;
    refused += failure_of(&b, 64, NULL) == BRIM_FAILURE_OOM_DEVICE;
    assert_int_equal(gpu.allocated, 0);
    b.watch.held = 0;
    gpu.others = 0;
    assert_int_equal(failure_of(&b, 32, NULL), BRIM_FAILURE_NONE);
  }
  assert_true(refused > 0);
  close_all(&b);
}

// Host memory runs out while the message is made: the status is still BRIM_EOOM, with a text.
static void test_the_message_under_pressure(void **state) {
  (void)state;
  bench_fixture b;
  open_all(&b, "cache");
  brim_plan plan;
  assert_ok(b.f.work->table->plan(b.f.work->state, &b.setting, &plan));
  gpu.others = gpu.total - gpu.context - 65536;
  brim_fit fit = {.work = b.f.work,
                  .config = b.f.config,
                  .setting = &b.setting,
                  .plan = &plan,
                  .watch = &b.watch};
  for (uint64_t n = 1; n < 60; n++) {
    brim_alloc_fail_nth(n, 1);
    brim_status status = brim_fit_check(&fit);
    brim_alloc_fail_nth(0, 0);
    assert_int_equal(status, BRIM_EOOM);
    assert_true(strlen(brim_status_detail()) > 20);
  }
  close_all(&b);
}

static void test_unsupported_is_classed(void **state) {
  (void)state;
  bench_fixture b;
  open_all(&b, "");
  gpu.half = true;
  int precision = brim_work_knob(b.f.work, "precision");
  b.setting.value[precision] = 3;  // fp16
  assert_int_equal(failure_of(&b, 64, NULL), BRIM_FAILURE_UNSUPPORTED);
  b.setting.value[precision] = 0;
  assert_int_equal(failure_of(&b, 64, NULL), BRIM_FAILURE_NONE);
  close_all(&b);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_overhead_is_measured_and_remembered),
      cmocka_unit_test(test_others_do_not_count),
      cmocka_unit_test(test_without_nvml),
      cmocka_unit_test(test_a_broken_cache_is_replaced),
      cmocka_unit_test(test_overhead_to_come_is_set_aside),
      cmocka_unit_test(test_the_present_setting_is_given_back),
      cmocka_unit_test(test_foreseen_beside_another_process),
      cmocka_unit_test(test_no_batch_fits),
      cmocka_unit_test(test_a_limit_is_told_as_one),
      cmocka_unit_test(test_met_at_allocation),
      cmocka_unit_test(test_met_at_opening),
      cmocka_unit_test(test_any_refusal_is_survived),
      cmocka_unit_test(test_the_message_under_pressure),
      cmocka_unit_test(test_unsupported_is_classed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
