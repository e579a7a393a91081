// Out of memory in the middle of a step or of an evaluation: the half-done part leaves no trace. The resumed run
// evaluates an epoch that ended without its evaluation.
#include <math.h>

#include "run/run_figures.h"
#include "run/run_int.h"
#include "same_file.h"
#include "workload/fixture.h"

static const char norm_yaml[] =
    "dataset: synthetic(shape=(4, 4, 3), classes=4, samples=160, noise=0.5)\n"
    "model: resnet18(width=2)\n"
    "optimizer: adamw(lr=1e-2)\n"
    "data: {batch_size: 16, num_workers: 0, eval_batch_size: 16}\n"
    "training: {epochs: 3, gradient_accumulation_steps: 2}\n"
    "log: {interval: 1}\n"
    "seed: 5\n";
static const char *yaml = norm_yaml;

// A device that runs out of memory in the n-th run of an operation. The workload decides when runs count, and may also
// find no memory to be rebuilt.
static struct {
  const brim_backend *real_backend;
  brim_backend backend;
  brim_op_row rows[BRIM_OP_COUNT];
  brim_op_family family;
  const brim_op_family *families[1];
  const brim_workload_table *real;
  brim_workload_table table;
  brim_op op;
  int runs;                       // runs until it fails; 0 = never
  bool counting;                  // within the step or evaluation that has to fail
  int64_t step, made;             // the failing step; steps made so far
  int64_t evaluation, evaluated;  // the failing evaluation, from 1
  bool at_once;                   // fails before the evaluation starts
  bool all_bad;                   // every evaluated value is not finite
  int64_t loaded[4];              // samples in each epoch's report
  bool no_more;                   // no smaller micro-batch can be built
  int64_t built;
} thin;

static brim_status thin_run(void *impl, void *stream, const brim_op_call *call) {
  if (thin.counting && call->op == thin.op && thin.runs > 0 && --thin.runs == 0) {
    return brim_fail(BRIM_EOOM, "no memory for %s", brim_op_name(call->op));
  }
  return brim_backend_row(thin.real_backend, call->op)->run(impl, stream, call);
}

static brim_status thin_configure(void *work, const brim_setting *setting) {
  if (thin.no_more && thin.built > 0) return brim_fail(BRIM_EOOM, "no memory to build");
  thin.built++;
  return thin.real->configure(work, setting);
}

static brim_status thin_step(void *work, const brim_spans *spans, brim_step_info *out) {
  bool fails = thin.step && thin.made + 1 == thin.step;
  if (fails) thin.step = 0;
  if (fails && thin.at_once) return brim_fail(BRIM_EOOM, "no memory for a step");
  thin.counting = fails;
  brim_status status = thin.real->step(work, spans, out);
  thin.counting = false;
  if (!status) thin.made = out->step;
  return status;
}

static brim_status thin_evaluate(void *work, brim_work_metrics *out) {
  bool fails = ++thin.evaluated == thin.evaluation;
  if (fails && thin.at_once) return brim_fail(BRIM_EOOM, "no memory to evaluate");
  thin.counting = fails;
  brim_status status = thin.real->evaluation->evaluate(work, out);
  thin.counting = false;
  if (thin.all_bad) {
    out->bad = out->samples;
    out->values[brim_metric_find(out->set, "knn")] = 0;
  }
  return status;
}

static void reset(void) { memset(&thin, 0, sizeof thin); }

static void keep_report(void *ctx, const brim_epoch_report *r) {
  (void)ctx;
  if (r->epoch < 4) thin.loaded[r->epoch] = r->loading.samples;
}

static brim_status run(const char *folder, bool resume, const char *const *overrides, size_t count,
                       brim_run_result *out) {
  fixture f;
  assert_ok(fixture_open(&f, "ref", yaml, overrides, count));
  thin.real_backend = f.device->backend;
  thin.backend = *f.device->backend;
  thin.family = (brim_op_family){.rows = thin.rows};
  for (int op = 0; op < BRIM_OP_COUNT; op++) {
    const brim_op_row *row = brim_backend_row(thin.real_backend, (brim_op)op);
    if (!row) continue;
    thin.rows[thin.family.count] = *row;
    thin.rows[thin.family.count++].run = thin_run;
  }
  thin.families[0] = &thin.family;
  thin.backend.ops = thin.families;
  thin.backend.op_families = 1;
  f.device->backend = &thin.backend;
  thin.real = f.work->table;
  thin.table = *thin.real;
  thin.table.configure = thin_configure;
  thin.table.step = thin_step;
  static const brim_work_evaluation_table evaluation = {.evaluate = thin_evaluate};
  thin.table.evaluation = &evaluation;
  f.work->table = &thin.table;
  brim_run_options options = {.output_dir = folder, .resume = resume, .on_epoch = keep_report};
  brim_status status = brim_run_train(f.work, f.config, &options, out);
  f.work->table = thin.real;
  fixture_close(&f);
  return status;
}

static char *slurp(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name), *data = NULL;
  size_t size;
  assert_non_null(path);
  assert_ok(brim_fs_read(path, 0, &data, &size));
  brim_free(path);
  return data;
}

