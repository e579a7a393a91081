// Linear layers through cuBLASLt: forward with bias and ReLU in the epilogue, gradients of data and
// weights. Row-major (N, K) is column-major (K, N), so every product is asked for transposed.
// FLOPs 2 N K M each; the algorithm is the heuristic's first within the workspace cap.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_int.cuh"

//---------------------------------- the library ----------------------------------

brim_status brim_cuda_blas_open(brim_cuda *d) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                      "/usr/local/cuda/lib64/libcublasLt.so.13",
                                      "/usr/local/cuda/lib64/libcublasLt.so", NULL};
  brim_cuda_blas *b = &d->blas;
  for (int i = 0; names[i] && !b->library; i++) b->library = dlopen(names[i], RTLD_NOW);
  if (!b->library) {
    brim_cuda_host->log(1, "cuda", "libcublasLt not found; linear layers cannot run on the GPU");
    return BRIM_OK;
  }
  const struct {
    const char *name;
    void **address;
  } symbols[] = {
      {"cublasLtCreate", (void **)&b->create},
      {"cublasLtDestroy", (void **)&b->destroy},
      {"cublasLtGetVersion", (void **)&b->version},
      {"cublasLtMatmulDescCreate", (void **)&b->desc_create},
      {"cublasLtMatmulDescDestroy", (void **)&b->desc_destroy},
      {"cublasLtMatmulDescSetAttribute", (void **)&b->desc_set},
      {"cublasLtMatrixLayoutCreate", (void **)&b->layout_create},
      {"cublasLtMatrixLayoutDestroy", (void **)&b->layout_destroy},
      {"cublasLtMatmulPreferenceCreate", (void **)&b->pref_create},
      {"cublasLtMatmulPreferenceDestroy", (void **)&b->pref_destroy},
      {"cublasLtMatmulPreferenceSetAttribute", (void **)&b->pref_set},
      {"cublasLtMatmulAlgoGetHeuristic", (void **)&b->heuristic},
      {"cublasLtMatmul", (void **)&b->matmul},
  };
  for (const auto &s : symbols) {
    *s.address = dlsym(b->library, s.name);
    if (!*s.address) return brim_cuda_fail(BRIM_EABI, "libcublasLt has no %s", s.name);
  }
  cublasStatus_t error = b->create(&d->lt);
  if (error) return brim_cuda_fail(BRIM_EDEVICE, "cublasLtCreate: status %d", (int)error);
  return BRIM_OK;
}

void brim_cuda_blas_close(brim_cuda *d) {
  if (d->lt) d->blas.destroy(d->lt);
}

//---------------------------------- plans ----------------------------------

// One product D = op(A) op(B) (column-major), from prepare to release.
struct linear_state {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulAlgo_t algo;
  size_t workspace;
};

struct product {
  bool trans_a, trans_b;
  int64_t rows, cols, inner;  // of D, and the shared dimension
  brim_dtype in, out;
};

static cudaDataType_t cuda_type(brim_dtype dtype) {
  return dtype == BRIM_BF16 ? CUDA_R_16BF : dtype == BRIM_F16 ? CUDA_R_16F : CUDA_R_32F;
}

// y' (M,N) = w (as K,M transposed) x' (K,N);  dx' (K,N) = w (K,M) dy' (M,N);
// dw' (K,M) = x' (K,N) dy' (M,N) transposed
static product product_of(const brim_op_call *c) {
  int64_t n = c->in[0].dim[0];
  switch (c->op) {
    case BRIM_OP_LINEAR:
      return {true, false, c->in[1].dim[0], n, c->in[1].dim[1], c->in[0].dtype, c->out[0].dtype};
    case BRIM_OP_LINEAR_BWD_DATA:
      return {false, false, c->in[1].dim[1], n, c->in[1].dim[0], c->in[0].dtype, c->out[0].dtype};
    default:
      return {false, true, c->out[0].dim[1], c->out[0].dim[0], n, c->in[0].dtype, c->out[0].dtype};
  }
}

