// f32 kernels for 64-bit Arm: an 8 x 12 tile in 24 of the 32 vector registers, fed by five loads
// per step of k. Elsewhere an empty row, which brim_cpu_gemm_own does not choose.
#include "backend/cpu/cpu_int.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>

enum { MR = 8, NR = 12 };

// Four rows of src (k contiguous) into columns r..r+3 of the panel, four steps of k at a time.
static void pack_rows4(float *restrict dst, int width, const float *restrict src, int64_t ld,
                       int k) {
  const float *s0 = src, *s1 = src + ld, *s2 = src + 2 * ld, *s3 = src + 3 * ld;
  int i = 0;
  for (; i + 4 <= k; i += 4) {
    float32x4_t r0 = vld1q_f32(s0 + i), r1 = vld1q_f32(s1 + i);
    float32x4_t r2 = vld1q_f32(s2 + i), r3 = vld1q_f32(s3 + i);
    float64x2_t t0 = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1));
    float64x2_t t1 = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1));
    float64x2_t t2 = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3));
    float64x2_t t3 = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
    float *to = dst + (ptrdiff_t)i * width;
    vst1q_f32(to, vreinterpretq_f32_f64(vtrn1q_f64(t0, t2)));
    vst1q_f32(to + width, vreinterpretq_f32_f64(vtrn1q_f64(t1, t3)));
    vst1q_f32(to + 2 * width, vreinterpretq_f32_f64(vtrn2q_f64(t0, t2)));
    vst1q_f32(to + 3 * width, vreinterpretq_f32_f64(vtrn2q_f64(t1, t3)));
  }
  for (; i < k; i++) {
    float *to = dst + (ptrdiff_t)i * width;
    to[0] = s0[i], to[1] = s1[i], to[2] = s2[i], to[3] = s3[i];
  }
}

static void pack_f32(void *dst, int width, const void *src, int64_t ld, int rows, int k,
                     bool k_contiguous) {
  float *to = dst;
  const float *from = src;
  if (!k_contiguous) {
    for (int i = 0; i < k; i++, to += width, from += ld) {
      if (rows == MR) {
        memcpy(to, from, MR * sizeof *to);
        if (width > MR) memset(to + MR, 0, (NR - MR) * sizeof *to);
      } else if (rows == NR) {
        memcpy(to, from, NR * sizeof *to);
      } else {
        for (int r = 0; r < width; r++) to[r] = r < rows ? from[r] : 0.0f;
      }
    }
    return;
  }
  int r = 0;
  for (; r + 4 <= rows; r += 4) pack_rows4(to + r, width, from + r * ld, ld, k);
  for (; r < width; r++) {
    for (int i = 0; i < k; i++) to[i * width + r] = r < rows ? from[r * ld + i] : 0.0f;
  }
}

// One step of k: rows 2 * half .. of the tile against the three vectors of b.
#define ROW(r, a, lane)                            \
  c##r##0 = vfmaq_laneq_f32(c##r##0, b0, a, lane); \
  c##r##1 = vfmaq_laneq_f32(c##r##1, b1, a, lane); \
  c##r##2 = vfmaq_laneq_f32(c##r##2, b2, a, lane);
#define STEP(pa, pb)                                                                    \
  do {                                                                                  \
    float32x4_t a0 = vld1q_f32(pa), a1 = vld1q_f32((pa) + 4);                           \
    float32x4_t b0 = vld1q_f32(pb), b1 = vld1q_f32((pb) + 4), b2 = vld1q_f32((pb) + 8); \
    ROW(0, a0, 0)                                                                       \
    ROW(1, a0, 1)                                                                       \
    ROW(2, a0, 2) ROW(3, a0, 3) ROW(4, a1, 0) ROW(5, a1, 1) ROW(6, a1, 2) ROW(7, a1, 3) \
  } while (0)
#define ZERO(r) float32x4_t c##r##0 = vdupq_n_f32(0), c##r##1 = c##r##0, c##r##2 = c##r##0;
#define STORE(r)                         \
  vst1q_f32(tile + (r)*NR, c##r##0);     \
  vst1q_f32(tile + (r)*NR + 4, c##r##1); \
  vst1q_f32(tile + (r)*NR + 8, c##r##2);

static void tile_f32(int64_t groups, const void *a, const void *b, float *tile) {
  const float *pa = a, *pb = b;
  ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) int64_t i = groups;
  for (; i >= 4; i -= 4, pa += 4 * MR, pb += 4 * NR) {
    __builtin_prefetch(pa + 32 * MR);
    __builtin_prefetch(pa + 34 * MR);
    STEP(pa, pb);
    STEP(pa + MR, pb + NR);
    STEP(pa + 2 * MR, pb + 2 * NR);
    STEP(pa + 3 * MR, pb + 3 * NR);
  }
  for (; i > 0; i--, pa += MR, pb += NR) STEP(pa, pb);
  STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5) STORE(6) STORE(7)
}

// kc and mc measured on Neoverse-V1 (64 KiB L1d, 1 MiB L2): docs/performance/cpu-gemm.md.
const brim_cpu_kernel brim_cpu_kernel_neon_f32 = {
    .name = "neon 8x12",
    .mr = MR,
    .nr = NR,
    .kg = 1,
    .kc = 512,
    .mc = 128,
    .pack_bytes = sizeof(float),
    .pack = pack_f32,
    .tile = tile_f32,
};
#else
const brim_cpu_kernel brim_cpu_kernel_neon_f32 = {.name = "neon 8x12"};
#endif
