// Datasets that the hdf5 source chooses, and how: labels, several inputs and targets, planes, splits by group, name and
// file. And those it refuses.
#include "hdf5_test.h"

//---------------------------------- inputs and targets ----------------------------------

static void test_labels(void **state) {
  (void)state;
  opened o;
  float row[COLS];
  int32_t label;
  plain_file("labels.h5");
  assert_ok(try_open("labels.h5", "train", NULL, &o));
  assert_int_equal(o.info.classes, 5);
  assert_int_equal(o.info.count, ROWS);
  assert_int_equal(brim_builtin_hdf5.host_bytes(o.state), ROWS * 4);
  for (uint64_t i = 0; i < ROWS; i++) {
    assert_ok(brim_source_hdf5.read(o.state, i, row, &label));
    assert_int_equal(label, i % 5);
    assert_true(row[3] == (float)value_at(i * COLS + 3));
  }
  shut(&o);
  assert_ok(try_open("labels.h5", "train", "{\"classes\": 9}", &o));
  assert_int_equal(o.info.classes, 9);
  shut(&o);
  assert_ok(try_open("labels.h5", "train", "{\"targets\": \"none\"}", &o));
  assert_int_equal(o.info.classes, 0);
  assert_int_equal(o.info.target_dim, 0);
  shut(&o);
  assert_refused("labels.h5", "train", "{\"classes\": 4}", BRIM_EINVAL, "labels.h5: /y");
}

static void test_lying_labels(void **state) {
  (void)state;
  static const double bad[3][4] = {{0, 1, -1, 2}, {0, 1, 2147483647.0, 0}, {0, 1e18, 0, 0}};
  for (int i = 0; i < 3; i++) {
    hid_t file = create("lying.h5", 0, false);
    set x = floats("x", 4, 2), y = labels("y", 4);
    put_set(file, &x, NULL);
    put_set(file, &y, bad[i]);
    H5Fclose(file);
    assert_refused("lying.h5", "train", NULL, BRIM_EPARSE, "lying.h5: /y[");
  }
}

static void test_several(void **state) {
  (void)state;
  opened o;
  hid_t file = create("several.h5", 0, false);
  set a = {.name = "a", .type = H5T_STD_I16LE, .rank = 3, .dim = {ROWS, 4, 2}};
  set b = {.name = "b", .type = H5T_IEEE_F64BE, .rank = 3, .dim = {ROWS, 4, 3}};
  set c = {.name = "c", .type = H5T_STD_U8LE, .rank = 1, .dim = {ROWS}};
  set t = floats("t", ROWS, 2);
  b.chunk[0] = 3;
  b.chunk[1] = 3;
  b.chunk[2] = 2;
  b.deflate = true;
  put_set(file, &a, NULL);
  put_set(file, &b, NULL);
  put_set(file, &c, NULL);
  put_set(file, &t, NULL);
  H5Fclose(file);
  assert_ok(try_open("several.h5", "train",
                     "{\"inputs\": [\"a\", \"/b\"], \"targets\": [\"t\", \"c\"]}", &o));
  assert_int_equal(o.info.type, BRIM_SAMPLE_F32);
  assert_int_equal(o.info.rank, 2);
  assert_int_equal(o.info.dim[0], 4);
  assert_int_equal(o.info.dim[1], 5);
  assert_int_equal(o.info.target_dim, 3);
  float row[4][5], target[3];
  for (uint64_t i = 0; i < ROWS; i++) {
    assert_ok(brim_source_hdf5.read(o.state, i, row, target));
    for (uint64_t k = 0; k < 4; k++) {
      for (uint64_t m = 0; m < 5; m++) {
        double expected = m < 2 ? value_at(i * 8 + k * 2 + m) : value_at(i * 12 + k * 3 + m - 2);
        assert_true(row[k][m] == (float)expected);
      }
    }
    assert_true(target[1] == (float)value_at(2 * i + 1) && target[2] == (float)value_at(i));
  }
  shut(&o);
  // Datasets with shapes that do not agree, and the message for each.
  assert_ok(try_open("several.h5", "train", "{\"inputs\": [\"b\", \"c\", \"t\"]}", &o));
  assert_int_equal(o.info.rank, 1);
  assert_int_equal(o.info.dim[0], 15);
  float flat[15];
  assert_ok(brim_source_hdf5.read(o.state, 9, flat, target));
  assert_true(flat[7] == (float)value_at(9 * 12 + 7) && flat[12] == (float)value_at(9) &&
              flat[14] == (float)value_at(19));
  shut(&o);
  assert_refused("several.h5", "train", NULL, BRIM_EINVAL, "b (37 x 4 x 3 f64)");
  assert_refused("several.h5", "train", "{\"inputs\": \"q\"}", BRIM_ENOENT, "several.h5: has no");
  assert_refused("several.h5", "train", "{\"inputs\": [1]}", BRIM_EINVAL, "inputs must be");
  assert_refused("several.h5", "train", "{\"inputs\": []}", BRIM_EINVAL, "names no dataset");
  assert_refused("several.h5", "train", "{\"input\": \"a\"}", BRIM_EINVAL, "inputs");
}

