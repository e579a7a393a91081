// Requests of a client, one function for each.

#include "base/base_alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_status.h"
#include "lab/lab_link.h"
#include "lab/lab_ops.h"
#include "lab/lab_wire.h"

// --- requests as values. The first failure drops the value; the rest does nothing.

static json_t *request(const char *op) {
  brim_json_setup();
  json_t *r = json_object();
  if (!brim_json_put(r, "op", json_string(op))) return r;
  json_decref(r);
  return NULL;
}

static void put(json_t **r, const char *key, json_t *value) {
  if (!*r) {
    json_decref(value);
    return;
  }
  if (!brim_json_put(*r, key, value)) return;
  json_decref(*r);
  *r = NULL;
}

static void put_record(json_t **r, brim_lab_record kind, const void *record) {
  if (!*r || !brim_lab_wire_put(*r, kind, record)) return;
  json_decref(*r);
  *r = NULL;
}

static const char *const reports[BRIM_LAB_REPORT_COUNT] = {
#define X(id, name) name,
    BRIM_LAB_REPORT_MAP(X)
#undef X
};

brim_lab_report brim_lab_report_of(const json_t *r) {
  const char *op = json_string_value(json_object_get(r, "op"));
  int i = 0;
  while (i < BRIM_LAB_REPORT_COUNT && !(op && strcmp(op, reports[i]) == 0)) i++;
  return (brim_lab_report)i;
}

static json_t *report(brim_lab_report which, const brim_store_ref *ref) {
  json_t *r = request(reports[which]);
  put(&r, "ref", brim_lab_wire_ref(ref));
  return r;
}

json_t *brim_lab_request_start(const brim_store_ref *ref, int64_t pid, int64_t from_step) {
  json_t *r = report(BRIM_LAB_REPORT_START, ref);
  put(&r, "pid", json_integer(pid));
  if (from_step >= 0) put(&r, "from_step", json_integer(from_step));
  return r;
}

json_t *brim_lab_request_beat(const brim_store_ref *ref, const brim_store_progress *progress) {
  json_t *r = report(BRIM_LAB_REPORT_BEAT, ref);
  if (progress) put_record(&r, BRIM_LAB_PROGRESS, progress);
  return r;
}

static json_t *metric_rows(const brim_store_metric *rows, size_t count) {
  json_t *list = json_array();
  brim_status status = list ? BRIM_OK : BRIM_ENOMEM;
  for (size_t i = 0; !status && i < count; i++) {
    json_t *row = json_array();
    status = brim_json_push(list, row);
    if (!status) status = brim_json_push(row, brim_lab_wire_text(rows[i].key));
    if (!status) status = brim_json_push(row, json_integer(rows[i].step));
    if (!status) status = brim_json_push(row, brim_lab_wire_real(rows[i].value));
  }
  if (!status) return list;
  json_decref(list);
  return NULL;
}

json_t *brim_lab_request_metrics(const brim_store_ref *ref, int64_t seq,
                                 const brim_store_metric *rows, size_t count) {
  json_t *r = report(BRIM_LAB_REPORT_METRICS, ref);
  put(&r, "seq", json_integer(seq));
  put(&r, "rows", metric_rows(rows, count));
  return r;
}

json_t *brim_lab_request_log(const brim_store_ref *ref, const char *stream, int64_t size) {
  json_t *r = report(BRIM_LAB_REPORT_LOG, ref);
  put(&r, "stream", brim_lab_wire_text(stream));
  put(&r, "size", json_integer(size));
  return r;
}

json_t *brim_lab_request_checkpoint(const brim_store_ref *ref, int64_t step) {
  json_t *r = report(BRIM_LAB_REPORT_CHECKPOINT, ref);
  put(&r, "step", json_integer(step));
  return r;
}

json_t *brim_lab_request_findings(const brim_store_ref *ref, const char *text) {
  json_t *r = report(BRIM_LAB_REPORT_FINDINGS, ref);
  put(&r, "findings", brim_lab_wire_text(text));
  return r;
}

json_t *brim_lab_request_finish(const brim_store_ref *ref, const brim_store_result *result) {
  json_t *r = report(BRIM_LAB_REPORT_FINISH, ref);
  put_record(&r, BRIM_LAB_RESULT, result);
  return r;
}

