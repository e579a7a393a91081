// The graph of a network: its storage, the passes over it (parameters, tensors, nodes, fusing, lowering,
// reverse mode), the layers, and the models made of layers. A layer is one row with the builder call
// that models use; a model is one row by component name.
#include "engine/engine_graph.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_int.h"

static int32_t whole_grad(brim_graph *g, int32_t tensor);

//---------------------------------- growing lists ----------------------------------

// Makes room for one more item; the caller keeps the count.
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

static void graph_fail(brim_graph *g, brim_status status) {
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

static bool same_shape(const brim_tensor *a, const brim_tensor *b) {
  bool same = a->rank == b->rank;
  for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
  return same;
}

// Multiplies the sizes of a parameter; false if the product exceeds `limit`. The model has bounded each size.
static bool count_within(const brim_tensor *t, int64_t limit, int64_t *out) {
  *out = 1;
  for (int i = 0; i < t->rank; i++) {
    if (t->dim[i] < 1 || __builtin_mul_overflow(*out, t->dim[i], out) || *out > limit) return false;
  }
  return true;
}

// Adds a parameter, or finds it in the list. `made` has its shapes, initial values and name.
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
  graph_fail(g, param_add(g->params, name, made, &index));
  if (g->status) return -1;
  if ((size_t)index >= g->param_capacity) {
    size_t next = g->param_capacity ? g->param_capacity * 2 : 16;
    while (next <= (size_t)index) next *= 2;
    void *tensors = brim_realloc(g->param_tensor, next * sizeof *g->param_tensor);
    if (tensors) g->param_tensor = tensors;
    void *written = tensors ? brim_realloc(g->grad_written, next * sizeof *g->grad_written) : NULL;
    if (!written) {
      graph_fail(g, no_memory());
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

// A parameter by name: made on first use, found (and checked) later. Index, or -1.
static int32_t add_param(brim_graph *g, const char *name, int rank, const int64_t *dim,
                         brim_init init, double bound) {
  brim_param made = {.init = init, .bound = bound};
  made.desc = made.outside = brim_tensor_make(NULL, g->params->dtype, rank, dim);
  return graph_param(g, name, &made);
}

// The weight of a convolution, (M,C,R,S) outside, with `padded` >= C channels inside.
static int32_t add_conv_param(brim_graph *g, const char *name, const int64_t dim[4], int64_t padded,
                              double std) {
  const int64_t inside[] = {dim[0], dim[2], dim[3], padded};
  brim_param made = {.conv = true, .init = BRIM_INIT_NORMAL, .bound = std};
  made.desc = brim_tensor_make(NULL, g->params->dtype, 4, inside);
  made.outside = brim_tensor_make(NULL, g->params->dtype, 4, dim);
  return graph_param(g, name, &made);
}

// A buffer by name, like add_param.
static int32_t add_buffer(brim_graph *g, const char *name, int64_t count, brim_init init) {
  if (g->status) return -1;
  if (!g->buffers) {
    graph_fail(g, brim_fail(BRIM_EINTERNAL, "a graph without buffers has no %s", name));
    return -1;
  }
  brim_param made = {.init = init};
  made.desc = made.outside = brim_tensor_make(NULL, g->buffers->dtype, 1, &count);
  int32_t index = -1;
  graph_fail(g, param_add(g->buffers, name, &made, &index));
  if (g->status) return -1;
  if ((size_t)index >= g->buffer_capacity) {
    size_t next = g->buffer_capacity ? g->buffer_capacity * 2 : 16;
    while (next <= (size_t)index) next *= 2;
    int32_t *moved = brim_realloc(g->buffer_tensor, next * sizeof *moved);
    if (!moved) {
      graph_fail(g, no_memory());
      return -1;
    }
    g->buffer_tensor = moved;
    for (size_t i = g->buffer_capacity; i < next; i++) moved[i] = -1;
    g->buffer_capacity = next;
  }
  return index;
}

static int32_t buffer_tensor(brim_graph *g, int32_t buffer) {
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

static int32_t param_tensor_of(brim_graph *g, int32_t param, brim_tensor_kind kind) {
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

// The tensor that ops of type T read: the 16-bit copy if there is one, else the master.
static int32_t param_value(brim_graph *g, int32_t param) {
  bool copied = g->dtype != g->params->dtype;
  return param_tensor_of(g, param, copied ? BRIM_TENSOR_PARAM_COPY : BRIM_TENSOR_PARAM);
}

// Notes that a node is about to write these gradients; true if it must add to what is there.
static bool param_written(brim_graph *g, const int32_t *param, int count) {
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
    graph_fail(g, brim_fail(BRIM_EUNSUPPORTED,
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
    graph_fail(g, no_memory());
    return -1;
  }
  int64_t bytes = (int64_t)brim_dtype_size(dtype);
  for (int i = 0; i < rank; i++) {
    if (dim[i] < 1 || __builtin_mul_overflow(bytes, dim[i], &bytes) || bytes > INT64_MAX / 64) {
      graph_fail(g,
                 brim_fail(BRIM_ELIMIT, "a tensor of %s is too large; use a smaller batch", name));
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
    graph_fail(g, no_memory());
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

// Adds a layer; NULL after a failure, which is in g->status.
static brim_layer *add_layer(brim_graph *g, const brim_layer_row *row, const char *name,
                             const int32_t *in, int in_count) {
  if (g->status) return NULL;
  if (!grow32((void **)&g->layers, g->layer_count, &g->layer_capacity, sizeof *g->layers)) {
    graph_fail(g, no_memory());
    return NULL;
  }
  brim_layer *l = &g->layers[g->layer_count];
  memset(l, 0, sizeof *l);
  l->row = row;
  l->name = brim_arena_strdup(g->arena, name);
  if (!l->name) {
    graph_fail(g, no_memory());
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

// Adds a part to the gradient of a tensor. A second part is kept in grad2, because some layers read both parts
// separately; whole_grad adds them.
static void add_grad(brim_graph *g, int32_t tensor, int32_t grad) {
  if (g->status) return;
  if (g->tensors[tensor].grad2 >= 0) whole_grad(g, tensor);
  if (g->status) return;
  brim_gtensor *t = &g->tensors[tensor];
  if (t->grad < 0) {
    t->grad = grad;
  } else {
    t->grad2 = grad;
  }
}

// The whole gradient of a tensor. Appends an ADD node if the gradient has two parts.
static int32_t whole_grad(brim_graph *g, int32_t tensor) {
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

// The part of a tensor for one group. Rows and statistics of batch norm are split into groups; parameters and
// running statistics are not.
static brim_tensor part_of(const brim_gtensor *t, int32_t groups) {
  brim_tensor part = t->desc;
  if (groups > 1 && brim_tensor_in_arena(t->kind)) part.dim[0] /= groups;
  return part;
}

// Turns batch norm's rows (N,C) into images of one pixel. Does not change its sums.
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

// The layer that reads a tensor, if it is the only reader and nothing else needs the value.
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

// Fuses a layer with the next ones, as far as the device can compute them in one call.
static void fuse_layers(brim_graph *g) {
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
}

brim_status brim_graph_forward(brim_graph *g) {
  fuse_layers(g);
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

// Begins a segment: layers added until graph_segment_end belong to it. A recomputed segment keeps only its
// outputs.
static void graph_segment_begin(brim_graph *g) {
  g->segments++;
  g->in_segment = true;
}

static void graph_segment_end(brim_graph *g) { g->in_segment = false; }

// Counts the readers of a tensor within a segment. A tensor with other readers stays alive anyway.
static int32_t readers_within(const brim_graph *g, int32_t tensor, int32_t segment) {
  int32_t readers = 0;
  for (int32_t i = 0; i < g->layer_count; i++) {
    const brim_layer *l = &g->layers[i];
    if (l->segment != segment) continue;
    for (int k = 0; k < BRIM_LAYER_MAX_IN; k++) readers += l->in[k] == tensor;
  }
  return readers;
}

// Makes the segment's layers use `to` in place of `from`.
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

// Appends the segment's forward nodes a second time, with new output tensors, which its layers then use in the
// backward pass. Inputs of the segment and statistics are kept, so the second pass gives the same bits and does
// not change running statistics.
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

// Removes backward nodes whose results no node reads, such as the last product of a recomputed
// block, whose output is kept. Everything outside the arena counts as read.
static void drop_dead_nodes(brim_graph *g, int32_t first) {
  bool *read = brim_calloc((size_t)g->tensor_count, sizeof *read);
  bool *live = brim_calloc((size_t)g->node_count, sizeof *live);
  if (!read || !live) {
    graph_fail(g, no_memory());
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

//---------------------------------- layers ----------------------------------

static int32_t finish_layer(brim_graph *g, brim_layer *l, int32_t out, bool needs_grad) {
  if (g->status) return -1;
  l->out = out;
  g->tensors[out].layer = (int32_t)(l - g->layers);
  g->tensors[out].needs_grad = needs_grad;
  return out;
}

// True if the graph's device can run the node.
static bool is_supported(brim_graph *g, const brim_gnode *node) {
  if (!g->device) return false;
  brim_op_call call;
  brim_graph_call(g, node, &call);
  return brim_device_supports(g->device, &call) == BRIM_OK;
}

// "layer.what" into out; false (and a failed graph) when it is too long.
static bool layer_name(brim_graph *g, const char *layer, const char *what, char out[256]) {
  int n = snprintf(out, 256, "%s%s%s", layer, layer[0] ? "." : "", what);
  if (n >= 0 && n < 256) return true;
  graph_fail(g, brim_fail(BRIM_ELIMIT, "the layer name %s is too long", layer));
  return false;
}

// The parameter "layer.what".
static int32_t layer_param(brim_graph *g, const char *layer, const char *what, int rank,
                           const int64_t *dim, brim_init init, double bound) {
  char name[256];
  if (!layer_name(g, layer, what, name)) return -1;
  return add_param(g, name, rank, dim, init, bound);
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

// Adds the input layer. A batch that needs no conversion is read directly.
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
  brim_layer *l = x < 0 ? NULL : add_layer(g, &input_row, "input", &x, 1);
  if (!l) return -1;
  l->attr = *attr;
  int32_t y = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, rank, dim);
  return finish_layer(g, l, y, false);
}

//---------------------------------- act ----------------------------------

// relu and tanh compute their slope from the output; gelu needs the input.
static bool act_keeps_output(brim_act act) { return act == BRIM_ACT_RELU || act == BRIM_ACT_TANH; }

static void act_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_ACT, &l->attr, l->in, 1, &l->out, 1);
}

// The gradient of the input of an activation, from its output `out` (and for gelu its input `in`).
static int32_t act_grad(brim_graph *g, const brim_op_attr *attr, int32_t in, int32_t out) {
  if (g->status) return -1;
  int32_t grad = whole_grad(g, out);
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
  add_grad(g, l->in[0], dx);
}

static const brim_layer_row act_row = {
    .name = "act", .forward = act_forward, .backward = act_backward};

int32_t brim_graph_act(brim_graph *g, int32_t x, brim_act act) {
  if (act == BRIM_ACT_NONE) return x;
  brim_layer *l = add_layer(g, &act_row, "act", &x, 1);
  if (!l) return -1;
  l->attr.act = act;
  return finish_layer(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION),
                      g->tensors[x].needs_grad);
}

//---------------------------------- linear ----------------------------------

// x, w, b as tensors of type T.
static int linear_in(brim_graph *g, const brim_layer *l, int32_t in[3]) {
  in[0] = l->in[0];
  in[1] = param_value(g, l->param[0]);
  if (l->param[1] < 0) return 2;
  in[2] = param_value(g, l->param[1]);
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
  if (g->status || !is_supported(g, &node)) return false;
  l->attr.act = next->attr.act;
  return true;
}

// If only this layer reads an activation's output x, the activation's gradient is fused into the
// product: dx = (dy w) * act'(x).
static brim_act fused_act(brim_graph *g, int32_t x, brim_gnode *node) {
  const brim_gtensor *t = &g->tensors[x];
  if (t->layer < 0 || t->users != 1 || t->grad >= 0) return BRIM_ACT_NONE;
  brim_act act = g->layers[t->layer].attr.act;
  if (!act_keeps_output(act)) return BRIM_ACT_NONE;
  node->attr.act = act;
  node->in[2] = x;
  node->in_count = 3;
  if (is_supported(g, node)) return act;
  node->attr.act = BRIM_ACT_NONE;
  node->in_count = 2;
  return BRIM_ACT_NONE;
}

// Compute the gradient of the weights first: dx may then overwrite x.
static void linear_backward(brim_graph *g, brim_layer *l) {
  int32_t x = l->in[0];
  int32_t dy = act_grad(g, &l->attr, -1, l->out);
  int32_t in[] = {dy, x};
  int32_t out[] = {param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM_GRAD), -1};
  if (l->param[1] >= 0) out[1] = param_tensor_of(g, l->param[1], BRIM_TENSOR_PARAM_GRAD);
  brim_op_attr attr = {.accumulate = param_written(g, l->param, 2), .tf32 = g->tf32};
  brim_graph_node(g, BRIM_OP_LINEAR_BWD_WEIGHT, &attr, in, 2, out, l->param[1] >= 0 ? 2 : 1);
  if (g->status || !g->tensors[x].needs_grad) return;
  brim_gnode node = {.op = BRIM_OP_LINEAR_BWD_DATA, .in_count = 2, .out_count = 1};
  node.attr.tf32 = g->tf32;
  node.in[0] = dy;
  node.in[1] = param_value(g, l->param[0]);
  node.out[0] = brim_graph_like(g, x, BRIM_TENSOR_GRADIENT);
  if (g->status) return;
  bool through = fused_act(g, x, &node) != BRIM_ACT_NONE;
  brim_graph_node(g, node.op, &node.attr, node.in, node.in_count, node.out, 1);
  add_grad(g, x, node.out[0]);
  if (!g->status) g->tensors[x].grad_before_act = through;
}

static const brim_layer_row linear_row = {
    .name = "linear", .forward = linear_forward, .backward = linear_backward, .fuse = linear_fuse};

// PyTorch's default: weight and bias uniform within 1 / sqrt(inputs) (Kaiming with a = sqrt(5)).
int32_t brim_graph_linear(brim_graph *g, int32_t x, int64_t outputs, bool bias, const char *name) {
  brim_layer *l = add_layer(g, &linear_row, name, &x, 1);
  if (!l) return -1;
  int64_t w[] = {outputs, width_of(g, x)};
  double bound = 1.0 / sqrt((double)w[1]);
  l->attr.tf32 = g->tf32;
  l->param[0] = layer_param(g, name, "weight", 2, w, BRIM_INIT_UNIFORM, bound);
  if (bias) l->param[1] = layer_param(g, name, "bias", 1, w, BRIM_INIT_UNIFORM, bound);
  return finish_layer(g, l, rows_of(g, l->name, x, outputs), true);
}

// A linear layer with orthogonal weights times `gain` and biases of 0.
static int32_t graph_linear_orthogonal(brim_graph *g, int32_t x, int64_t outputs, double gain,
                                       const char *name) {
  brim_layer *l = add_layer(g, &linear_row, name, &x, 1);
  if (!l) return -1;
  int64_t w[] = {outputs, width_of(g, x)};
  l->attr.tf32 = g->tf32;
  l->param[0] = layer_param(g, name, "weight", 2, w, BRIM_INIT_ORTHOGONAL, gain);
  l->param[1] = layer_param(g, name, "bias", 1, w, BRIM_INIT_ZEROS, 0);
  return finish_layer(g, l, rows_of(g, l->name, x, outputs), true);
}

//---------------------------------- layernorm ----------------------------------

static void layernorm_forward(brim_graph *g, brim_layer *l) {
  int32_t in[] = {l->in[0], param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM),
                  param_tensor_of(g, l->param[1], BRIM_TENSOR_PARAM)};
  int32_t out[] = {l->out, l->saved[0], l->saved[1]};
  brim_graph_node(g, BRIM_OP_LAYERNORM, &l->attr, in, 3, out, 3);
}

static void layernorm_backward(brim_graph *g, brim_layer *l) {
  int32_t x = l->in[0];
  int32_t in[] = {whole_grad(g, l->out), x, param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM),
                  l->saved[0], l->saved[1]};
  int32_t out[] = {brim_graph_like(g, x, BRIM_TENSOR_GRADIENT),
                   param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM_GRAD),
                   param_tensor_of(g, l->param[1], BRIM_TENSOR_PARAM_GRAD)};
  brim_op_attr attr = l->attr;
  attr.accumulate = param_written(g, l->param, 2);
  brim_graph_node(g, BRIM_OP_LAYERNORM_BWD, &attr, in, 5, out, 3);
  if (!g->status && g->tensors[x].needs_grad) add_grad(g, x, out[0]);
}

static const brim_layer_row layernorm_row = {
    .name = "layernorm", .forward = layernorm_forward, .backward = layernorm_backward};

int32_t brim_graph_layernorm(brim_graph *g, int32_t x, float eps, const char *name) {
  brim_layer *l = add_layer(g, &layernorm_row, name, &x, 1);
  if (!l) return -1;
  int64_t width = width_of(g, x), rows = brim_tensor_count(&g->tensors[x].desc) / width;
  l->attr.eps = eps;
  l->param[0] = layer_param(g, name, "weight", 1, &width, BRIM_INIT_ONES, 0);
  l->param[1] = layer_param(g, name, "bias", 1, &width, BRIM_INIT_ZEROS, 0);
  for (int i = 0; i < 2; i++) {
    l->saved[i] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 1, &rows);
  }
  return finish_layer(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION), true);
}

//---------------------------------- dropout ----------------------------------

// The mask is a function of seed, step, layer and place, so nothing is kept for backward.
static void dropout_forward(brim_graph *g, brim_layer *l) {
  int32_t in[] = {l->in[0], g->state};
  brim_graph_node(g, BRIM_OP_DROPOUT, &l->attr, in, 2, &l->out, 1);
}

static void dropout_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t in[] = {whole_grad(g, l->out), g->state};
  int32_t dx = brim_graph_like(g, in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_DROPOUT, &l->attr, in, 2, &dx, 1);
  add_grad(g, l->in[0], dx);
}

static const brim_layer_row dropout_row = {
    .name = "dropout", .forward = dropout_forward, .backward = dropout_backward};

int32_t brim_graph_dropout(brim_graph *g, int32_t x, float p) {
  if (!g->training || p <= 0) return x;
  brim_layer *l = add_layer(g, &dropout_row, "dropout", &x, 1);
  if (!l) return -1;
  l->attr.p = p;
  l->attr.layer = g->dropouts++;
  return finish_layer(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION),
                      g->tensors[x].needs_grad);
}

//---------------------------------- add ----------------------------------

static void add_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_ADD, NULL, l->in, 2, &l->out, 1);
}

static void add_backward(brim_graph *g, brim_layer *l) {
  int32_t grad = whole_grad(g, l->out);
  for (int i = 0; i < 2 && !g->status; i++) {
    if (g->tensors[l->in[i]].needs_grad) add_grad(g, l->in[i], grad);
  }
}

static const brim_layer_row add_row = {
    .name = "add", .forward = add_forward, .backward = add_backward};

static bool is_act(const brim_layer *l) { return l->row == &act_row; }
static bool is_add(const brim_layer *l) { return l->row == &add_row; }

int32_t brim_graph_add(brim_graph *g, int32_t a, int32_t b) {
  int32_t in[] = {a, b};
  brim_layer *l = add_layer(g, &add_row, "add", in, 2);
  if (!l) return -1;
  bool needs = g->tensors[a].needs_grad || g->tensors[b].needs_grad;
  return finish_layer(g, l, brim_graph_like(g, a, BRIM_TENSOR_ACTIVATION), needs);
}

// Epsilon and momentum of torch.nn.BatchNorm2d.
static const float batchnorm_eps = 1e-5f;
static const float batchnorm_momentum = 0.1f;

//---------------------------------- convolution ----------------------------------

typedef struct conv_spec {
  int64_t inputs;  // channels of x without padding channels
  int64_t outputs;
  int32_t kernel, stride, pad;
} conv_spec;

static void conv_forward(brim_graph *g, brim_layer *l) {
  int32_t in[] = {l->in[0], param_value(g, l->param[0])};
  brim_graph_node(g, BRIM_OP_CONV, &l->attr, in, 2, &l->out, 1);
}

// Compute the gradient of the weights first: dx may then overwrite x.
static void conv_backward(brim_graph *g, brim_layer *l) {
  int32_t x = l->in[0], dy = whole_grad(g, l->out);
  int32_t weight_in[] = {dy, x};
  int32_t dw = param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM_GRAD);
  brim_op_attr attr = l->attr;
  attr.accumulate = param_written(g, l->param, 1);
  brim_graph_node(g, BRIM_OP_CONV_BWD_WEIGHT, &attr, weight_in, 2, &dw, 1);
  if (g->status || !g->tensors[x].needs_grad) return;
  int32_t data_in[] = {dy, param_value(g, l->param[0])};
  int32_t dx = brim_graph_like(g, x, BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_CONV_BWD_DATA, &l->attr, data_in, 2, &dx, 1);
  add_grad(g, x, dx);
}

