// Phase sums: nesting, never more than the wall clock, unbalanced ends ignored.
#include "profile/profile.h"
#include "test.h"

static void spin_ns(int64_t ns) {
  brim_time start = brim_clock_now();
  while (brim_time_since_ns(start, brim_clock_now()) < ns) {
  }
}

static void test_nested_spans_count_once(void **state) {
  (void)state;
  brim_phase_timer t;
  brim_phase_timer_init(&t);
  brim_time start = brim_clock_now();
  brim_span_begin(&t.spans, BRIM_PHASE_FORWARD, "outer");
  spin_ns(2000000);
  brim_span_begin(&t.spans, BRIM_PHASE_H2D, "inner");
  spin_ns(2000000);
  brim_span_end(&t.spans, BRIM_PHASE_H2D, "inner");
  brim_span_end(&t.spans, BRIM_PHASE_FORWARD, "outer");
  int64_t wall = brim_time_since_ns(start, brim_clock_now());
  assert_true(t.used[BRIM_PHASE_FORWARD] && t.used[BRIM_PHASE_H2D]);
  assert_false(t.used[BRIM_PHASE_BACKWARD]);
  assert_true(t.ns[BRIM_PHASE_H2D] >= 2000000);
  assert_true(t.ns[BRIM_PHASE_FORWARD] >= 2000000);
  assert_true(brim_phase_timer_sum(&t) <= wall);
}

static void test_unbalanced_end_is_ignored(void **state) {
  (void)state;
  brim_phase_timer t;
  brim_phase_timer_init(&t);
  brim_span_end(&t.spans, BRIM_PHASE_IO, "never opened");
  brim_span_begin(&t.spans, BRIM_PHASE_IO, "io");
  brim_span_end(&t.spans, BRIM_PHASE_FORWARD, "another");
  assert_int_equal(t.depth, 1);
  brim_span_end(&t.spans, BRIM_PHASE_IO, "io");
  assert_int_equal(t.depth, 0);
}

static void test_deep_nesting_does_not_overrun(void **state) {
  (void)state;
  brim_phase_timer t;
  brim_phase_timer_init(&t);
  for (int i = 0; i < 100; i++) brim_span_begin(&t.spans, BRIM_PHASE_IO, "deep");
  assert_int_equal(t.depth, BRIM_PHASE_TIMER_DEPTH);
}

static void test_shares_sum_to_one(void **state) {
  (void)state;
  brim_phase_timer t;
  brim_phase_timer_init(&t);
  t.ns[BRIM_PHASE_FORWARD] = 30;
  t.ns[BRIM_PHASE_BACKWARD] = 50;
  double share[BRIM_PHASE_COUNT], sum = 0;
  brim_phase_timer_shares(&t, 100, share);
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) sum += share[i];
  assert_float_equal(sum, 1.0, 1e-12);
  assert_float_equal(share[BRIM_PHASE_OTHER], 0.2, 1e-12);
  assert_float_equal(share[BRIM_PHASE_FORWARD], 0.3, 1e-12);
  brim_phase_timer_shares(&t, 0, share);
  assert_float_equal(share[BRIM_PHASE_FORWARD], 0.0, 0);
}

static void test_reset_keeps_open_spans(void **state) {
  (void)state;
  brim_phase_timer t;
  brim_phase_timer_init(&t);
  brim_span_begin(&t.spans, BRIM_PHASE_IO, "io");
  spin_ns(3000000);
  brim_time before_reset = brim_clock_now();
  brim_phase_timer_reset(&t);
  brim_span_end(&t.spans, BRIM_PHASE_IO, "io");
  assert_true(t.ns[BRIM_PHASE_IO] <= brim_time_since_ns(before_reset, brim_clock_now()));
  assert_true(t.used[BRIM_PHASE_IO]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nested_spans_count_once),
      cmocka_unit_test(test_unbalanced_end_is_ignored),
      cmocka_unit_test(test_deep_nesting_does_not_overrun),
      cmocka_unit_test(test_shares_sum_to_one),
      cmocka_unit_test(test_reset_keeps_open_spans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
