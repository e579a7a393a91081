// All values of one grid point: presets chosen, placeholders filled in, scalars converted, components built, checked
// and linked to the keys that say the same thing.

#include "config/config_int.h"

#include <math.h>
#include <string.h>

//------------------------------------------- settings -------------------------------------------
// Settings as the files and the command line gave them: finding one, and its value at a grid point.
// What they mean together is config_resolve.c's and config_resolve.c's.

int brim_config_setting_find(const brim_config_source *source, int row, int slot, const char *arg) {
  for (size_t i = source->settings.count; i-- > 0;) {
    const brim_config_setting *s = &source->settings.items[i];
    if (!s->live || s->row != row || s->slot != slot || !s->arg != !arg) continue;
    if (!arg || !strcmp(s->arg, arg)) return (int)i;
  }
  return -1;
}

const brim_config_node *brim_config_setting_node(const brim_config_source *source,
                                                 const brim_config_setting *setting,
                                                 size_t raw_point) {
  if (setting->axis < 0) return setting->node;
  const brim_config_axis_state *axis = &source->axes[setting->axis];
  return axis->items[raw_point / axis->stride % axis->count];
}

bool brim_config_layer_is_preset(const brim_config_source *source, int layer) {
  return layer == -1 || layer == source->override_layer - 1;
}

// Is it what this text of a default says? No text and no value are the same.
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

bool brim_config_value_is_asked(const brim_config_source *source, const brim_config_row *row,
                                const brim_config_value *value) {
  if (!value->is_set || value->layer < 0) return false;
  if (value->layer == source->override_layer) return true;
  return !brim_config_layer_is_preset(source, value->layer) &&
         !value_is_usual(row, value, row->key.default_text);
}

const brim_config_arg *brim_config_setting_arg(const brim_config_source *source,
                                               const brim_config_setting *s) {
  const brim_config_row *row = brim_config_row_at((size_t)s->row);
  int whole = brim_config_setting_find(source, s->row, s->slot, NULL);
  if (whole < 0) whole = brim_config_setting_find(source, s->row, BRIM_CONFIG_SLOT_NONE, NULL);
  const brim_config_node *node = whole < 0 ? NULL : source->settings.items[whole].node;
  if (node && node->kind == BRIM_CONFIG_NODE_LIST) node = node->first;
  if (node && node->kind == BRIM_CONFIG_NODE_MAP) node = brim_config_node_get(node, "_type");
  const char *text = node && node->kind == BRIM_CONFIG_NODE_SCALAR ? node->text : NULL;
  if (!text) text = row->key.default_text;
  char name[64];
  size_t length = text ? strcspn(text, "(| ") : 0;
  if (!length || length >= sizeof name) return NULL;
  memcpy(name, text, length);
  name[length] = 0;
  return brim_config_arg_find(brim_config_component_find(row->category, name), s->arg);
}

//------------------------------------------ conversion ------------------------------------------
// A node into a typed value, by the row of the key table. Components are config_resolve.c's.

#define AT(p) (p).file, (p).line, (p).col

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
}

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

// A leading dot is out with "." and "..": with an ending taken off, "...yaml" would be one of them.
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
      // yes, no, on and off are strings in YAML 1.2; where a bool is needed they are meant as one.
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
  if (!one) return no_memory();
  *one = *out;
  *out = (brim_value){.kind = BRIM_VALUE_LIST, .items = one, .count = 1};
  return BRIM_OK;
}

static brim_status to_ints(brim_arena *arena, const brim_config_row *row,
                           const brim_config_node *node, const brim_value *list,
                           brim_config_value *out) {
  int64_t *ints = brim_arena_calloc(arena, list->count + 1, sizeof *ints);
  if (!ints) return no_memory();
  for (size_t i = 0; i < list->count; i++) BRIM_TRY(to_int(row, node, &list->items[i], &ints[i]));
  out->ints = ints;
  out->count = list->count;
  return BRIM_OK;
}

