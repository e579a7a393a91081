// What a run says of its settings before it begins: a warm-up that outlasts it is worth a warning, a
// key that asks for nothing is not.
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
  } else if (count_of(warned, part) != 1 || count_of(warned, "still rising") != 1) {
    fail_msg("%s: '%s' is not said once: %s", override, part, warned);
  }
}

static void test_warmup(void **state) {
  (void)state;
  says("training.warmup_epochs=2", NULL, 0, NULL);
  says("training.warmup_epochs=10", NULL, 0,
       "160 steps, the run has 48; lower training.warmup_epochs");
  says("training.warmup_epochs=3", "training.epochs=2", 0, "48 steps, the run has 32");
  says("training.warmup_steps=47", NULL, 0, NULL);
  says("training.warmup_steps=48", NULL, 0,
       "48 steps, the run has 48; lower training.warmup_steps");
  says("training.warmup_steps=20", "training.steps=20", 0, "20 steps, the run has 20");
  says("scheduler=cosine(warmup=60)", NULL, 0, "60 steps, the run has 48");
  says("scheduler=cosine(warmup=5)", "training.warmup_epochs=9", 0, NULL);
  // stopped early to be gone on with: the run itself is longer
  says("training.warmup_epochs=2", NULL, 5, NULL);
}

static void test_nothing_to_empty(void **state) {
  (void)state;
  says("gpu.empty_cache_freq=5", NULL, 1, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_warmup),
      cmocka_unit_test(test_nothing_to_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
