// A profile of a workload: measures the step as a trial does, then traces a short window of steps.

#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "engine/engine.h"
#include "measure/measure_int.h"
#include "profile/profile_rows.h"

enum { BRIM_NOTES_DEPTH = 16, BRIM_NOTES_NETS = 16 };

// The ways to time ops.
typedef enum brim_notes_mode {
  BRIM_NOTES_NONE,   // ops are not timed: steps run as in training
  BRIM_NOTES_CLOCK,  // by the host's clock, which waits for the device after each op
  BRIM_NOTES_EVENTS  // by events on the device, without waiting
} brim_notes_mode;

typedef struct brim_notes_op {
  brim_event *start, *end;
  const char *name, *layer;
  brim_phase phase;
  double flops, bytes;
  int32_t step;
} brim_notes_op;

// Writes steps, phases and ops into a trace. Holds the device's watch and the spans of the steps.
typedef struct brim_notes {
  brim_device *device;
  brim_trace *trace;
  brim_notes_mode mode;
  brim_time begin;  // when the trace began
  int32_t step;
  brim_spans spans;
  brim_op_watch watch;
  struct {
    brim_phase phase;
    const char *name;
    int64_t start_ns;
  } open[BRIM_NOTES_DEPTH];
  int depth;
  int64_t op_start_ns, step_start_ns;
  bool short_of_memory;  // an event could not be added
  // Networks whose ops were seen.
  const brim_net *nets[BRIM_NOTES_NETS];
  size_t net_count;
  // Used by BRIM_NOTES_EVENTS only.
  brim_notes_op *ops;
  size_t op_count, op_made, op_capacity;
} brim_notes;

typedef struct brim_profiler {
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_setting *setting;
  const brim_profile_options *options;
  brim_profile *out;
  brim_trace *trace;
} brim_profiler;

//-------------------------------------------- stages --------------------------------------------
// Stages of a profile's run, and the time that each may take.

enum { USUAL_STEPS = 20, LEAST_STEPS = 3 };
#define USUAL_SECONDS 10.0

