// `brim doctor` as a user types it: exit codes, JSON, a config, a machine that shows almost nothing, Korean.
#include "cli_test.h"

static const char config[] =
    "dataset: synthetic(shape=(6, 6), classes=4, samples=500)\n"
    "model: mlp(depth=2, hidden=24)\n"
    "data: {batch_size: 32}\n"
    "training: {epochs: 2}\n";

// This machine may have faults of its own, so the exit code is 0 or 1, but never another.
static void test_machine(void **state) {
  (void)state;
  shell_result r = shell("brim doctor --quick");
  assert_true(r.code == 0 || r.code == 1);
  has(r.out, "Driver and libraries\n");
  has(r.out, "\nHost\n");
  has(r.out, "\nMeasured ceilings\n");
  has(r.out, "(--quick)\n");  // columns are as wide as this machine's values
  shell_free(&r);
  says(2, "brim doctor --quik");
}

static void write_file_in(const char *folder, const char *name, const char *text) {
  assert_ok(brim_fs_mkdirs(folder));
  char *path = brim_fs_join(folder, name);
  assert_non_null(path);
  write_file(path, text);
  brim_free(path);
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

// An empty folder stands for the machine: nothing is bad, nothing is invented.
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
  // doctor wrote nothing
  assert_false(has_file("runs"));
}

static const char *text_of(const json_t *value, const char *key, const char *member) {
  const json_t *c = check_of(value, key);
  if (!c) fail_msg("no check %s", key);
  const char *text = json_string_value(json_object_get(c, member));
  return text ? text : "";
}

// Suggested commands are complete: they contain the data and every override. Files go where training puts them.
static void test_commands(void **state) {
  (void)state;
  int code;
  assert_ok(brim_fs_mkdirs("nothing"));
  write_file("small.yaml", config);
  json_t *value = doctor_json(
      "small.yaml --backend ref lr=0.01 'name=my run' checkpoint.dir=elsewhere --quick", &code);
  assert_string_equal(text_of(value, "config.measured", "fix"),
                      "brim bench small.yaml backend=ref lr=0.01 'name=my run' "
                      "checkpoint.dir=elsewhere");
  has(text_of(value, "config.checkpoints", "value"), " in runs/my run; ");
  assert_string_equal(text_of(value, "data.space", "subject"), "runs/my run");
  json_decref(value);
  value = doctor_json("small.yaml --backend ref output_dir=out threads=64 --quick", &code);
  has(text_of(value, "config.checkpoints", "value"), " in out; ");
  json_decref(value);
}

// After a run of the same command, the sizes of checkpoints and logs are those it wrote, not estimates.
static void test_written(void **state) {
  (void)state;
  int code;
  assert_ok(brim_fs_mkdirs("nothing"));
  write_file("small.yaml", config);
  expect(0, NULL, "rm -rf written; brim train small.yaml --backend ref output_dir=written");
  json_t *value = doctor_json("small.yaml --backend ref output_dir=written --quick", &code);
  has(text_of(value, "config.checkpoints", "value"), "each as written before");
  has(text_of(value, "config.logs", "value"), "; log.jsonl has ");
  json_decref(value);
}

// The config's own value may be among those that a sweep tries by default: it is named once.
static void test_axis(void **state) {
  (void)state;
  int code;
  assert_ok(brim_fs_mkdirs("nothing"));
  json_t *value = doctor_json("cartpole ars.num_envs=16 --backend ref --quick", &code);
  has(text_of(value, "config.sweep", "value"), "num_envs 16 64");
  assert_string_equal(text_of(value, "config.sweep", "fix"), "");
  has(text_of(value, "config.checkpoints", "value"), "under 64.0 KiB each");
  json_decref(value);
}

