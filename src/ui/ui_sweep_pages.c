// Pages over the live table of a sweep: the keys, one experiment, its log.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_sweep_frame.h"

//---------------------------------- help ----------------------------------

void brim_ui_sweep_help(brim_ui_frame *frame, const brim_ui_sweep *state) {
  static const struct {
    const char *keys, *text;
  } rows[] = {
      {"↑ ↓ j k", BRIM_N_("move; PgUp, PgDn, Home and End move further")},
      {"Enter", BRIM_N_("details of the experiment")},
      {"l", BRIM_N_("its log")},
      {"c", BRIM_N_("cancel it; asks first")},
      {"p", BRIM_N_("pause it after a checkpoint, or resume it")},
      {"r", BRIM_N_("retry it after a failure or a cancellation")},
      {"R", BRIM_N_("retry all failed experiments; asks first")},
      {"+ -", BRIM_N_("run it earlier or later than the other queued ones")},
      {"1-6 Tab", BRIM_N_("list all, running, queued, done, failed, paused or cancelled ones")},
      {"s", BRIM_N_("sort by state, grid order, metric or time")},
      {"/", BRIM_N_("search labels, tags and ids; Esc ends it")},
      {"u", BRIM_N_("use GPUs again that are out of service; asks first")},
      {"Ctrl-L", BRIM_N_("draw the screen again")},
      {"Ctrl-C", BRIM_N_("stop the sweep: running experiments save first")},
      {"q", BRIM_N_("stop the sweep or close this table; asks first")},
  };
  brim_ui_frame_text(frame, BRIM_UI_TITLE, brim_tr("Keys"));
  brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char line[256];
    const char *keys = i == 0 && !frame->term->unicode ? "Up Down j k" : rows[i].keys;
    const char *text = rows[i].text;
    if (state->watching && strcmp(keys, "Ctrl-C") == 0) continue;
    if (state->watching && strcmp(keys, "q") == 0) text = BRIM_N_("close this table");
    int pad = 12 - brim_utf8_width(keys);
    snprintf(line, sizeof line, "  %s%*s %s", keys, pad > 0 ? pad : 0, "", brim_tr(text));
    brim_ui_frame_text(frame, BRIM_UI_PLAIN, line);
  }
  while (frame->left > 1) brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  static const brim_ui_hint back[] = {{"Esc", BRIM_N_("back")}};
  brim_ui_frame_hints(frame, "", back, 1);
}

//---------------------------------- one experiment ----------------------------------

// "  Started   12 min ago"; a text without room continues below.
static void put_fact(brim_ui_frame *f, const char *name, brim_ui_style style, const char *value) {
  enum { INDENT = 14 };
  if (!*value) return;
  char label[64];
  int pad = INDENT - 2 - brim_utf8_width(name);
  snprintf(label, sizeof label, "  %s%*s", name, pad > 0 ? pad : 1, "");
  int room = f->term->width - brim_utf8_width(label);
  for (int line = 0; *value && line < 6 && room > 8; line++) {
    brim_str out, part;
    size_t n = 0, space = 0;
    int used = 0;
    while (value[n] && value[n] != '\n') {
      size_t size = 1;
      char one[8];
      while (size < 4 && ((unsigned char)value[n + size] & 0xC0) == 0x80) size++;
      memcpy(one, value + n, size);
      one[size] = '\0';
      used += brim_utf8_width(one);
      if (used > room) break;
      if (value[n] == ' ') space = n;
      n += size;
    }
    if (value[n] && value[n] != '\n' && space > 0) n = space;
    brim_str_init(&out);
    brim_str_init(&part);
    brim_str_append_n(&part, value, n);
    brim_str_append(&out, line == 0 ? label : "");
    if (line > 0) brim_str_repeat(&out, ' ', (size_t)(f->term->width - room));
    brim_str clipped;
    brim_str_init(&clipped);
    brim_ui_clip(&clipped, f->term, part.data, room);
    brim_ui_styled(&out, f->term, style, clipped.data);
    brim_ui_frame_line(f, &out);
    brim_str_deinit(&clipped);
    brim_str_deinit(&part);
    brim_str_deinit(&out);
    value += n;
    while (*value == ' ' || *value == '\n') value++;
  }
}

