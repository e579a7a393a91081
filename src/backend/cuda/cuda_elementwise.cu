// Elementwise ops: activations, dropout, add, cast, input scaling. All are bound by memory:
// with n values of s bytes they move 2 n s bytes (add and act_bwd, which read two tensors, 3 n s) and
// compute 1 to 30 FLOPs a value. Dropout executes about 25 integer instructions a value. With 16-bit values
// these take just less time than the memory traffic. Together the ops take below 5 % of any model's step,
// as most such work is fused into other kernels.
//
// A thread takes two groups of eight values. The rest at the end, and tensors that do not start on
// 16 bytes, go value by value through the same functions.
#include <type_traits>

#include "backend/cuda/cuda_vec.cuh"
#include "hd/hd_philox.h"

enum { THREADS = 256, GROUP = 8, GROUPS = 2, BLOCK_VALUES = THREADS * GROUP * GROUPS };

template <typename T>
__device__ static inline void load_group(const T *p, float (&v)[GROUP]) {
  constexpr int W = brim_vec_width<T>();
#pragma unroll
  for (int k = 0; k < GROUP; k += W) {
    float part[W];
    brim_vec_get<T, W>(brim_vec_load<T, W>(p + k), part);
#pragma unroll
    for (int i = 0; i < W; i++) v[k + i] = part[i];
  }
}

__device__ static inline void load_group(const uint8_t *p, float (&v)[GROUP]) {
  uint2 bits = *reinterpret_cast<const uint2 *>(p);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    v[i] = (float)(bits.x >> (8 * i) & 0xff);
    v[4 + i] = (float)(bits.y >> (8 * i) & 0xff);
  }
}

template <typename T>
__device__ static inline void store_group(T *p, const float (&v)[GROUP]) {
  constexpr int W = brim_vec_width<T>();
#pragma unroll
  for (int k = 0; k < GROUP; k += W) {
    float part[W];
#pragma unroll
    for (int i = 0; i < W; i++) part[i] = v[k + i];
    brim_vec_store<T, W>(p + k, brim_vec_put<T, W>(part));
  }
}

__device__ static inline float load_value(const uint8_t *p, int64_t i) { return (float)p[i]; }
template <typename T>
__device__ static inline float load_value(const T *p, int64_t i) {
  return brim_load(p, i);
}

// y[i] = f(i, a[i]); y may be a. f.start() runs once per thread, f.one maps a value, f.group maps GROUP
// values from an index that is a multiple of GROUP.
template <typename A, typename Y, typename F>
__global__ static void map_one(const A *a, Y *y, int64_t n, int64_t vectored, F f) {
  f.start();
  int64_t first = (int64_t)blockIdx.x * BLOCK_VALUES + threadIdx.x * GROUP;
  float v[GROUPS][GROUP];
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    int64_t i = first + k * THREADS * GROUP;
    if (i < vectored) load_group(a + i, v[k]);
  }
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    int64_t i = first + k * THREADS * GROUP;
    if (i < vectored) {
      f.group(i, v[k]);
      store_group(y + i, v[k]);
    } else {
      for (int64_t j = i; j < n && j < i + GROUP; j++) brim_store(y, j, f.one(j, load_value(a, j)));
    }
  }
}

