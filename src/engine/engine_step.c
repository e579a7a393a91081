// Steps and evaluation as the caller sees them, made of the pieces of engine_exec.c: micro-batches,
// updates, what a failed step leaves behind, outputs.
#include <inttypes.h>
#include <string.h>

#include "backend/backend_half.h"
#include "engine/engine_int.h"

//---------------------------------- steps ----------------------------------

brim_status brim_net_check_micro(const brim_net *net, const brim_net_micro *micro) {
  const brim_program *fed = net->negatives.on ? &net->negatives.embed : &net->train;
  BRIM_TRY(brim_exec_check(net, fed, &micro->batch));
  if (micro->step < 1 || micro->step_rows < micro->batch.rows) {
    return brim_fail(BRIM_EINVAL, "invalid step %" PRId64 " with %" PRId64 " rows in total",
                     micro->step, micro->step_rows);
  }
  if (!micro->first && net->accumulation < 2) {
    return brim_fail(BRIM_ESTATE, "the network was built without accumulation");
  }
  return BRIM_OK;
}

// What the first micro-batch is about to change besides gradients, kept on the device without
// waiting. Where all of a step is one recorded piece it is launched or it is not.
brim_status brim_net_begin_step(brim_net *net, brim_exec_kind kind, int slot,
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
  BRIM_TRY(brim_exec_drop_forward(net));
  net->batches = net->exec.begun_batches;
  net->negatives.done = 0;
  return brim_device_sync(net->device);
}

static brim_status check_own_loss(const brim_net *net, const brim_net_micro *micro) {
  BRIM_TRY(brim_net_check_micro(net, micro));
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
    if (micro->first) BRIM_TRY(brim_net_begin_step(net, kind, slot, spans));
    return brim_negatives_run(net, micro, update, spans);
  }
  BRIM_TRY(brim_exec_feed(net, &net->train, &micro->batch, spans, &slot));
  brim_status begun = micro->first ? brim_net_begin_step(net, kind, slot, spans) : BRIM_OK;
  if (begun) return brim_exec_give_slot_back(net, slot, begun);
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  brim_exec_set_rows(net, micro->batch.rows, net->views, micro->batch.row_offset, micro->step_rows);
  BRIM_TRY(brim_exec_give_slot_back(net, slot, brim_exec_run(net, kind, slot, spans)));
  net->batches++;
  return BRIM_OK;
}

brim_status brim_net_train(brim_net *net, const brim_net_micro *micro, const brim_spans *spans) {
  BRIM_TRY(check_own_loss(net, micro));
  return run_micro(net, micro, micro->first ? BRIM_EXEC_TRAIN_FIRST : BRIM_EXEC_TRAIN_ADD, spans);
}

brim_status brim_net_update(brim_net *net, int64_t step, double lr, const brim_spans *spans) {
  BRIM_TRY(brim_net_reserve_norm(net, step));
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
  BRIM_TRY(brim_net_reserve_norm(net, micro->step));
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
  BRIM_TRY(brim_exec_check(net, p, batch));
  int slot = 0;
  net->outputs_valid = false;
  BRIM_TRY(brim_exec_feed(net, p, batch, spans, &slot));
  brim_exec_set_rows(net, batch->rows, p->views, batch->row_offset, 0);
  BRIM_TRY(brim_exec_give_slot_back(net, slot, brim_exec_run(net, BRIM_EXEC_EVAL, slot, spans)));
  net->outputs_valid = true;
  net->output_rows = batch->rows;
  return BRIM_OK;
}

// 16-bit values lie in the upper half of `out`; each is read before its place is written.
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
