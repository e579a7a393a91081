// JSON: parsing, places in errors, writing, and out of memory.
#include "base/base_json.h"

#include <float.h>
#include <math.h>

#include "base/base_alloc.h"
#include "base/base_str.h"
#include "test.h"

static json_t *parse(const char *text) {
  json_t *value = NULL;
  assert_ok(brim_json_parse(text, strlen(text), "in", &value));
  return value;
}

// Parses a text and writes it again, compact.
static void same(const char *text, const char *expected) {
  json_t *value = parse(text);
  char *out;
  assert_ok(brim_json_dump(value, 0, &out));
  assert_string_equal(out, expected);
  brim_free(out);
  json_decref(value);
}

static void reads_and_writes(void **state) {
  (void)state;
  same("{}", "{}");
  same(" [ ] ", "[]");
  same("[1, -2, 0, 9223372036854775807, -9223372036854775808]",
       "[1,-2,0,9223372036854775807,-9223372036854775808]");
  same("[0.1, 1e-4, 1E5, 3.0, 1e300, -0.0, 5e-324]",
       "[0.1,0.0001,100000.0,3.0,1e+300,-0.0,4.94065645841247e-324]");
  same("[true,false,null]", "[true,false,null]");
  same("{\"z\":1,\"a\":{\"k\":[]},\"m\":\"x\"}", "{\"z\":1,\"a\":{\"k\":[]},\"m\":\"x\"}");
  same("\"\\u0041\\n\\\"\\\\\\/\\t\\u00e9\\uD55C\\ud83d\\ude00\"", "\"A\\n\\\"\\\\/\\té한😀\"");
  same("\"\\u0001\\u0000x\"", "\"\\u0001\\u0000x\"");
  same("12", "12");
}

static void indented(void **state) {
  (void)state;
  json_t *value = parse("{\"a\":[1,{}],\"b\":{\"c\":2},\"d\":[]}");
  char *out;
  assert_ok(brim_json_dump(value, 2, &out));
  assert_string_equal(out,
                      "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": 2\n  },\n"
                      "  \"d\": []\n}");
  brim_free(out);
  json_decref(value);
}

static void doubles_survive(void **state) {
  (void)state;
  const double values[] = {0.1,
                           1.0 / 3,
                           2.0 / 3,
                           1e23,
                           DBL_MAX,
                           DBL_MIN,
                           5e-324,
                           123456.789,
                           -1e-9,
                           4503599627370497.5,
                           9007199254740993.0};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    json_t *value = json_real(values[i]), *back;
    char *out;
    assert_ok(brim_json_dump(value, 0, &out));
    assert_ok(brim_json_parse(out, strlen(out), "x", &back));
    assert_true(json_is_real(back));
    assert_true(json_real_value(back) == values[i]);
    brim_free(out);
    json_decref(back);
    json_decref(value);
  }
}

static void error(const char *text, const char *expected) {
  json_t *value = (json_t *)&value;
  assert_status(brim_json_parse(text, strlen(text), "f.json", &value), BRIM_EPARSE);
  assert_null(value);
  if (strncmp(brim_status_detail(), expected, strlen(expected)) != 0) {
    fail_msg("'%s' does not start with '%s'", brim_status_detail(), expected);
  }
}

