// Labels that the hdf5 source takes: whole numbers of any type, one-hot rows, names of classes. And its messages about
// other text, labels from 1 on, a missing val split and a file that was cut off.
#include "hdf5_test.h"

// Writes x (rows, 2) and y with these values.
static void write_y(const char *path, set y, const double *values) {
  hid_t file = create(path, 0, false);
  set x = floats("x", y.dim[0], 2);
  put_set(file, &x, NULL);
  put_set(file, &y, values);
  H5Fclose(file);
}

static void check_labels(const char *path, const char *args, int64_t classes, const int32_t *want,
                         uint64_t rows) {
  opened o;
  assert_ok(try_open(path, "train", args, &o));
  assert_int_equal(o.info.classes, classes);
  assert_int_equal(o.info.target_dim, 0);
  assert_int_equal(o.info.count, rows);
  for (uint64_t i = 0; i < rows; i++) {
    float row[2];
    int32_t label;
    assert_ok(brim_source_hdf5.read(o.state, i, row, &label));
    assert_int_equal(label, want[i]);
  }
  shut(&o);
}

static void test_float_labels(void **state) {
  (void)state;
  static const double values[5] = {0, 3, 2, 1, 3};
  static const int32_t want[5] = {0, 3, 2, 1, 3};
  hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F64BE};
  for (int t = 0; t < 2; t++) {
    for (int chunked = 0; chunked < 2; chunked++) {
      set y = {.name = "y", .type = types[t], .rank = 1 + chunked, .dim = {5, 1}};
      if (chunked) y.chunk[0] = 2, y.chunk[1] = 1, y.deflate = true;
      write_y("floats.h5", y, values);
      check_labels("floats.h5", "{\"classes\": 4}", 4, want, 5);
    }
  }
  opened o;
  // floats without classes= are numbers to predict
  assert_ok(try_open("floats.h5", "train", NULL, &o));
  assert_int_equal(o.info.classes, 0);
  assert_int_equal(o.info.target_dim, 1);
  shut(&o);
  assert_refused("floats.h5", "train", "{\"classes\": 3}", BRIM_EPARSE, "/y[1] is 3;");
  static const struct {
    double bad;
    const char *said;
  } rows[] = {{1.5, "/y[2] is 1.5;"}, {-1, "/y[2] is -1;"}, {NAN, "/y[2] is nan;"}};
  for (size_t i = 0; i < 3; i++) {
    const double bad[4] = {0, 1, rows[i].bad, 1};
    write_y("bad.h5", (set){.name = "y", .type = H5T_IEEE_F32LE, .rank = 1, .dim = {4}}, bad);
    assert_refused("bad.h5", "train", "{\"classes\": 3}", BRIM_EPARSE, rows[i].said);
    assert_detail("whole numbers from 0 to 2");
  }
}

static void test_one_hot(void **state) {
  (void)state;
  double values[12] = {0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1};
  static const int32_t want[4] = {2, 0, 1, 2};
  hid_t types[] = {H5T_STD_U8LE, H5T_STD_I64LE, H5T_IEEE_F32LE};
  for (int t = 0; t < 3; t++) {
    set y = {.name = "y", .type = types[t], .rank = 2, .dim = {4, 3}};
    write_y("hot.h5", y, values);
    check_labels("hot.h5", "{\"classes\": 3}", 3, want, 4);
  }
  assert_refused("hot.h5", "train", "{\"classes\": 4}", BRIM_EINVAL,
                 "/y cannot be labels of 4 classes");
  set y = {.name = "y", .type = H5T_IEEE_F32LE, .rank = 2, .dim = {4, 3}};
  values[6] = 1;  // two ones in a row
  write_y("hot.h5", y, values);
  assert_refused("hot.h5", "train", "{\"classes\": 3}", BRIM_EPARSE, "/y[2] is not one-hot");
  values[6] = values[7] = 0;  // no one in a row
  write_y("hot.h5", y, values);
  assert_refused("hot.h5", "train", "{\"classes\": 3}", BRIM_EPARSE, "/y[2] is not one-hot");
  values[7] = 0.5;
  write_y("hot.h5", y, values);
  assert_refused("hot.h5", "train", "{\"classes\": 3}", BRIM_EPARSE, "value 0.5 at place 1");
}

