// What whole-number targets are, classes or values, and a warning about classes without samples.
// Callers: the sources whose labels are numbers.
#include "data/data_int.h"

void brim_data_warn_absent(const char *path, int64_t (*label)(const void *ctx, uint64_t i),
                           const void *ctx, uint64_t rows, int64_t classes) {
  if (classes < 2) return;
  unsigned char *seen = (unsigned char *)brim_calloc((size_t)classes, 1);
  if (!seen) return;  // it would be no more than a warning
  int64_t absent = classes;
  for (uint64_t i = 0; i < rows; i++) {
    unsigned char *at = &seen[label(ctx, i)];
    absent -= *at == 0;
    *at = 1;
  }
  brim_free(seen);
  // Few rows miss classes by chance, but then they seldom have the same label.
  bool few = rows < (uint64_t)classes && (uint64_t)(classes - absent) > rows / 2;
  if (absent <= classes / 2 || few) return;
  brim_log_warn("data",
                "%s: the labels go up to %lld, so there are %lld classes, but %lld of them never "
                "occur; is a label wrong? Number the classes from 0 without gaps, or set classes=N",
                path, (long long)classes - 1, (long long)classes, (long long)absent);
}

brim_status brim_data_are_values(const char *path, const brim_data_whole *whole, bool *out) {
  // A subset of few classes, and ages, look alike below these.
  enum { FEW = 20, SMALL = 100, MOST = 1 << 24 };
  *out = whole->rows > 0 && whole->least < -1;
  if (*out || whole->rows == 0 || whole->least < 0) return BRIM_OK;
  uint8_t *seen = brim_calloc(MOST / 8, 1);  // values above are not counted as different ones
  if (!seen) return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
  int64_t different = 0;
  for (uint64_t i = 0; i < whole->rows; i++) {
    int64_t v = whole->value(whole->ctx, i);
    if (v >= MOST || seen[v / 8] & 1 << v % 8) continue;
    seen[v / 8] = (uint8_t)(seen[v / 8] | 1 << v % 8);
    different++;
  }
  brim_free(seen);
  *out = whole->least > 1 && different > FEW;
  if (*out || whole->most < SMALL || (whole->least <= 1 && different <= FEW)) return BRIM_OK;
  int64_t far = (whole->least > 1 ? 2 : 4) * different;
  uint64_t beyond = 0;
  for (uint64_t i = 0; i < whole->rows; i++) beyond += whole->value(whole->ctx, i) >= far;
  *out = beyond > whole->rows / 2;
  return BRIM_OK;
}
