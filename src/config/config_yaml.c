// YAML text to a tree of nodes with file, line and column, in an arena. Limits on depth, nodes and aliases
// are enforced while reading, so hostile input stays cheap. This file knows YAML, not the keys of brim.

#include "config/config_int.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>
#include <yaml.h>

// ---- scalars -----------------------------------------------------------------------------------
// The YAML 1.2 core schema: `1e-4` is a number, 0o17 is octal, `yes` is a string (config_resolve.c accepts
// it for keys of type bool).

static bool any_of(const char *text, const char *const *words) {
  for (; *words; words++) {
    if (!strcmp(text, *words)) return true;
  }
  return false;
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// [-+]?[0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+; false if the value does not fit 64 bits.
static bool core_int(const char *text, int64_t *out) {
  bool negative = false;
  int base = 10;
  if (text[0] == '0' && (text[1] == 'o' || text[1] == 'x')) {
    base = text[1] == 'o' ? 8 : 16;
    text += 2;
  } else if (*text == '-' || *text == '+') {
    negative = *text++ == '-';
  }
  if (!*text) return false;
  uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
  uint64_t value = 0;
  for (; *text; text++) {
    int digit = digit_of(*text);
    if (digit >= base) return false;
    if (value > (limit - (uint64_t)digit) / (uint64_t)base) return false;
    value = value * (uint64_t)base + (uint64_t)digit;
  }
  *out = negative ? (int64_t)(0 - value) : (int64_t)value;
  return true;
}

// [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)? and the infinities and NaN.
static bool core_float(const char *text, double *out) {
  static const char *const specials[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf",
                                         "+.INF", "-.inf", "-.Inf", "-.INF", ".nan",
                                         ".NaN",  ".NAN",  NULL};
  if (!any_of(text, specials)) {
    const char *p = text + (*text == '-' || *text == '+');
    size_t before = strspn(p, "0123456789");
    p += before;
    size_t after = 0;
    if (*p == '.') {
      after = strspn(++p, "0123456789");
      p += after;
    }
    if (before + after == 0) return false;
    if (*p == 'e' || *p == 'E') {
      p++;
      if (*p == '-' || *p == '+') p++;
      size_t exponent = strspn(p, "0123456789");
      if (!exponent) return false;
      p += exponent;
    }
    if (*p) return false;
  }
  return brim_parse_f64(text, out);
}

void brim_config_word(const char *text, brim_value *out) {
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
  static const char *const trues[] = {"true", "True", "TRUE", NULL};
  static const char *const falses[] = {"false", "False", "FALSE", NULL};
  *out = (brim_value){.kind = BRIM_VALUE_STRING, .string = text};
  if (any_of(text, nulls)) {
    out->kind = BRIM_VALUE_NULL;
  } else if (any_of(text, trues) || any_of(text, falses)) {
    out->kind = BRIM_VALUE_BOOL;
    out->boolean = any_of(text, trues);
  } else if (core_int(text, &out->integer)) {
    out->kind = BRIM_VALUE_INT;
    out->number = (double)out->integer;
  } else if (core_float(text, &out->number)) {
    out->kind = BRIM_VALUE_FLOAT;
  }
}

brim_status brim_config_scalar(const brim_config_node *node, brim_value *out) {
  *out = (brim_value){.kind = BRIM_VALUE_STRING, .string = node->text};
  if (node->tag == BRIM_CONFIG_TAG_STR) return BRIM_OK;
  if (node->tag == BRIM_CONFIG_TAG_NONE) {
    if (node->plain) brim_config_word(node->text, out);
    return BRIM_OK;
  }
  static const brim_value_kind wanted[BRIM_CONFIG_TAG_COUNT] = {
      [BRIM_CONFIG_TAG_INT] = BRIM_VALUE_INT,
      [BRIM_CONFIG_TAG_FLOAT] = BRIM_VALUE_FLOAT,
      [BRIM_CONFIG_TAG_BOOL] = BRIM_VALUE_BOOL,
      [BRIM_CONFIG_TAG_NULL] = BRIM_VALUE_NULL,
  };
  brim_config_word(node->text, out);
  if (node->tag == BRIM_CONFIG_TAG_FLOAT && out->kind == BRIM_VALUE_INT) {
    out->kind = BRIM_VALUE_FLOAT;
  }
  if (out->kind != wanted[node->tag]) {
    return brim_fail_at(BRIM_EPARSE, node->at.file, node->at.line, node->at.col,
                        "'%.80s' does not match its tag", node->text);
  }
  return BRIM_OK;
}

// ---- documents ---------------------------------------------------------------------------------

typedef struct frame {
  brim_config_node *node, *tail;
  const char *anchor;
  const char *key;  // pending key of a map
  brim_config_place key_at;
} frame;

typedef struct anchor {
  const char *name;
  brim_config_node *node;
} anchor;

typedef struct builder {
  brim_config_context *context;
  const char *file;
  frame stack[BRIM_CONFIG_MAX_DEPTH + 1];
  int depth;
  brim_config_node *root;
  anchor *anchors;
  size_t anchor_count, anchor_cap;
  size_t alias_count;
  size_t total;  // nodes, with aliases expanded
  int documents;
} builder;

brim_status brim_config_no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while reading a config");
}

