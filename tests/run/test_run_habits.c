// Long runs: early stopping, kept checkpoints, the newest whole checkpoint, a full disk, and averaged weights.
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/engine.h"
#include "run/run_test.h"

//---------------------------------- early stopping ----------------------------------

// Scripted evaluations: accuracy by epoch. The epoch follows from the count of steps.
static const double script[] = {0.50, 0.60, 0.605, 0.60, 0.609, 0.90, 0.95, 0.95};
static int64_t evaluated_at;  // set by each step

static brim_status noting_step(void *work, const brim_spans *spans, brim_step_info *out) {
  BRIM_TRY(brim_workload_find("supervised")->step(work, spans, out));
  evaluated_at = out->step;
  return BRIM_OK;
}

static brim_status scripted(void *work, brim_work_metrics *out) {
  BRIM_TRY(brim_workload_find("supervised")->evaluation->evaluate(work, out));
  out->values[BRIM_NET_ACCURACY] = script[(evaluated_at / 16 - 1) % 8];
  return BRIM_OK;
}

static void test_early_stopping(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  table.step = noting_step;
  static const brim_work_evaluation_table evaluation = {.evaluate = scripted};
  table.evaluation = &evaluation;
  fresh("stop");
  fresh("stop_cut");
  job j = {.folder = "stop",
           .overrides = {"training.epochs=8", "training.early_stopping_patience=3",
                         "training.early_stopping_delta=0.01"},
           .table = &table};
  brim_run_result r;
  assert_ok(run(&j, &r));
  // 0.60 in epoch 2; nothing above 0.61 in 3, 4, 5
  assert_true(r.stopped_early);
  assert_int_equal(r.epochs, 5);
  assert_int_equal(r.steps, 80);
  assert_int_equal(r.best_epoch, 5);  // 0.609 is the best, though no improvement that counts
  assert_true(exists("stop", "model.safetensors"));
  char *log = slurp("stop", "log.jsonl");
  assert_int_equal(count_of(log, "early_stop"), 1);
  brim_free(log);
  // interrupted within an epoch and between two, it stops at the same epoch with the same bytes
  j.folder = "stop_cut";
  j.max_steps = 40;
  assert_ok(run(&j, &r));
  assert_false(r.stopped_early);
  j.resume = true;
  j.max_steps = 64;
  assert_ok(run(&j, &r));
  j.max_steps = 0;
  assert_ok(run(&j, &r));
  assert_true(r.stopped_early);
  assert_int_equal(r.epochs, 5);
  assert_same("stop", "stop_cut", "last.safetensors");
  assert_same("stop", "stop_cut", "best.safetensors");
  assert_same("stop", "stop_cut", "model.safetensors");
  // run again it stays stopped and reports that; with more patience it continues
  assert_ok(run(&j, &r));
  assert_true(r.stopped_early);
  assert_int_equal(r.steps_run, 0);
  log = slurp("stop_cut", "log.jsonl");
  assert_int_equal(count_of(log, "early_stop"), 1);
  brim_free(log);
  j.overrides[1] = "training.early_stopping_patience=4";
  assert_ok(run(&j, &r));
  assert_false(r.stopped_early);
  assert_int_equal(r.epochs, 8);
}

//---------------------------------- which is best ----------------------------------

static double losses[8], accuracies[8];
static brim_status scripted_both(void *work, brim_work_metrics *out) {
  BRIM_TRY(brim_workload_find("supervised")->evaluation->evaluate(work, out));
  out->values[BRIM_NET_LOSS] = losses[(evaluated_at / 16 - 1) % 8];
  out->values[BRIM_NET_ACCURACY] = accuracies[(evaluated_at / 16 - 1) % 8];
  return BRIM_OK;
}

// Early stopping can never happen if the only evaluation is at the end. The run reports that at its start.
static void test_patience_without_evaluations(void **state) {
  (void)state;
  fresh("which");
  job j = {.folder = "which",
           .overrides = {"training.early_stopping_patience=2", "training.eval_interval=0"}};
  brim_run_result r;
  listen_now();
  assert_ok(run(&j, &r));
  assert_non_null(strstr(warned, "early_stopping_patience has no effect"));
  j.overrides[1] = "training.eval_interval=1";
  fresh("which");
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_null(strstr(warned, "early_stopping_patience has no effect"));
}

