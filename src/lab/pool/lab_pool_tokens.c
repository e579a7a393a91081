// /v1/tokens: tokens are listed, made, replaced and ended while the server runs. A token is shown once, in the
// reply that makes it.
#include <stdio.h>
#include <string.h>

#include "base/base_status.h"
#include "lab/lab_wire.h"
#include "lab/pool/lab_pool_int.h"

bool brim_token_is_name(const char *text) {
  size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
  // the first two are those of the server itself
  return n > 0 && n <= 32 && text[n] == '\0' && strcmp(text, "local") != 0 &&
         strcmp(text, "control") != 0;
}

static brim_status put_token(void *ctx, const brim_store_token *t) {
  json_t *row = json_object();
  BRIM_TRY(brim_json_push((json_t *)ctx, row));
  BRIM_TRY(brim_json_put(row, "id", json_string(t->id)));
  BRIM_TRY(brim_json_put(row, "role", json_string(t->role)));
  return brim_json_put(row, "created", json_integer(t->created));
}

void brim_pool_tokens_list(brim_lab_pool *pool, const brim_pool_caller *caller,
                           const brim_http_request *http, brim_http_reply *reply) {
  json_t *out = json_object(), *list = json_array();
  (void)caller;
  (void)http;
  brim_status status = brim_json_put(out, "tokens", list);
  pthread_mutex_lock(&pool->lock);
  if (!status) status = brim_store_tokens(pool->options.store, put_token, list);
  pthread_mutex_unlock(&pool->lock);
  brim_pool_reply_line(reply, out, status);
}

typedef struct change {
  const char *id, *role, *sha256;  // role NULL: it is replaced; sha256 NULL: it ends
} change;

// The server knows it at once.
static brim_status change_token(brim_lab_pool *pool, const brim_pool_caller *caller,
                                const change *c) {
  brim_store *store = pool->options.store;
  const brim_store_token row = {.id = c->id, .role = c->role, .sha256 = c->sha256};
  pthread_mutex_lock(&pool->lock);
  brim_store_set_author(store, caller->id);
  brim_status status = !c->sha256 ? brim_store_token_end(store, c->id)
                       : c->role  ? brim_store_token_add(store, &row)
                                  : brim_store_token_rotate(store, c->id, c->sha256);
  brim_store_set_author(store, "");
  if (!status) status = brim_pool_auth_load(&pool->auth, store);
  if (!status && brim_pool_feed_read(&pool->feed, store)) brim_status_clear();
  pthread_mutex_unlock(&pool->lock);
  return status;
}

static brim_status make_token(brim_lab_pool *pool, const brim_pool_caller *caller, const char *id,
                              const char *role, json_t *out) {
  char token[BRIM_TOKEN], sha256[65];
  BRIM_TRY(brim_token_make(token));
  brim_token_hash(token, sha256);
  const change c = {.id = id, .role = role, .sha256 = sha256};
  brim_status status = change_token(pool, caller, &c);
  if (!status) status = brim_json_put(out, "id", json_string(id));
  if (!status && role) status = brim_json_put(out, "role", json_string(role));
  if (!status) status = brim_json_put(out, "token", json_string(token));
  explicit_bzero(token, sizeof token);
  return status;
}

static brim_status add(brim_lab_pool *pool, const brim_pool_caller *caller, const json_t *body,
                       json_t *out) {
  const char *id = "", *role = "read";
  brim_role known;
  BRIM_TRY(brim_lab_wire_string(body, "id", true, &id));
  BRIM_TRY(brim_lab_wire_string(body, "role", false, &role));
  if (!brim_token_is_name(id)) {
    return brim_fail(BRIM_EINVAL,
                     "the name of a token has 1 to 32 of a-z, 0-9 and -, and is not local or "
                     "control");
  }
  if (!brim_role_of(role, &known)) {
    return brim_fail(BRIM_EINVAL, "a role is read, submit, worker or admin");
  }
  return make_token(pool, caller, id, role, out);
}

void brim_pool_tokens_add(brim_lab_pool *pool, const brim_pool_caller *caller,
                          const brim_http_request *http, brim_http_reply *reply) {
  json_t *body = NULL, *out = json_object();
  brim_status status = brim_pool_body(http, BRIM_JSON_VALUES_SMALL, &body);
  if (!status) status = add(pool, caller, body, out);
  json_decref(body);
  brim_pool_reply_line(reply, out, status);
}

// The part of the path behind v1/tokens/.
static const char *id_of(const brim_http_request *http, char id[65]) {
  const char *at = http->path + strlen("/v1/tokens/");
  snprintf(id, 65, "%.*s", (int)(strcspn(at, "/") < 64 ? strcspn(at, "/") : 64), at);
  return id;
}

void brim_pool_tokens_rotate(brim_lab_pool *pool, const brim_pool_caller *caller,
                             const brim_http_request *http, brim_http_reply *reply) {
  char id[65];
  json_t *body = NULL, *out = json_object();
  brim_status status =
      http->body_size > 0 ? brim_pool_body(http, BRIM_JSON_VALUES_SMALL, &body) : BRIM_OK;
  json_decref(body);
  if (!status) status = make_token(pool, caller, id_of(http, id), NULL, out);
  brim_pool_reply_line(reply, out, status);
}

void brim_pool_tokens_end(brim_lab_pool *pool, const brim_pool_caller *caller,
                          const brim_http_request *http, brim_http_reply *reply) {
  char id[65];
  const change c = {.id = id_of(http, id)};
  brim_pool_reply_line(reply, json_object(), change_token(pool, caller, &c));
}
