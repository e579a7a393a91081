// A network, and several in one arena: from a spec to graphs, prepared calls, places and the plan's
// rows, then memory (one buffer per row of the plan) and the addresses of every call. Planning and
// creating share the first part, so what is planned is what is allocated. engine_exec.c runs it.
#include <inttypes.h>
#include <string.h>

#include "base/base_thread.h"
#include "engine/engine_int.h"

//---------------------------------- prepared calls ----------------------------------

static bool writes_param_grad(const brim_graph *g, const brim_gnode *node) {
  for (int i = 0; i < node->out_count; i++) {
    if (node->out[i] >= 0 && g->tensors[node->out[i]].kind == BRIM_TENSOR_PARAM_GRAD) return true;
  }
  return false;
}

// Every plan and every network calls this once per op, so a stop takes effect before the first
// step.
static brim_status net_prepare_call(brim_net *net, brim_op_call *call) {
  if (brim_stop_wanted()) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
  call->planning = net->planning;
  brim_status status = brim_op_prepare(net->device, call);
  if (!status) return BRIM_OK;
  return brim_fail_context(status, "%s in %s", brim_op_name(call->op),
                           brim_precision_name(net->precision));
}

static brim_status prepare_node(brim_net *net, brim_program *p, int32_t i, bool adding) {
  const brim_graph *g = &p->graph;
  brim_graph_call(g, &g->nodes[i], &p->calls[i]);
  if (brim_gnode_is_call(&g->nodes[i])) BRIM_TRY(net_prepare_call(net, &p->calls[i]));
  p->prepared++;
  // A node that adds anyway (a shared parameter) adds in both passes.
  if (!adding || g->nodes[i].attr.accumulate || !writes_param_grad(g, &g->nodes[i])) return BRIM_OK;
  brim_op_call *call = &p->adding[p->adding_count];
  p->adding_node[p->adding_count++] = i;
  brim_graph_call(g, &g->nodes[i], call);
  call->attr.accumulate = true;
  BRIM_TRY(net_prepare_call(net, call));
  p->adding_prepared++;
  return BRIM_OK;
}

static brim_status prepare_calls(brim_net *net, brim_program *p) {
  const brim_graph *g = &p->graph;
  size_t n = (size_t)g->node_count;
  bool adding = p == &net->train && (net->accumulation > 1 || net->hooks.norm_groups > 1);
  p->calls = brim_calloc(n, sizeof *p->calls);
  if (adding) p->adding = brim_calloc(n, sizeof *p->adding);
  if (adding) p->adding_node = brim_calloc(n, sizeof *p->adding_node);
  if (!p->calls || (adding && (!p->adding || !p->adding_node))) {
    return brim_fail(BRIM_ENOMEM, "out of memory while preparing the calls");
  }
  for (int32_t i = 0; i < g->node_count; i++) BRIM_TRY(prepare_node(net, p, i, adding));
  return BRIM_OK;
}

// Scratch bytes of each node, the larger of its two forms; one block for all programs.
static size_t *workspaces_of(brim_program *const *programs, int32_t count) {
  size_t nodes = 0;
  for (int32_t k = 0; k < count; k++) nodes += (size_t)programs[k]->graph.node_count;
  size_t *all = brim_calloc(nodes, sizeof *all), *at = all;
  for (int32_t k = 0; all && k < count; k++) {
    const brim_program *p = programs[k];
    for (int32_t i = 0; i < p->graph.node_count; i++) at[i] = p->calls[i].workspace_bytes;
    for (int32_t i = 0; i < p->adding_count; i++) {
      size_t bytes = p->adding[i].workspace_bytes, *own = &at[p->adding_node[i]];
      if (bytes > *own) *own = bytes;
    }
    at += p->graph.node_count;
  }
  return all;
}

// Places programs together that run forward one after the other and then backward in the same order.
static brim_status programs_place(brim_program *const *programs, int32_t count, bool reuse) {
  brim_plan_part parts[BRIM_GROUP_MAX];
  size_t *workspaces = workspaces_of(programs, count), *at = workspaces;
  if (!workspaces) return brim_fail(BRIM_ENOMEM, "out of memory while preparing the calls");
  for (int32_t k = 0; k < count; k++) {
    brim_program *p = programs[k];
    brim_arena_plan_free(&p->places);
    parts[k] = (brim_plan_part){
        .graph = &p->graph, .workspace = at, .forward_count = p->forward_count, .out = &p->places};
    at += p->graph.node_count;
  }
  brim_status status = brim_arena_plan_together(parts, count, reuse);
  brim_free(workspaces);
  return status;
}

// Prepares the calls of a graph and, knowing their scratch, places every tensor.
static brim_status prepare_program(brim_net *net, brim_program *p) {
  BRIM_TRY(prepare_calls(net, p));
  return programs_place(&p, 1, !net->hooks.no_reuse);
}

static void program_release(brim_net *net, brim_program *p) {
  for (int32_t i = 0; i < p->prepared; i++) brim_op_release(net->device, &p->calls[i]);
  for (int32_t i = 0; i < p->adding_prepared; i++) brim_op_release(net->device, &p->adding[i]);
  brim_free(p->calls);
  brim_free(p->adding);
  brim_free(p->adding_node);
  brim_arena_plan_free(&p->places);
  brim_graph_deinit(&p->graph);
}

//---------------------------------- addresses ----------------------------------

static void *address(const brim_net *net, const brim_program *p, bool averaged, int32_t tensor) {
  const brim_gtensor *t = &p->graph.tensors[tensor];
  const brim_block *b = net->blocks;
  switch (t->kind) {
    case BRIM_TENSOR_INPUT:  // the slot in use, see brim_exec_point
    case BRIM_TENSOR_TARGET:
      return b[BRIM_BLOCK_INPUT].data;
    case BRIM_TENSOR_STATE:
      return brim_net_state_ptr(net);
    case BRIM_TENSOR_METRICS:
      return brim_net_metrics_ptr(net);
    case BRIM_TENSOR_BUFFER:
      return b[averaged ? BRIM_BLOCK_AVERAGE_BUFFERS : BRIM_BLOCK_BUFFERS].data +
             (size_t)net->buffers.items[t->param].offset * brim_dtype_size(t->desc.dtype);
    case BRIM_TENSOR_PARAM:
    case BRIM_TENSOR_PARAM_COPY:
    case BRIM_TENSOR_PARAM_GRAD: {
      size_t offset = (size_t)net->params.items[t->param].offset * brim_dtype_size(t->desc.dtype);
      if (averaged) {
        bool copy = t->kind == BRIM_TENSOR_PARAM_COPY;
        return b[copy ? BRIM_BLOCK_AVERAGE_COPY : BRIM_BLOCK_AVERAGE].data + offset;
      }
      return b[BRIM_BLOCK_PARAMS + (t->kind - BRIM_TENSOR_PARAM)].data + offset;
    }
    default:
      return b[BRIM_BLOCK_ARENA].data + p->places.offset[tensor];
  }
}
_Static_assert(BRIM_BLOCK_COPY - BRIM_BLOCK_PARAMS == BRIM_TENSOR_PARAM_COPY - BRIM_TENSOR_PARAM &&
                   BRIM_BLOCK_GRADS - BRIM_BLOCK_PARAMS ==
                       BRIM_TENSOR_PARAM_GRAD - BRIM_TENSOR_PARAM,
               "blocks follow kinds");

static void bind_call(brim_net *net, const brim_program *p, bool averaged, int32_t index,
                      brim_op_call *call) {
  const brim_gnode *node = &p->graph.nodes[index];
  for (int i = 0; i < node->in_count; i++) {
    if (node->in[i] >= 0) call->in[i].data = address(net, p, averaged, node->in[i]);
  }
  for (int i = 0; i < node->out_count; i++) {
    if (node->out[i] >= 0) call->out[i].data = address(net, p, averaged, node->out[i]);
  }
  size_t workspace = p->places.workspace[index];
  call->workspace =
      workspace == BRIM_PLAN_NO_PLACE ? NULL : net->blocks[BRIM_BLOCK_ARENA].data + workspace;
}

// Sets the addresses of the calls; averaged: those of the averaged weights and their statistics.
static void bind_program(brim_net *net, brim_program *p, bool averaged) {
  for (int32_t i = 0; i < p->prepared; i++) bind_call(net, p, averaged, i, &p->calls[i]);
  for (int32_t i = 0; i < p->adding_prepared; i++) {
    bind_call(net, p, averaged, p->adding_node[i], &p->adding[i]);
  }
}

void brim_net_bind_forward(brim_net *net, bool averaged) {
  brim_program *p = &net->train;
  for (int32_t i = 0; i < p->forward_count; i++) bind_call(net, p, averaged, i, &p->calls[i]);
}

//---------------------------------- places and sizes ----------------------------------

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

size_t brim_net_input_bytes(const brim_net *net) {
  return larger(brim_align_up((size_t)net->batch * net->train.input_row_bytes),
                brim_align_up((size_t)net->eval_batch * net->eval.input_row_bytes));
}

