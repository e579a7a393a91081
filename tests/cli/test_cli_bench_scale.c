// `device: [..]` of bench: the report and the files for several devices at once, and absent devices, Ctrl-C and
// training. On CPUs, which share their threads.
#include <math.h>
#include <unistd.h>

#include "cli_test.h"
#include "record/scaling_read.h"

// A budget shortens the measurement of each number of devices. This sweep has one setting, so its own measurement does
// not get shorter.
#define SHORT "--steps 3 --repeats 1 --budget 2 --no-price --no-ceilings --output-dir out "
#define SWEEP                                                                 \
  "brim bench small.yaml --batch-sizes 16 --num-workers 1 --precisions fp32 " \
  "data.batch_size=16 data.num_workers=1 " SHORT

static const char small[] =
    "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512)\n"
    "data: {batch_size: 32}\ntraining: {epochs: 1, learning_rate: 0.01}\n";

static void fresh(void) {
  expect(0, NULL, "rm -rf out run");
  write_file("small.yaml", small);
}

// Reads the lines of kind "scaling", in order; returns how many.
static size_t read_scaling(const char *path, brim_scaling *out, size_t most) {
  char *text = NULL;
  size_t size, count = 0;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  for (char *at = text; *at;) {
    size_t n = strcspn(at, "\n");
    json_t *json = NULL;
    assert_ok(brim_json_parse(at, n, path, &json));
    const char *kind = json_string_value(json_object_get(json, "kind"));
    if (strcmp(kind, "scaling") == 0) {
      assert_true(count < most);
      scaling_read(json, &out[count++]);
    }
    json_decref(json);
    at += n + (at[n] == '\n');
  }
  brim_free(text);
  return count;
}

static void free_scaling(brim_scaling *all, size_t count) {
  for (size_t i = 0; i < count; i++) brim_scaling_deinit(&all[i]);
  free(all);
}

static void assert_has(const char *path, const char *part) {
  char *text = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  if (!strstr(text, part)) fail_msg("no '%s' in %s", part, path);
  brim_free(text);
}

static void test_two(void **state) {
  (void)state;
  fresh();
  shell_result r = shell(SWEEP "--device ref,ref");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "SCALING OVER DEVICES"));
  assert_non_null(strstr(r.out, "exchange of gradients over shm"));
  assert_non_null(strstr(r.out, "beyond what was measured"));
  assert_non_null(strstr(r.out, "2 devices together make 32 samples"));
  shell_free(&r);
  brim_scaling *all = calloc(8, sizeof *all);
  assert_non_null(all);
  assert_int_equal(read_scaling("out/results.jsonl", all, 8), 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(all[i].devices, i + 1);
    assert_int_equal(all[i].ran, i + 1);
    assert_true(all[i].efficiency > 0 && all[i].result.samples_per_s > 0);
    assert_true(all[i].one == all[0].result.samples_per_s);
    for (int k = 0; k <= i; k++) assert_string_equal(all[i].replicas[k].spec, "ref");
  }
  const brim_scaling_exchange *e = &all[1].exchange;
  assert_string_equal(e->by, "shm");
  assert_int_equal(e->failure, BRIM_FAILURE_NONE);
  assert_true(e->samples_per_s > 0 && e->efficiency > 0 && e->gradient_bytes > 0);
  assert_true(e->busy_ms > 0 && e->waited_ms > 0 && e->bucket_ms > 0);
  assert_int_equal(all[1].predicted.ranks, 2);
  assert_true(all[1].predicted.samples_per_s > 0 && isfinite(brim_scaling_error(&all[1])));
  assert_int_equal(all[1].further_count, 2);
  assert_true(all[1].further[1].ranks == 8 && all[1].further[1].beyond);
  assert_string_equal(all[0].exchange.by, "");
  free_scaling(all, 2);
  assert_has("out/report.html", "<section id=\"scaling\">");
  assert_has("out/report.html", "<table class=\"scaling ranks\">");
  // one more record, and still one sweep
  says_lines(0, "out/results.jsonl", SWEEP "--device ref,ref --resume");
  assert_false(has_file("out/results-1.jsonl"));
  expect(0, NULL, "test $(grep -c '\"kind\":\"scaling\"' out/results.jsonl) = 2");
  // the sweep itself runs on the first device, so it continues with another list behind it
  says_lines(0, "out/results.jsonl", SWEEP "--device ref,cpu --resume");
}

