// The parts of multi-agent PPO between two networks and a rollout: drawing actions from an actor's outputs,
// advantages from a critic's, the rows of a minibatch, losses with their gradients. There is one table for the CPU
// and one for CUDA (the extension BRIM_PPO_EXTENSION). They know neither the networks nor the environment. Caller:
// the workload `mappo`.
//
// Order: [step][env][agent] everywhere. Row r = step * envs + env is a row of the critic and stands for the rows r
// * agents + agent of the actor. Number i of a minibatch is row rows[i] of the rollout. In the tensors of the
// networks it is row i of the critic and rows i * agents + agent of the actor.
//
// Memory: all pointers are the caller's memory on the device (host memory for the CPU's table); `scratch` returns
// the size of the scratch memory. CUDA enqueues on where->stream without waiting or allocating. Calls can be
// recorded: numbers that change between iterations (clock, statistics, valid rows) are read on the device.
//
// Bits: the CPU, with any number of threads, and CUDA give the same bits. Sums are taken in double and in an order
// that depends only on the sizes. exp and log are brim's own (hd/hd_exp.h).
//
// Value normalisation: the critic's outputs are normalised, value = output * std + mean. brim_ppo_norm has mean and
// std; both come from a debiased exponential average of the returns' moments over iterations. The order of an
// iteration is:
//   1. `advantages` reads the critic's outputs with the statistics of the last iteration. Advantages,
//      returns and old values are in units of the reward.
//   2. It then updates the statistics with the new returns.
//   3. `losses` of all epochs normalises returns (the targets) and old values with the new statistics.
//      So clipping compares three numbers on one scale.
// Without norm (NULL) the outputs are the values.
#ifndef BRIM_RL_PPO_H_
#define BRIM_RL_PPO_H_

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "brim/plugin.h"
#include "rl/rl_rollout.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_PPO_ABI 1
#define BRIM_PPO_EXTENSION "mappo.learn"

enum {
  BRIM_PPO_MAX_WIDTH = BRIM_ENV_MAX_CHOICES,  // columns of the actor's outputs
  BRIM_PPO_MAX_EPOCHS = 1 << 16               // most epochs of an iteration
};

typedef struct brim_ppo_shape {
  int32_t steps;    // T, steps of a rollout
  int32_t envs;     // E, environments
  int32_t agents;   // A, agents
  int32_t act;      // choices of an agent, at most BRIM_PPO_MAX_WIDTH
  int32_t rewards;  // R, rewards of a step: 1 (the team's) or `agents`
  int32_t finals;   // F, final states of truncated episodes that each environment keeps
  int64_t batch;    // most rows of the critic in a micro-batch; 0 = `losses` is not called
} brim_ppo_shape;

// Statistics of returns. All zero = no returns yet, the outputs are the values. Checkpoints keep them.
typedef struct brim_ppo_norm {
  double mean_sum, square_sum;  // exponential averages of mean and mean square, starting from 0
  double weight;                // exponential average of 1, the divisor of both
  float mean, std, inverse;     // the statistics in use; inverse = 1 / std
  float reserved;
} brim_ppo_norm;

// Moments of the advantages and returns of a rollout, in units of the reward.
typedef struct brim_ppo_moments {
  // mean and standard deviation of the finite numbers; std divides by their count
  double adv_mean, adv_std, ret_mean, ret_std;
  double explained;    // 1 - var(return - old value) / var(return); NaN if returns do not vary
  int64_t count;       // finite advantages
  int64_t bad;         // advantages that are not finite
  float shift, scale;  // a normalized advantage is (adv - shift) * scale; scale is 0 if they do
                       // not vary
} brim_ppo_moments;

// Sums since the caller cleared them, as doubles. Bad rows count only in ROWS, VALUES and BAD*.
enum {
  BRIM_PPO_ROWS,         // rows of the actor
  BRIM_PPO_BAD,          // bad rows of the actor: no allowed action, or a loss that is not finite
  BRIM_PPO_POLICY_LOSS,  // -min(ratio adv, clip(ratio) adv)
  BRIM_PPO_ENTROPY,
  BRIM_PPO_KL,       // ratio - 1 - log ratio, an estimate of the divergence from the old policy
  BRIM_PPO_CLIPPED,  // rows whose ratio is out of 1 +- clip
  // metrics before this one belong to the actor, those from here on to the critic
  BRIM_PPO_ACTOR_METRICS,
  BRIM_PPO_VALUES = BRIM_PPO_ACTOR_METRICS,  // values: rows of the critic times rewards
  BRIM_PPO_BAD_VALUES,                       // bad values: the loss is not finite
  BRIM_PPO_VALUE_LOSS,                       // clipped squared error or Huber, without value_coef
  BRIM_PPO_VALUE_CLIPPED,                    // values that moved by more than value_clip
  BRIM_PPO_ERROR,                            // normalised target - value, and its square
  BRIM_PPO_ERROR_SQUARE,
  BRIM_PPO_TARGET,         // normalised target, and its square: explained variance is
  BRIM_PPO_TARGET_SQUARE,  // 1 - var(error) / var(target)
  BRIM_PPO_METRIC_COUNT
};

//---------------------------------- calls ----------------------------------

