// How batch norm's passes share the work: tiles of channels, slabs of pixels, and the sum over the
// lanes of a block. Only cuda_batchnorm.cu and cuda_batchnorm_bwd.cu include it.
#ifndef BRIM_BACKEND_CUDA_BATCHNORM_CUH_
#define BRIM_BACKEND_CUDA_BATCHNORM_CUH_

#include "backend/cuda/cuda_vec.cuh"

enum {
  THREADS = 256,
  PER_SM = 4,
  TILE = 16,                // vectors of channels a block: 256 bytes of a pixel
  TILE_ODD = 32,            // channels a block where they are not whole vectors
  MAX_CHANNELS = TILE * 8,  // of a block
  INLINE_SLABS = 16,        // slabs that the second pass adds up on its own
  FINISH_LANES = 32         // of slabs, in a block of the kernel between the passes
};

struct shape {
  int64_t pixels;  // N * H * W
  int64_t area;    // H * W
  int64_t rows;    // N
  int c, tile, lanes, tiles;
  bool whole;                  // channels are whole vectors
  int64_t slabs, per;          // first pass
  int64_t out_slabs, out_per;  // second pass
};

// per_sm: blocks of the first pass that an SM holds, PER_SM at most; it never makes slabs more.
static shape make_shape(const brim_cuda *device, const brim_tensor *x, int per_sm) {
  shape s;
  s.rows = x->dim[0];
  s.area = x->dim[1] * x->dim[2];
  s.pixels = s.rows * s.area;
  s.c = (int)x->dim[3];
  int width = x->dtype == BRIM_F32 ? 4 : 8;
  s.whole = s.c % width == 0;
  int vectors = s.whole ? s.c / width : s.c, most = s.whole ? TILE : TILE_ODD;
  s.tile = vectors < most ? vectors : most;
  s.lanes = THREADS / s.tile;
  s.tiles = (vectors + s.tile - 1) / s.tile;
  int64_t sms = device->sm_count;
  // One wave of blocks for the sums. Few slabs, of four to 32 pixels a thread, where a launch costs
  // more than the SMs left idle; else no slab below eight pixels a thread.
  int64_t most_slabs = sms * per_sm / s.tiles > 0 ? sms * per_sm / s.tiles : 1;
  int64_t want = brim_cuda_div_up(s.pixels, (int64_t)s.lanes * 4);
  const int64_t few = INLINE_SLABS;
  if (want > few) want = want > few * 8 ? want / 2 : few;
  s.slabs = want < most_slabs ? want : most_slabs;
  s.per = brim_cuda_div_up(s.pixels, s.slabs);
  s.slabs = brim_cuda_div_up(s.pixels, s.per);
  most_slabs = sms * 8 / s.tiles > 0 ? sms * 8 / s.tiles : 1;
  want = brim_cuda_div_up(s.pixels, (int64_t)s.lanes * 4);
  s.out_slabs = want < most_slabs ? want : most_slabs;
  s.out_per = brim_cuda_div_up(s.pixels, s.out_slabs);
  s.out_slabs = brim_cuda_div_up(s.pixels, s.out_per);
  return s;
}

// A thread's place: its first channel, its lane among the pixels. Threads beyond either idle.
struct place {
  int channel, lane;
  bool on;
};

template <int W>
__device__ static inline place find_place(const shape &s) {
  place p;
  int column = (int)threadIdx.x % s.tile;
  p.lane = (int)threadIdx.x / s.tile;
  p.channel = ((int)blockIdx.x * s.tile + column) * W;
  p.on = p.lane < s.lanes && p.channel < s.c;
  return p;
}

__device__ static inline int64_t slab_count(const shape &s, int64_t slab, int64_t valid) {
  int64_t left = valid - slab * s.per;
  return left < 0 ? 0 : left < s.per ? left : s.per;
}

// Adds a and b over the lanes of a block by a tree of fixed shape; lane 0 gets the sums.
template <int W>
__device__ static inline void add_lanes(const shape &s, float (&a)[W], float (&b)[W],
                                        float *shared) {
  int lane = (int)threadIdx.x / s.tile;
#pragma unroll
  for (int i = 0; i < W; i++) {
    shared[i * THREADS + threadIdx.x] = a[i];
    shared[(W + i) * THREADS + threadIdx.x] = b[i];
  }
  for (int left = s.lanes; left > 1;) {
    int half = (left + 1) / 2;
    __syncthreads();
    if (lane < left - half) {
      int other = (int)threadIdx.x + half * s.tile;
#pragma unroll
      for (int i = 0; i < W; i++) {
        a[i] += shared[i * THREADS + other];
        b[i] += shared[(W + i) * THREADS + other];
        shared[i * THREADS + threadIdx.x] = a[i];
        shared[(W + i) * THREADS + threadIdx.x] = b[i];
      }
    }
    left = half;
  }
}

template <int W>
__device__ static inline float normalised(float x, float mean, float scale, float shift) {
  return fmaf(x - mean, scale, shift);
}

//---------------------------------- launches ----------------------------------

static inline const void *optional_in(const brim_op_call *c, int i) {
  return brim_cuda_has(&c->in[i], i, c->in_count) ? c->in[i].data : NULL;
}

static inline void *optional_out(const brim_op_call *c, int i) {
  return brim_cuda_has(&c->out[i], i, c->out_count) ? c->out[i].data : NULL;
}

static inline dim3 finish_grid(const shape &s) { return dim3((unsigned)((s.c + 31) / 32)); }

#endif  // BRIM_BACKEND_CUDA_BATCHNORM_CUH_
