// Trials: phases that add up, memory that is counted, failures with a class, state that is restored.
#include <math.h>

#include "measure/measure_int.h"
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

// A trial ends when its interval is tight or its time is up, but not before the least number of samples. If that number
// exceeds the steps, it replaces them.
static void test_the_least_samples(void **state) {
  (void)state;
  const struct {
    int steps, min_steps, wanted;
    double ci_target, max_seconds;
  } rows[] = {{12, 0, 5, 1e9, 0},  {12, 8, 8, 1e9, 0},  {12, 2, 2, 1e9, 0},  {12, 1, 2, 1e9, 0},
              {3, 0, 3, 1e9, 0},   {4, 9, 9, 1e9, 0},   {0, 14, 14, 1e9, 0}, {12, 0, 12, 0, 0},
              {12, 0, 3, 0, 1e-9}, {12, 7, 7, 0, 1e-9}, {3, 7, 7, 0, 1e-9}};
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_setting setting = brim_work_setting(f.work);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_trial_options options = {.steps = rows[i].steps,
                                  .min_steps = rows[i].min_steps,
                                  .max_warmup = 1,
                                  .ci_target = rows[i].ci_target,
                                  .max_seconds = rows[i].max_seconds};
    brim_result r;
    assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
    assert_int_equal(r.failure, BRIM_FAILURE_NONE);
    assert_int_equal(r.steps, rows[i].wanted);
    brim_result_deinit(&r);
  }
  fixture_close(&f);
}

// Figures that need more than one sample are unknown, not 0, and an unknown spread is not steady.
static void test_one_sample(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_setting setting = brim_work_setting(f.work);
  brim_trial_options options = {.steps = 1, .max_warmup = 1, .ci_target = 0.01};
  brim_result r;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.steps, 1);
  assert_true(r.samples_per_s > 0 && isnan(r.samples_per_s_low) && isnan(r.samples_per_s_high));
  assert_true(r.total_ms.median > 0 && r.total_ms.mean == r.total_ms.median);
  assert_true(isnan(r.total_ms.mad) && isnan(r.total_ms.stddev));
  assert_true(isnan(r.total_ms.ci_low) && isnan(r.total_ms.ci_high));
  assert_true(isnan(r.phase_ms[BRIM_PHASE_FORWARD].mad));
  assert_false(r.stable);
  assert_true(brim_result_one_sample(&r));
  brim_result_deinit(&r);
  options.steps = 2;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_false(brim_result_one_sample(&r));
  assert_true(r.samples_per_s_low > 0);
  brim_result_deinit(&r);
  fixture_close(&f);
}

// The loader alone and the device alone: neither can be much slower than both together. A workload without halves
// leaves both unknown.
static void test_ceilings(void **state) {
  (void)state;
  fixture f;
  const char *const overrides[] = {"training.gradient_accumulation_steps=2"};
  for (size_t n = 0; n < 2; n++) {
    assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, n));
    brim_setting setting = brim_work_setting(f.work);
    brim_trial_options options = {.steps = 3, .max_warmup = 1, .ceilings = true};
    brim_result r;
    assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
    assert_true(r.data_samples_per_s > 0 && isfinite(r.data_samples_per_s));
    assert_true(r.compute_samples_per_s > 0 && isfinite(r.compute_samples_per_s));
    brim_result_deinit(&r);
    brim_workload_table table = *f.work->table;
    const brim_workload_table *real = f.work->table;
    table.loading = NULL;
    f.work->table = &table;
    assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
    assert_true(isnan(r.data_samples_per_s) && isnan(r.compute_samples_per_s));
    brim_result_deinit(&r);
    f.work->table = real;
    fixture_close(&f);
  }
}

