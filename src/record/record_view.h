// A table that a workload shows below the tables of a sweep: the workload makes it, ui draws it. Texts are in the
// user's language.
#ifndef BRIM_RECORD_VIEW_H_
#define BRIM_RECORD_VIEW_H_

#include "record/record.h"

enum { BRIM_VIEWS = 4, BRIM_VIEW_COLUMNS = 8, BRIM_VIEW_ROWS = 10, BRIM_VIEW_CELL = 64 };

typedef struct brim_view_column {
  const char *heading;
  bool left;  // aligned left, else right
  int drop;   // priority for leaving columns out on a narrow terminal, the highest first; 0 = never
  int least;  // least width
} brim_view_column;

typedef struct brim_view {
  const char *title;
  brim_view_column columns[BRIM_VIEW_COLUMNS];
  size_t column_count;
  char cells[BRIM_VIEW_ROWS][BRIM_VIEW_COLUMNS][BRIM_VIEW_CELL];
  size_t row_count;
  int marked;       // index of a row to mark; -1 = none
  char note[384];   // text below the table; "" = none
  bool whole_note;  // the note is one line; else it is wrapped
} brim_view;

// Sets the next empty cell of the current row. Cells beyond the columns are dropped.
BRIM_PRINTF(2, 3) void brim_view_put(brim_view *view, const char *fmt, ...);

#endif  // BRIM_RECORD_VIEW_H_