// checkpoint.best names a metric of another kind of workload: a metric of this one replaces it, with one warning.
static void test_best_of_another_kind(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"checkpoint.best=knn",
       "checkpoint.best is knn, which this run does not have; brim uses accuracy"},
      {"checkpoint.best=return", "checkpoint.best is return, which this run does not have"},
      {"checkpoint.best=train_return",
       "checkpoint.best is train_return, which this run does not have; brim uses train_"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fresh("which");
    job j = {.folder = "which", .overrides = {rows[i][0]}};
    brim_run_result r;
    listen_now();
    assert_ok(run(&j, &r));
    listen_no_more();
    const char *first = strstr(warned, rows[i][1]);
    assert_non_null(first);
    assert_null(strstr(first + 1, "checkpoint.best"));
  }
}

// Metrics that only evaluations have cannot be used with train_, in any workload.
static void test_best_not_of_training(void **state) {
  (void)state;
  const job jobs[] = {
      {.folder = "which", .overrides = {"checkpoint.best=train_knn"}},
      {.folder = "which",
       .overrides = {"checkpoint.best=train_knn", "workload=contrastive",
                     "transform.train=views | random_flip",
                     "model=simclr(backbone=resnet18(width=4), hidden=16, dim=8)"}}};
  for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
    fresh("which");
    brim_run_result r;
    assert_status(run(&jobs[i], &r), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), "checkpoint.best is 'train_knn'"));
    assert_non_null(strstr(brim_status_detail(), "train_loss"));
    assert_false(brim_fs_exists("which"));
  }
}

static void nothing_to_evaluate(void *work, brim_work_info *out) {
  brim_workload_find("contrastive")->info(work, out);
  out->eval_samples = 0;
}

// Without an evaluation set the training metric decides, which is reported at the start.
static void test_best_without_evaluations(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("contrastive");
  table.info = nothing_to_evaluate;
  const job j = {.folder = "which",
                 .table = &table,
                 .overrides = {"checkpoint.best=knn", "workload=contrastive", "training.epochs=2",
                               "dataset=synthetic(shape=(8, 8, 3), classes=4, samples=64)",
                               "transform.train=views | random_flip",
                               "model=simclr(backbone=resnet18(width=4), hidden=16, dim=8)"}};
  brim_run_result r;
  fresh("which");
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_int_equal(count_of(warned, "checkpoint.best is knn"), 1);
  assert_non_null(strstr(warned,
                         "checkpoint.best is knn, but this run has nothing to evaluate it on; brim "
                         "uses the training metrics"));
  assert_true(r.best_epoch > 0 && r.best_by_training);
  assert_true(exists("which", "best.safetensors"));
}

// A run that ends after an epoch without an evaluation reports the last evaluation.
static void test_last_evaluation(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  table.step = noting_step;
  static const brim_work_evaluation_table evaluation = {.evaluate = scripted};
  table.evaluation = &evaluation;
  fresh("which");
  job j = {.folder = "which",
           .overrides = {"training.epochs=4", "training.eval_interval=2"},
           .max_steps = 48,
           .table = &table};
  brim_run_result r;
  assert_ok(run(&j, &r));
  assert_int_equal(r.epochs, 3);
  assert_true(r.eval_samples > 0);
  assert_true(r.eval[BRIM_NET_ACCURACY] == script[1]);
}

