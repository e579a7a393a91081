// Attention and its gradient: 16-bit types on tensor cores, f32 by plain multiply-adds.
// Forward: 4 N A L^2 D FLOPs, N A L^2 exponentials, N L (4 C) 2 bytes. Transformer 3/16 at batch
// 4096 (L 172, A 1, D 16): 7.8 GFLOP; 121 M exponentials = 34 us at 16 a clock on each of an
// H200's 132 SMs; 93 MB = 22 us. Expected: 60 to 80 us, bound by the exponentials.
#include "backend/cuda/cuda_int.cuh"
#include "backend/cuda/cuda_mma.cuh"

//---------------------------------- one call ----------------------------------

enum { ATTENTION_WARPS = 4, ATTENTION_THREADS = 32 * ATTENTION_WARPS, ATTENTION_TILE = 16 };
static constexpr float ATTENTION_LOG2E = 1.4426950408889634f;
static constexpr float ATTENTION_LN2 = 0.6931471805599453f;

// Sizes of one call. Blocks are numbered head by head: block = (n * heads + a) * blocks + piece.
struct attention_geo {
  int l, heads, d;
  int64_t c;     // heads * d
  int blocks;    // blocks of a head, which share its rows
  int rounds;    // tiles of 16 rows that a warp does one after the other
  int chunk;     // rows held in shared memory at a time, a multiple of 16
  float scale;   // 1 / sqrt(d)
  float scale2;  // scale * log2(e): exponentials are powers of two
};

