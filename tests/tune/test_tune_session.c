// A session over a simulated program: knobs, run(setting), and nothing else. Race, recommendation, records and resume
// are those of a workload. A setting that fails steers the session and never stops it.
#include <math.h>
#include <unistd.h>

#include "record/record_findings.h"
#include "test.h"
#include "tune/tune_int.h"

// "-j {j} --amp {amp} bs={bs}": 4 x 3 x 2 settings.
static const char *const words[] = {"off", "bf16", NULL};
static const brim_knob program_knobs[] = {
    {.name = "bs",
     .min = 1,
     .max = 4096,
     .value = 64,
     .changes_learning = true,
     .multiplies = true,
     .option = "--set"},
    {.name = "j", .min = 0, .max = 64, .value = 0, .option = "--set"},
    {.name = "amp", .kind = BRIM_KNOB_CHOICE, .max = 1, .choices = words, .option = "--set"},
};
static const brim_knob_row program_rows[] = {
    {.name = "bs", .label = "bs", .heading = "bs", .role = BRIM_ROLE_BATCH},
    {.name = "j", .label = "j", .heading = "j", .role = BRIM_ROLE_WORKERS},
    {.name = "amp", .label = "amp", .heading = "amp", .role = BRIM_ROLE_PRECISION},
};
static const brim_knob_set program_set = {.rows = program_rows, .count = 3};

typedef struct program {
  int runs, recovered, stop_after;
  volatile sig_atomic_t stop;
  bool broken;  // no setting runs
} program;

// Launch-bound up to a batch of 256, decode-bound without workers. The largest batch does not fit with fp32, four
// workers hang, and bf16 at a batch of 64 prints no figure.
static brim_status program_run(void *state, const brim_setting *setting,
                               const brim_trial_options *how, brim_result *out) {
  program *p = state;
  int64_t bs = setting->value[0], j = setting->value[1], amp = setting->value[2];
  brim_result_init(out);
  snprintf(out->workload, sizeof out->workload, "train.py");
  out->knob_set = &program_set;
  for (size_t k = 0; k < 3; k++) {
    brim_result_knob *knob = &out->knobs[out->knob_count++];
    snprintf(knob->name, sizeof knob->name, "%s", program_knobs[k].name);
    brim_knob_format(&program_knobs[k], setting->value[k], knob->value);
    knob->number = k < 2 ? (double)setting->value[k] : (double)NAN;
  }
  p->runs++;
  if (p->stop_after && p->runs > p->stop_after) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
  if (p->broken || (bs == 1024 && !amp)) {
    out->failure = BRIM_FAILURE_OOM_DEVICE;
    out->failure_status = BRIM_EOOM;
  } else if (j == 4) {
    out->failure = BRIM_FAILURE_HUNG;
    out->failure_status = BRIM_EDEVICE;
  } else if (bs == 64 && amp) {
    out->failure = BRIM_FAILURE_DATA;
    out->failure_status = BRIM_EPARSE;
  } else if (bs == 64 && j == 2) {
    out->failure = BRIM_FAILURE_CRASH;
    out->failure_status = BRIM_EDEVICE;
  }
  if (out->failure) {
    snprintf(out->message, sizeof out->message, "%s", brim_failure_name(out->failure));
    return BRIM_OK;
  }
  double step = fmax(2e-3, (double)bs * 5e-6) * (amp ? 0.6 : 1);
  double decode = (double)bs * 1e-5 / (double)(j + 1);
  double noise = 1 + 0.01 * (double)(p->runs * 7919 % 13 - 6) / 6;
  double seconds = fmax(step, decode) * noise;
  const double ms[] = {1e3 * seconds, 1.001e3 * seconds, 0.999e3 * seconds, 1e3 * seconds};
  BRIM_TRY(brim_stats_summarize(ms, 4, 1, &out->total_ms));
  out->samples_per_s = (double)bs / seconds;
  out->samples_per_s_low = out->samples_per_s / 1.01;
  out->samples_per_s_high = out->samples_per_s * 1.01;
  out->stable = true;
  out->seconds = 0.5;
  if (how->visit) {
    *how->visit = (brim_result_visit){.samples_per_s = out->samples_per_s,
                                      .log_se = 0.001,
                                      .samples = 10,
                                      .seconds = out->seconds};
  }
  return BRIM_OK;
}

