// Requests that only read. Lists are made at once and handed out in pieces; what has long texts
// (configs, exports) is made experiment by experiment.
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/lab_ops_int.h"
#include "record/record_findings.h"

enum { EVENTS_PAGE = 500, ROW_SIZE = 400 };

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a reply"); }

static brim_status op_hello(brim_lab_answer *a) {
  json_t *r = a->reply;
  int64_t now = 0;
  BRIM_TRY(brim_store_now(a->store, &now));
  BRIM_TRY(brim_json_put(r, "protocol", json_string(BRIM_LAB_PROTOCOL)));
  BRIM_TRY(brim_json_put(r, "version", brim_lab_wire_text(a->ops->version)));
  BRIM_TRY(brim_json_put(r, "pid", json_integer(getpid())));
  BRIM_TRY(brim_json_put(r, "kind", json_string(brim_store_kind(a->store))));
  BRIM_TRY(brim_json_put(r, "place", brim_lab_wire_text(brim_store_place(a->store))));
  return brim_json_put(r, "now", json_integer(now));
}

static brim_status op_counts(brim_lab_answer *a) {
  const char *grid = NULL;
  brim_store_counts counts;
  BRIM_TRY(brim_lab_wire_string(a->request, "grid", false, &grid));
  BRIM_TRY(brim_store_count(a->store, grid, &counts));
  BRIM_TRY(brim_json_put(a->reply, "total", json_integer(counts.total)));
  json_t *states = json_object();
  BRIM_TRY(brim_json_put(a->reply, "states", states));
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    const char *name = brim_exp_state_name((brim_exp_state)i);
    BRIM_TRY(brim_json_put(states, name, json_integer(counts.states[i])));
  }
  return BRIM_OK;
}

static brim_status op_find(brim_lab_answer *a) {
  const char *exp = "";
  BRIM_TRY(brim_lab_wire_string(a->request, "exp", true, &exp));
  BRIM_TRY(brim_store_find(a->store, exp, a->exp));
  return brim_json_put(a->reply, "exp", json_string(a->exp));
}

static brim_status record_json(brim_lab_kind kind, const void *record, json_t **out) {
  *out = json_object();
  if (!*out) return no_memory();
  brim_status status = brim_lab_wire_put(*out, kind, record);
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

static brim_status add_record(brim_lab_answer *a, const char *key, brim_lab_kind kind,
                              const void *record, size_t size) {
  json_t *row = NULL;
  BRIM_TRY(record_json(kind, record, &row));
  return brim_lab_answer_row(a, key, row, size);
}

// Where the request asks for it.
static brim_status begin_waits(brim_lab_answer *a) {
  if (!json_is_true(json_object_get(a->request, "waits"))) return BRIM_OK;
  return brim_lab_waits_create(a->store, &a->waits);
}

// A page gets them as the list that they are.
static brim_status put_findings(const brim_store_exp *exp, json_t *row) {
  json_t *list = NULL;
  if (!exp->findings[0]) return BRIM_OK;
  if (brim_json_parse(exp->findings, strlen(exp->findings), "findings", &list)) {
    brim_status_clear();
    list = json_array();
  }
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < json_array_size(list); i++) {
    status = brim_finding_add_language(json_array_get(list, i), brim_msg_catalogue_of("ko"));
  }
  if (!status) return brim_json_put(row, "findings", list);
  json_decref(list);
  return status;
}

