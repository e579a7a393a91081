// A minibatch from inputs to gradients in one kernel, in f32: the phases of rl_fused_update.cuh, with FMA instead
// of tensor cores. A block takes tiles of 32 rows; a thread computes some rows and columns of every product.
#ifndef BRIM_RL_FUSED_F32_CUH_
#define BRIM_RL_FUSED_F32_CUH_

#include "rl/rl_fused_update.cuh"

enum { PLAIN_M = 32, PLAIN_K = BRIM_FUSED_MAX_INPUTS };

struct plain_args {
  const float *weight[BRIM_FUSED_LAYERS], *bias[BRIM_FUSED_LAYERS], *input;
  int32_t inputs, hidden, outputs, relu, listed;
  int64_t count;
  fused_loss loss;
  float *grads;
  int64_t grads_each;
  double *sums;
  float *values;  // (count, outputs), for calls that compute only outputs
};

template <int H>
struct plain_shared {
  float w0[H * (PLAIN_K + 1)], w1[H * (H + 1)], w2[FUSED_OUT * (H + 1)];
  float bias[2 * H + FUSED_OUT];
  float x[PLAIN_M * (PLAIN_K + 1)], a[PLAIN_M * (H + 1)], b[PLAIN_M * (H + 1)];
  float out[PLAIN_M * FUSED_L];
  double sums[PLAIN_M][FUSED_METRICS];
};

__device__ static void plain_load(float *to, const float *from, int rows, int columns, int all,
                                  int pitch) {
  for (int i = (int)threadIdx.x; i < all * (pitch - 1); i += FUSED_THREADS) {
    const int row = i / (pitch - 1), column = i % (pitch - 1);
    const bool in = row < rows && column < columns;
    to[row * pitch + column] = in ? from[(int64_t)row * columns + column] : 0.0f;
  }
}

__device__ static float plain_act(float x, int relu) { return relu ? fused_relu(x) : tanhf(x); }

__device__ static float plain_slope(float y, float d, int relu) {
  if (relu) return y > 0.0f ? d : 0.0f;
  return d * __fmaf_rn(-y, y, 1.0f);
}

// y = act(x w' + bias): x (32, K), w (H, K), y (32, H). A warp computes 4 rows, a lane every 32nd column.
template <int H, int K>
__device__ static void plain_forward(const float *x, const float *w, const float *bias, float *y,
                                     int relu) {
  enum { EACH = H / 32 };
  const int row = (int)threadIdx.x / 32 * 4, lane = (int)threadIdx.x & 31;
  float sums[4][EACH];
  for (int j = 0; j < EACH; j++) {
    for (int i = 0; i < 4; i++) sums[i][j] = bias[lane + 32 * j];
  }
#pragma unroll 4
  for (int k = 0; k < K; k++) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const float v = w[(lane + 32 * j) * (K + 1) + k];
#pragma unroll
      for (int i = 0; i < 4; i++) sums[i][j] = __fmaf_rn(x[(row + i) * (K + 1) + k], v, sums[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      y[(row + i) * (H + 1) + lane + 32 * j] = plain_act(sums[i][j], relu);
    }
  }
}

// y = (d w) act'(y): d (32, C), w (C, H), y (32, H). A thread has the same numbers of y as in plain_forward.
template <int H, int C>
__device__ static void plain_back(const float *d, int d_pitch, const float *w, float *y, int relu) {
  enum { EACH = H / 32 };
  const int row = (int)threadIdx.x / 32 * 4, lane = (int)threadIdx.x & 31;
  float sums[4][EACH] = {};
#pragma unroll 4
  for (int c = 0; c < C; c++) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const float v = w[c * (H + 1) + lane + 32 * j];
#pragma unroll
      for (int i = 0; i < 4; i++) sums[i][j] = __fmaf_rn(d[(row + i) * d_pitch + c], v, sums[i][j]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      float *at = y + (row + i) * (H + 1) + lane + 32 * j;
      *at = plain_slope(*at, sums[i][j], relu);
    }
  }
}

