// Resolves all values of one grid point, and reads them. brim_config_resolve chooses the preset, fills in
// placeholders, converts scalars, then builds components and links their arguments to keys.

#include "config/config_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// ---- settings ----------------------------------------------------------------------------------
// Finds settings, as the files and the command line gave them, and their values at a grid point.

int brim_config_setting_find(const brim_config_source *source, int row, int slot, const char *arg) {
  for (size_t i = source->settings.count; i-- > 0;) {
    const brim_config_setting *s = &source->settings.items[i];
    if (!s->live || s->row != row || s->slot != slot || !s->arg != !arg) continue;
    if (!arg || !strcmp(s->arg, arg)) return (int)i;
  }
  return -1;
}

// True if the value equals the default with the text `usual`. No text (NULL) equals no value.
static bool value_is_usual(const brim_config_row *row, const brim_config_value *value,
                           const char *usual) {
  int64_t integer = 0;
  double number = 0;
  if (value->is_null) return !usual || strcmp(usual, "auto") == 0;
  if (!usual) return false;
  switch (row->type) {
    case BRIM_CONFIG_BOOL:
      return strcmp(usual, value->boolean ? "true" : "false") == 0;
    case BRIM_CONFIG_INT:
      return brim_parse_i64(usual, &integer) && integer == value->integer;
    case BRIM_CONFIG_FLOAT:
      return brim_parse_f64(usual, &number) && number == value->number;
    default:
      return value->string && strcmp(usual, value->string) == 0;
  }
}

// True if the user asked for the value, as in brim_config_is_asked. Ignores defaults of components.
static bool value_is_asked(const brim_config_source *source, const brim_config_row *row,
                           const brim_config_value *value) {
  if (!value->is_set || value->layer < 0) return false;
  if (value->layer == source->override_layer) return true;
  return !brim_config_layer_is_preset(source, value->layer) &&
         !value_is_usual(row, value, row->key.default_text);
}

// ---- conversion --------------------------------------------------------------------------------
// Nodes to typed values, by the row of the key table. Components are built later.

static brim_status wants(const brim_config_row *row, const brim_config_node *node) {
  if (node->kind != BRIM_CONFIG_NODE_SCALAR) {
    if (row->flags & BRIM_CONFIG_NEVER_AXIS && node->kind == BRIM_CONFIG_NODE_LIST) {
      return brim_fail_at(BRIM_EINVAL, AT(node->at),
                          "'%s' expects %s, not a list (it is never a grid axis)", row->key.name,
                          row->key.type);
    }
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' expects %s, not a %s", row->key.name,
                        row->key.type, node->kind == BRIM_CONFIG_NODE_LIST ? "list" : "map");
  }
  if (!node->plain) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' expects %s, not the text \"%.80s\"",
                        row->key.name, row->key.type, node->text);
  }
  return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' expects %s, not '%.80s'", row->key.name,
                      row->key.type, node->text);
}

static brim_status check_bounds(const brim_config_row *row, const brim_config_node *node,
                                double number) {
  if (!isfinite(number)) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' must be finite", row->key.name);
  }
  if ((row->min == 0 && row->max == 0) || (number >= row->min && number <= row->max)) {
    return BRIM_OK;
  }
  return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' must be between %.10g and %.10g, not %.10g",
                      row->key.name, row->min, row->max, number);
}

static brim_status to_int(const brim_config_row *row, const brim_config_node *node,
                          const brim_value *v, int64_t *out) {
  if (v->kind == BRIM_VALUE_INT) {
    *out = v->integer;
  } else if (v->kind == BRIM_VALUE_FLOAT && v->number == floor(v->number) &&
             fabs(v->number) < 9e15) {
    *out = (int64_t)v->number;
  } else {
    return wants(row, node);
  }
  return check_bounds(row, node, (double)*out);
}

static brim_status to_choice(const brim_config_row *row, const brim_config_node *node,
                             const char *word, const char **out) {
  bool flag;
  for (const char *const *c = row->key.choices; *c; c++) {
    bool flag_of_choice;
    if (!strcmp(*c, word) || (brim_parse_bool(*c, &flag_of_choice) &&
                              brim_parse_bool(word, &flag) && flag == flag_of_choice)) {
      *out = *c;
      return BRIM_OK;
    }
  }
  brim_str list;
  brim_str_init(&list);
  for (const char *const *c = row->key.choices; *c; c++) {
    brim_str_printf(&list, "%s%s", c == row->key.choices ? "" : ", ", *c);
  }
  const char *near = brim_nearest(word, row->key.choices);
  brim_status status =
      near ? brim_fail_at(BRIM_EINVAL, AT(node->at),
                          "'%s' must be one of %s, not '%.80s'; did you mean '%s'?", row->key.name,
                          list.data, word, near)
           : brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s' must be one of %s, not '%.80s'",
                          row->key.name, list.data, word);
  brim_str_deinit(&list);
  return status;
}

