// Finds where the time of a step went: spans add up nanoseconds per phase, and traces record the work of a GPU (by
// CUPTI, in cupti/). Callers: run, measure.
#ifndef BRIM_PROFILE_H_
#define BRIM_PROFILE_H_

#include "profile/profile_trace.h"

#define BRIM_PHASE_TIMER_DEPTH 8

// Sums host time per phase. Only the innermost of nested spans counts, so the phases never add up to more than the wall
// clock. Only the thread that runs the step may use it.
typedef struct brim_phase_timer {
  int64_t ns[BRIM_PHASE_COUNT];
  bool used[BRIM_PHASE_COUNT];
  int64_t busy_ns[BRIM_PHASE_COUNT], moved_ns[BRIM_PHASE_COUNT];  // -1 = unknown
  struct {
    brim_phase phase;
    int64_t start_ns;
  } stack[BRIM_PHASE_TIMER_DEPTH];
  int depth;
  brim_spans spans;  // pass &timer.spans to the step
} brim_phase_timer;

void brim_phase_timer_init(brim_phase_timer *timer);
void brim_phase_timer_reset(brim_phase_timer *timer);  // zero the sums; open spans continue
int64_t brim_phase_timer_sum(const brim_phase_timer *timer);
// Shares of `total_ns`; time outside spans is BRIM_PHASE_OTHER.
void brim_phase_timer_shares(const brim_phase_timer *timer, int64_t total_ns,
                             double share[BRIM_PHASE_COUNT]);

//---------------------------------- traces of a GPU ----------------------------------

// This process's work on one GPU between start and stop, from CUPTI's records of kernels, copies and memsets, also
// inside recorded graphs. The library is opened at run time. Tracing costs time and some 10 MB of GPU memory: measure
// other figures untraced. Several GPUs are seen as one. One session at a time in a process.
typedef struct brim_gpu_trace brim_gpu_trace;

typedef struct brim_gpu_trace_sum {
  double wall_ms;                 // start to stop
  double busy_ms;                 // union: time in which anything ran
  double kernel_ms;               // union of kernels alone
  double h2d_ms, d2h_ms, d2d_ms;  // sums
  double memset_ms;
  int64_t kernels, copies;
  uint64_t h2d_bytes, d2h_bytes, pageable_bytes;  // pageable: h2d and d2h of pageable memory
  int64_t dropped;  // records that the library lost: the other figures are too low
} brim_gpu_trace_sum;

// BRIM_EUNSUPPORTED with the reason: no CUPTI, too old, or another tracer is active.
brim_status brim_gpu_trace_open(brim_gpu_trace **out);
// Accepts NULL. Detaches CUPTI, which slows launches a little while attached. The device must be synchronised, and no
// other thread may use it meanwhile.
void brim_gpu_trace_close(brim_gpu_trace *trace);
// Synchronise the device before start and before stop, so that no work is half inside. The first start after opening
// may take seconds. After a failed stop every figure is NaN.
brim_status brim_gpu_trace_start(brim_gpu_trace *trace);
brim_status brim_gpu_trace_stop(brim_gpu_trace *trace, brim_gpu_trace_sum *out);

// Call before start: also keeps names, streams and the host's waits, at a little more cost.
void brim_gpu_trace_keep_details(brim_gpu_trace *trace, bool on);
// After a stop with details: adds the GPU's events and the host's waits for it to `out`, with times since `begin`, a
// time before start.
brim_status brim_gpu_trace_events(brim_gpu_trace *trace, brim_time begin, brim_trace *out);

#endif  // BRIM_PROFILE_H_
