// Converts structs to JSON and back by tables of fields (record_fields.h); also small readers of JSON values.

#include "record/record_fields.h"

#include <math.h>
#include <string.h>

#include "record/record_int.h"

//------------------------------------------- readers -------------------------------------------
// Helpers of the room: copying text into fields, parsing whole numbers, checking the schema.

void brim_record_copy(char *out, size_t size, const char *text) {
  size_t n = strlen(text);
  if (n >= size) {
    n = size - 1;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
  }
  memcpy(out, text, n);
  out[n] = '\0';
}

bool brim_record_parse_u64(const char *text, uint64_t *out) {
  uint64_t value = 0;
  if (!*text) return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return false;
    uint64_t digit = (uint64_t)(*text - '0');
    if (value > (UINT64_MAX - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *out = value;
  return true;
}

brim_status brim_record_check_schema(const json_t *root, const char *name, int line) {
  if (!json_is_object(root)) {
    return brim_fail_at(BRIM_EPARSE, name, line, 0, "this line should be a JSON object");
  }
  const char *schema = json_string_value(json_object_get(root, "schema"));
  if (!schema || strcmp(schema, BRIM_RESULT_SCHEMA) != 0) {
    return brim_fail_at(BRIM_EPARSE, name, line, 0,
                        "not a record of this brim: schema is '%s', expected '%s'",
                        schema ? schema : "missing", BRIM_RESULT_SCHEMA);
  }
  return BRIM_OK;
}

// Makes a JSON text. A fixed-size field may end in the middle of a character, which JSON refuses; then all bytes
// that are not ASCII become '?'.
json_t *brim_record_text(const char *text) {
  json_t *value = json_string(text);
  if (value || brim_utf8_valid(text, strlen(text))) return value;
  char clean[320];
  size_t n = strlen(text);
  if (n >= sizeof clean) n = sizeof clean - 1;
  for (size_t i = 0; i < n; i++) clean[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
  clean[n] = '\0';
  return json_string(clean);
}

//--------------------------------------- tables of fields ---------------------------------------

brim_status brim_fields_wrong(const char *what, const char *key) {
  return brim_fail(BRIM_EPARSE, "the %s has a wrong value in '%s'", brim_tr(what), key);
}

brim_status brim_fields_hand_over(brim_status status, json_t *value, json_t **out) {
  *out = NULL;
  if (!value) return brim_fail(BRIM_ENOMEM, "out of memory");
  if (status) {
    json_decref(value);
    return status;
  }
  *out = value;
  return BRIM_OK;
}

//---------------------------------- to JSON ----------------------------------

static int64_t read_int(const brim_field *f, const char *at) {
  int64_t wide = 0;
  int narrow = 0;
  if (f->size == sizeof wide) {
    memcpy(&wide, at, sizeof wide);
    return wide;
  }
  memcpy(&narrow, at, sizeof narrow);
  return narrow;
}

static json_t *field_value(const brim_field *f, const char *at) {
  double number;
  bool flag;
  uint64_t large;
  char digits[32];
  const char *text;
  switch (f->kind) {
    case BRIM_FIELD_TEXT:
      memcpy(&text, at, sizeof text);
      return brim_record_text(text);
    case BRIM_FIELD_CHARS:
    case BRIM_FIELD_WORDS:
      return brim_record_text(at);
    case BRIM_FIELD_INT:
      return read_int(f, at) == f->none ? json_null() : json_integer(read_int(f, at));
    case BRIM_FIELD_I32:
      return json_integer(read_int(f, at));
    case BRIM_FIELD_U64:
      memcpy(&large, at, sizeof large);
      if (large <= (uint64_t)INT64_MAX) return json_integer((json_int_t)large);
      snprintf(digits, sizeof digits, "%llu", (unsigned long long)large);
      return json_string(digits);
    case BRIM_FIELD_NUMBER:
      memcpy(&number, at, sizeof number);
      return brim_json_number(number);
    case BRIM_FIELD_BOOL:
      memcpy(&flag, at, sizeof flag);
      return json_boolean(flag);
    case BRIM_FIELD_FLAG:
      return read_int(f, at) == 0 ? json_null() : json_boolean(read_int(f, at) == 2);
    case BRIM_FIELD_NAME: {
      int64_t value = read_int(f, at);
      return json_string(f->name(value >= 0 && value < f->names ? (int)value : 0));
    }
  }
  return NULL;
}

brim_status brim_field_put(const brim_field *f, const void *from, json_t *out) {
  const char *at = (const char *)from + f->offset;
  if (f->kind == BRIM_FIELD_WORDS) return brim_record_put_words(out, f->key, at);
  return brim_json_put(out, f->key, field_value(f, at));
}

brim_status brim_fields_put(const brim_fields *fields, const void *from, bool lean, json_t *out) {
  for (size_t i = 0; i < fields->count; i++) {
    const brim_field *f = &fields->rows[i];
    json_t *value = field_value(f, (const char *)from + f->offset);
    bool empty = json_is_null(value) || (json_is_string(value) && !*json_string_value(value)) ||
                 (f->kind == BRIM_FIELD_NAME && read_int(f, (const char *)from + f->offset) == 0);
    if (lean && empty) {
      json_decref(value);
      continue;
    }
    BRIM_TRY(brim_json_put(out, f->key, value));
  }
  return BRIM_OK;
}

brim_status brim_fields_put_list(const brim_fields *fields, const void *items, size_t size,
                                 size_t count, const char *key, json_t *root) {
  BRIM_TRY(brim_json_put(root, key, json_array()));
  json_t *list = json_object_get(root, key);
  for (size_t i = 0; i < count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_fields_put(fields, (const char *)items + i * size, false, item));
  }
  return BRIM_OK;
}

//---------------------------------- from JSON ----------------------------------

static void write_int(const brim_field *f, char *at, int64_t value) {
  int narrow = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int)value;
  if (f->size == sizeof value) {
    memcpy(at, &value, sizeof value);
  } else {
    memcpy(at, &narrow, sizeof narrow);
  }
}

// Returns false if the name is not known.
static bool write_name(const brim_field *f, char *at, const char *name) {
  for (int i = 0; i < f->names; i++) {
    if (strcmp(f->name(i), name) != 0) continue;
    write_int(f, at, i);
    return true;
  }
  if (f->other) write_int(f, at, f->other);
  return false;
}

void brim_fields_init(const brim_fields *fields, void *out) {
  const double unknown = NAN;
  const char *const empty = "";
  for (size_t i = 0; i < fields->count; i++) {
    const brim_field *f = &fields->rows[i];
    char *at = (char *)out + f->offset;
    memset(at, 0, f->size);
    if (f->kind == BRIM_FIELD_NUMBER) memcpy(at, &unknown, sizeof unknown);
    if (f->kind == BRIM_FIELD_TEXT) memcpy(at, &empty, sizeof empty);
    if (f->kind == BRIM_FIELD_INT) write_int(f, at, f->none);
  }
}

const char *brim_field_get(const brim_field *f, const json_t *value, void *to) {
  char *at = (char *)to + f->offset;
  const char *text = json_string_value(value);
  const json_int_t whole = json_integer_value(value);
  double number = json_is_null(value) ? NAN : json_number_value(value);
  uint64_t large = (uint64_t)whole;
  bool flag = json_is_true(value);
  switch (f->kind) {
    case BRIM_FIELD_INT:
      if (!json_is_integer(value)) return "a whole number";
      write_int(f, at, whole);
      return NULL;
    case BRIM_FIELD_I32:
      if (!json_is_integer(value) || whole < INT32_MIN || whole > INT32_MAX) {
        return "a whole number of at most 32 bits";
      }
      write_int(f, at, whole);
      return NULL;
    case BRIM_FIELD_U64:
      if (!(json_is_integer(value) && whole >= 0) &&
          !(text && brim_record_parse_u64(text, &large))) {
        return "a whole number from 0 up";
      }
      memcpy(at, &large, sizeof large);
      return NULL;
    case BRIM_FIELD_NUMBER:
      if (!json_is_number(value) && !json_is_null(value)) return "a number or null";
      memcpy(at, &number, sizeof number);
      return NULL;
    case BRIM_FIELD_BOOL:
      if (!json_is_boolean(value)) return "true or false";
      memcpy(at, &flag, sizeof flag);
      return NULL;
    case BRIM_FIELD_FLAG:
      if (!json_is_boolean(value)) return "true or false";
      write_int(f, at, flag ? 2 : 1);
      return NULL;
    case BRIM_FIELD_NAME:
      if (!text) return f->want ? f->want : "a string";
      return write_name(f, at, text) ? NULL : f->want;
    case BRIM_FIELD_TEXT:
      if (text) memcpy(at, &text, sizeof text);
      return text || json_is_null(value) ? NULL : "a string";
    case BRIM_FIELD_CHARS:
    case BRIM_FIELD_WORDS:
      if (text) brim_record_copy(at, f->size, text);
      return text || json_is_null(value) ? NULL : "a string";
  }
  return NULL;
}

void brim_field_get_words(const brim_field *f, const json_t *object, void *to) {
  if (f->kind != BRIM_FIELD_WORDS) return;
  brim_record_read_words(object, f->key, (char *)to + f->offset, f->size);
}

brim_status brim_fields_get(const brim_fields *fields, const json_t *from, void *out) {
  if (!json_is_object(from)) return brim_fields_wrong(fields->what, "object");
  for (size_t i = 0; i < fields->count; i++) {
    const brim_field *f = &fields->rows[i];
    const json_t *value = json_object_get(from, f->key);
    if (!value || json_is_null(value)) continue;
    if (brim_field_get(f, value, out)) return brim_fields_wrong(fields->what, f->key);
    brim_field_get_words(f, from, out);
  }
  return BRIM_OK;
}

double brim_fields_bounded(const char *key, double value) {
  double low = brim_str_ends(key, "_c") ? -300 : 0;
  double high = brim_str_ends(key, "_percent") ? 1e6 : 1e16;
  return value >= low && value <= high ? value : NAN;
}

void brim_fields_bound(const brim_fields *fields, void *out) {
  for (size_t i = 0; i < fields->count; i++) {
    const brim_field *f = &fields->rows[i];
    char *at = (char *)out + f->offset;
    double number;
    if (f->kind == BRIM_FIELD_NUMBER) {
      memcpy(&number, at, sizeof number);
      number = brim_fields_bounded(f->key, number);
      memcpy(at, &number, sizeof number);
    } else if (f->kind == BRIM_FIELD_INT) {
      int64_t whole = read_int(f, at);
      if (whole < 0 || whole > INT64_C(10000000000000000)) write_int(f, at, f->none);
    }
  }
}

brim_status brim_fields_list(const char *what, const json_t *root, const char *key,
                             const json_t **out) {
  *out = json_object_get(root, key);
  if (json_is_null(*out)) *out = NULL;
  return *out && !json_is_array(*out) ? brim_fields_wrong(what, key) : BRIM_OK;
}
