// What the kernels of PPO share: rows of a few numbers by way of shared memory, in any type that activations
// have, and sums in the order of env_ppo_row.h.
#ifndef BRIM_ENV_PPO_CUH_
#define BRIM_ENV_PPO_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "env/env_ppo_row.h"

enum { LANES = BRIM_PPO_LANES, MERGE = BRIM_PPO_MERGE_LANES };

//---------------------------------- types of activations ----------------------------------

__device__ static float ppo_load(const float *p) { return *p; }
__device__ static float ppo_load(const __nv_bfloat16 *p) { return __bfloat162float(*p); }
__device__ static float ppo_load(const __half *p) { return __half2float(*p); }
__device__ static void ppo_store(float *p, float x) { *p = x; }
__device__ static void ppo_store(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }
__device__ static void ppo_store(__half *p, float x) { *p = __float2half_rn(x); }

// Rows of a block of threads in shared memory. An odd stride keeps threads off each other's banks.
struct ppo_tile {
  int32_t width, stride;
  bool whole;  // the tensor is aligned for accesses of 16 bytes
};

static ppo_tile ppo_tile_of(const brim_tensor *t, const void *second) {
  ppo_tile tile;
  tile.width = (int32_t)t->dim[1];
  tile.stride = tile.width | 1;
  tile.whole = ((uintptr_t)t->data | (uintptr_t)second) % 16 == 0;
  return tile;
}

static size_t ppo_tile_bytes(ppo_tile t) { return (size_t)(LANES * t.stride) * sizeof(float); }

// `count` numbers from the first of a tile on.
template <class T>
__device__ static void ppo_fetch(const T *from, int32_t count, ppo_tile tile, float *room) {
  const int32_t each = 16 / (int32_t)sizeof(T), vectors = tile.whole ? count / each : 0;
  for (int32_t v = (int32_t)threadIdx.x; v < vectors; v += LANES) {
    const uint4 pack = __ldcs((const uint4 *)from + v);
    const T *numbers = (const T *)&pack;
    if (tile.width == tile.stride) {
#pragma unroll
      for (int32_t i = 0; i < each; i += 4) {
        ((float4 *)room)[(v * each + i) / 4] =
            make_float4(ppo_load(&numbers[i]), ppo_load(&numbers[i + 1]), ppo_load(&numbers[i + 2]),
                        ppo_load(&numbers[i + 3]));
      }
      continue;
    }
    int32_t row = v * each / tile.width, column = v * each - row * tile.width;
#pragma unroll
    for (int32_t i = 0; i < each; i++) {
      room[row * tile.stride + column] = ppo_load(&numbers[i]);
      if (++column == tile.width) {
        column = 0;
        row++;
      }
    }
  }
  for (int32_t e = vectors * each + (int32_t)threadIdx.x; e < count; e += LANES) {
    const int32_t row = e / tile.width;
    room[row * tile.stride + e - row * tile.width] = ppo_load(&from[e]);
  }
}

template <class T>
__device__ static void ppo_put(T *to, int32_t count, ppo_tile tile, const float *room) {
  const int32_t each = 16 / (int32_t)sizeof(T), vectors = tile.whole ? count / each : 0;
  for (int32_t v = (int32_t)threadIdx.x; v < vectors; v += LANES) {
    uint4 pack;
    T *numbers = (T *)&pack;
    if (tile.width == tile.stride) {
#pragma unroll
      for (int32_t i = 0; i < each; i += 4) {
        const float4 four = ((const float4 *)room)[(v * each + i) / 4];
        ppo_store(&numbers[i], four.x);
        ppo_store(&numbers[i + 1], four.y);
        ppo_store(&numbers[i + 2], four.z);
        ppo_store(&numbers[i + 3], four.w);
      }
    } else {
      int32_t row = v * each / tile.width, column = v * each - row * tile.width;
#pragma unroll
      for (int32_t i = 0; i < each; i++) {
        ppo_store(&numbers[i], room[row * tile.stride + column]);
        if (++column == tile.width) {
          column = 0;
          row++;
        }
      }
    }
    ((uint4 *)to)[v] = pack;
  }
  for (int32_t e = vectors * each + (int32_t)threadIdx.x; e < count; e += LANES) {
    const int32_t row = e / tile.width;
    ppo_store(&to[e], room[row * tile.stride + e - row * tile.width]);
  }
}

// A thread's row as the arithmetic takes it: in registers for few actions (the mask hides those
// past the last), else where it lies.
template <int ACT>
struct ppo_row {
  float x[ACT];
  __device__ ppo_row(float *at, int32_t act) {
#pragma unroll
    for (int a = 0; a < ACT; a++) x[a] = a < act ? at[a] : 0.0f;
  }
  __device__ float *numbers() { return x; }
  __device__ static int32_t count(int32_t) { return ACT; }
  __device__ void back(float *at, int32_t act) const {
#pragma unroll
    for (int a = 0; a < ACT; a++) {
      if (a < act) at[a] = x[a];
    }
  }
};

template <>
struct ppo_row<0> {
  float *x;
  __device__ ppo_row(float *at, int32_t) : x(at) {}
  __device__ float *numbers() { return x; }
  __device__ static int32_t count(int32_t act) { return act; }
  __device__ void back(float *, int32_t) const {}
};

//---------------------------------- sums ----------------------------------

// The threads' sums, in thread 0. THREADS of them: 128 or 256; room for half as many sets.
template <int THREADS, int COUNT>
__device__ static void ppo_tree(double (&sum)[COUNT], double (*room)[COUNT]) {
  const int lane = (int)threadIdx.x;
#pragma unroll
  for (int width = THREADS / 2; width >= 32; width /= 2) {
    __syncthreads();
    if (lane >= width && lane < 2 * width) {
#pragma unroll
      for (int k = 0; k < COUNT; k++) room[lane - width][k] = sum[k];
    }
    __syncthreads();
    if (lane < width) {
#pragma unroll
      for (int k = 0; k < COUNT; k++) sum[k] += room[lane][k];
    }
  }
  if (lane >= 32) return;
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) sum[k] += __shfl_down_sync(0xffffffffu, sum[k], width);
  }
}

// The sum of parts, in thread 0 of MERGE.
__device__ static double ppo_merge(const double *parts, int64_t count, double (*room)[1]) {
  double sum[1] = {0};
  for (int64_t i = threadIdx.x; i < count; i += MERGE) sum[0] += parts[i];
  ppo_tree<MERGE, 1>(sum, room);
  return sum[0];
}

#endif  // BRIM_ENV_PPO_CUH_
