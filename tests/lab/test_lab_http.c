// A server and its clients: replies, limits, requests with two meanings, clients that are slow or gone.
#include "test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_status.h"
#include "lab/http/lab_http.h"
#include "lab/http/lab_http_client.h"

enum { BODY_MAX = 1000, LONG_BODY = 1 << 20 };

typedef struct fixture {
  brim_http_server *server;
  brim_http_client *client;
  brim_http_answer answer;
  atomic_int admitted, served, streams, floods;
} fixture;

static bool admit(void *ctx, const brim_http_request *q, brim_http_reply *reply, size_t *most) {
  fixture *f = (fixture *)ctx;
  atomic_fetch_add(&f->admitted, 1);
  const char *token = brim_http_header(q, "authorization");
  if (strcmp(q->path, "/secret") == 0 && (!token || strcmp(token, "Bearer good") != 0)) {
    brim_http_reply_error(reply, 401, "a token is needed");
    return false;
  }
  *most = strcmp(q->method, "GET") == 0 ? 0 : strcmp(q->path, "/long") == 0 ? LONG_BODY : BODY_MAX;
  return true;
}

static brim_status tick(void *ctx, brim_str *out) {
  (void)ctx;
  brim_clock_sleep_ns(20000000);
  brim_str_append(out, ": tick\n\n");
  return BRIM_OK;
}

static brim_status flood(void *ctx, brim_str *out) {
  atomic_fetch_add(&((fixture *)ctx)->floods, 1);
  brim_str_printf(out, ": %0500d\n\n", 0);
  return BRIM_OK;
}

static void left(void *ctx) { atomic_fetch_sub(&((fixture *)ctx)->streams, 1); }

static void serve(void *ctx, const brim_http_request *q, brim_http_reply *reply) {
  fixture *f = (fixture *)ctx;
  atomic_fetch_add(&f->served, 1);
  if (strcmp(q->path, "/events") == 0 || strcmp(q->path, "/flood") == 0) {
    atomic_fetch_add(&f->streams, 1);
    reply->type = "text/event-stream";
    reply->more = q->path[1] == 'f' ? flood : tick;
    reply->end = left;
    reply->ctx = f;
  } else if (strcmp(q->path, "/file") == 0) {
    reply->type = "text/css";
    reply->file = "body{}";
    reply->file_size = 6;
  } else if (strcmp(q->path, "/values") == 0) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    const char *values[6];
    for (int i = 0; i < 6; i++) values[i] = brim_http_query(q, names[i]);
    for (int i = 0; i < 6; i++) {
      assert_ptr_equal(values[i], brim_http_query(q, names[i]));  // valid as long as the request
      brim_str_printf(&reply->body, "%zu%c ", strlen(values[i]), values[i][0]);
    }
  } else if (strcmp(q->path, "/none") == 0) {
    brim_http_reply_error(reply, 404, "no \"such\" thing");
  } else {
    if (q->body_size == LONG_BODY) {
      brim_http_reply_error(reply, q->body[LONG_BODY] == '\0' ? 413 : 500, "long");
      return;
    }
    const char *key = brim_http_query(q, "key"), *again = brim_http_query(q, "key");
    assert_true(key == again || (key && again && strcmp(key, again) == 0));
    reply->type = "text/plain";
    brim_http_reply_header(reply, "Upload-Offset", "12");
    brim_str_printf(&reply->body, "%s %s key=%s from %s: %.*s", q->method, q->path,
                    key ? key : "(none)", q->peer, (int)q->body_size, q->body);
  }
}

static int setup_with(void **state, int64_t request_ms, int connections) {
  static fixture f;
  memset(&f, 0, sizeof f);
  const brim_http_options options = {.request_ms = request_ms,
                                     .connections = connections,
                                     .bodies_max = 3 * LONG_BODY,
                                     .admit = admit,
                                     .serve = serve,
                                     .ctx = &f};
  brim_status status = brim_http_server_open(&options, &f.server);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
  char url[64];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/", brim_http_server_port(f.server));
  const brim_http_client_options how = {
      .url = url, .token = "good", .insecure = true, .timeout_ms = 20000, .reply_max = 4096};
  assert_ok(brim_http_client_open(&how, &f.client));
  brim_http_answer_init(&f.answer);
  *state = &f;
  return 0;
}

static int setup(void **state) { return setup_with(state, 0, 0); }
static int setup_hasty(void **state) { return setup_with(state, 600, 0); }

