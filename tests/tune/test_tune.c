// Sweeps cover every combination; the recommendation follows its rules on made-up results.
#include <math.h>

#include "record/record_findings.h"
#include "subject.h"
#include "tune/tune_int.h"
#include "words.h"

static const brim_recommend_options plain = {.now = -1};

static brim_result made_up(double rate, double gib, int workers) {
  brim_result r;
  brim_result_init(&r);
  r.knob_set = brim_workload_find("supervised")->knob_set;
  snprintf(r.workload, sizeof r.workload, "supervised");
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

static void set_text(brim_result *r, const char *name, const char *value) {
  size_t i = 0;
  while (i < r->knob_count && strcmp(r->knobs[i].name, name) != 0) i++;
  if (i == r->knob_count) r->knob_count++;
  snprintf(r->knobs[i].name, sizeof r->knobs[i].name, "%s", name);
  snprintf(r->knobs[i].value, sizeof r->knobs[i].value, "%s", value);
  r->knobs[i].number = NAN;
}

static void set_knob(brim_result *r, const char *name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  set_text(r, name, text);
  for (size_t i = 0; i < r->knob_count; i++) {
    if (strcmp(r->knobs[i].name, name) == 0) r->knobs[i].number = value;
  }
}

static brim_result on_a_gpu(int batch, int workers, const char *precision, double total_ms) {
  brim_result r = made_up(batch / total_ms * 1e3, 1, workers);
  set_knob(&r, "num_workers", workers);
  set_knob(&r, "batch_size", batch);
  set_text(&r, "precision", precision);
  r.cores = 16;
  snprintf(r.device_id, sizeof r.device_id, "GPU-1");
  r.total_ms.median = total_ms;
  r.phase_ms[BRIM_PHASE_FORWARD].median = 0.3 * total_ms;
  r.phase_ms[BRIM_PHASE_BACKWARD].median = 0.6 * total_ms;
  r.gpu_percent = 95;
  r.sm_percent = 90;
  return r;
}

static const brim_finding *find(const brim_result *r, const char *code) {
  for (size_t i = 0; i < r->finding_count; i++) {
    if (strcmp(r->findings[i].code, code) == 0) return &r->findings[i];
  }
  return NULL;
}

// Prices are measured differences, and only between settings that differ in one knob.
static void test_findings_by_evidence(void **state) {
  (void)state;
  brim_result r[] = {on_a_gpu(64, 4, "fp32", 10), on_a_gpu(64, 4, "bf16", 6),
                     on_a_gpu(128, 4, "fp32", 12), on_a_gpu(64, 8, "fp32", 9.9),
                     on_a_gpu(128, 8, "bf16", 1)};
  r[0].sm_percent = 40;
  r[0].phase_ms[BRIM_PHASE_IO].median = 2;
  brim_diagnose(r, 5, 0);
  assert_int_equal(r[0].finding_count, 3);
  // 8 workers are 1 % faster: the wait has no price, so it is listed last
  assert_string_equal(r[0].findings[2].code, "io_wait");
  assert_true(isnan(r[0].findings[2].cost_ms));
  assert_non_null(strstr(english(r[0].findings[2].remedy), "did not help"));
  const brim_finding *f = find(&r[0], "precision");
  assert_non_null(f);
  assert_float_equal(f->cost_ms, 4, 1e-9);
  assert_non_null(strstr(english(f->remedy), "fp32 -> bf16"));
  f = find(&r[0], "small_batch");
  assert_non_null(f);
  assert_float_equal(f->cost_ms, 4, 1e-9);  // 128 samples in 12 ms equal 64 in 6 ms
  assert_non_null(strstr(english(f->remedy), "64 -> 128"));
  // without the other settings: findings that one setting shows, without a price
  brim_diagnose(r, 1, 0);
  assert_true(isnan(find(&r[0], "precision")->cost_ms));
  assert_non_null(strstr(english(find(&r[0], "precision")->remedy), "not measured"));
  // a third value that is even faster does not hide that bf16 was measured
  brim_result other = on_a_gpu(64, 4, "fp16", 3);
  brim_result p[] = {r[0], r[1], other};
  brim_diagnose(p, 3, 0);
  assert_float_equal(find(&p[0], "precision")->cost_ms, 4, 1e-9);
  // faster smaller batches do not make a larger batch unmeasured
  brim_result b[] = {on_a_gpu(64, 4, "bf16", 1), on_a_gpu(128, 4, "bf16", 4),
                     on_a_gpu(256, 4, "bf16", 9)};
  b[1].sm_percent = 40;
  brim_diagnose(b, 3, 1);
  assert_null(find(&b[1], "small_batch"));
  // bf16 without a gain is no remedy, and a batch that keeps the GPU busy is not small
  r[1] = on_a_gpu(64, 4, "bf16", 10);
  r[0].sm_percent = 90;
  brim_diagnose(r, 2, 0);
  assert_null(find(&r[0], "precision"));
  assert_null(find(&r[0], "small_batch"));
}

// The remedy names the fastest of several measured values, at whatever place of the list it is.
static void test_the_fastest_is_named(void **state) {
  (void)state;
  brim_result r[] = {on_a_gpu(64, 1, "fp32", 10), on_a_gpu(64, 4, "fp32", 5),
                     on_a_gpu(64, 2, "fp32", 8), on_a_gpu(64, 8, "fp32", 7)};
  r[0].phase_ms[BRIM_PHASE_IO].median = 6;
  brim_diagnose(r, 4, 0);
  const brim_finding *f = find(&r[0], "io_wait");
  assert_non_null(f);
  assert_non_null(strstr(english(f->remedy), "num_workers 1 -> 4"));
  assert_non_null(strstr(english(f->remedy), "5.00 ms"));
}

static void test_findings_of_memory_and_clocks(void **state) {
  (void)state;
  brim_result r = on_a_gpu(64, 4, "bf16", 10);
  r.plan.bytes[BRIM_PLACE_DEVICE] = (uint64_t)(70 * 1073741824.0);
  snprintf(r.throttle, sizeof r.throttle, "heat");
  r.throttled = true;
  r.clock_mhz = 990;
  r.clock_max_mhz = 1980;
  set_text(&r, "pin_memory", "false");
  r.phase_ms[BRIM_PHASE_H2D].median = 1;
  brim_diagnose(&r, 1, 0);
  assert_non_null(find(&r, "memory_high"));
  assert_float_equal(find(&r, "throttled")->cost_ms, 5, 1e-9);
  assert_non_null(strstr(english(find(&r, "throttled")->text), "heat"));
  assert_string_equal(english(find(&r, "h2d")->remedy), "pin_memory false -> true");
}

static void test_advice(void **state) {
  (void)state;
  brim_result r[] = {on_a_gpu(256, 4, "bf16", 10), on_a_gpu(1024, 8, "bf16", 20)};
  brim_advice a;
  brim_advice_facts facts = {
      .batch = 256, .accumulation = 1, .learning_rate = 3e-4, .adaptive = true};
  brim_advise(r, 2, 1, &facts, &a);
  // the batch is four times as large: the root is two
  assert_non_null(strstr(a.learning_rate, "0.0003 -> 0.0006"));
  assert_string_equal(a.accumulation, "");  // a larger batch cannot be split
  facts.adaptive = false;
  brim_advise(r, 2, 1, &facts, &a);
  assert_non_null(strstr(a.learning_rate, "0.0003 -> 0.0012"));
  // the recommended batch is a quarter of the config's
  facts.batch = 1024;
  brim_advise(r, 2, 0, &facts, &a);
  assert_non_null(strstr(a.accumulation, "gradient_accumulation_steps: 4"));
  // a larger batch that is twice as fast is reported; one that gains nothing closes the question
  for (size_t i = 0; i < a.check_count; i++) {
    assert_true(a.checks[i].done != (strstr(a.checks[i].text, "2.00 times as fast") != NULL));
  }
  r[1].samples_per_s = 1.02 * r[0].samples_per_s;
  brim_advise(r, 2, 0, &facts, &a);
  for (size_t i = 0; i < a.check_count; i++) assert_true(a.checks[i].done);
  // the same effective batch: no advice on the learning rate
  facts.batch = 256;
  brim_advise(r, 2, 0, &facts, &a);
  assert_string_equal(a.learning_rate, "");
  // nothing is recommended, then one setting in fp32: open boxes
  brim_advise(r, 2, -1, &facts, &a);
  assert_string_equal(a.checks[1].text, "batch size: several were tried, none is recommended");
  assert_string_equal(a.checks[2].text, "workers: several were tried, none is recommended");
  brim_result one = on_a_gpu(64, 4, "fp32", 10);
  brim_advise(&one, 1, 0, &facts, &a);
  size_t open = 0;
  for (size_t i = 0; i < a.check_count; i++) open += !a.checks[i].done;
  assert_int_equal(open, 4);  // batch, workers, precision, memory
  brim_advise(&one, 1, -1, &facts, &a);
  assert_string_equal(a.learning_rate, "");
  assert_false(a.checks[a.check_count - 1].done);
  // a sweep of several values that ended early: no advice to try them
  brim_advise(&one, 1, 0, &facts, &a);
  size_t advised = 0;
  for (size_t i = 0; i < a.check_count; i++) advised += strstr(a.checks[i].text, "--") != NULL;
  assert_int_equal(advised, 3);  // --batch-sizes, --num-workers, --precisions
  facts.several[0] = "batch_size";
  facts.several[1] = "num_workers";
  facts.several[2] = "precision";
  facts.several_count = 3;
  brim_advise(&one, 1, 0, &facts, &a);
  for (size_t i = 0; i < a.check_count; i++) assert_null(strstr(a.checks[i].text, "--"));
  // workers cannot matter if the data are on the GPU: no advice about them
  size_t all = a.check_count;
  facts.idle[facts.idle_count++] = "num_workers";
  brim_advise(&one, 1, 0, &facts, &a);
  assert_int_equal(a.check_count, all - 1);
  for (size_t i = 0; i < a.check_count; i++) assert_null(strstr(a.checks[i].text, "workers"));
}

// Trials that were made to price the findings count for the advice too.
static void test_advice_by_remedies(void **state) {
  (void)state;
  brim_result one = on_a_gpu(64, 4, "fp32", 10);
  brim_advice a;
  brim_advice_facts facts = {.batch = 64, .accumulation = 1, .learning_rate = 3e-4};
  brim_advise(&one, 1, 0, &facts, &a);
  assert_non_null(strstr(a.checks[4].text, "larger batches were not tried"));
  facts.larger = 1.01;
  brim_advise(&one, 1, 0, &facts, &a);
  assert_non_null(strstr(a.checks[4].text, "larger batches gained under 3 %"));
  facts.larger = 1.5;
  brim_advise(&one, 1, 0, &facts, &a);
  assert_non_null(strstr(a.checks[4].text, "1.50 times as fast"));
  brim_finding *f = brim_finding_add(&one, "precision", 5);
  brim_finding_change(f, "precision", "bf16", true);
  brim_advise(&one, 1, 0, &facts, &a);
  assert_string_equal(a.checks[3].text,
                      "mixed precision: bf16 was measured and is faster than fp32");
}

static void test_rate_of_a_batch(void **state) {
  (void)state;
  assert_float_equal(brim_advise_rate(3e-4, 64, 256, true), 6e-4, 1e-12);
  assert_float_equal(brim_advise_rate(0.1, 64, 256, false), 0.4, 1e-12);
  assert_float_equal(brim_advise_rate(0.1, 256, 64, false), 0.025, 1e-12);
}

static void test_seed_002_table(void **state) {
  (void)state;
  // throughput and memory of the guide's own table: 512 .. 4096, then an OOM
  brim_result r[] = {made_up(2728.1, 3.85, 4), made_up(3563.8, 7.45, 4), made_up(4096.7, 14.25, 4),
                     made_up(4447.8, 27.85, 4), made_up(NAN, 60, 4)};
  r[4].failure = BRIM_FAILURE_OOM_PLANNED;
  brim_recommendation best;
  brim_recommend(r, 5, &plain, &best);
  assert_int_equal(best.highest, 3);
  assert_int_equal(best.efficient, 2);    // 287.5 samples/s/GB, within 90 % of the best
  assert_int_equal(best.recommended, 3);  // 2048 is 8 % slower: not within 3 %
}

static void test_recommendation_rules(void **state) {
  (void)state;
  brim_recommendation best;
  // within 3 %: less memory wins
  brim_result a[] = {made_up(100, 10, 4), made_up(98, 5, 4), made_up(96, 1, 4)};
  brim_recommend(a, 3, &plain, &best);
  assert_int_equal(best.highest, 0);
  assert_int_equal(best.recommended, 1);
  // equal memory: fewer workers
  brim_result b[] = {made_up(100, 10, 8), made_up(99, 10, 2), made_up(98, 10, 4)};
  brim_recommend(b, 3, &plain, &best);
  assert_int_equal(best.recommended, 1);
  // over 80 % of the free memory: shown as fastest, not recommended. Unstable or throttled excludes nothing
  brim_result c[] = {made_up(100, 70, 4), made_up(90, 10, 4), made_up(95, 10, 4)};
  c[2].stable = false;
  c[2].throttled = true;
  brim_recommend(c, 3, &plain, &best);
  assert_int_equal(best.highest, 0);
  assert_int_equal(best.recommended, 2);
  // nor does memory, if all settings take too much
  brim_recommend(c, 1, &plain, &best);
  assert_int_equal(best.recommended, 0);
  // nothing ran
  brim_result d[] = {made_up(NAN, 1, 1)};
  d[0].failure = BRIM_FAILURE_CRASH;
  brim_recommend(d, 1, &plain, &best);
  assert_int_equal(best.highest, -1);
  assert_int_equal(best.recommended, -1);
  brim_recommend(NULL, 0, &plain, &best);
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
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 1);
  assert_string_equal(r.findings[0].code, "io_wait");
  assert_float_equal(r.findings[0].cost_ms, 45, 1e-9);
  assert_non_null(strstr(english(r.findings[0].remedy), "num_workers 1 -> 2"));
  r.phase_ms[BRIM_PHASE_IO].median = 0.1;
  r.phase_ms[BRIM_PHASE_OPTIMIZER].median = 40;
  r.stable = false;
  r.total_ms.mad = 20;
  set_knob(&r, "batch_size", 64);
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 2);
  assert_true(isnan(r.findings[0].cost_ms));  // no larger batch was measured
  assert_string_equal(r.findings[0].code, "small_batch");
  assert_string_equal(r.findings[1].code, "unstable");
  // no advice for a batch that an epoch cannot fill
  static const struct {
    double epoch;
    const char *remedy;
  } rows[] = {{128, "batch_size 64 -> 128"},
              {100, "batch_size 64 -> 100, all of an epoch"},
              {64, "no larger batch_size: an epoch has 64 samples"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    r.epoch_s = rows[i].epoch / r.samples_per_s;
    brim_diagnose(&r, 1, 0);
    assert_string_equal(english(r.findings[0].remedy), rows[i].remedy);
  }
}

