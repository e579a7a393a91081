// Sweeps as a person sees them: the live table, `brim sweep status`, plain lines for a pipe, the summary at the end,
// the dry run, the page of a store and the comparison of groups of experiments. Pure functions of records and of a
// brim_term. Callers: src/cli/sweep, src/cli/lab.
#ifndef BRIM_UI_SWEEP_H_
#define BRIM_UI_SWEEP_H_

#include "record/record_forecast.h"
#include "record/record_lab.h"
#include "record/record_sweep.h"
#include "ui/term/ui_term.h"

//---------------------------------- live table ----------------------------------

// The action that a key asks of the caller. brim_ui_sweep.target names the experiment, if the action is about one.
typedef enum brim_ui_sweep_action {
  BRIM_UI_SWEEP_NOTHING,       // the key has no effect
  BRIM_UI_SWEEP_DRAW,          // the view changed: draw again
  BRIM_UI_SWEEP_CANCEL,        // brim_store_want CANCEL
  BRIM_UI_SWEEP_PAUSE,         // brim_store_want PAUSE
  BRIM_UI_SWEEP_RESUME,        // brim_store_want RUN
  BRIM_UI_SWEEP_RETRY,         // brim_store_retry
  BRIM_UI_SWEEP_RETRY_FAILED,  // brim_store_retry_failed
  BRIM_UI_SWEEP_RAISE,         // one priority higher
  BRIM_UI_SWEEP_LOWER,
  BRIM_UI_SWEEP_RETURN_GPUS,  // use the GPUs that are out of service again
  BRIM_UI_SWEEP_STOP,         // stop the sweep cleanly, as Ctrl-C does
  BRIM_UI_SWEEP_LEAVE,        // close the screen; the sweep continues with plain lines
  BRIM_UI_SWEEP_ACTION_COUNT
} brim_ui_sweep_action;

// The lists of experiments that the table can show; keys 1 to 6 choose one.
typedef enum brim_ui_sweep_list {
  BRIM_UI_SWEEP_ALL,
  BRIM_UI_SWEEP_ACTIVE,  // starting or running
  BRIM_UI_SWEEP_WAITING,
  BRIM_UI_SWEEP_FINISHED,
  BRIM_UI_SWEEP_FAILURES,
  BRIM_UI_SWEEP_HELD,  // paused or cancelled
  BRIM_UI_SWEEP_LIST_COUNT
} brim_ui_sweep_list;

typedef enum brim_ui_sweep_order {
  BRIM_UI_SWEEP_BY_STATE,  // running, failed and done (the latest first), queued, paused, cancelled
  BRIM_UI_SWEEP_BY_INDEX,  // as in the grid
  BRIM_UI_SWEEP_BY_METRIC,
  BRIM_UI_SWEEP_BY_TIME,  // the latest change first
  BRIM_UI_SWEEP_ORDER_COUNT
} brim_ui_sweep_order;

typedef enum brim_ui_sweep_mode {
  BRIM_UI_SWEEP_TABLE,
  BRIM_UI_SWEEP_DETAILS,
  BRIM_UI_SWEEP_LOG,
  BRIM_UI_SWEEP_HELP,
  BRIM_UI_SWEEP_SEARCH,   // the user types a search text
  BRIM_UI_SWEEP_CONFIRM,  // the user answers whether to do `pending`
  BRIM_UI_SWEEP_MODE_COUNT
} brim_ui_sweep_mode;

// The state of the live table. Only these functions change it; the caller sets `watching`.
typedef struct brim_ui_sweep {
  brim_ui_sweep_mode mode;
  brim_ui_sweep_list list;
  brim_ui_sweep_order order;
  brim_ui_sweep_action pending;
  char selected[33];  // id of the row under the cursor in the last frame; "" = none yet
  char target[33];    // id of the experiment of the last action
  char search[64];
  size_t at, top;  // indices of rows: the selected row, and the first on the screen
  size_t page;     // rows that fit in the last frame
  bool moved;      // the user moved the cursor down; false: it stays on the first row
  bool follow;     // the next frame moves the cursor to `selected`, even off the screen
  int64_t scroll;  // lines that the log is scrolled up from its end
  bool watching;   // another process runs the sweep: quitting does not stop it
} brim_ui_sweep;

