// Rollouts of the tests' second environment on a GPU.
#include "env/slide.h"

#define BRIM_ENV(name) slide_##name
#include "env/env_each.cuh"