static const brim_layer_row conv_row = {
    .name = "conv", .forward = conv_forward, .backward = conv_backward};

// Side of the output of a window that slides over `size`.
static int64_t slide(int64_t size, int32_t window, int32_t stride, int32_t pad) {
  return (size + 2 * pad - window) / stride + 1;
}

// x is (N,H,W,C). Initialized like torchvision's ResNets: normal with deviation sqrt(2 / (outputs * kernel^2)).
static int32_t graph_conv(brim_graph *g, int32_t x, const conv_spec *spec, const char *name) {
  brim_layer *l = add_layer(g, &conv_row, name, &x, 1);
  if (!l) return -1;
  const int64_t *d = g->tensors[x].desc.dim;
  int64_t y[] = {d[0], slide(d[1], spec->kernel, spec->stride, spec->pad),
                 slide(d[2], spec->kernel, spec->stride, spec->pad), spec->outputs};
  if (d[1] + 2 * spec->pad < spec->kernel || d[2] + 2 * spec->pad < spec->kernel) {
    graph_fail(g, brim_fail(BRIM_EINVAL, "images of %lldx%lld are too small for layer %s",
                            (long long)d[1], (long long)d[2], name));
    return -1;
  }
  int64_t w[] = {spec->outputs, spec->inputs, spec->kernel, spec->kernel}, padded = d[3];
  double std = sqrt(2.0 / ((double)spec->outputs * spec->kernel * spec->kernel));
  l->attr.stride = spec->stride;
  l->attr.pad = spec->pad;
  l->attr.tf32 = g->tf32;
  char weight[256];
  if (!layer_name(g, name, "weight", weight)) return -1;
  l->param[0] = add_conv_param(g, weight, w, padded, std);
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 4, y);
  return finish_layer(g, l, out, true);
}

