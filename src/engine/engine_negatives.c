// The loss of a whole step over its micro-batches (gradient caching). Each micro-batch is embedded
// without keeping activations; NT-Xent and its gradient are taken over all embeddings; each is then
// computed again, from the very same input and so with the same statistics of batch norm, and goes
// back from its own part of that gradient. Memory is that of one micro-batch, the price one more
// forward pass. Running statistics move in the second pass only.
//
// A micro-batch has the first views of its samples, then the second ones; all embeddings lie as one
// such batch. On the way back each needs its own rows together, and they take the embeddings' place.
#include <inttypes.h>
#include <string.h>

#include "engine/engine_int.h"

//---------------------------------- building ----------------------------------

static int64_t all_rows(const brim_net *net) { return net->batch * net->accumulation; }

static size_t embeddings_size(const brim_net *net) {
  return brim_align_up((size_t)all_rows(net) * net->negatives.width_bytes);
}

size_t brim_negatives_replay_bytes(const brim_net *net) {
  if (!net->negatives.on) return 0;
  return (size_t)net->accumulation * brim_align_up((size_t)net->batch * net->train.input_row_bytes);
}

// The embeddings, then their gradient.
size_t brim_negatives_embedding_bytes(const brim_net *net) {
  return net->negatives.on ? 2 * embeddings_size(net) : 0;
}

brim_status brim_negatives_prepare(brim_net *net, const brim_net_spec *spec) {
  brim_negatives *e = &net->negatives;
  const int64_t states = BRIM_STATE_COUNT, metrics = BRIM_METRIC_COUNT;
  const int64_t z[] = {all_rows(net), net->outputs_per_row};
  e->width_bytes = (size_t)net->outputs_per_row * brim_dtype_size(net->compute);
  brim_op_call *c = &e->loss;
  memset(c, 0, sizeof *c);
  brim_loss loss;
  BRIM_TRY(brim_loss_find(spec, &loss));
  c->op = loss.row->op;
  c->attr = loss.attr;
  c->in_count = c->out_count = 2;
  c->in[0] = c->out[1] = brim_tensor_make(NULL, net->compute, 2, z);
  c->in[1] = brim_tensor_make(NULL, BRIM_F64, 1, &states);
  c->out[0] = brim_tensor_make(NULL, net->master, 1, &metrics);
  c->planning = net->planning;
  BRIM_TRY(brim_op_prepare(net->device, c));
  e->prepared = true;
  return BRIM_OK;
}

void brim_negatives_bind(brim_net *net) {
  brim_op_call *c = &net->negatives.loss;
  unsigned char *z = net->blocks[BRIM_BLOCK_EMBEDDINGS].data;
  c->in[0].data = z;
  c->in[1].data = brim_net_state_ptr(net);
  c->out[0].data = brim_net_metrics_ptr(net);
  c->out[1].data = z + embeddings_size(net);
  c->workspace = net->blocks[BRIM_BLOCK_ARENA].data;  // nothing else is alive then
}

void brim_negatives_release(brim_net *net) {
  if (net->negatives.prepared) brim_op_release(net->device, &net->negatives.loss);
  brim_program_release(net, &net->negatives.embed);
}

//---------------------------------- running ----------------------------------

static unsigned char *kept_input(const brim_net *net, int64_t index) {
  size_t bytes = brim_align_up((size_t)net->batch * net->train.input_row_bytes);
  return net->blocks[BRIM_BLOCK_REPLAY].data + (size_t)index * bytes;
}

static brim_status copy(brim_net *net, void *to, const void *from, size_t bytes) {
  return brim_device_copy(net->device, to, from, bytes, BRIM_COPY_D2D);
}

// Keeps the input on the device; a batch in host memory is copied there now.
static brim_status keep_input(brim_net *net, int64_t index, int slot, const brim_batch *b) {
  size_t bytes = (size_t)net->batch * net->train.input_row_bytes;
  if (net->device->info.host_memory) return copy(net, kept_input(net, index), b->input, bytes);
  unsigned char *input, *target;
  brim_exec_slot(net, slot, &input, &target);
  return copy(net, kept_input(net, index), input, bytes);
}

