// Vectors of QUAD_LANES floats for the quadruped, by the vector extension of GCC and clang (4 for NEON
// and SSE, 8 for AVX2, 16 for AVX-512; a file may define QUAD_LANES before it includes this).
// Comparing two gives -1 or 0 per element.
#ifndef BRIM_QUADRUPED_VECTOR_H_
#define BRIM_QUADRUPED_VECTOR_H_

#include <stdint.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <immintrin.h>
#endif

#ifndef QUAD_LANES
#if defined(__AVX512F__)
#define QUAD_LANES 16
#elif defined(__AVX2__)
#define QUAD_LANES 8
#else
#define QUAD_LANES 4
#endif
#endif

typedef float brim_vf __attribute__((vector_size(4 * QUAD_LANES)));
typedef int32_t brim_vi __attribute__((vector_size(4 * QUAD_LANES)));

static inline brim_vf brim_vf_set(float x) { return (brim_vf){0} + x; }

static inline brim_vf brim_vf_select(brim_vi mask, brim_vf a, brim_vf b) {
  return (brim_vf)((mask & (brim_vi)a) | (~mask & (brim_vi)b));
}

static inline int brim_vi_any(brim_vi mask) {
  uint64_t part[QUAD_LANES / 2], all = 0;
  memcpy(part, &mask, sizeof(mask));
  for (int i = 0; i < QUAD_LANES / 2; i++) all |= part[i];
  return all != 0;
}

// One rounding where the processor has it in hardware; two elsewhere.
static inline brim_vf brim_vf_fma(brim_vf a, brim_vf b, brim_vf c) {
#if defined(__aarch64__) && QUAD_LANES == 4
  return (brim_vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(__AVX512F__) && QUAD_LANES == 16
  return (brim_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__) && QUAD_LANES == 8
  return (brim_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FMA__) && QUAD_LANES == 4
  return (brim_vf)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#else
  return a * b + c;
#endif
}

static inline brim_vf brim_vf_sqrt(brim_vf x) {
#if defined(__aarch64__) && QUAD_LANES == 4
  return (brim_vf)vsqrtq_f32((float32x4_t)x);
#elif defined(__AVX512F__) && QUAD_LANES == 16
  return (brim_vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__) && QUAD_LANES == 8
  return (brim_vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__) && QUAD_LANES == 4
  return (brim_vf)_mm_sqrt_ps((__m128)x);
#else
  for (int i = 0; i < QUAD_LANES; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

#endif  // BRIM_QUADRUPED_VECTOR_H_
