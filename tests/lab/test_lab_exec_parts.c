// Parts of the executor: reading a log that is rotated, torn or restarted; the step of a checkpoint; patience; classes;
// and the process that owns a folder.
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/exec/lab_exec_int.h"
#include "lab/wire/lab_wire_link.h"

static const char folder[] = "a folder";

static void clear_folder(void) {
  assert_int_equal(system("rm -rf 'a folder'"), 0);
  assert_ok(brim_fs_mkdirs(folder));
}

static void put_file(const char *name, const char *text) {
  char *path = brim_fs_join(folder, name);
  assert_ok(brim_fs_write(path, text, strlen(text)));
  brim_free(path);
}

static void append(const char *name, const char *text) {
  char *path = brim_fs_join(folder, name);
  FILE *file = fopen(path, "ab");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
  brim_free(path);
}

//---------------------------------- the log ----------------------------------

// Collects all present rows as "key@step=value", separated by commas.
static void take(brim_exec_tail *t, char *out, size_t size) {
  size_t n = 0;
  out[0] = '\0';
  for (;;) {
    assert_ok(brim_exec_tail_fill(t));
    if (t->count == 0) return;
    for (size_t i = 0; i < t->count; i++) {
      n += (size_t)snprintf(out + n, size - n, "%s%s@%lld=%g", n ? "," : "", t->rows[i].key,
                            (long long)t->rows[i].step, t->rows[i].value);
      assert_true(n < size);
    }
    brim_exec_tail_acknowledged(t);
  }
}

static void expect_rows(brim_exec_tail *t, const char *expected) {
  char rows[4096];
  take(t, rows, sizeof rows);
  assert_string_equal(rows, expected);
}

static void test_rows_of_a_log(void **state) {
  (void)state;
  brim_exec_tail t;
  clear_folder();
  brim_exec_tail_init(&t, folder);
  expect_rows(&t, "");  // the file does not exist yet
  put_file("log.jsonl",
           "{\"event\":\"steps\",\"epoch\":1,\"step\":4,\"lr\":0.5,\"loss\":2,\"data_s\":0.1,"
           "\"compute_s\":0.2,\"samples_per_s\":1000}\n"
           "{\"event\":\"epoch\",\"epoch\":1,\"step\":8,\"eval_loss\":null,\"train_loss\":3,"
           "\"seconds\":9,\"eval_s\":1,\"wall_s\":2,\"loader\":{\"samples\":400}}\n"
           "{\"event\":\"anomaly\",\"epoch\":1,\"step\":8,\"count\":3}\n"
           "{\"event\":\"adapt\",\"epoch\":1,\"step\":8,\"batch_size\":3}\n"
           "{\"event\":\"early_stop\",\"epoch\":1,\"step\":8,\"patience\":3}\n"
           "{\"event\":\"probe\",\"epoch\":1,\"step\":8,\"probe_accuracy\":0.5}\n");
  expect_rows(&t, "lr@4=0.5,loss@4=2,samples_per_s@4=1000,train_loss@8=3,probe_accuracy@8=0.5");
  assert_int_equal(t.seq, 1);
  expect_rows(&t, "");
  assert_int_equal(t.seq, 1);
  brim_exec_tail_deinit(&t);
}

// A batch stays unchanged until it is acknowledged, whatever is written meanwhile.
static void test_a_batch_waits_for_its_answer(void **state) {
  (void)state;
  brim_exec_tail t;
  clear_folder();
  brim_exec_tail_init(&t, folder);
  put_file("log.jsonl", "{\"event\":\"steps\",\"step\":1,\"loss\":1}\n");
  assert_ok(brim_exec_tail_fill(&t));
  append("log.jsonl", "{\"event\":\"steps\",\"step\":2,\"loss\":2}\n");
  assert_ok(brim_exec_tail_fill(&t));
  assert_int_equal(t.count, 1);
  assert_int_equal(t.seq, 1);
  brim_exec_tail_acknowledged(&t);
  expect_rows(&t, "loss@2=2");
  assert_int_equal(t.seq, 2);
  brim_exec_tail_deinit(&t);
}

