// Inside the linear layers: shapes of a call, the kernels for skinny products, sums of partials.
// cuda_linear.cu chooses the kernel of a product, cuda_linear_skinny.cu and cuda_linear_few.cu have the
// kernels.
#ifndef BRIM_BACKEND_CUDA_LINEAR_INT_CUH_
#define BRIM_BACKEND_CUDA_LINEAR_INT_CUH_

#include "backend/cuda/cuda_int.cuh"

// All but the last dimension count as rows.
static inline int64_t linear_last(const brim_tensor *t) { return t->dim[t->rank - 1]; }
static inline int64_t linear_rows(const brim_tensor *t) {
  return brim_cuda_count(t) / linear_last(t);
}

// True if the own kernels can do this call; true if, by its shape, they are faster than cuBLASLt.
bool brim_cuda_skinny_fits(const brim_op_call *call);
bool brim_cuda_skinny_wins(const brim_op_call *call);
size_t brim_cuda_skinny_workspace(const brim_cuda *device, const brim_op_call *call);
brim_status brim_cuda_skinny_run(brim_cuda *device, cudaStream_t stream, const brim_op_call *call);

// Gradients of a hidden layer with tanh by those of few outputs. A shape of the skinny kernels, which call
// it.
bool brim_cuda_few_fits(const brim_op_call *call);
brim_status brim_cuda_few_run(const brim_cuda *device, cudaStream_t stream,
                              const brim_op_call *call);

// out[i] = (accumulate ? out[i] : 0) + sum over s < slabs of part[s * stride + i], i < count,
// always added in the same order.
brim_status brim_cuda_sum_slabs(cudaStream_t stream, const float *part, int slabs, int64_t stride,
                                int64_t count, float *out, bool accumulate);

// Column sums of dy (rows, m) by way of slabs of rows.
size_t brim_cuda_column_sums_workspace(int64_t rows, int64_t m);
brim_status brim_cuda_column_sums(cudaStream_t stream, const brim_tensor *dy, float *db,
                                  void *workspace, bool accumulate);

#endif  // BRIM_BACKEND_CUDA_LINEAR_INT_CUH_