static void test_checkpoint_best(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  table.step = noting_step;
  static const brim_work_evaluation_table evaluation = {.evaluate = scripted_both};
  table.evaluation = &evaluation;
  const double l[] = {3, 1, 2}, a[] = {0.1, 0.2, 0.3};
  memcpy(losses, l, sizeof l);
  memcpy(accuracies, a, sizeof a);
  static const struct {
    const char *key;
    int64_t epoch;
  } rows[] = {{"seed=7", 3},
              {"checkpoint.best=accuracy", 3},
              {"checkpoint.best=val_loss", 2},
              {"checkpoint.best=loss", 2}};
  for (size_t i = 0; i < 4; i++) {
    fresh("which");
    job j = {.folder = "which", .overrides = {rows[i].key}, .table = &table};
    brim_run_result r;
    assert_ok(run(&j, &r));
    assert_int_equal(r.best_epoch, rows[i].epoch);
  }
  // training metrics improve every epoch here
  fresh("which");
  job j = {.folder = "which", .overrides = {"checkpoint.best=train_loss"}, .table = &table};
  brim_run_result r;
  assert_ok(run(&j, &r));
  assert_int_equal(r.best_epoch, 3);
  assert_true(r.best_by_training && isnan(best_of(&r, "accuracy")) && isnan(best_of(&r, "loss")));
  fresh("which");
  j.overrides[0] = "checkpoint.best=f1";
  assert_status(run(&j, &r), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "val_loss"));
  assert_false(brim_fs_exists("which"));
}

// After the metric changes in the second epoch, the best value starts over, and so does the patience.
static void test_another_figure_decides(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  table.step = noting_step;
  static const brim_work_evaluation_table evaluation = {.evaluate = scripted_both};
  table.evaluation = &evaluation;
  const double l[] = {3, 2, 1, 0.5}, a[] = {0.4, 0.3, 0.2, 0.1};
  memcpy(losses, l, sizeof l);
  memcpy(accuracies, a, sizeof a);
  fresh("other");
  job j = {.folder = "other",
           .overrides = {"training.epochs=4", "training.early_stopping_patience=2"},
           .max_steps = 16,
           .table = &table};
  brim_run_result r;
  assert_ok(run(&j, &r));
  assert_int_equal(r.best_epoch, 1);
  j.resume = true;
  j.max_steps = 0;
  j.overrides[2] = "checkpoint.best=loss";
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_non_null(strstr(warned, "was selected by accuracy"));
  assert_false(r.stopped_early);
  assert_int_equal(r.epochs, 4);
  assert_int_equal(r.best_epoch, 4);
  // the same metric under its other name is no change
  fresh("other");
  j = (job){
      .folder = "other", .overrides = {"training.epochs=4"}, .max_steps = 16, .table = &table};
  assert_ok(run(&j, &r));
  j.resume = true;
  j.max_steps = 0;
  j.overrides[1] = "checkpoint.best=val_accuracy";
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_null(strstr(warned, "was selected by"));
  assert_int_equal(r.best_epoch, 1);
}

static brim_status without_loss(void *work, brim_work_metrics *out) {
  BRIM_TRY(brim_workload_find("supervised")->evaluation->evaluate(work, out));
  out->values[BRIM_NET_LOSS] = (double)NAN;
  return BRIM_OK;
}

// kNN evaluation has no loss, so the training loss decides.
static void test_best_by_a_loss_that_is_not_there(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  brim_metric rows[BRIM_METRIC_MAX];
  brim_metric_set set = *table.metric_set;
  memcpy(rows, set.rows, set.count * sizeof *rows);
  rows[BRIM_NET_LOSS].stages &= ~BRIM_METRIC_AT(BRIM_METRIC_EVAL);
  set.rows = rows;
  table.metric_set = &set;
  static const brim_work_evaluation_table evaluation = {.evaluate = without_loss};
  table.evaluation = &evaluation;
  fresh("lossless");
  job j = {.folder = "lossless",
           .overrides = {"checkpoint.best=loss", "training.early_stopping_patience=2"},
           .table = &table};
  brim_run_result r;
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_int_equal(count_of(warned, "brim uses the training loss"), 1);
  assert_false(r.stopped_early);
  assert_int_equal(r.best_epoch, 3);
  assert_true(exists("lossless", "best.safetensors"));
}

//---------------------------------- kept checkpoints ----------------------------------

