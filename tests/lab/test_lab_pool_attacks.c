// Attacks on the server of a pool: requests, callers, and bodies. They run over the table of routes, so a new route
// needs no new test.
#include "lab_attack.h"

#include "lab/grid/lab_grid.h"

//---------------------------------- paths ----------------------------------

static void test_paths(void **state) {
  (void)state;
  static const char *const refused[] = {"..",
                                        "%2e%2e",
                                        ".%2e",
                                        "%2E%2E%2F%2E%2E%2Fetc%2Fpasswd",
                                        "%252e%252e",
                                        "%252e%252e%252f",
                                        "..%2f..%2fetc",
                                        "..%5c..%5c",
                                        "..\\",
                                        "%00",
                                        "a%00.log",
                                        "%0d%0aX-Injected:%201",
                                        "%0a",
                                        "%7f",
                                        "%c0%ae%c0%ae",
                                        "%e0%80%ae%e0%80%ae",
                                        "%c0%af",
                                        "%f8%80%80%80%ae",
                                        "%ed%a0%80",
                                        "%ff",
                                        "%",
                                        "%2",
                                        "%zz",
                                        "%u002e",
                                        "%25",
                                        ".",
                                        "%2e",
                                        ""};
  static const char *const odd[] = {
      ";",   "..;", "a;b=..",  "~root", "*", "'%20or%20''='", "%22%3e%3c", "%ef%bc%8e%ef%bc%8e",
      "CON", "-1",  "$%7Bx%7D"};
  char path[1024], longest[801];
  memset(longest, 'a', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  for (EACH_ROUTE(r)) {
    brim_role role = r->role == BRIM_ROLE_WORKER ? BRIM_ROLE_WORKER : BRIM_ROLE_ADMIN;
    for (int at = 0; spell_path(r, at, "x", path, sizeof path); at++) {
      for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        spell_path(r, at, refused[i], path, sizeof path);
        int status = ask_as(role, r->method, path, body_of(r));
        expect(status == 400, r, refused[i]);
        expect(!strstr(got.text, "X-Injected"), r, refused[i]);
      }
      for (size_t i = 0; i <= sizeof odd / sizeof *odd; i++) {
        bool last = i == sizeof odd / sizeof *odd;
        spell_path(r, at, last ? longest : odd[i], path, sizeof path);
        int status = ask_as(role, r->method, path, body_of(r));
        expect(status >= 200 && status < 500, r, last ? "a long name" : odd[i]);
      }
    }
  }
}

static void test_whole_paths(void **state) {
  (void)state;
  static const char *const whole[] = {
      "/../v1/hello",  "/v1/../v1/hello", "//v1/hello", "/v1//hello", "/v1/hello/",
      "/%2e%2e/hello", "/v1%2fhello/..",  "v1/hello",   "*",          "/v1/hello%00"};
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
    int status = ask_as(BRIM_ROLE_ADMIN, "GET", whole[i], NULL);
    if (status != 400 && status != 404) fail_msg("%s: %s", whole[i], got.text);
  }
}

static void test_long_paths(void **state) {
  (void)state;
  static const size_t sizes[] = {1000, 1100, 5000, 31000, 40000, 200000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    brim_str path;
    brim_str_init(&path);
    brim_str_append(&path, "/v1/exps/");
    brim_str_repeat(&path, 'a', sizes[i]);
    int status = ask_as(BRIM_ROLE_READ, "GET", path.data, NULL);
    if (status == 200 || status >= 500) fail_msg("%zu: %s", sizes[i], got.text);
    brim_str_deinit(&path);
  }
  assert_int_equal(ask_as(BRIM_ROLE_READ, "GET", "/v1/hello", NULL), 200);
}

// Malformed query values are refused, not ignored.
static void test_queries(void **state) {
  (void)state;
  static const char *const bad[] = {"%00",    "%ff", "%c0%ae", "%", "%2", "a%0d%0aX-Injected:%201",
                                    "%1b[31m"};
  char path[512];
  for (EACH_ROUTE(r)) {
    for (size_t f = 0;; f++) {
      const char *key = NULL;
      char kind = r->op < BRIM_LAB_OP_COUNT ? brim_lab_op_field(r->op, f, &key) : 0;
      if (strcmp(r->path, "v1/events") == 0 && f == 0) {
        key = "after";
        kind = 'i';
      }
      if (!key || strcmp(r->method, "GET") != 0) break;
      for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(path, sizeof path, "%s?%s=%s", path_of(r), key, bad[i]);
        int status = ask_as(BRIM_ROLE_ADMIN, r->method, path, body_of(r));
        expect(status == 400 && !strstr(got.text, "X-Injected"), r, path);
      }
      snprintf(path, sizeof path, "%s?%s=99999999999999999999", path_of(r), key);
      int status = ask_as(BRIM_ROLE_ADMIN, r->method, path, body_of(r));
      expect(status >= 200 && status < 500, r, path);
      if (kind == 'i') expect(status == 400, r, path);
    }
  }
}

