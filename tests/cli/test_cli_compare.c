// `brim compare`: made-up records, so that every figure is known.
#include <math.h>

#include "cli_test.h"
#include "record/record.h"

typedef struct row {
  const char *batch, *precision;
  double rate, half;  // half: half the width of the interval, as a share of the rate
  brim_failure failure;
} row;

static void make(brim_result *r, const row *from) {
  brim_result_init(r);
  r->when_s = 1;
  r->failure = from->failure;
  r->stable = true;
  r->repeats = 3;
  snprintf(r->version, sizeof r->version, "0.1.0");
  snprintf(r->device, sizeof r->device, "H200");
  snprintf(r->host, sizeof r->host, "one");
  const char *const values[][2] = {{"batch_size", from->batch}, {"precision", from->precision}};
  for (size_t i = 0; i < 2; i++) {
    snprintf(r->knobs[i].name, sizeof r->knobs[i].name, "%s", values[i][0]);
    snprintf(r->knobs[i].value, sizeof r->knobs[i].value, "%s", values[i][1]);
    r->knobs[i].number = (double)NAN;
  }
  r->knob_count = 2;
  r->plan.bytes[BRIM_PLACE_DEVICE] = 3 << 20;
  if (from->failure) return;
  r->samples_per_s = from->rate;
  r->samples_per_s_low = from->rate * (1 - from->half);
  r->samples_per_s_high = from->rate * (1 + from->half);
  if (isnan(from->half)) r->samples_per_s_low = r->samples_per_s_high = (double)NAN;
}

static void make_file(const char *path, const row *rows, size_t count) {
  brim_result *results = brim_calloc(count, sizeof *results);
  assert_non_null(results);
  for (size_t i = 0; i < count; i++) make(&results[i], &rows[i]);
  assert_ok(brim_results_write(path, results, count));
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
}
#define FILE_OF(path, rows) make_file(path, rows, sizeof(rows) / sizeof *(rows))

static const row before[] = {
    {"64", "fp32", 1000, 0.01, 0},  {"128", "fp32", 2000, 0.01, 0},
    {"64", "bf16", 1500, 0.01, 0},  {"128", "bf16", 3000, 0.01, 0},
    {"256", "fp32", 2500, 0.01, 0}, {"512", "fp32", 0, 0, BRIM_FAILURE_OOM_DEVICE},
    {"1024", "fp32", 10, 0.01, 0},
};
static const row after[] = {
    {"128", "fp32", 1600, 0.01, 0},                    // slower
    {"64", "fp32", 1, 0.01, 0},                        // measured again below
    {"64", "bf16", 1501, 0.01, 0},                     // the same
    {"128", "bf16", 3300, (double)NAN, 0},             // unknown
    {"256", "fp32", 0, 0, BRIM_FAILURE_OOM_DEVICE},    // does not run
    {"512", "fp32", 9, 0.01, 0},                       // runs now
    {"2048", "fp32", 9, 0.01, 0},                      // new
    {"64", "fp32", 1200, 0.01, 0},                     // faster
    {"1024", "fp32", 0, 0, BRIM_FAILURE_INTERRUPTED},  // not a measurement
};

static void expect_parts(const char *text, const char *const *parts) {
  for (; *parts; parts++) {
    if (!strstr(text, *parts)) fail_msg("no '%s' in:\n%s", *parts, text);
  }
}

static void test_two_files(void **state) {
  (void)state;
  FILE_OF("a.jsonl", before);
  FILE_OF("b.jsonl", after);
  shell_result r = shell("brim compare a.jsonl b.jsonl");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  static const char *const parts[] = {"A  a.jsonl\nB  b.jsonl\n",
                                      "1,000 ± 1.0 %",
                                      "1.200 [1.183, 1.217]",
                                      "0.800 [0.789, 0.811]",
                                      "certain: faster by at least 18 %",
                                      "certain: slower by at least 18 %",
                                      "provisional: no interval",
                                      "cannot be told apart: 1",
                                      "certainly faster: 1",
                                      "certainly slower: 1",
                                      "no interval: 1",
                                      "B did not run: 1",
                                      "only B ran: 1",
                                      "settings only in A: 1",
                                      "settings only in B: 1",
                                      "3.0 MiB",
                                      "Provisional: A and B cannot be told apart (x0.99 [",
                                      "settings: 3)",
                                      NULL};
  expect_parts(r.out, parts);
  said(&r);
  shell_free(&r);
  assert_ok(brim_fs_mkdirs("folder"));
  FILE_OF("folder/results.jsonl", after);
  expect(0, "B  folder/results.jsonl", "brim compare a.jsonl folder");
}

