// A profile: where the time of a step went, by kernel, op, layer, phase and transform, what the GPU
// waited for, and what lay in memory. Made by measure, shown by ui; trace files are written from
// profile/profile_trace.h. Unknown is null in JSON (NaN here), never 0.
//
// brim.profile/1, one JSON object:
//   schema "brim.profile/1"
//   result  the step as measured without tracing, as brim.result/1: what, where, phases, total,
//           memory, plan, machine, findings
//   source  "cupti": the GPU's own records | "events": a device's events around each op, run one by
//           one and scaled to the step | "clock": the host's clock around each op
//   note    why it is not a better source, or what it cannot see, in English; "" = nothing to say.
//           note_words: with its values, for other languages (base_words.h)
//   step    {ms, mad_ms, traced_ms, traced_steps}   untraced (median), and in the traced window
//   kernels, ops, layers, phases, transforms   lists, the largest first, of
//           {name, kind, op, layer, phase, count, ms, total_ms, share, flops, bytes, ceiling,
//            ceiling_share}
//           kind: "kernel", "copy", "memset", "op", "layer", "phase", "transform", "gap" (nothing ran
//           on the GPU), "host" (a phase of the host outside the ops), "other" (ops that could not be
//           told apart)
//           count, ms, total_ms, flops, bytes: per step. total_ms: its own time; ms: the part of it that the
//           step took, where time that rows share counts once. The ms of a list add up to the step, except for
//           transforms, which run in workers beside the step.
//           share: ms / the step's ms; for transforms total_ms / the sum of their total_ms.
//           ceiling: "fp32", "tf32", "bf16", "fp16" (products) or "copy" (memory), which limits it;
//           "in cache": faster than memory, ceiling_share unknown;
//           ceiling_share: how close it came, 1 = all of it
//   gaps    {ms, share, causes: [{cause, ms, count}], longest: [{cause, ms, step, at_ms, before, after}]}
//           no kernel ran; ms and count per step; null where there is no GPU. With cause "transfer" a copy
//           ran, which has its own row in the lists; the other causes have rows of kind "gap". The extra
//           time of a traced step is not counted
//   transfer {ms, exposed_ms, bytes, pageable_bytes}   host to device, per step; exposed: no kernel ran
//   workers {count, io_ms, transform_ms}   of the loader, per step, over all of them
//   memory  {arena_bytes, fixed_bytes, peak_bytes, peak, points: [{op, layer, phase, bytes}],
//            blocks: [{name, kind, bytes, offset, first, last}]}
//           points: one per op of a step, in order; bytes: of the arena in use while it runs
//           blocks: what lies in the arena, from op `first` to op `last`; kind "activation",
//           "gradient", "statistic", "workspace". peak: index of the op with most. fixed_bytes: what
//           the plan has on the device besides (result.plan.rows)
//   sums    [{list, ms, percent}]   a list's ms added up, and 100 x that / step.ms
//   cost    {seconds, attach_s, window_s, extra_ms, run_percent}   cost of measuring. seconds: all of
//           it; attach_s: attaching the tracer; window_s: the traced window; extra_ms: traced step less
//           untraced step; run_percent: the window's extra time in % of a run of 1,000 steps
#ifndef BRIM_RECORD_PROFILE_H_
#define BRIM_RECORD_PROFILE_H_

#include "record/record.h"

#define BRIM_PROFILE_SCHEMA "brim.profile/1"

// Lists of rows, by their keys.
#define BRIM_PROFILE_LIST_MAP(X) \
  X(KERNELS, "kernels")          \
  X(OPS, "ops")                  \
  X(LAYERS, "layers")            \
  X(PHASES, "phases")            \
  X(TRANSFORMS, "transforms")

typedef enum brim_profile_list {
#define X(id, key) BRIM_PROFILE_##id,
  BRIM_PROFILE_LIST_MAP(X)
#undef X
      BRIM_PROFILE_LIST_COUNT
} brim_profile_list;
const char *brim_profile_list_key(brim_profile_list list);

// Why the GPU had nothing to do before the next kernel.
#define BRIM_GAP_MAP(X)                                                  \
  X(HOST, "host_wait")        /* the host had not enqueued the kernel */ \
  X(SYNC, "sync")             /* the host waited for the GPU */          \
  X(INPUT, "input")           /* the host waited for data */             \
  X(LAUNCH, "launch")         /* the kernel was enqueued, and begins */  \
  X(DEPENDENCY, "dependency") /* the kernel waited for other work */     \
  X(TRANSFER, "transfer")     /* only a copy ran */                      \
  X(UNKNOWN, "unknown")

typedef enum brim_gap_cause {
#define X(id, key) BRIM_GAP_##id,
  BRIM_GAP_MAP(X)
#undef X
      BRIM_GAP_COUNT
} brim_gap_cause;
const char *brim_gap_key(brim_gap_cause cause);

