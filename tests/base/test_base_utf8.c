// UTF-8 validity and terminal widths.
#include "base/base_str.h"
#include "test.h"

static void widths(void **state) {
  (void)state;
  assert_int_equal(brim_utf8_width(""), 0);
  assert_int_equal(brim_utf8_width("batch"), 5);
  assert_int_equal(brim_utf8_width("배치 크기"), 9);  // four wide characters, one space
  assert_int_equal(brim_utf8_width("日本"), 4);
  assert_int_equal(brim_utf8_width("é"), 1);
  assert_int_equal(brim_utf8_width("e\xCC\x81"), 1);                 // with a combining accent
  assert_int_equal(brim_utf8_width("\xE1\x84\x92\xE1\x85\xA1"), 2);  // Hangul from two jamo
  assert_int_equal(brim_utf8_width("│█▏"), 3);
  assert_int_equal(brim_utf8_width("😀"), 2);
  assert_int_equal(brim_utf8_width("ｗ"), 2);
  assert_int_equal(brim_utf8_width("\x1b[1;31m빨강\x1b[0m!"), 5);
  assert_int_equal(brim_utf8_width("\x1b[31"), 0);  // a sequence without an end
  assert_int_equal(brim_utf8_width("a\xff"
                                   "b\xED"),
                   4);
  assert_int_equal(brim_utf8_width("a\tb\n"), 2);
}

static void validity(void **state) {
  (void)state;
  const char *good[] = {"", "abc", "한국어", "😀", "\xF4\x8F\xBF\xBF", "\x7f"};
  const char *bad[] = {"\x80",
                       "\xC0\x80",
                       "\xC3",
                       "\xE0\x80\x80",
                       "\xED\xA0\x80",
                       "\xF0\x80\x80\x80",
                       "\xF5\x80\x80\x80",
                       "\xF4\x90\x80\x80",
                       "a\xE2\x82",
                       "\xFF",
                       "\xC3\x28"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    assert_true(brim_utf8_valid(good[i], strlen(good[i])));
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (brim_utf8_valid(bad[i], strlen(bad[i]))) fail_msg("row %zu was accepted", i);
  }
  assert_true(brim_utf8_valid("a\0b", 3));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(widths), cmocka_unit_test(validity)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