static void test_json(void **state) {
  (void)state;
  FILE_OF("a.jsonl", before);
  FILE_OF("b.jsonl", after);
  shell_result r = shell("brim compare a.jsonl b.jsonl --json");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 1);
  json_t *json;
  assert_ok(brim_json_parse(r.out, strlen(r.out), "stdout", &json));
  json_t *pairs = json_object_get(json, "pairs");
  assert_int_equal(json_array_size(pairs), 6);
  const json_t *first = json_array_get(pairs, 0);
  assert_string_equal(json_string_value(json_object_get(first, "verdict")), "faster");
  assert_true(fabs(json_number_value(json_object_get(first, "ratio")) - 1.2) < 1e-9);
  const json_t *fourth = json_array_get(pairs, 3);
  assert_string_equal(json_string_value(json_object_get(fourth, "verdict")), "unknown");
  assert_true(json_is_null(json_object_get(fourth, "ratio_low")));
  assert_true(json_is_true(json_object_get(first, "certain")));
  assert_true(json_is_false(json_object_get(fourth, "certain")));
  assert_true(json_is_false(json_object_get(json, "certain")));
  assert_string_equal(json_string_value(json_object_get(json, "verdict")), "open");
  assert_int_equal(json_integer_value(json_object_get(json, "mean_of")), 3);
  assert_true(json_number_value(json_object_get(json, "mean_ratio_low")) < 1);
  assert_int_equal(json_integer_value(json_object_get(json, "only_b")), 1);
  json_decref(json);
  shell_free(&r);
}

static void test_fail_below(void **state) {
  (void)state;
  static const row base[] = {{"64", "fp32", 1000, 0.02, 0}};
  // 0.93 with an error of 0.03: may be 0.95
  static const row close[] = {{"64", "fp32", 930, 0.02, 0}};
  static const row slow[] = {{"64", "fp32", 900, 0.02, 0}};  // certainly below 0.95
  static const row broken[] = {{"64", "fp32", 0, 0, BRIM_FAILURE_CRASH}};
  FILE_OF("a.jsonl", base);
  FILE_OF("close.jsonl", close);
  FILE_OF("slow.jsonl", slow);
  FILE_OF("broken.jsonl", broken);
  says(0, "brim compare a.jsonl close.jsonl --fail-below 0.95");
  says(0, "brim compare a.jsonl slow.jsonl");
  says(1, "brim compare a.jsonl slow.jsonl --fail-below 0.95");
  says(1, "brim compare a.jsonl broken.jsonl --fail-below 0.95");
  says(0, "brim compare broken.jsonl a.jsonl --fail-below 0.95");
  says(2, "brim compare a.jsonl slow.jsonl --fail-below 0");
}

// Records of noisy sweeps, and of versions without intervals and visits, as the command reads them.
static void test_noisy_and_old(void **state) {
  (void)state;
  static const row base[] = {{"64", "fp32", 1000, 0.2, 0}, {"128", "fp32", 1000, 0.2, 0}};
  static const row twice[] = {{"64", "fp32", 2000, 0.2, 0}, {"128", "fp32", 2100, 0.2, 0}};
  static const row near[] = {{"64", "fp32", 1200, 0.2, 0}, {"128", "fp32", 1150, 0.2, 0}};
  static const row bare[] = {{"64", "fp32", 500, (double)NAN, 0}};
  FILE_OF("a.jsonl", base);
  FILE_OF("twice.jsonl", twice);
  FILE_OF("near.jsonl", near);
  FILE_OF("bare.jsonl", bare);
  says(0, "brim compare a.jsonl twice.jsonl");
  says(0, "brim compare a.jsonl near.jsonl");
  says(0, "brim compare a.jsonl bare.jsonl");
  brim_result once;
  make(&once, &(row){"64", "fp32", 500, 0.01, 0});
  once.repeats = 1;
  once.stable = false;
  assert_ok(brim_results_write("once.jsonl", &once, 1));
  brim_result_deinit(&once);
  says(0,
       "brim compare bare.jsonl a.jsonl --fail-below 0.5 && "
       "brim compare once.jsonl once.jsonl --fail-below 1.2");
}

