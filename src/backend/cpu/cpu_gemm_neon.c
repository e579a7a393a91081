// f32 kernels for 64-bit Arm: an 8 x 12 tile in 24 of the 32 vector registers, fed by five loads
// per step of k. On other machines brim_cpu_kernel_neon_f32 is empty and never chosen.
#include "backend/cpu/cpu_int.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>

enum { MR = 8, NR = 12 };

// Transposes four rows (k contiguous) into columns of the panel, four steps of k at a time.
static void pack_rows4(float *restrict dst, int width, const float *s0, const float *s1,
                       const float *s2, const float *s3, int k) {
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
  for (; r + 4 <= rows; r += 4) {
    const float *s0 = from + r * ld;
    pack_rows4(to + r, width, s0, s0 + ld, s0 + 2 * ld, s0 + 3 * ld, k);
  }
  for (; r < width; r++) {
    for (int i = 0; i < k; i++) to[i * width + r] = r < rows ? from[r * ld + i] : 0.0f;
  }
}

static const float *place(const void *const *at, int i, size_t offset) {
  return (const float *)(const void *)((const char *)at[i] + offset);
}

static void gather_f32(void *dst, int width, const void *const *at, size_t offset, int rows, int k,
                       bool k_contiguous) {
  float *to = dst;
  if (!k_contiguous) {
    for (int i = 0; i < k; i++, to += width) {
      const float *from = place(at, i, offset);
      if (rows == MR && width == MR) {
        memcpy(to, from, MR * sizeof *to);
      } else {
        for (int r = 0; r < width; r++) to[r] = r < rows ? from[r] : 0.0f;
      }
    }
    return;
  }
  int r = 0;
  for (; r + 4 <= rows; r += 4) {
    pack_rows4(to + r, width, place(at, r, offset), place(at, r + 1, offset),
               place(at, r + 2, offset), place(at, r + 3, offset), k);
  }
  for (; r < width; r++) {
    const float *from = r < rows ? place(at, r, offset) : NULL;
    for (int i = 0; i < k; i++) to[i * width + r] = from ? from[i] : 0.0f;
  }
}

// Assembly, because compilers' schedules are less than half as fast. GCC 12 spills two of the 24 sums in
// every step of k: 50 GFLOP/s on a Neoverse-V1 core against 82 of 83. Sums of row r are in v(8 + 3r) and the
// two registers after it. Loads run one step ahead: A in v0-v1, B in v2-v4 and v5-v7 by turns. An odd last
// step finds its operands already there.
#define FMLA4(b, a, r0, r1, r2, r3)    \
  "fmla v" #r0 ".4s, v" #b ".4s, v" #a \
  ".s[0]\n"                            \
  "fmla v" #r1 ".4s, v" #b ".4s, v" #a \
  ".s[1]\n"                            \
  "fmla v" #r2 ".4s, v" #b ".4s, v" #a \
  ".s[2]\n"                            \
  "fmla v" #r3 ".4s, v" #b ".4s, v" #a ".s[3]\n"
#define ZERO4(r0, r1, r2, r3) \
  "movi v" #r0 ".4s, #0\n movi v" #r1 ".4s, #0\n movi v" #r2 ".4s, #0\n movi v" #r3 ".4s, #0\n"

