// The dispatcher alone: its replies, in pieces of any size, and out of memory.
#include "store_test.h"

#include "lab/wire/lab_wire_int.h"

// The complete reply, made in pieces of about `enough` bytes.
static brim_status ask(const char *request, size_t enough, brim_str *out) {
  const brim_lab_ops ops = {.store = store, .version = "v"};
  brim_lab_answer *answer = NULL;
  brim_str_clear(out);
  BRIM_TRY(brim_lab_ops_begin(&ops, request, strlen(request), &answer));
  bool done = false;
  brim_status status = BRIM_OK;
  for (int i = 0; !status && !done; i++) {
    size_t before = out->len;
    status = brim_lab_answer_more(answer, enough, out, &done);
    // Each piece has whole lines, and at least one.
    if (!status) assert_true(out->len > before || done);
    if (!status && out->len) assert_int_equal(out->data[out->len - 1], '\n');
    assert_true(i < 1000000);
  }
  brim_lab_answer_free(answer);
  return status;
}

static size_t lines_of(const brim_str *s) {
  size_t n = 0;
  for (size_t i = 0; i < s->len; i++) n += s->data[i] == '\n';
  return n;
}

static void test_pieces_of_any_size(void **state) {
  (void)state;
  static const char *const requests[] = {
      "{\"id\":1,\"op\":\"list\"}",
      "{\"id\":1,\"op\":\"list\",\"texts\":true}",
      "{\"id\":1,\"op\":\"export\"}",
      "{\"id\":1,\"op\":\"events\"}",
      "{\"id\":1,\"op\":\"events\",\"limit\":501}",
      "{\"id\":1,\"op\":\"grids\"}",
      "{\"id\":1,\"op\":\"counts\"}",
  };
  lab_submit(store, "g", 1, 700);
  brim_str whole, pieces;
  brim_str_init(&whole);
  brim_str_init(&pieces);
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    assert_ok(ask(requests[i], 1 << 30, &whole));
    const size_t sizes[] = {1, 1000, 100000};
    for (size_t k = 0; k < 3; k++) {
      assert_ok(ask(requests[i], sizes[k], &pieces));
      assert_string_equal(pieces.data, whole.data);
    }
  }
  brim_str_deinit(&pieces);
  brim_str_deinit(&whole);
}

// Every line is JSON with the request's id; all but the last have "more".
static void test_the_form_of_replies(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 400);
  brim_str out;
  brim_str_init(&out);
  assert_ok(ask("{\"op\":\"list\",\"id\":-9007199254740993,\"texts\":true}", 1, &out));
  size_t count = lines_of(&out), at = 0, rows = 0;
  assert_true(count > 2);
  for (size_t i = 0; i < count; i++) {
    size_t size = strcspn(out.data + at, "\n");
    json_t *line = NULL;
    assert_ok(brim_json_parse(out.data + at, size, "reply", &line));
    assert_int_equal(json_integer_value(json_object_get(line, "id")), -9007199254740993);
    assert_true(json_is_true(json_object_get(line, "ok")));
    assert_int_equal(json_is_true(json_object_get(line, "more")), i + 1 < count);
    rows += json_array_size(json_object_get(line, "exps"));
    json_decref(line);
    at += size + 1;
  }
  assert_int_equal(rows, 400);
  brim_str_deinit(&out);
}

// Every row of the table names existing fields, and its output reads back.
static void test_every_row(void **state) {
  (void)state;
  static const char id[] = "00000000000000000000000000000001";
  const char *const any[] = {id};
  const char(*ids)[BRIM_EXP_ID] = (const char(*)[BRIM_EXP_ID])id;
  const brim_store_metric metric = {"loss", 3, 0.5};
  const brim_store_point point = {.id = id, .config = "{}"};
  for (int op = 0; op < BRIM_LAB_OP_COUNT; op++) {
    const brim_lab_request in = {.op = (brim_lab_op)op,
                                 .ref = {.exp = "00000000000000000000000000000001", .fence = 2},
                                 .exp = id,
                                 .grid = "g",
                                 .key = "k",
                                 .stream = "log",
                                 .findings = "[]",
                                 .worker = "w",
                                 .device = "GPU",
                                 .step = 7,
                                 .limit = 5,
                                 .want = BRIM_WANT_CANCEL,
                                 .texts = true,
                                 .range = {.points = 9},
                                 .claim = {.worker = "w", .claim_id = "c", .free_bytes = -1},
                                 .seen = {.id = "w", .status = "{}"},
                                 .filter = {.tag = "t", .order = BRIM_STORE_BY_ENDED},
                                 .submit = {.id = "g"},
                                 .points = {&point, 1},
                                 .metrics = {&metric, 1},
                                 .exps = {ids, 1},
                                 .any_exps = {any, 1}};
    json_t *value = NULL, *again = NULL, *line = json_object();
    brim_lab_request out;
    brim_lab_reply reply = {0}, back = {0};
    assert_ok(brim_lab_request_encode(&in, &value));
    assert_ok(brim_lab_request_decode(value, &out));
    assert_int_equal(out.op, op);
    assert_ok(brim_lab_request_encode(&out, &again));
    assert_true(json_equal(value, again));
    memcpy(reply.exp, id, sizeof reply.exp);
    assert_ok(brim_lab_reply_encode(out.op, &reply, line));
    if (op != BRIM_LAB_OP_GET) assert_ok(brim_lab_reply_decode(out.op, line, &back));
    json_decref(back.more);
    brim_lab_request_deinit(&out);
    json_decref(value);
    json_decref(again);
    json_decref(line);
  }
}

