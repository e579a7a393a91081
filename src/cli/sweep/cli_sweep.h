// Shared by the files of `brim sweep`, and by `brim serve` and `brim worker`.
#ifndef BRIM_CLI_SWEEP_H_
#define BRIM_CLI_SWEEP_H_

#include "cli/cli.h"
#include "cli/job/cli_job.h"
#include "record/record_sweep.h"

struct brim_lab_grid;
struct brim_lab_point;
struct brim_lab_sweep;
struct brim_store_point;

// The state of `brim sweep GRID`.
typedef struct brim_cli_sweep_job {
  brim_cli *cli;
  brim_cli_job job;  // input and config
  struct brim_lab_grid *grid;
  brim_gpu_monitor *monitor;           // NULL without NVML
  char *name;                          // name of the grid
  char *place, *folder;                // place of the store; folder of the experiments' files
  char *shown;                         // the place as printed, without a password
  bool only_continue;                  // no grid was named: run the experiments of the store
  bool worker;                         // a worker of a server: waits for more experiments
  const char *program;                 // program that plans; NULL = this program
  struct brim_cli_sweep_slurm *slurm;  // NULL = experiments run on this machine
} brim_cli_sweep_job;

// Metric names, each with its alternatives. Points of the grid refer to them (brim_store_point), so they must outlive
// the grid.
typedef struct brim_cli_metric_names {
  char names[32][400];
  size_t count;
} brim_cli_metric_names;
// The `describe` of brim_lab_grid_options: the metric of checkpoint.best and the epochs of a point. ctx: the
// brim_cli_metric_names.
brim_status brim_cli_sweep_describe(void *ctx, const brim_config *point,
                                    struct brim_lab_point *out);
// Describes the first GPU, for the preset `auto`. The facts point to `name`. monitor may be NULL.
void brim_cli_sweep_facts(brim_gpu_monitor *monitor, char name[96], brim_config_facts *out);
// Looks up how to display a metric, by its name in logs; false if no workload has it.
bool brim_cli_sweep_metric(const char *key, brim_sweep_metric *out);
// The device spec of a GPU for the process that plans: "cuda:1", or its UUID if some GPUs are MIG slices, which CUDA
// does not count.
enum { BRIM_CLI_GPU_SPEC = 64 };
void brim_cli_sweep_gpu_spec(const brim_gpu_listed *gpus, size_t count, size_t at,
                             char out[BRIM_CLI_GPU_SPEC]);
// Sets need_bytes of the grid's points, if several may run on one GPU.
brim_status brim_cli_sweep_needs(const brim_cli_sweep_job *job, struct brim_store_point *points);
// Checks the limits of numbers among the options.
brim_status brim_cli_sweep_check(brim_cli *cli);
// Opens the sweep of the job, with the options of the command line.
brim_status brim_cli_sweep_open(const brim_cli_sweep_job *job, struct brim_lab_sweep **out);
// Runs the sweep to its end and shows it: live table, lines or events, then the summary.
brim_status brim_cli_sweep_watch(const brim_cli_sweep_job *job, struct brim_lab_sweep *sweep);

// An existing store or the URL of a server, for brim_free: --store, else the positional word `at` (0 = no word), else
// the variable BRIM_STORE, else the store below runs that changed last.
brim_status brim_cli_sweep_place(brim_cli *cli, size_t at, char **out);
// Is the place a folder with a store, or the URL of a database? Opening another place would create a store.
bool brim_cli_sweep_has_store(const char *place);
// The states of brim_store_filter for a value of --state; 0 = all of them.
unsigned brim_cli_sweep_states(const char *name);
// The store below runs that changed last, for brim_free; NULL if there is none.
brim_status brim_cli_sweep_newest(char **out);
// The path of the log of an attempt below `folder`, for brim_free.
brim_status brim_cli_sweep_log_path(const char *folder, const char *exp, int64_t attempt,
                                    char **out);

// Actions of `brim sweep`; positional[0] is the name. Each table ends with a NULL name.
extern const brim_cli_verb brim_cli_sweep_show[];  // status, log, get
extern const brim_cli_verb
    brim_cli_sweep_control[];  // cancel, pause, resume, retry, priority, drain, move, stop ...
extern const brim_cli_verb brim_cli_sweep_export[];
extern const brim_cli_verb brim_cli_sweep_chaos[];
extern const brim_cli_verb brim_cli_sweep_child[];  // started by sweeps and Slurm, not by users

#endif  // BRIM_CLI_SWEEP_H_
