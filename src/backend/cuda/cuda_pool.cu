// Ops along the dimensions between rows and channels: max pooling, means over positions, position tables,
// concatenation. All are bound by memory, with no more than one FLOP a value read. Each tensor is read or
// written once, except that overlapping windows of max pooling are read again, from the caches. Max pooling
// takes about 2 % of an ImageNet step, the other ops below 1 %. POS and MEAN take about 3 % each of the
// signal transformer's step.
//
// A thread takes one vector of channels. Indices are 32-bit inside a launch, as their division costs a
// quarter of a 64-bit one. Larger tensors are cut along the rows into several launches.
#include "backend/cuda/cuda_vec.cuh"

enum { THREADS = 256 };

static const int64_t LAUNCH_MAX = (int64_t)1 << 30;  // most vectors of a launch

// Number of rows of a launch; a row has `vectors` vectors.
static int64_t rows_at_once(int64_t rows, int64_t vectors) {
  int64_t most = LAUNCH_MAX / (vectors > 0 ? vectors : 1);
  most = most > 0 ? most : 1;
  return rows < most ? rows : most;
}

static unsigned blocks_of(int64_t threads) { return (unsigned)brim_cuda_div_up(threads, THREADS); }

static bool whole_vectors(const brim_tensor *t, int64_t c) {
  return c % (t->dtype == BRIM_F32 ? 4 : 8) == 0;
}

// Runs `function<T, W>(c, stream)` for the type and the widest vector that fits `columns`.
#define DISPATCH_WIDTH(tensor, columns, function)                                      \
  do {                                                                                 \
    if (whole_vectors((tensor), (columns))) {                                          \
      BRIM_CUDA_DISPATCH((tensor)->dtype,                                              \
                         (function<T, brim_vec_width<T>()>(c, (cudaStream_t)stream))); \
    } else {                                                                           \
      BRIM_CUDA_DISPATCH((tensor)->dtype, (function<T, 1>(c, (cudaStream_t)stream)));  \
    }                                                                                  \
  } while (0)

static brim_status validate(void *impl, const brim_op_call *c, const char *what) {
  brim_cuda_enter(impl);
  BRIM_TRY(brim_cuda_float_type(&c->in[0], what));
  int64_t row = 0;
  for (int i = 0; i < c->in_count + c->out_count; i++) {
    const brim_tensor *t = i < c->in_count ? &c->in[i] : &c->out[i - c->in_count];
    int64_t n = t->rank > 0 ? brim_cuda_count(t) / t->dim[0] : 0;
    row = n > row ? n : row;
  }
  if (row <= LAUNCH_MAX) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: %s of rows of more than 2^30 values", what);
}

#define VALIDATE(name)                                                    \
  static brim_status name##_validate(void *impl, const brim_op_call *c) { \
    return validate(impl, c, #name);                                      \
  }

VALIDATE(maxpool)
VALIDATE(maxpool_bwd)
VALIDATE(mean)
VALIDATE(mean_bwd)
VALIDATE(pos)
VALIDATE(pos_bwd)
VALIDATE(concat)
VALIDATE(concat_bwd)

//---------------------------------- max pooling ----------------------------------

struct window {
  uint32_t h, w, p, q;  // sizes of one image
  uint32_t vectors;     // vectors of a pixel
  int size, stride, pad;
};

// W places are W bytes, written in one access if W is 4 or 8.
template <int W>
struct place_bits {
  typedef uint8_t type;
};
template <>
struct place_bits<4> {
  typedef uint32_t type;
};
template <>
struct place_bits<8> {
  typedef uint64_t type;
};

