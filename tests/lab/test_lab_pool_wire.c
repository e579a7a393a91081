// Attacks on the server of a pool below the level of requests: heads, requests that two programs read differently,
// clients that stop, more connections and bad tokens than are allowed.
#include "lab_attack.h"

#include <sys/resource.h>

#include "base/base_clock.h"

//---------------------------------- heads ----------------------------------

// No input of a client gets into the head of a reply.
static void test_header_injection(void **state) {
  (void)state;
  static const char *const headers[] = {"Cookie: brim_session=a\rX-Injected: 1\r\n",
                                        "Cookie: brim_session=a%0d%0aX-Injected: 1\r\n",
                                        "Last-Event-ID: 1%0d%0aX-Injected: 1\r\n",
                                        "Origin: http://x%0d%0aX-Injected: 1\r\n",
                                        "X-Forwarded-Host: X-Injected\r\n",
                                        "Accept: X-Injected\r\n",
                                        "Content-Type: X-Injected\r\n",
                                        "Range: X-Injected\r\n",
                                        "If-None-Match: X-Injected\r\n"};
  char lines[512];
  for (EACH_ROUTE(r)) {
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
      snprintf(lines, sizeof lines, "%s%s", bearer(attack_tokens[BRIM_ROLE_ADMIN]), headers[i]);
      (void)ask(r->method, path_of(r), lines, body_of(r));
      char *end = strstr(got.text, "\r\n\r\n");
      if (end) *end = '\0';
      expect(!strstr(got.text, "X-Injected"), r, headers[i]);
    }
  }
  static const char *const bodies[] = {"{\"token\": \"a\\r\\nX-Injected: 1\"}",
                                       "{\"token\": \"a; Domain=X-Injected\"}"};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    assert_int_equal(ask("POST", "/v1/session", NULL, bodies[i]), 401);
    assert_null(strstr(got.text, "X-Injected"));
  }
}

#define HIDDEN "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define POST_HEAD "POST /v1/retry-failed HTTP/1.1\r\nHost: localhost\r\n"

// Requests that a proxy in front of the server may count differently. Each is refused, and nothing after it is read.
static void test_smuggling(void **state) {
  (void)state;
  static const char *const requests[] = {
      POST_HEAD "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD " Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "Content-Length:\r\n 2\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length: 2\r\n\t4\r\n\r\n{}" HIDDEN,
      POST_HEAD "X: y\rContent-Length: 2\r\n\r\n{}" HIDDEN,
      POST_HEAD "X: y\x01\r\n\r\n" HIDDEN,
      POST_HEAD "Transfer-Encoding: chunked;a=b\r\n\r\n2;ext=\"\r\n\"\r\n{}\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "transfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length: 2\r\nContent-Length: 44\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length: 2, 2\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length: 0x2\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length: 2 2\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length: 2\x0b\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length:\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length: 18446744073709551618\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length : 2\r\n\r\n{}" HIDDEN,
      POST_HEAD "Content-Length\x0b: 2\r\n\r\n{}" HIDDEN,
      POST_HEAD "X\r\n\r\n{}" HIDDEN,
      POST_HEAD "X y: z\r\n\r\n{}" HIDDEN,
      "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n" HIDDEN,
      "GET /v1/hello HTTP/1.1\r\nHost : evil.example\r\nHost: localhost\r\n\r\n" HIDDEN,
      "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n" HIDDEN,
      "GET /v1/hello HTTP/1.1\r\n\r\n" HIDDEN,
      "GET /v1/hello HTTP/2.0\r\nHost: localhost\r\n\r\n" HIDDEN,
      "GET /v1/hello HTTP/1.1 x\r\nHost: localhost\r\n\r\n" HIDDEN,
      "GET /v1/hello\r\n\r\n" HIDDEN,
      "GET\x0b/v1/hello HTTP/1.1\r\nHost: localhost\r\n\r\n" HIDDEN,
      "GET http://evil.example/v1/hello HTTP/1.1\r\nHost: localhost\r\n\r\n" HIDDEN,
      "CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n" HIDDEN,
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" HIDDEN,
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n" HIDDEN,
      "GET /v1/hello%0d%0aHost:%20x HTTP/1.1\r\nHost: localhost\r\n\r\n" HIDDEN,
      // refused for its length, and its body is not read as a request
      "POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n" HIDDEN,
      "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 44\r\n\r\n" HIDDEN,
      "GET /v1/%2e%2e HTTP/1.1\r\nHost: localhost\r\n\r\n" HIDDEN,
  };
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    int status = ask_bytes(requests[i]);
    bool refused = status == 0 || (status >= 400 && status < 506);
    if (!refused || strstr(got.text, " 200 ")) fail_msg("request %zu: %s", i, got.text);
  }
}

