// Running a network: pieces of a step (a batch goes where the prepared calls read it, then the calls
// run in order, with the step's numbers in the device's state tensor), recording a piece once and
// launching it whole, which saves enqueueing op by op, and steps and evaluation made of pieces.
// Nothing is allocated here. The host waits for the device when it is two batches ahead, for the copy
// of a batch in host memory, when it reads metrics, and in measured steps at the end of each span.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend_half.h"
#include "engine/engine_int.h"

//---------------------------------- recorded work ----------------------------------

enum { FIRST_PAUSE = 64, LONGEST_PAUSE = 1 << 16 };  // launches

// Falls back to running op by op: slower, with the same bits. After a lack of memory only this
// piece falls back, and recording is tried again at growing intervals, since other programs may
// free memory. After any other failure nothing is recorded any more.
static void fall_back(brim_capture *x, brim_capture_piece *piece, brim_status status) {
  if (status == BRIM_EOOM) {
    uint32_t pause = piece->pause ? 2 * piece->pause : FIRST_PAUSE;
    piece->left = piece->pause = pause < LONGEST_PAUSE ? pause : LONGEST_PAUSE;
    if (!x->reported) {
      brim_log_warn("engine",
                    "part of the step runs op by op until there is memory to capture it: %s",
                    brim_status_detail());
    }
    x->reported = true;
  } else {
    x->on = false;
    brim_log_warn("engine", "steps run op by op because graph capture failed: %s",
                  brim_status_detail());
  }
  brim_status_clear();
}

static void record(brim_device *device, brim_capture *x, brim_capture_piece *piece,
                   brim_capture_work enqueue, void *ctx) {
  brim_status status = brim_capture_begin(device);
  if (status) {
    fall_back(x, piece, status);
    return;
  }
  status = enqueue(ctx);
  brim_graph_exec *graph = NULL;
  if (status) {
    // Report the call that could not be recorded, not the end of the recording, which fails too.
    fall_back(x, piece, status);
    (void)brim_capture_end(device, &graph);
    brim_graph_exec_destroy(device, graph);
    brim_status_clear();
    return;
  }
  status = brim_capture_end(device, &graph);
  if (status) {
    fall_back(x, piece, status);
    return;
  }
  piece->graph = graph;
}

// True if this run shall be recorded. Not the first run: libraries load lazily, and loading cannot be recorded.
static bool to_record(const brim_capture *x, brim_capture_piece *piece) {
  if (!piece->warm || !x->on) return false;
  return piece->left == 0 || --piece->left == 0;
}

// Runs a piece: the first time op by op, the second time while recording, then by launching the
// record, which reads the same memory every time.
static brim_status capture_run(brim_device *device, brim_capture *x, brim_capture_piece *piece,
                               brim_capture_work enqueue, void *ctx) {
  if (!x->on || (device->watch && device->watch->op_by_op)) return enqueue(ctx);
  if (!piece->graph && to_record(x, piece)) record(device, x, piece, enqueue, ctx);
  if (piece->graph) return brim_graph_launch(device, piece->graph);
  piece->warm = true;
  return enqueue(ctx);
}

void brim_capture_drop(brim_device *device, brim_capture_piece *piece) {
  brim_graph_exec_destroy(device, piece->graph);
  *piece = (brim_capture_piece){0};
}

//---------------------------------- pieces of a step ----------------------------------

// The parts of each piece.
static const struct {
  bool forward, backward, adding, update, eval, embed, loss;
  // With ranks: gradients are complete after this piece, so their exchange begins within its
  // backward pass. It also ends within the piece, since a recording must not leave work on another
  // stream.
  bool posts;
  bool joined;  // the piece begins with the gradients of all ranks: their exchange has ended
} parts[BRIM_EXEC_KIND_COUNT] = {
    [BRIM_EXEC_TRAIN_FIRST] = {.forward = true, .backward = true},
    [BRIM_EXEC_TRAIN_ADD] = {.forward = true, .backward = true, .adding = true},
    [BRIM_EXEC_STEP_ONLY] = {.forward = true, .backward = true, .update = true, .posts = true},
    [BRIM_EXEC_STEP_ADD_LAST] =
        {.forward = true, .backward = true, .adding = true, .update = true, .posts = true},
    [BRIM_EXEC_FORWARD] = {.forward = true},
    [BRIM_EXEC_BACKWARD_FIRST] = {.backward = true},
    [BRIM_EXEC_BACKWARD_ADD] = {.backward = true, .adding = true},
    [BRIM_EXEC_BACKWARD_STEP] = {.backward = true, .update = true},
    [BRIM_EXEC_BACKWARD_ADD_STEP] = {.backward = true, .adding = true, .update = true},
    [BRIM_EXEC_UPDATE] = {.update = true},
    [BRIM_EXEC_BACKWARD_LAST] = {.backward = true, .posts = true},
    [BRIM_EXEC_BACKWARD_ADD_LAST] = {.backward = true, .adding = true, .posts = true},
    [BRIM_EXEC_UPDATE_JOINED] = {.update = true, .joined = true},
    [BRIM_EXEC_EVAL] = {.eval = true},
    [BRIM_EXEC_EMBED] = {.embed = true},
    [BRIM_EXEC_LOSS] = {.loss = true},
};

//---------------------------------- the device's part of the state ----------------------------------

static double *kept_ptr(const brim_net *net) {
  return (double *)brim_net_state_ptr(net) + BRIM_STATE_HOST;
}

brim_status brim_exec_get_kept(brim_net *net, double kept[BRIM_EXEC_KEPT]) {
  BRIM_TRY(brim_device_copy(net->device, kept, kept_ptr(net), BRIM_EXEC_KEPT * sizeof *kept,
                            BRIM_COPY_D2H));
  return brim_device_sync(net->device);
}

brim_status brim_exec_set_kept(brim_net *net, const double kept[BRIM_EXEC_KEPT]) {
  BRIM_TRY(brim_device_copy(net->device, kept_ptr(net), kept, BRIM_EXEC_KEPT * sizeof *kept,
                            BRIM_COPY_H2D));
  return brim_device_sync(net->device);
}

//---------------------------------- batches ----------------------------------

static brim_status exec_check(const brim_net *net, const brim_program *p, const brim_batch *b) {
  int64_t most = p->rows;
  if (!b->input && !net->in_place && !net->exec.used[net->exec.next % BRIM_EXEC_SLOTS]) {
    return brim_fail(BRIM_EINVAL, "the batch has no data, and the device holds no earlier batch");
  }
  if (b->input && !b->target && p->target_row_bytes > 0) {
    return brim_fail(BRIM_EINVAL, "the batch has no targets");
  }
  if (b->rows < 1 || b->rows > most) {
    return brim_fail(BRIM_EINVAL, "the batch has %" PRId64 " rows, expected 1 to %" PRId64, b->rows,
                     most);
  }
  if (p->views > 1 && b->rows != most) {
    return brim_fail(BRIM_EINVAL,
                     "a batch of two views has %" PRId64 " rows, expected all %" PRId64, b->rows,
                     most);
  }
  if (b->row_offset < 0) {
    return brim_fail(BRIM_EINVAL, "the batch begins at row %" PRId64, b->row_offset);
  }
  return BRIM_OK;
}

static void point_call(const brim_gnode *node, brim_op_call *call, int32_t tensor,
                       const void *data) {
  for (int i = 0; i < node->in_count; i++) {
    // Calls only read their inputs; the tensor type has no const form.
    if (node->in[i] == tensor) call->in[i].data = (void *)(uintptr_t)data;
  }
}

static void point(brim_program *p, const void *input, const void *target) {
  const brim_graph *g = &p->graph;
  for (int32_t i = 0; i < p->prepared; i++) {
    point_call(&g->nodes[i], &p->calls[i], g->input, input);
    point_call(&g->nodes[i], &p->calls[i], g->target, target);
  }
  for (int32_t i = 0; i < p->adding_prepared; i++) {
    point_call(&g->nodes[p->adding_node[i]], &p->adding[i], g->input, input);
    point_call(&g->nodes[p->adding_node[i]], &p->adding[i], g->target, target);
  }
}

void brim_exec_slot(const brim_net *net, int slot, unsigned char **input, unsigned char **target) {
  const brim_block *block = &net->blocks[BRIM_BLOCK_INPUT];
  *input = block->data + (size_t)slot * (block->bytes / (size_t)brim_exec_slots(net));
  *target = *input + brim_net_input_bytes(net);
}

// Makes the calls of the piece's program read the slot.
static void exec_point(brim_net *net, brim_exec_kind kind, int slot) {
  bool reads = parts[kind].forward || parts[kind].backward || parts[kind].eval || parts[kind].embed;
  if ((net->device->info.host_memory && !net->in_place) || !reads) return;
  unsigned char *input, *target;
  brim_exec_slot(net, slot, &input, &target);
  brim_program *p = parts[kind].eval    ? &net->eval
                    : parts[kind].embed ? &net->negatives.embed
                                        : &net->train;
  point(p, input, target);
}

// Copies the batch into a free slot while the device computes. The caller gives the batch back to
// the loader when this returns, so the host waits for the copy. Padding rows are copied too: the
// calls have one shape.
static brim_status upload(brim_net *net, const brim_program *p, const brim_batch *b, int slot) {
  brim_exec *x = &net->exec;
  size_t rows = (size_t)p->rows;
  unsigned char *input, *target;
  brim_exec_slot(net, slot, &input, &target);
  brim_status status = brim_device_upload(net->device, input, b->input, rows * p->input_row_bytes);
  if (!status && p->target_row_bytes > 0) {
    status = brim_device_upload(net->device, target, b->target, rows * p->target_row_bytes);
  }
  // Record also after a failure: half of the copy may be under way, from memory that is not ours.
  brim_status ended = brim_event_record_copy(net->device, x->filled[slot]);
  if (!ended) ended = brim_event_sync(net->device, x->filled[slot]);
  BRIM_TRY(status);
  BRIM_TRY(ended);
  x->used[slot] = true;
  return brim_event_wait(net->device, x->filled[slot]);
}

