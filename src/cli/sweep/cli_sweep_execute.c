// `brim sweep execute`, started by the sweep and not by people: one attempt of one experiment. Its words:
//   place=    the store, as the link opens it; a database's URL comes whole in the environment (lab_exec.h)
//   folder=   the experiment's own
//   exp=      32 digits    attempt=    fence=
//   device= gpus= threads= linger_ms= stall_ms= grace_ms= beat_ms=    as in lab_exec.h; may be left out
//   trainer=  a program to run instead of `brim train`, with the same words behind it; for tests
// Exit code 0: the result is in the store or in the spool, or the attempt was replaced.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_exec.h"
#include "lab/lab_link.h"

enum {
  CALL_MS = 3000,  // of one call; the child's output waits meanwhile
  LINGER_MS = 60000,
  AGAIN_MS = 100,
  MOST_PLUGINS = 8
};

typedef struct execute_words {
  const char *place, *folder, *exp, *device, *gpus, *trainer;
  int64_t attempt, fence, threads, linger_ms, stall_ms, grace_ms, beat_ms;
} execute_words;

static bool take_word(execute_words *w, const char *word) {
  return brim_cli_sweep_take_text(word, "place", &w->place) ||
         brim_cli_sweep_take_text(word, "folder", &w->folder) ||
         brim_cli_sweep_take_text(word, "exp", &w->exp) ||
         brim_cli_sweep_take_text(word, "device", &w->device) ||
         brim_cli_sweep_take_text(word, "gpus", &w->gpus) ||
         brim_cli_sweep_take_text(word, "trainer", &w->trainer) ||
         brim_cli_sweep_take_number(word, "attempt", &w->attempt) ||
         brim_cli_sweep_take_number(word, "fence", &w->fence) ||
         brim_cli_sweep_take_number(word, "threads", &w->threads) ||
         brim_cli_sweep_take_number(word, "linger_ms", &w->linger_ms) ||
         brim_cli_sweep_take_number(word, "stall_ms", &w->stall_ms) ||
         brim_cli_sweep_take_number(word, "grace_ms", &w->grace_ms) ||
         brim_cli_sweep_take_number(word, "beat_ms", &w->beat_ms);
}

static brim_status parse_words(brim_cli *cli, execute_words *w) {
  for (size_t i = 1; i < cli->parse.positional_count; i++) {
    const char *word = cli->parse.positional[i];
    if (!take_word(w, word)) return brim_cli_usage(cli, BRIM_N_("unknown word '%.100s'"), word);
  }
  bool whole = w->place && w->folder && w->exp && strlen(w->exp) == BRIM_EXP_ID - 1 &&
               w->attempt > 0 && w->fence > 0;
  if (whole) return BRIM_OK;
  return brim_cli_usage(cli, BRIM_N_("execute needs place, folder, exp, attempt and fence"));
}

// The plug-ins that the user of the sweep has agreed to; `out` ends with NULL.
static void add_plugins(const brim_cli *cli, const char **out) {
  size_t n = 0;
  for (size_t i = 0; i < cli->parse.count && n < 2 * MOST_PLUGINS; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") != 0) continue;
    out[n++] = "--plugin";
    out[n++] = item->values[0];
  }
  if (brim_option_flag(&cli->parse, "allow-plugins", false)) out[n++] = "--allow-plugins";
  out[n] = NULL;
}

static brim_status execute(brim_cli *cli, const execute_words *w, brim_lab_link *link,
                           const char *self) {
  const char *brim_train[2 * MOST_PLUGINS + 4] = {self, "train"}, *const other[] = {w->trainer,
                                                                                    NULL};
  add_plugins(cli, brim_train + 2);
  brim_lab_exec_options options = {
      .link = link,
      .ref = {.attempt = w->attempt, .fence = w->fence},
      .folder = w->folder,
      .command = w->trainer ? other : brim_train,
      .device = w->device,
      .gpus = w->gpus,
      .threads = w->threads,
      .linger_ms = w->linger_ms,
      .stall_ms = w->stall_ms,
      .grace_ms = w->grace_ms,
      .beat_ms = w->beat_ms,
      .stop = cli->stop,
  };
  snprintf(options.ref.exp, sizeof options.ref.exp, "%s", w->exp);
  brim_lab_exec_report report;
  BRIM_TRY(brim_lab_execute(&options, &report));
  if (report.end == BRIM_LAB_EXEC_STALE) {
    brim_log_warn("lab", "attempt %lld is no longer the experiment's; its result is dropped",
                  (long long)w->attempt);
  }
  return BRIM_OK;
}

// The sweep may have been killed since it started this process, and another may come.
static brim_status open_link(const brim_cli *cli, const execute_words *w, brim_lab_link **out) {
  const char *whole = getenv(BRIM_LAB_PLACE_ENV);
  const char *place = brim_store_is_url(w->place) && whole ? whole : w->place;
  const brim_lab_link_options how = {.sweep_only = true, .timeout_ms = CALL_MS};
  int64_t linger_ms = w->linger_ms > 0 ? w->linger_ms : LINGER_MS;
  brim_time begin = brim_clock_now();
  for (;;) {
    brim_status status = brim_lab_link_open(place, &how, out);
    if (status != BRIM_EIO || *cli->stop) return status;
    if (brim_time_since_ns(begin, brim_clock_now()) > linger_ms * 1000000) return status;
    brim_clock_sleep_ns((int64_t)AGAIN_MS * 1000000);
  }
}

brim_status brim_cli_sweep_execute(brim_cli *cli) {
  execute_words words = {0};
  BRIM_TRY(parse_words(cli, &words));
  brim_lab_link *link = NULL;
  BRIM_TRY(open_link(cli, &words, &link));
  unsetenv(BRIM_LAB_PLACE_ENV);  // the link has its copy, and a training needs none
  char *self = NULL;
  brim_status status = brim_fs_exe(&self);
  if (!status) status = execute(cli, &words, link, self);
  brim_free(self);
  brim_lab_link_close(link);
  return status;
}
