// The view of a sweep (record_sweep.h): rows by id, counts, messages, JSON.

#include "record/record_sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_fields.h"
#include "record/record_int.h"

enum { BRIM_SWEEP_ROW_TEXTS = 12 };
// Offsets of a row's texts; the first is the id.
extern const size_t brim_sweep_row_texts[BRIM_SWEEP_ROW_TEXTS];

//--------------------------------------------- rows ---------------------------------------------

const char *brim_sweep_state_name(brim_sweep_state state) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_SWEEP_STATE_MAP(X)
#undef X
  };
  return (unsigned)state < BRIM_SWEEP_STATE_COUNT ? names[state] : "";
}

bool brim_sweep_state_of(const char *name, brim_sweep_state *out) {
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    if (strcmp(name, brim_sweep_state_name((brim_sweep_state)i)) != 0) continue;
    *out = (brim_sweep_state)i;
    return true;
  }
  return false;
}

bool brim_sweep_state_ended(brim_sweep_state state) {
  return state == BRIM_SWEEP_DONE || state == BRIM_SWEEP_FAILED || state == BRIM_SWEEP_CANCELLED;
}

const char *brim_sweep_gpu_state_name(brim_sweep_gpu_state state) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_SWEEP_GPU_STATE_MAP(X)
#undef X
  };
  return (unsigned)state < BRIM_SWEEP_GPU_STATE_COUNT ? names[state] : "";
}

const size_t brim_sweep_row_texts[BRIM_SWEEP_ROW_TEXTS] = {
    offsetof(brim_sweep_row, id),      offsetof(brim_sweep_row, label),
    offsetof(brim_sweep_row, group),   offsetof(brim_sweep_row, point),
    offsetof(brim_sweep_row, tags),    offsetof(brim_sweep_row, devices),
    offsetof(brim_sweep_row, host),    offsetof(brim_sweep_row, metric_key),
    offsetof(brim_sweep_row, message), offsetof(brim_sweep_row, waiting),
    offsetof(brim_sweep_row, grid),    offsetof(brim_sweep_row, owed),
};

static const char **text_at(brim_sweep_row *row, size_t i) {
  return (const char **)(void *)((char *)row + brim_sweep_row_texts[i]);
}

void brim_sweep_row_init(brim_sweep_row *row) {
  memset(row, 0, sizeof *row);
  for (size_t i = 0; i < BRIM_SWEEP_ROW_TEXTS; i++) *text_at(row, i) = "";
  row->step = row->steps = row->epoch = row->epochs = -1;
  row->metric = row->best = row->steps_per_s = row->eta_s = NAN;
  row->created_s = row->started_s = row->ended_s = row->ran_s = row->since_s = NAN;
}

void brim_sweep_gpu_init(brim_sweep_gpu *gpu) {
  memset(gpu, 0, sizeof *gpu);
  gpu->memory_used = gpu->memory_total = gpu->gpu_percent = NAN;
  gpu->power_w = gpu->temperature_c = gpu->steps_per_s = NAN;
}

void brim_sweep_view_init(brim_sweep_view *view) {
  memset(view, 0, sizeof *view);
  view->now_s = view->started_s = NAN;
  view->done_per_h = view->steps_per_s = view->eta_s = NAN;
}

void brim_sweep_view_clear_rows(brim_sweep_view *view) {
  // All texts of a row lie in one block that begins with its id.
  for (size_t i = 0; i < view->row_count; i++) brim_free((char *)(uintptr_t)view->rows[i].id);
  view->row_count = 0;
  if (view->slots) memset(view->slots, 0, view->slot_count * sizeof *view->slots);
}

void brim_sweep_view_deinit(brim_sweep_view *view) {
  brim_sweep_view_clear_rows(view);
  brim_free(view->rows);
  brim_free(view->slots);
  brim_sweep_view_init(view);
}

//---------------------------------- rows ----------------------------------

// FNV-1a. Ids are hashes already, but other programs write them too.
static size_t hash_of(const char *id) {
  uint64_t hash = 14695981039346656037u;
  for (; *id; id++) hash = (hash ^ (unsigned char)*id) * 1099511628211u;
  return (size_t)(hash ^ hash >> 32);
}

// Returns the slot of an id, or the empty slot that it would take. A slot has the row's index + 1; 0 = empty. At
// least one slot is always empty.
static size_t slot_of(const brim_sweep_view *view, const char *id) {
  size_t at = hash_of(id) & (view->slot_count - 1);
  while (view->slots[at] && strcmp(view->rows[view->slots[at] - 1].id, id) != 0) {
    at = (at + 1) & (view->slot_count - 1);
  }
  return at;
}

static brim_status grow(brim_sweep_view *view) {
  size_t cap = view->row_cap ? view->row_cap * 2 : 64, slot_count = cap * 2;
  if (cap >= UINT32_MAX) return brim_fail(BRIM_EINVAL, "too many experiments in one view");
  brim_sweep_row *rows = (brim_sweep_row *)brim_realloc(view->rows, cap * sizeof *rows);
  if (rows) view->rows = rows;
  uint32_t *slots = rows ? (uint32_t *)brim_calloc(slot_count, sizeof *slots) : NULL;
  if (!slots) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  brim_free(view->slots);
  view->slots = slots;
  view->slot_count = slot_count;
  view->row_cap = cap;
  for (size_t i = 0; i < view->row_count; i++) {
    view->slots[slot_of(view, view->rows[i].id)] = (uint32_t)(i + 1);
  }
  return BRIM_OK;
}

