// Checks of a config against the machine: plans that fit and that do not, earlier measurements, rules for knobs, sizes
// of checkpoints and logs.
#include "doctor/doctor_machine.h"
#include "tune/tune.h"
#include "workload/fixture.h"

typedef struct opened {
  fixture f;
  brim_result plan;
} opened;

static void open_job(opened *o, const char *const *overrides, size_t count, uint64_t limit) {
  assert_ok(fixture_open(&o->f, "ref", fixture_yaml, overrides, count));
  brim_result_init(&o->plan);
  const brim_setting setting = brim_work_setting(o->f.work);
  const brim_trial_options how = {.memory_limit = limit};
  assert_ok(brim_trial_plan(o->f.work, o->f.config, o->f.device, &setting, &how, &o->plan));
}

static void close_job(opened *o) {
  brim_result_deinit(&o->plan);
  fixture_close(&o->f);
}

static void examine_job(const opened *o, const char *records, const char *output) {
  const brim_doctor_machine machine = {
      .root = fake.root, .env = fake_env, .space = fake_space, .output = output};
  const brim_doctor_job job = {.machine = &machine,
                               .work = o->f.work,
                               .config = o->f.config,
                               .device = o->f.device,
                               .plan = &o->plan,
                               .description = o->plan.description,
                               .words = "mine.yaml data.path=here lr=0.01",
                               .records = records};
  brim_doctor_report_deinit(&fake_report);
  brim_doctor_config(&job, &fake_report);
  assert_ok(fake_report.status);
  fake_remember();
}

static void test_fits(void **state) {
  (void)state;
  opened o;
  fake_good();
  open_job(&o, NULL, 0, 0);
  examine_job(&o, NULL, NULL);
  assert_line("config.opens", NULL, BRIM_DOCTOR_GOOD, "mlp");
  assert_line("config.fit", NULL, BRIM_DOCTOR_GOOD, "fits: planned");
  assert_line("config.host_memory", NULL, BRIM_DOCTOR_GOOD, "of 57.2 GiB free");
  assert_line("config.measured", NULL, BRIM_DOCTOR_UNKNOWN, "no earlier bench");
  assert_string_equal(fake_line("config.measured", NULL)->fix,
                      "brim bench mine.yaml data.path=here lr=0.01");
  assert_line("config.knob", "num_workers", BRIM_DOCTOR_GOOD, "data.num_workers=2");
  assert_line("config.knob", "batch_size", BRIM_DOCTOR_GOOD, "data.batch_size=32");
  assert_line("config.knob", "precision", BRIM_DOCTOR_GOOD, "training.precision=fp32");
  assert_line("config.knob", "threads", BRIM_DOCTOR_GOOD, "threads=0");
  assert_line("config.sweep", NULL, BRIM_DOCTOR_GOOD, "batch_size ");
  // 36 x 24 and 24 x 4 weights, biases, two moments each. Names and settings are about as large
  assert_line("config.checkpoints", NULL, BRIM_DOCTOR_GOOD,
              "under 64.0 KiB each, at most 262.2 KiB");
  assert_line("config.interval", NULL, BRIM_DOCTOR_UNKNOWN, "not measured");
  assert_line("config.logs", NULL, BRIM_DOCTOR_GOOD, "for 48 steps");
  assert_int_equal(fake_report.counts[BRIM_DOCTOR_BAD] + fake_report.counts[BRIM_DOCTOR_WARN], 0);
  close_job(&o);
}

static void test_does_not_fit(void **state) {
  (void)state;
  opened o;
  fake_good();
  open_job(&o, NULL, 0, 1024);
  examine_job(&o, NULL, NULL);
  assert_line("config.fit", NULL, BRIM_DOCTOR_BAD, NULL);
  close_job(&o);
}

