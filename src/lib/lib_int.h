// Inside libbrim.
#ifndef BRIM_LIB_INT_H_
#define BRIM_LIB_INT_H_

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Load the plug-ins that were installed with this library: $BRIM_PLUGIN_PATH, else the folder brim/
// beside libbrim.so, else (linked into a program) the program's own standard places.
brim_status brim_lib_load_plugins(brim_registry *registry);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LIB_INT_H_
