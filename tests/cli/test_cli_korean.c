// The program in Korean: selected by the environment or --lang, every text translated, columns that fit the width of
// Hangul, and no translation in files for programs.
#include "cli/cli.h"
#include "cli_test.h"

static void test_choice(void **state) {
  (void)state;
  says(2, "brim --lang ko tran");
  says(2, "brim tran --lang=ko");
  says(2, "LC_ALL= LC_MESSAGES=ko_KR.UTF-8 brim tran");
  says(2, "LC_ALL= LANG=ko_KR.UTF-8 brim tran");
  says(2, "LC_ALL= LANG=ko_KR.UTF-8 brim --lang en tran");
  says(2, "LC_ALL=C LANG=ko_KR.UTF-8 brim tran");
  says(2, "LC_ALL=ko_KR.eucKR brim tran");
  says(2, "brim --lang fr version");
  says(2, "LC_ALL=ko_KR.UTF-8 brim --lang fr version");
  says_lines(0, "key.path", "LC_ALL=ko_KR.UTF-8 brim help train");
}

static void check_page(char *text, int width, const char *page) {
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    if (brim_utf8_width(line) > width) fail_msg("%s: %s", page, line);
    if (*line && line[strlen(line) - 1] == ' ') fail_msg("%s: blank at '%s'", page, line);
    assert_true(brim_utf8_valid(line, strlen(line)));
  }
}

static void test_help_fits(void **state) {
  (void)state;
  shell_result r = shell("brim --lang ko help");
  check_page(r.out, 80, "help");
  shell_free(&r);
  for (const brim_cli_command *const *c = brim_cli_commands(); *c; c++) {
    r = shell("brim --lang ko help %s", (*c)->name);
    assert_int_equal(r.code, 0);
    check_page(r.out, 80, (*c)->name);
    shell_free(&r);
  }
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    r = shell("brim --lang ko help %s", brim_cli_topic_at(i).name);
    assert_int_equal(r.code, 0);
    check_page(r.out, 80, brim_cli_topic_at(i).name);
    shell_free(&r);
  }
}

// Without their texts the two outputs are the same.
static void strip_texts(json_t *value) {
  const char *key;
  json_t *item;
  size_t i;
  if (json_is_object(value)) {
    json_object_del(value, "help");
    json_object_del(value, "summary");
    json_object_foreach(value, key, item) strip_texts(item);
  }
  if (json_is_array(value)) {
    json_array_foreach(value, i, item) strip_texts(item);
  }
}

static void test_json_is_the_same(void **state) {
  (void)state;
  json_t *both[2];
  for (int i = 0; i < 2; i++) {
    shell_result r = shell("brim --lang %s help --json", i ? "ko" : "en");
    assert_ok(brim_json_parse(r.out, strlen(r.out), "help", &both[i]));
    strip_texts(both[i]);
    shell_free(&r);
  }
  assert_true(json_equal(both[0], both[1]));
  json_decref(both[0]);
  json_decref(both[1]);
}

static const char small[] =
    "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=256, shape=(8, 8))\n"
    "data:\n  batch_size: 64\ntraining:\n  epochs: 1\n";

