// The backward of batch norm, add and relu in one; cuda_batchnorm.cu says how the passes share the work
// and what they cost. The first pass sums up gradients of a slab, the second writes dx; over ranks they
// are BATCHNORM_BWD_SUMS and BATCHNORM_BWD_JOINED.
#include "backend/cuda/cuda_batchnorm.cuh"

//---------------------------------- kernels ----------------------------------

enum mask_mode { MASK_NONE, MASK_Y, MASK_X };

template <typename T>
struct gradient {
  const T *dy, *x, *y, *dy2;
  const float *g, *b, *mean, *rstd;
  T *dx, *dz;
};

// A thread's data of its channels, to mask and normalize.
template <int W>
struct channel_values {
  float mean[W], scale[W], shift[W];
};

// The block's channels through shared memory: one load a channel. Everyone must come here.
template <typename T, int W>
__device__ static inline channel_values<W> load_channels(const gradient<T> &q, const shape &s,
                                                         const place &at, float *shared) {
  int base = (int)blockIdx.x * s.tile * W, c = base + (int)threadIdx.x;
  if ((int)threadIdx.x < s.tile * W && c < s.c) {
    shared[threadIdx.x] = q.mean[c];
    shared[MAX_CHANNELS + threadIdx.x] = q.g[c] * q.rstd[c];
    shared[2 * MAX_CHANNELS + threadIdx.x] = q.b[c];
  }
  __syncthreads();
  channel_values<W> k;
  int own = at.on ? at.channel - base : 0;
#pragma unroll
  for (int i = 0; i < W; i++) {
    k.mean[i] = shared[own + i];
    k.scale[i] = shared[MAX_CHANNELS + own + i];
    k.shift[i] = shared[2 * MAX_CHANNELS + own + i];
  }
  __syncthreads();  // the memory is used again
  return k;
}

// The gradient that passes the activation, of W values whose raw bits are at hand.
template <typename T, int W, int MODE>
__device__ static inline void passed(const channel_values<W> &k, const brim_vec<T, W> &dy,
                                     const brim_vec<T, W> &dy2, const brim_vec<T, W> &y,
                                     const float (&x)[W], bool second, float (&out)[W]) {
  float v[W];
  brim_vec_get<T, W>(dy, out);
  if (second) {
    brim_vec_get<T, W>(dy2, v);
#pragma unroll
    for (int i = 0; i < W; i++) out[i] += v[i];
  }
  if constexpr (MODE == MASK_Y) {
    brim_vec_get<T, W>(y, v);
#pragma unroll
    for (int i = 0; i < W; i++) out[i] = v[i] > 0.0f ? out[i] : 0.0f;
  }
  if constexpr (MODE == MASK_X) {
#pragma unroll
    for (int i = 0; i < W; i++) {
      float n = normalised<W>(x[i], k.mean[i], k.scale[i], k.shift[i]);
      out[i] = n > 0.0f ? out[i] : 0.0f;
    }
  }
}

