// Ratios, verdicts and means of two records; the printed difference.
#include <math.h>

#include "test.h"
#include "ui/bench/ui_bench.h"
#include "workload/workload.h"

static const brim_term plain = {0};

static brim_result result_of(double rate, double low, double high) {
  brim_result r;
  brim_result_init(&r);
  r.knob_set = brim_workload_find("supervised")->knob_set;
  r.samples_per_s = rate;
  r.samples_per_s_low = low;
  r.samples_per_s_high = high;
  r.stable = true;
  r.repeats = 3;
  return r;
}

// Row and lines as on a terminal without limits.
static void expect_text(const brim_result *a, const brim_result *b, const char *row,
                        const char *overall) {
  brim_ui_pair p;
  brim_str out;
  brim_str_init(&out);
  brim_ui_compare_pair(a, b, &p);
  assert_ok(brim_ui_compare(&plain, &p, 1, &(brim_ui_sides){"a", "b", NULL}, &out));
  if (!strstr(out.data, row)) fail_msg("no '%s' in:\n%s", row, out.data);
  if (!strstr(out.data, overall)) fail_msg("no '%s' in:\n%s", overall, out.data);
  brim_str_deinit(&out);
}

static void test_pair(void **state) {
  (void)state;
  brim_result a = result_of(100, 98, 102), b = result_of(110, 108, 112),
              c = result_of(101, 99, 103);
  brim_result unknown = result_of(90, (double)NAN, (double)NAN), failed = result_of(NAN, NAN, NAN);
  failed.failure = BRIM_FAILURE_OOM_DEVICE;
  brim_ui_pair p;
  brim_ui_compare_pair(&a, &b, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_FASTER);
  assert_true(fabs(p.ratio.value - 1.1) < 1e-12);
  double half = hypot(0.5 * log(102.0 / 98), 0.5 * log(112.0 / 108));
  assert_true(fabs(p.ratio.low - 1.1 * exp(-half)) < 1e-12 &&
              fabs(p.ratio.high - 1.1 * exp(half)) < 1e-12);
  brim_ui_compare_pair(&b, &a, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_SLOWER);
  brim_ui_compare_pair(&a, &c, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_OPEN);
  brim_ui_compare_pair(&a, &unknown, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_UNKNOWN);
  assert_true(fabs(p.ratio.value - 0.9) < 1e-12 && isnan(p.ratio.low));
  brim_ui_compare_pair(&a, &failed, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_B_FAILED);
  assert_true(isnan(p.ratio.value));
  brim_ui_compare_pair(&failed, &a, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_A_FAILED);
  brim_ui_compare_pair(&failed, &failed, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_BOTH_FAILED);
  assert_string_equal(brim_ui_verdict_name(p.verdict), "both_failed");
}

// Percentages are rounded down, so that the printed claim is still certain.
static void test_certain(void **state) {
  (void)state;
  brim_result a = result_of(100, 98, 102), up = result_of(110, 108, 112),
              down = result_of(80, 79, 81), little = result_of(100.5, 100.4, 100.6),
              exact = result_of(100, 99.9, 100.1);
  expect_text(&a, &up, "certain: faster by at least 7.0 %",
              "Certain: B is faster by at least 7.0 % (x1.10 [1.07, 1.13]; settings: 1)");
  expect_text(&a, &down, "certain: slower by at least 18 %",
              "Certain: B is slower by at least 18 % (x0.80 [0.78, 0.82]; settings: 1)");
  expect_text(&exact, &little, "certain: faster by at least 0.3 %", "Certain: B is faster");
}

static void test_open(void **state) {
  (void)state;
  brim_result a = result_of(100, 98, 102), b = result_of(101, 99, 103);
  expect_text(&a, &b, "cannot be told apart",
              "Provisional: A and B cannot be told apart (x1.01 [0.98, 1.04]; settings: 1)");
}

// Noise widens the interval and excludes nothing: a factor of two is certain despite noise of 40 %, a gain of 30 % is
// not. Whether the steps were steady does not matter.
static void test_noisy(void **state) {
  (void)state;
  brim_result a = result_of(100, 80, 125), twice = result_of(200, 160, 250),
              more = result_of(130, 104, 162.5);
  a.stable = twice.stable = more.stable = false;
  expect_text(&a, &twice, "certain: faster by at least 45 %",
              "Certain: B is faster by at least 45 %");
  expect_text(&a, &more, "cannot be told apart", "Provisional: A and B cannot be told apart");
  brim_ui_pair p[2], all;
  brim_ui_compare_pair(&a, &twice, &p[0]);
  brim_ui_compare_pair(&a, &more, &p[1]);
  assert_int_equal(brim_ui_compare_overall(p, 2, &all), 2);  // both count
  assert_true(fabs(all.ratio.value - sqrt(2 * 1.3)) < 1e-12);
}

