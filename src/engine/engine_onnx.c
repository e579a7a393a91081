// The ONNX writer: protobuf (varints, fixed 32-bit floats, length-delimited fields; field numbers are
// those of onnx.proto3, named where they are used), the graph under construction, layers as nodes, and
// the file. Images are (N,H,W,C) in brim and (N,C,H,W) in ONNX; everything else has the same shape in
// both. Weights keep the names and values they have in checkpoints.
#include "engine/engine_onnx.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_fs.h"
#include "engine/engine_int.h"

//---------------------------------- protobuf ----------------------------------

// Types of elements (TensorProto.DataType).
enum { BRIM_ONNX_FLOAT = 1, BRIM_ONNX_UINT8 = 2, BRIM_ONNX_INT64 = 7 };

//---------------------------------- the graph ----------------------------------

// A weight of the file, or a constant made here.
typedef struct brim_onnx_tensor {
  const char *name;
  int type;
  int rank;
  int64_t dim[BRIM_MAX_RANK];
  const void *data;
  size_t bytes;
} brim_onnx_tensor;

typedef struct brim_onnx {
  const brim_net_spec *spec;
  const brim_onnx_options *options;
  const brim_safetensors *weights;
  brim_graph *g;
  brim_arena *arena;
  brim_status status;  // status of the first failed call
  brim_str nodes;      // GraphProto.node fields, concatenated
  int node_count;
  const char **value;         // name of each of the graph's tensors once it is there
  brim_onnx_tensor *tensors;  // initialisers
  size_t tensor_count, tensor_capacity;
  int32_t *param_at, *buffer_at;  // initialiser of each parameter and buffer; -1 = not used yet
  int constants;
  bool ema;
  bool plain;  // averaged weights were requested, but an entry has no average
} brim_onnx;

// One attribute of a node: ints if count > 0, else a float if `real`, else an int.
typedef struct brim_onnx_attr {
  const char *name;
  int count;
  int64_t ints[BRIM_MAX_RANK];
  bool real;
  float number;
} brim_onnx_attr;

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void varint(brim_str *out, uint64_t value) {
  while (value >= 0x80) {
    brim_str_append_char(out, (char)(unsigned char)(value | 0x80));
    value >>= 7;
  }
  brim_str_append_char(out, (char)(unsigned char)value);
}

static void tag(brim_str *out, int field, int wire) {
  varint(out, (uint64_t)((unsigned)field << 3 | (unsigned)wire));
}

// Fields of a message, appended to a string that may hold any byte.
static void proto_int(brim_str *out, int field, int64_t value) {
  tag(out, field, WIRE_VARINT);
  varint(out, (uint64_t)value);
}

// Little-endian, as every machine brim runs on is.
static void proto_float(brim_str *out, int field, float value) {
  char bytes[4];
  memcpy(bytes, &value, sizeof bytes);
  tag(out, field, WIRE_FIXED32);
  brim_str_append_n(out, bytes, sizeof bytes);
}

// Tag and length of a field of `size` bytes that the caller writes itself.
static void proto_head(brim_str *out, int field, uint64_t size) {
  tag(out, field, WIRE_BYTES);
  varint(out, size);
}

static void proto_bytes(brim_str *out, int field, const void *data, size_t size) {
  proto_head(out, field, size);
  brim_str_append_n(out, (const char *)data, size);
}

static void proto_text(brim_str *out, int field, const char *text) {
  proto_bytes(out, field, text, strlen(text));
}

// Appends the message in `inner` as a field and empties `inner`.
static void proto_message(brim_str *out, int field, brim_str *inner) {
  if (brim_str_status(inner) && !out->status) out->status = brim_str_status(inner);
  proto_bytes(out, field, inner->data, inner->len);
  brim_str_clear(inner);
}

