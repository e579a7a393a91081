// Requests and their replies (lab_ops.h): the frame of every request, and one function for each.

#include "lab/lab_ops.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/lab_ids.h"
#include "lab/lab_ops_int.h"
#include "record/record_findings.h"

static void waits_destroy(brim_lab_waits *w);

//------------------------------------- why experiments wait -------------------------------------
// Why experiments wait: the queue and the workers at one moment, looked at once for a whole reply.

enum { WORKERS = 1024, LACKS = 1024, WHAT = 65 };

// What a worker could run at most. Unknown is "everything": it has said nothing.
typedef struct worker_room {
  bool unknown;
  int64_t gpus;       // 1 where it runs them on the CPU
  double most_bytes;  // of its largest GPU; infinite on the CPU
} worker_room;

struct brim_lab_waits {
  int64_t now;
  worker_room workers[WORKERS];  // those that are here and take experiments
  size_t count, draining;
  char lacks[LACKS][WHAT];  // experiments and grids that some worker lacks something for
  size_t lack_count;
  char (*queue)[BRIM_EXP_ID];
  size_t queued;
  brim_lab_ids ranks;
};

static worker_room read_capacity(const char *text) {
  json_t *status = NULL;
  worker_room c = {.unknown = true};
  if (!text[0] || brim_json_parse(text, strlen(text), "status", &status)) {
    brim_status_clear();
    return c;
  }
  const json_t *gpus = json_object_get(status, "gpus");
  const bool cpu = json_integer_value(json_object_get(status, "cpu_slots")) > 0;
  if (json_is_array(gpus)) {
    c = (worker_room){.gpus = (int64_t)json_array_size(gpus)};
    for (size_t i = 0; i < json_array_size(gpus); i++) {
      const json_t *total = json_object_get(json_array_get(gpus, i), "memory_total");
      c.most_bytes =
          fmax(c.most_bytes, json_is_number(total) ? json_number_value(total) : INFINITY);
    }
    if (cpu) c.most_bytes = INFINITY;
    if (cpu && c.gpus == 0) c.gpus = 1;
  }
  json_decref(status);
  return c;
}

static brim_status add_worker(void *ctx, const brim_store_worker *w) {
  brim_lab_waits *waits = (brim_lab_waits *)ctx;
  if (waits->now - w->last_seen > BRIM_WORKER_GONE_MS) return BRIM_OK;
  if (w->drain) {
    waits->draining++;
  } else if (waits->count < WORKERS) {
    waits->workers[waits->count++] = read_capacity(w->status);
  }
  return BRIM_OK;
}

static brim_status add_lack(void *ctx, const brim_store_lack *lack) {
  brim_lab_waits *w = (brim_lab_waits *)ctx;
  if (w->lack_count < LACKS) snprintf(w->lacks[w->lack_count++], WHAT, "%s", lack->what);
  return BRIM_OK;
}

static bool is_lacking(const brim_lab_waits *w, const brim_store_exp *exp) {
  for (size_t i = 0; i < w->lack_count; i++) {
    if (strcmp(w->lacks[i], exp->id) == 0 || strcmp(w->lacks[i], exp->grid) == 0) return true;
  }
  return false;
}

static brim_status fill(brim_store *store, brim_lab_waits *w) {
  BRIM_TRY(brim_store_now(store, &w->now));
  BRIM_TRY(brim_store_workers(store, add_worker, w));
  BRIM_TRY(brim_store_lacks(store, w->now - BRIM_WORKER_GONE_MS, add_lack, w));
  BRIM_TRY(brim_store_queue(store, &w->queue, &w->queued));
  BRIM_TRY(brim_lab_ids_init(&w->ranks, w->queued));
  for (size_t i = 0; i < w->queued; i++) brim_lab_ids_add(&w->ranks, w->queue[i], i);
  return BRIM_OK;
}

static brim_status waits_create(brim_store *store, brim_lab_waits **out) {
  brim_lab_waits *w = (brim_lab_waits *)brim_calloc(1, sizeof *w);
  *out = NULL;
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  brim_status status = fill(store, w);
  if (status) {
    waits_destroy(w);
    return status;
  }
  *out = w;
  return BRIM_OK;
}

