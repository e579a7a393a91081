// Kernels in plain C for every machine: 4 x 16 floats, which any compiler puts into vectors. bf16
// is widened to f32 while packing, so it works everywhere at the speed of f32.
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

enum { MR = 4, NR = 16 };

static void pack_f32(void *dst, int width, const void *src, int64_t ld, int rows, int k,
                     bool k_contiguous) {
  float *to = dst;
  const float *from = src;
  int64_t row_step = k_contiguous ? ld : 1, k_step = k_contiguous ? 1 : ld;
  for (int i = 0; i < k; i++) {
    for (int r = 0; r < width; r++) {
      to[i * width + r] = r < rows ? from[r * row_step + i * k_step] : 0.0f;
    }
  }
}

static void pack_bf16(void *dst, int width, const void *src, int64_t ld, int rows, int k,
                      bool k_contiguous) {
  float *to = dst;
  const uint16_t *from = src;
  int64_t row_step = k_contiguous ? ld : 1, k_step = k_contiguous ? 1 : ld;
  for (int i = 0; i < k; i++) {
    for (int r = 0; r < width; r++) {
      to[i * width + r] = r < rows ? brim_cpu_from_bf16(from[r * row_step + i * k_step]) : 0.0f;
    }
  }
}

// One row of a panel <- k floats; NULL is a row of 0.
static void put_row(float *restrict to, int width, const float *restrict from, int k) {
  for (int i = 0; i < k; i++) to[i * width] = from ? from[i] : 0.0f;
}

static void gather_f32(void *dst, int width, const void *const *at, size_t offset, int rows, int k,
                       bool k_contiguous) {
  float *to = dst;
  for (int r = 0; k_contiguous && r < width; r++) {
    const char *from = r < rows ? (const char *)at[r] + offset : NULL;
    put_row(to + r, width, (const float *)(const void *)from, k);
  }
  for (int i = 0; !k_contiguous && i < k; i++, to += width) {
    memset(to, 0, (size_t)width * sizeof *to);
    memcpy(to, (const char *)at[i] + offset, (size_t)rows * sizeof *to);
  }
}

static void gather_bf16(void *dst, int width, const void *const *at, size_t offset, int rows, int k,
                        bool k_contiguous) {
  float *to = dst, wide[BRIM_CPU_BLOCK];
  for (int r = 0; k_contiguous && r < width; r++) {
    const char *from = r < rows ? (const char *)at[r] + offset : NULL;
    for (int i = 0; i < k; i += BRIM_CPU_BLOCK) {
      int n = k - i < BRIM_CPU_BLOCK ? k - i : BRIM_CPU_BLOCK;
      const float *row = from ? brim_cpu_read(from, BRIM_BF16, i, n, wide) : NULL;
      put_row(to + i * width + r, width, row, n);
    }
  }
  for (int i = 0; !k_contiguous && i < k; i++, to += width) {
    const uint16_t *from = (const uint16_t *)(const void *)((const char *)at[i] + offset);
    for (int r = 0; r < width; r++) to[r] = r < rows ? brim_cpu_from_bf16(from[r]) : 0.0f;
  }
}

BRIM_CPU_CLONES static void tile_f32(int64_t groups, const void *a, const void *b, float *tile) {
  const float *pa = a, *pb = b;
  float acc[MR][NR] = {{0}};
  for (int64_t i = 0; i < groups; i++, pa += MR, pb += NR) {
    for (int r = 0; r < MR; r++) {
      for (int c = 0; c < NR; c++) acc[r][c] += pa[r] * pb[c];
    }
  }
  memcpy(tile, acc, sizeof acc);
}

const brim_cpu_kernel brim_cpu_kernel_portable_f32 = {
    .name = "portable",
    .mr = MR,
    .nr = NR,
    .kg = 1,
    .kc = 384,
    .mc = 128,
    .pack_bytes = sizeof(float),
    .pack = pack_f32,
    .gather = gather_f32,
    .tile = tile_f32,
};

const brim_cpu_kernel brim_cpu_kernel_portable_bf16 = {
    .name = "portable, widened to f32",
    .mr = MR,
    .nr = NR,
    .kg = 1,
    .kc = 384,
    .mc = 128,
    .pack_bytes = sizeof(float),
    .pack = pack_bf16,
    .gather = gather_bf16,
    .tile = tile_f32,
};
