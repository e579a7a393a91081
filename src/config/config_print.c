// The resolved config as JSON and YAML, which load back to the same config; the identity of a grid point with
// its hashes; and the config that an experiment is stored with.
#include <stdlib.h>
#include <string.h>

#include "base/base_sha256.h"
#include "config/config_int.h"

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while printing a config");
}

// The axis of a whole key; NULL if the key is no axis, or if this config is one point of a grid.
static const brim_config_axis_state *whole_axis(const brim_config *config, int row) {
  if (config->is_point) return NULL;
  int index = brim_config_axis_find(config->source, (brim_config_path){.row = row});
  return index < 0 ? NULL : &config->source->axes[index];
}

// The pipeline of a slot; if the slot has none, that of the whole key.
static const brim_pipeline *slot_of(const brim_config_value *value, int slot) {
  return value->slots[slot] ? value->slots[slot] : value->slots[0];
}

static bool has_slots(const brim_config_value *value) {
  return value->slots[1] || value->slots[2] || value->slots[3];
}

// ---- JSON --------------------------------------------------------------------------------------
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

static json_t *json_value(const brim_config_row *row, const brim_config_value *value) {
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

// The values of an axis, each printed like a single value.
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
        item = json_string(node->text);  // the component needs arguments that are set elsewhere
      }
      brim_str_deinit(&text);
    } else if (!brim_config_convert(scratch, info, node, &value)) {
      item = json_value(info, &value);
    }
    fine = brim_json_push(out, item) == BRIM_OK;
  }
  brim_arena_destroy(scratch);
  if (fine) return out;
  json_decref(out);
  return NULL;
}

// Puts "data.batch_size" as {"data": {"batch_size": value}}.
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
    json_t *value = axis ? json_axis(row, axis) : json_value(info, &config->values[row]);
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

