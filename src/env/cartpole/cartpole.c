// The cart-pole's row, and its loop over environments.
#include "env/cartpole/cartpole.h"

#include <stdio.h>

#include "base/base_msg.h"

#define BRIM_ENV(name) brim_cartpole_##name
#include "env/env_collect_each.h"
#include "env/env_each.h"

static brim_cartpole_values of(const void *values) {
  brim_cartpole_values v;
  memcpy(&v, values, sizeof v);
  return v;
}

static brim_env_sizes sizes(const void *values) {
  const brim_cartpole_values v = of(values);
  return brim_cartpole_sizes(&v);
}

static void defaults(int32_t stage, void *values) {
  (void)stage;  // there is one
  const brim_cartpole_values v = {.reset = 0.05f};
  memcpy(values, &v, sizeof v);
}

static const char *problem(const void *values) {
  const float reset = of(values).reset;
  if (reset >= 0.0f && reset <= 1.0f) return NULL;
  return BRIM_N_("reset has to be from 0 to 1");
}

static int32_t length(int32_t stage, const void *values) {
  (void)stage;
  (void)values;
  return BRIM_CARTPOLE_LENGTH;
}

// 1 for every step.
static double best(const void *values, int32_t steps) {
  (void)values;
  return steps;
}

static double seconds(const void *values) {
  (void)values;
  return BRIM_CARTPOLE_STEP;
}

// Counted in cartpole.h: two series, the accelerations, four sums.
static double flops(const void *values) {
  (void)values;
  return 65;
}

static void describe(const void *values, char *out, size_t size) {
  (void)values;
  snprintf(out, size, "cartpole");
}

static brim_env_run_fn run(void) { return brim_cartpole_run; }

static const brim_env_arg args[] = {
    {"reset", BRIM_ENV_ARG_FLOAT, offsetof(brim_cartpole_values, reset), NULL, 0, NULL},
};

const brim_env_row brim_cartpole_row = {
    .abi = BRIM_ENV_ABI,
    .name = "cartpole",
    .config = "cartpole.yaml",
    .args = args,
    .arg_count = sizeof args / sizeof *args,
    .ended = {"falls", BRIM_N_("falls"), BRIM_N_("fall rate"), "falls", "fall_rate",
              BRIM_BETTER_LOWER},
    .once = 1,
    .sizes = sizes,
    .defaults = defaults,
    .problem = problem,
    .length = length,
    .best = best,
    .seconds = seconds,
    .flops = flops,
    .describe = describe,
    .run = run,
    .collect = brim_cartpole_collects,
};
