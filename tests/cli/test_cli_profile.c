// `brim profile` as a user types it, on the CPU: the output, the files and their contents, mistakes, a full disk,
// Ctrl-C. check_trace.py checks the trace if python3 is here.
#include <stdio.h>
#include <string.h>

#include <unistd.h>

#include "cli_test.h"
#include "quiet_machine.h"

#define SMALL "dataset='synthetic(shape=(6, 6), classes=3, samples=240)' model='mlp(hidden=8)' "
#define QUICK "brim profile " SMALL "batch_size=16 num_workers=1 --device cpu --no-price --steps 3 "

static json_t *read_json(const char *path) {
  char *text = NULL;
  size_t size = 0;
  json_t *value = NULL;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  assert_ok(brim_json_parse(text, size, path, &value));
  brim_free(text);
  return value;
}

static void test_summary(void **state) {
  (void)state;
  shell_result r =
      shell(QUICK "--output-dir all --tensorboard all/tb --memory-snapshot all/memory.json");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  static const char *const parts[] = {"PROFILE",
                                      "Ops, by time",
                                      "linear",
                                      "Phases of a step",
                                      "Memory during a step",
                                      "Peak at",
                                      "parameters (whole run)",
                                      "FINDINGS",
                                      "Measuring took",
                                      "3 traced steps",
                                      "all/profile.json",
                                      "all/profile.html",
                                      "all/trace.json.gz",
                                      "all/memory.json"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) has(r.out, parts[i]);
  has_not(r.out, "nan");
  has_not(r.out, "GPU idle");
  has_not(r.out, "(null)");
  shell_free(&r);
  assert_false(has_file("all/lock"));
  expect(0, NULL, "ls all/tb/events.out.tfevents.*");
}

// The record has the printed figures; its sums cover the step; the snapshot's owners are its blocks.
static void test_files(void **state) {
  (void)state;
  expect(0, NULL,
         QUICK "--output-dir files --memory-snapshot files/memory.json --trace files/t.json");
  json_t *profile = read_json("files/profile.json");
  assert_string_equal(json_string_value(json_object_get(profile, "schema")), "brim.profile/1");
  assert_true(json_array_size(json_object_get(profile, "ops")) > 3);
  json_decref(profile);
  json_t *memory = read_json("files/memory.json"), *op;
  assert_string_equal(json_string_value(json_object_get(memory, "schema")), "brim.memory/1");
  json_t *ops = json_object_get(memory, "ops"), *blocks = json_object_get(memory, "blocks");
  size_t i, peak = (size_t)json_integer_value(json_object_get(memory, "peak"));
  assert_true(json_array_size(ops) > peak);
  json_array_foreach(ops, i, op) {
    json_t *owners = json_object_get(op, "owners"), *owner;
    size_t k;
    json_array_foreach(owners, k, owner) {
      json_t *block = json_array_get(blocks, (size_t)json_integer_value(owner));
      assert_non_null(block);
      assert_true(json_integer_value(json_object_get(block, "first")) <= (json_int_t)i);
      assert_true(json_integer_value(json_object_get(block, "last")) >= (json_int_t)i);
    }
  }
  const double most = json_number_value(json_object_get(json_array_get(ops, peak), "bytes"));
  assert_true(most == json_number_value(json_object_get(memory, "peak_bytes")));
  json_decref(memory);
  json_t *trace = read_json("files/t.json");
  assert_true(json_array_size(json_object_get(trace, "traceEvents")) > 20);
  json_decref(trace);
  assert_false(has_file("files/trace.json.gz"));
  shell_result r = shell("command -v python3 >/dev/null || exit 0; python3 " BRIM_SOURCE_DIR
                         "/tests/profile/check_trace.py files/t.json");
  if (r.code) fail_msg("the trace: %s %s", r.out, r.err);
  shell_free(&r);
}

static void test_tables(void **state) {
  (void)state;
  shell_result r = shell(QUICK "--output-dir tables --by layer --sort name --limit 1");
  assert_int_equal(r.code, 0);
  has(r.out, "Layers, by name");
  said_rows(&r, "--limit");
  shell_free(&r);
  r = shell(QUICK "--output-dir tables --by kernel");
  assert_int_equal(r.code, 0);
  has(r.err, "this profile has no rows of --by kernel");
  has(r.out, "Ops, by time");
  shell_free(&r);
  r = shell(QUICK "--output-dir tables --json");
  assert_int_equal(r.code, 0);
  assert_true(json_lines(r.out) >= 1);
  has(r.out, "\"event\":\"profile\"");
  has(r.out, "\"trace\":\"tables/trace.json.gz\"");
  shell_free(&r);
}

