// ARS learns: a short run of `stand` on the CPU whose policy falls less, in episodes it was not
// trained on, than one that does nothing. The seed is fixed and so is every bit of the run.
#include "rollout_test.h"

static void a_short_run_falls_less(void **state) {
  (void)state;
  enum { EPISODES = 500, ITERATIONS = 40 };
  ground g;
  ground_open_cpu(&g, brim_cpu_count());
  brim_rollout_shape shape = small_shape();
  shape.num_envs = 8;
  shape.num_dirs = shape.dir_chunk = 64;
  shape.episode_length = 100;
  robot_set(&shape, push_every, 20);
  shape.seed = 0;
  ground_prepare(&g, &shape);
  outcome zero = ground_evaluate(&g, EPISODES, 1, 1, NULL);
  for (int i = 0; i < ITERATIONS; i++) {
    ground_run(&g, i, 0.025f, 0.0f);
    ground_update(&g, i, 32, 0.02f);
  }
  outcome learned = ground_evaluate(&g, EPISODES, 0, 1, NULL);
  printf("falls: %d doing nothing, %d after %d iterations; reward %.1f, %.1f\n", zero.falls,
         learned.falls, ITERATIONS, zero.reward, learned.reward);
  assert_true(learned.reward > zero.reward + 5);
  assert_true(learned.falls < zero.falls * 85 / 100);
  ground_close(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_short_run_falls_less)};
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
