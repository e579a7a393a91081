// Checks that every communicator must pass. Each rank runs them over an open one: test_backend_comm.c over shared
// memory, comm_mpi_ranks.c over MPI. A rank is a process or a thread of one, so cmocka cannot be used here: a check
// that fails is printed and counted.
#ifndef BRIM_TESTS_BACKEND_COMM_CHECKS_H_
#define BRIM_TESTS_BACKEND_COMM_CHECKS_H_

#include <stdio.h>
#include <string.h>

#include "backend/backend_comm.h"

#define COMM_CHECK(condition)                                                              \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "rank %d of %d: %s:%d: not %s (%s)\n", brim_comm_rank(comm),         \
              brim_comm_size(comm), __FILE__, __LINE__, #condition, brim_status_detail()); \
      return 1;                                                                            \
    }                                                                                      \
  } while (0)

// Value i of a rank: of many magnitudes, so that another order of adding gives other bits.
static inline double comm_value(int rank, int64_t i) {
  uint64_t h = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xbf58476d1ce4e5b9u;
  h ^= h >> 29;
  h *= 0x94d049bb133111ebu;
  h ^= h >> 32;
  double value = (double)(h & 0xffffff) / 1048576.0 - 8.0;
  return h >> 63 ? value * 4096.0 : value;
}

// Writes `count` values of `rank`, or adds them to existing ones.
static inline void comm_fill(void *data, int64_t count, brim_dtype dtype, int rank, bool add) {
  for (int64_t i = 0; i < count; i++) {
    double value = comm_value(rank, i);
    if (dtype == BRIM_F32) {
      float *at = (float *)data + i;
      *at = add ? *at + (float)value : (float)value;
    } else if (dtype == BRIM_F64) {
      double *at = (double *)data + i;
      *at = add ? *at + value : value;
    } else {
      uint64_t *at = (uint64_t *)data + i;
      uint64_t bits = (uint64_t)(int64_t)value * 0x9e3779b97f4a7c15u;  // sums wrap around
      *at = add ? *at + bits : bits;
    }
  }
}

static inline int comm_check_sum(brim_comm *comm, int64_t count, brim_dtype dtype) {
  const int size = brim_comm_size(comm);
  size_t bytes = (size_t)count * brim_dtype_size(dtype);
  uint8_t *data = brim_alloc(bytes + 64), *expected = brim_alloc(bytes + 64);
  COMM_CHECK(data && expected);
  memset(data, 0x5a, bytes + 64);
  memset(expected, 0x5a, bytes + 64);
  comm_fill(data, count, dtype, brim_comm_rank(comm), false);
  for (int r = 0; r < size; r++) comm_fill(expected, count, dtype, r, r > 0);
  COMM_CHECK(!brim_comm_all_reduce(comm, data, count, dtype));
  COMM_CHECK(memcmp(data, expected, bytes + 64) == 0);
  brim_free(data);
  brim_free(expected);
  return 0;
}

static inline int comm_check_sums(brim_comm *comm) {
  const int size = brim_comm_size(comm);
  const int64_t counts[] = {0, 1, size - 1, size, size + 1, 17, 1000, 65536, 300001};
  const brim_dtype dtypes[] = {BRIM_F32, BRIM_F64, BRIM_I64};
  for (size_t d = 0; d < 3; d++) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      if (comm_check_sum(comm, counts[c], dtypes[d])) return 1;
    }
  }
  float unchanged = 2.5f;
  COMM_CHECK(brim_comm_all_reduce(comm, &unchanged, 1, BRIM_F16) == BRIM_EUNSUPPORTED);
  COMM_CHECK(brim_comm_all_reduce(comm, &unchanged, -1, BRIM_F32) == BRIM_EINVAL);
  COMM_CHECK(unchanged == 2.5f);
  return 0;
}

static inline uint8_t comm_byte(int rank, size_t i) {
  return (uint8_t)(i * 7 + i / 251 + (size_t)rank * 31 + 1);
}

static inline int comm_check_gather(brim_comm *comm, size_t bytes, bool in_place) {
  const int size = brim_comm_size(comm), rank = brim_comm_rank(comm);
  uint8_t *all = brim_calloc((size_t)size * bytes + 64, 1);
  uint8_t *apart = brim_calloc(bytes + 64, 1);
  COMM_CHECK(all && apart);
  uint8_t *mine = in_place ? all + (size_t)rank * bytes : apart;
  for (size_t i = 0; i < bytes; i++) mine[i] = comm_byte(rank, i);
  COMM_CHECK(!brim_comm_all_gather(comm, mine, all, bytes));
  for (int r = 0; r < size; r++) {
    for (size_t i = 0; i < bytes; i++) {
      COMM_CHECK(all[(size_t)r * bytes + i] == comm_byte(r, i));
    }
  }
  for (size_t i = 0; i < 64; i++) COMM_CHECK(all[(size_t)size * bytes + i] == 0);
  brim_free(all);
  brim_free(apart);
  return 0;
}

