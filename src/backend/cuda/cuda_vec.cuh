// Loads and stores of 16 bytes, with conversion to and from f32, for kernels that are bound by
// memory. W is the number of values a thread takes at once: 16 / sizeof(T), or 1 where rows are not
// whole vectors. Device code; for the host there are only helpers for launch sizes.
#ifndef BRIM_BACKEND_CUDA_VEC_CUH_
#define BRIM_BACKEND_CUDA_VEC_CUH_

#include "backend/cuda/cuda_int.cuh"

// The raw bits of W values, kept packed between load and use: 16-bit types take half the registers
// of floats.
template <typename T, int W>
struct brim_vec {
  uint4 bits;
};
template <typename T>
struct brim_vec<T, 1> {
  T bits;
};

template <typename T>
__host__ __device__ constexpr int brim_vec_width() {
  return 16 / (int)sizeof(T);
}

template <typename T, int W>
__device__ static inline brim_vec<T, W> brim_vec_load(const T *p) {
  brim_vec<T, W> v;
  if constexpr (W == 1) {
    v.bits = *p;
  } else {
    v.bits = *reinterpret_cast<const uint4 *>(p);
  }
  return v;
}

template <typename T, int W>
__device__ static inline void brim_vec_store(T *p, const brim_vec<T, W> &v) {
  if constexpr (W == 1) {
    *p = v.bits;
  } else {
    *reinterpret_cast<uint4 *>(p) = v.bits;
  }
}

template <typename T, int W>
__device__ static inline brim_vec<T, W> brim_vec_zero() {
  brim_vec<T, W> v;
  if constexpr (W == 1) {
    brim_store(&v.bits, 0, 0.0f);
  } else {
    v.bits = make_uint4(0, 0, 0, 0);
  }
  return v;
}

// Conversions of a 32-bit word. The first argument selects the type; it is not read.
__device__ static inline void brim_unpack(const float *, uint32_t bits, float *out) {
  out[0] = __uint_as_float(bits);
}
__device__ static inline void brim_unpack(const __nv_bfloat16 *, uint32_t bits, float *out) {
  out[0] = __uint_as_float(bits << 16);
  out[1] = __uint_as_float(bits & 0xffff0000u);
}
__device__ static inline void brim_unpack(const __half *, uint32_t bits, float *out) {
  __half2_raw raw;
  raw.x = (unsigned short)(bits & 0xffffu);
  raw.y = (unsigned short)(bits >> 16);
  float2 v = __half22float2(__half2(raw));
  out[0] = v.x;
  out[1] = v.y;
}
__device__ static inline uint32_t brim_pack(const float *, const float *v) {
  return __float_as_uint(v[0]);
}
__device__ static inline uint32_t brim_pack(const __nv_bfloat16 *, const float *v) {
  __nv_bfloat162_raw raw = __floats2bfloat162_rn(v[0], v[1]);
  return (uint32_t)raw.x | ((uint32_t)raw.y << 16);
}
__device__ static inline uint32_t brim_pack(const __half *, const float *v) {
  __half2_raw raw = __floats2half2_rn(v[0], v[1]);
  return (uint32_t)raw.x | ((uint32_t)raw.y << 16);
}

// The values of a vector as floats.
template <typename T, int W>
__device__ static inline void brim_vec_get(const brim_vec<T, W> &v, float (&out)[W]) {
  if constexpr (W == 1) {
    out[0] = brim_load(&v.bits, 0);
  } else {
    constexpr int E = W / 4;  // values of a 32-bit word
    const T *tag = nullptr;
    brim_unpack(tag, v.bits.x, out);
    brim_unpack(tag, v.bits.y, out + E);
    brim_unpack(tag, v.bits.z, out + 2 * E);
    brim_unpack(tag, v.bits.w, out + 3 * E);
  }
}

// A vector of the floats, rounded to T.
template <typename T, int W>
__device__ static inline brim_vec<T, W> brim_vec_put(const float (&in)[W]) {
  brim_vec<T, W> v;
  if constexpr (W == 1) {
    brim_store(&v.bits, 0, in[0]);
  } else {
    constexpr int E = W / 4;
    const T *tag = nullptr;
    v.bits.x = brim_pack(tag, in);
    v.bits.y = brim_pack(tag, in + E);
    v.bits.z = brim_pack(tag, in + 2 * E);
    v.bits.w = brim_pack(tag, in + 3 * E);
  }
  return v;
}

// Loads W values of an f32 array (gains, statistics); p is a multiple of W values past an aligned
// base.
template <int W>
__device__ static inline void brim_vec_floats(const float *p, float (&out)[W]) {
  if constexpr (W == 1) {
    out[0] = *p;
  } else {
#pragma unroll
    for (int i = 0; i < W; i += 4) {
      float4 v = *reinterpret_cast<const float4 *>(p + i);
      out[i] = v.x;
      out[i + 1] = v.y;
      out[i + 2] = v.z;
      out[i + 3] = v.w;
    }
  }
}

// Sum over groups of G neighbouring lanes (a power of two); every lane gets it, in a fixed order.
template <int G>
__device__ static inline float brim_group_sum(float v) {
#pragma unroll
  for (int d = G / 2; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}

// A count of the state tensor (BRIM_STATE_ROWS, BRIM_STATE_SAMPLES), within 0 to `most`.
__device__ static inline int64_t brim_state_count(const double *state, int which, int64_t most) {
  int64_t valid = (int64_t)state[which];
  return valid < 0 ? 0 : valid < most ? valid : most;
}

// Valid rows of a batch.
__device__ static inline int64_t brim_valid_rows(const double *state, int64_t rows) {
  return brim_state_count(state, BRIM_STATE_ROWS, rows);
}

static inline bool brim_cuda_aligned(const void *p) { return ((uintptr_t)p & 15) == 0; }

static inline int64_t brim_cuda_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of a kernel that an SM holds at once, at most `most`: a grid of just as many a SM has no
// tail of blocks that run alone.
template <typename F>
static int brim_cuda_resident(F kernel, int threads, size_t shared, int most) {
  int blocks = 0;
  cudaError_t error =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared);
  if (error != cudaSuccess) cudaGetLastError();
  return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

// Adds the losses, right answers and bad rows of n rows (3 x n floats) to the metrics in a fixed
// order, and *valid (an entry of the state tensor) to the metrics' row count.
brim_status brim_cuda_add_rows(void *stream, float *rows, const double *valid, float *metrics,
                               int64_t n);

#endif  // BRIM_BACKEND_CUDA_VEC_CUH_
