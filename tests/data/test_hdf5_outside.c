// Data of an HDF5 file that are in other files: refused unless allowed, found beside the file, and reported if missing.
// libhdf5 on its own reads any path, and gives fill values for a missing one.
#include "hdf5_test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_fs.h"
#include "data/pack/data_pack.h"

#define ALLOWED "{\"allow_external\": true}"

//---------------------------------- making files ----------------------------------

static void put_file(const char *path, const void *data, size_t size) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, size, f), size);
  assert_int_equal(fclose(f), 0);
}

// x (rows, 4) has its bytes in another file, y is in the file.
static void external_file(const char *path, const char *other, hsize_t rows) {
  const hsize_t dim[2] = {rows, 4};
  hid_t file = create(path, 0, false), space = H5Screate_simple(2, dim, NULL);
  hid_t made = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_external(made, other, 0, rows * 4) >= 0);
  hid_t x = H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
  assert_true(x >= 0);
  H5Dclose(x);
  H5Pclose(made);
  H5Sclose(space);
  put_labels(file, "y", rows, 2);
  H5Fclose(file);
}

// Adds a virtual dataset `name`: `rows` rows of `other`, starting at row `from`.
static void put_virtual(hid_t file, const char *name, const char *other, const char *from, int rank,
                        hsize_t rows) {
  const hsize_t dim[2] = {rows, COLS};
  hid_t space = H5Screate_simple(rank, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_virtual(made, space, other, from, space) >= 0);
  hid_t x = H5Dcreate2(file, name, rank == 1 ? H5T_STD_I64LE : H5T_IEEE_F32LE, space, H5P_DEFAULT,
                       made, H5P_DEFAULT);
  assert_true(x >= 0);
  H5Dclose(x);
  H5Pclose(made);
  H5Sclose(space);
}

static void virtual_file(const char *path, const char *other) {
  hid_t file = create(path, 0, false);
  put_virtual(file, "x", other, "x", 2, ROWS);
  put_virtual(file, "y", other, "y", 1, ROWS);
  H5Fclose(file);
}

// A dataset made of blocks of 5 rows from part-0.h5, part-1.h5, ...: as many files as there are.
static void numbered_file(const char *path, const char *other) {
  const hsize_t dim[2] = {5, COLS}, most[2] = {H5S_UNLIMITED, COLS}, start[2] = {0, 0};
  const hsize_t stride[2] = {5, 1}, count[2] = {H5S_UNLIMITED, 1}, block[2] = {5, COLS};
  hid_t file = create(path, 0, true), space = H5Screate_simple(2, dim, most);
  hid_t part = H5Screate_simple(2, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block) >= 0);
  assert_true(H5Pset_virtual(made, space, other, "x", part) >= 0);
  hid_t x = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
  assert_true(x >= 0);
  H5Dclose(x);
  H5Pclose(made);
  H5Sclose(part);
  H5Sclose(space);
  H5Fclose(file);
}

static void part_file(const char *path, hsize_t rows) {
  hid_t file = create(path, 0, false);
  set x = floats("x", rows, COLS);
  put_set(file, &x, NULL);
  H5Fclose(file);
}

// Rows and labels equal those of the file at `path`.
static void assert_same_as(opened *o, const char *path) {
  float *expected = whole(path, "x");
  assert_int_equal(o->info.count, ROWS);
  assert_int_equal(o->info.classes, 5);
  compare(o, expected);
  for (uint64_t i = 0; i < ROWS; i++) {
    float row[COLS];
    int32_t label = -1;
    assert_ok(brim_source_hdf5.read(o->state, i, row, &label));
    assert_int_equal(label, (int32_t)(i % 5));
  }
  free(expected);
}

//---------------------------------- external storage ----------------------------------

