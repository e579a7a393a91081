// A sweep's view to JSON and back, by tables of fields: a row gives the key, the kind and the place in
// the struct. The format is specified in record_sweep.h.
#include <math.h>
#include <string.h>

#include "record/record_sweep_int.h"

typedef enum field_kind {
  FIELD_TEXT,    // const char *: of a row
  FIELD_CHARS,   // char []
  FIELD_INT,     // int64_t
  FIELD_NUMBER,  // double, NaN = unknown
  FIELD_BOOL,
  FIELD_NAME,  // an enum, by `names`
} field_kind;

typedef const char *(*name_fn)(int value);

typedef struct field {
  const char *key;
  field_kind kind;
  size_t offset, size;
  name_fn name;  // of FIELD_NAME
  int names;     // how many it has
  int64_t none;  // of FIELD_INT: unknown
} field;

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

#define PLACE(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
#define TEXT(type, key_, member) \
  { .key = key_, .kind = FIELD_TEXT, PLACE(type, member) }
#define CHARS(type, key_, member) \
  { .key = key_, .kind = FIELD_CHARS, PLACE(type, member) }
#define NUMBER(type, key_, member) \
  { .key = key_, .kind = FIELD_NUMBER, PLACE(type, member) }
#define INT(type, key_, member, none_) \
  { .key = key_, .kind = FIELD_INT, PLACE(type, member), .none = none_ }
#define NAME(type, key_, member, name_, count) \
  { .key = key_, .kind = FIELD_NAME, PLACE(type, member), .name = name_, .names = (int)count }

#define ROW brim_sweep_row
static const field row_fields[] = {
    TEXT(ROW, "id", id),
    TEXT(ROW, "label", label),
    TEXT(ROW, "group", group),
    TEXT(ROW, "point", point),
    TEXT(ROW, "tags", tags),
    TEXT(ROW, "devices", devices),
    TEXT(ROW, "host", host),
    TEXT(ROW, "metric_key", metric_key),
    TEXT(ROW, "message", message),
    TEXT(ROW, "waiting", waiting),
    NAME(ROW, "state", state, state_name, BRIM_SWEEP_STATE_COUNT),
    NAME(ROW, "want", want, want_name, BRIM_SWEEP_WANT_COUNT),
    NAME(ROW, "failure", failure, failure_name, BRIM_FAILURE_COUNT),
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
};

