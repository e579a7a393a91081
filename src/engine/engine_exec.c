// Steps: the prepared calls in order, with the step's numbers in the device's state tensor. Nothing
// is allocated here. The device is waited for when metrics or outputs are read, after the copy of a
// batch to it, and, in measured steps, at the end of each span.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend_half.h"
#include "engine/engine_int.h"

static size_t row_count(const brim_net *net, const brim_program *p) {
  return (size_t)(p == &net->train ? net->batch : net->eval_batch);
}

static brim_status check_batch(const brim_net *net, const brim_program *p, const brim_batch *b) {
  int64_t most = (int64_t)row_count(net, p);
  if (!b->input || !b->target) return brim_fail(BRIM_EINVAL, "the batch has no data");
  if (b->rows < 1 || b->rows > most) {
    return brim_fail(BRIM_EINVAL, "the batch has %" PRId64 " rows, expected 1 to %" PRId64, b->rows,
                     most);
  }
  if (b->row_offset < 0) {
    return brim_fail(BRIM_EINVAL, "the batch begins at row %" PRId64, b->row_offset);
  }
  return BRIM_OK;
}

static void point(const brim_gnode *node, brim_op_call *call, int32_t tensor, const void *data) {
  for (int i = 0; i < node->in_count; i++) {
    // Calls only read their inputs; the tensor type has no const form.
    if (node->in[i] == tensor) call->in[i].data = (void *)(uintptr_t)data;
  }
}

