// Rows of a profile from a GPU's records: kernels, copies, and the gaps between them with their causes.
// Every moment of the window is one row's: the kernel's that began first, a copy's where no kernel
// runs, a gap's where nothing does.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile/profile_rows_int.h"

// A gap that is shorter lies between two launches that follow each other.
enum { LAUNCH_NS = 10000 };

typedef struct gap {
  int64_t start, end;
  int64_t copied;  // of it, copies ran so long
  const brim_trace_event *before, *after;
} gap;

typedef struct window {
  const brim_trace *trace;
  int64_t begin, end;
  double steps;  // that lie in it
  gap *gaps;
  size_t gap_count;
  const brim_trace_event **host;  // what the host did, by start
  size_t host_count;
  brim_profile *out;
} window;

//---------------------------------- the window ----------------------------------

static bool is_work(const brim_trace_event *e) {
  return e->device >= 0 && (e->kind == BRIM_TRACE_KERNEL || e->kind == BRIM_TRACE_MEMSET);
}

static int64_t first_of_step(const brim_trace *t, int32_t step) {
  for (size_t i = 0; i < t->count; i++) {
    if (is_work(&t->events[i]) && t->events[i].step >= step) return t->events[i].start_ns;
  }
  return -1;
}

// From the first kernel of a step to that of a later one: whole steps, with the gaps between them. Where
// steps cannot be told apart it is all of them, from the first to the end.
static void find_bounds(window *w, int lead) {
  const brim_trace *t = w->trace;
  int32_t last = -1;
  for (size_t i = 0; i < t->count; i++) {
    if (is_work(&t->events[i]) && t->events[i].step > last) last = t->events[i].step;
  }
  if (last == t->steps - 1 && last > lead) {
    w->begin = first_of_step(t, lead);
    w->end = first_of_step(t, last);
    w->steps = last - lead;
    return;
  }
  w->begin = 0;
  for (size_t i = 0; i < t->count; i++) {
    if (t->events[i].kind != BRIM_TRACE_STEP) continue;
    w->begin = t->events[i].start_ns;
    break;
  }
  w->end = t->wall_ns;
  w->steps = t->steps;
}

static bool clip(const window *w, const brim_trace_event *e, int64_t *start, int64_t *end) {
  *start = e->start_ns > w->begin ? e->start_ns : w->begin;
  *end = e->end_ns < w->end ? e->end_ns : w->end;
  // what began before belongs to the step before, as far as counting goes
  return *end > *start;
}

//---------------------------------- rows ----------------------------------

static const char *kind_of(const brim_trace_event *e) {
  return e->kind == BRIM_TRACE_MEMSET ? "memset" : "kernel";
}

static brim_status add_kernel(window *w, const brim_trace_event *e, double ns, double total_ns) {
  brim_row_sum sum = {.count = 1, .ns = ns, .total_ns = total_ns, .flops = NAN, .bytes = NAN};
  brim_row_key key = {
      .name = e->name, .kind = kind_of(e), .op = e->op, .layer = e->layer, .phase = e->phase};
  BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_KERNELS, &key, &sum));
  if (!e->op) {  // outside of every op, or it is not known which
    BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_OPS, &key, &sum));
    BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_LAYERS, &key, &sum));
  } else {
    sum.count = NAN;  // ops are counted, not their kernels
    key.name = e->op;
    key.kind = "op";
    BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_OPS, &key, &sum));
    key.name = e->layer ? e->layer : e->phase < BRIM_PHASE_COUNT ? brim_phase_key(e->phase) : e->op;
    key.kind = e->layer ? "layer" : "other";
    BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_LAYERS, &key, &sum));
  }
  key = (brim_row_key){.name = e->phase < BRIM_PHASE_COUNT ? brim_phase_key(e->phase) : "other",
                       .kind = "phase",
                       .phase = e->phase};
  sum.count = NAN;
  return brim_rows_add(w->out, BRIM_PROFILE_PHASES, &key, &sum);
}

static brim_status add_everywhere(window *w, const brim_row_key *key, const brim_row_sum *sum) {
  BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_KERNELS, key, sum));
  BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_OPS, key, sum));
  BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_LAYERS, key, sum));
  return brim_rows_add(w->out, BRIM_PROFILE_PHASES, key, sum);
}

static bool ran_in(const brim_trace_event *e, const brim_trace_event *op) {
  return is_work(e) && e->start_ns >= op->start_ns && e->start_ns < op->end_ns;
}

