// A YAML document with the bytes of each of its parts, from the marks of libyaml's events.
#include <string.h>
#include <yaml.h>

#include "config/config_edit_int.h"

typedef struct builder {
  brim_arena *arena;
  const char *text, *name;
  size_t size;
  size_t mark;    // bytes of a byte order mark in front, which libyaml does not see
  size_t *bytes;  // of each character; NULL when a character is a byte
  brim_config_span *open[BRIM_CONFIG_MAX_DEPTH + 1];
  brim_config_span *key;  // waits for its value
  int depth;
  brim_config_spans *out;
} builder;

static brim_status no_memory(const builder *b) {
  return brim_fail(BRIM_ENOMEM, "out of memory while editing %s", b->name);
}

static bool leads(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

// libyaml counts characters.
static brim_status index_bytes(builder *b) {
  size_t characters = 0;
  for (size_t i = b->mark; i < b->size; i++) characters += leads(b->text[i]);
  if (characters == b->size - b->mark) return BRIM_OK;
  b->bytes = brim_arena_calloc(b->arena, characters + 1, sizeof *b->bytes);
  if (!b->bytes) return no_memory(b);
  size_t at = 0;
  for (size_t i = b->mark; i < b->size; i++) {
    if (leads(b->text[i])) b->bytes[at++] = i;
  }
  b->bytes[at] = b->size;
  return BRIM_OK;
}

static size_t byte_of(const builder *b, yaml_mark_t mark) {
  size_t at = mark.index;
  if (!b->bytes) return b->mark + at < b->size ? b->mark + at : b->size;
  return b->bytes[at];
}

// A block scalar ends where the next token begins: behind blank lines.
static size_t trim(const builder *b, size_t begin, size_t end) {
  while (end > begin && strchr(" \t\r\n", b->text[end - 1])) end--;
  return end;
}

static brim_status attach(builder *b, brim_config_span *span, const yaml_event_t *event) {
  span->begin = byte_of(b, event->start_mark);
  span->end = byte_of(b, event->end_mark);
  span->line = (int)event->start_mark.line + 1;
  span->col = (int)event->start_mark.column + 1;
  if (b->depth == 0) {
    b->out->root = span;
    return BRIM_OK;
  }
  brim_config_span *parent = b->open[b->depth - 1];
  if (parent->kind == BRIM_CONFIG_SPAN_MAP && !b->key) {
    b->key = span;
    return BRIM_OK;
  }
  span->parent = parent;
  span->key = b->key;
  if (b->key) {
    span->line = b->key->line;
    span->col = b->key->col;
  }
  b->key = NULL;
  if (parent->last) {
    parent->last->next = span;
  } else {
    parent->first = span;
  }
  parent->last = span;
  return BRIM_OK;
}

static brim_status new_span(builder *b, brim_config_span_kind kind, const yaml_char_t *anchor,
                            brim_config_span **out) {
  *out = brim_arena_calloc(b->arena, 1, sizeof **out);
  if (!*out) return no_memory(b);
  (*out)->kind = kind;
  if (!anchor) return BRIM_OK;
  (*out)->anchor = brim_arena_strdup(b->arena, (const char *)anchor);
  return (*out)->anchor ? BRIM_OK : no_memory(b);
}

static brim_status on_scalar(builder *b, const yaml_event_t *event) {
  brim_config_span *span;
  BRIM_TRY(new_span(b, BRIM_CONFIG_SPAN_SCALAR, event->data.scalar.anchor, &span));
  span->text = brim_arena_strdup(b->arena, (const char *)event->data.scalar.value);
  if (!span->text) return no_memory(b);
  switch (event->data.scalar.style) {
    case YAML_SINGLE_QUOTED_SCALAR_STYLE:
      span->quote = '\'';
      break;
    case YAML_DOUBLE_QUOTED_SCALAR_STYLE:
      span->quote = '"';
      break;
    case YAML_LITERAL_SCALAR_STYLE:
    case YAML_FOLDED_SCALAR_STYLE:
      span->quote = '|';
      break;
    default:
      break;
  }
  BRIM_TRY(attach(b, span, event));
  span->end = trim(b, span->begin, span->end);
  return BRIM_OK;
}

static brim_status on_alias(builder *b, const yaml_event_t *event) {
  brim_config_span *span;
  BRIM_TRY(new_span(b, BRIM_CONFIG_SPAN_ALIAS, NULL, &span));
  span->text = brim_arena_strdup(b->arena, (const char *)event->data.alias.anchor);
  return span->text ? attach(b, span, event) : no_memory(b);
}

static brim_status on_start(builder *b, brim_config_span_kind kind, const yaml_char_t *anchor,
                            bool flow, const yaml_event_t *event) {
  brim_config_span *span;
  BRIM_TRY(new_span(b, kind, anchor, &span));
  if (b->depth >= BRIM_CONFIG_MAX_DEPTH) {
    return brim_fail(BRIM_ELIMIT, "%s: nested deeper than %d levels", b->name,
                     BRIM_CONFIG_MAX_DEPTH);
  }
  BRIM_TRY(attach(b, span, event));
  span->flow = flow;
  b->open[b->depth++] = span;
  return BRIM_OK;
}

// What closes a block has no character of its own: it ends with its last part.
static void on_end(builder *b, const yaml_event_t *event) {
  brim_config_span *span = b->open[--b->depth];
  if (span->flow) {
    span->end = byte_of(b, event->end_mark);
  } else if (span->last) {
    span->end = span->last->end;
  }
}

static brim_status on_event(builder *b, const yaml_event_t *event) {
  switch (event->type) {
    case YAML_SCALAR_EVENT:
      return on_scalar(b, event);
    case YAML_ALIAS_EVENT:
      return on_alias(b, event);
    case YAML_SEQUENCE_START_EVENT:
      return on_start(b, BRIM_CONFIG_SPAN_LIST, event->data.sequence_start.anchor,
                      event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE, event);
    case YAML_MAPPING_START_EVENT:
      return on_start(b, BRIM_CONFIG_SPAN_MAP, event->data.mapping_start.anchor,
                      event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE, event);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
      on_end(b, event);
      return BRIM_OK;
    case YAML_DOCUMENT_END_EVENT:
      if (!event->data.document_end.implicit) b->out->end = byte_of(b, event->start_mark);
      return BRIM_OK;
    default:
      return BRIM_OK;
  }
}

brim_status brim_config_spans_parse(brim_arena *arena, const char *text, size_t size,
                                    const char *name, brim_config_spans *out) {
  builder b = {.arena = arena, .text = text, .name = name, .size = size, .out = out};
  *out = (brim_config_spans){.end = size};
  b.mark = brim_config_mark_size(text, size);
  BRIM_TRY(index_bytes(&b));
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser)) return no_memory(&b);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text + b.mark, size - b.mark);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  brim_status status = BRIM_OK;
  for (bool more = true; more && !status;) {
    yaml_event_t event;
    if (!yaml_parser_parse(&parser, &event)) {
      status = parser.error == YAML_MEMORY_ERROR
                   ? no_memory(&b)
                   : brim_fail_at(BRIM_EPARSE, name, (int)parser.problem_mark.line + 1,
                                  (int)parser.problem_mark.column + 1, "not valid YAML: %s",
                                  parser.problem ? parser.problem : "malformed");
      break;
    }
    more = event.type != YAML_STREAM_END_EVENT;
    status = on_event(&b, &event);
    yaml_event_delete(&event);
  }
  yaml_parser_delete(&parser);
  return status;
}

const brim_config_span *brim_config_spans_alias(const brim_config_span *span, const char *anchor) {
  if (span->kind == BRIM_CONFIG_SPAN_ALIAS) return strcmp(span->text, anchor) ? NULL : span;
  for (const brim_config_span *s = span->first; s; s = s->next) {
    const brim_config_span *found = s->key ? brim_config_spans_alias(s->key, anchor) : NULL;
    if (!found) found = brim_config_spans_alias(s, anchor);
    if (found) return found;
  }
  return NULL;
}
