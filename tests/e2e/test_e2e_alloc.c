// Allocations of `brim train` for two steps fail in turn: a clean error each time (exit code 4 and a message), never a
// crash, never a half-written checkpoint. One in twelve of them, or with BRIM_TEST_FULL every one.
#include "e2e/e2e.h"

extern char **environ;

static int train_with_failure(uint64_t nth, char **output) {
  static const char *const args[] = {"train",
                                     "dataset=synthetic(shape=(4, 4), classes=3, samples=40)",
                                     "model=mlp(depth=1, hidden=8, dropout=0.1, norm=layer)",
                                     "data.batch_size=8",
                                     "data.num_workers=1",
                                     "training.epochs=1",
                                     "--max-steps",
                                     "2",
                                     "--device",
                                     "ref",
                                     "--output-dir",
                                     "starved",
                                     "--quiet",
                                     NULL};
  const char *env[512];
  int n = 0;
  for (char **e = environ; *e && n < 500; e++) {
    if (!brim_str_starts(*e, "ASAN_OPTIONS=")) env[n++] = *e;
  }
  char setting[64];
  snprintf(setting, sizeof setting, "BRIM_ALLOC_FAIL=%llu", (unsigned long long)nth);
  env[n++] = setting;
  // a thousand leak checks would take seconds each; test_cli_alloc looks for leaks in one process
  env[n++] = "ASAN_OPTIONS=detect_leaks=0";
  env[n++] = "BRIM_PLUGIN_PATH=none";  // only ref: opening a GPU each time would take minutes
  env[n] = NULL;
  assert_int_equal(system("rm -rf starved"), 0);
  return e2e_run(args, env, output);
}

// Some allocations may fail without harm (the best-effort sync of a folder), so one success does not mean that the last
// allocation is passed: this many in a row do.
enum { CLEAN_RUNS = 50, STRIDE = 12 };

static void check_failure(uint64_t nth, int code, const char *output) {
  if (code != 4 || !output || !strstr(output, "brim: error:")) {
    fail_msg("allocation %llu: exit %d, output: %s", (unsigned long long)nth, code, output);
  }
  if (!brim_fs_exists("starved")) return;
  char **names = NULL;
  size_t count = 0;
  assert_ok(brim_fs_list("starved", &names, &count));
  for (size_t i = 0; i < count; i++) assert_null(strstr(names[i], ".tmp"));
  brim_fs_list_free(names, count);
}

static void test_every_allocation_may_fail(void **state) {
  (void)state;
  uint64_t failed = 0, last = 0, stride = test_is_full() ? 1 : STRIDE;
  for (uint64_t n = 1; n - last <= CLEAN_RUNS * (stride > 1 ? 2 : 1); n += stride) {
    char *output = NULL;
    int code = train_with_failure(n, &output);
    if (code != 0) {
      check_failure(n, code, output);
      last = n;
      failed++;
    }
    brim_free(output);
  }
  printf("%llu allocations failed in turn, the last was number %llu\n", (unsigned long long)failed,
         (unsigned long long)last);
  assert_true(failed * stride > 500);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
