// GPUs whose blocks can have 227 KB of shared memory take every network of rl_fused.h. Others take fewer, and tests
// skip the rest.
#ifndef BRIM_TESTS_ENV_FUSED_ROOM_H_
#define BRIM_TESTS_ENV_FUSED_ROOM_H_

#include "backend/backend.h"
#include "test.h"

static inline bool fused_has_room(const brim_device *device) {
  const int32_t major = device->info.compute_major;
  return major == 9 || major == 10;
}

// Reports that a case is left out; fails on a GPU that has room for all.
static inline void fused_leave_out(const brim_device *device) {
  assert_false(fused_has_room(device));
  printf("skipped: kernels need more shared memory than blocks of this GPU have\n");
}

#endif  // BRIM_TESTS_ENV_FUSED_ROOM_H_
