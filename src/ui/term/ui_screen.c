// A full screen for live views: terminal modes, signals, keys, lines of a frame, and drawing the difference between two
// frames. The caller makes the frames.

#include "ui/term/ui_term.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

// ENTER: alternate screen, no cursor, no wrapping at the right edge. LEAVE undoes it.
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[H\033[2J"
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"

enum { MOST_COLUMNS = 1000, MOST_ROWS = 1000, INPUT_SIZE = 64, RESTORE_TRIES = 4 };

struct brim_screen {
  int fd;           // the terminal, opened a second time: non-blocking for this process alone
  bool blocks;      // fd is a copy of the caller's descriptor, since opening again failed
  bool gone;        // hung up
  bool redraw_all;  // send the next frame whole
  brim_term term;
  int rows, columns;  // of the last frame
  brim_str shown;     // the last frame
  brim_str pending;   // bytes that the terminal has not taken yet
  size_t sent;        // bytes of `pending` that were written
  char input[INPUT_SIZE];
  size_t input_size;
  brim_time input_at;  // when its last byte came
};

//---------------------------------- signals ----------------------------------

// The state of the signal handlers. It is process-wide: a process has one set of signals and one terminal to take over.
static atomic_int owner;       // the process with an open screen; 0 = none
static atomic_bool entered;    // the terminal is in our modes
static atomic_bool continued;  // the process was stopped since: the terminal may have any mode
// Constant while `owner` is set.
static int terminal_fd;
static struct termios modes_before, modes_during;

// Signals that end the process by default.
static const int fatal[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,   SIGILL,  SIGABRT,
                            SIGFPE,  SIGBUS,  SIGSEGV, SIGSYS,    SIGTRAP, SIGXCPU,
                            SIGALRM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF};
enum { FATAL_COUNT = sizeof fatal / sizeof *fatal };

// True if this process may use the terminal: it is in the foreground, or there is no job control.
static bool in_foreground(void) {
  pid_t group = tcgetpgrp(terminal_fd);
  return group < 0 || group == getpgrp();
}

bool brim_screen_shown(void) {
  return atomic_load(&owner) == (int)getpid() && atomic_load(&entered);
}

void brim_screen_restore(void) {
  if (atomic_load(&owner) != (int)getpid()) return;  // a forked child: the screen is its parent's
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
    (void)tcflush(terminal_fd, TCIFLUSH);  // the shell must not read keys meant for the view
    (void)tcsetattr(terminal_fd, TCSANOW, &modes_before);
  }
  errno = saved;
}

static void on_fatal(int number) {
  brim_screen_restore();
  (void)signal(number, SIG_DFL);
  (void)raise(number);  // delivered when this handler returns
}

static void on_winch(int number) { (void)number; }  // a handler makes the signal interrupt poll

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
  (void)pthread_sigmask(SIG_UNBLOCK, &one, &before);  // the process stops here, and continues here
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

// Installs our handler for a signal that has its default action. The program's own handlers stay, and so do signals
// that the shell ignores for us.
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

// Opens the terminal behind a descriptor a second time, so that O_NONBLOCK does not affect other processes.
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
  modes_during = modes_before;
  modes_during.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
  modes_during.c_iflag &= ~(tcflag_t)(IXON | ICRNL | INLCR | IGNCR | ISTRIP);
  modes_during.c_cc[VMIN] = 1;
  modes_during.c_cc[VTIME] = 0;
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
  // While the process is in the background, another program reads the keys.
  return screen->gone || !atomic_load(&entered) ? -1 : screen->fd;
}

bool brim_screen_has_input(const brim_screen *screen) { return screen->input_size > 0; }

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
    if (out->code == BRIM_KEY_REDRAW) screen->redraw_all = true;
    if (out->code != BRIM_KEY_NONE) return true;
  }
}

//---------------------------------- drawing ----------------------------------

// Writes pending bytes, as many as the terminal takes.
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

// Sets our modes, at first and after a stop. False: another job has the terminal.
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
  screen->redraw_all = true;
  return true;
}

// Returns the line at *at with its length and moves on; NULL after the last line.
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
  // After a full line the cursor stands on its last character, which erasing would remove.
  if (!brim_str_status(out) && brim_utf8_width(out->data + from) < columns) {
    brim_str_append(out, "\033[K");
  }
}