static json_t *request_about(const char *op, const char *exp) {
  json_t *r = request(op);
  put(&r, "exp", brim_lab_wire_text(exp));
  return r;
}

static json_t *request_of_grid(const char *op, const char *grid) {
  json_t *r = request(op);
  if (grid) put(&r, "grid", brim_lab_wire_text(grid));
  return r;
}

// --- calls. They consume the request; NULL is one that could not be made.

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a request"); }

static brim_status call(brim_lab_link *link, json_t *r, json_t **reply) {
  if (reply) *reply = NULL;
  brim_status status = r ? brim_lab_call(link, r, reply) : no_memory();
  json_decref(r);
  return status;
}

static brim_status stream(brim_lab_link *link, json_t *r, brim_lab_line_fn fn, void *ctx) {
  brim_status status = r ? brim_lab_stream(link, r, fn, ctx) : no_memory();
  json_decref(r);
  return status;
}

// A reply that lacks what it must have is of another program or version.
static brim_status bad_reply(brim_status status) {
  if (status != BRIM_EINVAL) return status;
  return brim_fail(BRIM_EABI, "the sweep's reply lacks a field; it may be of another version");
}

brim_status brim_lab_start(brim_lab_link *link, const brim_store_ref *ref, int64_t pid,
                           int64_t from_step) {
  return call(link, brim_lab_request_start(ref, pid, from_step), NULL);
}

static bool want_of(const char *name, brim_exp_want *out) {
  for (int i = 0; name && i < BRIM_WANT_COUNT; i++) {
    if (strcmp(brim_lab_want_name((brim_exp_want)i), name) != 0) continue;
    *out = (brim_exp_want)i;
    return true;
  }
  return false;
}

brim_status brim_lab_beat(brim_lab_link *link, const brim_store_ref *ref,
                          const brim_store_progress *progress, brim_store_beat_reply *out) {
  json_t *reply = NULL;
  *out = (brim_store_beat_reply){0};
  BRIM_TRY(call(link, brim_lab_request_beat(ref, progress), &reply));
  const char *want = json_string_value(json_object_get(reply, "want"));
  brim_status status = brim_lab_wire_lease(reply, &out->lease_ms);
  if (!status && !want_of(want, &out->want)) status = BRIM_EINVAL;
  json_decref(reply);
  return bad_reply(status);
}

brim_status brim_lab_metrics(brim_lab_link *link, const brim_store_ref *ref, int64_t seq,
                             const brim_store_metric *rows, size_t count) {
  return call(link, brim_lab_request_metrics(ref, seq, rows, count), NULL);
}

brim_status brim_lab_log(brim_lab_link *link, const brim_store_ref *ref, const char *name,
                         int64_t size) {
  return call(link, brim_lab_request_log(ref, name, size), NULL);
}

brim_status brim_lab_checkpoint(brim_lab_link *link, const brim_store_ref *ref, int64_t step) {
  return call(link, brim_lab_request_checkpoint(ref, step), NULL);
}

brim_status brim_lab_findings(brim_lab_link *link, const brim_store_ref *ref, const char *text) {
  return call(link, brim_lab_request_findings(ref, text), NULL);
}

brim_status brim_lab_finish(brim_lab_link *link, const brim_store_ref *ref,
                            const brim_store_result *result, brim_exp_state *state) {
  json_t *reply = NULL;
  brim_exp_state became = BRIM_EXP_QUEUED;
  BRIM_TRY(call(link, brim_lab_request_finish(ref, result), &reply));
  const char *name = json_string_value(json_object_get(reply, "state"));
  bool known = name && brim_exp_state_of(name, &became);
  json_decref(reply);
  if (!known) return bad_reply(BRIM_EINVAL);
  if (state) *state = became;
  return BRIM_OK;
}

static json_t *point_rows(const brim_store_point *points, size_t count) {
  json_t *list = json_array();
  brim_status status = list ? BRIM_OK : BRIM_ENOMEM;
  for (size_t i = 0; !status && i < count; i++) {
    json_t *row = json_object();
    status = brim_json_push(list, row);
    if (!status) status = brim_lab_wire_put(row, BRIM_LAB_POINT, &points[i]);
  }
  if (!status) return list;
  json_decref(list);
  return NULL;
}

