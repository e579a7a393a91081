// A terminal for tests: it reads a program's output and keeps the screen that a person would see. It knows the part of
// VT100 that brim sends; anything else counts as unknown.
#ifndef BRIM_TESTS_UI_TERMINAL_H_
#define BRIM_TESTS_UI_TERMINAL_H_

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { TERMINAL_MAX = 220, TERMINAL_ROWS = 70 };

typedef struct terminal_page {
  char cells[TERMINAL_ROWS][TERMINAL_MAX][8];  // one character; "" = the right half of a wide one
} terminal_page;

typedef struct terminal {
  int columns, rows;
  int row, column;  // position of the cursor, from 0
  bool alternate, cursor, wrap;
  terminal_page pages[2];
  char held[64];  // an incomplete sequence or character
  size_t held_size;
  int unknown;
  size_t bytes;
} terminal;

static inline void terminal_init(terminal *t, int columns, int rows) {
  memset(t, 0, sizeof *t);
  t->columns = columns;
  t->rows = rows;
  t->cursor = t->wrap = true;
  for (int p = 0; p < 2; p++) {
    for (int r = 0; r < TERMINAL_ROWS; r++) {
      for (int c = 0; c < TERMINAL_MAX; c++) memcpy(t->pages[p].cells[r][c], " ", 2);
    }
  }
}

static inline void terminal_erase(terminal *t, int row, int from) {
  for (int c = from; c < t->columns; c++) {
    memcpy(t->pages[t->alternate].cells[row][c], " ", 2);
  }
}

static inline void terminal_newline(terminal *t) {
  if (t->row + 1 < t->rows) {
    t->row++;
    return;
  }
  terminal_page *page = &t->pages[t->alternate];
  memmove(page->cells[0], page->cells[1], sizeof page->cells[0] * (size_t)(t->rows - 1));
  terminal_erase(t, t->rows - 1, 0);
}

static inline void terminal_put(terminal *t, const char *one) {
  int wide = brim_utf8_width(one);
  if (wide == 0) return;
  if (t->column + wide > t->columns) {
    if (t->wrap) {
      t->column = 0;
      terminal_newline(t);
    } else {
      t->column = t->columns - wide;  // the last place is overwritten
    }
  }
  terminal_page *page = &t->pages[t->alternate];
  snprintf(page->cells[t->row][t->column], 8, "%s", one);
  if (wide == 2) page->cells[t->row][t->column + 1][0] = '\0';
  t->column += wide;
}

static inline void terminal_mode(terminal *t, const char *mode, bool on) {
  if (strcmp(mode, "?1049") == 0) {
    t->alternate = on;
  } else if (strcmp(mode, "?25") == 0) {
    t->cursor = on;
  } else if (strcmp(mode, "?7") == 0) {
    t->wrap = on;
  } else {
    t->unknown++;
  }
}

// Parameters and the last letter of a sequence after "\033[".
static inline void terminal_control(terminal *t, const char *text, char last) {
  int a = 1, b = 1;
  (void)sscanf(text, "%d;%d", &a, &b);
  if (last == 'H') {
    t->row = a < 1 ? 0 : a > t->rows ? t->rows - 1 : a - 1;
    t->column = b < 1 ? 0 : b > t->columns ? t->columns - 1 : b - 1;
  } else if (last == 'K') {
    // A cursor beyond the last column is shown on that column.
    terminal_erase(t, t->row, t->column < t->columns ? t->column : t->columns - 1);
  } else if (last == 'J') {
    int from = *text == '2' ? 0 : t->row;
    for (int r = from; r < t->rows; r++)
      terminal_erase(t, r, *text == '2' || r > from ? 0 : t->column);
  } else if (last == 'h' || last == 'l') {
    terminal_mode(t, text, last == 'h');
  } else if (last != 'm') {
    t->unknown++;
  }
}

// Processes one complete character or sequence from `held`; false if it is incomplete.
static inline bool terminal_step(terminal *t) {
  unsigned char c = (unsigned char)t->held[0];
  t->held[t->held_size] = '\0';
  if (c == 0x1B) {
    if (t->held_size < 2) return false;
    char last = t->held[t->held_size - 1];
    if (t->held[1] != '[') {
      t->unknown++;
    } else if (t->held_size < 3 || last < '@' || last > '~') {
      return false;
    } else {
      t->held[t->held_size - 1] = '\0';
      terminal_control(t, t->held + 2, last);
    }
  } else if (c == '\n') {
    terminal_newline(t);
  } else if (c == '\r') {
    t->column = 0;
  } else if (c < ' ') {
    t->unknown++;
  } else {
    size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    if (t->held_size < need) return false;
    terminal_put(t, t->held);
  }
  t->held_size = 0;
  return true;
}

static inline void terminal_feed(terminal *t, const char *bytes, size_t n) {
  t->bytes += n;
  for (size_t i = 0; i < n; i++) {
    if (bytes[i] == '\033') t->held_size = 0;  // it ends an incomplete one
    if (t->held_size + 2 < sizeof t->held) t->held[t->held_size++] = bytes[i];
    (void)terminal_step(t);
  }
}

// A row as text without the spaces at its end.
static inline const char *terminal_row(const terminal *t, int row, char out[2048]) {
  size_t used = 0, end = 0;
  for (int c = 0; c < t->columns; c++) {
    const char *cell = t->pages[t->alternate].cells[row][c];
    used += (size_t)snprintf(out + used, 2048 - used, "%s", cell);
    if (*cell && *cell != ' ') end = used;
  }
  out[end] = '\0';
  return out;
}

#endif  // BRIM_TESTS_UI_TERMINAL_H_
