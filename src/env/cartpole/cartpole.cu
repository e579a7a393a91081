// Rollouts of the cart-pole on a GPU: the extensions "ars.rollout/cartpole" and "mappo.collect/cartpole".
#include "env/cartpole/cartpole.h"

#define BRIM_ENV(name) brim_cartpole_##name
#include "env/env_each.cuh"
// behind it
#include "env/env_collect.cuh"
