// Linear layers: cuBLASLt, or brim's own kernels for skinny products. Row-major (N, K) is column-major
// (K, N), so every product is asked for transposed. FLOPs: 2 N K M for each product.
// A device that measures takes the fastest of the algorithms, timed once per shape. Other devices take the
// heuristic's first, or brim's own kernel if skinny_wins says so.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_int.cuh"
#include "backend/cuda/cuda_mma.cuh"

// All but the last dimension count as rows.
static inline int64_t linear_last(const brim_tensor *t) { return t->dim[t->rank - 1]; }
static inline int64_t linear_rows(const brim_tensor *t) {
  return brim_cuda_count(t) / linear_last(t);
}

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

//---------------------------------- sums of partial results ----------------------------------

// Sums of the partial results of slabs of rows, and column sums of dy where cuBLASLt has made the product.

enum { SUM_LANES = 32 };  // threads that add the slabs of one output

__global__ static void __launch_bounds__(32 * SUM_LANES)
    sum_slabs_kernel(const float *part, int slabs, int64_t stride, int64_t count, float *out,
                     bool accumulate) {
  __shared__ float lane[SUM_LANES][33];
  int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x;
  float sum = 0.0f;
  if (i < count) {
#pragma unroll 4
    for (int s = (int)threadIdx.y; s < slabs; s += SUM_LANES) sum += part[s * stride + i];
  }
  lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || i >= count) return;
  float total = accumulate ? out[i] : 0.0f;
#pragma unroll
  for (int y = 0; y < SUM_LANES; y++) total += lane[y][threadIdx.x];
  out[i] = total;
}

// out[i] = (accumulate ? out[i] : 0) + sum over s < slabs of part[s * stride + i], i < count,
// always added in the same order.
static brim_status sum_slabs(cudaStream_t stream, const float *part, int slabs, int64_t stride,
                             int64_t count, float *out, bool accumulate) {
  dim3 threads(32, SUM_LANES);
  sum_slabs_kernel<<<(unsigned)((count + 31) / 32), threads, 0, stream>>>(part, slabs, stride,
                                                                          count, out, accumulate);
  return brim_cuda_launched("sum of slabs");
}

// part (slabs, m): thread (x, y) adds every eighth row of its slab in column x of the tile.
template <typename T>
__global__ static void column_sums(const T *dy, float *part, int64_t rows, int64_t m,
                                   int64_t slab_rows) {
  __shared__ float lane[8][33];
  int64_t col = (int64_t)blockIdx.x * 32 + threadIdx.x;
  int64_t first = (int64_t)blockIdx.y * slab_rows;
  int64_t last = first + slab_rows < rows ? first + slab_rows : rows;
  float sum = 0.0f;
  if (col < m) {
#pragma unroll 4
    for (int64_t row = first + threadIdx.y; row < last; row += 8) {
      sum += brim_load(dy, row * m + col);
    }
  }
  lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= m) return;
  float total = 0.0f;
  for (int y = 0; y < 8; y++) total += lane[y][threadIdx.x];
  part[(int64_t)blockIdx.y * m + col] = total;
}

// Number of slabs: at least 64 rows a slab, at most 256 slabs (fewer if there are many columns).
static int64_t column_slabs(int64_t rows, int64_t m) {
  int64_t most = 1024 / ((m + 31) / 32), slabs = (rows + 63) / 64;
  most = most < 8 ? 8 : most > 256 ? 256 : most;
  return slabs > most ? most : slabs;
}

static size_t column_sums_workspace(int64_t rows, int64_t m) {
  return (size_t)(column_slabs(rows, m) * m) * sizeof(float);
}

// Sums the columns of dy (rows, m): first slabs of rows, then the slabs.
static brim_status run_column_sums(cudaStream_t stream, const brim_tensor *dy, float *db,
                                   void *workspace, bool accumulate) {
  int64_t rows = linear_rows(dy), m = linear_last(dy), slabs = column_slabs(rows, m);
  int64_t slab_rows = (rows + slabs - 1) / slabs;
  dim3 threads(32, 8), grid((unsigned)((m + 31) / 32), (unsigned)slabs);
  BRIM_CUDA_DISPATCH(dy->dtype, (column_sums<T><<<grid, threads, 0, stream>>>(
                                    (const T *)dy->data, (float *)workspace, rows, m, slab_rows)));
  BRIM_TRY(brim_cuda_launched("column_sums"));
  return sum_slabs(stream, (const float *)workspace, (int)slabs, m, m, db, accumulate);
}

//---------------------------------- few outputs ----------------------------------

// Gradient of a hidden layer with tanh whose next layer has few outputs (those of a policy or a value),
// 16-bit: dx = (dy w) (1 - s s). With M outputs that is 2 M FLOPs a value for 4 bytes, so ordinary
// multiply-adds are enough, and threads move 16 bytes at a time. 2,621,440 rows of 128 values with 5
// outputs: 1.37 GB, 0.32 ms at a copy's 4.2 TB/s, and 0.13 ms of an H200's instructions.

enum {
  FEW_THREADS = 256,
  FEW_BLOCKS = 2,   // blocks that an SM holds, limited by registers
  FEW_COLUMNS = 8,  // columns of a thread
  FEW_OUTPUTS = 8,  // most outputs
  FEW_MAX_WIDTH = 256,
  FEW_MIN_ROWS = 4096
};

struct few_args {
  const uint16_t *dy;  // (rows, m)
  const uint16_t *w;   // (m, n)
  const uint16_t *s;   // (rows, n)
  uint16_t *dx;        // (rows, n)
  int64_t rows;
  int m, n;
};

// Rows that a thread works on at a time.
__host__ __device__ static constexpr int few_rows(int m) { return m <= 6 ? 4 : 2; }

