// Layer norm over the last dimension. Bound by memory: forward reads and writes a value once (8 FLOPs a
// value), backward reads two and writes one (14 FLOPs). A transformer on signals with 3 blocks of 16
// channels at batch 4096 has 7 norms of 705 k rows of 16: 22 MB a tensor, 10 us forward and 16 us
// backward each, some 7 % of the step.
//
// Rows of up to 64 vectors go to groups of lanes of a warp (16 rows at once for 16 channels of 16
// bits), wider ones to a block each, both with the row in registers; very wide ones take a loop.
// Backward makes dx and the block's share of dg and db in one pass over the data; the shares are
// added in the order of blocks.
#include "backend/cuda/cuda_vec.cuh"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  COLUMN_CHUNKS = 64,  // parts of the rows in layernorm_columns
  FINISH_LANES = 32,
  BACKWARD_PER_SM = 4  // most blocks on a multiprocessor in the backward pass
};

enum path { PATH_WARP, PATH_BLOCK, PATH_LOOP };

struct plan {
  path how;
  int64_t rows, c;
  int width;       // values a vector
  int group;       // lanes a row (PATH_WARP)
  int per_thread;  // vectors a thread takes: 1 or 2
  int sms;
  int64_t blocks_wanted;  // blocks that would take every row at once
  float eps;              // forward
};

static plan make_plan(const brim_cuda *device, const brim_tensor *x, float eps) {
  plan p;
  p.eps = eps;
  p.sms = device->sm_count;
  p.c = x->dim[x->rank - 1];
  p.rows = brim_cuda_count(x) / p.c;
  p.width = x->dtype == BRIM_F32 ? 4 : 8;
  if (p.c % p.width != 0) p.width = 1;
  int64_t vectors = p.c / p.width, at_once = 1;
  p.group = 1;
  while (p.group < 32 && p.group < vectors) p.group *= 2;
  if (vectors <= 64) {
    p.how = PATH_WARP;
    p.per_thread = vectors <= 32 ? 1 : 2;
    at_once = WARPS * (32 / p.group);
  } else {
    p.how = vectors <= 2 * THREADS ? PATH_BLOCK : PATH_LOOP;
    p.per_thread = vectors <= THREADS ? 1 : 2;
  }
  p.blocks_wanted = brim_cuda_div_up(p.rows, at_once);
  return p;
}

static unsigned blocks_of(const plan &p, int per_sm) {
  int64_t most = (int64_t)p.sms * per_sm;
  return (unsigned)(p.blocks_wanted < most ? p.blocks_wanted : most);
}

// Both sums of a row, in all its threads. BLOCK: shared holds 2 * WARPS floats.
template <bool BLOCK>
__device__ static inline void row_sums(float &a, float &b, int group, float *shared) {
  for (int d = (BLOCK ? 32 : group) / 2; d > 0; d >>= 1) {
    a += __shfl_xor_sync(0xffffffffu, a, d);
    b += __shfl_xor_sync(0xffffffffu, b, d);
  }
  if (!BLOCK) return;
  __syncthreads();  // the last sums have been read
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = a;
    shared[WARPS + threadIdx.x / 32] = b;
  }
  __syncthreads();
  a = b = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    a += shared[w];
    b += shared[WARPS + w];
  }
}

// The values a thread takes: rows row, row + step, ...; of each row the vectors lane, lane + lanes.
struct thread_place {
  int64_t row, step;
  int lane, lanes;
};

template <bool BLOCK>
__device__ static inline thread_place find_place(int group) {
  thread_place s;
  if (BLOCK) {
    s.row = blockIdx.x;
    s.step = gridDim.x;
    s.lane = (int)threadIdx.x;
    s.lanes = THREADS;
  } else {
    int in_warp = 32 / group;
    s.row = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * in_warp + threadIdx.x % 32 / group;
    s.step = (int64_t)gridDim.x * WARPS * in_warp;
    s.lane = (int)threadIdx.x % group;
    s.lanes = group;
  }
  return s;
}

// True if the first row of this warp (or block) is at or past the end. Threads that share a sum get the
// same answer, so they leave the loop together.
template <bool BLOCK>
__device__ static inline bool past_end(int64_t row, int group, int64_t rows) {
  return row - (BLOCK ? 0 : (int)threadIdx.x % 32 / group) >= rows;
}

