// Samples kept in host memory, on a device (ref's loops with a plug-in that gathers) or nowhere give the same results;
// the choices of `auto`; refusals; the plan.
#include <math.h>

#include "measure/fake_gpu.h"
#include "same_file.h"
#include "workload/fixture.h"

static const char cache_yaml[] =
    "dataset: synthetic(shape=(6, 6, 3), classes=4, samples=200, val_samples=40, noise=0.3)\n"
    "model: mlp(depth=1, hidden=16)\n"
    "optimizer: sgd(lr=0.05)\n"
    "data: {batch_size: 16, num_workers: 2}\n"
    "seed: 7\n";

static uint64_t row_bytes(const brim_plan *plan, const char *name, brim_place place) {
  uint64_t sum = 0;
  for (size_t i = 0; i < plan->row_count; i++) {
    const brim_plan_row *row = &plan->rows[i];
    if (row->place == place && strcmp(row->name, name) == 0) sum += row->bytes;
  }
  return sum;
}

// Configures with this `cache`, makes 20 steps, an evaluation and a checkpoint.
static void train_with(fixture *f, int64_t cache, const char *path, brim_plan *plan,
                       brim_work_metrics *eval) {
  brim_setting setting = brim_work_setting(f->work);
  brim_step_info info;
  setting.value[brim_work_knob(f->work, "cache")] = cache;
  assert_ok(f->work->table->plan(f->work->state, &setting, plan));
  assert_ok(f->work->table->configure(f->work->state, &setting));
  for (int i = 0; i < 20; i++) assert_ok(f->work->table->step(f->work->state, NULL, &info));
  assert_ok(brim_work_evaluate(f->work, eval));
  assert_ok(f->work->table->save(f->work->state, path, NULL, false));
}

enum { NONE, RAM, GPU, AUTO };

static const char *cache_of(const fixture *f) {
  brim_work_info info;
  f->work->table->info(f->work->state, &info);
  return info.cache;
}

// Samples kept or read again, in one workload as in bench: the same bits, and the plan shows which.
static void test_ram_equals_none(void **state) {
  (void)state;
  const char *const with[] = {"transform.train=random_crop(size=6, padding=1) | random_flip", NULL};
  for (int transformed = 0; transformed < 2; transformed++) {
    fixture f;
    brim_plan none, ram, again;
    brim_work_metrics a, b, c;
    assert_ok(fixture_open(&f, "ref", cache_yaml, with, (size_t)transformed));
    train_with(&f, NONE, "none.safetensors", &none, &a);
    assert_string_equal(cache_of(&f), "none");
    train_with(&f, RAM, "ram.safetensors", &ram, &b);
    assert_string_equal(cache_of(&f), "ram");
    train_with(&f, NONE, "again.safetensors", &again, &c);
    assert_string_equal(cache_of(&f), "none");
    fixture_close(&f);
    assert_same_file("none.safetensors", "ram.safetensors");
    assert_same_file("none.safetensors", "again.safetensors");
    assert_true(figure(a, "loss") == figure(b, "loss") && figure(a, "loss") == figure(c, "loss") &&
                figure(a, "accuracy") == figure(b, "accuracy"));
    uint64_t kept = row_bytes(&ram, "dataset cache", BRIM_PLACE_HOST);
    assert_true(kept >= 240 * (6 * 6 * 3 + 4));  // both sets
    assert_int_equal(ram.bytes[BRIM_PLACE_HOST], none.bytes[BRIM_PLACE_HOST] + kept);
    assert_int_equal(row_bytes(&none, "dataset cache", BRIM_PLACE_HOST), 0);
    assert_int_equal(again.bytes[BRIM_PLACE_HOST], none.bytes[BRIM_PLACE_HOST]);
  }
}

// Allocations equal the plan with a cache too.
static void test_ram_is_planned(void **state) {
  (void)state;
  const char *const ram[] = {"data.cache=ram"};
  fixture f;
  brim_plan plan;
  brim_alloc_stats before, after;
  assert_ok(fixture_open(&f, "ref", cache_yaml, ram, 1));
  brim_setting setting = brim_work_setting(f.work);
  assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
  brim_alloc_get_stats(&before);
  assert_ok(f.work->table->configure(f.work->state, &setting));
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                   plan.bytes[BRIM_PLACE_HOST] + plan.bytes[BRIM_PLACE_DEVICE]);
  fixture_close(&f);
}

