// `brim doctor` as people type it: exit codes, JSON, a config, a machine that shows almost nothing, Korean.
#include "cli_test.h"

static const char config[] =
    "dataset: synthetic(shape=(6, 6), classes=4, samples=500)\n"
    "model: mlp(depth=2, hidden=24)\n"
    "data: {batch_size: 32}\n"
    "training: {epochs: 2}\n";

// Where this machine itself has something bad, that is the machine's: the code is 0 or 1, and never
// another.
static void test_machine(void **state) {
  (void)state;
  shell_result r = shell("brim doctor --quick");
  assert_true(r.code == 0 || r.code == 1);
  has(r.out, "Driver and libraries\n");
  has(r.out, "\nHost\n");
  has(r.out, "\nMeasured ceilings\n");
  has(r.out, "not measured (--quick)");
  shell_free(&r);
  expect(2, "unknown option", "brim doctor --quik");
}

static const json_t *check_of(const json_t *value, const char *key) {
  const json_t *checks = json_object_get(value, "checks");
  for (size_t i = 0; i < json_array_size(checks); i++) {
    const json_t *c = json_array_get(checks, i);
    if (strcmp(json_string_value(json_object_get(c, "key")), key) == 0) return c;
  }
  return NULL;
}

static const char *state_of(const json_t *value, const char *key) {
  const json_t *c = check_of(value, key);
  if (!c) fail_msg("no check %s", key);
  return json_string_value(json_object_get(c, "state"));
}

static json_t *doctor_json(const char *arguments, int *code) {
  json_t *value = NULL;
  shell_result r = shell("BRIM_MACHINE_ROOT=nothing brim doctor --json %s", arguments);
  assert_int_equal(json_lines(r.out), 1);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "doctor", &value));
  *code = r.code;
  shell_free(&r);
  return value;
}

// A folder without any file stands for the machine: nothing is bad, nothing is invented.
static void test_bare(void **state) {
  (void)state;
  int code;
  assert_ok(brim_fs_mkdirs("nothing"));
  json_t *value = doctor_json("--quick", &code);
  static const char *const keys[] = {"host.system", "host.memory", "host.cores", "host.load"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    assert_string_equal(state_of(value, keys[i]), "unknown");
  }
  assert_string_equal(json_string_value(json_object_get(value, "schema")), "brim.doctor/1");
  json_decref(value);
}

static void test_config(void **state) {
  (void)state;
  int code;
  assert_ok(brim_fs_mkdirs("nothing"));
  write_file("small.yaml", config);
  json_t *value = doctor_json("small.yaml --backend ref", &code);
  assert_string_equal(state_of(value, "config.fit"), "good");
  assert_string_equal(state_of(value, "config.checkpoints"), "good");
  assert_string_equal(state_of(value, "config.measured"), "unknown");
  assert_string_equal(state_of(value, "ceiling.gemm_fp32"), "good");
  assert_string_equal(state_of(value, "ceiling.launch"), "good");
  assert_true(
      json_number_value(json_object_get(json_object_get(value, "ceilings"), "launches_per_s")) > 0);
  json_decref(value);
  // it wrote nothing
  assert_false(has_file("runs"));
}

static void test_bad_config(void **state) {
  (void)state;
  int code;
  assert_ok(brim_fs_mkdirs("nothing"));
  write_file("bad.yaml", "model: mlp(depth=2\n");
  json_t *value = doctor_json("bad.yaml --quick", &code);
  assert_int_equal(code, 1);
  assert_string_equal(state_of(value, "config.opens"), "bad");
  assert_non_null(check_of(value, "host.memory"));
  json_decref(value);
  shell_result r = shell("brim doctor none.yaml --quick");
  assert_int_equal(r.code, 1);
  has(r.out, "none.yaml");
  has(r.out, "\nHost\n");
  shell_free(&r);
}

static void test_data(void **state) {
  (void)state;
  int code;
  assert_ok(brim_fs_mkdirs("nothing"));
  json_t *value = doctor_json("--quick --data no/such/place", &code);
  assert_int_equal(code, 1);
  assert_string_equal(state_of(value, "data.filesystem"), "bad");
  json_decref(value);
}

static void test_korean(void **state) {
  (void)state;
  shell_result r = shell("CUDA_LAUNCH_BLOCKING=1 brim doctor --quick --lang ko");
  assert_int_equal(r.code, 1);
  has(r.out, "드라이버와 라이브러리\n");
  has(r.out, "나쁨");
  has(r.out, "unset CUDA_LAUNCH_BLOCKING");
  shell_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_machine),    cmocka_unit_test(test_bare), cmocka_unit_test(test_config),
      cmocka_unit_test(test_bad_config), cmocka_unit_test(test_data), cmocka_unit_test(test_korean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
