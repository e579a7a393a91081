// Out of memory and gpu.on_oom: in the plan, while building, in a step and in an evaluation. A step keeps its samples, the
// log has the change, and a resumed run continues with the same micro-batches.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "run/run_figures.h"
#include "same_file.h"
#include "workload/fixture.h"

static const char yaml[] =
    "workload: contrastive\n"
    "dataset: synthetic(shape=(4, 4, 3), classes=4, samples=160, noise=0.5)\n"
    "transform: {train: 'views | random_flip | cutout(size=3)'}\n"
    "model: simclr(backbone=resnet18(width=2), hidden=16, dim=8)\n"
    "optimizer: adamw(lr=1e-2)\n"
    "data: {batch_size: 16, num_workers: 0}\n"
    "training: {epochs: 3, gradient_accumulation_steps: 2}\n"
    "contrastive: {knn_k: 5, probe_epochs: 2}\n"
    "log: {interval: 1}\n"
    "seed: 5\n";

static volatile sig_atomic_t stop;  // set after a failed evaluation if poor.stops

// The workload's own table, with a device behind it that runs out of memory.
static struct {
  const brim_workload_table *real;
  brim_workload_table table;
  int64_t fail_step;    // the step to this number fails, once
  int fail_evaluation;  // this many evaluations fail
  int64_t most;         // a larger micro-batch cannot be built; 0 = any can
  int64_t batch;        // size of the last build
  bool stops;           // a failing evaluation also requests a stop
} poor;

static brim_status poor_configure(void *work, const brim_setting *setting) {
  if (poor.most && setting->value[0] > poor.most) return brim_fail(BRIM_EOOM, "no memory to build");
  poor.batch = setting->value[0];
  return poor.real->configure(work, setting);
}

// Fails before the step, which is then repeated.
static int64_t steps_made;
static brim_status poor_step(void *work, const brim_spans *spans, brim_step_info *out) {
  if (poor.fail_step && steps_made + 1 == poor.fail_step) {
    poor.fail_step = 0;
    return brim_fail(BRIM_EOOM, "no memory for step %lld", (long long)steps_made + 1);
  }
  brim_status status = poor.real->step(work, spans, out);
  if (!status) steps_made = out->step;
  return status;
}

static brim_status poor_evaluate(void *work, brim_work_metrics *out) {
  if (poor.fail_evaluation-- > 0) {
    stop = poor.stops;
    return brim_fail(BRIM_EOOM, "no memory to evaluate");
  }
  return poor.real->evaluation->evaluate(work, out);
}

static const char *device = "ref";
static char said[4096];

static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx, (void)level, (void)module;
  size_t n = strlen(said);
  snprintf(said + n, sizeof said - n, "%s\n", text);
}

static brim_status run(const char *folder, bool resume, int64_t max_steps,
                       const char *const *overrides, size_t count, brim_run_result *out) {
  fixture f;
  said[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_INFO);
  assert_ok(fixture_open(&f, device, yaml, overrides, count));
  poor.real = f.work->table;
  poor.table = *f.work->table;
  poor.table.configure = poor_configure;
  poor.table.step = poor_step;
  static const brim_work_evaluation_table evaluation = {.evaluate = poor_evaluate};
  poor.table.evaluation = &evaluation;
  f.work->table = &poor.table;
  brim_run_options options = {
      .output_dir = folder, .resume = resume, .max_steps = max_steps, .stop = &stop};
  brim_status status = brim_run_train(f.work, f.config, &options, out);
  fixture_close(&f);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  return status;
}

static void reset(void) {
  memset(&poor, 0, sizeof poor);
  steps_made = 0;
  stop = 0;
}

static char *slurp(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name), *data = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &data, &size));
  brim_free(path);
  return data;
}

static bool file_has(const char *folder, const char *name, const char *words) {
  char *data = slurp(folder, name);
  bool found = strstr(data, words) != NULL;
  brim_free(data);
  return found;
}

