// The sweep: submits a grid into a store, starts an executor per experiment, and serves the executors
// and other terminals until nothing is left to do. One process per run folder.
//
// Turns are the caller's loop, so that a live view can share it:
//
//   brim_lab_sweep_open(&options, &sweep);
//   brim_lab_sweep_submit(sweep, &grid, points, count, &submitted);
//   while (!done) brim_lab_sweep_turn(sweep, keys, 1, 1000, &done);
//   brim_lab_sweep_close(sweep);
//
// What ends it: nothing queued and nothing running (done), brim_lab_sweep_stop, or a failure. Killed at
// any moment, the next sweep of the same place continues: executors that still run are adopted, what
// ended meanwhile is read from their spool files, everything else is queued again.
#ifndef BRIM_LAB_SWEEP_H_
#define BRIM_LAB_SWEEP_H_

#include <poll.h>

#include "base/base.h"
#include "lab/store/lab_store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_LAB_SWEEP_EXPS "exp"  // experiments: exp/ID12
enum { BRIM_LAB_SHORT_ID = 12 };   // digits of an id in paths and tables

typedef struct brim_lab_sweep brim_lab_sweep;

// Why a sweep came to its end.
typedef enum brim_lab_sweep_end {
  BRIM_SWEEP_RUNS,
  BRIM_SWEEP_ALL_ENDED,     // every experiment is done, failed, cancelled or paused
  BRIM_SWEEP_STOPPED,       // by the user
  BRIM_SWEEP_ALL_FAIL,      // the first experiments failed the same way
  BRIM_SWEEP_NOTHING_FITS,  // what is queued fits nowhere on this machine
  BRIM_SWEEP_END_COUNT
} brim_lab_sweep_end;

// 0 and NULL are the defaults.
typedef struct brim_lab_sweep_options {
  const char *place;    // of the store: a folder or PostgreSQL's URL
  const char *folder;   // of sweep.json, the socket and exp/; NULL = `place`
  const char *program;  // the executor's program (this one)
  const char *const
      *program_words;          // words before the attempt's; NULL = {"sweep", "execute", NULL}
  const char *version;         // of the binary, for the record
  int64_t jobs;                // experiments at once on the CPU (1)
  const char *const *devices;  // where experiments may run, NULL-terminated; NULL = anywhere
  bool share;                  // also GPUs that other programs use
  bool keep_going;             // also when the first experiments fail the same way
  int64_t grace_ms;            // an executor that is asked to stop has this long (60 s)
  brim_store_options store;
  // Something worth a line happened: kind by name ("started", "done", "failed", ...), the experiment
  // or NULL, and what a person reads.
  void (*on_event)(void *ctx, const char *kind, const brim_store_exp *exp, const char *text);
  void *ctx;
} brim_lab_sweep_options;

// BRIM_EEXIST: another sweep has this place.
brim_status brim_lab_sweep_open(const brim_lab_sweep_options *options, brim_lab_sweep **out);
brim_status brim_lab_sweep_submit(brim_lab_sweep *sweep, const brim_store_grid *grid,
                                  const brim_store_point *points, size_t count,
                                  brim_store_submitted *out);
// Places, starts, answers and reaps; waits at most timeout_ms for something to do. `extra` are
// descriptors of the caller, polled too; may be NULL.
brim_status brim_lab_sweep_turn(brim_lab_sweep *sweep, struct pollfd *extra, size_t extra_count,
                                int timeout_ms, bool *done);
// Starts nothing more and asks the executors to stop; their trainings save. Turns continue until `done`.
void brim_lab_sweep_stop(brim_lab_sweep *sweep);
brim_lab_sweep_end brim_lab_sweep_ended(const brim_lab_sweep *sweep);
brim_store *brim_lab_sweep_store(brim_lab_sweep *sweep);
// The folder of an experiment: FOLDER/exp/ID12.
brim_status brim_lab_exp_folder(const char *folder, const char *id, brim_str *out);
// Executors that still run are left alone. NULL is fine.
void brim_lab_sweep_close(brim_lab_sweep *sweep);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_SWEEP_H_
