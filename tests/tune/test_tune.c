// Sweeps cover every combination; the recommendation follows its rules on made-up results.
#include <math.h>

#include "tune/tune.h"
#include "workload/fixture.h"

static brim_result made_up(double rate, double gib, int workers) {
  brim_result r;
  brim_result_init(&r);
  snprintf(r.backend, sizeof r.backend, "cuda");
  r.samples_per_s = rate;
  r.plan.bytes[BRIM_PLACE_DEVICE] = (uint64_t)(gib * 1073741824.0);
  r.free_bytes = 80 * 1073741824.0;
  r.stable = true;
  r.knob_count = 1;
  snprintf(r.knobs[0].name, sizeof r.knobs[0].name, "num_workers");
  r.knobs[0].number = workers;
  return r;
}

static void test_seed_002_table(void **state) {
  (void)state;
  // throughput and memory of the guide's own table: 512 .. 4096, then an OOM
  brim_result r[] = {made_up(2728.1, 3.85, 4), made_up(3563.8, 7.45, 4), made_up(4096.7, 14.25, 4),
                     made_up(4447.8, 27.85, 4), made_up(NAN, 60, 4)};
  r[4].failure = BRIM_FAILURE_OOM_PLANNED;
  brim_recommendation best;
  brim_recommend(r, 5, &best);
  assert_int_equal(best.highest, 3);
  assert_int_equal(best.efficient, 2);    // 287.5 samples/s/GB, within 90 % of the best
  assert_int_equal(best.recommended, 3);  // 2048 is 8 % slower: not within 3 %
}

static void test_recommendation_rules(void **state) {
  (void)state;
  brim_recommendation best;
  // within 3 %: less memory wins
  brim_result a[] = {made_up(100, 10, 4), made_up(98, 5, 4), made_up(96, 1, 4)};
  brim_recommend(a, 3, &best);
  assert_int_equal(best.highest, 0);
  assert_int_equal(best.recommended, 1);
  // equal memory: fewer workers
  brim_result b[] = {made_up(100, 10, 8), made_up(99, 10, 2), made_up(98, 10, 4)};
  brim_recommend(b, 3, &best);
  assert_int_equal(best.recommended, 1);
  // over 80 % of what is free, or unstable: shown as fastest, never recommended
  brim_result c[] = {made_up(100, 70, 4), made_up(90, 10, 4), made_up(95, 10, 4)};
  c[2].stable = false;
  brim_recommend(c, 3, &best);
  assert_int_equal(best.highest, 0);
  assert_int_equal(best.recommended, 1);
  // nothing ran
  brim_result d[] = {made_up(NAN, 1, 1)};
  d[0].failure = BRIM_FAILURE_CRASH;
  brim_recommend(d, 1, &best);
  assert_int_equal(best.highest, -1);
  assert_int_equal(best.recommended, -1);
  brim_recommend(NULL, 0, &best);
  assert_int_equal(best.highest, -1);
}

static void test_findings(void **state) {
  (void)state;
  brim_result r = made_up(100, 1, 1);
  r.total_ms.median = 100;
  r.phase_ms[BRIM_PHASE_IO].median = 45;
  r.phase_ms[BRIM_PHASE_FORWARD].median = 20;
  r.phase_ms[BRIM_PHASE_BACKWARD].median = 30;
  r.phase_ms[BRIM_PHASE_OPTIMIZER].median = 3;
  r.phase_ms[BRIM_PHASE_OTHER].median = 2;
  brim_diagnose(&r);
  assert_int_equal(r.finding_count, 1);
  assert_string_equal(r.findings[0].code, "io_wait");
  assert_float_equal(r.findings[0].cost_ms, 45, 1e-9);
  assert_non_null(strstr(r.findings[0].remedy, "num_workers 1 -> 2"));
  r.phase_ms[BRIM_PHASE_IO].median = 0.1;
  r.phase_ms[BRIM_PHASE_OPTIMIZER].median = 40;
  r.stable = false;
  r.total_ms.mad = 20;
  brim_diagnose(&r);
  assert_int_equal(r.finding_count, 2);
  assert_string_equal(r.findings[0].code, "small_batch");
  assert_string_equal(r.findings[1].code, "unstable");
}

typedef struct seen {
  int results, progress;
} seen;

static void on_result(void *ctx, const brim_result *r) {
  ((seen *)ctx)->results++;
  assert_int_equal(r->failure, BRIM_FAILURE_NONE);
}

static void on_progress(void *ctx, const brim_progress *p) {
  ((seen *)ctx)->progress++;
  assert_true(p->done < p->total);
}

static void test_a_sweep_covers_every_combination(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const int64_t batches[] = {16, 64}, workers[] = {0, 1, 2};
  const brim_sweep_axis axes[] = {{brim_work_knob(f.work, "batch_size"), batches, 2},
                                  {brim_work_knob(f.work, "num_workers"), workers, 3}};
  seen s = {0, 0};
  brim_sweep_options options = {.axes = axes,
                                .axis_count = 2,
                                .trial = {.steps = 2, .max_warmup = 1},
                                .on_result = on_result,
                                .on_progress = on_progress,
                                .ctx = &s};
  brim_result *results;
  size_t count;
  assert_ok(brim_sweep_run(f.work, f.config, f.device, &options, &results, &count));
  assert_int_equal(count, 6);
  assert_int_equal(s.results, 6);
  assert_true(s.progress >= 6);
  for (size_t i = 0; i < count; i++) {
    assert_float_equal(brim_result_knob_find(&results[i], "batch_size")->number,
                       (double)batches[i / 3], 0);
    assert_float_equal(brim_result_knob_find(&results[i], "num_workers")->number,
                       (double)workers[i % 3], 0);
    brim_result_deinit(&results[i]);
  }
  brim_free(results);
  // values outside the knob's range are refused before anything runs
  const int64_t bad[] = {0};
  const brim_sweep_axis bad_axis[] = {{brim_work_knob(f.work, "batch_size"), bad, 1}};
  options.axes = bad_axis;
  options.axis_count = 1;
  assert_status(brim_sweep_run(f.work, f.config, f.device, &options, &results, &count),
                BRIM_EINVAL);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_seed_002_table),
      cmocka_unit_test(test_recommendation_rules),
      cmocka_unit_test(test_findings),
      cmocka_unit_test(test_a_sweep_covers_every_combination),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