static void put_changes(brim_screen *screen, const char *text, int columns, int rows) {
  const char *old_at = screen->shown.data;
  for (int row = 1; row <= rows; row++) {
    size_t old_size = 0, size = 0;
    const char *old = screen->redraw_all ? NULL : next_line(&old_at, &old_size);
    const char *line = next_line(&text, &size);
    if (!line) {
      if (old || screen->redraw_all) brim_str_printf(&screen->pending, "\033[%d;1H\033[J", row);
      return;
    }
    if (old && old_size == size && memcmp(old, line, size) == 0) continue;
    put_line(screen, row, line, size, columns);
  }
}

// After running out of memory: send the next frame whole.
static void recover(brim_screen *screen) {
  if (!screen->shown.status && !screen->pending.status) return;
  brim_str_deinit(&screen->shown);
  brim_str_deinit(&screen->pending);
  screen->sent = 0;
  screen->redraw_all = true;
}

brim_status brim_screen_draw(brim_screen *screen, const char *text) {
  int columns, rows;
  if (!screen->gone && !enter(screen) && !screen->gone) return BRIM_OK;
  if (!screen->gone && screen->pending.len > screen->sent) flush(screen);
  if (screen->gone) return brim_fail(BRIM_EIO, "the terminal of the live view is gone");
  if (screen->pending.len > 0) return BRIM_OK;  // a slow terminal: drop this frame
  read_size(screen, &columns, &rows);
  if (columns != screen->columns || rows != screen->rows) screen->redraw_all = true;
  put_changes(screen, text, columns, rows);
  brim_str_clear(&screen->shown);
  brim_str_append(&screen->shown, text);
  screen->redraw_all = false;
  screen->columns = columns;
  screen->rows = rows;
  recover(screen);
  flush(screen);
  return screen->gone ? brim_fail(BRIM_EIO, "the terminal of the live view is gone") : BRIM_OK;
}

void brim_screen_redraw_all(brim_screen *screen) { screen->redraw_all = true; }

//--------------------------------------------- keys ---------------------------------------------

// The key of a sequence with a number: "\033[5~" is Page Up.
static brim_key_code by_number(int number) {
  switch (number) {
    case 1:
    case 7:
      return BRIM_KEY_HOME;
    case 3:
      return BRIM_KEY_DELETE;
    case 4:
    case 8:
      return BRIM_KEY_END;
    case 5:
      return BRIM_KEY_PAGE_UP;
    case 6:
      return BRIM_KEY_PAGE_DOWN;
    default:
      return BRIM_KEY_NONE;
  }
}

// The key of a sequence with a letter: "\033[A" is Up.
static brim_key_code by_letter(char letter) {
  switch (letter) {
    case 'A':
      return BRIM_KEY_UP;
    case 'B':
      return BRIM_KEY_DOWN;
    case 'C':
      return BRIM_KEY_RIGHT;
    case 'D':
      return BRIM_KEY_LEFT;
    case 'H':
      return BRIM_KEY_HOME;
    case 'F':
      return BRIM_KEY_END;
    case 'M':
      return BRIM_KEY_ENTER;  // on the keypad
    default:
      return BRIM_KEY_NONE;
  }
}

enum { LONGEST_SEQUENCE = 32 };

// Decodes a control sequence: "\033[", parameters, one byte from @ to ~.
static size_t decode_csi(const char *bytes, size_t n, bool last, brim_key *out) {
  size_t at = 2;
  if (at < n && bytes[at] == '[') {  // F1 to F5 of the Linux console
    return at + 1 < n ? at + 2 : last ? n : 0;
  }
  int number = 0;
  bool first = true;
  for (; at < n && at < LONGEST_SEQUENCE; at++) {
    char c = bytes[at];
    if (c >= '@' && c <= '~') {
      out->code = c == '~' ? by_number(number) : c == 'M' ? BRIM_KEY_NONE : by_letter(c);
      // "\033[M" is a mouse click, three more bytes, which some terminals report unasked.
      return c == 'M' && first && number == 0 ? (n - at > 3 ? at + 4 : last ? n : 0) : at + 1;
    }
    if (c < ' ' || c > '?') return at;  // not a sequence: the byte begins another key
    if (c >= '0' && c <= '9' && first && number < 1000) number = number * 10 + (c - '0');
    if (c == ';') first = false;
  }
  return at >= LONGEST_SEQUENCE || last ? at : 0;
}