// Settings with one sample each are not steady, and the report mentions it. The fastest is still recommended,
// provisionally.
static void test_one_sample(void **state) {
  (void)state;
  brim_result r[] = {made_up(100, 1, 1), made_up(80, 1, 1), made_up(99, 1, 1)};
  for (size_t i = 0; i < 3; i++) r[i].stable = false;
  r[0].total_ms.median = 10;
  assert_true(brim_result_one_sample(&r[0]));
  brim_diagnose(r, 3, 0);
  assert_int_equal(r[0].finding_count, 1);
  assert_string_equal(r[0].findings[0].code, "unstable");
  assert_true(isnan(r[0].findings[0].cost_ms));
  assert_non_null(strstr(english(r[0].findings[0].text), "one sample"));
  assert_null(strstr(english(r[0].findings[0].text), "something else"));
  brim_recommendation picks;
  brim_recommend(r, 3, &plain, &picks);
  assert_int_equal(picks.highest, 0);
  assert_int_equal(picks.recommended, 0);
  assert_true(picks.provisional);
}

typedef struct seen {
  int results, progress, settled, again;
} seen;

static void on_final(void *ctx, const brim_result *r) {
  assert_true(r->repeats > 1);
  ((seen *)ctx)->settled++;
}

static void on_result(void *ctx, const brim_result *r) {
  ((seen *)ctx)->results++;
  assert_int_equal(r->failure, BRIM_FAILURE_NONE);
}

