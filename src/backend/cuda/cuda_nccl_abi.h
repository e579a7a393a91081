// The part of NCCL's ABI that brim uses, written down here so that no header of NCCL is needed. Numbers
// and layouts are NVIDIA's (nccl.h of 2.x), names are brim's. Where nccl.h is installed, cuda_nccl.cu checks
// them against it. Included by: cuda_nccl.cu.
#ifndef BRIM_BACKEND_CUDA_NCCL_ABI_H_
#define BRIM_BACKEND_CUDA_NCCL_ABI_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#define BRIM_NCCL_ASSERT static_assert
#else
#define BRIM_NCCL_ASSERT _Static_assert
#endif

// ncclResult_t
enum {
  BRIM_NCCL_SUCCESS = 0,
  BRIM_NCCL_UNHANDLED_CUDA_ERROR = 1,
  BRIM_NCCL_SYSTEM_ERROR = 2,
  BRIM_NCCL_INVALID_USAGE = 5,
  BRIM_NCCL_REMOTE_ERROR = 6
};

// ncclDataType_t
enum {
  BRIM_NCCL_INT8 = 0,
  BRIM_NCCL_INT32 = 2,
  BRIM_NCCL_INT64 = 4,
  BRIM_NCCL_FLOAT16 = 6,
  BRIM_NCCL_FLOAT32 = 7,
  BRIM_NCCL_FLOAT64 = 8,
  BRIM_NCCL_BFLOAT16 = 9
};

enum { BRIM_NCCL_SUM = 0 };  // ncclRedOp_t

// ncclUniqueId, which is passed by value
typedef struct brim_nccl_id {
  char internal[128];
} brim_nccl_id;
BRIM_NCCL_ASSERT(sizeof(brim_nccl_id) == 128, "ncclUniqueId");

typedef struct ncclComm brim_nccl_comm;
struct CUstream_st;

// Results, types and operations are int here, as C passes enums as int.
typedef int (*brim_nccl_get_unique_id)(brim_nccl_id *id);
typedef int (*brim_nccl_comm_init_rank)(brim_nccl_comm **comm, int ranks, brim_nccl_id id,
                                        int rank);
typedef int (*brim_nccl_comm_end)(brim_nccl_comm *comm);  // ncclCommDestroy, ncclCommAbort
typedef int (*brim_nccl_all_reduce)(const void *send, void *receive, size_t count, int type,
                                    int operation, brim_nccl_comm *comm,
                                    struct CUstream_st *stream);
typedef int (*brim_nccl_all_gather)(const void *send, void *receive, size_t count, int type,
                                    brim_nccl_comm *comm, struct CUstream_st *stream);
typedef const char *(*brim_nccl_error_string)(int result);
typedef const char *(*brim_nccl_last_error)(brim_nccl_comm *comm);  // since 2.13

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_CUDA_NCCL_ABI_H_
