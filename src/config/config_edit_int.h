// Inside the editing of config files: a YAML document as it is written, each part with its bytes.
#ifndef BRIM_CONFIG_EDIT_INT_H_
#define BRIM_CONFIG_EDIT_INT_H_

#include "config/config_edit.h"
#include "config/config_int.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_config_span_kind {
  BRIM_CONFIG_SPAN_SCALAR,
  BRIM_CONFIG_SPAN_LIST,
  BRIM_CONFIG_SPAN_MAP,
  BRIM_CONFIG_SPAN_ALIAS,
  BRIM_CONFIG_SPAN_KIND_COUNT
} brim_config_span_kind;

// A value as written. Unlike brim_config_node nothing is expanded: aliases and merge keys stay what
// they are.
typedef struct brim_config_span brim_config_span;
struct brim_config_span {
  brim_config_span_kind kind;
  bool flow;          // [..] and {..}
  char quote;         // scalar: 0 plain, ' or ", | for block scalars
  size_t begin, end;  // bytes, anchor and tag included; nothing behind the last character
  int line, col;      // of the key where it is an entry of a map, from 1
  const char *text;   // scalar, or the alias's name
  const char *anchor;
  brim_config_span *key;  // entry of a map
  brim_config_span *parent, *first, *last, *next;
};

typedef struct brim_config_spans {
  brim_config_span *root;  // NULL for an empty document
  size_t end;              // of the document: where "..." stands, else the end of the text
} brim_config_spans;

// A text that brim_config_yaml_parse takes.
brim_status brim_config_spans_parse(brim_arena *arena, const char *text, size_t size,
                                    const char *name, brim_config_spans *out);
// The alias that uses an anchor, NULL when none does.
const brim_config_span *brim_config_spans_alias(const brim_config_span *root, const char *anchor);

// config_edit_comment.c: the comment in text[at, end), which begins behind a value and ends with its line;
// `end` when there is none. Stale: it names a word of the value before that the one after has not.
size_t brim_config_comment_find(const char *text, size_t at, size_t end);
bool brim_config_comment_is_stale(const char *comment, size_t size, const char *before,
                                  size_t before_size, const char *after);

// config_edit_text.c: one edit of a text. *shared gets the anchored part that an edit went into and
// that is used elsewhere too; NULL when there is none.
typedef struct brim_config_shared {
  const char *key, *anchor;
  int line, col, used_line;
} brim_config_shared;

brim_status brim_config_edit_once(brim_arena *arena, const char *name, brim_str *text,
                                  const brim_config_edit *edit, brim_config_shared *shared);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CONFIG_EDIT_INT_H_
