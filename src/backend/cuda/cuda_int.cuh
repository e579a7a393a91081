// Inside the CUDA backend: the open device, error handling through the host table, launch helpers.
// The plug-in links nothing of brim; it calls the functions of host_api.
#ifndef BRIM_BACKEND_CUDA_INT_CUH_
#define BRIM_BACKEND_CUDA_INT_CUH_

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/backend.h"
#include "backend/cuda/cuda.h"

// cuBLASLt is found at run time; a machine without it still has every op but the linear ones.
struct brim_cuda_blas {
  void *library;
  cublasStatus_t (*create)(cublasLtHandle_t *);
  cublasStatus_t (*destroy)(cublasLtHandle_t);
  size_t (*version)(void);
  cublasStatus_t (*desc_create)(cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t);
  cublasStatus_t (*desc_destroy)(cublasLtMatmulDesc_t);
  cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *,
                             size_t);
  cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *, cudaDataType_t, uint64_t, uint64_t,
                                  int64_t);
  cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t);
  cublasStatus_t (*pref_create)(cublasLtMatmulPreference_t *);
  cublasStatus_t (*pref_destroy)(cublasLtMatmulPreference_t);
  cublasStatus_t (*pref_set)(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                             const void *, size_t);
  cublasStatus_t (*heuristic)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                              cublasLtMatmulHeuristicResult_t *, int *);
  cublasStatus_t (*algo_get)(const cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t,
                             void *, size_t, size_t *);
  cublasStatus_t (*matmul)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
                           cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t,
                           const void *, const void *, cublasLtMatrixLayout_t, void *,
                           cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,
                           cudaStream_t);
};

struct brim_cuda_dnn;    // cuDNN, found at run time (cuda_conv.cu)
struct brim_cuda_algos;  // chosen algorithms (cuda_algo.cu)

struct brim_cuda {
  int index;
  int sm_count;
  size_t workspace_cap;       // bytes for a linear op
  size_t conv_workspace_cap;  // bytes for a cuDNN engine; 0 = chosen by shape
  bool nondeterministic;      // see brim_device_options
  bool measure_algorithms;
  brim_cuda_blas blas;  // blas.library NULL: not found
  cublasLtHandle_t lt;
  brim_cuda_dnn *dnn;      // NULL until the first convolution
  bool dnn_reported;       // a warning has said that cuDNN is missing
  brim_cuda_algos *algos;  // never NULL in an open device
};

extern const brim_host_api *brim_cuda_host;

brim_status brim_cuda_fail(brim_status status, const char *fmt, ...) BRIM_PRINTF(2, 3);
// BRIM_OK, BRIM_EOOM or BRIM_EDEVICE with the call's name and CUDA's own words.
brim_status brim_cuda_check(cudaError_t error, const char *what);
#define BRIM_CUDA(call) brim_cuda_check((call), #call)
// The status of a failed launch: BRIM_EOOM if little memory is left, unless the error cannot come from
// that. A launch loads kernels on first use, and without memory for them CUDA reports various errors
// (cudaErrorUnknown among them).
brim_status brim_cuda_launch_failed(cudaError_t error, const char *what);
// Checks a launch; `what` names the kernel family in the message.
static inline brim_status brim_cuda_launched(const char *what) {
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? BRIM_OK : brim_cuda_launch_failed(error, what);
}

// The status of a library's failure: BRIM_EOOM if the library says so, if the runtime's last error was
// that, or if little memory is left; else BRIM_EDEVICE. Libraries load kernels on first use and report
// various errors without memory for them. The driver reserves local memory for every thread that the
// device can hold: at a kilobyte a thread 264 MiB on 132 multiprocessors.
brim_status brim_cuda_library_failed(bool says_memory);

// Called first by every entry of the table: the runtime works on the thread's current device, and a
// thread may hold several.
static inline void brim_cuda_enter(void *impl) { cudaSetDevice(((brim_cuda *)impl)->index); }

// File names of cuDNN and cuBLASLt, NULL-terminated (cuda_conv.cu, cuda_linear.cu).
extern const char *const brim_cuda_dnn_names[];
extern const char *const brim_cuda_blas_names[];

brim_status brim_cuda_blas_open(brim_cuda *device);
void brim_cuda_blas_close(brim_cuda *device);
void brim_cuda_dnn_close(brim_cuda *device);

extern const brim_comm_table brim_cuda_comm;  // cuda_nccl.cu

//---------------------------------- chosen algorithms ----------------------------------

// A table key -> value of what was chosen, for every library that offers several algorithms. Keys
// are one word, start with the library ("conv ..." is no key, "conv/fwd/..." is one) and are at
// most 255 characters; values are one line of at most 255. Safe from several threads.
enum { BRIM_CUDA_ALGO_CHARS = 256 };
brim_status brim_cuda_algo_open(brim_cuda *device, const char *cache_folder,
                                const brim_device_info *info);
