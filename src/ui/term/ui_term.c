// Text for an output stream: styles, clipping, wrapping, numbers, tables, progress lines, diffs. Pure functions of a
// brim_term; brim_term_detect alone asks the system (terminal size, environment).

#include "ui/term/ui_term.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/base_text.h"

static bool is_set(const char *text) { return text && *text; }

void brim_term_decide(const brim_term_facts *facts, brim_ui_colour colour, brim_term *out) {
  bool dumb = !is_set(facts->term) || strcmp(facts->term, "dumb") == 0;
  out->tty = facts->tty;
  out->redraw = facts->tty && !dumb;
  if (colour == BRIM_UI_COLOUR_ALWAYS) {
    out->colour = true;
  } else if (colour == BRIM_UI_COLOUR_NEVER || is_set(facts->no_color)) {
    out->colour = false;
  } else {
    bool forced = is_set(facts->clicolor_force) && strcmp(facts->clicolor_force, "0") != 0;
    out->colour = forced || out->redraw;
  }
  int64_t columns = 0;
  if (is_set(facts->env_columns) && brim_parse_i64(facts->env_columns, &columns) && columns > 0 &&
      columns <= 10000) {
    out->width = (int)columns;
  } else if (facts->tty) {
    out->width = facts->columns > 0 ? facts->columns : 80;
  } else {
    out->width = 0;
  }
  if (out->width > 0 && out->width < 20) out->width = 20;
  const char *locale = is_set(facts->lc_all)     ? facts->lc_all
                       : is_set(facts->lc_ctype) ? facts->lc_ctype
                       : is_set(facts->lang)     ? facts->lang
                                                 : "C";
  out->unicode = strcasestr(locale, "utf-8") || strcasestr(locale, "utf8");
}

void brim_term_detect(int fd, brim_ui_colour colour, brim_term *out) {
  struct winsize size = {0};
  bool tty = isatty(fd) == 1;
  brim_term_facts facts = {
      .tty = tty,
      .columns = tty && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0,
      .env_columns = getenv("COLUMNS"),
      .no_color = getenv("NO_COLOR"),
      .clicolor_force = getenv("CLICOLOR_FORCE"),
      .term = getenv("TERM"),
      .lc_all = getenv("LC_ALL"),
      .lc_ctype = getenv("LC_CTYPE"),
      .lang = getenv("LANG"),
  };
  brim_term_decide(&facts, colour, out);
}

//--------------------------------------------- text ---------------------------------------------

// The escape code of each style, then the code that ends any style. NULL ends the table.
static const char *const style_codes[BRIM_UI_STYLE_COUNT + 2] = {
    "",           "\033[1m",    "\033[2m", "\033[32m", "\033[33m", "\033[31m",
    "\033[1;36m", "\033[1;32m", "\033[7m", "\033[0m",  NULL};

void brim_ui_styled(brim_str *out, const brim_term *term, brim_ui_style style, const char *text) {
  if (!term->colour || style == BRIM_UI_PLAIN || !*text) {
    brim_str_append(out, text);
    return;
  }
  brim_str_append(out, style_codes[style]);
  brim_text_append_plain(out, text, strlen(text), NULL);
  brim_str_append(out, style_codes[BRIM_UI_STYLE_COUNT]);
}

void brim_ui_plain(brim_str *out, const brim_term *term, const char *text, size_t n) {
  brim_text_append_plain(out, text, n, term->colour ? style_codes + 1 : NULL);
}

// Copies one character and makes it harmless: tabs and newlines become spaces, other control characters '?'. Returns
// the columns it takes. *bytes: its size in `text`; 1 for a byte that begins no character.
static int take_char(const char *text, char out[8], size_t *bytes) {
  unsigned char c = (unsigned char)*text;
  size_t n = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
  for (size_t i = 1; i < n; i++) {
    if (((unsigned char)text[i] & 0xC0) != 0x80) n = 1;
  }
  *bytes = n;
  memcpy(out, text, *bytes);
  out[*bytes] = '\0';
  if (*text == '\t' || *text == '\n' || !brim_text_is_plain(out, *bytes)) {
    out[0] = *text == '\t' || *text == '\n' ? ' ' : '?';
    out[1] = '\0';
    return 1;
  }
  return brim_utf8_width(out);
}

