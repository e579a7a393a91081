// Helpers for the entries of all CUDA tables of rl and the environments: reporting failures through the host, and
// selecting the device of a block of memory. Each .cu file has its own copy; its set_host function sets
// rl_cuda_host.
#ifndef BRIM_RL_HOST_CUH_
#define BRIM_RL_HOST_CUH_

#include <cuda_runtime.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "base/base_status.h"
#include "brim/plugin.h"

static const brim_host_api *rl_cuda_host;

static inline const char *rl_cuda_tr(const char *text) {
  const bool can =
      rl_cuda_host->size >= offsetof(brim_host_api, translate) + sizeof(rl_cuda_host->translate);
  return can ? rl_cuda_host->translate(text) : text;
}

static inline brim_status rl_cuda_fail(brim_status status, const char *fmt, ...) {
  char text[768];
  fmt = rl_cuda_tr(fmt);
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return rl_cuda_host->fail(status, text);
}

static inline brim_status rl_cuda_check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return BRIM_OK;
  cudaGetLastError();
  // A launch may need memory of its own (spills): smaller batches may help.
  brim_status status = error == cudaErrorMemoryAllocation ? BRIM_EOOM : BRIM_EDEVICE;
  return rl_cuda_fail(status, "%s: %s", what, cudaGetErrorString(error));
}

// Makes the device of `memory` current, since a thread may use several devices. `what` begins the message of a
// failure.
static inline brim_status rl_cuda_enter(const void *memory, const char *what) {
  cudaPointerAttributes at;
  BRIM_TRY(rl_cuda_check(cudaPointerGetAttributes(&at, memory), what));
  BRIM_TRY(rl_cuda_check(cudaSetDevice(at.device), "cudaSetDevice"));
  cudaGetLastError();  // clear errors that other calls left behind
  return BRIM_OK;
}

#endif  // BRIM_RL_HOST_CUH_