static uint64_t planned(int64_t batch, int64_t accumulation) {
  fixture f;
  brim_plan plan;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  brim_setting setting = brim_work_setting(f.work);
  setting.value[brim_work_knob(f.work, "batch_size")] = batch;
  setting.value[brim_work_knob(f.work, "accumulation")] = accumulation;
  assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
  uint64_t bytes = plan.bytes[BRIM_PLACE_DEVICE] + plan.bytes[BRIM_PLACE_HOST];
  fixture_close(&f);
  return bytes;
}

//---------------------------------- before the first step ----------------------------------

static void test_foreseen(void **state) {
  (void)state;
  char limit[64];
  brim_run_result r;
  uint64_t fits = planned(4, 8);
  assert_true(fits < planned(8, 4));
  snprintf(limit, sizeof limit, "gpu.memory_limit=%llu", (unsigned long long)fits);
  const char *const overrides[] = {limit, "training.checkpointing=false"};
  reset();
  assert_ok(run("foreseen", false, 0, overrides, 2, &r));
  assert_int_equal(poor.batch, 4);
  assert_int_equal(r.steps, 15);  // 160 samples in steps of 32, three times
  assert_non_null(strstr(said,
                         "out of memory foreseen: micro-batch 16 -> 4, accumulation 2 -> 8; "
                         "the effective batch of 32 and the learning rate stay; batch norm uses 4 "
                         "samples at a time"));
  assert_true(file_has("foreseen", "log.jsonl", "\"event\":\"adapt\",\"epoch\":1,\"step\":0"));
  assert_true(file_has("foreseen", "log.jsonl", "\"batch_size\":4,\"accumulation\":8"));
  const char *const refuses[] = {limit, "training.checkpointing=false", "on_oom=fail"};
  reset();
  assert_status(run("refused", false, 0, refuses, 3, &r), BRIM_EOOM);
  assert_false(brim_fs_exists("refused"));
}

static void test_nothing_fits(void **state) {
  (void)state;
  const char *const overrides[] = {"gpu.memory_limit=1KiB"};
  brim_run_result r;
  reset();
  assert_status(run("nothing", false, 0, overrides, 1, &r), BRIM_EOOM);
  assert_non_null(strstr(brim_status_detail(), "gpu.memory_limit"));
  // also if micro-batches of one sample are not allowed
  const char *const plain[] = {"gpu.memory_limit=1KiB", "contrastive.accumulation=plain"};
  reset();
  assert_status(run("nothing", false, 0, plain, 2, &r), BRIM_EOOM);
  assert_non_null(strstr(brim_status_detail(), "gpu.memory_limit"));
}

// An evaluation without memory first uses smaller batches of its own.
static void test_evaluation_gives_way_first(void **state) {
  (void)state;
  const char *const large[] = {"data.eval_batch_size=32"};
  brim_run_result r;
  reset();
  poor.fail_evaluation = 1;
  assert_ok(run("gives", false, 0, large, 1, &r));
  assert_int_equal(poor.batch, 16);
  assert_int_equal(r.steps, 15);
  assert_non_null(
      strstr(said, "evaluation uses batches of 16 samples like training, not the 32 of"));
  assert_null(strstr(said, "micro-batch 16 ->"));
  assert_false(file_has("gives", "log.jsonl", "\"event\":\"adapt\""));
  // then the training's micro-batches shrink
  reset();
  poor.fail_evaluation = 2;
  assert_ok(run("gives2", false, 0, large, 1, &r));
  assert_int_equal(poor.batch, 8);
  assert_true(file_has("gives2", "log.jsonl", "\"event\":\"adapt\""));
}