// Rejects every leading dot, not just "." and "..": "...yaml" without its ending is ".." too.
static brim_status check_file_name(const brim_config_row *row, const brim_config_node *node) {
  if (node->text[0] && node->text[0] != '.' && !strchr(node->text, '/')) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, AT(node->at),
                      "'%s' is used as a folder name: it must not be empty, contain '/' or begin "
                      "with '.', as '%.80s' does; set output_dir to choose the parent folder",
                      row->key.name, node->text);
}

static brim_status to_scalar(const brim_config_row *row, const brim_config_node *node,
                             const brim_value *v, brim_config_value *out) {
  uint64_t bytes;
  switch (row->type) {
    case BRIM_CONFIG_INT:
      BRIM_TRY(to_int(row, node, v, &out->integer));
      out->number = (double)out->integer;
      return BRIM_OK;
    case BRIM_CONFIG_FLOAT:
      if (v->kind != BRIM_VALUE_INT && v->kind != BRIM_VALUE_FLOAT) return wants(row, node);
      out->number = v->number;
      return check_bounds(row, node, v->number);
    case BRIM_CONFIG_BOOL:
      // yes, no, on and off are strings in YAML 1.2; accept them here.
      if (v->kind == BRIM_VALUE_BOOL) {
        out->boolean = v->boolean;
      } else if (v->kind != BRIM_VALUE_STRING || !node->plain ||
                 !brim_parse_bool(v->string, &out->boolean)) {
        return wants(row, node);
      }
      return BRIM_OK;
    case BRIM_CONFIG_BYTES:
      if (!brim_parse_bytes(node->text, &bytes) || bytes > INT64_MAX) return wants(row, node);
      out->integer = (int64_t)bytes;
      out->number = (double)bytes;
      return BRIM_OK;
    case BRIM_CONFIG_CHOICE:
      return to_choice(row, node, node->text, &out->string);
    default:
      out->string = node->text;
      return row->flags & BRIM_CONFIG_FILE_NAME ? check_file_name(row, node) : BRIM_OK;
  }
}

// The items of a list node, of a quoted list, or a single scalar.
static brim_status list_items(brim_arena *arena, const brim_config_row *row,
                              const brim_config_node *node, brim_value *out) {
  if (node->kind == BRIM_CONFIG_NODE_MAP) return wants(row, node);
  if (node->kind == BRIM_CONFIG_NODE_SCALAR && !node->plain && node->text[0] == '[') {
    return brim_config_expression_value(arena, node->text, node->at, out);
  }
  BRIM_TRY(brim_config_node_value(arena, node, out));
  if (node->kind == BRIM_CONFIG_NODE_LIST) return BRIM_OK;
  brim_value *one = brim_arena_calloc(arena, 1, sizeof *one);
  if (!one) return brim_config_no_memory();
  *one = *out;
  *out = (brim_value){.kind = BRIM_VALUE_LIST, .items = one, .count = 1};
  return BRIM_OK;
}

static brim_status to_ints(brim_arena *arena, const brim_config_row *row,
                           const brim_config_node *node, const brim_value *list,
                           brim_config_value *out) {
  int64_t *ints = brim_arena_calloc(arena, list->count + 1, sizeof *ints);
  if (!ints) return brim_config_no_memory();
  for (size_t i = 0; i < list->count; i++) BRIM_TRY(to_int(row, node, &list->items[i], &ints[i]));
  out->ints = ints;
  out->count = list->count;
  return BRIM_OK;
}

