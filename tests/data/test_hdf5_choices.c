// The hdf5 source with files as users have them: labels of shape (N, 1), lists of class names, datasets named for
// another split, and datasets that nothing reads.
#include "hdf5_test.h"

#include "data/data.h"

static void put_column(hid_t file, const char *name, hsize_t rows, int classes) {
  double values[256];
  set s = {.name = name, .type = H5T_STD_I64LE, .rank = 2, .dim = {rows, 1}};
  for (hsize_t i = 0; i < rows; i++) values[i] = (double)(i % (hsize_t)classes);
  put_set(file, &s, values);
}

// Writes PREFIX_set_x and PREFIX_set_y (rows, 1), as in the cat
// non-cat files.
static void put_pair(hid_t file, const char *prefix, hsize_t rows) {
  char x[32], y[32];
  snprintf(x, sizeof x, "%s_set_x", prefix);
  snprintf(y, sizeof y, "%s_set_y", prefix);
  set s = floats(x, rows, COLS);
  put_set(file, &s, NULL);
  put_column(file, y, rows, 2);
}

static brim_source *open_split(const char *path, const char *split, const brim_argument *args,
                               size_t count) {
  brim_component c = {.name = "hdf5", .args = args, .arg_count = count};
  brim_source *source = NULL;
  assert_ok(brim_source_open(NULL, &c, path, split, 0, &source));
  return source;
}

static void test_labels_in_a_column(void **state) {
  (void)state;
  static const char *const names[] = {"y", "set_y", "kind"};  // found by its name, or by its length
  for (size_t i = 0; i < 3; i++) {
    hid_t file = create("column.h5", 0, false);
    set x = floats("x", ROWS, COLS);
    put_set(file, &x, NULL);
    put_column(file, names[i], ROWS, 3);
    H5Fclose(file);
    brim_source *source = open_split("column.h5", "train", NULL, 0);
    assert_int_equal(source->info.classes, 3);
    float row[COLS];
    int32_t label = -1;
    assert_ok(brim_source_read(source, 4, 1, row, &label, NULL, NULL));
    assert_int_equal(label, 1);
    brim_source_close(source);
  }
}

static void test_class_lists(void **state) {
  (void)state;
  static const char *const cats[] = {"non-cat", "cat"};
  opened o;
  hid_t file = create("test_only.h5", 0, false);
  put_pair(file, "test", ROWS);
  put_labels(file, "list_classes", 2, 2);  // numbers, which could be taken for the training set
  H5Fclose(file);
  assert_refused("test_only.h5", "train", NULL, BRIM_ENOENT, "holds no split train");
  assert_ok(try_open("test_only.h5", "test", NULL, &o));
  assert_int_equal(o.info.classes, 2);
  shut(&o);

  file = create("cats.h5", 0, false);
  put_pair(file, "train", ROWS);
  put_names(file, "list_classes", cats, 2, 8, H5T_STR_NULLTERM);
  H5Fclose(file);
  brim_arena *arena;
  const char *const *names = NULL;
  assert_ok(brim_arena_create(0, &arena));
  brim_source *source = open_split("cats.h5", "train", NULL, 0);
  assert_ok(brim_source_class_names(arena, source, NULL, "cats.h5", "train", &names));
  assert_non_null(names);
  assert_string_equal(names[0], "non-cat");
  assert_string_equal(names[1], "cat");
  brim_source_close(source);
  brim_arena_destroy(arena);
}

