// Stops while a run makes no steps, in an evaluation and in the linear probe: the run ends there, nothing is lost, and
// the resumed run makes up the rest.
#include <math.h>

#include "base/base_thread.h"
#include "run/run_test.h"

#define PAIRS(batch, training, contrastive)                                  \
  "workload: contrastive\n"                                                  \
  "dataset: synthetic(shape=(4, 4, 3), classes=4, samples=160, noise=0.5)\n" \
  "transform: {train: 'views | random_flip | cutout(size=3)'}\n"             \
  "model: simclr(backbone=resnet18(width=2), hidden=16, dim=8)\n"            \
  "optimizer: adamw(lr=1e-2)\n"                                              \
  "data: {num_workers: 0, batch_size: " batch                                \
  "}\n"                                                                      \
  "training: {epochs: 3" training                                            \
  "}\n"                                                                      \
  "contrastive: {knn_k: 5, " contrastive                                     \
  "}\n"                                                                      \
  "seed: 5\n"
static const char pairs_yaml[] = PAIRS("32", "", "probe_epochs: 5");

static struct {
  const brim_workload_table *real;
  brim_workload_table table;
  int evaluation, probe;  // a stop is requested in this one, from 1; 0 = never
  int evaluations, probes;
  volatile sig_atomic_t stop;
  bool breaks;  // the evaluation fails instead of being stopped
} ask;

static brim_status asking_evaluate(void *work, brim_work_metrics *out) {
  if (++ask.evaluations == ask.evaluation) {
    if (ask.breaks) return brim_fail(BRIM_EPARSE, "this sample is broken");
    ask.stop = 1;
  }
  return ask.real->evaluation->evaluate(work, out);
}

static brim_status asking_probe(void *work, brim_work_metrics *out) {
  if (++ask.probes == ask.probe) ask.stop = 1;
  return ask.real->features->probe(work, out);
}

static brim_status go(const char *folder, const char *yaml, bool resume, int evaluation, int probe,
                      brim_run_result *out) {
  fixture f;
  bool breaks = ask.breaks;
  memset(&ask, 0, sizeof ask);
  ask.breaks = breaks;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  ask.real = f.work->table;
  ask.table = *ask.real;
  static const brim_work_evaluation_table asking = {.evaluate = asking_evaluate};
  ask.table.evaluation = &asking;
  static brim_work_features_table features;
  if (ask.real->features) {
    features = *ask.real->features;
    features.probe = asking_probe;
    ask.table.features = &features;
  }
  ask.evaluation = evaluation;
  ask.probe = probe;
  f.work->table = &ask.table;
  brim_run_options options = {.output_dir = folder, .resume = resume, .stop = &ask.stop};
  brim_status status = brim_run_train(f.work, f.config, &options, out);
  f.work->table = ask.real;
  fixture_close(&f);
  return status;
}

static int rows_of(const char *folder, const char *event) {
  char *log = slurp(folder, "log.jsonl"), word[64];
  snprintf(word, sizeof word, "\"event\":\"%s\"", event);
  int n = count_of(log, word);
  brim_free(log);
  return n;
}

