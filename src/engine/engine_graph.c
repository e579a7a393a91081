// Graph storage and the passes over it: parameters, tensors, nodes, fusing, lowering, reverse mode.
// What the single layers do is in engine_layers.c.
#include "engine/engine_graph.h"

#include <string.h>

//---------------------------------- growing lists ----------------------------------

// Room for one more item; the count stays with the caller.
static bool grow(void **items, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity) return true;
  size_t next = *capacity ? *capacity * 2 : 16;
  void *moved = brim_realloc(*items, next * size);
  if (!moved) return false;
  *items = moved;
  *capacity = next;
  return true;
}

static bool grow32(void **items, int32_t count, int32_t *capacity, size_t size) {
  size_t cap = (size_t)*capacity;
  if (!grow(items, (size_t)count, &cap, size)) return false;
  *capacity = (int32_t)cap;
  return true;
}

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while building the graph");
}

void brim_graph_fail(brim_graph *g, brim_status status) {
  if (!g->status) g->status = status;
}

//---------------------------------- parameters ----------------------------------

brim_status brim_params_init(brim_params *params, brim_dtype master, brim_dtype compute) {
  memset(params, 0, sizeof *params);
  size_t smallest = brim_dtype_size(master);
  if (brim_dtype_size(compute) < smallest) smallest = brim_dtype_size(compute);
  params->align = (int64_t)(BRIM_ALIGN / smallest);
  params->dtype = master;
  return brim_arena_create(0, &params->arena);
}

void brim_params_deinit(brim_params *params) {
  brim_free(params->items);
  brim_arena_destroy(params->arena);
  memset(params, 0, sizeof *params);
}

static brim_status param_found(const brim_param *p, int rank, const int64_t *dim, int32_t index,
                               int32_t *out) {
  bool same = p->desc.rank == rank;
  for (int i = 0; same && i < rank; i++) same = p->desc.dim[i] == dim[i];
  if (!same) {
    return brim_fail(BRIM_EINTERNAL, "parameter %s is used with two different shapes", p->name);
  }
  *out = index;
  return BRIM_OK;
}

static brim_status param_add(brim_params *list, const char *name, int rank, const int64_t *dim,
                             brim_init init, double bound, int32_t *out) {
  for (size_t i = 0; i < list->count; i++) {
    if (strcmp(list->items[i].name, name) == 0) {
      return param_found(&list->items[i], rank, dim, (int32_t)i, out);
    }
  }
  if (!grow((void **)&list->items, list->count, &list->capacity, sizeof *list->items)) {
    return no_memory();
  }
  brim_param *p = &list->items[list->count];
  memset(p, 0, sizeof *p);
  p->name = brim_arena_strdup(list->arena, name);
  if (!p->name) return no_memory();
  p->desc = brim_tensor_make(NULL, list->dtype, rank, dim);
  // Every size a parameter is made of was bounded by the model; the product may still not fit.
  int64_t count = 1, limit = INT64_MAX / 64 - list->total;
  for (int i = 0; i < rank; i++) {
    if (dim[i] < 1 || __builtin_mul_overflow(count, dim[i], &count) || count > limit) {
      return brim_fail(BRIM_ELIMIT, "parameter %s is too large", name);
    }
  }
  p->count = count;
  p->offset = list->total;
  p->init = init;
  p->bound = bound;
  list->total += (count + list->align - 1) / list->align * list->align;
  *out = (int32_t)list->count++;
  return BRIM_OK;
}

int32_t brim_graph_param(brim_graph *g, const char *name, int rank, const int64_t *dim,
                         brim_init init, double bound) {
  if (g->status) return -1;
  int32_t index = -1;
  brim_graph_fail(g, param_add(g->params, name, rank, dim, init, bound, &index));
  if (g->status) return -1;
  if ((size_t)index >= g->param_capacity) {
    size_t next = g->param_capacity ? g->param_capacity * 2 : 16;
    while (next <= (size_t)index) next *= 2;
    void *tensors = brim_realloc(g->param_tensor, next * sizeof *g->param_tensor);
    if (tensors) g->param_tensor = tensors;
    void *written = tensors ? brim_realloc(g->grad_written, next * sizeof *g->grad_written) : NULL;
    if (!written) {
      brim_graph_fail(g, no_memory());
      return -1;
    }
    g->grad_written = written;
    for (size_t i = g->param_capacity; i < next; i++) {
      g->grad_written[i] = false;
      for (int k = 0; k < 3; k++) g->param_tensor[i][k] = -1;
    }
    g->param_capacity = next;
  }
  return index;
}