// Of what an op computes, each of its kernels has a part by its time: which of them does what is not known.
static brim_status share_out(window *w, const brim_trace *mapped, const brim_trace_event *op,
                             const brim_row_sum *whole) {
  double all = 0;
  for (size_t i = 0; i < mapped->count; i++) {
    const brim_trace_event *e = &mapped->events[i];
    if (ran_in(e, op)) all += (double)(e->end_ns - e->start_ns);
  }
  for (size_t i = 0; all > 0 && i < mapped->count; i++) {
    const brim_trace_event *e = &mapped->events[i];
    if (!ran_in(e, op)) continue;
    const brim_row_key key = {
        .name = e->name, .kind = kind_of(e), .op = e->op, .layer = e->layer, .phase = e->phase};
    if (!brim_rows_have(w->out, BRIM_PROFILE_KERNELS, &key)) continue;  // op by op another one ran
    const double part = (double)(e->end_ns - e->start_ns) / all;
    const brim_row_sum sum = {
        .count = NAN, .ns = 0, .flops = part * whole->flops, .bytes = part * whole->bytes};
    BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_KERNELS, &key, &sum));
  }
  return BRIM_OK;
}

// How often an op runs in a step, and what it computes, by the step that ran op by op.
static brim_status count_ops(window *w, const brim_trace *mapped) {
  double per = mapped->steps > 0 ? w->steps / mapped->steps : 0;
  for (size_t i = 0; i < mapped->count; i++) {
    const brim_trace_event *e = &mapped->events[i];
    if (e->kind != BRIM_TRACE_HOST_OP) continue;
    const brim_row_sum sum = {
        .count = per, .ns = 0, .flops = e->flops * per, .bytes = (double)e->bytes * per};
    brim_row_key key = {
        .name = e->name, .kind = "op", .op = e->name, .layer = e->layer, .phase = e->phase};
    BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_OPS, &key, &sum));
    key.name = e->layer                      ? e->layer
               : e->phase < BRIM_PHASE_COUNT ? brim_phase_key(e->phase)
                                             : e->name;
    key.kind = e->layer ? "layer" : "other";
    BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_LAYERS, &key, &sum));
    BRIM_TRY(share_out(w, mapped, e, &sum));
  }
  return BRIM_OK;
}

//---------------------------------- kernels and gaps ----------------------------------

static void note_gap(window *w, int64_t start, int64_t end, const brim_trace_event *before,
                     const brim_trace_event *after) {
  if (end > start) w->gaps[w->gap_count++] = (gap){start, end, 0, before, after};
}

// Also leaves the gaps between kernels, in their order.
static brim_status add_kernels(window *w) {
  const brim_trace_event *before = NULL;
  int64_t until = w->begin;
  for (size_t i = 0; i < w->trace->count; i++) {
    const brim_trace_event *e = &w->trace->events[i];
    int64_t start, end;
    if (!is_work(e) || !clip(w, e, &start, &end)) continue;
    note_gap(w, until, start, before, e);
    double own = start > until ? (double)(end - start) : fmax(0, (double)(end - until));
    BRIM_TRY(add_kernel(w, e, own, (double)(end - start)));
    if (end <= until) continue;
    until = end;
    before = e;
  }
  note_gap(w, until, w->end, before, NULL);
  return BRIM_OK;
}

// What of a copy lies in gaps between kernels, after what earlier copies had of them.
static int64_t exposed(window *w, int64_t start, int64_t end, int64_t *until) {
  int64_t sum = 0, from = start > *until ? start : *until;
  for (size_t i = 0; i < w->gap_count && w->gaps[i].start < end; i++) {
    gap *g = &w->gaps[i];
    int64_t a = g->start > from ? g->start : from, b = g->end < end ? g->end : end;
    if (b <= a) continue;
    g->copied += b - a;
    sum += b - a;
  }
  if (end > *until) *until = end;
  return sum;
}

static brim_status add_copies(window *w) {
  brim_profile *out = w->out;
  int64_t until = w->begin;
  out->h2d_ms = out->h2d_exposed_ms = out->h2d_bytes = out->h2d_pageable_bytes = 0;
  for (size_t i = 0; i < w->trace->count; i++) {
    const brim_trace_event *e = &w->trace->events[i];
    int64_t start, end;
    if (e->kind != BRIM_TRACE_COPY || e->device < 0 || !clip(w, e, &start, &end)) continue;
    bool h2d = e->copy == BRIM_TRACE_COPY_H2D;
    double alone = (double)exposed(w, start, end, &until);
    const brim_row_sum sum = {.count = 1,
                              .ns = alone,
                              .total_ns = (double)(end - start),
                              .flops = NAN,
                              .bytes = (double)e->bytes};
    const brim_row_key key = {
        .name = e->name, .kind = "copy", .phase = h2d ? BRIM_PHASE_H2D : e->phase};
    BRIM_TRY(add_everywhere(w, &key, &sum));
    if (!h2d) continue;
    out->h2d_ms += sum.total_ns;
    out->h2d_exposed_ms += alone;
    out->h2d_bytes += sum.bytes;
    if (e->pageable) out->h2d_pageable_bytes += sum.bytes;
  }
  out->h2d_ms /= 1e6 * w->steps;
  out->h2d_exposed_ms /= 1e6 * w->steps;
  out->h2d_bytes /= w->steps;
  out->h2d_pageable_bytes /= w->steps;
  return BRIM_OK;
}