// The table below its rule: every row is as wide as its heading, in columns of the terminal.
static void test_bench(void **state) {
  (void)state;
  write_file("ko.yaml", small);
  expect(0, NULL, "rm -rf kobench");
  shell_result r = shell(
      "brim --lang ko bench ko.yaml --device ref --batch-sizes 32 64 --steps 3 --no-ceilings "
      "--output-dir kobench");
  if (r.code != 0) fail_msg("%s%s", r.out, r.err);
  assert_non_null(strstr(r.out, "배치"));
  assert_non_null(strstr(r.out, "샘플/s"));
  const char *rule = strstr(r.out, "\n─");
  assert_non_null(rule);
  // The last column, 상태, begins behind two blanks in the heading and in every row.
  const char *head = rule;
  while (head > r.out && head[-1] != '\n') head--;
  char line[512];
  snprintf(line, sizeof line, "%.*s", (int)(rule - head), head);
  char *last = strstr(line, "  상태");
  assert_non_null(last);
  last[2] = '\0';
  int column = brim_utf8_width(line);
  const char *row = strchr(rule + 1, '\n') + 1;
  int rows = 0;
  for (; *row && *row != '\n'; row = strchr(row, '\n') + 1, rows++) {
    snprintf(line, sizeof line, "%.*s", (int)strcspn(row, "\n"), row);
    char *status = strstr(line, "  정상");
    if (!status) status = strstr(line, "  불안정");
    if (!status) fail_msg("no status in '%s'", line);
    status[2] = '\0';
    assert_int_equal(brim_utf8_width(line), column);
  }
  assert_true(rows >= 2);
  shell_free(&r);
  char *page = NULL;
  size_t size;
  assert_ok(brim_fs_read("kobench/report.html", 0, &page, &size));
  assert_true(brim_utf8_valid(page, size));
  assert_non_null(strstr(page, "<html lang=\"ko\">"));
  assert_non_null(strstr(page, "모든 세팅"));
  assert_null(strstr(page, "All settings"));
  brim_free(page);
}

// Output for programs and for brim's own use is the same in both languages, so either can resume a run of the other.
static void test_train_and_resume(void **state) {
  (void)state;
  write_file("ko.yaml", small);
  expect(0, NULL, "rm -rf korun");
  expect(0, "완료:", "brim --lang ko train ko.yaml --device ref --max-steps 2 --output-dir korun");
  says_rows(0, "done: ", "brim train ko.yaml --device ref --resume --output-dir korun");
  says(2, "brim --lang ko train absent.yaml");
  says(2,
       "printf 'data:\\n  batch_sise: 3\\n' > wrong.yaml; brim --lang ko config check wrong.yaml");
}

// Labels are complete, a particle fits the word before it, and tables have Korean headings.
static void test_wording(void **state) {
  (void)state;
  write_file("ko.yaml", small);
  expect(0, NULL, "rm -rf kowords ko.h5");
  shell_result r = shell("brim --lang ko train ko.yaml --device ref --output-dir kowords 2>&1");
  if (r.code != 0) fail_msg("%s", r.out);
  said_rows(&r, "  모델  ");
  said_rows(&r, "  검증 정확도  ");
  assert_null(strstr(r.out, "(가)"));
  assert_null(strstr(r.out, "(를)"));
  assert_null(strstr(r.out, "(으)"));
  shell_free(&r);
  says_rows(0, "  정밀도  ", "brim --lang ko eval kowords/best.safetensors --device ref");
  // a row whose name is also known to the run (BRIM_PLAN_STATISTICS)
  expect(0, "이동 통계 ",
         "brim --lang ko bench 'dataset=synthetic(shape=(8, 8, 3), samples=64)' "
         "'model=resnet18(width=2)' --device ref --plan --batch-sizes 4 8");
  expect(0, NULL, "brim data make ko.h5 --shape 4,4 --samples 10 --classes 2");
  says_rows(0, "데이터셋  ", "brim --lang ko data info ko.h5");
  r = shell("brim --lang ko version");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "(으)로"));
  shell_free(&r);
  char *page = NULL;
  size_t size;
  expect(0, NULL, "rm -rf kowordsbench");
  expect(0, NULL,
         "brim --lang ko bench ko.yaml --device ref --batch-sizes 32 --steps 2 --no-ceilings "
         "--output-dir kowordsbench");
  assert_ok(brim_fs_read("kowordsbench/report.html", 0, &page, &size));
  assert_non_null(strstr(page, "<title>mlp, 샘플 256개 (8x8 u8)</title>"));
  brim_free(page);
  // files for programs stay English
  expect(0, NULL, "grep -q 'mlp on 256 samples of 8x8 u8' kowordsbench/*.jsonl");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choice),           cmocka_unit_test(test_help_fits),
      cmocka_unit_test(test_json_is_the_same), cmocka_unit_test(test_bench),
      cmocka_unit_test(test_train_and_resume), cmocka_unit_test(test_wording),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