static brim_status to_strings(brim_arena *arena, const brim_config_row *row,
                              const brim_config_node *node, const brim_value *list,
                              brim_config_value *out) {
  const char **strings = brim_arena_calloc(arena, list->count + 1, sizeof *strings);
  if (!strings) return no_memory();
  const brim_config_node *n = node->kind == BRIM_CONFIG_NODE_LIST ? node->first : node;
  bool one_each = node->kind == BRIM_CONFIG_NODE_LIST || list->count == 1;
  for (size_t i = 0; i < list->count; i++, n = n ? n->next : NULL) {
    strings[i] = list->items[i].string;
    // A text is a text, whatever it would mean in an expression.
    bool text = one_each && n && n->kind == BRIM_CONFIG_NODE_SCALAR;
    if (text && !strings[i] && node->kind == BRIM_CONFIG_NODE_LIST) strings[i] = n->text;
    if (!strings[i] || list->items[i].kind == BRIM_VALUE_NULL) return wants(row, node);
    if (row->key.choices) BRIM_TRY(to_choice(row, node, strings[i], &strings[i]));
  }
  out->strings = strings;
  out->count = list->count;
  return BRIM_OK;
}

// One device by name: its text in *name, the number of a GPU in *gpu, -1 where it is none. In a list
// everyone has to be one certain device.
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
  return *name ? BRIM_OK : no_memory();
}

// auto | cpu | ref | cuda | cuda:N | N | a list of cpu, ref, cuda:N, N: the word in string, all of
// them in strings, and in ints where they are GPUs. A device may be named again: ranks can share it.
static brim_status to_device(brim_arena *arena, const brim_config_row *row,
                             const brim_config_node *node, brim_config_value *out) {
  brim_value list;
  BRIM_TRY(list_items(arena, row, node, &list));
  if (list.count == 0) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at), "'%s': the list is empty", row->key.name);
  }
  int64_t *gpus = brim_arena_calloc(arena, list.count, sizeof *gpus);
  const char **names = brim_arena_calloc(arena, list.count + 1, sizeof *names);
  if (!gpus || !names) return no_memory();
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

static brim_status map_value(brim_arena *arena, const brim_config_node *node, brim_value *out) {
  const brim_config_node *type = brim_config_node_get(node, "_type");
  if (!type || type->kind != BRIM_CONFIG_NODE_SCALAR) {
    return brim_fail_at(BRIM_EINVAL, AT(node->at),
                        "a component written as a map needs '_type: name'");
  }
  if (!brim_config_is_name(type->text)) {
    return brim_fail_at(BRIM_EINVAL, AT(type->at), "'%.80s' is not a component's name", type->text);
  }
  brim_config_draft *draft = brim_config_draft_create(arena, type->text, type->at);
  if (!draft) return no_memory();
  for (const brim_config_node *n = node->first; n; n = n->next) {
    if (n == type) continue;
    if (!brim_config_is_name(n->key)) {
      return brim_fail_at(BRIM_EINVAL, AT(n->key_at), "'%.80s' is not an argument's name", n->key);
    }
    brim_value v;
    BRIM_TRY(brim_config_node_value(arena, n, &v));
    BRIM_TRY(brim_config_draft_set(arena, draft, n->key, v, n->key_at));
  }
  *out = (brim_value){.kind = BRIM_VALUE_COMPONENT, .component = &draft->c};
  return BRIM_OK;
}

