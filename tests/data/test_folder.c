// Image folders: classes, order and splits; equal and varying sizes.
#include "folder_test.h"

//---------------------------------- order ----------------------------------

static const struct {
  const char *name;
  int32_t label;
} ordered[] = {{"C/one.jpeg", 0},
               {"C/two.Png", 0},
               {"a/jpeg-in-truth.png", 1},
               {"a/png-in-truth.jpg", 1},
               {"a/folder.jpg/inside.jpg", 1},
               {"a/sub/y.jpg", 1},
               {"a/sub/deep/z.jpg", 1},
               {"b/10.JPG", 2},
               {"b/2.jpg", 2}};

static void put_order(void) {
  put_jpeg("order/b/2.jpg", SIDE, SIDE, 1);
  put_jpeg("order/b/10.JPG", SIDE, SIDE, 2);
  put_jpeg("order/b/.hidden.jpg", SIDE, SIDE, 2);
  put_jpeg("order/.cache/x.jpg", SIDE, SIDE, 2);
  put_jpeg("order/C/one.jpeg", SIDE, SIDE, 3);
  put_png("order/C/two.Png", SIDE, SIDE);
  put_png("order/a/png-in-truth.jpg", SIDE, SIDE);
  put_jpeg("order/a/jpeg-in-truth.png", SIDE, SIDE, 4);
  put_text("order/a/notes.txt", "not an image");
  put_jpeg("order/a/sub/deep/z.jpg", SIDE, SIDE, 5);
  put_jpeg("order/a/sub/y.jpg", SIDE, SIDE, 6);
  put_jpeg("order/a/folder.jpg/inside.jpg", SIDE, SIDE, 7);
  assert_ok(brim_fs_mkdirs("order/b/empty.jpg"));
}

static void test_order(void **state) {
  (void)state;
  put_order();
  static const char *const roots[] = {"order", "order/", "./order//"};
  void *s;
  brim_source_info info;
  for (size_t r = 0; r < 3; r++) {
    assert_ok(open_folder(roots[r], "train", NULL, &s, &info));
    assert_int_equal(info.count, 9);
    assert_int_equal(info.classes, 3);
    assert_int_equal(info.rank, 3);
    assert_int_equal(info.dim[0], SIDE);
    assert_int_equal(info.dim[1], SIDE);
    assert_int_equal(info.dim[2], 3);
    assert_int_equal(info.channels, 3);
    assert_true(info.mean[0] == 0.485f && info.std[2] == 0.225f);
    assert_int_equal(info.varies, 0);
    assert_int_equal(info.costly, 1);
    for (uint64_t i = 0; i < 9; i++) {
      check_file(s, &info, i, "order", ordered[i].name, ordered[i].label);
      int64_t h, w;
      assert_ok(table->size(s, i, &h, &w));
      assert_true(h == SIDE && w == SIDE);
    }
    uint8_t pixels[PIXELS];
    int32_t label;
    assert_status(table->read(s, 9, pixels, &label), BRIM_EINVAL);
    assert_status(table->size(s, 9, &(int64_t){0}, &(int64_t){0}), BRIM_EINVAL);
    char text[6];
    table->describe(s, 0, text, sizeof text);
    assert_string_equal(text, "C/one");
    table->describe(s, 9, text, sizeof text);
    assert_string_equal(text, "");
    table->close(s);
  }
  assert_ok(open_folder("order", "train", "{\"limit\": 3, \"color\": \"gray\"}", &s, &info));
  assert_int_equal(info.count, 3);
  assert_int_equal(info.classes, 3);
  assert_int_equal(info.dim[2], 1);
  assert_int_equal(info.channels, 0);
  for (uint64_t i = 0; i < 3; i++) {
    check_file(s, &info, i, "order", ordered[i].name, ordered[i].label);
  }
  table->close(s);
}