// As in PyTorch, the first maximum wins. A NaN is larger than all; a later NaN replaces an earlier one.
template <typename T, int W>
__global__ static void maxpool_kernel(const T *__restrict__ x, T *y, uint8_t *place, uint32_t count,
                                      window s) {
  uint32_t i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  uint32_t at = i, v = at % s.vectors;
  at /= s.vectors;
  uint32_t q = at % s.q;
  at /= s.q;
  uint32_t p = at % s.p, n = at / s.p;
  int top = (int)p * s.stride - s.pad, left = (int)q * s.stride - s.pad;
  int r0 = top < 0 ? -top : 0, r1 = (int)s.h - top < s.size ? (int)s.h - top : s.size;
  int c0 = left < 0 ? -left : 0, c1 = (int)s.w - left < s.size ? (int)s.w - left : s.size;
  float best[W];
  int best_place[W];
#pragma unroll
  for (int k = 0; k < W; k++) {
    best[k] = -INFINITY;
    best_place[k] = r0 * s.size + c0;
  }
  for (int r = r0; r < r1; r++) {
    for (int c = c0; c < c1; c++) {
      int64_t pixel = ((int64_t)n * s.h + (uint32_t)(top + r)) * s.w + (uint32_t)(left + c);
      float value[W];
      brim_vec_get<T, W>(brim_vec_load<T, W>(x + (pixel * s.vectors + v) * W), value);
#pragma unroll
      for (int k = 0; k < W; k++) {
        if (value[k] > best[k] || isnan(value[k])) {
          best[k] = value[k];
          best_place[k] = r * s.size + c;
        }
      }
    }
  }
  brim_vec_store<T, W>(y + (int64_t)i * W, brim_vec_put<T, W>(best));
  typename place_bits<W>::type bits = 0;
#pragma unroll
  for (int k = 0; k < W; k++) bits |= (typename place_bits<W>::type)best_place[k] << (8 * k);
  reinterpret_cast<typename place_bits<W>::type *>(place)[i] = bits;
}

// Each input pixel adds the gradients of the windows that hold it and have their maximum there.
template <typename T, int W>
__global__ static void maxpool_bwd_kernel(const T *__restrict__ dy,
                                          const uint8_t *__restrict__ place, T *dx, uint32_t count,
                                          window s) {
  uint32_t i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  uint32_t at = i, v = at % s.vectors;
  at /= s.vectors;
  int w = (int)(at % s.w);
  at /= s.w;
  int h = (int)(at % s.h);
  uint32_t n = at / s.h;
  // The windows p with p * stride - pad <= h < p * stride - pad + size hold row h.
  int below = h + s.pad, right = w + s.pad;
  int p0 = below < s.size ? 0 : (below - s.size) / s.stride + 1;
  int q0 = right < s.size ? 0 : (right - s.size) / s.stride + 1;
  int p1 = below / s.stride < (int)s.p - 1 ? below / s.stride : (int)s.p - 1;
  int q1 = right / s.stride < (int)s.q - 1 ? right / s.stride : (int)s.q - 1;
  float sum[W];
#pragma unroll
  for (int k = 0; k < W; k++) sum[k] = 0.0f;
  for (int p = p0; p <= p1; p++) {
    for (int q = q0; q <= q1; q++) {
      int own = (below - p * s.stride) * s.size + right - q * s.stride;
      int64_t vector = (((int64_t)n * s.p + (uint32_t)p) * s.q + (uint32_t)q) * s.vectors + v;
      typename place_bits<W>::type bits =
          reinterpret_cast<const typename place_bits<W>::type *>(place)[vector];
      float value[W];
      brim_vec_get<T, W>(brim_vec_load<T, W>(dy + vector * W), value);
#pragma unroll
      for (int k = 0; k < W; k++) {
        if ((int)(bits >> (8 * k) & 0xff) == own) sum[k] += value[k];
      }
    }
  }
  brim_vec_store<T, W>(dx + (int64_t)i * W, brim_vec_put<T, W>(sum));
}