brim_status brim_config_node_value(brim_arena *arena, const brim_config_node *node,
                                   brim_value *out) {
  if (node->kind == BRIM_CONFIG_NODE_MAP) return map_value(arena, node, out);
  if (node->kind == BRIM_CONFIG_NODE_SCALAR) {
    BRIM_TRY(brim_config_scalar(node, out));
    // "(0.8, 1.0)", "[1, 2]" and "resnet18(width=2)" mean what they mean in an expression.
    if (out->kind == BRIM_VALUE_STRING && node->tag != BRIM_CONFIG_TAG_STR &&
        (node->text[0] == '[' || (node->plain && strchr(node->text, '(')))) {
      brim_value v;
      brim_status status = brim_config_expression_value(arena, node->text, node->at, &v);
      if (status == BRIM_ENOMEM) return status;
      if (!status) *out = v;
    }
    return BRIM_OK;
  }
  brim_value *items = brim_arena_calloc(arena, node->count + 1, sizeof *items);
  if (!items) return no_memory();
  size_t count = 0;
  for (const brim_config_node *n = node->first; n; n = n->next) {
    BRIM_TRY(brim_config_node_value(arena, n, &items[count++]));
  }
  *out = (brim_value){.kind = BRIM_VALUE_LIST, .items = items, .count = count};
  return BRIM_OK;
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

//------------------------------------------ components ------------------------------------------
// Components held against the catalogue: known names, known arguments, their kinds and bounds;
// then the defaults filled in. Every message has the place of the argument.

static brim_status unknown_name(const char *category, const brim_config_draft *draft) {
  const char *names[128];
  size_t count = 0;
  for (size_t i = 0; i < brim_config_component_count() && count < 127; i++) {
    const brim_config_component_row *row = brim_config_component_at(i);
    if (!strcmp(row->category, category)) names[count++] = row->name;
  }
  names[count] = NULL;
  const brim_component *c = &draft->c;
  const char *near = brim_nearest(c->name, names);
  if (near) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "unknown %s '%.80s'; did you mean '%s'?", category, c->name, near);
  }
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                      "unknown %s '%.80s'; to use one from a plug-in write plugin:%.80s", category,
                      c->name, c->name);
}

static brim_status unknown_arg(const brim_config_component_row *row, const char *name,
                               brim_config_place at) {
  const char *names[BRIM_CONFIG_MAX_ARGS + 1];
  size_t count = 0;
  for (; count < row->arg_count && count < BRIM_CONFIG_MAX_ARGS; count++) {
    names[count] = row->args[count].name;
  }
  names[count] = NULL;
  const char *near = brim_nearest(name, names);
  if (near) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "%s has no argument '%.80s'; did you mean '%s'?",
                        row->name, name, near);
  }
  return brim_fail_at(BRIM_EINVAL, AT(at), "%s has no argument '%.80s'", row->name, name);
}

static brim_status wrong_kind(const brim_config_component_row *row, const brim_config_arg *arg,
                              const brim_value *v, brim_config_place at) {
  if (v->kind == BRIM_VALUE_LIST) {
    return brim_fail_at(BRIM_EINVAL, AT(at),
                        "%s: '%s' expects %s, not a list (for a grid write the component as a map: "
                        "{_type: %s, %s: [...]})",
                        row->name, arg->name, brim_config_arg_type_name(arg->type), row->name,
                        arg->name);
  }
  return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' expects %s", row->name, arg->name,
                      brim_config_arg_type_name(arg->type));
}

static brim_status check_argument_bounds(const brim_config_component_row *row,
                                         const brim_config_arg *arg, double number,
                                         brim_config_place at) {
  if (!isfinite(number)) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' must be finite", row->name, arg->name);
  }
  if ((arg->min == 0 && arg->max == 0) || (number >= arg->min && number <= arg->max)) {
    return BRIM_OK;
  }
  return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' must be between %g and %g", row->name,
                      arg->name, arg->min, arg->max);
}

// 1e3 is fine where a whole number is needed.
static bool argument_int(brim_value *v) {
  if (v->kind == BRIM_VALUE_FLOAT && v->number == floor(v->number) && fabs(v->number) < 9e15) {
    v->kind = BRIM_VALUE_INT;
    v->integer = (int64_t)v->number;
  }
  return v->kind == BRIM_VALUE_INT;
}

static bool is_number(const brim_value *v) {
  return v->kind == BRIM_VALUE_INT || v->kind == BRIM_VALUE_FLOAT;
}

static bool in_choices(const char *choices, const char *word) {
  size_t length = strlen(word);
  for (const char *p = choices; *p;) {
    size_t n = strcspn(p, "|");
    if (n == length && !strncmp(p, word, n)) return true;
    p += n + (p[n] == '|');
  }
  return false;
}

static brim_status check_list(const brim_config_component_row *row, const brim_config_arg *arg,
                              brim_value *v, brim_config_place at) {
  if (arg->type == BRIM_CONFIG_ARG_SIZE && v->count != 2) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' expects one number or (height, width)",
                        row->name, arg->name);
  }
  for (size_t i = 0; i < v->count; i++) {
    brim_value item = v->items[i];
    if (arg->type == BRIM_CONFIG_ARG_SIZE && !argument_int(&item))
      return wrong_kind(row, arg, &item, at);
    if (arg->type == BRIM_CONFIG_ARG_NUMBERS && !is_number(&item)) {
      return wrong_kind(row, arg, &item, at);
    }
    if (is_number(&item)) BRIM_TRY(check_argument_bounds(row, arg, item.number, at));
  }
  return BRIM_OK;
}

