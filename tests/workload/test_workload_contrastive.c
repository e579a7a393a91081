// The contrastive workload: evaluation by neighbours and by a linear probe, with a bank of its own if the training set
// has no labels; exact and plain accumulation; whole steps; checkpoints.
#include <math.h>

#include "same_file.h"
#include "workload/fixture.h"
#include "workload/learn/learn.h"

static const char yaml[] =
    "workload: contrastive\n"
    "dataset: synthetic(shape=(8, 8, 3), classes=4, samples=150, noise=0.3)\n"
    "transform: {train: 'views | random_flip | cutout(size=3)'}\n"
    "model: simclr(backbone=resnet18(width=4), hidden=16, dim=8)\n"
    "optimizer: adamw(lr=1e-2)\n"
    "data: {batch_size: 8, num_workers: 2, eval_batch_size: 11}\n"
    "training: {gradient_accumulation_steps: 4}\n"
    "contrastive: {knn_k: 5, probe_epochs: 20}\n"
    "seed: 5\n";

static const brim_learn *inside(const fixture *f) { return (const brim_learn *)f->work->state; }

static char said[4096];

static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx, (void)level, (void)module;
  size_t n = strlen(said);
  snprintf(said + n, sizeof said - n, "%s\n", text);
}

static void listen(void) {
  said[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_INFO);
}

static void hush(void) { brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR); }

static void steps(fixture *f, int n, brim_step_info *last) {
  for (int i = 0; i < n; i++) assert_ok(f->work->table->step(f->work->state, NULL, last));
}

static void evaluated_on(const char *device) {
  fixture f;
  brim_work_info info;
  brim_step_info step;
  brim_work_metrics m, again, probe;
  if (fixture_open(&f, device, yaml, NULL, 0)) {
    fixture_close(&f);
    BRIM_SKIP(brim_status_detail());
  }
  assert_ok(fixture_configure(&f));
  f.work->table->info(f.work->state, &info);
  assert_int_equal(info.samples_per_epoch, 128);  // whole steps of 32
  assert_int_equal(info.steps_per_epoch, 4);
  assert_int_equal(info.batch, 8);
  assert_int_equal(info.accumulation, 4);
  assert_string_equal(info.accumulates, "exact");
  assert_true(info.eval_samples > 0);
  steps(&f, 9, &step);
  assert_int_equal(step.epoch, 2);
  assert_ok(brim_work_evaluate(f.work, &m));
  assert_string_equal(deciding_key(m), "knn");
  assert_true(isnan(figure(m, "loss")));
  assert_int_equal(m.samples, info.eval_samples);
  assert_true(figure(m, "knn") > 0.5);  // chance gives a quarter
  assert_ok(brim_work_evaluate(f.work, &again));
  assert_true(figure(again, "knn") == figure(m, "knn"));
  assert_ok(f.work->table->features->probe(f.work->state, &probe));
  assert_true(figure(probe, "probe") > 0.5 && isfinite(figure(probe, "probe_loss")));
  assert_ok(f.work->table->features->probe(f.work->state, &again));
  assert_true(figure(again, "probe") == figure(probe, "probe"));
  assert_true(figure(again, "probe_loss") == figure(probe, "probe_loss"));
  // the sums of training continue as if there had been no evaluation
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_int_equal(m.samples, 9 * 32);
  assert_true(isfinite(figure(m, "loss")) && isnan(figure(m, "knn")));
  fixture_close(&f);
}

static void test_evaluated_on_ref(void **state) {
  (void)state;
  evaluated_on("ref");
}

static void test_evaluated_on_cpu(void **state) {
  (void)state;
  evaluated_on("cpu");
}

static void test_evaluated_on_cuda(void **state) {
  (void)state;
  evaluated_on("cuda");
}