static void test_external(void **state) {
  (void)state;
  opened o;
  uint8_t secret[8 * 4];
  for (size_t i = 0; i < sizeof secret; i++) secret[i] = (uint8_t)(i * 7 + 1);
  assert_ok(brim_fs_mkdirs("set"));
  put_file("set/secret.bin", secret, sizeof secret);
  external_file("set/e.h5", "secret.bin", 8);
  assert_refused("set/e.h5", "train", NULL, BRIM_EINVAL,
                 "/x is a dataset with data in another file, secret.bin; brim reads that only with "
                 "--allow-external");
  assert_refused("set/e.h5", "train", "{\"allow_external\": false}", BRIM_EINVAL,
                 "--allow-external");
  assert_refused("set/e.h5", "train", "{\"inputs\": \"x\", \"targets\": \"y\"}", BRIM_EINVAL,
                 "--allow-external");
  assert_refused("set/e.h5", "train", "{\"allow_external\": 1}", BRIM_EINVAL, "true or false");
  // The path of an external file is relative to the folder of its HDF5 file, not to the current folder.
  assert_ok(try_open("set/e.h5", "train", ALLOWED, &o));
  assert_int_equal(o.info.count, 8);
  for (uint64_t i = 0; i < 8; i++) {
    uint8_t row[4];
    int32_t label;
    assert_ok(brim_source_hdf5.read(o.state, i, row, &label));
    assert_memory_equal(row, secret + 4 * i, 4);
  }
  shut(&o);
  // An absolute path is taken as it is.
  char *here = realpath("set/secret.bin", NULL);
  assert_non_null(here);
  external_file("absolute.h5", here, 8);
  assert_refused("absolute.h5", "train", NULL, BRIM_EINVAL, here);
  assert_ok(try_open("absolute.h5", "train", ALLOWED, &o));
  shut(&o);
  free(here);
}

// libhdf5 reads missing bytes at the end of such a file as zeros.
static void test_external_missing(void **state) {
  (void)state;
  put_file("short.bin", "abcdefg", 7);
  external_file("short.h5", "short.bin", 8);
  assert_refused("short.h5", "train", ALLOWED, BRIM_EPARSE,
                 "short.bin: 32 bytes from offset 0 on, and the file has 7");
  external_file("gone.h5", "gone.bin", 8);
  assert_refused("gone.h5", "train", ALLOWED, BRIM_EPARSE, "gone.bin: the file does not exist");
  assert_int_equal(mkfifo("pipe", 0600), 0);  // no process ever writes to it
  external_file("pipe.h5", "pipe", 8);
  assert_refused("pipe.h5", "train", ALLOWED, BRIM_EPARSE, "pipe: not a regular file");
}

//---------------------------------- virtual datasets ----------------------------------

