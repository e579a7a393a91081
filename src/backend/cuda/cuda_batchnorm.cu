// Batch norm over NHWC, channels contiguous: statistics, the fused apply + add + relu, and the gradient of
// the three. BATCHNORM_PART is the first pass of BATCHNORM. Over ranks the two passes of the gradient are
// BATCHNORM_BWD_SUMS and BATCHNORM_BWD_JOINED. All are bound by memory (about 4 FLOPs a value forward, 12
// backward). Bytes of n values of size s: forward 2 n s read + n s written (+ n s for z); backward 4 n s
// read + n s written (+ y and dy2 once more each, or + 2 n s for dz). On ResNet-18/CIFAR at batch 512 (0.6 M
// values an image, bf16) that is about 5.5 MB an image: 0.65 ms of a step, a fifth to a quarter.
//
// Each pass gives a block a tile of channels and a slab of pixels; a thread keeps one vector of
// channels and walks over the pixels of its slab. A slab's sums go to the workspace as
// part[2][slab][C] and are added in the order of slabs. Few slabs are added by every block of the second
// pass (two launches in all), many slabs by a kernel between the passes. A slab's variance is shifted by a
// mean of four of its pixels, and slabs are merged by differences of means (Chan). So a mean far larger
// than the deviation costs no digits.
#include "backend/cuda/cuda_vec.cuh"

//---------------------------------- how the passes share the work ----------------------------------

enum {
  THREADS = 256,
  PER_SM = 4,
  TILE = 16,                // vectors of channels in a block: 256 bytes of a pixel
  TILE_ODD = 32,            // channels in a block if a pixel is not whole vectors
  MAX_CHANNELS = TILE * 8,  // most channels of a block
  INLINE_SLABS = 16,        // most slabs that the second pass adds up on its own
  FINISH_LANES = 32         // lanes of slabs in a block of the kernel between the passes
};

struct shape {
  int64_t pixels;  // N * H * W
  int64_t area;    // H * W
  int64_t rows;    // N
  int c, tile, lanes, tiles;
  bool whole;                          // a pixel is whole vectors
  int64_t slabs, slab_pixels;          // first pass: slabs, and pixels of a slab
  int64_t out_slabs, out_slab_pixels;  // second pass: slabs, and pixels of a slab
};

// per_sm: blocks of the first pass that an SM holds, at most PER_SM. It only ever lowers the number of slabs.
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
  // Makes at most one wave of blocks for the sums. Up to INLINE_SLABS slabs have four to 32 pixels a thread,
  // as a launch would cost more than idle SMs; more slabs have at least eight pixels a thread.
  int64_t most_slabs = sms * per_sm / s.tiles > 0 ? sms * per_sm / s.tiles : 1;
  int64_t want = brim_cuda_div_up(s.pixels, (int64_t)s.lanes * 4);
  const int64_t few = INLINE_SLABS;
  if (want > few) want = want > few * 8 ? want / 2 : few;
  s.slabs = want < most_slabs ? want : most_slabs;
  s.slab_pixels = brim_cuda_div_up(s.pixels, s.slabs);
  s.slabs = brim_cuda_div_up(s.pixels, s.slab_pixels);
  most_slabs = sms * 8 / s.tiles > 0 ? sms * 8 / s.tiles : 1;
  want = brim_cuda_div_up(s.pixels, (int64_t)s.lanes * 4);
  s.out_slabs = want < most_slabs ? want : most_slabs;
  s.out_slab_pixels = brim_cuda_div_up(s.pixels, s.out_slabs);
  s.out_slabs = brim_cuda_div_up(s.pixels, s.out_slab_pixels);
  return s;
}

// Position of a thread: its first channel, its lane among the pixels. Threads outside the tile are not
// active.
struct place {
  int channel, lane;
  bool active;
};