static int teardown(void **state) {
  fixture *f = (fixture *)*state;
  brim_http_answer_deinit(&f->answer);
  brim_http_client_close(f->client);
  brim_http_server_close(f->server);
  assert_int_equal(atomic_load(&f->streams), 0);
  return 0;
}

static int call(fixture *f, const char *method, const char *path, const char *body) {
  const brim_http_call how = {
      .method = method, .path = path, .body = body, .body_size = body ? strlen(body) : 0};
  assert_ok(brim_http_client_call(f->client, &how, &f->answer));
  return f->answer.status;
}

static void test_replies(void **state) {
  fixture *f = (fixture *)*state;
  assert_int_equal(call(f, "GET", "/v1/a%20b?key=x%26y+z", NULL), 200);
  assert_string_equal(f->answer.body.data, "GET /v1/a b key=x&y z from 127.0.0.1: ");
  assert_string_equal(f->answer.offset, "12");
  assert_int_equal(call(f, "PATCH", "/log?key=%00", "hello"), 400);
  assert_int_equal(call(f, "PATCH", "/log", "hello"), 200);
  assert_string_equal(f->answer.body.data, "PATCH /log key=(none) from 127.0.0.1: hello");
  assert_int_equal(call(f, "GET", "/file", NULL), 200);
  assert_string_equal(f->answer.body.data, "body{}");
  assert_string_equal(f->answer.offset, "");
  assert_int_equal(call(f, "GET", "/none", NULL), 404);
  assert_string_equal(f->answer.body.data, "{\"error\":\"no \\\"such\\\" thing\"}\n");
  assert_int_equal(call(f, "GET", "/secret", NULL), 200);
  // one connection for all; the one closed by the refusal may still be ending
  for (int i = 0; i < 5000 && brim_http_server_connections(f->server) != 1; i++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  assert_int_equal(brim_http_server_connections(f->server), 1);
}

// When all values were in one string, each new value moved the earlier ones.
static void test_values_stay(void **state) {
  fixture *f = (fixture *)*state;
  brim_str path;
  brim_str_init(&path);
  brim_str_append(&path, "/values?a=x");
  for (char c = 'b'; c < 'g'; c++) {
    brim_str_printf(&path, "&%c=", c);
    brim_str_repeat(&path, c, 100u << (c - 'b') / 2);
  }
  assert_int_equal(call(f, "GET", path.data, NULL), 200);
  assert_string_equal(f->answer.body.data, "1x 100b 100c 200d 200e 400f ");
  brim_str_deinit(&path);
}

static void test_limits(void **state) {
  fixture *f = (fixture *)*state;
  char body[BODY_MAX + 2];
  memset(body, 'x', sizeof body);
  body[BODY_MAX] = '\0';
  assert_int_equal(call(f, "PUT", "/a", body), 200);
  body[BODY_MAX] = 'x';
  body[BODY_MAX + 1] = '\0';
  int served = atomic_load(&f->served);
  assert_int_equal(call(f, "PUT", "/a", body), 413);
  assert_int_equal(call(f, "GET", "/a/%2e%2e/b", NULL), 400);
  assert_int_equal(atomic_load(&f->served), served);
  assert_int_equal(call(f, "GET", "/a", NULL), 200);
  // a reply longer than the client accepts
  const brim_http_call how = {.method = "GET", .path = "/flood", .timeout_ms = 20000};
  assert_status(brim_http_client_call(f->client, &how, &f->answer), BRIM_ELIMIT);
}

//---------------------------------- by hand ----------------------------------

static int dial(const fixture *f) {
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)brim_http_server_port(f->server))};
  struct timeval most = {.tv_sec = 20};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  return fd;
}

// Reads until the server closes; returns the number of replies.
static int exchange(const fixture *f, const char *text, char *out, size_t size) {
  int fd = dial(f), replies = 0;
  size_t n = 0;
  assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
  for (ssize_t got; n + 1 < size && (got = recv(fd, out + n, size - 1 - n, 0)) > 0;)
    n += (size_t)got;
  out[n] = '\0';
  close(fd);
  for (const char *p = out; (p = strstr(p, "HTTP/1.1 ")) != NULL; p++) replies++;
  return replies;
}

#define HIDDEN "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"