// dx of eight columns of a row. `top` is the row of dy.
template <typename T, int M>
__device__ static inline uint4 few_value(const float w[M][FEW_COLUMNS], const float top[M],
                                         uint4 slopes) {
  const uint32_t packed[4] = {slopes.x, slopes.y, slopes.z, slopes.w};
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float2 s = brim_unpack<T>(packed[i]);
    float x = 0.0f, y = 0.0f;
#pragma unroll
    for (int j = 0; j < M; j++) {
      x = fmaf(top[j], w[j][2 * i], x);
      y = fmaf(top[j], w[j][2 * i + 1], y);
    }
    out[i] = brim_pack<T>(x * (1.0f - s.x * s.x), y * (1.0f - s.y * s.y));
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// A thread keeps its columns, and their weights, for all its rows. Threads of a row are neighbours.
template <typename T, int M>
__global__ static void __launch_bounds__(FEW_THREADS, FEW_BLOCKS) few_kernel(few_args a) {
  constexpr int ROWS = few_rows(M);
  int lanes = a.n / FEW_COLUMNS, col = (int)threadIdx.x % lanes * FEW_COLUMNS;
  int rows_at_once = (int)blockDim.x / lanes;
  float w[M][FEW_COLUMNS];
#pragma unroll
  for (int j = 0; j < M; j++) {
#pragma unroll
    for (int e = 0; e < FEW_COLUMNS; e++) {
      w[j][e] = j < a.m ? brim_load((const T *)a.w, (int64_t)j * a.n + col + e) : 0.0f;
    }
  }
  int64_t first = (int64_t)blockIdx.x * rows_at_once * ROWS + (int)threadIdx.x / lanes;
  for (; first < a.rows; first += (int64_t)gridDim.x * rows_at_once * ROWS) {
    uint4 slopes[ROWS];
    float top[ROWS][M];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      int64_t row = first + i * rows_at_once;
      bool inside_rows = row < a.rows;
      slopes[i] = inside_rows ? *(const uint4 *)(a.s + row * a.n + col) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int j = 0; j < M; j++) {
        top[i][j] = inside_rows && j < a.m ? brim_load((const T *)a.dy, row * a.m + j) : 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      int64_t row = first + i * rows_at_once;
      if (row < a.rows) *(uint4 *)(a.dx + row * a.n + col) = few_value<T, M>(w, top[i], slopes[i]);
    }
  }
}

template <typename T, int M>
static brim_status few_launch(const brim_cuda *d, cudaStream_t stream, const few_args &a) {
  int lanes = a.n / FEW_COLUMNS, rows_at_once = FEW_THREADS / lanes;
  int64_t part = (int64_t)rows_at_once * few_rows(M), blocks = (a.rows + part - 1) / part;
  int64_t most = (int64_t)d->sm_count * FEW_BLOCKS;
  if (blocks > most) blocks = most;
  few_kernel<T, M><<<(unsigned)blocks, (unsigned)(lanes * rows_at_once), 0, stream>>>(a);
  return brim_cuda_launched("gradient of few outputs");
}

template <typename T>
static brim_status few_choose(const brim_cuda *d, cudaStream_t stream, const few_args &a) {
  if (a.m == 1) return few_launch<T, 1>(d, stream, a);
  if (a.m == 2) return few_launch<T, 2>(d, stream, a);
  if (a.m <= 4) return few_launch<T, 4>(d, stream, a);
  if (a.m <= 6) return few_launch<T, 6>(d, stream, a);
  return few_launch<T, FEW_OUTPUTS>(d, stream, a);
}

static bool few_fits(const brim_op_call *c) {
  brim_dtype type = c->in[0].dtype;
  int64_t n = c->in[1].dim[1];
  return c->op == BRIM_OP_LINEAR_BWD_DATA && (type == BRIM_BF16 || type == BRIM_F16) &&
         c->attr.act == BRIM_ACT_TANH && brim_cuda_has(&c->in[2], 2, c->in_count) &&
         c->in[1].dim[0] <= FEW_OUTPUTS && n % FEW_COLUMNS == 0 && n <= FEW_MAX_WIDTH &&
         linear_rows(&c->in[0]) >= FEW_MIN_ROWS;
}

static brim_status few_run(const brim_cuda *d, cudaStream_t stream, const brim_op_call *c) {
  few_args a;
  a.dy = (const uint16_t *)c->in[0].data;
  a.w = (const uint16_t *)c->in[1].data;
  a.s = (const uint16_t *)c->in[2].data;
  a.dx = (uint16_t *)c->out[0].data;
  a.rows = linear_rows(&c->in[0]);
  a.m = (int)c->in[1].dim[0];
  a.n = (int)c->in[1].dim[1];
  return c->in[0].dtype == BRIM_BF16 ? few_choose<__nv_bfloat16>(d, stream, a)
                                     : few_choose<__half>(d, stream, a);
}

//---------------------------------- skinny products ----------------------------------

// Linear layers with very many rows and few columns, 16-bit, on tensor cores; cuBLASLt's tiles would be
// mostly padding. All three ops read their operands once and are bound by memory: rows (K + M) 2 bytes
// (+ rows K 2 for act'). Transformer 3/16 at batch 4096 has 704512 rows. 16 -> 48 is 90 MB, 16 -> 64 and
// 64 -> 16 are 113 MB each, 16 -> 16 is 45 MB: 23, 28 and 11 us at 4 TB/s, for each of the three ops.

enum {
  ROW_WARPS = 8,     // y = x w': warps in a block, each with 32 rows at a time
  WEIGHT_WARPS = 4,  // dw = dy' x: warps in a block, each with its own slabs
  SLAB = 32,         // rows that a warp of the weight gradient stages at a time
  TILE = 64          // most rows and columns of the piece of dw that a block computes
};

//---------------------------------- rows: y and dx ----------------------------------

struct row_args {
  const uint16_t *x;     // (rows, k)
  const uint16_t *w;     // weight of output j and input i at j * w_out + i * w_in
  const uint16_t *bias;  // (n); may be NULL
  const uint16_t *s;     // (rows, n) for act'; may be NULL
  uint16_t *y;           // (rows, n)
  int64_t rows;
  int k, n, w_out, w_in;
  brim_act act;
};

// The operation on a sum before it is stored. The usual activations have forms of their own, as a run-time
// choice would cost as much as the rest of the product.
enum row_form {
  ROW_PLAIN,       // nothing
  ROW_TANH,        // tanh
  ROW_TANH_SLOPE,  // times tanh'
  ROW_ANY,         // any act or act', chosen at run time
  ROW_ODD          // act, for outputs that are no multiple of four and are stored one by one
};

