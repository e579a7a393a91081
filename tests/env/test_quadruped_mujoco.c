// Every form of the quadruped against MuJoCo itself, one step from random states: standing, pushed, tumbling, joints
// beyond their limits. With BRIM_TEST_FULL more than three times as many.
#include "quadruped_oracle.h"
#include "quadruped_states.h"

static void check_setting(int rk4, double margin) {
  const int states = test_is_full() ? STATES : 3000;
  const char *why;
  quadruped_oracle *o = quadruped_oracle_create(margin, rk4, 1, &why);
  if (!o) BRIM_SKIP(why);
  sample *from = calloc((size_t)states, sizeof(*from)),
         *want = calloc((size_t)states, sizeof(*want));
  sample *got = calloc((size_t)states, sizeof(*got));
  double *worst = calloc((size_t)states, sizeof(*worst));
  assert_non_null(from);
  assert_non_null(want);
  assert_non_null(got);
  assert_non_null(worst);
  setting set = {.timestep = 0.01, .margin = margin, .rk4 = rk4};
  uint64_t seed = 7;
  int touching = 0;
  for (int i = 0; i < states; i++) draw_state(&seed, i % 4, &from[i]);
  memcpy(want, from, (size_t)states * sizeof(*from));
  for (int i = 0; i < states; i++) {
    int contacts = quadruped_oracle_touch(o, from[i].qpos, want[i].touch), points = 0;
    for (int k = 0; k < 4; k++) {
      for (int x = want[i].touch[k]; x; x &= x - 1) points++;
    }
    assert_int_equal(points, contacts);  // each contact is a separate point
    touching += contacts;
    quadruped_oracle_step(o, want[i].qpos, want[i].qvel, from[i].act);
  }
  assert_true(touching > states / 2);  // contacts matter in this test
  for (int f = 0; f < FORM_COUNT; f++) {
    errors e = {.qvel = worst};
    memcpy(got, from, (size_t)states * sizeof(*from));
    forms[f].step(&set, states, got);
    for (int i = 0; i < states; i++) errors_add(&e, &got[i], &want[i], &from[i], margin);
    errors_check(&e, forms[f].name, f == FORM_F64);
  }
  free(from);
  free(want);
  free(got);
  free(worst);
  quadruped_oracle_destroy(o);
}

static void euler_margin_2(void **state) {
  (void)state;
  check_setting(0, 0.01);
}

static void euler_margin_3(void **state) {
  (void)state;
  check_setting(0, 0.02);
}

static void rk4_margin_2(void **state) {
  (void)state;
  check_setting(1, 0.01);
}

static void rk4_margin_3(void **state) {
  (void)state;
  check_setting(1, 0.02);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(euler_margin_2),
      cmocka_unit_test(euler_margin_3),
      cmocka_unit_test(rk4_margin_2),
      cmocka_unit_test(rk4_margin_3),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
