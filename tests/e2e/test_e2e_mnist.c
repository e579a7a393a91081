// Real learning on the real MNIST files: a shorter version of configs/mnist-mlp.yaml reaches 97 %
// in two epochs on the best CPU backend. Skipped where the files are not.
#include "e2e/e2e.h"

#define DATA BRIM_SOURCE_DIR "/../shared/data"

static void test_two_epochs_of_mnist(void **state) {
  (void)state;
  if (!brim_fs_exists(DATA "/train-images-idx3-ubyte.gz")) BRIM_SKIP("no MNIST files at " DATA);
  if (!brim_fs_exists(BRIM_BUILD_DIR "/lib/brim/libbrim_cpu.so")) BRIM_SKIP("no cpu plug-in");
  assert_int_equal(system("rm -rf run"), 0);
  const char *const args[] = {"train",        BRIM_SOURCE_DIR "/configs/mnist-mlp.yaml",
                              "--data-path",  DATA,
                              "--epochs",     "2",
                              "--device",     "cpu",
                              "--output-dir", "run",
                              "--quiet",      NULL};
  char *output = NULL;
  int code = e2e_run(args, NULL, &output);
  if (code) fail_msg("exit %d: %s", code, output);
  brim_free(output);
  char *csv = NULL;
  size_t size;
  assert_ok(brim_fs_read("run/log.csv", 0, &csv, &size));
  // eval_accuracy is the seventh field of the last row
  char *row = csv + size - 1;
  while (row > csv && row[-1] != '\n') row--;
  for (int i = 0; i < 6; i++) {
    row = strchr(row, ',');
    assert_non_null(row);
    row++;
  }
  double accuracy = strtod(row, NULL);
  printf("test accuracy after 2 epochs: %.4f\n", accuracy);
  assert_true(accuracy >= 0.97);
  brim_free(csv);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_epochs_of_mnist)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
