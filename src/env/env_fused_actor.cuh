// The actor of a fused rollout (env_fused_rollout.cuh): its weights in shared memory, and its outputs for 32
// rows by one warp, whose activations stay in registers. Knows no environment.
#ifndef BRIM_ENV_FUSED_ACTOR_CUH_
#define BRIM_ENV_FUSED_ACTOR_CUH_

#include "backend/backend_mma.cuh"
#include "env/env_fused.h"

enum {
  ROLLOUT_ROWS = 32,                    // of a tile: a lane for each, two products of 16
  ROLLOUT_OUTPUTS = BRIM_FUSED_MAX_ACT  // columns of the last product
};

// K inputs and H units in both hidden layers; a smaller network leaves zeros. Rows are 8 numbers longer
// than they need be: the 8 rows that ldmatrix reads at once meet no bank twice.
template <int K, int H>
struct rollout_net {
  enum { TILE = K + 8, WIDE = H + 8 };  // from one row to the next: of w0 and inputs, of w1 and w2
  alignas(16) uint16_t w0[H * TILE], w1[H * WIDE], w2[ROLLOUT_OUTPUTS * WIDE];
  float b0[H], b1[H], b2[ROLLOUT_OUTPUTS];
};

//---------------------------------- weights ----------------------------------

// `from` is (rows, columns); by all threads of the block.
template <int PITCH>
__device__ static inline void rollout_fill(uint16_t *to, int32_t all, const void *from,
                                           int32_t rows, int32_t columns) {
  for (int32_t i = (int32_t)threadIdx.x; i < all * PITCH; i += (int32_t)blockDim.x) {
    const int32_t row = i / PITCH, column = i - row * PITCH;
    const bool there = row < rows && column < columns;
    to[i] = there ? ((const uint16_t *)from)[row * columns + column] : (uint16_t)0;
  }
}

__device__ static inline void rollout_biases(float *to, int32_t all, const void *from,
                                             int32_t count) {
  for (int32_t i = (int32_t)threadIdx.x; i < all; i += (int32_t)blockDim.x) {
    to[i] = i < count ? brim_unpack<__nv_bfloat16>(((const uint16_t *)from)[i]).x : 0.0f;
  }
}

// `act`: outputs that are read, the first ones.
template <int K, int H>
__device__ static void rollout_weights(rollout_net<K, H> *net, const brim_fused_net &from,
                                       int32_t act) {
  rollout_fill<K + 8>(net->w0, H, from.weight[0], from.hidden, from.inputs);
  rollout_fill<H + 8>(net->w1, H, from.weight[1], from.hidden, from.hidden);
  rollout_fill<H + 8>(net->w2, ROLLOUT_OUTPUTS, from.weight[2], act, from.hidden);
  rollout_biases(net->b0, H, from.bias[0], from.hidden);
  rollout_biases(net->b1, H, from.bias[1], from.hidden);
  rollout_biases(net->b2, ROLLOUT_OUTPUTS, from.bias[2], act);
}

//---------------------------------- outputs ----------------------------------

template <bool TANH>
__device__ static inline float rollout_act(float x) {
  if (!TANH) return x < 0.0f ? 0.0f : x;  // NaN stays NaN
  return brim_tanh_fast(x);
}

// Sums of 32 rows and 16 columns: [16 rows][8 columns][as a product leaves them].
typedef float rollout_sums[2][2][4];

__device__ static inline void rollout_begin(rollout_sums c, const float *bias) {
  const int32_t column = 2 * ((int32_t)threadIdx.x & 3);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float2 b = *(const float2 *)(bias + 8 * h + column);
#pragma unroll
    for (int m = 0; m < 2; m++) {
      c[m][h][0] = c[m][h][2] = b.x;
      c[m][h][1] = c[m][h][3] = b.y;
    }
  }
}

