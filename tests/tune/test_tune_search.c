// A policy search in a sweep: impossible combinations are left out. A finding with a price names the reason if a large
// card is no faster than a laptop's.
#include <math.h>

#include "subject.h"
#include "tune/tune_int.h"
#include "words.h"

static const brim_recommend_options plain = {.now = -1};

static void set_knob(brim_result *r, const char *name, int value) {
  brim_result_knob *k = &r->knobs[r->knob_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  snprintf(k->value, sizeof k->value, "%d", value);
  k->number = value;
}

static brim_result on(const char *gpu, int envs, int dirs, int chunk, double total_ms) {
  brim_result r;
  brim_result_init(&r);
  r.knob_set = brim_workload_find("ars")->knob_set;
  snprintf(r.workload, sizeof r.workload, "ars");
  snprintf(r.device, sizeof r.device, "%s", gpu ? gpu : "some CPU");
  if (gpu) snprintf(r.device_id, sizeof r.device_id, "GPU-1");
  set_knob(&r, "num_envs", envs);
  set_knob(&r, "num_dirs", dirs);
  set_knob(&r, "dir_chunk", chunk);
  r.total_ms.median = total_ms;
  r.phase_ms[BRIM_PHASE_ENV].median = 0.99 * total_ms;
  r.samples_per_s = envs * dirs * 250.0 / total_ms * 1e3;
  r.plan.bytes[BRIM_PLACE_DEVICE] = 1u << 20;
  r.free_bytes = 80e9;
  r.stable = true;
  return r;
}

// not inline: gcc 12 then sees a NULL read where none is
__attribute__((noinline)) static const brim_finding *find(const brim_result *r, const char *code) {
  for (size_t i = 0; i < r->finding_count; i++) {
    if (strcmp(r->findings[i].code, code) == 0) return &r->findings[i];
  }
  return NULL;
}

static void test_few_threads(void **state) {
  (void)state;
  // 128 x 8 x 4 threads of 221,184: a laptop GPU can hold that many too
  brim_result r[] = {on("NVIDIA A100-SXM4-80GB", 128, 16, 8, 10),
                     on("NVIDIA A100-SXM4-80GB", 1024, 16, 8, 20)};
  brim_diagnose(r, 2, 0);
  const brim_finding *f = find(&r[0], "few_threads");
  assert_non_null(f);
  assert_non_null(strstr(english(f->text), "128 x 8 environments use 4096 of the 221184 threads"));
  assert_non_null(strstr(english(f->text), "a laptop GPU"));
  assert_non_null(strstr(english(f->remedy), "num_envs 128 -> 1024: measured, 7.50 ms less"));
  assert_float_equal(f->cost_ms, 7.5, 1e-9);
  // more were not measured: the remedy has no price
  brim_diagnose(r, 1, 0);
  f = find(&r[0], "few_threads");
  assert_true(isnan(f->cost_ms));
  assert_string_equal(english(f->remedy), "num_envs 128 -> 6912");
  // more threads are no faster: they are not the limit
  r[1] = on("NVIDIA A100-SXM4-80GB", 1024, 16, 8, 80);
  brim_diagnose(r, 2, 0);
  assert_null(find(&r[0], "few_threads"));
  // a full card, an unknown card, a CPU
  brim_result full = on("NVIDIA H200", 1024, 64, 64, 100);
  brim_diagnose(&full, 1, 0);
  assert_null(find(&full, "few_threads"));
  brim_result odd = on("Some GPU", 128, 16, 16, 10);
  brim_diagnose(&odd, 1, 0);
  assert_int_equal(odd.finding_count, 0);
  brim_result cpu = on(NULL, 128, 16, 8, 10);
  brim_diagnose(&cpu, 1, 0);
  assert_int_equal(cpu.finding_count, 0);
}

static void test_serial_chunks(void **state) {
  (void)state;
  brim_result r[] = {on("NVIDIA H200", 1024, 64, 8, 100), on("NVIDIA H200", 1024, 64, 64, 40)};
  brim_diagnose(r, 2, 0);
  const brim_finding *f = find(&r[0], "serial_chunks");
  assert_non_null(f);
  assert_non_null(
      strstr(english(f->text), "64 directions run 8 at a time, in 8 consecutive turns"));
  assert_float_equal(f->cost_ms, 60, 1e-9);
  assert_non_null(strstr(english(f->remedy), "dir_chunk 8 -> 64: measured, 60.00 ms less"));
  brim_diagnose(r, 2, 1);
  assert_null(find(&r[1], "serial_chunks"));
  brim_diagnose(r, 1, 0);
  assert_string_equal(english(find(&r[0], "serial_chunks")->remedy), "dir_chunk 8 -> 64");
  r[1] = on("NVIDIA H200", 1024, 64, 64, 99);  // measured, so it does not matter
  brim_diagnose(r, 2, 0);
  assert_null(find(&r[0], "serial_chunks"));
}

static void test_recommendation(void **state) {
  (void)state;
  brim_result r[] = {on("NVIDIA H200", 128, 16, 8, 10), on("NVIDIA H200", 1024, 64, 64, 40)};
  brim_recommendation picks;
  brim_recommend(r, 2, &plain, &picks);
  assert_int_equal(picks.highest, 1);
  assert_int_equal(picks.recommended, 1);
  const brim_advice_facts facts = {.learning_rate = 0.02};
  brim_advice advice;
  brim_advise(r, 2, 1, &facts, &advice);
  bool chunks = false;
  for (size_t i = 0; i < advice.check_count; i++) {
    assert_null(strstr(advice.checks[i].text, "batch size"));
    assert_null(strstr(advice.checks[i].text, "workers"));
    chunks = chunks || strcmp(advice.checks[i].text, "directions at once: 64") == 0;
  }
  assert_true(chunks);
  assert_string_equal(advice.learning_rate, "");
}

static char said[1024];
static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx, (void)level, (void)module;
  size_t n = strlen(said);
  snprintf(said + n, sizeof said - n, "%s\n", text);
}