//---------------------------------- batch norm ----------------------------------

static void in_groups(brim_graph *g) {
  if (!g->status && g->training) g->nodes[g->node_count - 1].groups = g->norm_groups;
}

// x, weight, bias; the residual is in[1].
static void batchnorm_apply(brim_graph *g, brim_layer *l, int32_t mean, int32_t spread,
                            bool variance) {
  int32_t in[] = {l->in[0],
                  param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM),
                  param_tensor_of(g, l->param[1], BRIM_TENSOR_PARAM),
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

// Batch norm over the rows of all ranks: statistics of each rank, their join, and the output from
// it.
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
  int32_t mean = buffer_tensor(g, l->buffer[0]);
  int32_t variance = buffer_tensor(g, l->buffer[1]);
  if (!g->training) {
    batchnorm_apply(g, l, mean, variance, true);
    return;
  }
  if (g->norm_ranks > 0) {
    ranks_forward(g, l, mean, variance);
    return;
  }
  int32_t in[] = {l->in[0], param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM),
                  param_tensor_of(g, l->param[1], BRIM_TENSOR_PARAM), g->state, l->in[1]};
  int32_t out[] = {l->out, l->saved[0], l->saved[1], mean, variance};
  brim_graph_node(g, BRIM_OP_BATCHNORM, &l->attr, in, l->in[1] >= 0 ? 5 : 4, out,
                  g->passing ? 3 : 5);
  in_groups(g);
}