static brim_status exp_json(const brim_lab_answer *a, const brim_store_exp *exp, json_t **out) {
  BRIM_TRY(record_json(BRIM_LAB_EXP, exp, out));
  if (!a->waits) return BRIM_OK;
  brim_status status = brim_lab_waits_put(a->waits, exp, *out);
  if (!status) status = put_findings(exp, *out);
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

static brim_status op_get(brim_lab_answer *a) {
  brim_store_exp *exp = NULL;
  json_t *row = NULL;
  BRIM_TRY(brim_lab_answer_find(a));
  BRIM_TRY(begin_waits(a));
  BRIM_TRY(brim_store_get(a->store, a->exp, &exp));
  brim_status status = exp_json(a, exp, &row);
  brim_store_exp_free(exp);
  return status ? status : brim_json_put(a->reply, "exp", row);
}

static brim_status list_exp(void *ctx, const brim_store_exp *exp) {
  brim_lab_answer *a = ctx;
  json_t *row = NULL;
  size_t size = ROW_SIZE + strlen(exp->config) + strlen(exp->last_lines) + strlen(exp->reason);
  BRIM_TRY(exp_json(a, exp, &row));
  return brim_lab_answer_row(a, "exps", row, size);
}

static brim_status collect(void *ctx, const brim_store_exp *exp) {
  brim_lab_answer *a = ctx;
  if (a->ids_count == a->ids_capacity) {
    size_t capacity = a->ids_capacity ? a->ids_capacity * 2 : 256;
    void *grown = brim_realloc(a->ids, capacity * sizeof *a->ids);
    if (!grown) return no_memory();
    a->ids = grown;
    a->ids_capacity = capacity;
  }
  memcpy(a->ids[a->ids_count++], exp->id, BRIM_EXP_ID);
  return BRIM_OK;
}

static brim_status collect_ids(brim_lab_answer *a) {
  brim_store_filter filter;
  BRIM_TRY(brim_lab_wire_get_filter(a->request, &filter));
  filter.texts = false;
  return brim_store_list(a->store, &filter, collect, a);
}

static brim_status op_list(brim_lab_answer *a) {
  brim_store_filter filter;
  BRIM_TRY(brim_lab_wire_get_filter(a->request, &filter));
  BRIM_TRY(begin_waits(a));
  if (filter.texts) return collect_ids(a);
  return brim_store_list(a->store, &filter, list_exp, a);
}

static brim_status more_list(brim_lab_answer *a) {
  while (a->ids_at < a->ids_count && a->ready_at == a->ready.len) {
    brim_store_exp *exp = NULL;
    BRIM_TRY(brim_store_get(a->store, a->ids[a->ids_at], &exp));
    brim_status status = list_exp(a, exp);
    brim_store_exp_free(exp);
    BRIM_TRY(status);
    a->ids_at++;
  }
  a->finished = a->ids_at == a->ids_count;
  return BRIM_OK;
}

static brim_status export_line(void *ctx, const char *line) {
  return brim_lab_answer_text(ctx, "line", line);
}

static brim_status more_export(brim_lab_answer *a) {
  if (a->ids_at < a->ids_count) {
    BRIM_TRY(brim_store_export_one(a->store, a->ids[a->ids_at++], export_line, a));
  }
  a->finished = a->ids_at == a->ids_count;
  return BRIM_OK;
}

static brim_status list_attempt(void *ctx, const brim_store_attempt *attempt) {
  return add_record(ctx, "attempts", BRIM_LAB_ATTEMPT, attempt,
                    ROW_SIZE + strlen(attempt->message));
}

static brim_status op_attempts(brim_lab_answer *a) {
  BRIM_TRY(brim_lab_answer_find(a));
  return brim_store_attempts(a->store, a->exp, list_attempt, a);
}

static brim_status op_log_size(brim_lab_answer *a) {
  int64_t attempt = 0, size = 0;
  const char *stream = NULL;
  BRIM_TRY(brim_lab_wire_int(a->request, "attempt", true, &attempt));
  BRIM_TRY(brim_lab_wire_string(a->request, "stream", true, &stream));
  BRIM_TRY(brim_lab_answer_find(a));
  BRIM_TRY(brim_store_log_size(a->store, a->exp, attempt, stream, &size));
  return brim_json_put(a->reply, "size", json_integer(size));
}

static brim_status list_event(void *ctx, const brim_store_event *event) {
  brim_lab_answer *a = ctx;
  a->seq = event->seq;
  return add_record(a, "events", BRIM_LAB_EVENT, event, 100 + strlen(event->text));
}

static brim_status op_events(brim_lab_answer *a) {
  int64_t limit = 0;
  BRIM_TRY(brim_lab_wire_int(a->request, "seq", false, &a->seq));
  BRIM_TRY(brim_lab_wire_int(a->request, "limit", false, &limit));
  a->left = limit > 0 ? limit : INT64_MAX;
  return BRIM_OK;
}

static brim_status more_events(brim_lab_answer *a) {
  int64_t page = a->left < EVENTS_PAGE ? a->left : EVENTS_PAGE;
  int64_t before = a->seq;
  BRIM_TRY(brim_store_events(a->store, before, page, list_event, a));
  BRIM_TRY(brim_lab_answer_flush(a));
  a->left -= page;
  a->finished = a->seq == before || a->left == 0;
  return BRIM_OK;
}

static brim_status list_grid(void *ctx, const brim_store_grid_row *row) {
  brim_lab_answer *a = ctx;
  brim_store_grid_row brief = *row;
  if (!json_is_true(json_object_get(a->request, "texts"))) brief.grid.text = "";
  return add_record(a, "grids", BRIM_LAB_GRID_ROW, &brief, ROW_SIZE + strlen(brief.grid.text));
}

static brim_status op_grids(brim_lab_answer *a) { return brim_store_grids(a->store, list_grid, a); }

typedef struct worker_rows {
  brim_lab_answer *answer;
  json_t *lacks;  // grids by worker
} worker_rows;

static brim_status add_lack(void *ctx, const brim_store_lack *lack) {
  json_t *all = ((worker_rows *)ctx)->lacks;
  if (!lack->grid) return BRIM_OK;
  if (!json_object_get(all, lack->worker)) {
    BRIM_TRY(brim_json_put(all, lack->worker, json_array()));
  }
  int rc = json_array_append_new(json_object_get(all, lack->worker), json_string(lack->what));
  return rc == 0 ? BRIM_OK : no_memory();
}

// What it says of its machine is an object; a text that is none is left out.
static brim_status list_worker(void *ctx, const brim_store_worker *worker) {
  const worker_rows *rows = ctx;
  json_t *row = NULL, *status = NULL;
  BRIM_TRY(record_json(BRIM_LAB_WORKER, worker, &row));
  if (worker->status[0] &&
      brim_json_parse(worker->status, strlen(worker->status), "status", &status)) {
    brim_status_clear();
  }
  if (json_is_object(status)) {
    if (json_object_set(row, "status", status) != 0) {
      json_decref(row);
      row = NULL;
    }
  }
  json_decref(status);
  json_t *lacks = json_object_get(rows->lacks, worker->id);
  if (row && lacks && json_object_set(row, "lacks", lacks) != 0) {
    json_decref(row);
    row = NULL;
  }
  if (!row) return no_memory();
  return brim_lab_answer_row(rows->answer, "workers", row,
                             ROW_SIZE + strlen(worker->gpus) + strlen(worker->status));
}

static brim_status op_workers(brim_lab_answer *a) {
  worker_rows rows = {a, json_object()};
  int64_t now = 0;
  brim_status status = rows.lacks ? brim_store_now(a->store, &now) : no_memory();
  if (!status) status = brim_store_lacks(a->store, now - BRIM_WORKER_GONE_MS, add_lack, &rows);
  if (!status) status = brim_store_workers(a->store, list_worker, &rows);
  json_decref(rows.lacks);
  return status;
}

// --- metrics

typedef struct metric_row {
  int64_t step, attempt;
  double value;
} metric_row;

// The rows of one key, gathered so that they can be thinned out.
typedef struct curve {
  brim_lab_answer *a;
  char *key;
  int64_t points;  // 0 = all
  metric_row *rows;
  size_t count, capacity;
} curve;

static brim_status put_metric(const curve *c, const metric_row *m) {
  json_t *row = json_array();
  if (!row) return no_memory();
  brim_status status = brim_json_push(row, json_integer(m->step));
  if (!status) status = brim_json_push(row, brim_lab_wire_real(m->value));
  if (!status) status = brim_json_push(row, json_integer(m->attempt));
  if (status) {
    json_decref(row);
    return status;
  }
  bool fresh = !c->a->line;
  BRIM_TRY(brim_lab_answer_row(c->a, "rows", row, 30));
  // A line may have been ended by this row; a fresh one that was not needs its key.
  if (!fresh || !c->a->line) return BRIM_OK;
  return brim_json_put(c->a->line, "key", json_string(c->key));
}

static brim_status put_curve(curve *c) {
  size_t n = c->count, most = c->points > 0 ? (size_t)c->points : n;
  size_t chosen = n < most ? n : most;
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < chosen; i++) {
    // Evenly spaced, ending at the last row.
    size_t at = chosen == n ? i : (size_t)((double)(i + 1) * (double)n / (double)chosen) - 1;
    status = put_metric(c, &c->rows[at < n ? at : n - 1]);
  }
  c->count = 0;
  return status ? status : brim_lab_answer_flush(c->a);
}

