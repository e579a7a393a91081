// Loading: files, includes and overrides become settings; then the first point of their grid is resolved.
// Layers, lowest first: defaults, preset, includes, file, overrides.

#include "config/config_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// ---- settings of a tree ------------------------------------------------------------------------
// A YAML tree or an override becomes settings: key, slot, argument and layer. Nested and dotted spellings and
// aliases all become one canonical row. Unknown keys are errors.

enum { MAX_SETTINGS = 4096 };

static const char *const slot_names[BRIM_CONFIG_SLOT_COUNT] = {NULL, "train", "val", "test"};

int brim_config_slot_find(const char *name) {
  if (!name) return BRIM_CONFIG_SLOT_NONE;
  for (int i = BRIM_CONFIG_SLOT_TRAIN; i < BRIM_CONFIG_SLOT_COUNT; i++) {
    if (!strcmp(slot_names[i], name)) return i;
  }
  return -1;
}

const char *brim_config_slot_name(int slot) { return slot_names[slot]; }

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

// The target of the next assignment.
typedef struct target {
  int row, slot;
  const char *arg;
  const char *written;
  brim_config_place at;
} target;

static brim_status add(brim_config_source *source, target t, const brim_config_node *node) {
  brim_config_settings *s = &source->settings;
  if (s->count >= MAX_SETTINGS) {
    return brim_fail_at(BRIM_ELIMIT, AT(t.at), "more than %d settings in all", MAX_SETTINGS);
  }
  if (t.arg && !brim_config_is_name(t.arg)) {
    return brim_fail_at(BRIM_EINVAL, AT(t.at), "'%.80s' is not an argument's name", t.arg);
  }
  for (size_t i = 0; s->layer != source->override_layer && i < s->count; i++) {
    const brim_config_setting *old = &s->items[i];
    if (old->layer == s->layer && old->row == t.row && old->slot == t.slot &&
        same_text(old->arg, t.arg)) {
      const char *key = brim_config_row_at((size_t)t.row)->key.name;
      BRIM_TRY(brim_config_repeated(&source->context, key, old->at, t.at));
    }
  }
  BRIM_TRY(brim_config_grow(source->arena, &s->items, sizeof *s->items, s->count, &s->cap));
  s->items[s->count++] = (brim_config_setting){.row = t.row,
                                               .slot = t.slot,
                                               .arg = t.arg,
                                               .node = node,
                                               .written = t.written,
                                               .at = t.at,
                                               .layer = s->layer,
                                               .axis = -1};
  return BRIM_OK;
}

static brim_status join(brim_config_source *source, const char *prefix, const char *key,
                        const char **out) {
  *out = prefix ? brim_arena_printf(source->arena, "%s.%s", prefix, key)
                : brim_arena_strdup(source->arena, key);
  return *out ? BRIM_OK : brim_config_no_memory();
}

static brim_status component_map(brim_config_source *source, target t, const brim_config_node *map);

static brim_status component_slots(brim_config_source *source, target t,
                                   const brim_config_node *map) {
  for (const brim_config_node *n = map->first; n; n = n->next) {
    target in = t;
    in.slot = brim_config_slot_find(n->key);
    in.at = n->key_at;
    if (in.slot < 0) {
      return brim_fail_at(BRIM_EINVAL, AT(n->key_at),
                          "'%s' has the slots train, val and test, not '%.80s'", t.written, n->key);
    }
    BRIM_TRY(join(source, t.written, n->key, &in.written));
    BRIM_TRY(n->kind == BRIM_CONFIG_NODE_MAP ? component_map(source, in, n) : add(source, in, n));
  }
  return BRIM_OK;
}

// Refuses `env: plugin:`, which YAML reads as a map with one key and no value.
static brim_status check_plugin(target t, const brim_config_node *n) {
  brim_value value;
  if (strcmp(n->key, "plugin") != 0 || n->kind != BRIM_CONFIG_NODE_SCALAR) return BRIM_OK;
  BRIM_TRY(brim_config_scalar(n, &value));
  if (value.kind != BRIM_VALUE_NULL) return BRIM_OK;
  return brim_config_no_plugin(t.written, t.at);
}