static void put_state(brim_ui_frame *f, const brim_sweep_row *row) {
  char text[160];
  int n = snprintf(text, sizeof text, "%s", brim_ui_sweep_state_text(row));
  if (row->attempt > 0 && n > 0 && n < (int)sizeof text) {
    snprintf(text + n, sizeof text - (size_t)n, brim_tr(", attempt %lld, %lld retries left"),
             (long long)row->attempt, (long long)row->tries_left);
  }
  put_fact(f, brim_tr("State"), brim_ui_sweep_state_style(row->state), text);
}

static void put_progress(brim_ui_frame *f, const brim_sweep_row *row) {
  char text[160] = "", step[32], steps[32];
  size_t n = 0;
  brim_format_count((double)row->step, step);
  brim_format_count((double)row->steps, steps);
  if (row->step >= 0 && row->steps > 0) {
    n = brim_msg_format(text, sizeof text, brim_tr("step %s of %s"), step, steps);
  } else if (row->step >= 0) {
    n = brim_msg_format(text, sizeof text, brim_tr("step %s"), step);
  }
  if (row->epoch >= 0 && row->epochs > 0) {
    n += brim_msg_format(text + n, sizeof text - n, "%s", n ? ", " : "");
    (void)brim_msg_format(text + n, sizeof text - n, brim_tr("epoch %lld of %lld"),
                          (long long)row->epoch, (long long)row->epochs);
  }
  put_fact(f, brim_tr("Progress"), BRIM_UI_PLAIN, text);
}

static void put_metric(brim_ui_frame *f, const brim_sweep_view *view, const brim_sweep_row *row) {
  char value[32], best[32], text[160] = "";
  const brim_sweep_metric *metric = brim_sweep_view_metric(view, row->metric_key);
  brim_ui_sweep_value(metric, row->metric, value);
  brim_ui_sweep_value(metric, row->best, best);
  if (value[0] && best[0]) {
    snprintf(text, sizeof text, brim_tr("%s, best %s"), value, best);
  } else {
    snprintf(text, sizeof text, "%s", value[0] ? value : best);
  }
  const char *label = metric ? brim_ui_sweep_metric_label(metric) : row->metric_key;
  put_fact(f, label, BRIM_UI_PLAIN, text);
}

static void put_times(brim_ui_frame *f, const brim_sweep_view *view, const brim_sweep_row *row) {
  char text[160] = "", time[32], eta[32];
  brim_ui_sweep_clock(brim_ui_sweep_seconds(view, row), time);
  brim_ui_sweep_clock(brim_sweep_state_ended(row->state) ? NAN : row->eta_s, eta);
  if (time[0] && eta[0]) {
    snprintf(text, sizeof text, brim_tr("%s, ETA %s"), time, eta);
  } else {
    snprintf(text, sizeof text, "%s", time[0] ? time : eta);
  }
  put_fact(f, brim_tr("Time"), BRIM_UI_PLAIN, text);
}

static void put_experiment(brim_ui_frame *f, const brim_sweep_view *view,
                           const brim_sweep_row *row) {
  char text[160];
  brim_str note;
  put_fact(f, brim_tr("Id"), BRIM_UI_PLAIN, row->id);
  put_state(f, row);
  put_progress(f, row);
  put_metric(f, view, row);
  put_times(f, view, row);
  snprintf(text, sizeof text, "%.100s%s%.40s", row->devices, *row->host ? ", " : "", row->host);
  put_fact(f, brim_tr("Where"), BRIM_UI_PLAIN, text);
  put_fact(f, brim_tr("Tags"), BRIM_UI_PLAIN, row->tags);
  if (row->priority != 0) {
    snprintf(text, sizeof text, "%lld", (long long)row->priority);
    put_fact(f, brim_tr("Priority"), BRIM_UI_PLAIN, text);
  }
  brim_str_init(&note);
  brim_ui_sweep_note(row, &note);
  bool failed = row->state == BRIM_SWEEP_FAILED;
  put_fact(f, failed ? brim_tr("Failure") : brim_tr("Note"), failed ? BRIM_UI_BAD : BRIM_UI_WARN,
           note.data);
  brim_str_deinit(&note);
}

//---------------------------------- log ----------------------------------

static size_t count_lines(const char *text) {
  size_t n = 0, size = strlen(text);
  for (size_t i = 0; i < size; i++) n += text[i] == '\n';
  return n + (size > 0 && text[size - 1] != '\n');
}

