// The bench summary and the plan tables from made-up results; the report has test_ui_report.c.
#include <math.h>

#include "picked.h"
#include "record/record_findings.h"
#include "test.h"
#include "ui/bench/ui_bench_int.h"
#include "workload/workload.h"

enum { RESULTS = 7 };

static void add_knob(brim_result *r, const char *name, const char *value, double number) {
  brim_result_knob *k = &r->knobs[r->knob_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  snprintf(k->value, sizeof k->value, "%s", value);
  k->number = number;
}

static void fill_one(brim_result *r, int i) {
  char text[32];
  brim_result_init(r);
  r->knob_set = brim_workload_find("supervised")->knob_set;
  r->when_s = 1794709229;
  strcpy(r->workload, "supervised");
  strcpy(r->device, "<b>Test & \"GPU\"</b>");
  strcpy(r->backend, "ref");
  strcpy(r->cpu, "한국 CPU");
  r->cores = 2;
  r->threads = 1;
  snprintf(text, sizeof text, "%d", 64 << i);
  add_knob(r, "batch_size", text, 64 << i);
  add_knob(r, "num_workers", i % 2 ? "2" : "0", i % 2 ? 2 : 0);
  add_knob(r, "precision", "fp32", NAN);
  add_knob(r, "accumulation", "1", 1);
  static const brim_phase phases[] = {BRIM_PHASE_IO, BRIM_PHASE_FORWARD, BRIM_PHASE_BACKWARD,
                                      BRIM_PHASE_OPTIMIZER};
  for (size_t p = 0; p < 4; p++) {
    r->phase_used[phases[p]] = true;
    r->phase_ms[phases[p]].median = 1.5 * (double)(p + 1);
  }
  r->total_ms.median = 15;
  r->samples_per_s = (64 << i) / 0.015;
  r->samples_per_s_low = r->samples_per_s * 0.9;
  r->samples_per_s_high = r->samples_per_s * 1.1;
  r->epoch_s = 2.5;
  r->free_bytes = 1e9;
  r->total_bytes = 2e9;
  r->cpu_percent = 87.4;
  r->plan.rows[0] = (brim_plan_row){"parameters", BRIM_PLACE_DEVICE, 1u << 20};
  r->plan.rows[1] = (brim_plan_row){"loader ring", BRIM_PLACE_HOST, 1u << (16 + i)};
  r->plan.row_count = 2;
  r->plan.bytes[BRIM_PLACE_DEVICE] = 1u << 20;
  r->plan.bytes[BRIM_PLACE_HOST] = 1u << (16 + i);
  r->steps = 10;
  r->stable = i != 1;
}

static void fill(brim_result *list) {
  for (int i = 0; i < RESULTS; i++) fill_one(&list[i], i);
  brim_result *last = &list[RESULTS - 1];
  last->failure = BRIM_FAILURE_OOM_PLANNED;
  last->samples_per_s = last->total_ms.median = NAN;
  strcpy(last->message, "needs 9 GiB, <1 GiB> are there");
  brim_finding *f = &list[5].findings[0];
  list[5].finding_count = 1;
  strcpy(f->text, "the step waits for data");
  strcpy(f->remedy, "num_workers 0 -> 2 & more");
  f->cost_ms = 1.5;
}

static const brim_recommendation picks = {
    .highest = 5, .efficient = 4, .recommended = 5, .now = -1, .beside = -1};

static void contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

// The plan of a step against the machine's limits, for a step of 15 ms. Nothing is shown if either is unknown.
static void test_of_the_machine(void **state) {
  (void)state;
  brim_result list[RESULTS];
  brim_term term = {.width = 0};
  fill(list);
  brim_result *r = &list[picks.recommended];
  for (int step = 0; step < 7; step++) {
    static const char *const said[] = {
        NULL,
        NULL,
        "40 % of fp32 matrix products, by the plan",
        "40 % of fp32 matrix products, by the plan\n",  // 150 % of a ceiling: the ceiling is wrong
        "40 % of fp32 matrix products, under 1 % of memory bandwidth, by the plan\n",
        "by the plan, while other programs had 63 % of the CPU",
        "unknown: other programs had 60 % of the machine"};
    if (step == 1) r->plan.flops_per_step = 6e9;
    if (step == 2) r->ceilings.gemm_fp32_flops = 1e12, r->ceilings.gemm_bf16_flops = 1e13;
    if (step == 3) r->plan.bytes_per_step = 1.5e9, r->ceilings.copy_bytes_per_s = 1e11 / 1.5;
    if (step == 4) r->plan.bytes_per_step = 1e6;
    if (step == 5) r->others_cpu_percent = 63;
    if (step == 6) r->ceilings.load = 0.6;
    brim_str out;
    brim_str_init(&out);
    assert_ok(brim_ui_bench(&term, list, RESULTS, &picks, &out));
    if (said[step]) {
      contains(out.data, "  Of the machine:   ");
      contains(out.data, said[step]);
      assert_true((step < 6) == (strstr(out.data, "matrix products") != NULL));
    } else {
      assert_null(strstr(out.data, "Of the machine"));
    }
    brim_str_deinit(&out);
  }
}

// An interval is shown only if it is informative.
static void test_intervals(void **state) {
  (void)state;
  brim_result list[RESULTS];
  brim_term term = {.width = 0};
  fill(list);
  brim_result *r = &list[picks.recommended];
  static const char *const said[] = {"samples/s (95 %: ", "samples/s\n",
                                     "samples/s (measured once)", "samples/s: too low, "};
  for (int step = 0; step < 4; step++) {
    r->repeats = step == 2 ? 1 : 3;
    r->samples_per_s_low = step == 1 ? 1e-9 : 0.9 * r->samples_per_s;
    r->samples_per_s_high = step == 1 ? 5e17 : 1.1 * r->samples_per_s;
    r->data_samples_per_s = r->compute_samples_per_s = step == 3 ? 0.5 * r->samples_per_s : NAN;
    brim_str out;
    brim_str_init(&out);
    assert_ok(brim_ui_bench(&term, list, RESULTS, &picks, &out));
    const char *at = strstr(out.data, "Recommended for training");
    assert_non_null(at);
    contains(at, said[step]);
    assert_null(strstr(at, "200 %"));  // no share exceeds 100 %
    if (step == 1 || step == 2) assert_null(strstr(at, "95 %"));
    brim_str_deinit(&out);
  }
  char text[64];
  brim_ui_factor((brim_interval){2, 1e-9, 5.8e21}, text);
  assert_string_equal(text, "x2.00");
  brim_ui_factor((brim_interval){2, 1.5, 2.5}, text);
  assert_string_equal(text, "x2.0 [1.5, 2.5]");
}

static void test_summary(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  brim_term term = {.width = 0};
  brim_str out;
  brim_str_init(&out);
  assert_ok(brim_ui_bench(&term, list, RESULTS, &picks, &out));
  contains(out.data, "BENCHMARK SUMMARY");
  contains(out.data,
           "Batch  Workers  Precision  I/O(ms)  Fwd(ms)  Bwd(ms)  Opt(ms)  Total(ms)  Samples/s  "
           "CPU%      Mem  Status\n");
  contains(out.data,
           "   64        0       fp32     1.50     3.00     4.50     6.00       15.0      4,267    "
           "87  1.1 MiB  ok\n");
  contains(out.data, "unstable");
  contains(out.data, "OOM (planned)");
  contains(out.data, "ok *");
  contains(out.data, "needs 9 GiB");
  contains(out.data, "Highest throughput");
  contains(out.data, "Best efficiency");
  contains(out.data, "Recommended for training\n  Batch size:       2048");
  contains(out.data, "the step waits for data (1.50 ms per step, estimated)");
  assert_null(strstr(out.data, "Accumulation"));  // not swept
  assert_null(strchr(out.data, '\033'));
  assert_null(strstr(out.data, "nan"));
  brim_str_deinit(&out);
}

// The whole summary fits every width; results of a GPU show GPU%.
static void test_widths(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  for (int i = 0; i < RESULTS; i++) strcpy(list[i].device_id, "GPU-1");
  for (int width = 40; width <= 200; width += 7) {
    brim_term term = {.width = width, .unicode = true, .colour = width % 2};
    brim_str out;
    brim_str_init(&out);
    assert_ok(brim_ui_bench_table(&term, list, RESULTS, picks.recommended, &out));
    if (width >= 130) contains(out.data, "GPU%");
    for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n")) {
      if (brim_utf8_width(line) > width) fail_msg("%d columns: %s", width, line);
    }
    brim_str_deinit(&out);
  }
}