// Reads a map of a component key: {_type: name, k: v}, or {train: ..., val: ...}, or arguments for a component
// named elsewhere.
static brim_status component_map(brim_config_source *source, target t,
                                 const brim_config_node *map) {
  const brim_config_node *type = brim_config_node_get(map, "_type");
  bool slots = brim_config_row_at((size_t)t.row)->flags & BRIM_CONFIG_SLOTS;
  if (!type && slots && t.slot == BRIM_CONFIG_SLOT_NONE && map->first &&
      brim_config_slot_find(map->first->key) > 0) {
    return component_slots(source, t, map);
  }
  if (type) BRIM_TRY(add(source, t, type));
  for (const brim_config_node *n = map->first; n; n = n->next) {
    if (n == type) continue;
    if (!type) BRIM_TRY(check_plugin(t, n));
    target in = t;
    in.arg = n->key;
    in.at = n->key_at;
    BRIM_TRY(join(source, t.written, n->key, &in.written));
    BRIM_TRY(add(source, in, n));
  }
  return BRIM_OK;
}

brim_status brim_config_unknown_key(const char *name, const char *workload, brim_config_place at) {
  const char *near = brim_config_row_nearest(name, workload);
  if (near) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "unknown key '%.120s'; did you mean '%s'?", name,
                        near);
  }
  return brim_fail_at(BRIM_EINVAL, AT(at),
                      "unknown key '%.120s'; 'brim config explain' lists the keys", name);
}

// Reads the part of a path after a component's key, such as "train.size": a slot, an argument, or both.
static brim_status path_rest(brim_arena *arena, const char *rest, brim_config_path *out) {
  const char *next = strchr(rest, '.');
  char *first = brim_arena_strndup(arena, rest, next ? (size_t)(next - rest) : strlen(rest));
  if (!first) return brim_config_no_memory();
  bool slots = brim_config_row_at((size_t)out->row)->flags & BRIM_CONFIG_SLOTS;
  if (slots && brim_config_slot_find(first) > 0) {
    out->slot = brim_config_slot_find(first);
    rest = next ? next + 1 : NULL;
  }
  if (rest && (!*rest || strchr(rest, '.'))) {
    out->row = -1;
  } else if (rest && strcmp(rest, "_type")) {
    out->arg = rest;
  }
  return BRIM_OK;
}

brim_status brim_config_path_find(brim_arena *arena, const char *name, brim_config_path *out) {
  *out = (brim_config_path){.row = brim_config_row_find(name)};
  for (const char *dot = strchr(name, '.'); dot && out->row < 0; dot = strchr(dot + 1, '.')) {
    char *head = brim_arena_strndup(arena, name, (size_t)(dot - name));
    if (!head) return brim_config_no_memory();
    int row = brim_config_row_find(head);
    if (row < 0 || !brim_config_row_is_component(brim_config_row_at((size_t)row))) continue;
    out->row = row;
    return path_rest(arena, dot + 1, out);
  }
  return BRIM_OK;
}

static bool is_null(const brim_config_node *node) {
  brim_value v;
  if (node->kind != BRIM_CONFIG_NODE_SCALAR || brim_config_scalar(node, &v)) return false;
  return v.kind == BRIM_VALUE_NULL;
}

static void special(brim_config_source *source, const char *name, const brim_config_node *node) {
  if (is_null(node)) node = NULL;
  if (!strcmp(name, "zip")) source->settings.zip = node;
  if (!strcmp(name, "exclude")) source->settings.exclude = node;
  // include was read by the loader
}

// The workload that the settings name; NULL if they name none, or several.
static const char *named_workload(const brim_config_source *source) {
  const int row = brim_config_row_find("workload");
  for (size_t i = source->settings.count; i-- > 0;) {
    const brim_config_setting *s = &source->settings.items[i];
    if (s->row == row) return s->node->kind == BRIM_CONFIG_NODE_SCALAR ? s->node->text : NULL;
  }
  return NULL;
}

static brim_status walk(brim_config_source *source, const char *prefix,
                        const brim_config_node *map);

