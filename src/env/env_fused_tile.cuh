// Products of tiles in shared memory on tensor cores, for kernels that keep a network on the chip: bf16 numbers
// with f32 sums. A tile of activations has M rows of H numbers; 8 warps divide it into pieces of 32 rows and
// some columns. Rows in shared memory lie 8 numbers more apart than they are
// long, so that ldmatrix meets no bank twice.
#ifndef BRIM_ENV_FUSED_TILE_CUH_
#define BRIM_ENV_FUSED_TILE_CUH_

#include "backend/backend.h"
#include "backend/backend_mma.cuh"

typedef __nv_bfloat16 fused_half;

enum {
  FUSED_WARPS = 8,
  FUSED_THREADS = 32 * FUSED_WARPS,
  FUSED_OUT = 16,  // columns of the last layer, padding included
  FUSED_GAP = 8
};

// Where a warp's piece of a tile of M x H begins, and how many columns it has.
template <int M, int H>
struct fused_piece {
  enum { DOWN = M / 32, ACROSS = FUSED_WARPS / DOWN, N = H / ACROSS, TILES = N / 8 };
  int row, column;
  __device__ fused_piece(int warp) : row(warp % DOWN * 32), column(warp / DOWN * N) {}
};

// Sums of 32 rows and 8 * TILES columns.
template <int TILES>
struct fused_sums {
  float at[2][TILES][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int n = 0; n < TILES; n++) {
#pragma unroll
        for (int k = 0; k < 4; k++) at[i][n][k] = 0.0f;
      }
    }
  }

  // A row of numbers as the start of every row; `bias` begins at the piece's first column.
  __device__ void start(const float *bias) {
    const int t = (int)threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      const float2 b = *(const float2 *)(bias + n * 8 + 2 * t);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        at[i][n][0] = at[i][n][2] = b.x;
        at[i][n][1] = at[i][n][3] = b.y;
      }
    }
  }

  __device__ void add(int n, const uint32_t a[2][4], const uint32_t b[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      brim_mma<fused_half>(at[i][n], a[i], b[0], b[1]);
      brim_mma<fused_half>(at[i][n + 1], a[i], b[2], b[3]);
    }
  }
};

// += x (32 rows, K numbers) times w' (columns, K), or with BACK times w (K, columns).
template <int K, bool BACK, int TILES>
__device__ static void fused_times(fused_sums<TILES> &sums, const uint16_t *x, int x_pitch,
                                   const uint16_t *w, int w_pitch) {
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    uint32_t a[2][4];
    brim_load_a(a[0], x + k, x_pitch);
    brim_load_a(a[1], x + 16 * x_pitch + k, x_pitch);
#pragma unroll
    for (int n = 0; n < TILES; n += 2) {
      uint32_t b[4];
      if constexpr (BACK) {
        brim_load_bt(b, w + k * w_pitch + n * 8, w_pitch);
      } else {
        brim_load_b(b, w + n * 8 * w_pitch + k, w_pitch);
      }
      sums.add(n, a, b);
    }
  }
}

// One where every product is counted: its two halves are 1.
__device__ static uint32_t fused_ones() { return 0x3f803f80u; }

// += d' x over M rows: d (M, 32 columns from d on), x (M, 8 * TILES columns from x on). `column` += d' 1: the
// sums of d's columns, where the warp is asked for them.
template <int M, int TILES>
__device__ static void fused_times_rows(fused_sums<TILES> &sums, float (&column)[2][4], bool wanted,
                                        const uint16_t *d, int d_pitch, const uint16_t *x,
                                        int x_pitch) {
#pragma unroll 4
  for (int k = 0; k < M; k += 16) {
    uint32_t a[2][4];
    brim_load_at(a[0], d + k * d_pitch, d_pitch);
    brim_load_at(a[1], d + k * d_pitch + 16, d_pitch);
#pragma unroll
    for (int n = 0; n < TILES; n += 2) {
      uint32_t b[4];
      brim_load_bt(b, x + k * x_pitch + n * 8, x_pitch);
      sums.add(n, a, b);
    }
    if (!wanted) continue;
    brim_mma<fused_half>(column[0], a[0], fused_ones(), fused_ones());
    brim_mma<fused_half>(column[1], a[1], fused_ones(), fused_ones());
  }
}

// Sums of 32 columns of d over M rows alone.
template <int M>
__device__ static void fused_add_columns(float (&column)[2][4], const uint16_t *d, int d_pitch) {
#pragma unroll
  for (int k = 0; k < M; k += 16) {
    uint32_t a[2][4];
    brim_load_at(a[0], d + k * d_pitch, d_pitch);
    brim_load_at(a[1], d + k * d_pitch + 16, d_pitch);
    brim_mma<fused_half>(column[0], a[0], fused_ones(), fused_ones());
    brim_mma<fused_half>(column[1], a[1], fused_ones(), fused_ones());
  }
}