template <int W>
__device__ static place find_place(const shape &s) {
  place p;
  int column = (int)threadIdx.x % s.tile;
  p.lane = (int)threadIdx.x / s.tile;
  p.channel = ((int)blockIdx.x * s.tile + column) * W;
  p.active = p.lane < s.lanes && p.channel < s.c;
  return p;
}

__device__ static int64_t slab_count(const shape &s, int64_t slab, int64_t valid) {
  int64_t left = valid - slab * s.slab_pixels;
  return left < 0 ? 0 : left < s.slab_pixels ? left : s.slab_pixels;
}

// Adds a and b over the lanes of a block by a tree of fixed shape; lane 0 gets the sums.
template <int W>
__device__ static void add_lanes(const shape &s, float (&a)[W], float (&b)[W], float *shared) {
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
__device__ static float normalised(float x, float mean, float scale, float shift) {
  return fmaf(x - mean, scale, shift);
}

//---------------------------------- launches ----------------------------------

static const void *optional_in(const brim_op_call *c, int i) {
  return brim_cuda_has(&c->in[i], i, c->in_count) ? c->in[i].data : NULL;
}

static void *optional_out(const brim_op_call *c, int i) {
  return brim_cuda_has(&c->out[i], i, c->out_count) ? c->out[i].data : NULL;
}

static dim3 finish_grid(const shape &s) { return dim3((unsigned)((s.c + 31) / 32)); }

//---------------------------------- statistics ----------------------------------

// part[0][slab][c] = mean, part[1][slab][c] = sum of squared differences from the mean
template <typename T, int W>
__global__ static void __launch_bounds__(THREADS, 4)
    stats_kernel(const T *__restrict__ x, const double *state, float *part, shape s) {
  __shared__ float shared[2 * W * THREADS];
  constexpr int U = 4;
  place at = find_place<W>(s);
  int64_t slab = blockIdx.y, first = slab * s.slab_pixels;
  int64_t count = slab_count(s, slab, brim_valid_rows(state, s.rows) * s.area);
  float a[W], b[W], shift[W];
#pragma unroll
  for (int i = 0; i < W; i++) a[i] = b[i] = shift[i] = 0.0f;
  if (at.active && count > 0) {
    const T *base = x + first * s.c + at.channel;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      float v[W];
      brim_vec_get<T, W>(brim_vec_load<T, W>(base + count * k / 4 * s.c), v);
#pragma unroll
      for (int i = 0; i < W; i++) shift[i] += 0.25f * v[i];
    }
    int64_t p = at.lane;
    for (; p + (U - 1) * s.lanes < count; p += U * s.lanes) {
      brim_vec<T, W> raw[U];
#pragma unroll
      for (int u = 0; u < U; u++) raw[u] = brim_vec_load<T, W>(base + (p + u * s.lanes) * s.c);
#pragma unroll
      for (int u = 0; u < U; u++) {
        float v[W];
        brim_vec_get<T, W>(raw[u], v);
#pragma unroll
        for (int i = 0; i < W; i++) {
          float d = v[i] - shift[i];
          a[i] += d;
          b[i] = fmaf(d, d, b[i]);
        }
      }
    }
    for (; p < count; p += s.lanes) {
      float v[W];
      brim_vec_get<T, W>(brim_vec_load<T, W>(base + p * s.c), v);
#pragma unroll
      for (int i = 0; i < W; i++) {
        float d = v[i] - shift[i];
        a[i] += d;
        b[i] = fmaf(d, d, b[i]);
      }
    }
  }
  add_lanes<W>(s, a, b, shared);
  if (!at.active || at.lane > 0) return;
  float over = count > 0 ? 1.0f / (float)count : 0.0f;
  float *mean = part + slab * s.c + at.channel, *squares = mean + s.slabs * s.c;
#pragma unroll
  for (int i = 0; i < W; i++) {
    mean[i] = shift[i] + a[i] * over;
    float d = b[i] - a[i] * a[i] * over;
    squares[i] = d < 0.0f ? 0.0f : d;  // a NaN stays a NaN
  }
}

