// A parser and a writer for jansson's values. jansson's own parser loses bytes of a token when memory runs out, and its
// writer prints 0.1 as 0.10000000000000001.

#include "base/base_json.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "base/base_str.h"

//---------------------------------- parser ----------------------------------
// RFC 8259. Errors have line and column.

enum { DEPTH_MAX = 512, LIST_COUNTS = 4, OBJECT_COUNTS = 8 };

typedef struct parser {
  const char *name;
  const char *text, *at, *end;
  int depth;
  size_t most, left;  // limit on the number of values, and the number left
  brim_str token;     // the string or number being read
} parser;

// Computes line and column (in bytes, from 1) of a position.
static void locate(const parser *p, const char *at, int *line, int *col) {
  *line = 1;
  const char *start = p->text;
  for (const char *c = p->text; c < at; c++) {
    if (*c == '\n') {
      if (*line < INT_MAX) (*line)++;
      start = c + 1;
    }
  }
  *col = at - start >= INT_MAX ? INT_MAX : (int)(at - start) + 1;
}

#define PARSE_FAIL(p, place, ...)                                          \
  do {                                                                     \
    int line_, col_;                                                       \
    locate((p), (place), &line_, &col_);                                   \
    return brim_fail_at(BRIM_EPARSE, (p)->name, line_, col_, __VA_ARGS__); \
  } while (0)

static brim_status no_memory(const parser *p) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", p->name);
}

static void skip_space(parser *p) {
  while (p->at < p->end && memchr(" \t\r\n", *p->at, 4)) p->at++;
}

// Fails with the error that `wanted` is missing here.
static brim_status unexpected(const parser *p, const char *wanted) {
  wanted = brim_tr(wanted);
  if (p->at >= p->end) PARSE_FAIL(p, p->at, "expected %s, but the text ends here", wanted);
  unsigned char c = (unsigned char)*p->at;
  if (c > 0x20 && c < 0x7F) PARSE_FAIL(p, p->at, "expected %s, found '%c'", wanted, c);
  PARSE_FAIL(p, p->at, "expected %s, found byte 0x%02x", wanted, c);
}

// Reads the four hex digits after \u.
static brim_status read_hex4(parser *p, uint32_t *out) {
  *out = 0;
  for (int i = 0; i < 4; i++, p->at++) {
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *hit = p->at < p->end && *p->at ? strchr(digits, *p->at) : NULL;
    if (!hit) return unexpected(p, BRIM_N_("four hexadecimal digits"));
    *out = *out << 4 | (uint32_t)((hit - digits) & 15);
  }
  return BRIM_OK;
}

static void append_utf8(brim_str *s, uint32_t code) {
  char bytes[4];
  size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = n - 1; i > 0; i--) {
    bytes[i] = (char)(0x80 | (code & 0x3F));
    code >>= 6;
  }
  bytes[0] = (char)(lead[n] | code);
  brim_str_append_n(s, bytes, n);
}

static brim_status read_unicode(parser *p, const char *start) {
  uint32_t code, low;
  BRIM_TRY(read_hex4(p, &code));
  if (code >= 0xD800 && code < 0xDC00) {
    if (p->end - p->at < 2 || p->at[0] != '\\' || p->at[1] != 'u') {
      PARSE_FAIL(p, start, "half of a surrogate pair");
    }
    p->at += 2;
    BRIM_TRY(read_hex4(p, &low));
    if (low < 0xDC00 || low > 0xDFFF) PARSE_FAIL(p, start, "half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code <= 0xDFFF) {
    PARSE_FAIL(p, start, "half of a surrogate pair");
  }
  append_utf8(&p->token, code);
  return BRIM_OK;
}

static brim_status read_escape(parser *p) {
  static const char names[] = "\"\\/bfnrtu", values[] = "\"\\/\b\f\n\r\t";
  const char *start = p->at++;
  const char *hit = p->at < p->end && *p->at ? strchr(names, *p->at) : NULL;
  if (!hit) return unexpected(p, BRIM_N_("an escape character"));
  p->at++;
  if (*hit == 'u') return read_unicode(p, start);
  brim_str_append_char(&p->token, values[hit - names]);
  return BRIM_OK;
}

// Reads a string into p->token; p->at is at the opening quote.
static brim_status read_string(parser *p) {
  const char *start = p->at++;
  brim_str_clear(&p->token);
  for (;;) {
    const char *from = p->at;
    while (p->at < p->end && (unsigned char)*p->at >= 0x20 && *p->at != '"' && *p->at != '\\') {
      p->at++;
    }
    if (!brim_utf8_valid(from, (size_t)(p->at - from))) {
      PARSE_FAIL(p, from, "a text that is not UTF-8");
    }
    brim_str_append_n(&p->token, from, (size_t)(p->at - from));
    if (p->at >= p->end) PARSE_FAIL(p, start, "a text without a closing quote");
    if (*p->at == '"') break;
    if (*p->at != '\\') PARSE_FAIL(p, p->at, "a control character inside a text");
    BRIM_TRY(read_escape(p));
  }
  p->at++;
  return brim_str_status(&p->token) ? no_memory(p) : BRIM_OK;
}

static size_t skip_digits(parser *p) {
  size_t n = 0;
  for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) n++;
  return n;
}

