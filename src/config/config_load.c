// Loading: files, includes, overrides, then one resolved config (the first point of its grid).
// Layers, lowest first: defaults, preset, includes, file, overrides.
#include <string.h>
#include <sys/stat.h>

#include "config/config_int.h"

#define AT(p) (p).file, (p).line, (p).col

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
  if (!source) return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
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
  if (from && !dir) return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
  char *path = brim_fs_join(dir, node->text);
  brim_free(dir);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
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
  return brim_config_flatten(source, root);
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
    // A device or a pipe could keep us for ever.
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
      if (!source->gpu_name) return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
    }
  }
  if (options->base) BRIM_TRY(load_file(source, &c, options->base));
  if (options->path) BRIM_TRY(load_file(source, &c, options->path));
  if (options->text) {
    const char *name = options->text_name ? options->text_name : "config";
    BRIM_TRY(load_text(source, &c, options->text_path, name, options->text, strlen(options->text)));
  }
  for (size_t i = 0; i < options->override_count; i++) {
    BRIM_TRY(brim_config_mistake(&source->context,
                                 brim_config_flatten_override(source, options->overrides[i])));
  }
  brim_config_own_rows(source);
  brim_config_mark_live(source);
  return brim_config_grid_prepare(source);
}

brim_status brim_config_check_whole(const char *text, const char *name) {
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

// A default tail in an item of an axis; the first item is the base config's own.
static brim_status warn_of_tail(brim_config_source *source, const brim_config_row *row,
                                const brim_config_node *node) {
  if (!brim_config_row_is_component(row) || node->kind != BRIM_CONFIG_NODE_SCALAR) return BRIM_OK;
  size_t n = strlen(node->text);
  while (n && strchr(" \t\n", node->text[n - 1])) n--;
  if (n < 3 || strncmp(node->text + n - 3, "...", 3)) return BRIM_OK;
  return brim_config_warn_tail(&source->context, row->key.name, node->at);
}

// Every item of every axis is tried now, so that a bad one is found before anything runs; where
// that takes a whole point, the first of them.
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

// Tells what was kept, and where it was anything fails by the first of it. One that ended the load comes
// last.
static brim_status tell_mistakes(const brim_config_source *source,
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
  source_release(source);  // the config holds it now
  *out = config;
  return BRIM_OK;
fail_config:
  brim_config_close(config);
fail_source:
  status = tell_mistakes(source, options, status);
  source_release(source);
  return status;
}