static brim_status gather(void *ctx, const brim_store_metric *m, int64_t attempt) {
  curve *c = ctx;
  if (c->key && strcmp(c->key, m->key) != 0) {
    BRIM_TRY(put_curve(c));
    brim_free(c->key);
    c->key = NULL;
  }
  if (!c->key) c->key = brim_strdup(m->key);
  if (!c->key) return no_memory();
  if (c->count == c->capacity) {
    size_t capacity = c->capacity ? c->capacity * 2 : 1024;
    void *grown = brim_realloc(c->rows, capacity * sizeof *c->rows);
    if (!grown) return no_memory();
    c->rows = grown;
    c->capacity = capacity;
  }
  c->rows[c->count++] = (metric_row){m->step, attempt, m->value};
  return BRIM_OK;
}

static brim_status op_metrics_of(brim_lab_answer *a) {
  const char *key = NULL;
  curve c = {.a = a};
  BRIM_TRY(brim_lab_wire_string(a->request, "key", false, &key));
  BRIM_TRY(brim_lab_wire_int(a->request, "points", false, &c.points));
  if (c.points < 0) return brim_fail(BRIM_EINVAL, "the number of points is negative");
  BRIM_TRY(brim_lab_answer_find(a));
  brim_status status = brim_store_read_metrics(a->store, a->exp, key, gather, &c);
  if (!status && c.count) status = put_curve(&c);
  brim_free(c.rows);
  brim_free(c.key);
  return status;
}

const brim_lab_op brim_lab_ops_reading[] = {
    {"hello", false, op_hello, NULL, NULL},
    {"counts", false, op_counts, NULL, NULL},
    {"find", false, op_find, NULL, NULL},
    {"get", false, op_get, NULL, NULL},
    {"list", false, op_list, more_list, NULL},
    {"export", false, collect_ids, more_export, NULL},
    {"attempts", false, op_attempts, NULL, NULL},
    {"metrics_of", false, op_metrics_of, NULL, NULL},
    {"log_size", false, op_log_size, NULL, NULL},
    {"events", false, op_events, more_events, NULL},
    {"grids", false, op_grids, NULL, NULL},
    {"workers", false, op_workers, NULL, NULL},
    {NULL, false, NULL, NULL, NULL},
};
