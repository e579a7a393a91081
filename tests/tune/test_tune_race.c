// The truth test of recommendations in short (bench_recommend has it in full), and further promises of a race: the
// budget, failures, one setting.
#include "test.h"
#include "tune/truth.h"

static double share(int part, int whole) { return (double)part / whole; }

// The bounds are those of the full test, less three standard errors for so few sweeps. The seeds are fixed, so the test
// always gives the same result.
static void test_recommendations_are_true(void **state) {
  (void)state;
  static const double levels[] = {0.02, 0.10, 0.20, 0.40};
  enum { SWEEPS = 100 };
  truth_score quiet = {0}, all = {0}, loud = {0};
  for (size_t l = 0; l < 4; l++) {
    for (uint64_t i = 0; i < SWEEPS; i++) {
      uint64_t seed = TRUTH_TEST_SEED + 1000 * l + i;
      truth_score s = {0}, *half = l < 3 ? &quiet : &loud;
      assert_ok(truth_sweep(seed, levels[l], &s));
      assert_true(s.seconds <= 3.0 + 1e-9);  // the budget
      assert_int_equal(s.beaten, 0);
      half->sweeps++;
      half->right += s.right;
      if (l < 2) half->gaps += s.gaps;
      if (l < 2) half->gaps_certain += s.gaps_certain;
      all.ratios += s.ratios;
      all.ratios_covered += s.ratios_covered;
      all.rates += s.rates;
      all.rates_covered += s.rates_covered;
    }
  }
  assert_true(share(quiet.right, quiet.sweeps) >= 0.97 - 0.030);
  assert_true(share(loud.right, loud.sweeps) >= 0.90 - 0.090);
  assert_true(share(quiet.gaps_certain, quiet.gaps) >= 0.95);
  // intervals of one sweep share its machine, so only about as many are independent as there are sweeps
  assert_true(share(all.ratios_covered, all.ratios) >= 0.93 - 0.025);
  assert_true(share(all.ratios_covered, all.ratios) <= 0.97 + 0.015);
  assert_true(share(all.rates_covered, all.rates) >= 0.93 - 0.025);
  assert_true(share(all.rates_covered, all.rates) <= 0.97 + 0.015);
}

static brim_result_visit visit(double rate, double spread, double seconds) {
  return (brim_result_visit){
      .samples_per_s = rate, .log_se = spread, .samples = 10, .seconds = seconds};
}

// `visits` counts the visits of each setting.
static void run(brim_race *race, const double *rates, double spread, size_t *visits) {
  for (int64_t next; (next = brim_race_next(race)) >= 0;) {
    visits[next]++;
    brim_result_visit v = visit(rates[next], spread, 1);
    assert_ok(brim_race_add(race, (size_t)next, &v));
  }
}

// A setting that is clear after two rounds costs no further visit; one more than 5 times slower costs a single visit.
static void test_a_quiet_machine_is_cheap(void **state) {
  (void)state;
  const double rates[] = {100, 200, 30, 120};
  brim_race *race;
  assert_ok(brim_race_create(4, 3, &race));
  size_t visits[4] = {0};
  run(race, rates, 0.003, visits);
  assert_int_equal(brim_race_best(race), 1);
  for (size_t i = 0; i < 4; i++) assert_int_equal(visits[i], i == 2 ? 1 : 2);
  brim_interval gain = brim_race_ratio(race, 1, 0);
  assert_float_equal(gain.value, 2, 1e-6);
  assert_true(gain.low > 1.9 && gain.high < 2.1);
  brim_race_destroy(race);
}

// Equal settings: the budget ends the race, both stay possible, and one is named.
static void test_the_budget_ends_a_tie(void **state) {
  (void)state;
  brim_race *race;
  assert_ok(brim_race_create(2, 2, &race));
  size_t visits = 0;
  for (int64_t next; (next = brim_race_next(race)) >= 0; visits++) {
    brim_result_visit v = visit(100 * (1 + 0.1 * (double)((visits * 7) % 5)), 0.1, 1);
    assert_ok(brim_race_add(race, (size_t)next, &v));
  }
  assert_int_equal(visits, 9);  // 2 passes of 2.25 visits to each of two
  brim_interval r = brim_race_ratio(race, 0, 1);
  assert_true(r.low < 1 && r.high > 1);
  assert_true(brim_race_best(race) >= 0);
  brim_race_destroy(race);
}

// One visit is three times slower: the setting is not lost.
static void test_a_burst_does_not_lose_the_best(void **state) {
  (void)state;
  brim_race *race;
  const double rates[] = {100, 130, 90, 80};
  size_t visits = 0;
  assert_ok(brim_race_create(4, 3, &race));
  for (int64_t next; (next = brim_race_next(race)) >= 0; visits++) {
    brim_result_visit v = visit(rates[next] / (visits == 1 ? 3 : 1), 0.01, 1);
    assert_ok(brim_race_add(race, (size_t)next, &v));
  }
  assert_int_equal(brim_race_best(race), 1);
  brim_interval gain = brim_race_ratio(race, 1, 0);
  assert_float_equal(gain.value, 1.3, 0.01);  // the burst changes it little
  assert_true(gain.low > 1.1);
  brim_race_destroy(race);
}

