// Names of precisions, and the type that each computes in.
#include <string.h>

#include "engine/engine_int.h"

static const struct {
  const char *name;
  brim_dtype dtype;
} precisions[BRIM_PRECISION_COUNT] = {
    [BRIM_PRECISION_FP32] = {"fp32", BRIM_F32},
    [BRIM_PRECISION_TF32] = {"tf32", BRIM_F32},
    [BRIM_PRECISION_BF16] = {"bf16", BRIM_BF16},
    [BRIM_PRECISION_FP16] = {"fp16", BRIM_F16},
};

const char *brim_precision_name(brim_precision precision) {
  return (unsigned)precision < BRIM_PRECISION_COUNT ? precisions[precision].name : "?";
}

bool brim_precision_parse(const char *text, brim_precision *out) {
  for (int i = 0; i < BRIM_PRECISION_COUNT; i++) {
    if (strcmp(text, precisions[i].name) == 0) {
      *out = (brim_precision)i;
      return true;
    }
  }
  return false;
}

brim_dtype brim_precision_dtype(brim_precision precision) { return precisions[precision].dtype; }
