// The training loop: epochs, validation, checkpoints, logs, resume. It draws nothing: progress goes
// out by callback. Who calls: the train command and the public API.
#ifndef BRIM_RUN_H_
#define BRIM_RUN_H_

#include <signal.h>

#include "record/record.h"
#include "workload/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

// What loading cost, per sample and over all threads; of an epoch or of the whole run.
typedef struct brim_run_loading {
  int64_t samples;        // 0 = nothing is known
  const char *cache;      // where they came from: none, ram, gpu, mapped; NULL = not known
  uint64_t locked_bytes;  // of mapped files, by this process
  double read_ms;
  size_t stage_count;
  const char *stage[BRIM_WORK_MAX_STAGES];  // transforms by name
  double stage_ms[BRIM_WORK_MAX_STAGES];
  int64_t broken;        // samples that could not be read and were left out, so far
  int64_t broken_reads;  // how often the turn of one of them came
  char first_broken[256];
} brim_run_loading;

// What goes wrong in numbers. Counted, said when it happens (at the 1st, 2nd, 4th, 8th, ... time) and in
// log.jsonl as {"event": "anomaly"}. X(id, name)
#define BRIM_ANOMALY_MAP(X)                                                                 \
  X(LOSS_NOT_FINITE, "loss_not_finite")         /* samples whose loss is NaN or infinite */ \
  X(GRADIENT_NOT_FINITE, "gradient_not_finite") /* steps skipped for it */                  \
  X(LOSS_EXPLODED, "loss_exploded")             /* many times its running median, */        \
  X(GRADIENT_EXPLODED, "gradient_exploded")     /* likewise; counted in readings */         \
  X(RETURN_COLLAPSED, "return_collapsed")       /* evaluations of a policy */               \
  X(UPDATE_SKIPPED, "update_skipped")           /* of a policy */                           \
  X(EPISODE_DIVERGED, "episode_diverged")       /* ended by numbers out of hand */

typedef enum brim_anomaly {
#define X(id, name) BRIM_ANOMALY_##id,
  BRIM_ANOMALY_MAP(X)
#undef X
      BRIM_ANOMALY_COUNT
} brim_anomaly;

const char *brim_anomaly_name(brim_anomaly anomaly);
// What to change: "a lower learning rate (now 0.1), ...", by what the config has.
void brim_anomaly_advice(brim_anomaly anomaly, const brim_config *config, double lr, char *out,
                         size_t size);

// Means of the steps since the last such report, every log.interval steps.
typedef struct brim_run_steps {
  int64_t epoch, step;  // epoch from 1
  double loss, accuracy, lr, grad_norm;
  double data_s, compute_s;  // per step: waiting for data, and the rest of it
  double samples_per_s;
  double loss_scale;  // NaN: not logged
  bool policy;        // there are returns, and no loss
  brim_work_returns returns;
  double update_norm, policy_norm, sigma;  // of the last update
} brim_run_steps;

typedef struct brim_epoch_report {
  int64_t epoch;  // from 1
  int64_t epochs;
  double train_loss, train_accuracy;
  bool evaluated;                   // after this epoch
  double eval_loss, eval_accuracy;  // NaN when not
  const char *metric;               // what eval_accuracy is: "accuracy", "knn", "return"
  bool no_loss;                     // the evaluation has none
  bool dead;                        // and nothing finite came out of the network
  double lr;
  double seconds;       // training only
  double eval_seconds;  // NaN when not evaluated
  double wall_seconds;  // of this process's run so far, all it did
  double samples_per_s;
  bool best;  // best so far
  brim_run_loading loading;
  bool policy;  // there are returns: of the training, of the evaluation, of doing nothing
  brim_work_returns returns, eval_returns, baseline;
  double update_norm, policy_norm, sigma;  // of the last update
  // While it trained, where somebody looks (brim_run_options.usage): a kernel ran; SMs had a warp.
  double gpu_percent, sm_percent;  // NaN = unknown
} brim_epoch_report;

