// Inside the ui room: rows and cells of a sweep, shared by the live table, the status and the summary.
#ifndef BRIM_UI_SWEEP_INT_H_
#define BRIM_UI_SWEEP_INT_H_

#include "ui/ui_sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- rows ----------------------------------

typedef struct brim_ui_sweep_pick {
  brim_ui_sweep_list list;
  brim_ui_sweep_order order;
  const char *search;  // part of the label, the id or the tags; "" = any
} brim_ui_sweep_pick;

// Places in view->rows of what a list shows, in its order. brim_free(*out).
brim_status brim_ui_sweep_rows(const brim_sweep_view *view, const brim_ui_sweep_pick *pick,
                               size_t **out, size_t *count);
// How many experiments a list has, by the view's counts.
int64_t brim_ui_sweep_count(const brim_sweep_view *view, brim_ui_sweep_list list);

//---------------------------------- cells ----------------------------------

typedef enum brim_ui_sweep_column {
  BRIM_UI_SWEEP_STATE,
  BRIM_UI_SWEEP_LABEL,
  BRIM_UI_SWEEP_PROGRESS,
  BRIM_UI_SWEEP_EPOCH,
  BRIM_UI_SWEEP_METRIC,
  BRIM_UI_SWEEP_BEST,
  BRIM_UI_SWEEP_WHERE,
  BRIM_UI_SWEEP_TIME,
  BRIM_UI_SWEEP_ETA,
  BRIM_UI_SWEEP_NOTE,
  BRIM_UI_SWEEP_COLUMN_COUNT
} brim_ui_sweep_column;

enum { BRIM_UI_SWEEP_KEYS = 16 };

// How cells are written.
typedef struct brim_ui_sweep_look {
  const brim_term *term;
  bool bar;                 // progress of what runs as a bar too
  bool values;              // labels without their keys, which stand in the heading
  char last[96], best[96];  // headings that columns borrow
  char label[256];
  const char *keys;  // a label that has them
  size_t key_count;  // of a label, where `values`
  int key_widths[BRIM_UI_SWEEP_KEYS];
} brim_ui_sweep_look;

// Of many rows every so many are measured for widths: a frame of 10,000 has to be quick.
size_t brim_ui_sweep_stride(size_t count);
// The columns of a view. `short_labels`: keys go to the heading where all of `rows` have the same ones.
void brim_ui_sweep_columns(const brim_sweep_view *view, const size_t *rows, size_t count,
                           bool short_labels, brim_ui_sweep_look *look,
                           brim_ui_column out[BRIM_UI_SWEEP_COLUMN_COUNT]);
// Columns that a cell of each takes in the live table, whatever its text is: the table stands still.
// 0: as wide as its widest text.
extern const int brim_ui_sweep_widths[BRIM_UI_SWEEP_COLUMN_COUNT];
brim_ui_style brim_ui_sweep_cell(const brim_sweep_view *view, const brim_sweep_row *row,
                                 brim_ui_sweep_column column, const brim_ui_sweep_look *look,
                                 brim_str *out);

const char *brim_ui_sweep_state_text(const brim_sweep_row *row);  // translated
brim_ui_style brim_ui_sweep_state_style(brim_sweep_state state);
// Why it failed or why it waits; "" where there is nothing to say.
void brim_ui_sweep_note(const brim_sweep_row *row, brim_str *out);
double brim_ui_sweep_total_fraction(const brim_sweep_view *view);
// "12:04", "3:12:04", "4 d 07 h"; "" = unknown.
void brim_ui_sweep_clock(double seconds, char out[32]);
// "12:03:11", the local time of day; "" = unknown.
void brim_ui_sweep_time(double when_s, char out[16]);
double brim_ui_sweep_seconds(const brim_sweep_view *view, const brim_sweep_row *row);
// "91.20 %"; "" = unknown.
void brim_ui_sweep_value(const brim_sweep_metric *metric, double value, char out[32]);
// The same with a dash for what is unknown.
void brim_ui_value(const brim_sweep_metric *metric, double value, char out[32]);
// "0.912 ± 0.013", "91.20 ± 0.41 %": two digits of the deviation, and the mean to the same place.
// The mean alone where there is no deviation; a dash when unknown.
void brim_ui_value_spread(const brim_sweep_metric *metric, double mean, double std, char out[80]);
// "0.905 - 0.919", "90.50 - 91.90 %" with a dash between: to the place of the deviation.
void brim_ui_value_range(const brim_sweep_metric *metric, const double bounds[2], double std,
                         char out[80]);
// "+0.012 [+0.003, +0.021]", "+1.20 [+0.30, +2.10] pp" (percentage points); unknown is NaN.
void brim_ui_value_difference(const brim_sweep_metric *metric, double mean, const double bounds[2],
                              char out[112]);
// The heading of a metric, translated.
const char *brim_ui_sweep_metric_label(const brim_sweep_metric *metric);
void brim_ui_sweep_bar(brim_str *out, const brim_term *term, double fraction, int width);
// "GPU 0  2 running  12.1/139.8 GiB  98 %", clipped to the width (0 = no limit).
void brim_ui_sweep_gpu(const brim_sweep_gpu *gpu, const brim_term *term, int width, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_SWEEP_INT_H_