// A bare LF ends a line or makes the request malformed; it never hides one line in another.
static void test_bare_line_feeds(void **state) {
  (void)state;
  static const char *const requests[] = {
      POST_HEAD "X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" HIDDEN,
      POST_HEAD "Content-Length: 2\nContent-Length: 44\r\n\r\n{}" HIDDEN,
      POST_HEAD
      "X: y\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\nContent-Length: "
      "2\r\n\r\n{}" HIDDEN,
  };
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    (void)ask_bytes(requests[i]);
    if (strstr(got.text, " 200 ")) fail_msg("request %zu: %s", i, got.text);
  }
}

// Good requests in a row are answered in order; a bad one ends the connection.
static void test_pipelines(void **state) {
  (void)state;
  assert_int_equal(
      ask_bytes(HIDDEN HIDDEN "GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" HIDDEN), 200);
  assert_int_equal(got.count, 3);
  assert_non_null(strstr(got.text, "HTTP/1.1 404"));
  // more bytes than were declared
  assert_int_equal(ask_bytes(POST_HEAD "Content-Length: 2\r\n\r\n{}{}\r\n\r\n" HIDDEN), 200);
  assert_null(strstr(strstr(got.text, " 200 ") + 1, " 200 "));
}

static void test_many_headers(void **state) {
  (void)state;
  brim_str text;
  brim_str_init(&text);
  brim_str_append(&text, "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\n");
  for (int i = 0; i < 20000; i++) brim_str_printf(&text, "X-%d: y\r\n", i);
  brim_str_append(&text, "\r\n");
  int status = raw_bytes(brim_lab_pool_port(attack_pool), text.data, text.len, &got);
  if (status == 200 || (status >= 500 && status != 501)) fail_msg("%s", got.text);
  brim_str_clear(&text);
  brim_str_append(&text, "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\nX: ");
  brim_str_repeat(&text, 'y', 1 << 20);
  status = raw_bytes(brim_lab_pool_port(attack_pool), text.data, text.len, &got);
  assert_int_not_equal(status, 200);
  brim_str_deinit(&text);
  assert_int_equal(
      ask_bytes("GET /v1/hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 200);
}

//---------------------------------- slow clients ----------------------------------

enum { CONNECTIONS = 40 };

static int setup_hasty(void **state) {
  (void)state;
  attack_open(&(brim_lab_pool_options){.request_ms = 300, .idle_ms = 1000});
  return 0;
}

static int setup_few(void **state) {
  (void)state;
  attack_open(&(brim_lab_pool_options){.connections = CONNECTIONS});
  return 0;
}

static int open_now(void) { return brim_http_server_connections(attack_pool->http); }

static void wait_for(int connections) {
  for (int i = 0; i < 3000 && open_now() != connections; i++) brim_clock_sleep_ns(10000000);
  assert_int_equal(open_now(), connections);
}

// The server closes each of them, whatever its client does.
static void test_clients_that_stop(void **state) {
  (void)state;
  static const char *const starts[] = {"",
                                       "G",
                                       "GET /v1/hello HTTP/1.1\r\n",
                                       "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\nX: ",
                                       POST_HEAD "Content-Length: 2\r\n\r\n",
                                       POST_HEAD "Content-Length: 2\r\n\r\n{",
                                       HIDDEN "GET /v1/hel"};
  enum { COUNT = sizeof starts / sizeof *starts };
  int fds[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    fds[i] = raw_dial(brim_lab_pool_port(attack_pool));
    assert_true(raw_send(fds[i], starts[i], strlen(starts[i])));
  }
  for (size_t i = 0; i < COUNT; i++) {  // each read ends because the server closes
    raw_read(fds[i], &got);
    assert_int_equal(got.count, i == COUNT - 1);
  }
  wait_for(0);
  for (size_t i = 0; i < COUNT; i++) close(fds[i]);
}

// Replies larger than the kernel's buffer of a connection, which the client does not read.
static void test_readers_that_stop(void **state) {
  (void)state;
  lab_submit(attack_store, "g1", 1, 12000);
  static const char *const paths[] = {"/v1/exps?texts=true", "/v1/export"};
  int fds[2];
  for (int i = 0; i < 2; i++) {
    char text[256];
    fds[i] = raw_dial(brim_lab_pool_port(attack_pool));
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", paths[i]);
    assert_true(raw_send(fds[i], text, strlen(text)));
  }
  // these connections do not block others
  for (int i = 0; i < 20; i++) assert_int_equal(ask("GET", "/v1/counts", NULL, NULL), 200);
  assert_int_equal(ask("POST", "/v1/retry-failed", NULL, "{}"), 200);
  wait_for(0);
  for (int i = 0; i < 2; i++) close(fds[i]);
}

static void test_half_closed(void **state) {
  (void)state;
  int fd = raw_dial(brim_lab_pool_port(attack_pool));
  assert_true(raw_send(fd, HIDDEN, strlen(HIDDEN)));
  shutdown(fd, SHUT_WR);  // still reads
  raw_read(fd, &got);
  close(fd);
  assert_int_equal(got.count, 1);
  assert_int_equal(got.status, 200);
  fd = raw_dial(brim_lab_pool_port(attack_pool));
  assert_true(raw_send(fd, HIDDEN, strlen(HIDDEN) - 2));
  shutdown(fd, SHUT_WR);
  raw_read(fd, &got);
  close(fd);
  assert_int_equal(got.count, 0);
  wait_for(0);
}

static int dial_from(const char *address) {
  struct sockaddr_in from = {.sin_family = AF_INET},
                     to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)brim_lab_pool_port(attack_pool))};
  struct timeval most = {.tv_sec = 30};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, address, &from.sin_addr);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  if (bind(fd, (struct sockaddr *)&from, sizeof from) != 0) {
    close(fd);
    return -1;
  }
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

