// The door of the mpi plug-in: brim_plugin_query and the extension "ranks.mpi". No backend: ranks compute
// on the devices of the other plug-ins.
#include "backend/mpi/mpi_int.h"

static const brim_mpi_table table = {.open = brim_mpi_open};

static const brim_extension extensions[] = {{BRIM_MPI_EXTENSION, &table}};

static const brim_plugin plugin = {
    .abi = BRIM_PLUGIN_ABI,
    .name = "mpi",
    .version = BRIM_VERSION,
    .extensions = extensions,
    .extension_count = sizeof extensions / sizeof *extensions,
};

BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host,
                                       const brim_plugin **out) {
  if (abi != BRIM_PLUGIN_ABI || host->size < sizeof(brim_host_api)) return BRIM_EABI;
  brim_mpi_set_host(host);
  *out = &plugin;
  return BRIM_OK;
}
