// Child processes: exit codes, signals, time limits for a whole group, capped output, refusals.
#include "base/base_process.h"

#include <signal.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "test.h"

static brim_status shell(const char *script, brim_process_options options,
                         brim_process_result *result) {
  const char *argv[] = {"sh", "-c", script, NULL};
  options.argv = argv;
  options.capture = true;
  return brim_process_run(&options, result);
}

static void exit_code_and_output(void **state) {
  (void)state;
  brim_process_result r;
  assert_ok(shell("echo out; echo err >&2; exit 3", (brim_process_options){0}, &r));
  assert_int_equal(r.exit_code, 3);
  assert_int_equal(r.signal, 0);
  assert_false(r.timed_out);
  assert_string_equal(r.output, "out\nerr\n");
  assert_int_equal(r.output_size, 8);
  assert_true(r.elapsed_ns > 0);
  brim_process_result_deinit(&r);
  assert_null(r.output);
  brim_process_result_deinit(&r);
  assert_ok(shell("true", (brim_process_options){0}, &r));
  assert_string_equal(r.output, "");
  brim_process_result_deinit(&r);
}

static void death_by_signal(void **state) {
  (void)state;
  brim_process_result r;
  assert_ok(shell("kill -USR1 $$", (brim_process_options){0}, &r));
  assert_int_equal(r.exit_code, -1);
  assert_int_equal(r.signal, SIGUSR1);
  brim_process_result_deinit(&r);
}

static void environment_folder_and_input(void **state) {
  (void)state;
  brim_process_result r;
  const char *env[] = {"PATH=/usr/bin:/bin", "FRUIT=plum", NULL};
  assert_ok(shell("echo $FRUIT; pwd; cat", (brim_process_options){.env = env, .cwd = "/"}, &r));
  assert_string_equal(r.output, "plum\n/\n");
  brim_process_result_deinit(&r);
}

static void blocked_signals_are_not_inherited(void **state) {
  (void)state;
  sigset_t block, before;
  sigemptyset(&block);
  sigaddset(&block, SIGTERM);
  sigprocmask(SIG_BLOCK, &block, &before);
  brim_process_result r;
  brim_status status = shell("kill -TERM $$; echo alive", (brim_process_options){0}, &r);
  sigprocmask(SIG_SETMASK, &before, NULL);
  assert_ok(status);
  assert_int_equal(r.signal, SIGTERM);
  brim_process_result_deinit(&r);
}

static void timeout_ends_the_group(void **state) {
  (void)state;
  brim_process_result r;
  assert_ok(shell("echo started; sleep 100 & echo $!; sleep 100",
                  (brim_process_options){.timeout_ms = 200}, &r));
  assert_true(r.timed_out);
  assert_int_equal(r.signal, SIGTERM);
  assert_int_equal(strncmp(r.output, "started\n", 8), 0);
  pid_t helper = (pid_t)strtol(r.output + 8, NULL, 10);
  assert_true(helper > 1);
  // The helper is gone too, or a zombie whose new parent has not reaped it yet.
  bool gone = false;
  for (int i = 0; i < 500 && !gone; i++) {
    char path[64], *text = NULL;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)helper);
    gone = brim_fs_read(path, 0, &text, NULL) != BRIM_OK || strstr(text, ") Z ") != NULL;
    brim_free(text);
    if (!gone) brim_clock_sleep_ns(10000000);
  }
  assert_true(gone);
  brim_process_result_deinit(&r);
}

static void stubborn_child_is_killed(void **state) {
  (void)state;
  brim_process_result r;
  assert_ok(shell("trap '' TERM; echo deaf; while :; do sleep 0.1; done",
                  (brim_process_options){.timeout_ms = 200}, &r));
  assert_true(r.timed_out);
  assert_int_equal(r.signal, SIGKILL);
  assert_string_equal(r.output, "deaf\n");
  brim_process_result_deinit(&r);
}