// At any width the star stays to the last, even behind a long status.
static void test_the_star_stays(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  for (int width = 60; width <= 120; width += 5) {
    brim_term term = {.width = width, .unicode = true};
    brim_str out;
    brim_str_init(&out);
    assert_ok(brim_ui_bench_table(&term, list, RESULTS, 1, &out));
    contains(out.data, "\xe2\x98\x85");
    brim_str_deinit(&out);
  }
}

// First come other programs with their share, and unsteady times. Then the three picks, one line each.
static void test_doubts_come_first(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  const brim_term term = {.width = 100};
  brim_recommendation d = picked(3, 0, 2);
  d.now = 2;
  d.gain = (brim_interval){1, 1, 1};
  for (int busy = 0; busy < 2; busy++) {
    brim_str out;
    brim_str_init(&out);
    for (int i = 0; i < RESULTS; i++) {
      list[i].others_cpu_percent = busy ? 48 : 3;
      list[i].stable = !busy;
    }
    assert_ok(brim_ui_bench_short(&term, list, RESULTS, &d, &out));
    const char *heading = strstr(out.data, "BENCHMARK SUMMARY");
    const char *share = strstr(out.data, "48 %"), *unstable = strstr(out.data, "unstable: measure");
    assert_true(busy ? share && share < heading : !share);
    assert_true(busy ? unstable && unstable < heading : !unstable);
    contains(out.data, "Highest throughput  Batch 512");
    contains(out.data, "Best efficiency     Batch 64");
    contains(out.data, "Keep your setting   Batch 256");
    d.now = 1;
    brim_str_clear(&out);
    assert_ok(brim_ui_bench_short(&term, list, RESULTS, &d, &out));
    contains(out.data, "Recommended         Batch 256");
    d.now = 2;
    brim_str_deinit(&out);
  }
  // "nothing worth fixing" must not appear if a setting is certainly faster
  char text[256];
  list[1].data_samples_per_s = list[1].compute_samples_per_s = NAN;
  d.now = 1;
  d.gain = (brim_interval){5.5, 5.4, 5.6};
  assert_true(brim_ui_healthy_beside(&list[1], &d, text));
  assert_null(strstr(text, "nothing worth fixing"));
  contains(text, "x5.5");
  d.recommended = 1;
  assert_true(brim_ui_healthy_beside(&list[1], &d, text));
  contains(text, "nothing worth fixing");
}