template <typename T, int W, int K>
__device__ static inline void load_row(const T *x, int64_t row, int64_t c, const thread_place &s,
                                       bool on, brim_vec<T, W> (&raw)[K]) {
#pragma unroll
  for (int k = 0; k < K; k++) {
    int64_t column = (int64_t)(s.lane + k * s.lanes) * W;
    raw[k] = on && column < c ? brim_vec_load<T, W>(x + row * c + column) : brim_vec_zero<T, W>();
  }
}

template <int W, int K>
__device__ static inline void load_columns(const float *p, int64_t c, const thread_place &s,
                                           float (&v)[K][W]) {
#pragma unroll
  for (int k = 0; k < K; k++) {
    int64_t column = (int64_t)(s.lane + k * s.lanes) * W;
#pragma unroll
    for (int i = 0; i < W; i++) v[k][i] = column < c ? p[column + i] : 0.0f;
  }
}

//---------------------------------- forward ----------------------------------

template <typename T, int W, int K, bool BLOCK>
__global__ static void __launch_bounds__(THREADS)
    layernorm_kernel(const T *x, const float *g, const float *b, T *y, float *mean, float *rstd,
                     plan p) {
  __shared__ float shared[2 * WARPS];
  thread_place s = find_place<BLOCK>(p.group);
  float gain[K][W], bias[K][W], inverse_c = 1.0f / (float)p.c;
  load_columns<W, K>(g, p.c, s, gain);
  load_columns<W, K>(b, p.c, s, bias);
  brim_vec<T, W> raw[K], next[K];
  load_row<T, W, K>(x, s.row, p.c, s, s.row < p.rows, next);
  for (int64_t row = s.row; !past_end<BLOCK>(row, p.group, p.rows); row += s.step) {
    float v[K][W], sum = 0.0f, square = 0.0f, none = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++) raw[k] = next[k];
    load_row<T, W, K>(x, row + s.step, p.c, s, row + s.step < p.rows, next);
#pragma unroll
    for (int k = 0; k < K; k++) {
      brim_vec_get<T, W>(raw[k], v[k]);
#pragma unroll
      for (int i = 0; i < W; i++) sum += v[k][i];
    }
    row_sums<BLOCK>(sum, none, p.group, shared);
    float mu = sum * inverse_c;
#pragma unroll
    for (int k = 0; k < K; k++) {
      bool on = (int64_t)(s.lane + k * s.lanes) * W < p.c;
#pragma unroll
      for (int i = 0; i < W; i++) {
        v[k][i] = on ? v[k][i] - mu : 0.0f;
        square = fmaf(v[k][i], v[k][i], square);
      }
    }
    row_sums<BLOCK>(square, none, p.group, shared);
    float inverse = rsqrtf(fmaf(square, inverse_c, p.eps));
    if (row >= p.rows) continue;
    if (s.lane == 0) {
      mean[row] = mu;
      rstd[row] = inverse;
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
      int64_t column = (int64_t)(s.lane + k * s.lanes) * W;
      if (column >= p.c) continue;
#pragma unroll
      for (int i = 0; i < W; i++) v[k][i] = fmaf(v[k][i] * inverse, gain[k][i], bias[k][i]);
      brim_vec_store<T, W>(y + row * p.c + column, brim_vec_put<T, W>(v[k]));
    }
  }
}

// A block takes a row and reads it three times, mostly from the caches.
template <typename T>
__global__ static void layernorm_loop(const T *x, const float *g, const float *b, T *y, float *mean,
                                      float *rstd, plan p) {
  int64_t c = p.c;
  __shared__ float shared[32];
  __shared__ float mu, inverse;
  int64_t row = blockIdx.x;
  const T *xr = x + row * c;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < c; i += blockDim.x) sum += brim_load(xr, i);
  sum = brim_block_sum(sum, shared);
  if (threadIdx.x == 0) mu = sum / (float)c;
  __syncthreads();
  float square = 0;
  for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    float d = brim_load(xr, i) - mu;
    square += d * d;
  }
  square = brim_block_sum(square, shared);
  if (threadIdx.x == 0) {
    inverse = rsqrtf(square / (float)c + p.eps);
    mean[row] = mu;
    rstd[row] = inverse;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    brim_store(y + row * c, i, (brim_load(xr, i) - mu) * inverse * g[i] + b[i]);
  }
}

