// Ctrl-C, SIGTERM, SIGHUP, SIGUSR2: the first asks the run to finish its step and save; another one, a second
// later, ends the process.
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "ui/term/ui_term.h"

// Ignore signals this soon after the first one: shells and timeout(1) signal the child and then its group.
enum { REPEAT_IGNORE_MS = 1000 };

// Written by the handler. A process has one set of handlers, so this is file-scope state.
static volatile sig_atomic_t stop_requested;
static volatile sig_atomic_t announce_stop;
static atomic_llong first_ms;  // time of the first signal, on the monotonic clock; 0 = none yet

static void say(const char *text, size_t size) {
  if (!announce_stop || brim_screen_shown()) return;  // a live view announces the stop itself
  ssize_t ignored = write(STDERR_FILENO, text, size);
  (void)ignored;
}

static long long now_ms(void) {
  struct timespec now = {0};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;  // never 0
}

// Messages for the first signal and the second one.
typedef struct stop_texts {
  const char *first, *second;
  size_t first_size, second_size;
} stop_texts;

// Translated in advance: a signal handler must not look up messages.
static stop_texts texts[BRIM_CLI_INTERRUPT_COUNT];
static volatile sig_atomic_t interrupt_kind;  // brim_cli_interrupt

static void translate_texts(void) {
  static const struct {
    const char *first, *second;
  } all[BRIM_CLI_INTERRUPT_COUNT] = {
      [BRIM_CLI_ENDS] = {"", ""},
      [BRIM_CLI_STOPS] = {BRIM_N_("\nbrim: stopping; press Ctrl-C again to stop immediately\n"),
                          BRIM_N_("\nbrim: stopped immediately\n")},
      [BRIM_CLI_SAVES] = {BRIM_N_("\nbrim: finishing the step and saving; press Ctrl-C again to "
                                  "stop immediately\n"),
                          BRIM_N_("\nbrim: stopped immediately; nothing saved since the last "
                                  "checkpoint\n")},
      [BRIM_CLI_SAVES_ALWAYS] = {BRIM_N_("\nbrim: finishing the step and saving\n"), ""},
      [BRIM_CLI_SERVES] = {BRIM_N_("\nbrim: stopping the server; workers continue their trainings "
                                   "and report when it runs again\n"),
                           BRIM_N_("\nbrim: stopped immediately\n")},
      [BRIM_CLI_SERVES_HERE] = {BRIM_N_("\nbrim: stopping the server; trainings of this machine "
                                        "save first; press Ctrl-C again to stop immediately\n"),
                                BRIM_N_("\nbrim: stopped immediately; nothing saved since the last "
                                        "checkpoint\n")},
  };
  for (int i = 0; i < BRIM_CLI_INTERRUPT_COUNT; i++) {
    texts[i].first = all[i].first[0] ? brim_tr(all[i].first) : "";
    texts[i].second = all[i].second[0] ? brim_tr(all[i].second) : "";
    texts[i].first_size = strlen(texts[i].first);
    texts[i].second_size = strlen(texts[i].second);
  }
}

void brim_cli_interrupt_set(brim_cli_interrupt how) { interrupt_kind = (sig_atomic_t)how; }

static void on_signal(int number) {
  long long now = now_ms(), first = 0;
  if (!atomic_compare_exchange_strong(&first_ms, &first, now)) {
    if (now - first < REPEAT_IGNORE_MS || interrupt_kind == BRIM_CLI_SAVES_ALWAYS) return;
    brim_screen_restore();  // restore the terminal: the process ends with the live view open
    say(texts[interrupt_kind].second, texts[interrupt_kind].second_size);
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  stop_requested = 1;
  say(texts[interrupt_kind].first, texts[interrupt_kind].first_size);
}

const volatile sig_atomic_t *brim_cli_signals(bool announce, brim_cli_interrupt how) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  // Block the others in the handler, so that the second message never lands within the first.
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaddset(&action.sa_mask, SIGHUP);
  sigaddset(&action.sa_mask, SIGUSR2);
  stop_requested = 0;
  atomic_store(&first_ms, 0);
  announce_stop = announce;
  translate_texts();
  brim_cli_interrupt_set(how);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR2, &action, NULL);  // Slurm's, before the time limit
  struct sigaction before;
  if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
    sigaction(SIGHUP, &action, NULL);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, NULL);
  sigaction(SIGXFSZ, &action, NULL);
  return &stop_requested;
}
