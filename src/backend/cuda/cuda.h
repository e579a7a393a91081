// The part of the CUDA backend that its plug-in (src/plugin/cuda) sees. Everything else is inside.
#ifndef BRIM_BACKEND_CUDA_H_
#define BRIM_BACKEND_CUDA_H_

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Keeps the host's table and looks for a GPU. Without a GPU returns BRIM_EUNSUPPORTED with the reason.
brim_status brim_cuda_start(const brim_host_api *host);
extern const brim_backend brim_cuda_backend;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_CUDA_H_
