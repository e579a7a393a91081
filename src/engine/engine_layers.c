// The layers: one row each, with the builder call that models use. A new layer is a new row here
// (or in a file of its own) and nothing else.
#include <math.h>
#include <stdio.h>

#include "engine/engine_graph.h"

int32_t brim_graph_finish(brim_graph *g, brim_layer *l, int32_t out, bool needs_grad) {
  if (g->status) return -1;
  l->out = out;
  g->tensors[out].layer = (int32_t)(l - g->layers);
  g->tensors[out].needs_grad = needs_grad;
  return out;
}

bool brim_graph_supported(brim_graph *g, const brim_gnode *node) {
  if (!g->device) return false;
  brim_op_call call;
  brim_graph_call(g, node, &call);
  return brim_device_supports(g->device, &call) == BRIM_OK;
}

bool brim_graph_layer_name(brim_graph *g, const char *layer, const char *what, char out[256]) {
  int n = snprintf(out, 256, "%s%s%s", layer, layer[0] ? "." : "", what);
  if (n >= 0 && n < 256) return true;
  brim_graph_fail(g, brim_fail(BRIM_ELIMIT, "the layer name %s is too long", layer));
  return false;
}

int32_t brim_graph_layer_param(brim_graph *g, const char *layer, const char *what, int rank,
                               const int64_t *dim, brim_init init, double bound) {
  char name[256];
  if (!brim_graph_layer_name(g, layer, what, name)) return -1;
  return brim_graph_param(g, name, rank, dim, init, bound);
}

// A tensor as wide as `width` with the rows of x.
static int32_t rows_of(brim_graph *g, const char *name, int32_t x, int64_t width) {
  if (g->status) return -1;
  brim_tensor t = g->tensors[x].desc;
  t.dim[t.rank - 1] = width;
  return brim_graph_tensor(g, name, BRIM_TENSOR_ACTIVATION, g->dtype, t.rank, t.dim);
}

static int64_t width_of(const brim_graph *g, int32_t x) {
  const brim_tensor *t = &g->tensors[x].desc;
  return t->dim[t->rank - 1];
}

//---------------------------------- input ----------------------------------

static void input_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_INPUT, &l->attr, l->in, 1, &l->out, 1);
}

static const brim_layer_row input_row = {.name = "input", .forward = input_forward};

// The batch is read as it is where there is nothing to convert.
int32_t brim_graph_input(brim_graph *g, const brim_tensor *raw, const brim_op_attr *attr, int rank,
                         const int64_t *dim) {
  if (g->status) return -1;
  brim_tensor shaped = brim_tensor_make(NULL, g->dtype, rank, dim);
  bool plain = raw->dtype == g->dtype && brim_tensor_count(raw) == brim_tensor_count(&shaped);
  for (int c = 0; c < attr->channels; c++) {
    plain = plain && attr->scale[c] == 1.0f && attr->shift[c] == 0.0f;
  }
  if (plain) {
    g->input = brim_graph_tensor(g, "input", BRIM_TENSOR_INPUT, raw->dtype, rank, dim);
    return g->input;
  }
  int64_t flat[] = {raw->dim[0], brim_tensor_count(raw) / raw->dim[0]};
  int32_t x = brim_graph_tensor(g, "input", BRIM_TENSOR_INPUT, raw->dtype, 2, flat);
  g->input = x;
  brim_layer *l = x < 0 ? NULL : brim_graph_layer(g, &input_row, "input", &x, 1);
  if (!l) return -1;
  l->attr = *attr;
  int32_t y = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, rank, dim);
  return brim_graph_finish(g, l, y, false);
}

//---------------------------------- act ----------------------------------

// relu and tanh are their own best witnesses; gelu needs what went in.
static bool act_keeps_output(brim_act act) { return act == BRIM_ACT_RELU || act == BRIM_ACT_TANH; }

static void act_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_ACT, &l->attr, l->in, 1, &l->out, 1);
}

// Gradient before an activation whose output is `out` (and input `in`, needed for gelu).
static int32_t act_grad(brim_graph *g, const brim_op_attr *attr, int32_t in, int32_t out) {
  if (g->status) return -1;
  int32_t grad = brim_graph_grad(g, out);
  if (attr->act == BRIM_ACT_NONE || g->tensors[out].grad_before_act) return grad;
  int32_t ins[] = {grad, act_keeps_output(attr->act) ? out : in};
  int32_t dx = brim_graph_like(g, grad, BRIM_TENSOR_GRADIENT);
  brim_op_attr a = {.act = attr->act};
  brim_graph_node(g, BRIM_OP_ACT_BWD, &a, ins, 2, &dx, 1);
  return dx;
}

static void act_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t dx = act_grad(g, &l->attr, l->in[0], l->out);
  brim_graph_add_grad(g, l->in[0], dx);
}

static const brim_layer_row act_row = {
    .name = "act", .forward = act_forward, .backward = act_backward};

