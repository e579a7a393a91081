// Inside the backend room only.
#ifndef BRIM_BACKEND_INT_H_
#define BRIM_BACKEND_INT_H_

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// BRIM_EABI when what a plug-in handed over cannot be used: other versions, missing required
// members, half of an all-or-none group, bad op rows or extensions. `path` stands in messages.
brim_status brim_plugin_check(const brim_plugin *plugin, const char *path);

// Why the plug-in of this name is not loaded (its own refusal), or NULL when there was none.
const char *brim_registry_why(const brim_registry *registry, const char *name);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_INT_H_
