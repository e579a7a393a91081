// Sums of each traced step, as TensorBoard shows them.
#include "profile/profile_scalars.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "profile/profile_tensorboard.h"

typedef struct step_sums {
  int64_t step_ns, phase_ns[BRIM_PHASE_COUNT];
  bool phase_used[BRIM_PHASE_COUNT], gpu;
  int64_t busy_ns, busy_until;  // the union so far, and where its last part ends
  int64_t h2d_ns, d2h_ns, kernels;
} step_sums;

static void add_gpu(step_sums *s, const brim_trace_event *e) {
  const int64_t took = e->end_ns - e->start_ns;
  const int64_t from = e->start_ns > s->busy_until ? e->start_ns : s->busy_until;
  s->gpu = true;
  if (e->end_ns > from) s->busy_ns += e->end_ns - from;
  if (e->end_ns > s->busy_until) s->busy_until = e->end_ns;
  if (e->kind == BRIM_TRACE_KERNEL) s->kernels++;
  if (e->kind == BRIM_TRACE_COPY && e->copy == BRIM_TRACE_COPY_H2D) s->h2d_ns += took;
  if (e->kind == BRIM_TRACE_COPY && e->copy == BRIM_TRACE_COPY_D2H) s->d2h_ns += took;
}

// Events come by their start: the union needs it.
static void add_event(step_sums *s, const brim_trace_event *e) {
  const int64_t took = e->end_ns - e->start_ns;
  if (took < 0) return;
  if (e->kind == BRIM_TRACE_STEP) s->step_ns += took;
  if (e->kind == BRIM_TRACE_PHASE && (unsigned)e->phase < BRIM_PHASE_COUNT) {
    s->phase_ns[e->phase] += took;
    s->phase_used[e->phase] = true;
  }
  if (e->device >= 0 && e->kind <= BRIM_TRACE_MEMSET) add_gpu(s, e);
}

static brim_status put(brim_tensorboard *t, const char *tag, int64_t step, double value) {
  return brim_tensorboard_scalar(t, tag, step, value);
}

static brim_status put_step(brim_tensorboard *t, int64_t step, const step_sums *s) {
  char tag[64];
  if (s->step_ns > 0) BRIM_TRY(put(t, "profile/step_ms", step, (double)s->step_ns / 1e6));
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    if (!s->phase_used[i]) continue;
    snprintf(tag, sizeof tag, "profile/phase_ms/%s", brim_phase_key((brim_phase)i));
    BRIM_TRY(put(t, tag, step, (double)s->phase_ns[i] / 1e6));
  }
  if (!s->gpu) return BRIM_OK;
  BRIM_TRY(put(t, "profile/gpu_busy_ms", step, (double)s->busy_ns / 1e6));
  BRIM_TRY(put(t, "profile/kernels", step, (double)s->kernels));
  BRIM_TRY(put(t, "profile/h2d_ms", step, (double)s->h2d_ns / 1e6));
  return put(t, "profile/d2h_ms", step, (double)s->d2h_ns / 1e6);
}

static brim_status put_steps(const brim_trace *trace, step_sums *sums, brim_tensorboard *t) {
  for (size_t i = 0; i < trace->count; i++) {
    const brim_trace_event *e = &trace->events[i];
    if (e->step >= 0 && e->step < trace->steps) add_event(&sums[e->step], e);
  }
  for (int32_t i = 0; i < trace->steps; i++) BRIM_TRY(put_step(t, i + 1, &sums[i]));
  return brim_tensorboard_flush(t);
}

brim_status brim_scalars_write(const brim_trace *trace, const char *folder) {
  brim_tensorboard *t = NULL;
  const size_t steps = trace->steps > 0 ? (size_t)trace->steps : 0;
  step_sums *sums = brim_calloc(steps + 1, sizeof *sums);
  if (!sums) return brim_fail(BRIM_ENOMEM, "out of memory while writing event files");
  brim_status status = brim_fs_mkdirs(folder);
  if (!status) status = brim_tensorboard_open(folder, BRIM_TENSORBOARD_ADD, 0, &t);
  if (!status) status = put_steps(trace, sums, t);
  brim_tensorboard_close(t);
  brim_free(sums);
  return status;
}
