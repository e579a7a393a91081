// Fetches rows from a mapped file that is page-locked. Every read crosses the bus and takes some
// 1.5 us, so a link of 50 GB/s needs 75 kB in flight. A few multiprocessors sustain that: the grid
// is small and leaves the others to the computation. A warp copies a piece of a row at a time,
// always in full lines of 128 bytes; pieces that are not aligned to 16 bytes go through shared
// memory.
#ifndef BRIM_DATA_FETCH_CUH_
#define BRIM_DATA_FETCH_CUH_

#include <cuda_runtime.h>

#include "data/transform/data_augment.h"

// 16 blocks of 16 warps with four loads of 16 bytes a thread: 512 KiB in flight, seven times what
// the link needs.
enum { FETCH_BLOCKS = 16, FETCH_THREADS = 512, FETCH_WARPS = FETCH_THREADS / 32 };
enum { FETCH_LOADS = 4 };                      // loads of 16 bytes that a thread has in flight
enum { FETCH_PIECE = 32 * 16 * FETCH_LOADS };  // bytes of a row that a warp takes at once

typedef struct fetch_task {
  const unsigned char *from;
  unsigned char *to;
  const uint64_t *row_numbers;  // (rows), in the file
  uint64_t rows, stride, bytes;
  uint64_t pieces;  // pieces of a row
  uint64_t total;   // pieces x capacity
} fetch_task;

// Copies a piece whose source, destination and length are multiples of 16. from NULL: writes zeros.
__device__ static inline void fetch_aligned(unsigned char *to, const unsigned char *from,
                                            uint32_t bytes, uint32_t lane) {
  uint4 value[FETCH_LOADS];
#pragma unroll
  for (uint32_t k = 0; k < FETCH_LOADS; k++) {
    uint32_t at = 16 * (lane + 32 * k);
    value[k] = make_uint4(0, 0, 0, 0);
    if (from && at < bytes) value[k] = *(const uint4 *)(from + at);
  }
#pragma unroll
  for (uint32_t k = 0; k < FETCH_LOADS; k++) {
    uint32_t at = 16 * (lane + 32 * k);
    if (at < bytes) *(uint4 *)(to + at) = value[k];
  }
}

// Copies any piece: loads the aligned units of 16 bytes that hold it into `room` (one unit more than an
// aligned piece has), then shifts. A unit lies in one page, so loading the bytes beside the piece
// is safe.
__device__ static inline void fetch_unaligned(unsigned char *to, const unsigned char *from,
                                              uint32_t bytes, uint32_t lane, uint4 *room) {
  const uint32_t head = (uint32_t)((uintptr_t)from & 15), units = (head + bytes + 15) / 16;
  const uint4 *first = (const uint4 *)(from - head);
  uint4 value[FETCH_LOADS];
#pragma unroll
  for (uint32_t k = 0; k < FETCH_LOADS; k++) {
    uint32_t at = lane + 32 * k;
    value[k] = make_uint4(0, 0, 0, 0);
    if (at < units) value[k] = first[at];
  }
  uint4 last = make_uint4(0, 0, 0, 0);
  if (lane == 0 && units > 32 * FETCH_LOADS) last = first[32 * FETCH_LOADS];
#pragma unroll
  for (uint32_t k = 0; k < FETCH_LOADS; k++) {
    uint32_t at = lane + 32 * k;
    if (at < units) room[at] = value[k];
  }
  if (lane == 0 && units > 32 * FETCH_LOADS) room[32 * FETCH_LOADS] = last;
  __syncwarp();
  uint32_t done = 0;
  if (((uintptr_t)to & 3) == 0) {
    const uint32_t *words = (const uint32_t *)room;
    done = bytes & ~3u;
    for (uint32_t i = 4 * lane; i < done; i += 4 * 32) {
      const uint32_t at = (head + i) / 4, shift = 8 * ((head + i) & 3);
      const uint32_t low = words[at], high = shift ? words[at + 1] : 0;
      *(uint32_t *)(to + i) = __funnelshift_r(low, high, shift);
    }
  }
  const unsigned char *rest = (const unsigned char *)room + head;
  for (uint32_t i = done + lane; i < bytes; i += 32) to[i] = rest[i];
  __syncwarp();
}

template <bool ALIGNED>
__global__ void __launch_bounds__(FETCH_THREADS) fetch_kernel(const fetch_task t) {
  __shared__ uint4 room[ALIGNED ? 1 : FETCH_WARPS][ALIGNED ? 1 : 32 * FETCH_LOADS + 1];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint64_t step = (uint64_t)gridDim.x * FETCH_WARPS;
  for (uint64_t item = (uint64_t)blockIdx.x * FETCH_WARPS + warp; item < t.total; item += step) {
    const uint64_t row = item / t.pieces, begin = (item - row * t.pieces) * FETCH_PIECE;
    const uint64_t left = t.bytes - begin;
    const uint32_t bytes = left < FETCH_PIECE ? (uint32_t)left : (uint32_t)FETCH_PIECE;
    unsigned char *to = t.to + row * t.bytes + begin;
    const unsigned char *from =
        row < t.rows ? t.from + t.row_numbers[row] * t.stride + begin : (const unsigned char *)NULL;
    if (ALIGNED) {
      fetch_aligned(to, from, bytes, lane);
    } else if (from) {
      fetch_unaligned(to, from, bytes, lane, room[ALIGNED ? 0 : warp]);
    } else {
      for (uint32_t i = lane; i < bytes; i += 32) to[i] = 0;
    }
  }
}

static inline cudaError_t fetch_rows(const brim_augment_fetch *f, cudaStream_t stream) {
  fetch_task t = {};
  t.from = (const unsigned char *)f->from;
  t.to = (unsigned char *)f->to;
  t.row_numbers = f->place;
  t.rows = (uint64_t)f->rows;
  t.stride = f->stride;
  t.bytes = f->bytes;
  t.pieces = (t.bytes + FETCH_PIECE - 1) / FETCH_PIECE;
  t.total = t.pieces * (uint64_t)f->capacity;
  if (t.total == 0) return cudaSuccess;
  uint64_t blocks = (t.total + FETCH_WARPS - 1) / FETCH_WARPS;
  if (blocks > FETCH_BLOCKS) blocks = FETCH_BLOCKS;
  const bool aligned = (((uintptr_t)t.from | (uintptr_t)t.to | t.stride | t.bytes) & 15) == 0;
  if (aligned) {
    fetch_kernel<true><<<(unsigned)blocks, FETCH_THREADS, 0, stream>>>(t);
  } else {
    fetch_kernel<false><<<(unsigned)blocks, FETCH_THREADS, 0, stream>>>(t);
  }
  return cudaGetLastError();
}

#endif  // BRIM_DATA_FETCH_CUH_
