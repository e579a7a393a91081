// Layers of convolutional networks: convolution, batch norm (which takes an addition and a ReLU
// in), max pooling, mean over everything but rows and channels.
#include <math.h>
#include <string.h>

#include "engine/engine_graph.h"

// Epsilon and momentum of torch.nn.BatchNorm2d.
static const float batchnorm_eps = 1e-5f;
static const float batchnorm_momentum = 0.1f;

//---------------------------------- convolution ----------------------------------

static void conv_forward(brim_graph *g, brim_layer *l) {
  int32_t in[] = {l->in[0], brim_graph_param_value(g, l->param[0])};
  brim_graph_node(g, BRIM_OP_CONV, &l->attr, in, 2, &l->out, 1);
}

// The gradient of the weights first: x can then make room for dx.
static void conv_backward(brim_graph *g, brim_layer *l) {
  int32_t x = l->in[0], dy = brim_graph_grad(g, l->out);
  int32_t weight_in[] = {dy, x};
  int32_t dw = brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM_GRAD);
  brim_op_attr attr = l->attr;
  attr.accumulate = brim_graph_param_written(g, l->param, 1);
  brim_graph_node(g, BRIM_OP_CONV_BWD_WEIGHT, &attr, weight_in, 2, &dw, 1);
  if (g->status || !g->tensors[x].needs_grad) return;
  int32_t data_in[] = {dy, brim_graph_param_value(g, l->param[0])};
  int32_t dx = brim_graph_like(g, x, BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_CONV_BWD_DATA, &l->attr, data_in, 2, &dx, 1);
  brim_graph_add_grad(g, x, dx);
}

static const brim_layer_row conv_row = {
    .name = "conv", .forward = conv_forward, .backward = conv_backward};

// Side of the output of a window that slides over `size`.
static int64_t slide(int64_t size, int32_t window, int32_t stride, int32_t pad) {
  return (size + 2 * pad - window) / stride + 1;
}

// As torchvision's ResNets: normal with deviation sqrt(2 / (outputs * kernel^2)).
int32_t brim_graph_conv(brim_graph *g, int32_t x, const brim_conv_spec *spec, const char *name) {
  brim_layer *l = brim_graph_layer(g, &conv_row, name, &x, 1);
  if (!l) return -1;
  const int64_t *d = g->tensors[x].desc.dim;
  int64_t y[] = {d[0], slide(d[1], spec->kernel, spec->stride, spec->pad),
                 slide(d[2], spec->kernel, spec->stride, spec->pad), spec->outputs};
  if (d[1] + 2 * spec->pad < spec->kernel || d[2] + 2 * spec->pad < spec->kernel) {
    brim_graph_fail(g, brim_fail(BRIM_EINVAL, "images of %lldx%lld are too small for layer %s",
                                 (long long)d[1], (long long)d[2], name));
    return -1;
  }
  int64_t w[] = {spec->outputs, spec->inputs, spec->kernel, spec->kernel}, padded = d[3];
  double std = sqrt(2.0 / ((double)spec->outputs * spec->kernel * spec->kernel));
  l->attr.stride = spec->stride;
  l->attr.pad = spec->pad;
  l->attr.tf32 = g->tf32;
  char weight[256];
  if (!brim_graph_layer_name(g, name, "weight", weight)) return -1;
  l->param[0] = brim_graph_conv_param(g, weight, w, padded, std);
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 4, y);
  return brim_graph_finish(g, l, out, true);
}

//---------------------------------- batch norm ----------------------------------

static void in_groups(brim_graph *g) {
  if (!g->status && g->training) g->nodes[g->node_count - 1].groups = g->norm_groups;
}

// x, weight, bias; the residual is in[1].
static void batchnorm_apply(brim_graph *g, brim_layer *l, int32_t mean, int32_t spread,
                            bool variance) {
  int32_t in[] = {l->in[0],
                  brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM),
                  brim_graph_param_tensor(g, l->param[1], BRIM_TENSOR_PARAM),
                  mean,
                  spread,
                  l->in[1]};
  brim_op_attr attr = l->attr;
  attr.variance = variance;
  brim_graph_node(g, BRIM_OP_BATCHNORM_APPLY, &attr, in, l->in[1] >= 0 ? 6 : 5, &l->out, 1);
  in_groups(g);
}

// A statistic of the layer, (rows, C).
static int32_t statistic(brim_graph *g, const brim_layer *l, int64_t rows) {
  if (g->status) return -1;
  const brim_tensor *x = &g->tensors[l->in[0]].desc;
  int64_t dim[] = {rows, x->dim[x->rank - 1]};
  return brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 2, dim);
}

