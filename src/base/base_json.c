// JSON values are jansson's. The parser is base_json_parse.c; the writer is here, because jansson's
// prints 0.1 as 0.10000000000000001: ours prints the shortest text that reads back the same.
#include "base/base_json.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_alloc_small.h"
#include "base/base_status.h"
#include "base/base_str.h"

enum { DEPTH_MAX = 512, HASH_SEED = 20261 };

static pthread_once_t setup_once = PTHREAD_ONCE_INIT;

static void setup(void) { json_object_seed(HASH_SEED); }

void brim_json_setup(void) { pthread_once(&setup_once, setup); }

void brim_json_own_memory(void) {
  brim_json_setup();
  json_set_alloc_funcs(brim_alloc_small, brim_free_small);
}

static void write_string(brim_str *s, const char *text, size_t n) {
  brim_str_append_char(s, '"');
  size_t from = 0;
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) continue;
    brim_str_append_n(s, text + from, i - from);
    from = i + 1;
    const char *at = strchr("\"\"\\\\\bb\ff\nn\rr\tt", c);
    if (c && at) {
      brim_str_append_char(s, '\\');
      brim_str_append_char(s, at[1]);
    } else {
      brim_str_printf(s, "\\u%04x", c);
    }
  }
  brim_str_append_n(s, text + from, n - from);
  brim_str_append_char(s, '"');
}

static void write_real(brim_str *s, double value) {
  if (!isfinite(value)) {  // JSON has none; unknown is null
    brim_str_append(s, "null");
    return;
  }
  char text[32];
  brim_format_f64(value, text);
  brim_str_append(s, text);
  if (!strpbrk(text, ".e")) brim_str_append(s, ".0");  // stays a real when read back
}

static void new_line(brim_str *s, int indent, int depth) {
  if (!indent) return;
  brim_str_append_char(s, '\n');
  brim_str_repeat(s, ' ', (size_t)indent * (size_t)depth);
}

static brim_status write_value(brim_str *s, const json_t *value, int indent, int depth);

static brim_status write_array(brim_str *s, const json_t *value, int indent, int depth) {
  size_t n = json_array_size(value);
  brim_str_append_char(s, '[');
  for (size_t i = 0; i < n; i++) {
    if (i) brim_str_append_char(s, ',');
    new_line(s, indent, depth + 1);
    BRIM_TRY(write_value(s, json_array_get(value, i), indent, depth + 1));
  }
  if (n) new_line(s, indent, depth);
  brim_str_append_char(s, ']');
  return BRIM_OK;
}

static brim_status write_object(brim_str *s, const json_t *value, int indent, int depth) {
  // jansson's iterator takes a non-const object but only reads it.
  json_t *object = (json_t *)(uintptr_t)value;
  bool first = true;
  brim_str_append_char(s, '{');
  for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
    if (!first) brim_str_append_char(s, ',');
    first = false;
    new_line(s, indent, depth + 1);
    const char *key = json_object_iter_key(it);
    write_string(s, key, strlen(key));
    brim_str_append(s, indent ? ": " : ":");
    BRIM_TRY(write_value(s, json_object_iter_value(it), indent, depth + 1));
  }
  if (!first) new_line(s, indent, depth);
  brim_str_append_char(s, '}');
  return BRIM_OK;
}

static brim_status write_value(brim_str *s, const json_t *value, int indent, int depth) {
  if (depth > DEPTH_MAX) {
    return brim_fail(BRIM_ELIMIT, "JSON is nested deeper than %d levels", DEPTH_MAX);
  }
  switch (json_typeof(value)) {
    case JSON_OBJECT:
      return write_object(s, value, indent, depth);
    case JSON_ARRAY:
      return write_array(s, value, indent, depth);
    case JSON_STRING:
      write_string(s, json_string_value(value), json_string_length(value));
      break;
    case JSON_INTEGER:
      brim_str_printf(s, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
      break;
    case JSON_REAL:
      write_real(s, json_real_value(value));
      break;
    case JSON_TRUE:
      brim_str_append(s, "true");
      break;
    case JSON_FALSE:
      brim_str_append(s, "false");
      break;
    case JSON_NULL:
      brim_str_append(s, "null");
      break;
  }
  return BRIM_OK;
}

brim_status brim_json_dump(const json_t *value, int indent, char **out) {
  brim_json_setup();
  *out = NULL;
  if (!value) return brim_fail(BRIM_EINVAL, "no JSON value to write");
  brim_str s;
  brim_str_init(&s);
  brim_status status = write_value(&s, value, indent < 0 ? 0 : indent, 0);
  if (!status) status = brim_str_status(&s);
  if (!status) *out = brim_str_take(&s);
  brim_str_deinit(&s);
  return status;
}

brim_status brim_json_put(json_t *object, const char *key, json_t *value) {
  // jansson refuses for want of memory, and for keys that are not UTF-8. An object that is not there
  // could not be made.
  if (!value || !object) {
    json_decref(value);
    return brim_fail(BRIM_ENOMEM, "out of memory for the JSON value of %s", key);
  }
  if (!json_is_object(object) || !brim_utf8_valid(key, strlen(key))) {
    json_decref(value);
    return brim_fail(BRIM_EINVAL, "cannot put a value into JSON: not an object, or a bad key");
  }
  if (json_object_set_new(object, key, value) != 0) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the JSON value of %s", key);
  }
  return BRIM_OK;
}

brim_status brim_json_push(json_t *array, json_t *value) {
  if (!value || !array) {
    json_decref(value);
    return brim_fail(BRIM_ENOMEM, "out of memory for a JSON value");
  }
  if (!json_is_array(array)) {
    json_decref(value);
    return brim_fail(BRIM_EINVAL, "cannot add a value to JSON: not an array");
  }
  if (json_array_append_new(array, value) != 0) {
    return brim_fail(BRIM_ENOMEM, "out of memory for a JSON value");
  }
  return BRIM_OK;
}

json_t *brim_json_number(double value) {
  brim_json_setup();
  if (!isfinite(value)) return json_null();
  // Above 2^53 not every integer is a double: say it as the real it is.
  bool whole = value == floor(value) && fabs(value) <= 9007199254740992.0;
  if (whole && !(value == 0 && signbit(value))) return json_integer((json_int_t)value);
  return json_real(value);
}

brim_status brim_json_put_numbers(json_t *object, const char *key, const double *values,
                                  size_t count) {
  brim_str text;
  brim_str_init(&text);
  for (size_t i = 0; i < count; i++) {
    char number[32];
    brim_format_f64(values[i], number);
    brim_str_printf(&text, "%s%s", i ? " " : "", number);
  }
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(object, key, json_string(text.data ? text.data : ""));
  brim_str_deinit(&text);
  return status;
}

size_t brim_json_get_numbers(const json_t *object, const char *key, double *out, size_t most) {
  const char *text = json_string_value(json_object_get(object, key));
  size_t n = 0;
  while (text && *text) {
    char number[32];
    size_t length = strcspn(text, " ");
    if (n == most || length >= sizeof number) return 0;
    memcpy(number, text, length);
    number[length] = 0;
    if (!brim_parse_f64(number, &out[n])) return 0;
    n++;
    text += length + (text[length] == ' ');
  }
  return n;
}
