// The flat optimiser: one kernel over all parameters that unscales, clips, updates, casts and averages;
// the gradient norm before it, in two passes of fixed shape so that its bits repeat; the average of
// other values, which are few (running statistics); and the end of a step. All bound by memory. Bytes a
// parameter: norm 4; SGD with momentum 20 (+ 2 for the copy, + 8 for the average); Adam 28 (+ 2, + 8);
// 5 to 18 FLOPs. ResNet-18 (11.2 M parameters, SGD, bf16) moves 290 MB: 70 us of a step, 1 % at batch
// 512 and 3 % at 64.
#include "backend/cuda/cuda_vec.cuh"

enum { THREADS = 256, PARTS = 512, UNROLL = 4 };

//---------------------------------- gradient norm ----------------------------------

static brim_status grad_norm_prepare(void *impl, brim_op_call *c) {
  brim_cuda_enter(impl);
  c->workspace_bytes = 2 * PARTS * sizeof(float);
  return BRIM_OK;
}

__device__ static inline void add_square(float g, float &sum, float &bad) {
  if (isfinite(g)) {
    sum = fmaf(g, g, sum);
  } else {
    bad += 1.0f;
  }
}

// vectors: whole float4 of the gradients (0 when they do not start on 16 bytes)
__global__ static void norm_parts(const float *__restrict__ grads, int64_t n, int64_t vectors,
                                  float *part) {
  __shared__ float shared[32];
  float sum = 0, bad = 0;
  int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)PARTS * THREADS;
  for (int64_t i = thread; i < vectors; i += UNROLL * step) {
    float4 g[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      g[u] = i + u * step < vectors ? reinterpret_cast<const float4 *>(grads)[i + u * step]
                                    : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      add_square(g[u].x, sum, bad);
      add_square(g[u].y, sum, bad);
      add_square(g[u].z, sum, bad);
      add_square(g[u].w, sum, bad);
    }
  }
  for (int64_t i = vectors * 4 + thread; i < n; i += step) add_square(grads[i], sum, bad);
  sum = brim_block_sum(sum, shared);
  bad = brim_block_sum(bad, shared);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = sum;
    part[PARTS + blockIdx.x] = bad;
  }
}

// norm[0]: sum of the squares of the finite gradients; norm[1]: number of the others.
__global__ static void norm_finish(const float *part, float *norm) {
  __shared__ float shared[32];
  float sum = brim_block_sum(part[threadIdx.x], shared);
  float bad = brim_block_sum(part[PARTS + threadIdx.x], shared);
  if (threadIdx.x == 0) {
    norm[0] = sum;
    norm[1] = bad;
  }
}

static brim_status grad_norm_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dtype == BRIM_F32) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: grad_norm takes f32");
}

static brim_status grad_norm_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  float *part = (float *)c->workspace;
  const float *grads = (const float *)c->in[0].data;
  int64_t n = brim_cuda_count(&c->in[0]);
  norm_parts<<<PARTS, THREADS, 0, (cudaStream_t)stream>>>(
      grads, n, brim_cuda_aligned(grads) ? n / 4 : 0, part);
  BRIM_TRY(brim_cuda_launched("norm_parts"));
  norm_finish<<<1, PARTS, 0, (cudaStream_t)stream>>>(part, (float *)c->out[0].data);
  return brim_cuda_launched("norm_finish");
}

//---------------------------------- optimiser ----------------------------------

struct rule {
  bool nesterov, decoupled;
  float momentum, beta1, beta2, eps, weight_decay, average_rate;
};

// Values of a step common to all parameters; one thread of a block computes them.
struct step_values {
  float scale, lr;
  float adam_lr, adam_scale;  // Adam's corrections: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
  float rate;                 // share by which the average moves in this step
  bool first;
};

// The share by which an average moves, given the number of updates before this step.
__device__ static inline float find_rate(float rate, double updates) {
  return (float)fmax((double)rate, 9.0 / (updates + 10.0));
}

template <bool ADAM>
__device__ static step_values find_values(const double *state, const float *norm, const rule &r) {
  step_values s;
  float inverse = (float)(1.0 / state[BRIM_STATE_LOSS_SCALE]);
  float length = sqrtf(norm[0]) * inverse, clip = (float)state[BRIM_STATE_CLIP];
  s.scale = clip > 0.0f && length > clip ? inverse * (clip / (length + 1e-6f)) : inverse;
  s.lr = (float)state[BRIM_STATE_LR];
  double step = state[BRIM_STATE_UPDATES] + 1.0;
  s.first = step <= 1.0;
  s.rate = find_rate(r.average_rate, state[BRIM_STATE_UPDATES]);
  s.adam_lr = s.adam_scale = 0.0f;
  if (ADAM) {
    s.adam_lr = (float)(state[BRIM_STATE_LR] / (1.0 - pow((double)r.beta1, step)));
    s.adam_scale = (float)(1.0 / sqrt(1.0 - pow((double)r.beta2, step)));
  }
  return s;
}

