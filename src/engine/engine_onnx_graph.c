// The graph of an ONNX file under construction: constants, weights out of a checkpoint, nodes.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_onnx_int.h"

void brim_onnx_fail(brim_onnx *x, brim_status status) {
  if (!x->status) x->status = status;
}

void brim_onnx_no_memory(brim_onnx *x) {
  brim_onnx_fail(x, brim_fail(BRIM_ENOMEM, "out of memory while writing the ONNX graph"));
}

//---------------------------------- constants and weights ----------------------------------

// Index of a new initialiser whose name and values live long enough; -1 once something failed.
static int32_t add_tensor(brim_onnx *x, const brim_onnx_tensor *t) {
  if (x->status) return -1;
  if (x->tensor_count == x->tensor_capacity) {
    size_t capacity = x->tensor_capacity ? 2 * x->tensor_capacity : 64;
    brim_onnx_tensor *grown = brim_realloc(x->tensors, capacity * sizeof *grown);
    if (!grown) {
      brim_onnx_no_memory(x);
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
    brim_onnx_no_memory(x);
    return NULL;
  }
  memcpy(copy, values, bytes);
  t.data = copy;
  return add_tensor(x, &t) < 0 ? NULL : t.name;
}

const char *brim_onnx_ints(brim_onnx *x, int count, const int64_t *values) {
  int64_t dim = count;
  return add_constant(x, BRIM_ONNX_INT64, 1, &dim, values, (size_t)count * sizeof *values);
}

const char *brim_onnx_scalar(brim_onnx *x, int64_t value) {
  return add_constant(x, BRIM_ONNX_INT64, 0, NULL, &value, sizeof value);
}

const char *brim_onnx_floats(brim_onnx *x, int rank, const int64_t *dim, const float *values) {
  size_t count = 1;
  for (int i = 0; i < rank; i++) count *= (size_t)dim[i];
  return add_constant(x, BRIM_ONNX_FLOAT, rank, dim, values, count * sizeof *values);
}

static const brim_safetensors_entry *find_entry(brim_onnx *x, const char *name) {
  const char *ema = x->options->ema;
  if (ema) {
    const char *averaged = brim_arena_printf(x->arena, "%s%s", ema, name);
    if (!averaged) {
      brim_onnx_no_memory(x);
      return NULL;
    }
    const brim_safetensors_entry *e = brim_safetensors_find(x->weights, averaged);
    if (e) x->ema = true;
    if (e) return e;
    x->plain = true;
  }
  return brim_safetensors_find(x->weights, name);
}

// The weight of a parameter or buffer, checked against what the model needs.
static const char *weight(brim_onnx *x, const brim_param *p, int32_t *at) {
  if (x->status) return NULL;
  if (*at >= 0) return x->tensors[*at].name;
  const brim_safetensors_entry *e = find_entry(x, p->name);
  if (x->status) return NULL;
  bool good = e && e->dtype == BRIM_F32 && e->rank == p->outside.rank;
  for (int i = 0; good && i < e->rank; i++) good = e->dim[i] == p->outside.dim[i];
  if (!good) {
    brim_onnx_fail(x, brim_fail(BRIM_EINVAL,
                                e ? "the checkpoint's entry '%s' does not fit the model %s; was it "
                                    "trained on samples of another shape?"
                                  : "the checkpoint has no entry '%s', which the model %s needs",
                                p->name, x->spec->model->name));
    return NULL;
  }
  brim_onnx_fail(x, brim_safetensors_finite(x->weights, e));
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

const char *brim_onnx_param(brim_onnx *x, int32_t param) {
  return weight(x, &x->g->params->items[param], &x->param_at[param]);
}

const char *brim_onnx_buffer(brim_onnx *x, int32_t buffer) {
  return weight(x, &x->g->buffers->items[buffer], &x->buffer_at[buffer]);
}

//---------------------------------- nodes ----------------------------------

// AttributeProto {name 1, f 2, i 3, ints 8, type 20}; types FLOAT 1, INT 2, INTS 7.
static void put_attribute(brim_str *node, const brim_onnx_attr *a) {
  brim_str attr;
  brim_str_init(&attr);
  brim_proto_text(&attr, 1, a->name);
  if (a->count > 0) {
    for (int i = 0; i < a->count; i++) brim_proto_int(&attr, 8, a->ints[i]);
  } else if (a->real) {
    brim_proto_float(&attr, 2, a->number);
  } else {
    brim_proto_int(&attr, 3, a->ints[0]);
  }
  brim_proto_int(&attr, 20, a->count > 0 ? 7 : a->real ? 1 : 2);
  brim_proto_message(node, 5, &attr);
  brim_str_deinit(&attr);
}

// NodeProto {input 1, output 2, name 3, op_type 4, attribute 5}
const char *brim_onnx_node(brim_onnx *x, const char *op, const char *const *in,
                           const brim_onnx_attr *attrs, const char *hint) {
  if (x->status) return NULL;
  const char *out = hint && hint[0] ? brim_arena_printf(x->arena, "%s_%d", hint, x->node_count)
                                    : brim_arena_printf(x->arena, "%s_%d", op, x->node_count);
  if (!out) {
    brim_onnx_no_memory(x);
    return NULL;
  }
  brim_str node;
  brim_str_init(&node);
  for (; *in; in++) brim_proto_text(&node, 1, *in);
  brim_proto_text(&node, 2, out);
  brim_proto_text(&node, 3, out);
  brim_proto_text(&node, 4, op);
  for (; attrs && attrs->name; attrs++) put_attribute(&node, attrs);
  brim_proto_message(&x->nodes, 1, &node);
  brim_str_deinit(&node);
  if (brim_str_status(&x->nodes)) brim_onnx_no_memory(x);
  x->node_count++;
  return out;
}