// Of NCCL's kernels, which run beside the others: all of their time, and that in which no other kernel ran.
static bool is_exchange(const brim_trace_event *e) {
  return e->kind == BRIM_TRACE_KERNEL && e->name && strncmp(e->name, "nccl", 4) == 0;
}

static double alone(const window *w, int64_t start, int64_t end) {
  int64_t until = start, covered = 0;
  for (size_t i = 0; i < w->trace->count; i++) {
    const brim_trace_event *e = &w->trace->events[i];
    int64_t from, to;
    if (!is_work(e) || is_exchange(e) || !clip(w, e, &from, &to)) continue;
    if (from >= end) break;
    if (from < until) from = until;
    if (to > end) to = end;
    if (to <= from) continue;
    covered += to - from;
    until = to;
  }
  return (double)(end - start - covered);
}

static void add_exchanges(window *w) {
  double all = 0, exposed_ns = 0;
  bool any = false;
  for (size_t i = 0; i < w->trace->count; i++) {
    const brim_trace_event *e = &w->trace->events[i];
    int64_t start, end;
    if (!is_exchange(e) || !clip(w, e, &start, &end)) continue;
    any = true;
    all += (double)(end - start);
    exposed_ns += alone(w, start, end);
  }
  if (!any) return;
  w->out->exchange_ms = all / (1e6 * w->steps);
  w->out->exchange_exposed_ms = exposed_ns / (1e6 * w->steps);
}

//---------------------------------- causes ----------------------------------

// How much of a gap the host spent in events of a kind, and of a phase where one is given.
static int64_t host_in(const window *w, const gap *g, brim_trace_kind kind, brim_phase phase) {
  int64_t sum = 0, until = g->start;
  for (size_t i = 0; i < w->host_count && w->host[i]->start_ns < g->end; i++) {
    const brim_trace_event *e = w->host[i];
    if (e->kind != kind || (phase < BRIM_PHASE_COUNT && e->phase != phase)) continue;
    int64_t a = e->start_ns > until ? e->start_ns : until,
            b = e->end_ns < g->end ? e->end_ns : g->end;
    if (b <= a) continue;
    sum += b - a;
    until = b;
  }
  return sum;
}

// The host waited for the GPU when the gap began: nothing was enqueued beyond it.
static bool waited(const window *w, const gap *g) {
  for (size_t i = 0; i < w->host_count && w->host[i]->start_ns < g->start; i++) {
    const brim_trace_event *e = w->host[i];
    if (e->kind == BRIM_TRACE_SYNC && e->end_ns >= g->start) return true;
  }
  return false;
}

static brim_gap_cause cause_of(const window *w, const gap *g) {
  int64_t length = g->end - g->start;
  bool same = g->before && g->after && g->before->correlation != 0 &&
              g->before->correlation == g->after->correlation;
  if (length < LAUNCH_NS) return BRIM_GAP_LAUNCH;
  if (same) return BRIM_GAP_DEPENDENCY;
  if (2 * host_in(w, g, BRIM_TRACE_PHASE, BRIM_PHASE_IO) >= length) return BRIM_GAP_INPUT;
  if (waited(w, g)) return BRIM_GAP_SYNC;
  if (2 * host_in(w, g, BRIM_TRACE_STEP, BRIM_PHASE_COUNT) >= length) return BRIM_GAP_HOST;
  return BRIM_GAP_UNKNOWN;
}

static void name_of(const brim_trace_event *e, char *out, size_t size) {
  snprintf(out, size, "%s", e ? e->name : "");
}

