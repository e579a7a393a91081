// Layers of transformers and of networks with several heads: learnt positions, self-attention,
// outputs side by side.
#include "engine/engine_graph.h"

//---------------------------------- positions ----------------------------------

static void pos_forward(brim_graph *g, brim_layer *l) {
  int32_t in[] = {l->in[0], brim_graph_param_value(g, l->param[0])};
  brim_graph_node(g, BRIM_OP_POS, NULL, in, 2, &l->out, 1);
}

static void pos_backward(brim_graph *g, brim_layer *l) {
  int32_t dy = brim_graph_grad(g, l->out);
  int32_t dp = brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM_GRAD);
  brim_op_attr attr = {.accumulate = brim_graph_param_written(g, l->param, 1)};
  brim_graph_node(g, BRIM_OP_POS_BWD, &attr, &dy, 1, &dp, 1);
  if (!g->status && g->tensors[l->in[0]].needs_grad) brim_graph_add_grad(g, l->in[0], dy);
}

static const brim_layer_row pos_row = {
    .name = "pos", .forward = pos_forward, .backward = pos_backward};

int32_t brim_graph_pos(brim_graph *g, int32_t x, const char *name) {
  brim_layer *l = brim_graph_layer(g, &pos_row, name, &x, 1);
  if (!l) return -1;
  const int64_t *d = g->tensors[x].desc.dim;
  const int64_t outside[] = {1, d[1], d[2]};
  l->param[0] = brim_graph_param(g, name, 2, d + 1, BRIM_INIT_ZEROS, 0);
  if (g->status) return -1;
  g->params->items[l->param[0]].outside = brim_tensor_make(NULL, g->params->dtype, 3, outside);
  return brim_graph_finish(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION), true);
}

//---------------------------------- attention ----------------------------------

static void attention_forward(brim_graph *g, brim_layer *l) {
  int32_t out[] = {l->out, l->saved[0]};
  brim_graph_node(g, BRIM_OP_ATTENTION, &l->attr, l->in, 1, out, 2);
}

static void attention_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t in[] = {brim_graph_grad(g, l->out), l->in[0], l->out, l->saved[0]};
  int32_t dqkv = brim_graph_like(g, l->in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_ATTENTION_BWD, &l->attr, in, 4, &dqkv, 1);
  brim_graph_add_grad(g, l->in[0], dqkv);
}

static const brim_layer_row attention_row = {
    .name = "attention", .forward = attention_forward, .backward = attention_backward};

int32_t brim_graph_attention(brim_graph *g, int32_t qkv, int32_t heads) {
  brim_layer *l = brim_graph_layer(g, &attention_row, "attention", &qkv, 1);
  if (!l) return -1;
  const int64_t *d = g->tensors[qkv].desc.dim;
  int64_t y[] = {d[0], d[1], d[2] / 3}, lse[] = {d[0], heads, d[1]};
  l->attr.heads = heads;
  l->saved[0] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 3, lse);
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 3, y);
  return brim_graph_finish(g, l, out, !g->status && g->tensors[qkv].needs_grad);
}

//---------------------------------- side by side ----------------------------------

static void concat_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_CONCAT, NULL, l->in, 2, &l->out, 1);
}

static void concat_backward(brim_graph *g, brim_layer *l) {
  int32_t dy = brim_graph_grad(g, l->out);
  int32_t out[] = {brim_graph_like(g, l->in[0], BRIM_TENSOR_GRADIENT),
                   brim_graph_like(g, l->in[1], BRIM_TENSOR_GRADIENT)};
  brim_graph_node(g, BRIM_OP_CONCAT_BWD, NULL, &dy, 1, out, 2);
  for (int i = 0; i < 2 && !g->status; i++) {
    if (g->tensors[l->in[i]].needs_grad) brim_graph_add_grad(g, l->in[i], out[i]);
  }
}

static const brim_layer_row concat_row = {
    .name = "concat", .forward = concat_forward, .backward = concat_backward};

int32_t brim_graph_concat(brim_graph *g, int32_t a, int32_t b) {
  int32_t in[] = {a, b};
  brim_layer *l = brim_graph_layer(g, &concat_row, "concat", in, 2);
  if (!l) return -1;
  int64_t y[] = {g->tensors[a].desc.dim[0], g->tensors[a].desc.dim[1] + g->tensors[b].desc.dim[1]};
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 2, y);
  bool needs = !g->status && (g->tensors[a].needs_grad || g->tensors[b].needs_grad);
  return brim_graph_finish(g, l, out, needs);
}
