// Loops that the compiler turns into vector code: bf16, exp, tanh, gelu. No libm calls, no branches
// on data. Computes in float; other types are widened a block at a time (brim_cpu_read/write).
#ifndef BRIM_BACKEND_CPU_VEC_H_
#define BRIM_BACKEND_CPU_VEC_H_

#include <string.h>

#include "backend/cpu/cpu_int.h"

// Compiles a function several times, for wider vectors too; the version is chosen when the plug-in is loaded
// (x86 with GCC; CMake asks the compiler). Clones are for CPU levels, as "avx512f" alone has neither FMA nor
// 16-bit vectors. Builds with sanitizers have no clones: their start-up code must not run in an ifunc
// resolver.
#if defined(BRIM_CPU_HAVE_CLONES)
#define BRIM_CPU_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BRIM_CPU_CLONES
#endif

// Functions called in the loops of a cloned function must be inlined. Not inlined, they would be compiled
// once, for the plainest CPU.
#define BRIM_CPU_INLINE static inline __attribute__((always_inline))

#define BRIM_CPU_BLOCK 512  // elements widened at a time: 2 KiB, three of them stay in L1

BRIM_CPU_INLINE uint32_t brim_cpu_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
BRIM_CPU_INLINE float brim_cpu_float(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

BRIM_CPU_INLINE float brim_cpu_from_bf16(uint16_t h) { return brim_cpu_float((uint32_t)h << 16); }
// Rounds to nearest even; a NaN stays a NaN.
BRIM_CPU_INLINE uint16_t brim_cpu_to_bf16(float x) {
  uint32_t u = brim_cpu_bits(x);
  uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u), quiet = u | 0x400000u;
  return (uint16_t)((x == x ? rounded : quiet) >> 16);
}

// Reads or writes one element of an f32 or bf16 array. If the type is a compile-time constant, a loop of
// these becomes vector code without a buffer.
BRIM_CPU_INLINE float brim_cpu_get(const void *data, brim_dtype type, int64_t i) {
  return type == BRIM_F32 ? ((const float *)data)[i]
                          : brim_cpu_from_bf16(((const uint16_t *)data)[i]);
}
BRIM_CPU_INLINE void brim_cpu_put(void *data, brim_dtype type, int64_t i, float x) {
  if (type == BRIM_F32) {
    ((float *)data)[i] = x;
  } else {
    ((uint16_t *)data)[i] = brim_cpu_to_bf16(x);
  }
}

// Returns n floats from element i of an f32 or bf16 array: the array itself, or `buffer` with widened values.
BRIM_CPU_INLINE const float *brim_cpu_read(const void *data, brim_dtype type, int64_t i, int64_t n,
                                           float *buffer) {
  if (type == BRIM_F32) return (const float *)data + i;
  const uint16_t *h = (const uint16_t *)data + i;
  for (int64_t j = 0; j < n; j++) buffer[j] = brim_cpu_from_bf16(h[j]);
  return buffer;
}

// Returns the place to put the floats for element i; brim_cpu_flush then converts them into the array (a
// no-op for f32).
BRIM_CPU_INLINE float *brim_cpu_write(void *data, brim_dtype type, int64_t i, float *buffer) {
  return type == BRIM_F32 ? (float *)data + i : buffer;
}
BRIM_CPU_INLINE void brim_cpu_flush(void *data, brim_dtype type, int64_t i, int64_t n,
                                    const float *buffer) {
  if (type == BRIM_F32) return;
  uint16_t *h = (uint16_t *)data + i;
  for (int64_t j = 0; j < n; j++) h[j] = brim_cpu_to_bf16(buffer[j]);
}

// e^x within 2 ulp; 0 below -87.3, inf above 88.7; a NaN stays a NaN.
BRIM_CPU_INLINE float brim_cpu_exp(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(t) in the low bits
  float c = x < -87.33f ? -87.33f : x;
  c = c > 88.72f ? 88.72f : c;
  float shifted = c * 1.44269504f + magic;
  float n = shifted - magic;
  float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors: n reaches 128, whose power alone would overflow.
  uint32_t k = brim_cpu_bits(shifted) - 0x4b400000u;
  uint32_t half = (uint32_t)((int32_t)k >> 1);
  float e = p * brim_cpu_float((half + 127u) << 23) * brim_cpu_float((k - half + 127u) << 23);
  e = x > 88.72f ? brim_cpu_float(0x7f800000u) : e;
  return x < -87.33f ? 0.0f : e;
}

// e^x for x <= 0 (or NaN), in fewer steps.
BRIM_CPU_INLINE float brim_cpu_exp_down(float x) {
  const float magic = 12582912.0f;
  float c = x < -87.33f ? -87.33f : x;
  float shifted = c * 1.44269504f + magic;
  float n = shifted - magic;
  float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // n is -126 at least, so that 2^n is a normal number.
  float e = p * brim_cpu_float((brim_cpu_bits(shifted) - 0x4b400000u + 127u) << 23);
  return x < -87.33f ? 0.0f : e;
}

BRIM_CPU_INLINE float brim_cpu_tanh(float x) {
  float a = x < 0 ? -x : x, z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  float small = p * z * x + x;
  float t = brim_cpu_exp_down(-2.0f * a);
  float large = (1.0f - t) / (1.0f + t);
  large = x < 0 ? -large : large;
  return a < 0.625f ? small : large;
}

// The upper tail of the normal distribution for a >= 0 (Abramowitz and Stegun 7.1.26, 1.5e-7). *density
// gets e^(-a^2/2), which the derivative needs too.
BRIM_CPU_INLINE float brim_cpu_tail(float a, float *density) {
  float z = a * 0.70710678f;
  float e = brim_cpu_exp_down(-z * z);
  float t = 1.0f / (1.0f + 0.3275911f * z);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  *density = e;
  return 0.5f * p * t * e;
}

BRIM_CPU_INLINE float brim_cpu_gelu(float x) {
  float e, tail = brim_cpu_tail(x < 0 ? -x : x, &e);
  return x < 0 ? x * tail : x * (1.0f - tail);
}

BRIM_CPU_INLINE float brim_cpu_gelu_slope(float x) {
  float e, tail = brim_cpu_tail(x < 0 ? -x : x, &e);
  return (x < 0 ? tail : 1.0f - tail) + x * e * 0.39894228f;
}

// y = act(x); y may be x. A NaN passes through.
void brim_cpu_act(brim_act act, const float *x, float *y, int64_t n);
// dx = dy * act'(saved); dx may be dy. `saved` is the s of ACT_BWD.
void brim_cpu_act_slope(brim_act act, const float *dy, const float *saved, float *dx, int64_t n);

#endif  // BRIM_BACKEND_CPU_VEC_H_
