// Matrix products and convolutions by oneDNN (the v2 C API). An op is one primitive with its memory
// objects. oneDNN chooses the layout of the weights (AMX needs its own). If that layout differs from
// brim's, a reorder copies the weights before the op, or the gradient of the weights after it; the copy is
// in the workspace. prepare creates all objects; run sets addresses and executes. Activations keep brim's
// NHWC layout. Loops of brim do what oneDNN does not: the derivative of the activation, and adding to a
// gradient.
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"

static inline brim_status brim_cpu_dnn_check(dnnl_status_t status, const char *what) {
  if (status == dnnl_success) return BRIM_OK;
  if (status == dnnl_out_of_memory) {
    return brim_cpu_fail(BRIM_ENOMEM, "cpu: oneDNN has no memory for %s", what);
  }
  return brim_cpu_fail(status == dnnl_unimplemented ? BRIM_EUNSUPPORTED : BRIM_EDEVICE,
                       "cpu: oneDNN refused %s (status %d)", what, (int)status);
}

#define BRIM_CPU_DNN_TRY(expr, what)                       \
  do {                                                     \
    brim_status try_ = brim_cpu_dnn_check((expr), (what)); \
    if (try_ != BRIM_OK) return try_;                      \
  } while (0)

// The op itself, its gradient for the data, or its gradient for the weights.
typedef enum brim_cpu_dnn_kind {
  BRIM_CPU_DNN_FORWARD,
  BRIM_CPU_DNN_DATA,
  BRIM_CPU_DNN_WEIGHT,
} brim_cpu_dnn_kind;

// The memory objects of an op: first the caller's tensors (or their gradients), then those in the
// workspace.
enum {
  BRIM_CPU_DNN_X,
  BRIM_CPU_DNN_W,
  BRIM_CPU_DNN_Y,
  BRIM_CPU_DNN_BIAS,
  BRIM_CPU_DNN_SCRATCH,
  BRIM_CPU_DNN_BLOCKED,  // the weights in oneDNN's layout
  BRIM_CPU_DNN_REORDER,  // the reorder's scratchpad
  BRIM_CPU_DNN_SLOTS
};

// Names of the op in messages: "a convolution", "to run a convolution", ...
typedef struct brim_cpu_dnn_words {
  const char *op, *kind, *description, *reorder, *run, *finish;
} brim_cpu_dnn_words;

typedef struct brim_cpu_dnn {
  brim_cpu_dnn_kind kind;
  int threads;
  bool planning;  // prepare only finds the workspace size: no primitive is created
  const brim_cpu_dnn_words *words;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t op, reorder;              // reorder: NULL = oneDNN uses brim's layout
  dnnl_memory_t memory[BRIM_CPU_DNN_SLOTS];  // NULL = not used
  size_t offset[BRIM_CPU_DNN_SLOTS];         // offsets of the memory objects in the workspace
  bool in_workspace[BRIM_CPU_DNN_SLOTS];
  // Floats of a gradient that is computed in the workspace and then added to the output; 0 = it is written
  // to the output directly.
  int64_t add;
  size_t plain_offset;  // with add > 0: offset in the workspace of that gradient, in brim's layout
  size_t workspace_bytes;
} brim_cpu_dnn;

// The tensors of a layer. x, w and y have brim's layout; w_any lets oneDNN choose the layout of the
// weights. bias: NULL = none.
typedef struct dnn_layer {
  dnnl_memory_desc_t x, w, w_any, y;
  const dnnl_memory_desc_t *bias;
} dnn_layer;

//---------------------------------- slices of a gradient: types ----------------------------------

// oneDNN sums the gradient of weights over threads that spin in barriers. If other programs use the cores
// too, each barrier costs a time slice. So brim gives each rank a slice of the output channels, which it
// computes alone from a copy of its columns of dy.
typedef struct brim_cpu_dnn_slice {
  void *state;  // a plan for one thread
  int64_t begin, cols;
  // Offsets in the op's workspace: the copy of dy, and the slice's own workspace.
  size_t dy, workspace;
} brim_cpu_dnn_slice;

typedef struct dnn_slices {
  int count;
  int64_t rows, cols;  // shape of dy
  size_t element;      // bytes of an element of dy
  int64_t weights;     // floats of dw per column of dy
  const struct brim_cpu_dnn_slicer *slicer;
  brim_cpu_dnn_slice slices[];
} dnn_slices;

// How a slice is computed: by a matrix product or a convolution with fewer columns. `whole` is the
// brim_cpu_gemm or brim_cpu_conv of all columns. prepare returns BRIM_EUNSUPPORTED if there is no kernel for
// the slice.
typedef struct brim_cpu_dnn_slicer {
  brim_status (*prepare)(const void *whole, int64_t cols, void **state, size_t *bytes);
  brim_status (*run)(const void *state, const brim_cpu_gemm_args *args);
  void (*release)(void *state);
} brim_cpu_dnn_slicer;

