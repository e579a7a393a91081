// The recommended setting, and the settings of a sweep.
#include <math.h>

#include "subject.h"
#include "tune/tune_int.h"

static const brim_recommend_options plain = {.now = -1};

static brim_result rated(double rate, double low, double high, double gib) {
  brim_result r;
  brim_result_init(&r);
  r.knob_set = brim_workload_find("supervised")->knob_set;
  snprintf(r.backend, sizeof r.backend, "cuda");
  r.samples_per_s = rate;
  r.samples_per_s_low = low;
  r.samples_per_s_high = high;
  r.plan.bytes[BRIM_PLACE_DEVICE] = (uint64_t)(gib * 1073741824.0);
  r.free_bytes = 80 * 1073741824.0;
  r.stable = true;
  return r;
}

static void set_knob(brim_result *r, const char *name, const char *value) {
  brim_result_knob *k = &r->knobs[r->knob_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  snprintf(k->value, sizeof k->value, "%s", value);
  k->number = NAN;
}

// Both sweeps of the report: the steady setting was three times slower, and batch 1 beside larger ones.
static void test_never_certainly_beaten(void **state) {
  (void)state;
  brim_result r[] = {rated(67.7, 64.7, 73.8, 1), rated(199, 143, 205, 2)};
  brim_recommendation picks;
  brim_recommend(r, 2, &plain, &picks);
  assert_int_equal(picks.recommended, 1);
  assert_false(picks.provisional);
  r[1].stable = false;  // as fast as before: its figures are rough, so the pick is provisional
  brim_recommend(r, 2, &plain, &picks);
  assert_int_equal(picks.recommended, 1);
  assert_true(picks.provisional);
  brim_result b[] = {rated(307, 300, 312, 0.1), rated(386, 340, 420, 1), rated(399, 330, 450, 2)};
  brim_recommend(b, 3, &plain, &picks);
  assert_int_equal(picks.recommended, 2);
  assert_true(picks.provisional);  // the second may be faster
  // within 3 % but certainly slower: less memory does not make up for it
  brim_result c[] = {rated(100, 99.8, 100.2, 2), rated(98, 97.8, 98.2, 1)};
  brim_recommend(c, 2, &plain, &picks);
  assert_int_equal(picks.recommended, 0);
  // within 3 % and not told apart: less memory decides
  brim_result d[] = {rated(100, 99, 101, 2), rated(99.9, 99, 101, 1)};
  brim_recommend(d, 2, &plain, &picks);
  assert_int_equal(picks.recommended, 1);
  assert_false(picks.provisional);
}

static void test_now_and_beside(void **state) {
  (void)state;
  brim_result r[] = {rated(100, 98, 102, 1), rated(140, 138, 142, 1), rated(250, 245, 255, 1)};
  const bool withheld[] = {false, false, true};
  brim_recommend_options how = {.now = 0, .withheld = withheld};
  brim_recommendation picks;
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 1);
  assert_int_equal(picks.now, 0);
  assert_float_equal(picks.gain.value, 1.4, 1e-9);
  assert_true(picks.gain.low > 1.35 && picks.gain.high < 1.45);
  assert_int_equal(picks.beside, 2);
  assert_true(picks.more.low > 1.7 && picks.more.high < 1.9);
  how.withheld = NULL;
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 2);
  assert_int_equal(picks.beside, -1);
  // all are withheld: one is recommended nevertheless
  const bool all[] = {true, true, true};
  how.withheld = all;
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 2);
}

static void test_reason(void **state) {
  (void)state;
  brim_result r[] = {rated(67.7, 64.7, 73.8, 1), rated(199, 160, 205, 1), rated(190, 150, 210, 1)};
  const char *const values[][2] = {{"bf16", "16"}, {"fp32", "16"}, {"fp32", "64"}};
  for (size_t i = 0; i < 3; i++) {
    set_knob(&r[i], "precision", values[i][0]);
    set_knob(&r[i], "batch_size", values[i][1]);
  }
  brim_recommendation picks;
  char text[512];
  brim_recommend(r, 3, &plain, &picks);
  assert_int_equal(picks.recommended, 1);
  brim_recommend_reason(r, 3, &picks, NULL, text);
  assert_non_null(strstr(text, "precision fp32 is at least 2"));
  assert_non_null(strstr(text, "x faster than bf16"));
  assert_non_null(strstr(text, "batch_size 16 and 64 cannot be told apart in this sweep"));
}

