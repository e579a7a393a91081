// All values of one grid point: presets chosen, placeholders filled in, scalars converted,
// components built, checked and linked to the keys that say the same thing.
#include <string.h>

#include "config/config_int.h"

#define AT(p) (p).file, (p).line, (p).col

enum { UNRESOLVED, RESOLVING, RESOLVED };
enum { MAX_EXPANDED = 64 << 10 };

typedef struct resolver {
  brim_config *config;
  brim_config_source *source;
  brim_config_preset preset;
  const char *preset_origin;
  bool preset_over;   // given on the command line: above the files, below other overrides
  brim_str replaced;  // by it: "data.batch_size, data.num_workers"
  unsigned char state[BRIM_CONFIG_MAX_ROWS];
} resolver;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
}

// ---- placeholders
// --------------------------------------------------------------------------------

static brim_status resolve_row(resolver *r, int row);

// The key inside "{{ key }}" at p; *end is behind the braces. NULL when it is none.
static char *placeholder(resolver *r, const char *p, const char **end) {
  const char *close = strstr(p, "}}");
  if (!close) return NULL;
  const char *a = p + 2, *b = close;
  while (a < b && *a == ' ') a++;
  while (b > a && b[-1] == ' ') b--;
  *end = close + 2;
  return brim_arena_strndup(r->config->arena, a, (size_t)(b - a));
}

static brim_status placeholder_node(resolver *r, const char *key, const brim_config_node *at,
                                    const brim_config_node **out) {
  int row = brim_config_row_find(key);
  if (row < 0 || brim_config_row_at((size_t)row)->type == BRIM_CONFIG_SPECIAL) {
    const char *near = brim_config_row_nearest(key, NULL);
    if (!near) {
      return brim_fail_at(BRIM_EINVAL, AT(at->at), "the placeholder {{%.80s}} names no key", key);
    }
    return brim_fail_at(BRIM_EINVAL, AT(at->at),
                        "the placeholder {{%.80s}} names no key; did you mean '%s'?", key, near);
  }
  if (r->state[row] == RESOLVING) {
    return brim_fail_at(BRIM_EINVAL, AT(at->at), "the placeholder {{%.80s}} refers to itself", key);
  }
  BRIM_TRY(resolve_row(r, row));
  const brim_config_value *value = &r->config->values[row];
  if (!value->node || value->is_null) {
    return brim_fail_at(BRIM_EINVAL, AT(at->at), "the placeholder {{%.80s}} has no value", key);
  }
  *out = value->node;
  return BRIM_OK;
}

static brim_status expand_text(resolver *r, const brim_config_node *node, brim_str *text) {
  for (const char *p = node->text; *p;) {
    const char *end;
    char *key = p[0] == '{' && p[1] == '{' ? placeholder(r, p, &end) : NULL;
    if (!key) {
      brim_str_append_char(text, *p++);
      continue;
    }
    const brim_config_node *value;
    BRIM_TRY(placeholder_node(r, key, node, &value));
    if (value->kind != BRIM_CONFIG_NODE_SCALAR) {
      return brim_fail_at(BRIM_EINVAL, AT(node->at),
                          "the placeholder {{%.80s}} is a list or a map and cannot stand in text",
                          key);
    }
    brim_str_append(text, value->text);
    if (text->len > MAX_EXPANDED) {
      return brim_fail_at(BRIM_ELIMIT, AT(node->at), "placeholders make a text of over %d bytes",
                          MAX_EXPANDED);
    }
    p = end;
  }
  return brim_str_status(text);
}

static brim_status expand_scalar(resolver *r, const brim_config_node *node,
                                 const brim_config_node **out) {
  *out = node;
  const char *open = strstr(node->text, "{{");
  if (!open || !strstr(open, "}}")) return BRIM_OK;
  brim_config_node *copy = brim_arena_calloc(r->config->arena, 1, sizeof *copy);
  if (!copy) return no_memory();
  const char *end;
  char *key = placeholder(r, open, &end);
  if (!key) return no_memory();
  if (open == node->text && !*end) {  // the whole string: the type is kept
    const brim_config_node *value;
    BRIM_TRY(placeholder_node(r, key, node, &value));
    *copy = *value;
    copy->at = node->at;
  } else {
    brim_str text;
    brim_str_init(&text);
    brim_status status = expand_text(r, node, &text);
    *copy = *node;
    copy->plain = false;
    copy->text = status ? NULL : brim_arena_strdup(r->config->arena, text.data);
    brim_str_deinit(&text);
    if (status) return status;
    if (!copy->text) return no_memory();
  }
  copy->key = node->key;
  copy->key_at = node->key_at;
  copy->next = node->next;
  *out = copy;
  return BRIM_OK;
}

