// The server of a pool over HTTP: reading, attempts, roles, events as they happen.
#include "pool_test.h"

#include <pthread.h>

//---------------------------------- tests ----------------------------------

static void test_reading(void **state) {
  (void)state;
  char path[128], id[BRIM_EXP_ID];
  assert_int_equal(get("/v1/hello"), 200);
  assert_string_equal(text_of("version"), "9.9");
  lab_submit(store, "g1", 1, 3);
  assert_int_equal(get("/v1/counts?grid=g1"), 200);
  assert_int_equal(int_of("total"), 3);
  assert_int_equal(get("/v1/exps?states=queued,failed&limit=2&order=index"), 200);
  assert_non_null(strstr(answer.body.data, "\"more\":true"));
  snprintf(path, sizeof path, "/v1/exps/%s", lab_id(2, id));
  assert_int_equal(get(path), 200);
  assert_string_equal(json_string_value(json_object_get(json_object_get(reply, "exp"), "id")), id);
  assert_int_equal(get("/v1/exps/00000000000000000000000000000000"), 404);
  assert_int_equal(get("/v1/exps?limit=many"), 400);
  assert_int_equal(get("/v1/exps?order=wild"), 400);
  assert_int_equal(get("/v1/nothing"), 404);
  assert_int_equal(post("/v1/counts", "{}"), 405);
  assert_int_equal(post("/v1/want", "[1]"), 400);
  assert_int_equal(post("/v1/want", "{\"exps\":"), 400);
}

static void write_attempt(const char *what, const char *body, int expected) {
  char path[160], id[BRIM_EXP_ID];
  snprintf(path, sizeof path, "/v1/attempts/%s/1/%s", lab_id(1, id), what);
  if (post(path, body) != expected) fail_msg("%s: %d %s", what, answer.status, answer.body.data);
}

static void test_an_attempt(void **state) {
  (void)state;
  char path[160], id[BRIM_EXP_ID];
  lab_submit(store, "g1", 1, 1);
  assert_int_equal(post("/v1/workers/w1/seen", "{\"host\": \"box\", \"status\": \"{}\"}"), 200);
  assert_int_equal(post("/v1/workers/w1/claim", "{\"claim_id\": \"c1\", \"free_gpus\": 1}"), 200);
  assert_int_equal(int_of("attempt"), 1);
  assert_int_equal(int_of("fence"), 1);
  assert_int_equal(post("/v1/workers/w1/claim", "{\"claim_id\": \"c1\", \"free_gpus\": 1}"), 200);
  assert_int_equal(int_of("attempt"), 1);  // the reply was lost, so it is the same attempt
  assert_int_equal(post("/v1/workers/w1/claim", "{\"claim_id\": \"c2\", \"free_gpus\": 1}"), 200);
  assert_null(json_object_get(reply, "exp"));  // the queue is empty
  write_attempt("start", "{\"fence\": 1, \"pid\": 7}", 200);
  write_attempt("beat", "{\"fence\": 1, \"step\": 3}", 200);
  assert_string_equal(text_of("want"), "run");
  write_attempt(
      "metrics",
      "{\"fence\": 1, \"seq\": 1, \"rows\": [[\"loss\", 1, 0.5], [\"loss\", 2, \"nan\"]]}", 200);
  write_attempt("findings", "{\"fence\": 1, \"findings\": \"[]\"}", 200);
  // The page's reader chooses the language: texts of the catalogue come in Korean too.
  write_attempt("findings",
                "{\"fence\": 1, \"findings\": \"[{\\\"code\\\": \\\"io_wait\\\", \\\"text\\\": "
                "\\\"waiting for data takes 42 % of a step\\\", \\\"text_words\\\": "
                "\\\"\\\\u0001waiting for data takes %.0f %% of a step\\\\u000242\\\\u0003\\\", "
                "\\\"ko\\\": {\\\"remedy\\\": \\\"forged\\\"}}]\"}",
                200);
  snprintf(path, sizeof path, "/v1/exps/%s", lab_id(1, id));
  assert_int_equal(get(path), 200);
  assert_non_null(strstr(answer.body.data, "waiting for data takes 42 % of a step"));
  assert_non_null(strstr(answer.body.data, "\"ko\":{\"text\":\""));
  assert_null(strstr(answer.body.data, "forged"));
  write_attempt("beat", "{\"fence\": 0}", 409);
  write_attempt("beat", "{}", 400);
  // the path names the attempt, whatever the body contains
  write_attempt("beat", "{\"fence\": 1, \"attempt\": 9, \"op\": \"finish\"}", 200);
  write_attempt("finish", "{\"fence\": 1, \"outcome\": \"ok\"}", 200);
  assert_string_equal(text_of("state"), "done");
  snprintf(path, sizeof path, "/v1/exps/%s/curve?key=loss&points=5", lab_id(1, id));
  assert_int_equal(get(path), 200);
  assert_non_null(strstr(answer.body.data, "[1,1,1,0,0.5,0.5,0.5]"));
  assert_non_null(strstr(answer.body.data, "[2,2,0,1,\"nan\",\"nan\",\"nan\"]"));
  snprintf(path, sizeof path, "/v1/attempts/%s/x/beat", id);
  assert_int_equal(post(path, "{}"), 400);
  assert_int_equal(post("/v1/workers/w1/drain", "{}"), 200);
}

