// Small JSON files that remember measurements by key: overheads, ceilings. A file that is broken or of another kind is
// replaced.
#include <math.h>
#include <string.h>

#include "measure/measure_int.h"

enum { MAX_CACHE_BYTES = 4 << 20 };

static brim_status path_of(const brim_cache_file *file, char **out) {
  *out = brim_fs_join(file->folder, file->name);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while opening %s", file->folder);
}

// Reads the entries, as a new reference; NULL if there is no readable file.
static brim_status read_entries(const brim_cache_file *file, const char *path, json_t **out) {
  char *text = NULL;
  size_t size = 0;
  json_t *root = NULL;
  brim_json_setup();
  *out = NULL;
  if (!brim_fs_exists(path)) return BRIM_OK;
  brim_status status = brim_fs_read(path, MAX_CACHE_BYTES, &text, &size);
  if (!status) status = brim_json_parse(text, size, path, &root);
  brim_free(text);
  if (status == BRIM_ENOMEM) return status;
  const char *schema = json_string_value(json_object_get(root, "schema"));
  if (status || !schema || strcmp(schema, file->schema) != 0) {
    brim_log_debug("measure", "%s is not a file of %s; brim will replace it", path, file->schema);
    brim_status_clear();
    json_decref(root);
    return BRIM_OK;
  }
  *out = json_incref(json_object_get(root, "entries"));
  json_decref(root);
  return BRIM_OK;
}

static brim_status write_entries(const brim_cache_file *file, const char *path, json_t *entries) {
  char *text = NULL;
  json_t *root = json_object();
  brim_status status = brim_json_put(root, "schema", json_string(file->schema));
  if (!status) status = brim_json_put(root, "entries", json_incref(entries));
  if (!status) status = brim_json_dump(root, 2, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  brim_free(text);
  json_decref(root);
  return status;
}

brim_status brim_cache_entries(const brim_cache_file *file, json_t **out) {
  char *path = NULL;
  *out = NULL;
  BRIM_TRY(path_of(file, &path));
  brim_status status = read_entries(file, path, out);
  brim_free(path);
  return status;
}

brim_status brim_cache_find(const brim_cache_file *file, const char *key, json_t **out) {
  char *path = NULL;
  json_t *entries = NULL;
  *out = NULL;
  BRIM_TRY(path_of(file, &path));
  brim_status status = read_entries(file, path, &entries);
  if (!status) *out = json_incref(json_object_get(entries, key));
  json_decref(entries);
  brim_free(path);
  return status;
}

static brim_status store(const brim_cache_file *file, const char *path, const char *key,
                         json_t *entry) {
  json_t *entries = NULL;
  BRIM_TRY(read_entries(file, path, &entries));
  brim_status status = BRIM_OK;
  if (!json_is_object(entries)) {
    json_decref(entries);
    entries = json_object();
    if (!entries) status = brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  }
  if (!status) status = brim_json_put(entries, key, json_incref(entry));
  if (!status) status = write_entries(file, path, entries);
  json_decref(entries);
  return status;
}

brim_status brim_cache_store(const brim_cache_file *file, const char *key, json_t *entry) {
  char *path = NULL;
  brim_status status = brim_fs_mkdirs(file->folder);
  if (!status) status = path_of(file, &path);
  if (!status) status = store(file, path, key, entry);
  json_decref(entry);
  brim_free(path);
  return status;
}

double brim_cache_number(const json_t *entry, const char *name, double most) {
  const json_t *value = json_object_get(entry, name);
  double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
  return number >= 0 && number < most ? number : (double)NAN;
}
