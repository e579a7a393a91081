// Convolutions by oneDNN (the v2 C API). Activations keep our NHWC layout; the layout of the
// weights is left to oneDNN (AMX wants its own) and a reorder from or to ours runs beside the
// convolution, in the workspace. Everything is created in prepare; a run only sets addresses.
// Adding to a gradient is left to our loops.
#include <string.h>

#include "backend/cpu/cpu_onednn.h"

// What a convolution touches, one memory object each: x or its gradient, our weights, y or its
// gradient, the scratchpads, oneDNN's weights.
enum { SLOT_X, SLOT_W, SLOT_Y, SLOT_SCRATCH, SLOT_BLOCKED, SLOT_REORDER, SLOT_COUNT };

typedef struct dnn_conv {
  brim_cpu_conv v;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t conv, reorder;    // reorder NULL: oneDNN takes our layout
  dnnl_memory_t memory[SLOT_COUNT];  // NULL = not used
  size_t offset[SLOT_COUNT];         // of those in the workspace
  bool in_workspace[SLOT_COUNT];
  size_t plain_offset;  // a gradient in our layout, before it is added
  size_t workspace_bytes;
} dnn_conv;

typedef struct conv_desc {
  dnnl_memory_desc_t x, w, w_any, y;
} conv_desc;

//---------------------------------- plan ----------------------------------

static brim_status add_memory(dnn_conv *s, int slot, const dnnl_memory_desc_t *md,
                              bool in_workspace) {
  size_t bytes = dnnl_memory_desc_get_size(md);
  if (in_workspace && bytes == 0) return BRIM_OK;
  BRIM_CPU_DNN_TRY(dnnl_memory_create(&s->memory[slot], md, s->engine, DNNL_MEMORY_NONE),
                   "a memory object");
  if (in_workspace) {
    s->in_workspace[slot] = true;
    s->offset[slot] = s->workspace_bytes;
    s->workspace_bytes += brim_cpu_round64(bytes);
  }
  return BRIM_OK;
}

static brim_status make_attr(dnnl_primitive_attr_t *attr) {
  BRIM_CPU_DNN_TRY(dnnl_primitive_attr_create(attr), "attributes");
  BRIM_CPU_DNN_TRY(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user),
                   "a scratchpad");
  return BRIM_OK;
}

// oneDNN counts dimensions as N, C, H, W and O, I, H, W whatever the layout.
static brim_status describe(const brim_cpu_conv *v, conv_desc *d) {
  dnnl_data_type_t type = v->type == BRIM_F32 ? dnnl_f32 : dnnl_bf16;
  dnnl_data_type_t w_type = v->op == BRIM_OP_CONV_BWD_WEIGHT ? dnnl_f32 : type;
  dnnl_dims_t x = {v->n, v->c, v->h, v->w}, y = {v->n, v->m, v->p, v->q};
  dnnl_dims_t w = {v->m, v->c, v->r, v->s};
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->x, 4, x, type, dnnl_nhwc), "a layout");
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->y, 4, y, type, dnnl_nhwc), "a layout");
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->w, 4, w, w_type, dnnl_ohwi), "a layout");
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->w_any, 4, w, w_type, dnnl_format_tag_any),
                   "a layout");
  return BRIM_OK;
}

static brim_status make_conv_desc(dnn_conv *s, const conv_desc *d, dnnl_primitive_desc_t *pd) {
  const brim_cpu_conv *v = &s->v;
  dnnl_convolution_desc_t desc;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_dims_t stride = {v->stride, v->stride}, pad = {v->pad, v->pad};
  const char *what = "a convolution of this type and shape on this CPU";
  brim_status status = make_attr(&attr);
  if (status != BRIM_OK) goto done;
  // The backward passes want the forward one they belong to; in it the weights have x's type.
  dnnl_memory_desc_t w_any = d->w_any;
  w_any.data_type = d->x.data_type;
  status = brim_cpu_dnn_check(
      dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                         &d->x, &w_any, NULL, &d->y, stride, pad, pad),
      "the convolution's description");
  if (status != BRIM_OK) goto done;
  if (v->op == BRIM_OP_CONV) {
    status = brim_cpu_dnn_check(dnnl_primitive_desc_create(pd, &desc, attr, s->engine, NULL), what);
    goto done;
  }
  status =
      brim_cpu_dnn_check(dnnl_primitive_desc_create(&hint, &desc, NULL, s->engine, NULL), what);
  if (status != BRIM_OK) goto done;
  dnnl_status_t made =
      v->op == BRIM_OP_CONV_BWD_DATA
          ? dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &d->x,
                                                     &d->w_any, &d->y, stride, pad, pad)
          : dnnl_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &d->x,
                                                        &d->w_any, NULL, &d->y, stride, pad, pad);
  status = brim_cpu_dnn_check(made, "the convolution's description");
  if (status != BRIM_OK) goto done;
  status = brim_cpu_dnn_check(dnnl_primitive_desc_create(pd, &desc, attr, s->engine, hint), what);
