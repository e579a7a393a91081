// A node into a typed value, by the row of the key table. Components are config_resolve.c's.
#include <math.h>
#include <string.h>

#include "config/config_int.h"

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
