// Rollouts of the cart-pole on a GPU: the extensions "ars.rollout/cartpole", "mappo.collect/cartpole" and
// "mappo.rollout/cartpole".
#include "env/cartpole/cartpole.h"

#define BRIM_ENV(name) brim_cartpole_##name
#include "env/env_each.cuh"
// behind it
#include "env/env_collect.cuh"
#include "env/env_fused_rollout.cuh"
