// Slurm's commands as child processes: no shell, a limit on time and on output, an environment in which
// they print what they are asked for.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/base_text.h"
#include "lab/slurm/lab_slurm.h"

enum { MOST_OUT = 64 << 20, MOST_ERR = 16 << 10, GRACE_MS = 1000, MOST_ENV = 32 };

//---------------------------------- words ----------------------------------

static bool grow(brim_slurm_words *w) {
  if (w->count + 1 < w->cap) return true;
  size_t cap = w->cap ? 2 * w->cap : 32;
  char **more = brim_realloc(w->list, cap * sizeof *more);
  if (!more) return false;
  w->list = more;
  w->cap = cap;
  return true;
}

void brim_slurm_word(brim_slurm_words *w, const char *fmt, ...) {
  brim_str text;
  va_list args;
  if (w->failed || !grow(w)) {
    w->failed = true;
    return;
  }
  brim_str_init(&text);
  va_start(args, fmt);
  brim_str_vprintf(&text, fmt, args);
  va_end(args);
  char *word = brim_str_status(&text) ? NULL : brim_str_take(&text);
  brim_str_deinit(&text);
  w->failed = !word;
  if (!word) return;
  w->list[w->count++] = word;
  w->list[w->count] = NULL;
}

void brim_slurm_words_deinit(brim_slurm_words *w) {
  for (size_t i = 0; i < w->count; i++) brim_free(w->list[i]);
  brim_free(w->list);
  *w = (brim_slurm_words){0};
}

//---------------------------------- running ----------------------------------

static brim_status on_data(void *ctx, brim_child_stream stream, const char *data, size_t size) {
  brim_slurm_command *c = ctx;
  bool out = stream == BRIM_CHILD_OUT;
  brim_str *to = out ? &c->out : &c->err;
  size_t most = out ? MOST_OUT : MOST_ERR, room = most - to->len;
  if (size > room) {
    c->flooded = c->flooded || out;
    size = room;
  }
  brim_str_append_n(to, data, size);
  return BRIM_OK;
}

// Variables of the user that change what squeue and sacct list, and texts in another language.
static const char *const changes[] = {
    "LC_ALL=C",        "SQUEUE_ACCOUNT",   "SQUEUE_ALL",   "SQUEUE_FEDERATION", "SQUEUE_FORMAT",
    "SQUEUE_FORMAT2",  "SQUEUE_LICENSES",  "SQUEUE_LOCAL", "SQUEUE_NAMES",      "SQUEUE_PARTITION",
    "SQUEUE_PRIORITY", "SQUEUE_QOS",       "SQUEUE_SORT",  "SQUEUE_STATES",     "SQUEUE_USERS",
    "SACCT_FORMAT",    "SLURM_TIME_FORMAT"};

brim_status brim_slurm_start(brim_slurm_command *c, brim_slurm_words *words, const char *const *env,
                             int64_t timeout_ms) {
  const char *all[MOST_ENV];
  size_t n = 0;
  *c = (brim_slurm_command){.until_ms = brim_clock_ms() + timeout_ms, .exit_code = -1};
  brim_str_init(&c->out);
  brim_str_init(&c->err);
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) all[n++] = changes[i];
  while (env && *env && n < MOST_ENV - 1) all[n++] = *env++;
  all[n] = NULL;
  const brim_child_options how = {.argv = (const char *const *)words->list,
                                  .env_change = all,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_PIPE,
                                  .err = BRIM_CHILD_PIPE,
                                  .die_with_parent = true,
                                  .on_data = on_data,
                                  .ctx = c};
  brim_status status = words->failed || words->count == 0
                           ? brim_fail(BRIM_ENOMEM, "out of memory for a command of Slurm")
                           : brim_child_start(&how, &c->child);
  brim_slurm_words_deinit(words);
  return status;
}

brim_status brim_slurm_poll(brim_slurm_command *c, bool *ended) {
  *ended = true;
  if (!c->child) return BRIM_OK;
  brim_status status = brim_child_poll(c->child, ended);
  if (status == BRIM_ECHILD) {
    brim_status_clear();
    status = BRIM_OK;
  }
  if (!status && !*ended && (c->flooded || brim_clock_ms() >= c->until_ms)) {
    c->timed_out = !c->flooded;
    (void)brim_child_stop(c->child, 0);
    status = brim_child_wait(c->child, GRACE_MS, ended);
    if (status == BRIM_ECHILD) status = BRIM_OK;
    *ended = true;  // what hangs in the kernel is left behind
  }
  if (!*ended) return status;
  const brim_child_result *result = brim_child_get_result(c->child);
  bool known = !c->timed_out && !c->flooded && result && !result->lost && !result->signal;
  if (known) c->exit_code = result->exit_code;
  brim_child_close(c->child);
  c->child = NULL;
  if (!status) status = brim_str_status(&c->out);
  return status;
}

void brim_slurm_close(brim_slurm_command *c) {
  if (c->child) brim_child_close(c->child);
  brim_str_deinit(&c->out);
  brim_str_deinit(&c->err);
  *c = (brim_slurm_command){0};
}

brim_status brim_slurm_run(brim_slurm_words *words, int64_t timeout_ms, brim_slurm_command *out) {
  bool ended = false;
  brim_status status = brim_slurm_start(out, words, NULL, timeout_ms);
  while (!status && !ended) {
    brim_child_wait_any(&out->child, 1, 100);
    status = brim_slurm_poll(out, &ended);
  }
  return status;
}

bool brim_slurm_good(const brim_slurm_command *c) {
  return c->exit_code == 0 && !c->timed_out && !c->flooded;
}

void brim_slurm_why(const brim_slurm_command *c, char *out, size_t size) {
  size_t end = c->err.len;
  while (end > 0 && (c->err.data[end - 1] == '\n' || c->err.data[end - 1] == '\r')) end--;
  size_t at = end;
  while (at > 0 && c->err.data[at - 1] != '\n') at--;
  if (c->timed_out) {
    snprintf(out, size, "%s", brim_tr("no answer in time"));
  } else if (c->flooded) {
    snprintf(out, size, "%s", brim_tr("its answer is too long"));
  } else if (end > at) {
    char line[512];
    snprintf(line, sizeof line, "%.*s", (int)(end - at < sizeof line ? end - at : sizeof line - 1),
             c->err.data + at);
    brim_text_plain(line, out, size);
  } else {
    snprintf(out, size, brim_tr("exit code %d"), c->exit_code);
  }
}
