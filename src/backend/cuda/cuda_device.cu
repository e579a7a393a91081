// The CUDA backend's table: devices, streams, events, buffers, copies. Also the functions that the host
// lends the plug-in, and messages for failures of the runtime and of launches.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_int.cuh"

//---------------------------------- the host ----------------------------------

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
  // Clear the runtime's last error. The next call must not report it, and a process that ran out of device
  // memory continues with less.
  cudaGetLastError();
  return tell(error == cudaErrorMemoryAllocation ? BRIM_EOOM : BRIM_EDEVICE, error, what);
}

brim_status brim_cuda_library_failed(bool says_memory) {
  size_t left = 0, total = 0;
  cudaError_t last =
      cudaGetLastError();  // clear it in any case, so that the next launch does not report it
  if (says_memory || last == cudaErrorMemoryAllocation) return BRIM_EOOM;
  bool asked = cudaMemGetInfo(&left, &total) == cudaSuccess;  // fails after an error that stays
  size_t little = total / 64 > ((size_t)512 << 20) ? total / 64 : (size_t)512 << 20;
  return asked && left < little ? BRIM_EOOM : BRIM_EDEVICE;
}

brim_status brim_cuda_launch_failed(cudaError_t error, const char *what) {
  // These errors have nothing to do with a lack of memory.
  bool ours =
      error == cudaErrorInvalidValue || error == cudaErrorInvalidConfiguration ||
      error == cudaErrorInvalidDeviceFunction || error == cudaErrorLaunchOutOfResources ||
      error == cudaErrorNoKernelImageForDevice ||
      (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread);
  if (ours) return brim_cuda_check(error, what);
  return tell(brim_cuda_library_failed(error == cudaErrorMemoryAllocation), error, what);
}

brim_status brim_cuda_float_type(const brim_tensor *t, const char *what) {
  if (t->dtype == BRIM_F32 || t->dtype == BRIM_BF16 || t->dtype == BRIM_F16) return BRIM_OK;
  return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: %s takes f32, bf16 or f16", what);
}

//---------------------------------- devices ----------------------------------

// Version "13.1.0" of the first library that opens. The library must say major * 10000 + minor * 100 +
// patch. It stays open, as an open device needs it too.
static bool library_version(const char *const *names, const char *symbol, char *text, size_t size) {
  void *library = NULL;
  for (int i = 0; names[i] && !library; i++) library = dlopen(names[i], RTLD_NOW);
  if (!library) return false;
  size_t (*version)(void) = (size_t(*)(void))dlsym(library, symbol);
  if (!version) return false;
  size_t v = version();
  snprintf(text, size, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
  return true;
}

// Lists the libraries that, besides the GPU itself, decide the bits of a result.
static void name_libraries(char *text, size_t size) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  int n = snprintf(text, size, "CUDA %d.%d, driver API %d.%d", runtime / 1000, runtime % 1000 / 10,
                   driver / 1000, driver % 1000 / 10);
  char version[24];
  if (library_version(brim_cuda_blas_names, "cublasLtGetVersion", version, sizeof version)) {
    n += snprintf(text + n, size - (size_t)n, ", cuBLASLt %s", version);
  }
  if (library_version(brim_cuda_dnn_names, "cudnnGetVersion", version, sizeof version)) {
    snprintf(text + n, size - (size_t)n, ", cuDNN %s", version);
  }
}

static brim_status device_count(int *count) { return BRIM_CUDA(cudaGetDeviceCount(count)); }

static brim_status device_info(int index, brim_device_info *info) {
  cudaDeviceProp prop;
  brim_status status = BRIM_CUDA(cudaGetDeviceProperties(&prop, index));
  if (status) return status;
  memset(info, 0, sizeof *info);
  snprintf(info->name, sizeof info->name, "%.127s", prop.name);
  const unsigned char *u = (const unsigned char *)prop.uuid.bytes;
  snprintf(info->id, sizeof info->id,
           "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
           u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
           u[15]);
  name_libraries(info->library, sizeof info->library);
  info->kind = BRIM_DEVICE_GPU;
  info->total_bytes = prop.totalGlobalMem;
  info->free_bytes = prop.totalGlobalMem;  // device_memory reads the actual number
  info->compute_major = prop.major;
  info->compute_minor = prop.minor;
  info->sm_count = prop.multiProcessorCount;
  // Tensor cores: fp16 from Volta on, bf16 from Ampere on.
  if (prop.major >= 7) info->fast_types |= 1u << BRIM_F16;
  if (prop.major >= 8) info->fast_types |= 1u << BRIM_BF16;
  return BRIM_OK;
}

// Never runs: check_kernels asks about it, and every kernel is built for the same GPUs.
__global__ static void probe() {}