// Marks the slot as free once the work enqueued so far is done. Call it after a failure too; returns `status`.
static brim_status exec_give_slot_back(brim_net *net, int slot, brim_status status) {
  if (net->device->info.host_memory) return status;
  brim_status recorded = brim_event_record(net->device, net->exec.done[slot]);
  return status ? status : recorded;
}

// Ends a forward pass that waits for its gradient, and gives its slot back.
static brim_status exec_drop_forward(brim_net *net) {
  int slot = net->exec.forward.slot;
  bool open = net->exec.forward.open;
  net->exec.forward.open = false;
  return open ? exec_give_slot_back(net, slot, BRIM_OK) : BRIM_OK;
}

// Copies a batch that lies on the device to the slot. Nothing waits here, because the main stream keeps the
// order: the work that made the batch and the last reader of the slot come before the copy, the next write to
// the batch's memory after it. The host has waited for an earlier upload into the slot.
static brim_status copy_batch_on_device(brim_net *net, const brim_program *p, const brim_batch *b,
                                        int slot) {
  size_t rows = (size_t)p->rows;
  unsigned char *input, *target;
  brim_exec_slot(net, slot, &input, &target);
  brim_status status =
      brim_device_copy(net->device, input, b->input, rows * p->input_row_bytes, BRIM_COPY_D2D);
  if (!status && p->target_row_bytes > 0) {
    status =
        brim_device_copy(net->device, target, b->target, rows * p->target_row_bytes, BRIM_COPY_D2D);
  }
  // Half of the copy may be under way: the next upload into the slot must wait for it.
  if (status) return exec_give_slot_back(net, slot, status);
  net->exec.used[slot] = true;
  return BRIM_OK;
}

// Invalidates results that other networks of the group have in the arena, which this network is about to use.
static brim_status end_peers(brim_net *net) {
  for (brim_net *other = net->peer; other && other != net; other = other->peer) {
    BRIM_TRY(exec_drop_forward(other));
    other->outputs_valid = false;
    other->knn.filled = 0;
  }
  return BRIM_OK;
}

// Copies a batch to the network's own input, on a device that reads host memory. Does nothing if the caller has
// written the input itself.
static brim_status copy_batch_in_place(brim_net *net, const brim_program *p, const brim_batch *b) {
  unsigned char *input, *target;
  brim_exec_slot(net, 0, &input, &target);
  if (!b->input || b->input == input) return BRIM_OK;
  return brim_device_copy(net->device, input, b->input, (size_t)p->rows * p->input_row_bytes,
                          BRIM_COPY_H2D);
}

// On devices that read host memory the calls read the batch itself; elsewhere the batch is copied to the next
// slot. A batch without data keeps the slot's content. The host is never more than two batches ahead, so that a
// stop or a reading of metrics takes effect soon.
brim_status brim_exec_feed(brim_net *net, brim_program *p, const brim_batch *b,
                           const brim_spans *spans, int *slot) {
  *slot = 0;
  BRIM_TRY(exec_drop_forward(net));  // its slot is needed
  BRIM_TRY(end_peers(net));
  if (net->device->info.host_memory) {
    if (net->in_place) return copy_batch_in_place(net, p, b);
    point(p, b->input, b->target);
    return BRIM_OK;
  }
  *slot = (int)(net->exec.next % (uint64_t)brim_exec_slots(net));
  if (b->input) {
    // Waiting for the slot means that the host is ahead of the device: count it as computing, not
    // as copying.
    brim_span_begin(spans, BRIM_PHASE_COMPUTE, "slot");
    brim_status free = brim_event_sync(net->device, net->exec.done[*slot]);
    brim_span_end(spans, BRIM_PHASE_COMPUTE, "slot");
    BRIM_TRY(free);
    brim_span_begin(spans, BRIM_PHASE_H2D, "batch");
    brim_status status =
        b->on_device ? copy_batch_on_device(net, p, b, *slot) : upload(net, p, b, *slot);
    brim_span_end(spans, BRIM_PHASE_H2D, "batch");
    if (status) return status;
  }
  net->exec.next++;
  return BRIM_OK;
}

//---------------------------------- pieces ----------------------------------

// Copies the host's part of the state to the device; the rest of the state belongs to the device.
static brim_status exec_put_state(brim_net *net) {
  net->state[BRIM_STATE_CLIP] = net->clip_norm;
  net->state[BRIM_STATE_SEED] = (double)net->seed;
  return brim_device_copy(net->device, brim_net_state_ptr(net), net->state,
                          BRIM_STATE_HOST * sizeof *net->state, BRIM_COPY_H2D);
}

// Sets the batch's numbers in the state, which put_state copies to the device. step_rows 0 = no
// gradients.
static void exec_set_rows(brim_net *net, int64_t rows, int64_t views, int64_t row_offset,
                          int64_t step_rows) {
  net->state[BRIM_STATE_ROWS] = (double)rows;
  // the number of ranks whose rows the loss compares
  int64_t together = net->ranks.pairs && step_rows > 0 ? net->ranks.size : 1;
  net->state[BRIM_STATE_SAMPLES] = (double)(rows / views * together);
  net->state[BRIM_STATE_GRAD_SCALE] = step_rows > 0 ? (double)views / (double)step_rows : 0;
  net->state[BRIM_STATE_ROW_OFFSET] = (double)row_offset;
}

// Runs a node once for each group of rows. The first group writes the gradients of parameters, the
// others add to them.
static brim_status run_groups(brim_net *net, const brim_program *p, int32_t node) {
  const brim_gnode *n = &p->graph.nodes[node];
  const brim_op_call *call = &p->calls[node];
  for (int32_t group = 0; group < n->groups; group++) {
    brim_op_call part;
    brim_graph_group_call(&p->graph, n, group, call, &part);
    BRIM_TRY(brim_op_run(net->device, &part));
    for (int32_t k = 0; group == 0 && k < p->adding_prepared; k++) {
      if (p->adding_node[k] == node) call = &p->adding[k];
    }
  }
  return BRIM_OK;
}

// Tells a measuring device which layer and phase the next op belongs to.
static void watch_op(const brim_net *net, const char *layer, brim_phase phase) {
  brim_op_watch *watch = net->device->watch;
  if (!watch) return;
  watch->net = net;
  watch->layer = layer;
  watch->phase = phase;
}

static brim_phase phase_of(const brim_gnode *node) {
  return node->backward ? BRIM_PHASE_BACKWARD : BRIM_PHASE_FORWARD;
}

// Posts the buckets, from `*next` on, whose gradients are complete after this node.
static brim_status post_buckets(brim_net *net, int32_t node, int32_t *next) {
  const brim_net_ranks *r = &net->ranks;
  for (; *next < r->count && r->buckets[*next].after <= node; (*next)++) {
    watch_op(net, NULL, BRIM_PHASE_BACKWARD);
    BRIM_TRY(brim_op_run(net->device, &r->buckets[*next].call));
  }
  return BRIM_OK;
}

static brim_status run_range(brim_net *net, brim_program *p, int32_t from, int32_t to, bool adding,
                             bool posts) {
  int32_t k = 0, bucket = 0;
  for (int32_t i = from; i < to; i++) {
    const brim_op_call *call = &p->calls[i];
    if (!brim_gnode_is_call(&p->graph.nodes[i])) continue;
    if (adding) {
      while (k < p->adding_prepared && p->adding_node[k] < i) k++;
      if (k < p->adding_prepared && p->adding_node[k] == i) call = &p->adding[k];
    }
    watch_op(net, p->graph.nodes[i].layer, phase_of(&p->graph.nodes[i]));
    BRIM_TRY(p->graph.nodes[i].groups > 1 ? run_groups(net, p, i) : brim_op_run(net->device, call));
    if (posts) BRIM_TRY(post_buckets(net, i, &bucket));
  }
  return BRIM_OK;
}

// Turns BRIM_EOOM into another status: the caller would repeat the step, but weights have changed.
static brim_status exec_fail_moved(brim_status status) {
  if (status != BRIM_EOOM) return status;
  char why[512];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  return brim_fail(BRIM_EDEVICE,
                   "%s; the weights have already changed, so brim cannot repeat the step; resume "
                   "from the last checkpoint with --resume",
                   why);
}

// Waits for the sum of the gradients over all ranks.
static brim_status join_ranks(brim_net *net, brim_phase phase) {
  if (!net->ranks.on) return BRIM_OK;
  watch_op(net, NULL, phase);
  return brim_op_run(net->device, &net->ranks.wait);
}

// Runs the optimizer. posted: this piece has begun the exchange of gradients; joined: an earlier piece has ended
// it.
static brim_status run_update(brim_net *net, bool posted, bool joined) {
  int32_t bucket = 0;
  if (!posted && !joined) BRIM_TRY(post_buckets(net, INT32_MAX, &bucket));
  if (!joined) BRIM_TRY(join_ranks(net, BRIM_PHASE_OPTIMIZER));
  watch_op(net, NULL, BRIM_PHASE_OPTIMIZER);
  BRIM_TRY(brim_op_run(net->device, &net->norm_call));
  BRIM_TRY(brim_op_run(net->device, &net->optimizer_call));
  brim_status status = BRIM_OK;
  if (net->statistics_prepared) status = brim_op_run(net->device, &net->statistics_call);
  if (!status) status = brim_op_run(net->device, &net->step_end_call);
  return net->device->recording ? status : exec_fail_moved(status);
}