// Offsets of one head's rows.
struct attention_head {
  int64_t index;  // n * heads + a
  int64_t qkv;    // q of the head in row 0; k and v follow after c and 2 c, the next row after 3 c
  int64_t y;      // offset in y and dy; the next row follows after c
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

// Loads rows [0, rows) of a head's slice into dst, DP + 8 values a row so that the eight rows of an
// ldmatrix fall into different banks. Rows from `valid` on and columns from d on get zeros. The data are
// complete only after brim_copy_wait and a barrier.
template <int DP>
__device__ static inline void attention_load(uint16_t *dst, const uint16_t *src, int64_t stride,
                                             int rows, int valid, int d) {
  constexpr int LD = DP + 8, VECTORS = DP / 8;
  if ((d & 7) == 0) {  // every row starts on 16 bytes
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

// Takes one row's words of two C tiles, which hold columns 2 t and 2 t + 1 of each. Returns columns
// 4 t .. 4 t + 3 of the sixteen: 8 bytes a lane, so the four lanes write a whole sector.
__device__ static inline uint2 attention_gather(uint32_t left, uint32_t right) {
  int lane = (int)threadIdx.x & 31, t = lane & 3, from = (lane & ~3) | (t & 1) * 2;
  uint32_t l0 = __shfl_sync(0xffffffffu, left, from), l1 = __shfl_sync(0xffffffffu, left, from + 1);
  uint32_t r0 = __shfl_sync(0xffffffffu, right, from);
  uint32_t r1 = __shfl_sync(0xffffffffu, right, from + 1);
  return t < 2 ? make_uint2(l0, l1) : make_uint2(r0, r1);
}

// Stores one value at a time, for any d.
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

// Stores a 16 x DP result into rows row + g and row + g + 8 of a slice. The values of row g are multiplied
// by factor0, those of row g + 8 by factor1. The whole warp must call.
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

// Packs C tiles 2 j and 2 j + 1 as the A fragment of a product over their columns.
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

// Asks for more than 48 KiB of shared memory if needed. This sets the kernel up and puts no work on a stream.
template <typename K>
static brim_status attention_reserve(K kernel, size_t bytes) {
  if (bytes <= 48 * 1024) return BRIM_OK;
  return BRIM_CUDA(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

//---------------------------------- forward ----------------------------------

// State of a warp's 16 query rows; [0] is row g, [1] row g + 8. Maxima and sums are of raw scores;
// `sum` is only this lane's share.
template <int DP>
struct forward_state {
  float o[DP / 8][4];
  float max[2], sum[2];
};

// Raw scores of 64 keys at k in shared memory; keys from `keys` on get -inf.
template <typename T, int DP>
__device__ static inline void forward_scores(float s[8][4], const uint32_t qa[DP / 16][4],
                                             const uint16_t *k, int keys) {
  constexpr int LD = DP + 8;
  int t = (int)threadIdx.x & 3;
#pragma unroll
  for (int j = 0; j < 4; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[2 * j][i] = s[2 * j + 1][i] = 0.0f;
    if (j * 16 < keys) {
#pragma unroll
      for (int kk = 0; kk < DP / 16; kk++) {
        uint32_t b[4];
        brim_load_b(b, k + j * 16 * LD + kk * 16, LD);
        brim_mma<T>(s[2 * j], qa[kk], b[0], b[1]);
        brim_mma<T>(s[2 * j + 1], qa[kk], b[2], b[3]);
      }
    }
  }
  if (keys >= 64) return;
#pragma unroll
  for (int j = 0; j < 8; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (j * 8 + t * 2 + (i & 1) >= keys) s[j][i] = -INFINITY;
    }
  }
}

// Updates the maxima and scales the sums so far to them.
template <int DP>
__device__ static inline void forward_rescale(forward_state<DP> &st, const float s[8][4],
                                              float scale2) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float m = st.max[i];
#pragma unroll
    for (int j = 0; j < 8; j++) m = fmaxf(m, fmaxf(s[j][2 * i], s[j][2 * i + 1]));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
    float alpha = brim_exp2_fast((st.max[i] - m) * scale2);
    st.max[i] = m;
    st.sum[i] *= alpha;
#pragma unroll
    for (int n = 0; n < DP / 8; n++) {
      st.o[n][2 * i] *= alpha;
      st.o[n][2 * i + 1] *= alpha;
    }
  }
}

// One online-softmax step over 64 keys at k and v in shared memory, of which `keys` exist.
template <typename T, int DP>
__device__ static inline void forward_step(forward_state<DP> &st, const uint32_t qa[DP / 16][4],
                                           const uint16_t *k, const uint16_t *v, int keys,
                                           float scale2) {
  constexpr int LD = DP + 8;
  float s[8][4];
  forward_scores<T, DP>(s, qa, k, keys);
  forward_rescale<DP>(st, s, scale2);
  float shift0 = st.max[0] * scale2, shift1 = st.max[1] * scale2;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if (j * 16 >= keys) continue;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float *p = s[2 * j + i];
      p[0] = brim_exp2_fast(fmaf(p[0], scale2, -shift0));
      p[1] = brim_exp2_fast(fmaf(p[1], scale2, -shift0));
      p[2] = brim_exp2_fast(fmaf(p[2], scale2, -shift1));
      p[3] = brim_exp2_fast(fmaf(p[3], scale2, -shift1));
      st.sum[0] += p[0] + p[1];
      st.sum[1] += p[2] + p[3];
    }
    uint32_t a[4];
    attention_as_a<T>(a, s[2 * j], s[2 * j + 1]);
#pragma unroll
    for (int n = 0; n < DP / 16; n++) {
      uint32_t b[4];
      brim_load_bt(b, v + j * 16 * LD + n * 16, LD);
      brim_mma<T>(st.o[2 * n], a, b[0], b[1]);
      brim_mma<T>(st.o[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Divides by the sums and stores y and lse of the tile's rows.
template <typename T, int DP>
__device__ static inline void forward_finish(forward_state<DP> &st, const attention_geo &g,
                                             uint16_t *y, float *lse, int row) {
  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float sum = st.sum[i];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    inverse[i] = 1.0f / sum;
    int r = row + (((int)threadIdx.x & 31) >> 2) + i * 8;
    if ((threadIdx.x & 3) == 0 && r < g.l) {
      lse[r] = fmaf(st.max[i], g.scale2, log2f(sum)) * ATTENTION_LN2;
    }
  }
  attention_store<T, DP>({y, g.c, g.l, g.d}, row, st.o, inverse[0], inverse[1]);
}

// A block does rounds * 4 tiles of 16 queries of one head; keys and values pass through shared
// memory in chunks. With several rounds one chunk holds all keys and is loaded once.
template <typename T, int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    attention_forward(const uint16_t *qkv, uint16_t *y, float *lse, attention_geo g) {
  constexpr int LD = DP + 8;
  extern __shared__ __align__(16) uint16_t shared[];
  attention_head h = attention_locate(g);
  int rows = g.rounds * ATTENTION_WARPS * ATTENTION_TILE;
  int first = h.piece * rows;  // first query row of the block
  uint16_t *q_s = shared, *k_s = q_s + rows * LD, *v_s = k_s + g.chunk * LD;
  const uint16_t *head = qkv + h.qkv;
  int64_t stride = 3 * g.c;
  int warp = (int)threadIdx.x >> 5;
  attention_load<DP>(q_s, head + first * stride, stride, rows, g.l - first, g.d);
  for (int round = 0; round < g.rounds; round++) {
    int tile = round * ATTENTION_WARPS + warp;
    bool active = first + tile * ATTENTION_TILE < g.l;
    forward_state<DP> st;
    uint32_t qa[DP / 16][4];
#pragma unroll
    for (int n = 0; n < DP / 8; n++) st.o[n][0] = st.o[n][1] = st.o[n][2] = st.o[n][3] = 0.0f;
    st.max[0] = st.max[1] = -INFINITY;
    st.sum[0] = st.sum[1] = 0.0f;
    for (int key = 0; key < g.l; key += g.chunk) {
      int keys = g.l - key < g.chunk ? g.l - key : g.chunk;
      if (round == 0) {
        __syncthreads();  // all threads have read the last chunk
        const uint16_t *at = head + key * stride;
        attention_load<DP>(k_s, at + g.c, stride, attention_padded(keys), keys, g.d);
        attention_load<DP>(v_s, at + 2 * g.c, stride, attention_padded(keys), keys, g.d);
        brim_copy_commit();
        brim_copy_wait<0>();
        __syncthreads();
      }
      if (!active) continue;
      if (key == 0) {
#pragma unroll
        for (int kk = 0; kk < DP / 16; kk++) {
          brim_load_a(qa[kk], q_s + tile * ATTENTION_TILE * LD + kk * 16, LD);
        }
      }
      for (int k0 = 0; k0 < keys; k0 += 64) {
        forward_step<T, DP>(st, qa, k_s + k0 * LD, v_s + k0 * LD, keys - k0 < 64 ? keys - k0 : 64,
                            g.scale2);
      }
    }
    if (active) {
      forward_finish<T, DP>(st, g, y + h.y, lse + h.lse, first + tile * ATTENTION_TILE);
    }
  }
}

//---------------------------------- gradient: sums of dy y ----------------------------------

// The gradient of attention on tensor cores, without atomics. Probabilities are computed again from lse by
// two groups of warps. Warps of the first own 16 keys each and walk over the queries (dk, dv). Warps of the
// second own 16 queries each and walk over the keys (dq).
// 14 N A L^2 D FLOPs and 2 N A L^2 exponentials (5 matrix products, two of them made twice),
// N L (3 + 1 + 1 + 3) C 2 bytes. Transformer 3/16 at batch 4096: 27 GFLOP; 242 M exponentials = 68 us;
// 180 MB = 43 us on an H200. Expected: 130 to 200 us.

// The sum of y dy over the d values of one row of a head.
template <typename T>
__device__ static inline float attention_dot(const T *y, const T *dy, int d) {
  float sum = 0.0f;
  for (int i = 0; i < d; i++) sum = fmaf(brim_load(y, i), brim_load(dy, i), sum);
  return sum;
}

template <typename T>
__device__ static inline float attention_dot16(const uint16_t *y, const uint16_t *dy, int d) {
  if (d & 7) return attention_dot((const T *)y, (const T *)dy, d);
  float sum = 0.0f;
  for (int i = 0; i < d; i += 8) {
    uint4 a = *(const uint4 *)(y + i), b = *(const uint4 *)(dy + i);
    const uint32_t av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float2 u = brim_unpack<T>(av[j]), v = brim_unpack<T>(bv[j]);
      sum = fmaf(u.x, v.x, sum);
      sum = fmaf(u.y, v.y, sum);
    }
  }
  return sum;
}

// delta has the shape (N, A, L).
template <typename T>
__global__ static void attention_delta_kernel(const T *y, const T *dy, float *delta, int64_t count,
                                              attention_geo g) {
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int64_t head = i / g.l, row = i % g.l;
  int64_t at = (head / g.heads * g.l + row) * g.c + head % g.heads * g.d;
  delta[i] = attention_dot(y + at, dy + at, g.d);
}

template <typename T>
static brim_status attention_delta(const brim_op_call *c, const attention_geo &g, cudaStream_t s) {
  int64_t count = c->in[0].dim[0] * g.heads * g.l;
  attention_delta_kernel<T><<<(unsigned)((count + 255) / 256), 256, 0, s>>>(
      (const T *)c->in[2].data, (const T *)c->in[0].data, (float *)c->workspace, count, g);
  return brim_cuda_launched("attention_bwd: delta");
}

//---------------------------------- gradient: one tile ----------------------------------

template <int DP>
__device__ static inline void attention_zero(float acc[DP / 8][4]) {
#pragma unroll
  for (int n = 0; n < DP / 8; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;
}

// A operand of a 16 x DP tile: kept in registers if there is room, else loaded again at each use.
template <int DP>
struct attention_tile {
  static constexpr bool HELD = DP <= 64;
  uint32_t a[HELD ? DP / 16 : 1][4];
  const uint16_t *at;
  __device__ inline explicit attention_tile(const uint16_t *p) : at(p) {
    if constexpr (HELD) {
#pragma unroll
      for (int kk = 0; kk < DP / 16; kk++) brim_load_a(a[kk], p + kk * 16, DP + 8);
    }
  }
  __device__ inline const uint32_t *step(int kk) {
    if constexpr (HELD) return a[kk];
    brim_load_a(a[0], at + kk * 16, DP + 8);
    return a[0];
  }
};

// 16 * `groups` queries in shared memory, with the gradient of their outputs. stat holds lse log2(e) and
// delta of every query. Queries that do not exist have infinity and 0, and so add nothing.
struct attention_queries {
  const uint16_t *q, *dy;
  const float2 *stat;
  int groups;
};

// `count` keys and values in shared memory.
struct attention_keys {
  const uint16_t *k, *v;
  int count;
};

// Gradient of one tile of 16 keys (k, v) from queries. Scores are (key, query).
template <typename T, int DP>
__device__ static inline void attention_bwd_keys(float dk[DP / 8][4], float dv[DP / 8][4],
                                                 attention_tile<DP> &k, attention_tile<DP> &v,
                                                 attention_queries queries, float scale2) {
  constexpr int LD = DP + 8;
  const uint16_t *q = queries.q, *dy = queries.dy;
  const float2 *stat = queries.stat;
  int t = (int)threadIdx.x & 3;
  for (int group = 0; group < queries.groups; group++) {
    float p[2][4] = {}, ds[2][4] = {};
#pragma unroll
    for (int kk = 0; kk < DP / 16; kk++) {
      uint32_t b[4];
      brim_load_b(b, q + kk * 16, LD);
      const uint32_t *ka = k.step(kk);
      brim_mma<T>(p[0], ka, b[0], b[1]);
      brim_mma<T>(p[1], ka, b[2], b[3]);
      brim_load_b(b, dy + kk * 16, LD);
      const uint32_t *va = v.step(kk);
      brim_mma<T>(ds[0], va, b[0], b[1]);
      brim_mma<T>(ds[1], va, b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      // lse and delta of the queries 2 t and 2 t + 1
      float4 st = *(const float4 *)(stat + i * 8 + t * 2);
      p[i][0] = brim_exp2_fast(fmaf(p[i][0], scale2, -st.x));
      p[i][1] = brim_exp2_fast(fmaf(p[i][1], scale2, -st.z));
      p[i][2] = brim_exp2_fast(fmaf(p[i][2], scale2, -st.x));
      p[i][3] = brim_exp2_fast(fmaf(p[i][3], scale2, -st.z));
      ds[i][0] = p[i][0] * (ds[i][0] - st.y);
      ds[i][1] = p[i][1] * (ds[i][1] - st.w);
      ds[i][2] = p[i][2] * (ds[i][2] - st.y);
      ds[i][3] = p[i][3] * (ds[i][3] - st.w);
    }
    uint32_t pa[4], da[4];
    attention_as_a<T>(pa, p[0], p[1]);
    attention_as_a<T>(da, ds[0], ds[1]);
#pragma unroll
    for (int n = 0; n < DP / 16; n++) {
      uint32_t b[4];
      brim_load_bt(b, dy + n * 16, LD);
      brim_mma<T>(dv[2 * n], pa, b[0], b[1]);
      brim_mma<T>(dv[2 * n + 1], pa, b[2], b[3]);
      brim_load_bt(b, q + n * 16, LD);
      brim_mma<T>(dk[2 * n], da, b[0], b[1]);
      brim_mma<T>(dk[2 * n + 1], da, b[2], b[3]);
    }
    q += 16 * LD;
    dy += 16 * LD;
    stat += 16;
  }
}

// Gradient of one tile of 16 queries from keys. Scores are (query, key); s0 and s1 are the statistics of
// rows g and g + 8.
template <typename T, int DP>
__device__ static inline void attention_bwd_queries(float dq[DP / 8][4], attention_tile<DP> &q,
                                                    attention_tile<DP> &dy,
                                                    attention_keys shared_keys, float2 s0,
                                                    float2 s1, float scale2) {
  constexpr int LD = DP + 8;
  const uint16_t *k = shared_keys.k, *v = shared_keys.v;
  int keys = shared_keys.count;
  int t = (int)threadIdx.x & 3;
  for (int key = 0; key < keys; key += 16) {
    float p[2][4] = {}, ds[2][4] = {};
#pragma unroll
    for (int kk = 0; kk < DP / 16; kk++) {
      uint32_t b[4];
      brim_load_b(b, k + kk * 16, LD);
      const uint32_t *qa = q.step(kk);
      brim_mma<T>(p[0], qa, b[0], b[1]);
      brim_mma<T>(p[1], qa, b[2], b[3]);
      brim_load_b(b, v + kk * 16, LD);
      const uint32_t *ya = dy.step(kk);
      brim_mma<T>(ds[0], ya, b[0], b[1]);
      brim_mma<T>(ds[1], ya, b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      ds[i][0] = brim_exp2_fast(fmaf(p[i][0], scale2, -s0.x)) * (ds[i][0] - s0.y);
      ds[i][1] = brim_exp2_fast(fmaf(p[i][1], scale2, -s0.x)) * (ds[i][1] - s0.y);
      ds[i][2] = brim_exp2_fast(fmaf(p[i][2], scale2, -s1.x)) * (ds[i][2] - s1.y);
      ds[i][3] = brim_exp2_fast(fmaf(p[i][3], scale2, -s1.x)) * (ds[i][3] - s1.y);
    }
    if (key + 16 > keys) {  // keys that do not exist add nothing
#pragma unroll
      for (int i = 0; i < 2; i++) {
        int col = key + i * 8 + t * 2;
        if (col >= keys) ds[i][0] = ds[i][2] = 0.0f;
        if (col + 1 >= keys) ds[i][1] = ds[i][3] = 0.0f;
      }
    }
    uint32_t da[4];
    attention_as_a<T>(da, ds[0], ds[1]);
#pragma unroll
    for (int n = 0; n < DP / 16; n++) {
      uint32_t b[4];
      brim_load_bt(b, k + n * 16, LD);
      brim_mma<T>(dq[2 * n], da, b[0], b[1]);
      brim_mma<T>(dq[2 * n + 1], da, b[2], b[3]);
    }
    k += 16 * LD;
    v += 16 * LD;
  }
}

//---------------------------------- gradient: a head in one block ----------------------------------

template <typename T, int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    attention_bwd_whole_kernel(const uint16_t *dy, const uint16_t *qkv, const uint16_t *y,
                               const float *lse, uint16_t *dqkv, attention_geo g) {
  constexpr int LD = DP + 8;
  extern __shared__ __align__(16) uint16_t shared[];
  attention_head h = attention_locate(g);
  int rows = g.chunk, tiles = rows / ATTENTION_TILE;
  int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
  uint16_t *q_s = shared, *k_s = q_s + rows * LD, *v_s = k_s + rows * LD, *y_s = v_s + rows * LD;
  float2 *stat = (float2 *)(y_s + rows * LD);
  const uint16_t *head = qkv + h.qkv;
  int64_t stride = 3 * g.c;
  attention_load<DP>(q_s, head, stride, rows, g.l, g.d);
  attention_load<DP>(k_s, head + g.c, stride, rows, g.l, g.d);
  attention_load<DP>(v_s, head + 2 * g.c, stride, rows, g.l, g.d);
  attention_load<DP>(y_s, dy + h.y, g.c, rows, g.l, g.d);
  brim_copy_commit();
  for (int r = (int)threadIdx.x; r < rows; r += ATTENTION_THREADS) {
    float2 st = make_float2(INFINITY, 0.0f);
    if (r < g.l) {
      st.x = lse[h.lse + r] * ATTENTION_LOG2E;
      st.y = attention_dot16<T>(y + h.y + r * g.c, dy + h.y + r * g.c, g.d);
    }
    stat[r] = st;
  }
  brim_copy_wait<0>();
  __syncthreads();
  uint16_t *out = dqkv + h.qkv;
  // The first half of the tasks are tiles of keys, the second half tiles of queries.
  for (int task = warp; task < 2 * tiles; task += ATTENTION_WARPS) {
    int row = (task < tiles ? task : task - tiles) * ATTENTION_TILE;
    if (task < tiles) {
      float dk[DP / 8][4], dv[DP / 8][4];
      attention_zero<DP>(dk);
      attention_zero<DP>(dv);
      attention_tile<DP> k(k_s + row * LD), v(v_s + row * LD);
      attention_bwd_keys<T, DP>(dk, dv, k, v, {q_s, y_s, stat, tiles}, g.scale2);
      attention_store<T, DP>({out + g.c, stride, g.l, g.d}, row, dk, g.scale, g.scale);
      attention_store<T, DP>({out + 2 * g.c, stride, g.l, g.d}, row, dv, 1.0f, 1.0f);
    } else {
      float dq[DP / 8][4];
      attention_zero<DP>(dq);
      attention_tile<DP> q(q_s + row * LD), ty(y_s + row * LD);
      float2 s0 = stat[row + (lane >> 2)], s1 = stat[row + (lane >> 2) + 8];
      attention_bwd_queries<T, DP>(dq, q, ty, {k_s, v_s, g.l}, s0, s1, g.scale2);
      attention_store<T, DP>({out, stride, g.l, g.d}, row, dq, g.scale, g.scale);
    }
  }
}

template <typename T, int DP>
static brim_status attention_bwd_whole(const brim_op_call *c, attention_geo g, cudaStream_t s) {
  g.blocks = 1;
  g.rounds = 1;
  g.chunk = attention_padded(g.l);
  size_t bytes = (size_t)g.chunk * (4 * (DP + 8) * sizeof(uint16_t) + sizeof(float2));
  BRIM_TRY(attention_reserve(attention_bwd_whole_kernel<T, DP>, bytes));
  unsigned blocks = (unsigned)(c->in[0].dim[0] * g.heads);
  attention_bwd_whole_kernel<T, DP><<<blocks, ATTENTION_THREADS, bytes, s>>>(
      (const uint16_t *)c->in[0].data, (const uint16_t *)c->in[1].data,
      (const uint16_t *)c->in[2].data, (const float *)c->in[3].data, (uint16_t *)c->out[0].data, g);
  return brim_cuda_launched("attention_bwd");
}

//---------------------------------- gradient: a head in pieces ----------------------------------

// Loads the statistics of rows [first, first + rows). Rows that do not exist get infinity and 0.
__device__ static inline void attention_stat(float2 *stat, const float *lse, const float *delta,
                                             int first, int rows, int l) {
  for (int r = (int)threadIdx.x; r < rows; r += ATTENTION_THREADS) {
    bool inside = first + r < l;
    stat[r] = make_float2(inside ? lse[first + r] * ATTENTION_LOG2E : INFINITY,
                          inside ? delta[first + r] : 0.0f);
  }
}

// Gradient of the block's 64 keys from all queries, `chunk` queries at a time.
template <typename T, int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    attention_bwd_keys_kernel(const uint16_t *dy, const uint16_t *qkv, const float *lse,
                              const float *delta, uint16_t *dqkv, attention_geo g) {
  constexpr int LD = DP + 8, BLOCK_ROWS = ATTENTION_WARPS * ATTENTION_TILE;
  extern __shared__ __align__(16) uint16_t shared[];
  attention_head h = attention_locate(g);
  uint16_t *k_s = shared, *v_s = k_s + BLOCK_ROWS * LD, *q_s = v_s + BLOCK_ROWS * LD,
           *y_s = q_s + g.chunk * LD;
  float2 *stat = (float2 *)(y_s + g.chunk * LD);
  const uint16_t *head = qkv + h.qkv;
  int64_t stride = 3 * g.c;
  int first = h.piece * BLOCK_ROWS, row = ((int)threadIdx.x >> 5) * ATTENTION_TILE;
  const uint16_t *own = head + first * stride;
  attention_load<DP>(k_s, own + g.c, stride, BLOCK_ROWS, g.l - first, g.d);
  attention_load<DP>(v_s, own + 2 * g.c, stride, BLOCK_ROWS, g.l - first, g.d);
  float dk[DP / 8][4], dv[DP / 8][4];
  attention_zero<DP>(dk);
  attention_zero<DP>(dv);
  for (int q0 = 0; q0 < g.l; q0 += g.chunk) {
    __syncthreads();
    int rows = attention_padded(g.l - q0 < g.chunk ? g.l - q0 : g.chunk);
    attention_load<DP>(q_s, head + q0 * stride, stride, rows, g.l - q0, g.d);
    attention_load<DP>(y_s, dy + h.y + q0 * g.c, g.c, rows, g.l - q0, g.d);
    attention_stat(stat, lse + h.lse, delta + h.lse, q0, rows, g.l);
    brim_copy_commit();
    brim_copy_wait<0>();
    __syncthreads();
    attention_tile<DP> k(k_s + row * LD), v(v_s + row * LD);
    attention_bwd_keys<T, DP>(dk, dv, k, v, {q_s, y_s, stat, rows / ATTENTION_TILE}, g.scale2);
  }
  uint16_t *out = dqkv + h.qkv;
  attention_store<T, DP>({out + g.c, stride, g.l, g.d}, first + row, dk, g.scale, g.scale);
  attention_store<T, DP>({out + 2 * g.c, stride, g.l, g.d}, first + row, dv, 1.0f, 1.0f);
}

// Gradient of the block's 64 queries from all keys, `chunk` keys at a time.
template <typename T, int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    attention_bwd_queries_kernel(const uint16_t *dy, const uint16_t *qkv, const float *lse,
                                 const float *delta, uint16_t *dqkv, attention_geo g) {
  constexpr int LD = DP + 8, BLOCK_ROWS = ATTENTION_WARPS * ATTENTION_TILE;
  extern __shared__ __align__(16) uint16_t shared[];
  attention_head h = attention_locate(g);
  uint16_t *q_s = shared, *y_s = q_s + BLOCK_ROWS * LD, *k_s = y_s + BLOCK_ROWS * LD,
           *v_s = k_s + g.chunk * LD;
  float2 *stat = (float2 *)(v_s + g.chunk * LD);
  const uint16_t *head = qkv + h.qkv;
  int64_t stride = 3 * g.c;
  int first = h.piece * BLOCK_ROWS, row = ((int)threadIdx.x >> 5) * ATTENTION_TILE;
  int lane = (int)threadIdx.x & 31;
  attention_load<DP>(q_s, head + first * stride, stride, BLOCK_ROWS, g.l - first, g.d);
  attention_load<DP>(y_s, dy + h.y + first * g.c, g.c, BLOCK_ROWS, g.l - first, g.d);
  attention_stat(stat, lse + h.lse, delta + h.lse, first, BLOCK_ROWS, g.l);
  float dq[DP / 8][4];
  attention_zero<DP>(dq);
  for (int k0 = 0; k0 < g.l; k0 += g.chunk) {
    __syncthreads();
    int keys = g.l - k0 < g.chunk ? g.l - k0 : g.chunk, rows = attention_padded(keys);
    const uint16_t *at = head + k0 * stride;
    attention_load<DP>(k_s, at + g.c, stride, rows, keys, g.d);
    attention_load<DP>(v_s, at + 2 * g.c, stride, rows, keys, g.d);
    brim_copy_commit();
    brim_copy_wait<0>();
    __syncthreads();
    attention_tile<DP> q(q_s + row * LD), ty(y_s + row * LD);
    float2 s0 = stat[row + (lane >> 2)], s1 = stat[row + (lane >> 2) + 8];
    attention_bwd_queries<T, DP>(dq, q, ty, {k_s, v_s, keys}, s0, s1, g.scale2);
  }
  attention_store<T, DP>({dqkv + h.qkv, stride, g.l, g.d}, first + row, dq, g.scale, g.scale);
}

template <typename T, int DP>
static brim_status attention_bwd_pieces(const brim_op_call *c, attention_geo g, cudaStream_t s) {
  constexpr int BLOCK_ROWS = ATTENTION_WARPS * ATTENTION_TILE;
  g.rounds = 1;
  g.chunk = 64;
  g.blocks = (g.l + BLOCK_ROWS - 1) / BLOCK_ROWS;
  size_t rows = (size_t)(2 * BLOCK_ROWS + 2 * g.chunk);
  size_t bytes = rows * (DP + 8) * sizeof(uint16_t) + BLOCK_ROWS * sizeof(float2);
  BRIM_TRY(attention_reserve(attention_bwd_keys_kernel<T, DP>, bytes));
  BRIM_TRY(attention_reserve(attention_bwd_queries_kernel<T, DP>, bytes));
  unsigned blocks = (unsigned)(c->in[0].dim[0] * g.heads * g.blocks);
  const uint16_t *dy = (const uint16_t *)c->in[0].data, *qkv = (const uint16_t *)c->in[1].data;
  const float *lse = (const float *)c->in[3].data, *delta = (const float *)c->workspace;
  uint16_t *dqkv = (uint16_t *)c->out[0].data;
  attention_bwd_keys_kernel<T, DP>
      <<<blocks, ATTENTION_THREADS, bytes, s>>>(dy, qkv, lse, delta, dqkv, g);
  attention_bwd_queries_kernel<T, DP>
      <<<blocks, ATTENTION_THREADS, bytes, s>>>(dy, qkv, lse, delta, dqkv, g);
  return brim_cuda_launched("attention_bwd");
}

//---------------------------------- f32 ----------------------------------

// Attention in f32 by plain multiply-adds, forward and gradient, for any L and heads up to 128. G = DP / 16
// neighbouring threads share a row. Each has 16 of its values: the four float4 at G i + slice, so that the
// slices of a row in shared memory fall into different banks.

enum { F32_TILE = 32 };  // rows of keys (or of queries) in shared memory at a time

// Index in the row of value e of float4 i of a slice.
template <int DP>
__device__ static inline int f32_at(int slice, int i, int e) {
  return 4 * (DP / 16 * i + slice) + e;
}

template <int DP>
__device__ static inline void f32_row(float out[16], const float *row, bool inside, int d,
                                      int slice) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int col = f32_at<DP>(slice, i, e);
      out[4 * i + e] = inside && col < d ? row[col] : 0.0f;
    }
  }
}

template <int DP>
__device__ static inline void f32_put(float *row, const float v[16], float factor, int d,
                                      int slice) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int col = f32_at<DP>(slice, i, e);
      if (col < d) row[col] = v[4 * i + e] * factor;
    }
  }
}

