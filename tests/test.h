// What every test program needs: cmocka in the right include order, and skipping with a reason.
// A program whose tests cannot run here calls BRIM_SKIP_ALL; ctest shows it as skipped.
#ifndef BRIM_TESTS_TEST_H_
#define BRIM_TESTS_TEST_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BRIM_SKIP_ALL(why)        \
  do {                            \
    printf("skipped: %s\n", why); \
    exit(77);                     \
  } while (0)

// Skip one cmocka test with a reason.
#define BRIM_SKIP(why)                              \
  do {                                              \
    printf("[  SKIPPED ] %s: %s\n", __func__, why); \
    skip();                                         \
  } while (0)

// Assert on a status and show the detail when it is another.
#define assert_status(expr, expected)                                                          \
  do {                                                                                         \
    int st_ = (int)(expr);                                                                     \
    if (st_ != (int)(expected)) {                                                              \
      fail_msg("%s: %d (%s), expected %d", #expr, st_, brim_status_detail(), (int)(expected)); \
    }                                                                                          \
  } while (0)
#define assert_ok(expr) assert_status(expr, 0)

// BRIM_TEST_FILTER='*cuda*' runs these tests of a program alone, for instance under a slow checker.
static inline void test_filter(void) {
  const char *pattern = getenv("BRIM_TEST_FILTER");
  if (pattern) cmocka_set_test_filter(pattern);
}

#endif  // BRIM_TESTS_TEST_H_