// A run's log of epochs without the times: the first seven fields of every row.
static char *epochs_of(const char *folder) {
  char *text = slurp(folder, "log.csv");
  size_t kept = 0, field = 0;
  for (const char *p = text; *p; p++) {
    if (*p == ',') field++;
    if (*p == '\n') field = 0;
    if (field < 7) text[kept++] = *p;
  }
  text[kept] = 0;
  return text;
}

static void assert_same_run(const char *a, const char *b) {
  static const char *const names[] = {"model.safetensors", "last.safetensors", "best.safetensors"};
  char *rows_a = epochs_of(a), *rows_b = epochs_of(b);
  assert_string_equal(rows_a, rows_b);
  brim_free(rows_a);
  brim_free(rows_b);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *pa = brim_fs_join(a, names[i]), *pb = brim_fs_join(b, names[i]);
    assert_same_file(pa, pb);
    brim_free(pa);
    brim_free(pb);
  }
}

//---------------------------------- evaluations ----------------------------------

// Half an evaluation has added to the sums of losses: training must not count them.
static void test_half_an_evaluation(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  thin.evaluation = 1;
  thin.at_once = true;
  assert_ok(run("none", false, NULL, 0, &r));
  reset();
  thin.evaluation = 1;
  thin.op = BRIM_OP_XENT;
  thin.runs = 2;
  assert_ok(run("half", false, NULL, 0, &r));
  assert_int_equal(thin.runs, 0);
  assert_same_run("none", "half");
}

// Nothing smaller fits after half of the evaluation of epoch `number`: the run ends. The resumed run evaluates that
// epoch and gives the same result as an undisturbed one.
static void dies_in_evaluation(const char *folder, const char *whole, int64_t number,
                               const char *const *overrides, size_t count) {
  brim_run_result r;
  reset();
  thin.evaluation = number;
  thin.op = BRIM_OP_XENT;
  thin.runs = 2;
  thin.no_more = true;
  assert_status(run(folder, false, overrides, count, &r), BRIM_EOOM);
  assert_non_null(strstr(brim_status_detail(), "--resume begins with its evaluation"));
  reset();
  assert_ok(run(folder, true, overrides, count, &r));
  assert_true(isfinite(eval_of(&r, "loss")) != 0);
  assert_same_run(whole, folder);
}

static void test_an_epoch_is_evaluated_later(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("whole", false, NULL, 0, &r));
  assert_int_equal(r.steps, 15);
  dies_in_evaluation("first", "whole", 1, NULL, 0);
  dies_in_evaluation("last", "whole", 3, NULL, 0);
}

// The epoch's row was written, but not the checkpoint after it: the resumed run logs the epoch once.
static void test_a_row_without_its_checkpoint(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  thin.evaluation = 2;
  thin.at_once = true;
  thin.no_more = true;
  assert_status(run("torn", false, NULL, 0, &r), BRIM_EOOM);
  assert_ok(brim_fs_append_line("torn/log.csv", "2,10,0.01,1,1,1,1,1,1"));
  assert_ok(brim_fs_append_line("torn/log.jsonl", "{\"event\":\"epoch\",\"epoch\":2,\"step\":10}"));
  reset();
  assert_ok(run("torn", true, NULL, 0, &r));
  assert_same_run("whole", "torn");
  char *text = slurp("torn", "log.jsonl");
  int rows = 0;
  for (const char *p = strstr(text, "\"event\":\"epoch\""); p;
       p = strstr(p + 1, "\"event\":\"epoch\""))
    rows++;
  assert_int_equal(rows, 3);
  brim_free(text);
}

//---------------------------------- steps ----------------------------------

// The `runs`-th run of an operation fails in step 7: running statistics and sums have changed, and are restored.
static void fails_in_step(const char *folder, brim_op op, int runs, const char *const *overrides,
                          size_t count) {
  brim_run_result r;
  reset();
  thin.step = 7;
  thin.op = op;
  thin.runs = runs;
  assert_ok(run(folder, false, overrides, count, &r));
  assert_int_equal(thin.runs, 0);
  assert_int_equal(r.steps, 15);
}

static void test_half_a_step(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  thin.step = 7;
  thin.at_once = true;
  assert_ok(run("before", false, NULL, 0, &r));
  fails_in_step("second", BRIM_OP_BATCHNORM, 25, NULL, 0);  // of 20 in one micro-batch
  assert_same_run("before", "second");
  assert_true(thin.loaded[1] > 0 && thin.loaded[2] > 0 && thin.loaded[3] > 0);
  fails_in_step("backward", BRIM_OP_BATCHNORM_BWD, 1, NULL, 0);  // in the first micro-batch
  assert_same_run("before", "backward");
  fails_in_step("norm", BRIM_OP_GRAD_NORM, 1, NULL, 0);
  assert_same_run("before", "norm");
  // nothing smaller fits: the checkpoint has six steps, and continuing from it gives the undisturbed result
  reset();
  assert_ok(run("calm", false, NULL, 0, &r));
  reset();
  thin.step = 7;
  thin.op = BRIM_OP_BATCHNORM;
  thin.runs = 25;
  thin.no_more = true;
  assert_status(run("stops", false, NULL, 0, &r), BRIM_EOOM);
  reset();
  assert_ok(run("stops", true, NULL, 0, &r));
  assert_same_run("calm", "stops");
}

