// Evaluation on images of another size than training's: the same results as a network made for that size, by accuracy
// and by neighbours; its plan, its refusals, and its description in a checkpoint.
#include <math.h>

#include "workload/fixture.h"
#include "workload/learn/learn_trained.h"
#include "workload/workload_int.h"

static const char yaml[] =
    "dataset: synthetic(shape=(20, 16, 3), classes=4, samples=96, val_samples=40, noise=0.3)\n"
    "transform: {train: 'random_crop(size=(20, 16), padding=2) | random_flip',\n"
    "            val: 'resize(size=(28, 70))'}\n"
    "model: resnet18(width=4)\n"  // its stem changes from 65 pixels on
    "optimizer: sgd(lr=0.05)\n"
    "data: {batch_size: 16, num_workers: 2, eval_batch_size: 11}\n"
    "training: {epochs: 3}\n"
    "seed: 7\n";

static const char contrastive_yaml[] =
    "workload: contrastive\n"
    "dataset: synthetic(shape=(8, 8, 3), classes=4, samples=150, noise=0.3)\n"
    "transform: {train: 'views | random_flip | cutout(size=3)', val: 'resize(size=12)'}\n"
    "model: simclr(backbone=resnet18(width=4), hidden=16, dim=8)\n"
    "optimizer: adamw(lr=1e-2)\n"
    "data: {batch_size: 8, num_workers: 2, eval_batch_size: 11}\n"
    "training: {gradient_accumulation_steps: 4}\n"
    "contrastive: {knn_k: 5, probe_epochs: 5}\n"
    "seed: 5\n";

static void open_on(fixture *f, const char *device, const char *text, const char *const *overrides,
                    size_t count) {
  if (fixture_open(f, device, text, overrides, count)) {
    fixture_close(f);
    BRIM_SKIP(brim_status_detail());
  }
  assert_ok(fixture_configure(f));
}

static void train(fixture *f, int steps) {
  brim_step_info info;
  for (int i = 0; i < steps; i++) assert_ok(f->work->table->step(f->work->state, NULL, &info));
}

// Trains at its own size and evaluates at another, by turns; then loads the weights into a network made for the other
// size.
static void evaluated_on(const char *device, const char *text, const char *const *made, size_t n) {
  fixture f;
  brim_work_info info;
  brim_work_metrics first, m, same;
  open_on(&f, device, text, NULL, 0);
  f.work->table->info(f.work->state, &info);
  assert_true(info.eval_size[0] > 0);
  assert_ok(brim_work_evaluate(f.work, &first));
  train(&f, 4);
  assert_ok(brim_work_evaluate(f.work, &m));
  assert_true(m.samples == info.eval_samples);
  assert_true(isnan(figure(m, "loss")) || figure(m, "loss") != figure(first, "loss"));
  train(&f, 2);
  assert_ok(brim_work_evaluate(f.work, &m));
  assert_ok(f.work->table->save(f.work->state, "sized.safetensors", NULL, false));
  fixture_close(&f);
  open_on(&f, device, text, made, n);
  f.work->table->info(f.work->state, &info);
  assert_int_equal(info.eval_size[0], 0);
  assert_ok(f.work->table->load(f.work->state, "sized.safetensors", NULL));
  assert_ok(brim_work_evaluate(f.work, &same));
  assert_true(deciding(m) == deciding(same));
  if (!isnan(figure(m, "loss")))
    assert_true(fabs(figure(m, "loss") - figure(same, "loss")) <= 1e-6 * figure(m, "loss"));
  fixture_close(&f);
}

static void on(const char *device) {
  const char *const made[] = {"transform.train=resize(size=(28, 70))",
                              "model=resnet18(width=4, stem=cifar)"};
  const char *const features[] = {"transform.train=views | resize(size=12) | random_flip"};
  evaluated_on(device, yaml, made, 2);
  evaluated_on(device, contrastive_yaml, features, 1);
}

static void test_on_ref(void **state) {
  (void)state;
  on("ref");
}

static void test_on_cpu(void **state) {
  (void)state;
  on("cpu");
}

static void test_on_cuda(void **state) {
  (void)state;
  on("cuda");
}

// Evaluation does not change training.
static void test_training_does_not_change(void **state) {
  (void)state;
  const char *const usual[] = {"transform.val=random_flip(p=0)"};
  brim_work_metrics m[2];
  for (int i = 0; i < 2; i++) {
    fixture f;
    open_on(&f, "ref", yaml, usual, (size_t)i);
    train(&f, 3);
    assert_ok(f.work->table->metrics(f.work->state, true, &m[i]));
    fixture_close(&f);
  }
  assert_true(figure(m[0], "loss") == figure(m[1], "loss"));
}

