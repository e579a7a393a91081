// A machine as a person sees it: the live view of `brim top`, plain lines for a pipe, everything once as text, CSV, and
// the report of `brim doctor`. Pure functions of records and of a brim_term. Callers: src/cli/top, src/cli/doctor.
#ifndef BRIM_UI_TOP_H_
#define BRIM_UI_TOP_H_

#include "record/record_doctor.h"
#include "record/record_top.h"
#include "ui/term/ui_term.h"

//---------------------------------- history ----------------------------------

enum { BRIM_UI_TOP_SAMPLES = 240 };  // readings that a history keeps

// The values of a GPU that have sparklines, in percent.
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
  float *values;                       // (gpus, TRACE_COUNT, SAMPLES); NaN = unknown
  size_t gpus, count, next;            // GPUs, readings kept, ring index of the next reading
  char first[64];                      // uuid of the first GPU
  float host[2][BRIM_UI_TOP_SAMPLES];  // CPU, memory
} brim_ui_top_history;

void brim_ui_top_history_init(brim_ui_top_history *history);
void brim_ui_top_history_deinit(brim_ui_top_history *history);
brim_status brim_ui_top_history_add(brim_ui_top_history *history, const brim_top_view *view);

//---------------------------------- live view ----------------------------------

typedef enum brim_ui_top_action {
  BRIM_UI_TOP_NOTHING,
  BRIM_UI_TOP_DRAW,
  BRIM_UI_TOP_FASTER,  // halve the interval
  BRIM_UI_TOP_SLOWER,  // double the interval
  BRIM_UI_TOP_QUIT,
  BRIM_UI_TOP_ACTION_COUNT
} brim_ui_top_action;

typedef enum brim_ui_top_order {
  BRIM_UI_TOP_BY_MEMORY,  // by GPU memory that a process uses
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
  BRIM_UI_TOP_FILTER,  // the user types a filter
  BRIM_UI_TOP_MODE_COUNT
} brim_ui_top_mode;

// The state of the live view. Only these functions change it; the caller sets `source` and the members after it.
typedef struct brim_ui_top {
  brim_ui_top_mode mode;
  brim_ui_top_order order;
  bool paused;
  char filter[64];   // part of a process's command, user, container or pid
  size_t top, page;  // first process on the screen, and number of rows in the last frame
  size_t gpu;        // index of the GPU in the details
  size_t scroll;     // first line of the details
  const char *hint;  // a message that says why the last key had no effect; NULL = none
  char source[128];  // "replay of day.jsonl"; "" = this machine
  long skipped;      // damaged lines of the recording
  bool ended;        // the recording has no further view
  double interval_s;
  bool empty;  // there is no reading yet
  // Seconds that a slow driver has taken to answer, and the age of the shown readings; NaN = the driver is not slow.
  double slow_s, age_s;
} brim_ui_top;

void brim_ui_top_init(brim_ui_top *state);
brim_ui_top_action brim_ui_top_key(brim_ui_top *state, const brim_top_view *view, brim_key key);
// One frame of `rows` lines for brim_screen_draw.
brim_status brim_ui_top_frame(brim_ui_top *state, const brim_top_view *view,
                              const brim_ui_top_history *history, const brim_term *term, int rows,
                              brim_str *out);

//---------------------------------- plain text ----------------------------------

// For --once: the whole view, in as many lines as it needs.
brim_status brim_ui_top_text(const brim_top_view *view, const brim_ui_top_history *history,
                             const brim_term *term, brim_str *out);
// One line for each GPU, or a line for the host if there is no GPU, then one line for each job. Every line has its
// time.
void brim_ui_top_lines(const brim_top_view *view, const brim_term *term, brim_str *out);
// CSV with every number of a GPU and of the host: a row per GPU, or one row for the host if there is no GPU.
brim_status brim_ui_top_csv_header(brim_str *out);
brim_status brim_ui_top_csv_rows(const brim_top_view *view, brim_str *out);

//---------------------------------- doctor ----------------------------------

typedef enum brim_ui_doctor_lines {
  BRIM_UI_DOCTOR_TROUBLE,  // only lines that are warn or bad, without counts
  BRIM_UI_DOCTOR_ALL,
  BRIM_UI_DOCTOR_WHY,  // all lines, and why each of them matters
  BRIM_UI_DOCTOR_LINES_COUNT
} brim_ui_doctor_lines;

// `brim doctor`: groups with a line per check (state, label, value). A line that is warn or bad is followed by why it
// matters; any line by its fix, if it has one. The counts of states come last.
void brim_ui_doctor(const brim_term *term, const brim_doctor_report *report,
                    brim_ui_doctor_lines lines, brim_str *out);

#endif  // BRIM_UI_TOP_H_