template <bool ADAM>
__device__ static inline void update(const rule &r, const step_values &s, float grad, float &p,
                                     float &m, float &v) {
  float g = grad * s.scale;
  if (ADAM && r.decoupled) {
    p -= s.lr * r.weight_decay * p;
  } else {
    g = fmaf(r.weight_decay, p, g);
  }
  if (ADAM) {
    m = r.beta1 * m + (1.0f - r.beta1) * g;
    v = r.beta2 * v + (1.0f - r.beta2) * g * g;
    p -= s.adam_lr * m / (sqrtf(v) * s.adam_scale + r.eps);
  } else if (r.momentum == 0.0f) {
    p -= s.lr * g;
  } else {
    m = s.first ? g : fmaf(r.momentum, m, g);
    p -= s.lr * (r.nesterov ? fmaf(r.momentum, m, g) : m);
  }
}

template <typename T>
struct arrays {
  const float *grads;
  float *params, *m, *v;  // m NULL without momentum, v NULL but for Adam
  T *copy;                // or NULL
  float *average;         // or NULL
};

__device__ static inline void load_four(const float *p, float (&v)[4]) {
  brim_vec_get<float, 4>(brim_vec_load<float, 4>(p), v);
}
__device__ static inline void store_four(float *p, const float (&v)[4]) {
  brim_vec_store<float, 4>(p, brim_vec_put<float, 4>(v));
}

template <typename T, bool ADAM>
__device__ static inline void step_four(const arrays<T> &a, const rule &r, const step_values &s,
                                        int64_t i) {
  float g[4], p[4], m[4] = {0, 0, 0, 0}, v[4] = {0, 0, 0, 0};
  load_four(a.grads + i, g);
  load_four(a.params + i, p);
  if (a.m) load_four(a.m + i, m);
  if (ADAM) load_four(a.v + i, v);
#pragma unroll
  for (int k = 0; k < 4; k++) update<ADAM>(r, s, g[k], p[k], m[k], v[k]);
  store_four(a.params + i, p);
  if (a.m) store_four(a.m + i, m);
  if (ADAM) store_four(a.v + i, v);
  if (a.average) {
    float e[4];
    load_four(a.average + i, e);
#pragma unroll
    for (int k = 0; k < 4; k++) e[k] = fmaf(s.rate, p[k] - e[k], e[k]);
    store_four(a.average + i, e);
  }
  if (!a.copy) return;
  const T *tag = nullptr;
  *reinterpret_cast<uint2 *>(a.copy + i) = make_uint2(brim_pack(tag, p), brim_pack(tag, p + 2));
}

template <typename T, bool ADAM>
__global__ static void __launch_bounds__(THREADS)
    optimizer_kernel(const double *state, const float *norm, arrays<T> a, int64_t n,
                     int64_t vectors, rule r) {
  __shared__ step_values shared;
  if (norm[1] > 0.0f) return;  // a gradient is not finite: the whole step is skipped
  if (threadIdx.x == 0) shared = find_values<ADAM>(state, norm, r);
  __syncthreads();
  step_values s = shared;
  int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  int64_t step = (int64_t)gridDim.x * THREADS;
#pragma unroll 2
  for (int64_t i = thread; i < vectors; i += step) step_four<T, ADAM>(a, r, s, i * 4);
  for (int64_t i = vectors * 4 + thread; i < n; i += step) {
    float p = a.params[i], m = a.m ? a.m[i] : 0.0f, v = ADAM ? a.v[i] : 0.0f;
    update<ADAM>(r, s, a.grads[i], p, m, v);
    a.params[i] = p;
    if (a.m) a.m[i] = m;
    if (ADAM) a.v[i] = v;
    if (a.copy) brim_store(a.copy, i, p);
    if (a.average) a.average[i] = fmaf(s.rate, p - a.average[i], a.average[i]);
  }
}

static brim_status optimizer_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[2].dtype == BRIM_F32) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: optimizer takes f32 gradients");
}

