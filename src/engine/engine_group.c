// Several networks in one plan and one step. The first network owns the arena and the workspace of
// all; the training programs are placed together, and everything else of a network uses the arena
// alone. Steps run one by one, or as part of recorded work: the caller's kernels, evaluations and
// steps of the group in one launch.
#include <inttypes.h>
#include <string.h>

#include "engine/engine_int.h"

enum { BRIM_GROUP_ADDING = 1, BRIM_GROUP_UPDATING = 2, BRIM_GROUP_KINDS = 4 };

// The caller's losses within a step. A recording is valid only for the pointers it was made with.
typedef struct brim_group_losses {
  brim_status (*call)(void *ctx);
  void *ctx;
} brim_group_losses;

struct brim_group {
  brim_device *device;
  brim_net *nets[BRIM_GROUP_MAX];
  int32_t count;
  bool eager;  // a spec says so
  brim_capture capture;
  brim_capture_piece pieces[BRIM_GROUP_KINDS][BRIM_EXEC_SLOTS];
  brim_group_losses recorded[BRIM_GROUP_KINDS][BRIM_EXEC_SLOTS];  // with the piece
  // The steps of recorded work.
  struct {
    double *rows;      // one table, on its way to the device; NULL = no recorded steps
    int64_t capacity;  // rows of each
    int64_t count;     // rows that were put and not made
    int64_t enqueued;  // of them, enqueued so far by the current work
    int64_t first[BRIM_GROUP_MAX], updates[BRIM_GROUP_MAX];  // steps of the rows that were put
    bool moved;                                              // weights, by this run
  } table;
};

typedef struct brim_group_work {
  brim_group *group;
  brim_group_losses losses;
  brim_group_losses gradients;  // instead of both passes; call NULL = none
  brim_exec_kind backward;
  bool updates;
  int slot;  // for networks that have two
} brim_group_work;

//---------------------------------- building ----------------------------------

// A memory limit counts for all networks together; fit_group applies it.
static brim_status build_nets(brim_group *group, const brim_net_spec *specs, bool planning) {
  for (int32_t i = 0; i < group->count; i++) {
    if (specs[i].full_batch_negatives) {
      return brim_fail(BRIM_EUNSUPPORTED, "exact accumulation is not possible in a group");
    }
    brim_net_spec spec = specs[i];
    spec.memory_limit = 0;
    BRIM_TRY(brim_net_build(group->device, &spec, NULL, planning, &group->nets[i]));
  }
  return BRIM_OK;
}

// The first network's arena and workspace serve all.
static void size_shared(brim_group *group) {
  static const brim_block_id shared[] = {BRIM_BLOCK_ARENA, BRIM_BLOCK_WORKSPACE};
  for (int32_t i = 0; i < group->count; i++) brim_net_size_blocks(group->nets[i]);
  for (int k = 0; k < 2; k++) {
    brim_block *owner = &group->nets[0]->blocks[shared[k]];
    for (int32_t i = 1; i < group->count; i++) {
      brim_block *b = &group->nets[i]->blocks[shared[k]];
      if (b->bytes > owner->bytes) owner->bytes = b->bytes;
      b->bytes = 0;
    }
  }
}

static brim_status place(brim_group *group) {
  brim_program *programs[BRIM_GROUP_MAX];
  for (int32_t i = 0; i < group->count; i++) programs[i] = &group->nets[i]->train;
  BRIM_TRY(brim_programs_place(programs, group->count, true));
  size_shared(group);
  return BRIM_OK;
}

static bool chooses(const brim_net_spec *spec) {
  return spec->recompute == BRIM_RECOMPUTE_AUTO && spec->memory_limit > 0;
}

// Recomputes `share` of `shares` of the segments of each network that lets brim choose.
static brim_status recompute(brim_group *group, const brim_net_spec *specs, int64_t share,
                             int64_t shares) {
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    if (!chooses(&specs[i])) continue;
    int32_t k = (int32_t)(net->segments * share / shares);
    BRIM_TRY(brim_net_rebuild(net, &specs[i], k));
  }
  return place(group);
}

static bool within(const brim_group *group, uint64_t limit) {
  uint64_t bytes = 0;
  for (int32_t i = 0; i < group->count; i++) bytes += brim_net_device_bytes(group->nets[i]);
  return bytes <= limit;
}

