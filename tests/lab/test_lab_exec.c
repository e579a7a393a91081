// The executor with trainings that are scripts: the data that reach the store, the class of each end, stops, hangs,
// broken links, and the files left for the next sweep.
#include "exec_test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "lab/exec/lab_exec_int.h"

static const char good[] =
    "start; row 1 10 0.5\n"
    "echo '{\"event\":\"progress\",\"title\":\"epoch 1/2\",\"step\":4,\"epoch\":1,\"epochs\":2}'\n"
    "echo '{\"event\":\"epoch\",\"epoch\":1,\"epochs\":2}'\n"
    "echo 'brim: warning: a line for people' >&2\n"
    "row 2 20 0.25; result\n";

static void test_a_training_is_reported(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "a training");
  assert_ok(exec_run(&f, "printf '%s\\n' \"$@\" >words\ncat \"$1\" >config\n",
                     (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.end, BRIM_LAB_EXEC_REPORTED);
  // exit code 0 needs no result event
  assert_int_equal(r.outcome, BRIM_ATTEMPT_OK);
  assert_int_equal(r.state, BRIM_EXP_DONE);
  char *text = NULL;
  assert_ok(brim_fs_read("config", 0, &text, NULL));
  assert_string_equal(text, exec_config);
  brim_free(text);
  assert_ok(brim_fs_read("words", 0, &text, NULL));
  char expected[512];
  snprintf(expected, sizeof expected,
           "%s/experiment.yaml\n--output-dir\n%s\n--json\nlog.jsonl=true\n", f.folder, f.folder);
  assert_string_equal(text, expected);
  brim_free(text);
  exec_teardown(&f);
}

static brim_status check_attempt(void *ctx, const brim_store_attempt *a) {
  *(int *)ctx += 1;
  assert_int_equal(a->outcome, BRIM_ATTEMPT_OK);
  assert_int_equal(a->pid, getpid());
  assert_int_equal(a->from_step, 0);
  assert_int_equal(a->exit_code, 0);
  return BRIM_OK;
}

static void test_metrics_and_progress_are_in_the_store(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "metrics");
  const brim_lab_exec_options o = {.device = "cpu", .threads = 3, .gpus = "GPU-1,GPU-2"};
  brim_str script;
  brim_str_init(&script);
  brim_str_printf(&script,
                  "%secho \"$*\" >words; echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER "
                  "$BRIM_RANK of $BRIM_RANKS >gpus\n"
                  "sleep 0.3\n",
                  good);
  assert_ok(exec_run(&f, script.data, o, &r));
  brim_str_deinit(&script);
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, BRIM_EXP_DONE);
  assert_int_equal(exp->step, 20);
  assert_int_equal(exp->steps, 20);
  assert_int_equal(exp->epoch, 2);
  assert_int_equal(exp->epochs, 2);
  assert_true(exp->metric == 0.25);
  brim_store_exp_free(exp);
  metric_rows m = exec_metrics(&f, NULL);
  assert_int_equal(m.count, 2);  // the times are no metrics
  assert_true(m.sum == 10 * 0.5 + 20 * 0.25);
  int attempts = 0;
  assert_ok(brim_store_attempts(f.store, exec_id, check_attempt, &attempts));
  assert_int_equal(attempts, 1);
  char *text = NULL, *log = brim_fs_join(f.folder, "attempt-1.log");
  size_t size = 0;
  assert_ok(brim_fs_read(log, 0, &text, &size));
  assert_non_null(strstr(text, "a line for people\n"));
  assert_non_null(strstr(text, "  epoch  epoch=1 epochs=2\n"));
  assert_non_null(strstr(text, "  start  epochs=2 steps=20 "));
  assert_null(strstr(text, "progress"));
  int year = 0, second = -1;
  int zone = 0;
  char sign = 0;
  assert_int_equal(sscanf(text, "%d-%*d-%*d %*d:%*d:%d%c%4d  start", &year, &second, &sign, &zone),
                   4);
  assert_true(year > 2000 && second >= 0);
  assert_true(sign == '+' || sign == '-');  // the time zone is written
  int64_t noted = 0;
  assert_ok(brim_store_log_size(f.store, exec_id, 1, "log", &noted));
  assert_int_equal(noted, (int64_t)size);
  brim_free(text);
  brim_free(log);
  assert_ok(brim_fs_read("words", 0, &text, NULL));
  assert_non_null(strstr(text, " --device cpu --threads 3 gpus=2 "));  // one rank on each
  brim_free(text);
  assert_ok(brim_fs_read("gpus", 0, &text, NULL));
  assert_string_equal(text, "GPU-1,GPU-2 PCI_BUS_ID 0 of 1\n");
  brim_free(text);
  assert_false(exec_has(&f, "attempt-1.spool"));
  assert_false(exec_has(&f, "executor.json"));
  exec_teardown(&f);
}

