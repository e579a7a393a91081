// The quadruped's physics alone, some steps at a time, on a GPU: the extension "quadruped.step". It uses the form
// of the physics that rollouts use, so tests can compare with MuJoCo what rollouts run. Callers: tests and
// benchmarks.
#ifndef BRIM_ENV_QUADRUPED_PHYSICS_H_
#define BRIM_ENV_QUADRUPED_PHYSICS_H_

#include "brim/plugin.h"
#include "env/quadruped/quadruped.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_PHYSICS_ABI 1
#define BRIM_PHYSICS_EXTENSION "quadruped.step"

// Positions and velocities in MuJoCo's order. After a step it also has contacts and solves of the first evaluation.
typedef struct brim_physics_state {
  float qpos[15], qvel[14], act[BRIM_QUADRUPED_ACT];
  int32_t touch[4];  // QUAD_TOUCH_* per leg: points nearer to the floor than the margin
  int32_t newton;    // solves; the largest number among the states that ran together with this one
  int32_t open;      // 1: the active set was still changing at QUAD_NEWTON_CAP
} brim_physics_state;

typedef struct brim_physics_table {
  uint32_t abi;  // BRIM_PHYSICS_ABI
  // Makes `steps` steps of each of `count` states in device memory, in place. Enqueues on the stream.
  brim_status (*step)(void *stream, const brim_quadruped *env, brim_physics_state *states,
                      int64_t count, int32_t steps);
} brim_physics_table;

// The table in the CUDA plug-in. Set its host before any other call.
extern const brim_physics_table brim_env_cuda_physics;
void brim_env_cuda_set_physics_host(const brim_host_api *host);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENV_QUADRUPED_PHYSICS_H_