// Fails with the reason if this binary has no kernels for the current device. A launch would fail without
// one.
static brim_status check_kernels(int index) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, probe);
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction) {
    return brim_cuda_check(error, "cudaFuncGetAttributes");
  }
  cudaGetLastError();
  int major = 0, minor = 0;
  BRIM_TRY(BRIM_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index)));
  BRIM_TRY(BRIM_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index)));
  if (major < 8) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED,
                          "cuda: GPU %d has compute capability %d.%d, brim needs 8.0 or newer; use "
                          "another GPU or --device cpu",
                          index, major, minor);
  }
  return brim_cuda_fail(BRIM_EUNSUPPORTED,
                        "cuda: this plug-in was not built for GPU %d (compute capability %d.%d); "
                        "build brim with -DBRIM_CUDA_ARCHS=%d%d",
                        index, major, minor, major, minor);
}

static void device_close(void *impl) {
  brim_cuda *d = (brim_cuda *)impl;
  brim_cuda_enter(impl);
  brim_cuda_dnn_close(d);
  brim_cuda_blas_close(d);
  brim_cuda_algo_close(d);
  brim_cuda_host->free(d);
  // A kernel that crashed leaves a dead context; the reset lets the next open of the GPU make a new one.
  if (cudaDeviceSynchronize() != cudaSuccess) cudaDeviceReset();
  cudaGetLastError();
}

static brim_status device_open(int index, const brim_device_options *options, void **impl) {
  brim_cuda *d = (brim_cuda *)brim_cuda_host->alloc(sizeof *d, 0);
  if (!d) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while opening a CUDA device");
  memset(d, 0, sizeof *d);
  d->index = index;
  size_t cap = (size_t)options->workspace_cap;
  d->workspace_cap = cap ? cap : (size_t)32 << 20;
  d->conv_workspace_cap = cap;
  d->nondeterministic = options->nondeterministic;
  d->measure_algorithms = options->measure_algorithms;
  brim_status status = BRIM_CUDA(cudaSetDevice(index));
  if (!status) status = BRIM_CUDA(cudaFree(NULL));  // creates the context here, not in a step
  if (!status) status = check_kernels(index);
  if (!status) {
    status = BRIM_CUDA(cudaDeviceGetAttribute(&d->sm_count, cudaDevAttrMultiProcessorCount, index));
  }
  if (!status) status = brim_cuda_blas_open(d);
  brim_device_info info = {};  // name and libraries for the path of the cache file
  if (!status && options->cache_folder[0]) status = device_info(index, &info);
  if (!status) status = brim_cuda_algo_open(d, options->cache_folder, &info);
  if (status) {
    device_close(d);
    return status;
  }
  *impl = d;
  return BRIM_OK;
}

static brim_status device_memory(void *impl, uint64_t *free_bytes, uint64_t *total_bytes) {
  brim_cuda_enter(impl);
  size_t available = 0, total = 0;
  brim_status status = BRIM_CUDA(cudaMemGetInfo(&available, &total));
  *free_bytes = available;
  *total_bytes = total;
  return status;
}

//---------------------------------- memory ----------------------------------

static brim_status buffer_alloc(void *impl, brim_buffer_kind kind, size_t bytes, void **ptr) {
  brim_cuda_enter(impl);
  if (bytes == 0) bytes = 1;
  if (kind == BRIM_BUFFER_DEVICE) return BRIM_CUDA(cudaMalloc(ptr, bytes));
  return BRIM_CUDA(cudaMallocHost(ptr, bytes));
}

static void buffer_free(void *impl, brim_buffer_kind kind, void *ptr) {
  brim_cuda_enter(impl);
  if (!ptr) return;
  if (kind == BRIM_BUFFER_DEVICE) {
    cudaFree(ptr);
  } else {
    cudaFreeHost(ptr);
  }
}

static brim_status copy(void *impl, void *stream, void *dst, const void *src, size_t bytes,
                        brim_copy direction) {
  brim_cuda_enter(impl);
  static const cudaMemcpyKind kinds[BRIM_COPY_COUNT] = {
      cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice};
  return BRIM_CUDA(cudaMemcpyAsync(dst, src, bytes, kinds[direction], (cudaStream_t)stream));
}

static brim_status fill(void *impl, void *stream, void *dst, int byte, size_t bytes) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaMemsetAsync(dst, byte, bytes, (cudaStream_t)stream));
}

//---------------------------------- streams and events ----------------------------------

static brim_status stream_create(void *impl, void **stream) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

static void stream_destroy(void *impl, void *stream) {
  brim_cuda_enter(impl);
  cudaStreamDestroy((cudaStream_t)stream);
}

