// Rollouts of the tests' environment on a GPU.
#include "env/drift.h"

#define BRIM_ENV(name) drift_##name
#include "rl/rl_rollout_each.cuh"
// behind it
#include "rl/rl_collect_each.cuh"