// The ceilings are in the unit that the workload counts.
static void test_ceilings_unit(void **state) {
  (void)state;
  static const char *const units[] = {"samples", "env steps", "points"};
  for (int i = 0; i < 3; i++) {
    brim_result list[RESULTS];
    brim_term term = {.width = 200};
    brim_str out;
    char part[64];
    fill(list);
    for (int k = 0; k < RESULTS; k++) {
      list[k].data_samples_per_s = 1234567;
      list[k].compute_samples_per_s = 7654321;
      snprintf(list[k].unit, sizeof list[k].unit, "%s", units[i]);
    }
    brim_str_init(&out);
    assert_ok(brim_ui_bench(&term, list, RESULTS, &picks, &out));
    snprintf(part, sizeof part, "computing alone 7.65 M %s/s: ", units[i]);
    contains(out.data, part);
    brim_str_deinit(&out);
  }
}

// Covers every line of the summary, not the table alone. Forward and backward are shown both or not at all.
static void test_narrow_summary(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  for (int i = 0; i < RESULTS; i++) {
    list[i].data_samples_per_s = 1234567;
    list[i].compute_samples_per_s = 7654321;
    list[i].plan.flops_per_step = 6e9;
    list[i].plan.bytes_per_step = 1.5e9;
    list[i].ceilings.gemm_fp32_flops = 1e12;
    list[i].ceilings.copy_bytes_per_s = 1e11;
  }
  for (int width = 50; width <= 130; width += 1) {
    brim_term term = {.width = width};
    brim_str out;
    brim_str_init(&out);
    assert_ok(brim_ui_bench(&term, list, RESULTS, &picks, &out));
    contains(out.data, "  Ceilings:         data alone");
    contains(out.data, "  Of the machine:   ");
    assert_true(!strstr(out.data, "  Fwd") == !strstr(out.data, "  Bwd"));
    if (width == 130) contains(out.data, "  Fwd(ms)");
    for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n")) {
      if (brim_utf8_width(line) > width) fail_msg("%d columns: %s", width, line);
    }
    brim_str_deinit(&out);
  }
}

