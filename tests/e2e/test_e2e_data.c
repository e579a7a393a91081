// Data as a user gives it: a file alone, a folder with broken images, two views; the output and the logs.
#include "e2e/e2e.h"

#include <hdf5.h>
#include <png.h>
#include <stdlib.h>

static void remove_folder(const char *folder) {
  char command[256];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  assert_int_equal(system(command), 0);
}

static void put_array(hid_t file, const char *name, hsize_t rows, hsize_t width,
                      const float *data) {
  const hsize_t dim[] = {rows, width};
  hid_t space = H5Screate_simple(2, dim, NULL);
  hid_t set =
      H5Dcreate2(file, name, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(set >= 0);
  assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Dclose(set);
  H5Sclose(space);
}

enum { ROWS = 300, WIDTH = 64 };

static void write_signals(const char *path) {
  static float x[ROWS * WIDTH], y[ROWS * 2];
  uint32_t r = 1;
  for (int i = 0; i < ROWS * WIDTH; i++) {
    r = r * 1664525u + 1013904223u;
    x[i] = (float)(r >> 8) / (float)(1 << 24) - 0.5f;
    y[i / WIDTH * 2 + i % 2] += x[i];
  }
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  put_array(file, "inputs", ROWS, WIDTH, x);
  put_array(file, "targets", ROWS, 2, y);
  H5Fclose(file);
}

static void has(const char *text, const char *words) {
  if (!strstr(text, words)) fail_msg("'%s' does not say '%s'", text, words);
}

enum { MOST_ARGS = 32 };

// Runs brim train on signals.h5 with a model for signals and further arguments; *out gets its output.
static void train_signals(const char *const *more, char **out) {
  static const char *const common[] = {"train",        "--data-path",
                                       "signals.h5",   "--device",
                                       "ref",          "--output-dir",
                                       "h5",           "model=transformer(depth=1, hidden=16)",
                                       "--batch-size", "32"};
  const char *args[MOST_ARGS] = {NULL};
  size_t n = sizeof common / sizeof *common;
  memcpy(args, common, sizeof common);
  for (; *more && n + 1 < MOST_ARGS; more++) args[n++] = *more;
  assert_int_equal(e2e_run(args, NULL, out), 0);
}

static void test_a_file_alone(void **state) {
  (void)state;
  char *out = NULL;
  write_signals("signals.h5");
  remove_folder("h5");
  train_signals((const char *const[]){"--epochs", "1", NULL}, &out);
  has(out, "300 samples to train on");
  has(out, "epoch 1/1");
  has(out, "data.val_fraction=0.1");  // there is no validation set, and the message has a remedy
  has(out, "  loading    read ");
  brim_free(out);
  assert_true(brim_fs_exists("h5/model.safetensors"));
  // resumed without a difference
  train_signals((const char *const[]){"--epochs", "2", "--resume", "--json", NULL}, &out);
  has(out, "\"read_ms\"");
  has(out, "\"cache\"");
  assert_null(strstr(out, "was written with samples"));
  brim_free(out);
  // other data under the same name are reported
  train_signals(
      (const char *const[]){"dataset=hdf5(part=(0, 0.5))", "--epochs", "3", "--resume", NULL},
      &out);
  has(out, "was written with samples 300, this run uses 150");
  brim_free(out);
}

static void write_png(const char *path, uint8_t shade) {
  uint8_t pixels[8 * 8 * 3];
  for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(shade + i % 16);
  png_image image = {
      .version = PNG_IMAGE_VERSION, .width = 8, .height = 8, .format = PNG_FORMAT_RGB};
  assert_int_not_equal(png_image_write_to_file(&image, path, 0, pixels, 0, NULL), 0);
}

static void write_folder(void) {
  static const char *const classes[] = {"dark", "light"};
  for (int c = 0; c < 2; c++) {
    char path[64];
    snprintf(path, sizeof path, "images/%s", classes[c]);
    assert_ok(brim_fs_mkdirs(path));
    for (int i = 0; i < 12; i++) {
      snprintf(path, sizeof path, "images/%s/%02d.png", classes[c], i);
      write_png(path, c ? 200 : 20);
    }
  }
  char *data = NULL;
  size_t size = 0;
  assert_ok(brim_fs_read("images/dark/07.png", 0, &data, &size));
  assert_ok(brim_fs_write("images/dark/07.png", data, size - 20));
  brim_free(data);
}

static void test_a_broken_image(void **state) {
  (void)state;
  char *out = NULL;
  remove_folder("images");
  write_folder();
  remove_folder("folder");
  const char *const fails[] = {"train", "--data-path",  "images", "--epochs",     "1", "--device",
                               "ref",   "--output-dir", "folder", "--batch-size", "4", NULL};
  assert_int_equal(e2e_run(fails, NULL, &out), 1);
  has(out, "dark/07.png");
  brim_free(out);
  remove_folder("folder");
  const char *const skips[] = {"train",  "--data-path",  "images", "--epochs",
                               "2",      "--device",     "ref",    "--output-dir",
                               "folder", "--batch-size", "4",      "data.on_error=skip",
                               NULL};
  assert_int_equal(e2e_run(skips, NULL, &out), 0);
  has(out, "1 sample could not be read and was skipped, in 2 reads: ");
  has(out, "dark/07.png");
  has(out, "skipped");
  brim_free(out);
}

static void test_two_views(void **state) {
  (void)state;
  char *out = NULL;
  remove_folder("views");
  const char *const args[] = {"train",
                              "dataset=synthetic(shape=(8, 8, 3), samples=40)",
                              "transform=views | random_resized_crop(size=8) | random_flip",
                              "model=simclr(backbone=resnet18(width=2), hidden=8, dim=4)",
                              "loss=ntxent",
                              "data.slow_transform_ms=0",
                              "--batch-size",
                              "8",
                              "--epochs",
                              "2",
                              "--device",
                              "ref",
                              "--output-dir",
                              "views",
                              NULL};
  assert_int_equal(e2e_run(args, NULL, &out), 0);
  has(out, "40 samples to train on");
  has(out, "epoch 2/2");
  has(out, "transform random_resized_crop takes ");
  assert_null(strstr(out, " acc "));
  assert_null(strstr(out, "val"));
  brim_free(out);
  // its encoder can start a network with labels
  remove_folder("tuned");
  const char *const tune[] = {"train",
                              "dataset=synthetic(shape=(8, 8, 3), samples=40)",
                              "model=resnet18(width=2)",
                              "--weights",
                              "views/model.safetensors",
                              "--epochs",
                              "1",
                              "--device",
                              "ref",
                              "--output-dir",
                              "tuned",
                              NULL};
  assert_int_equal(e2e_run(tune, NULL, &out), 0);
  has(out, "views/model.safetensors: brim loads the weights of its backbone; the last layer, fc,");
  has(out, "epoch 1/1");
  brim_free(out);
}

// The cache is a knob that is swept only if the user asks for it.
static void test_bench_sweeps_the_cache(void **state) {
  (void)state;
  char *out = NULL;
  remove_folder("bench");
  const char *const args[] = {"bench",
                              "dataset=synthetic(shape=(8, 8, 3), samples=64)",
                              "model=mlp(depth=1, hidden=8)",
                              "--batch-sizes",
                              "16",
                              "--num-workers",
                              "0",
                              "--precisions",
                              "fp32",
                              "--cache",
                              "none",
                              "ram",
                              "--steps",
                              "3",
                              "--device",
                              "ref",
                              "--output-dir",
                              "bench",
                              NULL};
  assert_int_equal(e2e_run(args, NULL, &out), 0);
  has(out, "2 settings");
  has(out, "cache none ram");
  brim_free(out);
  const char *const plain[] = {"bench",
                               "dataset=synthetic(shape=(8, 8, 3), samples=64)",
                               "model=mlp(depth=1, hidden=8)",
                               "--batch-sizes",
                               "16",
                               "--plan",
                               "--device",
                               "ref",
                               NULL};
  assert_int_equal(e2e_run(plain, NULL, &out), 0);
  assert_null(strstr(out, "cache none"));
  brim_free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_file_alone),
      cmocka_unit_test(test_a_broken_image),
      cmocka_unit_test(test_two_views),
      cmocka_unit_test(test_bench_sweeps_the_cache),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
