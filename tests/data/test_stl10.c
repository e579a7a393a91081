// STL-10's files: planes of columns become rows of pixels, labels start at 0; sizes off by a byte, labels out of range
// and bad folds are errors that name the file; no failing allocation leaks.
#include <unistd.h>

#include "data/data_int.h"
#include "image_test.h"

static const brim_source_table *const table = &brim_source_stl10;

// The pixel of channel c at row y and column x of image i.
static uint8_t value_at(uint64_t i, int y, int x, int c) {
  return (uint8_t)(i * 37 + (uint64_t)(y * 5 + x * 3 + c * 101 + y * x));
}

static void write_images(const char *path, uint64_t first, uint64_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  static uint8_t image[BRIM_STL10_IMAGE];
  for (uint64_t i = first; i < first + n; i++) {
    for (int c = 0; c < 3; c++) {
      for (int x = 0; x < 96; x++) {
        for (int y = 0; y < 96; y++) image[c * 9216 + x * 96 + y] = value_at(i, y, x, c);
      }
    }
    assert_int_equal(fwrite(image, 1, sizeof image, f), sizeof image);
  }
  assert_int_equal(fclose(f), 0);
}

static void write_labels(const char *path, uint64_t first, uint64_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  for (uint64_t i = first; i < first + n; i++)
    assert_int_not_equal(fputc((int)(i % 10) + 1, f), EOF);
  assert_int_equal(fclose(f), 0);
}

static void in(const char *folder, const char *name, char path[256]) {
  snprintf(path, 256, "%s/%s", folder, name);
}

static void write_set(const char *folder) {
  char path[256];
  assert_ok(brim_fs_mkdirs(folder));
  in(folder, "train_X.bin", path);
  write_images(path, 0, 12);
  in(folder, "train_y.bin", path);
  write_labels(path, 0, 12);
  in(folder, "test_X.bin", path);
  write_images(path, 100, 3);
  in(folder, "test_y.bin", path);
  write_labels(path, 100, 3);
  in(folder, "unlabeled_X.bin", path);
  write_images(path, 200, 2);
  in(folder, "fold_indices.txt", path);
  write_bytes(path, "0 1 2 \n5 3 11\r\n\n 7", 18);
}

static brim_status open_stl10(const char *path, const char *split, const char *args, void **state,
                              brim_source_info *info) {
  brim_source_how how = {.path = path, .split = split, .args_json = args};
  brim_status status = table->open(&how, state);
  if (!status) table->info(*state, info);
  return status;
}

static void check_sample(void *s, uint64_t index, uint64_t record, int32_t label) {
  static uint8_t pixels[BRIM_STL10_IMAGE + 1];
  int32_t got = -7;
  pixels[BRIM_STL10_IMAGE] = 0xa5;
  assert_ok(table->read(s, index, pixels, label < 0 ? NULL : &got));
  assert_int_equal(got, label < 0 ? -7 : label);
  assert_int_equal(pixels[BRIM_STL10_IMAGE], 0xa5);
  for (int i = 0; i < BRIM_STL10_IMAGE; i++) {
    if (pixels[i] != value_at(record, i / 288, i / 3 % 96, i % 3)) {
      fail_msg("sample %d at (%d, %d, %d): %d", (int)index, i / 288, i / 3 % 96, i % 3, pixels[i]);
    }
  }
}

