// Running statistics of the averaged weights, from batches that go forward through them (decision
// 0020): training's own forward calls bound to the average, op by op, and bound back. Weights,
// their own statistics, sums and recorded pieces stay as they are.
#include "engine/engine_int.h"

bool brim_net_recalibrates(const brim_net *net) { return net->statistics_prepared; }

// Training's forward calls for the average, with batch norms that take the mean of all batches so
// far (index from 0), or as they were (-1).
static void turn_forward(brim_net *net, int64_t index) {
  brim_program *p = &net->train;
  brim_net_bind_forward(net, index >= 0);
  for (int32_t i = 0; i < p->forward_count; i++) {
    brim_op_attr *attr = &p->calls[i].attr;
    if (p->calls[i].op != BRIM_OP_BATCHNORM && p->calls[i].op != BRIM_OP_BATCHNORM_JOIN) continue;
    attr->momentum = index >= 0 ? 1.0f / (float)(index + 1) : p->graph.nodes[i].attr.momentum;
  }
}

// To where training's forward pass reads it. Of an exact step that pass ends before the loss and
// reads the input alone; its target, a gradient, is not there to be uploaded.
static brim_status feed(brim_net *net, const brim_batch *b, int *slot) {
  brim_program *checked = net->negatives.on ? &net->negatives.embed : &net->train;
  bool host = net->device->info.host_memory;
  BRIM_TRY(brim_exec_check(net, checked, b));
  return brim_exec_feed(net, host ? &net->train : checked, b, NULL, slot);
}

static brim_status forward(brim_net *net, const brim_batch *b, int64_t step, int64_t index) {
  int slot = 0;
  BRIM_TRY(feed(net, b, &slot));
  brim_exec_point(net, BRIM_EXEC_FORWARD, slot);
  net->state[BRIM_STATE_STEP] = (double)step;
  brim_exec_set_rows(net, b->rows, net->views, index * net->batch, 0);
  brim_status status = brim_exec_put_state(net);
  if (!status) status = brim_net_refresh_average(net);
  if (!status) status = brim_exec_enqueue(net, BRIM_EXEC_FORWARD);
  return brim_exec_give_slot_back(net, slot, status);
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
  // the sums are training's
  BRIM_TRY(brim_device_copy(net->device, brim_net_metrics_before_ptr(net),
                            brim_net_metrics_ptr(net), bytes, BRIM_COPY_D2D));
  turn_forward(net, index);
  brim_status status = forward(net, batch, step, index);
  turn_forward(net, -1);
  brim_status back = brim_device_copy(net->device, brim_net_metrics_ptr(net),
                                      brim_net_metrics_before_ptr(net), bytes, BRIM_COPY_D2D);
  return status ? status : back;
}

brim_status brim_net_undo_recalibration(brim_net *net) {
  if (!net->statistics_prepared) return BRIM_OK;
  return copy_statistics(net, net->blocks[BRIM_BLOCK_AVERAGE_BUFFERS].data,
                         brim_net_buffers_before_ptr(net));
}
