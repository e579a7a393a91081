// Shows a running sweep: a live table on a terminal, lines elsewhere, events with --json; at the end the summary.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/wire/lab_wire_link.h"
#include "ui/sweep/ui_sweep.h"

enum {
  TURN_MS = 500,
  LINE_S = 60,  // seconds between lines about the whole sweep, without the table
  LOG_BYTES = 64 << 10
};

typedef struct watcher {
  const brim_cli_sweep_job *job;
  brim_cli *cli;
  brim_lab_sweep *sweep;
  brim_screen *screen;  // NULL = lines or events
  brim_ui_sweep ui;
  int64_t last_shown;     // number of the last message shown
  unsigned char *states;  // last reported state of each row; 0xff = not reported yet
  size_t state_count;
  brim_time line_time;
  char *log_text, *log_path;
} watcher;

//---------------------------------- events ----------------------------------

// A row as JSON. Always puts the state: brim_sweep_row_to_json leaves out members that are 0, such as QUEUED.
static json_t *row_json(const brim_sweep_row *row) {
  json_t *f = NULL;
  if (brim_sweep_row_to_json(row, &f)) return NULL;
  if (!brim_json_put(f, "state", json_string(brim_sweep_state_name(row->state)))) return f;
  json_decref(f);
  return NULL;
}

static brim_status tell_rows(watcher *w, const brim_sweep_view *view) {
  if (view->row_count > w->state_count) {
    unsigned char *more = brim_realloc(w->states, view->row_count);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory while showing a sweep");
    memset(more + w->state_count, 0xff, view->row_count - w->state_count);
    w->states = more;
    w->state_count = view->row_count;
  }
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    bool changed = w->states[i] != (unsigned char)row->state;
    bool just_submitted =
        w->states[i] == 0xff && row->state == BRIM_SWEEP_QUEUED;  // just submitted
    w->states[i] = (unsigned char)row->state;
    if (!changed || just_submitted) continue;
    json_t *f = row_json(row);
    if (!f) return brim_fail(BRIM_ENOMEM, "out of memory while showing a sweep");
    BRIM_TRY(brim_cli_event(w->cli, "experiment", f));
  }
  return BRIM_OK;
}

static brim_status message_event(watcher *w, const brim_sweep_message *m) {
  static const char *const levels[] = {"info", "warn", "error"};
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "level", json_string(levels[m->level]));
  if (!s) s = brim_json_put(f, "exp", m->exp[0] ? json_string(m->exp) : json_null());
  if (!s) s = brim_json_put(f, "text", json_string(m->text));
  return brim_cli_finish_event(w->cli, "message", f, s);
}

//---------------------------------- lines ----------------------------------