template <typename T, int W>
static void launch_maxpool(const brim_op_call *c, cudaStream_t stream) {
  bool backward = c->op == BRIM_OP_MAXPOOL_BWD;
  const brim_tensor *large = backward ? &c->out[0] : &c->in[0];
  const brim_tensor *small = backward ? &c->in[0] : &c->out[0];
  const uint8_t *place = (const uint8_t *)(backward ? c->in[1].data : c->out[1].data);
  window s = {(uint32_t)large->dim[1],
              (uint32_t)large->dim[2],
              (uint32_t)small->dim[1],
              (uint32_t)small->dim[2],
              (uint32_t)(large->dim[3] / W),
              c->attr.window,
              c->attr.stride,
              c->attr.pad};
  int64_t in = (int64_t)s.h * s.w * s.vectors, out = (int64_t)s.p * s.q * s.vectors;
  int64_t rows = large->dim[0], step = rows_at_once(rows, in > out ? in : out);
  for (int64_t n = 0; n < rows; n += step) {
    int64_t launch_rows = rows - n < step ? rows - n : step;
    if (backward) {
      maxpool_bwd_kernel<T, W><<<blocks_of(launch_rows * in), THREADS, 0, stream>>>(
          (const T *)small->data + n * out * W, place + n * out * W, (T *)large->data + n * in * W,
          (uint32_t)(launch_rows * in), s);
    } else {
      maxpool_kernel<T, W><<<blocks_of(launch_rows * out), THREADS, 0, stream>>>(
          (const T *)large->data + n * in * W, (T *)small->data + n * out * W,
          (uint8_t *)c->out[1].data + n * out * W, (uint32_t)(launch_rows * out), s);
    }
  }
}

static brim_status maxpool_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  DISPATCH_WIDTH(&c->in[0], c->in[0].dim[3], launch_maxpool);
  return brim_cuda_launched("maxpool");
}

static brim_status maxpool_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  DISPATCH_WIDTH(&c->in[0], c->in[0].dim[3], launch_maxpool);
  return brim_cuda_launched("maxpool_bwd");
}

//---------------------------------- mean ----------------------------------

// A warp takes one row and `across` (a power of two) vectors of its channels. 32 / across lanes share the
// positions of a vector and add up at the end.
template <typename T, int W>
__global__ static void mean_kernel(const T *__restrict__ x, T *y, int64_t rows, int64_t length,
                                   int vectors, int across, int tiles) {
  int64_t warp = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  int64_t n = warp / tiles;
  if (n >= rows) return;  // true for the whole warp
  int lane = (int)threadIdx.x % 32, v = (int)(warp % tiles) * across + lane % across;
  int lanes = 32 / across;
  float sum[W];
#pragma unroll
  for (int k = 0; k < W; k++) sum[k] = 0.0f;
  if (v < vectors) {
    const T *row = x + (n * length * vectors + v) * W;
#pragma unroll 4
    for (int64_t l = lane / across; l < length; l += lanes) {
      float value[W];
      brim_vec_get<T, W>(brim_vec_load<T, W>(row + l * vectors * W), value);
#pragma unroll
      for (int k = 0; k < W; k++) sum[k] += value[k];
    }
  }
  for (int d = across; d < 32; d <<= 1) {
#pragma unroll
    for (int k = 0; k < W; k++) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], d);
  }
  if (v >= vectors || lane >= across) return;
#pragma unroll
  for (int k = 0; k < W; k++) sum[k] /= (float)length;
  brim_vec_store<T, W>(y + (n * vectors + v) * W, brim_vec_put<T, W>(sum));
}

template <typename T, int W>
static void launch_mean(const brim_op_call *c, cudaStream_t stream) {
  const brim_tensor *x = &c->in[0];
  int64_t rows = x->dim[0], channels = x->dim[x->rank - 1];
  int64_t length = brim_cuda_count(x) / (rows * channels);
  int vectors = (int)(channels / W), across = 1;
  while (across < 32 && across < vectors) across *= 2;
  int tiles = (vectors + across - 1) / across;
  unsigned blocks = (unsigned)brim_cuda_div_up(rows * tiles, THREADS / 32);
  mean_kernel<T, W><<<blocks, THREADS, 0, stream>>>((const T *)x->data, (T *)c->out[0].data, rows,
                                                    length, vectors, across, tiles);
}