static void test_splits(void **state) {
  (void)state;
  static const char *const folders[] = {"plain", "outer/stl10_binary"};
  static const char *const paths[] = {"plain", "outer"};
  void *s;
  brim_source_info info;
  for (int i = 0; i < 2; i++) {
    write_set(folders[i]);
    assert_ok(open_stl10(paths[i], "train", NULL, &s, &info));
    assert_int_equal(info.count, 12);
    assert_int_equal(info.rank, 3);
    assert_int_equal(info.dim[0], 96);
    assert_int_equal(info.dim[1], 96);
    assert_int_equal(info.dim[2], 3);
    assert_int_equal(info.classes, 10);
    assert_int_equal(info.channels, 3);
    assert_true(info.mean[0] == 0.4467f && info.std[2] == 0.2713f);
    assert_int_equal(info.varies, 0);
    assert_int_equal(brim_builtin_stl10.host_bytes(s), 12);
    for (uint64_t k = 0; k < 12; k++) check_sample(s, k, k, (int32_t)(k % 10));
    char text[32];
    table->describe(s, 7, text, sizeof text);
    assert_string_equal(text, "train_X.bin[7]");
    assert_status(table->read(s, 12, NULL, NULL), BRIM_EINVAL);
    table->close(s);
    static const char *const tests[] = {"test", "val"};
    for (int k = 0; k < 2; k++) {
      assert_ok(open_stl10(paths[i], tests[k], NULL, &s, &info));
      assert_int_equal(info.count, 3);
      check_sample(s, 2, 102, 2);
      table->close(s);
    }
    assert_ok(open_stl10(paths[i], "unlabeled", NULL, &s, &info));
    assert_int_equal(info.count, 2);
    assert_int_equal(info.classes, 0);
    assert_int_equal(info.target_dim, 0);
    assert_int_equal(brim_builtin_stl10.host_bytes(s), 0);
    check_sample(s, 1, 201, -1);
    table->close(s);
  }
  assert_ok(open_stl10("plain", "train", "{\"limit\": 5}", &s, &info));
  assert_int_equal(info.count, 5);
  table->close(s);
}

static void test_folds(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  write_set("fold");
  assert_ok(open_stl10("fold", "train", "{\"fold\": 1}", &s, &info));
  assert_int_equal(info.count, 3);
  assert_int_equal(brim_builtin_stl10.host_bytes(s), 12 * 5);
  check_sample(s, 0, 5, 5);
  check_sample(s, 1, 3, 3);
  check_sample(s, 2, 11, 1);
  char text[32];
  table->describe(s, 2, text, sizeof text);
  assert_string_equal(text, "train_X.bin[11]");
  table->close(s);
  assert_ok(open_stl10("fold", "train", "{\"fold\": 3}", &s, &info));
  assert_int_equal(info.count, 1);
  check_sample(s, 0, 7, 7);
  table->close(s);
  static const int empty[] = {2, 4, 9};
  for (int i = 0; i < 3; i++) {
    char args[32], line[64];
    snprintf(args, sizeof args, "{\"fold\": %d}", empty[i]);
    snprintf(line, sizeof line, "fold_indices.txt: line %d, fold %d, has no numbers", empty[i] + 1,
             empty[i]);
    assert_status(open_stl10("fold", "train", args, &s, &info), BRIM_EPARSE);
    assert_detail(line);
  }
  assert_status(open_stl10("fold", "train", "{\"fold\": 10}", &s, &info), BRIM_EINVAL);
  assert_status(open_stl10("fold", "test", "{\"fold\": 1}", &s, &info), BRIM_ENOENT);
  assert_detail("fold applies to the split train");
  static const struct {
    const char *text, *detail;
  } bad[] = {{"0 12", "offset 2: names an image beyond the 12"},
             {"0 99999999999999999999999", "offset 2: names an image beyond"},
             {"0 -1", "offset 2: not a whole number"},
             {"0 1.5", "offset 3: not a whole number"},
             {"0 1 2 3 4 5 6 7 8 9 10 11 0", "offset 26: fold 0 has more numbers"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    write_bytes("fold/fold_indices.txt", bad[i].text, strlen(bad[i].text));
    assert_status(open_stl10("fold", "train", "{\"fold\": 0}", &s, &info), BRIM_EPARSE);
    assert_detail("fold/fold_indices.txt: ");
    assert_detail(bad[i].detail);
  }
  assert_int_equal(unlink("fold/fold_indices.txt"), 0);
  assert_status(open_stl10("fold", "train", "{\"fold\": 0}", &s, &info), BRIM_EINVAL);
  assert_detail("fold/fold_indices.txt");
  assert_ok(open_stl10("fold", "train", NULL, &s, &info));
  table->close(s);
}

static void test_broken(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  write_set("bad");
  static const long off[] = {-1, 1};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(truncate("bad/train_X.bin", 12 * BRIM_STL10_IMAGE + off[i]), 0);
    assert_status(open_stl10("bad", "train", NULL, &s, &info), BRIM_EPARSE);
    assert_detail(i ? "bad/train_X.bin: 331777 bytes" : "bad/train_X.bin: 331775 bytes");
    assert_detail("whole images of 27648 bytes");
  }
  assert_int_equal(truncate("bad/train_X.bin", 0), 0);
  assert_status(open_stl10("bad", "train", NULL, &s, &info), BRIM_EPARSE);
  assert_detail("bad/train_X.bin");
  write_images("bad/train_X.bin", 0, 12);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(truncate("bad/train_y.bin", 12 + off[i]), 0);
    assert_status(open_stl10("bad", "train", NULL, &s, &info), BRIM_EPARSE);
    assert_detail(i ? "bad/train_y.bin: 13 bytes; 12 expected" : "bad/train_y.bin: 11 bytes; 12");
  }
  static const uint8_t labels[] = {0, 11, 255};
  for (int i = 0; i < 3; i++) {
    uint8_t y[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2};
    y[6 + i] = labels[i];
    write_bytes("bad/train_y.bin", y, sizeof y);
    assert_status(open_stl10("bad", "train", NULL, &s, &info), BRIM_EPARSE);
    char detail[64];
    snprintf(detail, sizeof detail, "train_y.bin: offset %d: label %d is not in 1..10", 6 + i,
             labels[i]);
    assert_detail(detail);
  }
  assert_int_equal(unlink("bad/train_y.bin"), 0);
  assert_status(open_stl10("bad", "train", NULL, &s, &info), BRIM_EPARSE);
  assert_detail("bad/train_y.bin: missing");
  write_bytes("bad/train_y.bin", labels, sizeof labels);
  assert_int_equal(unlink("bad/train_X.bin"), 0);
  assert_status(open_stl10("bad", "train", NULL, &s, &info), BRIM_EPARSE);
  assert_detail("bad: train_y.bin exists, but train_X.bin is missing");
  assert_int_equal(unlink("bad/train_y.bin"), 0);
  assert_status(open_stl10("bad", "train", NULL, &s, &info), BRIM_ENOENT);
  // A file that is cut short while in use: an error that names it, not a crash.
  assert_ok(open_stl10("bad", "unlabeled", NULL, &s, &info));
  assert_int_equal(truncate("bad/unlabeled_X.bin", BRIM_STL10_IMAGE + 5), 0);
  check_sample(s, 0, 200, -1);
  static uint8_t pixels[BRIM_STL10_IMAGE];
  assert_status(table->read(s, 1, pixels, NULL), BRIM_EIO);
  assert_detail("bad/unlabeled_X.bin");
  table->close(s);
}