// A device that uses host memory cannot keep a set of its own. Asking for it by name is an error with that reason;
// `auto` does not choose it.
static void test_gpu_is_refused_on_the_host(void **state) {
  (void)state;
  const char *const gpu_cache[] = {"data.cache=gpu"};
  fixture f;
  brim_plan plan;
  assert_ok(fixture_open(&f, "ref", cache_yaml, gpu_cache, 1));
  brim_setting setting = brim_work_setting(f.work);
  assert_status(f.work->table->plan(f.work->state, &setting, &plan), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "data.cache=gpu"));
  assert_non_null(strstr(brim_status_detail(), "host"));
  assert_status(f.work->table->configure(f.work->state, &setting), BRIM_EUNSUPPORTED);
  setting.value[brim_work_knob(f.work, "cache")] = AUTO;
  assert_ok(f.work->table->configure(f.work->state, &setting));
  assert_string_equal(cache_of(&f), "none");  // synthetic samples cost little to make
  fixture_close(&f);
}

//---------------------------------- on a device ----------------------------------

static void open_on_gpu(fixture *f, uint64_t total, const char *const *overrides, size_t count) {
  brim_config_options options = {.text = cache_yaml,
                                 .text_name = "test.yaml",
                                 .overrides = overrides,
                                 .override_count = count};
  memset(f, 0, sizeof *f);
  memset(&gpu, 0, sizeof gpu);
  gpu.total = total;
  assert_ok(brim_config_load(&options, &f->config));
  assert_ok(brim_registry_create(&f->registry));
  assert_ok(brim_registry_load(f->registry, BRIM_TEST_PLUGIN));
  f->device = fake_device_open();
  brim_work_context context = {.registry = f->registry, .device = f->device};
  assert_ok(brim_work_open(&context, f->config, &f->work));
}

// A cache on the device gives the same bits as none. It is made once for all settings, freed when a setting does
// without it, and takes exactly the planned bytes.
static void test_gpu_equals_none(void **state) {
  (void)state;
  fixture f;
  brim_plan none, kept, again, after;
  brim_work_metrics a, b, c, d;
  open_on_gpu(&f, 8192 * MIB, NULL, 0);
  train_with(&f, NONE, "none.safetensors", &none, &a);
  assert_int_equal(gpu.allocated, none.bytes[BRIM_PLACE_DEVICE]);
  train_with(&f, GPU, "gpu.safetensors", &kept, &b);
  assert_string_equal(cache_of(&f), "gpu");
  assert_int_equal(gpu.allocated, kept.bytes[BRIM_PLACE_DEVICE]);
  train_with(&f, GPU, "gpu2.safetensors", &again, &c);
  assert_int_equal(gpu.allocated, again.bytes[BRIM_PLACE_DEVICE]);
  train_with(&f, NONE, "none2.safetensors", &after, &d);
  assert_int_equal(gpu.allocated, none.bytes[BRIM_PLACE_DEVICE]);
  assert_same_file("none.safetensors", "gpu.safetensors");
  assert_same_file("none.safetensors", "gpu2.safetensors");
  assert_same_file("none.safetensors", "none2.safetensors");
  assert_true(figure(a, "loss") == figure(b, "loss") && figure(a, "loss") == figure(c, "loss") &&
              figure(a, "accuracy") == figure(b, "accuracy"));
  assert_true(row_bytes(&kept, "resident dataset", BRIM_PLACE_DEVICE) >= 240 * (6 * 6 * 3 + 4));
  assert_true(row_bytes(&kept, "augmented batch", BRIM_PLACE_DEVICE) > 0);
  assert_int_equal(row_bytes(&none, "resident dataset", BRIM_PLACE_DEVICE), 0);
  assert_int_equal(kept.bytes[BRIM_PLACE_DEVICE], again.bytes[BRIM_PLACE_DEVICE]);
  fixture_close(&f);
  assert_int_equal(gpu.allocated, 0);
}

