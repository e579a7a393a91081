// A convolution as the CUDA backend sees it, and brim's own kernels for it: those that serve where
// cuDNN has no engine or is missing, and the end of a weight gradient. Callers: cuda_conv.cu.
#ifndef BRIM_BACKEND_CUDA_CONV_CUH_
#define BRIM_BACKEND_CUDA_CONV_CUH_

#include "backend/cuda/cuda_int.cuh"

// One convolution, whichever of its three products is asked for.
struct brim_cuda_conv {
  brim_op op;                         // CONV, CONV_BWD_DATA, CONV_BWD_WEIGHT
  brim_dtype type;                    // T
  int64_t n, h, w, c, m, r, s, p, q;  // x(N,H,W,C) w(M,R,S,C) y(N,P,Q,M)
  int64_t stride, pad;
  bool tf32;        // T = f32: products may round to tf32
  bool accumulate;  // CONV_BWD_WEIGHT: adds to dw
};

// Products in f32, always in the same order. The tensors in the order x, w, y (or their gradients);
// the workspace holds `bytes`, which decide how far a weight gradient is split up.
brim_status brim_cuda_conv_direct(const brim_cuda_conv *conv, void *const tensors[3],
                                  void *workspace, size_t bytes, cudaStream_t stream);

// dw (count) = sum of `parts` rows of src (parts, count):type, in order; plus dw when `accumulate`.
brim_status brim_cuda_conv_sum(float *dw, const void *src, brim_dtype type, int64_t count,
                               int64_t parts, bool accumulate, cudaStream_t stream);

#endif  // BRIM_BACKEND_CUDA_CONV_CUH_
