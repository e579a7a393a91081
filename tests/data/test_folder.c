// Image folders: classes, order and splits; sizes that agree and that vary; files that are broken,
// change or are no files at all fail by name while the others are read.
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_int.h"
#include "data/image/data_image.h"
#include "image_test.h"

enum { SIDE = 16, PIXELS = SIDE * SIDE * 3 };

static const brim_source_table *const table = &brim_source_folder;

static char warnings[4096];

static void keep_warning(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx;
  (void)level;
  (void)module;
  size_t used = strlen(warnings);
  snprintf(warnings + used, sizeof warnings - used, "%s\n", text);
}

static void listen(void) {
  warnings[0] = 0;
  brim_log_set_sink(keep_warning, NULL, BRIM_LOG_WARN);
}

#define assert_warned(part)                                                       \
  do {                                                                            \
    if (!strstr(warnings, part)) fail_msg("'%s' is not in '%s'", part, warnings); \
  } while (0)

//---------------------------------- making ----------------------------------

static void put_file(const char *path, const bytes *b) {
  char *folder = brim_fs_dirname(path);
  assert_non_null(folder);
  assert_ok(brim_fs_mkdirs(folder));
  brim_free(folder);
  write_bytes(path, b->data, b->size);
}

static void put_jpeg(const char *path, int height, int width, int seed) {
  static bytes b;
  jpeg_how how = {.height = height, .width = width, .color = JCS_RGB};
  make_jpeg(&how, seed, &b);
  put_file(path, &b);
}

static void put_png(const char *path, int height, int width) {
  static bytes b;
  png_how how = {.height = height, .width = width, .color = PNG_COLOR_TYPE_RGB, .depth = 8};
  make_png(&how, &b);
  put_file(path, &b);
}

static void put_text(const char *path, const char *text) {
  static bytes b;
  b.size = 0;
  put(&b, text, strlen(text));
  put_file(path, &b);
}

static brim_status open_folder(const char *path, const char *split, const char *args, void **state,
                               brim_source_info *info) {
  brim_source_how how = {.path = path, .split = split, .args_json = args};
  brim_status status = table->open(&how, state);
  if (!status) table->info(*state, info);
  return status;
}

// What is at `index`: its name, its class, and the pixels of the file's bytes.
static void check_file(void *state, const brim_source_info *info, uint64_t index, const char *root,
                       const char *name, int32_t label) {
  char text[256], path[512], *data;
  size_t size;
  table->describe(state, index, text, sizeof text);
  assert_string_equal(text, name);
  uint8_t got[PIXELS], expected[PIXELS];
  int32_t target = -7;
  assert_ok(table->read(state, index, got, &target));
  assert_int_equal(target, info->classes ? label : -7);
  snprintf(path, sizeof path, "%s/%s", root, name);
  assert_ok(brim_fs_read(path, 0, &data, &size));
  brim_image_want want = {.channels = (int)info->dim[2], .scale = 1};
  brim_image_pixels out = {.data = expected, .capacity = sizeof expected};
  assert_ok(brim_image_decode(data, size, path, &want, &out));
  assert_memory_equal(got, expected, (size_t)(SIDE * SIDE * info->dim[2]));
  brim_free(data);
}

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
  // An empty class keeps its number, so that dog is 1 here too.
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
  // The training set numbers the classes: a split that lacks some has the same numbers.
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
  // Images right in the folder of a split have no class.
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

// Folders beside those of the classes that hold no images: somebody's runs, notes and scripts.
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
    assert_warned("4 of 6 class folders have no images (.jpg, .jpeg, .png), so brim ignores them");
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
  // In a split such a folder is a class: another split may have images of it.
  put_jpeg("kept/train/dog/1.jpg", SIDE, SIDE, 1);
  assert_ok(brim_fs_mkdirs("kept/train/cat"));
  assert_ok(open_folder("kept", "train", NULL, &s, &info));
  assert_int_equal(info.classes, 2);
  check_file(s, &info, 0, "kept", "train/dog/1.jpg", 1);
  table->close(s);
  names = names_of(arena, "kept", 2);
  assert_non_null(names);
  assert_string_equal(names[0], "cat");
  // Without an image in any of them, those beside them count.
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