template <typename T, int W>
__global__ static void mean_bwd_kernel(const T *__restrict__ dy, T *dx, uint32_t count,
                                       uint32_t vectors, uint32_t row, float inverse_length) {
  uint32_t i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  float value[W];
  brim_vec_get<T, W>(brim_vec_load<T, W>(dy + ((int64_t)(i / row) * vectors + i % vectors) * W),
                     value);
#pragma unroll
  for (int k = 0; k < W; k++) value[k] *= inverse_length;
  brim_vec_store<T, W>(dx + (int64_t)i * W, brim_vec_put<T, W>(value));
}

template <typename T, int W>
static void launch_mean_bwd(const brim_op_call *c, cudaStream_t stream) {
  const brim_tensor *dx = &c->out[0];
  int64_t rows = dx->dim[0], vectors = dx->dim[dx->rank - 1] / W;
  int64_t row = brim_cuda_count(dx) / rows / W, step = rows_at_once(rows, row);
  float inverse_length = (float)(1.0 / (double)(row / vectors));
  for (int64_t n = 0; n < rows; n += step) {
    int64_t launch_vectors = (rows - n < step ? rows - n : step) * row;
    mean_bwd_kernel<T, W><<<blocks_of(launch_vectors), THREADS, 0, stream>>>(
        (const T *)c->in[0].data + n * vectors * W, (T *)dx->data + n * row * W,
        (uint32_t)launch_vectors, (uint32_t)vectors, (uint32_t)row, inverse_length);
  }
}

static brim_status mean_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  DISPATCH_WIDTH(&c->in[0], c->out[0].dim[1], launch_mean);
  return brim_cuda_launched("mean");
}

static brim_status mean_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  DISPATCH_WIDTH(&c->in[0], c->in[0].dim[1], launch_mean_bwd);
  return brim_cuda_launched("mean_bwd");
}

//---------------------------------- positions ----------------------------------

// y may be x
template <typename T, int W>
__global__ static void pos_kernel(const T *x, const T *__restrict__ table, T *y, uint32_t count,
                                  uint32_t row) {
  uint32_t i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  float a[W], b[W];
  brim_vec_get<T, W>(brim_vec_load<T, W>(x + (int64_t)i * W), a);
  brim_vec_get<T, W>(brim_vec_load<T, W>(table + (int64_t)(i % row) * W), b);
#pragma unroll
  for (int k = 0; k < W; k++) a[k] += b[k];
  brim_vec_store<T, W>(y + (int64_t)i * W, brim_vec_put<T, W>(a));
}

template <typename T, int W>
static void launch_pos(const brim_op_call *c, cudaStream_t stream) {
  int64_t rows = c->in[0].dim[0], row = brim_cuda_count(&c->in[1]) / W;
  int64_t step = rows_at_once(rows, row);
  for (int64_t n = 0; n < rows; n += step) {
    int64_t launch_vectors = (rows - n < step ? rows - n : step) * row;
    pos_kernel<T, W><<<blocks_of(launch_vectors), THREADS, 0, stream>>>(
        (const T *)c->in[0].data + n * row * W, (const T *)c->in[1].data,
        (T *)c->out[0].data + n * row * W, (uint32_t)launch_vectors, (uint32_t)row);
  }
}

static brim_status pos_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  DISPATCH_WIDTH(&c->in[0], brim_cuda_count(&c->in[1]), launch_pos);
  return brim_cuda_launched("pos");
}

enum { POS_LANES = THREADS / 32 };

struct column_split {
  int64_t tiles, chunks, chunk_rows;  // blocks of 32 vectors; chunks of rows; rows of a chunk
};

