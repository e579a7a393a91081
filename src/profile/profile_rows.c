// Makes the lists of a profile from traces (profile_rows.h).

#include "profile/profile_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/record_findings.h"

// Identifies a row. `op`, `layer` and `phase` are shown if all samples of the row agree.
typedef struct brim_row_key {
  const char *name, *kind;
  const char *op, *layer;  // NULL = none
  brim_phase phase;        // BRIM_PHASE_COUNT = none
} brim_row_key;

// A sample to add to a row, summed over all steps.
typedef struct brim_row_sum {
  double count, ns, total_ns;
  double flops, bytes;  // NaN = unknown
} brim_row_sum;

static inline const char *brim_phase_text(brim_phase phase) {
  return phase < BRIM_PHASE_COUNT ? brim_phase_key(phase) : "";
}

//---------------------------------------- ops of kernels ----------------------------------------
// Finds the op of a kernel. A recorded step is one launch, and its kernels do not say which op enqueued them. So one
// step runs op by op, and the host waits for the device after each: a kernel that begins during an op belongs to it.
// The recorded step has the same kernels in the same order.

static bool on_device(const brim_trace_event *e) {
  return e->kind == BRIM_TRACE_KERNEL || e->kind == BRIM_TRACE_MEMSET;
}

// The innermost event of a kind at the time `at`; events are sorted by start.
static const brim_trace_event *innermost_at(const brim_trace *t, brim_trace_kind kind, int64_t at) {
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
    const brim_trace_event *op = innermost_at(t, BRIM_TRACE_HOST_OP, e->start_ns);
    const brim_trace_event *phase = innermost_at(t, BRIM_TRACE_PHASE, e->start_ns);
    if (op) {
      e->op = op->name;
      e->layer = op->layer;
    }
    e->phase = op ? op->phase : phase ? phase->phase : BRIM_PHASE_COUNT;
  }
}

// The stream that runs the ops is the stream with the most kernels. The order of other streams' kernels is not
// comparable.
static int32_t main_stream(const brim_trace *t) {
  int32_t best = -1;
  size_t most_kernels = 0;
  for (size_t i = 0; i < t->count; i++) {
    const brim_trace_event *e = &t->events[i];
    if (!on_device(e) || e->device < 0 || e->stream == best) continue;
    size_t count = 0;
    for (size_t k = i; k < t->count; k++) {
      count += on_device(&t->events[k]) && t->events[k].stream == e->stream;
    }
    if (count <= most_kernels) continue;
    most_kernels = count;
    best = e->stream;
    if (2 * most_kernels > t->count) break;
  }
  return best;
}

// The events of one stream in order, for brim_free.
static brim_trace_event **sequence(brim_trace *t, int32_t stream, size_t *count) {
  brim_trace_event **all = (brim_trace_event **)brim_calloc(t->count + 1, sizeof *all);
  *count = 0;
  for (size_t i = 0; all && i < t->count; i++) {
    brim_trace_event *e = &t->events[i];
    if (on_device(e) && e->device >= 0 && e->stream == stream) all[(*count)++] = e;
  }
  return all;
}

// Attributes kernels on other streams: each gets the op of a mapped kernel with the same name.
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

// Finds the next kernel of this name in a step, from `from` on; `count` = none.
static size_t next_named(brim_trace_event *const *step, size_t from, size_t count,
                         const char *name) {
  while (from < count && strcmp(step[from]->name, name) != 0) from++;
  return from;
}

// Finds the place of a kernel in the mapped step, from `at` on. If only an earlier place has the name, the kernel
// belongs to the next step.
static size_t follow(brim_trace_event *const *step, size_t count, size_t at, const char *name,
                     int32_t *number) {
  size_t found = next_named(step, at, count, name);
  if (found < count) return found;
  found = next_named(step, 0, count, name);
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
      continue;  // this kernel is extra: the next kernel is the expected one
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

//--------------------------------------- rows of the host ---------------------------------------
// Makes rows from the host's clock or from events around ops, and sets the ceilings of rows.

//---------------------------------- rows ----------------------------------

static void set_text(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text ? text : "");
}

// Keeps a text as long as all samples agree; otherwise clears it.
static void keep_if_same(char *out, size_t size, const char *text) {
  char now[192];
  snprintf(now, sizeof now < size ? sizeof now : size, "%s", text ? text : "");
  if (strcmp(out, now) != 0) out[0] = '\0';
}

