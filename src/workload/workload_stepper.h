// Inside the workload room: a network that is stepped over a data set. Network, loaders and schedule of
// the present setting, the position in the data, and the sums of metrics. What is evaluated, and how, is
// the workload's own.
#ifndef BRIM_WORKLOAD_STEPPER_H_
#define BRIM_WORKLOAD_STEPPER_H_

#include "workload/workload_learn.h"
#include "workload/workload_watch.h"

#ifdef __cplusplus
extern "C" {
#endif

// Calls that all ranks make.
typedef enum brim_step_call {
  BRIM_CALL_END,
  BRIM_CALL_CONFIGURE,
  BRIM_CALL_STEP,
  BRIM_CALL_METRICS,
  BRIM_CALL_SNAPSHOT,
  BRIM_CALL_RESTORE,
  BRIM_CALL_LOAD_ONLY,
  BRIM_CALL_COMPUTE_ONLY
} brim_step_call;

typedef struct brim_stepper {
  brim_device *device;
  brim_comm *comm;  // NULL = one rank
  int rank, ranks;
  bool leads, follows;                // workload_lead.c
  const brim_metric_set *metric_set;  // begins with the rows BRIM_NET_*
  brim_net_watch watch;
  // from the config
  int32_t views;         // of a training sample; 2 for ntxent
  bool counts;           // outputs are right or wrong: there is an accuracy
  double lr;             // the schedule's highest
  const char *weights;   // file to start from, borrowed from the config; NULL = from the seed
  bool reported_reinit;  // that the last layer is not in it, once
  // Batches that the average takes its batch norm statistics from (training.ema_batches).
  int64_t recalibrate_batches;
  const volatile sig_atomic_t *stop;  // NULL = never

  // of the present setting
  brim_net *net;
  brim_loader *train_loader, *eval_loader;  // eval_loader NULL = nothing to evaluate on
  brim_schedule schedule;
  int64_t batch, eval_batch, accumulation, epoch_samples;  // of all ranks, but eval_batch
  bool exact;  // the loss is that of all micro-batches of a step
  brim_precision precision;
  bool mapped_rows;     // the device reads samples as they are out of a mapped file
  bool built, rebuilt;  // a setting stood before; another stood before this one

  // position
  int64_t step, epoch, position;  // position: samples of this epoch already used
  int64_t saved_step, saved_epoch, saved_position;
  brim_net_metrics saved_carried;
  brim_net_sums saved_sums;
  brim_net_metrics carried;  // training sums set aside while evaluating
  double *given;             // sums of all ranks at `given_step`, one rank after the other
  int64_t given_step;
  int64_t recalibrated;  // the step whose average has statistics of its own; -1 = none has
  brim_loader_stats recalibrate_reading;  // by the training set's loader, for that alone
  // What all ranks left out of training until metrics were last read; of one rank the loader knows.
  int64_t left_out, left_out_reads;
  char first_left_out[256];
} brim_stepper;

// Network, loaders, schedule; position 0. The caller drops it where this fails.
brim_status brim_stepper_build(brim_stepper *t, const brim_work_data *data, brim_applied *a);
void brim_stepper_drop(brim_stepper *t);
void brim_stepper_info(const brim_stepper *t, const brim_work_data *data, uint64_t limit,
                       brim_work_info *out);

// What a stepper reads from the config, once data, network and optimiser are known; metric_set is its
// workload's to say.
void brim_stepper_init(brim_stepper *t, const brim_work_data *data, const brim_net_spec *spec,
                       double lr);
// Means of sums. Losses that are not finite are not in the sum: a mean of the others would look healthy
// in training; `evaluated` is of the others.
void brim_stepper_means(const brim_stepper *t, const brim_net_metrics *sum, bool evaluated,
                        brim_work_metrics *out);

// Runs `pass` over what is evaluated; `sums` are its own, and training's continue as if it had not
// happened. BRIM_ESTATE where there is nothing to evaluate on.
typedef brim_status (*brim_stepper_pass)(void *ctx);
brim_status brim_stepper_evaluate(brim_stepper *t, brim_stepper_pass pass, void *ctx,
                                  brim_net_metrics *sums);
// Every batch of a loader once, in order.
typedef brim_status (*brim_batch_fn)(void *ctx, const brim_batch *batch, int64_t first);
brim_status brim_stepper_each(const brim_stepper *t, brim_loader *loader, brim_batch_fn fn,
                              void *ctx);
// BRIM_EINTERRUPTED when a stop was asked for; between the batches of what is not a step.
brim_status brim_stepper_check_stop(const brim_stepper *t);

// On a rank that leads: the others make the same call, `number` being its steps or `reset` (workload_lead.c).
brim_status brim_stepper_tell(const brim_stepper *t, brim_step_call kind, int number);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_STEPPER_H_
