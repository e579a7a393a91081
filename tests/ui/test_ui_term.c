// Colour, width and unicode decided from given facts; clipping and wrapping.
#include "test.h"
#include "ui/term/ui_term.h"

static brim_term decide(brim_term_facts facts, brim_ui_colour colour) {
  brim_term term;
  brim_term_decide(&facts, colour, &term);
  return term;
}

static void test_colour(void **state) {
  (void)state;
  brim_term_facts tty = {.tty = true, .term = "xterm"};
  brim_term_facts pipe = {.tty = false, .term = "xterm"};
  assert_true(decide(tty, BRIM_UI_COLOUR_AUTO).colour);
  assert_false(decide(pipe, BRIM_UI_COLOUR_AUTO).colour);
  assert_true(decide(pipe, BRIM_UI_COLOUR_ALWAYS).colour);
  assert_false(decide(tty, BRIM_UI_COLOUR_NEVER).colour);
  brim_term_facts dumb = {.tty = true, .term = "dumb"};
  assert_false(decide(dumb, BRIM_UI_COLOUR_AUTO).colour);
  assert_false(decide(dumb, BRIM_UI_COLOUR_AUTO).redraw);
  brim_term_facts none = {.tty = true, .term = "xterm", .no_color = "1", .clicolor_force = "1"};
  assert_false(decide(none, BRIM_UI_COLOUR_AUTO).colour);
  assert_true(decide(none, BRIM_UI_COLOUR_ALWAYS).colour);
  none.no_color = "";  // empty counts as unset
  assert_true(decide(none, BRIM_UI_COLOUR_AUTO).colour);
  brim_term_facts forced = {.tty = false, .clicolor_force = "1"};
  assert_true(decide(forced, BRIM_UI_COLOUR_AUTO).colour);
  forced.clicolor_force = "0";
  assert_false(decide(forced, BRIM_UI_COLOUR_AUTO).colour);
}

static void test_width(void **state) {
  (void)state;
  brim_term_facts f = {.tty = true, .term = "xterm", .columns = 132};
  assert_int_equal(decide(f, BRIM_UI_COLOUR_AUTO).width, 132);
  f.env_columns = "100";
  assert_int_equal(decide(f, BRIM_UI_COLOUR_AUTO).width, 100);
  f.env_columns = "many";
  assert_int_equal(decide(f, BRIM_UI_COLOUR_AUTO).width, 132);
  f.columns = 0;
  assert_int_equal(decide(f, BRIM_UI_COLOUR_AUTO).width, 80);
  f.env_columns = "3";
  assert_int_equal(decide(f, BRIM_UI_COLOUR_AUTO).width, 20);
  f = (brim_term_facts){.tty = false};
  assert_int_equal(decide(f, BRIM_UI_COLOUR_AUTO).width, 0);
}

static void test_unicode(void **state) {
  (void)state;
  brim_term_facts f = {.lang = "en_US.UTF-8"};
  assert_true(decide(f, BRIM_UI_COLOUR_AUTO).unicode);
  f.lc_all = "C";
  assert_false(decide(f, BRIM_UI_COLOUR_AUTO).unicode);
  f = (brim_term_facts){.lc_ctype = "ko_KR.utf8"};
  assert_true(decide(f, BRIM_UI_COLOUR_AUTO).unicode);
  f = (brim_term_facts){0};
  assert_false(decide(f, BRIM_UI_COLOUR_AUTO).unicode);
}

static void clips(const brim_term *term, const char *text, int columns, const char *expected) {
  brim_str out;
  brim_str_init(&out);
  brim_ui_clip(&out, term, text, columns);
  assert_string_equal(out.data, expected);
  if (columns > 0) assert_true(brim_utf8_width(out.data) <= columns);
  brim_str_deinit(&out);
}

static void test_clip(void **state) {
  (void)state;
  brim_term utf8 = {.unicode = true}, ascii = {0};
  clips(&utf8, "abcdef", 6, "abcdef");
  clips(&utf8, "abcdefg", 6, "abcde…");
  clips(&ascii, "abcdefg", 6, "abcde~");
  clips(&utf8, "한국어", 6, "한국어");
  clips(&utf8, "한국어", 5, "한국…");
  clips(&utf8, "한국어", 4, "한… ");  // a wide character that does not fit leaves a blank
  clips(&utf8, "a\033[31mb", 0, "a?[31mb");
  clips(&utf8,
        "a\xff"
        "b",
        0, "a?b");
  clips(&utf8, "a\nb\tc", 0, "a b c");
}

static void test_wrap(void **state) {
  (void)state;
  brim_term term = {.width = 20};
  brim_str out;
  brim_str_init(&out);
  brim_ui_wrap(&out, &term, "one two three four five six seven", 4);
  assert_string_equal(out.data, "one two three\n    four five six\n    seven");
  brim_str_deinit(&out);
}

static void test_style(void **state) {
  (void)state;
  brim_term colour = {.colour = true}, plain = {0};
  brim_str out;
  brim_str_init(&out);
  brim_ui_styled(&out, &plain, BRIM_UI_BAD, "x");
  assert_string_equal(out.data, "x");
  brim_str_clear(&out);
  brim_ui_styled(&out, &colour, BRIM_UI_BAD, "x");
  assert_string_equal(out.data, "\033[31mx\033[0m");
  assert_int_equal(brim_utf8_width(out.data), 1);
  brim_str_deinit(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_colour), cmocka_unit_test(test_width), cmocka_unit_test(test_unicode),
      cmocka_unit_test(test_clip),   cmocka_unit_test(test_wrap),  cmocka_unit_test(test_style),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
