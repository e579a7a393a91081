// A sweep as a person sees it: the live table, `brim sweep status`, plain lines for a pipe, and the
// summary at the end. Pure functions of a brim_sweep_view, of a brim_term and of what the user looks
// at. Callers: src/cli/sweep.
#ifndef BRIM_UI_SWEEP_H_
#define BRIM_UI_SWEEP_H_

#include "record/record_sweep.h"
#include "ui/ui.h"
#include "ui/ui_screen.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- live table ----------------------------------

// What the caller does after a key. The experiment is the state's `target`.
typedef enum brim_ui_sweep_action {
  BRIM_UI_SWEEP_NOTHING,       // the key means nothing here
  BRIM_UI_SWEEP_DRAW,          // the view changed: draw again
  BRIM_UI_SWEEP_CANCEL,        // brim_store_want CANCEL
  BRIM_UI_SWEEP_PAUSE,         // brim_store_want PAUSE
  BRIM_UI_SWEEP_RESUME,        // brim_store_want RUN
  BRIM_UI_SWEEP_RETRY,         // brim_store_retry
  BRIM_UI_SWEEP_RETRY_FAILED,  // brim_store_retry_failed
  BRIM_UI_SWEEP_RAISE,         // one priority higher
  BRIM_UI_SWEEP_LOWER,
  BRIM_UI_SWEEP_RETURN_GPUS,  // GPUs out of service are used again
  BRIM_UI_SWEEP_STOP,         // stop the sweep cleanly, as Ctrl-C does
  BRIM_UI_SWEEP_LEAVE,        // close the screen; the sweep continues with plain lines
  BRIM_UI_SWEEP_ACTION_COUNT
} brim_ui_sweep_action;

// Which experiments the table lists; the keys 1 to 6.
typedef enum brim_ui_sweep_list {
  BRIM_UI_SWEEP_ALL,
  BRIM_UI_SWEEP_ACTIVE,  // starting and running
  BRIM_UI_SWEEP_WAITING,
  BRIM_UI_SWEEP_FINISHED,
  BRIM_UI_SWEEP_FAILURES,
  BRIM_UI_SWEEP_HELD,  // paused and cancelled
  BRIM_UI_SWEEP_LIST_COUNT
} brim_ui_sweep_list;

typedef enum brim_ui_sweep_order {
  BRIM_UI_SWEEP_BY_STATE,  // running first, then failed, queued, done
  BRIM_UI_SWEEP_BY_INDEX,  // as in the grid
  BRIM_UI_SWEEP_BY_METRIC,
  BRIM_UI_SWEEP_BY_TIME,  // what changed last first
  BRIM_UI_SWEEP_ORDER_COUNT
} brim_ui_sweep_order;

typedef enum brim_ui_sweep_mode {
  BRIM_UI_SWEEP_TABLE,
  BRIM_UI_SWEEP_DETAILS,
  BRIM_UI_SWEEP_LOG,
  BRIM_UI_SWEEP_HELP,
  BRIM_UI_SWEEP_SEARCH,   // a text is typed
  BRIM_UI_SWEEP_CONFIRM,  // yes or no to `pending`
  BRIM_UI_SWEEP_MODE_COUNT
} brim_ui_sweep_mode;

// What the user looks at. Only these functions change it; `watching` is the caller's.
typedef struct brim_ui_sweep {
  brim_ui_sweep_mode mode;
  brim_ui_sweep_list list;
  brim_ui_sweep_order order;
  brim_ui_sweep_action pending;
  char selected[33];  // id of the row under the cursor in the last frame; "" = none yet
  char target[33];    // of the last action
  char search[64];
  size_t at, top;  // rows of the table: the selected one, and the first on the screen
  size_t page;     // rows the last frame had room for
  bool moved;      // the cursor left the first row; until then it stays there
  bool follow;     // to the selected experiment, wherever the list has it now
  int64_t scroll;  // lines of the log from its end
  bool watching;   // the sweep is another process: quitting does not stop it
} brim_ui_sweep;

void brim_ui_sweep_init(brim_ui_sweep *state);
// What a key does.
brim_ui_sweep_action brim_ui_sweep_key(brim_ui_sweep *state, const brim_sweep_view *view,
                                       brim_key key);
// The experiment whose log or details the user looks at, for the caller to read its files; NULL = none.
const char *brim_ui_sweep_wants_log(const brim_ui_sweep *state);

// What the caller has read of the target's log; texts may be NULL.
typedef struct brim_ui_sweep_log {
  const char *path;  // shown above it
  const char *text;  // its end; the last 64 KiB are plenty
} brim_ui_sweep_log;

// One frame of `rows` lines for brim_screen_draw. `log` may be NULL.
brim_status brim_ui_sweep_frame(brim_ui_sweep *state, const brim_sweep_view *view,
                                const brim_ui_sweep_log *log, const brim_term *term, int rows,
                                brim_str *out);

//---------------------------------- plain text ----------------------------------

// One line about the whole, without a newline: "412 of 1,200 done  8 running  12 failed  ETA 4 h".
void brim_ui_sweep_line(const brim_sweep_view *view, const brim_term *term, brim_str *out);
// One message as a line with its time of day.
void brim_ui_sweep_message(const brim_sweep_message *message, const brim_term *term, brim_str *out);

typedef struct brim_ui_sweep_status_options {
  bool pool;  // of a server, whose workers are not looked at
} brim_ui_sweep_status_options;

// `brim sweep status`: every row of the view; what the counts have beyond them is named. options NULL:
// the defaults.
brim_status brim_ui_sweep_status(const brim_sweep_view *view, const brim_term *term,
                                 const brim_ui_sweep_status_options *options, brim_str *out);

// At the end of a sweep: what is done, failures by class with the first message and the command that
// retries them, the best experiments, mean and standard deviation over seeds. `command`: what continues
// or retries it, "brim sweep" and its store.
typedef struct brim_ui_sweep_summary_options {
  const char *retry;   // "brim sweep rerun-failed --store runs/mnist"
  const char *resume;  // "brim sweep grid.yaml"; shown where something is left to run
  const char *report;  // "brim report runs/mnist"; NULL = left out
} brim_ui_sweep_summary_options;
brim_status brim_ui_sweep_summary(const brim_sweep_view *view, const brim_term *term,
                                  const brim_ui_sweep_summary_options *options, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_SWEEP_H_
