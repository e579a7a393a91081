// The entry of libbrim_cuda.so. It lists the backend of src/backend/cuda and the extension tables of the other
// rooms' kernels, and computes nothing.
#include "backend/cuda/cuda.h"
#include "data/transform/data_cuda.h"
#include "env/quadruped/quadruped_physics.h"
#include "rl/rl_fused.h"

// The tables that an environment's .cu file makes (rl_rollout_each.cuh, rl_collect_each.cuh,
// rl_fused_rollout.cuh), and the function that sets the host of all of them.
extern "C" {
extern const brim_rollout_table brim_cartpole_cuda, brim_quadruped_cuda, brim_uav_cuda;
extern const brim_collect_table brim_cartpole_collect_cuda, brim_uav_collect_cuda;
extern const brim_fused_rollout_table brim_cartpole_fused_rollout_cuda, brim_uav_fused_rollout_cuda;
void brim_cartpole_cuda_set_host(const brim_host_api *host);
void brim_quadruped_cuda_set_host(const brim_host_api *host);
void brim_uav_cuda_set_host(const brim_host_api *host);
}

static const brim_extension extensions[] = {
    {BRIM_AUGMENT_EXTENSION, &brim_data_cuda_augment},
    {BRIM_ROLLOUT_EXTENSION "cartpole", &brim_cartpole_cuda},
    {BRIM_ROLLOUT_EXTENSION "quadruped", &brim_quadruped_cuda},
    {BRIM_ROLLOUT_EXTENSION "uav", &brim_uav_cuda},
    {BRIM_COLLECT_EXTENSION "cartpole", &brim_cartpole_collect_cuda},
    {BRIM_COLLECT_EXTENSION "uav", &brim_uav_collect_cuda},
    {BRIM_FUSED_ROLLOUT_EXTENSION "cartpole", &brim_cartpole_fused_rollout_cuda},
    {BRIM_FUSED_ROLLOUT_EXTENSION "uav", &brim_uav_fused_rollout_cuda},
    {BRIM_PHYSICS_EXTENSION, &brim_env_cuda_physics},
    {BRIM_PPO_EXTENSION, &brim_ppo_cuda},
    {BRIM_FUSED_EXTENSION, &brim_fused_cuda},
};

static const brim_plugin plugin = {
    BRIM_PLUGIN_ABI,    "cuda",     "0.1.0",
    &brim_cuda_backend, extensions, sizeof extensions / sizeof *extensions,
};

extern "C" BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host,
                                                  const brim_plugin **out) {
  if (abi != BRIM_PLUGIN_ABI) return BRIM_EABI;
  BRIM_TRY(brim_cuda_start(host));
  brim_data_cuda_set_host(host);
  brim_cartpole_cuda_set_host(host);
  brim_quadruped_cuda_set_host(host);
  brim_uav_cuda_set_host(host);
  brim_env_cuda_set_physics_host(host);
  brim_ppo_cuda_set_host(host);
  brim_fused_cuda_set_host(host);
  *out = &plugin;
  return BRIM_OK;
}
