// Matrix products by oneDNN (the v2 C API): inner_product forward, backward data and backward
// weights. The layout of the weights is left to oneDNN (AMX wants its own); where it differs from
// ours a reorder runs beside the product, in the workspace. Everything is created in prepare; a run
// only sets addresses. What oneDNN does not do is left to our loops: the derivative of the
// activation, and adding to a gradient.
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_onednn.h"

// What a product touches, one memory object each.
enum { SLOT_A, SLOT_B, SLOT_BIAS, SLOT_C, SLOT_SCRATCH, SLOT_BLOCKED, SLOT_REORDER, SLOT_COUNT };

typedef struct dnn_state {
  brim_cpu_gemm g;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t product, reorder;
  dnnl_memory_t memory[SLOT_COUNT];  // NULL = not used
  size_t offset[SLOT_COUNT];         // of those in the workspace
  bool in_workspace[SLOT_COUNT];
  size_t plain_offset;  // a gradient in our layout, before it is added
  size_t workspace_bytes;
} dnn_state;

//---------------------------------- plan ----------------------------------

static dnnl_status_t plain_2d(dnnl_memory_desc_t *md, int64_t rows, int64_t cols,
                              dnnl_data_type_t type, dnnl_format_tag_t tag) {
  dnnl_dims_t dims = {rows, cols};
  return dnnl_memory_desc_init_by_tag(md, 2, dims, type, tag);
}

static brim_status add_memory(dnn_state *s, int slot, const dnnl_memory_desc_t *md,
                              bool in_workspace) {
  size_t bytes = dnnl_memory_desc_get_size(md);
  if (in_workspace && bytes == 0) return BRIM_OK;
  BRIM_CPU_DNN_TRY(dnnl_memory_create(&s->memory[slot], md, s->engine, DNNL_MEMORY_NONE),
                   "a memory object");
  if (in_workspace) {
    s->in_workspace[slot] = true;
    s->offset[slot] = s->workspace_bytes;
    s->workspace_bytes += (bytes + BRIM_CPU_ALIGN - 1) / BRIM_CPU_ALIGN * BRIM_CPU_ALIGN;
  }
  return BRIM_OK;
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

// User scratchpad, and the activation behind a forward product.
static brim_status make_attr(const brim_cpu_gemm *g, dnnl_primitive_attr_t *attr) {
  BRIM_CPU_DNN_TRY(dnnl_primitive_attr_create(attr), "attributes");
  BRIM_CPU_DNN_TRY(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user),
                   "a scratchpad");
  if (!g || g->op != BRIM_OP_LINEAR || g->act == BRIM_ACT_NONE) return BRIM_OK;
  dnnl_post_ops_t ops = NULL;
  BRIM_CPU_DNN_TRY(dnnl_post_ops_create(&ops), "post-ops");
  brim_status status = brim_cpu_dnn_check(
      dnnl_post_ops_append_eltwise(ops, 1.0f, eltwise_of(g->act), 0.0f, 0.0f), "a post-op");
  if (status == BRIM_OK)
    status = brim_cpu_dnn_check(dnnl_primitive_attr_set_post_ops(*attr, ops), "post-ops");
  dnnl_post_ops_destroy(ops);
  return status;
}

// The three tensors of a layer as oneDNN sees it: x(rows, in), w(out, in), y(rows, out).
typedef struct layer_desc {
  dnnl_memory_desc_t x, w, w_any, bias, y;
} layer_desc;

static brim_status describe(const brim_cpu_gemm *g, layer_desc *d) {
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
  BRIM_CPU_DNN_TRY(dnnl_memory_desc_init_by_tag(&d->bias, 1, dims, type, dnnl_a), "a layout");
  return BRIM_OK;
}