static brim_status validate(void *impl, const brim_op_call *c) {
  brim_cuda *d = (brim_cuda *)impl;
  if (!d->blas.library) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED,
                          "cuda: linear layers need libcublasLt, which was not found; install "
                          "CUDA's libraries or add their folder to LD_LIBRARY_PATH");
  }
  return brim_cuda_float_type(&c->in[0], "linear");
}

brim_status brim_cuda_linear_validate(void *impl, const brim_op_call *c) {
  bool bias = brim_cuda_has(&c->in[2], 2, c->in_count);
  bool fused = c->attr.act == BRIM_ACT_NONE || (c->attr.act == BRIM_ACT_RELU && bias);
  if (!fused) return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: this activation is not fused");
  return validate(impl, c);
}

brim_status brim_cuda_linear_bwd_data_validate(void *impl, const brim_op_call *c) {
  if (c->attr.act != BRIM_ACT_NONE) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: act' is not fused into linear_bwd_data");
  }
  return validate(impl, c);
}

brim_status brim_cuda_linear_bwd_weight_validate(void *impl, const brim_op_call *c) {
  return validate(impl, c);
}

void brim_cuda_linear_release(void *impl, brim_op_call *call) {
  brim_cuda *d = (brim_cuda *)impl;
  linear_state *s = (linear_state *)call->state;
  if (!s) return;
  if (s->desc) d->blas.desc_destroy(s->desc);
  if (s->a) d->blas.layout_destroy(s->a);
  if (s->b) d->blas.layout_destroy(s->b);
  if (s->d) d->blas.layout_destroy(s->d);
  brim_cuda_host->free(s);
  call->state = NULL;
}

static cublasStatus_t describe(brim_cuda *d, const brim_op_call *c, const product *p,
                               linear_state *s) {
  const brim_cuda_blas *b = &d->blas;
  cublasOperation_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasStatus_t e = b->desc_create(&s->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (!e) e = b->desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
  if (!e) e = b->desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
  bool bias = c->op == BRIM_OP_LINEAR && brim_cuda_has(&c->in[2], 2, c->in_count);
  if (!e && bias) {
    cublasLtEpilogue_t epilogue =
        c->attr.act == BRIM_ACT_RELU ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    cudaDataType_t type = cuda_type(c->in[2].dtype);
    e = b->desc_set(s->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!e) e = b->desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  }
  cudaDataType_t in = cuda_type(p->in), out = cuda_type(p->out);
  uint64_t a_rows = (uint64_t)(p->trans_a ? p->inner : p->rows);
  uint64_t a_cols = (uint64_t)(p->trans_a ? p->rows : p->inner);
  uint64_t b_rows = (uint64_t)(p->trans_b ? p->cols : p->inner);
  uint64_t b_cols = (uint64_t)(p->trans_b ? p->inner : p->cols);
  if (!e) e = b->layout_create(&s->a, in, a_rows, a_cols, (int64_t)a_rows);
  if (!e) e = b->layout_create(&s->b, in, b_rows, b_cols, (int64_t)b_rows);
  if (!e) e = b->layout_create(&s->d, out, (uint64_t)p->rows, (uint64_t)p->cols, p->rows);
  return e;
}

static cublasStatus_t choose(brim_cuda *d, linear_state *s) {
  const brim_cuda_blas *b = &d->blas;
  cublasLtMatmulPreference_t pref = NULL;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  uint32_t align = BRIM_ALIGN;
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  cublasStatus_t e = b->pref_create(&pref);
  if (e) return e;
  e = b->pref_set(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &d->workspace_cap,
                  sizeof d->workspace_cap);
  for (auto a : alignments) {
    if (!e) e = b->pref_set(pref, a, &align, sizeof align);
  }
  if (!e) e = b->heuristic(d->lt, s->desc, s->a, s->b, s->d, s->d, pref, 1, &found, &count);
  b->pref_destroy(pref);
  if (e) return e;
  if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  s->algo = found.algo;
  s->workspace = found.workspaceSize;
  return CUBLAS_STATUS_SUCCESS;
}

brim_status brim_cuda_linear_prepare(void *impl, brim_op_call *call) {
  brim_cuda_enter(impl);
  brim_cuda *d = (brim_cuda *)impl;
  linear_state *s = (linear_state *)brim_cuda_host->alloc(sizeof *s, 0);
  if (!s) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while preparing a linear layer");
  memset(s, 0, sizeof *s);
  call->state = s;
  product p = product_of(call);
  cublasStatus_t e = describe(d, call, &p, s);
  if (!e) e = choose(d, s);
  if (e) {
    brim_cuda_linear_release(impl, call);
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuBLASLt has no plan for this product: status %d",
                          (int)e);
  }
  call->workspace_bytes = s->workspace;
  return BRIM_OK;
}

