// Copies samples of a resident set into a batch, by sample number. Memory bound. The unit of a copy is 16
// bytes if all addresses and sizes are multiples of 16, else 4 or 1.
#ifndef BRIM_DATA_GATHER_CUH_
#define BRIM_DATA_GATHER_CUH_

#include <cuda_runtime.h>

#include "data/transform/data_augment.h"

// Thread u copies units u, u + 256, ... of its block's part: four loads are in flight at once, which
// keeps the memory of an H200 busy.
enum { GATHER_THREADS = 256, GATHER_EACH = 4 };

typedef struct gather_task {
  const void *from;
  void *to;
  const uint64_t *index;  // sample number of each row; NULL = row r is sample r
  int64_t rows, capacity;
  uint64_t units;  // units of a sample
  uint64_t total;  // units x capacity x views
} gather_task;

__device__ static inline uint64_t gather_divide(uint64_t a, uint64_t b) {
  // A 64-bit division takes several times as long as a 32-bit one.
  if (((a | b) >> 32) == 0) return (uint32_t)a / (uint32_t)b;
  return a / b;
}

template <typename T>
__global__ void __launch_bounds__(GATHER_THREADS) gather_kernel(const gather_task t) {
  uint64_t at = (uint64_t)blockIdx.x * (GATHER_THREADS * GATHER_EACH) + threadIdx.x;
  const uint64_t stride = (uint64_t)gridDim.x * (GATHER_THREADS * GATHER_EACH);
  for (; at < t.total; at += stride) {
    T value[GATHER_EACH];
#pragma unroll
    for (int k = 0; k < GATHER_EACH; k++) {
      uint64_t u = at + (uint64_t)(k * GATHER_THREADS);
      value[k] = T();
      if (u >= t.total) continue;
      uint64_t item = gather_divide(u, t.units), within = u - item * t.units;
      uint64_t row = item < (uint64_t)t.capacity
                         ? item
                         : item - gather_divide(item, (uint64_t)t.capacity) * (uint64_t)t.capacity;
      if (row < (uint64_t)t.rows) {
        uint64_t place = t.index ? t.index[row] : row;
        value[k] = ((const T *)t.from)[place * t.units + within];
      }
    }
#pragma unroll
    for (int k = 0; k < GATHER_EACH; k++) {
      uint64_t u = at + (uint64_t)(k * GATHER_THREADS);
      if (u < t.total) ((T *)t.to)[u] = value[k];
    }
  }
}

template <typename T>
static inline cudaError_t gather_launch(gather_task t, size_t bytes, int64_t items,
                                        cudaStream_t stream) {
  t.units = bytes / sizeof(T);
  t.total = t.units * (uint64_t)items;
  if (t.total == 0) return cudaSuccess;
  uint64_t blocks = (t.total + GATHER_THREADS * GATHER_EACH - 1) / (GATHER_THREADS * GATHER_EACH);
  if (blocks > 1u << 30) blocks = 1u << 30;
  gather_kernel<T><<<(unsigned)blocks, GATHER_THREADS, 0, stream>>>(t);
  return cudaGetLastError();
}

// Copies t.rows samples of `bytes` each, and repeats them for every view.
static inline cudaError_t gather_rows(gather_task t, size_t bytes, int views, cudaStream_t stream) {
  uintptr_t mask = (uintptr_t)t.from | (uintptr_t)t.to | (uintptr_t)bytes;
  int64_t items = t.capacity * views;
  if (mask % 16 == 0) return gather_launch<uint4>(t, bytes, items, stream);
  if (mask % 4 == 0) return gather_launch<uint32_t>(t, bytes, items, stream);
  return gather_launch<uint8_t>(t, bytes, items, stream);
}

static inline cudaError_t gather_samples(const brim_augment_batch *b, size_t sample_bytes,
                                         int views, cudaStream_t stream) {
  const uint64_t *index = b->in_order ? NULL : b->index;
  gather_task t = {b->inputs, b->out, index, b->rows, b->capacity, 0, 0};
  return gather_rows(t, sample_bytes, views < 1 ? 1 : views, stream);
}

static inline cudaError_t gather_targets(const brim_augment_batch *b, cudaStream_t stream) {
  gather_task t = {b->targets, b->out_targets, b->index, b->rows, b->capacity, 0, 0};
  return gather_rows(t, b->target_bytes, 1, stream);
}

// Copies `bytes` with all threads of a block; from NULL: writes zeros.
__device__ static inline void gather_block(unsigned char *to, const unsigned char *from,
                                           size_t bytes) {
  if ((((uintptr_t)to | (uintptr_t)from | (uintptr_t)bytes) & 3) == 0) {
    for (size_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) {
      ((uint32_t *)to)[i] = from ? ((const uint32_t *)from)[i] : 0;
    }
    return;
  }
  for (size_t i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = from ? from[i] : 0;
}

#endif  // BRIM_DATA_GATHER_CUH_