// Names that only some routes read, tried on all of them.
static void test_values(void **state) {
  (void)state;
  static const char *const names[] = {"attempt", "stream", "from",   "limit", "offset",
                                      "fence",   "size",   "sha256", "points"};
  static const char *const values[] = {
      "-1", "-9223372036854775808",   "9223372036854775807", "99999999999999999999", "1e9", "x",
      "",   "../../../../etc/passwd", "stdout/../../x"};
  brim_str path;
  brim_str_init(&path);
  for (EACH_ROUTE(r)) {
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      brim_str_clear(&path);
      brim_str_printf(&path, "%s?", path_of(r));
      for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        brim_str_printf(&path, "&%s=%s", names[i], values[v]);
        int status = ask_as(BRIM_ROLE_ADMIN, r->method, path.data, body_of(r));
        expect(status >= 200 && status < 500, r, path.data);
        expect(!strstr(got.text, "root:"), r, path.data);
      }
    }
  }
  brim_str_deinit(&path);
}

//---------------------------------- callers ----------------------------------

static void test_every_role(void **state) {
  (void)state;
  for (EACH_ROUTE(r)) {
    // a call's fields are in its body; a token begins a session
    if (!takes_a_token(r) || strcmp(r->path, "v1/call") == 0) continue;
    for (int role = 0; role < BRIM_ROLE_COUNT; role++) {
      int status = ask_as((brim_role)role, r->method, path_of(r), body_of(r));
      bool allowed = brim_role_allows((brim_role)role, r->role);
      expect((status == 403) == !allowed, r, brim_role_name((brim_role)role));
      expect(status != 401 && status != 405 && status < 500, r, brim_role_name((brim_role)role));
    }
  }
  // some entries of the table of roles, checked one by one
  assert_true(brim_role_allows(BRIM_ROLE_WORKER, BRIM_ROLE_READ));
  assert_false(brim_role_allows(BRIM_ROLE_WORKER, BRIM_ROLE_SUBMIT));
  assert_false(brim_role_allows(BRIM_ROLE_SUBMIT, BRIM_ROLE_WORKER));
  assert_false(brim_role_allows(BRIM_ROLE_READ, BRIM_ROLE_SUBMIT));
  assert_false(brim_role_allows(BRIM_ROLE_WORKER, BRIM_ROLE_ADMIN));
}

// The same through /v1/call.
static void test_every_role_by_call(void **state) {
  (void)state;
  char body[256];
  for (EACH_ROUTE(r)) {
    if (r->op == BRIM_LAB_OP_COUNT) continue;
    snprintf(body, sizeof body, "{\"op\": \"%s\", \"worker\": \"worker.a\"}",
             brim_lab_op_name(r->op));
    for (int role = 0; role < BRIM_ROLE_COUNT; role++) {
      int status = ask_as((brim_role)role, "POST", "/v1/call", body);
      bool allowed = brim_role_allows((brim_role)role, brim_pool_route_of(r->op)->role);
      expect((status == 403) == !allowed, r, body);
      expect(status != 401 && status < 500 + (status == 501), r, body);
    }
    expect(ask("POST", "/v1/call", NULL, body) == 401, r, "a call without a token");
  }
}

static void test_every_method(void **state) {
  (void)state;
  static const char *const methods[] = {"GET",     "POST",  "PUT", "PATCH",  "DELETE",
                                        "OPTIONS", "TRACE", "get", "POSTED", "BREW"};
  for (EACH_ROUTE(r)) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
      char path[256];
      bool known;
      snprintf(path, sizeof path, "%s", path_of(r));
      if (brim_pool_route_find(methods[i], path, NULL, &known)) continue;
      int status = ask_as(BRIM_ROLE_ADMIN, methods[i], path, NULL);
      expect(status == 405 || status == 400 || status == 501, r, methods[i]);
      // without a token the reply does not show that the path exists
      if (status == 405) expect(ask(methods[i], path, NULL, NULL) == 401, r, methods[i]);
    }
  }
}

