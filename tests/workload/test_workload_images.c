// The supervised workload on images: transforms for training and evaluation, their shapes, planned bytes and resuming;
// CIFAR files through a convnet; the config's settings for device and engine; chosen algorithms in checkpoints.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine.h"
#include "same_file.h"
#include "workload/fixture.h"

static const char images_yaml[] =
    "dataset: synthetic(shape=(8, 8, 3), classes=4, samples=100, val_samples=40, noise=0.3)\n"
    "transform: {train: 'random_crop(size=8, padding=2) | random_flip | cutout(size=3)'}\n"
    "model: mlp(depth=1, hidden=16)\n"
    "optimizer: sgd(lr=0.05)\n"
    "data: {batch_size: 16, num_workers: 2, prefetch_factor: 2}\n"
    "training: {epochs: 3}\n"
    "seed: 7\n";

static void steps(fixture *f, int n, brim_step_info *last) {
  for (int i = 0; i < n; i++) assert_ok(f->work->table->step(f->work->state, NULL, last));
}

static void open_images(fixture *f, const char *device, const char *const *overrides, size_t n) {
  if (fixture_open(f, device, images_yaml, overrides, n)) {
    fixture_close(f);
    BRIM_SKIP(brim_status_detail());
  }
  assert_ok(fixture_configure(f));
}

// Weights after eleven steps are the same for any number of workers, and differ from those without augmentation.
static void test_workers_do_not_matter(void **state) {
  (void)state;
  static const char *const workers[] = {"data.num_workers=0", "data.num_workers=1",
                                        "data.num_workers=3"};
  brim_step_info info;
  fixture f;
  for (int w = 0; w < 3; w++) {
    open_images(&f, "ref", &workers[w], 1);
    steps(&f, 11, &info);
    assert_ok(
        f.work->table->save(f.work->state, w ? "w.safetensors" : "0.safetensors", NULL, false));
    fixture_close(&f);
    if (w) assert_same_file("0.safetensors", "w.safetensors");
  }
  const char *const without[] = {"transform.train=random_flip(p=0)"};
  open_images(&f, "ref", without, 1);
  steps(&f, 11, &info);
  assert_ok(f.work->table->save(f.work->state, "plain.safetensors", NULL, false));
  fixture_close(&f);
  char *a, *b;
  size_t na, nb;
  assert_ok(brim_fs_read("0.safetensors", 0, &a, &na));
  assert_ok(brim_fs_read("plain.safetensors", 0, &b, &nb));
  assert_true(na != nb || memcmp(a, b, na) != 0);
  brim_free(a);
  brim_free(b);
}

// Saved in the middle of the second epoch and continued: the same bytes.
static void resume_equals(const char *device) {
  fixture f;
  brim_step_info info;
  open_images(&f, device, NULL, 0);
  steps(&f, 10, &info);
  assert_ok(f.work->table->save(f.work->state, "mid.safetensors", NULL, false));
  steps(&f, 8, &info);
  assert_ok(f.work->table->save(f.work->state, "whole.safetensors", NULL, false));
  fixture_close(&f);
  open_images(&f, device, NULL, 0);
  assert_ok(f.work->table->load(f.work->state, "mid.safetensors", NULL));
  steps(&f, 8, &info);
  assert_int_equal(info.step, 18);
  assert_ok(f.work->table->save(f.work->state, "part.safetensors", NULL, false));
  fixture_close(&f);
  assert_same_file("whole.safetensors", "part.safetensors");
}

static void test_resume_is_exact_on_ref(void **state) {
  (void)state;
  resume_equals("ref");
}

static void test_resume_is_exact_on_cuda(void **state) {
  (void)state;
  resume_equals("cuda");
}

// The workers' scratch is in the plan, and counted as planned.
static void test_planned_bytes_are_real(void **state) {
  (void)state;
  fixture f;
  open_images(&f, "ref", NULL, 0);
  static const int64_t workers[] = {0, 1, 3};
  for (int i = 0; i < 3; i++) {
    brim_setting setting = brim_work_setting(f.work);
    setting.value[brim_work_knob(f.work, "num_workers")] = workers[i];
    brim_plan plan;
    brim_step_info info;
    assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
    assert_ok(f.work->table->configure(f.work->state, &setting));
    steps(&f, 2, &info);
    brim_alloc_stats stats;
    brim_alloc_get_stats(&stats);
    assert_int_equal(stats.live_bytes[BRIM_MEM_PLANNED],
                     plan.bytes[BRIM_PLACE_DEVICE] + plan.bytes[BRIM_PLACE_HOST]);
    uint64_t scratch = 0;
    for (size_t r = 0; r < plan.row_count; r++) {
      if (!strcmp(plan.rows[r].name, "transform scratch")) scratch += plan.rows[r].bytes;
    }
    assert_int_equal(scratch, 192 * (uint64_t)(workers[i] ? workers[i] : 1));
  }
  fixture_close(&f);
}