static void check_evaluation(const char *yaml, const char *whole, const char *cut) {
  brim_run_result plain, r;
  fresh(whole);
  fresh(cut);
  assert_ok(go(whole, yaml, false, 0, 0, &plain));
  assert_status(go(cut, yaml, false, 2, 0, &r), BRIM_EINTERRUPTED);
  assert_true(r.interrupted);
  assert_int_equal(r.steps, plain.steps / 3 * 2);
  assert_int_equal(ask.evaluations, 2);
  assert_true(exists(cut, "last.safetensors"));
  assert_int_equal(rows_of(cut, "epoch"), 1);
  // and stopped again, before anything else happens
  assert_status(go(cut, yaml, true, 1, 0, &r), BRIM_EINTERRUPTED);
  assert_int_equal(r.steps_run, 0);
  assert_int_equal(rows_of(cut, "epoch"), 1);
  assert_ok(go(cut, yaml, true, 0, 0, &r));
  assert_int_equal(r.steps_run, plain.steps / 3);
  assert_int_equal(ask.evaluations, 2);  // of the second and the third epoch
  assert_true(evaluated(&r) == evaluated(&plain));
  assert_int_equal(r.best_epoch, plain.best_epoch);
  assert_int_equal(rows_of(cut, "epoch"), 3);
  char *log = slurp(cut, "log.jsonl");
  assert_int_equal(count_of(log, "\"seconds\":null"), 1);  // an earlier process made the steps
  brim_free(log);
  assert_same(whole, cut, "model.safetensors");
  assert_same(whole, cut, "last.safetensors");
  assert_same(whole, cut, "best.safetensors");
}

static void test_in_an_evaluation(void **state) {
  (void)state;
  check_evaluation(fixture_yaml, "whole", "cut");
}

// A failing evaluation costs only itself.
static void test_not_evaluated(void **state) {
  (void)state;
  brim_run_result plain, r;
  fresh("whole");
  fresh("broken");
  assert_ok(go("whole", fixture_yaml, false, 0, 0, &plain));
  ask.breaks = true;
  brim_status status = go("broken", fixture_yaml, false, 1, 0, &r);
  ask.breaks = false;
  assert_status(status, BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), "this sample is broken"));
  assert_non_null(strstr(brim_status_detail(), "--resume begins with its evaluation"));
  assert_true(exists("broken", "last.safetensors"));
  assert_ok(go("broken", fixture_yaml, true, 0, 0, &r));
  assert_int_equal(r.steps_run, plain.steps / 3 * 2);
  assert_int_equal(ask.evaluations, 3);
  assert_same("whole", "broken", "model.safetensors");
  assert_same("whole", "broken", "last.safetensors");
  assert_same("whole", "broken", "best.safetensors");
}

static void test_among_neighbours(void **state) {
  (void)state;
  check_evaluation(pairs_yaml, "pairs", "pairs_cut");
}

// Averaged weights take their statistics from batches before they are evaluated. A stopped recalibration begins again,
// and training's place in the data does not change.
static void test_before_an_average_is_evaluated(void **state) {
  (void)state;
  static const char images_yaml[] =
      "dataset: synthetic(shape=(4, 4, 3), classes=4, samples=150, noise=0.5)\n"
      "transform: {train: random_flip}\n"
      "model: resnet18(width=2)\n"
      "optimizer: sgd(lr=0.05)\n"
      "data: {batch_size: 32, num_workers: 2}\n"
      "training: {epochs: 3, ema_decay: 0.9, ema_batches: 7}\n"
      "seed: 5\n";
  static const char exact_yaml[] =
      PAIRS("16", ", gradient_accumulation_steps: 2, ema_decay: 0.9, ema_batches: 3",
            "probe_epochs: 2, accumulation: exact");
  check_evaluation(images_yaml, "images", "images_cut");
  check_evaluation(exact_yaml, "exact", "exact_cut");
}

