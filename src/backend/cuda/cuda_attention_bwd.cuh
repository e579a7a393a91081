// The gradient of attention on tensor cores, without atomics: probabilities are made again from
// lse, once by warps that own 16 keys and walk over the queries (dk, dv), once by warps that own 16
// queries and walk over the keys (dq). Part of cuda_attention.cu.
// 14 N A L^2 D FLOPs and 2 N A L^2 exponentials (5 matrix products, two of them made twice),
// N L (3 + 1 + 1 + 3) C 2 bytes. Transformer 3/16 at batch 4096: 27 GFLOP, 242 M exponentials =
// 68 us, 180 MB = 43 us on an H200; 130 to 200 us expected.
#ifndef BRIM_BACKEND_CUDA_ATTENTION_BWD_CUH_
#define BRIM_BACKEND_CUDA_ATTENTION_BWD_CUH_

#include "backend/cuda/cuda_attention_int.cuh"

//---------------------------------- sums of dy y ----------------------------------

// One row of one head: sum over its d values of y dy.
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

// delta (N, A, L)
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

//---------------------------------- one tile ----------------------------------

template <int DP>
__device__ static inline void attention_zero(float acc[DP / 8][4]) {
#pragma unroll
  for (int n = 0; n < DP / 8; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;
}

// A operand of a 16 x DP tile: kept in registers if there is room, else read again at each use.
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

// `groups` times 16 queries in shared memory, with the gradient of their outputs. stat holds for every
// query lse log2(e) and delta; queries that do not exist have infinity and 0, and so give nothing.
struct attention_queries {
  const uint16_t *q, *dy;
  const float2 *stat;
  int groups;
};

// Keys and values in shared memory.
struct attention_keys {
  const uint16_t *k, *v;
  int count;
};

// One tile of 16 keys (at k, v) against queries. Scores are (key, query).
template <typename T, int DP>
__device__ static inline void attention_bwd_keys(float dk[DP / 8][4], float dv[DP / 8][4],
                                                 attention_tile<DP> &k, attention_tile<DP> &v,
                                                 attention_queries against, float scale2) {
  constexpr int LD = DP + 8;
  const uint16_t *q = against.q, *dy = against.dy;
  const float2 *stat = against.stat;
  int t = (int)threadIdx.x & 3;
  for (int group = 0; group < against.groups; group++) {
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

// One tile of 16 queries against keys. Scores are (query, key); s0 and s1 are the statistics of rows g
// and g + 8.
template <typename T, int DP>
__device__ static inline void attention_bwd_queries(float dq[DP / 8][4], attention_tile<DP> &q,
                                                    attention_tile<DP> &dy, attention_keys against,
                                                    float2 s0, float2 s1, float scale2) {
  constexpr int LD = DP + 8;
  const uint16_t *k = against.k, *v = against.v;
  int keys = against.count;
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
    if (key + 16 > keys) {  // 2^-lse of a key that does not exist may be anything
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

//---------------------------------- a head in one block ----------------------------------

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
  // the first half of the tasks are tiles of keys, the second tiles of queries
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

//---------------------------------- a head in pieces ----------------------------------

// Statistics of rows [first, first + rows), those that exist.
__device__ static inline void attention_stat(float2 *stat, const float *lse, const float *delta,
                                             int first, int rows, int l) {
  for (int r = (int)threadIdx.x; r < rows; r += ATTENTION_THREADS) {
    bool inside = first + r < l;
    stat[r] = make_float2(inside ? lse[first + r] * ATTENTION_LOG2E : INFINITY,
                          inside ? delta[first + r] : 0.0f);
  }
}

// The block's 64 keys against all queries, `chunk` at a time.
template <typename T, int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    attention_bwd_keys_kernel(const uint16_t *dy, const uint16_t *qkv, const float *lse,
                              const float *delta, uint16_t *dqkv, attention_geo g) {
  constexpr int LD = DP + 8, OWN = ATTENTION_WARPS * ATTENTION_TILE;
  extern __shared__ __align__(16) uint16_t shared[];
  attention_head h = attention_locate(g);
  uint16_t *k_s = shared, *v_s = k_s + OWN * LD, *q_s = v_s + OWN * LD, *y_s = q_s + g.chunk * LD;
  float2 *stat = (float2 *)(y_s + g.chunk * LD);
  const uint16_t *head = qkv + h.qkv;
  int64_t stride = 3 * g.c;
  int first = h.piece * OWN, row = ((int)threadIdx.x >> 5) * ATTENTION_TILE;
  const uint16_t *own = head + first * stride;
  attention_load<DP>(k_s, own + g.c, stride, OWN, g.l - first, g.d);
  attention_load<DP>(v_s, own + 2 * g.c, stride, OWN, g.l - first, g.d);
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

// The block's 64 queries against all keys, `chunk` at a time.
template <typename T, int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    attention_bwd_queries_kernel(const uint16_t *dy, const uint16_t *qkv, const float *lse,
                                 const float *delta, uint16_t *dqkv, attention_geo g) {
  constexpr int LD = DP + 8, OWN = ATTENTION_WARPS * ATTENTION_TILE;
  extern __shared__ __align__(16) uint16_t shared[];
  attention_head h = attention_locate(g);
  uint16_t *q_s = shared, *y_s = q_s + OWN * LD, *k_s = y_s + OWN * LD, *v_s = k_s + g.chunk * LD;
  float2 *stat = (float2 *)(v_s + g.chunk * LD);
  const uint16_t *head = qkv + h.qkv;
  int64_t stride = 3 * g.c;
  int first = h.piece * OWN, row = ((int)threadIdx.x >> 5) * ATTENTION_TILE;
  int lane = (int)threadIdx.x & 31;
  attention_load<DP>(q_s, head + first * stride, stride, OWN, g.l - first, g.d);
  attention_load<DP>(y_s, dy + h.y + first * g.c, g.c, OWN, g.l - first, g.d);
  attention_stat(stat, lse + h.lse, delta + h.lse, first, OWN, g.l);
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
  constexpr int OWN = ATTENTION_WARPS * ATTENTION_TILE;
  g.rounds = 1;
  g.chunk = 64;
  g.blocks = (g.l + OWN - 1) / OWN;
  size_t rows = (size_t)(2 * OWN + 2 * g.chunk);
  size_t bytes = rows * (DP + 8) * sizeof(uint16_t) + OWN * sizeof(float2);
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

#endif  // BRIM_BACKEND_CUDA_ATTENTION_BWD_CUH_