// Among the longest, in their order.
static void keep_longest(window *w, const gap *g, brim_gap_cause cause) {
  brim_profile *out = w->out;
  double ms = (double)(g->end - g->start) / 1e6;
  size_t at = out->gap_count < BRIM_PROFILE_MAX_GAPS ? out->gap_count : BRIM_PROFILE_MAX_GAPS - 1;
  if (out->gap_count == BRIM_PROFILE_MAX_GAPS && out->gaps[at].ms >= ms) return;
  if (out->gap_count < BRIM_PROFILE_MAX_GAPS) out->gap_count++;
  for (; at > 0 && out->gaps[at - 1].ms < ms; at--) out->gaps[at] = out->gaps[at - 1];
  brim_profile_gap *kept = &out->gaps[at];
  *kept = (brim_profile_gap){.cause = 2 * g->copied > g->end - g->start ? BRIM_GAP_TRANSFER : cause,
                             .ms = ms,
                             .step = g->after ? g->after->step : -1,
                             .at_ms = (double)(g->start - w->begin) / 1e6};
  name_of(g->before, kept->before, sizeof kept->before);
  name_of(g->after, kept->after, sizeof kept->after);
}

// What tracing itself made longer: of the gaps, in proportion, but not what copies took.
static double own_part(const window *w, const double ns[BRIM_GAP_COUNT]) {
  double idle = 0, traced = (double)(w->end - w->begin) / w->steps;
  for (int i = 0; i < BRIM_GAP_COUNT; i++) idle += i == BRIM_GAP_TRANSFER ? 0 : ns[i] / w->steps;
  double more = traced - w->out->step_ms * 1e6;
  if (!(more > 0) || idle <= 0) return 1;
  return more < idle ? (idle - more) / idle : 0;
}

static brim_status add_gaps(window *w) {
  brim_profile *out = w->out;
  double ns[BRIM_GAP_COUNT] = {0}, count[BRIM_GAP_COUNT] = {0};
  for (size_t i = 0; i < w->gap_count; i++) {
    const gap *g = &w->gaps[i];
    brim_gap_cause cause = cause_of(w, g);
    int64_t idle = g->end - g->start - g->copied;
    ns[BRIM_GAP_TRANSFER] += (double)g->copied;
    count[BRIM_GAP_TRANSFER] += g->copied > 0;
    ns[cause] += (double)idle;
    count[cause] += idle > 0;
    keep_longest(w, g, cause);
  }
  double part = own_part(w, ns);
  out->has_gaps = true;
  out->gap_ms = 0;
  for (int i = 0; i < BRIM_GAP_COUNT; i++) {
    bool copies = i == BRIM_GAP_TRANSFER;
    if (!copies) ns[i] *= part;
    out->cause_ms[i] = ns[i] / 1e6 / w->steps;
    out->cause_count[i] = count[i] / w->steps;
    out->gap_ms += out->cause_ms[i];
    if (copies || ns[i] <= 0) continue;  // copies have rows of their own
    const brim_row_key key = {
        .name = brim_gap_key((brim_gap_cause)i), .kind = "gap", .phase = BRIM_PHASE_COUNT};
    const brim_row_sum sum = {
        .count = count[i], .ns = ns[i], .total_ns = ns[i], .flops = NAN, .bytes = NAN};
    BRIM_TRY(add_everywhere(w, &key, &sum));
  }
  return BRIM_OK;
}

//---------------------------------- all of it ----------------------------------

static brim_status device_rows(window *w, const brim_trace *mapped, int lead) {
  find_bounds(w, lead);
  if (!(w->steps > 0) || w->end <= w->begin) {
    return brim_fail(BRIM_ESTATE, "the trace has no steps");
  }
  BRIM_TRY(add_kernels(w));
  BRIM_TRY(add_copies(w));
  add_exchanges(w);
  BRIM_TRY(add_gaps(w));
  if (mapped) BRIM_TRY(count_ops(w, mapped));
  static const brim_profile_list lists[] = {BRIM_PROFILE_KERNELS, BRIM_PROFILE_OPS,
                                            BRIM_PROFILE_LAYERS, BRIM_PROFILE_PHASES};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    brim_rows_per_step(w->out, lists[i], w->steps);
  }
  w->out->traced_ms = (double)(w->end - w->begin) / 1e6 / w->steps;
  w->out->traced_steps = w->trace->steps;
  return BRIM_OK;
}

brim_status brim_profile_device_rows(const brim_trace *trace, const brim_trace *mapped, int lead,
                                     brim_profile *out) {
  window w = {.trace = trace, .out = out};
  w.gaps = (gap *)brim_calloc(trace->count + 2, sizeof *w.gaps);
  w.host = (const brim_trace_event **)brim_calloc(trace->count + 1, sizeof *w.host);
  brim_status status = BRIM_OK;
  if (!w.gaps || !w.host) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the rows of a profile");
  }
  for (size_t i = 0; !status && i < trace->count; i++) {
    if (trace->events[i].device < 0) w.host[w.host_count++] = &trace->events[i];
  }
  if (!status) status = device_rows(&w, mapped, lead);
  brim_free(w.host);
  brim_free(w.gaps);
  return status;
}
