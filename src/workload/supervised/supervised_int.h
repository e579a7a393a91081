// The supervised workload's state, which its files share: supervised.c reads the config and plans
// settings, supervised.c steps, evaluates and saves.
#ifndef BRIM_SUPERVISED_INT_H_
#define BRIM_SUPERVISED_INT_H_

#include "workload/workload_int.h"
#include "workload/workload_learn.h"
#include "workload/workload_loss.h"
#include "workload/workload_pairs.h"
#include "workload/workload_stepped.h"

extern const brim_metric_set brim_supervised_set;  // what it measures (supervised.c)

typedef struct brim_supervised {
  brim_stepped stepped;  // first
  brim_work_data data;
  brim_net_spec spec;  // without the setting's part
  brim_usual usual;    // the loss, where the config has none
  brim_learn_optimizer optimizer;
  brim_loader_options loader;  // likewise without the setting's part
  brim_knob knobs[BRIM_LEARN_KNOBS];
  brim_batching batching;
  brim_pairs pairs;  // for a loss that compares views
  brim_stepper stepper;
  bool reported_bad_eval;  // that evaluation samples gave no finite loss
  char description[160];
} brim_supervised;

#endif  // BRIM_SUPERVISED_INT_H_