static brim_status to_strings(brim_arena *arena, const brim_config_row *row,
                              const brim_config_node *node, const brim_value *list,
                              brim_config_value *out) {
  const char **strings = brim_arena_calloc(arena, list->count + 1, sizeof *strings);
  if (!strings) return brim_config_no_memory();
  const brim_config_node *n = node->kind == BRIM_CONFIG_NODE_LIST ? node->first : node;
  bool one_each = node->kind == BRIM_CONFIG_NODE_LIST || list->count == 1;
  for (size_t i = 0; i < list->count; i++, n = n ? n->next : NULL) {
    strings[i] = list->items[i].string;
    // An item of a list keeps its text, whatever it would mean in an expression.
    bool text = one_each && n && n->kind == BRIM_CONFIG_NODE_SCALAR;
    if (text && !strings[i] && node->kind == BRIM_CONFIG_NODE_LIST) strings[i] = n->text;
    if (!strings[i] || list->items[i].kind == BRIM_VALUE_NULL) return wants(row, node);
    if (row->key.choices) BRIM_TRY(to_choice(row, node, strings[i], &strings[i]));
  }
  out->strings = strings;
  out->count = list->count;
  return BRIM_OK;
}

// One device: its text in *name, its GPU number in *gpu (-1 = not a GPU). Inside a list it must be one
// certain device: auto and cuda are refused.
static brim_status to_device_name(brim_arena *arena, const brim_config_row *row,
                                  const brim_config_node *node, const brim_value *item, bool listed,
                                  const char **name, int64_t *gpu) {
  static const char *const words[] = {"cpu", "ref", "auto", "cuda"};
  size_t word_count = listed ? 2 : 4;
  const char *word = item->kind == BRIM_VALUE_STRING ? item->string : NULL;
  brim_value number = *item;
  *gpu = -1;
  *name = word;
  for (size_t i = 0; word && i < word_count; i++) {
    if (!strcmp(word, words[i])) return BRIM_OK;
  }
  if (word) brim_config_word(brim_str_starts(word, "cuda:") ? word + 5 : "", &number);
  if (word && number.kind != BRIM_VALUE_INT) {
    if (listed) {
      return brim_fail_at(BRIM_EINVAL, AT(node->at),
                          "'%s': in a list each must be cpu, ref, cuda:N or N, not '%.80s'",
                          row->key.name, word);
    }
    return brim_fail_at(BRIM_EINVAL, AT(node->at),
                        "'%s' must be auto, cpu, ref, cuda, cuda:N, N or a list of GPU numbers, "
                        "not '%.80s'",
                        row->key.name, word);
  }
  BRIM_TRY(to_int(row, node, &number, gpu));
  if (*gpu < 0 || *gpu > 1023) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s': GPU numbers are 0 to 1023",
                        row->key.name);
  }
  *name = brim_arena_printf(arena, "cuda:%d", (int)*gpu);
  return *name ? BRIM_OK : brim_config_no_memory();
}

// auto | cpu | ref | cuda | cuda:N | N | a list of cpu, ref, cuda:N, N. The word goes into `string`, all
// devices into `strings` and, if they are GPUs, into `ints`. Ranks can share a device, so it may repeat.
static brim_status to_device(brim_arena *arena, const brim_config_row *row,
                             const brim_config_node *node, brim_config_value *out) {
  brim_value list;
  BRIM_TRY(list_items(arena, row, node, &list));
  if (list.count == 0) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s': the list is empty", row->key.name);
  }
  int64_t *gpus = brim_arena_calloc(arena, list.count, sizeof *gpus);
  const char **names = brim_arena_calloc(arena, list.count + 1, sizeof *names);
  if (!gpus || !names) return brim_config_no_memory();
  bool all_gpus = true;
  for (size_t i = 0; i < list.count; i++) {
    BRIM_TRY(to_device_name(arena, row, node, &list.items[i], list.count > 1, &names[i], &gpus[i]));
    all_gpus = all_gpus && gpus[i] >= 0;
  }
  out->string = all_gpus && list.count > 1 ? "cuda" : names[0];
  out->strings = names;
  if (all_gpus) out->ints = gpus;
  if (all_gpus || list.count > 1) out->count = list.count;
  return BRIM_OK;
}