brim_status brim_config_grow(brim_arena *arena, void *array, size_t element, size_t count,
                             size_t *cap) {
  if (count < *cap) return BRIM_OK;
  size_t bigger = *cap ? *cap * 2 : 8;
  void *fresh = brim_arena_calloc(arena, bigger, element);
  if (!fresh) return brim_config_no_memory();
  void *old;
  memcpy(&old, array, sizeof old);
  if (count) memcpy(fresh, old, count * element);
  memcpy(array, &fresh, sizeof fresh);
  *cap = bigger;
  return BRIM_OK;
}

static brim_status keep(brim_config_context *context, brim_config_warnings *w, const char *text) {
  for (size_t i = 0; i < w->count; i++) {
    if (!strcmp(w->items[i], text)) return BRIM_OK;  // report each warning once
  }
  BRIM_TRY(brim_config_grow(context->arena, &w->items, sizeof *w->items, w->count, &w->cap));
  w->items[w->count] = brim_arena_strdup(context->arena, text);
  if (!w->items[w->count]) return brim_config_no_memory();
  w->count++;
  return BRIM_OK;
}

brim_status brim_config_warn(brim_config_context *context, brim_config_place at, const char *format,
                             ...) {
  brim_str text;
  va_list args;
  brim_str_init(&text);
  if (at.file) brim_str_append(&text, at.file);
  if (at.line) brim_str_printf(&text, ":%d:%d", at.line, at.col);
  if (at.file) brim_str_append(&text, ": ");
  va_start(args, format);
  brim_str_vprintf(&text, format, args);
  va_end(args);
  brim_status status = brim_str_status(&text);
  if (!status) status = keep(context, &context->warnings, text.data);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_config_mistake(brim_config_context *context, brim_status status) {
  if (status != BRIM_EINVAL || !context->all_mistakes) return status;
  BRIM_TRY(keep(context, &context->mistakes, brim_status_detail()));
  brim_status_clear();
  return BRIM_OK;
}

brim_status brim_config_repeated(brim_config_context *context, const char *key,
                                 brim_config_place first, brim_config_place second) {
  if (context->mode == BRIM_CONFIG_EDIT) {
    return brim_fail_at(BRIM_EINVAL, second.file, second.line, second.col,
                        "'%s' is given twice: on line %d and on line %d; keep one of them", key,
                        first.line, second.line);
  }
  return brim_config_warn(
      context, second,
      brim_tr("'%s' is given twice: on line %d and on line %d; the later one wins"), key,
      first.line, second.line);
}

brim_status brim_config_warn_tail(brim_config_context *context, const char *key,
                                  brim_config_place at) {
  return brim_config_warn(
      context, at, brim_tr("'%s' ends in '...': brim adds no stage to those that are written"),
      key);
}

const brim_config_node *brim_config_node_get(const brim_config_node *map, const char *key) {
  if (!map || map->kind != BRIM_CONFIG_NODE_MAP) return NULL;
  for (const brim_config_node *n = map->first; n; n = n->next) {
    if (!strcmp(n->key, key)) return n;
  }
  return NULL;
}

brim_config_node *brim_config_node_plain(brim_arena *arena, const char *text,
                                         brim_config_place at) {
  brim_config_node *node = brim_arena_calloc(arena, 1, sizeof *node);
  char *copy = brim_arena_strdup(arena, text);
  if (!node || !copy) return NULL;
  node->kind = BRIM_CONFIG_NODE_SCALAR;
  node->plain = true;
  node->text = copy;
  node->at = at;
  node->weight = 1;
  node->height = 1;
  return node;
}

static brim_config_place place_of(const builder *b, yaml_mark_t mark) {
  return (brim_config_place){b->file, (int)mark.line + 1, (int)mark.column + 1};
}

static brim_status too_many(brim_config_place at) {
  return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col,
                      "the file has more than %d values with its aliases expanded",
                      BRIM_CONFIG_MAX_NODES);
}