// NULL is fine
static void waits_destroy(brim_lab_waits *w) {
  if (!w) return;
  brim_lab_ids_deinit(&w->ranks);
  brim_free(w->queue);
  brim_free(w);
}

// How much of what it needs some worker has: 0 = GPUs, 1 = memory, 2 = both.
static int fits(const brim_lab_waits *w, const brim_store_exp *exp) {
  int best = 0;
  for (size_t i = 0; i < w->count; i++) {
    const worker_room *c = &w->workers[i];
    if (!c->unknown && c->gpus < exp->gpus) continue;
    if (c->unknown || (double)exp->need_bytes <= c->most_bytes) return 2;
    best = 1;
  }
  return best;
}

// Texts are English: a page makes its own from the code.
static const char *code_of(const brim_lab_waits *w, const brim_store_exp *exp, size_t *ahead,
                           char *text, size_t size) {
  if (exp->state == BRIM_EXP_PAUSED) {
    snprintf(text, size, "it is paused");
    return "paused";
  }
  if (w->count == 0) {
    snprintf(text, size, w->draining ? "every worker drains" : "no worker is connected");
    return w->draining ? "drain" : "no_worker";
  }
  int has = fits(w, exp);
  if (has == 0) {
    snprintf(text, size, "needs %lld GPUs, more than any worker has", (long long)exp->gpus);
    return "no_gpu";
  }
  if (has == 1) {
    snprintf(text, size, "needs %lld bytes, more than any worker's GPU has",
             (long long)exp->need_bytes);
    return "no_memory";
  }
  if (exp->not_before > w->now) {
    snprintf(text, size, "failed and is retried in %.0f s",
             (double)(exp->not_before - w->now) / 1e3);
    return "backoff";
  }
  if (!brim_lab_ids_find(&w->ranks, exp->id, ahead)) *ahead = 0;  // was queued since
  if (is_lacking(w, exp)) {
    snprintf(text, size, "waits for a worker that has what it needs: another one failed");
    return "lacks";
  }
  if (*ahead == 0) {
    snprintf(text, size, "is next, and waits for a free worker");
    return "next";
  }
  snprintf(text, size, "%zu experiments are before it", *ahead);
  return "behind";
}

// Adds "waits": {code, text, ...} to the row of one that waits.
static brim_status waits_put(const brim_lab_waits *w, const brim_store_exp *exp, json_t *row) {
  char text[128];
  size_t ahead = 0;
  if (exp->state != BRIM_EXP_QUEUED && exp->state != BRIM_EXP_PAUSED) return BRIM_OK;
  const char *code = code_of(w, exp, &ahead, text, sizeof text);
  json_t *o = json_object();
  BRIM_TRY(brim_json_put(row, "waits", o));
  BRIM_TRY(brim_json_put(o, "code", json_string(code)));
  BRIM_TRY(brim_json_put(o, "text", json_string(text)));
  if (ahead > 0) BRIM_TRY(brim_json_put(o, "ahead", json_integer((json_int_t)ahead)));
  if (strcmp(code, "backoff") != 0) return BRIM_OK;
  return brim_json_put(o, "until_ms", json_integer(exp->not_before));
}

//------------------------------------------- reading -------------------------------------------
// Requests that only read. Lists are made at once and handed out in pieces; what has long texts
// (configs, exports) is made experiment by experiment.

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

