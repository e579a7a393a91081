// Messages to a webhook: their contents, and when they are sent again or not. The receiver is a server in this program.
#include <pthread.h>
#include <unistd.h>

#include "lab/http/lab_http.h"
#include "pool_test.h"

enum { KEPT = 400, TRIES_10_MS = 6000, HOUR_MS = 3600000 };

typedef struct receiver {
  brim_http_server *server;
  pthread_mutex_t mutex;
  char *taken[KEPT];
  int count;     // messages in `taken`
  int calls;     // including refused calls
  int refuse;    // the next calls to refuse; < 0: all
  int code;      // status of a refusal
  bool strange;  // something other than a POST of JSON to the right path arrived
} receiver;

static receiver got;
static char url[128];

static bool admit(void *ctx, const brim_http_request *q, brim_http_reply *r, size_t *most) {
  (void)ctx;
  (void)q;
  (void)r;
  *most = 1 << 20;
  return true;
}

static void take(void *ctx, const brim_http_request *q, brim_http_reply *r) {
  (void)ctx;
  const char *key = brim_http_query(q, "key"), *type = brim_http_header(q, "Content-Type");
  pthread_mutex_lock(&got.mutex);
  got.calls++;
  got.strange = got.strange || strcmp(q->method, "POST") != 0 ||
                strcmp(q->path, "/in/s3cret") != 0 || !key || strcmp(key, "hidden") != 0 || !type ||
                strcmp(type, "application/json") != 0;
  if (got.refuse != 0) {
    if (got.refuse > 0) got.refuse--;
    brim_http_reply_error(r, got.code, "not now");
  } else if (got.count < KEPT) {
    got.taken[got.count++] = strndup(q->body, q->body_size);
  }
  pthread_mutex_unlock(&got.mutex);
}

static int begin(void **state) {
  got = (receiver){.code = 503};
  pthread_mutex_init(&got.mutex, NULL);
  const brim_http_options how = {.admit = admit, .serve = take};
  brim_status status = brim_http_server_open(&how, &got.server);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
  snprintf(url, sizeof url, "http://127.0.0.1:%d/in/s3cret?key=hidden",
           brim_http_server_port(got.server));
  pool_extras = (brim_lab_pool_options){.webhook = url, .webhook_wait_ms = 1};
  return pool_setup(state);
}

static int end(void **state) {
  int result = pool_teardown(state);
  brim_http_server_close(got.server);
  assert_false(got.strange);
  for (int i = 0; i < got.count; i++) free(got.taken[i]);
  pthread_mutex_destroy(&got.mutex);
  pool_extras = (brim_lab_pool_options){0};
  return result;
}

static void set_refusal(int refuse, int code) {
  pthread_mutex_lock(&got.mutex);
  got.refuse = refuse;
  got.code = code;
  pthread_mutex_unlock(&got.mutex);
}

static void wait_for(const int *what, int at_least) {
  for (int i = 0; i < TRIES_10_MS; i++) {
    pthread_mutex_lock(&got.mutex);
    bool there = *what >= at_least;
    pthread_mutex_unlock(&got.mutex);
    if (there) return;
    usleep(10000);
  }
  fail_msg("fewer than %d messages for too long", at_least);
}

// Returns message i; free it with json_decref.
static json_t *message(int i) {
  json_t *m = NULL;
  wait_for(&got.count, i + 1);
  pthread_mutex_lock(&got.mutex);
  assert_ok(brim_json_parse(got.taken[i], strlen(got.taken[i]), "message", &m));
  pthread_mutex_unlock(&got.mutex);
  return m;
}

static const char *field(const json_t *m, const char *key) {
  const char *text = json_string_value(json_object_get(m, key));
  return text ? text : "";
}

static void is_about(int i, const char *event, int exp) {
  char id[BRIM_EXP_ID];
  json_t *m = message(i);
  assert_string_equal(field(m, "event"), event);
  if (exp > 0) assert_string_equal(field(m, "exp"), lab_id(exp, id));
  json_decref(m);
}

static void fail_with(int n, const char *why) {
  brim_store_ref ref = lab_run(store, n);
  const brim_store_result result = {
      BRIM_ATTEMPT_ERROR, BRIM_FAILURE_OOM_DEVICE, 1, why, "a\nb\n", NULL};
  assert_ok(brim_store_finish(store, &ref, &result, NULL));
}

static void finish(int n, brim_attempt_outcome outcome, brim_failure failure) {
  brim_store_ref ref = lab_run(store, n);
  lab_finish(store, &ref, outcome, failure);
}

static void test_a_failure(void **state) {
  (void)state;
  char id[BRIM_EXP_ID], link[128];
  set_refusal(1, 503);
  lab_submit(store, "g1", 1, 3);
  finish(2, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH);  // it has retries left
  fail_with(1, "CUDA out of memory <!channel> @all\nmore");
  assert_ok(brim_lab_pool_tend(pool));
  json_t *m = message(0);
  assert_string_equal(field(m, "event"), "failed");
  assert_string_equal(field(m, "exp"), lab_id(1, id));
  assert_string_equal(field(m, "name"), "lr=0.1");
  assert_string_equal(field(json_object_get(m, "grid"), "id"), "g1");
  assert_string_equal(field(json_object_get(m, "grid"), "name"), "name");
  assert_string_equal(field(m, "failure"), "oom_device");
  assert_string_equal(field(m, "message"), "CUDA out of memory <!channel> @all\nmore");
  assert_string_equal(field(m, "last_lines"), "a\nb\n");
  snprintf(link, sizeof link, "http://127.0.0.1:%d/#/exp/%s", brim_lab_pool_port(pool), id);
  assert_string_equal(field(m, "url"), link);
  assert_string_equal(field(m, "text"),
                      "brim: lr=0.1 of 'name' failed: CUDA out of memory <\xe2\x80\x8b!channel> "
                      "@\xe2\x80\x8b"
                      "all");
  json_decref(m);
  fail_with(3, "");
  assert_ok(brim_lab_pool_tend(pool));
  is_about(1, "failed", 3);  // messages keep their order: no other came before
  assert_int_equal(got.calls, 3);
}

