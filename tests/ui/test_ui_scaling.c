// Scaling in the terminal and in the report: figures, losses, devices that did not run, and gradients that are
// exchanged or not, beside the predictions.
#include <math.h>

#include "test.h"
#include "ui/bench/ui_bench_int.h"
#include "workload/workload.h"

enum { COUNT = 5 };

static const brim_recommendation fastest = {.recommended = -1, .now = -1, .beside = -1};

static brim_scaling all[COUNT];

static void put(brim_scaling *s, int devices, int ran, double rate, int batch) {
  brim_scaling_init(s);
  s->devices = devices;
  s->ran = ran;
  s->result.samples_per_s = rate;
  s->result.stable = true;
  s->each = rate / ran;
  s->one = 1000;
  s->efficiency = rate / (ran * 1000.0);
  s->result.total_ms.mean = 8;
  s->result.phase_used[BRIM_PHASE_IO] = s->result.phase_used[BRIM_PHASE_COMPUTE] = true;
  s->result.phase_ms[BRIM_PHASE_IO].mean = 2;
  s->result.phase_ms[BRIM_PHASE_COMPUTE].mean = 6;
  s->result.knob_count = 1;
  s->result.knob_set = brim_workload_find("supervised")->knob_set;
  snprintf(s->result.knobs[0].name, sizeof s->result.knobs[0].name, "batch_size");
  snprintf(s->result.knobs[0].value, sizeof s->result.knobs[0].value, "%d", batch);
  for (int i = 0; i < devices; i++) {
    snprintf(s->replicas[i].spec, sizeof s->replicas[i].spec, "cuda:%d", i % 10);
    if (i < ran) snprintf(s->replicas[i].device, sizeof s->replicas[i].device, "A <GPU>");
  }
}

static void fail_last(brim_scaling *s, const char *why) {
  brim_scaling_replica *r = &s->replicas[s->devices - 1];
  r->failure = BRIM_FAILURE_OTHER;
  snprintf(r->message, sizeof r->message, "%s", why);
}

static void make(void) {
  put(&all[0], 1, 1, 1000, 64);
  put(&all[1], 2, 2, 1800, 64);
  snprintf(all[1].lost_to, sizeof all[1].lost_to, "io");
  all[1].lost_ms = 0.5;
  put(&all[2], 3, 2, 1700, 64);
  fail_last(&all[2], "it is <gone>");
  all[2].result.stable = false;
  put(&all[3], 1, 1, 1000, 128);
  put(&all[4], 2, 0, (double)NAN, 128);
  all[4].each = all[4].efficiency = all[4].result.total_ms.mean = (double)NAN;
  all[4].result.failure = BRIM_FAILURE_OTHER;
  fail_last(&all[4], "it is <gone>");
  snprintf(all[4].replicas[1].spec, sizeof all[4].replicas[1].spec, "cuda:2");
}

// The devices exchange gradients: 2 were measured, 3 failed, more are predicted.
static void exchange(void) {
  brim_scaling_exchange *e = &all[1].exchange;
  snprintf(e->by, sizeof e->by, "shm");
  e->gradient_bytes = 4 << 20;
  e->bucket_bytes = 1 << 20;
  e->bucket_ms = 0.25;
  e->samples_per_s = 1600;
  e->efficiency = 0.8;
  e->step_ms = 10;
  e->busy_ms = 1.5;
  e->waited_ms = 1.25;
  e->stable = true;
  all[1].predicted = (brim_scaling_forecast){2, 1760, 0.88, 9.1, 1.1, 1.1, false, false};
  all[1].further_count = 3;
  all[1].further[0] = (brim_scaling_forecast){4, 3456, 0.864, 9.3, 1.3, 1.3, true, false};
  all[1].further[1].ranks = 8;
  all[1].further[1].beyond = all[1].further[1].network = true;
  all[1].further[2].ranks = 9;
  all[1].further[2].exchange_ms = 2;
  all[2].exchange = (brim_scaling_exchange){.by = "shm",
                                            .failure = BRIM_FAILURE_CRASH,
                                            .samples_per_s = (double)NAN,
                                            .efficiency = (double)NAN,
                                            .step_ms = (double)NAN,
                                            .busy_ms = (double)NAN,
                                            .waited_ms = (double)NAN,
                                            .message = "cuda:1: it <broke>"};
}

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("no '%s' in:\n%s", part, text);
}

