// A sweep of the sweep's own best.yaml, and two sweeps that use the same folder.
#include "e2e/e2e.h"

static const char *const sweep[] = {"bench",
                                    "dataset=synthetic(shape=(4, 4), samples=200)",
                                    "model=mlp(depth=1, hidden=8)",
                                    "--batch-sizes",
                                    "16",
                                    "--num-workers",
                                    "0",
                                    "--precisions",
                                    "fp32",
                                    "--steps",
                                    "3",
                                    "--no-ceilings",
                                    "--no-price",
                                    "--device",
                                    "ref",
                                    "--output-dir",
                                    "swept",
                                    "--quiet",
                                    NULL};

static int run(const char *const *args) {
  char *output = NULL;
  int code = e2e_run(args, NULL, &output);
  if (code) printf("%s\n", output);
  brim_free(output);
  return code;
}

static void test_a_sweep_of_its_own_result(void **state) {
  (void)state;
  assert_int_equal(system("rm -rf swept"), 0);
  assert_int_equal(run(sweep), 0);
  // a noisy machine may have no stable setting, and then no best.yaml: any config will do
  if (!brim_fs_exists("swept/best.yaml")) {
    static const char config[] = "dataset: synthetic(shape=(4, 4), samples=200)\n";
    assert_ok(brim_fs_write("swept/best.yaml", config, sizeof config - 1));
  }
  const char *const again[] = {"bench",         "swept/best.yaml",
                               "--batch-sizes", "16",
                               "--num-workers", "0",
                               "--precisions",  "fp32",
                               "--steps",       "3",
                               "--device",      "ref",
                               "--output-dir",  "swept",
                               "--quiet",       NULL};
  assert_int_equal(run(again), 0);
  assert_true(brim_fs_exists("swept/best-1.yaml"));
  assert_true(brim_fs_exists("swept/results-1.jsonl"));
  assert_true(brim_fs_exists("swept/best.yaml"));
  assert_false(brim_fs_exists("swept/lock"));
}

static void test_one_sweep_per_folder(void **state) {
  (void)state;
  brim_fs_lockfile *lock = NULL;
  assert_ok(brim_fs_mkdirs("swept"));
  assert_ok(brim_fs_lock("swept/lock", &lock));
  char *output = NULL;
  assert_int_equal(e2e_run(sweep, NULL, &output), 2);
  assert_non_null(strstr(output, "another run is writing to this folder"));
  brim_free(output);
  brim_fs_unlock(lock);
}

// A sweep skips a batch that the set cannot fill; on its own such a batch is bad input.
static void test_batches_beyond_the_set(void **state) {
  (void)state;
  static const struct {
    const char *batches[2];
    int code;
    const char *said;
  } cases[] = {
      {{"16", "512"}, 0, "the set has 200 samples, fewer than one batch of 512; not run"},
      {{"512", "1024"}, 2, "error: the set has 200 samples, fewer than one batch of 512; not run"}};
  const char *args[E2E_MAX_ARGS] = {NULL};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n = 0;
    for (const char *const *a = sweep; *a; a++) {
      if (strcmp(*a, "--quiet") == 0) continue;
      bool batches = strcmp(*a, "16") == 0;
      args[n++] = batches ? cases[i].batches[0] : *a;
      if (batches) args[n++] = cases[i].batches[1];
    }
    args[n] = NULL;
    char *output = NULL;
    assert_int_equal(e2e_run(args, NULL, &output), cases[i].code);
    // the table wraps
    for (char *c = output; *c; c++) {
      size_t blank = strspn(c, " \n");
      if (blank > 1) memmove(c + 1, c + blank, strlen(c + blank) + 1);
      if (blank) *c = ' ';
    }
    if (!strstr(output, cases[i].said)) fail_msg("'%s' is not in: %s", cases[i].said, output);
    brim_free(output);
  }
  // no size is given: sizes that a small set can fill are tried
  const char *const small[] = {"bench",
                               "dataset=synthetic(shape=(4, 4), samples=20)",
                               "model=mlp(depth=1, hidden=8)",
                               "--steps",
                               "3",
                               "--no-ceilings",
                               "--no-price",
                               "--device",
                               "ref",
                               "--output-dir",
                               "swept",
                               NULL};
  assert_int_equal(run(small), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_sweep_of_its_own_result),
      cmocka_unit_test(test_one_sweep_per_folder),
      cmocka_unit_test(test_batches_beyond_the_set),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
