// Inside the bench command: its state, the choice of axes, the files it leaves.
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
  char *jsonl, *html, *best;  // paths, chosen before the sweep
  brim_fs_lockfile *lock;     // of the output folder
  bool wrote_jsonl, wrote_html, wrote_best;
  size_t recorded;            // results that are in the .jsonl file
  brim_status record_status;  // of the first record that could not be written
  char record_detail[512];
} bench;

// Options and the benchmark section of the config, else a grid that the plan allows.
brim_status brim_cli_bench_axes(bench *b);
void brim_cli_bench_axes_free(bench *b);

// Before the sweep: paths, folders, and whether they can be written to (BRIM_EINVAL when not). The
// files of an earlier sweep are put aside as NAME-1, NAME-2, ...
brim_status brim_cli_bench_prepare(bench *b);
// One more line in the .jsonl file, at once: a process that is killed loses nothing it measured. A
// failure is kept for the end.
void brim_cli_bench_record(bench *b, const brim_result *result);
// After the sweep: records that are missing, the report, best.yaml. Tries all of them; returns the
// first failure (BRIM_EIO or BRIM_ENOMEM).
brim_status brim_cli_bench_files(bench *b);
// A config of what was given and of the recommended setting.
brim_status brim_cli_bench_best(const bench *b, const char *path);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_BENCH_H_