static void tile_f32(int64_t groups, const void *a, const void *b, float *tile) {
  // clang-format off
  __asm__ volatile(
      ZERO4(8, 9, 10, 11) ZERO4(12, 13, 14, 15) ZERO4(16, 17, 18, 19)
      ZERO4(20, 21, 22, 23) ZERO4(24, 25, 26, 27) ZERO4(28, 29, 30, 31)
      "ldp q0, q1, [%[a]], #32\n"
      "ldp q2, q3, [%[b]]\n"
      "ldr q4, [%[b], #32]\n"
      "subs %[n], %[n], #2\n"
      "b.lt 2f\n"
      ".p2align 5\n"
      "1:\n"
      FMLA4(2, 0, 8, 11, 14, 17)
      "ldr q5, [%[b], #48]\n"
      FMLA4(3, 0, 9, 12, 15, 18)
      "ldr q6, [%[b], #64]\n"
      "prfm pldl1keep, [%[a], #1024]\n"
      FMLA4(4, 0, 10, 13, 16, 19)
      "ldr q0, [%[a]]\n"
      FMLA4(2, 1, 20, 23, 26, 29)
      "ldr q7, [%[b], #80]\n"
      FMLA4(3, 1, 21, 24, 27, 30)
      FMLA4(4, 1, 22, 25, 28, 31)
      "ldr q1, [%[a], #16]\n"
      FMLA4(5, 0, 8, 11, 14, 17)
      "ldr q2, [%[b], #96]\n"
      FMLA4(6, 0, 9, 12, 15, 18)
      "ldr q3, [%[b], #112]\n"
      FMLA4(7, 0, 10, 13, 16, 19)
      "ldr q0, [%[a], #32]\n"
      FMLA4(5, 1, 20, 23, 26, 29)
      "ldr q4, [%[b], #128]\n"
      FMLA4(6, 1, 21, 24, 27, 30)
      FMLA4(7, 1, 22, 25, 28, 31)
      "ldr q1, [%[a], #48]\n"
      "add %[a], %[a], #64\n"
      "add %[b], %[b], #96\n"
      "subs %[n], %[n], #2\n"
      "b.ge 1b\n"
      "2:\n"
      "tbz %[n], #0, 3f\n"
      FMLA4(2, 0, 8, 11, 14, 17) FMLA4(3, 0, 9, 12, 15, 18)
      FMLA4(4, 0, 10, 13, 16, 19) FMLA4(2, 1, 20, 23, 26, 29)
      FMLA4(3, 1, 21, 24, 27, 30) FMLA4(4, 1, 22, 25, 28, 31)
      "3:\n"
      "stp q8, q9, [%[c]]\n stp q10, q11, [%[c], #32]\n stp q12, q13, [%[c], #64]\n"
      "stp q14, q15, [%[c], #96]\n stp q16, q17, [%[c], #128]\n stp q18, q19, [%[c], #160]\n"
      "stp q20, q21, [%[c], #192]\n stp q22, q23, [%[c], #224]\n stp q24, q25, [%[c], #256]\n"
      "stp q26, q27, [%[c], #288]\n stp q28, q29, [%[c], #320]\n stp q30, q31, [%[c], #352]\n"
      : [n] "+r"(groups), [a] "+r"(a), [b] "+r"(b)
      : [c] "r"(tile)
      : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",
        "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
        "v25", "v26", "v27", "v28", "v29", "v30", "v31");
  // clang-format on
}

static void finish_f32(const float *tile, const brim_cpu_finish *how) {
  float *c = how->c;
  const float *s = how->s, *bias = how->bias;
  float32x4_t zero = vdupq_n_f32(0), add[3] = {zero, zero, zero};
  for (int j = 0; bias && j < 3; j++) add[j] = vld1q_f32(bias + 4 * j);
  for (int i = 0; i < MR; i++, c += how->ld, tile += NR) {
    for (int j = 0; j < 3; j++) {
      float32x4_t v = vaddq_f32(vld1q_f32(tile + 4 * j), add[j]);
      if (how->relu) v = vmaxq_f32(v, zero);
      if (s) {
        uint32x4_t keep = vcgtzq_f32(vld1q_f32(s + 4 * j));
        v = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), keep));
      }
      vst1q_f32(c + 4 * j, v);
    }
    if (s) s += how->ld;
  }
}

// kc and mc were measured on Neoverse-V1 (64 KiB L1d, 1 MiB L2): docs/performance/cpu-gemm.md.
const brim_cpu_kernel brim_cpu_kernel_neon_f32 = {
    .name = "neon 8x12",
    .mr = MR,
    .nr = NR,
    .kg = 1,
    .kc = 512,
    .mc = 128,
    .pack_bytes = sizeof(float),
    .pack = pack_f32,
    .gather = gather_f32,
    .tile = tile_f32,
    .finish = finish_f32,
};
#else
const brim_cpu_kernel brim_cpu_kernel_neon_f32 = {.name = "neon 8x12"};
#endif