static brim_status assign(brim_config_source *source, const char *full, brim_config_place at,
                          const brim_config_node *node) {
  int index = brim_config_row_find(full);
  if (index >= 0) {
    const brim_config_row *row = brim_config_row_at((size_t)index);
    target t = {.row = index, .written = full, .at = at};
    if (row->type == BRIM_CONFIG_SPECIAL) {
      if (source->settings.layer == source->override_layer && !strcmp(full, "include")) {
        return brim_fail_at(BRIM_EINVAL, AT(at), "'include' works in a file, not as an override");
      }
      special(source, row->key.name, node);
      return BRIM_OK;
    }
    if (node->kind != BRIM_CONFIG_NODE_MAP) return add(source, t, node);
    if (brim_config_row_is_component(row)) return component_map(source, t, node);
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' expects %s, not a map", full,
                        row->key.type);
  }
  if (brim_config_row_is_group(full)) {
    if (node->kind == BRIM_CONFIG_NODE_MAP) return walk(source, full, node);
    if (is_null(node)) return BRIM_OK;
    return brim_fail_at(BRIM_EINVAL, AT(at), "'%s' is a group of keys, not a value", full);
  }
  brim_config_path path;
  BRIM_TRY(brim_config_path_find(source->arena, full, &path));
  if (path.row < 0) return brim_config_unknown_key(full, named_workload(source), at);
  target t = {path.row, path.slot, path.arg, full, at};
  if (!t.arg && node->kind == BRIM_CONFIG_NODE_MAP) return component_map(source, t, node);
  return add(source, t, node);
}

static brim_status walk(brim_config_source *source, const char *prefix,
                        const brim_config_node *map) {
  for (const brim_config_node *n = map->first; n; n = n->next) {
    if (!prefix && brim_str_starts(n->key, "x-")) continue;  // keys x-... hold anchors only
    const char *full;
    BRIM_TRY(join(source, prefix, n->key, &full));
    BRIM_TRY(brim_config_mistake(&source->context, assign(source, full, n->key_at, n)));
  }
  return BRIM_OK;
}

static brim_status flatten(brim_config_source *source, const brim_config_node *root) {
  if (!root || is_null(root)) return BRIM_OK;
  if (root->kind != BRIM_CONFIG_NODE_MAP) {
    return brim_fail_at(BRIM_EINVAL, AT(root->at), "a config is a map of keys, 'key: value'");
  }
  return walk(source, NULL, root);
}

static brim_status flatten_override(brim_config_source *source, const char *text) {
  const char *equals = strchr(text, '=');
  if (!equals || equals == text) {
    return brim_fail(BRIM_EINVAL, "override '%.120s': write key=value", text);
  }
  char *key = brim_arena_strndup(source->arena, text, (size_t)(equals - text));
  char *name = key ? brim_arena_printf(source->arena, "override %.120s", key) : NULL;
  if (!name) return brim_config_no_memory();
  brim_config_node *node;
  BRIM_TRY(brim_config_yaml_parse(&source->context, equals + 1, strlen(equals + 1), name, &node));
  brim_config_place at = {name, 1, 1};
  // YAML reads an empty value as null, which would silently restore the default.
  if (!node || (node->kind == BRIM_CONFIG_NODE_SCALAR && node->plain && !node->text[0] &&
                node->tag == BRIM_CONFIG_TAG_NONE)) {
    return brim_fail(BRIM_EINVAL, "%s: no value; write %.120s=null for the default", name, key);
  }
  source->settings.layer = source->override_layer;
  return assign(source, key, at, node);
}

// ---- short names that several workloads have ---------------------------------------------------
// True if the key belongs to the section of another workload.
static bool of_another(const char *key, const char *workload) {
  const char *const *names = brim_config_key_find("workload")->choices;
  const size_t length = strcspn(key, ".");
  for (; key[length] && *names; names++) {
    if (strlen(*names) == length && !strncmp(*names, key, length)) {
      return strcmp(*names, workload) != 0;
    }
  }
  return false;
}

