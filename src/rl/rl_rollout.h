// Augmented random search: rollouts of perturbed policies in an environment, and the update from their returns. The
// CPU's table runs every environment (threads, vectors across environments). On CUDA each environment has a table,
// the extension "ars.rollout/NAME", which needs no host between calls. The caller owns the memory; `layout` gives
// its size and the offsets in it. Cutting the directions into other chunks changes no bit of the results. Callers:
// the workload `ars`, and `brim render` through it.
#ifndef BRIM_RL_ROLLOUT_H_
#define BRIM_RL_ROLLOUT_H_

#include <stddef.h>
#include <stdint.h>

#include "env/env.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_ROLLOUT_ABI 3
#define BRIM_ROLLOUT_EXTENSION "ars.rollout/"  // followed by the environment's name

// The shape of a run, constant for all iterations.
typedef struct brim_rollout_shape {
  const brim_env_row *row;  // the environment
  brim_env_values env;      // its values
  int32_t hidden;  // 0: linear, act x obs weights; else obs-hidden-act with biases and relu,
                   // and tanh for continuous actions
  // environments per direction, even: the first half runs +, the other half -, with the same starts and pushes
  int32_t num_envs;
  int32_t num_dirs;        // directions of an iteration
  int32_t dir_chunk;       // most directions in one call of `run`
  int32_t episode_length;  // environment steps after which an episode is cut off
  int32_t filter;          // 1: normalize observations and gather their statistics (ARS V2)
  int32_t
      // 1: an environment stops at the end of its episode; 0: it starts another one, and all steps of the rollout
      // count
      once;
  int32_t eval_episodes;  // most episodes of an evaluation
  uint64_t seed;
} brim_rollout_shape;

// Sums over the environments of one (direction, sign).
typedef struct brim_rollout_tally {
  double reward;     // sum over steps, without `shift`
  double reward_sq;  // sum over environments of the squared sum of rewards
  int64_t envs;      // environments
  int64_t steps;     // environment steps; with `once`, only those of first episodes
  int64_t terminated;
  int64_t truncated;  // episodes that reached episode_length
  int64_t diverged;   // episodes that ended in a state that is not finite or out of bounds
} brim_rollout_tally;

// Byte offsets into the caller's block of device memory, multiples of 256.
typedef struct brim_rollout_layout {
  size_t bytes;   // size of the block
  size_t params;  // number of floats of theta
  size_t theta;   // float[params], the policy; linear: [act][obs]; MLP: W1[hidden][obs],
                  // b1[hidden], W2[act][hidden], b2[act]
  size_t filter;  // double[1 + 2 * obs]: count, means, sums of squared deviations
  size_t normal;  // float[2 * obs]: mean and 1/std that policies use in this iteration
  size_t
      // float[num_dirs][2], + and -: mean over environments of the sum of reward - shift over the steps that
      // counted
      returns;
  size_t tally;          // brim_rollout_tally[num_dirs][2]
  size_t episodes;       // brim_rollout_episode[eval_episodes]
  size_t figures;        // float[eval_episodes][sizes.figures], directly after the episodes
  size_t update;         // brim_rollout_update of the last update
  size_t scratch;        // memory for the chunk in work
  size_t scratch_bytes;  // grows with dir_chunk
} brim_rollout_layout;

typedef struct brim_rollout_update {
  double sigma;       // standard deviation of the kept returns
  double step_norm;   // norm of the change of theta
  double theta_norm;  // norm of theta after the update
  int32_t used;       // kept directions
  int32_t skipped;    // 1: no finite returns or no deviation, so theta did not change
} brim_rollout_update;

// The place where work runs: a stream of the device, or threads of this machine.
typedef struct brim_rollout_where {
  void *stream;
  int threads;
  // the caller's pool of `threads` threads; NULL = every call makes its own
  struct brim_pool *pool;
} brim_rollout_where;

typedef struct brim_rollout_job {
  int64_t iteration;  // from 0, below 2^32: part of the key of every random number
  int32_t first_dir, dirs;
  float noise_std;
  float shift;  // subtracted from the reward of every step in `returns`
} brim_rollout_job;

typedef struct brim_rollout_eval {
  // number of episodes; each has an environment of its own, from its own start to its end
  int32_t episodes;
  // 1: the baseline, all outputs of the policy are 0; a discrete policy takes the first allowed action
  int32_t zero;
  uint64_t stream;  // selects the random numbers; they never equal those of training
} brim_rollout_eval;

typedef struct brim_rollout_table {
  uint32_t abi;  // BRIM_ROLLOUT_ABI
  // BRIM_EINVAL for a bad shape; BRIM_EUNSUPPORTED if this thread's device cannot hold such a policy.
  brim_status (*layout)(const brim_rollout_shape *shape, brim_rollout_layout *out);
  // Sets theta to 0 (MLP: W1 and W2 to scaled normals from the seed), an empty filter, normal to (0, 1).
  brim_status (*init)(const brim_rollout_where *where, const brim_rollout_shape *shape,
                      void *block);
  // Rolls out the directions of a chunk: episode_length steps of every environment. On CUDA it enqueues; on the CPU
  // it returns when the work is done.
  brim_status (*run)(const brim_rollout_where *where, const brim_rollout_shape *shape, void *block,
                     const brim_rollout_job *job);
  // Call it after all chunks of an iteration. It keeps the best `top` directions by max(r+, r-) (0 = all), adds
  // step_size / (top * sigma) * sum (r+ - r-) delta to theta, and merges the statistics into the filter.
  brim_status (*update)(const brim_rollout_where *where, const brim_rollout_shape *shape,
                        void *block, int64_t iteration, int32_t top, float step_size);
  brim_status (*evaluate)(const brim_rollout_where *where, const brim_rollout_shape *shape,
                          void *block, const brim_rollout_eval *eval);
} brim_rollout_table;

// The table of the CPU.
const brim_rollout_table *brim_rollout_cpu(void);

// A recorded episode, in the caller's host memory.
typedef struct brim_rollout_record {
  int64_t capacity;  // in states
  float *frames;     // sizes.frame numbers for each state from the first to the last
  float *reward;     // reward of the step from each state; 0 for the last state, which has no step
  int64_t states;    // out: number of states
  int32_t outcome;   // out: brim_env_end
} brim_rollout_record;

// Records one episode of a policy on the CPU, for replays, with the same bits as that episode of the CPU's
// `evaluate`. theta and normal are host memory.
brim_status brim_rollout_trace(const brim_rollout_shape *shape, const float *theta,
                               const float *normal, const brim_rollout_eval *eval, int32_t episode,
                               brim_rollout_record *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RL_ROLLOUT_H_