// The first round counts settings. Later rounds name the setting and how often it was measured.
static void on_progress(void *ctx, const brim_progress *p) {
  seen *s = ctx;
  s->progress++;
  assert_true(p->total == 0 || p->done < p->total);
  size_t setting, count, times = 1;
  int end = 0;
  int fields =
      sscanf(p->title, "setting %zu/%zu, measurement %zu:%n", &setting, &count, &times, &end);
  if (fields == 3 && end > 0) {
    s->again++;
    assert_true(times >= 2);
    assert_int_equal(p->done, -1);
    assert_int_equal(p->total, 0);
  } else {
    assert_int_equal(sscanf(p->title, "setting %zu/%zu:%n", &setting, &count, &end), 2);
    assert_int_equal(p->done, setting - 1);
    assert_int_equal(p->total, count);
  }
  assert_true(end > 0);
  assert_true(setting >= 1 && setting <= count);
}

static void test_a_sweep_covers_every_combination(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const int64_t batches[] = {16, 64}, workers[] = {0, 1, 2};
  const brim_sweep_axis axes[] = {{brim_work_knob(f.work, "batch_size"), batches, 2},
                                  {brim_work_knob(f.work, "num_workers"), workers, 3}};
  seen s = {0};
  brim_sweep_options options = {.axes = axes,
                                .axis_count = 2,
                                .trial = {.steps = 2, .max_warmup = 1},
                                .on_result = on_result,
                                .on_progress = on_progress,
                                .ctx = &s};
  brim_result *results;
  size_t count;
  assert_ok(brim_sweep_run(subject_of(&f), &options, &results, &count));
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
  assert_status(brim_sweep_run(subject_of(&f), &options, &results, &count), BRIM_EINVAL);
  fixture_close(&f);
}

