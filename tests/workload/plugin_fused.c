// Fused kernels of mappo as a GPU's plug-in offers them, made of the tests' loops and the CPU's tables, for a fake GPU.
#include "brim/plugin.h"
#include "rl/fused_plain.h"

brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host, const brim_plugin **out) {
  static brim_extension extensions[6];
  static brim_plugin plugin;
  (void)host;
  if (abi != BRIM_PLUGIN_ABI) return BRIM_EABI;
  extensions[0] = (brim_extension){BRIM_COLLECT_EXTENSION "uav", brim_collect_cpu()};
  extensions[1] = (brim_extension){BRIM_COLLECT_EXTENSION "cartpole", brim_collect_cpu()};
  extensions[2] = (brim_extension){BRIM_PPO_EXTENSION, brim_ppo_cpu()};
  extensions[3] = (brim_extension){BRIM_FUSED_EXTENSION, &fused_plain};
  extensions[4] = (brim_extension){BRIM_FUSED_ROLLOUT_EXTENSION "uav", &fused_plain_rollout_table};
  extensions[5] =
      (brim_extension){BRIM_FUSED_ROLLOUT_EXTENSION "cartpole", &fused_plain_rollout_table};
  plugin = (brim_plugin){.abi = BRIM_PLUGIN_ABI,
                         .name = "test-fused",
                         .version = "1",
                         .extensions = extensions,
                         .extension_count = 6};
  *out = &plugin;
  return BRIM_OK;
}
