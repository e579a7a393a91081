// The operations of lab_wire.h: one function each, over the store of this process. A function reads
// job->in and fills job->out; it knows no JSON.

#include "lab/wire/lab_wire.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/wire/lab_wire_int.h"

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a reply"); }

// Finds the experiment of the request by its id or first digits, and writes its id to out->exp.
static brim_status find(brim_lab_job *j) {
  if (strlen(j->in->exp) != BRIM_EXP_ID - 1) {
    return brim_store_find(j->store, j->in->exp, j->out->exp);
  }
  memcpy(j->out->exp, j->in->exp, BRIM_EXP_ID);
  return BRIM_OK;
}

//---------------------------------- attempts ----------------------------------

static brim_status op_start(brim_lab_job *j) {
  return brim_store_start(j->store, &j->in->ref, j->in->pid, j->in->from_step);
}

static brim_status op_beat(brim_lab_job *j) {
  return brim_store_beat(j->store, &j->in->ref, &j->in->progress, &j->out->beat);
}

static brim_status op_metrics(brim_lab_job *j) {
  return brim_store_metrics(j->store, &j->in->ref, j->in->seq, j->in->metrics.rows,
                            j->in->metrics.count);
}

static brim_status op_log(brim_lab_job *j) {
  return brim_store_log(j->store, &j->in->ref, j->in->stream, j->in->size);
}

static brim_status op_checkpoint(brim_lab_job *j) {
  return brim_store_checkpoint(j->store, &j->in->ref, j->in->step);
}

static brim_status op_findings(brim_lab_job *j) {
  return brim_store_findings(j->store, &j->in->ref, j->in->findings);
}

static brim_status op_finish(brim_lab_job *j) {
  return brim_store_finish(j->store, &j->in->ref, &j->in->result, &j->out->state);
}

//---------------------------------- workers ----------------------------------

static brim_status op_seen(brim_lab_job *j) {
  const char *own = j->ops->version, *version = j->in->seen.version;
  if (own && own[0] && version && version[0] && !brim_lab_wire_fits(own, version)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "the server is brim %s and takes no worker of brim %s; install %s", own,
                     version, own);
  }
  return brim_store_worker_seen(j->store, &j->in->seen);
}

static brim_status op_claim(brim_lab_job *j) {
  brim_store_claimed *claimed = &j->out->claimed;
  BRIM_TRY(brim_store_claim(j->store, &j->in->claim, claimed));
  if (claimed->exp) memcpy(j->out->exp, claimed->ref.exp, BRIM_EXP_ID);
  return BRIM_OK;
}

static brim_status op_drain(brim_lab_job *j) {
  return brim_store_drain(j->store, j->in->worker, j->in->drain);
}

//---------------------------------- users ----------------------------------

static brim_status op_submit(brim_lab_job *j) {
  return brim_store_submit(j->store, &j->in->submit, j->in->points.rows, j->in->points.count,
                           &j->out->submitted);
}

static brim_status op_want(brim_lab_job *j) {
  BRIM_TRY(find(j));
  return brim_store_want(j->store, j->out->exp, j->in->want);
}

static brim_status op_retry(brim_lab_job *j) {
  BRIM_TRY(find(j));
  return brim_store_retry(j->store, j->out->exp);
}

static brim_status op_want_each(brim_lab_job *j) {
  return brim_store_want_each(j->store, j->in->exps.ids, j->in->exps.count, j->in->want,
                              &j->out->count);
}

static brim_status op_retry_each(brim_lab_job *j) {
  return brim_store_retry_each(j->store, j->in->exps.ids, j->in->exps.count, &j->out->count);
}

static brim_status op_retry_failed(brim_lab_job *j) {
  return brim_store_retry_failed(j->store, j->in->grid, &j->out->count);
}

static brim_status op_set_priority(brim_lab_job *j) {
  BRIM_TRY(find(j));
  return brim_store_set_priority(j->store, j->out->exp, j->in->priority);
}

//---------------------------------- reading ----------------------------------

static brim_status op_hello(brim_lab_job *j) {
  j->out->protocol = BRIM_LAB_PROTOCOL;
  j->out->version = j->ops->version;
  j->out->pid = getpid();
  j->out->kind = brim_store_kind(j->store);
  j->out->place = brim_store_place(j->store);
  return brim_store_now(j->store, &j->out->now);
}