struct moments {
  const float *g, *b;
  float *mean, *rstd, *running_mean, *running_var;
  const float *given_mean, *given_s;  // BATCHNORM_APPLY
  bool variance;
  float eps, momentum;
};

// Sums over all values of slabs: of x - m and of (x - m)^2, m being the mean of slab 0.
struct slab_sums {
  double sum, squares;
};

struct channel_stats {
  float mean, rstd;
};

// Adds the slabs first, first + step, ...
__device__ static inline slab_sums add_slabs(const float *part, const shape &s, int64_t valid,
                                             int c, int first, int step) {
  float origin = part[c];
  double a = 0, b = 0;
#pragma unroll 8
  for (int64_t slab = first; slab < s.slabs; slab += step) {
    double n = (double)slab_count(s, slab, valid);
    double d = (double)part[slab * s.c + c] - (double)origin;
    a += n * d;
    b += (double)part[(s.slabs + slab) * s.c + c] + n * d * d;
  }
  return {a, b};
}

__device__ static inline float inverse_deviation(float variance, float eps) {
  return 1.0f / sqrtf(variance + eps);
}

// `count` values of a channel: their mean, and the sum of squared deviations from it.
struct channel_moments {
  double count, mean, deviations;
};

__device__ static inline channel_moments moments_of(const float *part, int c, int64_t valid,
                                                    slab_sums sums) {
  double n = valid > 0 ? (double)valid : 1.0;
  double deviations = sums.squares - sums.sum * sums.sum / n;
  if (deviations < 0) deviations = 0;  // a NaN stays a NaN
  return {(double)valid, (double)part[c] + sums.sum / n, deviations};
}

// Turns moments into mean and 1 / deviation. One caller a channel also stores them.
__device__ static inline channel_stats finish_stats(const moments &m, int c, channel_moments found,
                                                    bool write) {
  double n = found.count > 0 ? found.count : 1.0;
  float mean = (float)found.mean;
  float rstd = inverse_deviation((float)(found.deviations / n), m.eps);
  if (!write) return {mean, rstd};
  m.mean[c] = mean;
  m.rstd[c] = rstd;
  if (!m.running_mean || !(found.count > 0)) return {mean, rstd};
  float unbiased = (float)(found.deviations / (n > 1 ? n - 1 : 1.0));
  // One bad sample must not stay in the running statistics.
  if (!isfinite(mean) || !isfinite(unbiased)) return {mean, rstd};
  m.running_mean[c] += m.momentum * (mean - m.running_mean[c]);
  m.running_var[c] += m.momentum * (unbiased - m.running_var[c]);
  return {mean, rstd};
}

// Adds up slabs between the passes: a block takes 32 channels with 32 lanes of slabs each. Only lane 0 gets
// the moments.
__device__ static inline channel_moments add_lanes_of_slabs(const float *part, const shape &s,
                                                            int64_t valid, int c) {
  __shared__ double shared[2][FINISH_LANES][33];
  int lane = (int)threadIdx.y;
  slab_sums sums = {};
  if (c < s.c) sums = add_slabs(part, s, valid, c, lane, FINISH_LANES);
  shared[0][lane][threadIdx.x] = sums.sum;
  shared[1][lane][threadIdx.x] = sums.squares;
  __syncthreads();
  if (lane > 0 || c >= s.c) return {};
  for (int k = 1; k < FINISH_LANES; k++) {
    sums.sum += shared[0][k][threadIdx.x];
    sums.squares += shared[1][k][threadIdx.x];
  }
  return moments_of(part, c, valid, sums);
}

__global__ static void __launch_bounds__(1024)
    stats_finish(const float *part, const double *state, moments m, shape s) {
  int c = (int)(blockIdx.x * 32 + threadIdx.x);
  int64_t valid = brim_valid_rows(state, s.rows) * s.area;
  channel_moments found = add_lanes_of_slabs(part, s, valid, c);
  if (threadIdx.y == 0 && c < s.c) finish_stats(m, c, found, true);
}

