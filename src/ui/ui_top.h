// A machine as a person sees it: the live view of `brim top`, plain lines for a pipe, the whole as text
// for --once, CSV. Pure functions of views (record_top.h), of a brim_term and of what the user looks at.
// Caller: src/cli/top.
#ifndef BRIM_UI_TOP_H_
#define BRIM_UI_TOP_H_

#include "record/record_top.h"
#include "ui/ui.h"
#include "ui/ui_screen.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- history ----------------------------------

enum { BRIM_UI_TOP_SAMPLES = 240 };

// What sparklines show of a GPU, in percent.
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

// The last readings: of each GPU by its place in the view, and of the host (CPU, memory). Another set
// of GPUs starts it again.
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

// What the user looks at. Only these functions change it; `source` and what follows it are the
// caller's.
typedef struct brim_ui_top {
  brim_ui_top_mode mode;
  brim_ui_top_order order;
  bool paused;
  char filter[64];   // part of a process's command, user, container or pid
  size_t top, page;  // first process on the screen, and how many the last frame had room for
  size_t gpu;        // of the details, by its place
  size_t scroll;     // lines of the details
  const char *hint;  // why the last key did nothing, a message; NULL = it did
  char source[128];  // "replay of day.jsonl"; "" = this machine
  long skipped;      // damaged lines of the recording
  bool ended;        // the recording has no further view
  double interval_s;
  bool empty;            // no reading has come yet
  double slow_s, age_s;  // the driver takes so long to answer, what is shown is so old; NaN = fine
} brim_ui_top;

void brim_ui_top_init(brim_ui_top *state);
brim_ui_top_action brim_ui_top_key(brim_ui_top *state, const brim_top_view *view, brim_key key);
// One frame of `rows` lines for brim_screen_draw.
brim_status brim_ui_top_frame(brim_ui_top *state, const brim_top_view *view,
                              const brim_ui_top_history *history, const brim_term *term, int rows,
                              brim_str *out);

//---------------------------------- plain text ----------------------------------

// Everything once, as long as it takes: for --once.
brim_status brim_ui_top_text(const brim_top_view *view, const brim_ui_top_history *history,
                             const brim_term *term, brim_str *out);
// A line for each GPU, or one for the host where there is none, and one for each job; each with its time.
void brim_ui_top_lines(const brim_top_view *view, const brim_term *term, brim_str *out);
// CSV: a row per GPU, or one for the host where there is none; every number of a GPU and of the host.
brim_status brim_ui_top_csv_header(brim_str *out);
brim_status brim_ui_top_csv_rows(const brim_top_view *view, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_TOP_H_
