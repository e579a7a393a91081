// bench's report of a policy search: the cards as the workload makes them, before and after as measured.
#include <math.h>

#include "test.h"
#include "ui/bench/ui_bench_int.h"
#include "workload/workload.h"

static void add_knob(brim_result *r, const char *name, double number) {
  brim_result_knob *k = &r->knobs[r->knob_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  snprintf(k->value, sizeof k->value, "%.0f", number);
  k->number = number;
}

static void fill(brim_result *r, double envs, double dirs, double chunk, double rate) {
  brim_result_init(r);
  r->knob_set = brim_workload_find("ars")->knob_set;
  strcpy(r->workload, "ars");
  strcpy(r->device, "NVIDIA H200");
  strcpy(r->device_id, "GPU-1");
  add_knob(r, "num_envs", envs);
  add_knob(r, "num_dirs", dirs);
  add_knob(r, "dir_chunk", chunk);
  r->phase_used[BRIM_PHASE_ENV] = r->phase_used[BRIM_PHASE_UPDATE] = true;
  r->phase_ms[BRIM_PHASE_ENV].median = 9;
  r->total_ms.median = 10;
  r->samples_per_s = rate;
  r->free_bytes = 1e9;
  r->stable = true;
  r->gpu_percent = 97;
}

static void has(const char *text, const char *words) {
  if (!strstr(text, words)) fail_msg("no '%s' in\n%s", words, text);
}

// Shows the tables as bench does: the workload of these results makes them.
static brim_status show(const brim_term *term, const brim_result *r, size_t count, bool whole,
                        const brim_setting *own, brim_str *out) {
  const brim_workload_table *table = brim_workload_find(r[0].workload);
  brim_view views[BRIM_VIEWS];
  if (!table->views) return BRIM_OK;
  return brim_ui_workload_tables(term, views, table->views->make(r, count, own, whole, views), out);
}

static const brim_recommendation third = {
    .highest = 2, .efficient = 2, .recommended = 2, .now = -1, .beside = -1};

static void test_search(void **state) {
  (void)state;
  brim_result r[3];
  fill(&r[0], 128, 16, 8, 5e6);
  fill(&r[1], 128, 16, 16, 6e6);
  fill(&r[2], 1024, 64, 64, 1e8);
  const brim_term term = {.width = 160};
  brim_str out;
  brim_str_init(&out);
  assert_ok(brim_ui_bench(&term, r, 3, &third, &out));
  has(out.data, "Env steps/s");
  has(out.data, "env steps/s");
  has(out.data, "Chunk");
  assert_null(strstr(out.data, "Samples/s"));
  brim_str_clear(&out);
  assert_ok(show(&term, r, 3, true, NULL, &out));
  has(out.data, "6,912");
  has(out.data, "19.5");
  has(out.data, "1,555-2,039 GB/s");
  has(out.data, "H200 (this card)");
  has(out.data, "16,896");
  has(out.data, "128 x 16 = 2,048");
  has(out.data, "1024 x 64 = 65,536");
  has(out.data, "speedup 20.00x");
  brim_str_clear(&out);
  assert_ok(show(&term, r, 3, false, NULL, &out));
  assert_null(strstr(out.data, "6,912"));
  // a single setting has nothing to compare with
  brim_str_clear(&out);
  assert_ok(show(&term, r, 1, false, NULL, &out));
  assert_null(strstr(out.data, "speedup"));
  strcpy(r[0].workload, "supervised");
  brim_str_clear(&out);
  assert_ok(show(&term, r, 3, true, NULL, &out));
  assert_int_equal(out.len, 0);
  brim_str_deinit(&out);
}

// A CPU has no card to compare and no SMs.
static void test_no_cards_on_a_cpu(void **state) {
  (void)state;
  brim_result r[2];
  fill(&r[0], 16, 16, 8, 1e6);
  fill(&r[1], 32, 64, 64, 3e6);
  for (int i = 0; i < 2; i++) {
    strcpy(r[i].device, "Neoverse-V1");
    r[i].device_id[0] = '\0';
  }
  const brim_term term = {.width = 160};
  brim_str out;
  brim_str_init(&out);
  assert_ok(show(&term, r, 2, true, NULL, &out));
  static const char *const gpu[] = {"A100", "RTX", "THE CARD", "CUDA", "SMs", "GPU"};
  for (size_t i = 0; i < sizeof gpu / sizeof *gpu; i++) {
    if (strstr(out.data, gpu[i])) fail_msg("'%s' in\n%s", gpu[i], out.data);
  }
  has(out.data, "CPU used");
  has(out.data, "speedup 3.00x\n");
  brim_str_deinit(&out);
}

// "Before" is the config's setting. If that was not measured, or is also "after", it is the smallest one.
static void test_own(void **state) {
  (void)state;
  const brim_setting own = {{32, 64, 64}}, last = {{1024, 64, 64}}, other = {{64, 64, 64}};
  brim_result r[3];
  fill(&r[0], 16, 64, 8, 1e6);
  fill(&r[1], 32, 64, 64, 2e7);
  fill(&r[2], 1024, 64, 64, 1e8);
  const brim_term term = {.width = 160};
  brim_str out;
  brim_str_init(&out);
  assert_ok(show(&term, r, 3, false, &own, &out));
  has(out.data, "before");
  has(out.data, "32 x 64 = 2,048");
  has(out.data, "1024 x 64 = 65,536");
  has(out.data, "speedup 5.00x");
  assert_null(strstr(out.data, "smallest tried"));
  assert_null(strstr(out.data, "16 x 64"));
  const brim_setting *const none[] = {&last, &other, NULL};
  for (int i = 0; i < 3; i++) {
    brim_str_clear(&out);
    assert_ok(show(&term, r, 3, false, none[i], &out));
    has(out.data, "smallest tried");
    has(out.data, "16 x 64 = 1,024");
    has(out.data, "speedup 100.00x");
  }
  // a setting that failed does not count as measured
  r[1].failure = BRIM_FAILURE_OTHER;
  brim_str_clear(&out);
  assert_ok(show(&term, r, 3, false, &own, &out));
  has(out.data, "smallest tried");
  brim_str_deinit(&out);
}

static void test_cards(void **state) {
  (void)state;
  assert_int_equal(brim_gpu_facts_find("NVIDIA GeForce RTX 3060 Laptop GPU")->cores, 3840);
  assert_int_equal(brim_gpu_facts_find("NVIDIA GeForce RTX 3060")->cores, 3584);
  assert_int_equal(brim_gpu_facts_find("NVIDIA A100-SXM4-80GB")->cores, 6912);
  assert_int_equal(brim_gpu_facts_find("NVIDIA H100 80GB HBM3")->cores, 16896);
  assert_null(brim_gpu_facts_find("Neoverse-V1"));
}

// A figure with its deviation and a baseline's, and a figure derived from it.
static void test_progress(void **state) {
  (void)state;
  enum { LINE = BRIM_METRIC_AT(BRIM_METRIC_LINE_PROGRESS) };
  static const brim_metric rows[] = {
      {.key = "return",
       .label = "return",
       .train_label = "directions",
       .lines = LINE,
       .beside = LINE,
       .rank = 1},
      {.key = "spread", .label = "", .digits = 3, .join = BRIM_METRIC_SPREAD, .lines = LINE},
      {.key = "falls",
       .label = "falls",
       .format = BRIM_METRIC_PERCENT,
       .join = BRIM_METRIC_COMMA,
       .lines = LINE}};
  static const brim_metric_set metrics = {
      .rows = rows, .count = 3, .baseline_short = "of the zero policy"};
  double values[] = {812.25, 40.5, 0.125}, baseline[] = {301, (double)NAN, (double)NAN};
  brim_progress p = {.title = "epoch 1/3",
                     .done = 1,
                     .total = 10,
                     .rate = 1e6,
                     .unit = "env steps",
                     .eta_s = 5,
                     .metrics = &metrics,
                     .values = values,
                     .baseline = baseline};
  const brim_term term = {.width = 200};
  brim_str out;
  brim_str_init(&out);
  brim_ui_progress_line(&p, &term, &out);
  has(out.data, "directions 812.3 +- 40.5 (of the zero policy 301)");
  has(out.data, "falls 12.5 %");
  has(out.data, "env steps/s");
  values[0] = values[2] = baseline[0] = (double)NAN;
  brim_str_clear(&out);
  brim_ui_progress_line(&p, &term, &out);
  assert_null(strstr(out.data, "return"));
  assert_null(strstr(out.data, "falls"));
  brim_str_deinit(&out);
}

// The page has the workload's tables too, and the findings about the config's own setting.
static void test_page(void **state) {
  (void)state;
  brim_result r[3];
  fill(&r[0], 128, 16, 8, 5e6);
  fill(&r[1], 128, 16, 16, 6e6);
  fill(&r[2], 1024, 64, 64, 1e8);
  r[0].finding_count = 1;
  r[0].findings[0] = (brim_finding){.code = "a", .cost_ms = 2, .text = "a <cause>"};
  const brim_setting own = {0};
  brim_view views[BRIM_VIEWS];
  const brim_workload_table *table = brim_workload_find("ars");
  brim_ui_report_options how = {.picks = &third, .views = views, .own = &r[0]};
  how.view_count = table->views->make(r, 3, &own, true, views);
  assert_true(how.view_count > 0);
  snprintf(views[0].cells[0][0], BRIM_VIEW_CELL, "a <cell>");
  brim_str page;
  brim_str_init(&page);
  assert_ok(brim_ui_report(&how, r, 3, &page));
  has(page.data, "<section id=\"tables\">");
  has(page.data, "<a href=\"#tables\">");
  has(page.data, views[0].title);
  has(page.data, "a &lt;cell&gt;");
  has(page.data, "<h3>The config&#39;s own setting</h3>");
  has(page.data, "a &lt;cause&gt;");
  brim_str_clear(&page);
  how.view_count = 0;
  how.own = &r[2];
  assert_ok(brim_ui_report(&how, r, 3, &page));
  assert_null(strstr(page.data, "id=\"tables\""));
  assert_null(strstr(page.data, "own setting"));
  brim_str_deinit(&page);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_search),
      cmocka_unit_test(test_page),
      cmocka_unit_test(test_no_cards_on_a_cpu),
      cmocka_unit_test(test_own),
      cmocka_unit_test(test_cards),
      cmocka_unit_test(test_progress),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