static brim_status check_word(const brim_config_component_row *row, const brim_config_arg *arg,
                              brim_value *v, brim_config_place at) {
  if (v->kind == BRIM_VALUE_LIST || v->kind == BRIM_VALUE_COMPONENT || !v->string) {
    return wrong_kind(row, arg, v, at);
  }
  v->kind = BRIM_VALUE_STRING;  // a number where a word is needed keeps its text
  if (arg->type == BRIM_CONFIG_ARG_CHOICE && !in_choices(arg->choices, v->string)) {
    return brim_fail_at(BRIM_EINVAL, AT(at), "%s: '%s' must be one of %s, not '%.80s'", row->name,
                        arg->name, arg->choices, v->string);
  }
  return BRIM_OK;
}

static brim_status check_nested(brim_arena *arena, const brim_config_component_row *row,
                                const brim_config_arg *arg, brim_value *v, brim_config_place at) {
  if (v->kind == BRIM_VALUE_STRING) {
    brim_config_draft *draft = brim_config_draft_create(arena, v->string, at);
    if (!draft) return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
    *v = (brim_value){.kind = BRIM_VALUE_COMPONENT, .component = &draft->c};
  }
  if (v->kind != BRIM_VALUE_COMPONENT) return wrong_kind(row, arg, v, at);
  // Every component value of this room is the head of a draft.
  return brim_config_component_check(arena, arg->choices, (brim_config_draft *)v->component);
}

static brim_status check_arg(brim_arena *arena, const brim_config_component_row *row,
                             const brim_config_arg *arg, brim_value *v, brim_config_place at) {
  bool flag;
  switch (arg->type) {
    case BRIM_CONFIG_ARG_INT:
      if (arg->choices && v->kind == BRIM_VALUE_STRING && !strcmp(v->string, arg->choices)) {
        *v = (brim_value){.kind = BRIM_VALUE_INT, .string = "0"};
      }
      if (!argument_int(v)) return wrong_kind(row, arg, v, at);
      return check_argument_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_FLOAT:
      if (!is_number(v)) return wrong_kind(row, arg, v, at);
      v->kind = BRIM_VALUE_FLOAT;
      return check_argument_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_BOOL:
      if (v->kind == BRIM_VALUE_STRING && brim_parse_bool(v->string, &flag)) {
        *v = (brim_value){.kind = BRIM_VALUE_BOOL, .boolean = flag, .string = v->string};
      }
      return v->kind == BRIM_VALUE_BOOL ? BRIM_OK : wrong_kind(row, arg, v, at);
    case BRIM_CONFIG_ARG_SIZE:
      if (v->kind == BRIM_VALUE_LIST) return check_list(row, arg, v, at);
      if (!argument_int(v)) return wrong_kind(row, arg, v, at);
      return check_argument_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_NUMBERS:
      if (v->kind == BRIM_VALUE_LIST) return check_list(row, arg, v, at);
      if (!is_number(v)) return wrong_kind(row, arg, v, at);
      return check_argument_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_WORDS:
      return v->kind == BRIM_VALUE_LIST ? BRIM_OK : check_word(row, arg, v, at);
    case BRIM_CONFIG_ARG_LIST:
      if (v->kind != BRIM_VALUE_LIST) return wrong_kind(row, arg, v, at);
      return check_list(row, arg, v, at);
    case BRIM_CONFIG_ARG_COMPONENT:
      return check_nested(arena, row, arg, v, at);
    default:
      return check_word(row, arg, v, at);
  }
}

brim_status brim_config_arg_default(brim_arena *arena, const brim_config_component_row *row,
                                    const brim_config_arg *arg, brim_value *out) {
  const brim_config_place at = {"default", 0, 0};
  *out = (brim_value){.kind = BRIM_VALUE_NULL};
  if (!arg->default_text) return BRIM_OK;
  BRIM_TRY(brim_config_expression_value(arena, arg->default_text, at, out));
  return check_arg(arena, row, arg, out, at);
}

