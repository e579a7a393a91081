// Rollouts of the grid world on a GPU: the extensions "ars.rollout/uav" and "mappo.collect/uav".
#include "env/uav/uav.h"

#define BRIM_ENV(name) brim_uav_##name
#include "env/env_each.cuh"
// behind it
#include "env/env_collect.cuh"