static void errors_say_where(void **state) {
  (void)state;
  error("", "f.json:1:1: expected a value");
  error("  \n  ", "f.json:2:3: expected a value");
  error("{\n  \"a\": 1,\n  \"b\" 2\n}", "f.json:3:7: expected ':', found '2'");
  error("[1, 2", "f.json:1:6: expected ',' or ']', but the text ends here");
  error("[1,]", "f.json:1:4: expected a value, found ']'");
  error("{\"a\":1,}", "f.json:1:8: expected a key");
  error("{a:1}", "f.json:1:2: expected a key in double quotes, found 'a'");
  error("[1] x", "f.json:1:5: expected the end of the text, found 'x'");
  error("[tru]", "f.json:1:2: expected a value, found 't'");
  error("[01]", "f.json:1:2: a number with a leading zero");
  error("[1.]", "f.json:1:4: expected a digit");
  error("[-]", "f.json:1:3: expected a digit");
  error("[1e]", "f.json:1:4: expected a digit");
  error("[9223372036854775808]", "f.json:1:2: a number that is too large");
  error("[1e999]", "f.json:1:2: a number that is too large");
  error("[\"abc", "f.json:1:2: a text without a closing quote");
  error("[\"a\nb\"]", "f.json:1:4: a control character");
  error("[\"\\x\"]", "f.json:1:4: expected an escape character, found 'x'");
  error("[\"\\u12G4\"]", "f.json:1:7: expected four hexadecimal digits");
  error("[\"\\ud800\"]", "f.json:1:3: half of a surrogate pair");
  error("[\"\\udc00\"]", "f.json:1:3: half of a surrogate pair");
  error("[\"\xff\"]", "f.json:1:3: a text that is not UTF-8");
  error("{\"a\":1,\"a\":2}", "f.json:1:8: the key \"a\" appears twice");
  error("{\"a\\u0000\":1}", "f.json:1:2: a key with a NUL");
  error("[NaN]", "f.json:1:2: expected a value, found 'N'");
  error("[\x01]", "f.json:1:2: expected a value, found byte 0x01");
}

static void depth_is_bounded(void **state) {
  (void)state;
  char text[2001];
  memset(text, '[', 2000);
  text[2000] = '\0';
  error(text, "f.json:1:513: JSON is nested deeper");
  json_t *value = json_array();
  for (int i = 0; i < 600; i++) {
    json_t *outer = json_array();
    assert_ok(brim_json_push(outer, value));
    value = outer;
  }
  char *out;
  assert_status(brim_json_dump(value, 0, &out), BRIM_ELIMIT);
  assert_null(out);
  json_decref(value);
}

// N times "{}" in a list, with brackets.
static json_t *read_objects(size_t n, size_t *left, brim_status wanted) {
  brim_str text;
  json_t *value = NULL;
  brim_str_init(&text);
  brim_str_append_char(&text, '[');
  for (size_t i = 0; i < n; i++) brim_str_append(&text, i ? ",{}" : "{}");
  brim_str_append_char(&text, ']');
  assert_status(brim_json_parse_within(text.data, text.len, "in", left, &value), wanted);
  brim_str_deinit(&text);
  return value;
}

// A short text of small values would take a hundred times its size.
static void values_are_bounded(void **state) {
  (void)state;
  size_t left = 4 + 100 * 8;
  json_t *value = read_objects(100, &left, BRIM_OK);
  assert_int_equal(left, 0);
  json_decref(value);
  left = 4 + 100 * 8 - 1;
  assert_null(read_objects(100, &left, BRIM_ELIMIT));
  left = 1000;
  assert_ok(brim_json_parse_within("{\"a\": [1, 2, null]}", 19, "in", &left, &value));
  assert_int_equal(left, 1000 - 8 - 4 - 3);
  json_decref(value);
  // by default a document is limited to some 50 MiB
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  left = BRIM_JSON_VALUES;
  value = read_objects((BRIM_JSON_VALUES - 4) / 8, &left, BRIM_OK);
  brim_alloc_get_stats(&after);
  int64_t bytes = 0;
  for (size_t i = 0; i < sizeof after.live_bytes / sizeof *after.live_bytes; i++) {
    bytes += (int64_t)after.live_bytes[i] - (int64_t)before.live_bytes[i];
  }
  assert_in_range(bytes, 1, 50 * BRIM_JSON_VALUES);
  json_decref(value);
  char *text = brim_alloc(2000000);
  memset(text, ' ', 2000000);
  for (size_t i = 0; i < 2000000; i += 2) memcpy(text + i, i ? ",1" : "[1", 2);
  assert_status(brim_json_parse(text, 2000000, "in", &value), BRIM_ELIMIT);
  assert_null(value);
  brim_free(text);
}