brim_status brim_config_convert(brim_arena *arena, const brim_config_row *row,
                                const brim_config_node *node, brim_config_value *out) {
  *out = (brim_config_value){.node = node};
  brim_value v = {.kind = BRIM_VALUE_NULL};
  if (node->kind == BRIM_CONFIG_NODE_SCALAR) {
    BRIM_TRY(brim_config_scalar(node, &v));
    const bool open = row->flags & BRIM_CONFIG_AUTO && strcmp(node->text, "auto") == 0;
    if (v.kind == BRIM_VALUE_NULL || open) {
      out->is_null = true;
      return BRIM_OK;
    }
  }
  if (row->type == BRIM_CONFIG_DEVICE) return to_device(arena, row, node, out);
  if (brim_config_row_takes_list(row)) {
    brim_value list;
    BRIM_TRY(list_items(arena, row, node, &list));
    if (list.count > BRIM_CONFIG_MAX_ITEMS) {
      return brim_fail_at(BRIM_ELIMIT, AT(node->at), "a list has more than %d items",
                          BRIM_CONFIG_MAX_ITEMS);
    }
    return row->type == BRIM_CONFIG_INTS ? to_ints(arena, row, node, &list, out)
                                         : to_strings(arena, row, node, &list, out);
  }
  if (node->kind != BRIM_CONFIG_NODE_SCALAR) return wants(row, node);
  return to_scalar(row, node, &v, out);
}

void brim_config_value_text(brim_str *out, const brim_config_row *row,
                            const brim_config_value *value) {
  char number[32];
  switch (row->type) {
    case BRIM_CONFIG_INT:
    case BRIM_CONFIG_BYTES:
      brim_str_printf(out, "%lld", (long long)value->integer);
      break;
    case BRIM_CONFIG_FLOAT:
      brim_format_f64(value->number, number);
      brim_str_append(out, number);
      break;
    case BRIM_CONFIG_BOOL:
      brim_str_append(out, value->boolean ? "true" : "false");
      break;
    case BRIM_CONFIG_INTS:
    case BRIM_CONFIG_STRINGS:
    case BRIM_CONFIG_DEVICE:
      if (row->type == BRIM_CONFIG_DEVICE && value->count < 2) {
        brim_str_append(out, value->string);
        break;
      }
      brim_str_append_char(out, '[');
      for (size_t i = 0; i < value->count; i++) {
        if (i) brim_str_append(out, ", ");
        brim_value item = {.kind = value->ints ? BRIM_VALUE_INT : BRIM_VALUE_STRING,
                           .integer = value->ints ? value->ints[i] : 0,
                           .string = value->ints ? NULL : value->strings[i]};
        brim_config_value_print(out, &item);
      }
      brim_str_append_char(out, ']');
      break;
    default:
      if (brim_config_row_is_component(row)) {
        if (value->slots[0]) brim_config_pipeline_print(out, value->slots[0]);
      } else if (value->string) {
        brim_str_append(out, value->string);
      }
      break;
  }
}

// ---- links -------------------------------------------------------------------------------------
// A link: a key and a component's argument that are one setting (training.learning_rate and sgd(lr=...)). The
// later layer wins, and both get its value. If one layer has both, the later one in the file wins with a warning,
// like any repeated key.

// True if the value is a component's default for this key, such as the optimizer's learning rate. Defaults of all
// components count, since a config file may have been written for another component than the one named now.
static bool link_is_usual(const brim_config_row *row, const brim_config_value *value) {
  const brim_config_link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (strcmp(l->key, row->key.name) != 0) continue;
    const int of = brim_config_row_find(l->component);
    const char *category = brim_config_row_at((size_t)of)->category;
    for (size_t k = 0; k < brim_config_component_count(); k++) {
      const brim_config_component_row *c = brim_config_component_at(k);
      if (strcmp(c->category, category) != 0) continue;
      const brim_config_arg *arg = brim_config_arg_find(c, l->arg);
      if (arg && value_is_usual(row, value, arg->default_text)) return true;
    }
  }
  return false;
}

// The setting that gave an argument: its own, or the expression `whole`.
static int setting_of_argument(const brim_config *config, int row, int slot, const char *arg,
                               int whole) {
  int own = brim_config_setting_find(config->source, row, slot, arg);
  return own >= 0 ? own : whole;
}

static brim_value value_of(const brim_config_row *row, const brim_config_value *v) {
  switch (row->type) {
    case BRIM_CONFIG_BOOL:
      return (brim_value){.kind = BRIM_VALUE_BOOL, .boolean = v->boolean};
    case BRIM_CONFIG_FLOAT:
      return (brim_value){.kind = BRIM_VALUE_FLOAT, .number = v->number};
    default:
      return (brim_value){
          .kind = BRIM_VALUE_INT, .integer = v->integer, .number = (double)v->integer};
  }
}