// Groups of 16 inputs. KS 0 stands for one group of inputs that are no multiple of four.
__host__ __device__ static constexpr int row_groups(int ks) { return ks == 0 ? 1 : ks; }

// bf16 uses the hardware's tanh.
template <typename T>
__device__ static inline float tanh_value(float x) {
  return tanhf(x);
}

template <>
__device__ inline float tanh_value<__nv_bfloat16>(float x) {
  return brim_tanh_fast(x);
}

template <typename T>
__device__ static inline float act_value(brim_act act, float x) {
  switch (act) {
    case BRIM_ACT_RELU:
      return x > 0.0f || isnan(x) ? x : 0.0f;
    case BRIM_ACT_GELU:
      return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case BRIM_ACT_TANH:
      return tanh_value<T>(x);
    default:
      return x;
  }
}

// s is y for relu and tanh, x for gelu
__device__ static inline float act_slope(brim_act act, float s) {
  switch (act) {
    case BRIM_ACT_RELU:
      return s > 0.0f ? 1.0f : 0.0f;
    case BRIM_ACT_GELU:
      return 0.5f * (1.0f + erff(s * 0.70710678f)) + s * 0.39894228f * expf(-0.5f * s * s);
    case BRIM_ACT_TANH:
      return 1.0f - s * s;
    default:
      return 1.0f;
  }
}

// Stages the weights in shared memory as fragments: [pair][k group][tile][lane] of b0, b1. The order of k
// within a product is free, and so is the order of y's columns in a tile. Lane 4 g + t takes inputs
// 4 t .. 4 t + 3 of a group of 16 where a fragment has 2 t, 2 t + 1, 2 t + 8, 2 t + 9. Outputs are ordered
// likewise over two tiles. So x and y move by 8 bytes a lane and whole sectors. Column g of tile j (0, 1) of a
// pair is output 16 pair + 4 (g / 2) + 2 j + g % 2.
template <int KS>  // row_groups
__device__ static inline void stage_weights(uint2 *frag, const row_args &a, int pairs) {
#pragma unroll(KS >= 4 ? 4 : 1)
  for (int i = (int)threadIdx.x; i < pairs * KS * 64; i += (int)blockDim.x) {
    int lane = i & 31, j = (i >> 5) & 1, s = (i >> 6) % KS, pair = (i >> 6) / KS;
    int g = lane >> 2, t = lane & 3;
    int out = pair * 16 + 4 * (g >> 1) + 2 * j + (g & 1), in = s * 16 + 4 * t;
    if (a.w_in == 1) {  // the four values lie beside each other, as k is a multiple of 4
      bool inside = out < a.n && in < a.k;
      const uint16_t *from = a.w + (int64_t)out * a.w_out + in;
      frag[i] = inside ? *(const uint2 *)from : make_uint2(0, 0);
      continue;
    }
    uint32_t v[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      bool inside = out < a.n && in + e < a.k;
      v[e] = inside ? a.w[(int64_t)out * a.w_out + (int64_t)(in + e) * a.w_in] : 0u;
    }
    frag[i] = make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
  }
}

// Loads s for act': four values of each of the rows row, row + 8, row + 16 and row + 24. The load comes
// before the products of a pair of tiles, as it takes longer than they do.
template <int FORM>
__device__ static inline void get_slopes(uint2 out[4], const row_args &a, int64_t row, int col) {
  bool any = FORM == ROW_TANH_SLOPE || (FORM == ROW_ANY && a.s);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    bool inside_rows = any && row + i * 8 < a.rows && col < a.n;
    out[i] = inside_rows ? *(const uint2 *)(a.s + (row + i * 8) * a.n + col) : make_uint2(0, 0);
  }
}

template <typename T, int FORM>
__device__ static inline void put_row(const row_args &a, int64_t row, int col, const float c[4],
                                      const float *bias, uint2 slopes) {
  if (row >= a.rows) return;
  float2 s0 = brim_unpack<T>(slopes.x), s1 = brim_unpack<T>(slopes.y);
  const float s[4] = {s0.x, s0.y, s1.x, s1.y};
  float v[4];
#pragma unroll
  for (int e = 0; e < 4; e++) {
    v[e] = c[e] + bias[col + e];
    if (FORM == ROW_TANH) v[e] = tanh_value<T>(v[e]);
    if (FORM == ROW_TANH_SLOPE) v[e] *= 1.0f - s[e] * s[e];
    if (FORM == ROW_ANY) v[e] = a.s ? v[e] * act_slope(a.act, s[e]) : act_value<T>(a.act, v[e]);
    if (FORM == ROW_ODD) v[e] = act_value<T>(a.act, v[e]);
  }
  if constexpr (FORM == ROW_ODD) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (col + e < a.n) brim_store((T *)a.y, row * a.n + col + e, v[e]);
    }
  } else {
    *(uint2 *)(a.y + row * a.n + col) =
        make_uint2(brim_pack<T>(v[0], v[1]), brim_pack<T>(v[2], v[3]));
  }
}

// Blocks that an SM should hold, limited by registers.
static constexpr int row_residents(int ks) { return ks <= 2 ? 4 : ks <= 4 ? 3 : 2; }

// Four inputs of a row; zeros outside of x.
template <bool ODD>
__device__ static inline uint2 get_four(const row_args &a, int64_t row, int col) {
  if (col >= a.k || row >= a.rows) return make_uint2(0, 0);
  const uint16_t *from = a.x + row * a.k + col;
  if constexpr (ODD) {
    uint32_t v[4];
#pragma unroll
    for (int e = 0; e < 4; e++) v[e] = col + e < a.k ? from[e] : 0u;
    return make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
  } else {
    return *(const uint2 *)from;
  }
}

