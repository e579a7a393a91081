// Losses with their gradients in one pass: a warp, or part of a warp if the row is short, writes the loss and
// gradient of a row. One block then adds the rows to the metrics in a fixed order; very many rows are first
// added by several blocks. Logits are read three times, but only once from memory: 2 n s bytes, about
// 20 FLOPs a value. With 10 to 1000 classes that is far below 1 % of a step, so the cost is that of two
// launches.
#include "backend/cuda/cuda_vec.cuh"

enum {
  ROW_THREADS = 256,  // threads of a block of the loss kernels
  SUM_THREADS = 1024,
  MANY_ROWS = 1 << 16,  // more rows than this are first added by several blocks
  ROW_SLAB = 1 << 13    // rows that each of these blocks adds
};

// Workspace: row_loss (N), row_correct (N), row_bad (N)
static brim_status loss_prepare(void *impl, brim_op_call *c) {
  brim_cuda_enter(impl);
  c->workspace_bytes = (size_t)c->in[0].dim[0] * 3 * sizeof(float);
  return BRIM_OK;
}

// The factor of all gradients of a loss.
__device__ static inline float gradient_scale(const double *state) {
  return (float)(state[BRIM_STATE_GRAD_SCALE] * state[BRIM_STATE_LOSS_SCALE]);
}