// A GPU's step of 10 ms, of which the device alone takes 9. Transforms on the device are 0.2 of the remaining ms, and
// all but 0.8 of the host's 4 ms beside computing were hidden.
static void test_what_was_waited_for(void **state) {
  (void)state;
  brim_result r;
  brim_result_init(&r);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) memset(&r.phase_ms[p], 0, sizeof r.phase_ms[p]);
  r.total_ms.mean = r.total_ms.median = 10;
  r.samples_per_s = 6400;
  const struct {
    brim_phase phase;
    double ms, shown;
  } rows[] = {{BRIM_PHASE_IO, 3, 0.6},
              {BRIM_PHASE_H2D, 1, 0.2},
              {BRIM_PHASE_TRANSFORM, 0.2, 0.2},
              {BRIM_PHASE_FORWARD, 2.2, 3.3},
              {BRIM_PHASE_BACKWARD, 3.8, 5.7}};
  for (size_t i = 0; i < 5; i++) {
    r.phase_ms[rows[i].phase].mean = r.phase_ms[rows[i].phase].median = rows[i].ms;
  }
  brim_result_remove_overlap(&r);  // the device's own time is unknown
  assert_float_equal(r.phase_ms[BRIM_PHASE_IO].mean, 3, 0);
  r.compute_samples_per_s = 64 / 9e-3;
  brim_result_remove_overlap(&r);
  double sum = 0;
  for (size_t i = 0; i < 5; i++) {
    assert_float_equal(r.phase_ms[rows[i].phase].mean, rows[i].shown, 1e-9);
    assert_float_equal(r.phase_ms[rows[i].phase].median, rows[i].shown, 1e-9);
    sum += r.phase_ms[rows[i].phase].mean;
  }
  assert_float_equal(sum, 10, 1e-9);
  // the device alone takes 5 ms: it waited 4 more, while the host neither read nor copied
  r.compute_samples_per_s = 64 / 5e-3;
  brim_result_remove_overlap(&r);
  assert_float_equal(r.phase_ms[BRIM_PHASE_IO].mean, 0.6, 1e-9);
  assert_float_equal(r.phase_ms[BRIM_PHASE_H2D].mean, 4.2, 1e-9);
  double computing = r.phase_ms[BRIM_PHASE_FORWARD].mean + r.phase_ms[BRIM_PHASE_BACKWARD].mean;
  assert_true(fabs(computing - 5) < 1e-9);
  assert_true(r.phase_used[BRIM_PHASE_H2D]);
}

// A power cap belongs to the card's configuration. Heat does not, so such a trial is not reliable.
static void test_what_the_sampler_saw(void **state) {
  (void)state;
  brim_gpu_usage usage = {.gpu_percent = 97,
                          .sm_percent = 80,
                          .tensor_percent = (double)NAN,
                          .energy_j = 50,
                          .throttle = 1u << BRIM_THROTTLE_BIT_POWER_CAP};
  brim_result r;
  brim_result_init(&r);
  brim_usage_take(&usage, 1000, &r);
  assert_float_equal(r.gpu_percent, 97, 0);
  assert_true(isnan(r.tensor_percent));
  assert_float_equal(r.joules_per_sample, 0.05, 1e-12);
  assert_string_equal(r.throttle, "power cap");
  assert_false(r.throttled);
  usage.throttle |= 1u << BRIM_THROTTLE_BIT_THERMAL;
  brim_result_init(&r);
  brim_usage_take(&usage, 0, &r);
  assert_true(r.throttled && isnan(r.joules_per_sample));
  assert_non_null(strstr(r.throttle, "heat"));
}

// The counted memory of every swept setting is planned + overhead, exactly; and overhead stays small.
static void test_counted_memory_is_planned_plus_overhead(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  double least = INFINITY, most = 0;
  for (int64_t batch = 4; batch <= 256; batch *= 4) {
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
  // a size that no machine has, without a limit
  setting = with(&f, "batch_size", 1 << 28);
  options.memory_limit = 0;
  setting.value[brim_work_knob(f.work, "prefetch")] = 64;
  setting.value[brim_work_knob(f.work, "num_workers")] = 1024;
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_OOM_PLANNED);
  brim_result_deinit(&r);
  fixture_close(&f);
}

