// Work of several calls in one launch: the caller's kernels, evaluations and steps of a group, with
// the batches in place. engine_group.c has the steps; this is how the whole runs, and the calls of
// one network in it.
#include "engine/engine_int.h"

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
  record->capture.on = brim_device_has_graphs(device) && !(group && brim_group_eager(group));
  return BRIM_OK;
}

void brim_record_destroy(brim_record *record) {
  if (!record) return;
  (void)brim_device_sync(record->device);  // the last launch may still be at work
  brim_capture_drop(record->device, &record->piece);
  brim_free(record);
}

typedef struct work {
  brim_group *group;
  brim_status (*enqueue)(void *ctx);
  void *ctx;
} work;

static brim_status enqueue(void *ctx) {
  const work *w = ctx;
  if (w->group) brim_group_rewind(w->group);
  BRIM_TRY(w->enqueue(w->ctx));
  return w->group ? brim_group_check_steps(w->group, brim_group_enqueued(w->group)) : BRIM_OK;
}

brim_status brim_record_run(brim_record *record, brim_status (*enqueue_all)(void *ctx), void *ctx,
                            bool op_by_op) {
  work w = {.group = record->group, .enqueue = enqueue_all, .ctx = ctx};
  if (record->group && record->known) {
    BRIM_TRY(brim_group_check_steps(record->group, record->steps));
  }
  if (record->group) BRIM_TRY(brim_group_begin_record(record->group));
  brim_status status =
      op_by_op ? enqueue(&w)
               : brim_capture_run(record->device, &record->capture, &record->piece, enqueue, &w);
  if (!record->group) return status;
  if (status) return brim_group_moved(record->group) ? brim_exec_fail_moved(status) : status;
  if (!record->known) record->steps = brim_group_enqueued(record->group);
  record->known = true;
  brim_group_end_record(record->group);
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

// The average's copy is made each time: what is recorded does not know whether weights have moved.
brim_status brim_net_enqueue_outputs(brim_net *net) {
  BRIM_TRY(check_in_place(net));
  net->average_stale = net->averages;
  BRIM_TRY(brim_net_refresh_average(net));
  brim_exec_point(net, BRIM_EXEC_EVAL, 0);
  return brim_exec_enqueue(net, BRIM_EXEC_EVAL);
}