static void test_torn_and_rotated_logs(void **state) {
  (void)state;
  brim_exec_tail t;
  clear_folder();
  brim_exec_tail_init(&t, folder);
  put_file("log.jsonl", "{\"event\":\"steps\",\"step\":1,\"loss\":1}\n{\"event\":\"ste");
  expect_rows(&t, "loss@1=1");
  append("log.jsonl", "ps\",\"step\":2,\"loss\":2}\nno JSON at all\n\n[1, 2]\n");
  expect_rows(&t, "loss@2=2");
  // the next file: the rest of the old one comes first
  append("log.jsonl", "{\"event\":\"steps\",\"step\":3,\"loss\":3}\n");
  put_file("log.1.jsonl", "{\"event\":\"steps\",\"step\":4,\"loss\":4}\n");
  put_file("log.2.jsonl", "{\"event\":\"steps\",\"step\":5,\"loss\":5}\n");
  expect_rows(&t, "loss@3=3,loss@4=4,loss@5=5");
  append("log.2.jsonl", "{\"event\":\"steps\",\"step\":6,\"loss\":6}\n");
  expect_rows(&t, "loss@6=6");
  brim_exec_tail_deinit(&t);
  // the next attempt sends all rows again
  brim_exec_tail_init(&t, folder);
  expect_rows(&t, "loss@1=1,loss@2=2,loss@3=3,loss@4=4,loss@5=5,loss@6=6");
  brim_exec_tail_deinit(&t);
}

static void test_a_log_that_begins_again(void **state) {
  (void)state;
  brim_exec_tail t;
  clear_folder();
  brim_exec_tail_init(&t, folder);
  put_file(
      "log.jsonl",
      "{\"event\":\"steps\",\"step\":1,\"loss\":1}\n{\"event\":\"steps\",\"step\":2,\"loss\":2}\n");
  expect_rows(&t, "loss@1=1,loss@2=2");
  put_file("log.jsonl", "{\"event\":\"steps\",\"step\":1,\"loss\":7}\n");
  expect_rows(&t, "loss@1=7");
  brim_exec_tail_deinit(&t);
}

// More rows than fit a batch, lines longer than a buffer, and keys that the store would refuse.
static void test_large_logs(void **state) {
  (void)state;
  enum { ROWS = 30000, PADDING = 700000 };
  brim_exec_tail t;
  brim_str text;
  clear_folder();
  brim_str_init(&text);
  for (int i = 1; i <= ROWS; i++) {
    brim_str_printf(&text, "{\"event\":\"steps\",\"step\":%d,\"loss\":%d}\n", i, i);
  }
  brim_str_append(&text, "{\"event\":\"steps\",\"step\":40000,\"loss\":4,\"");
  brim_str_repeat(&text, 'k', 121);
  brim_str_append(&text, "\":1,\"\":2,\"note\":\"");
  brim_str_repeat(&text, 'x', PADDING);
  brim_str_append(&text, "\"}\n");
  put_file("log.jsonl", text.data);
  brim_str_deinit(&text);
  brim_exec_tail_init(&t, folder);
  int64_t rows = 0, sum = 0;
  for (;;) {
    assert_ok(brim_exec_tail_fill(&t));
    if (t.count == 0) break;
    for (size_t i = 0; i < t.count; i++) {
      assert_string_equal(t.rows[i].key, "loss");
      sum += (int64_t)t.rows[i].value;
    }
    rows += (int64_t)t.count;
    brim_exec_tail_acknowledged(&t);
  }
  assert_int_equal(rows, ROWS + 1);
  assert_int_equal(sum, (int64_t)ROWS * (ROWS + 1) / 2 + 4);
  assert_true(t.seq > 2);
  brim_exec_tail_deinit(&t);
}