static size_t target_bytes(const brim_net *net) {
  return larger(brim_align_up((size_t)net->batch * net->train.target_row_bytes),
                brim_align_up((size_t)net->eval_batch * net->eval.target_row_bytes));
}

//---------------------------------- precisions ----------------------------------

static const struct {
  const char *name;
  brim_dtype dtype;
} precisions[BRIM_PRECISION_COUNT] = {
    [BRIM_PRECISION_FP32] = {"fp32", BRIM_F32},
    [BRIM_PRECISION_TF32] = {"tf32", BRIM_F32},
    [BRIM_PRECISION_BF16] = {"bf16", BRIM_BF16},
    [BRIM_PRECISION_FP16] = {"fp16", BRIM_F16},
};

const char *brim_precision_name(brim_precision precision) {
  return (unsigned)precision < BRIM_PRECISION_COUNT ? precisions[precision].name : "?";
}

bool brim_precision_parse(const char *text, brim_precision *out) {
  for (int i = 0; i < BRIM_PRECISION_COUNT; i++) {
    if (strcmp(text, precisions[i].name) == 0) {
      *out = (brim_precision)i;
      return true;
    }
  }
  return false;
}

brim_dtype brim_precision_dtype(brim_precision precision) { return precisions[precision].dtype; }

//---------------------------------- ranks ----------------------------------

// Size of a bucket: small, because no computation hides the exchange of the last bucket, but large enough that
// latency does not matter.
enum { BUCKET_BYTES = 4 << 20 };

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

