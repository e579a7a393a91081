// Rules over made-up records: planted faults are named first with the price that removing them is worth,
// and a healthy setting has nothing but notes.
#include <math.h>

#include "record/record_findings.h"
#include "tune/tune_int.h"
#include "words.h"
#include "workload/fixture.h"

static bool near(double a, double b) { return fabs(a - b) < 1e-9 * (1 + fabs(b)); }

static void set_text(brim_result *r, const char *name, const char *value) {
  size_t i = 0;
  while (i < r->knob_count && strcmp(r->knobs[i].name, name) != 0) i++;
  if (i == r->knob_count) r->knob_count++;
  snprintf(r->knobs[i].name, sizeof r->knobs[i].name, "%s", name);
  snprintf(r->knobs[i].value, sizeof r->knobs[i].value, "%s", value);
  char *end;
  double number = strtod(value, &end);
  r->knobs[i].number = *end || end == value ? (double)NAN : number;
}

// A step of 10 ms with 9 ms of computing, on a GPU that is well used.
static brim_result healthy(void) {
  brim_result r;
  brim_result_init(&r);
  r.knob_set = brim_workload_find("supervised")->knob_set;
  snprintf(r.workload, sizeof r.workload, "supervised");
  snprintf(r.backend, sizeof r.backend, "cuda");
  snprintf(r.device_id, sizeof r.device_id, "GPU-1");
  set_text(&r, "batch_size", "64");
  set_text(&r, "num_workers", "4");
  set_text(&r, "precision", "bf16");
  set_text(&r, "pin_memory", "true");
  r.total_ms.median = r.total_ms.mean = 10;
  r.samples_per_s = 6400;
  r.compute_samples_per_s = 6500;
  r.data_samples_per_s = 12000;
  r.phase_ms[BRIM_PHASE_FORWARD].median = 3;
  r.phase_ms[BRIM_PHASE_BACKWARD].median = 6.9;
  r.gpu_percent = 99;
  r.sm_percent = 92;
  r.free_bytes = 80e9;
  r.plan.bytes[BRIM_PLACE_DEVICE] = 1u << 30;
  r.cores = 16;
  r.stable = true;
  return r;
}

static brim_result on_cpu(void) {
  brim_result r = healthy();
  snprintf(r.backend, sizeof r.backend, "cpu");
  r.device_id[0] = '\0';
  r.gpu_percent = r.sm_percent = (double)NAN;
  r.cores = r.threads = 2;
  return r;
}

static void test_healthy(void **state) {
  (void)state;
  brim_result r = healthy();
  bool loading;
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 0);
  assert_false(brim_result_worth_fixing(&r));
  assert_true(near(brim_result_ceiling_share(&r, &loading), 6400.0 / 6500));
  assert_false(loading);
  r.data_samples_per_s = 6450;
  assert_true(near(brim_result_ceiling_share(&r, &loading), 6400.0 / 6450));
  assert_true(loading);
  r.data_samples_per_s = (double)NAN;
  assert_true(isnan(brim_result_ceiling_share(&r, &loading)));
  // notes have no price: a power cap, much memory, unsteady times
  snprintf(r.throttle, sizeof r.throttle, "power cap");
  r.clock_mhz = 1500;
  r.clock_max_mhz = 1980;
  r.plan.bytes[BRIM_PLACE_DEVICE] = 70ull << 30;
  r.stable = false;
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 3);
  for (size_t i = 0; i < r.finding_count; i++) {
    assert_true(r.findings[i].note && isnan(r.findings[i].cost_ms));
  }
  assert_false(brim_result_worth_fixing(&r));
  r.clock_mhz = 1980;  // the cap was reached, and the clock did not fall
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 2);
  for (size_t i = 0; i < 2; i++) assert_string_not_equal(r.findings[i].code, "power_cap");
  // products: 3.2e12 FLOPs in 10 ms of 650 TFLOP/s
  const char *precision;
  r.ceilings.gemm_bf16_flops = 6.4e14;
  r.plan.flops_per_step = 3.2e12;
  assert_true(near(brim_result_product_share(&r, &precision), 0.5));
  assert_string_equal(precision, "bf16");
  r.plan.flops_per_step = 9.6e12;  // 150 %: the ceiling is wrong
  assert_true(isnan(brim_result_product_share(&r, &precision)));
  r.plan.flops_per_step = 3.2e12;
  r.ceilings.load = 0.5;  // measured on a busy machine
  assert_true(isnan(brim_result_product_share(&r, &precision)));
}

