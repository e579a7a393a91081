// The growing string, prefixes, and nearest names.
#include "base/base_str.h"

#include "base/base_alloc.h"
#include "test.h"

static void building(void **state) {
  (void)state;
  brim_str s;
  brim_str_init(&s);
  assert_string_equal(s.data, "");
  brim_str_append(&s, "ab");
  brim_str_append_char(&s, 'c');
  brim_str_append_n(&s, "defgh", 2);
  brim_str_repeat(&s, '-', 3);
  brim_str_printf(&s, "%d%%", 5);
  assert_string_equal(s.data, "abcde---5%");
  assert_int_equal(s.len, 10);
  brim_str_clear(&s);
  assert_string_equal(s.data, "");
  brim_str_append(&s, "again");
  assert_string_equal(s.data, "again");
  assert_ok(brim_str_status(&s));
  brim_str_deinit(&s);
  assert_string_equal(s.data, "");
}

static void growth(void **state) {
  (void)state;
  brim_str s;
  brim_str_init(&s);
  for (int i = 0; i < 5000; i++) brim_str_printf(&s, "%04d,", i);
  assert_ok(brim_str_status(&s));
  assert_int_equal(s.len, 25000);
  assert_int_equal(strlen(s.data), 25000);
  assert_memory_equal(s.data + 5 * 4321, "4321,", 5);
  char large[3000];
  memset(large, 'x', sizeof large - 1);
  large[sizeof large - 1] = '\0';
  brim_str_clear(&s);
  brim_str_deinit(&s);
  brim_str_printf(&s, "<%s>", large);  // longer than the first allocation
  assert_int_equal(s.len, 3001);
  assert_int_equal(s.data[3000], '>');
  brim_str_deinit(&s);
}

static void taking(void **state) {
  (void)state;
  brim_str s;
  brim_str_init(&s);
  char *text = brim_str_take(&s);
  assert_string_equal(text, "");
  brim_free(text);
  brim_str_append(&s, "x");
  text = brim_str_take(&s);
  assert_string_equal(text, "x");
  assert_string_equal(s.data, "");
  assert_int_equal(s.len, 0);
  brim_free(text);
  brim_str_deinit(&s);
}

static void failure_sticks(void **state) {
  (void)state;
  brim_str s;
  brim_str_init(&s);
  brim_str_append(&s, "kept");
  brim_alloc_fail_nth(1, 0);
  brim_str_repeat(&s, 'x', 1000);
  brim_alloc_fail_nth(0, 0);
  brim_str_append(&s, "more");
  assert_string_equal(s.data, "kept");
  assert_status(brim_str_status(&s), BRIM_ENOMEM);
  assert_null(brim_str_take(&s));
  assert_ok(brim_str_status(&s));
  brim_alloc_fail_nth(1, 0);
  brim_str_printf(&s, "%d", 5);
  assert_string_equal(s.data, "");
  assert_status(brim_str_status(&s), BRIM_ENOMEM);
  brim_str_deinit(&s);
}

static void prefixes(void **state) {
  (void)state;
  assert_true(brim_str_starts("model.name", "model."));
  assert_true(brim_str_starts("x", ""));
  assert_false(brim_str_starts("mod", "model"));
  assert_true(brim_str_ends("a.yaml", ".yaml"));
  assert_false(brim_str_ends("yaml", ".yaml"));
}

static void edit_distances(void **state) {
  (void)state;
  assert_int_equal(brim_edit_distance("", ""), 0);
  assert_int_equal(brim_edit_distance("abc", ""), 3);
  assert_int_equal(brim_edit_distance("", "abc"), 3);
  assert_int_equal(brim_edit_distance("kitten", "sitting"), 3);
  assert_int_equal(brim_edit_distance("batch", "bacth"), 1);  // a transposition counts as one
  // a transposition with a letter in between
  assert_int_equal(brim_edit_distance("ca", "abc"), 2);
  assert_int_equal(brim_edit_distance("a cat", "an abct"), 3);
  char a[200], b[200];
  memset(a, 'a', 199);
  memset(b, 'b', 199);
  a[199] = b[199] = '\0';
  assert_int_equal(brim_edit_distance(a, b), 64);  // capped
}

static void nearest_names(void **state) {
  (void)state;
  const char *const names[] = {"batch_size", "num_workers", "precision", "lr", NULL};
  assert_string_equal(brim_nearest("batchsize", names), "batch_size");
  assert_string_equal(brim_nearest("num_wrokers", names), "num_workers");
  assert_string_equal(brim_nearest("precison", names), "precision");
  assert_string_equal(brim_nearest("l", (const char *const[]){"lr", NULL}) ? "x" : "none", "none");
  assert_string_equal(brim_nearest("lr2", names), "lr");
  assert_null(brim_nearest("zebra", names));
  assert_null(brim_nearest("x", (const char *const[]){NULL}));
  assert_null(brim_nearest("x", NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(building),      cmocka_unit_test(growth),
      cmocka_unit_test(taking),        cmocka_unit_test(failure_sticks),
      cmocka_unit_test(prefixes),      cmocka_unit_test(edit_distances),
      cmocka_unit_test(nearest_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
