// Curves from logs: the rows they take, logs that are cut, damaged, rotated or taken back, and long ones, where the
// extremes have to stay.
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/record_curves.h"
#include "test.h"

enum {
  STAGES = BRIM_METRIC_AT(BRIM_METRIC_TRAIN) | BRIM_METRIC_AT(BRIM_METRIC_EVAL) |
           BRIM_METRIC_AT(BRIM_METRIC_BASELINE),
  LINE = BRIM_METRIC_AT(BRIM_METRIC_LINE_EVAL),
};

static const brim_metric rows[] = {
    {.key = "score", .label = "score", .stages = STAGES, .lines = LINE},
    {.key = "spread", .label = "", .stages = STAGES, .lines = LINE, .join = BRIM_METRIC_SPREAD},
    {.key = "lost",
     .label = "lost",
     .stages = STAGES,
     .lines = LINE,
     .flags = BRIM_METRIC_POSITIVE},
    {.key = "hidden", .label = "hidden", .stages = STAGES},
    {.key = "own",
     .label = "own",
     .stages = STAGES,
     .lines = BRIM_METRIC_AT(BRIM_METRIC_LINE_SUMMARY),
     .names = {[BRIM_METRIC_EVAL] = {.column = "named"}, [BRIM_METRIC_BASELINE] = {.column = ""}}},
    {.key = "unlogged",
     .label = "unlogged",
     .stages = STAGES,
     .lines = LINE,
     .names = {[BRIM_METRIC_EVAL] = {.column = ""}}},
};
static const brim_metric_set set = {.rows = rows, .count = sizeof rows / sizeof *rows};

