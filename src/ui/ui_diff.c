// What changed between two texts, as a unified diff: for files of some hundred lines.
#include <string.h>

#include "ui/ui.h"

enum { CONTEXT = 2, MAX_CELLS = 4 << 20 };

typedef struct text_line {
  const char *text;
  size_t size;
} text_line;

typedef struct side {
  text_line *lines;
  size_t count;
} side;

static size_t count_lines(const char *text, size_t size) {
  size_t n = 0;
  for (size_t i = 0; i < size; i++) n += text[i] == '\n';
  return n + (size > 0 && text[size - 1] != '\n');
}

static brim_status split(const char *text, size_t size, side *out) {
  out->count = 0;
  out->lines = (text_line *)brim_calloc(count_lines(text, size) + 1, sizeof *out->lines);
  if (!out->lines) return brim_fail(BRIM_ENOMEM, "out of memory while comparing two texts");
  for (size_t at = 0; at < size;) {
    const char *end = (const char *)memchr(text + at, '\n', size - at);
    size_t n = end ? (size_t)(end - (text + at)) : size - at;
    out->lines[out->count++] = (text_line){text + at, n};
    at += n + 1;
  }
  return BRIM_OK;
}

static bool same(const text_line *a, const text_line *b) {
  return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

// One line of the diff: ' ', '-' or '+', and its numbers on both sides.
typedef struct change {
  char mark;
  size_t a, b;
} change;

// The lines that differ between `a` and `b`, by the longest common run of lines; too many for that
// are all taken out and put in.
static brim_status walk(const side *a, const side *b, change *out, size_t *count) {
  size_t n = a->count, m = b->count, i = 0, j = 0;
  *count = 0;
  bool fits = (n + 1) * (m + 1) <= MAX_CELLS;
  uint32_t *common = fits ? (uint32_t *)brim_calloc((n + 1) * (m + 1), sizeof *common) : NULL;
  if (fits && !common) return brim_fail(BRIM_ENOMEM, "out of memory while comparing two texts");
  for (size_t p = n; fits && p-- > 0;) {
    for (size_t q = m; q-- > 0;) {
      uint32_t *row = common + p * (m + 1), *next = row + m + 1;
      uint32_t longer = next[q] > row[q + 1] ? next[q] : row[q + 1];
      row[q] = same(&a->lines[p], &b->lines[q]) ? next[q + 1] + 1 : longer;
    }
  }
  while (i < n || j < m) {
    const uint32_t *row = fits ? common + i * (m + 1) : NULL;
    bool both = fits && i < n && j < m && same(&a->lines[i], &b->lines[j]);
    bool out_first = i < n && (!fits || j >= m || row[m + 1 + j] >= row[j + 1]);
    char mark = both ? ' ' : out_first ? '-' : '+';
    out[(*count)++] = (change){mark, i, j};
    i += mark != '+';
    j += mark != '-';
  }
  brim_free(common);
  return BRIM_OK;
}

static bool is_near(const change *list, size_t count, size_t at) {
  size_t first = at > CONTEXT ? at - CONTEXT : 0;
  size_t last = at + CONTEXT < count ? at + CONTEXT : count - 1;
  for (size_t i = first; i <= last; i++) {
    if (list[i].mark != ' ') return true;
  }
  return false;
}

static void put_line(brim_str *out, const brim_term *term, char mark, const text_line *line) {
  brim_str text;
  size_t size = line->size;
  if (size > 0 && line->text[size - 1] == '\r') size--;
  brim_str_init(&text);
  brim_str_append_char(&text, mark);
  brim_str_append_n(&text, line->text, size);
  brim_ui_style style = mark == '-' ? BRIM_UI_BAD : mark == '+' ? BRIM_UI_GOOD : BRIM_UI_PLAIN;
  if (brim_str_status(&text)) {
    out->status = brim_str_status(&text);
  } else {
    brim_ui_styled(out, term, style, text.data);
    brim_str_append_char(out, '\n');
  }
  brim_str_deinit(&text);
}

static size_t put_hunk(brim_str *out, const brim_term *term, const side *a, const side *b,
                       const change *list, size_t count, size_t at) {
  size_t end = at, old = 0, fresh = 0;
  for (; end < count && is_near(list, count, end); end++) {
    old += list[end].mark != '+';
    fresh += list[end].mark != '-';
  }
  brim_str_printf(out, "@@ -%zu,%zu +%zu,%zu @@\n", list[at].a + (old > 0), old,
                  list[at].b + (fresh > 0), fresh);
  for (; at < end; at++) {
    const change *c = &list[at];
    put_line(out, term, c->mark, c->mark == '+' ? &b->lines[c->b] : &a->lines[c->a]);
  }
  return end;
}

static brim_status put_hunks(brim_str *out, const brim_term *term, const side *a, const side *b) {
  size_t count = 0;
  change *list = (change *)brim_calloc(a->count + b->count + 1, sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "out of memory while comparing two texts");
  brim_status status = walk(a, b, list, &count);
  for (size_t i = 0; i < count && !status;) {
    i = is_near(list, count, i) ? put_hunk(out, term, a, b, list, count, i) : i + 1;
  }
  brim_free(list);
  return status ? status : brim_str_status(out);
}

brim_status brim_ui_diff(const brim_term *term, const char *name, const char *before,
                         size_t before_size, const char *after, size_t after_size, brim_str *out) {
  side a = {0}, b = {0};
  if (before_size == after_size && memcmp(before, after, before_size) == 0) return BRIM_OK;
  brim_status status = split(before, before_size, &a);
  if (!status) status = split(after, after_size, &b);
  if (!status) {
    brim_str_printf(out, "--- %s\n+++ %s\n", name, name);
    status = put_hunks(out, term, &a, &b);
  }
  brim_free(a.lines);
  brim_free(b.lines);
  return status;
}
