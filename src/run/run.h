// The training loop: epochs, validation, checkpoints, logs, resume. It draws nothing: progress goes
// out by callback. Callers: the train command and the public API.
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

// Figures of the steps since the last such report, every log.interval steps.
typedef struct brim_run_steps {
  int64_t epoch, step;             // epoch from 1
  const brim_metric_set *metrics;  // what the workload measures
  double values[BRIM_METRIC_MAX];  // BRIM_METRIC_STEPS
  double lr;
  double data_s, compute_s;  // per step: waiting for data, and the rest of it
  bool loads;                // there are data to wait for
  double samples_per_s;
} brim_run_steps;

typedef struct brim_epoch_report {
  int64_t epoch;  // from 1
  int64_t epochs;
  const brim_metric_set *metrics;  // what the workload measures
  double train[BRIM_METRIC_MAX];
  bool evaluated;                    // after this epoch
  double eval[BRIM_METRIC_MAX];      // NaN when not
  double baseline[BRIM_METRIC_MAX];  // of the baseline in the same evaluation
  bool dead;                         // nothing finite came out of what was evaluated
  double lr;
  double seconds;       // training only
  double eval_seconds;  // NaN when not evaluated
  double wall_seconds;  // of this process's run so far, all it did
  double samples_per_s;
  bool best;  // best so far
  brim_run_loading loading;
  // While it trained, where it is asked for (brim_run_options.usage): a kernel ran; SMs had a warp.
  bool watches_gpu;                // the workload asks for it
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
                // newest by step, else the best; a damaged one is skipped with a warning
  const char *resume_path;            // or from this file (must exist)
  const volatile sig_atomic_t *stop;  // non-zero: finish the step, save, return BRIM_EINTERRUPTED
  // Stop at this optimiser step, counted from the very start, with last and model written; 0 = no limit
  int64_t max_steps;
  // NULL, or the command that trains: it is then published for `brim top` (record_job.h).
  const char *publish;
  // May be NULL. A second say in whether a plan fits, besides what is free now and gpu.memory_limit:
  // BRIM_EOOM.
  brim_status (*check)(void *ctx, const brim_setting *setting, const brim_plan *plan);
  // May be NULL: not asked for. How busy the GPU was since it was asked to look (by NULLs).
  void (*usage)(void *ctx, double *gpu_percent, double *sm_percent);
  void (*on_start)(void *ctx, const brim_work_info *info, const brim_plan *plan,
                   int64_t start_step);
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_epoch)(void *ctx, const brim_epoch_report *report);
  void (*on_steps)(void *ctx, const brim_run_steps *steps);
  void *ctx;
} brim_run_options;

typedef struct brim_run_result {
  int64_t steps, epochs;             // made in all, resumed ones included
  int64_t steps_run;                 // made by this call; 0 = there was nothing left to do
  const brim_metric_set *metrics;    // what the workload measures; until it is closed
  double train[BRIM_METRIC_MAX];     // of the last epoch, or of its part (see `partial`)
  double eval[BRIM_METRIC_MAX];      // of the last evaluation of this process
  int64_t eval_samples;              // that it was of; 0 = there was none
  double baseline[BRIM_METRIC_MAX];  // of the baseline, in the episodes of evaluations
  int64_t baseline_samples;          // 0 = there is none
  double probe[BRIM_METRIC_MAX];     // of the evaluation at the end; NaN = none
  double best[BRIM_METRIC_MAX];      // of the best epoch: those that may decide
  bool best_by_training;             // not by evaluations: where there are any, `best` is NaN
  int64_t best_epoch;                // from 1; 0 = none
  double seconds, samples_per_s;     // of this process's training
  int ranks;                         // 0 = one
  char exchange_by[16];              // "shm", "mpi", "nccl"
  double exchange_ms,
      exchange_exposed_ms;  // per step: all, and what steps waited for; NaN = unknown
  double wall_seconds;      // of all it did: the evaluations, checkpoints and the start too
  int64_t skipped_steps, bad_samples;
  int64_t lost_steps;  // of the skipped ones, those that were not to find a loss scale (fp16)
  const brim_work_diagnosis *diagnosis;           // what the workload watches for; NULL = nothing
  int64_t anomalies[BRIM_WORK_MAX_TROUBLES];      // by its rows; of this process
  int64_t first_anomaly[BRIM_WORK_MAX_TROUBLES];  // by this step; 0 = none
  char advice[768];    // what to change about them (base_words.h); "" = nothing
  double lr;           // of the last step made
  bool stopped_early;  // by training.early_stopping_patience, now or when it last ran
  bool interrupted;
  bool partial;  // max_steps ended it within an epoch; the train_ figures are those of that part
  bool not_evaluated;  // max_steps ended it before its first evaluation
  // Why a run failed, where the status leaves it open: no finite value came out of an epoch; output_dir is
  // full, cannot be written to, or another process has it.
  bool diverged, folder_failed;
  brim_run_loading loading;
  const char *unit;                           // of samples_per_s: "samples", "env steps"
  brim_work_rate rates[BRIM_WORK_MAX_RATES];  // samples_per_s in other units
  size_t rate_count;
  char checkpoint[512];  // last one written
} brim_run_result;

// The workload must be open and not yet configured. training.epochs, training.steps,
// training.early_stopping_*, checkpoint.* and log.* come from the config.
brim_status brim_run_train(brim_work *work, const brim_config *config,
                           const brim_run_options *options, brim_run_result *out);
// Of a workload that is open and does not fit: would a training adapt to what is free (gpu.on_oom) and
// run? The workload is not to be trained afterwards.
bool brim_run_adapts(const brim_work *work, const brim_config *config);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RUN_H_
