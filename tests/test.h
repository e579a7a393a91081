// Included by every test program: cmocka in the right include order, and skipping with a reason.
// A program whose tests cannot run here calls BRIM_SKIP_ALL; ctest shows it as skipped.
#ifndef BRIM_TESTS_TEST_H_
#define BRIM_TESTS_TEST_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// GCC announces its sanitizers by macros, clang by features.
#if defined(__SANITIZE_ADDRESS__)
#define BRIM_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define BRIM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BRIM_ASAN 1
#elif __has_feature(thread_sanitizer)
#define BRIM_TSAN 1
#endif
#endif
#if defined(BRIM_ASAN) || defined(BRIM_TSAN)
#define BRIM_SANITIZED 1
#else
#define BRIM_SANITIZED 0
#endif

// Each line "skipped: why" is counted by its reason at the end of `make test`.
#define BRIM_SKIP_ALL(why)        \
  do {                            \
    printf("skipped: %s\n", why); \
    exit(77);                     \
  } while (0)

// Cases this program skipped, in all of its files.
__attribute__((weak)) int test_skipped_count;

// Skips one cmocka test with a reason.
#define BRIM_SKIP(why)                                   \
  do {                                                   \
    const char *why_ = (why);                            \
    printf("skipped: %s\n", *why_ ? why_ : "no reason"); \
    fflush(stdout);                                      \
    test_skipped_count++;                                \
    skip();                                              \
  } while (0)

// Asserts a status, and shows the detail if it is another.
#define assert_status(expr, expected)                                                          \
  do {                                                                                         \
    int st_ = (int)(expr);                                                                     \
    if (st_ != (int)(expected)) {                                                              \
      fail_msg("%s: %d (%s), expected %d", #expr, st_, brim_status_detail(), (int)(expected)); \
    }                                                                                          \
  } while (0)
#define assert_ok(expr) assert_status(expr, 0)

// BRIM_TEST_FILTER='*cuda*' runs only these tests of a program, for instance under a slow checker.
static inline void test_filter(void) {
  const char *pattern = getenv("BRIM_TEST_FILTER");
  if (pattern) cmocka_set_test_filter(pattern);
}

// Tests that sample their cases run all of them with BRIM_TEST_FULL (`make test-night`).
static inline bool test_is_full(void) { return getenv("BRIM_TEST_FULL") != NULL; }

// Seed of the sample of a run: tools/test draws it and prints it. A test started by hand always takes the same one.
static inline uint64_t test_seed(void) {
  const char *seed = getenv("BRIM_TEST_SEED");
  return seed ? strtoull(seed, NULL, 10) : 1;
}

// A number below `of` for each index, different in each run.
static inline uint64_t test_draw(uint64_t index, uint64_t of) {
  uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u ^ test_seed() * 0xd1b54a32d192ed03u;
  x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
  return (x >> 32) % of;
}

// True for one in `of` cases, a third as many in a build with sanitizers (two to ten times as slow), and for all with
// BRIM_TEST_FULL.
static inline bool test_is_sampled(uint64_t index, uint64_t of) {
  if (test_is_full() || of < 2) return true;
  return test_draw(index, BRIM_SANITIZED ? 3 * of : of) == 0;
}

// True if BRIM_CPU_MASK makes this a lesser CPU: tests that no instruction affects skip there.
static inline bool test_is_masked(void) {
  const char *mask = getenv("BRIM_CPU_MASK");
  return mask && *mask;
}

// True if cases that take many minutes run too (`make test-night`).
static inline bool test_is_night(void) { return getenv("BRIM_TEST_NIGHT") != NULL; }

// A program whose cases were all skipped is itself skipped: ctest must not show it as passed.
static inline int test_exit_code(int failed, size_t count) {
  if (failed) return 1;
  return count > 0 && (size_t)test_skipped_count >= count ? 77 : 0;
}

#undef cmocka_run_group_tests
#define cmocka_run_group_tests(tests, setup, teardown)                                       \
  (test_filter(),                                                                            \
   test_exit_code(_cmocka_run_group_tests(#tests, tests, sizeof(tests) / sizeof((tests)[0]), \
                                          setup, teardown),                                  \
                  sizeof(tests) / sizeof((tests)[0])))

#endif  // BRIM_TESTS_TEST_H_
