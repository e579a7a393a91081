// Rows of length 1, and the vote of each row's nearest neighbours. A block takes a row of M
// similarities. A radix search from the highest byte of (value, index) down finds the smallest of the k
// largest; it reads the row two to four times if the values differ. A last reading lets the k largest
// vote. Memory traffic counts: 10,000 rows of 50,000 are 2 GB, read about five times mostly out of L2, some
// 3 ms of an evaluation whose features take hundreds. Votes are integers, so the order of atomics does not
// matter.
#include "backend/cuda/cuda_vec.cuh"

// Loads a kernel early. Call it for kernels that only an evaluation uses, as memory may be short by then.
// After a failed first load a process cannot load the kernel again.
static brim_status load_kernel(const void *kernel) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  return error == cudaSuccess ? BRIM_OK : brim_cuda_launch_failed(error, "cudaFuncGetAttributes");
}

enum {
  WARPS = 8,
  THREADS = 256,
  TILE = 4096  // classes whose votes are in shared memory at a time
};

//---------------------------------- unit ----------------------------------

// A warp normalizes a row.
template <typename T>
__global__ static void unit_kernel(const T *__restrict__ x, float *__restrict__ y, int64_t n,
                                   int d) {
  int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
  if (row >= n) return;
  int lane = (int)threadIdx.x;
  double squares = 0.0;  // in double: squares of large and small values overflow or vanish in float
  for (int i = lane; i < d; i += 32) {
    double v = brim_load(x, row * d + i);
    squares = fma(v, v, squares);
  }
  for (int o = 16; o > 0; o >>= 1) squares += __shfl_xor_sync(~0u, squares, o);
  double length = sqrt(squares);
  if (length < 1e-12) length = 1e-12;
  for (int i = lane; i < d; i += 32) {
    y[row * d + i] = (float)((double)brim_load(x, row * d + i) / length);
  }
}

static brim_status unit_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dim[1] > 1 << 24) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: unit takes up to 2^24 columns");
  }
  return brim_cuda_float_type(&c->in[0], "unit");
}

static brim_status unit_prepare(void *impl, brim_op_call *c) {
  brim_cuda_enter(impl);
  const void *kernel = NULL;
  BRIM_CUDA_DISPATCH(c->in[0].dtype, kernel = (const void *)unit_kernel<T>);
  return load_kernel(kernel);
}

static brim_status unit_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  int64_t n = c->in[0].dim[0];
  unsigned blocks = (unsigned)((n + WARPS - 1) / WARPS);
  BRIM_CUDA_DISPATCH(
      c->in[0].dtype,
      (unit_kernel<T><<<blocks, dim3(32, WARPS), 0, (cudaStream_t)stream>>>(
          (const T *)c->in[0].data, (float *)c->out[0].data, n, (int)c->in[0].dim[1])));
  return brim_cuda_launched("unit");
}

//---------------------------------- knn ----------------------------------

struct knn {
  const float *s;
  const int32_t *labels, *truth;
  const double *state;
  int32_t *guess;  // may be NULL
  float *rows;     // (3, n): 0, correct, bad
  int64_t n;
  int bank, neighbours, classes;
  float temperature;
};

// Larger values have larger keys. Of equal values the earlier has the larger key. A NaN has key 0, and -0
// the key of 0.
__device__ static inline unsigned long long key_of(float v, int index) {
  if (isnan(v)) return 0;
  unsigned bits = __float_as_uint(v == 0.0f ? 0.0f : v);
  bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (unsigned long long)bits << 32 | (unsigned)(~index);
}

// Returns the smallest key of the `want` largest, or 0 if all are NaN. *top is the largest value.
__device__ static unsigned long long smallest_key(const float *s, int bank, int want,
                                                  unsigned *histogram, float *top) {
  __shared__ unsigned long long prefix, mask;
  __shared__ int need, found;
  __shared__ float tops[THREADS];
  int t = (int)threadIdx.x;
  if (t == 0) {
    prefix = mask = 0;
    need = want;
    found = 0;
  }
  float best = -INFINITY;
  for (int shift = 56; shift >= 0; shift -= 8) {
    histogram[t] = 0;
    __syncthreads();
    for (int i = t; i < bank; i += THREADS) {
      unsigned long long key = key_of(s[i], i);
      if (key == 0 || (key & mask) != prefix) continue;
      if (shift == 56) best = fmaxf(best, s[i]);
      atomicAdd(&histogram[(key >> shift) & 255u], 1u);
    }
    __syncthreads();
    if (t == 0) {
      int all = 0;
      for (int i = 0; shift == 56 && i < 256; i++) all += (int)histogram[i];
      if (shift == 56 && all < need) need = all;
      int bin = 255, above = 0;
      while (bin > 0 && above + (int)histogram[bin] < need) above += (int)histogram[bin--];
      need -= above;
      prefix |= (unsigned long long)bin << shift;
      mask |= 255ull << shift;
      // If all keys of the bin are among the largest, the smallest of these is at least prefix.
      found = (int)histogram[bin] == need;
    }
    __syncthreads();
    if (found) break;  // all threads read the same
  }
  tops[t] = best;
  __syncthreads();
  for (int d = THREADS / 2; d > 0; d >>= 1) {
    if (t < d) tops[t] = fmaxf(tops[t], tops[t + d]);
    __syncthreads();
  }
  *top = tops[0];
  if (need <= 0) return 0;
  return prefix > 0 ? prefix : 1;  // prefix 0 would include NaN, whose key is 0
}

