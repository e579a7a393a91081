// Untrusted text: control characters become visible, formulas become text, and all else stays unchanged.
#include "base/base_text.h"

#include "base/base.h"
#include "test.h"

static void check_plain(const char *text, const char *want) {
  char cut[256];
  brim_str out;
  brim_str_init(&out);
  brim_text_append_plain(&out, text, strlen(text), NULL);
  assert_string_equal(out.data, want);
  brim_text_plain(text, cut, sizeof cut);
  assert_string_equal(cut, want);
  assert_int_equal(brim_text_is_plain(text, strlen(text)), strcmp(text, want) == 0);
  assert_true(brim_text_is_plain(want, strlen(want)));
  brim_str_deinit(&out);
}

static void test_plain(void **state) {
  (void)state;
  check_plain("", "");
  check_plain("plain ~ text\twith\nlines", "plain ~ text\twith\nlines");
  check_plain("배치 크기 é 😀 ±", "배치 크기 é 😀 ±");
  check_plain("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m");
  check_plain("\x1b]0;title\x07", "\\x1b]0;title\\x07");
  check_plain("a\rb\bc\x7f", "a\\x0db\\x08c\\u007f");
  check_plain("\x01\x1f ", "\\x01\\x1f ");
  check_plain(
      "\xc2\x9b"
      "31m\xc2\x80\xc2\xa0",
      "\\u009b31m\\u0080\xc2\xa0");  // C1; U+00A0 is not one
  check_plain(
      "a\xe2\x80\xae"
      "b\xe2\x80\xaa",
      "a\\u202eb\\u202a");
  check_plain("\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c",
              "\\u2066\\u2069\\u200e\\u200f\\u061c");
  check_plain("\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029");
  check_plain("\xe2\x80\xa9x\xe2\x80\xa5\xe2\x80\xaf", "\\u2029x\xe2\x80\xa5\xe2\x80\xaf");
  // not UTF-8: a stray byte, a truncated sequence, an overlong form
  check_plain("\xff\x9b", "\\xff\\x9b");
  check_plain("a\xe2\x80", "a\\xe2\\x80");
  check_plain("\xc0\xaf", "\\xc0\\xaf");
}

static void test_bytes_and_kept(void **state) {
  (void)state;
  static const char *const keep[] = {"\033[31m", "\033[0m", NULL};
  const char text[] = "\033[31mred\033[0m \033[2J\033[3";
  brim_str out;
  brim_str_init(&out);
  brim_text_append_plain(&out, text, sizeof text - 1, keep);
  assert_string_equal(out.data, "\033[31mred\033[0m \\x1b[2J\\x1b[3");
  brim_str_clear(&out);
  brim_text_append_plain(&out, "a\0b", 3, NULL);  // a zero byte is another control character
  assert_string_equal(out.data, "a\\x00b");
  assert_false(brim_text_is_plain("a\0b", 3));
  // an allowed sequence at the end: no byte after the text is read
  brim_str_clear(&out);
  brim_text_append_plain(&out, "\033[0m", 3, keep);
  assert_string_equal(out.data, "\\x1b[0");
  brim_str_deinit(&out);
}

static void test_small_buffers(void **state) {
  (void)state;
  char out[8];
  brim_text_plain("\x1b\x1b", out, sizeof out);  // escapes are never cut
  assert_string_equal(out, "\\x1b");
  brim_text_plain("1234567890", out, sizeof out);
  assert_string_equal(out, "1234567");
  brim_text_plain("한한한", out, sizeof out);
  assert_string_equal(out, "한한");
  brim_text_plain("abc", out, 1);
  assert_string_equal(out, "");
}

static void check_cell(const char *text, const char *want) {
  brim_str out;
  brim_str_init(&out);
  brim_text_append_csv(&out, text);
  assert_string_equal(out.data, want);
  brim_str_deinit(&out);
}

static void test_cells(void **state) {
  (void)state;
  check_cell("cat", "cat");
  check_cell("", "");
  check_cell("a,b", "\"a,b\"");
  check_cell("say \"so\"", "\"say \"\"so\"\"\"");
  check_cell("two\nlines", "\"two\nlines\"");
  check_cell("=1+1", "'=1+1");
  check_cell("=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\"");
  check_cell("+cmd", "'+cmd");
  check_cell("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0");
  check_cell("@SUM(1)", "'@SUM(1)");
  check_cell("\tx", "'\tx");
  check_cell("\r=1", "\"'\r=1\"");
  check_cell("\n=1", "\"'\n=1\"");
  check_cell("-1.5", "-1.5");  // numbers stay numbers
  check_cell("+2e3", "+2e3");
  check_cell("-", "'-");
  check_cell("a=b", "a=b");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain),
      cmocka_unit_test(test_bytes_and_kept),
      cmocka_unit_test(test_small_buffers),
      cmocka_unit_test(test_cells),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
