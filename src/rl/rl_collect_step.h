// One environment of a collected rollout, a template over its header (env_step.h): the part that the CPU's
// loops (rl_collect_each.h) and the kernels (rl_collect_each.cuh) share. Without BRIM_ENV this is empty.
#ifdef BRIM_ENV
#include "rl/rl_collect_plan.h"

// Begins a new episode in s.
BRIM_HD void BRIM_ENV(collect_start)(const brim_collect_task *c, const BRIM_ENV(values) * v,
                                     int32_t env, const brim_collect_track *k,
                                     BRIM_ENV(state) * s) {
  const brim_env_track t = brim_collect_track_of(c, env, k);
  memset((void *)s, 0, (size_t)c->stored);  // padding too: states are compared byte by byte
  BRIM_ENV(reset)(v, &t, s);
}

// Makes one step in place, writes c->rewards numbers and returns a brim_env_end.
BRIM_HD int32_t BRIM_ENV(collect_move)(const brim_collect_task *c, const BRIM_ENV(values) * v,
                                       int32_t env, brim_collect_track *k, BRIM_ENV(state) * s,
                                       const int32_t *action, float *reward) {
  brim_env_track t = brim_collect_track_of(c, env, k);
  brim_env_outcome o = {0.0f, BRIM_ENV_DIVERGED};
  int known = 1;
  for (int32_t a = 0; a < c->agents; a++) known &= (uint32_t)action[a] < (uint32_t)c->act;
  if (known) o = BRIM_ENV(step)(v, &t, s, action);
  for (int32_t i = 0; i < c->rewards; i++) {
    float r = !known ? 0.0f : c->rewards > 1 ? BRIM_ENV(share)(v, s, i) : o.reward;
    if (!brim_collect_finite(r)) {
      r = 0.0f;
      o.end = BRIM_ENV_DIVERGED;
    }
    reward[i] = r;
  }
  brim_env_after(&t, o, c->length);
  k->step = t.step;
  k->reward = t.reward;
  return t.outcome;
}

// Records an episode that ended in s, and adds it to the sums of its environment.
BRIM_HD void BRIM_ENV(collect_note)(const brim_collect_task *c, const BRIM_ENV(values) * v,
                                    int32_t env, const brim_collect_track *k,
                                    const BRIM_ENV(state) * s, int32_t end) {
  float raw[BRIM_ENV(FIGURES) + 1] = {0.0f};
  brim_rollout_episode e;
  e.reward = (float)k->reward;
  e.length = k->step;
  e.outcome = end;
  c->episodes[env] = e;
  if (c->figures) BRIM_ENV(figures)(v, s, raw);
  for (int32_t i = 0; i < c->figures; i++) c->figure[(int64_t)env * c->figures + i] = raw[i];
  brim_collect_tally *sum = &c->sums[env];
  sum->episodes++;
  sum->terminated += end == BRIM_ENV_TERMINATED;
  sum->truncated += end == BRIM_ENV_TRUNCATED;
  sum->diverged += end == BRIM_ENV_DIVERGED;
  sum->reward += k->reward;
  sum->reward_sq += k->reward * k->reward;
  sum->length += (double)k->step;
  BRIM_ENV(count)(v, c->length, &e, raw, sum->figures);
}

// Begins the next episode of an environment, if it has one.
BRIM_HD void BRIM_ENV(collect_next)(const brim_collect_task *c, const BRIM_ENV(values) * v,
                                    int32_t env, brim_collect_track *k, BRIM_ENV(state) * s,
                                    int32_t end) {
  if (brim_collect_restarts(c, end)) {
    k->episode++;
    k->step = 0;
    k->reward = 0.0;
    BRIM_ENV(collect_start)(c, v, env, k, s);
  }
  if (c->once) k->step = -1;
}

BRIM_HD int32_t BRIM_ENV(collect_choose)(const brim_collect_task *c, const BRIM_ENV(values) * v,
                                         int32_t env, int32_t agent, const BRIM_ENV(state) * s,
                                         int32_t rule) {
  const brim_collect_track *k = &c->tracks[env];
  brim_env_ids ids = brim_collect_ids(c, env);
  ids.dir = (uint32_t)agent;
  const brim_philox4 bits = brim_env_draw(c->rule_key, &ids, k->episode, k->step);
  if (rule) return BRIM_ENV(rule)(v, s, agent, rule, bits.v[0]);
  return brim_env_any(BRIM_ENV(mask)(v, s, agent), bits.v[0]);
}

// Returns number `index` of a critic's row.
BRIM_HD float BRIM_ENV(collect_critic)(const brim_collect_task *c, const BRIM_ENV(values) * v,
                                       const BRIM_ENV(state) * s, int32_t index) {
  if (c->global) return BRIM_ENV(global_sees)(v, s, index);
  return BRIM_ENV(sees)(v, s, index / c->obs, index % c->obs);
}

#endif  // BRIM_ENV