static void put_attribute(hid_t dataset, const char *name, hsize_t n, const float *values) {
  hid_t space = H5Screate_simple(1, &n, NULL);
  hid_t at = H5Acreate2(dataset, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(at, H5T_NATIVE_FLOAT, values) >= 0);
  H5Aclose(at);
  H5Sclose(space);
}

static void put_text(hid_t dataset, const char *name, const char *text) {
  hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  H5Tset_size(type, strlen(text));
  hid_t at = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(at, type, text) >= 0);
  H5Aclose(at);
  H5Sclose(space);
  H5Tclose(type);
}

// Sizes whose product is a small number modulo 2^64. Nothing was ever written, so the file can have them.
static void test_several_too_large(void **state) {
  (void)state;
  static const char *const names[] = {"a", "b", "c", "d", "e"};
  hid_t file = create("huge.h5", 0, false);
  for (size_t i = 0; i < 5; i++) {
    const hsize_t dim[2] = {1, i < 4 ? (hsize_t)1 << 62 : 8};
    hid_t space = H5Screate_simple(2, dim, NULL);
    hid_t made =
        H5Dcreate2(file, names[i], H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(made >= 0);
    H5Dclose(made);
    H5Sclose(space);
  }
  H5Fclose(file);
  assert_refused("huge.h5", "train",
                 "{\"inputs\": [\"a\", \"b\", \"c\", \"d\", \"e\"], \"targets\": \"none\"}",
                 BRIM_ELIMIT, "are too large");
}

static void test_planes(void **state) {
  (void)state;
  for (int which = 0; which < 4; which++) {
    opened o;
    hid_t file = create("planes.h5", 0, false);
    set s = {.name = "x", .type = H5T_STD_U8LE, .rank = 4, .dim = {6, 3, 8, 8}};
    if (which == 1) s.dim[1] = 2, s.dim[3] = 5;
    if (which == 2) memcpy(s.chunk, (hsize_t[4]){2, 2, 5, 3}, sizeof(hsize_t[4])), s.deflate = true;
    if (which == 3) s.type = H5T_IEEE_F32BE;
    put_set(file, &s, NULL);
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    static const float mean[3] = {0.5f, 0.25f, 0.125f}, std[3] = {1, 2, 4};
    if (which == 1) put_text(dataset, "layout", "NCHW");
    if (which == 0) put_attribute(dataset, "mean", 3, mean);
    if (which == 0) put_attribute(dataset, "std", 3, std);
    H5Dclose(dataset);
    H5Fclose(file);
    assert_ok(try_open("planes.h5", "train", NULL, &o));
    hsize_t c = s.dim[1], h = s.dim[2], w = s.dim[3];
    assert_int_equal(o.info.dim[0], h);
    assert_int_equal(o.info.dim[1], w);
    assert_int_equal(o.info.dim[2], c);
    assert_int_equal(o.info.channels, which == 0 ? 3 : 0);
    if (which == 0) assert_true(o.info.mean[1] == 0.25f && o.info.std[2] == 4);
    uint8_t *row = malloc(o.input_bytes);
    for (hsize_t i = 0; i < 6; i++) {
      assert_ok(brim_source_hdf5.read(o.state, i, row, NULL));
      for (hsize_t e = 0; e < c * h * w; e++) {
        double expected = value_at(i * c * h * w + e % c * h * w + e / c);
        assert_true((which == 3 ? (double)((float *)row)[e] : row[e]) == expected);
      }
    }
    free(row);
    shut(&o);
  }
}

// The sizes of one dataset without an attribute, and the way its samples are read. A few channels in front of a long
// float signal, or in front of pixels, are moved last; layout= overrides this.
static void test_channels_first(void **state) {
  (void)state;
  static const struct {
    bool bytes;
    int rank;
    hsize_t dim[4];
    const char *args;
    int64_t expected[3];
  } rows[] = {
      {false, 3, {6, 2, 64}, NULL, {64, 2}},
      {false, 3, {6, 2, 64}, "{\"layout\": \"NLC\"}", {2, 64}},
      {false, 3, {6, 10, 40}, NULL, {10, 40}},
      {false, 3, {6, 10, 40}, "{\"layout\": \"NCL\"}", {40, 10}},
      {false, 3, {6, 64, 2}, NULL, {64, 2}},
      {true, 3, {6, 2, 64}, NULL, {2, 64}},
      {true, 4, {6, 3, 8, 10}, NULL, {8, 10, 3}},
      {true, 4, {6, 4, 10, 8}, NULL, {10, 8, 4}},
      {true, 4, {6, 3, 8, 10}, "{\"layout\": \"NHWC\"}", {3, 8, 10}},
      {true, 4, {6, 8, 10, 3}, NULL, {8, 10, 3}},
  };
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    opened o;
    hid_t file = create("first.h5", 0, false);
    set s = {
        .name = "x", .type = rows[r].bytes ? H5T_STD_U8LE : H5T_IEEE_F32LE, .rank = rows[r].rank};
    memcpy(s.dim, rows[r].dim, sizeof rows[r].dim);
    put_set(file, &s, NULL);
    H5Fclose(file);
    assert_ok(try_open("first.h5", "train", rows[r].args, &o));
    hsize_t c = s.dim[1], all = 1;
    for (int d = 0; d + 1 < s.rank; d++) {
      assert_int_equal(o.info.dim[d], rows[r].expected[d]);
      all *= s.dim[d + 1];
    }
    bool moved = (hsize_t)rows[r].expected[s.rank - 2] == c;
    uint8_t *row = malloc(o.input_bytes);
    for (hsize_t i = 0; i < 6; i++) {
      assert_ok(brim_source_hdf5.read(o.state, i, row, NULL));
      for (hsize_t e = 0; e < all; e++) {
        double want = value_at(i * all + (moved ? e % c * (all / c) + e / c : e));
        assert_true((rows[r].bytes ? row[e] : (double)((float *)row)[e]) == want);
      }
    }
    free(row);
    shut(&o);
  }
  assert_refused("first.h5", "train", "{\"layout\": \"CHW\"}", BRIM_EINVAL,
                 "NCHW, NHWC, NCL or NLC");
}