static size_t times(const char *text, const char *part) {
  size_t n = 0;
  while ((text = strstr(text, part))) {
    n++;
    text += strlen(part);
  }
  return n;
}

static void test_terminal(void **state) {
  (void)state;
  const brim_term term = {.width = 0};
  brim_str out;
  brim_str_init(&out);
  make();
  assert_ok(brim_ui_scaling(&term, all, COUNT, "A note.", &out));
  has(out.data, "SCALING OVER DEVICES");
  has(out.data, "batch_size=64");
  has(out.data, "batch_size=128");
  has(out.data, "90.0 %");
  has(out.data, "waiting for data, 0.50 ms");
  has(out.data, "2 of 3");
  has(out.data, "nothing significant; unstable");
  has(out.data, "fewer than two devices ran");
  has(out.data, "do not exchange gradients");
  has(out.data, "A note.");
  assert_int_equal(times(out.data, "cuda:2 did not run: it is <gone>"), 1);
  assert_null(strstr(out.data, "The devices differ"));
  assert_null(strstr(out.data, "nan"));
  snprintf(all[1].replicas[1].device, sizeof all[1].replicas[1].device, "Another");
  assert_ok(brim_ui_scaling(&term, all, COUNT, NULL, &out));
  has(out.data, "The devices differ");
  brim_str_deinit(&out);
  brim_str_init(&out);
  assert_ok(brim_ui_scaling(&term, all, 0, NULL, &out));
  assert_int_equal(out.len, 0);
  brim_str_deinit(&out);
}

static void test_exchange(void **state) {
  (void)state;
  const brim_term term = {.width = 0};
  brim_str out;
  brim_str_init(&out);
  make();
  exchange();
  assert_ok(brim_ui_scaling(&term, all, COUNT, NULL, &out));
  has(out.data, "over shm: 4.0 MiB per step");
  has(out.data, "of 1.0 MiB takes 0.25 ms.");
  has(out.data, "1,760, 88.0 %");
  has(out.data, "1,600, 80.0 %");
  has(out.data, "+10.0 %");
  has(out.data, "1.25");
  has(out.data, "1.10  slower without exchange too (see Lost to)");  // 0.50 ms against 0.15
  has(out.data, "3,456, 86.4 %");
  assert_int_equal(times(out.data, "beyond what was measured"), 1);
  has(out.data, "network between machines: not measured");
  has(out.data, "share of the backward pass: unknown");
  has(out.data, "2 devices could not exchange gradients: cuda:1: it <broke>");
  has(out.data, "without exchange of gradients: an upper bound");
  assert_null(strstr(out.data, "do not exchange gradients"));
  assert_null(strstr(out.data, "nan"));
  // a setting without an exchange has no such table
  assert_int_equal(times(out.data, "Predicted wait(ms)"), 1);
  brim_str_clear(&out);
  brim_ui_report_options how = {.picks = &fastest, .scaling = all, .scaling_count = COUNT};
  assert_ok(brim_ui_report(&how, &all[0].result, 1, &out));
  assert_int_equal(times(out.data, "<table class=\"scaling ranks\">"), 1);
  has(out.data, "<td>1,760, 88.0 %</td><td>1,600, 80.0 %</td><td>+10.0 %</td>");
  has(out.data, "beyond what was measured");
  has(out.data, "it &lt;broke&gt;");
  assert_null(strstr(out.data, "nan"));
  brim_str_deinit(&out);
}