// Cuts gradients into buckets. Parameters lie in the order of the forward pass, so the backward pass completes
// their gradients from the end of the block to its beginning. A bucket ends where the bucket before begins.
static void cut_buckets(brim_net *net, const int32_t *writer) {
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

static brim_status prepare_buckets(brim_net *net) {
  brim_net_ranks *r = &net->ranks;
  for (int32_t i = 0; i < r->count; i++) {
    BRIM_TRY(net_prepare_call(net, &r->buckets[i].call));
    r->prepared++;
  }
  const int64_t total = net->params.total;
  r->wait = (brim_op_call){.op = BRIM_OP_EXCHANGE_WAIT, .in_count = 1, .out_count = 1};
  r->wait.in[0] = r->wait.out[0] = brim_tensor_make(NULL, net->master, 1, &total);
  return net_prepare_call(net, &r->wait);
}

static void ranks_release(brim_net *net) {
  brim_net_ranks *r = &net->ranks;
  for (int32_t i = 0; i < r->prepared; i++) brim_op_release(net->device, &r->buckets[i].call);
  brim_free(r->buckets);
  r->buckets = NULL;
  r->count = r->prepared = 0;
}

// Makes the buckets of the final training program.
static brim_status ranks_prepare(brim_net *net) {
  brim_net_ranks *r = &net->ranks;
  ranks_release(net);
  if (!r->on) return BRIM_OK;
  size_t params = net->params.count;
  int32_t *writer = brim_calloc(params, sizeof *writer);
  r->buckets = brim_calloc(params, sizeof *r->buckets);
  brim_status status = BRIM_OK;
  if (!writer || !r->buckets) status = brim_fail(BRIM_ENOMEM, "out of memory for the buckets");
  if (!status) {
    last_writers(&net->train.graph, writer, params);
    cut_buckets(net, writer);
    status = prepare_buckets(net);
  }
  brim_free(writer);
  return status;
}

static void ranks_bind(brim_net *net) {
  brim_net_ranks *r = &net->ranks;
  unsigned char *grads = net->blocks[BRIM_BLOCK_GRADS].data;
  for (int32_t i = 0; i < r->count; i++) {
    brim_bucket *b = &r->buckets[i];
    b->call.in[0].data = grads + (size_t)b->begin * brim_dtype_size(net->master);
    b->call.out[0].data = b->call.in[0].data;
  }
  r->wait.in[0].data = r->wait.out[0].data = grads;
}

static size_t ranks_host_bytes(const brim_net *net) {
  size_t bytes = 0;
  for (int32_t i = 0; i < net->ranks.prepared; i++) {
    bytes += brim_exchange_host_bytes(&net->ranks.buckets[i].call);
  }
  for (int32_t i = 0; i < net->train.prepared; i++) {
    bytes += brim_exchange_host_bytes(&net->train.calls[i]);
  }
  return bytes;
}

static brim_status ranks_init(brim_net *net, const brim_net_spec *spec) {
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

// Builds the loss over all ranks' embeddings. Every rank computes the whole loss and continues backward from its
// own rows of the gradient.
static brim_status ranks_pair_loss(brim_net *net, const brim_loss *loss, brim_program *p) {
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

//---------------------------------- the loss of a whole step ----------------------------------

static int64_t all_rows(const brim_net *net) { return net->batch * net->accumulation; }

static size_t embeddings_size(const brim_net *net) {
  return brim_align_up((size_t)all_rows(net) * net->negatives.width_bytes);
}

static size_t negatives_replay_bytes(const brim_net *net) {
  if (!net->negatives.on) return 0;
  return (size_t)net->accumulation * brim_align_up((size_t)net->batch * net->train.input_row_bytes);
}

// Bytes of the embeddings of a step, followed by their gradient.
static size_t negatives_embedding_bytes(const brim_net *net) {
  return net->negatives.on ? 2 * embeddings_size(net) : 0;
}

// Prepares the loss over all embeddings of a step; `embed` is already built.
static brim_status negatives_prepare(brim_net *net, const brim_net_spec *spec) {
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

static void negatives_bind(brim_net *net) {
  brim_op_call *c = &net->negatives.loss;
  unsigned char *z = net->blocks[BRIM_BLOCK_EMBEDDINGS].data;
  c->in[0].data = z;
  c->in[1].data = brim_net_state_ptr(net);
  c->out[0].data = brim_net_metrics_ptr(net);
  c->out[1].data = z + embeddings_size(net);
  c->workspace = net->blocks[BRIM_BLOCK_ARENA].data;  // nothing else is alive then
}

static void negatives_release(brim_net *net) {
  if (net->negatives.prepared) brim_op_release(net->device, &net->negatives.loss);
  program_release(net, &net->negatives.embed);
}

//---------------------------------- kNN evaluation ----------------------------------

// Bytes of similarities computed at once.
static const int64_t similarity_bytes = 64 << 20;

static brim_status check_neighbours(const brim_neighbours *n) {
  const int64_t most = 1 << 30;
  if (n->bank <= most && n->classes >= 1 && n->classes <= most && n->k >= 1 && n->temperature > 0) {
    return BRIM_OK;
  }
  return brim_fail(BRIM_EINVAL,
                   "invalid kNN setting: %d neighbours of %" PRId64 " rows in %" PRId64
                   " classes at temperature %g",
                   (int)n->k, n->bank, n->classes, n->temperature);
}

static size_t place_rows(size_t *end, int64_t rows, int64_t width, size_t size) {
  size_t at = (*end + BRIM_WORKSPACE_ALIGN - 1) / BRIM_WORKSPACE_ALIGN * BRIM_WORKSPACE_ALIGN;
  *end = at + brim_align_up((size_t)rows * (size_t)width * size);
  return at;
}

static brim_status prepare_knn_call(brim_net *net, brim_op_call *call, size_t *workspace) {
  call->planning = net->planning;
  BRIM_TRY(brim_op_prepare(net->device, call));
  net->knn.prepared++;
  if (call->workspace_bytes > *workspace) *workspace = call->workspace_bytes;
  return BRIM_OK;
}

static brim_status prepare_knn_calls(brim_net *net, size_t *workspace) {
  brim_knn *j = &net->knn;
  const int64_t rows = net->eval_batch, states = BRIM_STATE_COUNT, metrics = BRIM_METRIC_COUNT;
  const int64_t batch[] = {rows, j->width}, part[] = {j->chunk, j->width};
  const int64_t bank[] = {j->how.bank, j->width}, all[] = {j->chunk, j->how.bank};
  j->unit = (brim_op_call){.op = BRIM_OP_UNIT, .in_count = 1, .out_count = 1};
  j->unit.in[0] = brim_tensor_make(NULL, net->compute, 2, batch);
  j->unit.out[0] = brim_tensor_make(NULL, net->master, 2, batch);
  BRIM_TRY(prepare_knn_call(net, &j->unit, workspace));
  j->similar = (brim_op_call){.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1};
  j->similar.in[0] = brim_tensor_make(NULL, net->master, 2, part);
  j->similar.in[1] = brim_tensor_make(NULL, net->master, 2, bank);
  j->similar.out[0] = brim_tensor_make(NULL, net->master, 2, all);
  // tf32 is as precise as features that were not computed in fp32
  j->similar.attr.tf32 = net->precision != BRIM_PRECISION_FP32;
  BRIM_TRY(prepare_knn_call(net, &j->similar, workspace));
  j->vote = (brim_op_call){.op = BRIM_OP_KNN, .in_count = 4, .out_count = 1};
  j->vote.in[0] = j->similar.out[0];
  j->vote.in[1] = brim_tensor_make(NULL, BRIM_I32, 1, &j->how.bank);
  j->vote.in[2] = brim_tensor_make(NULL, BRIM_I32, 1, &j->chunk);
  j->vote.in[3] = brim_tensor_make(NULL, BRIM_F64, 1, &states);
  j->vote.out[0] = brim_tensor_make(NULL, net->master, 1, &metrics);
  j->vote.attr.neighbours = j->how.k;
  j->vote.attr.classes = (int32_t)j->how.classes;
  j->vote.attr.temperature = (float)j->how.temperature;
  return prepare_knn_call(net, &j->vote, workspace);
}

static brim_status knn_prepare(brim_net *net, const brim_net_spec *spec) {
  brim_knn *j = &net->knn;
  size_t size = brim_dtype_size(net->master), workspace = 0;
  BRIM_TRY(check_neighbours(&spec->neighbours));
  j->how = spec->neighbours;
  j->width = net->eval.width;
  int64_t rows = net->eval_batch;
  j->chunk = similarity_bytes / ((int64_t)size * j->how.bank) / 16 * 16;
  if (j->chunk < 16) j->chunk = 16;  // chunks of 16 rows are aligned at any width
  if (j->chunk > rows) j->chunk = rows;
  BRIM_TRY(prepare_knn_calls(net, &workspace));
  j->end = net->eval.places.bytes;
  // room for the padding of the last batch, which is written too
  j->bank = place_rows(&j->end, j->how.bank + rows, j->width, size);
  j->labels = place_rows(&j->end, j->how.bank, 1, sizeof(int32_t));
  // round the queries up to whole chunks
  int64_t padded = (rows + j->chunk - 1) / j->chunk * j->chunk;
  j->query = place_rows(&j->end, padded, j->width, size);
  j->similarities = place_rows(&j->end, j->chunk, j->how.bank, size);
  j->workspace = place_rows(&j->end, (int64_t)workspace, 1, 1);
  return BRIM_OK;
}

static void knn_release(brim_net *net) {
  brim_knn *j = &net->knn;
  brim_op_call *calls[] = {&j->unit, &j->similar, &j->vote};
  for (int i = 0; i < j->prepared; i++) brim_op_release(net->device, calls[i]);
}

//---------------------------------- building ----------------------------------

// Refuses tf32 on devices without tensor cores, where it would silently be fp32. The ops check other precisions.
static brim_status check_precision(const brim_device *device, brim_precision precision) {
  if ((unsigned)precision >= BRIM_PRECISION_COUNT) {
    return brim_fail(BRIM_EINVAL, "unknown precision %d", (int)precision);
  }
  if (precision == BRIM_PRECISION_TF32 && device->info.kind != BRIM_DEVICE_GPU) {
    return brim_fail(BRIM_EUNSUPPORTED, "precision tf32 is not supported on %s; use fp32",
                     device->backend->name);
  }
  return BRIM_OK;
}

//---------------------------------- spec ----------------------------------

static brim_status check_sizes(const brim_net_spec *s) {
  const int64_t max_rows = 1 << 28, max_outputs = 1 << 24;
  if (s->batch < 1 || s->batch > max_rows) {
    return brim_fail(BRIM_EINVAL, "the batch size is %" PRId64 ", expected 1 to %" PRId64, s->batch,
                     max_rows);
  }
  if (s->eval_batch < 0 || s->eval_batch > max_rows) {
    return brim_fail(BRIM_EINVAL,
                     "the evaluation batch size is %" PRId64 ", expected 0 to %" PRId64,
                     s->eval_batch, max_rows);
  }
  if (s->views < 0 || s->views > 2) {
    return brim_fail(BRIM_EINVAL, "a sample has %d views, expected 1 or 2", (int)s->views);
  }
  if (s->accumulation < 1 || s->accumulation > max_rows) {
    return brim_fail(BRIM_EINVAL, "accumulation is %" PRId64 ", expected 1 to %" PRId64,
                     s->accumulation, max_rows);
  }
  int64_t outputs = s->classes > 0 ? s->classes : s->target_dim;
  if (s->classes < 0 || outputs < 1 || outputs > max_outputs) {
    return brim_fail(BRIM_EINVAL, "the network has %" PRId64 " outputs, expected 1 to %" PRId64,
                     outputs, max_outputs);
  }
  return BRIM_OK;
}

static brim_status count_values(int32_t rank, const int64_t *dim, int64_t *out) {
  *out = 1;
  for (int i = 0; i < rank; i++) {
    if (dim[i] < 1 || __builtin_mul_overflow(*out, dim[i], out) || *out > (1 << 30)) {
      return brim_fail(BRIM_EINVAL, "dimension %d of a sample is %" PRId64 ": out of range", i,
                       dim[i]);
    }
  }
  return BRIM_OK;
}

// Checks that evaluation samples differ from training samples in height and width only.
static brim_status check_eval_dim(const brim_net_spec *s) {
  int64_t values;
  if (s->eval_dim[0] == 0) return BRIM_OK;
  if (s->input_rank != 3 || s->eval_dim[2] != s->input_dim[2]) {
    return brim_fail(
        BRIM_EINVAL,
        "evaluation samples and training samples differ in more than image height and width");
  }
  return count_values(s->input_rank, s->eval_dim, &values);
}

// Checks the type of the inputs. 16-bit inputs go into the first product without conversion, so they must have
// the type of the activations.
static brim_status check_input_type(const brim_net_spec *s) {
  if (s->input_in_place && !s->external_loss) {
    return brim_fail(BRIM_EINVAL, "inputs in place need a loss outside the network");
  }
  if (s->enqueued_steps < 0 || s->enqueued_steps > BRIM_GROUP_STATES) {
    return brim_fail(BRIM_EINVAL, "%" PRId64 " steps are enqueued at once, expected 0 to %d",
                     s->enqueued_steps, BRIM_GROUP_STATES);
  }
  if (s->input_dtype == BRIM_U8 || s->input_dtype == BRIM_F32) return BRIM_OK;
  bool plain = (unsigned)s->precision < BRIM_PRECISION_COUNT &&
               s->input_dtype == brim_precision_dtype(s->precision);
  if (!plain) {
    return brim_fail(BRIM_EINVAL, "inputs are %s, expected u8, f32 or the type of the activations",
                     brim_dtype_name(s->input_dtype));
  }
  for (int i = 0; i < s->channels && i < 4; i++) {
    if (s->scale[i] == 1.0f && s->shift[i] == 0.0f) continue;
    return brim_fail(BRIM_EINVAL, "%s inputs are read as they are, but scale or shift is set",
                     brim_dtype_name(s->input_dtype));
  }
  return BRIM_OK;
}

static brim_status check_spec(const brim_net_spec *s) {
  int64_t values;
  if (!s->model || (!s->loss && !s->external_loss) || !s->optimizer) {
    return brim_fail(BRIM_EINVAL, "a network needs a model, a loss and an optimizer");
  }
  BRIM_TRY(check_sizes(s));
  BRIM_TRY(check_input_type(s));
  if (s->input_rank < 1 || s->input_rank > 4) {
    return brim_fail(BRIM_EINVAL, "samples have rank %d, expected 1 to 4", (int)s->input_rank);
  }
  BRIM_TRY(count_values(s->input_rank, s->input_dim, &values));
  BRIM_TRY(check_eval_dim(s));
  if (s->channels < 1 || s->channels > 4 || values % s->channels != 0) {
    return brim_fail(BRIM_EINVAL, "%d channels do not divide samples of %" PRId64 " values",
                     (int)s->channels, values);
  }
  if (!(s->ema_decay >= 0 && s->ema_decay < 1)) {
    return brim_fail(BRIM_EINVAL, "ema_decay is %g, expected 0 <= ema_decay < 1", s->ema_decay);
  }
  if (!(s->clip_norm >= 0)) {
    return brim_fail(BRIM_EINVAL, "the clipping norm is %g, expected 0 or more", s->clip_norm);
  }
  if (s->seed >= UINT64_C(1) << 53) {
    return brim_fail(BRIM_EINVAL, "the seed is %" PRIu64 ", expected less than 2^53", s->seed);
  }
  return BRIM_OK;
}

//---------------------------------- programs ----------------------------------

// The multiple to which channels are padded: convolutions on a GPU need channels of a multiple of 16 bytes.
static int64_t channel_pad(const brim_net *net) {
  if (net->hooks.channel_pad) return net->hooks.channel_pad;
  if (net->device->info.kind != BRIM_DEVICE_GPU) return 1;
  return (int64_t)(16 / brim_dtype_size(net->compute));
}

brim_sample brim_sample_of(const brim_net_spec *spec, int64_t rows, bool training) {
  brim_sample s = {
      .rows = rows, .dtype = spec->input_dtype, .rank = spec->input_rank, .features = 1};
  memcpy(s.dim, training ? spec->input_dim : brim_eval_dim(spec), sizeof s.dim);
  for (int i = 0; i < s.rank; i++) s.features *= s.dim[i];
  memcpy(s.made_for, spec->input_dim, sizeof s.made_for);
  s.attr.channels = spec->channels;
  memcpy(s.attr.scale, spec->scale, sizeof s.attr.scale);
  memcpy(s.attr.shift, spec->shift, sizeof s.attr.shift);
  return s;
}

static brim_status build_model(brim_net *net, const brim_net_spec *spec, int64_t rows,
                               brim_program *p) {
  brim_graph *g = &p->graph;
  brim_sample sample = brim_sample_of(spec, rows, p != &net->eval);
  sample.backbone = net->knn.on && p == &net->eval;
  p->input_row_bytes = (size_t)sample.features * brim_dtype_size(sample.dtype);
  if (!net->hooks.model) {
    return brim_model_build(g, spec->model, &sample, net->outputs_per_row, &p->output);
  }
  int64_t dim[] = {rows, sample.features};
  brim_tensor raw = brim_tensor_make(NULL, sample.dtype, 2, dim);
  int32_t x = brim_graph_input(g, &raw, &sample.attr, 2, dim);
  p->output = net->hooks.model(net->hooks.model_ctx, g, x, net->outputs_per_row);
  return g->status;
}

static brim_status check_outputs(brim_net *net, brim_program *p, const brim_loss_row *loss) {
  const brim_tensor *t = &p->graph.tensors[p->output].desc;
  int64_t width = t->dim[t->rank - 1];
  p->width = width;
  if (net->knn.on && p == &net->eval) {
    if (t->rank == 2) return BRIM_OK;
    return brim_fail(BRIM_EUNSUPPORTED,
                     "this model has no features to evaluate: rank %d, expected 2", (int)t->rank);
  }
  if (loss && loss->any_width) net->outputs_per_row = width;
  if (t->rank == 2 && width == net->outputs_per_row) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "the model outputs %" PRId64 " values per sample, but the loss expects %" PRId64,
                   width, net->outputs_per_row);
}

// Adds the tensor of targets for the loss; -1 = the loss has no targets.
static int32_t loss_target_tensor(brim_graph *g, const brim_loss_row *row, int64_t rows,
                                  int64_t width) {
  const int64_t dim[] = {rows, width};
  switch (row->target) {
    case BRIM_LOSS_LABELS:
      return brim_graph_tensor(g, "target", BRIM_TENSOR_TARGET, BRIM_I32, 1, dim);
    case BRIM_LOSS_VALUES:
      return brim_graph_tensor(g, "target", BRIM_TENSOR_TARGET, BRIM_F32, 2, dim);
    case BRIM_LOSS_NONE:
      break;
  }
  return -1;
}

// Builds the end of the graph: the loss, or an input for its gradient if the loss is computed over several
// micro-batches or by the caller.
static brim_status build_loss(brim_net *net, const brim_loss *loss, brim_program *p) {
  brim_graph *g = &p->graph;
  if (p == &net->negatives.embed) return BRIM_OK;
  if (net->knn.on && p == &net->eval) {
    p->target_row_bytes = sizeof(int32_t);
    return BRIM_OK;
  }
  if ((net->negatives.on || net->hooks.given_grad) && g->training) {
    p->target_row_bytes = (size_t)net->outputs_per_row * brim_dtype_size(net->compute);
    return brim_graph_given_grad(g, p->output);
  }
  if (!loss->row) return g->training ? brim_graph_external_loss(g, p->output) : BRIM_OK;
  if (net->ranks.pairs && g->training) return ranks_pair_loss(net, loss, p);
  int32_t target = loss_target_tensor(g, loss->row, p->rows, net->outputs_per_row);
  if (target >= 0) {
    p->target_row_bytes = brim_tensor_bytes(&g->tensors[target].desc) / (size_t)p->rows;
  }
  return brim_graph_loss(g, loss->row->op, &loss->attr, p->output, target);
}

// Builds model, loss and (for training) backward of one batch size. The activations of `recompute`
// segments are not kept.
static brim_status build_graph(brim_net *net, const brim_net_spec *spec, int32_t recompute,
                               brim_program *p) {
  brim_graph *g = &p->graph;
  bool training = p != &net->eval;
  p->rows = training ? net->batch : net->eval_batch;
  p->views = net->knn.on && !training ? 1 : net->views;
  brim_device *fusing = net->hooks.no_fusion || spec->eager ? NULL : net->device;
  BRIM_TRY(brim_graph_init(g, &net->params, fusing, net->compute, training));
  g->buffers = &net->buffers;
  g->tf32 = net->precision == BRIM_PRECISION_TF32;
  g->channel_pad = channel_pad(net);
  g->recompute = recompute;
  g->passing = p == &net->negatives.embed;
  g->norm_groups = net->hooks.norm_groups;
  g->norm_ranks = net->ranks.norm ? net->ranks.size : 0;
  brim_loss loss;
  BRIM_TRY(brim_loss_find(spec, &loss));
  net->loss_metrics = loss.row ? loss.row->metrics : 0;
  BRIM_TRY(build_model(net, spec, p->rows, p));
  BRIM_TRY(check_outputs(net, p, loss.row));
  if (p != &net->train && !g->status) g->tensors[p->output].keep = true;
  BRIM_TRY(brim_graph_forward(g));
  BRIM_TRY(build_loss(net, &loss, p));
  p->forward_count = g->node_count;
  return p == &net->train ? brim_graph_backward(g) : BRIM_OK;
}

//---------------------------------- optimiser ----------------------------------

// Good steps in fp16 before the loss scale doubles: PyTorch's number.
static const int32_t growth_interval = 2000;

static brim_status prepare_optimizer(brim_net *net, const brim_op_attr *attr) {
  const int64_t total = net->params.total, none = 0, two = 2, states = BRIM_STATE_COUNT;
  brim_tensor flat = brim_tensor_make(NULL, net->master, 1, &total);
  brim_tensor empty = brim_tensor_make(NULL, net->master, 1, &none);
  brim_tensor norm = brim_tensor_make(NULL, net->master, 1, &two);
  brim_tensor copy = brim_tensor_make(NULL, net->compute, 1, &total);
  bool copied = net->compute != net->master;
  net->norm_call =
      (brim_op_call){.op = BRIM_OP_GRAD_NORM, .in_count = 1, .out_count = 1, .in = {flat}};
  net->norm_call.out[0] = norm;
  BRIM_TRY(net_prepare_call(net, &net->norm_call));
  net->optimizer_prepared++;
  brim_op_call *c = &net->optimizer_call;
  *c = (brim_op_call){.op = BRIM_OP_OPTIMIZER, .in_count = 3, .attr = *attr};
  c->in[0] = brim_tensor_make(NULL, BRIM_F64, 1, &states);
  c->in[1] = norm;
  c->in[2] = flat;
  c->out_count = net->averages ? 5 : copied ? 4 : 3;
  c->out[0] = flat;
  c->out[1] = net->slots > 0 ? flat : empty;
  c->out[2] = net->slots > 1 ? flat : empty;
  if (copied) c->out[3] = copy;
  if (net->averages) c->out[4] = flat;
  BRIM_TRY(net_prepare_call(net, c));
  net->optimizer_prepared++;
  const int64_t ring[] = {BRIM_NORM_RING, 4};
  brim_op_call *e = &net->step_end_call;
  *e = (brim_op_call){.op = BRIM_OP_STEP_END, .in_count = 1, .out_count = 2};
  e->in[0] = norm;
  e->out[0] = c->in[0];
  e->out[1] = brim_tensor_make(NULL, net->master, 2, ring);
  e->attr.dynamic_scale = net->precision == BRIM_PRECISION_FP16;
  e->attr.growth_interval = growth_interval;
  BRIM_TRY(net_prepare_call(net, e));
  net->optimizer_prepared++;
  if (!copied) return BRIM_OK;
  net->cast_call = (brim_op_call){.op = BRIM_OP_CAST, .in_count = 1, .out_count = 1, .in = {flat}};
  net->cast_call.out[0] = copy;
  BRIM_TRY(net_prepare_call(net, &net->cast_call));
  net->optimizer_prepared++;
  if (!net->averages) return BRIM_OK;
  net->average_cast_call = (brim_op_call){
      .op = BRIM_OP_CAST, .in_count = 1, .out_count = 1, .in = {flat}, .out = {copy}};
  BRIM_TRY(net_prepare_call(net, &net->average_cast_call));
  net->optimizer_prepared++;
  return BRIM_OK;
}

// Prepares the call that averages running statistics. It is separate from the optimizer's calls because the
// forward pass updates the statistics.
static brim_status prepare_statistics(brim_net *net) {
  const int64_t total = net->buffers.total;
  if (!net->averages || total == 0) return BRIM_OK;
  const brim_op_call *o = &net->optimizer_call;
  brim_tensor flat = brim_tensor_make(NULL, net->master, 1, &total);
  net->statistics_call = (brim_op_call){.op = BRIM_OP_AVERAGE,
                                        .in_count = 3,
                                        .out_count = 1,
                                        .in = {o->in[0], o->in[1], flat},
                                        .out = {flat}};
  net->statistics_call.attr.average_rate = o->attr.average_rate;
  BRIM_TRY(net_prepare_call(net, &net->statistics_call));
  net->statistics_prepared = true;
  return BRIM_OK;
}

//---------------------------------- blocks ----------------------------------

static void net_size_blocks(brim_net *net) {
  brim_block *b = net->blocks;
  size_t flat = brim_net_flat_bytes(net);
  size_t total = (size_t)net->params.total;
  b[BRIM_BLOCK_PARAMS].bytes = flat;
  b[BRIM_BLOCK_COPY].bytes =
      net->compute != net->master ? brim_align_up(total * brim_dtype_size(net->compute)) : 0;
  b[BRIM_BLOCK_GRADS].bytes = flat;
  b[BRIM_BLOCK_BUFFERS].bytes = (size_t)net->buffers.total * brim_dtype_size(net->master);
  b[BRIM_BLOCK_OPTIMIZER].bytes = flat * (size_t)net->slots;
  b[BRIM_BLOCK_AVERAGE].bytes = net->averages ? flat : 0;
  b[BRIM_BLOCK_AVERAGE_BUFFERS].bytes = net->averages ? b[BRIM_BLOCK_BUFFERS].bytes : 0;
  b[BRIM_BLOCK_AVERAGE_COPY].bytes = net->averages ? b[BRIM_BLOCK_COPY].bytes : 0;
  const brim_op_call *last[] = {&net->norm_call, &net->optimizer_call, &net->step_end_call,
                                &net->cast_call, &net->average_cast_call};
  for (int i = 0; i < net->optimizer_prepared; i++) {
    size_t bytes = brim_align_up(last[i]->workspace_bytes);
    if (bytes > b[BRIM_BLOCK_WORKSPACE].bytes) b[BRIM_BLOCK_WORKSPACE].bytes = bytes;
  }
  b[BRIM_BLOCK_WORKSPACE].bytes =
      larger(b[BRIM_BLOCK_WORKSPACE].bytes, brim_align_up(net->statistics_call.workspace_bytes));
  const size_t parts[] = {net->train.places.bytes, net->eval.places.bytes, net->knn.end,
                          net->negatives.embed.places.bytes,
                          brim_align_up(net->negatives.loss.workspace_bytes)};
  b[BRIM_BLOCK_ARENA].bytes = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (parts[i] > b[BRIM_BLOCK_ARENA].bytes) b[BRIM_BLOCK_ARENA].bytes = parts[i];
  }
  if (!net->device->info.host_memory || net->in_place) {
    b[BRIM_BLOCK_INPUT].bytes =
        (size_t)brim_exec_slots(net) * (brim_net_input_bytes(net) + target_bytes(net));
  }
  b[BRIM_BLOCK_REPLAY].bytes = negatives_replay_bytes(net);
  b[BRIM_BLOCK_EMBEDDINGS].bytes = negatives_embedding_bytes(net);
  b[BRIM_BLOCK_STATE].bytes =
      256 + brim_align_up((size_t)BRIM_NORM_RING * 4 * brim_dtype_size(net->master)) +
      brim_align_up((size_t)net->enqueued_steps * BRIM_STATE_HOST * sizeof(double));
  // metrics and running statistics as they were before the step
  b[BRIM_BLOCK_STATE].bytes += 256 + brim_align_up(b[BRIM_BLOCK_BUFFERS].bytes);
}

static brim_status make_info(brim_net *net) {
  net->info = brim_calloc(net->params.count, sizeof *net->info);
  if (!net->info) return brim_fail(BRIM_ENOMEM, "out of memory for the parameter table");
  for (size_t i = 0; i < net->params.count; i++) {
    const brim_param *p = &net->params.items[i];
    net->info[i] =
        (brim_net_param){.name = p->name, .rank = p->outside.rank, .count = p->outside_count};
    memcpy(net->info[i].dim, p->outside.dim, sizeof net->info[i].dim);
  }
  return BRIM_OK;
}

//---------------------------------- recomputation ----------------------------------

static size_t net_device_bytes(const brim_net *net) {
  size_t bytes = 0;
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) bytes += net->blocks[i].bytes;
  return bytes;
}

static void drop_program(brim_net *net, brim_program *p) {
  program_release(net, p);
  memset(p, 0, sizeof *p);
}

// Rebuilds the training program with k recomputed segments.
static brim_status net_rebuild(brim_net *net, const brim_net_spec *spec, int32_t k) {
  drop_program(net, &net->train);
  BRIM_TRY(build_graph(net, spec, k, &net->train));
  BRIM_TRY(prepare_program(net, &net->train));
  net->recomputed = k;
  net_size_blocks(net);
  return BRIM_OK;
}

// Finds the fewest recomputed segments that bring the network under the limit; all of them if none
// do (the caller compares the plan with the free memory). Early segments are the largest, so memory
// falls with k except for small steps. Only the chosen program is prepared.
static brim_status fit_into(brim_net *net, const brim_net_spec *spec) {
  if (net_device_bytes(net) <= spec->memory_limit) return BRIM_OK;
  bool planning = net->planning;
  net->planning = true;
  brim_status status = BRIM_OK;
  int32_t over = 0, within = net->segments;
  while (!status && within - over > 1) {
    int32_t k = over + (within - over) / 2;
    status = net_rebuild(net, spec, k);
    if (net_device_bytes(net) > spec->memory_limit) {
      over = k;
    } else {
      within = k;
    }
  }
  net->planning = planning;
  return status ? status : net_rebuild(net, spec, within);
}

// Explains the failure of a model whose weights depend on the image size: training and evaluation images of
// different sizes gave one parameter two shapes.
static brim_status name_sizes(const brim_net_spec *s, brim_status status) {
  if (status != BRIM_EINTERNAL || s->eval_dim[0] == 0) return status;
  return brim_fail(BRIM_EINVAL,
                   "model %s works with images of %" PRId64 " x %" PRId64
                   " only, but the evaluation images are %" PRId64 " x %" PRId64
                   "; make transform.val produce the same size as transform.train",
                   s->model->name, s->input_dim[0], s->input_dim[1], s->eval_dim[0],
                   s->eval_dim[1]);
}

static brim_status build_programs(brim_net *net, const brim_net_spec *spec) {
  bool all = spec->recompute == BRIM_RECOMPUTE_ALL;
  int32_t first = net->hooks.recompute ? net->hooks.recompute : all ? INT32_MAX : 0;
  BRIM_TRY(build_graph(net, spec, first, &net->train));
  BRIM_TRY(name_sizes(spec, build_graph(net, spec, 0, &net->eval)));
  if (net->negatives.on) BRIM_TRY(build_graph(net, spec, 0, &net->negatives.embed));
  BRIM_TRY(make_info(net));
  BRIM_TRY(prepare_program(net, &net->train));
  BRIM_TRY(prepare_program(net, &net->eval));
  if (net->negatives.on) BRIM_TRY(prepare_program(net, &net->negatives.embed));
  if (net->negatives.on) BRIM_TRY(negatives_prepare(net, spec));
  if (net->knn.on) BRIM_TRY(knn_prepare(net, spec));
  net->segments = net->train.graph.segments;
  net->recomputed = first < net->segments ? first : net->segments;
  return BRIM_OK;
}

static brim_status fill_net(brim_net *net, const brim_net_spec *spec) {
  brim_op_attr optimizer;
  BRIM_TRY(brim_optimizer_attr(spec->optimizer, &optimizer));
  net->precision = spec->precision;
  net->compute = net->hooks.f64 ? BRIM_F64 : brim_precision_dtype(spec->precision);
  net->master = net->hooks.f64 ? BRIM_F64 : BRIM_F32;
  net->views = spec->views > 1 ? spec->views : 1;
  net->batch = spec->batch * net->views;
  net->knn.on = spec->neighbours.bank > 0;
  net->eval_batch =
      (spec->eval_batch > 0 ? spec->eval_batch : spec->batch) * (net->knn.on ? 1 : net->views);
  net->accumulation = spec->accumulation;
  net->external_loss = spec->external_loss;
  net->in_place = spec->input_in_place;
  net->enqueued_steps = spec->enqueued_steps;
  net->negatives.on = spec->full_batch_negatives && !spec->external_loss &&
                      spec->accumulation > 1 && net->views == 2;
  net->classes = spec->classes > 0;
  net->outputs_per_row = net->classes ? spec->classes : spec->target_dim;
  net->name = spec->name;
  net->clip_norm = spec->clip_norm;
  net->seed = spec->seed;
  net->slots = optimizer.optimizer != BRIM_OPTIMIZER_SGD ? 2 : optimizer.momentum > 0 ? 1 : 0;
  net->averages = spec->ema_decay > 0;
  optimizer.average_rate = net->averages ? (float)(1 - spec->ema_decay) : 0;
  BRIM_TRY(ranks_init(net, spec));
  BRIM_TRY(brim_params_init(&net->params, net->master, net->compute));
  BRIM_TRY(brim_params_init(&net->buffers, net->master, net->master));
  BRIM_TRY(build_programs(net, spec));
  BRIM_TRY(prepare_optimizer(net, &optimizer));
  BRIM_TRY(prepare_statistics(net));
  net_size_blocks(net);
  if (spec->recompute == BRIM_RECOMPUTE_AUTO && spec->memory_limit) BRIM_TRY(fit_into(net, spec));
  return ranks_prepare(net);
}

brim_status brim_net_build(brim_device *device, const brim_net_spec *spec,
                           const brim_net_hooks *hooks, bool planning, brim_net **out) {
  *out = NULL;
  BRIM_TRY(check_spec(spec));
  BRIM_TRY(check_precision(device, spec->precision));
  brim_net *net = brim_calloc(1, sizeof *net);
  if (!net) return brim_fail(BRIM_ENOMEM, "out of memory for the network");
  *out = net;
  net->device = device;
  net->planning = planning;
  if (hooks) net->hooks = *hooks;
  return fill_net(net, spec);
}

//---------------------------------- plan ----------------------------------

static const char *const row_names[BRIM_BLOCK_COUNT] = {
    [BRIM_BLOCK_PARAMS] = BRIM_N_("parameters"),
    [BRIM_BLOCK_COPY] = BRIM_N_("16-bit copy"),
    [BRIM_BLOCK_GRADS] = BRIM_N_("gradients"),
    [BRIM_BLOCK_BUFFERS] = BRIM_N_("running statistics"),  // BRIM_PLAN_STATISTICS
    [BRIM_BLOCK_OPTIMIZER] = BRIM_N_("optimizer state"),
    [BRIM_BLOCK_AVERAGE] = BRIM_N_("average of weights"),
    [BRIM_BLOCK_AVERAGE_BUFFERS] = BRIM_N_("average of running statistics"),
    [BRIM_BLOCK_AVERAGE_COPY] = BRIM_N_("16-bit copy of the average"),
    [BRIM_BLOCK_ARENA] = BRIM_N_("activations"),  // BRIM_PLAN_ACTIVATIONS
    [BRIM_BLOCK_WORKSPACE] = BRIM_N_("workspace"),
    [BRIM_BLOCK_INPUT] = BRIM_N_("inputs"),
    [BRIM_BLOCK_STATE] = BRIM_N_("state and metrics"),
    [BRIM_BLOCK_REPLAY] = BRIM_N_("inputs kept for the second pass"),
    [BRIM_BLOCK_EMBEDDINGS] = BRIM_N_("embeddings"),
};

static void add_cost(const brim_op_call *call, double times, brim_plan *plan) {
  double flops = 0, bytes = 0;
  brim_op_cost(call, &flops, &bytes);
  plan->flops_per_step += flops * times;
  plan->bytes_per_step += bytes * times;
}

static void add_row(brim_plan *plan, size_t first, brim_place place, const char *name,
                    uint64_t bytes) {
  size_t row = first;
  while (row < plan->row_count && plan->rows[row].name != name) row++;
  if (bytes == 0 || row == BRIM_PLAN_MAX_ROWS) return;
  if (row == plan->row_count) {
    plan->rows[plan->row_count++] = (brim_plan_row){.name = name, .place = place};
  }
  plan->rows[row].bytes += bytes;
  plan->bytes[place] += bytes;
}

static void add_exchanges(const brim_net *net, brim_plan *plan) {
  const brim_program *p = &net->train;
  plan->gradient_sums += net->ranks.count;
  for (int32_t i = 0; i < p->prepared; i++) {
    brim_op op = p->calls[i].op;
    bool moves = op == BRIM_OP_ALL_REDUCE || op == BRIM_OP_ALL_GATHER || op == BRIM_OP_GATHER_PAIRS;
    if (!moves) continue;
    plan->exchanges += (int32_t)net->accumulation;
    plan->exchange_bytes +=
        (double)brim_tensor_bytes(&p->calls[i].in[0]) * (double)net->accumulation;
  }
}

// Adds the rows to existing rows of the same name, from `first` on.
static void net_add_plan(const brim_net *net, size_t first, brim_plan *plan) {
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    add_row(plan, first, BRIM_PLACE_DEVICE, row_names[i], net->blocks[i].bytes);
  }
  add_row(plan, first, BRIM_PLACE_HOST, BRIM_N_("exchange between ranks"), ranks_host_bytes(net));
  const brim_program *p = &net->train;
  double passes = (double)net->accumulation;
  for (int32_t i = 0; i < p->prepared; i++) add_cost(&p->calls[i], passes, plan);
  for (int32_t i = 0; i < p->adding_prepared; i++) {
    add_cost(&p->adding[i], passes - 1, plan);
    add_cost(&p->calls[p->adding_node[i]], 1 - passes, plan);
  }
  for (int32_t i = 0; i < net->negatives.embed.prepared; i++) {
    add_cost(&net->negatives.embed.calls[i], passes, plan);
  }
  if (net->negatives.prepared) add_cost(&net->negatives.loss, 1, plan);
  add_cost(&net->norm_call, 1, plan);
  add_cost(&net->optimizer_call, 1, plan);
  if (net->statistics_prepared) add_cost(&net->statistics_call, 1, plan);
  add_cost(&net->step_end_call, 1, plan);
  add_exchanges(net, plan);
  // the samples of a group's step are those of its first network
  if (plan->samples_per_step == 0) {
    plan->samples_per_step = (double)(net->batch / net->views) * passes;
  }
  plan->segments += net->segments;
  plan->recomputed += net->recomputed;
  for (size_t i = 0; i < net->params.count; i++) {
    plan->parameter_count += (uint64_t)net->params.items[i].outside_count;
  }
}