// Loads 32 rows from `base` on as A fragments of two tiles.
template <int GROUPS, bool ODD>
__device__ static inline void get_rows(uint32_t x[2][GROUPS][4], const row_args &a, int64_t base) {
  int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int s = 0; s < GROUPS; s++) {
      int col = s * 16 + 4 * t;
      int64_t r0 = base + m * 16 + g;
      uint2 top = get_four<ODD>(a, r0, col), bottom = get_four<ODD>(a, r0 + 8, col);
      x[m][s][0] = top.x;
      x[m][s][1] = bottom.x;
      x[m][s][2] = top.y;
      x[m][s][3] = bottom.y;
    }
  }
}

// A warp computes all outputs of 32 rows at a time.
template <typename T, int KS, int FORM>
__global__ static void __launch_bounds__(32 * ROW_WARPS, row_residents(KS)) row_kernel(row_args a) {
  extern __shared__ __align__(16) uint2 frag[];
  constexpr int GROUPS = row_groups(KS);
  constexpr bool AHEAD = KS <= 2;  // loads the slopes of the next pair early, if registers are left
  int pairs = (a.n + 15) / 16;
  float *bias = (float *)(frag + pairs * GROUPS * 64);
  stage_weights<GROUPS>(frag, a, pairs);
  for (int i = (int)threadIdx.x; i < pairs * 16; i += (int)blockDim.x) {
    bias[i] = a.bias && i < a.n ? brim_load((const T *)a.bias, i) : 0.0f;
  }
  __syncthreads();
  int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  int64_t base = (int64_t)blockIdx.x * blockDim.x + (threadIdx.x & ~31u);
  for (; base < a.rows; base += step) {
    uint32_t x[2][GROUPS][4];
    get_rows<GROUPS, KS == 0>(x, a, base);
    uint2 slopes[4], next[4];
    if (AHEAD) get_slopes<FORM>(next, a, base + g, 4 * t);
    for (int pair = 0; pair < pairs; pair++) {
      int col = pair * 16 + 4 * t;
      for (int i = 0; AHEAD && i < 4; i++) slopes[i] = next[i];
      get_slopes<FORM>(AHEAD ? next : slopes, a, base + g, AHEAD ? col + 16 : col);
      float c[2][2][4] = {};  // [rows][tile]
#pragma unroll
      for (int s = 0; s < GROUPS; s++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
          uint2 b = frag[((pair * GROUPS + s) * 2 + j) * 32 + lane];
          brim_mma<T>(c[0][j], x[0][s], b.x, b.y);
          brim_mma<T>(c[1][j], x[1][s], b.x, b.y);
        }
      }
      if (col >= a.n) continue;
#pragma unroll
      for (int m = 0; m < 2; m++) {
        int64_t r0 = base + m * 16 + g;
        const float top[4] = {c[m][0][0], c[m][0][1], c[m][1][0], c[m][1][1]};
        const float bottom[4] = {c[m][0][2], c[m][0][3], c[m][1][2], c[m][1][3]};
        put_row<T, FORM>(a, r0, col, top, bias, slopes[2 * m]);
        put_row<T, FORM>(a, r0 + 8, col, bottom, bias, slopes[2 * m + 1]);
      }
    }
  }
}

template <typename T, int KS, int FORM>
static brim_status launch_rows_as(const brim_cuda *d, cudaStream_t stream, const row_args &a) {
  size_t pairs = (size_t)(a.n + 15) / 16;
  size_t bytes = pairs * row_groups(KS) * 64 * sizeof(uint2) + pairs * 16 * sizeof(float);
  if (bytes > 48 * 1024) {
    BRIM_TRY(BRIM_CUDA(cudaFuncSetAttribute(
        row_kernel<T, KS, FORM>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)));
  }
  // One row a thread; smaller blocks if these fill more of the device.
  int threads = 32 * ROW_WARPS;
  while (threads > 32 && (a.rows + threads - 1) / threads < d->sm_count) threads /= 2;
  int64_t blocks = (a.rows + threads - 1) / threads;
  // No more blocks than run at once: each stages the weights, and rows divide evenly among the SMs.
  int64_t most = (int64_t)d->sm_count * row_residents(KS);
  if (blocks > most) blocks = most;
  row_kernel<T, KS, FORM><<<(unsigned)blocks, (unsigned)threads, bytes, stream>>>(a);
  return brim_cuda_launched("skinny linear");
}

template <typename T, int KS>
static brim_status launch_rows(const brim_cuda *d, cudaStream_t stream, const row_args &a) {
  if constexpr (KS > 0) {  // not both inputs and outputs of a layer may be odd
    if (a.n % 4 != 0) return launch_rows_as<T, KS, ROW_ODD>(d, stream, a);
  }
  if (a.act == BRIM_ACT_NONE) return launch_rows_as<T, KS, ROW_PLAIN>(d, stream, a);
  if (a.act != BRIM_ACT_TANH) return launch_rows_as<T, KS, ROW_ANY>(d, stream, a);
  if (a.s) return launch_rows_as<T, KS, ROW_TANH_SLOPE>(d, stream, a);
  return launch_rows_as<T, KS, ROW_TANH>(d, stream, a);
}

template <typename T>
static brim_status run_rows(const brim_cuda *d, cudaStream_t stream, const brim_op_call *c) {
  bool forward = c->op == BRIM_OP_LINEAR;
  bool third = brim_cuda_has(&c->in[2], 2, c->in_count);
  int m = (int)c->in[1].dim[0], k = (int)c->in[1].dim[1];
  row_args a;
  a.x = (const uint16_t *)c->in[0].data;
  a.w = (const uint16_t *)c->in[1].data;
  a.bias = forward && third ? (const uint16_t *)c->in[2].data : NULL;
  a.act = c->attr.act;
  a.s = !forward && third && a.act != BRIM_ACT_NONE ? (const uint16_t *)c->in[2].data : NULL;
  a.y = (uint16_t *)c->out[0].data;
  a.rows = linear_rows(&c->in[0]);
  a.k = forward ? k : m;
  a.n = forward ? m : k;
  a.w_out = forward ? k : 1;
  a.w_in = forward ? 1 : k;
  if (a.k % 4 != 0) return launch_rows<T, 0>(d, stream, a);
  if (a.k <= 16) return launch_rows<T, 1>(d, stream, a);
  if (a.k <= 32) return launch_rows<T, 2>(d, stream, a);
  if (a.k <= 48) return launch_rows<T, 3>(d, stream, a);
  if (a.k <= 64) return launch_rows<T, 4>(d, stream, a);
  return launch_rows<T, 8>(d, stream, a);
}

