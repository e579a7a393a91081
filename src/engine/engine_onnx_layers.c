// Layers as ONNX nodes: one row per kind of layer, by the name of its row in the graph. Images are
// (N,H,W,C) in brim and (N,C,H,W) in ONNX; everything else has the same shape in both. Weights keep
// their names and their values as checkpoints have them.
#include <math.h>
#include <string.h>

#include "engine/engine_onnx_int.h"

#define IN(...) \
  (const char *const[]) { __VA_ARGS__, NULL }
#define INTS(...) .count = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .ints = {__VA_ARGS__}

static const char *one(brim_onnx *x, const char *op, const char *a) {
  return brim_onnx_node(x, op, IN(a), NULL, NULL);
}

static const char *two(brim_onnx *x, const char *op, const char *a, const char *b) {
  return brim_onnx_node(x, op, IN(a, b), NULL, NULL);
}

static const char *transpose(brim_onnx *x, const char *a, int rank, const int64_t *perm) {
  brim_onnx_attr attrs[] = {{.name = "perm", .count = rank}, {0}};
  memcpy(attrs[0].ints, perm, (size_t)rank * sizeof *perm);
  return brim_onnx_node(x, "Transpose", IN(a), attrs, NULL);
}

static const char *reshape(brim_onnx *x, const char *a, int rank, const int64_t *dim) {
  return two(x, "Reshape", a, brim_onnx_ints(x, rank, dim));
}

static const brim_tensor *desc(const brim_onnx *x, int32_t tensor) {
  return &x->g->tensors[tensor].desc;
}

//---------------------------------- input ----------------------------------

static bool is_identity(const brim_net_spec *s) {
  for (int c = 0; c < s->channels; c++) {
    if (s->scale[c] != 1.0f || s->shift[c] != 0.0f) return false;
  }
  return true;
}

// x * scale[c] + shift[c]; the constants have this shape, or are one number for all.
static const char *scaled(brim_onnx *x, const char *a, int rank, const int64_t *dim) {
  const brim_net_spec *s = x->spec;
  const int64_t one_dim = 1;
  bool single = s->channels == 1;
  a = two(x, "Mul", a, brim_onnx_floats(x, single ? 1 : rank, single ? &one_dim : dim, s->scale));
  return two(x, "Add", a,
             brim_onnx_floats(x, single ? 1 : rank, single ? &one_dim : dim, s->shift));
}

// To (N,C,H,W).
static const char *image_input(brim_onnx *x, const char *a, const brim_tensor *want, bool scale) {
  const brim_net_spec *s = x->spec;
  int64_t channels = want->dim[3];
  if (s->input_rank == 2) {
    a = reshape(x, a, 4, (const int64_t[]){0, 1, want->dim[1], want->dim[2]});
  } else if (x->options->nhwc) {
    a = transpose(x, a, 4, (const int64_t[]){0, 3, 1, 2});
  }
  if (!scale) return a;
  if (s->channels != 1 && s->channels != channels) {
    brim_onnx_fail(x, brim_fail(BRIM_EUNSUPPORTED,
                                "images with %lld channels are normalized with %d values, which "
                                "ONNX cannot express; export with --normalize no",
                                (long long)channels, (int)s->channels));
    return NULL;
  }
  return scaled(x, a, 4, (const int64_t[]){1, channels, 1, 1});
}

// To rows of values or tokens, in the order of brim's memory: channels last.
static const char *row_input(brim_onnx *x, const char *a, const brim_tensor *want, bool scale) {
  const brim_net_spec *s = x->spec;
  bool planes = s->input_rank == 3 && !x->options->nhwc, same = s->input_rank + 1 == want->rank;
  if (planes) a = transpose(x, a, 4, (const int64_t[]){0, 2, 3, 1});
  for (int i = 0; same && i < s->input_rank; i++) same = brim_eval_dim(s)[i] == want->dim[i + 1];
  if (scale) {
    int64_t channels = s->channels;
    if (channels > 1 && s->input_dim[s->input_rank - 1] != channels) {
      a = reshape(x, a, 3, (const int64_t[]){0, -1, channels});
      same = false;
    }
    a = scaled(x, a, 1, &channels);
  }
  if (same) return a;
  int64_t dim[BRIM_MAX_RANK] = {0};
  for (int i = 1; i < want->rank; i++) dim[i] = want->dim[i];
  return reshape(x, a, want->rank, dim);
}

