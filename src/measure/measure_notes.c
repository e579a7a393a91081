// What happens while steps run, written into a trace: whole steps, phases by their spans, ops by the
// device's watch.
#include "measure/measure_profile_int.h"

#include <math.h>
#include <string.h>

enum { MOST_OPS = 20000, EVENT_PAIRS = 64 };

static int64_t now_ns(const brim_notes *n) {
  return brim_time_since_ns(n->begin, brim_clock_now());
}

//---------------------------------- phases ----------------------------------

static void on_begin(void *ctx, brim_phase phase, const char *name) {
  brim_notes *n = (brim_notes *)ctx;
  if (n->depth == BRIM_NOTES_DEPTH) return;
  n->open[n->depth].phase = phase;
  n->open[n->depth].name = name;
  n->open[n->depth++].start_ns = now_ns(n);
}

static void on_end(void *ctx, brim_phase phase, const char *name) {
  brim_notes *n = (brim_notes *)ctx;
  (void)name;
  if (n->depth == 0 || n->open[n->depth - 1].phase != phase) return;
  n->depth--;
  const char *text = n->open[n->depth].name ? n->open[n->depth].name : brim_phase_key(phase);
  brim_trace_event *e = brim_trace_add(n->trace, BRIM_TRACE_PHASE, text);
  if (!e) {
    n->short_of_memory = true;
    return;
  }
  e->start_ns = n->open[n->depth].start_ns;
  e->end_ns = now_ns(n);
  e->phase = phase;
  e->step = n->step;
}

//---------------------------------- ops ----------------------------------

static void see_net(brim_notes *n) {
  const brim_net *net = n->watch.net;
  if (!net || (n->net_count > 0 && n->nets[n->net_count - 1] == net)) return;
  for (size_t i = 0; i < n->net_count; i++) {
    if (n->nets[i] == net) return;
  }
  if (n->net_count < BRIM_NOTES_NETS) n->nets[n->net_count++] = net;
}

const char *brim_notes_layer(const brim_net *net, const char *layer, char out[160]) {
  const char *name = net ? brim_net_name(net) : NULL;
  if (!layer || !name) return layer;
  snprintf(out, 160, "%s/%s", name, layer);
  return out;
}

static const char *layer_now(brim_notes *n) {
  char text[160];
  return brim_trace_text(n->trace, brim_notes_layer(n->watch.net, n->watch.layer, text));
}

// A span of the workload says more than the engine: it is what the step's phases are made of.
static brim_phase phase_now(const brim_notes *n) {
  return n->depth > 0 ? n->open[n->depth - 1].phase : n->watch.phase;
}

static brim_status before_clock(void *ctx, const brim_op_call *call) {
  brim_notes *n = (brim_notes *)ctx;
  (void)call;
  see_net(n);
  n->op_start_ns = now_ns(n);
  return BRIM_OK;
}

static brim_status after_clock(void *ctx, const brim_op_call *call) {
  brim_notes *n = (brim_notes *)ctx;
  BRIM_TRY(brim_device_sync(n->device));
  int64_t end_ns = now_ns(n);
  double flops = 0, bytes = 0;
  brim_op_cost(call, &flops, &bytes);
  const char *layer = layer_now(n);
  brim_trace_event *e = brim_trace_add(n->trace, BRIM_TRACE_HOST_OP, brim_op_name(call->op));
  if (!e) {
    n->short_of_memory = true;
    return BRIM_OK;
  }
  e->start_ns = n->op_start_ns;
  e->end_ns = end_ns;
  e->op = e->name;
  e->layer = layer;
  e->phase = phase_now(n);
  e->step = n->step;
  e->flops = flops;
  e->bytes = (uint64_t)bytes;
  return BRIM_OK;
}

static bool grow_ops(brim_notes *n) {
  if (n->op_made < n->op_capacity) return true;
  size_t capacity = n->op_capacity ? 2 * n->op_capacity : 512;
  brim_notes_op *grown = (brim_notes_op *)brim_realloc(n->ops, capacity * sizeof *grown);
  if (!grown) return false;
  n->ops = grown;
  n->op_capacity = capacity;
  return true;
}

// One more pair of events.
static brim_status make_op(brim_notes *n) {
  if (n->op_made >= MOST_OPS || !grow_ops(n)) {
    return brim_fail(BRIM_ELIMIT, "a step has too many ops to be timed one by one");
  }
  brim_notes_op *op = &n->ops[n->op_made++];
  memset(op, 0, sizeof *op);
  BRIM_TRY(brim_event_create(n->device, &op->start));
  return brim_event_create(n->device, &op->end);
}

brim_status brim_notes_reserve(brim_notes *notes, size_t ops) {
  while (notes->op_made < ops && notes->op_made < MOST_OPS) BRIM_TRY(make_op(notes));
  return BRIM_OK;
}

static brim_status before_event(void *ctx, const brim_op_call *call) {
  brim_notes *n = (brim_notes *)ctx;
  (void)call;
  see_net(n);
  if (n->op_count == n->op_made) BRIM_TRY(make_op(n));
  return brim_event_record(n->device, n->ops[n->op_count++].start);
}