//---------------------------------- weights: dw and db ----------------------------------

struct weight_args {
  const uint16_t *dy;       // (rows, m)
  const uint16_t *x;        // (rows, k)
  float *part;              // (slabs, m k + m): dw, then db
  int64_t rows, slab_rows;  // slab_rows: rows of a block's slab, a multiple of SLAB
  int m, k, m_tiles;
};

// Stages SLAB rows of 16 TILES columns from column `first` on into dst, V values (8 or 4) at a time, with
// zeros outside of the matrix. A lane keeps its column and walks down the rows.
template <int TILES, int V>
__device__ static inline void stage_vectors(uint16_t *dst, const uint16_t *src, int rows, int first,
                                            int cols) {
  constexpr int LD = TILES * 16 + 8, WIDE = (TILES == 3 ? 64 : TILES * 16) / V, STEP = 32 / WIDE;
  int lane = (int)threadIdx.x & 31, r = lane / WIDE, col = lane % WIDE * V;
  if (TILES == 3 && col >= TILES * 16) return;
  bool inside = first + col < cols;
  const uint16_t *from = src + (int64_t)r * cols + (inside ? first + col : 0);
  dst += r * LD + col;
#pragma unroll
  for (int i = 0; i < SLAB / STEP; i++) {
    bool valid = inside && r + i * STEP < rows;
    if (V == 8) {
      brim_copy16(dst + i * STEP * LD, valid ? from : src, valid);
    } else {
      brim_copy8(dst + i * STEP * LD, valid ? from : src, valid);
    }
    from += STEP * cols;
  }
}

// Stages one value at a time, for up to 16 columns that are no multiple of four and so do not begin
// on whole vectors. At most a twelfth of the data is staged this way.
__device__ static inline void stage_odd(uint16_t *dst, const uint16_t *src, int rows, int cols) {
  constexpr int LD = 16 + 8;
  int lane = (int)threadIdx.x & 31, r = lane >> 4, col = lane & 15;
#pragma unroll
  for (int i = 0; i < SLAB / 2; i++) {
    int row = r + 2 * i;
    dst[row * LD + col] = col < cols && row < rows ? src[row * cols + col] : (uint16_t)0;
  }
}

template <int TILES>
__device__ static inline void stage_slab(uint16_t *dst, const uint16_t *src, int64_t row,
                                         int64_t last, int first, int cols) {
  int rows = last - row < SLAB ? (int)(last - row) : SLAB;
  if (TILES == 1 && (cols & 3) != 0) {
    stage_odd(dst, src + row * cols, rows, cols);
  } else if ((cols & 7) == 0) {
    stage_vectors<TILES, 8>(dst, src + row * cols, rows, first, cols);
  } else {
    stage_vectors<TILES, 4>(dst, src + row * cols, rows, first, cols);
  }
}

// A warp's sums of a piece of dw, 16 MT x 16 NT, and its column sums of dy (the same in all columns).
template <int MT, int NT>
struct weight_piece {
  static constexpr int LDM = MT * 16 + 8, LDK = NT * 16 + 8;  // row strides of staged dy and x
  static constexpr int STAGE = SLAB * (LDM + LDK);
  static constexpr int CELLS = MT * 16 * NT * 16, ALL = CELLS + MT * 16;
  static_assert(ALL * 4 <= 2 * STAGE * 2, "the pieces are added where the buffers were");
  float acc[MT][NT * 2][4], sum[MT][4];
};

// Adds SLAB staged rows to the sums. The column sums of dy are one more product, with ones.
template <typename T, int MT, int NT>
__device__ static inline void weight_slab(weight_piece<MT, NT> &p, const uint16_t *stage) {
  constexpr int LDM = weight_piece<MT, NT>::LDM, LDK = weight_piece<MT, NT>::LDK;
  const uint16_t *dy = stage, *x = stage + SLAB * LDM;
  const uint32_t one = brim_pack<T>(1.0f, 1.0f);
#pragma unroll
  for (int kk = 0; kk < SLAB / 16; kk++) {
    uint32_t b[NT][4];
#pragma unroll
    for (int j = 0; j < NT; j++) brim_load_bt(b[j], x + kk * 16 * LDK + j * 16, LDK);
#pragma unroll
    for (int i = 0; i < MT; i++) {
      uint32_t f[4];
      brim_load_at(f, dy + kk * 16 * LDM + i * 16, LDM);
      brim_mma<T>(p.sum[i], f, one, one);
#pragma unroll
      for (int j = 0; j < NT; j++) {
        brim_mma<T>(p.acc[i][2 * j], f, b[j][0], b[j][1]);
        brim_mma<T>(p.acc[i][2 * j + 1], f, b[j][2], b[j][3]);
      }
    }
  }
}

// Adds the warps' pieces in order, through shared memory, into the block's part.
template <int MT, int NT>
__device__ static inline void weight_publish(const weight_piece<MT, NT> &p, float *pieces,
                                             const weight_args &a, int m0, int k0) {
  constexpr int CELLS = weight_piece<MT, NT>::CELLS, ALL = weight_piece<MT, NT>::ALL;
  int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  float *own = pieces + (threadIdx.x >> 5) * ALL;
#pragma unroll
  for (int i = 0; i < MT; i++) {
#pragma unroll
    for (int j = 0; j < NT * 2; j++) {
      float *top = own + (i * 16 + g) * (NT * 16) + j * 8 + t * 2;
      *(float2 *)top = make_float2(p.acc[i][j][0], p.acc[i][j][1]);
      *(float2 *)(top + 8 * NT * 16) = make_float2(p.acc[i][j][2], p.acc[i][j][3]);
    }
    if (t == 0) {
      own[CELLS + i * 16 + g] = p.sum[i][0];
      own[CELLS + i * 16 + g + 8] = p.sum[i][2];
    }
  }
  __syncthreads();
  float *out = a.part + (int64_t)blockIdx.x * ((int64_t)a.m * a.k + a.m);
  for (int i = (int)threadIdx.x; i < ALL; i += 32 * WEIGHT_WARPS) {
    float total = pieces[i];
#pragma unroll
    for (int w = 1; w < WEIGHT_WARPS; w++) total += pieces[w * ALL + i];
    int r = m0 + (i < CELLS ? i / (NT * 16) : i - CELLS), col = k0 + i % (NT * 16);
    if (r >= a.m) continue;
    if (i < CELLS && col < a.k) out[(int64_t)r * a.k + col] = total;
    if (i >= CELLS && k0 == 0) out[(int64_t)a.m * a.k + r] = total;
  }
}

