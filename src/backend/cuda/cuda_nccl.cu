// Exchanges of device memory by NCCL, which is found at run time, for ranks on GPUs of their own. Calls go
// into the stream they are given and can be recorded in a graph. Ranks on one GPU, which NCCL refuses, and
// how ranks find each other are not handled here.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda_int.cuh"
#include "backend/cuda/cuda_nccl_abi.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#define SAME(theirs, ours) static_assert((int)nccl##theirs == BRIM_NCCL_##ours, #theirs)
SAME(UnhandledCudaError, UNHANDLED_CUDA_ERROR);
SAME(SystemError, SYSTEM_ERROR);
SAME(InvalidUsage, INVALID_USAGE);
SAME(RemoteError, REMOTE_ERROR);
SAME(Int8, INT8);
SAME(Int32, INT32);
SAME(Int64, INT64);
SAME(Float16, FLOAT16);
SAME(Float32, FLOAT32);
SAME(Float64, FLOAT64);
SAME(Bfloat16, BFLOAT16);
SAME(Sum, SUM);
#undef SAME
static_assert(sizeof(ncclUniqueId) == sizeof(brim_nccl_id), "ncclUniqueId");
#endif

static_assert(sizeof(brim_nccl_id) == BRIM_COMM_ID_BYTES, "what is handed to all ranks");

struct library {
  brim_nccl_get_unique_id get_unique_id;
  brim_nccl_comm_init_rank init_rank;
  brim_nccl_comm_end destroy, abort;
  brim_nccl_all_reduce all_reduce;
  brim_nccl_all_gather all_gather;
  brim_nccl_error_string error_string;
  brim_nccl_last_error last_error;  // NULL in NCCL before 2.13
};

struct communicator {
  library nccl;
  brim_cuda *device;
  pthread_mutex_t lock;  // guards comm
  brim_nccl_comm *comm;  // NULL after it was abandoned
};

//---------------------------------- the library ----------------------------------

// The library stays open: communicators and recorded calls need it until the process ends.
static brim_status load(library *n) {
  static const char *const names[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                      "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
                                      "/usr/lib/aarch64-linux-gnu/libnccl.so.2", NULL};
  void *handle = NULL;
  for (int i = 0; names[i] && !handle; i++) handle = dlopen(names[i], RTLD_NOW);
  if (!handle) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED,
                          "NCCL (libnccl.so.2) was not found; install it, or add its folder to "
                          "LD_LIBRARY_PATH");
  }
  const struct {
    const char *name;
    void **address;
    bool required;
  } symbols[] = {
      {"ncclGetUniqueId", (void **)&n->get_unique_id, true},
      {"ncclCommInitRank", (void **)&n->init_rank, true},
      {"ncclCommDestroy", (void **)&n->destroy, true},
      {"ncclCommAbort", (void **)&n->abort, true},
      {"ncclAllReduce", (void **)&n->all_reduce, true},
      {"ncclAllGather", (void **)&n->all_gather, true},
      {"ncclGetErrorString", (void **)&n->error_string, true},
      {"ncclGetLastError", (void **)&n->last_error, false},
  };
  for (const auto &s : symbols) {
    *s.address = dlsym(handle, s.name);
    if (*s.address || !s.required) continue;
    return brim_cuda_fail(BRIM_EUNSUPPORTED,
                          "the NCCL on this machine has no %s; install 2.10 or newer", s.name);
  }
  return BRIM_OK;
}

static brim_status fail_nccl(const library *n, int result, const char *what) {
  brim_status status = BRIM_EDEVICE;
  if (result == BRIM_NCCL_UNHANDLED_CUDA_ERROR) status = brim_cuda_library_failed(false);
  if (result == BRIM_NCCL_SYSTEM_ERROR || result == BRIM_NCCL_REMOTE_ERROR) status = BRIM_EIO;
  if (result == BRIM_NCCL_INVALID_USAGE) status = BRIM_EUNSUPPORTED;  // two ranks share a GPU
  const char *last = n->last_error ? n->last_error(NULL) : NULL;
  if (!last || !last[0]) {
    return brim_cuda_fail(status, "NCCL, %s: %s", what, n->error_string(result));
  }
  return brim_cuda_fail(status, "NCCL, %s: %s: %s", what, n->error_string(result), last);
}