// A failed allocation at any point leaves nothing behind.
static void test_one_hot_memory(void **state) {
  (void)state;
  static const double values[12] = {0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1};
  set y = {.name = "y", .type = H5T_IEEE_F32LE, .rank = 2, .dim = {4, 3}, .chunk = {2, 3}};
  y.deflate = true;
  write_y("hot.h5", y, values);
  for (uint64_t n = 1;; n++) {
    opened o;
    brim_alloc_stats before, after;
    brim_alloc_get_stats(&before);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = try_open("hot.h5", "train", "{\"classes\": 3}", &o);
    brim_alloc_fail_nth(0, 0);
    if (!status) shut(&o);
    brim_alloc_get_stats(&after);
    assert_int_equal(before.live_blocks[0], after.live_blocks[0]);
    assert_int_equal(before.live_blocks[1], after.live_blocks[1]);
    if (brim_alloc_failures() == failures) {
      assert_ok(status);
      break;
    }
  }
}

// Writes x and a y of text.
static void write_text(const char *path, const char *const *values, hsize_t rows, size_t size,
                       H5T_str_t pad) {
  hid_t file = create(path, 0, false);
  set x = floats("x", rows, 2);
  put_set(file, &x, NULL);
  put_names(file, "y", values, rows, size, pad);
  H5Fclose(file);
}

static void check_names(const char *path, const char *split, const char *const *want,
                        int64_t classes) {
  brim_source *s = NULL;
  brim_arena *arena = NULL;
  const char *const *names = NULL;
  assert_ok(open_source("hdf5", NULL, 0, path, split, &s));
  assert_ok(brim_arena_create(0, &arena));
  assert_int_equal(s->info.classes, classes);
  assert_ok(brim_source_class_names(arena, s, NULL, path, split, &names));
  assert_non_null(names);
  for (int64_t i = 0; i < classes; i++) assert_string_equal(names[i], want[i]);
  brim_arena_destroy(arena);
  brim_source_close(s);
}

// Classes are numbered by the byte order of their names, however the file stores them.
static void test_text(void **state) {
  (void)state;
  static const char *const values[6] = {"dog", "cat", "dog", "ab", "\xc3\xa9", "cat"};
  static const int32_t want[6] = {2, 1, 2, 0, 3, 1};
  static const char *const names[4] = {"ab", "cat", "dog", "\xc3\xa9"};
  static const struct {
    size_t size;
    H5T_str_t pad;
  } kinds[] = {{4, H5T_STR_NULLTERM},
               {3, H5T_STR_NULLPAD},
               {9, H5T_STR_SPACEPAD},
               {2000, H5T_STR_NULLPAD},
               {0, H5T_STR_NULLTERM}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    write_text("text.h5", values, 6, kinds[k].size, kinds[k].pad);
    check_labels("text.h5", NULL, 4, want, 6);
    check_labels("text.h5", "{\"targets\": \"y\", \"classes\": 4}", 4, want, 6);
    check_names("text.h5", "train", names, 4);
    assert_refused("text.h5", "train", "{\"classes\": 3}", BRIM_EINVAL, "/y");
    assert_refused("text.h5", "train", "{\"classes\": 5}", BRIM_EINVAL, "classes=5");
    assert_refused("text.h5", "train", "{\"classes\": 0}", BRIM_EINVAL, "/y");
    assert_refused("text.h5", "train", "{\"inputs\": \"y\"}", BRIM_EINVAL, "/y");
    opened o;
    assert_ok(try_open("text.h5", "train", "{\"targets\": \"none\"}", &o));
    assert_int_equal(o.info.classes, 0);
    shut(&o);
  }
}

static void put_both(hid_t file, const char *x, const char *y, const char *const *values,
                     hsize_t rows, size_t size) {
  set inputs = floats(x, rows, 2);
  put_set(file, &inputs, NULL);
  put_names(file, y, values, rows, size, H5T_STR_NULLTERM);
}

