// Grids: which settings are axes, zip, exclude, and the points that are left.
// A list where a scalar is needed is an axis; keys as written, the last fastest. So is a function of
// config_axes.c.
#include <string.h>

#include "config/config_int.h"

#define AT(p) (p).file, (p).line, (p).col

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
}

static bool all_lists(const brim_config_node *node) {
  for (const brim_config_node *n = node->first; n; n = n->next) {
    if (n->kind != BRIM_CONFIG_NODE_LIST) return false;
  }
  return node->count > 0;
}

static bool arg_takes_list(const brim_config_source *source, const brim_config_setting *s) {
  const brim_config_arg *arg = brim_config_setting_arg(source, s);
  return !arg || brim_config_arg_takes_list(arg->type);
}

static brim_status is_axis(const brim_config_source *source, const brim_config_setting *s,
                           bool *out) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  *out = false;
  if (s->node->kind != BRIM_CONFIG_NODE_LIST || s->node->tag == BRIM_CONFIG_TAG_LIST ||
      row->flags & BRIM_CONFIG_NEVER_AXIS) {
    return BRIM_OK;
  }
  bool list = s->arg ? arg_takes_list(source, s) : brim_config_row_takes_list(row);
  if (list) {
    *out = all_lists(s->node);
    return BRIM_OK;
  }
  if (s->node->count == 0) {
    return brim_fail_at(BRIM_EINVAL, AT(s->node->at), "'%s': the list is empty", s->written);
  }
  *out = true;
  return BRIM_OK;
}

static const char *axis_key(brim_arena *arena, const brim_config_setting *s) {
  const char *key = brim_config_row_at((size_t)s->row)->key.name;
  const char *slot = brim_config_slot_name(s->slot);
  return brim_arena_printf(arena, "%s%s%s%s%s", key, slot ? "." : "", slot ? slot : "",
                           s->arg ? "." : "", s->arg ? s->arg : "");
}

// The items of a list.
static brim_status list_items(brim_config_source *source, const brim_config_setting *s,
                              brim_config_axis_state *out) {
  out->items = brim_arena_calloc(source->arena, s->node->count, sizeof *out->items);
  if (!out->items) return no_memory();
  for (const brim_config_node *n = s->node->first; n; n = n->next) out->items[out->count++] = n;
  return BRIM_OK;
}

static brim_status find_axes(brim_config_source *source) {
  size_t cap = 0;
  BRIM_TRY(brim_config_add_seeds(source));
  for (size_t i = 0; i < source->settings.count; i++) {
    brim_config_setting *s = &source->settings.items[i];
    bool axis;
    if (!s->live) continue;
    BRIM_TRY(is_axis(source, s, &axis));
    const bool function = brim_config_is_axis_function(source, s);
    if (!axis && !function) continue;
    BRIM_TRY(brim_config_grow(source->arena, &source->axes, sizeof *source->axes,
                              source->axis_count, &cap));
    brim_config_axis_state *state = &source->axes[source->axis_count];
    *state = (brim_config_axis_state){.setting = (int)i, .key = axis_key(source->arena, s)};
    if (!state->key) return no_memory();
    BRIM_TRY(function ? brim_config_axis_items(source, s, state) : list_items(source, s, state));
    s->axis = (int)source->axis_count++;
  }
  return BRIM_OK;
}

int brim_config_axis_find(const brim_config_source *source, brim_config_path path) {
  int index = brim_config_setting_find(source, path.row, path.slot, path.arg);
  return index < 0 ? -1 : source->settings.items[index].axis;
}

// ---- zip
// -----------------------------------------------------------------------------------------

// Which axis leads each axis, and which stand in a group already.
typedef struct zips {
  int *leader;
  bool *taken;
} zips;