static brim_status fill_defaults(brim_arena *arena, const brim_config_component_row *row,
                                 brim_config_draft *draft) {
  brim_config_place at = {draft->c.file, draft->c.line, draft->c.col};
  for (size_t i = 0; i < row->arg_count; i++) {
    const brim_config_arg *arg = &row->args[i];
    if (brim_component_arg(&draft->c, arg->name)) continue;
    if (arg->required) {
      return brim_fail_at(BRIM_EINVAL, AT(at), "%s needs '%s' (%s)", row->name, arg->name,
                          arg->meaning);
    }
    if (!arg->default_text) continue;
    brim_value v;
    BRIM_TRY(brim_config_arg_default(arena, row, arg, &v));
    // No place: this is how a default is distinguished from what was written.
    BRIM_TRY(brim_config_draft_set(arena, draft, arg->name, v, (brim_config_place){NULL, 0, 0}));
  }
  return BRIM_OK;
}

// Aliases of arguments become their names; one that is given both ways is refused.
static brim_status component_names(const char *category, brim_config_draft *draft) {
  const brim_config_component_row *row = brim_config_component_find(category, draft->c.name);
  for (size_t i = 0; i < draft->c.arg_count; i++) {
    const char *name = draft->args[i].name;
    const brim_config_arg *arg = brim_config_arg_find(row, name);
    if (!arg || !strcmp(arg->name, name)) continue;
    if (brim_component_arg(&draft->c, arg->name)) {
      return brim_fail_at(BRIM_EINVAL, AT(draft->places[i]),
                          "%s: '%s' and '%s' are the same argument; specify it once", row->name,
                          arg->name, arg->alias);
    }
    draft->args[i].name = arg->name;
  }
  return BRIM_OK;
}

brim_status brim_config_no_plugin(const char *key, brim_config_place at) {
  return brim_fail_at(BRIM_EINVAL, AT(at), "%s is plugin: without a name; write plugin:NAME", key);
}

brim_status brim_config_component_check(brim_arena *arena, const char *category,
                                        brim_config_draft *draft) {
  static const char plugin[] = "plugin:";
  if (strcmp(draft->c.name, plugin) == 0) {
    const brim_config_place at = {draft->c.file, draft->c.line, draft->c.col};
    return brim_config_no_plugin(category, at);
  }
  if (brim_str_starts(draft->c.name, plugin)) return BRIM_OK;
  const brim_config_component_row *row = brim_config_component_find(category, draft->c.name);
  if (!row) return unknown_name(category, draft);
  BRIM_TRY(component_names(category, draft));
  size_t kept = 0;
  for (size_t i = 0; i < draft->c.arg_count; i++) {
    const brim_config_arg *arg = brim_config_arg_find(row, draft->args[i].name);
    if (!arg) return unknown_arg(row, draft->args[i].name, draft->places[i]);
    if (draft->args[i].value.kind == BRIM_VALUE_NULL) continue;  // null: as if not written
    BRIM_TRY(check_arg(arena, row, arg, &draft->args[i].value, draft->places[i]));
    draft->args[kept] = draft->args[i];
    draft->places[kept++] = draft->places[i];
  }
  draft->c.arg_count = kept;
  return fill_defaults(arena, row, draft);
}

//-------------------------------------------- links --------------------------------------------
// Settings that exist both as a key and as a component's argument (training.learning_rate and
// sgd(lr=...)) are one setting: of two the later layer wins and both then say the same. Twice in
// one layer is warned of like any repeated key: the later one wins.

typedef brim_config_link link;