// Runs a piece op by op; exec_point has been called.
static brim_status exec_enqueue(brim_net *net, brim_exec_kind kind) {
  brim_program *p = &net->train;
  if (parts[kind].forward) BRIM_TRY(run_range(net, p, 0, p->forward_count, false, false));
  if (parts[kind].backward) {
    BRIM_TRY(run_range(net, p, p->forward_count, p->prepared, parts[kind].adding,
                       parts[kind].posts && net->ranks.on));
  }
  if (parts[kind].posts && !parts[kind].update) BRIM_TRY(join_ranks(net, BRIM_PHASE_BACKWARD));
  if (parts[kind].update) BRIM_TRY(run_update(net, parts[kind].posts, parts[kind].joined));
  if (parts[kind].eval) BRIM_TRY(run_range(net, &net->eval, 0, net->eval.prepared, false, false));
  p = &net->negatives.embed;
  if (parts[kind].embed) BRIM_TRY(run_range(net, p, 0, p->prepared, false, false));
  if (parts[kind].loss) {
    watch_op(net, "loss", BRIM_PHASE_FORWARD);
    BRIM_TRY(brim_op_run(net->device, &net->negatives.loss));
  }
  return BRIM_OK;
}

typedef struct piece_work {
  brim_net *net;
  brim_exec_kind kind;
  int slot;
} piece_work;

static brim_status enqueue_piece(void *ctx) {
  const piece_work *w = ctx;
  exec_point(w->net, w->kind, w->slot);
  return exec_enqueue(w->net, w->kind);
}

// Runs the piece as one launch where the device can.
static brim_status run_piece(brim_net *net, brim_exec_kind kind, int slot) {
  piece_work work = {net, kind, slot};
  brim_exec *x = &net->exec;
  return capture_run(net->device, &x->capture, &x->pieces[kind][slot], enqueue_piece, &work);
}

// Runs the piece as a span. A measured step waits for the device at its end; others do not.
static brim_status run_span(brim_net *net, brim_exec_kind kind, int slot, const brim_spans *spans,
                            brim_phase phase) {
  const char *name = kind == BRIM_EXEC_EVAL ? "evaluate" : brim_phase_key(phase);
  brim_span_begin(spans, phase, name);
  brim_status status = run_piece(net, kind, slot);
  if (!status && spans && spans->exact) status = brim_device_sync(net->device);
  brim_span_end(spans, phase, name);
  return status;
}

// For exact spans, and on devices without graphs, the phases run one by one; otherwise one launch
// does everything, and its phases cannot be told apart.
brim_status brim_exec_run(brim_net *net, brim_exec_kind kind, int slot, const brim_spans *spans) {
  if (net->ranks.on) BRIM_TRY(brim_exchange_check(net->device));
  BRIM_TRY(exec_put_state(net));
  if (parts[kind].eval) BRIM_TRY(brim_net_refresh_average(net));
  if (parts[kind].update) net->average_stale = net->averages;
  bool apart = spans && (spans->exact || !net->exec.capture.on);
  if (!apart) {
    return run_span(net, kind, slot, spans, BRIM_PHASE_COMPUTE);
  }
  bool last = net->ranks.on && parts[kind].posts;
  brim_exec_kind backward = parts[kind].adding
                                ? (last ? BRIM_EXEC_BACKWARD_ADD_LAST : BRIM_EXEC_BACKWARD_ADD)
                                : (last ? BRIM_EXEC_BACKWARD_LAST : BRIM_EXEC_BACKWARD_FIRST);
  if (parts[kind].forward) {
    BRIM_TRY(run_span(net, BRIM_EXEC_FORWARD, slot, spans, BRIM_PHASE_FORWARD));
  }
  if (parts[kind].backward) {
    BRIM_TRY(run_span(net, backward, slot, spans, BRIM_PHASE_BACKWARD));
  }
  if (parts[kind].update) {
    brim_exec_kind update = last ? BRIM_EXEC_UPDATE_JOINED : BRIM_EXEC_UPDATE;
    BRIM_TRY(run_span(net, update, slot, spans, BRIM_PHASE_OPTIMIZER));
  }
  if (parts[kind].eval || parts[kind].embed || parts[kind].loss) {
    BRIM_TRY(run_span(net, kind, slot, spans, BRIM_PHASE_FORWARD));
  }
  return BRIM_OK;
}

//---------------------------------- norms ----------------------------------

// Reads the waiting rows of the ring: the last one has the gradient norm, and each non-finite value
// was a skipped step.
static brim_status drain_norms(brim_net *net) {
  union {
    float f32[BRIM_NORM_RING][4];
    double f64[BRIM_NORM_RING][4];
  } ring;
  int64_t count = net->ring_count;
  if (count == 0) return BRIM_OK;
  size_t row = 4 * brim_dtype_size(net->master);
  int64_t at = (net->exec.ring_first - 1) % BRIM_NORM_RING;
  int64_t head = count < BRIM_NORM_RING - at ? count : BRIM_NORM_RING - at;
  const unsigned char *from = brim_net_ring_ptr(net);
  unsigned char *to = (unsigned char *)&ring;
  BRIM_TRY(brim_device_copy(net->device, to, from + (size_t)at * row, (size_t)head * row,
                            BRIM_COPY_D2H));
  BRIM_TRY(brim_device_copy(net->device, to + (size_t)head * row, from,
                            (size_t)(count - head) * row, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(net->device));
  for (int64_t i = 0; i < count; i++) {
    bool wide = net->master == BRIM_F64;
    double squares = wide ? ring.f64[i][0] : (double)ring.f32[i][0];
    double bad = wide ? ring.f64[i][1] : (double)ring.f32[i][1];
    net->grad_norm = sqrt(squares);
    if (bad > 0) {
      net->skipped_steps++;
    } else {
      net->grad_norm_max = fmax(net->grad_norm_max, net->grad_norm);  // a NaN is left out
    }
  }
  net->ring_count = 0;
  return BRIM_OK;
}

// Reserves room in the ring for the norms of `count` steps from this one on: no row that the device
// will write may hold an unread norm, and the waiting rows must belong to consecutive steps.
static brim_status reserve_norms(brim_net *net, int64_t step, int64_t count) {
  if (step < 1) return brim_fail(BRIM_EINVAL, "invalid step %" PRId64, step);
  if (net->ring_count + count > BRIM_NORM_RING || step != net->exec.ring_first + net->ring_count) {
    BRIM_TRY(drain_norms(net));
  }
  if (net->ring_count == 0) net->exec.ring_first = step;
  return BRIM_OK;
}

//---------------------------------- metrics ----------------------------------

typedef union device_sums {
  float f32[BRIM_METRIC_COUNT];
  double f64[BRIM_METRIC_COUNT];
} device_sums;

static brim_status fetch_sums(brim_net *net, double out[BRIM_METRIC_COUNT], double *loss_scale) {
  device_sums now;
  double kept[BRIM_EXEC_KEPT];
  size_t bytes = BRIM_METRIC_COUNT * brim_dtype_size(net->master);
  BRIM_TRY(drain_norms(net));
  BRIM_TRY(brim_device_copy(net->device, &now, brim_net_metrics_ptr(net), bytes, BRIM_COPY_D2H));
  BRIM_TRY(brim_exec_get_kept(net, kept));  // waits for both copies
  *loss_scale = kept[BRIM_STATE_LOSS_SCALE - BRIM_STATE_HOST];
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) {
    out[i] = net->master == BRIM_F64 ? now.f64[i] : (double)now.f32[i];
  }
  return BRIM_OK;
}

// The device counts in f32. Each read moves its sums into doubles here, so they stay exact.
brim_status brim_net_read_metrics(brim_net *net, bool reset, brim_net_metrics *out) {
  double now[BRIM_METRIC_COUNT], loss_scale = 1;
  BRIM_TRY(fetch_sums(net, now, &loss_scale));
  BRIM_TRY(brim_device_fill(net->device, brim_net_metrics_ptr(net), 0,
                            BRIM_METRIC_COUNT * brim_dtype_size(net->master)));
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) net->sums[i] += now[i];
  *out = (brim_net_metrics){.loss_sum = net->sums[BRIM_METRIC_LOSS],
                            .correct = net->sums[BRIM_METRIC_CORRECT],
                            .rows = net->sums[BRIM_METRIC_ROWS],
                            .bad_rows = net->sums[BRIM_METRIC_BAD],
                            .grad_norm = net->grad_norm,
                            .grad_norm_max = net->grad_norm_max,
                            .loss_scale = loss_scale,
                            .skipped_steps = net->skipped_steps};
  if (!reset) return BRIM_OK;
  memset(net->sums, 0, sizeof net->sums);
  net->grad_norm_max = (double)NAN;
  return BRIM_OK;
}

brim_status brim_net_get_sums(brim_net *net, brim_net_sums *out) {
  double ignored;
  BRIM_TRY(fetch_sums(net, out->device, &ignored));
  memcpy(out->host, net->sums, sizeof out->host);
  out->grad_norm_max = net->grad_norm_max;
  out->skipped_steps = net->skipped_steps;
  return BRIM_OK;
}