// One group [a, b]: the leader becomes the first of them.
static brim_status zip_group(brim_config_source *source, const brim_config_node *group, zips z) {
  int *leader = z.leader;
  int first = -1;
  for (const brim_config_node *n = group->first; n; n = n->next) {
    if (n->kind != BRIM_CONFIG_NODE_SCALAR) {
      return brim_fail_at(BRIM_EINVAL, AT(n->at), "zip takes keys: [a, b] or [[a, b], [c, d]]");
    }
    brim_config_path path;
    BRIM_TRY(brim_config_path_find(source->arena, n->text, &path));
    if (path.row < 0) return brim_config_unknown_key(n->text, NULL, n->at);
    path.row = brim_config_own_row(source, n->text, path.row);
    int axis = brim_config_axis_find(source, path);
    if (axis < 0) continue;  // an override made it a single value
    if (source->axes[axis].draws) {
      return brim_fail_at(BRIM_EINVAL, AT(n->at),
                          "zip: '%.80s' is drawn at random; draws change together already",
                          n->text);
    }
    if (z.taken[axis]) {
      return brim_fail_at(BRIM_EINVAL, AT(n->at), "zip names '%.80s' twice", n->text);
    }
    if (first < 0) first = axis;
    if (source->axes[axis].count != source->axes[first].count) {
      return brim_fail_at(BRIM_EINVAL, AT(n->at), "zip: '%s' has %zu values but '%s' has %zu",
                          source->axes[axis].key, source->axes[axis].count, source->axes[first].key,
                          source->axes[first].count);
    }
    leader[axis] = first;
    z.taken[axis] = true;
  }
  // The group stands where its first axis was written.
  int least = first;
  for (int i = 0; i < (int)source->axis_count; i++) {
    if (leader[i] == first && i < least) least = i;
  }
  for (int i = 0; i < (int)source->axis_count; i++) {
    if (first >= 0 && leader[i] == first) leader[i] = least;
  }
  return BRIM_OK;
}

static brim_status read_zip(brim_config_source *source, zips z) {
  const brim_config_node *zip = source->settings.zip;
  if (!zip) return BRIM_OK;
  if (zip->kind != BRIM_CONFIG_NODE_LIST) {
    return brim_fail_at(BRIM_EINVAL, AT(zip->at), "zip takes keys: [a, b] or [[a, b], [c, d]]");
  }
  if (!all_lists(zip)) return zip_group(source, zip, z);
  for (const brim_config_node *n = zip->first; n; n = n->next) {
    BRIM_TRY(zip_group(source, n, z));
  }
  return BRIM_OK;
}

