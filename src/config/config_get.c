// Reading a resolved config: typed getters by key or alias, components by slot, grid points.
// The public half (include/brim/config.h) is here too.
#include <assert.h>
#include <string.h>

#include "config/config_int.h"

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

static const brim_config_value *find(const brim_config *config, const char *key,
                                     const brim_config_row **row) {
  int index = brim_config_row_find(key);
  if (index < 0) return NULL;
  *row = brim_config_row_at((size_t)index);
  return &config->values[index];
}

bool brim_config_is_set(const brim_config *config, const char *key) {
  const brim_config_row *row;
  const brim_config_value *value = find(config, key, &row);
  return value && value->is_set;
}

bool brim_config_is_asked(const brim_config *config, const char *key) {
  const brim_config_row *row;
  const brim_config_value *value = find(config, key, &row);
  if (!value || !brim_config_value_is_asked(config->source, row, value)) return false;
  return value->layer == config->source->override_layer || !brim_config_link_is_usual(row, value);
}

brim_config_layer brim_config_layer_of(const brim_config *config, const char *key) {
  const brim_config_row *row;
  const brim_config_value *value = find(config, key, &row);
  if (!value || value->layer == -2) return BRIM_CONFIG_FROM_DEFAULT;
  if (value->layer == config->source->override_layer) return BRIM_CONFIG_FROM_OVERRIDE;
  return brim_config_layer_is_preset(config->source, value->layer) ? BRIM_CONFIG_FROM_PRESET
                                                                   : BRIM_CONFIG_FROM_FILE;
}

const char *brim_config_origin(const brim_config *config, const char *key) {
  const brim_config_row *row;
  const brim_config_value *value = find(config, key, &row);
  return value && value->origin ? value->origin : "default";
}

// The value when the key exists, has a value and is of one of the wanted types (a bit set).
static brim_status get(const brim_config *config, const char *key, unsigned types,
                       const char *wanted, const brim_config_value **out) {
  const brim_config_row *row = NULL;
  const brim_config_value *value = find(config, key, &row);
  if (!value) {
    const char *near = brim_config_row_nearest(key, NULL);
    if (!near) return brim_fail(BRIM_ENOENT, "unknown key '%.120s'", key);
    return brim_fail(BRIM_ENOENT, "unknown key '%.120s'; did you mean '%s'?", key, near);
  }
  if (!(types >> row->type & 1U)) {
    return brim_fail(BRIM_EINVAL, "'%.120s' is %s, not %s", key, row->key.type, wanted);
  }
  if (value->is_null) return brim_fail(BRIM_EINVAL, "'%.120s' has no value", key);
  *out = value;
  return BRIM_OK;
}

#define BIT(type) (1U << BRIM_CONFIG_##type)

brim_status brim_config_get_int(const brim_config *config, const char *key, int64_t *out) {
  const brim_config_value *value;
  BRIM_TRY(get(config, key, BIT(INT) | BIT(BYTES), "int", &value));
  *out = value->integer;
  return BRIM_OK;
}

brim_status brim_config_get_float(const brim_config *config, const char *key, double *out) {
  const brim_config_value *value;
  BRIM_TRY(get(config, key, BIT(FLOAT) | BIT(INT) | BIT(BYTES), "float", &value));
  *out = value->number;
  return BRIM_OK;
}

brim_status brim_config_get_bool(const brim_config *config, const char *key, bool *out) {
  const brim_config_value *value;
  BRIM_TRY(get(config, key, BIT(BOOL), "bool", &value));
  *out = value->boolean;
  return BRIM_OK;
}

brim_status brim_config_get_string(const brim_config *config, const char *key, const char **out) {
  const brim_config_value *value;
  BRIM_TRY(get(config, key, BIT(STRING) | BIT(CHOICE) | BIT(DEVICE), "string", &value));
  *out = value->string;
  return BRIM_OK;
}

brim_status brim_config_get_ints(const brim_config *config, const char *key, const int64_t **out,
                                 size_t *count) {
  *out = NULL;
  *count = 0;
  const brim_config_row *row = NULL;
  const brim_config_value *value = find(config, key, &row);
  if (value && value->is_null && (row->type == BRIM_CONFIG_INTS || row->type == BRIM_CONFIG_INT)) {
    return BRIM_OK;
  }
  BRIM_TRY(get(config, key, BIT(INTS) | BIT(DEVICE) | BIT(INT), "list of int", &value));
  *out = row->type == BRIM_CONFIG_INT ? &value->integer : value->ints;
  *count = row->type == BRIM_CONFIG_INT ? 1 : value->ints ? value->count : 0;
  return BRIM_OK;
}

brim_status brim_config_get_strings(const brim_config *config, const char *key,
                                    const char *const **out, size_t *count) {
  *out = NULL;
  *count = 0;
  const brim_config_row *row = NULL;
  const brim_config_value *value = find(config, key, &row);
  if (value && value->is_null && row->type == BRIM_CONFIG_STRINGS) return BRIM_OK;
  BRIM_TRY(get(config, key, BIT(STRINGS) | BIT(DEVICE), "list of string", &value));
  *out = value->strings;
  *count = row->type == BRIM_CONFIG_DEVICE && value->count == 0 ? 1 : value->count;
  return BRIM_OK;
}

