// Bytes from a terminal to keys. Pure functions; the terminal is in ui_screen.c.
#include <string.h>

#include "ui/ui_screen.h"

// "\033[5~" and its like: the number, then the key.
static brim_key_code by_number(int number) {
  switch (number) {
    case 1:
    case 7:
      return BRIM_KEY_HOME;
    case 3:
      return BRIM_KEY_DELETE;
    case 4:
    case 8:
      return BRIM_KEY_END;
    case 5:
      return BRIM_KEY_PAGE_UP;
    case 6:
      return BRIM_KEY_PAGE_DOWN;
    default:
      return BRIM_KEY_NONE;
  }
}

static brim_key_code by_letter(char letter) {
  switch (letter) {
    case 'A':
      return BRIM_KEY_UP;
    case 'B':
      return BRIM_KEY_DOWN;
    case 'C':
      return BRIM_KEY_RIGHT;
    case 'D':
      return BRIM_KEY_LEFT;
    case 'H':
      return BRIM_KEY_HOME;
    case 'F':
      return BRIM_KEY_END;
    case 'M':
      return BRIM_KEY_ENTER;  // of the keypad
    default:
      return BRIM_KEY_NONE;
  }
}

enum { LONGEST_SEQUENCE = 32 };

// A control sequence: parameters, then one byte from @ to ~. `at` is behind "\033[".
static size_t decode_csi(const char *bytes, size_t n, bool last, brim_key *out) {
  size_t at = 2;
  if (at < n && bytes[at] == '[') {  // F1 to F5 of the Linux console
    return at + 1 < n ? at + 2 : last ? n : 0;
  }
  int number = 0;
  bool first = true;
  for (; at < n && at < LONGEST_SEQUENCE; at++) {
    char c = bytes[at];
    if (c >= '@' && c <= '~') {
      out->code = c == '~' ? by_number(number) : c == 'M' ? BRIM_KEY_NONE : by_letter(c);
      // A click: three bytes more, as some terminals report it unasked.
      return c == 'M' && first && number == 0 ? (n - at > 3 ? at + 4 : last ? n : 0) : at + 1;
    }
    if (c < ' ' || c > '?') return at;  // no sequence: the byte begins something else
    if (c >= '0' && c <= '9' && first && number < 1000) number = number * 10 + (c - '0');
    if (c == ';') first = false;
  }
  return at >= LONGEST_SEQUENCE || last ? at : 0;
}

static size_t decode_escape(const char *bytes, size_t n, bool last, brim_key *out) {
  if (n == 1) {
    if (!last) return 0;
    out->code = BRIM_KEY_ESCAPE;
    return 1;
  }
  if (bytes[1] == '[') return n > 2 || last ? decode_csi(bytes, n, last, out) : 0;
  if (bytes[1] == 'O') {
    if (n == 2) return last ? 2 : 0;
    out->code = by_letter(bytes[2]);
    return 3;
  }
  if (bytes[1] == '\033') {  // Escape pressed twice, or in front of another key
    out->code = BRIM_KEY_ESCAPE;
    return 1;
  }
  return 2;  // Alt and a key
}

static size_t decode_utf8(const char *bytes, size_t n, bool last, brim_key *out) {
  unsigned char lead = (unsigned char)bytes[0];
  size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (n < need && !last) {
    for (size_t i = 1; i < n; i++) {
      if (((unsigned char)bytes[i] & 0xC0) != 0x80) return 1;
    }
    return 0;
  }
  if (n < need || need == 1 || !brim_utf8_valid(bytes, need)) return 1;
  uint32_t code = lead & (0x7Fu >> need);
  for (size_t i = 1; i < need; i++) code = code << 6 | ((unsigned char)bytes[i] & 0x3Fu);
  if (code >= 0xA0) *out = (brim_key){BRIM_KEY_CHAR, code};
  return need;
}

size_t brim_key_decode(const char *bytes, size_t n, bool last, brim_key *out) {
  *out = (brim_key){BRIM_KEY_NONE, 0};
  if (n == 0) return 0;
  unsigned char c = (unsigned char)bytes[0];
  if (c == 0x1B) return decode_escape(bytes, n, last, out);
  if (c >= 0x80) return decode_utf8(bytes, n, last, out);
  if (c == '\r' || c == '\n') {
    out->code = BRIM_KEY_ENTER;
  } else if (c == '\t') {
    out->code = BRIM_KEY_TAB;
  } else if (c == 0x7F || c == '\b') {
    out->code = BRIM_KEY_BACKSPACE;
  } else if (c == 0x0C) {
    out->code = BRIM_KEY_REDRAW;
  } else if (c >= ' ') {
    *out = (brim_key){BRIM_KEY_CHAR, c};
  }
  return 1;
}

uint32_t brim_key_latin(uint32_t ch) {
  // The two-set keyboard; letters that take two keys are not there.
  static const struct {
    uint32_t jamo;
    char latin;
  } rows[] = {
      {0x3131, 'r'}, {0x3132, 'R'}, {0x3134, 's'}, {0x3137, 'e'}, {0x3138, 'E'}, {0x3139, 'f'},
      {0x3141, 'a'}, {0x3142, 'q'}, {0x3143, 'Q'}, {0x3145, 't'}, {0x3146, 'T'}, {0x3147, 'd'},
      {0x3148, 'w'}, {0x3149, 'W'}, {0x314A, 'c'}, {0x314B, 'z'}, {0x314C, 'x'}, {0x314D, 'v'},
      {0x314E, 'g'}, {0x314F, 'k'}, {0x3150, 'o'}, {0x3151, 'i'}, {0x3152, 'O'}, {0x3153, 'j'},
      {0x3154, 'p'}, {0x3155, 'u'}, {0x3156, 'P'}, {0x3157, 'h'}, {0x315B, 'y'}, {0x315C, 'n'},
      {0x3160, 'b'}, {0x3161, 'm'}, {0x3163, 'l'},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].jamo == ch) return (uint32_t)rows[i].latin;
  }
  return ch;
}