//---------------------------------- shared: plan ----------------------------------

// The caller sets kind, threads, planning, words and add before, and calls dnn_close also after a failure.
static brim_status dnn_open(brim_cpu_dnn *d) {
  // A primitive is made for a number of threads, and another number gives other bits. So this function and
  // run_layer set the number.
  brim_cpu_team_set_default(d->threads);
  BRIM_CPU_DNN_TRY(dnnl_engine_create(&d->engine, dnnl_cpu, 0), "an engine");
  BRIM_CPU_DNN_TRY(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_in_order), "a stream");
  return BRIM_OK;
}

static void dnn_close(brim_cpu_dnn *d) {
  for (int i = 0; i < BRIM_CPU_DNN_SLOTS; i++) {
    if (d->memory[i]) dnnl_memory_destroy(d->memory[i]);
  }
  if (d->reorder) dnnl_primitive_destroy(d->reorder);
  if (d->op) dnnl_primitive_destroy(d->op);
  if (d->stream) dnnl_stream_destroy(d->stream);
  if (d->engine) dnnl_engine_destroy(d->engine);
}

// Creates attributes that put the scratchpad into brim's workspace.
static brim_status dnn_attr(dnnl_primitive_attr_t *attr) {
  BRIM_CPU_DNN_TRY(dnnl_primitive_attr_create(attr), "attributes");
  BRIM_CPU_DNN_TRY(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user),
                   "a scratchpad");
  return BRIM_OK;
}

// Describes the op `forward`. If `backward` is not NULL, describes it instead, with `forward` as its hint.
static brim_status dnn_describe(const brim_cpu_dnn *d, const_dnnl_op_desc_t forward,
                                const_dnnl_op_desc_t backward, const_dnnl_primitive_attr_t attr,
                                dnnl_primitive_desc_t *pd) {
  const char *what = d->words->kind;
  if (!backward) {
    return brim_cpu_dnn_check(dnnl_primitive_desc_create(pd, forward, attr, d->engine, NULL), what);
  }
  dnnl_primitive_desc_t hint = NULL;
  BRIM_CPU_DNN_TRY(dnnl_primitive_desc_create(&hint, forward, NULL, d->engine, NULL), what);
  brim_status status =
      brim_cpu_dnn_check(dnnl_primitive_desc_create(pd, backward, attr, d->engine, hint), what);
  dnnl_primitive_desc_destroy(hint);
  return status;
}

static brim_status add_memory(brim_cpu_dnn *d, int slot, const dnnl_memory_desc_t *md) {
  bool in_workspace = slot >= BRIM_CPU_DNN_SCRATCH;
  size_t bytes = dnnl_memory_desc_get_size(md);
  if (in_workspace && bytes == 0) return BRIM_OK;
  BRIM_CPU_DNN_TRY(dnnl_memory_create(&d->memory[slot], md, d->engine, DNNL_MEMORY_NONE),
                   "a memory object");
  if (in_workspace) {
    d->in_workspace[slot] = true;
    d->offset[slot] = d->workspace_bytes;
    d->workspace_bytes += brim_cpu_round64(bytes);
  }
  return BRIM_OK;
}