// A block sums a slab of rows for a piece of dw. Every warp takes SLAB rows at a time through two
// buffers of its own and keeps sums of the whole piece.
template <typename T, int MT, int NT>
__global__ static void __launch_bounds__(32 * WEIGHT_WARPS, MT *NT > 8 ? 2 : 4)
    weight_kernel(weight_args a) {
  typedef weight_piece<MT, NT> piece;
  constexpr int64_t STEP = WEIGHT_WARPS * SLAB;
  extern __shared__ __align__(16) uint16_t shared[];
  int warp = (int)threadIdx.x >> 5;
  int m0 = (int)blockIdx.y % a.m_tiles * TILE, k0 = (int)blockIdx.y / a.m_tiles * TILE;
  uint16_t *mine = shared + warp * 2 * piece::STAGE;
  int64_t first = (int64_t)blockIdx.x * a.slab_rows;
  int64_t last = first + a.slab_rows < a.rows ? first + a.slab_rows : a.rows;
  int64_t row = first + warp * SLAB;
  piece p;
#pragma unroll
  for (int i = 0; i < MT; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      p.sum[i][e] = 0.0f;
#pragma unroll
      for (int j = 0; j < NT * 2; j++) p.acc[i][j][e] = 0.0f;
    }
  }
  if (row < last) {
    stage_slab<MT>(mine, a.dy, row, last, m0, a.m);
    stage_slab<NT>(mine + SLAB * piece::LDM, a.x, row, last, k0, a.k);
  }
  brim_copy_commit();
  for (int buffer = 0; row < last; row += STEP, buffer ^= 1) {
    if (row + STEP < last) {
      uint16_t *next = mine + (buffer ^ 1) * piece::STAGE;
      stage_slab<MT>(next, a.dy, row + STEP, last, m0, a.m);
      stage_slab<NT>(next + SLAB * piece::LDM, a.x, row + STEP, last, k0, a.k);
    }
    brim_copy_commit();
    brim_copy_wait<1>();
    __syncwarp();
    weight_slab<T, MT, NT>(p, mine + buffer * piece::STAGE);
    __syncwarp();  // all lanes have read the buffer, which is filled again
  }
  brim_copy_wait<0>();
  __syncthreads();
  weight_publish<MT, NT>(p, (float *)shared, a, m0, k0);
}

// Sizes of the grid: enough slabs to fill the device; each block in x has one slab of rows.
struct weight_shape {
  int m_tiles, k_tiles, slabs;
  int64_t slab_rows;
};

static weight_shape shape_weight(const brim_cuda *d, const brim_op_call *c) {
  int64_t rows = linear_rows(&c->in[0]), m = linear_last(&c->in[0]), k = linear_last(&c->in[1]);
  weight_shape s;
  s.m_tiles = (int)((m + TILE - 1) / TILE);
  s.k_tiles = (int)((k + TILE - 1) / TILE);
  // A block needs 48 to 74 KiB of shared memory: four or two fit.
  int64_t most = (int64_t)d->sm_count * (m > 32 && k > 32 ? 2 : 4) / (s.m_tiles * s.k_tiles);
  int64_t slabs = (rows + WEIGHT_WARPS * SLAB - 1) / (WEIGHT_WARPS * SLAB);
  int64_t room = (int64_t)(d->workspace_cap / ((size_t)(m * k + m) * sizeof(float)));
  if (most > room) most = room;
  if (slabs > most) slabs = most;
  if (slabs < 1) slabs = 1;
  s.slab_rows = ((rows + slabs - 1) / slabs + SLAB - 1) / SLAB * SLAB;
  s.slabs = (int)((rows + s.slab_rows - 1) / s.slab_rows);
  return s;
}

template <typename T, int MT, int NT>
static brim_status launch_weight(cudaStream_t stream, const weight_args &a, const weight_shape &s) {
  size_t bytes = (size_t)WEIGHT_WARPS * 2 * SLAB * (MT * 16 + NT * 16 + 16) * sizeof(uint16_t);
  if (bytes > 48 * 1024) {
    BRIM_TRY(BRIM_CUDA(cudaFuncSetAttribute(
        weight_kernel<T, MT, NT>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)));
  }
  dim3 grid((unsigned)s.slabs, (unsigned)(s.m_tiles * s.k_tiles));
  weight_kernel<T, MT, NT><<<grid, 32 * WEIGHT_WARPS, bytes, stream>>>(a);
  return brim_cuda_launched("skinny weight gradient");
}

template <typename T, int MT>
static brim_status choose_weight(cudaStream_t stream, const weight_args &a, const weight_shape &s) {
  if (a.k <= 16) return launch_weight<T, MT, 1>(stream, a, s);
  if (a.k <= 32) return launch_weight<T, MT, 2>(stream, a, s);
  return launch_weight<T, MT, 4>(stream, a, s);
}