// Unknown gains are not claimed: an interval of a factor of 100, or a gain that rounds to nothing.
static void test_what_is_not_known(void **state) {
  (void)state;
  brim_result r[] = {rated(200, 1e-9, 1e17, 1), rated(100, 99, 101, 1)};
  brim_interval ratio = brim_compare_results(r, 0, 1, NULL);
  assert_float_equal(ratio.value, 2, 1e-9);
  assert_true(isnan(ratio.low) && isnan(ratio.high));
  brim_result near[] = {rated(100.4, 100.39, 100.41, 1), rated(100, 99.99, 100.01, 1)};
  brim_recommendation picks;
  char text[512];
  set_knob(&near[0], "num_workers", "1");
  set_knob(&near[1], "num_workers", "2");
  brim_recommend(near, 2, &plain, &picks);
  assert_int_equal(picks.recommended, 0);
  brim_recommend_reason(near, 2, &picks, NULL, text);
  assert_string_equal(text, "");
}

static void test_a_long_list_is_counted(void **state) {
  (void)state;
  enum { COUNT = 40 };
  brim_result r[COUNT];
  for (int i = 0; i < COUNT; i++) {
    char value[16];
    double rate = i ? 100 : 200;
    snprintf(value, sizeof value, "%d", 1000 + i);
    r[i] = rated(rate, 0.99 * rate, 1.01 * rate, 1);
    set_knob(&r[i], "batch_size", value);
  }
  brim_recommendation picks;
  char text[512];
  brim_recommend(r, COUNT, &plain, &picks);
  assert_int_equal(picks.recommended, 0);
  brim_recommend_reason(r, COUNT, &picks, NULL, text);
  const char *more = strstr(text, " and ");
  assert_non_null(more);
  int listed = 1, left = 0;
  for (const char *c = strstr(text, "1001"); c && c < more; c++) listed += *c == ',';
  assert_int_equal(sscanf(more, " and %d more", &left), 1);
  assert_int_equal(listed + left, COUNT - 1);
  assert_true(more[-1] != ',');
  assert_null(strstr(text, ", ,"));
}

static void test_an_interrupted_sweep_is_provisional(void **state) {
  (void)state;
  brim_result r[] = {rated(100, 99, 101, 1), rated(200, 199, 201, 1)};
  brim_recommend_options how = {.now = 0};
  brim_recommendation picks;
  brim_recommend(r, 2, &how, &picks);
  assert_false(picks.provisional);
  how.interrupted = true;
  brim_recommend(r, 2, &how, &picks);
  assert_true(picks.provisional);
}

// The config's own setting is a reference that was not asked for. Less memory is no reason to recommend it; it stays if
// nothing is faster.
static void test_the_reference(void **state) {
  (void)state;
  brim_result r[] = {rated(99.9, 99, 101, 0.5), rated(104, 103.8, 104.2, 1),
                     rated(50, 49, 51, 0.1)};
  brim_recommend_options how = {.now = 0, .now_is_reference = true};
  brim_recommendation picks;
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 1);
  assert_int_equal(picks.now, 0);
  r[1] = rated(100, 99, 101, 1);
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 0);
  r[0] = rated(150, 149, 151, 0.5);
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 0);
  assert_false(picks.provisional);
}

// A gain of x1.02 that may be noise is no reason to change a config, and x0.99 never is. The own setting stays although
// another has the faster estimate; the report says that another may be faster.
static void test_the_own_setting_stays(void **state) {
  (void)state;
  brim_result r[] = {rated(100, 98, 102, 1), rated(102, 99, 105, 0.5), rated(99, 97, 101, 0.1)};
  brim_recommend_options how = {.now = 0, .interrupted = true};
  brim_recommendation picks;
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 0);
  assert_int_equal(picks.highest, 1);
  assert_float_equal(picks.gain.value, 1, 1e-9);
  assert_true(picks.provisional);
  r[1] = rated(150, 90, 250, 1);
  how.interrupted = false;
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 0);
  assert_true(picks.provisional);
  r[1] = rated(150, 140, 160, 1);
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 1);
  // but not if it leaves no memory, or does not run
  r[0].plan.bytes[BRIM_PLACE_DEVICE] = (uint64_t)(79 * 1073741824.0);
  r[1] = rated(100, 98, 102, 1);
  brim_recommend(r, 3, &how, &picks);
  assert_int_equal(picks.recommended, 2);
}