// Loads a tile of F32_TILE rows; rows that do not exist get zeros.
template <int DP>
__device__ static inline void f32_tile(float *dst, const float *src, int64_t stride, int valid,
                                       int d) {
  for (int i = (int)threadIdx.x; i < F32_TILE * DP; i += ATTENTION_THREADS) {
    int r = i / DP, col = i % DP;
    dst[i] = r < valid && col < d ? src[r * stride + col] : 0.0f;
  }
}

// Product of two rows. All threads that share the rows get the same bits.
template <int DP>
__device__ static inline float f32_dot(const float a[16], const float *row, int slice) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float4 b = *(const float4 *)(row + f32_at<DP>(slice, i, 0));
    sum = fmaf(a[4 * i], b.x, sum);
    sum = fmaf(a[4 * i + 1], b.y, sum);
    sum = fmaf(a[4 * i + 2], b.z, sum);
    sum = fmaf(a[4 * i + 3], b.w, sum);
  }
#pragma unroll
  for (int x = 1; x < DP / 16; x <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, x);
  return sum;
}

template <int DP>
__device__ static inline void f32_add(float acc[16], float factor, const float *row, int slice) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float4 b = *(const float4 *)(row + f32_at<DP>(slice, i, 0));
    acc[4 * i] = fmaf(factor, b.x, acc[4 * i]);
    acc[4 * i + 1] = fmaf(factor, b.y, acc[4 * i + 1]);
    acc[4 * i + 2] = fmaf(factor, b.z, acc[4 * i + 2]);
    acc[4 * i + 3] = fmaf(factor, b.w, acc[4 * i + 3]);
  }
}