static void check_split(const char *path, const char *split, const int32_t *want, uint64_t rows) {
  opened o;
  assert_ok(try_open(path, split, NULL, &o));
  assert_int_equal(o.info.classes, 3);
  assert_int_equal(o.info.count, rows);
  for (uint64_t i = 0; i < rows; i++) {
    assert_int_equal(brim_builtin_hdf5.label(o.state, i), want[i]);
  }
  shut(&o);
}

// The training split numbers the classes of the other splits, also from another file.
static void test_text_splits(void **state) {
  (void)state;
  static const char *const train[4] = {"b", "c", "a", "b"}, *const test[2] = {"c", "b"};
  static const char *const odd[2] = {"a", "zebra\x1b"};
  static const int32_t train_want[4] = {1, 2, 0, 1}, test_want[2] = {2, 1};
  static const char *const places[2][4] = {{"train/x", "train/y", "test/x", "test/y"},
                                           {"x", "y", "x_test", "y_test"}};
  static const char *const names[3] = {"a", "b", "c"};
  for (int k = 0; k < 4; k++) {
    const char *const *at = places[k / 2];
    hid_t file = create("splits.h5", 0, false);
    put_both(file, at[0], at[1], train, 4, 0);
    put_both(file, at[2], at[3], k % 2 ? odd : test, 2, 8);
    H5Fclose(file);
    check_split("splits.h5", "train", train_want, 4);
    if (k % 2) {
      assert_refused("splits.h5", "test", NULL, BRIM_EPARSE, "zebra\\x1b");
    } else {
      check_split("splits.h5", "test", test_want, 2);
      check_split("splits.h5", "val", test_want, 2);
      check_names("splits.h5", "test", names, 3);
    }
  }
  assert_ok(brim_fs_mkdirs("text"));
  hid_t file = create("text/train.h5", 0, false);
  put_both(file, "x", "y", train, 4, 2);
  H5Fclose(file);
  file = create("text/test.h5", 0, false);
  put_both(file, "x", "y", test, 2, 0);
  H5Fclose(file);
  check_split("text", "train", train_want, 4);
  check_split("text", "test", test_want, 2);
}

static void keep_text(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)level, (void)module;
  snprintf(ctx, 1024, "%s", text);
}

// Two files that number their classes differently cannot serve one network.
static void test_text_match(void **state) {
  (void)state;
  static const char *const train[4] = {"b", "c", "a", "b"}, *const same[3] = {"a", "c", "b"};
  static const char *const fewer[2] = {"b", "c"};
  brim_source *a = NULL, *b = NULL;
  write_text("a.h5", train, 4, 2, H5T_STR_NULLTERM);
  assert_ok(open_source("hdf5", NULL, 0, "a.h5", "train", &a));
  for (int k = 0; k < 2; k++) {
    write_text("b.h5", k ? fewer : same, k ? 2 : 3, 0, H5T_STR_NULLTERM);
    assert_ok(open_source("hdf5", NULL, 0, "b.h5", "train", &b));
    assert_status(brim_source_match(a, &a->info, b, &b->info, false, ""),
                  k ? BRIM_EINVAL : BRIM_OK);
    if (k) assert_detail("class 0 is 'a' in a.h5:/x and 'b' in b.h5:/x");
    brim_source_close(b);
  }
  // Numeric labels have no names to compare: a warning explains how brim takes them.
  for (int k = 0; k < 2; k++) {
    char said[1024] = "";
    hid_t file = create("b.h5", 0, false);
    set x = floats("x", 3, 2);
    put_set(file, &x, NULL);
    if (k)
      put_names(file, "y", same, 3, 0, H5T_STR_NULLTERM);
    else
      put_labels(file, "y", 3, 3);
    H5Fclose(file);
    assert_ok(open_source("hdf5", NULL, 0, "b.h5", "train", &b));
    brim_log_set_sink(keep_text, said, BRIM_LOG_WARN);
    assert_ok(brim_source_match(a, &a->info, b, &b->info, false, ""));
    brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
    assert_int_equal(strstr(said, "b.h5:/x") != NULL, !k);
    brim_source_close(b);
  }
  brim_source_close(a);
}