static brim_status show_messages(watcher *w, const brim_sweep_view *view) {
  for (size_t i = 0; i < view->message_count; i++) {
    const brim_sweep_message *m = &view->messages[i];
    if (m->seq <= w->last_shown) continue;
    w->last_shown = m->seq;
    if (w->cli->json) {
      BRIM_TRY(message_event(w, m));
      continue;
    }
    brim_str text;
    brim_str_init(&text);
    brim_ui_sweep_message(m, &w->cli->err, &text);
    brim_status status = brim_str_status(&text);
    if (!status) brim_cli_note(w->cli, "%s\n", text.data);
    brim_str_deinit(&text);
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

static brim_status show_line(watcher *w, const brim_sweep_view *view) {
  brim_time now = brim_clock_now();
  if (w->line_time.ns && brim_time_since_ns(w->line_time, now) < LINE_S * 1000000000LL)
    return BRIM_OK;
  bool first = w->line_time.ns == 0;
  w->line_time = now;
  if (first) return BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  brim_ui_sweep_line(view, &w->cli->err, &text);
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_note(w->cli, "%s\n", text.data);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- the table ----------------------------------

// Turns log lines into messages: on the terminal they would damage the table.
static void log_to_table(void *ctx, brim_log_level level, const char *module, const char *text) {
  watcher *w = ctx;
  (void)module;
  brim_lab_sweep_say(w->sweep,
                     level == BRIM_LOG_ERROR  ? BRIM_SWEEP_ERROR
                     : level == BRIM_LOG_WARN ? BRIM_SWEEP_WARN
                                              : BRIM_SWEEP_INFO,
                     "", text);
}

static void open_table(watcher *w) {
  if (brim_screen_open(STDIN_FILENO, STDERR_FILENO, BRIM_UI_COLOUR_AUTO, &w->screen)) {
    brim_status_clear();
    return;
  }
  brim_log_set_sink(log_to_table, w, BRIM_LOG_INFO);
}

static void close_table(watcher *w) {
  if (!w->screen) return;
  brim_screen_close(w->screen);
  w->screen = NULL;
  brim_cli_log(w->cli);
}

static brim_status shift_priority(brim_lab_link *link, const brim_sweep_view *view, const char *exp,
                                  int64_t by) {
  const brim_sweep_row *row = brim_sweep_view_find(view, exp);
  return row ? brim_lab_set_priority(link, exp, row->priority + by) : BRIM_OK;
}

static brim_status restore_gpus(brim_lab_link *link, const brim_sweep_view *view) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    if (view->gpus[i].state != BRIM_SWEEP_GPU_OUT) continue;
    const brim_lab_request request = {.op = BRIM_LAB_OP_RESTORE, .device = view->gpus[i].id};
    BRIM_TRY(brim_lab_call(link, &request, NULL));
  }
  return BRIM_OK;
}

static brim_status do_action(watcher *w, const brim_sweep_view *view, brim_ui_sweep_action action) {
  brim_lab_link *link = brim_lab_sweep_link(w->sweep);
  const char *exp = w->ui.target;
  switch (action) {
    case BRIM_UI_SWEEP_CANCEL:
      return brim_lab_want(link, exp, BRIM_WANT_CANCEL);
    case BRIM_UI_SWEEP_PAUSE:
      return brim_lab_want(link, exp, BRIM_WANT_PAUSE);
    case BRIM_UI_SWEEP_RESUME:
      return brim_lab_want(link, exp, BRIM_WANT_RUN);
    case BRIM_UI_SWEEP_RETRY:
      return brim_lab_retry(link, exp);
    case BRIM_UI_SWEEP_RETRY_FAILED:
      return brim_lab_retry_failed(link, NULL, NULL);
    case BRIM_UI_SWEEP_RAISE:
      return shift_priority(link, view, exp, 1);
    case BRIM_UI_SWEEP_LOWER:
      return shift_priority(link, view, exp, -1);
    case BRIM_UI_SWEEP_RETURN_GPUS:
      return restore_gpus(link, view);
    case BRIM_UI_SWEEP_STOP:
      brim_lab_sweep_stop(w->sweep);
      return BRIM_OK;
    case BRIM_UI_SWEEP_LEAVE:
      close_table(w);
      return BRIM_OK;
    case BRIM_UI_SWEEP_NOTHING:
    case BRIM_UI_SWEEP_DRAW:
    case BRIM_UI_SWEEP_ACTION_COUNT:
      break;
  }
  return BRIM_OK;
}

static brim_status take_keys(watcher *w, const brim_sweep_view *view) {
  brim_key key;
  while (w->screen && brim_screen_key(w->screen, brim_clock_now(), &key)) {
    if (key.code == BRIM_KEY_REDRAW) brim_screen_redraw_all(w->screen);
    brim_status status = do_action(w, view, brim_ui_sweep_key(&w->ui, view, key));
    if (status == BRIM_ENOMEM) return status;
    if (status) {
      brim_lab_sweep_say(w->sweep, BRIM_SWEEP_WARN, w->ui.target, brim_status_detail());
      brim_status_clear();
    }
  }
  return BRIM_OK;
}

// Reads the last `bytes` of a file, without a partial first line; brim_free.
static brim_status read_end(const char *path, size_t bytes, char **out) {
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(path, &fd, &size));
  uint64_t from = size > bytes ? size - bytes : 0;
  size_t n = (size_t)(size - from);
  char *text = brim_alloc(n + 1);
  ssize_t got = text ? pread(fd, text, n, (off_t)from) : -1;
  close(fd);
  if (!text) return brim_fail(BRIM_ENOMEM, "out of memory while reading a log");
  text[got > 0 ? got : 0] = '\0';
  // Begin with a whole line.
  char *line = from > 0 ? strchr(text, '\n') : NULL;
  if (line) memmove(text, line + 1, strlen(line + 1) + 1);
  *out = text;
  return BRIM_OK;
}