static inline int comm_check_broadcast(brim_comm *comm, size_t bytes, int root) {
  uint8_t *data = brim_calloc(bytes + 64, 1);
  COMM_CHECK(data);
  if (brim_comm_rank(comm) == root) {
    for (size_t i = 0; i < bytes; i++) data[i] = comm_byte(root, i);
  }
  COMM_CHECK(!brim_comm_broadcast(comm, data, bytes, root));
  for (size_t i = 0; i < bytes; i++) COMM_CHECK(data[i] == comm_byte(root, i));
  for (size_t i = 0; i < 64; i++) COMM_CHECK(data[bytes + i] == 0);
  brim_free(data);
  return 0;
}

static inline int comm_check_moves(brim_comm *comm) {
  const size_t sizes[] = {0, 1, 7, 4096, 262144, 600001};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (comm_check_gather(comm, sizes[i], false)) return 1;
    if (comm_check_gather(comm, sizes[i], true)) return 1;
    for (int root = 0; root < brim_comm_size(comm); root++) {
      if (comm_check_broadcast(comm, sizes[i], root)) return 1;
    }
  }
  uint8_t byte = 0;
  COMM_CHECK(brim_comm_broadcast(comm, &byte, 1, brim_comm_size(comm)) == BRIM_EINVAL);
  COMM_CHECK(brim_comm_broadcast(comm, &byte, 1, -1) == BRIM_EINVAL);
  return 0;
}

// Posted requests, more than fit, with a blocking call among them that needs earlier results.
static inline int comm_check_posted(brim_comm *comm) {
  enum { REQUESTS = 600, VALUES = 900 };
  const int size = brim_comm_size(comm), rank = brim_comm_rank(comm);
  float *data = brim_alloc((size_t)REQUESTS * VALUES * sizeof(float));
  float *expected = brim_alloc(VALUES * sizeof(float));
  int64_t *first = brim_alloc((size_t)size * sizeof(int64_t));
  COMM_CHECK(data && expected && first);
  for (int q = 0; q < REQUESTS; q++) {
    float *values = data + (size_t)q * VALUES;
    comm_fill(values, q + 1, BRIM_F32, rank + q, false);
    COMM_CHECK(!brim_comm_post_all_reduce(comm, values, q + 1, BRIM_F32));
    if (q != 300) continue;
    int64_t mine = rank == q ? 0 : 1000 + rank;
    COMM_CHECK(!brim_comm_all_gather(comm, &mine, first, sizeof mine));
    for (int r = 0; r < size; r++) COMM_CHECK(first[r] == 1000 + r);
    // Every request before it is complete: its sum is there without a wait.
    for (int r = 0; r < size; r++) comm_fill(expected, q + 1, BRIM_F32, r + q, r > 0);
    COMM_CHECK(memcmp(values, expected, (size_t)(q + 1) * sizeof(float)) == 0);
  }
  COMM_CHECK(!brim_comm_wait(comm));
  for (int q = 0; q < REQUESTS; q++) {
    for (int r = 0; r < size; r++) comm_fill(expected, q + 1, BRIM_F32, r + q, r > 0);
    COMM_CHECK(memcmp(data + (size_t)q * VALUES, expected, (size_t)(q + 1) * sizeof(float)) == 0);
  }
  COMM_CHECK(!brim_comm_wait(comm));  // nothing is posted
  brim_free(data);
  brim_free(expected);
  brim_free(first);
  return 0;
}

static inline int comm_check_stats(brim_comm *comm) {
  brim_comm_stats before, after;
  brim_comm_read_stats(comm, &before);
  float values[10] = {0};
  uint8_t all[3 * BRIM_RANKS_MAX];
  COMM_CHECK(!brim_comm_all_reduce(comm, values, 10, BRIM_F32));
  COMM_CHECK(!brim_comm_all_gather(comm, "abc", all, 3));
  COMM_CHECK(!brim_comm_broadcast(comm, all, 5, 0));
  COMM_CHECK(!brim_comm_post_all_reduce(comm, values, 10, BRIM_F32));
  COMM_CHECK(!brim_comm_wait(comm));
  brim_comm_read_stats(comm, &after);
  COMM_CHECK(after.calls - before.calls == 4);
  COMM_CHECK(after.bytes - before.bytes == 40 + 3 * (uint64_t)brim_comm_size(comm) + 5 + 40);
  COMM_CHECK(after.busy_ns > before.busy_ns && after.waited_ns > before.waited_ns);
  return 0;
}

// Returns 0 if every check passed.
static inline int comm_checks(brim_comm *comm) {
  if (comm_check_sums(comm)) return 1;
  if (comm_check_moves(comm)) return 1;
  if (comm_check_posted(comm)) return 1;
  return comm_check_stats(comm);
}

#endif  // BRIM_TESTS_BACKEND_COMM_CHECKS_H_
