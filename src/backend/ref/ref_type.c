// Load and store of chunks per type: the only code of ref that knows how a value is kept.
#include "backend/backend_half.h"
#include "backend/ref/ref_int.h"

static void load_f32(const void *data, int64_t at, int64_t count, double *out) {
  const float *p = (const float *)data + at;
  for (int64_t i = 0; i < count; i++) out[i] = (double)p[i];
}

static void store_f32(void *data, int64_t at, int64_t count, const double *in) {
  float *p = (float *)data + at;
  for (int64_t i = 0; i < count; i++) p[i] = (float)in[i];
}

static void load_f64(const void *data, int64_t at, int64_t count, double *out) {
  memcpy(out, (const double *)data + at, (size_t)count * sizeof(double));
}

static void store_f64(void *data, int64_t at, int64_t count, const double *in) {
  memcpy((double *)data + at, in, (size_t)count * sizeof(double));
}

static void load_bf16(const void *data, int64_t at, int64_t count, double *out) {
  const uint16_t *p = (const uint16_t *)data + at;
  for (int64_t i = 0; i < count; i++) out[i] = (double)brim_bf16_to_f32(p[i]);
}

static void store_bf16(void *data, int64_t at, int64_t count, const double *in) {
  uint16_t *p = (uint16_t *)data + at;
  for (int64_t i = 0; i < count; i++) p[i] = brim_f32_to_bf16((float)in[i]);
}

static void load_f16(const void *data, int64_t at, int64_t count, double *out) {
  const uint16_t *p = (const uint16_t *)data + at;
  for (int64_t i = 0; i < count; i++) out[i] = (double)brim_f16_to_f32(p[i]);
}

static void store_f16(void *data, int64_t at, int64_t count, const double *in) {
  uint16_t *p = (uint16_t *)data + at;
  for (int64_t i = 0; i < count; i++) p[i] = brim_f32_to_f16((float)in[i]);
}

static void load_u8(const void *data, int64_t at, int64_t count, double *out) {
  const uint8_t *p = (const uint8_t *)data + at;
  for (int64_t i = 0; i < count; i++) out[i] = (double)p[i];
}

static void store_u8(void *data, int64_t at, int64_t count, const double *in) {
  uint8_t *p = (uint8_t *)data + at;
  for (int64_t i = 0; i < count; i++) p[i] = (uint8_t)in[i];
}

const ref_type *brim_ref_type(brim_dtype dtype) {
  static const ref_type types[BRIM_DTYPE_COUNT] = {
      [BRIM_F32] = {load_f32, store_f32},    [BRIM_F64] = {load_f64, store_f64},
      [BRIM_BF16] = {load_bf16, store_bf16}, [BRIM_F16] = {load_f16, store_f16},
      [BRIM_U8] = {load_u8, store_u8},
  };
  return &types[dtype];
}
