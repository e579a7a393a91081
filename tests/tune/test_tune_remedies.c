// Remedies are measured beside the setting itself. The workload's steps take as long as a script says, so the worth of
// each remedy is known. The clock is scripted too: a busy machine does not disturb it.
#include <math.h>
#include <stdatomic.h>

#include "subject.h"
#include "tune/tune_int.h"
#include "words.h"
#include "workload/learn/learn.h"

static bool near(double a, double b) { return fabs(a - b) < 1e-9 * (1 + fabs(b)); }

enum { NO_WORKERS_MS = 40, WORKERS_MS = 4 };

static brim_workload_table scripted;
static const brim_workload_table *real;
static int workers_knob, batch_knob, cache_knob;
static int64_t now_workers, now_batch, now_cache, now_step;
static int64_t kept_steps;  // in the cache since an earlier visit
static bool cache_helps;
static int with_workers;  // settings that were built with workers
static bool workers_fail;
static int steps_made;

// The linker's --wrap puts this clock in place of base_clock.c's. Each reading advances it a little, so that every wait
// ends.
enum { TICK_NS = 200 };
static _Atomic int64_t scripted_ns = 1000000000;

brim_time __wrap_brim_clock_now(void);
brim_time __wrap_brim_clock_now(void) {
  return (brim_time){.ns = atomic_fetch_add(&scripted_ns, TICK_NS)};
}

static void wait_ms(int64_t ms) { (void)atomic_fetch_add(&scripted_ns, ms * 1000000); }

static brim_status configure(void *work, const brim_setting *setting) {
  now_workers = setting->value[workers_knob];
  now_batch = setting->value[batch_knob];
  now_cache = setting->value[cache_knob];
  now_step = 0;
  if (now_cache != BRIM_CACHE_RAM) kept_steps = 0;
  with_workers += now_workers > 0;
  if (workers_fail && now_workers > 0) return brim_fail(BRIM_EOOM, "no memory for workers");
  return real->configure(work, setting);
}

static brim_status step(void *work, const brim_spans *spans, brim_step_info *out) {
  (void)work;
  steps_made++;
  bool kept = cache_helps && now_cache == BRIM_CACHE_RAM && now_step++ < kept_steps;
  if (now_cache == BRIM_CACHE_RAM && now_step > kept_steps) kept_steps = now_step;
  brim_span_begin(spans, BRIM_PHASE_IO, "io");
  if (!kept) wait_ms((now_workers > 0 ? WORKERS_MS : NO_WORKERS_MS) * now_batch / 32);
  brim_span_end(spans, BRIM_PHASE_IO, "io");
  brim_span_begin(spans, BRIM_PHASE_FORWARD, "forward");
  wait_ms(WORKERS_MS * now_batch / 32);  // a larger batch gains nothing
  brim_span_end(spans, BRIM_PHASE_FORWARD, "forward");
  memset(out, 0, sizeof *out);
  out->samples = now_batch;
  out->worker_io_ns = NO_WORKERS_MS * 1000000;
  return BRIM_OK;
}

static void open_scripted(fixture *f) {
  const char *const overrides[] = {"data.num_workers=0"};
  assert_ok(fixture_open(f, "ref", fixture_yaml, overrides, 1));
  real = f->work->table;
  scripted = *real;
  scripted.step = step;
  scripted.configure = configure;
  f->work->table = &scripted;
  workers_knob = brim_work_knob(f->work, "num_workers");
  batch_knob = brim_work_knob(f->work, "batch_size");
  cache_knob = brim_work_knob(f->work, "cache");
  with_workers = 0;
  workers_fail = cache_helps = false;
}

static void close_scripted(fixture *f) {
  f->work->table = real;
  fixture_close(f);
}

static const brim_trial_options trial = {.steps = 4, .max_warmup = 1, .max_seconds = 2};