// Another user put links where the log will be: the executor does not touch their targets.
static void test_links_in_place_of_the_log(void **state) {
  (void)state;
  for (int hard = 0; hard < 2; hard++) {
    fixture f;
    brim_lab_exec_report r;
    struct stat st;
    char *text = NULL, here[512], victim[600];
    exec_setup(&f, "planted");
    assert_ok(brim_fs_mkdirs(f.folder));
    assert_non_null(getcwd(here, sizeof here));
    snprintf(victim, sizeof victim, "%s/victim", here);
    assert_ok(brim_fs_write(victim, "mine", 4));
    char *path = brim_fs_join(f.folder, "attempt-1.log");
    assert_int_equal(hard ? link(victim, path) : symlink(victim, path), 0);
    const mode_t before = umask(hard ? 077 : 027);  // a group that shares the folder has 027
    assert_ok(exec_run(&f, good, (brim_lab_exec_options){0}, &r));
    (void)umask(before);
    assert_int_equal(r.outcome, BRIM_ATTEMPT_OK);
    assert_ok(brim_fs_read(victim, 0, &text, NULL));
    assert_string_equal(text, "mine");
    brim_free(text);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_size > 0);
    assert_int_equal(st.st_mode & 0777, hard ? 0600 : 0640);
    brim_free(path);
    exec_teardown(&f);
  }
}

// A config from a server cannot name a file of the worker.
static brim_status give_include(void *ctx, const brim_lab_request *request, brim_lab_reply *reply,
                                bool *taken) {
  const brim_store_exp exp = {.id = exec_id,
                              .grid = "",
                              .label = "",
                              .config = "name: one\n\"include\": [secret.yaml]\n",
                              .tags = "",
                              .worker = "",
                              .metric_key = "",
                              .failure = "",
                              .reason = "",
                              .last_lines = "",
                              .findings = "",
                              .owed = ""};
  (void)ctx;
  *taken = request->op == BRIM_LAB_OP_GET;
  return *taken ? brim_store_exp_copy(&exp, &reply->found) : BRIM_OK;
}

static void test_a_config_that_includes(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "includes");
  assert_ok(brim_fs_write("secret.yaml", "my secret", 9));
  brim_lab_link_close(f.link);
  const brim_lab_ops ops = {.store = f.store, .answer = give_include};
  assert_ok(brim_lab_link_local(&ops, &f.link));
  assert_ok(exec_run(&f, "start; : >ran; result", (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.outcome, BRIM_ATTEMPT_ERROR);
  assert_non_null(strstr(r.message, "include"));
  assert_null(strstr(r.message, "my secret"));
  assert_false(brim_fs_exists("ran"));
  exec_teardown(&f);
}

//---------------------------------- classes ----------------------------------

static void expect_end(const char *script, brim_failure failure, brim_exp_state becomes,
                       const char *message) {
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "classes");
  assert_ok(exec_run(&f, script, (brim_lab_exec_options){0}, &r));
  if (r.failure != failure) {
    fail_msg("%s: class %s, not %s: %s", script, brim_failure_name(r.failure),
             brim_failure_name(failure), r.message);
  }
  assert_int_equal(r.outcome, failure ? BRIM_ATTEMPT_ERROR : BRIM_ATTEMPT_OK);
  assert_int_equal(r.end, BRIM_LAB_EXEC_REPORTED);
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, becomes);
  assert_int_equal(r.state, becomes);
  assert_string_equal(exp->failure, brim_failure_name(failure));
  if (message && !strstr(exp->reason, message)) fail_msg("no '%s' in '%s'", message, exp->reason);
  brim_store_exp_free(exp);
  exec_teardown(&f);
}