// sums += d' x over the rows of the tile. The result has 16 * ROWS rows and 16 * COLUMNS columns.
template <int ROWS, int COLUMNS>
__device__ static void plain_rows(float (&sums)[ROWS][COLUMNS], const float *d, int d_pitch,
                                  const float *x, int x_pitch) {
  const int row = (int)threadIdx.x / 16 * ROWS, column = (int)threadIdx.x % 16;
#pragma unroll 2
  for (int r = 0; r < PLAIN_M; r++) {
    float v[COLUMNS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) v[j] = x[r * x_pitch + column + 16 * j];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      const float u = d[r * d_pitch + row + i];
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) sums[i][j] = __fmaf_rn(u, v[j], sums[i][j]);
    }
  }
}

template <int ROWS, int COLUMNS>
__device__ static void plain_give(const float (&sums)[ROWS][COLUMNS], float *to, int rows,
                                  int columns) {
  const int row = (int)threadIdx.x / 16 * ROWS, column = (int)threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      const int c = column + 16 * j;
      if (row + i < rows && c < columns) to[(row + i) * columns + c] = sums[i][j];
    }
  }
}

// Sums the thread's column of d over the rows of the tile.
__device__ static float plain_column(const float *d, int pitch, int columns) {
  float sum = 0.0f;
  if ((int)threadIdx.x >= columns) return sum;
  for (int r = 0; r < PLAIN_M; r++) sum += d[r * pitch + threadIdx.x];
  return sum;
}

template <int H>
struct plain_grads {
  float w0[H / 16][PLAIN_K / 16], w1[H / 16][H / 16], w2[1][H / 16];
  float b0, b1, b2;
};

template <int H>
__device__ static void plain_read(const plain_args &w, plain_shared<H> &s, int64_t first) {
  for (int n = (int)threadIdx.x; n < PLAIN_M * PLAIN_K; n += FUSED_THREADS) {
    const int row = n / PLAIN_K, column = n % PLAIN_K;
    const int64_t i = first + row;
    float v = 0.0f;
    if (i < w.count && column < w.inputs) {
      const int64_t from =
          w.listed ? (int64_t)w.loss.rows[w.loss.agents.number((uint32_t)i)] * w.loss.agents.by +
                         w.loss.agents.rest((uint32_t)i)
                   : i;
      v = w.input[from * w.inputs + column];
    }
    s.x[row * (PLAIN_K + 1) + column] = v;
  }
}

// Computes the outputs: a thread has a row and two columns.
template <int H>
__device__ static void plain_outputs(plain_shared<H> &s) {
  const int row = (int)threadIdx.x / 8, column = (int)threadIdx.x % 8 * 2;
  for (int c = column; c < column + 2; c++) {
    float sum = s.bias[2 * H + c];
    for (int k = 0; k < H; k++) sum = __fmaf_rn(s.b[row * (H + 1) + k], s.w2[c * (H + 1) + k], sum);
    s.out[row * FUSED_L + c] = sum;
  }
}

template <int H>
__device__ static void plain_give_all(const plain_args &w, const plain_grads<H> &f) {
  const fused_places p = fused_places_of(w.inputs, w.hidden, w.outputs, true);
  float *to = w.grads + (int64_t)blockIdx.x * w.grads_each;
  const int t = (int)threadIdx.x;
  plain_give(f.w0, to + p.weight[0], w.hidden, w.inputs);
  plain_give(f.w1, to + p.weight[1], w.hidden, w.hidden);
  plain_give(f.w2, to + p.weight[2], w.outputs, w.hidden);
  if (t < w.hidden) to[p.bias[0] + t] = f.b0;
  if (t < w.hidden) to[p.bias[1] + t] = f.b1;
  if (t < w.outputs) to[p.bias[2] + t] = f.b2;
}