template <int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    f32_forward_kernel(const float *qkv, float *y, float *lse, attention_geo g) {
  constexpr int G = DP / 16, ROWS = ATTENTION_THREADS / G, BATCH = 8;
  __shared__ __align__(16) float k_s[F32_TILE * DP], v_s[F32_TILE * DP];
  attention_head h = attention_locate(g);
  int slice = (int)threadIdx.x % G, row = h.piece * ROWS + (int)threadIdx.x / G;
  int64_t stride = 3 * g.c;
  const float *head = qkv + h.qkv;
  float q[16], o[16] = {}, max = -INFINITY, sum = 0.0f;
  f32_row<DP>(q, head + row * stride, row < g.l, g.d, slice);
  for (int k0 = 0; k0 < g.l; k0 += F32_TILE) {
    int keys = g.l - k0 < F32_TILE ? g.l - k0 : F32_TILE;
    __syncthreads();
    f32_tile<DP>(k_s, head + g.c + k0 * stride, stride, keys, g.d);
    f32_tile<DP>(v_s, head + 2 * g.c + k0 * stride, stride, keys, g.d);
    __syncthreads();
    for (int b = 0; b < keys; b += BATCH) {
      float s[BATCH], top = max;
#pragma unroll
      for (int j = 0; j < BATCH; j++) {
        s[j] = f32_dot<DP>(q, k_s + (b + j) * DP, slice) * g.scale2;
        if (b + j >= keys) s[j] = -INFINITY;
        top = fmaxf(top, s[j]);
      }
      float alpha = exp2f(max - top);
      max = top;
      sum *= alpha;
#pragma unroll
      for (int i = 0; i < 16; i++) o[i] *= alpha;
#pragma unroll
      for (int j = 0; j < BATCH; j++) {
        float p = exp2f(s[j] - max);
        sum += p;
        f32_add<DP>(o, p, v_s + (b + j) * DP, slice);
      }
    }
  }
  if (row >= g.l) return;
  f32_put<DP>(y + h.y + row * g.c, o, 1.0f / sum, g.d, slice);
  if (slice == 0) lse[h.lse + row] = (max + log2f(sum)) * ATTENTION_LN2;
}