static void test_bad_tokens(void **state) {
  (void)state;
  char cut[BRIM_TOKEN], other[BRIM_TOKEN], lines[8][256], huge[4096];
  snprintf(cut, sizeof cut, "%s", attack_tokens[BRIM_ROLE_ADMIN]);
  cut[strlen(cut) - 1] = '\0';
  snprintf(other, sizeof other, "%s", attack_tokens[BRIM_ROLE_ADMIN]);
  other[10] = other[10] == 'a' ? 'b' : 'a';
  snprintf(huge, sizeof huge, "Authorization: Bearer %0*d\r\n", 3000, 0);
  snprintf(lines[0], 256, "Authorization: Bearer %s\r\n", cut);
  snprintf(lines[1], 256, "Authorization: Bearer %s\r\n", other);
  snprintf(lines[2], 256, "Authorization: Bearer %s\r\n", attack_ended);
  snprintf(lines[3], 256, "Authorization: Bearer %sx\r\n", attack_tokens[BRIM_ROLE_ADMIN]);
  snprintf(lines[4], 256, "Authorization: Basic %s\r\n", attack_tokens[BRIM_ROLE_ADMIN]);
  snprintf(lines[5], 256, "Authorization: %s\r\n", attack_tokens[BRIM_ROLE_ADMIN]);
  snprintf(lines[6], 256, "Cookie: brim_session=%s\r\n", attack_tokens[BRIM_ROLE_ADMIN]);
  snprintf(lines[7], 256, "X-Authorization: Bearer %s\r\n", attack_tokens[BRIM_ROLE_ADMIN]);
  for (EACH_ROUTE(r)) {
    if (!takes_a_token(r)) continue;
    expect(ask(r->method, path_of(r), NULL, body_of(r)) == 401, r, "no token");
    expect(strstr(got.text, "WWW-Authenticate: Bearer"), r, "no token");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
      int status = ask(r->method, path_of(r), lines[i], body_of(r));
      expect(status == 401 || status == 429, r, lines[i]);
    }
    int status = ask(r->method, path_of(r), huge, body_of(r));
    expect(status == 401 || status == 429, r, "a long token");
    // a token in the query does not count
    char path[512];
    snprintf(path, sizeof path, "%s?token=%s&access_token=%s", path_of(r),
             attack_tokens[BRIM_ROLE_ADMIN], attack_tokens[BRIM_ROLE_ADMIN]);
    expect(ask(r->method, path, NULL, body_of(r)) == 401, r, "a token in the query");
  }
}

static void begin_session(brim_role role, char cookie[256]) {
  char body[128];
  snprintf(body, sizeof body, "{\"token\": \"%s\"}", attack_tokens[role]);
  assert_int_equal(ask("POST", "/v1/session", NULL, body), 200);
  const char *value = strstr(got.text, "Set-Cookie: ");
  assert_non_null(value);
  value += strlen("Set-Cookie: ");
  snprintf(cookie, 256, "Cookie: %.*s\r\n", (int)strcspn(value, ";"), value);
}

// A page of another site cannot choose its Origin. Every request that changes state needs one.
static void test_foreign_pages(void **state) {
  (void)state;
  char cookie[256], lines[512];
  begin_session(BRIM_ROLE_ADMIN, cookie);
  static const char *const origins[] = {"",
                                        "Origin: https://evil.example\r\n",
                                        "Origin: null\r\n",
                                        "Origin: http://localhost.evil.example\r\n",
                                        "Origin: http://localhost:1\r\n",
                                        "Origin: localhost\r\n",
                                        "Origin: \r\n",
                                        "Referer: http://localhost/\r\n"};
  for (EACH_ROUTE(r)) {
    bool reads = strcmp(r->method, "GET") == 0;
    for (size_t i = 0; i < sizeof origins / sizeof *origins && takes_a_token(r); i++) {
      snprintf(lines, sizeof lines, "%s%s", cookie, origins[i]);
      int status = ask(r->method, path_of(r), lines, body_of(r));
      expect(reads ? status < 500 && status != 401 : status == 403, r, origins[i]);
      expect(!strstr(got.text, "Access-Control-Allow"), r, origins[i]);
    }
    snprintf(lines, sizeof lines, "%sOrigin: http://localhost\r\n", cookie);
    if (takes_a_token(r)) {
      int status = ask(r->method, path_of(r), lines, body_of(r));
      expect(status != 401 && status != 403, r, "its own page");
    }
  }
  // nor can another page begin a session with a token of its own
  char body[128];
  snprintf(body, sizeof body, "{\"token\": \"%s\"}", attack_tokens[BRIM_ROLE_READ]);
  assert_int_equal(ask("POST", "/v1/session", "Origin: https://evil.example\r\n", body), 403);
  assert_int_equal(ask("POST", "/v1/session", "Origin: http://localhost\r\n", body), 200);
  // a token that ends takes its sessions along
  assert_ok(brim_store_token_end(attack_store, "admin"));
  assert_ok(brim_lab_pool_tend(attack_pool));
  assert_int_equal(ask("GET", "/v1/counts", cookie, NULL), 401);
}

