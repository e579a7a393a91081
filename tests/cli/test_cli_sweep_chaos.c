// `brim sweep chaos`: 16 executors of real trainings, killed and stopped with their sweep at random moments, on the
// kind of store that the program's argument names; or, with "pool", 16 workers and their server over a network that
// fails. With "disk" one write in 400 fails, too. That takes two minutes and is for `make test-night`.
// Other runs take one of the kinds, chosen by the seed: 16 experiments and four executors or workers, disturbed for
// three seconds. BRIM_CHAOS_SEED repeats a run.
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

// The PostgreSQL server belongs to the test, and so does its database.
static void store_words(char *out, size_t size) {
  const char *url = getenv("BRIM_TEST_POSTGRES");
  out[0] = '\0';
  if (strcmp(store, "postgres") != 0) return;
  if (!url) BRIM_SKIP("BRIM_TEST_POSTGRES names no server");
  snprintf(out, size, "--store '%s'", url);
}

// Counts all disturbances of a run: kills, stops, interrupts, and requests that the network failed.
static int64_t disturbances(const json_t *report) {
  static const char *const keys[] = {
      "executors_killed",    "executors_stopped",   "trainings_killed", "sweeps_killed",
      "sweeps_stopped",      "sweeps_interrupted",  "full_disks",       "workers_killed",
      "workers_stopped",     "workers_interrupted", "servers_killed",   "servers_stopped",
      "servers_interrupted", "requests_dropped",    "requests_doubled", "replies_dropped",
      "replies_cut"};
  int64_t sum = 0;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) sum += number(report, keys[i]);
  return sum;
}

static void test_nothing_is_lost(void **state) {
  char words[600];
  const char *seed = getenv("BRIM_CHAOS_SEED");
  json_t *report = NULL;
  const bool full = test_is_full();
  (void)state;
  const int kind = (strcmp(store, "postgres") == 0 ? 0 : disk ? 2 : 1) * 2 + pool;
  if (!full && !seed && test_seed() % 6 != (uint64_t)kind) {
    BRIM_SKIP("the seed chose another kind of chaos; BRIM_TEST_FULL runs all");
  }
  store_words(words, sizeof words);
  shell_limit_ms = 800000;
  char folder[32], preload[3000] = "", here[1024];
  snprintf(folder, sizeof folder, "chaos-%s%d%d", store, pool, disk);
  if (disk) {
    assert_non_null(getcwd(here, sizeof here));
    snprintf(preload, sizeof preload,
             "FAILING_DISK='%s/%s' FAILING_DISK_ONE_IN=400 LD_PRELOAD='" FAILING_DISK "'", here,
             folder);
  }
  shell_result r = shell("rm -rf %s; %s brim sweep chaos --json --output-dir %s --seed %s %s %s %s",
                         folder, preload, folder, seed ? seed : "$(date +%s)", words,
                         full ? "--minutes 2" : "--minutes 0.05 --experiments 16 --executors 4",
                         !pool  ? ""
                         : full ? "--workers 16"
                                : "--workers 4");
  const char *line = strstr(r.out, "{\"event\":\"chaos\"");
  if (!line) fail_msg("exit %d, no report\n%s\n%s", r.code, r.out, r.err);
  assert_ok(brim_json_parse(line, strcspn(line, "\n"), "report", &report));
  if (r.code != 0 || number(report, "violations") != 0)
    fail_msg("exit %d\n%s\n%s", r.code, line, r.err);
  // the test did disturb: every kind in two minutes, and interrupted experiments ran again
  assert_true(number(report, "experiments") >= (full ? 48 : 16));
  assert_true(disturbances(report) > 0);
  if (full) {
    assert_true(number(report, "attempts") > number(report, "experiments"));
    assert_true(number(report, "executors_killed") > 0);
  }
  if (pool) {
    expect(1, NULL, "test -e runs");  // everything is in the folder of the test
  }
  if (pool && full) {
    assert_true(number(report, "workers_killed") > 0);
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
