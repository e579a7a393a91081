// The network of the chaos test makes the faults that it counts: each fault alone, between a client and a server.
#include "test.h"

#include <stdatomic.h>

#include "base/base_status.h"
#include "chaos/chaos_int.h"
#include "lab/http/lab_http.h"
#include "lab/http/lab_http_client.h"

static atomic_int served;
static brim_http_server *server;
static brim_chaos_proxy *proxy;
static brim_http_client *client;
static brim_http_answer answer;

static bool admit(void *ctx, const brim_http_request *q, brim_http_reply *reply, size_t *most) {
  (void)ctx;
  (void)q;
  (void)reply;
  *most = 1 << 20;
  return true;
}

static void serve(void *ctx, const brim_http_request *q, brim_http_reply *reply) {
  (void)ctx;
  brim_str_printf(&reply->body, "%d: %.*s", atomic_fetch_add(&served, 1) + 1, (int)q->body_size,
                  q->body);
}

static int open_server(void **state) {
  const brim_http_options options = {.admit = admit, .serve = serve};
  (void)state;
  brim_status status = brim_http_server_open(&options, &server);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
  return 0;
}

static int close_server(void **state) {
  (void)state;
  brim_http_server_close(server);
  return 0;
}

static void begin(int only, int percent) {
  const brim_chaos_proxy_options how = {
      .port = brim_http_server_port(server), .seed = 7, .percent = percent, .only = only};
  char url[64];
  assert_ok(brim_chaos_proxy_open(&how, &proxy));
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_chaos_proxy_port(proxy));
  assert_ok(brim_http_client_open(
      &(brim_http_client_options){.url = url, .insecure = true, .timeout_ms = 60000}, &client));
  brim_http_answer_init(&answer);
  served = 0;
}

static brim_status post(const char *text) {
  const brim_http_call call = {
      .method = "POST", .path = "/x", .body = text, .body_size = strlen(text)};
  return brim_http_client_call(client, &call, &answer);
}

static int64_t end(int fault) {
  int64_t requests, faults[BRIM_CHAOS_FAULT_COUNT];
  brim_chaos_proxy_counts(proxy, &requests, faults);
  brim_http_client_close(client);
  brim_http_answer_deinit(&answer);
  brim_chaos_proxy_close(proxy);
  return fault < 0 ? requests : faults[fault];
}

static void test_messages(void **state) {
  static const struct {
    const char *text;
    int size;  // -1: incomplete
  } rows[] = {
      {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27},
      {"GET / HTTP/1.1\r\nHost: a\r\n", -1},
      {"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", 41},
      {"POST / HTTP/1.1\r\nContent-Length:3\r\n\r\nabcd", 40},
      {"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nabc", -1},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 60},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", -1},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", -1},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", -1},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t size = 0;
    bool whole = brim_chaos_message_whole(rows[i].text, strlen(rows[i].text), &size);
    if (whole != (rows[i].size >= 0)) fail_msg("row %zu is%s whole", i, whole ? "" : " not");
    if (whole) assert_int_equal(size, rows[i].size);
  }
}

static void test_no_fault(void **state) {
  (void)state;
  begin(-1, 0);
  for (int i = 1; i <= 20; i++) {
    char text[40];
    assert_ok(post("hello"));
    snprintf(text, sizeof text, "%d: hello", i);
    assert_string_equal(answer.body.data, text);
  }
  assert_int_equal(end(-1), 20);
  // the server has ended
  begin(-1, 0);
  brim_http_server_close(server);
  assert_status(post("a"), BRIM_EIO);
  end(-1);
  open_server(NULL);
}

// The client gets no reply, whether the server ran the request or not.
static void test_dropped(void **state) {
  static const struct {
    int fault, served;
  } rows[] = {{BRIM_CHAOS_DROP_REQUEST, 0}, {BRIM_CHAOS_DROP_REPLY, 1}, {BRIM_CHAOS_CUT_REPLY, 1}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    begin(rows[i].fault, 100);
    for (int k = 1; k <= 20; k++) {  // cut at any byte
      assert_status(post("hello"), BRIM_EIO);
      assert_int_equal(served, k * rows[i].served);
    }
    brim_chaos_proxy_calm(proxy);
    assert_ok(post("hello"));
    assert_int_equal(served, 20 * rows[i].served + 1);
    assert_int_equal(end(rows[i].fault), 20);
  }
}

static void test_twice(void **state) {
  int first = 0;
  (void)state;
  begin(BRIM_CHAOS_TWICE, 100);
  for (int i = 0; i < 40; i++) {
    assert_ok(post("hello"));
    assert_int_equal(served, 2 * (i + 1));
    first += strtol(answer.body.data, NULL, 10) == 2 * i + 1;
  }
  assert_in_range(first, 1, 39);  // the reply to one of the two
  assert_int_equal(end(BRIM_CHAOS_TWICE), 40);
}

static void test_late(void **state) {
  (void)state;
  for (int fault = 0; fault < 2; fault++) {
    int of = fault ? BRIM_CHAOS_LATE_REPLY : BRIM_CHAOS_LATE_REQUEST;
    begin(of, 100);
    assert_ok(post("hello"));
    assert_int_equal(end(of), 1);
  }
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_messages), cmocka_unit_test(test_no_fault),
      cmocka_unit_test(test_dropped),  cmocka_unit_test(test_twice),
      cmocka_unit_test(test_late),
  };
  return cmocka_run_group_tests(tests, open_server, close_server);
}
