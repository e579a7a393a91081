// A hand-made trace of two steps: two streams of a GPU, a recorded graph (one correlation for many kernels), kernels
// that overlap, copies of each kind, a memset, a wait, ops, phases, and transforms in two workers.
#ifndef BRIM_TESTS_PROFILE_EVENTS_H_
#define BRIM_TESTS_PROFILE_EVENTS_H_

#include "profile/profile_trace.h"
#include "test.h"

static inline brim_trace_event *add_event(brim_trace *t, brim_trace_kind kind, const char *name,
                                          int64_t start, int64_t end) {
  brim_trace_event *e = brim_trace_add(t, kind, name);
  assert_non_null(e);
  e->start_ns = start;
  e->end_ns = end;
  e->device = -1;
  e->stream = 0;
  e->step = start >= 2000000 ? 1 : 0;
  return e;
}

static inline brim_trace_event *add_work(brim_trace *t, brim_trace_kind kind, const char *name,
                                         int64_t start, int64_t end, uint32_t correlation) {
  brim_trace_event *e = add_event(t, kind, name, start, end);
  e->device = 0;
  e->stream = 7;
  e->correlation = correlation;
  return e;
}

static inline void add_step(brim_trace *t, int32_t step) {
  const int64_t at = (int64_t)step * 2000000;
  const uint32_t graph = 100 + (uint32_t)step;
  add_event(t, BRIM_TRACE_STEP, "step", at, at + 1900000);
  add_event(t, BRIM_TRACE_PHASE, "I/O", at, at + 300000)->phase = BRIM_PHASE_IO;
  add_event(t, BRIM_TRACE_PHASE, "Fwd", at + 300000, at + 1500000)->phase = BRIM_PHASE_FORWARD;
  add_event(t, BRIM_TRACE_HOST_OP, "cudaMemcpyAsync", at + 310000, at + 320001)->correlation =
      50 + (uint32_t)step;
  add_event(t, BRIM_TRACE_HOST_OP, "cudaGraphLaunch", at + 330000, at + 345678)->correlation =
      graph;
  add_event(t, BRIM_TRACE_SYNC, "cudaStreamSynchronize", at + 1500000, at + 1800000);
  for (int worker = 1; worker <= 2; worker++) {
    add_event(t, BRIM_TRACE_TRANSFORM, "random_crop", at + worker * 1000, at + 200000)->stream =
        worker;
  }
  brim_trace_event *copy =
      add_work(t, BRIM_TRACE_COPY, "copy", at + 340000, at + 400000, 50 + (uint32_t)step);
  copy->bytes = 1200000;
  copy->copy = BRIM_TRACE_COPY_H2D;
  copy->pageable = step == 0;
  copy->stream = 13;
  brim_trace_event *set = add_work(t, BRIM_TRACE_MEMSET, "memset", at + 400000, at + 401001, graph);
  set->bytes = 4096;
  brim_trace_event *first =
      add_work(t, BRIM_TRACE_KERNEL, "gemm<\"a\\b\", 4>\t", at + 402000, at + 800000, graph);
  first->op = "matmul";
  first->layer = "encoder.0";
  first->phase = BRIM_PHASE_FORWARD;
  first->grid[0] = 12;
  first->grid[1] = first->grid[2] = first->block[1] = first->block[2] = 1;
  first->block[0] = 256;
  // Begins before the previous kernel has ended, on the same stream.
  add_work(t, BRIM_TRACE_KERNEL, "relu", at + 799000, at + 900000, graph)->op = "relu";
  brim_trace_event *back = add_work(t, BRIM_TRACE_COPY, "copy", at + 900000, at + 910000, graph);
  back->bytes = 16;
  back->copy = BRIM_TRACE_COPY_D2H;
}

static inline void make_events(brim_trace *t) {
  brim_trace_init(t);
  snprintf(t->device, sizeof t->device, "NVIDIA H200");
  t->begin_unix_s = 1790000000;
  t->wall_ns = 4000000;
  t->steps = 2;
  add_step(t, 1);
  add_step(t, 0);
  brim_trace_sort(t);
}

#endif  // BRIM_TESTS_PROFILE_EVENTS_H_