static void add_known(double *to, double value) {
  if (isnan(value)) return;
  *to = isnan(*to) ? value : *to + value;
}

static brim_profile_row *find(const brim_profile_rows *rows, const brim_row_key *key) {
  brim_profile_row probe;
  set_text(probe.name, sizeof probe.name, key->name);
  for (size_t i = 0; i < rows->count; i++) {
    brim_profile_row *row = &rows->items[i];
    if (strcmp(row->name, probe.name) == 0 && strcmp(row->kind, key->kind) == 0) return row;
  }
  return NULL;
}

static bool brim_rows_have(const brim_profile *profile, brim_profile_list list,
                           const brim_row_key *key) {
  return find(&profile->lists[list], key) != NULL;
}

// Adds a sample to its row, which is made if needed.
static brim_status brim_rows_add(brim_profile *out, brim_profile_list list, const brim_row_key *key,
                                 const brim_row_sum *sum) {
  const char *phase = brim_phase_text(key->phase);
  brim_profile_row *row = find(&out->lists[list], key);
  if (!row) {
    row = brim_profile_add(out, list);
    if (!row) return brim_fail(BRIM_ENOMEM, "out of memory for the rows of a profile");
    set_text(row->name, sizeof row->name, key->name);
    set_text(row->kind, sizeof row->kind, key->kind);
    set_text(row->op, sizeof row->op, key->op);
    set_text(row->layer, sizeof row->layer, key->layer);
    set_text(row->phase, sizeof row->phase, phase);
  } else {
    keep_if_same(row->op, sizeof row->op, key->op);
    keep_if_same(row->layer, sizeof row->layer, key->layer);
    keep_if_same(row->phase, sizeof row->phase, phase);
  }
  add_known(&row->count, sum->count);
  add_known(&row->ms, sum->ns);
  add_known(&row->total_ms, sum->total_ns);
  add_known(&row->flops, sum->flops);
  add_known(&row->bytes, sum->bytes);
  return BRIM_OK;
}

// Turns sums in ns over `steps` steps into ms per step.
static void brim_rows_per_step(brim_profile *out, brim_profile_list list, double steps) {
  brim_profile_rows *rows = &out->lists[list];
  for (size_t i = 0; i < rows->count; i++) {
    brim_profile_row *row = &rows->items[i];
    row->count /= steps;
    row->ms /= 1e6 * steps;
    row->total_ms /= 1e6 * steps;
    row->flops /= steps;
    row->bytes /= steps;
  }
}

// Adds an op under its name, and under its layer or else its phase.
static brim_status add_op(brim_profile *out, const brim_trace_event *e, double ns) {
  const brim_row_sum sum = {
      .count = 1, .ns = ns, .total_ns = ns, .flops = e->flops, .bytes = (double)e->bytes};
  const brim_row_key op = {
      .name = e->name, .kind = "op", .op = e->name, .layer = e->layer, .phase = e->phase};
  brim_row_key layer = {
      .name = e->layer, .kind = "layer", .op = e->name, .layer = e->layer, .phase = e->phase};
  if (!e->layer) {
    layer.name = e->phase < BRIM_PHASE_COUNT ? brim_phase_key(e->phase) : "other";
    layer.kind = "other";
  }
  BRIM_TRY(brim_rows_add(out, BRIM_PROFILE_OPS, &op, &sum));
  return brim_rows_add(out, BRIM_PROFILE_LAYERS, &layer, &sum);
}

//---------------------------------- by the host's clock ----------------------------------

// The steps that count, and the sums over them.
typedef struct host_sums {
  bool *counts;  // by step
  int32_t steps, counted;
  double total_ns;
  double phase_ns[BRIM_PHASE_COUNT];  // without the time of phases inside
  double op_ns[BRIM_PHASE_COUNT + 1];
  double phase_count[BRIM_PHASE_COUNT];
} host_sums;

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Times of the steps in ns, by number; returns how many.
static int32_t step_times(const brim_trace *t, double *ns) {
  int32_t count = 0;
  for (int32_t i = 0; i < t->steps; i++) ns[i] = NAN;
  for (size_t i = 0; i < t->count; i++) {
    const brim_trace_event *e = &t->events[i];
    if (e->kind != BRIM_TRACE_STEP || e->step < 0 || e->step >= t->steps) continue;
    count += isnan(ns[e->step]);
    ns[e->step] = (double)(e->end_ns - e->start_ns);
  }
  return count;
}