// No batch is advised that the data cannot fill. If memory ends the list of batches, the message names memory.
static void test_advice_within_the_set(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_setting setting = with(&f, "batch_size", 1 << 28);
  brim_trial_options options = {.steps = 2};
  brim_result r;
  assert_ok(brim_trial_plan(f.work, f.config, f.device, &setting, &options, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_OOM_PLANNED);
  assert_non_null(
      strstr(r.message, "batch_size 500 is the largest that fits the training set of 500 samples"));
  brim_result_deinit(&r);
  setting.value[brim_work_knob(f.work, "accumulation")] = 3;
  assert_ok(brim_trial_plan(f.work, f.config, f.device, &setting, &options, &r));
  assert_non_null(
      strstr(r.message, "batch_size 166 is the largest that fits the training set of 500 samples"));
  brim_result_deinit(&r);
  brim_plan plan;
  brim_setting small = with(&f, "batch_size", 100);
  assert_ok(f.work->table->plan(f.work->state, &small, &plan));
  setting = with(&f, "batch_size", 1 << 28);
  options.memory_limit = plan.bytes[BRIM_PLACE_DEVICE] + plan.bytes[BRIM_PLACE_HOST];
  assert_ok(brim_trial_plan(f.work, f.config, f.device, &setting, &options, &r));
  assert_non_null(strstr(r.message, "batch_size 100 is the largest that fits"));
  assert_null(strstr(r.message, "training set"));
  brim_result_deinit(&r);
  // the set's size does not end the list if the next larger batch does not fit
  int64_t set = 1;
  assert_int_equal(brim_work_largest_batch(f.work, &setting, UINT64_MAX, &set), 500);
  assert_int_equal(set, 500);
  setting = with(&f, "batch_size", 501);
  assert_int_equal(brim_work_largest_batch(f.work, &setting, UINT64_MAX, &set), 500);
  assert_int_equal(set, 0);
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

// A step that the set cannot fill does not measure the setting: it is reported, not run.
static void test_a_batch_larger_than_the_set(void **state) {
  (void)state;
  static const struct {
    int64_t batch, accumulation;
    bool runs;
    const char *said;
  } cases[] = {{500, 1, true, ""},
               {501, 1, false, "the set has 500 samples, fewer than one batch of 501"},
               {250, 2, true, ""},
               {250, 3, false, "the set has 500 samples, fewer than one step of 250 x 3"},
               {64, 1, true, ""}};
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    brim_setting setting = with(&f, "batch_size", cases[i].batch);
    setting.value[brim_work_knob(f.work, "accumulation")] = cases[i].accumulation;
    brim_trial_options options = {.steps = 2, .max_warmup = 1};
    brim_result r;
    assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
    assert_int_equal(r.failure, cases[i].runs ? BRIM_FAILURE_NONE : BRIM_FAILURE_BAD_CONFIG);
    assert_non_null(strstr(r.message, cases[i].said));
    assert_true(cases[i].runs ? r.samples_per_s > 0 : isnan(r.samples_per_s));
    brim_result_deinit(&r);
  }
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

// A signal while the setting is planned, which may pass over the data: nothing was measured, and the result says so.
static brim_status interrupted_plan(void *state, const brim_setting *setting, brim_plan *out) {
  (void)state;
  (void)setting;
  (void)out;
  return brim_fail(BRIM_EINTERRUPTED, "interrupted");
}

static void test_stop_while_planning(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const brim_workload_table *table = f.work->table;
  brim_workload_table interrupted = *table;
  interrupted.plan = interrupted_plan;
  f.work->table = &interrupted;
  brim_trial_options options = {.steps = 5};
  brim_setting setting = brim_work_setting(f.work);
  brim_result r;
  assert_status(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r),
                BRIM_EINTERRUPTED);
  assert_int_equal(r.failure, BRIM_FAILURE_INTERRUPTED);
  assert_false(brim_result_ran(&r));
  brim_result_deinit(&r);
  f.work->table = table;
  fixture_close(&f);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_phases_sum_to_the_total),
      cmocka_unit_test(test_the_least_samples),
      cmocka_unit_test(test_one_sample),
      cmocka_unit_test(test_ceilings),
      cmocka_unit_test(test_what_was_waited_for),
      cmocka_unit_test(test_what_the_sampler_saw),
      cmocka_unit_test(test_counted_memory_is_planned_plus_overhead),
      cmocka_unit_test(test_what_cannot_fit_is_not_tried),
      cmocka_unit_test(test_advice_within_the_set),
      cmocka_unit_test(test_failures_are_classed_and_the_next_trial_runs),
      cmocka_unit_test(test_a_batch_larger_than_the_set),
      cmocka_unit_test(test_configured_trial_restores_the_state),
      cmocka_unit_test(test_stop_flag_interrupts),
      cmocka_unit_test(test_stop_while_planning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
