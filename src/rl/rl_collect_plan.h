// Collected rollouts as the CPU's loops (rl_collect_each.h) and the kernels (rl_collect_each.cuh) share them:
// the layout of the block of memory, and everything that does not depend on the environment.
#ifndef BRIM_RL_COLLECT_PLAN_H_
#define BRIM_RL_COLLECT_PLAN_H_

#include "env/env_step.h"
#include "rl/rl_collect.h"
#include "rl/rl_rollout_plan.h"

// How far an environment is. Its random numbers are keyed by (seed, stream) and counted by environment,
// episode and step, never by the rollout.
typedef struct brim_collect_track {
  double reward;    // of the episode
  int32_t episode;  // of the run
  int32_t step;     // of the episode; -1: with `once`, it has ended
} brim_collect_track;

enum {
  BRIM_COLLECT_ALIGN = 16,                            // bytes, of a state in the block
  BRIM_COLLECT_WORDS = 7 + 2 * BRIM_ENV_MAX_FIGURES,  // of a tally, 8 bytes each
  BRIM_COLLECT_COUNTS = 4  // words at the start of a tally that are int64; the others are double
};

// What the loops of a rollout read: numbers of the shape, and pointers into the block.
typedef struct brim_collect_task {
  int32_t envs, steps, length;
  int32_t once;  // 1: every environment runs one episode
  int32_t agents, obs, act, rewards, critic;
  int32_t global;   // numbers of the environment's global observation; 0 = none
  int32_t figures;  // numbers of an episode in `figure`
  int32_t stored;   // bytes of a state that are in use
  int32_t state_bytes;
  brim_env_ids ids;   // of environment 0
  uint64_t rule_key;  // key of the random actions of a baseline
  char *states;
  brim_collect_track *tracks;
  brim_collect_clock *clock;
  float *reward;                   // (steps, envs, rewards)
  int8_t *end;                     // (steps, envs)
  int32_t *final;                  // (steps, envs)
  int32_t *action;                 // (steps, envs, agents)
  brim_rollout_episode *episodes;  // (envs)
  float *figure;                   // (envs, figures)
  brim_collect_tally *sums;        // (envs)
  brim_collect_tally *parts;       // (parts of the environments)
  brim_collect_tally *tally;       // one
} brim_collect_task;

// Work of the CPU's loops, which run it for a range of environments, or of rows of a view.
typedef struct brim_collect_work {
  const void *env;  // the environment's values
  brim_collect_task task;
  const brim_collect_view *view;  // of `look`
  int64_t rows;                   // that exist
  int32_t t, rule;
} brim_collect_work;

typedef void (*brim_collect_fn)(const brim_collect_work *work, int64_t begin, int64_t end);

// The loops of an environment (brim_env_row.collect), made by rl_collect_each.h.
typedef struct brim_collect_each {
  int32_t (*stored)(const void *values);  // below 1: the sizes contradict each other
  brim_collect_fn reset, look, choose, step;
  void (*frame)(const void *values, const void *state, float *out);
} brim_collect_each;

//---------------------------------- the block ----------------------------------

static inline brim_env_sizes brim_collect_sizes(const brim_collect_shape *s) {
  return s->row->sizes(s->env.bytes);
}

// Names what is wrong with a shape, as a message of the catalogue; NULL = nothing.
static inline const char *brim_collect_problem(const brim_collect_shape *s) {
  if (s->num_envs < 1 || s->num_envs > BRIM_ENV_MAX_ENVS) {
    return BRIM_N_("num_envs has to be from 1 to 16777216");
  }
  if (s->steps < 1 || s->steps > BRIM_ENV_MAX_STEPS) {
    return BRIM_N_("a rollout has to have 1 to 1048576 steps");
  }
  if (s->episode_length < 1 || s->episode_length > BRIM_ENV_MAX_STEPS) {
    return BRIM_N_("episode_length has to be from 1 to 1048576 steps");
  }
  const brim_env_sizes z = brim_collect_sizes(s);
  const char *problem = brim_rollout_sizes_problem(z, 0);
  if (problem) return problem;
  if ((int64_t)z.agents * z.obs > BRIM_ROLLOUT_MAX_PACKED) {
    return BRIM_N_("the agents together observe more than 16777216 numbers");
  }
  // rows are numbered in 32 bits
  const int64_t slots = s->steps + 2 + (int64_t)s->steps / s->episode_length;
  if (slots * s->num_envs > INT32_MAX) {
    return BRIM_N_("a rollout has more than 2147483647 states; use fewer environments or steps");
  }
  return s->row->problem(s->env.bytes);
}

