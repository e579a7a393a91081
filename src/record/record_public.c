// The public reader of include/brim/record.h: records as JSON, read by dotted path.
#include "brim/record.h"

#include <math.h>
#include <string.h>

#include "record/record_int.h"

struct brim_records {
  json_t *list;
};

static brim_status add_record(void *ctx, json_t *value, const char *name, int line) {
  brim_records *records = ctx;
  BRIM_TRY(brim_record_check_schema(value, name, line));
  return brim_json_push(records->list, json_incref(value));
}

brim_status brim_records_open(const char *path, brim_records **out) {
  if (!out) return brim_fail(BRIM_EINVAL, "brim_records_open: out is NULL");
  *out = NULL;
  if (!path) return brim_fail(BRIM_EINVAL, "brim_records_open: path is NULL");
  brim_json_setup();
  brim_records *records = brim_calloc(1, sizeof *records);
  if (!records) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  records->list = json_array();
  brim_status status =
      records->list ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  if (!status) status = brim_record_each_line(path, add_record, records, NULL);
  if (status) {
    brim_records_close(records);
    return status;
  }
  *out = records;
  return BRIM_OK;
}

void brim_records_close(brim_records *records) {
  if (!records) return;
  json_decref(records->list);
  brim_free(records);
}

size_t brim_records_count(const brim_records *records) {
  return records ? json_array_size(records->list) : 0;
}

// NULL when a part of the path is not there.
static json_t *find(const brim_records *records, size_t index, const char *path) {
  json_t *at = records ? json_array_get(records->list, index) : NULL;
  while (at && path && *path) {
    size_t n = strcspn(path, ".");
    char key[64];
    if (n == 0 || n >= sizeof key) return NULL;
    memcpy(key, path, n);
    key[n] = '\0';
    at = json_object_get(at, key);
    path += n;
    if (*path == '.') path++;
  }
  return at;
}

static brim_status missing(size_t index, const char *path) {
  return brim_fail(BRIM_ENOENT, "record %zu has no '%s'", index, path ? path : "");
}

brim_status brim_records_number(const brim_records *records, size_t index, const char *path,
                                double *out) {
  const json_t *value = find(records, index, path);
  if (!value) return missing(index, path);
  if (json_is_null(value)) {
    *out = NAN;
  } else if (json_is_number(value)) {
    *out = json_number_value(value);
  } else if (json_is_boolean(value)) {
    *out = json_is_true(value) ? 1 : 0;
  } else {
    return brim_fail(BRIM_EINVAL, "record %zu: '%s' is not a number", index, path);
  }
  return BRIM_OK;
}

brim_status brim_records_string(const brim_records *records, size_t index, const char *path,
                                const char **out) {
  const json_t *value = find(records, index, path);
  if (!value) return missing(index, path);
  if (!json_is_string(value)) {
    return brim_fail(BRIM_EINVAL, "record %zu: '%s' is not a string", index, path);
  }
  *out = json_string_value(value);
  return BRIM_OK;
}
