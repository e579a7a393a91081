// Trials: phases that sum, memory that is counted, failures that are classed, state restored.
#include <math.h>

#include "measure/measure.h"
#include "same_file.h"
#include "workload/fixture.h"

static brim_setting with(const fixture *f, const char *knob, int64_t value) {
  brim_setting setting = brim_work_setting(f->work);
  setting.value[brim_work_knob(f->work, knob)] = value;
  return setting;
}

static void test_phases_sum_to_the_total(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_setting setting = brim_work_setting(f.work);
  brim_trial_options options = {.steps = 12};
  brim_result r;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_NONE);
  assert_int_equal(r.steps, 12);
  assert_true(r.warmup_steps >= 5);
  double mean = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) mean += r.phase_ms[p].mean;
  assert_true(fabs(mean - r.total_ms.mean) <= 1e-6 * r.total_ms.mean);
  assert_true(r.phase_used[BRIM_PHASE_IO] && r.phase_used[BRIM_PHASE_FORWARD]);
  assert_true(r.phase_used[BRIM_PHASE_BACKWARD] && r.phase_used[BRIM_PHASE_OPTIMIZER]);
  assert_true(r.phase_ms[BRIM_PHASE_FORWARD].median > 0);
  assert_true(r.samples_per_s > 0 && r.samples_per_s_low <= r.samples_per_s);
  assert_true(r.samples_per_s_high >= r.samples_per_s);
  assert_true(fabs(r.epoch_s - 500 / r.samples_per_s) <= 1e-9);
  brim_result_deinit(&r);
  fixture_close(&f);
}

// For every setting swept: counted = planned + overhead, exactly; and overhead stays small.
static void test_counted_memory_is_planned_plus_overhead(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  double least = INFINITY, most = 0;
  for (int64_t batch = 4; batch <= 1024; batch *= 4) {
    for (int64_t workers = 0; workers <= 2; workers++) {
      brim_setting setting = with(&f, "batch_size", batch);
      setting.value[brim_work_knob(f.work, "num_workers")] = workers;
      brim_trial_options options = {.steps = 2, .max_warmup = 1};
      brim_result r;
      assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
      assert_int_equal(r.failure, BRIM_FAILURE_NONE);
      double planned =
          (double)r.plan.bytes[BRIM_PLACE_DEVICE] + (double)r.plan.bytes[BRIM_PLACE_HOST];
      assert_true(r.counted_bytes == planned + r.overhead_bytes);
      least = fmin(least, r.overhead_bytes);
      most = fmax(most, r.overhead_bytes);
      brim_result_deinit(&r);
    }
  }
  // bookkeeping does not grow with the setting
  assert_true(most < 4 << 20);
  assert_true(most - least < 64 << 10);
  fixture_close(&f);
}

static void test_what_cannot_fit_is_not_tried(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_trial_options options = {.steps = 2, .memory_limit = 4096};
  brim_setting setting = brim_work_setting(f.work);
  brim_result r;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_OOM_PLANNED);
  assert_non_null(strstr(r.message, "4.0 KiB"));
  assert_int_equal(r.steps, 0);
  assert_true(isnan(r.samples_per_s));
  brim_result_deinit(&r);
  // a size no machine has, without a limit
  setting = with(&f, "batch_size", 1 << 28);
  options.memory_limit = 0;
  setting.value[brim_work_knob(f.work, "prefetch")] = 64;
  setting.value[brim_work_knob(f.work, "num_workers")] = 1024;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_OOM_PLANNED);
  brim_result_deinit(&r);
  fixture_close(&f);
}

static void test_failures_are_classed_and_the_next_trial_runs(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_trial_options options = {.steps = 2, .max_warmup = 1};
  brim_result r;
  // host memory runs out while the setting is built
  brim_setting setting = brim_work_setting(f.work);
  int classed = 0;
  for (uint64_t n = 1; n < 400; n += 7) {
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_trial_run(f.work, NULL, f.device, &setting, &options, &r);
    brim_alloc_fail_nth(0, 0);
    if (!status && r.failure == BRIM_FAILURE_OOM_HOST) classed++;
    brim_result_deinit(&r);
  }
  assert_true(classed > 0);
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_NONE);
  brim_result_deinit(&r);
  fixture_close(&f);
}

static void test_configured_trial_restores_the_state(void **state) {
  (void)state;
  fixture f;
  brim_step_info info;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  for (int i = 0; i < 3; i++) assert_ok(f.work->table->step(f.work->state, NULL, &info));
  assert_ok(f.work->table->save(f.work->state, "a.safetensors", NULL, false));
  brim_setting setting = brim_work_setting(f.work);
  brim_trial_options options = {.steps = 3, .configured = true};
  brim_result r;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_NONE);
  brim_result_deinit(&r);
  assert_ok(f.work->table->save(f.work->state, "b.safetensors", NULL, false));
  assert_same_file("a.safetensors", "b.safetensors");
  fixture_close(&f);
}

static void test_stop_flag_interrupts(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  volatile sig_atomic_t stop = 1;
  brim_trial_options options = {.steps = 5, .stop = &stop};
  brim_setting setting = brim_work_setting(f.work);
  brim_result r;
  assert_status(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r),
                BRIM_EINTERRUPTED);
  assert_int_equal(r.failure, BRIM_FAILURE_INTERRUPTED);
  brim_result_deinit(&r);
  fixture_close(&f);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_phases_sum_to_the_total),
      cmocka_unit_test(test_counted_memory_is_planned_plus_overhead),
      cmocka_unit_test(test_what_cannot_fit_is_not_tried),
      cmocka_unit_test(test_failures_are_classed_and_the_next_trial_runs),
      cmocka_unit_test(test_configured_trial_restores_the_state),
      cmocka_unit_test(test_stop_flag_interrupts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
