// Inside ui/sweep: texts of values and states that the live table, the plain text and the page of a store share, and
// limits of that page.
#ifndef BRIM_UI_SWEEP_INT_H_
#define BRIM_UI_SWEEP_INT_H_

#include "ui/sweep/ui_sweep.h"

//---------------------------------- values ----------------------------------

// Texts of values. The metric says whether values are percentages and with how many digits; metric NULL: plain numbers.

// The heading of a metric, translated.
const char *brim_ui_value_label(const brim_sweep_metric *metric);
// "91.20 %"; a dash if the value is not finite.
void brim_ui_value_or_dash(const brim_sweep_metric *metric, double value, char out[32]);
// "0.912 ± 0.013", "91.20 ± 0.41 %". Plain numbers have as many decimals as show two digits of the deviation. Only the
// mean if the deviation is unknown; a dash if the mean is unknown.
void brim_ui_value_spread(const brim_sweep_metric *metric, double mean, double std, char out[80]);
// "0.905 - 0.919", "90.50 - 91.90 %" with an en dash; decimals as in brim_ui_value_spread.
void brim_ui_value_range(const brim_sweep_metric *metric, const double bounds[2], double std,
                         char out[80]);
// "+0.012 [+0.003, +0.021]", "+1.20 [+0.30, +2.10] pp" (percentage points). Only the mean if the bounds are NaN; "-" if
// the mean is NaN.
void brim_ui_value_difference(const brim_sweep_metric *metric, double mean, const double bounds[2],
                              char out[112]);

//---------------------------------- states ----------------------------------

const char *brim_ui_sweep_state_name(brim_sweep_state state);  // "starting", translated

//---------------------------------- stores ----------------------------------

enum {
  BRIM_UI_LAB_ROWS = 100,       // rows of a table that the page has without the script
  BRIM_UI_LAB_POINTS = 600000,  // points of curves in a page; the first metric may have more
  BRIM_UI_LAB_LINES = 2000000,  // bytes of last lines in a page
  BRIM_UI_LAB_ATTEMPTS = 50000  // attempts in a page
};
// The last part of a setting's name ("batch_size"), or the full name if another setting ends the same.
const char *brim_ui_lab_short(const brim_lab_set *set, size_t key);

#endif  // BRIM_UI_SWEEP_INT_H_
