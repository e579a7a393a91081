// What an output stream can show, and styled, clipped and wrapped text for it. The only file of the
// room that asks the outside (terminal size, environment); the decision itself is a pure function.

#include "ui/ui.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base_text.h"

static bool given(const char *text) { return text && *text; }

static bool names_utf8(const char *locale) {
  return strcasestr(locale, "utf-8") || strcasestr(locale, "utf8");
}

static bool decide_colour(const brim_term_facts *facts, brim_ui_colour colour, bool capable) {
  if (colour == BRIM_UI_COLOUR_ALWAYS) return true;
  if (colour == BRIM_UI_COLOUR_NEVER || given(facts->no_color)) return false;
  if (given(facts->clicolor_force) && strcmp(facts->clicolor_force, "0") != 0) return true;
  return capable;
}

void brim_term_decide(const brim_term_facts *facts, brim_ui_colour colour, brim_term *out) {
  bool dumb = !given(facts->term) || strcmp(facts->term, "dumb") == 0;
  out->tty = facts->tty;
  out->redraw = facts->tty && !dumb;
  out->colour = decide_colour(facts, colour, out->redraw);
  int64_t columns = 0;
  if (given(facts->env_columns) && brim_parse_i64(facts->env_columns, &columns) && columns > 0 &&
      columns <= 10000) {
    out->width = (int)columns;
  } else if (facts->tty) {
    out->width = facts->columns > 0 ? facts->columns : 80;
  } else {
    out->width = 0;
  }
  if (out->width > 0 && out->width < 20) out->width = 20;
  const char *locale = given(facts->lc_all)     ? facts->lc_all
                       : given(facts->lc_ctype) ? facts->lc_ctype
                       : given(facts->lang)     ? facts->lang
                                                : "C";
  out->unicode = names_utf8(locale);
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

// By style; the last one ends any of them. NULL ends the table.
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

// Bytes of the character at text; 1 for a byte that starts none.
static size_t char_size(const char *text) {
  unsigned char c = (unsigned char)*text;
  size_t n = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
  for (size_t i = 1; i < n; i++) {
    if (((unsigned char)text[i] & 0xC0) != 0x80) return 1;
  }
  return n;
}

// One character made harmless; returns its columns and how many bytes it took.
static int take_char(const char *text, char out[8], size_t *bytes) {
  *bytes = char_size(text);
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
  char one[8];
  size_t bytes;
  int total = 0;
  for (const char *p = text; *p; p += bytes) total += take_char(p, one, &bytes);
  const char *mark = term->unicode ? "…" : "~";
  bool cut = columns > 0 && total > columns;
  int room = cut ? columns - 1 : total;
  int used = 0;
  for (const char *p = text; *p; p += bytes) {
    int w = take_char(p, one, &bytes);
    if (used + w > room) break;
    used += w;
    brim_str_append(out, one);
  }
  if (!cut) return;
  // A wide character that did not fit leaves a column over.
  brim_str_append(out, mark);
  brim_str_repeat(out, ' ', (size_t)(columns - 1 - used));
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

// Columns of a text whose styles take none.
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