static void evaluate(const char *transform, brim_work_metrics *out) {
  fixture f;
  open_images(&f, "ref", &transform, 1);
  assert_ok(brim_work_evaluate(f.work, out));
  fixture_close(&f);
}

// Evaluation takes its samples unchanged unless an argument asks otherwise.
static void test_evaluation(void **state) {
  (void)state;
  brim_work_metrics bare, plain, train, val, test;
  evaluate("transform.train=random_flip(p=0)", &bare);
  evaluate("transform.train=random_flip(p=1) | cutout(size=8)", &train);
  assert_true(figure(bare, "loss") == figure(train, "loss"));
  evaluate("transform=random_flip(p=1) | cutout(size=8)", &plain);
  assert_true(figure(bare, "loss") == figure(plain, "loss"));
  evaluate("transform.val=random_flip(p=1)", &val);
  assert_true(figure(bare, "loss") != figure(val, "loss"));
  evaluate("transform.test=random_flip(p=1)", &test);
  assert_true(figure(val, "loss") == figure(test, "loss"));
}

// A crop changes the network's input; training and evaluation have to end in the same shape.
static void test_shapes(void **state) {
  (void)state;
  static const struct {
    const char *first, *second, *says;
  } cases[] = {
      {"transform=center_crop(size=6) | random_flip", "seed=1", NULL},
      {"transform.train=random_crop(size=6)", "transform.val=center_crop(size=6)", NULL},
      {"transform.train=random_crop(size=6)", "seed=1", "transform.val"},
      {"transform.train=random_crop(size=13)", "seed=1", "random_crop: a window of 13x13"},
      {"transform.train=normalize | random_flip", "seed=1", "random_flip comes after normalize"},
      {"dataset=synthetic(shape=[12], classes=3)", "seed=1", "random_crop works on images"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *const overrides[] = {cases[i].first, cases[i].second};
    fixture f;
    brim_status status = fixture_open(&f, "ref", images_yaml, overrides, 2);
    if (!status) status = fixture_configure(&f);
    if (cases[i].says) {
      assert_int_not_equal(status, BRIM_OK);
      if (!strstr(brim_status_detail(), cases[i].says)) {
        fail_msg("case %zu: '%s' does not say '%s'", i, brim_status_detail(), cases[i].says);
      }
    } else {
      assert_ok(status);
      brim_step_info info;
      brim_work_metrics m;
      steps(&f, 3, &info);
      assert_true(info.worker_transform_ns > 0);
      assert_ok(brim_work_evaluate(f.work, &m));
      assert_true(isfinite(figure(m, "loss")));
    }
    fixture_close(&f);
  }
}

//---------------------------------- CIFAR ----------------------------------

static void write_cifar(const char *path, int records) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  for (int i = 0; i < records; i++) {
    uint8_t record[3073];
    for (int e = 0; e < 3073; e++) record[e] = (uint8_t)(i * 13 + e * (i % 10 + 1));
    record[0] = (uint8_t)(i % 10);
    assert_int_equal(fwrite(record, 1, sizeof record, file), sizeof record);
  }
  assert_int_equal(fclose(file), 0);
}

// Files of the shipped config's shape through a narrow ResNet, with its augmentation.
static void test_cifar_through_a_resnet(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("cifar-10-batches-bin"));
  for (int i = 1; i <= 5; i++) {
    char path[64];
    snprintf(path, sizeof path, "cifar-10-batches-bin/data_batch_%d.bin", i);
    write_cifar(path, 4);
  }
  write_cifar("cifar-10-batches-bin/test_batch.bin", 6);
  static const char yaml[] =
      "dataset: cifar10\n"
      "data: {path: ., batch_size: 4, num_workers: 1}\n"
      "transform: {train: 'random_crop(size=32, padding=4) | random_flip | cutout(size=8)'}\n"
      "model: resnet18(width=2)\n"
      "loss: cross_entropy(label_smoothing=0.1)\n"
      "optimizer: sgd(lr=0.05, momentum=0.9, nesterov=true, weight_decay=5e-4)\n"
      "training: {epochs: 1}\n";
  fixture f;
  brim_step_info info;
  brim_work_metrics m;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  steps(&f, 5, &info);
  assert_true(info.epoch_end);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_true(isfinite(figure(m, "loss")) && m.bad == 0);
  assert_ok(brim_work_evaluate(f.work, &m));
  assert_int_equal(m.samples, 6);
  fixture_close(&f);
}

