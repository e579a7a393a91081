// A graph made ready to run: its prepared calls, the place of every tensor in the arena, and the
// addresses of every call once there is memory.
#include "base/base_stop.h"
#include "engine/engine_int.h"

//---------------------------------- calls ----------------------------------

static bool writes_param_grad(const brim_graph *g, const brim_gnode *node) {
  for (int i = 0; i < node->out_count; i++) {
    if (node->out[i] >= 0 && g->tensors[node->out[i]].kind == BRIM_TENSOR_PARAM_GRAD) return true;
  }
  return false;
}

// Every plan and every network comes through here once per op, so a stop is heard before the first step.
brim_status brim_net_prepare_call(brim_net *net, brim_op_call *call) {
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
  if (brim_gnode_is_call(&g->nodes[i])) BRIM_TRY(brim_net_prepare_call(net, &p->calls[i]));
  p->prepared++;
  // A node that adds anyway (a shared parameter) does so in both passes.
  if (!adding || g->nodes[i].attr.accumulate || !writes_param_grad(g, &g->nodes[i])) return BRIM_OK;
  brim_op_call *call = &p->adding[p->adding_count];
  p->adding_node[p->adding_count++] = i;
  brim_graph_call(g, &g->nodes[i], call);
  call->attr.accumulate = true;
  BRIM_TRY(brim_net_prepare_call(net, call));
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

// What each node needs while it runs, in both of its forms; one block for all programs.
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

brim_status brim_programs_place(brim_program *const *programs, int32_t count, bool reuse) {
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

brim_status brim_program_prepare(brim_net *net, brim_program *p) {
  BRIM_TRY(prepare_calls(net, p));
  return brim_programs_place(&p, 1, !net->hooks.no_reuse);
}

void brim_program_release(brim_net *net, brim_program *p) {
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

void brim_program_bind(brim_net *net, brim_program *p, bool averaged) {
  for (int32_t i = 0; i < p->prepared; i++) bind_call(net, p, averaged, i, &p->calls[i]);
  for (int32_t i = 0; i < p->adding_prepared; i++) {
    bind_call(net, p, averaged, p->adding_node[i], &p->adding[i]);
  }
}

void brim_net_bind_forward(brim_net *net, bool averaged) {
  brim_program *p = &net->train;
  for (int32_t i = 0; i < p->forward_count; i++) bind_call(net, p, averaged, i, &p->calls[i]);
}