bool brim_config_has_placeholder(const brim_config_node *node) {
  if (node->kind == BRIM_CONFIG_NODE_SCALAR) return strstr(node->text, "{{") != NULL;
  for (const brim_config_node *n = node->first; n; n = n->next) {
    if (brim_config_has_placeholder(n)) return true;
  }
  return false;
}

// Copies only what has placeholders in it.
static brim_status expand(resolver *r, const brim_config_node *node, const brim_config_node **out) {
  *out = node;
  if (!brim_config_has_placeholder(node)) return BRIM_OK;
  if (node->kind == BRIM_CONFIG_NODE_SCALAR) return expand_scalar(r, node, out);
  brim_config_node *copy = brim_arena_calloc(r->config->arena, 1, sizeof *copy);
  if (!copy) return no_memory();
  *copy = *node;
  brim_config_node **link = &copy->first;
  for (const brim_config_node *n = node->first; n; n = n->next) {
    const brim_config_node *child;
    BRIM_TRY(expand(r, n, &child));
    brim_config_node *own = brim_arena_calloc(r->config->arena, 1, sizeof *own);
    if (!own) return no_memory();
    *own = *child;
    own->next = NULL;
    *link = own;
    link = &own->next;
  }
  *out = copy;
  return BRIM_OK;
}

// ---- scalars
// ----------------------------------------------------------------------------------------

static const char *origin_of(resolver *r, int layer, brim_config_place at) {
  if (layer == -2) return "default";
  if (brim_config_layer_is_preset(r->source, layer)) return r->preset_origin;
  if (layer == r->source->override_layer) return "override";
  return brim_arena_printf(r->config->arena, "%s:%d:%d", at.file, at.line, at.col);
}