// Where the device reads host memory the calls are pointed at the batch itself; elsewhere the batch
// is copied to its buffers. Padding rows go along: the calls have one shape.
static brim_status feed(brim_net *net, brim_program *p, const brim_batch *b,
                        const brim_spans *spans) {
  const brim_graph *g = &p->graph;
  if (net->device->info.host_memory) {
    for (int32_t i = 0; i < p->prepared; i++) {
      point(&g->nodes[i], &p->calls[i], g->input, b->input);
      point(&g->nodes[i], &p->calls[i], g->target, b->target);
    }
    for (int32_t i = 0; i < p->adding_prepared; i++) {
      point(&g->nodes[p->adding_node[i]], &p->adding[i], g->input, b->input);
    }
    return BRIM_OK;
  }
  size_t rows = row_count(net, p);
  unsigned char *base = net->blocks[BRIM_BLOCK_INPUT].data;
  size_t most = (size_t)(net->batch > net->eval_batch ? net->batch : net->eval_batch);
  size_t offset = (most * net->input_row_bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  brim_span_begin(spans, BRIM_PHASE_H2D, "batch");
  brim_status status =
      brim_device_copy(net->device, base, b->input, rows * net->input_row_bytes, BRIM_COPY_H2D);
  if (!status) {
    status = brim_device_copy(net->device, base + offset, b->target, rows * net->target_row_bytes,
                              BRIM_COPY_H2D);
  }
  // The caller gives the batch back to the loader as soon as we return, so a copy from pinned
  // memory must have ended. One staging slot, waited for; two slots with an event each would
  // overlap it.
  if (!status) status = brim_device_sync(net->device);
  brim_span_end(spans, BRIM_PHASE_H2D, "batch");
  return status;
}

static brim_status put_state(brim_net *net) {
  net->state[BRIM_STATE_INV_SCALE] = 1.0;
  net->state[BRIM_STATE_CLIP] = net->clip_norm;
  net->state[BRIM_STATE_SEED] = (double)net->seed;
  return brim_device_copy(net->device, brim_net_state_ptr(net), net->state, sizeof net->state,
                          BRIM_COPY_H2D);
}

// The end of a span. A measured step waits for the device there; others leave it running.
static brim_status end_span(brim_net *net, const brim_spans *spans, brim_phase phase,
                            const char *name, brim_status status) {
  if (!status && spans && spans->exact) status = brim_device_sync(net->device);
  brim_span_end(spans, phase, name);
  return status;
}

static brim_status run_range(brim_net *net, brim_program *p, int32_t from, int32_t to,
                             bool adding) {
  int32_t k = 0;
  for (int32_t i = from; i < to; i++) {
    const brim_op_call *call = &p->calls[i];
    if (adding) {
      while (k < p->adding_prepared && p->adding_node[k] < i) k++;
      if (k < p->adding_prepared && p->adding_node[k] == i) call = &p->adding[k];
    }
    BRIM_TRY(brim_op_run(net->device, call));
  }
  return BRIM_OK;
}

brim_status brim_net_train(brim_net *net, const brim_net_micro *micro, const brim_spans *spans) {
  brim_program *p = &net->train;
  BRIM_TRY(check_batch(net, p, &micro->batch));
  if (micro->step < 1 || micro->step_rows < micro->batch.rows) {
    return brim_fail(BRIM_EINVAL, "step %" PRId64 " with %" PRId64 " rows in all is not possible",
                     micro->step, micro->step_rows);
  }
  if (!micro->first && net->accumulation < 2) {
    return brim_fail(BRIM_ESTATE, "the network was made without accumulation");
  }
  net->outputs_valid = false;
  BRIM_TRY(feed(net, p, &micro->batch, spans));
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  net->state[BRIM_STATE_ROWS] = (double)micro->batch.rows;
  net->state[BRIM_STATE_GRAD_SCALE] = 1.0 / (double)micro->step_rows;
  net->state[BRIM_STATE_ROW_OFFSET] = (double)micro->batch.row_offset;
  brim_span_begin(spans, BRIM_PHASE_FORWARD, "forward");
  brim_status status = put_state(net);
  if (!status) status = run_range(net, p, 0, p->forward_count, false);
  status = end_span(net, spans, BRIM_PHASE_FORWARD, "forward", status);
  if (status) return status;
  brim_span_begin(spans, BRIM_PHASE_BACKWARD, "backward");
  status = run_range(net, p, p->forward_count, p->prepared, !micro->first);
  return end_span(net, spans, BRIM_PHASE_BACKWARD, "backward", status);
}

//---------------------------------- update ----------------------------------

// Bring the waiting norms home: the last one is the gradient norm, and every one with a non-finite
// value was a skipped step.
static brim_status drain_norms(brim_net *net) {
  union {
    float f32[BRIM_NORM_RING][2];
    double f64[BRIM_NORM_RING][2];
  } ring;
  if (net->ring_count == 0) return BRIM_OK;
  size_t bytes = (size_t)net->ring_count * 2 * brim_dtype_size(net->master);
  BRIM_TRY(brim_device_copy(net->device, &ring, brim_net_ring_ptr(net), bytes, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(net->device));
  for (int64_t i = 0; i < net->ring_count; i++) {
    bool wide = net->master == BRIM_F64;
    double squares = wide ? ring.f64[i][0] : (double)ring.f32[i][0];
    double bad = wide ? ring.f64[i][1] : (double)ring.f32[i][1];
    net->grad_norm = sqrt(squares);
    if (bad > 0) net->skipped_steps++;
  }
  net->ring_count = 0;
  return BRIM_OK;
}

static brim_status run_update(brim_net *net) {
  BRIM_TRY(put_state(net));
  BRIM_TRY(brim_op_run(net->device, &net->norm_call));
  BRIM_TRY(brim_op_run(net->device, &net->optimizer_call));
  if (net->ring_count == BRIM_NORM_RING) BRIM_TRY(drain_norms(net));
  size_t bytes = 2 * brim_dtype_size(net->master);
  unsigned char *slot = (unsigned char *)brim_net_ring_ptr(net) + (size_t)net->ring_count * bytes;
  BRIM_TRY(brim_device_copy(net->device, slot, brim_net_norm_ptr(net), bytes, BRIM_COPY_D2D));
  net->ring_count++;
  return BRIM_OK;
}

brim_status brim_net_update(brim_net *net, int64_t step, double lr, const brim_spans *spans) {
  if (step < 1) return brim_fail(BRIM_EINVAL, "step %" PRId64 " is not possible", step);
  net->state[BRIM_STATE_STEP] = (double)step;
  net->state[BRIM_STATE_LR] = lr;
  brim_span_begin(spans, BRIM_PHASE_OPTIMIZER, "update");
  brim_status status = run_update(net);
  status = end_span(net, spans, BRIM_PHASE_OPTIMIZER, "update", status);
  return status;
}

//---------------------------------- evaluation ----------------------------------

brim_status brim_net_evaluate(brim_net *net, const brim_batch *batch, const brim_spans *spans) {
  brim_program *p = &net->eval;
  BRIM_TRY(check_batch(net, p, batch));
  net->outputs_valid = false;
  BRIM_TRY(feed(net, p, batch, spans));
  net->state[BRIM_STATE_ROWS] = (double)batch->rows;
  net->state[BRIM_STATE_GRAD_SCALE] = 0;
  net->state[BRIM_STATE_ROW_OFFSET] = (double)batch->row_offset;
  brim_span_begin(spans, BRIM_PHASE_FORWARD, "evaluate");
  brim_status status = put_state(net);
  if (!status) status = run_range(net, p, 0, p->prepared, false);
  brim_span_end(spans, BRIM_PHASE_FORWARD, "evaluate");
  if (status) return status;
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

brim_status brim_net_outputs(brim_net *net, float *out, int64_t rows) {
  if (!net->outputs_valid) {
    return brim_fail(BRIM_ESTATE, "there are no outputs: evaluate a batch first");
  }
  if (rows < 1 || rows > net->output_rows) {
    return brim_fail(BRIM_EINVAL, "%" PRId64 " rows of outputs asked for, there are %" PRId64, rows,
                     net->output_rows);
  }
  const brim_program *p = &net->eval;
  const unsigned char *from = net->blocks[BRIM_BLOCK_ARENA].data + p->places.offset[p->output];
  size_t count = (size_t)rows * (size_t)net->outputs_per_row;
  if (net->compute == BRIM_F64) return narrow(net, from, out, count);
  size_t size = brim_dtype_size(net->compute);
  unsigned char *to = (unsigned char *)out + count * (sizeof(float) - size);
  BRIM_TRY(brim_device_copy(net->device, to, from, count * size, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(net->device));
  if (size == 2) widen(net->compute, out, count);
  return BRIM_OK;
}

//---------------------------------- metrics ----------------------------------

typedef union device_sums {
  float f32[BRIM_METRIC_COUNT];
  double f64[BRIM_METRIC_COUNT];
} device_sums;

static brim_status fetch_sums(brim_net *net, double out[BRIM_METRIC_COUNT]) {
  device_sums now;
  size_t bytes = BRIM_METRIC_COUNT * brim_dtype_size(net->master);
  BRIM_TRY(drain_norms(net));
  BRIM_TRY(brim_device_copy(net->device, &now, brim_net_metrics_ptr(net), bytes, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(net->device));
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) {
    out[i] = net->master == BRIM_F64 ? now.f64[i] : (double)now.f32[i];
  }
  return BRIM_OK;
}

// The device counts in f32; each read moves its sums into doubles here, so they stay exact.
brim_status brim_net_read_metrics(brim_net *net, bool reset, brim_net_metrics *out) {
  double now[BRIM_METRIC_COUNT];
  BRIM_TRY(fetch_sums(net, now));
  BRIM_TRY(brim_device_fill(net->device, brim_net_metrics_ptr(net), 0,
                            BRIM_METRIC_COUNT * brim_dtype_size(net->master)));
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) net->sums[i] += now[i];
  *out = (brim_net_metrics){.loss_sum = net->sums[BRIM_METRIC_LOSS],
                            .correct = net->sums[BRIM_METRIC_CORRECT],
                            .rows = net->sums[BRIM_METRIC_ROWS],
                            .bad_rows = net->sums[BRIM_METRIC_BAD],
                            .grad_norm = net->grad_norm,
                            .skipped_steps = net->skipped_steps};
  if (reset) memset(net->sums, 0, sizeof net->sums);
  return BRIM_OK;
}

brim_status brim_net_get_sums(brim_net *net, brim_net_sums *out) {
  BRIM_TRY(fetch_sums(net, out->device));
  memcpy(out->host, net->sums, sizeof out->host);
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
  net->skipped_steps = sums->skipped_steps;
  return BRIM_OK;
}
