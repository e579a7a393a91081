// Names and lines of metric rows, as exact text.
#include "record/record_metric.h"

#include <math.h>

#include "test.h"

enum {
  TRAIN = BRIM_METRIC_AT(BRIM_METRIC_TRAIN),
  EVAL = BRIM_METRIC_AT(BRIM_METRIC_EVAL),
  ZERO = BRIM_METRIC_AT(BRIM_METRIC_BASELINE),
  LINE_TRAIN = BRIM_METRIC_AT(BRIM_METRIC_LINE_TRAIN),
  LINE_EVAL = BRIM_METRIC_AT(BRIM_METRIC_LINE_EVAL),
  LINE_PROGRESS = BRIM_METRIC_AT(BRIM_METRIC_LINE_PROGRESS),
};

static const brim_metric rows[] = {
    {.key = "score",
     .label = "score",
     .eval_label = "val score",
     .better = BRIM_BETTER_HIGHER,
     .stages = TRAIN | EVAL | ZERO,
     .lines = LINE_TRAIN | LINE_EVAL | LINE_PROGRESS,
     .beside = LINE_EVAL,
     .rank = 1,
     .best = "points",
     .names = {[BRIM_METRIC_TRAIN] = {.tag = "epoch_score", .event = ""}}},
    {.key = "spread",
     .label = "",
     .digits = 3,
     .join = BRIM_METRIC_SPREAD,
     .stages = EVAL,
     .lines = LINE_EVAL},
    {.key = "share",
     .label = "share",
     .unit = "of all",
     .format = BRIM_METRIC_PERCENT,
     .digits = 1,
     .join = BRIM_METRIC_COMMA,
     .stages = EVAL | ZERO,
     .lines = LINE_EVAL,
     .beside = LINE_EVAL},
    {.key = "error",
     .label = "error",
     .better = BRIM_BETTER_LOWER,
     .format = BRIM_METRIC_STEADY,
     .flags = BRIM_METRIC_FINITE,
     .stages = TRAIN | EVAL,
     .lines = LINE_TRAIN | LINE_PROGRESS,
     .rank = 2},
    {.key = "lost",
     .label = "lost",
     .format = BRIM_METRIC_WHOLE,
     .join = BRIM_METRIC_COMMA,
     .flags = BRIM_METRIC_POSITIVE,
     .stages = EVAL,
     .lines = LINE_EVAL},
};
static const brim_metric_set set = {.rows = rows,
                                    .count = sizeof rows / sizeof *rows,
                                    .baseline_label = "nothing",
                                    .baseline_short = "none"};

static void named(size_t row, brim_metric_stage stage, brim_metric_file file,
                  const char *expected) {
  char name[BRIM_METRIC_NAME] = "?";
  bool there = brim_metric_name(&rows[row], stage, file, name);
  assert_int_equal(there, expected != NULL);
  if (expected) assert_string_equal(name, expected);
}

static void test_names(void **state) {
  (void)state;
  named(0, BRIM_METRIC_TRAIN, BRIM_METRIC_COLUMN, "train_score");
  named(0, BRIM_METRIC_TRAIN, BRIM_METRIC_TAG, "epoch_score");
  named(0, BRIM_METRIC_TRAIN, BRIM_METRIC_EVENT, NULL);  // "" is no unit
  named(0, BRIM_METRIC_EVAL, BRIM_METRIC_COLUMN, "eval_score");
  named(0, BRIM_METRIC_EVAL, BRIM_METRIC_EVENT, "eval_score");
  named(0, BRIM_METRIC_EVAL, BRIM_METRIC_FIGURE, "score");
  named(0, BRIM_METRIC_BASELINE, BRIM_METRIC_FIGURE, "baseline_score");
  named(0, BRIM_METRIC_STEPS, BRIM_METRIC_COLUMN, NULL);  // the row has no value there
  named(3, BRIM_METRIC_TRAIN, BRIM_METRIC_EVENT, "error");
}

static void line_is(brim_metric_place place, const double *values, const double *baseline,
                    const char *expected) {
  brim_str out;
  brim_str_init(&out);
  brim_metric_line(&set, place, values, baseline, &out);
  assert_string_equal(out.data, expected);
  brim_str_deinit(&out);
}

static void test_lines(void **state) {
  (void)state;
  double values[BRIM_METRIC_MAX], zero[BRIM_METRIC_MAX];
  brim_metric_unknown(values);
  brim_metric_unknown(zero);
  // a value that should be finite is reported if it is not; the progress line waits
  line_is(BRIM_METRIC_LINE_TRAIN, values, NULL, "  error NaN");
  line_is(BRIM_METRIC_LINE_PROGRESS, values, NULL, "");
  line_is(BRIM_METRIC_LINE_EVAL, values, zero, "");
  values[0] = 812.25, values[1] = 40.49, values[2] = 0.125, values[3] = 0.5, values[4] = 0;
  line_is(BRIM_METRIC_LINE_TRAIN, values, NULL, "  score 812.3  error 0.5");
  line_is(BRIM_METRIC_LINE_PROGRESS, values, NULL, "  score 812.3  error 0.5000");
  line_is(BRIM_METRIC_LINE_EVAL, values, zero, "  val score 812.3 +- 40.5, share 12.5 % of all");
  zero[0] = 301, zero[2] = 0.5;
  values[4] = 3;
  line_is(BRIM_METRIC_LINE_EVAL, values, zero,
          "  val score 812.3 +- 40.5 (nothing 301), share 12.5 % of all (50.0 %), lost 3");
}

static void test_deciding(void **state) {
  (void)state;
  double values[BRIM_METRIC_MAX];
  brim_metric_unknown(values);
  assert_int_equal(brim_metric_deciding(&set, BRIM_METRIC_EVAL, values, false), -1);
  assert_int_equal(brim_metric_deciding(&set, BRIM_METRIC_EVAL, values, true), 0);
  values[3] = 1;
  assert_int_equal(brim_metric_deciding(&set, BRIM_METRIC_EVAL, values, false), 3);
  values[0] = 1;
  assert_int_equal(brim_metric_deciding(&set, BRIM_METRIC_EVAL, values, false), 0);
  assert_int_equal(brim_metric_deciding(&set, BRIM_METRIC_PROBE, values, true), -1);
  assert_string_equal(brim_metric_best_name(&rows[0]), "points");
  assert_string_equal(brim_metric_best_name(&rows[3]), "error");
  assert_int_equal(brim_metric_find(&set, "share"), 2);
  assert_int_equal(brim_metric_find(&set, "points"), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_lines),
      cmocka_unit_test(test_deciding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