// The displayed phases add up to the displayed total, although their medians do not.
static void test_phases_add_up(void **state) {
  (void)state;
  brim_result r;
  fill_one(&r, 0);
  static const double means[] = {4, 3, 2, 1};
  static const brim_phase phases[] = {BRIM_PHASE_IO, BRIM_PHASE_FORWARD, BRIM_PHASE_BACKWARD,
                                      BRIM_PHASE_OPTIMIZER};
  double sum = 0;
  for (size_t i = 0; i < 4; i++) r.phase_ms[phases[i]].mean = means[i];
  r.total_ms.mean = 10;
  r.total_ms.median = 8;
  for (size_t i = 0; i < 4; i++) {
    sum += brim_ui_phase_ms(&r, (int)phases[i]);
    // findings use the figures of the table: their parts of a step do not exceed the step
    assert_true(brim_result_phase_ms(&r, phases[i]) == brim_ui_phase_ms(&r, (int)phases[i]));
    assert_true(fabs(brim_ui_phase_ms(&r, (int)phases[i]) - means[i] * 0.8) < 1e-9);
  }
  assert_true(fabs(sum - 8) < 1e-9);
  r.total_ms.mean = NAN;  // a record without means
  assert_true(fabs(brim_ui_phase_ms(&r, BRIM_PHASE_FORWARD) - 3) < 1e-9);
}

// The reason given is one that applies, with its remedy; noise in most rows is reported.
static void test_nothing_recommended(void **state) {
  (void)state;
  brim_result list[3];
  brim_term term = {.width = 100};
  brim_str out;
  brim_str_init(&out);
  for (int i = 0; i < 3; i++) {
    fill_one(&list[i], i);
    list[i].stable = false;
  }
  const brim_recommendation none = picked(2, 2, -1);
  assert_ok(brim_ui_bench(&term, list, 3, &none, &out));
  contains(out.data, "No setting is recommended.");
  contains(out.data, "3 of 3 settings were unstable");
  brim_str_clear(&out);
  brim_ui_report_options how = {.picks = &none};
  assert_ok(brim_ui_report(&how, list, 3, &out));
  contains(out.data, "No setting is recommended.");
  contains(out.data, "3 of 3 settings were unstable");
  contains(out.data, "class=\"pt hollow\"");
  contains(out.data, "class=\"ci\"");
  brim_str_clear(&out);
  list[0].stable = list[1].stable = true;
  assert_ok(brim_ui_bench(&term, list, 3, &none, &out));
  assert_null(strstr(out.data, "settings were unstable"));
  brim_str_deinit(&out);
}

// Findings of the recommended setting and of the fastest one.
static void test_both_findings(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  list[4].finding_count = 1;
  strcpy(list[4].findings[0].text, "another thing");
  brim_term term = {0};
  brim_str out;
  brim_str_init(&out);
  const brim_recommendation two = picked(5, 4, 4);
  assert_ok(brim_ui_bench(&term, list, RESULTS, &two, &out));
  contains(out.data, "another thing");
  contains(out.data, "the step waits for data");
  brim_str_deinit(&out);
}

// A narrow table still shows which setting each row belongs to.
static void test_swept_knobs_stay(void **state) {
  (void)state;
  brim_result list[4];
  for (int i = 0; i < 4; i++) {
    fill_one(&list[i], 0);
    list[i].knob_count = 0;
    add_knob(&list[i], "batch_size", "64", 64);
    add_knob(&list[i], "num_workers", i % 2 ? "27" : "19", 0);
    add_knob(&list[i], "precision", i / 2 ? "bf16" : "fp32", NAN);
    add_knob(&list[i], "prefetch", i == 3 ? "8" : "2", NAN);
  }
  for (int width = 44; width < 130; width++) {
    brim_term term = {.width = width};
    brim_str out;
    brim_str_init(&out);
    assert_ok(brim_ui_bench_table(&term, list, 4, -1, &out));
    contains(out.data, "27");
    contains(out.data, "bf16");
    contains(out.data, "4,267");
    brim_str_clear(&out);
    assert_ok(brim_ui_plan_sweep(&term, list, 4, 0, &out));
    contains(out.data, "27");
    contains(out.data, "bf16");
    contains(out.data, "Total");
    brim_str_deinit(&out);
  }
}