// Each allocation fails once: that call fails, but no row is lost.
static void test_memory_runs_out(void **state) {
  (void)state;
  static const char log[] = "{\"event\":\"steps\",\"step\":1,\"loss\":1,\"lr\":2}\n";
  const brim_store_ref ref = {.attempt = 1, .fence = 1};
  bool reached = true;  // an nth allocation exists
  int failed = 0;
  clear_folder();
  put_file("log.jsonl", log);
  for (uint64_t n = 1; reached; n++) {
    brim_exec_tail t;
    brim_str lines;
    brim_str_init(&lines);
    brim_exec_tail_init(&t, folder);
    const uint64_t before = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_exec_tail_fill(&t);
    if (!status) {
      status = brim_exec_spool_add(
          &lines,
          &(brim_lab_request){
              .op = BRIM_LAB_OP_METRICS, .ref = ref, .seq = t.seq, .metrics = {t.rows, t.count}});
    }
    if (!status) status = brim_exec_spool_write(folder, 1, &lines);
    if (!status) status = brim_exec_owner_write(folder, &ref, 0);
    brim_alloc_fail_nth(0, 0);
    assert_true(status == BRIM_OK || status == BRIM_ENOMEM);
    reached = brim_alloc_failures() > before;
    failed += status != BRIM_OK;
    if (t.count > 0) assert_int_equal(t.count, 2);
    expect_rows(&t, "loss@1=1,lr@1=2");  // the next call has all rows
    brim_exec_tail_deinit(&t);
    brim_str_deinit(&lines);
  }
  assert_true(failed > 10);
  brim_exec_spool_remove(folder, 1);
  brim_exec_owner_release(folder);
}

//---------------------------------- the checkpoint ----------------------------------

static void put_checkpoint(const char *header, size_t claimed) {
  char bytes[512] = {0};
  size_t n = strlen(header);
  for (int i = 0; i < 8; i++) bytes[i] = (char)(claimed >> 8 * i & 0xff);
  memcpy(bytes + 8, header, n);
  char *path = brim_fs_join(folder, "last.safetensors");
  assert_ok(brim_fs_write(path, bytes, 8 + n));
  brim_free(path);
}

static void test_the_step_of_a_checkpoint(void **state) {
  (void)state;
  static const char first[] = "{\"__metadata__\":{\"brim.step\":\"120\"}}";
  static const char second[] = "{\"__metadata__\":{\"brim.step\":\"1300\"}}";
  clear_folder();
  assert_int_equal(brim_exec_checkpoint_of(folder), -1);
  put_checkpoint(first, sizeof first - 1);
  assert_int_equal(brim_exec_checkpoint_of(folder), 120);
  put_checkpoint(second, sizeof second - 1);
  assert_int_equal(brim_exec_checkpoint_of(folder), 1300);
  // damaged files have no step
  put_checkpoint(second, SIZE_MAX);
  assert_int_equal(brim_exec_checkpoint_of(folder), -1);
  put_checkpoint("{\"__metadata__\":{\"brim.step\":\"x\"}}", 34);
  assert_int_equal(brim_exec_checkpoint_of(folder), -1);
  put_checkpoint("{\"__metadata__\":", 16);
  assert_int_equal(brim_exec_checkpoint_of(folder), -1);
}

//---------------------------------- patience ----------------------------------

static void say_on(brim_exec_events *e, brim_child_stream stream, int64_t now_ns,
                   const char *text) {
  brim_str shown;
  brim_str_init(&shown);
  const brim_child_line line = {.stream = stream, .text = text, .size = strlen(text)};
  brim_exec_events_line(e, &line, now_ns, &shown);
  brim_str_deinit(&shown);
}

static void say(brim_exec_events *e, int64_t now_ns, const char *text) {
  say_on(e, BRIM_CHILD_OUT, now_ns, text);
}

