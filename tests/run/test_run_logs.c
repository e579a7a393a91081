// The logs of a run: rotation, event files, reports of steps, and anomalies.
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run/run_test.h"

//---------------------------------- logs ----------------------------------

static int64_t step_of(const char *line) {
  const char *at = strstr(line, "\"step\":");
  return at ? strtoll(at + 7, NULL, 10) : -1;
}

// Rows of all files of a log, in order; every CSV file begins with the header.
static int rows_of(const char *folder, const char *ext, int *files) {
  int rows = 0;
  int64_t last = 0;
  for (*files = 0;; ++*files) {
    char name[32];
    snprintf(name, sizeof name, "log.%d.%s", *files, ext);
    if (*files == 0) snprintf(name, sizeof name, "log.%s", ext);
    if (!exists(folder, name)) return rows;
    char *text = slurp(folder, name);
    bool csv = strcmp(ext, "csv") == 0;
    if (csv) assert_true(brim_str_starts(text, "epoch,step,lr,"));
    int here = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
      if (csv && brim_str_starts(line, "epoch,")) continue;
      int64_t step = csv ? strtoll(strchr(line, ',') + 1, NULL, 10) : step_of(line);
      assert_true(step >= last);
      last = step;
      here++;
    }
    assert_true(here > 0);
    rows += here;
    brim_free(text);
  }
}

static void test_log_rotation(void **state) {
  (void)state;
  brim_run_result r;
  int files;
  fresh("rotated");
  job j = {.folder = "rotated",
           .overrides = {"training.epochs=6", "log.interval=8", "log.rotate=400"}};
  assert_ok(run(&j, &r));
  assert_int_equal(rows_of("rotated", "csv", &files), 6);
  assert_true(files > 1);
  assert_int_equal(rows_of("rotated", "jsonl", &files), 6 + 12);
  assert_true(files > 3);
  // resumed from the middle (rows and files after the checkpoint are dropped): the same rows
  fresh("rotated2");
  j.folder = "rotated2";
  j.max_steps = 40;
  assert_ok(run(&j, &r));
  assert_ok(brim_fs_copy("rotated2/last.safetensors", "kept.safetensors"));
  j.resume = true;
  j.max_steps = 90;
  assert_ok(run(&j, &r));
  assert_ok(brim_fs_copy("kept.safetensors", "rotated2/last.safetensors"));
  j.max_steps = 0;
  assert_ok(run(&j, &r));
  assert_int_equal(rows_of("rotated2", "csv", &files), 6);
  assert_int_equal(rows_of("rotated2", "jsonl", &files), 6 + 12);
  // 0 means never
  fresh("rotated3");
  j.folder = "rotated3";
  j.resume = false;
  j.overrides[2] = "log.rotate=0";
  assert_ok(run(&j, &r));
  assert_int_equal(rows_of("rotated3", "jsonl", &files), 6 + 12);
  assert_int_equal(files, 1);
}