// Warns that the component has no such argument, if the user asked for the key. `whole`: the setting that
// names the component; -1 = none.
static brim_status warn_no_effect(const brim_config *config, const brim_config_row *key,
                                  const brim_config_draft *draft, int whole,
                                  const brim_config_value *value) {
  if (config->is_point || !value_is_asked(config->source, key, value)) return BRIM_OK;
  // Do not warn of a default of the file's component if an override names another component.
  const brim_config_setting *named = whole < 0 ? NULL : &config->source->settings.items[whole];
  if (named && named->layer > value->layer && link_is_usual(key, value)) return BRIM_OK;
  return brim_config_warn(&config->source->context, (brim_config_place){value->origin, 0, 0},
                          brim_tr("'%s' has no effect on '%s'"), key->key.name, draft->c.name);
}

static bool is_adam(const char *name) { return brim_str_starts(name, "adam"); }

// Warns of a setting given both ways in one layer; refuses it while editing. *key_wins: the key is the later
// one.
static brim_status warn_given_twice(const brim_config *config, const brim_config_link *l,
                                    int key_setting, int arg_setting, bool *key_wins) {
  const brim_config_setting *k = &config->source->settings.items[key_setting];
  const brim_config_setting *a = &config->source->settings.items[arg_setting];
  *key_wins = key_setting > arg_setting;
  if (config->is_point || k->layer == config->source->override_layer) return BRIM_OK;
  return *key_wins ? brim_config_repeated(&config->source->context, l->key, a->at, k->at)
                   : brim_config_repeated(&config->source->context, l->key, k->at, a->at);
}

static brim_status link_one(brim_config *config, const brim_config_link *l, int row, int slot,
                            int whole, brim_config_draft *draft) {
  int key_row = brim_config_row_find(l->key);
  const brim_config_row *info = brim_config_row_at((size_t)key_row);
  brim_config_value *value = &config->values[key_row];
  const brim_config_component_row *known =
      brim_config_component_find(brim_config_row_at((size_t)row)->category, draft->c.name);
  if (!known) return BRIM_OK;
  if (!brim_config_arg_find(known, l->arg))
    return warn_no_effect(config, info, draft, whole, value);
  // The presets' learning rates are for Adam; SGD would hardly move with them.
  if (value->layer == -1 && !strcmp(l->arg, "lr") && !is_adam(draft->c.name)) {
    *value = (brim_config_value){.is_null = true, .layer = -2, .origin = "default"};
  }
  const brim_value *arg = brim_component_arg(&draft->c, l->arg);
  if (value->is_null || (arg && !value->is_set)) return BRIM_OK;
  // 0 steps means "not given": it must not hide warmup_epochs, neither as the default nor in a printed
  // config, which has both.
  if (!arg && !strcmp(l->arg, "warmup") && value->integer == 0) return BRIM_OK;
  if (l->evaluation && value->integer == 0) return BRIM_OK;  // 0 = as in training
  if (arg) {
    int arg_setting = setting_of_argument(config, row, slot, l->arg, whole);
    int arg_layer = arg_setting >= 0 ? config->source->settings.items[arg_setting].layer : -2;
    if (arg_layer > value->layer) return BRIM_OK;
    if (arg_layer == value->layer && arg_setting >= 0) {
      int key_setting = brim_config_setting_find(config->source, key_row, 0, NULL);
      // An axis is meant to vary, so the key wins. Equal values do not conflict: printed configs have both.
      bool key_wins = key_setting >= 0 && config->source->settings.items[key_setting].axis >= 0;
      bool equal = arg->number == value->number && arg->boolean == value->boolean;
      if (key_setting >= 0 && !key_wins && !equal) {
        BRIM_TRY(warn_given_twice(config, l, key_setting, arg_setting, &key_wins));
      }
      if (!key_wins) return BRIM_OK;
    }
  }
  brim_config_place at = {value->origin, 0, 0};
  return brim_config_draft_set(config->arena, draft, l->arg, value_of(info, value), at);
}

// Before the catalogue check: copies keys into the arguments that they win over. link_out copies the other
// arguments into their keys after the check.
static brim_status link_in(brim_config *config, int row, int slot, int whole,
                           brim_config_draft *draft) {
  const brim_config_link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!brim_config_link_applies(l, row, slot)) continue;
    BRIM_TRY(link_one(config, l, row, slot, whole, draft));
  }
  return BRIM_OK;
}

