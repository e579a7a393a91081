// Inside the room: the threads of the CPU's tables.
#ifndef BRIM_RL_INT_H_
#define BRIM_RL_INT_H_

#include "base/base_thread.h"
#include "rl/rl_rollout_plan.h"

// Returns the caller's threads, or makes some for this call.
static inline brim_status brim_rl_pool(const brim_rollout_where *where, brim_pool **out) {
  *out = where->pool;
  return *out ? BRIM_OK : brim_pool_create(where->threads, out);
}

static inline void brim_rl_pool_done(const brim_rollout_where *where, brim_pool *pool) {
  if (pool != where->pool) brim_pool_destroy(pool);
}

// Computes theta + scale * the perturbations of a direction, packed as rollouts read it.
void brim_rollout_build_policy(const brim_rollout_shape *shape, const float *theta,
                               int64_t iteration, int32_t dir, float scale, float *packed);

#endif  // BRIM_RL_INT_H_