void brim_net_fill_plan(const brim_net *net, brim_plan *plan) {
  net_add_plan(net, plan->row_count, plan);
}

//---------------------------------- memory ----------------------------------

static const unsigned char canary_byte = 0xA5, poison_byte = 0xFF;  // NaN in every float type

//---------------------------------- addresses ----------------------------------

static void bind(brim_net *net) {
  brim_program *programs[] = {&net->train, &net->eval, &net->negatives.embed};
  for (int k = 0; k < 3; k++) {
    bind_program(net, programs[k], net->averages && programs[k] == &net->eval);
  }
  if (net->negatives.on) negatives_bind(net);
  ranks_bind(net);
  const brim_block *b = net->blocks;
  brim_op_call *c = &net->optimizer_call;
  net->norm_call.in[0].data = b[BRIM_BLOCK_GRADS].data;
  net->norm_call.out[0].data = brim_net_norm_ptr(net);
  c->in[0].data = brim_net_state_ptr(net);
  c->in[1].data = brim_net_norm_ptr(net);
  c->in[2].data = b[BRIM_BLOCK_GRADS].data;
  c->out[0].data = b[BRIM_BLOCK_PARAMS].data;
  c->out[1].data = brim_net_slot(net, 0);
  c->out[2].data = brim_net_slot(net, 1);
  if (c->out_count > 3) c->out[3].data = b[BRIM_BLOCK_COPY].data;
  if (c->out_count > 4) c->out[4].data = b[BRIM_BLOCK_AVERAGE].data;
  net->statistics_call.in[0].data = brim_net_state_ptr(net);
  net->statistics_call.in[1].data = brim_net_norm_ptr(net);
  net->statistics_call.in[2].data = b[BRIM_BLOCK_BUFFERS].data;
  net->statistics_call.out[0].data = b[BRIM_BLOCK_AVERAGE_BUFFERS].data;
  net->average_cast_call.in[0].data = b[BRIM_BLOCK_AVERAGE].data;
  net->average_cast_call.out[0].data = b[BRIM_BLOCK_AVERAGE_COPY].data;
  net->cast_call.in[0].data = b[BRIM_BLOCK_PARAMS].data;
  net->cast_call.out[0].data = b[BRIM_BLOCK_COPY].data;
  void *workspace = b[BRIM_BLOCK_WORKSPACE].data;
  net->norm_call.workspace = c->workspace = net->cast_call.workspace = workspace;
  net->average_cast_call.workspace = net->statistics_call.workspace = workspace;
  brim_op_call *e = &net->step_end_call;
  e->in[0].data = brim_net_norm_ptr(net);
  e->out[0].data = brim_net_state_ptr(net);
  e->out[1].data = brim_net_ring_ptr(net);
  e->workspace = workspace;
}

