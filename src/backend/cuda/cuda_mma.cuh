// The building blocks of backend_mma.cuh by the name that the CUDA backend's kernels know.
#ifndef BRIM_BACKEND_CUDA_MMA_CUH_
#define BRIM_BACKEND_CUDA_MMA_CUH_

#include "backend/backend_mma.cuh"

#endif  // BRIM_BACKEND_CUDA_MMA_CUH_