static void test_narrow(void **state) {
  (void)state;
  const brim_term term = {.width = 60};
  brim_str out;
  brim_str_init(&out);
  make();
  exchange();
  assert_ok(brim_ui_scaling(&term, all, COUNT, NULL, &out));
  for (const char *line = out.data; *line; line += strcspn(line, "\n") + 1) {
    assert_true(strcspn(line, "\n") <= 60);
    if (!line[strcspn(line, "\n")]) break;
  }
  brim_str_deinit(&out);
}

static void test_report(void **state) {
  (void)state;
  brim_result trial;
  brim_result_init(&trial);
  trial.samples_per_s = 1000;
  brim_str page;
  brim_str_init(&page);
  make();
  brim_ui_report_options how = {
      .picks = &fastest, .scaling = all, .scaling_count = COUNT, .scaling_note = "A <note>."};
  assert_ok(brim_ui_report(&how, &trial, 1, &page));
  has(page.data, "<section id=\"scaling\">");
  has(page.data, "<a href=\"#scaling\">");
  has(page.data, "do not exchange gradients");
  has(page.data, "<td>90.0 %</td>");
  has(page.data, "A &lt;note&gt;.");
  has(page.data, "it is &lt;gone&gt;");
  assert_null(strstr(page.data, "<gone>"));
  assert_null(strstr(page.data, "nan"));
  brim_str_deinit(&page);
  brim_str_init(&page);
  how.scaling_count = 0;
  assert_ok(brim_ui_report(&how, &trial, 1, &page));
  assert_null(strstr(page.data, "id=\"scaling\""));
  brim_str_deinit(&page);
}

static void test_what_is_lost(void **state) {
  (void)state;
  static const char *const rows[][2] = {{"h2d", "copies to the GPU"},
                                        {"compute", "computing"},
                                        {"short_batch", "short last batches"},
                                        {"other", "the host between steps"},
                                        {"transform", "transforms"}};
  char text[96];
  make();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    snprintf(all[1].lost_to, sizeof all[1].lost_to, "%s", rows[i][0]);
    brim_ui_scaling_lost(&all[1], text);
    has(text, rows[i][1]);
  }
  brim_ui_scaling_lost(&all[0], text);
  assert_string_equal(text, "");
}

// Replicas on the host share cores and memory, and the report mentions it; a GPU's line does not.
static void test_host(void **state) {
  (void)state;
  const brim_term term = {.width = 0};
  char text[96];
  brim_str out;
  make();
  for (int hosts = 0; hosts < 3; hosts++) {
    for (int k = 0; k < 2; k++) {
      snprintf(all[1].replicas[k].spec, sizeof all[1].replicas[k].spec,
               k < hosts ? "cpu" : "cuda:1");
    }
    snprintf(all[1].lost_to, sizeof all[1].lost_to, "compute");
    brim_ui_scaling_lost(&all[1], text);
    has(text, hosts == 2 ? "cores and memory bandwidth are shared" : "power, clocks, memory");
    brim_str_init(&out);
    assert_ok(brim_ui_scaling(&term, all, 2, NULL, &out));
    // in both cases the report explains why the row of one device differs from the summary
    assert_int_equal(times(out.data, "which uses all threads"), hosts == 2);
    assert_int_equal(times(out.data, "is a new measurement"), hosts != 2);
    brim_str_clear(&out);
    brim_ui_report_options how = {.picks = &fastest, .scaling = all, .scaling_count = 2};
    assert_ok(brim_ui_report(&how, &all[0].result, 1, &out));
    assert_int_equal(times(out.data, "which uses all threads"), hosts == 2);
    brim_str_deinit(&out);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_terminal),     cmocka_unit_test(test_exchange),
      cmocka_unit_test(test_narrow),       cmocka_unit_test(test_report),
      cmocka_unit_test(test_what_is_lost), cmocka_unit_test(test_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
