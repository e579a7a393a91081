// `brim bench` and the ceilings of the machine: in every record and in the summary, remembered, left out on request,
// and never measured for plans alone.
#include <math.h>

#include "cli_test.h"
#include "json_file.h"
#include "quiet_machine.h"
#include "record/record.h"
#include "record/record_findings.h"

#define BENCH_IN(cache)                                                                \
  "export XDG_CACHE_HOME=$PWD/" cache                                                  \
  "; brim bench --device ref --steps 2 --repeats 1 "                                   \
  "'model=mlp(depth=1, hidden=8)' 'dataset=synthetic(samples=64)' --batch-sizes 8 16 " \
  "--num-workers 0 --precisions fp32 --output-dir ceilings "
#define BENCH BENCH_IN("cache")

static void check_records(bool known) {
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("ceilings/results.jsonl", &results, &count, NULL));
  assert_int_equal(count, 2);
  for (size_t i = 0; i < count; i++) {
    const brim_machine_ceilings *c = &results[i].ceilings;
    assert_int_equal(known, c->gemm_fp32_flops > 0 && isfinite(c->gemm_fp32_flops));
    assert_int_equal(known, c->copy_bytes_per_s > 0 && isfinite(c->copy_bytes_per_s));
    assert_int_equal(known, results[i].compute_samples_per_s > 0);
    // a device that uses host memory has no copies to measure, and no tf32
    assert_true(isnan(c->h2d_pinned_bytes_per_s) && isnan(c->gemm_tf32_flops));
    brim_result_deinit(&results[i]);
  }
  brim_free(results);
}

static void test_ceilings(void **state) {
  (void)state;
  brim_fs_remove("cache/brim/ceilings.json");
  expect(0, NULL, BENCH "--plan");
  assert_false(has_file("cache/brim/ceilings.json"));
  expect(0, NULL, BENCH "--no-ceilings");
  assert_false(has_file("cache/brim/ceilings.json"));
  check_records(false);
  expect(0, NULL, BENCH);
  check_records(true);
  // a place where nothing can be stored does not disturb the sweep
  write_file("file", "");
  expect(0, NULL, BENCH_IN("file"));
  check_records(true);
}

// Ceilings in the cache are used without a new measurement.
static void test_remembered(void **state) {
  (void)state;
  quiet_machine_measure("cache", "ref");
  quiet_machine_set("cache", 1e15);
  expect(0, NULL, BENCH);
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("ceilings/results.jsonl", &results, &count, NULL));
  for (size_t i = 0; i < count; i++) {
    assert_true(results[i].ceilings.gemm_fp32_flops == 1e15);
    brim_result_deinit(&results[i]);
  }
  brim_free(results);
}

// Ceilings that a step exceeds were measured at a bad moment: they are measured again in the same sweep, and never left
// as nulls.
static void test_exceeded(void **state) {
  (void)state;
  json_t *root = NULL;
  char *text = NULL;
  quiet_machine_measure("cache", "ref");
  root = json_file("cache/brim/ceilings.json");
  const char *key;
  json_t *entry;
  json_object_foreach(json_object_get(root, "entries"), key, entry) {
    json_object_set_new(entry, "gemm_fp32_flops", json_real(1));
  }
  assert_ok(brim_json_dump(root, 0, &text));
  write_file("cache/brim/ceilings.json", text);
  brim_free(text);
  json_decref(root);
  expect(0, NULL, BENCH);
  check_records(true);
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("ceilings/results.jsonl", &results, &count, NULL));
  for (size_t i = 0; i < count; i++) {
    assert_true(results[i].ceilings.gemm_fp32_flops > 1);
    brim_result_deinit(&results[i]);
  }
  brim_free(results);
  // on a busy machine the new ones may not be stored; then the old ones are marked as unreliable
  root = json_file("cache/brim/ceilings.json");
  json_object_foreach(json_object_get(root, "entries"), key, entry) {
    brim_machine_ceilings left = {.load = json_number_value(json_object_get(entry, "load"))};
    assert_true(json_is_number(json_object_get(entry, "gemm_fp32_flops")));
    assert_true(json_number_value(json_object_get(entry, "gemm_fp32_flops")) > 1 ||
                brim_machine_doubtful(&left));
  }
  json_decref(root);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ceilings),
      cmocka_unit_test(test_remembered),
      cmocka_unit_test(test_exceeded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
