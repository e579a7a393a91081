// Checkpoints that are written while training continues: each has the state of its step, one is written at a time, none
// is lost at a stop or at the end, and one that cannot be written ends the run.
#include "run/run_test.h"

static struct {
  brim_workload_table table;
  int64_t step;       // steps so far; by __atomic_*
  int64_t ahead;      // a write waits until this many steps were made after its own
  int64_t saw_ahead;  // the most steps that a write saw
  int writes, now;    // `now`: writes at this moment
  int most_now;
  int fail_write;      // this write fails, from 1; 0 = none
  const char *remove;  // a failing write removes this file first
  bool no_memory;      // for a copy of the state
  int64_t pause_ns;    // after each step
  int64_t stop_at;     // stop at this step, as by Ctrl-C
  volatile sig_atomic_t stop;
} slow;

static brim_status slow_step(void *work, const brim_spans *spans, brim_step_info *out) {
  BRIM_TRY(brim_workload_find("supervised")->step(work, spans, out));
  __atomic_store_n(&slow.step, out->step, __ATOMIC_RELEASE);
  if (slow.pause_ns) brim_clock_sleep_ns(slow.pause_ns);
  if (out->step == slow.stop_at) slow.stop = 1;
  return BRIM_OK;
}

typedef struct slow_held {
  brim_work_held real;
  int64_t step;
} slow_held;

// Waits for later steps, but not for long: the last checkpoint has none after it.
static brim_status slow_write(void *state, const char *path) {
  slow_held *h = state;
  int64_t seen = 0;
  int now = __atomic_add_fetch(&slow.now, 1, __ATOMIC_ACQ_REL);
  if (now > slow.most_now) slow.most_now = now;
  slow.writes++;
  for (int i = 0; i < 100 && seen < slow.ahead; i++) {
    brim_clock_sleep_ns(5000000);
    seen = __atomic_load_n(&slow.step, __ATOMIC_ACQUIRE) - h->step;
  }
  if (seen > slow.saw_ahead) slow.saw_ahead = seen;
  if (slow.writes == slow.fail_write && slow.remove) assert_ok(brim_fs_remove(slow.remove));
  brim_status status = slow.writes == slow.fail_write ? brim_fail(BRIM_EIO, "no room for %s", path)
                                                      : h->real.write(h->real.state, path);
  __atomic_sub_fetch(&slow.now, 1, __ATOMIC_ACQ_REL);
  return status;
}

static void slow_free(void *state) {
  slow_held *h = state;
  h->real.free(h->real.state);
  brim_free(h);
}

static brim_status slow_hold(void *work, const json_t *extra, bool weights_only,
                             brim_work_held *out) {
  if (slow.no_memory) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
  slow_held *h = brim_alloc(sizeof *h);
  assert_non_null(h);
  h->step = __atomic_load_n(&slow.step, __ATOMIC_ACQUIRE);
  assert_ok(
      brim_workload_find("supervised")->background->hold(work, extra, weights_only, &h->real));
  *out = (brim_work_held){.state = h, .write = slow_write, .free = slow_free};
  return BRIM_OK;
}

static void reset(void) {
  memset(&slow, 0, sizeof slow);
  slow.table = *brim_workload_find("supervised");
  slow.table.step = slow_step;
  static const brim_work_background_table background = {.hold = slow_hold};
  slow.table.background = &background;
}

static const char *const files[] = {"last.safetensors", "best.safetensors", "model.safetensors",
                                    "step-00000040.safetensors", "step-00000045.safetensors"};

static void assert_all_same(const char *a, const char *b) {
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) assert_same(a, b, files[i]);
}

static const char *const often[] = {"checkpoint.interval=5", "checkpoint.keep=3"};

static job job_of(const char *folder, const brim_workload_table *table) {
  fresh(folder);
  return (job){.folder = folder, .overrides = {often[0], often[1]}, .table = table};
}