int32_t brim_graph_param_tensor(brim_graph *g, int32_t param, brim_tensor_kind kind) {
  if (g->status) return -1;
  int32_t *slot = &g->param_tensor[param][kind - BRIM_TENSOR_PARAM];
  if (*slot >= 0) return *slot;
  const brim_param *p = &g->params->items[param];
  brim_dtype dtype = kind == BRIM_TENSOR_PARAM_COPY ? g->dtype : g->params->dtype;
  int32_t t = brim_graph_tensor(g, p->name, kind, dtype, p->desc.rank, p->desc.dim);
  if (t < 0) return -1;
  g->tensors[t].param = param;
  *slot = t;
  return t;
}

int32_t brim_graph_param_value(brim_graph *g, int32_t param) {
  bool copied = g->dtype != g->params->dtype;
  return brim_graph_param_tensor(g, param, copied ? BRIM_TENSOR_PARAM_COPY : BRIM_TENSOR_PARAM);
}

bool brim_graph_param_written(brim_graph *g, const int32_t *param, int count) {
  if (g->status) return false;
  bool any = false, all = true;
  for (int i = 0; i < count; i++) {
    if (param[i] < 0) continue;
    bool written = g->grad_written[param[i]];
    any = any || written;
    all = all && written;
    g->grad_written[param[i]] = true;
  }
  if (any && !all) {
    brim_graph_fail(g, brim_fail(BRIM_EUNSUPPORTED,
                                 "a layer that shares only some of its parameters with another"));
  }
  return any;
}

//---------------------------------- tensors and nodes ----------------------------------

brim_status brim_graph_init(brim_graph *g, brim_params *params, brim_device *device,
                            brim_dtype dtype, bool training) {
  memset(g, 0, sizeof *g);
  g->params = params;
  g->device = device;
  g->dtype = dtype;
  g->training = training;
  g->input = g->target = g->state = g->metrics = -1;
  BRIM_TRY(brim_arena_create(0, &g->arena));
  const int64_t states = BRIM_STATE_COUNT, metrics = BRIM_METRIC_COUNT;
  g->state = brim_graph_tensor(g, "state", BRIM_TENSOR_STATE, BRIM_F64, 1, &states);
  g->metrics = brim_graph_tensor(g, "metrics", BRIM_TENSOR_METRICS, params->dtype, 1, &metrics);
  return g->status;
}

void brim_graph_deinit(brim_graph *g) {
  brim_free(g->tensors);
  brim_free(g->layers);
  brim_free(g->nodes);
  brim_free(g->param_tensor);
  brim_free(g->grad_written);
  brim_arena_destroy(g->arena);
  memset(g, 0, sizeof *g);
}

int32_t brim_graph_tensor(brim_graph *g, const char *name, brim_tensor_kind kind, brim_dtype dtype,
                          int rank, const int64_t *dim) {
  if (g->status) return -1;
  if (!grow32((void **)&g->tensors, g->tensor_count, &g->tensor_capacity, sizeof *g->tensors)) {
    brim_graph_fail(g, no_memory());
    return -1;
  }
  int64_t bytes = (int64_t)brim_dtype_size(dtype);
  for (int i = 0; i < rank; i++) {
    if (dim[i] < 1 || __builtin_mul_overflow(bytes, dim[i], &bytes) || bytes > INT64_MAX / 64) {
      brim_graph_fail(
          g, brim_fail(BRIM_ELIMIT, "a tensor of %s is too large; use a smaller batch", name));
      return -1;
    }
  }
  brim_gtensor *t = &g->tensors[g->tensor_count];
  memset(t, 0, sizeof *t);
  t->name = name;
  t->kind = kind;
  t->desc = brim_tensor_make(NULL, dtype, rank, dim);
  t->param = t->layer = t->grad = -1;
  return g->tensor_count++;
}

int32_t brim_graph_like(brim_graph *g, int32_t tensor, brim_tensor_kind kind) {
  if (g->status) return -1;
  brim_gtensor t = g->tensors[tensor];
  return brim_graph_tensor(g, t.name, kind, t.desc.dtype, t.desc.rank, t.desc.dim);
}

void brim_graph_node(brim_graph *g, brim_op op, const brim_op_attr *attr, const int32_t *in,
                     int in_count, const int32_t *out, int out_count) {
  if (g->status) return;
  if (!grow32((void **)&g->nodes, g->node_count, &g->node_capacity, sizeof *g->nodes)) {
    brim_graph_fail(g, no_memory());
    return;
  }
  brim_gnode *n = &g->nodes[g->node_count++];
  memset(n, 0, sizeof *n);
  n->op = op;
  if (attr) n->attr = *attr;
  n->in_count = in_count;
  n->out_count = out_count;
  memcpy(n->in, in, (size_t)in_count * sizeof *in);
  memcpy(n->out, out, (size_t)out_count * sizeof *out);
}

