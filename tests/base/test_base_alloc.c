// The allocator: counters, tags, alignment, overflow, and the injector.
#include "base/base_alloc.h"

#include "test.h"

#ifdef BRIM_ASAN
#include <sanitizer/asan_interface.h>
#endif

static brim_alloc_stats stats(void) {
  brim_alloc_stats s;
  brim_alloc_get_stats(&s);
  return s;
}

static void counts_and_tags(void **state) {
  (void)state;
  brim_alloc_stats before = stats();
  void *a = brim_alloc(100);
  void *b = brim_alloc_tagged(1000, BRIM_MEM_PLANNED);
  brim_alloc_stats now = stats();
  assert_int_equal(now.live_bytes[BRIM_MEM_OVERHEAD] - before.live_bytes[BRIM_MEM_OVERHEAD], 100);
  assert_int_equal(now.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED], 1000);
  assert_int_equal(now.live_blocks[BRIM_MEM_OVERHEAD] - before.live_blocks[BRIM_MEM_OVERHEAD], 1);
  assert_int_equal(now.live_blocks[BRIM_MEM_PLANNED] - before.live_blocks[BRIM_MEM_PLANNED], 1);
  assert_int_equal(now.calls - before.calls, 2);
  assert_true(now.peak_bytes >= 1100);
  assert_int_equal(brim_alloc_size(a), 100);
  assert_int_equal(brim_alloc_size(NULL), 0);
  brim_free(a);
  brim_free(b);
  brim_free(NULL);
  now = stats();
  assert_memory_equal(now.live_bytes, before.live_bytes, sizeof now.live_bytes);
  assert_memory_equal(now.live_blocks, before.live_blocks, sizeof now.live_blocks);
  assert_true(now.peak_bytes >= 1100);  // the peak stays
}

static void alignment(void **state) {
  (void)state;
  for (size_t size = 0; size < 300; size += 7) {
    void *p = brim_alloc(size);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % BRIM_ALIGN, 0);
    memset(p, 0xAB, size);
    brim_free(p);
  }
  void *a = brim_alloc(0), *b = brim_alloc(0);
  assert_true(a && b && a != b);
  brim_free(a);
  brim_free(b);
}

static void small_blocks(void **state) {
  (void)state;
  brim_alloc_stats before = stats();
  void *a = brim_alloc_small(33), *b = brim_alloc_small(0);
  assert_non_null(a);
  assert_ptr_not_equal(a, b);
  assert_int_equal((uintptr_t)a % 16, 0);
  memset(a, 1, 33);
  brim_alloc_stats now = stats();
  assert_int_equal(now.live_bytes[BRIM_MEM_OVERHEAD] - before.live_bytes[BRIM_MEM_OVERHEAD], 33);
  assert_int_equal(now.live_blocks[BRIM_MEM_OVERHEAD] - before.live_blocks[BRIM_MEM_OVERHEAD], 2);
  assert_int_equal(now.calls - before.calls, 2);
  brim_alloc_fail_nth(1, 0);
  assert_null(brim_alloc_small(1));
  brim_alloc_fail_nth(0, 0);
  assert_null(brim_alloc_small(SIZE_MAX - 8));
  brim_free_small(a);
  brim_free_small(b);
  brim_free_small(NULL);
  now = stats();
  assert_int_equal(now.live_bytes[BRIM_MEM_OVERHEAD], before.live_bytes[BRIM_MEM_OVERHEAD]);
  assert_int_equal(now.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
}

static void calloc_checks(void **state) {
  (void)state;
  unsigned char *p = brim_calloc(10, 30);
  for (int i = 0; i < 300; i++) assert_int_equal(p[i], 0);
  brim_free(p);
  assert_null(brim_calloc(SIZE_MAX / 2, 3));
  assert_null(brim_alloc(SIZE_MAX));
  assert_null(brim_alloc(SIZE_MAX - 64));
}

static void realloc_keeps_tag_and_content(void **state) {
  (void)state;
  brim_alloc_stats before = stats();
  char *p = brim_alloc_tagged(8, BRIM_MEM_PLANNED);
  memcpy(p, "1234567", 8);
  p = brim_realloc(p, 5000);
  assert_string_equal(p, "1234567");
  assert_int_equal((uintptr_t)p % BRIM_ALIGN, 0);
  brim_alloc_stats now = stats();
  assert_int_equal(now.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED], 5000);
  assert_int_equal(now.live_bytes[BRIM_MEM_OVERHEAD], before.live_bytes[BRIM_MEM_OVERHEAD]);
  assert_int_equal(now.calls - before.calls, 2);
  p = brim_realloc(p, 4);  // shrinking counts as no call and cannot fail
  assert_int_equal(brim_alloc_size(p), 4);
  assert_memory_equal(p, "1234", 4);
  now = stats();
  assert_int_equal(now.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED], 4);
  assert_int_equal(now.calls - before.calls, 2);
  p = brim_realloc(p, 100);
  assert_memory_equal(p, "1234", 4);
  memset(p, 1, 100);
  brim_free(p);
  p = brim_realloc(NULL, 3);
  assert_int_equal(brim_alloc_size(p), 3);
  brim_free(p);
  assert_int_equal(stats().live_bytes[BRIM_MEM_PLANNED], before.live_bytes[BRIM_MEM_PLANNED]);
}