static char warned[512];
static int warnings;
static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx;
  if (level != BRIM_LOG_WARN || strcmp(module, "workload") != 0) return;
  snprintf(warned, sizeof warned, "%s", text);
  warnings++;
}

// Without a test set training continues, with a message.
static void test_a_missing_test_set_is_said(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("untested"));
  for (int i = 1; i <= 5; i++) {
    char path[64];
    snprintf(path, sizeof path, "untested/data_batch_%d.bin", i);
    write_cifar(path, 4);
  }
  fixture f;
  warnings = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
  assert_ok(fixture_open(&f, "ref", "dataset: cifar10\ndata: {path: untested, batch_size: 4}\n",
                         NULL, 0));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  assert_int_equal(warnings, 1);
  assert_non_null(strstr(warned, "test_batch.bin"));
  assert_int_equal(strncmp(warned, "no evaluation: ", 15), 0);
  assert_non_null(strstr(warned, "; data.val_fraction=0.1 holds out a tenth"));
  fixture_close(&f);
}

// A precision that the device lacks is named as the user wrote it.
static void test_fp16_on_the_cpu(void **state) {
  (void)state;
  fixture f;
  const char *const overrides[] = {"training.precision=fp16"};
  if (fixture_open(&f, "cpu", fixture_yaml, overrides, 1)) {
    fixture_close(&f);
    BRIM_SKIP(brim_status_detail());
  }
  assert_status(fixture_configure(&f), BRIM_EUNSUPPORTED);
  assert_string_equal(brim_status_detail(),
                      "precision fp16 is not supported on cpu; use bf16 or fp32");
  fixture_close(&f);
}

//---------------------------------- settings ----------------------------------

static void test_device_options(void **state) {
  (void)state;
  const char *const overrides[] = {"threads=3", "gpu.workspace_limit=1MiB", "deterministic=false",
                                   "cudnn_benchmark=false"};
  brim_config_options options = {
      .text = "{}", .text_name = "t", .overrides = overrides, .override_count = 4};
  brim_config *set, *bare;
  assert_ok(brim_config_load(&options, &set));
  options.override_count = 0;
  assert_ok(brim_config_load(&options, &bare));
  brim_device_options d;
  assert_int_equal(setenv("XDG_CACHE_HOME", "/caches", 1), 0);
  assert_ok(brim_work_device_options(set, &d));
  assert_int_equal(d.threads, 3);
  assert_int_equal(d.workspace_cap, 1 << 20);
  assert_true(d.nondeterministic);
  assert_false(d.measure_algorithms);
  assert_string_equal(d.cache_folder, "/caches/brim");
  assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0);
  assert_int_equal(setenv("HOME", "/home/someone", 1), 0);
  assert_ok(brim_work_device_options(bare, &d));
  assert_false(d.nondeterministic);
  assert_true(d.measure_algorithms);
  assert_string_equal(d.cache_folder, "/home/someone/.cache/brim");
  assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
  assert_int_equal(unsetenv("HOME"), 0);
  assert_ok(brim_work_device_options(bare, &d));
  assert_string_equal(d.cache_folder, "");
  brim_config_close(set);
  brim_config_close(bare);
}

static void check_knob(const fixture *f, const char *name, const char *text) {
  int k = brim_work_knob(f->work, name);
  assert_true(k >= 0);
  char got[32];
  brim_knob_format(&f->work->knobs[k], f->work->knobs[k].value, got);
  assert_string_equal(got, text);
}

// compile and checkpointing are knobs, and the config accepts their printed words.
static void test_knobs(void **state) {
  (void)state;
  fixture f;
  open_images(&f, "ref", NULL, 0);
  check_knob(&f, "compile", "true");
  check_knob(&f, "training.checkpointing", "auto");
  fixture_close(&f);
  static const char *const words[] = {"checkpointing=false", "checkpointing=auto",
                                      "checkpointing=true"};
  for (int i = 0; i < 3; i++) {
    const char *const overrides[] = {words[i], "compile=false"};
    open_images(&f, "ref", overrides, 2);
    check_knob(&f, "checkpointing", strchr(words[i], '=') + 1);
    check_knob(&f, "compile", "false");
    assert_int_equal(f.work->knobs[brim_work_knob(f.work, "checkpointing")].value,
                     i == 0   ? BRIM_RECOMPUTE_NONE
                     : i == 1 ? BRIM_RECOMPUTE_AUTO
                              : BRIM_RECOMPUTE_ALL);
    brim_step_info info;
    steps(&f, 2, &info);
    fixture_close(&f);
  }
}