// Draws an action for each row of outputs: action a has the probability softmax(outputs)[a] over the allowed
// actions. A draw depends on (seed, stream, *clock + t, first + row), so chunking changes nothing.
typedef struct brim_ppo_sample {
  brim_tensor outputs;  // (rows or more, act to BRIM_PPO_MAX_WIDTH): f32, bf16, f16
  int64_t rows;
  int64_t first;         // env * agents + agent of row 0
  const uint64_t *mask;  // (rows): bit a = action a is allowed; NULL = all are
  const uint64_t *clock;
  int32_t t;
  uint64_t seed, stream;  // stream 0: training; others: held out
  int32_t best;           // 1: takes the most probable action instead, the first of equals
  int32_t *action;        // (rows)
  float *logp;            // (rows) log probability of the action; NULL = not wanted
  // Counts rows without an allowed action or with an output that is not finite. Such rows get action 0 and log
  // probability 0.
  int64_t *bad;
} brim_ppo_sample;

// Generalised advantage estimation, backwards over the steps of each environment:
//   delta = (reward + gamma * next) - value;  adv = delta + gamma * lambda * adv of the next step
// in f32, each operation rounded. `next` is the value of the next state. If the episode terminated or diverged,
// it is 0; if it was truncated, the value of the final state, or 0 without one (final -1). In these cases the
// recursion starts again. At the last step `next` is the value of state T. Return = adv + value.
typedef struct brim_ppo_advantages {
  brim_tensor values;    // ((steps + 1 + finals) * envs or more, rewards or more): f32, bf16, f16
  const float *reward;   // (steps, envs, rewards)
  const int8_t *end;     // (steps, envs): brim_env_end
  const int32_t *final;  // (steps, envs): index of the final state; -1 = none
  float gamma, lambda;
  float beta;  // share of the averages that stays at each iteration, 0 to below 1
  // read, then updated; unchanged if returns are not finite; NULL = no normalisation
  brim_ppo_norm *norm;
  float *adv, *ret, *old;  // (steps, envs, rewards), results
  brim_ppo_moments *moments;
  void *scratch;
} brim_ppo_advantages;

// Writes numbers first to first + count - 1 of an epoch's order: a permutation of 0 to total - 1 that depends on
// (seed, *clock, epoch).
typedef struct brim_ppo_rows {
  uint64_t seed;
  const uint64_t *clock;  // below 2^48
  int32_t epoch;          // below BRIM_PPO_MAX_EPOCHS
  int64_t total;          // at most 2^31 - 1
  int64_t first, count;
  int32_t *rows;  // (count)
} brim_ppo_rows;

// The tensors of a network (brim_net_external_loss). Actor and critic have the same type.
typedef struct brim_ppo_net {
  brim_tensor output;    // (rows, width): f32, bf16, f16
  brim_tensor gradient;  // same shape and type as `output`; overwritten completely
  const double *state;   // BRIM_STATE_*: ROWS, GRAD_SCALE and LOSS_SCALE are read
} brim_ppo_net;

// Losses of a micro-batch. A row of the actor:
//   -min(ratio adv, clip(ratio, 1 - clip, 1 + clip) adv) - entropy * H,  ratio = exp(logp - old logp)
// A row of the critic, a mean over rewards with error e = value - target, all normalised:
//   value_coef * max(l(e), l(clip(value, old - value_clip, old + value_clip) - target))
// with l(e) = e^2 / 2, or huber * (|e| - huber / 2) if |e| > huber.
// Gradients are those of the sum over valid rows, times the network's GRAD_SCALE and LOSS_SCALE. Padding, masked
// actions, columns past act or rewards, and rows without an allowed action have gradient 0. If the loss of a row is
// not a number, its gradient is NaN, so that the step is skipped and counted.
typedef struct brim_ppo_losses {
  const int32_t *rows;    // (batch): rows of the rollout
  brim_ppo_net actor;     // (batch * agents, act to BRIM_PPO_MAX_WIDTH)
  brim_ppo_net critic;    // (batch, rewards or more)
  const uint64_t *mask;   // (batch, agents), in the order of `rows`; NULL = all actions are allowed
  const int32_t *action;  // (steps, envs, agents); action to old belong to the rollout
  const float *logp;      // (steps, envs, agents)
  const float *adv, *ret, *old;     // (steps, envs, rewards)
  const brim_ppo_norm *norm;        // NULL = off
  const brim_ppo_moments *moments;  // normalises advantages; NULL = they are used as they are
  float clip;
  float value_clip;  // 0 = off
  float value_coef, entropy;
  float huber;      // 0 = squared error
  double *metrics;  // BRIM_PPO_METRIC_COUNT sums, added to
  void *scratch;
} brim_ppo_losses;

typedef struct brim_ppo_table {
  uint32_t abi;  // BRIM_PPO_ABI
  // Returns the bytes that `advantages` and `losses` need, aligned to 256. BRIM_EINVAL for a bad shape.
  brim_status (*scratch)(const brim_ppo_shape *shape, size_t *bytes);
  brim_status (*sample)(const brim_rollout_where *where, const brim_ppo_shape *shape,
                        const brim_ppo_sample *work);
  brim_status (*advantages)(const brim_rollout_where *where, const brim_ppo_shape *shape,
                            const brim_ppo_advantages *work);
  brim_status (*rows)(const brim_rollout_where *where, const brim_ppo_rows *work);
  brim_status (*losses)(const brim_rollout_where *where, const brim_ppo_shape *shape,
                        const brim_ppo_losses *work);
} brim_ppo_table;

// The table of the CPU.
const brim_ppo_table *brim_ppo_cpu(void);
// The table in the CUDA plug-in (BRIM_PPO_EXTENSION). Set its host before any other call.
extern const brim_ppo_table brim_ppo_cuda;
void brim_ppo_cuda_set_host(const brim_host_api *host);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RL_PPO_H_