int32_t brim_graph_act(brim_graph *g, int32_t x, brim_act act) {
  if (act == BRIM_ACT_NONE) return x;
  brim_layer *l = brim_graph_layer(g, &act_row, "act", &x, 1);
  if (!l) return -1;
  l->attr.act = act;
  return brim_graph_finish(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION),
                           g->tensors[x].needs_grad);
}

//---------------------------------- linear ----------------------------------

// x, w, b as tensors of type T.
static int linear_in(brim_graph *g, const brim_layer *l, int32_t in[3]) {
  in[0] = l->in[0];
  in[1] = brim_graph_param_value(g, l->param[0]);
  if (l->param[1] < 0) return 2;
  in[2] = brim_graph_param_value(g, l->param[1]);
  return 3;
}

static void linear_forward(brim_graph *g, brim_layer *l) {
  int32_t in[3];
  int n = linear_in(g, l, in);
  brim_graph_node(g, BRIM_OP_LINEAR, &l->attr, in, n, &l->out, 1);
}

static bool linear_fuse(brim_graph *g, brim_layer *l, brim_layer *next) {
  if (next->row != &act_row || l->attr.act != BRIM_ACT_NONE) return false;
  if (!act_keeps_output(next->attr.act)) return false;
  brim_gnode node = {.op = BRIM_OP_LINEAR, .attr = next->attr, .out_count = 1};
  node.attr.tf32 = g->tf32;
  node.in_count = linear_in(g, l, node.in);
  node.out[0] = l->out;
  if (g->status || !brim_graph_supported(g, &node)) return false;
  l->attr.act = next->attr.act;
  return true;
}

// When x comes straight out of an activation that only this layer reads, the way back through it
// can ride on the product: dx = (dy w) * act'(x).
static brim_act fused_act(brim_graph *g, int32_t x, brim_gnode *node) {
  const brim_gtensor *t = &g->tensors[x];
  if (t->layer < 0 || t->users != 1 || t->grad >= 0) return BRIM_ACT_NONE;
  brim_act act = g->layers[t->layer].attr.act;
  if (!act_keeps_output(act)) return BRIM_ACT_NONE;
  node->attr.act = act;
  node->in[2] = x;
  node->in_count = 3;
  if (brim_graph_supported(g, node)) return act;
  node->attr.act = BRIM_ACT_NONE;
  node->in_count = 2;
  return BRIM_ACT_NONE;
}

// The gradient of the weights first: x can then make room for dx.
static void linear_backward(brim_graph *g, brim_layer *l) {
  int32_t x = l->in[0];
  int32_t dy = act_grad(g, &l->attr, -1, l->out);
  int32_t in[] = {dy, x};
  int32_t out[] = {brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM_GRAD), -1};
  if (l->param[1] >= 0) out[1] = brim_graph_param_tensor(g, l->param[1], BRIM_TENSOR_PARAM_GRAD);
  brim_op_attr attr = {.accumulate = brim_graph_param_written(g, l->param, 2), .tf32 = g->tf32};
  brim_graph_node(g, BRIM_OP_LINEAR_BWD_WEIGHT, &attr, in, 2, out, l->param[1] >= 0 ? 2 : 1);
  if (g->status || !g->tensors[x].needs_grad) return;
  brim_gnode node = {.op = BRIM_OP_LINEAR_BWD_DATA, .in_count = 2, .out_count = 1};
  node.attr.tf32 = g->tf32;
  node.in[0] = dy;
  node.in[1] = brim_graph_param_value(g, l->param[0]);
  node.out[0] = brim_graph_like(g, x, BRIM_TENSOR_GRADIENT);
  if (g->status) return;
  bool through = fused_act(g, x, &node) != BRIM_ACT_NONE;
  brim_graph_node(g, node.op, &node.attr, node.in, node.in_count, node.out, 1);
  brim_graph_add_grad(g, x, node.out[0]);
  if (!g->status) g->tensors[x].grad_before_act = through;
}

static const brim_layer_row linear_row = {
    .name = "linear", .forward = linear_forward, .backward = linear_backward, .fuse = linear_fuse};

// PyTorch's default: weight and bias uniform within 1 / sqrt(inputs) (Kaiming with a = sqrt(5)).
int32_t brim_graph_linear(brim_graph *g, int32_t x, int64_t outputs, bool bias, const char *name) {
  brim_layer *l = brim_graph_layer(g, &linear_row, name, &x, 1);
  if (!l) return -1;
  int64_t w[] = {outputs, width_of(g, x)};
  double bound = 1.0 / sqrt((double)w[1]);
  l->attr.tf32 = g->tf32;
  l->param[0] = brim_graph_layer_param(g, name, "weight", 2, w, BRIM_INIT_UNIFORM, bound);
  if (bias) l->param[1] = brim_graph_layer_param(g, name, "bias", 1, w, BRIM_INIT_UNIFORM, bound);
  return brim_graph_finish(g, l, rows_of(g, l->name, x, outputs), true);
}

