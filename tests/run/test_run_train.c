// The training loop: its files, resuming, stopping, logs without duplicates.
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/run_figures.h"
#include "same_file.h"
#include "workload/fixture.h"

typedef struct seen {
  int starts, epochs, progress;
  brim_epoch_report last;
  int64_t start_step;
} seen;

static void on_start(void *ctx, const brim_work_info *info, const brim_plan *plan,
                     int64_t start_step) {
  seen *s = (seen *)ctx;
  s->starts++;
  s->start_step = start_step;
  assert_int_equal(info->samples_per_epoch, 500);
  assert_true(plan->row_count > 0);
}

static void on_progress(void *ctx, const brim_progress *p) {
  ((seen *)ctx)->progress++;
  assert_true(p->done <= p->total);
}

static void on_epoch(void *ctx, const brim_epoch_report *r) {
  seen *s = (seen *)ctx;
  s->epochs++;
  s->last = *r;
}

static brim_status run(const char *folder, bool resume, int64_t max_steps,
                       const volatile sig_atomic_t *stop, seen *s, brim_run_result *out) {
  fixture f;
  memset(s, 0, sizeof *s);
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_run_options options = {.output_dir = folder,
                              .resume = resume,
                              .max_steps = max_steps,
                              .stop = stop,
                              .on_start = on_start,
                              .on_progress = on_progress,
                              .on_epoch = on_epoch,
                              .ctx = s};
  brim_status status = brim_run_train(f.work, f.config, &options, out);
  fixture_close(&f);
  return status;
}

static char *slurp(const char *folder, const char *name, size_t *size) {
  char *path = brim_fs_join(folder, name), *data = NULL;
  assert_non_null(path);
  assert_ok(brim_fs_read(path, 0, &data, size));
  brim_free(path);
  return data;
}

static void assert_same(const char *a, const char *b, const char *name) {
  char *pa = brim_fs_join(a, name), *pb = brim_fs_join(b, name);
  assert_same_file(pa, pb);
  brim_free(pa);
  brim_free(pb);
}

static int lines(const char *folder, const char *name) {
  size_t size;
  char *data = slurp(folder, name, &size);
  int n = 0;
  for (size_t i = 0; i < size; i++) n += data[i] == '\n';
  brim_free(data);
  return n;
}

static void test_a_run_leaves_its_files(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  assert_ok(run("whole", false, 0, NULL, &s, &r));
  assert_int_equal(s.starts, 1);
  assert_int_equal(s.epochs, 3);
  assert_true(s.progress >= 3);
  assert_int_equal(r.epochs, 3);
  assert_int_equal(r.steps, 48);
  assert_true(best_of(&r, "accuracy") > 0.5 && r.best_epoch >= 1);
  assert_true(brim_fs_exists("whole/last.safetensors"));
  assert_true(brim_fs_exists("whole/best.safetensors"));
  assert_true(brim_fs_exists("whole/model.safetensors"));
  assert_true(brim_fs_exists("whole/config.yaml"));
  assert_int_equal(lines("whole", "log.csv"), 4);
  assert_false(r.interrupted);
}

// If the last epoch is the best one, both names hold the same bytes. They are one file only while the run lasts.
static void test_best_and_last_are_two_files(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  assert_ok(run("two", false, 0, NULL, &s, &r));
  assert_false(brim_fs_same("two/best.safetensors", "two/last.safetensors"));
  assert_string_equal(brim_fs_basename(r.checkpoint), "model.safetensors");
  assert_ok(run("one", false, 16, NULL, &s, &r));  // one epoch: always the best so far
  assert_int_equal(r.best_epoch, 1);
  assert_same_file("one/best.safetensors", "one/last.safetensors");
  assert_false(brim_fs_same("one/best.safetensors", "one/last.safetensors"));
  // if they cannot be one file, both are written
  assert_int_equal(chmod("one/last.safetensors", 0600), 0);
  assert_ok(run("one", false, 16, NULL, &s, &r));
  assert_same_file("one/best.safetensors", "one/last.safetensors");
}

static void test_cut_and_resumed_equals_whole(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  assert_ok(run("cut", false, 20, NULL, &s, &r));
  assert_int_equal(r.steps, 20);
  assert_true(brim_fs_exists("cut/model.safetensors"));
  assert_true(r.partial);  // an epoch has 16 steps
  assert_true(train_of(&r, "loss") > 0 && train_of(&r, "loss") < 10);
  assert_true(train_of(&r, "accuracy") > 0 && train_of(&r, "accuracy") <= 1);
  assert_ok(run("cut", true, 0, NULL, &s, &r));
  assert_false(r.partial);
  assert_int_equal(s.start_step, 20);
  assert_int_equal(r.steps, 48);
  assert_same("whole", "cut", "last.safetensors");
  assert_same("whole", "cut", "best.safetensors");
  assert_same("whole", "cut", "model.safetensors");
  assert_int_equal(lines("cut", "log.csv"), 4);
}