static void test_sweep(void **state) {
  (void)state;
  static const char yaml[] =
      "workload: ars\n"
      "ars: {num_envs: 4, num_dirs: 4, top_dirs: 1, episode_length: 3, eval_episodes: 2}\n";
  fixture f;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  const int64_t dirs[] = {2, 4}, chunks[] = {1, 2, 4}, envs[] = {2, 4};
  const brim_sweep_axis axes[] = {{1, dirs, 2}, {2, chunks, 3}, {0, envs, 2}};
  brim_sweep_settings settings;
  said[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
  assert_ok(brim_sweep_settings_make(subject_of(&f), axes, 3, false, &settings));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  assert_int_equal(settings.count, 10);  // 4 of 2 directions are impossible
  brim_sweep_options how;
  memset(&how, 0, sizeof how);
  how.axes = axes;
  how.axis_count = 3;
  how.settings = &settings;
  how.trial.steps = 1;
  brim_result *results = NULL;
  size_t count = 0;
  assert_ok(brim_sweep_run(subject_of(&f), &how, &results, &count));
  assert_int_equal(count, 10);
  // settings left out are reported once, with the reason
  assert_non_null(strstr(said,
                         "2 of 12 combinations are left out; the first: ars.dir_chunk is 4, "
                         "more than the 2 directions"));
  assert_null(strstr(strchr(said, '\n'), "left out"));
  for (size_t i = 0; i < count; i++) {
    brim_setting s = settings.setting[i];
    assert_true(brim_result_ran(&results[i]));
    assert_true(s.value[2] <= s.value[1]);
    assert_true(brim_result_knob_number(&results[i], "num_envs", 0) == (double)s.value[0]);
    assert_true(brim_result_knob_number(&results[i], "dir_chunk", 0) == (double)s.value[2]);
    assert_string_equal(brim_result_unit(&results[i]), "env steps");
    brim_result_deinit(&results[i]);
  }
  brim_free(results);
  const int64_t more[] = {8};
  const brim_sweep_axis none[] = {{2, more, 1}};
  brim_sweep_settings_free(&settings);
  how.settings = NULL;
  how.axes = none;
  how.axis_count = 1;
  assert_status(brim_sweep_run(subject_of(&f), &how, &results, &count), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "ars.dir_chunk is 8, more than the 4 directions"));
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_few_threads),
      cmocka_unit_test(test_serial_chunks),
      cmocka_unit_test(test_recommendation),
      cmocka_unit_test(test_sweep),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
