// The dashboard's page, script and style sheet as a browser gets them: headers, caching, and no path out of its folder.
#include "lab_test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lab/pool/lab_pool.h"

static lab_place place;
static brim_store *store;
static brim_lab_pool *pool;
static brim_str reply;

static int setup(void **state) {
  (void)state;
  lab_new_place(&place);
  store = lab_open(&place);
  // A token in the store makes every request except for the page need one.
  char secret[BRIM_TOKEN], sha256[65];
  assert_ok(brim_token_make(secret));
  brim_token_hash(secret, sha256);
  const brim_store_token token = {.id = "me", .role = "read", .sha256 = sha256};
  assert_ok(brim_store_token_add(store, &token));
  const brim_lab_pool_options options = {.store = store, .version = "9.9"};
  brim_status status = brim_lab_pool_open(&options, &pool);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
  brim_str_init(&reply);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  brim_str_deinit(&reply);
  brim_lab_pool_close(pool);
  brim_store_close(store);
  return 0;
}

// Sends a request unchanged and returns the status; `reply` has head and body.
static int ask(const char *method, const char *path, const char *headers) {
  char text[1024], block[4096];
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)brim_lab_pool_port(pool))};
  assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &to.sin_addr), 1);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  int n = snprintf(text, sizeof text,
                   "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s\r\n", method, path,
                   headers);
  assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
  brim_str_clear(&reply);
  for (ssize_t got; (got = recv(fd, block, sizeof block, 0)) > 0;) {
    brim_str_append_n(&reply, block, (size_t)got);
  }
  close(fd);
  assert_ok(brim_str_status(&reply));
  return reply.len > 12 ? atoi(reply.data + strlen("HTTP/1.1 ")) : 0;
}

static bool has(const char *text) { return strstr(reply.data, text) != NULL; }
static void head_has(const char *line) {
  const char *at = strstr(reply.data, line), *end = strstr(reply.data, "\r\n\r\n");
  if (!at || !end || at > end) fail_msg("no '%s' in %.900s", line, reply.data);
}
static const char *body(void) { return strstr(reply.data, "\r\n\r\n") + 4; }

// Finds the path in the page that ends with this.
static void path_of(const char *ending, char out[128]) {
  for (const char *at = body(); (at = strstr(at, "\"/assets/")); at++) {
    int n = (int)strcspn(at + 1, "\"");
    snprintf(out, 128, "%.*s", n, at + 1);
    if (strcmp(out + n - (int)strlen(ending), ending) == 0) return;
  }
  fail_msg("no %s in the page: %s", ending, body());
}

static void tag_of(char out[160]) {
  const char *at = strstr(reply.data, "ETag: ");
  assert_non_null(at);
  at += strlen("ETag: ");
  snprintf(out, 160, "If-None-Match: %.*s\r\n", (int)strcspn(at, "\r"), at);
}

static void check_safe(void) {
  head_has("Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; ");
  head_has("frame-ancestors 'none'");
  head_has("X-Content-Type-Options: nosniff");
  head_has("Referrer-Policy: no-referrer");
}

static void test_page(void **state) {
  (void)state;
  char tag[160];
  assert_int_equal(ask("GET", "/v1/counts", ""), 401);
  assert_int_equal(ask("GET", "/", ""), 200);
  check_safe();
  head_has("Content-Type: text/html; charset=utf-8");
  head_has("Cache-Control: no-cache");
  assert_true(has("<!DOCTYPE html>"));
  // the content policy would refuse inline scripts
  assert_false(has("<style") || has("<script>") || has("onload="));
  tag_of(tag);
  assert_int_equal(ask("GET", "/", tag), 304);
  check_safe();
  assert_string_equal(body(), "");
  assert_int_equal(ask("GET", "/", "If-None-Match: \"another\"\r\n"), 200);
  assert_int_equal(ask("HEAD", "/", ""), 200);
  assert_string_equal(body(), "");
  assert_int_equal(ask("POST", "/", "Content-Length: 0\r\n"), 405);
  assert_int_equal(ask("GET", "/?token=x", ""), 200);
}

static void check_asset(const char *path, const char *type) {
  char tag[160], plain[160];
  assert_int_equal(ask("GET", path, ""), 200);
  check_safe();
  head_has(type);
  head_has("Cache-Control: public, max-age=31536000, immutable");
  head_has("Vary: Accept-Encoding");
  assert_false(has("Content-Encoding"));
  size_t size = reply.len;
  tag_of(plain);
  assert_int_equal(ask("GET", path, plain), 304);
  assert_int_equal(ask("GET", path, "Accept-Encoding: gzip;q=0\r\n"), 200);
  assert_int_equal(reply.len, size);
  assert_int_equal(ask("GET", path, "Accept-Encoding: br, gzip\r\n"), 200);
  head_has("Content-Encoding: gzip");
  assert_true(reply.len < size);
  assert_memory_equal(body(), "\x1f\x8b", 2);
  tag_of(tag);
  assert_string_not_equal(tag, plain);  // other bytes have another tag
  char both[200];
  snprintf(both, sizeof both, "Accept-Encoding: gzip\r\n%s", tag);
  assert_int_equal(ask("GET", path, both), 304);
}

static void test_assets(void **state) {
  (void)state;
  char js[128], css[128];
  assert_int_equal(ask("GET", "/", ""), 200);
  path_of(".js", js);
  path_of(".css", css);
  check_asset(js, "Content-Type: text/javascript; charset=utf-8");
  assert_int_equal(ask("GET", js, ""), 200);
  assert_true(has("Permission is hereby granted"));  // uPlot's licence is in the file
  check_asset(css, "Content-Type: text/css; charset=utf-8");
}

static void test_nothing_else(void **state) {
  (void)state;
  static const char *const paths[] = {"/assets/../v1/counts",
                                      "/assets/%2e%2e/v1/counts",
                                      "/assets/..%2fv1%2fcounts",
                                      "/assets/%252e%252e/x",
                                      "/assets/",
                                      "/assets",
                                      "//",
                                      "/.",
                                      "/index.html",
                                      "/assets/dashboard.js",
                                      "/assets/dashboard-0000000000000000.js",
                                      "/assets/..\\..\\x",
                                      "/web/dashboard/main.js"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    int status = ask("GET", paths[i], "");
    if (status != 401 && status != 400) fail_msg("%s: %d", paths[i], status);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_page, setup, teardown),
      cmocka_unit_test_setup_teardown(test_assets, setup, teardown),
      cmocka_unit_test_setup_teardown(test_nothing_else, setup, teardown),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
