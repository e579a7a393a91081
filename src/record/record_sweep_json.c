// A sweep's view to JSON and back, by tables of fields: a row gives the key, the kind and the place in
// the struct. The format is specified in record_sweep.h.
#include <math.h>
#include <string.h>

#include "record/record_fields.h"
#include "record/record_sweep_int.h"

//---------------------------------- names ----------------------------------

static const char *state_name(int v) { return brim_sweep_state_name((brim_sweep_state)v); }
static const char *gpu_state_name(int v) {
  return brim_sweep_gpu_state_name((brim_sweep_gpu_state)v);
}
static const char *failure_name(int v) { return brim_failure_name((brim_failure)v); }
static const char *want_name(int v) {
  static const char *const names[] = {"run", "pause", "cancel"};
  return names[v];
}
static const char *level_name(int v) {
  static const char *const names[] = {"info", "warn", "error"};
  return names[v];
}
static const char *better_name(int v) {
  static const char *const names[] = {"neither", "higher", "lower"};
  return names[v];
}
static const char *format_name(int v) {
  static const char *const names[] = {"number", "steady", "percent", "whole", "large"};
  return names[v];
}

//---------------------------------- tables ----------------------------------

#define TEXT(type, key_, member) BRIM_FIELD_(type, key_, TEXT, member)
#define CHARS(type, key_, member) BRIM_FIELD_(type, key_, CHARS, member)
#define NUMBER(type, key_, member) BRIM_FIELD_(type, key_, NUMBER, member)
#define INT BRIM_FIELD_INT_
#define NAME BRIM_FIELD_NAME_
#define TABLE(rows_) \
  { .what = SWEEP, .rows = rows_, .count = sizeof rows_ / sizeof rows_[0] }
#define SWEEP BRIM_N_("view of a sweep")

#define ROW brim_sweep_row
static const brim_field row_rows[] = {
    TEXT(ROW, "id", id),
    TEXT(ROW, "label", label),
    TEXT(ROW, "group", group),
    TEXT(ROW, "point", point),
    TEXT(ROW, "tags", tags),
    TEXT(ROW, "grid", grid),
    TEXT(ROW, "devices", devices),
    TEXT(ROW, "host", host),
    TEXT(ROW, "metric_key", metric_key),
    TEXT(ROW, "message", message),
    TEXT(ROW, "waiting", waiting),
    TEXT(ROW, "owed", owed),
    NAME(ROW, "state", state, state_name, BRIM_SWEEP_STATE_COUNT),
    NAME(ROW, "want", want, want_name, BRIM_SWEEP_WANT_COUNT),
    {.key = "failure",
     .kind = BRIM_FIELD_NAME,
     BRIM_FIELD_PLACE(ROW, failure),
     .name = failure_name,
     .names = BRIM_FAILURE_COUNT,
     .other = BRIM_FAILURE_OTHER},
    INT(ROW, "idx", idx, INT64_MIN),
    INT(ROW, "priority", priority, 0),
    INT(ROW, "gpus", gpus, 0),
    INT(ROW, "attempt", attempt, 0),
    INT(ROW, "tries_left", tries_left, 0),
    INT(ROW, "step", step, -1),
    INT(ROW, "steps", steps, -1),
    INT(ROW, "epoch", epoch, -1),
    INT(ROW, "epochs", epochs, -1),
    NUMBER(ROW, "metric", metric),
    NUMBER(ROW, "best", best),
    NUMBER(ROW, "steps_per_s", steps_per_s),
    NUMBER(ROW, "eta_s", eta_s),
    NUMBER(ROW, "created_s", created_s),
    NUMBER(ROW, "started_s", started_s),
    NUMBER(ROW, "ended_s", ended_s),
    NUMBER(ROW, "ran_s", ran_s),
    NUMBER(ROW, "since_s", since_s),
};