static const link links[] = {
    {"optimizer", "lr", "training.learning_rate", false},
    {"optimizer", "weight_decay", "training.weight_decay", false},
    {"optimizer", "momentum", "training.momentum", false},
    {"optimizer", "nesterov", "training.nesterov", false},
    {"loss", "label_smoothing", "training.label_smoothing", false},
    {"scheduler", "warmup", "training.warmup_steps", false},
    {"dataloader", "batch_size", "data.batch_size", false},
    {"dataloader", "num_workers", "data.num_workers", false},
    {"dataloader", "prefetch_factor", "data.prefetch_factor", false},
    {"dataloader", "persistent_workers", "data.persistent_workers", false},
    {"dataloader", "pin_memory", "data.pin_memory", false},
    {"dataloader", "drop_last", "data.drop_last", false},
    {"dataloader", "shuffle", "data.shuffle", false},
    {"dataloader", "batch_size", "data.eval_batch_size", true},
};

enum { BUILT_IN = sizeof links / sizeof links[0], MAX_ADDED = 32 };

// Of workloads. Written before threads start, read only afterwards.
static const link *added[MAX_ADDED];
static size_t added_count;

brim_status brim_config_add_links(const brim_config_link *rows, size_t count) {
  if (count > MAX_ADDED - added_count) {
    return brim_fail(BRIM_EINVAL, "too many keys that are arguments too: %zu more than %d",
                     added_count + count - MAX_ADDED, MAX_ADDED);
  }
  for (size_t i = 0; i < count; i++) {
    if (brim_config_row_find(rows[i].component) >= 0 && brim_config_row_find(rows[i].key) >= 0) {
      continue;
    }
    return brim_fail(BRIM_EINVAL, "no key %s, or no key %s that it can be an argument of",
                     rows[i].key, rows[i].component);
  }
  for (size_t i = 0; i < count; i++) added[added_count++] = &rows[i];
  return BRIM_OK;
}

void brim_config_remove_links(size_t count) { added_count -= count; }

const brim_config_link *brim_config_link_at(size_t index) {
  if (index < BUILT_IN) return &links[index];
  return index - BUILT_IN < added_count ? added[index - BUILT_IN] : NULL;
}

bool brim_config_link_is_usual(const brim_config_row *row, const brim_config_value *value) {
  const link *l;
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

static bool applies(const link *l, int row, int slot) {
  if (strcmp(l->component, brim_config_row_at((size_t)row)->key.name)) return false;
  bool evaluation = slot == BRIM_CONFIG_SLOT_VAL || slot == BRIM_CONFIG_SLOT_TEST;
  return l->evaluation == evaluation;
}

const brim_config_link *brim_config_link_of(int row, int slot, const char *arg) {
  const link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!strcmp(l->arg, arg) && applies(l, row, slot)) return l;
  }
  return NULL;
}