brim_status brim_lab_submit(brim_lab_link *link, const brim_store_grid *grid,
                            const brim_store_point *points, size_t count,
                            brim_store_submitted *out) {
  json_t *r = request("submit"), *row = json_object(), *reply = NULL;
  *out = (brim_store_submitted){0};
  put_record(&row, BRIM_LAB_GRID, grid);
  put(&r, "grid", row);
  put(&r, "points", point_rows(points, count));
  BRIM_TRY(call(link, r, &reply));
  brim_status status = brim_lab_wire_int(reply, "added", true, &out->added);
  if (!status) status = brim_lab_wire_int(reply, "existing", true, &out->existing);
  json_decref(reply);
  return bad_reply(status);
}

brim_status brim_lab_want(brim_lab_link *link, const char *exp, brim_exp_want want) {
  json_t *r = request_about("want", exp);
  put(&r, "want", json_string(brim_lab_want_name(want)));
  return call(link, r, NULL);
}

brim_status brim_lab_retry(brim_lab_link *link, const char *exp) {
  return call(link, request_about("retry", exp), NULL);
}

// One whole number of the reply.
static brim_status call_for_int(brim_lab_link *link, json_t *r, const char *key, int64_t *out) {
  json_t *reply = NULL;
  BRIM_TRY(call(link, r, &reply));
  brim_status status = out ? brim_lab_wire_int(reply, key, true, out) : BRIM_OK;
  json_decref(reply);
  return bad_reply(status);
}

static json_t *id_rows(const char (*exps)[BRIM_EXP_ID], size_t count) {
  json_t *list = json_array();
  brim_status status = list ? BRIM_OK : BRIM_ENOMEM;
  for (size_t i = 0; !status && i < count; i++) {
    status = brim_json_push(list, brim_lab_wire_text(exps[i]));
  }
  if (!status) return list;
  json_decref(list);
  return NULL;
}

// want NULL: a request without one.
static brim_status change_each(brim_lab_link *link, const char *op, const char *want,
                               const char (*exps)[BRIM_EXP_ID], size_t exp_count, int64_t *count) {
  int64_t total = 0;
  for (size_t at = 0; at < exp_count; at += BRIM_STORE_EACH) {
    size_t n = exp_count - at < BRIM_STORE_EACH ? exp_count - at : BRIM_STORE_EACH;
    int64_t changed = 0;
    json_t *r = request(op);
    put(&r, "exps", id_rows(exps + at, n));
    if (want) put(&r, "want", json_string(want));
    BRIM_TRY(call_for_int(link, r, "count", &changed));
    total += changed;
    if (count) *count = total;
  }
  if (count) *count = total;
  return BRIM_OK;
}

brim_status brim_lab_want_each(brim_lab_link *link, const char (*exps)[BRIM_EXP_ID],
                               size_t exp_count, brim_exp_want want, int64_t *count) {
  return change_each(link, "want_each", brim_lab_want_name(want), exps, exp_count, count);
}

brim_status brim_lab_retry_each(brim_lab_link *link, const char (*exps)[BRIM_EXP_ID],
                                size_t exp_count, int64_t *count) {
  return change_each(link, "retry_each", NULL, exps, exp_count, count);
}

brim_status brim_lab_retry_failed(brim_lab_link *link, const char *grid, int64_t *count) {
  return call_for_int(link, request_of_grid("retry_failed", grid), "count", count);
}

brim_status brim_lab_set_priority(brim_lab_link *link, const char *exp, int64_t priority) {
  json_t *r = request_about("set_priority", exp);
  put(&r, "priority", json_integer(priority));
  return call(link, r, NULL);
}

brim_status brim_lab_find(brim_lab_link *link, const char *prefix, char out[BRIM_EXP_ID]) {
  json_t *reply = NULL;
  out[0] = '\0';
  BRIM_TRY(call(link, request_about("find", prefix), &reply));
  const char *id = json_string_value(json_object_get(reply, "exp"));
  bool good = !brim_store_check_id(id);
  if (good) memcpy(out, id, BRIM_EXP_ID);
  json_decref(reply);
  return good ? BRIM_OK : bad_reply(BRIM_EINVAL);
}

