// Ratios, verdicts and means of two records; what a diff shows.
#include <math.h>

#include "test.h"
#include "ui/ui.h"

static const brim_term plain = {0};

static brim_result result_of(double rate, double low, double high) {
  brim_result r;
  brim_result_init(&r);
  r.samples_per_s = rate;
  r.samples_per_s_low = low;
  r.samples_per_s_high = high;
  r.stable = true;
  return r;
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
  assert_true(fabs(p.ratio - 1.1) < 1e-12);
  double half = hypot(0.5 * log(102.0 / 98), 0.5 * log(112.0 / 108));
  assert_true(fabs(p.low - 1.1 * exp(-half)) < 1e-12 && fabs(p.high - 1.1 * exp(half)) < 1e-12);
  brim_ui_compare_pair(&b, &a, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_SLOWER);
  brim_ui_compare_pair(&a, &c, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_SAME);
  brim_result shaky = b;
  shaky.stable = false;
  brim_ui_compare_pair(&a, &shaky, &p);  // 10 % faster, by an interval that says nothing
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_UNSTABLE);
  double mean, mean_low, mean_high;
  assert_int_equal(brim_ui_compare_mean(&p, 1, &mean, &mean_low, &mean_high), 0);
  brim_ui_compare_pair(&a, &unknown, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_UNKNOWN);
  assert_true(fabs(p.ratio - 0.9) < 1e-12 && isnan(p.low));
  brim_ui_compare_pair(&a, &failed, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_B_FAILED);
  assert_true(isnan(p.ratio));
  brim_ui_compare_pair(&failed, &a, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_A_FAILED);
  brim_ui_compare_pair(&failed, &failed, &p);
  assert_int_equal(p.verdict, BRIM_UI_VERDICT_BOTH_FAILED);
  assert_string_equal(brim_ui_verdict_name(p.verdict), "both_failed");
}

static void test_mean(void **state) {
  (void)state;
  double ratio, low, high;
  brim_ui_pair pairs[] = {{.ratio = 2, .low = 2 / 1.1, .high = 2 * 1.1},
                          {.ratio = 0.5, .low = 0.5 / 1.1, .high = 0.5 * 1.1},
                          {.ratio = (double)NAN, .low = (double)NAN, .high = (double)NAN}};
  assert_int_equal(brim_ui_compare_mean(pairs, 3, &ratio, &low, &high), 2);
  assert_true(fabs(ratio - 1) < 1e-12);
  assert_true(fabs(log(high) - log(1.1) / sqrt(2)) < 1e-12);
  assert_int_equal(brim_ui_compare_mean(pairs + 2, 1, &ratio, &low, &high), 0);
  assert_true(isnan(ratio) && isnan(low) && isnan(high));
}

// The lines below the table keep to the width too, and say the same.
static void test_narrow(void **state) {
  (void)state;
  brim_result one = result_of(100, 98, 102), up = result_of(110, 108, 112),
              down = result_of(90, 89, 91), shaky = up, gone = up;
  shaky.stable = false;
  gone.failure = BRIM_FAILURE_OOM_DEVICE;
  const brim_result *others[] = {&up, &down, &shaky, &gone, &one};
  brim_ui_pair pairs[5];
  for (int i = 0; i < 5; i++) brim_ui_compare_pair(&one, others[i], &pairs[i]);
  for (int width = 0; width <= 90; width += 5) {
    if (width > 0 && width < 35) continue;
    brim_term term = {.width = width, .colour = width % 2};
    brim_str out;
    brim_str_init(&out);
    assert_ok(brim_ui_compare(&term, pairs, 5, "a", "b", &out));
    const char *const said[] = {"B is faster", "B is slower",   "no difference beyond noise",
                                "unstable",    "B did not run", "geometric mean"};
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
      cmocka_unit_test(test_pair),
      cmocka_unit_test(test_mean),
      cmocka_unit_test(test_narrow),
      cmocka_unit_test(test_diff),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
