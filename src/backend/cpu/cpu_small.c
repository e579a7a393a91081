// Products of small f32 matrices that are in cache, on the calling thread, without packing, for attention,
// narrow layers and NT-Xent. One macro makes the tile for each width of vectors. It uses the compiler's
// vector types, as some compilers keep an array of sums in memory. The CPU decides which tile is used, once
// per product.
#include "backend/cpu/cpu_int.h"

typedef void (*tile_fn)(const brim_cpu_small *s, const float *a, const float *b, float *c);

// NV vectors of type V make BRIM_CPU_SMALL_COLS columns; ROWS rows of sums stay in registers. The body
// must be in the function itself: an inlined function would be compiled for the plainest CPU.
#define DEFINE_TILE(NAME, TARGET, V, NV, ROWS)                                                   \
  TARGET static void NAME(const brim_cpu_small *s, const float *a, const float *b, float *c) {   \
    int64_t k = s->k, a_row = s->a_row, a_step = s->a_step, b_ld = s->b_ld, c_ld = s->c_ld;      \
    V sum[ROWS][NV];                                                                             \
    if (s->add) {                                                                                \
      for (int r = 0; r < (ROWS); r++) {                                                         \
        for (int v = 0; v < (NV); v++) sum[r][v] = ((const V *)(const void *)(c + r * c_ld))[v]; \
      }                                                                                          \
    } else {                                                                                     \
      for (int r = 0; r < (ROWS); r++) {                                                         \
        for (int v = 0; v < (NV); v++) sum[r][v] = (V){0};                                       \
      }                                                                                          \
    }                                                                                            \
    for (int64_t p = 0; p < k; p++, a += a_step, b += b_ld) {                                    \
      V right[NV];                                                                               \
      for (int v = 0; v < (NV); v++) right[v] = ((const V *)(const void *)b)[v];                 \
      for (int r = 0; r < (ROWS); r++) {                                                         \
        float left = a[r * a_row];                                                               \
        for (int v = 0; v < (NV); v++) sum[r][v] += right[v] * left;                             \
      }                                                                                          \
    }                                                                                            \
    for (int r = 0; r < (ROWS); r++) {                                                           \
      for (int v = 0; v < (NV); v++) ((V *)(void *)(c + r * c_ld))[v] = sum[r][v];               \
    }                                                                                            \
  }

#define VECTOR(bytes) __attribute__((vector_size(bytes), aligned(4), may_alias))
typedef float vector4 VECTOR(16);

DEFINE_TILE(tile_4, , vector4, 4, 4)
DEFINE_TILE(tile_1, , vector4, 4, 1)

#if defined(__x86_64__)
typedef float vector8 VECTOR(32);
typedef float vector16 VECTOR(64);
DEFINE_TILE(tile_avx2_6, __attribute__((target("avx2,fma"))), vector8, 2, 6)
DEFINE_TILE(tile_avx2_1, __attribute__((target("avx2,fma"))), vector8, 2, 1)
DEFINE_TILE(tile_avx512_12, __attribute__((target("avx512f"))), vector16, 1, 12)
DEFINE_TILE(tile_avx512_4, __attribute__((target("avx512f"))), vector16, 1, 4)
DEFINE_TILE(tile_avx512_1, __attribute__((target("avx512f"))), vector16, 1, 1)
#endif

// Tiles of decreasing height; the last is one row high.
typedef struct tile_set {
  int rows[3];
  tile_fn tile[3];
} tile_set;

static const tile_set *choose(void) {
  static const tile_set plain = {{4, 4, 1}, {tile_4, tile_4, tile_1}};
#if defined(__x86_64__)
  static const tile_set avx2 = {{6, 6, 1}, {tile_avx2_6, tile_avx2_6, tile_avx2_1}};
  static const tile_set avx512 = {{12, 4, 1}, {tile_avx512_12, tile_avx512_4, tile_avx512_1}};
  __builtin_cpu_init();
  const unsigned masked = brim_cpu_masked();
  if (!(masked & BRIM_CPU_MASK_AVX512) && __builtin_cpu_supports("avx512f")) return &avx512;
  if (!(masked & BRIM_CPU_MASK_AVX2) && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma")) {
    return &avx2;
  }
#endif
  return &plain;
}

void brim_cpu_small_run(const brim_cpu_small *s) {
  const tile_set *set = choose();
  // A panel of B's columns stays in L1 while A passes by.
  for (int64_t j = 0; j < s->n; j += BRIM_CPU_SMALL_COLS) {
    int64_t i = 0;
    for (int t = 0; t < 3; t++) {
      for (; i + set->rows[t] <= s->m; i += set->rows[t]) {
        set->tile[t](s, s->a + i * s->a_row, s->b + j, s->c + i * s->c_ld + j);
      }
    }
  }
}
