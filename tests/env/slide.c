// The row of the tests' second environment.
#include "env/slide.h"

#include <math.h>
#include <stdio.h>

#define BRIM_ENV(name) slide_##name
#include "rl/rl_rollout_each.h"

static brim_env_sizes sizes(const void *values) {
  (void)values;
  const slide_values v = {0};
  return slide_sizes(&v);
}

static void defaults(int32_t stage, void *values) {
  (void)stage;
  memset(values, 0, sizeof(slide_values));
}

static const char *problem(const void *values) {
  (void)values;
  return NULL;
}

static int32_t length(int32_t stage, const void *values) {
  (void)stage;
  (void)values;
  return 40;
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
  (void)values;
  snprintf(out, size, "slide");
}

static brim_env_run_fn run(void) { return slide_run; }

const brim_env_row slide_row = {
    .abi = BRIM_ENV_ABI,
    .name = "slide",
    .ended = {"lost", "lost", "loss rate", "lost", "loss_rate", BRIM_BETTER_LOWER},
    .sizes = sizes,
    .defaults = defaults,
    .problem = problem,
    .length = length,
    .best = best,
    .seconds = zero,
    .flops = zero,
    .describe = describe,
    .run = run,
};
