// One step of an environment under a policy, a template over the header of an environment: what the
// loops of the CPU (env_each.h) and of a GPU (env_each.cuh) have in common. An environment NAME has a
// header that defines, by way of BRIM_ENV(x), which is brim_NAME_##x:
//
//   enum { BRIM_ENV(OBS), BRIM_ENV(ACT), BRIM_ENV(AGENTS), BRIM_ENV(FIGURES) }   capacities; AGENTS and
//                                    ACT at least 1, discrete ACT at most 64
//   BRIM_ENV(values)                 its settings: plain values, at most BRIM_ENV_VALUES bytes
//   BRIM_ENV(state)                  of one environment, without pointers
//   BRIM_ENV(action)                 int32_t: discrete, a choice for each agent; float: continuous, ACT
//                                    numbers from -1 to 1 for each agent
//   brim_env_sizes sizes(values)     the sizes with these settings, within the capacities
//   void reset(values, track, state *)          a new episode: all of it from brim_env_draw
//   void observe(values, state, agent, float *) sizes.obs numbers
//   float sees(values, state, agent, index)     number `index` of them, alone: a thread of a GPU writes one
//   int32_t flags(values, state, agent, uint32_t *)   how many numbers of an observation, from the first on,
//                                    are always 0 or 1, and those: number i is bit i % 32 of word i / 32,
//                                    bits behind the last are 0. Without a place for them the count alone.
//                                    A GPU writes them faster than sees can; 0 = it asks sees for all
//   uint64_t mask(values, state, agent)         discrete: bit a is set where action a is allowed
//   brim_env_outcome step(values, track, state *, action *)
//   float share(values, state, agent)           an agent's own reward of the last step, which step keeps in
//                                    the state where sizes.rewards is `agents`. The outcome's reward is
//                                    the mean of them. With sizes.rewards 1 nothing calls share
//   void global(values, state, float *)         sizes.global numbers, for a critic
//   float global_sees(values, state, index)     number `index` of them. With sizes.global 0 a critic sees
//                                    the observations of all agents, one behind the other
//   int32_t stored(values)           leading bytes of the state that are in use with these settings, a
//                                    multiple of 4 and of the state's alignment; nothing reads or writes
//                                    what lies behind them
//   int32_t rule(values, state, agent, rule, uint32_t bits)   discrete: the action a baseline of the row
//                                    takes, by what the agent observes; `rule` counts from 1, `bits` are
//                                    random
//   void frame(values, state, float *)          sizes.frame numbers, for a replay
//   void figures(values, state, float *)        sizes.figures numbers of an episode that ended
//   void count(values, steps, episode, raw, double (*sums)[2])   discrete: brim_env_row.count, for a GPU to
//                                    add episodes up where they end. It only adds: sums of several
//                                    environments are added up afterwards
//
// All are BRIM_HD, take values and state by pointer to const unless noted, and round alike on host and
// device: brim_fma where one rounding is needed. Without BRIM_ENV this is empty.
#ifdef BRIM_ENV
#include "env/env_policy.h"
#include "env/env_track.h"

// What the environments of a part have in common.
typedef struct BRIM_ENV(scene) {
  const BRIM_ENV(values) * values;
  const float *policy;  // packed; NULL = all outputs 0
  const float *normal;  // mean and 1/std
  int32_t hidden;
  int32_t length;  // steps after which an episode is cut off
} BRIM_ENV(scene);

// Statistics of what an agent sees go to stats + i * stride for the sum of number i, behind all of them
// the sums of squares; NULL = none are kept.
BRIM_HD brim_env_outcome BRIM_ENV(advance)(const BRIM_ENV(scene) * c, const brim_env_track *t,
                                           BRIM_ENV(state) * s, double *stats, int32_t stride) {
  const brim_env_sizes z = BRIM_ENV(sizes)(c->values);
  const brim_env_net net = brim_env_net_of(z, c->hidden);
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
      brim_env_outputs(net, c->policy, x, y);
    } else {
      for (int32_t a = 0; a < z.act; a++) y[a] = 0.0f;
    }
    if (discrete) {
      const int32_t choice = brim_env_choose(y, z.act, BRIM_ENV(mask)(c->values, s, agent));
      lost |= choice < 0;
      action[agent] = (BRIM_ENV(action))(choice < 0 ? 0 : choice);
    } else {
      for (int32_t a = 0; a < z.act; a++) {
        const float value = brim_env_clamp(y[a], c->hidden);
        lost |= !(value == value);
        action[agent * z.act + a] = (BRIM_ENV(action))value;
      }
    }
  }
  if (lost) {  // a policy that is no number acts in no way
    const brim_env_outcome none = {0.0f, BRIM_ENV_DIVERGED};
    return none;
  }
  return BRIM_ENV(step)(c->values, t, s, action);
}

#endif  // BRIM_ENV