// `stored`: bytes of a state that are in use.
static inline void brim_collect_layout_of(const brim_collect_shape *s, int32_t stored,
                                          brim_collect_layout *out) {
  const brim_env_sizes z = brim_collect_sizes(s);
  const size_t envs = (size_t)s->num_envs, steps = (size_t)s->steps, agents = (size_t)z.agents;
  size_t next = 0;
  out->envs = s->num_envs;
  out->steps = s->steps;
  out->agents = z.agents;
  out->obs = z.obs;
  out->act = z.act;
  out->finals = (s->steps + s->episode_length - 1) / s->episode_length;
  out->slots = s->steps + 1 + out->finals;
  out->rewards = z.rewards > 1 ? z.rewards : 1;
  out->critic = z.global ? z.global : z.agents * z.obs;
  out->state_bytes =
      ((size_t)stored + BRIM_COLLECT_ALIGN - 1) / BRIM_COLLECT_ALIGN * BRIM_COLLECT_ALIGN;
  // what a run carries along, contiguous
  out->tracks = brim_rollout_place(&next, envs * sizeof(brim_collect_track));
  out->clock = brim_rollout_place(&next, sizeof(brim_collect_clock));
  out->sums = brim_rollout_place(&next, envs * sizeof(brim_collect_tally));
  out->episodes = brim_rollout_place(
      &next, envs * (sizeof(brim_rollout_episode) + (size_t)z.figures * sizeof(float)));
  out->figures = out->episodes + envs * sizeof(brim_rollout_episode);
  const size_t carried = next;
  out->tally = brim_rollout_place(&next, sizeof(brim_collect_tally));
  out->scratch = brim_rollout_place(
      &next, (size_t)brim_rollout_parts(s->num_envs) * sizeof(brim_collect_tally));
  out->reward = brim_rollout_place(&next, steps * envs * (size_t)out->rewards * sizeof(float));
  out->end = brim_rollout_place(&next, steps * envs * sizeof(int8_t));
  out->final = brim_rollout_place(&next, steps * envs * sizeof(int32_t));
  out->action = brim_rollout_place(&next, steps * envs * agents * sizeof(int32_t));
  out->logp = brim_rollout_place(&next, steps * envs * agents * sizeof(float));
  out->states = brim_rollout_place(&next, (size_t)out->slots * envs * out->state_bytes);
  out->bytes = next;
  out->saved[0].offset = out->states + steps * envs * out->state_bytes;
  out->saved[0].bytes = envs * out->state_bytes;
  out->saved[1].offset = out->tracks;
  out->saved[1].bytes = carried - out->tracks;
}

static inline brim_collect_task brim_collect_task_of(const brim_collect_shape *s,
                                                     const brim_collect_layout *at, int32_t stored,
                                                     void *block) {
  const brim_env_sizes z = brim_collect_sizes(s);
  char *base = (char *)block;
  brim_collect_task c;
  c.envs = s->num_envs;
  c.steps = s->steps;
  c.length = s->episode_length;
  c.once = s->once;
  c.agents = z.agents;
  c.obs = z.obs;
  c.act = z.act;
  c.rewards = at->rewards;
  c.critic = at->critic;
  c.global = z.global;
  c.figures = z.figures;
  c.stored = stored;
  c.state_bytes = (int32_t)at->state_bytes;
  c.ids = s->stream == BRIM_COLLECT_TRAINING ? brim_env_training(s->seed, 0, 0, 0)
                                             : brim_env_held_out(s->seed, s->stream, 0);
  c.rule_key = brim_rng_key(c.ids.event_key, BRIM_RNG_RULE);
  c.states = base + at->states;
  c.tracks = (brim_collect_track *)(void *)(base + at->tracks);
  c.clock = (brim_collect_clock *)(void *)(base + at->clock);
  c.reward = (float *)(void *)(base + at->reward);
  c.end = (int8_t *)(base + at->end);
  c.final = (int32_t *)(void *)(base + at->final);
  c.action = (int32_t *)(void *)(base + at->action);
  c.episodes = (brim_rollout_episode *)(void *)(base + at->episodes);
  c.figure = (float *)(void *)(base + at->figures);
  c.sums = (brim_collect_tally *)(void *)(base + at->sums);
  c.parts = (brim_collect_tally *)(void *)(base + at->scratch);
  c.tally = (brim_collect_tally *)(void *)(base + at->tally);
  return c;
}

