// The screen in a real terminal: a child draws on a pseudo-terminal. The test reads its output, types, resizes, stops
// and kills it.
#include "ui/term/ui_term.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "test.h"
#include "ui/session.h"

//---------------------------------- programs ----------------------------------

static void say(int report, const char *text) {
  (void)!write(report, text, strlen(text));
  (void)!write(report, "\n", 1);
}

static brim_screen *open_screen(int report) {
  brim_screen *screen = NULL;
  if (brim_screen_open(0, 1, BRIM_UI_COLOUR_AUTO, &screen)) {
    say(report, brim_status_detail());
    _exit(3);
  }
  return screen;
}

static void wait_keys(brim_screen *screen, int ms) {
  struct pollfd ready = {.fd = brim_screen_fd(screen), .events = POLLIN};
  (void)poll(&ready, 1, brim_screen_has_input(screen) ? BRIM_SCREEN_ESCAPE_MS : ms);
}

// Draws its size and the last key until 'q'. Other keys end it in other ways: 'x' exits without closing, 'a' aborts,
// ...
static void run_view(int report) {
  brim_screen *screen = open_screen(report);
  (void)!write(1, "", 0);
  char last[32] = "-", text[1024], edge[TERMINAL_MAX + 1];
  int hidden = 0;
  memset(edge, '=', sizeof edge);
  for (int frame = 0;; frame++) {
    brim_key key;
    while (brim_screen_key(screen, brim_clock_now(), &key)) {
      snprintf(last, sizeof last, "%d/%x", (int)key.code, (unsigned)key.ch);
      if (key.ch == 'q') {
        brim_screen_close(screen);
        return;
      }
      if (key.ch == 'x') exit(5);  // NOLINT: the path under test
      if (key.ch == 'a') abort();
      if (key.ch == 's') raise(SIGSEGV);
      if (key.ch == 'r') {
        brim_screen_restore();
        kill(getpid(), SIGKILL);
      }
      if (key.ch == 'f') {  // a forked process must not touch our terminal
        pid_t copy = fork();
        if (copy == 0) {
          brim_screen_restore();
          _exit(0);
        }
        (void)waitpid(copy, NULL, 0);
      }
      say(report, last);
    }
    brim_term term;
    int rows;
    brim_screen_size(screen, &term, &rows);
    // One line reaches the right edge, where erasing the rest would delete its last character.
    snprintf(text, sizeof text, "size %dx%d\n한글 열 %s\n\033[1mbold\033[0m\n%.*s\n%s\n",
             term.width, rows, term.colour ? "colour" : "plain", term.width, edge, last);
    if (brim_screen_draw(screen, text)) {
      say(report, "gone");
      brim_screen_close(screen);
      return;
    }
    if (frame == 0) say(report, "ready");
    // Keys now belong to another job, so polling the terminal would spin. A stop in this very moment does not count as
    // background yet.
    hidden = brim_screen_fd(screen) < 0 ? hidden + 1 : 0;
    if (hidden == 3) say(report, "no keys");
    wait_keys(screen, 20);
  }
}

static void started(session *s, session_program run) {
  session_start(s, run);
  session_expect_report(s, "ready");
  session_expect_row(s, 0, "size 80x24");
  assert_true(s->seen.alternate);
  assert_false(s->seen.cursor);
}

//---------------------------------- tests ----------------------------------

static void test_drawing(void **state) {
  (void)state;
  session s;
  started(&s, run_view);
  session_expect_row(&s, 1, "한글 열 colour");
  session_expect_row(&s, 2, "bold");
  session_expect_row(&s, 4, "-");
  // A frame equal to the last one sends nothing.
  while (session_read(&s, 100)) continue;
  size_t quiet = s.seen.bytes;
  assert_false(session_read(&s, 200));
  assert_int_equal(s.seen.bytes, quiet);
  // Only a changed line is sent.
  session_type(&s, "k");
  session_expect_row(&s, 4, "1/6b");
  assert_true(s.seen.bytes - quiet < 40);
  session_type(&s, "\x0c");  // Ctrl-L: the whole frame
  session_expect_row(&s, 4, "15/0");
  assert_true(s.seen.bytes - quiet > 60);
  session_type(&s, "q");
  int status = session_finish(&s);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  session_expect_restored(&s);
  session_end(&s);
}