static brim_status tag_of(const char *text, brim_config_place at, brim_config_tag *out) {
  static const struct {
    const char *text;
    brim_config_tag tag;
  } known[] = {
      {"tag:yaml.org,2002:str", BRIM_CONFIG_TAG_STR},
      {"tag:yaml.org,2002:int", BRIM_CONFIG_TAG_INT},
      {"tag:yaml.org,2002:float", BRIM_CONFIG_TAG_FLOAT},
      {"tag:yaml.org,2002:bool", BRIM_CONFIG_TAG_BOOL},
      {"tag:yaml.org,2002:null", BRIM_CONFIG_TAG_NULL},
      {"tag:yaml.org,2002:seq", BRIM_CONFIG_TAG_NONE},
      {"tag:yaml.org,2002:map", BRIM_CONFIG_TAG_NONE},
      {"!", BRIM_CONFIG_TAG_STR},
      {"!list", BRIM_CONFIG_TAG_LIST},
  };
  *out = BRIM_CONFIG_TAG_NONE;
  if (!text) return BRIM_OK;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (!strcmp(text, known[i].text)) {
      *out = known[i].tag;
      return BRIM_OK;
    }
  }
  return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col,
                      "the tag '%.80s' is not supported; use !!str, !!int, !!float, !!bool, !!null "
                      "or !list",
                      text);
}

static brim_status new_node(builder *b, brim_config_node_kind kind, const char *tag,
                            yaml_mark_t mark, brim_config_node **out) {
  brim_config_place at = place_of(b, mark);
  if (++b->total > BRIM_CONFIG_MAX_NODES) return too_many(at);
  brim_config_node *node = brim_arena_calloc(b->context->arena, 1, sizeof *node);
  if (!node) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", b->file);
  node->kind = kind;
  node->at = at;
  node->weight = 1;
  node->height = 1;
  BRIM_TRY(tag_of(tag, at, &node->tag));
  bool list_tag = node->tag == BRIM_CONFIG_TAG_LIST;
  bool scalar_tag = node->tag != BRIM_CONFIG_TAG_NONE && !list_tag;
  if ((kind == BRIM_CONFIG_NODE_SCALAR && list_tag) ||
      (kind == BRIM_CONFIG_NODE_LIST && scalar_tag) ||
      (kind == BRIM_CONFIG_NODE_MAP && (list_tag || scalar_tag))) {
    return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col,
                        "this tag does not fit this kind of value");
  }
  *out = node;
  return BRIM_OK;
}

// Puts a finished scalar, or a container that has just begun, under the open container.
static brim_status attach(builder *b, brim_config_node *node) {
  if (b->depth == 0) {
    b->root = node;
    return BRIM_OK;
  }
  frame *top = &b->stack[b->depth - 1];
  if (top->node->kind == BRIM_CONFIG_NODE_MAP && !top->key) {
    if (node->kind != BRIM_CONFIG_NODE_SCALAR) {
      return brim_fail_at(BRIM_EPARSE, node->at.file, node->at.line, node->at.col,
                          "a key must be a word, not a list or a map (a placeholder is written in "
                          "quotes: \"{{key}}\")");
    }
    if (!node->text[0]) {
      return brim_fail_at(BRIM_EPARSE, node->at.file, node->at.line, node->at.col,
                          "a key is empty");
    }
    top->key = node->text;
    top->key_at = node->at;
    return BRIM_OK;
  }
  if (top->node->kind == BRIM_CONFIG_NODE_MAP) {
    if (top->node->count >= BRIM_CONFIG_MAX_MAP_KEYS) {
      return brim_fail_at(BRIM_ELIMIT, node->at.file, node->at.line, node->at.col,
                          "a map has more than %d keys", BRIM_CONFIG_MAX_MAP_KEYS);
    }
    node->key = top->key;
    node->key_at = top->key_at;
    top->key = NULL;
  }
  if (top->tail) {
    top->tail->next = node;
  } else {
    top->node->first = node;
  }
  top->tail = node;
  top->node->count++;
  return BRIM_OK;
}