//---------------------------------- parts of ranks ----------------------------------

// out(3,C) = count, mean, sum of squared deviations
__global__ static void __launch_bounds__(1024)
    part_finish(const float *part, const double *state, float *out, shape s) {
  int c = (int)(blockIdx.x * 32 + threadIdx.x);
  int64_t valid = brim_valid_rows(state, s.rows) * s.area;
  channel_moments found = add_lanes_of_slabs(part, s, valid, c);
  if (threadIdx.y > 0 || c >= s.c) return;
  out[c] = (float)found.count;
  out[s.c + c] = (float)found.mean;
  out[2 * (int64_t)s.c + c] = (float)found.deviations;
}

// Joins parts(K,3,C) in their order (Chan); a thread takes a channel.
__global__ static void __launch_bounds__(THREADS)
    join_kernel(const float *parts, int64_t count, int64_t channels, moments m, float *total) {
  int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (c >= channels) return;
  channel_moments all = {};
  for (int64_t k = 0; k < count; k++) {
    const float *part = parts + k * 3 * channels + c;
    double n = (double)part[0];
    if (!(n > 0)) continue;
    double share = n / (all.count + n), delta = (double)part[channels] - all.mean;
    all.mean += delta * share;
    all.deviations += (double)part[2 * channels] + delta * delta * (all.count * share);
    all.count += n;
  }
  if (c == 0) *total = (float)all.count;
  finish_stats(m, (int)c, all, true);
}

//---------------------------------- apply ----------------------------------

// Mean and 1 / deviation of a channel: given, computed between the passes, or computed from slabs here.
__device__ static inline channel_stats find_stats(const moments &m, const float *part,
                                                  const double *state, const shape &s, int c) {
  if (m.given_mean) {
    return {m.given_mean[c], m.variance ? inverse_deviation(m.given_s[c], m.eps) : m.given_s[c]};
  }
  if (!part) return {m.mean[c], m.rstd[c]};
  int64_t valid = brim_valid_rows(state, s.rows) * s.area;
  channel_moments found = moments_of(part, c, valid, add_slabs(part, s, valid, c, 0, 1));
  return finish_stats(m, c, found, blockIdx.y == 0);
}

template <typename T>
struct apply_args {
  const T *x, *z;
  T *y;
};

// y = act((x - mean) * (g * rstd) + b + z); y may be x or z
template <typename T, int W, bool Z>
__global__ static void __launch_bounds__(THREADS, 3)
    apply_kernel(apply_args<T> to, const float *part, const double *state, moments m, shape s,
                 bool relu) {
  __shared__ float mean_of[MAX_CHANNELS], scale_of[MAX_CHANNELS], shift_of[MAX_CHANNELS];
  constexpr int U = Z ? 2 : 4;
  int c = (int)blockIdx.x * s.tile * W + (int)threadIdx.x;
  if ((int)threadIdx.x < s.tile * W && c < s.c) {
    channel_stats found = find_stats(m, part, state, s, c);
    mean_of[threadIdx.x] = found.mean;
    scale_of[threadIdx.x] = m.g[c] * found.rstd;
    shift_of[threadIdx.x] = m.b[c];
  }
  __syncthreads();
  place at = find_place<W>(s);
  if (!at.active) return;
  float mean[W], scale[W], shift[W];
  int own = at.channel - (int)blockIdx.x * s.tile * W;
#pragma unroll
  for (int i = 0; i < W; i++) {
    mean[i] = mean_of[own + i];
    scale[i] = scale_of[own + i];
    shift[i] = shift_of[own + i];
  }
  int64_t first = (int64_t)blockIdx.y * s.out_slab_pixels;
  int64_t last = first + s.out_slab_pixels < s.pixels ? first + s.out_slab_pixels : s.pixels;
  for (int64_t p = first + at.lane; p < last; p += U * s.lanes) {
    brim_vec<T, W> raw[U], add[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      int64_t e = (p + u * s.lanes) * s.c + at.channel;
      if (p + u * s.lanes >= last) continue;
      raw[u] = brim_vec_load<T, W>(to.x + e);
      if (Z) add[u] = brim_vec_load<T, W>(to.z + e);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (p + u * s.lanes >= last) continue;
      float v[W], w[W];
      brim_vec_get<T, W>(raw[u], v);
      if (Z) brim_vec_get<T, W>(add[u], w);
#pragma unroll
      for (int i = 0; i < W; i++) {
        v[i] = normalised<W>(v[i], mean[i], scale[i], shift[i]);
        if (Z) v[i] += w[i];
        if (relu) v[i] = v[i] < 0.0f ? 0.0f : v[i];  // a NaN stays a NaN
      }
      brim_vec_store<T, W>(to.y + (p + u * s.lanes) * s.c + at.channel, brim_vec_put<T, W>(v));
    }
  }
}