// A worker's version must agree with the server's 9.9 in the first two numbers.
static void test_versions_of_workers(void **state) {
  (void)state;
  assert_int_equal(post("/v1/workers/w1/seen", "{\"version\": \"9.9.7\"}"), 200);
  assert_int_equal(post("/v1/workers/w1/seen", "{\"version\": \"9.9\"}"), 200);
  static const char *const others[] = {"9.8.7", "9.10", "9.91.0", "9", "8.9.9", "19.9"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char body[64];
    snprintf(body, sizeof body, "{\"version\": \"%s\"}", others[i]);
    assert_int_equal(post("/v1/workers/w1/seen", body), 501);
    assert_non_null(strstr(text_of("message"), others[i]));
  }
}

static void test_roles(void **state) {
  (void)state;
  char token[BRIM_ROLE_COUNT][BRIM_TOKEN];
  lab_submit(store, "g1", 1, 1);
  for (int i = 0; i < BRIM_ROLE_COUNT; i++) {
    add_token(brim_role_name((brim_role)i), brim_role_name((brim_role)i), token[i]);
  }
  assert_string_not_equal(token[0], token[1]);
  assert_ok(brim_lab_pool_tend(pool));
  const struct {
    const char *method, *path, *body;
    int expected[BRIM_ROLE_COUNT];  // read, submit, worker, admin
  } rows[] = {
      {"GET", "/v1/counts", NULL, {200, 200, 200, 200}},
      {"POST", "/v1/retry-failed", "{}", {403, 200, 403, 200}},
      {"POST", "/v1/workers/worker/seen", "{}", {403, 403, 200, 200}},
      {"POST", "/v1/workers/worker.b/seen", "{}", {403, 403, 200, 200}},
      {"POST", "/v1/workers/workers/seen", "{}", {403, 403, 400, 200}},
      {"POST", "/v1/workers/admin/seen", "{}", {403, 403, 400, 200}},
      {"POST", "/v1/workers/worker/drain", "{}", {403, 403, 403, 200}},
      {"GET", "/v1/nothing", NULL, {404, 404, 404, 404}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (int r = 0; r < BRIM_ROLE_COUNT; r++) {
      int got = as(token[r], rows[i].method, rows[i].path, rows[i].body);
      if (got != rows[i].expected[r]) fail_msg("%s as %d: %d", rows[i].path, r, got);
    }
    assert_int_equal(as(NULL, rows[i].method, rows[i].path, rows[i].body), 401);
    assert_int_equal(as("brim_wrong", rows[i].method, rows[i].path, rows[i].body), 401);
    assert_int_equal(as("", rows[i].method, rows[i].path, rows[i].body), 401);
  }
  assert_ok(brim_store_token_end(store, "read"));
  assert_ok(brim_lab_pool_tend(pool));
  assert_int_equal(as(token[BRIM_ROLE_READ], "GET", "/v1/counts", NULL), 401);
}

static void test_workers_write_their_own(void **state) {
  (void)state;
  char one[BRIM_TOKEN], other[BRIM_TOKEN], path[160], id[BRIM_EXP_ID];
  lab_submit(store, "g1", 1, 1);
  add_token("one", "worker", one);
  add_token("other", "worker", other);
  assert_ok(brim_lab_pool_tend(pool));
  assert_int_equal(
      as(one, "POST", "/v1/workers/one.a/claim", "{\"claim_id\": \"c\", \"free_gpus\": 1}"), 200);
  snprintf(path, sizeof path, "/v1/attempts/%s/1/start", lab_id(1, id));
  assert_int_equal(as(other, "POST", path, "{\"fence\": 1, \"pid\": 1}"), 400);
  // a name in the body does not replace the path's
  assert_int_equal(as(other, "POST", path, "{\"fence\": 1, \"pid\": 1, \"worker\": \"other\"}"),
                   400);
  assert_int_equal(as(one, "POST", path, "{\"fence\": 1, \"pid\": 1}"), 200);
  assert_int_equal(as(one, "POST", "/v1/workers/other/claim", "{\"claim_id\": \"d\"}"), 400);
}

// A page of another site may have our cookie or reach our address, but its Origin or Host differs.
static void test_pages(void **state) {
  (void)state;
  char token[BRIM_TOKEN], body[128], host[64], origin[64], cookie[256];
  static const char *const foreign[] = {"Origin: https://evil.example", NULL};
  static const char *const rebound[] = {"Host: evil.example", NULL};
  assert_int_equal(call_with(NULL, foreign, "POST", "/v1/retry-failed", "{}"), 403);
  assert_int_equal(call_with(NULL, rebound, "GET", "/v1/counts", NULL), 403);
  add_token("kim", "admin", token);
  assert_ok(brim_lab_pool_tend(pool));
  assert_int_equal(post("/v1/session", "{\"token\": \"brim_wrong\"}"), 401);
  snprintf(body, sizeof body, "{\"token\": \"%s\"}", token);
  assert_int_equal(post("/v1/session", body), 200);
  snprintf(cookie, sizeof cookie, "Cookie: a=b; %.*s", (int)strcspn(answer.cookie, ";"),
           answer.cookie);
  assert_non_null(strstr(answer.cookie, "HttpOnly; SameSite=Strict"));
  assert_null(strstr(answer.cookie, token));
  snprintf(host, sizeof host, "Host: 127.0.0.1:%d", brim_lab_pool_port(pool));
  snprintf(origin, sizeof origin, "Origin: http://127.0.0.1:%d", brim_lab_pool_port(pool));
  const char *const own[] = {cookie, host, origin, NULL}, *const plain[] = {cookie, NULL},
                    *const evil[] = {cookie, host, foreign[0], NULL};
  assert_int_equal(call_with(NULL, plain, "GET", "/v1/counts", NULL), 200);
  assert_int_equal(call_with(NULL, own, "POST", "/v1/retry-failed", "{}"), 200);
  assert_int_equal(call_with(NULL, plain, "POST", "/v1/retry-failed", "{}"), 403);
  assert_int_equal(call_with(NULL, evil, "POST", "/v1/retry-failed", "{}"), 403);
  assert_int_equal(call_with(NULL, own, "DELETE", "/v1/session", NULL), 200);
  assert_int_equal(call_with(NULL, plain, "GET", "/v1/counts", NULL), 401);
}

//---------------------------------- events ----------------------------------

static void test_events(void **state) {
  (void)state;
  char path[96], id[BRIM_EXP_ID];
  heard h;
  lab_submit(store, "g1", 1, 2);
  snprintf(path, sizeof path, "/v1/exps/%s/want", lab_id(2, id));
  assert_int_equal(post(path, "{\"want\": \"pause\"}"), 200);
  listen_for("/v1/events?after=0", "\"kind\":\"paused\"", &h);
  assert_non_null(strstr(h.text.data, "id: 1\nevent: event\ndata: {"));
  brim_str_deinit(&h.text);
  assert_int_equal(get("/v1/events?after=-3"), 400);
  assert_int_equal(get("/v1/events?after=x"), 400);
}

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (; (text = strstr(text, part)) != NULL; text++) n++;
  return n;
}

