// A plug-in with an environment of its own: a walker on a line of cells, on its way to a goal at one of the
// ends. brim trains it with ars and mappo. It includes headers of brim's sources and links nothing of
// brim. From the folder of the sources:
//   cc -shared -fPIC -O2 -ffp-contract=off -Isrc -Iinclude examples/env/plugin_walk.c -lm -o walk.so
//   brim train ars --plugin ./walk.so env=plugin:walk --device cpu
//   brim train mappo --plugin ./walk.so 'env=plugin:walk(cells=20)' --device cpu
#include <brim/plugin.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "env/env_step.h"
#include "rl/rl_collect.h"

//---------------------------------- dynamics ----------------------------------

// Capacities. OBS: the way to the goal, to the left end, and 1. ACT: left, right.
enum { walk_OBS = 3, walk_ACT = 2, walk_AGENTS = 1, walk_FIGURES = 0 };

typedef struct walk_values {
  int32_t cells;
} walk_values;

typedef struct walk_state {
  int32_t at, goal;
} walk_state;

typedef int32_t walk_action;

BRIM_HD brim_env_sizes walk_sizes(const walk_values *v) {
  (void)v;
  brim_env_sizes z = {0};
  z.kind = BRIM_ENV_DISCRETE;
  z.agents = 1;
  z.obs = walk_OBS;
  z.act = walk_ACT;
  z.lanes = 1;
  z.rewards = 1;
  return z;
}

BRIM_HD int32_t walk_stored(const walk_values *v) {
  (void)v;
  return (int32_t)sizeof(walk_state);
}

// A new episode. Draws are functions of seed, environment, episode and step.
BRIM_HD void walk_reset(const walk_values *v, const brim_env_track *t, walk_state *s) {
  const brim_philox4 r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 0);
  s->goal = r.v[0] & 1 ? v->cells - 1 : 0;
  s->at = v->cells / 2;
}

BRIM_HD brim_env_outcome walk_step(const walk_values *v, const brim_env_track *t, walk_state *s,
                                   const walk_action *action) {
  (void)t;
  s->at += action[0] ? 1 : -1;
  if (s->at < 0) s->at = 0;
  if (s->at >= v->cells) s->at = v->cells - 1;
  brim_env_outcome o;
  o.end = s->at == s->goal ? BRIM_ENV_TERMINATED : BRIM_ENV_RUNNING;
  o.reward = s->at == s->goal ? 1.0f : -1.0f / (float)v->cells;
  return o;
}

// One number of an observation, and all of them.
BRIM_HD float walk_sees(const walk_values *v, const walk_state *s, int32_t agent, int32_t index) {
  (void)agent;
  const float cells = (float)v->cells;
  return index == 0 ? (float)(s->goal - s->at) / cells : index == 1 ? (float)s->at / cells : 1.0f;
}

BRIM_HD void walk_observe(const walk_values *v, const walk_state *s, int32_t agent, float *out) {
  for (int i = 0; i < walk_OBS; i++) out[i] = walk_sees(v, s, agent, i);
}

// Both actions are allowed everywhere.
BRIM_HD uint64_t walk_mask(const walk_values *v, const walk_state *s, int32_t agent) {
  (void)v, (void)s, (void)agent;
  return 3;
}