static brim_status add_scratch(brim_cpu_dnn *d, int slot, dnnl_primitive_desc_t pd) {
  return add_memory(d, slot, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}

// A reorder between brim's layout of the weights and oneDNN's, in the direction the op needs.
static brim_status make_reorder(brim_cpu_dnn *d, const dnnl_memory_desc_t *plain,
                                const dnnl_memory_desc_t *blocked) {
  bool out = d->kind == BRIM_CPU_DNN_WEIGHT;
  const dnnl_memory_desc_t *from = out ? blocked : plain, *to = out ? plain : blocked;
  dnnl_primitive_desc_t pd = NULL;
  dnnl_primitive_attr_t attr = NULL;
  brim_status status = dnn_attr(&attr);
  if (status != BRIM_OK) goto done;
  status = brim_cpu_dnn_check(
      dnnl_reorder_primitive_desc_create(&pd, from, d->engine, to, d->engine, attr),
      d->words->reorder);
  if (status != BRIM_OK) goto done;
  if (!d->planning) {
    status = brim_cpu_dnn_check(dnnl_primitive_create(&d->reorder, pd), d->words->reorder);
  }
  if (status == BRIM_OK) status = add_memory(d, BRIM_CPU_DNN_BLOCKED, blocked);
  if (status == BRIM_OK) status = add_scratch(d, BRIM_CPU_DNN_REORDER, pd);
done:
  if (pd) dnnl_primitive_desc_destroy(pd);
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

// Creates the primitive of a description, memory objects for its tensors, and a reorder if its
// layout of the weights differs from brim's.
static brim_status dnn_plan(brim_cpu_dnn *d, dnnl_primitive_desc_t pd, const dnn_layer *layer) {
  bool weight = d->kind == BRIM_CPU_DNN_WEIGHT;
  if (!d->planning) BRIM_CPU_DNN_TRY(dnnl_primitive_create(&d->op, pd), d->words->op);
  BRIM_TRY(add_memory(d, BRIM_CPU_DNN_X, &layer->x));
  BRIM_TRY(add_memory(d, BRIM_CPU_DNN_W, &layer->w));
  BRIM_TRY(add_memory(d, BRIM_CPU_DNN_Y, &layer->y));
  if (layer->bias) BRIM_TRY(add_memory(d, BRIM_CPU_DNN_BIAS, layer->bias));
  BRIM_TRY(add_scratch(d, BRIM_CPU_DNN_SCRATCH, pd));
  const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(
      pd, weight ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
  if (!dnnl_memory_desc_equal(w, &layer->w)) BRIM_TRY(make_reorder(d, &layer->w, w));
  if (d->add > 0) {
    d->plain_offset = d->workspace_bytes;
    d->workspace_bytes += brim_cpu_round64((size_t)d->add * sizeof(float));
  }
  return BRIM_OK;
}

//---------------------------------- shared: run ----------------------------------

static brim_status set_addresses(const brim_cpu_dnn *d, const brim_cpu_gemm_args *args, void *out) {
  // oneDNN's handles are not const; oneDNN does not write to inputs.
  void *a = (void *)(uintptr_t)args->a, *b = (void *)(uintptr_t)args->b;
  void *user[BRIM_CPU_DNN_SLOTS] = {[BRIM_CPU_DNN_X] = a,
                                    [BRIM_CPU_DNN_W] = b,
                                    [BRIM_CPU_DNN_Y] = out,
                                    [BRIM_CPU_DNN_BIAS] = (void *)(uintptr_t)args->bias};
  if (d->kind == BRIM_CPU_DNN_DATA) user[BRIM_CPU_DNN_X] = out, user[BRIM_CPU_DNN_Y] = a;
  if (d->kind == BRIM_CPU_DNN_WEIGHT) {
    user[BRIM_CPU_DNN_X] = b, user[BRIM_CPU_DNN_W] = out, user[BRIM_CPU_DNN_Y] = a;
  }
  for (int i = 0; i < BRIM_CPU_DNN_SLOTS; i++) {
    if (!d->memory[i]) continue;
    void *at = d->in_workspace[i] ? (char *)args->workspace + d->offset[i] : user[i];
    BRIM_CPU_DNN_TRY(dnnl_memory_set_data_handle(d->memory[i], at), "an address");
  }
  return BRIM_OK;
}

static brim_status run_reorder(const brim_cpu_dnn *d, int from, int to) {
  dnnl_exec_arg_t list[3] = {{DNNL_ARG_FROM, d->memory[from]}, {DNNL_ARG_TO, d->memory[to]}};
  int n = 2;
  if (d->memory[BRIM_CPU_DNN_REORDER]) {
    list[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, d->memory[BRIM_CPU_DNN_REORDER]};
  }
  return brim_cpu_dnn_check(dnnl_primitive_execute(d->reorder, d->stream, n, list),
                            "to run a reorder");
}

static brim_status run_op(const brim_cpu_dnn *d) {
  static const int args_of[3][3] = {
      {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
      {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
      {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
  };
  const int *names = args_of[d->kind];
  dnnl_memory_t w = d->memory[d->reorder ? BRIM_CPU_DNN_BLOCKED : BRIM_CPU_DNN_W];
  dnnl_exec_arg_t list[5] = {
      {names[0], d->memory[BRIM_CPU_DNN_X]}, {names[1], w}, {names[2], d->memory[BRIM_CPU_DNN_Y]}};
  int n = 3;
  if (d->memory[BRIM_CPU_DNN_BIAS]) {
    list[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, d->memory[BRIM_CPU_DNN_BIAS]};
  }
  if (d->memory[BRIM_CPU_DNN_SCRATCH]) {
    list[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, d->memory[BRIM_CPU_DNN_SCRATCH]};
  }
  return brim_cpu_dnn_check(dnnl_primitive_execute(d->op, d->stream, n, list), d->words->run);
}

// Sets addresses, runs, waits and adds. a, b and c of the arguments are the op's inputs and output.
static brim_status run_layer(const brim_cpu_dnn *d, const brim_cpu_gemm_args *args) {
  bool weight = d->kind == BRIM_CPU_DNN_WEIGHT;
  void *out = d->add > 0 ? (char *)args->workspace + d->plain_offset : args->c;
  brim_cpu_team_set_default(d->threads);
  BRIM_TRY(set_addresses(d, args, out));
  if (d->reorder && !weight) BRIM_TRY(run_reorder(d, BRIM_CPU_DNN_W, BRIM_CPU_DNN_BLOCKED));
  BRIM_TRY(run_op(d));
  if (d->reorder && weight) BRIM_TRY(run_reorder(d, BRIM_CPU_DNN_BLOCKED, BRIM_CPU_DNN_W));
  BRIM_CPU_DNN_TRY(dnnl_stream_wait(d->stream), d->words->finish);
  if (d->add > 0) {
    brim_cpu_add_or_act_bwd(
        d->threads, BRIM_OP_ADD,
        (brim_cpu_map_arg){args->c, out, args->c, BRIM_F32, d->add, BRIM_ACT_NONE});
  }
  return BRIM_OK;
}

//---------------------------------- slices of a gradient ----------------------------------

enum { SLICE_COLS = 16 };  // floats of a vector

static void slices_release(dnn_slices *s) {
  if (!s) return;
  for (int i = 0; i < s->count; i++) s->slicer->release(s->slices[i].state);
  brim_cpu_host()->free(s);
}

// Takes rows, cols, element, weights and slicer from `shape`. *out stays NULL if there is nothing to
// slice, or no kernel for a slice.
static brim_status slices_prepare(const dnn_slices *shape, int threads, const void *whole,
                                  dnn_slices **out, size_t *workspace_bytes) {
  *out = NULL;
  const int64_t most = brim_cpu_ceil_div(shape->cols, SLICE_COLS);
  const int count = threads < most ? threads : (int)most;
  if (count < 2) return BRIM_OK;
  dnn_slices *s = brim_cpu_host()->alloc(sizeof *s + (size_t)count * sizeof s->slices[0], 0);
  if (!s) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a gradient");
  *s = *shape;
  s->count = 0;
  size_t bytes = 0;
  for (int i = 0; i < count; i++) {
    brim_cpu_dnn_slice *slice = &s->slices[i];
    int64_t end;
    brim_cpu_split(s->cols, SLICE_COLS, i, count, &slice->begin, &end);
    slice->cols = end - slice->begin;
    size_t own = 0;
    brim_status status = s->slicer->prepare(whole, slice->cols, &slice->state, &own);
    if (status != BRIM_OK) {
      slices_release(s);
      return status == BRIM_EUNSUPPORTED ? BRIM_OK : status;
    }
    s->count = i + 1;
    slice->dy = bytes;
    slice->workspace = slice->dy + brim_cpu_round64((size_t)(s->rows * slice->cols) * s->element);
    bytes = slice->workspace + brim_cpu_round64(own);
  }
  *out = s;
  *workspace_bytes = bytes;
  return BRIM_OK;
}

typedef struct slices_run {
  const dnn_slices *s;
  const brim_cpu_gemm_args *args;
  brim_status *status;
} slices_run;

static void slices_body(void *arg, int rank, int size) {
  const slices_run *run = arg;
  const dnn_slices *s = run->s;
  for (int i = rank; i < s->count; i += size) {
    const brim_cpu_dnn_slice *slice = &s->slices[i];
    char *dy = (char *)run->args->workspace + slice->dy;
    const char *from = (const char *)run->args->a + (size_t)slice->begin * s->element;
    const size_t width = (size_t)slice->cols * s->element, stride = (size_t)s->cols * s->element;
    for (int64_t r = 0; r < s->rows; r++) {
      memcpy(dy + (size_t)r * width, from + (size_t)r * stride, width);
    }
    brim_cpu_gemm_args own = *run->args;
    own.a = dy;
    own.c = (float *)run->args->c + slice->begin * s->weights;
    own.workspace = (char *)run->args->workspace + slice->workspace;
    const brim_status status = s->slicer->run(slice->state, &own);
    if (status != BRIM_OK) __atomic_store_n(run->status, status, __ATOMIC_RELAXED);
  }
}

static brim_status run_slices(const dnn_slices *s, const brim_cpu_gemm_args *args) {
  brim_status status = BRIM_OK;
  slices_run run = {s, args, &status};
  brim_cpu_team_run(s->count, slices_body, &run);
  return status;
}

//---------------------------------- matrix products ----------------------------------

typedef struct dnn_state {
  brim_cpu_gemm g;
  brim_cpu_dnn d;
  // If not NULL, these slices compute the gradient of weights, and d is not used.
  dnn_slices *slices;
} dnn_state;

static const brim_cpu_dnn_words words = {
    .op = "a matrix product",
    .kind = "a matrix product of this type and shape on this CPU",
    .description = "the product's description",
    .reorder = "a reorder of the weights",
    .run = "to run a matrix product",
    .finish = "to finish a matrix product",
};

//---------------------------------- matrix products: plan ----------------------------------

static dnnl_status_t plain_2d(dnnl_memory_desc_t *md, int64_t rows, int64_t cols,
                              dnnl_data_type_t type, dnnl_format_tag_t tag) {
  dnnl_dims_t dims = {rows, cols};
  return dnnl_memory_desc_init_by_tag(md, 2, dims, type, tag);
}

static dnnl_alg_kind_t eltwise_of(brim_act act) {
  switch (act) {
    case BRIM_ACT_RELU:
      return dnnl_eltwise_relu;
    case BRIM_ACT_GELU:
      return dnnl_eltwise_gelu_erf;
    case BRIM_ACT_TANH:
      return dnnl_eltwise_tanh;
    default:
      return dnnl_alg_kind_undef;
  }
}

// Makes the attributes of a product: a scratchpad and, for the forward op, the activation.
static brim_status make_attr(const brim_cpu_gemm *g, dnnl_primitive_attr_t *attr) {
  BRIM_TRY(dnn_attr(attr));
  if (g->op != BRIM_OP_LINEAR || g->act == BRIM_ACT_NONE) return BRIM_OK;
  dnnl_post_ops_t ops = NULL;
  BRIM_CPU_DNN_TRY(dnnl_post_ops_create(&ops), "post-ops");
  brim_status status = brim_cpu_dnn_check(
      dnnl_post_ops_append_eltwise(ops, 1.0f, eltwise_of(g->act), 0.0f, 0.0f), "a post-op");
  if (status == BRIM_OK) {
    status = brim_cpu_dnn_check(dnnl_primitive_attr_set_post_ops(*attr, ops), "post-ops");
  }
  dnnl_post_ops_destroy(ops);
  return status;
}

// The three tensors of a layer as oneDNN sees it: x(rows, in), w(out, in), y(rows, out).
static brim_status describe(const brim_cpu_gemm *g, dnn_layer *d, dnnl_memory_desc_t *bias) {
  dnnl_data_type_t type = g->type == BRIM_F32 ? dnnl_f32 : dnnl_bf16;
  dnnl_data_type_t w_type = g->op == BRIM_OP_LINEAR_BWD_WEIGHT ? dnnl_f32 : type;
  int64_t rows = g->m, in = g->k, out = g->n;
  if (g->op == BRIM_OP_LINEAR_BWD_DATA) in = g->n, out = g->k;
  if (g->op == BRIM_OP_LINEAR_BWD_WEIGHT) rows = g->k, in = g->n, out = g->m;
  BRIM_CPU_DNN_TRY(plain_2d(&d->x, rows, in, type, dnnl_ab), "a layout");
  BRIM_CPU_DNN_TRY(plain_2d(&d->w, out, in, w_type, dnnl_ab), "a layout");
  BRIM_CPU_DNN_TRY(plain_2d(&d->w_any, out, in, w_type, dnnl_format_tag_any), "a layout");
  BRIM_CPU_DNN_TRY(plain_2d(&d->y, rows, out, type, dnnl_ab), "a layout");
  dnnl_dims_t dims = {out};
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(bias, 1, dims, type, dnnl_a), "a layout");
  d->bias = g->bias ? bias : NULL;
  return BRIM_OK;
}

static brim_status make_desc(const dnn_state *s, const dnn_layer *l, dnnl_primitive_desc_t *pd) {
  dnnl_inner_product_desc_t forward, backward;
  // A backward description needs its forward description, in which the weights have x's type.
  dnnl_memory_desc_t w_any = l->w_any;
  w_any.data_type = l->x.data_type;
  BRIM_CPU_DNN_TRY(dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training, &l->x,
                                                        &w_any, l->bias, &l->y),
                   words.description);
  if (s->d.kind == BRIM_CPU_DNN_DATA) {
    BRIM_CPU_DNN_TRY(dnnl_inner_product_backward_data_desc_init(&backward, &l->x, &l->w_any, &l->y),
                     words.description);
  } else if (s->d.kind == BRIM_CPU_DNN_WEIGHT) {
    BRIM_CPU_DNN_TRY(
        dnnl_inner_product_backward_weights_desc_init(&backward, &l->x, &l->w_any, NULL, &l->y),
        words.description);
  }
  dnnl_primitive_attr_t attr = NULL;
  brim_status status = make_attr(&s->g, &attr);
  if (status == BRIM_OK) {
    bool is_forward = s->d.kind == BRIM_CPU_DNN_FORWARD;
    status = dnn_describe(&s->d, &forward, is_forward ? NULL : &backward, attr, pd);
  }
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

static brim_status plan(dnn_state *s) {
  dnn_layer layer;
  dnnl_memory_desc_t bias;
  dnnl_primitive_desc_t pd = NULL;
  BRIM_TRY(describe(&s->g, &layer, &bias));
  BRIM_TRY(make_desc(s, &layer, &pd));
  brim_status status = dnn_plan(&s->d, pd, &layer);
  dnnl_primitive_desc_destroy(pd);
  return status;
}

static void dnn_release(void *state) {
  dnn_state *s = state;
  slices_release(s->slices);
  dnn_close(&s->d);
  brim_cpu_host()->free(s);
}

static brim_status dnn_run(const void *state, const brim_cpu_gemm_args *args);
static brim_status slice_prepare(const void *whole, int64_t cols, void **state, size_t *bytes);
static const brim_cpu_dnn_slicer slicer = {slice_prepare, dnn_run, dnn_release};

static brim_status dnn_prepare(const brim_cpu_machine *machine, const brim_cpu_gemm *gemm,
                               void **state, size_t *workspace_bytes) {
  (void)machine;
  dnn_state *s = brim_cpu_host()->alloc(sizeof *s, 0);
  if (!s) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a matrix product");
  brim_cpu_dnn_kind kind = gemm->op == BRIM_OP_LINEAR            ? BRIM_CPU_DNN_FORWARD
                           : gemm->op == BRIM_OP_LINEAR_BWD_DATA ? BRIM_CPU_DNN_DATA
                                                                 : BRIM_CPU_DNN_WEIGHT;
  *s = (dnn_state){.g = *gemm,
                   .d = {.kind = kind,
                         .threads = gemm->threads,
                         .planning = gemm->planning,
                         .words = &words,
                         .add = gemm->accumulate ? gemm->m * gemm->n : 0}};
  brim_status status = BRIM_OK;
  if (kind == BRIM_CPU_DNN_WEIGHT) {
    const dnn_slices shape = {.rows = gemm->k,
                              .cols = gemm->m,
                              .element = gemm->type == BRIM_F32 ? 4 : 2,
                              .weights = gemm->n,
                              .slicer = &slicer};
    status = slices_prepare(&shape, gemm->threads, gemm, &s->slices, workspace_bytes);
    *state = s;
    if (s->slices) return BRIM_OK;
  }
  if (status == BRIM_OK) status = dnn_open(&s->d);
  if (status == BRIM_OK) status = plan(s);
  if (status != BRIM_OK) {
    dnn_release(s);
    return status;
  }
  *workspace_bytes = s->d.workspace_bytes;
  *state = s;
  return BRIM_OK;
}

static brim_status slice_prepare(const void *whole, int64_t cols, void **state, size_t *bytes) {
  brim_cpu_gemm gemm = *(const brim_cpu_gemm *)whole;
  gemm.m = cols;
  gemm.threads = 1;
  return dnn_prepare(NULL, &gemm, state, bytes);
}

//---------------------------------- matrix products: run ----------------------------------

static brim_status dnn_run(const void *state, const brim_cpu_gemm_args *args) {
  const dnn_state *s = state;
  const brim_cpu_gemm *g = &s->g;
  if (s->slices) return run_slices(s->slices, args);
  BRIM_TRY(run_layer(&s->d, args));
  if (!g->accumulate && args->s && g->op == BRIM_OP_LINEAR_BWD_DATA) {
    brim_cpu_add_or_act_bwd(
        g->threads, BRIM_OP_ACT_BWD,
        (brim_cpu_map_arg){args->c, args->s, args->c, g->type, g->m * g->n, g->act});
  }
  return BRIM_OK;
}

//---------------------------------- matrix products: provider ----------------------------------

#if defined(__x86_64__)
static const struct {
  unsigned isa;
  const char *name;
} isa_names[] = {
    {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
    {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
    {dnnl_cpu_isa_avx512_core, "avx512_core"},
    {dnnl_cpu_isa_avx2, "avx2"},
    {dnnl_cpu_isa_avx, "avx"},
    {dnnl_cpu_isa_sse41, "sse41"},
};

static const char *isa_name(void) {
  unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
  for (size_t i = 0; i < sizeof isa_names / sizeof *isa_names; i++) {
    if ((isa & isa_names[i].isa) == isa_names[i].isa) return isa_names[i].name;
  }
  return "generic";
}

static bool has_bf16(void) {
  unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
  return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

static bool has_bf16_instructions(void) {
  unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
  return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

// On Intel CPUs only AMX makes bf16 faster than fp32: with AVX512_BF16 alone a step took 1.25 to 1.6 times
// as long (docs/performance/cpu-step.md).
static bool has_fast_bf16(void) {
  unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
  __builtin_cpu_init();
  return (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx ||
         (has_bf16_instructions() && !__builtin_cpu_is("intel"));
}

// Once oneDNN has been used, it refuses a mask. That is harmless: BRIM_CPU_MASK never changes, so the same
// mask was set before the first use.
void brim_cpu_onednn_mask(unsigned mask) {
  if (mask & BRIM_CPU_MASK_AVX2) {
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx);
  } else if (mask & BRIM_CPU_MASK_AVX512) {
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  } else if (mask & BRIM_CPU_MASK_BF16) {
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_vnni);
  } else if (mask & BRIM_CPU_MASK_AMX) {
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
  }
}
#else
static const char *isa_name(void) { return "generic"; }
static bool has_bf16(void) { return false; }
static bool has_bf16_instructions(void) { return false; }
static bool has_fast_bf16(void) { return false; }
void brim_cpu_onednn_mask(unsigned mask) { (void)mask; }
#endif

static bool dnn_available(const brim_cpu_machine *machine, char *text, size_t text_size) {
  (void)machine;
  const dnnl_version_t *v = dnnl_version();
  snprintf(text, text_size, "oneDNN %d.%d.%d (%s)", v->major, v->minor, v->patch, isa_name());
  return true;
}

static bool dnn_supports(const brim_cpu_machine *machine, brim_dtype type) {
  (void)machine;
  return type == BRIM_F32 || (type == BRIM_BF16 && has_bf16());
}

static bool dnn_fast(const brim_cpu_machine *machine, brim_dtype type) {
  (void)machine;
  return type == BRIM_F32 || (type == BRIM_BF16 && has_fast_bf16());
}

static bool dnn_narrow(const brim_cpu_machine *machine, brim_dtype type) {
  (void)machine;
  return type == BRIM_BF16 && has_bf16_instructions();
}

const brim_cpu_gemm_provider brim_cpu_gemm_onednn = {
    .name = "onednn",
    .available = dnn_available,
    .supports = dnn_supports,
    .fast = dnn_fast,
    .narrow = dnn_narrow,
    .prepare = dnn_prepare,
    .run = dnn_run,
    .release = dnn_release,
    .conv = &brim_cpu_conv_onednn,
};

//---------------------------------- convolutions ----------------------------------

typedef struct dnn_conv {
  brim_cpu_conv v;
  brim_cpu_dnn d;
  // If not NULL, these slices compute the gradient of weights, and d is not used.
  dnn_slices *slices;
} dnn_conv;

static const brim_cpu_dnn_words conv_words = {
    .op = "a convolution",
    .kind = "a convolution of this type and shape on this CPU",
    .description = "the convolution's description",
    .reorder = "a reorder of a convolution's weights",
    .run = "to run a convolution",
    .finish = "to finish a convolution",
};

//---------------------------------- convolutions: plan ----------------------------------

// oneDNN counts dimensions as N, C, H, W and O, I, H, W whatever the layout.
static brim_status conv_describe(const brim_cpu_conv *v, dnn_layer *d) {
  dnnl_data_type_t type = v->type == BRIM_F32 ? dnnl_f32 : dnnl_bf16;
  dnnl_data_type_t w_type = v->op == BRIM_OP_CONV_BWD_WEIGHT ? dnnl_f32 : type;
  dnnl_dims_t x = {v->n, v->c, v->h, v->w}, y = {v->n, v->m, v->p, v->q};
  dnnl_dims_t w = {v->m, v->c, v->r, v->s};
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->x, 4, x, type, dnnl_nhwc), "a layout");
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->y, 4, y, type, dnnl_nhwc), "a layout");
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->w, 4, w, w_type, dnnl_ohwi), "a layout");
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->w_any, 4, w, w_type, dnnl_format_tag_any),
                   "a layout");
  d->bias = NULL;
  return BRIM_OK;
}

