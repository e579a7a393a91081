// kNN evaluation of features: rows of length 1, their similarities with a bank of labelled rows,
// and the vote of the nearest, all on the device. Training overwrites the bank; its features would
// be those of the old weights anyway.
#include <inttypes.h>
#include <string.h>

#include "engine/engine_int.h"

// Bytes of similarities computed at once.
static const int64_t similarity_bytes = 64 << 20;

//---------------------------------- building ----------------------------------

static brim_status check(const brim_neighbours *n) {
  const int64_t most = 1 << 30;
  if (n->bank <= most && n->classes >= 1 && n->classes <= most && n->k >= 1 && n->temperature > 0) {
    return BRIM_OK;
  }
  return brim_fail(BRIM_EINVAL,
                   "invalid kNN setting: %d neighbours of %" PRId64 " rows in %" PRId64
                   " classes at temperature %g",
                   (int)n->k, n->bank, n->classes, n->temperature);
}

static size_t place(size_t *end, int64_t rows, int64_t width, size_t size) {
  size_t at = (*end + BRIM_WORKSPACE_ALIGN - 1) / BRIM_WORKSPACE_ALIGN * BRIM_WORKSPACE_ALIGN;
  *end = at + brim_align_up((size_t)rows * (size_t)width * size);
  return at;
}

static brim_status prepare(brim_net *net, brim_op_call *call, size_t *workspace) {
  call->planning = net->planning;
  BRIM_TRY(brim_op_prepare(net->device, call));
  net->knn.prepared++;
  if (call->workspace_bytes > *workspace) *workspace = call->workspace_bytes;
  return BRIM_OK;
}

static brim_status prepare_calls(brim_net *net, size_t *workspace) {
  brim_knn *j = &net->knn;
  const int64_t rows = net->eval_batch, states = BRIM_STATE_COUNT, metrics = BRIM_METRIC_COUNT;
  const int64_t batch[] = {rows, j->width}, part[] = {j->chunk, j->width};
  const int64_t bank[] = {j->how.bank, j->width}, all[] = {j->chunk, j->how.bank};
  j->unit = (brim_op_call){.op = BRIM_OP_UNIT, .in_count = 1, .out_count = 1};
  j->unit.in[0] = brim_tensor_make(NULL, net->compute, 2, batch);
  j->unit.out[0] = brim_tensor_make(NULL, net->master, 2, batch);
  BRIM_TRY(prepare(net, &j->unit, workspace));
  j->similar = (brim_op_call){.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1};
  j->similar.in[0] = brim_tensor_make(NULL, net->master, 2, part);
  j->similar.in[1] = brim_tensor_make(NULL, net->master, 2, bank);
  j->similar.out[0] = brim_tensor_make(NULL, net->master, 2, all);
  // tf32 is as precise as the features themselves
  j->similar.attr.tf32 = net->precision != BRIM_PRECISION_FP32;
  BRIM_TRY(prepare(net, &j->similar, workspace));
  j->vote = (brim_op_call){.op = BRIM_OP_KNN, .in_count = 4, .out_count = 1};
  j->vote.in[0] = j->similar.out[0];
  j->vote.in[1] = brim_tensor_make(NULL, BRIM_I32, 1, &j->how.bank);
  j->vote.in[2] = brim_tensor_make(NULL, BRIM_I32, 1, &j->chunk);
  j->vote.in[3] = brim_tensor_make(NULL, BRIM_F64, 1, &states);
  j->vote.out[0] = brim_tensor_make(NULL, net->master, 1, &metrics);
  j->vote.attr.neighbours = j->how.k;
  j->vote.attr.classes = (int32_t)j->how.classes;
  j->vote.attr.temperature = (float)j->how.temperature;
  return prepare(net, &j->vote, workspace);
}

