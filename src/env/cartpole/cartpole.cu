// Rollouts of the cart-pole on a GPU: the extension "ars.rollout/cartpole".
#include "env/cartpole/cartpole.h"

#define BRIM_ENV(name) brim_cartpole_##name
#include "env/env_each.cuh"
