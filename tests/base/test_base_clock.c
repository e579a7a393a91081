// Clocks and the span hook.
#include "base/base_clock.h"

#include <math.h>

#include "base/base_span.h"
#include "base/base_status.h"
#include "test.h"

static void monotonic(void **state) {
  (void)state;
  brim_time a = brim_clock_now();
  brim_clock_sleep_ns(2000000);
  brim_time b = brim_clock_now();
  assert_true(brim_time_since_ns(a, b) >= 2000000);
  brim_clock_sleep_ns(-5);
  assert_string_equal(brim_clock_name(), "CLOCK_MONOTONIC");
  assert_true(brim_clock_wall_s() > 1.6e9);
}

static void dates(void **state) {
  (void)state;
  char text[32];
  brim_clock_iso8601(0, text);
  assert_string_equal(text, "1970-01-01T00:00:00Z");
  brim_clock_iso8601(951782399.9, text);  // on a leap day
  assert_string_equal(text, "2000-02-28T23:59:59Z");
  brim_clock_iso8601(951782400, text);
  assert_string_equal(text, "2000-02-29T00:00:00Z");
  brim_clock_iso8601(1e300, text);
  assert_string_equal(text, "?");
  brim_clock_iso8601((double)NAN, text);
  assert_string_equal(text, "?");
}

static int depth, begun;
static void on_begin(void *ctx, brim_phase phase, const char *name) {
  assert_ptr_equal(ctx, &depth);
  assert_int_equal(phase, BRIM_PHASE_FORWARD);
  assert_string_equal(name, "conv1");
  depth++;
  begun++;
}
static void on_end(void *ctx, brim_phase phase, const char *name) {
  (void)ctx;
  (void)phase;
  (void)name;
  depth--;
}

static void spans(void **state) {
  (void)state;
  brim_span_begin(NULL, BRIM_PHASE_IO, "x");  // NULL: not measured
  brim_span_end(NULL, BRIM_PHASE_IO, "x");
  brim_spans hook = {.ctx = &depth, .begin = on_begin, .end = on_end};
  brim_span_begin(&hook, BRIM_PHASE_FORWARD, "conv1");
  assert_int_equal(depth, 1);
  brim_span_end(&hook, BRIM_PHASE_FORWARD, "conv1");
  assert_int_equal(depth, 0);
  assert_int_equal(begun, 1);
  assert_string_equal(brim_phase_key(BRIM_PHASE_IO), "io");
  assert_string_equal(brim_phase_label(BRIM_PHASE_OPTIMIZER), "Opt");
  assert_string_equal(brim_phase_key(BRIM_PHASE_OTHER), "other");
  assert_string_equal(brim_phase_key(BRIM_PHASE_COUNT), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(monotonic),
      cmocka_unit_test(dates),
      cmocka_unit_test(spans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