// Other programs took half of the CPU. A difference is certain only if it is larger than their possible effect.
static void test_other_programs_widen(void **state) {
  (void)state;
  brim_result r[] = {rated(100, 99, 101, 1), rated(140, 139, 141, 1)};
  brim_recommend_options how = {.now = 0};
  brim_recommendation picks;
  char text[512];
  set_knob(&r[0], "batch_size", "8");
  set_knob(&r[1], "batch_size", "32");
  brim_recommend(r, 2, &how, &picks);
  assert_int_equal(picks.recommended, 1);
  assert_false(picks.provisional);
  for (size_t i = 0; i < 2; i++) r[i].others_cpu_percent = 5;  // as on every machine
  brim_recommend(r, 2, &how, &picks);
  assert_false(picks.provisional);
  assert_true(brim_result_log_load(&r[0]) == 0);
  for (size_t i = 0; i < 2; i++) {
    r[i].others_cpu_percent = 50;
    r[i].cpu_percent = 48;
    double factor = exp(brim_result_log_load(&r[i]));
    assert_float_equal(factor, 2, 1e-9);
    r[i].samples_per_s_low /= factor;  // as the sweep records it
    r[i].samples_per_s_high *= factor;
  }
  brim_recommend(r, 2, &how, &picks);
  assert_int_equal(picks.recommended, 1);  // faster under this load, but the gain is not promised
  assert_true(picks.provisional);
  assert_true(picks.gain.low < 0.5 && picks.gain.high > 4);
  brim_recommend_reason(r, 2, &picks, NULL, text);
  assert_null(strstr(text, "at least"));
  // cores were idle, so other programs took none
  r[0].cpu_percent = 10;
  assert_true(brim_result_log_load(&r[0]) == 0);
}

// Twelve workers on two cores, 5 % faster by chance: the smallest of the settings that cannot be told apart.
static void test_of_equals_the_fewest_workers(void **state) {
  (void)state;
  brim_result r[] = {rated(100, 90, 110, 1), rated(105, 95, 115, 1), rated(70, 65, 75, 1)};
  const char *const workers[] = {"2", "12", "0"};
  for (size_t i = 0; i < 3; i++) {
    set_knob(&r[i], "num_workers", workers[i]);
    r[i].knobs[0].number = atof(workers[i]);
  }
  brim_recommendation picks;
  brim_recommend(r, 3, &plain, &picks);
  assert_int_equal(picks.recommended, 0);
  // less memory alone does not justify a loss of 5 %
  r[0].knobs[0].number = r[1].knobs[0].number = 2;
  snprintf(r[1].knobs[0].value, sizeof r[1].knobs[0].value, "2");
  r[0].plan.bytes[BRIM_PLACE_DEVICE] /= 2;
  brim_recommend(r, 3, &plain, &picks);
  assert_int_equal(picks.recommended, 1);
}