// One value of an event: numbers in short, nested ones as a sign that they are there.
static void put_value(brim_str *out, const char *key, const json_t *value) {
  if (json_is_string(value)) {
    brim_str_printf(out, "  %s=%s", key, json_string_value(value));
  } else if (json_is_integer(value)) {
    brim_str_printf(out, "  %s=%lld", key, (long long)json_integer_value(value));
  } else if (json_is_real(value)) {
    brim_str_printf(out, "  %s=%.4g", key, json_real_value(value));
  } else if (json_is_boolean(value)) {
    brim_str_printf(out, "  %s=%s", key, json_is_true(value) ? "true" : "false");
  } else if (!json_is_null(value)) {
    brim_str_printf(out, "  %s=...", key);
  }
}

// An event as brim writes it with --json, for people: "12:03:11  epoch  epoch=4  loss=0.31". Other
// lines stay as they are.
static void put_event(const char *line, size_t size, brim_str *out) {
  json_t *event = NULL;
  const char *key;
  json_t *value;
  bool object = size > 2 && line[0] == '{' && !brim_json_parse(line, size, "", &event);
  const char *name = object ? json_string_value(json_object_get(event, "event")) : NULL;
  if (!name) {
    brim_str_append_n(out, line, size);
  } else {
    const json_t *when = json_object_get(event, "t");
    char clock[16];
    brim_ui_sweep_time(json_is_number(when) ? json_number_value(when) : NAN, clock);
    brim_str_printf(out, "%s%s%s", clock, clock[0] ? "  " : "", name);
    json_object_foreach(event, key, value) {
      if (strcmp(key, "event") != 0 && strcmp(key, "t") != 0) put_value(out, key, value);
    }
  }
  json_decref(event);
}

// The last `lines` lines of the log, or those `scroll` further up.
static void put_log(brim_ui_frame *f, brim_ui_sweep *state, const char *text, int lines) {
  if (lines < 1) return;
  size_t all = count_lines(text ? text : "");
  size_t room = (size_t)lines;
  int64_t most = all > room ? (int64_t)(all - room) : 0;
  if (state->scroll > most) state->scroll = most;
  size_t skip = (size_t)(most - state->scroll), shown = 0;
  const char *at = text ? text : "";
  for (size_t i = 0; *at && shown < room; i++) {
    size_t n = strcspn(at, "\n");
    // Of a line that was written over with \r, what was written last.
    size_t from = n > 0 && at[n - 1] == '\r' ? n - 1 : n, end = from;
    while (from > 0 && at[from - 1] != '\r') from--;
    if (i >= skip) {
      brim_str line;
      brim_str_init(&line);
      put_event(at + from, end - from, &line);
      brim_ui_frame_text(f, BRIM_UI_PLAIN, line.data);
      brim_str_deinit(&line);
      shown++;
    }
    at += n + (at[n] == '\n');
  }
  for (; shown < room; shown++) {
    bool none = all == 0 && shown == 0;
    brim_ui_frame_text(f, BRIM_UI_DIM, none ? brim_tr("the log is empty") : "");
  }
}

void brim_ui_sweep_page(brim_ui_frame *frame, brim_ui_sweep *state, const brim_sweep_view *view,
                        const brim_ui_sweep_log *log) {
  const brim_sweep_row *row = brim_sweep_view_find(view, state->target);
  brim_ui_frame_text(frame, BRIM_UI_TITLE, row ? row->label : state->target);
  if (row && state->mode == BRIM_UI_SWEEP_DETAILS) put_experiment(frame, view, row);
  brim_ui_frame_text(frame, BRIM_UI_DIM, log && log->path ? log->path : "");
  int lines = frame->left - 1;
  state->page = lines > 1 ? (size_t)lines : 1;
  put_log(frame, state, log ? log->text : NULL, lines);
  const brim_ui_hint hints[] = {
      {"Esc", BRIM_N_("back")},
      {"l", state->mode == BRIM_UI_SWEEP_LOG ? BRIM_N_("details") : BRIM_N_("log")},
      {frame->term->unicode ? "↑↓" : "Up Down", BRIM_N_("scroll")},
      {"c", BRIM_N_("cancel")},
      {"p", BRIM_N_("pause")},
      {"r", BRIM_N_("retry")},
  };
  brim_ui_frame_hints(frame, "", hints, sizeof hints / sizeof *hints);
}