// Selects the twentieth of the steps, three at least, whose time is nearest to `typical`: disturbed steps do not show
// where time goes.
static void choose(host_sums *s, const double *ns, int32_t count, double typical) {
  int32_t wanted = count / 20 > 3 ? count / 20 : count < 3 ? count : 3;
  for (int32_t k = 0; k < wanted; k++) {
    int32_t best = -1;
    for (int32_t i = 0; i < s->steps; i++) {
      if (isnan(ns[i]) || s->counts[i]) continue;
      if (best < 0 || fabs(ns[i] - typical) < fabs(ns[best] - typical)) best = i;
    }
    s->counts[best] = true;
    s->counted++;
    s->total_ns += ns[best];
  }
}

static brim_status choose_steps(const brim_trace *t, host_sums *s, brim_profile *out) {
  double *ns = (double *)brim_calloc(2 * (size_t)t->steps + 1, sizeof *ns);
  s->steps = t->steps;
  s->counts = (bool *)brim_calloc((size_t)t->steps + 1, sizeof *s->counts);
  if (!ns || !s->counts) {
    brim_free(ns);
    return brim_fail(BRIM_ENOMEM, "out of memory for the rows of a profile");
  }
  int32_t count = step_times(t, ns), kept = 0;
  double *sorted = ns + t->steps;
  for (int32_t i = 0; i < t->steps; i++) {
    if (!isnan(ns[i])) sorted[kept++] = ns[i];
  }
  if (count > 0) {
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    double median = 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]);
    choose(s, ns, count, isnan(out->step_ms) ? median : out->step_ms * 1e6);
    out->traced_ms = median / 1e6;
  }
  brim_free(ns);
  return BRIM_OK;
}

static bool is_counted(const host_sums *s, const brim_trace_event *e) {
  return e->device < 0 && e->stream == 0 && e->step >= 0 && e->step < s->steps &&
         s->counts[e->step];
}

// Sums the phases. Only the innermost of nested phases counts. Events are sorted by start, longer ones first.
static void sum_phases(const brim_trace *t, host_sums *s) {
  enum { DEPTH = 16 };
  const brim_trace_event *open[DEPTH];
  int depth = 0;
  for (size_t i = 0; i < t->count; i++) {
    const brim_trace_event *e = &t->events[i];
    if (e->kind != BRIM_TRACE_PHASE || e->phase >= BRIM_PHASE_COUNT || !is_counted(s, e)) continue;
    while (depth > 0 && open[depth - 1]->end_ns <= e->start_ns) depth--;
    double ns = (double)(e->end_ns - e->start_ns);
    if (depth > 0) s->phase_ns[open[depth - 1]->phase] -= ns;
    s->phase_ns[e->phase] += ns;
    s->phase_count[e->phase]++;
    if (depth < DEPTH) open[depth++] = e;
  }
}

static brim_status add_ops(const brim_trace *t, host_sums *s, brim_profile *out) {
  for (size_t i = 0; i < t->count; i++) {
    const brim_trace_event *e = &t->events[i];
    if (e->kind != BRIM_TRACE_HOST_OP || !is_counted(s, e)) continue;
    double ns = (double)(e->end_ns - e->start_ns);
    s->op_ns[e->phase] += ns;
    BRIM_TRY(add_op(out, e, ns));
  }
  return BRIM_OK;
}

// Adds the phases, and the part of each that no op covers to the lists of ops and layers.
static brim_status add_rests(const double phase_ns[BRIM_PHASE_COUNT], const double *op_ns,
                             const double *phase_count, brim_profile *out) {
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (phase_ns[p] <= 0) continue;
    brim_row_key key = {
        .name = brim_phase_key((brim_phase)p), .kind = "phase", .phase = (brim_phase)p};
    brim_row_sum sum = {.count = phase_count ? phase_count[p] : (double)NAN,
                        .ns = phase_ns[p],
                        .total_ns = phase_ns[p],
                        .flops = NAN,
                        .bytes = NAN};
    BRIM_TRY(brim_rows_add(out, BRIM_PROFILE_PHASES, &key, &sum));
    double rest = phase_ns[p] - op_ns[p];
    if (rest <= 0) continue;
    key.kind = "host";
    sum.ns = sum.total_ns = rest;
    BRIM_TRY(brim_rows_add(out, BRIM_PROFILE_OPS, &key, &sum));
    BRIM_TRY(brim_rows_add(out, BRIM_PROFILE_LAYERS, &key, &sum));
  }
  return BRIM_OK;
}