brim_status brim_lab_count(brim_lab_link *link, const char *grid, brim_store_counts *out) {
  json_t *reply = NULL;
  *out = (brim_store_counts){0};
  BRIM_TRY(call(link, request_of_grid("counts", grid), &reply));
  brim_status status = brim_lab_wire_int(reply, "total", true, &out->total);
  const json_t *states = json_object_get(reply, "states");
  for (int i = 0; !status && i < BRIM_EXP_STATE_COUNT; i++) {
    const char *name = brim_exp_state_name((brim_exp_state)i);
    status = brim_lab_wire_int(states, name, false, &out->states[i]);
  }
  json_decref(reply);
  return bad_reply(status);
}

brim_status brim_lab_log_size(brim_lab_link *link, const char *exp, int64_t attempt,
                              const char *name, int64_t *out) {
  json_t *r = request_about("log_size", exp);
  put(&r, "attempt", json_integer(attempt));
  put(&r, "stream", brim_lab_wire_text(name));
  return call_for_int(link, r, "size", out);
}

// --- rows. Each line of a reply has an array of records.

typedef struct rows {
  const char *key;
  brim_lab_record kind;
  size_t limit, taken;  // rows that were asked for, 0 = all; and those that came
  void *ctx;
  union {
    brim_store_exp_fn exp;
    brim_store_attempt_fn attempt;
    brim_store_event_fn event;
    brim_store_grid_fn grid;
    brim_store_worker_fn worker;
  } fn;
} rows;

static brim_status take_row(const rows *r, const json_t *o) {
  union {
    brim_store_exp exp;
    brim_store_attempt attempt;
    brim_store_event event;
    brim_store_grid_row grid;
    brim_store_worker worker;
  } row;
  memset(&row, 0, sizeof row);
  BRIM_TRY(bad_reply(brim_lab_wire_get(o, r->kind, &row)));
  switch (r->kind) {
    case BRIM_LAB_EXP:
      return r->fn.exp(r->ctx, &row.exp);
    case BRIM_LAB_ATTEMPT:
      return r->fn.attempt(r->ctx, &row.attempt);
    case BRIM_LAB_EVENT:
      return r->fn.event(r->ctx, &row.event);
    case BRIM_LAB_GRID_ROW:
      return r->fn.grid(r->ctx, &row.grid);
    default:
      return r->fn.worker(r->ctx, &row.worker);
  }
}

// Callers have room for the rows that they asked for.
static brim_status count_rows(rows *r, size_t count) {
  if (r->limit > 0 && count > r->limit - r->taken) {
    return brim_fail(BRIM_ELIMIT, "the sweep's reply has more rows than were asked for");
  }
  r->taken += count;
  return BRIM_OK;
}

static brim_status take_rows(void *ctx, const json_t *line) {
  rows *r = ctx;
  const json_t *list = json_object_get(line, r->key);
  BRIM_TRY(count_rows(r, json_array_size(list)));
  for (size_t i = 0; i < json_array_size(list); i++) {
    BRIM_TRY(take_row(r, json_array_get(list, i)));
  }
  return BRIM_OK;
}

static brim_status take_exp(void *ctx, const json_t *line) {
  BRIM_TRY(count_rows(ctx, 1));
  return take_row(ctx, json_object_get(line, "exp"));
}

brim_status brim_lab_get(brim_lab_link *link, const char *exp, brim_store_exp_fn fn, void *ctx) {
  rows r = {.kind = BRIM_LAB_EXP, .limit = 1, .ctx = ctx, .fn.exp = fn};
  return stream(link, request_about("get", exp), take_exp, &r);
}

static brim_status request_list(const char *op, const brim_store_filter *filter, json_t **out) {
  *out = request(op);
  if (!*out) return no_memory();
  brim_status status = brim_lab_wire_put_filter(*out, filter);
  if (!status) return BRIM_OK;
  json_decref(*out);
  return status;
}

brim_status brim_lab_list(brim_lab_link *link, const brim_store_filter *filter,
                          brim_store_exp_fn fn, void *ctx) {
  rows r = {.key = "exps", .kind = BRIM_LAB_EXP, .ctx = ctx, .fn.exp = fn};
  if (filter && filter->limit > 0) r.limit = (size_t)filter->limit;
  json_t *list = NULL;
  BRIM_TRY(request_list("list", filter, &list));
  return stream(link, list, take_rows, &r);
}