static void test_every_end_has_its_class(void **state) {
  (void)state;
  const brim_exp_state queued = BRIM_EXP_QUEUED, failed = BRIM_EXP_FAILED;
  // by the class that the training reports
  expect_end("start; error BRIM_ESTATE 'diverged' ',\"class\":\"nan\"'; exit 1", BRIM_FAILURE_NAN,
             failed, "diverged");
  expect_end("start; error BRIM_EIO 'x.h5: cut short' ',\"class\":\"data\"'; exit 1",
             BRIM_FAILURE_DATA, failed, "x.h5: cut short");
  expect_end("error BRIM_EINVAL 'no such key' ',\"class\":\"bad_config\"'; exit 2",
             BRIM_FAILURE_BAD_CONFIG, failed, "no such key");
  expect_end("start; error BRIM_EDEVICE 'device lost' ',\"class\":\"infrastructure\"'; exit 3",
             BRIM_FAILURE_INFRASTRUCTURE, queued, "device lost");
  // by the reported status, if it names no class
  expect_end("start; error BRIM_EOOM 'no memory'; exit 4", BRIM_FAILURE_OOM_DEVICE, failed, NULL);
  expect_end("error BRIM_EOOM 'no memory'; exit 4", BRIM_FAILURE_OOM_PLANNED, failed, NULL);
  expect_end("start; error BRIM_ENOMEM 'no memory'; exit 4", BRIM_FAILURE_OOM_HOST, failed, NULL);
  expect_end("start; error BRIM_ESTATE 'diverged'; exit 1", BRIM_FAILURE_NAN, failed, NULL);
  expect_end("error BRIM_EUNSUPPORTED 'fp8'; exit 3", BRIM_FAILURE_UNSUPPORTED, failed, NULL);
  // a full disk, whatever operation of the training it ended
  expect_end("start; error BRIM_EIO 'last: No space left on device; cannot save'; exit 1",
             BRIM_FAILURE_INFRASTRUCTURE, queued, "No space");
  expect_end("start; error BRIM_EIO 'log: File too large'; exit 1", BRIM_FAILURE_INFRASTRUCTURE,
             queued, NULL);
  // by exit code and signal
  expect_end("echo 'lost my mind' >&2; exit 7", BRIM_FAILURE_CRASH, queued, "lost my mind");
  expect_end("exit 2", BRIM_FAILURE_BAD_CONFIG, failed, NULL);
  expect_end("start; exit 130", BRIM_FAILURE_INTERRUPTED, queued, NULL);
  expect_end("start; kill -SEGV $$", BRIM_FAILURE_CRASH, queued, "SEGV");
  expect_end("start; kill -KILL $$", BRIM_FAILURE_KILLED, queued, "KILL");
  // the exit code of completed work
  expect_end("start; result; exit 0", BRIM_FAILURE_NONE, BRIM_EXP_DONE, NULL);
}

static void test_last_lines_are_kept(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "last lines");
  assert_ok(exec_run(&f, "for i in $(seq 1 100); do echo \"line $i\" >&2; done; exit 9",
                     (brim_lab_exec_options){0}, &r));
  brim_store_exp *exp = exec_get(&f);
  assert_true(brim_str_starts(exp->last_lines, "line 61\n"));
  assert_true(brim_str_ends(exp->last_lines, "line 100\n"));
  brim_store_exp_free(exp);
  exec_teardown(&f);
}

static void test_a_program_that_cannot_start(void **state) {
  (void)state;
  static const char *const nothing[] = {"/nonexistent/brim", "train", NULL};
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "cannot start");
  assert_ok(exec_run(&f, "", (brim_lab_exec_options){.command = nothing}, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_INFRASTRUCTURE);
  assert_int_equal(r.state, BRIM_EXP_QUEUED);
  assert_non_null(strstr(r.message, "/nonexistent/brim"));
  exec_teardown(&f);
}

static void stop_at_second(fixture *f, int n) {
  if (n == 2) f->stop = 1;
}

// The second beat is far off, but the live table needs progress before it.
static void test_progress_is_told_between_beats(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "progress");
  f.on_beat = stop_at_second;
  assert_ok(
      exec_run(&f,
               "trap 'exit 130' TERM\nstart; i=0\n"
               "while :; do i=$((i + 1)); sleep 0.05\n"
               "echo '{\"event\":\"progress\",\"title\":\"epoch 1/2\",\"epoch\":1,\"step\":'$i'}'\n"
               "done\n",
               (brim_lab_exec_options){.beat_ms = 3600000}, &r));
  assert_int_equal(r.outcome, BRIM_ATTEMPT_STOPPED);
  brim_store_exp *exp = exec_get(&f);
  assert_true(exp->step > 0);
  brim_store_exp_free(exp);
  exec_teardown(&f);
}

//---------------------------------- stops ----------------------------------

// A training that saves when it is asked to stop, as `brim train` does.
static const char patient[] =
    "trap 'echo saved >\"$dir/saved\"; exit 130' TERM\n"
    "start; row 1 10 0.5\n"
    "while :; do sleep 0.02; done\n";

static void set_stop(fixture *f, int n) {
  if (n == 3) f->stop = 1;
}
static void want_pause(fixture *f, int n) {
  if (n == 3) assert_ok(brim_store_want(f->store, exec_id, BRIM_WANT_PAUSE));
}
static void want_cancel(fixture *f, int n) {
  if (n == 3) assert_ok(brim_store_want(f->store, exec_id, BRIM_WANT_CANCEL));
}