// Makes at most four blocks an SM; a chunk has at least four rows a thread.
static column_split split_columns(const brim_cuda *device, int64_t rows, int64_t vectors) {
  column_split s;
  s.tiles = brim_cuda_div_up(vectors, 32);
  int64_t most = device->sm_count * 4 / s.tiles, want = brim_cuda_div_up(rows, POS_LANES * 4);
  s.chunks = want < most ? want : most > 0 ? most : 1;
  s.chunks = s.chunks > 65535 ? 65535 : s.chunks;
  s.chunk_rows = brim_cuda_div_up(rows, s.chunks);
  s.chunks = brim_cuda_div_up(rows, s.chunk_rows);
  return s;
}

// Sums to part[chunk][column], or to dp itself if there is one chunk.
template <typename T, int W>
__global__ static void pos_bwd_kernel(const T *__restrict__ dy, float *part, int64_t rows,
                                      int64_t vectors, int64_t chunk_rows, bool add) {
  __shared__ float shared[W * THREADS];
  int64_t v = (int64_t)blockIdx.x * 32 + threadIdx.x;
  int lane = (int)threadIdx.y, thread = lane * 32 + (int)threadIdx.x;
  int64_t first = blockIdx.y * chunk_rows,
          last = first + chunk_rows < rows ? first + chunk_rows : rows;
  float sum[W];
#pragma unroll
  for (int k = 0; k < W; k++) sum[k] = 0.0f;
  if (v < vectors) {
#pragma unroll 4
    for (int64_t n = first + lane; n < last; n += POS_LANES) {
      float value[W];
      brim_vec_get<T, W>(brim_vec_load<T, W>(dy + (n * vectors + v) * W), value);
#pragma unroll
      for (int k = 0; k < W; k++) sum[k] += value[k];
    }
  }
#pragma unroll
  for (int k = 0; k < W; k++) shared[k * THREADS + thread] = sum[k];
  __syncthreads();
  if (lane > 0 || v >= vectors) return;
  float *out = part + ((int64_t)blockIdx.y * vectors + v) * W;
#pragma unroll
  for (int k = 0; k < W; k++) {
    for (int other = 1; other < POS_LANES; other++) {
      sum[k] += shared[k * THREADS + other * 32 + thread];
    }
    out[k] = add ? out[k] + sum[k] : sum[k];
  }
}

__global__ static void pos_bwd_finish(const float *part, float *dp, int64_t columns, int64_t chunks,
                                      bool add) {
  int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
#pragma unroll 8
  for (int64_t k = 0; k < chunks; k++) sum += part[k * columns + column];
  dp[column] = add ? dp[column] + sum : sum;
}

static brim_status pos_bwd_prepare(void *impl, brim_op_call *c) {
  int64_t columns = brim_cuda_count(&c->out[0]);
  int width = whole_vectors(&c->in[0], columns) ? c->in[0].dtype == BRIM_F32 ? 4 : 8 : 1;
  column_split s = split_columns((const brim_cuda *)impl, c->in[0].dim[0], columns / width);
  c->workspace_bytes = s.chunks > 1 ? (size_t)(s.chunks * columns) * sizeof(float) : 0;
  return BRIM_OK;
}

template <typename T, int W>
static void launch_pos_bwd(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  int64_t rows = c->in[0].dim[0], columns = brim_cuda_count(&c->out[0]), vectors = columns / W;
  column_split s = split_columns(device, rows, vectors);
  float *dp = (float *)c->out[0].data, *part = s.chunks > 1 ? (float *)c->workspace : dp;
  bool add = c->attr.accumulate;
  pos_bwd_kernel<T, W>
      <<<dim3((unsigned)s.tiles, (unsigned)s.chunks), dim3(32, POS_LANES), 0, stream>>>(
          (const T *)c->in[0].data, part, rows, vectors, s.chunk_rows, add && s.chunks == 1);
  if (s.chunks == 1) return;
  pos_bwd_finish<<<blocks_of(columns), THREADS, 0, stream>>>(part, dp, columns, s.chunks, add);
}

