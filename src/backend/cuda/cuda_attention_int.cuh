// Inside attention: the geometry of one call and how slices of heads get into shared memory. For
// cuda_attention.cu and the kernels it includes.
#ifndef BRIM_BACKEND_CUDA_ATTENTION_INT_CUH_
#define BRIM_BACKEND_CUDA_ATTENTION_INT_CUH_

#include "backend/cuda/cuda_int.cuh"
#include "backend/cuda/cuda_mma.cuh"

enum { ATTENTION_WARPS = 4, ATTENTION_THREADS = 32 * ATTENTION_WARPS, ATTENTION_TILE = 16 };
static constexpr float ATTENTION_LOG2E = 1.4426950408889634f;
static constexpr float ATTENTION_LN2 = 0.6931471805599453f;

// One call. Blocks are numbered head by head: block = (n * heads + a) * blocks + piece.
struct attention_geo {
  int l, heads, d;
  int64_t c;     // heads * d
  int blocks;    // pieces of a head
  int rounds;    // tiles of 16 rows a warp does one after the other
  int chunk;     // rows held in shared memory at a time, a multiple of 16
  float scale;   // 1 / sqrt(d)
  float scale2;  // the same times log2(e): exponentials are powers of two
};

// The place of one head's rows.
struct attention_head {
  int64_t index;  // n * heads + a
  int64_t qkv;    // offset of its q in row 0; k and v follow after c and 2 c, rows after 3 c
  int64_t y;      // in y and dy; rows after c
  int64_t lse;
  int piece;
};

__device__ static inline attention_head attention_locate(const attention_geo &g) {
  attention_head h;
  h.index = (int64_t)(blockIdx.x / (unsigned)g.blocks);
  h.piece = (int)(blockIdx.x % (unsigned)g.blocks);
  int64_t n = h.index / g.heads, a = h.index % g.heads;
  h.qkv = n * g.l * 3 * g.c + a * g.d;
  h.y = n * g.l * g.c + a * g.d;
  h.lse = h.index * g.l;
  return h;
}

// Rows [0, rows) of a head's slice into dst, DP + 8 values a row so that the eight rows of an
// ldmatrix fall into different banks. Rows from `valid` on and columns from d on are zeros. Not
// complete before brim_copy_wait and a barrier.
template <int DP>
__device__ static inline void attention_load(uint16_t *dst, const uint16_t *src, int64_t stride,
                                             int rows, int valid, int d) {
  constexpr int LD = DP + 8, VECTORS = DP / 8;
  if ((d & 7) == 0) {  // then every row starts on 16 bytes
    for (int i = (int)threadIdx.x; i < rows * VECTORS; i += ATTENTION_THREADS) {
      int r = i / VECTORS, col = i % VECTORS * 8;
      bool inside = r < valid && col < d;
      brim_copy16(dst + r * LD + col, inside ? src + r * stride + col : src, inside);
    }
  } else {
    for (int i = (int)threadIdx.x; i < rows * DP; i += ATTENTION_THREADS) {
      int r = i / DP, col = i % DP;
      dst[r * LD + col] = r < valid && col < d ? src[r * stride + col] : (uint16_t)0;
    }
  }
}

// Two C tiles' words of one row, columns 2 t.. of each, become columns 4 t .. 4 t + 3 of the
// sixteen: 8 bytes a lane, and the four lanes write a whole sector.
__device__ static inline uint2 attention_gather(uint32_t left, uint32_t right) {
  int lane = (int)threadIdx.x & 31, t = lane & 3, from = (lane & ~3) | (t & 1) * 2;
  uint32_t l0 = __shfl_sync(0xffffffffu, left, from), l1 = __shfl_sync(0xffffffffu, left, from + 1);
  uint32_t r0 = __shfl_sync(0xffffffffu, right, from);
  uint32_t r1 = __shfl_sync(0xffffffffu, right, from + 1);
  return t < 2 ? make_uint2(l0, l1) : make_uint2(r0, r1);
}

// Any d: one value at a time.
__device__ static inline void attention_put(uint16_t *row, int col, int d, uint32_t word) {
  if (col < d) row[col] = (uint16_t)(word & 0xffffu);
  if (col + 1 < d) row[col + 1] = (uint16_t)(word >> 16);
}

// A head's part of an output: `valid` rows of d values, `stride` values apart.
struct attention_slice {
  uint16_t *dst;
  int64_t stride;
  int valid, d;
};

// A lane's values of a 16 x DP result times `factor` (of rows g and g + 8) to rows row + g and
// row + g + 8 of a slice. The whole warp calls.
template <typename T, int DP>
__device__ static inline void attention_store(const attention_slice &slice, int row,
                                              const float acc[DP / 8][4], float factor0,
                                              float factor1) {
  int d = slice.d;
  int lane = (int)threadIdx.x & 31, t = lane & 3;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int r = row + (lane >> 2) + i * 8;
    uint16_t *out = slice.dst + r * slice.stride;
    float factor = i == 0 ? factor0 : factor1;
#pragma unroll
    for (int j = 0; j < DP / 8; j += 2) {
      uint32_t left = brim_pack<T>(acc[j][2 * i] * factor, acc[j][2 * i + 1] * factor);
      uint32_t right = brim_pack<T>(acc[j + 1][2 * i] * factor, acc[j + 1][2 * i + 1] * factor);
      if ((d & 7) == 0) {
        uint2 four = attention_gather(left, right);
        if (r < slice.valid && j * 8 + t * 4 < d) *(uint2 *)(out + j * 8 + t * 4) = four;
      } else if (r < slice.valid) {
        attention_put(out, j * 8 + t * 2, d, left);
        attention_put(out, j * 8 + 8 + t * 2, d, right);
      }
    }
  }
}

// C tiles 2 j and 2 j + 1 as the A fragment of a product over their columns.
template <typename T>
__device__ static inline void attention_as_a(uint32_t a[4], const float left[4],
                                             const float right[4]) {
  a[0] = brim_pack<T>(left[0], left[1]);
  a[1] = brim_pack<T>(left[2], left[3]);
  a[2] = brim_pack<T>(right[0], right[1]);
  a[3] = brim_pack<T>(right[2], right[3]);
}

__host__ __device__ static inline int attention_padded(int rows) {
  return (rows + ATTENTION_TILE - 1) / ATTENTION_TILE * ATTENTION_TILE;
}

// More than 48 KiB of shared memory must be asked for; a property of the kernel, no stream work.
template <typename K>
static brim_status attention_reserve(K kernel, size_t bytes) {
  if (bytes <= 48 * 1024) return BRIM_OK;
  return BRIM_CUDA(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

#endif  // BRIM_BACKEND_CUDA_ATTENTION_INT_CUH_