static void batchnorm_recompute(brim_graph *g, brim_layer *l) {
  batchnorm_apply(g, l, l->saved[0], l->saved[1], false);
}

// Appends the backward nodes of batch norm over all ranks: the sums over this rank's rows, their exchange, and the
// gradients from them. `in` and `out` are those of BATCHNORM_BWD.
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

// Without a residual the sign of the ReLU is recomputed from x, so y is not read; with one, y is
// read.
static void batchnorm_backward(brim_graph *g, brim_layer *l) {
  if (g->status) return;
  int32_t x = l->in[0], z = l->in[1];
  bool through_y = l->attr.act == BRIM_ACT_RELU && z >= 0;
  int32_t in[] = {g->tensors[l->out].grad,
                  x,
                  param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM),
                  param_tensor_of(g, l->param[1], BRIM_TENSOR_PARAM),
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
                   param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM_GRAD),
                   param_tensor_of(g, l->param[1], BRIM_TENSOR_PARAM_GRAD), -1};
  // Without an activation the residual's gradient is the gradient itself.
  bool plain = l->attr.act == BRIM_ACT_NONE && in_count < 9;
  if (dz_wanted && !plain) out[3] = brim_graph_like(g, x, BRIM_TENSOR_GRADIENT);
  brim_op_attr attr = l->attr;
  attr.accumulate = param_written(g, l->param, 2);
  if (g->norm_ranks > 0) {
    ranks_backward(g, l, &attr, in, in_count, out, out[3] >= 0 ? 4 : 3);
  } else {
    brim_graph_node(g, BRIM_OP_BATCHNORM_BWD, &attr, in, in_count, out, out[3] >= 0 ? 4 : 3);
    in_groups(g);
  }
  if (dz_wanted) add_grad(g, z, plain ? in[0] : out[3]);
  if (!g->status && g->tensors[x].needs_grad) add_grad(g, x, out[0]);
}

// Fuses an addition whose other term already exists, then a ReLU.
static bool batchnorm_fuse(brim_graph *g, brim_layer *l, brim_layer *next) {
  if (!g->device || l->attr.act != BRIM_ACT_NONE) return false;
  if (is_act(next) && next->attr.act == BRIM_ACT_RELU) {
    l->attr.act = BRIM_ACT_RELU;
    return true;
  }
  if (!is_add(next) || l->in[1] >= 0 || next->in[0] == next->in[1]) return false;
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

// gamma: the initial weight. x may be (N,C) too.
static int32_t graph_batchnorm(brim_graph *g, int32_t x, brim_init gamma, const char *name) {
  brim_layer *l = add_layer(g, &batchnorm_row, name, &x, 1);
  if (!l) return -1;
  const brim_tensor *t = &g->tensors[x].desc;
  int64_t width = t->dim[t->rank - 1];
  l->attr.eps = batchnorm_eps;
  l->attr.momentum = batchnorm_momentum;
  l->param[0] = layer_param(g, name, "weight", 1, &width, gamma, 0);
  l->param[1] = layer_param(g, name, "bias", 1, &width, BRIM_INIT_ZEROS, 0);
  char buffer[256];
  if (!layer_name(g, name, "running_mean", buffer)) return -1;
  l->buffer[0] = add_buffer(g, buffer, width, BRIM_INIT_ZEROS);
  if (!layer_name(g, name, "running_var", buffer)) return -1;
  l->buffer[1] = add_buffer(g, buffer, width, BRIM_INIT_ONES);
  if (g->norm_groups > 1) width *= g->norm_groups;
  for (int i = 0; i < 2 && g->training; i++) {
    l->saved[i] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 1, &width);
  }
  const int64_t one = 1;
  if (g->training && g->norm_ranks > 0) {
    l->saved[2] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 1, &one);
  }
  return finish_layer(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION), true);
}

//---------------------------------- pooling ----------------------------------

static void maxpool_forward(brim_graph *g, brim_layer *l) {
  int32_t out[] = {l->out, l->saved[0]};
  brim_graph_node(g, BRIM_OP_MAXPOOL, &l->attr, l->in, 1, out, 2);
}

static void maxpool_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t in[] = {whole_grad(g, l->out), l->saved[0]};
  int32_t dx = brim_graph_like(g, l->in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_MAXPOOL_BWD, &l->attr, in, 2, &dx, 1);
  add_grad(g, l->in[0], dx);
}

static const brim_layer_row maxpool_row = {
    .name = "maxpool", .forward = maxpool_forward, .backward = maxpool_backward};

static int32_t graph_maxpool(brim_graph *g, int32_t x, int32_t window, int32_t stride,
                             int32_t pad) {
  brim_layer *l = add_layer(g, &maxpool_row, "maxpool", &x, 1);
  if (!l) return -1;
  const int64_t *d = g->tensors[x].desc.dim;
  int64_t y[] = {d[0], slide(d[1], window, stride, pad), slide(d[2], window, stride, pad), d[3]};
  l->attr.window = window;
  l->attr.stride = stride;
  l->attr.pad = pad;
  l->saved[0] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, BRIM_U8, 4, y);
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 4, y);
  return finish_layer(g, l, out, !g->status && g->tensors[x].needs_grad);
}

static void mean_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_MEAN, NULL, l->in, 1, &l->out, 1);
}

static void mean_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t dy = whole_grad(g, l->out);
  int32_t dx = brim_graph_like(g, l->in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_MEAN_BWD, NULL, &dy, 1, &dx, 1);
  add_grad(g, l->in[0], dx);
}

static const brim_layer_row mean_row = {
    .name = "mean", .forward = mean_forward, .backward = mean_backward};

// (N,..,C) -> (N,C)
static int32_t graph_mean(brim_graph *g, int32_t x) {
  brim_layer *l = add_layer(g, &mean_row, "mean", &x, 1);
  if (!l) return -1;
  const brim_tensor *t = &g->tensors[x].desc;
  int64_t y[] = {t->dim[0], t->dim[t->rank - 1]};
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 2, y);
  return finish_layer(g, l, out, !g->status && g->tensors[x].needs_grad);
}

//---------------------------------- positions ----------------------------------

static void pos_forward(brim_graph *g, brim_layer *l) {
  int32_t in[] = {l->in[0], param_value(g, l->param[0])};
  brim_graph_node(g, BRIM_OP_POS, NULL, in, 2, &l->out, 1);
}

static void pos_backward(brim_graph *g, brim_layer *l) {
  int32_t dy = whole_grad(g, l->out);
  int32_t dp = param_tensor_of(g, l->param[0], BRIM_TENSOR_PARAM_GRAD);
  brim_op_attr attr = {.accumulate = param_written(g, l->param, 1)};
  brim_graph_node(g, BRIM_OP_POS_BWD, &attr, &dy, 1, &dp, 1);
  if (!g->status && g->tensors[l->in[0]].needs_grad) add_grad(g, l->in[0], dy);
}

static const brim_layer_row pos_row = {
    .name = "pos", .forward = pos_forward, .backward = pos_backward};

// Adds a learnt (1,L,C) to x (N,L,C).
static int32_t graph_pos(brim_graph *g, int32_t x, const char *name) {
  brim_layer *l = add_layer(g, &pos_row, name, &x, 1);
  if (!l) return -1;
  const int64_t *d = g->tensors[x].desc.dim;
  const int64_t outside[] = {1, d[1], d[2]};
  l->param[0] = add_param(g, name, 2, d + 1, BRIM_INIT_ZEROS, 0);
  if (g->status) return -1;
  g->params->items[l->param[0]].outside = brim_tensor_make(NULL, g->params->dtype, 3, outside);
  return finish_layer(g, l, brim_graph_like(g, x, BRIM_TENSOR_ACTIVATION), true);
}