// As it stands in the files: which of them a preset's learning rate is for is known before
// components are built.
static bool names_adam(const resolver *r) {
  int row = brim_config_row_find("optimizer");
  int index = brim_config_setting_find(r->source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  if (index < 0) {
    const char *text = brim_config_row_at((size_t)row)->key.default_text;
    return !text || brim_str_starts(text, "adam");
  }
  const brim_config_node *node = r->source->settings.items[index].node;
  if (node->kind == BRIM_CONFIG_NODE_MAP) node = brim_config_node_get(node, "_type");
  return node && node->kind == BRIM_CONFIG_NODE_SCALAR && brim_str_starts(node->text, "adam");
}

static const brim_config_preset_value *preset_value(const resolver *r, int row) {
  for (size_t i = 0; i < r->preset.count; i++) {
    if (r->preset.values[i].row == row) return &r->preset.values[i];
  }
  return NULL;
}

// Does a preset of the command line take the place of this setting? Overrides beside it and axes of a
// grid stay, and so does the learning rate of an optimizer that the preset's was not found for.
static bool preset_wins(resolver *r, const brim_config_preset_value *v,
                        const brim_config_setting *s) {
  if (!r->preset_over || !v || s->layer == r->source->override_layer || s->axis >= 0) return false;
  if (strcmp(v->key, "training.learning_rate") == 0 && !names_adam(r)) return false;
  brim_str_printf(&r->replaced, "%s%s", r->replaced.len ? ", " : "", v->key);
  return true;
}

// The node, layer and origin of a row before expansion: setting, preset, default, in this order,
// unless the preset wins.
static brim_status find_node(resolver *r, int row, const brim_config_node **node,
                             brim_config_value *value) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const char *text = info->key.default_text;
  brim_config_place at = {"default", 0, 0};
  value->layer = -2;
  *node = NULL;
  const brim_config_preset_value *preset = preset_value(r, row);
  int index = brim_config_setting_find(r->source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  const brim_config_setting *s = index >= 0 ? &r->source->settings.items[index] : NULL;
  if (s && !preset_wins(r, preset, s)) {
    *node = brim_config_setting_node(r->source, s, r->config->raw_point);
    value->layer = s->layer;
    at = s->at;
  } else if (preset) {
    text = preset->text;
    value->layer = s ? r->source->override_layer - 1 : -1;
    at.file = r->preset_origin;
  }
  value->origin = origin_of(r, value->layer, at);
  if (!value->origin) return no_memory();
  if (!*node && text) {
    *node = brim_config_node_plain(r->config->arena, text, at);
    if (!*node) return no_memory();
  }
  return BRIM_OK;
}

static brim_status default_value(resolver *r, const brim_config_row *info, brim_config_value *out) {
  brim_config_place at = {"default", 0, 0};
  *out = (brim_config_value){.is_null = true};
  if (!info->key.default_text) return BRIM_OK;
  const brim_config_node *node =
      brim_config_node_plain(r->config->arena, info->key.default_text, at);
  if (!node) return no_memory();
  return brim_config_convert(r->config->arena, info, node, out);
}

static bool is_null(const brim_config_node *node) {
  brim_value v;
  return node->kind == BRIM_CONFIG_NODE_SCALAR && !brim_config_scalar(node, &v) &&
         v.kind == BRIM_VALUE_NULL;
}

// The word auto of a key whose default is a number: a value of its own.
static bool is_left_open(const brim_config_row *info, const brim_config_node *node) {
  return info->flags & BRIM_CONFIG_AUTO && strcmp(info->key.default_text, "auto") != 0 &&
         node->kind == BRIM_CONFIG_NODE_SCALAR && !strcmp(node->text, "auto");
}

static brim_status resolve_row(resolver *r, int row) {
  if (r->state[row] == RESOLVED) return BRIM_OK;
  r->state[row] = RESOLVING;
  const brim_config_row *info = brim_config_row_at((size_t)row);
  brim_config_value *value = &r->config->values[row];
  brim_config_value found = {0};
  const brim_config_node *node;
  BRIM_TRY(find_node(r, row, &node, &found));
  *value = (brim_config_value){.is_null = true};
  if (node) BRIM_TRY(expand(r, node, &node));
  if (brim_config_row_is_component(info)) {
    if (node && is_null(node)) {  // null: as if it were not set
      brim_config_place at = {"default", 0, 0};
      const char *text = info->key.default_text;
      node = text ? brim_config_node_plain(r->config->arena, text, at) : NULL;
      if (text && !node) return no_memory();
    }
    value->is_null = !node;
    value->node = node;
  } else if (node) {
    BRIM_TRY(brim_config_convert(r->config->arena, info, node, value));
    if (value->is_null && !is_left_open(info, node)) {  // here too; its place stays known
      BRIM_TRY(default_value(r, info, value));
      found.layer = -2;
    }
  }
  value->layer = found.layer;
  value->is_set = found.layer > -2;
  value->origin = found.origin;
  r->state[row] = RESOLVED;
  return BRIM_OK;
}

// What cannot be read has its default while the rest is looked at.
static brim_status try_row(resolver *r, int row) {
  brim_status status = resolve_row(r, row);
  if (!status) return BRIM_OK;
  BRIM_TRY(brim_config_mistake(&r->source->context, status));
  brim_config_value *value = &r->config->values[row];
  const brim_config_row *info = brim_config_row_at((size_t)row);
  *value = (brim_config_value){.is_null = true};
  if (!brim_config_row_is_component(info)) BRIM_TRY(default_value(r, info, value));
  value->layer = -2;
  value->origin = "default";
  r->state[row] = RESOLVED;
  return BRIM_OK;
}

static brim_status choose_preset(resolver *r) {
  int row = brim_config_row_find("preset");
  int size = brim_config_row_find("model_size");
  BRIM_TRY(try_row(r, row));
  BRIM_TRY(try_row(r, size));
  const brim_config_value *preset = &r->config->values[row];
  if (preset->is_null || !preset->string) return BRIM_OK;
  brim_config_facts facts = {r->source->gpu_name, r->source->gpu_bytes, r->source->cpu_cores};
  brim_config_preset_get(preset->string, r->config->values[size].string, &facts, &r->preset);
  bool automatic = !strcmp(preset->string, "auto");
  r->preset_over = preset->layer == r->source->override_layer;
  r->preset_origin = brim_arena_printf(
      r->config->arena, automatic ? "preset auto (%s)" : "preset %s", r->preset.name);
  if (!r->preset_origin) return no_memory();
  // Whatever a placeholder in `preset` made us read was read without the preset: once more.
  memset(r->state, UNRESOLVED, sizeof r->state);
  r->state[row] = r->state[size] = RESOLVED;
  return BRIM_OK;
}

// ---- components
// ----------------------------------------------------------------------------------------

brim_status brim_config_drafts_from_node(brim_arena *arena, const brim_config_row *row,
                                         const brim_config_node *node, brim_config_drafts *out) {
  *out = (brim_config_drafts){0};
  if (node->kind == BRIM_CONFIG_NODE_LIST) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' expects a %s, not a list", row->key.name,
                        row->key.type);
  }
  if (node->kind == BRIM_CONFIG_NODE_MAP) {
    brim_value v;
    BRIM_TRY(brim_config_node_value(arena, node, &v));
    BRIM_TRY(brim_config_grow(arena, &out->items, sizeof *out->items, 0, &out->cap));
    out->items[out->count++] = (brim_config_draft *)v.component;
    return BRIM_OK;
  }
  brim_value v;
  BRIM_TRY(brim_config_scalar(node, &v));
  if (v.kind == BRIM_VALUE_NULL) return BRIM_OK;
  brim_config_place at = node->at;
  if (!node->plain) at.col++;  // the opening quote
  BRIM_TRY(brim_config_expression_parse(arena, node->text, at, out));
  if (row->type == BRIM_CONFIG_COMPONENT && (out->count != 1 || out->tail)) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' takes one component, not a pipeline",
                        row->key.name);
  }
  return BRIM_OK;
}