brim_status brim_lab_attempts(brim_lab_link *link, const char *exp, brim_store_attempt_fn fn,
                              void *ctx) {
  rows r = {.key = "attempts", .kind = BRIM_LAB_ATTEMPT, .ctx = ctx, .fn.attempt = fn};
  return stream(link, request_about("attempts", exp), take_rows, &r);
}

brim_status brim_lab_events(brim_lab_link *link, int64_t seq, int64_t limit, brim_store_event_fn fn,
                            void *ctx) {
  rows r = {.key = "events", .kind = BRIM_LAB_EVENT, .ctx = ctx, .fn.event = fn};
  if (limit > 0) r.limit = (size_t)limit;
  json_t *events = request("events");
  put(&events, "seq", json_integer(seq));
  put(&events, "limit", json_integer(limit));
  return stream(link, events, take_rows, &r);
}

brim_status brim_lab_grids(brim_lab_link *link, brim_store_grid_fn fn, void *ctx) {
  rows r = {.key = "grids", .kind = BRIM_LAB_GRID_ROW, .ctx = ctx, .fn.grid = fn};
  json_t *grids = request("grids");
  put(&grids, "texts", json_true());
  return stream(link, grids, take_rows, &r);
}

brim_status brim_lab_workers(brim_lab_link *link, brim_store_worker_fn fn, void *ctx) {
  rows r = {.key = "workers", .kind = BRIM_LAB_WORKER, .ctx = ctx, .fn.worker = fn};
  return stream(link, request("workers"), take_rows, &r);
}

typedef struct metric_taking {
  brim_store_metric_fn fn;
  void *ctx;
} metric_taking;

static brim_status take_metrics(void *ctx, const json_t *line) {
  const metric_taking *t = ctx;
  const json_t *list = json_object_get(line, "rows");
  const char *key = json_string_value(json_object_get(line, "key"));
  if (!list) return BRIM_OK;  // the last line
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i), *step = json_array_get(row, 0);
    brim_store_metric m = {key, json_integer_value(step), (double)NAN};
    if (!key || !json_is_integer(step) ||
        !brim_lab_wire_real_of(json_array_get(row, 1), &m.value)) {
      return bad_reply(BRIM_EINVAL);
    }
    BRIM_TRY(t->fn(t->ctx, &m, json_integer_value(json_array_get(row, 2))));
  }
  return BRIM_OK;
}

brim_status brim_lab_read_metrics(brim_lab_link *link, const char *exp, const char *key,
                                  int64_t points, brim_store_metric_fn fn, void *ctx) {
  metric_taking t = {fn, ctx};
  json_t *r = request_about("metrics_of", exp);
  if (key) put(&r, "key", brim_lab_wire_text(key));
  if (points > 0) put(&r, "points", json_integer(points));
  return stream(link, r, take_metrics, &t);
}

typedef struct line_taking {
  brim_store_line_fn fn;
  void *ctx;
} line_taking;

static brim_status take_export(void *ctx, const json_t *line) {
  const line_taking *t = ctx;
  const json_t *value = json_object_get(line, "line");
  char *text = NULL;
  if (!value) return BRIM_OK;  // the last line
  BRIM_TRY(brim_json_dump(value, 0, &text));
  brim_status status = t->fn(t->ctx, text);
  brim_free(text);
  return status;
}

brim_status brim_lab_export(brim_lab_link *link, const brim_store_filter *filter,
                            brim_store_line_fn fn, void *ctx) {
  line_taking t = {fn, ctx};
  json_t *list = NULL;
  BRIM_TRY(request_list("export", filter, &list));
  return stream(link, list, take_export, &t);
}

//-------------------------------------- workers and pages --------------------------------------
// Requests with types, of workers: the calls of the store through a link.

// Always consumes the request; NULL: it could not be made.
static brim_status pool_call(brim_lab_link *link, brim_status made, json_t *request,
                             json_t **reply) {
  brim_status status = made ? made : brim_lab_call(link, request, reply);
  json_decref(request);
  return status;
}

static brim_status begin(const char *op, json_t **out) {
  brim_json_setup();
  *out = json_object();
  return brim_json_put(*out, "op", json_string(op));
}