static const brim_finding *below_ceiling(const brim_result *r) {
  for (size_t i = 0; i < r->finding_count; i++) {
    if (strcmp(r->findings[i].code, "below_ceiling") == 0) return &r->findings[i];
  }
  return NULL;
}

// A step at 0.3 % of the machine's limit is not "nothing worth fixing": the finding names what was tried.
static void test_below_ceiling(void **state) {
  (void)state;
  brim_result list[2] = {healthy(), healthy()};
  brim_result *r = &list[0];
  r->ceilings.gemm_bf16_flops = 6.4e14;
  r->plan.flops_per_step = 0.003 * 6.4e14 * r->total_ms.median * 1e-3;
  brim_diagnose(list, 1, 0);
  assert_non_null(below_ceiling(r));
  assert_true(brim_result_worth_fixing(r));
  assert_non_null(strstr(english(below_ceiling(r)->text), "0.3 %"));
  assert_non_null(strstr(english(below_ceiling(r)->remedy), "batch_size"));  // not tried
  // Another batch was measured beside it.
  for (size_t k = 0; k < list[1].knob_count; k++) {
    if (strcmp(list[1].knobs[k].name, "batch_size") == 0) strcpy(list[1].knobs[k].value, "4096");
  }
  brim_diagnose(list, 2, 0);
  assert_non_null(strstr(english(below_ceiling(r)->text), "batch_size"));
  assert_null(strstr(english(below_ceiling(r)->remedy), "batch_size"));
  // Memory is near its ceiling: matrix products are the wrong measure for that step.
  r->ceilings.copy_bytes_per_s = 1e12;
  r->plan.bytes_per_step = 0.8 * 1e12 * r->total_ms.median * 1e-3;
  brim_diagnose(list, 2, 0);
  assert_null(below_ceiling(r));
  // Nothing is known without a ceiling.
  r->ceilings.copy_bytes_per_s = r->ceilings.gemm_bf16_flops = NAN;
  brim_diagnose(list, 2, 0);
  assert_null(below_ceiling(r));
}

// Findings by price, the highest first; then those without a price; notes last. Equal ones keep their order.
static void test_order(void **state) {
  (void)state;
  brim_result r = healthy();
  const struct {
    const char *code;
    double cost;
    bool note;
  } rows[] = {{"n", 99, true}, {"b", 2, false}, {"u", (double)NAN, false},
              {"a", 5, false}, {"c", 2, false}, {"v", (double)NAN, false},
              {"m", 0.5, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_finding *f = brim_finding_add(&r, rows[i].code, rows[i].cost);
    f->note = rows[i].note;
  }
  brim_findings_sort(&r);
  char order[16] = "";
  for (size_t i = 0; i < r.finding_count; i++) strcat(order, r.findings[i].code);
  assert_string_equal(order, "abcuvnm");
}

//---------------------------------- the machine ----------------------------------

static void test_quota(void **state) {
  (void)state;
  brim_result r = on_cpu();
  r.cpu_percent = 100;
  r.quota_cpus = 1.5;
  r.quota_cores = 2;
  // two threads share 1.5 CPUs: they are held back a quarter of the time
  r.quota_cpu_ms = 15;
  r.quota_throttled_ms = 5;
  brim_diagnose(&r, 1, 0);
  assert_string_equal(r.findings[0].code, "cpu_quota");
  assert_true(near(r.findings[0].cost_ms, 2.5));
  assert_non_null(strstr(english(r.findings[0].text), "1.5 of 2 cores"));
  // the quota leaves one thread; without it there would be two
  r.threads = 1;
  r.quota_cpus = 1;
  r.quota_cpu_ms = 10;
  r.quota_throttled_ms = 0;
  brim_diagnose(&r, 1, 0);
  assert_string_equal(r.findings[0].code, "cpu_quota");
  assert_true(near(r.findings[0].cost_ms, 5));
  // a quota costs nothing while cores are idle
  r.cpu_percent = 20;
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 0);
  // no quota, or a quota of all cores
  r.cpu_percent = 100;
  r.quota_cpus = 2;
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 0);
  r.quota_cpus = (double)NAN;
  r.quota_throttled_ms = 50;
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 0);
  // beside a GPU only waiting for the host counts
  brim_result g = healthy();
  g.quota_cpus = 4;
  g.quota_cores = 16;
  g.quota_cpu_ms = g.quota_throttled_ms = 20;
  g.phase_ms[BRIM_PHASE_IO].median = 0.8;
  brim_diagnose(&g, 1, 0);
  assert_string_equal(g.findings[0].code, "cpu_quota");
  assert_true(near(g.findings[0].cost_ms, 0.4));
}