static brim_status record_json(brim_lab_record kind, const void *record, json_t **out) {
  *out = json_object();
  if (!*out) return no_memory();
  brim_status status = brim_lab_wire_put(*out, kind, record);
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

static brim_status add_record(brim_lab_answer *a, const char *key, brim_lab_record kind,
                              const void *record, size_t size) {
  json_t *row = NULL;
  BRIM_TRY(record_json(kind, record, &row));
  return brim_lab_answer_row(a, key, row, size);
}

// Where the request asks for it.
static brim_status begin_waits(brim_lab_answer *a) {
  if (!json_is_true(json_object_get(a->request, "waits"))) return BRIM_OK;
  return waits_create(a->store, &a->waits);
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
  brim_status status = waits_put(a->waits, exp, *out);
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

static brim_status read_add_lack(void *ctx, const brim_store_lack *lack) {
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
  if (!status) status = brim_store_lacks(a->store, now - BRIM_WORKER_GONE_MS, read_add_lack, &rows);
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

//------------------------------------------- writing -------------------------------------------
// Requests that change the store: those of an attempt, those of a user, and a grid.

static brim_status take_ref(brim_lab_answer *a, brim_store_ref *ref) {
  BRIM_TRY(brim_lab_wire_ref_of(a->request, ref));
  memcpy(a->exp, ref->exp, sizeof a->exp);
  return BRIM_OK;
}

static brim_status op_start(brim_lab_answer *a) {
  brim_store_ref ref = {0};
  int64_t pid = 0, from = -1;
  BRIM_TRY(take_ref(a, &ref));
  BRIM_TRY(brim_lab_wire_int(a->request, "pid", true, &pid));
  BRIM_TRY(brim_lab_wire_int(a->request, "from_step", false, &from));
  return brim_store_start(a->store, &ref, pid, from);
}

static brim_status op_beat(brim_lab_answer *a) {
  brim_store_ref ref = {0};
  brim_store_progress progress;
  brim_store_beat_reply reply = {0};
  BRIM_TRY(take_ref(a, &ref));
  BRIM_TRY(brim_lab_wire_get(a->request, BRIM_LAB_PROGRESS, &progress));
  BRIM_TRY(brim_store_beat(a->store, &ref, &progress, &reply));
  BRIM_TRY(brim_json_put(a->reply, "lease_ms", json_integer(reply.lease_ms)));
  return brim_json_put(a->reply, "want", json_string(brim_lab_want_name(reply.want)));
}

static brim_status read_metric(const json_t *row, brim_store_metric *out) {
  const json_t *key = json_array_get(row, 0), *step = json_array_get(row, 1);
  if (!json_is_string(key) || !json_is_integer(step) ||
      strlen(json_string_value(key)) != json_string_length(key) ||
      !brim_lab_wire_real_of(json_array_get(row, 2), &out->value)) {
    return brim_fail(BRIM_EINVAL, "a row of metrics is [key, step, value]");
  }
  out->key = json_string_value(key);
  out->step = json_integer_value(step);
  return BRIM_OK;
}

// The store is one attempt's alone while it takes a batch. Executors send some 1000 rows at once.
enum { MOST_ROWS = 20000 };

static brim_status op_metrics(brim_lab_answer *a) {
  brim_store_ref ref = {0};
  int64_t seq = 0;
  BRIM_TRY(take_ref(a, &ref));
  BRIM_TRY(brim_lab_wire_int(a->request, "seq", true, &seq));
  const json_t *list = json_object_get(a->request, "rows");
  size_t count = json_array_size(list);
  if (!json_is_array(list)) return brim_fail(BRIM_EINVAL, "a batch of metrics needs its rows");
  if (count > MOST_ROWS) {
    return brim_fail(BRIM_ELIMIT, "a batch of metrics has at most %d rows", MOST_ROWS);
  }
  brim_store_metric *rows = brim_calloc(count + 1, sizeof *rows);
  if (!rows) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) {
    status = read_metric(json_array_get(list, i), &rows[i]);
  }
  if (!status) status = brim_store_metrics(a->store, &ref, seq, rows, count);
  brim_free(rows);
  return status;
}

static brim_status op_log(brim_lab_answer *a) {
  brim_store_ref ref = {0};
  const char *stream = NULL;
  int64_t size = 0;
  BRIM_TRY(take_ref(a, &ref));
  BRIM_TRY(brim_lab_wire_string(a->request, "stream", true, &stream));
  BRIM_TRY(brim_lab_wire_int(a->request, "size", true, &size));
  return brim_store_log(a->store, &ref, stream, size);
}

static brim_status op_checkpoint(brim_lab_answer *a) {
  brim_store_ref ref = {0};
  int64_t step = 0;
  BRIM_TRY(take_ref(a, &ref));
  BRIM_TRY(brim_lab_wire_int(a->request, "step", true, &step));
  return brim_store_checkpoint(a->store, &ref, step);
}

static brim_status op_finish(brim_lab_answer *a) {
  brim_store_ref ref = {0};
  brim_store_result result = {0};
  brim_exp_state state = BRIM_EXP_QUEUED;
  BRIM_TRY(take_ref(a, &ref));
  BRIM_TRY(brim_lab_wire_get(a->request, BRIM_LAB_RESULT, &result));
  BRIM_TRY(brim_store_finish(a->store, &ref, &result, &state));
  return brim_json_put(a->reply, "state", json_string(brim_exp_state_name(state)));
}

static brim_status put_exp(brim_lab_answer *a) {
  return brim_json_put(a->reply, "exp", json_string(a->exp));
}

// One that is not known becomes BRIM_WANT_COUNT, which the store refuses.
static brim_status take_want(const brim_lab_answer *a, brim_exp_want *out) {
  const char *name = NULL;
  BRIM_TRY(brim_lab_wire_string(a->request, "want", true, &name));
  int want = 0;
  while (want < BRIM_WANT_COUNT && strcmp(brim_lab_want_name((brim_exp_want)want), name) != 0) {
    want++;
  }
  *out = (brim_exp_want)want;
  return BRIM_OK;
}

static brim_status op_want(brim_lab_answer *a) {
  brim_exp_want want = BRIM_WANT_COUNT;
  BRIM_TRY(take_want(a, &want));
  BRIM_TRY(brim_lab_answer_find(a));
  BRIM_TRY(brim_store_want(a->store, a->exp, want));
  return put_exp(a);
}

// Into a->ids.
static brim_status take_exps(brim_lab_answer *a) {
  const json_t *list = json_object_get(a->request, "exps");
  size_t count = json_array_size(list);
  if (!json_is_array(list) || count > BRIM_STORE_EACH) {
    return brim_fail(BRIM_EINVAL, "at most %d experiments can be changed at once", BRIM_STORE_EACH);
  }
  a->ids = brim_calloc(count + 1, sizeof *a->ids);
  if (!a->ids) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  for (size_t i = 0; i < count; i++) {
    const char *id = json_string_value(json_array_get(list, i));
    if (!id || strlen(id) != BRIM_EXP_ID - 1) {
      return brim_fail(BRIM_EINVAL, "'%s' is not the id of an experiment (32 hex digits)",
                       id ? id : "");
    }
    memcpy(a->ids[a->ids_count++], id, BRIM_EXP_ID);
  }
  return BRIM_OK;
}

static brim_status op_want_each(brim_lab_answer *a) {
  int64_t count = 0;
  brim_exp_want want = BRIM_WANT_COUNT;
  BRIM_TRY(take_want(a, &want));
  BRIM_TRY(take_exps(a));
  const char(*ids)[BRIM_EXP_ID] = (const char(*)[BRIM_EXP_ID])a->ids;
  BRIM_TRY(brim_store_want_each(a->store, ids, a->ids_count, want, &count));
  return brim_json_put(a->reply, "count", json_integer(count));
}

static brim_status op_retry_each(brim_lab_answer *a) {
  int64_t count = 0;
  BRIM_TRY(take_exps(a));
  const char(*ids)[BRIM_EXP_ID] = (const char(*)[BRIM_EXP_ID])a->ids;
  BRIM_TRY(brim_store_retry_each(a->store, ids, a->ids_count, &count));
  return brim_json_put(a->reply, "count", json_integer(count));
}

static brim_status op_retry(brim_lab_answer *a) {
  BRIM_TRY(brim_lab_answer_find(a));
  BRIM_TRY(brim_store_retry(a->store, a->exp));
  return put_exp(a);
}

static brim_status op_retry_failed(brim_lab_answer *a) {
  const char *grid = NULL;
  int64_t count = 0;
  BRIM_TRY(brim_lab_wire_string(a->request, "grid", false, &grid));
  BRIM_TRY(brim_store_retry_failed(a->store, grid, &count));
  return brim_json_put(a->reply, "count", json_integer(count));
}

static brim_status op_set_priority(brim_lab_answer *a) {
  int64_t priority = 0;
  BRIM_TRY(brim_lab_wire_int(a->request, "priority", true, &priority));
  BRIM_TRY(brim_lab_answer_find(a));
  BRIM_TRY(brim_store_set_priority(a->store, a->exp, priority));
  return put_exp(a);
}

static brim_status op_submit(brim_lab_answer *a) {
  brim_store_grid grid = {0};
  brim_store_submitted out = {0};
  BRIM_TRY(brim_lab_wire_get(json_object_get(a->request, "grid"), BRIM_LAB_GRID, &grid));
  const json_t *list = json_object_get(a->request, "points");
  if (!json_is_array(list)) return brim_fail(BRIM_EINVAL, "a grid needs its points");
  size_t count = json_array_size(list);
  brim_store_point *points = brim_calloc(count + 1, sizeof *points);
  if (!points) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) {
    status = brim_lab_wire_get(json_array_get(list, i), BRIM_LAB_POINT, &points[i]);
  }
  if (!status) status = brim_store_submit(a->store, &grid, points, count, &out);
  brim_free(points);
  if (!status) status = brim_json_put(a->reply, "added", json_integer(out.added));
  if (!status) status = brim_json_put(a->reply, "existing", json_integer(out.existing));
  return status;
}

const brim_lab_op brim_lab_ops_writing[] = {
    {"start", true, op_start, NULL, NULL},
    {"beat", true, op_beat, NULL, NULL},
    {"metrics", true, op_metrics, NULL, NULL},
    {"log", true, op_log, NULL, NULL},
    {"checkpoint", true, op_checkpoint, NULL, NULL},
    {"finish", true, op_finish, NULL, NULL},
    {"want", true, op_want, NULL, NULL},
    {"retry", true, op_retry, NULL, NULL},
    {"want_each", true, op_want_each, NULL, "want"},
    {"retry_each", true, op_retry_each, NULL, "retry"},
    {"retry_failed", true, op_retry_failed, NULL, NULL},
    {"set_priority", true, op_set_priority, NULL, NULL},
    {"submit", true, op_submit, NULL, NULL},
    {NULL, false, NULL, NULL, NULL},
};

//-------------------------------------- workers and pages --------------------------------------
// Requests of workers and pages: those that a sweep on one machine has no need of.

static brim_status take_worker(const brim_lab_answer *a, const char **out) {
  return brim_lab_wire_string(a->request, "worker", true, out);
}

static brim_status op_seen(brim_lab_answer *a) {
  brim_store_worker w = {0};
  BRIM_TRY(take_worker(a, &w.id));
  BRIM_TRY(brim_lab_wire_string(a->request, "host", false, &w.host));
  BRIM_TRY(brim_lab_wire_string(a->request, "gpus", false, &w.gpus));
  BRIM_TRY(brim_lab_wire_string(a->request, "version", false, &w.version));
  BRIM_TRY(brim_lab_wire_bool(a->request, "left", &w.left));
  const char *own = a->ops->version;
  if (own && own[0] && w.version && w.version[0] && !brim_lab_wire_fits(own, w.version)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "the server is brim %s and takes no worker of brim %s; install %s", own,
                     w.version, own);
  }
  char *text = NULL;
  const json_t *status = json_object_get(a->request, "status");
  if (json_is_object(status)) {
    BRIM_TRY(brim_json_dump(status, 0, &text));
    w.status = text;
  } else {
    BRIM_TRY(brim_lab_wire_string(a->request, "status", false, &w.status));
  }
  brim_status seen = brim_store_worker_seen(a->store, &w);
  brim_free(text);
  return seen;
}