static brim_status put_text(json_t *o, const char *key, const char *value) {
  return value ? brim_json_put(o, key, brim_lab_wire_text(value)) : BRIM_OK;
}

static brim_status pool_bad_reply(void) {
  return brim_fail(BRIM_EABI, "the server's reply lacks a field; it may be of another version");
}

brim_status brim_lab_now(brim_lab_link *link, int64_t *ms) {
  json_t *request, *reply = NULL;
  brim_status status = begin("hello", &request);
  BRIM_TRY(pool_call(link, status, request, &reply));
  status = brim_lab_wire_int(reply, "now", true, ms);
  json_decref(reply);
  return status ? pool_bad_reply() : BRIM_OK;
}

brim_status brim_lab_whoami(brim_lab_link *link, char id[65], char version[32]) {
  json_t *request, *reply = NULL;
  const char *protocol = "", *name = "", *is = "";
  brim_status status = begin("whoami", &request);
  BRIM_TRY(pool_call(link, status, request, &reply));
  bool whole = !brim_lab_wire_string(reply, "protocol", true, &protocol) &&
               !brim_lab_wire_string(reply, "name", true, &name) &&
               !brim_lab_wire_string(reply, "version", true, &is);
  bool same = strcmp(protocol, BRIM_LAB_PROTOCOL) == 0;
  snprintf(id, 65, "%s", name);
  snprintf(version, 32, "%s", is);
  json_decref(reply);
  if (!whole) return pool_bad_reply();
  if (same) return BRIM_OK;
  return brim_fail(
      BRIM_EABI,
      "the server is brim %s and speaks another protocol than this brim (" BRIM_LAB_PROTOCOL ")",
      version);
}

static brim_status put_request(json_t *o, const brim_store_request *r) {
  BRIM_TRY(put_text(o, "worker", r->worker));
  BRIM_TRY(put_text(o, "claim_id", r->claim_id));
  BRIM_TRY(put_text(o, "host", r->host));
  BRIM_TRY(put_text(o, "devices", r->devices));
  BRIM_TRY(put_text(o, "exp", r->exp));
  BRIM_TRY(put_text(o, "grid", r->grid));
  BRIM_TRY(brim_json_put(o, "free_gpus", json_integer(r->free_gpus)));
  return brim_json_put(o, "free_bytes", json_integer(r->free_bytes));
}

static brim_status take_claimed(const json_t *reply, brim_store_claimed *out) {
  const json_t *row = json_object_get(reply, "exp");
  brim_store_exp exp;
  if (!row) return BRIM_OK;
  memset(&exp, 0, sizeof exp);
  if (brim_lab_wire_get(row, BRIM_LAB_EXP, &exp) || brim_store_check_id(exp.id) ||
      brim_lab_wire_int(reply, "attempt", true, &out->ref.attempt) ||
      brim_lab_wire_int(reply, "fence", true, &out->ref.fence) ||
      brim_lab_wire_lease(reply, &out->lease_ms)) {
    return pool_bad_reply();
  }
  memcpy(out->ref.exp, exp.id, sizeof out->ref.exp);
  return brim_store_exp_copy(&exp, &out->exp);
}

brim_status brim_lab_claim(brim_lab_link *link, const brim_store_request *request,
                           brim_store_claimed *out) {
  json_t *o, *reply = NULL;
  *out = (brim_store_claimed){0};
  brim_status status = begin("claim", &o);
  if (!status) status = put_request(o, request);
  BRIM_TRY(pool_call(link, status, o, &reply));
  status = take_claimed(reply, out);
  json_decref(reply);
  return status;
}

brim_status brim_lab_seen(brim_lab_link *link, const brim_store_worker *worker) {
  json_t *o;
  brim_status status = begin("seen", &o);
  if (!status) status = put_text(o, "worker", worker->id);
  if (!status) status = put_text(o, "host", worker->host);
  if (!status) status = put_text(o, "gpus", worker->gpus);
  if (!status) status = put_text(o, "version", worker->version);
  if (!status) status = put_text(o, "status", worker->status);
  if (!status && worker->left) status = brim_json_put(o, "left", json_true());
  return pool_call(link, status, o, NULL);
}
