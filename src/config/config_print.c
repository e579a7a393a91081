// The resolved config as JSON and YAML, and the explanation of a key, component or
// preset. Everything printed here loads back to the same config.
#include <string.h>

#include "config/config_int.h"

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while printing a config");
}

// The axis of a whole key, when this config is a grid and not one point of it.
static const brim_config_axis_state *whole_axis(const brim_config *config, int row) {
  if (config->is_point) return NULL;
  int index = brim_config_axis_find(config->source, (brim_config_path){.row = row});
  return index < 0 ? NULL : &config->source->axes[index];
}

// A slot's pipeline, or the whole's where some slot is given.
static const brim_pipeline *slot_of(const brim_config_value *value, int slot) {
  return value->slots[slot] ? value->slots[slot] : value->slots[0];
}

static bool has_slots(const brim_config_value *value) {
  return value->slots[1] || value->slots[2] || value->slots[3];
}

// ---- JSON
// ----------------------------------------------------------------------------------------------

static json_t *json_pipeline(const brim_pipeline *pipeline) {
  brim_str text;
  brim_str_init(&text);
  brim_config_pipeline_print(&text, pipeline);
  json_t *out = brim_str_status(&text) ? NULL : json_string(text.data);
  brim_str_deinit(&text);
  return out;
}

static json_t *json_slots(const brim_config_value *value) {
  if (!has_slots(value)) return json_pipeline(value->slots[0]);
  json_t *out = json_object();
  for (int slot = 1; out && slot < BRIM_CONFIG_SLOT_COUNT; slot++) {
    const brim_pipeline *p = slot_of(value, slot);
    if (p && brim_json_put(out, brim_config_slot_name(slot), json_pipeline(p))) {
      json_decref(out);
      return NULL;
    }
  }
  return out;
}

static json_t *json_list(const brim_config_value *value) {
  json_t *out = json_array();
  for (size_t i = 0; out && i < value->count; i++) {
    json_t *item = value->ints ? json_integer(value->ints[i]) : json_string(value->strings[i]);
    if (brim_json_push(out, item)) {
      json_decref(out);
      return NULL;
    }
  }
  return out;
}

json_t *brim_config_json_value(const brim_config_row *row, const brim_config_value *value) {
  if (value->is_null) return row->flags & BRIM_CONFIG_AUTO ? json_string("auto") : json_null();
  switch (row->type) {
    case BRIM_CONFIG_INT:
    case BRIM_CONFIG_BYTES:
      return json_integer(value->integer);
    case BRIM_CONFIG_FLOAT:
      return json_real(value->number);
    case BRIM_CONFIG_BOOL:
      return json_boolean(value->boolean);
    case BRIM_CONFIG_INTS:
    case BRIM_CONFIG_STRINGS:
      return json_list(value);
    case BRIM_CONFIG_DEVICE:
      return value->count > 1 ? json_list(value) : json_string(value->string);
    case BRIM_CONFIG_COMPONENT:
    case BRIM_CONFIG_PIPELINE:
      return json_slots(value);
    default:
      return json_string(value->string);
  }
}

// The values of an axis, each as it would be alone.
static json_t *json_axis(int row, const brim_config_axis_state *axis) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  json_t *out = json_array();
  brim_arena *scratch = NULL;
  bool fine = out && !brim_arena_create(0, &scratch);
  for (size_t i = 0; fine && i < axis->count; i++) {
    const brim_config_node *node = axis->items[i];
    brim_config_value value = {0};
    json_t *item = NULL;
    if (node->kind == BRIM_CONFIG_NODE_SCALAR && strstr(node->text, "{{")) {
      item = json_string(node->text);
    } else if (brim_config_row_is_component(info)) {
      brim_str text;
      brim_str_init(&text);
      brim_config_path path = {.row = row};
      brim_status status = brim_config_item_text(scratch, path, node, &text);
      if (!status) {
        item = strcmp(text.data, "null") ? json_string(text.data) : json_null();
      } else if (status != BRIM_ENOMEM && node->kind == BRIM_CONFIG_NODE_SCALAR) {
        item = json_string(node->text);  // complete only with arguments given apart
      }
      brim_str_deinit(&text);
    } else if (!brim_config_convert(scratch, info, node, &value)) {
      item = brim_config_json_value(info, &value);
    }
    fine = brim_json_push(out, item) == BRIM_OK;
  }
  brim_arena_destroy(scratch);
  if (fine) return out;
  json_decref(out);
  return NULL;
}