brim_status brim_net_set_sums(brim_net *net, const brim_net_sums *sums) {
  device_sums now;
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) {
    if (net->master == BRIM_F64) {
      now.f64[i] = sums->device[i];
    } else {
      now.f32[i] = (float)sums->device[i];
    }
  }
  BRIM_TRY(drain_norms(net));
  BRIM_TRY(brim_device_copy(net->device, brim_net_metrics_ptr(net), &now,
                            BRIM_METRIC_COUNT * brim_dtype_size(net->master), BRIM_COPY_H2D));
  BRIM_TRY(brim_device_sync(net->device));
  memcpy(net->sums, sums->host, sizeof net->sums);
  net->grad_norm_max = sums->grad_norm_max;
  net->skipped_steps = sums->skipped_steps;
  return BRIM_OK;
}

//---------------------------------- the loss of a whole step ----------------------------------

// The loss of a whole step over its micro-batches (gradient caching). The first pass embeds every
// micro-batch without keeping activations. Then come NT-Xent and its gradient over all embeddings. The
// second pass runs every micro-batch forward again, from the same input and so with the same statistics
// of batch norm, and backward from its rows of that gradient. This takes the memory of one micro-batch
// and one more forward pass. Running statistics move in the second pass only.
//
// A micro-batch holds the first views of its samples, then the second views; the embeddings of the step
// lie as one such batch. The second pass needs the rows of a micro-batch together, so scatter_gradient
// writes the gradient over the embeddings, ordered by micro-batch.

static unsigned char *kept_input(const brim_net *net, int64_t index) {
  size_t bytes = brim_align_up((size_t)net->batch * net->train.input_row_bytes);
  return net->blocks[BRIM_BLOCK_REPLAY].data + (size_t)index * bytes;
}

static brim_status copy_on_device(brim_net *net, void *to, const void *from, size_t bytes) {
  return brim_device_copy(net->device, to, from, bytes, BRIM_COPY_D2D);
}

// Copies the micro-batch's input to the replay block: from the slot that brim_exec_feed filled, or on a
// device that computes in host memory from the batch itself.
static brim_status keep_input(brim_net *net, int64_t index, int slot, const brim_batch *b) {
  size_t bytes = (size_t)net->batch * net->train.input_row_bytes;
  if (net->device->info.host_memory)
    return copy_on_device(net, kept_input(net, index), b->input, bytes);
  unsigned char *input, *target;
  brim_exec_slot(net, slot, &input, &target);
  return copy_on_device(net, kept_input(net, index), input, bytes);
}

// Copies both views of the micro-batch's output to their places among all embeddings.
static brim_status gather_embeddings(brim_net *net, int64_t index) {
  const brim_program *p = &net->negatives.embed;
  size_t half = (size_t)(net->batch / 2) * net->negatives.width_bytes;
  const unsigned char *from = net->blocks[BRIM_BLOCK_ARENA].data + p->places.offset[p->output];
  unsigned char *first = net->blocks[BRIM_BLOCK_EMBEDDINGS].data + (size_t)index * half;
  BRIM_TRY(copy_on_device(net, first, from, half));
  return copy_on_device(net, first + (size_t)net->accumulation * half, from + half, half);
}

// Overwrites the embeddings with their gradient, ordered by micro-batch.
static brim_status scatter_gradient(brim_net *net, int64_t count) {
  size_t half = (size_t)(net->batch / 2) * net->negatives.width_bytes;
  unsigned char *to = net->blocks[BRIM_BLOCK_EMBEDDINGS].data;
  const unsigned char *from = net->negatives.loss.out[1].data;
  for (int64_t k = 0; k < count; k++) {
    const unsigned char *first = from + (size_t)k * half;
    BRIM_TRY(copy_on_device(net, to + (size_t)k * 2 * half, first, half));
    BRIM_TRY(copy_on_device(net, to + ((size_t)k * 2 + 1) * half,
                            first + (size_t)net->accumulation * half, half));
  }
  return BRIM_OK;
}

static brim_status embed_micro(brim_net *net, const brim_batch *b, int64_t index,
                               const brim_spans *spans) {
  int slot = 0;
  BRIM_TRY(brim_exec_feed(net, &net->negatives.embed, b, spans, &slot));
  brim_status status = keep_input(net, index, slot, b);
  if (!status) status = brim_exec_run(net, BRIM_EXEC_EMBED, slot, spans);
  BRIM_TRY(exec_give_slot_back(net, slot, status));
  return gather_embeddings(net, index);
}

// Runs micro-batch `index` of `count` forward again, and backward.
static brim_status run_again(brim_net *net, int64_t index, int64_t count, bool update,
                             const brim_spans *spans) {
  bool first = index == 0, end = update && index + 1 == count;
  brim_exec_kind kind = first && end ? BRIM_EXEC_STEP_ONLY
                        : first      ? BRIM_EXEC_TRAIN_FIRST
                        : end        ? BRIM_EXEC_STEP_ADD_LAST
                                     : BRIM_EXEC_TRAIN_ADD;
  size_t rows = (size_t)index * (size_t)net->batch;
  brim_batch b = {
      .input = kept_input(net, index),
      .target = net->blocks[BRIM_BLOCK_EMBEDDINGS].data + rows * net->negatives.width_bytes,
      .on_device = true,
      .rows = net->batch,
      .row_offset = (int64_t)rows};
  int slot = 0;
  BRIM_TRY(brim_exec_feed(net, &net->train, &b, spans, &slot));
  BRIM_TRY(exec_give_slot_back(net, slot, brim_exec_run(net, kind, slot, spans)));
  net->batches++;
  return BRIM_OK;
}

static brim_status check_order(const brim_net *net, const brim_net_micro *micro) {
  int64_t index = micro->batch.row_offset / net->batch;
  bool fits = micro->batch.row_offset % net->batch == 0 && index < net->accumulation &&
              micro->step_rows % net->batch == 0 &&
              micro->step_rows <= net->batch * net->accumulation &&
              micro->batch.row_offset < micro->step_rows && micro->first == (index == 0);
  if (fits && index == (micro->first ? 0 : net->negatives.done)) return BRIM_OK;
  return brim_fail(
      BRIM_EINVAL,
      "row %" PRId64 " of a step of %" PRId64
      " rows does not begin the next micro-batch: exact accumulation takes rows in order",
      micro->batch.row_offset, micro->step_rows);
}

// Takes one micro-batch. The last of a step computes all of them, and with `update` runs the
// optimizer.
static brim_status negatives_run(brim_net *net, const brim_net_micro *micro, bool update,
                                 const brim_spans *spans) {
  BRIM_TRY(check_order(net, micro));
  int64_t index = micro->batch.row_offset / net->batch, count = micro->step_rows / net->batch;
  if (update && index + 1 < count) {
    return brim_fail(BRIM_EINVAL, "update before the last micro-batch of the step");
  }
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  exec_set_rows(net, net->batch, net->views, micro->batch.row_offset, micro->step_rows);
  BRIM_TRY(embed_micro(net, &micro->batch, index, spans));
  net->negatives.done = index + 1;
  if (index + 1 < count) return BRIM_OK;
  net->negatives.done = 0;
  exec_set_rows(net, micro->step_rows, net->views, 0, micro->step_rows);
  BRIM_TRY(brim_exec_run(net, BRIM_EXEC_LOSS, 0, spans));
  BRIM_TRY(scatter_gradient(net, count));
  for (int64_t k = 0; k < count; k++) {
    exec_set_rows(net, net->batch, net->views, k * net->batch, micro->step_rows);
    BRIM_TRY(run_again(net, k, count, update, spans));
  }
  return BRIM_OK;
}

//---------------------------------- steps ----------------------------------

static brim_status net_check_micro(const brim_net *net, const brim_net_micro *micro) {
  const brim_program *fed = net->negatives.on ? &net->negatives.embed : &net->train;
  BRIM_TRY(exec_check(net, fed, &micro->batch));
  if (micro->step < 1 || micro->step_rows < micro->batch.rows) {
    return brim_fail(BRIM_EINVAL, "invalid step %" PRId64 " with %" PRId64 " rows in total",
                     micro->step, micro->step_rows);
  }
  if (!micro->first && net->accumulation < 2) {
    return brim_fail(BRIM_ESTATE, "the network was built without accumulation");
  }
  return BRIM_OK;
}

// Keeps on the device, without waiting, what the first micro-batch changes besides gradients. If
// the whole step is one recorded piece, either all of it runs or nothing.
static brim_status net_begin_step(brim_net *net, brim_exec_kind kind, int slot,
                                  const brim_spans *spans) {
  net->exec.begun = false;
  bool pieces = net->accumulation > 1 || net->external_loss || net->peer || (spans && spans->exact);
  if (!pieces && net->exec.capture.on && net->exec.pieces[kind][slot].graph) return BRIM_OK;
  size_t bytes = net->blocks[BRIM_BLOCK_BUFFERS].bytes;
  BRIM_TRY(brim_device_copy(net->device, brim_net_metrics_before_ptr(net),
                            brim_net_metrics_ptr(net),
                            BRIM_METRIC_COUNT * brim_dtype_size(net->master), BRIM_COPY_D2D));
  if (bytes > 0) {
    BRIM_TRY(brim_device_copy(net->device, brim_net_buffers_before_ptr(net),
                              net->blocks[BRIM_BLOCK_BUFFERS].data, bytes, BRIM_COPY_D2D));
  }
  net->exec.begun_batches = net->batches;
  net->exec.begun = true;
  return BRIM_OK;
}