// Other names and other cases of the splits; a class of such a name beside other classes stays one.
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
  // With classes beside them they are left out, with a word.
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
      int by = i < 2 ? scale : 1;  // PNG comes whole
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
  assert_detail("var/dog/4.png: offset 0: neither JPEG nor PNG");
  brim_source_image broken = {.scale = 1, .pixels = pixels, .capacity = sizeof pixels};
  assert_status(table->decode(s, 3, &broken, &label), BRIM_EPARSE);
  table->close(s);
}

// More than fits the stack.
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

//---------------------------------- what is broken ----------------------------------

// Images of kinds that are not read are not just not there.
static void test_other_kinds(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("kinds/a/0.jpg", SIDE, SIDE, 1);
  put_jpeg("kinds/b/0.jpg", SIDE, SIDE, 2);
  put_text("kinds/b/notes.txt", "none");
  listen();
  assert_ok(open_folder("kinds", "train", NULL, &s, &info));
  table->close(s);
  assert_string_equal(warnings, "");
  put_text("kinds/a/1.webp", "not looked at");
  put_text("kinds/b/c/2.GIF", "not looked at");
  put_text("kinds/b/3.bmp", "not looked at");
  assert_ok(open_folder("kinds", "train", NULL, &s, &info));
  assert_int_equal(info.count, 2);
  table->close(s);
  assert_warned("kinds: 3 image files are not .jpg, .jpeg or .png");
  assert_warned("the first is 'a/1.webp'");
}

static void test_broken_files(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("bad/a/0.jpg", SIDE, SIDE, 1);
  put_text("bad/a/1.jpg", "");
  put_text("bad/a/2.jpg", "this is text, whatever its name says");
  put_jpeg("bad/a/3.jpg", SIDE, SIDE, 1);
  put_png("bad/a/4.png", SIDE, SIDE);
  assert_int_equal(truncate("bad/a/3.jpg", 600), 0);
  assert_int_equal(truncate("bad/a/4.png", 100), 0);
  assert_int_equal(symlink("nowhere", "bad/a/5.jpg"), 0);
  assert_int_equal(symlink(".", "bad/a/6.jpg"), 0);
  assert_int_equal(mkfifo("bad/a/7.jpg", 0600), 0);  // not a file: not seen
  listen();
  assert_ok(open_folder("bad", "train", NULL, &s, &info));
  assert_int_equal(info.count, 7);
  assert_int_equal(info.varies, 0);
  assert_warned("bad: cannot read 4 of 7 images; the first: bad/a/1.jpg: offset 0: the file is");
  check_file(s, &info, 0, "bad", "a/0.jpg", 0);
  uint8_t pixels[PIXELS];
  int32_t label;
  for (uint64_t i = 1; i < 7; i++) {
    char name[32];
    snprintf(name, sizeof name, "bad/a/%d.", (int)i);
    assert_true(table->read(s, i, pixels, &label) != BRIM_OK);
    assert_detail(name);
    int64_t h, w;
    // The header of 3 and 4 is whole.
    assert_int_equal(table->size(s, i, &h, &w) == BRIM_OK, i == 3 || i == 4);
  }
  assert_status(table->read(s, 5, pixels, &label), BRIM_ENOENT);
  table->close(s);
}

static void test_changing_files(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("chg/a/0.jpg", SIDE, SIDE, 1);
  put_jpeg("chg/a/1.jpg", SIDE, SIDE, 1);
  put_jpeg("chg/a/2.jpg", SIDE, SIDE, 1);
  assert_ok(open_folder("chg", "train", NULL, &s, &info));
  put_jpeg("chg/a/0.jpg", SIDE, SIDE - 1, 1);
  put_jpeg("chg/a/1.jpg", SIDE, SIDE + 1, 1);
  assert_int_equal(unlink("chg/a/2.jpg"), 0);
  uint8_t pixels[PIXELS];
  int32_t label;
  assert_status(table->read(s, 0, pixels, &label), BRIM_EPARSE);
  assert_detail("chg/a/0.jpg: 16 x 15 pixels; all were 16 x 16");
  assert_status(table->read(s, 1, pixels, &label), BRIM_ELIMIT);
  assert_detail("chg/a/1.jpg: ");
  assert_status(table->read(s, 2, pixels, &label), BRIM_ENOENT);
  assert_detail("chg/a/2.jpg: ");
  table->close(s);
}

