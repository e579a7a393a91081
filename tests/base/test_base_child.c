// Child processes: lines, several children in one loop, and their end. test_base_child_start.c has the start. Where
// exact behaviour matters, this program is its own child (see main).
#include "base/base_child.h"

#include <signal.h>
#include <unistd.h>

#include "base/base_clock.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "child_test.h"

//---------------------------------- output ----------------------------------

static void lines_of_both_streams(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){0}, &h, "echo one; echo; echo two words; exit 3");
  expect(c, &h, 3, "o:one\no:\no:two words\n");
  c = shell((brim_child_options){0}, &h, "echo wrong >&2; exit 1");
  expect(c, &h, 1, "e:wrong\n");
  c = shell((brim_child_options){.err = BRIM_CHILD_MERGE}, &h, "echo a; echo b >&2; echo c");
  expect(c, &h, 0, "o:a\no:b\no:c\n");
  c = shell((brim_child_options){0}, &h, "true");
  expect(c, &h, 0, "");
}

static void last_line_without_newline(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){0}, &h, "printf 'a\\nb'; printf c >&2");
  expect(c, &h, 0, "o:a\no:b|\ne:c|\n");
}

static void long_lines_come_in_pieces(void **state) {
  (void)state;
  heard h;
  brim_child_options o = {.max_line = 4};
  brim_child *c = shell(o, &h, "echo 1234; echo 12345; echo 123456789; printf 12345678");
  expect(c, &h, 0, "o:1234\no:1234+\no:5\no:1234+\no:5678+\no:9\no:1234+\no:5678|\n");
  c = shell(o, &h, "printf 'a\\000b\\n'");
  expect(c, &h, 0, "o:a0b\n");
}

static void progress_bars(void **state) {
  (void)state;
  heard h;
  const char script[] = "printf '10%%\\r20%%\\r\\n'; printf '\\r\\r\\nend'";
  brim_child *c = shell((brim_child_options){.split_returns = true}, &h, script);
  expect(c, &h, 0, "o:10%\no:20%\no:\no:\no:end|\n");
  c = shell((brim_child_options){0}, &h, "printf '10%%\\r20%%\\n'");
  expect(c, &h, 0, "o:10%\r20%\n");
}

typedef struct flooded {
  int next[BRIM_CHILD_STREAM_COUNT];
  bool wrong;
} flooded;

static brim_status on_flood(void *ctx, const brim_child_line *line) {
  flooded *f = ctx;
  char wanted[32];
  int n = snprintf(wanted, sizeof wanted, "%s %d", line->stream == BRIM_CHILD_OUT ? "out" : "err",
                   f->next[line->stream]++);
  f->wrong |= line->size < (size_t)n || memcmp(line->text, wanted, (size_t)n) != 0 || line->more;
  return BRIM_OK;
}

static void much_output_on_both_streams(void **state) {
  (void)state;
  const char *argv[] = {SELF, "flood", NULL};
  flooded f = {{0}, false};
  brim_child *c = NULL;
  bool ended = false;
  assert_ok(brim_child_start(&(brim_child_options){.argv = argv,
                                                   .out = BRIM_CHILD_PIPE,
                                                   .err = BRIM_CHILD_PIPE,
                                                   .on_line = on_flood,
                                                   .ctx = &f},
                             &c));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(f.next[BRIM_CHILD_OUT], FLOOD_LINES);
  assert_int_equal(f.next[BRIM_CHILD_ERR], FLOOD_LINES);
  assert_false(f.wrong);
  brim_child_close(c);
}

static void callback_that_fails(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  brim_child *c = shell((brim_child_options){0}, &h, "echo a; echo b; sleep 1000");
  h.fail_at = 2;
  brim_status status = BRIM_OK;
  while (!status) status = brim_child_wait(c, 1000, &ended);
  assert_int_equal(status, BRIM_ELIMIT);
  assert_false(ended);
  assert_string_equal(h.text.data, "o:a\n");
  brim_str_deinit(&h.text);
  brim_child_close(c);  // and ends the child
}

