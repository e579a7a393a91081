// Learning on real images, from files as users have them: configs/mnist-mlp.yaml on 2000 digits of MNIST, and a small
// convnet on 200 JPEG files of CIFAR-10, both on the best CPU backend.
#include "e2e/e2e.h"

#define DATA BRIM_SOURCE_DIR "/tests/data"

// Reads a column of log.csv's last row.
static double last_value(const char *path, const char *column) {
  char *csv = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &csv, &size));
  char *row = csv + size - 1;
  while (row > csv && row[-1] != '\n') row--;
  const char *found = strstr(csv, column);
  assert_non_null(found);
  for (const char *p = csv; p < found; p++) {
    if (*p != ',') continue;
    row = strchr(row, ',');
    assert_non_null(row);
    row++;
  }
  double value = strtod(row, NULL);
  brim_free(csv);
  return value;
}

static void train(const char *const *args, const char *folder) {
  char command[64], *output = NULL;
  if (!brim_fs_exists(BRIM_BUILD_DIR "/lib/brim/libbrim_cpu.so")) {
    BRIM_SKIP("the cpu plug-in is not built");
  }
  snprintf(command, sizeof command, "rm -rf %s", folder);
  assert_int_equal(system(command), 0);
  int code = e2e_run(args, NULL, &output);
  if (code) fail_msg("exit %d: %s", code, output);
  brim_free(output);
}

// The seed selects one of the two.
static bool is_digits_turn(void) { return test_is_sampled(0, 2); }

static void test_mnist(void **state) {
  (void)state;
  if (!is_digits_turn()) return;
  const char *const args[] = {"train",
                              BRIM_SOURCE_DIR "/configs/mnist-mlp.yaml",
                              "--data-path",
                              DATA "/mnist",
                              "--epochs",
                              "3",
                              "--batch-size",
                              "50",
                              "optimizer.lr=0.002",
                              "--device",
                              "cpu",
                              "--output-dir",
                              "mnist",
                              "--quiet",
                              NULL};
  train(args, "mnist");
  double accuracy = last_value("mnist/log.csv", "eval_accuracy");
  printf("MNIST: test accuracy %.3f after 3 epochs of 2000 digits\n", accuracy);
  assert_true(accuracy >= 0.88);
}

static void test_cifar10(void **state) {
  (void)state;
  if (is_digits_turn() && !test_is_full()) return;
  const char *const args[] = {"train",
                              "--data-path",
                              DATA "/cifar10",
                              "model=resnet18(width=8)",
                              "optimizer=adam(lr=0.003)",
                              "--epochs",
                              "4",
                              "--threads",
                              "1",
                              "--batch-size",
                              "20",
                              "--device",
                              "cpu",
                              "--precision",
                              "fp32",
                              "--output-dir",
                              "cifar10",
                              "--quiet",
                              NULL};
  train(args, "cifar10");
  double accuracy = last_value("cifar10/log.csv", "train_accuracy");
  printf("CIFAR-10: training accuracy %.3f after 4 epochs of 200 images\n", accuracy);
  assert_true(accuracy >= 0.4);  // guessing is 0.1
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mnist),
      cmocka_unit_test(test_cifar10),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