// Reports a stage by `on_stage`. BRIM_EINTERRUPTED if the caller wants to stop.
static brim_status brim_profiler_stage(const brim_profiler *p, const char *what) {
  if (p->options->stop && *p->options->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
  if (p->options->on_stage) p->options->on_stage(p->options->ctx, what);
  return BRIM_OK;
}

// Time limit in seconds: once for measuring the step and once more for tracing it.
static double brim_profiler_seconds(const brim_profiler *p) {
  return p->options->max_seconds > 0 ? p->options->max_seconds : USUAL_SECONDS;
}

// Steps to trace: the number asked for, or fewer if that would take more than `share` of the time.
static int brim_profiler_steps(const brim_profiler *p, double share) {
  int most = p->options->steps > 0 ? p->options->steps : USUAL_STEPS;
  double step_s = p->out->result.total_ms.median * 1e-3;
  double fit = floor(share * brim_profiler_seconds(p) / fmax(step_s, 1e-9));
  return (int)fmin(most, fmax(LEAST_STEPS < most ? LEAST_STEPS : most, fit));
}

// Sets the time and bytes per step of the ranks' exchanges through the host since `before`.
static void brim_profiler_take_exchange(const brim_profiler *p, const brim_comm_stats *before,
                                        int steps) {
  brim_profile *out = p->out;
  brim_comm_stats now;
  if (out->ranks == 0 || !brim_device_exchange_stats(p->device, &now)) return;
  out->exchange_ms = (double)(now.busy_ns - before->busy_ns) * 1e-6 / steps;
  out->exchange_bytes = (double)(now.bytes - before->bytes) / steps;
  if (!p->device->info.host_memory) return;  // exposed time is measured on the host only
  out->exchange_exposed_ms = (double)(now.waited_ns - before->waited_ns) * 1e-6 / steps;
  // include the time until the waiting thread runs again
  out->exchange_ms = fmax(out->exchange_ms, out->exchange_exposed_ms);
}

//-------------------------------------------- notes --------------------------------------------
// Writes steps, phases (from spans) and ops (from the device's watch) into a trace while steps run.

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

// "actor/layers.0" for a layer of one of several networks, else the layer's name. NULL = no layer.
static const char *brim_notes_layer(const brim_net *net, const char *layer, char out[160]) {
  const char *name = net ? brim_net_name(net) : NULL;
  if (!layer || !name) return layer;
  snprintf(out, 160, "%s/%s", name, layer);
  return out;
}

static const char *layer_now(brim_notes *n) {
  char text[160];
  return brim_trace_text(n->trace, brim_notes_layer(n->watch.net, n->watch.layer, text));
}

// The phase of an op: the workload's innermost span, else the engine's phase.
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

// Adds a pair of events.
static brim_status make_op(brim_notes *n) {
  if (n->op_made >= MOST_OPS || !grow_ops(n)) {
    return brim_fail(BRIM_ELIMIT, "a step has too many ops to be timed one by one");
  }
  brim_notes_op *op = &n->ops[n->op_made++];
  memset(op, 0, sizeof *op);
  BRIM_TRY(brim_event_create(n->device, &op->start));
  return brim_event_create(n->device, &op->end);
}

// For BRIM_NOTES_EVENTS: creates events for `ops` ops in advance, since creating them takes time on the host.
static brim_status brim_notes_reserve(brim_notes *notes, size_t ops) {
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

// Begins the trace. `exact`: spans wait for the device.
static void brim_notes_begin(brim_notes *notes, brim_device *device, brim_trace *trace,
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

// Runs and traces one step; with `sync` waits for the device at its end.
static brim_status brim_notes_step(brim_notes *notes, brim_work *work, bool sync,
                                   brim_step_info *info) {
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
  if (!op->name) return BRIM_OK;  // the op failed
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

// Ends the trace, after the device is done: adds ops timed by events. BRIM_ENOMEM if something could not be written.
static brim_status brim_notes_end(brim_notes *notes) {
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

// The time between two events without work between them, in ns.
static brim_status brim_notes_event_ns(brim_device *device, double *ns) {
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
  brim_status synced = brim_device_sync(device);  // wait for the events before destroying them
  if (!status) status = synced;
  for (int i = 0; i < 2 * EVENT_PAIRS; i++) brim_event_destroy(device, events[i]);
  return status;
}

//-------------------------------------------- memory --------------------------------------------
// The memory timeline: the planner's arenas of the networks that trained, node by node.

static void set_text(char *out, size_t size, const char *text) {
  snprintf(out, size, "%.*s", (int)size - 1, text ? text : "");
}

static brim_status grow(brim_profile_memory *m, const brim_net_memory *more) {
  brim_profile_point *points = (brim_profile_point *)brim_realloc(
      m->points, (m->point_count + more->point_count + 1) * sizeof *points);
  if (points) m->points = points;
  brim_profile_block *blocks = (brim_profile_block *)brim_realloc(
      m->blocks, (m->block_count + more->place_count + 1) * sizeof *blocks);
  if (blocks) m->blocks = blocks;
  return points && blocks ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the trace");
}

// Appends one network's points. Networks that share an arena take turns in it.
static brim_status add_net(const brim_net *of, const brim_net_memory *net, brim_profile_memory *m) {
  char text[160];
  BRIM_TRY(grow(m, net));
  int base = (int)m->point_count;
  for (size_t i = 0; i < net->point_count; i++) {
    const brim_net_point *from = &net->points[i];
    brim_profile_point *to = &m->points[m->point_count++];
    memset(to, 0, sizeof *to);
    set_text(to->op, sizeof to->op, from->op);
    set_text(to->layer, sizeof to->layer, brim_notes_layer(of, from->layer, text));
    set_text(to->phase, sizeof to->phase, brim_phase_key(from->phase));
    to->bytes = (double)from->bytes;
    if (m->peak >= 0 && to->bytes <= m->peak_bytes) continue;
    m->peak = base + (int)i;
    m->peak_bytes = to->bytes;
  }
  for (size_t i = 0; i < net->place_count; i++) {
    const brim_net_place *from = &net->places[i];
    brim_profile_block *to = &m->blocks[m->block_count++];
    memset(to, 0, sizeof *to);
    set_text(to->name, sizeof to->name, brim_notes_layer(of, from->name, text));
    set_text(to->kind, sizeof to->kind, from->kind);
    to->bytes = (double)from->bytes;
    to->offset = (double)from->offset;
    to->first = base + from->first;
    to->last = base + from->last;
  }
  double arena = (double)net->arena_bytes;
  if (!(m->arena_bytes >= arena)) m->arena_bytes = arena;
  return BRIM_OK;
}

// The memory of the networks whose ops were seen.
static brim_status brim_profile_take_memory(const brim_notes *notes, brim_profile *out) {
  brim_profile_memory *m = &out->memory;
  for (size_t i = 0; i < notes->net_count; i++) {
    brim_net_memory net;
    BRIM_TRY(brim_net_memory_of(notes->nets[i], &net));
    brim_status status = add_net(notes->nets[i], &net, m);
    brim_net_memory_free(&net);
    BRIM_TRY(status);
  }
  // subtract the arena, which the plan's bytes include
  double planned = (double)out->result.plan.bytes[BRIM_PLACE_DEVICE];
  if (m->arena_bytes >= 0) m->fixed_bytes = planned > m->arena_bytes ? planned - m->arena_bytes : 0;
  return BRIM_OK;
}

//--------------------------------------------- GPU ---------------------------------------------
// Traces a window of steps on a GPU. With CUPTI one step runs op by op, waiting for the device after each, to learn
// which op a kernel belongs to; then a window of steps runs as in training. Without CUPTI steps run op by op with
// events around each op.

// LEAD: first steps of the window, left out of the figures because the device is not busy yet. WARM_STEPS: each piece
// of a step runs op by op once and is recorded once, for each of two input slots.
enum { LEAD = 2, WARM_STEPS = 4, EVENT_STEPS = 5 };
#define ENOUGH_FOUND 0.9  // warn if a smaller share of the kernels has an op

static double seconds_since(brim_time start) {
  return (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
}

static brim_status plain_steps(const brim_profiler *p, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    BRIM_TRY(p->work->table->step(p->work->state, NULL, &info));
  }
  return brim_device_sync(p->device);
}

static brim_status noted_steps(const brim_profiler *p, brim_notes *notes, int count, bool sync) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    if (p->options->stop && *p->options->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    BRIM_TRY(brim_notes_step(notes, p->work, sync, &info));
  }
  return BRIM_OK;
}

//---------------------------------- by CUPTI ----------------------------------

// Says how steps run while CUPTI records.
typedef struct traced {
  brim_notes_mode mode;
  bool exact;
  int steps;
  brim_trace *into;
} traced;

static brim_status trace_steps(brim_profiler *p, brim_gpu_trace *gpu, const traced *how,
                               brim_notes *notes) {
  brim_gpu_trace_sum sum;
  brim_time start = brim_clock_now();
  BRIM_TRY(brim_device_sync(p->device));
  brim_comm_stats exchanged = {0};
  (void)brim_device_exchange_stats(p->device, &exchanged);
  brim_notes_begin(notes, p->device, how->into, how->mode, how->exact);
  brim_status status = brim_gpu_trace_start(gpu);
  if (status) {
    (void)brim_notes_end(notes);
    return status;
  }
  status = noted_steps(p, notes, how->steps, how->mode == BRIM_NOTES_CLOCK);
  brim_status ended = brim_notes_end(notes);
  brim_profiler_take_exchange(p, &exchanged, how->steps);
  brim_status stopped = brim_gpu_trace_stop(gpu, &sum);
  p->out->window_s = seconds_since(start);  // the last window counts
  BRIM_TRY(status);
  BRIM_TRY(ended);
  BRIM_TRY(stopped);
  if (sum.dropped > 0) {
    return brim_fail(BRIM_ELIMIT, "the trace lost %lld records", (long long)sum.dropped);
  }
  brim_result *r = &p->out->result;  // sets the same figures as brim_trial_trace
  r->gpu_busy_ms = sum.busy_ms / how->steps;
  r->gpu_kernel_ms = sum.kernel_ms / how->steps;
  r->gpu_copy_ms = (sum.h2d_ms + sum.d2h_ms + sum.d2d_ms) / how->steps;
  r->kernels = (double)sum.kernels / how->steps;
  return brim_gpu_trace_events(gpu, notes->begin, how->into);
}

// Traces one step op by op, after a step that loads kernels.
static brim_status map_step(brim_profiler *p, brim_gpu_trace *gpu, brim_trace *mapped) {
  brim_notes notes;
  brim_trace first;
  brim_step_info info;
  BRIM_TRY(brim_profiler_stage(p, BRIM_N_("tracing a step op by op")));
  brim_trace_init(&first);
  brim_notes_begin(&notes, p->device, &first, BRIM_NOTES_CLOCK, true);
  brim_status status = brim_notes_step(&notes, p->work, true, &info);
  brim_status ended = brim_notes_end(&notes);
  brim_trace_deinit(&first);
  BRIM_TRY(status);
  BRIM_TRY(ended);
  const traced how = {.mode = BRIM_NOTES_CLOCK, .exact = true, .steps = 1, .into = mapped};
  BRIM_TRY(trace_steps(p, gpu, &how, &notes));
  return brim_profile_take_memory(&notes, p->out);
}

static brim_status trace_window(brim_profiler *p, brim_gpu_trace *gpu, brim_trace *mapped) {
  brim_profile *out = p->out;
  brim_notes notes;
  BRIM_TRY(brim_profiler_stage(p, BRIM_N_("tracing steps")));
  BRIM_TRY(plain_steps(p, WARM_STEPS));
  const traced how = {
      .mode = BRIM_NOTES_NONE, .steps = LEAD + 1 + brim_profiler_steps(p, 0.5), .into = p->trace};
  BRIM_TRY(trace_steps(p, gpu, &how, &notes));
  double found = brim_trace_attribute(p->trace, mapped);
  if (found < ENOUGH_FOUND) {
    brim_words_add(out->note, sizeof out->note,
                   BRIM_N_("%.0f %% of the kernels could not be assigned to an op"),
                   brim_shown(100 * (1 - found)));
  }
  return brim_profile_device_rows(p->trace, mapped, LEAD, out);
}

static brim_status trace_by_cupti(brim_profiler *p) {
  brim_gpu_trace *gpu = NULL;
  brim_trace mapped;
  brim_time start = brim_clock_now();
  BRIM_TRY(brim_gpu_trace_open(&gpu));
  brim_gpu_trace_keep_details(gpu, true);
  // start and stop once before tracing: the first start prepares every loaded kernel, which takes time
  brim_gpu_trace_sum none;
  brim_status status = brim_device_sync(p->device);
  if (!status) status = brim_gpu_trace_start(gpu);
  if (!status) status = brim_gpu_trace_stop(gpu, &none);
  p->out->attach_s = seconds_since(start);
  brim_trace_init(&mapped);
  if (!status) status = map_step(p, gpu, &mapped);
  if (!status) status = trace_window(p, gpu, &mapped);
  brim_trace_deinit(&mapped);
  brim_status synced = brim_device_sync(p->device);
  brim_gpu_trace_close(gpu);
  if (!status) status = synced;
  if (!status) snprintf(p->out->source, sizeof p->out->source, "cupti");
  return status;
}

//---------------------------------- by events ----------------------------------

static brim_status trace_by_events(brim_profiler *p) {
  brim_profile *out = p->out;
  brim_notes notes;
  brim_trace first;
  double event_ns = 0;
  brim_step_info info;
  BRIM_TRY(brim_profiler_stage(p, BRIM_N_("timing ops by events")));
  brim_trace_init(&first);
  brim_notes_begin(&notes, p->device, &first, BRIM_NOTES_EVENTS, false);
  brim_status status = brim_notes_step(&notes, p->work, true, &info);
  brim_status ended = brim_notes_end(&notes);
  brim_trace_deinit(&first);
  BRIM_TRY(status);
  BRIM_TRY(ended);
  BRIM_TRY(brim_notes_event_ns(p->device, &event_ns));
  int steps = brim_profiler_steps(p, 0.5);
  if (steps > EVENT_STEPS) steps = EVENT_STEPS;
  size_t ops = (size_t)steps * notes.op_count;
  BRIM_TRY(brim_device_sync(p->device));
  brim_notes_begin(&notes, p->device, p->trace, BRIM_NOTES_EVENTS, false);
  brim_time start = brim_clock_now();
  status = brim_notes_reserve(&notes, ops);
  if (!status) status = noted_steps(p, &notes, steps, false);
  ended = brim_notes_end(&notes);
  BRIM_TRY(status);
  BRIM_TRY(ended);
  out->window_s = seconds_since(start);
  out->traced_ms = (double)p->trace->wall_ns / 1e6 / steps;
  out->traced_steps = steps;
  snprintf(out->source, sizeof out->source, "events");
  BRIM_TRY(brim_profile_take_memory(&notes, out));
  return brim_profile_event_rows(p->trace, event_ns, out);
}

//---------------------------------- CUPTI or events ----------------------------------

// Removes what a failed source left behind.
static void start_over(brim_profiler *p) {
  brim_profile *out = p->out;
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) out->lists[i].count = 0;
  brim_free(out->memory.points);
  brim_free(out->memory.blocks);
  out->memory =
      (brim_profile_memory){.arena_bytes = NAN, .fixed_bytes = NAN, .peak_bytes = NAN, .peak = -1};
  out->has_gaps = false;
  out->gap_count = 0;
  char device[sizeof p->trace->device];
  memcpy(device, p->trace->device, sizeof device);
  brim_trace_deinit(p->trace);
  memcpy(p->trace->device, device, sizeof device);
}

// Traces a window of steps on a GPU, by CUPTI or by events.
static brim_status brim_profiler_trace_gpu(brim_profiler *p) {
  const char *source = p->options->source ? p->options->source : "";
  if (strcmp(source, "events") == 0) return trace_by_events(p);
  if (source[0] && strcmp(source, "cupti") != 0) {
    return brim_fail(BRIM_EUNSUPPORTED, "the source %s is none of: cupti, events", source);
  }
  brim_status status = trace_by_cupti(p);
  // use events if CUPTI fails: taken by another tool, not permitted, too many records
  bool use_events = status == BRIM_EUNSUPPORTED || status == BRIM_ELIMIT || status == BRIM_EOOM;
  if (!use_events || source[0]) return status;
  char why[sizeof p->out->note];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  brim_status_clear();
  start_over(p);
  status = trace_by_events(p);
  memcpy(p->out->note, why, sizeof why);
  return status;
}

//------------------------------------------- profile -------------------------------------------
// Makes the whole profile. On the host traced and plain steps alternate, so that disturbances affect both alike.

enum { TRIAL_STEPS = 20, MOST_TURNS = 200 };
#define TURNS_SECONDS 5.0  // time limit of the pairs of steps on the host

//---------------------------------- the step ----------------------------------

static void take_step(brim_profile *out) {
  out->step_ms = out->result.total_ms.median;
  out->step_mad_ms = out->result.total_ms.mad;
}

static brim_status measure_step(brim_profiler *p) {
  brim_trial_options options = {.steps = TRIAL_STEPS,
                                .ci_target = 0.01,
                                .max_seconds = brim_profiler_seconds(p),
                                .memory_limit = p->options->memory_limit,
                                .memory = p->options->memory,
                                .sampler = p->options->sampler,
                                .machine = p->options->machine,
                                .ceilings = true,
                                .stop = p->options->stop};
  brim_result *r = &p->out->result;
  BRIM_TRY(brim_profiler_stage(p, BRIM_N_("measuring the step")));
  BRIM_TRY(brim_trial_run(p->work, p->config, p->device, p->setting, &options, r));
  take_step(p->out);
  return BRIM_OK;
}

//---------------------------------- the loader ----------------------------------

static void loading(const brim_profiler *p, brim_work_loading *out) {
  memset(out, 0, sizeof *out);
  if (p->work->table->loading) p->work->table->loading->stats(p->work->state, out);
}

// Returns the factor by which the parts of loading are scaled so that they do not exceed the wait; 1 with workers.
// Without workers loading is part of the wait, but the wait is a median and the parts are means.
static double share_of_wait(const brim_profile *out, double loading_ms) {
  double wait_ms = out->result.phase_ms[BRIM_PHASE_IO].median;
  return out->workers == 0 && wait_ms > 0 && loading_ms > wait_ms ? wait_ms / loading_ms : 1;
}

// Adds a row per transform: its milliseconds per step in the loader's threads. Sets the result's loader stages too.
static brim_status take_transforms(const brim_profiler *p, const brim_work_loading *before,
                                   const brim_work_loading *after) {
  brim_profile *out = p->out;
  brim_result *r = &out->result;
  double samples = (double)(after->samples - before->samples);
  double rows = r->plan.samples_per_step, io_ns = 0, sum = 0;
  if (!(samples > 0) || !(rows > 0)) return BRIM_OK;
  double steps = samples / rows;
  io_ns = (double)(after->read_ns - before->read_ns);
  brim_loader_stages(before, after, rows, r);
  out->workers = (int)brim_result_number_as(r, BRIM_ROLE_WORKERS, 0);
  for (size_t i = 0; i < r->stage_count; i++) sum += r->stages[i].ms;
  double share = share_of_wait(out, io_ns * 1e-6 / steps + sum);
  for (size_t i = 0; i < r->stage_count; i++) {
    brim_profile_row *row = brim_profile_add(out, BRIM_PROFILE_TRANSFORMS);
    if (!row) return brim_fail(BRIM_ENOMEM, "out of memory for the trace");
    snprintf(row->name, sizeof row->name, "%s", r->stages[i].name);
    snprintf(row->kind, sizeof row->kind, "transform");
    row->count = rows;
    row->total_ms = r->stages[i].ms *= share;
  }
  if (io_ns > 0) r->worker_io_ms = out->worker_io_ms = share * io_ns * 1e-6 / steps;
  if (r->stage_count > 0) r->worker_transform_ms = out->worker_transform_ms = share * sum;
  return BRIM_OK;
}

//---------------------------------- on the host ----------------------------------

static brim_status plain_step(const brim_profiler *p, double *ms) {
  brim_step_info info;
  brim_time start = brim_clock_now();
  BRIM_TRY(p->work->table->step(p->work->state, NULL, &info));
  BRIM_TRY(brim_device_sync(p->device));
  *ms = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-6;
  return BRIM_OK;
}

// Runs pairs of a plain and a traced step, in alternating order.
static brim_status take_turns(const brim_profiler *p, brim_notes *notes, double *plain_ms,
                              int steps) {
  for (int i = 0; i < steps; i++) {
    brim_step_info info;
    BRIM_TRY(brim_profiler_stage(p, BRIM_N_("tracing steps")));
    if (i % 2 == 0) BRIM_TRY(plain_step(p, &plain_ms[i]));
    p->device->watch = &notes->watch;
    brim_status status = brim_notes_step(notes, p->work, true, &info);
    p->device->watch = NULL;
    BRIM_TRY(status);
    if (i % 2 == 1) BRIM_TRY(plain_step(p, &plain_ms[i]));
  }
  return BRIM_OK;
}

// Keeps the first steps, so that trace files do not get long.
static void keep_first(brim_trace *t, int32_t steps) {
  size_t kept = 0;
  if (t->steps <= steps) return;
  t->wall_ns = 0;
  for (size_t i = 0; i < t->count; i++) {
    if (t->events[i].step < 0 || t->events[i].step >= steps) continue;
    if (t->events[i].end_ns > t->wall_ns) t->wall_ns = t->events[i].end_ns;
    t->events[kept++] = t->events[i];
  }
  t->count = kept;
  t->steps = steps;
}

void brim_result_retime(brim_result *r, const brim_stats_summary *total) {
  const double factor = total->median / r->total_ms.median;
  const double rows = r->samples_per_s * r->total_ms.median * 1e-3;
  const double epoch_samples = r->epoch_s * r->samples_per_s;
  r->total_ms = *total;
  r->steps = (int)total->n;
  r->quota_cpu_ms *= factor;
  r->quota_throttled_ms *= factor;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) brim_summary_scale(&r->phase_ms[p], factor);
  brim_result_set_rates(r, rows, epoch_samples);
}

void brim_result_set_phase(brim_result *r, brim_phase phase, double ms) {
  brim_stats_summary *s = &r->phase_ms[phase];
  r->phase_used[phase] = ms > 0;
  if (s->median > 0) {
    brim_summary_scale(s, ms / s->median);
    return;
  }
  s->min = s->max = s->mean = s->median = s->p05 = s->p95 = s->p99 = ms;
  s->stddev = s->mad = s->ci_low = s->ci_high = (double)NAN;
}

// Copies the phases from the list to the result.
static void take_phases(brim_profile *out) {
  const brim_profile_rows *rows = &out->lists[BRIM_PROFILE_PHASES];
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    double ms = 0;
    for (size_t i = 0; i < rows->count; i++) {
      if (strcmp(rows->items[i].name, brim_phase_key((brim_phase)p)) == 0) ms = rows->items[i].ms;
    }
    brim_result_set_phase(&out->result, (brim_phase)p, ms);
  }
}

static double turns_that_fit(const brim_profiler *p) {
  double turn_ms = 2 * p->out->result.total_ms.median;
  return fmin(TURNS_SECONDS, brim_profiler_seconds(p)) * 1e3 / fmax(turn_ms, 1e-6);
}

static brim_status trace_host(brim_profiler *p) {
  brim_profile *out = p->out;
  int steps = brim_profiler_steps(p, 0.5), asked = steps;  // asked: steps that the trace keeps
  int turns = (int)fmin(MOST_TURNS, turns_that_fit(p));
  if (p->options->steps <= 0 && turns > steps) steps = turns;
  double *plain_ms = (double *)brim_calloc((size_t)steps, sizeof *plain_ms);
  if (!plain_ms) return brim_fail(BRIM_ENOMEM, "out of memory for the trace");
  brim_notes notes;
  brim_stats_summary plain;
  brim_comm_stats exchanged = {0};
  (void)brim_device_exchange_stats(p->device, &exchanged);
  brim_notes_begin(&notes, p->device, p->trace, BRIM_NOTES_CLOCK, true);
  p->device->watch = NULL;  // a plain step comes first
  brim_status status = take_turns(p, &notes, plain_ms, steps);
  brim_profiler_take_exchange(p, &exchanged, 2 * steps);
  brim_status ended = brim_notes_end(&notes);
  if (!status) status = ended;
  if (!status) status = brim_times_summarize(plain_ms, (size_t)steps, &plain);
  brim_free(plain_ms);
  BRIM_TRY(status);
  brim_result_retime(&out->result, &plain);  // one step time for rows, rates and findings
  take_step(out);
  snprintf(out->source, sizeof out->source, "clock");
  BRIM_TRY(brim_profile_host_rows(p->trace, out));
  take_phases(out);
  keep_first(p->trace, asked);
  out->window_s = out->traced_ms * 1e-3 * out->traced_steps;
  return brim_profile_take_memory(&notes, out);
}

//---------------------------------- the whole profile ----------------------------------

static const char *precision_of(const brim_profile *out) {
  const char *precision = brim_result_text_as(&out->result, BRIM_ROLE_PRECISION);
  return precision[0] ? precision : "fp32";
}

static void take_cost(brim_profile *out) {
  out->extra_ms = out->traced_ms - out->step_ms;
  double more_ms = out->window_s * 1e3 - out->step_ms * out->traced_steps;
  out->run_percent = 100 * more_ms / (1000 * out->step_ms);  // of a run of 1000 steps
}

static brim_status profile(brim_profiler *p) {
  brim_work_loading before, after;
  BRIM_TRY(measure_step(p));
  if (p->out->result.failure) return BRIM_OK;
  loading(p, &before);
  BRIM_TRY(p->device->info.host_memory ? trace_host(p) : brim_profiler_trace_gpu(p));
  loading(p, &after);
  BRIM_TRY(take_transforms(p, &before, &after));
  brim_profile_ceilings(p->out, precision_of(p->out));
  brim_profile_finish(p->out);
  take_cost(p->out);
  return BRIM_OK;
}

brim_status brim_profile_run(brim_work *work, const brim_config *config, brim_device *device,
                             const brim_setting *setting, const brim_profile_options *options,
                             brim_profile *out, brim_trace *trace) {
  brim_time start = brim_clock_now();
  brim_profiler p = {.work = work,
                     .config = config,
                     .device = device,
                     .setting = setting,
                     .options = options,
                     .out = out,
                     .trace = trace};
  brim_profile_init(out);
  brim_trace_init(trace);
  snprintf(trace->device, sizeof trace->device, "%s", device->info.name);
  bool host = device->info.host_memory;
  if (host && options->source && options->source[0] && strcmp(options->source, "clock") != 0) {
    return brim_fail(BRIM_EUNSUPPORTED, "the source %s needs a GPU", options->source);
  }
  if (brim_device_ranks(device) > 1) out->ranks = brim_device_ranks(device);
  snprintf(out->exchange_by, sizeof out->exchange_by, "%s", brim_device_exchange(device));
  brim_status status = profile(&p);
  device->watch = NULL;
  out->seconds = seconds_since(start);
  return status;
}
