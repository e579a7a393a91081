// A loss outside the engine: forward to outputs that stay on the device, backward from a gradient
// that the caller wrote there. The pieces are those of a measured step, so each is recorded like
// any other.
#include "engine/engine_int.h"

static brim_status check(const brim_net *net) {
  if (net->external_loss) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "the network was built with a loss of its own");
}

brim_status brim_net_external_loss(const brim_net *net, brim_net_external *out) {
  BRIM_TRY(check(net));
  const int64_t states = BRIM_STATE_COUNT, metrics = BRIM_METRIC_COUNT;
  // the last node of the forward pass stands for the caller's work
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
  BRIM_TRY(check(net));
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
  BRIM_TRY(check(net));
  BRIM_TRY(brim_net_check_micro(net, micro));
  net->outputs_valid = false;
  net->knn.filled = 0;
  BRIM_TRY(brim_exec_feed(net, &net->train, &micro->batch, spans, &slot));
  brim_status status =
      micro->first ? brim_net_begin_step(net, BRIM_EXEC_FORWARD, slot, spans) : BRIM_OK;
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  brim_exec_set_rows(net, micro->batch.rows, net->views, micro->batch.row_offset, micro->step_rows);
  if (!status) status = brim_exec_run(net, BRIM_EXEC_FORWARD, slot, spans);
  if (status) return brim_exec_give_slot_back(net, slot, status);
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
  BRIM_TRY(brim_exec_give_slot_back(net, slot, status));
  net->batches++;
  return BRIM_OK;
}

static brim_status check_open(const brim_net *net) {
  BRIM_TRY(check(net));
  if (net->exec.forward.open) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "no forward pass is waiting for a gradient");
}

brim_status brim_net_backward(brim_net *net, const brim_spans *spans) {
  BRIM_TRY(check_open(net));
  return backward(net, BRIM_EXEC_BACKWARD_FIRST, BRIM_EXEC_BACKWARD_ADD, spans);
}

brim_status brim_net_backward_step(brim_net *net, double lr, const brim_spans *spans) {
  BRIM_TRY(check_open(net));
  BRIM_TRY(brim_net_reserve_norm(net, net->exec.forward.step));
  net->state[BRIM_STATE_LR] = lr;
  BRIM_TRY(backward(net, BRIM_EXEC_BACKWARD_STEP, BRIM_EXEC_BACKWARD_ADD_STEP, spans));
  net->ring_count++;
  net->exec.begun = false;
  return BRIM_OK;
}