// part[0][slab][c] = sum of g', part[1][slab][c] = sum of g' * (x - mean); dz = g'
template <typename T, int W, int MODE>
__global__ static void __launch_bounds__(THREADS, 2)
    bwd_sums(gradient<T> q, const double *state, float *part, shape s) {
  __shared__ float shared[2 * W * THREADS];
  static_assert(2 * W * THREADS >= 3 * MAX_CHANNELS, "load_channels");
  constexpr int U = 2;
  place at = find_place<W>(s);
  int64_t slab = blockIdx.y, first = slab * s.per;
  int64_t valid = brim_valid_rows(state, s.rows) * s.area;
  int64_t end = first + s.per < s.pixels ? first + s.per : s.pixels;
  int64_t last = end < valid ? end : valid;
  float a[W], b[W];
#pragma unroll
  for (int i = 0; i < W; i++) a[i] = b[i] = 0.0f;
  channel_values<W> k = load_channels<T, W>(q, s, at, shared);
  if (at.on) {
    int64_t p = first + at.lane;
    for (; p < last; p += U * s.lanes) {
      brim_vec<T, W> dy[U], dy2[U], x[U], y[U];
#pragma unroll
      for (int u = 0; u < U; u++) {
        if (p + u * s.lanes >= last) continue;
        int64_t e = (p + u * s.lanes) * s.c + at.channel;
        dy[u] = brim_vec_load<T, W>(q.dy + e);
        x[u] = brim_vec_load<T, W>(q.x + e);
        if (MODE == MASK_Y) y[u] = brim_vec_load<T, W>(q.y + e);
        if (q.dy2) dy2[u] = brim_vec_load<T, W>(q.dy2 + e);
      }
#pragma unroll
      for (int u = 0; u < U; u++) {
        if (p + u * s.lanes >= last) continue;
        float v[W], d[W];
        brim_vec_get<T, W>(x[u], v);
        passed<T, W, MODE>(k, dy[u], dy2[u], y[u], v, q.dy2 != nullptr, d);
#pragma unroll
        for (int i = 0; i < W; i++) {
          a[i] += d[i];
          b[i] = fmaf(d[i], v[i] - k.mean[i], b[i]);
        }
        if (q.dz) {
          brim_vec_store<T, W>(q.dz + (p + u * s.lanes) * s.c + at.channel, brim_vec_put<T, W>(d));
        }
      }
    }
    // Padding: the first pixel of this lane that is not valid, and all after it.
    int64_t pad = first + at.lane;
    if (pad < last) pad += (last - pad + s.lanes - 1) / s.lanes * s.lanes;
    for (; q.dz && pad < end; pad += s.lanes) {
      brim_vec_store<T, W>(q.dz + pad * s.c + at.channel, brim_vec_zero<T, W>());
    }
  }
  add_lanes<W>(s, a, b, shared);
  if (!at.on || at.lane > 0) return;
  float *sums = part + slab * s.c + at.channel, *products = sums + s.slabs * s.c;
#pragma unroll
  for (int i = 0; i < W; i++) {
    sums[i] = a[i];
    products[i] = b[i];
  }
}

// Sums of a channel over the slabs first, first + step, ...
__device__ static inline void add_sums(const float *part, const shape &s, int c, int first,
                                       int step, double *sum, double *product) {
  double a = 0, b = 0;
#pragma unroll 8
  for (int64_t slab = first; slab < s.slabs; slab += step) {
    a += (double)part[slab * s.c + c];
    b += (double)part[(s.slabs + slab) * s.c + c];
  }
  *sum = a;
  *product = b;
}

struct parameters {
  const float *rstd;
  float *dg, *db;
  bool accumulate;
};

__device__ static inline void write_parameters(const parameters &w, int c, double sum,
                                               double product) {
  float dg = (float)(product * (double)w.rstd[c]), db = (float)sum;
  w.dg[c] = w.accumulate ? w.dg[c] + dg : dg;
  w.db[c] = w.accumulate ? w.db[c] + db : db;
}

// total[0][c], total[1][c]: the sums over all slabs; of products with x - mean, or with norm(x)
__global__ static void __launch_bounds__(1024)
    bwd_finish(const float *part, float *total, bool normed, parameters w, shape s) {
  __shared__ double shared[2][FINISH_LANES][33];
  int c = (int)(blockIdx.x * 32 + threadIdx.x), lane = (int)threadIdx.y;
  double a = 0, b = 0;
  if (c < s.c) add_sums(part, s, c, lane, FINISH_LANES, &a, &b);
  shared[0][lane][threadIdx.x] = a;
  shared[1][lane][threadIdx.x] = b;
  __syncthreads();
  if (lane > 0 || c >= s.c) return;
  for (int k = 1; k < FINISH_LANES; k++) {
    a += shared[0][k][threadIdx.x];
    b += shared[1][k][threadIdx.x];
  }
  total[c] = (float)a;
  total[s.c + c] = (float)(normed ? b * (double)w.rstd[c] : b);
  write_parameters(w, c, a, b);
}

// dz: what passed, or 0 in a row of padding.
template <typename T, int W>
__device__ static inline void store_passed(T *to, const float (&d)[W], bool valid) {
  float v[W];
#pragma unroll
  for (int i = 0; i < W; i++) v[i] = valid ? d[i] : 0.0f;
  brim_vec_store<T, W>(to, brim_vec_put<T, W>(v));
}

// The part that dx subtracts: mean + (x - mean of x) * slope.
struct taken {
  float mean, slope;
};

// Computes it from `total` or, without it, from the slabs' sums.
__device__ static inline taken find_taken(const float *part, const float *total,
                                          const parameters &w, int64_t valid, const shape &s,
                                          int c) {
  double n = valid > 0 ? (double)valid : 1.0, sum, product;
  if (total) {
    sum = (double)total[c];
    product = (double)total[s.c + c];
  } else {
    add_sums(part, s, c, 0, 1, &sum, &product);
    if (blockIdx.y == 0) write_parameters(w, c, sum, product);
  }
  double rstd = (double)w.rstd[c];
  return {(float)(sum / n), (float)(product * rstd * rstd / n)};
}

