// What requests of every kind share: a line or a failure as a reply, and whose an attempt is.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/pool/lab_pool_int.h"

int brim_pool_http_status(brim_status status) {
  switch (status) {
    case BRIM_OK:
      return 200;
    case BRIM_EINVAL:
    case BRIM_EPARSE:
      return 400;
    case BRIM_ENOENT:
      return 404;
    case BRIM_EEXIST:
    case BRIM_ESTATE:
      return 409;
    case BRIM_ELIMIT:
      return 413;
    case BRIM_EUNSUPPORTED:
      return 501;
    case BRIM_EIO:
    case BRIM_ENOMEM:
      return 503;
    default:
      return 500;
  }
}

void brim_pool_reply_failure(brim_http_reply *reply, brim_status status) {
  char detail[512];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  brim_str_clear(&reply->body);
  reply->status = brim_pool_http_status(status);
  if (!brim_lab_ops_error(status, &reply->body)) return;
  brim_http_reply_error(reply, brim_pool_http_status(status), detail);
}

void brim_pool_reply_line(brim_http_reply *reply, json_t *line, brim_status status) {
  char *text = NULL;
  if (!status && !json_object_get(line, "ok")) status = brim_json_put(line, "ok", json_true());
  if (!status) status = brim_json_dump(line, 0, &text);
  json_decref(line);
  if (status) {
    brim_pool_reply_failure(reply, status);
    return;
  }
  brim_str_printf(&reply->body, "%s\n", text);
  brim_free(text);
}

// A worker's name begins with the id of its token: "lab" or "lab.box7".
static bool is_own_name(const brim_pool_caller *caller, const char *worker) {
  size_t n = strlen(caller->id);
  if (caller->role == BRIM_ROLE_ADMIN) return true;
  return worker && strncmp(worker, caller->id, n) == 0 && (worker[n] == '\0' || worker[n] == '.');
}

// Under the store's lock.
brim_status brim_pool_check_own(brim_lab_pool *pool, const brim_pool_route *route,
                                const brim_pool_caller *caller, const json_t *request) {
  char worker[65] = "";
  const char *name = json_string_value(json_object_get(request, "worker"));
  if (caller->role == BRIM_ROLE_ADMIN) return BRIM_OK;
  if (!strstr(route->path, ":worker")) {  // of an attempt: a name in the body says nothing
    const json_t *ref = json_object_get(request, "ref");
    const char *exp = json_string_value(json_object_get(ref, "exp"));
    int64_t n = json_integer_value(json_object_get(ref, "attempt"));
    BRIM_TRY(brim_store_attempt_worker(pool->options.store, exp ? exp : "", n, worker));
    name = worker;
  }
  if (is_own_name(caller, name)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "'%s' is no worker of the token %s", name, caller->id);
}
