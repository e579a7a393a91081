// The row of the tests' environment. Like a plug-in, it needs only headers of brim.
#include "env/drift.h"

#include <math.h>
#include <stdio.h>

#define BRIM_ENV(name) drift_##name
#include "rl/rl_collect_each.h"
#include "rl/rl_rollout_each.h"

static drift_values of(const void *values) {
  drift_values v;
  memcpy(&v, values, sizeof v);
  return v;
}

static brim_env_sizes sizes(const void *values) {
  const drift_values v = of(values);
  return drift_sizes(&v);
}

static void defaults(int32_t stage, void *values) {
  drift_values v = of(values);
  v.agents = v.far ? 1 : 2;
  v.wind = stage ? 0.5f : 0.25f;
  v.own = 0;
  memcpy(values, &v, sizeof v);
}

static const char *problem(const void *values) {
  const drift_values v = of(values);
  if (v.agents < 1 || v.agents > drift_AGENTS) return "agents has to be from 1 to 4";
  return v.wind >= 0 && v.wind <= 1 ? NULL : "wind has to be from 0 to 1";
}

static int32_t length(int32_t stage, const void *values) {
  (void)values;
  return stage ? 60 : 30;
}

static double best(const void *values, int32_t steps) {
  (void)values;
  (void)steps;
  return HUGE_VAL;
}

static double zero(const void *values) {
  (void)values;
  return 0;
}

static void describe(const void *values, char *out, size_t size) {
  snprintf(out, size, "drift of %d", of(values).agents);
}

static void count(const void *values, int32_t steps, const brim_rollout_episode *episode,
                  const float *raw, double (*sums)[2]) {
  const drift_values v = of(values);
  drift_count(&v, steps, episode, raw, sums);
}

static brim_env_run_fn run(void) { return drift_run; }

static const brim_env_arg args[] = {
    {.name = "task",
     .type = BRIM_ENV_ARG_CHOICE,
     .offset = offsetof(drift_values, far),
     .choices = "near|far",
     .task = 1},
    {.name = "agents",
     .type = BRIM_ENV_ARG_INT,
     .offset = offsetof(drift_values, agents),
     .alias = "num_agents"},
    {.name = "wind",
     .type = BRIM_ENV_ARG_FLOAT,
     .offset = offsetof(drift_values, wind),
     .min = -9,
     .max = 9},
    {.name = "reward",
     .type = BRIM_ENV_ARG_CHOICE,
     .offset = offsetof(drift_values, own),
     .choices = "team|own"},
};

static const brim_metric figures[] = {{.key = "moves", .label = "moves a step"}};

static const char *const rules[] = {"homing", NULL};

const brim_env_row drift_row = {
    .abi = BRIM_ENV_ABI,
    .name = "drift",
    .args = args,
    .arg_count = sizeof args / sizeof *args,
    .ended = {"arrivals", "arrivals", "arrival rate", "arrivals", "arrival_rate",
              BRIM_BETTER_HIGHER},
    .figures = figures,
    .figure_count = sizeof figures / sizeof *figures,
    .rules = rules,
    .sizes = sizes,
    .defaults = defaults,
    .problem = problem,
    .length = length,
    .best = best,
    .seconds = zero,
    .flops = zero,
    .describe = describe,
    .count = count,
    .run = run,
    .collect = drift_collects,
};
