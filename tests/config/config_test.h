// Shared by the config tests: load a text, compare a key's typed value with a text.
#ifndef BRIM_TESTS_CONFIG_TEST_H_
#define BRIM_TESTS_CONFIG_TEST_H_

#include "config/config.h"
#include "test.h"
#include "workload/workload.h"

// The list of workloads adds their keys before main. This reference makes the linker keep it.
static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

static inline brim_status load(brim_config_mode mode, const char *text, brim_config **out) {
  brim_config_options options = {.text = text, .text_name = "t.yaml", .mode = mode};
  return brim_config_load(&options, out);
}

static inline brim_config *must_load(brim_config_mode mode, const char *text) {
  brim_config *config = NULL;
  brim_status status = load(mode, text, &config);
  if (status) fail_msg("refused: %s\n%s", brim_status_detail(), text);
  return config;
}

// Asserts that loading fails with `status`, and that the detail has every word of the NULL-terminated list.
static inline void assert_refused(brim_config_mode mode, const char *text, brim_status status,
                                  const char *const *words) {
  brim_config *config = NULL;
  brim_status got = load(mode, text, &config);
  if (got == BRIM_OK) {
    brim_config_close(config);
    fail_msg("accepted:\n%s", text);
  }
  if (got != status) fail_msg("%d (%s), expected %d:\n%s", got, brim_status_detail(), status, text);
  for (; *words; words++) {
    if (!strstr(brim_status_detail(), *words)) {
      fail_msg("no '%s' in: %s\n%s", *words, brim_status_detail(), text);
    }
  }
  assert_null(config);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline void assert_ints(const brim_config *config, const char *key, const char *text) {
  const int64_t *ints;
  size_t count;
  assert_ok(brim_config_get_ints(config, key, &ints, &count));
  char got[512] = "";
  size_t used = 0;
  for (size_t i = 0; i < count; i++) {
    used +=
        (size_t)snprintf(got + used, sizeof got - used, "%s%lld", i ? " " : "", (long long)ints[i]);
  }
  assert_string_equal(got, text);
}

// Compares by the key's own type.
static inline void assert_key(const brim_config *config, const char *key, const char *text) {
  const brim_config_key *row = brim_config_key_find(key);
  if (!row) fail_msg("no key %s", key);
  if (!strcmp(row->type, "int") || !strcmp(row->type, "bytes")) {
    int64_t value;
    assert_ok(brim_config_get_int(config, key, &value));
    if (value != strtoll(text, NULL, 10))
      fail_msg("%s is %lld, not %s", key, (long long)value, text);
  } else if (!strcmp(row->type, "float")) {
    double value;
    assert_ok(brim_config_get_float(config, key, &value));
    if (value != strtod(text, NULL)) fail_msg("%s is %g, not %s", key, value, text);
  } else if (!strcmp(row->type, "bool")) {
    bool value;
    assert_ok(brim_config_get_bool(config, key, &value));
    if (value != !strcmp(text, "true")) fail_msg("%s is not %s", key, text);
  } else if (!strcmp(row->type, "list of int")) {
    assert_ints(config, key, text);
  } else {
    const char *value;
    assert_ok(brim_config_get_string(config, key, &value));
    assert_string_equal(value, text);
  }
}

#endif  // BRIM_TESTS_CONFIG_TEST_H_