// "data.batch_size" into {"data": {"batch_size": value}}.
static brim_status put_nested(json_t *root, const char *key, json_t *value) {
  const char *dot = strchr(key, '.');
  if (!dot) return brim_json_put(root, key, value);
  char group[64];
  size_t length = (size_t)(dot - key);
  if (length >= sizeof group) length = sizeof group - 1;
  memcpy(group, key, length);
  group[length] = 0;
  json_t *inner = json_object_get(root, group);
  if (!inner) {
    inner = json_object();
    brim_status status = brim_json_put(root, group, inner);
    if (status) {
      json_decref(value);
      return status;
    }
  }
  return brim_json_put(inner, dot + 1, value);
}

brim_status brim_config_to_json(const brim_config *config, json_t **out) {
  *out = NULL;
  brim_json_setup();
  json_t *root = json_object();
  if (!root) return no_memory();
  for (int row = 0; row < (int)brim_config_key_count(); row++) {
    const brim_config_row *info = brim_config_row_at((size_t)row);
    if (info->type == BRIM_CONFIG_SPECIAL) continue;
    const brim_config_axis_state *axis = whole_axis(config, row);
    json_t *value =
        axis ? json_axis(row, axis) : brim_config_json_value(info, &config->values[row]);
    brim_status status = put_nested(root, info->key.name, value);
    if (status) {
      json_decref(root);
      return status;
    }
  }
  *out = root;
  return BRIM_OK;
}

brim_status brim_config_json(const brim_config *config, char **out) {
  *out = NULL;
  json_t *root;
  BRIM_TRY(brim_config_to_json(config, &root));
  brim_status status = brim_json_dump(root, 2, out);
  json_decref(root);
  return status;
}

void brim_config_text_free(char *text) { brim_free(text); }

// ---- YAML
// ----------------------------------------------------------------------------------------------

static const char safe_chars[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+()=";

// One character of valid UTF-8.
static uint32_t code_point(const char *text, size_t *length) {
  const unsigned char *p = (const unsigned char *)text;
  *length = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
  uint32_t c = *length == 1 ? p[0] : p[0] & (0x7FU >> *length);
  for (size_t i = 1; i < *length; i++) {
    if ((p[i] & 0xC0) != 0x80) {  // not UTF-8 after all: byte by byte
      *length = 1;
      return p[0];
    }
    c = c << 6 | (p[i] & 0x3F);
  }
  return c;
}

void brim_config_yaml_string(brim_str *out, const char *text) {
  brim_value v;
  brim_config_word(text, &v);
  bool plain = v.kind == BRIM_VALUE_STRING && !text[strspn(text, safe_chars)] && *text != '-' &&
               *text != '=' && strcmp(text, ".");
  if (plain) {
    brim_str_append(out, text);
    return;
  }
  brim_str_append_char(out, '"');
  while (*text) {
    size_t length;
    uint32_t c = code_point(text, &length);
    if (c == '"' || c == '\\') {
      brim_str_printf(out, "\\%c", (char)c);
    } else if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || c == 0xFEFF ||
               c == 0xFFFE || c == 0xFFFF) {
      brim_str_printf(out, "\\u%04x", (unsigned)c);  // YAML would refuse or fold it
    } else {
      brim_str_append_n(out, text, length);
    }
    text += length;
  }
  brim_str_append_char(out, '"');
}

// A JSON value of this file's making, as flow YAML.
void brim_config_yaml_flow(brim_str *out, const json_t *value) {
  char number[32];
  size_t index;
  const json_t *item;
  switch (json_typeof(value)) {
    case JSON_STRING:
      brim_config_yaml_string(out, json_string_value(value));
      break;
    case JSON_INTEGER:
      brim_str_printf(out, "%lld", (long long)json_integer_value(value));
      break;
    case JSON_REAL:
      brim_format_f64(json_real_value(value), number);
      brim_str_append(out, number);
      break;
    case JSON_ARRAY:
      brim_str_append_char(out, '[');
      json_array_foreach(value, index, item) {
        if (index) brim_str_append(out, ", ");
        brim_config_yaml_flow(out, item);
      }
      brim_str_append_char(out, ']');
      break;
    case JSON_TRUE:
    case JSON_FALSE:
      brim_str_append(out, json_is_true(value) ? "true" : "false");
      break;
    default:
      brim_str_append(out, "null");
      break;
  }
}

