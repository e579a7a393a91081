// The one reader of BRIM_CPU_MASK.
#include "base/base_cpu_mask.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
  WITH_AVX512 = BRIM_CPU_MASK_AVX512 | BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX,
};

static const struct {
  const char *name;
  unsigned bits;
} features[] = {
    {"bf16", BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX},
    {"amx", BRIM_CPU_MASK_AMX},
    {"avx512", WITH_AVX512},
    {"avx2", WITH_AVX512 | BRIM_CPU_MASK_AVX2},
    {"neon", BRIM_CPU_MASK_NEON | BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX},
};

bool brim_cpu_mask_parse(const char *text, unsigned *mask) {
  *mask = 0;
  bool known = true;
  for (const char *p = text ? text : ""; *(p += strspn(p, ", ")); p += strcspn(p, ", ")) {
    size_t n = strcspn(p, ", ");
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
      if (strlen(features[i].name) == n && memcmp(features[i].name, p, n) == 0) {
        bits = features[i].bits;
      }
    }
    *mask |= bits;
    known = known && bits != 0;
  }
  return known;
}

unsigned brim_cpu_mask(void) {
  unsigned mask;
  (void)brim_cpu_mask_parse(getenv("BRIM_CPU_MASK"), &mask);
  return mask;
}