static void test_nothing_ran(void **state) {
  (void)state;
  brim_result list[1];
  fill_one(&list[0], 0);
  list[0].failure = BRIM_FAILURE_UNSUPPORTED;
  list[0].samples_per_s = NAN;
  brim_term term = {0};
  brim_str out;
  brim_str_init(&out);
  const brim_recommendation none = picked(-1, -1, -1);
  assert_ok(brim_ui_bench(&term, list, 1, &none, &out));
  contains(out.data, "nothing to recommend");
  contains(out.data, "unsupported");
  brim_str_clear(&out);
  brim_ui_report_options how = {.picks = &none};
  assert_ok(brim_ui_report(&how, list, 1, &out));
  assert_ok(brim_ui_report(&how, NULL, 0, &out));
  brim_str_deinit(&out);
}

static void test_plan(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  brim_term term = {.width = 100};
  brim_str out;
  brim_str_init(&out);
  assert_ok(brim_ui_plan_sweep(&term, list, RESULTS, 0, &out));
  contains(out.data, "loader ring");
  contains(out.data, "fits");
  contains(out.data, "OOM (planned)");
  contains(out.data, "Same for all: Precision fp32, parameters 1.0 MiB\n");
  contains(out.data, "Total");
  contains(out.data, "1.1 MiB");
  contains(out.data, "% of free");
  assert_null(strstr(out.data, "Recomputed"));
  brim_str_clear(&out);
  // shares refer to a limit if there is one, blocks are counted, and a setting without a plan has its reason
  list[1].plan.segments = 8;
  list[1].plan.recomputed = 5;
  list[2].failure = BRIM_FAILURE_UNSUPPORTED;
  list[2].plan.row_count = 0;
  strcpy(list[2].message, "no fp8 here");
  assert_ok(brim_ui_plan_sweep(&term, list, RESULTS, 2 << 20, &out));
  contains(out.data, "% of limit");
  contains(out.data, "5 of 8");
  contains(out.data, "53.1");  // 1 MiB and 64 KiB of 2 MiB
  contains(out.data, "\n  unsupported: no fp8 here\n");
  contains(out.data, "Same for all: Precision fp32, parameters 1.0 MiB\n");
  assert_null(strstr(out.data, "9 GiB"));
  brim_str_clear(&out);
  // eight rows at 80 columns: the activations stay, and no line is wider
  static const char *const names[] = {"gradients",   "optimizer state", "activations", "workspace",
                                      "loader ring", "staging",         "metrics"};
  for (int i = 0; i < RESULTS; i++) {
    for (size_t k = 0; k < 7; k++) {
      list[i].plan.rows[k + 1] =
          (brim_plan_row){names[k], BRIM_PLACE_DEVICE, (uint64_t)(i + 1) << 22};
    }
    list[i].plan.row_count = 8;
  }
  term.width = 80;
  assert_ok(brim_ui_plan_sweep(&term, list, RESULTS, 0, &out));
  contains(out.data, "activations");
  contains(out.data, "columns left out");
  for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n")) {
    if (brim_utf8_width(line) > 80) fail_msg("%s", line);
  }
  brim_str_deinit(&out);
}