// Requests that a proxy in front of the server could read otherwise are refused, and nothing after them is read.
static void test_two_meanings(void **state) {
  fixture *f = (fixture *)*state;
  static const char *const requests[] = {
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n" HIDDEN,
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 33\r\n\r\n" HIDDEN,
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 33\r\n\r\n" HIDDEN,
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n12345" HIDDEN,
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" HIDDEN,
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n" HIDDEN,
      "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" HIDDEN,
      "GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n" HIDDEN,
  };
  char out[8192];
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    int served = atomic_load(&f->served);
    int replies = exchange(f, requests[i], out, sizeof out);
    // the library's own refusals may send their head twice
    bool refused = replies == 0 || strstr(out, " 400 ") || strstr(out, " 413 ");
    if (!refused || strstr(out, " 200 ")) fail_msg("request %zu: %s", i, out);
    assert_int_equal(atomic_load(&f->served), served);
  }
}

// A NUL would end a value for this server, but not for a proxy in front of it.
static void test_controls_in_headers(void **state) {
  fixture *f = (fixture *)*state;
  static const struct {
    const char *text;
    size_t size;
  } heads[] = {
#define HEAD(text) {"GET /a HTTP/1.1\r\nHost: x\r\n" text "\r\n\r\n", sizeof(text) - 1 + 30}
      HEAD("Authorization: Bearer good\0bad"),
      HEAD("Author\0ization: Bearer good"),
      HEAD("X-A: a\0\0 b"),
      HEAD("X-A: \0bad"),
      HEAD("X-A: a\x1b[31m"),
      HEAD("X-A: a\x7f"),
  };
  char out[4096];
  int served = atomic_load(&f->served);
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
    int fd = dial(f);
    size_t n = 0;
    assert_true(send(fd, heads[i].text, heads[i].size, MSG_NOSIGNAL) > 0);
    for (ssize_t got; n + 1 < sizeof out && (got = recv(fd, out + n, sizeof out - 1 - n, 0)) > 0;)
      n += (size_t)got;
    out[n] = '\0';
    close(fd);
    if (strstr(out, " 200 ")) fail_msg("head %zu: %s", i, out);
    assert_int_equal(atomic_load(&f->served), served);
  }
}

// Bodies in transfer share a limit. Short ones still pass.
static void test_bodies_in_flight(void **state) {
  fixture *f = (fixture *)*state;
  char head[128], out[4096];
  int fds[4];
  snprintf(head, sizeof head, "PUT /long HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nx",
           LONG_BODY);
  for (int i = 0; i < 3; i++) {
    fds[i] = dial(f);
    assert_true(send(fds[i], head, strlen(head), MSG_NOSIGNAL) > 0);
  }
  while (atomic_load(&f->admitted) < 3) brim_clock_sleep_ns(1000000);
  assert_int_equal(exchange(f, head, out, sizeof out), 1);
  assert_non_null(strstr(out, " 503 "));
  assert_non_null(strstr(out, "Retry-After: "));
  assert_int_equal(call(f, "PUT", "/a", "short"), 200);
  // closed connections have made room
  for (int i = 0; i < 3; i++) close(fds[i]);
  char *body = (char *)brim_calloc(LONG_BODY + 1, 1);
  memset(body, 'x', LONG_BODY);
  int status = 503;
  for (int i = 0; i < 1000 && status == 503; i++) {
    brim_clock_sleep_ns(10000000);
    status = call(f, "PUT", "/long", body);
  }
  assert_int_equal(status, 413);  // serve()'s own status
  brim_free(body);
}

static void test_refused_before_the_body(void **state) {
  fixture *f = (fixture *)*state;
  char out[4096];
  // the body never comes: the server does not wait for it
  int replies = exchange(f, "PUT /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n", out,
                         sizeof out);
  assert_int_equal(replies, 1);
  assert_non_null(strstr(out, "401"));
  assert_non_null(strstr(out, "Connection: close"));
}

// Heads that never end, and a body that comes byte by byte, are cut off.
static void test_slow_clients(void **state) {
  fixture *f = (fixture *)*state;
  char byte;
  int head = dial(f), body = dial(f);
  const char *start = "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n";
  assert_true(send(body, start, strlen(start), MSG_NOSIGNAL) > 0);
  for (int i = 0; i < 400; i++) {  // 20 s at most
    ssize_t a = send(head, "G", 1, MSG_NOSIGNAL), b = send(body, "x", 1, MSG_NOSIGNAL);
    if (a < 0 && b < 0) break;
    brim_clock_sleep_ns(50000000);
  }
  assert_true(recv(head, &byte, 1, 0) <= 0);
  assert_true(recv(body, &byte, 1, 0) <= 0);
  close(head);
  close(body);
  assert_int_equal(atomic_load(&f->served), 0);
  assert_int_equal(call(f, "GET", "/a", NULL), 200);
}

enum { LISTENERS = 100 };