// A process that stays behind keeps the pipe open and continues to write; brim does not wait for its output.
static void background_writer_does_not_hold_us(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){.err = BRIM_CHILD_INHERIT}, &h,
                        "echo first; (trap '' PIPE; while :; do sleep 0.01; echo on 2>/dev/null || "
                        "exit; done) & exit 5");
  bool ended = false;
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(brim_child_get_result(c)->exit_code, 5);
  assert_int_equal(strncmp(h.text.data, "o:first\n", 8), 0);
  brim_child_close(c);
  brim_str_deinit(&h.text);
}

//---------------------------------- several in one loop ----------------------------------

static void many_in_one_loop(void **state) {
  (void)state;
  enum { COUNT = 24 };  // more than brim_child_wait_any keeps on its stack
  static heard h[COUNT];
  brim_child *children[COUNT + 1] = {NULL};
  int running = COUNT;
  bool ended[COUNT] = {false};
  for (int i = 0; i < COUNT; i++) {
    char script[64];
    snprintf(script, sizeof script, "echo %d; echo e%d >&2; exit %d", i, i, i);
    children[i] = shell((brim_child_options){.die_with_parent = i % 2}, &h[i], script);
  }
  while (running) {
    brim_child_wait_any(children, COUNT + 1, -1);
    for (int i = 0; i < COUNT; i++) {
      if (ended[i]) continue;
      assert_ok(brim_child_poll(children[i], &ended[i]));
      running -= ended[i];
    }
  }
  brim_child_wait_any(children, COUNT + 1, -1);  // all have ended, so it returns at once
  for (int i = 0; i < COUNT; i++) {
    char lines[64];
    snprintf(lines, sizeof lines, "o:%d\n", i);
    assert_non_null(strstr(h[i].text.data, lines));
    snprintf(lines, sizeof lines, "e:e%d\n", i);
    assert_non_null(strstr(h[i].text.data, lines));
    expect(children[i], &h[i], i, NULL);
  }
}

static void own_loop(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  brim_child *c = shell((brim_child_options){0}, &h, "echo a; sleep 0.05; echo b; exit 4");
  while (!ended) {
    struct pollfd fds[BRIM_CHILD_FDS];
    int limit;
    size_t n = brim_child_fds(c, fds, &limit);
    assert_true(n <= BRIM_CHILD_FDS && (n > 0 || limit >= 0));
    assert_true(poll(fds, (nfds_t)n, limit) >= 0);
    assert_ok(brim_child_poll(c, &ended));
  }
  expect(c, &h, 4, "o:a\no:b\n");
}

//---------------------------------- end ----------------------------------

static void waiting_has_a_limit(void **state) {
  (void)state;
  heard h;
  bool ended = true;
  brim_child *c = shell((brim_child_options){0}, &h, "echo up; exec sleep 1000");
  until_lines(c, &h, 1);
  assert_ok(brim_child_wait(c, 20, &ended));
  assert_false(ended);
  assert_ok(brim_child_signal(c, SIGKILL));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_true(ended);
  assert_int_equal(brim_child_get_result(c)->signal, SIGKILL);
  assert_status(brim_child_signal(c, SIGKILL), BRIM_ESTATE);
  assert_status(brim_child_stop(c, 0), BRIM_ESTATE);
  expect(c, &h, -1, "o:up\n");
}

static void stop_ends_the_group(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  brim_child *c = shell((brim_child_options){0}, &h, "sleep 1000 & echo $!; wait");
  until_lines(c, &h, 1);
  long helper = strtol(h.text.data + 2, NULL, 10);
  assert_true(helper > 1);
  assert_ok(brim_child_stop(c, 600000));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(brim_child_get_result(c)->signal, SIGTERM);
  until_gone(helper);
  expect(c, &h, -1, NULL);
}

