// The chaos test: runs small trainings through sweeps and disturbs them at random, then checks that
// nothing was lost. It starts the program as users do and needs no part of the sweep inside itself.
//
// Rounds of experiments are submitted until the time is over. Meanwhile executors, trainings and the
// sweep are killed and stopped at random moments, and files may not grow for a while, as on a full
// disk. Afterwards the last round runs to its end undisturbed. What must hold: every experiment is done
// with one result, its metrics are those of an undisturbed run, never two trainings of one experiment
// or more than `executors` at once, and no process is left. A sweep that ends because a write failed, and
// says so, starts again.
//
// With `workers`, a server and that many workers take the place of the sweep. They speak HTTP through a
// proxy that drops, delays, repeats and cuts requests and replies; server and workers are killed and
// stopped, too. A worker that was cut off trains what another has taken over until it hears of it, so two
// trainings of one experiment may run at once: in two folders, under two fences, and one result counts.
#ifndef BRIM_LAB_CHAOS_H_
#define BRIM_LAB_CHAOS_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// 0 and NULL are the defaults.
typedef struct brim_lab_chaos_options {
  const char *program;  // required: brim
  const char *folder;   // required: for all files; made where it is not there, and has to be empty
  const char *store;    // a folder or PostgreSQL's URL; NULL = below `folder`
  double seconds;       // how long to disturb (120)
  int64_t executors;    // experiments at once (16); not with `workers`
  int64_t workers;      // over HTTP; 0 = a sweep
  int64_t experiments;  // in all; 0 = rounds until the time is over
  uint64_t seed;        // of the disturbances
  const volatile sig_atomic_t *stop;  // ends it early; may be NULL
  // What happens, a line at a time; may be NULL.
  void (*say)(void *ctx, const char *text);
  void *ctx;
} brim_lab_chaos_options;

#define BRIM_LAB_CHAOS_MAP(X)           \
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

typedef enum brim_lab_chaos_act {
#define X(id, name) BRIM_CHAOS_##id,
  BRIM_LAB_CHAOS_MAP(X)
#undef X
      BRIM_CHAOS_ACT_COUNT
} brim_lab_chaos_act;

const char *brim_lab_chaos_act_name(brim_lab_chaos_act act);

// What the network does to a request.
#define BRIM_LAB_CHAOS_FAULT_MAP(X)   \
  X(DROP_REQUEST, "requests_dropped") \
  X(LATE_REQUEST, "requests_delayed") \
  X(TWICE, "requests_doubled")        \
  X(DROP_REPLY, "replies_dropped")    \
  X(LATE_REPLY, "replies_delayed")    \
  X(CUT_REPLY, "replies_cut")

typedef enum brim_lab_chaos_fault {
#define X(id, name) BRIM_CHAOS_##id,
  BRIM_LAB_CHAOS_FAULT_MAP(X)
#undef X
      BRIM_CHAOS_FAULT_COUNT
} brim_lab_chaos_fault;

const char *brim_lab_chaos_fault_name(brim_lab_chaos_fault fault);

typedef struct brim_lab_chaos_report {
  int64_t rounds, experiments, attempts;
  int64_t acts[BRIM_CHAOS_ACT_COUNT];
  int64_t starts;  // of sweeps, or of servers and workers
  int64_t workers, requests, faults[BRIM_CHAOS_FAULT_COUNT];
  int64_t violations;
  char first[512];  // the first of them
  double seconds;
  uint64_t seed;
} brim_lab_chaos_report;

// BRIM_OK also when something was violated: the report says so. BRIM_EINTERRUPTED: *stop ended it.
brim_status brim_lab_chaos(const brim_lab_chaos_options *options, brim_lab_chaos_report *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_CHAOS_H_
