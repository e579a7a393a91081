// The chaos test: runs small trainings through sweeps and disturbs them at random, then checks that
// nothing was lost. It starts the program as users do, and reads the store afterwards.
//
// The test submits rounds of experiments until its time is over. Meanwhile it kills and stops
// executors, trainings and the sweep at random moments, and sometimes limits the size of files, as a
// full disk does. The last round runs to its end undisturbed. Then every experiment must be done with
// one result and with the metrics of an undisturbed run. Two trainings of one experiment, or more than
// `executors` executors, must never run at once, and no process may be left. A sweep that ends with the
// message that a write failed is started again.
//
// With `workers`, a server and that many workers replace the sweep. They speak HTTP through a proxy
// that drops, delays, repeats and cuts requests and replies; the test kills and stops the server and
// the workers too. A worker that was cut off continues its experiment until it learns that another
// worker has taken over. So two trainings of one experiment may run at once: in two folders, under two
// fences, and only one result counts.
#ifndef BRIM_CHAOS_H_
#define BRIM_CHAOS_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "brim/status.h"

// 0 and NULL select the defaults, which stand in parentheses.
typedef struct brim_chaos_options {
  const char *program;  // required: the program brim
  const char *folder;   // required: for all files; created if it is missing, and must be empty
  const char *store;    // a folder or PostgreSQL's URL; NULL = below `folder`
  double seconds;       // how long to disturb (120)
  int64_t executors;    // experiments at once (16); not with `workers`
  int64_t workers;      // workers that use HTTP; 0 = a sweep
  int64_t experiments;  // all experiments; 0 = rounds until the time is over
  uint64_t seed;        // seed of the disturbances
  const volatile sig_atomic_t *stop;  // non-zero ends the test early; may be NULL
  // Gets a line about each step of the test; may be NULL.
  void (*say)(void *ctx, const char *text);
  void *ctx;
} brim_chaos_options;

#define BRIM_CHAOS_ACT_MAP(X)           \
  X(KILL_EXECUTOR, "executors_killed")  \
  X(STOP_EXECUTOR, "executors_stopped") \
  X(KILL_TRAINING, "trainings_killed")  \
  X(KILL_SWEEP, "sweeps_killed")        \
  X(STOP_SWEEP, "sweeps_stopped")       \
  X(END_SWEEP, "sweeps_interrupted")    \
  X(FULL_DISK, "full_disks")            \
  X(KILL_WORKER, "workers_killed")      \
  X(STOP_WORKER, "workers_stopped")     \
  X(END_WORKER, "workers_interrupted")  \
  X(KILL_SERVER, "servers_killed")      \
  X(STOP_SERVER, "servers_stopped")     \
  X(END_SERVER, "servers_interrupted")

typedef enum brim_chaos_act {
#define X(id, name) BRIM_CHAOS_##id,
  BRIM_CHAOS_ACT_MAP(X)
#undef X
      BRIM_CHAOS_ACT_COUNT
} brim_chaos_act;

const char *brim_chaos_act_name(brim_chaos_act act);

// Faults of the network; each concerns one request.
#define BRIM_CHAOS_FAULT_MAP(X)       \
  X(DROP_REQUEST, "requests_dropped") \
  X(LATE_REQUEST, "requests_delayed") \
  X(TWICE, "requests_doubled")        \
  X(DROP_REPLY, "replies_dropped")    \
  X(LATE_REPLY, "replies_delayed")    \
  X(CUT_REPLY, "replies_cut")

typedef enum brim_chaos_fault {
#define X(id, name) BRIM_CHAOS_##id,
  BRIM_CHAOS_FAULT_MAP(X)
#undef X
      BRIM_CHAOS_FAULT_COUNT
} brim_chaos_fault;

const char *brim_chaos_fault_name(brim_chaos_fault fault);

typedef struct brim_chaos_report {
  int64_t rounds, experiments, attempts;
  int64_t acts[BRIM_CHAOS_ACT_COUNT];
  int64_t starts;  // starts of sweeps, or of the server and workers
  int64_t workers, requests, faults[BRIM_CHAOS_FAULT_COUNT];
  int64_t violations;
  char first[512];  // the first violation
  double seconds;
  uint64_t seed;
} brim_chaos_report;

// Returns BRIM_OK also if there were violations, which the report counts. BRIM_EINTERRUPTED: *stop
// ended the test.
brim_status brim_chaos_run(const brim_chaos_options *options, brim_chaos_report *out);

#endif  // BRIM_CHAOS_H_
