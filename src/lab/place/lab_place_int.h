// Inside placement: the lock of a GPU between sweeps, NVIDIA's MPS between experiments, and
// packing, which measures how many experiments a GPU should run at once. Tests include it too.
#ifndef BRIM_LAB_PLACE_INT_H_
#define BRIM_LAB_PLACE_INT_H_

#include "lab/place/lab_place.h"

//---------------------------------- the lock of a GPU (lab_place.c) ----------------------------------
// The lock excludes other sweeps of this machine, whatever their store or user:
// FOLDER/brim-gpu-UUID.lock, which anyone may open and no one removes. The kernel holds it (flock)
// while one process has the descriptor open, so executors that inherited the descriptor keep the
// lock after their sweep has ended. The file names the holder, for people and for the next sweep:
// "brim-gpu PID UID STORE\n".

typedef struct brim_lab_place_holder {
  int64_t pid;  // 0 = unknown
  char user[64];
  char store[512];
} brim_lab_place_holder;

// Takes the lock without waiting. BRIM_EEXIST: another process has it, and *holder says which. The
// caller closes *fd; the lock ends with its last descriptor.
brim_status brim_lab_place_lock(const char *folder, const char *uuid, const char *store, int *fd,
                                brim_lab_place_holder *holder);
// BRIM_OK if the lock could be taken now.
brim_status brim_lab_place_lock_probe(const char *folder, const char *uuid,
                                      brim_lab_place_holder *holder);

// Updates the file's time, so that cleaners of old files leave it.
void brim_lab_place_lock_touch(int fd);

//---------------------------------- packing ----------------------------------
// A pure state machine that measures how many experiments one GPU should run at once: time and
// progress go in, a limit comes out.
//
// Packing measures a window at the present limit, raises the limit, and measures again after a warm-up.
// Rates are compared per kind: experiments of one kind take the same time for a step. f = step rate
// in the new window divided by the rate in the old one, over the kinds that ran in both. With q
// experiments before and p now, joint throughput changes by the factor f * p / q. A rise above 5 % keeps
// the limit, and the next trial adds twice as many. Otherwise the limit steps back and the next
// trial adds half as many, until one more experiment does not pay. A trial that slows the GPU by
// over 5 % asks for the added experiments to be stopped. An experiment of a kind that was not
// measured starts the climb again from half the limit.

enum { BRIM_LAB_PACK_KINDS = 16, BRIM_LAB_PACK_RETRIES = 8 };

// Steps and time that experiments of one kind had in a window.
typedef struct brim_lab_pack_kind {
  uint64_t kind;
  double steps, seconds;
} brim_lab_pack_kind;

typedef struct brim_lab_pack_window {
  bool valid;
  int64_t start_ms;
  double mean_jobs;  // experiments, mean over the window
  double stepping;   // of them, those that made steps
  brim_lab_pack_kind kinds[BRIM_LAB_PACK_KINDS];
  size_t kind_count;
} brim_lab_pack_window;

typedef enum brim_lab_pack_phase {
  BRIM_LAB_PACK_WARM,    // experiments start
  BRIM_LAB_PACK_WINDOW,  // a window is measured
  BRIM_LAB_PACK_HOLD,    // the limit is decided
} brim_lab_pack_phase;

typedef struct brim_lab_pack {
  int max_limit;  // upper bound of `limit`
  int64_t warmup_ms, window_ms;
  int limit;  // how many may run
  int shed;   // how many of those that run should be stopped
  brim_lab_pack_phase phase;
  double gain;  // joint throughput against one alone; NaN before it was measured
  // internal
  int kept;        // limit of the last window that was kept; 0 = none yet
  int increment;   // by how much the next trial raises the limit
  bool bracketed;  // a trial failed: steps shrink from there on
  // Times that a new kind restarted the search, or that a window was repeated because no kind ran in
  // both; at most BRIM_LAB_PACK_RETRIES.
  int restarts;
  int64_t now_ms, warm_since_ms;
  int jobs, stepping;                // experiments that run; of them, that have made a step
  int peak;                          // most that ran since the warm-up began
  double job_seconds, step_seconds;  // of experiments in the window
  double window_gain;                // `gain` of the window that was kept
  brim_lab_pack_window base, trial;
  uint64_t measured_kinds[BRIM_LAB_PACK_KINDS];  // a kind that is not in it restarts the search
  size_t measured_kind_count;
} brim_lab_pack;

// An experiment as packing sees it; its owner keeps it.
typedef struct brim_lab_pack_job {
  uint64_t kind;
  bool stepped;           // past its start
  int64_t time_ms, step;  // up to where it is counted; step < 0: unknown yet
} brim_lab_pack_job;

// Starts to search the limit from 1 up to `most`. With `fixed` the limit is `most`, and nothing is
// measured.
void brim_lab_pack_init(brim_lab_pack *pack, int most, bool fixed, int64_t warmup_ms,
                        int64_t window_ms);
void brim_lab_pack_joined(brim_lab_pack *pack, brim_lab_pack_job *job, uint64_t kind,
                          int64_t now_ms);
void brim_lab_pack_stepped(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t step,
                           int64_t now_ms);
void brim_lab_pack_left(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t now_ms);
// Time passes. `more`: another experiment waits that could be added.
void brim_lab_pack_tick(brim_lab_pack *pack, int64_t now_ms, bool more);
// Call when packed experiments failed because of the GPU. Limits it to one experiment from now on.
void brim_lab_pack_stop(brim_lab_pack *pack);

#endif  // BRIM_LAB_PLACE_INT_H_