static void input(brim_onnx *x, int32_t out) {
  const brim_net_spec *s = x->spec;
  const brim_tensor *want = desc(x, out);
  const char *a = "input";
  bool scale = x->options->normalize && !is_identity(s);
  if (x->options->normalize && s->input_dtype == BRIM_U8) {
    const brim_onnx_attr to[] = {{.name = "to", .ints = {BRIM_ONNX_FLOAT}}, {0}};
    a = brim_onnx_node(x, "Cast", IN(a), to, "input_float");
  }
  a = want->rank == 4 ? image_input(x, a, want, scale) : row_input(x, a, want, scale);
  x->value[out] = a;
}

//---------------------------------- layers ----------------------------------

typedef const char *(*emit_fn)(brim_onnx *x, const brim_layer *l, const char *a, const char *b);

static const char *emit_act(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  if (l->attr.act == BRIM_ACT_RELU) return one(x, "Relu", a);
  if (l->attr.act == BRIM_ACT_TANH) return one(x, "Tanh", a);
  // gelu: 0.5 x (1 + erf(x / sqrt 2)); an op of its own only from opset 20 on
  const int64_t dim = 1;
  const float root = 0.70710678f, unit = 1.0f, half = 0.5f;
  const char *e = one(x, "Erf", two(x, "Mul", a, brim_onnx_floats(x, 1, &dim, &root)));
  e = two(x, "Add", e, brim_onnx_floats(x, 1, &dim, &unit));
  return two(x, "Mul", two(x, "Mul", a, e), brim_onnx_floats(x, 1, &dim, &half));
}

static const char *emit_linear(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  const char *w = brim_onnx_param(x, l->param[0]);
  const char *bias = l->param[1] >= 0 ? brim_onnx_param(x, l->param[1]) : NULL;
  if (desc(x, l->in[0])->rank == 2) {
    const brim_onnx_attr attrs[] = {{.name = "transB", .ints = {1}}, {0}};
    return brim_onnx_node(x, "Gemm", IN(a, w, bias), attrs, l->name);
  }
  w = transpose(x, w, 2, (const int64_t[]){1, 0});
  a = two(x, "MatMul", a, w);
  return bias ? two(x, "Add", a, bias) : a;
}

static const char *reduce_mean(brim_onnx *x, const char *a, int64_t axis, int64_t keep) {
  const brim_onnx_attr old[] = {
      {.name = "axes", INTS(axis)}, {.name = "keepdims", .ints = {keep}}, {0}};
  if (x->options->opset < 18) return brim_onnx_node(x, "ReduceMean", IN(a), old, NULL);
  return brim_onnx_node(x, "ReduceMean", IN(a, brim_onnx_ints(x, 1, &axis)), old + 1, NULL);
}

static const char *emit_layernorm(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  const char *w = brim_onnx_param(x, l->param[0]), *bias = brim_onnx_param(x, l->param[1]);
  if (x->options->opset >= 17) {
    const brim_onnx_attr attrs[] = {{.name = "axis", .ints = {-1}},
                                    {.name = "epsilon", .real = true, .number = l->attr.eps},
                                    {0}};
    return brim_onnx_node(x, "LayerNormalization", IN(a, w, bias), attrs, l->name);
  }
  const int64_t dim = 1;
  const char *centred = two(x, "Sub", a, reduce_mean(x, a, -1, 1));
  const char *variance = reduce_mean(x, two(x, "Mul", centred, centred), -1, 1);
  const char *root =
      one(x, "Sqrt", two(x, "Add", variance, brim_onnx_floats(x, 1, &dim, &l->attr.eps)));
  return two(x, "Add", two(x, "Mul", two(x, "Div", centred, root), w), bias);
}

static const char *emit_add(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)l;
  return two(x, "Add", a, b);
}

static const char *emit_conv(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  const brim_tensor *w = &x->g->params->items[l->param[0]].outside;
  int64_t s = l->attr.stride, p = l->attr.pad;
  const brim_onnx_attr attrs[] = {{.name = "kernel_shape", INTS(w->dim[2], w->dim[3])},
                                  {.name = "strides", INTS(s, s)},
                                  {.name = "pads", INTS(p, p, p, p)},
                                  {0}};
  return brim_onnx_node(x, "Conv", IN(a, brim_onnx_param(x, l->param[0])), attrs, l->name);
}

static const char *emit_batchnorm(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  const brim_onnx_attr attrs[] = {{.name = "epsilon", .real = true, .number = l->attr.eps}, {0}};
  return brim_onnx_node(x, "BatchNormalization",
                        IN(a, brim_onnx_param(x, l->param[0]), brim_onnx_param(x, l->param[1]),
                           brim_onnx_buffer(x, l->buffer[0]), brim_onnx_buffer(x, l->buffer[1])),
                        attrs, l->name);
}