// Each group of threads has a row of keys; queries pass through shared memory.
template <int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    f32_keys_kernel(const float *dy, const float *qkv, const float *lse, const float *delta,
                    float *dqkv, attention_geo g) {
  constexpr int G = DP / 16, ROWS = ATTENTION_THREADS / G;
  __shared__ __align__(16) float q_s[F32_TILE * DP], y_s[F32_TILE * DP];
  attention_head h = attention_locate(g);
  int slice = (int)threadIdx.x % G, row = h.piece * ROWS + (int)threadIdx.x / G;
  int64_t stride = 3 * g.c;
  const float *head = qkv + h.qkv;
  float k[16], v[16], dk[16] = {}, dv[16] = {};
  f32_row<DP>(k, head + g.c + row * stride, row < g.l, g.d, slice);
  f32_row<DP>(v, head + 2 * g.c + row * stride, row < g.l, g.d, slice);
  for (int q0 = 0; q0 < g.l; q0 += F32_TILE) {
    int queries = g.l - q0 < F32_TILE ? g.l - q0 : F32_TILE;
    __syncthreads();
    f32_tile<DP>(q_s, head + q0 * stride, stride, queries, g.d);
    f32_tile<DP>(y_s, dy + h.y + q0 * g.c, g.c, queries, g.d);
    __syncthreads();
    for (int j = 0; j < queries; j++) {
      float s = f32_dot<DP>(k, q_s + j * DP, slice);
      float dp = f32_dot<DP>(v, y_s + j * DP, slice);
      float p = exp2f(fmaf(s, g.scale2, -lse[h.lse + q0 + j] * ATTENTION_LOG2E));
      f32_add<DP>(dv, p, y_s + j * DP, slice);
      f32_add<DP>(dk, p * (dp - delta[h.lse + q0 + j]), q_s + j * DP, slice);
    }
  }
  if (row >= g.l) return;
  float *out = dqkv + h.qkv + row * stride;
  f32_put<DP>(out + g.c, dk, g.scale, g.d, slice);
  f32_put<DP>(out + 2 * g.c, dv, 1.0f, g.d, slice);
}

