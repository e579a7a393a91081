// The CUDA backend's table: devices, streams, events, buffers, copies.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_cudnn.cuh"

//---------------------------------- devices ----------------------------------

// "13.1.0" of the first library that opens, for libraries that say major * 10000 + minor * 100 +
// patch. It stays open: an open device needs it too.
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

// Names what decides the bits of a result besides the GPU itself.
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
  info->free_bytes = prop.totalGlobalMem;  // fresh figures come from device_memory
  info->compute_major = prop.major;
  info->compute_minor = prop.minor;
  info->sm_count = prop.multiProcessorCount;
  // Tensor cores: fp16 from Volta on, bf16 from Ampere on.
  if (prop.major >= 7) info->fast_types |= 1u << BRIM_F16;
  if (prop.major >= 8) info->fast_types |= 1u << BRIM_BF16;
  return BRIM_OK;
}

// Only asked about: every kernel is built for the same GPUs.
__global__ static void probe() {}

// Fails if this binary has no kernels for the current device; otherwise a launch would fail without
// a reason.
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
  // A kernel that crashed leaves the context dead for the next open of the GPU, which makes it
  // again.
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
  brim_device_info info = {};  // names the cache's file
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

// Thread-local: other threads (the loader, the monitor) may continue allocating meanwhile.
static brim_status capture_begin(void *impl, void *stream) {
  brim_cuda_enter(impl);
  return BRIM_CUDA(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal));
}

static brim_status capture_end(void *impl, void *stream, void **graph) {
  brim_cuda_enter(impl);
  *graph = NULL;
  cudaGraph_t recorded = NULL;
  cudaGraphExec_t exec = NULL;
  // Ends the capture even where something in it was not allowed: the stream works again after it.
  brim_status status = BRIM_CUDA(cudaStreamEndCapture((cudaStream_t)stream, &recorded));
  if (!status) status = BRIM_CUDA(cudaGraphInstantiate(&exec, recorded, 0));
  if (recorded) cudaGraphDestroy(recorded);
  if (status) return status;
  // Saves time in the first launch, which does it otherwise; without memory for it that would fail.
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

#define ROW(id, name) \
  { BRIM_OP_##id, brim_cuda_##name##_validate, NULL, brim_cuda_##name##_run, NULL }
#define ROW_PREPARED(id, name, prep, rel) \
  { BRIM_OP_##id, brim_cuda_##name##_validate, prep, brim_cuda_##name##_run, rel }
// The three ops of a product share all functions.
#define ROW_PRODUCT(id, name) \
  ROW_PREPARED(id, name, brim_cuda_##name##_prepare, brim_cuda_##name##_release)
#define ROW_BATCHNORM(id, prep, run) \
  { BRIM_OP_##id, brim_cuda_batchnorm_validate, prep, run, NULL }

static const brim_op_row ops[] = {
    ROW_PRODUCT(LINEAR, linear),
    ROW_PRODUCT(LINEAR_BWD_DATA, linear),
    ROW_PRODUCT(LINEAR_BWD_WEIGHT, linear),
    ROW_PRODUCT(CONV, conv),
    ROW_PRODUCT(CONV_BWD_DATA, conv),
    ROW_PRODUCT(CONV_BWD_WEIGHT, conv),
    ROW_BATCHNORM(BATCHNORM, brim_cuda_batchnorm_prepare, brim_cuda_batchnorm_run),
    ROW_BATCHNORM(BATCHNORM_APPLY, NULL, brim_cuda_batchnorm_apply_run),
    ROW_BATCHNORM(BATCHNORM_BWD, brim_cuda_batchnorm_prepare, brim_cuda_batchnorm_bwd_run),
    ROW_BATCHNORM(BATCHNORM_PART, brim_cuda_batchnorm_prepare, brim_cuda_batchnorm_part_run),
    ROW(BATCHNORM_JOIN, batchnorm_join),
    ROW_BATCHNORM(BATCHNORM_BWD_SUMS, brim_cuda_batchnorm_prepare,
                  brim_cuda_batchnorm_bwd_sums_run),
    ROW_BATCHNORM(BATCHNORM_BWD_JOINED, NULL, brim_cuda_batchnorm_bwd_joined_run),
    ROW(MAXPOOL, maxpool),
    ROW(MAXPOOL_BWD, maxpool_bwd),
    ROW(MEAN, mean),
    ROW(MEAN_BWD, mean_bwd),
    ROW(POS, pos),
    ROW_PREPARED(POS_BWD, pos_bwd, brim_cuda_pos_bwd_prepare, NULL),
    ROW_PREPARED(ATTENTION, attention, brim_cuda_attention_prepare, NULL),
    ROW_PREPARED(ATTENTION_BWD, attention_bwd, brim_cuda_attention_prepare, NULL),
    ROW(CONCAT, concat),
    ROW(CONCAT_BWD, concat_bwd),
    ROW(ACT, act),
    ROW(ACT_BWD, act_bwd),
    ROW(LAYERNORM, layernorm),
    ROW_PREPARED(LAYERNORM_BWD, layernorm_bwd, brim_cuda_layernorm_bwd_prepare, NULL),
    ROW(DROPOUT, dropout),
    ROW(ADD, add),
    ROW(CAST, cast),
    ROW(INPUT, input),
    ROW_PREPARED(XENT, xent, brim_cuda_loss_prepare, NULL),
    ROW_PREPARED(MSE, mse, brim_cuda_loss_prepare, NULL),
    ROW_PREPARED(BCE, bce, brim_cuda_loss_prepare, NULL),
    ROW_PREPARED(NTXENT, ntxent, brim_cuda_ntxent_prepare, NULL),
    ROW_PREPARED(UNIT, unit, brim_cuda_unit_prepare, NULL),
    ROW_PREPARED(KNN, knn, brim_cuda_knn_prepare, NULL),
    ROW_PREPARED(GRAD_NORM, grad_norm, brim_cuda_grad_norm_prepare, NULL),
    ROW(OPTIMIZER, optimizer),
    ROW(AVERAGE, average),
    ROW(STEP_END, step_end),
};

// Members in the order of brim_backend: nvcc's C++17 has no designated initializers.
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
    ops,
    sizeof ops / sizeof *ops,
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
