// Inside the page of a store: what its parts share.
#ifndef BRIM_UI_LAB_INT_H_
#define BRIM_UI_LAB_INT_H_

#include "record/record_sweep.h"
#include "ui/ui_lab.h"
#include "ui/ui_report_int.h"
#include "ui/ui_sweep_int.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_UI_LAB_ROWS = 100,       // of a table that stands in the page without a script
  BRIM_UI_LAB_POINTS = 600000,  // of curves in a page, where there is more than one metric
  BRIM_UI_LAB_LINES = 2000000,  // bytes of last lines
  BRIM_UI_LAB_ATTEMPTS = 50000
};

// The state of an experiment; a name that this brim does not know is QUEUED.
brim_sweep_state brim_ui_lab_state(const brim_lab_exp *exp);
const char *brim_ui_lab_state_text(brim_sweep_state state);  // translated
// The name of a setting without what stands in front of it, where that is clear: "batch_size".
const char *brim_ui_lab_short(const brim_lab_set *set, size_t key);
// Seconds from start to end, or to `now_s`; NaN = it has not started.
double brim_ui_lab_seconds(const brim_lab_exp *exp, double now_s);
// What people call a metric ("val acc"); its key where no workload declares it.
const char *brim_ui_lab_label(const brim_lab_set *set, const char *metric_key);
// The group that ranks first by the first metric; group_count = none, or no direction is better.
size_t brim_ui_lab_best(const brim_lab_set *set, brim_lab_result result);
const char *brim_ui_lab_metric(const brim_lab_set *set);  // the deciding one; "" = there is none

// Tables as they stand without a script, and settings that differ or are the same everywhere.
brim_status brim_ui_lab_tables(const brim_ui_lab_options *options, const brim_lab_set *set,
                               brim_str *out);
void brim_ui_lab_settings(const brim_lab_set *set, brim_str *out);
// What the script shows, as JSON in an element.
brim_status brim_ui_lab_data(const brim_ui_lab_options *options, const brim_lab_set *set,
                             brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_LAB_INT_H_