// Sums over the LANES lanes of a row. All lanes of the warp take part. The order of a sum does not depend on
// LANES: lanes without a value add 0, and lanes that are far apart are added first.
template <int LANES>
__device__ static inline float lanes_sum(float v) {
  for (int d = LANES / 2; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}

template <int LANES>
__device__ static inline float lanes_max(float v) {
  for (int d = LANES / 2; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}

// The index of the largest value, the first of equals. Ignores NaN, as a NaN logit makes the row bad anyway.
template <int LANES>
__device__ static inline int lanes_argmax(float value, int index) {
  for (int d = LANES / 2; d > 0; d >>= 1) {
    float other = __shfl_xor_sync(0xffffffffu, value, d);
    int other_index = __shfl_xor_sync(0xffffffffu, index, d);
    if (other > value || (other == value && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
  return index;
}

struct xent_shape {
  int64_t n;
  int c;
  float smoothing;
};

// The row of a thread. Threads past the last row compute the last row again, without writing.
template <int LANES>
__device__ static inline int64_t row_of(int64_t n, bool *writes) {
  int64_t row = (int64_t)blockIdx.x * (ROW_THREADS / LANES) + threadIdx.y;
  *writes = row < n;
  return *writes ? row : n - 1;
}

template <typename T, int LANES>
__global__ static void xent_kernel(const T *logits, const int32_t *labels, const double *state,
                                   float *rows, T *grad, xent_shape shape) {
  int64_t n = shape.n;
  int c = shape.c;
  float smoothing = shape.smoothing;
  bool writes;
  int64_t row = row_of<LANES>(n, &writes);
  int lane = (int)threadIdx.x;
  const T *z = logits + row * c;
  bool padding = row >= brim_valid_rows(state, n);
  int label = labels[row];
  bool lie = label < 0 || label >= c;
  float best = -INFINITY;
  int arg = c;
  for (int i = lane; i < c; i += LANES) {
    float v = brim_load(z, i);
    if (v > best) {
      best = v;
      arg = i;
    }
  }
  float top = lanes_max<LANES>(best);
  arg = lanes_argmax<LANES>(best, arg);
  float sum = 0, all = 0;
  for (int i = lane; i < c; i += LANES) {
    float v = brim_load(z, i);
    sum += expf(v - top);
    all += v;
  }
  sum = lanes_sum<LANES>(sum);
  all = lanes_sum<LANES>(all);
  float log_sum = top + logf(sum);
  float target = lie ? 0.0f : brim_load(z, label);
  float wanted = (1.0f - smoothing) * target;
  if (smoothing > 0.0f) wanted += smoothing * (all / (float)c);
  float loss = log_sum - wanted;
  bool bad = lie || !isfinite(loss);
  if (!writes) return;
  if (lane == 0) {
    rows[row] = padding || bad ? 0.0f : loss;
    rows[n + row] = !padding && !bad && arg == label ? 1.0f : 0.0f;
    rows[2 * n + row] = !padding && bad ? 1.0f : 0.0f;
  }
  if (!grad) return;
  bool none = padding || lie;
  float scale = gradient_scale(state);
  for (int i = lane; i < c; i += LANES) {
    float p = expf(brim_load(z, i) - log_sum);
    float want = smoothing / (float)c + (i == label ? 1.0f - smoothing : 0.0f);
    brim_store(grad, row * c + i, none ? 0.0f : (p - want) * scale);
  }
}

template <typename T, int LANES>
__global__ static void mse_kernel(const T *pred, const float *target, const double *state,
                                  float *rows, T *grad, int64_t n, int c) {
  bool writes;
  int64_t row = row_of<LANES>(n, &writes);
  bool padding = row >= brim_valid_rows(state, n);
  float scale = 2.0f / (float)c * gradient_scale(state);
  float sum = 0;
  for (int i = (int)threadIdx.x; i < c; i += LANES) {
    float d = brim_load(pred, row * c + i) - target[row * c + i];
    sum += d * d;
    if (grad && writes) brim_store(grad, row * c + i, padding ? 0.0f : d * scale);
  }
  sum = lanes_sum<LANES>(sum) / (float)c;
  if (threadIdx.x == 0 && writes) {
    bool bad = !isfinite(sum);
    rows[row] = padding || bad ? 0.0f : sum;
    rows[n + row] = 0.0f;
    rows[2 * n + row] = !padding && bad ? 1.0f : 0.0f;
  }
}

template <typename T, int LANES>
__global__ static void bce_kernel(const T *logits, const float *target, const double *state,
                                  float *rows, T *grad, int64_t n, int c) {
  bool writes;
  int64_t row = row_of<LANES>(n, &writes);
  bool padding = row >= brim_valid_rows(state, n);
  float scale = gradient_scale(state) / (float)c;
  float sum = 0, correct = 0;
  for (int i = (int)threadIdx.x; i < c; i += LANES) {
    float z = brim_load(logits, row * c + i), t = target[row * c + i];
    sum += (z > 0.0f ? z : 0.0f) - z * t + log1pf(expf(-fabsf(z)));
    correct += (z > 0.0f) == (t > 0.5f) ? 1.0f : 0.0f;
    float d = (1.0f / (1.0f + expf(-z)) - t) * scale;
    if (grad && writes) brim_store(grad, row * c + i, padding ? 0.0f : d);
  }
  sum = lanes_sum<LANES>(sum) / (float)c;
  correct = lanes_sum<LANES>(correct) / (float)c;
  if (threadIdx.x == 0 && writes) {
    bool bad = !isfinite(sum);
    rows[row] = padding || bad ? 0.0f : sum;
    rows[n + row] = padding || bad ? 0.0f : correct;
    rows[2 * n + row] = !padding && bad ? 1.0f : 0.0f;
  }
}

// Each block adds up ROW_SLAB rows and stores the sum in the first of them.
__global__ static void add_slabs(float *rows, int64_t n) {
  __shared__ float shared[32];
  int64_t first = (int64_t)blockIdx.x * ROW_SLAB;
  int64_t last = first + ROW_SLAB < n ? first + ROW_SLAB : n;
  float *values = rows + (int64_t)blockIdx.y * n;
  float sum = 0;
  for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) sum += values[i];
  sum = brim_block_sum(sum, shared);
  if (threadIdx.x == 0) values[first] = sum;
}

// Adds every `step`th row to the metrics.
__global__ static void add_rows(const float *rows, const double *valid, float *metrics, int64_t n,
                                int64_t step) {
  __shared__ float shared[32];
  const int metric_index[3] = {BRIM_METRIC_LOSS, BRIM_METRIC_CORRECT, BRIM_METRIC_BAD};
  for (int k = 0; k < 3; k++) {
    float sum = 0;
    for (int64_t i = threadIdx.x * step; i < n; i += blockDim.x * step) sum += rows[k * n + i];
    sum = brim_block_sum(sum, shared);
    if (threadIdx.x == 0) metrics[metric_index[k]] += sum;
  }
  if (threadIdx.x == 0) {
    metrics[BRIM_METRIC_ROWS] += (float)brim_state_count(valid, 0, n);
  }
}

brim_status brim_cuda_add_rows(void *stream, float *rows, const double *valid, float *metrics,
                               int64_t n) {
  int64_t step = n > MANY_ROWS ? ROW_SLAB : 1;
  if (step > 1) {
    dim3 grid((unsigned)((n + ROW_SLAB - 1) / ROW_SLAB), 3);
    add_slabs<<<grid, SUM_THREADS, 0, (cudaStream_t)stream>>>(rows, n);
    BRIM_TRY(brim_cuda_launched("add_slabs"));
  }
  add_rows<<<1, SUM_THREADS, 0, (cudaStream_t)stream>>>(rows, valid, metrics, n, step);
  return brim_cuda_launched("add_rows");
}

static brim_status finish(const brim_op_call *c, void *stream) {
  BRIM_TRY(brim_cuda_launched("loss"));
  const double *state = (const double *)c->in[2].data;
  return brim_cuda_add_rows(stream, (float *)c->workspace, state + BRIM_STATE_ROWS,
                            (float *)c->out[0].data, c->in[0].dim[0]);
}

// Number of lanes for a row of c values.
static int row_lanes(int64_t c) { return c <= 8 ? 8 : c <= 16 ? 16 : 32; }

static unsigned row_blocks(int64_t n, int lanes) {
  int64_t rows_of_block = ROW_THREADS / lanes;
  return (unsigned)((n + rows_of_block - 1) / rows_of_block);
}

static brim_status xent_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "xent");
}

template <typename T, int LANES>
static void launch_xent(const brim_op_call *c, void *grad, void *stream) {
  int64_t n = c->in[0].dim[0];
  xent_shape shape = {n, (int)c->in[0].dim[1], c->attr.label_smoothing};
  dim3 block(LANES, ROW_THREADS / LANES);
  xent_kernel<T, LANES><<<row_blocks(n, LANES), block, 0, (cudaStream_t)stream>>>(
      (const T *)c->in[0].data, (const int32_t *)c->in[1].data, (const double *)c->in[2].data,
      (float *)c->workspace, (T *)grad, shape);
}

template <typename T>
static void choose_xent(const brim_op_call *c, void *grad, void *stream) {
  int lanes = row_lanes(c->in[0].dim[1]);
  if (lanes == 8) return launch_xent<T, 8>(c, grad, stream);
  if (lanes == 16) return launch_xent<T, 16>(c, grad, stream);
  launch_xent<T, 32>(c, grad, stream);
}

static brim_status xent_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  void *grad = brim_cuda_has(&c->out[1], 1, c->out_count) ? c->out[1].data : NULL;
  BRIM_CUDA_DISPATCH(c->in[0].dtype, (choose_xent<T>(c, grad, stream)));
  return finish(c, stream);
}

static brim_status mse_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "mse");
}

