// Commands that a reader can paste: the whole of it, with the data and all overrides of the job. And what a
// workload tells of itself.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/doctor_config_int.h"

// The length of the first word, quotes and all.
static size_t word_length(const char *text) {
  size_t n = 0;
  for (bool quoted = false; text[n] && (quoted || text[n] != ' '); n++) {
    if (text[n] == '\'') quoted = !quoted;
  }
  return n;
}

// Does one of the words of `more` set the key that this word sets?
static bool is_replaced(const char *word, size_t n, const char *more) {
  size_t key = strcspn(word, "=");
  if (key >= n) return false;
  for (const char *at = more; *at; at += strspn(at, " ")) {
    size_t length = word_length(at);
    if (key < length && strncmp(at, word, key + 1) == 0) return true;
    at += length;
  }
  return false;
}

static void fix_command(const brim_doctor_job *job, brim_doctor_line *line, const char *command,
                        const char *more) {
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "brim %s", command);
  for (const char *at = job->words; *at; at += strspn(at, " ")) {
    size_t n = word_length(at);
    if (!is_replaced(at, n, more)) {
      brim_str_append_char(&text, ' ');
      brim_str_append_n(&text, at, n);
    }
    at += n;
  }
  if (more[0]) brim_str_printf(&text, " %s", more);
  if (text.len < sizeof line->fix) {
    snprintf(line->fix, sizeof line->fix, "%s", text.data);
  } else {
    brim_doctor_fix(line, brim_tr("the same command as brim %s, and: %s"), command, more);
  }
  brim_str_deinit(&text);
}

void brim_doctor_fix_train(const brim_doctor_job *job, brim_doctor_line *line, const char *fmt,
                           ...) {
  char more[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(more, sizeof more, fmt, args);
  va_end(args);
  fix_command(job, line, "train", more);
}

void brim_doctor_fix_bench(const brim_doctor_job *job, brim_doctor_line *line, const char *extra) {
  fix_command(job, line, "bench", extra);
}

void brim_doctor_info(const brim_doctor_job *job, brim_work_info *out) {
  memset(out, 0, sizeof *out);
  job->work->table->info(job->work->state, out);
}