static void test_links(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("linked/a/0.jpg", SIDE, SIDE, 1);
  put_jpeg("linked-to/1.jpg", SIDE, SIDE, 2);
  assert_int_equal(symlink("../linked-to", "linked/b"), 0);
  assert_int_equal(symlink("../../linked-to/1.jpg", "linked/a/1.jpg"), 0);
  assert_int_equal(symlink("..", "linked/a/up"), 0);
  assert_int_equal(symlink(".", "linked/a/here"), 0);
  listen();
  assert_ok(open_folder("linked", "train", NULL, &s, &info));
  assert_int_equal(info.count, 3);
  assert_int_equal(info.classes, 2);
  check_file(s, &info, 1, "linked", "a/1.jpg", 0);
  check_file(s, &info, 2, "linked", "b/1.jpg", 1);
  assert_warned("linked/a/here is a link to a folder above it");
  assert_warned("linked/a/up is a link to a folder above it");
  table->close(s);
}

// Links that lead to the same folder by more and more ways: each is read once, and told of once.
static void test_link_maze(void **state) {
  (void)state;
  enum { LEVELS = 40 };  // 2 to the power of this were the ways
  void *s;
  brim_source_info info;
  for (int i = 0; i < LEVELS; i++) {
    char folder[64], name[80], to[64];
    snprintf(folder, sizeof folder, "maze/halls/h%02d", i);
    assert_ok(brim_fs_mkdirs(folder));
    snprintf(to, sizeof to, "../h%02d", i + 1);
    for (int k = 0; k < 2 && i + 1 < LEVELS; k++) {
      snprintf(name, sizeof name, "%s/%c", folder, 'a' + k);
      (void)unlink(name);
      assert_int_equal(symlink(to, name), 0);
    }
  }
  char last[64];
  snprintf(last, sizeof last, "maze/halls/h%02d/0.jpg", LEVELS - 1);
  put_jpeg(last, SIDE, SIDE, 1);
  assert_ok(brim_fs_mkdirs("maze/set/one"));
  put_jpeg("maze/set/two/0.jpg", SIDE, SIDE, 2);
  (void)unlink("maze/set/one/in");
  assert_int_equal(symlink("../../halls/h00", "maze/set/one/in"), 0);
  (void)unlink("maze/set/two/in");  // another class may have the same
  assert_int_equal(symlink("../../halls/h00", "maze/set/two/in"), 0);
  (void)unlink("maze/set/gone");
  assert_int_equal(symlink("nowhere", "maze/set/gone"), 0);
  listen();
  assert_ok(open_folder("maze/set", "train", NULL, &s, &info));
  assert_int_equal(info.classes, 2);
  assert_int_equal(info.count, 3);
  assert_warned("links lead to folders that are in the same class already");
  assert_warned("1 links lead to nothing and are not read; the first is 'gone'");
  table->close(s);
}

// Deeper than any set of images, and still no end of the stack.
static void test_deep(void **state) {
  (void)state;
  enum { LEVELS = 90 };
  void *s;
  brim_source_info info;
  char path[1024] = "deep/cat";
  for (int i = 0; i < LEVELS; i++) strcat(path, "/d");
  put_jpeg("deep/cat/0.jpg", SIDE, SIDE, 1);
  put_jpeg("deep/cat/d/d/d/1.jpg", SIDE, SIDE, 1);
  put_jpeg("deep/dog/0.jpg", SIDE, SIDE, 1);
  assert_ok(brim_fs_mkdirs(path));
  listen();
  assert_ok(open_folder("deep", "train", NULL, &s, &info));
  assert_int_equal(info.count, 3);
  assert_warned("1 folders lie more than 64 levels below their class");
  table->close(s);
}