static void test_stop_flag_saves_and_says_so(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  volatile sig_atomic_t stop = 1;
  assert_status(run("stopped", false, 0, &stop, &s, &r), BRIM_EINTERRUPTED);
  assert_true(r.interrupted);
  assert_int_equal(r.steps, 1);
  assert_non_null(strstr(brim_status_detail(), "--resume"));
  assert_true(brim_fs_exists("stopped/last.safetensors"));
  assert_ok(run("stopped", true, 0, NULL, &s, &r));
  assert_same("whole", "stopped", "model.safetensors");
}

// A run killed after its last checkpoint has logged steps after it. Resuming writes no row twice.
static void test_log_rows_after_the_checkpoint_are_dropped(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  assert_ok(run("logs", false, 20, NULL, &s, &r));
  assert_int_equal(lines("logs", "log.csv"), 2);
  assert_ok(brim_fs_append_line("logs/log.csv", "2,32,0.1,1,1,1,1,1,1"));
  assert_ok(brim_fs_append_line("logs/log.jsonl", "{\"event\":\"epoch\",\"epoch\":2,\"step\":32}"));
  assert_ok(run("logs", true, 0, NULL, &s, &r));
  assert_int_equal(lines("logs", "log.csv"), 4);
}

static void test_resuming_a_finished_run_changes_nothing(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  assert_ok(run("whole", true, 0, NULL, &s, &r));
  assert_int_equal(s.epochs, 0);
  assert_int_equal(r.steps, 48);
  assert_same("whole", "cut", "model.safetensors");
}

static double csv_field(const char *folder, int row, int field) {
  size_t size;
  char *data = slurp(folder, "log.csv", &size);
  char *at = data;
  for (int i = 0; i < row; i++) at = strchr(at, '\n') + 1;
  for (int i = 0; i < field; i++) at = strchr(at, ',') + 1;
  double value = *at == ',' ? (double)NAN : strtod(at, NULL);
  brim_free(data);
  return value;
}

// The epoch that was cut in the middle reports the uninterrupted run's figures, to the last digit.
static void test_a_resumed_epoch_reports_the_whole_epoch(void **state) {
  (void)state;
  for (int row = 1; row <= 3; row++) {
    for (int field = 3; field <= 6; field++) {
      assert_true(csv_field("whole", row, field) == csv_field("cut", row, field));
    }
  }
}

static brim_status run_with(const char *folder, bool resume, const char *const *overrides,
                            size_t count, brim_run_result *out) {
  fixture f;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, count));
  brim_run_options options = {.output_dir = folder, .resume = resume};
  brim_status status = brim_run_train(f.work, f.config, &options, out);
  fixture_close(&f);
  return status;
}

static void test_divergence_is_an_error_and_never_best(void **state) {
  (void)state;
  const char *const overrides[] = {
      "dataset=synthetic(shape=(6, 6), classes=0, targets=2, samples=500)", "loss=mse",
      "optimizer=sgd(lr=1e9)", "training.epochs=5"};
  brim_run_result r;
  assert_int_not_equal(run_with("diverged", false, overrides, 4, &r), BRIM_OK);
  assert_non_null(strstr(brim_status_detail(), "learning rate"));
  assert_true(isnan(train_of(&r, "loss")) || r.best_epoch != r.epochs);
  assert_true(r.skipped_steps > 0);
}

// Weights that became NaN do not replace a checkpoint, even if the first epoch kills them.
static void test_dead_weights_are_not_saved(void **state) {
  (void)state;
  const char *const overrides[] = {"optimizer=sgd(lr=1e9)", "training.epochs=1"};
  brim_run_result r;
  assert_int_not_equal(run_with("dead", false, overrides, 2, &r), BRIM_OK);
  assert_non_null(strstr(brim_status_detail(), "diverged"));
  assert_false(brim_fs_exists("dead/last.safetensors"));
  assert_false(brim_fs_exists("dead/best.safetensors"));
  assert_false(brim_fs_exists("dead/model.safetensors"));
}

static double eval_loss_now;
static brim_status bad_evaluate(void *work, brim_work_metrics *out) {
  BRIM_TRY(brim_workload_find("supervised")->evaluation->evaluate(work, out));
  out->values[BRIM_NET_LOSS] = eval_loss_now;
  return BRIM_OK;
}