// ValueInfoProto {name 1, type 2}, TypeProto {tensor_type 1}, Tensor {elem_type 1, shape 2},
// TensorShapeProto {dim 1}, Dimension {dim_value 1, dim_param 2}.
static void proto_value(brim_str *out, int field, const char *name, int type, int rank,
                        const int64_t *dim) {
  brim_str shape, inner, outer;
  brim_str_init(&shape);
  brim_str_init(&inner);
  brim_str_init(&outer);
  for (int i = 0; i < rank; i++) {
    if (dim[i] > 0) {
      proto_int(&inner, 1, dim[i]);
    } else {
      proto_text(&inner, 2, "N");
    }
    proto_message(&shape, 1, &inner);
  }
  proto_int(&outer, 1, type);
  proto_message(&outer, 2, &shape);
  proto_message(&inner, 1, &outer);  // TypeProto
  proto_text(&outer, 1, name);
  proto_message(&outer, 2, &inner);
  proto_message(out, field, &outer);
  brim_str_deinit(&shape);
  brim_str_deinit(&inner);
  brim_str_deinit(&outer);
}

//---------------------------------- the graph ----------------------------------

static void fail_onnx(brim_onnx *x, brim_status status) {
  if (!x->status) x->status = status;
}

static void fail_memory(brim_onnx *x) {
  fail_onnx(x, brim_fail(BRIM_ENOMEM, "out of memory while writing the ONNX graph"));
}

//---------------------------------- constants and weights ----------------------------------

// Adds an initializer whose name and values live long enough; returns its index, -1 after a
// failure.
static int32_t add_tensor(brim_onnx *x, const brim_onnx_tensor *t) {
  if (x->status) return -1;
  if (x->tensor_count == x->tensor_capacity) {
    size_t capacity = x->tensor_capacity ? 2 * x->tensor_capacity : 64;
    brim_onnx_tensor *grown = brim_realloc(x->tensors, capacity * sizeof *grown);
    if (!grown) {
      fail_memory(x);
      return -1;
    }
    x->tensors = grown;
    x->tensor_capacity = capacity;
  }
  x->tensors[x->tensor_count] = *t;
  return (int32_t)x->tensor_count++;
}

static const char *add_constant(brim_onnx *x, int type, int rank, const int64_t *dim,
                                const void *values, size_t bytes) {
  if (x->status) return NULL;
  brim_onnx_tensor t = {.type = type, .rank = rank, .bytes = bytes};
  for (int i = 0; i < rank; i++) t.dim[i] = dim[i];
  void *copy = brim_arena_calloc(x->arena, bytes, 1);
  t.name = brim_arena_printf(x->arena, "constant_%d", x->constants++);
  if (!copy || !t.name) {
    fail_memory(x);
    return NULL;
  }
  memcpy(copy, values, bytes);
  t.data = copy;
  return add_tensor(x, &t) < 0 ? NULL : t.name;
}

// Constants; the values are copied.
// int64 (count)
static const char *add_ints(brim_onnx *x, int count, const int64_t *values) {
  int64_t dim = count;
  return add_constant(x, BRIM_ONNX_INT64, 1, &dim, values, (size_t)count * sizeof *values);
}

// Constants; the values are copied.
// int64 ()
static const char *add_scalar(brim_onnx *x, int64_t value) {
  return add_constant(x, BRIM_ONNX_INT64, 0, NULL, &value, sizeof value);
}

// Constants; the values are copied.
static const char *add_floats(brim_onnx *x, int rank, const int64_t *dim, const float *values) {
  size_t count = 1;
  for (int i = 0; i < rank; i++) count *= (size_t)dim[i];
  return add_constant(x, BRIM_ONNX_FLOAT, rank, dim, values, count * sizeof *values);
}

static const brim_safetensors_entry *find_entry(brim_onnx *x, const char *name) {
  const char *ema = x->options->ema;
  if (ema) {
    const char *averaged = brim_arena_printf(x->arena, "%s%s", ema, name);
    if (!averaged) {
      fail_memory(x);
      return NULL;
    }
    const brim_safetensors_entry *e = brim_safetensors_find(x->weights, averaged);
    if (e) x->ema = true;
    if (e) return e;
    x->plain = true;
  }
  return brim_safetensors_find(x->weights, name);
}

