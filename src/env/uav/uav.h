// UAVs in a grid world with obstacles: they cover all free cells together, or fly to goals of their own.
// docs/uav.md has rules and rewards. All of it is arithmetic of integers, so that CPU and CUDA give the
// same bits. rules=peer is the environment that others measure, for comparison.
#ifndef BRIM_UAV_H_
#define BRIM_UAV_H_

#include "env/uav/uav_reset.h"
#include "env/uav/uav_rule.h"
#include "env/uav/uav_state.h"
#include "env/uav/uav_step.h"
#include "env/uav/uav_view.h"

#ifdef __cplusplus
extern "C" {
#endif
// The row of env: uav(...).
extern const brim_env_row brim_uav_row;
#ifdef __cplusplus
}
#endif

#endif  // BRIM_UAV_H_
