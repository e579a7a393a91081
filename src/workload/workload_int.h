// Inside the workload room: the tables, and the supervised workload's state, which two files share
// (workload_supervised_setup.c reads the config, workload_supervised.c steps).
#ifndef BRIM_WORKLOAD_INT_H_
#define BRIM_WORKLOAD_INT_H_

#include "data/data.h"
#include "engine/engine.h"
#include "workload/workload.h"

extern const brim_workload_table brim_workload_supervised;

// Knobs of the supervised workload, in table order.
enum {
  BRIM_SUPERVISED_BATCH,
  BRIM_SUPERVISED_WORKERS,
  BRIM_SUPERVISED_PRECISION,
  BRIM_SUPERVISED_PIN,
  BRIM_SUPERVISED_PREFETCH,
  BRIM_SUPERVISED_ACCUMULATION,
  BRIM_SUPERVISED_COMPILE,
  BRIM_SUPERVISED_CHECKPOINTING,
  BRIM_SUPERVISED_KNOBS
};

#define BRIM_SUPERVISED_MAX_ARGS 16

typedef struct brim_supervised {
  brim_work_context context;
  const brim_config *config;                            // borrowed; outlives the workload
  brim_source *train_source, *eval_source;              // eval_source NULL = nothing to evaluate on
  brim_transforms *train_transforms, *eval_transforms;  // NULL = samples as they are
  brim_knob knobs[BRIM_SUPERVISED_KNOBS];
  brim_net_spec spec;        // without the setting's part
  brim_component optimizer;  // the config's, with training.* keys laid over it
  brim_argument optimizer_args[BRIM_SUPERVISED_MAX_ARGS];
  brim_loader_options loader;  // likewise without the setting's part
  double base_lr;
  const char *weights;  // file to start from, borrowed from the config; NULL = from the seed
  char description[160];

  // of the present setting
  brim_net *net;
  brim_loader *train_loader, *eval_loader;
  brim_schedule schedule;
  int64_t batch, accumulation, epoch_samples;
  brim_precision precision;

  // position
  int64_t step, epoch, position;  // position: samples of this epoch already used
  int64_t saved_step, saved_epoch, saved_position;
  brim_net_metrics saved_carried;
  brim_net_sums saved_sums;
  brim_net_metrics carried;  // training sums set aside while evaluating
} brim_supervised;

// Whether the device multiplies matrices of this type.
bool brim_supervised_device_has(brim_device *device, brim_dtype dtype);
// Fill in everything that does not depend on a setting.
brim_status brim_supervised_setup(brim_supervised *w);
// Spec, loader options and eval loader options of a setting.
void brim_supervised_apply(const brim_supervised *w, const brim_setting *setting,
                           brim_net_spec *spec, brim_loader_options *train,
                           brim_loader_options *eval);
// Optimiser steps of one epoch, and the learning-rate schedule over all of them.
brim_status brim_supervised_schedule(brim_supervised *w);

// Device, library and, where training shall go on from it, the chosen algorithms into a checkpoint's
// metadata.
brim_status brim_work_put_device(brim_device *device, bool algorithms, json_t *meta);

#endif  // BRIM_WORKLOAD_INT_H_