static void test_refused(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  assert_status(open_folder("nowhere", "train", NULL, &s, &info), BRIM_ENOENT);
  assert_detail("nowhere: ");
  assert_status(open_folder(NULL, "train", NULL, &s, &info), BRIM_EINVAL);
  assert_detail("data.path");
  put_text("file.txt", "x");
  assert_status(open_folder("file.txt", "train", NULL, &s, &info), BRIM_EINVAL);
  assert_detail("file.txt: not a folder");
  assert_ok(brim_fs_mkdirs("empty/cat"));
  listen();
  assert_status(open_folder("empty", "train", NULL, &s, &info), BRIM_ENOENT);
  assert_detail("empty: no images");
  assert_ok(brim_fs_mkdirs("hollow/train/cat"));  // the split is there, its images are not
  assert_status(open_folder("hollow", "train", NULL, &s, &info), BRIM_EPARSE);
  assert_detail("hollow/train: no images");
  assert_ok(brim_fs_mkdirs("nothing"));
  assert_status(open_folder("nothing", "train", NULL, &s, &info), BRIM_ENOENT);
  put_text("broken/cat/1.jpg", "x");
  put_text("broken/cat/2.jpg", "");
  assert_status(open_folder("broken", "train", NULL, &s, &info), BRIM_EPARSE);
  assert_detail("broken: none of the 2 images can be read; the first: broken/cat/1.jpg: ");
  put_jpeg("good/cat/1.jpg", SIDE, SIDE, 1);
  assert_status(open_folder("good", "train", "{\"color\": \"cmyk\"}", &s, &info), BRIM_EINVAL);
  assert_detail("color is rgb or gray, not 'cmyk'");
  assert_status(open_folder("good", "train", "{\"strict\": 1}", &s, &info), BRIM_EINVAL);
  assert_status(open_folder("good", "train", "{\"limit\": 0}", &s, &info), BRIM_EINVAL);
  assert_status(open_folder("good", "train", "{\"colour\": \"rgb\"}", &s, &info), BRIM_EINVAL);
  assert_detail("did you mean 'color'");
  assert_ok(open_folder("wrong", "train", "{\"path\": \"good\"}", &s, &info));
  table->close(s);
}

static void test_strict(void **state) {
  (void)state;
  static bytes b;
  jpeg_how how = {.height = SIDE, .width = SIDE, .color = JCS_RGB};
  make_jpeg(&how, 0, &b);
  b.size -= 2;
  put(&b, "stray\xff\xd9", 7);
  put_file("stray/a/1.jpg", &b);
  void *s;
  brim_source_info info;
  uint8_t pixels[PIXELS];
  int32_t label;
  assert_ok(open_folder("stray", "train", NULL, &s, &info));
  assert_status(table->read(s, 0, pixels, &label), BRIM_EPARSE);
  assert_detail("stray/a/1.jpg: ");
  table->close(s);
  assert_ok(open_folder("stray", "train", "{\"strict\": false}", &s, &info));
  assert_ok(table->read(s, 0, pixels, &label));
  table->close(s);
}

// As everybody else opens it: by name, with parts, sizes and scaled decoding.
static void test_through_source(void **state) {
  (void)state;
  brim_source *s;
  for (int i = 0; i < 10; i++) {
    char path[64];
    snprintf(path, sizeof path, "source/%s/%d.jpg", i % 2 ? "odd" : "even", i);
    put_jpeg(path, 40 + i, 60, i);
  }
  assert_ok(open_source("folder", NULL, 0, "source", "train", &s));
  assert_int_equal(s->info.count, 10);
  assert_int_equal(s->info.classes, 2);
  assert_int_equal(s->input_bytes, 49 * 60 * 3);
  assert_int_equal(s->target_bytes, 4);
  assert_int_equal(s->host_bytes, brim_source_folder_host_bytes(s->state));
  static uint8_t pixels[49 * 60 * 3];
  int32_t label;
  int64_t h, w;
  char text[64];
  assert_ok(brim_source_size(s, 7, &h, &w));  // 0 2 4 6 8 1 3 5 7 9
  assert_true(h == 45 && w == 60);
  brim_source_describe(s, 7, text, sizeof text);
  assert_string_equal(text, "odd/5.jpg");
  assert_ok(brim_source_read(s, 7, 4, pixels, &label, &h, &w));
  assert_true(h == 12 && w == 15 && label == 1);
  write_bytes("source/odd/5.jpg", "gone", 4);
  assert_status(brim_source_read(s, 7, 1, pixels, &label, &h, &w), BRIM_EPARSE);
  assert_detail("source/odd/5.jpg: offset 0: neither JPEG nor PNG");
  brim_source_close(s);
  brim_argument gray[] = {arg_string("color", "gray"), arg_int("limit", 3)};
  assert_ok(open_source("folder", gray, 2, "source", "train", &s));
  assert_int_equal(s->info.count, 3);
  assert_int_equal(s->input_bytes, 44 * 60);
  brim_source_close(s);
}

