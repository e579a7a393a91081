// Replies of servers (lab_wire.h): lines of JSON, made in pieces.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_ids.h"
#include "lab/wire/lab_wire_int.h"
#include "record/record_findings.h"

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a reply"); }

//------------------------------------- why experiments wait -------------------------------------
// Explains the wait of experiments by the queue and the workers, read once for a whole reply.

enum { WORKERS = 1024, LACKS = 1024, WHAT = 65 };

// The capacity of a worker.
typedef struct worker_room {
  bool unknown;       // the worker has reported no status: assume that it can run everything
  int64_t gpus;       // number of GPUs; 1 if it runs experiments on the CPU
  double most_bytes;  // memory of its largest GPU; infinite on the CPU
} worker_room;

typedef struct waits {
  int64_t now;
  worker_room workers[WORKERS];  // workers that are alive and take experiments
  size_t count, draining;
  char lacks[LACKS][WHAT];  // experiments and grids that some worker lacks
  size_t lack_count;
  char (*queue)[BRIM_EXP_ID];
  size_t queued;
  brim_lab_ids ranks;
} waits;

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
  waits *all = ctx;
  if (all->now - w->last_seen > BRIM_WORKER_GONE_MS) return BRIM_OK;
  if (w->drain) {
    all->draining++;
  } else if (all->count < WORKERS) {
    all->workers[all->count++] = read_capacity(w->status);
  }
  return BRIM_OK;
}

static brim_status add_lack(void *ctx, const brim_store_lack *lack) {
  waits *w = ctx;
  if (w->lack_count < LACKS) snprintf(w->lacks[w->lack_count++], WHAT, "%s", lack->what);
  return BRIM_OK;
}

static bool is_lacking(const waits *w, const brim_store_exp *exp) {
  for (size_t i = 0; i < w->lack_count; i++) {
    if (strcmp(w->lacks[i], exp->id) == 0 || strcmp(w->lacks[i], exp->grid) == 0) return true;
  }
  return false;
}

static brim_status fill(brim_store *store, waits *w) {
  BRIM_TRY(brim_store_now(store, &w->now));
  BRIM_TRY(brim_store_workers(store, add_worker, w));
  BRIM_TRY(brim_store_lacks(store, w->now - BRIM_WORKER_GONE_MS, add_lack, w));
  BRIM_TRY(brim_store_queue(store, &w->queue, &w->queued));
  BRIM_TRY(brim_lab_ids_init(&w->ranks, w->queued));
  for (size_t i = 0; i < w->queued; i++) brim_lab_ids_add(&w->ranks, w->queue[i], i);
  return BRIM_OK;
}

// NULL is fine
static void waits_destroy(waits *w) {
  if (!w) return;
  brim_lab_ids_deinit(&w->ranks);
  brim_free(w->queue);
  brim_free(w);
}

