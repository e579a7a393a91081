// Linear layers: cuBLASLt, or for skinny products the kernels of cuda_linear_skinny.cu. Row-major
// (N, K) is column-major (K, N), so every product is asked for transposed. FLOPs 2 N K M each.
// Which algorithm: the fastest of those timed once per shape where the device measures, else the
// heuristic's first, or the own kernel where cuda_linear_skinny.cu says it wins.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_linear_int.cuh"

//---------------------------------- the library ----------------------------------

const char *const brim_cuda_blas_names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                            "/usr/local/cuda/lib64/libcublasLt.so.13",
                                            "/usr/local/cuda/lib64/libcublasLt.so", NULL};

brim_status brim_cuda_blas_open(brim_cuda *d) {
  brim_cuda_blas *b = &d->blas;
  for (int i = 0; brim_cuda_blas_names[i] && !b->library; i++) {
    b->library = dlopen(brim_cuda_blas_names[i], RTLD_NOW);
  }
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
      {"cublasLtMatmulAlgoConfigGetAttribute", (void **)&b->algo_get},
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

enum { CANDIDATES = 8, MAX_SPLITS = 64 };

// One product D = op(A) op(B) (column-major), from prepare to release. Choice `count` is the own
// kernel.
struct linear_state {
  cublasLtMatmulDesc_t desc;  // NULL: the own kernel is the only choice
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES];
  int count, choice;
  int splits;           // dw as that many products over slabs of rows, added afterwards
  size_t split_offset;  // their results in the workspace
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
  int64_t n = linear_rows(&c->in[0]);
  switch (c->op) {
    case BRIM_OP_LINEAR:
      return {true, false, c->in[1].dim[0], n, c->in[1].dim[1], c->in[0].dtype, c->out[0].dtype};
    case BRIM_OP_LINEAR_BWD_DATA:
      return {false, false, c->in[1].dim[1], n, c->in[1].dim[0], c->in[0].dtype, c->out[0].dtype};
    default:
      return {false, true, c->out[0].dim[1], c->out[0].dim[0], n, c->in[0].dtype, c->out[0].dtype};
  }
}

static bool has_bias(const brim_op_call *c) {
  return c->op == BRIM_OP_LINEAR && brim_cuda_has(&c->in[2], 2, c->in_count);
}

// True for epilogues that cuBLASLt cannot fuse (its GELU is the tanh form, its ReLU' needs a bit
// mask).
static bool own_only(const brim_op_call *c) {
  if (c->op == BRIM_OP_LINEAR_BWD_WEIGHT) return false;
  if (c->attr.act == BRIM_ACT_NONE) return false;
  return c->op != BRIM_OP_LINEAR || c->attr.act != BRIM_ACT_RELU;
}

brim_status brim_cuda_linear_validate(void *impl, const brim_op_call *c) {
  brim_cuda *d = (brim_cuda *)impl;
  BRIM_TRY(brim_cuda_float_type(&c->in[0], "linear"));
  if (own_only(c)) {
    if (brim_cuda_skinny_wins(c)) return BRIM_OK;
    return brim_cuda_fail(BRIM_EUNSUPPORTED,
                          "cuda: this activation is fused only into 16-bit products of at least "
                          "64 rows and at most 128 columns, multiples of 4");
  }
  if (d->blas.library || brim_cuda_skinny_fits(c)) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED,
                        "cuda: libcublasLt not found; install the CUDA libraries or add their "
                        "folder to LD_LIBRARY_PATH");
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