// Each group of threads has a row of queries; keys pass through shared memory.
template <int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    f32_queries_kernel(const float *dy, const float *qkv, const float *lse, const float *delta,
                       float *dqkv, attention_geo g) {
  constexpr int G = DP / 16, ROWS = ATTENTION_THREADS / G;
  __shared__ __align__(16) float k_s[F32_TILE * DP], v_s[F32_TILE * DP];
  attention_head h = attention_locate(g);
  int slice = (int)threadIdx.x % G, row = h.piece * ROWS + (int)threadIdx.x / G;
  int64_t stride = 3 * g.c;
  const float *head = qkv + h.qkv;
  bool inside = row < g.l;
  float q[16], gy[16], dq[16] = {};
  f32_row<DP>(q, head + row * stride, inside, g.d, slice);
  f32_row<DP>(gy, dy + h.y + row * g.c, inside, g.d, slice);
  float shift = inside ? lse[h.lse + row] * ATTENTION_LOG2E : 0.0f;
  float mean = inside ? delta[h.lse + row] : 0.0f;
  for (int k0 = 0; k0 < g.l; k0 += F32_TILE) {
    int keys = g.l - k0 < F32_TILE ? g.l - k0 : F32_TILE;
    __syncthreads();
    f32_tile<DP>(k_s, head + g.c + k0 * stride, stride, keys, g.d);
    f32_tile<DP>(v_s, head + 2 * g.c + k0 * stride, stride, keys, g.d);
    __syncthreads();
    for (int j = 0; j < keys; j++) {
      float s = f32_dot<DP>(q, k_s + j * DP, slice);
      float dp = f32_dot<DP>(gy, v_s + j * DP, slice);
      float p = exp2f(fmaf(s, g.scale2, -shift));
      f32_add<DP>(dq, p * (dp - mean), k_s + j * DP, slice);
    }
  }
  if (inside) f32_put<DP>(dqkv + h.qkv + row * stride, dq, g.scale, g.d, slice);
}