static brim_workload_table direct_table(void) {
  brim_workload_table table = *brim_workload_find("supervised");
  table.background = NULL;  // everything is written in the training thread
  return table;
}

static void test_it_is_the_state_it_was_taken_of(void **state) {
  (void)state;
  brim_run_result r;
  brim_workload_table direct = direct_table();
  job plain = job_of("direct", &direct);
  assert_ok(run(&plain, &r));
  assert_int_equal(r.steps, 48);
  reset();
  slow.ahead = 3;
  job j = job_of("behind", &slow.table);
  assert_ok(run(&j, &r));
  assert_true(slow.saw_ahead >= 3);  // training continued
  assert_int_equal(slow.most_now, 1);
  assert_all_same("direct", "behind");
  assert_string_equal(r.checkpoint, "behind/model.safetensors");
  // both are separate files at the end
  assert_false(brim_fs_same("behind/best.safetensors", "behind/last.safetensors"));
  // without memory for a copy, checkpoints are written at once
  reset();
  slow.no_memory = true;
  job poor = job_of("poor", &slow.table);
  assert_ok(run(&poor, &r));
  assert_int_equal(slow.writes, 0);
  assert_all_same("direct", "poor");
}

static void test_a_cut_run_waits_for_it(void **state) {
  (void)state;
  brim_run_result r;
  brim_workload_table direct = direct_table();
  job plain = job_of("direct2", &direct);
  assert_ok(run(&plain, &r));
  reset();
  slow.ahead = 2;
  job j = job_of("cut", &slow.table);
  j.max_steps = 11;  // the checkpoint of step 10 is being written
  assert_ok(run(&j, &r));
  assert_int_equal(r.steps, 11);
  assert_true(exists("cut", "step-00000010.safetensors"));
  assert_true(exists("cut", "last.safetensors"));
  j.max_steps = 0;
  j.resume = true;
  assert_ok(run(&j, &r));
  assert_int_equal(r.steps_run, 37);
  assert_same("direct2", "cut", "model.safetensors");
  assert_same("direct2", "cut", "last.safetensors");
}

// A run is stopped, as by Ctrl-C, while a checkpoint is being written: both checkpoints are there afterwards.
static void test_a_stopped_run_waits_for_it(void **state) {
  (void)state;
  brim_run_result r;
  brim_workload_table direct = direct_table();
  job plain = job_of("direct3", &direct);
  assert_ok(run(&plain, &r));
  for (int64_t at = 10; at <= 12; at += 2) {  // at a checkpoint's step, and between two
    reset();
    slow.ahead = 100;
    slow.stop_at = at;
    job j = job_of("stopped", &slow.table);
    j.stop = &slow.stop;
    assert_status(run(&j, &r), BRIM_EINTERRUPTED);
    assert_true(r.interrupted);
    assert_int_equal(r.steps, at);
    assert_int_equal(slow.writes,
                     2);  // of steps 5 and 10; the stop's own is written at once
    assert_true(exists("stopped", "step-00000005.safetensors"));
    assert_int_equal(exists("stopped", "step-00000010.safetensors"), at > 10);
    j.stop = NULL;
    j.resume = true;
    slow.ahead = 0;
    assert_ok(run(&j, &r));
    assert_int_equal(r.steps_run, 48 - at);
    assert_same("direct3", "stopped", "model.safetensors");
    assert_same("direct3", "stopped", "last.safetensors");
  }
}

