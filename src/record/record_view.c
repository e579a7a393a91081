// Fills the cells of a workload's table.
#include "record/record_view.h"

#include <stdarg.h>
#include <stdio.h>

void brim_view_put(brim_view *view, const char *fmt, ...) {
  size_t column = 0;
  while (column < view->column_count && view->cells[view->row_count][column][0]) column++;
  if (column == view->column_count) return;
  va_list args;
  va_start(args, fmt);
  vsnprintf(view->cells[view->row_count][column], BRIM_VIEW_CELL, fmt, args);
  va_end(args);
}