static const char *const pairs[] = {"workload=contrastive", "transform.train=views | random_flip",
                                    "model=simclr(backbone=resnet18(width=2), hidden=16, dim=8)",
                                    "contrastive.accumulation=exact", "contrastive.probe_epochs=0"};

static void test_half_an_exact_step(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  thin.step = 7;
  thin.at_once = true;
  assert_ok(run("exact", false, pairs, 5, &r));
  fails_in_step("exact2", BRIM_OP_BATCHNORM_BWD, 25, pairs, 5);
  assert_same_run("exact", "exact2");
}

// Features that are NaN have no neighbours: an accuracy of 0 % must not count as the best.
static void test_dead_features(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  thin.all_bad = true;
  assert_status(run("dead", false, pairs, 5, &r), BRIM_ESTATE);
  assert_non_null(strstr(brim_status_detail(), "diverged in epoch 1"));
  assert_int_equal(r.best_epoch, 0);
  assert_false(brim_fs_exists("dead/best.safetensors"));
  assert_false(brim_fs_exists("dead/last.safetensors"));
}

// The optimizer has moved the weights: the step must not be repeated.
static void test_the_end_of_a_step(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  thin.step = 7;
  thin.op = BRIM_OP_STEP_END;
  thin.runs = 1;
  assert_status(run("moved", false, NULL, 0, &r), BRIM_EDEVICE);
  assert_non_null(strstr(brim_status_detail(), "--resume"));
  reset();
  assert_ok(run("moved", true, NULL, 0, &r));
  assert_same_run("calm", "moved");
}

//---------------------------------- what an epoch is ----------------------------------

// 1000 samples in batches of 256 without the remainder: three steps and the same rates, however small the micro-batches
// become.
static void test_drop_last(void **state) {
  (void)state;
  brim_run_result whole, small;
  const char *const plain[] = {"dataset=synthetic(shape=(6, 6), classes=4, samples=1000)",
                               "model=mlp(depth=1, hidden=8)",
                               "scheduler=cosine",
                               "data.batch_size=256",
                               "training.gradient_accumulation_steps=1",
                               "data.drop_last=true"};
  reset();
  assert_ok(run("dropped", false, plain, 6, &whole));
  assert_int_equal(whole.steps, 9);
  reset();
  thin.step = 5;
  thin.at_once = true;
  assert_ok(run("dropped2", false, plain, 6, &small));
  assert_int_equal(small.steps, 9);
  assert_true(fabs(small.lr - whole.lr) < 1e-15);
  assert_true(fabs(train_of(&small, "loss") - train_of(&whole, "loss")) < 1e-3);
  // 12 x 5: its divisor 10 does not divide 12, and its epochs would have another length
  const char *const odd[] = {"dataset=synthetic(shape=(6, 6), classes=4, samples=1000)",
                             "model=mlp(depth=1, hidden=8)",
                             "scheduler=cosine",
                             "data.batch_size=12",
                             "training.gradient_accumulation_steps=5",
                             "data.drop_last=true",
                             "data.eval_batch_size=12"};  // otherwise evaluation gives way first
  reset();
  thin.step = 5;
  thin.at_once = true;
  assert_ok(run("dropped3", false, odd, 7, &small));
  char *text = slurp("dropped3", "log.jsonl");
  assert_non_null(strstr(text, "\"batch_size\":6,\"accumulation\":10"));
  brim_free(text);
  assert_int_equal(small.steps, 51);  // 996 samples in steps of 60, three epochs
}

// Counts whose product overflows int64_t (a sanitizer sees it) fit no step.
static void test_adaptions_beyond_numbers(void **state) {
  (void)state;
  static const char *const texts[] = {"1:5:9223372036854775807", "1:9223372036854775807:2",
                                      "1:32:576460752303423489", "1:8:4 2:0:32"};
  fixture f;
  brim_run_adapt adapt;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    json_t *extra = json_pack("{s:s}", "brim.adapted", texts[i]);
    assert_non_null(extra);
    assert_ok(f.work->table->save(f.work->state, "beyond.safetensors", extra, false));
    json_decref(extra);
    brim_run_adapt_init(&adapt, f.work, f.config);
    assert_ok(brim_run_adapt_take(&adapt, f.work, "beyond.safetensors"));
    assert_int_equal(adapt.count, 0);
    assert_int_equal(adapt.setting.value[adapt.batch], 16);
  }
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_half_an_evaluation),
      cmocka_unit_test(test_an_epoch_is_evaluated_later),
      cmocka_unit_test(test_a_row_without_its_checkpoint),
      cmocka_unit_test(test_half_a_step),
      cmocka_unit_test(test_half_an_exact_step),
      cmocka_unit_test(test_dead_features),
      cmocka_unit_test(test_the_end_of_a_step),
      cmocka_unit_test(test_drop_last),
      cmocka_unit_test(test_adaptions_beyond_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