// ---- YAML --------------------------------------------------------------------------------------
static const char safe_chars[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+()=";

// Decodes one character of UTF-8.
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

static void yaml_string(brim_str *out, const char *text) {
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

// A JSON value made by this file, as flow YAML.
static void yaml_flow(brim_str *out, const json_t *value) {
  char number[32];
  size_t index;
  const json_t *item;
  switch (json_typeof(value)) {
    case JSON_STRING:
      yaml_string(out, json_string_value(value));
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
        yaml_flow(out, item);
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
      yaml_string(out, node->text);
    }
    return;
  }
  bool list = node->kind == BRIM_CONFIG_NODE_LIST;
  brim_str_append_char(out, list ? '[' : '{');
  for (const brim_config_node *n = node->first; n; n = n->next) {
    if (n != node->first) brim_str_append(out, ", ");
    if (!list) {
      yaml_string(out, n->key);
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

// Numbers printed in place of the config's own.
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
  return number ? json_integer(number->value) : json_value(info, value);
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
      yaml_flow(out, item);
      brim_str_append_char(out, '\n');
    }
  } else {
    brim_str_append_char(out, ' ');
    yaml_flow(out, json);
    comment(out, with_origins, value->origin);
  }
  json_decref(json);
  return brim_str_status(out);
}

// Prints one setting of a grid as it was written. Axes are printed like this in their order, which is the
// order of the points; so are components, whose filled-in arguments may differ from point to point.
static brim_status yaml_axis(const brim_config *config, const brim_config_setting *s,
                             bool with_origins, brim_str *out) {
  const brim_config_source *source = config->source;
  const bool seeds = s - source->settings.items == source->seeds;
  const bool function = s->axis >= 0 && s->node->kind == BRIM_CONFIG_NODE_SCALAR;
  const char *slot = brim_config_slot_name(s->slot);
  brim_str_printf(out, "%s%s%s%s%s: ", brim_config_row_at((size_t)s->row)->key.name,
                  slot ? "." : "", slot ? slot : "", s->arg ? "." : "", s->arg ? s->arg : "");
  if (seeds) {  // print only the first seed: `seeds` makes the others
    yaml_node(out, source->axes[s->axis].items[0]);
  } else if (function && s->node->plain) {
    brim_str_append(out, s->node->text);  // without quotes, which could make it text
  } else if (function || s->axis < 0 ||
             brim_config_row_is_component(brim_config_row_at((size_t)s->row))) {
    yaml_node(out, s->node);
  } else {
    json_t *json = json_axis(s->row, &config->source->axes[s->axis]);
    if (!json) return no_memory();
    yaml_flow(out, json);
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

static bool has_placeholders(const brim_config *config, int row) {
  int index = brim_config_setting_find(config->source, row, BRIM_CONFIG_SLOT_NONE, NULL);
  return index >= 0 && brim_config_has_placeholder(config->source->settings.items[index].node);
}

// True for keys that make grid points: a single point leaves them out.
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
  if (!value->is_set && !brim_config_key_is_used(&info->key))
    return false;  // nothing reads this default
  // Values from a preset or a component's defaults may differ at other points of the grid.
  const bool follows = value->layer == -1 || (!value->is_set && !info->key.default_text);
  return config->is_point ||
         !(follows || has_placeholders(config, row) || brim_config_row_is_component(info));
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

// ---- identity ----------------------------------------------------------------------------------
// Identity and stored config both leave out keys that do not matter to the experiment. `stored` chooses one of
// them.

// One line of the output, with its newline.
typedef struct line {
  const char *text;
  int row;
} line;

typedef struct writer {
  const brim_config *config;
  const char *workload;
  bool automatic;  // preset: auto
  bool stored;     // prints the stored config, else the identity
  brim_arena *arena;
  line *lines;
  size_t count, cap;
  bool usual[BRIM_CONFIG_MAX_ROWS];  // keys whose value is their component's default
} writer;

static const brim_config_value *value_of(const brim_config *config, const char *key) {
  return &config->values[brim_config_row_find(key)];
}

static brim_status writer_init(writer *w, const brim_config *config, bool stored) {
  memset(w, 0, sizeof *w);
  const brim_config_value *preset = value_of(config, "preset");
  w->config = config;
  w->workload = value_of(config, "workload")->string;
  w->automatic = !preset->is_null && preset->string && !strcmp(preset->string, "auto");
  w->stored = stored;
  brim_json_setup();
  return brim_arena_create(0, &w->arena);
}

// True if `preset: auto` chose the value for this machine.
static bool is_resolved(const writer *w, const brim_config_value *value) {
  return w->automatic && brim_config_layer_is_preset(w->config->source, value->layer);
}

// ---- components --------------------------------------------------------------------------------

// The component row being printed: its arguments may be keys too.
typedef struct owner {
  int row, slot;
  bool single;  // false for a component in a pipeline, whose arguments are no keys
} owner;

static brim_status print_component(writer *w, const char *category, const brim_component *c,
                                   const owner *of, brim_str *out);

static brim_status print_value(writer *w, const brim_config_arg *arg, const brim_value *v,
                               brim_str *out) {
  if (v->kind == BRIM_VALUE_COMPONENT) {
    BRIM_TRY(print_component(w, arg ? arg->choices : NULL, v->component, NULL, out));
    if (out->len && out->data[out->len - 1] != ')') brim_str_append(out, "()");
    return BRIM_OK;
  }
  if (v->kind != BRIM_VALUE_LIST) {
    brim_config_value_print(out, v);
    return BRIM_OK;
  }
  const bool tuple = w->stored && v->tuple;  // the identity of (1, 2) and [1, 2] is the same
  brim_str_append_char(out, tuple ? '(' : '[');
  for (size_t i = 0; i < v->count; i++) {
    if (i) brim_str_append(out, ", ");
    BRIM_TRY(print_value(w, arg, &v->items[i], out));
  }
  if (tuple && v->count == 1) brim_str_append_char(out, ',');
  brim_str_append_char(out, tuple ? ')' : ']');
  return BRIM_OK;
}

// Compares numbers without printing them: most arguments are numbers at their defaults.
static bool is_same_number(const brim_value *a, const brim_value *b) {
  if (a->kind != b->kind) return false;
  if (a->kind == BRIM_VALUE_INT) return a->integer == b->integer;
  return a->kind == BRIM_VALUE_FLOAT && memcmp(&a->number, &b->number, sizeof a->number) == 0;
}

static brim_status is_usual(writer *w, const brim_config_component_row *row,
                            const brim_config_arg *arg, const brim_value *v, bool *out) {
  brim_value usual;
  *out = false;
  if (!arg) return BRIM_OK;
  BRIM_TRY(brim_config_arg_default(w->arena, row, arg, &usual));
  if (usual.kind == BRIM_VALUE_NULL) return BRIM_OK;
  if (is_same_number(&usual, v)) {
    *out = true;
    return BRIM_OK;
  }
  brim_str a, b;
  brim_str_init(&a);
  brim_str_init(&b);
  brim_status status = print_value(w, arg, &usual, &a);
  if (!status) status = print_value(w, arg, v, &b);
  if (!status) status = brim_str_status(&a);
  if (!status) status = brim_str_status(&b);
  *out = !strcmp(a.data, b.data);
  brim_str_deinit(&a);
  brim_str_deinit(&b);
  return status;
}

// The link of an argument; NULL if it is no key.
static const brim_config_link *link_of(int row, int slot, const char *arg) {
  const brim_config_link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!strcmp(l->arg, arg) && brim_config_link_applies(l, row, slot)) return l;
  }
  return NULL;
}

// *out: true if the argument is left out, because it is at its default or is printed as a key.
static brim_status leaves_out(writer *w, const brim_config_component_row *row,
                              const brim_argument *argument, const owner *of, bool *out) {
  const brim_value *v = &argument->value;
  const brim_config_arg *arg = row ? brim_config_arg_find(row, argument->name) : NULL;
  const brim_config_link *link =
      of && of->single ? link_of(of->row, of->slot, argument->name) : NULL;
  const int key = link ? brim_config_row_find(link->key) : -1;
  const brim_config_value *same = link ? &w->config->values[key] : NULL;
  if (same && (same->number != v->number || same->boolean != v->boolean)) same = NULL;
  BRIM_TRY(is_usual(w, row, arg, v, out));
  if (!same) return BRIM_OK;
  if (w->stored) {
    const bool given = same->is_set && same->layer >= 0 &&
                       !brim_config_layer_is_preset(w->config->source, same->layer);
    *out = !given;
    return BRIM_OK;
  }
  if (*out) w->usual[key] = true;
  *out = true;
  return BRIM_OK;
}

static int by_name(const void *a, const void *b) {
  const brim_argument *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static brim_status print_component(writer *w, const char *category, const brim_component *c,
                                   const owner *of, brim_str *out) {
  const brim_config_component_row *row =
      category ? brim_config_component_find(category, c->name) : NULL;
  const brim_argument **args = brim_arena_calloc(w->arena, c->arg_count + 1, sizeof(void *));
  if (!args) return no_memory();
  for (size_t i = 0; i < c->arg_count; i++) args[i] = &c->args[i];
  if (!w->stored && c->arg_count) qsort(args, c->arg_count, sizeof *args, by_name);
  brim_str_append(out, c->name);
  const char *before = "(";
  for (size_t i = 0; i < c->arg_count; i++) {
    bool out_of_it;
    BRIM_TRY(leaves_out(w, row, args[i], of, &out_of_it));
    if (out_of_it) continue;
    brim_str_printf(out, "%s%s=", before, args[i]->name);
    BRIM_TRY(print_value(w, row ? brim_config_arg_find(row, args[i]->name) : NULL, &args[i]->value,
                         out));
    before = ", ";
  }
  if (*before == ',') brim_str_append_char(out, ')');
  return BRIM_OK;
}

static brim_status print_pipeline(writer *w, int row, int slot, const brim_pipeline *p,
                                  brim_str *out) {
  const owner of = {row, slot, p->count == 1};
  for (size_t i = 0; i < p->count; i++) {
    if (i) brim_str_append(out, " | ");
    BRIM_TRY(print_component(w, brim_config_row_at((size_t)row)->category, &p->items[i], &of, out));
  }
  if (p->tail) brim_str_append(out, p->count ? " | ..." : "...");
  return brim_str_status(out);
}

// ---- lines -------------------------------------------------------------------------------------

// The identity has the length of each value, so values with line breaks cannot imitate other lines.
static brim_status add_line(writer *w, int row, const char *slot, const brim_str *value) {
  const char *key = brim_config_row_at((size_t)row)->key.name;
  const char *made;
  BRIM_TRY(brim_str_status(value));
  BRIM_TRY(brim_config_grow(w->arena, &w->lines, sizeof *w->lines, w->count, &w->cap));
  const char *dot = slot ? "." : "";
  if (!slot) slot = "";
  if (w->stored) {
    brim_str text;
    brim_str_init(&text);
    yaml_string(&text, value->data);
    made = brim_str_status(&text)
               ? NULL
               : brim_arena_printf(w->arena, "%s%s%s: %s\n", key, dot, slot, text.data);
    brim_str_deinit(&text);
  } else {
    made = brim_arena_printf(w->arena, "%s%s%s %zu %s\n", key, dot, slot, value->len, value->data);
  }
  if (!made) return no_memory();
  w->lines[w->count++] = (line){made, row};
  return BRIM_OK;
}

static brim_status component_lines(writer *w, int row, brim_str *text) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const brim_config_value *value = &w->config->values[row];
  const char *usual = info->key.default_text;
  if (w->stored && !value->is_set) return BRIM_OK;
  for (int slot = 0; slot < BRIM_CONFIG_SLOT_COUNT; slot++) {
    if (!value->slots[slot]) continue;
    brim_str_clear(text);
    BRIM_TRY(print_pipeline(w, row, slot, value->slots[slot], text));
    if (!w->stored && !slot && usual && !strcmp(text->data, usual)) continue;
    BRIM_TRY(add_line(w, row, brim_config_slot_name(slot), text));
  }
  return BRIM_OK;
}

static void value_text(const brim_config_row *row, const brim_config_value *value, brim_str *out) {
  if (value->is_null) {
    brim_str_append(out, "auto");
  } else {
    brim_config_value_text(out, row, value);
  }
}

static brim_status at_default(writer *w, const brim_config_row *row, const char *text, bool *out) {
  const brim_config_place at = {"default", 0, 0};
  brim_config_value usual;
  brim_str have;
  *out = false;
  if (!row->key.default_text) return BRIM_OK;
  const brim_config_node *node = brim_config_node_plain(w->arena, row->key.default_text, at);
  if (!node) return no_memory();
  BRIM_TRY(brim_config_convert(w->arena, row, node, &usual));
  brim_str_init(&have);
  value_text(row, &usual, &have);
  brim_status status = brim_str_status(&have);
  *out = !strcmp(have.data, text);
  brim_str_deinit(&have);
  return status;
}

static bool is_open(const brim_config_row *row, const brim_config_value *value) {
  return value->is_null && !(row->flags & BRIM_CONFIG_AUTO);
}

// True if the identity of a group or a cost leaves out the key.
static bool is_left_out(brim_config_identity_kind kind, int at) {
  const brim_config_row *row = brim_config_row_at((size_t)at);
  if (kind == BRIM_CONFIG_GROUP) return !strcmp(row->key.name, "seed");
  return kind == BRIM_CONFIG_COST && row->flags & BRIM_CONFIG_NO_COST;
}

static brim_status key_line(writer *w, int row, brim_str *text) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const brim_config_value *value = &w->config->values[row];
  const char *name = info->key.name;
  const bool given = brim_config_row_counts_given(info, w->workload);
  if (!value->is_set || is_open(info, value) || is_resolved(w, value)) return BRIM_OK;
  if (w->usual[row] && !given) return BRIM_OK;
  if (info->flags & BRIM_CONFIG_NEVER_AXIS) return BRIM_OK;
  // The values that a preset gives are in the identity, so its name need not be.
  if (!w->automatic && (!strcmp(name, "preset") || !strcmp(name, "model_size"))) return BRIM_OK;
  bool usual = false;
  if (given && brim_config_layer_is_preset(w->config->source, value->layer)) return BRIM_OK;
  brim_str_clear(text);
  value_text(info, value, text);
  if (!given) BRIM_TRY(at_default(w, info, text->data, &usual));
  return usual ? BRIM_OK : add_line(w, row, NULL, text);
}

