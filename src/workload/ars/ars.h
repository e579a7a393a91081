// What others need of the ars workload: the rollouts a config describes, and a policy out of its
// checkpoint, for who wants to look at it. Who calls: eval and render, the workload itself.
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
#include "env/env_rollout.h"

#ifdef __cplusplus
extern "C" {
#endif

// Which held-out episodes (brim_rollout_judge): those that a training is judged by while it goes on
// (and its best policy is chosen by), and those that nobody has chosen anything by.
enum { BRIM_ARS_STREAM_TRAINING = 0, BRIM_ARS_STREAM_HELD_OUT = 1 };

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

// Of a policy for such rollouts. Refused when it is another one, when the file is damaged, and when a
// number in it is not finite.
brim_status brim_ars_policy_read(const char *path, const brim_rollout_shape *shape,
                                 brim_ars_policy *out);
void brim_ars_policy_deinit(brim_ars_policy *policy);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ARS_H_
