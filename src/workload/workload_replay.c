// What replays of any environment have in common.
#include "workload/workload_replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// The word of an argument that decides what is rewarded; false where it is no such argument.
static bool task_word(const brim_env_arg *arg, const void *values, char out[64]) {
  int32_t index;
  if (!arg->task || arg->type != BRIM_ENV_ARG_CHOICE) return false;
  memcpy(&index, (const char *)values + arg->offset, sizeof index);
  brim_env_choice_name(arg->choices, index, out, 64);
  return true;
}

brim_scene_line *brim_work_replay_fact(brim_work_replay_info *info, const char *label) {
  size_t at = info->fact_count;
  if (at < BRIM_SCENE_MAX_LINES) info->fact_count++;
  brim_scene_line *line = &info->facts[at < BRIM_SCENE_MAX_LINES ? at : at - 1];
  line->label = label;
  return line;
}

void brim_work_replay_actor(brim_work_replay_info *info, const char *name, const char *label) {
  if (info->actor_count == BRIM_WORK_MAX_ACTORS) return;
  brim_work_actor *actor = &info->actors[info->actor_count++];
  actor->name = name;
  snprintf(actor->label, sizeof actor->label, "%s", label);
}

static void name_it(const brim_env_row *row, const void *values, brim_work_replay_info *out) {
  char word[64];
  brim_scene_line *fact = brim_work_replay_fact(out, BRIM_N_("Environment"));
  snprintf(out->title, sizeof out->title, "%.31s", row->name);
  snprintf(fact->text, sizeof fact->text, "%.31s", row->name);
  for (size_t i = 0; i < row->arg_count; i++) {
    if (!task_word(&row->args[i], values, word)) continue;
    snprintf(out->title, sizeof out->title, "%.31s, %.60s", row->name, word);
    snprintf(fact->text, sizeof fact->text, brim_tr("%.31s, task %.60s"), row->name, word);
  }
}

brim_status brim_work_replay_env(const brim_env_row *row, const void *values,
                                 brim_work_replay_info *out) {
  memset(out, 0, sizeof *out);
  if (!row->scene) {
    return brim_fail(BRIM_EUNSUPPORTED, "brim render has no drawing of environment %s", row->name);
  }
  row->scene(values, &out->scene);
  BRIM_TRY(brim_scene_check(&out->scene, row->sizes(values).frame, row->name));
  // as it was given: 0.05, not the nearest float
  double seconds = round(row->seconds(values) * 1e7) / 1e7;
  out->dt = seconds > 0 ? seconds : 1;
  if (!(seconds > 0) && !(out->scene.rate > 0)) out->scene.rate = 10;
  name_it(row, values, out);
  if (row->facts) out->fact_count += row->facts(values, out->facts + out->fact_count);
  return BRIM_OK;
}

brim_status brim_work_replay_open(const brim_work_replay_from *from, size_t bytes,
                                  brim_status (*read)(const brim_work_replay_from *from,
                                                      void *state),
                                  void (*close)(void *state), void **out) {
  void *state = brim_calloc(1, bytes);
  if (!state) return brim_fail(BRIM_ENOMEM, "out of memory for a replay");
  brim_status status = read(from, state);
  if (status) {
    close(state);
    return status;
  }
  *out = state;
  return BRIM_OK;
}

brim_status brim_work_replay_task(const brim_env_row *row, const void *values, json_t *event) {
  char word[64];
  for (size_t i = 0; i < row->arg_count; i++) {
    if (!task_word(&row->args[i], values, word)) continue;
    BRIM_TRY(brim_json_put(event, row->args[i].name, json_string(word)));
  }
  return BRIM_OK;
}