template <typename T>
static brim_status run_weight(const brim_cuda *d, cudaStream_t stream, const brim_op_call *c) {
  weight_shape s = shape_weight(d, c);
  weight_args a;
  a.dy = (const uint16_t *)c->in[0].data;
  a.x = (const uint16_t *)c->in[1].data;
  a.part = (float *)c->workspace;
  a.rows = linear_rows(&c->in[0]);
  a.slab_rows = s.slab_rows;
  a.m = (int)linear_last(&c->in[0]);
  a.k = (int)linear_last(&c->in[1]);
  a.m_tiles = s.m_tiles;
  if (a.m <= 16) {
    BRIM_TRY((choose_weight<T, 1>(stream, a, s)));
  } else if (a.m <= 32) {
    BRIM_TRY((choose_weight<T, 2>(stream, a, s)));
  } else if (a.m <= 48) {
    BRIM_TRY((choose_weight<T, 3>(stream, a, s)));
  } else {
    BRIM_TRY((choose_weight<T, 4>(stream, a, s)));
  }
  int64_t count = (int64_t)a.m * a.k, stride = count + a.m;
  BRIM_TRY(sum_slabs(stream, a.part, s.slabs, stride, count, (float *)c->out[0].data,
                     c->attr.accumulate));
  if (!brim_cuda_has(&c->out[1], 1, c->out_count)) return BRIM_OK;
  return sum_slabs(stream, a.part + count, s.slabs, stride, a.m, (float *)c->out[1].data,
                   c->attr.accumulate);
}

//---------------------------------- which shapes ----------------------------------

// With fewer rows than MIN_ROWS a slab is not worth it. Columns move in groups of four. With ODD_ROWS rows
// or more, up to ODD_OUTPUTS outputs (those of a policy or a value) need not be a multiple of four: cuBLASLt
// has no kernel for them that reads whole vectors, and fuses no tanh'.
enum {
  MIN_ROWS = 64,
  MAX_INNER = 128,
  MAX_OUTER = 256,
  WIN_COLUMNS = 128,
  ODD_OUTPUTS = 16,
  ODD_ROWS = 4096
};

static bool usable(const brim_op_call *c, int64_t *k, int64_t *m) {
  brim_dtype type = c->in[0].dtype;
  bool weight = c->op == BRIM_OP_LINEAR_BWD_WEIGHT;
  *m = weight ? linear_last(&c->in[0]) : c->in[1].dim[0];
  *k = weight ? linear_last(&c->in[1]) : c->in[1].dim[1];
  int64_t rows = linear_rows(&c->in[0]);
  bool odd = *m <= ODD_OUTPUTS && rows >= ODD_ROWS;
  return (type == BRIM_BF16 || type == BRIM_F16) && rows >= MIN_ROWS && *k % 4 == 0 &&
         (*m % 4 == 0 || odd);
}

static bool skinny_fits(const brim_op_call *c) {
  int64_t k, m;
  if (!usable(c, &k, &m)) return false;
  if (c->op == BRIM_OP_LINEAR_BWD_WEIGHT) return k <= MAX_OUTER && m <= MAX_OUTER;
  int64_t inner = c->op == BRIM_OP_LINEAR ? k : m, outer = c->op == BRIM_OP_LINEAR ? m : k;
  return inner <= MAX_INNER && outer <= MAX_OUTER;
}

static bool skinny_wins(const brim_op_call *c) {
  int64_t k, m;
  return usable(c, &k, &m) && k <= WIN_COLUMNS && m <= WIN_COLUMNS;
}

static size_t skinny_workspace(const brim_cuda *d, const brim_op_call *c) {
  if (c->op != BRIM_OP_LINEAR_BWD_WEIGHT) return 0;
  weight_shape s = shape_weight(d, c);
  int64_t m = linear_last(&c->in[0]), k = linear_last(&c->in[1]);
  return (size_t)(s.slabs * (m * k + m)) * sizeof(float);
}

static brim_status skinny_run(brim_cuda *d, cudaStream_t stream, const brim_op_call *c) {
  bool bf16 = c->in[0].dtype == BRIM_BF16;
  if (c->op == BRIM_OP_LINEAR_BWD_WEIGHT) {
    return bf16 ? run_weight<__nv_bfloat16>(d, stream, c) : run_weight<__half>(d, stream, c);
  }
  if (few_fits(c)) return few_run(d, stream, c);
  return bf16 ? run_rows<__nv_bfloat16>(d, stream, c) : run_rows<__half>(d, stream, c);
}

//---------------------------------- plans ----------------------------------

enum { CANDIDATES = 8, MAX_SPLITS = 64 };

// State of one product D = op(A) op(B) (column-major), from prepare to release. Choices from 0 to count - 1
// are in `found`; choice `count` is brim's own kernel.
struct linear_state {
  cublasLtMatmulDesc_t desc;  // NULL: brim's own kernel is the only choice
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES];
  int count, choice;
  int splits;           // number of products over slabs of rows that dw is split into
  size_t split_offset;  // place of their results in the workspace
};

struct product {
  bool trans_a, trans_b;
  int64_t rows, cols, inner;  // rows and columns of D, and the shared dimension
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

// True for epilogues that cuBLASLt cannot fuse: its GELU is the tanh form, its ReLU' needs a bit mask.
static bool own_only(const brim_op_call *c) {
  if (c->op == BRIM_OP_LINEAR_BWD_WEIGHT) return false;
  if (c->attr.act == BRIM_ACT_NONE) return false;
  return c->op != BRIM_OP_LINEAR || c->attr.act != BRIM_ACT_RELU;
}

static brim_status linear_validate(void *impl, const brim_op_call *c) {
  brim_cuda *d = (brim_cuda *)impl;
  BRIM_TRY(brim_cuda_float_type(&c->in[0], "linear"));
  if (own_only(c)) {
    if (skinny_wins(c)) return BRIM_OK;
    return brim_cuda_fail(BRIM_EUNSUPPORTED,
                          "cuda: this activation is fused only into 16-bit products of at least "
                          "64 rows and at most 128 columns, multiples of 4");
  }
  if (d->blas.library || skinny_fits(c)) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED,
                        "cuda: libcublasLt not found; install the CUDA libraries or add their "
                        "folder to LD_LIBRARY_PATH");
}

