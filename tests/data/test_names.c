// Names of classes by source and split, and one image as a set.
#include <sys/stat.h>

#include "data/pack/data_pack.h"
#include "image_test.h"

static void image_at(const char *path, int height, int width) {
  const jpeg_how how = {.height = height, .width = width, .color = JCS_RGB};
  static bytes b;
  b.size = 0;
  make_jpeg(&how, 3, &b);
  write_bytes(path, b.data, b.size);
}

static void folder(const char *path) { assert_ok(brim_fs_mkdirs(path)); }

static void names_of(brim_arena *arena, const char *path, const char *split, int64_t classes,
                     const char *const **names) {
  const brim_component component = {.name = "folder"};
  brim_source *source;
  assert_ok(brim_source_open(NULL, &component, path, split, 0, &source));
  assert_int_equal(source->info.classes, classes);
  assert_ok(brim_source_class_names(arena, source, &component, path, split, names));
  brim_source_close(source);
}

// A class without images keeps its name and its label; other splits follow train.
static void test_folder(void **state) {
  (void)state;
  brim_arena *arena;
  const char *const *names;
  assert_ok(brim_arena_create(0, &arena));
  folder("a/train/cat");
  folder("a/train/dog");
  folder("a/train/ant");
  folder("a/train/.hidden");
  folder("a/test/dog");
  image_at("a/train/cat/1.jpg", 8, 8);
  image_at("a/train/dog/1.jpg", 8, 8);
  image_at("a/test/dog/1.jpg", 8, 8);
  static const char *const splits[] = {"train", "val", "test", "all"};
  for (size_t i = 0; i < 4; i++) {
    names_of(arena, "a", splits[i], 3, &names);
    assert_non_null(names);
    assert_string_equal(names[0], "ant");
    assert_string_equal(names[1], "cat");
    assert_string_equal(names[2], "dog");
  }
  folder("b/two");
  folder("b/one");
  image_at("b/two/x.jpg", 8, 8);
  image_at("b/one/x.jpg", 8, 8);
  names_of(arena, "b", "train", 2, &names);
  assert_non_null(names);
  assert_string_equal(names[0], "one");
  brim_arena_destroy(arena);
}

static void test_none(void **state) {
  (void)state;
  brim_arena *arena;
  const char *const *names = NULL;
  assert_ok(brim_arena_create(0, &arena));
  folder("plain");
  image_at("plain/x.jpg", 8, 8);
  names_of(arena, "plain", "train", 0, &names);
  assert_null(names);
  brim_arena_destroy(arena);
}

static void test_one_image(void **state) {
  (void)state;
  const brim_component component = {.name = "folder"};
  brim_source *source;
  folder("photos");
  image_at("photos/one.jpg", 10, 14);
  image_at("photos/other.jpg", 8, 8);
  assert_true(brim_source_is_image("photos/one.jpg"));
  assert_false(brim_source_is_image("photos"));
  assert_false(brim_source_is_image("photos/none.jpg"));
  assert_ok(brim_source_open(NULL, &component, "photos/one.jpg", "test", 0, &source));
  assert_int_equal(source->info.count, 1);
  assert_int_equal(source->info.classes, 0);
  assert_int_equal(source->info.varies, 0);
  assert_int_equal(source->info.dim[0], 10);
  assert_int_equal(source->info.dim[1], 14);
  char text[64];
  brim_source_describe(source, 0, text, sizeof text);
  assert_string_equal(text, "one.jpg");
  static uint8_t pixels[10 * 14 * 3];
  assert_ok(brim_source_read(source, 0, 1, pixels, NULL, NULL, NULL));
  brim_source_close(source);
  write_bytes("photos/broken.png", "x", 1);
  assert_true(brim_source_open(NULL, &component, "photos/broken.png", "train", 0, &source) != 0);
  assert_non_null(strstr(brim_status_detail(), "broken.png"));
}