// Counts the occurrences of a tag in the event files.
static int tag_count(const char *folder, const char *tag) {
  char **names;
  size_t count;
  int found = 0;
  size_t n = strlen(tag);
  assert_ok(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; i < count; i++) {
    if (!brim_str_starts(names[i], "events.out.tfevents.")) continue;
    char *path = brim_fs_join(folder, names[i]), *data;
    size_t size;
    assert_ok(brim_fs_read(path, 0, &data, &size));
    for (size_t at = 2; at + n < size; at++) {
      bool here = data[at - 2] == 0x0a && data[at - 1] == (char)n;
      if (here && memcmp(data + at, tag, n) == 0 && data[at + n] == 0x15) found++;
    }
    brim_free(data);
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  return found;
}

static void remove_logs(void *ctx, const brim_run_steps *steps) {
  const int64_t *at = ctx;
  if (steps->step != *at) return;
  assert_ok(brim_fs_remove("emptied/log.csv"));
  assert_ok(brim_fs_remove("emptied/log.jsonl"));
}

static void plant_links(void *ctx, const brim_run_steps *steps) {
  const int64_t *at = ctx;
  if (steps->step != *at) return;
  assert_int_equal(rename("linked/log.jsonl", "linked/moved"), 0);
  assert_int_equal(symlink("../theirs", "linked/log.jsonl"), 0);
}

// Logs are never written through a link, whether it is there before the run or appears later.
static void test_links_in_place_of_logs(void **state) {
  (void)state;
  static const char *const names[] = {"linked/log.jsonl", "linked/log.1.jsonl"};
  static const char theirs[] = "{\"event\":\"epoch\",\"step\":0}\n";
  brim_run_result r;
  struct stat st;
  int64_t at = 24;
  fresh("linked");
  assert_ok(brim_fs_mkdirs("linked"));
  assert_ok(brim_fs_write("theirs", theirs, strlen(theirs)));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    assert_int_equal(symlink("../theirs", names[i]), 0);
  }
  job j = {.folder = "linked",
           .overrides = {"training.epochs=6", "log.interval=8"},
           .on_steps = plant_links,
           .ctx = &at};
  assert_ok(run(&j, &r));
  char *text = slurp(".", "theirs");
  assert_string_equal(text, theirs);
  brim_free(text);
  assert_int_equal(lstat("linked/log.jsonl", &st), 0);
  assert_true(S_ISREG(st.st_mode));
}

// A log that was removed during the run is written again from its header.
static void test_logs_removed_meanwhile(void **state) {
  (void)state;
  brim_run_result r;
  int files;
  int64_t at = 24;
  fresh("emptied");
  job j = {.folder = "emptied",
           .overrides = {"training.epochs=6", "log.interval=8"},
           .on_steps = remove_logs,
           .ctx = &at};
  assert_ok(run(&j, &r));
  int rows = rows_of("emptied", "csv", &files);
  assert_true(rows > 0 && rows < 6);
  char *text = slurp("emptied", "log.csv");
  assert_int_equal(count_of(text, "epoch,step"), 1);
  brim_free(text);
  assert_true(rows_of("emptied", "jsonl", &files) > rows);
}

// A CSV file that was emptied or torn gets its header back when the run continues; incomplete rows are removed.
static void test_a_torn_log(void **state) {
  (void)state;
  static const char *const torn[] = {"", "epoch,st", "epoch,step,lr,train", "\n\nepo\n",
                                     "nonsense, that\n1,16,0.1,1,1,1,1,1,1\n"};
  for (size_t i = 0; i < sizeof torn / sizeof *torn; i++) {
    brim_run_result r;
    int files;
    fresh("torn");
    job j = {.folder = "torn", .overrides = {"training.epochs=2"}, .max_steps = 16};
    assert_ok(run(&j, &r));
    assert_ok(brim_fs_write("torn/log.csv", torn[i], strlen(torn[i])));
    j.resume = true;
    j.max_steps = 0;
    assert_ok(run(&j, &r));
    assert_int_equal(rows_of("torn", "csv", &files), i == 4 ? 2 : 1);
    char *text = slurp("torn", "log.csv");
    assert_int_equal(count_of(text, "epoch,step"), 1);
    assert_null(strstr(text, "nonsense"));
    brim_free(text);
  }
}