// A foreign host name that leads to this machine: a page there would share the server's origin.
static void test_rebinding(void **state) {
  (void)state;
  static const char *const hosts[] = {"evil.example",
                                      "evil.example:8000",
                                      "localhost.evil.example",
                                      "127.0.0.1.evil.example",
                                      "127.evil.example",
                                      "[::2]",
                                      "10.0.0.5",
                                      "localhost@evil",
                                      ""};
  char lines[256];
  for (EACH_ROUTE(r)) {
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
      snprintf(lines, sizeof lines, "Host: %s\r\nOrigin: http://%s\r\n", hosts[i], hosts[i]);
      int status = ask(r->method, path_of(r), lines, body_of(r));
      expect(status == 403 || status == 400, r, lines);
    }
  }
  static const char *const own[] = {"localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.0.0.2",
                                    "[::1]:8000"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    snprintf(lines, sizeof lines, "Host: %s\r\n", own[i]);
    if (ask("GET", "/v1/hello", lines, NULL) != 200) fail_msg("%s: %s", own[i], got.text);
  }
  assert_int_equal(ask_bytes("GET /v1/hello HTTP/1.0\r\n\r\n"), 403);  // without a host name
}

//---------------------------------- bodies ----------------------------------

static void test_body_sizes(void **state) {
  (void)state;
  char text[512];
  for (EACH_ROUTE(r)) {
    brim_role role = r->role == BRIM_ROLE_WORKER ? BRIM_ROLE_WORKER : BRIM_ROLE_ADMIN;
    // a large length is refused before a byte of the body arrives
    snprintf(text, sizeof text,
             "%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n", r->method,
             path_of(r), bearer(attack_tokens[role]), r->body_max + 1);
    expect(ask_bytes(text) == 413, r, "a body that is declared too long");
    expect(strstr(got.text, "Connection: close"), r, "a body that is declared too long");
    // a body without a length and without an end
    snprintf(text, sizeof text,
             "%s %s HTTP/1.1\r\nHost: localhost\r\n%sTransfer-Encoding: chunked\r\n\r\nffff\r\n{",
             r->method, path_of(r), bearer(attack_tokens[role]));
    expect(ask_bytes(text) == 400, r, "a body without a length");
    // without a token the body is not read
    snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
             r->method, path_of(r), r->body_max + 1);
    expect(ask_bytes(text) == (takes_a_token(r) ? 401 : 413), r, "a body without a token");
  }
}

// A role that may only read cannot make the server parse megabytes.
static void test_body_sizes_of_calls(void **state) {
  (void)state;
  char text[512];
  assert_int_equal(brim_pool_call_max(BRIM_ROLE_READ), 64 << 10);
  assert_true(brim_pool_call_max(BRIM_ROLE_WORKER) < brim_pool_call_max(BRIM_ROLE_SUBMIT));
  for (int role = 0; role < BRIM_ROLE_COUNT; role++) {
    snprintf(text, sizeof text,
             "POST /v1/call HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n",
             bearer(attack_tokens[role]), brim_pool_call_max((brim_role)role) + 1);
    assert_int_equal(ask_bytes(text), 413);
  }
}

static void nest(brim_str *out, const char *open, int depth) {
  brim_str_clear(out);
  brim_str_append(out, "{\"exps\": ");
  for (int i = 0; i < depth; i++) brim_str_append(out, open);
}