//---------------------------------- memory ----------------------------------

static size_t allocated_bytes(const brim_net *net, int block) {
  bool tail = block == BRIM_BLOCK_ARENA && net->hooks.canary;
  return net->blocks[block].bytes + (tail ? BRIM_ALIGN : 0);
}

static unsigned char *canary_place(const brim_net *net) {
  const brim_block *arena = &net->blocks[BRIM_BLOCK_ARENA];
  return arena->data + arena->bytes - net->hooks.canary_early;
}

// Everything that outlives a step starts from zero, including padding between parameters. The arena
// and the workspace are written before they are read.
static brim_status allocate(brim_net *net) {
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    brim_block *b = &net->blocks[i];
    if (!b->bytes) continue;
    void *data = NULL;
    BRIM_TRY(brim_device_alloc(net->device, BRIM_BUFFER_DEVICE, allocated_bytes(net, i), &data));
    b->data = data;
    bool scratch = i == BRIM_BLOCK_ARENA || i == BRIM_BLOCK_WORKSPACE;
    if (scratch && !net->hooks.poison) continue;
    BRIM_TRY(brim_device_fill(net->device, b->data, scratch ? poison_byte : 0, b->bytes));
  }
  if (net->hooks.canary) {
    BRIM_TRY(brim_device_fill(net->device, canary_place(net), canary_byte, BRIM_ALIGN));
  }
  return BRIM_OK;
}