static brim_status unique_id(char id[BRIM_COMM_ID_BYTES]) {
  library n = {};
  brim_nccl_id made;
  BRIM_TRY(load(&n));
  int result = n.get_unique_id(&made);
  if (result) return fail_nccl(&n, result, "ncclGetUniqueId");
  memcpy(id, made.internal, sizeof made.internal);
  return BRIM_OK;
}

//---------------------------------- communicators ----------------------------------

static brim_status open_comm(void *impl, const char id[BRIM_COMM_ID_BYTES], int rank, int size,
                             void **comm) {
  brim_cuda_enter(impl);
  communicator *c = (communicator *)brim_cuda_host->alloc(sizeof *c, 0);
  if (!c) return brim_cuda_fail(BRIM_ENOMEM, "out of memory while opening NCCL");
  memset(c, 0, sizeof *c);
  c->device = (brim_cuda *)impl;
  brim_status status = load(&c->nccl);
  brim_nccl_id nccl_id;
  memcpy(nccl_id.internal, id, sizeof nccl_id.internal);
  if (!status) {
    int result = c->nccl.init_rank(&c->comm, size, nccl_id, rank);
    if (result) status = fail_nccl(&c->nccl, result, "ncclCommInitRank");
  }
  if (status) {
    brim_cuda_host->free(c);
    return status;
  }
  pthread_mutex_init(&c->lock, NULL);
  *comm = c;
  return BRIM_OK;
}

static void close_comm(void *comm) {
  communicator *c = (communicator *)comm;
  if (!c) return;
  brim_cuda_enter(c->device);
  if (c->comm) c->nccl.destroy(c->comm);
  cudaGetLastError();
  pthread_mutex_destroy(&c->lock);
  brim_cuda_host->free(c);
}

// Waits at most a second for the lock, as a call that holds it may itself wait for a rank that is gone.
// Then aborts without the lock: the process is about to end, and only the stream has to be freed.
static void abandon(void *comm) {
  communicator *c = (communicator *)comm;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  bool locked = pthread_mutex_timedlock(&c->lock, &until) == 0;
  brim_nccl_comm *dropped = c->comm;
  c->comm = NULL;
  if (locked) pthread_mutex_unlock(&c->lock);
  if (!dropped) return;
  brim_cuda_enter(c->device);
  c->nccl.abort(dropped);
  cudaGetLastError();
}

//---------------------------------- exchanges ----------------------------------

static int type_of(brim_dtype type) {
  switch (type) {
    case BRIM_F32:
      return BRIM_NCCL_FLOAT32;
    case BRIM_F64:
      return BRIM_NCCL_FLOAT64;
    case BRIM_BF16:
      return BRIM_NCCL_BFLOAT16;
    case BRIM_F16:
      return BRIM_NCCL_FLOAT16;
    case BRIM_I32:
      return BRIM_NCCL_INT32;
    case BRIM_I64:
      return BRIM_NCCL_INT64;
    default:
      return -1;
  }
}

// Returns with the lock held if it succeeds.
static brim_status begin(communicator *c) {
  brim_cuda_enter(c->device);
  pthread_mutex_lock(&c->lock);
  if (c->comm) return BRIM_OK;
  pthread_mutex_unlock(&c->lock);
  return brim_cuda_fail(BRIM_EIO, "NCCL: this exchange between ranks was abandoned");
}

static brim_status end(communicator *c, int result, const char *what) {
  pthread_mutex_unlock(&c->lock);
  return result ? fail_nccl(&c->nccl, result, what) : BRIM_OK;
}

static brim_status all_reduce(void *comm, void *stream, void *data, int64_t count,
                              brim_dtype dtype) {
  communicator *c = (communicator *)comm;
  int type = type_of(dtype);
  if (type < 0) return brim_cuda_fail(BRIM_EUNSUPPORTED, "NCCL: sums of bytes are not supported");
  BRIM_TRY(begin(c));
  return end(c,
             c->nccl.all_reduce(data, data, (size_t)count, type, BRIM_NCCL_SUM, c->comm,
                                (cudaStream_t)stream),
             "ncclAllReduce");
}

static brim_status all_gather(void *comm, void *stream, const void *mine, void *all, size_t bytes) {
  communicator *c = (communicator *)comm;
  BRIM_TRY(begin(c));
  return end(c, c->nccl.all_gather(mine, all, bytes, BRIM_NCCL_INT8, c->comm, (cudaStream_t)stream),
             "ncclAllGather");
}

const brim_comm_table brim_cuda_comm = {
    "nccl", unique_id, open_comm, close_comm, abandon, all_reduce, all_gather,
};
