// `brim report`: pages of stores, of exports and of other folders; its output, and mistakes.
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_test.h"
#include "lab_stores.h"

static const lab_result rates[] = {
    {"0.1", 0, 0.80}, {"0.1", 1, 0.82}, {"0.01", 0, 0.90}, {"0.01", 1, 0.92}, {"1", 0, NAN},
};

static int setup(void **state) {
  (void)state;
  if (system("rm -rf runs out.html x.html odd.html bench train empty") != 0) return 1;
  assert_ok(brim_fs_mkdirs("runs"));
  lab_store_make("runs/rates", rates, sizeof rates / sizeof *rates);
  return 0;
}

static char *read_text(const char *path) {
  char *text = NULL;
  size_t size = 0;
  assert_ok(brim_fs_read(path, 1 << 24, &text, &size));
  return text;
}

static void test_page_of_a_store(void **state) {
  (void)state;
  says(0, "brim report runs/rates");
  char *page = read_text("runs/rates/report.html");
  has(page, "<h1>rates</h1>");
  has(page, "learning_rate <b>0.01</b>");  // the workload declares that higher accuracy is better
  has(page, "93.00 \xc2\xb1 1.41 %");
  has(page, "best value of a run");
  has(page, "the loss is nan");
  has(page, "loss nan");
  has(page, "brim report runs/rates");
  brim_free(page);
  expect(0, NULL, "brim report runs/rates --value last -o out.html");
  page = read_text("out.html");
  has(page, "91.00 \xc2\xb1 1.41 %");
  has(page, "last value of a run");
  brim_free(page);
}

static void test_newest_store(void **state) {
  (void)state;
  lab_store_make("runs/later", rates, 1);
  expect(0, "runs/later/report.html: experiments: 1", "brim report");
  expect(0, NULL, "touch -d '1 hour ago' runs/later/lab.sqlite");
  expect(0, "runs/rates/report.html: experiments: 5", "brim report");
}

static void test_other_repetitions(void **state) {
  (void)state;
  says(0, "brim report runs/rates --over lr -o out.html");  // by an alias
  says(0, "brim report runs/rates --over lr --over seed -o out.html");
}

static void test_json_and_stdout(void **state) {
  (void)state;
  shell_result r = shell("brim report runs/rates --json");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 1);
  has(r.out, "\"event\":\"report\"");
  has(r.out, "\"experiments\":5");
  has(r.out, "\"done\":4");
  has(r.out, "\"output\":\"runs/rates/report.html\"");
  shell_free(&r);
  r = shell("brim report runs/rates --out -");
  assert_int_equal(r.code, 0);
  assert_int_equal(strncmp(r.out, "<!DOCTYPE html>", 15), 0);
  shell_free(&r);
  expect(1, NULL, "brim report runs/rates --out - > /dev/full");
}

static brim_status put_line(void *ctx, const char *line) {
  brim_str_printf(ctx, "%s\n", line);
  return BRIM_OK;
}

static void test_page_of_an_export(void **state) {
  (void)state;
  brim_store *store = NULL;
  brim_str text;
  brim_str_init(&text);
  assert_ok(brim_store_open("runs/rates", &(brim_store_options){.readonly = true}, &store));
  assert_ok(brim_store_export(store, NULL, put_line, &text));
  brim_store_close(store);
  assert_ok(brim_fs_write("x.jsonl", text.data, text.len));
  expect(0, "x.html: experiments: 5", "brim report x.jsonl");
  char *page = read_text("x.html");
  has(page, "93.00 \xc2\xb1 1.41 %");
  brim_free(page);
  assert_ok(brim_fs_write("x.jsonl", text.data, text.len - 20));
  says(0, "brim report x.jsonl");
  expect(0, "x.html: experiments: 4", "brim report x.jsonl");
  brim_str_deinit(&text);
}

static void test_korean(void **state) {
  (void)state;
  says(0, "brim --lang ko report runs/rates");
  char *page = read_text("runs/rates/report.html");
  has(page, "<html lang=\"ko\">");
  brim_free(page);
}

static void test_folders_of_other_commands(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("bench"));
  assert_ok(brim_fs_mkdirs("train"));
  write_file("bench/results.jsonl", "{\"schema\": \"brim.result/1\"}\n");
  write_file("train/log.jsonl", "{}\n");
  says(2, "brim report bench");
  write_file("bench/report.html", "<p>page</p>");
  says(0, "brim report bench");
  char *page = read_text("bench/report.html");
  assert_string_equal(page, "<p>page</p>");  // and did not change it
  brim_free(page);
  says(2, "brim report train");
}

static void test_mistakes(void **state) {
  (void)state;
  write_file("odd.jsonl", "{\"schema\": \"brim.experiment/1\", \"id\": \"a\"}\n");
  write_file("plain.txt", "text\n");
  const char *const rows[][2] = {
      {"a report is of one store", "brim report runs/rates runs/rates"},
      {"there is no nowhere", "brim report nowhere"},
      {"is no export of experiments", "brim report plain.txt"},
      {"odd.jsonl:1", "brim report odd.jsonl"},
      {"--value", "brim report runs/rates --value median"},
      {"not a regular file", "brim report runs/rates --out runs"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) says(2, rows[i][1]);
  assert_false(has_file("odd.html"));
  expect(2, "name a store", "rm -rf runs && brim report");
}

// Reading must neither create nor change a store.
static void test_nothing_else_changes(void **state) {
  (void)state;
  struct stat before, after;
  assert_ok(brim_fs_mkdirs("empty"));
  expect(2, NULL, "brim report empty");
  assert_false(has_file("empty/lab.sqlite"));
  assert_int_equal(stat("runs/rates/lab.sqlite", &before), 0);
  expect(0, NULL, "brim report runs/rates");
  assert_int_equal(stat("runs/rates/lab.sqlite", &after), 0);
  assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
  assert_int_equal(before.st_size, after.st_size);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_page_of_a_store, setup),
      cmocka_unit_test_setup(test_newest_store, setup),
      cmocka_unit_test_setup(test_other_repetitions, setup),
      cmocka_unit_test_setup(test_json_and_stdout, setup),
      cmocka_unit_test_setup(test_page_of_an_export, setup),
      cmocka_unit_test_setup(test_korean, setup),
      cmocka_unit_test_setup(test_folders_of_other_commands, setup),
      cmocka_unit_test_setup(test_mistakes, setup),
      cmocka_unit_test_setup(test_nothing_else_changes, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