// Of the rows of all ranks: each rank's statistics, those of all, and the output from what they join to.
static void ranks_forward(brim_graph *g, brim_layer *l, int32_t mean, int32_t variance) {
  int32_t in[] = {l->in[0], g->state}, part = statistic(g, l, 3);
  brim_graph_node(g, BRIM_OP_BATCHNORM_PART, &l->attr, in, 2, &part, 1);
  if (g->status) return;
  int64_t dim[] = {g->norm_ranks, 3, g->tensors[part].desc.dim[1]};
  int32_t parts = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 3, dim);
  brim_graph_node(g, BRIM_OP_ALL_GATHER, NULL, &part, 1, &parts, 1);
  int32_t out[] = {l->saved[0], l->saved[1], l->saved[2], mean, variance};
  brim_graph_node(g, BRIM_OP_BATCHNORM_JOIN, &l->attr, &parts, 1, out, g->passing ? 3 : 5);
  batchnorm_apply(g, l, l->saved[0], l->saved[1], false);
}

static void batchnorm_forward(brim_graph *g, brim_layer *l) {
  int32_t mean = brim_graph_buffer_tensor(g, l->buffer[0]);
  int32_t variance = brim_graph_buffer_tensor(g, l->buffer[1]);
  if (!g->training) {
    batchnorm_apply(g, l, mean, variance, true);
    return;
  }
  if (g->norm_ranks > 0) {
    ranks_forward(g, l, mean, variance);
    return;
  }
  int32_t in[] = {l->in[0], brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM),
                  brim_graph_param_tensor(g, l->param[1], BRIM_TENSOR_PARAM), g->state, l->in[1]};
  int32_t out[] = {l->out, l->saved[0], l->saved[1], mean, variance};
  brim_graph_node(g, BRIM_OP_BATCHNORM, &l->attr, in, l->in[1] >= 0 ? 5 : 4, out,
                  g->passing ? 3 : 5);
  in_groups(g);
}

static void batchnorm_recompute(brim_graph *g, brim_layer *l) {
  batchnorm_apply(g, l, l->saved[0], l->saved[1], false);
}

// `in` and `out` are BATCHNORM_BWD's: the sums of this rank's rows, those of all, and the rest from these.
static void ranks_backward(brim_graph *g, const brim_layer *l, const brim_op_attr *attr,
                           const int32_t *in, int in_count, const int32_t *out, int out_count) {
  int32_t own = statistic(g, l, 2), all = statistic(g, l, 2);
  int32_t sums_out[] = {own, out[1], out[2]};
  brim_graph_node(g, BRIM_OP_BATCHNORM_BWD_SUMS, attr, in, in_count, sums_out, 3);
  brim_graph_node(g, BRIM_OP_ALL_REDUCE, NULL, &own, 1, &all, 1);
  int32_t joined_in[] = {in[0], in[1],       in[2], in[3], in[4], in[5],
                         all,   l->saved[2], in[6], in[7], in[8]};
  int32_t joined_out[] = {out[0], out[3]};
  brim_op_attr plain = *attr;
  plain.accumulate = false;
  brim_graph_node(g, BRIM_OP_BATCHNORM_BWD_JOINED, &plain, joined_in, in_count + 2, joined_out,
                  out_count > 3 ? 2 : 1);
}

// Without a residual the ReLU's sign is found again from x, so y is not read; with one it is.
static void batchnorm_backward(brim_graph *g, brim_layer *l) {
  if (g->status) return;
  int32_t x = l->in[0], z = l->in[1];
  bool through_y = l->attr.act == BRIM_ACT_RELU && z >= 0;
  int32_t in[] = {g->tensors[l->out].grad,
                  x,
                  brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM),
                  brim_graph_param_tensor(g, l->param[1], BRIM_TENSOR_PARAM),
                  l->saved[0],
                  l->saved[1],
                  g->state,
                  through_y ? l->out : -1,
                  -1};
  int in_count = through_y ? 8 : 7;
  bool dz_wanted = z >= 0 && g->tensors[z].needs_grad;
  if (g->tensors[l->out].grad2 >= 0) {
    in[8] = g->tensors[l->out].grad2;
    in_count = 9;
  }
  int32_t out[] = {brim_graph_like(g, x, BRIM_TENSOR_GRADIENT),
                   brim_graph_param_tensor(g, l->param[0], BRIM_TENSOR_PARAM_GRAD),
                   brim_graph_param_tensor(g, l->param[1], BRIM_TENSOR_PARAM_GRAD), -1};
  // Without an activation the gradient itself is the residual's.
  bool plain = l->attr.act == BRIM_ACT_NONE && in_count < 9;
  if (dz_wanted && !plain) out[3] = brim_graph_like(g, x, BRIM_TENSOR_GRADIENT);
  brim_op_attr attr = l->attr;
  attr.accumulate = brim_graph_param_written(g, l->param, 2);
  if (g->norm_ranks > 0) {
    ranks_backward(g, l, &attr, in, in_count, out, out[3] >= 0 ? 4 : 3);
  } else {
    brim_graph_node(g, BRIM_OP_BATCHNORM_BWD, &attr, in, in_count, out, out[3] >= 0 ? 4 : 3);
    in_groups(g);
  }
  if (dz_wanted) brim_graph_add_grad(g, z, plain ? in[0] : out[3]);
  if (!g->status && g->tensors[x].needs_grad) brim_graph_add_grad(g, x, out[0]);
}