static void test_bodies(void **state) {
  (void)state;
  static const char *const bodies[] = {"",
                                       "[]",
                                       "null",
                                       "1",
                                       "\"x\"",
                                       "{",
                                       "{\"exp\"",
                                       "{}{}",
                                       "{} x",
                                       "\xef\xbb\xbf{}",
                                       "{\"exps\": 1e999}",
                                       "{\"exps\": [\"\xc0\xae\"]}",
                                       "{\"exps\": [\"\xff\"]}",
                                       "{\"exps\": [\"\\ud800\"]}",
                                       "{\"a\": NaN}",
                                       "{'a': 1}",
                                       "{\"a\": 01}",
                                       "{\"exps\": [\"a\x01\"]}",
                                       "a: 1",
                                       "<?xml version=\"1.0\"?>",
                                       "exps=1&want=cancel"};
  brim_str deep;
  brim_str_init(&deep);
  for (EACH_ROUTE(r)) {
    if (r->body_max == 0 || is_raw(r)) continue;
    brim_role role = r->role == BRIM_ROLE_WORKER ? BRIM_ROLE_WORKER : BRIM_ROLE_ADMIN;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
      int status = ask_as(role, r->method, path_of(r), bodies[i]);
      // an empty body counts as an object without fields
      bool fine = *bodies[i] ? (status >= 400 && status < 500) : status < 500;
      expect(fine, r, bodies[i]);
    }
    static const char *const opens[] = {"[", "{\"a\":", "[{\"\":"};
    for (size_t i = 0; i < sizeof opens / sizeof *opens; i++) {
      nest(&deep, opens[i], 10000);
      expect(ask_as(role, r->method, path_of(r), deep.data) == 400, r, "a deep body");
    }
  }
  brim_str_deinit(&deep);
}

// Hundreds of thousands of small values: the route sets the limit, for a call the role.
static void test_long_documents(void **state) {
  (void)state;
  brim_str body;
  brim_str_init(&body);
  brim_str_append(&body, "{\"op\": \"metrics_of\", \"a\": [");
  for (int i = 0; i < 1000; i++) brim_str_append(&body, i ? ",{}" : "{}");
  brim_str_append(&body, "]}");
  for (EACH_ROUTE(r)) {
    if (r->body_max == 0 || is_raw(r)) continue;
    bool large = r->body_max > (64 << 10);
    brim_role role = r->role == BRIM_ROLE_WORKER ? BRIM_ROLE_WORKER : BRIM_ROLE_READ;
    if (r->role != BRIM_ROLE_WORKER && !brim_role_allows(role, r->role)) role = BRIM_ROLE_ADMIN;
    if (strcmp(r->path, "v1/call") == 0) large = false;  // the limit of a role that only reads
    int status = ask_as(role, r->method, path_of(r), body.data);
    expect((status == 413) == !large, r, "many values");
  }
  brim_str_clear(&body);
  brim_str_append(&body, "{\"points\": [");
  for (int i = 0; i < 1000000; i++) brim_str_append(&body, i ? ",{}" : "{}");
  brim_str_append(&body, "]}");
  assert_int_equal(ask_as(BRIM_ROLE_SUBMIT, "POST", "/v1/points", body.data), 413);
  brim_str_deinit(&body);
}

// Extreme numbers and duplicate names, in requests that use them.
static void test_body_values(void **state) {
  (void)state;
  static const char *const numbers[] = {"9223372036854775807",
                                        "-9223372036854775808",
                                        "9223372036854775808",
                                        "-1",
                                        "1e308",
                                        "1e-400",
                                        "0.5",
                                        "true",
                                        "null",
                                        "\"1\"",
                                        "[1]",
                                        "{\"a\": 1}",
                                        "99999999999999999999999999999999999999999999"};
  static const char *const fields[] = {"fence",    "step",      "seq",   "size",
                                       "pid",      "free_gpus", "limit", "rows",
                                       "priority", "exit_code", "want",  "exps"};
  brim_str body;
  brim_str_init(&body);
  for (EACH_ROUTE(r)) {
    if (r->body_max == 0 || is_raw(r)) continue;
    brim_role role = r->role == BRIM_ROLE_WORKER ? BRIM_ROLE_WORKER : BRIM_ROLE_ADMIN;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
      brim_str_clear(&body);
      brim_str_append(&body, "{\"claim_id\": \"n\", \"stream\": \"out\", \"outcome\": \"ok\"");
      for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        brim_str_printf(&body, ", \"%s\": %s", fields[f], numbers[i]);
      }
      brim_str_append(&body, "}");
      int status = ask_as(role, r->method, path_of(r), body.data);
      expect(status >= 200 && status < 500, r, body.data);
    }
    int status = ask_as(role, r->method, path_of(r), "{\"fence\": 0, \"fence\": 1, \"op\": \"a\"}");
    expect(status >= 200 && status < 500, r, "a name twice");
  }
  brim_str_deinit(&body);
}

