// What others need of the ars workload: the rollouts a config describes, and a policy out of its
// checkpoint, for who wants to look at it. Who calls: eval and render, the workload itself.
//
// A checkpoint of ars is one safetensors file with
//   policy.weight (8, 29)                                  linear, or
//   policy.0.weight (hidden, 29), policy.0.bias (hidden),  the MLP: relu between, tanh behind, named as
//   policy.2.weight (8, hidden), policy.2.bias (8)         PyTorch's Sequential names them
//   normal.mean, normal.rstd (29)                          f32: a policy sees (x - mean) * rstd
//   filter.count (1), filter.mean, filter.m2 (29)          f64: the statistics so far
// and in __metadata__, besides what every checkpoint has: brim.iteration, brim.env and brim.policy
// (JSON objects: the values of brim_quadruped and of brim_rollout_shape).
#ifndef BRIM_ARS_H_
#define BRIM_ARS_H_

#include "config/config.h"
#include "env/env_rollout.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_ARS_NORMAL = 2 * BRIM_QUADRUPED_OBS, BRIM_ARS_FILTER = 1 + 2 * BRIM_QUADRUPED_OBS };

// Which held-out episodes (brim_rollout_judge): those that a training is judged by while it goes on
// (and its best policy is chosen by), and those that nobody has chosen anything by.
enum { BRIM_ARS_STREAM_TRAINING = 0, BRIM_ARS_STREAM_HELD_OUT = 1 };

// A config as rollouts, the values of ars.phase filled in; BRIM_EINVAL says what does not go together.
brim_status brim_ars_shape(const brim_config *config, brim_rollout_shape *out);

// Floats of a policy.
size_t brim_ars_params(int32_t hidden);

typedef struct brim_ars_policy {
  float *theta;  // (params), as brim_rollout_layout has it; for brim_free
  size_t params;
  int64_t iteration;
  int filtered;  // 1: trained with ars.version=v2, 0: with v1, -1: the file does not say
  float normal[BRIM_ARS_NORMAL];
  double filter[BRIM_ARS_FILTER];  // count 0 where the file has none
} brim_ars_policy;

// Of a policy with so many hidden units (0: linear). Refused when it is another one, when the file is
// damaged, and when a number in it is not finite.
brim_status brim_ars_policy_read(const char *path, int32_t hidden, brim_ars_policy *out);
void brim_ars_policy_deinit(brim_ars_policy *policy);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ARS_H_
