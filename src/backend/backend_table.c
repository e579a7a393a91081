// Looks over the tables that came in by the plug-in door before anyone calls through them: versions
// both ways, required members, all-or-none groups, op rows. Calls nothing of the plug-in.
#include "backend/backend_int.h"

typedef struct member {
  const char *name;
  bool present;
} member;

static bool whole_comm(const brim_comm_table *c) {
  return c->name && c->unique_id && c->open && c->close && c->abandon && c->all_reduce &&
         c->all_gather;
}

static brim_status check_required(const brim_backend *b, const char *path) {
  const member required[] = {
      {"name", b->name != NULL},
      {"device_count", b->device_count != NULL},
      {"device_info", b->device_info != NULL},
      {"device_open", b->device_open != NULL},
      {"device_close", b->device_close != NULL},
      {"buffer_alloc", b->buffer_alloc != NULL},
      {"buffer_free", b->buffer_free != NULL},
      {"copy", b->copy != NULL},
      {"fill", b->fill != NULL},
      {"ops", b->ops != NULL || b->op_count == 0},
      {"comm", !b->comm || whole_comm(b->comm)},
  };
  for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
    if (!required[i].present) {
      return brim_fail(BRIM_EABI, "%s: its backend table lacks the required member %s", path,
                       required[i].name);
    }
  }
  return BRIM_OK;
}

// Members that come all together or not at all.
static brim_status check_group(const char *what, const bool *present, int count, const char *path) {
  int there = 0;
  for (int i = 0; i < count; i++) there += present[i] ? 1 : 0;
  if (there == 0 || there == count) return BRIM_OK;
  return brim_fail(BRIM_EABI, "%s: its backend table has %d of the %d %s members", path, there,
                   count, what);
}

static brim_status check_groups(const brim_backend *b, const char *path) {
  const bool streams[] = {b->stream_create != NULL, b->stream_destroy != NULL,
                          b->stream_sync != NULL};
  const bool events[] = {b->event_create != NULL, b->event_destroy != NULL,
                         b->event_record != NULL, b->event_elapsed != NULL,
                         b->event_sync != NULL,   b->event_wait != NULL};
  const bool graphs[] = {b->capture_begin != NULL, b->capture_end != NULL, b->graph_launch != NULL,
                         b->graph_destroy != NULL};
  const bool algorithms[] = {b->algorithms_get != NULL, b->algorithms_put != NULL};
  BRIM_TRY(check_group("stream", streams, 3, path));
  BRIM_TRY(check_group("event", events, 6, path));
  BRIM_TRY(check_group("graph", graphs, 4, path));
  return check_group("algorithm", algorithms, 2, path);
}

static brim_status check_ops(const brim_backend *b, const char *path) {
  bool seen[BRIM_OP_COUNT] = {false};
  for (size_t i = 0; i < b->op_count; i++) {
    const brim_op_row *row = &b->ops[i];
    if ((unsigned)row->op >= BRIM_OP_COUNT) {
      return brim_fail(BRIM_EABI, "%s: op row %zu has the unknown op %d", path, i, (int)row->op);
    }
    if (!row->validate || !row->run) {
      return brim_fail(BRIM_EABI, "%s: op %s lacks validate or run", path, brim_op_name(row->op));
    }
    if (seen[row->op]) {
      return brim_fail(BRIM_EABI, "%s: op %s appears twice", path, brim_op_name(row->op));
    }
    seen[row->op] = true;
  }
  return BRIM_OK;
}

brim_status brim_plugin_check(const brim_plugin *plugin, const char *path) {
  if (!plugin) return brim_fail(BRIM_EABI, "%s: brim_plugin_query returned no table", path);
  if (plugin->abi != BRIM_PLUGIN_ABI) {
    return brim_fail(BRIM_EABI,
                     "%s: built for plug-in interface %u, but this brim has %u; rebuild it with "
                     "this brim's headers",
                     path, (unsigned)plugin->abi, (unsigned)BRIM_PLUGIN_ABI);
  }
  if (!plugin->name || !plugin->name[0]) {
    return brim_fail(BRIM_EABI, "%s: the plug-in has no name", path);
  }
  if (plugin->extension_count > 0 && !plugin->extensions) {
    return brim_fail(BRIM_EABI, "%s: the plug-in declares %zu extensions but provides none", path,
                     plugin->extension_count);
  }
  for (size_t i = 0; i < plugin->extension_count; i++) {
    if (!plugin->extensions[i].name || !plugin->extensions[i].table) {
      return brim_fail(BRIM_EABI, "%s: extension %zu has no name or no table", path, i);
    }
  }
  const brim_backend *b = plugin->backend;
  if (!b) return BRIM_OK;
  if (b->abi != BRIM_BACKEND_ABI) {
    return brim_fail(BRIM_EABI,
                     "%s: built for backend interface %u, but this brim has %u; rebuild it with "
                     "this brim's headers",
                     path, (unsigned)b->abi, (unsigned)BRIM_BACKEND_ABI);
  }
  BRIM_TRY(check_required(b, path));
  BRIM_TRY(check_groups(b, path));
  return check_ops(b, path);
}