// Visits of unequal cost: when a race has ended, a race that gets the same visits has ended too.
static void test_a_race_that_is_read_is_over(void **state) {
  (void)state;
  for (unsigned seed = 1; seed < 40; seed++) {
    brim_race *race, *again;
    brim_result_visit all[256];
    size_t of[256], visits = 0;
    unsigned noise = seed * 2654435761u;
    assert_ok(brim_race_create(5, 2, &race));
    assert_ok(brim_race_create(5, 2, &again));
    for (int64_t next; (next = brim_race_next(race)) >= 0; visits++) {
      noise = noise * 1664525u + 1013904223u;
      double rate = 100 * (1 + 0.05 * (double)next) * (1 + 0.2 * (double)(noise >> 16) / 65536);
      all[visits] = visit(rate, 0.05, 1 + 3 * (double)next);
      of[visits] = (size_t)next;
      assert_ok(brim_race_add(race, of[visits], &all[visits]));
    }
    for (size_t i = 0; i < visits; i++) assert_ok(brim_race_add(again, of[i], &all[i]));
    brim_race_start_rounds(again);
    assert_int_equal(brim_race_next(again), -1);
    brim_race_destroy(race);
    brim_race_destroy(again);
  }
}

// The forecast of a later run has a wider interval than the measured rate: the machine may be in another state by then.
static void test_a_later_run_is_less_sure(void **state) {
  (void)state;
  for (int drifting = 0; drifting < 2; drifting++) {
    brim_race *race;
    const double rates[] = {100, 130, 90, 80};
    size_t visits = 0;
    assert_ok(brim_race_create(4, 3, &race));
    for (int64_t next; (next = brim_race_next(race)) >= 0; visits++) {
      double state_of = drifting ? 1 + 0.4 * (double)(visits / 4 % 2) : 1;
      brim_result_visit v = visit(rates[next] * state_of, 0.01, 1);
      assert_ok(brim_race_add(race, (size_t)next, &v));
    }
    brim_interval now = brim_race_rate(race, 1), later = brim_race_later(race, 1);
    assert_float_equal(now.value, later.value, 1e-9);
    assert_true(later.low < now.low && later.high > now.high);
    if (drifting) assert_true(later.high / later.low > 1.3);
    brim_race_destroy(race);
  }
}

static void test_failures(void **state) {
  (void)state;
  brim_race *race;
  const double rates[] = {100, 400, 120};
  size_t visits[3] = {0};
  assert_ok(brim_race_create(3, 3, &race));
  for (int64_t next; (next = brim_race_next(race)) >= 0;) {
    brim_result_visit v = visit(rates[next], NAN, 1);  // one sample: no spread
    if (next == 1 && visits[next]++ > 0) {
      brim_race_fail(race, 1);
    } else {
      assert_ok(brim_race_add(race, (size_t)next, &v));
    }
  }
  assert_int_equal(brim_race_best(race), 2);
  assert_true(isnan(brim_race_ratio(race, 1, 0).value));
  assert_true(isnan(brim_race_rate(race, 1).value));
  brim_race_destroy(race);
  // no setting runs
  assert_ok(brim_race_create(2, 3, &race));
  for (int64_t next; (next = brim_race_next(race)) >= 0;) brim_race_fail(race, (size_t)next);
  assert_int_equal(brim_race_best(race), -1);
  brim_race_destroy(race);
  // a single setting
  assert_ok(brim_race_create(1, 3, &race));
  run(race, rates, 0.01, visits);
  assert_int_equal(visits[0], 1);
  assert_float_equal(brim_race_rate(race, 0).value, 100, 1e-6);
  brim_race_destroy(race);
}

static void test_what_a_visit_tells(void **state) {
  (void)state;
  const double ms[] = {10, 11, 9, 10, 10, 30, 10, 9, 11, 10};
  brim_trial_location at;
  assert_ok(brim_trial_locate(ms, 10, &at));
  assert_float_equal(exp(at.log_time), 10, 0.3);  // the slow round hardly counts
  assert_true(at.log_se > 0 && at.log_se < 0.05);
  assert_ok(brim_trial_locate(ms, 1, &at));
  assert_float_equal(exp(at.log_time), 10, 1e-9);
  assert_true(isnan(at.log_se));
  const double bad[] = {1, 0};
  assert_int_equal(brim_trial_locate(bad, 2, &at), BRIM_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recommendations_are_true),
      cmocka_unit_test(test_a_quiet_machine_is_cheap),
      cmocka_unit_test(test_the_budget_ends_a_tie),
      cmocka_unit_test(test_a_burst_does_not_lose_the_best),
      cmocka_unit_test(test_a_race_that_is_read_is_over),
      cmocka_unit_test(test_a_later_run_is_less_sure),
      cmocka_unit_test(test_failures),
      cmocka_unit_test(test_what_a_visit_tells),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
