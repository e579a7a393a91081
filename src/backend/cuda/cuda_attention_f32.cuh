// Attention in f32 by plain multiply-adds, forward and gradient, any L and heads up to 128. Part of
// cuda_attention.cu. G = DP / 16 neighbouring threads share a row, each with 16 of its values: the
// four float4 at G i + slice, so that the slices of a row in shared memory fall into other banks.
#ifndef BRIM_BACKEND_CUDA_ATTENTION_F32_CUH_
#define BRIM_BACKEND_CUDA_ATTENTION_F32_CUH_

#include "backend/cuda/cuda_attention_int.cuh"

enum { F32_TILE = 32 };  // rows of the other side in shared memory at a time

// Index of value e of float4 i of a slice.
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

// A tile of F32_TILE rows, zeros where there are none.
template <int DP>
__device__ static inline void f32_tile(float *dst, const float *src, int64_t stride, int valid,
                                       int d) {
  for (int i = (int)threadIdx.x; i < F32_TILE * DP; i += ATTENTION_THREADS) {
    int r = i / DP, col = i % DP;
    dst[i] = r < valid && col < d ? src[r * stride + col] : 0.0f;
  }
}

// Product of two rows, the same in all threads that share them.
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

// Rows are keys; queries pass by.
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

// Rows are queries; keys pass by.
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
static brim_status f32_forward(const brim_op_call *c, const attention_geo &any, cudaStream_t s) {
  attention_geo g = f32_geometry<DP>(any);
  unsigned blocks = (unsigned)(c->in[0].dim[0] * g.heads * g.blocks);
  f32_forward_kernel<DP><<<blocks, ATTENTION_THREADS, 0, s>>>(
      (const float *)c->in[0].data, (float *)c->out[0].data, (float *)c->out[1].data, g);
  return brim_cuda_launched("attention");
}

template <int DP>
static brim_status f32_backward(const brim_op_call *c, const attention_geo &any, cudaStream_t s) {
  attention_geo g = f32_geometry<DP>(any);
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

#endif  // BRIM_BACKEND_CUDA_ATTENTION_F32_CUH_
