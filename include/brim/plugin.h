// Plug-ins: shared objects that export brim_plugin_query. brim's cpu and cuda backends are plug-ins, and so are the
// data sources of users. A plug-in does not link brim: brim_host_api gives it the functions it needs.
#ifndef BRIM_PLUGIN_H_
#define BRIM_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Increased when a table below, or in a header named here, changes its layout.
#define BRIM_PLUGIN_ABI 1

typedef struct brim_host_api {
  uint32_t abi;   // BRIM_PLUGIN_ABI of the host
  uint32_t size;  // sizeof(brim_host_api) of the host; members are only ever added
  // Set the failure detail of this thread (already formatted) and return status.
  brim_status (*fail)(brim_status status, const char *text);
  // level: 0 error, 1 warning, 2 info, 3 debug
  void (*log)(int level, const char *module, const char *text);
  // Counted allocation, 64-byte aligned; planned != 0 for memory in the rows of a plan.
  void *(*alloc)(size_t bytes, int planned);
  void (*free)(void *ptr);
  // The text in the user's language, with the same conversions; or the text itself. Check `size` before calling it.
  const char *(*translate)(const char *english);
} brim_host_api;

// A named table that a room of brim looks up: "data.source/spiral" -> brim_source_table.
typedef struct brim_extension {
  const char *name;
  const void *table;
} brim_extension;

struct brim_backend;  // src/backend/backend.h

typedef struct brim_plugin {
  uint32_t abi;      // BRIM_PLUGIN_ABI the plug-in was built with
  const char *name;  // "cpu"
  const char *version;
  const struct brim_backend *backend;  // NULL = the plug-in has no backend
  const brim_extension *extensions;
  size_t extension_count;
} brim_plugin;

// The function exported as "brim_plugin_query". Returns BRIM_EABI for an abi that the plug-in does not support. Any
// other failure, with a detail, means that the machine lacks something: the host then works without the plug-in.
typedef brim_status (*brim_plugin_query_fn)(uint32_t abi, const brim_host_api *host,
                                            const brim_plugin **out);
BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host,
                                       const brim_plugin **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PLUGIN_H_