//---------------------------------- running ----------------------------------

static brim_status multiply(brim_cuda *d, void *stream, const brim_op_call *c, const void *a,
                            const void *b, float beta) {
  brim_cuda_enter(d);
  linear_state *s = (linear_state *)c->state;
  float alpha = 1.0f;
  cublasStatus_t e = d->blas.matmul(d->lt, s->desc, &alpha, a, s->a, b, s->b, &beta, c->out[0].data,
                                    s->d, c->out[0].data, s->d, &s->algo, c->workspace,
                                    s->workspace, (cudaStream_t)stream);
  if (e) return brim_cuda_fail(BRIM_EDEVICE, "cublasLtMatmul: status %d", (int)e);
  return BRIM_OK;
}

brim_status brim_cuda_linear_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda *d = (brim_cuda *)impl;
  linear_state *s = (linear_state *)c->state;
  if (brim_cuda_has(&c->in[2], 2, c->in_count)) {
    const void *bias = c->in[2].data;
    cublasStatus_t e =
        d->blas.desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (e) return brim_cuda_fail(BRIM_EDEVICE, "cuBLASLt bias pointer: status %d", (int)e);
  }
  return multiply(d, stream, c, c->in[1].data, c->in[0].data, 0.0f);
}

brim_status brim_cuda_linear_bwd_data_run(void *impl, void *stream, const brim_op_call *c) {
  return multiply((brim_cuda *)impl, stream, c, c->in[1].data, c->in[0].data, 0.0f);
}

// Column sums of dy (N, M): each thread owns one column of a 32-wide tile and a fixed set of rows;
// the tile's rows are then added in order, so the bits do not depend on timing.
template <typename T>
__global__ static void column_sums(const T *dy, float *db, int64_t n, int64_t m, bool accumulate) {
  __shared__ float part[8][33];
  int64_t col = (int64_t)blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  if (col < m) {
    for (int64_t row = threadIdx.y; row < n; row += 8) sum += brim_load(dy, row * m + col);
  }
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && col < m) {
    float total = accumulate ? db[col] : 0.0f;
    for (int i = 0; i < 8; i++) total += part[i][threadIdx.x];
    db[col] = total;
  }
}

brim_status brim_cuda_linear_bwd_weight_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda *d = (brim_cuda *)impl;
  BRIM_TRY(multiply(d, stream, c, c->in[1].data, c->in[0].data, c->attr.accumulate ? 1.0f : 0.0f));
  if (!brim_cuda_has(&c->out[1], 1, c->out_count)) return BRIM_OK;
  int64_t n = c->in[0].dim[0], m = c->in[0].dim[1];
  dim3 threads(32, 8);
  unsigned blocks = (unsigned)((m + 31) / 32);
  BRIM_CUDA_DISPATCH(c->in[0].dtype, (column_sums<T><<<blocks, threads, 0, (cudaStream_t)stream>>>(
                                         (const T *)c->in[0].data, (float *)c->out[1].data, n, m,
                                         c->attr.accumulate)));
  return brim_cuda_launched("column_sums");
}
