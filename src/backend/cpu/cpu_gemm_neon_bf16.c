// bf16 kernels for 64-bit Arm with BFMMLA (2x4 by 4x2 products into f32): an 8 x 12 tile in 24
// registers of 2 x 2 sums. Compiled with +bf16, chosen only where the CPU says it has it. Elsewhere
// an empty row.
#include "backend/cpu/cpu_int.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#include <string.h>

enum { MR = 8, NR = 12, KG = 4 };

// k contiguous: each row gives four values at a time, one 8-byte move per group.
static void pack_k(uint16_t *restrict dst, int width, const uint16_t *restrict src, int64_t ld,
                   int rows, int k) {
  int groups = k / KG, tail = k % KG;
  for (int r = 0; r < width; r++) {
    uint16_t *to = dst + r * KG;
    const uint16_t *from = src + r * ld;
    if (r >= rows) {
      for (int i = 0; i < groups + (tail != 0); i++, to += width * KG) memset(to, 0, 8);
      continue;
    }
    for (int i = 0; i < groups; i++, to += width * KG, from += KG) memcpy(to, from, 8);
    if (tail) {
      memset(to, 0, 8);
      memcpy(to, from, (size_t)tail * sizeof *to);
    }
  }
}

// Rows contiguous: four steps of k are interleaved.
static void pack_group(uint16_t *restrict to, int width, const uint16_t *restrict src, int64_t ld,
                       int rows, int steps) {
  int r = 0;
  if (steps == KG) {
    for (; r + 4 <= rows; r += 4) {
      uint16x4_t s0 = vld1_u16(src + r), s1 = vld1_u16(src + ld + r);
      uint16x4_t s2 = vld1_u16(src + 2 * ld + r), s3 = vld1_u16(src + 3 * ld + r);
      uint16x4x4_t four = {{s0, s1, s2, s3}};
      vst4_u16(to + r * KG, four);
    }
  }
  for (; r < width; r++) {
    for (int i = 0; i < KG; i++) {
      to[r * KG + i] = r < rows && i < steps ? src[i * ld + r] : (uint16_t)0;
    }
  }
}

static void pack_bf16(void *dst, int width, const void *src, int64_t ld, int rows, int k,
                      bool k_contiguous) {
  uint16_t *to = dst;
  const uint16_t *from = src;
  if (k_contiguous) {
    pack_k(to, width, from, ld, rows, k);
    return;
  }
  for (int i = 0; i < k; i += KG, to += width * KG, from += KG * ld) {
    pack_group(to, width, from, ld, rows, k - i < KG ? k - i : KG);
  }
}

static inline bfloat16x8_t load8(const uint16_t *p) { return vreinterpretq_bf16_u16(vld1q_u16(p)); }

// cRC holds rows 2R, 2R+1 and columns 2C, 2C+1 of the tile.
#define COLUMN(c, b)                     \
  do {                                   \
    bfloat16x8_t bc = load8(b);          \
    c0##c = vbfmmlaq_f32(c0##c, a0, bc); \
    c1##c = vbfmmlaq_f32(c1##c, a1, bc); \
    c2##c = vbfmmlaq_f32(c2##c, a2, bc); \
    c3##c = vbfmmlaq_f32(c3##c, a3, bc); \
  } while (0)
#define STEP(pa, pb)                                           \
  do {                                                         \
    bfloat16x8_t a0 = load8(pa), a1 = load8((pa) + 8);         \
    bfloat16x8_t a2 = load8((pa) + 16), a3 = load8((pa) + 24); \
    COLUMN(0, pb);                                             \
    COLUMN(1, (pb) + 8);                                       \
    COLUMN(2, (pb) + 16);                                      \
    COLUMN(3, (pb) + 24);                                      \
    COLUMN(4, (pb) + 32);                                      \
    COLUMN(5, (pb) + 40);                                      \
  } while (0)
#define ZERO(r)                                                                                  \
  float32x4_t c##r##0 = vdupq_n_f32(0), c##r##1 = c##r##0, c##r##2 = c##r##0, c##r##3 = c##r##0, \
              c##r##4 = c##r##0, c##r##5 = c##r##0;
// Two 2 x 2 blocks side by side are four columns of two rows.
#define PAIR(r, c, x, y)                                                                 \
  do {                                                                                   \
    float64x2_t u = vreinterpretq_f64_f32(x), v = vreinterpretq_f64_f32(y);              \
    vst1q_f32(tile + 2 * (r)*NR + (c), vreinterpretq_f32_f64(vtrn1q_f64(u, v)));         \
    vst1q_f32(tile + (2 * (r) + 1) * NR + (c), vreinterpretq_f32_f64(vtrn2q_f64(u, v))); \
  } while (0)
#define STORE(r)                \
  PAIR(r, 0, c##r##0, c##r##1); \
  PAIR(r, 4, c##r##2, c##r##3); \
  PAIR(r, 8, c##r##4, c##r##5);

static void tile_bf16(int64_t groups, const void *a, const void *b, float *tile) {
  const uint16_t *pa = a, *pb = b;
  ZERO(0) ZERO(1) ZERO(2) ZERO(3) int64_t i = groups;
  for (; i >= 2; i -= 2, pa += 2 * MR * KG, pb += 2 * NR * KG) {
    __builtin_prefetch(pa + 16 * MR * KG);
    __builtin_prefetch(pa + 17 * MR * KG);
    STEP(pa, pb);
    STEP(pa + MR * KG, pb + NR * KG);
  }
  if (i) STEP(pa, pb);
  STORE(0) STORE(1) STORE(2) STORE(3)
}

// kc and mc measured on Neoverse-V1 (64 KiB L1d, 1 MiB L2): docs/performance/cpu-gemm.md.
const brim_cpu_kernel brim_cpu_kernel_neon_bf16 = {
    .name = "neon bfmmla 8x12",
    .mr = MR,
    .nr = NR,
    .kg = KG,
    .kc = 1024,
    .mc = 128,
    .pack_bytes = sizeof(uint16_t),
    .pack = pack_bf16,
    .tile = tile_bf16,
};
#else
const brim_cpu_kernel brim_cpu_kernel_neon_bf16 = {.name = "neon bfmmla 8x12"};
#endif
