// Sums that gradients of weights and biases end in: partial results of slabs of rows, and columns of
// dy where a library has made the product. Always added in the same order.
#include "backend/cuda/cuda_linear_int.cuh"

enum { SUM_LANES = 32 };  // slabs are added by 32 threads an output

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

brim_status brim_cuda_sum_slabs(cudaStream_t stream, const float *part, int slabs, int64_t stride,
                                int64_t count, float *out, bool accumulate) {
  dim3 threads(32, SUM_LANES);
  sum_slabs_kernel<<<(unsigned)((count + 31) / 32), threads, 0, stream>>>(part, slabs, stride,
                                                                          count, out, accumulate);
  return brim_cuda_launched("sum of slabs");
}

// part (slabs, m): thread (x, y) adds every eighth row of its slab in column x of the tile.
template <typename T>
__global__ static void column_sums(const T *dy, float *part, int64_t rows, int64_t m, int64_t per) {
  __shared__ float lane[8][33];
  int64_t col = (int64_t)blockIdx.x * 32 + threadIdx.x;
  int64_t first = (int64_t)blockIdx.y * per;
  int64_t last = first + per < rows ? first + per : rows;
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

// At least 64 rows a slab, at most 256 slabs (and fewer when there are many columns).
static int64_t column_slabs(int64_t rows, int64_t m) {
  int64_t most = 1024 / ((m + 31) / 32), slabs = (rows + 63) / 64;
  most = most < 8 ? 8 : most > 256 ? 256 : most;
  return slabs > most ? most : slabs;
}

size_t brim_cuda_column_sums_workspace(int64_t rows, int64_t m) {
  return (size_t)(column_slabs(rows, m) * m) * sizeof(float);
}

brim_status brim_cuda_column_sums(cudaStream_t stream, const brim_tensor *dy, float *db,
                                  void *workspace, bool accumulate) {
  int64_t rows = linear_rows(dy), m = linear_last(dy), slabs = column_slabs(rows, m);
  int64_t per = (rows + slabs - 1) / slabs;
  dim3 threads(32, 8), grid((unsigned)((m + 31) / 32), (unsigned)slabs);
  BRIM_CUDA_DISPATCH(dy->dtype, (column_sums<T><<<grid, threads, 0, stream>>>(
                                    (const T *)dy->data, (float *)workspace, rows, m, per)));
  BRIM_TRY(brim_cuda_launched("column_sums"));
  return brim_cuda_sum_slabs(stream, (const float *)workspace, (int)slabs, m, m, db, accumulate);
}
