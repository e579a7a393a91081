// Ctrl-C, SIGTERM, SIGHUP: the first asks the run to finish its step and save, the second ends the
// process at once.
#include "cli/cli.h"

#include <string.h>
#include <unistd.h>

// Written by the handler only; a program has one set of signals, so this is process-wide.
static volatile sig_atomic_t stop_requested;
static volatile sig_atomic_t announce_stop;

static void say(const char *text, size_t size) {
  if (!announce_stop) return;
  ssize_t ignored = write(STDERR_FILENO, text, size);
  (void)ignored;
}

static void on_signal(int number) {
  if (stop_requested) {
    static const char text[] = "\nbrim: stopped at once; nothing saved since the last checkpoint\n";
    say(text, sizeof text - 1);
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  stop_requested = 1;
  static const char text[] =
      "\nbrim: finishing the step and saving; press Ctrl-C again to stop at once\n";
  say(text, sizeof text - 1);
}

const volatile sig_atomic_t *brim_cli_signals(bool announce) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  stop_requested = 0;
  announce_stop = announce;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  struct sigaction before;
  if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
    sigaction(SIGHUP, &action, NULL);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, NULL);
  return &stop_requested;
}