static size_t decode_escape(const char *bytes, size_t n, bool last, brim_key *out) {
  if (n == 1) {
    if (!last) return 0;
    out->code = BRIM_KEY_ESCAPE;
    return 1;
  }
  if (bytes[1] == '[') return n > 2 || last ? decode_csi(bytes, n, last, out) : 0;
  if (bytes[1] == 'O') {
    if (n == 2) return last ? 2 : 0;
    out->code = by_letter(bytes[2]);
    return 3;
  }
  if (bytes[1] == '\033') {  // Escape pressed twice, or in front of another key
    out->code = BRIM_KEY_ESCAPE;
    return 1;
  }
  return 2;  // Alt and a key
}

static size_t decode_utf8(const char *bytes, size_t n, bool last, brim_key *out) {
  unsigned char lead = (unsigned char)bytes[0];
  size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (n < need && !last) {
    for (size_t i = 1; i < n; i++) {
      if (((unsigned char)bytes[i] & 0xC0) != 0x80) return 1;
    }
    return 0;
  }
  if (n < need || need == 1 || !brim_utf8_valid(bytes, need)) return 1;
  uint32_t code = lead & (0x7Fu >> need);
  for (size_t i = 1; i < need; i++) code = code << 6 | ((unsigned char)bytes[i] & 0x3Fu);
  if (code >= 0xA0) *out = (brim_key){BRIM_KEY_CHAR, code};
  return need;
}

size_t brim_key_decode(const char *bytes, size_t n, bool last, brim_key *out) {
  *out = (brim_key){BRIM_KEY_NONE, 0};
  if (n == 0) return 0;
  unsigned char c = (unsigned char)bytes[0];
  if (c == 0x1B) return decode_escape(bytes, n, last, out);
  if (c >= 0x80) return decode_utf8(bytes, n, last, out);
  if (c == '\r' || c == '\n') {
    out->code = BRIM_KEY_ENTER;
  } else if (c == '\t') {
    out->code = BRIM_KEY_TAB;
  } else if (c == 0x7F || c == '\b') {
    out->code = BRIM_KEY_BACKSPACE;
  } else if (c == 0x0C) {
    out->code = BRIM_KEY_REDRAW;
  } else if (c >= ' ') {
    *out = (brim_key){BRIM_KEY_CHAR, c};
  }
  return 1;
}

uint32_t brim_key_latin(uint32_t ch) {
  // The Korean two-set (Dubeolsik) layout: the Latin letter on the key of each jamo. Jamo that take two
  // keys are left out.
  static const struct {
    uint32_t jamo;
    char latin;
  } rows[] = {
      {0x3131, 'r'}, {0x3132, 'R'}, {0x3134, 's'}, {0x3137, 'e'}, {0x3138, 'E'}, {0x3139, 'f'},
      {0x3141, 'a'}, {0x3142, 'q'}, {0x3143, 'Q'}, {0x3145, 't'}, {0x3146, 'T'}, {0x3147, 'd'},
      {0x3148, 'w'}, {0x3149, 'W'}, {0x314A, 'c'}, {0x314B, 'z'}, {0x314C, 'x'}, {0x314D, 'v'},
      {0x314E, 'g'}, {0x314F, 'k'}, {0x3150, 'o'}, {0x3151, 'i'}, {0x3152, 'O'}, {0x3153, 'j'},
      {0x3154, 'p'}, {0x3155, 'u'}, {0x3156, 'P'}, {0x3157, 'h'}, {0x315B, 'y'}, {0x315C, 'n'},
      {0x3160, 'b'}, {0x3161, 'm'}, {0x3163, 'l'},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].jamo == ch) return (uint32_t)rows[i].latin;
  }
  return ch;
}