// Finds the smallest share of segments that brings all networks under the limit, or all of them;
// only the chosen programs are prepared.
static brim_status fit_group(brim_group *group, const brim_net_spec *specs, bool planning) {
  uint64_t limit = UINT64_MAX;
  int64_t over = 0, fits = 0;
  for (int32_t i = 0; i < group->count; i++) {
    if (!chooses(&specs[i])) continue;
    if (specs[i].memory_limit < limit) limit = specs[i].memory_limit;
    fits += group->nets[i]->segments;
  }
  const int64_t shares = fits;
  if (shares == 0 || within(group, limit)) return BRIM_OK;
  for (int32_t i = 0; i < group->count; i++) group->nets[i]->planning = true;
  brim_status status = BRIM_OK;
  while (!status && fits - over > 1) {
    int64_t share = over + (fits - over) / 2;
    status = recompute(group, specs, share, shares);
    *(within(group, limit) ? &fits : &over) = share;
  }
  for (int32_t i = 0; i < group->count; i++) group->nets[i]->planning = planning;
  return status ? status : recompute(group, specs, fits, shares);
}

static brim_status build(brim_device *device, const brim_net_spec *specs, int32_t count,
                         bool planning, brim_group **out) {
  *out = NULL;
  if (count < 1 || count > BRIM_GROUP_MAX) {
    return brim_fail(BRIM_EINVAL, "a group has %d networks, expected 1 to %d", (int)count,
                     BRIM_GROUP_MAX);
  }
  brim_group *group = brim_calloc(1, sizeof *group);
  if (!group) return brim_fail(BRIM_ENOMEM, "out of memory for a group of networks");
  group->device = device;
  group->count = count;
  *out = group;
  BRIM_TRY(build_nets(group, specs, planning));
  BRIM_TRY(place(group));
  return fit_group(group, specs, planning);
}

brim_status brim_group_plan(brim_device *device, const brim_net_spec *specs, int32_t count,
                            brim_plan *plan) {
  brim_group *group;
  size_t first = plan->row_count;
  brim_status status = build(device, specs, count, true, &group);
  for (int32_t i = 0; !status && i < count; i++) brim_net_add_plan(group->nets[i], first, plan);
  brim_group_destroy(group);
  return status;
}

// Allocates the rows of one network's table on the host.
static brim_status open_table(brim_group *group) {
  int64_t capacity = group->nets[0]->enqueued_steps;
  for (int32_t i = 1; i < group->count; i++) {
    int64_t own = group->nets[i]->enqueued_steps;
    if (own < capacity) capacity = own;
  }
  if (capacity == 0) return BRIM_OK;
  group->table.rows = brim_calloc((size_t)capacity, BRIM_STATE_HOST * sizeof(double));
  if (!group->table.rows) return brim_fail(BRIM_ENOMEM, "out of memory for a group of networks");
  group->table.capacity = capacity;
  return BRIM_OK;
}

static brim_status open_nets(brim_group *group, const brim_net_spec *specs) {
  brim_net *owner = group->nets[0];
  group->capture.on = brim_device_has_graphs(group->device);
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    if (i > 0) {
      net->blocks[BRIM_BLOCK_ARENA].data = owner->blocks[BRIM_BLOCK_ARENA].data;
      net->blocks[BRIM_BLOCK_WORKSPACE].data = owner->blocks[BRIM_BLOCK_WORKSPACE].data;
    }
    BRIM_TRY(brim_net_open(net, specs[i].eager));
    net->peer = group->nets[(i + 1) % group->count];
    if (specs[i].eager) group->eager = true;
  }
  if (group->eager) group->capture.on = false;
  return open_table(group);
}

brim_status brim_group_create(brim_device *device, const brim_net_spec *specs, int32_t count,
                              brim_group **out) {
  brim_status status = build(device, specs, count, false, out);
  if (!status) status = open_nets(*out, specs);
  if (status) {
    brim_group_destroy(*out);
    *out = NULL;
  }
  return status;
}

void brim_group_destroy(brim_group *group) {
  if (!group) return;
  // the last launch may still be at work
  if (group->nets[0] && group->nets[0]->peer) (void)brim_device_sync(group->device);
  for (int k = 0; k < BRIM_GROUP_KINDS; k++) {
    for (int s = 0; s < BRIM_EXEC_SLOTS; s++) {
      brim_capture_drop(group->device, &group->pieces[k][s]);
    }
  }
  // the owner of the memory is the last
  for (int32_t i = group->count - 1; i >= 0; i--) brim_net_destroy(group->nets[i]);
  brim_free(group->table.rows);
  brim_free(group);
}