// Shows an earlier profile by its record or folder: the same figures, and nothing is measured.
static void test_again(void **state) {
  (void)state;
  expect(0, NULL, QUICK "--output-dir again > again.txt");
  shell_result r = shell(
      "brim profile again/profile.json --html again/second.html | grep -v again/ > "
      "second.txt && grep -v again/ again.txt | diff - second.txt");
  if (r.code) fail_msg("%s %s", r.out, r.err);
  shell_free(&r);
  assert_true(has_file("again/second.html"));
  expect(0, "Layers, by time", "brim profile again --by layer");
  expect(0, "\"event\":\"profile\"", "brim profile again --json");
  write_file("broken.json", "{\"schema\": \"brim.other/1\"}");
  expect(2, "broken.json", "brim profile broken.json");
  write_file("torn.json", "{");
  expect(2, "torn.json", "brim profile torn.json");
}

// A profile made with --lang ko is English in the file, and is shown in the language of its reader.
static void test_every_reader_in_their_language(void **state) {
  (void)state;
  expect(0, NULL, "export LC_ALL=ko_KR.UTF-8; " QUICK "--output-dir korean");
  json_t *profile = read_json("korean/profile.json");
  json_t *list = json_object_get(json_object_get(profile, "result"), "findings"), *item;
  size_t i;
  assert_true(json_is_array(list));
  json_array_foreach(list, i, item) {
    const char *text = json_string_value(json_object_get(item, "text"));
    for (const char *c = text; *c; c++) assert_true((unsigned char)*c < 0x80);
  }
  json_array_clear(list);
  json_array_append_new(list,
                        json_pack("{s:s, s:f, s:s, s:s}", "code", "io_wait", "cost_ms", 1.0, "text",
                                  "waiting for data takes 42 % of a step", "text_words",
                                  "\x01waiting for data takes %.0f %% of a step\x02"
                                  "42\x03"));
  char *text = NULL;
  assert_ok(brim_json_dump(profile, 0, &text));
  write_file("korean/profile.json", text);
  brim_free(text);
  json_decref(profile);
  expect(0, "waiting for data takes 42 % of a step", "brim --lang en profile korean");
  expect(0, "스텝의 42 %를", "brim --lang ko profile korean --html korean/ko.html");
  expect(0, NULL, "grep -q '스텝의 42 %를' korean/ko.html");
}

// A page does not overwrite its record. Options that an earlier profile cannot serve are refused with a message.
static void test_again_refused(void **state) {
  (void)state;
  expect(0, NULL, QUICK "--output-dir shown && cp shown/profile.json shown.before");
  says(2, "brim profile shown --html shown/profile.json");
  says(2, "brim profile shown/profile.json --html ./shown/../shown/profile.json");
  expect(0, NULL, "cmp shown.before shown/profile.json");
  static const char *const refused[] = {"--trace t.json",   "--memory-snapshot m.json",
                                        "--tensorboard tb", "--output-dir other",
                                        "--config c.yaml",  "--steps 3",
                                        "--device cpu",     "--source events",
                                        "--data-path data", "--threads 2"};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char command[96];
    snprintf(command, sizeof command, "brim profile shown %s", refused[i]);
    says(2, command);
  }
  says(2, "brim profile shown --limit -1");
  expect(0, NULL, "test ! -e t.json && test ! -e m.json && test ! -e tb && test ! -e other");
  expect(0, "PROFILE", "brim profile shown --limit 0 --sort name --color never");
}

// JSON is YAML: only a file with a schema of brim's is a record. This test also measures the machine.
static void test_json_config(void **state) {
  (void)state;
  write_file("config.json",
             "{\"dataset\": \"synthetic(shape=(6, 6), classes=3, samples=240)\", "
             "\"model\": \"mlp(hidden=8)\", \"batch_size\": 16}\n");
  expect(0, "json/profile.json",
         "export XDG_CACHE_HOME=$PWD/json-cache; brim profile config.json --device ref --no-price "
         "--steps 2 --output-dir json");
}

// The files of the first profile stay; files that an option names are replaced.
static void test_kept(void **state) {
  (void)state;
  char *before = NULL, *after = NULL;
  size_t size = 0, now = 0;
  expect(0, NULL, "rm -rf kept");  // left by an earlier run
  shell_result r = shell(QUICK "--output-dir kept --html kept/named.html");
  assert_int_equal(r.code, 0);
  has_not(r.err, "is kept");
  shell_free(&r);
  assert_ok(brim_fs_read("kept/profile.json", 0, &before, &size));
  r = shell(QUICK "--output-dir kept --html kept/named.html");
  assert_int_equal(r.code, 0);
  said_lines(&r, "kept/profile-1.json");
  shell_free(&r);
  assert_ok(brim_fs_read("kept/profile-1.json", 0, &after, &now));
  assert_true(size == now && memcmp(before, after, size) == 0);
  assert_true(has_file("kept/profile.json") && has_file("kept/trace-1.json.gz"));
  assert_false(has_file("kept/named-1.html"));
  brim_free(before);
  brim_free(after);
}

// The earlier profile is kept under a name that this run does not use: profile-2, because an option names profile-1.
static void test_kept_beside_own_names(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf own && mkdir own");
  expect(0, NULL, QUICK "--output-dir own && cp own/profile.json own.before");
  says_lines(0, "own/profile-2.json",
             QUICK "--output-dir own --memory-snapshot ./own/profile-1.json");
  expect(0, NULL, "cmp own.before own/profile-2.json && grep -q brim.memory/1 own/profile-1.json");
}