// Records without an interval, or with the interval of a single visit, are compared, but nothing about them is certain.
static void test_old(void **state) {
  (void)state;
  brim_result a = result_of(100, 98, 102), bare = result_of(200, (double)NAN, (double)NAN),
              once = result_of(200, 198, 202);
  once.repeats = 1;
  expect_text(&a, &bare, "provisional: no interval",
              "Provisional: the records have no intervals (x2.00; settings: 1)");
  expect_text(&a, &once, "provisional: measured once",
              "Provisional: measured only once (x2.00 [1.96, 2.05]; settings: 1)");
  brim_result failed = result_of(NAN, NAN, NAN);
  failed.failure = BRIM_FAILURE_OOM_DEVICE;
  expect_text(&a, &failed, "B did not run", "Provisional: no setting ran in both");
  // beside a well measured setting they do not count
  brim_result up = result_of(110, 108, 112);
  brim_ui_pair p[3], all;
  brim_ui_compare_pair(&a, &up, &p[0]);
  brim_ui_compare_pair(&a, &bare, &p[1]);
  brim_ui_compare_pair(&a, &once, &p[2]);
  assert_int_equal(brim_ui_compare_overall(p, 3, &all), 1);
  assert_int_equal(all.verdict, BRIM_UI_VERDICT_FASTER);
  assert_int_equal(brim_ui_compare_overall(p + 1, 2, &all), 2);
  assert_int_equal(all.verdict, BRIM_UI_VERDICT_UNKNOWN);
  assert_true(fabs(all.ratio.value - 2) < 1e-12 && isnan(all.ratio.low));
}

// The errors of one sweep may point the same way: two settings give no more certainty than one.
static void test_mean(void **state) {
  (void)state;
  const brim_ui_verdict open = BRIM_UI_VERDICT_OPEN;
  brim_ui_pair all, pairs[] = {{.ratio = {2, 2 / 1.1, 2 * 1.1}, .verdict = open},
                               {.ratio = {0.5, 0.5 / 1.1, 0.55}, .verdict = open},
                               {.ratio = {NAN, NAN, NAN}}};
  assert_int_equal(brim_ui_compare_overall(pairs, 3, &all), 2);
  assert_true(fabs(all.ratio.value - 1) < 1e-12);
  assert_true(fabs(log(all.ratio.high) - log(1.1)) < 1e-12);
  assert_int_equal(all.verdict, BRIM_UI_VERDICT_OPEN);
  assert_int_equal(brim_ui_compare_overall(pairs + 2, 1, &all), 0);
  assert_true(isnan(all.ratio.value) && isnan(all.ratio.low) && isnan(all.ratio.high));
}

// The lines below the table fit the width too, with the same content.
static void test_narrow(void **state) {
  (void)state;
  brim_result one = result_of(100, 98, 102), up = result_of(110, 108, 112),
              down = result_of(90, 89, 91), once = up, gone = up;
  once.repeats = 1;
  gone.failure = BRIM_FAILURE_OOM_DEVICE;
  const brim_result *others[] = {&up, &down, &once, &gone, &one};
  brim_ui_pair pairs[5];
  for (int i = 0; i < 5; i++) brim_ui_compare_pair(&one, others[i], &pairs[i]);
  for (int width = 0; width <= 90; width += 5) {
    if (width > 0 && width < 35) continue;
    brim_term term = {.width = width, .colour = width % 2};
    brim_str out;
    brim_str_init(&out);
    assert_ok(brim_ui_compare(&term, pairs, 5, &(brim_ui_sides){"a", "b", NULL}, &out));
    const char *const said[] = {"certainly faster", "certainly slower", "cannot be told apart",
                                "measured once",    "B did not run",    "Provisional:"};
    for (size_t i = 0; i < 6; i++) assert_non_null(strstr(out.data, said[i]));
    for (char *line = strtok(out.data, "\n"); line && width; line = strtok(NULL, "\n")) {
      if (brim_utf8_width(line) > width) fail_msg("%d columns: %s", width, line);
    }
    brim_str_deinit(&out);
  }
}

static void expect_diff(const char *before, const char *after, const char *wanted) {
  brim_str out;
  brim_str_init(&out);
  assert_ok(brim_ui_diff(&plain, "f", before, strlen(before), after, strlen(after), &out));
  assert_string_equal(out.data, wanted);
  brim_str_deinit(&out);
}

static void test_diff(void **state) {
  (void)state;
  expect_diff("a\nb\n", "a\nb\n", "");
  expect_diff("", "a\n", "--- f\n+++ f\n@@ -0,0 +1,1 @@\n+a\n");
  expect_diff("a\n", "", "--- f\n+++ f\n@@ -1,1 +0,0 @@\n-a\n");
  expect_diff("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nx\n6\n7\n8\n9\n",
              "--- f\n+++ f\n@@ -3,5 +3,5 @@\n 3\n 4\n-5\n+x\n 6\n 7\n");
  expect_diff("1\n2\n3\n4\n5\n6\n7\n8\n", "0\n2\n3\n4\n5\n6\n7\n8\n9\n",
              "--- f\n+++ f\n@@ -1,3 +1,3 @@\n-1\n+0\n 2\n 3\n@@ -7,2 +7,3 @@\n 7\n 8\n+9\n");
  expect_diff("a\r\nb\r\n", "a\r\nc\r\n", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pair),   cmocka_unit_test(test_certain), cmocka_unit_test(test_open),
      cmocka_unit_test(test_noisy),  cmocka_unit_test(test_old),     cmocka_unit_test(test_mean),
      cmocka_unit_test(test_narrow), cmocka_unit_test(test_diff),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
