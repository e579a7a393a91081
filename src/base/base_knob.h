// Knobs as rows: a workload declares how its knobs are called and what they are for. Tables, reports and
// advice read the rows; a sweep finds a knob by its role and names none. Callers: workloads
// declare, measure, tune, ui and cli read.
#ifndef BRIM_BASE_KNOB_H_
#define BRIM_BASE_KNOB_H_

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a knob is for, where more than its workload has to know it. A workload has at most one of each.
typedef enum brim_knob_role {
  BRIM_ROLE_NONE,
  BRIM_ROLE_BATCH,         // samples of a micro-batch
  BRIM_ROLE_ACCUMULATION,  // micro-batches of a step
  BRIM_ROLE_WORKERS,       // threads that load
  BRIM_ROLE_PREFETCH,      // batches that each of them may have ready
  BRIM_ROLE_PRECISION,     // of matrix products, by the words of brim_machine_flops
  BRIM_ROLE_PINNED,        // "true": batches lie in page-locked memory
  BRIM_ROLE_GRAPH,         // "true": a step is recorded and launched whole
  BRIM_ROLE_RECOMPUTE,     // activations are computed again in the backward pass
  BRIM_ROLE_THREADS,       // of a CPU, that compute
  BRIM_ROLES
} brim_knob_role;

// A line of the checklist after a sweep, as messages. NULL = the knob has none.
typedef struct brim_knob_check {
  const char *recommended;  // with %s, its value
  const char *none;         // several values were tried, none is recommended
  const char *one;          // only one value was tried: how to try more
  const char *ended;        // several were to be tried, and the sweep ended before the second
} brim_knob_check;

typedef struct brim_knob_row {
  const char *name;     // as settings and records have it: "batch_size"
  const char *label;    // a message: "Batch size"
  const char *heading;  // a message, of a column: "Batch"
  const char *narrow;   // a message, where there is little room: "Work"
  brim_knob_role role;
  bool always;    // shown even where all settings have the same value
  bool overhead;  // what the device needs beside the plan depends on it
  const brim_knob_check *check;
} brim_knob_row;

// The knobs of a workload.
typedef struct brim_knob_set {
  const brim_knob_row *rows;
  size_t count;
  const char
      *less_memory;  // a message: what to change to need less memory; NULL = nothing is known
  bool iterates;     // its step is called an iteration, since an environment has steps too
} brim_knob_set;

// NULL where there is none, and of a set that is NULL.
const brim_knob_row *brim_knob_find(const brim_knob_set *set, const char *name);
const brim_knob_row *brim_knob_find_as(const brim_knob_set *set, brim_knob_role role);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_KNOB_H_