int brim_config_own_row(const brim_config_source *source, const char *written, int row) {
  const char *workload = named_workload(source);
  const char *key = brim_config_row_at((size_t)row)->key.name;
  char own[128];
  if (!workload || strchr(written, '.') || !of_another(key, workload)) return row;
  snprintf(own, sizeof own, "%s%s", workload, strchr(key, '.'));
  const int found = brim_config_row_find(own);
  return found < 0 ? row : found;
}

static void own_rows(brim_config_source *source) {
  for (size_t i = 0; i < source->settings.count; i++) {
    brim_config_setting *s = &source->settings.items[i];
    s->row = brim_config_own_row(source, s->written, s->row);
  }
}

// True if the later setting replaces the earlier one. Within a layer, a slot or an argument refines the whole
// component in any order; between layers, a later whole also replaces slots and arguments.
static bool replaces(const brim_config_setting *later, const brim_config_setting *old) {
  if (later->row != old->row) return false;
  if (later->arg || later->layer == old->layer)
    return later->slot == old->slot && same_text(later->arg, old->arg);
  return later->slot == BRIM_CONFIG_SLOT_NONE || later->slot == old->slot;
}

static void mark_live(brim_config_source *source) {
  brim_config_settings *s = &source->settings;
  for (size_t i = 0; i < s->count; i++) {
    s->items[i].live = true;
    for (size_t j = i + 1; j < s->count && s->items[i].live; j++) {
      if (replaces(&s->items[j], &s->items[i])) s->items[i].live = false;
      if (s->items[j].layer > s->items[i].layer &&
          brim_config_row_yields(s->items[i].row, s->items[j].row)) {
        s->items[i].live = false;
      }
    }
  }
}

// ---- files -------------------------------------------------------------------------------------

enum { OVERRIDE_LAYER = 1000000 };

typedef struct open_file {
  dev_t device;
  ino_t inode;
} open_file;

// The files being read, outermost first.
typedef struct chain {
  open_file files[BRIM_CONFIG_MAX_INCLUDES + 1];
  int depth;
  int total;
  int next_layer;
  bool no_include;
} chain;

static brim_status source_create(brim_config_source **out) {
  *out = NULL;
  brim_config_source *source = brim_calloc(1, sizeof *source);
  if (!source) return brim_config_no_memory();
  brim_status status = brim_arena_create(0, &source->arena);
  if (status) {
    brim_free(source);
    return status;
  }
  source->refs = 1;
  source->context.arena = source->arena;
  source->override_layer = OVERRIDE_LAYER;
  source->point_count = 1;
  *out = source;
  return BRIM_OK;
}

static void source_release(brim_config_source *source) {
  if (!source || __atomic_sub_fetch(&source->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  brim_arena_destroy(source->arena);
  brim_free(source);
}

void brim_config_close(brim_config *config) {
  if (!config) return;
  source_release(config->source);
  brim_arena_destroy(config->arena);
  brim_free(config);
}

static brim_status load_file(brim_config_source *source, chain *c, const char *path);

static brim_status include_one(brim_config_source *source, chain *c, const char *from,
                               const brim_config_node *node) {
  if (node->kind != BRIM_CONFIG_NODE_SCALAR || !*node->text) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "include takes a path or a list of paths");
  }
  if (++c->total > BRIM_CONFIG_MAX_INCLUDES) {
    return brim_fail_at(BRIM_ELIMIT, AT(node->at), "more than %d includes",
                        BRIM_CONFIG_MAX_INCLUDES);
  }
  char *dir = from ? brim_fs_dirname(from) : NULL;
  if (from && !dir) return brim_config_no_memory();
  char *path = brim_fs_join(dir, node->text);
  brim_free(dir);
  if (!path) return brim_config_no_memory();
  brim_status status = load_file(source, c, path);
  brim_free(path);
  if (!status) return BRIM_OK;
  return brim_fail_context(status, "included from %s:%d:%d", AT(node->at));
}