// One worker cannot occupy the store alone.
static void test_many_rows(void **state) {
  (void)state;
  brim_str body;
  brim_str_init(&body);
  for (EACH_ROUTE(r)) {
    if (r->op != BRIM_LAB_OP_METRICS) continue;
    for (int rows = 20000; rows <= 20001; rows++) {
      brim_str_clear(&body);
      brim_str_printf(&body, "{\"fence\": %d, \"seq\": 1, \"rows\": [", rows == 20000 ? 9 : 1);
      for (int i = 0; i < rows; i++) {
        brim_str_printf(&body, "%s[\"k\",%d,0.5]", i ? "," : "", i);
      }
      brim_str_append(&body, "]}");
      int status = ask_as(BRIM_ROLE_WORKER, r->method, path_of(r), body.data);
      // 409: the attempt is another worker's
      expect(status == (rows == 20000 ? 409 : 413), r, "rows");
    }
  }
  brim_str_deinit(&body);
}

//---------------------------------- YAML ----------------------------------

static int send_grid(const char *yaml) {
  json_t *body = json_object();
  char *text = NULL;
  assert_ok(brim_json_put(body, "yaml", json_string(yaml)));
  assert_ok(brim_json_dump(body, 0, &text));
  int status = ask_as(BRIM_ROLE_SUBMIT, "POST", "/v1/grids", text);
  brim_free(text);
  json_decref(body);
  return status;
}

static void refuse_grid(const char *yaml, const char *what) {
  int status = send_grid(yaml);
  if (status < 400 || status >= 500) fail_msg("%s: %d %.600s", what, status, got.text);
}