// Where a run keeps its files (all under output_dir):
//   config.yaml          resolved config
//   last.safetensors     full checkpoint, the newest; with checkpoint.keep k > 1 the k - 1 before it are
//   step-NNNNNNNN.safetensors, by their step; those of a later step are of a run that was taken back
//                        and go with the next save
//   best.safetensors     full checkpoint of the best epoch by checkpoint.best
//   model.safetensors    weights at the end: the average of training.ema_decay where there is one
//   log.csv, log.jsonl   one row per epoch / per log interval; past log.rotate bytes log.1.csv, ...
//   events.out.tfevents.*.brim   the same for TensorBoard, with log.tensorboard
typedef struct brim_run_options {
  const char *output_dir;
  bool resume;  // continue from the newest whole checkpoint there is: last.safetensors, else the
                // newest by step, else the best; a damaged one is passed over with a warning
  const char *resume_path;            // or from this file (must exist)
  const volatile sig_atomic_t *stop;  // non-zero: finish the step, save, return BRIM_EINTERRUPTED
  // Stop at this optimiser step, counted from the very start, with last and model written; 0 = no limit
  int64_t max_steps;
  // May be NULL. A second say in whether a plan fits, besides what is free now and gpu.memory_limit:
  // BRIM_EOOM.
  brim_status (*check)(void *ctx, const brim_setting *setting, const brim_plan *plan);
  // May be NULL: nobody looks. How busy the GPU was since it was asked to look (by NULLs).
  void (*usage)(void *ctx, double *gpu_percent, double *sm_percent);
  void (*on_start)(void *ctx, const brim_work_info *info, const brim_plan *plan,
                   int64_t start_step);
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_epoch)(void *ctx, const brim_epoch_report *report);
  void (*on_steps)(void *ctx, const brim_run_steps *steps);
  void *ctx;
} brim_run_options;

typedef struct brim_run_result {
  int64_t steps, epochs;              // made in all, resumed ones included
  int64_t steps_run;                  // made by this call; 0 = there was nothing left to do
  double train_loss, train_accuracy;  // of the last epoch, or of its part (see `partial`)
  double eval_loss, eval_accuracy, best_accuracy;
  bool best_by_training;          // not by evaluations: best_loss is NaN, and where there are any
                                  // best_accuracy, too
  double best_loss;               // in the evaluation of the best epoch; NaN = none
  const char *metric;             // what the two are: "accuracy", "knn", "return"
  double probe_accuracy;          // of a linear classifier on the features at the end; NaN = none
  int64_t best_epoch;             // from 1; 0 = none
  double seconds, samples_per_s;  // of this process's training
  double wall_seconds;            // of all it did: the evaluations, checkpoints and the start too
  int64_t skipped_steps, bad_samples;
  int64_t anomalies[BRIM_ANOMALY_COUNT];      // of this process
  int64_t first_anomaly[BRIM_ANOMALY_COUNT];  // by this step; 0 = none
  bool scaled;         // losses are scaled (fp16): skipped steps are how the scale is found
  double lr;           // of the last step made
  bool stopped_early;  // by training.early_stopping_patience, now or when it last ran
  bool interrupted;
  bool partial;   // max_steps ended it within an epoch; the train_ figures are those of that part
  bool unjudged;  // max_steps ended it before its first evaluation
  brim_run_loading loading;
  bool policy;  // there are returns: of the last evaluation, and of doing nothing in its episodes
  brim_work_returns eval_returns, baseline;
  const char *unit;      // of samples_per_s: "samples", "env steps"
  char collapse[768];    // what to change about a return that collapsed; "" = it did not
  char checkpoint[512];  // last one written
} brim_run_result;

// The workload must be open and not yet configured. training.epochs, training.steps,
// training.early_stopping_*, checkpoint.* and log.* come from the config.
brim_status brim_run_train(brim_work *work, const brim_config *config,
                           const brim_run_options *options, brim_run_result *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RUN_H_
