// The live table of `brim sweep` as a person uses it: the built program in a pseudo-terminal, its keys,
// Ctrl-C, and the terminal afterwards.
#include "cli_test.h"

#include "ui/session.h"

// Long enough to be observed while it runs.
static const char grid[] = "name: live\n" CLI_SMALL_TRAINING
                           "lr: [0.1, 0.01]\n"
                           "seeds: 2\n"
                           "batch_size: 8\n"
                           "epochs: 1000000\n";

static void run_sweep(int report) {
  (void)report;
  setenv("LANG", "C.UTF-8", 1);
  (void)dup2(1, 2);
  execl(BRIM_BINARY, BRIM_BINARY, "sweep", "live.yaml", (char *)NULL);
  _exit(99);
}

static void start_sweep(session *s) {
  session_start(s, run_sweep);
  for (int waited = 0; !s->seen.alternate; waited += 100) {
    if (waited > SESSION_PATIENCE_MS) fail_msg("no table is shown");
    (void)session_read(s, 100);
  }
}

// Waits until a row of the screen has all of these texts; returns the row.
static int wait_row(session *s, const char *first, const char *second) {
  char text[2048];
  for (int waited = 0; waited < SESSION_PATIENCE_MS;) {
    for (int row = 0; row < s->seen.rows; row++) {
      const char *at = strstr(terminal_row(&s->seen, row, text), first);
      if (at && strstr(at, second)) return row;
    }
    if (!session_read(s, 100)) waited += 100;
  }
  for (int row = 0; row < s->seen.rows; row++) {
    printf("%s\n", terminal_row(&s->seen, row, text));
  }
  fail_msg("no row has '%s' and '%s'", first, second);
  return -1;
}

static void fresh(void) {
  shell_result r = shell("rm -rf runs");
  shell_free(&r);
  write_file("live.yaml", grid);
}

static int64_t count_state(const char *state) {
  shell_result r = shell("brim sweep status --json");
  json_t *view = NULL;
  if (r.code) fail_msg("status: exit %d: %s", r.code, r.err);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "status", &view));
  int64_t n = json_integer_value(json_object_get(json_object_get(view, "counts"), state));
  json_decref(view);
  shell_free(&r);
  return n;
}

static void wait_state(const char *state, int64_t count) {
  for (int waited = 0; count_state(state) != count; waited += 100) {
    if (waited > SESSION_PATIENCE_MS) fail_msg("not %lld %s", (long long)count, state);
    usleep(100000);
  }
}

// Waits until the table is gone and, a moment later, the modes of the terminal are back.
static void wait_closed(session *s) {
  struct termios now = {0};
  for (int waited = 0; waited < SESSION_PATIENCE_MS; waited += 20) {
    (void)session_read(s, 20);
    assert_int_equal(tcgetattr(s->slave, &now), 0);
    if (!s->seen.alternate && now.c_lflag == s->before.c_lflag) return;
  }
  fail_msg("the table does not close");
}

static void expect_interrupted(session *s) {
  int status = session_finish(s);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 130);
  session_expect_restored(s);
}

static void test_keys_act_on_experiments(void **state) {
  (void)state;
  session s;
  fresh();
  start_sweep(&s);
  (void)wait_row(&s, "running", "0.1");
  (void)wait_row(&s, "1 all 4", "2 running 1");
  session_type(&s, "p");  // the running experiment saves and stops, the next one starts
  (void)wait_row(&s, "paused", "0.1");
  assert_int_equal(count_state("paused"), 1);
  session_type(&s, "6");
  (void)wait_row(&s, "1/1", "by state");
  session_type(&s, "c");
  (void)wait_row(&s, "Cancel lr=0.1", "y yes");
  session_type(&s, "n");
  (void)wait_row(&s, "q quit", "? help");
  assert_int_equal(count_state("paused"), 1);
  session_type(&s, "cy");
  (void)wait_row(&s, "cancelled", "0.1");
  assert_int_equal(count_state("cancelled"), 1);
  session_type(&s, "r1");
  (void)wait_row(&s, "1 all 4", "6 other 0");
  // Only the table closes; the sweep continues until it is asked to stop.
  session_type(&s, "q");
  (void)wait_row(&s, "Stop the sweep?", "d only close this table");
  session_type(&s, "d");
  wait_closed(&s);
  session_expect_restored(&s);
  wait_state("running", 1);
  session_type(&s, "\x03");
  (void)wait_row(&s, "continue: brim sweep live.yaml", "");
  expect_interrupted(&s);
  assert_int_equal(count_state("queued"), 4);
  session_end(&s);
}

