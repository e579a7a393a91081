// Inside the bench command: its state, and the choice of axes.
#ifndef BRIM_CLI_BENCH_H_
#define BRIM_CLI_BENCH_H_

#include "cli/cli_job.h"
#include "tune/tune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_axes {
  brim_sweep_axis axis[BRIM_KNOB_MAX];
  int64_t *values[BRIM_KNOB_MAX];  // owned
  size_t count;
} bench_axes;

typedef struct bench {
  brim_cli *cli;
  brim_cli_job *job;
  bench_axes axes;
  bool plan_only;
  brim_result *results;
  size_t count;
  brim_ui_picks picks;
  char *jsonl, *html, *best;  // paths that were written
} bench;

// Options and the benchmark section of the config, else a grid that the plan allows.
brim_status brim_cli_bench_axes(bench *b);
void brim_cli_bench_axes_free(bench *b);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_BENCH_H_
