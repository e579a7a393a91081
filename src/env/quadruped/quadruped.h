// The quadruped's values and row. docs/quadruped.md explains the terms; quadruped_episode.h and quadruped_task.h
// have the task, quadruped_step.h the physics.
#ifndef BRIM_QUADRUPED_H_
#define BRIM_QUADRUPED_H_

#include <string.h>

#include "env/env.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_QUADRUPED_OBS 29  // qpos 15, qvel 14
#define BRIM_QUADRUPED_ACT 8

typedef enum brim_quadruped_task { BRIM_QUADRUPED_STAND, BRIM_QUADRUPED_WALK } brim_quadruped_task;

// The settings of the quadruped, the same for all its instances (docs/quadruped.md explains the terms).
typedef struct brim_quadruped {
  int32_t task;        // brim_quadruped_task
  int32_t rk4;         // 0: Euler with implicit joint damping
  int32_t frame_skip;  // physics steps of an environment step
  float timestep;      // 0.01
  float margin;        // 0.01 up to MuJoCo 3.4, 0.02 from 3.5 on
  float reset_pos;     // at a start, qpos is uniform within this of its rest
  float reset_vel;     // at a start, qvel is normal with this standard deviation
  float push_speed;    // a push adds at most this to the torso's velocity, m/s; 0 = no pushes
  int32_t push_every;  // environment steps from a push to the next, on average
  float action_scale;  // factor of the policy's outputs; actions are then clamped to [-1, 1]
} brim_quadruped;

// Reads the settings from the values of a brim_rollout_shape.
static inline brim_quadruped brim_quadruped_of(const void *values) {
  brim_quadruped e;
  memcpy(&e, values, sizeof e);
  return e;
}

// The row of env: quadruped(...).
extern const brim_env_row brim_quadruped_row;

// A frame for replay: qpos, then the velocity a push added to the torso before the step.
enum { BRIM_QUADRUPED_QPOS = 15, BRIM_QUADRUPED_FRAME = 18 };

#define BRIM_WALK_SPEED 1.0  // m/s; a run from this speed on counts as walking

#ifdef __cplusplus
}
#endif
#endif  // BRIM_QUADRUPED_H_
