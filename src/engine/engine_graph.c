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

int64_t brim_params_largest(const brim_params *params) {
  int64_t most = 1;
  for (size_t i = 0; i < params->count; i++) {
    if (params->items[i].count > most) most = params->items[i].count;
  }
  return most;
}

static bool same_shape(const brim_tensor *a, const brim_tensor *b) {
  bool same = a->rank == b->rank;
  for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
  return same;
}

// Every size a parameter is made of was bounded by the model; the product may still not fit.
static bool count_within(const brim_tensor *t, int64_t limit, int64_t *out) {
  *out = 1;
  for (int i = 0; i < t->rank; i++) {
    if (t->dim[i] < 1 || __builtin_mul_overflow(*out, t->dim[i], out) || *out > limit) return false;
  }
  return true;
}

// `made` has shapes, initial values and name of a parameter that may be in the list already.
static brim_status param_add(brim_params *list, const char *name, const brim_param *made,
                             int32_t *out) {
  for (size_t i = 0; i < list->count; i++) {
    if (strcmp(list->items[i].name, name) != 0) continue;
    if (!same_shape(&list->items[i].desc, &made->desc)) {
      return brim_fail(BRIM_EINTERNAL, "parameter %s is used with two different shapes", name);
    }
    *out = (int32_t)i;
    return BRIM_OK;
  }
  if (!grow((void **)&list->items, list->count, &list->capacity, sizeof *list->items)) {
    return no_memory();
  }
  brim_param *p = &list->items[list->count];
  *p = *made;
  p->name = brim_arena_strdup(list->arena, name);
  if (!p->name) return no_memory();
  int64_t limit = INT64_MAX / 64 - list->total;
  if (!count_within(&p->desc, limit, &p->count) ||
      !count_within(&p->outside, limit, &p->outside_count)) {
    return brim_fail(BRIM_ELIMIT, "parameter %s is too large", name);
  }
  p->offset = list->total;
  list->total += (p->count + list->align - 1) / list->align * list->align;
  *out = (int32_t)list->count++;
  return BRIM_OK;
}

static int32_t graph_param(brim_graph *g, const char *name, const brim_param *made) {
  if (g->status) return -1;
  int32_t index = -1;
  brim_graph_fail(g, param_add(g->params, name, made, &index));
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

int32_t brim_graph_param(brim_graph *g, const char *name, int rank, const int64_t *dim,
                         brim_init init, double bound) {
  brim_param made = {.init = init, .bound = bound};
  made.desc = made.outside = brim_tensor_make(NULL, g->params->dtype, rank, dim);
  return graph_param(g, name, &made);
}

int32_t brim_graph_conv_param(brim_graph *g, const char *name, const int64_t dim[4], int64_t padded,
                              double std) {
  const int64_t inside[] = {dim[0], dim[2], dim[3], padded};
  brim_param made = {.conv = true, .init = BRIM_INIT_NORMAL, .bound = std};
  made.desc = brim_tensor_make(NULL, g->params->dtype, 4, inside);
  made.outside = brim_tensor_make(NULL, g->params->dtype, 4, dim);
  return graph_param(g, name, &made);
}

int32_t brim_graph_buffer(brim_graph *g, const char *name, int64_t count, brim_init init) {
  if (g->status) return -1;
  if (!g->buffers) {
    brim_graph_fail(g, brim_fail(BRIM_EINTERNAL, "a graph without buffers has no %s", name));
    return -1;
  }
  brim_param made = {.init = init};
  made.desc = made.outside = brim_tensor_make(NULL, g->buffers->dtype, 1, &count);
  int32_t index = -1;
  brim_graph_fail(g, param_add(g->buffers, name, &made, &index));
  if (g->status) return -1;
  if ((size_t)index >= g->buffer_capacity) {
    size_t next = g->buffer_capacity ? g->buffer_capacity * 2 : 16;
    while (next <= (size_t)index) next *= 2;
    int32_t *moved = brim_realloc(g->buffer_tensor, next * sizeof *moved);
    if (!moved) {
      brim_graph_fail(g, no_memory());
      return -1;
    }
    g->buffer_tensor = moved;
    for (size_t i = g->buffer_capacity; i < next; i++) moved[i] = -1;
    g->buffer_capacity = next;
  }
  return index;
}

int32_t brim_graph_buffer_tensor(brim_graph *g, int32_t buffer) {
  if (g->status) return -1;
  int32_t *slot = &g->buffer_tensor[buffer];
  if (*slot >= 0) return *slot;
  const brim_param *p = &g->buffers->items[buffer];
  int32_t t = brim_graph_tensor(g, p->name, BRIM_TENSOR_BUFFER, p->desc.dtype, 1, p->desc.dim);
  if (t < 0) return -1;
  g->tensors[t].param = buffer;
  g->buffer_tensor[buffer] = t;
  return t;
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
                                 "a layer shares only some of its parameters with another layer"));
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
  brim_free(g->buffer_tensor);
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
  t->param = t->layer = t->grad = t->grad2 = -1;
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
  n->layer = g->layer;
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
  for (int i = 0; i < BRIM_LAYER_MAX_BUFFERS; i++) l->buffer[i] = -1;
  l->segment = g->in_segment ? g->segments : 0;
  for (int i = 0; i < in_count; i++) {
    l->in[i] = in[i];
    g->tensors[in[i]].users++;
  }
  g->layer_count++;
  return l;
}