//---------------------------------- attention ----------------------------------

static void attention_forward(brim_graph *g, brim_layer *l) {
  int32_t out[] = {l->out, l->saved[0]};
  brim_graph_node(g, BRIM_OP_ATTENTION, &l->attr, l->in, 1, out, 2);
}

static void attention_backward(brim_graph *g, brim_layer *l) {
  if (!g->tensors[l->in[0]].needs_grad) return;
  int32_t in[] = {whole_grad(g, l->out), l->in[0], l->out, l->saved[0]};
  int32_t dqkv = brim_graph_like(g, l->in[0], BRIM_TENSOR_GRADIENT);
  brim_graph_node(g, BRIM_OP_ATTENTION_BWD, &l->attr, in, 4, &dqkv, 1);
  add_grad(g, l->in[0], dqkv);
}

static const brim_layer_row attention_row = {
    .name = "attention", .forward = attention_forward, .backward = attention_backward};

static int32_t graph_attention(brim_graph *g, int32_t qkv, int32_t heads) {
  brim_layer *l = add_layer(g, &attention_row, "attention", &qkv, 1);
  if (!l) return -1;
  const int64_t *d = g->tensors[qkv].desc.dim;
  int64_t y[] = {d[0], d[1], d[2] / 3}, lse[] = {d[0], heads, d[1]};
  l->attr.heads = heads;
  l->saved[0] = brim_graph_tensor(g, l->name, BRIM_TENSOR_STATISTIC, g->params->dtype, 3, lse);
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 3, y);
  return finish_layer(g, l, out, !g->status && g->tensors[qkv].needs_grad);
}

//---------------------------------- side by side ----------------------------------

static void concat_forward(brim_graph *g, brim_layer *l) {
  brim_graph_node(g, BRIM_OP_CONCAT, NULL, l->in, 2, &l->out, 1);
}

static void concat_backward(brim_graph *g, brim_layer *l) {
  int32_t dy = whole_grad(g, l->out);
  int32_t out[] = {brim_graph_like(g, l->in[0], BRIM_TENSOR_GRADIENT),
                   brim_graph_like(g, l->in[1], BRIM_TENSOR_GRADIENT)};
  brim_graph_node(g, BRIM_OP_CONCAT_BWD, NULL, &dy, 1, out, 2);
  for (int i = 0; i < 2 && !g->status; i++) {
    if (g->tensors[l->in[i]].needs_grad) add_grad(g, l->in[i], out[i]);
  }
}

static const brim_layer_row concat_row = {
    .name = "concat", .forward = concat_forward, .backward = concat_backward};

static int32_t graph_concat(brim_graph *g, int32_t a, int32_t b) {
  int32_t in[] = {a, b};
  brim_layer *l = add_layer(g, &concat_row, "concat", in, 2);
  if (!l) return -1;
  int64_t y[] = {g->tensors[a].desc.dim[0], g->tensors[a].desc.dim[1] + g->tensors[b].desc.dim[1]};
  int32_t out = brim_graph_tensor(g, l->name, BRIM_TENSOR_ACTIVATION, g->dtype, 2, y);
  bool needs = !g->status && (g->tensors[a].needs_grad || g->tensors[b].needs_grad);
  return finish_layer(g, l, out, needs);
}

//---------------------------------- models ----------------------------------

// Tensor names of models follow PyTorch modules, so that a
// checkpoint loads there with load_state_dict(strict=True):
//   linear   torch.nn.Linear(inputs, outputs)                          weight, bias
//   mlp      self.layers = ModuleList of depth + 1 Linear, self.norms = ModuleList of LayerNorm
//            x = dropout(act(norm(layer(x)))) per hidden layer         layers.0.weight, norms.0.bias
//   resmlp   self.input = Linear; self.blocks = ModuleList of modules with norm, fc1, fc2;
//            self.norm = LayerNorm; self.output = Linear
//            x = x + dropout(fc2(act(fc1(norm(x)))))                   blocks.0.fc1.weight
//   linear_policy, mlp_policy                                          weight; layers.0.weight
//   actor_critic   self.actor, self.critic with layers; or self.trunk, actor, critic when shared;
//            the last output is the value
//   resnet*  torchvision's names: conv1, bn1, layer1.0.conv1, layer1.0.downsample.0, fc
//   wideresnet     conv1, block1.layer.0.bn1, block1.layer.0.convShortcut, bn1, fc
//   simclr   backbone.* and projector.N, N as nn.Sequential counts
//   transformer    timm's names: embed.weight, pos_embed, blocks.0.norm1, blocks.0.attn.qkv,
//            blocks.0.attn.proj, blocks.0.norm2, blocks.0.mlp.fc1, blocks.0.mlp.fc2, norm, head
// Each residual or transformer block is a segment for recomputation.

typedef struct brim_model {
  brim_graph *g;
  const brim_component *c;
  const brim_sample *sample;
  int64_t outputs;
  const char *prefix;  // prefix of all names: "" or "backbone."
  bool features;       // stop before the last layer: (N, width)
} brim_model;

// A name of at most 127 characters.
typedef struct model_name {
  char text[128];
} model_name;

// Epsilon of torch.nn.LayerNorm.
static const float layernorm_eps = 1e-5f;

static int32_t build_part(const brim_model *m);

//---------------------------------- components ----------------------------------

brim_status brim_engine_fail_unknown(const brim_component *c, const char *what, const char *name,
                                     const char *const *known) {
  const char *near = brim_nearest(name, known);
  if (near) {
    return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col,
                        "unknown %s '%s'; did you mean '%s'?", what, name, near);
  }
  return brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "unknown %s '%s'", what, name);
}

brim_status brim_engine_check_args(const brim_component *c, const char *const *known) {
  for (size_t i = 0; i < c->arg_count; i++) {
    const char *const *k = known;
    while (*k && strcmp(*k, c->args[i].name) != 0) k++;
    if (!*k) {
      BRIM_TRY(brim_engine_fail_unknown(c, "argument", c->args[i].name, known));
    }
  }
  return BRIM_OK;
}

//---------------------------------- arguments of models ----------------------------------

static void brim_model_fail(const brim_model *m, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, brim_tr(fmt), args);
  va_end(args);
  const brim_component *c = m->c;
  graph_fail(m->g, brim_fail_at(BRIM_EINVAL, c->file, c->line, c->col, "%s", text));
}

// Arguments are checked; a failure sticks in the graph and gives the fallback.
static int64_t int_arg(const brim_model *m, const char *name, int64_t fallback, int64_t min,
                       int64_t max) {
  int64_t value = brim_component_int(m->c, name, fallback);
  if (value >= min && value <= max) return value;
  brim_model_fail(m, "%s is %lld, expected %lld to %lld", name, (long long)value, (long long)min,
                  (long long)max);
  return fallback;
}

static float dropout_arg(const brim_model *m) {
  double p = brim_component_float(m->c, "dropout", 0);
  if (p >= 0 && p < 1 && (float)p < 1) return (float)p;
  brim_model_fail(m, "dropout is %g, expected 0 <= dropout < 1", p);
  return 0;
}

static brim_act act_arg(const brim_model *m, const char *fallback) {
  static const char *const names[BRIM_ACT_COUNT] = {
      [BRIM_ACT_NONE] = "none",
      [BRIM_ACT_RELU] = "relu",
      [BRIM_ACT_GELU] = "gelu",
      [BRIM_ACT_TANH] = "tanh",
  };
  const char *text = brim_component_string(m->c, "activation", fallback);
  for (int i = 0; i < BRIM_ACT_COUNT; i++) {
    if (strcmp(text, names[i]) == 0) return (brim_act)i;
  }
  brim_model_fail(m, "activation is '%s', expected relu, gelu, tanh or none", text);
  return BRIM_ACT_NONE;
}

// The name of a weight: the prefix of the model and a formatted name.
static model_name label(const brim_model *m, const char *fmt, ...) {
  model_name name;
  int n = snprintf(name.text, sizeof name.text, "%s", m->prefix);
  va_list args;
  va_start(args, fmt);
  vsnprintf(name.text + n, sizeof name.text - (size_t)n, fmt, args);
  va_end(args);
  return name;
}

