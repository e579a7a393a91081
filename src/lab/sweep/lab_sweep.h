// The sweep: submits a grid into a store, starts an executor per experiment, and serves the executors
// and other terminals until nothing is left to do. One process per run folder.
//
// The caller runs the loop of turns, so that a live view can share it:
//
//   brim_lab_sweep_open(&options, &sweep);
//   brim_lab_sweep_submit(sweep, &grid, points, count, &submitted);
//   while (!done) brim_lab_sweep_turn(sweep, keys, 1, 1000, &done);
//   brim_lab_sweep_close(sweep);
//
// A sweep ends when nothing is queued and nothing runs, when brim_lab_sweep_stop is called, or after a
// failure. It waits for its user while experiments are left that were paused during it. If it is killed
// at any moment, the next sweep of the same place continues: it adopts executors that still run, reads
// the results of ended executors from their spool files, and queues everything else again.
#ifndef BRIM_LAB_SWEEP_H_
#define BRIM_LAB_SWEEP_H_

#include <poll.h>
#include <stdbool.h>

#include "base/base.h"
#include "lab/slurm/lab_slurm.h"
#include "lab/store/lab_store.h"
#include "record/record_sweep.h"

typedef struct brim_lab_sweep brim_lab_sweep;

// The reason why a sweep ended.
typedef enum brim_lab_end {
  BRIM_LAB_END_NONE,          // it still runs
  BRIM_LAB_END_ALL,           // every experiment is done, failed, cancelled or paused
  BRIM_LAB_END_STOPPED,       // the user stopped it
  BRIM_LAB_END_SAME_FAILURE,  // the first experiments failed the same way
  BRIM_LAB_END_NO_PLACE,      // the queued experiments fit nowhere on this machine
  BRIM_LAB_END_COUNT
} brim_lab_end;

// 0 and NULL select the defaults, which stand in parentheses.
typedef struct brim_lab_sweep_options {
  const char *place;    // required: place of the store (folder or URL), or a server's URL
  const char *folder;   // holds exp/, sweep.json and the socket; NULL = `place`
  const char *title;    // name of the grid, for views
  const char *program;  // required: the executor's program
  const char *version;  // of the binary, for the record
  // More words for the executors' command line, at most 24, NULL-terminated; copied. Used to load
  // plug-ins.
  const char *const *words;
  // Devices and slots, as in brim_lab_place_options. `monitor` is borrowed.
  const char *devices;
  int64_t jobs, per_gpu, cores;
  bool share, no_mps;
  // True if experiments of this workload give the same bits on a part of a GPU's multiprocessors: each
  // experiment then gets its own part through MPS. NULL = no workload does.
  bool (*any_part)(const char *workload);
  // Describes a metric by its name in logs; false: no workload declares the metric. May be NULL.
  bool (*metric)(const char *key, brim_sweep_metric *out);
  struct brim_gpu_monitor *monitor;
  const char *lock_dir;
  bool keep_going;   // continue even if the first experiments fail the same way
  bool serves;       // a worker: waits for more experiments when none is left
  int64_t grace_ms;  // time for a training to stop when asked (60 s)
  int64_t stall_ms;  // this long without progress is a hang (the executor's default)
  brim_store_options store;
  const struct brim_lab_slurm_options *slurm;  // NULL: experiments run on this machine
} brim_lab_sweep_options;

// Options for running experiments as tasks of Slurm's arrays. Borrowed until the sweep is closed.
typedef struct brim_lab_slurm_options {
  brim_slurm_ask ask;
  int64_t nodes;       // nodes of each experiment (1)
  int64_t poll_ms;     // between two looks at Slurm's queue (10 s)
  int64_t timeout_ms;  // time limit of a command of Slurm (60 s)
  int64_t lost_ms;  // longest time until an array appears that sbatch did not answer about (60 s)
} brim_lab_slurm_options;

// Opens the store, serves the socket, sends the spools that executors left, and adopts executors that
// still run. BRIM_EEXIST: another sweep has this place.
brim_status brim_lab_sweep_open(const brim_lab_sweep_options *options, brim_lab_sweep **out);
// Closes the sweep; executors continue to run. NULL is fine.
void brim_lab_sweep_close(brim_lab_sweep *sweep);

brim_status brim_lab_sweep_submit(brim_lab_sweep *sweep, const brim_store_grid *grid,
                                  const brim_store_point *points, size_t count,
                                  brim_store_submitted *out);

// Places and starts experiments, answers requests and reaps executors; waits at most timeout_ms for
// work. `extra`: descriptors of the caller that are polled too; may be NULL. If the store cannot be
// reached, the sweep adds a message and a later turn tries again.
brim_status brim_lab_sweep_turn(brim_lab_sweep *sweep, struct pollfd *extra, size_t extra_count,
                                int timeout_ms, bool *done);
// Starts no more experiments and asks the executors to stop; their trainings save a checkpoint. The
// caller continues with turns until `done`.
void brim_lab_sweep_stop(brim_lab_sweep *sweep);
brim_lab_end brim_lab_sweep_end(const brim_lab_sweep *sweep);

// Returns the state of the sweep and its messages, which are numbered. With `rows`, its experiments
// too; later calls keep them up to date. Valid until the next call.
brim_status brim_lab_sweep_view(brim_lab_sweep *sweep, bool rows, const brim_sweep_view **out);
// True if rows lack details (best value, device, group) that further calls will read.
bool brim_lab_sweep_view_lags(const brim_lab_sweep *sweep);
// Adds a message of the caller: one line in the user's language.
void brim_lab_sweep_say(brim_lab_sweep *sweep, brim_sweep_level level, const char *exp,
                        const char *text);
// Returns the link over the sweep's own store, for requests of the user at the keyboard.
struct brim_lab_link *brim_lab_sweep_link(brim_lab_sweep *sweep);

// --- also for views without a sweep

// Makes the row of an experiment; its texts point into *exp.
void brim_lab_row_of(const brim_store_exp *exp, brim_sweep_row *out);

#endif  // BRIM_LAB_SWEEP_H_
