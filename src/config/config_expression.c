// Component expressions: `name`, `name(k=v, ...)`, pipelines `a(k=v) | b`, and their values:
// numbers, words, quoted strings, [lists], (tuples) and nested components. Text to drafts and back;
// whether a name or an argument exists is config_resolve.c's business.
#include <math.h>
#include <string.h>

#include "config/config_int.h"

typedef struct reader {
  brim_arena *arena;
  const char *text, *p;
  brim_config_place at;
  int depth;
} reader;

static brim_status value(reader *r, brim_value *out);

// The column counts characters; a scalar over several lines keeps the place of its beginning.
static brim_config_place here(const reader *r, const char *p) {
  brim_config_place at = r->at;
  int chars = 0;
  for (const char *q = r->text; q < p; q++) {
    if (*q == '\n') return r->at;
    if (((unsigned char)*q & 0xC0) != 0x80) chars++;
  }
  if (at.col > 0) at.col += chars;
  return at;
}

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
}

static brim_status unexpected(const reader *r, const char *wanted) {
  wanted = brim_tr(wanted);
  brim_config_place at = here(r, r->p);
  if (!*r->p) {
    return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col, "the expression ends; expected %s",
                        wanted);
  }
  return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col, "expected %s before '%.20s'", wanted,
                      r->p);
}

static void skip_space(reader *r) { r->p += strspn(r->p, " \t\r\n"); }

static bool take(reader *r, char c) {
  skip_space(r);
  if (*r->p != c) return false;
  r->p++;
  return true;
}

static bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static size_t name_length(const char *p) {
  if (!is_name_start(*p)) return 0;
  return strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-");
}

bool brim_config_is_name(const char *text) {
  size_t length = name_length(text);
  return length > 0 && length <= 128 && !text[length];
}

static brim_status quoted(reader *r, brim_value *out) {
  const char *start = r->p;
  char quote = *start;
  const char *end = start + 1;
  while (*end && *end != quote) end += *end == '\\' && end[1] ? 2 : 1;
  if (!*end) return unexpected(r, BRIM_N_("a closing quote"));
  char *text = brim_arena_alloc(r->arena, (size_t)(end - start), 1);
  if (!text) return no_memory();
  size_t n = 0;
  for (r->p = start + 1; r->p < end; r->p++) {
    if (*r->p == '\\') r->p++;
    text[n++] = *r->p;
  }
  r->p = end + 1;
  text[n] = 0;
  *out = (brim_value){.kind = BRIM_VALUE_STRING, .string = text};
  return BRIM_OK;
}

// The rest of "(a, b)" or "[a, b]" after its opening bracket.
static brim_status sequence(reader *r, char close, brim_value *out) {
  brim_value *items = NULL;
  size_t count = 0, cap = 0;
  bool comma = false;
  while (!take(r, close)) {
    if (count && !comma)
      return unexpected(r, close == ')' ? BRIM_N_("',' or ')'") : BRIM_N_("',' or ']'"));
    if (count >= BRIM_CONFIG_MAX_ITEMS) {
      brim_config_place at = here(r, r->p);
      return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col, "a list has more than %d items",
                          BRIM_CONFIG_MAX_ITEMS);
    }
    BRIM_TRY(brim_config_grow(r->arena, &items, sizeof *items, count, &cap));
    BRIM_TRY(value(r, &items[count]));
    count++;
    comma = take(r, ',');
  }
  if (close == ')' && count == 1 && !comma) {  // plain parentheses, as in Python
    *out = items[0];
    return BRIM_OK;
  }
  *out =
      (brim_value){.kind = BRIM_VALUE_LIST, .tuple = close == ')', .items = items, .count = count};
  return BRIM_OK;
}

brim_config_draft *brim_config_draft_create(brim_arena *arena, const char *name,
                                            brim_config_place at) {
  brim_config_draft *draft = brim_arena_calloc(arena, 1, sizeof *draft);
  if (!draft) return NULL;
  draft->c.name = name;
  draft->c.file = at.file;
  draft->c.line = at.line;
  draft->c.col = at.col;
  return draft;
}