template <typename T, int LANES>
static void launch_mse(const brim_op_call *c, void *grad, void *stream) {
  int64_t n = c->in[0].dim[0];
  dim3 block(LANES, ROW_THREADS / LANES);
  mse_kernel<T, LANES><<<row_blocks(n, LANES), block, 0, (cudaStream_t)stream>>>(
      (const T *)c->in[0].data, (const float *)c->in[1].data, (const double *)c->in[2].data,
      (float *)c->workspace, (T *)grad, n, (int)c->in[0].dim[1]);
}

template <typename T>
static void choose_mse(const brim_op_call *c, void *grad, void *stream) {
  int lanes = row_lanes(c->in[0].dim[1]);
  if (lanes == 8) return launch_mse<T, 8>(c, grad, stream);
  if (lanes == 16) return launch_mse<T, 16>(c, grad, stream);
  launch_mse<T, 32>(c, grad, stream);
}

static brim_status mse_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  void *grad = brim_cuda_has(&c->out[1], 1, c->out_count) ? c->out[1].data : NULL;
  BRIM_CUDA_DISPATCH(c->in[0].dtype, (choose_mse<T>(c, grad, stream)));
  return finish(c, stream);
}

static brim_status bce_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "bce");
}

template <typename T, int LANES>
static void launch_bce(const brim_op_call *c, void *grad, void *stream) {
  int64_t n = c->in[0].dim[0];
  dim3 block(LANES, ROW_THREADS / LANES);
  bce_kernel<T, LANES><<<row_blocks(n, LANES), block, 0, (cudaStream_t)stream>>>(
      (const T *)c->in[0].data, (const float *)c->in[1].data, (const double *)c->in[2].data,
      (float *)c->workspace, (T *)grad, n, (int)c->in[0].dim[1]);
}

template <typename T>
static void choose_bce(const brim_op_call *c, void *grad, void *stream) {
  int lanes = row_lanes(c->in[0].dim[1]);
  if (lanes == 8) return launch_bce<T, 8>(c, grad, stream);
  if (lanes == 16) return launch_bce<T, 16>(c, grad, stream);
  launch_bce<T, 32>(c, grad, stream);
}

static brim_status bce_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  void *grad = brim_cuda_has(&c->out[1], 1, c->out_count) ? c->out[1].data : NULL;
  BRIM_CUDA_DISPATCH(c->in[0].dtype, (choose_bce<T>(c, grad, stream)));
  return finish(c, stream);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_XENT, xent_validate, loss_prepare, xent_run, NULL},
    {BRIM_OP_MSE, mse_validate, loss_prepare, mse_run, NULL},
    {BRIM_OP_BCE, bce_validate, loss_prepare, bce_run, NULL},
};

const brim_op_family brim_cuda_loss_ops = {rows, sizeof rows / sizeof *rows};
