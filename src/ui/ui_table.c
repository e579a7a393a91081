// Tables that fit the width. The layout is a pure function of widths; rendering only follows it.
#include "ui/ui.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { GAP = 2 };

//---------------------------------- layout ----------------------------------

static int header_width(const brim_ui_column *column, bool use_short) {
  const char *text = use_short && column->short_header ? column->short_header : column->header;
  return brim_utf8_width(text);
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
    int header = header_width(&columns[i], use_short);
    out[i] = natural[i] > header ? natural[i] : header;
    if (out[i] < 1) out[i] = 1;
  }
}

// The least important column that is still there and that `wanted` accepts; -1 when none.
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

static int widest(const int *widths, size_t count) {
  int best = 0;
  for (size_t i = 1; i < count; i++) {
    if (widths[i] > widths[best]) best = (int)i;
  }
  return best;
}

// Leaves a column out, and with it those that say little without it.
static void leave_out(int *widths, size_t count, int at, uint64_t together) {
  bool all = together >> at & 1;
  for (size_t i = 0; i < count; i++) {
    if ((int)i == at || (all && together >> i & 1)) widths[i] = 0;
  }
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
    int over = row_width(out, count) - width;
    int left = out[at] - columns[at].min_width;
    out[at] -= over < left ? over : left;
  }
  while (row_width(out, count) > width &&
         (at = least_important(columns, out, count, 1, false)) >= 0) {
    leave_out(out, count, at, together);
  }
  while (row_width(out, count) > width && out[at = widest(out, count)] > 1) out[at]--;
  while (row_width(out, count) > width) {  // more columns than places: from the right
    size_t last = count;
    while (last > 1 && out[last - 1] == 0) last--;
    if (last <= 1) break;
    out[last - 1] = 0;
  }
}

//---------------------------------- cells ----------------------------------

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
  char *taken = table->status ? NULL : brim_str_take(&text);
  if (!taken) {
    if (!table->status) table->status = brim_fail(BRIM_ENOMEM, "out of memory");
    brim_str_deinit(&text);
    return;
  }
  table->cells[table->cell_count++] = (brim_ui_cell){taken, style};
}

//---------------------------------- rendering ----------------------------------

static void put_cell(brim_str *out, const brim_term *term, const brim_ui_column *column,
                     const brim_ui_cell *cell, int width, bool last) {
  brim_str text;
  brim_str_init(&text);
  brim_ui_clip(&text, term, cell->text, width);
  int used = brim_utf8_width(text.data);
  size_t pad = used < width ? (size_t)(width - used) : 0;
  if (column->align == BRIM_UI_RIGHT) brim_str_repeat(out, ' ', pad);
  brim_ui_styled(out, term, cell->style, text.data);
  if (column->align == BRIM_UI_LEFT && !last) brim_str_repeat(out, ' ', pad);
  if (brim_str_status(&text) && !out->status) out->status = text.status;
  brim_str_deinit(&text);
}

static void put_row(brim_str *out, const brim_term *term, const brim_ui_table *table,
                    const brim_ui_cell *cells, const int *widths) {
  size_t last = table->column_count;
  while (last > 0 && widths[last - 1] == 0) last--;
  bool first = true;
  for (size_t i = 0; i < last; i++) {
    if (widths[i] == 0) continue;
    if (!first) brim_str_repeat(out, ' ', GAP);
    put_cell(out, term, &table->columns[i], &cells[i], widths[i], i + 1 == last);
    first = false;
  }
  brim_str_append_char(out, '\n');
}

static void put_rule(brim_str *out, const brim_term *term, const int *widths, size_t count) {
  int total = row_width(widths, count);
  if (term->colour) brim_str_append(out, "\033[2m");
  for (int i = 0; i < total; i++) brim_str_append(out, term->unicode ? "─" : "-");
  if (term->colour) brim_str_append(out, "\033[0m");
  brim_str_append_char(out, '\n');
}

// Columns a cell takes once control characters are made harmless.
static int cell_width(const brim_term *term, const char *text, brim_status *status) {
  brim_str clean;
  brim_str_init(&clean);
  brim_ui_clip(&clean, term, text, 0);
  int width = brim_utf8_width(clean.data);
  if (brim_str_status(&clean)) *status = clean.status;
  brim_str_deinit(&clean);
  return width;
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
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < table->cell_count; i++) {
    int w = cell_width(term, table->cells[i].text, &status);
    if (w > natural[i % count]) natural[i % count] = w;
  }
  if (status) return status;
  brim_ui_layout(table->columns, natural, count, term->width, table->together, widths, &use_short);
  for (size_t i = 0; i < count; i++) {
    const brim_ui_column *column = &table->columns[i];
    const char *text = use_short && column->short_header ? column->short_header : column->header;
    header[i] = (brim_ui_cell){(char *)(uintptr_t)text, BRIM_UI_BOLD};
    if (left_out && widths[i] == 0) ++*left_out;
  }
  put_row(out, term, table, header, widths);
  put_rule(out, term, widths, count);
  for (size_t i = 0; i < table->cell_count; i += count) {
    put_row(out, term, table, &table->cells[i], widths);
  }
  return brim_str_status(out);
}
