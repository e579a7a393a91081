// A table that a workload shows below those of a sweep: made by the workload, drawn by ui. Texts are in the
// user's language.
#ifndef BRIM_RECORD_VIEW_H_
#define BRIM_RECORD_VIEW_H_

#include "record/record.h"

enum { BRIM_VIEWS = 4, BRIM_VIEW_COLUMNS = 8, BRIM_VIEW_ROWS = 10, BRIM_VIEW_CELL = 64 };

typedef struct brim_view_column {
  const char *heading;
  bool left;  // aligned left; else right
  int drop;   // columns with a higher number go first where there is little room; 0 = never
  int least;  // its width at least
} brim_view_column;

typedef struct brim_view {
  const char *title;
  brim_view_column columns[BRIM_VIEW_COLUMNS];
  size_t column_count;
  char cells[BRIM_VIEW_ROWS][BRIM_VIEW_COLUMNS][BRIM_VIEW_CELL];
  size_t row_count;
  int marked;       // a row to look at; -1 = none
  char note[384];   // below it; "" = none
  bool whole_note;  // a line as it is; else wrapped
} brim_view;

// The text of the next empty cell of the row that is being made; more than its columns are left out.
BRIM_PRINTF(2, 3) void brim_view_put(brim_view *view, const char *fmt, ...);

#endif  // BRIM_RECORD_VIEW_H_