static brim_status hear_thrice(void *ctx, const char *data, size_t size) {
  heard *h = ctx;
  brim_str_append_n(&h->text, data, size);
  return count_of(h->text.data, h->until) >= 3 ? brim_fail(BRIM_EEND, "heard it") : BRIM_OK;
}

static void *listening(void *ctx) {
  int status;
  brim_http_client *c = client_of(NULL);
  (void)brim_http_client_stream(c, "/v1/events", &status, hear_thrice, ctx);
  brim_http_client_close(c);
  return NULL;
}

// Between two accepted beats the store refuses one.
static void test_refused_beats_are_no_news(void **state) {
  (void)state;
  pthread_t thread;
  char call[160], part[96], id[BRIM_EXP_ID];
  heard h = {.until = "\"step\":7"};
  snprintf(
      call, sizeof call,
      "{\"op\": \"beat\", \"ref\": {\"exp\": \"%s\", \"attempt\": 1, \"fence\": 1}, \"step\": 7}",
      lab_id(1, id));
  snprintf(part, sizeof part, "{\"exp\":\"%s\",\"step\":7", id);
  brim_str_init(&h.text);
  lab_submit(store, "g1", 1, 1);
  lab_run(store, 1);
  assert_int_equal(pthread_create(&thread, NULL, listening, &h), 0);
  while (pthread_tryjoin_np(thread, NULL) != 0) {
    write_attempt("beat", "{\"fence\": 0, \"step\": 99}", 409);
    write_attempt("beat", "{\"fence\": 1, \"step\": 7}", 200);
    assert_int_equal(post("/v1/call", call), 200);
  }
  assert_int_equal(count_of(h.text.data, "\"step\":99"), 0);
  assert_true(count_of(h.text.data, h.until) >= 3);
  // both ways to send one name the experiment
  assert_int_equal(count_of(h.text.data, part), count_of(h.text.data, h.until));
  brim_str_deinit(&h.text);
}