// The second part waits: some layers can take both as they are (see brim_graph_grad).
void brim_graph_add_grad(brim_graph *g, int32_t tensor, int32_t grad) {
  if (g->status) return;
  if (g->tensors[tensor].grad2 >= 0) brim_graph_grad(g, tensor);
  if (g->status) return;
  brim_gtensor *t = &g->tensors[tensor];
  if (t->grad < 0) {
    t->grad = grad;
  } else {
    t->grad2 = grad;
  }
}

int32_t brim_graph_grad(brim_graph *g, int32_t tensor) {
  if (g->status) return -1;
  int32_t in[] = {g->tensors[tensor].grad, g->tensors[tensor].grad2};
  if (in[1] < 0) return in[0];
  int32_t sum = brim_graph_like(g, in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_ADD, NULL, in, 2, &sum, 1);
  if (g->status) return -1;
  g->tensors[tensor].grad = sum;
  g->tensors[tensor].grad2 = -1;
  return sum;
}

// Rows and statistics of batch norm come in groups; parameters and running statistics do not.
static brim_tensor part_of(const brim_gtensor *t, int32_t groups) {
  brim_tensor part = t->desc;
  if (groups > 1 && brim_tensor_in_arena(t->kind)) part.dim[0] /= groups;
  return part;
}

// Batch norm's rows of (N,C) are images of one pixel; its sums are none.
static void as_pixels(const brim_graph *g, int32_t tensor, brim_tensor *t) {
  if (t->rank != 2 || g->tensors[tensor].kind == BRIM_TENSOR_STATISTIC) return;
  t->rank = 4;
  t->dim[3] = t->dim[1];
  t->dim[1] = t->dim[2] = 1;
}

static bool is_batchnorm(brim_op op) {
  return op == BRIM_OP_BATCHNORM || op == BRIM_OP_BATCHNORM_APPLY || op == BRIM_OP_BATCHNORM_BWD ||
         op == BRIM_OP_BATCHNORM_PART || op == BRIM_OP_BATCHNORM_BWD_SUMS ||
         op == BRIM_OP_BATCHNORM_BWD_JOINED;
}