void brim_ui_clip(brim_str *out, const brim_term *term, const char *text, int columns) {
  char character[8];
  size_t bytes;
  int total = 0;
  for (const char *p = text; *p; p += bytes) total += take_char(p, character, &bytes);
  const char *mark = term->unicode ? "…" : "~";
  bool cut = columns > 0 && total > columns;
  int room = cut ? columns - 1 : total;
  int used = 0;
  for (const char *p = text; *p; p += bytes) {
    int w = take_char(p, character, &bytes);
    if (used + w > room) break;
    used += w;
    brim_str_append(out, character);
  }
  if (!cut) return;
  brim_str_append(out, mark);
  // Fill the column that is free if a wide character did not fit.
  brim_str_repeat(out, ' ', (size_t)(columns - 1 - used));
}

void brim_ui_put_clipped(brim_str *out, const brim_term *term, brim_ui_style style,
                         const char *text, int columns) {
  if (columns < 1 || !*text) return;
  brim_str clipped;
  brim_str_init(&clipped);
  brim_ui_clip(&clipped, term, text, columns);
  brim_ui_styled(out, term, style, clipped.data);
  if (clipped.status && !out->status) out->status = clipped.status;
  brim_str_deinit(&clipped);
}

void brim_ui_heading(brim_str *out, const brim_term *term, const char *text) {
  int width = term->width && term->width < 80 ? term->width : 80;
  brim_str rule;
  brim_str_init(&rule);
  for (int i = 0; i < width; i++) brim_str_append(&rule, term->unicode ? "═" : "=");
  brim_ui_styled(out, term, BRIM_UI_DIM, rule.data);
  brim_str_append_char(out, '\n');
  brim_ui_styled(out, term, BRIM_UI_TITLE, text);
  brim_str_append_char(out, '\n');
  brim_ui_styled(out, term, BRIM_UI_DIM, rule.data);
  brim_str_append_char(out, '\n');
  if (brim_str_status(&rule) && !out->status) out->status = rule.status;
  brim_str_deinit(&rule);
}

void brim_ui_wrap(brim_str *out, const brim_term *term, const char *text, int indent) {
  int width = term->width && term->width < 100 ? term->width : term->width ? 100 : 80;
  int column = indent;
  bool first = true;
  while (*text) {
    size_t n = strcspn(text, " ");
    char word[256];
    size_t copied = n < sizeof word ? n : sizeof word - 1;
    memcpy(word, text, copied);
    word[copied] = '\0';
    int w = brim_utf8_width(word);
    if (!first && column + 1 + w > width) {
      brim_str_append_char(out, '\n');
      brim_str_repeat(out, ' ', (size_t)indent);
      column = indent;
    } else if (!first) {
      brim_str_append_char(out, ' ');
      column++;
    }
    brim_str_append_n(out, text, n);
    column += w;
    first = false;
    text += n;
    while (*text == ' ') text++;
  }
}

// The columns of a styled text; escape codes take no column.
static int styled_width(const char *text, size_t n) {
  brim_str plain;
  brim_str_init(&plain);
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '\033') {
      while (i < n && text[i] != 'm') i++;
    } else {
      brim_str_append_char(&plain, text[i]);
    }
  }
  const int width = brim_utf8_width(plain.data);
  brim_str_deinit(&plain);
  return width;
}

void brim_ui_wrap_parts(brim_str *out, const brim_term *term, const char *line, int indent) {
  if (!term->tty || term->width <= 0 || styled_width(line, strlen(line)) <= term->width) {
    brim_str_append(out, line);
    return;
  }
  int column = 0;
  while (*line) {
    const char *gap = strstr(line, "  ");
    const size_t n = gap ? (size_t)(gap - line) : strlen(line);
    const int w = styled_width(line, n);
    if (column > 0 && column + 2 + w > term->width) {
      brim_str_append_char(out, '\n');
      brim_str_repeat(out, ' ', (size_t)indent);
      column = indent;
    } else if (column > 0) {
      brim_str_append(out, "  ");
      column += 2;
    }
    brim_str_append_n(out, line, n);
    column += w;
    line += n;
    line += strspn(line, " ");
  }
}

void brim_ui_fit(brim_str *out, const brim_term *term, const char *text, int indent) {
  if (term->width <= 0 || indent + brim_utf8_width(text) <= term->width) {
    brim_str_append(out, text);
  } else {
    brim_ui_wrap(out, term, text, indent);
  }
}

