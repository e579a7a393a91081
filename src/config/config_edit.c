// Sets keys of a config file in place: finds the bytes of each value, replaces them, and proves that the new
// text resolves to what the old one with overrides does. Comments, order, quoting, indentation and line ends
// stay.
#include "config/config_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

typedef enum brim_config_span_kind {
  BRIM_CONFIG_SPAN_SCALAR,
  BRIM_CONFIG_SPAN_LIST,
  BRIM_CONFIG_SPAN_MAP,
  BRIM_CONFIG_SPAN_ALIAS,
  BRIM_CONFIG_SPAN_KIND_COUNT
} brim_config_span_kind;

// A value and its bytes. Unlike in a brim_config_node, aliases and merge keys are not expanded.
typedef struct brim_config_span brim_config_span;
struct brim_config_span {
  brim_config_span_kind kind;
  bool flow;          // [..] and {..}
  char quote;         // scalar: 0 plain, ' or ", | for block scalars
  size_t begin, end;  // bytes, with anchor and tag, without blanks at the end
  int line, col;      // from 1; for an entry of a map, the place of its key
  const char *text;   // text of a scalar, or name of an alias
  const char *anchor;
  brim_config_span *key;  // entry of a map
  brim_config_span *parent, *first, *last, *next;
};

typedef struct brim_config_spans {
  brim_config_span *root;  // NULL for an empty document
  size_t end;              // end of the document: at "...", else the end of the text
} brim_config_spans;

// An anchored part that was edited although an alias uses it too. `anchor` is NULL if there is none.
typedef struct brim_config_shared {
  const char *key, *anchor;
  int line, col, used_line;
} brim_config_shared;

static brim_status no_memory(const char *file) {
  return brim_fail(BRIM_ENOMEM, "out of memory while editing %s", file);
}

// ---- comments ----------------------------------------------------------------------------------
// A comment behind an edited value is stale if it names the old value: the edit removes it. Others stay.

enum { MAX_WORD = 64 };