brim_status brim_config_pack(brim_arena *arena, const brim_config_drafts *drafts,
                             const brim_pipeline **out) {
  brim_pipeline *pipeline = brim_arena_calloc(arena, 1, sizeof *pipeline);
  brim_component *items = brim_arena_calloc(arena, drafts->count + 1, sizeof *items);
  if (!pipeline || !items) return no_memory();
  for (size_t i = 0; i < drafts->count; i++) items[i] = drafts->items[i]->c;
  *pipeline = (brim_pipeline){.items = items, .count = drafts->count, .tail = drafts->tail};
  *out = pipeline;
  return BRIM_OK;
}

// transform.trian where no transform is set that could have such an argument.
static brim_status unknown_slot(const brim_config_row *row, const brim_config_setting *s) {
  const char *names[BRIM_CONFIG_SLOT_COUNT] = {NULL};
  const char *key = row->key.name;
  for (int i = 1; i < BRIM_CONFIG_SLOT_COUNT; i++) names[i - 1] = brim_config_slot_name(i);
  const char *near = brim_nearest(s->arg, names);
  if (near) {
    return brim_fail_at(
        BRIM_EINVAL, AT(s->at),
        "unknown key '%s'; did you mean '%s.%s'? Known are %s.train, %s.val and %s.test",
        s->written, key, near, key, key, key);
  }
  return brim_fail_at(BRIM_EINVAL, AT(s->at),
                      "unknown key '%s'; known are %s.train, %s.val, %s.test, and the arguments of "
                      "the component in '%s'",
                      s->written, key, key, key, key);
}

// Arguments given apart from the component: {_type: ..., k: v}, model.depth=3.
static brim_status apply_arguments(resolver *r, int row, int slot, brim_config_drafts *drafts) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  for (size_t i = 0; i < r->source->settings.count; i++) {
    const brim_config_setting *s = &r->source->settings.items[i];
    if (!s->live || s->row != row || s->slot != slot || !s->arg) continue;
    if (drafts->count == 0 && info->flags & BRIM_CONFIG_SLOTS && !slot) {
      return unknown_slot(info, s);
    }
    if (drafts->count != 1) {
      return brim_fail_at(
          BRIM_EINVAL, AT(s->at),
          "'%s' is an argument, but '%s' is %s; write the argument inside the expression",
          s->written, info->key.name, drafts->count ? brim_tr("a pipeline") : brim_tr("not set"));
    }
    const brim_config_node *node = brim_config_setting_node(r->source, s, r->config->raw_point);
    BRIM_TRY(expand(r, node, &node));
    brim_value v;
    BRIM_TRY(brim_config_node_value(r->config->arena, node, &v));
    brim_config_draft *draft = drafts->items[0];
    const brim_config_arg *arg =
        brim_config_arg_find(brim_config_component_find(info->category, draft->c.name), s->arg);
    const char *name = arg ? arg->name : s->arg;
    BRIM_TRY(brim_config_draft_set(r->config->arena, draft, name, v, node->at));
  }
  return BRIM_OK;
}

static bool has_settings(const resolver *r, int row, int slot) {
  for (size_t i = 0; i < r->source->settings.count; i++) {
    const brim_config_setting *s = &r->source->settings.items[i];
    if (s->live && s->row == row && s->slot == slot) return true;
  }
  return false;
}