// Good training figures and accuracy do not make up for an evaluation that is not finite.
static const brim_workload_table *counted_table;
static int evaluations;

static brim_status counted_evaluate(void *state, brim_work_metrics *out) {
  evaluations++;
  return counted_table->evaluation->evaluate(state, out);
}

static void test_an_evaluation_without_a_loss_is_never_best(void **state) {
  (void)state;
  const double losses[] = {(double)NAN, (double)INFINITY, 1.0};
  for (size_t i = 0; i < 3; i++) {
    fixture f;
    const char *const overrides[] = {"training.epochs=1"};
    char folder[32], best[64];
    snprintf(folder, sizeof folder, "noloss%zu", i);
    snprintf(best, sizeof best, "%s/best.safetensors", folder);
    eval_loss_now = losses[i];
    assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 1));
    brim_workload_table table = *f.work->table;
    const brim_workload_table *real = f.work->table;
    static const brim_work_evaluation_table evaluation = {.evaluate = bad_evaluate};
    table.evaluation = &evaluation;
    f.work->table = &table;
    brim_run_options options = {.output_dir = folder};
    brim_run_result r;
    brim_status status = brim_run_train(f.work, f.config, &options, &r);
    f.work->table = real;
    fixture_close(&f);
    bool fine = isfinite(losses[i]) != 0;
    assert_int_equal(status, fine ? BRIM_OK : BRIM_ESTATE);
    assert_int_equal(r.best_epoch, fine ? 1 : 0);
    assert_int_equal(brim_fs_exists(best), fine);
  }
}

// training.eval_interval chooses which of 5 epochs are evaluated. An epoch without evaluation is never the best, and
// the weights do not depend on it.
static void test_eval_interval(void **state) {
  (void)state;
  static const struct {
    const char *interval;
    int evaluated;
  } rows[] = {{"training.eval_interval=1", 5},
              {"training.eval_interval=2", 3},   // 2, 4 and the last
              {"training.eval_interval=0", 1}};  // only the last
  for (size_t i = 0; i < 3; i++) {
    fixture f;
    char folder[32];
    snprintf(folder, sizeof folder, "every%zu", i);
    const char *const overrides[] = {"training.epochs=5", rows[i].interval};
    assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 2));
    brim_workload_table table = *f.work->table;
    const brim_workload_table *real = f.work->table;
    counted_table = real;
    evaluations = 0;
    static const brim_work_evaluation_table evaluation = {.evaluate = counted_evaluate};
    table.evaluation = &evaluation;
    f.work->table = &table;
    seen s = {0};
    brim_run_options options = {.output_dir = folder, .on_epoch = on_epoch, .ctx = &s};
    brim_run_result r;
    assert_ok(brim_run_train(f.work, f.config, &options, &r));
    f.work->table = real;
    fixture_close(&f);
    assert_int_equal(evaluations, rows[i].evaluated);
    assert_true(s.last.evaluated && r.best_epoch > 0);
    if (i == 2) assert_int_equal(r.best_epoch, 5);
    if (i > 0) assert_same("every0", folder, "model.safetensors");
  }
}

static void test_stale_temporaries_go(void **state) {
  (void)state;
  const pid_t pid = (1 << 22) + 1;  // above the kernel's limit: no process ever has it
  seen s;
  brim_run_result r;
  // brim removes leftovers only in its own folders
  assert_ok(run("stale", false, 3, NULL, &s, &r));
  char gone[64], living[64], dated[64];
  snprintf(gone, sizeof gone, "stale/last.safetensors.tmp.%ld.0", (long)pid);
  snprintf(living, sizeof living, "stale/last.safetensors.tmp.%ld.0", (long)getppid());
  snprintf(dated, sizeof dated, "stale/notes.tmp.%ld.0.txt", (long)pid);
  assert_ok(brim_fs_write(gone, "x", 1));
  assert_ok(brim_fs_write(living, "x", 1));
  assert_ok(brim_fs_write(dated, "x", 1));
  assert_ok(run("stale", false, 3, NULL, &s, &r));
  assert_false(brim_fs_exists(gone));
  assert_true(brim_fs_exists(living));
  assert_true(brim_fs_exists(dated));
}

static char warned[4096];
static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx;
  (void)module;
  if (level != BRIM_LOG_WARN) return;
  size_t n = strlen(warned);
  snprintf(warned + n, sizeof warned - n, "%s\n", text);
}