static brim_status make_product_desc(dnn_state *s, const layer_desc *d, dnnl_primitive_desc_t *pd) {
  const brim_cpu_gemm *g = &s->g;
  dnnl_inner_product_desc_t desc;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_primitive_attr_t attr = NULL;
  brim_status status = make_attr(g, &attr);
  if (status != BRIM_OK) goto done;
  // The backward passes want the forward one they belong to; in it the weights have x's type.
  dnnl_memory_desc_t w_any = d->w_any;
  w_any.data_type = d->x.data_type;
  status = brim_cpu_dnn_check(
      dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &d->x, &w_any,
                                           g->bias ? &d->bias : NULL, &d->y),
      "the product's description");
  if (status != BRIM_OK) goto done;
  const char *what = "a matrix product of this type and shape on this CPU";
  if (g->op == BRIM_OP_LINEAR) {
    status = brim_cpu_dnn_check(dnnl_primitive_desc_create(pd, &desc, attr, s->engine, NULL), what);
    goto done;
  }
  status =
      brim_cpu_dnn_check(dnnl_primitive_desc_create(&hint, &desc, NULL, s->engine, NULL), what);
  if (status != BRIM_OK) goto done;
  dnnl_status_t made =
      g->op == BRIM_OP_LINEAR_BWD_DATA
          ? dnnl_inner_product_backward_data_desc_init(&desc, &d->x, &d->w_any, &d->y)
          : dnnl_inner_product_backward_weights_desc_init(&desc, &d->x, &d->w_any, NULL, &d->y);
  status = brim_cpu_dnn_check(made, "the product's description");
  if (status != BRIM_OK) goto done;
  status = brim_cpu_dnn_check(dnnl_primitive_desc_create(pd, &desc, attr, s->engine, hint), what);
done:
  if (hint) dnnl_primitive_desc_destroy(hint);
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