static brim_status add_anchor(builder *b, const char *name, brim_config_node *node) {
  if (!name) return BRIM_OK;
  if (b->anchor_count >= BRIM_CONFIG_MAX_ALIASES) {
    return brim_fail_at(BRIM_ELIMIT, node->at.file, node->at.line, node->at.col,
                        "more than %d anchors", BRIM_CONFIG_MAX_ALIASES);
  }
  BRIM_TRY(brim_config_grow(b->context->arena, &b->anchors, sizeof *b->anchors, b->anchor_count,
                            &b->anchor_cap));
  b->anchors[b->anchor_count++] = (anchor){name, node};
  return BRIM_OK;
}

// Adds a complete child to the weight and height of its parent.
static void account(builder *b, const brim_config_node *child) {
  if (b->depth == 0) return;
  frame *top = &b->stack[b->depth - 1];
  if (top->tail != child) return;  // the child was a key
  top->node->weight += child->weight;
  if (top->node->height < child->height + 1) top->node->height = child->height + 1;
}

static brim_status on_scalar(builder *b, const yaml_event_t *event) {
  brim_config_node *node;
  BRIM_TRY(new_node(b, BRIM_CONFIG_NODE_SCALAR, (const char *)event->data.scalar.tag,
                    event->start_mark, &node));
  const char *value = (const char *)event->data.scalar.value;
  size_t length = event->data.scalar.length;
  if (memchr(value, 0, length)) {
    return brim_fail_at(BRIM_EPARSE, node->at.file, node->at.line, node->at.col,
                        "a NUL character is not allowed in a value");
  }
  node->text = brim_arena_strndup(b->context->arena, value, length);
  const char *name = NULL;
  if (event->data.scalar.anchor) {
    name = brim_arena_strdup(b->context->arena, (const char *)event->data.scalar.anchor);
    if (!name) node->text = NULL;
  }
  if (!node->text) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", b->file);
  node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  BRIM_TRY(add_anchor(b, name, node));
  BRIM_TRY(attach(b, node));
  account(b, node);
  return BRIM_OK;
}

static brim_status on_alias(builder *b, const yaml_event_t *event) {
  brim_config_place at = place_of(b, event->start_mark);
  const char *name = (const char *)event->data.alias.anchor;
  if (++b->alias_count > BRIM_CONFIG_MAX_ALIASES) {
    return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col, "more than %d aliases",
                        BRIM_CONFIG_MAX_ALIASES);
  }
  const brim_config_node *target = NULL;
  for (size_t i = b->anchor_count; i-- > 0 && !target;) {
    if (!strcmp(b->anchors[i].name, name)) target = b->anchors[i].node;
  }
  if (!target) {
    return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col,
                        "the alias *%.80s has no finished anchor &%.80s before it", name, name);
  }
  b->total += target->weight;
  if (b->total > BRIM_CONFIG_MAX_NODES) return too_many(at);
  if (b->depth + target->height > BRIM_CONFIG_MAX_DEPTH) {
    return brim_fail_at(BRIM_ELIMIT, at.file, at.line, at.col, "nested deeper than %d levels",
                        BRIM_CONFIG_MAX_DEPTH);
  }
  // The children are shared: nodes never change once they are complete.
  brim_config_node *node = brim_arena_calloc(b->context->arena, 1, sizeof *node);
  if (!node) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", b->file);
  *node = *target;
  node->key = NULL;
  node->next = NULL;
  BRIM_TRY(attach(b, node));
  account(b, node);
  return BRIM_OK;
}

