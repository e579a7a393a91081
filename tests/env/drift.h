// An environment that exists only in the tests: agents on a line of cells, each on its way to its own goal, while wind
// blows all of them to the right. It has several agents (their number is an argument), discrete actions with a mask,
// random events, episodes that terminate, and a figure. All numbers are exact.
#ifndef BRIM_TESTS_ENV_DRIFT_H_
#define BRIM_TESTS_ENV_DRIFT_H_

#include "env/env_step.h"

enum {
  drift_CELLS = 16,
  drift_OBS = 3,     // distance to the goal, the cell, 1
  drift_ACT = 3,     // stay, left, right
  drift_AGENTS = 4,  // the most
  drift_FIGURES = 1  // moves
};

typedef struct drift_values {
  int32_t far;     // task: goals are at the far end
  int32_t agents;  // 1 to drift_AGENTS
  float wind;      // probability of a gust in a step
  int32_t own;     // 1: each agent has a reward of its own
} drift_values;

typedef struct drift_state {
  int32_t moves;
  int32_t arrived;               // all agents are at their goals
  int32_t at[3 * drift_AGENTS];  // for each agent its cell, its goal, and the remaining distance
} drift_state;

typedef int32_t drift_action;

BRIM_HD brim_env_sizes drift_sizes(const drift_values *v) {
  brim_env_sizes z;
  z.kind = BRIM_ENV_DISCRETE;
  z.agents = v->agents;
  z.obs = drift_OBS;
  z.act = drift_ACT;
  z.global = v->agents;
  z.frame = v->agents;
  z.figures = drift_FIGURES;
  z.lanes = 1;
  z.rewards = v->own ? v->agents : 1;
  return z;
}

BRIM_HD int32_t drift_stored(const drift_values *v) { return (2 + 3 * v->agents) * 4; }

BRIM_HD void drift_reset(const drift_values *v, const brim_env_track *t, drift_state *s) {
  const brim_philox4 r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 0);
  s->moves = 0;
  s->arrived = 0;
  for (int i = 0; i < v->agents; i++) {
    s->at[i] = (int32_t)(r.v[i] % 8);
    s->at[v->agents + i] = v->far ? drift_CELLS - 1 - i : (int32_t)(r.v[i] >> 8) % 8 + i;
    s->at[2 * v->agents + i] = 0;
  }
}

BRIM_HD float drift_sees(const drift_values *v, const drift_state *s, int32_t agent,
                         int32_t index) {
  const int32_t cell = s->at[agent], goal = s->at[v->agents + agent];
  return index == 0   ? (float)(goal - cell) / drift_CELLS
         : index == 1 ? (float)cell / drift_CELLS
                      : 1.0f;
}

BRIM_HD int32_t drift_flags(const drift_values *v, const drift_state *s, int32_t agent,
                            uint32_t *out) {
  (void)v;
  (void)s;
  (void)agent;
  (void)out;
  return 0;
}

BRIM_HD void drift_observe(const drift_values *v, const drift_state *s, int32_t agent, float *out) {
  for (int i = 0; i < drift_OBS; i++) out[i] = drift_sees(v, s, agent, i);
}

BRIM_HD uint64_t drift_mask(const drift_values *v, const drift_state *s, int32_t agent) {
  (void)v;
  uint64_t mask = 7;
  if (s->at[agent] == 0) mask &= ~(uint64_t)2;
  if (s->at[agent] == drift_CELLS - 1) mask &= ~(uint64_t)4;
  return mask;
}

BRIM_HD brim_env_outcome drift_step(const drift_values *v, const brim_env_track *t, drift_state *s,
                                    const drift_action *action) {
  const brim_philox4 r = brim_env_draw(t->ids.event_key, &t->ids, t->episode, t->step);
  const int32_t gust = brim_rng_uniform(r.v[0]) < v->wind;
  int32_t away = 0;
  for (int i = 0; i < v->agents; i++) {
    int32_t cell = s->at[i] + (action[i] == 2 ? 1 : action[i] == 1 ? -1 : 0);
    s->moves += action[i] != 0;
    if (gust && cell < drift_CELLS - 1) cell++;
    const int32_t goal = s->at[v->agents + i], left = goal > cell ? goal - cell : cell - goal;
    s->at[i] = cell;
    s->at[2 * v->agents + i] = left;
    away += left;
  }
  s->arrived = away == 0;
  brim_env_outcome o;
  o.reward = away ? -(float)away / drift_CELLS : 4.0f;
  if (v->own && away) o.reward = o.reward / (float)v->agents;
  o.end = away ? BRIM_ENV_RUNNING : BRIM_ENV_TERMINATED;
  return o;
}

BRIM_HD float drift_share(const drift_values *v, const drift_state *s, int32_t agent) {
  return s->arrived ? 4.0f : -(float)s->at[2 * v->agents + agent] / drift_CELLS;
}

// 1: towards the goal.
BRIM_HD int32_t drift_rule(const drift_values *v, const drift_state *s, int32_t agent, int32_t rule,
                           uint32_t bits) {
  (void)bits;
  const int32_t way = s->at[v->agents + agent] - s->at[agent];
  return rule != 1 || way == 0 ? 0 : way < 0 ? 1 : 2;
}

BRIM_HD float drift_global_sees(const drift_values *v, const drift_state *s, int32_t index) {
  (void)v;
  return (float)s->at[index];
}

BRIM_HD void drift_global(const drift_values *v, const drift_state *s, float *out) {
  for (int i = 0; i < v->agents; i++) out[i] = drift_global_sees(v, s, i);
}

BRIM_HD void drift_frame(const drift_values *v, const drift_state *s, float *out) {
  drift_global(v, s, out);
}

BRIM_HD void drift_figures(const drift_values *v, const drift_state *s, float *out) {
  (void)v;
  out[0] = (float)s->moves;
}

BRIM_HD void drift_count(const drift_values *v, int32_t steps, const brim_rollout_episode *episode,
                         const float *raw, double (*sums)[2]) {
  (void)v;
  (void)steps;
  sums[0][0] += (double)raw[0];
  sums[0][1] += episode->length;
}

#endif  // BRIM_TESTS_ENV_DRIFT_H_