brim_status brim_net_undo(brim_net *net) {
  if (!net->exec.begun) return BRIM_OK;
  net->exec.begun = false;
  size_t bytes = net->blocks[BRIM_BLOCK_BUFFERS].bytes;
  BRIM_TRY(brim_device_copy(net->device, brim_net_metrics_ptr(net),
                            brim_net_metrics_before_ptr(net),
                            BRIM_METRIC_COUNT * brim_dtype_size(net->master), BRIM_COPY_D2D));
  if (bytes > 0) {
    BRIM_TRY(brim_device_copy(net->device, net->blocks[BRIM_BLOCK_BUFFERS].data,
                              brim_net_buffers_before_ptr(net), bytes, BRIM_COPY_D2D));
  }
  BRIM_TRY(exec_drop_forward(net));
  net->batches = net->exec.begun_batches;
  net->negatives.done = 0;
  return brim_device_sync(net->device);
}

static brim_status check_own_loss(const brim_net *net, const brim_net_micro *micro) {
  BRIM_TRY(net_check_micro(net, micro));
  if (!net->external_loss) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "the network has no loss of its own: run forward, then backward");
}

static brim_status run_micro(brim_net *net, const brim_net_micro *micro, brim_exec_kind kind,
                             const brim_spans *spans) {
  int slot = 0;
  bool update = kind == BRIM_EXEC_STEP_ONLY || kind == BRIM_EXEC_STEP_ADD_LAST;
  net->outputs_valid = false;
  net->knn.filled = 0;
  if (net->negatives.on) {
    if (micro->first) BRIM_TRY(net_begin_step(net, kind, slot, spans));
    return negatives_run(net, micro, update, spans);
  }
  BRIM_TRY(brim_exec_feed(net, &net->train, &micro->batch, spans, &slot));
  brim_status begun = micro->first ? net_begin_step(net, kind, slot, spans) : BRIM_OK;
  if (begun) return exec_give_slot_back(net, slot, begun);
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  exec_set_rows(net, micro->batch.rows, net->views, micro->batch.row_offset, micro->step_rows);
  BRIM_TRY(exec_give_slot_back(net, slot, brim_exec_run(net, kind, slot, spans)));
  net->batches++;
  return BRIM_OK;
}

brim_status brim_net_train(brim_net *net, const brim_net_micro *micro, const brim_spans *spans) {
  BRIM_TRY(check_own_loss(net, micro));
  return run_micro(net, micro, micro->first ? BRIM_EXEC_TRAIN_FIRST : BRIM_EXEC_TRAIN_ADD, spans);
}

brim_status brim_net_update(brim_net *net, int64_t step, double lr, const brim_spans *spans) {
  BRIM_TRY(reserve_norms(net, step, 1));
  net->state[BRIM_STATE_STEP] = (double)step;
  net->state[BRIM_STATE_LR] = lr;
  BRIM_TRY(brim_exec_run(net, BRIM_EXEC_UPDATE, 0, spans));
  net->ring_count++;
  net->exec.begun = false;
  return BRIM_OK;
}

brim_status brim_net_step(brim_net *net, const brim_net_micro *micro, double lr,
                          const brim_spans *spans) {
  BRIM_TRY(check_own_loss(net, micro));
  BRIM_TRY(reserve_norms(net, micro->step, 1));
  net->state[BRIM_STATE_LR] = lr;
  BRIM_TRY(
      run_micro(net, micro, micro->first ? BRIM_EXEC_STEP_ONLY : BRIM_EXEC_STEP_ADD_LAST, spans));
  net->ring_count++;
  net->exec.begun = false;
  return BRIM_OK;
}

//---------------------------------- evaluation ----------------------------------

brim_status brim_net_evaluate(brim_net *net, const brim_batch *batch, const brim_spans *spans) {
  brim_program *p = &net->eval;
  BRIM_TRY(exec_check(net, p, batch));
  int slot = 0;
  net->outputs_valid = false;
  BRIM_TRY(brim_exec_feed(net, p, batch, spans, &slot));
  exec_set_rows(net, batch->rows, p->views, batch->row_offset, 0);
  BRIM_TRY(exec_give_slot_back(net, slot, brim_exec_run(net, BRIM_EXEC_EVAL, slot, spans)));
  net->outputs_valid = true;
  net->output_rows = batch->rows;
  return BRIM_OK;
}

// Converts 16-bit values in the upper half of `out` to f32 in place, from the first on: each value is read before
// its bytes are overwritten.
static void widen(brim_dtype dtype, float *out, size_t count) {
  const unsigned char *from = (const unsigned char *)out + count * 2;
  for (size_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, from + i * 2, sizeof half);
    out[i] = dtype == BRIM_BF16 ? brim_bf16_to_f32(half) : brim_f16_to_f32(half);
  }
}

static brim_status narrow(brim_net *net, const unsigned char *from, float *out, size_t count) {
  double part[256];
  for (size_t done = 0; done < count;) {
    size_t n = count - done < 256 ? count - done : 256;
    BRIM_TRY(brim_device_copy(net->device, part, from + done * sizeof(double), n * sizeof(double),
                              BRIM_COPY_D2H));
    BRIM_TRY(brim_device_sync(net->device));
    for (size_t i = 0; i < n; i++) out[done + i] = (float)part[i];
    done += n;
  }
  return BRIM_OK;
}

uint32_t brim_net_loss_metrics(const brim_net *net) { return net->loss_metrics; }

int64_t brim_net_output_width(const brim_net *net) { return net->eval.width; }

brim_status brim_net_outputs(brim_net *net, float *out, int64_t rows) {
  if (!net->outputs_valid) {
    return brim_fail(BRIM_ESTATE, "no outputs: evaluate a batch first");
  }
  if (rows < 1 || rows > net->output_rows) {
    return brim_fail(BRIM_EINVAL,
                     "requested %" PRId64 " rows of outputs, but only %" PRId64 " exist", rows,
                     net->output_rows);
  }
  const brim_program *p = &net->eval;
  const unsigned char *from = net->blocks[BRIM_BLOCK_ARENA].data + p->places.offset[p->output];
  size_t count = (size_t)rows * (size_t)p->width;
  if (net->compute == BRIM_F64) return narrow(net, from, out, count);
  size_t size = brim_dtype_size(net->compute);
  unsigned char *to = (unsigned char *)out + count * (sizeof(float) - size);
  BRIM_TRY(brim_device_copy(net->device, to, from, count * size, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(net->device));
  if (size == 2) widen(net->compute, out, count);
  return BRIM_OK;
}

brim_status brim_net_output_tensor(brim_net *net, brim_tensor *out) {
  const brim_program *p = &net->eval;
  if (!net->outputs_valid && !net->in_place) {
    return brim_fail(BRIM_ESTATE, "no outputs: evaluate a batch first");
  }
  *out = p->graph.tensors[p->output].desc;
  out->data = net->blocks[BRIM_BLOCK_ARENA].data + p->places.offset[p->output];
  return BRIM_OK;
}

//---------------------------------- a loss outside the engine ----------------------------------

static brim_status check_external(const brim_net *net) {
  if (net->external_loss) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "the network was built with a loss of its own");
}

brim_status brim_net_external_loss(const brim_net *net, brim_net_external *out) {
  BRIM_TRY(check_external(net));
  const int64_t states = BRIM_STATE_COUNT, metrics = BRIM_METRIC_COUNT;
  // the last node of the forward pass represents the caller's work
  const brim_op_call *work = &net->train.calls[net->train.forward_count - 1];
  *out = (brim_net_external){
      .output = work->in[0],
      .gradient = work->out[0],
      .state = brim_tensor_make(brim_net_state_ptr(net), BRIM_F64, 1, &states),
      .metrics = brim_tensor_make(brim_net_metrics_ptr(net), net->master, 1, &metrics)};
  return BRIM_OK;
}

brim_status brim_net_weights(const brim_net *net, brim_net_weight *out, size_t most,
                             size_t *count) {
  BRIM_TRY(check_external(net));
  const bool copied = net->blocks[BRIM_BLOCK_COPY].data != NULL;
  const brim_block *values = &net->blocks[copied ? BRIM_BLOCK_COPY : BRIM_BLOCK_PARAMS];
  const brim_dtype dtype = copied ? net->compute : net->master;
  *count = net->params.count;
  for (size_t i = 0; i < *count && i < most; i++) {
    const brim_param *p = &net->params.items[i];
    if (!brim_param_same_layout(p)) {
      return brim_fail(BRIM_EUNSUPPORTED, "the values of %s are not in the order of its shape",
                       p->name);
    }
    unsigned char *value = values->data + (size_t)p->offset * brim_dtype_size(dtype);
    unsigned char *gradient =
        net->blocks[BRIM_BLOCK_GRADS].data + (size_t)p->offset * brim_dtype_size(net->master);
    out[i] = (brim_net_weight){
        .name = p->name,
        .value = brim_tensor_make(value, dtype, p->desc.rank, p->desc.dim),
        .gradient = brim_tensor_make(gradient, net->master, p->desc.rank, p->desc.dim)};
  }
  return BRIM_OK;
}

brim_status brim_net_forward(brim_net *net, const brim_net_micro *micro, const brim_spans *spans) {
  int slot = 0;
  BRIM_TRY(check_external(net));
  BRIM_TRY(net_check_micro(net, micro));
  net->outputs_valid = false;
  net->knn.filled = 0;
  BRIM_TRY(brim_exec_feed(net, &net->train, &micro->batch, spans, &slot));
  brim_status status = micro->first ? net_begin_step(net, BRIM_EXEC_FORWARD, slot, spans) : BRIM_OK;
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  exec_set_rows(net, micro->batch.rows, net->views, micro->batch.row_offset, micro->step_rows);
  if (!status) status = brim_exec_run(net, BRIM_EXEC_FORWARD, slot, spans);
  if (status) return exec_give_slot_back(net, slot, status);
  net->exec.forward.open = true;
  net->exec.forward.first = micro->first;
  net->exec.forward.step = micro->step;
  net->exec.forward.slot = slot;
  return BRIM_OK;
}