// A config that fails for a reason other than memory gets no advice about memory.
static void test_nothing_left(void **state) {
  (void)state;
  static const char *const large[] = {"data.batch_size=4096", "data.drop_last=true"};
  opened o;
  fake_good();
  open_job(&o, large, 2, 0);
  assert_int_equal(o.plan.failure, BRIM_FAILURE_BAD_CONFIG);
  examine_job(&o, NULL, NULL);
  assert_line("config.opens", NULL, BRIM_DOCTOR_BAD, "drop_last");
  assert_null(fake_line("config.fit", NULL));
  assert_int_equal(fake_report.counts[BRIM_DOCTOR_GOOD], 0);
  close_job(&o);
}

static void test_host_memory(void **state) {
  (void)state;
  opened o;
  fake_good();
  open_job(&o, NULL, 0, 0);
  o.plan.plan.bytes[BRIM_PLACE_HOST] = 100 * GIB_U;
  examine_job(&o, NULL, NULL);
  assert_line("config.host_memory", NULL, BRIM_DOCTOR_BAD, "planned 100.0 GiB");
  fake_gone("/proc/meminfo");
  examine_job(&o, NULL, NULL);
  assert_line("config.host_memory", NULL, BRIM_DOCTOR_UNKNOWN, NULL);
  close_job(&o);
}

//---------------------------------- knobs ----------------------------------

// The device as the rules read it; nothing runs on it.
static void pretend_gpu(opened *o, bool gpu) {
  o->f.device->info.fast_types = gpu ? 1u << BRIM_BF16 : 0;
  o->f.device->info.kind = gpu ? BRIM_DEVICE_GPU : BRIM_DEVICE_CPU;
  o->f.device->info.host_memory = !gpu;
}

static void test_rules(void **state) {
  (void)state;
  static const char *const bad[] = {"data.num_workers=64", "data.pin_memory=false",
                                    "training.compile=false", "data.cache=none"};
  static const char *const none[] = {"data.num_workers=0", "data.cache=none"};
  opened o;
  fake_good();
  open_job(&o, bad, 4, 0);
  pretend_gpu(&o, true);
  examine_job(&o, NULL, NULL);
  assert_line("config.knob", "num_workers", BRIM_DOCTOR_WARN, "64");
  assert_line("config.knob", "pin_memory", BRIM_DOCTOR_WARN, "false");
  assert_string_equal(fake_line("config.knob", "pin_memory")->fix,
                      "brim train mine.yaml data.path=here lr=0.01 data.pin_memory=true");
  assert_line("config.knob", "compile", BRIM_DOCTOR_WARN, "false");
  assert_line("config.knob", "precision", BRIM_DOCTOR_WARN, "fp32");
  assert_line("config.knob", "batch_size", BRIM_DOCTOR_WARN, "32");
  pretend_gpu(&o, false);
  close_job(&o);
  open_job(&o, none, 2, 0);
  pretend_gpu(&o, true);
  examine_job(&o, NULL, NULL);
  assert_line("config.knob", "num_workers", BRIM_DOCTOR_WARN, "=0");
  assert_line("config.knob", "pin_memory", BRIM_DOCTOR_GOOD, "true");
  assert_line("config.knob", "compile", BRIM_DOCTOR_GOOD, "true");
  pretend_gpu(&o, false);
  close_job(&o);
}

// Without a GPU the same knobs have other rules.
static void test_rules_of_cpu(void **state) {
  (void)state;
  static const char *const bad[] = {"data.batch_size=8", "threads=64", "data.num_workers=64"};
  static const char *const few[] = {"threads=2", "training.precision=bf16"};
  opened o;
  fake_good();
  open_job(&o, bad, 3, 0);
  o.f.device->info.fast_types = 1u << BRIM_BF16;
  examine_job(&o, NULL, NULL);
  assert_line("config.knob", "batch_size", BRIM_DOCTOR_WARN, "data.batch_size=8");
  assert_string_equal(fake_line("config.knob", "batch_size")->fix,
                      "brim bench mine.yaml data.path=here lr=0.01 --benchmark-batch");
  assert_line("config.knob", "num_workers", BRIM_DOCTOR_WARN, "64");
  assert_line("config.knob", "threads", BRIM_DOCTOR_WARN, "threads=64");
  assert_line("config.knob", "precision", BRIM_DOCTOR_WARN, "fp32");
  assert_null(fake_line("config.knob", "pin_memory"));  // no copies to a device
  o.f.device->info.fast_types = 0;
  examine_job(&o, NULL, NULL);
  assert_line("config.knob", "precision", BRIM_DOCTOR_GOOD, "fp32");
  close_job(&o);
  open_job(&o, few, 2, 0);
  examine_job(&o, NULL, NULL);
  // Few threads may suit a small network: nothing to fix.
  assert_line("config.knob", "threads", BRIM_DOCTOR_GOOD, "threads=2");
  assert_string_equal(fake_line("config.knob", "threads")->fix, "");
  assert_non_null(strstr(fake_line("config.knob", "threads")->why, "2 of 16 cores"));
  assert_line("config.knob", "precision", BRIM_DOCTOR_WARN, "bf16");
  assert_non_null(strstr(fake_line("config.knob", "precision")->fix, "training.precision=fp32"));
  close_job(&o);
}

