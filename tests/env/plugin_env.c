// A plug-in of the tests: two environments that exist only here, with their kernels if there is CUDA (BRIM_TEST_CUDA),
// and a row that brim has to refuse.
#include "brim/plugin.h"
#include "rl/rl_collect.h"

extern const brim_env_row drift_row, slide_row;
#ifdef BRIM_TEST_CUDA
extern const brim_rollout_table drift_cuda, slide_cuda;
extern const brim_collect_table drift_collect_cuda;
void drift_cuda_set_host(const brim_host_api *host);
void slide_cuda_set_host(const brim_host_api *host);
#endif

static const brim_env_row empty_row = {.abi = BRIM_ENV_ABI, .name = "empty"};

static const brim_extension extensions[] = {
    {BRIM_ENV_EXTENSION "drift", &drift_row},
    {BRIM_ENV_EXTENSION "slide", &slide_row},
    {BRIM_ENV_EXTENSION "empty", &empty_row},
#ifdef BRIM_TEST_CUDA
    {BRIM_ROLLOUT_EXTENSION "drift", &drift_cuda},
    {BRIM_ROLLOUT_EXTENSION "slide", &slide_cuda},
    {BRIM_COLLECT_EXTENSION "drift", &drift_collect_cuda},
#endif
};

static const brim_plugin plugin = {.abi = BRIM_PLUGIN_ABI,
                                   .name = "test-env",
                                   .version = "1",
                                   .extensions = extensions,
                                   .extension_count = sizeof extensions / sizeof *extensions};

BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host,
                                       const brim_plugin **out) {
  if (abi != BRIM_PLUGIN_ABI) return BRIM_EABI;
#ifdef BRIM_TEST_CUDA
  drift_cuda_set_host(host);
  slide_cuda_set_host(host);
#endif
  (void)host;
  *out = &plugin;
  return BRIM_OK;
}