static const char *emit_maxpool(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  int64_t k = l->attr.window, s = l->attr.stride, p = l->attr.pad;
  const brim_onnx_attr attrs[] = {{.name = "kernel_shape", INTS(k, k)},
                                  {.name = "strides", INTS(s, s)},
                                  {.name = "pads", INTS(p, p, p, p)},
                                  {0}};
  return brim_onnx_node(x, "MaxPool", IN(a), attrs, NULL);
}

static const char *emit_mean(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  if (desc(x, l->in[0])->rank != 4) return reduce_mean(x, a, 1, 0);
  const brim_onnx_attr attrs[] = {{.name = "axis", .ints = {1}}, {0}};
  return brim_onnx_node(x, "Flatten", IN(one(x, "GlobalAveragePool", a)), attrs, NULL);
}

static const char *emit_pos(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  return two(x, "Add", a, brim_onnx_param(x, l->param[0]));
}

// (N,L,3C) of queries, keys and values, each in heads of width d.
static const char *emit_attention(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  const brim_tensor *t = desc(x, l->in[0]);
  const int64_t heads = l->attr.heads, width = t->dim[2] / 3, d = width / heads, unit = 1;
  const float scale = (float)(1.0 / sqrt((double)d));
  const char *part[3];
  a = reshape(x, a, 5, (const int64_t[]){0, t->dim[1], 3, heads, d});
  a = transpose(x, a, 5, (const int64_t[]){2, 0, 3, 1, 4});
  const brim_onnx_attr axis[] = {{.name = "axis", .ints = {0}}, {0}};
  for (int i = 0; i < 3; i++) {
    part[i] = brim_onnx_node(x, "Gather", IN(a, brim_onnx_scalar(x, i)), axis, NULL);
  }
  const char *keys = transpose(x, part[1], 4, (const int64_t[]){0, 1, 3, 2});
  const char *score = two(x, "MatMul", part[0], keys);
  score = two(x, "Mul", score, brim_onnx_floats(x, 1, &unit, &scale));
  const brim_onnx_attr last[] = {{.name = "axis", .ints = {-1}}, {0}};
  score = brim_onnx_node(x, "Softmax", IN(score), last, NULL);
  const char *y = two(x, "MatMul", score, part[2]);
  y = transpose(x, y, 4, (const int64_t[]){0, 2, 1, 3});
  return reshape(x, y, 3, (const int64_t[]){0, t->dim[1], width});
}

static const char *emit_concat(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)l;
  const brim_onnx_attr attrs[] = {{.name = "axis", .ints = {1}}, {0}};
  return brim_onnx_node(x, "Concat", IN(a, b), attrs, NULL);
}

static const struct {
  const char *layer;
  emit_fn emit;
} rows[] = {
    {"act", emit_act},         {"linear", emit_linear},       {"layernorm", emit_layernorm},
    {"add", emit_add},         {"conv", emit_conv},           {"batchnorm", emit_batchnorm},
    {"maxpool", emit_maxpool}, {"mean", emit_mean},           {"pos", emit_pos},
    {"concat", emit_concat},   {"attention", emit_attention},
};

static emit_fn find_row(const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].layer, name) == 0) return rows[i].emit;
  }
  return NULL;
}

void brim_onnx_layers(brim_onnx *x) {
  const brim_graph *g = x->g;
  bool has_input = false;
  for (int32_t i = 0; i < g->layer_count && !x->status; i++) {
    const brim_layer *l = &g->layers[i];
    if (strcmp(l->row->name, "input") == 0) {
      input(x, l->out);
      has_input = true;
      continue;
    }
    // a batch that needs no arithmetic is read as it is, by the first layer
    if (!has_input && l->in[0] == g->input) input(x, g->input);
    has_input = true;
    emit_fn emit = find_row(l->row->name);
    if (!emit) {
      brim_onnx_fail(x, brim_fail(BRIM_EUNSUPPORTED, "layer %s (%s) cannot be exported to ONNX",
                                  l->name, l->row->name));
      return;
    }
    const char *b = l->in[1] >= 0 ? x->value[l->in[1]] : NULL;
    x->value[l->out] = emit(x, l, x->value[l->in[0]], b);
  }
}

void brim_onnx_output(brim_onnx *x, int32_t tensor, const char *name) {
  if (x->status) return;
  brim_str node;
  brim_str_init(&node);
  brim_proto_text(&node, 1, x->value[tensor]);  // NodeProto {input 1, output 2, name 3, op_type 4}
  brim_proto_text(&node, 2, name);
  brim_proto_text(&node, 3, name);
  brim_proto_text(&node, 4, "Identity");
  brim_proto_message(&x->nodes, 1, &node);
  brim_str_deinit(&node);
  x->node_count++;
}
