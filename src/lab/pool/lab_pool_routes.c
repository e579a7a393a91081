// Paths and what they ask for: one row each.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "config/config.h"
#include "lab/http/lab_http_url.h"
#include "lab/lab_files.h"
#include "lab/pool/lab_pool_int.h"

enum { SMALL = 64 << 10, BATCH = 10 << 20, GRID = 32 << 20 };

#define READ BRIM_ROLE_READ
#define SUBMIT BRIM_ROLE_SUBMIT
#define WORKER BRIM_ROLE_WORKER
#define LIST "grid:s states:l tag:s failure:s order:s limit:i offset:i texts:b"

const brim_pool_route brim_pool_routes[] = {
    {"GET", "v1/hello", READ, "hello", "", 0, false},
    {"GET", "v1/whoami", READ, "whoami", "", 0, false},
    {"GET", "v1/counts", READ, "counts", "grid:s", 0, false},
    {"GET", "v1/exps", READ, "list", LIST, 0, false},
    {"GET", "v1/export", READ, "export", LIST, 0, false},
    {"GET", "v1/find/:exp", READ, "find", "", 0, false},
    {"GET", "v1/exps/:exp", READ, "get", "", 0, false},
    {"GET", "v1/exps/:exp/attempts", READ, "attempts", "", 0, false},
    {"GET", "v1/exps/:exp/metrics", READ, "metrics_of", "key:s points:i", 0, false},
    {"GET", "v1/exps/:exp/curve", READ, "curve", "key:s first:i last:i points:i", 0, false},
    {"GET", "v1/exps/:exp/files", READ, "files", "", 0, false},
    {"GET", "v1/exps/:exp/files/:name", READ, NULL, "", 0, false},
    {"GET", "v1/exps/:exp/log", READ, NULL, "", 0, false},
    {"GET", "v1/grids", READ, "grids", "texts:b", 0, false},
    {"GET", "v1/keys", READ, NULL, "", 0, false},
    {"GET", "v1/groups", READ, NULL, "", 0, false},
    {"GET", "v1/names", READ, NULL, "", 0, false},
    {"POST", "v1/bests", READ, NULL, "", SMALL, false},
    {"POST", "v1/curves", READ, "curves", "", SMALL, false},
    {"GET", "v1/workers", READ, "workers", "", 0, false},
    {"GET", "v1/log", READ, "events", "seq:i limit:i", 0, false},
    {"GET", "v1/events", READ, NULL, "after:i", 0, false},
    {"POST", "v1/grids", SUBMIT, NULL, "", 2 * BRIM_CONFIG_MAX_BYTES, false},
    {"POST", "v1/points", SUBMIT, "submit", "", GRID, false},
    {"POST", "v1/exps/:exp/want", SUBMIT, "want", "", SMALL, false},
    {"POST", "v1/exps/:exp/retry", SUBMIT, "retry", "", SMALL, false},
    {"POST", "v1/exps/:exp/priority", SUBMIT, "set_priority", "", SMALL, false},
    {"POST", "v1/want", SUBMIT, "want_each", "", SMALL, false},
    {"POST", "v1/retry", SUBMIT, "retry_each", "", SMALL, false},
    {"POST", "v1/retry-failed", SUBMIT, "retry_failed", "", SMALL, false},
    {"POST", "v1/workers/:worker/drain", BRIM_ROLE_ADMIN, "drain", "", SMALL, false},
    {"POST", "v1/workers/:worker/seen", WORKER, "seen", "", SMALL, true},
    {"POST", "v1/workers/:worker/claim", WORKER, "claim", "", SMALL, true},
    {"POST", "v1/attempts/:exp/:attempt/start", WORKER, "start", "", SMALL, true},
    {"POST", "v1/attempts/:exp/:attempt/beat", WORKER, "beat", "", SMALL, true},
    {"POST", "v1/attempts/:exp/:attempt/metrics", WORKER, "metrics", "", BATCH, true},
    {"POST", "v1/attempts/:exp/:attempt/log", WORKER, "log", "", SMALL, true},
    {"POST", "v1/attempts/:exp/:attempt/checkpoint", WORKER, "checkpoint", "", SMALL, true},
    {"POST", "v1/attempts/:exp/:attempt/findings", WORKER, "findings", "", SMALL, true},
    {"POST", "v1/attempts/:exp/:attempt/finish", WORKER, "finish", "", SMALL, true},
    {"POST", "v1/attempts/:exp/:attempt/files/:name", WORKER, NULL, "", BRIM_LAB_PIECE_MAX, true},
    {"GET", "v1/tokens", BRIM_ROLE_ADMIN, NULL, "", 0, false},
    {"POST", "v1/tokens", BRIM_ROLE_ADMIN, NULL, "", SMALL, false},
    {"POST", "v1/tokens/:token/rotate", BRIM_ROLE_ADMIN, NULL, "", SMALL, false},
    {"DELETE", "v1/tokens/:token", BRIM_ROLE_ADMIN, NULL, "", 0, false},
    {"GET", "metrics", READ, NULL, "", 0, false},
    {"GET", "healthz", READ, NULL, "", 0, false},
    {"POST", "v1/call", READ, NULL, "", BRIM_LAB_REQUEST_MAX / 2, false},
    {"POST", "v1/session", READ, NULL, "", SMALL, false},
    {"DELETE", "v1/session", READ, NULL, "", 0, false},
    {NULL, NULL, READ, NULL, NULL, 0, false},
};