done:
  if (hint) dnnl_primitive_desc_destroy(hint);
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

// Between our layout of the weights and oneDNN's, in the direction the op needs.
static brim_status make_reorder(dnn_conv *s, const dnnl_memory_desc_t *plain,
                                const dnnl_memory_desc_t *blocked) {
  bool out = s->v.op == BRIM_OP_CONV_BWD_WEIGHT;
  const char *what = "a reorder of a convolution's weights";
  dnnl_primitive_desc_t pd = NULL;
  dnnl_primitive_attr_t attr = NULL;
  brim_status status = make_attr(&attr);
  if (status != BRIM_OK) goto done;
  status =
      brim_cpu_dnn_check(dnnl_reorder_primitive_desc_create(&pd, out ? blocked : plain, s->engine,
                                                            out ? plain : blocked, s->engine, attr),
                         what);
  if (status != BRIM_OK) goto done;
  status = brim_cpu_dnn_check(dnnl_primitive_create(&s->reorder, pd), what);
  if (status != BRIM_OK) goto done;
  status = add_memory(s, SLOT_BLOCKED, blocked, true);
  if (status != BRIM_OK) goto done;
  status = add_memory(s, SLOT_REORDER,
                      dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), true);
done:
  if (pd) dnnl_primitive_desc_destroy(pd);
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

// oneDNN answers shapes it has no kernel for with plain loops, hundreds of times slower than ours.
// On Arm all it has are such, and who asked for it there wants it.
static bool plain_loops(const char *name) {
#if defined(__x86_64__)
  return strstr(name, "ref") != NULL;
#else
  (void)name;
  return false;
#endif
}

// Its 1x1 kernels for AVX2 first gather what a stride leaves, in whole vectors of 8 channels into room
// for as many as there are (2.6.3): with 4 channels one thread writes over what another has gathered,
// and the gradient of the weights differs from run to run.
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

static brim_status plan(dnn_conv *s) {
  const brim_cpu_conv *v = &s->v;
  bool weight = v->op == BRIM_OP_CONV_BWD_WEIGHT;
  conv_desc d;
  dnnl_primitive_desc_t pd = NULL;
  brim_status status = describe(v, &d);
  if (status != BRIM_OK) return status;
  status = make_conv_desc(s, &d, &pd);
  if (status != BRIM_OK) return status;
  status = refuse_kernel(v, pd);
  if (status == BRIM_OK) {
    status = brim_cpu_dnn_check(dnnl_primitive_create(&s->conv, pd), "a convolution");
  }
  if (status == BRIM_OK) status = add_memory(s, SLOT_X, &d.x, false);
  if (status == BRIM_OK) status = add_memory(s, SLOT_W, &d.w, false);
  if (status == BRIM_OK) status = add_memory(s, SLOT_Y, &d.y, false);
  if (status == BRIM_OK) {
    status = add_memory(s, SLOT_SCRATCH,
                        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), true);
  }
  if (status != BRIM_OK) goto done;
  const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(
      pd, weight ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
  if (!dnnl_memory_desc_equal(w, &d.w)) status = make_reorder(s, &d.w, w);
  if (v->accumulate && weight) {
    s->plain_offset = s->workspace_bytes;
    s->workspace_bytes += brim_cpu_round64((size_t)(v->m * v->r * v->s * v->c) * sizeof(float));
  }
done:
  dnnl_primitive_desc_destroy(pd);
  return status;
}

static void dnn_release(void *state) {
  dnn_conv *s = state;
  for (int i = 0; i < SLOT_COUNT; i++) {
    if (s->memory[i]) dnnl_memory_destroy(s->memory[i]);
  }
  if (s->reorder) dnnl_primitive_destroy(s->reorder);
  if (s->conv) dnnl_primitive_destroy(s->conv);
  if (s->stream) dnnl_stream_destroy(s->stream);
  if (s->engine) dnnl_engine_destroy(s->engine);
  brim_cpu_host()->free(s);
}

