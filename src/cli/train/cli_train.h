// Inside the commands: what a person sees of a training run. cli_train.c starts it, cli_train_show.c
// tells of steps, epochs and the end, cli_train_show.c of the start.
#ifndef BRIM_CLI_TRAIN_H_
#define BRIM_CLI_TRAIN_H_

#include "cli/job/cli_memory.h"
#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_cli_training {
  brim_cli *cli;
  brim_cli_job *job;
  const char *output_dir;
  brim_cli_memory memory;
  bool reported_waiting;      // that steps wait for data
  brim_gpu_sampler *sampler;  // of a GPU that is watched; NULL = none
  const char *unit;           // of the rates: "samples", "env steps"; NULL until it is known
  char *findings;             // as the executor has them, as JSON; NULL = none so far
} brim_cli_training;

// The callbacks of a run that is shown, and their context.
void brim_cli_training_watch(brim_cli_training *t, brim_run_options *options);
// The summary, or the "result" event with --json.
brim_status brim_cli_training_result(brim_cli_training *t, const brim_run_result *result);
void brim_cli_training_end(brim_cli_training *t);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_TRAIN_H_