static void run_own(fixture *f, const brim_setting *setting, brim_result *r) {
  assert_ok(brim_trial_run(f->work, f->config, f->device, setting, &trial, r));
  assert_true(brim_result_ran(r));
}

static void test_a_remedy_is_measured(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  open_scripted(&f);
  brim_setting setting = brim_work_setting(f.work);
  run_own(&f, &setting, &r);
  r.cores = 4;  // independent of this machine
  const brim_remedy_options options = {.setting = &setting, .trial = trial};
  assert_ok(brim_remedies_measure(subject_of(&f), &options, &r, 1, 0));
  assert_true(r.finding_count > 0);
  const brim_finding *first = &r.findings[0];
  assert_string_equal(first->code, "io_wait");
  assert_true(first->measured);
  assert_string_equal(first->key, "data.num_workers");
  assert_true(atoi(first->value) > 0);
  assert_true(first->cost_ms > 0.5 * r.total_ms.median && first->cost_ms < r.total_ms.median);
  assert_string_equal(first->try_knob, "");
  // a remedy with a known gain is not measured again
  brim_result both[2] = {r, r};
  for (size_t i = 0; i < both[1].knob_count; i++) {
    if (strcmp(both[1].knobs[i].name, "num_workers") == 0) {
      snprintf(both[1].knobs[i].value, sizeof both[1].knobs[i].value, "4");
      both[1].knobs[i].number = 4;
    }
  }
  both[1].samples_per_s = 4 * r.samples_per_s;
  with_workers = 0;
  assert_ok(brim_remedies_measure(subject_of(&f), &options, both, 2, 0));
  assert_true(near(both[0].findings[0].cost_ms, 0.75 * r.total_ms.median));
  assert_string_equal(both[0].findings[0].value, "4");
  assert_int_equal(with_workers, 0);
  brim_result_deinit(&r);
  close_scripted(&f);
}

// The cache fills while samples are read, so its gain shows after a first pass. It is the better remedy here.
static void test_a_cache_is_filled_first(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  open_scripted(&f);
  cache_helps = true;
  brim_setting setting = brim_work_setting(f.work);
  run_own(&f, &setting, &r);
  r.cores = 1;
  workers_fail = true;
  double larger = 0;
  const brim_remedy_options options = {.setting = &setting, .trial = trial, .larger = &larger};
  assert_ok(brim_remedies_measure(subject_of(&f), &options, &r, 1, 0));
  const brim_finding *first = &r.findings[0];
  assert_string_equal(first->code, "io_wait");
  assert_true(first->measured);
  assert_string_equal(first->key, "data.cache");
  assert_string_equal(first->value, "ram");
  assert_true(first->cost_ms > 0.5 * r.total_ms.median && first->cost_ms < r.total_ms.median);
  assert_true(larger > 0.5 && larger < 2);  // larger batches were tried, and gain nothing
  brim_result_deinit(&r);
  close_scripted(&f);
}

// A remedy that cannot run is skipped, and causes no failure.
static void test_a_remedy_that_fails(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  open_scripted(&f);
  brim_setting setting = brim_work_setting(f.work);
  run_own(&f, &setting, &r);
  r.cores = 4;
  workers_fail = true;
  const brim_remedy_options options = {.setting = &setting, .trial = trial};
  assert_ok(brim_remedies_measure(subject_of(&f), &options, &r, 1, 0));
  for (size_t i = 0; i < r.finding_count; i++) assert_false(r.findings[i].measured);
  brim_result_deinit(&r);
  close_scripted(&f);
}