//------------------------------------------- numbers -------------------------------------------

void brim_ui_ms(double value, char out[32]) {
  if (fabs(value) >= 999.5) {
    snprintf(out, 32, "%.0f", brim_shown(value));
  } else {
    brim_format_figure(value, out);
  }
}

void brim_ui_time_of_day(double when_s, const char *unknown, char out[16]) {
  struct tm local;
  time_t when = fabs(when_s) < 1e11 ? (time_t)when_s : 0;
  if (!(fabs(when_s) < 1e11) || !localtime_r(&when, &local)) {
    snprintf(out, 16, "%s", unknown);
    return;
  }
  snprintf(out, 16, "%02d:%02d:%02d", local.tm_hour % 24, local.tm_min % 60, local.tm_sec % 61);
}

const char *brim_ui_failure_class(brim_failure failure) {
  static const char *const texts[BRIM_FAILURE_COUNT] = {
      [BRIM_FAILURE_NONE] = BRIM_N_("ok"),
      [BRIM_FAILURE_OOM_PLANNED] = BRIM_N_("OOM (planned)"),
      [BRIM_FAILURE_OOM_DEVICE] = BRIM_N_("OOM"),
      [BRIM_FAILURE_OOM_HOST] = BRIM_N_("OOM (host)"),
      [BRIM_FAILURE_SHARED_MEMORY] = BRIM_N_("no shared memory"),
      [BRIM_FAILURE_BAD_CONFIG] = BRIM_N_("bad config"),
      [BRIM_FAILURE_UNSUPPORTED] = BRIM_N_("unsupported"),
      [BRIM_FAILURE_CRASH] = BRIM_N_("crashed"),
      [BRIM_FAILURE_INTERRUPTED] = BRIM_N_("stopped"),
      [BRIM_FAILURE_NAN] = BRIM_N_("NaN"),
      [BRIM_FAILURE_DATA] = BRIM_N_("bad data"),
      [BRIM_FAILURE_KILLED] = BRIM_N_("killed"),
      [BRIM_FAILURE_HUNG] = BRIM_N_("hung"),
      [BRIM_FAILURE_INFRASTRUCTURE] = BRIM_N_("machine failed"),
      [BRIM_FAILURE_OTHER] = BRIM_N_("failed"),
  };
  if ((unsigned)failure >= BRIM_FAILURE_COUNT) return brim_tr("failed");
  return brim_tr(texts[failure]);
}

//-------------------------------------------- tables --------------------------------------------

enum { GAP = 2 };

static const char *header_of(const brim_ui_column *column, bool use_short) {
  return use_short && column->short_header ? column->short_header : column->header;
}

static int row_width(const int *widths, size_t count) {
  int total = 0;
  for (size_t i = 0; i < count; i++) {
    if (widths[i] > 0) total += widths[i] + (total > 0 ? GAP : 0);
  }
  return total;
}

static void natural_widths(const brim_ui_column *columns, const int *natural, size_t count,
                           bool use_short, int *out) {
  for (size_t i = 0; i < count; i++) {
    int header = brim_utf8_width(header_of(&columns[i], use_short));
    out[i] = natural[i] > header ? natural[i] : header;
    if (out[i] < 1) out[i] = 1;
  }
}

// The shown column with the highest priority number, at least min_priority; -1 if there is none. `shrinkable`: only
// columns that can still shrink.
static int least_important(const brim_ui_column *columns, const int *widths, size_t count,
                           int min_priority, bool shrinkable) {
  int best = -1;
  for (size_t i = 0; i < count; i++) {
    if (widths[i] == 0 || columns[i].priority < min_priority) continue;
    if (shrinkable && (columns[i].min_width == 0 || widths[i] <= columns[i].min_width)) continue;
    if (best < 0 || columns[i].priority >= columns[best].priority) best = (int)i;
  }
  return best;
}