static void expect_stop(void (*on_beat)(fixture *f, int n), brim_exp_state becomes) {
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "stops");
  f.on_beat = on_beat;
  assert_ok(exec_run(&f, patient, (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.outcome, BRIM_ATTEMPT_STOPPED);
  assert_int_equal(r.state, becomes);
  assert_true(exec_has(&f, "saved"));
  assert_int_equal(exec_metrics(&f, "eval_loss").count, 1);
  exec_teardown(&f);
}

static void test_it_stops_cleanly(void **state) {
  (void)state;
  expect_stop(set_stop, BRIM_EXP_QUEUED);
  expect_stop(want_pause, BRIM_EXP_PAUSED);
  expect_stop(want_cancel, BRIM_EXP_CANCELLED);
}

// The training completes although the cancel request arrives: its result counts.
static void test_a_stop_that_comes_too_late(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "too late");
  f.on_beat = want_cancel;
  assert_ok(exec_run(&f, "trap 'result; exit 0' TERM\nstart\nwhile :; do sleep 0.02; done\n",
                     (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.outcome, BRIM_ATTEMPT_OK);
  assert_int_equal(r.state, BRIM_EXP_DONE);
  exec_teardown(&f);
}

static bool process_is_there(const char *file) {
  char *text = NULL;
  assert_ok(brim_fs_read(file, 0, &text, NULL));
  pid_t pid = (pid_t)atoi(text);
  brim_free(text);
  assert_true(pid > 0);
  // a zombie that init has yet to reap counts as gone; give the kernel a moment
  for (int i = 0; i < 500; i++) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (brim_fs_read(path, 0, &text, NULL)) return false;
    const char *at = strrchr(text, ')');
    if (at) sscanf(at + 1, " %c", &state);
    brim_free(text);
    if (state == 'Z' || state == 'X') return false;
    brim_clock_sleep_ns(10000000);
  }
  return true;
}

// Another attempt takes the experiment: later reports of this one are refused.
static void take_over(fixture *f, int n) {
  if (n != 3) return;
  const brim_store_result stopped = {.outcome = BRIM_ATTEMPT_STOPPED};
  assert_ok(brim_store_finish(f->store, &f->ref, &stopped, NULL));
  exec_claim(f);
}

static void test_a_replaced_attempt_ends_its_training(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "replaced");
  f.on_beat = take_over;
  const brim_store_ref before = f.ref;
  assert_ok(exec_run(&f,
                     "trap '' TERM\nsleep 1000 & echo $! >helper.pid\necho $$ >pid\nstart\n"
                     "while :; do sleep 0.02; done\n",
                     (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.end, BRIM_LAB_EXEC_STALE);
  assert_false(process_is_there("pid"));
  assert_false(process_is_there("helper.pid"));
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, BRIM_EXP_LEASED);
  assert_true(exp->fence > before.fence);
  brim_store_exp_free(exp);
  assert_false(exec_has(&f, "attempt-1.spool"));
  assert_true(exec_has(&f, "experiment.yaml"));
  // an attempt that was replaced before it began does not start its training
  assert_int_equal(remove("pid"), 0);
  f.on_beat = NULL;
  const brim_store_ref now = f.ref;
  f.ref = before;
  assert_ok(exec_run(&f, "echo $$ >pid", (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.end, BRIM_LAB_EXEC_STALE);
  assert_false(brim_fs_exists("pid"));
  f.ref = now;
  exec_teardown(&f);
}

static void test_the_watchdog(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  const brim_lab_exec_options o = {.stall_ms = 300, .grace_ms = 100};
  exec_setup(&f, "watchdog");
  // ignores SIGTERM and prints all the time: output is no progress
  assert_ok(exec_run(
      &f, "trap '' TERM\necho $$ >pid\nstart\nwhile :; do echo hm; sleep 0.05; done\n", o, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_HUNG);
  assert_int_equal(r.state, BRIM_EXP_QUEUED);
  assert_int_equal(r.exit_code, 128 + SIGKILL);
  assert_false(process_is_there("pid"));
  exec_teardown(&f);
  // a stopped process cannot receive SIGTERM either
  exec_setup(&f, "watchdog");
  assert_ok(exec_run(&f, "start; kill -STOP $$", o, &r));
  assert_int_equal(r.failure, BRIM_FAILURE_HUNG);
  exec_teardown(&f);
}

//---------------------------------- links ----------------------------------

static void test_lost_replies_change_nothing(void **state) {
  (void)state;
  for (int every = 2; every <= 3; every++) {
    fixture f;
    brim_lab_exec_report r;
    exec_setup(&f, "lost replies");
    f.lost_every = every;
    assert_ok(exec_run(&f, "start; for i in $(seq 1 40); do row 1 $i 0.5; sleep 0.01; done; result",
                       (brim_lab_exec_options){0}, &r));
    assert_int_equal(r.end, BRIM_LAB_EXEC_REPORTED);
    assert_int_equal(r.state, BRIM_EXP_DONE);
    metric_rows m = exec_metrics(&f, "eval_loss");
    assert_int_equal(m.count, 40);
    assert_true(m.sum == 0.5 * 820);
    exec_teardown(&f);
  }
}

static void test_a_link_that_comes_back(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "comes back");
  f.down_from = 4;
  f.down_to = 7;
  assert_ok(exec_run(&f, good, (brim_lab_exec_options){.linger_ms = 600000}, &r));
  assert_int_equal(r.end, BRIM_LAB_EXEC_REPORTED);
  assert_int_equal(r.state, BRIM_EXP_DONE);
  assert_int_equal(exec_metrics(&f, "eval_loss").count, 2);
  exec_teardown(&f);
}

static void replay(fixture *f, int64_t files, int64_t finished, int64_t stale) {
  brim_lab_replayed done;
  f->down_from = f->down_to = 0;
  assert_ok(brim_lab_spool_replay(f->place, f->link, &done));
  assert_int_equal(done.files, files);
  assert_int_equal(done.finished, finished);
  assert_int_equal(done.stale, stale);
}

// The sweep is gone: the training saves and ends, and the spool has everything the store lacks.
static void test_a_link_that_stays_away(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "stays away");
  f.down_from = 2;  // after the config and the start
  f.down_to = 1 << 30;
  assert_ok(exec_run(&f, patient, (brim_lab_exec_options){.linger_ms = 500}, &r));
  assert_int_equal(r.end, BRIM_LAB_EXEC_SPOOLED);
  assert_int_equal(r.outcome, BRIM_ATTEMPT_STOPPED);
  assert_true(exec_has(&f, "saved"));
  assert_true(exec_has(&f, "attempt-1.spool"));
  assert_int_equal(exec_metrics(&f, NULL).count, 0);
  brim_lab_replayed done;
  assert_int_equal(brim_lab_spool_replay(f.place, f.link, &done), BRIM_EIO);
  assert_true(exec_has(&f, "attempt-1.spool"));
  replay(&f, 1, 1, 0);
  assert_false(exec_has(&f, "attempt-1.spool"));
  assert_int_equal(exec_metrics(&f, "eval_loss").count, 1);
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, BRIM_EXP_QUEUED);
  brim_store_exp_free(exp);
  replay(&f, 0, 0, 0);
  exec_teardown(&f);
}

static void test_a_result_while_the_sweep_is_away(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "away at the end");
  f.down_from = 2;
  f.down_to = 1 << 30;
  assert_ok(exec_run(&f, good, (brim_lab_exec_options){.linger_ms = 1}, &r));
  assert_int_equal(r.end, BRIM_LAB_EXEC_SPOOLED);
  // the training may have ended before the executor gave up; both are results
  assert_true(r.outcome == BRIM_ATTEMPT_OK || r.outcome == BRIM_ATTEMPT_STOPPED);
  bool ok = r.outcome == BRIM_ATTEMPT_OK;
  replay(&f, 1, 1, 0);
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, ok ? BRIM_EXP_DONE : BRIM_EXP_QUEUED);
  brim_store_exp_free(exp);
  exec_teardown(&f);
}