static double number(const json_t *object, const char *section, const char *key) {
  return json_number_value(json_object_get(json_object_get(object, section), key));
}

// The record's step, the total of its result and its throughput cover the same steps.
static void test_one_step_time(void **state) {
  (void)state;
  expect(0, NULL, QUICK "--output-dir one");
  json_t *profile = read_json("one/profile.json"), *sum;
  const json_t *result = json_object_get(profile, "result");
  const double step = number(profile, "step", "ms");
  size_t i;
  assert_true(step > 0 && step == number(result, "total", "median_ms"));
  // 240 samples in 15 steps
  const double rate = number(result, "throughput", "samples_per_s");
  assert_true(rate * step * 1e-3 > 15.99 && rate * step * 1e-3 < 16.01);
  json_array_foreach(json_object_get(profile, "sums"), i, sum) {
    const double percent = json_number_value(json_object_get(sum, "percent"));
    assert_true(percent > 99.99 && percent < 100.01);
  }
  json_decref(profile);
  shell_result r = shell("brim profile one --by layer");
  has(r.out, "Layers, by time; together 100 % of the step");
  has(r.out, "(median and MAD, untraced)");
  const char *head = strstr(r.out, "Layer ");
  assert_non_null(head);
  char line[160];
  snprintf(line, sizeof line, "%.*s", (int)strcspn(head, "\n"), head);
  has_not(line, "Phase");
  shell_free(&r);
}

// A workload without a network, and the default folder.
static void test_other_workload(void **state) {
  (void)state;
  shell_result r = shell(
      "brim profile cartpole --device cpu --no-price --steps 2 ars.num_envs=16 ars.num_dirs=8 "
      "ars.dir_chunk=8");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  has(r.out, "runs/profile-cartpole/profile.html");
  has(r.out, "Environment");
  has_not(r.out, "nan");
  has_not(r.out, "matrix products");  // a simulation has none
  shell_free(&r);
}

static void test_mistakes(void **state) {
  (void)state;
  write_file("taken", "x");
  says(2, "brim profile");
  says(2, "brim profile nosuch.yaml");
  write_file("kept.yaml", "dataset: synthetic(samples=64)\nmodel: mlp(depth=1, hidden=8)\n");
  says(2, "brim profile kept.yaml --html kept.yaml");
  says(2, "brim profile kept.yaml --trace same.json --html same.json");
  says(2, "brim profile " SMALL "nosuch=1");
  says(2, "brim profile " SMALL "--sort size");
  says(2, "brim profile " SMALL "--steps 0");
  says(2, "brim profile " SMALL "--limit -1");
  says(2, "brim profile " SMALL "--device cpu --trace t.txt");
  says(2, "brim profile " SMALL "--device cpu --output-dir taken");
  says(2, "brim profile " SMALL "--device cpu --tensorboard taken/tb");
  says(2, "brim profile " SMALL "--device cpu --html .");
  says_lines(3,
             "brim: error: ", "brim profile " SMALL "--device cpu --source cupti --output-dir m");
  expect(4, "memory",
         "brim profile " SMALL
         "--device cpu model='mlp(hidden=4096)' batch_size=200000000 --output-dir m");
  assert_false(has_file("m/profile.json"));
}

// The measurement is printed even if its file cannot be written. A limit on the size of files stands for a full disk:
// /dev/full cannot hold an output folder.
static void test_full_disk(void **state) {
  (void)state;
  shell_result r = shell("ulimit -f 8; trap '' XFSZ; " QUICK "--output-dir full");
  assert_int_equal(r.code, 1);
  has(r.out, "PROFILE");
  said_lines(&r, "full/profile.json");
  assert_false(has_file("full/profile.html"));
  shell_free(&r);
}

static void test_interrupted(void **state) {
  (void)state;
  shell_result r =
      shell("'%s' profile " SMALL
            "batch_size=16 --device cpu --steps 10000 --output-dir cut > cut.out 2> "
            "cut.err & p=$!; i=0; while [ $i -lt 600 ] && ! [ -e cut/lock ]; do sleep 0.05; "
            "i=$((i + 1)); done; kill -INT $p; wait $p; echo code $?",
            BRIM_BINARY);
  said(&r);
  assert_false(has_file("cut/profile.json"));
  assert_false(has_file("cut/lock"));
  shell_free(&r);
}

static int begin(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf all files json-cache");  // left by an earlier run
  quiet_machine("cpu");
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_summary),
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_tables),
      cmocka_unit_test(test_again),
      cmocka_unit_test(test_every_reader_in_their_language),
      cmocka_unit_test(test_kept),
      cmocka_unit_test(test_one_step_time),
      cmocka_unit_test(test_other_workload),
      cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_interrupted),
      cmocka_unit_test(test_again_refused),
      cmocka_unit_test(test_json_config),
      cmocka_unit_test(test_kept_beside_own_names),
  };
  return cmocka_run_group_tests(tests, begin, NULL);
}
