// Costs of a step beside its phases: checkpoints as training writes them, other processes that take turns on a GPU,
// transforms by name.
#include <math.h>

#include "measure/measure_int.h"
#include "workload/fixture.h"

static void test_turns_of_others(void **state) {
  (void)state;
  double ms[400];
  for (size_t i = 0; i < 400; i++) ms[i] = 0.2;
  assert_true(brim_share_of_others(ms, 400) < 1e-9);
  // every tenth piece ends together with a turn: the other process has 2 ms
  for (size_t i = 0; i < 400; i += 10) ms[i] = 2.2;
  assert_true(fabs(brim_share_of_others(ms, 400) - 0.5) < 1e-9);
  assert_true(isnan(brim_share_of_others(ms, 0)));
}

static void test_a_cpu_is_not_asked(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  brim_result_init(&r);
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  assert_ok(brim_sharing_measure(f.device, NULL, &r));
  assert_true(isnan(r.shared_percent));
  fixture_close(&f);
}

static size_t files_in(const char *folder) {
  char **names = NULL;
  size_t count = 0;
  assert_ok(brim_fs_list(folder, &names, &count));
  brim_fs_list_free(names, count);
  return count;
}

static void test_checkpoints(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  const char *const overrides[] = {"checkpoint.interval=2"};
  assert_ok(brim_fs_mkdirs("beside"));
  for (int saves = 0; saves < 2; saves++) {
    brim_result_init(&r);
    r.total_ms.median = 1;
    assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, (size_t)saves));
    assert_ok(fixture_configure(&f));
    assert_ok(brim_checkpoint_measure(f.work, f.config, f.device, NULL, &r));
    assert_true(isnan(r.checkpoint_ms));  // no folder to write one to
    assert_ok(brim_checkpoint_measure(f.work, f.config, f.device, "beside", &r));
    assert_int_equal(files_in("beside"), 0);
    assert_true(saves ? r.checkpoint_ms >= 0 : isnan(r.checkpoint_ms));
    assert_true(saves ? r.checkpoint_steps == 2 : isnan(r.checkpoint_steps));
    if (saves) {
      assert_true(brim_checkpoint_measure(f.work, f.config, f.device, "nowhere/at/all", &r) != 0);
      brim_status_clear();
    }
    fixture_close(&f);
  }
}

// Files of a killed process are removed. Other files stay, even with similar names.
static void test_left_behind(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  const char *const overrides[] = {"checkpoint.interval=2"};
  // no process has this number: the kernel's are smaller
  static const char *const names[] = {"left/.brim-price.tmp.2147483647.1",
                                      "left/mine.tmp.2147483647.1"};
  assert_ok(brim_fs_mkdirs("left"));
  for (int i = 0; i < 2; i++) assert_ok(brim_fs_write(names[i], "x", 1));
  brim_result_init(&r);
  r.total_ms.median = 1;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 1));
  assert_ok(fixture_configure(&f));
  assert_ok(brim_checkpoint_measure(f.work, f.config, f.device, "left", &r));
  assert_false(brim_fs_exists(names[0]));
  assert_true(brim_fs_exists(names[1]));
  assert_int_equal(files_in("left"), 1);
  fixture_close(&f);
}

static void test_transforms_by_name(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  static const char yaml[] =
      "dataset: synthetic(shape=(16, 16, 3), classes=4, samples=256)\n"
      "transform: {train: 'random_flip | gaussian_blur(kernel=7, p=1)'}\n"
      "model: mlp(depth=1, hidden=8)\n"
      "data: {batch_size: 32, num_workers: 0, cache: none}\n";
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  brim_setting setting = brim_work_setting(f.work);
  const brim_trial_options options = {.steps = 4, .max_warmup = 2};
  assert_ok(brim_trial_run(f.work, f.config, f.device, &setting, &options, &r));
  assert_true(brim_result_ran(&r));
  assert_int_equal(r.stage_count, 2);
  assert_string_equal(r.stages[1].name, "gaussian_blur");
  assert_true(r.stages[1].ms > 0);
  assert_true(r.quota_cores >= 1);
  brim_result_deinit(&r);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_turns_of_others),    cmocka_unit_test(test_a_cpu_is_not_asked),
      cmocka_unit_test(test_checkpoints),        cmocka_unit_test(test_left_behind),
      cmocka_unit_test(test_transforms_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
