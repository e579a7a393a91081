// The functions the host lends the CUDA plug-in, and failures of the runtime and of launches in
// brim's words. Every kernel family calls this file; it calls none of them.
#include <stdarg.h>
#include <stdio.h>

#include "backend/cuda/cuda_int.cuh"

const brim_host_api *brim_cuda_host;

brim_status brim_cuda_fail(brim_status status, const char *fmt, ...) {
  char text[768];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, brim_cuda_host->translate(fmt), args);
  va_end(args);
  return brim_cuda_host->fail(status, text);
}

static brim_status tell(brim_status status, cudaError_t error, const char *what) {
  return brim_cuda_fail(status, "%s: %s (%s)", what, cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

brim_status brim_cuda_check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return BRIM_OK;
  // The runtime keeps the last error: it must not be blamed on the next call, and a process that
  // ran out of device memory continues with less.
  cudaGetLastError();
  return tell(error == cudaErrorMemoryAllocation ? BRIM_EOOM : BRIM_EDEVICE, error, what);
}

brim_status brim_cuda_library_failed(bool says_memory) {
  size_t left = 0, total = 0;
  cudaError_t last = cudaGetLastError();  // asked in any case: the next launch must not find it
  if (says_memory || last == cudaErrorMemoryAllocation) return BRIM_EOOM;
  bool asked = cudaMemGetInfo(&left, &total) == cudaSuccess;  // not after an error that stays
  size_t little = total / 64 > ((size_t)512 << 20) ? total / 64 : (size_t)512 << 20;
  return asked && left < little ? BRIM_EOOM : BRIM_EDEVICE;
}

brim_status brim_cuda_launch_failed(cudaError_t error, const char *what) {
  // what more memory would not fix
  bool ours =
      error == cudaErrorInvalidValue || error == cudaErrorInvalidConfiguration ||
      error == cudaErrorInvalidDeviceFunction || error == cudaErrorLaunchOutOfResources ||
      error == cudaErrorNoKernelImageForDevice ||
      (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread);
  if (ours) return brim_cuda_check(error, what);
  return tell(brim_cuda_library_failed(error == cudaErrorMemoryAllocation), error, what);
}

brim_status brim_cuda_load(const void *kernel) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  return error == cudaSuccess ? BRIM_OK : brim_cuda_launch_failed(error, "cudaFuncGetAttributes");
}

brim_status brim_cuda_float_type(const brim_tensor *t, const char *what) {
  if (t->dtype == BRIM_F32 || t->dtype == BRIM_BF16 || t->dtype == BRIM_F16) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: %s takes f32, bf16 or f16", what);
}