// The next word: letters, digits and the characters of numbers. False at the end. A full stop at its end is
// not part of it.
static bool next_word(const char *text, size_t size, size_t *at, char out[MAX_WORD]) {
  static const char letters[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-+";
  size_t begin = *at;
  while (begin < size && (!text[begin] || !strchr(letters, text[begin]))) begin++;
  size_t end = begin;
  while (end < size && text[end] && strchr(letters, text[end])) end++;
  *at = end;
  if (begin == end) return false;
  while (end > begin && strchr(".-+", text[end - 1])) end--;
  size_t n = end - begin < MAX_WORD - 1 ? end - begin : MAX_WORD - 1;
  memcpy(out, text + begin, n);
  out[n] = '\0';
  return true;
}

// Equal words, or equal numbers: 3e-4 is 0.0003.
static bool same_word(const char *a, const char *b) {
  if (strcmp(a, b) == 0) return true;
  char *a_end, *b_end;
  double x = strtod(a, &a_end), y = strtod(b, &b_end);
  return a_end != a && b_end != b && !*a_end && !*b_end && x == y;
}

static bool has_word(const char *text, size_t size, const char *word) {
  char other[MAX_WORD];
  for (size_t at = 0; next_word(text, size, &at, other);) {
    if (same_word(word, other)) return true;
  }
  return false;
}

// True if the comment names a word of the value `before` that the value `after` lacks.
static bool comment_is_stale(const char *comment, size_t size, const char *before,
                             size_t before_size, const char *after) {
  char word[MAX_WORD];
  for (size_t at = 0; next_word(before, before_size, &at, word);) {
    if (!*word || has_word(after, strlen(after), word)) continue;
    if (has_word(comment, size, word)) return true;
  }
  return false;
}

// The comment in text[at, end), which is the rest of a line behind a value; `end` if there is none.
static size_t comment_find(const char *text, size_t at, size_t end) {
  for (; at < end; at++) {
    if (text[at] == '"' || text[at] == '\'') {
      const char *close = memchr(text + at + 1, text[at], end - at - 1);
      if (!close) return end;
      at = (size_t)(close - text);
    } else if (text[at] == '#' && at > 0 && strchr(" \t", text[at - 1])) {
      return at;
    }
  }
  return end;
}

// ---- spans -------------------------------------------------------------------------------------
// Builds the tree of spans from the marks of libyaml's events.

typedef struct builder {
  brim_arena *arena;
  const char *text, *name;
  size_t size;
  size_t mark;    // size of the byte order mark, which is not passed to libyaml
  size_t *bytes;  // offset of each character; NULL if the text is ASCII
  brim_config_span *open[BRIM_CONFIG_MAX_DEPTH + 1];
  brim_config_span *key;  // key of the entry whose value comes next
  int depth;
  brim_config_spans *out;
} builder;

static bool leads(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

// Fills b->bytes: libyaml's marks count characters.
static brim_status index_bytes(builder *b) {
  size_t characters = 0;
  for (size_t i = b->mark; i < b->size; i++) characters += leads(b->text[i]);
  if (characters == b->size - b->mark) return BRIM_OK;
  b->bytes = brim_arena_calloc(b->arena, characters + 1, sizeof *b->bytes);
  if (!b->bytes) return no_memory(b->name);
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

// Drops blanks at the end: libyaml lets a block scalar end at the next token, behind blank lines.
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
  if (!*out) return no_memory(b->name);
  (*out)->kind = kind;
  if (!anchor) return BRIM_OK;
  (*out)->anchor = brim_arena_strdup(b->arena, (const char *)anchor);
  return (*out)->anchor ? BRIM_OK : no_memory(b->name);
}

static brim_status on_scalar(builder *b, const yaml_event_t *event) {
  brim_config_span *span;
  BRIM_TRY(new_span(b, BRIM_CONFIG_SPAN_SCALAR, event->data.scalar.anchor, &span));
  span->text = brim_arena_strdup(b->arena, (const char *)event->data.scalar.value);
  if (!span->text) return no_memory(b->name);
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
  return span->text ? attach(b, span, event) : no_memory(b->name);
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

// Ends a list or map. A block ends where its last part ends, since no character closes it.
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

// Parses a text that brim_config_yaml_parse has accepted.
static brim_status spans_parse(brim_arena *arena, const char *text, size_t size, const char *name,
                               brim_config_spans *out) {
  builder b = {.arena = arena, .text = text, .name = name, .size = size, .out = out};
  *out = (brim_config_spans){.end = size};
  b.mark = brim_config_mark_size(text, size);
  BRIM_TRY(index_bytes(&b));
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser)) return no_memory(b.name);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text + b.mark, size - b.mark);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  brim_status status = BRIM_OK;
  for (bool more = true; more && !status;) {
    yaml_event_t event;
    if (!yaml_parser_parse(&parser, &event)) {
      status = parser.error == YAML_MEMORY_ERROR
                   ? no_memory(b.name)
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

// The first alias that uses an anchor; NULL if none does.
static const brim_config_span *spans_alias(const brim_config_span *span, const char *anchor) {
  if (span->kind == BRIM_CONFIG_SPAN_ALIAS) return strcmp(span->text, anchor) ? NULL : span;
  for (const brim_config_span *s = span->first; s; s = s->next) {
    const brim_config_span *found = s->key ? spans_alias(s->key, anchor) : NULL;
    if (!found) found = spans_alias(s, anchor);
    if (found) return found;
  }
  return NULL;
}

// ---- one key -----------------------------------------------------------------------------------
// Sets one key in a text: finds it, replaces its value, or adds it. Collects splices and applies them last.

enum { MAX_PLACES = 16, MAX_SPLICES = 2 * MAX_PLACES };  // a value and its comment

// Bytes to replace.
typedef struct splice {
  size_t begin, end;
  const char *with;
} splice;

typedef struct editor {
  brim_arena *arena;
  const char *name, *text;
  size_t size;
  const char *newline;
  brim_config_spans spans;
  splice splices[MAX_SPLICES];
  size_t count;
  size_t hits;  // places edited
  brim_config_shared *shared;
} editor;

static brim_status replace(editor *e, size_t begin, size_t end, const char *with) {
  if (!with) return no_memory(e->name);
  if (e->count == MAX_SPLICES) {
    return brim_fail(BRIM_ELIMIT, "%s: one key appears in more than %d places", e->name,
                     MAX_PLACES);
  }
  size_t at = e->count++;
  for (; at > 0 && e->splices[at - 1].begin < begin; at--) e->splices[at] = e->splices[at - 1];
  e->splices[at] = (splice){begin, end, with};  // sorted from the end of the text
  return BRIM_OK;
}

static size_t line_end(const editor *e, size_t at) {
  while (at < e->size && e->text[at] != '\n' && e->text[at] != '\r') at++;
  return at;
}

// Removes the comment behind the value text[begin, end) if the new value makes it stale. `behind`: the end of
// the whole entry.
static brim_status drop_stale(editor *e, size_t begin, size_t end, size_t behind,
                              const char *after) {
  size_t stop = line_end(e, behind), at = comment_find(e->text, behind, stop);
  if (at == stop ||
      !comment_is_stale(e->text + at, stop - at, e->text + begin, end - begin, after)) {
    return BRIM_OK;
  }
  while (at > behind && strchr(" \t", e->text[at - 1])) at--;
  return replace(e, at, stop, "");
}

// ---- values as text ----------------------------------------------------------------------------

static bool is_plain(const char *text, bool flow) {
  static const char words[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+()=";
  static const char more[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+()=, |";
  size_t n = strlen(text);
  brim_value v;
  brim_config_word(text, &v);
  return n && v.kind == BRIM_VALUE_STRING && strspn(text, flow ? words : more) == n &&
         !strchr("-=.|, ", text[0]) && text[n - 1] != ' ';
}

// Uses single quotes if the old text had them, else double quotes with escapes.
static void put_quoted(brim_str *out, const char *text, char quote) {
  bool control = false;
  for (const char *p = text; *p; p++) control = control || (unsigned char)*p < 0x20;
  if (quote == '\'' && !control) {
    brim_str_append_char(out, '\'');
    for (; *text; text++) brim_str_append(out, *text == '\'' ? "''" : (char[]){*text, 0});
    brim_str_append_char(out, '\'');
    return;
  }
  brim_str_append_char(out, '"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') brim_str_append_char(out, '\\');
    if ((unsigned char)*text < 0x20) {
      brim_str_printf(out, "\\x%02x", (unsigned)(unsigned char)*text);
    } else {
      brim_str_append_char(out, *text);
    }
  }
  brim_str_append_char(out, '"');
}

static void put_value(brim_str *out, const brim_config_node *node, bool flow, char quote) {
  if (node->kind == BRIM_CONFIG_NODE_SCALAR) {
    brim_value v;
    brim_config_word(node->text, &v);
    bool text = !node->plain || v.kind == BRIM_VALUE_STRING;
    if (!text) {
      brim_str_append(out, *node->text ? node->text : "null");
    } else if (quote == '\'' || quote == '"' || !is_plain(node->text, flow)) {
      put_quoted(out, node->text, quote);
    } else {
      brim_str_append(out, node->text);
    }
    return;
  }
  bool list = node->kind == BRIM_CONFIG_NODE_LIST;
  brim_str_append(out, node->tag == BRIM_CONFIG_TAG_LIST ? "!list " : "");
  brim_str_append_char(out, list ? '[' : '{');
  for (const brim_config_node *n = node->first; n; n = n->next) {
    if (n != node->first) brim_str_append(out, ", ");
    if (!list) {
      put_quoted(out, n->key, '"');
      brim_str_append(out, ": ");
    }
    put_value(out, n, true, 0);
  }
  brim_str_append_char(out, list ? ']' : '}');
}

// The value as it will be written; NULL when out of memory.
static char *value_text(const editor *e, const brim_config_node *value, bool flow, char quote) {
  brim_str text;
  brim_str_init(&text);
  put_value(&text, value, flow, quote);
  char *copy = brim_str_status(&text) ? NULL : brim_arena_strdup(e->arena, text.data);
  brim_str_deinit(&text);
  return copy;
}

// ---- a value in place --------------------------------------------------------------------------

static bool in_flow(const brim_config_span *span) {
  for (const brim_config_span *s = span->parent; s; s = s->parent) {
    if (s->flow) return true;
  }
  return false;
}

// The byte behind the colon of a key.
static size_t behind_colon(const editor *e, const brim_config_span *entry) {
  size_t at = entry->key->end;
  while (at < e->size && e->text[at] != ':') at++;
  return at < e->size ? at + 1 : at;
}

// Replaces a block list or map by a value on the line of its key. A comment on that line stays, unless it is
// stale; comments of the items go.
static brim_status replace_block(editor *e, const brim_config_span *entry, const char *value) {
  size_t colon = behind_colon(e, entry), end = line_end(e, colon), rest = colon;
  if (entry->begin <= end) {  // an anchor or a tag
    for (rest = entry->begin; rest < end && strchr("&!", e->text[rest]);) {
      while (rest < end && !strchr(" \t", e->text[rest])) rest++;
      size_t next = rest + strspn(e->text + rest, " \t");
      if (next < end && strchr("&!", e->text[next])) rest = next;
    }
  }
  size_t keep = end, at = comment_find(e->text, rest, end);
  if (at < end && comment_is_stale(e->text + at, end - at, e->text + entry->begin,
                                   entry->end - entry->begin, value)) {
    keep = rest;
  }
  const char *with =
      brim_arena_printf(e->arena, " %s%.*s", value, (int)(keep - rest), e->text + rest);
  return replace(e, colon, line_end(e, entry->end), with);
}

static void note_shared(editor *e, const brim_config_span *entry) {
  for (const brim_config_span *s = entry; s && !e->shared->anchor; s = s->parent) {
    const brim_config_span *alias = s->anchor ? spans_alias(e->spans.root, s->anchor) : NULL;
    if (!alias) continue;
    *e->shared = (brim_config_shared){.key = entry->key ? entry->key->text : "",
                                      .anchor = s->anchor,
                                      .line = entry->line,
                                      .col = entry->col,
                                      .used_line = alias->line};
  }
}

static brim_status set_value(editor *e, const brim_config_span *entry,
                             const brim_config_node *value) {
  e->hits++;
  note_shared(e, entry);
  bool container = entry->kind == BRIM_CONFIG_SPAN_LIST || entry->kind == BRIM_CONFIG_SPAN_MAP;
  char *text = value_text(e, value, in_flow(entry), entry->quote);
  if (text && entry->anchor) text = brim_arena_printf(e->arena, "&%s %s", entry->anchor, text);
  if (!text) return no_memory(e->name);
  if (container && !entry->flow) return replace_block(e, entry, text);
  bool joined = entry->begin > 0 && entry->text && entry->begin == entry->end &&
                e->text[entry->begin - 1] == ':';
  if (joined) text = brim_arena_printf(e->arena, " %s", text);
  bool alias = entry->kind == BRIM_CONFIG_SPAN_ALIAS;  // the text of an alias is not a value
  if (text && !alias) BRIM_TRY(drop_stale(e, entry->begin, entry->end, entry->end, text));
  return replace(e, entry->begin, entry->end, text);
}

// ---- an argument of an expression --------------------------------------------------------------

static size_t skip_blanks(const char *text, size_t at, size_t end) {
  while (at < end && strchr(" \t\r\n", text[at])) at++;
  return at;
}

// Finds the bytes of an argument's value in "basic(split=train, batch_size=64)". Ignores arguments of nested
// components.
static bool find_argument(const char *text, size_t begin, size_t end, const char *name,
                          size_t *value_begin, size_t *value_end) {
  size_t n = strlen(name), start = 0;
  int depth = 0;
  bool here = false, wanted = false;  // at the start of an argument; inside the one searched for
  for (size_t i = begin; i < end; i++) {
    char c = text[i];
    if (c == '"' || c == '\'') {
      if (i > begin && i + 1 < end) {  // a quoted text inside the expression
        const char *close = memchr(text + i + 1, c, end - i - 1);
        if (!close) return false;
        i = (size_t)(close - text);
      }
      continue;
    }
    if (here && depth == 1 && end - i > n && !strncmp(text + i, name, n)) {
      size_t equals = skip_blanks(text, i + n, end);
      if (equals < end && text[equals] == '=') {
        wanted = true;
        i = start = skip_blanks(text, equals + 1, end);
        c = i < end ? text[i] : ')';
      }
    }
    if (depth == 1 && wanted && (c == ',' || c == ')')) {
      while (i > start && strchr(" \t\r\n", text[i - 1])) i--;
      *value_begin = start;
      *value_end = i;
      return i > start;
    }
    if (strchr("([{", c)) depth++;
    if (strchr(")]}", c)) depth--;
    here = c == '(' || c == ',' || (here && strchr(" \t\r\n", c));
  }
  return false;
}

static brim_status set_argument(editor *e, const brim_config_span *entry, size_t begin, size_t end,
                                const brim_config_node *value) {
  static const char words[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+";
  if (value->kind != BRIM_CONFIG_NODE_SCALAR || strspn(value->text, words) != strlen(value->text)) {
    return brim_fail_at(BRIM_EINVAL, e->name, entry->line, entry->col,
                        "'%s' is written as an expression; this value cannot be put into it",
                        entry->key->text);
  }
  e->hits++;
  note_shared(e, entry);
  BRIM_TRY(drop_stale(e, begin, end, entry->end, value->text));
  return replace(e, begin, end, value->text);
}

// ---- finding a key -----------------------------------------------------------------------------

typedef struct search {
  editor *editor;
  brim_config_path want;
  const brim_config_node *value;  // NULL: only find
  const brim_config_span *found;  // the last place found
  brim_config_span *component;    // a map that the argument can be added to
} search;

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static brim_status hit(search *s, const brim_config_span *entry) {
  s->found = entry;
  return s->value ? set_value(s->editor, entry, s->value) : BRIM_OK;
}

static const brim_config_span *entry_of(const brim_config_span *map, const char *key) {
  for (const brim_config_span *c = map->first; c; c = c->next) {
    if (c->key && c->key->kind == BRIM_CONFIG_SPAN_SCALAR && !strcmp(c->key->text, key)) return c;
  }
  return NULL;
}

// Searches an entry that sets the wanted row, or one slot of the row.
static brim_status search_entry(search *s, brim_config_span *entry, int slot) {
  bool slots = brim_config_row_at((size_t)s->want.row)->flags & BRIM_CONFIG_SLOTS;
  if (entry->kind == BRIM_CONFIG_SPAN_MAP && slots && !slot && !entry_of(entry, "_type") &&
      entry->first && entry->first->key->text &&
      brim_config_slot_find(entry->first->key->text) > 0 && (s->want.arg || s->want.slot)) {
    for (brim_config_span *c = entry->first; c; c = c->next) {
      int inner = c->key->text ? brim_config_slot_find(c->key->text) : -1;
      if (inner > 0) BRIM_TRY(search_entry(s, c, inner));
    }
    return BRIM_OK;
  }
  if (slot != s->want.slot) return BRIM_OK;
  if (!s->want.arg) return hit(s, entry);
  if (entry->kind == BRIM_CONFIG_SPAN_MAP) {
    const brim_config_span *arg = entry_of(entry, s->want.arg);
    s->component = entry;
    return arg ? hit(s, arg) : BRIM_OK;
  }
  size_t begin, end;
  if (entry->kind != BRIM_CONFIG_SPAN_SCALAR ||
      !find_argument(s->editor->text, entry->begin, entry->end, s->want.arg, &begin, &end)) {
    return BRIM_OK;
  }
  s->found = entry;
  return s->value ? set_argument(s->editor, entry, begin, end, s->value) : BRIM_OK;
}

// Searches a map of the file with the same names that config_load.c uses. Values that come through an alias or
// a merge key are not in the map.
static brim_status search_map(search *s, const char *prefix, brim_config_span *map) {
  brim_arena *arena = s->editor->arena;
  for (brim_config_span *c = map->first; c; c = c->next) {
    if (!c->key || c->key->kind != BRIM_CONFIG_SPAN_SCALAR) continue;
    const char *key = c->key->text;
    if ((!prefix && brim_str_starts(key, "x-")) || !strcmp(key, "<<")) continue;
    const char *full = prefix ? brim_arena_printf(arena, "%s.%s", prefix, key) : key;
    if (!full) return no_memory(s->editor->name);
    int row = brim_config_row_find(full);
    if (row >= 0) {
      if (row == s->want.row) BRIM_TRY(search_entry(s, c, 0));
    } else if (brim_config_row_is_group(full)) {
      if (c->kind == BRIM_CONFIG_SPAN_MAP) BRIM_TRY(search_map(s, full, c));
    } else {
      brim_config_path path;
      BRIM_TRY(brim_config_path_find(arena, full, &path));
      if (path.row != s->want.row) continue;
      if (!path.arg) {
        BRIM_TRY(search_entry(s, c, path.slot));
      } else if (path.slot == s->want.slot && same_text(path.arg, s->want.arg)) {
        BRIM_TRY(hit(s, c));
      }
    }
  }
  return BRIM_OK;
}

static brim_status find(editor *e, brim_config_path want, const brim_config_node *value,
                        search *out) {
  *out = (search){.editor = e, .want = want, .value = value};
  if (!e->spans.root || e->spans.root->kind != BRIM_CONFIG_SPAN_MAP) return BRIM_OK;
  return search_map(out, NULL, e->spans.root);
}

// ---- a key that is missing ---------------------------------------------------------------------

// Spaces in front of an entry of a block map.
static int indent_of(const brim_config_span *map) { return map->first ? map->first->col - 1 : 0; }

static int usual_indent(const brim_config_span *root) {
  for (const brim_config_span *c = root ? root->first : NULL; c; c = c->next) {
    if (c->kind != BRIM_CONFIG_SPAN_MAP || c->flow || !c->first) continue;
    int step = c->first->col - c->col;
    if (step > 0) return step;
  }
  return 2;
}

static brim_status add_to_map(editor *e, const brim_config_span *map, const char *key,
                              const brim_config_node *value) {
  e->hits++;
  char *text = value_text(e, value, map->flow || in_flow(map), 0);
  if (!text) return no_memory(e->name);
  note_shared(e, map);
  if (map->flow) {
    const char *quote = map->first && map->first->key->quote ? "\"" : "";
    const char *entry =
        brim_arena_printf(e->arena, "%s%s%s%s: %s", map->last ? ", " : "", quote, key, quote, text);
    size_t at = map->last ? map->last->end : map->end - 1;
    return replace(e, at, at, entry);
  }
  size_t at = line_end(e, map->end);
  const char *line =
      brim_arena_printf(e->arena, "%s%*s%s: %s", e->newline, indent_of(map), "", key, text);
  return replace(e, at, at, line);
}

// Adds the first key of a section without a value: "data:" or "data: null".
static brim_status fill_empty(editor *e, const brim_config_span *section, const char *key,
                              const brim_config_node *value) {
  e->hits++;
  note_shared(e, section);
  char *text = value_text(e, value, in_flow(section), 0);
  if (!text) return no_memory(e->name);
  if (in_flow(section)) {
    return replace(e, section->begin, section->end,
                   brim_arena_printf(e->arena, " {%s: %s}", key, text));
  }
  size_t colon = behind_colon(e, section), at = line_end(e, section->end);
  int indent = section->col - 1 + usual_indent(e->spans.root);
  BRIM_TRY(replace(e, at, at,
                   brim_arena_printf(e->arena, "%s%*s%s: %s", e->newline, indent, "", key, text)));
  return section->begin < section->end ? replace(e, colon, section->end, "") : BRIM_OK;
}

// Adds "key: value", or a section with it, at the end of the document. A blank line comes before a section,
// unless it would become part of a block scalar.
static brim_status append(editor *e, const char *section, const char *key,
                          const brim_config_node *value) {
  const brim_config_span *root = e->spans.root, *deep = root;
  char *text = value_text(e, value, false, 0);
  if (!text) return no_memory(e->name);
  e->hits++;
  while (deep && deep->last) deep = deep->last;
  size_t end = e->spans.end;
  int indent = root ? indent_of(root) : 0;
  bool cut = end > 0 && e->text[end - 1] != '\n' && e->text[end - 1] != '\r';
  bool blank = end > 1 && (e->text[end - 1] == '\n') &&
               (e->text[end - 2] == '\n' || (end > 3 && e->text[end - 3] == '\n'));
  bool spaced = section && end > 0 && !blank && !(deep && deep->quote == '|');
  const char *first = cut ? e->newline : "";
  const char *more = spaced ? e->newline : "";
  const char *with =
      section
          ? brim_arena_printf(e->arena, "%s%s%*s%s:%s%*s%s: %s%s", first, more, indent, "", section,
                              e->newline, indent + usual_indent(root), "", key, text, e->newline)
          : brim_arena_printf(e->arena, "%s%*s%s: %s%s", first, indent, "", key, text, e->newline);
  return replace(e, end, end, with);
}

static brim_status add_to_flow_root(editor *e, const char *section, const char *key,
                                    const brim_config_node *value) {
  const brim_config_span *root = e->spans.root;
  char *text = value_text(e, value, true, 0);
  const char *q = root->first && root->first->key->quote ? "\"" : "";
  size_t at = root->last ? root->last->end : root->end - 1;
  if (!text) return no_memory(e->name);
  e->hits++;
  const char *comma = root->last ? ", " : "";
  return replace(e, at, at,
                 section ? brim_arena_printf(e->arena, "%s%s%s%s: {%s%s%s: %s}", comma, q, section,
                                             q, q, key, q, text)
                         : brim_arena_printf(e->arena, "%s%s%s%s: %s", comma, q, key, q, text));
}

static bool is_null(const brim_config_span *span) {
  brim_value v;
  if (span->kind != BRIM_CONFIG_SPAN_SCALAR || span->quote) return false;
  brim_config_word(span->text, &v);
  return v.kind == BRIM_VALUE_NULL;
}

// Adds a key that the file lacks. `whole`: `name` is a canonical key; else `name` is a path into a component and
// is written unchanged.
static brim_status add_key(editor *e, const char *name, bool whole, const brim_config_node *value) {
  const brim_config_span *root = e->spans.root;
  const char *dot = whole ? strrchr(name, '.') : NULL;
  const char *key = dot ? dot + 1 : name;
  const char *section = dot ? brim_arena_strndup(e->arena, name, (size_t)(dot - name)) : NULL;
  if (dot && !section) return no_memory(e->name);
  if (root && root->kind != BRIM_CONFIG_SPAN_MAP && !is_null(root)) {
    return brim_fail_at(BRIM_EINVAL, e->name, root->line, root->col,
                        "a config is a map of keys, 'key: value'");
  }
  bool map = root && root->kind == BRIM_CONFIG_SPAN_MAP;
  const brim_config_span *there = map && section ? entry_of(root, section) : NULL;
  if (there && there->kind == BRIM_CONFIG_SPAN_MAP) return add_to_map(e, there, key, value);
  if (there && is_null(there)) return fill_empty(e, there, key, value);
  if (there) {
    return brim_fail_at(
        BRIM_EINVAL, e->name, there->line, there->col,
        "'%s' cannot be added: '%s' is the alias *%s here; replace the alias by the section itself",
        name, section, there->text ? there->text : "");
  }
  if (map && root->flow) return add_to_flow_root(e, section, key, value);
  return append(e, section, key, value);
}

// ---- one edit ----------------------------------------------------------------------------------

// If the key is an argument of a component too, edits the argument as well: a file may have both.
static brim_status set_links(editor *e, int row, const brim_config_node *value) {
  const char *key = brim_config_row_at((size_t)row)->key.name;
  const brim_config_link *l;
  for (size_t i = 0; (l = brim_config_link_at(i)); i++) {
    if (strcmp(l->key, key)) continue;
    int component = brim_config_row_find(l->component);
    int first = l->evaluation ? BRIM_CONFIG_SLOT_VAL : BRIM_CONFIG_SLOT_NONE;
    int last = l->evaluation ? BRIM_CONFIG_SLOT_TEST : BRIM_CONFIG_SLOT_TRAIN;
    for (int slot = first; slot <= last; slot++) {
      search s;
      BRIM_TRY(find(e, (brim_config_path){component, slot, l->arg}, value, &s));
    }
  }
  return BRIM_OK;
}

static brim_status plain(editor *e, const char *text, brim_config_node **out) {
  *out = brim_config_node_plain(e->arena, text, (brim_config_place){e->name, 1, 1});
  return *out ? BRIM_OK : no_memory(e->name);
}

static bool is_mixed(const char *precision) {
  return strcmp(precision, "fp32") && strcmp(precision, "tf32");
}

// Keeps training.precision and training.use_amp consistent if the file has one or both. *done: the edit needs no
// more keys.
static brim_status set_precision(editor *e, int row, const brim_config_node *value, bool *done) {
  int precision = brim_config_row_find("training.precision");
  int amp = brim_config_row_find("training.use_amp");
  *done = false;
  if ((row != precision && row != amp) || value->kind != BRIM_CONFIG_NODE_SCALAR) return BRIM_OK;
  search s;
  brim_config_node *other;
  bool on = false;
  if (row == precision) {
    BRIM_TRY(plain(e, is_mixed(value->text) ? "true" : "false", &other));
    BRIM_TRY(find(e, (brim_config_path){.row = amp}, other, &s));
    *done = s.found && !strcmp(value->text, "fp32");
    return BRIM_OK;
  }
  if (!brim_parse_bool(value->text, &on)) return BRIM_OK;
  BRIM_TRY(find(e, (brim_config_path){.row = precision}, NULL, &s));
  if (!s.found) return BRIM_OK;
  *done = true;
  if (s.found->text && is_mixed(s.found->text) == on) return BRIM_OK;
  BRIM_TRY(plain(e, on ? "auto" : "fp32", &other));
  return find(e, (brim_config_path){.row = precision}, other, &s);
}

static brim_status edit_key(editor *e, const brim_config_edit *edit,
                            const brim_config_node *value) {
  brim_config_path path;
  search s;
  BRIM_TRY(brim_config_path_find(e->arena, edit->key, &path));
  if (path.row < 0 || brim_config_row_at((size_t)path.row)->type == BRIM_CONFIG_SPECIAL) {
    return brim_config_unknown_key(edit->key, NULL, (brim_config_place){"edit", 1, 1});
  }
  bool whole = !path.arg && !path.slot, done = false;
  BRIM_TRY(find(e, path, value, &s));
  bool found = e->hits > 0;
  if (whole) BRIM_TRY(set_links(e, path.row, value));
  found = found || e->hits > 0;
  if (whole) BRIM_TRY(set_precision(e, path.row, value, &done));
  if (found || done) return BRIM_OK;
  if (path.arg && s.component) return add_to_map(e, s.component, path.arg, value);
  const char *name = whole ? brim_config_row_at((size_t)path.row)->key.name : edit->key;
  return add_key(e, name, whole, value);
}

static brim_status apply(const editor *e, brim_str *text) {
  brim_str fresh;
  brim_str_init(&fresh);
  size_t at = 0;
  for (size_t i = e->count; i-- > 0;) {
    const splice *s = &e->splices[i];
    if (s->begin < at) continue;
    brim_str_append_n(&fresh, e->text + at, s->begin - at);
    brim_str_append(&fresh, s->with);
    at = s->end;
  }
  brim_str_append_n(&fresh, e->text + at, e->size - at);
  brim_status status = brim_str_status(&fresh);
  if (!status) {
    brim_str_clear(text);
    brim_str_append_n(text, fresh.data, fresh.len);
    status = brim_str_status(text);
  }
  brim_str_deinit(&fresh);
  return status;
}

static brim_status edit_once(brim_arena *arena, const char *name, brim_str *text,
                             const brim_config_edit *edit, brim_config_shared *shared) {
  editor e = {.arena = arena,
              .name = name,
              .text = text->data,
              .size = text->len,
              .newline = "\n",
              .shared = shared};
  const char *first = memchr(e.text, '\n', e.size);
  if (first && first > e.text && first[-1] == '\r') e.newline = "\r\n";
  brim_config_context context = {.arena = arena, .mode = BRIM_CONFIG_EDIT};
  brim_config_node *value;
  BRIM_TRY(brim_config_yaml_parse(&context, edit->value, strlen(edit->value), "edit", &value));
  if (!value) return brim_fail(BRIM_EINVAL, "'%s': no value to write", edit->key);
  BRIM_TRY(spans_parse(arena, e.text, e.size, name, &e.spans));
  BRIM_TRY(edit_key(&e, edit, value));
  return apply(&e, text);
}

// ---- files -------------------------------------------------------------------------------------
// Edits each key in turn, verifies the text against the file with the same overrides, then writes the file.

static brim_status load(const char *path, const char *text, const char *const *overrides,
                        size_t count, brim_config **out) {
  brim_config_options options = {.path = text ? NULL : path,
                                 .text = text,
                                 .text_name = path,
                                 .text_path = path,
                                 .overrides = overrides,
                                 .override_count = count,
                                 .mode = BRIM_CONFIG_EDIT};
  return brim_config_load(&options, out);
}

static brim_status load_json(const char *path, const char *text, const char *const *overrides,
                             size_t count, json_t **out) {
  brim_config *config = NULL;
  *out = NULL;
  BRIM_TRY(load(path, text, overrides, count, &config));
  brim_status status = brim_config_to_json(config, out);
  brim_config_close(config);
  return status;
}

// *out: true if the files give the key the wanted value already; the edit then changes nothing.
static brim_status is_there(const char *path, const brim_config *config, const json_t *before,
                            const brim_config_edit *edit, const char *override, bool *out) {
  *out = false;
  int row = brim_config_row_find(edit->key);
  if (row < 0 || config->values[row].layer < 0) return BRIM_OK;
  json_t *wanted;
  BRIM_TRY(load_json(path, NULL, &override, 1, &wanted));
  *out = json_equal(before, wanted);
  json_decref(wanted);
  return BRIM_OK;
}

// The first key in which two resolved configs differ, dotted.
static bool first_difference(const json_t *a, const json_t *b, const char *prefix, char *out,
                             size_t size) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)a, key, value) {
    const json_t *other = json_object_get(b, key);
    if (other && json_equal(value, other)) continue;
    char full[128];
    snprintf(full, sizeof full, "%s%s%s", prefix, *prefix ? "." : "", key);
    if (json_is_object(value) && json_is_object(other)) {
      if (first_difference(value, other, full, out, size)) return true;
      continue;
    }
    snprintf(out, size, "%s", full);
    return true;
  }
  return false;
}

static brim_status refuse(const char *path, const brim_config_shared *shared, const json_t *wanted,
                          const json_t *got) {
  char key[128] = "?";
  first_difference(wanted, got, "", key, sizeof key);
  if (shared->anchor) {
    return brim_fail_at(
        BRIM_EINVAL, path, shared->line, shared->col,
        "'%s' cannot be edited here: it belongs to the anchor &%s, which line %d uses too, so '%s' "
        "would change as well; replace the alias by its value first",
        shared->key, shared->anchor, shared->used_line, key);
  }
  return brim_fail(
      BRIM_EINVAL,
      "%s cannot be edited in place: brim cannot write '%s' there safely; edit the file by hand",
      path, key);
}

static brim_status verify(const char *path, const brim_str *text, const char *const *overrides,
                          size_t count, const brim_config_shared *shared) {
  json_t *wanted = NULL, *got = NULL;
  brim_status status = load_json(path, NULL, overrides, count, &wanted);
  if (!status) {
    status = load_json(path, text->data, NULL, 0, &got);
    if (status && status != BRIM_ENOMEM) {
      status = brim_fail_context(status, "%s cannot be edited in place", path);
    }
  }
  if (!status && !json_equal(wanted, got)) status = refuse(path, shared, wanted, got);
  json_decref(wanted);
  json_decref(got);
  return status;
}

static brim_status edit_all(brim_arena *arena, const char *path, const brim_config_edit *edits,
                            size_t count, brim_str *text) {
  brim_config *config = NULL;
  json_t *before = NULL;
  brim_config_shared shared = {0};
  const char **overrides = brim_arena_calloc(arena, count + 1, sizeof *overrides);
  if (!overrides) return no_memory(path);
  BRIM_TRY(load(path, NULL, NULL, 0, &config));
  brim_status status = brim_config_to_json(config, &before);
  for (size_t i = 0; i < count && !status; i++) {
    bool there = false;
    overrides[i] = brim_arena_printf(arena, "%s=%s", edits[i].key, edits[i].value);
    status = overrides[i] ? BRIM_OK : no_memory(path);
    if (!status) status = is_there(path, config, before, &edits[i], overrides[i], &there);
    if (!status && !there) status = edit_once(arena, path, text, &edits[i], &shared);
  }
  json_decref(before);
  brim_config_close(config);
  return status ? status : verify(path, text, overrides, count, &shared);
}

brim_status brim_config_edit_preview(const char *path, const brim_config_edit *edits, size_t count,
                                     brim_config_edit_result *out) {
  brim_arena *arena = NULL;
  brim_str text;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_fs_read(path, BRIM_CONFIG_MAX_BYTES, &out->before, &out->before_size));
  brim_str_init(&text);
  brim_str_append_n(&text, out->before, out->before_size);
  brim_status status = brim_arena_create(0, &arena);
  if (!status) status = brim_str_status(&text);
  if (!status) status = edit_all(arena, path, edits, count, &text);
  brim_arena_destroy(arena);
  if (!status) {
    out->after_size = text.len;
    out->changed =
        text.len != out->before_size || memcmp(text.data, out->before, out->before_size) != 0;
    out->after = brim_str_take(&text);
    if (!out->after) status = no_memory(path);
  }
  brim_str_deinit(&text);
  if (status) brim_config_edit_result_deinit(out);
  return status;
}

// Resolves symbolic links and refuses a read-only file, because a rename would replace the link or the file. The
// caller calls free() on *real.
static brim_status find_real(const char *path, char **real) {
  *real = realpath(path, NULL);
  if (*real && access(*real, W_OK) == 0) return BRIM_OK;
  int err = errno;
  free(*real);
  *real = NULL;
  return brim_fail(brim_errno_status(err), "cannot edit %s: %s", path, brim_errno_text(err));
}

static brim_status write_back(const char *path, const brim_config_edit_result *result) {
  char *real;
  BRIM_TRY(find_real(path, &real));
  brim_status status = brim_fs_write(real, result->after, result->after_size);
  free(real);
  return status;
}

brim_status brim_config_edit_check(const char *path) {
  char *real;
  BRIM_TRY(brim_fs_refused(find_real(path, &real)));
  brim_status status = brim_fs_check_target(real);
  free(real);
  return status;
}

brim_status brim_config_edit_file(const char *path, const brim_config_edit *edits, size_t count,
                                  brim_config_edit_result *out) {
  brim_config_edit_result result;
  BRIM_TRY(brim_config_edit_preview(path, edits, count, &result));
  brim_status status = result.changed ? write_back(path, &result) : BRIM_OK;
  if (!status && out) {
    *out = result;
  } else {
    brim_config_edit_result_deinit(&result);
    if (out) memset(out, 0, sizeof *out);
  }
  return status;
}

void brim_config_edit_result_deinit(brim_config_edit_result *result) {
  brim_free(result->before);
  brim_free(result->after);
  memset(result, 0, sizeof *result);
}