// A setting with a record is not measured, and not reported as a new result.
static bool knows_the_middle(void *ctx, const brim_setting *setting, brim_result *out) {
  if (setting->value[*(int *)ctx] != 32) return false;
  *out = made_up(5, 1, 1);
  return true;
}

static void test_known_settings_are_passed_over(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  int knob = brim_work_knob(f.work, "batch_size");
  const int64_t batches[] = {16, 32, 64};
  const brim_sweep_axis axis = {knob, batches, 3};
  brim_sweep_options options = {.axes = &axis,
                                .axis_count = 1,
                                .trial = {.steps = 2, .max_warmup = 1},
                                .known = knows_the_middle,
                                .ctx = &knob};
  brim_result *results;
  size_t count;
  assert_ok(brim_sweep_run(subject_of(&f), &options, &results, &count));
  assert_int_equal(count, 3);
  assert_float_equal(results[1].samples_per_s, 5, 0);
  assert_true(results[0].steps == 2 && results[2].steps == 2);
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
  fixture_close(&f);
}

// A record of several visits, far faster than the settings measured beside it. Its visits took so long that the budget
// has nothing left for more.
static bool knows_the_fastest(void *ctx, const brim_setting *setting, brim_result *out) {
  if (setting->value[*(int *)ctx] == 64) return false;
  double rate = setting->value[*(int *)ctx] == 16 ? 1e11 : 1e10;
  *out = made_up(rate, 1, 1);
  out->samples_per_s_low = 0.99 * rate;
  out->samples_per_s_high = 1.01 * rate;
  out->repeats = 7;
  out->seconds = 1e4;
  return true;
}