static void test_virtual(void **state) {
  (void)state;
  opened o;
  assert_ok(brim_fs_mkdirs("v"));
  plain_file("v/part.h5");
  virtual_file("v/v.h5", "part.h5");
  assert_refused("v/v.h5", "train", NULL, BRIM_EINVAL,
                 "/x is a dataset with data in another file, part.h5");
  // Labels are refused too: libhdf5 alone would return fill values for all of them.
  assert_ok(try_open("v/v.h5", "train", ALLOWED, &o));
  assert_same_as(&o, "v/part.h5");
  shut(&o);
  // Only the labels are in another file.
  hid_t file = create("v/y.h5", 0, false);
  set x = floats("x", ROWS, COLS);
  put_set(file, &x, NULL);
  put_virtual(file, "y", "part.h5", "y", 1, ROWS);
  H5Fclose(file);
  assert_refused("v/y.h5", "train", NULL, BRIM_EINVAL,
                 "/y is a dataset with data in another file, part.h5");
  assert_ok(try_open("v/y.h5", "train", ALLOWED, &o));
  assert_same_as(&o, "v/part.h5");
  shut(&o);
  // A view of datasets in the same file needs no permission.
  plain_file("own.h5");
  file = H5Fopen("own.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  put_virtual(file, "view", ".", "x", 2, ROWS);
  H5Fclose(file);
  float *expected = whole("own.h5", "x");
  assert_ok(try_open("own.h5", "train", "{\"inputs\": \"view\", \"targets\": \"y\"}", &o));
  compare(&o, expected);
  shut(&o);
  free(expected);
}

// A view of the own file over data in another file, and a view of a view.
static void test_virtual_nested(void **state) {
  (void)state;
  opened o;
  static const char *const view = "{\"inputs\": \"view\", \"targets\": \"y\"}";
  static const char *const allowed =
      "{\"inputs\": \"view\", \"targets\": \"y\", \"allow_external\": true}";
  const hsize_t dim[2] = {8, 4};
  assert_ok(brim_fs_mkdirs("d"));
  put_file("d/deep.bin", "0123456789abcdef0123456789abcdef", 32);
  char *absolute = realpath("d/deep.bin", NULL);
  assert_non_null(absolute);
  for (int relative = 0; relative < 2; relative++) {
    external_file("d/deep.h5", relative ? "deep.bin" : absolute, 8);
    hid_t file = H5Fopen("d/deep.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t space = H5Screate_simple(2, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_virtual(made, space, ".", "x", space) >= 0);
    H5Dclose(H5Dcreate2(file, "view", H5T_STD_U8LE, space, H5P_DEFAULT, made, H5P_DEFAULT));
    H5Pclose(made);
    H5Sclose(space);
    H5Fclose(file);
    assert_refused("d/deep.h5", "train", view, BRIM_EINVAL,
                   "/view is a dataset with data in another file, ");
    if (relative) {  // libhdf5 would look for it in the current folder
      assert_refused("d/deep.h5", "train", allowed, BRIM_EUNSUPPORTED, "only by an absolute path");
      continue;
    }
    uint8_t row[4];
    int32_t label;
    assert_ok(try_open("d/deep.h5", "train", allowed, &o));
    assert_ok(brim_source_hdf5.read(o.state, 1, row, &label));
    assert_memory_equal(row, "4567", 4);
    shut(&o);
    unlink("d/deep.bin");
    assert_refused("d/deep.h5", "train", allowed, BRIM_EPARSE, "deep.bin: the file does not exist");
  }
  free(absolute);
  // A view over two files, with the inner one missing.
  virtual_file("middle.h5", "inner.h5");
  virtual_file("outer.h5", "middle.h5");
  assert_refused("outer.h5", "train", ALLOWED, BRIM_EPARSE, "inner.h5: the file does not exist");
  plain_file("inner.h5");
  assert_ok(try_open("outer.h5", "train", ALLOWED, &o));
  assert_same_as(&o, "inner.h5");
  shut(&o);
}

// libhdf5 reads a missing source file as fill values, without an error.
static void test_virtual_missing(void **state) {
  (void)state;
  opened o;
  virtual_file("lost.h5", "absent.h5");
  assert_refused("lost.h5", "train", ALLOWED, BRIM_EPARSE, "absent.h5: the file does not exist");
  hid_t file = create("absent.h5", 0, false);
  put_labels(file, "y", ROWS, 5);
  H5Fclose(file);
  assert_refused("lost.h5", "train", ALLOWED, BRIM_EPARSE, "absent.h5: no dataset x in it");
  file = create("absent.h5", 0, false);
  set few = floats("x", ROWS - 1, COLS);
  put_set(file, &few, NULL);
  put_labels(file, "y", ROWS, 5);
  H5Fclose(file);
  const hsize_t dim[2] = {ROWS, COLS}, start[2] = {0, 0};
  file = create("lost.h5", 0, false);  // selects rows that the source lacks
  hid_t space = H5Screate_simple(2, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, dim, NULL);
  assert_true(H5Pset_virtual(made, space, "absent.h5", "x", space) >= 0);
  H5Dclose(H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, made, H5P_DEFAULT));
  H5Pclose(made);
  H5Sclose(space);
  put_labels(file, "y", ROWS, 5);
  H5Fclose(file);
  assert_refused("lost.h5", "train", ALLOWED, BRIM_EPARSE, "row 36 of dataset x, which has 36");
  put_file("absent.h5", "no HDF5 at all", 14);
  assert_refused("lost.h5", "train", ALLOWED, BRIM_EPARSE, "absent.h5:");
  plain_file("absent.h5");
  assert_ok(try_open("lost.h5", "train", ALLOWED, &o));
  assert_same_as(&o, "absent.h5");
  shut(&o);
}

// The same with rows missing in the file itself, where nothing has to be allowed.
static void test_virtual_own_missing(void **state) {
  (void)state;
  plain_file("half.h5");
  hid_t file = H5Fopen("half.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  put_virtual(file, "view", ".", "not_there", 2, ROWS);
  H5Fclose(file);
  assert_refused("half.h5", "train", "{\"inputs\": \"view\", \"targets\": \"y\"}", BRIM_EPARSE,
                 "no dataset not_there in it");
  plain_file("labels.h5");
  file = H5Fopen("labels.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  put_virtual(file, "wrong", ".", "not_there", 1, ROWS);
  H5Fclose(file);
  assert_refused("labels.h5", "train", "{\"inputs\": \"x\", \"targets\": \"wrong\"}", BRIM_EPARSE,
                 "no dataset not_there in it");
}

static void test_virtual_numbered(void **state) {
  (void)state;
  opened o;
  numbered_file("many.h5", "part-%b.h5");
  assert_refused("many.h5", "train", NULL, BRIM_EINVAL, "--allow-external");
  assert_refused("many.h5", "train", ALLOWED, BRIM_EPARSE, "part-0.h5: the file does not exist");
  for (int i = 0; i < 3; i++) {
    char name[32];
    snprintf(name, sizeof name, "part-%d.h5", i);
    part_file(name, 5);
  }
  assert_ok(try_open("many.h5", "train", ALLOWED, &o));
  assert_int_equal(o.info.count, 15);
  shut(&o);
  part_file("part-1.h5", 4);  // a part in the middle has fewer rows than its block
  brim_status status = try_open("many.h5", "train", ALLOWED, &o);
  if (!status) shut(&o);
  assert_int_equal(status, BRIM_EPARSE);
  assert_detail("part-1.h5");
  // a pipe among the parts is refused: libhdf5 would wait for it when asked for the shape
  for (int i = 0; i < 2; i++) {
    char name[32];
    part_file("part-0.h5", 5);
    snprintf(name, sizeof name, "part-%d.h5", 1 - i);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(mkfifo(name, 0600), 0);
    assert_refused("many.h5", "train", ALLOWED, BRIM_EPARSE, "not a regular file");
    assert_detail(name);
    brim_pack_dataset *sets;
    size_t count;
    brim_status listed = brim_pack_list("many.h5", true, &sets, &count);
    if (!listed) brim_free(sets);
    assert_int_equal(unlink(name), 0);
    part_file(name, 5);
  }
}

// Too large for memory: child processes read the rows, from the same other files.
static void test_large(void **state) {
  (void)state;
  enum { MANY = 20, WIDE = 1 << 20 };  // 80 MiB, of which only one row is on the disk
  static float row[WIDE];
  const hsize_t dim[2] = {MANY, WIDE}, one[2] = {1, WIDE}, third[2] = {3, 0};
  opened o;
  assert_ok(brim_fs_mkdirs("large"));
  for (hsize_t i = 0; i < WIDE; i++) row[i] = (float)(i % 1000);
  for (int external = 0; external < 2; external++) {
    hid_t file = create(external ? "large/e.h5" : "large/source.h5", 0, false);
    hid_t space = H5Screate_simple(2, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
    if (external) {
      put_file("large/raw.bin", row, 4);
      assert_int_equal(truncate("large/raw.bin", (off_t)sizeof row * MANY), 0);
      assert_true(H5Pset_external(made, "raw.bin", 0, sizeof row * MANY) >= 0);
    }
    H5Pset_fill_time(made, H5D_FILL_TIME_NEVER);
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    assert_true(H5Pset_efile_prefix(access, "${ORIGIN}") >= 0);
    hid_t x = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, made, access);
    hid_t memory = H5Screate_simple(2, one, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, third, NULL, one, NULL);
    assert_true(x >= 0 && H5Dwrite(x, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, row) >= 0);
    H5Sclose(memory);
    H5Dclose(x);
    H5Pclose(access);
    H5Pclose(made);
    H5Sclose(space);
    H5Fclose(file);
  }
  hid_t file = create("large/v.h5", 0, false), space = H5Screate_simple(2, dim, NULL);
  hid_t made = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_virtual(made, space, "source.h5", "x", space) >= 0);
  H5Dclose(H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, made, H5P_DEFAULT));
  H5Pclose(made);
  H5Sclose(space);
  H5Fclose(file);
  static const char *const paths[] = {"large/e.h5", "large/v.h5"};
  for (size_t i = 0; i < 2; i++) {
    static float got[WIDE];
    assert_refused(paths[i], "train", NULL, BRIM_EINVAL, "--allow-external");
    assert_ok(try_open(paths[i], "train", ALLOWED, &o));
    assert_int_equal(o.info.count, MANY);
    assert_ok(brim_source_hdf5.read(o.state, 3, got, NULL));
    assert_memory_equal(got, row, sizeof row);
    shut(&o);
  }
  (void)unlink("large/raw.bin");
  (void)unlink("large/source.h5");
}

//---------------------------------- links ----------------------------------

static void test_links(void **state) {
  (void)state;
  opened o;
  assert_ok(brim_fs_mkdirs("l"));
  plain_file("l/far.h5");
  hid_t file = create("l/links.h5", 0, false);
  assert_true(H5Lcreate_external("far.h5", "/x", file, "x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  assert_true(H5Lcreate_external("far.h5", "/y", file, "y", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  assert_refused("l/links.h5", "train", NULL, BRIM_EINVAL, "--allow-external");
  assert_ok(try_open("l/links.h5", "train", ALLOWED, &o));
  assert_same_as(&o, "l/far.h5");
  shut(&o);
  // A group behind a link, and a soft link through one.
  file = create("l/group.h5", 0, false);
  assert_true(H5Lcreate_external("far.h5", "/", file, "train", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  assert_refused("l/group.h5", "train", NULL, BRIM_EINVAL, "--allow-external");
  assert_ok(try_open("l/group.h5", "train", ALLOWED, &o));
  assert_same_as(&o, "l/far.h5");
  shut(&o);
  file = create("l/soft.h5", 0, false);
  put_labels(file, "y", ROWS, 5);
  assert_true(H5Lcreate_external("far.h5", "/", file, "away", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  assert_true(H5Lcreate_soft("/away/x", file, "x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  const char *named = "{\"inputs\": \"x\", \"targets\": \"y\"}";
  assert_refused("l/soft.h5", "train", named, BRIM_EINVAL, "a soft link to /away/x");
  assert_ok(try_open("l/soft.h5", "train",
                     "{\"inputs\": \"x\", \"targets\": \"y\", \"allow_external\": true}", &o));
  assert_same_as(&o, "l/far.h5");
  shut(&o);
  unlink("l/far.h5");
  assert_refused("l/links.h5", "train", ALLOWED, BRIM_EINVAL,
                 "an external link to /x in the file far.h5, which cannot be opened");
  // Files that link to each other do not loop for ever.
  file = create("l/ping.h5", 0, false);
  assert_true(H5Lcreate_external("pong.h5", "/", file, "a", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  file = create("l/pong.h5", 0, false);
  assert_true(H5Lcreate_external("ping.h5", "/", file, "b", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  brim_status status = try_open("l/ping.h5", "train", ALLOWED, &o);
  assert_int_equal(status, BRIM_EINVAL);
}

// x is an external link to /x of `other`.
static void linking_file(const char *path, const char *other) {
  hid_t file = create(path, 0, false);
  assert_true(H5Lcreate_external(other, "/x", file, "x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  put_labels(file, "y", ROWS, 5);
  H5Fclose(file);
}

// libhdf5 would wait for ever for the other end of a pipe, wherever it meets one.
static void test_link_to_pipe(void **state) {
  (void)state;
  const char *named = "{\"inputs\": \"x\", \"targets\": \"y\", \"allow_external\": true}";
  char here[1024], there[1100];
  unlink("p/pipe.h5"), unlink("pipe-here.h5"), unlink("p2/pipe-prefix.h5");
  assert_ok(brim_fs_mkdirs("p"));
  assert_ok(brim_fs_mkdirs("p2"));
  assert_int_equal(mkfifo("p/pipe.h5", 0600), 0);
  assert_int_equal(mkfifo("pipe-here.h5", 0600), 0);
  assert_int_equal(mkfifo("p2/pipe-prefix.h5", 0600), 0);
  linking_file("p/beside.h5", "pipe.h5");
  assert_refused("p/beside.h5", "train", named, BRIM_EINVAL,
                 "an external link to /x in pipe.h5, which is not a regular file");
  assert_refused("p/beside.h5", "train", NULL, BRIM_EINVAL, "--allow-external");
  linking_file("p/current.h5", "pipe-here.h5");
  assert_refused("p/current.h5", "train", named, BRIM_EINVAL, "not a regular file");
  assert_non_null(getcwd(here, sizeof here));
  snprintf(there, sizeof there, "%s/p/pipe.h5", here);
  linking_file("absolute.h5", there);
  assert_refused("absolute.h5", "train", named, BRIM_EINVAL, "not a regular file");
  linking_file("p/moved.h5", "/no such folder/pipe.h5");
  assert_refused("p/moved.h5", "train", named, BRIM_EINVAL, "not a regular file");
  unlink("alias.h5");
  assert_int_equal(symlink("p/beside.h5", "alias.h5"), 0);
  assert_refused("alias.h5", "train", named, BRIM_EINVAL, "not a regular file");
  linking_file("p/device.h5", "/dev/zero");
  assert_refused("p/device.h5", "train", named, BRIM_EINVAL, "not a regular file");
  linking_file("p/prefix.h5", "pipe-prefix.h5");
  assert_int_equal(setenv("HDF5_EXT_PREFIX", "none:p2", 1), 0);
  assert_refused("p/prefix.h5", "train", named, BRIM_EINVAL, "not a regular file");
  unsetenv("HDF5_EXT_PREFIX");
  // A pipe behind another link, and as source of a virtual dataset.
  linking_file("p/chain.h5", "beside.h5");
  assert_refused("p/chain.h5", "train", named, BRIM_EINVAL, "cannot be opened");
  hid_t file = create("p/virtual.h5", 0, false);
  assert_true(H5Lcreate_external("pipe.h5", "/x", file, "far", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  put_virtual(file, "x", ".", "far", 2, ROWS);
  put_labels(file, "y", ROWS, 5);
  H5Fclose(file);
  opened o;
  assert_true(try_open("p/virtual.h5", "train", named, &o) != BRIM_OK);
  assert_refused("p/virtual.h5", "train", "{\"inputs\": \"x\", \"targets\": \"y\"}", BRIM_EINVAL,
                 "/x is a dataset with data in another file, pipe.h5");
  virtual_file("p/other.h5", "beside.h5");
  assert_true(try_open("p/other.h5", "train", named, &o) != BRIM_OK);
}

// Lists the datasets of a file without opening another file.
static void test_list(void **state) {
  (void)state;
  brim_pack_dataset *sets;
  size_t count;
  put_file("list.bin", "0123456789abcdef0123456789abcdef", 32);
  external_file("list.h5", "list.bin", 8);
  assert_ok(brim_pack_list("list.h5", false, &sets, &count));
  assert_int_equal(count, 2);
  assert_string_equal(sets[0].storage, "external files");
  brim_free(sets);
  numbered_file("rows.h5", "rows-%b.h5");
  part_file("rows-0.h5", 5);
  part_file("rows-1.h5", 5);
  assert_ok(brim_pack_list("rows.h5", true, &sets, &count));
  assert_int_equal(sets[0].dim[0], 10);
  assert_string_equal(sets[0].storage, "virtual");
  brim_free(sets);
  plain_file("there.h5");
  hid_t file = create("linked.h5", 0, false);
  assert_true(H5Lcreate_external("there.h5", "/x", file, "x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  put_labels(file, "y", ROWS, 5);
  assert_true(H5Lcreate_soft("/y", file, "z", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  for (int allowed = 0; allowed < 2; allowed++) {
    assert_ok(brim_pack_list("linked.h5", allowed, &sets, &count));
    assert_int_equal(count, 3);
    assert_string_equal(sets[0].type, allowed ? "float32" : "link");
    assert_string_equal(sets[2].name, "/z");
    assert_string_equal(sets[2].type, "int64");
    brim_free(sets);
  }
  assert_int_equal(mkfifo("wait", 0600), 0);  // libhdf5 would wait for this pipe
  virtual_file("wait.h5", "wait");
  assert_ok(brim_pack_list("wait.h5", false, &sets, &count));
  brim_free(sets);
}

// The folder may hold files of an earlier run, but these tests need missing ones.
static int setup(void **state) {
  static const char *const missing[] = {"gone.bin",  "pipe",      "wait",      "inner.h5",
                                        "absent.h5", "part-0.h5", "part-1.h5", "part-2.h5"};
  for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) (void)unlink(missing[i]);
  return hdf5_setup(state);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_external),
      cmocka_unit_test(test_external_missing),
      cmocka_unit_test(test_virtual),
      cmocka_unit_test(test_virtual_nested),
      cmocka_unit_test(test_virtual_missing),
      cmocka_unit_test(test_virtual_numbered),
      cmocka_unit_test(test_virtual_own_missing),
      cmocka_unit_test(test_large),
      cmocka_unit_test(test_links),
      cmocka_unit_test(test_link_to_pipe),
      cmocka_unit_test(test_list),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