void brim_ui_layout(const brim_ui_column *columns, const int *natural, size_t count, int width,
                    uint64_t together, int *out, bool *use_short) {
  *use_short = false;
  natural_widths(columns, natural, count, false, out);
  if (width <= 0 || row_width(out, count) <= width) return;
  *use_short = true;
  natural_widths(columns, natural, count, true, out);
  int at;
  while (row_width(out, count) > width &&
         (at = least_important(columns, out, count, 0, true)) >= 0) {
    int excess = row_width(out, count) - width;
    int left = out[at] - columns[at].min_width;
    out[at] -= excess < left ? excess : left;
  }
  while (row_width(out, count) > width &&
         (at = least_important(columns, out, count, 1, false)) >= 0) {
    bool with_group = together >> at & 1;
    for (size_t i = 0; i < count; i++) {
      if ((int)i == at || (with_group && together >> i & 1)) out[i] = 0;
    }
  }
  while (row_width(out, count) > width) {
    size_t widest = 0;
    for (size_t i = 1; i < count; i++) {
      if (out[i] > out[widest]) widest = i;
    }
    if (out[widest] <= 1) break;
    out[widest]--;
  }
  // If columns of width 1 still do not fit, drop columns from the right.
  while (row_width(out, count) > width) {
    size_t last = count;
    while (last > 1 && out[last - 1] == 0) last--;
    if (last <= 1) break;
    out[last - 1] = 0;
  }
}

void brim_ui_table_init(brim_ui_table *table, const brim_ui_column *columns, size_t count) {
  memset(table, 0, sizeof *table);
  table->columns = columns;
  table->column_count = count;
}

void brim_ui_table_deinit(brim_ui_table *table) {
  for (size_t i = 0; i < table->cell_count; i++) brim_free(table->cells[i].text);
  brim_free(table->cells);
  memset(table, 0, sizeof *table);
}

void brim_ui_table_add(brim_ui_table *table, brim_ui_style style, const char *fmt, ...) {
  if (table->status) return;
  if (table->cell_count == table->cap) {
    size_t cap = table->cap ? table->cap * 2 : 64;
    brim_ui_cell *cells = brim_realloc(table->cells, cap * sizeof *cells);
    if (!cells) {
      table->status = brim_fail(BRIM_ENOMEM, "out of memory while laying out a table");
      return;
    }
    table->cells = cells;
    table->cap = cap;
  }
  brim_str text;
  brim_str_init(&text);
  va_list args;
  va_start(args, fmt);
  brim_str_vprintf(&text, fmt, args);
  va_end(args);
  table->status = brim_str_status(&text);
  char *kept_text = table->status ? NULL : brim_str_take(&text);
  if (!kept_text) {
    if (!table->status) table->status = brim_fail(BRIM_ENOMEM, "out of memory");
    brim_str_deinit(&text);
    return;
  }
  table->cells[table->cell_count++] = (brim_ui_cell){kept_text, style};
}

void brim_ui_put_cell(brim_str *out, const brim_term *term, brim_ui_align align,
                      brim_ui_style style, const char *text, int width) {
  brim_str cell;
  brim_str_init(&cell);
  brim_ui_clip(&cell, term, text, width);
  int used = brim_utf8_width(cell.data);
  size_t pad = used < width ? (size_t)(width - used) : 0;
  if (align == BRIM_UI_RIGHT) brim_str_repeat(out, ' ', pad);
  brim_ui_styled(out, term, style, cell.data);
  if (align == BRIM_UI_LEFT) brim_str_repeat(out, ' ', pad);
  if (brim_str_status(&cell) && !out->status) out->status = cell.status;
  brim_str_deinit(&cell);
}