static brim_status build_slot(resolver *r, int row, int slot) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  brim_config_value *value = &r->config->values[row];
  if (slot != BRIM_CONFIG_SLOT_NONE && !has_settings(r, row, slot)) return BRIM_OK;
  const brim_config_node *node = value->node;
  int whole = brim_config_setting_find(r->source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  int own = brim_config_setting_find(r->source, row, slot, NULL);
  if (slot != BRIM_CONFIG_SLOT_NONE && own >= 0) {
    whole = own;
    node =
        brim_config_setting_node(r->source, &r->source->settings.items[own], r->config->raw_point);
    BRIM_TRY(expand(r, node, &node));
  }
  brim_config_drafts drafts = {0};
  brim_arena *arena = r->config->arena;
  if (node) {
    BRIM_TRY(brim_config_drafts_from_node(arena, info, node, &drafts));
    // Points are resolved after the load too, when the warnings no longer change.
    if (drafts.tail && !r->config->is_point) {
      BRIM_TRY(brim_config_warn_tail(&r->source->context, info->key.name, node->at));
    }
  }
  for (size_t i = 0; i < drafts.count; i++) {
    BRIM_TRY(brim_config_component_names(info->category, drafts.items[i]));
  }
  BRIM_TRY(apply_arguments(r, row, slot, &drafts));
  if (!drafts.count && !drafts.tail) return BRIM_OK;
  for (size_t i = 0; i < drafts.count; i++) {
    brim_config_draft *draft = drafts.items[i];
    if (drafts.count == 1) BRIM_TRY(brim_config_link_in(r->config, row, slot, whole, draft));
    BRIM_TRY(brim_config_component_check(arena, info->category, draft));
    if (drafts.count == 1) BRIM_TRY(brim_config_link_out(r->config, row, slot, whole, draft));
  }
  return brim_config_pack(arena, &drafts, &value->slots[slot]);
}

static brim_status build_components(resolver *r) {
  for (int row = 0; row < (int)brim_config_key_count(); row++) {
    const brim_config_row *info = brim_config_row_at((size_t)row);
    if (!brim_config_row_is_component(info)) continue;
    int slots = info->flags & BRIM_CONFIG_SLOTS ? BRIM_CONFIG_SLOT_COUNT : 1;
    brim_config_value *value = &r->config->values[row];
    for (int slot = 0; slot < slots; slot++) {
      BRIM_TRY(brim_config_mistake(&r->source->context, build_slot(r, row, slot)));
    }
    value->is_null = true;
    for (int slot = 0; slot < slots; slot++) {
      if (value->slots[slot]) value->is_null = false;
      if (!has_settings(r, row, slot) || value->layer >= 0) continue;
      for (size_t i = 0; i < r->source->settings.count; i++) {  // set by a slot or an argument
        const brim_config_setting *s = &r->source->settings.items[i];
        if (!s->live || s->row != row || s->slot != slot || value->is_set) continue;
        value->is_set = true;
        value->layer = s->layer;
        value->origin = origin_of(r, s->layer, s->at);
        if (!value->origin) return no_memory();
      }
    }
  }
  return BRIM_OK;
}

// Once for all points of a grid: equal warnings are one.
static brim_status tell_replaced(resolver *r) {
  if (!r->replaced.len) return BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, brim_tr("%s, given on the command line, replaces what the file sets: %s"),
                  r->preset_origin, r->replaced.data);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_config_warn(&r->source->context, text.data);
  brim_str_deinit(&text);
  return status;
}

static brim_status resolve_all(resolver *r) {
  BRIM_TRY(choose_preset(r));
  for (int row = 0; row < (int)brim_config_key_count(); row++) {
    if (brim_config_row_at((size_t)row)->type == BRIM_CONFIG_SPECIAL) {
      r->config->values[row].is_null = true;
      r->config->values[row].layer = -2;
      r->config->values[row].origin = "default";
      continue;
    }
    BRIM_TRY(try_row(r, row));
  }
  BRIM_TRY(brim_str_status(&r->replaced));
  BRIM_TRY(tell_replaced(r));
  BRIM_TRY(brim_config_link_precision(r->config));
  return build_components(r);
}

brim_status brim_config_resolve(brim_config_source *source, size_t raw_point, bool is_point,
                                brim_config **out) {
  *out = NULL;
  brim_config *config = brim_calloc(1, sizeof *config);
  if (!config) return no_memory();
  brim_status status = brim_arena_create(0, &config->arena);
  if (status) goto fail_config;
  status = no_memory();
  config->values =
      brim_arena_calloc(config->arena, brim_config_key_count(), sizeof *config->values);
  if (!config->values) goto fail_arena;
  config->source = source;
  config->raw_point = raw_point;
  config->is_point = is_point;
  resolver r = {.config = config, .source = source, .preset_origin = "preset"};
  brim_str_init(&r.replaced);
  status = resolve_all(&r);
  brim_str_deinit(&r.replaced);
  if (status) goto fail_arena;
  __atomic_add_fetch(&source->refs, 1, __ATOMIC_RELAXED);
  *out = config;
  return BRIM_OK;
fail_arena:
  brim_arena_destroy(config->arena);
fail_config:
  brim_free(config);
  return status;
}