// Adds a product over 16 inputs; w: 16 columns.
__device__ static inline void rollout_product(rollout_sums c, const uint32_t (&a)[2][4],
                                              const uint16_t *w, int pitch) {
  uint32_t b[4];
  brim_load_b(b, w, pitch);
#pragma unroll
  for (int m = 0; m < 2; m++) {
    brim_mma<__nv_bfloat16>(c[m][0], a[m], b[0], b[1]);
    brim_mma<__nv_bfloat16>(c[m][1], a[m], b[2], b[3]);
  }
}

// What the next product reads.
template <bool TANH>
__device__ static inline void rollout_pack(uint32_t (&a)[2][4], const rollout_sums c) {
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *v = c[m][i >> 1] + 2 * (i & 1);
      a[m][i] = brim_pack<__nv_bfloat16>(rollout_act<TANH>(v[0]), rollout_act<TANH>(v[1]));
    }
  }
}

// The first layer's activations of a tile. Inputs are read once where registers have room for them.
template <int K, int H, bool TANH>
__device__ static inline void rollout_first(const rollout_net<K, H> *net, const uint16_t *tile,
                                            uint32_t (&h)[H / 16][2][4]) {
  enum { PITCH = K + 8, ONCE = K <= 32 };
  uint32_t x[ONCE ? K / 16 : 1][2][4];
#pragma unroll
  for (int k = 0; ONCE && k < K / 16; k++) {
    brim_load_a(x[k][0], tile + 16 * k, PITCH);
    brim_load_a(x[k][1], tile + 16 * PITCH + 16 * k, PITCH);
  }
#pragma unroll
  for (int j = 0; j < H / 16; j++) {
    rollout_sums c;
    rollout_begin(c, net->b0 + 16 * j);
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
      if (!ONCE) {
        brim_load_a(x[0][0], tile + 16 * k, PITCH);
        brim_load_a(x[0][1], tile + 16 * PITCH + 16 * k, PITCH);
      }
      rollout_product(c, x[ONCE ? k : 0], net->w0 + 16 * j * PITCH + 16 * k, PITCH);
    }
    rollout_pack<TANH>(h[j], c);
  }
}

// Outputs of the 32 rows of `tile` to `strip`, from one row to the next `stride` numbers; it may lie where
// the tile does. The second layer's activations go into the last product 16 columns at a time.
template <int K, int H, bool TANH>
__device__ static inline void rollout_outputs(const rollout_net<K, H> *net, const uint16_t *tile,
                                              float *strip, int32_t stride) {
  const int32_t lane = (int32_t)threadIdx.x & 31, g = lane >> 2, two = 2 * (lane & 3);
  uint32_t h[H / 16][2][4];
  rollout_first<K, H, TANH>(net, tile, h);
  float out[2][4];
#pragma unroll
  for (int m = 0; m < 2; m++) {
    out[m][0] = out[m][2] = net->b2[two];
    out[m][1] = out[m][3] = net->b2[two + 1];
  }
#pragma unroll 1
  for (int j = 0; j < H / 16; j++) {
    rollout_sums c;
    rollout_begin(c, net->b1 + 16 * j);
#pragma unroll
    for (int k = 0; k < H / 16; k++) {
      rollout_product(c, h[k], net->w1 + 16 * j * (H + 8) + 16 * k, H + 8);
    }
    uint32_t a[2][4];
    rollout_pack<TANH>(a, c);
    const uint16_t *w = net->w2 + g * (H + 8) + 16 * j + two;
    const uint32_t b0 = *(const uint32_t *)w, b1 = *(const uint32_t *)(w + 8);
    brim_mma<__nv_bfloat16>(out[0], a[0], b0, b1);
    brim_mma<__nv_bfloat16>(out[1], a[1], b0, b1);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 8; i++) {
    strip[(16 * (i >> 2) + 8 * (i >> 1 & 1) + g) * stride + two + (i & 1)] = out[i >> 2][i & 3];
  }
  __syncwarp();
}

#endif  // BRIM_ENV_FUSED_ACTOR_CUH_