// Without loader threads each step decodes and transforms its own samples, on every device.
static void test_no_workers(void **state) {
  (void)state;
  static const char *const copied[] = {"data.num_workers=0", "data.cache=none"};
  static const char *const worked[] = {"data.num_workers=0", "data.cache=none",
                                       "transform.train=random_flip"};
  static const char *const kept[] = {"data.num_workers=0", "data.cache=ram",
                                     "transform.train=random_flip"};
  opened o;
  fake_good();
  open_job(&o, copied, 2, 0);
  examine_job(&o, NULL, NULL);
  assert_line("config.knob", "num_workers", BRIM_DOCTOR_GOOD, "=0");
  assert_non_null(strstr(fake_line("config.knob", "num_workers")->why, "gain little"));
  close_job(&o);
  open_job(&o, worked, 3, 0);
  examine_job(&o, NULL, NULL);
  assert_line("config.knob", "num_workers", BRIM_DOCTOR_WARN, "=0");
  assert_non_null(strstr(fake_line("config.knob", "num_workers")->fix, "data.num_workers="));
  close_job(&o);
  open_job(&o, kept, 3, 0);
  examine_job(&o, NULL, NULL);
  assert_line("config.knob", "num_workers", BRIM_DOCTOR_GOOD, "=0");
  close_job(&o);
}

// bench tries each value that the config lists once.
static void test_listed(void **state) {
  (void)state;
  static const char *const lists[] = {"benchmark.batch_sizes=[16, 64, 16]",
                                      "benchmark.precisions=[bf16, fp32]"};
  opened o;
  fake_good();
  open_job(&o, lists, 2, 0);
  examine_job(&o, NULL, NULL);
  assert_line("config.sweep", NULL, BRIM_DOCTOR_GOOD, "precision bf16 fp32; ");
  assert_line("config.sweep", NULL, BRIM_DOCTOR_GOOD, "batch_size 16 64");
  assert_null(strstr(fake_line("config.sweep", NULL)->value, "64 16"));
  close_job(&o);
}

// 500 samples are 15 whole batches of 32, and 20 more samples.
static void test_drop_last(void **state) {
  (void)state;
  static const char *const drop[] = {"data.drop_last=true"};
  opened o;
  fake_good();
  open_job(&o, drop, 1, 0);
  examine_job(&o, NULL, NULL);
  assert_line("config.logs", NULL, BRIM_DOCTOR_GOOD, "for 45 steps");
  close_job(&o);
}

static brim_result_knob *knob_of(brim_result *r, const char *name) {
  for (size_t i = 0; i < r->knob_count; i++) {
    if (strcmp(r->knobs[i].name, name) == 0) return &r->knobs[i];
  }
  return NULL;
}

// Visits to setting `index` of `settings`, in rounds. Their rates are off by up to `spread`, and each setting has its
// fast and slow rounds at other times.
static void put_visits(brim_result *r, int index, int settings, int count, double spread) {
  for (int i = 0; i < count; i++) {
    const double off = spread * ((i + index) % 2 ? 1 : -1);
    r->visits[i] = (brim_result_visit){.at = (int64_t)i * settings + index,
                                       .samples_per_s = r->samples_per_s * (1 + off),
                                       .log_se = 0.002,
                                       .samples = 10,
                                       .seconds = 0.5,
                                       .others_cpu_percent = 0};
  }
  r->visit_count = (size_t)count;
  r->repeats = count;
}