static brim_status conv_make_desc(const dnn_conv *s, const dnn_layer *l,
                                  dnnl_primitive_desc_t *pd) {
  const brim_cpu_conv *v = &s->v;
  dnnl_convolution_desc_t forward, backward;
  dnnl_dims_t stride = {v->stride, v->stride}, pad = {v->pad, v->pad};
  // A backward description needs its forward description, in which the weights have x's type.
  dnnl_memory_desc_t w_any = l->w_any;
  w_any.data_type = l->x.data_type;
  BRIM_CPU_DNN_TRY(
      dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training, dnnl_convolution_direct,
                                         &l->x, &w_any, NULL, &l->y, stride, pad, pad),
      conv_words.description);
  if (s->d.kind == BRIM_CPU_DNN_DATA) {
    BRIM_CPU_DNN_TRY(
        dnnl_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct, &l->x,
                                                 &l->w_any, &l->y, stride, pad, pad),
        conv_words.description);
  } else if (s->d.kind == BRIM_CPU_DNN_WEIGHT) {
    BRIM_CPU_DNN_TRY(
        dnnl_convolution_backward_weights_desc_init(&backward, dnnl_convolution_direct, &l->x,
                                                    &l->w_any, NULL, &l->y, stride, pad, pad),
        conv_words.description);
  }
  dnnl_primitive_attr_t attr = NULL;
  brim_status status = dnn_attr(&attr);
  if (status == BRIM_OK) {
    bool is_forward = s->d.kind == BRIM_CPU_DNN_FORWARD;
    status = dnn_describe(&s->d, &forward, is_forward ? NULL : &backward, attr, pd);
  }
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

