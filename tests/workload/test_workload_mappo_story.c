// The report of a sweep of mappo from fixed figures: findings with prices and predictions, the tables of a sweep and of
// two configs, in both languages.
#include <math.h>

#include "record/record_findings.h"
#include "test.h"
#include "ui/bench/ui_bench.h"
#include "words.h"
#include "workload/mappo/mappo_int.h"

static const brim_term plain = {.width = 80};

static void knob(brim_result *r, const char *name, const char *value, double number) {
  brim_result_knob *k = &r->knobs[r->knob_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  snprintf(k->value, sizeof k->value, "%s", value);
  k->number = number;
}

static void phase(brim_result *r, brim_phase which, double ms, double busy) {
  r->phase_used[which] = true;
  r->phase_ms[which].median = r->phase_ms[which].mean = ms;
  r->phase_busy_ms[which] = busy;
}

// A setting of uav: 10 agents, 2000 environment steps per iteration, episodes of `length` steps.
static brim_result setting(const char *envs, const char *batch, const char *where, double total,
                           double length) {
  brim_result r;
  brim_result_init(&r);
  snprintf(r.workload, sizeof r.workload, "mappo");
  snprintf(r.backend, sizeof r.backend, "cuda");
  snprintf(r.device_id, sizeof r.device_id, "GPU-1");
  r.knob_set = brim_workload_find("mappo")->knob_set;
  knob(&r, "num_envs", envs, strtod(envs, NULL));
  knob(&r, "episodes_per_batch", "10", 10);
  knob(&r, "batch_size", batch, strtod(batch, NULL));
  knob(&r, "precision", "fp32", (double)NAN);
  knob(&r, "collect_on", where, (double)NAN);
  r.cores = 8;
  r.plan.samples_per_step = 20000;
  r.real_bytes = 1024.0 * 1024 * 1024;
  r.total_ms.median = r.total_ms.mean = total;
  r.samples_per_s = 20000 / total * 1e3;
  r.rates[BRIM_MAPPO_RATE_COLLECTED] = (brim_result_rate){"agent-steps/s collected", 1};
  r.rates[BRIM_MAPPO_RATE_TRAINED] = (brim_result_rate){"agent-samples/s trained", 10};
  r.rates[BRIM_MAPPO_RATE_STEPPED] = (brim_result_rate){"environment steps/s", 0.1};
  r.rates[BRIM_MAPPO_RATE_EPISODES] = (brim_result_rate){"full-length episodes/s", 0.1 / length};
  r.rate_count = BRIM_MAPPO_RATES;
  return r;
}

// An iteration of 100 ms: 70 environment, 10 action, 10 transfers, 10 update.
static brim_result slow(void) {
  brim_result r = setting("1", "512", "cpu", 100, 200);
  phase(&r, BRIM_PHASE_ENV, 70, 0);
  phase(&r, BRIM_PHASE_ACT, 10, 3);
  phase(&r, BRIM_PHASE_H2D, 10, 0);
  phase(&r, BRIM_PHASE_UPDATE, 10, 9);
  r.gpu_percent = 12;
  r.sm_percent = 2;
  r.real_bytes = 512.0 * 1024 * 1024;
  return r;
}

// Phases as moved to the GPU: environment 40 ms and actor 20 ms, for as many steps.
static void probe(brim_result *r) {
  r->phase_moved_ms[BRIM_PHASE_ENV] = 40;
  r->phase_moved_ms[BRIM_PHASE_ACT] = 20;
  r->phase_moved_ms[BRIM_PHASE_H2D] = 0;
}

static void find(brim_result *results, size_t count) {
  const brim_findings v = {&results[0], results, count, false};
  brim_workload_find("mappo")->findings->find(&v);
}

static void price(const brim_result *r, size_t at, const char *code, double ms, double predicted) {
  assert_true(at < r->finding_count);
  const brim_finding *f = &r->findings[at];
  assert_string_equal(f->code, code);
  assert_true(f->text[0] && f->remedy[0]);
  if (!(fabs(f->cost_ms - ms) < 1e-9)) fail_msg("%s: %g ms, not %g", code, f->cost_ms, ms);
  if (isnan(predicted) ? !isnan(f->predicted_ms) : !(fabs(f->predicted_ms - predicted) < 1e-9)) {
    fail_msg("%s: predicted %g ms, not %g", code, f->predicted_ms, predicted);
  }
}

static void has(const char *text, const char *words) {
  if (!strstr(text, words)) fail_msg("no '%s' in\n%s", words, text);
}

// A row of a table: its cells with one space between them.
static void has_row(const char *text, const char *cells) {
  char all[8192];
  size_t n = 0;
  for (const char *c = text; *c && n + 1 < sizeof all; c++) {
    const bool space = *c == ' ' && (c[1] == ' ' || c[1] == '\n');
    if (!space) all[n++] = *c;
  }
  all[n] = '\0';
  const char *at = strstr(all, cells);
  if (!at || (at > all && at[-1] != '\n') || at[strlen(cells)] != '\n') {
    fail_msg("no row '%s' in\n%s", cells, text);
  }
}

static void has_not(const char *text, const char *words) {
  if (strstr(text, words)) fail_msg("'%s' in\n%s", words, text);
}

//---------------------------------- findings ----------------------------------

// 2000 environment steps give minibatches of 50 instead of the requested 51.2; 8 steps of 256 environments, or 2 of
// 1024, give 64.
static const double update_gain = 10 - 10 * 50.0 / 64;

// Findings in the guide's order, each with its price. Without a probe: simulation and copies go, and with 256
// environments the actor takes a 256th.
static void test_findings(void **state) {
  (void)state;
  brim_result r = slow();
  find(&r, 1);
  assert_int_equal(r.finding_count, 4);
  const double gain = 90 - 10.0 / 256 + update_gain;
  price(&r, 0, "env_on_cpu", gain, gain);
  const double batch = 10 * (1 - 500.0 / 8192);
  price(&r, 1, "small_minibatch", batch, batch);
  has(english(r.findings[1].text), "a minibatch has 500 agent samples");
  price(&r, 2, "step_transfers", 10, (double)NAN);
  price(&r, 3, "sequential_episodes", 17.5, 17.5);
  has(english(r.findings[0].text), "70.00 ms of 100.00 ms (70 %)");
  has(english(r.findings[0].remedy), "collect_on cpu -> gpu: predicted 5.00 times as fast;");
  has(english(r.findings[0].remedy), "with num_envs 256: predicted 12.74 times as fast.");
  has(english(r.findings[0].remedy), "off the measured phases");
  brim_result_deinit(&r);
}

// A probe of the GPU: it takes 60 ms for a rollout of one environment, 60
// 256 for 256 of them.
static void test_probe(void **state) {
  (void)state;
  brim_result r = slow();
  probe(&r);
  find(&r, 1);
  const double gain = 90 - 60.0 / 256 + update_gain;
  price(&r, 0, "env_on_cpu", gain, gain);
  has(english(r.findings[0].remedy), "predicted 1.43 times as fast;");
  has(english(r.findings[0].remedy), "with num_envs 256: predicted 12.43 times as fast.");
  has(english(r.findings[0].remedy), "a probe of a few steps on the GPU");
  brim_result_deinit(&r);
}

// A GPU that makes the rollout of one environment slower is not advised; nor are more environments than fit.
static void test_slower_there(void **state) {
  (void)state;
  brim_result r = slow();
  probe(&r);
  r.phase_moved_ms[BRIM_PHASE_ENV] = 200;
  find(&r, 1);
  has(english(r.findings[0].remedy), "predicted 0.43 times as fast;");
  r.finding_count = 0;
  r.plan.samples_per_step = 1000;  // 100 environment steps
  find(&r, 1);
  assert_true(r.finding_count > 0);
  assert_string_equal(r.findings[0].code, "small_minibatch");
  brim_result_deinit(&r);
}

// If the sweep measured the remedy, its price is the measured gain, with the prediction beside it.
static void test_measured(void **state) {
  (void)state;
  brim_result r[4] = {slow(), setting("1", "512", "gpu", 80, 200),
                      setting("1024", "512", "gpu", 25, 200),
                      setting("1024", "4096", "gpu", 5, 200)};
  probe(&r[0]);
  find(r, 4);
  price(&r[0], 0, "env_on_cpu", 75, 90 - 60.0 / 1024 + update_gain);
  has(english(r[0].findings[0].remedy), "predicted 1.43 times as fast, measured 1.25;");
  has(english(r[0].findings[0].remedy),
      "with num_envs 1024: predicted 12.70 times as fast, measured 4.00.");
  for (int i = 0; i < 4; i++) brim_result_deinit(&r[i]);
}

static brim_result without_gpu(void) {
  brim_result r = slow();
  snprintf(r.backend, sizeof r.backend, "cpu");
  r.device_id[0] = '\0';
  r.phase_used[BRIM_PHASE_H2D] = false;
  r.phase_ms[BRIM_PHASE_H2D].median = r.phase_ms[BRIM_PHASE_H2D].mean = 0;
  r.total_ms.median = r.total_ms.mean = 90;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) r.phase_busy_ms[p] = (double)NAN;
  r.gpu_percent = r.sm_percent = r.real_bytes = (double)NAN;
  return r;
}

