// The state of a training run, which its files share: run_train.c is the loop, run_checkpoint.c what it
// leaves and continues from, run_train.c what it tells of itself on the way.
#ifndef BRIM_RUN_LOOP_H_
#define BRIM_RUN_LOOP_H_

#include "monitor/monitor_job.h"
#include "profile/profile.h"
#include "run/run_int.h"

// A checkpoint on its way to its files. What its thread changes is looked at after it is joined, but for
// `written`.
typedef struct brim_run_saver {
  bool busy;  // there is something to wait for
  brim_thread *thread;
  brim_work_held held;
  brim_run_files files;  // the loop's when it began
  int64_t step;
  bool best, last;  // which of the files
  brim_time start;
  int written;  // by __atomic_*: the thread is done
  brim_status status;
  char why[1024];
} brim_run_saver;

typedef struct brim_run_loop {
  brim_work *work;
  brim_comm *comm;           // the workload's; NULL = one rank
  sig_atomic_t agreed_stop;  // with ranks: one of them was told to stop
  const brim_config *config;
  const brim_run_options *options;
  brim_run_result *result;
  brim_run_log log;
  brim_phase_timer timer;
  brim_work_info info;
  int64_t epochs, interval, log_interval, eval_interval;
  int64_t limit;        // optimiser steps; 0 = none
  int64_t first_step;   // where this process began
  int64_t epoch, step;  // epoch from 0, steps made
  bool save_due;        // checkpoint.interval asks for a checkpoint of the last step
  bool ended;           // all steps of `epoch` are made, its evaluation is not
  bool caught_up;       // this process evaluated an epoch that another made
  bool evaluated;       // this process evaluated an epoch
  bool torn;            // it is being built again: only last.safetensors has its state
  brim_run_best best;
  brim_run_files files;
  brim_run_saver saver;
  brim_run_watch watch;
  brim_run_adapt adapt;
  bool adapting;  // with no checkpoint of it yet: has it helped?
  brim_run_adapt before_adapting;
  double last_lr;
  brim_fs_lockfile *lock;  // two runs in one folder would write over each other

  // since the epoch, the log interval and the progress line began
  brim_time epoch_start, log_start, progress_start;
  int64_t epoch_ns, epoch_samples;  // training time only: evaluation and saving do not count
  int64_t log_samples, log_steps, progress_samples, progress_steps;
  double sums[BRIM_WORK_MAX_SUMS];      // of the epoch
  double log_sums[BRIM_WORK_MAX_SUMS];  // of the log interval
  double last[BRIM_METRIC_MAX];         // values as last read: those of the last step stay so
  int64_t log_bad;
  int64_t updated;       // the last step that had an effect
  bool searching;        // skipped steps mean nothing yet
  double epoch_skipped;  // skipped steps when the epoch began
  brim_run_loader loader;
  double train_seconds;
  brim_time began;  // this process's run
  int64_t train_samples;
  // what is published, since it was last (run_train.c); publisher NULL = nothing is
  brim_job_publisher *publisher;
  brim_job job;
  brim_time publish_time;
  double publish_seconds;
  int64_t publish_samples, publish_step;
} brim_run_loop;

//---------------------------------- ranks (run_ranks.c) ----------------------------------
// All ranks call these at the same place; with one rank they change nothing.

bool brim_run_writes(const brim_run_loop *l);  // files, logs, reports: the first rank
// After a step: one rank's stop is all ranks'.
brim_status brim_run_agree_stop(brim_run_loop *l);
bool brim_run_stopped(const brim_run_loop *l);
// The first rank's decision, figures or path for all.
brim_status brim_run_decide(const brim_run_loop *l, bool *decision);
brim_status brim_run_decide_metrics(const brim_run_loop *l, brim_work_metrics *m);
brim_status brim_run_decide_path(const brim_run_loop *l, char **path);
// Before the first step: ranks with other configs or data would wait for each other for ever, or train
// apart from each other. The rank that differs from the first one fails.
brim_status brim_run_check_same(const brim_run_loop *l);

//---------------------------------- checkpoints (run_checkpoint.c) ----------------------------------

// The state as it is now to these files, by another thread; waits for what is still being written.
brim_status brim_run_save(brim_run_loop *l, bool best, bool last);
// Whole and in its place on return, what was being written too. An error is that of a write: which step
// is not saved, and which is.
brim_status brim_run_save_wait(brim_run_loop *l);
brim_status brim_run_save_poll(brim_run_loop *l);  // the same of what is done, without waiting
// May the end of an epoch go without a checkpoint (brim_run_files_young)?
bool brim_run_save_postponed(const brim_run_loop *l);
brim_status brim_run_save_now(brim_run_loop *l);  // the newest checkpoint
brim_status brim_run_save_model(brim_run_loop *l);
// Before the run returns with `status`: nothing is being written any more.
brim_status brim_run_save_end(brim_run_loop *l, brim_status status);
// The checkpoint to continue from, for brim_free; NULL = from the start.
brim_status brim_run_resume_path(const brim_run_loop *l, char **path);
brim_status brim_run_resume(brim_run_loop *l, const char *path);

#endif  // BRIM_RUN_LOOP_H_