static void test_checkpoints(void **state) {
  (void)state;
  brim_result r = healthy();
  r.checkpoint_ms = 30;
  r.checkpoint_steps = 1;
  brim_diagnose(&r, 1, 0);
  const brim_finding *f = &r.findings[0];
  assert_string_equal(f->code, "checkpoint");
  assert_string_equal(f->key, "checkpoint.interval");
  assert_non_null(strstr(english(f->text), "after its 10.00 ms, every step waits 30.00 ms"));
  assert_string_equal(f->value, "500");  // 30 ms in 300 steps are a hundredth; rounded up
  assert_true(near(f->cost_ms, 30 - 30 / 500.0));
  r.checkpoint_steps = 10;
  brim_diagnose(&r, 1, 0);
  assert_non_null(strstr(english(r.findings[0].remedy), "10 -> 500"));
  assert_true(near(r.findings[0].cost_ms, 3 - 30 / 500.0));
  r.checkpoint_steps = 1000;  // 0.3 % of the time
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 0);
}

static void test_sharing(void **state) {
  (void)state;
  brim_result r = healthy();
  r.shared_percent = 48;
  snprintf(r.shared_with, sizeof r.shared_with, "pid 7 python (alice)");
  brim_diagnose(&r, 1, 0);
  assert_string_equal(r.findings[0].code, "shared_gpu");
  assert_true(near(r.findings[0].cost_ms, 4.8));
  assert_non_null(strstr(english(r.findings[0].text), "pid 7 python (alice)"));
  r.shared_with[0] = '\0';  // in another container
  brim_diagnose(&r, 1, 0);
  assert_non_null(strstr(english(r.findings[0].text), "not visible"));
  r.shared_percent = 1;
  brim_diagnose(&r, 1, 0);
  assert_int_equal(r.finding_count, 0);
}

//---------------------------------- data ----------------------------------

static void add_stage(brim_result *r, const char *name, double ms) {
  brim_result_stage *s = &r->stages[r->stage_count++];
  snprintf(s->name, sizeof s->name, "%s", name);
  s->ms = ms;
}

static void test_slow_transform(void **state) {
  (void)state;
  // no workers: the step's own thread spends 4 of 10 ms in the blur
  brim_result r = on_cpu();
  set_text(&r, "num_workers", "0");
  r.phase_ms[BRIM_PHASE_IO].median = 6;
  r.phase_ms[BRIM_PHASE_FORWARD].median = 1;
  r.phase_ms[BRIM_PHASE_BACKWARD].median = 3;
  r.compute_samples_per_s = 64 / 4e-3;
  r.worker_io_ms = 1.5;
  r.worker_transform_ms = 4.5;
  add_stage(&r, "resize", 0.5);
  add_stage(&r, "gaussian_blur", 4);
  const brim_findings v = {&r, &r, 1, false};
  brim_workload_find("supervised")->findings->find(&v);
  const brim_finding *f = &r.findings[1];
  assert_string_equal(f->code, "slow_transform");
  assert_true(near(f->cost_ms, 4));
  assert_non_null(strstr(english(f->text), "gaussian_blur"));
  // 16 busy workers of a GPU: loading limits the step, until computing does
  brim_result g = healthy();
  set_text(&g, "num_workers", "16");
  g.phase_ms[BRIM_PHASE_IO].median = 6;
  g.data_samples_per_s = 6400;
  g.compute_samples_per_s = 64 / 4e-3;
  g.worker_io_ms = 40;
  g.worker_transform_ms = 120;
  add_stage(&g, "gaussian_blur", 80);
  brim_diagnose(&g, 1, 0);
  assert_string_equal(g.findings[0].code, "slow_transform");
  assert_true(near(g.findings[0].cost_ms, 5));  // half of the workers' time
  g.compute_samples_per_s = 64 / 8e-3;
  brim_diagnose(&g, 1, 0);
  assert_true(near(g.findings[0].cost_ms, 2));  // computing limits the step then
  g.phase_ms[BRIM_PHASE_IO].median = 0.1;       // hidden: no step waits for loading
  brim_diagnose(&g, 1, 0);
  assert_int_equal(g.finding_count, 0);
}