// The weight of a parameter or buffer, checked against the model.
static const char *weight(brim_onnx *x, const brim_param *p, int32_t *at) {
  if (x->status) return NULL;
  if (*at >= 0) return x->tensors[*at].name;
  const brim_safetensors_entry *e = find_entry(x, p->name);
  if (x->status) return NULL;
  bool good = e && e->dtype == BRIM_F32 && e->rank == p->outside.rank;
  for (int i = 0; good && i < e->rank; i++) good = e->dim[i] == p->outside.dim[i];
  if (!good) {
    fail_onnx(x, brim_fail(BRIM_EINVAL,
                           e ? "the checkpoint's entry '%s' does not fit the model %s; was it "
                               "trained on samples of another shape?"
                             : "the checkpoint has no entry '%s', which the model %s needs",
                           p->name, x->spec->model->name));
    return NULL;
  }
  fail_onnx(x, brim_safetensors_finite(x->weights, e));
  if (x->status) return NULL;
  brim_onnx_tensor t = {.name = p->name,
                        .type = BRIM_ONNX_FLOAT,
                        .rank = e->rank,
                        .data = e->data,
                        .bytes = e->bytes};
  memcpy(t.dim, e->dim, sizeof t.dim);
  *at = add_tensor(x, &t);
  return *at < 0 ? NULL : t.name;
}

// The initializer of a parameter or a buffer, added on first use; returns its name.
static const char *add_param(brim_onnx *x, int32_t param) {
  return weight(x, &x->g->params->items[param], &x->param_at[param]);
}

static const char *add_buffer(brim_onnx *x, int32_t buffer) {
  return weight(x, &x->g->buffers->items[buffer], &x->buffer_at[buffer]);
}

//---------------------------------- nodes ----------------------------------

// AttributeProto {name 1, f 2, i 3, ints 8, type 20}; types FLOAT 1, INT 2, INTS 7.
static void put_attribute(brim_str *node, const brim_onnx_attr *a) {
  brim_str attr;
  brim_str_init(&attr);
  proto_text(&attr, 1, a->name);
  if (a->count > 0) {
    for (int i = 0; i < a->count; i++) proto_int(&attr, 8, a->ints[i]);
  } else if (a->real) {
    proto_float(&attr, 2, a->number);
  } else {
    proto_int(&attr, 3, a->ints[0]);
  }
  proto_int(&attr, 20, a->count > 0 ? 7 : a->real ? 1 : 2);
  proto_message(node, 5, &attr);
  brim_str_deinit(&attr);
}

// NodeProto {input 1, output 2, name 3, op_type 4, attribute 5}
static const char *add_node(brim_onnx *x, const char *op, const char *const *in,
                            const brim_onnx_attr *attrs, const char *hint) {
  if (x->status) return NULL;
  const char *out = hint && hint[0] ? brim_arena_printf(x->arena, "%s_%d", hint, x->node_count)
                                    : brim_arena_printf(x->arena, "%s_%d", op, x->node_count);
  if (!out) {
    fail_memory(x);
    return NULL;
  }
  brim_str node;
  brim_str_init(&node);
  for (; *in; in++) proto_text(&node, 1, *in);
  proto_text(&node, 2, out);
  proto_text(&node, 3, out);
  proto_text(&node, 4, op);
  for (; attrs && attrs->name; attrs++) put_attribute(&node, attrs);
  proto_message(&x->nodes, 1, &node);
  brim_str_deinit(&node);
  if (brim_str_status(&x->nodes)) fail_memory(x);
  x->node_count++;
  return out;
}

//---------------------------------- layers ----------------------------------

