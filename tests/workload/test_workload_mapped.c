// The GPU reads a mapped HDF5 file itself: when this path is chosen, its plan and its report, and that the training
// equals one with loader threads. On a device made of ref's loops, with a plug-in that only pretends to lock pages.
#include <hdf5.h>
#include <math.h>

#include "measure/fake_gpu.h"
#include "same_file.h"
#include "workload/fixture.h"
#include "workload/learn/learn.h"
#include "workload/plugin_augment.h"

enum { ROWS = 2000, COLS = 1024 };
enum { NONE, RAM, GPU, AUTO };

static const char mapped_yaml[] =
    "dataset: hdf5\n"
    "model: mlp(depth=1, hidden=16)\n"
    "optimizer: sgd(lr=0.05)\n"
    "data: {batch_size: 16, num_workers: 2, cache: none, path: mapped.h5, val_fraction: 0.1}\n"
    "seed: 7\n";

static void put(hid_t file, const char *name, hid_t type, int rank, const hsize_t *dim,
                const float *values) {
  hid_t space = H5Screate_simple(rank, dim, NULL);
  hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(dataset >= 0);
  assert_true(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
}

static int make_file(void **state) {
  (void)state;
  const hsize_t dim[2] = {ROWS, COLS};
  float *x = malloc(sizeof *x * ROWS * COLS), y[ROWS];
  assert_non_null(x);
  for (size_t i = 0; i < (size_t)ROWS * COLS; i++) x[i] = (float)(i * 2654435761u % 1000) / 1000.0f;
  for (size_t i = 0; i < ROWS; i++) y[i] = (float)(i * 7 % 4);
  hid_t file = H5Fcreate("mapped.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  put(file, "x", H5T_IEEE_F32LE, 2, dim, x);
  put(file, "y", H5T_STD_I64LE, 1, dim, y);
  H5Fclose(file);
  file = H5Fcreate("doubles.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  put(file, "x", H5T_IEEE_F64LE, 2, dim, x);
  put(file, "y", H5T_STD_I64LE, 1, dim, y);
  H5Fclose(file);
  free(x);
  return 0;
}

static test_locks *locks;

// `refuse`: locks of this many bytes fail; 0 = none.
static void open_on_gpu(fixture *f, uint64_t total, size_t refuse, const char *const *overrides,
                        size_t count) {
  brim_config_options options = {.text = mapped_yaml,
                                 .text_name = "test.yaml",
                                 .overrides = overrides,
                                 .override_count = count};
  memset(f, 0, sizeof *f);
  memset(&gpu, 0, sizeof gpu);
  gpu.total = total;
  assert_ok(brim_config_load(&options, &f->config));
  assert_ok(brim_registry_create(&f->registry));
  assert_ok(brim_registry_load(f->registry, BRIM_TEST_PLUGIN));
  locks = (test_locks *)(uintptr_t)brim_registry_extension(f->registry, TEST_LOCKS_EXTENSION);
  assert_non_null(locks);
  memset(locks, 0, sizeof *locks);
  locks->refuse_above = refuse;
  f->device = fake_device_open();
  brim_work_context context = {.registry = f->registry, .device = f->device};
  assert_ok(brim_work_open(&context, f->config, &f->work));
}

// Locked pages are unlocked before the files are unmapped.
static void close_on_gpu(fixture *f) {
  brim_work_close(f->work);
  assert_int_equal(locks->live, 0);
  assert_int_equal(locks->bytes, 0);
  assert_int_equal(gpu.allocated, 0);
  brim_device_close(f->device);
  brim_registry_destroy(f->registry);
  brim_config_close(f->config);
}

static brim_work_info info_of(const fixture *f) {
  brim_work_info info;
  f->work->table->info(f->work->state, &info);
  return info;
}

static uint64_t row_bytes(const brim_plan *plan, const char *name, brim_place place) {
  uint64_t sum = 0;
  for (size_t i = 0; i < plan->row_count; i++) {
    const brim_plan_row *row = &plan->rows[i];
    if (row->place == place && strcmp(row->name, name) == 0) sum += row->bytes;
  }
  return sum;
}

static const char *const ROW = "mapped dataset (page-locked)";

static void train_with(fixture *f, int64_t cache, bool pin, const char *path, brim_plan *plan,
                       brim_work_metrics *eval) {
  brim_setting setting = brim_work_setting(f->work);
  brim_step_info info;
  setting.value[brim_work_knob(f->work, "cache")] = cache;
  setting.value[brim_work_knob(f->work, "pin_memory")] = pin;
  assert_ok(f->work->table->plan(f->work->state, &setting, plan));
  assert_ok(f->work->table->configure(f->work->state, &setting));
  assert_int_equal(gpu.allocated, plan->bytes[BRIM_PLACE_DEVICE]);
  assert_int_equal(locks->bytes, row_bytes(plan, ROW, BRIM_PLACE_HOST));
  for (int i = 0; i < 20; i++) assert_ok(f->work->table->step(f->work->state, NULL, &info));
  assert_ok(brim_work_evaluate(f->work, eval));
  assert_ok(f->work->table->save(f->work->state, path, NULL, false));
}

// Read by the GPU, by loader threads, or cached: the same bits; memory is as planned, and freed when a setting does
// without.
static void test_mapped_equals_others(void **state) {
  (void)state;
  fixture f;
  brim_plan mapped, threads, kept, again, ram;
  brim_work_metrics a, b, c, d, e;
  open_on_gpu(&f, 8192 * MIB, 0, NULL, 0);
  train_with(&f, NONE, true, "mapped.safetensors", &mapped, &a);
  assert_string_equal(info_of(&f).cache, "mapped");
  assert_int_equal(info_of(&f).locked_bytes, locks->bytes);
  assert_null(info_of(&f).not_mapped);
  assert_true(locks->live == 2 && locks->fetches > 20);
  // Both sets are parts of one file: all of it is locked for each.
  uint64_t bytes = row_bytes(&mapped, ROW, BRIM_PLACE_HOST);
  assert_true(bytes >= 2 * (uint64_t)ROWS * COLS * 4 &&
              bytes < 2 * (uint64_t)ROWS * COLS * 4 + 32768);
  // Besides the network, the device holds only targets and batches.
  assert_int_equal(row_bytes(&mapped, "resident dataset", BRIM_PLACE_DEVICE), 0);
  assert_true(row_bytes(&mapped, "resident targets", BRIM_PLACE_DEVICE) >= ROWS * 4);
  assert_true(row_bytes(&mapped, "resident targets", BRIM_PLACE_DEVICE) <= ROWS * 4 + 2 * 256);
  uint64_t batches = row_bytes(&mapped, "augmented batch", BRIM_PLACE_DEVICE);
  assert_true(batches >= 4 * 16 * COLS * 4 && batches < 5 * 16 * COLS * 4);
  brim_work_loading loading;
  f.work->table->loading->stats(f.work->state, &loading);
  assert_string_equal(loading.cache, "mapped");
  assert_int_equal(loading.locked_bytes, locks->bytes);
  assert_int_equal(loading.samples, 20 * 16);

  train_with(&f, NONE, false, "threads.safetensors", &threads, &b);
  assert_string_equal(info_of(&f).cache, "none");
  assert_null(info_of(&f).not_mapped);  // pin_memory has a message of its own
  assert_int_equal(locks->live, 0);
  train_with(&f, GPU, true, "gpu.safetensors", &kept, &c);
  assert_string_equal(info_of(&f).cache, "gpu");
  train_with(&f, NONE, true, "again.safetensors", &again, &d);
  assert_string_equal(info_of(&f).cache, "mapped");
  train_with(&f, RAM, true, "ram.safetensors", &ram, &e);
  assert_string_equal(info_of(&f).cache, "ram");
  train_with(&f, NONE, true, "again2.safetensors", &again, &d);
  assert_string_equal(info_of(&f).cache, "mapped");
  close_on_gpu(&f);
  assert_same_file("mapped.safetensors", "threads.safetensors");
  assert_same_file("mapped.safetensors", "gpu.safetensors");
  assert_same_file("mapped.safetensors", "again.safetensors");
  assert_same_file("mapped.safetensors", "ram.safetensors");
  assert_same_file("mapped.safetensors", "again2.safetensors");
  assert_true(figure(a, "loss") == figure(b, "loss") && figure(a, "loss") == figure(c, "loss") &&
              figure(a, "accuracy") == figure(b, "accuracy"));
  assert_int_equal(mapped.bytes[BRIM_PLACE_HOST], again.bytes[BRIM_PLACE_HOST]);
}

// `auto` prefers the GPU if the set fits there, then the mapped file, then threads.
static void test_choice(void **state) {
  (void)state;
  static const struct {
    const char *overrides[3];
    uint64_t total, host;  // host 0: this machine's own memory
    size_t refuse;
    const char *cache, *why;
  } rows[] = {
      {{"data.cache=auto"}, 8192 * MIB, 0, 0, "gpu", NULL},
      {{"data.cache=auto", "gpu.memory_limit=1030MiB"}, 8192 * MIB, 0, 0, "mapped", NULL},
      {{"data.cache=auto", "gpu.memory_limit=900MiB"}, 8192 * MIB, 0, 0, "none", "the GPU has no"},
      {{"data.cache=none"}, 8192 * MIB, 0, 0, "mapped", NULL},
      {{"data.cache=none"}, 1024 * MIB, 0, 0, "none", "the GPU has no"},
      {{"data.cache=none"}, 8192 * MIB, 15 * MIB, 0, "none", "it would page-lock"},
      {{"data.cache=none"}, 8192 * MIB, 17 * MIB, 0, "mapped", NULL},  // too small for both sets
      {{"data.cache=none", "data.pin_memory=false"}, 8192 * MIB, 0, 0, "none", NULL},
      {{"data.cache=none", "data.num_workers=0"}, 8192 * MIB, 0, 0, "mapped", NULL},
      {{"data.cache=none", "data.path=doubles.h5"}, 8192 * MIB, 0, 0, "none", NULL},
      {{"data.cache=none", "transform.train=cutout(size=2)",
        "dataset=synthetic(shape=(6, 6), classes=4, samples=90)"},
       8192 * MIB,
       0,
       0,
       "none",
       NULL},
      {{"data.cache=none"}, 8192 * MIB, 0, 1, "none", "these pages stay as they are"},
      {{"data.cache=none"}, 8192 * MIB, 0, 8192, "none", "these pages stay as they are"},
      {{"data.cache=auto", "gpu.memory_limit=1030MiB"}, 8192 * MIB, 0, 8192, "none", "these pages"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fixture f;
    brim_plan plan;
    brim_step_info step;
    size_t count = 0;
    while (count < 3 && rows[i].overrides[count]) count++;
    open_on_gpu(&f, rows[i].total, rows[i].refuse, rows[i].overrides, count);
    if (rows[i].host) ((brim_learn *)f.work->state)->data.host_bytes = rows[i].host;
    brim_setting setting = brim_work_setting(f.work);
    assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
    assert_ok(f.work->table->configure(f.work->state, &setting));
    brim_work_info info = info_of(&f);
    if (strcmp(info.cache, rows[i].cache) != 0) {
      fail_msg("row %zu: %s, expected %s (%s)", i, info.cache, rows[i].cache,
               info.not_mapped ? info.not_mapped : "no reason");
    }
    if (!rows[i].why != !info.not_mapped ||
        (rows[i].why && !strstr(info.not_mapped, rows[i].why))) {
      fail_msg("row %zu: %s", i, info.not_mapped ? info.not_mapped : "no reason");
    }
    // A mapping that is refused when it is built: later plans are made without it.
    assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
    assert_int_equal(row_bytes(&plan, ROW, BRIM_PLACE_HOST), locks->bytes);
    assert_int_equal(gpu.allocated, plan.bytes[BRIM_PLACE_DEVICE]);
    assert_int_equal(locks->bytes > 0, strcmp(rows[i].cache, "mapped") == 0);
    assert_ok(f.work->table->step(f.work->state, NULL, &step));
    close_on_gpu(&f);
  }
}

// A setting that cannot be built leaves nothing locked.
static void test_failure_unlocks(void **state) {
  (void)state;
  fixture f;
  brim_plan plan;
  open_on_gpu(&f, 8192 * MIB, 0, NULL, 0);
  brim_setting setting = brim_work_setting(f.work);
  assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
  gpu.others_at_alloc = 8192 * MIB;  // another process takes it all
  assert_status(f.work->table->configure(f.work->state, &setting), BRIM_EOOM);
  assert_int_equal(locks->live, 0);
  gpu.others = 0;
  assert_ok(f.work->table->configure(f.work->state, &setting));
  assert_int_equal(locks->live, 2);
  close_on_gpu(&f);
}

// data.limit and data.on_error=skip give the same as with threads.
static void test_limit(void **state) {
  (void)state;
  const char *const overrides[] = {"data.limit=50", "data.drop_last=false", "data.on_error=skip"};
  fixture f;
  brim_plan plan;
  brim_work_metrics a, b;
  open_on_gpu(&f, 8192 * MIB, 0, overrides, 3);
  train_with(&f, NONE, true, "mapped.safetensors", &plan, &a);
  assert_string_equal(info_of(&f).cache, "mapped");
  train_with(&f, NONE, false, "threads.safetensors", &plan, &b);
  close_on_gpu(&f);
  assert_same_file("mapped.safetensors", "threads.safetensors");
  assert_true(figure(a, "loss") == figure(b, "loss"));
}

// Data on a GPU: read by the GPU, by loader threads, or kept there.
static void test_cuda(void **state) {
  (void)state;
  static const struct {
    int64_t cache, pin;
    const char *name, *path;
  } rows[] = {{NONE, 1, "mapped", "mapped.safetensors"},
              {NONE, 0, "none", "threads.safetensors"},
              {GPU, 1, "gpu", "gpu.safetensors"},
              {NONE, 1, "mapped", "again.safetensors"}};
  fixture f;
  if (fixture_open(&f, "cuda", mapped_yaml, NULL, 0)) {
    char why[256];
    snprintf(why, sizeof why, "%s", brim_status_detail());
    fixture_close(&f);
    BRIM_SKIP(why);
  }
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_setting setting = brim_work_setting(f.work);
    brim_step_info info;
    brim_work_metrics eval;
    setting.value[brim_work_knob(f.work, "cache")] = rows[i].cache;
    setting.value[brim_work_knob(f.work, "pin_memory")] = rows[i].pin;
    assert_ok(f.work->table->configure(f.work->state, &setting));
    if (strcmp(info_of(&f).cache, rows[i].name) != 0) {
      fail_msg("%s, expected %s: %s", info_of(&f).cache, rows[i].name,
               info_of(&f).not_mapped ? info_of(&f).not_mapped : "no reason");
    }
    for (int k = 0; k < 150; k++) assert_ok(f.work->table->step(f.work->state, NULL, &info));
    assert_ok(brim_work_evaluate(f.work, &eval));
    for (int k = 0; k < 20; k++) assert_ok(f.work->table->step(f.work->state, NULL, &info));
    assert_ok(f.work->table->save(f.work->state, rows[i].path, NULL, false));
  }
  fixture_close(&f);
  for (size_t i = 1; i < sizeof rows / sizeof *rows; i++) {
    assert_same_file(rows[0].path, rows[i].path);
  }
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mapped_equals_others),
      cmocka_unit_test(test_choice),
      cmocka_unit_test(test_failure_unlocks),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_cuda),
  };
  return cmocka_run_group_tests(tests, make_file, NULL);
}
