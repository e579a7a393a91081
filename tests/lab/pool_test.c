#include "pool_test.h"

static lab_place place;
brim_lab_pool *pool;
brim_http_answer answer;
json_t *reply;
brim_lab_pool_options pool_extras;

int pool_setup(void **state) {
  (void)state;
  store = lab_fresh(&place);
  brim_lab_pool_options options = pool_extras;
  options.store = store;
  options.version = "9.9";
  brim_status status = brim_lab_pool_open(&options, &pool);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
  brim_http_answer_init(&answer);
  return 0;
}

int pool_teardown(void **state) {
  (void)state;
  json_decref(reply);
  reply = NULL;
  brim_http_answer_deinit(&answer);
  brim_lab_pool_close(pool);
  lab_check(store);
  brim_store_close(store);
  return 0;
}

//---------------------------------- calls ----------------------------------

brim_http_client *client_of(const char *token) {
  char url[64];
  brim_http_client *c;
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_lab_pool_port(pool));
  const brim_http_client_options how = {.url = url, .token = token, .insecure = true};
  assert_ok(brim_http_client_open(&how, &c));
  return c;
}

int call_with(const char *token, const char *const *headers, const char *method, const char *path,
              const char *body) {
  brim_http_client *c = client_of(token);
  const brim_http_call how = {.method = method,
                              .path = path,
                              .body = body,
                              .body_size = body ? strlen(body) : 0,
                              .headers = headers};
  assert_ok(brim_http_client_call(c, &how, &answer));
  brim_http_client_close(c);
  json_decref(reply);
  reply = NULL;
  size_t end = answer.body.len;
  while (end > 0 && answer.body.data[end - 1] == '\n') end--;
  size_t start = end;
  while (start > 0 && answer.body.data[start - 1] != '\n') start--;
  if (end > start)
    assert_ok(brim_json_parse(answer.body.data + start, end - start, "reply", &reply));
  return answer.status;
}

int get(const char *path) { return call_with(NULL, NULL, "GET", path, NULL); }
int post(const char *path, const char *body) { return call_with(NULL, NULL, "POST", path, body); }
int as(const char *token, const char *method, const char *path, const char *body) {
  return call_with(token, NULL, method, path, body);
}

const char *text_of(const char *key) {
  const char *text = json_string_value(json_object_get(reply, key));
  return text ? text : "";
}
int64_t int_of(const char *key) { return json_integer_value(json_object_get(reply, key)); }

void add_token(const char *id, const char *role, char token[BRIM_TOKEN]) {
  char sha[65];
  assert_ok(brim_token_make(token));
  brim_token_hash(token, sha);
  const brim_store_token row = {.id = id, .role = role, .sha256 = sha};
  assert_ok(brim_store_token_add(store, &row));
}

brim_status hear(void *ctx, const char *data, size_t size) {
  heard *h = ctx;
  brim_str_append_n(&h->text, data, size);
  return strstr(h->text.data, h->until) ? brim_fail(BRIM_EEND, "heard it") : BRIM_OK;
}

void listen_for(const char *path, const char *until, heard *h) {
  int status;
  brim_http_client *c = client_of(NULL);
  brim_str_init(&h->text);
  h->until = until;
  assert_status(brim_http_client_stream(c, path, &status, hear, h), BRIM_EEND);
  brim_http_client_close(c);
}
