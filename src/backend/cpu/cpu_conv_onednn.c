// Convolutions by oneDNN (cpu_onednn.h). Activations keep our NHWC layout. Adding to a gradient is left
// to our loops.
#include <string.h>

#include "backend/cpu/cpu_onednn.h"

typedef struct dnn_conv {
  brim_cpu_conv v;
  brim_cpu_dnn d;
  brim_cpu_dnn_slices *slices;  // not NULL: a gradient of weights in these, and d is not used
} dnn_conv;

static const brim_cpu_dnn_words words = {
    .op = "a convolution",
    .kind = "a convolution of this type and shape on this CPU",
    .description = "the convolution's description",
    .reorder = "a reorder of a convolution's weights",
    .run = "to run a convolution",
    .finish = "to finish a convolution",
};

//---------------------------------- plan ----------------------------------

// oneDNN counts dimensions as N, C, H, W and O, I, H, W whatever the layout.
static brim_status describe(const brim_cpu_conv *v, brim_cpu_dnn_layer *d) {
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

static brim_status make_desc(const dnn_conv *s, const brim_cpu_dnn_layer *l,
                             dnnl_primitive_desc_t *pd) {
  const brim_cpu_conv *v = &s->v;
  dnnl_convolution_desc_t forward, backward;
  dnnl_dims_t stride = {v->stride, v->stride}, pad = {v->pad, v->pad};
  // The backward passes want the forward one they belong to; in it the weights have x's type.
  dnnl_memory_desc_t w_any = l->w_any;
  w_any.data_type = l->x.data_type;
  BRIM_CPU_DNN_TRY(
      dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training, dnnl_convolution_direct,
                                         &l->x, &w_any, NULL, &l->y, stride, pad, pad),
      words.description);
  if (s->d.kind == BRIM_CPU_DNN_DATA) {
    BRIM_CPU_DNN_TRY(
        dnnl_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct, &l->x,
                                                 &l->w_any, &l->y, stride, pad, pad),
        words.description);
  } else if (s->d.kind == BRIM_CPU_DNN_WEIGHT) {
    BRIM_CPU_DNN_TRY(
        dnnl_convolution_backward_weights_desc_init(&backward, dnnl_convolution_direct, &l->x,
                                                    &l->w_any, NULL, &l->y, stride, pad, pad),
        words.description);
  }
  dnnl_primitive_attr_t attr = NULL;
  brim_status status = brim_cpu_dnn_attr(&attr);
  if (status == BRIM_OK) {
    bool is_forward = s->d.kind == BRIM_CPU_DNN_FORWARD;
    status = brim_cpu_dnn_describe(&s->d, &forward, is_forward ? NULL : &backward, attr, pd);
  }
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

// oneDNN answers shapes it has no kernel for with plain loops, hundreds of times slower than ours.
// On Arm all it has are such, and a config that names it there means it.
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
  brim_cpu_dnn_layer layer;
  dnnl_primitive_desc_t pd = NULL;
  BRIM_TRY(describe(&s->v, &layer));
  BRIM_TRY(make_desc(s, &layer, &pd));
  brim_status status = refuse_kernel(&s->v, pd);
  if (status == BRIM_OK) status = brim_cpu_dnn_plan(&s->d, pd, &layer);
  dnnl_primitive_desc_destroy(pd);
  return status;
}

static void dnn_release(void *state) {
  dnn_conv *s = state;
  brim_cpu_dnn_slices_release(s->slices);
  brim_cpu_dnn_close(&s->d);
  brim_cpu_host()->free(s);
}

static brim_status dnn_run(const void *state, const brim_cpu_gemm_args *args);
static brim_status slice_prepare(const void *whole, int64_t cols, void **state, size_t *bytes);
static const brim_cpu_dnn_slicer slicer = {slice_prepare, dnn_run, dnn_release};

static brim_status dnn_prepare(const brim_cpu_machine *machine, const brim_cpu_conv *conv,
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
                        .words = &words,
                        .add = add ? conv->m * conv->r * conv->s * conv->c : 0}};
  brim_status status = BRIM_OK;
  if (kind == BRIM_CPU_DNN_WEIGHT) {
    const brim_cpu_dnn_slices shape = {.rows = conv->n * conv->p * conv->q,
                                       .cols = conv->m,
                                       .element = conv->type == BRIM_F32 ? 4 : 2,
                                       .weights = conv->r * conv->s * conv->c,
                                       .by = &slicer};
    status = brim_cpu_dnn_slices_prepare(&shape, conv->threads, conv, &s->slices, workspace_bytes);
    *state = s;
    if (s->slices) return BRIM_OK;
  }
  if (status == BRIM_OK) status = brim_cpu_dnn_open(&s->d);
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
  brim_cpu_conv conv = *(const brim_cpu_conv *)whole;
  conv.m = cols;
  conv.threads = 1;
  return dnn_prepare(NULL, &conv, state, bytes);
}

//---------------------------------- run ----------------------------------

static brim_status dnn_run(const void *state, const brim_cpu_gemm_args *args) {
  const dnn_conv *s = state;
  if (s->slices) return brim_cpu_dnn_slices_run(s->slices, args);
  // What its AMX kernels find in the scratchpad they may multiply with (oneDNN 2.6.3): NaNs that lay
  // there came out in the gradient.
  bool weight = s->d.kind == BRIM_CPU_DNN_WEIGHT;
  if (weight && s->v.type == BRIM_BF16 && s->d.workspace_bytes) {
    memset(args->workspace, 0, s->d.workspace_bytes);
  }
  return brim_cpu_dnn_run(&s->d, args);
}

const brim_cpu_conv_table brim_cpu_conv_onednn = {
    .prepare = dnn_prepare, .run = dnn_run, .release = dnn_release, .pointwise = true};
