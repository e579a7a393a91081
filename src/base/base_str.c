// The growing string, prefix tests, nearest names, numbers to text and back, UTF-8.

#include "base/base_str.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"

//---------------------------------- strings ----------------------------------

// The data of every empty string; never written, because cap is 0.
static const char empty_text[1] = "";

void brim_str_init(brim_str *s) {
  *s = (brim_str){.data = (char *)(uintptr_t)empty_text, .len = 0, .cap = 0, .status = BRIM_OK};
}

void brim_str_deinit(brim_str *s) {
  if (s->cap) brim_free(s->data);
  brim_str_init(s);
}

void brim_str_clear(brim_str *s) {
  s->len = 0;
  if (s->cap) s->data[0] = '\0';
}

// Makes room for n more bytes and the NUL.
static bool reserve(brim_str *s, size_t n) {
  if (s->status) return false;
  if (n < s->cap - s->len && s->cap) return true;
  if (n > SIZE_MAX / 4 || s->len > SIZE_MAX / 4) {
    s->status = brim_fail(BRIM_ENOMEM, "out of memory while building a text");
    return false;
  }
  size_t cap = s->cap ? s->cap * 2 : 64;
  while (cap < s->len + n + 1) cap *= 2;
  char *data = brim_realloc(s->cap ? s->data : NULL, cap);
  if (!data) {
    s->status = brim_fail(BRIM_ENOMEM, "out of memory while building a text");
    return false;
  }
  data[s->len] = '\0';
  s->data = data;
  s->cap = cap;
  return true;
}

void brim_str_append_n(brim_str *s, const char *text, size_t n) {
  if (n == 0 || !reserve(s, n)) return;
  memcpy(s->data + s->len, text, n);
  s->len += n;
  s->data[s->len] = '\0';
}

void brim_str_append(brim_str *s, const char *text) { brim_str_append_n(s, text, strlen(text)); }

void brim_str_append_char(brim_str *s, char c) { brim_str_append_n(s, &c, 1); }

void brim_str_repeat(brim_str *s, char c, size_t n) {
  if (n == 0 || !reserve(s, n)) return;
  memset(s->data + s->len, c, n);
  s->len += n;
  s->data[s->len] = '\0';
}

void brim_str_vprintf(brim_str *s, const char *fmt, va_list args) {
  if (!reserve(s, 32)) return;
  va_list again;
  va_copy(again, args);
  size_t from = s->len;
  size_t room = s->cap - s->len;
  int n = vsnprintf(s->data + s->len, room, fmt, args);
  if (n < 0) {
    s->data[s->len] = '\0';
    s->status = brim_fail(BRIM_EINVAL, "a text could not be formatted");
  } else if ((size_t)n < room) {
    s->len += (size_t)n;
  } else {
    s->data[s->len] = '\0';  // undo the truncated text
    if (reserve(s, (size_t)n)) {
      vsnprintf(s->data + s->len, s->cap - s->len, fmt, again);
      s->len += (size_t)n;
    }
  }
  // only if the format has one, so that printed data stays unchanged
  if (s->len > from && brim_msg_has_particle(fmt)) s->len = brim_msg_particles(s->data, from);
  va_end(again);
}

void brim_str_printf(brim_str *s, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  brim_str_vprintf(s, fmt, args);
  va_end(args);
}

brim_status brim_str_status(const brim_str *s) {
  // set the detail again: later calls may have replaced it
  if (s->status == BRIM_ENOMEM) {
    return brim_fail(BRIM_ENOMEM, "out of memory while building a text");
  }
  return s->status;
}

char *brim_str_take(brim_str *s) {
  char *data = NULL;
  if (s->status == BRIM_OK) data = s->cap ? s->data : brim_strdup("");
  if (s->cap && data != s->data) brim_free(s->data);
  brim_str_init(s);
  return data;
}

