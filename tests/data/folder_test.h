// Image folders for tests: makes files, opens a folder, compares one image with its file's bytes.
#ifndef BRIM_TESTS_DATA_FOLDER_TEST_H_
#define BRIM_TESTS_DATA_FOLDER_TEST_H_

#include <sys/stat.h>
#include <unistd.h>

#include "data/data_int.h"
#include "data/image/data_image.h"
#include "image_test.h"

enum { SIDE = 16, PIXELS = SIDE * SIDE * 3 };

static const brim_source_table *const table = &brim_source_folder;

static char warnings[4096];

static inline void keep_warning(void *ctx, brim_log_level level, const char *module,
                                const char *text) {
  (void)ctx;
  (void)level;
  (void)module;
  size_t used = strlen(warnings);
  snprintf(warnings + used, sizeof warnings - used, "%s\n", text);
}

static inline void listen(void) {
  warnings[0] = 0;
  brim_log_set_sink(keep_warning, NULL, BRIM_LOG_WARN);
}

#define assert_warned(part)                                                       \
  do {                                                                            \
    if (!strstr(warnings, part)) fail_msg("'%s' is not in '%s'", part, warnings); \
  } while (0)

//---------------------------------- making ----------------------------------

static inline void put_file(const char *path, const bytes *b) {
  char *folder = brim_fs_dirname(path);
  assert_non_null(folder);
  assert_ok(brim_fs_mkdirs(folder));
  brim_free(folder);
  write_bytes(path, b->data, b->size);
}

static inline void put_jpeg(const char *path, int height, int width, int seed) {
  static bytes b;
  jpeg_how how = {.height = height, .width = width, .color = JCS_RGB};
  make_jpeg(&how, seed, &b);
  put_file(path, &b);
}

static inline void put_png(const char *path, int height, int width) {
  static bytes b;
  png_how how = {.height = height, .width = width, .color = PNG_COLOR_TYPE_RGB, .depth = 8};
  make_png(&how, &b);
  put_file(path, &b);
}

static inline void put_text(const char *path, const char *text) {
  static bytes b;
  b.size = 0;
  put(&b, text, strlen(text));
  put_file(path, &b);
}

static inline brim_status open_folder(const char *path, const char *split, const char *args,
                                      void **state, brim_source_info *info) {
  brim_source_how how = {.path = path, .split = split, .args_json = args};
  brim_status status = table->open(&how, state);
  if (!status) table->info(*state, info);
  return status;
}

// Checks the sample at `index`: its name, its class, and its pixels against the file's bytes.
static inline void check_file(void *state, const brim_source_info *info, uint64_t index,
                              const char *root, const char *name, int32_t label) {
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

#endif  // BRIM_TESTS_DATA_FOLDER_TEST_H_
