// Command lines for Slurm.
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/slurm/lab_slurm.h"

// A training has this long to save before the time limit, or a quarter of a shorter limit.
enum { LEAD_S = 120 };

brim_status brim_slurm_script(const char *const *words, brim_str *out) {
  brim_str_append(out, "#!/bin/sh\n# One element of an array that brim sweep submitted.\nexec");
  for (; *words; words++) {
    brim_str_append(out, " '");
    for (const char *at = *words; *at; at++) {
      if (*at == '\'') {
        brim_str_append(out, "'\\''");
      } else {
        brim_str_append_char(out, *at);
      }
    }
    brim_str_append_char(out, '\'');
  }
  brim_str_append_char(out, '\n');
  return brim_str_status(out);
}

// '%' has a meaning in --output.
static void append_path(brim_str *out, const char *path) {
  for (; *path; path++) {
    if (*path == '%') brim_str_append_char(out, '%');
    brim_str_append_char(out, *path);
  }
}

static void ask_option(brim_slurm_words *w, const char *name, const char *value) {
  if (value && value[0]) brim_slurm_word(w, "--%s=%s", name, value);
}

// Ranks: one task each, over the nodes.
static void ask_ranks(const brim_slurm_array *a, const brim_slurm_ask *ask, bool no_gpu,
                      brim_slurm_words *w) {
  int64_t nodes = a->nodes > 1 ? a->nodes : 1, ranks = a->gpus > 1 ? a->gpus : 1;
  if (ranks < nodes) ranks = nodes;
  if (ranks > 1) {
    brim_slurm_word(w, "--nodes=%lld", (long long)nodes);
    brim_slurm_word(w, "--ntasks=%lld", (long long)ranks);
  }
  if (ask->gres && ask->gres[0]) {
    brim_slurm_word(w, "--gres=%s", ask->gres);
  } else if (ranks > 1 && !no_gpu) {
    brim_slurm_word(w, "--gres=gpu:%lld", (long long)((ranks + nodes - 1) / nodes));
  }
}

void brim_slurm_words_submit(const brim_slurm_array *a, const brim_slurm_ask *ask,
                             const char *folder, bool no_gpu, brim_slurm_words *w) {
  int64_t limit = brim_slurm_seconds(ask->time);
  long long lead = limit > 0 && limit / 4 < LEAD_S ? (long long)(limit / 4) : LEAD_S;
  brim_str path;
  brim_str_init(&path);
  append_path(&path, folder);
  brim_slurm_word(w, "sbatch");
  brim_slurm_word(w, "--parsable");
  brim_slurm_word(w, "--job-name=%s", a->name);
  if (ask->at_once > 0) {
    brim_slurm_word(w, "--array=0-%zu%%%lld", a->count - 1, (long long)ask->at_once);
  } else {
    brim_slurm_word(w, "--array=0-%zu", a->count - 1);
  }
  brim_slurm_word(w, "--requeue");
  brim_slurm_word(w, "--signal=B:USR2@%lld", lead > 0 ? lead : 1);
  brim_slurm_word(w, "--open-mode=append");
  brim_slurm_word(w, "--output=%s/" BRIM_SLURM_FOLDER "/%s_%%a.log",
                  brim_str_status(&path) ? "." : path.data, a->name);
  brim_str_deinit(&path);
  ask_option(w, "partition", ask->partition);
  ask_option(w, "account", ask->account);
  ask_option(w, "time", ask->time);
  ask_option(w, "mem", ask->memory);
  if (ask->cpus > 0) brim_slurm_word(w, "--cpus-per-task=%lld", (long long)ask->cpus);
  ask_ranks(a, ask, no_gpu, w);
  for (const char *const *more = ask->extra; more && *more; more++) brim_slurm_word(w, "%s", *more);
  brim_slurm_word(w, "%s/" BRIM_SLURM_FOLDER "/%s.sh", folder, a->name);
}

void brim_slurm_words_look(const char *const *names, size_t count, brim_slurm_words *w) {
  brim_str list;
  brim_str_init(&list);
  for (size_t i = 0; i < count; i++) brim_str_printf(&list, "%s%s", i ? "," : "", names[i]);
  brim_slurm_word(w, "squeue");
  brim_slurm_word(w, "--noheader");
  brim_slurm_word(w, "--array");
  brim_slurm_word(w, "--states=all");
  brim_slurm_word(w, "--format=%%F|%%K|%%T|%%N|%%j|%%r");
  brim_slurm_word(w, "--name=%s", brim_str_status(&list) || count == 0 ? "" : list.data);
  brim_str_deinit(&list);
}

void brim_slurm_words_account(const brim_slurm_array *a, brim_slurm_words *w) {
  char when[32] = "";
  time_t since = (time_t)(a->submitted_s > 60 ? a->submitted_s - 60 : 0);  // clocks differ a little
  struct tm local;
  if (localtime_r(&since, &local)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &local);
  brim_slurm_word(w, "sacct");
  brim_slurm_word(w, "--noheader");
  brim_slurm_word(w, "--parsable2");
  brim_slurm_word(w, "--allocations");
  brim_slurm_word(w, "--array");
  brim_slurm_word(w, "--name=%s", a->name);
  brim_slurm_word(w, "--starttime=%s", when);
  brim_slurm_word(w, "--format=JobID,JobName%%64,State,ExitCode,NodeList");
}