// The same records give the same race, so a resumed sweep has the same result.
static void test_a_race_is_its_records(void **state) {
  (void)state;
  enum { SETTINGS = 4, ROUNDS = 3 };
  brim_result r[SETTINGS], again[SETTINGS];
  brim_race *measured, *read;
  assert_ok(brim_race_create(SETTINGS, 3, &measured));
  for (size_t i = 0; i < SETTINGS; i++) r[i] = rated(100, 99, 101, 1);
  int64_t at = 0;
  for (size_t round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < SETTINGS; i++) {
      brim_result_visit *v = &r[i].visits[r[i].visit_count++];
      double noise = 0.03 * (double)((at * 7919) % 13) / 13;
      *v = (brim_result_visit){at++, 100 * (1 + 0.1 * (double)i) * (1 + noise), 0.01, 10, 0.5, 50};
      assert_ok(brim_race_add(measured, i, v));
      r[i].repeats++;
    }
  }
  for (size_t i = 0; i < SETTINGS; i++) {
    json_t *json;
    char *text;
    assert_ok(brim_result_to_json(&r[i], &json));
    assert_ok(brim_json_dump(json, 0, &text));
    json_decref(json);
    assert_ok(brim_json_parse(text, strlen(text), "record", &json));
    assert_ok(brim_result_from_json(json, "record", 1, &again[i]));
    assert_int_equal(again[i].visit_count, ROUNDS);
    json_decref(json);
    brim_free(text);
  }
  assert_ok(brim_race_of_results(again, SETTINGS, 3, &read));
  for (size_t i = 0; i < SETTINGS; i++) {
    brim_interval a = brim_race_rate(measured, i), b = brim_race_rate(read, i);
    assert_memory_equal(&a, &b, sizeof a);
    a = brim_race_ratio(measured, i, 0);
    b = brim_race_ratio(read, i, 0);
    assert_memory_equal(&a, &b, sizeof a);
  }
  // a setting that failed after it ran no longer counts
  again[3].repeats++;
  brim_race_destroy(read);
  assert_ok(brim_race_of_results(again, SETTINGS, 3, &read));
  assert_true(isnan(brim_race_rate(read, 3).value));
  for (size_t i = 0; i < SETTINGS; i++) brim_result_deinit(&again[i]);
  brim_race_destroy(measured);
  brim_race_destroy(read);
}

//---------------------------------- settings ----------------------------------

static void test_the_own_setting_is_swept(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  int batch = brim_work_knob(f.work, "batch_size");
  int64_t own = f.work->knobs[batch].value;
  const int64_t others[] = {own / 2, own / 4}, with[] = {own / 2, own};
  const brim_sweep_axis without = {batch, others, 2}, among = {batch, with, 2};
  brim_sweep_settings s;
  assert_ok(brim_sweep_settings_make(subject_of(&f), &without, 1, true, &s));
  assert_int_equal(s.count, 3);
  assert_int_equal(s.own, 0);
  assert_true(s.own_added);
  assert_int_equal(s.setting[0].value[batch], own);
  brim_sweep_settings_free(&s);
  assert_ok(brim_sweep_settings_make(subject_of(&f), &among, 1, true, &s));
  assert_int_equal(s.count, 2);
  assert_int_equal(s.own, 1);
  assert_false(s.own_added);
  brim_sweep_settings_free(&s);
  fixture_close(&f);
}

static void test_batches_beyond_the_data(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_work_info info;
  memset(&info, 0, sizeof info);
  f.work->table->info(f.work->state, &info);
  assert_true(info.set_samples > 0);
  int batch = brim_work_knob(f.work, "batch_size");
  const int64_t values[] = {16, info.set_samples, info.set_samples + 1};
  const brim_sweep_axis axis = {batch, values, 3}, none = {batch, values + 2, 1};
  brim_sweep_settings s;
  assert_ok(brim_sweep_settings_make(subject_of(&f), &axis, 1, false, &s));
  assert_int_equal(s.count, 2);
  brim_sweep_settings_free(&s);
  assert_status(brim_sweep_settings_make(subject_of(&f), &none, 1, false, &s), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "fewer than one batch"));
  fixture_close(&f);
}

// Prefetching and page-locked memory make no difference without workers on a CPU.
static void test_what_does_not_matter_is_measured_once(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const int64_t workers[] = {0, 1}, prefetch[] = {2, 3, 4}, pin[] = {0, 1};
  const brim_sweep_axis axes[] = {{brim_work_knob(f.work, "num_workers"), workers, 2},
                                  {brim_work_knob(f.work, "prefetch"), prefetch, 3},
                                  {brim_work_knob(f.work, "pin_memory"), pin, 2}};
  brim_sweep_settings s;
  assert_ok(brim_sweep_settings_make(subject_of(&f), axes, 3, false, &s));
  assert_int_equal(s.count, 1 + 3);
  brim_sweep_settings_free(&s);
  fixture_close(&f);
}