static brim_status backward(brim_net *net, brim_exec_kind first, brim_exec_kind adding,
                            const brim_spans *spans) {
  int slot = net->exec.forward.slot;
  brim_status status = brim_exec_run(net, net->exec.forward.first ? first : adding, slot, spans);
  net->exec.forward.open = false;
  BRIM_TRY(exec_give_slot_back(net, slot, status));
  net->batches++;
  return BRIM_OK;
}

static brim_status check_open(const brim_net *net) {
  BRIM_TRY(check_external(net));
  if (net->exec.forward.open) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "no forward pass is waiting for a gradient");
}

brim_status brim_net_backward(brim_net *net, const brim_spans *spans) {
  BRIM_TRY(check_open(net));
  return backward(net, BRIM_EXEC_BACKWARD_FIRST, BRIM_EXEC_BACKWARD_ADD, spans);
}

brim_status brim_net_backward_step(brim_net *net, double lr, const brim_spans *spans) {
  BRIM_TRY(check_open(net));
  BRIM_TRY(reserve_norms(net, net->exec.forward.step, 1));
  net->state[BRIM_STATE_LR] = lr;
  BRIM_TRY(backward(net, BRIM_EXEC_BACKWARD_STEP, BRIM_EXEC_BACKWARD_ADD_STEP, spans));
  net->ring_count++;
  net->exec.begun = false;
  return BRIM_OK;
}

//---------------------------------- statistics of averaged weights ----------------------------------

bool brim_net_recalibrates(const brim_net *net) { return net->statistics_prepared; }

// Binds training's forward calls to the average, with batch norms that compute the mean over all batches so far
// (index from 0); index -1 binds them to the weights again.
static void bind_recalibration(brim_net *net, int64_t index) {
  brim_program *p = &net->train;
  brim_net_bind_forward(net, index >= 0);
  for (int32_t i = 0; i < p->forward_count; i++) {
    brim_op_attr *attr = &p->calls[i].attr;
    if (p->calls[i].op != BRIM_OP_BATCHNORM && p->calls[i].op != BRIM_OP_BATCHNORM_JOIN) continue;
    attr->momentum = index >= 0 ? 1.0f / (float)(index + 1) : p->graph.nodes[i].attr.momentum;
  }
}

// Copies the batch to the place that training's forward pass reads. With full_batch_negatives that pass ends
// before the loss and reads only the input; its target would be a gradient, which is not uploaded.
static brim_status feed_forward(brim_net *net, const brim_batch *b, int *slot) {
  brim_program *checked = net->negatives.on ? &net->negatives.embed : &net->train;
  bool host = net->device->info.host_memory;
  BRIM_TRY(exec_check(net, checked, b));
  return brim_exec_feed(net, host ? &net->train : checked, b, NULL, slot);
}

static brim_status run_forward(brim_net *net, const brim_batch *b, int64_t step, int64_t index) {
  int slot = 0;
  BRIM_TRY(feed_forward(net, b, &slot));
  exec_point(net, BRIM_EXEC_FORWARD, slot);
  net->state[BRIM_STATE_STEP] = (double)step;
  exec_set_rows(net, b->rows, net->views, index * net->batch, 0);
  brim_status status = exec_put_state(net);
  if (!status) status = brim_net_refresh_average(net);
  if (!status) status = exec_enqueue(net, BRIM_EXEC_FORWARD);
  return exec_give_slot_back(net, slot, status);
}

static brim_status copy_statistics(brim_net *net, void *to, const void *from) {
  return brim_device_copy(net->device, to, from, net->blocks[BRIM_BLOCK_BUFFERS].bytes,
                          BRIM_COPY_D2D);
}

brim_status brim_net_recalibrate(brim_net *net, const brim_batch *batch, int64_t step,
                                 int64_t index) {
  if (!net->statistics_prepared) return BRIM_OK;
  if (net->exec.begun) return brim_fail(BRIM_ESTATE, "a step has begun but not ended");
  unsigned char *statistics = net->blocks[BRIM_BLOCK_AVERAGE_BUFFERS].data;
  size_t bytes = BRIM_METRIC_COUNT * brim_dtype_size(net->master);
  net->outputs_valid = false;
  net->knn.filled = 0;
  if (index == 0) BRIM_TRY(copy_statistics(net, brim_net_buffers_before_ptr(net), statistics));
  // restore the sums, which are training's
  BRIM_TRY(brim_device_copy(net->device, brim_net_metrics_before_ptr(net),
                            brim_net_metrics_ptr(net), bytes, BRIM_COPY_D2D));
  bind_recalibration(net, index);
  brim_status status = run_forward(net, batch, step, index);
  bind_recalibration(net, -1);
  brim_status back = brim_device_copy(net->device, brim_net_metrics_ptr(net),
                                      brim_net_metrics_before_ptr(net), bytes, BRIM_COPY_D2D);
  return status ? status : back;
}

brim_status brim_net_undo_recalibration(brim_net *net) {
  if (!net->statistics_prepared) return BRIM_OK;
  return copy_statistics(net, net->blocks[BRIM_BLOCK_AVERAGE_BUFFERS].data,
                         brim_net_buffers_before_ptr(net));
}

//---------------------------------- kNN evaluation ----------------------------------

// kNN evaluation of features, all on the device: scale rows to length 1, compute their similarities with a bank
// of labelled rows, and let the nearest vote. Training overwrites the bank, whose features would be those of the
// old weights anyway.

static unsigned char *arena_at(const brim_net *net, size_t offset) {
  return net->blocks[BRIM_BLOCK_ARENA].data + offset;
}

// Computes the batch's features as rows of length 1 into `to`; `labels` returns their place on the
// device.
static brim_status compute_features(brim_net *net, const brim_batch *b, unsigned char *to,
                                    int *slot, const unsigned char **labels) {
  brim_program *p = &net->eval;
  brim_knn *j = &net->knn;
  if (!j->on) return brim_fail(BRIM_ESTATE, "the network was built without a kNN evaluation");
  BRIM_TRY(exec_check(net, p, b));
  net->outputs_valid = false;
  BRIM_TRY(brim_exec_feed(net, p, b, NULL, slot));
  net->state[BRIM_STATE_ROWS] = net->state[BRIM_STATE_SAMPLES] = (double)b->rows;
  net->state[BRIM_STATE_GRAD_SCALE] = net->state[BRIM_STATE_ROW_OFFSET] = 0;
  *labels = b->target;
  if (!net->device->info.host_memory) {
    unsigned char *input, *target;
    brim_exec_slot(net, *slot, &input, &target);
    *labels = target;
  }
  BRIM_TRY(brim_exec_run(net, BRIM_EXEC_EVAL, *slot, NULL));
  j->unit.in[0].data = arena_at(net, p->places.offset[p->output]);
  j->unit.out[0].data = to;
  j->unit.workspace = arena_at(net, j->workspace);
  return brim_op_run(net->device, &j->unit);
}

static brim_status keep_features(brim_net *net, const brim_batch *b, int64_t row, int *slot) {
  brim_knn *j = &net->knn;
  const unsigned char *labels = NULL;
  size_t bytes = (size_t)row * (size_t)j->width * brim_dtype_size(net->master);
  BRIM_TRY(compute_features(net, b, arena_at(net, j->bank) + bytes, slot, &labels));
  return brim_device_copy(net->device, arena_at(net, j->labels) + (size_t)row * sizeof(int32_t),
                          labels, (size_t)b->rows * sizeof(int32_t), BRIM_COPY_D2D);
}

brim_status brim_net_bank(brim_net *net, const brim_batch *batch, int64_t row) {
  brim_knn *j = &net->knn;
  int slot = 0;
  if (row == 0) j->filled = 0;
  if (row != j->filled || batch->rows > j->how.bank - row) {
    return brim_fail(BRIM_EINVAL,
                     "rows %" PRId64 " to %" PRId64 " do not continue the bank, which has %" PRId64
                     " of %" PRId64 " rows",
                     row, row + batch->rows, j->filled, j->how.bank);
  }
  brim_status status = keep_features(net, batch, row, &slot);
  BRIM_TRY(exec_give_slot_back(net, slot, status));
  j->filled += batch->rows;
  return BRIM_OK;
}

// Classifies the queries, a chunk at a time.
static brim_status vote(brim_net *net, int64_t rows, const unsigned char *labels) {
  brim_knn *j = &net->knn;
  size_t row_bytes = (size_t)j->width * brim_dtype_size(net->master);
  j->similar.in[1].data = arena_at(net, j->bank);
  j->similar.out[0].data = j->vote.in[0].data = arena_at(net, j->similarities);
  j->vote.in[1].data = arena_at(net, j->labels);
  j->vote.in[3].data = brim_net_state_ptr(net);
  j->vote.out[0].data = brim_net_metrics_ptr(net);
  j->similar.workspace = j->vote.workspace = arena_at(net, j->workspace);
  for (int64_t row = 0; row < rows; row += j->chunk) {
    net->state[BRIM_STATE_ROWS] = (double)(rows - row);
    BRIM_TRY(exec_put_state(net));
    j->similar.in[0].data = arena_at(net, j->query) + (size_t)row * row_bytes;
    // calls only read their inputs; the tensor type has no const form
    j->vote.in[2].data = (void *)(uintptr_t)(labels + (size_t)row * sizeof(int32_t));
    BRIM_TRY(brim_op_run(net->device, &j->similar));
    BRIM_TRY(brim_op_run(net->device, &j->vote));
  }
  return BRIM_OK;
}