static void test_resizing(void **state) {
  (void)state;
  session s;
  started(&s, run_view);
  static const int sizes[][2] = {{200, 60}, {40, 5}, {20, 2}, {120, 30}, {80, 24}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char expected[32];
    snprintf(expected, sizeof expected, "size %dx%d", sizes[i][0], sizes[i][1]);
    s.seen.columns = sizes[i][0];
    s.seen.rows = sizes[i][1];
    session_resize(s.master, sizes[i][0], sizes[i][1]);
    session_expect_row(&s, 0, expected);
    session_expect_row(&s, 1, "한글 열 colour");
    if (sizes[i][1] < 5) continue;
    char edge[TERMINAL_MAX + 1];
    memset(edge, '=', sizeof edge);
    edge[sizes[i][0]] = '\0';
    session_expect_row(&s, 3, edge);
    session_expect_row(&s, 4, "-");
  }
  session_type(&s, "q");
  (void)session_finish(&s);
  session_expect_restored(&s);
  session_end(&s);
}

static void test_keys(void **state) {
  (void)state;
  static const struct {
    const char *bytes, *expected;
  } rows[] = {
      {"\033[A", "2/0"},      {"\033OB", "3/0"},  {"\033[5~", "6/0"},   {"\033[6~", "7/0"},
      {"\033[H", "8/0"},      {"\033[4~", "9/0"}, {"\033[1;5C", "5/0"}, {"\r", "11/0"},
      {"\t", "12/0"},         {"\x7f", "13/0"},   {"?", "1/3f"},        {"한", "1/d55c"},
      {"\033", "14/0"},        // Escape alone, after a timeout
      {"\033[200~j", "1/6a"},  // an unknown sequence, then a key
  };
  session s;
  started(&s, run_view);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    session_type(&s, rows[i].bytes);
    session_expect_report(&s, rows[i].expected);
  }
  // A sequence may arrive in pieces.
  session_type(&s, "\xed");
  session_type(&s, "\x95\x9c");
  session_expect_report(&s, "1/d55c");
  session_type(&s, "jk\033[Al");
  session_expect_report(&s, "1/6a");
  session_expect_report(&s, "1/6b");
  session_expect_report(&s, "2/0");
  session_expect_report(&s, "1/6c");
  session_type(&s, "\x13j");  // Ctrl-S does not freeze the view
  session_expect_report(&s, "1/6a");
  session_expect_row(&s, 4, "1/6a");
  session_type(&s, "q");
  (void)session_finish(&s);
  session_expect_restored(&s);
  session_end(&s);
}

