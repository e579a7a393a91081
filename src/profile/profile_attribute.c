// Which op a kernel belongs to. A recorded step is one launch, whose kernels do not say what enqueued
// them. So one step runs op by op, each until the device is done: what begins in the time of an op is
// the op's. Kernels of the recorded step are the same in the same order.
#include <stdlib.h>
#include <string.h>

#include "profile/profile_rows.h"

static bool on_device(const brim_trace_event *e) {
  return e->kind == BRIM_TRACE_KERNEL || e->kind == BRIM_TRACE_MEMSET;
}

// The innermost of a kind in whose time `at` lies; events come by start.
static const brim_trace_event *around(const brim_trace *t, brim_trace_kind kind, int64_t at) {
  const brim_trace_event *found = NULL;
  for (size_t i = 0; i < t->count && t->events[i].start_ns <= at; i++) {
    const brim_trace_event *e = &t->events[i];
    if (e->kind == kind && e->device < 0 && at < e->end_ns) found = e;
  }
  return found;
}

static void map(brim_trace *t) {
  for (size_t i = 0; i < t->count; i++) {
    brim_trace_event *e = &t->events[i];
    if (e->device < 0 || (!on_device(e) && e->kind != BRIM_TRACE_COPY)) continue;
    const brim_trace_event *op = around(t, BRIM_TRACE_HOST_OP, e->start_ns);
    const brim_trace_event *phase = around(t, BRIM_TRACE_PHASE, e->start_ns);
    if (op) {
      e->op = op->name;
      e->layer = op->layer;
    }
    e->phase = op ? op->phase : phase ? phase->phase : BRIM_PHASE_COUNT;
  }
}

// The stream of most kernels: that of the ops. Others run beside it, in no order that could be
// compared.
static int32_t main_stream(const brim_trace *t) {
  int32_t best = -1;
  size_t most = 0;
  for (size_t i = 0; i < t->count; i++) {
    const brim_trace_event *e = &t->events[i];
    if (!on_device(e) || e->device < 0 || e->stream == best) continue;
    size_t count = 0;
    for (size_t k = i; k < t->count; k++) {
      count += on_device(&t->events[k]) && t->events[k].stream == e->stream;
    }
    if (count <= most) continue;
    most = count;
    best = e->stream;
    if (2 * most > t->count) break;
  }
  return best;
}

// The events of one stream in their order; free with brim_free.
static brim_trace_event **sequence(brim_trace *t, int32_t stream, size_t *count) {
  brim_trace_event **all = (brim_trace_event **)brim_calloc(t->count + 1, sizeof *all);
  *count = 0;
  for (size_t i = 0; all && i < t->count; i++) {
    brim_trace_event *e = &t->events[i];
    if (on_device(e) && e->device >= 0 && e->stream == stream) all[(*count)++] = e;
  }
  return all;
}

// Kernels beside the main stream belong to what one of the same name did.
static size_t attribute_beside(brim_trace *window, const brim_trace *mapped, int32_t stream,
                               size_t *found) {
  size_t count = 0;
  for (size_t i = 0; i < window->count; i++) {
    brim_trace_event *e = &window->events[i];
    if (!on_device(e) || e->device < 0 || e->stream == stream) continue;
    count++;
    for (size_t k = 0; k < mapped->count; k++) {
      const brim_trace_event *m = &mapped->events[k];
      if (!on_device(m) || m->stream == stream || strcmp(m->name, e->name) != 0) continue;
      e->op = brim_trace_text(window, m->op);
      e->layer = brim_trace_text(window, m->layer);
      e->phase = m->phase;
      ++*found;
      break;
    }
  }
  return count;
}

// Where in one step, from `from` on, a kernel of this name comes next; `count` = it does not.
static size_t next_of(brim_trace_event *const *step, size_t from, size_t count, const char *name) {
  while (from < count && strcmp(step[from]->name, name) != 0) from++;
  return from;
}

// Of the step that the kernel belongs to, what comes at `at`. A kernel that is not in the rest of a step
// begins the next one where it is there at all.
static size_t follow(brim_trace_event *const *step, size_t count, size_t at, const char *name,
                     int32_t *number) {
  size_t found = next_of(step, at, count, name);
  if (found < count) return found;
  found = next_of(step, 0, count, name);
  if (found < count) ++*number;
  return found;
}

double brim_trace_attribute(brim_trace *window, brim_trace *mapped) {
  size_t window_count = 0, step_count = 0, found_count = 0, at = 0;
  int32_t number = 0;
  map(mapped);
  int32_t stream = main_stream(mapped);
  brim_trace_event **all = sequence(window, stream, &window_count);
  brim_trace_event **step = sequence(mapped, stream, &step_count);
  for (size_t i = 0; all && step && step_count > 0 && i < window_count; i++) {
    brim_trace_event *e = all[i];
    e->step = number;
    if (strcmp(e->name, step[at]->name) != 0 && i + 1 < window_count &&
        strcmp(all[i + 1]->name, step[at]->name) == 0) {
      continue;  // one more than there was: the next continues as before
    }
    size_t found = follow(step, step_count, at, e->name, &number);
    e->step = number;
    if (found == step_count) continue;
    e->op = brim_trace_text(window, step[found]->op);
    e->layer = brim_trace_text(window, step[found]->layer);
    e->phase = step[found]->phase;
    at = found + 1;
    found_count++;
    if (at == step_count) {
      at = 0;
      number++;
    }
  }
  brim_free(all);
  brim_free(step);
  window_count += attribute_beside(window, mapped, stream, &found_count);
  return window_count > 0 ? (double)found_count / (double)window_count : 0;
}
