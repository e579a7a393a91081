// The way to the communicator over MPI: finds its plug-in, which is opened for no other purpose, and opens it.
#include <stdlib.h>
#include <string.h>

#include "backend/backend_comm.h"

#define PLUGIN "ranks/libbrim_mpi.so"

// The plug-in in the first folder that has it; NULL and BRIM_OK where none has.
static brim_status find_plugin(const char *folders, char **out) {
  *out = NULL;
  for (const char *at = folders; *at && !*out;) {
    size_t n = strcspn(at, ":");
    char *folder = brim_strndup(at, n);
    char *path = folder ? brim_fs_join(folder, PLUGIN) : NULL;
    brim_free(folder);
    if (!path) return brim_fail(BRIM_ENOMEM, "no memory for a plug-in's path");
    if (n > 0 && brim_fs_exists(path)) {
      *out = path;
    } else {
      brim_free(path);
    }
    at += n + (at[n] == ':');
  }
  return BRIM_OK;
}

static brim_status plugin_path(char **out) {
  const char *list = getenv("BRIM_PLUGIN_PATH");
  if (list) {
    BRIM_TRY(find_plugin(list, out));
  } else {
    char *exe = brim_fs_exe_dir();
    char *folder = exe ? brim_fs_join(exe, "../lib/brim") : NULL;
    brim_free(exe);
    if (!folder) return brim_fail(BRIM_ENOMEM, "no memory for the plug-in folder");
    brim_status status = find_plugin(folder, out);
    brim_free(folder);
    BRIM_TRY(status);
  }
  if (*out) return BRIM_OK;
  return brim_fail(BRIM_ENOENT,
                   "this brim was built without MPI, which ranks of mpirun and srun need: install "
                   "libopenmpi-dev and build it again");
}

brim_status brim_comm_open_mpi(brim_comm **out, int *local_rank, int *local_size) {
  *out = NULL;
  char *path = NULL;
  BRIM_TRY(plugin_path(&path));
  brim_registry *registry = NULL;
  brim_mpi_ranks ranks = {0};
  brim_status status = brim_registry_create(&registry);
  if (!status) status = brim_registry_load(registry, path);
  if (!status) {
    const brim_mpi_table *table = brim_registry_extension(registry, BRIM_MPI_EXTENSION);
    status = table ? table->open(&ranks)
                   : brim_fail(BRIM_EABI, "%s: the plug-in has no ranks over MPI", path);
  }
  brim_registry_destroy(registry);  // the plug-in stays open
  brim_free(path);
  BRIM_TRY(status);
  *local_rank = ranks.local_rank;
  *local_size = ranks.local_size;
  return brim_comm_create(ranks.table, ranks.impl, ranks.rank, ranks.size, out);
}