// Another attempt ran meanwhile: the store ignores the first one's spool.
static void test_a_stale_spool_changes_nothing(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "stale spool");
  f.down_from = 2;
  f.down_to = 1 << 30;
  assert_ok(exec_run(&f, patient, (brim_lab_exec_options){.linger_ms = 1}, &r));
  assert_int_equal(r.end, BRIM_LAB_EXEC_SPOOLED);
  take_over(&f, 3);
  replay(&f, 0, 0, 1);
  assert_false(exec_has(&f, "attempt-1.spool"));
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, BRIM_EXP_LEASED);
  brim_store_exp_free(exp);
  exec_teardown(&f);
}

static void test_a_damaged_spool_is_set_aside(void **state) {
  (void)state;
  fixture f;
  exec_setup(&f, "damaged spool");
  assert_ok(brim_fs_mkdirs(f.folder));
  char *path = brim_fs_join(f.folder, "attempt-1.spool");
  assert_ok(brim_fs_write(path, "{\"op\": \"fini", 12));
  brim_free(path);
  replay(&f, 0, 0, 0);
  assert_false(exec_has(&f, "attempt-1.spool"));
  assert_true(exec_has(&f, "attempt-1.spool.bad"));
  exec_teardown(&f);
}

static const brim_store_metric one_row = {.key = "eval_loss", .step = 20, .value = 0.25};