//---------------------------------- inputs of models ----------------------------------

static brim_tensor raw_batch(const brim_model *m) {
  int64_t dim[] = {m->sample->rows, m->sample->features};
  return brim_tensor_make(NULL, m->sample->dtype, 2, dim);
}

// The batch as rows of values.
static int32_t flat_input(const brim_model *m) {
  brim_tensor raw = raw_batch(m);
  return brim_graph_input(m->g, &raw, &m->sample->attr, 2, raw.dim);
}

// The batch as images (N,H,W,C).
static int32_t image_input(const brim_model *m, int64_t *channels) {
  const brim_sample *s = m->sample;
  if (s->rank < 2 || s->rank > 3) {
    brim_model_fail(m, "model %s takes images (height, width, channels), samples have rank %d",
                    m->c->name, (int)s->rank);
    return -1;
  }
  int64_t c = s->rank == 3 ? s->dim[2] : 1, pad = m->g->channel_pad;
  brim_op_attr attr = s->attr;
  int64_t dim[] = {s->rows, s->dim[0], s->dim[1], c};
  // INPUT pads channels to a multiple only if it has a scale and a shift for each.
  if (pad > 1 && c % pad != 0 && c <= 4) {
    if (attr.channels == 1) {
      for (int i = 1; i < c; i++) {
        attr.scale[i] = attr.scale[0];
        attr.shift[i] = attr.shift[0];
      }
      attr.channels = (int32_t)c;
    }
    if (attr.channels == c) dim[3] = (c + pad - 1) / pad * pad;
  }
  *channels = c;
  brim_tensor raw = raw_batch(m);
  return brim_graph_input(m->g, &raw, &attr, 4, dim);
}

// The batch as tokens (N,L,patch values).
static int32_t token_input(const brim_model *m, int64_t patch) {
  const brim_sample *s = m->sample;
  if (s->rank > 2 || s->dim[0] % patch != 0) {
    brim_model_fail(m,
                    "model %s takes signals (length, channels) whose length is a multiple of "
                    "patch = %lld; samples have rank %d and length %lld",
                    m->c->name, (long long)patch, (int)s->rank, (long long)s->dim[0]);
    return -1;
  }
  int64_t dim[] = {s->rows, s->dim[0] / patch, s->features / (s->dim[0] / patch)};
  brim_tensor raw = raw_batch(m);
  return brim_graph_input(m->g, &raw, &s->attr, 3, dim);
}

//---------------------------------- parts of convolutional networks ----------------------------------

static int64_t channels_of(const brim_model *m, int32_t x) {
  const brim_tensor *t = &m->g->tensors[x].desc;
  return m->g->status ? 1 : t->dim[t->rank - 1];
}

static int32_t conv(const brim_model *m, int32_t x, int64_t outputs, int32_t kernel, int32_t stride,
                    const char *name) {
  if (m->g->status) return -1;
  conv_spec spec = {.inputs = channels_of(m, x),
                    .outputs = outputs,
                    .kernel = kernel,
                    .stride = stride,
                    .pad = kernel / 2};
  return graph_conv(m->g, x, &spec, name);
}

static int32_t batchnorm(const brim_model *m, int32_t x, bool zero, const char *name) {
  return graph_batchnorm(m->g, x, zero ? BRIM_INIT_ZEROS : BRIM_INIT_ONES, name);
}

static int32_t relu(const brim_model *m, int32_t x) {
  return brim_graph_act(m->g, x, BRIM_ACT_RELU);
}

//---------------------------------- ResNet ----------------------------------

typedef struct resnet_row {
  const char *name;
  int blocks[4];
  bool bottleneck;
} resnet_row;

static const resnet_row resnets[] = {
    {"resnet18", {2, 2, 2, 2}, false},  {"resnet34", {3, 4, 6, 3}, false},
    {"resnet50", {3, 4, 6, 3}, true},   {"resnet101", {3, 4, 23, 3}, true},
    {"resnet152", {3, 8, 36, 3}, true},
};

typedef struct residual_spec {
  int64_t width;  // channels of the inner convolutions
  int32_t stride;
  bool bottleneck, zero_init;
  const char *name;
} residual_spec;

// The shortcut around a block. It comes first, so that the last norm can fuse the addition.
static int32_t shortcut(const brim_model *m, int32_t x, const residual_spec *b) {
  int64_t outputs = b->width * (b->bottleneck ? 4 : 1);
  if (m->g->status || (b->stride == 1 && channels_of(m, x) == outputs)) return x;
  x = conv(m, x, outputs, 1, b->stride, label(m, "%s.downsample.0", b->name).text);
  return batchnorm(m, x, false, label(m, "%s.downsample.1", b->name).text);
}

// As in torchvision, a bottleneck has its stride in the 3x3 convolution.
static int32_t residual_block(const brim_model *m, int32_t x, const residual_spec *b) {
  graph_segment_begin(m->g);
  int32_t around = shortcut(m, x, b);
  const char *name = b->name;
  int32_t y = x;
  if (b->bottleneck) {
    y = conv(m, y, b->width, 1, 1, label(m, "%s.conv1", name).text);
    y = relu(m, batchnorm(m, y, false, label(m, "%s.bn1", name).text));
    y = conv(m, y, b->width, 3, b->stride, label(m, "%s.conv2", name).text);
    y = relu(m, batchnorm(m, y, false, label(m, "%s.bn2", name).text));
    y = conv(m, y, b->width * 4, 1, 1, label(m, "%s.conv3", name).text);
    y = batchnorm(m, y, b->zero_init, label(m, "%s.bn3", name).text);
  } else {
    y = conv(m, y, b->width, 3, b->stride, label(m, "%s.conv1", name).text);
    y = relu(m, batchnorm(m, y, false, label(m, "%s.bn1", name).text));
    y = conv(m, y, b->width, 3, 1, label(m, "%s.conv2", name).text);
    y = batchnorm(m, y, b->zero_init, label(m, "%s.bn2", name).text);
  }
  y = relu(m, brim_graph_add(m->g, y, around));
  graph_segment_end(m->g);
  return y;
}

static bool cifar_stem(const brim_model *m) {
  const char *stem = brim_component_string(m->c, "stem", "auto");
  if (strcmp(stem, "cifar") == 0) return true;
  if (strcmp(stem, "imagenet") == 0) return false;
  if (strcmp(stem, "auto") != 0) {
    brim_model_fail(m, "stem is '%s', expected auto, cifar or imagenet", stem);
  }
  return m->sample->made_for[0] <= 64 && m->sample->made_for[1] <= 64;
}

static int32_t stem_of(const brim_model *m, int64_t width) {
  int64_t channels = 1;
  bool small = cifar_stem(m);
  int32_t x = image_input(m, &channels);
  conv_spec spec = {.inputs = channels,
                    .outputs = width,
                    .kernel = small ? 3 : 7,
                    .stride = small ? 1 : 2,
                    .pad = small ? 1 : 3};
  if (m->g->status) return -1;
  x = graph_conv(m->g, x, &spec, label(m, "conv1").text);
  x = relu(m, batchnorm(m, x, false, label(m, "bn1").text));
  return small ? x : graph_maxpool(m->g, x, 3, 2, 1);
}

static int32_t build_resnet(const brim_model *m) {
  const resnet_row *row = resnets;
  while (strcmp(row->name, m->c->name) != 0) row++;  // the table below has the same names
  int64_t width = int_arg(m, "width", 64, 1, 4096);
  bool zero = brim_component_bool(m->c, "zero_init", false);
  int32_t x = stem_of(m, width);
  for (int stage = 0; stage < 4; stage++) {
    for (int i = 0; i < row->blocks[stage]; i++) {
      model_name name = label(m, "layer%d.%d", stage + 1, i);
      // The block's label already has the prefix; its parts must not get it again.
      residual_spec b = {.width = width << stage,
                         .stride = stage > 0 && i == 0 ? 2 : 1,
                         .bottleneck = row->bottleneck,
                         .zero_init = zero,
                         .name = name.text + strlen(m->prefix)};
      x = residual_block(m, x, &b);
    }
  }
  x = graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, label(m, "fc").text);
}

