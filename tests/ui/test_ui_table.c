// Layout: every width from 20 to 220 holds, columns line up, Korean text too.
#include "test.h"
#include "ui/term/ui_term.h"

static const brim_ui_column columns[] = {
    {.header = "Batch", .align = BRIM_UI_RIGHT},
    {.header = "Name", .align = BRIM_UI_LEFT, .priority = 1, .min_width = 6},
    {.header = "Forward(ms)", .short_header = "Fwd", .align = BRIM_UI_RIGHT, .priority = 3},
    {.header = "Backward(ms)", .short_header = "Bwd", .align = BRIM_UI_RIGHT, .priority = 2},
    {.header = "상태", .align = BRIM_UI_LEFT},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void fill(brim_ui_table *table) {
  brim_ui_table_init(table, columns, COLUMNS);
  static const char *const names[] = {"short", "한국어로 쓴 아주 긴 이름입니다",
                                      "plain ascii name"};
  static const char *const states[] = {"ok", "메모리 부족", "unstable"};
  for (int i = 0; i < 3; i++) {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%d", 1 << (4 * i + 1));
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", names[i]);
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%.2f", 3.14159 * i);
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%.2f", 100.0 * i);
    brim_ui_table_add(table, BRIM_UI_GOOD, "%s", states[i]);
  }
}

// Lines of a rendered table, split in place.
static size_t split(char *text, char **lines, size_t max) {
  size_t n = 0;
  for (char *p = strtok(text, "\n"); p && n < max; p = strtok(NULL, "\n")) lines[n++] = p;
  return n;
}

// Bytes of the part of a line that fills the first `width` columns.
static size_t bytes_of(const char *line, int width) {
  for (size_t n = 0; n <= strlen(line); n++) {
    if (((unsigned char)line[n] & 0xC0) == 0x80) continue;
    char part[512];
    memcpy(part, line, n);
    part[n] = '\0';
    if (brim_utf8_width(part) >= width) return n;
  }
  return strlen(line);
}

static void test_every_width(void **state) {
  (void)state;
  brim_ui_table table;
  fill(&table);
  for (int colour = 0; colour < 2; colour++) {
    for (int width = 20; width <= 220; width++) {
      brim_term term = {.unicode = true, .width = width, .colour = colour};
      brim_str out;
      brim_str_init(&out);
      int left_out;
      assert_ok(brim_ui_table_render(&table, &term, &out, &left_out));
      if (width >= 100) assert_int_equal(left_out, 0);
      char *lines[8];
      assert_int_equal(split(out.data, lines, 8), 5);
      for (int i = 0; i < 5; i++) {
        if (brim_utf8_width(lines[i]) > width) fail_msg("%d columns: '%s'", width, lines[i]);
      }
      brim_str_deinit(&out);
    }
  }
  brim_ui_table_deinit(&table);
}

// Between two columns every row has blanks in the same places.
static void test_columns_line_up(void **state) {
  (void)state;
  brim_ui_table table;
  fill(&table);
  brim_term term = {.unicode = true, .width = 0};
  brim_str out;
  brim_str_init(&out);
  assert_ok(brim_ui_table_render(&table, &term, &out, NULL));
  char *lines[8];
  assert_int_equal(split(out.data, lines, 8), 5);
  int widths[COLUMNS], natural[COLUMNS] = {3, 30, 4, 6, 11};
  bool use_short;
  brim_ui_layout(columns, natural, COLUMNS, 0, 0, widths, &use_short);
  assert_false(use_short);
  for (int i = 0; i < 5; i++) {
    if (i == 1) continue;  // the rule
    int at = 0;
    for (int c = 0; c + 1 < COLUMNS; c++) {
      at += widths[c];
      size_t byte = bytes_of(lines[i], at);
      if (strncmp(lines[i] + byte, "  ", 2) != 0) {
        fail_msg("line %d, gap after column %d (%d): '%s'", i, c, at, lines[i]);
      }
      at += 2;
    }
  }
  // right-aligned numbers end where their header ends
  assert_non_null(strstr(lines[0], "Batch  Name"));
  assert_int_equal(strncmp(lines[2], "    2  short", 12), 0);
  brim_str_deinit(&out);
  brim_ui_table_deinit(&table);
}

static void test_what_goes_first(void **state) {
  (void)state;
  int natural[COLUMNS] = {5, 30, 6, 6, 8}, widths[COLUMNS];
  bool use_short;
  brim_ui_layout(columns, natural, COLUMNS, 200, 0, widths, &use_short);
  assert_int_equal(widths[1], 30);
  assert_int_equal(widths[2], 11);
  brim_ui_layout(columns, natural, COLUMNS, 60, 0, widths, &use_short);
  assert_true(use_short);
  assert_true(widths[1] < 30 && widths[1] >= 6 && widths[2] == 6);
  brim_ui_layout(columns, natural, COLUMNS, 35, 0, widths, &use_short);
  assert_int_equal(widths[2], 0);  // the one with the highest number was removed first
  assert_true(widths[3] > 0);
  brim_ui_layout(columns, natural, COLUMNS, 10, 0, widths, &use_short);
  assert_true(widths[0] > 0 && widths[4] > 0 && widths[1] == 0 && widths[3] == 0);
  assert_true(widths[0] + 2 + widths[4] <= 10);
}

static void test_wrong_count(void **state) {
  (void)state;
  brim_ui_table table;
  brim_term term = {0};
  brim_str out;
  brim_str_init(&out);
  brim_ui_table_init(&table, columns, COLUMNS);
  brim_ui_table_add(&table, BRIM_UI_PLAIN, "alone");
  assert_status(brim_ui_table_render(&table, &term, &out, NULL), BRIM_EINVAL);
  brim_ui_table_deinit(&table);
  brim_str_deinit(&out);
}

static void test_out_of_memory(void **state) {
  (void)state;
  brim_term term = {.unicode = true, .width = 60, .colour = true};
  for (uint64_t n = 1; n < 1000; n++) {
    brim_ui_table table;
    brim_str out;
    brim_alloc_fail_nth(n, 0);
    brim_str_init(&out);
    fill(&table);
    brim_status status = brim_ui_table_render(&table, &term, &out, NULL);
    brim_alloc_fail_nth(0, 0);
    brim_ui_table_deinit(&table);
    brim_str_deinit(&out);
    if (!status) {
      assert_true(n > 10);
      return;
    }
    assert_int_equal(status, BRIM_ENOMEM);
  }
  fail_msg("still failing");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_width),     cmocka_unit_test(test_columns_line_up),
      cmocka_unit_test(test_what_goes_first), cmocka_unit_test(test_wrong_count),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
