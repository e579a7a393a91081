// Replays of what was learned in an environment: what all workloads with one say about it
// (brim_work_replay_table). Callers: their `open`, `info` and `fields`.
#ifndef BRIM_WORKLOAD_REPLAY_H_
#define BRIM_WORKLOAD_REPLAY_H_

#include "env/env.h"
#include "workload/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_work_replay_from {
  const brim_registry *registry;
  const brim_config *config;
  const char *path;  // of the checkpoint
} brim_work_replay_from;
// A state of so many bytes, all 0, that `read` fills; where it fails, `close` gets what is there.
brim_status brim_work_replay_open(const brim_work_replay_from *from, size_t bytes,
                                  brim_status (*read)(const brim_work_replay_from *from,
                                                      void *state),
                                  void (*close)(void *state), void **out);

// Scene, title, time step and the facts of an environment with these values; seed, steps and what
// was trained are the workload's. BRIM_EUNSUPPORTED: the environment has no scene. BRIM_EABI: it does
// not fit its frames.
brim_status brim_work_replay_env(const brim_env_row *row, const void *values,
                                 brim_work_replay_info *out);
// One more fact; returns where its text goes.
brim_scene_line *brim_work_replay_fact(brim_work_replay_info *info, const char *label);
// One more actor, after what was trained. BRIM_WORK_MAX_ACTORS of them are enough: others are left out.
void brim_work_replay_actor(brim_work_replay_info *info, const char *name, const char *label);
// The environment's task, under the argument's name: {"task": "stand"}.
brim_status brim_work_replay_task(const brim_env_row *row, const void *values, json_t *event);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_REPLAY_H_