// Reads the end of the log that the user has opened in the table.
static brim_status read_log(watcher *w, const brim_sweep_view *view, brim_ui_sweep_log *out) {
  const char *id = brim_ui_sweep_wants_log(&w->ui);
  const brim_sweep_row *row = id ? brim_sweep_view_find(view, id) : NULL;
  brim_free(w->log_text);
  brim_free(w->log_path);
  w->log_text = w->log_path = NULL;
  if (!row || row->attempt < 1) return BRIM_OK;
  BRIM_TRY(brim_cli_sweep_log_path(w->job->folder, row->id, row->attempt, &w->log_path));
  brim_status status = read_end(w->log_path, LOG_BYTES, &w->log_text);
  if (status && status != BRIM_ENOMEM) brim_status_clear();
  *out = (brim_ui_sweep_log){.path = w->log_path, .text = w->log_text};
  return status == BRIM_ENOMEM ? status : BRIM_OK;
}

static brim_status draw(watcher *w, const brim_sweep_view *view) {
  brim_term term;
  brim_ui_sweep_log log = {0};
  brim_str frame;
  int rows = 0;
  BRIM_TRY(read_log(w, view, &log));
  brim_screen_size(w->screen, &term, &rows);
  term.colour = w->cli->err.colour;  // as --color says
  brim_str_init(&frame);
  brim_status status = brim_ui_sweep_frame(&w->ui, view, &log, &term, rows, &frame);
  if (!status) status = brim_screen_draw(w->screen, frame.data);
  brim_str_deinit(&frame);
  if (status != BRIM_EIO) return status;
  close_table(w);  // the terminal is gone, but the sweep continues
  brim_status_clear();
  return BRIM_OK;
}

static brim_status show(watcher *w) {
  const brim_sweep_view *view = NULL;
  BRIM_TRY(brim_lab_sweep_view(w->sweep, w->screen || w->cli->json, &view));
  if (w->cli->json) BRIM_TRY(tell_rows(w, view));
  if (w->screen) {
    BRIM_TRY(take_keys(w, view));
    if (w->screen) return draw(w, view);
  }
  BRIM_TRY(show_messages(w, view));
  return w->cli->json ? BRIM_OK : show_line(w, view);
}

//---------------------------------- the end ----------------------------------

static brim_status end_event(watcher *w, const brim_sweep_view *view, const char *why) {
  json_t *f = NULL;
  BRIM_TRY(brim_sweep_view_to_json(view, false, &f));
  brim_status status = brim_json_put(f, "end", json_string(why));
  return brim_cli_finish_event(w->cli, "end", f, status);
}

static brim_status print_summary(watcher *w, const brim_sweep_view *view) {
  brim_str text, command, retry, report;
  brim_str_init(&text);
  brim_str_init(&command);
  brim_str_init(&retry);
  brim_str_init(&report);
  brim_cli_command_text(w->cli, &command);
  brim_str_append(&retry, "brim sweep rerun-failed ");
  brim_cli_word_text(w->job->shown, &retry);
  brim_str_append(&report, "brim report ");
  brim_cli_word_text(w->job->shown, &report);
  const brim_ui_sweep_summary_options how = {
      .retry = retry.data,
      .resume = command.data,
      .report = brim_lab_is_server(w->job->place) ? NULL : report.data};
  brim_status status = brim_str_status(&command);
  if (!status) status = brim_ui_sweep_summary(view, &w->cli->out, &how, &text);
  brim_str_deinit(&report);
  brim_str_deinit(&retry);
  brim_str_deinit(&command);
  return brim_cli_finish_text(w->cli, &text, status);
}

