// Inside the run room: the logs of a run, its checkpoint files, which of them is best and when there is
// no point in continuing, and what goes wrong in numbers.
#ifndef BRIM_RUN_INT_H_
#define BRIM_RUN_INT_H_

#include "profile/profile_tensorboard.h"
#include "record/record_job.h"
#include "run/run.h"

//---------------------------------- logs (run_log.c) ----------------------------------

// One row per epoch in log.csv and, as {"event": "epoch"}, in log.jsonl; every log.interval steps an
// {"event": "steps"} in log.jsonl. Appended with one write each, so a kill never tears a line. A file
// that reached `rotate` bytes is followed by log.1.csv, log.2.csv and so on, each with the header.
typedef struct brim_run_file {
  const char *folder;  // borrowed
  const char *ext;     // "csv"; NULL = it is off
  const char *header;  // "" = none
  int number;          // of the file that is written; 0 is log.csv
  brim_str waiting;    // rows that could not be written, one a line; tried again with the next one
  int64_t lost;        // rows, since too many waited
  bool failing;        // the last try failed, which was reported
} brim_run_file;

typedef struct brim_run_log {
  brim_run_file csv, jsonl;
  brim_tensorboard *events;  // NULL unless log.tensorboard
  bool events_failing;
  uint64_t rotate;  // 0 = never
  const char *folder;
  uint64_t folder_id[2];  // device and number of the folder that the event files are in
  char header[2048];      // of log.csv
} brim_run_log;

// What is logged: rows of a workload, and how busy the GPU is where it tells something.
typedef struct brim_run_columns {
  const brim_metric_set *metrics;
  bool watches_gpu;
} brim_run_columns;

// A log that cannot be written to (a full disk, a folder in its place) ends no run: this is
// reported once, and its rows wait for the next try. Memory alone is an error of the calls below.

// Opens the logs of a folder. Rows of steps after `start_step` (written by a run that was killed
// later than its last checkpoint) are dropped, so that no step is logged twice; with `ended` also that
// of the epoch which ended with start_step, since it will be reported (again).
brim_status brim_run_log_open(brim_run_log *log, const brim_config *config,
                              const brim_run_columns *columns, const char *folder,
                              int64_t start_step, bool ended);
void brim_run_log_close(brim_run_log *log);
brim_status brim_run_log_epoch(brim_run_log *log, const brim_epoch_report *report, int64_t step);
brim_status brim_run_log_steps(brim_run_log *log, const brim_run_steps *steps);
// Any other line of log.jsonl: {"event": name, "epoch", "step", ...fields}. Consumes `fields`.
brim_status brim_run_log_event(brim_run_log *log, const char *event, int64_t epoch, int64_t step,
                               json_t *fields);

//---------------------------------- metadata (run_best.c) ----------------------------------

// Doubles as strings that read back as the same bits. Getting leaves *out alone where the text is no
// number, or beyond the integers a double holds.
brim_status brim_run_put_double(json_t *object, const char *key, double value);
void brim_run_get_double(const json_t *object, const char *key, double *out);

//---------------------------------- the best (run_best.c) ----------------------------------

typedef struct brim_run_best {
  const brim_metric_set *metrics;
  int by;              // the row of checkpoint.best; -1 = by rank
  bool training;       // by the figures of training, whatever is evaluated
  bool said;           // that another row decides than the one asked for
  const char *wanted;  // checkpoint.best, where no row of this workload is it; NULL = one is
  double values[BRIM_METRIC_MAX];  // of the best epoch: the rows that may decide; NaN = none yet
  int64_t epoch;                   // from 1; 0 = none
  // early stopping: evaluations since the last improvement by more than delta
  int64_t patience, waited;  // patience 0 = off
  double delta, reference;   // higher is better; NaN = none yet
  int row;                   // the last one was decided by; -1 = none was
} brim_run_best;

// checkpoint.best and training.early_stopping_*; BRIM_EINVAL for a metric that no workload has.
brim_status brim_run_best_init(brim_run_best *best, const brim_config *config,
                               const brim_metric_set *metrics);
// Before training: what only an evaluation measures cannot decide where there is none. Then training's
// figures do, which is reported.
void brim_run_best_start(brim_run_best *best, bool evaluates);
// Is this epoch the best so far? `evaluates`: there is a set to evaluate on, so that epochs without an
// evaluation decide nothing.
bool brim_run_best_take(brim_run_best *best, const brim_epoch_report *report, bool evaluates);
bool brim_run_best_stops(const brim_run_best *best);
brim_status brim_run_best_put(const brim_run_best *best, json_t *metadata);
void brim_run_best_get(brim_run_best *best, const json_t *metadata);

//---------------------------------- the folder (run_folder.c) ----------------------------------

// The first line of config.yaml.
#define BRIM_RUN_CONFIG_MARK "# written by brim train: the config of this run, every key"
// BRIM_EEXIST when a file there that a run of this config writes or removes is not brim's. *own: a run
// was here before.
brim_status brim_run_folder_check(const brim_config *config, const char *folder, bool resume,
                                  bool *own);
