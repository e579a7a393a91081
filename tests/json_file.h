// A whole file as JSON, for tests that inspect brim's files.
#ifndef BRIM_TESTS_JSON_FILE_H_
#define BRIM_TESTS_JSON_FILE_H_

#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "base/base_json.h"
#include "test.h"

static inline json_t *json_file(const char *path) {
  char *text = NULL;
  size_t size;
  json_t *value = NULL;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  assert_ok(brim_json_parse(text, size, path, &value));
  brim_free(text);
  return value;
}

#endif  // BRIM_TESTS_JSON_FILE_H_