template <typename T, int W>
static void launch_forward(const brim_op_call *c, cudaStream_t stream, const plan &p) {
  const T *x = (const T *)c->in[0].data;
  const float *g = (const float *)c->in[1].data, *b = (const float *)c->in[2].data;
  T *y = (T *)c->out[0].data;
  float *mean = (float *)c->out[1].data, *rstd = (float *)c->out[2].data;
  if (p.how == PATH_LOOP) {
    layernorm_loop<T><<<(unsigned)p.rows, THREADS, 0, stream>>>(x, g, b, y, mean, rstd, p);
    return;
  }
  auto kernel = p.how == PATH_WARP  ? p.per_thread == 1 ? layernorm_kernel<T, W, 1, false>
                                                        : layernorm_kernel<T, W, 2, false>
                 : p.per_thread == 1 ? layernorm_kernel<T, W, 1, true>
                                    : layernorm_kernel<T, W, 2, true>;
  unsigned blocks = blocks_of(p, brim_cuda_resident(kernel, THREADS, 0, 8));
  kernel<<<blocks, THREADS, 0, stream>>>(x, g, b, y, mean, rstd, p);
}

//---------------------------------- backward ----------------------------------

template <typename T>
struct backward_input {
  const T *dy, *x;
  const float *g, *mean, *rstd;
};

// Writes the block's sums of dy h and dy to part[block][2][c]. BLOCK: every thread has its own
// columns and writes them. Else adds over the groups of a warp, then over warps through shared
// (WARPS * 2 * c floats).
template <int W, int K, bool BLOCK>
__device__ static inline void put_part(float (&dg)[K][W], float (&db)[K][W], const thread_place &s,
                                       const plan &p, float *shared, float *part) {
  float *own = part + (int64_t)blockIdx.x * 2 * p.c;
  float *to = BLOCK ? own : shared + threadIdx.x / 32 * 2 * p.c;
#pragma unroll
  for (int k = 0; k < K; k++) {
    int64_t column = (int64_t)(s.lane + k * s.lanes) * W;
#pragma unroll
    for (int i = 0; i < W; i++) {
      for (int q = p.group; !BLOCK && q < 32; q <<= 1) {
        dg[k][i] += __shfl_xor_sync(0xffffffffu, dg[k][i], q);
        db[k][i] += __shfl_xor_sync(0xffffffffu, db[k][i], q);
      }
      if (column < p.c && (BLOCK || (int)threadIdx.x % 32 < p.group)) {
        to[column + i] = dg[k][i];
        to[p.c + column + i] = db[k][i];
      }
    }
  }
  if (BLOCK) return;
  __syncthreads();
  for (int i = (int)threadIdx.x; i < 2 * (int)p.c; i += THREADS) {
    float sum = 0.0f;
    for (int w = 0; w < WARPS; w++) sum += shared[w * 2 * (int)p.c + i];
    own[i] = sum;
  }
}