static const brim_config_place *place_of(const brim_config_draft *draft, const char *arg) {
  for (size_t i = 0; i < draft->c.arg_count; i++) {
    if (!strcmp(draft->args[i].name, arg)) return &draft->places[i];
  }
  return NULL;
}

// Sets the value of the key to the argument's. `written`: the argument is not a default.
static brim_status set_key_to_argument(brim_config *config, int key_row, const brim_value *arg,
                                       bool written, int setting) {
  brim_config_value *value = &config->values[key_row];
  if (!written && !value->is_null) return BRIM_OK;
  value->is_null = false;
  value->boolean = arg->boolean;
  value->number = arg->number;
  value->integer = arg->integer;
  value->node = NULL;
  if (!written) return BRIM_OK;
  value->is_set = true;
  if (setting < 0) return BRIM_OK;
  const brim_config_setting *s = &config->source->settings.items[setting];
  value->layer = s->layer;
  value->origin = "override";
  if (s->layer == config->source->override_layer) return BRIM_OK;
  value->origin = brim_arena_printf(config->arena, "%s:%d:%d", s->at.file, s->at.line, s->at.col);
  return value->origin ? BRIM_OK : brim_config_no_memory();
}

static brim_status link_out(brim_config *config, int row, int slot, int whole,
                            const brim_config_draft *draft) {
  const brim_config_link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!brim_config_link_applies(l, row, slot)) continue;
    const brim_value *arg = brim_component_arg(&draft->c, l->arg);
    const brim_config_place *place = place_of(draft, l->arg);
    if (!arg) continue;
    // Line 0: link_in copied it from the key. No file: a default.
    if (place->file && place->line == 0) continue;
    int setting = setting_of_argument(config, row, slot, l->arg, whole);
    BRIM_TRY(set_key_to_argument(config, brim_config_row_find(l->key), arg, place->file != NULL,
                                 setting));
  }
  return BRIM_OK;
}

// Links training.precision and training.use_amp, which are one setting.
static brim_status link_precision(brim_config *config) {
  brim_config_value *p = &config->values[brim_config_row_find("training.precision")];
  brim_config_value *amp = &config->values[brim_config_row_find("training.use_amp")];
  bool mixed = strcmp(p->string, "fp32") && strcmp(p->string, "tf32");
  bool contradict = p->is_set && amp->is_set && mixed != amp->boolean;
  bool amp_wins = amp->layer >= p->layer;
  if (contradict && p->layer == amp->layer && p->layer >= 0) {
    int a = brim_config_setting_find(config->source, brim_config_row_find("training.precision"), 0,
                                     NULL);
    int b =
        brim_config_setting_find(config->source, brim_config_row_find("training.use_amp"), 0, NULL);
    static const brim_config_link pair = {NULL, NULL, "training.precision", false};
    BRIM_TRY(warn_given_twice(config, &pair, b, a, &amp_wins));
  }
  if (amp->is_set && (!p->is_set || (contradict && amp_wins))) {
    p->string = amp->boolean ? "auto" : "fp32";
    p->is_set = true;
    p->layer = amp->layer;
    p->origin = amp->origin;
    p->node = NULL;
  } else if (p->is_set) {
    amp->boolean = mixed;
    amp->is_set = true;
    amp->layer = p->layer;
    amp->origin = p->origin;
    amp->node = NULL;
  }
  return BRIM_OK;
}

// ---- grid points -------------------------------------------------------------------------------

enum { UNRESOLVED, RESOLVING, RESOLVED };
enum { MAX_EXPANDED = 64 << 10 };

typedef struct resolver {
  brim_config *config;
  brim_config_source *source;
  brim_config_preset preset;
  const char *preset_origin;
  bool preset_over;  // the preset is from the command line: above the files, below other overrides
  brim_str
      replaced;  // keys of the file that the preset overrides: "data.batch_size, data.num_workers"
  unsigned char state[BRIM_CONFIG_MAX_ROWS];
} resolver;

// ---- placeholders ------------------------------------------------------------------------------
static brim_status resolve_row(resolver *r, int row);

