// Command lines of the processes that a sweep starts.
#include <stdio.h>
#include <string.h>

#include "cli/sweep/cli_sweep.h"

// Plug-ins are code: trainings and plans load those that the user of this command has agreed to.
void brim_cli_sweep_plugin_words(const brim_cli_sweep_job *j, const char **out, size_t most) {
  const brim_option_parse *parse = &j->cli->parse;
  size_t n = 0;
  for (size_t i = 0; i < parse->count && n + 4 < most; i++) {
    if (strcmp(parse->items[i].option->name, "plugin") != 0) continue;
    out[n++] = "--plugin";
    out[n++] = parse->items[i].values[0];
  }
  if (brim_option_flag(parse, "allow-plugins", false) ||
      (j->job.config &&
       brim_config_layer_of(j->job.config, "plugins") == BRIM_CONFIG_FROM_OVERRIDE)) {
    out[n++] = "--allow-plugins";
  }
  out[n] = NULL;
}

brim_status brim_cli_sweep_planner(const brim_cli_sweep_job *j, brim_cli_sweep_words *out) {
  enum { MOST = sizeof out->list / sizeof out->list[0] };
  *out = (brim_cli_sweep_words){0};
  if (!j->program) {
    BRIM_TRY(brim_fs_exe(&out->program));
  } else if (!(out->program = brim_strdup(j->program))) {
    return brim_fail(BRIM_ENOMEM, "out of memory for a path");
  }
  out->list[0] = out->program;
  out->list[1] = "sweep";
  out->list[2] = "plan";
  brim_cli_sweep_plugin_words(j, out->list + 3, MOST - 3);
  return BRIM_OK;
}

void brim_cli_sweep_gpu_spec(const brim_gpu_listed *gpus, size_t count, size_t at,
                             char out[BRIM_CLI_GPU_SPEC]) {
  bool slices = false;
  for (size_t i = 0; i < count; i++) slices = slices || gpus[i].slice;
  if (slices) {
    snprintf(out, BRIM_CLI_GPU_SPEC, "%s", gpus[at].uuid);
  } else {
    snprintf(out, BRIM_CLI_GPU_SPEC, "cuda:%zu", at);
  }
}

//---------------------------------- words of commands that brim starts ----------------------------------

bool brim_cli_sweep_take_text(const char *word, const char *key, const char **out) {
  size_t n = strlen(key);
  if (strncmp(word, key, n) != 0 || word[n] != '=') return false;
  *out = word + n + 1;
  return true;
}

bool brim_cli_sweep_take_number(const char *word, const char *key, int64_t *out) {
  const char *text;
  return brim_cli_sweep_take_text(word, key, &text) && brim_parse_i64(text, out);
}