static brim_status on_start(builder *b, brim_config_node_kind kind, const char *tag,
                            const char *anchor_name, yaml_mark_t mark) {
  brim_config_node *node;
  BRIM_TRY(new_node(b, kind, tag, mark, &node));
  if (b->depth >= BRIM_CONFIG_MAX_DEPTH) {
    return brim_fail_at(BRIM_ELIMIT, node->at.file, node->at.line, node->at.col,
                        "nested deeper than %d levels", BRIM_CONFIG_MAX_DEPTH);
  }
  BRIM_TRY(attach(b, node));
  frame *top = &b->stack[b->depth++];
  *top = (frame){.node = node};
  if (anchor_name) {
    top->anchor = brim_arena_strdup(b->context->arena, anchor_name);
    if (!top->anchor) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", b->file);
  }
  return BRIM_OK;
}

// Removes the earlier of two equal keys; in EDIT mode they are an error.
static brim_status drop_repeats(builder *b, brim_config_node *map) {
  for (brim_config_node **link = &map->first; *link;) {
    const brim_config_node *later = (*link)->next;
    while (later && strcmp(later->key, (*link)->key)) later = later->next;
    if (!later) {
      link = &(*link)->next;
      continue;
    }
    BRIM_TRY(brim_config_repeated(b->context, later->key, (*link)->key_at, later->key_at));
    *link = (*link)->next;
    map->count--;
  }
  return BRIM_OK;
}

// Inserts the entries of `from` that the map lacks before **where, in their order.
static brim_status merge_from(builder *b, brim_config_node *map, brim_config_node ***where,
                              const brim_config_node *from) {
  if (from->kind != BRIM_CONFIG_NODE_MAP) {
    return brim_fail_at(BRIM_EPARSE, from->at.file, from->at.line, from->at.col,
                        "the merge key << takes a map or a list of maps");
  }
  for (const brim_config_node *n = from->first; n; n = n->next) {
    if (brim_config_node_get(map, n->key)) continue;
    b->total += n->weight;
    if (b->total > BRIM_CONFIG_MAX_NODES || map->count >= BRIM_CONFIG_MAX_MAP_KEYS) {
      return too_many(map->at);
    }
    brim_config_node *copy = brim_arena_calloc(b->context->arena, 1, sizeof *copy);
    if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", b->file);
    *copy = *n;
    copy->next = **where;
    **where = copy;
    *where = &copy->next;
    map->count++;
    map->weight += n->weight;
    if (map->height < n->height + 1) map->height = n->height + 1;
  }
  return BRIM_OK;
}

static brim_status apply_merge(builder *b, brim_config_node *map) {
  brim_config_node **link = &map->first;
  while (*link && strcmp((*link)->key, "<<")) link = &(*link)->next;
  brim_config_node *merge = *link;
  if (!merge) return BRIM_OK;
  *link = merge->next;
  map->count--;
  if (merge->kind != BRIM_CONFIG_NODE_LIST) return merge_from(b, map, &link, merge);
  for (const brim_config_node *n = merge->first; n; n = n->next) {
    BRIM_TRY(merge_from(b, map, &link, n));
  }
  return BRIM_OK;
}

static brim_status on_end(builder *b) {
  frame *top = &b->stack[b->depth - 1];
  brim_config_node *node = top->node;
  if (node->kind == BRIM_CONFIG_NODE_MAP) {
    BRIM_TRY(drop_repeats(b, node));
    BRIM_TRY(apply_merge(b, node));
  }
  const char *name = top->anchor;
  b->depth--;
  BRIM_TRY(add_anchor(b, name, node));
  account(b, node);
  return BRIM_OK;
}

static brim_status on_event(builder *b, const yaml_event_t *event) {
  switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
      if (b->documents++ > 0) {
        brim_config_place at = place_of(b, event->start_mark);
        return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col,
                            "a second document begins here; a config is one document");
      }
      return BRIM_OK;
    case YAML_SCALAR_EVENT:
      return on_scalar(b, event);
    case YAML_ALIAS_EVENT:
      return on_alias(b, event);
    case YAML_SEQUENCE_START_EVENT:
      return on_start(b, BRIM_CONFIG_NODE_LIST, (const char *)event->data.sequence_start.tag,
                      (const char *)event->data.sequence_start.anchor, event->start_mark);
    case YAML_MAPPING_START_EVENT:
      return on_start(b, BRIM_CONFIG_NODE_MAP, (const char *)event->data.mapping_start.tag,
                      (const char *)event->data.mapping_start.anchor, event->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
      return on_end(b);
    default:
      return BRIM_OK;
  }
}