static void test_met_while_building(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  poor.most = 7;
  assert_ok(run("building", false, 0, NULL, 0, &r));
  assert_int_equal(poor.batch, 4);
  assert_int_equal(r.steps, 15);
  assert_non_null(strstr(said, "micro-batch 16 -> 4, accumulation 2 -> 8"));
  reset();
  poor.most = 7;
  const char *const refuses[] = {"gpu.on_oom=fail"};
  assert_status(run("building2", false, 0, refuses, 1, &r), BRIM_EOOM);
}

// 96 x 5 is 480, whose divisors are not those of 512.
static void test_divisors(void **state) {
  (void)state;
  const char *const overrides[] = {"data.batch_size=12", "gpu.gradient_accumulation=5"};
  brim_run_result r;
  reset();
  poor.most = 11;
  assert_ok(run("divisors", false, 0, overrides, 2, &r));
  assert_int_equal(poor.batch, 10);
  assert_non_null(
      strstr(said, "micro-batch 12 -> 10, accumulation 5 -> 6; the effective batch of 60"));
}

//---------------------------------- in the middle ----------------------------------

static void mid_run(void) {
  brim_run_result r;
  reset();
  poor.fail_step = 7;
  assert_ok(run("whole", false, 0, NULL, 0, &r));
  assert_int_equal(r.steps, 15);
  assert_int_equal(poor.batch, 8);
  assert_non_null(strstr(said, "out of memory at step 6: micro-batch 16 -> 8"));
  assert_null(strstr(said, "no longer bit-identical"));  // it continues from its own log
  assert_true(file_has("whole", "log.jsonl", "\"event\":\"adapt\",\"epoch\":2,\"step\":6"));
  // stop after the change, and resume in a new process
  reset();
  poor.fail_step = 7;
  assert_ok(run("parts", false, 9, NULL, 0, &r));
  reset();
  steps_made = 9;
  assert_ok(run("parts", true, 0, NULL, 0, &r));
  assert_int_equal(poor.batch, 8);
  assert_non_null(strstr(said, "ran out of memory at step 6"));
  assert_same_file("whole/model.safetensors", "parts/model.safetensors");
  assert_same_file("whole/last.safetensors", "parts/last.safetensors");
  assert_true(file_has("parts", "log.jsonl", "\"event\":\"adapt\",\"epoch\":2,\"step\":6"));
  // with another effective batch, the micro-batches in the checkpoint are ignored
  const char *const other[] = {"data.batch_size=20"};
  reset();
  assert_ok(run("parts", true, 16, other, 1, &r));
  reset();
  poor.fail_step = 3;
  const char *const refuses[] = {"gpu.on_oom=fail"};
  assert_status(run("fails", false, 0, refuses, 1, &r), BRIM_EOOM);
}

static void test_mid_run(void **state) {
  (void)state;
  mid_run();
}

// The same with recorded graphs and device memory.
static void test_mid_run_on_cuda(void **state) {
  (void)state;
  fixture f;
  brim_status status = fixture_open(&f, "cuda", yaml, NULL, 0);
  fixture_close(&f);
  if (status) BRIM_SKIP(brim_status_detail());
  device = "cuda";
  assert_ok(brim_fs_mkdirs("cuda"));
  assert_int_equal(chdir("cuda"), 0);
  mid_run();
  assert_int_equal(chdir(".."), 0);
  device = "ref";
}

static void test_in_an_evaluation(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  poor.fail_evaluation = 2;
  assert_ok(run("evaluation", false, 0, NULL, 0, &r));
  assert_int_equal(poor.batch, 4);  // twice
  assert_int_equal(r.steps, 15);
  assert_true(isfinite(eval_of(&r, "knn")) != 0);
  assert_int_equal(brim_metric_deciding(r.metrics, BRIM_METRIC_EVAL, r.eval, true),
                   brim_metric_find(r.metrics, "knn"));
  assert_true(file_has("evaluation", "log.jsonl", "\"step\":5,\"batch_size\":8"));
  assert_true(file_has("evaluation", "log.jsonl", "\"step\":5,\"batch_size\":4"));
  assert_true(file_has("evaluation", "log.jsonl", "\"knn\":"));
  assert_true(file_has("evaluation", "log.jsonl", "\"event\":\"probe\""));
  assert_true(file_has("evaluation", "log.csv", "eval_loss,knn,seconds"));
  assert_true(isfinite(metric_value(r.metrics, r.probe, "probe")) != 0);
}