// Take in an addition whose other term is there already, then a ReLU.
static bool batchnorm_fuse(brim_graph *g, brim_layer *l, brim_layer *next) {
  if (!g->device || l->attr.act != BRIM_ACT_NONE) return false;
  if (brim_layer_is_act(next) && next->attr.act == BRIM_ACT_RELU) {
    l->attr.act = BRIM_ACT_RELU;
    return true;
  }
  if (!brim_layer_is_add(next) || l->in[1] >= 0 || next->in[0] == next->in[1]) return false;
  int32_t other = next->in[next->in[0] == l->out ? 1 : 0];
  if (g->tensors[other].layer > l - g->layers) return false;
  l->in[1] = other;
  return true;
}

static const brim_layer_row batchnorm_row = {.name = "batchnorm",
                                             .forward = batchnorm_forward,
                                             .backward = batchnorm_backward,
                                             .fuse = batchnorm_fuse,
                                             .recompute = batchnorm_recompute};

int32_t brim_graph_batchnorm(brim_graph *g, int32_t x, brim_init gamma, const char *name) {
  brim_layer *l = brim_graph_layer(g, &batchnorm_row, name, &x, 1);
  if (!l) return -1;
  const brim_tensor *t = &g->tensors[x].desc;
  int64_t width = t->dim[t->rank - 1];
  l->attr.eps = batchnorm_eps;
  l->attr.momentum = batchnorm_momentum;
  l->param[0] = brim_graph_layer_param(g, name, "weight", 1, &width, gamma, 0);
  l->param[1] = brim_graph_layer_param(g, name, "bias", 1, &width, BRIM_INIT_ZEROS, 0);
  char buffer[256];
  if (!brim_graph_layer_name(g, name, "running_mean", buffer)) return -1;
  l->buffer[0] = brim_graph_buffer(g, buffer, width, BRIM_INIT_ZEROS);
  if (!brim_graph_layer_name(g, name, "running_var", buffer)) return -1;
  l->buffer[1] = brim_graph_buffer(g, buffer, width, BRIM_INIT_ONES);
  if (g->norm_groups > 1) width *= g->norm_groups;
  for (int i = 0; i < 2 && g->training; i++) {
    l->saved[i] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 1, &width);
  }
  const int64_t one = 1;
  if (g->training && g->norm_ranks > 0) {
    l->saved[2] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 1, &one);
  }
  return brim_graph_finish(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION), true);
}

//---------------------------------- pooling ----------------------------------

static void maxpool_forward(brim_graph *g, brim_layer *l) {
  int32_t out[] = {l->out, l->saved[0]};
  brim_graph_node(g, BRIM_OP_MAXPOOL, &l->attr, l->in, 1, out, 2);
}

static void maxpool_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t in[] = {brim_graph_grad(g, l->out), l->saved[0]};
  int32_t dx = brim_graph_like(g, l->in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_MAXPOOL_BWD, &l->attr, in, 2, &dx, 1);
  brim_graph_add_grad(g, l->in[0], dx);
}

static const brim_layer_row maxpool_row = {
    .name = "maxpool", .forward = maxpool_forward, .backward = maxpool_backward};

int32_t brim_graph_maxpool(brim_graph *g, int32_t x, int32_t window, int32_t stride, int32_t pad) {
  brim_layer *l = brim_graph_layer(g, &maxpool_row, "maxpool", &x, 1);
  if (!l) return -1;
  const int64_t *d = g->tensors[x].desc.dim;
  int64_t y[] = {d[0], slide(d[1], window, stride, pad), slide(d[2], window, stride, pad), d[3]};
  l->attr.window = window;
  l->attr.stride = stride;
  l->attr.pad = pad;
  l->saved[0] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, BRIM_U8, 4, y);
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 4, y);
  return brim_graph_finish(g, l, out, !g->status && g->tensors[x].needs_grad);
}

static void mean_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_MEAN, NULL, l->in, 1, &l->out, 1);
}

static void mean_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t dy = brim_graph_grad(g, l->out);
  int32_t dx = brim_graph_like(g, l->in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_MEAN_BWD, NULL, &dy, 1, &dx, 1);
  brim_graph_add_grad(g, l->in[0], dx);
}

static const brim_layer_row mean_row = {
    .name = "mean", .forward = mean_forward, .backward = mean_backward};

int32_t brim_graph_mean(brim_graph *g, int32_t x) {
  brim_layer *l = brim_graph_layer(g, &mean_row, "mean", &x, 1);
  if (!l) return -1;
  const brim_tensor *t = &g->tensors[x].desc;
  int64_t y[] = {t->dim[0], t->dim[t->rank - 1]};
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 2, y);
  return brim_graph_finish(g, l, out, !g->status && g->tensors[x].needs_grad);
}