// y[i] = f(a[i], b[i]); y may be a or b
template <typename T, typename F>
__global__ static void map_two(const T *a, const T *b, T *y, int64_t n, int64_t vectored, F f) {
  int64_t first = (int64_t)blockIdx.x * BLOCK_VALUES + threadIdx.x * GROUP;
  float v[GROUPS][GROUP], w[GROUPS][GROUP];
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    int64_t i = first + k * THREADS * GROUP;
    if (i < vectored) {
      load_group(a + i, v[k]);
      load_group(b + i, w[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    int64_t i = first + k * THREADS * GROUP;
    if (i < vectored) {
#pragma unroll
      for (int j = 0; j < GROUP; j++) v[k][j] = f.one(v[k][j], w[k][j]);
      store_group(y + i, v[k]);
    } else {
      for (int64_t j = i; j < n && j < i + GROUP; j++) {
        brim_store(y, j, f.one(brim_load(a, j), brim_load(b, j)));
      }
    }
  }
}

static unsigned blocks_of(int64_t n) { return (unsigned)brim_cuda_div_up(n, BLOCK_VALUES); }

// Number of values that go in groups: all whole groups, or 0 if a tensor does not start on 16 bytes.
static int64_t vectored_of(int64_t n, const void *a, const void *b, const void *y) {
  bool aligned = brim_cuda_aligned(a) && brim_cuda_aligned(b) && brim_cuda_aligned(y);
  return aligned ? n / GROUP * GROUP : 0;
}

template <typename A, typename Y, typename F>
static void launch_one(const brim_op_call *c, void *stream, int64_t n, const F &f) {
  const A *a = (const A *)c->in[0].data;
  Y *y = (Y *)c->out[0].data;
  map_one<A, Y, F>
      <<<blocks_of(n), THREADS, 0, (cudaStream_t)stream>>>(a, y, n, vectored_of(n, a, a, y), f);
}

template <typename T, typename F>
static void launch_two(const brim_op_call *c, void *stream, int64_t n, const F &f) {
  const T *a = (const T *)c->in[0].data, *b = (const T *)c->in[1].data;
  T *y = (T *)c->out[0].data;
  map_two<T, F>
      <<<blocks_of(n), THREADS, 0, (cudaStream_t)stream>>>(a, b, y, n, vectored_of(n, a, b, y), f);
}

//---------------------------------- activations ----------------------------------

template <brim_act ACT>
__device__ static inline float act_value(float x) {
  switch (ACT) {
    case BRIM_ACT_RELU:
      return x < 0.0f ? 0.0f : x;  // a NaN stays a NaN
    case BRIM_ACT_GELU:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case BRIM_ACT_TANH:
      return tanhf(x);
    default:
      return x;
  }
}

// s is y for relu and tanh, x for gelu
template <brim_act ACT>
__device__ static inline float act_slope(float s) {
  switch (ACT) {
    case BRIM_ACT_RELU:
      return s > 0.0f ? 1.0f : 0.0f;
    case BRIM_ACT_GELU:
      return 0.5f * (1.0f + erff(s * 0.70710678118654752f)) +
             s * 0.39894228040143268f * expf(-0.5f * s * s);
    case BRIM_ACT_TANH:
      return 1.0f - s * s;
    default:
      return 1.0f;
  }
}

// The activation of a value stored as T. In bf16 the hardware's tanh is accurate enough, as in
// cuda_linear.cu: within 2^-10.9, an eighth of the rounding error. tanhf's 20 instructions a
// value would take longer than the memory traffic.
template <brim_act ACT, typename T>
__device__ static inline float act_stored(float x) {
  if constexpr (ACT == BRIM_ACT_TANH && std::is_same<T, __nv_bfloat16>::value) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  } else {
    return act_value<ACT>(x);
  }
}

template <brim_act ACT, typename T>
struct act_map {
  __device__ void start() {}
  __device__ float one(int64_t, float x) const { return act_stored<ACT, T>(x); }
  __device__ void group(int64_t, float (&v)[GROUP]) const {
#pragma unroll
    for (int i = 0; i < GROUP; i++) v[i] = act_stored<ACT, T>(v[i]);
  }
};

template <brim_act ACT>
struct act_bwd_map {
  __device__ float one(float dy, float s) const { return dy * act_slope<ACT>(s); }
};

template <brim_act ACT>
static void launch_act(const brim_op_call *c, void *stream, int64_t n) {
  if (c->op == BRIM_OP_ACT) {
    BRIM_CUDA_DISPATCH(c->in[0].dtype, (launch_one<T, T>(c, stream, n, act_map<ACT, T>())));
  } else {
    BRIM_CUDA_DISPATCH(c->in[0].dtype, (launch_two<T>(c, stream, n, act_bwd_map<ACT>())));
  }
}

static void launch_act_kind(const brim_op_call *c, void *stream, int64_t n) {
  switch (c->attr.act) {
    case BRIM_ACT_RELU:
      return launch_act<BRIM_ACT_RELU>(c, stream, n);
    case BRIM_ACT_GELU:
      return launch_act<BRIM_ACT_GELU>(c, stream, n);
    case BRIM_ACT_TANH:
      return launch_act<BRIM_ACT_TANH>(c, stream, n);
    default:
      return launch_act<BRIM_ACT_NONE>(c, stream, n);
  }
}

static brim_status act_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "act");
}

static brim_status act_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  launch_act_kind(c, stream, brim_cuda_count(&c->in[0]));
  return brim_cuda_launched("act");
}

static brim_status act_bwd_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "act_bwd");
}