// Whatever key or signal ends the program, it restores the terminal.
static void test_every_end_restores(void **state) {
  (void)state;
  static const struct {
    const char *keys;
    int send, expected;  // signals; 0 = none
  } rows[] = {
      {"x", 0, 0},
      {"a", 0, SIGABRT},
      {"s", 0, SIGSEGV},
      {"\x03", 0, SIGINT},
      {"\x1c", 0, SIGQUIT},
      {NULL, SIGTERM, SIGTERM},
      {NULL, SIGHUP, SIGHUP},
      {NULL, SIGUSR1, SIGUSR1},
      {"r", 0, SIGKILL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    session s;
    started(&s, run_view);
    if (rows[i].keys) {
      session_type(&s, rows[i].keys);
    } else {
      assert_int_equal(kill(s.child, rows[i].send), 0);
    }
    int status = session_finish(&s);
    if (rows[i].expected) {
      assert_true(WIFSIGNALED(status));
      assert_int_equal(WTERMSIG(status), rows[i].expected);
    } else {
      assert_true(WIFEXITED(status));
    }
    session_expect_restored(&s);
    session_end(&s);
  }
}

static void test_a_copy_does_not_restore(void **state) {
  (void)state;
  session s;
  started(&s, run_view);
  session_type(&s, "f");
  session_expect_report(&s, "1/66");
  session_expect_row(&s, 4, "1/66");
  assert_true(s.seen.alternate);
  session_type(&s, "q");
  (void)session_finish(&s);
  session_expect_restored(&s);
  session_end(&s);
}

// The program's own handler stays in place, and ignored signals stay ignored.
static volatile sig_atomic_t heard;
static void hear(int number) { heard = number; }

static void run_own_handlers(int report) {
  struct sigaction now;
  (void)signal(SIGTERM, hear);
  (void)signal(SIGHUP, SIG_IGN);
  brim_screen *screen = open_screen(report);
  (void)raise(SIGTERM);
  (void)raise(SIGHUP);
  bool shown = brim_screen_shown() && brim_screen_fd(screen) >= 0;
  say(report, heard == SIGTERM && shown ? "own handler" : "lost");
  brim_screen_close(screen);
  bool usual = sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == SIG_DFL;
  bool same = sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == hear;
  say(report, usual && same ? "given back" : "kept");
  // A closed screen can be opened again; an open one cannot.
  brim_screen *again = open_screen(report), *twice = NULL;
  brim_status status = brim_screen_open(0, 1, BRIM_UI_COLOUR_AUTO, &twice);
  say(report, status == BRIM_ESTATE && !twice ? "once" : "twice");
  brim_screen_close(again);
}

static void test_handlers_of_the_program(void **state) {
  (void)state;
  session s;
  session_start(&s, run_own_handlers);
  session_expect_report(&s, "own handler");
  session_expect_report(&s, "given back");
  session_expect_report(&s, "once");
  (void)session_finish(&s);
  session_expect_restored(&s);
  session_end(&s);
}

// Draws a thousand large frames while the terminal reads nothing; then waits for a key.
static void run_flood(int report) {
  brim_screen *screen = open_screen(report);
  brim_str frame;
  brim_str_init(&frame);
  for (int i = 0; i <= 1000; i++) {
    brim_str_clear(&frame);
    for (int row = 0; row < 24; row++)
      brim_str_printf(&frame, "frame %d row %d %060d\n", i, row, i);
    if (brim_screen_draw(screen, frame.data)) _exit(4);
  }
  say(report, "never blocked");
  for (bool stop = false; !stop;) {
    brim_key key;
    wait_keys(screen, 20);
    while (brim_screen_key(screen, brim_clock_now(), &key)) stop = true;
    if (brim_screen_draw(screen, frame.data)) _exit(4);
  }
  brim_screen_close(screen);
  brim_str_deinit(&frame);
}

static void test_a_slow_terminal_never_blocks(void **state) {
  (void)state;
  char line[256], expected[128];
  session s;
  session_start(&s, run_flood);
  // Reads only the report: the terminal's buffer is full by now.
  size_t used = 0;
  while (used < 255 && read(s.report, line + used, 1) == 1 && line[used] != '\n') used++;
  line[used] = '\0';
  assert_string_equal(line, "never blocked");
  snprintf(expected, sizeof expected, "frame 1000 row 23 %060d", 1000);
  expected[80] = '\0';
  session_expect_row(&s, 23, expected);
  snprintf(expected, sizeof expected, "frame 1000 row 0 %060d", 1000);
  session_expect_row(&s, 0, expected);
  session_type(&s, "z");
  int status = session_finish(&s);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  session_expect_restored(&s);
  session_end(&s);
}

static void test_a_terminal_that_hangs_up(void **state) {
  (void)state;
  session s;
  started(&s, run_view);
  close(s.slave);
  close(s.master);
  s.master = open("/dev/null", O_RDWR | O_CLOEXEC);
  s.slave = dup(s.master);
  int status = 0;
  assert_int_equal(waitpid(s.child, &status, 0), s.child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
  session_end(&s);
}

static void run_ignoring_hangup(int report) {
  (void)signal(SIGHUP, SIG_IGN);
  run_view(report);
}

static void test_drawing_without_a_terminal(void **state) {
  (void)state;
  session s;
  started(&s, run_ignoring_hangup);
  close(s.slave);
  close(s.master);
  s.master = open("/dev/null", O_RDWR | O_CLOEXEC);
  s.slave = dup(s.master);
  session_expect_report(&s, "gone");
  int status = 0;
  assert_int_equal(waitpid(s.child, &status, 0), s.child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  session_end(&s);
}

//---------------------------------- a shell with jobs ----------------------------------

// A shell that starts the view as a job, takes the terminal back when the job stops, and continues it first in the
// background, then in the foreground.
static void run_shell(int report) {
  struct termios cooked, now;
  (void)signal(SIGTTOU, SIG_IGN);
  (void)tcgetattr(0, &cooked);
  pid_t job = fork();
  if (job == 0) {
    (void)setpgid(0, 0);
    (void)tcsetpgrp(0, getpgrp());
    (void)signal(SIGTTOU, SIG_DFL);
    run_view(report);
    _exit(0);
  }
  (void)setpgid(job, job);
  (void)tcsetpgrp(0, job);
  for (int stops = 0;;) {
    int status = 0;
    if (waitpid(job, &status, WUNTRACED) != job) _exit(80);
    (void)tcsetpgrp(0, getpgrp());
    (void)tcgetattr(0, &now);
    bool same = now.c_lflag == cooked.c_lflag && now.c_iflag == cooked.c_iflag;
    say(report, same ? "cooked" : "raw");
    if (!WIFSTOPPED(status)) break;
    if (++stops == 1) {
      (void)!write(1, "$ \r\n", 4);
      (void)kill(-job, SIGCONT);  // bg
      char line[16] = "";
      (void)!read(0, line, sizeof line);  // it does not read our keys
      say(report, line[0] == 'b' ? "b is ours" : "b is lost");
    }
    (void)tcsetpgrp(0, job);
    (void)kill(-job, SIGCONT);  // fg
  }
}

static void test_stopping_and_continuing(void **state) {
  (void)state;
  session s;
  started(&s, run_shell);
  session_type(&s, "\x1a");  // Ctrl-Z
  session_expect_report(&s, "cooked");
  session_expect_report(&s, "no keys");
  while (session_read(&s, 50)) continue;
  assert_false(s.seen.alternate);
  assert_true(s.seen.cursor);
  session_type(&s, "b\n");
  session_expect_report(&s, "b is ours");
  session_expect_row(&s, 0, "size 80x24");  // in the foreground again, drawn completely
  session_expect_row(&s, 1, "한글 열 colour");
  assert_true(s.seen.alternate);
  assert_false(s.seen.cursor);
  session_type(&s, "j");
  session_expect_report(&s, "1/6a");
  session_type(&s, "\x1a");
  session_expect_report(&s, "cooked");
  session_expect_row(&s, 0, "size 80x24");
  session_type(&s, "q");
  session_expect_report(&s, "cooked");
  (void)session_finish(&s);
  session_expect_restored(&s);
  session_end(&s);
}

//---------------------------------- where there is no screen ----------------------------------

static void run_refused(int report) {
  brim_screen *screen = NULL;
  int fds[2];
  if (pipe2(fds, O_CLOEXEC)) _exit(1);
  brim_status to_pipe = brim_screen_open(0, fds[1], BRIM_UI_COLOUR_AUTO, &screen);
  say(report, to_pipe == BRIM_EUNSUPPORTED ? "no pipe" : "a pipe");
  brim_status from_pipe = brim_screen_open(fds[0], 1, BRIM_UI_COLOUR_AUTO, &screen);
  say(report, from_pipe == BRIM_EUNSUPPORTED ? "no pipe" : "a pipe");
  setenv("TERM", "dumb", 1);
  brim_status dumb = brim_screen_open(0, 1, BRIM_UI_COLOUR_AUTO, &screen);
  say(report, dumb == BRIM_EUNSUPPORTED ? "not dumb" : "dumb");
  setenv("TERM", "xterm", 1);
  pid_t job = fork();
  if (job == 0) {
    (void)setpgid(0, 0);  // and not in the foreground
    brim_status back = brim_screen_open(0, 1, BRIM_UI_COLOUR_AUTO, &screen);
    say(report, back == BRIM_EUNSUPPORTED ? "not in the background" : "in the background");
    _exit(0);
  }
  (void)waitpid(job, NULL, 0);
}

static void test_where_there_is_no_screen(void **state) {
  (void)state;
  session s;
  session_start(&s, run_refused);
  session_expect_report(&s, "no pipe");
  session_expect_report(&s, "no pipe");
  session_expect_report(&s, "not dumb");
  session_expect_report(&s, "not in the background");
  (void)session_finish(&s);
  assert_false(brim_screen_shown());
  assert_int_equal(s.seen.bytes, 0);  // nothing was written
  session_expect_restored(&s);
  session_end(&s);
  brim_screen_restore();  // without a screen this does nothing
  brim_screen_close(NULL);
}

//---------------------------------- bytes to keys ----------------------------------

static void test_decoding(void **state) {
  (void)state;
  brim_key key;
  // Incomplete bytes wait for more. Bytes that nothing will complete are a key or are skipped.
  static const char *const parts[] = {"\033", "\033[", "\033[1;", "\033O", "\xed\x95", "\033[M ab"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    size_t n = strlen(parts[i]);
    if (i == 5) n -= 1;
    assert_int_equal(brim_key_decode(parts[i], n, false, &key), 0);
    size_t used = brim_key_decode(parts[i], n, true, &key);
    assert_true(used > 0 && used <= n);
    assert_int_equal(key.code, i == 0 ? BRIM_KEY_ESCAPE : BRIM_KEY_NONE);
  }
  assert_int_equal(brim_key_decode("", 0, true, &key), 0);
  assert_int_equal(brim_key_decode("\033\033", 2, false, &key), 1);
  assert_int_equal(key.code, BRIM_KEY_ESCAPE);
  assert_int_equal(brim_key_decode("\033x", 2, false, &key), 2);  // Alt and x is not x
  assert_int_equal(key.code, BRIM_KEY_NONE);
  assert_int_equal(brim_key_decode("\033[\033", 3, false, &key), 2);
  assert_int_equal(brim_key_decode("\xc2\x9b", 2, false, &key), 2);  // a control character
  assert_int_equal(key.code, BRIM_KEY_NONE);
  assert_int_equal(brim_key_decode("\x01", 1, false, &key), 1);
  assert_int_equal(key.code, BRIM_KEY_NONE);
  assert_int_equal(brim_key_latin(0x3142), 'q');
  assert_int_equal(brim_key_latin('q'), 'q');
  assert_int_equal(brim_key_latin(0xD55C), 0xD55C);
}

// The decoder takes any bytes, in pieces of any size, and never more than it got.
static void test_decoding_anything(void **state) {
  (void)state;
  uint32_t seed = 1;
  for (int round = 0; round < 20000; round++) {
    char bytes[64];
    size_t n = 0;
    static const char alphabet[] = "\033\033[[O;~ABHM0123456789\xed\x95\x9c\xff\x80jq \r";
    for (size_t i = 0; i < sizeof bytes; i++) {
      seed = seed * 1664525u + 1013904223u;
      bytes[i] = alphabet[(seed >> 16) % (sizeof alphabet - 1)];
    }
    while (n < sizeof bytes) {
      brim_key key = {BRIM_KEY_COUNT, 7};
      seed = seed * 1664525u + 1013904223u;
      size_t have = 1 + (seed >> 16) % (sizeof bytes - n);
      size_t used = brim_key_decode(bytes + n, have, true, &key);
      assert_true(used > 0 && used <= have);
      assert_true(key.code < BRIM_KEY_COUNT);
      assert_true((key.code == BRIM_KEY_CHAR) == (key.ch != 0));
      n += used;
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_drawing),
      cmocka_unit_test(test_resizing),
      cmocka_unit_test(test_keys),
      cmocka_unit_test(test_every_end_restores),
      cmocka_unit_test(test_a_copy_does_not_restore),
      cmocka_unit_test(test_handlers_of_the_program),
      cmocka_unit_test(test_a_slow_terminal_never_blocks),
      cmocka_unit_test(test_a_terminal_that_hangs_up),
      cmocka_unit_test(test_drawing_without_a_terminal),
      cmocka_unit_test(test_stopping_and_continuing),
      cmocka_unit_test(test_where_there_is_no_screen),
      cmocka_unit_test(test_decoding),
      cmocka_unit_test(test_decoding_anything),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
