// The logger: levels, no sink, and both ready-made sinks.
#include "base/base_log.h"

#include "base/base_json.h"
#include "test.h"

static char seen[256];
static int seen_count;

static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  assert_ptr_equal(ctx, &seen_count);
  seen_count++;
  snprintf(seen, sizeof seen, "%s/%s/%s", brim_log_level_name(level), module, text);
}

static void levels(void **state) {
  (void)state;
  seen_count = 0;
  brim_log_error("x", "nobody listens");
  brim_log_set_sink(remember, &seen_count, BRIM_LOG_WARN);
  brim_log_info("x", "too quiet");
  brim_log_debug("x", "too quiet");
  assert_int_equal(seen_count, 0);
  brim_log_warn("engine", "slow by %d %%", 5);
  assert_string_equal(seen, "warning/engine/slow by 5 %");
  brim_log_error("data", "gone");
  assert_string_equal(seen, "error/data/gone");
  brim_log_text(BRIM_LOG_ERROR, "plug", "100 %s literal");
  assert_string_equal(seen, "error/plug/100 %s literal");
  assert_int_equal(seen_count, 3);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_DEBUG);
  brim_log_error("x", "nobody listens");
  assert_int_equal(seen_count, 3);
}

// Returns the text that a sink writes for one call.
static char *written(brim_log_sink sink, brim_log_level level, const char *text) {
  char *data = NULL;
  size_t size = 0;
  FILE *file = open_memstream(&data, &size);
  assert_non_null(file);
  brim_log_set_sink(sink, file, BRIM_LOG_DEBUG);
  brim_log_text(level, "engine", text);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_INFO);
  fclose(file);
  return data;
}

static void human_sink(void **state) {
  (void)state;
  char *text = written(brim_log_sink_human, BRIM_LOG_WARN, "low memory");
  assert_string_equal(text, "brim: warning: low memory\n");
  free(text);
  text = written(brim_log_sink_human, BRIM_LOG_ERROR, "gone");
  assert_string_equal(text, "brim: error: gone\n");
  free(text);
  text = written(brim_log_sink_human, BRIM_LOG_INFO, "step 5");
  assert_string_equal(text, "brim: step 5\n");
  free(text);
}

static void json_sink(void **state) {
  (void)state;
  char *text = written(brim_log_sink_json, BRIM_LOG_ERROR, "a \"quote\" \\ \n tab\t 한 \x01");
  size_t n = strlen(text);
  assert_int_equal(text[n - 1], '\n');
  assert_ptr_equal(strchr(text, '\n'), text + n - 1);  // one line
  json_t *value;
  assert_ok(brim_json_parse(text, n, "log", &value));
  assert_string_equal(json_string_value(json_object_get(value, "level")), "error");
  assert_string_equal(json_string_value(json_object_get(value, "module")), "engine");
  assert_string_equal(json_string_value(json_object_get(value, "text")),
                      "a \"quote\" \\ \n tab\t 한 \x01");
  assert_true(json_real_value(json_object_get(value, "t")) > 1.6e9);
  json_decref(value);
  free(text);
}

// Names of files and classes are untrusted: no sink passes their terminal codes on.
static void no_escapes(void **state) {
  (void)state;
  const char *name =
      "\x1b[2J\xc2\x9b"
      "1m \xe2\x80\xae 한";
  char *text = written(brim_log_sink_human, BRIM_LOG_WARN, name);
  assert_string_equal(text, "brim: warning: \\x1b[2J\\u009b1m \\u202e 한\n");
  free(text);
  text = written(brim_log_sink_json, BRIM_LOG_WARN, name);
  assert_null(strchr(text, '\x1b'));
  assert_null(strstr(text, "\xc2\x9b"));
  assert_null(strstr(text, "\xe2\x80\xae"));
  json_t *value;
  assert_ok(brim_json_parse(text, strlen(text), "log", &value));
  // unchanged in JSON
  assert_string_equal(json_string_value(json_object_get(value, "text")), name);
  json_decref(value);
  free(text);
  text = written(brim_log_sink_json, BRIM_LOG_WARN, "not UTF-8: \xff");
  assert_ok(brim_json_parse(text, strlen(text), "log", &value));
  assert_string_equal(json_string_value(json_object_get(value, "text")), "not UTF-8: \\xff");
  json_decref(value);
  free(text);
}

static void json_sink_bounds_long_text(void **state) {
  (void)state;
  char *large = malloc(100001);
  memset(large, '"', 100000);
  large[100000] = '\0';
  char *text = written(brim_log_sink_json, BRIM_LOG_INFO, large);
  json_t *value;
  assert_ok(brim_json_parse(text, strlen(text), "log", &value));
  json_decref(value);
  free(text);
  free(large);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(levels),
      cmocka_unit_test(human_sink),
      cmocka_unit_test(json_sink),
      cmocka_unit_test(no_escapes),
      cmocka_unit_test(json_sink_bounds_long_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
