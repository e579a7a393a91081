// What a training says while it runs: its events, which are JSON lines on its standard output, and the
// last of all other lines.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab_exec_int.h"

enum { STEPS_OF_PATIENCE = 20, PAUSES_OF_PATIENCE = 3, LONGEST_EVENT = 1 << 20 };

void brim_exec_events_init(brim_exec_events *e, int64_t now_ns) {
  memset(e, 0, sizeof *e);
  e->progress = (brim_store_progress){-1, -1, -1, -1};
  e->start_step = e->rate_step = -1;
  e->sign_ns = now_ns;
}

//---------------------------------- events ----------------------------------

static int64_t integer(const json_t *event, const char *key) {
  const json_t *value = json_object_get(event, key);
  return json_is_integer(value) && json_integer_value(value) >= 0
             ? (int64_t)json_integer_value(value)
             : -1;
}

static void sign(brim_exec_events *e, int64_t now_ns) {
  int64_t pause = now_ns - e->sign_ns;
  if (pause > e->longest_ns) e->longest_ns = pause;
  e->sign_ns = now_ns;
}

static void reach(brim_exec_events *e, int64_t step, int64_t now_ns) {
  if (step < 0) return;
  if (e->rate_step >= 0 && step > e->rate_step) {
    int64_t each = (now_ns - e->rate_ns) / (step - e->rate_step);
    e->step_ns[e->step_count++ % BRIM_EXEC_RATES] = each;
  }
  e->rate_step = step;
  e->rate_ns = now_ns;
  e->progress.step = step;
}

// "epoch 2/10", and done of total steps in it.
static void take_progress(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  const char *title = json_string_value(json_object_get(event, "title"));
  int64_t epoch = 0, epochs = 0, done = integer(event, "done"), total = integer(event, "total");
  if (title && sscanf(title, "epoch %" SCNd64 "/%" SCNd64, &epoch, &epochs) == 2 && epoch > 0) {
    e->progress.epoch = epoch;
    e->progress.epochs = epochs;
    if (done >= 0 && total > 0) reach(e, (epoch - 1) * total + done, now_ns);
  }
  sign(e, now_ns);
}

static void take_start(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  e->started = true;
  e->start_step = integer(event, "start_step");
  e->progress.steps = integer(event, "steps");
  e->progress.epochs = integer(event, "epochs");
  reach(e, e->start_step, now_ns);
  sign(e, now_ns);
}

static void take_steps(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  reach(e, integer(event, "step"), now_ns);
  sign(e, now_ns);
}

static void take_epoch(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  int64_t epoch = integer(event, "epoch"), epochs = integer(event, "epochs");
  if (epoch > 0) e->progress.epoch = epoch;
  if (epochs > 0) e->progress.epochs = epochs;
  sign(e, now_ns);
}

static void take_result(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  int64_t epochs = integer(event, "epochs");
  e->done = !json_is_true(json_object_get(event, "interrupted"));
  reach(e, integer(event, "steps"), now_ns);
  if (epochs >= 0) e->progress.epoch = epochs;
  sign(e, now_ns);
}

