// Rollouts of the cart-pole on a GPU: the extensions "ars.rollout/cartpole", "mappo.collect/cartpole" and
// "mappo.rollout/cartpole".
#include "env/cartpole/cartpole.h"

#define BRIM_ENV(name) brim_cartpole_##name
#include "rl/rl_rollout_each.cuh"
// needs rl_rollout_each.cuh before it
#include "rl/rl_collect_each.cuh"
#include "rl/rl_fused_rollout.cuh"
