// One op of oneDNN with its memory objects and the reorder of its weights: what products and
// convolutions share.
#include "backend/cpu/cpu_onednn.h"

#include <string.h>

//---------------------------------- plan ----------------------------------

brim_status brim_cpu_dnn_open(brim_cpu_dnn *d) {
  // Primitives are made for a number of threads; it changes bits, so it is fixed here and in run.
  brim_cpu_team_set_default(d->threads);
  BRIM_CPU_DNN_TRY(dnnl_engine_create(&d->engine, dnnl_cpu, 0), "an engine");
  BRIM_CPU_DNN_TRY(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_in_order), "a stream");
  return BRIM_OK;
}

void brim_cpu_dnn_close(brim_cpu_dnn *d) {
  for (int i = 0; i < BRIM_CPU_DNN_SLOTS; i++) {
    if (d->memory[i]) dnnl_memory_destroy(d->memory[i]);
  }
  if (d->reorder) dnnl_primitive_destroy(d->reorder);
  if (d->op) dnnl_primitive_destroy(d->op);
  if (d->stream) dnnl_stream_destroy(d->stream);
  if (d->engine) dnnl_engine_destroy(d->engine);
}

brim_status brim_cpu_dnn_attr(dnnl_primitive_attr_t *attr) {
  BRIM_CPU_DNN_TRY(dnnl_primitive_attr_create(attr), "attributes");
  BRIM_CPU_DNN_TRY(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user),
                   "a scratchpad");
  return BRIM_OK;
}

brim_status brim_cpu_dnn_describe(const brim_cpu_dnn *d, const_dnnl_op_desc_t forward,
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

// Between our layout of the weights and oneDNN's, in the direction the op needs.
static brim_status make_reorder(brim_cpu_dnn *d, const dnnl_memory_desc_t *plain,
                                const dnnl_memory_desc_t *blocked) {
  bool out = d->kind == BRIM_CPU_DNN_WEIGHT;
  const dnnl_memory_desc_t *from = out ? blocked : plain, *to = out ? plain : blocked;
  dnnl_primitive_desc_t pd = NULL;
  dnnl_primitive_attr_t attr = NULL;
  brim_status status = brim_cpu_dnn_attr(&attr);
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

brim_status brim_cpu_dnn_plan(brim_cpu_dnn *d, dnnl_primitive_desc_t pd,
                              const brim_cpu_dnn_layer *layer) {
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

//---------------------------------- run ----------------------------------

static brim_status set_addresses(const brim_cpu_dnn *d, const brim_cpu_gemm_args *args, void *out) {
  // oneDNN's handles are not const; it does not write to inputs.
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

brim_status brim_cpu_dnn_run(const brim_cpu_dnn *d, const brim_cpu_gemm_args *args) {
  bool weight = d->kind == BRIM_CPU_DNN_WEIGHT;
  void *out = d->add > 0 ? (char *)args->workspace + d->plain_offset : args->c;
  brim_cpu_team_set_default(d->threads);
  BRIM_TRY(set_addresses(d, args, out));
  if (d->reorder && !weight) BRIM_TRY(run_reorder(d, BRIM_CPU_DNN_W, BRIM_CPU_DNN_BLOCKED));
  BRIM_TRY(run_op(d));
  if (d->reorder && weight) BRIM_TRY(run_reorder(d, BRIM_CPU_DNN_BLOCKED, BRIM_CPU_DNN_W));
  BRIM_CPU_DNN_TRY(dnnl_stream_wait(d->stream), d->words->finish);
  if (d->add > 0) {
    brim_cpu_map(d->threads, BRIM_OP_ADD,
                 (brim_cpu_map_arg){args->c, out, args->c, BRIM_F32, d->add, BRIM_ACT_NONE});
  }
  return BRIM_OK;
}

//---------------------------------- gradients of weights ----------------------------------

enum { SLICE_COLS = 16 };  // a vector of floats

brim_status brim_cpu_dnn_slices_prepare(const brim_cpu_dnn_slices *shape, int threads,
                                        const void *whole, brim_cpu_dnn_slices **out,
                                        size_t *workspace_bytes) {
  *out = NULL;
  const int64_t most = brim_cpu_ceil_div(shape->cols, SLICE_COLS);
  const int count = threads < most ? threads : (int)most;
  if (count < 2) return BRIM_OK;
  brim_cpu_dnn_slices *s = brim_cpu_host()->alloc(sizeof *s + (size_t)count * sizeof s->at[0], 0);
  if (!s) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a gradient");
  *s = *shape;
  s->count = 0;
  size_t bytes = 0;
  for (int i = 0; i < count; i++) {
    brim_cpu_dnn_slice *at = &s->at[i];
    int64_t end;
    brim_cpu_split(s->cols, SLICE_COLS, i, count, &at->begin, &end);
    at->cols = end - at->begin;
    size_t own = 0;
    brim_status status = s->by->prepare(whole, at->cols, &at->state, &own);
    if (status != BRIM_OK) {
      brim_cpu_dnn_slices_release(s);
      return status == BRIM_EUNSUPPORTED ? BRIM_OK : status;
    }
    s->count = i + 1;
    at->dy = bytes;
    at->workspace = at->dy + brim_cpu_round64((size_t)(s->rows * at->cols) * s->element);
    bytes = at->workspace + brim_cpu_round64(own);
  }
  *out = s;
  *workspace_bytes = bytes;
  return BRIM_OK;
}

typedef struct slices_run {
  const brim_cpu_dnn_slices *s;
  const brim_cpu_gemm_args *args;
  brim_status *status;
} slices_run;

static void slices_body(void *arg, int rank, int size) {
  const slices_run *run = arg;
  const brim_cpu_dnn_slices *s = run->s;
  for (int i = rank; i < s->count; i += size) {
    const brim_cpu_dnn_slice *at = &s->at[i];
    char *dy = (char *)run->args->workspace + at->dy;
    const char *from = (const char *)run->args->a + (size_t)at->begin * s->element;
    const size_t width = (size_t)at->cols * s->element, stride = (size_t)s->cols * s->element;
    for (int64_t r = 0; r < s->rows; r++) {
      memcpy(dy + (size_t)r * width, from + (size_t)r * stride, width);
    }
    brim_cpu_gemm_args own = *run->args;
    own.a = dy;
    own.c = (float *)run->args->c + at->begin * s->weights;
    own.workspace = (char *)run->args->workspace + at->workspace;
    const brim_status status = s->by->run(at->state, &own);
    if (status != BRIM_OK) __atomic_store_n(run->status, status, __ATOMIC_RELAXED);
  }
}

brim_status brim_cpu_dnn_slices_run(const brim_cpu_dnn_slices *s, const brim_cpu_gemm_args *args) {
  brim_status status = BRIM_OK;
  slices_run run = {s, args, &status};
  brim_cpu_team_run(s->count, slices_body, &run);
  return status;
}

void brim_cpu_dnn_slices_release(brim_cpu_dnn_slices *s) {
  if (!s) return;
  for (int i = 0; i < s->count; i++) s->by->release(s->at[i].state);
  brim_cpu_host()->free(s);
}