template <int DP>
static attention_geo f32_geometry(attention_geo g) {
  constexpr int ROWS = ATTENTION_THREADS / (DP / 16);
  g.blocks = (g.l + ROWS - 1) / ROWS;
  return g;
}

template <int DP>
static brim_status f32_forward(const brim_op_call *c, const attention_geo &sizes, cudaStream_t s) {
  attention_geo g = f32_geometry<DP>(sizes);
  unsigned blocks = (unsigned)(c->in[0].dim[0] * g.heads * g.blocks);
  f32_forward_kernel<DP><<<blocks, ATTENTION_THREADS, 0, s>>>(
      (const float *)c->in[0].data, (float *)c->out[0].data, (float *)c->out[1].data, g);
  return brim_cuda_launched("attention");
}

template <int DP>
static brim_status f32_backward(const brim_op_call *c, const attention_geo &sizes, cudaStream_t s) {
  attention_geo g = f32_geometry<DP>(sizes);
  unsigned blocks = (unsigned)(c->in[0].dim[0] * g.heads * g.blocks);
  const float *dy = (const float *)c->in[0].data, *qkv = (const float *)c->in[1].data;
  const float *lse = (const float *)c->in[3].data, *delta = (const float *)c->workspace;
  float *dqkv = (float *)c->out[0].data;
  f32_keys_kernel<DP><<<blocks, ATTENTION_THREADS, 0, s>>>(dy, qkv, lse, delta, dqkv, g);
  f32_queries_kernel<DP><<<blocks, ATTENTION_THREADS, 0, s>>>(dy, qkv, lse, delta, dqkv, g);
  return brim_cuda_launched("attention_bwd");
}

static brim_status attention_f32_forward(const brim_op_call *c, const attention_geo &g,
                                         cudaStream_t s) {
  if (g.d <= 16) return f32_forward<16>(c, g, s);
  if (g.d <= 32) return f32_forward<32>(c, g, s);
  if (g.d <= 64) return f32_forward<64>(c, g, s);
  return f32_forward<128>(c, g, s);
}

static brim_status attention_f32_backward(const brim_op_call *c, const attention_geo &g,
                                          cudaStream_t s) {
  if (g.d <= 16) return f32_backward<16>(c, g, s);
  if (g.d <= 32) return f32_backward<32>(c, g, s);
  if (g.d <= 64) return f32_backward<64>(c, g, s);
  return f32_backward<128>(c, g, s);
}

//---------------------------------- entries ----------------------------------