static void yaml_node(brim_str *out, const brim_config_node *node) {
  if (node->kind == BRIM_CONFIG_NODE_SCALAR) {
    brim_value v;
    brim_config_word(node->text, &v);
    if (node->plain && v.kind != BRIM_VALUE_STRING) {
      brim_str_append(out, *node->text ? node->text : "null");
    } else {
      brim_config_yaml_string(out, node->text);
    }
    return;
  }
  bool list = node->kind == BRIM_CONFIG_NODE_LIST;
  brim_str_append_char(out, list ? '[' : '{');
  for (const brim_config_node *n = node->first; n; n = n->next) {
    if (n != node->first) brim_str_append(out, ", ");
    if (!list) {
      brim_config_yaml_string(out, n->key);
      brim_str_append(out, ": ");
    }
    yaml_node(out, n);
  }
  brim_str_append_char(out, list ? ']' : '}');
}

static void comment(brim_str *out, bool wanted, const char *origin) {
  if (wanted) brim_str_printf(out, "  # %s", origin);
  brim_str_append_char(out, '\n');
}

// Numbers that stand in place of a config's own.
typedef struct replaced {
  const brim_config_number *numbers;
  size_t count;
} replaced;

static const brim_config_number *number_for(const replaced *with, const brim_config_row *info) {
  for (size_t i = 0; i < with->count; i++) {
    if (strcmp(with->numbers[i].key, info->key.name) == 0) return &with->numbers[i];
  }
  return NULL;
}

static json_t *json_with(const brim_config_row *info, const brim_config_value *value,
                         const replaced *with) {
  const brim_config_number *number = number_for(with, info);
  return number ? json_integer(number->value) : brim_config_json_value(info, value);
}

static brim_status yaml_row(const brim_config *config, int row, bool with_origins,
                            const replaced *with, brim_str *out) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const brim_config_value *value = &config->values[row];
  const char *dot = strchr(info->key.name, '.');
  const int indent = dot ? 2 : 0;
  json_t *json = json_with(info, value, with);
  if (!json) return no_memory();
  brim_str_repeat(out, ' ', (size_t)indent);
  brim_str_printf(out, "%s:", dot ? dot + 1 : info->key.name);
  if (json_is_object(json)) {
    comment(out, with_origins, value->origin);
    const char *slot;
    json_t *item;
    json_object_foreach(json, slot, item) {
      brim_str_repeat(out, ' ', (size_t)indent + 2);
      brim_str_printf(out, "%s: ", slot);
      brim_config_yaml_flow(out, item);
      brim_str_append_char(out, '\n');
    }
  } else {
    brim_str_append_char(out, ' ');
    brim_config_yaml_flow(out, json);
    comment(out, with_origins, value->origin);
  }
  json_decref(json);
  return brim_str_status(out);
}

// In a grid what varies stands apart, as written: the order of axes is the order of points. So do
// components, whose filled-in arguments may differ from point to point.
static brim_status yaml_axis(const brim_config *config, const brim_config_setting *s,
                             bool with_origins, brim_str *out) {
  const brim_config_source *source = config->source;
  const bool seeds = s - source->settings.items == source->seeds;
  const bool function = s->axis >= 0 && s->node->kind == BRIM_CONFIG_NODE_SCALAR;
  const char *slot = brim_config_slot_name(s->slot);
  brim_str_printf(out, "%s%s%s%s%s: ", brim_config_row_at((size_t)s->row)->key.name,
                  slot ? "." : "", slot ? slot : "", s->arg ? "." : "", s->arg ? s->arg : "");
  if (seeds) {  // the first of them: `seeds` makes the others again
    yaml_node(out, source->axes[s->axis].items[0]);
  } else if (function && s->node->plain) {
    brim_str_append(out, s->node->text);  // quotes could make a text of it
  } else if (function || s->axis < 0 ||
             brim_config_row_is_component(brim_config_row_at((size_t)s->row))) {
    yaml_node(out, s->node);
  } else {
    json_t *json = json_axis(s->row, &config->source->axes[s->axis]);
    if (!json) return no_memory();
    brim_config_yaml_flow(out, json);
    json_decref(json);
  }
  if (with_origins) brim_str_printf(out, "  # %s:%d:%d", s->at.file, s->at.line, s->at.col);
  brim_str_append_char(out, '\n');
  return brim_str_status(out);
}