brim_net *brim_group_net(brim_group *group, int32_t index) {
  return index >= 0 && index < group->count ? group->nets[index] : NULL;
}

void *brim_group_memory(const brim_group *group, size_t *bytes) {
  const brim_block *arena = &group->nets[0]->blocks[BRIM_BLOCK_ARENA];
  *bytes = arena->bytes;
  return arena->data;
}

//---------------------------------- running ----------------------------------

typedef brim_group_work work;

static brim_status update_all(const work *w) {
  for (int32_t i = 0; i < w->group->count; i++) {
    brim_net *net = w->group->nets[i];
    brim_status status = brim_exec_enqueue(net, BRIM_EXEC_UPDATE);
    bool moved = i > 0 && !net->device->recording;
    if (status) return moved ? brim_exec_fail_moved(status) : status;
  }
  return BRIM_OK;
}

static int slot_of(const work *w, const brim_net *net) { return w->slot % brim_exec_slots(net); }

static brim_status both_ways(const work *w) {
  brim_group *group = w->group;
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    brim_exec_point(net, BRIM_EXEC_FORWARD, slot_of(w, net));
    BRIM_TRY(brim_exec_enqueue(net, BRIM_EXEC_FORWARD));
  }
  if (w->losses.call) BRIM_TRY(w->losses.call(w->losses.ctx));
  for (int32_t i = 0; i < group->count; i++) {
    BRIM_TRY(brim_exec_enqueue(group->nets[i], w->backward));
  }
  return BRIM_OK;
}

// Enqueues all of a step, op by op; ctx is a brim_group_work.
static brim_status enqueue_work(void *ctx) {
  const work *w = ctx;
  BRIM_TRY(w->gradients.call ? w->gradients.call(w->gradients.ctx) : both_ways(w));
  return w->updates ? update_all(w) : BRIM_OK;
}

// The recording of such steps. A recording with other losses is dropped, since it would call those.
static brim_status piece_of(const work *w, brim_capture_piece **out) {
  brim_group *group = w->group;
  bool adding = w->backward == BRIM_EXEC_BACKWARD_ADD;
  int kind = (adding ? BRIM_GROUP_ADDING : 0) | (w->updates ? BRIM_GROUP_UPDATING : 0);
  brim_capture_piece *piece = &group->pieces[kind][w->slot];
  brim_group_losses *recorded = &group->recorded[kind][w->slot];
  if (piece->graph && (recorded->call != w->losses.call || recorded->ctx != w->losses.ctx)) {
    BRIM_TRY(brim_device_sync(group->device));  // it may still be at work
    brim_capture_drop(group->device, piece);
  }
  *recorded = w->losses;
  *out = piece;
  return BRIM_OK;
}

static brim_status run_whole(work *w, const brim_spans *spans) {
  brim_group *group = w->group;
  brim_capture_piece *piece = NULL;
  BRIM_TRY(piece_of(w, &piece));
  for (int32_t i = 0; i < group->count; i++) BRIM_TRY(brim_exec_put_state(group->nets[i]));
  brim_span_begin(spans, BRIM_PHASE_COMPUTE, brim_phase_key(BRIM_PHASE_COMPUTE));
  brim_status status = brim_capture_run(group->device, &group->capture, piece, enqueue_work, w);
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

// Measured steps, and devices without graphs, have the phases one by one.
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
    if (status) return i > 0 ? brim_exec_fail_moved(status) : status;
  }
  return BRIM_OK;
}

// A recorded step reads the same slot of every network that has two: a network that was fed on its
// own skips a slot.
static void line_up_slots(brim_group *group) {
  int32_t lead = 0;
  while (lead + 1 < group->count && group->nets[lead]->in_place) lead++;
  uint64_t next = group->nets[lead]->exec.next;
  for (int32_t i = lead + 1; i < group->count; i++) {
    brim_exec *x = &group->nets[i]->exec;
    if ((x->next ^ next) % BRIM_EXEC_SLOTS != 0) x->next++;
  }
}