// doctor needs neither a home nor a path nor another variable; a read-only home is no failure.
static void test_surroundings(void **state) {
  (void)state;
  static const char *const commands[] = {
      "env -u HOME '" BRIM_BINARY "' doctor --json --quick",
      "HOME=/nonexistent brim doctor --json --quick",
      "env -i '" BRIM_BINARY "' doctor --json --quick",
      "PATH= '" BRIM_BINARY "' doctor --json --quick",
      "mkdir -p closed; chmod 500 closed; HOME=closed brim doctor --json --quick"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    json_t *value = NULL;
    shell_result r = shell("%s", commands[i]);
    if (r.code != 0 && r.code != 1) fail_msg("%s: %d", commands[i], r.code);
    assert_int_equal(json_lines(r.out), 1);
    assert_ok(brim_json_parse(r.out, strlen(r.out), "doctor", &value));
    assert_non_null(check_of(value, "host.memory"));
    json_decref(value);
    shell_free(&r);
  }
}

// No thread can start, because its stack is larger than the address space: doctor has a line about it, instead of
// OpenMP ending the process. A sanitizer cannot start under such a limit.
static void test_no_threads(void **state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip();
#else
  write_file("small.yaml", config);
  shell_result r = shell(
      "ulimit -s 100000000000 || exit 9; brim doctor small.yaml --json --backend cpu threads=2");
  if (r.code != 9) {
    assert_int_equal(r.code, 1);
    assert_int_equal(json_lines(r.out), 1);
  }
  shell_free(&r);
#endif
}

// Linux under Windows, recognised by its files: it has its own lines, and none about settings that only Windows has.
static void test_wsl(void **state) {
  (void)state;
  write_file_in("wsl/proc/sys/kernel", "osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
  write_file_in("wsl/proc", "meminfo", "MemTotal: 12582912 kB\nMemAvailable: 11000000 kB\n");
  json_t *value = NULL;
  shell_result r = shell("BRIM_MACHINE_ROOT=wsl brim doctor --json --quick");
  assert_int_equal(r.code, 1);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "doctor", &value));
  assert_string_equal(state_of(value, "wsl.version"), "good");
  assert_string_equal(state_of(value, "wsl.memory"), "unknown");
  assert_string_equal(state_of(value, "host.shm"), "unknown");
  assert_null(check_of(value, "gpu.persistence"));
  json_decref(value);
  shell_free(&r);
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

// A folder in the place of a config counts as data, and --quiet shows only the trouble.
static void test_folder(void **state) {
  (void)state;
  shell_result r =
      shell("brim data make lies -q --format idx --samples 20 && brim doctor lies --quick");
  assert_int_equal(r.code, 0);
  has(r.out, "lies");
  assert_null(strstr(r.out, "is a folder, but a config"));
  assert_null(strstr(r.out, "config show  --origins"));
  shell_free(&r);
  r = shell("brim doctor lies --quick --quiet");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "  good "));
  shell_free(&r);
  r = shell("brim config explain plugin:mcar");
  assert_int_equal(r.code, 0);
  has(r.out, "plugin:mcar");
  shell_free(&r);
}

static void test_korean(void **state) {
  (void)state;
  shell_result r = shell("CUDA_LAUNCH_BLOCKING=1 brim doctor --quick --lang ko");
  assert_int_equal(r.code, 1);
  has(r.out, "드라이버와 라이브러리\n");
  has(r.out, "CUDA_LAUNCH_BLOCKING=1\n");
  has(r.out, "unset CUDA_LAUNCH_BLOCKING");
  shell_free(&r);
  write_file("small.yaml", config);
  r = shell("brim doctor small.yaml --backend ref --quick --lang ko");
  has(r.out, "샘플 500개");
  // the command line of another process on the GPU may contain the word
  assert_null(strstr(r.out, "500 samples"));
  shell_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_commands),   cmocka_unit_test(test_written),
      cmocka_unit_test(test_axis),       cmocka_unit_test(test_surroundings),
      cmocka_unit_test(test_no_threads), cmocka_unit_test(test_wsl),
      cmocka_unit_test(test_machine),    cmocka_unit_test(test_bare),
      cmocka_unit_test(test_config),     cmocka_unit_test(test_bad_config),
      cmocka_unit_test(test_data),       cmocka_unit_test(test_korean),
      cmocka_unit_test(test_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