void brim_ui_sweep_init(brim_ui_sweep *state);
brim_ui_sweep_action brim_ui_sweep_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                       brim_key key);
// The id of the experiment whose log or details are shown: the caller reads its log. NULL = none.
const char *brim_ui_sweep_wants_log(const brim_ui_sweep *state);

// The log of the target, read by the caller; both texts may be NULL.
typedef struct brim_ui_sweep_log {
  const char *path;  // shown above the text
  const char *text;  // the end of the log; 64 KiB are enough
} brim_ui_sweep_log;

// One frame of `rows` lines for brim_screen_draw. `log` may be NULL.
brim_status brim_ui_sweep_frame(brim_ui_sweep *state, const brim_sweep_view *view,
                                const brim_ui_sweep_log *log, const brim_term *term, int rows,
                                brim_str *out);

//---------------------------------- plain text ----------------------------------

// One line about the whole sweep, without a newline: "412 of 1,200 done  8 running  12 failed  ETA 4 h".
void brim_ui_sweep_line(const brim_sweep_view *view, const brim_term *term, brim_str *out);
// One message as a line with its time of day.
void brim_ui_sweep_message(const brim_sweep_message *message, const brim_term *term, brim_str *out);

typedef struct brim_ui_sweep_status_options {
  bool pool;  // the store of a server: do not say that no sweep is running
} brim_ui_sweep_status_options;

// `brim sweep status`: every row of the view, and the number of experiments that the view leaves out. options NULL: the
// defaults.
brim_status brim_ui_sweep_status(const brim_sweep_view *view, const brim_term *term,
                                 const brim_ui_sweep_status_options *options, brim_str *out);

// Commands that the summary suggests.
typedef struct brim_ui_sweep_summary_options {
  const char *retry;   // "brim sweep rerun-failed --store runs/mnist"
  const char *resume;  // "brim sweep grid.yaml"; shown if something is left to run
  const char *report;  // "brim report runs/mnist"; NULL = left out
} brim_ui_sweep_summary_options;
// The summary at the end of a sweep: counts, failures by class with the first message and the command that retries
// them, the best experiments, mean and standard deviation over seeds.
brim_status brim_ui_sweep_summary(const brim_sweep_view *view, const brim_term *term,
                                  const brim_ui_sweep_summary_options *options, brim_str *out);

// `brim sweep --dry-run`: the forecast of a grid as a table with its sums.
brim_status brim_ui_forecast(const brim_term *term, const brim_forecast *forecast, brim_str *out);

//---------------------------------- stores ----------------------------------

typedef struct brim_ui_lab_options {
  const char *title;
  const char *place;       // the store or the file; NULL = left out
  const char *command;     // the command line; NULL = left out
  brim_lab_result result;  // which value of an experiment is its result
  double now_s;            // when the page was made, since 1970; 0 = left out
} brim_ui_lab_options;

// `brim report STORE`: one self-contained HTML page with the best setting, states, failures, parallel coordinates,
// curves, groups, experiments, settings. With very many values, curves of some metrics are left out.
brim_status brim_ui_lab_report(const brim_ui_lab_options *options, const brim_lab_set *set,
                               brim_str *out);

// The two sides of a comparison.
typedef struct brim_ui_lab_sides {
  const char *a_name, *b_name;
  const char *differences;    // lines on what else the sides differ in; NULL = none
  const char *metric;         // a line that names the compared metric
  const brim_lab_set *a, *b;  // equal if groups of one set are compared
} brim_ui_lab_sides;

// `brim compare` of experiments: the two sides, their other differences, a table of the matches, the count of each
// verdict, and one line over all matches.
brim_status brim_ui_lab_compare(const brim_term *term, const brim_lab_comparison *comparison,
                                const brim_ui_lab_sides *sides, brim_str *out);

#endif  // BRIM_UI_SWEEP_H_