static brim_status load_tree(brim_config_source *source, chain *c, const char *path,
                             const brim_config_node *root) {
  const brim_config_node *include = brim_config_node_get(root, "include");
  if (include && c->no_include) {
    return brim_fail_at(BRIM_EINVAL, AT(include->at),
                        "include is not accepted here; send the whole config in one text");
  }
  if (include && include->kind == BRIM_CONFIG_NODE_LIST) {
    for (const brim_config_node *n = include->first; n; n = n->next) {
      BRIM_TRY(include_one(source, c, path, n));
    }
  } else if (include) {
    BRIM_TRY(include_one(source, c, path, include));
  }
  source->settings.layer = c->next_layer++;
  return flatten(source, root);
}

static brim_status load_text(brim_config_source *source, chain *c, const char *path,
                             const char *name, const char *text, size_t size) {
  char *file = brim_arena_strdup(source->arena, name);
  if (!file) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", name);
  brim_config_node *root;
  BRIM_TRY(brim_config_yaml_parse(&source->context, text, size, file, &root));
  return load_tree(source, c, path, root);
}

static brim_status load_file(brim_config_source *source, chain *c, const char *path) {
  struct stat info;
  if (stat(path, &info) == 0) {
    // Reading a device or a pipe might never end.
    if (!S_ISREG(info.st_mode)) {
      return brim_fail(BRIM_EINVAL, "%s: not a regular file; a config is a YAML file", path);
    }
    for (int i = 0; i < c->depth; i++) {
      if (c->files[i].device == info.st_dev && c->files[i].inode == info.st_ino) {
        return brim_fail(BRIM_EINVAL, "%s: the file includes itself", path);
      }
    }
    c->files[c->depth] = (open_file){info.st_dev, info.st_ino};
  }
  char *text;
  size_t size;
  BRIM_TRY(brim_fs_read(path, BRIM_CONFIG_MAX_BYTES, &text, &size));
  c->depth++;
  brim_status status = load_text(source, c, path, path, text, size);
  c->depth--;
  brim_free(text);
  return status;
}

static brim_status load_settings(brim_config_source *source, const brim_config_options *options) {
  chain c = {.no_include = options->no_include};
  source->context.mode = options->mode;
  source->context.all_mistakes = options->on_mistake != NULL;
  if (options->facts) {
    source->gpu_bytes = options->facts->gpu_bytes;
    source->cpu_cores = options->facts->cpu_cores;
    if (options->facts->gpu_name) {
      source->gpu_name = brim_arena_strdup(source->arena, options->facts->gpu_name);
      if (!source->gpu_name) return brim_config_no_memory();
    }
  }
  if (options->base) BRIM_TRY(load_file(source, &c, options->base));
  if (options->path) BRIM_TRY(load_file(source, &c, options->path));
  if (options->text) {
    const char *name = options->text_name ? options->text_name : "config";
    BRIM_TRY(load_text(source, &c, options->text_path, name, options->text, strlen(options->text)));
  }
  for (size_t i = 0; i < options->override_count; i++) {
    BRIM_TRY(
        brim_config_mistake(&source->context, flatten_override(source, options->overrides[i])));
  }
  own_rows(source);
  mark_live(source);
  return brim_config_grid_prepare(source);
}

brim_status brim_config_check_no_includes(const char *text, const char *name) {
  brim_config_source *source;
  brim_config_node *root;
  BRIM_TRY(source_create(&source));
  brim_status status = brim_config_yaml_parse(&source->context, text, strlen(text), name, &root);
  const brim_config_node *include = status ? NULL : brim_config_node_get(root, "include");
  if (include) {
    status = brim_fail_at(BRIM_EINVAL, AT(include->at),
                          "include is not accepted here; send the whole config in one text");
  } else {
    brim_status_clear();
    status = BRIM_OK;
  }
  source_release(source);
  return status;
}

static bool has_arguments(const brim_config_source *source, const brim_config_setting *s) {
  for (size_t i = 0; i < source->settings.count; i++) {
    const brim_config_setting *other = &source->settings.items[i];
    if (other->live && other->row == s->row && other->slot == s->slot && other->arg) return true;
  }
  return false;
}

enum { MAX_POINTS_TRIED = 256 };

