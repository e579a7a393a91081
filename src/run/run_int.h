// Inside the run room: the logs of a run.
#ifndef BRIM_RUN_INT_H_
#define BRIM_RUN_INT_H_

#include "run/run.h"

// One row per epoch in log.csv and, as {"event": "epoch"}, in log.jsonl; every log.interval steps
// an
// {"event": "steps"} in log.jsonl. Appended with one write each, so a kill never tears a line.
typedef struct brim_run_log {
  char *csv_path, *jsonl_path;  // NULL when log.csv or log.jsonl is false
} brim_run_log;

typedef struct brim_run_steps {
  int64_t epoch, step;  // epoch from 1
  double loss, accuracy, lr, grad_norm;
  double data_s, compute_s;  // per step, means of the interval
  double samples_per_s;
  double loss_scale;  // NaN: not logged
} brim_run_steps;

// Opens the logs of a folder. Rows of steps after `start_step` (written by a run that was killed
// later than its last checkpoint) are dropped, so that no step is logged twice.
brim_status brim_run_log_open(brim_run_log *log, const brim_config *config, const char *folder,
                              int64_t start_step);
void brim_run_log_close(brim_run_log *log);
brim_status brim_run_log_epoch(brim_run_log *log, const brim_epoch_report *report, int64_t step);
brim_status brim_run_log_steps(brim_run_log *log, const brim_run_steps *steps);

// The loader's figures while training: of the epoch, of all of it, and transforms that are too slow.
typedef struct brim_run_loader {
  double slow_ms;            // data.slow_transform_ms
  brim_work_loading before;  // when the epoch began
  uint32_t said;             // bits of transforms that were reported
} brim_run_loader;
void brim_run_loader_init(brim_run_loader *loader, const brim_config *config);
// Since the epoch began; the next begins now. Says (once each) which transforms are slow.
void brim_run_loader_epoch(brim_run_loader *loader, const brim_work *work, brim_run_loading *out);
// Since the setting was built.
void brim_run_loader_all(brim_run_loader *loader, const brim_work *work, brim_run_loading *out);

// What a run was made with goes into its checkpoints as one JSON text ("brim.settings"): every key
// that changes what is learned. Resuming with other values is allowed, and said key by key.
brim_status brim_run_put_settings(const brim_config *config, json_t *metadata);
void brim_run_compare_settings(const brim_config *config, const json_t *metadata, const char *path);

#endif  // BRIM_RUN_INT_H_