// For shapes without a kernel oneDNN runs plain loops, hundreds of times slower than brim's kernels. On Arm
// it has only such loops. They are accepted there, because brim uses oneDNN on Arm only with
// BRIM_CPU_GEMM=onednn.
static bool plain_loops(const char *name) {
#if defined(__x86_64__)
  return strstr(name, "ref") != NULL;
#else
  (void)name;
  return false;
#endif
}

// A bug of oneDNN 2.6.3: its 1x1 kernels for AVX2 first gather the pixels that a stride keeps. They copy
// whole vectors of 8 channels into room for the actual number of channels. With 4 channels one thread
// overwrites pixels of another, and the gradient of the weights differs from run to run.
static bool gathers_too_much(const brim_cpu_conv *v, const char *name) {
  return v->stride > 1 && v->c % 8 != 0 && strstr(name, "jit_1x1:") && !strstr(name, "avx512");
}

static brim_status refuse_kernel(const brim_cpu_conv *v, dnnl_primitive_desc_t pd) {
  const char *name = "";
  BRIM_CPU_DNN_TRY(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name),
                   "to name its kernel");
  if (plain_loops(name) || gathers_too_much(v, name)) {
    return brim_cpu_fail(BRIM_EUNSUPPORTED, "cpu: oneDNN has no fast kernel for a convolution");
  }
  return BRIM_OK;
}

