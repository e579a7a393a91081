// The frame of every request: reading it, finding its row, and its reply in pieces.
#include "lab/lab_ops.h"

#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/lab_ops_int.h"

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
  brim_lab_waits_destroy(a->waits);
  brim_free(a->ids);
  brim_free(a);
}
