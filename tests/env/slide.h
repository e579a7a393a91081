// A second environment for the tests alone, with continuous actions: two agents push one weight towards 0, along a line
// with friction, each along one of two axes.
#ifndef BRIM_TESTS_ENV_SLIDE_H_
#define BRIM_TESTS_ENV_SLIDE_H_

#include "env/env_step.h"

enum { slide_OBS = 2, slide_ACT = 1, slide_AGENTS = 2, slide_FIGURES = 0 };

typedef struct slide_values {
  int32_t none;
} slide_values;

typedef struct slide_state {
  float at[2], speed[2];
} slide_state;

typedef float slide_action;

BRIM_HD brim_env_sizes slide_sizes(const slide_values *v) {
  (void)v;
  brim_env_sizes z;
  z.kind = BRIM_ENV_CONTINUOUS;
  z.agents = slide_AGENTS;
  z.obs = slide_OBS;
  z.act = slide_ACT;
  z.global = 0;
  z.frame = 2;
  z.figures = slide_FIGURES;
  z.lanes = 1;
  z.rewards = 1;
  return z;
}

BRIM_HD void slide_reset(const slide_values *v, const brim_env_track *t, slide_state *s) {
  (void)v;
  const brim_philox4 r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 0);
  for (int i = 0; i < 2; i++) {
    s->at[i] = brim_env_signed(r.v[i]);
    s->speed[i] = brim_env_signed(r.v[2 + i]);
  }
}

BRIM_HD int32_t slide_stored(const slide_values *v) {
  (void)v;
  return (int32_t)sizeof(slide_state);
}

BRIM_HD float slide_sees(const slide_values *v, const slide_state *s, int32_t agent,
                         int32_t index) {
  (void)v;
  return index ? s->speed[agent] : s->at[agent];
}

BRIM_HD int32_t slide_flags(const slide_values *v, const slide_state *s, int32_t agent,
                            uint32_t *out) {
  (void)v;
  (void)s;
  (void)agent;
  (void)out;
  return 0;
}

BRIM_HD void slide_observe(const slide_values *v, const slide_state *s, int32_t agent, float *out) {
  for (int i = 0; i < slide_OBS; i++) out[i] = slide_sees(v, s, agent, i);
}

BRIM_HD uint64_t slide_mask(const slide_values *v, const slide_state *s, int32_t agent) {
  (void)v;
  (void)s;
  (void)agent;
  return 0;
}

BRIM_HD brim_env_outcome slide_step(const slide_values *v, const brim_env_track *t, slide_state *s,
                                    const slide_action *action) {
  (void)v;
  (void)t;
  float cost = 0.0f;
  for (int i = 0; i < 2; i++) {
    s->speed[i] = 0.9f * s->speed[i] + 0.25f * action[i];
    s->at[i] = s->at[i] + 0.25f * s->speed[i];
    cost = cost + s->at[i] * s->at[i] + 0.01f * (action[i] * action[i]);
  }
  brim_env_outcome o;
  o.reward = -cost;
  o.end = cost > 9.0f ? BRIM_ENV_TERMINATED : BRIM_ENV_RUNNING;
  return o;
}

BRIM_HD float slide_share(const slide_values *v, const slide_state *s, int32_t agent) {
  (void)v;
  (void)s;
  (void)agent;
  return 0.0f;
}

BRIM_HD int32_t slide_rule(const slide_values *v, const slide_state *s, int32_t agent, int32_t rule,
                           uint32_t bits) {
  (void)v;
  (void)s;
  (void)agent;
  (void)rule;
  (void)bits;
  return 0;
}

BRIM_HD float slide_global_sees(const slide_values *v, const slide_state *s, int32_t index) {
  (void)v;
  (void)s;
  (void)index;
  return 0.0f;
}

BRIM_HD void slide_global(const slide_values *v, const slide_state *s, float *out) {
  (void)v;
  (void)s;
  (void)out;
}

BRIM_HD void slide_frame(const slide_values *v, const slide_state *s, float *out) {
  (void)v;
  out[0] = s->at[0];
  out[1] = s->at[1];
}

BRIM_HD void slide_figures(const slide_values *v, const slide_state *s, float *out) {
  (void)v;
  (void)s;
  (void)out;
}

#endif  // BRIM_TESTS_ENV_SLIDE_H_