static void test_the_end_of_a_grid(void **state) {
  (void)state;
  lab_submit(store, "g1", 1, 3);
  lab_submit(store, "g2", 3, 2);  // 3 belongs to both grids
  char id[BRIM_EXP_ID];
  finish(1, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  assert_ok(brim_lab_pool_tend(pool));
  assert_ok(brim_store_want(store, lab_id(2, id), BRIM_WANT_CANCEL));
  fail_with(3, "why");
  assert_ok(brim_lab_pool_tend(pool));
  is_about(0, "failed", 3);
  json_t *m = message(1);
  assert_string_equal(field(m, "event"), "grid_ended");
  assert_string_equal(field(json_object_get(m, "grid"), "id"), "g1");
  assert_string_equal(field(m, "text"), "brim: 'name' ended: 1 done, 1 failed, 1 cancelled");
  const json_t *states = json_object_get(m, "states");
  assert_int_equal(json_integer_value(json_object_get(states, "done")), 1);
  assert_int_equal(json_integer_value(json_object_get(states, "queued")), 0);
  json_decref(m);
  finish(4, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  assert_ok(brim_lab_pool_tend(pool));
  m = message(2);
  assert_string_equal(field(json_object_get(m, "grid"), "id"), "g2");
  json_decref(m);
  // sent again after a retry
  assert_ok(brim_store_retry(store, lab_id(3, id)));
  finish(3, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  assert_ok(brim_lab_pool_tend(pool));
  is_about(3, "grid_ended", 0);
  is_about(4, "grid_ended", 0);
  lab_submit(store, "g3", 5, 2);
  fail_with(5, "why");
  assert_ok(brim_lab_pool_tend(pool));
  is_about(5, "failed", 5);  // no message was sent twice
}

static void test_a_restart(void **state) {
  (void)state;
  lab_submit(store, "g1", 1, 4);
  fail_with(1, "first");
  assert_ok(brim_lab_pool_tend(pool));
  is_about(0, "failed", 1);
  brim_lab_pool_close(pool);
  fail_with(2, "while no server ran");
  brim_lab_pool_options options = pool_extras;
  options.store = store;
  options.version = "9.9";
  assert_ok(brim_lab_pool_open(&options, &pool));
  fail_with(3, "third");
  assert_ok(brim_lab_pool_tend(pool));
  is_about(1, "failed", 3);
  assert_int_equal(got.calls, 2);
}

// A server that ends sends its queued notices at once, without the wait between tries.
static void test_a_receiver_that_is_away(void **state) {
  (void)state;
  enum { FAILURES = 300, QUEUE = 256 };
  brim_lab_pool_close(pool);
  brim_lab_pool_options options = pool_extras;
  options.store = store;
  options.version = "9.9";
  options.webhook_wait_ms = HOUR_MS;
  assert_ok(brim_lab_pool_open(&options, &pool));
  set_refusal(-1, 503);
  lab_submit(store, "g1", 1, FAILURES + 1);
  for (int i = 1; i <= FAILURES; i++) fail_with(i, "why");
  assert_ok(brim_lab_pool_tend(pool));
  wait_for(&got.calls, 1);
  set_refusal(0, 0);
  brim_lab_pool_close(pool);
  pool = NULL;
  assert_int_equal(got.count, QUEUE);
  is_about(0, "failed", FAILURES - QUEUE + 1);  // the oldest were dropped
  is_about(QUEUE - 1, "failed", FAILURES);
}

static void test_refusals(void **state) {
  (void)state;
  lab_submit(store, "g1", 1, 4);
  set_refusal(1, 404);  // a status that allows no retry
  fail_with(1, "why");
  assert_ok(brim_lab_pool_tend(pool));
  wait_for(&got.calls, 1);
  set_refusal(5, 500);  // as often as it is tried
  fail_with(2, "why");
  assert_ok(brim_lab_pool_tend(pool));
  wait_for(&got.calls, 6);
  fail_with(3, "why");
  assert_ok(brim_lab_pool_tend(pool));
  is_about(0, "failed", 3);
  assert_int_equal(got.calls, 7);
}

static void test_addresses(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "server/s3cret",
                                    "ftp://server/s3cret",
                                    "https://",
                                    "https:///s3cret",
                                    "https://?s3cret",
                                    "https://ann:s3cret@server/",
                                    "https://server/#s3cret",
                                    "https://server/a s3cret",
                                    "https://server/\ns3cret",
                                    "https://server/\xc3\xa9s3cret"};
  brim_lab_pool_options options = {.store = store, .version = "9.9"};
  brim_lab_pool *other = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    options.webhook = bad[i];
    assert_status(brim_lab_pool_open(&options, &other), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), "webhook"));
    assert_null(strstr(brim_status_detail(), "s3cret"));
    brim_status_clear();
  }
}

#define HOOK(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      HOOK(test_a_failure), HOOK(test_the_end_of_a_grid),       HOOK(test_a_restart),
      HOOK(test_refusals),  HOOK(test_a_receiver_that_is_away), HOOK(test_addresses),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