static void put_row(brim_str *out, const brim_term *term, const brim_ui_table *table,
                    const brim_ui_cell *cells, const int *widths) {
  size_t last = table->column_count;
  while (last > 0 && widths[last - 1] == 0) last--;
  bool first = true;
  for (size_t i = 0; i < last; i++) {
    if (widths[i] == 0) continue;
    if (!first) brim_str_repeat(out, ' ', GAP);
    first = false;
    // The last column needs no padding on its right.
    if (i + 1 == last && table->columns[i].align == BRIM_UI_LEFT) {
      brim_ui_put_clipped(out, term, cells[i].style, cells[i].text, widths[i]);
    } else {
      brim_ui_put_cell(out, term, table->columns[i].align, cells[i].style, cells[i].text,
                       widths[i]);
    }
  }
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_table_render(const brim_ui_table *table, const brim_term *term, brim_str *out,
                                 int *left_out) {
  int natural[BRIM_UI_MAX_COLUMNS] = {0}, widths[BRIM_UI_MAX_COLUMNS] = {0};
  brim_ui_cell header[BRIM_UI_MAX_COLUMNS];
  size_t count = table->column_count;
  bool use_short;
  if (left_out) *left_out = 0;
  if (table->status) return table->status;
  if (count == 0 || count > BRIM_UI_MAX_COLUMNS || table->cell_count % count != 0) {
    return brim_fail(BRIM_EINVAL, "a table of %zu cells does not have %zu columns",
                     table->cell_count, count);
  }
  brim_str clean;  // the text of a cell without control characters
  brim_str_init(&clean);
  for (size_t i = 0; i < table->cell_count; i++) {
    brim_str_clear(&clean);
    brim_ui_clip(&clean, term, table->cells[i].text, 0);
    int w = brim_utf8_width(clean.data);
    if (w > natural[i % count]) natural[i % count] = w;
  }
  brim_status status = brim_str_status(&clean);
  brim_str_deinit(&clean);
  if (status) return status;
  brim_ui_layout(table->columns, natural, count, term->width, table->together, widths, &use_short);
  for (size_t i = 0; i < count; i++) {
    const char *text = header_of(&table->columns[i], use_short);
    header[i] = (brim_ui_cell){(char *)(uintptr_t)text, BRIM_UI_BOLD};
    if (left_out && widths[i] == 0) ++*left_out;
  }
  put_row(out, term, table, header, widths);
  if (!table->no_rule) {
    if (term->colour) brim_str_append(out, "\033[2m");
    for (int i = row_width(widths, count); i > 0; i--) {
      brim_str_append(out, term->unicode ? "─" : "-");
    }
    if (term->colour) brim_str_append(out, "\033[0m");
    brim_str_append_char(out, '\n');
  }
  for (size_t i = 0; i < table->cell_count; i += count) {
    put_row(out, term, table, &table->cells[i], widths);
  }
  return brim_str_status(out);
}

void brim_ui_note_left_out(const brim_term *term, int left_out, brim_str *out) {
  if (left_out == 0) return;
  char note[128];
  snprintf(note, sizeof note,
           left_out == 1 ? brim_tr("%d column left out: a wider terminal or --json shows it")
                         : brim_tr("%d columns left out: a wider terminal or --json shows them"),
           left_out);
  brim_str text;
  brim_str_init(&text);
  brim_ui_wrap(&text, term, note, 0);
  brim_ui_styled(out, term, BRIM_UI_DIM, text.data);
  brim_str_append_char(out, '\n');
  brim_str_deinit(&text);
}

//----------------------------------------- differences -----------------------------------------
// A unified diff of two texts of some hundred lines each.

enum { CONTEXT = 2, MAX_CELLS = 4 << 20 };

typedef struct text_line {
  const char *text;
  size_t size;
} text_line;

typedef struct side {
  text_line *lines;
  size_t count;
} side;

static brim_status split(const char *text, size_t size, side *out) {
  size_t most = 1;
  for (size_t i = 0; i < size; i++) most += text[i] == '\n';
  out->count = 0;
  out->lines = (text_line *)brim_calloc(most, sizeof *out->lines);
  if (!out->lines) return brim_fail(BRIM_ENOMEM, "out of memory while comparing two texts");
  for (size_t at = 0; at < size;) {
    const char *end = (const char *)memchr(text + at, '\n', size - at);
    size_t n = end ? (size_t)(end - (text + at)) : size - at;
    out->lines[out->count++] = (text_line){text + at, n};
    at += n + 1;
  }
  return BRIM_OK;
}

static bool same_line(const text_line *a, const text_line *b) {
  return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

// One line of the diff: its mark (' ', '-' or '+') and its index in both texts; in a text without this line, the index
// of the next line there.
typedef struct change {
  char mark;
  size_t a, b;
} change;

// Lists the lines of both texts with their marks, by the longest common subsequence. If the texts are too large for the
// table of the subsequence, all lines of `a` are removed and all lines of `b` added.
static brim_status list_changes(const side *a, const side *b, change *out, size_t *count) {
  size_t n = a->count, m = b->count, i = 0, j = 0;
  *count = 0;
  bool fits = (n + 1) * (m + 1) <= MAX_CELLS;
  uint32_t *common = fits ? (uint32_t *)brim_calloc((n + 1) * (m + 1), sizeof *common) : NULL;
  if (fits && !common) return brim_fail(BRIM_ENOMEM, "out of memory while comparing two texts");
  for (size_t p = n; fits && p-- > 0;) {
    for (size_t q = m; q-- > 0;) {
      uint32_t *row = common + p * (m + 1), *next = row + m + 1;
      uint32_t longer = next[q] > row[q + 1] ? next[q] : row[q + 1];
      row[q] = same_line(&a->lines[p], &b->lines[q]) ? next[q + 1] + 1 : longer;
    }
  }
  while (i < n || j < m) {
    const uint32_t *row = fits ? common + i * (m + 1) : NULL;
    bool both = fits && i < n && j < m && same_line(&a->lines[i], &b->lines[j]);
    bool out_first = i < n && (!fits || j >= m || row[m + 1 + j] >= row[j + 1]);
    char mark = both ? ' ' : out_first ? '-' : '+';
    out[(*count)++] = (change){mark, i, j};
    i += mark != '+';
    j += mark != '-';
  }
  brim_free(common);
  return BRIM_OK;
}

// True if line `at` is within CONTEXT lines of a change.
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

static brim_status put_hunks(brim_str *out, const brim_term *term, const side *a, const side *b) {
  size_t count = 0;
  change *list = (change *)brim_calloc(a->count + b->count + 1, sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "out of memory while comparing two texts");
  brim_status status = list_changes(a, b, list, &count);
  for (size_t at = 0; at < count && !status;) {
    if (!is_near(list, count, at)) {
      at++;
      continue;
    }
    size_t end = at, old_lines = 0, new_lines = 0;
    for (; end < count && is_near(list, count, end); end++) {
      old_lines += list[end].mark != '+';
      new_lines += list[end].mark != '-';
    }
    brim_str_printf(out, "@@ -%zu,%zu +%zu,%zu @@\n", list[at].a + (old_lines > 0), old_lines,
                    list[at].b + (new_lines > 0), new_lines);
    for (; at < end; at++) {
      const change *c = &list[at];
      put_line(out, term, c->mark, c->mark == '+' ? &b->lines[c->b] : &a->lines[c->a]);
    }
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

//------------------------------------------- progress -------------------------------------------

enum { PART_SIZE = 160, BAR_MAX = 30, BAR_MIN = 8 };

// A part of the line. When space is short, the part with the highest `drop` is left out first; 0 always stays.
typedef struct part {
  char text[PART_SIZE];
  int drop;
  int width;
  bool used;
} part;

enum {
  PART_TITLE,
  PART_BAR,
  PART_PERCENT,
  PART_COUNT_DONE,
  PART_RATE,
  PART_ETA,
  PART_FIGURE,
  PART_FIGURES,
  PART_SHARES,
  PART_TOTAL
};

static const int part_drop[PART_TOTAL] = {
    [PART_TITLE] = 0, [PART_BAR] = 5,    [PART_PERCENT] = 1, [PART_COUNT_DONE] = 7, [PART_RATE] = 3,
    [PART_ETA] = 4,   [PART_FIGURE] = 2, [PART_FIGURES] = 8, [PART_SHARES] = 6,
};

// Widths reserved for parts whose text grows and shrinks, so that the redrawn line does not jitter.
static const int part_reserve[PART_TOTAL] = {
    [PART_RATE] = 17, [PART_ETA] = 8, [PART_FIGURE] = 11, [PART_FIGURES] = 10, [PART_SHARES] = 28,
};

static double fraction(const brim_progress *p) {
  if (p->total <= 0) return NAN;
  double f = (double)p->done / (double)p->total;
  return f < 0 ? 0 : f > 1 ? 1 : f;
}

// "io 3% fwd 31% bwd 58% opt 8%"; shares that round to 0 are left out.
static void shares_text(const brim_progress *p, char *out, size_t size) {
  static const char *const names[BRIM_PHASE_COUNT] = {
      [BRIM_PHASE_IO] = "io",         [BRIM_PHASE_TRANSFORM] = "tf",
      [BRIM_PHASE_H2D] = "h2d",       [BRIM_PHASE_COMPUTE] = "compute",
      [BRIM_PHASE_FORWARD] = "fwd",   [BRIM_PHASE_BACKWARD] = "bwd",
      [BRIM_PHASE_OPTIMIZER] = "opt", [BRIM_PHASE_ENV] = "env",
      [BRIM_PHASE_ACT] = "act",       [BRIM_PHASE_UPDATE] = "upd",
      [BRIM_PHASE_OTHER] = "other",
  };
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    double share = p->phase_share[i];
    if (!(share >= 0.005)) continue;
    int n = snprintf(out + used, size - used, "%s%s %.0f%%", used ? " " : "", names[i],
                     brim_shown(share * 100));
    if (n < 0 || (size_t)n >= size - used) break;
    used += (size_t)n;
  }
}

static void set_part(part *parts, int index, const char *text) {
  snprintf(parts[index].text, PART_SIZE, "%.*s", PART_SIZE - 1, text);
  parts[index].used = text[0] != '\0';
}

// Sets the parts of training figures: the first figure ("loss 0.3123"), and all other figures ("acc 90.9 %").
static void figure_parts(const brim_progress *p, part *parts) {
  char texts[8][BRIM_METRIC_TEXT], others[PART_SIZE];
  if (!p->metrics || !p->values) return;
  size_t n = brim_metric_parts(p->metrics, BRIM_METRIC_LINE_PROGRESS, p->values, p->baseline, texts,
                               sizeof texts / sizeof *texts);
  if (n == 0) return;
  set_part(parts, PART_FIGURE, texts[0] + 2);  // without the two spaces in front
  size_t used = 0;
  others[0] = '\0';
  for (size_t i = 1; i < n && used < sizeof others; i++) {
    used += (size_t)snprintf(others + used, sizeof others - used, "%s%s", i > 1 ? "  " : "",
                             texts[i] + 2);
  }
  set_part(parts, PART_FIGURES, others);
}

static void fill_parts(const brim_progress *p, part *parts) {
  char text[PART_SIZE], number[32];
  for (int i = 0; i < PART_TOTAL; i++) parts[i] = (part){.drop = part_drop[i]};
  set_part(parts, PART_TITLE, p->title ? p->title : "");
  if (p->epochs > 0) {
    snprintf(text, sizeof text, brim_tr("epoch %lld/%lld"), (long long)p->epoch,
             (long long)p->epochs);
    set_part(parts, PART_TITLE, text);
  }
  double f = fraction(p);
  if (!isnan(f)) {
    snprintf(text, sizeof text, "%3.0f %%", floor(brim_shown(f * 100)));
    set_part(parts, PART_PERCENT, text);
    parts[PART_BAR].used = true;
  }
  brim_format_count((double)p->done, number);
  if (p->total > 0) {
    char total[32];
    brim_format_count((double)p->total, total);
    snprintf(text, sizeof text, "%s/%s", number, total);
    set_part(parts, PART_COUNT_DONE, text);
  } else if (p->done >= 0) {
    snprintf(text, sizeof text, brim_tr("%s steps"), number);
    set_part(parts, PART_COUNT_DONE, text);
  }
  if (!isnan(p->rate)) {
    brim_format_figure(p->rate, number);
    snprintf(text, sizeof text, "%s %s/s", number, brim_tr(p->unit ? p->unit : BRIM_N_("samples")));
    set_part(parts, PART_RATE, text);
  }
  if (!isnan(p->eta_s) && p->eta_s >= 0) {
    brim_format_duration(p->eta_s < 1 ? 1 : floor(p->eta_s), number);
    snprintf(text, sizeof text, brim_tr("ETA %s"), number);
    set_part(parts, PART_ETA, text);
  }
  figure_parts(p, parts);
  shares_text(p, text, sizeof text);
  set_part(parts, PART_SHARES, text);
}

static void measure_parts(part *parts, const brim_progress *p, bool redraw) {
  for (int i = 0; i < PART_TOTAL; i++) {
    parts[i].width = i == PART_BAR ? BAR_MIN : brim_utf8_width(parts[i].text);
    if (redraw && parts[i].width < part_reserve[i]) parts[i].width = part_reserve[i];
  }
  if (redraw && p->total > 0) {
    char total[32];
    brim_format_count((double)p->total, total);
    int widest = 2 * brim_utf8_width(total) + 1;
    if (parts[PART_COUNT_DONE].width < widest) parts[PART_COUNT_DONE].width = widest;
  }
}

static int line_width(const part *parts) {
  int total = 0;
  for (int i = 0; i < PART_TOTAL; i++) {
    if (parts[i].used) total += parts[i].width + (total > 0 ? 2 : 0);
  }
  return total;
}

// Drops parts until the line fits.
static void fit_parts(part *parts, int width) {
  while (line_width(parts) > width) {
    int worst = -1;
    for (int i = 0; i < PART_TOTAL; i++) {
      if (parts[i].used && parts[i].drop > 0 && (worst < 0 || parts[i].drop > parts[worst].drop)) {
        worst = i;
      }
    }
    if (worst < 0) return;
    parts[worst].used = false;
  }
}

static void put_bar(brim_str *out, const brim_term *term, double f, int width) {
  int full = (int)floor(f * width);
  if (term->colour) brim_str_append(out, "\033[36m");
  if (!term->unicode) brim_str_append_char(out, '[');
  int cells = term->unicode ? width : width - 2;
  if (!term->unicode) full = (int)floor(f * cells);
  for (int i = 0; i < cells; i++) {
    if (i == full && term->colour) brim_str_append(out, "\033[2m");
    brim_str_append(out, i < full ? (term->unicode ? "━" : "#") : (term->unicode ? "─" : "."));
  }
  if (!term->unicode) brim_str_append_char(out, ']');
  if (term->colour) brim_str_append(out, "\033[0m");
}

void brim_ui_progress_line(const brim_progress *progress, const brim_term *term, brim_str *out) {
  part parts[PART_TOTAL];
  fill_parts(progress, parts);
  measure_parts(parts, progress, term->redraw);
  if (!term->redraw) parts[PART_BAR].used = false;
  int width = term->redraw && term->width ? term->width - 1 : 0;
  if (width > 0) fit_parts(parts, width);
  int left = width > 0 ? width - line_width(parts) : BAR_MAX;
  int bar = BAR_MIN + left < BAR_MAX ? BAR_MIN + left : BAR_MAX;
  bool first = true;
  int pad = 0;  // columns reserved for the previous part that its text did not use
  for (int i = 0; i < PART_TOTAL; i++) {
    if (!parts[i].used) continue;
    if (!first) brim_str_repeat(out, ' ', (size_t)(2 + pad));
    first = false;
    pad = 0;
    if (i == PART_BAR) {
      put_bar(out, term, fraction(progress), bar);
    } else if (i == PART_TITLE) {
      brim_ui_put_clipped(out, term, BRIM_UI_BOLD, parts[i].text, width > 0 ? width : PART_SIZE);
    } else {
      brim_ui_styled(out, term, i == PART_SHARES ? BRIM_UI_DIM : BRIM_UI_PLAIN, parts[i].text);
      pad = parts[i].width - brim_utf8_width(parts[i].text);
    }
  }
}

void brim_ui_progress_init(brim_ui_progress *state) { memset(state, 0, sizeof *state); }

void brim_ui_progress_update(brim_ui_progress *state, const brim_term *term,
                             const brim_progress *progress, brim_time now, brim_str *out) {
  const int64_t interval_ns = term->redraw ? 100000000 : 10000000000;
  if (!state->started) {
    state->started = true;
    state->last = now;
    if (!term->redraw) return;  // the first plain line comes after one interval
  } else if (brim_time_since_ns(state->last, now) < interval_ns) {
    return;
  }
  state->last = now;
  if (term->redraw) {
    brim_str_append(out, "\r\033[2K");
    brim_ui_progress_line(progress, term, out);
  } else {
    brim_str line;
    brim_str_init(&line);
    brim_ui_progress_line(progress, term, &line);
    if (!line.status && strncmp(line.data, state->printed, sizeof state->printed - 1) != 0) {
      snprintf(state->printed, sizeof state->printed, "%s", line.data);
      brim_str_printf(out, "%s\n", line.data);
    }
    brim_str_deinit(&line);
  }
  state->on_screen = term->redraw;
}

void brim_ui_progress_clear(brim_ui_progress *state, const brim_term *term, brim_str *out) {
  if (!state->on_screen || !term->redraw) return;
  brim_str_append(out, "\r\033[2K");
  state->on_screen = false;
}
