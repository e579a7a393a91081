// A program in a pseudo-terminal: a test starts it, reads its output, types and resizes.
#ifndef BRIM_TESTS_UI_SESSION_H_
#define BRIM_TESTS_UI_SESSION_H_

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "test.h"
#include "ui/terminal.h"

enum { SESSION_PATIENCE_MS = 60000 };  // for a loaded machine; usually no wait takes that long

typedef struct session {
  int master, slave;
  int report;  // lines that the child writes beside the terminal
  pid_t child;
  struct termios before;
  terminal seen;
} session;

typedef void (*session_program)(int report);

static inline void session_resize(int fd, int columns, int rows) {
  struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
  assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
}

static inline bool session_open(session *s, int columns, int rows) {
  char name[256];
  memset(s, 0, sizeof *s);
  terminal_init(&s->seen, columns, rows);
  s->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (s->master < 0 || grantpt(s->master) || unlockpt(s->master) ||
      ptsname_r(s->master, name, sizeof name)) {
    return false;
  }
  s->slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (s->slave < 0) return false;
  session_resize(s->master, columns, rows);
  assert_int_equal(tcgetattr(s->slave, &s->before), 0);
  return true;
}

// Runs in the child: the terminal becomes its own, on the first two descriptors.
static inline void session_take(int slave) {
  struct rlimit none = {0, 0};
  (void)setrlimit(RLIMIT_CORE, &none);
  if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0)) _exit(90);
  int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);  // output of sanitizers
  if (dup2(slave, 0) < 0 || dup2(slave, 1) < 0 || dup2(quiet, 2) < 0) _exit(91);
  setenv("TERM", "xterm", 1);
  setenv("LC_ALL", "C.UTF-8", 1);
  unsetenv("COLUMNS");
  unsetenv("NO_COLOR");
  // Sanitizers handle some signals themselves; a shell ignores others in its background jobs.
  static const int usual[] = {SIGSEGV, SIGBUS,  SIGABRT, SIGILL, SIGFPE,
                              SIGINT,  SIGQUIT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) (void)signal(usual[i], SIG_DFL);
}

static inline void session_start(session *s, session_program run) {
  int pipe_fds[2];
  if (!session_open(s, 80, 24)) BRIM_SKIP("no pseudo-terminals here");
  assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
  fflush(NULL);
  s->child = fork();
  assert_true(s->child >= 0);
  if (s->child == 0) {
    close(s->master);  // hangs up if the test has the last descriptor
    session_take(s->slave);
    run(pipe_fds[1]);
    _exit(0);
  }
  close(pipe_fds[1]);
  s->report = pipe_fds[0];
}

// Reads the terminal for at most this long; false if nothing came.
static inline bool session_read(session *s, int wait_ms) {
  char bytes[4096];
  struct pollfd ready = {.fd = s->master, .events = POLLIN};
  if (poll(&ready, 1, wait_ms) <= 0) return false;
  ssize_t n = read(s->master, bytes, sizeof bytes);
  if (n <= 0) return false;
  terminal_feed(&s->seen, bytes, (size_t)n);
  return true;
}

// Reads one line of the child's report, and the terminal meanwhile; "" at its end.
static inline const char *session_report(session *s, char out[256]) {
  size_t used = 0;
  for (int waited = 0; waited < SESSION_PATIENCE_MS;) {
    struct pollfd ready[2] = {{.fd = s->report, .events = POLLIN},
                              {.fd = s->master, .events = POLLIN}};
    if (poll(ready, 2, 100) == 0) waited += 100;
    if (ready[1].revents & POLLIN) session_read(s, 0);
    if (!(ready[0].revents & (POLLIN | POLLHUP))) continue;
    if (read(s->report, out + used, 1) != 1 || out[used] == '\n' || used == 254) break;
    used++;
  }
  out[used] = '\0';
  return out;
}

static inline void session_expect_report(session *s, const char *expected) {
  char line[256];
  assert_string_equal(session_report(s, line), expected);
}

// Waits until a row of the screen has this text.
static inline void session_expect_row(session *s, int row, const char *expected) {
  char text[2048];
  for (int waited = 0; strcmp(terminal_row(&s->seen, row, text), expected) != 0;) {
    if (!session_read(s, 100)) waited += 100;
    if (waited > SESSION_PATIENCE_MS)
      fail_msg("row %d is '%s', expected '%s'", row, text, expected);
  }
}

static inline void session_type(session *s, const char *keys) {
  assert_int_equal(write(s->master, keys, strlen(keys)), (ssize_t)strlen(keys));
}

// Ends the child and reads the rest; returns its wait status.
static inline int session_finish(session *s) {
  int status = 0;
  for (int waited = 0;; waited += 10) {
    session_read(s, 0);
    pid_t done = waitpid(s->child, &status, WNOHANG);
    if (done == s->child) break;
    assert_int_equal(done, 0);
    if (waited > SESSION_PATIENCE_MS) {
      kill(s->child, SIGKILL);
      fail_msg("the program does not end");
    }
    usleep(10000);
  }
  while (session_read(s, 50)) continue;
  return status;
}

static inline void session_expect_restored(session *s) {
  struct termios now;
  assert_int_equal(tcgetattr(s->slave, &now), 0);
  assert_int_equal(now.c_lflag, s->before.c_lflag);
  assert_int_equal(now.c_iflag, s->before.c_iflag);
  assert_int_equal(now.c_oflag, s->before.c_oflag);
  assert_memory_equal(now.c_cc, s->before.c_cc, sizeof now.c_cc);
  assert_false(s->seen.alternate);
  assert_true(s->seen.cursor);
  assert_true(s->seen.wrap);
  assert_int_equal(s->seen.unknown, 0);
}

static inline void session_end(session *s) {
  close(s->master);
  close(s->slave);
  close(s->report);
}

#endif  // BRIM_TESTS_UI_SESSION_H_
