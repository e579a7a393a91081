// A warning about classes without samples. Callers: the sources whose labels are numbers.
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
