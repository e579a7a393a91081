// Statistics against values computed by hand; the bootstrap against itself and its limits.
#include "base/base_stats.h"

#include <math.h>

#include "base/base_alloc.h"
#include "test.h"

static void near(double value, double expected) {
  if (!(fabs(value - expected) <= 1e-12 * fmax(1, fabs(expected)))) {
    fail_msg("%.17g is not %.17g", value, expected);
  }
}

static void by_hand(void **state) {
  (void)state;
  const double v[] = {7, 1, 4, 10, 3};  // sorted 1 3 4 7 10
  double x;
  assert_ok(brim_stats_median(v, 5, &x));
  near(x, 4);
  assert_ok(brim_stats_median(v, 4, &x));  // 1 4 7 10
  near(x, 5.5);
  brim_stats_summary s;
  assert_ok(brim_stats_summarize(v, 5, 1, &s));
  near(s.median, 4);
  near(s.mad, 3);                       // |v - 4| = 3 3 0 6 1 -> 0 1 3 3 6
  near(s.p05, 1.4);                     // at 0.2: 1 + 0.2 * 2
  near(s.p95, 9.4);                     // at 3.8: 7 + 0.8 * 3
  assert_true(v[0] == 7 && v[4] == 3);  // the input keeps its order
}

static void summary(void **state) {
  (void)state;
  const double v[] = {2, 4, 4, 4, 5, 5, 7, 9};  // mean 5, squares 32
  brim_stats_summary s;
  assert_ok(brim_stats_summarize(v, 8, 1, &s));
  assert_int_equal(s.n, 8);
  near(s.min, 2);
  near(s.max, 9);
  near(s.mean, 5);
  near(s.stddev, sqrt(32.0 / 7));
  near(s.median, 4.5);
  near(s.mad, 0.5);   // 2.5 .5 .5 .5 .5 .5 2.5 4.5
  near(s.p05, 2.7);   // at 0.35
  near(s.p95, 8.3);   // at 6.65
  near(s.p99, 8.86);  // at 6.93
  assert_true(s.ci_low >= 2 && s.ci_low <= s.median && s.ci_high >= s.median && s.ci_high <= 9);
}

static void single_value(void **state) {
  (void)state;
  const double v[] = {3.5};
  brim_stats_summary s;
  assert_ok(brim_stats_summarize(v, 1, 0, &s));
  near(s.stddev, 0);
  near(s.median, 3.5);
  near(s.p99, 3.5);
  near(s.ci_low, 3.5);
  near(s.ci_high, 3.5);
}

static void large_offsets_keep_digits(void **state) {
  (void)state;
  const double v[] = {1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16};
  brim_stats_summary s;
  assert_ok(brim_stats_summarize(v, 4, 0, &s));
  near(s.stddev, sqrt(30));
}

static void bootstrap(void **state) {
  (void)state;
  double v[101], low, high, low2, high2;
  for (int i = 0; i < 101; i++) v[i] = (i * 37) % 101;
  assert_ok(brim_stats_bootstrap_median(v, 101, 0.95, 2000, 42, &low, &high));
  assert_ok(brim_stats_bootstrap_median(v, 101, 0.95, 2000, 42, &low2, &high2));
  assert_true(low == low2 && high == high2);
  // The order of the values does not matter.
  for (int i = 0; i < 101; i++) v[i] = i;
  assert_ok(brim_stats_bootstrap_median(v, 101, 0.95, 2000, 42, &low2, &high2));
  assert_true(low == low2 && high == high2);
  // Order statistics give ranks of about 40 and 60 as the 95 % interval of the median of 0..100.
  assert_true(low >= 36 && low <= 44);
  assert_true(high >= 56 && high <= 64);
  assert_ok(brim_stats_bootstrap_median(v, 101, 0.5, 2000, 42, &low2, &high2));
  assert_true(low2 > low && high2 < high);
  assert_ok(brim_stats_bootstrap_median(v, 100, 0.95, 501, 43, &low2, &high2));
  assert_true(low2 != low || high2 != high);
}

// The interval of the median of 1 to 101 is known: ranks 51 -+ z sqrt(101)
// 2, both tails cut.
static void interval_by_theory(void **state) {
  (void)state;
  double v[101], low, high;
  for (int i = 0; i < 101; i++) v[i] = i + 1;
  assert_ok(brim_stats_bootstrap_median(v, 101, 0.95, 20000, 7, &low, &high));
  assert_true(low >= 40 && low <= 42);  // z = 1.96: 41.2 and 60.8
  assert_true(high >= 60 && high <= 62);
  assert_ok(brim_stats_bootstrap_median(v, 101, 0.5, 20000, 7, &low, &high));
  assert_true(low >= 47 && low <= 48.5);  // z = 0.674: 47.6 and 54.4
  assert_true(high >= 53.5 && high <= 55);
}

static void refusals(void **state) {
  (void)state;
  const double bad[] = {1, NAN}, worse[] = {INFINITY};
  double x, y;
  brim_stats_summary s;
  assert_status(brim_stats_median(NULL, 0, &x), BRIM_EINVAL);
  assert_status(brim_stats_median(bad, 2, &x), BRIM_EINVAL);
  assert_status(brim_stats_summarize(worse, 1, 0, &s), BRIM_EINVAL);
  assert_status(brim_stats_summarize(bad, 2, 0, &s), BRIM_EINVAL);
  assert_status(brim_stats_bootstrap_median(bad, 1, 1.0, 10, 0, &x, &y), BRIM_EINVAL);
  assert_status(brim_stats_bootstrap_median(bad, 1, 0.9, 0, 0, &x, &y), BRIM_EINVAL);
}

static void out_of_memory(void **state) {
  (void)state;
  const double v[] = {1, 2, 3};
  brim_alloc_stats before, after;
  brim_stats_summary s;
  brim_alloc_get_stats(&before);
  brim_status status = BRIM_ENOMEM;
  int tries = 0;
  for (uint64_t n = 1; status == BRIM_ENOMEM; n++, tries++) {
    brim_alloc_fail_nth(n, 0);
    status = brim_stats_summarize(v, 3, 0, &s);
    brim_alloc_fail_nth(0, 0);
    brim_alloc_get_stats(&after);
    assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
  }
  assert_ok(status);
  assert_true(tries > 3);
}

static void test_students_t(void **state) {
  (void)state;
  // Student's t from tables: two-sided, 95 %.
  static const double rows[][2] = {{1, 12.706}, {2, 4.303},   {9, 2.262},  {10, 2.228},
                                   {30, 2.042}, {120, 1.980}, {1e9, 1.960}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_true(fabs(brim_stats_t95(rows[i][0]) - rows[i][1]) < 4e-3);
  }
  assert_true(brim_stats_t95(0.2) == brim_stats_t95(1));
  assert_true(brim_stats_t95(2.9) == brim_stats_t95(2));  // rounded down: the wider interval
  assert_true(brim_stats_t95((double)NAN) == brim_stats_t95(1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_hand),
      cmocka_unit_test(summary),
      cmocka_unit_test(single_value),
      cmocka_unit_test(large_offsets_keep_digits),
      cmocka_unit_test(bootstrap),
      cmocka_unit_test(refusals),
      cmocka_unit_test(interval_by_theory),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(test_students_t),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
