// The plug-in door. A plug-in is a shared object that exports brim_plugin_query; brim's own cpu and
// cuda backends come in by it, and so do users' sources (and later transforms, models,
// environments). A plug-in links nothing of brim: it gets what it needs from host_api.
#ifndef BRIM_PLUGIN_H_
#define BRIM_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Raised whenever a table below or in a header it names changes its layout.
#define BRIM_PLUGIN_ABI 1

typedef struct brim_host_api {
  uint32_t abi;   // BRIM_PLUGIN_ABI of the host
  uint32_t size;  // sizeof(brim_host_api) of the host; members are only ever added
  // Set the failure detail of this thread (already formatted) and return status.
  brim_status (*fail)(brim_status status, const char *text);
  // level: 0 error, 1 warning, 2 info, 3 debug
  void (*log)(int level, const char *module, const char *text);
  // Counted allocation, 64-byte aligned; planned != 0 for what a plan foretells.
  void *(*alloc)(size_t bytes, int planned);
  void (*free)(void *ptr);
  // The text in the user's language: another format with the same arguments, or the text itself.
  // There where size reaches this far.
  const char *(*translate)(const char *english);
} brim_host_api;

// A named table for a room: "data.source/spiral" -> brim_source_table.
typedef struct brim_extension {
  const char *name;
  const void *table;
} brim_extension;

struct brim_backend;  // src/backend/backend.h

typedef struct brim_plugin {
  uint32_t abi;      // BRIM_PLUGIN_ABI the plug-in was built with
  const char *name;  // "cpu"
  const char *version;
  const struct brim_backend *backend;  // or NULL
  const brim_extension *extensions;
  size_t extension_count;
} brim_plugin;

// Exported as "brim_plugin_query". Returns BRIM_EABI when it cannot serve this abi, or another
// status with a detail when the machine lacks what it needs (that is not an error for the host).
typedef brim_status (*brim_plugin_query_fn)(uint32_t abi, const brim_host_api *host,
                                            const brim_plugin **out);
BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host,
                                       const brim_plugin **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PLUGIN_H_
