// The workload ars for other rooms: the rollouts that a config describes, and the policy of a checkpoint.
// Callers: eval and render, the workload itself.
//
// A checkpoint of ars is one safetensors file with
//   policy.weight (act, obs)                                linear, or
//   policy.0.weight (hidden, obs), policy.0.bias (hidden),  the MLP: relu between and, of continuous
//   policy.2.weight (act, hidden), policy.2.bias (act)      actions, tanh behind; named as PyTorch's
//                                                           Sequential names them
//   normal.mean, normal.rstd (obs)                          f32: a policy sees (x - mean) * rstd
//   filter.count (1), filter.mean, filter.m2 (obs)          f64: the statistics so far
// and in __metadata__, besides what every checkpoint has: brim.iteration, brim.env and brim.policy
// (JSON objects: the environment's name and arguments, and the values of brim_rollout_shape).
#ifndef BRIM_ARS_H_
#define BRIM_ARS_H_

#include "backend/backend.h"
#include "config/config.h"
#include "rl/rl_rollout.h"

// Streams of held-out episodes (brim_rollout_eval): of evaluations while training, which choose the best
// policy, and of evaluations that choose nothing.
enum { BRIM_ARS_STREAM_TRAINING = 0, BRIM_ARS_STREAM_HELD_OUT = 1 };

//---------------------------------- returns ----------------------------------

// Sums over episodes of a policy, which can be added up; brim_returns_* make figures of them.
typedef struct brim_ars_returns {
  int64_t count;       // returns: of a direction's sign in training, of episodes in an evaluation
  double sum, sum_sq;  // of them; 0 returns = nothing is known
  // Of an evaluation: all episodes. Of training: those that began. An episode that a rollout cuts off did not
  // fall, and after a fall an environment cannot reach the limit of steps any more.
  int64_t episodes;
  int64_t ended;     // of them that were terminated; where that is bad, diverged ones among them
  int64_t diverged;  // episodes that diverged
  int64_t steps;     // environment steps, of all of them
  double figure[BRIM_ENV_MAX_FIGURES]
               [2];  // the environment's, of an evaluation (brim_env_row.count)
} brim_ars_returns;

// NaN where it is not known.
double brim_returns_mean(const brim_ars_returns *r);
double brim_returns_error(const brim_ars_returns *r);  // of the mean

// Packed as brim_work_metrics.sums, with the pairs of the figures last. Version 0.1 wrote only the first
// figure: its lists are a prefix of these.
enum { BRIM_ARS_SUMS_0_1 = 9, BRIM_ARS_SUMS = 7 + 2 * BRIM_ENV_MAX_FIGURES };
void brim_returns_pack(const brim_ars_returns *r, double out[BRIM_ARS_SUMS]);
brim_ars_returns brim_returns_unpack(const double v[BRIM_ARS_SUMS]);

// Rows of what it measures.
enum {
  BRIM_ARS_RETURN,
  BRIM_ARS_SPREAD,
  BRIM_ARS_ENDED,       // episodes
  BRIM_ARS_ENDED_RATE,  // the same as a share
  BRIM_ARS_DIVERGED,
  BRIM_ARS_LENGTH,
  BRIM_ARS_EPISODES,
  BRIM_ARS_ERROR,  // of the return; in no file
  BRIM_ARS_UPDATE_NORM,
  BRIM_ARS_POLICY_NORM,
  BRIM_ARS_SIGMA,
  BRIM_ARS_ROWS  // the environment's figures follow
};
void brim_returns_values(const brim_ars_returns *r, double values[BRIM_METRIC_MAX]);

// A config as rollouts, the values of ars.phase filled in; BRIM_EINVAL says what does not go together.
// `registry` has the environments of plug-ins; NULL: only brim's own.
brim_status brim_ars_shape(const brim_config *config, const brim_registry *registry,
                           brim_rollout_shape *out);

typedef struct brim_ars_policy {
  float *theta;    // (params), as brim_rollout_layout has it
  float *normal;   // (2, obs)
  double *filter;  // (1 + 2 obs); count 0 where the file has none
  size_t params;
  int64_t iteration;
  int filtered;  // 1: trained with ars.version=v2, 0: with v1, -1: the file does not say
} brim_ars_policy;

// Reads a policy for such rollouts. Fails for another kind of policy, a damaged file, or a number that is not
// finite.
brim_status brim_ars_policy_read(const char *path, const brim_rollout_shape *shape,
                                 brim_ars_policy *out);
void brim_ars_policy_deinit(brim_ars_policy *policy);

#endif  // BRIM_ARS_H_
