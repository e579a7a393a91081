// Pieces of a step: a batch to where the prepared calls read it, and the calls in order, with the
// step's numbers in the device's state tensor. Nothing is allocated here. The host waits for the
// device when it is two batches ahead, for the copy of a batch in host memory, and in measured
// steps at the end of each span. engine_capture.c records pieces and launches them whole;
// engine_step.c makes steps of them.
#include "engine/engine_exec.h"

#include <inttypes.h>
#include <string.h>

#include "engine/engine_int.h"

// What each piece is made of.
static const struct {
  bool forward, backward, adding, update, eval, embed, loss;
  // With ranks, gradients are whole after it: their exchange begins within the backward pass and ends with
  // the piece, since what is recorded must not leave work behind on another stream.
  bool posts;
  bool joined;  // gradients of all ranks are there
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

//---------------------------------- life ----------------------------------

brim_status brim_exec_init(brim_net *net, bool eager) {
  brim_exec *x = &net->exec;
  double kept[BRIM_EXEC_KEPT] = {0};
  // PyTorch's first scale. A power of two: scaling and unscaling round nothing.
  kept[BRIM_STATE_LOSS_SCALE - BRIM_STATE_HOST] =
      net->precision == BRIM_PRECISION_FP16 ? 65536.0 : 1.0;
  BRIM_TRY(brim_exec_set_kept(net, kept));
  if (net->device->info.host_memory) return BRIM_OK;
  for (int i = 0; i < BRIM_EXEC_SLOTS; i++) {
    BRIM_TRY(brim_event_create(net->device, &x->filled[i]));
    BRIM_TRY(brim_event_create(net->device, &x->done[i]));
  }
  x->capture.on = !eager && brim_device_has_graphs(net->device);
  return BRIM_OK;
}

void brim_exec_deinit(brim_net *net) {
  brim_exec *x = &net->exec;
  for (int i = 0; i < BRIM_EXEC_SLOTS; i++) {
    for (int k = 0; k < BRIM_EXEC_KIND_COUNT; k++) {
      brim_capture_drop(net->device, &x->pieces[k][i]);
    }
    brim_event_destroy(net->device, x->filled[i]);
    brim_event_destroy(net->device, x->done[i]);
  }
  memset(x, 0, sizeof *x);
}

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

brim_status brim_exec_check(const brim_net *net, const brim_program *p, const brim_batch *b) {
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

void brim_exec_point(brim_net *net, brim_exec_kind kind, int slot) {
  bool reads = parts[kind].forward || parts[kind].backward || parts[kind].eval || parts[kind].embed;
  if ((net->device->info.host_memory && !net->in_place) || !reads) return;
  unsigned char *input, *target;
  brim_exec_slot(net, slot, &input, &target);
  brim_program *p = parts[kind].eval    ? &net->eval
                    : parts[kind].embed ? &net->negatives.embed
                                        : &net->train;
  point(p, input, target);
}

// Into a free slot, beside what the device computes. The caller gives the batch back to the loader
// as soon as we return, so the host waits for the copy. Padding rows go along: the calls have one
// shape.
static brim_status upload(brim_net *net, const brim_program *p, const brim_batch *b, int slot) {
  brim_exec *x = &net->exec;
  size_t rows = (size_t)p->rows;
  unsigned char *input, *target;
  brim_exec_slot(net, slot, &input, &target);
  brim_status status = brim_device_upload(net->device, input, b->input, rows * p->input_row_bytes);
  if (!status && p->target_row_bytes > 0) {
    status = brim_device_upload(net->device, target, b->target, rows * p->target_row_bytes);
  }
  // Also after a failure: half of it may be on its way, out of memory that is not ours.
  brim_status ended = brim_event_record_copy(net->device, x->filled[slot]);
  if (!ended) ended = brim_event_sync(net->device, x->filled[slot]);
  BRIM_TRY(status);
  BRIM_TRY(ended);
  x->used[slot] = true;
  return brim_event_wait(net->device, x->filled[slot]);
}

// The slot may be written again when what was enqueued up to here is done; also after a failure.
brim_status brim_exec_give_slot_back(brim_net *net, int slot, brim_status status) {
  if (net->device->info.host_memory) return status;
  brim_status recorded = brim_event_record(net->device, net->exec.done[slot]);
  return status ? status : recorded;
}

brim_status brim_exec_drop_forward(brim_net *net) {
  int slot = net->exec.forward.slot;
  bool open = net->exec.forward.open;
  net->exec.forward.open = false;
  return open ? brim_exec_give_slot_back(net, slot, BRIM_OK) : BRIM_OK;
}

// Of a batch that lies on the device already. All in the main stream's order: what made the batch
// and what last read the slot come before this, the next write to the batch's memory comes after,
// and an earlier upload into the slot was waited for by the host. So nothing waits here.
static brim_status take(brim_net *net, const brim_program *p, const brim_batch *b, int slot) {
  size_t rows = (size_t)p->rows;
  unsigned char *input, *target;
  brim_exec_slot(net, slot, &input, &target);
  brim_status status =
      brim_device_copy(net->device, input, b->input, rows * p->input_row_bytes, BRIM_COPY_D2D);
  if (!status && p->target_row_bytes > 0) {
    status =
        brim_device_copy(net->device, target, b->target, rows * p->target_row_bytes, BRIM_COPY_D2D);
  }
  // Half of it may be on its way: an upload into the slot has to wait for that.
  if (status) return brim_exec_give_slot_back(net, slot, status);
  net->exec.used[slot] = true;
  return BRIM_OK;
}

// What others left in the arena that this network is about to use.
static brim_status end_peers(brim_net *net) {
  for (brim_net *other = net->peer; other && other != net; other = other->peer) {
    BRIM_TRY(brim_exec_drop_forward(other));
    other->outputs_valid = false;
    other->knn.filled = 0;
  }
  return BRIM_OK;
}

// Inputs in place on a device that reads host memory.
static brim_status put(brim_net *net, const brim_program *p, const brim_batch *b) {
  unsigned char *input, *target;
  brim_exec_slot(net, 0, &input, &target);
  if (!b->input || b->input == input) return BRIM_OK;
  return brim_device_copy(net->device, input, b->input, (size_t)p->rows * p->input_row_bytes,
                          BRIM_COPY_H2D);
}

// Where the device reads host memory the calls are pointed at the batch itself; elsewhere the batch
// goes to the slot whose turn it is. Without data the slot's old content is used. The host is never
// more than two batches ahead, wherever they come from: a stop or a reading comes soon.
brim_status brim_exec_feed(brim_net *net, brim_program *p, const brim_batch *b,
                           const brim_spans *spans, int *slot) {
  *slot = 0;
  BRIM_TRY(brim_exec_drop_forward(net));
  BRIM_TRY(end_peers(net));
  if (net->device->info.host_memory) {
    if (net->in_place) return put(net, p, b);
    point(p, b->input, b->target);
    return BRIM_OK;
  }
  *slot = (int)(net->exec.next % (uint64_t)brim_exec_slots(net));
  if (b->input) {
    // Until the slot is free the host is ahead of the device: that is computing, not copying.
    brim_span_begin(spans, BRIM_PHASE_COMPUTE, "slot");
    brim_status free = brim_event_sync(net->device, net->exec.done[*slot]);
    brim_span_end(spans, BRIM_PHASE_COMPUTE, "slot");
    BRIM_TRY(free);
    brim_span_begin(spans, BRIM_PHASE_H2D, "batch");
    brim_status status = b->on_device ? take(net, p, b, *slot) : upload(net, p, b, *slot);
    brim_span_end(spans, BRIM_PHASE_H2D, "batch");
    if (status) return status;
  }
  net->exec.next++;
  return BRIM_OK;
}

//---------------------------------- pieces ----------------------------------

// The rest of the state belongs to the device.
brim_status brim_exec_put_state(brim_net *net) {
  net->state[BRIM_STATE_CLIP] = net->clip_norm;
  net->state[BRIM_STATE_SEED] = (double)net->seed;
  return brim_device_copy(net->device, brim_net_state_ptr(net), net->state,
                          BRIM_STATE_HOST * sizeof *net->state, BRIM_COPY_H2D);
}

void brim_exec_set_rows(brim_net *net, int64_t rows, int64_t views, int64_t row_offset,
                        int64_t step_rows) {
  net->state[BRIM_STATE_ROWS] = (double)rows;
  // those that the loss compares: of all ranks where that is one loss
  int64_t together = net->ranks.pairs && step_rows > 0 ? net->ranks.size : 1;
  net->state[BRIM_STATE_SAMPLES] = (double)(rows / views * together);
  net->state[BRIM_STATE_GRAD_SCALE] = step_rows > 0 ? (double)views / (double)step_rows : 0;
  net->state[BRIM_STATE_ROW_OFFSET] = (double)row_offset;
}

// What is done to each group of rows; gradients of parameters are those of the first, then added
// to.
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

// Whose work the next op is, for a device that is measured.
static void tell(const brim_net *net, const char *layer, brim_phase phase) {
  brim_op_watch *watch = net->device->watch;
  if (!watch) return;
  watch->net = net;
  watch->layer = layer;
  watch->phase = phase;
}

static brim_phase phase_of(const brim_gnode *node) {
  return node->backward ? BRIM_PHASE_BACKWARD : BRIM_PHASE_FORWARD;
}

// The buckets from `*next` on whose gradients are whole after this node.
static brim_status post_buckets(brim_net *net, int32_t node, int32_t *next) {
  const brim_net_ranks *r = &net->ranks;
  for (; *next < r->count && r->buckets[*next].after <= node; (*next)++) {
    tell(net, NULL, BRIM_PHASE_BACKWARD);
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
    tell(net, p->graph.nodes[i].layer, phase_of(&p->graph.nodes[i]));
    BRIM_TRY(p->graph.nodes[i].groups > 1 ? run_groups(net, p, i) : brim_op_run(net->device, call));
    if (posts) BRIM_TRY(post_buckets(net, i, &bucket));
  }
  return BRIM_OK;
}

brim_status brim_exec_fail_moved(brim_status status) {
  if (status != BRIM_EOOM) return status;
  char why[512];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  return brim_fail(BRIM_EDEVICE,
                   "%s; the weights have already changed, so brim cannot repeat the step; resume "
                   "from the last checkpoint with --resume",
                   why);
}

// The gradients of all ranks.
static brim_status join_ranks(brim_net *net, brim_phase phase) {
  if (!net->ranks.on) return BRIM_OK;
  tell(net, NULL, phase);
  return brim_op_run(net->device, &net->ranks.wait);
}

// posted: their exchange was begun by this piece; joined: it has ended with another one.
static brim_status run_update(brim_net *net, bool posted, bool joined) {
  int32_t bucket = 0;
  if (!posted && !joined) BRIM_TRY(post_buckets(net, INT32_MAX, &bucket));
  if (!joined) BRIM_TRY(join_ranks(net, BRIM_PHASE_OPTIMIZER));
  tell(net, NULL, BRIM_PHASE_OPTIMIZER);
  BRIM_TRY(brim_op_run(net->device, &net->norm_call));
  BRIM_TRY(brim_op_run(net->device, &net->optimizer_call));
  brim_status status = BRIM_OK;
  if (net->statistics_prepared) status = brim_op_run(net->device, &net->statistics_call);
  if (!status) status = brim_op_run(net->device, &net->step_end_call);
  return net->device->recording ? status : brim_exec_fail_moved(status);
}

// A piece op by op.
brim_status brim_exec_enqueue(brim_net *net, brim_exec_kind kind) {
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
    tell(net, "loss", BRIM_PHASE_FORWARD);
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
  brim_exec_point(w->net, w->kind, w->slot);
  return brim_exec_enqueue(w->net, w->kind);
}

// One launch where the device can.
static brim_status run_piece(brim_net *net, brim_exec_kind kind, int slot) {
  piece_work work = {net, kind, slot};
  brim_exec *x = &net->exec;
  return brim_capture_run(net->device, &x->capture, &x->pieces[kind][slot], enqueue_piece, &work);
}

// The same as a span. A measured step waits for the device at its end; others leave it running.
static brim_status run_span(brim_net *net, brim_exec_kind kind, int slot, const brim_spans *spans,
                            brim_phase phase) {
  const char *name = kind == BRIM_EXEC_EVAL ? "evaluate" : brim_phase_key(phase);
  brim_span_begin(spans, phase, name);
  brim_status status = run_piece(net, kind, slot);
  if (!status && spans && spans->exact) status = brim_device_sync(net->device);
  brim_span_end(spans, phase, name);
  return status;
}

// Exact spans, and devices without graphs, have the phases one by one; otherwise the whole is one
// launch, whose phases cannot be told apart.
brim_status brim_exec_run(brim_net *net, brim_exec_kind kind, int slot, const brim_spans *spans) {
  if (net->ranks.on) BRIM_TRY(brim_exchange_check(net->device));
  BRIM_TRY(brim_exec_put_state(net));
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
