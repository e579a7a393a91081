// Inside the workload room: the environment that a config or a checkpoint names, for workloads that learn
// in one.
#ifndef BRIM_WORKLOAD_ENV_H_
#define BRIM_WORKLOAD_ENV_H_

#include "backend/backend.h"
#include "config/config_rows.h"
#include "env/env.h"
#include "rl/rl_rollout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_work_env {
  const brim_env_row *row;
  brim_env_values values;
} brim_work_env;

// What a workload has where the config does not say.
typedef struct brim_work_env_usual {
  const char *workload;  // its name, for messages
  const char *env;       // the environment of a config that names none
  int32_t stage;         // of the environment's curriculum, from 0
} brim_work_env_usual;

// brim's own environments become components of the config, with the arguments of their rows. Once, before
// the first config is loaded.
brim_status brim_work_env_register(void);
// The environment of a config and its values. `registry` has the environments of plug-ins; NULL: only
// brim's own.
brim_status brim_work_env_read(const brim_config *config, const brim_registry *registry,
                               const brim_work_env_usual *usual, brim_work_env *out);
// {"name": "quadruped", "task": "stand", ...}: the environment of a checkpoint.
brim_status brim_work_env_put(const brim_env_row *row, const void *values, json_t *object);
// Whether a checkpoint's environment (`text`, its JSON; NULL = it does not say) observes and acts as
// this run's; with `task`, whether it also rewards the same.
brim_status brim_work_env_check(const brim_env_row *row, const void *values, const char *path,
                                const char *text, bool task);
// Whether all its settings are this run's, so that its states are too. True where it does not say.
bool brim_work_env_same(const brim_env_row *row, const void *values, const char *text);
// The labels of the two rows of episodes that were terminated, which every environment has words for.
void brim_work_env_label_ended(const brim_env_ended *ended, brim_metric *count, brim_metric *rate);
// Where environments of a CPU step: with as many threads as the device computes with now, which are started
// again where they were others.
brim_status brim_work_env_threads(const brim_device *device, brim_rollout_where *where);
// A row's name that is no constant, into the memory of the rows.
const char *brim_work_env_name(char out[BRIM_METRIC_NAME], const char *before, const char *key);
// "FILE:LINE:COLUMN: " of a component, or "".
const char *brim_work_place(const brim_component *c, char out[160]);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_ENV_H_