bool brim_key_edit(brim_key key, char *text, size_t size) {
  size_t n = strlen(text);
  if (key.code == BRIM_KEY_BACKSPACE) {
    while (n > 0 && ((unsigned char)text[n - 1] & 0xC0) == 0x80) n--;
    text[n > 0 ? n - 1 : 0] = '\0';
    return true;
  }
  if (key.code != BRIM_KEY_CHAR) return false;
  // Code point to UTF-8: the lead byte has the high bits, each further byte six more.
  static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  size_t bytes = key.ch < 0x80 ? 1 : key.ch < 0x800 ? 2 : key.ch < 0x10000 ? 3 : 4;
  if (n + bytes >= size) return true;
  for (size_t i = 0; i < bytes; i++) {
    uint32_t bits = key.ch >> 6 * (bytes - 1 - i);
    text[n + i] = (char)(i == 0 ? lead[bytes] | bits : 0x80 | (bits & 0x3F));
  }
  text[n + bytes] = '\0';
  return true;
}

//--------------------------------------- lines of a frame ---------------------------------------

// Cuts a styled line at the width. Escape codes take no columns; styles end with the line.
static void put_cut(brim_str *out, const brim_term *term, const char *line) {
  int used = 0;
  bool styled = false;
  for (const char *p = line; *p;) {
    size_t n = 1;
    char one[8];
    if (*p == '\033') {
      while (p[n] && (p[n] < '@' || p[n] > '~' || p[n] == '[')) n++;
      n += p[n] != '\0';
      brim_str_append_n(out, p, n);
      styled = true;
      p += n;
      continue;
    }
    while (n < 4 && ((unsigned char)p[n] & 0xC0) == 0x80) n++;
    memcpy(one, p, n);
    one[n] = '\0';
    int wide = brim_utf8_width(one);
    if (used + wide > term->width) break;
    used += wide;
    brim_str_append_n(out, p, n);
    p += n;
  }
  if (styled && term->colour) brim_str_append(out, "\033[0m");
}

void brim_ui_frame_line(brim_ui_frame *frame, brim_str *line) {
  if (line->status && !frame->out->status) frame->out->status = line->status;
  if (frame->left > 0) {
    if (frame->term->width > 0 && brim_utf8_width(line->data) > frame->term->width) {
      put_cut(frame->out, frame->term, line->data);
    } else {
      brim_str_append(frame->out, line->data);
    }
    brim_str_append_char(frame->out, '\n');
    frame->left--;
  }
  brim_str_clear(line);
}

void brim_ui_frame_text(brim_ui_frame *frame, brim_ui_style style, const char *text) {
  brim_str line;
  brim_str_init(&line);
  brim_ui_put_clipped(&line, frame->term, style, text, frame->term->width);
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&line);
}

void brim_ui_frame_lines(brim_ui_frame *frame, const brim_str *text, size_t first, int most) {
  brim_str line;
  brim_str_init(&line);
  for (const char *p = text->data; *p && most > 0;) {
    size_t n = strcspn(p, "\n");
    if (first > 0) {
      first--;
    } else {
      brim_str_append_n(&line, p, n);
      brim_ui_frame_line(frame, &line);
      most--;
    }
    p += n + (p[n] == '\n');
  }
  if (text->status && !frame->out->status) frame->out->status = text->status;
  brim_str_deinit(&line);
}

void brim_ui_frame_help(brim_ui_frame *frame, const char *keys, const char *text) {
  char line[256];
  int pad = 12 - brim_utf8_width(keys);
  snprintf(line, sizeof line, "  %s%*s %s", keys, pad > 0 ? pad : 0, "", text);
  brim_ui_frame_text(frame, BRIM_UI_PLAIN, line);
}

void brim_ui_frame_hints(brim_ui_frame *frame, const char *question, const brim_ui_hint *hints,
                         size_t count) {
  const brim_term *term = frame->term;
  while (frame->left > 1) brim_ui_frame_text(frame, BRIM_UI_PLAIN, "");
  brim_str line;
  brim_str_init(&line);
  brim_ui_put_clipped(&line, term, BRIM_UI_SELECTED, question, term->width);
  for (size_t i = 0; i < count; i++) {
    int used = brim_utf8_width(line.data);
    const char *name = brim_tr(hints[i].text);
    if (used + 3 + brim_utf8_width(hints[i].key) + brim_utf8_width(name) > term->width) break;
    brim_str_append(&line, used ? "  " : "");
    brim_ui_styled(&line, term, BRIM_UI_BOLD, hints[i].key);
    brim_str_append_char(&line, ' ');
    brim_ui_styled(&line, term, BRIM_UI_DIM, name);
  }
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&line);
}