// dx = rstd (dy g - mean(dy g) - h mean(dy g h)), h = (x - mean) rstd; part[block][2][c] = this
// block's sums of dy h and dy. dx may be dy.
template <typename T, int W, int K, bool BLOCK>
__global__ static void __launch_bounds__(THREADS, 2)
    layernorm_bwd_kernel(backward_input<T> in, T *dx, float *part, plan p) {
  extern __shared__ float shared[];  // BLOCK: 2 * WARPS; else WARPS * 2 * c
  thread_place s = find_place<BLOCK>(p.group);
  float gain[K][W], dg[K][W], db[K][W], inverse_c = 1.0f / (float)p.c;
  load_columns<W, K>(in.g, p.c, s, gain);
#pragma unroll
  for (int k = 0; k < K; k++) {
#pragma unroll
    for (int i = 0; i < W; i++) dg[k][i] = db[k][i] = 0.0f;
  }
  brim_vec<T, W> raw_d[K], raw_x[K];  // values of the next row
  bool on = s.row < p.rows;
  load_row<T, W, K>(in.dy, s.row, p.c, s, on, raw_d);
  load_row<T, W, K>(in.x, s.row, p.c, s, on, raw_x);
  float next_mean = on ? in.mean[s.row] : 0.0f, next_rstd = on ? in.rstd[s.row] : 0.0f;
  for (int64_t row = s.row; !past_end<BLOCK>(row, p.group, p.rows); row += s.step) {
    float d[K][W], h[K][W], a = 0.0f, b = 0.0f, mu = next_mean, inverse = next_rstd;
#pragma unroll
    for (int k = 0; k < K; k++) {
      brim_vec_get<T, W>(raw_d[k], d[k]);
      brim_vec_get<T, W>(raw_x[k], h[k]);
    }
    on = row + s.step < p.rows;
    load_row<T, W, K>(in.dy, row + s.step, p.c, s, on, raw_d);
    load_row<T, W, K>(in.x, row + s.step, p.c, s, on, raw_x);
    next_mean = on ? in.mean[row + s.step] : 0.0f;
    next_rstd = on ? in.rstd[row + s.step] : 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
      for (int i = 0; i < W; i++) {
        h[k][i] = (h[k][i] - mu) * inverse;  // beyond the row d is 0, and with it all sums
        dg[k][i] = fmaf(d[k][i], h[k][i], dg[k][i]);
        db[k][i] += d[k][i];
        d[k][i] *= gain[k][i];
        a += d[k][i];
        b = fmaf(d[k][i], h[k][i], b);
      }
    }
    row_sums<BLOCK>(a, b, p.group, shared);
    a *= inverse_c;
    b *= inverse_c;
    if (row >= p.rows) continue;
#pragma unroll
    for (int k = 0; k < K; k++) {
      int64_t column = (int64_t)(s.lane + k * s.lanes) * W;
      if (column >= p.c) continue;
#pragma unroll
      for (int i = 0; i < W; i++) d[k][i] = (d[k][i] - fmaf(h[k][i], b, a)) * inverse;
      brim_vec_store<T, W>(dx + row * p.c + column, brim_vec_put<T, W>(d[k]));
    }
  }
  put_part<W, K, BLOCK>(dg, db, s, p, shared, part);
}

template <typename T>
__global__ static void layernorm_bwd_loop(const T *dy, const T *x, const float *g,
                                          const float *mean, const float *rstd, T *dx, int64_t c) {
  __shared__ float shared[32];
  __shared__ float s1, s2;
  int64_t row = blockIdx.x;
  float mu = mean[row], inverse = rstd[row];
  float a = 0, b = 0;
  for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    float d = brim_load(dy, row * c + i) * g[i];
    a += d;
    b += d * (brim_load(x, row * c + i) - mu) * inverse;
  }
  a = brim_block_sum(a, shared);
  if (threadIdx.x == 0) s1 = a / (float)c;
  b = brim_block_sum(b, shared);
  if (threadIdx.x == 0) s2 = b / (float)c;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    float h = (brim_load(x, row * c + i) - mu) * inverse;
    float d = brim_load(dy, row * c + i) * g[i];
    brim_store(dx, row * c + i, (d - s1 - h * s2) * inverse);
  }
}

// Sums of dy h and dy for very wide rows, a part for each chunk of rows: part[chunk][2][c].
template <typename T>
__global__ static void layernorm_columns(const T *dy, const T *x, const float *mean,
                                         const float *rstd, float *part, int64_t n, int64_t c) {
  int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= c) return;
  int64_t per = (n + COLUMN_CHUNKS - 1) / COLUMN_CHUNKS;
  int64_t first = (int64_t)blockIdx.y * per;
  int64_t last = first + per < n ? first + per : n;
  float dg = 0, db = 0;
  for (int64_t row = first; row < last; row++) {
    float d = brim_load(dy, row * c + column);
    dg += d * (brim_load(x, row * c + column) - mean[row]) * rstd[row];
    db += d;
  }
  part[(int64_t)blockIdx.y * 2 * c + column] = dg;
  part[((int64_t)blockIdx.y * 2 + 1) * c + column] = db;
}

// Adds the parts in order. A block takes 32 of the 2 c columns, with FINISH_LANES threads for each.
__global__ static void layernorm_finish(const float *part, float *dg, float *db, int64_t c,
                                        int64_t parts, bool accumulate) {
  __shared__ float shared[FINISH_LANES][33];
  int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x;
  int lane = (int)threadIdx.y;
  float sum = 0.0f;
  if (column < 2 * c) {
#pragma unroll 4
    for (int64_t k = lane; k < parts; k += FINISH_LANES) sum += part[k * 2 * c + column];
  }
  shared[lane][threadIdx.x] = sum;
  __syncthreads();
  if (lane > 0 || column >= 2 * c) return;
  for (int k = 1; k < FINISH_LANES; k++) sum += shared[k][threadIdx.x];
  float *out = column < c ? dg + column : db + (column - c);
  *out = accumulate ? *out + sum : sum;
}

