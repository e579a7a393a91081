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

#endif  // BRIM_WORKLOAD_STEPPER_SAVE_H_
