// The trace of some steps: a flat list of events on the GPU and on the host with their times, and the files of a
// trace. Callers: measure fills a trace and makes a profile of it; tune writes the files.
#ifndef BRIM_PROFILE_TRACE_H_
#define BRIM_PROFILE_TRACE_H_

#include "record/record_profile.h"

typedef enum brim_trace_kind {
  BRIM_TRACE_KERNEL,
  BRIM_TRACE_COPY,
  BRIM_TRACE_MEMSET,
  BRIM_TRACE_SYNC,       // the host waited for the GPU
  BRIM_TRACE_HOST_OP,    // an op that the host ran or enqueued
  BRIM_TRACE_TRANSFORM,  // a transform in a worker of the loader
  BRIM_TRACE_PHASE,      // a phase of the step, by the host's clock
  BRIM_TRACE_STEP,       // a whole step
  BRIM_TRACE_KIND_COUNT
} brim_trace_kind;
// "kernel", "copy", ...
const char *brim_trace_kind_key(brim_trace_kind kind);

typedef enum brim_trace_copy {
  BRIM_TRACE_COPY_NONE,  // no copy, or a copy of unknown direction
  BRIM_TRACE_COPY_H2D,
  BRIM_TRACE_COPY_D2H,
  BRIM_TRACE_COPY_D2D
} brim_trace_copy;

// Texts belong to the trace. Times are since the trace began.
typedef struct brim_trace_event {
  brim_trace_kind kind;
  const char *name;
  int64_t start_ns, end_ns;
  int32_t device;  // -1 = the host
  int32_t stream;  // of the device; on the host the thread: 0 runs the steps, 1 and up are workers
  uint32_t correlation;    // of the launch that started it; 0 = unknown
  const char *op, *layer;  // that the event belongs to; NULL = none or unknown
  brim_phase phase;        // BRIM_PHASE_COUNT = unknown
  int32_t step;            // of the window, from 0; -1 = unknown
  uint64_t bytes;          // of copies and memsets; for ops the least that they have to move
  double flops;            // of ops; NaN = unknown
  brim_trace_copy copy;
  bool pageable;               // a copy from or to memory of the host that is not page-locked
  uint32_t grid[3], block[3];  // of a kernel; 0 = unknown
} brim_trace_event;

typedef struct brim_trace {
  brim_trace_event *events;  // by start
  size_t count, capacity;
  char device[128];     // its name; "" = none
  double begin_unix_s;  // when the trace began; NaN = unknown
  int64_t wall_ns;      // length of the window
  int32_t steps;
  brim_arena *texts;  // NULL until there is one
  // A hash table of the texts; each is kept once.
  const char **text_table;
  size_t text_count, text_capacity;
} brim_trace;

void brim_trace_init(brim_trace *trace);
void brim_trace_deinit(brim_trace *trace);
// Copies a text into the trace; equal texts share one pointer. NULL for NULL, or without memory.
const char *brim_trace_text(brim_trace *trace, const char *text);
// Adds an event with everything unknown; NULL without memory.
brim_trace_event *brim_trace_add(brim_trace *trace, brim_trace_kind kind, const char *name);
void brim_trace_sort(brim_trace *trace);  // by start, longer ones first

//---------------------------------- Chrome trace ----------------------------------

// A trace as a file in the Chrome trace format (object form), for Perfetto, chrome://tracing and
// Holistic Trace Analysis. Written whole or not at all; compressed where the name ends in ".gz".
//
// {"schemaVersion", "displayTimeUnit": "ms", "baseTimeNanoseconds", "distributedInfo": {"rank": 0},
//  "deviceProperties": [{"id", "name"}], "traceEvents": [...]}
// ts and dur are microseconds with three digits behind the point, since the trace began. A GPU is a
// process (pid = its number) and a stream a track of it (tid = its number). The host is the process
// BRIM_CHROME_HOST; its tracks are threads, 0 = that of the steps. Events that overlap on a
// track without nesting go to another track: tid + n * BRIM_CHROME_LANE.
// Categories: kernel, gpu_memcpy, gpu_memset; cuda_runtime and cuda_driver (calls, by their names),
// cuda_sync, cpu_op (ops and transforms), user_annotation (phases; steps as ProfilerStep#N).
// A flow "ac2g" leads from a call or op to the first work of a GPU with its correlation.
enum { BRIM_CHROME_HOST = 1000, BRIM_CHROME_LANE = 100000 };

// With `memory` the ops of the host that match its points also give a counter of bytes in use. It may be NULL.
brim_status brim_chrome_write(const brim_trace *trace, const brim_profile_memory *memory,
                              const char *path);

//---------------------------------- TensorBoard ----------------------------------

// A trace as scalars by step, in TensorBoard event files: profile/step_ms, profile/phase_ms/PHASE and, of a GPU,
// profile/gpu_busy_ms (time in which anything ran), profile/kernels, profile/h2d_ms, profile/d2h_ms. Steps count from
// 1. Makes the folder, and replaces the files of an earlier trace in it.
brim_status brim_scalars_write(const brim_trace *trace, const char *folder);

#endif  // BRIM_PROFILE_TRACE_H_