// ---- identity ----------------------------------------------------------------------------------

static int by_text(const void *a, const void *b) {
  const line *x = a, *y = b;
  return strcmp(x->text, y->text);
}

// Components come first: they set `usual` for the keys.
static brim_status collect(writer *w, brim_str *text) {
  const int rows = (int)brim_config_key_count();
  for (int component = 1; component >= 0; component--) {
    for (int row = 0; row < rows; row++) {
      const brim_config_row *info = brim_config_row_at((size_t)row);
      if (info->type == BRIM_CONFIG_SPECIAL || !brim_config_row_is_for(info, w->workload) ||
          brim_config_row_is_component(info) != component) {
        continue;
      }
      BRIM_TRY(component ? component_lines(w, row, text) : key_line(w, row, text));
    }
  }
  return BRIM_OK;
}

// Sorted lines. The caller destroys w->arena, also after a failure.
static brim_status write_lines(const brim_config *config, writer *w) {
  brim_str text;
  BRIM_TRY(writer_init(w, config, false));
  brim_str_init(&text);
  brim_status status = collect(w, &text);
  if (!status && w->count) qsort(w->lines, w->count, sizeof *w->lines, by_text);
  brim_str_deinit(&text);
  return status;
}

static void put_identity(const writer *w, brim_config_identity_kind kind, brim_str *out) {
  for (size_t i = 0; i < w->count; i++) {
    if (!is_left_out(kind, w->lines[i].row)) brim_str_append(out, w->lines[i].text);
  }
}