static brim_status program_recover(brim_subject *subject) {
  ((program *)subject->state)->recovered++;
  return BRIM_OK;
}

static const brim_subject_table program_table = {.run = program_run, .recover = program_recover};

typedef struct told {
  size_t results, pages, kept;
  char notes[1024];
  const brim_tuning *session;
} told;

static void on_result(void *ctx, const brim_result *result) {
  (void)result;
  ((told *)ctx)->results++;
}

static void on_note(void *ctx, const char *text) {
  told *t = ctx;
  size_t n = strlen(t->notes);
  snprintf(t->notes + n, sizeof t->notes - n, "%s", text);
}

static brim_status on_report(void *ctx, brim_str *page) {
  ((told *)ctx)->pages++;
  brim_str_append(page, "page");
  return brim_str_status(page);
}

static brim_status on_keep(void *ctx) {
  ((told *)ctx)->kept++;
  return BRIM_OK;
}

static const brim_tuning_events events = {
    .result = on_result, .note = on_note, .report = on_report, .keep_earlier = on_keep};

static const int64_t batches[] = {64, 256, 512, 1024}, workers[] = {0, 2, 4}, amp[] = {0, 1};

static brim_tuning_options options_of(program *p, told *t) {
  brim_tuning_options how = {.events = &events,
                             .ctx = t,
                             .stop = &p->stop,
                             .exhaustive = true,
                             .steps = 10,
                             .repeats = 2,
                             .device_count = 1,
                             .jsonl = "session.jsonl",
                             .html = "session.html",
                             .best = "session.best",
                             .given_count = {4, 3, 2}};
  memcpy(how.given[0], batches, sizeof batches);
  memcpy(how.given[1], workers, sizeof workers);
  memcpy(how.given[2], amp, sizeof amp);
  return how;
}

static brim_status run_session(program *p, told *t, const brim_tuning_options *how,
                               brim_tuning *s) {
  static brim_subject subject;
  subject = (brim_subject){.table = &program_table,
                           .state = p,
                           .name = "train.py",
                           .knobs = program_knobs,
                           .knob_count = 3,
                           .knob_set = &program_set,
                           .host = true};
  assert_ok(brim_tuning_open(s, &subject, how));
  t->session = s;
  assert_ok(brim_tuning_choose(s));
  assert_int_equal(s->settings.count, 24);
  assert_ok(brim_tuning_prepare(s));
  return brim_tuning_run(s);
}

static size_t failed(const brim_tuning *s, brim_failure failure) {
  size_t n = 0;
  for (size_t i = 0; i < s->count; i++) n += s->results[i].failure == failure;
  return n;
}

static void remove_files(void) {
  unlink("session.jsonl");
  unlink("session.html");
}

// A complete session: failures are results, and the fastest working setting is recommended.
static void test_a_program_is_tuned(void **state) {
  (void)state;
  program p = {0};
  told t = {0};
  brim_tuning s;
  remove_files();
  const brim_tuning_options how = options_of(&p, &t);
  assert_ok(run_session(&p, &t, &how, &s));
  assert_true(s.measured && !s.interrupted);
  assert_int_equal(s.count, 24);
  assert_int_equal(t.results, 24);
  assert_int_equal(failed(&s, BRIM_FAILURE_HUNG) + failed(&s, BRIM_FAILURE_OOM_DEVICE), 10);
  assert_int_equal(failed(&s, BRIM_FAILURE_DATA), 2);
  assert_int_equal(failed(&s, BRIM_FAILURE_CRASH), 1);
  assert_int_equal(p.recovered, 1);
  // two workers decode fast enough for bf16 at each large batch: the smallest equally good one wins
  assert_true(s.picks.recommended >= 0);
  const brim_result *best = &s.results[s.picks.recommended];
  assert_string_equal(brim_result_knob_find(best, "j")->value, "2");
  assert_string_equal(brim_result_knob_find(best, "amp")->value, "bf16");
  assert_int_equal(s.picks.now, 0);
  assert_true(s.picks.gain.low > 1);
  assert_true(s.wrote_jsonl && s.wrote_html && !s.wrote_best);
  assert_true(t.pages > 0);
  brim_tuning_close(&s);
}