// A setting known from records competes as one that still runs.
static void test_known_settings_compete(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  int knob = brim_work_knob(f.work, "batch_size");
  const int64_t batches[] = {16, 32, 64};
  const brim_sweep_axis axis = {knob, batches, 3};
  for (size_t swept = 2; swept <= 3; swept++) {  // all settings are known, then all but one
    brim_race *race;
    brim_sweep_axis part = axis;
    part.count = swept;
    brim_sweep_options options = {.axes = &part,
                                  .axis_count = 1,
                                  .trial = {.steps = 2, .max_warmup = 1},
                                  .repeats = 3,
                                  .race = &race,
                                  .known = knows_the_fastest,
                                  .ctx = &knob};
    brim_result *results;
    size_t count;
    assert_ok(brim_sweep_run(subject_of(&f), &options, &results, &count));
    assert_int_equal(count, swept);
    assert_true(results[0].repeats == 7 && results[1].repeats == 7);
    brim_recommend_options how = {.race = race, .now = -1};
    brim_recommendation picks;
    brim_recommend(results, count, &how, &picks);
    assert_int_equal(picks.recommended, 0);
    assert_true(brim_race_ratio(race, 0, 1).low > 1);
    if (swept == 2) assert_true(results[0].samples_per_s == 1e11);
    if (swept == 3) assert_true(brim_race_ratio(race, 0, 2).low > 1);
    for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
    brim_free(results);
    brim_race_destroy(race);
  }
  fixture_close(&f);
}

// Two settings that cannot be told apart are measured until the budget ends. One that fails at the second visit is not
// relied on.
static const brim_workload_table *real_table;
static int configured, fail_at;