// Only fp16 has a loss scale to report.
static void test_loss_scale(void **state) {
  (void)state;
  static const char *const precisions[] = {"precision=fp32", "precision=fp16"};
  for (int i = 0; i < 2; i++) {
    fixture f;
    brim_step_info info;
    brim_work_metrics m;
    if (fixture_open(&f, "ref", images_yaml, &precisions[i], 1) || fixture_configure(&f)) {
      fixture_close(&f);
      BRIM_SKIP(brim_status_detail());
    }
    steps(&f, 3, &info);
    assert_ok(f.work->table->metrics(f.work->state, true, &m));
    if (i) {
      assert_true(figure(m, "loss_scale") >= 1 && isfinite(figure(m, "loss")));
    } else {
      assert_true(isnan(figure(m, "loss_scale")));
    }
    fixture_close(&f);
  }
}

//---------------------------------- algorithms ----------------------------------

static char taken[256];

static brim_status fake_get(void *impl, char **text) {
  (void)impl;
  *text = brim_strdup("conv:8x8 algorithm-3\n");
  return *text ? BRIM_OK : BRIM_ENOMEM;
}

static brim_status fake_put(void *impl, const char *text) {
  (void)impl;
  if (strstr(text, "nonsense")) return brim_fail(BRIM_EPARSE, "nonsense");
  snprintf(taken, sizeof taken, "%s", text);
  return BRIM_OK;
}

static brim_status refuse_get(void *impl, char **text) {
  (void)impl;
  *text = brim_strdup("nonsense\n");
  return *text ? BRIM_OK : BRIM_ENOMEM;
}

static void test_algorithms_travel_with_checkpoints(void **state) {
  (void)state;
  fixture f;
  open_images(&f, "ref", NULL, 0);
  brim_backend fake = *f.device->backend;
  fake.algorithms_get = fake_get;
  fake.algorithms_put = fake_put;
  const brim_backend *real = f.device->backend;
  f.device->backend = &fake;
  assert_ok(f.work->table->save(f.work->state, "with.safetensors", NULL, false));
  assert_ok(f.work->table->save(f.work->state, "weights.safetensors", NULL, true));
  assert_ok(brim_work_take_algorithms(f.work, "with.safetensors"));
  assert_string_equal(taken, "conv:8x8 algorithm-3\n");
  // a file of weights alone has none, and neither has a device that chooses nothing
  taken[0] = 0;
  assert_ok(brim_work_take_algorithms(f.work, "weights.safetensors"));
  assert_string_equal(taken, "");
  f.device->backend = real;
  assert_ok(f.work->table->save(f.work->state, "without.safetensors", NULL, false));
  f.device->backend = &fake;
  assert_ok(brim_work_take_algorithms(f.work, "without.safetensors"));
  assert_string_equal(taken, "");
  // those of another library are ignored
  snprintf(f.device->info.library, sizeof f.device->info.library, "another");
  assert_ok(brim_work_take_algorithms(f.work, "with.safetensors"));
  assert_string_equal(taken, "");
  // entries that the device cannot read cost a warning
  fake.algorithms_get = refuse_get;
  assert_ok(f.work->table->save(f.work->state, "nonsense.safetensors", NULL, false));
  assert_ok(brim_work_take_algorithms(f.work, "nonsense.safetensors"));
  assert_int_not_equal(brim_work_take_algorithms(f.work, "missing.safetensors"), BRIM_OK);
  assert_non_null(strstr(brim_status_detail(), "missing.safetensors"));
  f.device->backend = real;
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_workers_do_not_matter),
      cmocka_unit_test(test_resume_is_exact_on_ref),
      cmocka_unit_test(test_resume_is_exact_on_cuda),
      cmocka_unit_test(test_planned_bytes_are_real),
      cmocka_unit_test(test_evaluation),
      cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_cifar_through_a_resnet),
      cmocka_unit_test(test_a_missing_test_set_is_said),
      cmocka_unit_test(test_fp16_on_the_cpu),
      cmocka_unit_test(test_device_options),
      cmocka_unit_test(test_knobs),
      cmocka_unit_test(test_loss_scale),
      cmocka_unit_test(test_algorithms_travel_with_checkpoints),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
