// Where libbrim's plug-ins are. A program that links libbrim.so may lie anywhere, so the place to
// look is beside the library, not beside the program as for the brim binary.
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_fs.h"
#include "lib/lib_int.h"

// Real path of the shared object or program that holds this code; false when it cannot be
// determined.
static bool own_path(char out[PATH_MAX]) {
  static const char anchor = 0;
  Dl_info info;
  return dladdr(&anchor, &info) && info.dli_fname && realpath(info.dli_fname, out);
}

brim_status brim_lib_load_plugins(brim_registry *registry) {
  char own[PATH_MAX], program[PATH_MAX];
  if (getenv("BRIM_PLUGIN_PATH") || !own_path(own) || !realpath("/proc/self/exe", program) ||
      strcmp(own, program) == 0) {
    return brim_registry_load_default(registry);
  }
  char *beside = brim_fs_dirname(own);
  char *folder = beside ? brim_fs_join(beside, "brim") : NULL;
  brim_free(beside);
  if (!folder) return brim_fail(BRIM_ENOMEM, "no memory for the plug-in folder");
  brim_status status = brim_registry_load_folder(registry, folder);
  brim_free(folder);
  return status;
}