// A machine without a GPU gets no advice about one.
static void test_without_gpu(void **state) {
  (void)state;
  brim_result r = without_gpu();
  find(&r, 1);
  assert_int_equal(r.finding_count, 1);
  price(&r, 0, "sequential_episodes", 8.75, 8.75);
  has_not(english(r.findings[0].text), "GPU");
  has_not(english(r.findings[0].remedy), "gpu");
  brim_result_deinit(&r);
}

//---------------------------------- tables ----------------------------------

static void draw(const brim_result *results, size_t count, brim_str *out) {
  const brim_setting own = {{1, 10, 512, BRIM_PRECISION_FP32, BRIM_MAPPO_ON_CPU, 1}};
  brim_view views[BRIM_VIEWS];
  const brim_work_views_table *table = brim_workload_find("mappo")->views;
  const size_t n = table->make(results, count, &own, true, views);
  assert_int_equal(n, 2);
  assert_ok(brim_ui_workload_tables(&plain, views, n, out));
}

// No line is wider than the terminal.
static void fits(const char *text) {
  for (const char *line = text; *line;) {
    const size_t length = strcspn(line, "\n");
    char copy[512];
    snprintf(copy, sizeof copy, "%.*s", (int)length, line);
    if (brim_utf8_width(copy) > 80) fail_msg("wider than 80 columns: %s", copy);
    line += length + (line[length] == '\n');
  }
}