static void test_one_that_cannot_be_written(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  slow.fail_write = 2;  // of step 10; the next would be at 15 and 16
  slow.pause_ns = 20000000;
  job j = job_of("full", &slow.table);
  assert_status(run(&j, &r), BRIM_EIO);
  assert_non_null(strstr(brim_status_detail(), "no room for full/"));
  assert_non_null(strstr(brim_status_detail(), "cannot save step 10"));
  assert_non_null(strstr(brim_status_detail(), "--resume continues from step 5"));
  // the failure ends the run before the next one is due
  assert_true(r.steps >= 10 && r.steps < 15);
  reset();
  j.table = &slow.table;
  j.resume = true;
  assert_ok(run(&j, &r));
  assert_int_equal(r.steps_run, 43);
  // the first checkpoint fails
  reset();
  slow.fail_write = 1;
  slow.pause_ns = 20000000;
  job first = job_of("full2", &slow.table);
  assert_status(run(&first, &r), BRIM_EIO);
  assert_non_null(strstr(brim_status_detail(), "cannot save step 5"));
  assert_non_null(strstr(brim_status_detail(), "--output-dir"));
  assert_true(r.steps < 10);
  // the message must not name a file that is gone
  reset();
  slow.fail_write = 2;
  slow.remove = "full3/last.safetensors";
  job gone = job_of("full3", &slow.table);
  assert_status(run(&gone, &r), BRIM_EIO);
  assert_non_null(strstr(brim_status_detail(), "cannot save step 10"));
  assert_null(strstr(brim_status_detail(), "--resume continues from"));
}

// Writes longer than an epoch takes. The end of an epoch must not wait for the previous checkpoint.
static brim_status long_write(void *state, const char *path) {
  brim_clock_sleep_ns(250000000);
  return slow_write(state, path);
}

static brim_status long_hold(void *work, const json_t *extra, bool weights_only,
                             brim_work_held *out) {
  BRIM_TRY(slow_hold(work, extra, weights_only, out));
  out->write = long_write;
  return BRIM_OK;
}

static brim_status no_better(void *work, brim_work_metrics *out) {
  BRIM_TRY(brim_workload_find("supervised")->evaluation->evaluate(work, out));
  out->values[BRIM_NET_ACCURACY] = 0.5;
  return BRIM_OK;
}

static void test_short_epochs_are_spared(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  static const brim_work_background_table background = {.hold = long_hold};
  slow.table.background = &background;
  static const brim_work_evaluation_table evaluation = {.evaluate = no_better};
  slow.table.evaluation = &evaluation;
  fresh("short");
  job j = {.folder = "short", .overrides = {"training.epochs=12"}, .table = &slow.table};
  assert_ok(run(&j, &r));
  assert_int_equal(r.best_epoch, 1);
  assert_true(slow.writes <= 2);  // the first epoch, and while its duration was unknown
  assert_true(exists("short", "last.safetensors"));
}

// A run that ends by another error reports that error, and completes the checkpoint that was being written.
static brim_status failing_step(void *work, const brim_spans *spans, brim_step_info *out) {
  if (__atomic_load_n(&slow.step, __ATOMIC_ACQUIRE) == 11)
    return brim_fail(BRIM_EDEVICE, "the device is gone");
  return slow_step(work, spans, out);
}

static void test_another_error(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  slow.ahead = 100;  // still being written when the step fails
  slow.table.step = failing_step;
  job j = job_of("gone", &slow.table);
  assert_status(run(&j, &r), BRIM_EDEVICE);
  assert_string_equal(brim_status_detail(), "the device is gone");
  assert_int_equal(slow.now, 0);
  assert_true(exists("gone", "last.safetensors"));
  assert_true(exists("gone", "step-00000005.safetensors"));
  // both fail: a warning has the checkpoint's error
  reset();
  slow.ahead = 100;  // still being written when the step fails
  slow.fail_write = 2;
  slow.table.step = failing_step;
  job both = job_of("gone2", &slow.table);
  listen_now();
  assert_status(run(&both, &r), BRIM_EDEVICE);
  listen_no_more();
  assert_string_equal(brim_status_detail(), "the device is gone");
  assert_non_null(strstr(warned, "cannot save step 10"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_it_is_the_state_it_was_taken_of),
      cmocka_unit_test(test_a_cut_run_waits_for_it),
      cmocka_unit_test(test_a_stopped_run_waits_for_it),
      cmocka_unit_test(test_one_that_cannot_be_written),
      cmocka_unit_test(test_short_epochs_are_spared),
      cmocka_unit_test(test_another_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
