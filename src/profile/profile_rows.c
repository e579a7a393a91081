// Rows of a profile by the host's clock and by events around ops, and the ceilings of rows. Those of
// a GPU's records are profile_device.c.
#include "profile/profile_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/profile_rows_int.h"
#include "record/record_findings.h"

//---------------------------------- rows ----------------------------------

static void set_text(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text ? text : "");
}

// Shown while all that was added says the same.
static void agree(char *out, size_t size, const char *text) {
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

bool brim_rows_have(const brim_profile *profile, brim_profile_list list, const brim_row_key *key) {
  return find(&profile->lists[list], key) != NULL;
}

brim_status brim_rows_add(brim_profile *out, brim_profile_list list, const brim_row_key *key,
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
    agree(row->op, sizeof row->op, key->op);
    agree(row->layer, sizeof row->layer, key->layer);
    agree(row->phase, sizeof row->phase, phase);
  }
  add_known(&row->count, sum->count);
  add_known(&row->ms, sum->ns);
  add_known(&row->total_ms, sum->total_ns);
  add_known(&row->flops, sum->flops);
  add_known(&row->bytes, sum->bytes);
  return BRIM_OK;
}

void brim_rows_per_step(brim_profile *out, brim_profile_list list, double steps) {
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

// An op under its name and under its layer; what has no layer is under its phase.
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

// Which steps count, and the sums over them.
typedef struct host_sums {
  bool *counts;  // by step
  int32_t steps, counted;
  double total_ns;
  double phase_ns[BRIM_PHASE_COUNT];  // without the phases inside
  double op_ns[BRIM_PHASE_COUNT + 1];
  double phase_count[BRIM_PHASE_COUNT];
} host_sums;

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Steps by their number, in ns; how many there are.
static int32_t lengths(const brim_trace *t, double *ns) {
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

// The twentieth that took most nearly as long as `typical`, and not fewer than three: a step that something else disturbed says
// nothing of where time goes.
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
  int32_t count = lengths(t, ns), kept = 0;
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

static bool counted(const host_sums *s, const brim_trace_event *e) {
  return e->device < 0 && e->stream == 0 && e->step >= 0 && e->step < s->steps &&
         s->counts[e->step];
}

// Of nested phases only the innermost has its time. Events come by start, longer ones first.
static void sum_phases(const brim_trace *t, host_sums *s) {
  enum { DEPTH = 16 };
  const brim_trace_event *open[DEPTH];
  int depth = 0;
  for (size_t i = 0; i < t->count; i++) {
    const brim_trace_event *e = &t->events[i];
    if (e->kind != BRIM_TRACE_PHASE || e->phase >= BRIM_PHASE_COUNT || !counted(s, e)) continue;
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
    if (e->kind != BRIM_TRACE_HOST_OP || !counted(s, e)) continue;
    double ns = (double)(e->end_ns - e->start_ns);
    s->op_ns[e->phase] += ns;
    BRIM_TRY(add_op(out, e, ns));
  }
  return BRIM_OK;
}

// What no op covered, phase by phase, in the lists of ops and layers; and the phases themselves.
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

// Tracing makes steps longer, and others disturb them: rows are of the untraced step.
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
  s->op_ns[BRIM_PHASE_OTHER] += s->op_ns[BRIM_PHASE_COUNT];  // outside of every phase
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

// In the first of several steps the host was not ahead of the device yet.
static bool timed_op(const brim_trace *t, const brim_trace_event *e) {
  return e->kind == BRIM_TRACE_HOST_OP && (t->steps < 3 || e->step != 0);
}

static double op_length(const brim_trace_event *e, double event_ns) {
  return fmax(0, (double)(e->end_ns - e->start_ns) - event_ns);
}

// A phase cannot be shorter than its ops: what they took more is taken from what the others have
// besides ops.
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

// The phases of the trial, scaled to the median step: their means add up.
static void scale_phases(const brim_profile *out, double steps, double phase_ns[BRIM_PHASE_COUNT]) {
  const brim_result *r = &out->result;
  double sum = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) sum += r->phase_used[p] ? r->phase_ms[p].mean : 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    bool used = sum > 0 && r->phase_used[p];
    phase_ns[p] = used ? r->phase_ms[p].mean / sum * out->step_ms * 1e6 * steps : 0;
  }
}

// What ops can take at most: the phases that have some, or the whole of the steps where no phase is known.
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
  // Faster than memory: the data were in a cache. Faster than products can be: the ceiling is wrong.
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