bool brim_net_canary_intact(const brim_net *net) {
  const unsigned char *place = canary_place(net);
  for (int i = 0; i < BRIM_ALIGN; i++) {
    if (place[i] != canary_byte) return false;
  }
  return true;
}

// After the blocks are allocated and zeroed: creates events and sets the device's part of the state
// (loss scale 1, or 2^16 in fp16). eager: run op by op, never record.
static brim_status exec_init(brim_net *net, bool eager) {
  brim_exec *x = &net->exec;
  double kept[BRIM_EXEC_KEPT] = {0};
  // PyTorch's first scale. It is a power of two, so scaling and unscaling do not round.
  kept[BRIM_STATE_LOSS_SCALE - BRIM_STATE_HOST] =
      net->precision == BRIM_PRECISION_FP16 ? 65536.0 : 1.0;
  BRIM_TRY(brim_exec_set_kept(net, kept));
  if (net->device->info.host_memory) return BRIM_OK;
  for (int i = 0; i < BRIM_EXEC_SLOTS; i++) {
    BRIM_TRY(brim_event_create(net->device, &x->filled[i]));
    BRIM_TRY(brim_event_create(net->device, &x->done[i]));
  }
  x->capture.on = !eager && brim_device_has_graphs(net->device);
  return BRIM_OK;
}

