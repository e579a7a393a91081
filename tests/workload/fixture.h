// A small supervised workload on a device, for the tests of workload, run, measure and tune.
#ifndef BRIM_TESTS_WORKLOAD_FIXTURE_H_
#define BRIM_TESTS_WORKLOAD_FIXTURE_H_

#include <math.h>

#include "metric_value.h"
#include "test.h"
#include "workload/workload.h"

typedef struct fixture {
  brim_config *config;
  brim_registry *registry;
  brim_device *device;
  brim_work *work;
} fixture;

static const char fixture_yaml[] =
    "dataset: synthetic(shape=(6, 6), classes=4, samples=500, noise=0.2)\n"
    "model: mlp(depth=2, hidden=24, dropout=0.1)\n"
    "optimizer: adamw(lr=1e-2)\n"
    "data: {batch_size: 32, num_workers: 2, prefetch_factor: 2}\n"
    "training: {epochs: 3}\n"
    "seed: 7\n";

// A figure by its key; NaN = unknown.
static inline double figure(brim_work_metrics metrics, const char *key) {
  return metric_value(metrics.set, metrics.values, key);
}

// The figure that ranks evaluations.
static inline double deciding(brim_work_metrics metrics) {
  int row = brim_metric_deciding(metrics.set, BRIM_METRIC_EVAL, metrics.values, false);
  return row < 0 ? (double)NAN : metrics.values[row];
}

static inline const char *deciding_key(brim_work_metrics metrics) {
  int row = brim_metric_deciding(metrics.set, BRIM_METRIC_EVAL, metrics.values, false);
  return row < 0 ? "" : metrics.set->rows[row].key;
}

static inline brim_status fixture_open(fixture *f, const char *device, const char *yaml,
                                       const char *const *overrides, size_t count) {
  memset(f, 0, sizeof *f);
  brim_config_options options;
  memset(&options, 0, sizeof options);
  options.text = yaml;
  options.text_name = "test.yaml";
  options.overrides = overrides;
  options.override_count = count;
  BRIM_TRY(brim_config_load(&options, &f->config));
  BRIM_TRY(brim_registry_create(&f->registry));
  BRIM_TRY(brim_registry_load_folder(f->registry, BRIM_BUILD_DIR "/lib/brim"));
  brim_device_options device_options;
  memset(&device_options, 0, sizeof device_options);
  device_options.threads = 2;
  BRIM_TRY(brim_device_open(f->registry, device, &device_options, &f->device));
  brim_work_context context = {.registry = f->registry, .device = f->device};
  return brim_work_open(&context, f->config, &f->work);
}

static inline void fixture_close(fixture *f) {
  brim_work_close(f->work);
  brim_device_close(f->device);
  brim_registry_destroy(f->registry);
  brim_config_close(f->config);
}

static inline brim_status fixture_configure(fixture *f) {
  brim_setting setting = brim_work_setting(f->work);
  return f->work->table->configure(f->work->state, &setting);
}

// Makes the first five steps of a run whose epochs are 2, 2 and 1 iterations, with this many samples each; `info` is
// the last step's.
static inline void five_steps(const fixture *f, const char *unit, int64_t samples,
                              int64_t eval_samples, brim_step_info *info) {
  brim_work_info work;
  f->work->table->info(f->work->state, &work);
  assert_string_equal(work.unit, unit);
  assert_int_equal(work.epochs, 3);
  assert_int_equal(work.steps, 5);
  assert_int_equal(work.eval_samples, eval_samples);
  for (int i = 1; i <= 5; i++) {
    assert_ok(f->work->table->step(f->work->state, NULL, info));
    assert_int_equal(info->samples, samples);
    assert_int_equal(info->step, i);
    assert_int_equal(info->epoch_end, i % 2 == 0 || i == 5);
  }
}

#endif  // BRIM_TESTS_WORKLOAD_FIXTURE_H_