static void test_learning(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  int batch = brim_work_knob(f.work, "batch_size");
  int steps = brim_work_knob(f.work, "accumulation");
  int workers = brim_work_knob(f.work, "num_workers");
  brim_setting s = brim_work_setting(f.work);
  bool named[BRIM_KNOB_MAX] = {false};
  s.value[workers] += 1;
  assert_false(brim_sweep_changes_learning(subject_of(&f), named, &s));
  s.value[batch] /= 2;
  assert_true(brim_sweep_changes_learning(subject_of(&f), named, &s));
  s.value[steps] *= 2;  // the same effective batch
  assert_false(brim_sweep_changes_learning(subject_of(&f), NULL, &s));
  s.value[steps] *= 2;
  named[batch] = true;
  assert_false(brim_sweep_changes_learning(subject_of(&f), named, &s));
  fixture_close(&f);
  static const char yaml[] =
      "workload: ars\n"
      "ars: {num_envs: 4, num_dirs: 4, top_dirs: 1, episode_length: 3, eval_episodes: 2}\n";
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  memset(named, 0, sizeof named);
  s = brim_work_setting(f.work);
  s.value[brim_work_knob(f.work, "dir_chunk")] = 2;
  assert_false(brim_sweep_changes_learning(subject_of(&f), named, &s));
  int envs = brim_work_knob(f.work, "num_envs");
  s.value[envs] = 8;
  assert_true(brim_sweep_changes_learning(subject_of(&f), named, &s));
  named[envs] = true;
  assert_false(brim_sweep_changes_learning(subject_of(&f), named, &s));
  fixture_close(&f);
}

// Larger batches take longer: the time left is not the mean of the times so far.
static void test_time_grows_with_rows(void **state) {
  (void)state;
  const double rows[] = {32, 64, 128}, seconds[] = {1.32, 1.64, 2.28};
  assert_float_equal(brim_sweep_predict(rows, seconds, 3, 512), 6.12, 1e-6);
  // sizes far from the measured ones give no ETA, instead of 465 hours
  assert_true(isnan(brim_sweep_predict(rows, seconds, 3, 1024)));
  assert_float_equal(brim_sweep_predict(rows, seconds, 1, 64), 2.64, 1e-6);
  // never below the smallest measured
  assert_float_equal(brim_sweep_predict(rows, seconds, 3, 1), 1.32, 1e-6);
  assert_true(isnan(brim_sweep_predict(rows, seconds, 0, 64)));
}

// The time reported in the first round covers all rounds that the budget allows, not that round alone.
static void test_the_time_of_a_sweep(void **state) {
  (void)state;
  const double all = 3 * BRIM_RACE_PASS_VISITS * 20;
  assert_float_equal(brim_sweep_seconds(0, 20, 3), all, 1e-9);
  assert_float_equal(brim_sweep_seconds(5, 15, 3), all - 5, 1e-9);
  assert_float_equal(brim_sweep_seconds(20, 0, 3), all - 20, 1e-9);
  assert_float_equal(brim_sweep_seconds(5, 15, 1), 15, 1e-9);  // every setting once
  assert_true(isnan(brim_sweep_seconds(0, (double)NAN, 3)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_never_certainly_beaten),
      cmocka_unit_test(test_now_and_beside),
      cmocka_unit_test(test_reason),
      cmocka_unit_test(test_what_is_not_known),
      cmocka_unit_test(test_a_long_list_is_counted),
      cmocka_unit_test(test_an_interrupted_sweep_is_provisional),
      cmocka_unit_test(test_the_reference),
      cmocka_unit_test(test_the_own_setting_stays),
      cmocka_unit_test(test_other_programs_widen),
      cmocka_unit_test(test_of_equals_the_fewest_workers),
      cmocka_unit_test(test_a_race_is_its_records),
      cmocka_unit_test(test_the_own_setting_is_swept),
      cmocka_unit_test(test_batches_beyond_the_data),
      cmocka_unit_test(test_what_does_not_matter_is_measured_once),
      cmocka_unit_test(test_learning),
      cmocka_unit_test(test_time_grows_with_rows),
      cmocka_unit_test(test_the_time_of_a_sweep),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