// Between our layout of the weights and oneDNN's, in the direction the op needs.
static brim_status make_reorder(dnn_state *s, const dnnl_memory_desc_t *plain,
                                const dnnl_memory_desc_t *blocked) {
  bool out = s->g.op == BRIM_OP_LINEAR_BWD_WEIGHT;
  dnnl_primitive_desc_t pd = NULL;
  dnnl_primitive_attr_t attr = NULL;
  brim_status status = make_attr(NULL, &attr);
  if (status != BRIM_OK) goto done;
  status =
      brim_cpu_dnn_check(dnnl_reorder_primitive_desc_create(&pd, out ? blocked : plain, s->engine,
                                                            out ? plain : blocked, s->engine, attr),
                         "a reorder of the weights");
  if (status != BRIM_OK) goto done;
  status = brim_cpu_dnn_check(dnnl_primitive_create(&s->reorder, pd), "a reorder of the weights");
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

static brim_status plan(dnn_state *s) {
  const brim_cpu_gemm *g = &s->g;
  bool weight = g->op == BRIM_OP_LINEAR_BWD_WEIGHT, forward = g->op == BRIM_OP_LINEAR;
  layer_desc d;
  dnnl_primitive_desc_t pd = NULL;
  brim_status status = describe(g, &d);
  if (status != BRIM_OK) return status;
  status = make_product_desc(s, &d, &pd);
  if (status != BRIM_OK) return status;
  status = brim_cpu_dnn_check(dnnl_primitive_create(&s->product, pd), "a matrix product");
  if (status != BRIM_OK) goto done;
  status = add_memory(s, SLOT_A, forward ? &d.x : &d.y, false);
  if (status == BRIM_OK) status = add_memory(s, SLOT_B, weight ? &d.x : &d.w, false);
  if (status == BRIM_OK && g->bias) status = add_memory(s, SLOT_BIAS, &d.bias, false);
  if (status == BRIM_OK) {
    status = add_memory(s, SLOT_C, forward ? &d.y : (weight ? &d.w : &d.x), false);
  }
  if (status == BRIM_OK) {
    status = add_memory(s, SLOT_SCRATCH,
                        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), true);
  }
  if (status != BRIM_OK) goto done;
  const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(
      pd, weight ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
  if (!dnnl_memory_desc_equal(w, &d.w)) status = make_reorder(s, &d.w, w);
  if (g->accumulate) {
    s->plain_offset = s->workspace_bytes;
    s->workspace_bytes += ((size_t)(g->m * g->n) * sizeof(float) + 63) / 64 * 64;
  }
done:
  dnnl_primitive_desc_destroy(pd);
  return status;
}

static void dnn_release(void *state) {
  dnn_state *s = state;
  for (int i = 0; i < SLOT_COUNT; i++) {
    if (s->memory[i]) dnnl_memory_destroy(s->memory[i]);
  }
  if (s->reorder) dnnl_primitive_destroy(s->reorder);
  if (s->product) dnnl_primitive_destroy(s->product);
  if (s->stream) dnnl_stream_destroy(s->stream);
  if (s->engine) dnnl_engine_destroy(s->engine);
  brim_cpu_host()->free(s);
}

static brim_status dnn_prepare(const brim_cpu_machine *machine, const brim_cpu_gemm *gemm,
                               void **state, size_t *workspace_bytes) {
  (void)machine;
  dnn_state *s = brim_cpu_host()->alloc(sizeof *s, 0);
  if (!s) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a matrix product");
  *s = (dnn_state){.g = *gemm};
  // Primitives are made for a number of threads; it changes bits, so it is fixed here and in run.
  brim_cpu_team_set_default(gemm->threads);
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

static brim_status set_handles(const dnn_state *s, const brim_cpu_gemm_args *args, void *c) {
  // oneDNN's handles are not const; it does not write to inputs.
  void *user[SLOT_COUNT] = {[SLOT_A] = (void *)(uintptr_t)args->a,
                            [SLOT_B] = (void *)(uintptr_t)args->b,
                            [SLOT_BIAS] = (void *)(uintptr_t)args->bias,
                            [SLOT_C] = c};
  for (int i = 0; i < SLOT_COUNT; i++) {
    if (!s->memory[i]) continue;
    void *at = s->in_workspace[i] ? (char *)args->workspace + s->offset[i] : user[i];
    BRIM_CPU_DNN_TRY(dnnl_memory_set_data_handle(s->memory[i], at), "an address");
  }
  return BRIM_OK;
}

static brim_status run_reorder(const dnn_state *s, dnnl_memory_t from, dnnl_memory_t to) {
  dnnl_exec_arg_t list[3] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  int n = 2;
  if (s->memory[SLOT_REORDER]) {
    list[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, s->memory[SLOT_REORDER]};
  }
  return brim_cpu_dnn_check(dnnl_primitive_execute(s->reorder, s->stream, n, list),
                            "to run a reorder");
}

static brim_status run_product(const dnn_state *s) {
  static const int args_of[3][3] = {
      {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
      {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
      {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS},
  };
  bool weight = s->g.op == BRIM_OP_LINEAR_BWD_WEIGHT;
  const int *names = args_of[s->g.op == BRIM_OP_LINEAR ? 0 : (weight ? 2 : 1)];
  dnnl_memory_t b = s->memory[SLOT_B], c = s->memory[SLOT_C];
  if (s->reorder && weight) c = s->memory[SLOT_BLOCKED];
  if (s->reorder && !weight) b = s->memory[SLOT_BLOCKED];
  dnnl_exec_arg_t list[5] = {{names[0], s->memory[SLOT_A]}, {names[1], b}, {names[2], c}};
  int n = 3;
  if (s->memory[SLOT_BIAS]) {
    list[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, s->memory[SLOT_BIAS]};
  }
  if (s->memory[SLOT_SCRATCH]) {
    list[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, s->memory[SLOT_SCRATCH]};
  }
  return brim_cpu_dnn_check(dnnl_primitive_execute(s->product, s->stream, n, list),
                            "to run a matrix product");
}

static brim_status dnn_run(const void *state, const brim_cpu_gemm_args *args) {
  const dnn_state *s = state;
  const brim_cpu_gemm *g = &s->g;
  bool weight = g->op == BRIM_OP_LINEAR_BWD_WEIGHT;
  void *c = g->accumulate ? (char *)args->workspace + s->plain_offset : args->c;
  brim_cpu_team_set_default(g->threads);
  brim_status status = set_handles(s, args, c);
  if (status == BRIM_OK && s->reorder && !weight) {
    status = run_reorder(s, s->memory[SLOT_B], s->memory[SLOT_BLOCKED]);
  }
  if (status == BRIM_OK) status = run_product(s);
  if (status == BRIM_OK && s->reorder && weight) {
    status = run_reorder(s, s->memory[SLOT_BLOCKED], s->memory[SLOT_C]);
  }
  if (status != BRIM_OK) return status;
  BRIM_CPU_DNN_TRY(dnnl_stream_wait(s->stream), "to finish a matrix product");
  int64_t count = g->m * g->n;
  if (g->accumulate) {
    brim_cpu_map(g->threads, BRIM_OP_ADD,
                 (brim_cpu_map_arg){args->c, c, args->c, BRIM_F32, count, BRIM_ACT_NONE});
  } else if (args->s && g->op == BRIM_OP_LINEAR_BWD_DATA) {
    brim_cpu_map(g->threads, BRIM_OP_ACT_BWD,
                 (brim_cpu_map_arg){args->c, args->s, args->c, g->type, count, g->act});
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

static bool has_fast_bf16(void) {
  unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
  return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
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

const brim_cpu_gemm_provider brim_cpu_gemm_onednn = {
    .name = "onednn",
    .available = dnn_available,
    .supports = dnn_supports,
    .fast = dnn_fast,
    .prepare = dnn_prepare,
    .run = dnn_run,
    .release = dnn_release,
    .conv = &brim_cpu_conv_onednn,
};
