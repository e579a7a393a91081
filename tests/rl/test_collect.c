// Collected rollouts against the contract of environments, on the CPU and, if there is a GPU, on CUDA: every state,
// reward and observation equals the result of the environment's own functions.
#include <math.h>

#include "collect_test.h"

#include "env/cartpole/cartpole.h"
#include "env/drift.h"

#define BRIM_ENV(name) brim_cartpole_##name
#include "collect_plain.h"
#undef BRIM_ENV
#define BRIM_ENV(name) drift_##name
#include "collect_plain.h"
#undef BRIM_ENV

static void cartpole_is_the_contract(void **state) {
  (void)state;
  camp g[2];
  const int camps = camps_of("cartpole", g);
  for (int p = 0; p < camps; p++) {
    brim_collect_shape shape = shape_of("cartpole", 37, 40);
    assert_true(brim_cartpole_plain_agrees(&g[p], &shape, 3) > 37);
    shape.num_envs = 1;
    shape.stream = 9;
    assert_true(brim_cartpole_plain_agrees(&g[p], &shape, 3) > 1);
  }
}

// Rollouts shorter than an episode, as long, and longer; with one agent and several; with one reward and one for each
// agent.
static void drift_is_the_contract(void **state) {
  (void)state;
  static const int32_t steps[] = {1, 5, 12, 13, 30};
  camp g[2];
  const int camps = camps_of("drift", g);
  for (int p = 0; p < camps; p++) {
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
      for (int32_t agents = 1; agents <= drift_AGENTS; agents += agents == 1 ? 2 : 1) {
        brim_collect_shape shape = shape_of("drift", 35, steps[i]);
        shape.episode_length = 12;
        set_value(&shape, drift_values, agents, agents);
        set_value(&shape, drift_values, own, agents == 3);
        assert_true(drift_plain_agrees(&g[p], &shape, 60 / steps[i]) >= 4 * 35);
      }
    }
  }
}

// F is the largest number of truncations, and each has its own place.
static void truncations_have_their_places(void **state) {
  (void)state;
  static const struct {
    int32_t steps, length, finals;
  } cases[] = {{1, 1, 1}, {4, 1, 4}, {5, 6, 1}, {6, 6, 1}, {7, 6, 2}, {12, 6, 2}, {13, 6, 3}};
  camp g[2];
  const int camps = camps_of("drift", g);
  for (int p = 0; p < camps; p++) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      brim_collect_shape shape = shape_of("drift", 9, cases[i].steps);
      shape.episode_length = cases[i].length;
      camp_prepare(&g[p], &shape);
      assert_int_equal(g[p].at.finals, cases[i].finals);
      assert_int_equal(g[p].at.slots, cases[i].steps + 1 + cases[i].finals);
      camp_run(&g[p], 5, 0);
      assert_true(drift_plain_agrees(&g[p], &shape, 5) > 0);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cartpole_is_the_contract),
      cmocka_unit_test(drift_is_the_contract),
      cmocka_unit_test(truncations_have_their_places),
  };
  return cmocka_run_group_tests(tests, open_world, close_world);
}