#define GPU brim_sweep_gpu
static const field gpu_fields[] = {
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
static const field metric_fields[] = {
    CHARS(METRIC, "key", key),
    CHARS(METRIC, "label", label),
    NAME(METRIC, "better", better, better_name, BRIM_BETTER_LOWER + 1),
    NAME(METRIC, "format", format, format_name, BRIM_METRIC_LARGE + 1),
    INT(METRIC, "digits", digits, INT64_MIN),
};

#define MESSAGE brim_sweep_message
static const field message_fields[] = {
    INT(MESSAGE, "seq", seq, INT64_MIN),
    NUMBER(MESSAGE, "when_s", when_s),
    NAME(MESSAGE, "level", level, level_name, BRIM_SWEEP_LEVEL_COUNT),
    CHARS(MESSAGE, "exp", exp),
    CHARS(MESSAGE, "text", text),
};

#define VIEW brim_sweep_view
static const field view_fields[] = {
    CHARS(VIEW, "title", title),
    CHARS(VIEW, "store", store),
    CHARS(VIEW, "notice", notice),
    INT(VIEW, "pid", pid, 0),
    {.key = "stopping", .kind = FIELD_BOOL, PLACE(VIEW, stopping)},
    NUMBER(VIEW, "now_s", now_s),
    NUMBER(VIEW, "started_s", started_s),
    NUMBER(VIEW, "done_per_h", done_per_h),
    NUMBER(VIEW, "steps_per_s", steps_per_s),
    NUMBER(VIEW, "eta_s", eta_s),
};

#define COUNT_OF(table) (sizeof table / sizeof table[0])

//---------------------------------- to JSON ----------------------------------

static int64_t read_int(const field *f, const char *at) {
  int64_t wide = 0;
  int narrow = 0;
  if (f->size == sizeof wide) {
    memcpy(&wide, at, sizeof wide);
    return wide;
  }
  memcpy(&narrow, at, sizeof narrow);
  return narrow;
}

static json_t *field_value(const field *f, const char *at) {
  double number;
  bool flag;
  const char *text;
  switch (f->kind) {
    case FIELD_TEXT:
      memcpy(&text, at, sizeof text);
      return brim_record_text(text);
    case FIELD_CHARS:
      return brim_record_text(at);
    case FIELD_INT:
      return read_int(f, at) == f->none ? json_null() : json_integer(read_int(f, at));
    case FIELD_NUMBER:
      memcpy(&number, at, sizeof number);
      return brim_json_number(number);
    case FIELD_BOOL:
      memcpy(&flag, at, sizeof flag);
      return json_boolean(flag);
    case FIELD_NAME: {
      int64_t value = read_int(f, at);
      return json_string(f->name(value >= 0 && value < f->names ? (int)value : 0));
    }
  }
  return NULL;
}

// `lean`: what is unknown, empty or the first of its names is left out.
static brim_status put_fields(json_t *out, const field *fields, size_t count, const void *from,
                              bool lean) {
  for (size_t i = 0; i < count; i++) {
    const field *f = &fields[i];
    json_t *value = field_value(f, (const char *)from + f->offset);
    bool empty = json_is_null(value) || (json_is_string(value) && !*json_string_value(value)) ||
                 (f->kind == FIELD_NAME && read_int(f, (const char *)from + f->offset) == 0);
    if (lean && empty) {
      json_decref(value);
      continue;
    }
    BRIM_TRY(brim_json_put(out, f->key, value));
  }
  return BRIM_OK;
}

static brim_status put_list(json_t *root, const char *key, const field *fields, size_t field_count,
                            const void *items, size_t size, size_t count) {
  BRIM_TRY(brim_json_put(root, key, json_array()));
  json_t *list = json_object_get(root, key);
  for (size_t i = 0; i < count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(put_fields(item, fields, field_count, (const char *)items + i * size, false));
  }
  return BRIM_OK;
}

static brim_status fill(json_t *root, const brim_sweep_view *view, bool rows) {
  BRIM_TRY(brim_json_put(root, "schema", json_string(BRIM_SWEEP_SCHEMA)));
  BRIM_TRY(put_fields(root, view_fields, COUNT_OF(view_fields), view, false));
  BRIM_TRY(brim_json_put(root, "counts", json_object()));
  json_t *counts = json_object_get(root, "counts");
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    BRIM_TRY(brim_json_put(counts, state_name(i), json_integer(view->counts[i])));
  }
  BRIM_TRY(put_list(root, "metrics", metric_fields, COUNT_OF(metric_fields), view->metrics,
                    sizeof *view->metrics, view->metric_count));
  BRIM_TRY(put_list(root, "gpus", gpu_fields, COUNT_OF(gpu_fields), view->gpus, sizeof *view->gpus,
                    view->gpu_count));
  BRIM_TRY(put_list(root, "messages", message_fields, COUNT_OF(message_fields), view->messages,
                    sizeof *view->messages, view->message_count));
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

static brim_status hand_over(brim_status status, json_t *value, json_t **out) {
  *out = NULL;
  if (!value) return brim_fail(BRIM_ENOMEM, "out of memory");
  if (status) {
    json_decref(value);
    return status;
  }
  *out = value;
  return BRIM_OK;
}

brim_status brim_sweep_view_to_json(const brim_sweep_view *view, bool rows, json_t **out) {
  brim_json_setup();
  json_t *root = json_object();
  return hand_over(root ? fill(root, view, rows) : BRIM_OK, root, out);
}

brim_status brim_sweep_row_to_json(const brim_sweep_row *row, json_t **out) {
  brim_json_setup();
  json_t *root = json_object();
  return hand_over(root ? put_fields(root, row_fields, COUNT_OF(row_fields), row, true) : BRIM_OK,
                   root, out);
}

//---------------------------------- from JSON ----------------------------------

static brim_status wrong_kind(const char *key) {
  return brim_fail(BRIM_EPARSE, "the view of a sweep has a wrong value in '%s'", key);
}

static void write_int(const field *f, char *at, int64_t value) {
  int narrow = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int)value;
  if (f->size == sizeof value) {
    memcpy(at, &value, sizeof value);
  } else {
    memcpy(at, &narrow, sizeof narrow);
  }
}

// A name that this brim does not know leaves the value as it is; a failure becomes "other".
static void write_name(const field *f, char *at, const char *name) {
  for (int i = 0; i < f->names; i++) {
    if (strcmp(f->name(i), name) != 0) continue;
    write_int(f, at, i);
    return;
  }
  if (f->name == failure_name) write_int(f, at, BRIM_FAILURE_OTHER);
}

static brim_status get_field(const field *f, const json_t *value, char *at) {
  double number;
  bool flag;
  const char *text = json_string_value(value);
  if (f->kind == FIELD_INT) {
    if (!json_is_integer(value)) return wrong_kind(f->key);
    write_int(f, at, json_integer_value(value));
    return BRIM_OK;
  }
  if (f->kind == FIELD_NUMBER) {
    if (!json_is_number(value)) return wrong_kind(f->key);
    number = json_number_value(value);
    memcpy(at, &number, sizeof number);
    return BRIM_OK;
  }
  if (f->kind == FIELD_BOOL) {
    if (!json_is_boolean(value)) return wrong_kind(f->key);
    flag = json_is_true(value);
    memcpy(at, &flag, sizeof flag);
    return BRIM_OK;
  }
  if (!text) return wrong_kind(f->key);
  if (f->kind == FIELD_TEXT) {
    memcpy(at, &text, sizeof text);
  } else if (f->kind == FIELD_CHARS) {
    brim_record_copy(at, f->size, text);
  } else {
    write_name(f, at, text);
  }
  return BRIM_OK;
}