static void test_events_and_best(void **state) {
  (void)state;
  fresh();
  write_file("list.yaml", "include: small.yaml\ndevice: [ref, ref, ref]\n");
  shell_result r = shell(
      "brim bench list.yaml --batch-sizes 16 32 --num-workers 1 --precisions fp32 " SHORT "--json");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_true(json_lines(r.out) > 4);
  assert_non_null(strstr(r.out, "\"event\":\"scaling\""));
  assert_non_null(strstr(r.out, "\"gradient_exchange\":false"));  // a run on one device
  assert_non_null(strstr(r.out, "\"gradient_exchange\":true"));
  shell_free(&r);
  // the recommended config can be trained, on one device
  if (has_file("out/best.yaml")) {
    assert_has("out/best.yaml", "device: ref\n");
    expect(0, NULL, "brim train out/best.yaml --output-dir run -q");
  }
}

// Predictions reach as far as the command asks; missing facts are reported.
static void test_further(void **state) {
  (void)state;
  fresh();
  shell_result r = shell(SWEEP "--device ref,ref gpus=4 nodes=3");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "network between machines: not measured"));
  shell_free(&r);
  brim_scaling *all = calloc(8, sizeof *all);
  assert_non_null(all);
  assert_int_equal(read_scaling("out/results.jsonl", all, 8), 2);
  static const int64_t ranks[] = {4, 8, 12};
  assert_int_equal(all[1].further_count, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(all[1].further[i].ranks, ranks[i]);
    assert_int_equal(all[1].further[i].network, i > 0);
    assert_int_equal(all[1].further[i].samples_per_s > 0, i == 0);
  }
  free_scaling(all, 2);
}

// A workload that trains on one device exchanges nothing.
static void test_without_ranks(void **state) {
  (void)state;
  fresh();
  shell_result r = shell("brim bench " BRIM_SOURCE_DIR
                         "/configs/cartpole.yaml --device ref,ref --num-envs 16 "
                         "ars.num_envs=16 ars.num_dirs=8 ars.dir_chunk=8 " SHORT);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "do not exchange gradients"));
  assert_null(strstr(r.out, "Predicted"));
  shell_free(&r);
}

static void test_a_device_that_is_not_here(void **state) {
  (void)state;
  fresh();
  shell_result r = shell(SWEEP "--device ref,ref,cuda:1023");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "cuda:1023 did not run"));
  assert_non_null(strstr(r.out, "2 of 3"));
  shell_free(&r);
  brim_scaling *all = calloc(8, sizeof *all);
  assert_non_null(all);
  assert_int_equal(read_scaling("out/results.jsonl", all, 8), 3);
  assert_int_equal(all[2].ran, 2);
  assert_true(all[2].efficiency > 0);
  assert_int_not_equal(all[2].replicas[2].failure, BRIM_FAILURE_NONE);
  assert_true(all[2].replicas[2].message[0] && isnan(all[2].replicas[2].samples_per_s));
  free_scaling(all, 3);
}

// Interrupts as soon as the file has the first number of devices.
static void test_interrupted(void **state) {
  (void)state;
  fresh();
  shell_result r = shell(
      BRIM_BINARY
      " bench small.yaml --batch-sizes 16 --num-workers 1 --precisions fp32 --steps 6 --repeats 1 "
      "--no-price "
      "--no-ceilings --output-dir out --device ref,ref,ref,ref & p=$!; n=0\n"
      "until grep -q '\"kind\":\"scaling\"' out/results.jsonl 2>/dev/null || [ $n -gt 600 ]; do "
      "sleep 0.1; n=$((n + 1)); done\nkill -TERM $p; wait $p");
  if (r.code != 130) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.err, "the sweep is complete"));
  assert_non_null(strstr(r.out, "SCALING OVER DEVICES"));
  shell_free(&r);
  brim_scaling *all = calloc(8, sizeof *all);
  assert_non_null(all);
  size_t count = read_scaling("out/results.jsonl", all, 8);
  assert_true(count >= 1 && count < 3);
  free_scaling(all, count);
  assert_true(has_file("out/report.html"));
}

static void test_bad_lists(void **state) {
  (void)state;
  fresh();
  expect(0, NULL, "brim train small.yaml --max-steps 2 --output-dir run -q");
  expect(3, "this command uses one; name one (device=cuda:0)",
         "brim eval run/last.safetensors device=[0,1]");
  says(2, SWEEP "--device cuda:1,cuda:1");
  says(2, SWEEP "--device cpu,auto");
  says(2, SWEEP "device=[$(seq -s, 0 32)]");
}

// A plan needs only one device.
static void test_plan(void **state) {
  (void)state;
  fresh();
  shell_result r = shell(SWEEP "--device ref,ref --plan");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "SCALING"));
  shell_free(&r);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two),
      cmocka_unit_test(test_further),
      cmocka_unit_test(test_without_ranks),
      cmocka_unit_test(test_events_and_best),
      cmocka_unit_test(test_a_device_that_is_not_here),
      cmocka_unit_test(test_interrupted),
      cmocka_unit_test(test_bad_lists),
      cmocka_unit_test(test_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