static brim_status conv_plan(dnn_conv *s) {
  dnn_layer layer;
  dnnl_primitive_desc_t pd = NULL;
  BRIM_TRY(conv_describe(&s->v, &layer));
  BRIM_TRY(conv_make_desc(s, &layer, &pd));
  brim_status status = refuse_kernel(&s->v, pd);
  if (status == BRIM_OK) status = dnn_plan(&s->d, pd, &layer);
  dnnl_primitive_desc_destroy(pd);
  return status;
}

static void conv_dnn_release(void *state) {
  dnn_conv *s = state;
  slices_release(s->slices);
  dnn_close(&s->d);
  brim_cpu_host()->free(s);
}

static brim_status conv_dnn_run(const void *state, const brim_cpu_gemm_args *args);
static brim_status conv_slice_prepare(const void *whole, int64_t cols, void **state, size_t *bytes);
static const brim_cpu_dnn_slicer conv_slicer = {conv_slice_prepare, conv_dnn_run, conv_dnn_release};

static brim_status conv_dnn_prepare(const brim_cpu_machine *machine, const brim_cpu_conv *conv,
                                    void **state, size_t *workspace_bytes) {
  (void)machine;
  dnn_conv *s = brim_cpu_host()->alloc(sizeof *s, 0);
  if (!s) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a convolution");
  brim_cpu_dnn_kind kind = conv->op == BRIM_OP_CONV            ? BRIM_CPU_DNN_FORWARD
                           : conv->op == BRIM_OP_CONV_BWD_DATA ? BRIM_CPU_DNN_DATA
                                                               : BRIM_CPU_DNN_WEIGHT;
  bool add = conv->accumulate && kind == BRIM_CPU_DNN_WEIGHT;
  *s = (dnn_conv){.v = *conv,
                  .d = {.kind = kind,
                        .threads = conv->threads,
                        .planning = conv->planning,
                        .words = &conv_words,
                        .add = add ? conv->m * conv->r * conv->s * conv->c : 0}};
  brim_status status = BRIM_OK;
  if (kind == BRIM_CPU_DNN_WEIGHT) {
    const dnn_slices shape = {.rows = conv->n * conv->p * conv->q,
                              .cols = conv->m,
                              .element = conv->type == BRIM_F32 ? 4 : 2,
                              .weights = conv->r * conv->s * conv->c,
                              .slicer = &conv_slicer};
    status = slices_prepare(&shape, conv->threads, conv, &s->slices, workspace_bytes);
    *state = s;
    if (s->slices) return BRIM_OK;
  }
  if (status == BRIM_OK) status = dnn_open(&s->d);
  if (status == BRIM_OK) status = conv_plan(s);
  if (status != BRIM_OK) {
    conv_dnn_release(s);
    return status;
  }
  *workspace_bytes = s->d.workspace_bytes;
  *state = s;
  return BRIM_OK;
}

static brim_status conv_slice_prepare(const void *whole, int64_t cols, void **state,
                                      size_t *bytes) {
  brim_cpu_conv conv = *(const brim_cpu_conv *)whole;
  conv.m = cols;
  conv.threads = 1;
  return conv_dnn_prepare(NULL, &conv, state, bytes);
}

//---------------------------------- convolutions: run ----------------------------------

static brim_status conv_dnn_run(const void *state, const brim_cpu_gemm_args *args) {
  const dnn_conv *s = state;
  if (s->slices) return run_slices(s->slices, args);
  // oneDNN 2.6.3's AMX kernels may multiply by old contents of the scratchpad, and NaNs in it reached the
  // gradient. So clear it first.
  bool weight = s->d.kind == BRIM_CPU_DNN_WEIGHT;
  if (weight && s->v.type == BRIM_BF16 && s->d.workspace_bytes) {
    memset(args->workspace, 0, s->d.workspace_bytes);
  }
  return run_layer(&s->d, args);
}

const brim_cpu_conv_table brim_cpu_conv_onednn = {.prepare = conv_dnn_prepare,
                                                  .run = conv_dnn_run,
                                                  .release = conv_dnn_release,
                                                  .pointwise = true};
