// A store as lines of JSON, one per experiment (record_lab.h), with its attempts and metrics.
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_json.h"
#include "base/base_status.h"
#include "lab/store/lab_store.h"
#include "record/record_lab.h"

typedef struct ids {
  char (*ids)[BRIM_EXP_ID];
  size_t count, capacity;
} ids;

static brim_status collect(void *ctx, const brim_store_exp *exp) {
  ids *list = ctx;
  if (list->count == list->capacity) {
    size_t capacity = list->capacity ? list->capacity * 2 : 256;
    void *grown = brim_realloc(list->ids, capacity * sizeof *list->ids);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
    list->ids = grown;
    list->capacity = capacity;
  }
  memcpy(list->ids[list->count++], exp->id, BRIM_EXP_ID);
  return BRIM_OK;
}

// Resolved configs are JSON mostly; what is not stays text.
static json_t *config_of(const char *text) {
  json_t *value = NULL;
  if (*text != '{' || brim_json_parse(text, strlen(text), "config", &value)) {
    return json_string(text);
  }
  return value;
}

static json_t *time_of(int64_t ms) { return ms > 0 ? json_integer(ms) : json_null(); }

static json_t *step_of(int64_t step) { return step < 0 ? json_null() : json_integer(step); }

static brim_status put_exp(json_t *o, const brim_store_exp *e) {
  BRIM_TRY(brim_json_put(o, "schema", json_string(BRIM_LAB_SCHEMA)));
  BRIM_TRY(brim_json_put(o, "id", json_string(e->id)));
  BRIM_TRY(brim_json_put(o, "grid", json_string(e->grid)));
  BRIM_TRY(brim_json_put(o, "index", json_integer(e->idx)));
  BRIM_TRY(brim_json_put(o, "label", json_string(e->label)));
  BRIM_TRY(brim_json_put(o, "config", config_of(e->config)));
  BRIM_TRY(brim_json_put(o, "tags", json_string(e->tags)));
  BRIM_TRY(brim_json_put(o, "state", json_string(brim_exp_state_name(e->state))));
  BRIM_TRY(brim_json_put(o, "priority", json_integer(e->priority)));
  BRIM_TRY(brim_json_put(o, "gpus", json_integer(e->gpus)));
  BRIM_TRY(brim_json_put(o, "step", step_of(e->step)));
  BRIM_TRY(brim_json_put(o, "steps", step_of(e->steps)));
  BRIM_TRY(brim_json_put(o, "epoch", step_of(e->epoch)));
  BRIM_TRY(brim_json_put(o, "epochs", step_of(e->epochs)));
  BRIM_TRY(brim_json_put(o, "metric_key", json_string(e->metric_key)));
  BRIM_TRY(brim_json_put(o, "metric", brim_json_number(e->metric)));
  BRIM_TRY(brim_json_put(o, "failure", json_string(e->failure)));
  BRIM_TRY(brim_json_put(o, "reason", json_string(e->reason)));
  BRIM_TRY(brim_json_put(o, "last_lines", json_string(e->last_lines)));
  BRIM_TRY(brim_json_put(o, "created_ms", time_of(e->created)));
  BRIM_TRY(brim_json_put(o, "started_ms", time_of(e->started)));
  BRIM_TRY(brim_json_put(o, "ended_ms", time_of(e->ended)));
  BRIM_TRY(brim_json_put(o, "ran_ms", json_integer(e->ran_ms)));
  return brim_json_put(o, "since_ms", time_of(e->since));
}

static brim_status put_attempt(void *ctx, const brim_store_attempt *a) {
  json_t *o = json_object();
  if (!o) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  brim_status status = brim_json_put(o, "n", json_integer(a->n));
  if (!status) status = brim_json_put(o, "worker", json_string(a->worker));
  if (!status) status = brim_json_put(o, "host", json_string(a->host));
  if (!status) status = brim_json_put(o, "devices", json_string(a->devices));
  if (!status) {
    status = brim_json_put(o, "outcome", json_string(brim_attempt_outcome_name(a->outcome)));
  }
  if (!status) status = brim_json_put(o, "failure", json_string(a->failure));
  if (!status) status = brim_json_put(o, "exit_code", json_integer(a->exit_code));
  if (!status) status = brim_json_put(o, "message", json_string(a->message));
  if (!status) status = brim_json_put(o, "from_step", json_integer(a->from_step));
  if (!status) status = brim_json_put(o, "claimed_ms", time_of(a->claimed));
  if (!status) status = brim_json_put(o, "started_ms", time_of(a->started));
  if (!status) status = brim_json_put(o, "ended_ms", time_of(a->ended));
  if (status) {
    json_decref(o);
    return status;
  }
  return brim_json_push(ctx, o);
}

// {"loss": [[step, value], ...]}
static brim_status put_metric(void *ctx, const brim_store_metric *m, int64_t attempt) {
  (void)attempt;
  json_t *rows = json_object_get(ctx, m->key);
  if (!rows) {
    BRIM_TRY(brim_json_put(ctx, m->key, json_array()));
    rows = json_object_get(ctx, m->key);
  }
  json_t *row = json_array();
  if (!row) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  brim_status status = brim_json_push(row, json_integer(m->step));
  if (!status) status = brim_json_push(row, brim_json_number(m->value));
  if (status) {
    json_decref(row);
    return status;
  }
  return brim_json_push(rows, row);
}

static brim_status build(brim_store *store, const char *id, json_t *line) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_store_get(store, id, &exp));
  brim_status status = put_exp(line, exp);
  brim_store_exp_free(exp);
  if (!status) status = brim_json_put(line, "attempts", json_array());
  if (!status) {
    status = brim_store_attempts(store, id, put_attempt, json_object_get(line, "attempts"));
  }
  if (!status) status = brim_json_put(line, "metrics", json_object());
  if (!status) {
    status = brim_store_read_metrics(store, id, NULL, put_metric, json_object_get(line, "metrics"));
  }
  return status;
}

brim_status brim_store_export_one(brim_store *store, const char *id, brim_store_line_fn fn,
                                  void *ctx) {
  brim_json_setup();
  json_t *line = json_object();
  if (!line) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  char *text = NULL;
  brim_status status = build(store, id, line);
  if (!status) status = brim_json_dump(line, 0, &text);
  if (!status) status = fn(ctx, text);
  brim_free(text);
  json_decref(line);
  return status;
}

brim_status brim_store_export(brim_store *store, const brim_store_filter *filter,
                              brim_store_line_fn fn, void *ctx) {
  ids list = {0};
  brim_status status = brim_store_list(store, filter, collect, &list);
  for (size_t i = 0; !status && i < list.count; i++) {
    status = brim_store_export_one(store, list.ids[i], fn, ctx);
  }
  brim_free(list.ids);
  return status;
}
