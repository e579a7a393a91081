// A machine as a person sees it: the live view of `brim top`, plain lines for a pipe, everything once as text, CSV, and
// the report of `brim doctor`. Pure functions of records and of a brim_term. Callers: src/cli/top, src/cli/doctor.
#ifndef BRIM_UI_TOP_H_
#define BRIM_UI_TOP_H_

#include "record/record_doctor.h"
#include "record/record_top.h"
#include "ui/term/ui_term.h"

//---------------------------------- history ----------------------------------

enum { BRIM_UI_TOP_SAMPLES = 240 };

// Values of a GPU that have sparklines, in percent.
typedef enum brim_ui_top_trace {
  BRIM_UI_TOP_KERNELS,
  BRIM_UI_TOP_SM,
  BRIM_UI_TOP_OCCUPANCY,
  BRIM_UI_TOP_TENSOR,
  BRIM_UI_TOP_DRAM,
  BRIM_UI_TOP_OFU,
  BRIM_UI_TOP_MEMORY,
  BRIM_UI_TOP_POWER,
  BRIM_UI_TOP_TRACE_COUNT
} brim_ui_top_trace;

// The last readings of each GPU, by its index in the view, and of the host (CPU, memory). When the set of GPUs changes,
// the history starts again.
typedef struct brim_ui_top_history {
  float *values;  // (gpus, TRACE_COUNT, SAMPLES); NaN = unknown
  size_t gpus, count, next;
  char first[64];  // uuid of the first GPU
  float host[2][BRIM_UI_TOP_SAMPLES];
} brim_ui_top_history;

void brim_ui_top_history_init(brim_ui_top_history *history);
void brim_ui_top_history_deinit(brim_ui_top_history *history);
brim_status brim_ui_top_history_add(brim_ui_top_history *history, const brim_top_view *view);

//---------------------------------- live view ----------------------------------

typedef enum brim_ui_top_action {
  BRIM_UI_TOP_NOTHING,
  BRIM_UI_TOP_DRAW,
  BRIM_UI_TOP_FASTER,  // halve the interval
  BRIM_UI_TOP_SLOWER,  // double it
  BRIM_UI_TOP_QUIT,
  BRIM_UI_TOP_ACTION_COUNT
} brim_ui_top_action;

typedef enum brim_ui_top_order {
  BRIM_UI_TOP_BY_MEMORY,  // of the GPU
  BRIM_UI_TOP_BY_SM,
  BRIM_UI_TOP_BY_CPU,
  BRIM_UI_TOP_BY_RSS,
  BRIM_UI_TOP_BY_GPU,
  BRIM_UI_TOP_BY_PID,
  BRIM_UI_TOP_ORDER_COUNT
} brim_ui_top_order;

typedef enum brim_ui_top_mode {
  BRIM_UI_TOP_MAIN,
  BRIM_UI_TOP_DETAILS,  // everything about one GPU
  BRIM_UI_TOP_HELP,
  BRIM_UI_TOP_FILTER,  // a text is typed
  BRIM_UI_TOP_MODE_COUNT
} brim_ui_top_mode;

// The state of the live view. Only these functions change it; the caller sets `source` and the members after it.
typedef struct brim_ui_top {
  brim_ui_top_mode mode;
  brim_ui_top_order order;
  bool paused;
  char filter[64];   // part of a process's command, user, container or pid
  size_t top, page;  // first process on the screen, and how many fit in the last frame
  size_t gpu;        // index of the GPU in the details
  size_t scroll;     // first line of the details
  const char *hint;  // a message: why the last key had no effect; NULL = it had one
  char source[128];  // "replay of day.jsonl"; "" = this machine
  long skipped;      // damaged lines of the recording
  bool ended;        // the recording has no further view
  double interval_s;
  bool empty;  // there is no reading yet
  double slow_s,
      age_s;  // how long the driver takes to answer, and how old the shown readings are; NaN = fine
} brim_ui_top;

void brim_ui_top_init(brim_ui_top *state);
brim_ui_top_action brim_ui_top_key(brim_ui_top *state, const brim_top_view *view, brim_key key);
// One frame of `rows` lines for brim_screen_draw.
brim_status brim_ui_top_frame(brim_ui_top *state, const brim_top_view *view,
                              const brim_ui_top_history *history, const brim_term *term, int rows,
                              brim_str *out);

//---------------------------------- plain text ----------------------------------

// Everything once, in as many lines as it needs: for --once.
brim_status brim_ui_top_text(const brim_top_view *view, const brim_ui_top_history *history,
                             const brim_term *term, brim_str *out);
// A line for each GPU, or one for the host where there is none, and one for each job; each with its time.
void brim_ui_top_lines(const brim_top_view *view, const brim_term *term, brim_str *out);
// CSV: a row per GPU, or one for the host where there is none; every number of a GPU and of the host.
brim_status brim_ui_top_csv_header(brim_str *out);
brim_status brim_ui_top_csv_rows(const brim_top_view *view, brim_str *out);

//---------------------------------- doctor ----------------------------------

typedef enum brim_ui_doctor_lines {
  BRIM_UI_DOCTOR_TROUBLE,  // only lines that are warn or bad, without counts
  BRIM_UI_DOCTOR_ALL,
  BRIM_UI_DOCTOR_WHY,  // and why good lines matter
  BRIM_UI_DOCTOR_LINES_COUNT
} brim_ui_doctor_lines;

// `brim doctor`: groups with a line per check (state, label, value). Below lines that are not good: why it matters and
// the command that fixes it. Ends with the counts.
void brim_ui_doctor(const brim_term *term, const brim_doctor_report *report,
                    brim_ui_doctor_lines lines, brim_str *out);

#endif  // BRIM_UI_TOP_H_
