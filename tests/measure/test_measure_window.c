// Trials on a device that runs on its own: the measured steps are those of a training, in windows that never let the
// device drain. A few exact steps only divide the computing time.
#include <math.h>

#include "engine/engine_lazy.h"
#include "measure/measure.h"
#include "same_file.h"
#include "workload/fixture.h"

enum { RECORDED = 8 };  // two slots of: the whole step, forward, backward, update

// Calls that the workload got. Static, because a workload's table has no context.
static struct {
  const brim_workload_table *inner;
  brim_device *device;
  volatile sig_atomic_t stop;
  int exact, loose, samples;
  int stop_at;                // set `stop` in this loose step; 0 = never
  int starved;                // steps in windows that found the device without work
  int captures_first_window;  // recordings before the first sample
} seen;

static brim_status watched_step(void *work, const brim_spans *spans, brim_step_info *out) {
  assert_non_null(spans);
  if (spans->exact) {
    seen.exact++;
  } else {
    seen.loose++;
    if (seen.samples > 0 && lazy_count(seen.device)->waiting == 0) seen.starved++;
    if (seen.loose == seen.stop_at) seen.stop = 1;
  }
  return seen.inner->step(work, spans, out);
}

static void on_sample(void *ctx, int sample, int total) {
  (void)ctx;
  assert_true(sample <= total);
  if (seen.samples++ == 0) seen.captures_first_window = lazy_count(seen.device)->captures;
}

static void watch(brim_work *work, brim_device *device) {
  static brim_workload_table table;
  memset(&seen, 0, sizeof seen);
  seen.inner = work->table;
  seen.device = device;
  table = *work->table;
  table.step = watched_step;
  work->table = &table;
}

static void open_lazy(fixture *f) {
  memset(f, 0, sizeof *f);
  brim_config_options options = {.text = fixture_yaml, .text_name = "test.yaml"};
  assert_ok(brim_config_load(&options, &f->config));
  assert_ok(brim_registry_create(&f->registry));
  f->device = lazy_open(0);
  brim_work_context context = {.registry = f->registry, .device = f->device};
  assert_ok(brim_work_open(&context, f->config, &f->work));
}

static void close_lazy(fixture *f) {
  if (seen.inner) f->work->table = seen.inner;
  brim_work_close(f->work);
  lazy_close(f->device);
  brim_registry_destroy(f->registry);
  brim_config_close(f->config);
}

static void assert_phases_sum(const brim_result *r) {
  double mean = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    mean += r->phase_ms[p].mean;
    if (!r->phase_used[p]) assert_true(r->phase_ms[p].mean == 0);
  }
  assert_true(fabs(mean - r->total_ms.mean) <= 1e-6 * r->total_ms.mean);
}

static void test_the_steps_of_training_are_measured(void **state) {
  (void)state;
  fixture f;
  open_lazy(&f);
  watch(f.work, f.device);
  brim_setting setting = brim_work_setting(f.work);
  brim_trial_options options = {.steps = 6, .on_step = on_sample};
  brim_result r;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_NONE);
  assert_int_equal(seen.samples, 6);
  assert_true(r.steps >= 6 && r.steps % 6 == 0);
  // four steps to record, three to divide
  assert_int_equal(seen.exact, 7);
  // apart from warm-up: the measured steps, and one that leads into each window
  int lead = r.steps > 6 ? 6 : 1;
  assert_int_equal(seen.loose, r.warmup_steps - 4 + r.steps + lead);
  assert_int_equal(seen.starved, 0);
  // no recording follows the measurement of memory
  assert_int_equal(seen.captures_first_window, RECORDED);
  assert_int_equal(lazy_count(f.device)->captures, RECORDED);
  assert_true(r.samples_per_s > 0 && r.samples_per_s_low <= r.samples_per_s);
  brim_result_deinit(&r);
  close_lazy(&f);
}

