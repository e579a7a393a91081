// A sweep of the sweep's own best.yaml, and two sweeps that want one folder.
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
  assert_non_null(strstr(output, "another run writes to this folder"));
  brim_free(output);
  brim_fs_unlock(lock);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_sweep_of_its_own_result),
      cmocka_unit_test(test_one_sweep_per_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