static void test_keep(void **state) {
  (void)state;
  brim_run_result r;
  fresh("kept");
  job j = {.folder = "kept", .overrides = {"checkpoint.interval=5", "checkpoint.keep=3"}};
  assert_ok(run(&j, &r));  // 48 steps: saved at 5, 10, 15, 16, 20, ..., 45, 48
  assert_false(exists("kept", "step-00000035.safetensors"));
  assert_true(exists("kept", "step-00000040.safetensors"));
  assert_true(exists("kept", "step-00000045.safetensors"));
  assert_false(exists("kept", "step-00000048.safetensors"));
  // each is a separate file, from which a run resumes to the same end
  assert_false(brim_fs_same("kept/step-00000045.safetensors", "kept/last.safetensors"));
  fresh("kept2");
  assert_ok(brim_fs_mkdirs("kept2"));
  assert_ok(brim_fs_copy("kept/step-00000040.safetensors", "kept2/last.safetensors"));
  j.folder = "kept2";
  j.resume = true;
  assert_ok(run(&j, &r));
  assert_int_equal(r.steps_run, 8);
  assert_same("kept", "kept2", "model.safetensors");
  // with one, older ones are removed
  j.overrides[1] = "checkpoint.keep=1";
  j.overrides[2] = "training.epochs=4";
  assert_ok(run(&j, &r));
  assert_false(exists("kept2", "step-00000040.safetensors"));
  assert_false(exists("kept2", "step-00000045.safetensors"));
  assert_true(exists("kept2", "last.safetensors"));
}

// Files of the user that have names of checkpoints: no checkpoint at all, another step, another run, and one in the
// place of the next checkpoint.
static void test_keep_of_others(void **state) {
  (void)state;
  static const char *const names[] = {"step-00000005.safetensors", "step-00000048.safetensors"};
  brim_run_result r;
  fresh("theirs");
  job j = {.folder = "theirs", .overrides = {"checkpoint.interval=5", "checkpoint.keep=2"}};
  assert_ok(run(&j, &r));  // 48 steps
  assert_true(exists("theirs", "step-00000045.safetensors"));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *path = brim_fs_join("theirs", names[i]);
    assert_ok(brim_fs_write(path, "mine", 4));
    brim_free(path);
  }
  assert_ok(brim_fs_copy("theirs/step-00000045.safetensors", "theirs/step-00000007.safetensors"));
  fresh("another");
  job other = {.folder = "another", .overrides = {"checkpoint.interval=10", "seed=8"}};
  assert_ok(run(&other, &r));
  assert_ok(brim_fs_copy("another/step-00000040.safetensors", "theirs/step-00000040.safetensors"));
  j.resume = true;
  j.overrides[2] = "training.epochs=4";
  assert_ok(run(&j, &r));
  assert_true(r.steps_run > 0);
  assert_true(exists("theirs", "step-00000040.safetensors"));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *path = brim_fs_join("theirs", names[i]), *text = NULL;
    assert_ok(brim_fs_read(path, 0, &text, NULL));
    assert_string_equal(text, "mine");
    brim_free(text);
    brim_free(path);
  }
  assert_true(exists("theirs", "step-00000007.safetensors"));
  assert_false(exists("theirs", "step-00000045.safetensors"));
  assert_true(exists("theirs", "step-00000060.safetensors"));
}

static int saves;  // saves of full checkpoints

static brim_status slow_save(void *work, const char *path, const json_t *extra, bool weights_only) {
  if (!weights_only) {
    saves++;
    brim_clock_sleep_ns(210000000);
  }
  return brim_workload_find("supervised")->save(work, path, extra, weights_only);
}

// Optional abilities of a workload: without them the core trains, resumes and leaves the same files.
static void test_without_abilities(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  table.loading = NULL;
  table.ranks = NULL;
  table.features = NULL;
  table.batches = NULL;
  table.background = NULL;
  job all = {.folder = "all", .overrides = {"training.epochs=2"}};
  job core = {.folder = "core", .overrides = {"training.epochs=2"}, .table = &table};
  brim_run_result r;
  fresh("all");
  fresh("core");
  assert_ok(run(&all, &r));
  core.max_steps = 3;
  assert_ok(run(&core, &r));
  core.max_steps = 0;
  core.resume = true;
  assert_ok(run(&core, &r));
  assert_same("all", "core", "last.safetensors");
  assert_same("all", "core", "model.safetensors");

  fixture f;
  brim_work_metrics m;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const brim_workload_table *real = f.work->table;
  table.evaluation = NULL;
  f.work->table = &table;
  assert_status(brim_work_evaluate(f.work, &m), BRIM_ESTATE);
  assert_status(brim_work_use(f.work, "core/last.safetensors", false), BRIM_ESTATE);
  f.work->table = real;
  fixture_close(&f);
}