static void test_slow_transform_on_gpu(void **state) {
  (void)state;
  brim_result r = healthy();
  r.phase_ms[BRIM_PHASE_TRANSFORM].median = 6;
  r.phase_ms[BRIM_PHASE_FORWARD].median = 1;
  r.phase_ms[BRIM_PHASE_BACKWARD].median = 2;
  r.phase_ms[BRIM_PHASE_OPTIMIZER].median = 0.5;
  brim_diagnose(&r, 1, 0);
  assert_string_equal(r.findings[0].code, "slow_transform");
  assert_true(near(r.findings[0].cost_ms, 6));
  assert_non_null(strstr(english(r.findings[0].text), "60 %"));
  r.phase_ms[BRIM_PHASE_BACKWARD].median = 5;  // computing takes longer, as it should
  brim_diagnose(&r, 1, 0);
  for (size_t i = 0; i < r.finding_count; i++) {
    assert_string_not_equal(r.findings[i].code, "slow_transform");
  }
}

//---------------------------------- what is asked for ----------------------------------

static const brim_finding *asked(brim_result *results, size_t count) {
  brim_diagnose_with(results, count, 0, true);
  for (size_t i = 0; i < results[0].finding_count; i++) {
    if (results[0].findings[i].try_knob[0]) return &results[0].findings[i];
  }
  return NULL;
}

static void test_asks(void **state) {
  (void)state;
  // 12 ms of loading for 4 ms of computing: three workers; six while steps wait for data
  brim_result r[3] = {healthy(), healthy(), healthy()};
  set_text(&r[0], "num_workers", "0");
  r[0].phase_ms[BRIM_PHASE_IO].median = 6;
  r[0].phase_ms[BRIM_PHASE_FORWARD].median = 1;
  r[0].phase_ms[BRIM_PHASE_BACKWARD].median = 3;
  r[0].worker_io_ms = 12;
  r[0].worker_transform_ms = 0;
  const brim_finding *f = asked(r, 1);
  assert_non_null(f);
  assert_string_equal(f->try_knob, "num_workers");
  assert_string_equal(f->try_value, "3");
  set_text(&r[1], "num_workers", "3");
  r[1].samples_per_s = 9000;
  r[1].phase_ms[BRIM_PHASE_IO].median = 3;
  f = asked(r, 2);
  assert_non_null(f);
  assert_string_equal(f->try_value, "6");
  assert_string_equal(f->value, "3");
  r[1].phase_ms[BRIM_PHASE_IO].median = 0.1;
  assert_null(asked(r, 2));
  // pageable memory and full precision are always tried; no remedy twice, and none that failed
  brim_result p[4] = {healthy(), healthy(), healthy(), healthy()};
  set_text(&p[0], "pin_memory", "false");
  f = asked(p, 1);
  assert_non_null(f);
  assert_string_equal(f->try_knob, "pin_memory");
  assert_string_equal(f->try_value, "true");
  p[1].failure = BRIM_FAILURE_OOM_DEVICE;
  assert_null(asked(p, 2));
  set_text(&p[0], "pin_memory", "true");
  set_text(&p[0], "precision", "fp32");
  assert_string_equal(asked(p, 1)->try_value, "tf32");
  set_text(&p[1], "precision", "tf32");
  p[1].failure = BRIM_FAILURE_NONE;
  p[1].samples_per_s = 9600;
  assert_string_equal(asked(p, 2)->try_value, "bf16");
  p[2].samples_per_s = 12800;
  assert_null(asked(p, 3));
  f = &p[0].findings[0];
  assert_string_equal(f->code, "precision");
  assert_string_equal(f->value, "bf16");
  assert_true(f->measured);
  assert_true(near(f->cost_ms, 5));
  assert_non_null(strstr(english(f->remedy), "tf32: 3.33 ms less"));
  // without measuring, no trial is requested and no price is guessed
  set_text(&p[0], "precision", "bf16");
  set_text(&p[0], "pin_memory", "false");
  brim_diagnose(p, 1, 0);
  assert_int_equal(p[0].finding_count, 0);
}