// The message names the process that holds the folder, and what to do.
static void test_folder_of_another_run(void **state) {
  (void)state;
  brim_run_result r;
  brim_fs_lockfile *lock;
  fresh("taken");
  assert_ok(brim_fs_mkdirs("taken"));
  assert_ok(brim_fs_lock_folder("taken", &lock));
  job j = {.folder = "taken"};
  assert_status(run(&j, &r), BRIM_EEXIST);
  assert_non_null(strstr(brim_status_detail(), "another run is writing to this folder"));
  assert_non_null(strstr(brim_status_detail(), "--output-dir"));
  assert_non_null(strstr(brim_status_detail(), "wait for it"));
  brim_fs_unlock(lock);
  assert_ok(run(&j, &r));
  // a file is no process to wait for
  fresh("afile");
  assert_ok(brim_fs_write("afile", "x", 1));
  j.folder = "afile";
  assert_status(run(&j, &r), BRIM_EEXIST);
  assert_non_null(strstr(brim_status_detail(), "--output-dir"));
  assert_null(strstr(brim_status_detail(), "wait for it"));
  j.folder = "taken";
  fresh("taken");
  assert_ok(run(&j, &r));
  assert_true(r.wall_seconds >= r.seconds && r.seconds > 0);
}

static void test_event_files(void **state) {
  (void)state;
  brim_run_result r;
  fresh("board");
  job j = {.folder = "board", .overrides = {"log.tensorboard=true", "log.interval=4"}};
  j.max_steps = 22;
  assert_ok(run(&j, &r));
  assert_ok(brim_fs_copy("board/last.safetensors", "kept.safetensors"));
  j.resume = true;
  j.max_steps = 40;
  assert_ok(run(&j, &r));
  assert_ok(brim_fs_copy("kept.safetensors", "board/last.safetensors"));  // killed before a save
  j.max_steps = 0;
  assert_ok(run(&j, &r));
  static const char *const interval[] = {"loss", "accuracy", "lr", "samples_per_s", "grad_norm"};
  for (size_t i = 0; i < 5; i++) assert_int_equal(tag_count("board", interval[i]), 12);
  static const char *const epoch[] = {"val_loss", "val_accuracy", "epoch_loss", "epoch_accuracy"};
  for (size_t i = 0; i < 4; i++) assert_int_equal(tag_count("board", epoch[i]), 3);
  assert_int_equal(tag_count("board", "loss_scale"), 0);  // fp32 has no loss scale
}

//---------------------------------- steps and anomalies ----------------------------------

typedef struct lines {
  int count;
  int64_t last;
} lines;

static void on_steps(void *ctx, const brim_run_steps *s) {
  lines *l = ctx;
  l->count++;
  assert_int_equal(s->step, l->last + 6);
  l->last = s->step;
  assert_true(s->data_s >= 0 && s->compute_s > 0);
  assert_true(isfinite(s->values[BRIM_NET_LOSS]) && isfinite(s->values[BRIM_NET_GRAD_NORM]));
}

static void test_steps_are_reported(void **state) {
  (void)state;
  lines l = {0};
  brim_run_result r;
  fresh("lines");
  job j = {.folder = "lines", .overrides = {"log.interval=6"}, .on_steps = on_steps, .ctx = &l};
  assert_ok(run(&j, &r));
  assert_int_equal(l.count, 8);
}

// Sleeps, and adds the time to idle_ns. No interval may count it: all intervals together must not exceed the clock's
// time minus idle_ns.
static int64_t idle_ns;
static void idle(void) {
  brim_time start = brim_clock_now();
  brim_clock_sleep_ns(30000000);
  idle_ns += brim_time_since_ns(start, brim_clock_now());
}

static brim_status idle_evaluate(void *work, brim_work_metrics *out) {
  idle();
  return brim_workload_find("supervised")->evaluation->evaluate(work, out);
}

static brim_status idle_save(void *work, const char *path, const json_t *extra, bool weights_only) {
  idle();
  return brim_workload_find("supervised")->save(work, path, extra, weights_only);
}

typedef struct sum_of_steps {
  brim_time first, last;  // time of the first and last report
  int64_t idle_first, idle_last;
  double seconds, rated;  // of the intervals after the first report, by both figures
  int count;
} sum_of_steps;

