// Comments behind a value that an edit replaces: one that names the old value is false afterwards and
// goes; any other stays. Called by config_edit_text.c.
#include <stdlib.h>
#include <string.h>

#include "config/config_edit_int.h"

enum { MAX_WORD = 64 };

// The next word of letters, digits and what numbers have; false at the end. A full stop ends a sentence,
// not a word.
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

// 3e-4 and 0.0003 are one.
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

bool brim_config_comment_is_stale(const char *comment, size_t size, const char *before,
                                  size_t before_size, const char *after) {
  char word[MAX_WORD];
  for (size_t at = 0; next_word(before, before_size, &at, word);) {
    if (!*word || has_word(after, strlen(after), word)) continue;
    if (has_word(comment, size, word)) return true;
  }
  return false;
}

size_t brim_config_comment_find(const char *text, size_t at, size_t end) {
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