// Long times in milliseconds stay plain numbers.
static void test_long(void **state) {
  (void)state;
  brim_result r = setting("1", "512", "cpu", 30440, 200);
  phase(&r, BRIM_PHASE_ENV, 2710, 0);
  phase(&r, BRIM_PHASE_UPDATE, 27730, 0);
  brim_str out;
  brim_str_init(&out);
  draw(&r, 1, &out);
  has_row(out.data, "environment simulation 2710 9 % 0 %");
  has_row(out.data, "iteration 30440 100 % 0 %");
  has_row(out.data, "time per agent-step 1522 us");
  brim_str_deinit(&out);
}

static void test_sweep(void **state) {
  (void)state;
  brim_result r[3] = {slow(), setting("1", "512", "gpu", 80, 200),
                      setting("1024", "4096", "gpu", 5, 200)};
  r[1].gpu_percent = 98;
  brim_str out;
  brim_str_init(&out);
  draw(r, 3, &out);
  has_row(out.data, "environment simulation 70 70 % 0 %");
  has_row(out.data, "action selection 10 10 % 30 %");
  has_row(out.data, "transfers 10 10 % 0 %");
  has_row(out.data, "network update 10 10 % 90 %");
  has_row(out.data, "iteration 100 100 % 12 %");
  has(out.data, "Over the iteration 2 %");
  has_row(out.data, " Config collect_on gpu Fastest Change");
  has_row(out.data, "GPU busy 12 % 98 % -");
  has_row(out.data, "time per episode 10 ms 8 ms 500 us x0.05");
  has_row(out.data, "time for 10,000 episodes 1 min 40 s 1 min 20 s 5 s x0.05");
  has_row(out.data, "memory 512.0 MiB 1.0 GiB 1.0 GiB x2.00");
  has_row(out.data, "time per agent-step 5 us 4 us 0.25 us x0.05");
  has_row(out.data, "agent-steps/s collected 200,000 250,000 4.00 M x20.00");
  has_row(out.data, "agent-samples/s trained 2.00 M 2.50 M 40.00 M x20.00");
  has_row(out.data, "environment steps/s 20,000 25,000 400,000 x20.00");
  has(out.data, "Fastest: num_envs 1024, batch_size 4096, collect_on gpu.");
  has_not(out.data, "nan");
  fits(out.data);
  assert_true(brim_msg_set_language("ko"));
  brim_str_clear(&out);
  draw(r, 3, &out);
  has(out.data, "환경 시뮬레이션");
  has(out.data, "에피소드 10,000개 시간");
  has(out.data, "에이전트 스텝당 시간");
  has_not(out.data, "time per");
  fits(out.data);
  find(r, 3);
  brim_str_clear(&out);
  brim_words_read(r[0].findings[0].remedy, &out);
  has(out.data, "예측");
  assert_true(brim_msg_set_language("en"));
  brim_str_deinit(&out);
  for (int i = 0; i < 3; i++) brim_result_deinit(&r[i]);
}