static brim_status act_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  launch_act_kind(c, stream, brim_cuda_count(&c->in[0]));
  return brim_cuda_launched("act_bwd");
}

//---------------------------------- dropout ----------------------------------

// One Philox block gives four elements. Eight elements need two blocks if the first starts a block, else
// three. Their position in the blocks is the same for all threads, as it depends on the row offset alone.
// Backward is the same op on the gradient.
struct dropout_map {
  const double *state;
  int64_t cols;
  float p, keep_scale;  // keep_scale = 1 / (1 - p)
  uint32_t layer;
  // Set by start(): Philox key, upper half of the counter, number of the tensor's first element in the
  // whole batch.
  uint64_t key, high, first;

  __device__ void start() {
    key = brim_rng_key((uint64_t)state[BRIM_STATE_SEED], BRIM_RNG_DROPOUT);
    high = ((uint64_t)state[BRIM_STATE_STEP] << 16) | layer;
    first = (uint64_t)state[BRIM_STATE_ROW_OFFSET] * (uint64_t)cols;
  }
  __device__ float keep(uint32_t bits, float x) const {
    return brim_rng_uniform(bits) < p ? 0.0f : x * keep_scale;
  }
  __device__ float one(int64_t i, float x) const {
    uint64_t e = first + (uint64_t)i;
    return keep(brim_philox(key, high, e / 4).v[e % 4], x);
  }
  __device__ void group(int64_t i, float (&v)[GROUP]) const {
    uint64_t e = first + (uint64_t)i;
    int skew = (int)(e % 4);
    brim_philox4 a = brim_philox(key, high, e / 4), b = brim_philox(key, high, e / 4 + 1);
    brim_philox4 c = b;
    if (skew != 0) c = brim_philox(key, high, e / 4 + 2);
    uint32_t bits[12];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      bits[k] = a.v[k];
      bits[4 + k] = b.v[k];
      bits[8 + k] = c.v[k];
    }
#pragma unroll
    for (int k = 0; k < GROUP; k++) {
      uint32_t own = skew == 0   ? bits[k]
                     : skew == 1 ? bits[k + 1]
                     : skew == 2 ? bits[k + 2]
                                 : bits[k + 3];
      v[k] = keep(own, v[k]);
    }
  }
};

static brim_status dropout_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "dropout");
}

static brim_status dropout_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = brim_cuda_count(&c->in[0]);
  if (n == 0) return BRIM_OK;
  dropout_map f = {};
  f.state = (const double *)c->in[1].data;
  f.cols = n / c->in[0].dim[0];
  f.p = c->attr.p;
  f.keep_scale = 1.0f / (1.0f - c->attr.p);
  f.layer = c->attr.layer;
  BRIM_CUDA_DISPATCH(c->in[0].dtype, (launch_one<T, T>(c, stream, n, f)));
  return brim_cuda_launched("dropout");
}

//---------------------------------- add ----------------------------------

struct add_map {
  __device__ float one(float a, float b) const { return a + b; }
};

static brim_status add_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "add");
}

static brim_status add_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     (launch_two<T>(c, stream, brim_cuda_count(&c->in[0]), add_map())));
  return brim_cuda_launched("add");
}

//---------------------------------- cast ----------------------------------

struct cast_map {
  __device__ void start() {}
  __device__ float one(int64_t, float x) const { return x; }
  __device__ void group(int64_t, float (&)[GROUP]) const {}
};

template <typename S>
static void launch_cast(const brim_op_call *c, void *stream, int64_t n) {
  BRIM_CUDA_DISPATCH(c->out[0].dtype, (launch_one<S, T>(c, stream, n, cast_map())));
}

static brim_status cast_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  BRIM_TRY(brim_cuda_float_type(&c->in[0], "cast"));
  return brim_cuda_float_type(&c->out[0], "cast");
}

static brim_status cast_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = brim_cuda_count(&c->in[0]);
  BRIM_CUDA_DISPATCH(c->in[0].dtype, launch_cast<T>(c, stream, n));
  return brim_cuda_launched("cast");
}

//---------------------------------- input ----------------------------------

struct channel_scale {
  float scale[4], shift[4];
};

// Selects the values, as an array indexed at run time would be in local memory.
__device__ static inline float scaled(const channel_scale &k, int ch, float x) {
  float scale = ch == 0 ? k.scale[0] : ch == 1 ? k.scale[1] : ch == 2 ? k.scale[2] : k.scale[3];
  float shift = ch == 0 ? k.shift[0] : ch == 1 ? k.shift[1] : ch == 2 ? k.shift[2] : k.shift[3];
  return x * scale + shift;
}