//---------------------------------- finding ----------------------------------

// "attempt" is a number, the others are texts.
static brim_status put_part(json_t *request, const char *name, const char *value) {
  int64_t number;
  if (strcmp(name, "attempt") != 0) return brim_json_put(request, name, json_string(value));
  if (!brim_parse_i64(value, &number) || number < 0) {
    return brim_fail(BRIM_EINVAL, "'%s' is no number of an attempt", value);
  }
  return brim_json_put(request, name, json_integer(number));
}

// The parts of the path against those of a row; fields are only put in when all of it fits.
static bool fits(const char *pattern, char *const parts[BRIM_HTTP_PARTS], int count) {
  const char *p = pattern;
  for (int i = 0; i < count; i++) {
    size_t n = strcspn(p, "/");
    if (n == 0 || (p[0] != ':' && (strlen(parts[i]) != n || strncmp(p, parts[i], n) != 0))) {
      return false;
    }
    p += n;
    p += *p == '/';
  }
  return *p == '\0';
}

static bool put_parts(const char *pattern, char *const parts[BRIM_HTTP_PARTS], json_t *request) {
  const char *p = pattern;
  for (int i = 0; *p; i++) {
    size_t n = strcspn(p, "/");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(n - (p[0] == ':')), p + (p[0] == ':'));
    if (p[0] == ':' && put_part(request, name, parts[i])) return false;
    p += n;
    p += *p == '/';
  }
  return true;
}

const brim_pool_route *brim_pool_route_find(const char *method, const char *path, json_t *request,
                                            bool *known) {
  char copy[BRIM_HTTP_PATH_MAX], *parts[BRIM_HTTP_PARTS];
  *known = false;
  snprintf(copy, sizeof copy, "%s", path);
  int count = brim_http_path_split(copy, parts);
  if (strcmp(method, "HEAD") == 0) method = "GET";
  for (const brim_pool_route *r = brim_pool_routes; r->method && count > 0; r++) {
    if (!fits(r->path, parts, count)) continue;
    *known = true;
    if (strcmp(r->method, method) != 0) continue;
    if (request && !put_parts(r->path, parts, request)) return NULL;
    return r;
  }
  return NULL;
}

const brim_pool_route *brim_pool_route_of(const char *op) {
  for (const brim_pool_route *r = brim_pool_routes; r->method; r++) {
    if (r->op && strcmp(r->op, op) == 0) return r;
  }
  return NULL;
}

size_t brim_pool_call_max(brim_role role) {
  size_t most = SMALL;
  for (const brim_pool_route *r = brim_pool_routes; r->method; r++) {
    if (r->op && brim_role_allows(role, r->role) && r->body_max > most) most = r->body_max;
  }
  return most;
}

//---------------------------------- reading ----------------------------------

static brim_status put_list(json_t *request, const char *name, const char *value) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(request, name, list));
  while (*value) {
    size_t n = strcspn(value, ",");
    if (n > 0) BRIM_TRY(brim_json_push(list, json_stringn(value, n)));
    value += n;
    value += *value == ',';
  }
  return BRIM_OK;
}

static brim_status put_value(json_t *request, const char *name, char kind, const char *value) {
  int64_t number;
  bool flag;
  if (kind == 's') return brim_json_put(request, name, json_string(value));
  if (kind == 'l') return put_list(request, name, value);
  if (kind == 'i' && brim_parse_i64(value, &number)) {
    return brim_json_put(request, name, json_integer(number));
  }
  if (kind == 'b' && brim_parse_bool(value, &flag)) {
    return brim_json_put(request, name, json_boolean(flag));
  }
  return brim_fail(BRIM_EINVAL, kind == 'i' ? "%s is a whole number" : "%s is true or false", name);
}

size_t brim_pool_values(size_t body_max) {
  return body_max > SMALL ? BRIM_JSON_VALUES : BRIM_JSON_VALUES_SMALL;
}

brim_status brim_pool_body(const brim_http_request *http, size_t values, json_t **out) {
  return brim_json_parse_within(http->body, http->body_size, "body", &values, out);
}

brim_status brim_pool_request_read(const brim_pool_route *route, const brim_http_request *http,
                                   json_t *request) {
  for (const char *p = route->fields; *p;) {
    size_t n = strcspn(p, ":");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)n, p);
    const char *value = brim_http_query(http, name);
    if (value) BRIM_TRY(put_value(request, name, p[n + 1], value));
    p += n + 2;
    p += *p == ' ';
  }
  if (http->body_size == 0) return BRIM_OK;
  json_t *body = NULL;
  BRIM_TRY(brim_pool_body(http, brim_pool_values(route->body_max), &body));
  bool good = json_is_object(body) && json_object_update(request, body) == 0;
  json_decref(body);
  return good ? BRIM_OK : brim_fail(BRIM_EINVAL, "the body is a JSON object");
}