// Copies the key in "{{ key }}" at p; *end is the byte after the braces. NULL without closing braces.
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
  if (!copy) return brim_config_no_memory();
  const char *end;
  char *key = placeholder(r, open, &end);
  if (!key) return brim_config_no_memory();
  if (open == node->text && !*end) {  // the whole string: keeps the type of the value
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
    if (!copy->text) return brim_config_no_memory();
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

// Replaces placeholders in a node. Copies only the nodes that contain placeholders.
static brim_status expand(resolver *r, const brim_config_node *node, const brim_config_node **out) {
  *out = node;
  if (!brim_config_has_placeholder(node)) return BRIM_OK;
  if (node->kind == BRIM_CONFIG_NODE_SCALAR) return expand_scalar(r, node, out);
  brim_config_node *copy = brim_arena_calloc(r->config->arena, 1, sizeof *copy);
  if (!copy) return brim_config_no_memory();
  *copy = *node;
  brim_config_node **at = &copy->first;
  for (const brim_config_node *n = node->first; n; n = n->next) {
    const brim_config_node *child;
    BRIM_TRY(expand(r, n, &child));
    brim_config_node *own = brim_arena_calloc(r->config->arena, 1, sizeof *own);
    if (!own) return brim_config_no_memory();
    *own = *child;
    own->next = NULL;
    *at = own;
    at = &own->next;
  }
  *out = copy;
  return BRIM_OK;
}

// ---- scalars -----------------------------------------------------------------------------------
static const char *origin_of(resolver *r, int layer, brim_config_place at) {
  if (layer == -2) return "default";
  if (brim_config_layer_is_preset(r->source, layer)) return r->preset_origin;
  if (layer == r->source->override_layer) return "override";
  return brim_arena_printf(r->config->arena, "%s:%d:%d", at.file, at.line, at.col);
}

// True if the config names Adam as its optimizer. Reads the node, since components are not built yet.
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

// True if a preset from the command line replaces this setting. It does not replace other overrides and grid axes,
// nor the learning rate of an optimizer other than Adam, for which the presets' rates are made.
static bool preset_wins(resolver *r, const brim_config_preset_value *v,
                        const brim_config_setting *s) {
  if (!r->preset_over || !v || s->layer == r->source->override_layer || s->axis >= 0) return false;
  if (strcmp(v->key, "training.learning_rate") == 0 && !names_adam(r)) return false;
  brim_str_printf(&r->replaced, "%s%s", r->replaced.len ? ", " : "", v->key);
  return true;
}

// Finds the node, layer and origin of a row, before placeholders are expanded: those of a setting (unless the
// preset wins), else of the preset, else of the default.
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
  if (!value->origin) return brim_config_no_memory();
  if (!*node && text) {
    *node = brim_config_node_plain(r->config->arena, text, at);
    if (!*node) return brim_config_no_memory();
  }
  return BRIM_OK;
}

static brim_status default_value(resolver *r, const brim_config_row *info, brim_config_value *out) {
  brim_config_place at = {"default", 0, 0};
  *out = (brim_config_value){.is_null = true};
  if (!info->key.default_text) return BRIM_OK;
  const brim_config_node *node =
      brim_config_node_plain(r->config->arena, info->key.default_text, at);
  if (!node) return brim_config_no_memory();
  return brim_config_convert(r->config->arena, info, node, out);
}

static bool is_null(const brim_config_node *node) {
  brim_value v;
  return node->kind == BRIM_CONFIG_NODE_SCALAR && !brim_config_scalar(node, &v) &&
         v.kind == BRIM_VALUE_NULL;
}

