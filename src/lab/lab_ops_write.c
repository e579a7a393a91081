// Requests that change the store: those of an attempt, those of a user, and a grid.
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/lab_ops_int.h"

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