static brim_status pos_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  const brim_cuda *device = (const brim_cuda *)impl;
  cudaStream_t s = (cudaStream_t)stream;
  if (whole_vectors(&c->in[0], brim_cuda_count(&c->out[0]))) {
    BRIM_CUDA_DISPATCH(c->in[0].dtype, (launch_pos_bwd<T, brim_vec_width<T>()>(device, c, s)));
  } else {
    BRIM_CUDA_DISPATCH(c->in[0].dtype, (launch_pos_bwd<T, 1>(device, c, s)));
  }
  return brim_cuda_launched("pos_bwd");
}

//---------------------------------- concatenation ----------------------------------

// Copies a (N, A) and b (N, B) to y (N, A + B), or back. Sizes are in vectors.
template <typename T, int W, bool SPLIT>
__global__ static void concat_kernel(T *a, T *b, T *y, uint32_t count, uint32_t left,
                                     uint32_t right) {
  uint32_t i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  uint32_t row = i / (left + right), column = i % (left + right);
  T *part = column < left ? a + ((int64_t)row * left + column) * W
                          : b + ((int64_t)row * right + (column - left)) * W;
  T *all = y + (int64_t)i * W;
  brim_vec_store<T, W>(SPLIT ? part : all, brim_vec_load<T, W>(SPLIT ? all : part));
}

template <typename T, int W>
static void launch_concat(const brim_op_call *c, cudaStream_t stream) {
  bool split = c->op == BRIM_OP_CONCAT_BWD;
  const brim_tensor *a = split ? &c->out[0] : &c->in[0], *y = split ? &c->in[0] : &c->out[0];
  const brim_tensor *b = a + 1;
  int64_t rows = y->dim[0], left = a->dim[1] / W, right = b->dim[1] / W;
  int64_t step = rows_at_once(rows, left + right);
  for (int64_t n = 0; n < rows; n += step) {
    int64_t launch_vectors = (rows - n < step ? rows - n : step) * (left + right);
    T *pa = (T *)a->data + n * left * W, *pb = (T *)b->data + n * right * W;
    T *py = (T *)y->data + n * (left + right) * W;
    auto kernel = split ? concat_kernel<T, W, true> : concat_kernel<T, W, false>;
    kernel<<<blocks_of(launch_vectors), THREADS, 0, stream>>>(pa, pb, py, (uint32_t)launch_vectors,
                                                              (uint32_t)left, (uint32_t)right);
  }
}

static brim_status concat_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  bool both_whole =
      whole_vectors(&c->in[0], c->in[0].dim[1]) && whole_vectors(&c->in[0], c->in[1].dim[1]);
  DISPATCH_WIDTH(&c->in[0], both_whole ? 0 : 1, launch_concat);
  return brim_cuda_launched("concat");
}

static brim_status concat_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  bool both_whole =
      whole_vectors(&c->in[0], c->out[0].dim[1]) && whole_vectors(&c->in[0], c->out[1].dim[1]);
  DISPATCH_WIDTH(&c->in[0], both_whole ? 0 : 1, launch_concat);
  return brim_cuda_launched("concat_bwd");
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_MAXPOOL, maxpool_validate, NULL, maxpool_run, NULL},
    {BRIM_OP_MAXPOOL_BWD, maxpool_bwd_validate, NULL, maxpool_bwd_run, NULL},
    {BRIM_OP_MEAN, mean_validate, NULL, mean_run, NULL},
    {BRIM_OP_MEAN_BWD, mean_bwd_validate, NULL, mean_bwd_run, NULL},
    {BRIM_OP_POS, pos_validate, NULL, pos_run, NULL},
    {BRIM_OP_POS_BWD, pos_bwd_validate, pos_bwd_prepare, pos_bwd_run, NULL},
    {BRIM_OP_CONCAT, concat_validate, NULL, concat_run, NULL},
    {BRIM_OP_CONCAT_BWD, concat_bwd_validate, NULL, concat_bwd_run, NULL},
};

const brim_op_family brim_cuda_pool_ops = {rows, sizeof rows / sizeof *rows};