static void expect_no_note(const session *s) {
  char text[2048];
  for (int row = 0; row < s->seen.rows; row++) {
    assert_null(strstr(terminal_row(&s->seen, row, text), "brim:"));
  }
}

// Ctrl-C in the table: nothing overwrites it, the trainings save, and the summary follows.
static void test_ctrl_c(void **state) {
  (void)state;
  char text[2048];
  session s;
  fresh();
  start_sweep(&s);
  (void)wait_row(&s, "running", "0.1");
  session_type(&s, "\x03");
  (void)wait_row(&s, "4 queued", "");
  expect_interrupted(&s);
  s.seen.alternate = true;  // the last state of the table
  assert_true(brim_str_starts(terminal_row(&s.seen, 0, text), "live  runs/live"));
  (void)terminal_row(&s.seen, 1, text);
  assert_true(brim_str_starts(text, "━") || brim_str_starts(text, "─"));
  expect_no_note(&s);
  session_end(&s);
}

// Collects the executors of the sweep; returns how many.
static size_t find_executors(pid_t sweep, pid_t out[8]) {
  char path[64];
  size_t n = 0;
  int pid = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)sweep, (int)sweep);
  FILE *file = fopen(path, "r");
  while (file && n < 8 && fscanf(file, "%d", &pid) == 1) out[n++] = pid;
  if (file) fclose(file);
  return n;
}

// A sweep that cannot stop, because its executor does not answer, ends at the second Ctrl-C. The terminal is restored,
// and the note about it is on the normal screen.
static void test_ctrl_c_twice(void **state) {
  (void)state;
  pid_t executors[8];
  session s;
  fresh();
  start_sweep(&s);
  (void)wait_row(&s, "running", "0.1");
  size_t n = find_executors(s.child, executors);
  for (size_t i = 0; i < n; i++) assert_int_equal(kill(executors[i], SIGSTOP), 0);
  if (n > 0) {
    // Only the clock in the first row changes now, so a note in the second row would stay.
    for (int waited = 0; waited < 1500; waited += 100) (void)session_read(&s, 100);
    session_type(&s, "\x03");
    (void)wait_row(&s, "stopping: running experiments save first", "");
    expect_no_note(&s);
    usleep(1500000);  // an earlier Ctrl-C counts as the same one
    session_type(&s, "\x03");
    int status = session_finish(&s);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    session_expect_restored(&s);
    (void)wait_row(&s, "brim: stopped immediately", "");
  }
  for (size_t i = 0; i < n; i++) {
    (void)kill(executors[i], SIGTERM);
    (void)kill(executors[i], SIGCONT);
  }
  for (size_t i = 0; i < n; i++) {
    for (int waited = 0; kill(executors[i], 0) == 0 && waited < SESSION_PATIENCE_MS; waited += 50) {
      usleep(50000);
    }
  }
  if (n == 0) {
    session_type(&s, "\x03");
    expect_interrupted(&s);
  }
  session_end(&s);
  if (n == 0) BRIM_SKIP("the kernel lists no children of a process");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_keys_act_on_experiments),
      cmocka_unit_test(test_ctrl_c),
      cmocka_unit_test(test_ctrl_c_twice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