brim_status brim_config_draft_set(brim_arena *arena, brim_config_draft *draft, const char *name,
                                  brim_value v, brim_config_place at) {
  for (size_t i = 0; i < draft->c.arg_count; i++) {
    if (!strcmp(draft->args[i].name, name)) {
      draft->args[i].value = v;
      draft->places[i] = at;
      return BRIM_OK;
    }
  }
  if (draft->c.arg_count >= BRIM_CONFIG_MAX_ARGS) {
    return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col,
                        "a component has more than %d arguments", BRIM_CONFIG_MAX_ARGS);
  }
  size_t cap = draft->cap;
  BRIM_TRY(brim_config_grow(arena, &draft->args, sizeof *draft->args, draft->c.arg_count, &cap));
  cap = draft->cap;
  BRIM_TRY(
      brim_config_grow(arena, &draft->places, sizeof *draft->places, draft->c.arg_count, &cap));
  draft->cap = cap;
  draft->args[draft->c.arg_count] = (brim_argument){name, v};
  draft->places[draft->c.arg_count++] = at;
  draft->c.args = draft->args;
  return BRIM_OK;
}

static brim_status arguments(reader *r, brim_config_draft *draft) {
  bool comma = true;
  while (!take(r, ')')) {
    if (!comma) return unexpected(r, BRIM_N_("',' or ')'"));
    skip_space(r);
    const char *start = r->p;
    size_t length = name_length(r->p);
    r->p += length;
    if (!length || !take(r, '=')) {
      r->p = start;
      return unexpected(r, BRIM_N_("an argument written name=value"));
    }
    char *name = brim_arena_strndup(r->arena, start, length);
    if (!name) return no_memory();
    brim_config_place at = here(r, start);
    if (brim_component_arg(&draft->c, name)) {
      return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col, "the argument '%.80s' is repeated",
                          name);
    }
    brim_value v;
    BRIM_TRY(value(r, &v));
    BRIM_TRY(brim_config_draft_set(r->arena, draft, name, v, at));
    comma = take(r, ',');
  }
  return BRIM_OK;
}

static brim_status component(reader *r, brim_config_draft **out) {
  skip_space(r);
  size_t length = name_length(r->p);
  if (!length) return unexpected(r, BRIM_N_("a component's name"));
  brim_config_place at = here(r, r->p);
  char *name = brim_arena_strndup(r->arena, r->p, length);
  *out = name ? brim_config_draft_create(r->arena, name, at) : NULL;
  if (!*out) return no_memory();
  r->p += length;
  return take(r, '(') ? arguments(r, *out) : BRIM_OK;
}

static brim_status word(reader *r, brim_value *out) {
  size_t length = strcspn(r->p, ",()[]|=\"' \t\r\n");
  if (!length) return unexpected(r, BRIM_N_("a value"));
  const char *start = r->p;
  r->p += length;
  skip_space(r);
  if (*r->p == '(' && name_length(start) == length) {
    r->p = start;
    brim_config_draft *draft;
    BRIM_TRY(component(r, &draft));
    *out = (brim_value){.kind = BRIM_VALUE_COMPONENT, .component = &draft->c};
    return BRIM_OK;
  }
  char *text = brim_arena_strndup(r->arena, start, length);
  if (!text) return no_memory();
  brim_config_word(text, out);
  return BRIM_OK;
}

static brim_status value(reader *r, brim_value *out) {
  skip_space(r);
  if (r->depth >= BRIM_CONFIG_MAX_DEPTH) {
    brim_config_place at = here(r, r->p);
    return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col, "nested deeper than %d levels",
                        BRIM_CONFIG_MAX_DEPTH);
  }
  r->depth++;
  brim_status status;
  if (*r->p == '"' || *r->p == '\'') {
    status = quoted(r, out);
  } else if (take(r, '[')) {
    status = sequence(r, ']', out);
  } else if (take(r, '(')) {
    status = sequence(r, ')', out);
  } else {
    status = word(r, out);
  }
  r->depth--;
  return status;
}

static brim_status begin(reader *r, brim_arena *arena, const char *text, brim_config_place at) {
  *r = (reader){.arena = arena, .text = text, .p = text, .at = at};
  if (strlen(text) > BRIM_CONFIG_MAX_EXPRESSION) {
    return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col,
                        "an expression is longer than %d bytes", BRIM_CONFIG_MAX_EXPRESSION);
  }
  return BRIM_OK;
}

