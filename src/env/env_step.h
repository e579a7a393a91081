// The contract of an environment's header, and what such a header may use: the track of an episode and random
// choices. The loops over environments (src/rl/*_each.h for the CPU, *_each.cuh for a GPU) are templates over the
// header. The header of an environment NAME defines the following, where BRIM_ENV(x) is brim_NAME_##x:
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
//   float sees(values, state, agent, index)     number `index` of them: a thread of a GPU writes one
//   int32_t flags(values, state, agent, uint32_t *)   how many leading numbers of an observation are always
//                                    0 or 1, and their bits: number i is bit i % 32 of word i / 32, the
//                                    rest is 0. NULL for the words: only the count. A GPU writes flags
//                                    faster than `sees`; 0 = it calls `sees` for all numbers
//   uint64_t mask(values, state, agent)         discrete: bit a is set where action a is allowed
//   brim_env_outcome step(values, track, state *, action *)
//   float share(values, state, agent)           an agent's reward in the last step, which `step` keeps in
//                                    the state if sizes.rewards is `agents`. The outcome's reward is
//                                    their mean. Not called if sizes.rewards is 1
//   void global(values, state, float *)         sizes.global numbers, for a critic
//   float global_sees(values, state, index)     number `index` of them. With sizes.global 0 a critic sees
//                                    the observations of all agents, one behind the other
//   int32_t stored(values)           leading bytes of the state in use with these settings, a multiple
//                                    of 4 and of the state's alignment; the rest is never touched
//   int32_t rule(values, state, agent, rule, uint32_t bits)   discrete: the action of a baseline of
//                                    the row, from what the agent observes; `rule` counts from 1, `bits`
//                                    are random
//   void frame(values, state, float *)          sizes.frame numbers, for a replay
//   void figures(values, state, float *)        sizes.figures numbers of an episode that ended
//   void count(values, steps, episode, raw, double (*sums)[2])   discrete: brim_env_row.count, for a
//                                    GPU that adds episodes up where they end. It only adds, since sums
//                                    of several environments are added up later
//
// All are BRIM_HD, take values and state by pointer to const unless noted, and round alike on host and
// device: brim_fma where one rounding is needed.
#ifndef BRIM_ENV_STEP_H_
#define BRIM_ENV_STEP_H_

#include "env/env.h"
#include "env/env_random.h"

// The progress of an environment in its rollout. Its header draws by brim_env_draw(t->ids.event_key, &t->ids,
// t->episode, n), where t->step is a part of n; it is below BRIM_ENV_MAX_STEPS.
typedef struct brim_env_track {
  brim_env_ids ids;
  int32_t episode;  // number of the episode in the rollout
  int32_t step;     // step of the episode
  int32_t steps, terminated, truncated, diverged;
  int32_t outcome;  // end of the last episode: brim_env_end
  double reward;    // sum over all steps
} brim_env_track;

// The result of a step.
typedef struct brim_env_outcome {
  float reward;
  int32_t end;  // brim_env_end
} brim_env_outcome;

BRIM_HD brim_env_track brim_env_track_of(brim_env_ids ids) {
  brim_env_track t;
  t.ids = ids;
  t.episode = t.step = 0;
  t.steps = t.terminated = t.truncated = t.diverged = 0;
  t.outcome = BRIM_ENV_RUNNING;
  t.reward = 0.0;
  return t;
}

// Counts a step; true if the episode is over. A reward that is not finite counts as 0 and ends the episode as
// diverged.
BRIM_HD int brim_env_after(brim_env_track *t, brim_env_outcome o, int32_t length) {
  t->steps++;
  t->step++;
  if (!(o.reward - o.reward == 0.0f)) {
    o.reward = 0.0f;
    o.end = BRIM_ENV_DIVERGED;
  }
  t->reward += (double)o.reward;
  if (o.end == BRIM_ENV_RUNNING && t->step >= length) o.end = BRIM_ENV_TRUNCATED;
  t->outcome = o.end;
  t->terminated += o.end == BRIM_ENV_TERMINATED;
  t->truncated += o.end == BRIM_ENV_TRUNCATED;
  t->diverged += o.end == BRIM_ENV_DIVERGED;
  return o.end != BRIM_ENV_RUNNING;
}

// Returns a random allowed action, all equally likely; 0 if none is allowed. For discrete actions.
BRIM_HD int32_t brim_env_any(uint64_t mask, uint32_t bits) {
  int32_t count = 0;
  for (uint64_t left = mask; left; left &= left - 1) count++;
  uint32_t skip = brim_mulhi32(bits, (uint32_t)count);
  for (; skip; skip--) mask &= mask - 1;
  int32_t action = 0;
  while (mask && !(mask >> action & 1)) action++;
  return action;
}

#endif  // BRIM_ENV_STEP_H_