static brim_status op_drain(brim_lab_answer *a) {
  const char *worker = NULL;
  bool drain = true;
  BRIM_TRY(take_worker(a, &worker));
  BRIM_TRY(brim_lab_wire_bool(a->request, "drain", &drain));
  return brim_store_drain(a->store, worker, drain);
}

static brim_status put_claimed(brim_lab_answer *a, const brim_store_claimed *c) {
  json_t *exp = json_object();
  brim_status status = exp ? brim_lab_wire_put(exp, BRIM_LAB_EXP, c->exp)
                           : brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  if (status) {
    json_decref(exp);
    return status;
  }
  BRIM_TRY(brim_json_put(a->reply, "exp", exp));
  BRIM_TRY(brim_json_put(a->reply, "attempt", json_integer(c->ref.attempt)));
  BRIM_TRY(brim_json_put(a->reply, "fence", json_integer(c->ref.fence)));
  return brim_json_put(a->reply, "lease_ms", json_integer(c->lease_ms));
}

// Without an experiment in the reply there is nothing to do.
static brim_status op_claim(brim_lab_answer *a) {
  brim_store_request r = {.free_bytes = -1};
  brim_store_claimed c = {0};
  BRIM_TRY(take_worker(a, &r.worker));
  BRIM_TRY(brim_lab_wire_string(a->request, "claim_id", true, &r.claim_id));
  BRIM_TRY(brim_lab_wire_string(a->request, "host", false, &r.host));
  BRIM_TRY(brim_lab_wire_string(a->request, "devices", false, &r.devices));
  BRIM_TRY(brim_lab_wire_string(a->request, "exp", false, &r.exp));
  BRIM_TRY(brim_lab_wire_string(a->request, "grid", false, &r.grid));
  BRIM_TRY(brim_lab_wire_int(a->request, "free_gpus", false, &r.free_gpus));
  BRIM_TRY(brim_lab_wire_int(a->request, "free_bytes", false, &r.free_bytes));
  BRIM_TRY(brim_store_claim(a->store, &r, &c));
  if (!c.exp) return BRIM_OK;
  memcpy(a->exp, c.ref.exp, sizeof a->exp);
  brim_status status = put_claimed(a, &c);
  brim_store_exp_free(c.exp);
  return status;
}