static brim_status get_fields(const json_t *from, const field *fields, size_t count, void *out) {
  if (!json_is_object(from)) return wrong_kind("object");
  for (size_t i = 0; i < count; i++) {
    const json_t *value = json_object_get(from, fields[i].key);
    if (!value || json_is_null(value)) continue;
    BRIM_TRY(get_field(&fields[i], value, (char *)out + fields[i].offset));
  }
  return BRIM_OK;
}

static brim_status list_of(const json_t *root, const char *key, const json_t **out) {
  *out = json_object_get(root, key);
  if (json_is_null(*out)) *out = NULL;
  return *out && !json_is_array(*out) ? wrong_kind(key) : BRIM_OK;
}

static brim_status get_counts(const json_t *root, brim_sweep_view *out) {
  const json_t *counts = json_object_get(root, "counts");
  if (!counts) return BRIM_OK;
  if (!json_is_object(counts)) return wrong_kind("counts");
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    const json_t *value = json_object_get(counts, state_name(i));
    if (value && !json_is_integer(value)) return wrong_kind("counts");
    out->counts[i] = json_integer_value(value);
  }
  return BRIM_OK;
}

// What a list has beyond the room is left out; of messages the oldest.
static brim_status get_lists(const json_t *root, brim_sweep_view *out) {
  const json_t *list;
  BRIM_TRY(list_of(root, "metrics", &list));
  size_t n = json_array_size(list);
  out->metric_count = 0;
  for (size_t i = 0; i < n && i < BRIM_SWEEP_METRICS; i++) {
    brim_sweep_metric *m = &out->metrics[out->metric_count++];
    memset(m, 0, sizeof *m);
    BRIM_TRY(get_fields(json_array_get(list, i), metric_fields, COUNT_OF(metric_fields), m));
  }
  BRIM_TRY(list_of(root, "gpus", &list));
  n = json_array_size(list);
  out->gpu_count = 0;
  for (size_t i = 0; i < n && i < BRIM_SWEEP_GPUS; i++) {
    brim_sweep_gpu *gpu = &out->gpus[out->gpu_count++];
    brim_sweep_gpu_init(gpu);
    BRIM_TRY(get_fields(json_array_get(list, i), gpu_fields, COUNT_OF(gpu_fields), gpu));
  }
  BRIM_TRY(list_of(root, "messages", &list));
  n = json_array_size(list);
  out->message_count = 0;
  for (size_t i = n > BRIM_SWEEP_MESSAGES ? n - BRIM_SWEEP_MESSAGES : 0; i < n; i++) {
    brim_sweep_message *m = &out->messages[out->message_count++];
    *m = (brim_sweep_message){.when_s = NAN};
    BRIM_TRY(get_fields(json_array_get(list, i), message_fields, COUNT_OF(message_fields), m));
  }
  return BRIM_OK;
}

brim_status brim_sweep_view_put_json(brim_sweep_view *view, const json_t *row) {
  brim_sweep_row read;
  brim_sweep_row_init(&read);
  BRIM_TRY(get_fields(row, row_fields, COUNT_OF(row_fields), &read));
  return brim_sweep_view_put(view, &read);
}

brim_status brim_sweep_view_from_json(const json_t *json, brim_sweep_view *out) {
  if (!json_is_object(json)) return wrong_kind("object");
  const char *schema = json_string_value(json_object_get(json, "schema"));
  if (!schema || strcmp(schema, BRIM_SWEEP_SCHEMA) != 0) {
    return brim_fail(BRIM_EPARSE, "not a sweep of this brim: schema is '%s', expected '%s'",
                     schema ? schema : "missing", BRIM_SWEEP_SCHEMA);
  }
  out->pid = 0;
  out->stopping = false;
  out->now_s = out->started_s = out->done_per_h = out->steps_per_s = out->eta_s = NAN;
  BRIM_TRY(get_fields(json, view_fields, COUNT_OF(view_fields), out));
  BRIM_TRY(get_counts(json, out));
  BRIM_TRY(get_lists(json, out));
  const json_t *rows;
  BRIM_TRY(list_of(json, "rows", &rows));
  for (size_t i = 0; i < json_array_size(rows); i++) {
    BRIM_TRY(brim_sweep_view_put_json(out, json_array_get(rows, i)));
  }
  return BRIM_OK;
}