// += d' x of 16 columns of d: x has 16 * PIECES; `column` as above.
template <int M, int PIECES>
__device__ static void fused_times_few(float (&sums)[2 * PIECES][4], float (&column)[4],
                                       bool wanted, const uint16_t *d, int d_pitch,
                                       const uint16_t *x, int x_pitch) {
#pragma unroll 4
  for (int k = 0; k < M; k += 16) {
    uint32_t a[4];
    brim_load_at(a, d + k * d_pitch, d_pitch);
#pragma unroll
    for (int n = 0; n < PIECES; n++) {
      uint32_t b[4];
      brim_load_bt(b, x + k * x_pitch + n * 16, x_pitch);
      brim_mma<fused_half>(sums[2 * n], a, b[0], b[1]);
      brim_mma<fused_half>(sums[2 * n + 1], a, b[2], b[3]);
    }
    if (wanted) brim_mma<fused_half>(column, a, fused_ones(), fused_ones());
  }
}

//---------------------------------- activations ----------------------------------

// A NaN stays, so that its row's loss is none.
__device__ static float fused_relu(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}

// act(sums) to a tile in shared memory, from the warp's piece on.
template <int TILES>
__device__ static void fused_put(const fused_sums<TILES> &sums, int relu, uint16_t *tile,
                                 int pitch) {
  const int g = ((int)threadIdx.x & 31) >> 2, t = (int)threadIdx.x & 3;
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      const float *v = sums.at[i][n];
      uint16_t *to = tile + (i * 16 + g) * pitch + n * 8 + 2 * t;
      uint32_t low, high;
      if (relu) {
        low = brim_pack<fused_half>(fused_relu(v[0]), fused_relu(v[1]));
        high = brim_pack<fused_half>(fused_relu(v[2]), fused_relu(v[3]));
      } else {
        low = brim_pack<fused_half>(brim_tanh_fast(v[0]), brim_tanh_fast(v[1]));
        high = brim_pack<fused_half>(brim_tanh_fast(v[2]), brim_tanh_fast(v[3]));
      }
      *(uint32_t *)to = low;
      *(uint32_t *)(to + 8 * pitch) = high;
    }
  }
}

// Two derivatives d times act'(y) where the activation gave y.
__device__ static uint32_t fused_slope(uint32_t y, float d0, float d1, int relu) {
  const float2 v = brim_unpack<fused_half>(y);
  if (relu) return brim_pack<fused_half>(v.x > 0.0f ? d0 : 0.0f, v.y > 0.0f ? d1 : 0.0f);
  return brim_pack<fused_half>(d0 * __fmaf_rn(-v.x, v.x, 1.0f), d1 * __fmaf_rn(-v.y, v.y, 1.0f));
}

// Activations in the tile become the derivatives by what they were made of.
template <int TILES>
__device__ static void fused_put_slope(const fused_sums<TILES> &sums, int relu, uint16_t *tile,
                                       int pitch) {
  const int g = ((int)threadIdx.x & 31) >> 2, t = (int)threadIdx.x & 3;
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      const float *v = sums.at[i][n];
      uint32_t *low = (uint32_t *)(tile + (i * 16 + g) * pitch + n * 8 + 2 * t);
      uint32_t *high = (uint32_t *)(tile + (i * 16 + g + 8) * pitch + n * 8 + 2 * t);
      *low = fused_slope(*low, v[0], v[1], relu);
      *high = fused_slope(*high, v[2], v[3], relu);
    }
  }
}

//---------------------------------- memory ----------------------------------

// A matrix (rows, columns) of memory into shared memory of ROWS x COLUMNS, zeros around it. All threads; a
// caller waits with brim_copy_wait. Rows are aligned where their length is.
template <int ROWS, int COLUMNS>
__device__ static void fused_load(uint16_t *to, const uint16_t *from, int rows, int columns) {
  enum { PIECES = COLUMNS / 8 };
  const bool whole = columns % 8 == 0;
  for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += (int)blockDim.x) {
    const int row = i / PIECES, column = i % PIECES * 8;
    uint16_t *at = to + row * (COLUMNS + FUSED_GAP) + column;
    const bool in = row < rows && column < columns;
    const uint16_t *source = from + (in ? row * columns + column : 0);
    if (whole) {
      brim_copy16(at, source, in);
      continue;
    }
    for (int k = 0; k < 8; k++) at[k] = in && column + k < columns ? source[k] : (uint16_t)0;
  }
  brim_copy_commit();
}

template <int COUNT>
__device__ static void fused_load_bias(float *to, const uint16_t *from, int count) {
  for (int i = (int)threadIdx.x; i < COUNT; i += (int)blockDim.x) {
    to[i] = i < count ? __uint_as_float((uint32_t)from[i] << 16) : 0.0f;
  }
}

#endif  // BRIM_ENV_FUSED_TILE_CUH_