//---------------------------------- launches ----------------------------------

static brim_status batchnorm_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dim[3] > INT32_MAX / 8) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: batchnorm of more than 2^28 channels");
  }
  return brim_cuda_float_type(&c->in[0], "batchnorm");
}

// Workspace: part[2][slabs][C], total[2][C]
static brim_status batchnorm_prepare(void *impl, brim_op_call *c) {
  shape s = make_shape((const brim_cuda *)impl, &c->in[0], PER_SM);
  c->workspace_bytes = (size_t)(2 * (s.slabs + 1) * s.c) * sizeof(float);
  return BRIM_OK;
}

template <typename T, int W>
static void launch_apply(const brim_op_call *c, cudaStream_t stream, const shape &s,
                         const moments &m, const float *part) {
  bool statistics = c->op == BRIM_OP_BATCHNORM, relu = c->attr.act == BRIM_ACT_RELU;
  apply_args<T> to = {(const T *)c->in[0].data, (const T *)optional_in(c, statistics ? 4 : 5),
                      (T *)c->out[0].data};
  const double *state = statistics ? (const double *)c->in[3].data : NULL;
  dim3 grid((unsigned)s.tiles, (unsigned)s.out_slabs);
  if (to.z) {
    apply_kernel<T, W, true><<<grid, THREADS, 0, stream>>>(to, part, state, m, s, relu);
  } else {
    apply_kernel<T, W, false><<<grid, THREADS, 0, stream>>>(to, part, state, m, s, relu);
  }
}

// Launches the first pass, which leaves the sums of slabs in the workspace.
template <typename T, int W>
static shape launch_stats(const brim_cuda *device, const brim_op_call *c, const double *state,
                          cudaStream_t stream) {
  int per_sm = brim_cuda_resident(stats_kernel<T, W>, THREADS, 0, PER_SM);
  shape s = make_shape(device, &c->in[0], per_sm);
  stats_kernel<T, W><<<dim3((unsigned)s.tiles, (unsigned)s.slabs), THREADS, 0, stream>>>(
      (const T *)c->in[0].data, state, (float *)c->workspace, s);
  return s;
}

template <typename T, int W>
static void launch_forward(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  const double *state = (const double *)c->in[3].data;
  shape s = launch_stats<T, W>(device, c, state, stream);
  float *part = (float *)c->workspace;
  moments m = {};
  m.g = (const float *)c->in[1].data;
  m.b = (const float *)c->in[2].data;
  m.mean = (float *)c->out[1].data;
  m.rstd = (float *)c->out[2].data;
  m.running_mean = (float *)optional_out(c, 3);
  m.running_var = (float *)optional_out(c, 4);
  m.eps = c->attr.eps;
  m.momentum = c->attr.momentum;
  if (s.slabs > INLINE_SLABS) {
    stats_finish<<<finish_grid(s), dim3(32, FINISH_LANES), 0, stream>>>(part, state, m, s);
    part = NULL;
  }
  launch_apply<T, W>(c, stream, s, m, part);
}

