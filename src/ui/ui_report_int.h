// Inside the report: what its parts share. A view is the results with the knobs that span the
// charts; a metric is one measured column, the same in the table, the heat map and the ladder.
#ifndef BRIM_UI_REPORT_INT_H_
#define BRIM_UI_REPORT_INT_H_

#include "ui/ui_int.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- view ----------------------------------

enum { BRIM_UI_MAX_VALUES = 48, BRIM_UI_GROUP_NAME = 192 };

typedef struct brim_ui_view {
  const brim_result *results;
  size_t count;
  brim_recommendation picks;  // every index is -1 or below count
  bool gpu;
  const char *x;       // knob along the x axes; NULL = none has numbers
  const char *colour;  // knobs that tell lines apart, by colour and by dashes; NULL = none
  const char *dash;
  const brim_result *shown;  // the setting that is looked at: recommended, else fastest, else first
} brim_ui_view;
bool brim_ui_any_ran(const brim_ui_view *view);
const char *brim_ui_knob_value(const brim_result *result, const char *knob);  // "" = it has none
// "Workers 4", and the value alone where that says it all ("bf16").
void brim_ui_knob_text(const brim_result *of, const char *knob, const char *value, char out[80]);
// The values of a knob, numbers in order, then words as they come. Returns how many (at most
// BRIM_UI_MAX_VALUES).
size_t brim_ui_knob_values(const brim_ui_view *view, const char *knob, const char **out);
// "Workers 4, bf16": the swept knobs but x.
void brim_ui_group_name(const brim_ui_view *view, const brim_result *result,
                        char out[BRIM_UI_GROUP_NAME]);
// "Batch 256, Workers 4, bf16": all that were swept (all there are where none was).
void brim_ui_setting_name(const brim_ui_view *view, const brim_result *result,
                          char out[BRIM_UI_GROUP_NAME]);

//---------------------------------- metrics ----------------------------------

typedef enum brim_ui_unit {
  BRIM_UI_UNIT_MS,
  BRIM_UI_UNIT_NUMBER,
  BRIM_UI_UNIT_WHOLE,  // no digits behind the point
  BRIM_UI_UNIT_BYTES,
  BRIM_UI_UNIT_SECONDS,
  BRIM_UI_UNIT_COUNT
} brim_ui_unit;

typedef struct brim_ui_metric {
  const char *key;     // in the page: data-key
  const char *header;  // of its column
  const char *label;   // in full
  brim_ui_unit unit;
  int phase;  // of a phase; -1 = get tells the value
  double (*get)(const brim_result *result);
  bool planned;  // known of settings that did not run too
  bool extra;    // left out on paper, where there is less room
} brim_ui_metric;

const brim_ui_metric *brim_ui_metrics(size_t *count);
const brim_ui_metric *brim_ui_metric_find(const char *key);
// NaN = unknown.
double brim_ui_metric_value(const brim_ui_metric *metric, const brim_result *result);
bool brim_ui_metric_known(const brim_ui_view *view, const brim_ui_metric *metric);
void brim_ui_metric_text(const brim_ui_metric *metric, double value, char out[32]);
const char *brim_ui_phase_name(int phase);  // "Waited I/O", for legends

// The ladder of utilisation: each rung a metric, and what is all of it.
typedef struct brim_ui_rung {
  const char *key;
  const char *unit;                            // behind the number: " %", " W", ""
  double (*limit)(const brim_result *result);  // NaN = unknown
} brim_ui_rung;

enum { BRIM_UI_MAX_RUNGS = 8 };
// Those that these results know; returns how many.
size_t brim_ui_rungs(const brim_ui_view *view, const brim_ui_rung **out);
double brim_ui_rung_share(const brim_ui_rung *rung, const brim_result *result);  // percent

//---------------------------------- line charts ----------------------------------

enum { BRIM_UI_COLOURS = 8, BRIM_UI_DASHES = 4 };

typedef struct brim_ui_point {
  double x, y;
  double low, high;  // 95 % interval; NaN = none is drawn
  int colour, dash;  // which line it is of
  bool mark;         // ran out of memory: a cross, on no line; y NaN = above the x axis
  const brim_result *result;
} brim_ui_point;

typedef struct brim_ui_rule {
  double y;  // NaN = none
  const char *label;
  bool below;  // the label is under the line
  bool away;   // above all that is drawn: the label alone, above the drawing
} brim_ui_rule;

// A line chart as inline SVG: x logarithmic, y from 0 or, for bytes, logarithmic too.
typedef struct brim_ui_chart {
  const brim_ui_view *view;
  const char *title;
  const char *y_label;          // with its unit
  bool bytes;                   // y in bytes
  bool percent;                 // y of 100
  const brim_ui_point *points;  // by x
  size_t count;
  const char *const *colours;  // names of the lines; NULL = one
  size_t colour_count;
  const char *const *dashes;
  size_t dash_count;
  brim_ui_rule rules[2];
  const char *note;  // below; NULL = none
} brim_ui_chart;

void brim_ui_chart_svg(const brim_ui_chart *chart, brim_str *out);

//---------------------------------- parts of the page ----------------------------------

#define BRIM_UI_DASH "\xe2\x80\x93"  // what stands for an unknown value

void brim_ui_put(brim_str *out, const char *tag, const char *text);  // <tag>text</tag>, escaped
void brim_ui_put_attribute(brim_str *out, const char *name, const char *value);
// <section id="..."><h2>...</h2><p class="hint">...</p>; hint NULL = none.
void brim_ui_put_section(brim_str *out, const char *id, const char *title, const char *hint);
// <dt>name</dt><dd>value</dd>; nothing where the value is "".
void brim_ui_put_pair(brim_str *out, const char *name, const char *value);
// The command line that made a page; NULL and "" are left out.
void brim_ui_put_command(brim_str *out, const char *command);
// An embedded file in an element: "style", "script".
void brim_ui_put_asset(const char *tag, const char *name, brim_str *out);
// The page up to </head>; `styles` are names of embedded style sheets, NULL behind the last.
void brim_ui_put_head(const char *title, const char *const *styles, brim_str *out);
// Bytes, or a dash when they are not known.
void brim_ui_bytes_text(double bytes, char out[32]);
// A finding's text and remedy as HTML, in the reader's language.
void brim_ui_put_finding_text(const brim_finding *finding, brim_str *out);
brim_status brim_ui_report_charts(const brim_ui_view *view, brim_str *out);
brim_status brim_ui_report_ladder_chart(const brim_ui_view *view, brim_str *out);
brim_status brim_ui_report_phases(const brim_ui_view *view, brim_str *out);
void brim_ui_report_ladder(const brim_ui_view *view, brim_str *out);
void brim_ui_report_ceilings(const brim_ui_view *view, brim_str *out);
void brim_ui_report_plan(const brim_ui_view *view, brim_str *out);
void brim_ui_report_heat(const brim_ui_view *view, brim_str *out);
void brim_ui_report_scaling(const brim_ui_report_options *options, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_REPORT_INT_H_