// Makes it again where it is gone, with a warning; true when it was.
bool brim_run_folder_restore(const char *folder);

//---------------------------------- checkpoint files (run_checkpoint.c) ----------------------------------

// The step in "step-00001234.safetensors"; -1 for any other name.
int64_t brim_run_files_step(const char *name);

typedef struct brim_run_files {
  const char *folder;  // borrowed
  char *last, *best, *model;
  int64_t keep;       // checkpoints besides the best: last, and keep - 1 by their steps
  int64_t last_step;  // that `last` holds; -1 = not known
  brim_time saved_at;
  int64_t save_ns;  // what the last whole checkpoint took
} brim_run_files;

brim_status brim_run_files_init(brim_run_files *files, const brim_config *config,
                                const char *folder);
void brim_run_files_deinit(brim_run_files *files);
enum { BRIM_RUN_CHEAP_NS = 200000000 };  // a checkpoint that takes less is never postponed
// At the end: no two of them are one file, since other programs write into a file where it stands.
void brim_run_files_separate(const brim_run_files *files);
// Is the model there, whole, and of this step?
bool brim_run_files_model_at(const brim_run_files *files, int64_t step);

//---------------------------------- diagnoses (run_train.c) ----------------------------------

typedef struct brim_run_watch {
  brim_work *work;
  brim_run_log *log;
  brim_run_result *result;
  int64_t times[BRIM_WORK_MAX_TROUBLES];  // readings with it
  brim_job *job;                          // what is published; NULL = nothing is
} brim_run_watch;
brim_status brim_run_watch_put(const brim_run_watch *watch, json_t *metadata);
// `skipped`: steps that were skipped before, for a checkpoint that does not say.
void brim_run_watch_get(brim_run_watch *watch, const json_t *metadata, int64_t skipped);

//---------------------------------- out of memory (run_adapt.c) ----------------------------------

enum { BRIM_RUN_ADAPTIONS = 16 };  // that are remembered

typedef struct brim_run_adaption {
  int64_t step, batch, accumulation;  // from this step on
  brim_setting setting;               // of a workload that shrinks on its own, instead of the two
} brim_run_adaption;

typedef struct brim_run_adapt {
  bool frees_optional;      // gpu.on_oom: adapt; what no setting asks for goes first
  bool on;                  // and there is something to adapt besides
  bool shrinks;             // the workload says how
  brim_setting asked;       // by the config
  brim_setting setting;     // as it is now
  int batch, accumulation;  // knobs; -1 = none
  int64_t effective;        // samples of a step, which stay
  int64_t whole;            // what micro-batches have to divide besides; 0 = nothing
  brim_run_adaption made[BRIM_RUN_ADAPTIONS];
  int count;
} brim_run_adapt;

void brim_run_adapt_init(brim_run_adapt *adapt, const brim_work *work, const brim_config *config);
// Before the plan, when training continues from a checkpoint: its micro-batches, if it was adapted,
// and what the workload decided then.
brim_status brim_run_adapt_take(brim_run_adapt *adapt, const brim_work *work, const char *path);
// A setting that fits, and its plan; BRIM_EOOM as brim_work_check_fit when there is none.
brim_status brim_run_adapt_plan(brim_run_adapt *adapt, const brim_work *work,
                                const brim_run_options *options, uint64_t limit, brim_plan *plan);
// Configures, and on BRIM_EOOM again with less. `rebuild` begins with less.
brim_status brim_run_adapt_build(brim_run_adapt *adapt, brim_work *work, int64_t step);
brim_status brim_run_adapt_rebuild(brim_run_adapt *adapt, brim_work *work, int64_t step);
// The next smaller micro-batch that divides a step; false when there is none.
bool brim_run_adapt_next(brim_run_adapt *adapt, const brim_work *work);
// {"event": "adapt"}, and to be kept.
brim_status brim_run_adapt_note(brim_run_adapt *adapt, const brim_work *work, brim_run_log *log,
                                int64_t epoch, int64_t step);
brim_status brim_run_adapt_put(const brim_run_adapt *adapt, const brim_work *work,
                               json_t *metadata);

//---------------------------------- loader and settings ----------------------------------

// The loader's figures while training: of the epoch, of all of it, and transforms that are too slow.
typedef struct brim_run_loader {
  double slow_ms;            // data.slow_transform_ms
  brim_work_loading before;  // when the epoch began
  uint32_t said;             // bits of transforms that were reported
} brim_run_loader;
// Warns when the learning rate is still rising as the run ends, by the epochs (and steps) of the
// config. --max-steps is no such end: what stops there is continued.
void brim_run_warn_warmup(const brim_config *config, int64_t steps_per_epoch);
// The resolved config, as config.yaml in the folder.
brim_status brim_run_write_config(const brim_config *config, const brim_work *work,
                                  const char *folder);

#endif  // BRIM_RUN_INT_H_