template <typename T, int W>
static void launch_given(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  shape s = make_shape(device, &c->in[0], PER_SM);
  moments m = {};
  m.g = (const float *)c->in[1].data;
  m.b = (const float *)c->in[2].data;
  m.given_mean = (const float *)c->in[3].data;
  m.given_s = (const float *)c->in[4].data;
  m.variance = c->attr.variance;
  m.eps = c->attr.eps;
  launch_apply<T, W>(c, stream, s, m, NULL);
}

template <typename T, int W>
static void launch_part(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  const double *state = (const double *)c->in[1].data;
  shape s = launch_stats<T, W>(device, c, state, stream);
  part_finish<<<finish_grid(s), dim3(32, FINISH_LANES), 0, stream>>>(
      (const float *)c->workspace, state, (float *)c->out[0].data, s);
}

template <typename T, int W>
static void launch(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  if (c->op == BRIM_OP_BATCHNORM) {
    launch_forward<T, W>(device, c, stream);
  } else if (c->op == BRIM_OP_BATCHNORM_PART) {
    launch_part<T, W>(device, c, stream);
  } else {
    launch_given<T, W>(device, c, stream);
  }
}

template <typename T>
static void launch_width(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  if (c->in[0].dim[3] % brim_vec_width<T>() == 0) {
    launch<T, brim_vec_width<T>()>(device, c, stream);
  } else {
    launch<T, 1>(device, c, stream);
  }
}

static brim_status run_forward(void *impl, void *stream, const brim_op_call *c, const char *what) {
  brim_cuda_enter(impl);
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     launch_width<T>((const brim_cuda *)impl, c, (cudaStream_t)stream));
  return brim_cuda_launched(what);
}

static brim_status batchnorm_run(void *impl, void *stream, const brim_op_call *c) {
  return run_forward(impl, stream, c, "batchnorm");
}

static brim_status batchnorm_apply_run(void *impl, void *stream, const brim_op_call *c) {
  return run_forward(impl, stream, c, "batchnorm_apply");
}

static brim_status batchnorm_part_run(void *impl, void *stream, const brim_op_call *c) {
  return run_forward(impl, stream, c, "batchnorm_part");
}

static brim_status batchnorm_join_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dim[2] > INT32_MAX / 8) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: batchnorm of more than 2^28 channels");
  }
  return brim_cuda_float_type(&c->in[0], "batchnorm");
}

static brim_status batchnorm_join_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t channels = c->in[0].dim[2];
  moments m = {};
  m.mean = (float *)c->out[0].data;
  m.rstd = (float *)c->out[1].data;
  m.running_mean = (float *)optional_out(c, 3);
  m.running_var = (float *)optional_out(c, 4);
  m.eps = c->attr.eps;
  m.momentum = c->attr.momentum;
  join_kernel<<<(unsigned)brim_cuda_div_up(channels, THREADS), THREADS, 0, (cudaStream_t)stream>>>(
      (const float *)c->in[0].data, c->in[0].dim[0], channels, m, (float *)c->out[2].data);
  return brim_cuda_launched("batchnorm_join");
}

//---------------------------------- backward ----------------------------------

// The first pass sums the gradients of a slab, the second pass writes dx.

enum mask_mode { MASK_NONE, MASK_Y, MASK_X };

template <typename T>
struct gradient {
  const T *dy, *x, *y, *dy2;
  const float *g, *b, *mean, *rstd;
  T *dx, *dz;
};

// Values of a thread's channels, to mask and normalize with.
template <int W>
struct channel_values {
  float mean[W], scale[W], shift[W];
};

// Loads the block's channels through shared memory, each once. All threads of the block must call.
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
  int own = at.active ? at.channel - base : 0;
#pragma unroll
  for (int i = 0; i < W; i++) {
    k.mean[i] = shared[own + i];
    k.scale[i] = shared[MAX_CHANNELS + own + i];
    k.shift[i] = shared[2 * MAX_CHANNELS + own + i];
  }
  __syncthreads();  // shared memory is used again
  return k;
}