// One address that takes as many connections as it gets leaves some for others, and existing connections stay served.
static void test_all_connections(void **state) {
  (void)state;
  int fds[2 * CONNECTIONS], old = raw_dial(brim_lab_pool_port(attack_pool));
  char text[4096];
  assert_true(raw_send(old, HIDDEN, strlen(HIDDEN)));
  assert_true(recv(old, text, sizeof text, 0) > 0);
  for (int i = 0; i < 2 * CONNECTIONS; i++) {
    fds[i] = dial_from("127.0.0.2");
    if (fds[i] < 0) BRIM_SKIP("127.0.0.2 is no address of this machine");
  }
  wait_for(CONNECTIONS * 3 / 4 + 1);
  assert_true(raw_send(old, HIDDEN, strlen(HIDDEN)));
  assert_true(recv(old, text, sizeof text, 0) > 0);
  assert_int_equal(ask("GET", "/v1/hello", NULL, NULL), 200);
  for (int i = 0; i < 2 * CONNECTIONS; i++) close(fds[i]);
  wait_for(1);
  close(old);
}

// One connection more than the server takes: it is served when another one has closed.
static void test_a_thousand(void **state) {
  (void)state;
  enum { MANY = 750 };
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  struct rlimit more = {.rlim_cur = 4096 < limit.rlim_max ? 4096 : limit.rlim_max,
                        .rlim_max = limit.rlim_max};
  if (more.rlim_cur < 2 * MANY + 100) BRIM_SKIP("too few open files are allowed");
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
  static int fds[1000];
  for (int i = 0; i < 1000; i++) fds[i] = raw_dial(brim_lab_pool_port(attack_pool));
  wait_for(MANY);
  raw_reply *r = &got;
  assert_true(raw_send(fds[0], HIDDEN, strlen(HIDDEN)));  // one of the first connections
  assert_true(recv(fds[0], r->text, sizeof r->text, 0) > 0);
  for (int i = 0; i < 1000; i++) close(fds[i]);
  wait_for(0);
  assert_int_equal(ask("GET", "/v1/hello", NULL, NULL), 200);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

//---------------------------------- many bad tokens ----------------------------------

static void test_many_bad_tokens(void **state) {
  (void)state;
  int status = 0, tries = 0;
  for (; tries < 1000 && status != 429; tries++) {
    status = ask("GET", "/v1/counts", bearer("brim_wrong"), NULL);
    assert_true(status == 401 || status == 429);
  }
  assert_in_range(tries, 10, 100);
  assert_non_null(strstr(got.text, "Retry-After: "));
  assert_int_equal(ask("POST", "/v1/session", NULL, "{\"token\": \"brim_wrong\"}"), 429);
  // a good token is accepted, because another machine may share the address
  assert_int_equal(ask_as(BRIM_ROLE_READ, "GET", "/v1/counts", NULL), 200);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, attack_setup, attack_teardown)
#define TEST_WITH(name, how) cmocka_unit_test_setup_teardown(name, how, attack_teardown)

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST_WITH(test_header_injection, attack_setup_tokens),
      TEST_WITH(test_smuggling, setup_hasty),
      TEST_WITH(test_bare_line_feeds, setup_hasty),
      TEST_WITH(test_pipelines, setup_hasty),
      TEST_WITH(test_many_headers, setup_hasty),
      TEST_WITH(test_clients_that_stop, setup_hasty),
      cmocka_unit_test_setup_teardown(test_readers_that_stop, setup_hasty, attack_teardown_large),
      TEST_WITH(test_half_closed, setup_hasty),
      TEST_WITH(test_all_connections, setup_few),
      TEST(test_a_thousand),
      TEST_WITH(test_many_bad_tokens, attack_setup_tokens),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
