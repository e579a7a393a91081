// .jsonl files of results: written whole or not at all, read with file and line in every error.
#include "record/record_int.h"

#include <string.h>

static bool is_blank(const char *text, size_t size) {
  size_t blank = 0;
  while (blank < size && strchr(" \t\r", text[blank]) && text[blank]) blank++;
  return blank == size;
}

static brim_status one_line(const char *text, size_t size, const char *path, int line,
                            brim_record_line_fn fn, void *ctx) {
  if (is_blank(text, size)) return BRIM_OK;
  json_t *value = NULL;
  brim_status status = brim_json_parse(text, size, "json", &value);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    char why[512];
    brim_record_copy(why, sizeof why, brim_status_detail());
    return brim_fail_at(status, path, line, 0, "%s", why);
  }
  status = fn(ctx, value, path, line);
  json_decref(value);
  return status;
}

// What follows the last newline, as far as it is no value.
static bool is_torn(const char *text, size_t size) {
  json_t *value = NULL;
  if (is_blank(text, size)) return false;
  brim_status status = brim_json_parse(text, size, "json", &value);
  json_decref(value);
  if (status) brim_status_clear();
  return status == BRIM_EPARSE;
}

brim_status brim_record_each_line(const char *path, brim_record_line_fn fn, void *ctx, bool *torn) {
  char *text = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(path, BRIM_RECORD_MAX_BYTES, &text, &size));
  brim_status status = BRIM_OK;
  int line = 1;
  if (torn) {
    size_t whole = size;
    while (whole > 0 && text[whole - 1] != '\n') whole--;
    *torn = is_torn(text + whole, size - whole);
    if (*torn) size = whole;
  }
  for (size_t at = 0; at < size && !status; line++) {
    const char *end = memchr(text + at, '\n', size - at);
    size_t length = end ? (size_t)(end - (text + at)) : size - at;
    status = one_line(text + at, length, path, line, fn, ctx);
    at += length + 1;
  }
  brim_free(text);
  return status;
}

brim_status brim_results_write(const char *path, const brim_result *results, size_t count) {
  brim_fs_writer *writer = NULL;
  BRIM_TRY(brim_fs_writer_open(path, &writer));
  for (size_t i = 0; i < count; i++) {
    json_t *value = NULL;
    char *text = NULL;
    brim_status status = brim_result_to_json(&results[i], &value);
    if (!status) status = brim_json_dump(value, 0, &text);
    if (!status) status = brim_fs_writer_write(writer, text, strlen(text));
    if (!status) status = brim_fs_writer_write(writer, "\n", 1);
    brim_free(text);
    json_decref(value);
    if (status) {
      brim_fs_writer_abort(writer);
      return status;
    }
  }
  return brim_fs_writer_commit(writer);
}

typedef struct results_list {
  brim_result *items;
  size_t count, cap;
} results_list;

static brim_status add_result(void *ctx, json_t *value, const char *name, int line) {
  results_list *list = ctx;
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 16;
    brim_result *items = brim_realloc(list->items, cap * sizeof *items);
    if (!items) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", name);
    list->items = items;
    list->cap = cap;
  }
  BRIM_TRY(brim_result_from_json(value, name, line, &list->items[list->count]));
  list->count++;
  return BRIM_OK;
}

brim_status brim_results_read(const char *path, brim_result **out, size_t *count, bool *torn) {
  results_list list = {0};
  *out = NULL;
  *count = 0;
  if (torn) *torn = false;
  brim_status status = brim_record_each_line(path, add_result, &list, torn);
  if (status) {
    for (size_t i = 0; i < list.count; i++) brim_result_deinit(&list.items[i]);
    brim_free(list.items);
    return status;
  }
  *out = list.items;
  *count = list.count;
  return BRIM_OK;
}