// Every report of an executor arrives from the spool. Lines of a newer brim and a torn last line are kept.
static void test_a_spool_with_every_report(void **state) {
  (void)state;
  fixture f;
  brim_str lines;
  exec_setup(&f, "every report");
  assert_ok(brim_fs_mkdirs(f.folder));
  brim_str_init(&lines);
  const brim_lab_request reports[] = {
      {.op = BRIM_LAB_OP_START, .pid = 7},
      {.op = BRIM_LAB_OP_BEAT, .progress = {.step = 20, .steps = 20, .epoch = 2, .epochs = 2}},
      {.op = BRIM_LAB_OP_METRICS, .seq = 1, .metrics = {&one_row, 1}},
      {.op = BRIM_LAB_OP_LOG, .stream = "log", .size = 77},
      {.op = BRIM_LAB_OP_CHECKPOINT, .step = 15},
      {.op = BRIM_LAB_OP_FINDINGS, .findings = "[{\"code\":\"io_wait\"}]"},
      {.op = BRIM_LAB_OP_FINISH, .result = {.outcome = BRIM_ATTEMPT_OK}},
  };
  const int count = (int)(sizeof reports / sizeof *reports);
  int known = 0;
  for (int i = 0; i < BRIM_LAB_OP_COUNT; i++) known += brim_lab_op_is_report((brim_lab_op)i);
  assert_int_equal(known, count);
  for (int i = 0; i < count; i++) {
    brim_lab_request request = reports[i];
    request.ref = f.ref;
    assert_true(brim_lab_op_is_report(request.op));
    assert_ok(brim_exec_spool_add(&lines, &request));
    brim_str_printf(&lines, "{\"op\": \"of version 9, %d\"}\n", i);
  }
  brim_str_append(&lines, "{\"op\": \"be");
  assert_ok(brim_exec_spool_write(f.folder, f.ref.attempt, &lines));
  brim_str_deinit(&lines);
  replay(&f, 1, 1, 0);
  assert_false(exec_has(&f, "attempt-1.spool"));
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, BRIM_EXP_DONE);
  assert_int_equal(exp->step, 20);
  assert_int_equal(exp->ckpt_step, 15);
  assert_string_equal(exp->findings, "[{\"code\":\"io_wait\"}]");
  brim_store_exp_free(exp);
  assert_int_equal(exec_metrics(&f, "eval_loss").count, 1);
  int64_t size = 0;
  assert_ok(brim_store_log_size(f.store, exec_id, 1, "log", &size));
  assert_int_equal(size, 77);
  char *path = brim_fs_join(f.folder, "attempt-1.spool.bad"), *text = NULL;
  assert_ok(brim_fs_read(path, 0, &text, NULL));
  assert_true(
      brim_str_starts(text, "{\"op\": \"of version 9, 0\"}\n{\"op\": \"of version 9, 1\"}\n"));
  assert_true(brim_str_ends(text, "{\"op\": \"be\n"));
  brim_free(text);
  brim_free(path);
  exec_teardown(&f);
}

// The spool carries only an executor's reports: another request must not reach the sweep through it.
static void test_a_spool_with_other_requests(void **state) {
  static const char *const texts[] = {"{\"op\": \"stop\"}\n", "{\"op\": \"retry_failed\"}\n",
                                      "[1]\n", "null\n", "x\n"};
  (void)state;
  fixture f;
  exec_setup(&f, "foreign spool");
  assert_ok(brim_fs_mkdirs(f.folder));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char *path = brim_fs_join(f.folder, "attempt-1.spool");
    assert_ok(brim_fs_write(path, texts[i], strlen(texts[i])));
    brim_free(path);
    replay(&f, 0, 0, 0);
    assert_true(exec_has(&f, "attempt-1.spool.bad"));
    path = brim_fs_join(f.folder, "attempt-1.spool.bad");
    assert_ok(brim_fs_remove(path));
    brim_free(path);
  }
  exec_teardown(&f);
}

// The executor sends and removes its spool while the sweep does the same.
static void test_a_spool_that_two_processes_send(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "two senders");
  f.down_from = 2;
  f.down_to = 1 << 30;
  assert_ok(exec_run(&f, patient, (brim_lab_exec_options){.linger_ms = 1}, &r));
  char *path = brim_fs_join(f.folder, "attempt-1.spool");
  f.remove = path;
  replay(&f, 1, 1, 0);
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, BRIM_EXP_QUEUED);
  brim_store_exp_free(exp);
  brim_free(path);
  exec_teardown(&f);
}

static void test_no_answer_at_the_start(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "no answer");
  (void)remove("ran");
  f.down_to = 1 << 30;
  assert_int_equal(exec_run(&f, "touch ran", (brim_lab_exec_options){.linger_ms = 1}, &r),
                   BRIM_EIO);
  assert_false(brim_fs_exists("ran"));
  exec_teardown(&f);
}

