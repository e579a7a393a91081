// Image folders with files that are broken, change or are no files: these fail by name while the others are read.
// Links, depth, lack of memory, threads.
#include "folder_test.h"

//---------------------------------- what is broken ----------------------------------

// Images of unsupported kinds are reported, not just left out.
static void test_other_kinds(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  put_jpeg("kinds/a/0.jpg", SIDE, SIDE, 1);
  put_jpeg("kinds/b/0.jpg", SIDE, SIDE, 2);
  put_text("kinds/b/notes.txt", "none");
  static bytes bmp;
  make_bmp(&(bmp_how){.height = SIDE, .width = SIDE, .bits = 24, .header = 40}, &bmp);
  put_file("kinds/b/1.BMP", &bmp);
  listen();
  assert_ok(open_folder("kinds", "train", NULL, &s, &info));
  table->close(s);
  assert_string_equal(warnings, "");
  put_text("kinds/a/1.avif", "not looked at");
  put_text("kinds/b/c/2.GIF", "not looked at");
  put_text("kinds/b/3.tiff", "not looked at");
  assert_ok(open_folder("kinds", "train", NULL, &s, &info));
  assert_int_equal(info.count, 3);
  uint8_t pixels[PIXELS];
  int32_t label = 0;
  assert_ok(table->read(s, 2, pixels, &label));
  assert_int_equal(label, 1);
  table->close(s);
  assert_warned("kinds: brim ignores 3 image files");
  assert_warned("the first is 'a/1.avif'");
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
  assert_int_equal(mkfifo("bad/a/7.jpg", 0600), 0);  // not a regular file: skipped
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
    // The headers of 3 and 4 are complete.
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

// Links that lead to the same folder on more and more paths: each folder is read once, and reported once.
static void test_link_maze(void **state) {
  (void)state;
  enum { LEVELS = 40 };  // there are 2 to the power of this many paths
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
  (void)unlink("maze/set/two/in");  // another class may link to the same folder
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

// Deeper than any set of images, without a stack overflow.
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
  assert_ok(brim_fs_mkdirs("hollow/train/cat"));  // the split exists, but has no images
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

// Opens the folder through brim_source: by name, with parts, sizes and scaled decoding.
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
  assert_int_equal(s->host_bytes, brim_builtin_folder.host_bytes(s->state));
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
  assert_detail("source/odd/5.jpg: offset 0: not an image");
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
                       brim_builtin_folder.host_bytes(s));
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

// Enough files that threads also read headers.
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
  assert_true(after.calls - before.calls < 100);  // the number does not grow with the images
  assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
  table->close(r.source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
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