// A CPU with faster 16-bit instructions gets a trial of them. Only a measurement makes them a finding.
static void test_precision_of_a_cpu(void **state) {
  (void)state;
  brim_result r[2] = {on_cpu(), on_cpu()};
  set_text(&r[0], "precision", "fp32");
  assert_string_equal(asked(r, 1)->code, "precision");
  assert_string_equal(asked(r, 1)->try_value, "bf16");
  brim_diagnose(r, 1, 0);
  assert_int_equal(r[0].finding_count, 0);
  r[1].samples_per_s = 12800;
  brim_diagnose(r, 2, 0);
  assert_string_equal(r[0].findings[0].code, "precision");
  assert_string_equal(r[0].findings[0].value, "bf16");
  assert_true(r[0].findings[0].measured);
  assert_true(near(r[0].findings[0].cost_ms, 5));
  r[1].samples_per_s = 3200;  // emulated
  brim_diagnose(r, 2, 0);
  assert_int_equal(r[0].finding_count, 0);
  assert_string_equal(asked(r, 2)->code, "small_batch");
  // tf32 equals fp32 there: the small gain is chance
  set_text(&r[1], "precision", "tf32");
  r[1].samples_per_s = 7000;
  brim_diagnose(r, 2, 0);
  assert_int_equal(r[0].finding_count, 0);
  // matrix products show that 16 bits would be slower: no trial
  r[0].ceilings.gemm_fp32_flops = 1e11;
  r[0].ceilings.gemm_bf16_flops = 5e10;
  assert_string_equal(asked(r, 1)->code, "small_batch");
  r[0].ceilings.gemm_bf16_flops = 3e11;
  assert_string_equal(asked(r, 1)->code, "precision");
}