// Training uses the samples without labels; the labelled split of the same component is the bank.
static void test_unlabelled(void **state) {
  (void)state;
  const char *const overrides[] = {
      "dataset=synthetic(shape=(8, 8, 3), classes=4, samples=150, noise=0.3, split=unlabeled, "
      "unlabeled_samples=90)"};
  fixture f;
  brim_work_metrics m;
  brim_step_info step;
  assert_ok(fixture_open(&f, "ref", yaml, overrides, 1));
  assert_ok(fixture_configure(&f));
  assert_int_equal(inside(&f)->spec.neighbours.bank, 150);
  assert_int_equal(inside(&f)->epoch_samples, 64);
  steps(&f, 4, &step);
  assert_ok(brim_work_evaluate(f.work, &m));
  assert_true(figure(m, "knn") > 0.4);
  fixture_close(&f);
}

//---------------------------------- accumulation ----------------------------------

static double loss_of(const char *const *overrides, size_t count, const char *how) {
  fixture f;
  brim_work_info info;
  brim_work_metrics m;
  brim_step_info step;
  assert_ok(fixture_open(&f, "ref", yaml, overrides, count));
  assert_ok(fixture_configure(&f));
  f.work->table->info(f.work->state, &info);
  assert_string_equal(info.accumulates, how);
  steps(&f, 1, &step);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  fixture_close(&f);
  return figure(m, "loss");
}

// An untrained network's loss is about the logarithm of the number of other samples.
static void test_accumulation(void **state) {
  (void)state;
  const char *const plain[] = {"contrastive.accumulation=plain"};
  const char *const exact[] = {"contrastive.accumulation=exact"};
  listen();
  double of_eight = loss_of(plain, 1, "plain");
  assert_non_null(strstr(said, "accumulation: plain, negatives are those of a micro-batch of 8"));
  listen();
  double of_all = loss_of(exact, 1, "exact");
  assert_non_null(strstr(said, "accumulation: exact, each of 32 samples has all others"));
  hush();
  assert_true(of_all > of_eight + 0.8);  // log(63 / 15) is 1.4
  assert_true(loss_of(NULL, 0, "exact") == of_all);
}

// `auto` decides by cost: exact accumulation does not pay for a model that is nearly all forward pass.
static void test_cost(void **state) {
  (void)state;
  fixture f;
  brim_plan plain, exact;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  brim_learn *w = (brim_learn *)f.work->state;
  brim_setting setting = brim_work_setting(f.work);
  w->pairs.accumulation = BRIM_ACCUMULATION_PLAIN;
  assert_ok(f.work->table->plan(f.work->state, &setting, &plain));
  w->pairs.accumulation = BRIM_ACCUMULATION_AUTO;
  assert_ok(f.work->table->plan(f.work->state, &setting, &exact));
  double cost = exact.flops_per_step / plain.flops_per_step - 1;
  assert_true(cost > 0.3 && cost < 0.4);
  assert_true(fabs(w->pairs.exact_cost - cost) < 1e-9);
  w->pairs.exact_cost = 0.41;
  assert_ok(f.work->table->plan(f.work->state, &setting, &exact));
  assert_true(exact.flops_per_step == plain.flops_per_step);
  fixture_close(&f);
}

// The accumulation of a setting if exact costs too much for `auto`.
static const char *at_setting(fixture *f, int64_t batch, int64_t accumulation) {
  brim_work_info info;
  brim_setting setting = brim_work_setting(f->work);
  setting.value[BRIM_LEARN_BATCH] = batch;
  setting.value[BRIM_LEARN_ACCUMULATION] = accumulation;
  assert_ok(f->work->table->configure(f->work->state, &setting));
  f->work->table->info(f->work->state, &info);
  return info.accumulates;
}

