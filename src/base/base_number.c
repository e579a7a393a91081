// Numbers to text and back, the same in every locale.
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

#include "base/base_str.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// All of text as an unsigned number of a base; false when it does not fit.
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

// Length of a plain decimal number without a sign ("1", "1.", ".5", "1e-4"); 0 when there is none.
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

// strtod in the C locale. glibc keeps that locale as a static object, so this does not allocate.
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

// snprintf with a decimal point whatever the locale.
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
  // 1023.95 would print as 1024.0: that is the next unit.
  for (; value >= 1023.95 && unit < 5; unit++) value /= 1024;
  format_c(out, "%.1f %s", value, units[unit]);
}

// Three significant digits without an exponent and without trailing zeros; value in [0, 1000).
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

// Digits in groups of three.
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