// Texts that are small when sent and large when parsed.
static void test_grids(void **state) {
  (void)state;
  static const char *const texts[] = {
      "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\nlr: *c\n",
      "<<: &x {lr: 1}\nlr: [*x]\n",
      "include: /etc/passwd\n",
      "include: [../../etc/passwd]\n",
      "!!python/object/apply:os.system ['id']\n",
      "lr: !!binary aaaa\n",
      "? [a, b]\n: c\n",
      "lr: [1, 2\n",
      "\t\tlr: 1\n",
      "%YAML 9.9\n---\nlr: 1\n",
      "nothing_that_brim_knows: [1, 2]\n",
      "- 1\n- 2\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) refuse_grid(texts[i], texts[i]);
  brim_str text;
  brim_str_init(&text);
  static const char *const keys[] = {"lr", "seed", "batch_size", "epochs", "weight_decay"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    brim_str_printf(&text, "%s: [", keys[i]);
    for (int k = 0; k < 200; k++) brim_str_printf(&text, "%d, ", k + 1);
    brim_str_append(&text, "9999]\n");
  }
  refuse_grid(text.data, "a grid of 10^11 points");
  brim_str_clear(&text);
  brim_str_append(&text, "lr: ");
  brim_str_repeat(&text, '[', 50000);
  refuse_grid(text.data, "deep lists");
  brim_str_clear(&text);
  for (int i = 0; i < 3000; i++) {
    brim_str_repeat(&text, ' ', (size_t)i);
    brim_str_append(&text, "a:\n");
    if (text.len > (900 << 10)) break;
  }
  refuse_grid(text.data, "deep keys");
  brim_str_clear(&text);
  brim_str_append(&text, "lr: ");
  brim_str_repeat(&text, '9', 100000);
  refuse_grid(text.data, "a long number");
  brim_str_deinit(&text);
  // none of these requests added an experiment
  brim_store_counts counts;
  assert_ok(brim_store_count(attack_store, NULL, &counts));
  assert_int_equal(counts.total, 2);
}

//---------------------------------- points ----------------------------------

// A point with a config: with the id that brim computes, or another one.
static json_t *make_point(const char *yaml, const char *config, const char *id) {
  const brim_config_options how = {.text = yaml, .text_name = "in", .mode = BRIM_CONFIG_RUN};
  brim_config *read;
  char own[BRIM_LAB_ID];
  assert_ok(brim_config_load(&how, &read));
  assert_ok(brim_config_hash(read, BRIM_CONFIG_EXPERIMENT, own));
  brim_config_close(read);
  json_t *point = json_object();
  assert_ok(brim_json_put(point, "id", json_string(id ? id : own)));
  assert_ok(brim_json_put(point, "config", json_string(config ? config : yaml)));
  return point;
}

// Submits the point twice, through /v1/call and through /v1/points. Both must answer alike.
static int send_point(json_t *point, const char *key, const char *value) {
  json_t *body = json_object(), *grid = json_object(), *points = json_array();
  char *text = NULL;
  if (key) assert_ok(brim_json_put(point, key, json_string(value)));
  assert_ok(brim_json_put(grid, "id", json_string("g2")));
  assert_ok(brim_json_put(body, "op", json_string("submit")));
  assert_ok(brim_json_put(body, "grid", grid));
  assert_ok(brim_json_push(points, point));
  assert_ok(brim_json_put(body, "points", points));
  assert_ok(brim_json_dump(body, 0, &text));
  int called = ask_as(BRIM_ROLE_SUBMIT, "POST", "/v1/call", text);
  int status = ask_as(BRIM_ROLE_SUBMIT, "POST", "/v1/points", text);
  assert_int_equal(called, status);
  brim_free(text);
  json_decref(body);
  return status;
}

#define MLP "dataset: synthetic(classes=3, samples=64)\nmodel: mlp(depth=2)\n"

static int stored_points(void) {
  brim_store_counts counts;
  assert_ok(brim_store_count(attack_store, NULL, &counts));
  return (int)counts.total - 2;
}

// A config from outside cannot name a file, and its id must match its contents.
static void test_points(void **state) {
  (void)state;
  static const char *const configs[] = {"include: /etc/passwd\n" MLP,
                                        "<<: {include: /etc/passwd}\n" MLP,
                                        MLP "lr: [0.1, 0.2]\n",
                                        MLP "seeds: 3\n",
                                        MLP "lr: 0.3\n",
                                        MLP "nothing_that_brim_knows: 1\n",
                                        "model: [\n",
                                        ""};
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    int status = send_point(make_point(MLP, configs[i], NULL), NULL, NULL);
    if (status != 400) fail_msg("%s: %s", configs[i], got.text);
    assert_null(strstr(got.text, "root:"));
  }
  static const char *const ids[] = {"", "x", "../../../tmp/pwn", "0123456789abcdef0123456789abcdef",
                                    "0123456789ABCDEF0123456789ABCDEF"};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    assert_int_equal(send_point(make_point(MLP, NULL, ids[i]), NULL, NULL), 400);
  }
  static const char *const words[] = {"label", "tags", "metric_key"};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(send_point(make_point(MLP, NULL, NULL), words[i], "\x1b]0;x\x07"), 400);
  }
  assert_int_equal(stored_points(), 0);
  assert_int_equal(send_point(make_point(MLP, NULL, NULL), "label", "a=1"), 200);
  assert_int_equal(stored_points(), 1);
}

typedef struct stored {
  const char *label;
  char id[BRIM_EXP_ID], config[4096];
} stored;

static brim_status keep_stored(void *ctx, const brim_store_exp *exp) {
  stored *s = (stored *)ctx;
  if (strcmp(exp->label, s->label) != 0) return BRIM_OK;
  snprintf(s->id, sizeof s->id, "%s", exp->id);
  snprintf(s->config, sizeof s->config, "%s", exp->config);
  return BRIM_OK;
}

static void find_stored(const char *label, stored *out) {
  *out = (stored){.label = label};
  assert_ok(brim_store_list(attack_store, &(brim_store_filter){.texts = true}, keep_stored, out));
  assert_int_equal(strlen(out->id), BRIM_EXP_ID - 1);
}