// A checkpoint that takes longer than a short epoch is not written after each epoch, but after the last and at a stop.
static void test_costly_checkpoints_are_spared(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  table.step = noting_step;
  static const brim_work_evaluation_table evaluation = {.evaluate = scripted};
  table.evaluation = &evaluation;
  table.save = slow_save;
  table.background = NULL;
  fresh("spared");
  job j = {.folder = "spared",
           .overrides = {"training.epochs=5"},  // best in epochs 1, 2, 3 and 5
           .table = &table,
           .max_steps = 64};
  brim_run_result r;
  saves = 0;
  // no checkpoint after epoch 4: not the best, and not the end of this call
  assert_ok(run(&j, &r));
  assert_int_equal(saves, 4);
  j.max_steps = 0;
  fresh("spared");
  saves = 0;
  assert_ok(run(&j, &r));
  assert_int_equal(saves, 4);  // no checkpoint after epoch 4
  assert_false(exists("spared", "step-00000064.safetensors"));
  assert_true(exists("spared", "step-00000048.safetensors"));
  // checkpoint.interval requests it, also at the end of an epoch
  j.overrides[1] = "checkpoint.interval=32";
  fresh("spared");
  saves = 0;
  assert_ok(run(&j, &r));
  assert_int_equal(saves, 5);
  assert_true(exists("spared", "step-00000064.safetensors"));
  j.overrides[1] = "training.eval_interval=5";
  fresh("spared");
  saves = 0;
  assert_ok(run(&j, &r));
  assert_int_equal(saves, 2);  // the first epoch, and the best
  assert_true(exists("spared", "last.safetensors"));
}

// After a resume from an earlier step, checkpoints of later steps are removed.
static void test_steps_of_another_future_go(void **state) {
  (void)state;
  brim_run_result r;
  fresh("back");
  job j = {.folder = "back", .overrides = {"checkpoint.interval=5", "checkpoint.keep=20"}};
  assert_ok(run(&j, &r));
  assert_true(exists("back", "step-00000045.safetensors"));
  assert_ok(brim_fs_copy("back/step-00000010.safetensors", "back/last.safetensors"));
  j.resume = true;
  j.max_steps = 20;
  assert_ok(run(&j, &r));
  assert_int_equal(r.steps_run, 10);
  assert_true(exists("back", "step-00000010.safetensors"));
  assert_true(exists("back", "step-00000015.safetensors"));
  assert_false(exists("back", "step-00000025.safetensors"));
  assert_false(exists("back", "step-00000045.safetensors"));
}

//---------------------------------- the newest whole checkpoint ----------------------------------

static void tear(const char *path) {
  uint64_t size;
  assert_ok(brim_fs_size(path, &size));
  assert_int_equal(truncate(path, (off_t)size / 2), 0);
}

static void test_a_torn_checkpoint_is_passed_over(void **state) {
  (void)state;
  brim_run_result r;
  fresh("whole");
  fresh("torn");
  job j = {.folder = "whole", .overrides = {"checkpoint.interval=5", "checkpoint.keep=3"}};
  assert_ok(run(&j, &r));
  j.folder = "torn";
  j.max_steps = 42;
  assert_ok(run(&j, &r));
  tear("torn/last.safetensors");
  j.resume = true;
  j.max_steps = 0;
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_non_null(strstr(warned, "last.safetensors"));
  assert_non_null(strstr(warned, "step-00000040.safetensors instead"));
  assert_int_equal(r.steps_run, 8);
  assert_same("whole", "torn", "model.safetensors");
  assert_same("whole", "torn", "last.safetensors");
  // only the best is complete
  tear("torn/last.safetensors");
  tear("torn/step-00000040.safetensors");
  tear("torn/step-00000045.safetensors");
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_non_null(strstr(warned, "best.safetensors instead"));
  assert_same("whole", "torn", "model.safetensors");
  // none is complete: the message is the first one's error, with a remedy
  fresh("rubble");
  j.folder = "rubble";
  assert_ok(brim_fs_mkdirs("rubble"));
  assert_ok(brim_fs_write("rubble/last.safetensors", "x", 1));
  listen_now();
  assert_int_not_equal(run(&j, &r), BRIM_OK);
  listen_no_more();
  assert_non_null(strstr(brim_status_detail(), "rubble/last.safetensors"));
  assert_non_null(strstr(brim_status_detail(), "--resume-from"));
  // without any checkpoint the run starts from the beginning
  fresh("rubble");
  assert_ok(run(&j, &r));
  assert_int_equal(r.steps_run, 48);
}

