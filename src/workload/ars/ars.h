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

// Streams of held-out episodes (brim_rollout_eval). Evaluations while training choose the best policy, so
// later evaluations use other episodes.
enum { BRIM_ARS_STREAM_TRAINING = 0, BRIM_ARS_STREAM_HELD_OUT = 1 };

//---------------------------------- returns ----------------------------------

// Sums over episodes of a policy. They can be added up; brim_returns_* compute figures from them.
typedef struct brim_ars_returns {
  int64_t count;  // returns: one per sign of a direction in training, per episode in an evaluation
  double sum, sum_sq;  // sums over the returns
  // Evaluation: all episodes. Training: episodes begun, including those that the end of a rollout cut off.
  int64_t episodes;
  int64_t
      ended;  // terminated episodes; also diverged ones if the environment calls termination bad
  int64_t diverged;  // episodes that diverged
  int64_t steps;     // environment steps of all episodes
  // The environment's own figures, in an evaluation only (brim_env_row.count).
  double figure[BRIM_ENV_MAX_FIGURES][2];
} brim_ars_returns;

// Mean return, and its standard error; NaN if there are too few returns.
double brim_returns_mean(const brim_ars_returns *r);
double brim_returns_error(const brim_ars_returns *r);

// Packed as brim_work_metrics.sums, with the pairs of the figures last. Version 0.1 wrote only the first
// figure: its lists are a prefix of these.
enum { BRIM_ARS_SUMS_0_1 = 9, BRIM_ARS_SUMS = 7 + 2 * BRIM_ENV_MAX_FIGURES };
void brim_returns_pack(const brim_ars_returns *r, double out[BRIM_ARS_SUMS]);
brim_ars_returns brim_returns_unpack(const double v[BRIM_ARS_SUMS]);

// Rows of metrics.
enum {
  BRIM_ARS_RETURN,
  BRIM_ARS_SPREAD,
  BRIM_ARS_ENDED,       // number of terminated episodes
  BRIM_ARS_ENDED_RATE,  // share of terminated episodes
  BRIM_ARS_DIVERGED,
  BRIM_ARS_LENGTH,
  BRIM_ARS_EPISODES,
  BRIM_ARS_ERROR,  // standard error of the return; not written to files
  BRIM_ARS_UPDATE_NORM,
  BRIM_ARS_POLICY_NORM,
  BRIM_ARS_SIGMA,
  BRIM_ARS_ROWS  // the environment's figures follow
};
void brim_returns_values(const brim_ars_returns *r, double values[BRIM_METRIC_MAX]);

// Reads the shape of rollouts from a config, with the values of ars.phase filled in. BRIM_EINVAL if values
// contradict each other. `registry` has the environments of plug-ins; NULL = only brim's own.
brim_status brim_ars_shape(const brim_config *config, const brim_registry *registry,
                           brim_rollout_shape *out);

typedef struct brim_ars_policy {
  float *theta;    // (params), in the order of brim_rollout_layout
  float *normal;   // (2, obs)
  double *filter;  // (1 + 2 obs): count, mean, m2; count 0 if the file has no filter
  size_t params;
  int64_t iteration;
  int filtered;  // 1: trained with ars.version=v2, 0: with v1, -1: the file does not say
} brim_ars_policy;

// Reads a policy that fits `shape`. Fails for another kind of policy, a damaged file, or a number that is not
// finite.
brim_status brim_ars_policy_read(const char *path, const brim_rollout_shape *shape,
                                 brim_ars_policy *out);
void brim_ars_policy_deinit(brim_ars_policy *policy);

#endif  // BRIM_ARS_H_
