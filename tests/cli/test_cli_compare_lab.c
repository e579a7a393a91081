// `brim compare` of stores with made-up results, so that every figure is known.
#include <math.h>

#include "cli_test.h"
#include "lab_stores.h"

static const lab_result before[] = {{"0.1", 0, 0.80},  {"0.1", 1, 0.81},  {"0.1", 2, 0.79},
                                    {"0.01", 0, 0.60}, {"0.01", 1, 0.80}, {"1", 0, NAN},
                                    {"0.5", 0, 0.50},  {"7", 0, 0.1}};
static const lab_result after[] = {{"0.1", 0, 0.90},  {"0.1", 1, 0.91},  {"0.1", 2, 0.89},
                                   {"0.01", 0, 0.65}, {"0.01", 1, 0.81}, {"1", 0, 0.40},
                                   {"0.5", 0, 0.52},  {"8", 0, 0.1}};
#define STORE(folder, rows) lab_store_make(folder, rows, sizeof(rows) / sizeof *(rows))

static int setup(void **state) {
  (void)state;
  if (system("rm -rf before after none alone bench") != 0) return 1;
  STORE("before", before);
  STORE("after", after);
  return 0;
}

static void test_two_stores(void **state) {
  (void)state;
  shell_result r = shell("COLUMNS=200 brim compare before after --value last");
  assert_int_equal(r.code, 0);
  said(&r);
  has(r.out, "learning_rate  ");
  has(r.out, "80.00 ± 1.00 % (3)");
  has(r.out, "90.00 ± 1.00 % (3)");
  has(r.out, "+10.00 [+7.73, +12.27] pp");  // 2.776 x sqrt(2 x 0.01^2 / 3)
  // Over three settings: 0.1, 0.03, 0.02; 4.303 x 0.04359 / sqrt(3)
  shell_free(&r);
  r = shell("brim compare after before");
  said(&r);
  shell_free(&r);
}

static void test_values_and_lang(void **state) {
  (void)state;
  expect(0, "82.00 ± 1.00 % (3)", "brim compare before after");
  expect(0, "82.00 ± 1.00 % (3)", "brim compare before after --value best");
  says(0, "brim --lang ko compare before after");
  expect(0, "80.00 +- 1.00 % (3)", "LC_ALL=C brim compare before after --value last");
}

static void test_json(void **state) {
  (void)state;
  shell_result r = shell("brim compare before after --json");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 1);
  json_t *f = NULL;
  assert_ok(brim_json_parse(r.out, strlen(r.out), "out", &f));
  const json_t *first = json_array_get(json_object_get(f, "pairs"), 0);
  assert_string_equal(json_string_value(json_object_get(first, "verdict")), "better");
  assert_true(json_is_true(json_object_get(first, "certain")));
  assert_int_equal(json_integer_value(json_object_get(json_object_get(first, "a"), "n")), 3);
  assert_true(fabs(json_number_value(json_object_get(first, "difference")) - 0.1) < 1e-9);
  const json_t *once = json_array_get(json_object_get(f, "pairs"), 3);
  assert_string_equal(json_string_value(json_object_get(once, "verdict")), "once");
  assert_true(json_is_null(json_object_get(once, "difference_low")));
  assert_int_equal(json_integer_value(json_object_get(f, "mean_of")), 3);
  assert_string_equal(json_string_value(json_object_get(f, "verdict")), "open");
  json_decref(f);
  shell_free(&r);
}

// Against the first value of the setting.
static void test_by(void **state) {
  (void)state;
  shell_result r = shell("brim compare before --by learning_rate");
  assert_int_equal(r.code, 0);
  said(&r);
  has(r.out, "0.1 -> 0.01");
  has(r.out, "-10.00 [");
  shell_free(&r);
  says(2, "brim compare before --by precision");
}

// The result is the last column to go.
static void test_narrow(void **state) {
  (void)state;
  shell_result r = shell("COLUMNS=80 brim compare before after");
  has(r.out, "82.00 ± 1.00 (3)");
  has(r.out, "92.00 ± 1.00 (3)");
  has(r.out, "+10.00 [+7.73, +12.27] pp");
  said(&r);
  shell_free(&r);
}

// A short list of many experiments mixes states fairly. Done ones come first, ordered by the best value of each run.
static void test_status_of_many(void **state) {
  (void)state;
  lab_result rows[24];
  for (int i = 0; i < 24; i++) {
    rows[i] = (lab_result){i < 8 ? "1" : "0.1", i, i < 8 ? (double)NAN : 0.5 + 0.01 * i};
  }
  assert_int_equal(system("rm -rf many"), 0);
  lab_store_make("many", rows, 24);
  shell_result r = shell("brim sweep status many --limit 12 --json");
  assert_int_equal(r.code, 0);
  json_t *view = NULL;
  assert_ok(brim_json_parse(r.out, strlen(r.out), "status", &view));
  const json_t *list = json_object_get(view, "rows");
  int done = 0, failed = 0;
  double first = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i);
    const char *is = json_string_value(json_object_get(row, "state"));
    const double best = json_number_value(json_object_get(row, "best"));
    if (strcmp(is, "done") == 0 && done++ == 0) first = best;
    failed += strcmp(is, "failed") == 0;
  }
  assert_int_equal(done + failed, 12);
  assert_true(done >= 6 && failed >= 3);
  assert_true(fabs(first - 0.75) < 1e-9);  // 0.73 at the end of the run, 0.75 at its best
  json_decref(view);
  shell_free(&r);
  r = shell("COLUMNS=80 brim sweep status many --limit 12");
  const char *best = strstr(r.out, "75.00 %"), *bad = strstr(r.out, "failed  ");
  assert_true(best && bad && strstr(r.out, "12 more") && best < strstr(r.out, "74.00 %"));
  shell_free(&r);
  says(0, "brim report --help");
}

static void test_mistakes(void **state) {
  (void)state;
  static const lab_result other[] = {{"99", 0, 0.5}};
  STORE("none", other);
  assert_ok(brim_fs_mkdirs("bench"));
  write_file("bench/results.jsonl", "");
  says(2, "brim compare before");
  says(2, "brim compare before after --by lr");
  says(2, "brim compare before none");
  says(2, "brim compare before bench");
  says(2, "brim compare bench before");
  says(2, "brim compare before after --fail-below 0.9");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_two_stores, setup),
      cmocka_unit_test_setup(test_values_and_lang, setup),
      cmocka_unit_test_setup(test_json, setup),
      cmocka_unit_test_setup(test_by, setup),
      cmocka_unit_test_setup(test_narrow, setup),
      cmocka_unit_test_setup(test_status_of_many, setup),
      cmocka_unit_test_setup(test_mistakes, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
