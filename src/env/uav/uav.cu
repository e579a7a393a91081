// Rollouts of the grid world on a GPU: the extensions "ars.rollout/uav", "mappo.collect/uav" and
// "mappo.rollout/uav".
#include "env/uav/uav.h"

#define BRIM_ENV(name) brim_uav_##name
#include "env/env_each.cuh"
// behind it
#include "env/env_collect.cuh"
#include "env/env_fused_rollout.cuh"