bool brim_str_starts(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool brim_str_ends(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

enum { EDIT_MAX = 64 };

static int min_int(int a, int b) { return a < b ? a : b; }

// The unrestricted form (Lowrance and Wagner): a transposition counts 1 even if other letters stand between.
int brim_edit_distance(const char *a, const char *b) {
  int n = (int)strnlen(a, EDIT_MAX), m = (int)strnlen(b, EDIT_MAX);
  int d[EDIT_MAX + 2][EDIT_MAX + 2];
  int last_row[256] = {0};
  const int far = n + m;
  d[0][0] = far;
  for (int i = 0; i <= n; i++) {
    d[i + 1][0] = far;
    d[i + 1][1] = i;
  }
  for (int j = 0; j <= m; j++) {
    d[0][j + 1] = far;
    d[1][j + 1] = j;
  }
  for (int i = 1; i <= n; i++) {
    int last_col = 0;
    for (int j = 1; j <= m; j++) {
      int row = last_row[(unsigned char)b[j - 1]], col = last_col;
      int cost = a[i - 1] == b[j - 1] ? 0 : 1;
      if (cost == 0) last_col = j;
      int best = min_int(d[i][j] + cost, min_int(d[i + 1][j], d[i][j + 1]) + 1);
      best = min_int(best, d[row][col] + (i - row - 1) + 1 + (j - col - 1));
      d[i + 1][j + 1] = best;
    }
    last_row[(unsigned char)a[i - 1]] = i;
  }
  return d[n + 1][m + 1];
}

const char *brim_nearest(const char *word, const char *const *names) {
  const char *best = NULL;
  int best_distance = INT_MAX;
  for (; names && *names; names++) {
    int length = (int)strnlen(word, EDIT_MAX), other = (int)strnlen(*names, EDIT_MAX);
    int limit = (length > other ? length : other) / 3;
    if (limit < 1) limit = 1;
    int distance = brim_edit_distance(word, *names);
    if (distance <= limit && distance < length && distance < best_distance) {
      best = *names;
      best_distance = distance;
    }
  }
  return best;
}

//---------------------------------- numbers ----------------------------------
// Converts numbers to text and back, independent of the locale.

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Parses a whole text as an unsigned number in a base; false on overflow.
static bool parse_u64(const char *text, unsigned base, uint64_t *out) {
  uint64_t value = 0;
  if (!*text) return false;
  for (; *text; text++) {
    unsigned digit = (unsigned)digit_value(*text);
    if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, digit, &value)) {
      return false;
    }
  }
  *out = value;
  return true;
}

bool brim_parse_i64(const char *text, int64_t *out) {
  uint64_t value;
  if (!text) return false;
  if (text[0] == '0' && (text[1] == 'x' || text[1] == 'o')) {
    if (!parse_u64(text + 2, text[1] == 'x' ? 16 : 8, &value) || value > INT64_MAX) return false;
    *out = (int64_t)value;
    return true;
  }
  bool negative = *text == '-';
  if (*text == '-' || *text == '+') text++;
  if (!parse_u64(text, 10, &value)) return false;
  if (negative) {
    if (value > (uint64_t)INT64_MAX + 1) return false;
    *out = value ? -(int64_t)(value - 1) - 1 : 0;
  } else {
    if (value > INT64_MAX) return false;
    *out = (int64_t)value;
  }
  return true;
}

// Returns the length of a plain decimal number without a sign ("1", "1.", ".5", "1e-4"); 0 if there is none.
static size_t scan_decimal(const char *text) {
  const char *p = text;
  size_t digits = 0;
  for (; is_digit(*p); p++) digits++;
  if (*p == '.') {
    p++;
    for (; is_digit(*p); p++) digits++;
  }
  if (digits == 0) return 0;
  if (*p == 'e' || *p == 'E') {
    const char *e = p + 1;
    if (*e == '+' || *e == '-') e++;
    if (is_digit(*e)) {
      while (is_digit(*e)) e++;
      p = e;
    }
  }
  return (size_t)(p - text);
}

