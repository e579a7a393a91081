// Data that an HDF5 file keeps in other files: every command refuses them unless the user allows it, and no command
// reports missing data as valid.
#include <hdf5.h>
#include <unistd.h>

#include "cli_test.h"

enum { ROWS = 24, WIDTH = 4 };

// Writes x (ROWS, WIDTH) with its bytes in `other`, and y of 2 classes in the file itself.
static void external_file(const char *path, const char *other) {
  const hsize_t dim[2] = {ROWS, WIDTH};
  uint8_t y[ROWS];
  for (int i = 0; i < ROWS; i++) y[i] = (uint8_t)(i % 2);
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hid_t space = H5Screate_simple(2, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_external(made, other, 0, ROWS * WIDTH) >= 0);
  hid_t x = H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
  hid_t rows = H5Screate_simple(1, dim, NULL);
  hid_t labels = H5Dcreate2(file, "y", H5T_STD_U8LE, rows, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(x >= 0 && labels >= 0);
  assert_true(H5Dwrite(labels, H5T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, y) >= 0);
  H5Dclose(labels);
  H5Dclose(x);
  H5Sclose(rows);
  H5Pclose(made);
  H5Sclose(space);
  assert_true(H5Fclose(file) >= 0);
}

// Makes the file's x and y virtual datasets over those of `other`.
static void virtual_file(const char *path, const char *other) {
  const hsize_t dim[2] = {ROWS, WIDTH};
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  for (int rank = 1; rank <= 2; rank++) {
    const char *name = rank == 1 ? "y" : "x";
    hid_t space = H5Screate_simple(rank, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_virtual(made, space, other, name, space) >= 0);
    hid_t d = H5Dcreate2(file, name, H5T_STD_U8LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
    assert_true(d >= 0);
    H5Dclose(d);
    H5Pclose(made);
    H5Sclose(space);
  }
  assert_true(H5Fclose(file) >= 0);
}

// Reads the first bytes of x in a packed file.
static void assert_first_row(const char *path, const char *expected) {
  uint8_t all[ROWS * WIDTH];
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t x = H5Dopen2(file, "train/x", H5P_DEFAULT);
  assert_true(x >= 0 && H5Dread(x, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
  assert_memory_equal(all, expected, WIDTH);
  H5Dclose(x);
  H5Fclose(file);
}

#define SECRET                                                                                     \
  "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nbin:x:2:2::/" \
  "bin\n"

static void test_external(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf set o.h5 out run && mkdir set");
  write_file("set/passwd", SECRET);
  external_file("set/e.h5", "passwd");
  static const char *const refusing[] = {
      "brim data info set/e.h5",
      "brim data verify set/e.h5",
      "brim data convert set/e.h5 o.h5",
      "brim init set/e.h5 -o o.yaml",
      "brim train --data-path set/e.h5 model=linear --epochs 1 --device ref --output-dir run",
  };
  for (size_t i = 0; i < sizeof refusing / sizeof *refusing; i++) {
    shell_result r = shell("%s", refusing[i]);
    assert_int_not_equal(r.code, 0);
    said(&r);
    assert_non_null(strstr(r.err, "--allow-external"));
    assert_null(strstr(r.out, "sound"));
    shell_free(&r);
  }
  assert_false(has_file("o.h5"));
  assert_false(has_file("o.yaml"));
  says(0, "brim data verify set/e.h5 --allow-external");
  expect(0, "external files", "brim data info set/e.h5 --allow-external");
  expect(0, NULL, "brim data convert set/e.h5 o.h5 --allow-external");
  assert_first_row("o.h5", "root");
  expect(0, NULL, "brim init set/e.h5 -o o.yaml --allow-external --device ref");
  expect(0, NULL, "grep -q 'allow_external: true' o.yaml");
  expect(0, NULL,
         "brim train --data-path set/e.h5 data.allow_external=true model=linear --epochs 1 "
         "--device ref --output-dir run");
  // A checkpoint does not contain the consent, because it may come from another machine.
  expect(2, "--allow-external",
         "brim predict --force run/last.safetensors --data-path set/e.h5 -o p.csv --device ref");
  expect(0, NULL,
         "brim predict --force run/last.safetensors --data-path set/e.h5 -o p.csv --device ref "
         "--allow-external && test -s p.csv");
  expect(0, NULL, "rm -rf set o.h5 o.yaml p.csv out run");
}

static void test_missing(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf v && mkdir v");
  virtual_file("v/v.h5", "part.h5");
  says(1, "brim data verify v/v.h5 --allow-external");
  expect(1, "part.h5", "brim data verify v/v.h5");
  shell_result r = shell("brim data info v/v.h5 --allow-external");
  assert_int_not_equal(r.code, 0);
  said(&r);
  shell_free(&r);
  expect(0, NULL, "brim data make v/made.h5 --shape 4 --classes 2 --samples 24 --test-samples 0");
  expect(0, NULL, "cp v/made.h5 v/part.h5");
  says(1, "brim data verify v/v.h5 --allow-external");
  expect(0, NULL, "rm -rf set && mkdir set && rm v/part.h5");
  external_file("v/part.h5", BRIM_BUILD_DIR "/bin/brim");
  says(0, "brim data verify v/v.h5 --allow-external");
  expect(0, NULL, "brim data convert v/v.h5 v/o.h5 --allow-external");
  assert_first_row("v/o.h5", "\177ELF");
  external_file("v/part.h5", "/nowhere/data.bin");
  says(1, "brim data verify v/v.h5 --allow-external");
  expect(0, NULL, "rm -rf v");
}

int main(void) {
  test_filter();
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_external),
      cmocka_unit_test(test_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
