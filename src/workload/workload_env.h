// Inside the workload room: functions that workloads with an environment share. They read the environment that a
// config or a checkpoint names, and describe it for a replay (brim_work_replay_table).
#ifndef BRIM_WORKLOAD_ENV_H_
#define BRIM_WORKLOAD_ENV_H_

#include "backend/backend.h"
#include "config/config_rows.h"
#include "env/env.h"
#include "rl/rl_rollout.h"
#include "workload/workload.h"

typedef struct brim_work_env {
  const brim_env_row *row;
  brim_env_values values;
} brim_work_env;

// Defaults of a workload.
typedef struct brim_work_env_usual {
  const char *workload;  // name of the workload, for messages
  const char *env;       // default environment
  int32_t stage;         // stage of the environment's curriculum, from 0
} brim_work_env_usual;

// Makes brim's own environments components of configs, with the arguments of their rows. Called once, before
// the first config is loaded.
brim_status brim_work_env_register(void);
// Reads the environment of a config and its values. `registry` has the environments of plug-ins; NULL: only
// brim's own.
brim_status brim_work_env_read(const brim_config *config, const brim_registry *registry,
                               const brim_work_env_usual *defaults, brim_work_env *out);
// Puts brim.env, {"name": "quadruped", "task": "stand", ...}, and brim.policy into a checkpoint's metadata,
// as texts. Releases `policy`; NULL means that it could not be made for lack of memory.
brim_status brim_work_env_put(const brim_env_row *row, const void *values, json_t *policy,
                              json_t *meta);
// Checks that a checkpoint's environment (`text`, its JSON; NULL = unknown) observes and acts as this run's,
// and with `task`, that it has the same rewards.
brim_status brim_work_env_check(const brim_env_row *row, const void *values, const char *path,
                                const char *text, bool task);
// True if all settings of the checkpoint's environment (`text`) are this run's, so that its states are valid
// here; also true if the checkpoint does not have them.
bool brim_work_env_same(const brim_env_row *row, const void *values, const char *text);
// Sets the labels of the two rows of terminated episodes to the environment's words.
void brim_work_env_label_ended(const brim_env_ended *ended, brim_metric *count, brim_metric *rate);
// Gives `where` a pool of as many threads as the device computes with now.
brim_status brim_work_env_threads(const brim_device *device, brim_rollout_where *where);
// Writes the name of a metric, PREFIX and KEY joined without a separator, to `out` and returns it.
const char *brim_work_env_name(char out[BRIM_METRIC_NAME], const char *prefix, const char *key);
// "FILE:LINE:COLUMN: " of a component, or "".
const char *brim_work_place(const brim_component *c, char out[160]);

//---------------------------------- replays ----------------------------------

typedef struct brim_work_replay_from {
  const brim_registry *registry;
  const brim_config *config;
  const char *path;  // path of the checkpoint
} brim_work_replay_from;
// Makes a state of `bytes` zeros, which `read` fills. If `read` fails, `close` frees what it made.
brim_status brim_work_replay_open(const brim_work_replay_from *from, size_t bytes,
                                  brim_status (*read)(const brim_work_replay_from *from,
                                                      void *state),
                                  void (*close)(void *state), void **out);

// Sets scene, title, time step and facts of an environment; the workload sets the other members.
// BRIM_EUNSUPPORTED if the environment has no scene, BRIM_EABI if the scene does not fit its frames.
brim_status brim_work_replay_env(const brim_env_row *row, const void *values,
                                 brim_work_replay_info *out);
// Adds a fact and returns its line, whose text the caller writes.
brim_scene_line *brim_work_replay_fact(brim_work_replay_info *info, const char *label);
// Adds an actor; more than BRIM_WORK_MAX_ACTORS are left out.
void brim_work_replay_actor(brim_work_replay_info *info, const char *name, const char *label);
// Puts the environment's task into the event, under the name of its argument: {"task": "stand"}.
brim_status brim_work_replay_task(const brim_env_row *row, const void *values, json_t *event);
// Sets info->trained and adds a fact: the iterations that the policy was trained for.
void brim_work_replay_trained(brim_work_replay_info *info, int64_t iterations);
brim_scene_end brim_work_replay_end(int32_t end);  // converts a brim_env_end

#endif  // BRIM_WORKLOAD_ENV_H_