// The setting that gave an explicit argument: its own, or the expression it stands in.
static int giver(const brim_config *config, int row, int slot, const char *arg, int whole) {
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

// `whole`: the setting that names the component; -1 = none.
static brim_status no_effect(const brim_config *config, const brim_config_row *key,
                             const brim_config_draft *draft, int whole,
                             const brim_config_value *value) {
  if (config->is_point || !brim_config_value_is_asked(config->source, key, value)) return BRIM_OK;
  // a default of the component that the file had, which an override has replaced
  const brim_config_setting *named = whole < 0 ? NULL : &config->source->settings.items[whole];
  if (named && named->layer > value->layer && brim_config_link_is_usual(key, value)) return BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s: ", value->origin);
  brim_str_printf(&text, brim_tr("'%s' has no effect on '%s'"), key->key.name, draft->c.name);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_config_warn(&config->source->context, text.data);
  brim_str_deinit(&text);
  return status;
}

static bool is_adam(const char *name) { return brim_str_starts(name, "adam"); }

// Given both ways in one layer: warned of (refused while editing). *key_wins: which of the two
// stands later.
static brim_status both(const brim_config *config, const link *l, int key_setting, int arg_setting,
                        bool *key_wins) {
  const brim_config_setting *k = &config->source->settings.items[key_setting];
  const brim_config_setting *a = &config->source->settings.items[arg_setting];
  *key_wins = key_setting > arg_setting;
  if (config->is_point || k->layer == config->source->override_layer) return BRIM_OK;
  return *key_wins ? brim_config_repeated(&config->source->context, l->key, a->at, k->at)
                   : brim_config_repeated(&config->source->context, l->key, k->at, a->at);
}

static brim_status link_one(brim_config *config, const link *l, int row, int slot, int whole,
                            brim_config_draft *draft) {
  int key_row = brim_config_row_find(l->key);
  const brim_config_row *info = brim_config_row_at((size_t)key_row);
  brim_config_value *value = &config->values[key_row];
  const brim_config_component_row *known =
      brim_config_component_find(brim_config_row_at((size_t)row)->category, draft->c.name);
  if (!known) return BRIM_OK;
  if (!brim_config_arg_find(known, l->arg)) return no_effect(config, info, draft, whole, value);
  // The presets' rates were found for Adam; SGD with them would hardly move.
  if (value->layer == -1 && !strcmp(l->arg, "lr") && !is_adam(draft->c.name)) {
    *value = (brim_config_value){.is_null = true, .layer = -2, .origin = "default"};
  }
  const brim_value *arg = brim_component_arg(&draft->c, l->arg);
  if (value->is_null || (arg && !value->is_set)) return BRIM_OK;
  // 0 steps is "not said here": it must not hide warmup_epochs, neither as the default nor in a
  // printed config, which says both.
  if (!arg && !strcmp(l->arg, "warmup") && value->integer == 0) return BRIM_OK;
  if (l->evaluation && value->integer == 0) return BRIM_OK;  // 0: as in training
  if (arg) {
    int arg_setting = giver(config, row, slot, l->arg, whole);
    int arg_layer = arg_setting >= 0 ? config->source->settings.items[arg_setting].layer : -2;
    if (arg_layer > value->layer) return BRIM_OK;
    if (arg_layer == value->layer && arg_setting >= 0) {
      int key_setting = brim_config_setting_find(config->source, key_row, 0, NULL);
      // An axis is plainly meant to vary; equal values are no contradiction (printed configs say
      // both).
      bool key_wins = key_setting >= 0 && config->source->settings.items[key_setting].axis >= 0;
      bool equal = arg->number == value->number && arg->boolean == value->boolean;
      if (key_setting >= 0 && !key_wins && !equal) {
        BRIM_TRY(both(config, l, key_setting, arg_setting, &key_wins));
      }
      if (!key_wins) return BRIM_OK;
    }
  }
  brim_config_place at = {value->origin, 0, 0};
  return brim_config_draft_set(config->arena, draft, l->arg, value_of(info, value), at);
}

// config_resolve.c: settings that exist both as a key and as an argument agree; of two the later
// layer wins. Before the catalogue check the key goes into the draft, after it the draft's value
// into the key.
static brim_status link_in(brim_config *config, int row, int slot, int whole,
                           brim_config_draft *draft) {
  const link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!applies(l, row, slot)) continue;
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

// Now the argument is what counts: the key follows it.
static brim_status follow(brim_config *config, int key_row, const brim_value *arg, bool written,
                          int setting) {
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
  return value->origin ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
}

static brim_status link_out(brim_config *config, int row, int slot, int whole,
                            const brim_config_draft *draft) {
  const link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (!applies(l, row, slot)) continue;
    const brim_value *arg = brim_component_arg(&draft->c, l->arg);
    const brim_config_place *place = place_of(draft, l->arg);
    if (!arg) continue;
    // line 0: link_in took it from the key itself; no file: a default.
    if (place->file && place->line == 0) continue;
    int setting = giver(config, row, slot, l->arg, whole);
    BRIM_TRY(follow(config, brim_config_row_find(l->key), arg, place->file != NULL, setting));
  }
  return BRIM_OK;
}

// training.precision and training.use_amp.
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
    static const link pair = {NULL, NULL, "training.precision", false};
    BRIM_TRY(both(config, &pair, b, a, &amp_wins));
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

//----------------------------------------- grid points -----------------------------------------

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
  brim_config_node **at = &copy->first;
  for (const brim_config_node *n = node->first; n; n = n->next) {
    const brim_config_node *child;
    BRIM_TRY(expand(r, n, &child));
    brim_config_node *own = brim_arena_calloc(r->config->arena, 1, sizeof *own);
    if (!own) return no_memory();
    *own = *child;
    own->next = NULL;
    *at = own;
    at = &own->next;
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
    BRIM_TRY(component_names(info->category, drafts.items[i]));
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
  BRIM_TRY(link_precision(r->config));
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
