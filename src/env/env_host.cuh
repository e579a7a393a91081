// What the entries of the env room's CUDA tables have in common: failures through the host, the device a
// block of memory lies on. Each .cu has its own copy; its set_host function fills env_cuda_host.
#ifndef BRIM_ENV_HOST_CUH_
#define BRIM_ENV_HOST_CUH_

#include <cuda_runtime.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "base/base_status.h"
#include "brim/plugin.h"

static const brim_host_api *env_cuda_host;

static inline const char *env_cuda_tr(const char *text) {
  const bool can =
      env_cuda_host->size >= offsetof(brim_host_api, translate) + sizeof(env_cuda_host->translate);
  return can ? env_cuda_host->translate(text) : text;
}

static inline brim_status env_cuda_fail(brim_status status, const char *fmt, ...) {
  char text[768];
  fmt = env_cuda_tr(fmt);
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return env_cuda_host->fail(status, text);
}

static inline brim_status env_cuda_check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return BRIM_OK;
  cudaGetLastError();
  // Memory a launch asks for on its own (spills): with less at once it may do.
  brim_status status = error == cudaErrorMemoryAllocation ? BRIM_EOOM : BRIM_EDEVICE;
  return env_cuda_fail(status, "%s: %s", what, cudaGetErrorString(error));
}

// A thread may hold several devices; memory of one says which is meant. `what` begins the message of a
// failure.
static inline brim_status env_cuda_enter(const void *memory, const char *what) {
  cudaPointerAttributes at;
  BRIM_TRY(env_cuda_check(cudaPointerGetAttributes(&at, memory), what));
  BRIM_TRY(env_cuda_check(cudaSetDevice(at.device), "cudaSetDevice"));
  cudaGetLastError();  // what other calls left behind is not ours
  return BRIM_OK;
}

#endif  // BRIM_ENV_HOST_CUH_