brim_status brim_net_evaluate_features(brim_net *net, const brim_batch *batch) {
  brim_knn *j = &net->knn;
  int slot = 0;
  const unsigned char *labels = NULL;
  if (j->on && j->filled != j->how.bank) {
    return brim_fail(BRIM_ESTATE, "the bank has %" PRId64 " of %" PRId64 " rows", j->filled,
                     j->how.bank);
  }
  brim_status status = compute_features(net, batch, arena_at(net, j->query), &slot, &labels);
  if (!status) status = vote(net, batch->rows, labels);
  return exec_give_slot_back(net, slot, status);
}

//---------------------------------- steps of a group ----------------------------------

typedef struct work {
  brim_group *group;
  brim_group_losses losses;
  brim_group_losses gradients;  // replaces both passes; call NULL = run the passes
  brim_exec_kind backward;
  bool updates;
  int slot;  // input slot of networks with two slots
} work;

static brim_status update_all(const work *w) {
  for (int32_t i = 0; i < w->group->count; i++) {
    brim_net *net = w->group->nets[i];
    brim_status status = exec_enqueue(net, BRIM_EXEC_UPDATE);
    bool moved = i > 0 && !net->device->recording;
    if (status) return moved ? exec_fail_moved(status) : status;
  }
  return BRIM_OK;
}

static int slot_of(const work *w, const brim_net *net) { return w->slot % brim_exec_slots(net); }

static brim_status run_passes(const work *w) {
  brim_group *group = w->group;
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    exec_point(net, BRIM_EXEC_FORWARD, slot_of(w, net));
    BRIM_TRY(exec_enqueue(net, BRIM_EXEC_FORWARD));
  }
  if (w->losses.call) BRIM_TRY(w->losses.call(w->losses.ctx));
  for (int32_t i = 0; i < group->count; i++) {
    BRIM_TRY(exec_enqueue(group->nets[i], w->backward));
  }
  return BRIM_OK;
}

// Enqueues a whole step, op by op; ctx is a work.
static brim_status enqueue_work(void *ctx) {
  const work *w = ctx;
  BRIM_TRY(w->gradients.call ? w->gradients.call(w->gradients.ctx) : run_passes(w));
  return w->updates ? update_all(w) : BRIM_OK;
}

// Finds the piece for steps of this kind. Drops a recording with other losses, since it would run those.
static brim_status find_piece(const work *w, brim_capture_piece **out) {
  brim_group *group = w->group;
  bool adding = w->backward == BRIM_EXEC_BACKWARD_ADD;
  int kind = (adding ? BRIM_GROUP_ADDING : 0) | (w->updates ? BRIM_GROUP_UPDATING : 0);
  brim_capture_piece *piece = &group->pieces[kind][w->slot];
  brim_group_losses *recorded = &group->recorded[kind][w->slot];
  if (piece->graph && (recorded->call != w->losses.call || recorded->ctx != w->losses.ctx)) {
    BRIM_TRY(brim_device_sync(group->device));  // the recording may still run
    brim_capture_drop(group->device, piece);
  }
  *recorded = w->losses;
  *out = piece;
  return BRIM_OK;
}

static brim_status run_whole(work *w, const brim_spans *spans) {
  brim_group *group = w->group;
  brim_capture_piece *piece = NULL;
  BRIM_TRY(find_piece(w, &piece));
  for (int32_t i = 0; i < group->count; i++) BRIM_TRY(exec_put_state(group->nets[i]));
  brim_span_begin(spans, BRIM_PHASE_COMPUTE, brim_phase_key(BRIM_PHASE_COMPUTE));
  brim_status status = capture_run(group->device, &group->capture, piece, enqueue_work, w);
  brim_span_end(spans, BRIM_PHASE_COMPUTE, brim_phase_key(BRIM_PHASE_COMPUTE));
  return status;
}

static brim_status run_losses(const work *w, const brim_spans *spans) {
  if (!w->losses.call) return BRIM_OK;
  brim_span_begin(spans, BRIM_PHASE_FORWARD, "losses");
  brim_status status = w->losses.call(w->losses.ctx);
  if (!status && spans && spans->exact) status = brim_device_sync(w->group->device);
  brim_span_end(spans, BRIM_PHASE_FORWARD, "losses");
  return status;
}

// Runs the phases of a step one by one: for measured steps, and on devices without graphs.
static brim_status run_apart(const work *w, const brim_spans *spans) {
  brim_group *group = w->group;
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    BRIM_TRY(brim_exec_run(net, BRIM_EXEC_FORWARD, slot_of(w, net), spans));
  }
  BRIM_TRY(run_losses(w, spans));
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    BRIM_TRY(brim_exec_run(net, w->backward, slot_of(w, net), spans));
  }
  for (int32_t i = 0; w->updates && i < group->count; i++) {
    brim_net *net = group->nets[i];
    brim_status status = brim_exec_run(net, BRIM_EXEC_UPDATE, slot_of(w, net), spans);
    if (status) return i > 0 ? exec_fail_moved(status) : status;
  }
  return BRIM_OK;
}

// Brings all networks to the same slot, which a recorded step needs: a network that was fed outside the group
// skips a slot.
static void line_up_slots(brim_group *group) {
  int32_t lead = 0;
  while (lead + 1 < group->count && group->nets[lead]->in_place) lead++;
  uint64_t next = group->nets[lead]->exec.next;
  for (int32_t i = lead + 1; i < group->count; i++) {
    brim_exec *x = &group->nets[i]->exec;
    if ((x->next ^ next) % BRIM_EXEC_SLOTS != 0) x->next++;
  }
}

static brim_status check_step(const brim_group *group, const brim_group_step *step) {
  for (int32_t i = 0; i < group->count; i++) {
    BRIM_TRY(net_check_micro(group->nets[i], &step->micro[i]));
    if (step->micro[i].first != step->micro[0].first) {
      return brim_fail(BRIM_EINVAL,
                       "a micro-batch is the first of its step for some networks of a group only");
    }
    if (group->nets[i]->external_loss && !step->losses) {
      return brim_fail(BRIM_EINVAL, "network %d of the group has no loss", (int)i);
    }
  }
  return BRIM_OK;
}

static brim_status feed_group(work *w, int32_t index, const brim_net_micro *micro,
                              const brim_spans *spans) {
  brim_net *net = w->group->nets[index];
  int slot = 0;
  net->outputs_valid = false;
  net->knn.filled = 0;
  BRIM_TRY(brim_exec_feed(net, &net->train, &micro->batch, spans, &slot));
  w->slot |= slot;
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  exec_set_rows(net, micro->batch.rows, net->views, micro->batch.row_offset, micro->step_rows);
  return micro->first ? net_begin_step(net, BRIM_EXEC_FORWARD, slot, spans) : BRIM_OK;
}

static void count_step(brim_group *group, const brim_group_step *step) {
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    net->batches++;
    if (!step->lr) continue;
    net->average_stale = net->averages;
    net->ring_count++;
    net->exec.begun = false;
  }
}

brim_status brim_group_run(brim_group *group, const brim_group_step *step,
                           const brim_spans *spans) {
  bool first = step->micro[0].first;
  work w = {.group = group,
            .losses = {step->losses, step->ctx},
            .backward = first ? BRIM_EXEC_BACKWARD_FIRST : BRIM_EXEC_BACKWARD_ADD,
            .updates = step->lr != NULL};
  line_up_slots(group);
  BRIM_TRY(check_step(group, step));
  for (int32_t i = 0; step->lr && i < group->count; i++) {
    BRIM_TRY(reserve_norms(group->nets[i], step->micro[i].step, 1));
    group->nets[i]->state[BRIM_STATE_LR] = step->lr[i];
  }
  brim_status status = BRIM_OK;
  int32_t fed = 0;
  while (!status && fed < group->count) {
    status = feed_group(&w, fed, &step->micro[fed], spans);
    fed++;
  }
  bool apart = spans && (spans->exact || !group->capture.on);
  if (!status) status = apart ? run_apart(&w, spans) : run_whole(&w, spans);
  for (int32_t i = 0; i < fed; i++) {
    brim_net *net = group->nets[i];
    status = exec_give_slot_back(net, slot_of(&w, net), status);
  }
  if (!status) count_step(group, step);
  return status;
}

brim_status brim_group_undo(brim_group *group) {
  for (int32_t i = 0; i < group->count; i++) BRIM_TRY(brim_net_undo(group->nets[i]));
  return BRIM_OK;
}

//---------------------------------- the states of recorded steps ----------------------------------

enum { ROW = BRIM_STATE_HOST };  // doubles in a row of the table

static brim_status check_state(const brim_net *net, const brim_group_state *s) {
  // step_rows - rows: a sum could overflow
  if (s->step < 1 || s->rows < 1 || s->rows > net->batch || s->row_offset < 0 ||
      s->step_rows < s->rows || s->row_offset > s->step_rows - s->rows) {
    return brim_fail(BRIM_EINVAL,
                     "invalid step %" PRId64 ": %" PRId64 " of %" PRId64 " rows from row %" PRId64
                     ", batch size %" PRId64,
                     s->step, s->rows, s->step_rows, s->row_offset, net->batch);
  }
  return BRIM_OK;
}

