// Escapes for terminals, which make control characters visible, and CSV cells that spreadsheets do not run.
#include "base/base_text.h"

#include <stdio.h>
#include <string.h>

// Returns the length of the character at p (of n bytes) and its code point; 0 = invalid UTF-8.
static size_t decode(const char *p, size_t n, uint32_t *code) {
  const unsigned char *u = (const unsigned char *)p;
  size_t length = u[0] < 0x80 ? 1 : u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
  if (length > n || !brim_utf8_valid(p, length)) return 0;
  *code = length == 1 ? u[0] : u[0] & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) *code = *code << 6 | (u[i] & 0x3Fu);
  return length;
}

static bool is_plain(uint32_t code) {
  if (code == '\n' || code == '\t') return true;
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;
  if (code < 0x61C) return true;
  bool direction = code == 0x61C || code == 0x200E || code == 0x200F ||
                   (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return !direction && code != 0x2028 && code != 0x2029;
}

// Returns the length of the sequence of `keep` that begins at p; 0 = none.
static size_t kept_length(const char *p, size_t n, const char *const *keep) {
  for (; keep && *keep; keep++) {
    size_t length = strlen(*keep);
    if (length <= n && memcmp(p, *keep, length) == 0) return length;
  }
  return 0;
}

// Writes the escape of the character at p to `out`, empty if it is plain. Returns the character's length.
static size_t escape_next(const char *p, size_t n, char out[12]) {
  uint32_t code = 0;
  size_t length = decode(p, n, &code);
  out[0] = '\0';
  if (!length) {
    snprintf(out, 12, "\\x%02x", (unsigned char)*p);
    return 1;
  }
  if (is_plain(code)) return length;
  // JSON has no \x7f, so DEL gets the long form.
  snprintf(out, 12, code < 0x7F ? "\\x%02x" : "\\u%04x", (unsigned)code);
  return length;
}

bool brim_text_is_plain(const char *text, size_t n) {
  char escape[12];
  for (size_t i = 0; i < n;) {
    unsigned char c = (unsigned char)text[i];
    if (c >= 0x20 && c < 0x7F) {
      i++;
      continue;
    }
    i += escape_next(text + i, n - i, escape);
    if (escape[0]) return false;
  }
  return true;
}

void brim_text_append_plain(brim_str *out, const char *text, size_t n, const char *const *keep) {
  char escape[12];
  size_t begin = 0;  // start of the plain part that is not yet appended
  for (size_t i = 0; i < n;) {
    unsigned char c = (unsigned char)text[i];
    size_t own = c == 0x1B ? kept_length(text + i, n - i, keep) : 0;
    if (own || (c >= 0x20 && c < 0x7F)) {
      i += own ? own : 1;
      continue;
    }
    size_t length = escape_next(text + i, n - i, escape);
    if (escape[0]) {
      brim_str_append_n(out, text + begin, i - begin);
      brim_str_append(out, escape);
      begin = i + length;
    }
    i += length;
  }
  brim_str_append_n(out, text + begin, n - begin);
}

void brim_text_plain(const char *text, char *out, size_t size) {
  char escape[12];
  size_t used = 0, n = strlen(text);
  for (size_t i = 0; i < n;) {
    size_t length = escape_next(text + i, n - i, escape);
    size_t bytes = escape[0] ? strlen(escape) : length;
    if (used + bytes >= size) break;
    memcpy(out + used, escape[0] ? escape : text + i, bytes);
    used += bytes;
    i += length;
  }
  if (size) out[used] = '\0';
}

//---------------------------------- spreadsheets ----------------------------------

static bool is_formula(const char *text) {
  double number;
  if (!*text || !strchr("=+-@\t\r\n", *text)) return false;
  return !((*text == '+' || *text == '-') && brim_parse_f64(text, &number));
}

void brim_text_append_csv(brim_str *out, const char *text) {
  bool formula = is_formula(text);
  bool quoted = text[strcspn(text, ",\"\r\n")] != '\0';
  if (quoted) brim_str_append_char(out, '"');
  if (formula) brim_str_append_char(out, '\'');
  for (; *text; text++) {
    if (*text == '"') brim_str_append_char(out, '"');
    brim_str_append_char(out, *text);
  }
  if (quoted) brim_str_append_char(out, '"');
}
