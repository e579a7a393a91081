// Inside the room and for the loops of environments (brim_env_row.run): a piece of work of the CPU's
// rollouts, and what drives them.
#ifndef BRIM_ENV_INT_H_
#define BRIM_ENV_INT_H_

#include "base/base_thread.h"
#include "env/env_plan.h"

typedef struct brim_env_trace {
  int64_t capacity, states;
  float *frames, *reward;  // sizes.frame, 1 for each state
  float *now;              // the reward of the step under way; NULL = no room for it
} brim_env_trace;

// Some environments that run the same policy.
typedef struct brim_env_work {
  const void *env;  // the environment's values
  int32_t hidden;
  int32_t steps;                   // of a rollout or, in an evaluation, of the longest episode
  int32_t filter;                  // gather statistics of observations
  int32_t once;                    // of a rollout: no second episode
  const float *policy;             // brim_env_packed floats; NULL = all outputs 0
  const float *normal;             // mean and 1/std, obs each
  brim_env_ids ids;                // of the first environment; the others follow
  int32_t envs;                    // 1 to BRIM_ENV_PART
  brim_env_found *found;           // of a rollout, its statistics behind it, or NULL
  brim_rollout_episode *episodes;  // of an evaluation, one for each environment, or NULL
  float *figures;                  // (envs, sizes.figures), with episodes
  brim_env_trace *trace;           // of environment 0, or NULL
} brim_env_work;

// The place of the next frame of a trace, with room for the reward of the step behind it; NULL = full.
static inline float *brim_env_trace_next(brim_env_trace *t, int32_t frame) {
  t->now = NULL;
  if (t->states == t->capacity) return NULL;
  float *at = t->frames + (int64_t)frame * t->states;
  t->now = &t->reward[t->states++];
  *t->now = 0.0f;
  return at;
}

// theta + scale * the perturbations of a direction, as rollouts read it.
void brim_env_build_policy(const brim_rollout_shape *shape, const float *theta, int64_t iteration,
                           int32_t dir, float scale, float *packed);

// The caller's threads, or some for this call.
static inline brim_status brim_env_pool(const brim_rollout_where *where, brim_pool **out) {
  *out = where->pool;
  return *out ? BRIM_OK : brim_pool_create(where->threads, out);
}

static inline void brim_env_pool_done(const brim_rollout_where *where, brim_pool *pool) {
  if (pool != where->pool) brim_pool_destroy(pool);
}

brim_status brim_env_update(const brim_rollout_where *where, const brim_rollout_shape *shape,
                            void *block, int64_t iteration, int32_t top, float step_size);

#endif  // BRIM_ENV_INT_H_
