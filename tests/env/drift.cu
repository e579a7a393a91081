// Rollouts of the tests' environment on a GPU.
#include "env/drift.h"

#define BRIM_ENV(name) drift_##name
#include "env/env_each.cuh"
// behind it
#include "env/env_collect.cuh"
