// Components held against the catalogue: known names, known arguments, their kinds and bounds;
// then the defaults filled in. Every message has the place of the argument.
#include <math.h>
#include <string.h>

#include "config/config_int.h"

#define AT(p) (p).file, (p).line, (p).col

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

static brim_status check_bounds(const brim_config_component_row *row, const brim_config_arg *arg,
                                double number, brim_config_place at) {
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
static bool to_int(brim_value *v) {
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
    if (arg->type == BRIM_CONFIG_ARG_SIZE && !to_int(&item)) return wrong_kind(row, arg, &item, at);
    if (arg->type == BRIM_CONFIG_ARG_NUMBERS && !is_number(&item)) {
      return wrong_kind(row, arg, &item, at);
    }
    if (is_number(&item)) BRIM_TRY(check_bounds(row, arg, item.number, at));
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
      if (!to_int(v)) return wrong_kind(row, arg, v, at);
      return check_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_FLOAT:
      if (!is_number(v)) return wrong_kind(row, arg, v, at);
      v->kind = BRIM_VALUE_FLOAT;
      return check_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_BOOL:
      if (v->kind == BRIM_VALUE_STRING && brim_parse_bool(v->string, &flag)) {
        *v = (brim_value){.kind = BRIM_VALUE_BOOL, .boolean = flag, .string = v->string};
      }
      return v->kind == BRIM_VALUE_BOOL ? BRIM_OK : wrong_kind(row, arg, v, at);
    case BRIM_CONFIG_ARG_SIZE:
      if (v->kind == BRIM_VALUE_LIST) return check_list(row, arg, v, at);
      if (!to_int(v)) return wrong_kind(row, arg, v, at);
      return check_bounds(row, arg, v->number, at);
    case BRIM_CONFIG_ARG_NUMBERS:
      if (v->kind == BRIM_VALUE_LIST) return check_list(row, arg, v, at);
      if (!is_number(v)) return wrong_kind(row, arg, v, at);
      return check_bounds(row, arg, v->number, at);
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

brim_status brim_config_component_names(const char *category, brim_config_draft *draft) {
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
  BRIM_TRY(brim_config_component_names(category, draft));
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
