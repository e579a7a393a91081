// Learning-rate schedules against values computed by hand.
#include <math.h>

#include "engine_test.h"

static void expect(const brim_schedule *s, int64_t step, double lr) {
  double got = brim_schedule_lr(s, step);
  if (!(fabs(got - lr) <= 1e-12 + 1e-9 * fabs(lr))) {
    fail_msg("step %lld: %.12g, expected %.12g", (long long)step, got, lr);
  }
}

static void test_constant(void **state) {
  (void)state;
  brim_schedule s;
  assert_ok(brim_schedule_init(&s, NULL, 0.1, 0, 100));
  expect(&s, 1, 0.1);
  expect(&s, 1000, 0.1);
  test_component c;
  test_component_init(&c, "constant");
  assert_ok(brim_schedule_init(&s, &c.c, 0.1, 4, 100));
  expect(&s, 1, 0.025);
  expect(&s, 2, 0.05);
  expect(&s, 4, 0.1);
  expect(&s, 5, 0.1);
  // The component's own warm-up takes precedence over the caller's.
  test_component_int(&c, "warmup", 2);
  assert_ok(brim_schedule_init(&s, &c.c, 0.1, 4, 100));
  expect(&s, 1, 0.05);
  expect(&s, 2, 0.1);
}

static void test_step_drops(void **state) {
  (void)state;
  brim_schedule s;
  test_component c;
  test_component_init(&c, "step");
  test_component_int(&c, "every", 10);
  test_component_float(&c, "gamma", 0.5);
  assert_ok(brim_schedule_init(&s, &c.c, 0.8, 0, 100));
  expect(&s, 1, 0.8);
  expect(&s, 10, 0.8);
  expect(&s, 11, 0.4);
  expect(&s, 20, 0.4);
  expect(&s, 21, 0.2);
  expect(&s, 41, 0.05);
}

static void test_cosine(void **state) {
  (void)state;
  brim_schedule s;
  test_component c;
  test_component_init(&c, "cosine");
  assert_ok(brim_schedule_init(&s, &c.c, 1, 0, 4));
  expect(&s, 1, 1);
  expect(&s, 2, 0.5 + 0.25 * sqrt(2));
  expect(&s, 3, 0.5);
  expect(&s, 4, 0.5 - 0.25 * sqrt(2));
  expect(&s, 5, 0);
  expect(&s, 500, 0);
  test_component_float(&c, "min_lr", 0.2);
  assert_ok(brim_schedule_init(&s, &c.c, 1, 2, 6));
  expect(&s, 1, 0.5);
  expect(&s, 2, 1);
  expect(&s, 3, 1);
  expect(&s, 5, 0.6);
  expect(&s, 7, 0.2);
  // A warm-up as long as the training leaves no steps to anneal.
  assert_ok(brim_schedule_init(&s, &c.c, 1, 6, 6));
  expect(&s, 6, 1);
  expect(&s, 7, 1);
}

static void refuse(const test_component *c, double lr, const char *text) {
  brim_schedule s;
  assert_status(brim_schedule_init(&s, &c->c, lr, 0, 10), BRIM_EINVAL);
  if (!strstr(brim_status_detail(), text)) fail_msg("the message is '%s'", brim_status_detail());
}

static void test_refusals(void **state) {
  (void)state;
  test_component c;
  test_component_init(&c, "cosin");
  c.c.file = "a.yaml";
  c.c.line = 3;
  c.c.col = 7;
  refuse(&c, 1, "a.yaml:3:7: unknown scheduler 'cosin'; did you mean 'cosine'?");
  test_component_init(&c, "step");
  test_component_int(&c, "every", 0);
  refuse(&c, 1, "every is 0");
  test_component_init(&c, "step");
  test_component_float(&c, "gama", 1);
  refuse(&c, 1, "did you mean 'gamma'?");
  test_component_init(&c, "step");
  test_component_float(&c, "gamma", -1);
  refuse(&c, 1, "gamma is -1");
  test_component_init(&c, "cosine");
  test_component_float(&c, "min_lr", -0.1);
  refuse(&c, 1, "min_lr");
  test_component_init(&c, "cosine");
  test_component_float(&c, "min_lr", 0.01);
  refuse(&c, 0.001, "min_lr is 0.01, above the learning rate of 0.001");
  test_component_init(&c, "cosine");
  refuse(&c, -1, "learning rate");
  refuse(&c, NAN, "learning rate");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_constant),
      cmocka_unit_test(test_step_drops),
      cmocka_unit_test(test_cosine),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