static brim_status status_of(const char *name) {
#define X(id, value, text) \
  if (strcmp(name, "BRIM_" #id) == 0) return BRIM_##id;
  BRIM_STATUS_MAP(X)
#undef X
  return BRIM_EINTERNAL;
}

static void take_error(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  const char *status = json_string_value(json_object_get(event, "status"));
  const char *text = json_string_value(json_object_get(event, "message"));
  const char *name = json_string_value(json_object_get(event, "class"));
  e->failed = true;
  e->status = status ? status_of(status) : BRIM_EINTERNAL;
  e->failure = name ? brim_failure_of(name) : BRIM_FAILURE_NONE;
  snprintf(e->message, sizeof e->message, "%s", text ? text : "");
  brim_utf8_trim(e->message);
  sign(e, now_ns);
}

static const struct {
  const char *name;
  bool shown;
  void (*take)(brim_exec_events *e, const json_t *event, int64_t now_ns);
} kinds[] = {
    {"progress", false, take_progress}, {"steps", false, take_steps}, {"error", false, take_error},
    {"start", true, take_start},        {"epoch", true, take_epoch},  {"result", true, take_result},
};

// "epoch  epoch=3 epochs=4 loss=0.0105": numbers and texts of an event; the rest is in log.jsonl.
static void show_event(const json_t *event, const char *name, brim_str *shown) {
  const char *key;
  json_t *value;
  brim_str_printf(shown, "%s ", name);
  json_object_foreach((json_t *)(uintptr_t)event, key, value) {
    if (strcmp(key, "event") == 0 || strcmp(key, "t") == 0) continue;
    if (json_is_integer(value)) {
      brim_str_printf(shown, " %s=%lld", key, (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
      brim_str_printf(shown, " %s=%.5g", key, json_real_value(value));
    } else if (json_is_string(value)) {
      brim_str_printf(shown, " %s=%s", key, json_string_value(value));
    } else if (json_is_true(value)) {
      brim_str_printf(shown, " %s", key);
    }
  }
}

// False: it is no event. *keep: it is shown.
static bool take_event(brim_exec_events *e, const brim_child_line *line, int64_t now_ns,
                       brim_str *shown, bool *keep) {
  json_t *event = NULL;
  bool whole = line->size >= 2 && line->size <= LONGEST_EVENT && line->text[0] == '{';
  if (!whole || line->stream != BRIM_CHILD_OUT || line->more) return false;
  if (brim_json_parse(line->text, line->size, "event", &event)) {
    brim_status_clear();
    return false;
  }
  const char *name = json_string_value(json_object_get(event, "event"));
  *keep = true;
  for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(name, kinds[i].name) != 0) continue;
    kinds[i].take(e, event, now_ns);
    *keep = kinds[i].shown;
  }
  if (name && *keep) show_event(event, name, shown);
  bool is_event = name != NULL;
  json_decref(event);
  return is_event;
}

//---------------------------------- lines ----------------------------------

static void keep_line(brim_exec_events *e, const char *text, size_t size) {
  char *line = e->lines[e->line_count++ % BRIM_EXEC_LINES];
  size_t n = size < BRIM_EXEC_LINE_BYTES - 1 ? size : BRIM_EXEC_LINE_BYTES - 1;
  memcpy(line, text, n);
  line[n] = '\0';
  brim_utf8_trim(line);
}

bool brim_exec_events_line(brim_exec_events *e, const brim_child_line *line, int64_t now_ns,
                           brim_str *shown) {
  bool keep = true;
  if (take_event(e, line, now_ns, shown, &keep)) return keep;
  keep_line(e, line->text, line->size);
  brim_str_append_n(shown, line->text, line->size);
  return true;
}

brim_status brim_exec_events_last_lines(const brim_exec_events *e, brim_str *out) {
  size_t n = e->line_count < BRIM_EXEC_LINES ? e->line_count : BRIM_EXEC_LINES;
  for (size_t i = 0; i < n; i++) {
    brim_str_append(out, e->lines[(e->line_count - n + i) % BRIM_EXEC_LINES]);
    brim_str_append_char(out, '\n');
  }
  return brim_str_status(out);
}

//---------------------------------- patience ----------------------------------

static int ascending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int64_t median_step_ns(const brim_exec_events *e) {
  int64_t sorted[BRIM_EXEC_RATES];
  size_t n = e->step_count < BRIM_EXEC_RATES ? e->step_count : BRIM_EXEC_RATES;
  if (n == 0) return 0;
  memcpy(sorted, e->step_ns, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, ascending);
  return sorted[n / 2];
}

int64_t brim_exec_events_patience(const brim_exec_events *e, int64_t stall_ns) {
  int64_t most = stall_ns;
  int64_t by_steps = STEPS_OF_PATIENCE * median_step_ns(e);
  int64_t by_pauses = PAUSES_OF_PATIENCE * e->longest_ns;
  if (by_steps > most) most = by_steps;
  return by_pauses > most ? by_pauses : most;
}