static brim_status op_findings(brim_lab_answer *a) {
  brim_store_ref ref = {0};
  const char *text = "";
  BRIM_TRY(brim_lab_wire_ref_of(a->request, &ref));
  memcpy(a->exp, ref.exp, sizeof a->exp);
  BRIM_TRY(brim_lab_wire_string(a->request, "findings", true, &text));
  return brim_store_findings(a->store, &ref, text);
}

static brim_status put_bucket(void *ctx, const brim_store_bucket *b) {
  json_t *row = json_array();
  if (!row) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  const int64_t counts[] = {b->first, b->last, b->n, b->bad};
  const double values[] = {b->lo, b->hi, b->mean};
  brim_status status = BRIM_OK;
  for (int i = 0; !status && i < 4; i++) status = brim_json_push(row, json_integer(counts[i]));
  for (int i = 0; !status && i < 3; i++)
    status = brim_json_push(row, brim_lab_wire_real(values[i]));
  if (status) {
    json_decref(row);
    return status;
  }
  return brim_lab_answer_row((brim_lab_answer *)ctx, "buckets", row, 80);
}

static brim_status op_curve(brim_lab_answer *a) {
  const char *key = NULL;
  brim_store_range range = {.points = 1000};
  BRIM_TRY(brim_lab_wire_string(a->request, "key", true, &key));
  BRIM_TRY(brim_lab_wire_int(a->request, "first", false, &range.first));
  BRIM_TRY(brim_lab_wire_int(a->request, "last", false, &range.last));
  BRIM_TRY(brim_lab_wire_int(a->request, "points", false, &range.points));
  BRIM_TRY(brim_lab_answer_find(a));
  return brim_store_read_curve(a->store, a->exp, key, &range, put_bucket, a);
}