void brim_cuda_algo_close(brim_cuda *device);
// Finds a choice. If the device does not measure, only choices put, stored or noted in this process
// count, not the cache file's; if it measures, choices noted `for_now` do not count.
bool brim_cuda_algo_find(brim_cuda *device, const char *key, char value[BRIM_CUDA_ALGO_CHARS]);
// Stores a choice, also in the cache file if there is one. A failure is logged: a forgotten choice
// is made again.
void brim_cuda_algo_store(brim_cuda *device, const char *key, const char *value);
// Notes a choice made without timing: in the table (and in algorithms_get), not in the cache file.
// Not called while planning, or the choice would prevent a measured one. `for_now`: there was no
// memory to measure with, and the next call may try again.
void brim_cuda_algo_note(brim_cuda *device, const char *key, const char *value, bool for_now);
// True on the first call for a key of the table: the caller then warns about the choice.
bool brim_cuda_algo_warn_once(brim_cuda *device, const char *key);
// Time candidates 0 .. candidates - 1 on a stream of its own and name the fastest. A candidate
// whose run fails is skipped; BRIM_EUNSUPPORTED when all fail. Not inside a capture, not while
// planning, from one thread at a time.
brim_status brim_cuda_algo_time(brim_cuda *device,
                                brim_status (*run)(void *ctx, int candidate, cudaStream_t stream),
                                void *ctx, int candidates, int *best, float *ms);
brim_status brim_cuda_algorithms_get(void *impl, char **text);
brim_status brim_cuda_algorithms_put(void *impl, const char *text);

//---------------------------------- launch helpers ----------------------------------

static inline int64_t brim_cuda_count(const brim_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->dim[i];
  return n;
}
static inline size_t brim_cuda_bytes(const brim_tensor *t) {
  if (t->rank == 0) return 0;
  size_t size = t->dtype == BRIM_F32 ? 4 : t->dtype == BRIM_F64 ? 8 : t->dtype == BRIM_U8 ? 1 : 2;
  return (size_t)brim_cuda_count(t) * size;
}
// Optional trailing tensors are left out, or have rank 0.
static inline bool brim_cuda_has(const brim_tensor *t, int position, int count) {
  return position < count && t->rank > 0;
}
static inline unsigned brim_cuda_blocks(int64_t n, int threads) {
  int64_t blocks = (n + threads - 1) / threads;
  return (unsigned)(blocks < 1 ? 1 : blocks > 65535 * 16 ? 65535 * 16 : blocks);
}
// f32, bf16 or f16; anything else is refused by name.
brim_status brim_cuda_float_type(const brim_tensor *t, const char *what);

// Load and store through float, whatever the storage type.
__device__ static inline float brim_load(const float *p, int64_t i) { return p[i]; }
__device__ static inline float brim_load(const __nv_bfloat16 *p, int64_t i) {
  return __bfloat162float(p[i]);
}
__device__ static inline float brim_load(const __half *p, int64_t i) { return __half2float(p[i]); }
__device__ static inline void brim_store(float *p, int64_t i, float v) { p[i] = v; }
__device__ static inline void brim_store(__nv_bfloat16 *p, int64_t i, float v) {
  p[i] = __float2bfloat16_rn(v);
}
__device__ static inline void brim_store(__half *p, int64_t i, float v) {
  p[i] = __float2half_rn(v);
}

// Run `expr` with T bound to the storage type of a dtype (f32, bf16, f16).
#define BRIM_CUDA_DISPATCH(dtype, expr) \
  do {                                  \
    if ((dtype) == BRIM_BF16) {         \
      typedef __nv_bfloat16 T;          \
      expr;                             \
    } else if ((dtype) == BRIM_F16) {   \
      typedef __half T;                 \
      expr;                             \
    } else {                            \
      typedef float T;                  \
      expr;                             \
    }                                   \
  } while (0)

// Sum over a block of at most 1024 threads, always in the same order; valid in thread 0.
__device__ static inline float brim_block_sum(float v, float *shared) {
  for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
  __syncthreads();
  int warps = (int)(blockDim.x + 31) >> 5;
  v = (int)threadIdx.x < warps ? shared[threadIdx.x] : 0.0f;
  if (threadIdx.x < 32) {
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
  }
  return v;
}

// The rows of the families, one per .cu.
extern const brim_op_family brim_cuda_linear_ops;
extern const brim_op_family brim_cuda_conv_ops;
extern const brim_op_family brim_cuda_batchnorm_ops;
extern const brim_op_family brim_cuda_pool_ops;
extern const brim_op_family brim_cuda_attention_ops;
extern const brim_op_family brim_cuda_elementwise_ops;
extern const brim_op_family brim_cuda_norm_ops;
extern const brim_op_family brim_cuda_loss_ops;
extern const brim_op_family brim_cuda_ntxent_ops;
extern const brim_op_family brim_cuda_knn_ops;
extern const brim_op_family brim_cuda_optim_ops;

#endif  // BRIM_BACKEND_CUDA_INT_CUH_