static void test_live_news(void **state) {
  (void)state;
  pthread_t thread;
  heard h = {.until = "event: metrics"};
  brim_str_init(&h.text);
  lab_submit(store, "g1", 1, 1);
  lab_run(store, 1);
  assert_int_equal(pthread_create(&thread, NULL, listening, &h), 0);
  int seq = 0;
  while (pthread_tryjoin_np(thread, NULL) != 0) {
    char body[200];
    snprintf(
        body, sizeof body,
        "{\"fence\": 1, \"seq\": %d, \"rows\": [[\"loss\", 1, 2], [\"acc\", 1, 3], [\"loss\", 2, "
        "1.5]]}",
        ++seq);
    write_attempt("metrics", body, 200);
    assert_int_equal(post("/v1/workers/w1/seen",
                          "{\"host\": \"box\", \"status\": {\"running\": 3, \"gpus\": []}}"),
                     200);
  }
  assert_non_null(strstr(h.text.data, "\"running\":3,\"gpus\":[],\"name\":\"w1\""));
  assert_non_null(strstr(h.text.data, "\"rows\":[[\"loss\",2,1.5],[\"acc\",1,3]]"));
  brim_str_deinit(&h.text);
  assert_int_equal(get("/v1/workers"), 200);
  assert_non_null(strstr(answer.body.data, "\"status\":{\"running\":3,\"gpus\":[]}"));
}

static int64_t count_running(void) {
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  return counts.states[BRIM_EXP_RUNNING];
}

// A server that did not run for a while, as on a machine that slept, ends no lease before workers could renew it.
static void test_a_server_that_slept(void **state) {
  (void)state;
  lab_submit(store, "g1", 1, 2);
  lab_run(store, 1);
  lab_run(store, 2);
  assert_ok(brim_lab_pool_tend(pool));
  lab_clock_ms += 10 * LAB_LEASE_MS;
  assert_ok(brim_lab_pool_tend(pool));
  assert_int_equal(count_running(), 2);
  write_attempt("beat", "{\"fence\": 1, \"step\": 3}", 200);
  for (int64_t ms = 0; ms < LAB_LEASE_MS / 2; ms += 2000) {
    lab_clock_ms += 2000;
    assert_ok(brim_lab_pool_tend(pool));
  }
  assert_int_equal(count_running(), 1);  // the other worker's experiment is lost
}

// Replies that do not fit one piece.
static void test_long_lists(void **state) {
  (void)state;
  lab_submit(store, "g1", 1, 3000);
  assert_int_equal(get("/v1/exps?texts=true"), 200);
  size_t found = 0;
  for (const char *p = answer.body.data; (p = strstr(p, "\"config\":")) != NULL; p++) found++;
  assert_int_equal(found, 3000);
  assert_true(json_is_true(json_object_get(reply, "ok")));
  assert_null(json_object_get(reply, "more"));
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST(test_reading),
      TEST(test_an_attempt),
      TEST(test_versions_of_workers),
      TEST(test_roles),
      TEST(test_workers_write_their_own),
      TEST(test_pages),
      TEST(test_events),
      TEST(test_refused_beats_are_no_news),
      TEST(test_live_news),
      TEST(test_a_server_that_slept),
      TEST(test_long_lists),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
