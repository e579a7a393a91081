// `brim sweep chaos`: 16 executors of real trainings, killed and stopped with their sweep at random
// moments, on the kind of store the program is called with; or, with "pool", 16 workers and their server over
// a network that fails. With "disk" one write in 400 fails, too. 20 seconds, or two minutes for `make test-night`. BRIM_CHAOS_SEED repeats a run.
#include <time.h>
#include <unistd.h>

#include "cli_test.h"

static const char *store = "sqlite";
static bool pool, disk;

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
  char folder[32], preload[3000] = "", here[1024];
  snprintf(folder, sizeof folder, "chaos-%s%d%d", store, pool, disk);
  if (disk) {
    assert_non_null(getcwd(here, sizeof here));
    snprintf(preload, sizeof preload,
             "FAILING_DISK='%s/%s' FAILING_DISK_ONE_IN=400 LD_PRELOAD='" FAILING_DISK "'", here,
             folder);
  }
  shell_result r =
      shell("rm -rf %s; %s brim sweep chaos --json --output-dir %s --minutes %.4f --seed %s %s %s",
            folder, preload, folder, minutes, seed ? seed : "$(date +%s)", words,
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
  if (disk) {
    uint64_t failed = 0;
    snprintf(words, sizeof words, "%s/failed", folder);
    assert_ok(brim_fs_size(words, &failed));
    assert_true(failed > 0);
    printf("%d writes failed\n", (int)failed);
  }
  // the store takes every report of every attempt
  snprintf(words, sizeof words, "find %s -name '*.bad' | grep .", folder);
  expect(1, NULL, words);
  printf("%.*s\n", (int)strcspn(line, "\n"), line);
  json_decref(report);
  shell_free(&r);
  snprintf(words, sizeof words, "rm -rf %s", folder);
  expect(0, NULL, words);
}

int main(int argc, char **argv) {
  if (argc > 1) store = argv[1];
  for (int i = 2; i < argc; i++) {
    pool = pool || strcmp(argv[i], "pool") == 0;
    disk = disk || strcmp(argv[i], "disk") == 0;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_is_lost)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
