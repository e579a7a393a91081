// The arena: alignment, growth, mark and release, poisoning, and out of memory.
#include "base/base_alloc.h"

#include "test.h"

#ifdef BRIM_ASAN
#include <sanitizer/asan_interface.h>
#endif

static void allocations_are_aligned_and_apart(void **state) {
  (void)state;
  brim_arena *arena;
  assert_ok(brim_arena_create(256, &arena));
  char *last_end = NULL;
  for (size_t align = 1; align <= 256; align *= 2) {
    for (int i = 0; i < 10; i++) {
      char *p = brim_arena_alloc(arena, 13, align);
      assert_non_null(p);
      assert_int_equal((uintptr_t)p % align, 0);
      assert_true(p != last_end || align == 1 || p >= last_end);
      memset(p, 1, 13);
      last_end = p + 13;
    }
  }
  char *large = brim_arena_alloc(arena, 100000, 64);
  memset(large, 2, 100000);
  brim_arena_destroy(arena);
  brim_arena_destroy(NULL);
}

static void texts(void **state) {
  (void)state;
  brim_arena *arena;
  assert_ok(brim_arena_create(0, &arena));
  assert_string_equal(brim_arena_strdup(arena, "hello"), "hello");
  assert_string_equal(brim_arena_strndup(arena, "hello", 3), "hel");
  assert_string_equal(brim_arena_printf(arena, "%d-%s", 5, "x"), "5-x");
  assert_null(brim_arena_strdup(arena, NULL));
  char *zero = brim_arena_calloc(arena, 4, 8);
  for (int i = 0; i < 32; i++) assert_int_equal(zero[i], 0);
  assert_null(brim_arena_calloc(arena, SIZE_MAX / 2, 3));
  brim_arena_destroy(arena);
}

static void assert_same_mark(const brim_arena *arena, brim_arena_mark want) {
  brim_arena_mark mark = brim_arena_get_mark(arena);
  assert_ptr_equal(mark.chunk, want.chunk);
  assert_int_equal(mark.used, want.used);
}

static void mark_and_release(void **state) {
  (void)state;
  brim_alloc_stats before, after;
  brim_arena *arena;
  assert_ok(brim_arena_create(128, &arena));
  brim_arena_mark empty = brim_arena_get_mark(arena);
  char *kept = brim_arena_strdup(arena, "kept");
  brim_alloc_get_stats(&before);
  brim_arena_mark mark = brim_arena_get_mark(arena);
  char *first = brim_arena_alloc(arena, 16, 1);
  for (int i = 0; i < 50; i++) assert_non_null(brim_arena_alloc(arena, 100, 8));
  brim_arena_release(arena, mark);
  brim_alloc_get_stats(&after);
  assert_same_mark(arena, mark);
  assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
  assert_string_equal(kept, "kept");
  assert_ptr_equal(brim_arena_alloc(arena, 16, 1), first);  // the same place again
  brim_arena_release(arena, empty);
  assert_same_mark(arena, empty);
  assert_non_null(brim_arena_alloc(arena, 5, 1));
  brim_arena_destroy(arena);
}

static void released_memory_is_poisoned(void **state) {
  (void)state;
#ifdef BRIM_ASAN
  brim_arena *arena;
  assert_ok(brim_arena_create(1024, &arena));
  char *a = brim_arena_alloc(arena, 64, 64);
  assert_false(__asan_address_is_poisoned(a + 63));
  assert_true(__asan_address_is_poisoned(a + 64));
  brim_arena_mark mark = brim_arena_get_mark(arena);
  char *b = brim_arena_alloc(arena, 64, 64);
  assert_false(__asan_address_is_poisoned(b));
  brim_arena_release(arena, mark);
  assert_true(__asan_address_is_poisoned(b));
  assert_false(__asan_address_is_poisoned(a));
  brim_arena_destroy(arena);
#else
  BRIM_SKIP("needs a build with AddressSanitizer");
#endif
}

static void out_of_memory(void **state) {
  (void)state;
  brim_arena *arena;
  brim_alloc_fail_nth(1, 0);
  assert_status(brim_arena_create(0, &arena), BRIM_ENOMEM);
  assert_null(arena);
  assert_ok(brim_arena_create(64, &arena));
  brim_alloc_fail_nth(1, 1);
  assert_null(brim_arena_alloc(arena, 10, 8));
  assert_null(brim_arena_strdup(arena, "x"));
  assert_null(brim_arena_printf(arena, "%d", 1));
  brim_alloc_fail_nth(0, 0);
  assert_null(brim_arena_alloc(arena, SIZE_MAX, 8));
  assert_null(brim_arena_alloc(arena, SIZE_MAX - 20, 4096));
  assert_non_null(brim_arena_alloc(arena, 10, 8));
  brim_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(allocations_are_aligned_and_apart),
      cmocka_unit_test(texts),
      cmocka_unit_test(mark_and_release),
      cmocka_unit_test(released_memory_is_poisoned),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