static void test_in_the_probe(void **state) {
  (void)state;
  brim_run_result plain, r;
  fresh("probed");
  fresh("probe_cut");
  assert_ok(go("probed", pairs_yaml, false, 0, 0, &plain));
  assert_true(isfinite(metric_value(plain.metrics, plain.probe, "probe")) != 0);
  assert_status(go("probe_cut", pairs_yaml, false, 0, 1, &r), BRIM_EINTERRUPTED);
  assert_true(r.interrupted);
  assert_int_equal(r.steps, plain.steps);
  assert_int_equal(rows_of("probe_cut", "probe"), 0);
  assert_false(exists("probe_cut", "model.safetensors"));  // the run does not count as done
  assert_ok(go("probe_cut", pairs_yaml, true, 0, 0, &r));
  assert_int_equal(r.steps_run, 0);
  assert_true(metric_value(r.metrics, r.probe, "probe") ==
              metric_value(plain.metrics, plain.probe, "probe"));
  assert_int_equal(rows_of("probe_cut", "probe"), 1);
  assert_int_equal(rows_of("probe_cut", "epoch"), 3);
  assert_same("probed", "probe_cut", "model.safetensors");
  // once is enough; a resumed run knows the best figure without evaluating
  assert_ok(go("probe_cut", pairs_yaml, true, 0, 0, &r));
  assert_int_equal(brim_metric_deciding(r.metrics, BRIM_METRIC_EVAL, r.eval, true),
                   brim_metric_find(r.metrics, "knn"));
  assert_int_equal(ask.probes, 0);
  assert_int_equal(rows_of("probe_cut", "probe"), 1);
}

static void test_a_folder_where_a_file_will_be(void **state) {
  (void)state;
  static const char *const names[] = {"last", "best", "model"};
  brim_run_result r;
  for (int i = 0; i < 3; i++) {
    char path[64];
    fresh("taken");
    snprintf(path, sizeof path, "taken/%s.safetensors", names[i]);
    assert_ok(brim_fs_mkdirs(path));
    assert_status(go("taken", fixture_yaml, false, 0, 0, &r), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), path));
    assert_false(exists("taken", "log.jsonl"));
  }
}

// The return of random actions is measured before the first step. A stop in that phase is obeyed, and nothing is
// written.
static void test_in_the_baseline(void **state) {
  (void)state;
  static const char yaml[] =
      "workload: mappo\nenv: cartpole\nmodel: actor_critic(hidden=8)\n"
      "mappo: {num_envs: 2, rollout_steps: 8, minibatches: 2, iterations: 2, eval_episodes: 4}\n";
  const volatile sig_atomic_t stop = 1;
  brim_run_result result;
  fixture f;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  if (system("rm -rf not-begun")) fail();
  brim_run_options options = {.output_dir = "not-begun", .stop = &stop};
  assert_status(brim_run_train(f.work, f.config, &options, &result), BRIM_EINTERRUPTED);
  assert_string_equal(brim_status_detail(),
                      "interrupted before training began; nothing was written");
  assert_false(brim_fs_exists("not-begun"));
  options.stop = NULL;
  assert_ok(brim_run_train(f.work, f.config, &options, &result));
  assert_int_equal(result.steps, 2);
  fixture_close(&f);
}

// A stop is obeyed while ops are planned or prepared, which takes minutes for some networks.
static void test_in_the_plan(void **state) {
  (void)state;
  const volatile sig_atomic_t stop = 1;
  brim_run_result result;
  brim_plan plan;
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const brim_setting setting = brim_work_setting(f.work);
  if (system("rm -rf not-begun")) fail();
  brim_stop_watch(&stop);
  assert_status(f.work->table->plan(f.work->state, &setting, &plan), BRIM_EINTERRUPTED);
  assert_status(f.work->table->configure(f.work->state, &setting), BRIM_EINTERRUPTED);
  brim_run_options options = {.output_dir = "not-begun", .stop = &stop};
  assert_status(brim_run_train(f.work, f.config, &options, &result), BRIM_EINTERRUPTED);
  assert_string_equal(brim_status_detail(),
                      "interrupted before training began; nothing was written");
  assert_false(brim_fs_exists("not-begun"));
  brim_stop_watch(NULL);
  assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_in_an_evaluation),
      cmocka_unit_test(test_not_evaluated),
      cmocka_unit_test(test_among_neighbours),
      cmocka_unit_test(test_before_an_average_is_evaluated),
      cmocka_unit_test(test_in_the_probe),
      cmocka_unit_test(test_in_the_baseline),
      cmocka_unit_test(test_in_the_plan),
      cmocka_unit_test(test_a_folder_where_a_file_will_be),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