// Steps beyond the budget are not made, and a message names the remedies left out.
static void test_the_budget_bounds_each_probe(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  open_scripted(&f);
  brim_setting setting = brim_work_setting(f.work);
  run_own(&f, &setting, &r);
  r.cores = 4;
  r.total_ms.median *= 1000;  // as if a step took 44 s
  r.phase_ms[BRIM_PHASE_IO].median *= 1000;
  const brim_remedy_options options = {.setting = &setting, .trial = trial};
  steps_made = 0;
  assert_ok(brim_remedies_measure(subject_of(&f), &options, &r, 1, 0));
  assert_int_equal(steps_made, 0);
  const brim_finding *note = NULL;
  for (size_t i = 0; i < r.finding_count; i++) {
    assert_false(r.findings[i].measured);
    if (strcmp(r.findings[i].code, "not_priced") == 0) note = &r.findings[i];
  }
  assert_non_null(note);
  assert_true(note->note);
  assert_non_null(strstr(english(note->text), "num_workers="));
  brim_result_deinit(&r);
  close_scripted(&f);
}

static void test_a_gain_is_more_than_the_spread(void **state) {
  (void)state;
  static const struct {
    double own[2], changed[2], se, gain;
    size_t pairs;
  } rows[] = {
      {{1.0, 1.0}, {1.3, 1.2}, 0.01, 0.25, 2},  // the pairs agree
      {{1.0, 1.0}, {1.5, 1.0}, 0.01, 0, 2},     // the pairs disagree
      {{1.0, 0}, {1.3, 0}, 0.01, 0.3, 1},      {{1.0, 0}, {1.3, 0}, 0.2, 0, 1},
      {{1.0, 0}, {1.3, 0}, NAN, 0.3, 1},  // an unknown error is taken as 0
      {{1.0, 0}, {0.9, 0}, 0.5, -0.1, 1},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_result_visit own[2], changed[2];
    for (int k = 0; k < 2; k++) {
      own[k] = (brim_result_visit){.samples_per_s = exp(rows[i].own[k]), .log_se = rows[i].se};
      changed[k] =
          (brim_result_visit){.samples_per_s = exp(rows[i].changed[k]), .log_se = rows[i].se};
    }
    assert_true(near(brim_remedy_gain(own, changed, rows[i].pairs), rows[i].gain));
  }
}

// A thousand times the environments take far less than a thousand times as long on an almost empty card.
static void test_a_step_fills_the_device_first(void **state) {
  (void)state;
  brim_result r;
  brim_result_init(&r);
  r.total_ms.median = 4;
  assert_true(near(brim_remedy_step_s(&r, false, 1000), 4));
  assert_true(near(brim_remedy_step_s(&r, false, 0.5), 4e-3));
  r.sm_percent = 2;
  r.occupancy_percent = 5;
  assert_true(near(brim_remedy_step_s(&r, true, 1000), 4e-3));
  r.sm_percent = 100;
  r.occupancy_percent = 50;
  assert_true(near(brim_remedy_step_s(&r, true, 1000), 2));
  r.occupancy_percent = (double)NAN;
  assert_true(near(brim_remedy_step_s(&r, true, 1000), 1));
  brim_result_deinit(&r);
}

static void test_stopped(void **state) {
  (void)state;
  fixture f;
  brim_result r;
  open_scripted(&f);
  brim_setting setting = brim_work_setting(f.work);
  run_own(&f, &setting, &r);
  r.cores = 4;
  volatile sig_atomic_t stop = 1;
  brim_remedy_options options = {.setting = &setting, .trial = trial};
  options.trial.stop = &stop;
  assert_status(brim_remedies_measure(subject_of(&f), &options, &r, 1, 0), BRIM_EINTERRUPTED);
  assert_string_equal(r.findings[0].code, "io_wait");  // findings that need no measurement stay
  assert_false(r.findings[0].measured);
  brim_result_deinit(&r);
  close_scripted(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_remedy_is_measured),
      cmocka_unit_test(test_a_cache_is_filled_first),
      cmocka_unit_test(test_a_remedy_that_fails),
      cmocka_unit_test(test_the_budget_bounds_each_probe),
      cmocka_unit_test(test_a_gain_is_more_than_the_spread),
      cmocka_unit_test(test_a_step_fills_the_device_first),
      cmocka_unit_test(test_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