// Maps values one to one; `channels` is 1 if all channels have the same scale and shift.
struct input_map {
  channel_scale k;
  int channels;
  __device__ void start() {}
  __device__ float one(int64_t i, float x) const { return scaled(k, (int)(i % channels), x); }
  __device__ void group(int64_t i, float (&v)[GROUP]) const {
    int ch = channels == 1 ? 0 : channels == 3 ? (int)(i % 3) : (int)(i & (channels - 1));
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
      v[j] = scaled(k, ch, v[j]);
      ch = ch + 1 == channels ? 0 : ch + 1;
    }
  }
};

// Scales pixels of `channels` values and pads them with 0 to vectors * W values. A thread writes one vector
// of W values; `count` is the number of vectors.
template <typename S, typename D, int W>
__global__ static void input_padded(const S *__restrict__ x, D *y, int64_t count, int channels,
                                    int vectors, channel_scale k) {
  int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  int64_t pixel = vectors == 1 ? i : i / vectors;
  int first = (int)(i - pixel * vectors) * W;
  float v[W];
#pragma unroll
  for (int j = 0; j < W; j++) v[j] = 0.0f;
#pragma unroll
  for (int j = 0; j < W; j++) {
    if (j < 4 && first + j < channels) {
      v[j] = scaled(k, first + j, load_value(x, pixel * channels + first + j));
    }
  }
  brim_vec_store<D, W>(y + i * W, brim_vec_put<D, W>(v));
}

static channel_scale scale_of(const brim_op_call *c, bool *same) {
  channel_scale k;
  *same = true;
  for (int i = 0; i < 4; i++) {
    k.scale[i] = c->attr.scale[i];
    k.shift[i] = c->attr.shift[i];
    if (i < c->attr.channels && (k.scale[i] != k.scale[0] || k.shift[i] != k.shift[0])) {
      *same = false;
    }
  }
  return k;
}

template <typename S, typename D, int W>
static void launch_padded(const brim_op_call *c, cudaStream_t stream, const channel_scale &k) {
  const brim_tensor *y = &c->out[0];
  int64_t count = brim_cuda_count(y) / W;
  input_padded<S, D, W><<<(unsigned)brim_cuda_div_up(count, THREADS), THREADS, 0, stream>>>(
      (const S *)c->in[0].data, (D *)y->data, count, c->attr.channels,
      (int)(y->dim[y->rank - 1] / W), k);
}

template <typename S, typename D>
static void launch_input(const brim_op_call *c, void *stream) {
  const brim_tensor *y = &c->out[0];
  bool same = false;
  channel_scale k = scale_of(c, &same);
  int64_t n = brim_cuda_count(&c->in[0]);
  if (brim_cuda_count(y) == n) {
    input_map f = {k, same ? 1 : c->attr.channels};
    launch_one<S, D>(c, stream, n, f);
  } else if (y->dim[y->rank - 1] % brim_vec_width<D>() == 0 && brim_cuda_aligned(y->data)) {
    launch_padded<S, D, brim_vec_width<D>()>(c, (cudaStream_t)stream, k);
  } else {
    launch_padded<S, D, 1>(c, (cudaStream_t)stream, k);
  }
}

static brim_status input_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->out[0], "input");
}

static brim_status input_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dtype == BRIM_U8) {
    BRIM_CUDA_DISPATCH(c->out[0].dtype, (launch_input<uint8_t, T>(c, stream)));
  } else {
    BRIM_CUDA_DISPATCH(c->out[0].dtype, (launch_input<float, T>(c, stream)));
  }
  return brim_cuda_launched("input");
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_ACT, act_validate, NULL, act_run, NULL},
    {BRIM_OP_ACT_BWD, act_bwd_validate, NULL, act_bwd_run, NULL},
    {BRIM_OP_DROPOUT, dropout_validate, NULL, dropout_run, NULL},
    {BRIM_OP_ADD, add_validate, NULL, add_run, NULL},
    {BRIM_OP_CAST, cast_validate, NULL, cast_run, NULL},
    {BRIM_OP_INPUT, input_validate, NULL, input_run, NULL},
};

const brim_op_family brim_cuda_elementwise_ops = {rows, sizeof rows / sizeof *rows};