// Scales rows to the untraced step: tracing and disturbances make steps longer.
static void scale_rows(brim_profile_rows *rows, double by) {
  for (size_t i = 0; i < rows->count; i++) {
    rows->items[i].ms *= by;
    rows->items[i].total_ms *= by;
  }
}

static brim_status host_rows(const brim_trace *t, host_sums *s, brim_profile *out) {
  BRIM_TRY(choose_steps(t, s, out));
  if (s->counted == 0 || !(s->total_ns > 0)) return BRIM_OK;
  sum_phases(t, s);
  BRIM_TRY(add_ops(t, s, out));
  double covered = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) covered += s->phase_ns[p];
  s->phase_ns[BRIM_PHASE_OTHER] += fmax(0, s->total_ns - covered);
  s->op_ns[BRIM_PHASE_OTHER] += s->op_ns[BRIM_PHASE_COUNT];  // ops outside of every phase
  BRIM_TRY(add_rests(s->phase_ns, s->op_ns, s->phase_count, out));
  const brim_profile_list lists[] = {BRIM_PROFILE_OPS, BRIM_PROFILE_LAYERS, BRIM_PROFILE_PHASES};
  const double step_ns = out->step_ms > 0 ? out->step_ms * 1e6 : s->total_ns / s->counted;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    brim_rows_per_step(out, lists[i], s->counted);
    scale_rows(&out->lists[lists[i]], step_ns * s->counted / s->total_ns);
  }
  out->traced_steps = s->steps;
  return BRIM_OK;
}

brim_status brim_profile_host_rows(const brim_trace *trace, brim_profile *out) {
  host_sums s;
  memset(&s, 0, sizeof s);
  brim_status status = host_rows(trace, &s, out);
  brim_free(s.counts);
  return status;
}

//---------------------------------- by events ----------------------------------

// True for ops whose time counts. The first of several steps is left out: the host is not yet ahead of the device.
static bool timed_op(const brim_trace *t, const brim_trace_event *e) {
  return e->kind == BRIM_TRACE_HOST_OP && (t->steps < 3 || e->step != 0);
}

static double op_length(const brim_trace_event *e, double event_ns) {
  return fmax(0, (double)(e->end_ns - e->start_ns) - event_ns);
}

// Makes every phase at least as long as its ops. The excess is taken from the time that other phases spend outside ops.
static void make_room(double phase_ns[BRIM_PHASE_COUNT], const double *op_ns) {
  double over = 0, rests = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    double rest = phase_ns[p] - op_ns[p];
    if (rest < 0) {
      over -= rest;
    } else {
      rests += rest;
    }
  }
  double left = rests > over && rests > 0 ? (rests - over) / rests : 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    phase_ns[p] = op_ns[p] + left * fmax(0, phase_ns[p] - op_ns[p]);
  }
}

// Takes the trial's phases by their means, since means add up, and scales them to the median step.
static void scale_phases(const brim_profile *out, double steps, double phase_ns[BRIM_PHASE_COUNT]) {
  const brim_result *r = &out->result;
  double sum = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) sum += r->phase_used[p] ? r->phase_ms[p].mean : 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    bool used = sum > 0 && r->phase_used[p];
    phase_ns[p] = used ? r->phase_ms[p].mean / sum * out->step_ms * 1e6 * steps : 0;
  }
}

// The most time that ops can take: that of the phases with ops, or of whole steps if no phase is known.
static double room_for_ops(const double phase_ns[BRIM_PHASE_COUNT],
                           const double op_ns[BRIM_PHASE_COUNT + 1], double whole_ns) {
  double room = 0, known = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    bool other = p == BRIM_PHASE_OTHER && op_ns[BRIM_PHASE_COUNT] > 0;
    known += phase_ns[p];
    if (op_ns[p] > 0 || other) room += phase_ns[p];
  }
  return known > 0 && room > 0 ? room : whole_ns;
}