template <int H>
__device__ static void plain_begin(const plain_args &w, plain_shared<H> &s) {
  plain_load(s.w0, w.weight[0], w.hidden, w.inputs, H, PLAIN_K + 1);
  plain_load(s.w1, w.weight[1], w.hidden, w.hidden, H, H + 1);
  plain_load(s.w2, w.weight[2], w.outputs, w.hidden, FUSED_OUT, H + 1);
  for (int i = (int)threadIdx.x; i < 2 * H + FUSED_OUT; i += FUSED_THREADS) {
    const int layer = i / H, at = i % H;
    s.bias[i] = at < (layer < 2 ? w.hidden : w.outputs) ? w.bias[layer][at] : 0.0f;
  }
  for (int i = (int)threadIdx.x; i < PLAIN_M * FUSED_METRICS; i += FUSED_THREADS) {
    s.sums[i / FUSED_METRICS][i % FUSED_METRICS] = 0;
  }
}

template <int H>
__device__ static void plain_all_back(const plain_args &w, plain_shared<H> &s, plain_grads<H> &f) {
  plain_rows(f.w2, s.out, FUSED_L, s.b, H + 1);
  f.b2 += plain_column(s.out, FUSED_L, FUSED_OUT);
  plain_back<H, FUSED_OUT>(s.out, FUSED_L, s.w2, s.b, w.relu);
  __syncthreads();
  plain_rows(f.w1, s.b, H + 1, s.a, H + 1);
  f.b1 += plain_column(s.b, H + 1, H);
  plain_back<H, H>(s.b, H + 1, s.w1, s.a, w.relu);
  __syncthreads();
  plain_rows(f.w0, s.a, H + 1, s.x, PLAIN_K + 1);
  f.b0 += plain_column(s.a, H + 1, H);
}

// OUTPUTS: computes only outputs and writes them to `values`.
template <int H, bool OUTPUTS>
static __global__ void __launch_bounds__(FUSED_THREADS, 1)
    plain_kernel(const __grid_constant__ plain_args w) {
  extern __shared__ __align__(16) unsigned char fused_room[];
  plain_shared<H> &s = *(plain_shared<H> *)fused_room;
  plain_grads<H> f = {};
  plain_begin(w, s);
  for (int64_t first = (int64_t)blockIdx.x * PLAIN_M; first < w.count;
       first += (int64_t)gridDim.x * PLAIN_M) {
    __syncthreads();
    plain_read(w, s, first);
    __syncthreads();
    plain_forward<H, PLAIN_K>(s.x, s.w0, s.bias, s.a, w.relu);
    __syncthreads();
    plain_forward<H, H>(s.a, s.w1, s.bias + H, s.b, w.relu);
    __syncthreads();
    plain_outputs(s);
    __syncthreads();
    if constexpr (OUTPUTS) {
      for (int n = (int)threadIdx.x; n < PLAIN_M * w.outputs; n += FUSED_THREADS) {
        const int row = n / w.outputs;
        if (first + row < w.count) {
          w.values[first * w.outputs + n] = s.out[row * FUSED_L + n - row * w.outputs];
        }
      }
    } else {
      const fused_scales scales(w.loss);
      const int row = (int)threadIdx.x;
      if (row < PLAIN_M) {
        const uint32_t i = (uint32_t)(first + row);
        fused_case c = {};
        if (first + row < scales.valid) {
          c = fused_case_of(w.loss, i, w.loss.rows[w.loss.agents.number(i)]);
        }
        fused_take_loss<false, 1>(w.loss, scales, c, first + row, s.out + row * FUSED_L,
                                  s.sums[row]);
      }
      __syncthreads();
      plain_all_back(w, s, f);
    }
  }
  if constexpr (!OUTPUTS) {
    plain_give_all(w, f);
    __syncthreads();
    if (threadIdx.x >= FUSED_METRICS) return;
    double sum = 0;
    for (int row = 0; row < PLAIN_M; row++) sum += s.sums[row][threadIdx.x];
    w.sums[(int64_t)blockIdx.x * FUSED_METRICS + threadIdx.x] = sum;
  }
}

#endif  // BRIM_RL_FUSED_F32_CUH_