// Computes the gradient that passes the activation, for W values. `second` = dy2 is added.
template <typename T, int W, int MODE>
__device__ static inline void passed_gradient(const channel_values<W> &k, const brim_vec<T, W> &dy,
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

// g' is the gradient that passes. part[0][slab][c] = sum of g', part[1][slab][c] = sum of g' * (x - mean);
// dz = g'
template <typename T, int W, int MODE>
__global__ static void __launch_bounds__(THREADS, 2)
    bwd_sums(gradient<T> q, const double *state, float *part, shape s) {
  __shared__ float shared[2 * W * THREADS];
  static_assert(2 * W * THREADS >= 3 * MAX_CHANNELS, "load_channels");
  constexpr int U = 2;
  place at = find_place<W>(s);
  int64_t slab = blockIdx.y, first = slab * s.slab_pixels;
  int64_t valid = brim_valid_rows(state, s.rows) * s.area;
  int64_t end = first + s.slab_pixels < s.pixels ? first + s.slab_pixels : s.pixels;
  int64_t last = end < valid ? end : valid;
  float a[W], b[W];
#pragma unroll
  for (int i = 0; i < W; i++) a[i] = b[i] = 0.0f;
  channel_values<W> k = load_channels<T, W>(q, s, at, shared);
  if (at.active) {
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
        passed_gradient<T, W, MODE>(k, dy[u], dy2[u], y[u], v, q.dy2 != nullptr, d);
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
    // Rows of padding: this lane's first pixel that is not valid, and all after it.
    int64_t pad = first + at.lane;
    if (pad < last) pad += (last - pad + s.lanes - 1) / s.lanes * s.lanes;
    for (; q.dz && pad < end; pad += s.lanes) {
      brim_vec_store<T, W>(q.dz + pad * s.c + at.channel, brim_vec_zero<T, W>());
    }
  }
  add_lanes<W>(s, a, b, shared);
  if (!at.active || at.lane > 0) return;
  float *sums = part + slab * s.c + at.channel, *products = sums + s.slabs * s.c;
#pragma unroll
  for (int i = 0; i < W; i++) {
    sums[i] = a[i];
    products[i] = b[i];
  }
}

// Sums a channel over the slabs first, first + step, ...
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

// total[0][c] = sum of g' over all slabs; total[1][c] = sum of g' * norm(x) if `normed`, else of
// g' * (x - mean).
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

// Stores dz: the gradient that passes, or 0 in a row of padding.
template <typename T, int W>
__device__ static inline void store_passed(T *to, const float (&d)[W], bool valid) {
  float v[W];
#pragma unroll
  for (int i = 0; i < W; i++) v[i] = valid ? d[i] : 0.0f;
  brim_vec_store<T, W>(to, brim_vec_put<T, W>(v));
}

// The parts that dx subtracts from g': mean + (x - mean of x) * slope.
struct subtrahend {
  float mean, slope;
};

// Computes them from `total` or, if it is NULL, from the slabs' sums.
__device__ static inline subtrahend find_subtrahend(const float *part, const float *total,
                                                    const parameters &w, int64_t valid,
                                                    const shape &s, int c) {
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

// Computes them from the sums (2,C) of all ranks and the number of values of a channel.
__device__ static inline subtrahend subtrahend_of_ranks(const float *sums, const float *total,
                                                        double rstd, const shape &s, int c) {
  double n = *total > 0.0f ? (double)*total : 1.0;
  return {(float)((double)sums[c] / n), (float)((double)sums[s.c + c] * rstd / n)};
}

// dx = g rstd (g' - mean(g') - xhat mean(g' xhat)). The means come from `total` or, if it is NULL, from the
// slabs' sums. If JOINED, `part` has the sums (2,C) of all ranks and `total` the number of values of a
// channel, and dz is written here. dx may be dy or x: a thread reads the values that it writes over.
template <typename T, int W, int MODE, bool JOINED>
__global__ static void __launch_bounds__(THREADS, 2)
    bwd_apply(gradient<T> q, const double *state, const float *part, const float *total,
              parameters w, shape s) {
  __shared__ float shared[3 * MAX_CHANNELS], mean_of[MAX_CHANNELS], slope_of[MAX_CHANNELS];
  constexpr int U = 2;
  int64_t valid = brim_valid_rows(state, s.rows) * s.area;
  int base = (int)blockIdx.x * s.tile * W, c = base + (int)threadIdx.x;
  if ((int)threadIdx.x < s.tile * W && c < s.c) {
    subtrahend found = JOINED ? subtrahend_of_ranks(part, total, (double)q.rstd[c], s, c)
                              : find_subtrahend(part, total, w, valid, s, c);
    mean_of[threadIdx.x] = found.mean;
    slope_of[threadIdx.x] = found.slope;
  }
  place at = find_place<W>(s);
  channel_values<W> k = load_channels<T, W>(q, s, at, shared);  // waits for all threads
  if (!at.active) return;
  float mean[W], slope[W];
#pragma unroll
  for (int i = 0; i < W; i++) {
    mean[i] = mean_of[at.channel - base + i];
    slope[i] = slope_of[at.channel - base + i];
  }
  int64_t first = (int64_t)blockIdx.y * s.out_slab_pixels;
  int64_t end = first + s.out_slab_pixels < s.pixels ? first + s.out_slab_pixels : s.pixels;
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
      passed_gradient<T, W, MODE>(k, dy[u], dy2[u], y[u], v, q.dy2 != nullptr, d);
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

// Index of the state among the inputs; y and dy2 follow it.
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

// Launches BATCHNORM_BWD, or BATCHNORM_BWD_SUMS, which stops after the sums.
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
  q.dy = q.dz;  // dz is masked and already contains dy2
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
static void launch_bwd_width(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  if (c->in[0].dim[3] % brim_vec_width<T>() == 0) {
    launch_masked<T, brim_vec_width<T>()>(device, c, stream);
  } else {
    launch_masked<T, 1>(device, c, stream);
  }
}

static brim_status run_backward(void *impl, void *stream, const brim_op_call *c, const char *what) {
  brim_cuda_enter(impl);
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     launch_bwd_width<T>((const brim_cuda *)impl, c, (cudaStream_t)stream));
  return brim_cuda_launched(what);
}

static brim_status batchnorm_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  return run_backward(impl, stream, c, "batchnorm_bwd");
}

static brim_status batchnorm_bwd_sums_run(void *impl, void *stream, const brim_op_call *c) {
  return run_backward(impl, stream, c, "batchnorm_bwd_sums");
}

static brim_status batchnorm_bwd_joined_run(void *impl, void *stream, const brim_op_call *c) {
  return run_backward(impl, stream, c, "batchnorm_bwd_joined");
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_BATCHNORM, batchnorm_validate, batchnorm_prepare, batchnorm_run, NULL},
    {BRIM_OP_BATCHNORM_APPLY, batchnorm_validate, NULL, batchnorm_apply_run, NULL},
    {BRIM_OP_BATCHNORM_BWD, batchnorm_validate, batchnorm_prepare, batchnorm_bwd_run, NULL},
    {BRIM_OP_BATCHNORM_PART, batchnorm_validate, batchnorm_prepare, batchnorm_part_run, NULL},
    {BRIM_OP_BATCHNORM_JOIN, batchnorm_join_validate, NULL, batchnorm_join_run, NULL},
    {BRIM_OP_BATCHNORM_BWD_SUMS, batchnorm_validate, batchnorm_prepare, batchnorm_bwd_sums_run,
     NULL},
    {BRIM_OP_BATCHNORM_BWD_JOINED, batchnorm_validate, NULL, batchnorm_bwd_joined_run, NULL},
};

const brim_op_family brim_cuda_batchnorm_ops = {rows, sizeof rows / sizeof *rows};
