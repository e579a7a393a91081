// Inside the workload room: checkpoints of a network that is stepped over a data set.
#ifndef BRIM_WORKLOAD_STEPPER_SAVE_H_
#define BRIM_WORKLOAD_STEPPER_SAVE_H_

#include "workload/workload_stepper.h"
#include "workload/workload_trained.h"

// What a checkpoint says of its workload beside where it stands.
typedef struct brim_checkpoint_facts {
  const char *workload;
  const brim_net_spec *spec;  // the config's
  const brim_loader_options *loader;
  const brim_work_data *data;
  brim_task task;
  int64_t outputs;          // of the network
  const char *accumulates;  // as in brim_pairs_choice; NULL = there is no choice
} brim_checkpoint_facts;

// The members of the workload's tables.
// On all ranks, before the first one saves or holds this step.
brim_status brim_stepper_give(brim_stepper *t, bool weights_only);
brim_status brim_stepper_save(brim_stepper *t, const brim_checkpoint_facts *f, const char *path,
                              const json_t *extra, bool weights_only);
brim_status brim_stepper_hold(brim_stepper *t, const brim_checkpoint_facts *f, const json_t *extra,
                              bool weights_only, brim_work_held *out);
brim_status brim_stepper_load(brim_stepper *t, const brim_checkpoint_facts *f, const char *path,
                              json_t **extra);
brim_status brim_stepper_use(brim_stepper *t, const char *path, bool averaged);

#endif  // BRIM_WORKLOAD_STEPPER_SAVE_H_