// 6 of 10 ms are reading, which more workers or samples in memory would save: the finding names the better remedy.
static void test_asks_for_a_cache(void **state) {
  (void)state;
  brim_result r[4];
  for (int i = 0; i < 4; i++) {
    r[i] = on_cpu();
    set_text(&r[i], "cache", "none");
    set_text(&r[i], "num_workers", "0");
    r[i].phase_ms[BRIM_PHASE_IO].median = 6;
    r[i].phase_ms[BRIM_PHASE_FORWARD].median = 1;
    r[i].phase_ms[BRIM_PHASE_BACKWARD].median = 3;
    r[i].compute_samples_per_s = 64 / 4e-3;
    r[i].worker_io_ms = 5;
    r[i].worker_transform_ms = 1;
    r[i].cores = 8;
  }
  assert_string_equal(asked(r, 1)->try_knob, "num_workers");
  set_text(&r[1], "num_workers", "2");
  r[1].samples_per_s = 12800;
  r[1].phase_ms[BRIM_PHASE_IO].median = 0.1;
  const brim_finding *f = asked(r, 2);
  assert_string_equal(f->code, "io_wait");
  assert_string_equal(f->try_knob, "cache");
  assert_string_equal(f->try_value, "ram");
  set_text(&r[2], "cache", "ram");
  r[2].samples_per_s = 16000;
  f = asked(r, 3);
  assert_true(!f || strcmp(f->code, "io_wait") != 0);
  f = &r[0].findings[0];
  assert_string_equal(f->knob, "cache");
  assert_string_equal(f->value, "ram");
  assert_true(f->measured && near(f->cost_ms, 6));
  assert_non_null(
      strstr(english(f->remedy), "from the second epoch on (num_workers 2: 5.00 ms less)"));
  r[2].samples_per_s = 9000;
  brim_diagnose(r, 3, 0);
  assert_string_equal(r[0].findings[0].value, "2");
  assert_non_null(strstr(english(r[0].findings[0].remedy), "(cache ram: 2.89 ms less)"));
  // neither helps: a remedy that was tried is not advised, and the finding has no price
  r[1].samples_per_s = r[2].samples_per_s = 6400;
  brim_diagnose(r, 3, 0);
  assert_true(isnan(r[0].findings[0].cost_ms));
  assert_non_null(strstr(english(r[0].findings[0].remedy), "more workers did not help: cheaper"));
  brim_diagnose(r, 2, 0);
  assert_non_null(
      strstr(english(r[0].findings[0].remedy), "did not help: data.cache=ram, cheaper"));
  // it has a cache already: the wait is the first epoch's
  r[0].plan.rows[0] = (brim_plan_row){.name = "dataset cache", .place = BRIM_PLACE_HOST};
  r[0].plan.row_count = 1;
  f = asked(r, 2);
  assert_true(!f || strcmp(f->try_knob, "cache") != 0);
  assert_non_null(
      strstr(english(r[0].findings[0].text), "in the first epoch, which fills the cache"));
  assert_non_null(strstr(english(r[0].findings[0].remedy), "did not help: cheaper"));
  r[0].plan.row_count = 0;
  // a cache does not save transforms
  r[0].worker_io_ms = 0.1;
  r[0].worker_transform_ms = 5.9;
  f = asked(r, 2);
  assert_true(!f || strcmp(f->try_knob, "cache") != 0);
}

static void test_asks_for_batches(void **state) {
  (void)state;
  brim_result r[4] = {healthy(), healthy(), healthy(), healthy()};
  r[0].sm_percent = 20;
  assert_string_equal(asked(r, 1)->try_value, "256");
  set_text(&r[1], "batch_size", "256");  // the batch does not fit: half as many
  r[1].failure = BRIM_FAILURE_OOM_PLANNED;
  assert_string_equal(asked(r, 2)->try_value, "128");
  r[1].failure = BRIM_FAILURE_NONE;
  r[1].samples_per_s = 20000;
  assert_string_equal(asked(r, 2)->try_value, "1024");
  set_text(&r[2], "batch_size", "1024");
  r[2].samples_per_s = 20100;  // again, because it is the fastest
  assert_string_equal(asked(r, 3)->try_value, "4096");
  r[2].samples_per_s = 19000;
  assert_null(asked(r, 3));
  assert_string_equal(r[0].findings[0].code, "small_batch");
  assert_string_equal(r[0].findings[0].value, "256");
  assert_true(near(r[0].findings[0].cost_ms, 10 - 3.2));
}

static const brim_finding *code_of(const brim_result *r, const char *code) {
  for (size_t i = 0; i < r->finding_count; i++) {
    if (strcmp(r->findings[i].code, code) == 0) return &r->findings[i];
  }
  return NULL;
}

// 6 of 10 ms wait for `reading` and `transforms`, in the step's own thread; more workers did not help.
static void waiting(brim_result r[2], double reading, double transforms) {
  for (int i = 0; i < 2; i++) {
    r[i] = on_cpu();
    set_text(&r[i], "cache", "none");
    set_text(&r[i], "num_workers", i == 0 ? "0" : "1");
    r[i].phase_ms[BRIM_PHASE_IO].median = 6;
    r[i].phase_ms[BRIM_PHASE_FORWARD].median = 1;
    r[i].phase_ms[BRIM_PHASE_BACKWARD].median = 3;
    r[i].compute_samples_per_s = 64 / 4e-3;
    r[i].worker_io_ms = reading;
    r[i].worker_transform_ms = transforms;
  }
}