//---------------------------------- memory, threads ----------------------------------

static void test_allocation_failures(void **state) {
  (void)state;
  put_jpeg("alloc/train/a/sub/1.jpg", SIDE, SIDE, 1);
  put_jpeg("alloc/train/b/1.jpg", SIDE, SIDE, 1);
  put_jpeg("alloc/test/b/1.jpg", SIDE, SIDE, 1);
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  uint64_t n = 1;
  for (;; n++) {
    void *s = NULL;
    brim_source_info info;
    uint64_t failed = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = open_folder("alloc", "all", NULL, &s, &info);
    brim_alloc_fail_nth(0, 0);
    if (!status) {
      brim_alloc_get_stats(&after);
      assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                       brim_source_folder_host_bytes(s));
      table->close(s);
    }
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[BRIM_MEM_PLANNED], before.live_blocks[BRIM_MEM_PLANNED]);
    assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
    if (brim_alloc_failures() == failed) break;
    assert_int_equal(status, BRIM_ENOMEM);
  }
  assert_true(n > 10);
}

typedef struct reading {
  void *source;
  uint8_t expected[16][PIXELS];
  int wrong[8];
} reading;

static void read_range(void *ctx, int64_t begin, int64_t end, int thread) {
  reading *r = ctx;
  for (int64_t i = begin; i < end; i++) {
    uint64_t index = (uint64_t)i * 7 % 320;
    uint8_t pixels[PIXELS];
    int32_t label = -1;
    if (table->read(r->source, index, pixels, &label) || label != (int32_t)(index / 80) ||
        memcmp(pixels, r->expected[index % 16], PIXELS) != 0) {
      r->wrong[thread]++;
    }
  }
}

// Enough files that headers are read by threads as well.
static void test_threads(void **state) {
  (void)state;
  static reading r;
  brim_source_info info;
  brim_alloc_stats before, after;
  for (int i = 0; i < 320; i++) {
    char path[64];
    snprintf(path, sizeof path, "many/%d/%03d.jpg", i / 80, i % 80);
    put_jpeg(path, SIDE, SIDE, i);
  }
  assert_ok(open_folder("many", "train", NULL, &r.source, &info));
  assert_int_equal(info.count, 320);
  assert_int_equal(info.varies, 0);
  for (uint64_t i = 0; i < 16; i++) {
    int32_t label;
    assert_ok(table->read(r.source, i, r.expected[i], &label));
    if (i) assert_memory_not_equal(r.expected[i], r.expected[0], PIXELS);
  }
  brim_alloc_get_stats(&before);
  brim_pool *pool;
  assert_ok(brim_pool_create(8, &pool));
  brim_pool_run(pool, 2000, read_range, &r);
  brim_pool_destroy(pool);
  for (int i = 0; i < 8; i++) assert_int_equal(r.wrong[i], 0);
  brim_alloc_get_stats(&after);
  assert_true(after.calls - before.calls < 100);  // none for each image
  assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
  table->close(r.source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_splits),
      cmocka_unit_test(test_working_folder),
      cmocka_unit_test(test_no_split),
      cmocka_unit_test(test_split_spellings),
      cmocka_unit_test(test_unlabelled),
      cmocka_unit_test(test_varies),
      cmocka_unit_test(test_large_file),
      cmocka_unit_test(test_other_kinds),
      cmocka_unit_test(test_broken_files),
      cmocka_unit_test(test_changing_files),
      cmocka_unit_test(test_link_maze),
      cmocka_unit_test(test_deep),
      cmocka_unit_test(test_links),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_strict),
      cmocka_unit_test(test_allocation_failures),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_through_source),
  };
  go_to_fresh_folder();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