static void write_log(const char *name, const char *text) {
  char path[64];
  assert_ok(brim_fs_mkdirs("log"));
  snprintf(path, sizeof path, "log/%s", name);
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

static int clear(void **state) {
  (void)state;
  static const char *const names[] = {"log/log.jsonl", "log/log.1.jsonl", "log/log.2.jsonl"};
  for (int i = 0; i < 3; i++) {
    if (brim_fs_exists(names[i])) (void)!unlink(names[i]);
    (void)!rmdir(names[i]);
  }
  return 0;
}

static void read_log(int64_t marked, brim_curves *out) {
  assert_ok(brim_curves_read(&set, "log", marked, out));
}

static void check_steps(const brim_curve *c, const int64_t *steps, size_t count) {
  assert_int_equal(c->count, count);
  for (size_t i = 0; i < count; i++) assert_int_equal(c->points[i].step, steps[i]);
}

static void test_rows(void **state) {
  (void)state;
  brim_curves c;
  write_log(
      "log.jsonl",
      "{\"event\":\"steps\",\"step\":1,\"eval_score\":99}\n"
      "{\"event\":\"epoch\",\"epoch\":1,\"step\":2,\"eval_score\":0.5,\"eval_spread\":1,"
      "\"eval_lost\":0,\"eval_hidden\":3,\"named\":-7,\"eval_unlogged\":3,\"baseline_score\":0.25,"
      "\"baseline_own\":4}\n"
      "{\"event\":\"epoch\",\"epoch\":2,\"step\":4,\"eval_score\":null,\"named\":\"5\"}\n"
      "{\"event\":\"epoch\",\"epoch\":3,\"step\":6,\"eval_score\":1,\"eval_lost\":0}\n"
      "{\"event\":\"epoch\",\"epoch\":4,\"step\":8,\"eval_score\":0}");  // no newline
  read_log(6, &c);
  assert_int_equal(c.count, 2);
  assert_int_equal(c.marked, 6);
  assert_false(c.training);
  assert_ptr_equal(c.list[0].row, &rows[0]);
  check_steps(&c.list[0], (int64_t[]){2, 6, 8}, 3);
  assert_true(c.list[0].points[0].value == 0.5 && c.list[0].points[2].value == 0);
  assert_true(c.list[0].baseline == 0.25);
  assert_ptr_equal(c.list[1].row, &rows[4]);
  check_steps(&c.list[1], (int64_t[]){2}, 1);
  assert_true(isnan(c.list[1].baseline));
  brim_curves_deinit(&c);
  // shown only above 0
  write_log("log.jsonl",
            "{\"event\":\"epoch\",\"step\":2,\"eval_lost\":0}\n"
            "{\"event\":\"epoch\",\"step\":3,\"eval_lost\":1}\n");
  read_log(-1, &c);
  assert_int_equal(c.count, 1);
  check_steps(&c.list[0], (int64_t[]){2, 3}, 2);
  brim_curves_deinit(&c);
}

static void test_none(void **state) {
  (void)state;
  brim_curves c;
  read_log(3, &c);  // no file
  assert_int_equal(c.count, 0);
  brim_curves_deinit(&c);
  assert_ok(brim_curves_read(&set, "there is no such folder", 3, &c));
  assert_int_equal(c.count, 0);
  brim_curves_deinit(&c);
  write_log("log.jsonl", "");
  read_log(3, &c);
  assert_int_equal(c.count, 0);
  brim_curves_deinit(&c);
  // no evaluation: the training's rows
  write_log("log.jsonl",
            "{\"event\":\"epoch\",\"step\":2,\"train_score\":4,\"baseline_score\":1}\n");
  read_log(3, &c);
  assert_int_equal(c.count, 1);
  assert_true(c.training && c.list[0].points[0].value == 4 && isnan(c.list[0].baseline));
  brim_curves_deinit(&c);
}

// A line that is torn, no JSON, of another form or with impossible numbers is skipped; the others count.
static void test_damaged(void **state) {
  (void)state;
  static const char bad[] =
      "{\"event\":\"epoch\",\"step\":2,\"eval_score\":1}\n"
      "{\"event\":\"epoch\",\"step\":4,\"eval_sc"
      "{\"event\":\"epoch\",\"step\":4,\"eval_score\":2}\n"
      "\"epoch\"\n[\"epoch\"]\n{\"event\":\"epoch\"}\n\xff\xfe \"epoch\"\n\n"
      "{\"event\":\"epoch\",\"step\":-4,\"eval_score\":2}\n"
      "{\"event\":\"epoch\",\"step\":1.5,\"eval_score\":2}\n"
      "{\"event\":\"epoch\",\"step\":9223372036854775807,\"eval_score\":2}\n"
      "{\"event\":\"epoch\",\"step\":99999999999999999999,\"eval_score\":2}\n"
      "{\"event\":\"epoch\",\"step\":5,\"eval_score\":1e300}\n"
      "{\"event\":\"epoch\",\"step\":5,\"eval_score\":[1]}\n"
      "{\"event\":[\"epoch\"],\"step\":5,\"eval_score\":1}\n";
  brim_str text;
  brim_curves c;
  brim_str_init(&text);
  brim_str_append(&text, bad);
  brim_str_append(&text, "{\"event\":\"epoch\",\"step\":5,\"eval_score\":7,\"x\":\"");
  brim_str_repeat(&text, 'x', 3 << 20);  // longer than any line of a log
  brim_str_append(&text,
                  "\"}\n{\"event\":\"epoch\",\"step\":6,\"eval_score\":3}\n{\"event\":\"epo");
  assert_ok(brim_str_status(&text));
  write_log("log.jsonl", text.data);
  brim_str_deinit(&text);
  read_log(-1, &c);
  assert_int_equal(c.count, 1);
  check_steps(&c.list[0], (int64_t[]){2, 6}, 2);
  assert_true(c.list[0].points[1].value == 3);
  brim_curves_deinit(&c);
  assert_string_equal(brim_status_detail(), "");
}

// A folder in the place of a log is an error that the caller may report.
static void test_unreadable(void **state) {
  (void)state;
  brim_curves c;
  assert_ok(brim_fs_mkdirs("log/log.jsonl"));
  assert_status(brim_curves_read(&set, "log", 3, &c), BRIM_EINVAL);
  assert_int_equal(c.count, 0);
  assert_null(c.list);
}

static void put_line(brim_str *text, int64_t step, double value) {
  brim_str_printf(text, "{\"event\":\"epoch\",\"step\":%lld,\"eval_score\":%.17g}\n",
                  (long long)step, value);
}

// Files in order; a run that restarted at an earlier step replaces the later rows.
static void test_rotated_and_taken_back(void **state) {
  (void)state;
  brim_str text;
  brim_curves c;
  brim_str_init(&text);
  for (int i = 1; i <= 4; i++) put_line(&text, 2 * i, i);
  write_log("log.jsonl", text.data);
  brim_str_clear(&text);
  put_line(&text, 10, 5);
  write_log("log.1.jsonl", text.data);
  read_log(8, &c);
  check_steps(&c.list[0], (int64_t[]){2, 4, 6, 8, 10}, 5);
  brim_curves_deinit(&c);
  brim_str_clear(&text);
  put_line(&text, 6, -1);
  put_line(&text, 7, -2);
  write_log("log.2.jsonl", text.data);
  read_log(8, &c);
  check_steps(&c.list[0], (int64_t[]){2, 4, 6, 7}, 4);
  assert_true(c.list[0].points[2].value == -1);
  brim_curves_deinit(&c);
  put_line(&text, 1, 9);  // from the beginning again
  write_log("log.2.jsonl", text.data);
  read_log(8, &c);
  check_steps(&c.list[0], (int64_t[]){1}, 1);
  brim_curves_deinit(&c);
  brim_str_deinit(&text);
}

static bool has_point(const brim_curve *c, int64_t step, double value) {
  for (size_t i = 0; i < c->count; i++) {
    if (c->points[i].step == step) return c->points[i].value == value;
  }
  return false;
}

static double wave(int64_t i) { return sin((double)i * 0.01); }

// Thinning keeps few points, all from the log and in order: the first, the last, the marked one and the extremes.
static void test_long(void **state) {
  (void)state;
  enum { LINES = 40000, HIGH = 12345, LOW = 30001, MARKED = 7777, AGAIN = 20000 };
  brim_str text;
  brim_curves c;
  brim_str_init(&text);
  for (int64_t i = 1; i <= LINES; i++) {
    put_line(&text, i, i == HIGH ? 50 : i == LOW ? -50 : wave(i));
  }
  write_log("log.jsonl", text.data);
  read_log(MARKED, &c);
  const brim_curve *k = &c.list[0];
  assert_true(k->count > 250 && k->count <= BRIM_CURVE_POINTS);
  assert_true(has_point(k, 1, wave(1)) && has_point(k, LINES, wave(LINES)));
  assert_true(has_point(k, HIGH, 50) && has_point(k, LOW, -50));
  assert_true(has_point(k, MARKED, wave(MARKED)));
  for (size_t i = 1; i < k->count; i++) {
    const int64_t step = k->points[i].step;
    assert_true(step > k->points[i - 1].step && step - k->points[i - 1].step < 1000);
    if (step != HIGH && step != LOW) assert_true(k->points[i].value == wave(step));
  }
  brim_curves_deinit(&c);
  put_line(&text, AGAIN, 0.5);
  write_log("log.jsonl", text.data);
  read_log(LOW, &c);
  k = &c.list[0];
  assert_true(has_point(k, HIGH, 50) && has_point(k, AGAIN, 0.5));
  assert_int_equal(k->points[k->count - 1].step, AGAIN);
  assert_false(has_point(k, LOW, -50));
  brim_curves_deinit(&c);
  brim_str_deinit(&text);
}

// Each allocation fails: a status, and nothing is left behind.
static void test_memory(void **state) {
  (void)state;
  brim_str text;
  brim_str_init(&text);
  for (int i = 1; i <= 3; i++) put_line(&text, i, i);
  write_log("log.jsonl", text.data);
  brim_str_deinit(&text);
  for (uint64_t n = 1; n < 1000; n++) {
    brim_curves c;
    brim_alloc_fail_nth(n, false);
    brim_status status = brim_curves_read(&set, "log", 2, &c);
    brim_alloc_fail_nth(0, false);
    if (!status) {
      assert_true(n > 5);
      assert_int_equal(c.list[0].count, 3);
      brim_curves_deinit(&c);
      return;
    }
    assert_int_equal(status, BRIM_ENOMEM);
    assert_null(c.list);
  }
  fail_msg("it never got through");
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_rows, clear),
      cmocka_unit_test_setup(test_none, clear),
      cmocka_unit_test_setup(test_damaged, clear),
      cmocka_unit_test_setup(test_unreadable, clear),
      cmocka_unit_test_setup(test_rotated_and_taken_back, clear),
      cmocka_unit_test_setup(test_long, clear),
      cmocka_unit_test_setup(test_memory, clear),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