static brim_status read_number(parser *p, json_t **out) {
  const char *start = p->at;
  bool real = false;
  if (*p->at == '-') p->at++;
  const char *first = p->at;
  size_t digits = skip_digits(p);
  if (digits == 0) return unexpected(p, BRIM_N_("a digit"));
  if (*first == '0' && digits > 1) PARSE_FAIL(p, start, "a number with a leading zero");
  if (p->at < p->end && *p->at == '.') {
    real = true;
    p->at++;
    if (!skip_digits(p)) return unexpected(p, BRIM_N_("a digit"));
  }
  if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
    real = true;
    p->at++;
    if (p->at < p->end && (*p->at == '+' || *p->at == '-')) p->at++;
    if (!skip_digits(p)) return unexpected(p, BRIM_N_("a digit"));
  }
  brim_str_clear(&p->token);
  brim_str_append_n(&p->token, start, (size_t)(p->at - start));
  if (brim_str_status(&p->token)) return no_memory(p);
  int64_t whole;
  double number;
  if (real) {
    if (!brim_parse_f64(p->token.data, &number)) PARSE_FAIL(p, start, "a number that is too large");
    *out = json_real(number);
  } else {
    if (!brim_parse_i64(p->token.data, &whole)) PARSE_FAIL(p, start, "a number that is too large");
    *out = json_integer((json_int_t)whole);
  }
  return *out ? BRIM_OK : no_memory(p);
}

static brim_status read_value(parser *p, json_t **out);

static brim_status read_array(parser *p, json_t **out) {
  json_t *array = json_array();
  if (!array) return no_memory(p);
  brim_status status = BRIM_OK;
  p->at++;
  skip_space(p);
  if (p->at < p->end && *p->at == ']') {
    p->at++;
    *out = array;
    return BRIM_OK;
  }
  for (;;) {
    json_t *item = NULL;
    status = read_value(p, &item);
    if (status) break;
    if (json_array_append_new(array, item) != 0) {
      status = no_memory(p);
      break;
    }
    skip_space(p);
    if (p->at < p->end && *p->at == ']') {
      p->at++;
      *out = array;
      return BRIM_OK;
    }
    if (p->at >= p->end || *p->at != ',') {
      status = unexpected(p, BRIM_N_("',' or ']'"));
      break;
    }
    p->at++;
  }
  json_decref(array);
  return status;
}

// Reads one "key": value into object.
static brim_status read_member(parser *p, json_t *object) {
  skip_space(p);
  const char *start = p->at;
  if (p->at >= p->end || *p->at != '"') return unexpected(p, BRIM_N_("a key in double quotes"));
  BRIM_TRY(read_string(p));
  if (strlen(p->token.data) != p->token.len) PARSE_FAIL(p, start, "a key with a NUL character");
  if (json_object_get(object, p->token.data)) {
    PARSE_FAIL(p, start, "the key \"%s\" appears twice", p->token.data);
  }
  char *key = brim_strdup(p->token.data);  // reading the value overwrites the token
  if (!key) return no_memory(p);
  json_t *value = NULL;
  brim_status status = BRIM_OK;
  skip_space(p);
  if (p->at >= p->end || *p->at != ':') {
    status = unexpected(p, "':'");
  } else {
    p->at++;
    status = read_value(p, &value);
  }
  if (!status && json_object_set_new(object, key, value) != 0) status = no_memory(p);
  brim_free(key);
  return status;
}