template <typename T>
static void launch_optimizer(const brim_cuda *device, const brim_op_call *c, cudaStream_t stream) {
  const brim_op_attr *o = &c->attr;
  bool adam = o->optimizer != BRIM_OPTIMIZER_SGD;
  rule r = {o->nesterov,     o->optimizer == BRIM_OPTIMIZER_ADAMW,
            o->momentum,     o->beta1,
            o->beta2,        o->eps,
            o->weight_decay, o->average_rate};
  bool copy = brim_cuda_has(&c->out[3], 3, c->out_count) && brim_cuda_count(&c->out[3]) > 0;
  bool average = brim_cuda_has(&c->out[4], 4, c->out_count) && brim_cuda_count(&c->out[4]) > 0;
  arrays<T> a = {(const float *)c->in[2].data, (float *)c->out[0].data, NULL, NULL, NULL, NULL};
  if (adam || o->momentum != 0.0f) a.m = (float *)c->out[1].data;
  if (adam) a.v = (float *)c->out[2].data;
  if (copy) a.copy = (T *)c->out[3].data;
  if (average) a.average = (float *)c->out[4].data;
  int64_t n = brim_cuda_count(&c->out[0]);
  bool aligned = brim_cuda_aligned(a.grads) && brim_cuda_aligned(a.params) &&
                 brim_cuda_aligned(a.m) && brim_cuda_aligned(a.v) && brim_cuda_aligned(a.copy) &&
                 brim_cuda_aligned(a.average);
  int64_t vectors = aligned ? n / 4 : 0, most = (int64_t)device->sm_count * 16;
  int64_t want = brim_cuda_div_up(aligned ? n / 4 : n, THREADS);
  unsigned blocks = (unsigned)(want < 1 ? 1 : want < most ? want : most);
  auto kernel = adam ? optimizer_kernel<T, true> : optimizer_kernel<T, false>;
  kernel<<<blocks, THREADS, 0, stream>>>((const double *)c->in[0].data,
                                         (const float *)c->in[1].data, a, n, vectors, r);
}

static brim_status optimizer_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  const brim_cuda *device = (const brim_cuda *)impl;
  bool half = brim_cuda_has(&c->out[3], 3, c->out_count) && c->out[3].dtype == BRIM_F16;
  if (half) {
    launch_optimizer<__half>(device, c, (cudaStream_t)stream);
  } else {
    launch_optimizer<__nv_bfloat16>(device, c, (cudaStream_t)stream);
  }
  return brim_cuda_launched("optimizer");
}

//---------------------------------- averages ----------------------------------

__global__ static void average_kernel(const double *state, const float *norm, const float *values,
                                      float *average, int64_t n, float base_rate) {
  if (norm[1] > 0.0f) return;
  float rate = find_rate(base_rate, state[BRIM_STATE_UPDATES]);
  int64_t step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
    average[i] = fmaf(rate, values[i] - average[i], average[i]);
  }
}

static brim_status average_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[2].dtype == BRIM_F32) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: average takes f32");
}

static brim_status average_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  const brim_cuda *device = (const brim_cuda *)impl;
  int64_t n = brim_cuda_count(&c->in[2]);
  int64_t want = brim_cuda_div_up(n, THREADS), most = (int64_t)device->sm_count * 16;
  unsigned blocks = (unsigned)(want < 1 ? 1 : want < most ? want : most);
  average_kernel<<<blocks, THREADS, 0, (cudaStream_t)stream>>>(
      (const double *)c->in[0].data, (const float *)c->in[1].data, (const float *)c->in[2].data,
      (float *)c->out[0].data, n, c->attr.average_rate);
  return brim_cuda_launched("average");
}

//---------------------------------- end of a step ----------------------------------

// ring (rows, 4): a row for each step: the squared norm of the unscaled gradients, the number of
// gradients that are not finite, the loss scale, 0.
__global__ static void step_end_kernel(const float *norm, double *state, float *ring, int64_t rows,
                                       bool dynamic, int growth_interval) {
  double scale = state[BRIM_STATE_LOSS_SCALE], good = state[BRIM_STATE_GOOD_STEPS];
  int64_t step = (int64_t)state[BRIM_STATE_STEP] - 1;
  float *row = ring + (step < 0 ? 0 : step % rows) * 4;
  row[0] = (float)((double)norm[0] / (scale * scale));
  row[1] = norm[1];
  row[2] = (float)scale;
  row[3] = 0.0f;
  if (!(norm[1] > 0.0f)) state[BRIM_STATE_UPDATES] += 1.0;
  if (!dynamic) return;
  if (norm[1] > 0.0f) {
    scale = scale * 0.5 < 1.0 ? 1.0 : scale * 0.5;
    good = 0;
  } else {
    good += 1;
    if (good >= growth_interval) {
      scale = scale * 2.0 > 16777216.0 ? 16777216.0 : scale * 2.0;
      good = 0;
    }
  }
  state[BRIM_STATE_LOSS_SCALE] = scale;
  state[BRIM_STATE_GOOD_STEPS] = good;
}

static brim_status step_end_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dtype == BRIM_F32) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: step_end takes f32");
}

static brim_status step_end_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  step_end_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(
      (const float *)c->in[0].data, (double *)c->out[0].data, (float *)c->out[1].data,
      c->out[1].dim[0], c->attr.dynamic_scale, c->attr.growth_interval);
  return brim_cuda_launched("step_end");
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_GRAD_NORM, grad_norm_validate, grad_norm_prepare, grad_norm_run, NULL},
    {BRIM_OP_OPTIMIZER, optimizer_validate, NULL, optimizer_run, NULL},
    {BRIM_OP_AVERAGE, average_validate, NULL, average_run, NULL},
    {BRIM_OP_STEP_END, step_end_validate, NULL, step_end_run, NULL},
};

const brim_op_family brim_cuda_optim_ops = {rows, sizeof rows / sizeof *rows};
