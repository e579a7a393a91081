// The terminal of a live view: modes, signals, input and the difference between two frames. What is
// drawn comes from the caller; bytes to keys is in ui_keys.c.
#include "ui/ui_screen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

// Alternate screen, no cursor, no wrapping at the right edge; and back.
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[H\033[2J"
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"

enum { MOST_COLUMNS = 1000, MOST_ROWS = 1000, INPUT_SIZE = 64, RESTORE_TRIES = 4 };

struct brim_screen {
  int fd;       // the terminal, opened again: non-blocking without changing what others share
  bool blocks;  // it could not be opened again; a copy of the caller's descriptor
  bool gone;    // hung up
  bool forget;  // the next frame is sent whole
  brim_term term;
  int rows, columns;  // of the last frame
  brim_str shown;     // the last frame
  brim_str pending;   // bytes that the terminal has not taken yet
  size_t sent;        // of those
  char input[INPUT_SIZE];
  size_t input_size;
  brim_time input_at;  // when the last of it came
};

//---------------------------------- what signal handlers need ----------------------------------

// A process has one set of signals and one terminal it may take over, so this is process-wide.
static atomic_int owner;       // process that has a screen open; 0 = none
static atomic_bool entered;    // the terminal is in our modes
static atomic_bool continued;  // after a stop: the terminal may have any mode
static int terminal_fd;        // these three do not change while `owner` is set
static struct termios modes_before, modes_during;

// Signals that end the process by default, and ones that bring a screen to its next frame.
static const int fatal[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,   SIGILL,  SIGABRT,
                            SIGFPE,  SIGBUS,  SIGSEGV, SIGSYS,    SIGTRAP, SIGXCPU,
                            SIGALRM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF};
enum { FATAL_COUNT = sizeof fatal / sizeof *fatal };

// Where job control does not apply to this terminal, it is ours.
static bool in_foreground(void) {
  pid_t group = tcgetpgrp(terminal_fd);
  return group < 0 || group == getpgrp();
}

bool brim_screen_shown(void) {
  return atomic_load(&owner) == (int)getpid() && atomic_load(&entered);
}

void brim_screen_restore(void) {
  if (atomic_load(&owner) != (int)getpid()) return;  // a fork of the process that has it
  if (!atomic_exchange(&entered, false)) return;
  int saved = errno;
  const char *at = LEAVE;
  size_t left = sizeof LEAVE - 1;
  for (int i = 0; i < RESTORE_TRIES && left > 0; i++) {
    ssize_t n = write(terminal_fd, at, left);
    if (n > 0) {
      at += n;
      left -= (size_t)n;
    } else if (n < 0 && errno == EAGAIN) {
      struct pollfd ready = {.fd = terminal_fd, .events = POLLOUT};
      (void)poll(&ready, 1, 50);
    } else if (n < 0 && errno != EINTR) {
      break;
    }
  }
  if (in_foreground()) {
    (void)tcflush(terminal_fd, TCIFLUSH);  // keys meant for the view are no commands for the shell
    (void)tcsetattr(terminal_fd, TCSANOW, &modes_before);
  }
  errno = saved;
}

static void on_fatal(int number) {
  brim_screen_restore();
  (void)signal(number, SIG_DFL);
  (void)raise(number);  // delivered when this handler returns
}

static void on_winch(int number) { (void)number; }  // it is there to interrupt poll

static void on_continue(int number) {
  (void)number;
  atomic_store(&continued, true);
}

static void on_stop(int number) {
  int saved = errno;
  brim_screen_restore();
  struct sigaction usual, ours;
  sigset_t one, before;
  memset(&usual, 0, sizeof usual);
  usual.sa_handler = SIG_DFL;
  sigemptyset(&one);
  sigaddset(&one, number);
  (void)sigaction(number, &usual, &ours);
  (void)raise(number);
  (void)pthread_sigmask(SIG_UNBLOCK, &one, &before);  // here the process stops, and continues
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  (void)sigaction(number, &ours, NULL);
  errno = saved;
}

static void (*handler_of(int number))(int) {
  return number == SIGWINCH  ? on_winch
         : number == SIGCONT ? on_continue
         : number == SIGTSTP ? on_stop
                             : on_fatal;
}

static const int others[] = {SIGWINCH, SIGCONT, SIGTSTP};
enum { OTHER_COUNT = sizeof others / sizeof *others };

// Takes a signal that has its default action; a handler of the program's own stays, and so does
// what the shell ignores for us.
static void take_signal(int number) {
  struct sigaction now, ours;
  if (sigaction(number, NULL, &now) || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) {
    return;
  }
  memset(&ours, 0, sizeof ours);
  ours.sa_handler = handler_of(number);
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  (void)sigaction(number, &ours, NULL);
}

static void give_signal_back(int number) {
  struct sigaction now;
  if (sigaction(number, NULL, &now) || (now.sa_flags & SA_SIGINFO)) return;
  if (now.sa_handler == handler_of(number)) (void)signal(number, SIG_DFL);
}

static void each_signal(void (*fn)(int)) {
  for (size_t i = 0; i < FATAL_COUNT; i++) fn(fatal[i]);
  for (size_t i = 0; i < OTHER_COUNT; i++) fn(others[i]);
}

//---------------------------------- open and close ----------------------------------

// The terminal behind a descriptor as an open file of our own, so that O_NONBLOCK is ours alone.
static int open_again(int fd, bool *blocks) {
  char name[256];
  struct stat same, other;
  *blocks = false;
  if (ttyname_r(fd, name, sizeof name) == 0) {
    int again = open(name, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (again >= 0 && fstat(fd, &same) == 0 && fstat(again, &other) == 0 &&
        same.st_rdev == other.st_rdev) {
      return again;
    }
    if (again >= 0) close(again);
  }
  *blocks = true;
  return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static void choose_modes(void) {
  modes_during = modes_before;
  modes_during.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
  modes_during.c_iflag &= ~(tcflag_t)(IXON | ICRNL | INLCR | IGNCR | ISTRIP);
  modes_during.c_cc[VMIN] = 1;
  modes_during.c_cc[VTIME] = 0;
}

static brim_status prepare(int out_fd, brim_screen *screen) {
  screen->fd = open_again(out_fd, &screen->blocks);
  if (screen->fd < 0 || tcgetattr(screen->fd, &modes_before)) {
    return brim_fail(BRIM_EUNSUPPORTED, "cannot use this terminal for a live view: %s",
                     strerror(errno));
  }
  terminal_fd = screen->fd;
  if (!in_foreground()) {
    return brim_fail(BRIM_EUNSUPPORTED, "cannot show a live view from a background job");
  }
  choose_modes();
  return BRIM_OK;
}

static void destroy(brim_screen *screen) {
  if (screen->fd >= 0) close(screen->fd);
  brim_str_deinit(&screen->shown);
  brim_str_deinit(&screen->pending);
  brim_free(screen);
}

brim_status brim_screen_open(int in_fd, int out_fd, brim_ui_colour colour, brim_screen **out) {
  static atomic_flag at_exit = ATOMIC_FLAG_INIT;
  brim_term term;
  *out = NULL;
  brim_term_detect(out_fd, colour, &term);
  if (!term.redraw || isatty(in_fd) != 1) {
    return brim_fail(BRIM_EUNSUPPORTED, "a live view needs a terminal that can redraw");
  }
  int none = 0;
  if (!atomic_compare_exchange_strong(&owner, &none, (int)getpid())) {
    return brim_fail(BRIM_ESTATE, "this process already shows a live view");
  }
  brim_screen *screen = (brim_screen *)brim_calloc(1, sizeof *screen);
  if (!screen) {
    atomic_store(&owner, 0);
    return brim_fail(BRIM_ENOMEM, "out of memory");
  }
  brim_str_init(&screen->shown);
  brim_str_init(&screen->pending);
  screen->term = term;
  brim_status status = prepare(out_fd, screen);
  if (status) {
    destroy(screen);
    atomic_store(&owner, 0);
    return status;
  }
  atomic_store(&entered, false);
  atomic_store(&continued, false);
  if (!atomic_flag_test_and_set(&at_exit)) (void)atexit(brim_screen_restore);
  each_signal(take_signal);
  *out = screen;
  return brim_screen_draw(screen, "");
}

void brim_screen_close(brim_screen *screen) {
  if (!screen) return;
  brim_screen_restore();
  each_signal(give_signal_back);
  destroy(screen);
  atomic_store(&owner, 0);
}

//---------------------------------- size and keys ----------------------------------

static void read_size(const brim_screen *screen, int *columns, int *rows) {
  struct winsize size = {0};
  bool known = ioctl(screen->fd, TIOCGWINSZ, &size) == 0;
  *columns = known && size.ws_col > 0 ? size.ws_col : 80;
  *rows = known && size.ws_row > 0 ? size.ws_row : 24;
  if (*columns > MOST_COLUMNS) *columns = MOST_COLUMNS;
  if (*rows > MOST_ROWS) *rows = MOST_ROWS;
}

void brim_screen_size(const brim_screen *screen, brim_term *term, int *rows) {
  int columns;
  read_size(screen, &columns, rows);
  *term = screen->term;
  term->width = columns;
}

int brim_screen_fd(const brim_screen *screen) {
  // In the background, keys are for another program.
  return screen->gone || !atomic_load(&entered) ? -1 : screen->fd;
}

bool brim_screen_waits(const brim_screen *screen) { return screen->input_size > 0; }

static size_t read_more(brim_screen *screen, brim_time now) {
  struct pollfd ready = {.fd = brim_screen_fd(screen), .events = POLLIN};
  size_t room = INPUT_SIZE - screen->input_size;
  if (ready.fd < 0 || room == 0 || !in_foreground()) return 0;
  if (poll(&ready, 1, 0) <= 0) return 0;
  ssize_t n = read(screen->fd, screen->input + screen->input_size, room);
  if (n > 0) {
    screen->input_size += (size_t)n;
    screen->input_at = now;
    return (size_t)n;
  }
  if (n == 0 || (errno != EAGAIN && errno != EINTR)) screen->gone = true;
  return 0;
}

bool brim_screen_key(brim_screen *screen, brim_time now, brim_key *out) {
  for (;;) {
    int64_t age = brim_time_since_ns(screen->input_at, now);
    bool last = age >= BRIM_SCREEN_ESCAPE_MS * 1000000LL || screen->input_size == INPUT_SIZE;
    size_t used = brim_key_decode(screen->input, screen->input_size, last, out);
    if (used == 0) {
      if (read_more(screen, now) == 0) return false;
      continue;
    }
    screen->input_size -= used;
    memmove(screen->input, screen->input + used, screen->input_size);
    if (out->code == BRIM_KEY_REDRAW) screen->forget = true;
    if (out->code != BRIM_KEY_NONE) return true;
  }
}

//---------------------------------- drawing ----------------------------------

// Sends what waits, as far as the terminal takes it.
static void flush(brim_screen *screen) {
  enum { PIECE = 512 };
  while (screen->sent < screen->pending.len && !screen->gone) {
    size_t left = screen->pending.len - screen->sent;
    struct pollfd ready = {.fd = screen->fd, .events = POLLOUT};
    if (screen->blocks && left > PIECE) left = PIECE;
    if (screen->blocks && poll(&ready, 1, 0) <= 0) return;
    ssize_t n = write(screen->fd, screen->pending.data + screen->sent, left);
    if (n >= 0) {
      screen->sent += (size_t)n;
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      screen->gone = true;
    }
  }
  brim_str_clear(&screen->pending);
  screen->sent = 0;
}

// Our modes, at first and after a stop. False: another job has the terminal.
static bool enter(brim_screen *screen) {
  bool again = atomic_exchange(&continued, false);
  if (atomic_load(&entered) && !again) return true;
  if (!in_foreground()) {
    if (again) atomic_store(&continued, true);
    return false;
  }
  if (tcsetattr(screen->fd, TCSANOW, &modes_during)) {
    screen->gone = errno == EIO;
    return false;
  }
  atomic_store(&entered, true);
  brim_str_clear(&screen->pending);
  screen->sent = 0;
  brim_str_append(&screen->pending, ENTER);
  screen->forget = true;
  return true;
}

// The line at *at and its length; moves on to the next. NULL behind the last.
static const char *next_line(const char **at, size_t *size) {
  const char *line = *at;
  if (!*line) return NULL;
  *size = strcspn(line, "\n");
  *at = line + *size + (line[*size] == '\n');
  return line;
}

static void put_line(brim_screen *screen, int row, const char *line, size_t size, int columns) {
  brim_str *out = &screen->pending;
  size_t from = out->len;
  brim_str_printf(out, "\033[%d;1H", row);
  brim_str_append_n(out, line, size);
  // At the right edge the cursor stands on the last character, which erasing would take.
  if (!brim_str_status(out) && brim_utf8_width(out->data + from) < columns) {
    brim_str_append(out, "\033[K");
  }
}

static void put_changes(brim_screen *screen, const char *text, int columns, int rows) {
  const char *old_at = screen->shown.data;
  for (int row = 1; row <= rows; row++) {
    size_t old_size = 0, size = 0;
    const char *old = screen->forget ? NULL : next_line(&old_at, &old_size);
    const char *line = next_line(&text, &size);
    if (!line) {
      if (old || screen->forget) brim_str_printf(&screen->pending, "\033[%d;1H\033[J", row);
      return;
    }
    if (old && old_size == size && memcmp(old, line, size) == 0) continue;
    put_line(screen, row, line, size, columns);
  }
}

// Where memory was short, the next frame is sent whole.
static void recover(brim_screen *screen) {
  if (!screen->shown.status && !screen->pending.status) return;
  brim_str_deinit(&screen->shown);
  brim_str_deinit(&screen->pending);
  screen->sent = 0;
  screen->forget = true;
}

brim_status brim_screen_draw(brim_screen *screen, const char *text) {
  int columns, rows;
  if (!screen->gone && !enter(screen) && !screen->gone) return BRIM_OK;
  if (!screen->gone && screen->pending.len > screen->sent) flush(screen);
  if (screen->gone) return brim_fail(BRIM_EIO, "the terminal of the live view is gone");
  if (screen->pending.len > 0) return BRIM_OK;  // it is slow: this frame is left out
  read_size(screen, &columns, &rows);
  if (columns != screen->columns || rows != screen->rows) screen->forget = true;
  put_changes(screen, text, columns, rows);
  brim_str_clear(&screen->shown);
  brim_str_append(&screen->shown, text);
  screen->forget = false;
  screen->columns = columns;
  screen->rows = rows;
  recover(screen);
  flush(screen);
  return screen->gone ? brim_fail(BRIM_EIO, "the terminal of the live view is gone") : BRIM_OK;
}

void brim_screen_forget(brim_screen *screen) { screen->forget = true; }