// The status with which the command ends.
static brim_status outcome(watcher *w, const brim_sweep_view *view) {
  const int64_t *n = view->counts;
  int64_t left = n[BRIM_SWEEP_QUEUED] + n[BRIM_SWEEP_LEASED] + n[BRIM_SWEEP_RUNNING];
  switch (brim_lab_sweep_end(w->sweep)) {
    case BRIM_LAB_END_STOPPED:
      if (brim_lab_is_server(w->job->place)) return brim_fail(BRIM_EINTERRUPTED, "stopped");
      return brim_fail(BRIM_EINTERRUPTED,
                       "stopped with %lld experiments left; run the same command to continue",
                       (long long)left);
    case BRIM_LAB_END_SAME_FAILURE:
      return brim_fail(BRIM_ESTATE, "%.400s; --keep-going runs the others all the same",
                       view->notice);
    case BRIM_LAB_END_NO_PLACE:
      if (view->notice[0]) {
        return brim_fail(BRIM_EDEVICE, "%.400s; experiments left: %lld", view->notice,
                         (long long)left);
      }
      return brim_fail(BRIM_ESTATE, "%lld experiments fit on no device of this machine",
                       (long long)left);
    case BRIM_LAB_END_NONE:
    case BRIM_LAB_END_ALL:
    case BRIM_LAB_END_COUNT:
      break;
  }
  if (n[BRIM_SWEEP_FAILED] == 0) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "%lld of %lld experiments failed", (long long)n[BRIM_SWEEP_FAILED],
                   (long long)brim_sweep_view_total(view));
}

static const char *end_name(brim_lab_end end) {
  switch (end) {
    case BRIM_LAB_END_STOPPED:
      return "stopped";
    case BRIM_LAB_END_SAME_FAILURE:
      return "same_failure";
    case BRIM_LAB_END_NO_PLACE:
      return "no_place";
    case BRIM_LAB_END_NONE:
    case BRIM_LAB_END_ALL:
    case BRIM_LAB_END_COUNT:
      break;
  }
  return "all";
}

static brim_status finish(watcher *w) {
  const brim_sweep_view *view = NULL;
  const bool rows = !w->job->worker;  // a worker does not show the experiments of other workers
  do {                                // each call brings details of more experiments
    BRIM_TRY(brim_lab_sweep_view(w->sweep, rows, &view));
  } while (rows && brim_lab_sweep_view_lags(w->sweep));
  BRIM_TRY(w->cli->json ? end_event(w, view, end_name(brim_lab_sweep_end(w->sweep)))
                        : print_summary(w, view));
  return outcome(w, view);
}

static brim_status run_loop(watcher *w) {
  bool done = false;
  while (!done) {
    struct pollfd keys = {.fd = w->screen ? brim_screen_fd(w->screen) : -1, .events = POLLIN};
    bool key_pending = w->screen && brim_screen_has_input(w->screen);
    if (*w->cli->stop) brim_lab_sweep_stop(w->sweep);
    BRIM_TRY(brim_lab_sweep_turn(w->sweep, &keys, w->screen ? 1 : 0,
                                 key_pending ? BRIM_SCREEN_ESCAPE_MS : TURN_MS, &done));
    BRIM_TRY(show(w));
  }
  return BRIM_OK;
}

static void tell_nothing_left(brim_cli *cli, brim_lab_sweep *sweep) {
  brim_store_counts counts;
  if (brim_lab_count(brim_lab_sweep_link(sweep), NULL, &counts)) {
    brim_status_clear();
    return;
  }
  const int64_t *n = counts.states;
  if (n[BRIM_EXP_QUEUED] + n[BRIM_EXP_LEASED] + n[BRIM_EXP_RUNNING] > 0) return;
  brim_cli_note(cli, "%s", brim_tr("nothing is left to run: every experiment has ended\n"));
}

brim_status brim_cli_sweep_watch(const brim_cli_sweep_job *job, brim_lab_sweep *sweep) {
  brim_cli *cli = job->cli;
  watcher w = {.job = job, .cli = cli, .sweep = sweep};
  brim_ui_sweep_init(&w.ui);
  if (!job->worker) tell_nothing_left(cli, sweep);
  if (!cli->json && !cli->quiet) open_table(&w);
  brim_status status = run_loop(&w);
  close_table(&w);
  if (!status) status = finish(&w);
  brim_free(w.states);
  brim_free(w.log_text);
  brim_free(w.log_path);
  return status;
}