static void sum_steps(void *ctx, const brim_run_steps *s) {
  sum_of_steps *sum = ctx;
  sum->last = brim_clock_now();
  sum->idle_last = idle_ns;
  if (sum->count++ == 0) {
    sum->first = sum->last;
    sum->idle_first = idle_ns;
    return;
  }
  sum->seconds += s->data_s + s->compute_s;
  sum->rated += 20 / s->samples_per_s;  // 500 samples make 15 batches of 32 and one of 20
}

static void test_only_computing_is_computing(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  static const brim_work_evaluation_table evaluation = {.evaluate = idle_evaluate};
  table.evaluation = &evaluation;
  table.save = idle_save;
  table.background = NULL;
  sum_of_steps sum = {0};
  brim_run_result r;
  fresh("idle");
  job j = {.folder = "idle",
           .overrides = {"log.interval=1", "checkpoint.interval=3"},
           .table = &table,
           .on_steps = sum_steps,
           .ctx = &sum};
  assert_ok(run(&j, &r));
  assert_int_equal(sum.count, 48);
  int64_t left = brim_time_since_ns(sum.first, sum.last) - (sum.idle_last - sum.idle_first);
  assert_true(sum.idle_last - sum.idle_first > 15 * (int64_t)30000000);
  assert_true(sum.seconds <= (double)left * 1e-9);
  assert_true(sum.rated <= (double)left * 1e-9);
}

// A device that is still busy after steps were enqueued. Reading figures waits for it, and that wait counts as time of
// the steps.
static int waits;
static brim_status waiting_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_clock_sleep_ns(20000000);
  waits++;
  return brim_workload_find("supervised")->metrics(work, reset, out);
}

static void test_waiting_is_training(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  table.metrics = waiting_metrics;
  brim_run_result r;
  waits = 0;
  fresh("waits");
  job j = {.folder = "waits", .overrides = {"log.interval=4"}, .table = &table};
  assert_ok(run(&j, &r));
  assert_true(waits >= 12);
  assert_true(r.seconds >= 0.02 * waits);
  assert_true(r.samples_per_s <= 3 * 500 / (0.02 * waits));
}

// Real metrics, replaced by planned figures at some readings.
enum { ALWAYS = -2 };
static int reading;
static struct {
  int at;
  double loss, norm, scale;
  int64_t bad, skipped;
} plan[8];

static void set_loss(brim_work_metrics *out, double loss) {
  out->values[BRIM_NET_LOSS] = loss;
  out->sums[BRIM_NET_SUM_LOSS] = loss * out->sums[BRIM_NET_SUM_ROWS];
}

static brim_status planned_metrics(void *work, bool reset, brim_work_metrics *out) {
  BRIM_TRY(brim_workload_find("supervised")->metrics(work, reset, out));
  static int64_t skipped;
  if (reading == 0) skipped = 0;
  double loss = 1;
  out->values[BRIM_NET_GRAD_NORM_MAX] = 2;
  out->values[BRIM_NET_LOSS_SCALE] = plan[0].scale;
  out->searching = plan[0].scale > 1;
  for (size_t i = 0; i < 8; i++) {
    if (plan[i].at != reading && plan[i].at != ALWAYS) continue;
    if (plan[i].loss > 0) loss = plan[i].loss;
    if (plan[i].norm > 0) out->values[BRIM_NET_GRAD_NORM_MAX] = plan[i].norm;
    out->bad = plan[i].bad;
    skipped += plan[i].skipped;
  }
  set_loss(out, loss);
  out->skipped = skipped;
  reading++;
  return BRIM_OK;
}

static brim_status run_planned(const char *folder, brim_run_result *r) {
  brim_workload_table table = *brim_workload_find("supervised");
  table.metrics = planned_metrics;
  reading = 0;
  fresh(folder);
  job j = {.folder = folder, .overrides = {"training.epochs=12"}, .table = &table};
  listen_now();
  brim_status status = run(&j, r);
  listen_no_more();
  return status;
}