// Images directly in `train` beside class folders make it a class of that name. With class folders inside, or nothing
// beside it, it is the training set.
static void test_a_class_called_train(void **state) {
  (void)state;
  brim_arena *arena;
  const char *const *names;
  brim_source *source = NULL;
  const brim_component component = {.name = "folder"};
  assert_ok(brim_arena_create(0, &arena));
  folder("vehicles/train");
  folder("vehicles/car");
  folder("vehicles/plane");
  image_at("vehicles/train/1.jpg", 8, 8);
  image_at("vehicles/train/2.jpg", 8, 8);
  image_at("vehicles/car/1.jpg", 8, 8);
  image_at("vehicles/plane/1.jpg", 8, 8);
  names_of(arena, "vehicles", "train", 3, &names);
  assert_string_equal(names[0], "car");
  assert_string_equal(names[2], "train");
  assert_int_equal(brim_source_open(NULL, &component, "vehicles", "test", 0, &source), BRIM_ENOENT);
  folder("sorted/train/a");
  folder("sorted/train/b");
  folder("sorted/extra");
  image_at("sorted/train/0.jpg", 8, 8);
  image_at("sorted/train/a/1.jpg", 8, 8);
  image_at("sorted/train/b/1.jpg", 8, 8);
  image_at("sorted/extra/1.jpg", 8, 8);
  names_of(arena, "sorted", "train", 2, &names);
  assert_string_equal(names[0], "a");
  folder("bare/train");
  folder("bare/test");
  image_at("bare/train/1.jpg", 8, 8);
  image_at("bare/test/1.jpg", 8, 8);
  assert_ok(brim_source_open(NULL, &component, "bare", "train", 0, &source));
  assert_int_equal(source->info.count, 1);
  assert_int_equal(source->info.classes, 0);
  brim_source_close(source);
  brim_arena_destroy(arena);
}

// Bytes that are not UTF-8 are written as \xNN, so that reports and checkpoints can contain the name.
static void test_names_are_text(void **state) {
  (void)state;
  brim_arena *arena;
  const char *const *names;
  assert_ok(brim_arena_create(0, &arena));
  folder("latin/caf\xe9");
  folder("latin/\xec\xb0\xa8");  // a Korean word for tea, in UTF-8
  folder("latin/tea");
  image_at("latin/caf\xe9/1.jpg", 8, 8);
  image_at("latin/\xec\xb0\xa8/1.jpg", 8, 8);
  image_at("latin/tea/1.jpg", 8, 8);
  names_of(arena, "latin", "train", 3, &names);
  assert_string_equal(names[0], "caf\\xE9");
  assert_string_equal(names[1], "tea");
  assert_string_equal(names[2], "\xec\xb0\xa8");
  brim_arena_destroy(arena);
}

static void test_unused_files(void **state) {
  (void)state;
  const brim_component component = {.name = "folder"};
  brim_source *splits[2];
  folder("used/train/a/deep");
  folder("used/test/a");
  folder("used/extra");
  image_at("used/train/a/1.jpg", 8, 8);
  image_at("used/train/a/deep/2.jpg", 8, 8);
  image_at("used/test/a/1.jpg", 8, 8);
  image_at("used/train/stray.jpg", 8, 8);
  image_at("used/extra/1.jpg", 8, 8);
  write_bytes("used/labels.csv", "x", 1);
  write_bytes("used/train/a/notes.txt", "x", 1);
  write_bytes("used/train/a/.hidden", "x", 1);
  assert_ok(brim_source_open(NULL, &component, "used", "train", 0, &splits[0]));
  assert_ok(brim_source_open(NULL, &component, "used", "test", 0, &splits[1]));
  brim_str out;
  brim_source_left left;
  brim_str_init(&out);
  assert_ok(brim_source_unused(splits, 2, &out, &left));
  assert_string_equal(out.data, "extra/1.jpg, labels.csv, train/a/notes.txt, train/stray.jpg");
  assert_int_equal(left.count, 4);
  brim_str_deinit(&out);
  brim_source_close(splits[0]);
  brim_source_close(splits[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_folder),         cmocka_unit_test(test_a_class_called_train),
      cmocka_unit_test(test_names_are_text), cmocka_unit_test(test_unused_files),
      cmocka_unit_test(test_none),           cmocka_unit_test(test_one_image),
  };
  go_to_fresh_folder();
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
