// CONV and its two gradients: reads the shapes off the call and hands the work to the AMX kernels
// where they fit, else to the provider that BRIM_CPU_GEMM chose, or to our own where that one has
// nothing fast. Convolutions that are plain matrix products (1 x 1, stride 1, no padding) go the way
// of LINEAR unless the kernel that computes them takes them itself.
#include "backend/cpu/cpu_int.h"

typedef struct conv_state {
  const brim_cpu_gemm_provider *provider;
  const brim_cpu_conv_table *table;
  bool product;  // `inner` belongs to the provider's products, not to the table
  void *inner;
} conv_state;

static brim_cpu_conv describe(const brim_cpu_device *device, const brim_op_call *call) {
  const brim_tensor *x = &call->in[0], *y = &call->out[0], *w = &call->in[1];
  if (call->op == BRIM_OP_CONV_BWD_DATA) x = &call->out[0], y = &call->in[0];
  if (call->op == BRIM_OP_CONV_BWD_WEIGHT) x = &call->in[1], y = &call->in[0], w = &call->out[0];
  return (brim_cpu_conv){.op = call->op,
                         .type = x->dtype,
                         .n = x->dim[0],
                         .h = x->dim[1],
                         .w = x->dim[2],
                         .c = x->dim[3],
                         .m = w->dim[0],
                         .r = w->dim[1],
                         .s = w->dim[2],
                         .p = y->dim[1],
                         .q = y->dim[2],
                         .stride = call->attr.stride,
                         .pad = call->attr.pad,
                         .accumulate = call->attr.accumulate,
                         .threads = device->threads,
                         .cap = device->workspace_cap,
                         .planning = call->planning};
}

// The same as a matrix product over pixels.
static brim_cpu_gemm as_product(const brim_cpu_conv *v) {
  int64_t pixels = v->n * v->h * v->w;
  brim_cpu_gemm g = {
      .type = v->type, .threads = v->threads, .cap = v->cap, .planning = v->planning};
  if (v->op == BRIM_OP_CONV) {
    g.op = BRIM_OP_LINEAR, g.m = pixels, g.n = v->m, g.k = v->c;
  } else if (v->op == BRIM_OP_CONV_BWD_DATA) {
    g.op = BRIM_OP_LINEAR_BWD_DATA, g.m = pixels, g.n = v->c, g.k = v->m;
  } else {
    g.op = BRIM_OP_LINEAR_BWD_WEIGHT, g.m = v->m, g.n = v->c, g.k = pixels;
    g.accumulate = v->accumulate;
  }
  return g;
}

// Our AMX kernels take bf16 with channels in 32s, and batches that fill blocks of 32 images to three
// quarters on average (docs/decisions/0016-own-amx-convolutions.md).
static bool amx_fits(const brim_cpu_device *device, const brim_cpu_conv *v) {
  return device->amx_kernels && v->type == BRIM_BF16 && v->c % 32 == 0 && v->m % 32 == 0 &&
         v->n >= brim_cpu_ceil_div(v->n, 32) * brim_cpu_amx_least_images;
}

static brim_status prepare_with(const brim_cpu_device *device, const brim_cpu_conv *v,
                                conv_state *state, size_t *bytes) {
  bool pointwise = v->r == 1 && v->s == 1 && v->stride == 1 && v->pad == 0;
  state->product = pointwise && !state->table->pointwise;
  if (!state->product) return state->table->prepare(&device->machine, v, &state->inner, bytes);
  brim_cpu_gemm g = as_product(v);
  return state->provider->prepare(&device->machine, &g, &state->inner, bytes);
}

brim_status brim_cpu_conv_prepare(void *impl, brim_op_call *call) {
  const brim_cpu_device *device = impl;
  brim_cpu_conv v = describe(device, call);
  const double products = (double)(v.n * v.p * v.q) * (double)(v.m * v.r * v.s * v.c);
  v.threads = brim_cpu_team_for(device->threads, products, BRIM_CPU_TEAM_PRODUCTS);
  conv_state *state = brim_cpu_host()->alloc(sizeof *state, 0);
  if (!state) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the state of a convolution");
  bool chosen = device->provider->supports(&device->machine, v.type);
  *state = (conv_state){.provider = chosen ? device->provider : &brim_cpu_gemm_own};
  brim_status status = BRIM_EUNSUPPORTED;
  if (amx_fits(device, &v)) {
    state->table = &brim_cpu_conv_amx;
    status = prepare_with(device, &v, state, &call->workspace_bytes);
  }
  if (status == BRIM_EUNSUPPORTED) {
    state->table = state->provider->conv;
    status = prepare_with(device, &v, state, &call->workspace_bytes);
  }
  if (status == BRIM_EUNSUPPORTED && state->provider != &brim_cpu_gemm_own) {
    state->provider = &brim_cpu_gemm_own, state->table = state->provider->conv;
    status = prepare_with(device, &v, state, &call->workspace_bytes);
  }
  if (status != BRIM_OK) {
    brim_cpu_host()->free(state);
    return status;
  }
  call->state = state;
  return BRIM_OK;
}

brim_status brim_cpu_conv_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const conv_state *state = call->state;
  brim_status status = brim_cpu_check_process(impl);
  if (status != BRIM_OK) return status;
  brim_cpu_gemm_args args = {.a = call->in[0].data,
                             .b = call->in[1].data,
                             .c = call->out[0].data,
                             .workspace = call->workspace};
  return state->product ? state->provider->run(state->inner, &args)
                        : state->table->run(state->inner, &args);
}

void brim_cpu_conv_release(void *impl, brim_op_call *call) {
  (void)impl;
  conv_state *state = call->state;
  if (!state) return;
  if (state->product) {
    state->provider->release(state->inner);
  } else {
    state->table->release(state->inner);
  }
  brim_cpu_host()->free(state);
  call->state = NULL;
}
