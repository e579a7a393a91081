// cuDNN's graph API for one convolution: descriptors, engines, plans. Nothing here chooses by speed
// and nothing launches kernels of our own. Callers: cuda_conv.cu. No type of cuDNN shows, so that
// brim builds without its headers; then nothing is ever ready.
#ifndef BRIM_BACKEND_CUDA_CUDNN_CUH_
#define BRIM_BACKEND_CUDA_CUDNN_CUH_

#include "backend/cuda/cuda_conv.cuh"

// A problem put to cuDNN: the operation graph.
struct brim_cuda_dnn_problem;

// One engine with its settings, ready to run.
struct brim_cuda_dnn_plan {
  void *config, *plan, *pack;            // cudnnBackendDescriptor_t
  void *pointer[4];                      // the three tensors and the workspace that pack stands for
  size_t workspace;                      // bytes
  char text[BRIM_CUDA_ALGO_CHARS - 16];  // engine and knobs: "12 2:7 13:1"; "" = does not fit
};

// True when cuDNN can be used. The first call looks for it, and says so in the log when it is
// missing.
bool brim_cuda_dnn_ready(brim_cuda *device);
void brim_cuda_dnn_close(brim_cuda *device);

// `out_type` is the type of what is written; `add` adds to it. BRIM_EUNSUPPORTED when cuDNN
// refuses.
brim_status brim_cuda_dnn_problem_open(brim_cuda *device, const brim_cuda_conv *conv,
                                       brim_dtype out_type, bool add, brim_cuda_dnn_problem **out);
void brim_cuda_dnn_problem_close(brim_cuda *device, brim_cuda_dnn_problem *problem);

// Up to `max` plans in the order of cuDNN's heuristics that are allowed (numerics, determinism) and
// need at most `budget` bytes. Their number; 0 when there is none.
int brim_cuda_dnn_plans(brim_cuda *device, brim_cuda_dnn_problem *problem, size_t budget,
                        brim_cuda_dnn_plan *plans, int max);
// The plan of a text that came from `text` above. BRIM_EUNSUPPORTED when it cannot be had.
brim_status brim_cuda_dnn_plan_named(brim_cuda *device, brim_cuda_dnn_problem *problem,
                                     const char *text, size_t budget, brim_cuda_dnn_plan *plan);
void brim_cuda_dnn_plan_close(brim_cuda *device, brim_cuda_dnn_plan *plan);

// The tensors in the order x, w, y (or their gradients). Neither allocates device memory nor waits.
brim_status brim_cuda_dnn_run(brim_cuda *device, brim_cuda_dnn_plan *plan, void *const tensors[3],
                              void *workspace, cudaStream_t stream);

#endif  // BRIM_BACKEND_CUDA_CUDNN_CUH_
