// Inside ui/bench: texts and the view of the results that the terminal, the report and its charts share.
#ifndef BRIM_UI_BENCH_INT_H_
#define BRIM_UI_BENCH_INT_H_

#include "ui/bench/ui_bench.h"

//---------------------------------- knobs and phases ----------------------------------

// The name of a knob in a heading ("batch_size" -> "Batch").
const char *brim_ui_knob_label(const brim_result *result, const char *name);
bool brim_ui_knob_is(const brim_result *result, const char *name, brim_knob_role role);
// True if a knob is worth showing: its row says `always`, or it was swept.
bool brim_ui_knob_shown(const brim_result *results, size_t count, const char *name);
// The unit of throughput: "samples/s", "env steps/s". The heading begins with a capital letter.
const char *brim_ui_rate_unit(const brim_result *results, size_t count, char out[64]);
const char *brim_ui_rate_heading(const brim_result *results, size_t count, char out[64]);
// Milliseconds of a phase column; the columns add up to the median step. NaN = unknown.
double brim_ui_phase_ms(const brim_result *result, int phase);
bool brim_ui_any_gpu(const brim_result *results, size_t count);
// True if an interval is known and narrow enough to be worth showing.
bool brim_ui_interval_tells(double low, double high);

//---------------------------------- recommendation and findings ----------------------------------

// "Recommended for training", or "Keep your setting".
const char *brim_ui_pick_title(const brim_recommendation *picks);
// The advice if the config's own setting is recommended: "keep your setting: ..."
const char *brim_ui_own_text(const brim_recommendation *picks);
// Says why no setting is recommended.
const char *brim_ui_why_nothing(const brim_result *results, size_t count);
// brim_ui_healthy for the config's own setting: if the recommended setting is certainly faster, the text gives its gain
// instead. beside may be NULL.
bool brim_ui_healthy_beside(const brim_result *result, const brim_recommendation *beside,
                            char out[256]);
bool brim_ui_has_findings(const brim_result *results, size_t count, int index);
// Lists reasons to doubt the figures, for the first lines of every view: other programs, unsteady times. Returns their
// number.
enum { BRIM_UI_DOUBTS = 2 };
size_t brim_ui_doubts(const brim_result *results, size_t count, char out[BRIM_UI_DOUBTS][256]);

//---------------------------------- report ----------------------------------

enum { BRIM_UI_MAX_VALUES = 48, BRIM_UI_SETTING_NAME = 192 };

// The results of a report, with the knobs that span its charts.
typedef struct brim_ui_result_set {
  const brim_result *results;
  size_t count;
  brim_recommendation picks;  // every index is -1 or below count
  bool gpu;
  const char *x;       // knob along the x axes; NULL = none has numbers
  const char *colour;  // knobs that distinguish lines, by colour and by dashes; NULL = none
  const char *dash;
  // The setting shown in detail: the recommended one, else the fastest, else the first.
  const brim_result *shown;
} brim_ui_result_set;

// Writes the main loss of scaling ("waiting for data, 0.31 ms"), or why the setting did not run; "" for one device.
void brim_ui_scaling_lost(const brim_scaling *scaling, char out[96]);
// The section on several devices.
void brim_ui_report_scaling(const brim_ui_report_options *options, brim_str *out);

#endif  // BRIM_UI_BENCH_INT_H_