// Copies both views of the micro-batch's output to their places among all embeddings.
static brim_status gather(brim_net *net, int64_t index) {
  const brim_program *p = &net->negatives.embed;
  size_t half = (size_t)(net->batch / 2) * net->negatives.width_bytes;
  const unsigned char *from = net->blocks[BRIM_BLOCK_ARENA].data + p->places.offset[p->output];
  unsigned char *first = net->blocks[BRIM_BLOCK_EMBEDDINGS].data + (size_t)index * half;
  BRIM_TRY(copy(net, first, from, half));
  return copy(net, first + (size_t)net->accumulation * half, from + half, half);
}

// Distributes the gradient over the embeddings, micro-batch by micro-batch.
static brim_status scatter(brim_net *net, int64_t count) {
  size_t half = (size_t)(net->batch / 2) * net->negatives.width_bytes;
  unsigned char *to = net->blocks[BRIM_BLOCK_EMBEDDINGS].data;
  const unsigned char *from = to + embeddings_size(net);
  for (int64_t k = 0; k < count; k++) {
    const unsigned char *first = from + (size_t)k * half;
    BRIM_TRY(copy(net, to + (size_t)k * 2 * half, first, half));
    BRIM_TRY(
        copy(net, to + ((size_t)k * 2 + 1) * half, first + (size_t)net->accumulation * half, half));
  }
  return BRIM_OK;
}

static brim_status embed(brim_net *net, const brim_batch *b, int64_t index,
                         const brim_spans *spans) {
  int slot = 0;
  BRIM_TRY(brim_exec_feed(net, &net->negatives.embed, b, spans, &slot));
  brim_status status = keep_input(net, index, slot, b);
  if (!status) status = brim_exec_run(net, BRIM_EXEC_EMBED, slot, spans);
  BRIM_TRY(brim_exec_give_slot_back(net, slot, status));
  return gather(net, index);
}

// Runs micro-batch `index` of `count` forward again, and backward.
static brim_status again(brim_net *net, int64_t index, int64_t count, bool update,
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
  BRIM_TRY(brim_exec_give_slot_back(net, slot, brim_exec_run(net, kind, slot, spans)));
  net->batches++;
  return BRIM_OK;
}

static brim_status check_order(const brim_net *net, const brim_net_micro *micro) {
  int64_t index = micro->batch.row_offset / net->batch;
  bool fits = micro->batch.row_offset % net->batch == 0 && index < net->accumulation &&
              micro->step_rows % net->batch == 0 && micro->step_rows <= all_rows(net) &&
              micro->batch.row_offset < micro->step_rows && micro->first == (index == 0);
  if (fits && index == (micro->first ? 0 : net->negatives.done)) return BRIM_OK;
  return brim_fail(
      BRIM_EINVAL,
      "row %" PRId64 " of a step of %" PRId64
      " rows does not begin the next micro-batch: exact accumulation takes rows in order",
      micro->batch.row_offset, micro->step_rows);
}

brim_status brim_negatives_run(brim_net *net, const brim_net_micro *micro, bool update,
                               const brim_spans *spans) {
  BRIM_TRY(check_order(net, micro));
  int64_t index = micro->batch.row_offset / net->batch, count = micro->step_rows / net->batch;
  if (update && index + 1 < count) {
    return brim_fail(BRIM_EINVAL, "update before the last micro-batch of the step");
  }
  net->state[BRIM_STATE_STEP] = (double)micro->step;
  brim_exec_set_rows(net, net->batch, net->views, micro->batch.row_offset, micro->step_rows);
  BRIM_TRY(embed(net, &micro->batch, index, spans));
  net->negatives.done = index + 1;
  if (index + 1 < count) return BRIM_OK;
  net->negatives.done = 0;
  brim_exec_set_rows(net, micro->step_rows, net->views, 0, micro->step_rows);
  BRIM_TRY(brim_exec_run(net, BRIM_EXEC_LOSS, 0, spans));
  BRIM_TRY(scatter(net, count));
  for (int64_t k = 0; k < count; k++) {
    brim_exec_set_rows(net, net->batch, net->views, k * net->batch, micro->step_rows);
    BRIM_TRY(again(net, k, count, update, spans));
  }
  return BRIM_OK;
}