void brim_graph_call(const brim_graph *g, const brim_gnode *node, brim_op_call *call) {
  memset(call, 0, sizeof *call);
  call->op = node->op;
  call->attr = node->attr;
  call->in_count = node->in_count;
  call->out_count = node->out_count;
  for (int i = 0; i < node->in_count; i++) {
    if (node->in[i] >= 0) call->in[i] = part_of(&g->tensors[node->in[i]], node->groups);
  }
  for (int i = 0; i < node->out_count; i++) {
    if (node->out[i] >= 0) call->out[i] = part_of(&g->tensors[node->out[i]], node->groups);
  }
  if (!is_batchnorm(node->op)) return;
  for (int i = 0; i < node->in_count; i++) as_pixels(g, node->in[i], &call->in[i]);
  for (int i = 0; i < node->out_count; i++) as_pixels(g, node->out[i], &call->out[i]);
}

static void move_to(const brim_graph *g, int32_t tensor, int32_t group, brim_tensor *t) {
  if (tensor < 0 || !brim_tensor_in_arena(g->tensors[tensor].kind)) return;
  t->data = (unsigned char *)t->data + (size_t)group * brim_tensor_bytes(t);
}

void brim_graph_group_call(const brim_graph *g, const brim_gnode *node, int32_t group,
                           const brim_op_call *whole, brim_op_call *call) {
  *call = *whole;
  for (int i = 0; i < node->in_count; i++) move_to(g, node->in[i], group, &call->in[i]);
  for (int i = 0; i < node->out_count; i++) move_to(g, node->out[i], group, &call->out[i]);
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
    while (!l->fused && l->row->fuse) {
      brim_layer *next = only_reader(g, l->out);
      if (!next || next->segment != l->segment || !l->row->fuse(g, l, next)) break;
      next->fused = true;
      for (int k = 0; k < BRIM_LAYER_MAX_IN; k++) next->in[k] = -1;  // l reads them now
      l->out = next->out;
      g->tensors[l->out].layer = i;
    }
  }
  return g->status;
}

brim_status brim_graph_forward(brim_graph *g) {
  for (int32_t i = 0; !g->status && i < g->layer_count; i++) {
    g->layer = g->layers[i].name;
    if (!g->layers[i].fused) g->layers[i].row->forward(g, &g->layers[i]);
  }
  g->layer = NULL;
  return g->status;
}

brim_status brim_graph_loss(brim_graph *g, brim_op op, const brim_op_attr *attr, int32_t output,
                            int32_t target) {
  if (g->status) return g->status;
  g->target = target;
  g->tensors[output].users++;
  int32_t in[3] = {output};
  int count = 1;
  if (target >= 0) in[count++] = target;
  in[count++] = g->state;
  int32_t out[] = {g->metrics, -1};
  if (g->training) {
    out[1] = brim_graph_like(g, output, BRIM_TENSOR_GRADIENT);
    if (!g->status) g->tensors[output].grad = out[1];
  }
  g->layer = "loss";
  brim_graph_node(g, op, attr, in, count, out, g->training ? 2 : 1);
  g->layer = NULL;
  return g->status;
}

brim_status brim_graph_given_grad(brim_graph *g, int32_t output) {
  if (g->status) return g->status;
  brim_tensor t = g->tensors[output].desc;
  g->tensors[output].users++;
  g->target = brim_graph_tensor(g, "gradient", BRIM_TENSOR_TARGET, t.dtype, t.rank, t.dim);
  if (!g->status) g->tensors[output].grad = g->target;
  return g->status;
}

brim_status brim_graph_external_loss(brim_graph *g, int32_t output) {
  if (g->status) return g->status;
  g->tensors[output].users++;
  int32_t gradient = brim_graph_like(g, output, BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_COUNT, NULL, &output, 1, &gradient, 1);
  if (!g->status) g->tensors[output].grad = gradient;
  return g->status;
}

//---------------------------------- recomputation ----------------------------------

void brim_graph_segment_begin(brim_graph *g) {
  g->segments++;
  g->in_segment = true;
}

void brim_graph_segment_end(brim_graph *g) { g->in_segment = false; }

