// Loads plug-ins: opens shared objects, calls brim_plugin_query, and checks the returned tables
// (versions of the plug-in and backend interfaces, required members, all-or-none groups, op rows). It
// keeps the plug-ins that fit, and for each of the others the reason why it does not fit. ref is linked
// in and needs no loading. The libraries stay loaded: CUDA and OpenMP keep threads and exit handlers in
// their code.
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

//---------------------------------- checking a plug-in's tables ----------------------------------

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
      {"ops", b->ops != NULL || b->op_families == 0},
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

// Members that must come all together or not at all.
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
  size_t number = 0;
  for (size_t f = 0; f < b->op_families; f++) {
    for (size_t i = 0; i < b->ops[f]->count; i++, number++) {
      const brim_op_row *row = &b->ops[f]->rows[i];
      if ((unsigned)row->op >= BRIM_OP_COUNT) {
        return brim_fail(BRIM_EABI, "%s: op row %zu has the unknown op %d", path, number,
                         (int)row->op);
      }
      if (!row->validate || !row->run) {
        return brim_fail(BRIM_EABI, "%s: op %s lacks validate or run", path, brim_op_name(row->op));
      }
      if (seen[row->op]) {
        return brim_fail(BRIM_EABI, "%s: op %s appears twice", path, brim_op_name(row->op));
      }
      seen[row->op] = true;
    }
  }
  return BRIM_OK;
}