// Warns of '...' in an item of an axis. Resolving the first point warns only of the first item.
static brim_status warn_of_tail(brim_config_source *source, const brim_config_row *row,
                                const brim_config_node *node) {
  if (!brim_config_row_is_component(row) || node->kind != BRIM_CONFIG_NODE_SCALAR) return BRIM_OK;
  size_t n = strlen(node->text);
  while (n && strchr(" \t\n", node->text[n - 1])) n--;
  if (n < 3 || strncmp(node->text + n - 3, "...", 3)) return BRIM_OK;
  return brim_config_warn_tail(&source->context, row->key.name, node->at);
}

// Tries every item of an axis, so that a bad item is found before anything runs. If an item needs a whole point to
// be resolved, at most MAX_POINTS_TRIED items are tried.
static brim_status try_axis(brim_config_source *source, const brim_config_axis_state *axis) {
  const brim_config_setting *s = &source->settings.items[axis->setting];
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  bool whole_point = s->arg || (brim_config_row_is_component(row) && has_arguments(source, s));
  brim_config_path path = {s->row, s->slot, s->arg};
  for (size_t index = 0; index < axis->count; index++) {
    const brim_config_node *n = axis->items[index];
    bool placeholder = n->kind == BRIM_CONFIG_NODE_SCALAR && strstr(n->text, "{{");
    brim_status status = BRIM_OK;
    if (whole_point || placeholder) {
      if (index >= MAX_POINTS_TRIED) break;
      brim_config *point;
      status = brim_config_resolve(source, index * axis->stride, true, &point);
      if (!status) brim_config_close(point);
    } else {
      brim_arena_mark mark = brim_arena_get_mark(source->arena);
      brim_str text;
      brim_str_init(&text);
      status = brim_config_item_text(source->arena, path, n, &text);
      brim_str_deinit(&text);
      brim_arena_release(source->arena, mark);
    }
    if (!status) status = warn_of_tail(source, row, n);
    if (status) return status;
  }
  return BRIM_OK;
}

// Reports the mistakes that were kept, then the mistake that ended the load. The load fails with the first mistake.
static brim_status report_mistakes(const brim_config_source *source,
                                   const brim_config_options *options, brim_status status) {
  const brim_config_warnings *m = &source->context.mistakes;
  if (!options->on_mistake || (status && status != BRIM_EINVAL)) return status;
  for (size_t i = 0; i < m->count; i++) options->on_mistake(options->ctx, m->items[i]);
  if (status) options->on_mistake(options->ctx, brim_status_detail());
  if (m->count == 0) return status;
  brim_status_set_detail(m->items[0]);
  return BRIM_EINVAL;
}

brim_status brim_config_load(const brim_config_options *options, brim_config **out) {
  *out = NULL;
  brim_config_source *source;
  BRIM_TRY(source_create(&source));
  brim_config *config = NULL;
  brim_status status = load_settings(source, options);
  if (status) goto fail_source;
  status = brim_config_resolve(source, 0, false, &config);
  if (status) goto fail_source;
  for (size_t i = 0; i < source->axis_count && !status; i++) {
    status = brim_config_mistake(&source->context, try_axis(source, &source->axes[i]));
  }
  if (!status) status = brim_config_grid_exclude(source, config);
  if (status || source->context.mistakes.count) goto fail_config;
  if (source->axis_count == 0) config->is_point = true;
  source_release(source);  // the config holds a reference
  *out = config;
  return BRIM_OK;
fail_config:
  brim_config_close(config);
fail_source:
  status = report_mistakes(source, options, status);
  source_release(source);
  return status;
}

brim_status brim_config_open(const char *path, const char *const *overrides, size_t override_count,
                             brim_config **out) {
  brim_config_options options = {.path = path,
                                 .overrides = overrides,
                                 .override_count = override_count,
                                 .mode = BRIM_CONFIG_RUN};
  return brim_config_load(&options, out);
}

size_t brim_config_warning_count(const brim_config *config) {
  return config->source->context.warnings.count;
}

const char *brim_config_warning(const brim_config *config, size_t index) {
  const brim_config_warnings *w = &config->source->context.warnings;
  return index < w->count ? w->items[index] : NULL;
}