// True if a head's q, k, v (and dy) fit into `limit` bytes of shared memory: one block does all its tiles.
static bool fits_whole(int l, int width, int arrays, size_t limit) {
  return l <= 512 &&
         (size_t)attention_padded(l) * (size_t)(width + 8) * 2 * (size_t)arrays <= limit;
}

static attention_geo geometry(const brim_op_call *c, const brim_tensor *y) {
  attention_geo g;
  memset(&g, 0, sizeof g);
  g.l = (int)y->dim[1];
  g.heads = c->attr.heads;
  g.c = y->dim[2];
  g.d = (int)(g.c / g.heads);
  g.scale = (float)(1.0 / sqrt((double)g.d));
  g.scale2 = (float)(1.4426950408889634 / sqrt((double)g.d));
  return g;
}

static brim_status validate(const brim_op_call *c, const brim_tensor *y, const char *what) {
  int64_t d = y->dim[2] / c->attr.heads, heads = y->dim[0] * c->attr.heads;
  BRIM_TRY(brim_cuda_float_type(&c->in[0], what));
  if (d > 128) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED,
                          "cuda: %s has heads of size %lld, expected at most 128", what,
                          (long long)d);
  }
  if (y->dim[1] > 1 << 20 || heads * ((y->dim[1] + 15) / 16) > INT32_MAX) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: %s of %lld x %lld rows is too large", what,
                          (long long)y->dim[0], (long long)y->dim[1]);
  }
  return BRIM_OK;
}

static brim_status attention_validate(void *impl, const brim_op_call *c) {
  (void)impl;
  return validate(c, &c->out[0], "attention");
}

static brim_status attention_bwd_validate(void *impl, const brim_op_call *c) {
  (void)impl;
  return validate(c, &c->in[0], "attention_bwd");
}

static bool whole_backward(const brim_op_call *c, const attention_geo *g) {
  int width = g->d <= 16 ? 16 : g->d <= 32 ? 32 : 64;
  return c->in[0].dtype != BRIM_F32 && g->d <= 64 && fits_whole(g->l, width, 4, 72 * 1024);
}

static brim_status attention_prepare(void *impl, brim_op_call *c) {
  brim_cuda_enter(impl);
  c->workspace_bytes = 0;
  if (c->op == BRIM_OP_ATTENTION) return BRIM_OK;
  attention_geo g = geometry(c, &c->in[0]);
  if (!whole_backward(c, &g)) {  // sums of dy y: one for each row and head
    c->workspace_bytes = (size_t)(c->in[0].dim[0] * g.heads * g.l) * sizeof(float);
  }
  return BRIM_OK;
}

template <typename T, int DP>
static brim_status forward_launch(const brim_op_call *c, attention_geo g, cudaStream_t stream) {
  int tiles = attention_padded(g.l) / ATTENTION_TILE;
  if (fits_whole(g.l, DP, 3, 48 * 1024)) {
    g.rounds = (tiles + ATTENTION_WARPS - 1) / ATTENTION_WARPS;
    g.chunk = attention_padded(g.l);
    g.blocks = 1;
  } else {
    g.rounds = 1;
    g.chunk = 64;
    g.blocks = (tiles + ATTENTION_WARPS - 1) / ATTENTION_WARPS;
  }
  size_t rows = (size_t)(g.rounds * ATTENTION_WARPS * ATTENTION_TILE + 2 * g.chunk);
  size_t bytes = rows * (DP + 8) * sizeof(uint16_t);
  BRIM_TRY(attention_reserve(attention_forward<T, DP>, bytes));
  unsigned blocks = (unsigned)(c->in[0].dim[0] * g.heads * g.blocks);
  attention_forward<T, DP><<<blocks, ATTENTION_THREADS, bytes, stream>>>(
      (const uint16_t *)c->in[0].data, (uint16_t *)c->out[0].data, (float *)c->out[1].data, g);
  return brim_cuda_launched("attention");
}

template <typename T>
static brim_status forward_half(const brim_op_call *c, const attention_geo &g, cudaStream_t s) {
  if (g.d <= 16) return forward_launch<T, 16>(c, g, s);
  if (g.d <= 32) return forward_launch<T, 32>(c, g, s);
  if (g.d <= 64) return forward_launch<T, 64>(c, g, s);
  return forward_launch<T, 128>(c, g, s);
}

static brim_status attention_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  cudaStream_t s = (cudaStream_t)stream;
  attention_geo g = geometry(c, &c->out[0]);
  if (c->in[0].dtype == BRIM_BF16) return forward_half<__nv_bfloat16>(c, g, s);
  if (c->in[0].dtype == BRIM_F16) return forward_half<__half>(c, g, s);
  return attention_f32_forward(c, g, s);
}

template <typename T>
static brim_status backward_half(const brim_op_call *c, const attention_geo &g, cudaStream_t s) {
  if (whole_backward(c, &g)) {
    if (g.d <= 16) return attention_bwd_whole<T, 16>(c, g, s);
    if (g.d <= 32) return attention_bwd_whole<T, 32>(c, g, s);
    return attention_bwd_whole<T, 64>(c, g, s);
  }
  BRIM_TRY(attention_delta<T>(c, g, s));
  if (g.d <= 16) return attention_bwd_pieces<T, 16>(c, g, s);
  if (g.d <= 32) return attention_bwd_pieces<T, 32>(c, g, s);
  if (g.d <= 64) return attention_bwd_pieces<T, 64>(c, g, s);
  return attention_bwd_pieces<T, 128>(c, g, s);
}

static brim_status attention_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  cudaStream_t s = (cudaStream_t)stream;
  attention_geo g = geometry(c, &c->in[0]);
  if (c->in[0].dtype == BRIM_BF16) return backward_half<__nv_bfloat16>(c, g, s);
  if (c->in[0].dtype == BRIM_F16) return backward_half<__half>(c, g, s);
  BRIM_TRY(attention_delta<float>(c, g, s));
  return attention_f32_backward(c, g, s);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_ATTENTION, attention_validate, attention_prepare, attention_run, NULL},
    {BRIM_OP_ATTENTION_BWD, attention_bwd_validate, attention_prepare, attention_bwd_run, NULL},
};

const brim_op_family brim_cuda_attention_ops = {rows, sizeof rows / sizeof *rows};