brim_layer *brim_graph_layer(brim_graph *g, const brim_layer_row *row, const char *name,
                             const int32_t *in, int in_count) {
  if (g->status) return NULL;
  if (!grow32((void **)&g->layers, g->layer_count, &g->layer_capacity, sizeof *g->layers)) {
    brim_graph_fail(g, no_memory());
    return NULL;
  }
  brim_layer *l = &g->layers[g->layer_count];
  memset(l, 0, sizeof *l);
  l->row = row;
  l->name = brim_arena_strdup(g->arena, name);
  if (!l->name) {
    brim_graph_fail(g, no_memory());
    return NULL;
  }
  l->out = -1;
  for (int i = 0; i < BRIM_LAYER_MAX_IN; i++) l->in[i] = -1;
  for (int i = 0; i < BRIM_LAYER_MAX_PARAMS; i++) l->param[i] = -1;
  for (int i = 0; i < BRIM_LAYER_MAX_SAVED; i++) l->saved[i] = -1;
  for (int i = 0; i < in_count; i++) {
    l->in[i] = in[i];
    g->tensors[in[i]].users++;
  }
  g->layer_count++;
  return l;
}

void brim_graph_add_grad(brim_graph *g, int32_t tensor, int32_t grad) {
  if (g->status) return;
  int32_t have = g->tensors[tensor].grad;
  if (have >= 0) {
    int32_t in[] = {have, grad};
    int32_t sum = brim_graph_like(g, grad, BRIM_TENSOR_GRADIENT);
    brim_graph_node(g, BRIM_OP_ADD, NULL, in, 2, &sum, 1);
    if (g->status) return;
    grad = sum;
  }
  g->tensors[tensor].grad = grad;
}

void brim_graph_call(const brim_graph *g, const brim_gnode *node, brim_op_call *call) {
  memset(call, 0, sizeof *call);
  call->op = node->op;
  call->attr = node->attr;
  call->in_count = node->in_count;
  call->out_count = node->out_count;
  for (int i = 0; i < node->in_count; i++) {
    if (node->in[i] >= 0) call->in[i] = g->tensors[node->in[i]].desc;
  }
  for (int i = 0; i < node->out_count; i++) {
    if (node->out[i] >= 0) call->out[i] = g->tensors[node->out[i]].desc;
  }
}

//---------------------------------- passes ----------------------------------

// The layer that reads a tensor, when it is the only one and the value is not wanted besides.
static brim_layer *only_reader(brim_graph *g, int32_t tensor) {
  if (g->tensors[tensor].users != 1 || g->tensors[tensor].keep) return NULL;
  for (int32_t i = 0; i < g->layer_count; i++) {
    brim_layer *l = &g->layers[i];
    for (int k = 0; !l->fused && k < BRIM_LAYER_MAX_IN; k++) {
      if (l->in[k] == tensor) return l;
    }
  }
  return NULL;
}

brim_status brim_graph_fuse(brim_graph *g) {
  for (int32_t i = 0; !g->status && i < g->layer_count; i++) {
    brim_layer *l = &g->layers[i];
    if (l->fused || !l->row->fuse) continue;
    brim_layer *next = only_reader(g, l->out);
    if (!next || !l->row->fuse(g, l, next)) continue;
    next->fused = true;
    l->out = next->out;
    g->tensors[l->out].layer = i;
  }
  return g->status;
}

brim_status brim_graph_forward(brim_graph *g) {
  for (int32_t i = 0; !g->status && i < g->layer_count; i++) {
    if (!g->layers[i].fused) g->layers[i].row->forward(g, &g->layers[i]);
  }
  return g->status;
}

brim_status brim_graph_loss(brim_graph *g, brim_op op, const brim_op_attr *attr, int32_t output,
                            int32_t target) {
  if (g->status) return g->status;
  g->target = target;
  int32_t in[] = {output, target, g->state};
  int32_t out[] = {g->metrics, -1};
  if (g->training) {
    out[1] = brim_graph_like(g, output, BRIM_TENSOR_GRADIENT);
    if (!g->status) g->tensors[output].grad = out[1];
  }
  brim_graph_node(g, op, attr, in, 3, out, g->training ? 2 : 1);
  return g->status;
}

brim_status brim_graph_backward(brim_graph *g) {
  int32_t first = g->node_count;
  for (int32_t i = g->layer_count - 1; !g->status && i >= 0; i--) {
    brim_layer *l = &g->layers[i];
    if (l->fused || !l->row->backward || g->tensors[l->out].grad < 0) continue;
    l->row->backward(g, l);
  }
  for (int32_t i = first; i < g->node_count; i++) g->nodes[i].backward = true;
  return g->status;
}