static void test_splits(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("sp/train/cat/1.jpg", SIDE, SIDE, 1);
  put_jpeg("sp/train/dog/2.jpg", SIDE, SIDE, 2);
  put_jpeg("sp/train/emu/2.jpg", SIDE, SIDE, 2);
  put_jpeg("sp/test/dog/3.jpg", SIDE, SIDE, 3);
  put_jpeg("sp/test/emu/3.jpg", SIDE, SIDE, 3);
  assert_ok(brim_fs_mkdirs("sp/test/cat"));
  listen();
  assert_ok(open_folder("sp", "train", NULL, &s, &info));
  assert_int_equal(info.count, 3);
  check_file(s, &info, 1, "sp", "train/dog/2.jpg", 1);
  table->close(s);
  assert_string_equal(warnings, "");
  // An empty class keeps its number, so dog is 1 here too.
  static const char *const tests[] = {"test", "val"};
  for (int i = 0; i < 2; i++) {
    listen();
    assert_ok(open_folder("sp", tests[i], NULL, &s, &info));
    assert_int_equal(info.count, 2);
    assert_int_equal(info.classes, 3);
    check_file(s, &info, 0, "sp", "test/dog/3.jpg", 1);
    table->close(s);
    assert_warned("1 of 3 class folders have no images");
    assert_warned("'cat'");
  }
  assert_ok(open_folder("sp", "all", NULL, &s, &info));
  assert_int_equal(info.count, 5);
  assert_int_equal(info.classes, 3);
  check_file(s, &info, 0, "sp", "train/cat/1.jpg", 0);
  check_file(s, &info, 1, "sp", "train/dog/2.jpg", 1);
  check_file(s, &info, 2, "sp", "test/dog/3.jpg", 1);
  check_file(s, &info, 3, "sp", "train/emu/2.jpg", 2);
  check_file(s, &info, 4, "sp", "test/emu/3.jpg", 2);
  table->close(s);
  // The training set numbers the classes: a split without some of them has the same numbers.
  put_jpeg("sp/val/dog/4.jpg", SIDE, SIDE, 4);
  assert_ok(brim_fs_mkdirs("sp/val/bee"));
  listen();
  assert_ok(open_folder("sp", "val", NULL, &s, &info));
  assert_int_equal(info.classes, 3);
  check_file(s, &info, 0, "sp", "val/dog/4.jpg", 1);
  table->close(s);
  assert_string_equal(warnings, "");
  put_jpeg("sp/val/bee/deep/5.jpg", SIDE, SIDE, 4);
  assert_status(open_folder("sp", "val", NULL, &s, &info), BRIM_EPARSE);
  assert_detail("sp: class 'bee' is in 'val' but not in 'train'");
  // Images directly in a split's folder have no class.
  put_jpeg("sp/unlabeled/5.jpg", SIDE, SIDE, 5);
  assert_ok(open_folder("sp", "unlabeled", NULL, &s, &info));
  assert_int_equal(info.classes, 0);
  assert_int_equal(info.target_dim, 0);
  check_file(s, &info, 0, "sp", "unlabeled/5.jpg", 0);
  table->close(s);
  assert_status(open_folder("sp", "half", NULL, &s, &info), BRIM_EINVAL);
  assert_detail("no split 'half'");
}

static const char *const *names_of(brim_arena *arena, const char *path, int64_t classes) {
  brim_source source = {.table = table, .info = {.classes = classes}};
  const char *const *names = NULL;
  assert_ok(brim_source_class_names(arena, &source, NULL, path, "train", &names));
  return names;
}

// Folders beside the classes that hold no images: a user's runs, notes and scripts.
static void test_working_folder(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("wf/cat/deep/1.jpg", SIDE, SIDE, 1);
  put_jpeg("wf/emu/2.jpg", SIDE, SIDE, 2);
  put_text("wf/best/last.safetensors", "x");
  put_text("wf/docs/deep/notes.txt", "x");
  assert_ok(brim_fs_mkdirs("wf/runs"));
  assert_int_equal(symlink(".", "wf/dot"), 0);
  static const char *const splits[] = {"train", "all"};
  for (int i = 0; i < 2; i++) {
    listen();
    assert_ok(open_folder("wf", splits[i], NULL, &s, &info));
    assert_int_equal(info.count, 2);
    assert_int_equal(info.classes, 2);
    check_file(s, &info, 0, "wf", "cat/deep/1.jpg", 0);
    check_file(s, &info, 1, "wf", "emu/2.jpg", 1);
    table->close(s);
    assert_warned("4 of 6 class folders have no images (.jpg, .jpeg, .png, ");
    assert_warned("'best'");
  }
  brim_arena *arena;
  assert_ok(brim_arena_create(0, &arena));
  listen();
  const char *const *names = names_of(arena, "wf", 2);
  assert_non_null(names);
  assert_string_equal(names[0], "cat");
  assert_string_equal(names[1], "emu");
  assert_string_equal(warnings, "");
  // A folder without images is a class inside a split, because another split may have images of it.
  put_jpeg("kept/train/dog/1.jpg", SIDE, SIDE, 1);
  assert_ok(brim_fs_mkdirs("kept/train/cat"));
  assert_ok(open_folder("kept", "train", NULL, &s, &info));
  assert_int_equal(info.classes, 2);
  check_file(s, &info, 0, "kept", "train/dog/1.jpg", 1);
  table->close(s);
  names = names_of(arena, "kept", 2);
  assert_non_null(names);
  assert_string_equal(names[0], "cat");
  // If no folder has an image, the images beside them count.
  put_jpeg("loose/1.jpg", SIDE, SIDE, 1);
  assert_ok(brim_fs_mkdirs("loose/runs"));
  listen();
  assert_ok(open_folder("loose", "train", NULL, &s, &info));
  assert_int_equal(info.classes, 0);
  assert_int_equal(info.count, 1);
  table->close(s);
  assert_string_equal(warnings, "");
  brim_arena_destroy(arena);
}