// Damages eight bytes of a tensor; length and finiteness stay right.
static void damage(const char *path) {
  char *bytes;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &bytes, &size));
  float wrong[2] = {1e12F, -1e12F};
  memcpy(bytes + size - 64, wrong, sizeof wrong);
  assert_ok(brim_fs_write(path, bytes, size));
  brim_free(bytes);
}

static void test_a_damaged_checkpoint_is_passed_over(void **state) {
  (void)state;
  brim_run_result r;
  fresh("damaged");
  job j = {.folder = "damaged",
           .overrides = {"checkpoint.interval=5", "checkpoint.keep=3"},
           .max_steps = 42};
  assert_ok(run(&j, &r));
  damage("damaged/last.safetensors");
  j.resume = true;
  j.max_steps = 0;
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_non_null(strstr(warned, "last.safetensors: the file is damaged"));
  assert_non_null(strstr(warned, "step-00000040.safetensors instead"));
  assert_int_equal(r.steps_run, 8);
  assert_same("whole", "damaged", "model.safetensors");
  assert_same("whole", "damaged", "last.safetensors");
  // a damaged file that the command names is an error
  damage("damaged/last.safetensors");
  j.resume = false;
  j.resume_path = "damaged/last.safetensors";
  assert_status(run(&j, &r), BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), "damaged/last.safetensors"));
}

// No space for the next checkpoint (by a limit on file size): the previous one stays complete, and the message has a
// remedy.
static void test_no_room_for_a_checkpoint(void **state) {
  (void)state;
  brim_run_result r;
  fresh("full");
  job j = {.folder = "full", .max_steps = 20};
  assert_ok(run(&j, &r));
  uint64_t size;
  assert_ok(brim_fs_size("full/last.safetensors", &size));
  struct rlimit before, tight;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  tight = before;
  tight.rlim_cur = (rlim_t)size / 2;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
  j.resume = true;
  j.max_steps = 0;
  brim_status status = run(&j, &r);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(status, BRIM_EIO);
  assert_non_null(strstr(brim_status_detail(), "free disk space"));
  assert_non_null(strstr(brim_status_detail(), "--resume continues from step 20"));
  assert_ok(run(&j, &r));
  assert_int_equal(r.steps_run, 28);
  assert_same("whole", "full", "model.safetensors");
}

//---------------------------------- the average of weights ----------------------------------

static int entries(const char *path, const char *prefix) {
  char *text = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  char key[64];
  snprintf(key, sizeof key, "\"%slayers.0.weight\"", prefix);
  int n = 0;
  for (size_t i = 0; i + strlen(key) < size; i++) n += memcmp(text + i, key, strlen(key)) == 0;
  brim_free(text);
  return n;
}

