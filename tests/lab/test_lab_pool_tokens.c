// Tokens that change while a server runs, and its figures for monitors.
#include "pool_test.h"

static void test_tokens_change_while_it_serves(void **state) {
  (void)state;
  char admin[BRIM_TOKEN], bob[BRIM_TOKEN];
  assert_int_equal(post("/v1/tokens", "{\"id\": \"ann\", \"role\": \"admin\"}"), 200);
  snprintf(admin, sizeof admin, "%s", text_of("token"));
  assert_int_equal(get("/v1/counts"), 401);  // from now on every caller needs one
  assert_int_equal(as(admin, "POST", "/v1/tokens", "{\"id\": \"bob\"}"), 200);
  assert_string_equal(text_of("role"), "read");
  snprintf(bob, sizeof bob, "%s", text_of("token"));
  assert_int_equal(as(bob, "GET", "/v1/counts", NULL), 200);
  assert_int_equal(as(bob, "GET", "/v1/tokens", NULL), 403);
  assert_int_equal(as(bob, "POST", "/v1/tokens", "{\"id\": \"eve\", \"role\": \"admin\"}"), 403);
  assert_int_equal(as(bob, "DELETE", "/v1/tokens/ann", NULL), 403);
  assert_int_equal(as(admin, "GET", "/v1/tokens", NULL), 200);
  assert_int_equal(json_array_size(json_object_get(reply, "tokens")), 2);
  assert_null(strstr(answer.body.data, "sha256"));
  assert_int_equal(as(admin, "POST", "/v1/tokens", "{\"id\": \"bob\"}"), 409);
  assert_int_equal(as(admin, "POST", "/v1/tokens/bob/rotate", "{}"), 200);
  assert_int_equal(as(bob, "GET", "/v1/counts", NULL), 401);
  snprintf(bob, sizeof bob, "%s", text_of("token"));
  assert_int_equal(as(admin, "GET", "/v1/log", NULL), 200);
  assert_non_null(
      strstr(answer.body.data, "\"kind\":\"token rotated\",\"text\":\"bob\",\"who\":\"ann\""));
  assert_int_equal(as(admin, "DELETE", "/v1/tokens/bob", NULL), 200);
  assert_int_equal(as(admin, "DELETE", "/v1/tokens/bob", NULL), 404);
  assert_int_equal(as(admin, "POST", "/v1/tokens/nobody/rotate", "{}"), 404);
  static const char *const bad[] = {"{}",
                                    "{\"id\": \"local\"}",
                                    "{\"id\": \"control\"}",
                                    "{\"id\": \"A\"}",
                                    "{\"id\": \"x\", \"role\": \"king\"}",
                                    "["};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(as(admin, "POST", "/v1/tokens", bad[i]), 400);
  }
}

static void reopen(void) {
  brim_lab_pool_close(pool);
  assert_ok(brim_lab_pool_open(&(brim_lab_pool_options){.store = store, .version = "9.9"}, &pool));
}

// When the last token ends, a server has no callers, but it does not become open: not even after a restart.
static void test_ended_tokens_keep_it_closed(void **state) {
  (void)state;
  char admin[BRIM_TOKEN];
  assert_int_equal(get("/v1/counts"), 200);
  assert_int_equal(post("/v1/tokens", "{\"id\": \"ann\", \"role\": \"admin\"}"), 200);
  snprintf(admin, sizeof admin, "%s", text_of("token"));
  assert_int_equal(as(admin, "DELETE", "/v1/tokens/ann", NULL), 200);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(get("/v1/counts"), 401);
    assert_int_equal(post("/v1/tokens", "{\"id\": \"eve\", \"role\": \"admin\"}"), 401);
    assert_int_equal(as(admin, "GET", "/v1/counts", NULL), 401);
    if (i == 0) assert_ok(brim_lab_pool_tend(pool));
    if (i == 1) reopen();
  }
}

