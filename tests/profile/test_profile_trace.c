// The trace model: texts are stored once and do not move, events are sorted by start.
#include "profile/profile_trace.h"

#include <stdio.h>

#include "test.h"

static void test_texts_are_kept_once(void **state) {
  (void)state;
  enum { MANY = 3000 };
  brim_trace t;
  static const char *kept[MANY];
  brim_trace_init(&t);
  assert_null(brim_trace_text(&t, NULL));
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < MANY; i++) {
      char text[32];
      snprintf(text, sizeof text, "kernel_%d", i);
      const char *found = brim_trace_text(&t, text);
      assert_string_equal(found, text);
      if (round) assert_ptr_equal(found, kept[i]);
      kept[i] = found;
    }
  }
  assert_int_equal(t.text_count, MANY);
  brim_trace_deinit(&t);
}

static void test_events_by_start(void **state) {
  (void)state;
  enum { MANY = 2000 };
  brim_trace t;
  brim_trace_init(&t);
  for (int i = 0; i < MANY; i++) {
    brim_trace_event *e = brim_trace_add(&t, BRIM_TRACE_KERNEL, "k");
    assert_non_null(e);
    assert_int_equal(e->step, -1);
    assert_null(e->op);
    e->start_ns = (MANY - i) / 2;
    e->end_ns = e->start_ns + i % 7;
  }
  brim_trace_sort(&t);
  for (size_t i = 1; i < t.count; i++) {
    const brim_trace_event *a = &t.events[i - 1], *b = &t.events[i];
    assert_true(a->start_ns < b->start_ns ||
                (a->start_ns == b->start_ns && a->end_ns >= b->end_ns));
  }
  assert_string_equal(brim_trace_kind_key(BRIM_TRACE_STEP), "step");
  brim_trace_deinit(&t);
  assert_int_equal(t.count, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_texts_are_kept_once),
      cmocka_unit_test(test_events_by_start),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