static void test_no_split(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("ns/cat/1.jpg", SIDE, SIDE, 1);
  put_jpeg("ns/dog/1.jpg", SIDE, SIDE, 1);
  assert_ok(open_folder("ns", "all", NULL, &s, &info));
  assert_int_equal(info.classes, 2);
  table->close(s);
  static const char *const splits[] = {"val", "test", "unlabeled"};
  for (int i = 0; i < 3; i++) {
    assert_status(open_folder("ns", splits[i], NULL, &s, &info), BRIM_ENOENT);
    assert_detail("ns: no folder");
    assert_detail("part=");
    assert_detail("data.val_fraction");
  }
  put_jpeg("only/val/cat/1.jpg", SIDE, SIDE, 1);
  assert_status(open_folder("only", "train", NULL, &s, &info), BRIM_ENOENT);
  assert_detail("only: found a folder 'val' but no 'train'");
}

static void check_count(const char *root, const char *split, uint64_t count, int64_t classes) {
  void *s;
  brim_source_info info;
  assert_ok(open_folder(root, split, NULL, &s, &info));
  assert_int_equal(info.count, count);
  assert_int_equal(info.classes, classes);
  table->close(s);
}

// Other names and other cases of the splits. A class with the name of a split, beside other classes, stays a class.
static void test_split_spellings(void **state) {
  (void)state;
  static const char *const names[][3] = {{"Train", "Val", "Test"},
                                         {"training", "dev", "testing"},
                                         {"TRAINING", "Validation", "Testing"}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    for (int k = 0; k < 3; k++) {
      for (int n = 0; n <= k; n++) {
        for (int c = 0; c < 2; c++) {
          char path[96];
          snprintf(path, sizeof path, "sp%zu/%s/%c/%d.jpg", i, names[i][k], 'a' + c, n);
          put_jpeg(path, SIDE, SIDE, 1);
        }
      }
    }
    char root[16];
    snprintf(root, sizeof root, "sp%zu", i);
    check_count(root, "train", 2, 2);
    check_count(root, "val", 4, 2);
    check_count(root, "test", 6, 2);
    check_count(root, "all", 12, 2);
  }
  put_jpeg("spc/cat/1.jpg", SIDE, SIDE, 1);
  put_jpeg("spc/dev/1.jpg", SIDE, SIDE, 1);
  put_jpeg("spc/Training/1.jpg", SIDE, SIDE, 1);
  check_count("spc", "train", 3, 3);
  put_jpeg("spf/Train/1.jpg", SIDE, SIDE, 1);
  put_jpeg("spf/Test/1.jpg", SIDE, SIDE, 1);
  check_count("spf", "train", 1, 0);
}

static void test_unlabelled(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("flat/2.jpg", SIDE, SIDE, 2);
  put_jpeg("flat/1.jpg", SIDE, SIDE, 1);
  assert_ok(open_folder("flat", "train", NULL, &s, &info));
  assert_int_equal(info.count, 2);
  assert_int_equal(info.classes, 0);
  assert_int_equal(info.target_dim, 0);
  check_file(s, &info, 0, "flat", "1.jpg", 0);
  uint8_t pixels[PIXELS];
  assert_ok(table->read(s, 1, pixels, NULL));
  table->close(s);
  // Images beside class folders are ignored, with a warning.
  put_jpeg("flat/cat/3.jpg", SIDE, SIDE, 3);
  listen();
  assert_ok(open_folder("flat", "train", NULL, &s, &info));
  assert_int_equal(info.count, 1);
  assert_int_equal(info.classes, 1);
  assert_warned("flat: brim ignores 2 images beside the class folders");
  check_file(s, &info, 0, "flat", "cat/3.jpg", 0);
  table->close(s);
}