#define IN(...) \
  (const char *const[]) { __VA_ARGS__, NULL }
#define INTS(...) .count = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .ints = {__VA_ARGS__}

static const char *one(brim_onnx *x, const char *op, const char *a) {
  return add_node(x, op, IN(a), NULL, NULL);
}

static const char *two(brim_onnx *x, const char *op, const char *a, const char *b) {
  return add_node(x, op, IN(a, b), NULL, NULL);
}

static const char *transpose(brim_onnx *x, const char *a, int rank, const int64_t *perm) {
  brim_onnx_attr attrs[] = {{.name = "perm", .count = rank}, {0}};
  memcpy(attrs[0].ints, perm, (size_t)rank * sizeof *perm);
  return add_node(x, "Transpose", IN(a), attrs, NULL);
}

static const char *reshape(brim_onnx *x, const char *a, int rank, const int64_t *dim) {
  return two(x, "Reshape", a, add_ints(x, rank, dim));
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

// x * scale[c] + shift[c]; the constants have this shape, or are one number for all channels.
static const char *scaled(brim_onnx *x, const char *a, int rank, const int64_t *dim) {
  const brim_net_spec *s = x->spec;
  const int64_t one_dim = 1;
  bool single = s->channels == 1;
  a = two(x, "Mul", a, add_floats(x, single ? 1 : rank, single ? &one_dim : dim, s->scale));
  return two(x, "Add", a, add_floats(x, single ? 1 : rank, single ? &one_dim : dim, s->shift));
}

// Converts the input to (N,C,H,W).
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
    fail_onnx(x, brim_fail(BRIM_EUNSUPPORTED,
                           "images with %lld channels are normalized with %d values, which "
                           "ONNX cannot express; export with --normalize no",
                           (long long)channels, (int)s->channels));
    return NULL;
  }
  return scaled(x, a, 4, (const int64_t[]){1, channels, 1, 1});
}

// Reshapes to rows of values or tokens in the order of brim's memory: channels last.
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
    a = add_node(x, "Cast", IN(a), to, "input_float");
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
  // gelu: 0.5 x (1 + erf(x / sqrt 2)); an ONNX op only from opset 20 on
  const int64_t dim = 1;
  const float root = 0.70710678f, unit = 1.0f, half = 0.5f;
  const char *e = one(x, "Erf", two(x, "Mul", a, add_floats(x, 1, &dim, &root)));
  e = two(x, "Add", e, add_floats(x, 1, &dim, &unit));
  return two(x, "Mul", two(x, "Mul", a, e), add_floats(x, 1, &dim, &half));
}

static const char *emit_linear(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  const char *w = add_param(x, l->param[0]);
  const char *bias = l->param[1] >= 0 ? add_param(x, l->param[1]) : NULL;
  if (desc(x, l->in[0])->rank == 2) {
    const brim_onnx_attr attrs[] = {{.name = "transB", .ints = {1}}, {0}};
    return add_node(x, "Gemm", IN(a, w, bias), attrs, l->name);
  }
  w = transpose(x, w, 2, (const int64_t[]){1, 0});
  a = two(x, "MatMul", a, w);
  return bias ? two(x, "Add", a, bias) : a;
}

static const char *reduce_mean(brim_onnx *x, const char *a, int64_t axis, int64_t keep) {
  const brim_onnx_attr old[] = {
      {.name = "axes", INTS(axis)}, {.name = "keepdims", .ints = {keep}}, {0}};
  if (x->options->opset < 18) return add_node(x, "ReduceMean", IN(a), old, NULL);
  return add_node(x, "ReduceMean", IN(a, add_ints(x, 1, &axis)), old + 1, NULL);
}

