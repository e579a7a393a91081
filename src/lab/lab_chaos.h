// The chaos test: runs small trainings through sweeps and disturbs them at random, then checks that
// nothing was lost. It starts the program as users do and needs no part of the sweep inside itself.
//
// Rounds of experiments are submitted until the time is over. Meanwhile executors, trainings and the
// sweep are killed and stopped at random moments, and files may not grow for a while, as on a full
// disk. Afterwards the last round runs to its end undisturbed. What must hold: every experiment is done
// with one result, its metrics are those of an undisturbed run, never two trainings of one experiment
// or more than `executors` at once, and no process is left.
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
  int64_t executors;    // experiments at once (16)
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
  X(FULL_DISK, "full_disks")

typedef enum brim_lab_chaos_act {
#define X(id, name) BRIM_CHAOS_##id,
  BRIM_LAB_CHAOS_MAP(X)
#undef X
      BRIM_CHAOS_ACT_COUNT
} brim_lab_chaos_act;

const char *brim_lab_chaos_act_name(brim_lab_chaos_act act);

typedef struct brim_lab_chaos_report {
  int64_t rounds, experiments, attempts;
  int64_t acts[BRIM_CHAOS_ACT_COUNT];
  int64_t starts;  // of sweeps
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
