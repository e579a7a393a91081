// An environment that exists in the tests alone: agents on a line of cells, each on its way to a goal of its
// own, while wind blows all of them to the right. Several agents, as many as an argument says, discrete
// actions with a mask, random events, episodes that are terminated, a figure. All numbers are exact.
#ifndef BRIM_TESTS_ENV_DRIFT_H_
#define BRIM_TESTS_ENV_DRIFT_H_

#include "env/env_track.h"

enum {
  drift_CELLS = 16,
  drift_OBS = 3,     // how far the goal is, the cell, 1
  drift_ACT = 3,     // stay, left, right
  drift_AGENTS = 4,  // at most
  drift_FIGURES = 1  // moves
};

typedef struct drift_values {
  int32_t far;     // task: goals are at the other end
  int32_t agents;  // 1 to drift_AGENTS
  float wind;      // probability of a gust in a step
} drift_values;

typedef struct drift_state {
  int32_t cell[drift_AGENTS], goal[drift_AGENTS], moves;
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
  return z;
}

BRIM_HD void drift_reset(const drift_values *v, const brim_env_track *t, drift_state *s) {
  const brim_philox4 r = brim_env_draw(t->who.start_key, &t->who, t->episode, 0);
  s->moves = 0;
  for (int i = 0; i < drift_AGENTS; i++) {
    s->cell[i] = (int32_t)(r.v[i] % 8);
    s->goal[i] = v->far ? drift_CELLS - 1 - i : (int32_t)(r.v[i] >> 8) % 8 + i;
  }
}

BRIM_HD void drift_observe(const drift_values *v, const drift_state *s, int32_t agent, float *out) {
  (void)v;
  out[0] = (float)(s->goal[agent] - s->cell[agent]) / drift_CELLS;
  out[1] = (float)s->cell[agent] / drift_CELLS;
  out[2] = 1.0f;
}

BRIM_HD uint64_t drift_mask(const drift_values *v, const drift_state *s, int32_t agent) {
  (void)v;
  uint64_t mask = 7;
  if (s->cell[agent] == 0) mask &= ~(uint64_t)2;
  if (s->cell[agent] == drift_CELLS - 1) mask &= ~(uint64_t)4;
  return mask;
}

BRIM_HD brim_env_outcome drift_step(const drift_values *v, const brim_env_track *t, drift_state *s,
                                    const drift_action *action) {
  const brim_philox4 r = brim_env_draw(t->who.event_key, &t->who, t->episode, t->step);
  const int32_t gust = brim_rng_uniform(r.v[0]) < v->wind;
  int32_t away = 0;
  for (int i = 0; i < v->agents; i++) {
    s->cell[i] += action[i] == 2 ? 1 : action[i] == 1 ? -1 : 0;
    s->moves += action[i] != 0;
    if (gust && s->cell[i] < drift_CELLS - 1) s->cell[i]++;
    away += s->goal[i] > s->cell[i] ? s->goal[i] - s->cell[i] : s->cell[i] - s->goal[i];
  }
  brim_env_outcome o;
  o.reward = away ? -(float)away / drift_CELLS : 4.0f;
  o.end = away ? BRIM_ENV_RUNNING : BRIM_ENV_TERMINATED;
  return o;
}

BRIM_HD void drift_global(const drift_values *v, const drift_state *s, float *out) {
  for (int i = 0; i < v->agents; i++) out[i] = (float)s->cell[i];
}

BRIM_HD void drift_frame(const drift_values *v, const drift_state *s, float *out) {
  drift_global(v, s, out);
}

BRIM_HD void drift_figures(const drift_values *v, const drift_state *s, float *out) {
  (void)v;
  out[0] = (float)s->moves;
}

#endif  // BRIM_TESTS_ENV_DRIFT_H_
