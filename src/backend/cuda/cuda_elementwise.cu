// Elementwise ops: activations, dropout, add, cast, input scaling. All are bound by memory: each
// element is read once and written once, by a grid-stride loop.
#include "backend/cuda/cuda_int.cuh"
#include "hd/hd_philox.h"

enum { THREADS = 256 };

#define GRID(n) brim_cuda_blocks((n), THREADS), THREADS, 0, (cudaStream_t)stream
#define EACH(i, n)                                                          \
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
       i += (int64_t)gridDim.x * blockDim.x)

//---------------------------------- activations ----------------------------------

__device__ static float act_value(brim_act act, float x) {
  switch (act) {
    case BRIM_ACT_RELU:
      return x > 0 ? x : 0.0f;
    case BRIM_ACT_GELU:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case BRIM_ACT_TANH:
      return tanhf(x);
    default:
      return x;
  }
}

// s is y for relu and tanh, x for gelu
__device__ static float act_slope(brim_act act, float s) {
  switch (act) {
    case BRIM_ACT_RELU:
      return s > 0 ? 1.0f : 0.0f;
    case BRIM_ACT_GELU:
      return 0.5f * (1.0f + erff(s * 0.70710678118654752f)) +
             s * 0.39894228040143268f * expf(-0.5f * s * s);
    case BRIM_ACT_TANH:
      return 1.0f - s * s;
    default:
      return 1.0f;
  }
}

template <typename T>
__global__ static void act_kernel(const T *x, T *y, int64_t n, brim_act act) {
  EACH(i, n) brim_store(y, i, act_value(act, brim_load(x, i)));
}

template <typename T>
__global__ static void act_bwd_kernel(const T *dy, const T *s, T *dx, int64_t n, brim_act act) {
  EACH(i, n) brim_store(dx, i, brim_load(dy, i) * act_slope(act, brim_load(s, i)));
}

brim_status brim_cuda_act_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "act");
}

brim_status brim_cuda_act_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = brim_cuda_count(&c->in[0]);
  BRIM_CUDA_DISPATCH(
      c->in[0].dtype,
      (act_kernel<T><<<GRID(n)>>>((const T *)c->in[0].data, (T *)c->out[0].data, n, c->attr.act)));
  return brim_cuda_launched("act");
}

brim_status brim_cuda_act_bwd_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "act_bwd");
}

brim_status brim_cuda_act_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = brim_cuda_count(&c->in[0]);
  BRIM_CUDA_DISPATCH(c->in[0].dtype, (act_bwd_kernel<T><<<GRID(n)>>>(
                                         (const T *)c->in[0].data, (const T *)c->in[1].data,
                                         (T *)c->out[0].data, n, c->attr.act)));
  return brim_cuda_launched("act_bwd");
}

//---------------------------------- dropout ----------------------------------

// One Philox block gives four elements; each thread keeps to one element, since rows need not start
// at a multiple of four. Backward is the same op on the gradient.
template <typename T>
__global__ static void dropout_kernel(const T *x, T *y, int64_t rows, int64_t cols,
                                      const double *state, float p, uint32_t layer) {
  uint64_t key = brim_rng_key((uint64_t)state[BRIM_STATE_SEED], BRIM_RNG_DROPOUT);
  uint64_t high = ((uint64_t)state[BRIM_STATE_STEP] << 16) | layer;
  uint64_t first = (uint64_t)state[BRIM_STATE_ROW_OFFSET] * (uint64_t)cols;
  float keep = 1.0f - p;
  EACH(i, rows * cols) {
    uint64_t e = first + (uint64_t)i;
    float u = brim_rng_uniform(brim_philox(key, high, e / 4).v[e % 4]);
    brim_store(y, i, u < p ? 0.0f : brim_load(x, i) / keep);
  }
}

brim_status brim_cuda_dropout_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "dropout");
}

brim_status brim_cuda_dropout_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = brim_cuda_count(&c->in[0]), rows = c->in[0].dim[0];
  if (n == 0) return BRIM_OK;
  BRIM_CUDA_DISPATCH(
      c->in[0].dtype,
      (dropout_kernel<T><<<GRID(n)>>>((const T *)c->in[0].data, (T *)c->out[0].data, rows, n / rows,
                                      (const double *)c->in[1].data, c->attr.p, c->attr.layer)));
  return brim_cuda_launched("dropout");
}

//---------------------------------- add ----------------------------------

template <typename T>
__global__ static void add_kernel(const T *a, const T *b, T *y, int64_t n) {
  EACH(i, n) brim_store(y, i, brim_load(a, i) + brim_load(b, i));
}

brim_status brim_cuda_add_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "add");
}

brim_status brim_cuda_add_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = brim_cuda_count(&c->in[0]);
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     (add_kernel<T><<<GRID(n)>>>((const T *)c->in[0].data, (const T *)c->in[1].data,
                                                 (T *)c->out[0].data, n)));
  return brim_cuda_launched("add");
}

//---------------------------------- cast ----------------------------------

template <typename S, typename D>
__global__ static void cast_kernel(const S *x, D *y, int64_t n) {
  EACH(i, n) brim_store(y, i, brim_load(x, i));
}

template <typename S>
static void launch_cast(const brim_op_call *c, void *stream, int64_t n) {
  BRIM_CUDA_DISPATCH(c->out[0].dtype, (cast_kernel<S, T><<<GRID(n)>>>((const S *)c->in[0].data,
                                                                      (T *)c->out[0].data, n)));
}

brim_status brim_cuda_cast_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  BRIM_TRY(brim_cuda_float_type(&c->in[0], "cast"));
  return brim_cuda_float_type(&c->out[0], "cast");
}

brim_status brim_cuda_cast_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = brim_cuda_count(&c->in[0]);
  BRIM_CUDA_DISPATCH(c->in[0].dtype, launch_cast<T>(c, stream, n));
  return brim_cuda_launched("cast");
}

//---------------------------------- input ----------------------------------

struct channel_scale {
  float scale[4], shift[4];
};

__device__ static inline float raw(const uint8_t *p, int64_t i) { return (float)p[i]; }
__device__ static inline float raw(const float *p, int64_t i) { return p[i]; }

template <typename S, typename D>
__global__ static void input_kernel(const S *x, D *y, int64_t n, int channels, channel_scale k) {
  EACH(i, n) {
    int ch = channels == 1 ? 0 : (int)(i % channels);
    brim_store(y, i, raw(x, i) * k.scale[ch] + k.shift[ch]);
  }
}

template <typename S>
static void launch_input(const brim_op_call *c, void *stream, int64_t n) {
  channel_scale k;
  for (int i = 0; i < 4; i++) {
    k.scale[i] = c->attr.scale[i];
    k.shift[i] = c->attr.shift[i];
  }
  BRIM_CUDA_DISPATCH(c->out[0].dtype,
                     (input_kernel<S, T><<<GRID(n)>>>((const S *)c->in[0].data, (T *)c->out[0].data,
                                                      n, c->attr.channels, k)));
}

brim_status brim_cuda_input_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->out[0], "input");
}

brim_status brim_cuda_input_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = brim_cuda_count(&c->in[0]);
  if (c->in[0].dtype == BRIM_U8) {
    launch_input<uint8_t>(c, stream, n);
  } else {
    launch_input<float>(c, stream, n);
  }
  return brim_cuda_launched("input");
}