static brim_status yaml_grid(const brim_config *config, bool with_origins, brim_str *out) {
  const brim_config_source *source = config->source;
  if (config->is_point) return BRIM_OK;
  for (size_t i = 0; i < source->settings.count; i++) {
    const brim_config_setting *s = &source->settings.items[i];
    bool apart = s->axis >= 0 || brim_config_has_placeholder(s->node) ||
                 brim_config_row_is_component(brim_config_row_at((size_t)s->row));
    if (s->live && apart) BRIM_TRY(yaml_axis(config, s, with_origins, out));
  }
  if (source->settings.zip) {
    brim_str_append(out, "zip: ");
    yaml_node(out, source->settings.zip);
    brim_str_append_char(out, '\n');
  }
  if (source->settings.exclude) {
    brim_str_append(out, "exclude: ");
    yaml_node(out, source->settings.exclude);
    brim_str_append_char(out, '\n');
  }
  return brim_str_status(out);
}

// Was the value made from placeholders?
static bool filled_in(const brim_config *config, int row) {
  int index = brim_config_setting_find(config->source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  return index >= 0 && brim_config_has_placeholder(config->source->settings.items[index].node);
}

// A point of a grid makes no points of its own.
static bool makes_points(const brim_config_row *info) {
  return !strcmp(info->key.name, "seeds") || !strcmp(info->key.name, "samples") ||
         !strcmp(info->key.name, "grid_seed");
}

static bool is_written(const brim_config *config, int row) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const brim_config_value *value = &config->values[row];
  const bool open = value->is_null && !(info->flags & BRIM_CONFIG_AUTO);
  if (open || whole_axis(config, row)) return false;
  if (config->is_point && makes_points(info)) return false;
  if (!value->is_set && !brim_config_key_is_used(&info->key)) return false;  // it says nothing
  // What follows from a preset or a component's defaults may differ at another point of a grid.
  const bool follows = value->layer == -1 || (!value->is_set && !info->key.default_text);
  return config->is_point ||
         !(follows || filled_in(config, row) || brim_config_row_is_component(info));
}

static brim_status to_yaml(const brim_config *config, bool with_origins, const replaced *with,
                           brim_str *out) {
  brim_json_setup();
  char group[64] = "";
  for (int row = 0; row < (int)brim_config_key_count(); row++) {
    const brim_config_row *info = brim_config_row_at((size_t)row);
    if (info->type == BRIM_CONFIG_SPECIAL) continue;
    if (!is_written(config, row) && !number_for(with, info)) continue;
    const char *dot = strchr(info->key.name, '.');
    size_t length = dot ? (size_t)(dot - info->key.name) : 0;
    if (dot && (strlen(group) != length || strncmp(group, info->key.name, length))) {
      brim_str_printf(out, "%.*s:\n", (int)length, info->key.name);
      memcpy(group, info->key.name, length);
      group[length] = 0;
    }
    BRIM_TRY(yaml_row(config, row, with_origins, with, out));
  }
  return yaml_grid(config, with_origins, out);
}

brim_status brim_config_to_yaml(const brim_config *config, bool with_origins, brim_str *out) {
  const replaced none = {NULL, 0};
  return to_yaml(config, with_origins, &none, out);
}

brim_status brim_config_to_yaml_with(const brim_config *config, const brim_config_number *numbers,
                                     size_t count, brim_str *out) {
  const replaced with = {numbers, count};
  return to_yaml(config, false, &with, out);
}

// ---- explain
// -------------------------------------------------------------------------------------------

