// The YAML 1.2 core schema: what a plain scalar means. `1e-4` is a number, `yes` is a string
// (keys of type bool take it all the same; that is config_convert.c's business), 0o17 is octal.
#include <string.h>

#include "config/config_int.h"

static bool any_of(const char *text, const char *const *words) {
  for (; *words; words++) {
    if (!strcmp(text, *words)) return true;
  }
  return false;
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// [-+]?[0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+; false when it does not fit 64 bits.
static bool core_int(const char *text, int64_t *out) {
  bool negative = false;
  int base = 10;
  if (text[0] == '0' && (text[1] == 'o' || text[1] == 'x')) {
    base = text[1] == 'o' ? 8 : 16;
    text += 2;
  } else if (*text == '-' || *text == '+') {
    negative = *text++ == '-';
  }
  if (!*text) return false;
  uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
  uint64_t value = 0;
  for (; *text; text++) {
    int digit = digit_of(*text);
    if (digit >= base) return false;
    if (value > (limit - (uint64_t)digit) / (uint64_t)base) return false;
    value = value * (uint64_t)base + (uint64_t)digit;
  }
  *out = negative ? (int64_t)(0 - value) : (int64_t)value;
  return true;
}

// [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)? and the infinities and NaN.
static bool core_float(const char *text, double *out) {
  static const char *const specials[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf",
                                         "+.INF", "-.inf", "-.Inf", "-.INF", ".nan",
                                         ".NaN",  ".NAN",  NULL};
  if (!any_of(text, specials)) {
    const char *p = text + (*text == '-' || *text == '+');
    size_t before = strspn(p, "0123456789");
    p += before;
    size_t after = 0;
    if (*p == '.') {
      after = strspn(++p, "0123456789");
      p += after;
    }
    if (before + after == 0) return false;
    if (*p == 'e' || *p == 'E') {
      p++;
      if (*p == '-' || *p == '+') p++;
      size_t exponent = strspn(p, "0123456789");
      if (!exponent) return false;
      p += exponent;
    }
    if (*p) return false;
  }
  return brim_parse_f64(text, out);
}

void brim_config_word(const char *text, brim_value *out) {
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
  static const char *const trues[] = {"true", "True", "TRUE", NULL};
  static const char *const falses[] = {"false", "False", "FALSE", NULL};
  *out = (brim_value){.kind = BRIM_VALUE_STRING, .string = text};
  if (any_of(text, nulls)) {
    out->kind = BRIM_VALUE_NULL;
  } else if (any_of(text, trues) || any_of(text, falses)) {
    out->kind = BRIM_VALUE_BOOL;
    out->boolean = any_of(text, trues);
  } else if (core_int(text, &out->integer)) {
    out->kind = BRIM_VALUE_INT;
    out->number = (double)out->integer;
  } else if (core_float(text, &out->number)) {
    out->kind = BRIM_VALUE_FLOAT;
  }
}

brim_status brim_config_scalar(const brim_config_node *node, brim_value *out) {
  *out = (brim_value){.kind = BRIM_VALUE_STRING, .string = node->text};
  if (node->tag == BRIM_CONFIG_TAG_STR) return BRIM_OK;
  if (node->tag == BRIM_CONFIG_TAG_NONE) {
    if (node->plain) brim_config_word(node->text, out);
    return BRIM_OK;
  }
  static const brim_value_kind wanted[BRIM_CONFIG_TAG_COUNT] = {
      [BRIM_CONFIG_TAG_INT] = BRIM_VALUE_INT,
      [BRIM_CONFIG_TAG_FLOAT] = BRIM_VALUE_FLOAT,
      [BRIM_CONFIG_TAG_BOOL] = BRIM_VALUE_BOOL,
      [BRIM_CONFIG_TAG_NULL] = BRIM_VALUE_NULL,
  };
  brim_config_word(node->text, out);
  if (node->tag == BRIM_CONFIG_TAG_FLOAT && out->kind == BRIM_VALUE_INT) {
    out->kind = BRIM_VALUE_FLOAT;
  }
  if (out->kind != wanted[node->tag]) {
    return brim_fail_at(BRIM_EPARSE, node->at.file, node->at.line, node->at.col,
                        "'%.80s' does not match its tag", node->text);
  }
  return BRIM_OK;
}