static void test_patience(void **state) {
  (void)state;
  const int64_t s = 1000000000;
  static brim_exec_events e;
  brim_exec_events_init(&e, 0);
  assert_int_equal(brim_exec_events_hang_ns(&e, 60 * s), 60 * s);
  say(&e, 1 * s, "{\"event\":\"start\",\"start_step\":0,\"steps\":100,\"epochs\":10}");
  say(&e, 11 * s, "{\"event\":\"progress\",\"step\":1,\"epoch\":1,\"epochs\":10}");
  say(&e, 21 * s, "{\"event\":\"progress\",\"step\":2,\"epoch\":1,\"epochs\":10}");
  assert_int_equal(e.progress.step, 2);
  assert_int_equal(e.progress.epochs, 10);
  assert_int_equal(brim_exec_events_hang_ns(&e, 60 * s), 20 * 10 * s);
  // an evaluation took 100 s: the next one may take three times as long
  say(&e, 121 * s, "{\"event\":\"epoch\",\"epoch\":1,\"epochs\":10}");
  assert_int_equal(brim_exec_events_hang_ns(&e, 60 * s), 300 * s);
  assert_int_equal(e.sign_ns, 121 * s);
  // text, broken JSON and other objects are no progress
  say(&e, 130 * s, "still here");
  say(&e, 131 * s, "{\"event\":\"progress\"");
  say(&e, 132 * s, "{\"a\":1}");
  say_on(&e, BRIM_CHILD_ERR, 133 * s, "{\"event\":\"steps\",\"step\":5}");
  assert_int_equal(e.sign_ns, 121 * s);
  assert_int_equal(e.line_count, 4);
}

// Each kind of record (record_channel.h); a record that is damaged or lacks a member changes nothing.
static void test_records(void **state) {
  (void)state;
  static brim_exec_events e;
  brim_exec_events_init(&e, 0);
  say(&e, 1, "{\"event\":\"start\",\"start_step\":30,\"steps\":100,\"epochs\":10}");
  assert_true(e.started);
  assert_int_equal(e.start_step, 30);
  assert_int_equal(e.checkpoint, 30);
  assert_int_equal(e.progress.steps, 100);
  say(&e, 2, "{\"event\":\"progress\",\"step\":31,\"epoch\":4,\"epochs\":10,\"rate\":1.5}");
  assert_int_equal(e.progress.step, 31);
  assert_int_equal(e.progress.epoch, 4);
  say(&e, 3, "{\"event\":\"progress\",\"title\":\"epoch 9/10\",\"step\":-4,\"epoch\":\"5\"}");
  assert_int_equal(e.progress.step, 31);
  assert_int_equal(e.progress.epoch, 4);
  assert_int_equal(e.sign_ns, 3);
  say(&e, 4, "{\"event\":\"steps\",\"step\":32}");
  assert_int_equal(e.progress.step, 32);
  say(&e, 5, "{\"event\":\"checkpoint\",\"step\":32}");
  assert_int_equal(e.checkpoint, 32);
  say(&e, 6, "{\"event\":\"findings\",\"findings\":[{\"code\":\"io_wait\"}]}");
  assert_string_equal(e.findings, "[{\"code\":\"io_wait\"}]");
  e.findings_sent = true;
  say(&e, 7, "{\"event\":\"findings\",\"findings\":3}");
  assert_true(e.findings_sent);
  say(&e, 8, "{\"event\":\"findings\",\"findings\":[]}");
  assert_string_equal(e.findings, "[]");
  assert_false(e.findings_sent);
  assert_int_equal(e.sign_ns, 4);  // neither counts as progress
  say(&e, 9,
      "{\"event\":\"error\",\"status\":\"BRIM_EIO\",\"class\":\"data\",\"message\":\"torn\"}");
  assert_true(e.failed);
  assert_int_equal(e.status, BRIM_EIO);
  assert_int_equal(e.failure, BRIM_FAILURE_DATA);
  assert_string_equal(e.message, "torn");
  say(&e, 10, "{\"event\":\"result\",\"steps\":100,\"epochs\":10,\"interrupted\":false}");
  assert_int_equal(e.progress.step, 100);
  assert_int_equal(e.progress.epoch, 10);
  assert_int_equal(e.line_count, 0);
  brim_free(e.findings);
}

