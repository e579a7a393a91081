// Editing a config file in place: each key in turn, then the proof that the text means what the file
// with the same overrides means, then the file. Where a key stands is config_edit_text.c's.
#include "config/config_edit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config_edit_int.h"

static brim_status no_memory(const char *path) {
  return brim_fail(BRIM_ENOMEM, "out of memory while editing %s", path);
}

static brim_status load(const char *path, const char *text, const char *const *overrides,
                        size_t count, brim_config **out) {
  brim_config_options options = {.path = text ? NULL : path,
                                 .text = text,
                                 .text_name = path,
                                 .text_path = path,
                                 .overrides = overrides,
                                 .override_count = count,
                                 .mode = BRIM_CONFIG_EDIT};
  return brim_config_load(&options, out);
}

static brim_status load_json(const char *path, const char *text, const char *const *overrides,
                             size_t count, json_t **out) {
  brim_config *config = NULL;
  *out = NULL;
  BRIM_TRY(load(path, text, overrides, count, &config));
  brim_status status = brim_config_to_json(config, out);
  brim_config_close(config);
  return status;
}

// Does a file give the key, and the value that is needed? Then it stays as it is written.
static brim_status is_there(const char *path, const brim_config *config, const json_t *before,
                            const brim_config_edit *edit, const char *override, bool *out) {
  *out = false;
  int row = brim_config_row_find(edit->key);
  if (row < 0 || config->values[row].layer < 0) return BRIM_OK;
  json_t *wanted;
  BRIM_TRY(load_json(path, NULL, &override, 1, &wanted));
  *out = json_equal(before, wanted);
  json_decref(wanted);
  return BRIM_OK;
}

// The first key in which two resolved configs differ, dotted.
static bool first_difference(const json_t *a, const json_t *b, const char *prefix, char *out,
                             size_t size) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)a, key, value) {
    const json_t *other = json_object_get(b, key);
    if (other && json_equal(value, other)) continue;
    char full[128];
    snprintf(full, sizeof full, "%s%s%s", prefix, *prefix ? "." : "", key);
    if (json_is_object(value) && json_is_object(other)) {
      if (first_difference(value, other, full, out, size)) return true;
      continue;
    }
    snprintf(out, size, "%s", full);
    return true;
  }
  return false;
}

static brim_status refuse(const char *path, const brim_config_shared *shared, const json_t *wanted,
                          const json_t *got) {
  char key[128] = "?";
  first_difference(wanted, got, "", key, sizeof key);
  if (shared->anchor) {
    return brim_fail_at(
        BRIM_EINVAL, path, shared->line, shared->col,
        "'%s' cannot be edited here: it belongs to the anchor &%s, which line %d uses too, so '%s' "
        "would change as well; replace the alias by its value first",
        shared->key, shared->anchor, shared->used_line, key);
  }
  return brim_fail(
      BRIM_EINVAL,
      "%s cannot be edited in place: brim cannot write '%s' there safely; edit the file by hand",
      path, key);
}

static brim_status verify(const char *path, const brim_str *text, const char *const *overrides,
                          size_t count, const brim_config_shared *shared) {
  json_t *wanted = NULL, *got = NULL;
  brim_status status = load_json(path, NULL, overrides, count, &wanted);
  if (!status) {
    status = load_json(path, text->data, NULL, 0, &got);
    if (status && status != BRIM_ENOMEM) {
      status = brim_fail_context(status, "%s cannot be edited in place", path);
    }
  }
  if (!status && !json_equal(wanted, got)) status = refuse(path, shared, wanted, got);
  json_decref(wanted);
  json_decref(got);
  return status;
}

static brim_status edit_all(brim_arena *arena, const char *path, const brim_config_edit *edits,
                            size_t count, brim_str *text) {
  brim_config *config = NULL;
  json_t *before = NULL;
  brim_config_shared shared = {0};
  const char **overrides = brim_arena_calloc(arena, count + 1, sizeof *overrides);
  if (!overrides) return no_memory(path);
  BRIM_TRY(load(path, NULL, NULL, 0, &config));
  brim_status status = brim_config_to_json(config, &before);
  for (size_t i = 0; i < count && !status; i++) {
    bool there = false;
    overrides[i] = brim_arena_printf(arena, "%s=%s", edits[i].key, edits[i].value);
    status = overrides[i] ? BRIM_OK : no_memory(path);
    if (!status) status = is_there(path, config, before, &edits[i], overrides[i], &there);
    if (!status && !there) status = brim_config_edit_once(arena, path, text, &edits[i], &shared);
  }
  json_decref(before);
  brim_config_close(config);
  return status ? status : verify(path, text, overrides, count, &shared);
}

brim_status brim_config_edit_preview(const char *path, const brim_config_edit *edits, size_t count,
                                     brim_config_edit_result *out) {
  brim_arena *arena = NULL;
  brim_str text;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_fs_read(path, BRIM_CONFIG_MAX_BYTES, &out->before, &out->before_size));
  brim_str_init(&text);
  brim_str_append_n(&text, out->before, out->before_size);
  brim_status status = brim_arena_create(0, &arena);
  if (!status) status = brim_str_status(&text);
  if (!status) status = edit_all(arena, path, edits, count, &text);
  brim_arena_destroy(arena);
  if (!status) {
    out->after_size = text.len;
    out->changed =
        text.len != out->before_size || memcmp(text.data, out->before, out->before_size) != 0;
    out->after = brim_str_take(&text);
    if (!out->after) status = no_memory(path);
  }
  brim_str_deinit(&text);
  if (status) brim_config_edit_result_deinit(out);
  return status;
}

// A rename would take the place of a symbolic link, and of a read-only file. *real is
// for free().
static brim_status find_real(const char *path, char **real) {
  *real = realpath(path, NULL);
  if (*real && access(*real, W_OK) == 0) return BRIM_OK;
  int err = errno;
  free(*real);
  *real = NULL;
  return brim_fail(brim_errno_status(err), "cannot edit %s: %s", path, brim_errno_text(err));
}

static brim_status write_back(const char *path, const brim_config_edit_result *result) {
  char *real;
  BRIM_TRY(find_real(path, &real));
  brim_status status = brim_fs_write(real, result->after, result->after_size);
  free(real);
  return status;
}

brim_status brim_config_edit_check(const char *path) {
  char *real;
  BRIM_TRY(brim_fs_refused(find_real(path, &real)));
  brim_status status = brim_fs_check_target(real);
  free(real);
  return status;
}

brim_status brim_config_edit_file(const char *path, const brim_config_edit *edits, size_t count,
                                  brim_config_edit_result *out) {
  brim_config_edit_result result;
  BRIM_TRY(brim_config_edit_preview(path, edits, count, &result));
  brim_status status = result.changed ? write_back(path, &result) : BRIM_OK;
  if (!status && out) {
    *out = result;
  } else {
    brim_config_edit_result_deinit(&result);
    if (out) memset(out, 0, sizeof *out);
  }
  return status;
}

void brim_config_edit_result_deinit(brim_config_edit_result *result) {
  brim_free(result->before);
  brim_free(result->after);
  memset(result, 0, sizeof *result);
}