static brim_status failing_configure(void *work, const brim_setting *setting) {
  if (++configured == fail_at) return brim_fail(BRIM_ENOMEM, "a test's failure");
  return real_table->configure(work, setting);
}

static void test_contenders_are_repeated(void **state) {
  (void)state;
  for (int failing = 0; failing < 2; failing++) {
    fixture f;
    assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
    brim_workload_table table = *f.work->table;
    real_table = f.work->table;
    table.configure = failing_configure;
    f.work->table = &table;
    configured = 0;
    fail_at = failing ? 3 : 0;
    // one axis of a knob with almost no effect
    const int64_t prefetch[] = {2, 3}, workers[] = {1};
    const brim_sweep_axis axes[] = {{brim_work_knob(f.work, "num_workers"), workers, 1},
                                    {brim_work_knob(f.work, "prefetch"), prefetch, 2}};
    seen s = {0};
    brim_sweep_options options = {.axes = axes,
                                  .axis_count = 2,
                                  .trial = {.steps = 2, .max_warmup = 1},
                                  .repeats = 3,
                                  .on_result = on_result,
                                  .on_progress = on_progress,
                                  .on_final = on_final,
                                  .ctx = &s};
    brim_result *results;
    size_t count;
    assert_ok(brim_sweep_run(subject_of(&f), &options, &results, &count));
    assert_int_equal(count, 2);
    assert_int_equal(s.results, 2);
    int most = 0, unreliable = 0, visits = 0;
    brim_work_info info;
    memset(&info, 0, sizeof info);
    f.work->table->info(f.work->state, &info);
    double rows = (double)info.samples_per_epoch / (double)info.steps_per_epoch;
    for (size_t i = 0; i < count; i++) {
      // the step time agrees with the rate beside it, however much the visits differed
      double step_s = results[i].total_ms.median * 1e-3;
      assert_true(fabs(results[i].samples_per_s * step_s / rows - 1) < 1e-9);
      most = results[i].repeats > most ? results[i].repeats : most;
      visits += results[i].repeats;
      unreliable += results[i].repeats == 2 && !results[i].stable;
      brim_result_deinit(&results[i]);
    }
    assert_true(s.again > 0);
    if (!failing) {
      assert_true(most >= 2);
      assert_int_equal(configured, visits);
      assert_int_equal(s.settled, 2);
    } else {
      assert_true(unreliable >= 1);
    }
    brim_free(results);
    f.work->table = real_table;
    fixture_close(&f);
  }
}

// Steps since the setting was built; most_steps is the longest visit's.
static int visit_steps, most_steps;

static brim_status counting_configure(void *work, const brim_setting *setting) {
  visit_steps = 0;
  return real_table->configure(work, setting);
}

static brim_status counting_step(void *work, const brim_spans *spans, brim_step_info *out) {
  if (++visit_steps > most_steps) most_steps = visit_steps;
  return real_table->step(work, spans, out);
}

// The time is up at once: a visit is two steps of warm-up and three samples, whatever number the options ask for.
static void test_visits_are_bounded_by_time(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_workload_table table = *f.work->table;
  real_table = f.work->table;
  table.configure = counting_configure;
  table.step = counting_step;
  f.work->table = &table;
  most_steps = 0;
  const int64_t batches[] = {16, 32};
  const brim_sweep_axis axes[] = {{brim_work_knob(f.work, "batch_size"), batches, 2}};
  brim_sweep_options options = {
      .axes = axes, .axis_count = 1, .trial = {.steps = 1000, .max_seconds = 1e-9}, .repeats = 3};
  brim_result *results;
  size_t count;
  assert_ok(brim_sweep_run(subject_of(&f), &options, &results, &count));
  assert_int_equal(count, 2);
  assert_int_equal(most_steps, 5);
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
  f.work->table = real_table;
  fixture_close(&f);
}

// The device crashes in one setting: the next setting runs on a new device.
typedef struct crash {
  fixture f;
  brim_workload_table table;
  const brim_workload_table *real;
  int reopened;
} crash;

static int crash_at, crash_steps;

static brim_status crashing_step(void *work, const brim_spans *spans, brim_step_info *out) {
  if (++crash_steps >= crash_at) return brim_fail(BRIM_EDEVICE, "an illegal address");
  return brim_workload_find("supervised")->step(work, spans, out);
}

static void crash_open(crash *c) {
  assert_ok(fixture_open(&c->f, "ref", fixture_yaml, NULL, 0));
  c->real = c->f.work->table;
  c->table = *c->real;
  c->table.step = crashing_step;
  c->f.work->table = &c->table;
}