// BRIM_EABI if a plug-in's tables are unusable: other versions, missing required members, half of
// an all-or-none group, bad op rows or extensions. `path` is for messages.
static brim_status check_plugin(const brim_plugin *plugin, const char *path) {
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

//---------------------------------- the registry ----------------------------------

typedef struct entry {
  char *path;
  char *name;     // the plug-in's own name; from the file name if it declined
  char *version;  // "" if it declined
  char *why;      // NULL = loaded
  brim_dl *dl;    // NULL when it did not open
  const brim_plugin *plugin;
} entry;

struct brim_registry {
  entry *entries;
  size_t count, capacity;
  // Folders that brim_registry_load_default searched, separated by ':'; NULL = it was not called.
  char *folders;
};

//---------------------------------- host api ----------------------------------

static brim_status host_fail(brim_status status, const char *text) {
  brim_status_set_detail(text ? text : "");
  return status;
}

static void host_log(int level, const char *module, const char *text) {
  brim_log_level l = level < 0                       ? BRIM_LOG_ERROR
                     : level >= BRIM_LOG_LEVEL_COUNT ? BRIM_LOG_DEBUG
                                                     : (brim_log_level)level;
  brim_log_text(l, module ? module : "plugin", text ? text : "");
}

static void *host_alloc(size_t bytes, int planned) {
  return brim_alloc_tagged(bytes, planned ? BRIM_MEM_PLANNED : BRIM_MEM_OVERHEAD);
}

static const brim_host_api host_api = {
    .abi = BRIM_PLUGIN_ABI,
    .size = sizeof(brim_host_api),
    .fail = host_fail,
    .log = host_log,
    .alloc = host_alloc,
    .free = brim_free,
    .translate = brim_tr,
};

//---------------------------------- entries ----------------------------------

brim_status brim_registry_create(brim_registry **out) {
  *out = brim_calloc(1, sizeof(brim_registry));
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for the plug-in registry");
}

static void entry_deinit(entry *e) {
  brim_dl_close(e->dl);  // frees the handle; the library stays loaded
  brim_free(e->path);
  brim_free(e->name);
  brim_free(e->version);
  brim_free(e->why);
}

void brim_registry_destroy(brim_registry *registry) {
  if (!registry) return;
  for (size_t i = 0; i < registry->count; i++) entry_deinit(&registry->entries[i]);
  brim_free(registry->entries);
  brim_free(registry->folders);
  brim_free(registry);
}

static brim_status reserve_entry(brim_registry *registry) {
  if (registry->count < registry->capacity) return BRIM_OK;
  size_t capacity = registry->capacity ? 2 * registry->capacity : 8;
  entry *grown = brim_realloc(registry->entries, capacity * sizeof(entry));
  if (!grown) return brim_fail(BRIM_ENOMEM, "no memory for a plug-in's entry");
  registry->entries = grown;
  registry->capacity = capacity;
  return BRIM_OK;
}

// "cuda" from ".../libbrim_cuda.so"; any other file gives its whole file name.
static char *name_from_path(const char *path) {
  const char *base = brim_fs_basename(path);
  if (brim_str_starts(base, "libbrim_") && brim_str_ends(base, ".so")) {
    return brim_strndup(base + 8, strlen(base) - 8 - 3);
  }
  return brim_strdup(base);
}

// The plug-in loaded under this name, or NULL.
static const entry *find_loaded(const brim_registry *registry, const char *name) {
  for (size_t i = 0; i < registry->count; i++) {
    const entry *e = &registry->entries[i];
    if (e->plugin && strcmp(e->name, name) == 0) return e;
  }
  return NULL;
}

static brim_status check_names(const brim_registry *registry, const brim_plugin *plugin,
                               const char *path) {
  const entry *same = find_loaded(registry, plugin->name);
  if (same) {
    return brim_fail(BRIM_EEXIST, "%s: plug-in %s is already loaded from %s", path, plugin->name,
                     same->path);
  }
  if (plugin->backend && brim_registry_backend(registry, plugin->backend->name)) {
    return brim_fail(BRIM_EEXIST, "%s: a backend named %s already exists", path,
                     plugin->backend->name);
  }
  for (size_t i = 0; i < plugin->extension_count; i++) {
    if (brim_registry_extension(registry, plugin->extensions[i].name)) {
      return brim_fail(BRIM_EEXIST, "%s: an extension named %s already exists", path,
                       plugin->extensions[i].name);
    }
  }
  return BRIM_OK;
}

// Opens the file, calls its brim_plugin_query and checks the tables that it returns. After a failure
// brim_status_detail() is the reason.
static brim_status query(const brim_registry *registry, const char *path, brim_dl **dl,
                         const brim_plugin **plugin) {
  const char *const names[] = {path, NULL};
  BRIM_TRY(brim_dl_open(names, NULL, 0, true, dl));
  void *symbol = brim_dl_find(*dl, "brim_plugin_query");
  if (!symbol) {
    return brim_fail(BRIM_EABI, "%s: not a brim plug-in: it does not export brim_plugin_query",
                     path);
  }
  brim_plugin_query_fn fn;
  memcpy(&fn, &symbol, sizeof(fn));  // ISO C has no cast from an object to a function pointer
  brim_status_clear();               // an old detail must not pass for this plug-in's reason
  brim_status status = fn(BRIM_PLUGIN_ABI, &host_api, plugin);
  if (status) {
    *plugin = NULL;
    if (brim_status_detail()[0]) return status;
    return brim_fail(status, "%s: the plug-in gave no reason (%s)", path, brim_status_text(status));
  }
  status = check_plugin(*plugin, path);
  if (!status) status = check_names(registry, *plugin, path);
  if (status) *plugin = NULL;
  return status;
}

brim_status brim_registry_load(brim_registry *registry, const char *path) {
  BRIM_TRY(reserve_entry(registry));
  entry e = {.path = brim_strdup(path)};
  if (!e.path) return brim_fail(BRIM_ENOMEM, "no memory for a plug-in's entry");
  brim_status status = query(registry, path, &e.dl, &e.plugin);
  if (status == BRIM_ENOMEM) goto fail;
  e.name = e.plugin ? brim_strdup(e.plugin->name) : name_from_path(path);
  e.version = brim_strdup(e.plugin && e.plugin->version ? e.plugin->version : "");
  e.why = e.plugin ? NULL : brim_strdup(brim_status_detail());
  if (!e.name || !e.version || (!e.plugin && !e.why)) {
    status = brim_fail(BRIM_ENOMEM, "no memory for a plug-in's entry");
    goto fail;
  }
  registry->entries[registry->count++] = e;
  if (e.plugin) {
    brim_log_debug("backend", "plug-in %s %s loaded from %s", e.name, e.version, path);
  } else {
    brim_log_debug("backend", "plug-in %s not used: %s", e.name, e.why);
  }
  return status;
fail:
  entry_deinit(&e);
  return status;
}

brim_status brim_registry_load_folder(brim_registry *registry, const char *folder) {
  if (!brim_fs_is_dir(folder)) return BRIM_OK;
  char **names = NULL;
  size_t count = 0;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status; i++) {
    if (!brim_str_starts(names[i], "libbrim_") || !brim_str_ends(names[i], ".so")) continue;
    char *path = brim_fs_join(folder, names[i]);
    if (!path) {
      status = brim_fail(BRIM_ENOMEM, "no memory for a plug-in's path");
      break;
    }
    // Only a lack of memory is this program's own failure; every other reason is kept in the entry.
    if (brim_registry_load(registry, path) == BRIM_ENOMEM) status = BRIM_ENOMEM;
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  return status;
}

static brim_status load_path_list(brim_registry *registry, const char *list) {
  while (*list) {
    size_t n = strcspn(list, ":");
    if (n > 0) {
      char *folder = brim_strndup(list, n);
      if (!folder) return brim_fail(BRIM_ENOMEM, "no memory for a plug-in's path");
      brim_status status = brim_registry_load_folder(registry, folder);
      brim_free(folder);
      BRIM_TRY(status);
    }
    list += n + (list[n] == ':');
  }
  return BRIM_OK;
}

brim_status brim_registry_load_default(brim_registry *registry) {
  const char *list = getenv("BRIM_PLUGIN_PATH");
  brim_free(registry->folders);
  registry->folders = NULL;
  if (list) {
    registry->folders = brim_strdup(list);
    if (!registry->folders) return brim_fail(BRIM_ENOMEM, "no memory for a plug-in's path");
    return load_path_list(registry, list);
  }
  char *exe = brim_fs_exe_dir();
  if (!exe) return brim_fail(BRIM_ENOMEM, "no memory for the program's folder");
  char *folder = brim_fs_join(exe, "../lib/brim");
  brim_free(exe);
  if (!folder) return brim_fail(BRIM_ENOMEM, "no memory for the plug-in folder");
  registry->folders = folder;
  return brim_registry_load_folder(registry, folder);
}

//---------------------------------- reading the registry ----------------------------------

const char *brim_registry_folders(const brim_registry *registry) {
  return registry->folders ? registry->folders : "";
}

size_t brim_registry_plugin_count(const brim_registry *registry) { return registry->count; }

void brim_registry_plugin(const brim_registry *registry, size_t index, const char **name,
                          const char **version, const char **path, const char **why) {
  const entry *e = &registry->entries[index];
  if (name) *name = e->name;
  if (version) *version = e->version;
  if (path) *path = e->path;
  if (why) *why = e->why;
}

const brim_backend *brim_registry_backend(const brim_registry *registry, const char *name) {
  if (strcmp(name, brim_backend_ref()->name) == 0) return brim_backend_ref();
  for (size_t i = 0; i < registry->count; i++) {
    const brim_plugin *plugin = registry->entries[i].plugin;
    if (plugin && plugin->backend && strcmp(plugin->backend->name, name) == 0) {
      return plugin->backend;
    }
  }
  return NULL;
}

const void *brim_registry_extension(const brim_registry *registry, const char *name) {
  for (size_t i = 0; i < registry->count; i++) {
    const brim_plugin *plugin = registry->entries[i].plugin;
    for (size_t j = 0; plugin && j < plugin->extension_count; j++) {
      if (strcmp(plugin->extensions[j].name, name) == 0) return plugin->extensions[j].table;
    }
  }
  return NULL;
}
