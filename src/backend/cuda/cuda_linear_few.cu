// Gradients of a hidden layer with tanh whose successor has few outputs (a policy's, a value's), 16-bit:
// dx = (dy w) (1 - s s). With M outputs that is 2 M FLOPs a value beside 4 bytes, so ordinary
// multiply-adds do, and threads move 16 bytes at a time. 2,621,440 rows of 128 values with 5 outputs:
// 1.37 GB, 0.32 ms at a copy's 4.2 TB/s, and 0.13 ms of an H200's instructions.
#include "backend/cuda/cuda_linear_int.cuh"
#include "backend/cuda/cuda_mma.cuh"

enum {
  FEW_THREADS = 256,
  FEW_BLOCKS = 2,   // on an SM, by registers
  FEW_COLUMNS = 8,  // columns of a thread
  FEW_OUTPUTS = 8,  // at most
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

// Rows a thread has in flight.
__host__ __device__ static constexpr int few_rows(int m) { return m <= 6 ? 4 : 2; }

// Eight columns of a row, of which `top` are the gradients behind it.
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
  int each = (int)blockDim.x / lanes;
  float w[M][FEW_COLUMNS];
#pragma unroll
  for (int j = 0; j < M; j++) {
#pragma unroll
    for (int e = 0; e < FEW_COLUMNS; e++) {
      w[j][e] = j < a.m ? brim_load((const T *)a.w, (int64_t)j * a.n + col + e) : 0.0f;
    }
  }
  int64_t first = (int64_t)blockIdx.x * each * ROWS + (int)threadIdx.x / lanes;
  for (; first < a.rows; first += (int64_t)gridDim.x * each * ROWS) {
    uint4 slopes[ROWS];
    float top[ROWS][M];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      int64_t row = first + i * each;
      bool there = row < a.rows;
      slopes[i] = there ? *(const uint4 *)(a.s + row * a.n + col) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int j = 0; j < M; j++) {
        top[i][j] = there && j < a.m ? brim_load((const T *)a.dy, row * a.m + j) : 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      int64_t row = first + i * each;
      if (row < a.rows) *(uint4 *)(a.dx + row * a.n + col) = few_value<T, M>(w, top[i], slopes[i]);
    }
  }
}

template <typename T, int M>
static brim_status few_launch(const brim_cuda *d, cudaStream_t stream, const few_args &a) {
  int lanes = a.n / FEW_COLUMNS, each = FEW_THREADS / lanes;
  int64_t part = (int64_t)each * few_rows(M), blocks = (a.rows + part - 1) / part;
  int64_t most = (int64_t)d->sm_count * FEW_BLOCKS;
  if (blocks > most) blocks = most;
  few_kernel<T, M><<<(unsigned)blocks, (unsigned)(lanes * each), 0, stream>>>(a);
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

bool brim_cuda_few_fits(const brim_op_call *c) {
  brim_dtype type = c->in[0].dtype;
  int64_t n = c->in[1].dim[1];
  return c->op == BRIM_OP_LINEAR_BWD_DATA && (type == BRIM_BF16 || type == BRIM_F16) &&
         c->attr.act == BRIM_ACT_TANH && brim_cuda_has(&c->in[2], 2, c->in_count) &&
         c->in[1].dim[0] <= FEW_OUTPUTS && n % FEW_COLUMNS == 0 && n <= FEW_MAX_WIDTH &&
         linear_rows(&c->in[0]) >= FEW_MIN_ROWS;
}

brim_status brim_cuda_few_run(const brim_cuda *d, cudaStream_t stream, const brim_op_call *c) {
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