#define GPU brim_sweep_gpu
static const brim_field gpu_rows[] = {
    CHARS(GPU, "name", name),
    CHARS(GPU, "model", model),
    CHARS(GPU, "id", id),
    NAME(GPU, "state", state, gpu_state_name, BRIM_SWEEP_GPU_STATE_COUNT),
    CHARS(GPU, "why", why),
    INT(GPU, "running", running, INT64_MIN),
    INT(GPU, "slots", slots, INT64_MIN),
    NUMBER(GPU, "memory_used", memory_used),
    NUMBER(GPU, "memory_total", memory_total),
    NUMBER(GPU, "gpu_percent", gpu_percent),
    NUMBER(GPU, "power_w", power_w),
    NUMBER(GPU, "temperature_c", temperature_c),
    NUMBER(GPU, "steps_per_s", steps_per_s),
};

#define METRIC brim_sweep_metric
static const brim_field metric_rows[] = {
    CHARS(METRIC, "key", key),
    CHARS(METRIC, "label", label),
    NAME(METRIC, "better", better, better_name, BRIM_BETTER_LOWER + 1),
    NAME(METRIC, "format", format, format_name, BRIM_METRIC_LARGE + 1),
    INT(METRIC, "digits", digits, INT64_MIN),
};

#define MESSAGE brim_sweep_message
static const brim_field message_rows[] = {
    INT(MESSAGE, "seq", seq, INT64_MIN),
    NUMBER(MESSAGE, "when_s", when_s),
    NAME(MESSAGE, "level", level, level_name, BRIM_SWEEP_LEVEL_COUNT),
    CHARS(MESSAGE, "exp", exp),
    CHARS(MESSAGE, "text", text),
};

#define VIEW brim_sweep_view
static const brim_field view_rows[] = {
    CHARS(VIEW, "title", title),
    CHARS(VIEW, "store", store),
    CHARS(VIEW, "notice", notice),
    INT(VIEW, "pid", pid, 0),
    BRIM_FIELD_(VIEW, "stopping", BOOL, stopping),
    NUMBER(VIEW, "now_s", now_s),
    NUMBER(VIEW, "started_s", started_s),
    NUMBER(VIEW, "done_per_h", done_per_h),
    NUMBER(VIEW, "steps_per_s", steps_per_s),
    NUMBER(VIEW, "eta_s", eta_s),
};

static const brim_fields row_fields = TABLE(row_rows);
static const brim_fields gpu_fields = TABLE(gpu_rows);
static const brim_fields metric_fields = TABLE(metric_rows);
static const brim_fields message_fields = TABLE(message_rows);
static const brim_fields view_fields = TABLE(view_rows);

//---------------------------------- to JSON ----------------------------------

static brim_status fill(json_t *root, const brim_sweep_view *view, bool rows) {
  BRIM_TRY(brim_json_put(root, "schema", json_string(BRIM_SWEEP_SCHEMA)));
  BRIM_TRY(brim_fields_put(&view_fields, view, false, root));
  BRIM_TRY(brim_json_put(root, "counts", json_object()));
  json_t *counts = json_object_get(root, "counts");
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    BRIM_TRY(brim_json_put(counts, state_name(i), json_integer(view->counts[i])));
  }
  BRIM_TRY(brim_fields_put_list(&metric_fields, view->metrics, sizeof *view->metrics,
                                view->metric_count, "metrics", root));
  BRIM_TRY(brim_fields_put_list(&gpu_fields, view->gpus, sizeof *view->gpus, view->gpu_count,
                                "gpus", root));
  BRIM_TRY(brim_fields_put_list(&message_fields, view->messages, sizeof *view->messages,
                                view->message_count, "messages", root));
  if (!rows) return BRIM_OK;
  BRIM_TRY(brim_json_put(root, "rows", json_array()));
  json_t *list = json_object_get(root, "rows");
  for (size_t i = 0; i < view->row_count; i++) {
    json_t *item = NULL;
    BRIM_TRY(brim_sweep_row_to_json(&view->rows[i], &item));
    BRIM_TRY(brim_json_push(list, item));
  }
  return BRIM_OK;
}

brim_status brim_sweep_view_to_json(const brim_sweep_view *view, bool rows, json_t **out) {
  brim_json_setup();
  json_t *root = json_object();
  return brim_fields_hand_over(root ? fill(root, view, rows) : BRIM_OK, root, out);
}