// Checks that a micro-batch comes after the one before in the same step: equal rows would draw the same dropout.
static brim_status check_same_step(const brim_group_state *before, const brim_group_state *s) {
  if (s->step_rows == before->step_rows && s->row_offset >= before->row_offset + before->rows) {
    return BRIM_OK;
  }
  return brim_fail(BRIM_EINVAL,
                   "rows %" PRId64 " to %" PRId64 " of %" PRId64 " cannot follow rows %" PRId64
                   " to %" PRId64 " of %" PRId64 " in step %" PRId64,
                   s->row_offset, s->row_offset + s->rows, s->step_rows, before->row_offset,
                   before->row_offset + before->rows, before->step_rows, s->step);
}

static brim_status check_states(const brim_group *group, const brim_group_state *states,
                                int64_t count) {
  if (count < 1 || count > group->table.capacity) {
    return brim_fail(BRIM_EINVAL, "a group was given %" PRId64 " states, expected 1 to %" PRId64,
                     count, group->table.capacity);
  }
  const brim_group_state *before = NULL;
  for (int64_t k = 0; k < count; k++, before = states, states += group->count) {
    for (int32_t i = 0; i < group->count; i++) {
      BRIM_TRY(check_state(group->nets[i], &states[i]));
      if (!before) continue;
      int64_t ahead = states[i].step - before[i].step;
      bool same = ahead == states[0].step - before[0].step;
      if (!same || ahead < 0 || ahead > 1 || (ahead == 0 && group->nets[i]->accumulation < 2)) {
        return brim_fail(BRIM_EINVAL, "step %" PRId64 " of network %d cannot follow step %" PRId64,
                         states[i].step, (int)i, before[i].step);
      }
      if (ahead == 0) BRIM_TRY(check_same_step(&before[i], &states[i]));
    }
  }
  return BRIM_OK;
}

static brim_status put_net(brim_group *group, int32_t index, const brim_group_state *states,
                           int64_t count) {
  brim_net *net = group->nets[index];
  for (int64_t k = 0; k < count; k++) {
    const brim_group_state *s = &states[k * group->count + index];
    double *row = group->table.rows + k * ROW;
    exec_set_rows(net, s->rows, net->views, s->row_offset, s->step_rows);
    net->state[BRIM_STATE_STEP] = (double)s->step;
    net->state[BRIM_STATE_LR] = s->lr;
    net->state[BRIM_STATE_CLIP] = net->clip_norm;
    net->state[BRIM_STATE_SEED] = (double)net->seed;
    memcpy(row, net->state, ROW * sizeof *row);
  }
  group->table.first[index] = states[index].step;
  group->table.updates[index] =
      states[(count - 1) * group->count + index].step - states[index].step + 1;
  // the copy reads pageable memory before the call returns
  return brim_device_copy(net->device, brim_net_table_ptr(net), group->table.rows,
                          (size_t)count * ROW * sizeof(double), BRIM_COPY_H2D);
}

brim_status brim_group_put_states(brim_group *group, const brim_group_state *states,
                                  int64_t count) {
  group->table.count = 0;
  BRIM_TRY(check_states(group, states, count));
  for (int32_t i = 0; i < group->count; i++) BRIM_TRY(put_net(group, i, states, count));
  group->table.count = count;
  return BRIM_OK;
}

// Prepares the networks for recorded work: invalidates outputs, features and forward passes, and reserves room
// for the norms of the steps that were put.
static brim_status begin_record(brim_group *group) {
  group->table.moved = false;
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    net->outputs_valid = false;
    net->knn.filled = 0;
    BRIM_TRY(exec_drop_forward(net));
    if (group->table.count == 0) continue;
    BRIM_TRY(reserve_norms(net, group->table.first[i], group->table.updates[i]));
    BRIM_TRY(net_begin_step(net, BRIM_EXEC_FORWARD, 0, NULL));
  }
  return BRIM_OK;
}

// Counts the steps that were put as made. Called after recorded work has run.
static void end_record(brim_group *group) {
  for (int32_t i = 0; group->table.count > 0 && i < group->count; i++) {
    brim_net *net = group->nets[i];
    net->batches += group->table.count;
    net->ring_count += group->table.updates[i];
    net->average_stale = net->averages;
    net->exec.begun = false;
  }
  group->table.count = 0;
}

// Fails if the recorded work does not make exactly the steps that were put.
static brim_status check_steps(const brim_group *group, int64_t made) {
  if (made == group->table.count) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "the recorded work makes %" PRId64 " steps, but states of %" PRId64 " were put",
                   made, group->table.count);
}

static brim_status check_part(const brim_group *group, const brim_group_part *part, int64_t index) {
  if (index != group->table.enqueued || index >= group->table.count) {
    return brim_fail(BRIM_EINVAL,
                     "step %" PRId64 " of the recorded work is enqueued as number %" PRId64
                     " of %" PRId64,
                     index, group->table.enqueued, group->table.count);
  }
  if (part->adding && part->gradients) {
    return brim_fail(BRIM_EINVAL,
                     "gradients that the caller computes cannot be added to earlier ones");
  }
  for (int32_t i = 0; i < group->count; i++) {
    const brim_net *net = group->nets[i];
    if (!net->in_place) {
      return brim_fail(BRIM_ESTATE, "network %d of the group was built without inputs in place",
                       (int)i);
    }
    if (part->adding && net->accumulation < 2) {
      return brim_fail(BRIM_ESTATE, "the network was built without accumulation");
    }
    if (net->external_loss && !part->losses && !part->gradients) {
      return brim_fail(BRIM_EINVAL, "network %d of the group has no loss", (int)i);
    }
  }
  return BRIM_OK;
}

brim_status brim_group_enqueue(brim_group *group, const brim_group_part *part, int64_t index) {
  BRIM_TRY(check_part(group, part, index));
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    const size_t bytes = ROW * sizeof(double);
    BRIM_TRY(brim_device_copy(net->device, brim_net_state_ptr(net),
                              brim_net_table_ptr(net) + (size_t)index * bytes, bytes,
                              BRIM_COPY_D2D));
  }
  work w = {.group = group,
            .losses = {part->losses, part->ctx},
            .gradients = {part->gradients, part->ctx},
            .backward = part->adding ? BRIM_EXEC_BACKWARD_ADD : BRIM_EXEC_BACKWARD_FIRST,
            .updates = !part->gradients_only};
  BRIM_TRY(enqueue_work(&w));
  group->table.enqueued++;
  if (w.updates && !group->device->recording) group->table.moved = true;
  return BRIM_OK;
}

//---------------------------------- recorded work ----------------------------------

struct brim_record {
  brim_device *device;
  brim_group *group;
  brim_capture capture;
  brim_capture_piece piece;
  bool known;     // the work has run, so `steps` is valid
  int64_t steps;  // number of steps that the work makes
};

brim_status brim_record_create(brim_device *device, brim_group *group, brim_record **out) {
  brim_record *record = brim_calloc(1, sizeof *record);
  *out = record;
  if (!record) return brim_fail(BRIM_ENOMEM, "out of memory for recorded work");
  record->device = device;
  record->group = group;
  record->capture.on = brim_device_has_graphs(device) && !(group && group->eager);
  return BRIM_OK;
}

void brim_record_destroy(brim_record *record) {
  if (!record) return;
  (void)brim_device_sync(record->device);  // the last launch may still use the recording
  brim_capture_drop(record->device, &record->piece);
  brim_free(record);
}

typedef struct record_work {
  brim_group *group;
  brim_status (*enqueue)(void *ctx);
  void *ctx;
} record_work;

static brim_status enqueue_record(void *ctx) {
  const record_work *w = ctx;
  if (w->group) w->group->table.enqueued = 0;
  BRIM_TRY(w->enqueue(w->ctx));
  return w->group ? check_steps(w->group, w->group->table.enqueued) : BRIM_OK;
}

brim_status brim_record_run(brim_record *record, brim_status (*enqueue_all)(void *ctx), void *ctx,
                            bool op_by_op) {
  record_work w = {.group = record->group, .enqueue = enqueue_all, .ctx = ctx};
  if (record->group && record->known) {
    BRIM_TRY(check_steps(record->group, record->steps));
  }
  if (record->group) BRIM_TRY(begin_record(record->group));
  brim_status status =
      op_by_op ? enqueue_record(&w)
               : capture_run(record->device, &record->capture, &record->piece, enqueue_record, &w);
  if (!record->group) return status;
  if (status) return record->group->table.moved ? exec_fail_moved(status) : status;
  if (!record->known) record->steps = record->group->table.enqueued;
  record->known = true;
  end_record(record->group);
  return BRIM_OK;
}

//---------------------------------- recorded work of one network ----------------------------------

static brim_status check_in_place(const brim_net *net) {
  if (net->in_place) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "the network was built without inputs in place");
}

brim_status brim_net_input(brim_net *net, bool evaluation, brim_tensor *out) {
  BRIM_TRY(check_in_place(net));
  const brim_program *p = evaluation ? &net->eval : &net->train;
  unsigned char *input, *target;
  brim_exec_slot(net, 0, &input, &target);
  *out = p->graph.tensors[p->graph.input].desc;
  out->data = input;
  return BRIM_OK;
}

brim_status brim_net_enqueue_outputs(brim_net *net) {
  BRIM_TRY(check_in_place(net));
  net->average_stale = net->averages;  // the launch may have changed weights
  BRIM_TRY(brim_net_refresh_average(net));
  exec_point(net, BRIM_EXEC_EVAL, 0);
  return exec_enqueue(net, BRIM_EXEC_EVAL);
}
