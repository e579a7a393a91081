// Batch norm over NHWC, channels contiguous: statistics and the fused apply + add + relu;
// cuda_batchnorm_bwd.cu has the backward of the three. BATCHNORM_PART is the first pass of BATCHNORM. Bound by memory (about 4 FLOPs a value forward, 12 backward). Bytes of n
// values of size s: forward 2 n s read + n s written (+ n s for z); backward 4 n s read + n s
// written (+ y and dy2 once more each, or + 2 n s for dz). On ResNet-18/CIFAR at batch 512 (0.6 M
// values an image, bf16) that is about 5.5 MB an image: 0.65 ms of a step, a fifth to a quarter.
//
// Each pass gives a block a tile of channels and a slab of pixels; a thread keeps one vector of
// channels and walks over the pixels of its slab. A slab's sums go to the workspace as
// part[2][slab][C] and are added in the order of slabs: few slabs by every block of the second
// pass for itself (two launches in all), many by a kernel between the passes. Variances come from
// slabs shifted by a mean of four of their pixels and merged by differences of means (Chan), so
// that a mean far larger than the deviation costs no digits.
#include "backend/cuda/cuda_batchnorm.cuh"

//---------------------------------- statistics ----------------------------------

// part[0][slab][c] = mean, part[1][slab][c] = sum of squared differences from it
template <typename T, int W>
__global__ static void __launch_bounds__(THREADS, 4)
    stats_kernel(const T *__restrict__ x, const double *state, float *part, shape s) {
  __shared__ float shared[2 * W * THREADS];
  constexpr int U = 4;
  place at = find_place<W>(s);
  int64_t slab = blockIdx.y, first = slab * s.per;
  int64_t count = slab_count(s, slab, brim_valid_rows(state, s.rows) * s.area);
  float a[W], b[W], shift[W];
#pragma unroll
  for (int i = 0; i < W; i++) a[i] = b[i] = shift[i] = 0.0f;
  if (at.on && count > 0) {
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
  if (!at.on || at.lane > 0) return;
  float over = count > 0 ? 1.0f / (float)count : 0.0f;
  float *mean = part + slab * s.c + at.channel, *squares = mean + s.slabs * s.c;
#pragma unroll
  for (int i = 0; i < W; i++) {
    mean[i] = shift[i] + a[i] * over;
    float d = b[i] - a[i] * a[i] * over;
    squares[i] = d < 0.0f ? 0.0f : d;  // a NaN stays
  }
}

struct moments {
  const float *g, *b;
  float *mean, *rstd, *running_mean, *running_var;
  const float *given_mean, *given_s;  // BATCHNORM_APPLY
  bool variance;
  float eps, momentum;
};

// Sums of (mean - mean of slab 0) and of squares about it.
struct slab_sums {
  double sum, squares;
};

struct channel_stats {
  float mean, rstd;
};

// Over the slabs first, first + step, ...
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

// Mean and sum of squared deviations from it of `count` values.
struct channel_moments {
  double count, mean, deviations;
};

__device__ static inline channel_moments moments_of(const float *part, int c, int64_t valid,
                                                    slab_sums sums) {
  double n = valid > 0 ? (double)valid : 1.0;
  double deviations = sums.squares - sums.sum * sums.sum / n;
  if (deviations < 0) deviations = 0;  // a NaN stays
  return {(double)valid, (double)part[c] + sums.sum / n, deviations};
}

// Turns moments into mean and 1 / deviation; one caller a channel also stores them.
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
  // one bad sample must not stay in them
  if (!isfinite(mean) || !isfinite(unbiased)) return {mean, rstd};
  m.running_mean[c] += m.momentum * (mean - m.running_mean[c]);
  m.running_var[c] += m.momentum * (unbiased - m.running_var[c]);
  return {mean, rstd};
}

// Between the passes a block takes 32 channels with 32 lanes of slabs each; lane 0 has the moments.
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

// out(3,C): count, mean, sum of squared deviations
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

// parts(K,3,C), joined in their order (Chan); a thread takes a channel.
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

// Mean and 1 / deviation of this block's channels, from wherever they are.
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
struct applied {
  const T *x, *z;
  T *y;
};

// y = act((x - mean) * (g * rstd) + b + z); y may be x or z
template <typename T, int W, bool Z>
__global__ static void __launch_bounds__(THREADS, 3)
    apply_kernel(applied<T> to, const float *part, const double *state, moments m, shape s,
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
  if (!at.on) return;
  float mean[W], scale[W], shift[W];
  int own = at.channel - (int)blockIdx.x * s.tile * W;
#pragma unroll
  for (int i = 0; i < W; i++) {
    mean[i] = mean_of[own + i];
    scale[i] = scale_of[own + i];
    shift[i] = shift_of[own + i];
  }
  int64_t first = (int64_t)blockIdx.y * s.out_per;
  int64_t last = first + s.out_per < s.pixels ? first + s.out_per : s.pixels;
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
        if (relu) v[i] = v[i] < 0.0f ? 0.0f : v[i];  // a NaN stays
      }
      brim_vec_store<T, W>(to.y + (p + u * s.lanes) * s.c + at.channel, brim_vec_put<T, W>(v));
    }
  }
}

//---------------------------------- launches ----------------------------------

brim_status brim_cuda_batchnorm_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dim[3] > INT32_MAX / 8) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: batchnorm of more than 2^28 channels");
  }
  return brim_cuda_float_type(&c->in[0], "batchnorm");
}

// part[2][slabs][C], total[2][C]
brim_status brim_cuda_batchnorm_prepare(void *impl, brim_op_call *c) {
  shape s = make_shape((const brim_cuda *)impl, &c->in[0], PER_SM);
  c->workspace_bytes = (size_t)(2 * (s.slabs + 1) * s.c) * sizeof(float);
  return BRIM_OK;
}

template <typename T, int W>
static void launch_apply(const brim_op_call *c, cudaStream_t stream, const shape &s,
                         const moments &m, const float *part) {
  bool statistics = c->op == BRIM_OP_BATCHNORM, relu = c->attr.act == BRIM_ACT_RELU;
  applied<T> to = {(const T *)c->in[0].data, (const T *)optional_in(c, statistics ? 4 : 5),
                   (T *)c->out[0].data};
  const double *state = statistics ? (const double *)c->in[3].data : NULL;
  dim3 grid((unsigned)s.tiles, (unsigned)s.out_slabs);
  if (to.z) {
    apply_kernel<T, W, true><<<grid, THREADS, 0, stream>>>(to, part, state, m, s, relu);
  } else {
    apply_kernel<T, W, false><<<grid, THREADS, 0, stream>>>(to, part, state, m, s, relu);
  }
}

// The first pass: the sums of slabs, in the workspace.
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

brim_status brim_cuda_batchnorm_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     launch_width<T>((const brim_cuda *)impl, c, (cudaStream_t)stream));
  return brim_cuda_launched("batchnorm");
}

brim_status brim_cuda_batchnorm_apply_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     launch_width<T>((const brim_cuda *)impl, c, (cudaStream_t)stream));
  return brim_cuda_launched("batchnorm_apply");
}

brim_status brim_cuda_batchnorm_part_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     launch_width<T>((const brim_cuda *)impl, c, (cudaStream_t)stream));
  return brim_cuda_launched("batchnorm_part");
}

brim_status brim_cuda_batchnorm_join_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dim[2] > INT32_MAX / 8) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: batchnorm of more than 2^28 channels");
  }
  return brim_cuda_float_type(&c->in[0], "batchnorm");
}

brim_status brim_cuda_batchnorm_join_run(void *impl, void *stream, const brim_op_call *c) {
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
