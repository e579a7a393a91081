// Inside the ui room: which columns a set of results has, shared by the terminal table and the
// report's.
#ifndef BRIM_UI_INT_H_
#define BRIM_UI_INT_H_

#include "ui/ui.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_ui_what {
  BRIM_UI_WHAT_KNOB,   // index: into the knobs of the first result
  BRIM_UI_WHAT_PHASE,  // index: brim_phase
  BRIM_UI_WHAT_TOTAL,
  BRIM_UI_WHAT_RATE,
  BRIM_UI_WHAT_UTILISATION,
  BRIM_UI_WHAT_MEMORY,
  BRIM_UI_WHAT_STATUS,
  BRIM_UI_WHAT_COUNT
} brim_ui_what;

typedef struct brim_ui_bench_column {
  brim_ui_what what;
  int index;
  char header[48];
  char short_header[32];
  int priority;
} brim_ui_bench_column;
// The name of a knob in a heading ("batch_size" -> "Batch").
const char *brim_ui_knob_label(const brim_result *of, const char *name);
const char *brim_ui_knob_short_label(const brim_result *of, const char *name);  // "Prec"
bool brim_ui_knob_is(const brim_result *of, const char *name, brim_knob_role role);
// "samples/s", "env steps/s" of what was measured; the heading begins with a capital letter.
const char *brim_ui_rate_unit(const brim_result *results, size_t count, char out[64]);
const char *brim_ui_rate_heading(const brim_result *results, size_t count, char out[64]);
// "2 columns left out: ..." below a table; nothing when none were.
void brim_ui_note_left_out(const brim_term *term, int left_out, brim_str *out);
// The phase columns: they add up to the median step.
double brim_ui_phase_ms(const brim_result *result, int phase);
// Why no setting is recommended, and what to do.
// "  Label:   value" and what a recommendation is made of.
void brim_ui_put_line(const brim_term *term, const char *label, const char *value, brim_str *out);
void brim_ui_put_knobs(const brim_term *term, const brim_result *results, size_t count,
                       const brim_result *result, brim_str *out);
const char *brim_ui_pick_title(const brim_recommendation *picks);
// ", while other programs had 63 % of the CPU", which belongs to every share of a ceiling; nothing where
// they did not, or the step is a GPU's.
void brim_ui_add_others(const brim_result *result, brim_str *out);
// Why there is no share: brim_machine_doubtful.
void brim_ui_doubtful(const brim_result *result, char out[256]);
// brim_ui_healthy of the config's own setting: where another is certainly faster, that is what there is to
// fix. beside may be NULL.
bool brim_ui_healthy_beside(const brim_result *result, const brim_recommendation *beside,
                            char out[256]);
// What is reported where the config's own setting is recommended.
const char *brim_ui_own_text(const brim_recommendation *picks);
// Is an interval known, and not so wide that it says nothing?
bool brim_ui_interval_tells(double low, double high);
void brim_ui_put_rate(const brim_term *term, const brim_result *result, brim_str *out);
void brim_ui_put_memory(const brim_term *term, const brim_result *result, brim_str *out);
const char *brim_ui_why_nothing(const brim_result *results, size_t count);
// What makes the figures doubtful, for the first lines of every view: other programs, with their share, and
// unsteady times. Returns how many lines there are.
enum { BRIM_UI_DOUBTS = 2 };
size_t brim_ui_doubts(const brim_result *results, size_t count, char out[BRIM_UI_DOUBTS][256]);
bool brim_ui_has_findings(const brim_result *results, size_t count, int index);
// Does a knob take more than one value in these results?
// Is a knob worth showing: one everybody asks for, or one that was swept?
bool brim_ui_knob_shown(const brim_result *results, size_t count, const char *name);
bool brim_ui_any_gpu(const brim_result *results, size_t count);

//---------------------------------- scaling ----------------------------------

typedef enum brim_ui_scaling_part {
  BRIM_UI_SCALING_IO,
  BRIM_UI_SCALING_H2D,
  BRIM_UI_SCALING_COMPUTE,
  BRIM_UI_SCALING_OTHER,
  BRIM_UI_SCALING_COUNT
} brim_ui_scaling_part;

// What the figures leave out, for everywhere they are shown.
const char *brim_ui_scaling_limits(const brim_scaling *all, size_t count);
// Why the row of one device need not say what the summary says of the same setting.
const char *brim_ui_scaling_one(const brim_scaling *all, size_t count);
// Of a step, the mean over the devices; NaN = nothing ran.
double brim_ui_scaling_ms(const brim_scaling *scaling, brim_ui_scaling_part part);
// "waiting for data, 0.31 ms"; "" for one device.
void brim_ui_scaling_lost(const brim_scaling *scaling, char out[96]);
// "4", "3 of 4"
void brim_ui_scaling_devices(const brim_scaling *scaling, char out[32]);
// How many from `first` on are of one setting.
size_t brim_ui_scaling_group(const brim_scaling *all, size_t count, size_t first);
// Does an earlier replica say that this one failed, by the same device and message?
bool brim_ui_scaling_reported(const brim_scaling *all, size_t item, int replica);
// Are there devices of different names?
bool brim_ui_scaling_mixed(const brim_scaling *all, size_t count);

// Ranks that exchange gradients (ui_bench.c): measured beside predicted, then predicted alone.
enum { BRIM_UI_RANKS_CELLS = 8, BRIM_UI_RANKS_ROWS = BRIM_SCALING_FURTHER + 8 };
typedef struct brim_ui_ranks_row {
  char cells[BRIM_UI_RANKS_CELLS][48];
  char note[96];
  bool good, warns;
} brim_ui_ranks_row;
size_t brim_ui_ranks_rows(const brim_scaling *all, size_t count,
                          brim_ui_ranks_row out[BRIM_UI_RANKS_ROWS]);
void brim_ui_ranks_heads(const char *out[BRIM_UI_RANKS_CELLS + 1]);
void brim_ui_ranks_title(const brim_scaling *all, size_t count, char out[256]);
void brim_ui_ranks_failed(const brim_scaling *scaling, brim_str *out);  // "" where they did not

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_INT_H_
