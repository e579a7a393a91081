// What a client survives of a server that sends what it likes.
#include "test.h"

#include "base/base.h"
#include "lab/http/lab_http.h"
#include "lab/lab_link.h"

static brim_http_server *server;
static brim_str lie;

static bool admit(void *ctx, const brim_http_request *q, brim_http_reply *reply, size_t *most) {
  (void)ctx;
  (void)q;
  (void)reply;
  *most = 1 << 20;
  return true;
}

static void serve(void *ctx, const brim_http_request *q, brim_http_reply *reply) {
  (void)ctx;
  (void)q;
  brim_str_append_n(&reply->body, lie.data, lie.len);
}

static int setup(void **state) {
  (void)state;
  const brim_http_options options = {.admit = admit, .serve = serve};
  brim_status status = brim_http_server_open(&options, &server);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
  brim_str_init(&lie);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  brim_http_server_close(server);
  brim_str_deinit(&lie);
  return 0;
}

static brim_status count(void *ctx, const brim_store_exp *exp) {
  (void)exp;
  ++*(int64_t *)ctx;
  return BRIM_OK;
}

// What comes of a list of experiments; *rows: how many the caller got. limit 0 = all.
static brim_status list_some(int64_t limit, int64_t *rows) {
  char url[64];
  brim_lab_link *link = NULL;
  const brim_store_filter all = {.limit = limit};
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_http_server_port(server));
  *rows = 0;
  assert_ok(brim_lab_link_open(url, &(brim_lab_link_options){.timeout_ms = 60000}, &link));
  brim_status status = brim_lab_list(link, &all, count, rows);
  brim_lab_link_close(link);
  return status;
}

static brim_status list(int64_t *rows) { return list_some(0, rows); }

// More rows than were asked for, in one line or in several: callers have no room for them.
static void test_more_rows_than_asked_for(void **state) {
  (void)state;
  static const char row[] = "{\"id\":\"00112233445566778899aabbccddeeff\"}";
  int64_t rows;
  for (int lines = 1; lines <= 4; lines += 3) {
    brim_str_clear(&lie);
    for (int line = 0; line < lines; line++) {
      brim_str_append(&lie, "{\"id\":1,\"ok\":true,\"more\":true,\"exps\":[");
      for (int i = 0; i < 4 / lines; i++) brim_str_printf(&lie, "%s%s", i ? "," : "", row);
      brim_str_append(&lie, "]}\n");
    }
    brim_str_append(&lie, "{\"id\":1,\"ok\":true}\n");
    assert_ok(list_some(0, &rows));
    assert_int_equal(rows, 4);
    assert_ok(list_some(4, &rows));
    assert_int_equal(rows, 4);
    assert_status(list_some(3, &rows), BRIM_ELIMIT);
    assert_true(rows <= 3);
  }
}

// Several experiments in place of one: callers keep a copy of what they get.
static void test_more_than_the_one(void **state) {
  (void)state;
  static const char line[] =
      "{\"id\":1,\"ok\":true,\"more\":true,"
      "\"exp\":{\"id\":\"00112233445566778899aabbccddeeff\"}}\n";
  char url[64];
  int64_t rows = 0;
  brim_lab_link *link = NULL;
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_http_server_port(server));
  assert_ok(brim_lab_link_open(url, NULL, &link));
  brim_str_printf(&lie, "%s%s", line, line);
  assert_status(brim_lab_get(link, "00112233445566778899aabbccddeeff", count, &rows), BRIM_ELIMIT);
  assert_int_equal(rows, 1);
  brim_lab_link_close(link);
}

// One line: its values have a limit.
static void test_a_line_of_small_values(void **state) {
  (void)state;
  int64_t rows;
  brim_str_append(&lie, "{\"id\":1,\"ok\":true,\"more\":true,\"exps\":[{}");
  for (int i = 0; i < 1000000; i++) brim_str_append(&lie, ",{}");
  brim_str_append(&lie, "]}\n{\"id\":1,\"ok\":true}\n");
  assert_status(list(&rows), BRIM_ELIMIT);
  assert_int_equal(rows, 0);
}

// Many lines: so have those of all of them, since callers keep what comes.
static void test_lines_of_small_values(void **state) {
  (void)state;
  int64_t rows;
  for (int line = 0; line < 100; line++) {
    brim_str_append(&lie, "{\"id\":1,\"ok\":true,\"more\":true,\"exps\":[{}");
    for (int i = 1; i < 10000; i++) brim_str_append(&lie, ",{}");
    brim_str_append(&lie, "]}\n");
  }
  brim_str_append(&lie, "{\"id\":1,\"ok\":true}\n");
  assert_status(list(&rows), BRIM_ELIMIT);
  assert_in_range(rows, 100000, 600000);
}

// A reply without an end.
static void test_a_long_reply(void **state) {
  (void)state;
  int64_t rows;
  brim_str_repeat(&lie, ' ', 65 << 20);
  assert_status(list(&rows), BRIM_ELIMIT);
}

static void test_odd_replies(void **state) {
  (void)state;
  static const char *const lies[] = {
      "",
      "\n",
      "null\n",
      "[]\n",
      "{}\n",
      "{\"id\":1}\n",
      "{\"id\":1,\"ok\":true,\"more\":true}\n",
      "{\"id\":2,\"ok\":true,\"exps\":[]}\n",
      "{\"id\":1,\"ok\":true,\"exps\":[1]}\n",
      "{\"id\":1,\"ok\":true,\"exps\":[null]}\n",
      "{\"id\":1,\"ok\":true,\"exps\":[{\"state\":\"king\"}]}\n",
      "{\"id\":1,\"ok\":true,\"exps\":[{\"want\":-1000000}]}\n",
      "{\"id\":1,\"ok\":true,\"exps\":[{\"step\":1e300}]}\n",
      "{\"id\":1,\"ok\":true,\"exps\":[{\"id\":\"a\\u0000b\"}]}\n",
      "{\"id\":1,\"ok\":false,\"status\":\"BRIM_OK\",\"message\":\"x\"}\n",
      "{\"id\":1,\"ok\":false,\"status\":7}\n",
      "{\"id\":1,\"ok\":false}\n",
  };
  int64_t rows;
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    brim_str_clear(&lie);
    brim_str_append(&lie, lies[i]);
    if (!list(&rows)) fail_msg("taken: %s", lies[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_more_rows_than_asked_for, setup, teardown),
      cmocka_unit_test_setup_teardown(test_more_than_the_one, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_line_of_small_values, setup, teardown),
      cmocka_unit_test_setup_teardown(test_lines_of_small_values, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_long_reply, setup, teardown),
      cmocka_unit_test_setup_teardown(test_odd_replies, setup, teardown),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