static brim_status op_counts(brim_lab_job *j) {
  return brim_store_count(j->store, j->in->grid, &j->out->counts);
}

static brim_status op_find(brim_lab_job *j) {
  return brim_store_find(j->store, j->in->exp, j->out->exp);
}

static brim_status op_get(brim_lab_job *j) {
  BRIM_TRY(find(j));
  return brim_store_get(j->store, j->out->exp, &j->out->found);
}

static brim_status op_attempts(brim_lab_job *j) {
  BRIM_TRY(find(j));
  return brim_store_attempts(j->store, j->out->exp, j->out->rows.fn.attempt, j->out->rows.ctx);
}

static brim_status op_log_size(brim_lab_job *j) {
  BRIM_TRY(find(j));
  return brim_store_log_size(j->store, j->out->exp, j->in->attempt, j->in->stream, &j->out->size);
}

static brim_status op_grids(brim_lab_job *j) {
  return brim_store_grids(j->store, j->out->rows.fn.grid, j->out->rows.ctx);
}

static brim_status op_files(brim_lab_job *j) {
  BRIM_TRY(find(j));
  return brim_store_files(j->store, j->out->exp, j->out->rows.fn.file, j->out->rows.ctx);
}

static brim_status op_curve(brim_lab_job *j) {
  BRIM_TRY(find(j));
  return brim_store_read_curve(j->store, j->out->exp, j->in->key, &j->in->range,
                               j->out->rows.fn.bucket, j->out->rows.ctx);
}

//---------------------------------- long lists ----------------------------------
// A job in steps makes exports and lists with texts in many steps: the first one collects ids, and each
// further step reads one experiment.

static brim_status collect_id(void *ctx, const brim_store_exp *exp) {
  brim_lab_job *j = ctx;
  if (j->count == j->capacity) {
    size_t capacity = j->capacity ? j->capacity * 2 : 256;
    void *grown = brim_realloc(j->ids, capacity * sizeof *j->ids);
    if (!grown) return no_memory();
    j->ids = grown;
    j->capacity = capacity;
  }
  memcpy(j->ids[j->count++], exp->id, BRIM_EXP_ID);
  return BRIM_OK;
}

static brim_status collect_ids(brim_lab_job *j) {
  brim_store_filter filter = j->in->filter;
  filter.texts = false;
  BRIM_TRY(brim_store_list(j->store, &filter, collect_id, j));
  j->pending = j->count > 0;
  return BRIM_OK;
}

static brim_status op_list(brim_lab_job *j) {
  const brim_lab_rows *rows = &j->out->rows;
  if (j->in_steps && j->in->filter.texts) return collect_ids(j);
  return brim_store_list(j->store, &j->in->filter, rows->fn.exp, rows->ctx);
}

static brim_status next_list(brim_lab_job *j) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_store_get(j->store, j->ids[j->at], &exp));
  brim_status status = j->out->rows.fn.exp(j->out->rows.ctx, exp);
  brim_store_exp_free(exp);
  j->pending = ++j->at < j->count;
  return status;
}

static brim_status op_export(brim_lab_job *j) {
  const brim_lab_rows *rows = &j->out->rows;
  if (j->in_steps) return collect_ids(j);
  return brim_store_export(j->store, &j->in->filter, rows->fn.line, rows->ctx);
}

static brim_status next_export(brim_lab_job *j) {
  const brim_lab_rows *rows = &j->out->rows;
  BRIM_TRY(brim_store_export_one(j->store, j->ids[j->at], rows->fn.line, rows->ctx));
  j->pending = ++j->at < j->count;
  return BRIM_OK;
}

//---------------------------------- events ----------------------------------

enum { EVENTS_STEP = 500 };

static brim_status op_events(brim_lab_job *j) {
  const brim_lab_rows *rows = &j->out->rows;
  if (!j->in_steps) {
    return brim_store_events(j->store, j->in->seq, j->in->limit > 0 ? j->in->limit : 0,
                             rows->fn.event, rows->ctx);
  }
  j->seq = j->in->seq;
  j->left = j->in->limit > 0 ? j->in->limit : INT64_MAX;
  j->pending = true;
  return BRIM_OK;
}

