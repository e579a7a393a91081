// One step of an environment under a policy, a template over the header of an environment (env_step.h): the
// part that the loops of the CPU (rl_rollout_each.h) and of a GPU (rl_rollout_each.cuh) share. Without
// BRIM_ENV this is empty.
#ifdef BRIM_ENV
#include "env/env_step.h"
#include "rl/rl_rollout_plan.h"

// The values that all environments of a part share.
typedef struct BRIM_ENV(scene) {
  const BRIM_ENV(values) * values;
  const float *policy;  // packed; NULL = all outputs are 0
  const float *normal;  // mean and 1/std
  int32_t hidden;
  int32_t length;  // steps after which an episode is cut off
} BRIM_ENV(scene);

// Makes one step. If `stats` is not NULL, adds what the agents observe: the sum of number i to stats[i * stride],
// and the sums of squares after all these sums.
BRIM_HD brim_env_outcome BRIM_ENV(advance)(const BRIM_ENV(scene) * c, const brim_env_track *t,
                                           BRIM_ENV(state) * s, double *stats, int32_t stride) {
  const brim_env_sizes z = BRIM_ENV(sizes)(c->values);
  const brim_rollout_net net = brim_rollout_net_of(z, c->hidden);
  const int discrete = z.kind == BRIM_ENV_DISCRETE;
  BRIM_ENV(action) action[BRIM_ENV(AGENTS) * BRIM_ENV(ACT)];
  int lost = 0;
  for (int32_t agent = 0; agent < z.agents; agent++) {
    float x[BRIM_ENV(OBS)], y[BRIM_ENV(ACT)];
    BRIM_ENV(observe)(c->values, s, agent, x);
    for (int32_t j = 0; j < z.obs; j++) {
      x[j] = x[j] - c->normal[j];
      const double d = (double)x[j];
      if (stats) {
        stats[j * stride] += d;
        stats[(z.obs + j) * stride] += d * d;
      }
      x[j] = x[j] * c->normal[z.obs + j];
    }
    if (c->policy) {
      brim_rollout_outputs(net, c->policy, x, y);
    } else {
      for (int32_t a = 0; a < z.act; a++) y[a] = 0.0f;
    }
    if (discrete) {
      const int32_t choice = brim_rollout_choose(y, z.act, BRIM_ENV(mask)(c->values, s, agent));
      lost |= choice < 0;
      action[agent] = (BRIM_ENV(action))(choice < 0 ? 0 : choice);
    } else {
      for (int32_t a = 0; a < z.act; a++) {
        const float value = brim_rollout_clamp(y[a], c->hidden);
        lost |= !(value == value);
        action[agent * z.act + a] = (BRIM_ENV(action))value;
      }
    }
  }
  if (lost) {  // without a valid action the episode ends as diverged
    const brim_env_outcome none = {0.0f, BRIM_ENV_DIVERGED};
    return none;
  }
  return BRIM_ENV(step)(c->values, t, s, action);
}

#endif  // BRIM_ENV
