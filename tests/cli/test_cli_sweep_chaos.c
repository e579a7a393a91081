// `brim sweep chaos`: 16 executors of real trainings, killed and stopped with their sweep at random
// moments, on the kind of store the program is called with; or, with "pool", 16 workers and their server over
// a network that fails. 20 seconds, or two minutes for `make test-all`. BRIM_CHAOS_SEED repeats a run.
#include <time.h>
#include <unistd.h>

#include "cli_test.h"

static const char *store = "sqlite";
static bool pool;

static int64_t number(const json_t *report, const char *key) {
  const json_t *value = json_object_get(report, key);
  if (!json_is_integer(value)) fail_msg("the report has no number '%s'", key);
  return json_integer_value(value);
}

// The PostgreSQL server is the test's own, and so is its database.
static void store_words(char *out, size_t size) {
  const char *url = getenv("BRIM_TEST_POSTGRES");
  out[0] = '\0';
  if (strcmp(store, "postgres") != 0) return;
  if (!url) BRIM_SKIP("BRIM_TEST_POSTGRES names no server");
  snprintf(out, size, "--store '%s'", url);
}

static void test_nothing_is_lost(void **state) {
  char words[600];
  const char *seed = getenv("BRIM_CHAOS_SEED");
  json_t *report = NULL;
  (void)state;
  store_words(words, sizeof words);
  shell_limit_ms = 800000;
  double minutes = test_is_full() ? 2.0 : 20.0 / 60;
  shell_result r = shell(
      "rm -rf chaos-%s%d; brim sweep chaos --json --output-dir chaos-%s%d "
      "--minutes %.4f --seed %s %s %s",
      store, pool, store, pool, minutes, seed ? seed : "$(date +%s)", words,
      pool ? "--workers 16" : "");
  const char *line = strstr(r.out, "{\"event\":\"chaos\"");
  if (!line) fail_msg("exit %d, no report\n%s\n%s", r.code, r.out, r.err);
  assert_ok(brim_json_parse(line, strcspn(line, "\n"), "report", &report));
  if (r.code != 0 || number(report, "violations") != 0)
    fail_msg("exit %d\n%s\n%s", r.code, line, r.err);
  // it did something: experiments were interrupted and ran again
  assert_true(number(report, "experiments") >= 48);
  assert_true(number(report, "attempts") > number(report, "experiments"));
  assert_true(number(report, "executors_killed") > 0);
  if (pool) {
    assert_true(number(report, "workers_killed") > 0);
    expect(1, NULL, "test -e runs");  // everything is in the folder of the test
    assert_true(number(report, "replies_dropped") + number(report, "requests_doubled") > 0);
  }
  printf("%.*s\n", (int)strcspn(line, "\n"), line);
  json_decref(report);
  shell_free(&r);
  expect(0, NULL, pool ? "rm -rf chaos-*1" : "rm -rf chaos-*0");
}

int main(int argc, char **argv) {
  if (argc > 1) store = argv[1];
  pool = argc > 2 && strcmp(argv[2], "pool") == 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_is_lost)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