// Destroys events and recordings. May be called without exec_init or after its failure. The device must be idle.
static void exec_deinit(brim_net *net) {
  brim_exec *x = &net->exec;
  for (int i = 0; i < BRIM_EXEC_SLOTS; i++) {
    for (int k = 0; k < BRIM_EXEC_KIND_COUNT; k++) {
      brim_capture_drop(net->device, &x->pieces[k][i]);
    }
    brim_event_destroy(net->device, x->filled[i]);
    brim_event_destroy(net->device, x->done[i]);
  }
  memset(x, 0, sizeof *x);
}

// Allocates the memory of a built network and sets first values.
static brim_status net_open(brim_net *net, bool eager) {
  BRIM_TRY(allocate(net));
  bind(net);
  net->grad_norm = net->grad_norm_max = __builtin_nan("");
  BRIM_TRY(exec_init(net, eager));
  return brim_net_init_params(net);
}

brim_status brim_net_create_hooked(brim_device *device, const brim_net_spec *spec,
                                   const brim_net_hooks *hooks, brim_net **out) {
  *out = NULL;
  brim_net *net;
  brim_status status = brim_net_build(device, spec, hooks, false, &net);
  if (!status) status = net_open(net, spec->eager);
  if (status) {
    brim_net_destroy(net);
    return status;
  }
  *out = net;
  return BRIM_OK;
}

brim_status brim_net_create(brim_device *device, const brim_net_spec *spec, brim_net **out) {
  return brim_net_create_hooked(device, spec, NULL, out);
}

void brim_net_destroy(brim_net *net) {
  if (!net) return;
  // Wait until the device has stopped using these buffers; its errors no longer matter.
  if (net->blocks[BRIM_BLOCK_PARAMS].data) (void)brim_device_sync(net->device);
  exec_deinit(net);
  brim_op_call *flat[] = {&net->norm_call, &net->optimizer_call, &net->step_end_call,
                          &net->cast_call, &net->average_cast_call};
  for (int i = 0; i < net->optimizer_prepared; i++) brim_op_release(net->device, flat[i]);
  if (net->statistics_prepared) brim_op_release(net->device, &net->statistics_call);
  program_release(net, &net->train);
  program_release(net, &net->eval);
  negatives_release(net);
  knn_release(net);
  ranks_release(net);
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    if (!net->blocks[i].data || !net->blocks[i].bytes) continue;
    brim_device_free(net->device, BRIM_BUFFER_DEVICE, net->blocks[i].data);
  }
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    brim_device_free(net->device, BRIM_BUFFER_HOST, net->reusable[i]);
  }
  brim_free(net->snapshot);
  brim_free(net->info);
  brim_params_deinit(&net->params);
  brim_params_deinit(&net->buffers);
  brim_free(net);
}

brim_status brim_net_plan(brim_device *device, const brim_net_spec *spec, brim_plan *plan) {
  brim_net *net;
  brim_status status = brim_net_build(device, spec, NULL, true, &net);
  if (!status) brim_net_fill_plan(net, plan);
  brim_net_destroy(net);
  return status;
}

//---------------------------------- the arena over time ----------------------------------

static const char *kind_name(brim_tensor_kind kind) {
  switch (kind) {
    case BRIM_TENSOR_GRADIENT:
      return "gradient";
    case BRIM_TENSOR_STATISTIC:
      return "statistic";
    default:
      return "activation";
  }
}

// If `tensor` was placed over an input of the node, ends the life of that input at the node before.
static void end_overwritten(const brim_program *p, int32_t *last, int32_t node, int32_t tensor) {
  const brim_gnode *n = &p->graph.nodes[node];
  for (int i = 0; i < n->in_count; i++) {
    int32_t t = n->in[i];
    if (t < 0 || t == tensor || last[t] != node) continue;
    if (p->places.offset[t] == p->places.offset[tensor]) last[t] = node - 1;
  }
}

static void end_all_overwritten(const brim_program *p, const int32_t *first, int32_t *last) {
  for (int32_t n = 0; n < p->graph.node_count; n++) {
    const brim_gnode *node = &p->graph.nodes[n];
    for (int i = 0; i < node->out_count; i++) {
      int32_t t = node->out[i];
      if (t >= 0 && first[t] == n) end_overwritten(p, last, n, t);
    }
  }
}

static void add_place(brim_net_memory *m, brim_net_place place) {
  int32_t end = (int32_t)m->point_count - 1;
  if (place.last > end) place.last = end;
  if (place.first < 0 || place.last < place.first) return;
  for (int32_t i = place.first; i <= place.last; i++) m->points[i].bytes += place.bytes;
  m->places[m->place_count++] = place;
}

static size_t workspace_of(const brim_program *p, int32_t node) {
  size_t bytes = p->calls[node].workspace_bytes;
  for (int32_t k = 0; k < p->adding_count; k++) {
    if (p->adding_node[k] == node && p->adding[k].workspace_bytes > bytes) {
      bytes = p->adding[k].workspace_bytes;
    }
  }
  return bytes;
}

// The name of a tensor for the profile. An activation gets the name of the layer whose node writes it, because
// after fusing its own name may be another layer's.
static const char *name_of(const brim_graph *g, int32_t tensor, int32_t first) {
  const brim_gtensor *t = &g->tensors[tensor];
  const brim_gnode *node = first >= 0 && first < g->node_count ? &g->nodes[first] : NULL;
  if (!node || !node->layer || t->kind != BRIM_TENSOR_ACTIVATION) {
    return t->name;
  }
  for (int i = 0; i < node->out_count; i++) {
    if (node->out[i] == tensor) return node->layer;
  }
  return t->name;
}

static void fill(const brim_program *p, const int32_t *first, const int32_t *last,
                 brim_net_memory *m) {
  const brim_graph *g = &p->graph;
  for (int32_t n = 0; n < g->node_count; n++) {
    const brim_gnode *node = &g->nodes[n];
    m->points[n] =
        (brim_net_point){.op = brim_gnode_is_call(node) ? brim_op_name(node->op) : "loss",
                         .layer = node->layer,
                         .phase = node->backward ? BRIM_PHASE_BACKWARD : BRIM_PHASE_FORWARD};
  }
  for (int32_t t = 0; t < g->tensor_count; t++) {
    if (p->places.offset[t] == BRIM_PLAN_NO_PLACE) continue;
    add_place(m, (brim_net_place){.name = name_of(g, t, first[t]),
                                  .kind = kind_name(g->tensors[t].kind),
                                  .bytes = brim_align_up(brim_tensor_bytes(&g->tensors[t].desc)),
                                  .offset = p->places.offset[t],
                                  .first = first[t],
                                  .last = last[t]});
  }
  for (int32_t n = 0; n < g->node_count; n++) {
    if (p->places.workspace[n] == BRIM_PLAN_NO_PLACE) continue;
    add_place(m, (brim_net_place){.name = g->nodes[n].layer ? g->nodes[n].layer : m->points[n].op,
                                  .kind = "workspace",
                                  .bytes = brim_align_up(workspace_of(p, n)),
                                  .offset = p->places.workspace[n],
                                  .first = n,
                                  .last = n});
  }
}

