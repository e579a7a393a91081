// Layer norm over the last dimension: one block per row forward; backward in two passes, dx per row
// and dg, db per column over fixed chunks of rows, so sums are always made in the same order.
#include "backend/cuda/cuda_int.cuh"

enum { THREADS = 256, CHUNKS = 64 };

template <typename T>
__global__ static void layernorm_kernel(const T *x, const float *g, const float *b, T *y,
                                        float *mean, float *rstd, int64_t c, float eps) {
  __shared__ float shared[32];
  __shared__ float mu, inv;
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
    inv = rsqrtf(square / (float)c + eps);
    mean[row] = mu;
    rstd[row] = inv;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    brim_store(y + row * c, i, (brim_load(xr, i) - mu) * inv * g[i] + b[i]);
  }
}

template <typename T>
__global__ static void layernorm_dx(const T *dy, const T *x, const float *g, const float *mean,
                                    const float *rstd, T *dx, int64_t c) {
  __shared__ float shared[32];
  __shared__ float s1, s2;
  int64_t row = blockIdx.x;
  float mu = mean[row], inv = rstd[row];
  float a = 0, b = 0;
  for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    float d = brim_load(dy, row * c + i) * g[i];
    a += d;
    b += d * (brim_load(x, row * c + i) - mu) * inv;
  }
  a = brim_block_sum(a, shared);
  if (threadIdx.x == 0) s1 = a / (float)c;
  b = brim_block_sum(b, shared);
  if (threadIdx.x == 0) s2 = b / (float)c;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    float xhat = (brim_load(x, row * c + i) - mu) * inv;
    float d = brim_load(dy, row * c + i) * g[i];
    brim_store(dx, row * c + i, (d - s1 - xhat * s2) * inv);
  }
}

// partial sums: part[chunk][2][c]
template <typename T>
__global__ static void layernorm_dgdb(const T *dy, const T *x, const float *mean, const float *rstd,
                                      float *part, int64_t n, int64_t c) {
  int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= c) return;
  int64_t per = (n + CHUNKS - 1) / CHUNKS;
  int64_t first = (int64_t)blockIdx.y * per;
  int64_t last = first + per < n ? first + per : n;
  float dg = 0, db = 0;
  for (int64_t row = first; row < last; row++) {
    float d = brim_load(dy, row * c + col);
    dg += d * (brim_load(x, row * c + col) - mean[row]) * rstd[row];
    db += d;
  }
  part[(int64_t)blockIdx.y * 2 * c + col] = dg;
  part[((int64_t)blockIdx.y * 2 + 1) * c + col] = db;
}

__global__ static void layernorm_finish(const float *part, float *dg, float *db, int64_t c,
                                        bool accumulate) {
  int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= c) return;
  float g = accumulate ? dg[col] : 0.0f, b = accumulate ? db[col] : 0.0f;
  for (int k = 0; k < CHUNKS; k++) {
    g += part[(int64_t)k * 2 * c + col];
    b += part[((int64_t)k * 2 + 1) * c + col];
  }
  dg[col] = g;
  db[col] = b;
}

brim_status brim_cuda_layernorm_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "layernorm");
}

brim_status brim_cuda_layernorm_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = c->in[0].dim[0], cols = c->in[0].dim[1];
  BRIM_CUDA_DISPATCH(c->in[0].dtype,
                     (layernorm_kernel<T><<<(unsigned)n, THREADS, 0, (cudaStream_t)stream>>>(
                         (const T *)c->in[0].data, (const float *)c->in[1].data,
                         (const float *)c->in[2].data, (T *)c->out[0].data, (float *)c->out[1].data,
                         (float *)c->out[2].data, cols, c->attr.eps)));
  return brim_cuda_launched("layernorm");
}

brim_status brim_cuda_layernorm_bwd_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return brim_cuda_float_type(&c->in[0], "layernorm_bwd");
}

brim_status brim_cuda_layernorm_bwd_prepare(void *impl, brim_op_call *c) {
  brim_cuda_enter(impl);
  c->workspace_bytes = (size_t)c->in[0].dim[1] * 2 * CHUNKS * sizeof(float);
  return BRIM_OK;
}

template <typename T>
static void launch_bwd(const brim_op_call *c, cudaStream_t stream) {
  int64_t n = c->in[0].dim[0], cols = c->in[0].dim[1];
  const T *dy = (const T *)c->in[0].data, *x = (const T *)c->in[1].data;
  const float *g = (const float *)c->in[2].data, *mean = (const float *)c->in[3].data;
  const float *rstd = (const float *)c->in[4].data;
  float *part = (float *)c->workspace;
  dim3 grid((unsigned)((cols + THREADS - 1) / THREADS), CHUNKS);
  // the columns first: dx may be written over dy
  layernorm_dgdb<T><<<grid, THREADS, 0, stream>>>(dy, x, mean, rstd, part, n, cols);
  layernorm_finish<<<grid.x, THREADS, 0, stream>>>(
      part, (float *)c->out[1].data, (float *)c->out[2].data, cols, c->attr.accumulate);
  layernorm_dx<T>
      <<<(unsigned)n, THREADS, 0, stream>>>(dy, x, g, mean, rstd, (T *)c->out[0].data, cols);
}

brim_status brim_cuda_layernorm_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  BRIM_CUDA_DISPATCH(c->in[0].dtype, launch_bwd<T>(c, (cudaStream_t)stream));
  return brim_cuda_launched("layernorm_bwd");
}