static void test_numbers(void **state) {
  (void)state;
  char text[32];
  static const struct {
    double value;
    const char *number, *ms;
  } cases[] = {
      {NAN, "-", "-"},          {0, "0.00", "0.00"},          {0.314, "0.31", "0.31"},
      {9.996, "10.0", "10.0"},  {27.54, "27.5", "27.5"},      {548.4, "548", "548"},
      {999.7, "1,000", "1000"}, {12345.2, "12,345", "12345"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_format_figure(cases[i].value, text);
    assert_string_equal(text, cases[i].number);
    brim_ui_ms(cases[i].value, text);
    assert_string_equal(text, cases[i].ms);
  }
}

static void test_out_of_memory(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  brim_term term = {.width = 90, .unicode = true, .colour = true};
  brim_ui_report_options how = {.command = "brim bench", .picks = &picks};
  for (uint64_t n = 1; n < 4000; n++) {
    brim_str out;
    brim_alloc_fail_nth(n, 1);
    brim_str_init(&out);
    brim_status status = brim_ui_bench(&term, list, RESULTS, &picks, &out);
    if (!status) status = brim_ui_plan_sweep(&term, list, RESULTS, 0, &out);
    if (!status) status = brim_ui_report(&how, list, RESULTS, &out);
    brim_alloc_fail_nth(0, 0);
    brim_str_deinit(&out);
    if (!status) {
      assert_true(n > 20);
      return;
    }
    assert_int_equal(status, BRIM_ENOMEM);
  }
  fail_msg("still failing");
}

// One of the plans that do not fit is explained, the others are counted; other failures stay in the list.
static void test_too_large_once(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  for (int i = 0; i < 3; i++) {
    list[i].failure = i == 1 ? BRIM_FAILURE_OOM_DEVICE : BRIM_FAILURE_OOM_PLANNED;
    list[i].samples_per_s = list[i].total_ms.median = NAN;
    snprintf(list[i].message, sizeof list[i].message, "needs %d TiB", i + 2);
  }
  brim_term term = {.width = 0};
  brim_str out;
  brim_str_init(&out);
  assert_ok(brim_ui_bench(&term, list, RESULTS, &picks, &out));
  contains(out.data, "OOM (planned): needs 2 TiB\n");
  contains(out.data, "OOM: needs 3 TiB\n");
  assert_null(strstr(out.data, "needs 4 TiB"));
  assert_null(strstr(out.data, "needs 9 GiB"));
  contains(out.data, "  3 settings do not fit in all; the table has their bytes\n");
  brim_str_deinit(&out);
}

// If the order is uncertain, both the short and the full form mention it beside the recommendation.
static void test_provisional(void **state) {
  (void)state;
  brim_result list[RESULTS];
  fill(list);
  brim_term term = {.width = 0};
  brim_recommendation d = {.highest = 5,
                           .efficient = 4,
                           .recommended = 5,
                           .provisional = true,
                           .now = 0,
                           .gain = {1.4, 1.3, 1.5},
                           .beside = -1,
                           .reason = "batch 1024 and 2048 cannot be told apart"};
  for (int full = 0; full < 2; full++) {
    brim_str out;
    brim_str_init(&out);
    assert_ok(full ? brim_ui_bench(&term, list, RESULTS, &d, &out)
                   : brim_ui_bench_short(&term, list, RESULTS, &d, &out));
    contains(out.data, "Recommended for training (provisional: another may be faster)\n");
    contains(out.data, "Now -> recommended: x1.40 [1.30, 1.50]\n");
    contains(out.data, "batch 1024 and 2048 cannot be told apart\n");
    // beside the recommendation, not after the findings
    const char *findings = strstr(out.data, "FINDINGS");
    if (full) assert_true(findings && strstr(out.data, "Why:") < findings);
    d.provisional = false;
    brim_str_clear(&out);
    assert_ok(full ? brim_ui_bench(&term, list, RESULTS, &d, &out)
                   : brim_ui_bench_short(&term, list, RESULTS, &d, &out));
    assert_null(strstr(out.data, "provisional"));
    d.provisional = true;
    brim_str_deinit(&out);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_summary),
      cmocka_unit_test(test_intervals),
      cmocka_unit_test(test_too_large_once),
      cmocka_unit_test(test_of_the_machine),
      cmocka_unit_test(test_widths),
      cmocka_unit_test(test_the_star_stays),
      cmocka_unit_test(test_doubts_come_first),
      cmocka_unit_test(test_ceilings_unit),
      cmocka_unit_test(test_narrow_summary),
      cmocka_unit_test(test_nothing_ran),
      cmocka_unit_test(test_plan),
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_phases_add_up),
      cmocka_unit_test(test_nothing_recommended),
      cmocka_unit_test(test_both_findings),
      cmocka_unit_test(test_swept_knobs_stay),
      cmocka_unit_test(test_provisional),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