// A folder that cannot be created is a failure of the machine, and the store gets it.
static void test_a_folder_that_cannot_be_made(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "no folder");
  char *path = brim_fs_join(f.place, "exp");
  assert_ok(brim_fs_write(path, "", 0));
  brim_free(path);
  assert_ok(exec_run(&f, "", (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.end, BRIM_LAB_EXEC_REPORTED);
  assert_int_equal(r.failure, BRIM_FAILURE_INFRASTRUCTURE);
  assert_int_equal(r.state, BRIM_EXP_QUEUED);
  exec_teardown(&f);
}

// Neither the store nor the spool can be written: the executor still ends the training and returns the error. Files of
// this process cannot grow, which is a full disk for the store too.
static void fill_disk(fixture *f, int n) {
  (void)f;
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = 0;
  if (n == 3) assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_a_full_disk(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  struct rlimit before;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  exec_setup(&f, "full disk");
  f.on_beat = fill_disk;
  brim_status status =
      exec_run(&f, "echo $$ >pid\ntrap 'exit 130' TERM\nstart\nwhile :; do sleep 0.02; done\n",
               (brim_lab_exec_options){.linger_ms = 300}, &r);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(status, BRIM_EIO);
  assert_false(process_is_there("pid"));
  assert_false(exec_has(&f, "attempt-1.spool"));
  // the experiment continues once there is room
  f.on_beat = NULL;
  take_over(&f, 3);
  assert_ok(exec_run(&f, good, (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.state, BRIM_EXP_DONE);
  exec_teardown(&f);
}

// The disk takes three bytes of the log, then nothing for a while.
static void fill_disk_for_a_while(fixture *f, int n) {
  struct rlimit limit;
  uint64_t size = 0;
  char *path = brim_fs_join(f->folder, "attempt-1.log");
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  if (n == 3) {
    assert_ok(brim_fs_size(path, &size));
    limit.rlim_cur = (rlim_t)size + 3;
  } else if (n == 10) {
    limit.rlim_cur = limit.rlim_max;
  }
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  if (n == 12) assert_ok(brim_fs_write("writable", "", 0));
  brim_free(path);
}

static void test_a_log_on_a_full_disk(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  char *text = NULL, *path;
  size_t size = 0;
  int lines = 0;
  signal(SIGXFSZ, SIG_IGN);
  exec_setup(&f, "log on a full disk");
  (void)remove("writable");
  f.on_beat = fill_disk_for_a_while;
  assert_ok(exec_run(&f,
                     "start\ni=0\nwhile [ ! -e writable ]; do echo \"word $i\"; i=$((i + 1)); "
                     "sleep 0.01; done\necho \"words $i\"\nresult\n",
                     (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.state, BRIM_EXP_DONE);
  // every line arrives once, complete and in order
  path = brim_fs_join(f.folder, "attempt-1.log");
  assert_ok(brim_fs_read(path, 0, &text, &size));
  int said = -1;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    const char *word = strstr(line, "  word ");
    if (word) assert_int_equal(strtol(word + 7, NULL, 10), lines++);
    const char *words = strstr(line, "  words ");
    if (words) said = (int)strtol(words + 8, NULL, 10);
  }
  assert_true(said > 0);
  assert_int_equal(lines, said);
  brim_free(text);
  brim_free(path);
  exec_teardown(&f);
}

// The second attempt sends the lines that the first one lost, and keeps its own.
static void test_the_next_attempt_sends_the_whole_log(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "whole log");
  assert_ok(exec_run(&f, "start; row 1 10 0.5; touch \"$dir/last.safetensors\"; kill -KILL $$",
                     (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.state, BRIM_EXP_QUEUED);
  // a line that the first attempt wrote and did not send
  char *path = brim_fs_join(f.folder, "log.jsonl");
  const char *row = "{\"event\":\"epoch\",\"epoch\":2,\"step\":20,\"eval_loss\":0.25}";
  assert_ok(brim_fs_append_line(path, row));
  brim_free(path);
  brim_clock_sleep_ns(5000000);  // the wait before a retry
  exec_claim(&f);
  assert_int_equal(f.ref.attempt, 2);
  assert_ok(exec_run(&f, "echo \"$*\" >words; start 20; row 3 30 0.125; result",
                     (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.state, BRIM_EXP_DONE);
  metric_rows m = exec_metrics(&f, "eval_loss");
  assert_int_equal(m.count, 3);
  assert_true(m.sum == 5 + 5 + 3.75);
  assert_true(exec_has(&f, "attempt-1.log") && exec_has(&f, "attempt-2.log"));
  char *words = NULL;
  assert_ok(brim_fs_read("words", 0, &words, NULL));
  assert_non_null(strstr(words, " --resume "));
  brim_free(words);
  exec_teardown(&f);
}

// The training continues until its checkpoint is in the store.
static void end_when_saved(fixture *f, int n) {
  brim_store_exp *exp = exec_get(f);
  (void)n;
  if (exp->ckpt_step == 10) assert_ok(brim_fs_write("saved", "", 0));
  brim_store_exp_free(exp);
}

static void test_a_checkpoint_is_reported_at_once(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "checkpoint");
  f.on_beat = end_when_saved;
  assert_ok(exec_run(&f,
                     "rm -f saved; start; [ \"$BRIM_CHANNEL\" ] &&\n"
                     "echo '{\"event\":\"checkpoint\",\"step\":10}'\n"
                     "while [ ! -e saved ]; do sleep 0.05; done\n",
                     (brim_lab_exec_options){.stall_ms = 20000}, &r));
  assert_int_equal(r.outcome, BRIM_ATTEMPT_OK);
  exec_teardown(&f);
}

// The training continues until its findings are in the store.
static void end_when_found(fixture *f, int n) {
  brim_store_exp *exp = exec_get(f);
  (void)n;
  if (exp->findings[0]) assert_ok(brim_fs_write("found", "", 0));
  brim_store_exp_free(exp);
}

#define SEND_FINDINGS                                                               \
  "rm -f found; echo '{\"event\":\"findings\",\"findings\":[{\"code\":\"io_wait\"," \
  "\"cost_ms\":3,\"text\":\"slow\",\"remedy\":\"\"}]}'\n"

static void test_findings_are_in_the_store(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "findings");
  f.on_beat = end_when_found;
  assert_ok(exec_run(&f, SEND_FINDINGS "while [ ! -e found ]; do sleep 0.05; done\n",
                     (brim_lab_exec_options){0}, &r));
  assert_int_equal(r.outcome, BRIM_ATTEMPT_OK);
  brim_store_exp *exp = exec_get(&f);
  assert_non_null(strstr(exp->findings, "\"code\":\"io_wait\""));
  assert_non_null(strstr(exp->findings, "\"text\":\"slow\""));
  brim_store_exp_free(exp);
  exec_teardown(&f);
}

// Findings about a slow training wait in the spool with its result, and replaying the spool rejects no line.
static void test_findings_wait_in_the_spool(void **state) {
  (void)state;
  fixture f;
  brim_lab_exec_report r;
  exec_setup(&f, "findings spooled");
  f.down_from = 2;
  f.down_to = 1 << 30;
  brim_str script;
  brim_str_init(&script);
  brim_str_printf(&script, "start\n" SEND_FINDINGS "result\n");
  assert_ok(exec_run(&f, script.data, (brim_lab_exec_options){.linger_ms = 12000}, &r));
  brim_str_deinit(&script);
  assert_int_equal(r.end, BRIM_LAB_EXEC_SPOOLED);
  assert_int_equal(r.outcome, BRIM_ATTEMPT_OK);
  replay(&f, 1, 1, 0);
  assert_false(exec_has(&f, "attempt-1.spool.bad"));
  brim_store_exp *exp = exec_get(&f);
  assert_int_equal(exp->state, BRIM_EXP_DONE);
  assert_non_null(strstr(exp->findings, "\"code\":\"io_wait\""));
  brim_store_exp_free(exp);
  exec_teardown(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_checkpoint_is_reported_at_once),
      cmocka_unit_test(test_findings_are_in_the_store),
      cmocka_unit_test(test_findings_wait_in_the_spool),
      cmocka_unit_test(test_a_training_is_reported),
      cmocka_unit_test(test_metrics_and_progress_are_in_the_store),
      cmocka_unit_test(test_links_in_place_of_the_log),
      cmocka_unit_test(test_a_config_that_includes),
      cmocka_unit_test(test_every_end_has_its_class),
      cmocka_unit_test(test_last_lines_are_kept),
      cmocka_unit_test(test_a_program_that_cannot_start),
      cmocka_unit_test(test_progress_is_told_between_beats),
      cmocka_unit_test(test_it_stops_cleanly),
      cmocka_unit_test(test_a_stop_that_comes_too_late),
      cmocka_unit_test(test_a_replaced_attempt_ends_its_training),
      cmocka_unit_test(test_the_watchdog),
      cmocka_unit_test(test_lost_replies_change_nothing),
      cmocka_unit_test(test_a_link_that_comes_back),
      cmocka_unit_test(test_a_link_that_stays_away),
      cmocka_unit_test(test_a_result_while_the_sweep_is_away),
      cmocka_unit_test(test_a_stale_spool_changes_nothing),
      cmocka_unit_test(test_a_damaged_spool_is_set_aside),
      cmocka_unit_test(test_a_spool_with_every_report),
      cmocka_unit_test(test_a_spool_with_other_requests),
      cmocka_unit_test(test_a_spool_that_two_processes_send),
      cmocka_unit_test(test_no_answer_at_the_start),
      cmocka_unit_test(test_a_folder_that_cannot_be_made),
      cmocka_unit_test(test_a_full_disk),
      cmocka_unit_test(test_a_log_on_a_full_disk),
      cmocka_unit_test(test_the_next_attempt_sends_the_whole_log),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
