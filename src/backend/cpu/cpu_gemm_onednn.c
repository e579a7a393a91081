// Matrix products by oneDNN (cpu_onednn.h): inner_product forward, backward data and backward weights.
// What oneDNN does not do is left to our loops: the derivative of the activation, and adding to a
// gradient.
#include <stdio.h>

#include "backend/cpu/cpu_onednn.h"

typedef struct dnn_state {
  brim_cpu_gemm g;
  brim_cpu_dnn d;
  brim_cpu_dnn_slices *slices;  // not NULL: a gradient of weights in these, and d is not used
} dnn_state;

static const brim_cpu_dnn_words words = {
    .op = "a matrix product",
    .kind = "a matrix product of this type and shape on this CPU",
    .description = "the product's description",
    .reorder = "a reorder of the weights",
    .run = "to run a matrix product",
    .finish = "to finish a matrix product",
};

//---------------------------------- plan ----------------------------------

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

// The activation behind a forward product.
static brim_status make_attr(const brim_cpu_gemm *g, dnnl_primitive_attr_t *attr) {
  BRIM_TRY(brim_cpu_dnn_attr(attr));
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
static brim_status describe(const brim_cpu_gemm *g, brim_cpu_dnn_layer *d,
                            dnnl_memory_desc_t *bias) {
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

static brim_status make_desc(const dnn_state *s, const brim_cpu_dnn_layer *l,
                             dnnl_primitive_desc_t *pd) {
  dnnl_inner_product_desc_t forward, backward;
  // The backward passes want the forward one they belong to; in it the weights have x's type.
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
    status = brim_cpu_dnn_describe(&s->d, &forward, is_forward ? NULL : &backward, attr, pd);
  }
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

static brim_status plan(dnn_state *s) {
  brim_cpu_dnn_layer layer;
  dnnl_memory_desc_t bias;
  dnnl_primitive_desc_t pd = NULL;
  BRIM_TRY(describe(&s->g, &layer, &bias));
  BRIM_TRY(make_desc(s, &layer, &pd));
  brim_status status = brim_cpu_dnn_plan(&s->d, pd, &layer);
  dnnl_primitive_desc_destroy(pd);
  return status;
}

static void dnn_release(void *state) {
  dnn_state *s = state;
  brim_cpu_dnn_slices_release(s->slices);
  brim_cpu_dnn_close(&s->d);
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
    const brim_cpu_dnn_slices shape = {.rows = gemm->k,
                                       .cols = gemm->m,
                                       .element = gemm->type == BRIM_F32 ? 4 : 2,
                                       .weights = gemm->n,
                                       .by = &slicer};
    status = brim_cpu_dnn_slices_prepare(&shape, gemm->threads, gemm, &s->slices, workspace_bytes);
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
  brim_cpu_gemm gemm = *(const brim_cpu_gemm *)whole;
  gemm.m = cols;
  gemm.threads = 1;
  return dnn_prepare(NULL, &gemm, state, bytes);
}

//---------------------------------- run ----------------------------------

static brim_status dnn_run(const void *state, const brim_cpu_gemm_args *args) {
  const dnn_state *s = state;
  const brim_cpu_gemm *g = &s->g;
  if (s->slices) return brim_cpu_dnn_slices_run(s->slices, args);
  BRIM_TRY(brim_cpu_dnn_run(&s->d, args));
  if (!g->accumulate && args->s && g->op == BRIM_OP_LINEAR_BWD_DATA) {
    brim_cpu_map(g->threads, BRIM_OP_ACT_BWD,
                 (brim_cpu_map_arg){args->c, args->s, args->c, g->type, g->m * g->n, g->act});
  }
  return BRIM_OK;
}

//---------------------------------- choice ----------------------------------

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

// On Intel only AMX beats fp32: with AVX512_BF16 alone a step took 1.25 to 1.6 times as long
// (docs/performance/cpu-step.md).
static bool has_fast_bf16(void) {
  unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
  __builtin_cpu_init();
  return (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx ||
         (has_bf16_instructions() && !__builtin_cpu_is("intel"));
}

// Refused once oneDNN has been used: then it was under the same mask, which does not change.
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