// Many listeners do not delay ordinary requests, and closed ones are noticed.
static void test_streams(void **state) {
  fixture *f = (fixture *)*state;
  int fds[LISTENERS];
  char text[256];
  for (int i = 0; i < LISTENERS; i++) {
    fds[i] = dial(f);
    const char *ask = "GET /events HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_true(send(fds[i], ask, strlen(ask), MSG_NOSIGNAL) > 0);
  }
  for (int i = 0; i < LISTENERS; i++) assert_true(recv(fds[i], text, sizeof text, 0) > 0);
  assert_int_equal(atomic_load(&f->streams), LISTENERS);
  for (int i = 0; i < 100; i++) assert_int_equal(call(f, "GET", "/a", NULL), 200);
  for (int i = 0; i < LISTENERS / 2; i++) close(fds[i]);
  for (int i = 0; i < 1000 && atomic_load(&f->streams) > LISTENERS / 2; i++) {
    brim_clock_sleep_ns(20000000);
  }
  assert_int_equal(atomic_load(&f->streams), LISTENERS / 2);
  for (int i = LISTENERS / 2; i < LISTENERS; i++) close(fds[i]);
  // closing the server ends the rest
}

// The server queues little for a listener that reads nothing: the kernel would keep megabytes for each.
static void test_a_listener_that_does_not_read(void **state) {
  fixture *f = (fixture *)*state;
  const char *ask = "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n";
  const int small = 4096;
  int fd = dial(f), before = -1, now = 0;
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  assert_true(send(fd, ask, strlen(ask), MSG_NOSIGNAL) > 0);
  while (now == 0 || now != before) {
    before = now;
    brim_clock_sleep_ns(500000000);
    now = atomic_load(&f->floods);
  }
  assert_in_range(now, 1, (1 << 20) / 500);
  close(fd);
}

static brim_status take(void *ctx, const char *data, size_t size) {
  int *left_to_take = (int *)ctx;
  (void)data;
  (void)size;
  return --*left_to_take > 0 ? BRIM_OK : brim_fail(BRIM_EEND, "enough");
}

static void test_client_streams(void **state) {
  fixture *f = (fixture *)*state;
  int pieces = 3, status = 0;
  assert_status(brim_http_client_stream(f->client, "/events", &status, take, &pieces), BRIM_EEND);
  assert_int_equal(pieces, 0);
}

static void test_no_server(void **state) {
  fixture *f = (fixture *)*state;
  brim_http_client *c;
  char url[64];
  brim_http_client_options how = {.url = url, .insecure = true};
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_http_server_port(f->server));
  const brim_http_options taken = {
      .port = brim_http_server_port(f->server), .admit = admit, .serve = serve};
  brim_http_server *second;
  assert_status(brim_http_server_open(&taken, &second), BRIM_EEXIST);
  const brim_http_options nowhere = {
      .address = "no.such.host.invalid", .admit = admit, .serve = serve};
  assert_status(brim_http_server_open(&nowhere, &second), BRIM_EINVAL);
  assert_ok(brim_http_client_open(&how, &c));
  brim_http_server_close(f->server);
  f->server = NULL;
  const brim_http_call ask = {.method = "GET", .path = "/a"};
  assert_status(brim_http_client_call(c, &ask, &f->answer), BRIM_EIO);
  assert_non_null(strstr(brim_status_detail(), url));
  brim_http_client_close(c);
  how.insecure = false;
  assert_status(brim_http_client_open(&how, &c), BRIM_EINVAL);
  static const char *const wrong[] = {"",
                                      "server:8000",
                                      "ftp://x",
                                      "https://",
                                      "https://a b",
                                      "https://user@host",
                                      "file:///etc/passwd"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    how.url = wrong[i];
    assert_status(brim_http_client_open(&how, &c), BRIM_EINVAL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_replies, setup, teardown),
      cmocka_unit_test_setup_teardown(test_values_stay, setup, teardown),
      cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
      cmocka_unit_test_setup_teardown(test_two_meanings, setup, teardown),
      cmocka_unit_test_setup_teardown(test_controls_in_headers, setup, teardown),
      cmocka_unit_test_setup_teardown(test_bodies_in_flight, setup, teardown),
      cmocka_unit_test_setup_teardown(test_refused_before_the_body, setup, teardown),
      cmocka_unit_test_setup_teardown(test_slow_clients, setup_hasty, teardown),
      cmocka_unit_test_setup_teardown(test_streams, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_listener_that_does_not_read, setup, teardown),
      cmocka_unit_test_setup_teardown(test_client_streams, setup, teardown),
      cmocka_unit_test_setup_teardown(test_no_server, setup, teardown),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