static void test_what_was_computed_is_divided(void **state) {
  (void)state;
  fixture f;
  open_lazy(&f);
  watch(f.work, f.device);
  brim_setting setting = brim_work_setting(f.work);
  brim_trial_options options = {.steps = 6};
  brim_result r;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_phases_sum(&r);
  assert_true(r.phase_used[BRIM_PHASE_IO] && r.phase_used[BRIM_PHASE_H2D]);
  assert_true(r.phase_used[BRIM_PHASE_FORWARD] && r.phase_used[BRIM_PHASE_BACKWARD]);
  assert_true(r.phase_used[BRIM_PHASE_OPTIMIZER] && !r.phase_used[BRIM_PHASE_COMPUTE]);
  // one proportion holds for all windows
  const brim_stats_summary *forward = &r.phase_ms[BRIM_PHASE_FORWARD];
  const brim_stats_summary *backward = &r.phase_ms[BRIM_PHASE_BACKWARD];
  assert_true(forward->median > 0 && backward->median > 0);
  double a = forward->median * backward->mean, b = backward->median * forward->mean;
  assert_true(fabs(a - b) <= 1e-9 * a);
  brim_result_deinit(&r);
  close_lazy(&f);
}

static void test_a_trial_leaves_no_trace(void **state) {
  (void)state;
  for (int stopped = 0; stopped < 2; stopped++) {
    fixture f;
    brim_step_info info;
    open_lazy(&f);
    assert_ok(fixture_configure(&f));
    for (int i = 0; i < 3; i++) assert_ok(f.work->table->step(f.work->state, NULL, &info));
    assert_ok(f.work->table->save(f.work->state, "a.safetensors", NULL, false));
    watch(f.work, f.device);
    // in the second round, from the middle of the windows
    if (stopped) seen.stop_at = 5 + 20 + 3;
    brim_setting setting = brim_work_setting(f.work);
    brim_trial_options options = {.steps = 1000, .configured = true, .stop = &seen.stop};
    if (!stopped) options.steps = 3;
    brim_result r;
    brim_status status = brim_trial_run(f.work, f.config, f.device, &setting, &options, &r);
    assert_int_equal(status, stopped ? BRIM_EINTERRUPTED : BRIM_OK);
    assert_int_equal(r.failure, stopped ? BRIM_FAILURE_INTERRUPTED : BRIM_FAILURE_NONE);
    if (stopped) assert_int_equal(seen.loose, seen.stop_at);
    brim_result_deinit(&r);
    assert_ok(f.work->table->save(f.work->state, "b.safetensors", NULL, false));
    assert_same_file("a.safetensors", "b.safetensors");
    close_lazy(&f);
  }
}

static void test_time_runs_out(void **state) {
  (void)state;
  fixture f;
  open_lazy(&f);
  watch(f.work, f.device);
  brim_setting setting = brim_work_setting(f.work);
  brim_trial_options options = {.steps = 1000, .max_seconds = 1e-9, .on_step = on_sample};
  brim_result r;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_NONE);
  // the fewest that give an interval, one exact step before and one after
  assert_int_equal(seen.samples, 3);
  assert_int_equal(seen.exact, 2);
  assert_phases_sum(&r);
  brim_result_deinit(&r);
  close_lazy(&f);
}

static void test_the_host_is_measured_step_by_step(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  watch(f.work, f.device);
  brim_setting setting = brim_work_setting(f.work);
  brim_trial_options options = {.steps = 6};
  brim_result r;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.steps, 6);
  assert_int_equal(seen.loose, 0);
  assert_int_equal(seen.exact, r.warmup_steps + 6);
  assert_phases_sum(&r);
  brim_result_deinit(&r);
  f.work->table = seen.inner;
  fixture_close(&f);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_steps_of_training_are_measured),
      cmocka_unit_test(test_what_was_computed_is_divided),
      cmocka_unit_test(test_a_trial_leaves_no_trace),
      cmocka_unit_test(test_time_runs_out),
      cmocka_unit_test(test_the_host_is_measured_step_by_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