brim_status brim_sweep_row_to_json(const brim_sweep_row *row, json_t **out) {
  brim_json_setup();
  json_t *root = json_object();
  return brim_fields_hand_over(root ? brim_fields_put(&row_fields, row, true, root) : BRIM_OK, root,
                               out);
}

//---------------------------------- from JSON ----------------------------------

static brim_status get_counts(const json_t *root, brim_sweep_view *out) {
  const json_t *counts = json_object_get(root, "counts");
  if (!counts) return BRIM_OK;
  if (!json_is_object(counts)) return brim_fields_wrong(SWEEP, "counts");
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    const json_t *value = json_object_get(counts, state_name(i));
    if (value && !json_is_integer(value)) return brim_fields_wrong(SWEEP, "counts");
    out->counts[i] = json_integer_value(value);
  }
  return BRIM_OK;
}

// What a list has beyond the room is left out; of messages the oldest.
static brim_status get_lists(const json_t *root, brim_sweep_view *out) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(SWEEP, root, "metrics", &list));
  size_t n = json_array_size(list);
  out->metric_count = 0;
  for (size_t i = 0; i < n && i < BRIM_SWEEP_METRICS; i++) {
    brim_sweep_metric *m = &out->metrics[out->metric_count++];
    memset(m, 0, sizeof *m);
    BRIM_TRY(brim_fields_get(&metric_fields, json_array_get(list, i), m));
  }
  BRIM_TRY(brim_fields_list(SWEEP, root, "gpus", &list));
  n = json_array_size(list);
  out->gpu_count = 0;
  for (size_t i = 0; i < n && i < BRIM_SWEEP_GPUS; i++) {
    brim_sweep_gpu *gpu = &out->gpus[out->gpu_count++];
    brim_sweep_gpu_init(gpu);
    BRIM_TRY(brim_fields_get(&gpu_fields, json_array_get(list, i), gpu));
  }
  BRIM_TRY(brim_fields_list(SWEEP, root, "messages", &list));
  n = json_array_size(list);
  out->message_count = 0;
  for (size_t i = n > BRIM_SWEEP_MESSAGES ? n - BRIM_SWEEP_MESSAGES : 0; i < n; i++) {
    brim_sweep_message *m = &out->messages[out->message_count++];
    *m = (brim_sweep_message){.when_s = NAN};
    BRIM_TRY(brim_fields_get(&message_fields, json_array_get(list, i), m));
  }
  return BRIM_OK;
}

brim_status brim_sweep_view_put_json(brim_sweep_view *view, const json_t *row) {
  brim_sweep_row read;
  brim_sweep_row_init(&read);
  BRIM_TRY(brim_fields_get(&row_fields, row, &read));
  return brim_sweep_view_put(view, &read);
}

brim_status brim_sweep_view_from_json(const json_t *json, brim_sweep_view *out) {
  if (!json_is_object(json)) return brim_fields_wrong(SWEEP, "object");
  const char *schema = json_string_value(json_object_get(json, "schema"));
  if (!schema || strcmp(schema, BRIM_SWEEP_SCHEMA) != 0) {
    return brim_fail(BRIM_EPARSE, "not a sweep of this brim: schema is '%s', expected '%s'",
                     schema ? schema : "missing", BRIM_SWEEP_SCHEMA);
  }
  out->pid = 0;
  out->stopping = false;
  out->now_s = out->started_s = out->done_per_h = out->steps_per_s = out->eta_s = NAN;
  BRIM_TRY(brim_fields_get(&view_fields, json, out));
  BRIM_TRY(get_counts(json, out));
  BRIM_TRY(get_lists(json, out));
  const json_t *rows;
  BRIM_TRY(brim_fields_list(SWEEP, json, "rows", &rows));
  for (size_t i = 0; i < json_array_size(rows); i++) {
    BRIM_TRY(brim_sweep_view_put_json(out, json_array_get(rows, i)));
  }
  return BRIM_OK;
}