// The number of adaptions in the log.
static int64_t last_adapted(const char *folder) {
  char *data = slurp(folder, "log.jsonl");
  long long batch = 0;
  for (const char *at = data; (at = strstr(at, "\"batch_size\":")); at++) {
    assert_int_equal(sscanf(at, "\"batch_size\":%lld", &batch), 1);
  }
  brim_free(data);
  return batch;
}

// Smaller micro-batches do not help every failure. A resumed run does not keep a change that did not help.
static void test_in_vain(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("whole", false, 0, NULL, 0, &r));
  reset();
  poor.fail_evaluation = 100;
  assert_status(run("vain", false, 0, NULL, 0, &r), BRIM_EOOM);
  assert_int_equal(poor.batch, 1);
  assert_non_null(
      strstr(brim_status_detail(), "no memory to evaluate; no smaller micro-batch fits"));
  // the message has the setting that a resumed run begins with
  assert_null(strstr(brim_status_detail(), "continue with --resume"));
  assert_true(file_has("vain", "log.jsonl", "\"step\":5,\"batch_size\":1"));
  assert_int_equal(last_adapted("vain"), 16);  // the setting of the resumed run
  reset();
  assert_ok(run("vain", true, 0, NULL, 0, &r));
  assert_int_equal(poor.batch, 16);
  assert_same_file("vain/model.safetensors", "whole/model.safetensors");
}

// Stopped before it is known whether they help, the run resumes with the setting in the log.
static void test_stopped_meanwhile(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  poor.fail_evaluation = 1;
  poor.stops = true;
  assert_status(run("meanwhile", false, 0, NULL, 0, &r), BRIM_EINTERRUPTED);
  assert_int_equal(last_adapted("meanwhile"), 8);
  reset();
  assert_ok(run("meanwhile", true, 0, NULL, 0, &r));
  assert_int_equal(poor.batch, 8);
  reset();
  poor.fail_evaluation = 1;
  assert_ok(run("without", false, 0, NULL, 0, &r));
  assert_same_file("meanwhile/model.safetensors", "without/model.safetensors");
}

// The next checkpoint has the step made with the smaller setting, and an evaluation that fails later resumes from there.
static void test_a_step_and_its_evaluation(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  poor.fail_step = 5;  // the last step of the epoch
  poor.fail_evaluation = 1;
  assert_ok(run("both", false, 0, NULL, 0, &r));
  assert_int_equal(poor.batch, 4);
  assert_int_equal(r.steps, 15);
  assert_true(file_has("both", "log.jsonl", "\"step\":4,\"batch_size\":8"));
  assert_true(file_has("both", "log.jsonl", "\"step\":5,\"batch_size\":4"));
  reset();
  poor.fail_step = 5;
  poor.fail_evaluation = 100;
  assert_status(run("after", false, 0, NULL, 0, &r), BRIM_EOOM);
  reset();
  assert_ok(run("after", true, 0, NULL, 0, &r));
  assert_int_equal(poor.batch, 8);
  assert_int_equal(r.steps, 15);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_foreseen),
      cmocka_unit_test(test_nothing_fits),
      cmocka_unit_test(test_evaluation_gives_way_first),
      cmocka_unit_test(test_met_while_building),
      cmocka_unit_test(test_divisors),
      cmocka_unit_test(test_mid_run),
      cmocka_unit_test(test_mid_run_on_cuda),
      cmocka_unit_test(test_in_an_evaluation),
      cmocka_unit_test(test_in_vain),
      cmocka_unit_test(test_stopped_meanwhile),
      cmocka_unit_test(test_a_step_and_its_evaluation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
