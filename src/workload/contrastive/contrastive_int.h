// The contrastive workload's state, which its files share: contrastive_setup.c reads the config and plans
// settings, contrastive_bank.c has the labelled samples that features are evaluated with,
// contrastive_probe.c the linear probe, contrastive.c steps, evaluates and saves.
#ifndef BRIM_CONTRASTIVE_INT_H_
#define BRIM_CONTRASTIVE_INT_H_

#include "workload/workload_int.h"
#include "workload/workload_learn.h"
#include "workload/workload_loss.h"
#include "workload/workload_pairs.h"
#include "workload/workload_stepped.h"

// What it measures: the rows of a network's training, then those of features (contrastive_rows.c).
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

// contrastive_setup.c
// Fills in everything that does not depend on a setting.
brim_status brim_contrastive_setup(brim_contrastive *w, const brim_work_context *context,
                                   const brim_config *config);
// A setting laid over the config; and with the rest that the network's plan takes: its limit, and how
// it accumulates.
void brim_contrastive_apply(const brim_contrastive *w, const brim_setting *setting,
                            brim_applied *out);
brim_status brim_contrastive_prepare(brim_contrastive *w, const brim_setting *setting,
                                     brim_applied *out);
brim_status brim_contrastive_plan(brim_contrastive *w, const brim_setting *setting, brim_plan *out);

// contrastive_bank.c
// The labelled set whose features vote, and its transforms, once the evaluation set is open; without
// labels in both nothing is evaluated.
brim_status brim_contrastive_open_bank(brim_contrastive *w);
void brim_contrastive_close_bank(brim_contrastive *w);
// Samples of it, with data.limit where it is the training set.
int64_t brim_contrastive_bank_count(const brim_contrastive *w);
brim_status brim_contrastive_plan_bank(const brim_contrastive *w, const brim_work_caching *caching,
                                       const brim_applied *a, brim_plan *plan);
brim_status brim_contrastive_make_loader(brim_contrastive *w, const brim_applied *a);

// contrastive_probe.c
brim_status brim_contrastive_probe(void *work, brim_work_metrics *out);

extern const brim_work_options brim_contrastive_options;
// contrastive_begin.c: what `brim init` writes for images without labels.
void brim_contrastive_begin(const brim_work_images *images, brim_work_beginning *out);
extern const brim_config_section brim_contrastive_section;  // contrastive_keys.c
extern const brim_work_topic brim_contrastive_topic;        // contrastive_help.c

#endif  // BRIM_CONTRASTIVE_INT_H_