// An interruption keeps the measured settings; --resume measures only the rest and has the same result.
static void test_a_session_resumes(void **state) {
  (void)state;
  told t = {0};
  program whole = {0}, first = {.stop_after = 9}, rest = {0};
  brim_tuning a, b;
  remove_files();
  brim_tuning_options how = options_of(&first, &t);
  how.repeats = 1;
  assert_status(run_session(&first, &t, &how, &a), BRIM_EINTERRUPTED);
  assert_true(a.measured && a.interrupted);
  assert_int_equal(a.count, 10);  // the stopped setting comes behind them
  assert_true(a.picks.provisional);
  brim_tuning_close(&a);
  how = options_of(&rest, &t);
  how.repeats = 1;
  how.resume = true;
  t.notes[0] = '\0';
  assert_ok(run_session(&rest, &t, &how, &a));
  assert_non_null(strstr(t.notes, "settings of session.jsonl are known"));
  assert_non_null(strstr(t.notes, "did not run then and are tried again"));
  assert_int_equal(t.kept, 1);  // from the first session; resuming adds to it
  assert_true(rest.runs < 24);
  const size_t count = a.count;
  const int recommended = a.picks.recommended;
  brim_tuning_close(&a);
  remove_files();
  how = options_of(&whole, &t);
  how.repeats = 1;
  assert_ok(run_session(&whole, &t, &how, &b));
  assert_int_equal(b.count, count);
  assert_int_equal(b.picks.recommended, recommended);
  brim_tuning_close(&b);
}

static void test_nothing_runs(void **state) {
  (void)state;
  program p = {.broken = true};
  told t = {0};
  brim_tuning s;
  remove_files();
  const brim_tuning_options how = options_of(&p, &t);
  assert_status(run_session(&p, &t, &how, &s), BRIM_EOOM);
  assert_true(s.measured);
  assert_int_equal(s.picks.recommended, -1);
  assert_true(s.wrote_jsonl && s.wrote_html);
  brim_tuning_edit edit;
  assert_status(brim_tuning_apply(&s, &edit), BRIM_ESTATE);
  assert_true(s.running);
  brim_tuning_close(&s);
}

// `brim top` shows rate and findings beside the setting they belong to, never beside the one that is measured next.
static void test_figures_are_of_the_named_setting(void **state) {
  (void)state;
  static brim_job job;
  brim_job_init(&job);
  brim_progress p = {.title = "setting 1/2: batch_size=32", .done = 0, .total = 2, .eta_s = 9};
  brim_tuning_job_progress(&job, &p);
  brim_result r;
  brim_result_init(&r);
  r.samples_per_s = 1000;
  assert_non_null(brim_finding_add(&r, "io_wait", 2));
  brim_tuning_job_result(&job, &r);
  assert_string_equal(job.name, "setting 1/2: batch_size=32");
  assert_true(job.samples_per_s == 1000);
  assert_int_equal(job.finding_count, 1);
  // the same setting keeps its figures, another has none yet
  brim_tuning_job_progress(&job, &p);
  assert_true(job.samples_per_s == 1000);
  p.title = "setting 2/2: batch_size=64";
  p.done = 1;
  brim_tuning_job_progress(&job, &p);
  assert_string_equal(job.name, "setting 2/2: batch_size=64");
  assert_true(isnan(job.samples_per_s));
  assert_int_equal(job.finding_count, 0);
  assert_true(job.eta_s == 9);
  // settings do not count as steps
  assert_int_equal(job.step, -1);
  assert_int_equal(job.steps, -1);
  brim_result_deinit(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_program_is_tuned),
      cmocka_unit_test(test_a_session_resumes),
      cmocka_unit_test(test_nothing_runs),
      cmocka_unit_test(test_figures_are_of_the_named_setting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
