// The flat optimiser: one kernel over all parameters that unscales, clips, updates and casts; and
// the gradient norm before it, in two passes of fixed shape so that its bits repeat.
#include "backend/cuda/cuda_int.cuh"

enum { THREADS = 256, PARTS = 512 };

brim_status brim_cuda_grad_norm_prepare(void *impl, brim_op_call *c) {
  brim_cuda_enter(impl);
  c->workspace_bytes = 2 * PARTS * sizeof(float);
  return BRIM_OK;
}

__global__ static void norm_parts(const float *grads, int64_t n, float *part) {
  __shared__ float shared[32];
  float sum = 0, bad = 0;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
       i += (int64_t)gridDim.x * blockDim.x) {
    float g = grads[i];
    if (isfinite(g)) {
      sum += g * g;
    } else {
      bad += 1.0f;
    }
  }
  sum = brim_block_sum(sum, shared);
  bad = brim_block_sum(bad, shared);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = sum;
    part[PARTS + blockIdx.x] = bad;
  }
}

__global__ static void norm_finish(const float *part, float *norm) {
  __shared__ float shared[32];
  float sum = brim_block_sum(part[threadIdx.x], shared);
  float bad = brim_block_sum(part[PARTS + threadIdx.x], shared);
  if (threadIdx.x == 0) {
    norm[0] = sum;
    norm[1] = bad;
  }
}

brim_status brim_cuda_grad_norm_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dtype == BRIM_F32) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: grad_norm takes f32");
}

brim_status brim_cuda_grad_norm_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  float *part = (float *)c->workspace;
  norm_parts<<<PARTS, THREADS, 0, (cudaStream_t)stream>>>((const float *)c->in[0].data,
                                                          brim_cuda_count(&c->in[0]), part);
  BRIM_TRY(brim_cuda_launched("norm_parts"));
  norm_finish<<<1, PARTS, 0, (cudaStream_t)stream>>>(part, (float *)c->out[0].data);
  return brim_cuda_launched("norm_finish");
}

struct rule {
  brim_optimizer_kind kind;
  bool nesterov;
  float momentum, beta1, beta2, eps, weight_decay;
};

__device__ static float sgd_step(const rule &r, float g, float *m, int64_t i, bool first) {
  if (r.momentum == 0.0f) return g;
  float buffer = first ? g : r.momentum * m[i] + g;
  m[i] = buffer;
  return r.nesterov ? g + r.momentum * buffer : buffer;
}

template <typename T>
__global__ static void optimizer_kernel(const double *state, const float *norm, const float *grads,
                                        float *params, float *m, float *v, T *half, int64_t n,
                                        rule r) {
  if (norm[1] > 0.0f) return;  // a gradient is not finite: the whole step is skipped
  float inverse = (float)state[BRIM_STATE_INV_SCALE], lr = (float)state[BRIM_STATE_LR];
  float length = sqrtf(norm[0]) * inverse, clip = (float)state[BRIM_STATE_CLIP];
  float scale = clip > 0.0f && length > clip ? inverse * (clip / (length + 1e-6f)) : inverse;
  double step = state[BRIM_STATE_STEP];
  float c1 = (float)(1.0 - pow((double)r.beta1, step));
  float c2 = (float)sqrt(1.0 - pow((double)r.beta2, step));
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
       i += (int64_t)gridDim.x * blockDim.x) {
    float p = params[i], g = grads[i] * scale;
    if (r.kind == BRIM_OPTIMIZER_ADAMW) {
      p -= lr * r.weight_decay * p;
    } else {
      g += r.weight_decay * p;
    }
    if (r.kind == BRIM_OPTIMIZER_SGD) {
      p -= lr * sgd_step(r, g, m, i, step <= 1.0);
    } else {
      float a = r.beta1 * m[i] + (1.0f - r.beta1) * g;
      float b = r.beta2 * v[i] + (1.0f - r.beta2) * g * g;
      m[i] = a;
      v[i] = b;
      p -= lr / c1 * a / (sqrtf(b) / c2 + r.eps);
    }
    params[i] = p;
    if (half) brim_store(half, i, p);
  }
}

brim_status brim_cuda_optimizer_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[2].dtype == BRIM_F32) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: optimizer takes f32 gradients");
}

brim_status brim_cuda_optimizer_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  const brim_op_attr *a = &c->attr;
  rule r = {a->optimizer, a->nesterov, a->momentum, a->beta1, a->beta2, a->eps, a->weight_decay};
  int64_t n = brim_cuda_count(&c->out[0]);
  bool half = brim_cuda_has(&c->out[3], 3, c->out_count) && brim_cuda_count(&c->out[3]) > 0;
  brim_dtype type = half ? c->out[3].dtype : BRIM_BF16;
  BRIM_CUDA_DISPATCH(
      type,
      (optimizer_kernel<T><<<brim_cuda_blocks(n, THREADS), THREADS, 0, (cudaStream_t)stream>>>(
          (const double *)c->in[0].data, (const float *)c->in[1].data, (const float *)c->in[2].data,
          (float *)c->out[0].data, (float *)c->out[1].data, (float *)c->out[2].data,
          (T *)(half ? c->out[3].data : NULL), n, r)));
  return brim_cuda_launched("optimizer");
}