static brim_status check(const brim_group *group, const brim_group_step *step) {
  for (int32_t i = 0; i < group->count; i++) {
    BRIM_TRY(brim_net_check_micro(group->nets[i], &step->micro[i]));
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

static brim_status feed(work *w, int32_t index, const brim_net_micro *micro,
                        const brim_spans *spans) {
  brim_net *net = w->group->nets[index];
  int slot = 0;
  net->outputs_valid = false;
  net->knn.filled = 0;
  BRIM_TRY(brim_exec_feed(net, &net->train, &micro->batch, spans, &slot));
  w->slot |= slot;
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  brim_exec_set_rows(net, micro->batch.rows, net->views, micro->batch.row_offset, micro->step_rows);
  return micro->first ? brim_net_begin_step(net, BRIM_EXEC_FORWARD, slot, spans) : BRIM_OK;
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
  BRIM_TRY(check(group, step));
  for (int32_t i = 0; step->lr && i < group->count; i++) {
    BRIM_TRY(brim_net_reserve_norm(group->nets[i], step->micro[i].step));
    group->nets[i]->state[BRIM_STATE_LR] = step->lr[i];
  }
  brim_status status = BRIM_OK;
  int32_t fed = 0;
  while (!status && fed < group->count) {
    status = feed(&w, fed, &step->micro[fed], spans);
    fed++;
  }
  bool apart = spans && (spans->exact || !group->capture.on);
  if (!status) status = apart ? run_apart(&w, spans) : run_whole(&w, spans);
  for (int32_t i = 0; i < fed; i++) {
    brim_net *net = group->nets[i];
    status = brim_exec_give_slot_back(net, slot_of(&w, net), status);
  }
  if (!status) count_step(group, step);
  return status;
}

brim_status brim_group_undo(brim_group *group) {
  for (int32_t i = 0; i < group->count; i++) BRIM_TRY(brim_net_undo(group->nets[i]));
  return BRIM_OK;
}

//---------------------------------- steps within recorded work ----------------------------------

enum { ROW = BRIM_STATE_HOST };  // doubles

//---------------------------------- the table ----------------------------------

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

// The rows of one step must follow one another: two batches at the same rows would draw the same
// dropout.
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
    brim_exec_set_rows(net, s->rows, net->views, s->row_offset, s->step_rows);
    net->state[BRIM_STATE_STEP] = (double)s->step;
    net->state[BRIM_STATE_LR] = s->lr;
    net->state[BRIM_STATE_CLIP] = net->clip_norm;
    net->state[BRIM_STATE_SEED] = (double)net->seed;
    memcpy(row, net->state, ROW * sizeof *row);
  }
  group->table.first[index] = states[index].step;
  group->table.updates[index] =
      states[(count - 1) * group->count + index].step - states[index].step + 1;
  // pageable memory: its bytes are taken before the call returns
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

// Before recorded work runs: outputs, features and forward passes of the networks become invalid, and
// room is reserved for the steps that were put.
static brim_status begin_record(brim_group *group) {
  group->table.moved = false;
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    net->outputs_valid = false;
    net->knn.filled = 0;
    BRIM_TRY(brim_exec_drop_forward(net));
    if (group->table.count == 0) continue;
    BRIM_TRY(brim_net_reserve_norms(net, group->table.first[i], group->table.updates[i]));
    BRIM_TRY(brim_net_begin_step(net, BRIM_EXEC_FORWARD, 0, NULL));
  }
  return BRIM_OK;
}

// After recorded work has run: counts the steps that were put as made.
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

// Recorded work must make exactly the steps that were put.
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
  brim_group_work w = {.group = group,
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
  bool known;     // the work has run ...
  int64_t steps;  // ... and makes so many
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
  (void)brim_device_sync(record->device);  // the last launch may still use it
  brim_capture_drop(record->device, &record->piece);
  brim_free(record);
}

typedef struct record_work {
  brim_group *group;
  brim_status (*enqueue)(void *ctx);
  void *ctx;
} record_work;

static brim_status enqueue(void *ctx) {
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
      op_by_op ? enqueue(&w)
               : brim_capture_run(record->device, &record->capture, &record->piece, enqueue, &w);
  if (!record->group) return status;
  if (status) return record->group->table.moved ? brim_exec_fail_moved(status) : status;
  if (!record->known) record->steps = record->group->table.enqueued;
  record->known = true;
  end_record(record->group);
  return BRIM_OK;
}

//---------------------------------- one network ----------------------------------

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
  net->average_stale = net->averages;  // a launch does not know whether weights have moved
  BRIM_TRY(brim_net_refresh_average(net));
  brim_exec_point(net, BRIM_EXEC_EVAL, 0);
  return brim_exec_enqueue(net, BRIM_EXEC_EVAL);
}