brim_status brim_net_memory_of(const brim_net *net, brim_net_memory *out) {
  const brim_program *p = &net->train;
  size_t tensors = (size_t)p->graph.tensor_count, nodes = (size_t)p->graph.node_count;
  *out = (brim_net_memory){.point_count = nodes, .arena_bytes = p->places.bytes};
  int32_t *first = brim_calloc(2 * tensors + 1, sizeof *first);
  out->points = brim_calloc(nodes, sizeof *out->points);
  out->places = brim_calloc(tensors + nodes, sizeof *out->places);
  brim_status status = BRIM_OK;
  if (!first || !out->points || !out->places) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while planning the arena");
  }
  int32_t *last = first ? first + tensors : NULL;
  if (!status) status = brim_arena_plan_lives(&p->graph, p->forward_count, first, last);
  if (!status) {
    end_all_overwritten(p, first, last);
    fill(p, first, last, out);
  }
  brim_free(first);
  if (status) brim_net_memory_free(out);
  return status;
}

const char *brim_net_name(const brim_net *net) { return net->name; }

void brim_net_memory_free(brim_net_memory *memory) {
  brim_free(memory->points);
  brim_free(memory->places);
  *memory = (brim_net_memory){0};
}

//---------------------------------- groups ----------------------------------

// Several networks in one plan and one step. The first network owns the arena and the workspace of
// all; the training programs are placed together, and everything else of a network uses the arena
// alone. Steps run one by one, or as part of recorded work: the caller's kernels, evaluations and
// steps of the group in one launch.

// A memory limit counts for all networks together; fit_group applies it.
static brim_status build_nets(brim_group *group, const brim_net_spec *specs, bool planning) {
  for (int32_t i = 0; i < group->count; i++) {
    if (specs[i].full_batch_negatives) {
      return brim_fail(BRIM_EUNSUPPORTED, "exact accumulation is not possible in a group");
    }
    brim_net_spec spec = specs[i];
    spec.memory_limit = 0;
    BRIM_TRY(brim_net_build(group->device, &spec, NULL, planning, &group->nets[i]));
  }
  return BRIM_OK;
}

// Gives the first network an arena and a workspace that are large enough for all networks.
static void size_shared(brim_group *group) {
  static const brim_block_id shared[] = {BRIM_BLOCK_ARENA, BRIM_BLOCK_WORKSPACE};
  for (int32_t i = 0; i < group->count; i++) net_size_blocks(group->nets[i]);
  for (int k = 0; k < 2; k++) {
    brim_block *owner = &group->nets[0]->blocks[shared[k]];
    for (int32_t i = 1; i < group->count; i++) {
      brim_block *b = &group->nets[i]->blocks[shared[k]];
      if (b->bytes > owner->bytes) owner->bytes = b->bytes;
      b->bytes = 0;
    }
  }
}

static brim_status place_group(brim_group *group) {
  brim_program *programs[BRIM_GROUP_MAX];
  for (int32_t i = 0; i < group->count; i++) programs[i] = &group->nets[i]->train;
  BRIM_TRY(programs_place(programs, group->count, true));
  size_shared(group);
  return BRIM_OK;
}

static bool chooses(const brim_net_spec *spec) {
  return spec->recompute == BRIM_RECOMPUTE_AUTO && spec->memory_limit > 0;
}

// Recomputes the fraction share / shares of the segments in each network with BRIM_RECOMPUTE_AUTO.
static brim_status recompute_group(brim_group *group, const brim_net_spec *specs, int64_t share,
                                   int64_t shares) {
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    if (!chooses(&specs[i])) continue;
    int32_t k = (int32_t)(net->segments * share / shares);
    BRIM_TRY(net_rebuild(net, &specs[i], k));
  }
  return place_group(group);
}

static bool group_within(const brim_group *group, uint64_t limit) {
  uint64_t bytes = 0;
  for (int32_t i = 0; i < group->count; i++) bytes += net_device_bytes(group->nets[i]);
  return bytes <= limit;
}

// Finds the smallest share of segments that brings all networks under the limit, or all of them;
// only the chosen programs are prepared.
static brim_status fit_group(brim_group *group, const brim_net_spec *specs, bool planning) {
  uint64_t limit = UINT64_MAX;
  int64_t over = 0, fits = 0;
  for (int32_t i = 0; i < group->count; i++) {
    if (!chooses(&specs[i])) continue;
    if (specs[i].memory_limit < limit) limit = specs[i].memory_limit;
    fits += group->nets[i]->segments;
  }
  const int64_t shares = fits;
  if (shares == 0 || group_within(group, limit)) return BRIM_OK;
  for (int32_t i = 0; i < group->count; i++) group->nets[i]->planning = true;
  brim_status status = BRIM_OK;
  while (!status && fits - over > 1) {
    int64_t share = over + (fits - over) / 2;
    status = recompute_group(group, specs, share, shares);
    *(group_within(group, limit) ? &fits : &over) = share;
  }
  for (int32_t i = 0; i < group->count; i++) group->nets[i]->planning = planning;
  return status ? status : recompute_group(group, specs, fits, shares);
}

static brim_status build_group(brim_device *device, const brim_net_spec *specs, int32_t count,
                               bool planning, brim_group **out) {
  *out = NULL;
  if (count < 1 || count > BRIM_GROUP_MAX) {
    return brim_fail(BRIM_EINVAL, "a group has %d networks, expected 1 to %d", (int)count,
                     BRIM_GROUP_MAX);
  }
  brim_group *group = brim_calloc(1, sizeof *group);
  if (!group) return brim_fail(BRIM_ENOMEM, "out of memory for a group of networks");
  group->device = device;
  group->count = count;
  *out = group;
  BRIM_TRY(build_nets(group, specs, planning));
  BRIM_TRY(place_group(group));
  return fit_group(group, specs, planning);
}

brim_status brim_group_plan(brim_device *device, const brim_net_spec *specs, int32_t count,
                            brim_plan *plan) {
  brim_group *group;
  size_t first = plan->row_count;
  brim_status status = build_group(device, specs, count, true, &group);
  for (int32_t i = 0; !status && i < count; i++) net_add_plan(group->nets[i], first, plan);
  brim_group_destroy(group);
  return status;
}

// Allocates the rows of one network's table on the host.
static brim_status open_table(brim_group *group) {
  int64_t capacity = group->nets[0]->enqueued_steps;
  for (int32_t i = 1; i < group->count; i++) {
    int64_t own = group->nets[i]->enqueued_steps;
    if (own < capacity) capacity = own;
  }
  if (capacity == 0) return BRIM_OK;
  group->table.rows = brim_calloc((size_t)capacity, BRIM_STATE_HOST * sizeof(double));
  if (!group->table.rows) return brim_fail(BRIM_ENOMEM, "out of memory for a group of networks");
  group->table.capacity = capacity;
  return BRIM_OK;
}

static brim_status open_nets(brim_group *group, const brim_net_spec *specs) {
  brim_net *owner = group->nets[0];
  group->capture.on = brim_device_has_graphs(group->device);
  for (int32_t i = 0; i < group->count; i++) {
    brim_net *net = group->nets[i];
    if (i > 0) {
      net->blocks[BRIM_BLOCK_ARENA].data = owner->blocks[BRIM_BLOCK_ARENA].data;
      net->blocks[BRIM_BLOCK_WORKSPACE].data = owner->blocks[BRIM_BLOCK_WORKSPACE].data;
    }
    BRIM_TRY(net_open(net, specs[i].eager));
    net->peer = group->nets[(i + 1) % group->count];
    if (specs[i].eager) group->eager = true;
  }
  if (group->eager) group->capture.on = false;
  return open_table(group);
}

brim_status brim_group_create(brim_device *device, const brim_net_spec *specs, int32_t count,
                              brim_group **out) {
  brim_status status = build_group(device, specs, count, false, out);
  if (!status) status = open_nets(*out, specs);
  if (status) {
    brim_group_destroy(*out);
    *out = NULL;
  }
  return status;
}

void brim_group_destroy(brim_group *group) {
  if (!group) return;
  // the last launch may still run
  if (group->nets[0] && group->nets[0]->peer) (void)brim_device_sync(group->device);
  for (int k = 0; k < BRIM_GROUP_KINDS; k++) {
    for (int s = 0; s < BRIM_EXEC_SLOTS; s++) {
      brim_capture_drop(group->device, &group->pieces[k][s]);
    }
  }
  // destroy the first network last: it owns the memory
  for (int32_t i = group->count - 1; i >= 0; i--) brim_net_destroy(group->nets[i]);
  brim_free(group->table.rows);
  brim_free(group);
}

brim_net *brim_group_net(brim_group *group, int32_t index) {
  return index >= 0 && index < group->count ? group->nets[index] : NULL;
}

void *brim_group_memory(const brim_group *group, size_t *bytes) {
  const brim_block *arena = &group->nets[0]->blocks[BRIM_BLOCK_ARENA];
  *bytes = arena->bytes;
  return arena->data;
}