static brim_status on_event(void *ctx, const brim_store_event *event) {
  brim_lab_job *j = ctx;
  j->seq = event->seq;
  return j->out->rows.fn.event(j->out->rows.ctx, event);
}

static brim_status next_events(brim_lab_job *j) {
  int64_t most = j->left < EVENTS_STEP ? j->left : EVENTS_STEP, before = j->seq;
  BRIM_TRY(brim_store_events(j->store, before, most, on_event, j));
  j->left -= most;
  j->pending = j->seq != before && j->left > 0;
  return BRIM_OK;
}

//---------------------------------- list of workers ----------------------------------

typedef struct workers {
  const brim_lab_rows *rows;
  json_t *lacks;  // names of lacked grids, by worker
} workers;

static brim_status add_lack(void *ctx, const brim_store_lack *lack) {
  json_t *all = ((workers *)ctx)->lacks;
  if (!lack->grid) return BRIM_OK;
  if (!json_object_get(all, lack->worker)) {
    BRIM_TRY(brim_json_put(all, lack->worker, json_array()));
  }
  return brim_json_push(json_object_get(all, lack->worker), json_string(lack->what));
}

static brim_status list_worker(void *ctx, const brim_store_worker *worker) {
  const workers *w = ctx;
  json_t *status = NULL;
  if (worker->status[0] &&
      brim_json_parse(worker->status, strlen(worker->status), "status", &status)) {
    brim_status_clear();
  }
  const brim_lab_worker_row row = {*worker, json_is_object(status) ? status : NULL,
                                   json_object_get(w->lacks, worker->id)};
  brim_status taken = w->rows->fn.worker(w->rows->ctx, &row);
  json_decref(status);
  return taken;
}

static brim_status op_workers(brim_lab_job *j) {
  workers w = {&j->out->rows, json_object()};
  int64_t now = 0;
  brim_status status = w.lacks ? brim_store_now(j->store, &now) : no_memory();
  if (!status) status = brim_store_lacks(j->store, now - BRIM_WORKER_GONE_MS, add_lack, &w);
  if (!status) status = brim_store_workers(j->store, list_worker, &w);
  json_decref(w.lacks);
  return status;
}

//---------------------------------- metrics ----------------------------------

typedef struct metric_row {
  int64_t step, attempt;
  double value;
} metric_row;

// Collects the rows of one key, and passes on at most `most` of them.
typedef struct thinning {
  const brim_lab_rows *to;
  char *key;
  size_t most;
  metric_row *rows;
  size_t count, capacity;
} thinning;

// Passes on evenly spaced rows; the last row is always among them.
static brim_status give_thinned(thinning *t) {
  size_t n = t->count, chosen = n < t->most ? n : t->most;
  t->count = 0;
  for (size_t i = 0; i < chosen; i++) {
    size_t at = chosen == n ? i : (size_t)((double)(i + 1) * (double)n / (double)chosen) - 1;
    const metric_row *row = &t->rows[at < n ? at : n - 1];
    const brim_store_metric m = {t->key, row->step, row->value};
    BRIM_TRY(t->to->fn.metric(t->to->ctx, &m, row->attempt));
  }
  return BRIM_OK;
}

static brim_status gather(void *ctx, const brim_store_metric *m, int64_t attempt) {
  thinning *t = ctx;
  if (t->key && strcmp(t->key, m->key) != 0) {
    BRIM_TRY(give_thinned(t));
    brim_free(t->key);
    t->key = NULL;
  }
  if (!t->key) t->key = brim_strdup(m->key);
  if (!t->key) return no_memory();
  if (t->count == t->capacity) {
    size_t capacity = t->capacity ? t->capacity * 2 : 1024;
    void *grown = brim_realloc(t->rows, capacity * sizeof *t->rows);
    if (!grown) return no_memory();
    t->rows = grown;
    t->capacity = capacity;
  }
  t->rows[t->count++] = (metric_row){m->step, attempt, m->value};
  return BRIM_OK;
}