static const char *emit_layernorm(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  const char *w = add_param(x, l->param[0]), *bias = add_param(x, l->param[1]);
  if (x->options->opset >= 17) {
    const brim_onnx_attr attrs[] = {{.name = "axis", .ints = {-1}},
                                    {.name = "epsilon", .real = true, .number = l->attr.eps},
                                    {0}};
    return add_node(x, "LayerNormalization", IN(a, w, bias), attrs, l->name);
  }
  const int64_t dim = 1;
  const char *centred = two(x, "Sub", a, reduce_mean(x, a, -1, 1));
  const char *variance = reduce_mean(x, two(x, "Mul", centred, centred), -1, 1);
  const char *root = one(x, "Sqrt", two(x, "Add", variance, add_floats(x, 1, &dim, &l->attr.eps)));
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
  return add_node(x, "Conv", IN(a, add_param(x, l->param[0])), attrs, l->name);
}

static const char *emit_batchnorm(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  const brim_onnx_attr attrs[] = {{.name = "epsilon", .real = true, .number = l->attr.eps}, {0}};
  return add_node(x, "BatchNormalization",
                  IN(a, add_param(x, l->param[0]), add_param(x, l->param[1]),
                     add_buffer(x, l->buffer[0]), add_buffer(x, l->buffer[1])),
                  attrs, l->name);
}

static const char *emit_maxpool(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  int64_t k = l->attr.window, s = l->attr.stride, p = l->attr.pad;
  const brim_onnx_attr attrs[] = {{.name = "kernel_shape", INTS(k, k)},
                                  {.name = "strides", INTS(s, s)},
                                  {.name = "pads", INTS(p, p, p, p)},
                                  {0}};
  return add_node(x, "MaxPool", IN(a), attrs, NULL);
}

static const char *emit_mean(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  if (desc(x, l->in[0])->rank != 4) return reduce_mean(x, a, 1, 0);
  const brim_onnx_attr attrs[] = {{.name = "axis", .ints = {1}}, {0}};
  return add_node(x, "Flatten", IN(one(x, "GlobalAveragePool", a)), attrs, NULL);
}

static const char *emit_pos(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)b;
  return two(x, "Add", a, add_param(x, l->param[0]));
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
    part[i] = add_node(x, "Gather", IN(a, add_scalar(x, i)), axis, NULL);
  }
  const char *keys = transpose(x, part[1], 4, (const int64_t[]){0, 1, 3, 2});
  const char *score = two(x, "MatMul", part[0], keys);
  score = two(x, "Mul", score, add_floats(x, 1, &unit, &scale));
  const brim_onnx_attr last[] = {{.name = "axis", .ints = {-1}}, {0}};
  score = add_node(x, "Softmax", IN(score), last, NULL);
  const char *y = two(x, "MatMul", score, part[2]);
  y = transpose(x, y, 4, (const int64_t[]){0, 2, 1, 3});
  return reshape(x, y, 3, (const int64_t[]){0, t->dim[1], width});
}

