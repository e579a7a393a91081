// A network as one of several ranks: gradients are summed over all of them in buckets, each on its way as
// soon as the backward pass has written its last value, while the pass continues. The update waits for them.
#include "engine/engine_int.h"

// Small enough that the last bucket, whose exchange nothing hides, is short; large enough that
// latency does not count.
enum { BUCKET_BYTES = 4 << 20 };

//---------------------------------- buckets ----------------------------------

// The node after which each parameter's gradient is complete; -1 = no node writes it.
static void last_writers(const brim_graph *g, int32_t *writer, size_t params) {
  for (size_t i = 0; i < params; i++) writer[i] = -1;
  for (int32_t n = 0; n < g->node_count; n++) {
    for (int k = 0; k < g->nodes[n].out_count; k++) {
      int32_t t = g->nodes[n].out[k];
      if (t < 0 || g->tensors[t].kind != BRIM_TENSOR_PARAM_GRAD) continue;
      writer[g->tensors[t].param] = n;
    }
  }
}

// Cuts gradients into buckets. Parameters lie in the order of the forward pass, so their gradients
// complete from the end of the block to its beginning. A bucket reaches from its first parameter to
// the start of the bucket before.
static void cut(brim_net *net, const int32_t *writer) {
  brim_net_ranks *r = &net->ranks;
  size_t size = brim_dtype_size(net->master);
  size_t full = net->hooks.bucket_bytes ? net->hooks.bucket_bytes : BUCKET_BYTES;
  int64_t end = net->params.total;
  int32_t after = -1;
  for (size_t i = net->params.count; i-- > 0;) {
    const brim_param *p = &net->params.items[i];
    if (writer[i] > after) after = writer[i];
    if (i > 0 && (size_t)(end - p->offset) * size < full) continue;
    int64_t begin = i > 0 ? p->offset : 0, count = end - begin;
    brim_bucket *b = &r->buckets[r->count++];
    b->after = after;
    b->begin = begin;
    b->call = (brim_op_call){.op = BRIM_OP_ALL_REDUCE, .in_count = 1, .out_count = 1};
    b->call.in[0] = b->call.out[0] = brim_tensor_make(NULL, net->master, 1, &count);
    b->call.attr.later = true;
    end = begin;
  }
}

static brim_status prepare(brim_net *net) {
  brim_net_ranks *r = &net->ranks;
  for (int32_t i = 0; i < r->count; i++) {
    BRIM_TRY(brim_net_prepare_call(net, &r->buckets[i].call));
    r->prepared++;
  }
  const int64_t total = net->params.total;
  r->wait = (brim_op_call){.op = BRIM_OP_EXCHANGE_WAIT, .in_count = 1, .out_count = 1};
  r->wait.in[0] = r->wait.out[0] = brim_tensor_make(NULL, net->master, 1, &total);
  return brim_net_prepare_call(net, &r->wait);
}

brim_status brim_ranks_prepare(brim_net *net) {
  brim_net_ranks *r = &net->ranks;
  brim_ranks_release(net);
  if (!r->on) return BRIM_OK;
  size_t params = net->params.count;
  int32_t *writer = brim_calloc(params, sizeof *writer);
  r->buckets = brim_calloc(params, sizeof *r->buckets);
  brim_status status = BRIM_OK;
  if (!writer || !r->buckets) status = brim_fail(BRIM_ENOMEM, "out of memory for the buckets");
  if (!status) {
    last_writers(&net->train.graph, writer, params);
    cut(net, writer);
    status = prepare(net);
  }
  brim_free(writer);
  return status;
}

void brim_ranks_release(brim_net *net) {
  brim_net_ranks *r = &net->ranks;
  for (int32_t i = 0; i < r->prepared; i++) brim_op_release(net->device, &r->buckets[i].call);
  brim_free(r->buckets);
  r->buckets = NULL;
  r->count = r->prepared = 0;
}

void brim_ranks_bind(brim_net *net) {
  brim_net_ranks *r = &net->ranks;
  unsigned char *grads = net->blocks[BRIM_BLOCK_GRADS].data;
  for (int32_t i = 0; i < r->count; i++) {
    brim_bucket *b = &r->buckets[i];
    b->call.in[0].data = grads + (size_t)b->begin * brim_dtype_size(net->master);
    b->call.out[0].data = b->call.in[0].data;
  }
  r->wait.in[0].data = r->wait.out[0].data = grads;
}

size_t brim_ranks_host_bytes(const brim_net *net) {
  size_t bytes = 0;
  for (int32_t i = 0; i < net->ranks.prepared; i++) {
    bytes += brim_exchange_host_bytes(&net->ranks.buckets[i].call);
  }
  for (int32_t i = 0; i < net->train.prepared; i++) {
    bytes += brim_exchange_host_bytes(&net->train.calls[i]);
  }
  return bytes;
}

//---------------------------------- what ranks cannot do ----------------------------------

brim_status brim_ranks_init(brim_net *net, const brim_net_spec *spec) {
  brim_net_ranks *r = &net->ranks;
  r->on = brim_device_exchanges(net->device);
  r->size = brim_device_ranks(net->device);
  if (r->size == 1) return BRIM_OK;
  r->norm = !spec->local_norm;
  if (spec->external_loss) {
    return brim_fail(BRIM_EUNSUPPORTED, "this network trains on one rank only");
  }
  if (net->negatives.on) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "exact accumulation does not work on several ranks; use a larger batch_size "
                     "with more ranks, or accumulation without full_batch_negatives");
  }
  r->pairs = net->views == 2 && !net->hooks.given_grad;
  return BRIM_OK;
}

bool brim_net_shares_loss(const brim_net *net) { return net->ranks.pairs; }

// Every rank computes the loss over all ranks' embeddings, and continues from its own rows of the
// gradient, which belong to the whole loss.
brim_status brim_ranks_pair_loss(brim_net *net, const brim_loss *loss, brim_program *p) {
  brim_graph *g = &p->graph;
  const brim_tensor *t = &g->tensors[p->output].desc;
  int64_t dim[] = {t->dim[0] * net->ranks.size, t->dim[1]};
  int32_t own = p->output;
  g->layer = "loss";
  int32_t all = brim_graph_tensor(g, "embeddings", BRIM_TENSOR_ACTIVATION, g->dtype, 2, dim);
  brim_graph_node(g, BRIM_OP_GATHER_PAIRS, NULL, &own, 1, &all, 1);
  BRIM_TRY(g->status);
  g->tensors[own].users++;
  BRIM_TRY(brim_graph_loss(g, loss->row->op, &loss->attr, all, -1));
  g->layer = "loss";
  int32_t grad = brim_graph_like(g, own, BRIM_TENSOR_GRADIENT), from = g->tensors[all].grad;
  brim_graph_node(g, BRIM_OP_OWN_PAIRS, NULL, &from, 1, &grad, 1);
  g->layer = NULL;
  if (!g->status) g->tensors[own].grad = grad;
  return g->status;
}
