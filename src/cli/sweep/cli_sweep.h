// Inside the sweep command: one function per word.
#ifndef BRIM_CLI_SWEEP_H_
#define BRIM_CLI_SWEEP_H_

#include "cli/cli.h"
#include "cli/job/cli_job.h"
#include "record/record_sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

struct brim_lab_grid;
struct brim_lab_point;
struct brim_lab_sweep;
struct brim_store_point;

// What `brim sweep GRID` works on.
typedef struct brim_cli_sweep_job {
  brim_cli *cli;
  brim_cli_job job;  // input and config
  struct brim_lab_grid *grid;
  brim_gpu_monitor *monitor;           // NULL without NVML
  char *name;                          // of the grid
  char *place, *folder;                // of the store, of the experiments' files
  char *shown;                         // the place without a password: what is printed
  bool only_continue;                  // no grid was named: what the store has is run
  bool worker;                         // of a server: waits for more
  const char *program;                 // that plans; NULL = this one
  struct brim_cli_sweep_slurm *slurm;  // NULL: experiments run on this machine
} brim_cli_sweep_job;

// Metrics that points refer to, with their alternatives (brim_store_point); outlives the grid.
typedef struct brim_cli_metric_names {
  char names[32][400];
  size_t count;
} brim_cli_metric_names;
// For brim_lab_grid_options: the metric of checkpoint.best and the epochs of a point. ctx: the names.
brim_status brim_cli_sweep_describe(void *ctx, const brim_config *point,
                                    struct brim_lab_point *out);
// The first GPU, for the preset `auto`; `name` outlives the facts. monitor may be NULL.
void brim_cli_sweep_facts(brim_gpu_monitor *monitor, char name[96], brim_config_facts *out);
// How a metric is shown, by its name in logs; false: no workload has it.
bool brim_cli_sweep_metric(const char *key, brim_sweep_metric *out);
// --plugin and --allow-plugins as this command got them, ended by NULL.
void brim_cli_sweep_plugin_words(const brim_cli_sweep_job *job, const char **out, size_t most);
// The command line of the process that plans, ended by NULL; brim_free(program).
typedef struct brim_cli_sweep_words {
  char *program;
  const char *list[28];
} brim_cli_sweep_words;
brim_status brim_cli_sweep_planner(const brim_cli_sweep_job *job, brim_cli_sweep_words *out);
// The value of a word key=value of such a command line; false where it is another's.
bool brim_cli_sweep_take_text(const char *word, const char *key, const char **out);
bool brim_cli_sweep_take_number(const char *word, const char *key, int64_t *out);
// How the process that plans is asked about a GPU of the machine's list: "cuda:1", or its UUID where
// some are slices (MIG), which CUDA does not count.
enum { BRIM_CLI_GPU_SPEC = 64 };
void brim_cli_sweep_gpu_spec(const brim_gpu_listed *gpus, size_t count, size_t at,
                             char out[BRIM_CLI_GPU_SPEC]);
// Sets need_bytes of the grid's points, where several may run on one GPU.
brim_status brim_cli_sweep_needs(const brim_cli_sweep_job *job, struct brim_store_point *points);
// --dry-run: what the grid has and needs; nothing is submitted (cli_sweep_dry.c).
brim_status brim_cli_sweep_dry(const brim_cli_sweep_job *job);
// The numbers among the options of the command line are within their limits.
brim_status brim_cli_sweep_check(brim_cli *cli);
// How experiments run in Slurm, by the options of the command line (cli_sweep_run.c). *out NULL: they run on
// this machine.
struct brim_lab_slurm_options;
typedef struct brim_cli_sweep_slurm brim_cli_sweep_slurm;
// Opens the sweep of the job, with the options of the command line.
brim_status brim_cli_sweep_open(const brim_cli_sweep_job *job, struct brim_lab_sweep **out);
// Turns until the sweep ends, with the live table, lines or events; then the summary.
brim_status brim_cli_sweep_watch(const brim_cli_sweep_job *job, struct brim_lab_sweep *sweep);

// --store, else the positional word `at`, else the newest store below runs; brim_free. A store has to
// be there.
brim_status brim_cli_sweep_place(brim_cli *cli, size_t at, char **out);
// A folder with a store, or the URL of a database: opening another place would make a store there.
bool brim_cli_sweep_has_store(const char *place);
// The store below runs that changed last, for brim_free; NULL when there is none.
brim_status brim_cli_sweep_newest(char **out);
// What the sweep says about itself; nothing where none runs. *folder (may be NULL): of the
// experiments' files, for brim_free.
struct brim_lab_link;
// What `status` asks a server beside (cli_sweep_show.c): its workers, and why experiments wait.
typedef struct brim_cli_sweep_pool {
  json_t *waits;    // {id: text} in the user's language
  json_t *workers;  // rows of the reply, without those that are gone for a day
  char first[160];  // why the first of the queue waits; "" = none does
  int64_t now;      // by the clock of the store
} brim_cli_sweep_pool;
// which: grid and limit of the experiments that wait. To be deinitialised after a failure too.
struct brim_store_filter;

// The log of an attempt below FOLDER; brim_free.
brim_status brim_cli_sweep_log_path(const char *folder, const char *exp, int64_t attempt,
                                    char **out);
// The end of a file in whole lines, about this many bytes; brim_free.
brim_status brim_cli_sweep_read_end(const char *path, size_t bytes, char **out);

// positional[0] is the word itself; `run` has the grid as positional[0] instead.
brim_status brim_cli_sweep_run(brim_cli *cli);           // brim sweep GRID
brim_status brim_cli_sweep_status(brim_cli *cli);        // status [PLACE]
brim_status brim_cli_sweep_cancel(brim_cli *cli);        // cancel ID...
brim_status brim_cli_sweep_pause(brim_cli *cli);         // pause ID...
brim_status brim_cli_sweep_resume(brim_cli *cli);        // resume ID...
brim_status brim_cli_sweep_retry(brim_cli *cli);         // retry ID...
brim_status brim_cli_sweep_rerun_failed(brim_cli *cli);  // rerun-failed [PLACE]
brim_status brim_cli_sweep_priority(brim_cli *cli);      // priority ID N
brim_status brim_cli_sweep_drain(brim_cli *cli);         // drain [PLACE] WORKER...
brim_status brim_cli_sweep_undrain(brim_cli *cli);       // undrain [PLACE] WORKER...
brim_status brim_cli_sweep_export(brim_cli *cli);        // export [PLACE]
brim_status brim_cli_sweep_log(brim_cli *cli);           // log ID
brim_status brim_cli_sweep_get(brim_cli *cli);           // get ID [NAME]
brim_status brim_cli_sweep_move(brim_cli *cli);          // move FROM TO
brim_status brim_cli_sweep_stop(brim_cli *cli);          // stop [PLACE]
brim_status brim_cli_sweep_chaos(brim_cli *cli);         // chaos
// Started by the sweep, not by people; they take no options of their own.
brim_status brim_cli_sweep_execute(brim_cli *cli);
brim_status brim_cli_sweep_slurm_task(brim_cli *cli);
brim_status brim_cli_sweep_plan(brim_cli *cli);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_SWEEP_H_
