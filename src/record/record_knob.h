// Knobs as rows: a workload declares names, labels and roles of its knobs. Tables, reports and advice read the
// rows; tuning finds a knob by its role, never by its name.
#ifndef BRIM_RECORD_KNOB_H_
#define BRIM_RECORD_KNOB_H_

#include <stdbool.h>
#include <stddef.h>

// The purpose of a knob, if code outside its workload needs it. A workload has at most one knob of each role.
typedef enum brim_knob_role {
  BRIM_ROLE_NONE,
  BRIM_ROLE_BATCH,         // samples of a micro-batch
  BRIM_ROLE_ACCUMULATION,  // micro-batches of a step
  BRIM_ROLE_WORKERS,       // threads that load data
  BRIM_ROLE_PREFETCH,      // batches that each loader thread prepares ahead
  BRIM_ROLE_PRECISION,     // precision of matrix products, named as in brim_machine_flops
  BRIM_ROLE_PINNED,        // "true": batches are in page-locked memory
  BRIM_ROLE_GRAPH,         // "true": a step is recorded and launched whole
  BRIM_ROLE_RECOMPUTE,     // activations are recomputed in the backward pass
  BRIM_ROLE_THREADS,       // CPU threads that compute
  BRIM_ROLES
} brim_knob_role;

// Messages for the checklist after a sweep. NULL = no line.
typedef struct brim_knob_check {
  const char *recommended;  // a value is recommended: %s
  const char *none;         // several values were tried and none is recommended
  const char *one;          // only one value was tried: says how to try more
  const char *ended;        // the sweep ended before the second value
} brim_knob_check;

typedef struct brim_knob_row {
  const char *name;     // name in settings and records: "batch_size"
  const char *label;    // a message: "Batch size"
  const char *heading;  // a message, for a column: "Batch"
  const char *narrow;   // a message, for a narrow column: "Work"
  brim_knob_role role;
  bool always;    // show it even if all settings have the same value
  bool overhead;  // the knob changes device memory that the plan does not count
  const brim_knob_check *check;
} brim_knob_row;

// The knobs of a workload.
typedef struct brim_knob_set {
  const brim_knob_row *rows;
  size_t count;
  const char
      // a message that says what to change to need less memory; NULL = nothing is known
      *less_memory;
  bool iterates;  // its step is called an iteration, since an environment has steps too
} brim_knob_set;

// Both return NULL if the set has no such knob, or if `set` is NULL.
const brim_knob_row *brim_knob_find(const brim_knob_set *set, const char *name);
const brim_knob_row *brim_knob_find_as(const brim_knob_set *set, brim_knob_role role);

#endif  // BRIM_RECORD_KNOB_H_