// Out of memory, one batch becomes micro-batches: they keep its negatives, whatever the cost. Micro-batches that the
// config asks for have fewer, and brim reports that. A sweep tries each.
static void test_adapting_keeps_the_negatives(void **state) {
  (void)state;
  fixture f;
  json_t *meta;
  const char *const one[] = {"data.batch_size=32", "training.gradient_accumulation_steps=1"};
  assert_ok(fixture_open(&f, "ref", yaml, one, 2));
  ((brim_learn *)f.work->state)->pairs.exact_cost = 0.41;
  assert_string_equal(at_setting(&f, 8, 4), "plain");
  f.work->table->batches->allow_smaller(f.work->state);
  assert_string_equal(at_setting(&f, 8, 4), "exact");
  assert_ok(f.work->table->save(f.work->state, "adapted.safetensors", NULL, false));
  assert_ok(brim_work_metadata("adapted.safetensors", &meta));
  assert_string_equal(json_string_value(json_object_get(meta, "brim.accumulates")), "exact");
  json_decref(meta);
  fixture_close(&f);
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  ((brim_learn *)f.work->state)->pairs.exact_cost = 0.41;
  f.work->table->batches->allow_smaller(f.work->state);
  listen();
  assert_string_equal(at_setting(&f, 8, 4), "plain");
  assert_non_null(strstr(said, "negatives are those of a micro-batch of 8"));
  listen();
  assert_string_equal(at_setting(&f, 8, 4), "plain");
  assert_string_equal(said, "");
  assert_string_equal(at_setting(&f, 4, 8), "plain");
  assert_non_null(strstr(said, "negatives now come from the smaller micro-batch of 4"));
  hush();
  fixture_close(&f);
}

// A single sample has no other sample to contrast with.
static void test_one_sample_has_no_negatives(void **state) {
  (void)state;
  fixture f;
  const char *words[] = {"data.batch_size=1", "training.gradient_accumulation_steps=1",
                         "contrastive.accumulation=auto"};
  assert_ok(fixture_open(&f, "ref", yaml, words, 3));
  assert_status(fixture_configure(&f), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "a step of one sample has no negatives"));
  fixture_close(&f);
  words[1] = "training.gradient_accumulation_steps=30";
  assert_ok(fixture_open(&f, "ref", yaml, words, 3));
  ((brim_learn *)f.work->state)->pairs.exact_cost = 0.41;
  assert_string_equal(at_setting(&f, 1, 30), "exact");
  fixture_close(&f);
  words[2] = "contrastive.accumulation=plain";
  assert_ok(fixture_open(&f, "ref", yaml, words, 3));
  assert_status(fixture_configure(&f), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "contrastive.accumulation: exact"));
  // no sweep and no lack of memory chooses this setting
  brim_setting setting = brim_work_setting(f.work);
  assert_false(f.work->table->sensible(f.work->state, &setting));
  setting.value[BRIM_LEARN_BATCH] = 2;
  assert_true(f.work->table->sensible(f.work->state, &setting));
  fixture_close(&f);
}

// A device without a loss for so many rows: a config without exact gets plain.
static const brim_op_row *real_ntxent;
static brim_status few_rows(void *impl, const brim_op_call *call) {
  if (call->in[0].dim[0] > 16 || call->in[1].dim[0] > 16 || call->in[2].dim[0] > 16) {
    return brim_fail(BRIM_EUNSUPPORTED, "ntxent: too many rows");
  }
  return real_ntxent->validate(impl, call);
}

static void test_exact_is_impossible(void **state) {
  (void)state;
  static const struct {
    const char *how;
    brim_status status;
  } cases[] = {{"contrastive.accumulation=plain", BRIM_OK},
               {"contrastive.accumulation=auto", BRIM_OK},
               {"contrastive.accumulation=exact", BRIM_EUNSUPPORTED}};
  for (size_t i = 0; i < 3; i++) {
    fixture f;
    brim_work_info info;
    brim_op_row rows[BRIM_OP_COUNT];
    assert_ok(fixture_open(&f, "ref", yaml, &cases[i].how, 1));
    brim_backend backend = *f.device->backend;
    brim_op_family family = {.rows = rows};
    const brim_op_family *const families[] = {&family};
    for (int op = 0; op < BRIM_OP_COUNT; op++) {
      const brim_op_row *row = brim_backend_row(&backend, (brim_op)op);
      if (!row) continue;
      rows[family.count] = *row;
      if (op == BRIM_OP_NTXENT) {
        real_ntxent = row;
        rows[family.count].validate = few_rows;
      }
      family.count++;
    }
    backend.ops = families;
    backend.op_families = 1;
    f.device->backend = &backend;
    said[0] = 0;
    brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);  // the lines of a terminal
    assert_status(fixture_configure(&f), cases[i].status);
    hush();
    f.work->table->info(f.work->state, &info);
    if (!cases[i].status) assert_string_equal(info.accumulates, "plain");
    bool fell_back = strstr(cases[i].how, "auto") != NULL;
    assert_int_equal(strstr(said, "exact is not possible here: ") != NULL, fell_back);
    if (fell_back) assert_non_null(strstr(said, "ntxent: too many rows"));
    fixture_close(&f);
  }
}