brim_status brim_profile_event_rows(const brim_trace *trace, double event_ns, brim_profile *out) {
  double op_ns[BRIM_PHASE_COUNT + 1] = {0}, phase_ns[BRIM_PHASE_COUNT], ops = 0;
  double steps = trace->steps < 3 ? trace->steps : trace->steps - 1;
  if (trace->steps < 1) return BRIM_OK;
  for (size_t i = 0; i < trace->count; i++) {
    const brim_trace_event *e = &trace->events[i];
    if (!timed_op(trace, e)) continue;
    op_ns[e->phase] += op_length(e, event_ns);
    ops += op_length(e, event_ns);
  }
  scale_phases(out, steps, phase_ns);
  double room = room_for_ops(phase_ns, op_ns, out->step_ms * 1e6 * steps);
  double scale = ops > room ? room / ops : 1;
  for (int p = 0; p <= BRIM_PHASE_COUNT; p++) op_ns[p] *= scale;
  for (size_t i = 0; i < trace->count; i++) {
    const brim_trace_event *e = &trace->events[i];
    if (timed_op(trace, e)) BRIM_TRY(add_op(out, e, scale * op_length(e, event_ns)));
  }
  op_ns[BRIM_PHASE_OTHER] += op_ns[BRIM_PHASE_COUNT];
  make_room(phase_ns, op_ns);
  BRIM_TRY(add_rests(phase_ns, op_ns, NULL, out));
  brim_rows_per_step(out, BRIM_PROFILE_OPS, steps);
  brim_rows_per_step(out, BRIM_PROFILE_LAYERS, steps);
  brim_rows_per_step(out, BRIM_PROFILE_PHASES, steps);
  return BRIM_OK;
}

//---------------------------------- ceilings ----------------------------------

static void set_ceiling(brim_profile_row *row, const brim_machine_ceilings *c,
                        const char *precision) {
  row->ceiling[0] = '\0';
  row->ceiling_share = (double)NAN;
  if (brim_machine_doubtful(c)) return;
  double flops = brim_machine_flops(c, precision), bytes = c->copy_bytes_per_s;
  double compute_s = row->flops / flops, memory_s = row->bytes / bytes;
  if (!(row->total_ms > 0) || (isnan(compute_s) && isnan(memory_s))) return;
  bool memory = isnan(compute_s) || memory_s > compute_s;
  double least_s = memory ? memory_s : compute_s;
  const double share = least_s * 1e3 / row->total_ms;
  if (!(least_s > 0)) return;
  // above the memory ceiling the data were in a cache; above the product ceiling the ceiling is wrong
  if (share > 1) {
    if (memory) set_text(row->ceiling, sizeof row->ceiling, "in cache");
    return;
  }
  set_text(row->ceiling, sizeof row->ceiling, memory ? "copy" : precision);
  row->ceiling_share = share;
}

void brim_profile_ceilings(brim_profile *out, const char *precision) {
  for (int l = 0; l < BRIM_PROFILE_LIST_COUNT; l++) {
    for (size_t i = 0; i < out->lists[l].count; i++) {
      set_ceiling(&out->lists[l].items[i], &out->result.ceilings, precision);
    }
  }
}

//---------------------------------------- rows of a GPU ----------------------------------------
// Rows of a profile from a GPU's records: kernels, copies, and the gaps between them with their causes. Every moment
// of the window belongs to one row: to the kernel that began first, to a copy if no kernel runs, or to a gap.

// A gap shorter than this is counted as the gap between two launches.
enum { LAUNCH_NS = 10000 };

typedef struct gap {
  int64_t start, end;
  int64_t copied;  // time in it during which copies ran
  const brim_trace_event *before, *after;
} gap;

