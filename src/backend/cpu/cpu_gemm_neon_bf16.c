// bf16 kernels for 64-bit Arm with BFMMLA (2x4 by 4x2 products into f32): an 8 x 12 tile in 24
// registers of 2 x 2 sums. Compiled with +bf16, chosen only where the CPU has it. On other machines
// brim_cpu_kernel_neon_bf16 is empty and never chosen.
#include "backend/cpu/cpu_int.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#include <string.h>

enum { MR = 8, NR = 12, KG = 4 };

// Packs a row whose k is contiguous: four values at a time, one 8-byte move per group. NULL is a row of 0.
static void pack_row(uint16_t *restrict to, int width, const uint16_t *restrict from, int k) {
  int groups = k / KG, tail = k % KG;
  if (!from) {
    for (int i = 0; i < groups + (tail != 0); i++, to += width * KG) memset(to, 0, 8);
    return;
  }
  for (int i = 0; i < groups; i++, to += width * KG, from += KG) memcpy(to, from, 8);
  if (tail) {
    memset(to, 0, 8);
    memcpy(to, from, (size_t)tail * sizeof *to);
  }
}

// Packs contiguous rows: interleaves four steps of k. If `steps` is less than four, zeros follow.
static void pack_group(uint16_t *restrict to, int width, const uint16_t *const *src, int rows,
                       int steps) {
  int r = 0;
  if (steps == KG) {
    for (; r + 4 <= rows; r += 4) {
      uint16x4x4_t four = {
          {vld1_u16(src[0] + r), vld1_u16(src[1] + r), vld1_u16(src[2] + r), vld1_u16(src[3] + r)}};
      vst4_u16(to + r * KG, four);
    }
  }
  for (; r < width; r++) {
    for (int i = 0; i < KG; i++) {
      to[r * KG + i] = r < rows && i < steps ? src[i][r] : (uint16_t)0;
    }
  }
}

static void gather_bf16(void *dst, int width, const void *const *at, size_t offset, int rows, int k,
                        bool k_contiguous) {
  uint16_t *to = dst;
  if (k_contiguous) {
    for (int r = 0; r < width; r++) {
      const char *row = r < rows ? (const char *)at[r] + offset : NULL;
      pack_row(to + r * KG, width, (const uint16_t *)(const void *)row, k);
    }
    return;
  }
  for (int i = 0; i < k; i += KG, to += width * KG) {
    int steps = k - i < KG ? k - i : KG;
    const uint16_t *src[KG] = {0};
    for (int j = 0; j < steps; j++) {
      src[j] = (const uint16_t *)(const void *)((const char *)at[i + j] + offset);
    }
    pack_group(to, width, src, rows, steps);
  }
}

static void pack_bf16(void *dst, int width, const void *src, int64_t ld, int rows, int k,
                      bool k_contiguous) {
  uint16_t *to = dst;
  const uint16_t *from = src;
  if (k_contiguous) {
    for (int r = 0; r < width; r++) {
      pack_row(to + r * KG, width, r < rows ? from + r * ld : NULL, k);
    }
    return;
  }
  for (int i = 0; i < k; i += KG, to += width * KG, from += KG * ld) {
    const uint16_t *four[KG] = {from, from + ld, from + 2 * ld, from + 3 * ld};
    pack_group(to, width, four, rows, k - i < KG ? k - i : KG);
  }
}

// Assembly for the reason given in cpu_gemm_neon.c (GCC 12: 135 GFLOP/s a core against 302).
// Sums of rows 2r, 2r + 1 and columns 2c, 2c + 1 are in v(8 + 6r + c); a step's A is v0-v3.
#define COLUMN(b, r0, r1, r2, r3)   \
  "bfmmla v" #r0 ".4s, v0.8h, v" #b \
  ".8h\n"                           \
  "bfmmla v" #r1 ".4s, v1.8h, v" #b \
  ".8h\n"                           \
  "bfmmla v" #r2 ".4s, v2.8h, v" #b \
  ".8h\n"                           \
  "bfmmla v" #r3 ".4s, v3.8h, v" #b ".8h\n"
// One group of k: the i-th group after the pointers. The pointers move once per loop, as post-increments
// cost 8 %.
#define STEP                                                                                      \
  "ldp q0, q1, [%[a], #(\\i * 64)]\n ldp q2, q3, [%[a], #(\\i * 64 + 32)]\n"                      \
  "ldp q4, q5, [%[b], #(\\i * 96)]\n ldp q6, q7, [%[b], #(\\i * 96 + 32)]\n" COLUMN(4, 8, 14, 20, \
                                                                                    26)           \
      COLUMN(5, 9, 15, 21, 27) "ldp q4, q5, [%[b], #(\\i * 96 + 64)]\n" COLUMN(6, 10, 16, 22, 28) \
          COLUMN(7, 11, 17, 23, 29) COLUMN(4, 12, 18, 24, 30) COLUMN(5, 13, 19, 25, 31)
