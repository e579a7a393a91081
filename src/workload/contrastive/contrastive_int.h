// The contrastive workload's state, which its files share: contrastive.c reads the config and plans
// settings, contrastive.c has the labelled samples that features are evaluated with,
// contrastive.c the linear probe, contrastive.c steps, evaluates and saves.
#ifndef BRIM_CONTRASTIVE_INT_H_
#define BRIM_CONTRASTIVE_INT_H_

#include "workload/workload_int.h"
#include "workload/workload_learn.h"
#include "workload/workload_loss.h"
#include "workload/workload_pairs.h"
#include "workload/workload_stepped.h"

// What it measures: the rows of a network's training, then those of features (contrastive.c).
enum {
  BRIM_CONTRASTIVE_EVAL_LOSS = BRIM_NET_ROWS,
  BRIM_CONTRASTIVE_KNN,
  BRIM_CONTRASTIVE_PROBE,
  BRIM_CONTRASTIVE_PROBE_LOSS,
};
extern const brim_metric_set brim_contrastive_set;

// The labelled samples whose features vote on those of the evaluation set.
typedef struct brim_contrastive_bank {
  brim_source *source;  // labelled, where the training set is not; NULL = the training set
  brim_transforms *transforms;
  brim_loader *loader;  // of the present setting
  int64_t classes;
} brim_contrastive_bank;

typedef struct brim_contrastive {
  brim_stepped stepped;  // first
  brim_work_data data;
  brim_contrastive_bank bank;
  brim_net_spec spec;  // without the setting's part
  brim_usual usual;    // the loss, where the config has none
  brim_learn_optimizer optimizer;
  brim_loader_options loader;  // likewise without the setting's part
  brim_knob knobs[BRIM_LEARN_KNOBS];
  brim_batching batching;
  brim_pairs pairs;
  brim_stepper stepper;
  brim_neighbours neighbours;  // bank 0 = nothing is evaluated
  int64_t probe_epochs;
  char description[160];
} brim_contrastive;

extern const brim_work_options brim_contrastive_options;
extern const brim_config_section brim_contrastive_section;  // contrastive.c
extern const brim_work_topic brim_contrastive_topic;        // contrastive.c

#endif  // BRIM_CONTRASTIVE_INT_H_
