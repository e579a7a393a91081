// Places within a network's memory, and the sizes that follow from its shapes alone.
#include "engine/engine_int.h"

void *brim_net_state_ptr(const brim_net *net) { return net->blocks[BRIM_BLOCK_STATE].data; }
void *brim_net_metrics_ptr(const brim_net *net) { return net->blocks[BRIM_BLOCK_STATE].data + 128; }
void *brim_net_norm_ptr(const brim_net *net) { return net->blocks[BRIM_BLOCK_STATE].data + 192; }
void *brim_net_ring_ptr(const brim_net *net) { return net->blocks[BRIM_BLOCK_STATE].data + 256; }
unsigned char *brim_net_table_ptr(const brim_net *net) {
  size_t ring = (size_t)BRIM_NORM_RING * 4 * brim_dtype_size(net->master);
  return net->blocks[BRIM_BLOCK_STATE].data + 256 + brim_align_up(ring);
}
unsigned char *brim_net_buffers_before_ptr(const brim_net *net) {
  const brim_block *b = &net->blocks[BRIM_BLOCK_STATE];
  return b->data + b->bytes - brim_align_up(net->blocks[BRIM_BLOCK_BUFFERS].bytes);
}
void *brim_net_metrics_before_ptr(const brim_net *net) {
  return brim_net_buffers_before_ptr(net) - 256;
}
_Static_assert(BRIM_STATE_COUNT * sizeof(double) <= 128 && BRIM_METRIC_COUNT * sizeof(double) <= 64,
               "the places above");

size_t brim_net_flat_bytes(const brim_net *net) {
  return (size_t)net->params.total * brim_dtype_size(net->master);
}

unsigned char *brim_net_slot(const brim_net *net, int slot) {
  if (slot >= net->slots) return NULL;
  return net->blocks[BRIM_BLOCK_OPTIMIZER].data + (size_t)slot * brim_net_flat_bytes(net);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

size_t brim_net_input_bytes(const brim_net *net) {
  return larger(brim_align_up((size_t)net->batch * net->train.input_row_bytes),
                brim_align_up((size_t)net->eval_batch * net->eval.input_row_bytes));
}

size_t brim_net_target_bytes(const brim_net *net) {
  return larger(brim_align_up((size_t)net->batch * net->train.target_row_bytes),
                brim_align_up((size_t)net->eval_batch * net->eval.target_row_bytes));
}
