// Steps of a group within recorded work. Their numbers (step, learning rate, rows) lie in a table on
// the device, one row for each micro-batch of each network, and a recorded copy brings a row to
// where the calls read it: so the same recording makes other steps every time.
#include <inttypes.h>
#include <string.h>

#include "engine/engine_group.h"

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

// Rows of one step lie one behind the other: two batches at the same rows would draw the same dropout.
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

//---------------------------------- runs ----------------------------------

bool brim_group_moved(const brim_group *group) { return group->table.moved; }

bool brim_group_eager(const brim_group *group) { return group->eager; }

brim_status brim_group_begin_record(brim_group *group) {
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

void brim_group_end_record(brim_group *group) {
  for (int32_t i = 0; group->table.count > 0 && i < group->count; i++) {
    brim_net *net = group->nets[i];
    net->batches += group->table.count;
    net->ring_count += group->table.updates[i];
    net->average_stale = net->averages;
    net->exec.begun = false;
  }
  group->table.count = 0;
}

void brim_group_rewind(brim_group *group) { group->table.enqueued = 0; }

int64_t brim_group_enqueued(const brim_group *group) { return group->table.enqueued; }

brim_status brim_group_check_steps(const brim_group *group, int64_t made) {
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
  BRIM_TRY(brim_group_enqueue_work(&w));
  group->table.enqueued++;
  if (w.updates && !group->device->recording) group->table.moved = true;
  return BRIM_OK;
}