// Parts it has no use for: leading flags of an observation, rewards of single agents, baselines, a state
// for a critic, numbers for a replay, figures of an episode and their sums.
BRIM_HD int32_t walk_flags(const walk_values *v, const walk_state *s, int32_t agent,
                           uint32_t *out) {
  (void)v, (void)s, (void)agent, (void)out;
  return 0;
}
BRIM_HD float walk_share(const walk_values *v, const walk_state *s, int32_t agent) {
  (void)v, (void)s, (void)agent;
  return 0;
}
BRIM_HD int32_t walk_rule(const walk_values *v, const walk_state *s, int32_t agent, int32_t rule,
                          uint32_t bits) {
  (void)v, (void)s, (void)agent, (void)rule, (void)bits;
  return 0;
}
BRIM_HD float walk_global_sees(const walk_values *v, const walk_state *s, int32_t index) {
  (void)v, (void)s, (void)index;
  return 0;
}
BRIM_HD void walk_global(const walk_values *v, const walk_state *s, float *out) {
  (void)v, (void)s, (void)out;
}
BRIM_HD void walk_frame(const walk_values *v, const walk_state *s, float *out) {
  (void)v, (void)s, (void)out;
}
BRIM_HD void walk_figures(const walk_values *v, const walk_state *s, float *out) {
  (void)v, (void)s, (void)out;
}
BRIM_HD void walk_count(const walk_values *v, int32_t steps, const brim_rollout_episode *episode,
                        const float *raw, double (*sums)[2]) {
  (void)v, (void)steps, (void)episode, (void)raw, (void)sums;
}

// The loops over environments: of ars and evaluations, and of mappo.
#define BRIM_ENV(name) walk_##name
#include "rl/rl_collect_each.h"
#include "rl/rl_rollout_each.h"

//---------------------------------- the row ----------------------------------

static walk_values of(const void *values) {
  walk_values v;
  memcpy(&v, values, sizeof v);
  return v;
}

static brim_env_sizes sizes(const void *values) {
  const walk_values v = of(values);
  return walk_sizes(&v);
}

static void defaults(int32_t stage, void *values) {
  const walk_values v = {.cells = 12};
  (void)stage;
  memcpy(values, &v, sizeof v);
}

static const char *problem(const void *values) {
  const int32_t cells = of(values).cells;
  return cells >= 4 && cells <= 1000 ? NULL : "cells has to be from 4 to 1000";
}

static int32_t length(int32_t stage, const void *values) {
  (void)stage;
  return 2 * of(values).cells;
}

static double best(const void *values, int32_t steps) {
  (void)values, (void)steps;
  return HUGE_VAL;
}

static double none(const void *values) {
  (void)values;
  return 0;
}

static void describe(const void *values, char *out, size_t size) {
  snprintf(out, size, "walk over %d cells", of(values).cells);
}

static bool valid(const void *values, const void *state) {
  walk_state s;
  const int32_t cells = of(values).cells;
  memcpy(&s, state, sizeof s);
  return s.at >= 0 && s.at < cells && (s.goal == 0 || s.goal == cells - 1);
}

static brim_env_run_fn run(void) { return walk_run; }

static const brim_env_arg args[] = {{.name = "cells",
                                     .type = BRIM_ENV_ARG_INT,
                                     .offset = offsetof(walk_values, cells),
                                     .default_text = "12",
                                     .min = 4,
                                     .max = 1000,
                                     .meaning = "cells of the line"}};

static const brim_env_row walk_row = {
    .abi = BRIM_ENV_ABI,
    .name = "walk",
    .args = args,
    .arg_count = 1,
    .ended = {"arrivals", "arrivals", "arrival rate", "arrivals", "arrival_rate",
              BRIM_BETTER_HIGHER},
    .sizes = sizes,
    .defaults = defaults,
    .problem = problem,
    .length = length,
    .best = best,
    .seconds = none,
    .flops = none,
    .describe = describe,
    .run = run,
    .collect = walk_collects,
    .valid = valid,
};

//---------------------------------- the plug-in ----------------------------------

static const brim_extension extensions[] = {{BRIM_ENV_EXTENSION "walk", &walk_row}};

static const brim_plugin plugin = {.abi = BRIM_PLUGIN_ABI,
                                   .name = "walk",
                                   .version = "1",
                                   .extensions = extensions,
                                   .extension_count = 1};

BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host,
                                       const brim_plugin **out) {
  (void)host;
  if (abi != BRIM_PLUGIN_ABI) return BRIM_EABI;
  *out = &plugin;
  return BRIM_OK;
}