static void crash_close(crash *c) {
  c->f.work->table = c->real;
  fixture_close(&c->f);
}

static brim_status crash_reopen(void *ctx) {
  crash *c = ctx;
  crash_close(c);
  crash_open(c);
  crash_at = INT32_MAX;
  c->reopened++;
  return BRIM_OK;
}

static void test_a_crash_is_recovered_from(void **state) {
  (void)state;
  crash c = {.reopened = 0};
  crash_open(&c);
  crash_steps = 0;
  crash_at = 3;
  const int64_t batches[] = {64, 32};
  const brim_sweep_axis axis = {brim_work_knob(c.f.work, "batch_size"), batches, 2};
  brim_sweep_options options = {
      .axes = &axis, .axis_count = 1, .trial = {.steps = 2, .max_warmup = 1}};
  brim_work_subject work = {
      .work = &c.f.work, .device = &c.f.device, .reopen = crash_reopen, .ctx = &c};
  brim_subject subject;
  brim_work_subject_open(&work, &subject);
  brim_result *results;
  size_t count;
  assert_ok(brim_sweep_run(&subject, &options, &results, &count));
  assert_int_equal(count, 2);
  assert_int_equal(c.reopened, 1);
  assert_int_equal(results[0].failure, BRIM_FAILURE_CRASH);
  assert_non_null(strstr(results[0].message, "illegal address"));
  assert_int_equal(results[1].failure, BRIM_FAILURE_NONE);
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
  crash_close(&c);
}

//---------------------------------- large grids ----------------------------------

// Typical rates: larger batches gain until the machine is full, more workers gain until data are ready in time.
static double made_up_rate(int64_t batch, int64_t workers, bool fast) {
  double compute = (fast ? 2000.0 : 1200.0) * (double)batch / (double)(batch + 200);
  double data = 400 + 500.0 * (double)workers;
  return fmin(compute, data) - 3 * (double)workers;
}

// A grid of 120 is not measured completely, and the fastest is found nevertheless.
static void test_a_large_grid_is_climbed(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const int64_t batches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
                workers[] = {0, 1, 2, 4, 8, 16}, compile[] = {0, 1};
  int batch = brim_work_knob(f.work, "batch_size"), worker = brim_work_knob(f.work, "num_workers");
  int other = brim_work_knob(f.work, "compile");
  const brim_sweep_axis axes[] = {{other, compile, 2}, {worker, workers, 6}, {batch, batches, 10}};
  brim_sweep_settings s = {.own = -1};
  s.setting = (brim_setting *)brim_calloc(120, sizeof *s.setting);
  double rate[120], most = 0, found = 0;
  for (; s.count < 120; s.count++) {
    brim_setting one = brim_work_setting(f.work);
    one.value[batch] = batches[s.count % 10];
    one.value[worker] = workers[s.count / 10 % 6];
    one.value[other] = compile[s.count / 60];
    if (one.value[batch] == 8 && s.count / 10 == 0) s.own = (int)s.count;
    s.setting[s.count] = one;
    rate[s.count] = NAN;
    most = fmax(most, made_up_rate(one.value[batch], one.value[worker], one.value[other]));
  }
  const brim_climb climb = {subject_of(&f), &s, axes, 3, rate};
  size_t visits = 0;
  int64_t next;
  assert_int_equal(brim_climb_next(&climb), s.own);
  for (; (next = brim_climb_next(&climb)) >= 0; visits++) {
    assert_true(isnan(rate[next]));
    const int64_t *v = s.setting[next].value;
    rate[next] =
        v[batch] == 512 ? 0 : made_up_rate(v[batch], v[worker], v[other]);  // 512: no memory
    found = fmax(found, rate[next]);
  }
  assert_true(visits < 50);
  assert_true(found > 0.93 * made_up_rate(256, 4, true));
  assert_true(found <= most);
  // nothing runs: the race ends
  for (size_t i = 0; i < s.count; i++) rate[i] = 0;
  assert_int_equal(brim_climb_next(&climb), -1);
  brim_sweep_settings_free(&s);
  fixture_close(&f);
}