static void explain_key(const brim_config_row *row, brim_str *out) {
  const brim_config_key *key = &row->key;
  brim_str_printf(out, "%s\n  %s\n  %s %s\n", key->name, brim_tr(key->meaning), brim_tr("type:"),
                  key->type);
  brim_str_printf(out, "  %s %s\n", brim_tr("default:"),
                  key->default_text ? key->default_text : brim_tr("none"));
  if (row->min != 0 || row->max != 0) {
    brim_str_printf(out, brim_tr("  between: %.10g and %.10g\n"), row->min, row->max);
  }
  if (key->choices) {
    brim_str_printf(out, "  %s", brim_tr("one of:"));
    for (const char *const *c = key->choices; *c; c++) brim_str_printf(out, " %s", *c);
    brim_str_append_char(out, '\n');
  }
  if (key->aliases[0]) {
    brim_str_printf(out, "  %s", brim_tr("also written:"));
    for (const char *const *a = key->aliases; *a; a++) brim_str_printf(out, " %s", *a);
    brim_str_append_char(out, '\n');
  }
  if (row->category) {
    brim_str_printf(out, "  %s", brim_tr("known:"));
    for (size_t i = 0; i < brim_config_component_count(); i++) {
      const brim_config_component_row *c = brim_config_component_at(i);
      if (!strcmp(c->category, row->category)) brim_str_printf(out, " %s", c->name);
    }
    brim_str_append_char(out, '\n');
  }
  if (row->flags & BRIM_CONFIG_SLOTS) {
    brim_str_printf(out, "  %s train val test\n", brim_tr("slots:"));
  }
}

static void explain_component(const brim_config_component_row *row, brim_str *out) {
  brim_str_printf(out, "%s (%s)\n  %s\n", row->name, row->category, brim_tr(row->meaning));
  for (size_t i = 0; i < row->arg_count; i++) {
    const brim_config_arg *arg = &row->args[i];
    brim_str_printf(out, "  %s: %s", arg->name, brim_config_arg_type_name(arg->type));
    if (arg->choices) brim_str_printf(out, " (%s)", arg->choices);
    if (arg->required) brim_str_append(out, brim_tr(", required"));
    if (arg->default_text) {
      brim_str_printf(out, brim_tr(", default %s"), arg->default_text);
    }
    if (arg->alias) brim_str_printf(out, brim_tr(", also %s"), arg->alias);
    brim_str_printf(out, "; %s\n", brim_tr(arg->meaning));
  }
}

static bool is_preset(const char *name) {
  for (size_t i = 0; i < brim_config_preset_count(); i++) {
    if (!strcmp(brim_config_preset_name(i), name)) return true;
  }
  return false;
}

brim_status brim_config_explain(const char *name, brim_str *out) {
  int row = brim_config_row_find(name);
  bool found = false;
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_row *r = brim_config_row_at(i);
    if ((int)i != row && !brim_config_row_ends(r, name)) continue;  // several workloads have it
    explain_key(r, out);
    found = true;
  }
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    const brim_config_component_row *c = brim_config_component_at(i);
    if (strcmp(c->name, name)) continue;
    explain_component(c, out);
    found = true;
  }
  if (is_preset(name)) {
    brim_config_preset_explain(name, out);
    found = true;
  }
  if (brim_str_starts(name, "plugin:")) {
    brim_str_printf(out,
                    brim_tr("%s: a source, environment or other part from a plug-in, which defines "
                            "its arguments; load it with --plugin FILE\n"),
                    name);
    found = true;
  }
  if (found) return brim_str_status(out);
  const char *names[256];
  size_t count = 0;
  for (size_t i = 0; i < brim_config_component_count() && count < 240; i++) {
    names[count++] = brim_config_component_at(i)->name;
  }
  for (size_t i = 0; i < brim_config_preset_count() && count < 255; i++) {
    names[count++] = brim_config_preset_name(i);
  }
  names[count] = NULL;
  char group[64];
  const char *key = brim_config_row_nearest(name, NULL),
             *section = brim_config_group_nearest(name, group);
  const char *near = section ? section : key;
  if (section && key && brim_edit_distance(name, key) < brim_edit_distance(name, section))
    near = key;
  if (!near) near = brim_nearest(name, names);
  if (near) {
    return brim_fail(BRIM_ENOENT,
                     "no key, section, component or preset '%.120s'; did you mean '%s'?", name,
                     near);
  }
  return brim_fail(BRIM_ENOENT, "no key, section, component or preset '%.120s'", name);
}