static void test_anomalies(void **state) {
  (void)state;
  brim_run_result r;
  memset(plan, 0, sizeof plan);
  for (size_t i = 0; i < 8; i++) plan[i].at = -1;
  plan[0].scale = (double)NAN;
  // no anomaly, no message
  assert_ok(run_planned("fine", &r));
  assert_string_equal(warned, "");
  for (int i = 0; i < BRIM_WORK_MAX_TROUBLES; i++) assert_int_equal(r.anomalies[i], 0);
  int readings = reading;
  assert_true(readings > 24);
  // a reading too early to count, then an explosion of each kind, samples without a loss, and skipped steps
  plan[1].at = 2, plan[1].loss = 500, plan[1].norm = 5000;
  plan[2].at = 11, plan[2].loss = 50;
  plan[3].at = 13, plan[3].norm = 100;
  plan[4].at = 14, plan[4].bad = 3;
  plan[5].at = 15, plan[5].skipped = 2;
  plan[6].at = 16, plan[6].bad = 4;
  plan[7].at = 17, plan[7].bad = 5;
  assert_ok(run_planned("wrong", &r));
  assert_int_equal(r.anomalies[trouble(&r, "loss_exploded")], 1);
  assert_int_equal(r.anomalies[trouble(&r, "gradient_exploded")], 1);
  assert_int_equal(r.anomalies[trouble(&r, "loss_not_finite")], 12);
  assert_int_equal(r.anomalies[trouble(&r, "gradient_not_finite")], 2);
  assert_true(r.first_anomaly[trouble(&r, "loss_exploded")] > 0);
  assert_int_equal(count_of(warned, "loss 50"), 1);
  assert_int_equal(count_of(warned, "gradient norm 100"), 1);
  assert_int_equal(count_of(warned, "samples gave a loss"), 2);  // at the 1st and the 2nd time
  assert_int_equal(count_of(warned, "skipped 2 steps"), 1);
  assert_true(count_of(warned, "learning rate (now 0.01)") >= 4);
  assert_non_null(strstr(warned, "training.clip_norm=1"));
  assert_non_null(strstr(warned, "brim data verify"));
  char *log = slurp("wrong", "log.jsonl");
  assert_int_equal(count_of(log, "\"anomaly\""), 6);
  assert_int_equal(count_of(log, "\"loss_not_finite\""), 3);
  assert_int_equal(count_of(log, "\"gradient_exploded\""), 1);
  brim_free(log);
  // most steps had no effect: the run does not succeed, and gives the reason
  for (size_t i = 1; i < 8; i++) plan[i].at = -1;
  const int64_t steps = r.steps;
  plan[5].at = ALWAYS, plan[5].skipped = (steps / 12 - 1) * 12 / readings;
  assert_true(plan[5].skipped > 0);
  assert_int_equal(run_planned("most", &r), BRIM_ESTATE);
  assert_true(r.diverged && r.lost_steps > steps / 2 && r.lost_steps < steps);
  assert_int_equal(r.steps, steps);
  assert_non_null(strstr(brim_status_detail(), "steps had no effect"));
  assert_non_null(strstr(brim_status_detail(), "brim data verify"));
  brim_status_clear();
  plan[5].skipped = 2;
  // fp16 skips steps to find its scale: counted, not reported
  for (size_t i = 1; i < 8; i++) plan[i].at = -1;
  plan[0].scale = 1024;
  plan[5].at = 15;
  assert_ok(run_planned("scaled", &r));
  assert_int_equal(r.anomalies[trouble(&r, "gradient_not_finite")], 2);
  assert_string_equal(warned, "");
}

// Metrics that depend on the step alone. They fall, so a late value may be large beside its neighbours and small beside
// the first ones: the jump at 150 is none, the one at 170 is real, and steps are skipped at 75.
static int64_t step_now;
static brim_status noting_step(void *work, const brim_spans *spans, brim_step_info *out) {
  BRIM_TRY(brim_workload_find("supervised")->step(work, spans, out));
  step_now = out->step;
  return BRIM_OK;
}