brim_status brim_config_identity(const brim_config *config, brim_config_identity_kind kind,
                                 brim_str *out) {
  writer w;
  brim_status status = write_lines(config, &w);
  if (!status) put_identity(&w, kind, out);
  brim_arena_destroy(w.arena);
  return status ? status : brim_str_status(out);
}

static brim_status put_hash(const writer *w, brim_config_identity_kind kind, brim_str *text,
                            char out[33]) {
  static const char *const heads[BRIM_CONFIG_IDENTITY_COUNT] = {"brim experiment\n", "brim group\n",
                                                                "brim cost\n"};
  char hex[BRIM_SHA256_HEX];
  brim_str_clear(text);
  brim_str_append(text, heads[kind]);
  put_identity(w, kind, text);
  BRIM_TRY(brim_str_status(text));
  brim_sha256_hex(text->data, text->len, hex);
  memcpy(out, hex, 32);
  out[32] = 0;
  return BRIM_OK;
}

brim_status brim_config_hashes(const brim_config *config,
                               char out[BRIM_CONFIG_IDENTITY_COUNT][33]) {
  writer w;
  brim_str text;
  brim_str_init(&text);
  brim_status status = write_lines(config, &w);
  for (int kind = 0; kind < BRIM_CONFIG_IDENTITY_COUNT && !status; kind++) {
    status = put_hash(&w, (brim_config_identity_kind)kind, &text, out[kind]);
  }
  brim_arena_destroy(w.arena);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_config_hash(const brim_config *config, brim_config_identity_kind kind,
                             char out[33]) {
  char all[BRIM_CONFIG_IDENTITY_COUNT][33];
  BRIM_TRY(brim_config_hashes(config, all));
  memcpy(out, all[kind], sizeof all[kind]);
  return BRIM_OK;
}

// ---- the stored config -------------------------------------------------------------------------

static brim_status stored_key(writer *w, int row, brim_str *out) {
  const brim_config_row *info = brim_config_row_at((size_t)row);
  const brim_config_value *value = &w->config->values[row];
  // Leave out values of a preset: loading applies the preset again.
  if (!value->is_set || is_open(info, value) || value->layer == -1 || is_resolved(w, value)) {
    return BRIM_OK;
  }
  json_t *json = json_value(info, value);
  if (!json) return no_memory();
  brim_str_printf(out, "%s: ", info->key.name);
  yaml_flow(out, json);
  brim_str_append_char(out, '\n');
  json_decref(json);
  return brim_str_status(out);
}

brim_status brim_config_to_experiment(const brim_config *config, brim_str *out) {
  writer w;
  brim_str text;
  BRIM_TRY(writer_init(&w, config, true));
  brim_str_init(&text);
  brim_status status = BRIM_OK;
  for (int row = 0; row < (int)brim_config_key_count() && !status; row++) {
    const brim_config_row *info = brim_config_row_at((size_t)row);
    if (info->type == BRIM_CONFIG_SPECIAL || info->flags & BRIM_CONFIG_OF_GRID) continue;
    if (!brim_config_row_is_for(info, w.workload)) continue;
    status = brim_config_row_is_component(info) ? component_lines(&w, row, &text)
                                                : stored_key(&w, row, out);
  }
  for (size_t i = 0; i < w.count && !status; i++) brim_str_append(out, w.lines[i].text);
  brim_str_deinit(&text);
  brim_arena_destroy(w.arena);
  return status ? status : brim_str_status(out);
}
