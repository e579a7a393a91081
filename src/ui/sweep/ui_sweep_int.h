// Inside ui/sweep: values, rows and cells that the live table, the plain text and the page of a store share.
#ifndef BRIM_UI_SWEEP_INT_H_
#define BRIM_UI_SWEEP_INT_H_

#include "ui/sweep/ui_sweep.h"

//---------------------------------- values ----------------------------------

// Values of a metric, which says whether they are percentages and with how many digits. metric NULL: plain numbers.

// The heading of a metric, translated.
const char *brim_ui_value_label(const brim_sweep_metric *metric);
// "91.20 %"; "" when unknown.
void brim_ui_value(const brim_sweep_metric *metric, double value, char out[32]);
// "91.20 %"; a dash when not finite.
void brim_ui_value_or_dash(const brim_sweep_metric *metric, double value, char out[32]);
// "0.912 ± 0.013", "91.20 ± 0.41 %": two digits of the deviation, and the mean to the same place. The mean alone where
// there is no deviation; a dash when unknown.
void brim_ui_value_spread(const brim_sweep_metric *metric, double mean, double std, char out[80]);
// "0.905 - 0.919", "90.50 - 91.90 %" with an en dash: to the place of the deviation.
void brim_ui_value_range(const brim_sweep_metric *metric, const double bounds[2], double std,
                         char out[80]);
// "+0.012 [+0.003, +0.021]", "+1.20 [+0.30, +2.10] pp" (percentage points); unknown is NaN.
void brim_ui_value_difference(const brim_sweep_metric *metric, double mean, const double bounds[2],
                              char out[112]);

//---------------------------------- rows ----------------------------------

typedef struct brim_ui_sweep_pick {
  brim_ui_sweep_list list;
  brim_ui_sweep_order order;
  const char *search;  // words that the label, the id or the tags must have; "" = any
} brim_ui_sweep_pick;

// Indices into view->rows of what a list shows, in its order. brim_free(*out).
brim_status brim_ui_sweep_rows(const brim_sweep_view *view, const brim_ui_sweep_pick *pick,
                               size_t **out, size_t *count);

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
  bool bar;                 // progress of running experiments as a bar too
  bool values;              // labels without their keys, which are in the heading
  char last[96], best[96];  // memory of the columns' headings
  char label[256];
  const char *keys;  // a label with the common keys
  size_t key_count;  // keys of a label, where `values`
  int key_widths[BRIM_UI_SWEEP_KEYS];
} brim_ui_sweep_look;

// The columns of a view. `short_labels`: keys move to the heading if all of `rows` have the same ones.
void brim_ui_sweep_columns(const brim_sweep_view *view, const size_t *rows, size_t count,
                           bool short_labels, brim_ui_sweep_look *look,
                           brim_ui_column out[BRIM_UI_SWEEP_COLUMN_COUNT]);
brim_ui_style brim_ui_sweep_cell(const brim_sweep_view *view, const brim_sweep_row *row,
                                 brim_ui_sweep_column column, const brim_ui_sweep_look *look,
                                 brim_str *out);

const char *brim_ui_sweep_state_name(brim_sweep_state state);  // "starting", translated
// "12:04", "3:12:04", "4 d 07 h"; "" = unknown.
void brim_ui_sweep_clock(double seconds, char out[32]);
// "GPU 0  2 running  12.1/139.8 GiB  98 %", clipped to the width (0 = no limit).
void brim_ui_sweep_gpu(const brim_sweep_gpu *gpu, const brim_term *term, int width, brim_str *out);

//---------------------------------- stores ----------------------------------

enum {
  BRIM_UI_LAB_ROWS = 100,       // of a table that is in the page without the script
  BRIM_UI_LAB_POINTS = 600000,  // of curves in a page, where there is more than one metric
  BRIM_UI_LAB_LINES = 2000000,  // bytes of last lines
  BRIM_UI_LAB_ATTEMPTS = 50000
};
// The last part of a setting's name ("batch_size"), or all of it where two settings end alike.
const char *brim_ui_lab_short(const brim_lab_set *set, size_t key);

#endif  // BRIM_UI_SWEEP_INT_H_
