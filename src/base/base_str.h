// Strings: a growing buffer, number parsing that checks, edit distance for 'did you mean'.
#ifndef BRIM_BASE_STR_H_
#define BRIM_BASE_STR_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// A growing string. It keeps the first failure of an append, which brim_str_status returns, so a long run of
// appends needs only one check. data is always NUL-terminated.
typedef struct brim_str {
  char *data;  // never NULL after init
  size_t len;
  size_t cap;
  brim_status status;
} brim_str;

void brim_str_init(brim_str *s);
void brim_str_deinit(brim_str *s);
void brim_str_clear(brim_str *s);
void brim_str_append(brim_str *s, const char *text);
void brim_str_append_n(brim_str *s, const char *text, size_t n);
void brim_str_append_char(brim_str *s, char c);
void brim_str_repeat(brim_str *s, char c, size_t n);
void brim_str_printf(brim_str *s, const char *fmt, ...) BRIM_PRINTF(2, 3);
void brim_str_vprintf(brim_str *s, const char *fmt, va_list args);
brim_status brim_str_status(const brim_str *s);
// Returns the text, to be freed with brim_free, and empties s. NULL if an append failed or memory is out.
char *brim_str_take(brim_str *s);

// These parse a whole string; false on trailing characters, overflow or an empty string. Decimal; floats in YAML
// 1.2 core forms (1e-4, .5, -.inf, .nan). Independent of the locale.
bool brim_parse_i64(const char *text, int64_t *out);  // also 0x and 0o
bool brim_parse_f64(const char *text, double *out);
bool brim_parse_bool(const char *text, bool *out);  // true/false/yes/no/on/off, any case
// Parses bytes: "12GB", "512 MiB", "1024", "1.5G". GB = 1e9, GiB = 2^30, bare G/M/K are binary.
bool brim_parse_bytes(const char *text, uint64_t *out);

// Writes the shortest text that reads back as the same double ("0.0001", "1e-05").
void brim_format_f64(double value, char out[32]);
// Prepares a value for printf, so that halves round away from zero (94.125 to 94.13). It also corrects halves that
// binary arithmetic left a little lower (100 x 0.285 is 28.499999999999996). The pages (web/) round the same way.
double brim_shown(double value);
// Returns the nearest double with `digits` significant decimal digits (1 to 17).
double brim_round_digits(double value, int digits);
void brim_format_bytes(uint64_t bytes, char out[32]);  // "1.5 GiB"
// Writes at least three significant digits, "-" if unknown: "12,345", "128", "36.4", "0.52".
void brim_format_figure(double value, char out[32]);
void brim_format_count(double value, char out[32]);  // "12,345" / "1.23 M"
void brim_format_duration(double seconds,
                          char out[32]);  // "1.2 ms", "3 s", "2 min 05 s", "1 h 02 min"

bool brim_str_starts(const char *text, const char *prefix);
bool brim_str_ends(const char *text, const char *suffix);
bool brim_utf8_valid(const char *text, size_t n);
// Removes an incomplete sequence at the end of a text.
void brim_utf8_trim(char *text);
// Terminal columns of a UTF-8 text (wide CJK 2, combining 0, ANSI colour codes 0).
int brim_utf8_width(const char *text);
// Damerau-Levenshtein distance of the first 64 characters.
int brim_edit_distance(const char *a, const char *b);
// Returns the nearest of the names (NULL-terminated list), if it is within a third of the length, or NULL.
const char *brim_nearest(const char *word, const char *const *names);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_STR_H_