static void output_keeps_the_end(void **state) {
  (void)state;
  brim_process_result r;
  assert_ok(shell("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; printf END",
                  (brim_process_options){.max_output = 25}, &r));
  assert_int_equal(r.output_size, 25);
  assert_string_equal(r.output + 25 - 16, "98\nline 2999\nEND");
  brim_process_result_deinit(&r);
  // Growth up to a cap that is no power of two, and then round it.
  assert_ok(shell("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done",
                  (brim_process_options){.max_output = 10007}, &r));
  assert_int_equal(r.output_size, 10007);
  assert_int_equal(strlen(r.output), 10007);
  int line = 2999;
  for (char *end = r.output + 10007; end - r.output > 20; line--) {
    char expected[32];
    int n = snprintf(expected, sizeof expected, "line %d\n", line);
    assert_memory_equal(end - n, expected, (size_t)n);
    end -= n;
  }
  brim_process_result_deinit(&r);
}

static void background_helper_does_not_hold_us(void **state) {
  (void)state;
  brim_process_result r;
  assert_ok(shell("sleep 60 & echo $!", (brim_process_options){.timeout_ms = 30000}, &r));
  assert_false(r.timed_out);  // it would be, had we waited for the end of the pipe
  assert_int_equal(r.exit_code, 0);
  long helper = strtol(r.output, NULL, 10);
  assert_true(helper > 1);
  assert_int_equal(kill((pid_t)helper, SIGKILL), 0);
  brim_process_result_deinit(&r);
}

static void not_there(void **state) {
  (void)state;
  setenv("PATH", "/usr/bin:/bin", 1);  // a folder closed to this user is another error
  brim_process_result r;
  const char *argv[] = {"brim-no-such-program", NULL}, *none[] = {NULL};
  brim_process_options o = {.argv = argv, .capture = true};
  assert_status(brim_process_run(&o, &r), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "brim-no-such-program"));
  assert_null(r.output);
  o.argv = none;
  assert_status(brim_process_run(&o, &r), BRIM_EINVAL);
  assert_status(shell("true", (brim_process_options){.cwd = "/no/such/folder"}, &r), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "/no/such/folder"));
}

static void uncaptured(void **state) {
  (void)state;
  const char *argv[] = {"true", NULL};
  brim_process_result r;
  assert_ok(brim_process_run(&(brim_process_options){.argv = argv}, &r));
  assert_int_equal(r.exit_code, 0);
  assert_null(r.output);
}

static bool cancel_at_third(void *ctx) { return ++*(int *)ctx >= 3; }

static void cancelling(void **state) {
  (void)state;
  int asked = 0;
  brim_process_result r;
  assert_status(
      shell("echo hi; sleep 100",
            (brim_process_options){.cancelled = cancel_at_third, .cancel_ctx = &asked}, &r),
      BRIM_EINTERRUPTED);
  assert_int_equal(asked, 3);
  assert_int_equal(r.signal, SIGTERM);
  assert_false(r.timed_out);
  assert_string_equal(r.output, "hi\n");
  brim_process_result_deinit(&r);
}

static void out_of_memory(void **state) {
  (void)state;
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  brim_status status = BRIM_ENOMEM;
  int tries = 0;
  for (uint64_t n = 1; status == BRIM_ENOMEM && n < 20; n++, tries++) {
    brim_process_result r;
    brim_alloc_fail_nth(n, 0);
    status = shell("head -c 20000 /dev/zero", (brim_process_options){0}, &r);
    brim_alloc_fail_nth(0, 0);
    if (!status) {
      assert_int_equal(r.output_size, 20000);
      brim_process_result_deinit(&r);
    }
    brim_alloc_get_stats(&after);
    assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
  }
  assert_ok(status);
  assert_true(tries >= 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exit_code_and_output),
      cmocka_unit_test(death_by_signal),
      cmocka_unit_test(environment_folder_and_input),
      cmocka_unit_test(blocked_signals_are_not_inherited),
      cmocka_unit_test(timeout_ends_the_group),
      cmocka_unit_test(stubborn_child_is_killed),
      cmocka_unit_test(output_keeps_the_end),
      cmocka_unit_test(background_helper_does_not_hold_us),
      cmocka_unit_test(not_there),
      cmocka_unit_test(uncaptured),
      cmocka_unit_test(cancelling),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