static void linear_release(void *impl, brim_op_call *call) {
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

// With splits each product takes a part of the shared dimension, and D has one partial result for each.
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
  // A small product needs no large workspace. The workspace of the last layer would be in use when memory is
  // shortest: at the beginning of the backward pass.
  size_t cap = 0, room = d->workspace_cap - split_bytes(c, s);
  for (int i = 0; i < c->in_count; i++) cap += 4 * brim_cuda_bytes(&c->in[i]);
  for (int i = 0; i < c->out_count; i++) cap += 4 * brim_cuda_bytes(&c->out[i]);
  if (cap < (size_t)1 << 20) cap = (size_t)1 << 20;
  if (cap > room) cap = room;
  // The bits of a sum in place depend on which thread comes first.
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

// A small dw over very many rows has too few tiles for the device, so the rows are cut into slabs of equal
// size. Sizes are multiples of 16 rows so that every slab is aligned.
static int count_splits(const brim_cuda *d, const brim_op_call *c, const product *p) {
  if (c->op != BRIM_OP_LINEAR_BWD_WEIGHT) return 1;
  int64_t tiles = ((p->rows + 127) / 128) * ((p->cols + 127) / 128);
  // A single tile keeps one SM busy, so cutting pays with fewer rows.
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
    bool refused =
        e == CUBLAS_STATUS_INVALID_VALUE || e == CUBLAS_STATUS_NOT_SUPPORTED ||
        e == CUBLAS_STATUS_ARCH_MISMATCH;  // other failures may come from a lack of memory
    return brim_cuda_fail(refused ? BRIM_EDEVICE : failed, "cublasLtMatmul: status %d", (int)e);
  }
  if (s->splits == 1) return BRIM_OK;
  int64_t count = brim_cuda_count(&c->out[0]);
  return sum_slabs(stream, (const float *)out, s->splits, count, count, (float *)c->out[0].data,
                   c->attr.accumulate);
}

static brim_status run_choice(brim_cuda *d, cudaStream_t stream, const brim_op_call *c,
                              int choice) {
  linear_state *s = (linear_state *)c->state;
  if (choice == s->count) return skinny_run(d, stream, c);
  BRIM_TRY(multiply(d, stream, c, choice));
  if (c->op != BRIM_OP_LINEAR_BWD_WEIGHT || !brim_cuda_has(&c->out[1], 1, c->out_count)) {
    return BRIM_OK;
  }
  return run_column_sums(stream, &c->in[0], (float *)c->out[1].data, c->workspace,
                         c->attr.accumulate);
}

static brim_status linear_run(void *impl, void *stream, const brim_op_call *c) {
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

// Writes a choice as text: "own", or the numbers that make up an algorithm of cuBLASLt.
static void value_of(const brim_cuda *d, const linear_state *s, int choice,
                     char value[BRIM_CUDA_ALGO_CHARS]) {
  if (choice == s->count) {
    snprintf(value, BRIM_CUDA_ALGO_CHARS, "own");
    return;
  }
  // The structure itself has padding bytes, so its members are listed.
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

// Takes a remembered choice if it is among those proposed now.
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

// Allocates buffers of the right sizes for a trial, in one block. NULL if memory is short.
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

// Times the choices. False if none could be timed: the first choice stays. *starved = for lack of memory.
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

// Takes the remembered choice, or the fastest, or keeps the present one. Notes the present one too, so that
// a checkpoint keeps it.
static void choose(brim_cuda *d, const brim_op_call *call, linear_state *s, bool own) {
  char key[BRIM_CUDA_ALGO_CHARS], value[BRIM_CUDA_ALGO_CHARS];
  key_of(d, call, key);
  if (recall(d, key, s, own)) return;
  bool starved = false;
  if (s->count && d->measure_algorithms && measure(d, call, key, s, own, &starved)) return;
  value_of(d, s, s->choice, value);
  brim_cuda_algo_note(d, key, value, starved);
}

// The largest workspace of any choice, so that the size depends on the shape alone.
static size_t workspace_of(const brim_cuda *d, const brim_op_call *c, linear_state *s, bool own) {
  size_t most = own ? skinny_workspace(d, c) : 0, lt = 0;
  if (s->count == 0) return most;
  for (int i = 0; i < s->count; i++) {
    if (s->found[i].workspaceSize > lt) lt = s->found[i].workspaceSize;
  }
  s->split_offset = (lt + 255) / 256 * 256;
  size_t bytes = s->split_offset + split_bytes(c, s);
  if (bytes > most) most = bytes;
  if (c->op == BRIM_OP_LINEAR_BWD_WEIGHT && brim_cuda_has(&c->out[1], 1, c->out_count)) {
    bytes = column_sums_workspace(linear_rows(&c->in[0]), linear_last(&c->in[0]));
    if (bytes > most) most = bytes;
  }
  return most;
}

static brim_status linear_prepare(void *impl, brim_op_call *call) {
  brim_cuda_enter(impl);
  brim_cuda *d = (brim_cuda *)impl;
  linear_state *s = (linear_state *)brim_cuda_host->alloc(sizeof *s, 0);
  if (!s) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while preparing a linear layer");
  memset(s, 0, sizeof *s);
  call->state = s;
  s->splits = 1;
  bool own = skinny_fits(call), wins = skinny_wins(call);
  bool alone = own_only(call) || !d->blas.library || (wins && !d->measure_algorithms);
  if (!alone) {
    product p = product_of(call);
    s->splits = count_splits(d, call, &p);
    cublasStatus_t e = describe_product(d, call, &p, s);
    if (!e) e = describe_layouts(d, &p, s);
    if (!e) e = propose(d, call, s);
    if (e && !own) {
      linear_release(impl, call);
      return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuBLASLt has no plan for this product: status %d",
                            (int)e);
    }
    if (e) s->count = 0;
  }
  s->choice = own && (wins || s->count == 0) ? s->count : 0;
  call->workspace_bytes = workspace_of(d, call, s, own);
  // There is a choice only if cuBLASLt is there and can do the op.
  if (!call->planning && d->blas.library && !own_only(call)) choose(d, call, s, own);
  return BRIM_OK;
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_LINEAR, linear_validate, linear_prepare, linear_run, linear_release},
    {BRIM_OP_LINEAR_BWD_DATA, linear_validate, linear_prepare, linear_run, linear_release},
    {BRIM_OP_LINEAR_BWD_WEIGHT, linear_validate, linear_prepare, linear_run, linear_release},
};

const brim_op_family brim_cuda_linear_ops = {rows, sizeof rows / sizeof *rows};