// Fields of another type are refused, whatever the field.
static void test_wrong_types(void **state) {
  (void)state;
  static const char *const ops[] = {"start",  "beat", "metrics",  "log",        "checkpoint",
                                    "finish", "want", "retry",    "submit",     "set_priority",
                                    "find",   "get",  "attempts", "metrics_of", "log_size"};
  static const char *const values[] = {"1", "1.5", "\"x\"", "[]", "{}", "true", "null", "[[]]"};
  static const char *const keys[] = {"ref",      "exp",    "pid",   "step",    "seq",
                                     "rows",     "stream", "size",  "outcome", "want",
                                     "priority", "grid",   "points"};
  lab_submit(store, "g", 1, 2);
  brim_str request, out;
  brim_str_init(&request);
  brim_str_init(&out);
  for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      brim_str_clear(&request);
      brim_str_printf(&request, "{\"op\":\"%s\"", ops[o]);
      for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        brim_str_printf(&request, ",\"%s\":%s", keys[k], values[v]);
      }
      brim_str_append(&request, "}");
      assert_ok(ask(request.data, 1, &out));
      assert_int_equal(lines_of(&out), 1);
      if (!strstr(out.data, "\"ok\":false")) fail_msg("%s: %s", request.data, out.data);
    }
  }
  lab_check(store);
  brim_str_deinit(&out);
  brim_str_deinit(&request);
}

static void test_no_store(void **state) {
  (void)state;
  brim_store_close(store);
  store = NULL;
  brim_str out;
  brim_str_init(&out);
  assert_ok(ask("{\"id\":1,\"op\":\"counts\"}", 1, &out));
  assert_non_null(strstr(out.data, "BRIM_ESTATE"));
  brim_str_deinit(&out);
}

// Texts and numbers that JSON cannot represent.
static void test_values_on_the_wire(void **state) {
  (void)state;
  static const double numbers[] = {0.1, -0.0, 5e-324, 1.7976931348623157e308, 1.0 / 3.0, 1e15, 3};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    json_t *value = brim_lab_wire_real(numbers[i]), *again = NULL;
    char *text = NULL;
    double back = 0;
    assert_ok(brim_json_dump(value, 0, &text));
    assert_ok(brim_json_parse(text, strlen(text), "n", &again));
    assert_true(brim_lab_wire_real_of(again, &back));
    assert_memory_equal(&back, &numbers[i], sizeof back);
    json_decref(value);
    json_decref(again);
    brim_free(text);
  }
  json_t *bad = json_string("infinite");
  double number = 0;
  assert_false(brim_lab_wire_real_of(bad, &number));
  json_decref(bad);
  static const struct {
    const char *text, *wire;
  } texts[] = {{NULL, ""},
               {"abc", "abc"},
               {"\xff", "?"},
               {"a\xEA\xB0", "a??"},
               {"\xEA\xB0\x80\xff\x80z", "\xEA\xB0\x80??z"},
               {"\xC0\x80", "??"},
               {"\xED\xA0\x80", "???"}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    json_t *value = brim_lab_wire_text(texts[i].text);
    assert_string_equal(json_string_value(value), texts[i].wire);
    json_decref(value);
  }
}

#define SUBMIT                                                               \
  "{\"id\":1,\"op\":\"submit\",\"grid\":{\"id\":\"h\"},\"points\":[{\"id\":" \
  "\"000000000000000000000000000000ff\",\"config\":\"{}\"}]}"

// Each allocation fails once: the reply reports it or is not made, and later replies are right.
static void test_memory_runs_out(void **state) {
  (void)state;
  static const char *const requests[] = {
      "{\"id\":1,\"op\":\"list\",\"states\":[\"queued\"]}",
      "{\"id\":1,\"op\":\"list\",\"texts\":true}",
      "{\"id\":1,\"op\":\"export\"}",
      "{\"id\":1,\"op\":\"metrics_of\",\"exp\":\"00000000000000000000000000000001\"}",
      SUBMIT,
  };
  lab_submit(store, "g", 1, 3);
  brim_store_ref ref = lab_run(store, 1);
  const brim_store_metric rows[] = {{"a", 1, 2}, {"b", 1, 3}, {"b", 2, 3}};
  assert_ok(brim_store_metrics(store, &ref, 1, rows, 3));
  brim_str out;
  brim_str_init(&out);
  int failed = 0;
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    for (uint64_t n = 1; n < 5000; n += lab_is_postgres() ? 5 : 1) {
      uint64_t before = brim_alloc_failures();
      brim_alloc_fail_nth(n, 0);
      brim_status status = ask(requests[i], 1, &out);
      bool injected = brim_alloc_failures() > before;
      brim_alloc_fail_nth(0, 0);
      if (out.status) {
        brim_str_deinit(&out);
        brim_str_init(&out);
      }
      if (!injected) {
        assert_ok(status);
        if (strstr(out.data, "\"ok\":false")) fail_msg("%s: %s", requests[i], out.data);
        break;
      }
      failed++;
      if (status) assert_status(status, BRIM_ENOMEM);
    }
  }
  assert_true(failed > 100);
  lab_check(store);
  brim_str_deinit(&out);
}

int main(int argc, char **argv) {
  brim_json_own_memory();
  lab_choose(argc, argv);
  test_filter();
  const struct CMUnitTest tests[] = {
      TEST(test_pieces_of_any_size), TEST(test_the_form_of_replies),
      TEST(test_every_row),          TEST(test_wrong_types),
      TEST(test_no_store),           TEST(test_values_on_the_wire),
      TEST(test_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