//---------------------------------- classes ----------------------------------

static brim_lab_exec_report ends(brim_exec_why why, int exit_code, int sig, bool oom_killed) {
  static brim_exec_events e;
  brim_exec_events_init(&e, 0);
  const brim_child_result child = {.exit_code = sig ? -1 : exit_code, .signal = sig};
  const brim_exec_ending ending = {
      .why = why, .child = &child, .events = &e, .oom_killed = oom_killed};
  brim_lab_exec_report r;
  memset(&r, 0, sizeof r);
  brim_exec_classify(&ending, &r);
  return r;
}

static void test_classes_by_their_end(void **state) {
  (void)state;
  brim_lab_exec_report r = ends(BRIM_EXEC_ITSELF, 0, SIGKILL, true);
  assert_int_equal(r.failure, BRIM_FAILURE_OOM_HOST);
  assert_int_equal(r.exit_code, 128 + SIGKILL);
  assert_int_equal(ends(BRIM_EXEC_ITSELF, 0, SIGKILL, false).failure, BRIM_FAILURE_KILLED);
  assert_int_equal(ends(BRIM_EXEC_ITSELF, 0, SIGTERM, true).failure, BRIM_FAILURE_KILLED);
  assert_int_equal(ends(BRIM_EXEC_ITSELF, 0, SIGABRT, true).failure, BRIM_FAILURE_CRASH);
  // asked to stop: it saved, or was killed after its grace period
  assert_int_equal(ends(BRIM_EXEC_ASKED, 130, 0, false).outcome, BRIM_ATTEMPT_STOPPED);
  assert_int_equal(ends(BRIM_EXEC_ASKED, 0, SIGKILL, false).outcome, BRIM_ATTEMPT_STOPPED);
  assert_int_equal(ends(BRIM_EXEC_ALONE, 130, 0, false).outcome, BRIM_ATTEMPT_STOPPED);
  // asked to stop, and failed while saving
  assert_int_equal(ends(BRIM_EXEC_ASKED, 1, 0, false).outcome, BRIM_ATTEMPT_ERROR);
  assert_int_equal(ends(BRIM_EXEC_HUNG, 130, 0, false).failure, BRIM_FAILURE_HUNG);
  assert_int_equal(ends(BRIM_EXEC_HUNG, 0, SIGKILL, true).failure, BRIM_FAILURE_HUNG);
  assert_int_equal(ends(BRIM_EXEC_HUNG, 0, 0, false).outcome, BRIM_ATTEMPT_OK);
}

static void test_counts_of_killed_processes(void **state) {
  (void)state;
  clear_folder();
  put_file("memory.events", "low 0\nhigh 3\nmax 4\noom 5\noom_kill 6\noom_group_kill 7\n");
  assert_int_equal(brim_exec_oom_count("a folder/memory.events"), 6);
  put_file("memory.events", "low 0\n");
  assert_int_equal(brim_exec_oom_count("a folder/memory.events"), -1);
  assert_int_equal(brim_exec_oom_count("a folder/nothing"), -1);
  assert_true(brim_exec_oom_kills() >= -1);
}

//---------------------------------- the process of a folder ----------------------------------

// Starts a process that registers as owner of the folder, has a child in its own group, and waits.
static pid_t start_owner(int64_t fence) {
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  fflush(stdout);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      for (;;) pause();
    }
    setpgid(child, child);
    const brim_store_ref ref = {.attempt = fence, .fence = fence};
    if (brim_exec_owner_write(folder, &ref, child)) _exit(1);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return pid;
}