static void test_remedies_are_of_the_part_that_costs(void **state) {
  (void)state;
  brim_result r[2];
  waiting(r, 5.9, 0.1);
  brim_diagnose(r, 2, 0);
  const brim_finding *f = code_of(&r[0], "io_wait");
  assert_non_null(f);
  assert_non_null(strstr(english(f->remedy), "data.cache=ram"));
  assert_non_null(strstr(english(f->remedy), "a faster disk"));
  assert_null(strstr(english(f->remedy), "transforms"));
  waiting(r, 0.1, 5.9);
  brim_diagnose(r, 2, 0);
  f = code_of(&r[0], "io_wait");
  assert_non_null(f);
  assert_string_equal(english(f->remedy), "more workers did not help: cheaper transforms");
  // a transform that takes the time gets the finding instead
  r[0].stage_count = 1;
  snprintf(r[0].stages[0].name, sizeof r[0].stages[0].name, "resize");
  r[0].stages[0].ms = 5.9;
  brim_diagnose(r, 2, 0);
  assert_null(code_of(&r[0], "io_wait"));
  assert_non_null(code_of(&r[0], "slow_transform"));
  // without workers nothing is prefetched
  brim_diagnose(r, 1, 0);
  f = code_of(&r[0], "io_wait");
  assert_non_null(f);
  assert_string_equal(english(f->remedy), "num_workers 0 -> 1");
  assert_false(f->measured);
}

static void test_a_gain_is_within_what_it_touches(void **state) {
  (void)state;
  brim_result r[2];
  waiting(r, 5, 1);
  r[1].samples_per_s = 10 * r[0].samples_per_s;  // saves 9 ms, but only 6 ms were waiting
  brim_diagnose(r, 2, 0);
  assert_true(near(code_of(&r[0], "io_wait")->cost_ms, 6));
  waiting(r, 5, 1);
  set_text(&r[1], "num_workers", "0");
  set_text(&r[1], "batch_size", "256");
  r[1].samples_per_s = 10 * r[0].samples_per_s;
  brim_diagnose(r, 2, 0);
  assert_true(near(code_of(&r[0], "small_batch")->cost_ms, 4));
}

static void test_a_gain_within_the_intervals_is_none(void **state) {
  (void)state;
  brim_result r[2] = {healthy(), healthy()};
  r[1].samples_per_s = 1.1 * r[0].samples_per_s;
  assert_true(near(brim_finding_gain_ms(&r[0], &r[1]), 10 - 10 / 1.1));
  for (int i = 0; i < 2; i++) {
    r[i].samples_per_s_low = 0.9 * r[i].samples_per_s;
    r[i].samples_per_s_high = 1.1 * r[i].samples_per_s;
  }
  assert_true(near(brim_finding_gain_ms(&r[0], &r[1]), 0));
  r[1].samples_per_s *= 2;
  assert_true(brim_finding_gain_ms(&r[0], &r[1]) > 5);
}

static void test_a_spread_has_a_name(void **state) {
  (void)state;
  brim_result r = healthy();
  r.stable = false;
  r.steps = 10;
  r.total_ms.mad = 0.5;
  r.total_ms.ci_low = 8;
  r.total_ms.ci_high = 12;
  brim_diagnose(&r, 1, 0);
  assert_non_null(strstr(english(code_of(&r, "unstable")->text), "within 20 % (95 % interval)"));
  r.total_ms.mad = 3;
  brim_diagnose(&r, 1, 0);
  assert_non_null(strstr(english(code_of(&r, "unstable")->text), "a MAD of 30 %"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_remedies_are_of_the_part_that_costs),
      cmocka_unit_test(test_a_gain_is_within_what_it_touches),
      cmocka_unit_test(test_a_gain_within_the_intervals_is_none),
      cmocka_unit_test(test_a_spread_has_a_name),
      cmocka_unit_test(test_healthy),
      cmocka_unit_test(test_below_ceiling),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_quota),
      cmocka_unit_test(test_checkpoints),
      cmocka_unit_test(test_sharing),
      cmocka_unit_test(test_slow_transform),
      cmocka_unit_test(test_slow_transform_on_gpu),
      cmocka_unit_test(test_asks),
      cmocka_unit_test(test_asks_for_batches),
      cmocka_unit_test(test_precision_of_a_cpu),
      cmocka_unit_test(test_asks_for_a_cache),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