static void builders(void **state) {
  (void)state;
  json_t *object = json_object(), *array = json_array();
  assert_ok(brim_json_put(object, "n", brim_json_number(3)));
  assert_ok(brim_json_put(object, "x", brim_json_number(0.25)));
  assert_ok(brim_json_put(object, "nan", brim_json_number((double)NAN)));
  assert_ok(brim_json_put(object, "inf", brim_json_number((double)-INFINITY)));
  assert_ok(brim_json_put(object, "large", brim_json_number(1e20)));
  assert_ok(brim_json_push(array, json_string("a")));
  assert_status(brim_json_put(object, "bad", NULL), BRIM_ENOMEM);
  assert_status(brim_json_push(array, NULL), BRIM_ENOMEM);
  assert_status(brim_json_put(array, "k", json_true()), BRIM_EINVAL);
  assert_status(brim_json_push(object, json_integer(1)), BRIM_EINVAL);
  assert_status(brim_json_put(object, "\xff", json_integer(1)), BRIM_EINVAL);
  assert_ok(brim_json_put(object, "list", array));
  char *out;
  assert_ok(brim_json_dump(object, 0, &out));
  assert_string_equal(
      out, "{\"n\":3,\"x\":0.25,\"nan\":null,\"inf\":null,\"large\":1e+20,\"list\":[\"a\"]}");
  brim_free(out);
  json_decref(object);
  assert_status(brim_json_dump(NULL, 0, &out), BRIM_EINVAL);
}

static void errors_name_the_place(void **state) {
  (void)state;
  json_t *value;
  assert_status(brim_json_parse("{\n\"a\" 1}", 8, "bad.json", &value), BRIM_EPARSE);
  assert_int_equal(strncmp(brim_status_detail(), "bad.json:2:5: ", 14), 0);
}

// Each allocation fails once: always ENOMEM, never a wrong value, no leak.
static void out_of_memory(void **state) {
  (void)state;
  const char *text =
      "{\"a text that is longer than sixteen bytes, and than sixty-four bytes: growth\":"
      "[1,2.5,\"x\",{\"k\":null}],\"b\":{\"c\":[[],[]],\"d\":true},\"e\":\"\\u00e9\"}";
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  assert_true(before.calls > 0);  // jansson really uses brim's allocator
  brim_status status = BRIM_ENOMEM;
  int tries = 0;
  for (uint64_t n = 1; status == BRIM_ENOMEM; n++, tries++) {
    json_t *value = NULL;
    char *out = NULL;
    brim_alloc_fail_nth(n, 0);
    status = brim_json_parse(text, strlen(text), "in", &value);
    if (!status) status = brim_json_dump(value, 2, &out);
    brim_alloc_fail_nth(0, 0);
    json_decref(value);
    brim_free(out);
    brim_alloc_get_stats(&after);
    assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
  }
  assert_ok(status);
  assert_true(tries > 20);
}

static void test_numbers(void **state) {
  (void)state;
  const double values[] = {1, -0.1, 1e300, (double)NAN, 9007199254740991.0};
  double got[8];
  json_t *o = json_object();
  assert_ok(brim_json_put_numbers(o, "some", values, 5));
  assert_int_equal(brim_json_get_numbers(o, "some", got, 8), 5);
  for (int i = 0; i < 5; i++) {
    assert_true(got[i] == values[i] || (isnan(got[i]) && isnan(values[i])));
  }
  assert_int_equal(brim_json_get_numbers(o, "some", got, 4), 0);  // too many
  assert_int_equal(brim_json_get_numbers(o, "others", got, 8), 0);
  assert_ok(brim_json_put_numbers(o, "none", NULL, 0));
  assert_int_equal(brim_json_get_numbers(o, "none", got, 8), 0);
  assert_ok(brim_json_put(o, "words", json_string("1 two")));
  assert_int_equal(brim_json_get_numbers(o, "words", got, 8), 0);
  json_decref(o);
}

int main(void) {
  brim_json_own_memory();  // as in the program, so that its allocations can be made to fail
  brim_json_setup();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers),     cmocka_unit_test(reads_and_writes),
      cmocka_unit_test(indented),         cmocka_unit_test(doubles_survive),
      cmocka_unit_test(errors_say_where), cmocka_unit_test(depth_is_bounded),
      cmocka_unit_test(builders),         cmocka_unit_test(errors_name_the_place),
      cmocka_unit_test(out_of_memory),    cmocka_unit_test(values_are_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