// A role of a newer version does not open the server.
static void test_unknown_roles_keep_it_closed(void **state) {
  (void)state;
  char king[BRIM_TOKEN];
  assert_int_equal(get("/v1/counts"), 200);
  add_token("king", "king", king);
  assert_ok(brim_lab_pool_tend(pool));
  assert_int_equal(get("/v1/counts"), 401);
  assert_int_equal(as(king, "GET", "/v1/counts", NULL), 401);
  reopen();
  assert_int_equal(get("/v1/counts"), 401);
}

// A page's session ends when its token is replaced.
static void test_sessions_end_with_their_token(void **state) {
  (void)state;
  char token[BRIM_TOKEN], body[128], cookie[256];
  add_token("kim", "admin", token);
  assert_ok(brim_lab_pool_tend(pool));
  snprintf(body, sizeof body, "{\"token\": \"%s\"}", token);
  assert_int_equal(post("/v1/session", body), 200);
  snprintf(cookie, sizeof cookie, "Cookie: %.*s", (int)strcspn(answer.cookie, ";"), answer.cookie);
  const char *const headers[] = {cookie, NULL};
  assert_int_equal(call_with(NULL, headers, "GET", "/v1/counts", NULL), 200);
  assert_int_equal(as(token, "POST", "/v1/tokens/kim/rotate", "{}"), 200);
  assert_int_equal(call_with(NULL, headers, "GET", "/v1/counts", NULL), 401);
}

static int get_text(const char *token, const char *path) {
  brim_http_client *c = client_of(token);
  const brim_http_call how = {.method = "GET", .path = path};
  assert_ok(brim_http_client_call(c, &how, &answer));
  brim_http_client_close(c);
  return answer.status;
}

static void has_line(const char *line) {
  if (!strstr(answer.body.data, line)) fail_msg("no %s in:\n%s", line, answer.body.data);
}

static void test_metrics(void **state) {
  (void)state;
  char token[BRIM_TOKEN];
  const brim_store_worker w = {.id = "a\"b",
                               .host = "h",
                               .gpus = "",
                               .version = "1",
                               .status =
                                   "{\"gpus\": [{\"uuid\": \"GPU-1\", \"util\": 87.5,"
                                   "\"power_w\": null}]}"};
  assert_ok(brim_store_worker_seen(store, &w));
  lab_submit(store, "g1", 1, 3);
  assert_int_equal(get("/v1/counts"), 200);
  assert_int_equal(get("/v1/nothing"), 404);
  assert_int_equal(get_text(NULL, "/metrics"), 200);
  has_line("brim_build_info{version=\"9.9\"} 1\n");
  has_line("\nbrim_experiments{state=\"queued\"} 3\n");
  has_line("\nbrim_workers 1\n");
  has_line("\nbrim_gpu_utilization_percent{worker=\"a\\\"b\",gpu=\"GPU-1\"} 87.5\n");
  has_line("\nbrim_http_requests_total{status=\"200\"} 1\n");
  has_line("\nbrim_http_requests_total{status=\"404\"} 1\n");
  has_line("brim_http_request_duration_seconds_bucket{le=\"+Inf\"} 2\n");
  has_line("brim_http_request_duration_seconds_count 2\n");
  has_line("\nbrim_listeners 0\n");
  has_line("\nbrim_store_bytes ");
  assert_null(strstr(answer.body.data, "brim_store_bytes 0\n"));
  assert_null(strstr(answer.body.data, "brim_gpu_power_watts{"));  // unknown, so it has no line
  add_token("kim", "read", token);
  assert_ok(brim_lab_pool_tend(pool));
  assert_int_equal(get_text(NULL, "/metrics"), 401);
  assert_int_equal(get_text(token, "/metrics"), 200);
  assert_int_equal(get("/healthz"), 200);  // needs no token
  assert_true(json_is_true(json_object_get(reply, "ok")));
  assert_int_equal(post("/healthz", "{}"), 401);
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {TEST(test_tokens_change_while_it_serves),
                                     TEST(test_ended_tokens_keep_it_closed),
                                     TEST(test_unknown_roles_keep_it_closed),
                                     TEST(test_sessions_end_with_their_token), TEST(test_metrics)};
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