brim_status brim_config_devices_apart(const brim_config *config) {
  const char *const *devices;
  size_t count;
  BRIM_TRY(brim_config_get_strings(config, "device", &devices, &count));
  for (size_t i = 0; i < count; i++) {
    for (size_t j = 0; j < i; j++) {
      if (!brim_str_starts(devices[i], "cuda:") || strcmp(devices[i], devices[j]) != 0) continue;
      return brim_fail(BRIM_EINVAL, "%s: 'device' names GPU %s twice",
                       brim_config_origin(config, "device"), devices[i] + strlen("cuda:"));
    }
  }
  return BRIM_OK;
}

// A wrong key or type here is a bug of the caller; an unset value is 0, false or NULL.
static const brim_config_value *must(const brim_config *config, const char *key, unsigned types) {
  const brim_config_row *row = NULL;
  const brim_config_value *value = find(config, key, &row);
  assert(value && (types >> row->type & 1U));
  (void)types;
  return value;
}

int64_t brim_config_int(const brim_config *config, const char *key) {
  return must(config, key, BIT(INT) | BIT(BYTES))->integer;
}

double brim_config_float(const brim_config *config, const char *key) {
  return must(config, key, BIT(FLOAT) | BIT(INT) | BIT(BYTES))->number;
}

bool brim_config_bool(const brim_config *config, const char *key) {
  return must(config, key, BIT(BOOL))->boolean;
}

const char *brim_config_string(const brim_config *config, const char *key) {
  return must(config, key, BIT(STRING) | BIT(CHOICE) | BIT(DEVICE))->string;
}

const brim_pipeline *brim_config_pipeline(const brim_config *config, const char *key,
                                          const char *slot) {
  const brim_config_row *row = NULL;
  const brim_config_value *value = find(config, key, &row);
  int index = brim_config_slot_find(slot);
  if (!value || index < 0 || !brim_config_row_is_component(row)) return NULL;
  if (value->slots[index]) return value->slots[index];
  // A slot not named takes the whole; the whole not given takes the slot train.
  return value
      ->slots[index == BRIM_CONFIG_SLOT_NONE ? BRIM_CONFIG_SLOT_TRAIN : BRIM_CONFIG_SLOT_NONE];
}

const brim_component *brim_config_component(const brim_config *config, const char *key,
                                            const char *slot) {
  const brim_pipeline *pipeline = brim_config_pipeline(config, key, slot);
  return pipeline && pipeline->count ? &pipeline->items[0] : NULL;
}

// ---- the grid
// ----------------------------------------------------------------------------------------

size_t brim_config_axis_count(const brim_config *config) {
  return config->is_point ? 0 : config->source->axis_count;
}

brim_config_axis brim_config_axis_at(const brim_config *config, size_t index) {
  if (index >= brim_config_axis_count(config)) return (brim_config_axis){NULL, 0};
  const brim_config_axis_state *axis = &config->source->axes[index];
  return (brim_config_axis){axis->key, axis->count};
}

size_t brim_config_grid_count(const brim_config *config) {
  return config->is_point ? 1 : config->source->point_count;
}

static brim_status raw_point(const brim_config *config, size_t index, size_t *raw) {
  if (index >= brim_config_grid_count(config)) {
    return brim_fail(BRIM_EINVAL, "grid point %zu of %zu", index, brim_config_grid_count(config));
  }
  if (config->is_point) {
    *raw = config->raw_point;
  } else {
    *raw = config->source->points ? config->source->points[index] : index;
  }
  return BRIM_OK;
}

brim_status brim_config_grid_point(const brim_config *config, size_t index, brim_config **out) {
  *out = NULL;
  size_t raw = 0;
  BRIM_TRY(raw_point(config, index, &raw));
  return brim_config_resolve(config->source, raw, true, out);
}

brim_status brim_config_grid_label(const brim_config *config, size_t index, brim_str *out) {
  size_t raw = 0;
  BRIM_TRY(raw_point(config, index, &raw));
  const brim_config_source *source = config->source;
  brim_arena *scratch;
  BRIM_TRY(brim_arena_create(0, &scratch));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < source->axis_count && !status; i++) {
    const brim_config_setting *s = &source->settings.items[source->axes[i].setting];
    brim_str_printf(out, "%s%s=", i ? " " : "", s->written);
    const brim_config_node *node = brim_config_setting_node(source, s, raw);
    bool as_written = node->kind == BRIM_CONFIG_NODE_SCALAR &&
                      (strstr(node->text, "{{") ||
                       brim_config_row_is_component(brim_config_row_at((size_t)s->row)));
    if (as_written) {
      brim_str_append(out, node->text);
    } else {
      status =
          brim_config_item_text(scratch, (brim_config_path){s->row, s->slot, s->arg}, node, out);
    }
  }
  brim_arena_destroy(scratch);
  return status ? status : brim_str_status(out);
}