//---------------------------------- sizes ----------------------------------

static void test_varies(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("var/cat/1.jpg", 40, 21, 1);
  put_jpeg("var/cat/2.jpg", 33, 64, 2);
  put_png("var/dog/3.png", 30, 50);
  put_text("var/dog/4.png", "broken");
  assert_ok(open_folder("var", "train", NULL, &s, &info));
  assert_int_equal(info.count, 4);
  assert_int_equal(info.varies, 1);
  assert_int_equal(info.dim[0], 40);
  assert_int_equal(info.dim[1], 64);
  static const int sizes[3][2] = {{40, 21}, {33, 64}, {30, 50}};
  static uint8_t pixels[40 * 64 * 3];
  int32_t label;
  int64_t h, w;
  assert_status(table->read(s, 0, pixels, &label), BRIM_ESTATE);
  for (uint64_t i = 0; i < 3; i++) {
    assert_ok(table->size(s, i, &h, &w));
    assert_int_equal(h, sizes[i][0]);
    assert_int_equal(w, sizes[i][1]);
    for (int scale = 1; scale <= 8; scale *= 2) {
      int by = i < 2 ? scale : 1;  // PNG is decoded at full size
      brim_source_image out = {.scale = scale, .pixels = pixels, .capacity = sizeof pixels};
      assert_ok(table->decode(s, i, &out, &label));
      assert_int_equal(out.height, (sizes[i][0] + by - 1) / by);
      assert_int_equal(out.width, (sizes[i][1] + by - 1) / by);
      assert_int_equal(label, i < 2 ? 0 : 1);
    }
    size_t need = (size_t)(sizes[i][0] * sizes[i][1] * 3);
    brim_source_image whole = {.scale = 1, .pixels = pixels, .capacity = need};
    assert_ok(table->decode(s, i, &whole, &label));
    whole.capacity = need - 1;
    assert_status(table->decode(s, i, &whole, &label), BRIM_ELIMIT);
  }
  assert_status(table->size(s, 3, &h, &w), BRIM_EPARSE);
  assert_detail("var/dog/4.png: offset 0: not an image");
  brim_source_image broken = {.scale = 1, .pixels = pixels, .capacity = sizeof pixels};
  assert_status(table->decode(s, 3, &broken, &label), BRIM_EPARSE);
  table->close(s);
}

// Paths too long for the stack.
static void test_large_file(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_png("large/a/1.png", 120, 120);
  put_png("large/a/2.png", 120, 120);
  uint64_t size;
  assert_ok(brim_fs_size("large/a/1.png", &size));
  assert_true(size > 16384);
  assert_ok(open_folder("large", "train", NULL, &s, &info));
  static uint8_t pixels[120 * 120 * 3];
  int32_t label;
  assert_ok(table->read(s, 1, pixels, &label));
  png_how how = {.height = 120, .width = 120, .color = PNG_COLOR_TYPE_RGB, .depth = 8};
  for (int i = 0; i < 120 * 120 * 3; i++) {
    assert_int_equal(pixels[i], png_value(&how, i / 360, i / 3 % 120, i % 3));
  }
  assert_int_equal(truncate("large/a/2.png", (off_t)size - 1), 0);
  assert_status(table->read(s, 1, pixels, &label), BRIM_EPARSE);
  assert_detail("large/a/2.png: offset ");
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  brim_alloc_fail_nth(1, 0);
  assert_status(table->read(s, 0, pixels, &label), BRIM_ENOMEM);
  brim_alloc_fail_nth(0, 0);
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
  table->close(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order),           cmocka_unit_test(test_splits),
      cmocka_unit_test(test_working_folder),  cmocka_unit_test(test_no_split),
      cmocka_unit_test(test_split_spellings), cmocka_unit_test(test_unlabelled),
      cmocka_unit_test(test_varies),          cmocka_unit_test(test_large_file),
  };
  go_to_fresh_folder();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