static brim_status falling_metrics(void *work, bool reset, brim_work_metrics *out) {
  BRIM_TRY(brim_workload_find("supervised")->metrics(work, reset, out));
  double jump = step_now == 150 ? 100 : step_now == 170 ? 1e7 : 1;
  double loss = 1000 * exp(-(double)step_now / 20) * jump;
  set_loss(out, loss);
  out->values[BRIM_NET_GRAD_NORM_MAX] = 10 * loss;
  out->skipped = step_now >= 75 ? 2 : 0;
  return BRIM_OK;
}

// Lists the anomalies of a run's log, one a line; free it with brim_free.
static char *anomalies_in(const char *folder) {
  char *log = slurp(folder, "log.jsonl"), *to = log;
  for (char *line = log; *line;) {
    size_t n = strcspn(line, "\n");
    if (line[n]) n++;
    char *next = line + n;
    char kept = *next;
    *next = 0;
    bool wanted = strstr(line, "\"anomaly\"") != NULL;
    *next = kept;
    if (wanted) memmove(to, line, n);
    if (wanted) to += n;
    line = next;
  }
  *to = 0;
  return log;
}

static void test_a_resumed_run_warns_as_an_uninterrupted_one(void **state) {
  (void)state;
  brim_workload_table table = *brim_workload_find("supervised");
  table.step = noting_step;
  table.metrics = falling_metrics;
  brim_run_result r;
  fresh("whole");
  fresh("pieces");
  job j = {.folder = "whole", .overrides = {"training.epochs=12"}, .table = &table};
  listen_now();
  assert_ok(run(&j, &r));
  assert_int_equal(count_of(warned, "\n"), 3);  // two explosions at 170, and the skipped steps
  j.folder = "pieces";
  // the cut at 76 is between the skipping and its reading
  const int64_t cuts[] = {5, 76, 112, 144, 171, 0};
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    // forget the skipping: the run continues at the last checkpoint and reports it again
    if (cuts[i] == 112) warned[0] = 0;
    j.max_steps = cuts[i];
    assert_ok(run(&j, &r));
    j.resume = true;
  }
  listen_no_more();
  assert_int_equal(count_of(warned, "\n"), 3);
  char *whole = anomalies_in("whole"), *pieces = anomalies_in("pieces");
  assert_int_equal(count_of(whole, "\n"), 3);
  assert_string_equal(whole, pieces);
  brim_free(whole);
  brim_free(pieces);
  assert_same("whole", "pieces", "last.safetensors");
}

// A real divergence: a learning rate that is far too high.
static void test_a_real_explosion_is_seen(void **state) {
  (void)state;
  brim_run_result r;
  fresh("boom");
  job j = {.folder = "boom", .overrides = {"optimizer=sgd(lr=1e9)", "training.epochs=1"}};
  listen_now();
  assert_int_not_equal(run(&j, &r), BRIM_OK);
  listen_no_more();
  assert_true(r.anomalies[trouble(&r, "loss_not_finite")] > 0);
  assert_true(r.anomalies[trouble(&r, "gradient_not_finite")] > 0);
  assert_non_null(strstr(warned, "learning rate"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_log_rotation),
      cmocka_unit_test(test_logs_removed_meanwhile),
      cmocka_unit_test(test_links_in_place_of_logs),
      cmocka_unit_test(test_a_torn_log),
      cmocka_unit_test(test_folder_of_another_run),
      cmocka_unit_test(test_event_files),
      cmocka_unit_test(test_steps_are_reported),
      cmocka_unit_test(test_only_computing_is_computing),
      cmocka_unit_test(test_waiting_is_training),
      cmocka_unit_test(test_anomalies),
      cmocka_unit_test(test_a_resumed_run_warns_as_an_uninterrupted_one),
      cmocka_unit_test(test_a_real_explosion_is_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