// Text that cannot be names of classes is refused: ids, free text, a second target, nothing at all.
static void test_text_refused(void **state) {
  (void)state;
  enum { N = 40 };
  static char id[N][16], text[N * 2][300];
  const char *values[N], *texts[N * 2];
  for (int i = 0; i < N; i++) {
    snprintf(id[i], sizeof id[i], "id-%04d", i);
    values[i] = id[i];
  }
  for (int i = 0; i < N * 2; i++) {
    memset(text[i], 'a' + i % 2, sizeof text[i] - 1);
    texts[i] = text[i];
  }
  for (size_t size = 0; size < 17; size += 16) {
    write_text("ids.h5", values, N, size, H5T_STR_NULLTERM);
    assert_refused("ids.h5", "train", NULL, BRIM_EINVAL, "/y");
    assert_detail("targets=none");
    opened o;
    // the user declares them classes
    assert_ok(try_open("ids.h5", "train", "{\"classes\": 40}", &o));
    assert_int_equal(o.info.classes, N);
    shut(&o);
    assert_refused("ids.h5", "train", "{\"classes\": 3}", BRIM_EINVAL, "classes=3");
    values[7] = size ? "   " : "";
    write_text("empty.h5", values, N, size, H5T_STR_NULLTERM);
    assert_refused("empty.h5", "train", NULL, BRIM_EPARSE, "/y[7]");
    values[7] = id[7];
  }
  write_text("long.h5", texts, N * 2, 300, H5T_STR_NULLTERM);
  assert_refused("long.h5", "train", NULL, BRIM_EINVAL, "255");
  write_text("long.h5", texts, N * 2, 0, H5T_STR_NULLTERM);
  assert_refused("long.h5", "train", NULL, BRIM_EINVAL, "255");
  // more rows than one piece may take
  size_t huge = (size_t)5 << 20;
  char *big = malloc(huge);
  assert_non_null(big);
  memset(big, 'x', huge - 1);
  big[huge - 1] = 0;
  texts[1] = big;
  write_text("long.h5", texts, 2, 0, H5T_STR_NULLTERM);
  assert_refused("long.h5", "train", NULL, BRIM_EINVAL, "255");
  free(big);
  // never written
  hid_t file = create("never.h5", 0, false), type = H5Tcopy(H5T_C_S1);
  set x = floats("x", 4, 2);
  put_set(file, &x, NULL);
  H5Tset_size(type, H5T_VARIABLE);
  hid_t space = H5Screate_simple(1, x.dim, NULL);
  H5Dclose(H5Dcreate2(file, "y", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(file);
  assert_refused("never.h5", "train", NULL, BRIM_EPARSE, "/y[0]");
  // several targets
  file = create("two.h5", 0, false);
  put_set(file, &x, NULL);
  put_names(file, "y", (const char *const[4]){"a", "b", "a", "b"}, 4, 2, H5T_STR_NULLTERM);
  put_labels(file, "label", 4, 2);
  H5Fclose(file);
  assert_refused("two.h5", "train", "{\"targets\": [\"label\", \"y\"]}", BRIM_EINVAL, "/y");
  static const int32_t numbers[4] = {0, 1, 0, 1};
  check_labels("two.h5", NULL, 2, numbers, 4);
  // the class names stand beside the samples' numbers
  file = create("list.h5", 0, false);
  put_set(file, &x, NULL);
  put_names(file, "labels", (const char *const[2]){"cat", "dog"}, 2, 4, H5T_STR_NULLTERM);
  put_labels(file, "fine", 4, 2);
  H5Fclose(file);
  check_labels("list.h5", NULL, 2, numbers, 4);
}

// Bytes that are not UTF-8 count as names too, shown as \xNN.
static void test_text_bytes(void **state) {
  (void)state;
  static const char *const values[3] = {"caf\xe9", "caf\xe8", "caf\xe9"};
  static const char *const names[2] = {"caf\\xE8", "caf\\xE9"};
  write_text("bytes.h5", values, 3, 5, H5T_STR_NULLTERM);
  check_names("bytes.h5", "train", names, 2);
}

static void test_text_memory(void **state) {
  (void)state;
  static const char *const values[4] = {"b", "a", "b", "c"};
  write_text("memory.h5", values, 4, 0, H5T_STR_NULLTERM);
  for (uint64_t n = 1;; n++) {
    opened o;
    brim_alloc_stats before, after;
    brim_alloc_get_stats(&before);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = try_open("memory.h5", "train", NULL, &o);
    brim_alloc_fail_nth(0, 0);
    if (!status) shut(&o);
    brim_alloc_get_stats(&after);
    assert_int_equal(before.live_blocks[0], after.live_blocks[0]);
    assert_int_equal(before.live_blocks[1], after.live_blocks[1]);
    if (brim_alloc_failures() == failures) {
      assert_ok(status);
      break;
    }
  }
}

static void count_starts(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)level, (void)module;
  *(int *)ctx += strstr(text, "/y start at 1, so class 0 of the 4 classes never occurs") != NULL;
}

static void test_from_one(void **state) {
  (void)state;
  static const double one[4] = {1, 3, 2, 1}, zero[4] = {1, 3, 2, 0};
  int seen = 0;
  opened o;
  brim_log_set_sink(count_starts, &seen, BRIM_LOG_WARN);
  write_y("one.h5", labels("y", 4), zero);
  assert_ok(try_open("one.h5", "train", NULL, &o));
  shut(&o);
  assert_int_equal(seen, 0);
  write_y("one.h5", labels("y", 4), one);
  assert_ok(try_open("one.h5", "train", NULL, &o));
  assert_int_equal(o.info.classes, 4);
  shut(&o);
  assert_int_equal(seen, 1);
  // declared by the user: no warning
  assert_ok(try_open("one.h5", "train", "{\"classes\": 4}", &o));
  shut(&o);
  assert_int_equal(seen, 1);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
}

// Evaluation takes the test set if there is no val set, in groups and in files.
static void test_val_is_test(void **state) {
  (void)state;
  opened o;
  hid_t file = create("groups.h5", 0, false);
  set a = floats("train/x", 6, 2), b = floats("test/x", 4, 2);
  put_set(file, &a, NULL);
  put_labels(file, "train/y", 6, 3);
  put_set(file, &b, NULL);
  put_labels(file, "test/y", 4, 3);
  H5Fclose(file);
  assert_ok(try_open("groups.h5", "val", NULL, &o));
  assert_int_equal(o.info.count, 4);
  char text[64];
  brim_source_hdf5.describe(o.state, 1, text, sizeof text);
  assert_string_equal(text, "groups.h5:/test/x[1]");
  shut(&o);
  assert_ok(brim_fs_mkdirs("files"));
  plain_file("files/train.h5");
  write_y("files/test.h5", labels("y", 4), (const double[4]){0, 1, 2, 3});
  assert_ok(try_open("files", "val", NULL, &o));
  assert_int_equal(o.info.count, 4);
  shut(&o);
}

static void test_says_cut_off(void **state) {
  (void)state;
  for (int latest = 0; latest < 2; latest++) {
    for (int block = 0; block < 2; block++) {
      char said[64];
      hid_t file = create("whole.h5", block ? 512 : 0, latest);
      set x = floats("x", ROWS, COLS);
      put_set(file, &x, NULL);
      H5Fclose(file);
      uint64_t size;
      assert_ok(brim_fs_size("whole.h5", &size));
      assert_int_equal(truncate("whole.h5", (off_t)size - 100), 0);
      snprintf(said, sizeof said, "has %llu bytes, but its superblock",
               (unsigned long long)size - 100);
      assert_refused("whole.h5", "train", NULL, BRIM_EPARSE, said);
      snprintf(said, sizeof said, "superblock expects %llu", (unsigned long long)size);
      assert_detail(said);
    }
  }
}

// A network needs memory for each class, so a label that is too large is reported as no class.
static void test_absurd_class(void **state) {
  (void)state;
  static const double absurd[4] = {0, 1, 16777216, 2}, most[4] = {0, 1, 16777215, 2};
  static const int32_t want[4] = {0, 1, 16777215, 2};
  write_y("absurd.h5", labels("y", 4), absurd);
  assert_refused("absurd.h5", "train", NULL, BRIM_EPARSE,
                 "absurd.h5: /y[2] is 16777216, expected a class from 0 to 16777215");
  write_y("absurd.h5", labels("y", 4), most);
  check_labels("absurd.h5", NULL, 16777216, want, 4);
  check_labels("absurd.h5", "{\"classes\": 16777216}", 16777216, want, 4);
  assert_refused("absurd.h5", "train", "{\"classes\": 16777217}", BRIM_EINVAL, "classes");
  const float classes = 1e9f;
  hid_t file = H5Fopen("absurd.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  hid_t y = H5Dopen2(file, "y", H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
  hid_t at = H5Acreate2(y, "classes", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(at, H5T_NATIVE_FLOAT, &classes) >= 0);
  H5Aclose(at);
  H5Sclose(space);
  H5Dclose(y);
  H5Fclose(file);
  assert_refused("absurd.h5", "train", NULL, BRIM_EINVAL, "/y: its attribute classes is 1e+09");
}

// An unsigned number is shown unsigned.
static void test_unsigned(void **state) {
  (void)state;
  const uint64_t values[3] = {1, UINT64_MAX, 0};
  const hsize_t rows = 3;
  hid_t file = create("unsigned.h5", 0, false);
  set x = floats("x", rows, 2);
  put_set(file, &x, NULL);
  hid_t space = H5Screate_simple(1, &rows, NULL);
  hid_t y = H5Dcreate2(file, "y", H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Dwrite(y, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(y);
  H5Sclose(space);
  H5Fclose(file);
  assert_refused("unsigned.h5", "train", NULL, BRIM_EPARSE,
                 "/y[1] is 18446744073709551615, expected");
}

static void put_attribute(const char *path, const char *object, const char *name, hid_t type,
                          hsize_t count, const void *value) {
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  hid_t dataset = H5Dopen2(file, object, H5P_DEFAULT), space = H5Screate_simple(1, &count, NULL);
  if (H5Aexists(dataset, name) > 0) H5Adelete(dataset, name);
  hid_t at = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(at, type, value) >= 0);
  H5Aclose(at);
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
}

static void opens_saying(const char *path, const char *part) {
  char said[1024] = "";
  opened o;
  brim_log_set_sink(keep_text, said, BRIM_LOG_WARN);
  assert_ok(try_open(path, "train", NULL, &o));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  shut(&o);
  if (part && !strstr(said, part)) fail_msg("'%s' is not in '%s'", part, said);
  if (!part && said[0]) fail_msg("'%s'", said);
}

// A known attribute with an impossible value is reported, not just skipped.
static void test_attributes(void **state) {
  (void)state;
  const float half[3] = {0.5f, 0.25f, 0.125f}, zero[3] = {0.5f, 0, 1};
  const float fraction = 7.5f, minus = -3, six = 6;
  hid_t text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 5);
  hid_t file = create("attributes.h5", 0, false);
  set x = {.name = "x", .type = H5T_STD_U8LE, .rank = 4, .dim = {6, 4, 4, 3}};
  put_set(file, &x, NULL);
  put_labels(file, "y", 6, 3);
  H5Fclose(file);
  opens_saying("attributes.h5", NULL);
  const char *const classes = "attributes.h5: the attribute classes of /y is not a whole number";
  put_attribute("attributes.h5", "y", "classes", H5T_NATIVE_FLOAT, 1, &fraction);
  opens_saying("attributes.h5", classes);
  put_attribute("attributes.h5", "y", "classes", H5T_NATIVE_FLOAT, 1, &minus);
  opens_saying("attributes.h5", classes);
  put_attribute("attributes.h5", "y", "classes", H5T_NATIVE_FLOAT, 3, half);
  opens_saying("attributes.h5", classes);
  put_attribute("attributes.h5", "y", "classes", text, 1, "five");
  opens_saying("attributes.h5", classes);
  put_attribute("attributes.h5", "y", "classes", H5T_NATIVE_FLOAT, 1, &six);
  opens_saying("attributes.h5", NULL);
  put_attribute("attributes.h5", "x", "mean", H5T_NATIVE_FLOAT, 3, half);
  opens_saying("attributes.h5", "brim ignores the attributes mean and std of /x");
  put_attribute("attributes.h5", "x", "std", H5T_NATIVE_FLOAT, 3, zero);
  opens_saying("attributes.h5", "brim ignores the attributes mean and std of /x");
  put_attribute("attributes.h5", "x", "std", H5T_NATIVE_FLOAT, 3, half);
  opens_saying("attributes.h5", NULL);
  put_attribute("attributes.h5", "x", "layout", text, 1, "NCWH");
  opens_saying("attributes.h5", "the attribute layout of /x is neither NCHW nor NHWC");
  put_attribute("attributes.h5", "x", "layout", text, 1, "nhwc");
  opens_saying("attributes.h5", NULL);
  H5Tclose(text);
}

// Whole numbers that cannot be class numbers are regression targets, in every split; classes= decides otherwise.
static void test_values(void **state) {
  (void)state;
  enum { N = 120 };
  double years[N], wide[N], minus[N], few[N], val[N];
  for (int i = 0; i < N; i++) {
    years[i] = 1922 + i % 90;
    wide[i] = i * 997;  // starts at 0
    minus[i] = i % 40 - 20;
    few[i] = 3 + 2 * (i % 3);  // a subset of ten classes
    val[i] = i % 2;
  }
  const struct {
    const double *values;
    bool regression;
  } rows[] = {{years, true}, {wide, true}, {minus, true}, {few, false}};
  for (size_t i = 0; i < 4; i++) {
    opened o;
    float x[2], y;
    hid_t file = create("values.h5", 0, false);
    set a = floats("train/x", N, 2), b = labels("train/y", N);
    put_set(file, &a, NULL);
    put_set(file, &b, rows[i].values);
    a.name = "val/x", b.name = "val/y";
    put_set(file, &a, NULL);
    put_set(file, &b, val);
    H5Fclose(file);
    static const char *const splits[] = {"train", "val"};
    for (int k = 0; k < 2; k++) {  // as in training, whatever labels this split has
      assert_ok(try_open("values.h5", splits[k], NULL, &o));
      assert_int_equal(o.info.target_dim, rows[i].regression);
      assert_int_equal(o.info.classes, rows[i].regression ? 0 : 8);
      if (k == 0 && rows[i].regression) {
        assert_ok(brim_source_hdf5.read(o.state, 5, x, &y));
        assert_true((double)y == rows[i].values[5]);
      }
      shut(&o);
    }
    assert_ok(try_open("values.h5", "train", "{\"classes\": 0}", &o));
    assert_int_equal(o.info.classes, 0);
    assert_int_equal(o.info.target_dim, 1);
    shut(&o);
  }
  hid_t file = create("years.h5", 0, false);
  set a = floats("x", N, 2), b = labels("y", N);
  put_set(file, &a, NULL);
  put_set(file, &b, years);
  H5Fclose(file);
  opens_saying("years.h5", "/y, 1922 to 2011, as regression targets");
  opened o;
  assert_ok(try_open("years.h5", "train", "{\"classes\": 2012}", &o));
  assert_int_equal(o.info.classes, 2012);
  shut(&o);
}

// The training split defines the classes. Another split may lack some; a class that only it has is reported.
static void test_classes_of_splits(void **state) {
  (void)state;
  static const double three[4] = {0, 1, 2, 2}, five[4] = {0, 4, 2, 2}, two[4] = {0, 1, 1, 0};
  const double *const others[] = {five, two};
  for (int k = 0; k < 2; k++) {
    hid_t file = create("splits.h5", 0, false);
    set x = floats("train/x", 4, 2), y = labels("train/y", 4);
    put_set(file, &x, NULL);
    put_set(file, &y, three);
    x.name = "test/x";
    y.name = "test/y";
    put_set(file, &x, NULL);
    put_set(file, &y, others[k]);
    H5Fclose(file);
    opened o;
    assert_ok(try_open("splits.h5", "train", NULL, &o));
    assert_int_equal(o.info.classes, 3);
    shut(&o);
    assert_ok(try_open("splits.h5", "test", NULL, &o));
    assert_int_equal(o.info.classes, k ? 3 : 5);
    shut(&o);
  }
}

// Labels saved as floats are numbers to predict, with a message.
static void test_whole_floats(void **state) {
  (void)state;
  static const double whole[8] = {0, 1, 2, 2, 0, 1, 0, 2}, half[8] = {0, 1, 2, 2, 0, 1, 0.5, 2};
  char said[2048] = "";
  opened o;
  brim_log_set_sink(keep_text, said, BRIM_LOG_WARN);
  set y = floats("y", 8, 1);
  write_y("whole.h5", y, half);
  assert_ok(try_open("whole.h5", "train", NULL, &o));
  shut(&o);
  assert_string_equal(said, "");
  write_y("whole.h5", y, whole);
  assert_ok(try_open("whole.h5", "train", "{\"classes\": 3}", &o));
  shut(&o);
  assert_string_equal(said, "");
  assert_ok(try_open("whole.h5", "train", NULL, &o));
  assert_int_equal(o.info.target_dim, 1);
  shut(&o);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  assert_non_null(strstr(said, "from 0 to 2"));
  assert_non_null(strstr(said, "add --dataset 'hdf5(classes=3)'"));
}

// One-hot rows without classes= are numbers to predict, with a message; other rows get none.
static void test_one_hot_said(void **state) {
  (void)state;
  static const double hot[12] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0};
  static const double two[12] = {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0};
  char said[2048] = "";
  opened o;
  brim_log_set_sink(keep_text, said, BRIM_LOG_WARN);
  set y = floats("y", 4, 3);
  write_y("hot.h5", y, two);
  assert_ok(try_open("hot.h5", "train", NULL, &o));
  shut(&o);
  assert_string_equal(said, "");
  write_y("hot.h5", y, hot);
  assert_ok(try_open("hot.h5", "train", "{\"classes\": 3}", &o));
  shut(&o);
  assert_string_equal(said, "");
  assert_ok(try_open("hot.h5", "train", NULL, &o));
  assert_int_equal(o.info.target_dim, 3);
  shut(&o);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  assert_non_null(strstr(said, "every row of /y is one-hot"));
  assert_non_null(strstr(said, "add --dataset 'hdf5(classes=3)'"));
}

// Labels 0, 1000 and 2000 make 2001 classes, more than there are rows.
static void test_label_gaps(void **state) {
  (void)state;
  static const double gaps[8] = {0, 1000, 2000, 0, 1000, 2000, 0, 0};
  static const double few[8] = {0, 1, 20, 3, 4, 15, 6, 17};
  char said[2048] = "";
  opened o;
  brim_log_set_sink(keep_text, said, BRIM_LOG_WARN);
  set y = labels("y", 8);
  y.type = H5T_NATIVE_INT32;
  write_y("gaps.h5", y, few);
  assert_ok(try_open("gaps.h5", "train", NULL, &o));
  shut(&o);
  assert_string_equal(said, "");
  write_y("gaps.h5", y, gaps);
  assert_ok(try_open("gaps.h5", "train", NULL, &o));
  assert_int_equal(o.info.classes, 2001);
  shut(&o);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  assert_non_null(strstr(said, "1998 of them never occur"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_float_labels),      cmocka_unit_test(test_one_hot),
      cmocka_unit_test(test_one_hot_memory),    cmocka_unit_test(test_text),
      cmocka_unit_test(test_text_splits),       cmocka_unit_test(test_text_refused),
      cmocka_unit_test(test_text_match),        cmocka_unit_test(test_text_bytes),
      cmocka_unit_test(test_text_memory),       cmocka_unit_test(test_values),
      cmocka_unit_test(test_classes_of_splits), cmocka_unit_test(test_whole_floats),
      cmocka_unit_test(test_one_hot_said),      cmocka_unit_test(test_label_gaps),
      cmocka_unit_test(test_from_one),          cmocka_unit_test(test_val_is_test),
      cmocka_unit_test(test_says_cut_off),      cmocka_unit_test(test_absurd_class),
      cmocka_unit_test(test_unsigned),          cmocka_unit_test(test_attributes),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
