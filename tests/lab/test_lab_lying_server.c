// A client survives a server that sends arbitrary replies.
#include "test.h"

#include "base/base.h"
#include "lab/exec/lab_exec.h"
#include "lab/http/lab_http.h"
#include "lab/wire/lab_wire_link.h"

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

static brim_lab_link *open_link(void) {
  char url[64];
  brim_lab_link *link = NULL;
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_http_server_port(server));
  assert_ok(brim_lab_link_open(url, &(brim_lab_link_options){.timeout_ms = 60000}, &link));
  return link;
}

// Sends the next reply.
static void BRIM_PRINTF(1, 2) tell(const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  brim_str_clear(&lie);
  brim_str_append(&lie, text);
}

// Lists the experiments; *rows is how many the caller got. limit 0 = all.
static brim_status list_some(int64_t limit, int64_t *rows) {
  const brim_store_filter all = {.limit = limit};
  *rows = 0;
  brim_lab_link *link = open_link();
  brim_status status = brim_lab_list(link, &all, count, rows);
  brim_lab_link_close(link);
  return status;
}

static brim_status list(int64_t *rows) { return list_some(0, rows); }

// More rows than requested, in one line or in several: callers have no room for them.
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

// Several experiments in place of one: callers keep a copy of every one they get.
static void test_more_than_the_one(void **state) {
  (void)state;
  static const char line[] =
      "{\"id\":1,\"ok\":true,\"more\":true,"
      "\"exp\":{\"id\":\"00112233445566778899aabbccddeeff\"}}\n";
  brim_store_exp *exp = NULL;
  brim_lab_link *link = open_link();
  brim_str_printf(&lie, "%s%s", line, line);
  assert_status(brim_lab_get(link, "00112233445566778899aabbccddeeff", &exp), BRIM_ELIMIT);
  assert_null(exp);
  brim_lab_link_close(link);
}

// Ids become folders of a worker, so a bad one is refused when it arrives.
static void test_ids_of_a_lying_server(void **state) {
  static const char *const ids[] = {"00112233445566778899aabbccddeeff",
                                    "../../../pwn45566778899aabbccddee",
                                    "0011223344556677/../aabbccddeeff",
                                    "..",
                                    "00112233445566778899AABBCCDDEEFF",
                                    "",
                                    "/etc/passwd"};
  (void)state;
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    bool good = i == 0, nothing = !ids[i][0];  // a row without an id does not name a folder
    const brim_store_request want = {.worker = "w", .claim_id = "c", .free_bytes = -1};
    brim_store_claimed claimed;
    brim_store_exp *exp = NULL;
    char found[BRIM_EXP_ID];
    int64_t count_of = 0;
    brim_str path;
    brim_lab_link *link = open_link();
    tell(
        "{\"id\":1,\"ok\":true,\"exp\":{\"id\":\"%s\",\"label\":\"one\",\"state\":\"leased\"},"
        "\"attempt\":1,\"fence\":1,\"lease_ms\":1000}\n",
        ids[i]);
    assert_int_equal(brim_lab_claim(link, &want, &claimed) == BRIM_OK, good);
    brim_store_exp_free(claimed.exp);
    tell("{\"id\":2,\"ok\":true,\"exp\":\"%s\"}\n", ids[i]);
    assert_int_equal(brim_lab_find(link, "0", found) == BRIM_OK, good);
    tell("{\"id\":3,\"ok\":true,\"exp\":{\"id\":\"%s\"}}\n", ids[i]);
    assert_int_equal(brim_lab_get(link, "0", &exp) == BRIM_OK, good || nothing);
    assert_int_equal(exp != NULL, good || nothing);
    brim_store_exp_free(exp);
    tell("{\"id\":4,\"ok\":true,\"exps\":[{\"id\":\"%s\"}]}\n", ids[i]);
    assert_int_equal(brim_lab_list(link, NULL, count, &count_of) == BRIM_OK, good || nothing);
    assert_int_equal(count_of, good || nothing ? 1 : 0);
    brim_str_init(&path);
    assert_int_equal(brim_lab_exp_folder("runs", ids[i], &path) == BRIM_OK, good);
    brim_str_deinit(&path);
    brim_lab_link_close(link);
  }
}

// A lease with an impossible time.
static void test_leases_of_a_lying_server(void **state) {
  (void)state;
  static const int64_t leases[] = {60000, 0, -1, INT64_MAX, INT64_MIN, INT64_MAX / 1000000};
  const brim_store_ref ref = {.exp = "00112233445566778899aabbccddeeff", .attempt = 1, .fence = 1};
  for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
    brim_lab_link *link = open_link();
    brim_store_beat_reply reply;
    tell("{\"id\":1,\"ok\":true,\"want\":\"run\",\"lease_ms\":%lld}\n", (long long)leases[i]);
    assert_int_equal(brim_lab_beat(link, &ref, NULL, &reply) == BRIM_OK, i < 2);
    brim_lab_link_close(link);
  }
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

// Many lines: their values have a common limit, because callers keep them.
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

// A reply that never ends.
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
      cmocka_unit_test_setup_teardown(test_ids_of_a_lying_server, setup, teardown),
      cmocka_unit_test_setup_teardown(test_leases_of_a_lying_server, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_line_of_small_values, setup, teardown),
      cmocka_unit_test_setup_teardown(test_lines_of_small_values, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_long_reply, setup, teardown),
      cmocka_unit_test_setup_teardown(test_odd_replies, setup, teardown),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
