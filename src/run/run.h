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

typedef struct brim_epoch_report {
  int64_t epoch;  // from 1
  int64_t epochs;
  double train_loss, train_accuracy;
  bool evaluated;                   // after this epoch
  double eval_loss, eval_accuracy;  // NaN when not
  double lr;
  double seconds;  // training only
  double samples_per_s;
  bool best;  // best so far
  brim_run_loading loading;
} brim_epoch_report;

// Where a run keeps its files (all under output_dir):
//   config.yaml     resolved config      log.csv, log.jsonl   one row per epoch / per log interval
//   last.safetensors, best.safetensors   full checkpoints     model.safetensors   weights at the
//   end
typedef struct brim_run_options {
  const char *output_dir;
  bool resume;                        // continue from last.safetensors when it is there
  const char *resume_path;            // or from this file (must exist)
  const volatile sig_atomic_t *stop;  // non-zero: finish the step, save, return BRIM_EINTERRUPTED
  // Stop at this optimiser step, counted from the very start, with last and model written; 0 = no limit
  int64_t max_steps;
  void (*on_start)(void *ctx, const brim_work_info *info, const brim_plan *plan,
                   int64_t start_step);
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_epoch)(void *ctx, const brim_epoch_report *report);
  void *ctx;
} brim_run_options;

typedef struct brim_run_result {
  int64_t steps, epochs;              // made in all, resumed ones included
  int64_t steps_run;                  // made by this call; 0 = there was nothing left to do
  double train_loss, train_accuracy;  // of the last epoch, or of its part (see `partial`)
  double eval_loss, eval_accuracy, best_accuracy;
  int64_t best_epoch;             // from 1; 0 = none
  double seconds, samples_per_s;  // of this process's training
  int64_t skipped_steps, bad_samples;
  bool interrupted;
  bool partial;  // max_steps ended it within an epoch; the train_ figures are those of that part
  brim_run_loading loading;
  char checkpoint[512];  // last one written
} brim_run_result;

// The workload must be open and not yet configured. training.epochs, checkpoint.* and log.* come
// from the config.
brim_status brim_run_train(brim_work *work, const brim_config *config,
                           const brim_run_options *options, brim_run_result *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RUN_H_