static void test_by(void **state) {
  (void)state;
  FILE_OF("a.jsonl", before);
  shell_result r = shell("brim compare a.jsonl --by training.precision");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  static const char *const parts[] = {"A  a.jsonl, precision=fp32",
                                      "other values of precision",
                                      "fp32 -> bf16",
                                      "1.500 [",
                                      "certainly faster: 2",
                                      NULL};
  expect_parts(r.out, parts);
  shell_free(&r);
  says(2, "brim compare a.jsonl --by depth");
  says(2, "brim compare a.jsonl a.jsonl --by precision");
}

static void test_differences(void **state) {
  (void)state;
  brim_result r;
  make(&r, &before[0]);
  r.config = json_pack("{s: i, s: s, s: {s: f}}", "seed", 1, "output_dir", "x", "training",
                       "learning_rate", 0.5);
  assert_ok(brim_results_write("a.jsonl", &r, 1));
  json_object_set_new(r.config, "seed", json_integer(2));
  json_object_set_new(r.config, "output_dir", json_string("y"));
  json_object_set_new(json_object_get(r.config, "training"), "learning_rate", json_real(0.25));
  snprintf(r.version, sizeof r.version, "0.2.0");
  snprintf(r.device, sizeof r.device, "A100");
  assert_ok(brim_results_write("b.jsonl", &r, 1));
  brim_result_deinit(&r);
  shell_result s = shell("brim compare a.jsonl b.jsonl");
  if (s.code) fail_msg("exit %d: %s", s.code, s.err);
  static const char *const parts[] = {"A and B differ in more than speed",
                                      "version: 0.1.0 -> 0.2.0",
                                      "device: H200 -> A100",
                                      "config.seed: 1 -> 2",
                                      "config.training.learning_rate: 0.5 -> 0.25",
                                      NULL};
  expect_parts(s.out, parts);
  assert_null(strstr(s.out, "output_dir"));
  // come before the verdicts, which they may explain
  assert_true(strstr(s.out, "A and B differ in more") < strstr(s.out, "A samples/s"));
  said(&s);
  shell_free(&s);
}

// Two models are not two settings of one: that difference comes first.
static void test_other_work(void **state) {
  (void)state;
  brim_result r;
  make(&r, &before[0]);
  r.config = json_pack("{s: s, s: i}", "model", "resnet18", "seed", 1);
  assert_ok(brim_results_write("a.jsonl", &r, 1));
  json_object_set_new(r.config, "model", json_string("mlp(depth=2)"));
  r.samples_per_s *= 4;
  r.samples_per_s_low *= 4;
  r.samples_per_s_high *= 4;
  assert_ok(brim_results_write("b.jsonl", &r, 1));
  brim_result_deinit(&r);
  shell_result s = shell("brim compare a.jsonl b.jsonl");
  if (s.code) fail_msg("exit %d: %s", s.code, s.err);
  const char *first = strstr(s.out, "A and B do different work");
  const char *model = strstr(s.out, "config.model: resnet18 -> mlp(depth=2)");
  const char *certain = strstr(s.out, "ertain");
  assert_true(first && model && certain && first < model && model < certain);
  shell_free(&s);
}