// --- curves of several experiments: a line each

static brim_status op_curves(brim_lab_answer *a) {
  const char *key = NULL;
  const json_t *list = json_object_get(a->request, "exps");
  size_t count = json_array_size(list);
  BRIM_TRY(brim_lab_wire_string(a->request, "key", true, &key));
  if (!json_is_array(list) || count > BRIM_LAB_CURVES) {
    return brim_fail(BRIM_EINVAL, "exps is a list of at most %d ids of experiments",
                     BRIM_LAB_CURVES);
  }
  a->ids = (char(*)[BRIM_EXP_ID])brim_calloc(count + 1, sizeof *a->ids);
  if (!a->ids) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  for (size_t i = 0; i < count; i++) {
    const char *id = json_string_value(json_array_get(list, i));
    BRIM_TRY(brim_store_find(a->store, id ? id : "", a->ids[i]));
    a->ids_count++;
  }
  return BRIM_OK;
}

static brim_status more_curves(brim_lab_answer *a) {
  const char *key = "", *exp = a->ids[a->ids_at];
  brim_store_range range = {.points = 500};
  a->finished = a->ids_at == a->ids_count;
  if (a->finished) return BRIM_OK;
  BRIM_TRY(brim_lab_wire_string(a->request, "key", true, &key));
  BRIM_TRY(brim_lab_wire_int(a->request, "first", false, &range.first));
  BRIM_TRY(brim_lab_wire_int(a->request, "last", false, &range.last));
  BRIM_TRY(brim_lab_wire_int(a->request, "points", false, &range.points));
  // one line, however many buckets it has; an experiment without the key has none
  BRIM_TRY(brim_lab_answer_begin_rows(a, "buckets"));
  BRIM_TRY(brim_json_put(a->line, "exp", json_string(exp)));
  a->whole_line = true;
  brim_status status = brim_store_read_curve(a->store, exp, key, &range, put_bucket, a);
  a->whole_line = false;
  a->ids_at++;
  a->finished = a->ids_at == a->ids_count;
  return status ? status : brim_lab_answer_flush(a);
}