#define ZERO4(r0, r1, r2, r3) \
  "movi v" #r0 ".4s, #0\n movi v" #r1 ".4s, #0\n movi v" #r2 ".4s, #0\n movi v" #r3 ".4s, #0\n"
// Two 2 x 2 blocks side by side are four columns of two rows; rows are 48 bytes apart.
#define PAIR(x, y, at)                                                \
  "trn1 v0.2d, v" #x ".2d, v" #y ".2d\n trn2 v1.2d, v" #x ".2d, v" #y \
  ".2d\n"                                                             \
  "str q0, [%[c], #" #at "]\n str q1, [%[c], #" #at " + 48]\n"

static void tile_bf16(int64_t groups, const void *a, const void *b, float *tile) {
  // clang-format off
  __asm__ volatile(
      ZERO4(8, 9, 10, 11) ZERO4(12, 13, 14, 15) ZERO4(16, 17, 18, 19)
      ZERO4(20, 21, 22, 23) ZERO4(24, 25, 26, 27) ZERO4(28, 29, 30, 31)
      "subs %[n], %[n], #4\n"
      "b.lt 2f\n"
      ".p2align 5\n"
      "1:\n"
      ".irp i, 0, 1, 2, 3\n"
      STEP
      ".endr\n"
      "add %[a], %[a], #256\n"
      "add %[b], %[b], #384\n"
      "subs %[n], %[n], #4\n"
      "b.ge 1b\n"
      "2:\n"
      "adds %[n], %[n], #4\n"
      "b.eq 4f\n"
      "3:\n"
      ".irp i, 0\n"
      STEP
      ".endr\n"
      "add %[a], %[a], #64\n"
      "add %[b], %[b], #96\n"
      "subs %[n], %[n], #1\n"
      "b.gt 3b\n"
      "4:\n"
      PAIR(8, 9, 0) PAIR(10, 11, 16) PAIR(12, 13, 32)
      PAIR(14, 15, 96) PAIR(16, 17, 112) PAIR(18, 19, 128)
      PAIR(20, 21, 192) PAIR(22, 23, 208) PAIR(24, 25, 224)
      PAIR(26, 27, 288) PAIR(28, 29, 304) PAIR(30, 31, 320)
      : [n] "+r"(groups), [a] "+r"(a), [b] "+r"(b)
      : [c] "r"(tile)
      : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",
        "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
        "v25", "v26", "v27", "v28", "v29", "v30", "v31");
  // clang-format on
}

static inline float32x4_t widen4(const uint16_t *p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

static void finish_bf16(const float *tile, const brim_cpu_finish *how) {
  const uint16_t *s = how->s, *bias = how->bias;
  float32x4_t zero = vdupq_n_f32(0), add[3] = {zero, zero, zero};
  for (int j = 0; bias && j < 3; j++) add[j] = widen4(bias + 4 * j);
  for (int i = 0; i < MR; i++, tile += NR) {
    for (int j = 0; j < 3; j++) {
      int64_t at = i * how->ld + 4 * j;
      float32x4_t v = vaddq_f32(vld1q_f32(tile + 4 * j), add[j]);
      if (how->relu) v = vmaxq_f32(v, zero);
      if (s) {
        uint32x4_t keep = vcgtzq_f32(widen4(s + at));
        v = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), keep));
      }
      if (how->c_f32) {
        vst1q_f32((float *)how->c + at, v);
      } else {
        vst1_u16((uint16_t *)how->c + at, vreinterpret_u16_bf16(vcvt_bf16_f32(v)));
      }
    }
  }
}

// kc and mc were measured on Neoverse-V1 (64 KiB L1d, 1 MiB L2): docs/performance/cpu-gemm.md.
const brim_cpu_kernel brim_cpu_kernel_neon_bf16 = {
    .name = "neon bfmmla 8x12",
    .mr = MR,
    .nr = NR,
    .kg = KG,
    .kc = 1024,
    .mc = 128,
    .pack_bytes = sizeof(uint16_t),
    .pack = pack_bf16,
    .gather = gather_bf16,
    .tile = tile_bf16,
    .finish = finish_bf16,
};
#else
const brim_cpu_kernel brim_cpu_kernel_neon_bf16 = {.name = "neon bfmmla 8x12"};
#endif