static const char *emit_concat(brim_onnx *x, const brim_layer *l, const char *a, const char *b) {
  (void)l;
  const brim_onnx_attr attrs[] = {{.name = "axis", .ints = {1}}, {0}};
  return add_node(x, "Concat", IN(a, b), attrs, NULL);
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

static void add_layers(brim_onnx *x) {
  const brim_graph *g = x->g;
  bool has_input = false;
  for (int32_t i = 0; i < g->layer_count && !x->status; i++) {
    const brim_layer *l = &g->layers[i];
    if (strcmp(l->row->name, "input") == 0) {
      input(x, l->out);
      has_input = true;
      continue;
    }
    // the first layer reads a batch that needs no arithmetic
    if (!has_input && l->in[0] == g->input) input(x, g->input);
    has_input = true;
    emit_fn emit = find_row(l->row->name);
    if (!emit) {
      fail_onnx(x, brim_fail(BRIM_EUNSUPPORTED, "layer %s (%s) cannot be exported to ONNX", l->name,
                             l->row->name));
      return;
    }
    const char *b = l->in[1] >= 0 ? x->value[l->in[1]] : NULL;
    x->value[l->out] = emit(x, l, x->value[l->in[0]], b);
  }
}

// Adds an output: a tensor of the graph under this name.
static void add_output(brim_onnx *x, int32_t tensor, const char *name) {
  if (x->status) return;
  brim_str node;
  brim_str_init(&node);
  proto_text(&node, 1, x->value[tensor]);  // NodeProto {input 1, output 2, name 3, op_type 4}
  proto_text(&node, 2, name);
  proto_text(&node, 3, name);
  proto_text(&node, 4, "Identity");
  proto_message(&x->nodes, 1, &node);
  brim_str_deinit(&node);
  x->node_count++;
}

//---------------------------------- the file ----------------------------------

// Protobuf's own limit for one message.
static const uint64_t max_bytes = (uint64_t)INT32_MAX;

//---------------------------------- the file ----------------------------------

// TensorProto {dims 1, data_type 2, name 8, raw_data 9}, without the data.
static void tensor_head(const brim_onnx_tensor *t, brim_str *out) {
  for (int i = 0; i < t->rank; i++) proto_int(out, 1, t->dim[i]);
  proto_int(out, 2, t->type);
  proto_text(out, 8, t->name);
  proto_head(out, 9, t->bytes);
}

static void put_input(const brim_onnx *x, brim_str *graph, brim_onnx_info *info) {
  const brim_net_spec *s = x->spec;
  const int64_t *sample = brim_eval_dim(s);
  int64_t dim[5] = {x->options->batch};
  for (int i = 0; i < s->input_rank; i++) dim[i + 1] = sample[i];
  if (s->input_rank == 3 && !x->options->nhwc) {
    dim[1] = sample[2];
    dim[2] = sample[0];
    dim[3] = sample[1];
  }
  bool bytes = x->options->normalize && s->input_dtype == BRIM_U8;
  proto_value(graph, 11, "input", bytes ? BRIM_ONNX_UINT8 : BRIM_ONNX_FLOAT, s->input_rank + 1,
              dim);
  info->input_dtype = bytes ? BRIM_U8 : BRIM_F32;
  info->input_rank = s->input_rank;
  memcpy(info->input_dim, dim + 1, sizeof info->input_dim);
}

// Writes the fields around the graph: ModelProto {ir_version 1, producer_name 2, producer_version 3,
// opset_import 8, metadata_props 14}
static void put_model(const brim_onnx *x, brim_str *out) {
  int opset = x->options->opset;
  brim_str inner;
  brim_str_init(&inner);
  proto_int(out, 1, opset < 15 ? 7 : opset < 19 ? 8 : opset < 21 ? 9 : 10);
  proto_text(out, 2, "brim");
  proto_text(out, 3, BRIM_VERSION);
  proto_text(&inner, 1, "");  // OperatorSetIdProto {domain 1, version 2}
  proto_int(&inner, 2, opset);
  proto_message(out, 8, &inner);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)x->options->metadata, key, value) {
    if (!json_is_string(value)) continue;
    proto_text(&inner, 1, key);
    proto_text(&inner, 2, json_string_value(value));
    proto_message(out, 14, &inner);
  }
  brim_str_deinit(&inner);
}

// GraphProto {node 1, name 2, initializer 5, input 11, output 12}: the weights go from the mapped
// checkpoint to the file, so only lengths are counted beforehand.
static brim_status write_weights(const brim_onnx *x, brim_fs_writer *w) {
  brim_str head, tensor;
  brim_str_init(&head);
  brim_str_init(&tensor);
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < x->tensor_count && !status; i++) {
    const brim_onnx_tensor *t = &x->tensors[i];
    brim_str_clear(&tensor);
    brim_str_clear(&head);
    tensor_head(t, &tensor);
    proto_head(&head, 5, tensor.len + t->bytes);
    brim_str_append_n(&head, tensor.data, tensor.len);
    status = brim_str_status(&tensor);
    if (!status) status = brim_str_status(&head);
    if (!status) status = brim_fs_writer_write(w, head.data, head.len);
    if (!status) status = brim_fs_writer_write(w, t->data, t->bytes);
  }
  brim_str_deinit(&head);
  brim_str_deinit(&tensor);
  return status;
}

