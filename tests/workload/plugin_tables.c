// Rollouts and losses of mappo as a GPU's plug-in offers them, made of the CPU's tables, for a fake GPU.
#include "brim/plugin.h"
#include "rl/rl_collect.h"
#include "rl/rl_ppo.h"

brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host, const brim_plugin **out) {
  static brim_extension extensions[2];
  static brim_plugin plugin;
  (void)host;
  if (abi != BRIM_PLUGIN_ABI) return BRIM_EABI;
  extensions[0] = (brim_extension){BRIM_COLLECT_EXTENSION "uav", brim_collect_cpu()};
  extensions[1] = (brim_extension){BRIM_PPO_EXTENSION, brim_ppo_cpu()};
  plugin = (brim_plugin){.abi = BRIM_PLUGIN_ABI,
                         .name = "test-tables",
                         .version = "1",
                         .extensions = extensions,
                         .extension_count = 2};
  *out = &plugin;
  return BRIM_OK;
}