//---------------------------------- wide ResNet ----------------------------------

// A block with norm and ReLU before each convolution. If the block changes the width, its shortcut begins after
// the first norm, else before it.
static int32_t wide_block(const brim_model *m, int32_t x, int64_t width, int32_t stride,
                          float dropout, const char *name) {
  graph_segment_begin(m->g);
  bool same = stride == 1 && channels_of(m, x) == width;
  int32_t y = relu(m, batchnorm(m, x, false, label(m, "%s.bn1", name).text));
  int32_t around = x;
  if (!same) {
    around = conv(m, y, width, 1, stride, label(m, "%s.convShortcut", name).text);
  }
  y = conv(m, y, width, 3, stride, label(m, "%s.conv1", name).text);
  y = relu(m, batchnorm(m, y, false, label(m, "%s.bn2", name).text));
  y = brim_graph_dropout(m->g, y, dropout);
  y = conv(m, y, width, 3, 1, label(m, "%s.conv2", name).text);
  y = brim_graph_add(m->g, around, y);
  graph_segment_end(m->g);
  return y;
}

static int32_t build_wideresnet(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 28, 10, 1000);
  int64_t widen = int_arg(m, "width", 10, 1, 64);
  float dropout = dropout_arg(m);
  if ((depth - 4) % 6 != 0) {
    brim_model_fail(m, "depth is %lld, expected 6 n + 4: 10, 16, 22, 28, 34, 40 ...",
                    (long long)depth);
  }
  int64_t channels = 1;
  int32_t x = image_input(m, &channels);
  if (m->g->status) return -1;
  conv_spec spec = {.inputs = channels, .outputs = 16, .kernel = 3, .stride = 1, .pad = 1};
  x = graph_conv(m->g, x, &spec, label(m, "conv1").text);
  for (int stage = 0; stage < 3; stage++) {
    for (int64_t i = 0; i < (depth - 4) / 6; i++) {
      model_name name = label(m, "block%d.layer.%lld", stage + 1, (long long)i);
      x = wide_block(m, x, (16 * widen) << stage, stage > 0 && i == 0 ? 2 : 1, dropout,
                     name.text + strlen(m->prefix));
    }
  }
  x = relu(m, batchnorm(m, x, false, label(m, "bn1").text));
  x = graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, label(m, "fc").text);
}

//---------------------------------- SimCLR ----------------------------------

// An encoder without its last layer, then one or more Linear with ReLU, and Linear. The output has
// `dim` values; NT-Xent normalizes it.
static int32_t build_simclr(const brim_model *m) {
  static const brim_component resnet18 = {.name = "resnet18"};
  const brim_value *given = brim_component_arg(m->c, "backbone");
  brim_model part = *m;
  part.c = &resnet18;
  brim_component bare = {.name = NULL, .file = m->c->file, .line = m->c->line, .col = m->c->col};
  if (given && given->kind == BRIM_VALUE_COMPONENT) {
    part.c = given->component;
  } else if (given && given->kind == BRIM_VALUE_STRING) {
    bare.name = given->string;
    part.c = &bare;
  }
  part.features = true;
  model_name prefix = label(m, "backbone.");
  part.prefix = prefix.text;
  int64_t hidden = int_arg(m, "hidden", 512, 1, 65536);
  int64_t dim = int_arg(m, "dim", 128, 1, 65536);
  int64_t depth = int_arg(m, "depth", 1, 1, 16);
  int32_t x = build_part(&part);
  if (m->features) return x;
  bool bn = brim_component_bool(m->c, "batch_norm", false);
  int place = 0;
  for (int64_t i = 0; i < depth; i++) {
    x = brim_graph_linear(m->g, x, hidden, !bn, label(m, "projector.%d", place++).text);
    if (bn) x = batchnorm(m, x, false, label(m, "projector.%d", place++).text);
    x = relu(m, x);
    place++;
  }
  return brim_graph_linear(m->g, x, dim, true, label(m, "projector.%d", place).text);
}

//---------------------------------- transformers ----------------------------------

static const int64_t max_heads = 1024;

typedef struct block_spec {
  int64_t hidden, inner;
  int32_t heads;
  float dropout;
} block_spec;

static int32_t transformer_block(const brim_model *m, int32_t x, const block_spec *b, long long n) {
  brim_graph *g = m->g;
  graph_segment_begin(g);
  int32_t y = brim_graph_layernorm(g, x, layernorm_eps, label(m, "blocks.%lld.norm1", n).text);
  y = brim_graph_linear(g, y, 3 * b->hidden, true, label(m, "blocks.%lld.attn.qkv", n).text);
  y = graph_attention(g, y, b->heads);
  y = brim_graph_linear(g, y, b->hidden, true, label(m, "blocks.%lld.attn.proj", n).text);
  y = brim_graph_dropout(g, y, b->dropout);
  x = brim_graph_add(g, x, y);
  y = brim_graph_layernorm(g, x, layernorm_eps, label(m, "blocks.%lld.norm2", n).text);
  y = brim_graph_linear(g, y, b->inner, true, label(m, "blocks.%lld.mlp.fc1", n).text);
  y = brim_graph_act(g, y, BRIM_ACT_GELU);
  y = brim_graph_linear(g, y, b->hidden, true, label(m, "blocks.%lld.mlp.fc2", n).text);
  y = brim_graph_dropout(g, y, b->dropout);
  x = brim_graph_add(g, x, y);
  graph_segment_end(g);
  return x;
}

// The largest divisor of `n` up to `most`; at least 1.
static int64_t divisor(int64_t n, int64_t most) {
  for (int64_t d = most < n ? most : n; d > 1; d--) {
    if (n % d == 0) return d;
  }
  return 1;
}

static int32_t build_transformer(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 6, 1, 1000);
  int64_t hidden = int_arg(m, "hidden", 64, 1, 65536);
  int64_t heads = int_arg(m, "heads", 0, 0, max_heads);
  int64_t patch = int_arg(m, "patch", 0, 0, 65536);
  int64_t ratio = int_arg(m, "mlp_ratio", 4, 1, 64);
  // default: heads of width 16 or the next divisor, tokens of at most 32 samples
  if (heads == 0) heads = divisor(hidden, hidden / 16 < max_heads ? hidden / 16 : max_heads);
  if (patch == 0) patch = divisor(m->sample->dim[0], 32);
  block_spec b = {.hidden = hidden,
                  .inner = hidden * ratio,
                  .heads = (int32_t)heads,
                  .dropout = dropout_arg(m)};
  if (hidden % heads != 0) {
    brim_model_fail(m, "hidden is %lld, which is not a multiple of heads = %lld", (long long)hidden,
                    (long long)heads);
  }
  if (m->g->status) return -1;
  int32_t x = token_input(m, patch);
  x = brim_graph_linear(m->g, x, hidden, true, label(m, "embed").text);
  x = graph_pos(m->g, x, label(m, "pos_embed").text);
  for (int64_t i = 0; i < depth; i++) x = transformer_block(m, x, &b, (long long)i);
  x = brim_graph_layernorm(m->g, x, layernorm_eps, label(m, "norm").text);
  x = graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, label(m, "head").text);
}

//---------------------------------- linear models ----------------------------------

static const int64_t max_depth = 1000, max_hidden = 1 << 20;

// Linear layers with an activation between them: layers.0 ... layers.depth.
static int32_t stack(const brim_model *m, int32_t x, const char *prefix, int64_t outputs,
                     int64_t depth, int64_t hidden, brim_act act) {
  for (int64_t i = 0; i < depth; i++) {
    x = brim_graph_linear(m->g, x, hidden, true,
                          label(m, "%slayers.%lld", prefix, (long long)i).text);
    x = brim_graph_act(m->g, x, act);
  }
  if (outputs == 0) return x;
  return brim_graph_linear(m->g, x, outputs, true,
                           label(m, "%slayers.%lld", prefix, (long long)depth).text);
}