static brim_status weights_bytes(const brim_onnx *x, uint64_t *out) {
  uint64_t bytes = 0;
  brim_str head, tensor;
  brim_str_init(&head);
  brim_str_init(&tensor);
  for (size_t i = 0; i < x->tensor_count; i++) {
    brim_str_clear(&tensor);
    brim_str_clear(&head);
    tensor_head(&x->tensors[i], &tensor);
    proto_head(&head, 5, tensor.len + x->tensors[i].bytes);
    bytes += head.len + tensor.len + x->tensors[i].bytes;
  }
  brim_status status = brim_str_status(&tensor);
  if (!status) status = brim_str_status(&head);
  brim_str_deinit(&head);
  brim_str_deinit(&tensor);
  *out = bytes;
  return status;
}

static brim_status write_file(const brim_onnx *x, const char *path, const brim_str *graph,
                              brim_onnx_info *info) {
  brim_fs_writer *w = NULL;
  brim_str head;
  uint64_t graph_bytes;
  BRIM_TRY(weights_bytes(x, &graph_bytes));
  graph_bytes += graph->len;
  brim_str_init(&head);
  put_model(x, &head);
  proto_head(&head, 7, graph_bytes);  // ModelProto {graph 7}
  info->bytes = head.len + graph_bytes;
  brim_status status = brim_str_status(&head);
  if (!status && info->bytes > max_bytes) {
    status = brim_fail(BRIM_ELIMIT,
                       "%s: the model needs %" PRIu64 " bytes, but an ONNX file holds at most 2 GB",
                       path, info->bytes);
  }
  if (!status) status = brim_fs_writer_open(path, &w);
  if (!status) status = brim_fs_writer_write(w, head.data, head.len);
  if (!status) status = brim_fs_writer_write(w, graph->data, graph->len);
  if (!status) status = write_weights(x, w);
  brim_str_deinit(&head);
  if (status) {
    brim_fs_writer_abort(w);
    return status;
  }
  return brim_fs_writer_commit(w);
}

//---------------------------------- building ----------------------------------

// The tensor of simclr's features: the input of the projector's first layer. -1 = another model.
static int32_t features_of(const brim_onnx *x) {
  if (strcmp(x->spec->model->name, "simclr") != 0) return -1;
  for (int32_t i = 0; i < x->g->layer_count; i++) {
    if (strcmp(x->g->layers[i].name, "projector.0") == 0) return x->g->layers[i].in[0];
  }
  return -1;
}

static void put_output(brim_onnx *x, int32_t tensor, const char *name, brim_str *graph,
                       brim_onnx_info *info) {
  const brim_tensor *t = &x->g->tensors[tensor].desc;
  int64_t dim[] = {x->options->batch, t->dim[t->rank - 1]};
  add_output(x, tensor, name);
  proto_value(graph, 12, name, BRIM_ONNX_FLOAT, 2, dim);
  info->output[info->output_count] = name;
  info->width[info->output_count++] = dim[1];
}

