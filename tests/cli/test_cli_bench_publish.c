// What bench publishes for `brim top`: rate and findings stand beside the setting they are of, never beside
// the one that is measured next.
#include <math.h>

#include "cli/bench/cli_bench.h"
#include "record/record_findings.h"
#include "test.h"

static void test_figures_are_of_the_named_setting(void **state) {
  (void)state;
  static bench b;
  brim_job_init(&b.published);
  brim_progress p = {.title = "setting 1/2: batch_size=32", .done = 0, .total = 2, .eta_s = 9};
  brim_cli_bench_publish(&b, &p);
  brim_result r;
  brim_result_init(&r);
  r.samples_per_s = 1000;
  assert_non_null(brim_finding_add(&r, "io_wait", 2));
  brim_cli_bench_publish_result(&b, &r);
  assert_string_equal(b.published.name, "setting 1/2: batch_size=32");
  assert_true(b.published.samples_per_s == 1000);
  assert_int_equal(b.published.finding_count, 1);
  // the same setting keeps them, another has none yet
  brim_cli_bench_publish(&b, &p);
  assert_true(b.published.samples_per_s == 1000);
  p.title = "setting 2/2: batch_size=64";
  p.done = 1;
  brim_cli_bench_publish(&b, &p);
  assert_string_equal(b.published.name, "setting 2/2: batch_size=64");
  assert_true(isnan(b.published.samples_per_s));
  assert_int_equal(b.published.finding_count, 0);
  assert_true(b.published.eta_s == 9);
  // settings are no steps
  assert_int_equal(b.published.step, -1);
  assert_int_equal(b.published.steps, -1);
  brim_result_deinit(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_figures_are_of_the_named_setting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
