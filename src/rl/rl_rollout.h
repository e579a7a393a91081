// Rollouts of perturbed policies on an environment and the ARS update over them, with no host in the
// loop: one table for the CPU (threads, vectors across environments), which runs every environment,
// and one for each environment on CUDA (the extension "ars.rollout/NAME"). A caller owns the
// memory: `layout` says how much of it, and where in it things lie.
// Results do not depend on how the directions are cut into chunks, bit for bit.
// Callers: the workload `ars`, `brim render` by way of it.
#ifndef BRIM_RL_ROLLOUT_H_
#define BRIM_RL_ROLLOUT_H_

#include <stddef.h>
#include <stdint.h>

#include "env/env.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_ROLLOUT_ABI 3
#define BRIM_ROLLOUT_EXTENSION "ars.rollout/"  // and the environment's name

// What a run of ARS keeps for all its iterations.
typedef struct brim_rollout_shape {
  const brim_env_row *row;  // the environment
  brim_env_values env;      // its values
  int32_t hidden;     // 0: linear, act x obs weights; else obs-hidden-act with biases, relu and,
                      // of continuous actions, tanh
  int32_t num_envs;   // of a direction: the first half runs +, the other half -, with the same
                      // starts and pushes; even
  int32_t num_dirs;   // directions of an iteration
  int32_t dir_chunk;  // of them at once, at most
  int32_t episode_length;  // environment steps after which an episode is cut off
  int32_t filter;          // V2: observations are normalised, statistics gathered
  int32_t once;  // 1: an environment whose episode ended does not start again in a rollout,
                 // and nothing counts of it from there on; 0: it does, and all steps count
  int32_t eval_episodes;  // at most, of an evaluation
  uint64_t seed;
} brim_rollout_shape;

// Of the environments of one (direction, sign), or of an evaluation.
typedef struct brim_rollout_tally {
  double reward;     // sum over its steps, `shift` not taken off
  double reward_sq;  // sum over environments of the square of the sum of its rewards
  int64_t envs;      // environments
  int64_t steps;     // environment steps made; with `once`, those of first episodes
  int64_t terminated;
  int64_t truncated;  // episodes that reached episode_length
  int64_t diverged;   // episodes ended by a state that is no number or out of all bounds: reset
} brim_rollout_tally;

// Byte offsets into the block of device memory a caller provides; each a multiple of 256.
typedef struct brim_rollout_layout {
  size_t bytes;   // of the block
  size_t params;  // number of floats of theta
  size_t theta;   // float[params], the policy; linear: [act][obs]; MLP: W1[hidden][obs],
                  // b1[hidden], W2[act][hidden], b2[act]
  size_t filter;  // double[1 + 2 * obs]: count, means, sums of squared deviations
  size_t normal;  // float[2 * obs]: mean and 1/std that policies use in this iteration
  size_t
      returns;   // float[num_dirs][2], + and -: mean over environments of the sum of reward - shift
                 // over the steps that counted
  size_t tally;  // brim_rollout_tally[num_dirs][2]
  size_t episodes;       // brim_rollout_episode[eval_episodes]
  size_t figures;        // float[eval_episodes][sizes.figures], right behind them
  size_t update;         // brim_rollout_update of the last update
  size_t scratch;        // what a chunk needs
  size_t scratch_bytes;  // grows with dir_chunk
} brim_rollout_layout;

// What an update did.
typedef struct brim_rollout_update {
  double sigma;       // deviation of the returns that were kept
  double step_norm;   // length of the change of theta
  double theta_norm;  // after it
  int32_t used;       // directions that were kept
  int32_t skipped;    // 1: no finite returns, or no deviation: theta was left alone
} brim_rollout_update;

// Where work goes: a stream of the device, or so many threads of this machine.
typedef struct brim_rollout_where {
  void *stream;
  int threads;
  struct brim_pool
      *pool;  // of so many threads, the caller's; NULL: every call makes one for itself
} brim_rollout_where;

typedef struct brim_rollout_job {
  int64_t iteration;  // from 0, below 2^32: part of the key of every random number
  int32_t first_dir, dirs;
  float noise_std;
  float shift;  // taken off the reward of every step in `returns`
} brim_rollout_job;

typedef struct brim_rollout_eval {
  int32_t episodes;  // environments, each run once, from its own start, until it ends
  int32_t zero;      // with all outputs of the policy 0: the baseline. Discrete: the first action
                     // that is allowed
  uint64_t stream;   // which held-out random numbers: never those of training
} brim_rollout_eval;

typedef struct brim_rollout_table {
  uint32_t abi;  // BRIM_ROLLOUT_ABI
  // BRIM_EINVAL with a detail where a shape makes no sense; BRIM_EUNSUPPORTED where this thread's
  // device cannot hold such a policy.
  brim_status (*layout)(const brim_rollout_shape *shape, brim_rollout_layout *out);
  // Theta zero (MLP: W1 and W2's scaled normals from the seed), filter empty, normal (0, 1).
  brim_status (*init)(const brim_rollout_where *where, const brim_rollout_shape *shape,
                      void *block);
  // Rollouts of the directions of a chunk: episode_length steps of every environment; one that ends
  // before that starts a new episode, or with `once` is left alone. Enqueues on CUDA, runs to its
  // end on the CPU.
  brim_status (*run)(const brim_rollout_where *where, const brim_rollout_shape *shape, void *block,
                     const brim_rollout_job *job);
  // After all chunks of an iteration: the best `top` directions by max(r+, r-) (0 = all), theta +=
  // step_size / (top * sigma) * sum (r+ - r-) delta; the filter takes in the iteration's statistics.
  brim_status (*update)(const brim_rollout_where *where, const brim_rollout_shape *shape,
                        void *block, int64_t iteration, int32_t top, float step_size);
  brim_status (*evaluate)(const brim_rollout_where *where, const brim_rollout_shape *shape,
                          void *block, const brim_rollout_eval *eval);
} brim_rollout_table;

// The CPU's.
const brim_rollout_table *brim_rollout_cpu(void);

// What a trace is written into: host memory of the caller.
typedef struct brim_rollout_record {
  int64_t capacity;  // in states
  float *frames;     // sizes.frame numbers for each state from the first to the last
  float *reward;     // of the step from each state; the last state has none: 0
  int64_t states;    // out: how many there are
  int32_t outcome;   // out: brim_env_end
} brim_rollout_record;

// One episode of a policy on the CPU, step by step, for replays: the same bits
// as that episode of the CPU's `evaluate`. theta and normal are host memory.
brim_status brim_rollout_trace(const brim_rollout_shape *shape, const float *theta,
                               const float *normal, const brim_rollout_eval *eval, int32_t episode,
                               brim_rollout_record *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RL_ROLLOUT_H_