// strtod in the C locale. This locale is a static object in glibc, so this does not allocate.
static double to_f64(const char *text) {
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!c) return NAN;
  double value = strtod_l(text, NULL, c);
  freelocale(c);
  return value;
}

static bool one_of(const char *text, const char *a, const char *b, const char *c) {
  return strcmp(text, a) == 0 || strcmp(text, b) == 0 || strcmp(text, c) == 0;
}

bool brim_parse_f64(const char *text, double *out) {
  if (!text) return false;
  const char *p = text;
  bool negative = *p == '-';
  if (*p == '-' || *p == '+') p++;
  if (one_of(p, ".inf", ".Inf", ".INF")) {
    *out = negative ? -INFINITY : INFINITY;
    return true;
  }
  if (one_of(text, ".nan", ".NaN", ".NAN")) {
    *out = NAN;
    return true;
  }
  size_t n = scan_decimal(p);
  if (n == 0 || p[n]) return false;
  double value = to_f64(text);
  if (!isfinite(value)) return false;
  *out = value;
  return true;
}

bool brim_parse_bool(const char *text, bool *out) {
  static const char *const yes[] = {"true", "yes", "on"};
  static const char *const no[] = {"false", "no", "off"};
  if (!text) return false;
  for (int i = 0; i < 3; i++) {
    if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
      *out = strcasecmp(text, yes[i]) == 0;
      return true;
    }
  }
  return false;
}

static bool unit_factor(const char *unit, uint64_t *out) {
  static const char letters[] = "kmgtp";
  *out = 1;
  if (!*unit || strcasecmp(unit, "b") == 0) return true;
  const char *at = strchr(letters, tolower((unsigned char)*unit));
  if (!at) return false;
  bool decimal = strcasecmp(unit + 1, "b") == 0;
  if (!decimal && unit[1] && strcasecmp(unit + 1, "ib") != 0 && strcasecmp(unit + 1, "i") != 0) {
    return false;
  }
  for (const char *p = letters; p <= at; p++) *out *= decimal ? 1000 : 1024;
  return true;
}

bool brim_parse_bytes(const char *text, uint64_t *out) {
  if (!text) return false;
  size_t n = scan_decimal(text);
  char number[64];
  if (n == 0 || n >= sizeof number) return false;
  memcpy(number, text, n);
  number[n] = '\0';
  const char *unit = text + n;
  while (*unit == ' ') unit++;
  uint64_t factor, whole;
  if (!unit_factor(unit, &factor)) return false;
  if (strspn(number, "0123456789") == n) {
    if (!parse_u64(number, 10, &whole)) return false;
    return !__builtin_mul_overflow(whole, factor, out);
  }
  double value = round(to_f64(number) * (double)factor);
  if (!(value >= 0 && value < 18446744073709551616.0)) return false;
  *out = (uint64_t)value;
  return true;
}

// snprintf in the C locale.
static void format_c(char out[32], const char *fmt, ...) {
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  locale_t before = c ? uselocale(c) : (locale_t)0;
  va_list args;
  va_start(args, fmt);
  vsnprintf(out, 32, fmt, args);
  va_end(args);
  if (c) {
    uselocale(before);
    freelocale(c);
  }
}

double brim_round_digits(double value, int digits) {
  char text[32];
  if (!isfinite(value)) return value;
  format_c(text, "%.*e", digits - 1, value);
  return to_f64(text);
}

double brim_shown(double value) { return value * (1 + 2 * DBL_EPSILON); }

void brim_format_f64(double value, char out[32]) {
  if (isnan(value)) {
    strcpy(out, ".nan");
    return;
  }
  if (isinf(value)) {
    strcpy(out, value < 0 ? "-.inf" : ".inf");
    return;
  }
  for (int digits = 15; digits <= 17; digits++) {
    format_c(out, "%.*g", digits, value);
    if (to_f64(out) == value) return;
  }
}