// A part of a grid: each result names its setting. And a budget that the first setting uses up.
static void test_a_part_of_a_grid(void **state) {
  (void)state;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  int knob = brim_work_knob(f.work, "batch_size");
  const int64_t batches[] = {1, 2, 4, 8, 16, 32, 64};
  const brim_sweep_axis axis = {knob, batches, 7};
  brim_sweep_settings settings;
  assert_ok(brim_sweep_settings_make(subject_of(&f), &axis, 1, true, &settings));
  size_t setting_of[8] = {0};
  bool ended = true;
  brim_sweep_options options = {.axes = &axis,
                                .axis_count = 1,
                                .settings = &settings,
                                .trial = {.steps = 2, .max_warmup = 1},
                                .climb_above = 3,
                                .setting_of = setting_of,
                                .budget_ended = &ended};
  for (int limited = 0; limited < 2; limited++) {
    brim_result *results;
    size_t count;
    options.budget_s = limited ? 1e-9 : 0;
    assert_ok(brim_sweep_run(subject_of(&f), &options, &results, &count));
    assert_int_equal(ended, limited);
    if (limited) {
      assert_int_equal(count, 1);
      assert_int_equal(setting_of[0], settings.own);
    }
    for (size_t i = 0; i < count; i++) {
      assert_true(i == 0 || setting_of[i] > setting_of[i - 1]);
      assert_float_equal(brim_result_knob_find(&results[i], "batch_size")->number,
                         (double)settings.setting[setting_of[i]].value[knob], 0);
      assert_int_equal(results[i].visit_count, 1);
      brim_result_deinit(&results[i]);
    }
    brim_free(results);
  }
  brim_sweep_settings_free(&settings);
  fixture_close(&f);
}

// Another program uses half of the CPU: each visit records it.
static brim_status half_taken(void *ctx, brim_host_sample *out) {
  double *seconds = ctx;
  brim_host_sample_clear(out);
  *seconds += 1;
  out->time_ns = (int64_t)(*seconds * 1e9);
  out->value[BRIM_HOST_PROCESS_CPU_S] = *seconds;
  out->value[BRIM_HOST_SYSTEM_BUSY_S] = 2 * *seconds;
  out->value[BRIM_HOST_SYSTEM_TOTAL_S] = 2 * *seconds;
  return BRIM_OK;
}

static void test_records_have_other_programs(void **state) {
  (void)state;
  fixture f;
  double seconds = 0;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const int64_t batches[] = {16, 32};
  const brim_sweep_axis axis = {brim_work_knob(f.work, "batch_size"), batches, 2};
  const brim_host_provider host = {.name = "fake", .ctx = &seconds, .sample = half_taken};
  brim_sweep_options options = {.axes = &axis,
                                .axis_count = 1,
                                .trial = {.steps = 4, .max_warmup = 1},
                                .repeats = 2,
                                .host = &host};
  brim_result *results;
  size_t count;
  assert_ok(brim_sweep_run(subject_of(&f), &options, &results, &count));
  assert_float_equal(brim_results_others(results, count), 50, 1e-6);
  assert_true(brim_results_were_disturbed(results, count));
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    assert_true(r->visit_count >= 1);
    assert_float_equal(r->visits[0].others_cpu_percent, 50, 1e-6);
    double low = r->samples_per_s / r->samples_per_s_low;
    if (brim_result_log_load(r) > 0 && !isnan(low)) assert_true(low >= 2);
    brim_result_deinit(&results[i]);
  }
  brim_free(results);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_seed_002_table),
      cmocka_unit_test(test_recommendation_rules),
      cmocka_unit_test(test_findings),
      cmocka_unit_test(test_findings_by_evidence),
      cmocka_unit_test(test_the_fastest_is_named),
      cmocka_unit_test(test_findings_of_memory_and_clocks),
      cmocka_unit_test(test_advice),
      cmocka_unit_test(test_advice_by_remedies),
      cmocka_unit_test(test_rate_of_a_batch),
      cmocka_unit_test(test_one_sample),
      cmocka_unit_test(test_a_sweep_covers_every_combination),
      cmocka_unit_test(test_known_settings_are_passed_over),
      cmocka_unit_test(test_known_settings_compete),
      cmocka_unit_test(test_contenders_are_repeated),
      cmocka_unit_test(test_visits_are_bounded_by_time),
      cmocka_unit_test(test_a_crash_is_recovered_from),
      cmocka_unit_test(test_a_large_grid_is_climbed),
      cmocka_unit_test(test_a_part_of_a_grid),
      cmocka_unit_test(test_records_have_other_programs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