// A list of names with its bytes in another file would copy that file's text into names and reports.
static void test_class_list_elsewhere(void **state) {
  (void)state;
  write_bytes("secret.txt", "password", 8);
  hid_t file = create("outside.h5", 0, false);
  put_pair(file, "train", ROWS);
  hsize_t count = 2;
  hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &count, NULL);
  hid_t how = H5Pcreate(H5P_DATASET_CREATE);
  H5Tset_size(type, 4);
  assert_true(H5Pset_external(how, "secret.txt", 0, 8) >= 0);
  hid_t list = H5Dcreate2(file, "list_classes", type, space, H5P_DEFAULT, how, H5P_DEFAULT);
  assert_true(list >= 0);
  H5Dclose(list);
  H5Pclose(how);
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(file);
  brim_arena *arena;
  const char *const *names = NULL;
  assert_ok(brim_arena_create(0, &arena));
  brim_component c = {.name = "hdf5"};
  brim_source *source = NULL;
  // Other tests check whether such a file opens. Here its text must not come out.
  if (brim_source_open(NULL, &c, "outside.h5", "train", 0, &source) == BRIM_OK) {
    (void)brim_source_class_names(arena, source, NULL, "outside.h5", "train", &names);
    assert_null(names);
    brim_source_close(source);
  }
  brim_arena_destroy(arena);
}

// A dataset that the config names by the split of training stands for its counterpart in each other split. Otherwise
// the test set would be the training set under another name.
static void test_names_of_another_split(void **state) {
  (void)state;
  opened o;
  char text[64];
  hid_t file = create("both.h5", 0, false);
  put_pair(file, "train", ROWS);
  put_pair(file, "test", 11);
  H5Fclose(file);
  static const char args[] = "{\"inputs\": \"train_set_x\", \"targets\": [\"/train_set_y\"]}";
  assert_ok(try_open("both.h5", "train", args, &o));
  assert_int_equal(o.info.count, ROWS);
  shut(&o);
  static const char *const splits[] = {"test", "val"};  // val falls back to the test set
  for (size_t i = 0; i < 2; i++) {
    assert_ok(try_open("both.h5", splits[i], args, &o));
    assert_int_equal(o.info.count, 11);
    brim_source_hdf5.describe(o.state, 0, text, sizeof text);
    assert_string_equal(text, "both.h5:/test_set_x[0]");
    shut(&o);
  }
  // a config that names the test set for training gets it
  assert_ok(try_open("both.h5", "train",
                     "{\"inputs\": \"test_set_x\", \"targets\": \"test_set_y\"}", &o));
  assert_int_equal(o.info.count, 11);
  shut(&o);
  file = create("test_alone.h5", 0, false);
  put_pair(file, "test", 11);
  H5Fclose(file);
  assert_ok(try_open("test_alone.h5", "test", args, &o));
  assert_int_equal(o.info.count, 11);
  shut(&o);
  assert_refused("both.h5", "test", "{\"inputs\": \"train_other\"}", BRIM_ENOENT,
                 "has no dataset other");
}

static void test_unused(void **state) {
  (void)state;
  static const char *const cats[] = {"non-cat", "cat"};
  hid_t file = create("more.h5", 0, false);
  put_pair(file, "train", ROWS);
  put_pair(file, "test", 11);
  put_names(file, "list_classes", cats, 2, 8, H5T_STR_NULLTERM);
  set extra = floats("meta/weights", 3, 2);
  put_set(file, &extra, NULL);
  put_names(file, "notes", cats, 1, 8, H5T_STR_NULLTERM);
  H5Fclose(file);
  brim_source *splits[] = {open_split("more.h5", "train", NULL, 0),
                           open_split("more.h5", "test", NULL, 0)};
  brim_str out;
  brim_source_left left;
  brim_str_init(&out);
  assert_ok(brim_source_unused(splits, 2, &out, &left));
  assert_int_equal(left.count, 2);
  assert_string_equal(out.data, "/meta/weights (3 x 2 f32), /notes (1 text)");
  brim_str_clear(&out);
  assert_ok(brim_source_unused(splits, 1, &out, &left));
  assert_int_equal(left.count, 4);
  assert_non_null(strstr(out.data, "/test_set_y (11 x 1 i64)"));
  brim_str_deinit(&out);
  brim_source_close(splits[0]);
  brim_source_close(splits[1]);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_labels_in_a_column),
      cmocka_unit_test(test_class_lists),
      cmocka_unit_test(test_class_list_elsewhere),
      cmocka_unit_test(test_names_of_another_split),
      cmocka_unit_test(test_unused),
  };
  return cmocka_run_group_tests(tests, hdf5_setup, NULL);
}