// The killed process is a child of this one, so the test reaps it.
static void expect_killed(pid_t pid) {
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void test_the_owner_is_found_and_ended(void **state) {
  (void)state;
  brim_lab_exec_owner owner;
  clear_folder();
  assert_false(brim_lab_exec_find(folder, &owner));
  assert_ok(brim_lab_exec_kill(folder));  // no owner: nothing to end
  pid_t pid = start_owner(3);
  assert_true(brim_lab_exec_find(folder, &owner));
  assert_int_equal(owner.pid, pid);
  assert_int_equal(owner.fence, 3);
  assert_true(owner.child > 0);
  kill(pid, SIGSTOP);
  assert_ok(brim_lab_exec_kill(folder));
  expect_killed(pid);
  assert_false(brim_lab_exec_find(folder, &owner));
}

static void test_a_later_attempt_takes_the_folder(void **state) {
  (void)state;
  brim_lab_exec_owner owner;
  clear_folder();
  pid_t pid = start_owner(3);
  const brim_store_ref earlier = {.attempt = 2, .fence = 2}, later = {.attempt = 4, .fence = 4};
  assert_int_equal(brim_exec_owner_take(folder, &earlier), BRIM_ESTATE);
  assert_true(brim_lab_exec_find(folder, &owner));
  assert_int_equal(owner.fence, 3);
  assert_ok(brim_exec_owner_take(folder, &later));
  expect_killed(pid);
  assert_true(brim_lab_exec_find(folder, &owner));
  assert_int_equal(owner.pid, getpid());
  brim_exec_owner_release(folder);
  assert_false(brim_lab_exec_find(folder, &owner));
}

// Another process has the id, or the machine was restarted.
static void test_numbers_come_again(void **state) {
  (void)state;
  brim_lab_exec_owner owner;
  char text[256];
  clear_folder();
  snprintf(text, sizeof text,
           "{\"pid\":%ld,\"born\":1,\"boot\":\"x\",\"attempt\":1,\"fence\":1,\"child\":0}",
           (long)getppid());
  put_file("executor.json", text);
  assert_false(brim_lab_exec_find(folder, &owner));
  const brim_store_ref ref = {.attempt = 1, .fence = 1};
  assert_ok(brim_exec_owner_write(folder, &ref, 0));
  char *kept = NULL, *path = brim_fs_join(folder, "executor.json");
  assert_ok(brim_fs_read(path, 0, &kept, NULL));
  char *born = strstr(kept, "\"born\":");
  assert_non_null(born);
  born[7] = born[7] == '1' ? '2' : '1';
  assert_ok(brim_fs_write(path, kept, strlen(kept)));
  assert_false(brim_lab_exec_find(folder, &owner));
  assert_ok(brim_lab_exec_kill(folder));  // would be this process's group
  put_file("executor.json", "{\"pid\":");
  assert_false(brim_lab_exec_find(folder, &owner));
  brim_free(kept);
  brim_free(path);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_of_a_log),
      cmocka_unit_test(test_a_batch_waits_for_its_answer),
      cmocka_unit_test(test_torn_and_rotated_logs),
      cmocka_unit_test(test_a_log_that_begins_again),
      cmocka_unit_test(test_large_logs),
      cmocka_unit_test(test_memory_runs_out),
      cmocka_unit_test(test_the_step_of_a_checkpoint),
      cmocka_unit_test(test_patience),
      cmocka_unit_test(test_records),
      cmocka_unit_test(test_classes_by_their_end),
      cmocka_unit_test(test_counts_of_killed_processes),
      cmocka_unit_test(test_the_owner_is_found_and_ended),
      cmocka_unit_test(test_a_later_attempt_takes_the_folder),
      cmocka_unit_test(test_numbers_come_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