// True if the node is the word auto, for a key whose default is a number: auto is then a value, not the default.
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
    if (node && is_null(node)) {  // null counts as not set
      brim_config_place at = {"default", 0, 0};
      const char *text = info->key.default_text;
      node = text ? brim_config_node_plain(r->config->arena, text, at) : NULL;
      if (text && !node) return brim_config_no_memory();
    }
    value->is_null = !node;
    value->node = node;
  } else if (node) {
    BRIM_TRY(brim_config_convert(r->config->arena, info, node, value));
    if (value->is_null && !is_left_open(info, node)) {  // null counts as not set; the origin stays
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

// Resolves a row. A value with a mistake gets its default while the other rows are checked.
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
  if (!r->preset_origin) return brim_config_no_memory();
  // A placeholder in `preset` may have resolved other rows without the preset: resolve them again.
  memset(r->state, UNRESOLVED, sizeof r->state);
  r->state[row] = r->state[size] = RESOLVED;
  return BRIM_OK;
}

// ---- components --------------------------------------------------------------------------------
// Reports a misspelled slot such as transform.trian: no transform is set that it could be an argument of.
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

// Adds the arguments given apart from the component: {_type: ..., k: v} or model.depth=3.
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
    // Grid points are resolved after the load too, when warnings may no longer change.
    if (drafts.tail && !r->config->is_point) {
      BRIM_TRY(brim_config_warn_tail(&r->source->context, info->key.name, node->at));
    }
  }
  for (size_t i = 0; i < drafts.count; i++) {
    BRIM_TRY(brim_config_replace_aliases(info->category, drafts.items[i]));
  }
  BRIM_TRY(apply_arguments(r, row, slot, &drafts));
  if (!drafts.count && !drafts.tail) return BRIM_OK;
  for (size_t i = 0; i < drafts.count; i++) {
    brim_config_draft *draft = drafts.items[i];
    if (drafts.count == 1) BRIM_TRY(link_in(r->config, row, slot, whole, draft));
    BRIM_TRY(brim_config_component_check(arena, info->category, draft));
    if (drafts.count == 1) BRIM_TRY(link_out(r->config, row, slot, whole, draft));
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
        if (!value->origin) return brim_config_no_memory();
      }
    }
  }
  return BRIM_OK;
}

// Warns of the keys that the preset replaces. Equal warnings of several grid points are kept once.
static brim_status warn_replaced(resolver *r) {
  BRIM_TRY(brim_str_status(&r->replaced));
  if (!r->replaced.len) return BRIM_OK;
  return brim_config_warn(&r->source->context, (brim_config_place){NULL, 0, 0},
                          brim_tr("%s, given on the command line, replaces what the file sets: %s"),
                          r->preset_origin, r->replaced.data);
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
  BRIM_TRY(warn_replaced(r));
  BRIM_TRY(link_precision(r->config));
  return build_components(r);
}

brim_status brim_config_resolve(brim_config_source *source, size_t raw_point, bool is_point,
                                brim_config **out) {
  *out = NULL;
  brim_config *config = brim_calloc(1, sizeof *config);
  if (!config) return brim_config_no_memory();
  brim_status status = brim_arena_create(0, &config->arena);
  if (status) goto fail_config;
  status = brim_config_no_memory();
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

// ---- reading -----------------------------------------------------------------------------------
// Typed getters by key or alias, and components by slot.

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
  if (!value || !value_is_asked(config->source, row, value)) return false;
  return value->layer == config->source->override_layer || !link_is_usual(row, value);
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

// The value of a key; fails if the key is unknown, has no value, or has none of the types (a bit set).
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

// The value for getters that cannot fail: a wrong key or type is a bug of the caller.
static const brim_config_value *known_value(const brim_config *config, const char *key,
                                            unsigned types) {
  const brim_config_row *row = NULL;
  const brim_config_value *value = find(config, key, &row);
  assert(value && (types >> row->type & 1U));
  (void)types;
  return value;
}

int64_t brim_config_int(const brim_config *config, const char *key) {
  return known_value(config, key, BIT(INT) | BIT(BYTES))->integer;
}

double brim_config_float(const brim_config *config, const char *key) {
  return known_value(config, key, BIT(FLOAT) | BIT(INT) | BIT(BYTES))->number;
}

bool brim_config_bool(const brim_config *config, const char *key) {
  return known_value(config, key, BIT(BOOL))->boolean;
}

const char *brim_config_string(const brim_config *config, const char *key) {
  return known_value(config, key, BIT(STRING) | BIT(CHOICE) | BIT(DEVICE))->string;
}

const brim_pipeline *brim_config_pipeline(const brim_config *config, const char *key,
                                          const char *slot) {
  const brim_config_row *row = NULL;
  const brim_config_value *value = find(config, key, &row);
  int index = brim_config_slot_find(slot);
  if (!value || index < 0 || !brim_config_row_is_component(row)) return NULL;
  if (value->slots[index]) return value->slots[index];
  // A slot that is not given uses the whole; a whole that is not given uses the slot train.
  return value
      ->slots[index == BRIM_CONFIG_SLOT_NONE ? BRIM_CONFIG_SLOT_TRAIN : BRIM_CONFIG_SLOT_NONE];
}

const brim_component *brim_config_component(const brim_config *config, const char *key,
                                            const char *slot) {
  const brim_pipeline *pipeline = brim_config_pipeline(config, key, slot);
  return pipeline && pipeline->count ? &pipeline->items[0] : NULL;
}
