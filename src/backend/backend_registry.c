// The plug-in door: opens shared objects, asks brim_plugin_query, keeps the tables of those that
// fit and the reason of those that do not. ref needs no door; it is linked in.
// Plug-ins are never closed again: CUDA and OpenMP keep threads and exit handlers in their code.
#include <stdlib.h>
#include <string.h>

#include "backend/backend_int.h"

typedef struct entry {
  char *path;
  char *name;     // by its own word, or from the file name where it declined
  char *version;  // "" where it declined
  char *why;      // NULL = loaded
  brim_dl *dl;    // NULL when it did not open
  const brim_plugin *plugin;
} entry;

struct brim_registry {
  entry *entries;
  size_t count, capacity;
  char *folders;  // where brim_registry_load_default looked; NULL = it did not
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
  brim_dl_close(e->dl);
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

// "cuda" from ".../libbrim_cuda.so"; other names keep their file name.
static char *name_from_path(const char *path) {
  const char *base = brim_fs_basename(path);
  if (brim_str_starts(base, "libbrim_") && brim_str_ends(base, ".so")) {
    return brim_strndup(base + 8, strlen(base) - 8 - 3);
  }
  return brim_strdup(base);
}

// The one that is loaded under this name, or NULL.
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

// Open, ask, look over. On failure the detail is the reason.
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
  status = brim_plugin_check(*plugin, path);
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
    // Only memory is this program's own trouble; every other reason is kept in the entry.
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

//---------------------------------- questions ----------------------------------

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

const char *brim_registry_why(const brim_registry *registry, const char *name) {
  for (size_t i = 0; i < registry->count; i++) {
    if (registry->entries[i].why && strcmp(registry->entries[i].name, name) == 0) {
      return registry->entries[i].why;
    }
  }
  return NULL;
}