void brim_format_bytes(uint64_t bytes, char out[32]) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    format_c(out, "%d B", (int)bytes);
    return;
  }
  double value = brim_shown((double)bytes / 1024);
  int unit = 0;
  // 1023.95 would print as 1024.0, so use the next unit
  for (; value >= 1023.95 && unit < 5; unit++) value /= 1024;
  format_c(out, "%.1f %s", value, units[unit]);
}

// Writes three significant digits without an exponent and without trailing zeros; value in [0, 1000).
static void format_short(double value, const char *unit, char out[32]) {
  char number[32];
  format_c(number, value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
  if (strchr(number, '.')) {
    size_t n = strlen(number);
    while (number[n - 1] == '0') number[--n] = '\0';
    if (number[n - 1] == '.') number[n - 1] = '\0';
  }
  format_c(out, "%.12s%s%.8s", number, *unit ? " " : "", unit);
}

// Writes the digits in groups of three.
static void format_grouped(uint64_t value, bool negative, char out[32]) {
  char digits[24];
  int n = snprintf(digits, sizeof digits, "%" PRIu64, value), k = 0;
  if (negative) out[k++] = '-';
  for (int i = 0; i < n; i++) {
    if (i && (n - i) % 3 == 0) out[k++] = ',';
    out[k++] = digits[i];
  }
  out[k] = '\0';
}

void brim_format_count(double value, char out[32]) {
  value = brim_shown(value);
  double size = fabs(value);
  char text[32];
  if (!isfinite(value)) {
    strcpy(out, "-");
  } else if (size < 999.5) {
    format_short(size, "", text);
    format_c(out, "%s%.20s", value < 0 && strcmp(text, "0") != 0 ? "-" : "", text);
  } else if (size < 999999.5) {
    format_grouped((uint64_t)llround(size), value < 0, out);
  } else if (size < 999.995e6) {
    format_c(out, "%.2f M", value / 1e6);
  } else if (size < 999.995e9) {
    format_c(out, "%.2f G", value / 1e9);
  } else if (size < 999.995e12) {
    format_c(out, "%.2f T", value / 1e12);
  } else {
    format_c(out, "%.3g", value);
  }
}

void brim_format_figure(double value, char out[32]) {
  if (fabs(value) >= 999.5) {
    brim_format_count(value, out);
    return;
  }
  value = brim_shown(value);
  if (isnan(value)) {
    snprintf(out, 32, "-");
  } else if (fabs(value) >= 99.95) {
    snprintf(out, 32, "%.0f", value);
  } else if (fabs(value) >= 9.995) {
    snprintf(out, 32, "%.1f", value);
  } else {
    snprintf(out, 32, "%.2f", value);
  }
}

void brim_format_duration(double seconds, char out[32]) {
  double s = brim_shown(fabs(seconds));
  char text[32];
  if (!isfinite(seconds)) {
    strcpy(out, "-");
    return;
  }
  if (s == 0) {
    strcpy(text, "0 s");
  } else if (s < 999.5e-9) {
    format_short(s * 1e9, "ns", text);
  } else if (s < 999.5e-6) {
    format_short(s * 1e6, "us", text);
  } else if (s < 0.9995) {
    format_short(s * 1e3, "ms", text);
  } else if (s < 59.95) {
    format_short(s, "s", text);
  } else if (s < 3599.5) {
    long long whole = llround(s);
    snprintf(text, sizeof text, "%lld min %02lld s", whole / 60, whole % 60);
  } else if (s < 1e12) {
    long long minutes = llround(s / 60);
    snprintf(text, sizeof text, "%lld h %02lld min", minutes / 60, minutes % 60);
  } else {
    format_c(text, "%.3g h", s / 3600);
  }
  format_c(out, "%s%.30s", seconds < 0 ? "-" : "", text);
}

//---------------------------------- UTF-8 ----------------------------------
// Validity and terminal columns of UTF-8. The ranges are the wide East Asian and zero-width blocks that matter on a
// terminal, not the whole Unicode database.

typedef struct range {
  uint32_t first, last;
} range;

// Returns the length of the sequence at p (1..4) and its code point; 0 = malformed.
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