static int32_t build_linear(const brim_model *m) {
  int32_t x = flat_input(m);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, brim_component_bool(m->c, "bias", true), m->prefix);
}

// Initial weights of the layers of an mlp.
typedef struct mlp_init {
  bool orthogonal;
  double gain, last_gain;
} mlp_init;

static mlp_init read_init(const brim_model *m) {
  const char *init = brim_component_string(m->c, "init", "uniform");
  mlp_init s = {.orthogonal = strcmp(init, "orthogonal") == 0};
  if (!s.orthogonal && strcmp(init, "uniform") != 0) {
    brim_model_fail(m, "init is '%s', expected uniform or orthogonal", init);
  }
  // last_gain 0, the catalogue's default, means the gain of the other layers
  s.gain = brim_component_float(m->c, "gain", 1);
  s.last_gain = brim_component_float(m->c, "last_gain", 0);
  if (s.last_gain == 0) s.last_gain = s.gain;
  if (!(s.gain > 0 && s.gain <= 100 && s.last_gain > 0 && s.last_gain <= 100)) {
    brim_model_fail(m, "gain is %g and last_gain %g, expected more than 0 to 100", s.gain,
                    s.last_gain);
  }
  if (!s.orthogonal && (s.gain != 1 || s.last_gain != 1)) {
    brim_model_fail(m, "gain and last_gain need init=orthogonal");
  }
  return s;
}

static int32_t mlp_layer(const brim_model *m, int32_t x, int64_t outputs, int64_t index,
                         const mlp_init *init, double gain) {
  model_name name = label(m, "layers.%lld", (long long)index);
  if (init->orthogonal) return graph_linear_orthogonal(m->g, x, outputs, gain, name.text);
  return brim_graph_linear(m->g, x, outputs, true, name.text);
}

static int32_t build_mlp(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 4, 0, max_depth);
  int64_t hidden = int_arg(m, "hidden", 512, 1, max_hidden);
  brim_act act = act_arg(m, "relu");
  float dropout = dropout_arg(m);
  const char *norm = brim_component_string(m->c, "norm", "none");
  bool layer_norm = strcmp(norm, "layer") == 0;
  if (!layer_norm && strcmp(norm, "none") != 0) {
    brim_model_fail(m, "norm is '%s', expected none or layer", norm);
  }
  mlp_init init = read_init(m);
  int32_t x = flat_input(m);
  for (int64_t i = 0; i < depth; i++) {
    x = mlp_layer(m, x, hidden, i, &init, init.gain);
    if (layer_norm) {
      model_name name = label(m, "norms.%lld", (long long)i);
      x = brim_graph_layernorm(m->g, x, layernorm_eps, name.text);
    }
    x = brim_graph_act(m->g, x, act);
    x = brim_graph_dropout(m->g, x, dropout);
  }
  if (m->features) return x;
  return mlp_layer(m, x, m->outputs, depth, &init, init.last_gain);
}

static int32_t build_resmlp(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 4, 1, max_depth);
  int64_t hidden = int_arg(m, "hidden", 512, 1, max_hidden);
  brim_act act = act_arg(m, "relu");
  float dropout = dropout_arg(m);
  brim_graph *g = m->g;
  int32_t x = brim_graph_linear(g, flat_input(m), hidden, true, label(m, "input").text);
  for (int64_t i = 0; i < depth; i++) {
    long long n = (long long)i;
    graph_segment_begin(g);
    int32_t y = brim_graph_layernorm(g, x, layernorm_eps, label(m, "blocks.%lld.norm", n).text);
    y = brim_graph_linear(g, y, hidden, true, label(m, "blocks.%lld.fc1", n).text);
    y = brim_graph_act(g, y, act);
    y = brim_graph_linear(g, y, hidden, true, label(m, "blocks.%lld.fc2", n).text);
    y = brim_graph_dropout(g, y, dropout);
    x = brim_graph_add(g, x, y);
    graph_segment_end(g);
  }
  x = brim_graph_layernorm(g, x, layernorm_eps, label(m, "norm").text);
  if (m->features) return x;
  return brim_graph_linear(g, x, m->outputs, true, label(m, "output").text);
}

//---------------------------------- policies ----------------------------------

static int32_t build_linear_policy(const brim_model *m) {
  return brim_graph_linear(m->g, flat_input(m), m->outputs, false, m->prefix);
}

static int32_t build_mlp_policy(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 1, 0, 64);
  int64_t hidden = int_arg(m, "hidden", 256, 1, max_hidden);
  return stack(m, flat_input(m), "", m->outputs, depth, hidden, act_arg(m, "relu"));
}

static int32_t build_actor_critic(const brim_model *m) {
  int64_t depth = int_arg(m, "depth", 2, 0, 64);
  int64_t hidden = int_arg(m, "hidden", 256, 1, max_hidden);
  brim_act act = act_arg(m, "tanh");
  if (m->outputs < 2) {
    brim_model_fail(m, "actor_critic has %lld outputs, expected actions and a value: 2 or more",
                    (long long)m->outputs);
    return -1;
  }
  brim_graph *g = m->g;
  int32_t x = flat_input(m), actor, critic;
  if (brim_component_bool(m->c, "shared", false)) {
    x = stack(m, x, "trunk.", 0, depth, hidden, act);
    actor = brim_graph_linear(g, x, m->outputs - 1, true, label(m, "actor").text);
    critic = brim_graph_linear(g, x, 1, true, label(m, "critic").text);
  } else {
    actor = stack(m, x, "actor.", m->outputs - 1, depth, hidden, act);
    critic = stack(m, x, "critic.", 1, depth, hidden, act);
  }
  return graph_concat(g, actor, critic);
}

//---------------------------------- the table of models ----------------------------------

#define RESNET(name) \
  { name, {"stem", "width", "zero_init", "num_classes"}, build_resnet }

const brim_model_row brim_models[] = {
    {"linear", {"bias", "num_classes"}, build_linear},
    {"mlp",
     {"depth", "hidden", "activation", "dropout", "norm", "init", "gain", "last_gain",
      "num_classes"},
     build_mlp},
    {"resmlp", {"depth", "hidden", "activation", "dropout", "num_classes"}, build_resmlp},
    {"linear_policy", {NULL}, build_linear_policy},
    {"mlp_policy", {"depth", "hidden", "activation"}, build_mlp_policy},
    {"actor_critic", {"depth", "hidden", "activation", "shared"}, build_actor_critic},
    RESNET("resnet18"),
    RESNET("resnet34"),
    RESNET("resnet50"),
    RESNET("resnet101"),
    RESNET("resnet152"),
    {"wideresnet", {"depth", "width", "dropout", "num_classes"}, build_wideresnet},
    {"simclr", {"backbone", "hidden", "dim", "depth", "batch_norm"}, build_simclr},
    {"transformer",
     {"depth", "hidden", "heads", "patch", "mlp_ratio", "dropout", "num_classes"},
     build_transformer},
    {NULL, {NULL}, NULL},
};

static int32_t build_part(const brim_model *m) {
  const char *names[64] = {0};
  size_t count = 0;
  if (m->g->status) return -1;
  for (const brim_model_row *row = brim_models; row->name; row++) {
    if (count < 63) names[count++] = row->name;
    if (strcmp(m->c->name, row->name) != 0) continue;
    graph_fail(m->g, brim_engine_check_args(m->c, row->args));
    int64_t asked = brim_component_int(m->c, "num_classes", m->outputs);
    if (asked != m->outputs && !m->features) {
      brim_model_fail(m, "num_classes is %lld, but the data has %lld", (long long)asked,
                      (long long)m->outputs);
    }
    return m->g->status ? -1 : row->build(m);
  }
  graph_fail(m->g, brim_engine_fail_unknown(m->c, "model", m->c->name, names));
  return -1;
}

brim_status brim_model_build(brim_graph *g, const brim_component *model, const brim_sample *sample,
                             int64_t outputs, int32_t *out) {
  brim_model m = {.g = g,
                  .c = model,
                  .sample = sample,
                  .outputs = outputs,
                  .prefix = "",
                  .features = sample->backbone};
  *out = build_part(&m);
  return g->status;
}