// Copies a row; all texts of the copy lie in one block.
static brim_status copy_row(const brim_sweep_row *row, brim_sweep_row *out) {
  size_t size = 0, used = 0;
  *out = *row;
  for (size_t i = 0; i < BRIM_SWEEP_ROW_TEXTS; i++) {
    const char *text = *text_at(out, i);
    size += text ? strlen(text) + 1 : 1;
  }
  char *block = (char *)brim_alloc(size);
  if (!block) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  for (size_t i = 0; i < BRIM_SWEEP_ROW_TEXTS; i++) {
    const char **text = text_at(out, i);
    size_t n = *text ? strlen(*text) : 0;
    if (n) memcpy(block + used, *text, n);
    block[used + n] = '\0';
    *text = block + used;
    used += n + 1;
  }
  return BRIM_OK;
}

brim_status brim_sweep_view_put(brim_sweep_view *view, const brim_sweep_row *row) {
  if (!row->id || !*row->id) return brim_fail(BRIM_EINVAL, "an experiment has no id");
  if (view->row_count == view->row_cap) BRIM_TRY(grow(view));
  brim_sweep_row copy;
  BRIM_TRY(copy_row(row, &copy));
  size_t slot = slot_of(view, copy.id);
  if (view->slots[slot]) {
    brim_sweep_row *old = &view->rows[view->slots[slot] - 1];
    brim_free((char *)(uintptr_t)old->id);
    *old = copy;
  } else {
    view->rows[view->row_count++] = copy;
    view->slots[slot] = (uint32_t)view->row_count;
  }
  return BRIM_OK;
}

const brim_sweep_row *brim_sweep_view_find(const brim_sweep_view *view, const char *id) {
  if (view->slot_count == 0) return NULL;
  uint32_t at = view->slots[slot_of(view, id)];
  return at ? &view->rows[at - 1] : NULL;
}

void brim_sweep_view_count(brim_sweep_view *view) {
  memset(view->counts, 0, sizeof view->counts);
  for (size_t i = 0; i < view->row_count; i++) {
    unsigned state = (unsigned)view->rows[i].state;
    if (state < BRIM_SWEEP_STATE_COUNT) view->counts[state]++;
  }
}

int64_t brim_sweep_view_total(const brim_sweep_view *view) {
  int64_t total = 0;
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) total += view->counts[i];
  return total;
}

//---------------------------------- messages, metrics ----------------------------------

void brim_sweep_view_say(brim_sweep_view *view, brim_sweep_level level, double when_s,
                         const char *exp, const char *text) {
  int64_t seq = view->message_count ? view->messages[view->message_count - 1].seq + 1 : 1;
  if (view->message_count == BRIM_SWEEP_MESSAGES) {
    memmove(view->messages, view->messages + 1, (BRIM_SWEEP_MESSAGES - 1) * sizeof *view->messages);
    view->message_count--;
  }
  brim_sweep_message *m = &view->messages[view->message_count++];
  *m = (brim_sweep_message){.seq = seq, .when_s = when_s, .level = level};
  brim_record_copy(m->exp, sizeof m->exp, exp ? exp : "");
  brim_record_copy(m->text, sizeof m->text, text);
}

const brim_sweep_metric *brim_sweep_view_metric(const brim_sweep_view *view, const char *key) {
  for (size_t i = 0; i < view->metric_count; i++) {
    if (strcmp(view->metrics[i].key, key) == 0) return &view->metrics[i];
  }
  return NULL;
}

static bool metric_in(const brim_metric_set *set, const char *key, brim_metric_file file,
                      brim_sweep_metric *out) {
  char name[BRIM_METRIC_NAME];
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    for (int stage = 0; stage < BRIM_METRIC_STAGES; stage++) {
      if (!brim_metric_name(row, (brim_metric_stage)stage, file, name)) continue;
      if (strcmp(name, key) != 0) continue;
      const char *label = stage == BRIM_METRIC_EVAL && row->eval_label     ? row->eval_label
                          : row->train_label && stage <= BRIM_METRIC_TRAIN ? row->train_label
                                                                           : row->label;
      *out =
          (brim_sweep_metric){.better = row->better, .format = row->format, .digits = row->digits};
      brim_record_copy(out->key, sizeof out->key, key);
      brim_record_copy(out->label, sizeof out->label, label && *label ? label : key);
      return true;
    }
  }
  return false;
}

bool brim_sweep_metric_of(const brim_metric_set *set, const char *key, brim_sweep_metric *out) {
  return metric_in(set, key, BRIM_METRIC_COLUMN, out) ||
         metric_in(set, key, BRIM_METRIC_TAG, out) || metric_in(set, key, BRIM_METRIC_EVENT, out);
}

//--------------------------------------------- JSON ---------------------------------------------
// A sweep's view to JSON and back, by tables of fields. record_sweep.h specifies the format.

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

// Entries that do not fit a list are left out; of messages the oldest.
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