// auto: on the device if the set fits beside the plan and a GiB of room, within the configured limit.
static void test_auto_by_what_fits(void **state) {
  (void)state;
  static const struct {
    uint64_t total;
    const char *override;
    const char *expected;
  } rows[] = {{8192 * MIB, "seed=7", "gpu"},
              {1024 * MIB, "seed=7", "none"},
              {8192 * MIB, "gpu.memory_limit=512MiB", "none"},
              {8192 * MIB, "gpu.memory_limit=2GiB", "gpu"},
              {8192 * MIB, "transform.train=random_flip", "none"},
              {8192 * MIB, "data.cache=none", "none"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fixture f;
    brim_plan plan;
    open_on_gpu(&f, rows[i].total, &rows[i].override, 1);
    brim_setting setting = brim_work_setting(f.work);
    assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
    assert_ok(f.work->table->configure(f.work->state, &setting));
    if (strcmp(cache_of(&f), rows[i].expected) != 0) {
      fail_msg("%s: %s, expected %s", rows[i].override, cache_of(&f), rows[i].expected);
    }
    assert_int_equal(gpu.allocated, plan.bytes[BRIM_PLACE_DEVICE]);
    fixture_close(&f);
  }
}

static bool matters(const fixture *f, const char *knob, const brim_setting *setting) {
  const brim_knob *k = &f->work->knobs[brim_work_knob(f->work, knob)];
  return !k->matters || k->matters(f->work->state, setting);
}

// A data set on the device needs no loading, so workers, prefetch and pinned memory do not matter to a sweep. Otherwise
// they do; prefetch only with workers.
static void test_what_matters(void **state) {
  (void)state;
  static const struct {
    uint64_t total;
    int64_t cache, workers;
    bool loader, prefetch;
  } rows[] = {{8192 * MIB, GPU, 2, false, false}, {8192 * MIB, AUTO, 2, false, false},
              {8192 * MIB, NONE, 2, true, true},  {8192 * MIB, RAM, 2, true, true},
              {8192 * MIB, NONE, 0, true, false}, {1024 * MIB, AUTO, 2, true, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fixture f;
    open_on_gpu(&f, rows[i].total, NULL, 0);
    brim_setting setting = brim_work_setting(f.work);
    setting.value[brim_work_knob(f.work, "cache")] = rows[i].cache;
    setting.value[brim_work_knob(f.work, "num_workers")] = rows[i].workers;
    assert_int_equal(matters(&f, "num_workers", &setting), rows[i].loader);
    assert_int_equal(matters(&f, "pin_memory", &setting), rows[i].loader);
    assert_int_equal(matters(&f, "prefetch", &setting), rows[i].prefetch);
    assert_true(matters(&f, "batch_size", &setting) && matters(&f, "cache", &setting));
    fixture_close(&f);
  }
}

// A transform that the device lacks is named if the config asks for the device.
static void test_what_the_device_lacks(void **state) {
  (void)state;
  const char *const overrides[] = {"data.cache=gpu", "transform.train=random_flip"};
  fixture f;
  brim_plan plan;
  open_on_gpu(&f, 8192 * MIB, overrides, 2);
  brim_setting setting = brim_work_setting(f.work);
  assert_status(f.work->table->plan(f.work->state, &setting, &plan), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "this device transforms nothing"));
  fixture_close(&f);
}

// data.limit: the device holds only that many samples, and training sees the same ones.
static void test_limit(void **state) {
  (void)state;
  const char *const overrides[] = {"data.limit=50", "data.drop_last=false"};
  fixture f;
  brim_plan none, kept;
  brim_work_metrics a, b;
  open_on_gpu(&f, 8192 * MIB, overrides, 2);
  train_with(&f, NONE, "none.safetensors", &none, &a);
  train_with(&f, GPU, "gpu.safetensors", &kept, &b);
  assert_int_equal(gpu.allocated, kept.bytes[BRIM_PLACE_DEVICE]);
  uint64_t bytes = row_bytes(&kept, "resident dataset", BRIM_PLACE_DEVICE);
  assert_true(bytes < (50 + 40) * (6 * 6 * 3 + 4) + 4 * 256);
  fixture_close(&f);
  assert_same_file("none.safetensors", "gpu.safetensors");
}

// Transforms on the device have a phase of their own when phases are measured.
typedef struct seen {
  int transform, ends;
} seen;
static void on_begin(void *ctx, brim_phase phase, const char *name) {
  (void)name;
  ((seen *)ctx)->transform += phase == BRIM_PHASE_TRANSFORM;
}
static void on_end(void *ctx, brim_phase phase, const char *name) {
  (void)name;
  ((seen *)ctx)->ends += phase == BRIM_PHASE_TRANSFORM;
}

static void test_spans(void **state) {
  (void)state;
  const char *const overrides[] = {"data.cache=gpu"};
  fixture f;
  seen s = {0, 0};
  brim_step_info info;
  brim_spans spans = {.ctx = &s, .exact = false, .begin = on_begin, .end = on_end};
  open_on_gpu(&f, 8192 * MIB, overrides, 1);
  assert_ok(fixture_configure(&f));
  assert_ok(f.work->table->step(f.work->state, &spans, &info));
  assert_int_equal(s.transform, 0);
  spans.exact = true;
  assert_ok(f.work->table->step(f.work->state, &spans, &info));
  assert_int_equal(s.transform, 1);
  assert_int_equal(s.ends, 1);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ram_equals_none),
      cmocka_unit_test(test_ram_is_planned),
      cmocka_unit_test(test_gpu_is_refused_on_the_host),
      cmocka_unit_test(test_gpu_equals_none),
      cmocka_unit_test(test_auto_by_what_fits),
      cmocka_unit_test(test_what_matters),
      cmocka_unit_test(test_what_the_device_lacks),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_spans),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
