// The layout of a block of the GPU's rollouts and its shared memory. It is apart from the kernel, so that code
// without CUDA can compute it.
#ifndef BRIM_QUADRUPED_BLOCK_H_
#define BRIM_QUADRUPED_BLOCK_H_

#include "env/quadruped/quadruped_episode.h"

enum {
  BRIM_BLOCK_LANES = 4,  // threads of an environment, one for each leg
  // most numbers of an observation whose statistics one lane keeps: leg, leg + 4, ...
  BRIM_BLOCK_STATS = (BRIM_QUADRUPED_OBS + BRIM_BLOCK_LANES - 1) / BRIM_BLOCK_LANES,
  BRIM_BLOCK_NORMAL = 64  // floats of mean and 1/std; the policy begins after them
};

// Returns the threads of a block: small parts get only the warps they fill.
static inline int32_t brim_block_threads(int32_t envs) {
  int32_t lanes = BRIM_BLOCK_LANES * (envs < BRIM_ROLLOUT_PART ? envs : BRIM_ROLLOUT_PART);
  return (lanes + 31) / 32 * 32;
}

// Returns the bytes of dynamic shared memory of a block: normalisation, policy, and the sums of a filter.
static inline size_t brim_block_dynamic(int32_t hidden, int32_t filter, int32_t envs) {
  size_t floats =
      BRIM_BLOCK_NORMAL + (size_t)(brim_rollout_packed(brim_quadruped_net(hidden)) + 3) / 4 * 4;
  size_t sums = 2 * BRIM_BLOCK_STATS * (size_t)brim_block_threads(envs) * sizeof(double);
  return floats * sizeof(float) + (filter ? sums : 0);
}

// Adds the static shared memory of the kernel, which holds the results of its environments.
static inline size_t brim_block_shared(int32_t hidden, int32_t filter, int32_t envs) {
  return brim_block_dynamic(hidden, filter, envs) +
         BRIM_ROLLOUT_PART * sizeof(brim_quadruped_track);
}

// Returns the largest hidden layer, up to `hidden`, that fits into `most` bytes; 0 = none.
static inline int32_t brim_block_hidden(int32_t hidden, int32_t filter, int32_t envs, size_t most) {
  while (hidden > 0 && brim_block_shared(hidden, filter, envs) > most) hidden--;
  return hidden;
}

#endif  // BRIM_QUADRUPED_BLOCK_H_