int32_t brim_graph_linear_orthogonal(brim_graph *g, int32_t x, int64_t outputs, double gain,
                                     const char *name) {
  brim_layer *l = brim_graph_layer(g, &linear_row, name, &x, 1);
  if (!l) return -1;
  int64_t w[] = {outputs, width_of(g, x)};
  l->attr.tf32 = g->tf32;
  l->param[0] = brim_graph_layer_param(g, name, "weight", 2, w, BRIM_INIT_ORTHOGONAL, gain);
  l->param[1] = brim_graph_layer_param(g, name, "bias", 1, w, BRIM_INIT_ZEROS, 0);
  return brim_graph_finish(g, l, rows_of(g, l->name, x, outputs), true);
}

//---------------------------------- layernorm ----------------------------------

static void layernorm_forward(brim_graph *g, brim_layer *l) {
  int32_t in[] = {l->in[0], brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM),
                  brim_graph_param_tensor(g, l->param[1], BRIM_TENSOR_PARAM)};
  int32_t out[] = {l->out, l->saved[0], l->saved[1]};
  brim_graph_node(g, BRIM_OP_LAYERNORM, &l->attr, in, 3, out, 3);
}

static void layernorm_backward(brim_graph *g, brim_layer *l) {
  int32_t x = l->in[0];
  int32_t in[] = {brim_graph_grad(g, l->out), x,
                  brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM), l->saved[0],
                  l->saved[1]};
  int32_t out[] = {brim_graph_like(g, x, BRIM_TENSOR_GRADIENT),
                   brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM_GRAD),
                   brim_graph_param_tensor(g, l->param[1], BRIM_TENSOR_PARAM_GRAD)};
  brim_op_attr attr = l->attr;
  attr.accumulate = brim_graph_param_written(g, l->param, 2);
  brim_graph_node(g, BRIM_OP_LAYERNORM_BWD, &attr, in, 5, out, 3);
  if (!g->status && g->tensors[x].needs_grad) brim_graph_add_grad(g, x, out[0]);
}

static const brim_layer_row layernorm_row = {
    .name = "layernorm", .forward = layernorm_forward, .backward = layernorm_backward};

int32_t brim_graph_layernorm(brim_graph *g, int32_t x, float eps, const char *name) {
  brim_layer *l = brim_graph_layer(g, &layernorm_row, name, &x, 1);
  if (!l) return -1;
  int64_t width = width_of(g, x), rows = brim_tensor_count(&g->tensors[x].desc) / width;
  l->attr.eps = eps;
  l->param[0] = brim_graph_layer_param(g, name, "weight", 1, &width, BRIM_INIT_ONES, 0);
  l->param[1] = brim_graph_layer_param(g, name, "bias", 1, &width, BRIM_INIT_ZEROS, 0);
  for (int i = 0; i < 2; i++) {
    l->saved[i] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 1, &rows);
  }
  return brim_graph_finish(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION), true);
}

//---------------------------------- dropout ----------------------------------

// The mask is a function of seed, step, layer and place, so nothing is kept for the way back.
static void dropout_forward(brim_graph *g, brim_layer *l) {
  int32_t in[] = {l->in[0], g->state};
  brim_graph_node(g, BRIM_OP_DROPOUT, &l->attr, in, 2, &l->out, 1);
}

static void dropout_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t in[] = {brim_graph_grad(g, l->out), g->state};
  int32_t dx = brim_graph_like(g, in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_DROPOUT, &l->attr, in, 2, &dx, 1);
  brim_graph_add_grad(g, l->in[0], dx);
}

static const brim_layer_row dropout_row = {
    .name = "dropout", .forward = dropout_forward, .backward = dropout_backward};

int32_t brim_graph_dropout(brim_graph *g, int32_t x, float p) {
  if (!g->training || p <= 0) return x;
  brim_layer *l = brim_graph_layer(g, &dropout_row, "dropout", &x, 1);
  if (!l) return -1;
  l->attr.p = p;
  l->attr.layer = g->dropouts++;
  return brim_graph_finish(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION),
                           g->tensors[x].needs_grad);
}

//---------------------------------- add ----------------------------------

static void add_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_ADD, NULL, l->in, 2, &l->out, 1);
}

static void add_backward(brim_graph *g, brim_layer *l) {
  int32_t grad = brim_graph_grad(g, l->out);
  for (int i = 0; i < 2 && !g->status; i++) {
    if (g->tensors[l->in[i]].needs_grad) brim_graph_add_grad(g, l->in[i], grad);
  }
}

static const brim_layer_row add_row = {
    .name = "add", .forward = add_forward, .backward = add_backward};

bool brim_layer_is_act(const brim_layer *l) { return l->row == &act_row; }
bool brim_layer_is_add(const brim_layer *l) { return l->row == &add_row; }

int32_t brim_graph_add(brim_graph *g, int32_t a, int32_t b) {
  int32_t in[] = {a, b};
  brim_layer *l = brim_graph_layer(g, &add_row, "add", in, 2);
  if (!l) return -1;
  bool needs = g->tensors[a].needs_grad || g->tensors[b].needs_grad;
  return brim_graph_finish(g, l, brim_graph_like(g, a, BRIM_TENSOR_ACTIVATION), needs);
}