static brim_status export_graph(brim_onnx *x, int32_t output, const char *path,
                                brim_onnx_info *info) {
  brim_str graph;
  brim_str_init(&graph);
  proto_text(&graph, 2, x->options->name ? x->options->name : x->spec->model->name);
  put_input(x, &graph, info);
  add_layers(x);
  int32_t features = features_of(x);
  if (features >= 0) put_output(x, features, "features", &graph, info);
  bool logits = x->spec->classes > 0 || x->options->logits;
  const char *name = features >= 0 ? "projection" : logits ? "logits" : "output";
  put_output(x, output, name, &graph, info);
  brim_status status = x->status;
  brim_str_append_n(&graph, x->nodes.data, x->nodes.len);
  if (!status) status = brim_str_status(&x->nodes);
  if (!status) status = brim_str_status(&graph);
  if (!status) status = write_file(x, path, &graph, info);
  brim_str_deinit(&graph);
  info->nodes = x->node_count;
  info->ema = x->ema;
  if (x->ema && x->plain) brim_engine_warn_statistics(x->spec->model->name);
  for (size_t i = 0; i < x->tensor_count; i++) {
    if (brim_str_starts(x->tensors[i].name, "constant_")) continue;
    info->weights++;
    if (strstr(x->tensors[i].name, "running_")) continue;  // statistics are not trained
    info->parameters += (int64_t)(x->tensors[i].bytes / sizeof(float));
  }
  return status;
}

static brim_status fill(brim_onnx *x, int32_t output, const char *path, brim_onnx_info *info) {
  const brim_graph *g = x->g;
  BRIM_TRY(brim_arena_create(0, &x->arena));
  x->value = brim_arena_calloc(x->arena, (size_t)g->tensor_count, sizeof *x->value);
  x->param_at = brim_arena_calloc(x->arena, g->params->count + 1, sizeof *x->param_at);
  x->buffer_at = brim_arena_calloc(x->arena, g->buffers->count + 1, sizeof *x->buffer_at);
  if (!x->value || !x->param_at || !x->buffer_at) {
    fail_memory(x);
    return x->status;
  }
  for (size_t i = 0; i < g->params->count; i++) x->param_at[i] = -1;
  for (size_t i = 0; i < g->buffers->count; i++) x->buffer_at[i] = -1;
  return export_graph(x, output, path, info);
}

static brim_status check(const brim_net_spec *s, const brim_onnx_options *o) {
  if (o->opset < BRIM_ONNX_OPSET_MIN || o->opset > BRIM_ONNX_OPSET_MAX) {
    return brim_fail(BRIM_EINVAL, "opset %d: brim writes %d to %d", o->opset, BRIM_ONNX_OPSET_MIN,
                     BRIM_ONNX_OPSET_MAX);
  }
  if (!s->model || s->input_rank < 1 || s->input_rank > 4 || o->batch < 0) {
    return brim_fail(BRIM_EINVAL, "an ONNX graph needs a model and the shape of its samples");
  }
  return BRIM_OK;
}

brim_status brim_onnx_export(const brim_net_spec *spec, const brim_safetensors *weights,
                             const brim_onnx_options *options, const char *path,
                             brim_onnx_info *out) {
  memset(out, 0, sizeof *out);
  BRIM_TRY(check(spec, options));
  brim_params params, buffers;
  brim_graph g;
  memset(&g, 0, sizeof g);
  memset(&buffers, 0, sizeof buffers);
  brim_sample sample = brim_sample_of(spec, 1, false);
  int64_t outputs = spec->classes > 0 ? spec->classes : spec->target_dim;
  int32_t output = -1;
  brim_onnx x = {.spec = spec, .options = options, .weights = weights, .g = &g};
  brim_str_init(&x.nodes);
  brim_status status = brim_params_init(&params, BRIM_F32, BRIM_F32);
  if (!status) status = brim_params_init(&buffers, BRIM_F32, BRIM_F32);
  // without a device nothing is fused, so layers stay as the model built them
  if (!status) status = brim_graph_init(&g, &params, NULL, BRIM_F32, false);
  g.buffers = &buffers;
  if (!status) status = brim_model_build(&g, spec->model, &sample, outputs, &output);
  if (!status) status = fill(&x, output, path, out);
  brim_str_deinit(&x.nodes);
  brim_free(x.tensors);
  brim_arena_destroy(x.arena);
  brim_graph_deinit(&g);
  brim_params_deinit(&buffers);
  brim_params_deinit(&params);
  return status;
}
