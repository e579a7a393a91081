// Adds values of one rank to those of the ranks before it. Every communicator uses this code, so that
// their sums have the same bits. Included by backend_comm.c and the mpi plug-in.
#ifndef BRIM_BACKEND_COMM_SUM_H_
#define BRIM_BACKEND_COMM_SUM_H_

#include "backend/backend.h"

// sum[i] += more[i] for F32, F64 and I64; I64 wraps around.
static inline void brim_comm_add(void *sum, const void *more, int64_t count, brim_dtype dtype) {
  if (dtype == BRIM_F32) {
    float *a = (float *)sum;
    const float *b = (const float *)more;
    for (int64_t i = 0; i < count; i++) a[i] += b[i];
  } else if (dtype == BRIM_F64) {
    double *a = (double *)sum;
    const double *b = (const double *)more;
    for (int64_t i = 0; i < count; i++) a[i] += b[i];
  } else {
    uint64_t *a = (uint64_t *)sum;
    const uint64_t *b = (const uint64_t *)more;
    for (int64_t i = 0; i < count; i++) a[i] += b[i];
  }
}

// Up to this size every rank adds the values of all ranks: a second round of messages would cost more.
#define BRIM_COMM_FEW_BYTES 8192

static inline bool brim_comm_can_add(brim_dtype dtype) {
  return dtype == BRIM_F32 || dtype == BRIM_F64 || dtype == BRIM_I64;
}

// The values [*begin, *end) of `count` that rank `rank` of `size` adds. Slices begin at whole cache
// lines, so that two ranks never write to one.
static inline void brim_comm_slice(int64_t count, int rank, int size, int64_t *begin,
                                   int64_t *end) {
  int64_t step = ((count + size - 1) / size + 15) / 16 * 16;
  *begin = step * rank < count ? step * rank : count;
  *end = *begin + step < count ? *begin + step : count;
}

#endif  // BRIM_BACKEND_COMM_SUM_H_