static void test_resuming_with_other_settings_says_so(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  assert_ok(run("other", false, 20, NULL, &s, &r));
  const char *const overrides[] = {"optimizer=adamw(lr=2e-3)"};
  warned[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
  assert_ok(run_with("other", true, overrides, 1, &r));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  assert_non_null(strstr(warned, "learning_rate"));
  assert_non_null(strstr(warned, "0.002"));
}

// The log of every epoch and the result have the costs of reading and of each transform. A transform above the limit is
// reported once, however many epochs there are.
static void test_loading_is_reported(void **state) {
  (void)state;
  const char *const overrides[] = {"dataset=synthetic(shape=(12, 12, 3), classes=4, samples=120)",
                                   "transform=random_crop(size=12, padding=2) | random_flip",
                                   "data.slow_transform_ms=0"};
  brim_run_result r;
  warned[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
  assert_ok(run_with("loading", false, overrides, 3, &r));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  const char *said = strstr(warned, "transform random_crop takes ");
  assert_non_null(said);
  assert_null(strstr(said + 1, "transform random_crop takes "));
  assert_non_null(strstr(warned, "data.slow_transform_ms 0"));
  assert_int_equal(r.loading.stage_count, 2);
  assert_string_equal(r.loading.stage[1], "random_flip");
  assert_true(r.loading.samples >= 3 * 120);
  assert_true(r.loading.read_ms > 0 && r.loading.stage_ms[0] > 0);
  assert_int_equal(r.loading.broken, 0);
  size_t size;
  char *text = slurp("loading", "log.jsonl", &size);
  int epochs = 0;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *o = NULL;
    assert_ok(brim_json_parse(line, strlen(line), "log.jsonl", &o));
    if (strcmp(json_string_value(json_object_get(o, "event")), "epoch") == 0) {
      const json_t *loader = json_object_get(o, "loader");
      const json_t *stages = json_object_get(loader, "transforms_ms");
      assert_true(json_number_value(json_object_get(loader, "read_ms")) > 0);
      assert_string_equal(json_string_value(json_object_get(loader, "cache")), "none");
      assert_null(json_object_get(loader, "locked_bytes"));
      assert_true(json_number_value(json_object_get(stages, "random_crop")) > 0);
      assert_int_equal(json_object_size(stages), 2);
      epochs++;
    }
    json_decref(o);
  }
  brim_free(text);
  assert_int_equal(epochs, 3);
  // far below the limit nothing is reported
  const char *const high[] = {overrides[0], overrides[1], "data.slow_transform_ms=1e5"};
  warned[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
  assert_ok(run_with("loading2", false, high, 3, &r));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  assert_string_equal(warned, "");
}

static void test_max_steps_count_from_the_start(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  assert_ok(run("limit", false, 10, NULL, &s, &r));
  assert_int_equal(r.steps, 10);
  assert_int_equal(r.steps_run, 10);
  assert_ok(run("limit", true, 25, NULL, &s, &r));
  assert_int_equal(r.steps, 25);
  assert_int_equal(r.steps_run, 15);
  assert_ok(run("limit", true, 25, NULL, &s, &r));
  assert_int_equal(r.steps_run, 0);
}

static void test_one_run_per_folder(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  brim_fs_lockfile *lock = NULL;
  assert_ok(brim_fs_mkdirs("taken"));
  assert_ok(brim_fs_lock("taken/lock", &lock));
  assert_status(run("taken", false, 0, NULL, &s, &r), BRIM_EEXIST);
  assert_false(brim_fs_exists("taken/config.yaml"));
  brim_fs_unlock(lock);
  assert_ok(run("taken", false, 3, NULL, &s, &r));
  assert_false(brim_fs_exists("taken/lock"));
}

static void test_what_cannot_fit_is_not_tried(void **state) {
  (void)state;
  const char *const overrides[] = {"data.batch_size=200000000", "data.num_workers=64"};
  brim_run_result r;
  assert_status(run_with("huge", false, overrides, 2, &r), BRIM_EOOM);
  assert_non_null(strstr(brim_status_detail(), "is the largest that fits"));
  assert_false(brim_fs_exists("huge"));
}

static void test_unwritable_folder_is_a_clear_error(void **state) {
  (void)state;
  seen s;
  brim_run_result r;
  assert_ok(brim_fs_write("file", "x", 1));
  assert_int_not_equal(run("file/below", false, 0, NULL, &s, &r), BRIM_OK);
  assert_non_null(strstr(brim_status_detail(), "file"));
}

//---------------------------------- loss scale and algorithms ----------------------------------

// Metrics of a workload that skipped every step, at this loss scale.
static double scale_now;
static int64_t skipped_now;

static brim_status skipping_metrics(void *work, bool reset, brim_work_metrics *out) {
  BRIM_TRY(brim_workload_find("supervised")->metrics(work, reset, out));
  out->skipped = skipped_now += 1000;
  out->values[BRIM_NET_LOSS_SCALE] = scale_now;
  out->searching = scale_now > 1;
  return BRIM_OK;
}

// A skipped step lowers the loss scale. The run is lost only if the scale cannot go lower.
static void test_a_loss_scale_in_search_is_no_failure(void **state) {
  (void)state;
  static const struct {
    double scale;
    bool lost;
  } cases[] = {{32768, false}, {1, true}, {(double)NAN, true}};
  for (size_t i = 0; i < 3; i++) {
    fixture f;
    const char *const overrides[] = {"training.epochs=1", "log.interval=5"};
    char folder[32];
    snprintf(folder, sizeof folder, "scale%zu", i);
    scale_now = cases[i].scale;
    skipped_now = 0;
    assert_ok(fixture_open(&f, "ref", fixture_yaml, overrides, 2));
    brim_workload_table table = *f.work->table;
    const brim_workload_table *real = f.work->table;
    table.metrics = skipping_metrics;
    f.work->table = &table;
    brim_run_options options = {.output_dir = folder};
    brim_run_result r;
    brim_status status = brim_run_train(f.work, f.config, &options, &r);
    f.work->table = real;
    fixture_close(&f);
    assert_int_equal(status, cases[i].lost ? BRIM_ESTATE : BRIM_OK);
    size_t size;
    char *log = slurp(folder, "log.jsonl", &size);
    assert_int_equal(strstr(log, "loss_scale") != NULL, !isnan(cases[i].scale));
    brim_free(log);
  }
}

static char taken[64];
static int prepared_before;

static brim_status fake_get(void *impl, char **text) {
  (void)impl;
  *text = brim_strdup("shape choice\n");
  return *text ? BRIM_OK : BRIM_ENOMEM;
}

static brim_status fake_put(void *impl, const char *text) {
  (void)impl;
  snprintf(taken, sizeof taken, "%s", text);
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  // a network would have planned memory already
  prepared_before = stats.live_bytes[BRIM_MEM_PLANNED] > 0;
  return BRIM_OK;
}

// A checkpoint's algorithms are set before the network is built.
static void test_algorithms_come_before_the_network(void **state) {
  (void)state;
  for (int resumed = 0; resumed < 2; resumed++) {
    fixture f;
    assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
    brim_backend fake = *f.device->backend;
    const brim_backend *real = f.device->backend;
    fake.algorithms_get = fake_get;
    fake.algorithms_put = fake_put;
    f.device->backend = &fake;
    brim_run_options options = {
        .output_dir = "algorithms", .resume = resumed, .max_steps = 3 + 3 * resumed};
    brim_run_result r;
    assert_ok(brim_run_train(f.work, f.config, &options, &r));
    brim_work_close(f.work);
    f.work = NULL;
    f.device->backend = real;
    fixture_close(&f);
    assert_string_equal(taken, resumed ? "shape choice\n" : "");
  }
  assert_int_equal(prepared_before, 0);
}

int main(void) {
  // the order matters: later tests compare with files of the first one
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_run_leaves_its_files),
      cmocka_unit_test(test_best_and_last_are_two_files),
      cmocka_unit_test(test_cut_and_resumed_equals_whole),
      cmocka_unit_test(test_stop_flag_saves_and_says_so),
      cmocka_unit_test(test_log_rows_after_the_checkpoint_are_dropped),
      cmocka_unit_test(test_resuming_a_finished_run_changes_nothing),
      cmocka_unit_test(test_a_resumed_epoch_reports_the_whole_epoch),
      cmocka_unit_test(test_divergence_is_an_error_and_never_best),
      cmocka_unit_test(test_dead_weights_are_not_saved),
      cmocka_unit_test(test_an_evaluation_without_a_loss_is_never_best),
      cmocka_unit_test(test_eval_interval),
      cmocka_unit_test(test_stale_temporaries_go),
      cmocka_unit_test(test_resuming_with_other_settings_says_so),
      cmocka_unit_test(test_loading_is_reported),
      cmocka_unit_test(test_max_steps_count_from_the_start),
      cmocka_unit_test(test_one_run_per_folder),
      cmocka_unit_test(test_what_cannot_fit_is_not_tried),
      cmocka_unit_test(test_unwritable_folder_is_a_clear_error),
      cmocka_unit_test(test_a_loss_scale_in_search_is_no_failure),
      cmocka_unit_test(test_algorithms_come_before_the_network),
  };
  if (system("rm -rf whole cut stopped logs file diverged dead other limit taken huge loading "
             "loading2"))
    return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
