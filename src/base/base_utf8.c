// UTF-8: validity, and the columns a text takes on a terminal. The ranges are the East Asian wide
// and zero-width blocks that matter on a terminal, not the whole Unicode database.
#include <string.h>

#include "base/base_str.h"

typedef struct range {
  uint32_t first, last;
} range;

// Length of the sequence at p (1..4) and its code point; 0 when malformed.
static size_t decode(const unsigned char *p, size_t n, uint32_t *out) {
  if (n == 0) return 0;
  if (p[0] < 0x80) {
    *out = p[0];
    return 1;
  }
  size_t length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
  if (p[0] < 0xC2 || p[0] > 0xF4 || length > n) return 0;
  uint32_t code = p[0] & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((p[i] & 0xC0) != 0x80) return 0;
    code = code << 6 | (p[i] & 0x3Fu);
  }
  static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return 0;
  *out = code;
  return length;
}

bool brim_utf8_valid(const char *text, size_t n) {
  const unsigned char *p = (const unsigned char *)text;
  while (n) {
    uint32_t code;
    size_t length = decode(p, n, &code);
    if (length == 0) return false;
    p += length;
    n -= length;
  }
  return true;
}

void brim_utf8_trim(char *text) {
  size_t n = strlen(text), start = n;
  while (start > 0 && n - start < 4 && ((unsigned char)text[start - 1] & 0xC0) == 0x80) start--;
  if (start == 0) return;
  unsigned char lead = (unsigned char)text[start - 1];
  size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (need > 1 && n - start + 1 < need) text[start - 1] = '\0';
}

static bool in_ranges(const range *ranges, size_t count, uint32_t code) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (code > ranges[mid].last) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low < count && code >= ranges[low].first;
}

static int code_width(uint32_t code) {
  static const range zero[] = {
      {0x0300, 0x036F},   {0x0483, 0x0489},  {0x0591, 0x05BD}, {0x0610, 0x061A}, {0x064B, 0x065F},
      {0x0E31, 0x0E31},   {0x0E34, 0x0E3A},  {0x0E47, 0x0E4E}, {0x1160, 0x11FF}, {0x1AB0, 0x1AFF},
      {0x1DC0, 0x1DFF},   {0x200B, 0x200F},  {0x202A, 0x202E}, {0x2060, 0x2064}, {0x20D0, 0x20F0},
      {0x302A, 0x302D},   {0x3099, 0x309A},  {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF},
      {0x1F3FB, 0x1F3FF}, {0xE0001, 0xE01EF}};
  static const range wide[] = {
      {0x1100, 0x115F},   {0x231A, 0x231B},   {0x2329, 0x232A},   {0x23E9, 0x23EC},
      {0x23F0, 0x23F0},   {0x23F3, 0x23F3},   {0x25FD, 0x25FE},   {0x2614, 0x2615},
      {0x2648, 0x2653},   {0x267F, 0x267F},   {0x2693, 0x2693},   {0x26A1, 0x26A1},
      {0x26AA, 0x26AB},   {0x26BD, 0x26BE},   {0x26C4, 0x26C5},   {0x26CE, 0x26CE},
      {0x26D4, 0x26D4},   {0x26EA, 0x26EA},   {0x26F2, 0x26F3},   {0x26F5, 0x26F5},
      {0x26FA, 0x26FA},   {0x26FD, 0x26FD},   {0x2705, 0x2705},   {0x270A, 0x270B},
      {0x2728, 0x2728},   {0x274C, 0x274C},   {0x274E, 0x274E},   {0x2753, 0x2755},
      {0x2757, 0x2757},   {0x2795, 0x2797},   {0x27B0, 0x27B0},   {0x27BF, 0x27BF},
      {0x2B1B, 0x2B1C},   {0x2B50, 0x2B50},   {0x2B55, 0x2B55},   {0x2E80, 0x303E},
      {0x3041, 0x33FF},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},
      {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
      {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x16FE0, 0x18CFF}, {0x1B000, 0x1B2FF},
      {0x1F004, 0x1F004}, {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F18E}, {0x1F191, 0x1F19A},
      {0x1F200, 0x1F320}, {0x1F32D, 0x1F335}, {0x1F337, 0x1F37C}, {0x1F37E, 0x1F393},
      {0x1F3A0, 0x1F3CA}, {0x1F3CF, 0x1F3D3}, {0x1F3E0, 0x1F3F0}, {0x1F3F4, 0x1F3F4},
      {0x1F3F8, 0x1F43E}, {0x1F440, 0x1F440}, {0x1F442, 0x1F4FC}, {0x1F4FF, 0x1F53D},
      {0x1F54B, 0x1F54E}, {0x1F550, 0x1F567}, {0x1F57A, 0x1F57A}, {0x1F595, 0x1F596},
      {0x1F5A4, 0x1F5A4}, {0x1F5FB, 0x1F64F}, {0x1F680, 0x1F6C5}, {0x1F6CC, 0x1F6CC},
      {0x1F6D0, 0x1F6D2}, {0x1F6D5, 0x1F6D7}, {0x1F6DD, 0x1F6DF}, {0x1F6EB, 0x1F6EC},
      {0x1F6F4, 0x1F6FC}, {0x1F7E0, 0x1F7EB}, {0x1F90C, 0x1F9FF}, {0x1FA70, 0x1FAFF},
      {0x20000, 0x3FFFD}};
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return 0;
  if (code < 0x300) return 1;
  if (in_ranges(zero, sizeof zero / sizeof *zero, code)) return 0;
  return in_ranges(wide, sizeof wide / sizeof *wide, code) ? 2 : 1;
}

int brim_utf8_width(const char *text) {
  const unsigned char *p = (const unsigned char *)text;
  int columns = 0;
  while (*p) {
    if (p[0] == 0x1B && p[1] == '[') {  // a control sequence ends at a byte from @ to ~
      p += 2;
      while (*p && (*p < '@' || *p > '~')) p++;
      if (*p) p++;
      continue;
    }
    size_t left = 1;
    while (left < 4 && p[left]) left++;
    uint32_t code;
    size_t length = decode(p, left, &code);
    columns += length ? code_width(code) : 1;  // a stray byte shows as one replacement character
    p += length ? length : 1;
  }
  return columns;
}