static brim_status put_file(void *ctx, const brim_store_file *f) {
  json_t *row = json_object();
  brim_status status = brim_json_put(row, "name", brim_lab_wire_text(f->name));
  if (!status) status = brim_json_put(row, "sha256", json_string(f->sha256));
  if (!status) status = brim_json_put(row, "size", json_integer(f->size));
  if (!status) status = brim_json_put(row, "attempt", json_integer(f->attempt));
  if (!status) status = brim_json_put(row, "step", json_integer(f->step));
  if (!status) status = brim_json_put(row, "t", json_integer(f->t));
  if (status) {
    json_decref(row);
    return status;
  }
  return brim_lab_answer_row((brim_lab_answer *)ctx, "files", row, 200);
}

static brim_status op_files(brim_lab_answer *a) {
  BRIM_TRY(brim_lab_answer_find(a));
  return brim_store_files(a->store, a->exp, put_file, a);
}

const brim_lab_op brim_lab_ops_pool[] = {
    {"seen", true, op_seen, NULL, NULL},    {"drain", true, op_drain, NULL, NULL},
    {"claim", true, op_claim, NULL, NULL},  {"findings", true, op_findings, NULL, NULL},
    {"curve", false, op_curve, NULL, NULL}, {"curves", false, op_curves, more_curves, NULL},
    {"files", false, op_files, NULL, NULL}, {NULL, false, NULL, NULL, NULL},
};

//-------------------------------------------- frame --------------------------------------------
// The frame of every request: reading it, finding its row, and its reply in pieces.

static const brim_lab_op *find_op(const char *name) {
  const brim_lab_op *const tables[] = {brim_lab_ops_writing, brim_lab_ops_reading,
                                       brim_lab_ops_pool};
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    for (const brim_lab_op *op = tables[t]; op->name; op++) {
      if (strcmp(op->name, name) == 0) return op;
    }
  }
  return NULL;
}

static brim_status run(brim_lab_answer *a) {
  const char *name = NULL;
  bool taken = false;
  if (!json_is_object(a->request)) return brim_fail(BRIM_EINVAL, "a request is a JSON object");
  BRIM_TRY(brim_lab_wire_string(a->request, "op", true, &name));
  if (a->ops->answer) {
    brim_status status = a->ops->answer(a->ops->ctx, name, a->request, a->reply, &taken);
    if (taken || status) return status;
  }
  a->op = find_op(name);
  if (!a->op) {
    return brim_fail(BRIM_EUNSUPPORTED, "'%s' is no request that this sweep answers", name);
  }
  if (!a->store) {
    return brim_fail(BRIM_ESTATE,
                     "a worker runs in this folder, and its server has the store: name the "
                     "server's URL in place of the folder");
  }
  BRIM_TRY(a->op->run(a));
  if (!a->op->writes || !a->ops->changed) return BRIM_OK;
  if (!a->op->each) a->ops->changed(a->ops->ctx, name, a->exp);
  for (size_t i = 0; a->op->each && i < a->ids_count; i++) {
    a->ops->changed(a->ops->ctx, a->op->each, a->ids[i]);
  }
  return BRIM_OK;
}

static brim_status put_failure(json_t *line, brim_status failure) {
  BRIM_TRY(brim_json_put(line, "status", json_string(brim_status_name(failure))));
  return brim_json_put(line, "message", brim_lab_wire_text(brim_status_detail()));
}

