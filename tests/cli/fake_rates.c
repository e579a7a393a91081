// The helper of fake_rates.h.
#include "fake_rates.h"

#include <math.h>

#include "record/record.h"
#include "test.h"

void fake_rates(const char *path, size_t count, const double *rates) {
  brim_result *results;
  size_t have;
  assert_ok(brim_results_read(path, &results, &have, NULL));
  if (have != count) fail_msg("%s has %zu records, not %zu", path, have, count);
  for (size_t i = 0; i < count; i++) {
    brim_result *one = &results[i];
    assert_int_equal(one->failure, BRIM_FAILURE_NONE);
    one->samples_per_s = rates[i];
    one->samples_per_s_low = 0.99 * rates[i];
    one->samples_per_s_high = 1.01 * rates[i];
    one->stable = true;
    one->throttled = false;
    one->repeats = 3;
    one->visit_count = 0;  // the visits have other rates
    one->others_cpu_percent = NAN;
  }
  assert_ok(brim_results_write(path, results, count));
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
}