// Computes it from the sums (2,C) of all ranks and the number of values of a channel.
__device__ static inline taken find_joined(const float *sums, const float *total, double rstd,
                                           const shape &s, int c) {
  double n = *total > 0.0f ? (double)*total : 1.0;
  return {(float)((double)sums[c] / n), (float)((double)sums[s.c + c] * rstd / n)};
}

// dx = g rstd (g' - mean(g') - xhat mean(g' xhat)); the means from `total`, or, without it, from
// the slabs' sums. JOINED: `part` has the sums (2,C) of all ranks, `total` how many values a channel has,
// and dz is written here. dx may be dy or x: a thread reads what it will write over.
template <typename T, int W, int MODE, bool JOINED>
__global__ static void __launch_bounds__(THREADS, 2)
    bwd_apply(gradient<T> q, const double *state, const float *part, const float *total,
              parameters w, shape s) {
  __shared__ float shared[3 * MAX_CHANNELS], mean_of[MAX_CHANNELS], slope_of[MAX_CHANNELS];
  constexpr int U = 2;
  int64_t valid = brim_valid_rows(state, s.rows) * s.area;
  int base = (int)blockIdx.x * s.tile * W, c = base + (int)threadIdx.x;
  if ((int)threadIdx.x < s.tile * W && c < s.c) {
    taken off = JOINED ? find_joined(part, total, (double)q.rstd[c], s, c)
                       : find_taken(part, total, w, valid, s, c);
    mean_of[threadIdx.x] = off.mean;
    slope_of[threadIdx.x] = off.slope;
  }
  place at = find_place<W>(s);
  channel_values<W> k = load_channels<T, W>(q, s, at, shared);  // waits for all
  if (!at.on) return;
  float mean[W], slope[W];
#pragma unroll
  for (int i = 0; i < W; i++) {
    mean[i] = mean_of[at.channel - base + i];
    slope[i] = slope_of[at.channel - base + i];
  }
  int64_t first = (int64_t)blockIdx.y * s.out_per;
  int64_t end = first + s.out_per < s.pixels ? first + s.out_per : s.pixels;
  for (int64_t p = first + at.lane; p < end; p += U * s.lanes) {
    brim_vec<T, W> dy[U], dy2[U], x[U], y[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (p + u * s.lanes >= end) continue;
      int64_t e = (p + u * s.lanes) * s.c + at.channel;
      dy[u] = brim_vec_load<T, W>(q.dy + e);
      x[u] = brim_vec_load<T, W>(q.x + e);
      if (MODE == MASK_Y) y[u] = brim_vec_load<T, W>(q.y + e);
      if (q.dy2) dy2[u] = brim_vec_load<T, W>(q.dy2 + e);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (p + u * s.lanes >= end) continue;
      float v[W], d[W];
      brim_vec_get<T, W>(x[u], v);
      passed<T, W, MODE>(k, dy[u], dy2[u], y[u], v, q.dy2 != nullptr, d);
      if constexpr (JOINED) {
        if (q.dz)
          store_passed<T, W>(q.dz + (p + u * s.lanes) * s.c + at.channel, d,
                             p + u * s.lanes < valid);
      }
#pragma unroll
      for (int i = 0; i < W; i++) {
        float t = d[i] - fmaf(v[i] - k.mean[i], slope[i], mean[i]);
        d[i] = p + u * s.lanes < valid ? t * k.scale[i] : 0.0f;
      }
      brim_vec_store<T, W>(q.dx + (p + u * s.lanes) * s.c + at.channel, brim_vec_put<T, W>(d));
    }
  }
}

//---------------------------------- launches ----------------------------------

template <typename T, int W, int MODE, bool JOINED>
static void launch_bwd_apply(cudaStream_t stream, const shape &s, const gradient<T> &q,
                             const double *state, const float *part, const float *total,
                             const parameters &w) {
  bwd_apply<T, W, MODE, JOINED>
      <<<dim3((unsigned)s.tiles, (unsigned)s.out_slabs), THREADS, 0, stream>>>(q, state, part,
                                                                               total, w, s);
}

// Index of the state among the inputs; y and dy2 follow.
static inline int state_index(const brim_op_call *c) {
  return c->op == BRIM_OP_BATCHNORM_BWD_JOINED ? 8 : 6;
}