static void large_counts(void **state) {
  (void)state;
  // products that overflow to a small number
  assert_null(brim_calloc(SIZE_MAX / 2 + 2, 2));
  assert_null(brim_calloc(SIZE_MAX / 16 + 2, 16));
  // the peak stays after smaller allocations
  void *p = brim_alloc(1 << 20);
  uint64_t peak = stats().peak_bytes;
  brim_free(p);
  p = brim_alloc(3 << 18);
  assert_int_equal(stats().peak_bytes, peak);
  brim_free(p);
}

static void strings(void **state) {
  (void)state;
  char *a = brim_strdup("hello"), *b = brim_strndup("hello", 2), *c = brim_strndup("hi", 50);
  assert_string_equal(a, "hello");
  assert_string_equal(b, "he");
  assert_string_equal(c, "hi");
  assert_int_equal(brim_alloc_size(c), 3);
  assert_null(brim_strdup(NULL));
  brim_free(a);
  brim_free(b);
  brim_free(c);
}

static void injection_once(void **state) {
  (void)state;
  uint64_t failures = brim_alloc_failures();
  brim_alloc_fail_nth(3, 0);
  void *a = brim_alloc(1), *b = brim_alloc(1), *c = brim_alloc(1), *d = brim_alloc(1);
  assert_true(a && b && !c && d);
  assert_int_equal(brim_alloc_failures() - failures, 1);
  brim_free(a);
  brim_free(b);
  brim_free(d);
}

static void injection_sticky(void **state) {
  (void)state;
  uint64_t failures = brim_alloc_failures();
  brim_alloc_fail_nth(2, 1);
  void *a = brim_alloc(1);
  assert_non_null(a);
  for (int i = 0; i < 5; i++) assert_null(brim_alloc(1));
  assert_null(brim_strdup("x"));
  assert_null(brim_calloc(1, 1));
  assert_int_equal(brim_alloc_failures() - failures, 7);
  brim_alloc_fail_nth(0, 0);
  brim_free(a);
  a = brim_alloc(1);
  assert_non_null(a);
  brim_free(a);
}

static void injected_realloc_leaves_block(void **state) {
  (void)state;
  char *p = brim_strdup("keep");
  brim_alloc_fail_nth(1, 0);
  assert_null(brim_realloc(p, 1000));
  assert_string_equal(p, "keep");
  assert_int_equal(brim_alloc_size(p), 5);
  brim_alloc_fail_nth(1, 0);
  assert_ptr_equal(brim_realloc(p, 2), p);
  brim_alloc_fail_nth(0, 0);
  brim_free(p);
}

static void asan_sees_the_end(void **state) {
  (void)state;
#ifdef BRIM_ASAN
  char *p = brim_alloc(10);
  assert_false(__asan_address_is_poisoned(p + 9));
  assert_true(__asan_address_is_poisoned(p + 10));
  p = brim_realloc(p, 4);
  assert_true(__asan_address_is_poisoned(p + 8));
  brim_free(p);
  assert_true(__asan_address_is_poisoned(p));
#else
  BRIM_SKIP("needs a build with AddressSanitizer");
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_and_tags),
      cmocka_unit_test(alignment),
      cmocka_unit_test(small_blocks),
      cmocka_unit_test(calloc_checks),
      cmocka_unit_test(realloc_keeps_tag_and_content),
      cmocka_unit_test(large_counts),
      cmocka_unit_test(strings),
      cmocka_unit_test(injection_once),
      cmocka_unit_test(injection_sticky),
      cmocka_unit_test(injected_realloc_leaves_block),
      cmocka_unit_test(asan_sees_the_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
