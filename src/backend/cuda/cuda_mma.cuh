// Includes backend_mma.cuh for the CUDA backend's kernels.
#ifndef BRIM_BACKEND_CUDA_MMA_CUH_
#define BRIM_BACKEND_CUDA_MMA_CUH_

#include "backend/backend_mma.cuh"

#endif  // BRIM_BACKEND_CUDA_MMA_CUH_