static brim_status read_object(parser *p, json_t **out) {
  json_t *object = json_object();
  if (!object) return no_memory(p);
  p->at++;
  skip_space(p);
  if (p->at < p->end && *p->at == '}') {
    p->at++;
    *out = object;
    return BRIM_OK;
  }
  for (;;) {
    brim_status status = read_member(p, object);
    skip_space(p);
    if (!status && p->at < p->end && *p->at == '}') {
      p->at++;
      *out = object;
      return BRIM_OK;
    }
    if (!status && (p->at >= p->end || *p->at != ','))
      status = unexpected(p, BRIM_N_("',' or '}'"));
    if (status) {
      json_decref(object);
      return status;
    }
    p->at++;
  }
}

static bool take_word(parser *p, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0) return false;
  p->at += n;
  return true;
}

static brim_status read_value(parser *p, json_t **out) {
  skip_space(p);
  if (p->at >= p->end) return unexpected(p, BRIM_N_("a value"));
  if (p->depth >= DEPTH_MAX) {
    PARSE_FAIL(p, p->at, "JSON is nested deeper than %d levels", DEPTH_MAX);
  }
  brim_status status = BRIM_OK;
  char c = *p->at;
  size_t counts = c == '{' ? OBJECT_COUNTS : c == '[' ? LIST_COUNTS : 1;
  if (counts > p->left) {
    return brim_fail(BRIM_ELIMIT, "%s has more than %zu values", p->name, p->most);
  }
  p->left -= counts;
  p->depth++;
  if (c == '{') {
    status = read_object(p, out);
  } else if (c == '[') {
    status = read_array(p, out);
  } else if (c == '"') {
    status = read_string(p);
    if (!status) *out = json_stringn(p->token.data, p->token.len);
  } else if (c == '-' || (c >= '0' && c <= '9')) {
    status = read_number(p, out);
  } else if (take_word(p, "true")) {
    *out = json_true();
  } else if (take_word(p, "false")) {
    *out = json_false();
  } else if (take_word(p, "null")) {
    *out = json_null();
  } else {
    status = unexpected(p, BRIM_N_("a value"));
  }
  p->depth--;
  if (!status && !*out) status = no_memory(p);
  return status;
}

brim_status brim_json_parse(const char *text, size_t size, const char *name, json_t **out) {
  size_t left = BRIM_JSON_VALUES;
  return brim_json_parse_within(text, size, name, &left, out);
}

brim_status brim_json_parse_within(const char *text, size_t size, const char *name, size_t *left,
                                   json_t **out) {
  brim_json_setup();
  *out = NULL;
  parser p = {.name = name ? name : "JSON",
              .text = text,
              .at = text,
              .end = text + size,
              .most = *left,
              .left = *left};
  brim_str_init(&p.token);
  json_t *value = NULL;
  brim_status status = read_value(&p, &value);
  if (!status) {
    skip_space(&p);
    if (p.at < p.end) status = unexpected(&p, "the end of the text");
  }
  brim_str_deinit(&p.token);
  *left = p.left;
  if (status) {
    json_decref(value);
    return status;
  }
  *out = value;
  return BRIM_OK;
}

//-------------------------------------------- writer --------------------------------------------

enum { JSON_DEPTH_MAX = 512, HASH_SEED = 20261 };

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
  if (!isfinite(value)) {  // unknown is null
    brim_str_append(s, "null");
    return;
  }
  char text[32];
  brim_format_f64(value, text);
  brim_str_append(s, text);
  if (!strpbrk(text, ".e")) brim_str_append(s, ".0");  // keep it a real when read back
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
  if (depth > JSON_DEPTH_MAX) {
    return brim_fail(BRIM_ELIMIT, "JSON is nested deeper than %d levels", JSON_DEPTH_MAX);
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
  // jansson fails when memory runs out, and for keys that are not UTF-8. object NULL: memory ran out before.
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
  // above 2^53 not every integer is a double, so write a real
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