typedef struct window {
  const brim_trace *trace;
  int64_t begin, end;
  double steps;  // steps in the window
  gap *gaps;
  size_t gap_count;
  const brim_trace_event **host;  // events of the host, by start
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

// Finds the counted part of the window. It begins with the first kernel of a step and ends with the first kernel of a
// later step, so it holds whole steps with the gaps between them. It is the whole window if steps cannot be told
// apart.
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
  // a kernel that began before the window belongs to the step before
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
  if (!e->op) {  // the kernel belongs to no op, or its op is unknown
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

// Divides an op's FLOPs and bytes among its kernels by their time, since it is unknown which kernel does what.
static brim_status share_out(window *w, const brim_trace *mapped, const brim_trace_event *op,
                             const brim_row_sum *whole) {
  double total_ns = 0;
  for (size_t i = 0; i < mapped->count; i++) {
    const brim_trace_event *e = &mapped->events[i];
    if (ran_in(e, op)) total_ns += (double)(e->end_ns - e->start_ns);
  }
  for (size_t i = 0; total_ns > 0 && i < mapped->count; i++) {
    const brim_trace_event *e = &mapped->events[i];
    if (!ran_in(e, op)) continue;
    const brim_row_key key = {
        .name = e->name, .kind = kind_of(e), .op = e->op, .layer = e->layer, .phase = e->phase};
    // skip it if the recorded step ran another kernel
    if (!brim_rows_have(w->out, BRIM_PROFILE_KERNELS, &key)) continue;
    const double part = (double)(e->end_ns - e->start_ns) / total_ns;
    const brim_row_sum sum = {
        .count = NAN, .ns = 0, .flops = part * whole->flops, .bytes = part * whole->bytes};
    BRIM_TRY(brim_rows_add(w->out, BRIM_PROFILE_KERNELS, &key, &sum));
  }
  return BRIM_OK;
}

// Adds to each op how often it runs and what it computes, from the step that ran op by op.
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

// Adds the kernels' rows, and collects the gaps between kernels in order.
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

// The time of a copy in gaps between kernels, without the time that earlier copies took there.
static int64_t exposed_time(window *w, int64_t start, int64_t end, int64_t *until) {
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
    double alone = (double)exposed_time(w, start, end, &until);
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

// True for NCCL's kernels, which run beside other kernels. add_exchanges sums their time, and the part of it in which
// no other kernel ran.
static bool is_exchange(const brim_trace_event *e) {
  return e->kind == BRIM_TRACE_KERNEL && e->name && strncmp(e->name, "nccl", 4) == 0;
}

static double time_alone(const window *w, int64_t start, int64_t end) {
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
  double total_ns = 0, exposed_ns = 0;
  bool any = false;
  for (size_t i = 0; i < w->trace->count; i++) {
    const brim_trace_event *e = &w->trace->events[i];
    int64_t start, end;
    if (!is_exchange(e) || !clip(w, e, &start, &end)) continue;
    any = true;
    total_ns += (double)(end - start);
    exposed_ns += time_alone(w, start, end);
  }
  if (!any) return;
  w->out->exchange_ms = total_ns / (1e6 * w->steps);
  w->out->exchange_exposed_ms = exposed_ns / (1e6 * w->steps);
}

//---------------------------------- causes ----------------------------------

// The part of a gap that the host spent in events of a kind and phase; BRIM_PHASE_COUNT = any phase.
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

// True if the host waited for the GPU when the gap began: then it had enqueued no further work.
static bool host_waited(const window *w, const gap *g) {
  for (size_t i = 0; i < w->host_count && w->host[i]->start_ns < g->start; i++) {
    const brim_trace_event *e = w->host[i];
    if (e->kind == BRIM_TRACE_SYNC && e->end_ns >= g->start) return true;
  }
  return false;
}

static brim_gap_cause cause_of(const window *w, const gap *g) {
  int64_t length = g->end - g->start;
  bool same_launch = g->before && g->after && g->before->correlation != 0 &&
                     g->before->correlation == g->after->correlation;
  if (length < LAUNCH_NS) return BRIM_GAP_LAUNCH;
  if (same_launch) return BRIM_GAP_DEPENDENCY;
  if (2 * host_in(w, g, BRIM_TRACE_PHASE, BRIM_PHASE_IO) >= length) return BRIM_GAP_INPUT;
  if (host_waited(w, g)) return BRIM_GAP_SYNC;
  if (2 * host_in(w, g, BRIM_TRACE_STEP, BRIM_PHASE_COUNT) >= length) return BRIM_GAP_HOST;
  return BRIM_GAP_UNKNOWN;
}

static void name_of(const brim_trace_event *e, char *out, size_t size) {
  snprintf(out, size, "%s", e ? e->name : "");
}

// Keeps the longest gaps, sorted.
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

// The factor that removes the time added by tracing from the gaps. Copies are not shortened.
static double own_part(const window *w, const double ns[BRIM_GAP_COUNT]) {
  double idle = 0, traced = (double)(w->end - w->begin) / w->steps;
  for (int i = 0; i < BRIM_GAP_COUNT; i++) idle += i == BRIM_GAP_TRANSFER ? 0 : ns[i] / w->steps;
  double added_ns = traced - w->out->step_ms * 1e6;
  if (!(added_ns > 0) || idle <= 0) return 1;
  return added_ns < idle ? (idle - added_ns) / idle : 0;
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

//---------------------------------- all lists ----------------------------------

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