// The server writes the comments of a stored config itself: a submitter cannot choose the group of a point.
static void test_texts_of_points(void **state) {
  (void)state;
  stored s;
  const char *dressed =
      "# group 00000000000000000000000000000000\n# cost 00000000000000000000000000000000\n"
      "# a remark\n" MLP;
  assert_int_equal(send_point(make_point(MLP, dressed, NULL), "label", "dressed"), 200);
  find_stored("dressed", &s);
  assert_null(strstr(s.config, "00000000000000000000000000000000"));
  assert_null(strstr(s.config, "remark"));
  assert_non_null(strstr(s.config, "# group "));
  // the same config in other words is the same experiment
  assert_int_equal(send_point(make_point(MLP, s.config, NULL), NULL, NULL), 200);
  assert_int_equal(stored_points(), 1);
}

// Long names are cut, perhaps within a character. The page of groups still works for every user.
static void test_long_names_of_points(void **state) {
  (void)state;
  char name[402];
  name[0] = 'a';
  for (size_t i = 1; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa9", 2);
  name[sizeof name - 1] = '\0';
  for (size_t shift = 0; shift < 2; shift++) {  // one of the two lengths ends within a character
    char label[sizeof name + 8], path[1000];
    snprintf(label, sizeof label, "%s=1 b=2", name + shift);
    json_t *point = make_point(shift ? MLP "lr: 0.01\n" : MLP, NULL, NULL);
    assert_ok(brim_json_put(point, "metric_key", json_string(name + shift)));
    assert_int_equal(send_point(point, "label", label), 200);
    assert_int_equal(ask_as(BRIM_ROLE_READ, "GET", "/v1/groups?grid=g2", NULL), 200);
    snprintf(path, sizeof path, "/v1/groups?key=%s", shift ? "" : "a");
    for (int i = 0; i < 100; i++) strcat(path, "%c3%a9");
    assert_int_equal(ask_as(BRIM_ROLE_READ, "GET", path, NULL), 200);
  }
}

// A store has another config under an id, from before ids were checked. Its results are not given out as results of the
// newly submitted config.
static void test_a_poisoned_id(void **state) {
  (void)state;
  json_t *point = make_point(MLP "lr: 0.01\n", NULL, NULL);
  const char *id = json_string_value(json_object_get(point, "id"));
  const brim_store_point other = {.id = id, .config = MLP "lr: 0.02\n"};
  brim_store_submitted out;
  assert_ok(brim_store_submit(attack_store, &(brim_store_grid){.id = "g3"}, &other, 1, &out));
  assert_int_equal(send_point(point, NULL, NULL), 409);
  assert_int_equal(send_grid(MLP "lr: [0.01, 0.03]\n"), 409);
  assert_int_equal(send_grid(MLP "lr: [0.03, 0.04]\nstore: postgres://u:SESAM@h/db\n"), 200);
  assert_int_equal(ask_as(BRIM_ROLE_READ, "GET", "/v1/grids?texts=true", NULL), 200);
  assert_null(strstr(got.text, "SESAM"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, attack_setup, attack_teardown)
#define TEST_WITH(name, how) cmocka_unit_test_setup_teardown(name, how, attack_teardown)

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST_WITH(test_paths, attack_setup_tokens),
      TEST_WITH(test_whole_paths, attack_setup_tokens),
      TEST_WITH(test_long_paths, attack_setup_tokens),
      TEST_WITH(test_queries, attack_setup_tokens),
      TEST_WITH(test_values, attack_setup_tokens),
      TEST_WITH(test_every_role, attack_setup_tokens),
      TEST_WITH(test_every_role_by_call, attack_setup_tokens),
      TEST_WITH(test_every_method, attack_setup_tokens),
      TEST_WITH(test_bad_tokens, attack_setup_tokens),
      TEST_WITH(test_foreign_pages, attack_setup_tokens),
      TEST(test_rebinding),
      TEST_WITH(test_body_sizes, attack_setup_tokens),
      TEST_WITH(test_body_sizes_of_calls, attack_setup_tokens),
      TEST_WITH(test_bodies, attack_setup_tokens),
      TEST_WITH(test_body_values, attack_setup_tokens),
      TEST_WITH(test_many_rows, attack_setup_tokens),
      TEST_WITH(test_grids, attack_setup_tokens),
      TEST_WITH(test_points, attack_setup_tokens),
      TEST_WITH(test_texts_of_points, attack_setup_tokens),
      TEST_WITH(test_long_names_of_points, attack_setup_tokens),
      TEST_WITH(test_a_poisoned_id, attack_setup_tokens),
      TEST_WITH(test_long_documents, attack_setup_tokens),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