// A key that only one config has is a difference, whichever config has it.
static void test_keys_of_one_side(void **state) {
  (void)state;
  brim_result r;
  make(&r, &before[0]);
  r.config = json_pack("{s: {s: i, s: i}}", "training", "epochs", 1, "old", 3);
  assert_ok(brim_results_write("a.jsonl", &r, 1));
  json_decref(r.config);
  r.config = json_pack("{s: {s: i}, s: {s: i}, s: s, s: s}", "training", "epochs", 1, "gpu", "new",
                       4, "late", "x", "name", "n");
  assert_ok(brim_results_write("b.jsonl", &r, 1));
  brim_result_deinit(&r);
  shell_result s = shell("brim compare a.jsonl b.jsonl");
  if (s.code) fail_msg("exit %d: %s", s.code, s.err);
  static const char *const parts[] = {"config.training.old: 3 -> null",
                                      "config.gpu: null -> {\"new\":4}", "config.late: null -> x",
                                      NULL};
  expect_parts(s.out, parts);
  assert_null(strstr(s.out, "config.name"));
  assert_null(strstr(s.out, "epochs"));
  shell_free(&s);
  s = shell("brim compare b.jsonl a.jsonl");
  static const char *const back[] = {"config.training.old: null -> 3", "config.late: x -> null",
                                     NULL};
  expect_parts(s.out, back);
  shell_free(&s);
}

// A file that a killed sweep left is compared up to its torn line.
static void test_torn(void **state) {
  (void)state;
  FILE_OF("a.jsonl", before);
  FILE_OF("b.jsonl", after);
  shell_result s = shell("head -c -40 b.jsonl > torn.jsonl; brim compare a.jsonl torn.jsonl");
  if (s.code) fail_msg("exit %d: %s", s.code, s.err);
  said(&s);
  shell_free(&s);
  s = shell("brim compare torn.jsonl a.jsonl --json");
  assert_int_equal(s.code, 0);
  assert_non_null(strstr(s.out, "\"torn_a\":true"));
  assert_non_null(strstr(s.out, "\"torn_b\":false"));
  shell_free(&s);
  expect(2, "torn.jsonl:2",
         "(head -c -40 a.jsonl | head -n 1 && printf '{\\n{\\n') > torn.jsonl; "
         "brim compare a.jsonl torn.jsonl");
}

// The verdict is the purpose of the command: any width that has room for a word shows it.
static void test_narrow(void **state) {
  (void)state;
  FILE_OF("a.jsonl", before);
  FILE_OF("b.jsonl", after);
  static const char *const words[] = {"Verdict",     "B faster",   "B slower", "undecided",
                                      "no interval", "only B ran", "B failed", NULL};
  for (int width = 34; width <= 76; width += 6) {
    shell_result s = shell("COLUMNS=%d brim compare a.jsonl b.jsonl", width);
    if (s.code) fail_msg("exit %d: %s", s.code, s.err);
    char *table_end = strstr(s.out, "no interval: 1");
    assert_non_null(table_end);
    *table_end = '\0';
    expect_parts(s.out, words);
    if (width >= 52) assert_non_null(strstr(s.out, "1.200 [1.183, 1.217]"));
    for (char *line = strtok(s.out, "\n"); line; line = strtok(NULL, "\n")) {
      if (brim_utf8_width(line) > width) fail_msg("wider than %d: %s", width, line);
    }
    shell_free(&s);
  }
}

static void test_mistakes(void **state) {
  (void)state;
  static const row other[] = {{"7", "fp32", 1, 0.01, 0}};
  static const row failed[] = {{"64", "fp32", 0, 0, BRIM_FAILURE_INTERRUPTED}};
  FILE_OF("a.jsonl", before);
  FILE_OF("other.jsonl", other);
  FILE_OF("failed.jsonl", failed);
  write_file("bad.jsonl", "{\"schema\": \"other\"}\n");
  assert_ok(brim_fs_mkdirs("empty"));
  says(2, "brim compare a.jsonl");
  expect(2, "nowhere.jsonl", "brim compare a.jsonl nowhere.jsonl");
  says(2, "brim compare a.jsonl empty");
  expect(2, "bad.jsonl:1", "brim compare a.jsonl bad.jsonl");
  says(2, "brim compare a.jsonl other.jsonl");
  says(2, "brim compare a.jsonl failed.jsonl");
  expect(0, "--fail-below", "brim compare --help");
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_files),     cmocka_unit_test(test_json),
      cmocka_unit_test(test_fail_below),    cmocka_unit_test(test_by),
      cmocka_unit_test(test_differences),   cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_other_work),    cmocka_unit_test(test_keys_of_one_side),
      cmocka_unit_test(test_torn),          cmocka_unit_test(test_narrow),
      cmocka_unit_test(test_noisy_and_old),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