static brim_status stream_sync(void *impl, void *stream) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaStreamSynchronize((cudaStream_t)stream));
}

static brim_status event_create(void *impl, void **event) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaEventCreate((cudaEvent_t *)event));
}

static void event_destroy(void *impl, void *event) {
  brim_cuda_enter(impl);
  cudaEventDestroy((cudaEvent_t)event);
}

static brim_status event_record(void *impl, void *stream, void *event) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

static brim_status event_elapsed(void *impl, void *start, void *end, int64_t *ns) {
  brim_cuda_enter(impl);
  float ms = 0;
  brim_status status = BRIM_CUDA(cudaEventSynchronize((cudaEvent_t)end));
  if (!status) status = BRIM_CUDA(cudaEventElapsedTime(&ms, (cudaEvent_t)start, (cudaEvent_t)end));
  *ns = (int64_t)((double)ms * 1e6);
  return status;
}

static brim_status event_sync(void *impl, void *event) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaEventSynchronize((cudaEvent_t)event));
}

static brim_status event_wait(void *impl, void *stream, void *event) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

//---------------------------------- graphs ----------------------------------

// Captures this thread only: other threads (the loader, the monitor) may continue allocating meanwhile.
static brim_status capture_begin(void *impl, void *stream) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal));
}

static brim_status capture_end(void *impl, void *stream, void **graph) {
  brim_cuda_enter(impl);
  *graph = NULL;
  cudaGraph_t recorded = NULL;
  cudaGraphExec_t exec = NULL;
  // Ends the capture even if something in it was not allowed, so that the stream works again.
  brim_status status = BRIM_CUDA(cudaStreamEndCapture((cudaStream_t)stream, &recorded));
  if (!status) status = BRIM_CUDA(cudaGraphInstantiate(&exec, recorded, 0));
  if (recorded) cudaGraphDestroy(recorded);
  if (status) return status;
  // Without the upload the first launch uploads, which takes time and fails if memory is short.
  cudaError_t error = cudaGraphUpload(exec, (cudaStream_t)stream);
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) {
    cudaGraphExecDestroy(exec);
    return brim_cuda_fail(BRIM_EOOM, "not enough device memory for a captured step");
  }
  *graph = exec;
  return BRIM_OK;
}

static brim_status graph_launch(void *impl, void *stream, void *graph) {
  brim_cuda_enter(impl);
  cudaError_t error = cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream);
  return error == cudaSuccess ? BRIM_OK : brim_cuda_launch_failed(error, "cudaGraphLaunch");
}

static void graph_destroy(void *impl, void *graph) {
  brim_cuda_enter(impl);
  if (graph) cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

static brim_status host_call(void *impl, void *stream, void (*fn)(void *ctx), void *ctx) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaLaunchHostFunc((cudaStream_t)stream, fn, ctx));
}

//---------------------------------- tables ----------------------------------

static const brim_op_family *const families[] = {
    &brim_cuda_linear_ops, &brim_cuda_conv_ops,      &brim_cuda_batchnorm_ops,
    &brim_cuda_pool_ops,   &brim_cuda_attention_ops, &brim_cuda_elementwise_ops,
    &brim_cuda_norm_ops,   &brim_cuda_loss_ops,      &brim_cuda_ntxent_ops,
    &brim_cuda_knn_ops,    &brim_cuda_optim_ops,
};

// Members are in the order of brim_backend, as nvcc's C++17 has no designated initializers.
const brim_backend brim_cuda_backend = {
    BRIM_BACKEND_ABI,
    "cuda",
    device_count,
    device_info,
    device_open,
    device_close,
    device_memory,
    buffer_alloc,
    buffer_free,
    stream_create,
    stream_destroy,
    stream_sync,
    event_create,
    event_destroy,
    event_record,
    event_elapsed,
    event_sync,
    event_wait,
    capture_begin,
    capture_end,
    graph_launch,
    graph_destroy,
    brim_cuda_algorithms_get,
    brim_cuda_algorithms_put,
    copy,
    fill,
    families,
    sizeof families / sizeof *families,
    host_call,
    &brim_cuda_comm,
    nullptr,  // set_threads: the host computes nothing here
};

brim_status brim_cuda_start(const brim_host_api *host) {
  brim_cuda_host = host;
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "no NVIDIA GPU can be used here: %s",
                          cudaGetErrorString(error));
  }
  if (error != cudaSuccess) return brim_cuda_check(error, "cudaGetDeviceCount");
  if (count == 0) return brim_cuda_fail(BRIM_EUNSUPPORTED, "no NVIDIA GPU on this machine");
  return BRIM_OK;
}