template <typename T, int W>
static void launch_backward(const brim_op_call *c, cudaStream_t stream, const plan &p) {
  const T *dy = (const T *)c->in[0].data, *x = (const T *)c->in[1].data;
  const float *g = (const float *)c->in[2].data, *mean = (const float *)c->in[3].data;
  const float *rstd = (const float *)c->in[4].data;
  T *dx = (T *)c->out[0].data;
  float *part = (float *)c->workspace;
  int64_t parts = COLUMN_CHUNKS;
  if (p.how == PATH_LOOP) {
    dim3 grid((unsigned)brim_cuda_div_up(p.c, THREADS), COLUMN_CHUNKS);
    // the columns first: dx may be written over dy
    layernorm_columns<T><<<grid, THREADS, 0, stream>>>(dy, x, mean, rstd, part, p.rows, p.c);
    layernorm_bwd_loop<T><<<(unsigned)p.rows, THREADS, 0, stream>>>(dy, x, g, mean, rstd, dx, p.c);
  } else {
    size_t bytes = (size_t)(p.how == PATH_WARP ? WARPS * 2 * p.c : 2 * WARPS) * sizeof(float);
    auto kernel = p.how == PATH_WARP  ? p.per_thread == 1 ? layernorm_bwd_kernel<T, W, 1, false>
                                                          : layernorm_bwd_kernel<T, W, 2, false>
                   : p.per_thread == 1 ? layernorm_bwd_kernel<T, W, 1, true>
                                      : layernorm_bwd_kernel<T, W, 2, true>;
    parts = blocks_of(p, brim_cuda_resident(kernel, THREADS, bytes, BACKWARD_PER_SM));
    backward_input<T> in = {dy, x, g, mean, rstd};
    kernel<<<(unsigned)parts, THREADS, bytes, stream>>>(in, dx, part, p);
  }
  layernorm_finish<<<(unsigned)brim_cuda_div_up(2 * p.c, 32), dim3(32, FINISH_LANES), 0, stream>>>(
      part, (float *)c->out[1].data, (float *)c->out[2].data, p.c, parts, c->attr.accumulate);
}

//---------------------------------- table ----------------------------------

template <typename T>
static void launch(const brim_op_call *c, cudaStream_t stream, const plan &p) {
  constexpr int W = brim_vec_width<T>();
  if (c->op == BRIM_OP_LAYERNORM) {
    p.width == 1 ? launch_forward<T, 1>(c, stream, p) : launch_forward<T, W>(c, stream, p);
  } else {
    p.width == 1 ? launch_backward<T, 1>(c, stream, p) : launch_backward<T, W>(c, stream, p);
  }
}

static brim_status run(void *impl, void *stream, const brim_op_call *c, const char *what) {
  brim_cuda_enter(impl);
  plan p = make_plan((const brim_cuda *)impl, &c->in[0], c->attr.eps);
  BRIM_CUDA_DISPATCH(c->in[0].dtype, launch<T>(c, (cudaStream_t)stream, p));
  return brim_cuda_launched(what);
}

static brim_status layernorm_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "layernorm");
}

static brim_status layernorm_run(void *impl, void *stream, const brim_op_call *c) {
  return run(impl, stream, c, "layernorm");
}

static brim_status layernorm_bwd_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "layernorm_bwd");
}

// part[blocks][2][c]
static brim_status layernorm_bwd_prepare(void *impl, brim_op_call *c) {
  plan p = make_plan((const brim_cuda *)impl, &c->in[0], c->attr.eps);
  int64_t parts = COLUMN_CHUNKS;
  if (p.how != PATH_LOOP) parts = blocks_of(p, BACKWARD_PER_SM);
  c->workspace_bytes = (size_t)(parts * 2 * p.c) * sizeof(float);
  return BRIM_OK;
}

static brim_status layernorm_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  return run(impl, stream, c, "layernorm_bwd");
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_LAYERNORM, layernorm_validate, NULL, layernorm_run, NULL},
    {BRIM_OP_LAYERNORM_BWD, layernorm_bwd_validate, layernorm_bwd_prepare, layernorm_bwd_run, NULL},
};

const brim_op_family brim_cuda_norm_ops = {rows, sizeof rows / sizeof *rows};
