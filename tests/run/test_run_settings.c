// Reports of a run about its settings before it begins: a warm-up longer than the run is worth a warning, a key without
// effect is not.
#include "run_test.h"

// 16 steps an epoch, 3 epochs.
static void says(const char *override, const char *second, int64_t max_steps, const char *part) {
  brim_run_result r;
  job j = {.folder = "run", .overrides = {override, second}, .max_steps = max_steps};
  fresh("run");
  listen_now();
  assert_ok(run(&j, &r));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  if (!part) {
    assert_string_equal(warned, "");
  } else if (count_of(warned, part) != 1 || count_of(warned, "warm-up") != 1) {
    fail_msg("%s: '%s' is not said once: %s", override, part, warned);
  }
}

static void test_warmup(void **state) {
  (void)state;
  says("training.warmup_epochs=1", NULL, 0, NULL);
  // a warm-up in epochs suits a run of usual length: a short run takes a fifth of its steps
  says("training.warmup_epochs=10", NULL, 0,
       "training.warmup_epochs asks for 160 steps of warm-up, half of the run or more; the run is "
       "short, so brim takes 9");
  says("training.warmup_epochs=3", "training.epochs=2", 0, "brim takes 6");
  says("training.warmup_epochs=1", "training.epochs=2", 0, "brim takes 6");
  says("training.warmup_epochs=1", "training.steps=10", 0,
       "16 steps, the run has 10; lower training.warmup_epochs");
  says("training.warmup_steps=47", NULL, 0, NULL);
  says("training.warmup_steps=48", NULL, 0,
       "48 steps, the run has 48; lower training.warmup_steps");
  says("training.warmup_steps=20", "training.steps=20", 0, "20 steps, the run has 20");
  says("scheduler=cosine(warmup=60)", NULL, 0, "60 steps, the run has 48");
  says("scheduler=cosine(warmup=5)", "training.warmup_epochs=9", 0, NULL);
  // stopped early, to be continued later: the run itself is longer
  says("training.warmup_epochs=1", NULL, 5, NULL);
}

// The schedule uses the shortened warm-up: after it the learning rate no longer rises.
static void test_warmup_of_a_short_run(void **state) {
  (void)state;
  brim_config *config;
  const char *const overrides[] = {"training.warmup_epochs=2", "training.epochs=2"};
  brim_config_options how = {.overrides = overrides, .override_count = 2};
  assert_ok(brim_config_load(&how, &config));
  brim_work_warmup w = brim_work_warmup_of(config, 18);
  assert_int_equal(w.asked, 36);
  assert_int_equal(w.steps, 7);
  w = brim_work_warmup_of(config, 0);  // no samples to train on
  assert_int_equal(w.steps, 0);
  brim_config_close(config);
}

static void test_nothing_to_empty(void **state) {
  (void)state;
  says("gpu.empty_cache_freq=5", NULL, 1, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_warmup),
      cmocka_unit_test(test_warmup_of_a_short_run),
      cmocka_unit_test(test_nothing_to_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
