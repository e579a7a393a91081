// The env room's kernels as the plug-in's door sees them (src/plugin/cuda): extension tables.
#ifndef BRIM_ENV_CUDA_H_
#define BRIM_ENV_CUDA_H_

#include "brim/plugin.h"
#include "env/env_collect.h"
#include "env/env_fused.h"
#include "env/env_physics.h"
#include "env/env_ppo.h"
#include "env/env_rollout.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rollouts of each environment: BRIM_ROLLOUT_EXTENSION and its name. What a table's entries report
// failures through is set before anything in it is called.
extern const brim_rollout_table brim_quadruped_cuda, brim_cartpole_cuda, brim_uav_cuda;
void brim_quadruped_cuda_set_host(const brim_host_api *host);
void brim_cartpole_cuda_set_host(const brim_host_api *host);
void brim_uav_cuda_set_host(const brim_host_api *host);

// Collected rollouts: BRIM_COLLECT_EXTENSION and the name. The functions above set their host too.
extern const brim_collect_table brim_cartpole_collect_cuda, brim_uav_collect_cuda;
// Fused ones: BRIM_FUSED_ROLLOUT_EXTENSION and the name; likewise.
extern const brim_fused_rollout_table brim_cartpole_fused_rollout_cuda, brim_uav_fused_rollout_cuda;

void brim_env_cuda_set_physics_host(const brim_host_api *host);
// BRIM_PHYSICS_EXTENSION.
extern const brim_physics_table brim_env_cuda_physics;

// BRIM_PPO_EXTENSION.
extern const brim_ppo_table brim_ppo_cuda;
void brim_ppo_cuda_set_host(const brim_host_api *host);

// BRIM_FUSED_EXTENSION.
extern const brim_fused_table brim_fused_cuda;
void brim_fused_cuda_set_host(const brim_host_api *host);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENV_CUDA_H_
