// How many experiments one GPU should run at once, by measuring. A pure state machine: time and
// progress go in, a limit comes out.
//
// It measures a window at the present limit, raises the limit, and measures again after a warm-up.
// Rates are compared kind by kind: experiments of one kind take the same time for a step. When the
// experiments of the kinds in both windows run at a share f of their earlier rate, and p of them
// run in place of q, joint throughput is f x p / q times what it was. A rise above 5 % keeps the
// limit, and the next trial adds twice as many; otherwise it steps back and tries half as many,
// until one more does not pay. Together slower than before by over 5 %: what was added is to be
// stopped cleanly. Experiments of a kind that was not measured, which come later, start it again
// from half the limit.
#ifndef BRIM_LAB_PLACE_PACK_H_
#define BRIM_LAB_PLACE_PACK_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_LAB_PACK_KINDS = 16, BRIM_LAB_PACK_RETRIES = 8 };

// Steps and time that experiments of one kind had in a window.
typedef struct brim_lab_pack_kind {
  uint64_t kind;
  double steps, seconds;
} brim_lab_pack_kind;

typedef struct brim_lab_pack_window {
  bool valid;
  int64_t start_ms;
  double population;  // experiments, mean over the window
  double stepping;    // of them, those that made steps
  brim_lab_pack_kind kinds[BRIM_LAB_PACK_KINDS];
  size_t kind_count;
} brim_lab_pack_window;

typedef enum brim_lab_pack_phase {
  BRIM_LAB_PACK_WARM,    // experiments start
  BRIM_LAB_PACK_WINDOW,  // a window is measured
  BRIM_LAB_PACK_HOLD,    // the limit is decided
} brim_lab_pack_phase;

typedef struct brim_lab_pack {
  int most;
  int64_t warmup_ms, window_ms;
  int limit;  // how many may run
  int shed;   // how many of those that run should be stopped
  brim_lab_pack_phase phase;
  double gain;  // joint throughput against one alone; NaN before it was measured
  // inside
  int kept;        // limit of the last window that was kept; 0 = none yet
  int step;        // by how much a trial raises it
  bool bracketed;  // a trial failed: steps shrink from there on
  int retries;
  int64_t now_ms, warm_since_ms;
  int jobs, stepping;                // experiments that run; of them, that have made a step
  int peak;                          // most that ran since the warm-up began
  double job_seconds, step_seconds;  // of experiments in the window
  double window_gain;                // `gain` of the window that was kept
  brim_lab_pack_window base, trial;
  uint64_t decided[BRIM_LAB_PACK_KINDS];
  size_t decided_count;
} brim_lab_pack;

// An experiment as packing sees it; its owner keeps it.
typedef struct brim_lab_pack_job {
  uint64_t kind;
  bool stepped;           // past its start
  int64_t time_ms, step;  // up to where it is counted; step < 0: unknown yet
} brim_lab_pack_job;

// auto from 1 up to `most`. With `fixed` the limit is `most`, and nothing is measured.
void brim_lab_pack_init(brim_lab_pack *pack, int most, bool fixed, int64_t warmup_ms,
                        int64_t window_ms);
void brim_lab_pack_joined(brim_lab_pack *pack, brim_lab_pack_job *job, uint64_t kind,
                          int64_t now_ms);
void brim_lab_pack_stepped(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t step,
                           int64_t now_ms);
void brim_lab_pack_left(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t now_ms);
// Time passes. `more`: another experiment waits that could be added.
void brim_lab_pack_tick(brim_lab_pack *pack, int64_t now_ms, bool more);
// Packed experiments failed by the GPU: one at a time from here on.
void brim_lab_pack_stop(brim_lab_pack *pack);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_PLACE_PACK_H_