brim_status brim_knn_prepare(brim_net *net, const brim_net_spec *spec) {
  brim_knn *j = &net->knn;
  size_t size = brim_dtype_size(net->master), workspace = 0;
  BRIM_TRY(check(&spec->neighbours));
  j->how = spec->neighbours;
  j->width = net->eval.width;
  int64_t rows = net->eval_batch;
  j->chunk = similarity_bytes / ((int64_t)size * j->how.bank) / 16 * 16;
  if (j->chunk < 16) j->chunk = 16;  // parts of 16 rows begin aligned, whatever their width
  if (j->chunk > rows) j->chunk = rows;
  BRIM_TRY(prepare_calls(net, &workspace));
  j->end = net->eval.places.bytes;
  // the last batch of the bank is written with its padding
  j->bank = place(&j->end, j->how.bank + rows, j->width, size);
  j->labels = place(&j->end, j->how.bank, 1, sizeof(int32_t));
  // whole chunks, and the labels of the rows beside them
  int64_t padded = (rows + j->chunk - 1) / j->chunk * j->chunk;
  j->query = place(&j->end, padded, j->width, size);
  j->similarities = place(&j->end, j->chunk, j->how.bank, size);
  j->workspace = place(&j->end, (int64_t)workspace, 1, 1);
  return BRIM_OK;
}

void brim_knn_release(brim_net *net) {
  brim_knn *j = &net->knn;
  brim_op_call *calls[] = {&j->unit, &j->similar, &j->vote};
  for (int i = 0; i < j->prepared; i++) brim_op_release(net->device, calls[i]);
}

//---------------------------------- running ----------------------------------

static unsigned char *at(const brim_net *net, size_t offset) {
  return net->blocks[BRIM_BLOCK_ARENA].data + offset;
}

// Computes the batch's features as rows of length 1 into `to`; `labels` returns their place on the
// device.
static brim_status features(brim_net *net, const brim_batch *b, unsigned char *to, int *slot,
                            const unsigned char **labels) {
  brim_program *p = &net->eval;
  brim_knn *j = &net->knn;
  if (!j->on) return brim_fail(BRIM_ESTATE, "the network was built without a kNN evaluation");
  BRIM_TRY(brim_exec_check(net, p, b));
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
  j->unit.in[0].data = at(net, p->places.offset[p->output]);
  j->unit.out[0].data = to;
  j->unit.workspace = at(net, j->workspace);
  return brim_op_run(net->device, &j->unit);
}

static brim_status keep(brim_net *net, const brim_batch *b, int64_t row, int *slot) {
  brim_knn *j = &net->knn;
  const unsigned char *labels = NULL;
  size_t bytes = (size_t)row * (size_t)j->width * brim_dtype_size(net->master);
  BRIM_TRY(features(net, b, at(net, j->bank) + bytes, slot, &labels));
  return brim_device_copy(net->device, at(net, j->labels) + (size_t)row * sizeof(int32_t), labels,
                          (size_t)b->rows * sizeof(int32_t), BRIM_COPY_D2D);
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
  brim_status status = keep(net, batch, row, &slot);
  BRIM_TRY(brim_exec_give_slot_back(net, slot, status));
  j->filled += batch->rows;
  return BRIM_OK;
}

// Votes for a chunk of the queries at a time.
static brim_status vote(brim_net *net, int64_t rows, const unsigned char *labels) {
  brim_knn *j = &net->knn;
  size_t row_bytes = (size_t)j->width * brim_dtype_size(net->master);
  j->similar.in[1].data = at(net, j->bank);
  j->similar.out[0].data = j->vote.in[0].data = at(net, j->similarities);
  j->vote.in[1].data = at(net, j->labels);
  j->vote.in[3].data = brim_net_state_ptr(net);
  j->vote.out[0].data = brim_net_metrics_ptr(net);
  j->similar.workspace = j->vote.workspace = at(net, j->workspace);
  for (int64_t row = 0; row < rows; row += j->chunk) {
    net->state[BRIM_STATE_ROWS] = (double)(rows - row);
    BRIM_TRY(brim_exec_put_state(net));
    j->similar.in[0].data = at(net, j->query) + (size_t)row * row_bytes;
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
  brim_status status = features(net, batch, at(net, j->query), &slot, &labels);
  if (!status) status = vote(net, batch->rows, labels);
  return brim_exec_give_slot_back(net, slot, status);
}