typedef struct brim_profile_row {
  char name[192];
  char kind[16];
  char op[48], layer[96], phase[16];  // what the row belongs to; "" = none or unknown
  double count, ms, total_ms, share;
  double flops, bytes;
  char ceiling[16];  // "" = unknown
  double ceiling_share;
} brim_profile_row;

typedef struct brim_profile_rows {
  brim_profile_row *items;
  size_t count, capacity;
} brim_profile_rows;

enum { BRIM_PROFILE_MAX_GAPS = 16 };
typedef struct brim_profile_gap {
  brim_gap_cause cause;
  double ms;
  int step;         // of the window, from 0; -1 = unknown
  double at_ms;     // since the window began
  char before[96];  // the kernel or copy that ended before it; "" = none
  char after[96];
} brim_profile_gap;

typedef struct brim_profile_point {
  char op[48], layer[96], phase[16];
  double bytes;
} brim_profile_point;

typedef struct brim_profile_block {
  char name[96], kind[16];
  double bytes, offset;
  int first, last;  // points
} brim_profile_block;

typedef struct brim_profile_memory {
  double arena_bytes, fixed_bytes, peak_bytes;  // NaN = unknown
  int peak;                                     // of the points; -1 = none
  brim_profile_point *points;
  size_t point_count;
  brim_profile_block *blocks;
  size_t block_count;
} brim_profile_memory;

typedef struct brim_profile {
  brim_result result;
  char source[16];
  char note[256];  // base_words.h
  double step_ms, step_mad_ms, traced_ms;
  int traced_steps;
  brim_profile_rows lists[BRIM_PROFILE_LIST_COUNT];
  bool has_gaps;  // there is a GPU and its records were read
  double gap_ms;
  double cause_ms[BRIM_GAP_COUNT], cause_count[BRIM_GAP_COUNT];  // per step; NaN = unknown
  brim_profile_gap gaps[BRIM_PROFILE_MAX_GAPS];                  // the longest first
  size_t gap_count;
  double h2d_ms, h2d_exposed_ms, h2d_bytes, h2d_pageable_bytes;
  // Exchange between ranks per step: its whole time, and the part that the step waited for. NaN for one rank.
  int ranks;             // ranks that exchange; 0 if the run has one rank
  char exchange_by[16];  // name of the communicator: "nccl", "shm", "mpi"
  double exchange_ms, exchange_exposed_ms, exchange_bytes;
  int workers;
  double worker_io_ms, worker_transform_ms;
  brim_profile_memory memory;
  double sum_ms[BRIM_PROFILE_LIST_COUNT];  // NaN where a list is empty
  double seconds, attach_s, window_s, extra_ms, run_percent;
} brim_profile;

void brim_profile_init(brim_profile *profile);  // unknowns NaN
void brim_profile_deinit(brim_profile *profile);
// Adds a row with everything unknown; NULL without memory.
brim_profile_row *brim_profile_add(brim_profile *profile, brim_profile_list list);
// Computes shares and sums, and sorts all lists (most ms first; transforms by total_ms).
void brim_profile_finish(brim_profile *profile);
// 100 x the list's ms / the step; NaN = unknown.
double brim_profile_sum_percent(const brim_profile *profile, brim_profile_list list);
// Indices of the blocks that are alive at a point, the largest first. Returns how many there are; `out` has room for
// `most`.
size_t brim_profile_alive(const brim_profile *profile, int point, size_t *out, size_t most);

brim_status brim_profile_to_json(const brim_profile *profile, json_t **out);
// `name` for messages.
brim_status brim_profile_from_json(const json_t *value, const char *name, brim_profile *out);

//---------------------------------- memory alone ----------------------------------

// What lies in device memory during a step, as one JSON object for other programs. The page of a profile
// shows the same.
//
// brim.memory/1:
//   schema "brim.memory/1" | when (ISO 8601) | workload, description, device, setting {knob: value}
//   plan    [{name, place, bytes}]   all that brim asks for; "device" or "host"
//   overhead_bytes   what context and libraries take besides; null = unknown, or no GPU
//   arena_bytes, fixed_bytes, peak_bytes, peak   as in brim.profile/1
//   ops     [{op, layer, phase, bytes, owners: [index of a block, ...]}]   in the order of a step; owners:
//           the blocks that are alive while it runs, the largest first
//   blocks  [{name, kind, bytes, offset, first, last}]   offset: in the arena; from op `first` to `last`
#define BRIM_SNAPSHOT_SCHEMA "brim.memory/1"

brim_status brim_snapshot_to_json(const brim_profile *profile, json_t **out);

#endif  // BRIM_RECORD_PROFILE_H_