static brim_status op_metrics_of(brim_lab_job *j) {
  const brim_lab_rows *rows = &j->out->rows;
  const char *exp = j->out->exp, *key = j->in->key;
  int64_t most = j->in->range.points;
  if (most < 0) return brim_fail(BRIM_EINVAL, "the number of points is negative");
  BRIM_TRY(find(j));
  if (most == 0) return brim_store_read_metrics(j->store, exp, key, rows->fn.metric, rows->ctx);
  thinning t = {.to = rows, .most = (size_t)most};
  brim_status status = brim_store_read_metrics(j->store, exp, key, gather, &t);
  if (!status) status = give_thinned(&t);
  brim_free(t.rows);
  brim_free(t.key);
  return status;
}

//---------------------------------- curves of several experiments ----------------------------------

static brim_status op_curves(brim_lab_job *j) {
  size_t count = j->in->any_exps.count;
  j->ids = brim_calloc(count + 1, sizeof *j->ids);
  if (!j->ids) return no_memory();
  for (; j->count < count; j->count++) {
    BRIM_TRY(brim_store_find(j->store, j->in->any_exps.texts[j->count], j->ids[j->count]));
  }
  j->pending = count > 0;
  return BRIM_OK;
}

static brim_status next_curves(brim_lab_job *j) {
  const brim_lab_rows *rows = &j->out->rows;
  const char *exp = j->ids[j->at];
  if (j->begin_exp) BRIM_TRY(j->begin_exp(rows->ctx, exp));
  j->pending = ++j->at < j->count;
  return brim_store_read_curve(j->store, exp, j->in->key, &j->in->range, rows->fn.bucket,
                               rows->ctx);
}

//---------------------------------- carrying out ----------------------------------

#define op_none NULL
#define next_none NULL
const brim_lab_op_row brim_lab_op_rows[BRIM_LAB_OP_COUNT] = {
#define X(id, name, right, request, reply, rows, run, next) \
  {name, BRIM_ROLE_##right, request, reply, BRIM_LAB_ROWS_##rows, op_##run, next_##next},
    BRIM_LAB_OP_MAP(X)
#undef X
};

const char *brim_lab_op_name(brim_lab_op op) { return brim_lab_op_rows[op].name; }

brim_lab_op brim_lab_op_of(const char *name) {
  int i = 0;
  while (i < BRIM_LAB_OP_COUNT && !(name && strcmp(brim_lab_op_rows[i].name, name) == 0)) i++;
  return (brim_lab_op)i;
}

bool brim_lab_op_is_report(brim_lab_op op) {
  return op < BRIM_LAB_OP_COUNT && strncmp(brim_lab_op_rows[op].request, "ref", 3) == 0;
}

static void tell_changed(const brim_lab_job *j) {
  const brim_lab_ops *ops = j->ops;
  brim_lab_op op = j->in->op;
  bool want = op == BRIM_LAB_OP_WANT_EACH;
  if (!want && op != BRIM_LAB_OP_RETRY_EACH) {
    ops->changed(ops->ctx, op, brim_lab_op_is_report(op) ? j->in->ref.exp : j->out->exp);
    return;
  }
  for (size_t i = 0; i < j->in->exps.count; i++) {
    ops->changed(ops->ctx, want ? BRIM_LAB_OP_WANT : BRIM_LAB_OP_RETRY, j->in->exps.ids[i]);
  }
}

brim_status brim_lab_job_begin(brim_lab_job *j) {
  const brim_lab_op_row *row = &brim_lab_op_rows[j->in->op];
  if (j->ops->answer) {
    bool taken = false;
    brim_status status = j->ops->answer(j->ops->ctx, j->in, j->out, &taken);
    if (taken || status) return status;
  }
  if (!row->run) {
    return brim_fail(BRIM_EUNSUPPORTED, "'%s' is no request that this sweep answers", row->name);
  }
  j->store = j->ops->store;
  if (!j->store) {
    return brim_fail(BRIM_ESTATE,
                     "a worker runs in this folder, and its server has the store: name the "
                     "server's URL in place of the folder");
  }
  BRIM_TRY(row->run(j));
  if (row->right != BRIM_ROLE_READ && j->ops->changed) tell_changed(j);
  return BRIM_OK;
}

brim_status brim_lab_run(const brim_lab_ops *ops, const brim_lab_request *request,
                         brim_lab_reply *reply) {
  brim_lab_job j = {.ops = ops, .in = request, .out = reply};
  brim_status status = brim_lab_job_begin(&j);
  while (!status && j.pending) status = brim_lab_op_rows[request->op].next(&j);
  brim_free(j.ids);
  return status;
}