// Unknown values are dashes; a machine without a GPU has no column for it.
static void test_unknown(void **state) {
  (void)state;
  brim_result r = slow();
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) r.phase_busy_ms[p] = (double)NAN;
  brim_str out;
  brim_str_init(&out);
  draw(&r, 1, &out);
  has_row(out.data, "environment simulation 70 70 % -");
  has(out.data, "RATES");
  has_not(out.data, "Change");
  brim_str_clear(&out);
  brim_result_deinit(&r);
  r = without_gpu();
  draw(&r, 1, &out);
  has_not(out.data, "GPU");
  has_row(out.data, "environment simulation 70 78 %");
  brim_str_deinit(&out);
  brim_result_deinit(&r);
}

//---------------------------------- two configs ----------------------------------

static void ask(brim_result *r, const char *config) {
  json_decref(r->config);
  assert_ok(brim_json_parse(config, strlen(config), "config", &r->config));
}

// Each config's own setting, also if the number of environments follows from workers.
static void test_two_configs(void **state) {
  (void)state;
  static const char before[] =
      "{\"mappo\": {\"num_envs\": 1, \"episodes_per_batch\": 10, \"collect_on\": \"cpu\"}, "
      "\"data\": {\"batch_size\": 512}, \"training\": {\"precision\": \"fp32\"}}";
  static const char after[] =
      "{\"mappo\": {\"num_envs\": null, \"episodes_per_worker\": 2, \"episodes_per_batch\": 10, "
      "\"collect_on\": \"cpu\"}, \"data\": {\"batch_size\": 512, \"num_workers\": 8}, "
      "\"training\": {\"precision\": \"auto\"}}";
  brim_result a[2] = {slow(), setting("1", "4096", "cpu", 50, 200)};
  brim_result b[2] = {setting("1", "512", "cpu", 99, 150), setting("16", "512", "cpu", 40, 150)};
  for (int i = 0; i < 2; i++) {
    ask(&a[i], before);
    ask(&b[i], after);
  }
  phase(&b[1], BRIM_PHASE_ENV, 20, 0);
  phase(&b[1], BRIM_PHASE_UPDATE, 20, 20);
  const brim_work_views_table *table = brim_workload_find("mappo")->views;
  brim_view views[BRIM_VIEWS];
  brim_str out;
  brim_str_init(&out);
  assert_int_equal(table->compare(a, 2, b, 2, views), 2);
  assert_ok(brim_ui_workload_tables(&plain, views, 2, &out));
  has(out.data, "A (ms)");
  has_row(out.data, "environment simulation 70 70 % 0 % 20 50 % 0 %");
  has_row(out.data, "action selection 10 10 % 30 % - - -");
  has_row(out.data, "time per episode 10 ms 3 ms x0.30");
  has_row(out.data, "time per agent-step 5 us 2 us x0.40");
  has(out.data, "Episodes have 200 steps in A and 150 in B");
  fits(out.data);
  // a file without the config's own setting
  assert_int_equal(table->compare(a, 2, b, 1, views), 0);
  brim_str_deinit(&out);
  for (int i = 0; i < 2; i++) {
    brim_result_deinit(&a[i]);
    brim_result_deinit(&b[i]);
  }
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_findings),     cmocka_unit_test(test_probe),
      cmocka_unit_test(test_slower_there), cmocka_unit_test(test_measured),
      cmocka_unit_test(test_without_gpu),  cmocka_unit_test(test_long),
      cmocka_unit_test(test_sweep),        cmocka_unit_test(test_unknown),
      cmocka_unit_test(test_two_configs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
