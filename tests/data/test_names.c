// Names of classes by source and split, and one image as a set.
#include <sys/stat.h>

#include "data/data_pack.h"
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

// A class without images keeps its name, as it keeps its label; other splits go by train.
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_folder),
      cmocka_unit_test(test_none),
      cmocka_unit_test(test_one_image),
  };
  go_to_fresh_folder();
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