static brim_status waits_create(brim_store *store, waits **out) {
  waits *w = brim_calloc(1, sizeof *w);
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

// Rates the most capable worker: 0 = too few GPUs, 1 = GPUs with too little memory, 2 = able to run the
// experiment.
static int best_fit(const waits *w, const brim_store_exp *exp) {
  int best = 0;
  for (size_t i = 0; i < w->count; i++) {
    const worker_room *c = &w->workers[i];
    if (!c->unknown && c->gpus < exp->gpus) continue;
    if (c->unknown || (double)exp->need_bytes <= c->most_bytes) return 2;
    best = 1;
  }
  return best;
}

// Returns the code of the reason; `text` gets the reason in English. Pages make their own text from the
// code.
static const char *code_of(const waits *w, const brim_store_exp *exp, size_t *ahead, char *text,
                           size_t size) {
  if (exp->state == BRIM_EXP_PAUSED) {
    snprintf(text, size, "it is paused");
    return "paused";
  }
  if (w->count == 0) {
    snprintf(text, size, w->draining ? "every worker drains" : "no worker is connected");
    return w->draining ? "drain" : "no_worker";
  }
  int has = best_fit(w, exp);
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
  if (!brim_lab_ids_find(&w->ranks, exp->id, ahead)) *ahead = 0;  // queued after the queue was read
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

// Adds "waits": {code, text, ...} to the row of an experiment that waits.
static brim_status waits_put(const waits *w, const brim_store_exp *exp, json_t *row) {
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

//-------------------------------------------- lines --------------------------------------------

enum {
  PIECE = 64 << 10,      // approximate bytes of a line of a long reply
  READY_MAX = 64 << 20,  // most bytes that are made and not yet handed out
  ROW_SIZE = 400,        // approximate bytes of a row without its texts
};

struct brim_lab_answer {
  brim_lab_job job;
  brim_lab_request in;
  brim_lab_reply out;
  json_t *request;  // holds the texts of `in`; NULL: the caller holds them
  waits *waits;     // NULL: the request does not ask for reasons
  // Finished lines that were not yet handed out.
  brim_str ready;
  size_t ready_at;
  // If set, each line goes to `take` as JSON, and not to `ready`.
  brim_status (*take)(void *ctx, const json_t *line);
  void *take_ctx;
  // The line under construction, and its array of rows.
  json_t *line, *rows;
  size_t rows_size;
  bool whole_line;     // rows never end this line, however long it is
  bool ended;          // the last line is finished
  brim_status result;  // status of the reply
};

static brim_status new_line(const brim_lab_answer *a, bool ok, json_t **out) {
  const json_t *id = json_object_get(a->request, "id");
  json_t *line = json_object();
  brim_status status = brim_json_put(
      line, "id", json_is_integer(id) ? json_integer(json_integer_value(id)) : json_null());
  if (!status) status = brim_json_put(line, "ok", json_boolean(ok));
  *out = line;
  if (!status) return BRIM_OK;
  json_decref(line);
  *out = NULL;
  return status;
}

static brim_status give_line(brim_lab_answer *a, const json_t *line) {
  char *text = NULL;
  if (a->take) return a->take(a->take_ctx, line);
  BRIM_TRY(brim_json_dump(line, 0, &text));
  size_t size = strlen(text), have = a->ready.len - a->ready_at;
  if (size > BRIM_LAB_LINE_MAX || have + size > READY_MAX) {
    brim_free(text);
    return brim_fail(BRIM_ELIMIT, "the reply is longer than %d MiB; ask for fewer rows",
                     READY_MAX >> 20);
  }
  brim_str_append_n(&a->ready, text, size);
  brim_str_append_char(&a->ready, '\n');
  brim_free(text);
  return brim_str_status(&a->ready);
}

// Finishes the line of rows, if there is one.
static brim_status flush(brim_lab_answer *a) {
  if (!a->line) return BRIM_OK;
  brim_status status = give_line(a, a->line);
  json_decref(a->line);
  a->line = a->rows = NULL;
  a->rows_size = 0;
  a->whole_line = false;
  return status;
}

// Begins a line of rows. The line is sent even if it stays empty.
static brim_status begin_rows(brim_lab_answer *a) {
  BRIM_TRY(new_line(a, true, &a->line));
  BRIM_TRY(brim_json_put(a->line, "more", json_true()));
  a->rows = json_array();
  return brim_json_put(a->line, brim_lab_rows_keys[brim_lab_op_rows[a->in.op].rows], a->rows);
}

// Adds a row, and finishes the line if it is long. Always consumes `row`.
static brim_status add_row(brim_lab_answer *a, json_t *row, size_t size) {
  brim_status status = a->line ? BRIM_OK : begin_rows(a);
  if (status) {
    json_decref(row);
    return status;
  }
  BRIM_TRY(brim_json_push(a->rows, row));
  a->rows_size += size;
  return a->rows_size >= PIECE && !a->whole_line ? flush(a) : BRIM_OK;
}

static brim_status add_record(brim_lab_answer *a, brim_lab_record kind, const void *record,
                              size_t size) {
  json_t *row = json_object();
  brim_status status = row ? brim_lab_wire_put(row, kind, record) : no_memory();
  if (!status) return add_row(a, row, size);
  json_decref(row);
  return status;
}

//-------------------------------------------- rows ---------------------------------------------

// Adds the members for pages: why the experiment waits, and its findings as a list with Korean texts.
static brim_status put_for_pages(const brim_lab_answer *a, const brim_store_exp *exp, json_t *row) {
  json_t *list = NULL;
  if (!a->waits) return BRIM_OK;
  BRIM_TRY(waits_put(a->waits, exp, row));
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

static brim_status on_exp(void *ctx, const brim_store_exp *exp) {
  brim_lab_answer *a = ctx;
  size_t size = ROW_SIZE + strlen(exp->config) + strlen(exp->last_lines) + strlen(exp->reason);
  json_t *row = json_object();
  brim_status status = row ? brim_lab_wire_put(row, BRIM_LAB_EXP, exp) : no_memory();
  if (!status) status = put_for_pages(a, exp, row);
  if (!status) return add_row(a, row, size);
  json_decref(row);
  return status;
}

static brim_status on_attempt(void *ctx, const brim_store_attempt *attempt) {
  return add_record(ctx, BRIM_LAB_ATTEMPT, attempt, ROW_SIZE + strlen(attempt->message));
}

static brim_status on_event(void *ctx, const brim_store_event *event) {
  return add_record(ctx, BRIM_LAB_EVENT, event, 100 + strlen(event->text));
}

static brim_status on_grid(void *ctx, const brim_store_grid_row *row) {
  brim_lab_answer *a = ctx;
  brim_store_grid_row brief = *row;
  if (!a->in.texts) brief.grid.text = "";
  return add_record(a, BRIM_LAB_GRID_ROW, &brief, ROW_SIZE + strlen(brief.grid.text));
}

static brim_status on_file(void *ctx, const brim_store_file *file) {
  return add_record(ctx, BRIM_LAB_FILE, file, 200);
}

static brim_status on_worker(void *ctx, const brim_lab_worker_row *worker) {
  const brim_store_worker *w = &worker->worker;
  json_t *row = json_object();
  brim_status status = row ? brim_lab_wire_put(row, BRIM_LAB_WORKER, w) : no_memory();
  if (!status && worker->status) {
    status = brim_json_put(row, "status", json_incref((json_t *)(uintptr_t)worker->status));
  }
  if (!status && worker->lacks) {
    status = brim_json_put(row, "lacks", json_incref((json_t *)(uintptr_t)worker->lacks));
  }
  if (!status) return add_row(ctx, row, ROW_SIZE + strlen(w->gpus) + strlen(w->status));
  json_decref(row);
  return status;
}

// Adds a value. All values of a line have the same key, which the line names.
static brim_status on_metric(void *ctx, const brim_store_metric *m, int64_t attempt) {
  brim_lab_answer *a = ctx;
  const char *key = json_string_value(json_object_get(a->line, "key"));
  if (key && strcmp(key, m->key) != 0) BRIM_TRY(flush(a));
  if (!a->line) {
    BRIM_TRY(begin_rows(a));
    BRIM_TRY(brim_json_put(a->line, "key", json_string(m->key)));
  }
  json_t *row = json_array();
  brim_status status = row ? brim_json_push(row, json_integer(m->step)) : no_memory();
  if (!status) status = brim_json_push(row, brim_lab_wire_real(m->value));
  if (!status) status = brim_json_push(row, json_integer(attempt));
  if (!status) return add_row(a, row, 30);
  json_decref(row);
  return status;
}

static brim_status on_bucket(void *ctx, const brim_store_bucket *b) {
  const int64_t counts[] = {b->first, b->last, b->n, b->bad};
  const double values[] = {b->lo, b->hi, b->mean};
  json_t *row = json_array();
  brim_status status = row ? BRIM_OK : no_memory();
  for (int i = 0; !status && i < 4; i++) status = brim_json_push(row, json_integer(counts[i]));
  for (int i = 0; !status && i < 3; i++) {
    status = brim_json_push(row, brim_lab_wire_real(values[i]));
  }
  if (!status) return add_row(ctx, row, 80);
  json_decref(row);
  return status;
}

// Begins the line of an experiment, which holds all its buckets; none if it lacks the key.
static brim_status begin_exp(void *ctx, const char *exp) {
  brim_lab_answer *a = ctx;
  BRIM_TRY(flush(a));
  BRIM_TRY(begin_rows(a));
  a->whole_line = true;
  return brim_json_put(a->line, "exp", json_string(exp));
}

// Adds a whole line around a value that is JSON text: {"id":7,"ok":true,"more":true,"line":TEXT}.
static brim_status on_export(void *ctx, const char *text) {
  brim_lab_answer *a = ctx;
  json_t *line = NULL;
  char *head = NULL;
  BRIM_TRY(new_line(a, true, &line));
  brim_status status = brim_json_put(line, "more", json_true());
  if (!status) status = brim_json_dump(line, 0, &head);
  json_decref(line);
  if (status) return status;
  if (strlen(text) + strlen(head) + 12 > BRIM_LAB_LINE_MAX) {
    brim_free(head);
    return brim_fail(BRIM_ELIMIT, "the reply is longer than %d MiB; ask for fewer rows",
                     BRIM_LAB_LINE_MAX >> 20);
  }
  head[strlen(head) - 1] = '\0';  // drop the closing brace
  brim_str_printf(&a->ready, "%s,\"line\":", head);
  brim_str_append(&a->ready, text);
  brim_str_append(&a->ready, "}\n");
  brim_free(head);
  return brim_str_status(&a->ready);
}

static void set_rows(brim_lab_answer *a) {
  brim_lab_rows *rows = &a->out.rows;
  rows->ctx = a;
  switch (brim_lab_op_rows[a->in.op].rows) {
    case BRIM_LAB_ROWS_EXPS:
      rows->fn.exp = on_exp;
      break;
    case BRIM_LAB_ROWS_ATTEMPTS:
      rows->fn.attempt = on_attempt;
      break;
    case BRIM_LAB_ROWS_METRICS:
      rows->fn.metric = on_metric;
      break;
    case BRIM_LAB_ROWS_EVENTS:
      rows->fn.event = on_event;
      break;
    case BRIM_LAB_ROWS_GRIDS:
      rows->fn.grid = on_grid;
      break;
    case BRIM_LAB_ROWS_WORKERS:
      rows->fn.worker = on_worker;
      break;
    case BRIM_LAB_ROWS_LINES:
      rows->fn.line = on_export;
      break;
    case BRIM_LAB_ROWS_BUCKETS:
      rows->fn.bucket = on_bucket;
      break;
    case BRIM_LAB_ROWS_FILES:
      rows->fn.file = on_file;
      break;
    default:
      break;
  }
}

//------------------------------------------- answers -------------------------------------------

static brim_status put_failure(json_t *line, brim_status failure) {
  BRIM_TRY(brim_json_put(line, "status", json_string(brim_status_name(failure))));
  return brim_json_put(line, "message", brim_lab_wire_text(brim_status_detail()));
}

brim_status brim_lab_ops_error(brim_status failure, brim_str *out) {
  const brim_lab_answer none = {.request = NULL};
  json_t *line = NULL;
  char *text = NULL;
  BRIM_TRY(new_line(&none, false, &line));
  brim_status status = put_failure(line, failure);
  if (!status) status = brim_json_dump(line, 0, &text);
  json_decref(line);
  if (!status) brim_str_printf(out, "%s\n", text);
  brim_free(text);
  return status ? status : brim_str_status(out);
}

// Makes the last line of a reply.
static brim_status end_line(brim_lab_answer *a, brim_status result) {
  json_t *line = NULL;
  BRIM_TRY(new_line(a, !result, &line));
  brim_status status =
      result ? put_failure(line, result) : brim_lab_reply_encode(a->in.op, &a->out, line);
  if (!status && !result && a->out.found) {
    status = put_for_pages(a, a->out.found, json_object_get(line, "exp"));
  }
  if (!status) status = give_line(a, line);
  json_decref(line);
  return status;
}

static brim_status end_reply(brim_lab_answer *a, brim_status result) {
  a->ended = true;
  if (!result) result = flush(a);
  if (!result) result = end_line(a, BRIM_OK);
  a->result = result;
  if (!result) return BRIM_OK;
  // Drop lines that were not handed out, and end the reply with the failure.
  json_decref(a->line);
  a->line = a->rows = NULL;
  brim_str_clear(&a->ready);
  a->ready_at = 0;
  return end_line(a, result);
}

static brim_status begin_request(brim_lab_answer *a) {
  if (a->in.waits && a->job.ops->store) BRIM_TRY(waits_create(a->job.ops->store, &a->waits));
  set_rows(a);
  a->job.in = &a->in;
  a->job.out = &a->out;
  a->job.begin_exp = begin_exp;
  return brim_lab_job_begin(&a->job);
}

static brim_status create(const brim_lab_ops *ops, brim_lab_answer **out) {
  brim_lab_answer *a = brim_calloc(1, sizeof *a);
  *out = a;
  if (!a) return no_memory();
  brim_str_init(&a->ready);
  a->job.ops = ops;
  return BRIM_OK;
}

// Begins a reply. Always consumes `request`. read: the status of parsing the request.
static brim_status begin(const brim_lab_ops *ops, json_t *request, brim_status read,
                         brim_lab_answer **out) {
  brim_lab_answer *a = NULL;
  if (create(ops, &a)) {
    json_decref(request);
    return BRIM_ENOMEM;
  }
  a->request = request;
  a->job.in_steps = true;
  brim_status status = read ? read : brim_lab_request_decode(request, &a->in);
  if (!status) status = begin_request(a);
  if (status || !a->job.pending) status = end_reply(a, status);
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

brim_status brim_lab_ops_lines(const brim_lab_ops *ops, const brim_lab_request *request,
                               brim_status (*take)(void *ctx, const json_t *line), void *ctx) {
  brim_lab_answer *a = NULL;
  BRIM_TRY(create(ops, &a));
  a->in = *request;
  a->take = take;
  a->take_ctx = ctx;
  brim_status status = begin_request(a);
  while (!status && a->job.pending) status = brim_lab_op_rows[request->op].next(&a->job);
  if (!status) status = flush(a);
  if (!status) status = end_line(a, BRIM_OK);
  brim_lab_answer_free(a);
  return status;
}

brim_status brim_lab_answer_result(const brim_lab_answer *a) { return a->result; }

brim_status brim_lab_answer_more(brim_lab_answer *a, size_t enough, brim_str *out, bool *done) {
  *done = false;
  size_t start = out->len;
  while (out->len - start < enough) {
    if (a->ready_at < a->ready.len) {
      const char *at = a->ready.data + a->ready_at;
      const char *end = memchr(at, '\n', a->ready.len - a->ready_at);
      size_t size = end ? (size_t)(end - at) + 1 : a->ready.len - a->ready_at;
      brim_str_append_n(out, at, size);
      BRIM_TRY(brim_str_status(out));
      a->ready_at += size;
      continue;
    }
    if (a->ended) break;
    brim_str_clear(&a->ready);
    a->ready_at = 0;
    brim_status status = a->job.pending ? brim_lab_op_rows[a->in.op].next(&a->job) : BRIM_OK;
    if (status || !a->job.pending) BRIM_TRY(end_reply(a, status));
  }
  *done = a->ended && a->ready_at == a->ready.len;
  return BRIM_OK;
}

void brim_lab_answer_free(brim_lab_answer *a) {
  if (!a) return;
  brim_free(a->job.ids);
  if (a->request) brim_lab_request_deinit(&a->in);
  json_decref(a->request);
  json_decref(a->line);
  json_decref(a->out.more);
  brim_store_exp_free(a->out.found);
  brim_store_exp_free(a->out.claimed.exp);
  brim_str_deinit(&a->ready);
  waits_destroy(a->waits);
  brim_free(a);
}
