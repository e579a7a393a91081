// Rollouts of the grid world on a GPU: the extensions "ars.rollout/uav", "mappo.collect/uav" and
// "mappo.rollout/uav".
#include "env/uav/uav.h"

#define BRIM_ENV(name) brim_uav_##name
#include "rl/rl_rollout_each.cuh"
// needs rl_rollout_each.cuh before it
#include "rl/rl_collect_each.cuh"
#include "rl/rl_fused_rollout.cuh"