// Two measured settings: the config's own, and one that is `factor` times as fast.
static void write_records(const opened *o, const char *path, double factor, bool own) {
  brim_result r[2] = {o->plan, o->plan};
  for (int i = 0; i < 2; i++) {
    r[i].samples_per_s = 1000 * (i ? factor : 1);
    r[i].samples_per_s_low = 0.9 * r[i].samples_per_s;
    r[i].samples_per_s_high = 1.1 * r[i].samples_per_s;
    r[i].total_ms.median = r[i].total_ms.mean = 32 / r[i].samples_per_s * 1e3;
    r[i].stable = true;
    r[i].steps = 5;
    put_visits(&r[i], i, own ? 2 : 1, 6, 0.1);
  }
  brim_result_knob *batch = knob_of(&r[1], "batch_size");
  assert_non_null(batch);
  snprintf(batch->value, sizeof batch->value, "256");
  batch->number = 256;
  assert_ok(brim_results_write(path, own ? r : r + 1, own ? 2 : 1));
}

// A knob that changes learning is recommended only if the user asked to try its values, as in bench.
static void test_not_asked(void **state) {
  (void)state;
  opened o;
  fake_good();
  open_job(&o, NULL, 0, 0);
  write_records(&o, "unasked.jsonl", 2.5, true);
  examine_job(&o, "unasked.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_GOOD,
              "the one that brim bench recommends of 2 measured settings");
  // another network with the same description
  o.plan.plan.parameter_count++;
  examine_job(&o, "unasked.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_UNKNOWN, "no earlier bench");
  close_job(&o);
}

static void put_workers(brim_result *r, const opened *o, const char *workers, double rate) {
  *r = o->plan;
  r->samples_per_s = rate;
  r->samples_per_s_low = 0.995 * rate;
  r->samples_per_s_high = 1.005 * rate;
  r->total_ms.median = r->total_ms.mean = 32 / rate * 1e3;
  r->stable = true;
  r->steps = 5;
  brim_result_knob *knob = knob_of(r, "num_workers");
  assert_non_null(knob);
  snprintf(knob->value, sizeof knob->value, "%s", workers);
  knob->number = workers[0] - '0';
}

// Among equally fast settings bench recommends the smaller one, and so does the doctor.
static void test_same_rule(void **state) {
  (void)state;
  opened o;
  brim_result r[3];
  fake_good();
  open_job(&o, NULL, 0, 0);
  put_workers(&r[0], &o, "2", 1000);
  put_workers(&r[1], &o, "1", 2010);
  put_workers(&r[2], &o, "0", 2000);
  for (int i = 0; i < 3; i++) put_visits(&r[i], i, 3, 6, 0.003);
  assert_ok(brim_results_write("workers.jsonl", r, 3));
  brim_recommendation picks;
  brim_recommend(r, 3, &(brim_recommend_options){.now = 0}, &picks);
  assert_int_equal(picks.recommended, 2);
  examine_job(&o, "workers.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_WARN,
              "] faster: num_workers 2 -> 0 (3 settings");
  assert_string_equal(fake_line("config.measured", NULL)->fix,
                      "brim train mine.yaml data.path=here lr=0.01 data.num_workers=0");
  close_job(&o);
}

// A recommendation that bench calls provisional is provisional here too.
static void test_doubt(void **state) {
  (void)state;
  opened o;
  brim_result r[3];
  fake_good();
  open_job(&o, NULL, 0, 0);
  put_workers(&r[0], &o, "2", 1000);
  put_workers(&r[1], &o, "1", 2000);
  put_workers(&r[2], &o, "0", 2100);
  for (int i = 0; i < 3; i++) {
    r[i].samples_per_s_low = 0.8 * r[i].samples_per_s;
    r[i].samples_per_s_high = 1.2 * r[i].samples_per_s;
    put_visits(&r[i], i, 3, 6, 0.2);
  }
  assert_ok(brim_results_write("doubt.jsonl", r, 3));
  examine_job(&o, "doubt.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_WARN, "x2.1 [");
  assert_line("config.measured", NULL, BRIM_DOCTOR_WARN,
              "] faster (provisional: another may be faster): num_workers 2 -> 0");
  // certain by its interval, but from one visit only
  put_workers(&r[2], &o, "0", 4000);
  put_visits(&r[2], 2, 3, 1, 0);
  assert_ok(brim_results_write("doubt.jsonl", r, 3));
  examine_job(&o, "doubt.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_WARN, "(provisional: ");
  // narrow intervals that do not overlap, but visits that contradict each other
  put_workers(&r[0], &o, "2", 1000);
  put_workers(&r[1], &o, "1", 1010);
  put_workers(&r[2], &o, "0", 1200);
  for (int i = 0; i < 3; i++) put_visits(&r[i], i, 3, 4, 0.4);
  assert_ok(brim_results_write("doubt.jsonl", r, 3));
  examine_job(&o, "doubt.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_GOOD,
              "the one that brim bench recommends of 3 measured settings (provisional: ");
  // measured while other programs had half of the machine
  for (int i = 0; i < 3; i++) {
    put_workers(&r[i], &o, i == 0 ? "2" : i == 1 ? "1" : "0", i == 0 ? 1000 : 1400);
    put_visits(&r[i], i, 3, 6, 0.002);
    r[i].cpu_percent = r[i].others_cpu_percent = 50;
  }
  assert_ok(brim_results_write("doubt.jsonl", r, 3));
  examine_job(&o, "doubt.jsonl", NULL);
  assert_null(strstr(fake_line("config.measured", NULL)->value, "] faster: "));
  close_job(&o);
}

static void test_records(void **state) {
  (void)state;
  static const char *const asked[] = {"benchmark.batch_sizes=[32, 256]"};
  opened o;
  fake_good();
  open_job(&o, asked, 1, 0);
  write_records(&o, "fast.jsonl", 2.5, true);
  examine_job(&o, "fast.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_WARN, "faster: batch_size 32 -> 256");
  // the learning rate grows by the root of 8
  assert_string_equal(fake_line("config.measured", NULL)->fix,
                      "brim train mine.yaml data.path=here lr=0.01 data.batch_size=256 "
                      "training.learning_rate=0.02828");
  assert_null(fake_line("config.knob", NULL));  // measured, so no rules
  assert_non_null(strstr(fake_line("config.measured", NULL)->why,
                         "effective batch goes from 32 to 256. Learning rate: 0.01 -> 0.0283"));
  assert_line("config.interval", NULL, BRIM_DOCTOR_GOOD, "after each epoch, about every");
  write_records(&o, "near.jsonl", 1.15, true);
  examine_job(&o, "near.jsonl", NULL);
  // faster only by estimate: the setting stays, as in bench
  assert_line("config.measured", NULL, BRIM_DOCTOR_GOOD, "(provisional: another may be faster)");
  write_records(&o, "same.jsonl", 1.02, true);
  examine_job(&o, "same.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_GOOD, "the one that brim bench recommends");
  write_records(&o, "other.jsonl", 2, false);
  examine_job(&o, "other.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_UNKNOWN, "none of the 1 measured ones");
  // records of another device do not count for this one
  snprintf(o.plan.device, sizeof o.plan.device, "another");
  examine_job(&o, "fast.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_UNKNOWN, "no earlier bench");
  assert_ok(brim_fs_write("broken.jsonl", "{", 1));
  examine_job(&o, "broken.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_UNKNOWN, "no earlier bench");
  examine_job(&o, "runs/bench/none.jsonl", NULL);
  assert_line("config.measured", NULL, BRIM_DOCTOR_UNKNOWN, "in runs/bench/none.jsonl");
  close_job(&o);
}

//---------------------------------- files ----------------------------------

static void test_files(void **state) {
  (void)state;
  static const char *const longer[] = {"training.epochs=1000000", "log.interval=1",
                                       "log.tensorboard=true", "checkpoint.interval=10"};
  opened o;
  fake_good();
  open_job(&o, longer, 4, 0);
  fake.disk.free = 1000;
  examine_job(&o, NULL, NULL);
  assert_line("config.checkpoints", NULL, BRIM_DOCTOR_BAD, "1000 B free");
  assert_line("config.logs", NULL, BRIM_DOCTOR_WARN, "GiB");
  assert_line("config.interval", NULL, BRIM_DOCTOR_GOOD, "every 10 steps");
  fake.no_disk = true;
  examine_job(&o, NULL, NULL);
  assert_line("config.checkpoints", NULL, BRIM_DOCTOR_UNKNOWN, "free space cannot be seen");
  // sizes from an earlier run replace the plan's
  fake.no_disk = false;
  fake.disk.free = 10.0 * (double)GIB_U;
  assert_ok(brim_fs_mkdirs("doctor-run"));
  char *block = brim_calloc(1, 1 << 20);
  assert_non_null(block);
  assert_ok(brim_fs_write("doctor-run/last.safetensors", block, 1 << 20));
  assert_ok(brim_fs_write("doctor-run/log.jsonl", block, 4096));
  brim_free(block);
  examine_job(&o, NULL, "doctor-run");
  assert_line("config.checkpoints", NULL, BRIM_DOCTOR_GOOD, "1.0 MiB each as written before");
  assert_line("config.logs", NULL, BRIM_DOCTOR_WARN, "log.jsonl has 4.0 KiB now");
  close_job(&o);
}

// One epoch takes an hour, and nothing is saved within it.
static void test_long_epochs(void **state) {
  (void)state;
  opened o;
  fake_good();
  open_job(&o, NULL, 0, 0);
  write_records(&o, "slow.jsonl", 1, true);
  brim_result *results = NULL;
  size_t count = 0;
  assert_ok(brim_results_read("slow.jsonl", &results, &count, NULL));
  for (size_t i = 0; i < count; i++) results[i].samples_per_s = 0.1;
  assert_ok(brim_results_write("slow.jsonl", results, count));
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
  examine_job(&o, "slow.jsonl", NULL);
  assert_line("config.interval", NULL, BRIM_DOCTOR_WARN, "after each epoch, about every");
  close_job(&o);
}

static void test_failed(void **state) {
  (void)state;
  brim_doctor_report_deinit(&fake_report);
  brim_doctor_config_failed("mine.yaml:3:1: unknown key", "mine.yaml lr=1", &fake_report);
  assert_line("config.opens", NULL, BRIM_DOCTOR_BAD, "mine.yaml:3:1: unknown key");
  assert_string_equal(fake_line("config.opens", NULL)->fix,
                      "brim config show mine.yaml lr=1 --origins");
  fake_remember();
}

static void test_all_seen(void **state) {
  (void)state;
  static const char *const facts[] = {"config.sweep", NULL};
  assert_both_seen("config.", facts);
}

static int finish(void **state) {
  (void)state;
  brim_doctor_report_deinit(&fake_report);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rules_of_cpu), cmocka_unit_test(test_listed),
      cmocka_unit_test(test_drop_last),    cmocka_unit_test(test_not_asked),
      cmocka_unit_test(test_same_rule),    cmocka_unit_test(test_fits),
      cmocka_unit_test(test_does_not_fit), cmocka_unit_test(test_host_memory),
      cmocka_unit_test(test_rules),        cmocka_unit_test(test_records),
      cmocka_unit_test(test_files),        cmocka_unit_test(test_long_epochs),
      cmocka_unit_test(test_no_workers),   cmocka_unit_test(test_nothing_left),
      cmocka_unit_test(test_doubt),        cmocka_unit_test(test_failed),
      cmocka_unit_test(test_all_seen),
  };
  return cmocka_run_group_tests(tests, NULL, finish);
}
