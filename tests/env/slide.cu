// Rollouts of the tests' second environment on a GPU.
#include "env/slide.h"

#define BRIM_ENV(name) slide_##name
#include "rl/rl_rollout_each.cuh"