// All draws of a point have the same number.
static brim_status zip_draws(brim_config_source *source, int *leader) {
  const int row = brim_config_row_find("samples");
  const int samples = brim_config_setting_find(source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  int first = -1;
  for (int i = 0; i < (int)source->axis_count; i++) {
    if (!source->axes[i].draws) continue;
    if (first < 0) first = i;
    leader[i] = first;
  }
  if (first >= 0 || samples < 0) return BRIM_OK;
  const brim_config_place at = source->settings.items[samples].at;
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s:%d:%d: ", AT(at));
  brim_str_append(&text, brim_tr("'samples' has no effect: no value is drawn at random, such as "
                                 "lr: loguniform(1e-5, 1e-1)"));
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_config_warn(&source->context, text.data);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_config_grid_prepare(brim_config_source *source) {
  BRIM_TRY(find_axes(source));
  int *leader = brim_arena_calloc(source->arena, source->axis_count + 1, sizeof *leader);
  bool *taken = brim_arena_calloc(source->arena, source->axis_count + 1, sizeof *taken);
  if (!leader || !taken) return no_memory();
  for (size_t i = 0; i < source->axis_count; i++) leader[i] = (int)i;
  BRIM_TRY(read_zip(source, (zips){leader, taken}));
  BRIM_TRY(zip_draws(source, leader));
  size_t total = 1;
  for (size_t i = source->axis_count; i-- > 0;) {
    brim_config_axis_state *axis = &source->axes[i];
    if (leader[i] != (int)i) continue;
    axis->stride = total;
    if (axis->count > BRIM_CONFIG_MAX_GRID / total) {
      const brim_config_setting *s = &source->settings.items[axis->setting];
      return brim_fail_at(BRIM_ELIMIT, AT(s->at), "the grid has more than %d points",
                          BRIM_CONFIG_MAX_GRID);
    }
    total *= axis->count;
  }
  for (size_t i = 0; i < source->axis_count; i++) {
    source->axes[i].stride = source->axes[leader[i]].stride;
  }
  source->point_count = total;
  return BRIM_OK;
}

// ---- exclude
// -----------------------------------------------------------------------------------------

brim_status brim_config_item_text(brim_arena *arena, brim_config_path path,
                                  const brim_config_node *node, brim_str *out) {
  const brim_config_row *row = brim_config_row_at((size_t)path.row);
  if (path.arg) {
    brim_value v;
    BRIM_TRY(brim_config_node_value(arena, node, &v));
    brim_config_value_print(out, &v);
    return brim_str_status(out);
  }
  if (!brim_config_row_is_component(row)) {
    brim_config_value v;
    BRIM_TRY(brim_config_convert(arena, row, node, &v));
    if (v.is_null) {
      brim_str_append(out, "null");
    } else {
      brim_config_value_text(out, row, &v);
    }
    return brim_str_status(out);
  }
  brim_config_drafts drafts;
  const brim_pipeline *pipeline;
  BRIM_TRY(brim_config_drafts_from_node(arena, row, node, &drafts));
  for (size_t i = 0; i < drafts.count; i++) {
    BRIM_TRY(brim_config_component_check(arena, row->category, drafts.items[i]));
  }
  BRIM_TRY(brim_config_pack(arena, &drafts, &pipeline));
  if (pipeline->count || pipeline->tail) {
    brim_config_pipeline_print(out, pipeline);
  } else {
    brim_str_append(out, "null");
  }
  return brim_str_status(out);
}

// One key of one exclude map: an axis and which of its items match; axis -1 is a fixed value.
typedef struct condition {
  int axis;
  size_t *budget;  // axis items that may still be compared
  bool fixed_match;
  unsigned char *match;
} condition;

static void fixed_text(const brim_config *base, brim_config_path path, brim_str *out) {
  const brim_config_value *v = &base->values[path.row];
  const brim_pipeline *p = v->slots[path.slot];
  if (path.arg) {
    const brim_value *arg = p && p->count ? brim_component_arg(&p->items[0], path.arg) : NULL;
    if (arg) brim_config_value_print(out, arg);
  } else if (path.slot) {
    if (p) brim_config_pipeline_print(out, p);
  } else if (v->is_null) {
    brim_str_append(out, "null");
  } else {
    brim_config_value_text(out, brim_config_row_at((size_t)path.row), v);
  }
}

// Marks what equals one wanted value.
static brim_status match_value(brim_config_source *source, const brim_config *base,
                               brim_config_path path, const brim_config_node *wanted,
                               condition *c) {
  brim_str want, have;
  brim_str_init(&want);
  brim_str_init(&have);
  brim_status status = brim_config_item_text(source->arena, path, wanted, &want);
  if (!status && c->axis < 0) {
    fixed_text(base, path, &have);
    status = brim_str_status(&have);
    if (!strcmp(want.data, have.data)) c->fixed_match = true;
  }
  if (!status && c->axis >= 0) {
    if (source->axes[c->axis].count > *c->budget) {
      status = brim_fail_at(BRIM_ELIMIT, AT(wanted->at), "exclude is too large for this grid");
    } else {
      *c->budget -= source->axes[c->axis].count;
    }
    const brim_config_axis_state *axis = &source->axes[c->axis];
    for (size_t i = 0; i < axis->count && !status; i++) {
      brim_arena_mark mark = brim_arena_get_mark(source->arena);
      brim_str_clear(&have);
      status = brim_config_item_text(source->arena, path, axis->items[i], &have);
      brim_arena_release(source->arena, mark);
      if (!status && !strcmp(want.data, have.data)) c->match[i] = 1;
    }
  }
  brim_str_deinit(&want);
  brim_str_deinit(&have);
  return status;
}

static brim_status read_condition(brim_config_source *source, const brim_config *base,
                                  const brim_config_node *node, condition *c) {
  brim_config_path path;
  BRIM_TRY(brim_config_path_find(source->arena, node->key, &path));
  if (path.row < 0 || brim_config_row_at((size_t)path.row)->type == BRIM_CONFIG_SPECIAL) {
    return brim_config_unknown_key(node->key, NULL, node->key_at);
  }
  path.row = brim_config_own_row(source, node->key, path.row);
  c->axis = brim_config_axis_find(source, path);
  if (c->axis >= 0) {
    c->match = brim_arena_calloc(source->arena, source->axes[c->axis].count, 1);
    if (!c->match) return no_memory();
  }
  bool any_of = node->kind == BRIM_CONFIG_NODE_LIST && node->tag != BRIM_CONFIG_TAG_LIST &&
                !brim_config_row_takes_list(brim_config_row_at((size_t)path.row));
  if (!any_of) return match_value(source, base, path, node, c);
  for (const brim_config_node *n = node->first; n; n = n->next) {
    BRIM_TRY(match_value(source, base, path, n, c));
  }
  return BRIM_OK;
}

static bool matches(const brim_config_source *source, const condition *conditions, size_t count,
                    size_t raw) {
  for (size_t i = 0; i < count; i++) {
    const condition *c = &conditions[i];
    if (c->axis < 0) {
      if (!c->fixed_match) return false;
      continue;
    }
    const brim_config_axis_state *axis = &source->axes[c->axis];
    if (!c->match[raw / axis->stride % axis->count]) return false;
  }
  return true;
}

static brim_status apply_exclude(brim_config_source *source, const brim_config *base,
                                 const brim_config_node *map, unsigned char *gone, size_t *budget) {
  if (map->kind != BRIM_CONFIG_NODE_MAP || map->count == 0 || map->count > 32) {
    return brim_fail_at(BRIM_EINVAL, AT(map->at),
                        "exclude takes maps of up to 32 keys: - {lr: 0.1, batch_size: 64}");
  }
  condition conditions[32] = {{0}};
  size_t count = 0;
  for (const brim_config_node *n = map->first; n; n = n->next) {
    conditions[count].budget = budget;
    BRIM_TRY(read_condition(source, base, n, &conditions[count++]));
  }
  for (size_t raw = 0; raw < source->point_count; raw++) {
    if (!gone[raw] && matches(source, conditions, count, raw)) gone[raw] = 1;
  }
  return BRIM_OK;
}

brim_status brim_config_grid_exclude(brim_config_source *source, const brim_config *base) {
  const brim_config_node *exclude = source->settings.exclude;
  if (!exclude) return BRIM_OK;
  if (exclude->kind != BRIM_CONFIG_NODE_LIST || exclude->count > BRIM_CONFIG_MAX_EXCLUDES) {
    return brim_fail_at(BRIM_EINVAL, AT(exclude->at), "exclude takes a list of up to %d maps",
                        BRIM_CONFIG_MAX_EXCLUDES);
  }
  unsigned char *gone = brim_arena_calloc(source->arena, source->point_count, 1);
  uint32_t *points = brim_arena_calloc(source->arena, source->point_count, sizeof *points);
  if (!gone || !points) return no_memory();
  size_t budget = BRIM_CONFIG_MAX_MATCHES;
  for (const brim_config_node *n = exclude->first; n; n = n->next) {
    BRIM_TRY(apply_exclude(source, base, n, gone, &budget));
  }
  size_t kept = 0;
  for (size_t raw = 0; raw < source->point_count; raw++) {
    if (!gone[raw]) points[kept++] = (uint32_t)raw;
  }
  if (kept == 0) {
    return brim_fail_at(BRIM_EINVAL, AT(exclude->at), "exclude leaves no point of the grid");
  }
  source->points = points;
  source->point_count = kept;
  return BRIM_OK;
}