static brim_status after_event(void *ctx, const brim_op_call *call) {
  brim_notes *n = (brim_notes *)ctx;
  brim_notes_op *op = &n->ops[n->op_count - 1];
  BRIM_TRY(brim_event_record(n->device, op->end));
  op->name = brim_op_name(call->op);
  op->layer = layer_now(n);
  op->phase = n->watch.phase < BRIM_PHASE_COUNT ? n->watch.phase : phase_now(n);
  op->step = n->step;
  brim_op_cost(call, &op->flops, &op->bytes);
  return BRIM_OK;
}

//---------------------------------- steps ----------------------------------

void brim_notes_begin(brim_notes *notes, brim_device *device, brim_trace *trace,
                      brim_notes_mode mode, bool exact) {
  memset(notes, 0, sizeof *notes);
  notes->device = device;
  notes->trace = trace;
  notes->mode = mode;
  notes->begin = brim_clock_now();
  trace->begin_unix_s = brim_clock_wall_s();
  notes->spans =
      (brim_spans){.ctx = notes, .exact = exact, .begin = on_begin, .end = on_end, .add = NULL};
  if (mode == BRIM_NOTES_NONE) return;
  bool clock = mode == BRIM_NOTES_CLOCK;
  notes->watch = (brim_op_watch){.ctx = notes,
                                 .op_by_op = true,
                                 .before = clock ? before_clock : before_event,
                                 .after = clock ? after_clock : after_event,
                                 .phase = BRIM_PHASE_COUNT};
  device->watch = &notes->watch;
}

brim_status brim_notes_step(brim_notes *notes, brim_work *work, bool sync, brim_step_info *info) {
  int64_t start_ns = now_ns(notes);
  notes->depth = 0;
  BRIM_TRY(work->table->step(work->state, &notes->spans, info));
  if (sync) BRIM_TRY(brim_device_sync(notes->device));
  brim_trace_event *e = brim_trace_add(notes->trace, BRIM_TRACE_STEP, "step");
  if (!e) return brim_fail(BRIM_ENOMEM, "out of memory for the trace");
  e->start_ns = start_ns;
  e->end_ns = now_ns(notes);
  e->step = notes->step++;
  return BRIM_OK;
}

static brim_status take_op(brim_notes *n, const brim_notes_op *op, brim_event *base) {
  int64_t at_ns = 0, ns = 0;
  if (!op->name) return BRIM_OK;  // it failed in between
  BRIM_TRY(brim_event_elapsed(n->device, base, op->start, &at_ns));
  BRIM_TRY(brim_event_elapsed(n->device, op->start, op->end, &ns));
  brim_trace_event *e = brim_trace_add(n->trace, BRIM_TRACE_HOST_OP, op->name);
  if (!e) return brim_fail(BRIM_ENOMEM, "out of memory for the trace");
  e->start_ns = at_ns;
  e->end_ns = at_ns + ns;
  e->device = 0;
  e->op = e->name;
  e->layer = op->layer;
  e->phase = op->phase;
  e->step = op->step;
  e->flops = op->flops;
  e->bytes = (uint64_t)op->bytes;
  return BRIM_OK;
}

brim_status brim_notes_end(brim_notes *notes) {
  brim_status status = brim_device_sync(notes->device);
  notes->device->watch = NULL;
  notes->trace->steps = notes->step;
  notes->trace->wall_ns = now_ns(notes);
  for (size_t i = 0; i < notes->op_count; i++) {
    brim_notes_op *op = &notes->ops[i];
    if (!status) status = take_op(notes, op, notes->ops[0].start);
  }
  for (size_t i = 0; i < notes->op_made; i++) {
    brim_event_destroy(notes->device, notes->ops[i].start);
    brim_event_destroy(notes->device, notes->ops[i].end);
  }
  brim_free(notes->ops);
  notes->ops = NULL;
  notes->op_made = notes->op_capacity = 0;  // op_count says how many there were
  brim_trace_sort(notes->trace);
  if (!status && notes->short_of_memory) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the trace");
  }
  return status;
}

brim_status brim_notes_event_ns(brim_device *device, double *ns) {
  brim_event *events[2 * EVENT_PAIRS] = {NULL};
  double shown[EVENT_PAIRS];
  brim_status status = BRIM_OK;
  for (int i = 0; !status && i < 2 * EVENT_PAIRS; i++) {
    status = brim_event_create(device, &events[i]);
  }
  for (int i = 0; !status && i < 2 * EVENT_PAIRS; i++) {
    status = brim_event_record(device, events[i]);
  }
  for (int i = 0; !status && i < EVENT_PAIRS; i++) {
    int64_t elapsed = 0;
    status = brim_event_elapsed(device, events[2 * i], events[2 * i + 1], &elapsed);
    shown[i] = (double)elapsed;
  }
  if (!status) status = brim_stats_median(shown, EVENT_PAIRS, ns);
  brim_status synced = brim_device_sync(device);  // an event that is still to come must not go
  if (!status) status = synced;
  for (int i = 0; i < 2 * EVENT_PAIRS; i++) brim_event_destroy(device, events[i]);
  return status;
}
