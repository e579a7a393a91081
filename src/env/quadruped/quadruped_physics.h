// The quadruped's physics alone, a step at a time, on a GPU: the extension "quadruped.step". It has the same
// form of the physics as rollouts, so tests compare with MuJoCo what rollouts run.
// Callers: tests and benchmarks.
#ifndef BRIM_ENV_QUADRUPED_PHYSICS_H_
#define BRIM_ENV_QUADRUPED_PHYSICS_H_

#include "brim/plugin.h"
#include "env/quadruped/quadruped.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_PHYSICS_ABI 1
#define BRIM_PHYSICS_EXTENSION "quadruped.step"

// Positions and velocities in MuJoCo's order; after a step the contacts and solves of its first evaluation.
typedef struct brim_physics_state {
  float qpos[15], qvel[14], act[BRIM_QUADRUPED_ACT];
  int32_t touch[4];  // QUAD_TOUCH_* by legs: points nearer to the floor than the margin
  int32_t newton;    // solves, the most of the states that ran in step with this one
  int32_t open;      // 1: the active set was still changing at the cap
} brim_physics_state;

typedef struct brim_physics_table {
  uint32_t abi;  // BRIM_PHYSICS_ABI
  // `steps` steps of each of `count` states in device memory, in place. Enqueues on the stream.
  brim_status (*step)(void *stream, const brim_quadruped *env, brim_physics_state *states,
                      int64_t count, int32_t steps);
} brim_physics_table;

// The one in the CUDA plug-in. Its host is set before anything in it is called.
extern const brim_physics_table brim_env_cuda_physics;
void brim_env_cuda_set_physics_host(const brim_host_api *host);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENV_QUADRUPED_PHYSICS_H_