// A resumed run keeps the choice of `auto` in its checkpoint, whatever `auto` would choose now.
static void test_the_choice_is_kept(void **state) {
  (void)state;
  fixture f;
  json_t *meta;
  brim_work_info info;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  ((brim_learn *)f.work->state)->pairs.exact_cost = 0.41;
  said[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
  assert_ok(fixture_configure(&f));
  hush();
  assert_non_null(strstr(said,
                         "accumulation: plain, negatives are those of a micro-batch of 8; "
                         "those of all 32 would cost 41 % more"));
  assert_ok(f.work->table->save(f.work->state, "choice.safetensors", NULL, false));
  fixture_close(&f);
  assert_ok(brim_work_metadata("choice.safetensors", &meta));
  assert_string_equal(json_string_value(json_object_get(meta, "brim.accumulates")), "plain");
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  f.work->table->resuming(f.work->state, meta);
  assert_ok(fixture_configure(&f));
  f.work->table->info(f.work->state, &info);
  assert_string_equal(info.accumulates, "plain");
  fixture_close(&f);
  json_decref(meta);
}

// A workload without contrast has no such choice.
static void test_no_choice_without_views(void **state) {
  (void)state;
  fixture f;
  json_t *meta;
  const char *const words[] = {"training.gradient_accumulation_steps=2"};
  assert_ok(fixture_open(&f, "ref", fixture_yaml, words, 1));
  assert_ok(fixture_configure(&f));
  assert_ok(f.work->table->save(f.work->state, "labels.safetensors", NULL, false));
  fixture_close(&f);
  assert_ok(brim_work_metadata("labels.safetensors", &meta));
  assert_null(json_object_get(meta, "brim.accumulates"));
  json_decref(meta);
}

//---------------------------------- checkpoints ----------------------------------

// Weights do not depend on workers, evaluations or interruptions.
static void test_resumes(void **state) {
  (void)state;
  const char *const workers[] = {"data.num_workers=0"};
  fixture f;
  brim_step_info step;
  brim_work_metrics m;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  steps(&f, 3, &step);
  assert_ok(f.work->table->save(f.work->state, "mid.safetensors", NULL, false));
  steps(&f, 3, &step);
  assert_ok(f.work->table->save(f.work->state, "whole.safetensors", NULL, false));
  fixture_close(&f);
  assert_ok(fixture_open(&f, "ref", yaml, workers, 1));
  assert_ok(fixture_configure(&f));
  assert_ok(f.work->table->load(f.work->state, "mid.safetensors", NULL));
  assert_ok(brim_work_evaluate(f.work, &m));
  steps(&f, 3, &step);
  assert_ok(f.work->table->features->probe(f.work->state, &m));
  assert_ok(f.work->table->save(f.work->state, "part.safetensors", NULL, false));
  fixture_close(&f);
  brim_safetensors *a, *b;
  assert_ok(brim_safetensors_open("whole.safetensors", &a));
  assert_ok(brim_safetensors_open("part.safetensors", &b));
  const json_t *meta = brim_safetensors_metadata(a);
  assert_string_equal(json_string_value(json_object_get(meta, "brim.workload")), "contrastive");
  assert_int_equal(brim_safetensors_count(a), brim_safetensors_count(b));
  for (size_t i = 0; i < brim_safetensors_count(a); i++) {
    const brim_safetensors_entry *x = brim_safetensors_at(a, i), *y = brim_safetensors_at(b, i);
    assert_int_equal(x->bytes, y->bytes);
    assert_memory_equal(x->data, y->data, x->bytes);
  }
  brim_safetensors_close(a);
  brim_safetensors_close(b);
}

//---------------------------------- what there is not ----------------------------------

static double first_loss(const char *text, const char *const *overrides, size_t count) {
  fixture f;
  brim_step_info info;
  brim_work_metrics m;
  assert_ok(fixture_open(&f, "ref", text, overrides, count));
  assert_ok(fixture_configure(&f));
  steps(&f, 1, &info);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  fixture_close(&f);
  return figure(m, "loss");
}

// A key of a loss applies whether or not the config names the loss.
static void test_keys_of_the_usual_loss(void **state) {
  (void)state;
  const char *const written[] = {"loss=ntxent(temperature=0.05)"};
  const char *const both[] = {"loss=ntxent", "contrastive.temperature=0.05"};
  const char *const key[] = {"contrastive.temperature=0.05"};
  double expected = first_loss(yaml, written, 1);
  assert_true(first_loss(yaml, NULL, 0) != expected);
  assert_true(first_loss(yaml, both, 2) == expected);
  assert_true(first_loss(yaml, key, 1) == expected);
  const char *const smooth[] = {"loss=cross_entropy(label_smoothing=0.3)"};
  const char *const smooth_key[] = {"training.label_smoothing=0.3"};
  expected = first_loss(fixture_yaml, smooth, 1);
  assert_true(first_loss(fixture_yaml, NULL, 0) != expected);
  assert_true(first_loss(fixture_yaml, smooth_key, 1) == expected);
  listen();
  first_loss(yaml, smooth_key, 1);
  hush();
  assert_non_null(strstr(said, "'training.label_smoothing' has no effect on 'ntxent'"));
}

static void test_no_projection(void **state) {
  (void)state;
  const char *const bare[] = {"model=resnet18(width=4)"};
  listen();
  first_loss(yaml, NULL, 0);
  assert_null(strstr(said, "no projection"));
  first_loss(yaml, bare, 1);
  hush();
  assert_non_null(strstr(said, "model resnet18 has no projection"));
  assert_non_null(strstr(said, "simclr(backbone=resnet18)"));
}

static void test_nothing_to_evaluate_by(void **state) {
  (void)state;
  const char *const three[] = {"contrastive.views=3"};
  const char *const none[] = {"contrastive.probe_epochs=0"};
  const char *const numbers[] = {
      "dataset=synthetic(shape=(8, 8, 3), classes=0, targets=2, samples=150)"};
  fixture f;
  brim_work_metrics m;
  assert_status(fixture_open(&f, "ref", yaml, three, 1), BRIM_EINVAL);
  fixture_close(&f);
  assert_ok(fixture_open(&f, "ref", yaml, none, 1));
  assert_ok(fixture_configure(&f));
  assert_status(f.work->table->features->probe(f.work->state, &m), BRIM_EUNSUPPORTED);
  fixture_close(&f);
  listen();
  brim_status status = fixture_open(&f, "ref", yaml, numbers, 1);
  hush();
  assert_ok(status);
  assert_non_null(strstr(said, "no evaluation"));
  assert_ok(fixture_configure(&f));
  brim_work_info info;
  f.work->table->info(f.work->state, &info);
  assert_int_equal(info.eval_samples, 0);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_evaluated_on_ref),
      cmocka_unit_test(test_evaluated_on_cpu),
      cmocka_unit_test(test_evaluated_on_cuda),
      cmocka_unit_test(test_unlabelled),
      cmocka_unit_test(test_accumulation),
      cmocka_unit_test(test_cost),
      cmocka_unit_test(test_adapting_keeps_the_negatives),
      cmocka_unit_test(test_one_sample_has_no_negatives),
      cmocka_unit_test(test_exact_is_impossible),
      cmocka_unit_test(test_the_choice_is_kept),
      cmocka_unit_test(test_no_choice_without_views),
      cmocka_unit_test(test_resumes),
      cmocka_unit_test(test_keys_of_the_usual_loss),
      cmocka_unit_test(test_no_projection),
      cmocka_unit_test(test_nothing_to_evaluate_by),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