template <typename T>
static gradient<T> make_gradient(const brim_op_call *c) {
  gradient<T> q = {};
  q.dy = (const T *)c->in[0].data;
  q.x = (const T *)c->in[1].data;
  q.g = (const float *)c->in[2].data;
  q.b = (const float *)c->in[3].data;
  q.mean = (const float *)c->in[4].data;
  q.rstd = (const float *)c->in[5].data;
  q.y = (const T *)optional_in(c, state_index(c) + 1);
  q.dy2 = (const T *)optional_in(c, state_index(c) + 2);
  return q;
}

// BATCHNORM_BWD, and BATCHNORM_BWD_SUMS, which ends with the sums.
template <typename T, int W, int MODE>
static void launch_backward(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  int per_sm = brim_cuda_resident(bwd_sums<T, W, MODE>, THREADS, 0, PER_SM);
  shape s = make_shape(device, &c->in[0], per_sm);
  bool only_sums = c->op == BRIM_OP_BATCHNORM_BWD_SUMS;
  gradient<T> q = make_gradient<T>(c);
  if (!only_sums) {
    q.dx = (T *)c->out[0].data;
    q.dz = (T *)optional_out(c, 3);
  }
  parameters w = {q.rstd, (float *)c->out[1].data, (float *)c->out[2].data, c->attr.accumulate};
  const double *state = (const double *)c->in[6].data;
  float *part = (float *)c->workspace, *total = NULL;
  bwd_sums<T, W, MODE>
      <<<dim3((unsigned)s.tiles, (unsigned)s.slabs), THREADS, 0, stream>>>(q, state, part, s);
  if (s.slabs > INLINE_SLABS || only_sums) {
    total = only_sums ? (float *)c->out[0].data : part + 2 * s.slabs * s.c;
    bwd_finish<<<finish_grid(s), dim3(32, FINISH_LANES), 0, stream>>>(part, total, only_sums, w, s);
  }
  if (only_sums) return;
  if (!q.dz) {
    launch_bwd_apply<T, W, MODE, false>(stream, s, q, state, part, total, w);
    return;
  }
  q.dy = q.dz;  // masked and added already
  q.dy2 = NULL;
  launch_bwd_apply<T, W, MASK_NONE, false>(stream, s, q, state, part, total, w);
}

template <typename T, int W, int MODE>
static void launch_joined(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  shape s = make_shape(device, &c->in[0], PER_SM);
  gradient<T> q = make_gradient<T>(c);
  q.dx = (T *)c->out[0].data;
  q.dz = (T *)optional_out(c, 1);
  launch_bwd_apply<T, W, MODE, true>(stream, s, q, (const double *)c->in[8].data,
                                     (const float *)c->in[6].data, (const float *)c->in[7].data,
                                     {});
}

template <typename T, int W, int MODE>
static void launch_op(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  if (c->op == BRIM_OP_BATCHNORM_BWD_JOINED) {
    launch_joined<T, W, MODE>(device, c, stream);
  } else {
    launch_backward<T, W, MODE>(device, c, stream);
  }
}

template <typename T, int W>
static void launch_masked(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  if (c->attr.act != BRIM_ACT_RELU) {
    launch_op<T, W, MASK_NONE>(device, c, stream);
  } else if (optional_in(c, state_index(c) + 1)) {
    launch_op<T, W, MASK_Y>(device, c, stream);
  } else {
    launch_op<T, W, MASK_X>(device, c, stream);
  }
}

template <typename T>
static void launch_width(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  if (c->in[0].dim[3] % brim_vec_width<T>() == 0) {
    launch_masked<T, brim_vec_width<T>()>(device, c, stream);
  } else {
    launch_masked<T, 1>(device, c, stream);
  }
}

static brim_status run(void *impl, void *stream, const brim_op_call *c, const char *what) {
  brim_cuda_enter(impl);
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     launch_width<T>((const brim_cuda *)impl, c, (cudaStream_t)stream));
  return brim_cuda_launched(what);
}

brim_status brim_cuda_batchnorm_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  return run(impl, stream, c, "batchnorm_bwd");
}

brim_status brim_cuda_batchnorm_bwd_sums_run(void *impl, void *stream, const brim_op_call *c) {
  return run(impl, stream, c, "batchnorm_bwd_sums");
}

brim_status brim_cuda_batchnorm_bwd_joined_run(void *impl, void *stream, const brim_op_call *c) {
  return run(impl, stream, c, "batchnorm_bwd_joined");
}