static void a_signal_reaches_the_group(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){.err = BRIM_CHILD_INHERIT}, &h,
                        "(trap 'echo inner; exit' USR1; echo up; while :; do sleep 0.05; done) & "
                        "trap 'echo outer' USR1; echo up; wait; wait; exit 5");
  until_lines(c, &h, 2);
  assert_ok(brim_child_signal_group(c, SIGUSR1));
  until_lines(c, &h, 4);
  assert_non_null(strstr(h.text.data, "o:inner\n"));
  assert_non_null(strstr(h.text.data, "o:outer\n"));
  bool ended = false;
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_status(brim_child_signal_group(c, SIGUSR1), BRIM_ESTATE);
  expect(c, &h, 5, NULL);
}

static void stubborn_child_is_killed(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  brim_child *c =
      shell((brim_child_options){0}, &h, "trap '' TERM; echo deaf; while :; do sleep 0.05; done");
  until_lines(c, &h, 1);
  assert_ok(brim_child_stop(c, 50));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(brim_child_get_result(c)->signal, SIGKILL);
  expect(c, &h, -1, "o:deaf\n");
}

static void graceful_child_cleans_up(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){.err = BRIM_CHILD_INHERIT}, &h,
                        "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.05; done");
  until_lines(c, &h, 1);
  assert_ok(brim_child_stop(c, 600000));
  expect(c, &h, 75, "o:up\no:saved\n");
}

static void close_ends_it(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){0}, &h, "sleep 1000 & echo $!; wait");
  until_lines(c, &h, 1);
  long helper = strtol(h.text.data + 2, NULL, 10), pid = (long)brim_child_pid(c);
  brim_child_close(c);
  brim_child_close(NULL);
  until_gone(pid);
  until_gone(helper);
  brim_str_deinit(&h.text);
}

static void child_dies_with_its_parent(void **state) {
  (void)state;
  heard h;
  const char *argv[] = {SELF, "parent", NULL};
  brim_child *c = start((brim_child_options){0}, &h, argv);
  until_lines(c, &h, 1);
  long pid = strtol(h.text.data + 2, NULL, 10);
  assert_true(pid > 1);
  brim_clock_sleep_ns(20000000);  // the thread that started the child has ended
  assert_false(is_gone(pid));
  assert_ok(brim_child_signal(c, SIGKILL));
  until_gone(pid);
  expect(c, &h, -1, NULL);
}

static void lost_exit_code(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  signal(SIGCHLD, SIG_IGN);
  brim_child *c = shell((brim_child_options){0}, &h, "echo x; exit 0");
  brim_status status = brim_child_wait(c, -1, &ended);
  signal(SIGCHLD, SIG_DFL);
  assert_status(status, BRIM_ECHILD);
  assert_true(ended);
  assert_string_equal(h.text.data, "o:x\n");
  assert_int_equal(brim_child_get_result(c)->exit_code, -1);
  assert_true(brim_child_get_result(c)->lost);
  brim_child_close(c);
  brim_str_deinit(&h.text);
  c = shell((brim_child_options){0}, &h, "exit 3");
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_false(brim_child_get_result(c)->lost);
  brim_child_close(c);
  brim_str_deinit(&h.text);
}

int main(int argc, char **argv) {
  if (argc > 1) as_child(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_both_streams),
      cmocka_unit_test(last_line_without_newline),
      cmocka_unit_test(long_lines_come_in_pieces),
      cmocka_unit_test(progress_bars),
      cmocka_unit_test(much_output_on_both_streams),
      cmocka_unit_test(callback_that_fails),
      cmocka_unit_test(background_writer_does_not_hold_us),
      cmocka_unit_test(many_in_one_loop),
      cmocka_unit_test(own_loop),
      cmocka_unit_test(waiting_has_a_limit),
      cmocka_unit_test(stop_ends_the_group),
      cmocka_unit_test(a_signal_reaches_the_group),
      cmocka_unit_test(stubborn_child_is_killed),
      cmocka_unit_test(graceful_child_cleans_up),
      cmocka_unit_test(close_ends_it),
      cmocka_unit_test(child_dies_with_its_parent),
      cmocka_unit_test(lost_exit_code),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