// Readers of a tensor within a segment; the others keep it alive anyway.
static int32_t readers_within(const brim_graph *g, int32_t tensor, int32_t segment) {
  int32_t readers = 0;
  for (int32_t i = 0; i < g->layer_count; i++) {
    const brim_layer *l = &g->layers[i];
    if (l->segment != segment) continue;
    for (int k = 0; k < BRIM_LAYER_MAX_IN; k++) readers += l->in[k] == tensor;
  }
  return readers;
}

// From now on the segment's layers mean `to` where they meant `from`.
static void replace_tensor(brim_graph *g, int32_t segment, int32_t from, int32_t to) {
  for (int32_t i = 0; i < g->layer_count; i++) {
    brim_layer *l = &g->layers[i];
    if (l->segment != segment) continue;
    for (int k = 0; k < BRIM_LAYER_MAX_IN; k++) {
      if (l->in[k] == from) l->in[k] = to;
    }
    if (l->out == from) l->out = to;
  }
}

// Emit the segment's forward nodes once more, into tensors of their own, and let its layers go back
// through those. What leaves the segment is still there; so are statistics, which makes the second
// time give the bits of the first and leaves running statistics alone.
static void recompute_segment(brim_graph *g, int32_t segment) {
  for (int32_t i = 0; !g->status && i < g->layer_count; i++) {
    if (g->layers[i].segment != segment || g->layers[i].fused) continue;
    int32_t old = g->layers[i].out;
    if (g->tensors[old].users != readers_within(g, old, segment)) continue;
    int32_t again = brim_graph_like(g, old, BRIM_TENSOR_ACTIVATION);
    if (g->status) return;
    brim_gtensor *t = &g->tensors[again];
    t->layer = i;
    t->users = g->tensors[old].users;
    t->needs_grad = g->tensors[old].needs_grad;
    replace_tensor(g, segment, old, again);
    brim_layer *l = &g->layers[i];
    g->layer = l->name;
    if (l->row->recompute) {
      l->row->recompute(g, l);
    } else {
      l->row->forward(g, l);
    }
  }
}

// Backward nodes whose results no node reads, such as the last product of a recomputed block:
// what left the block is still there. Everything outside the arena counts as read.
static void drop_dead_nodes(brim_graph *g, int32_t first) {
  bool *read = brim_calloc((size_t)g->tensor_count, sizeof *read);
  bool *live = brim_calloc((size_t)g->node_count, sizeof *live);
  if (!read || !live) {
    brim_graph_fail(g, no_memory());
    goto done;
  }
  for (int32_t n = g->node_count - 1; n >= first; n--) {
    const brim_gnode *node = &g->nodes[n];
    for (int i = 0; i < node->out_count; i++) {
      int32_t t = node->out[i];
      if (t < 0) continue;
      const brim_gtensor *tensor = &g->tensors[t];
      live[n] = live[n] || read[t] || tensor->keep || !brim_tensor_in_arena(tensor->kind);
    }
    for (int i = 0; live[n] && i < node->in_count; i++) {
      if (node->in[i] >= 0) read[node->in[i]] = true;
    }
  }
  int32_t count = first;
  for (int32_t n = first; n < g->node_count; n++) {
    if (live[n]) g->nodes[count++] = g->nodes[n];
  }
  g->node_count = count;
done:
  brim_free(live);
  brim_free(read);
}

brim_status brim_graph_backward(brim_graph *g) {
  int32_t first = g->node_count, segment = 0;
  for (int32_t i = g->layer_count - 1; !g->status && i >= 0; i--) {
    brim_layer *l = &g->layers[i];
    if (l->fused || !l->row->backward || g->tensors[l->out].grad < 0) continue;
    if (l->segment != segment && l->segment > 0 && l->segment <= g->recompute) {
      recompute_segment(g, l->segment);
      if (g->status) break;
    }
    segment = l->segment;
    g->layer = l->name;
    l->row->backward(g, &g->layers[i]);
  }
  g->layer = NULL;
  if (!g->status) drop_dead_nodes(g, first);
  for (int32_t i = first; i < g->node_count; i++) g->nodes[i].backward = true;
  return g->status;
}