// The last line.
static brim_status end_line(brim_lab_answer *a, brim_status result) {
  if (!result) return brim_lab_answer_put(a, a->reply);
  json_t *line = NULL;
  BRIM_TRY(brim_lab_answer_line(a, false, &line));
  brim_status status = put_failure(line, result);
  if (!status) status = brim_lab_answer_put(a, line);
  json_decref(line);
  return status;
}

brim_status brim_lab_ops_error(brim_status failure, brim_str *out) {
  const brim_lab_answer none = {0};
  json_t *line = NULL;
  char *text = NULL;
  BRIM_TRY(brim_lab_answer_line(&none, false, &line));
  brim_status status = put_failure(line, failure);
  if (!status) status = brim_json_dump(line, 0, &text);
  json_decref(line);
  if (!status) brim_str_printf(out, "%s\n", text);
  brim_free(text);
  return status ? status : brim_str_status(out);
}

// Lines that were not handed out are of no use to a reply that failed.
static void drop_lines(brim_lab_answer *a) {
  json_decref(a->line);
  a->line = a->rows = NULL;
  brim_str_clear(&a->ready);
  a->ready_at = 0;
}

static brim_status end_reply(brim_lab_answer *a, brim_status result) {
  a->ended = true;
  if (!result) result = brim_lab_answer_flush(a);
  if (!result) result = end_line(a, BRIM_OK);
  a->result = result;
  if (!result) return BRIM_OK;
  drop_lines(a);
  return end_line(a, result);
}

// `read`: how reading the request went. Takes it over.
static brim_status begin(const brim_lab_ops *ops, json_t *request, brim_status read,
                         brim_lab_answer **out) {
  brim_lab_answer *a = brim_calloc(1, sizeof *a);
  if (!a) {
    json_decref(request);
    return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  }
  brim_str_init(&a->ready);
  a->request = request;
  a->ops = ops;
  a->store = ops->store;
  a->left = -1;
  brim_status status = read;
  brim_status made = brim_lab_answer_line(a, true, &a->reply);
  if (made) {
    brim_lab_answer_free(a);
    return made;
  }
  if (!status) status = run(a);
  if (status || !a->op || !a->op->more) status = end_reply(a, status);
  if (status) {
    brim_lab_answer_free(a);
    return status;
  }
  *out = a;
  return BRIM_OK;
}

brim_status brim_lab_ops_begin(const brim_lab_ops *ops, const char *request, size_t size,
                               brim_lab_answer **out) {
  json_t *value = NULL;
  *out = NULL;
  brim_json_setup();
  brim_status status = brim_json_parse(request, size, "request", &value);
  return begin(ops, value, status, out);
}

brim_status brim_lab_ops_begin_json(const brim_lab_ops *ops, json_t *request,
                                    brim_lab_answer **out) {
  *out = NULL;
  return begin(ops, request, BRIM_OK, out);
}

brim_status brim_lab_answer_result(const brim_lab_answer *a) { return a->result; }

static brim_status make_more(brim_lab_answer *a) {
  if (a->ready_at > 0 && a->ready_at == a->ready.len) {
    brim_str_clear(&a->ready);
    a->ready_at = 0;
  }
  brim_status status = a->finished ? BRIM_OK : a->op->more(a);
  return status || a->finished ? end_reply(a, status) : BRIM_OK;
}

brim_status brim_lab_answer_more(brim_lab_answer *a, size_t enough, brim_str *out, bool *done) {
  *done = false;
  size_t start = out->len;
  while (out->len - start < enough) {
    if (a->ready_at == a->ready.len) {
      if (a->ended) break;
      BRIM_TRY(make_more(a));
      continue;
    }
    const char *at = a->ready.data + a->ready_at;
    const char *end = memchr(at, '\n', a->ready.len - a->ready_at);
    size_t size = end ? (size_t)(end - at) + 1 : a->ready.len - a->ready_at;
    brim_str_append_n(out, at, size);
    BRIM_TRY(brim_str_status(out));
    a->ready_at += size;
  }
  *done = a->ended && a->ready_at == a->ready.len;
  return BRIM_OK;
}

void brim_lab_answer_free(brim_lab_answer *a) {
  if (!a) return;
  json_decref(a->request);
  json_decref(a->reply);
  json_decref(a->line);
  brim_str_deinit(&a->ready);
  waits_destroy(a->waits);
  brim_free(a->ids);
  brim_free(a);
}
