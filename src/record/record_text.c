// Small readers that the record room's files share: texts into fields, whole numbers, the schema.
#include <string.h>

#include "record/record_int.h"

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

// A fixed-size field may hold a character cut in half; JSON needs whole ones.
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
