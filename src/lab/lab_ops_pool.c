// Requests of workers and pages: those that a sweep on one machine has no need of.
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/lab_ops_int.h"

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