// The plan includes the larger images of evaluation.
static void test_planned(void **state) {
  (void)state;
  const char *const larger[] = {"transform.val=resize(size=200)", "data.eval_batch_size=64"};
  const char *const usual[] = {"transform.val=random_flip(p=0)", "data.eval_batch_size=64"};
  uint64_t bytes[2];
  for (int i = 0; i < 2; i++) {
    fixture f;
    brim_plan plan;
    memset(&plan, 0, sizeof plan);
    assert_ok(fixture_open(&f, "ref", yaml, i ? larger : usual, 2));
    brim_setting setting = brim_work_setting(f.work);
    assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
    bytes[i] = plan.bytes[BRIM_PLACE_DEVICE];
    fixture_close(&f);
  }
  assert_true(bytes[1] > 4 * bytes[0]);
}

static void refuses(const char *const *overrides, size_t count, const char *says) {
  fixture f;
  brim_status status = fixture_open(&f, "ref", yaml, overrides, count);
  if (!status) status = fixture_configure(&f);
  assert_status(status, BRIM_EINVAL);
  if (!strstr(brim_status_detail(), says))
    fail_msg("'%s' is not in: %s", says, brim_status_detail());
  fixture_close(&f);
}

static void test_refused(void **state) {
  (void)state;
  const char *const dense[] = {"model=mlp(depth=1, hidden=8)"};
  refuses(dense, 1, "model mlp works with images of 20 x 16 only");
  const char *const floats[] = {"transform.val=resize(size=24) | cast(dtype=float32)"};
  refuses(floats, 1, "different shape or type");
  const char *const huge[] = {"transform.val=resize(size=65536)"};
  refuses(huge, 1, "dimension 1 of a sample is 65536: out of range");
}

static char said[1024];

static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx, (void)level, (void)module;
  snprintf(said, sizeof said, "%s", text);
}

static void test_smaller_ones_are_told_of(void **state) {
  (void)state;
  static const char *const sizes[] = {"transform.val=resize(size=(20, 15))",
                                      "transform.val=resize(size=(20, 17))"};
  for (int i = 0; i < 2; i++) {
    fixture f;
    said[0] = 0;
    brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
    open_on(&f, "ref", yaml, &sizes[i], 1);
    brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
    assert_int_equal(strstr(said, "20 x 15, smaller than the 20 x 16 of training") != NULL, i == 0);
    fixture_close(&f);
  }
}

// Every use of the checkpoint takes the size of evaluation.
static void test_checkpoint(void **state) {
  (void)state;
  fixture f;
  brim_trained *t;
  brim_net_spec spec;
  open_on(&f, "ref", yaml, NULL, 0);
  assert_ok(f.work->table->save(f.work->state, "trained.safetensors", NULL, false));
  assert_ok(brim_trained_open("trained.safetensors", &t));
  assert_int_equal(t->input_dim[1], 16);
  assert_int_equal(t->eval_dim[0], 28);
  assert_int_equal(brim_trained_dim(t)[1], 70);
  assert_ok(brim_trained_spec(t, f.config, &spec));
  assert_memory_equal(spec.eval_dim, t->eval_dim, sizeof spec.eval_dim);
  brim_trained_close(t);
  fixture_close(&f);
}

// An evaluation batch is never larger than the set, and it is the first to shrink when memory is short.
static void test_evaluation_batches(void **state) {
  (void)state;
  fixture f;
  brim_work_info info;
  brim_plan large, small;
  const char *const absurd[] = {"data.eval_batch_size=3000000"};
  open_on(&f, "ref", yaml, absurd, 1);
  f.work->table->info(f.work->state, &info);
  assert_int_equal(info.eval_batch, 40);
  brim_setting setting = brim_work_setting(f.work);
  assert_ok(f.work->table->plan(f.work->state, &setting, &large));
  assert_true(f.work->table->batches->free_optional(f.work->state, &setting));
  assert_false(f.work->table->batches->free_optional(f.work->state, &setting));
  assert_ok(f.work->table->plan(f.work->state, &setting, &small));
  assert_true(small.bytes[BRIM_PLACE_DEVICE] < large.bytes[BRIM_PLACE_DEVICE]);
  assert_ok(fixture_configure(&f));
  f.work->table->info(f.work->state, &info);
  assert_int_equal(info.eval_batch, 16);
  assert_int_equal(info.batch, 16);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_on_ref),
      cmocka_unit_test(test_on_cpu),
      cmocka_unit_test(test_on_cuda),
      cmocka_unit_test(test_training_does_not_change),
      cmocka_unit_test(test_planned),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_smaller_ones_are_told_of),
      cmocka_unit_test(test_checkpoint),
      cmocka_unit_test(test_evaluation_batches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