static void test_arguments(void **state) {
  (void)state;
  void *s;
  brim_source_info info;
  write_set("bad");
  assert_status(open_stl10("nowhere", "train", NULL, &s, &info), BRIM_ENOENT);
  assert_detail("nowhere: no such folder");
  assert_status(open_stl10(".", "train", NULL, &s, &info), BRIM_ENOENT);
  assert_detail("neither train_X.bin nor stl10_binary/train_X.bin");
  assert_status(open_stl10("bad/test_X.bin", "train", NULL, &s, &info), BRIM_EINVAL);
  assert_status(open_stl10(NULL, "train", NULL, &s, &info), BRIM_EINVAL);
  assert_detail("data.path");
  assert_status(open_stl10("bad", "all", NULL, &s, &info), BRIM_EINVAL);
  assert_detail("no split 'all'");
  assert_status(open_stl10("bad", "train", "{\"folds\": 1}", &s, &info), BRIM_EINVAL);
  assert_detail("did you mean 'fold'");
}

static void test_allocation_failures(void **state) {
  (void)state;
  write_set("alloc");
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  uint64_t n = 1;
  for (;; n++) {
    void *s = NULL;
    brim_source_info info;
    uint64_t failed = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = open_stl10("alloc", "train", "{\"fold\": 0}", &s, &info);
    brim_alloc_fail_nth(0, 0);
    if (!status) {
      brim_alloc_get_stats(&after);
      assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                       brim_builtin_stl10.host_bytes(s));
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_splits),
      cmocka_unit_test(test_folds),
      cmocka_unit_test(test_broken),
      cmocka_unit_test(test_arguments),
      cmocka_unit_test(test_allocation_failures),
  };
  go_to_fresh_folder();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
