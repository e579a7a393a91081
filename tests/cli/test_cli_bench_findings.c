// `brim bench` on a CPU with planted faults: findings about the config's own setting in the text and in the records.
// All compared values come from one record, because a busy machine slows all of them.
#include <math.h>

#include "cli_test.h"
#include "record/record.h"

#define BENCH                                                                           \
  "brim bench --device ref --steps 3 --repeats 1 --no-ceilings --benchmark-batch "      \
  "'model=mlp(depth=1, hidden=8)' 'dataset=synthetic(samples=256)' data.batch_size=32 " \
  "--batch-sizes 32 data.num_workers=0 --output-dir found "

static brim_result own_record(void) {
  brim_result *results, own;
  size_t count;
  assert_ok(brim_results_read("found/results.jsonl", &results, &count, NULL));
  assert_int_equal(count, 1);
  own = results[0];
  brim_free(results);
  return own;
}

static const brim_finding *find(const brim_result *r, const char *code) {
  for (size_t i = 0; i < r->finding_count; i++) {
    if (strcmp(r->findings[i].code, code) == 0) return &r->findings[i];
  }
  return NULL;
}

// A step takes microseconds, while syncing a file to the disk takes longer.
static void test_checkpoints(void **state) {
  (void)state;
  expect(0, "checkpoint.interval 1 -> ", BENCH "checkpoint.interval=1");
  brim_result r = own_record();
  const brim_finding *f = find(&r, "checkpoint");
  assert_non_null(f);
  assert_string_equal(f->key, "checkpoint.interval");
  assert_true(atoi(f->value) > 1);
  assert_true(r.checkpoint_steps == 1);
  assert_true(f->cost_ms > 0 && f->cost_ms <= r.checkpoint_ms);
  for (size_t i = 1; i < r.finding_count; i++) {  // by price, the highest first
    const brim_finding *a = &r.findings[i - 1], *b = &r.findings[i];
    assert_true(a->note || b->note || isnan(b->cost_ms) || a->cost_ms >= b->cost_ms);
  }
  brim_result_deinit(&r);
  // without the fault there is no such finding, and no file is left
  expect(0, "FINDINGS ABOUT THE CONFIG'S OWN SETTING", BENCH);
  r = own_record();
  assert_null(find(&r, "checkpoint"));
  assert_true(isnan(r.checkpoint_ms));
  brim_result_deinit(&r);
  shell_result files = shell("ls -A found | grep -c brim-price");
  assert_string_equal(files.out, "0\n");
  shell_free(&files);
}

static void test_nothing_is_measured_twice(void **state) {
  (void)state;
  expect(0, NULL, BENCH "--no-price checkpoint.interval=1");
  brim_result r = own_record();
  assert_true(isnan(r.checkpoint_ms));
  for (size_t i = 0; i < r.finding_count; i++) assert_false(r.findings[i].measured);
  brim_result_deinit(&r);
}

// A fake control group: the record has its quota and the machine's cores.
static void test_quota(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("box/proc/self"));
  assert_ok(brim_fs_mkdirs("box/sys/fs/cgroup"));
  write_file("box/proc/self/cgroup", "0::/\n");
  write_file("box/sys/fs/cgroup/cpu.max", "50000 100000\n");
  expect(0, NULL, "export BRIM_MACHINE_ROOT=$PWD/box; " BENCH "--no-price");
  brim_result r = own_record();
  assert_true(r.quota_cpus == 0.5 && r.quota_cores >= 1);
  assert_int_equal(r.cores, 1);
  assert_true(isnan(r.quota_throttled_ms));  // the group has no cpu.stat
  assert_true(r.quota_cpu_ms >= 0);
  brim_result_deinit(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_checkpoints),
      cmocka_unit_test(test_nothing_is_measured_twice),
      cmocka_unit_test(test_quota),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