// Resume is exact. The checkpoint has both weights, the model only the average, and training is the same as without.
static void test_average_of_weights(void **state) {
  (void)state;
  brim_run_result r, plain;
  fresh("ema");
  fresh("ema_cut");
  fresh("ema_none");
  job j = {.folder = "ema", .overrides = {"training.ema_decay=0.95", "checkpoint.interval=5"}};
  assert_ok(run(&j, &r));
  assert_int_equal(entries("ema/last.safetensors", ""), 1);
  assert_int_equal(entries("ema/last.safetensors", "ema."), 1);
  assert_int_equal(entries("ema/model.safetensors", ""), 1);
  assert_int_equal(entries("ema/model.safetensors", "ema."), 0);
  j.folder = "ema_cut";
  j.max_steps = 23;
  assert_ok(run(&j, &r));
  j.resume = true;
  j.max_steps = 0;
  assert_ok(run(&j, &r));
  assert_same("ema", "ema_cut", "last.safetensors");
  assert_same("ema", "ema_cut", "best.safetensors");
  assert_same("ema", "ema_cut", "model.safetensors");
  job none = {.folder = "ema_none", .overrides = {"checkpoint.interval=5"}};
  assert_ok(run(&none, &plain));
  assert_true(train_of(&plain, "loss") == train_of(&r, "loss"));
  assert_true(eval_of(&plain, "loss") != eval_of(&r, "loss"));
  // resuming without the average is reported
  const char *const off[] = {"training.ema_decay=0", "training.epochs=4"};
  j.overrides[0] = off[0];
  j.overrides[2] = off[1];
  listen_now();
  assert_ok(run(&j, &r));
  listen_no_more();
  assert_non_null(strstr(warned, "training.ema_decay 0.95"));
}

// True if the model has the statistics of the checkpoint's average.
static bool same_statistics(const char *folder) {
  char *last = brim_fs_join(folder, "last.safetensors"),
       *model = brim_fs_join(folder, "model.safetensors");
  brim_safetensors *a, *b;
  assert_ok(brim_safetensors_open(last, &a));
  assert_ok(brim_safetensors_open(model, &b));
  const brim_safetensors_entry *x = brim_safetensors_find(a, "ema.bn1.running_var"),
                               *y = brim_safetensors_find(b, "bn1.running_var");
  assert_non_null(x);
  assert_non_null(y);
  bool same = memcmp(x->data, y->data, x->bytes) == 0;
  brim_safetensors_close(a);
  brim_safetensors_close(b);
  brim_free(last);
  brim_free(model);
  return same;
}

// Weights that were not evaluated get their statistics before the model is written; training is the same as without.
static void test_statistics_of_the_average(void **state) {
  (void)state;
  brim_run_result r, averaged;
  fresh("settled");
  fresh("averaged");
  job j = {
      .folder = "settled",
      .overrides = {"dataset=synthetic(shape=(8, 8, 3), classes=4, samples=160)",
                    "model=resnet18(width=4)", "training.ema_decay=0.9", "training.ema_batches=4"},
      .max_steps = 3};
  assert_ok(run(&j, &r));
  assert_false(same_statistics("settled"));
  j.folder = "averaged";
  j.overrides[3] = "training.ema_batches=0";
  assert_ok(run(&j, &averaged));
  assert_true(same_statistics("averaged"));
  assert_true(train_of(&r, "loss") == train_of(&averaged, "loss"));
  // evaluated at the end of an epoch, then unchanged
  j.max_steps = 0;
  j.resume = true;
  assert_ok(run(&j, &averaged));
  j.folder = "settled";
  j.overrides[3] = "training.ema_batches=4";
  assert_ok(run(&j, &r));
  assert_true(same_statistics("settled"));
  assert_true(train_of(&r, "loss") == train_of(&averaged, "loss"));
  assert_true(eval_of(&r, "loss") != eval_of(&averaged, "loss"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_early_stopping),
      cmocka_unit_test(test_best_not_of_training),
      cmocka_unit_test(test_last_evaluation),
      cmocka_unit_test(test_checkpoint_best),
      cmocka_unit_test(test_best_of_another_kind),
      cmocka_unit_test(test_patience_without_evaluations),
      cmocka_unit_test(test_best_without_evaluations),
      cmocka_unit_test(test_another_figure_decides),
      cmocka_unit_test(test_best_by_a_loss_that_is_not_there),
      cmocka_unit_test(test_keep),
      cmocka_unit_test(test_keep_of_others),
      cmocka_unit_test(test_without_abilities),
      cmocka_unit_test(test_costly_checkpoints_are_spared),
      cmocka_unit_test(test_steps_of_another_future_go),
      cmocka_unit_test(test_a_torn_checkpoint_is_passed_over),
      cmocka_unit_test(test_a_damaged_checkpoint_is_passed_over),
      cmocka_unit_test(test_no_room_for_a_checkpoint),
      cmocka_unit_test(test_average_of_weights),
      cmocka_unit_test(test_statistics_of_the_average),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