//---------------------------------- names and splits ----------------------------------

static void test_splits_of_names(void **state) {
  (void)state;
  static const struct {
    const char *path, *plain;
    int split;
  } rows[] = {{"x", "x", -1},
              {"train/x", "x", BRIM_HDF5_TRAIN},
              {"data/Validation/x", "data/x", BRIM_HDF5_VAL},
              {"x_test", "x", BRIM_HDF5_TEST},
              {"train_labels", "labels", BRIM_HDF5_TRAIN},
              {"dev", "data", BRIM_HDF5_VAL},
              {"my_x_val", "my_x", BRIM_HDF5_VAL},
              {"trainx", "trainx", -1},
              {"_train", "_train", -1},
              {"train_", "train_", -1},
              {"a/b_c", "a/b_c", -1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char plain[64];
    assert_int_equal(brim_hdf5_split_of(rows[i].path, plain, sizeof plain), rows[i].split);
    assert_string_equal(plain, rows[i].plain);
  }
}

static void test_groups(void **state) {
  (void)state;
  opened o;
  static const char *const names[2][4] = {{"train/x", "train/y", "val/x", "val/y"},
                                          {"x_train", "y_train", "val_x", "val_y"}};
  for (int i = 0; i < 2; i++) {
    hid_t file = create("groups.h5", 0, false);
    set x = floats(names[i][0], 8, 2), v = floats(names[i][2], 5, 2);
    put_set(file, &x, NULL);
    put_labels(file, names[i][1], 8, 7);
    put_set(file, &v, NULL);
    put_labels(file, names[i][3], 5, 2);
    H5Fclose(file);
    assert_ok(try_open("groups.h5", "train", NULL, &o));
    assert_int_equal(o.info.count, 8);
    assert_int_equal(o.info.classes, 7);
    shut(&o);
    assert_ok(try_open("groups.h5", "val", "{\"inputs\": \"x\", \"targets\": [\"y\"]}", &o));
    assert_int_equal(o.info.count, 5);
    assert_int_equal(o.info.classes, 7);  // the split's own labels end at 1
    shut(&o);
    assert_refused("groups.h5", "test", NULL, BRIM_ENOENT, "holds no split test");
  }
  const double unknown[3] = {-1, -1, -1};
  set train = floats("train/x", 4, COLS), pool = floats("unlabeled/x", 3, COLS);
  set minus = labels("unlabeled/y", 3);
  hid_t file2 = create("pool.h5", 0, false);
  put_set(file2, &train, NULL);
  put_labels(file2, "train/y", 4, 3);
  put_set(file2, &pool, NULL);
  put_set(file2, &minus, unknown);
  H5Fclose(file2);
  assert_ok(try_open("pool.h5", "train", NULL, &o));
  assert_int_equal(o.info.classes, 3);
  shut(&o);
  assert_refused("pool.h5", "unlabeled", NULL, BRIM_EPARSE, "/unlabeled/y[0] is -1");
  plain_file("nogroups.h5");
  assert_refused("nogroups.h5", "val", NULL, BRIM_ENOENT, "data.val_fraction");
  assert_ok(try_open("nogroups.h5", "all", NULL, &o));
  shut(&o);
}

static void test_folder(void **state) {
  (void)state;
  opened o;
  assert_ok(brim_fs_mkdirs("splits"));
  plain_file("splits/train.h5");
  hid_t file = create("splits/val.hdf5", 0, false);
  set x = floats("x", 4, COLS);
  put_set(file, &x, NULL);
  put_labels(file, "y", 4, 2);
  H5Fclose(file);
  assert_ok(try_open("splits", "train", NULL, &o));
  assert_int_equal(o.info.count, ROWS);
  shut(&o);
  assert_ok(try_open("splits", "val", NULL, &o));
  assert_int_equal(o.info.count, 4);
  assert_int_equal(o.info.classes, 5);
  shut(&o);
  assert_refused("splits", "test", NULL, BRIM_ENOENT, "test.h5");
  // A split has labels of another form, more of them than one piece, or labels out of range: only that split fails.
  set rows = {.name = "y", .type = H5T_STD_I64LE, .rank = 2, .dim = {9000, 10}};
  file = create("splits/val.hdf5", 0, false);
  x.dim[0] = rows.dim[0];
  put_set(file, &x, NULL);
  put_set(file, &rows, NULL);
  H5Fclose(file);
  assert_ok(try_open("splits", "train", NULL, &o));
  assert_int_equal(o.info.classes, 5);
  shut(&o);
  assert_ok(brim_fs_mkdirs("single"));
  plain_file("single/any.h5");
  assert_ok(try_open("single", "train", NULL, &o));
  shut(&o);
}

static void test_found(void **state) {
  (void)state;
  opened o;
  char text[64];
  hid_t file = create("found.h5", 0, false);
  set x = {.name = "waves", .type = H5T_STD_I32LE, .rank = 3, .dim = {9, 2, 3}};
  put_set(file, &x, NULL);
  put_labels(file, "kind", 9, 3);
  put_labels(file, "other", 8, 3);
  H5Fclose(file);
  assert_ok(try_open("found.h5", "train", NULL, &o));
  brim_source_hdf5.describe(o.state, 0, text, sizeof text);
  assert_string_equal(text, "found.h5:/waves[0]");
  assert_int_equal(o.info.classes, 3);
  shut(&o);
  file = create("unclear.h5", 0, false);
  x = floats("x", 9, 2);
  put_set(file, &x, NULL);
  put_labels(file, "kind", 9, 3);
  put_labels(file, "other", 9, 3);
  H5Fclose(file);
  assert_refused("unclear.h5", "train", NULL, BRIM_EINVAL, "kind (9 i64), other (9 i64)");
  assert_refused("found.h5", "train", "{\"targets\": \"other\"}", BRIM_EINVAL, "/other has 8");
}

static void test_refused(void **state) {
  (void)state;
  assert_refused("no.h5", "train", NULL, BRIM_ENOENT, "no.h5");
  assert_refused("", "train", NULL, BRIM_EINVAL, "data.path");
  write_bytes("text.h5", "not an HDF5 file at all", 23);
  assert_refused("text.h5", "train", NULL, BRIM_EPARSE, "text.h5: not an HDF5 file");
  hid_t file = create("empty.h5", 0, false);
  H5Fclose(file);
  assert_refused("empty.h5", "train", NULL, BRIM_EINVAL, "no dataset");
  file = create("zero.h5", 0, false);
  set s = {.name = "x", .type = H5T_IEEE_F32LE, .rank = 2, .dim = {4, 0}};
  put_set(file, &s, NULL);
  H5Fclose(file);
  assert_refused("zero.h5", "train", NULL, BRIM_EINVAL, "zero.h5: /x holds no data");
  file = create("zero.h5", 0, false);
  s = floats("x", 0, 4);
  put_set(file, &s, NULL);
  H5Fclose(file);
  assert_refused("zero.h5", "train", NULL, BRIM_EINVAL, "zero.h5: /x holds no data: it has 0 rows");
  file = create("nan.h5", 0, false);
  double nans[8] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
  s = floats("x", 4, 2);
  put_set(file, &s, nans);
  H5Fclose(file);
  assert_refused("nan.h5", "train", NULL, BRIM_EINVAL, "nan.h5: /x holds only NaN");
  assert_refused("nan.h5", "train", "{\"chunk_cache\": \"much\"}", BRIM_EINVAL, "chunk_cache");
}

// A table holds no plain numbers: the message names its members, and a remedy.
static void test_compound(void **state) {
  (void)state;
  const hsize_t rows = 4;
  hid_t type = H5Tcreate(H5T_COMPOUND, 24), text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 8);
  H5Tinsert(type, "height", 0, H5T_IEEE_F32LE);
  H5Tinsert(type, "kind", 8, H5T_STD_I64LE);
  H5Tinsert(type, "who", 16, text);
  for (int i = 0; i < 2; i++) {
    hid_t file = create("table.h5", 0, false), space = H5Screate_simple(1, &rows, NULL);
    H5Dclose(
        H5Dcreate2(file, i ? "y" : "people", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    set x = floats("x", rows, 4);
    if (i) put_set(file, &x, NULL);
    H5Sclose(space);
    H5Fclose(file);
    assert_refused("table.h5", "train", NULL, BRIM_EINVAL,
                   i ? "table.h5: /y is a compound table of height f32, kind i64, who text"
                     : "/people is a compound table of height f32, kind i64, who text");
    assert_detail(i ? "f['MEMBER'] = f['y']['MEMBER']" : "f['MEMBER'] = f['people']['MEMBER']");
  }
  assert_refused("table.h5", "train", "{\"inputs\": \"x\", \"targets\": \"y\"}", BRIM_EINVAL,
                 "/y is a compound table");
  H5Tclose(text);
  H5Tclose(type);
}

// A link that brim does not follow may lead to the very dataset that the user needs. So brim does not guess another
// one.
static void test_links(void **state) {
  (void)state;
  opened o;
  char text[64];
  static const char *const groups[] = {"", "train/"};
  plain_file("far.h5");
  for (int external = 0; external < 2; external++) {
    for (size_t g = 0; g < 2; g++) {
      char name[32], said[96];
      hid_t file = create("links.h5", 0, false);
      snprintf(name, sizeof name, "%sother", groups[g]);
      set other = floats(name, ROWS, 2);
      put_set(file, &other, NULL);
      snprintf(name, sizeof name, "%sy", groups[g]);
      put_labels(file, name, ROWS, 3);
      snprintf(name, sizeof name, "%sx", groups[g]);
      herr_t made = external
                        ? H5Lcreate_external("far.h5", "/x", file, name, H5P_DEFAULT, H5P_DEFAULT)
                        : H5Lcreate_soft("/nope", file, name, H5P_DEFAULT, H5P_DEFAULT);
      assert_true(made >= 0);
      H5Fclose(file);
      snprintf(said, sizeof said, "links.h5: /%s is %s", name,
               external ? "an external link to /x in the file far.h5" : "a soft link to /nope");
      assert_refused("links.h5", "train", NULL, BRIM_EINVAL, said);
      assert_refused("links.h5", "train", "{\"targets\": \"y\"}", BRIM_EINVAL, said);
      assert_refused("links.h5", "train", "{\"inputs\": \"x\", \"targets\": \"y\"}", BRIM_EINVAL,
                     said);
      assert_ok(try_open("links.h5", "train", "{\"inputs\": \"other\", \"targets\": \"y\"}", &o));
      shut(&o);
    }
  }
  hid_t file = create("soft.h5", 0, false);  // a link with a target is followed
  set z = floats("z", ROWS, COLS);
  put_set(file, &z, NULL);
  assert_true(H5Lcreate_soft("/z", file, "x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  assert_ok(try_open("soft.h5", "train", NULL, &o));
  brim_source_hdf5.describe(o.state, 0, text, sizeof text);
  assert_string_equal(text, "soft.h5:/x[0]");
  shut(&o);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_labels),          cmocka_unit_test(test_lying_labels),
      cmocka_unit_test(test_several),         cmocka_unit_test(test_several_too_large),
      cmocka_unit_test(test_planes),          cmocka_unit_test(test_channels_first),
      cmocka_unit_test(test_splits_of_names), cmocka_unit_test(test_groups),
      cmocka_unit_test(test_folder),          cmocka_unit_test(test_found),
      cmocka_unit_test(test_refused),         cmocka_unit_test(test_compound),
      cmocka_unit_test(test_links),
  };
  return cmocka_run_group_tests(tests, hdf5_setup, NULL);
}