brim_status brim_config_expression_parse(brim_arena *arena, const char *text, brim_config_place at,
                                         brim_config_drafts *out) {
  reader r;
  BRIM_TRY(begin(&r, arena, text, at));
  *out = (brim_config_drafts){0};
  for (bool more = true; more;) {
    skip_space(&r);
    if (!strncmp(r.p, "...", 3)) {
      r.p += 3;
      out->tail = true;
      break;
    }
    if (out->count >= BRIM_CONFIG_MAX_STAGES) {
      brim_config_place stage = here(&r, r.p);
      return brim_fail_at(BRIM_ELIMIT, stage.file, stage.line, stage.col,
                          "a pipeline has more than %d stages", BRIM_CONFIG_MAX_STAGES);
    }
    BRIM_TRY(brim_config_grow(arena, &out->items, sizeof *out->items, out->count, &out->cap));
    BRIM_TRY(component(&r, &out->items[out->count]));
    out->count++;
    more = take(&r, '|');
  }
  skip_space(&r);
  if (*r.p) return unexpected(&r, out->tail ? "nothing after '...'" : "'|' or the end");
  return BRIM_OK;
}

brim_status brim_config_expression_value(brim_arena *arena, const char *text, brim_config_place at,
                                         brim_value *out) {
  reader r;
  BRIM_TRY(begin(&r, arena, text, at));
  BRIM_TRY(value(&r, out));
  skip_space(&r);
  return *r.p ? unexpected(&r, "the end of the value") : BRIM_OK;
}

brim_status brim_config_parse_expression(brim_arena *arena, const char *text, const char *name,
                                         brim_pipeline *out) {
  char *file = brim_arena_strdup(arena, name);
  if (!file) return no_memory();
  brim_config_drafts drafts;
  BRIM_TRY(brim_config_expression_parse(arena, text, (brim_config_place){file, 1, 1}, &drafts));
  brim_component *items = brim_arena_calloc(arena, drafts.count + 1, sizeof *items);
  if (!items) return no_memory();
  for (size_t i = 0; i < drafts.count; i++) items[i] = drafts.items[i]->c;
  *out = (brim_pipeline){.items = items, .count = drafts.count, .tail = drafts.tail};
  return BRIM_OK;
}

// ---- printing ---------------------------------------------------------------------------------

// A string needs quotes when it would read back as something else.
static void print_string(brim_str *out, const char *text) {
  brim_value v;
  brim_config_word(text, &v);
  if (v.kind == BRIM_VALUE_STRING && !text[strcspn(text, ",()[]|=\"' \t\r\n\\")]) {
    brim_str_append(out, text);
    return;
  }
  brim_str_append_char(out, '"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') brim_str_append_char(out, '\\');
    brim_str_append_char(out, *text);
  }
  brim_str_append_char(out, '"');
}

void brim_config_value_print(brim_str *out, const brim_value *v) {
  char number[32];
  switch (v->kind) {
    case BRIM_VALUE_BOOL:
      brim_str_append(out, v->boolean ? "true" : "false");
      break;
    case BRIM_VALUE_INT:
      brim_str_printf(out, "%lld", (long long)v->integer);
      break;
    case BRIM_VALUE_FLOAT:
      if (isfinite(v->number)) {
        brim_format_f64(v->number == 0 ? 0 : v->number, number);  // no -0
        brim_str_append(out, number);
      } else {
        brim_str_append(out, isnan(v->number) ? ".nan" : v->number < 0 ? "-.inf" : ".inf");
      }
      break;
    case BRIM_VALUE_STRING:
      print_string(out, v->string);
      break;
    case BRIM_VALUE_LIST:
      brim_str_append_char(out, v->tuple ? '(' : '[');
      for (size_t i = 0; i < v->count; i++) {
        if (i) brim_str_append(out, ", ");
        brim_config_value_print(out, &v->items[i]);
      }
      if (v->tuple && v->count == 1) brim_str_append_char(out, ',');
      brim_str_append_char(out, v->tuple ? ')' : ']');
      break;
    case BRIM_VALUE_COMPONENT:
      brim_config_component_print(out, v->component);
      if (!v->component->arg_count) brim_str_append(out, "()");  // else it is a word
      break;
    default:
      brim_str_append(out, "null");
      break;
  }
}

void brim_config_component_print(brim_str *out, const brim_component *c) {
  brim_str_append(out, c->name);
  if (!c->arg_count) return;
  brim_str_append_char(out, '(');
  for (size_t i = 0; i < c->arg_count; i++) {
    brim_str_printf(out, "%s%s=", i ? ", " : "", c->args[i].name);
    brim_config_value_print(out, &c->args[i].value);
  }
  brim_str_append_char(out, ')');
}

void brim_config_pipeline_print(brim_str *out, const brim_pipeline *pipeline) {
  for (size_t i = 0; i < pipeline->count; i++) {
    if (i) brim_str_append(out, " | ");
    brim_config_component_print(out, &pipeline->items[i]);
  }
  if (pipeline->tail) brim_str_append(out, pipeline->count ? " | ..." : "...");
}