__global__ static void __launch_bounds__(THREADS) knn_kernel(knn k) {
  extern __shared__ unsigned long long votes[];  // one counter for each class of a tile
  __shared__ unsigned histogram[256];
  int64_t row = blockIdx.x;
  int t = (int)threadIdx.x;
  const float *s = k.s + row * k.bank;
  bool padding = row >= brim_valid_rows(k.state, k.n);  // all threads have the same
  float top = 0.0f;
  unsigned long long least = padding ? 0 : smallest_key(s, k.bank, k.neighbours, histogram, &top);
  int best = 0;
  unsigned long long most = 0;
  for (int first = 0; first < k.classes; first += TILE) {
    int width = k.classes - first < TILE ? k.classes - first : TILE;
    for (int c = t; c < width; c += THREADS) votes[c] = 0;
    __syncthreads();
    for (int i = t; least > 0 && i < k.bank; i += THREADS) {
      float v = s[i];
      if (key_of(v, i) < least) continue;
      int label = k.labels[i];
      if (label < first || label - first >= width) continue;
      double away = v == top ? 0.0 : ((double)v - (double)top) / (double)k.temperature;
      atomicAdd(&votes[label - first], (unsigned long long)(exp(away) * 1099511627776.0 + 0.5));
    }
    __syncthreads();
    for (int c = 0; t == 0 && c < width; c++) {
      if (votes[c] > most) {
        most = votes[c];
        best = first + c;
      }
    }
    __syncthreads();
  }
  if (t > 0) return;
  int guess = least > 0 ? best : -1, truth = padding ? -1 : k.truth[row];
  bool bad = guess < 0 || truth < 0 || truth >= k.classes;
  if (k.guess) k.guess[row] = guess;
  k.rows[row] = 0.0f;
  k.rows[k.n + row] = !padding && !bad && guess == truth ? 1.0f : 0.0f;
  k.rows[2 * k.n + row] = !padding && bad ? 1.0f : 0.0f;
}

static brim_status knn_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dtype != BRIM_F32) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: knn takes similarities in f32");
  }
  if (c->in[0].dim[0] > INT32_MAX || c->in[0].dim[1] > 1 << 30) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: knn takes up to 2^30 labelled rows");
  }
  return BRIM_OK;
}

static brim_status knn_prepare(void *impl, brim_op_call *c) {
  brim_cuda_enter(impl);
  c->workspace_bytes = (size_t)c->in[0].dim[0] * 3 * sizeof(float);
  return load_kernel((const void *)knn_kernel);
}

static brim_status knn_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  knn k;
  k.s = (const float *)c->in[0].data;
  k.labels = (const int32_t *)c->in[1].data;
  k.truth = (const int32_t *)c->in[2].data;
  k.state = (const double *)c->in[3].data;
  k.guess = brim_cuda_has(&c->out[1], 1, c->out_count) ? (int32_t *)c->out[1].data : NULL;
  k.rows = (float *)c->workspace;
  k.n = c->in[0].dim[0];
  k.bank = (int)c->in[0].dim[1];
  k.neighbours = c->attr.neighbours;
  k.classes = c->attr.classes;
  k.temperature = c->attr.temperature;
  size_t shared = (size_t)(k.classes < TILE ? k.classes : TILE) * sizeof(unsigned long long);
  knn_kernel<<<(unsigned)k.n, THREADS, shared, (cudaStream_t)stream>>>(k);
  BRIM_TRY(brim_cuda_launched("knn"));
  return brim_cuda_add_rows(stream, k.rows, k.state + BRIM_STATE_ROWS, (float *)c->out[0].data,
                            k.n);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_UNIT, unit_validate, unit_prepare, unit_run, NULL},
    {BRIM_OP_KNN, knn_validate, knn_prepare, knn_run, NULL},
};

const brim_op_family brim_cuda_knn_ops = {rows, sizeof rows / sizeof *rows};