// Names what is wrong with a view, as a message of the catalogue; NULL = nothing.
static inline const char *brim_collect_view_problem(const brim_collect_layout *at, int64_t envs,
                                                    int32_t obs, const brim_collect_view *v) {
  const brim_collect_output *outputs[] = {&v->actor, &v->critic};
  const int32_t widths[] = {obs, at->critic};
  if (v->count < 0 || (!v->rows && (v->first < 0 || v->first > at->slots * envs - v->count))) {
    return BRIM_N_("the rows to look at are not in the rollout");
  }
  for (int i = 0; i < 2; i++) {
    const brim_collect_output *o = outputs[i];
    if (!o->data) continue;
    if (o->dtype != BRIM_F32 && o->dtype != BRIM_BF16 && o->dtype != BRIM_F16) {
      return BRIM_N_("observations are written as f32, bf16 or f16");
    }
    if (o->pitch < widths[i]) return BRIM_N_("an observation does not fit into a row");
    if ((uintptr_t)o->data % 16 != 0) {
      return BRIM_N_("observations have to begin at a multiple of 16 bytes");
    }
  }
  return NULL;
}

//---------------------------------- environments ----------------------------------

BRIM_HD brim_env_ids brim_collect_ids(const brim_collect_task *c, int32_t env) {
  brim_env_ids ids = c->ids;
  ids.env = (uint32_t)env;
  return ids;
}

// The track that the functions of an environment take.
BRIM_HD brim_env_track brim_collect_track_of(const brim_collect_task *c, int32_t env,
                                             const brim_collect_track *k) {
  brim_env_track t = brim_env_track_of(brim_collect_ids(c, env));
  t.episode = k->episode;
  t.step = k->step;
  t.reward = k->reward;
  return t;
}

BRIM_HD char *brim_collect_state(const brim_collect_task *c, int64_t row) {
  return c->states + row * c->state_bytes;
}

BRIM_HD int brim_collect_finite(float x) { return x - x == 0.0f; }

// True if an environment begins a new episode after `end`. With `once` only after it
// diverged: its state may hold NaN.
BRIM_HD int brim_collect_restarts(const brim_collect_task *c, int32_t end) {
  return c->once ? end == BRIM_ENV_DIVERGED : end != BRIM_ENV_RUNNING;
}

// The slot that keeps the final state of an episode truncated at step t; -1 = none. Truncations of an
// environment are at least c->length steps apart, so each has its own.
BRIM_HD int32_t brim_collect_final(const brim_collect_task *c, int32_t t, int32_t end) {
  return end == BRIM_ENV_TRUNCATED && !c->once ? t / c->length : -1;
}

// The sum of word `word` of `count` tallies, in their order.
BRIM_HD void brim_collect_add_word(const brim_collect_tally *from, int32_t count, int32_t word,
                                   brim_collect_tally *out) {
  const char *at = (const char *)from + (size_t)word * 8;
  char *to = (char *)out + (size_t)word * 8;
  if (word < BRIM_COLLECT_COUNTS) {
    int64_t sum = 0;
    for (int32_t i = 0; i < count; i++) {
      sum += *(const int64_t *)(const void *)(at + (size_t)i * sizeof *from);
    }
    *(int64_t *)(void *)to = sum;
  } else {
    double sum = 0;
    for (int32_t i = 0; i < count; i++) {
      sum += *(const double *)(const void *)(at + (size_t)i * sizeof *from);
    }
    *(double *)(void *)to = sum;
  }
}

#endif  // BRIM_RL_COLLECT_PLAN_H_