static cublasStatus_t describe_product(brim_cuda *d, const brim_op_call *c, const product *p,
                                       linear_state *s) {
  const brim_cuda_blas *b = &d->blas;
  cublasOperation_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  bool tf32 = c->attr.tf32 && p->in == BRIM_F32;
  cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasStatus_t e = b->desc_create(&s->desc, compute, CUDA_R_32F);
  if (!e) e = b->desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
  if (!e) e = b->desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
  bool bias = has_bias(c), relu = c->op == BRIM_OP_LINEAR && c->attr.act == BRIM_ACT_RELU;
  if (!e && (bias || relu)) {
    cublasLtEpilogue_t epilogue = bias && relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                  : bias       ? CUBLASLT_EPILOGUE_BIAS
                                               : CUBLASLT_EPILOGUE_RELU;
    e = b->desc_set(s->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  }
  if (!e && bias) {
    cudaDataType_t type = cuda_type(c->in[2].dtype);
    e = b->desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  }
  return e;
}

// With splits the shared dimension is cut, and D becomes a row of partial results.
static cublasStatus_t describe_layouts(brim_cuda *d, const product *p, linear_state *s) {
  const brim_cuda_blas *b = &d->blas;
  int64_t inner = p->inner / s->splits;
  cudaDataType_t in = cuda_type(p->in), out = cuda_type(p->out);
  uint64_t a_rows = (uint64_t)(p->trans_a ? inner : p->rows);
  uint64_t a_cols = (uint64_t)(p->trans_a ? p->rows : inner);
  uint64_t b_rows = (uint64_t)(p->trans_b ? p->cols : inner);
  uint64_t b_cols = (uint64_t)(p->trans_b ? inner : p->cols);
  cublasStatus_t e = b->layout_create(&s->a, in, a_rows, a_cols, (int64_t)a_rows);
  if (!e) e = b->layout_create(&s->b, in, b_rows, b_cols, (int64_t)b_rows);
  if (!e) e = b->layout_create(&s->d, out, (uint64_t)p->rows, (uint64_t)p->cols, p->rows);
  if (e || s->splits == 1) return e;
  typedef cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
                                       const void *, size_t);
  layout_set set = (layout_set)dlsym(b->library, "cublasLtMatrixLayoutSetAttribute");
  if (!set) return CUBLAS_STATUS_NOT_SUPPORTED;
  const struct {
    cublasLtMatrixLayout_t layout;
    int64_t stride;
  } batches[] = {{s->a, p->rows * inner}, {s->b, p->cols * inner}, {s->d, p->rows * p->cols}};
  int32_t count = s->splits;
  for (const auto &m : batches) {
    if (!e) e = set(m.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (!e) {
      e = set(m.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.stride, sizeof m.stride);
    }
  }
  return e;
}

static size_t split_bytes(const brim_op_call *c, const linear_state *s) {
  if (s->splits == 1) return 0;
  return (size_t)brim_cuda_count(&c->out[0]) * (size_t)s->splits * sizeof(float);
}

static cublasStatus_t propose(brim_cuda *d, const brim_op_call *c, linear_state *s) {
  const brim_cuda_blas *b = &d->blas;
  cublasLtMatmulPreference_t pref = NULL;
  uint32_t align = BRIM_ALIGN;
  // A small product needs no large workspace, and the last layer's would stand where memory is
  // tightest: at the beginning of the way back.
  size_t cap = 0, room = d->workspace_cap - split_bytes(c, s);
  for (int i = 0; i < c->in_count; i++) cap += 4 * brim_cuda_bytes(&c->in[i]);
  for (int i = 0; i < c->out_count; i++) cap += 4 * brim_cuda_bytes(&c->out[i]);
  if (cap < (size_t)1 << 20) cap = (size_t)1 << 20;
  if (cap > room) cap = room;
  // a sum in place depends on which thread comes first
  uint32_t schemes =
      d->nondeterministic ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  cublasStatus_t e = b->pref_create(&pref);
  if (e) return e;
  e = b->pref_set(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &cap, sizeof cap);
  if (!e) {
    e = b->pref_set(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  }
  for (auto a : alignments) {
    if (!e) e = b->pref_set(pref, a, &align, sizeof align);
  }
  if (!e) {
    e = b->heuristic(d->lt, s->desc, s->a, s->b, s->d, s->d, pref, CANDIDATES, s->found, &s->count);
  }
  b->pref_destroy(pref);
  if (!e && s->count == 0) e = CUBLAS_STATUS_NOT_SUPPORTED;
  return e;
}

// A small dw over very many rows is too few tiles for the device: cut the rows into slabs of equal
// size, multiples of 16 rows so that every slab is aligned.
static int count_splits(const brim_cuda *d, const brim_op_call *c, const product *p) {
  if (c->op != BRIM_OP_LINEAR_BWD_WEIGHT) return 1;
  int64_t tiles = ((p->rows + 127) / 128) * ((p->cols + 127) / 128);
  // a single tile keeps one multiprocessor busy: fewer rows are worth cutting
  if (p->inner < (tiles == 1 ? 4096 : 16384)) return 1;
  size_t bytes = (size_t)(p->rows * p->cols) * sizeof(float);
  int splits = 1;
  while (splits < MAX_SPLITS && tiles * splits < 2 * d->sm_count &&
         p->inner % (splits * 2 * 16) == 0 && p->inner / (splits * 2) >= 1024 &&
         bytes * (size_t)splits * 2 <= d->workspace_cap) {
    splits *= 2;
  }
  return splits;
}

//---------------------------------- running ----------------------------------

static brim_status multiply(brim_cuda *d, cudaStream_t stream, const brim_op_call *c, int choice) {
  linear_state *s = (linear_state *)c->state;
  bool weight = c->op == BRIM_OP_LINEAR_BWD_WEIGHT;
  const void *a = c->in[1].data, *b = c->in[0].data;
  void *out = s->splits > 1 ? (char *)c->workspace + s->split_offset : c->out[0].data;
  float alpha = 1.0f, beta = weight && c->attr.accumulate && s->splits == 1 ? 1.0f : 0.0f;
  if (has_bias(c)) {
    const void *bias = c->in[2].data;
    cublasStatus_t e =
        d->blas.desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (e) return brim_cuda_fail(BRIM_EDEVICE, "cuBLASLt bias pointer: status %d", (int)e);
  }
  const cublasLtMatmulHeuristicResult_t *f = &s->found[choice];
  cublasStatus_t e = d->blas.matmul(d->lt, s->desc, &alpha, a, s->a, b, s->b, &beta, out, s->d, out,
                                    s->d, &f->algo, c->workspace, f->workspaceSize, stream);
  if (e) {
    brim_status failed = brim_cuda_library_failed(e == CUBLAS_STATUS_ALLOC_FAILED);
    bool refused = e == CUBLAS_STATUS_INVALID_VALUE || e == CUBLAS_STATUS_NOT_SUPPORTED ||
                   e == CUBLAS_STATUS_ARCH_MISMATCH;  // whatever memory there is
    return brim_cuda_fail(refused ? BRIM_EDEVICE : failed, "cublasLtMatmul: status %d", (int)e);
  }
  if (s->splits == 1) return BRIM_OK;
  int64_t count = brim_cuda_count(&c->out[0]);
  return brim_cuda_sum_slabs(stream, (const float *)out, s->splits, count, count,
                             (float *)c->out[0].data, c->attr.accumulate);
}

static brim_status run_choice(brim_cuda *d, cudaStream_t stream, const brim_op_call *c,
                              int choice) {
  linear_state *s = (linear_state *)c->state;
  if (choice == s->count) return brim_cuda_skinny_run(d, stream, c);
  BRIM_TRY(multiply(d, stream, c, choice));
  if (c->op != BRIM_OP_LINEAR_BWD_WEIGHT || !brim_cuda_has(&c->out[1], 1, c->out_count)) {
    return BRIM_OK;
  }
  return brim_cuda_column_sums(stream, &c->in[0], (float *)c->out[1].data, c->workspace,
                               c->attr.accumulate);
}

brim_status brim_cuda_linear_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  return run_choice((brim_cuda *)impl, (cudaStream_t)stream, c, ((linear_state *)c->state)->choice);
}

//---------------------------------- choosing ----------------------------------

static void key_of(const brim_cuda *d, const brim_op_call *c, char key[BRIM_CUDA_ALGO_CHARS]) {
  product p = product_of(c);
  bool bias = has_bias(c) ||
              (c->op == BRIM_OP_LINEAR_BWD_WEIGHT && brim_cuda_has(&c->out[1], 1, c->out_count));
  snprintf(key, BRIM_CUDA_ALGO_CHARS, "linear/%d/%d/%lldx%lldx%lld/b%da%dt%d/lt%zu",
           (int)(c->op - BRIM_OP_LINEAR), (int)p.in, (long long)p.rows, (long long)p.cols,
           (long long)p.inner, (int)bias, (int)c->attr.act, (int)c->attr.tf32, d->blas.version());
}

// "own", or the numbers that make up an algorithm of cuBLASLt.
static void value_of(const brim_cuda *d, const linear_state *s, int choice,
                     char value[BRIM_CUDA_ALGO_CHARS]) {
  if (choice == s->count) {
    snprintf(value, BRIM_CUDA_ALGO_CHARS, "own");
    return;
  }
  // The structure itself has padding bytes: its members are the key.
  static const cublasLtMatmulAlgoConfigAttributes_t parts[] = {
      CUBLASLT_ALGO_CONFIG_ID,
      CUBLASLT_ALGO_CONFIG_TILE_ID,
      CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
      CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
      CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
      CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
      CUBLASLT_ALGO_CONFIG_STAGES_ID,
      CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
      CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
  };
  size_t at = (size_t)snprintf(value, BRIM_CUDA_ALGO_CHARS, "lt");
  for (auto part : parts) {
    uint32_t number = 0;  // the last two have 16 bits
    size_t written = 0;
    bool narrow = part == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                  part == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    d->blas.algo_get(&s->found[choice].algo, part, &number, narrow ? 2 : 4, &written);
    at += (size_t)snprintf(value + at, BRIM_CUDA_ALGO_CHARS - at, ":%u", number);
  }
}

// A remembered choice counts only while it is among those proposed now.
static bool recall(brim_cuda *d, const char *key, linear_state *s, bool own) {
  char stored[BRIM_CUDA_ALGO_CHARS], value[BRIM_CUDA_ALGO_CHARS];
  if (!brim_cuda_algo_find(d, key, stored)) return false;
  for (int i = 0; i < s->count + (own ? 1 : 0); i++) {
    value_of(d, s, i, value);
    if (strcmp(stored, value) == 0) {
      s->choice = i;
      return true;
    }
  }
  return false;
}

struct trial {
  brim_cuda *device;
  brim_op_call call;
};

static brim_status run_trial(void *ctx, int candidate, cudaStream_t stream) {
  trial *t = (trial *)ctx;
  return run_choice(t->device, stream, &t->call, candidate);
}

// Buffers of the right sizes for a trial, out of one block; NULL when there is no room.
static void *fill_trial(trial *t) {
  brim_tensor *tensors[8];
  int count = 0;
  for (int i = 0; i < t->call.in_count && i < 3; i++) tensors[count++] = &t->call.in[i];
  for (int i = 0; i < t->call.out_count && i < 2; i++) tensors[count++] = &t->call.out[i];
  size_t bytes = 0;
  for (int pass = 0; pass < 2; pass++) {
    char *base = NULL;
    if (pass == 1) {
      if (cudaMalloc((void **)&base, bytes) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
      }
      cudaMemset(base, 0, bytes);
      cudaDeviceSynchronize();
    }
    size_t at = 0;
    for (int i = 0; i < count; i++) {
      size_t width = tensors[i]->dtype == BRIM_F32 ? 4 : 2;
      tensors[i]->data = pass == 1 ? base + at : NULL;
      if (tensors[i]->rank == 0) continue;
      at += ((size_t)brim_cuda_count(tensors[i]) * width + 255) / 256 * 256;
    }
    t->call.workspace = pass == 1 ? base + at : NULL;
    bytes = at + t->call.workspace_bytes + 256;
    if (pass == 1) return base;
  }
  return NULL;
}

// False when nothing could be timed: the first choice stands. *starved: for lack of memory.
static bool measure(brim_cuda *d, const brim_op_call *call, const char *key, linear_state *s,
                    bool own, bool *starved) {
  trial t;
  t.device = d;
  t.call = *call;
  void *block = fill_trial(&t);
  *starved = !block;
  if (!block) return false;
  int best = 0;
  float ms = 0;
  bool timed =
      brim_cuda_algo_time(d, run_trial, &t, s->count + (own ? 1 : 0), &best, &ms) == BRIM_OK;
  if (timed) {
    char value[BRIM_CUDA_ALGO_CHARS];
    s->choice = best;
    value_of(d, s, best, value);
    brim_cuda_algo_store(d, key, value);
  }
  cudaFree(block);
  return timed;
}

// Remembered, measured, or what stands already; that is noted, so that a checkpoint carries it.
static void choose(brim_cuda *d, const brim_op_call *call, linear_state *s, bool own) {
  char key[BRIM_CUDA_ALGO_CHARS], value[BRIM_CUDA_ALGO_CHARS];
  key_of(d, call, key);
  if (recall(d, key, s, own)) return;
  bool starved = false;
  if (s->count && d->measure_algorithms && measure(d, call, key, s, own, &starved)) return;
  value_of(d, s, s->choice, value);
  brim_cuda_algo_note(d, key, value, starved);
}

// Largest workspace of any choice, so that it depends on the shape alone.
static size_t workspace_of(const brim_cuda *d, const brim_op_call *c, linear_state *s, bool own) {
  size_t most = own ? brim_cuda_skinny_workspace(d, c) : 0, lt = 0;
  if (s->count == 0) return most;
  for (int i = 0; i < s->count; i++) {
    if (s->found[i].workspaceSize > lt) lt = s->found[i].workspaceSize;
  }
  s->split_offset = (lt + 255) / 256 * 256;
  size_t bytes = s->split_offset + split_bytes(c, s);
  if (bytes > most) most = bytes;
  if (c->op == BRIM_OP_LINEAR_BWD_WEIGHT && brim_cuda_has(&c->out[1], 1, c->out_count)) {
    bytes = brim_cuda_column_sums_workspace(linear_rows(&c->in[0]), linear_last(&c->in[0]));
    if (bytes > most) most = bytes;
  }
  return most;
}

brim_status brim_cuda_linear_prepare(void *impl, brim_op_call *call) {
  brim_cuda_enter(impl);
  brim_cuda *d = (brim_cuda *)impl;
  linear_state *s = (linear_state *)brim_cuda_host->alloc(sizeof *s, 0);
  if (!s) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while preparing a linear layer");
  memset(s, 0, sizeof *s);
  call->state = s;
  s->splits = 1;
  bool own = brim_cuda_skinny_fits(call), wins = brim_cuda_skinny_wins(call);
  bool alone = own_only(call) || !d->blas.library || (wins && !d->measure_algorithms);
  if (!alone) {
    product p = product_of(call);
    s->splits = count_splits(d, call, &p);
    cublasStatus_t e = describe_product(d, call, &p, s);
    if (!e) e = describe_layouts(d, &p, s);
    if (!e) e = propose(d, call, s);
    if (e && !own) {
      brim_cuda_linear_release(impl, call);
      return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuBLASLt has no plan for this product: status %d",
                            (int)e);
    }
    if (e) s->count = 0;
  }
  s->choice = own && (wins || s->count == 0) ? s->count : 0;
  call->workspace_bytes = workspace_of(d, call, s, own);
  // Without cuBLASLt, or if it cannot do the op, there is nothing to choose.
  if (!call->planning && d->blas.library && !own_only(call)) choose(d, call, s, own);
  return BRIM_OK;
}