static brim_status dnn_prepare(const brim_cpu_machine *machine, const brim_cpu_conv *conv,
                               void **state, size_t *workspace_bytes) {
  (void)machine;
  dnn_conv *s = brim_cpu_host()->alloc(sizeof *s, 0);
  if (!s) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a convolution");
  *s = (dnn_conv){.v = *conv};
  // Primitives are made for a number of threads; it changes bits, so it is fixed here and in run.
  brim_cpu_team_set_default(conv->threads);
  brim_status status = brim_cpu_dnn_check(dnnl_engine_create(&s->engine, dnnl_cpu, 0), "an engine");
  if (status == BRIM_OK) {
    status = brim_cpu_dnn_check(dnnl_stream_create(&s->stream, s->engine, dnnl_stream_in_order),
                                "a stream");
  }
  if (status == BRIM_OK) status = plan(s);
  if (status != BRIM_OK) {
    dnn_release(s);
    return status;
  }
  *workspace_bytes = s->workspace_bytes;
  *state = s;
  return BRIM_OK;
}

//---------------------------------- run ----------------------------------

static brim_status set_handles(const dnn_conv *s, const brim_cpu_gemm_args *args, void *out) {
  // oneDNN's handles are not const; it does not write to inputs.
  void *a = (void *)(uintptr_t)args->a, *b = (void *)(uintptr_t)args->b;
  void *user[SLOT_COUNT] = {[SLOT_X] = a, [SLOT_W] = b, [SLOT_Y] = out};
  if (s->v.op == BRIM_OP_CONV_BWD_DATA) user[SLOT_X] = out, user[SLOT_Y] = a;
  if (s->v.op == BRIM_OP_CONV_BWD_WEIGHT) user[SLOT_X] = b, user[SLOT_W] = out, user[SLOT_Y] = a;
  for (int i = 0; i < SLOT_COUNT; i++) {
    if (!s->memory[i]) continue;
    void *at = s->in_workspace[i] ? (char *)args->workspace + s->offset[i] : user[i];
    BRIM_CPU_DNN_TRY(dnnl_memory_set_data_handle(s->memory[i], at), "an address");
  }
  return BRIM_OK;
}

static brim_status run_reorder(const dnn_conv *s, int from, int to) {
  dnnl_exec_arg_t list[3] = {{DNNL_ARG_FROM, s->memory[from]}, {DNNL_ARG_TO, s->memory[to]}};
  int n = 2;
  if (s->memory[SLOT_REORDER]) {
    list[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, s->memory[SLOT_REORDER]};
  }
  return brim_cpu_dnn_check(dnnl_primitive_execute(s->reorder, s->stream, n, list),
                            "to run a reorder");
}

static brim_status run_conv(const dnn_conv *s) {
  static const int args_of[3][3] = {
      {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
      {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
      {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
  };
  const int *names = args_of[s->v.op - BRIM_OP_CONV];
  dnnl_memory_t w = s->memory[s->reorder ? SLOT_BLOCKED : SLOT_W];
  dnnl_exec_arg_t list[4] = {
      {names[0], s->memory[SLOT_X]}, {names[1], w}, {names[2], s->memory[SLOT_Y]}};
  int n = 3;
  if (s->memory[SLOT_SCRATCH]) {
    list[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, s->memory[SLOT_SCRATCH]};
  }
  return brim_cpu_dnn_check(dnnl_primitive_execute(s->conv, s->stream, n, list),
                            "to run a convolution");
}

static brim_status dnn_run(const void *state, const brim_cpu_gemm_args *args) {
  const dnn_conv *s = state;
  const brim_cpu_conv *v = &s->v;
  bool weight = v->op == BRIM_OP_CONV_BWD_WEIGHT, add = weight && v->accumulate;
  void *out = add ? (char *)args->workspace + s->plain_offset : args->c;
  brim_cpu_team_set_default(v->threads);
  // What its AMX kernels find in the scratchpad they may multiply with (oneDNN 2.6.3): NaNs that lay
  // there came out in the gradient.
  if (weight && v->type == BRIM_BF16 && s->workspace_bytes) {
    memset(args->workspace, 0, s->workspace_bytes);
  }
  brim_status status = set_handles(s, args, out);
  if (status == BRIM_OK && s->reorder && !weight) status = run_reorder(s, SLOT_W, SLOT_BLOCKED);
  if (status == BRIM_OK) status = run_conv(s);
  if (status == BRIM_OK && s->reorder && weight) status = run_reorder(s, SLOT_BLOCKED, SLOT_W);
  if (status != BRIM_OK) return status;
  BRIM_CPU_DNN_TRY(dnnl_stream_wait(s->stream), "to finish a convolution");
  if (add) {
    int64_t count = v->m * v->r * v->s * v->c;
    brim_cpu_map(v->threads, BRIM_OP_ADD,
                 (brim_cpu_map_arg){args->c, out, args->c, BRIM_F32, count, BRIM_ACT_NONE});
  }
  return BRIM_OK;
}

const brim_cpu_conv_table brim_cpu_conv_onednn = {
    .prepare = dnn_prepare, .run = dnn_run, .release = dnn_release, .pointwise = true};