// The byte at which character number `index` starts (libyaml counts characters); '\0' behind the end.
static char char_at(const char *text, size_t size, size_t index) {
  for (size_t i = 0; i < size; i++) {
    if (((unsigned char)text[i] & 0xC0) == 0x80) continue;
    if (index-- == 0) return text[i];
  }
  return '\0';
}

// libyaml's reader errors carry only an offset; its other errors carry a line and a column.
static brim_status parser_error(const builder *b, const yaml_parser_t *parser, const char *text,
                                size_t size) {
  if (parser->error == YAML_MEMORY_ERROR) {
    return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", b->file);
  }
  brim_config_place at = place_of(b, parser->problem_mark);
  if (parser->error == YAML_READER_ERROR) {
    at.line = at.col = 1;
    for (size_t i = 0; i < parser->problem_offset && i < size; i++) {
      at.col = text[i] == '\n' ? 1 : at.col + 1;
      if (text[i] == '\n') at.line++;
    }
  }
  const char *problem = parser->problem ? parser->problem : "malformed";
  // libyaml reports a character that cannot start a token. A tab is invisible, so name it.
  if (parser->error == YAML_SCANNER_ERROR &&
      (char_at(text, size, parser->problem_mark.index) == '\t' || strstr(problem, "tab char"))) {
    return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col,
                        "a tab cannot indent YAML; use spaces");
  }
  if (parser->context) {
    return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col, "not valid YAML: %s %s", problem,
                        parser->context);
  }
  return brim_fail_at(BRIM_EPARSE, at.file, at.line, at.col, "not valid YAML: %s", problem);
}

static brim_status parse(brim_config_context *context, const char *text, size_t size,
                         const char *name, brim_config_node **root) {
  if (size > BRIM_CONFIG_MAX_BYTES) {
    return brim_fail_at(BRIM_ELIMIT, name, 1, 1, "larger than %d bytes", BRIM_CONFIG_MAX_BYTES);
  }
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser)) {
    return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", name);
  }
  // Skip the byte order mark: libyaml counts it as a column, so the second line would stand left of the first.
  size_t mark = brim_config_mark_size(text, size);
  text += mark;
  size -= mark;
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  builder b = {.context = context, .file = name};
  brim_status status = BRIM_OK;
  for (bool more = true; more && !status;) {
    yaml_event_t event;
    if (!yaml_parser_parse(&parser, &event)) {
      status = parser_error(&b, &parser, text, size);
      break;
    }
    more = event.type != YAML_STREAM_END_EVENT;
    status = on_event(&b, &event);
    yaml_event_delete(&event);
  }
  yaml_parser_delete(&parser);
  *root = status ? NULL : b.root;
  return status;
}

// Number of bytes before the brace of a dict pasted from Python, `NAME = {...}`; the parser reads them as blanks.
// 0 if the text is no such dict. Comments and empty lines may come before the name.
static size_t dict_name_size(const char *text, size_t size) {
  size_t at = 0;
  while (at < size && (strchr(" \t\r\n", text[at]) || text[at] == '#')) {
    if (text[at] == '#') {
      while (at < size && text[at] != '\n') at++;
    } else {
      at++;
    }
  }
  size_t first = at;
  while (at < size && (isalnum((unsigned char)text[at]) || text[at] == '_')) at++;
  if (at == first || isdigit((unsigned char)text[first])) return 0;
  while (at < size && (text[at] == ' ' || text[at] == '\t')) at++;
  if (at == size || text[at] != '=') return 0;
  at++;
  while (at < size && (text[at] == ' ' || text[at] == '\t')) at++;
  return at < size && text[at] == '{' ? at : 0;
}

brim_status brim_config_yaml_parse(brim_config_context *context, const char *text, size_t size,
                                   const char *name, brim_config_node **root) {
  size_t named = size <= BRIM_CONFIG_MAX_BYTES ? dict_name_size(text, size) : 0;
  if (!named) return parse(context, text, size, name, root);
  char *plain = brim_alloc(size);  // blanks in place of the name: lines and columns stay
  if (!plain) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", name);
  memcpy(plain, text, size);
  for (size_t i = 0; i < named; i++) {
    if (plain[i] != '\n') plain[i] = ' ';
  }
  brim_status status = parse(context, plain, size, name, root);
  brim_free(plain);
  return status;
}
