// The ops that the reference backend compiles vectorized: loading and storing types, the three
// linear ops over one matrix product (sums in double with k ascending, whatever the blocking), and
// the three convolutions as plain loops over one image at a time. Their innermost loop runs over
// neighbours in memory, so the compiler can vectorize it without reordering a sum.
#include "backend/backend_half.h"
#include "backend/ref/ref_int.h"

//---------------------------------- types ----------------------------------

static void load_f32(const void *data, int64_t at, int64_t count, double *out) {
  const float *p = (const float *)data + at;
  for (int64_t i = 0; i < count; i++) out[i] = (double)p[i];
}

static void store_f32(void *data, int64_t at, int64_t count, const double *in) {
  float *p = (float *)data + at;
  for (int64_t i = 0; i < count; i++) p[i] = (float)in[i];
}

static void load_f64(const void *data, int64_t at, int64_t count, double *out) {
  memcpy(out, (const double *)data + at, (size_t)count * sizeof(double));
}

static void store_f64(void *data, int64_t at, int64_t count, const double *in) {
  memcpy((double *)data + at, in, (size_t)count * sizeof(double));
}

static void load_bf16(const void *data, int64_t at, int64_t count, double *out) {
  const uint16_t *p = (const uint16_t *)data + at;
  for (int64_t i = 0; i < count; i++) out[i] = (double)brim_bf16_to_f32(p[i]);
}

static void store_bf16(void *data, int64_t at, int64_t count, const double *in) {
  uint16_t *p = (uint16_t *)data + at;
  for (int64_t i = 0; i < count; i++) p[i] = brim_f32_to_bf16((float)in[i]);
}

static void load_f16(const void *data, int64_t at, int64_t count, double *out) {
  const uint16_t *p = (const uint16_t *)data + at;
  for (int64_t i = 0; i < count; i++) out[i] = (double)brim_f16_to_f32(p[i]);
}

static void store_f16(void *data, int64_t at, int64_t count, const double *in) {
  uint16_t *p = (uint16_t *)data + at;
  for (int64_t i = 0; i < count; i++) p[i] = brim_f32_to_f16((float)in[i]);
}

static void load_u8(const void *data, int64_t at, int64_t count, double *out) {
  const uint8_t *p = (const uint8_t *)data + at;
  for (int64_t i = 0; i < count; i++) out[i] = (double)p[i];
}

static void store_u8(void *data, int64_t at, int64_t count, const double *in) {
  uint8_t *p = (uint8_t *)data + at;
  for (int64_t i = 0; i < count; i++) p[i] = (uint8_t)in[i];
}

const ref_type *brim_ref_type(brim_dtype dtype) {
  static const ref_type types[BRIM_DTYPE_COUNT] = {
      [BRIM_F32] = {load_f32, store_f32},    [BRIM_F64] = {load_f64, store_f64},
      [BRIM_BF16] = {load_bf16, store_bf16}, [BRIM_F16] = {load_f16, store_f16},
      [BRIM_U8] = {load_u8, store_u8},
  };
  return &types[dtype];
}

//---------------------------------- linear ----------------------------------

enum { TILE_I = 4, TILE_J = 4, BLOCK_I = 32, BLOCK_J = 64, BLOCK_K = 256 };
_Static_assert(BLOCK_K <= REF_CHUNK && BLOCK_J <= REF_CHUNK, "a packed line is one chunk");

// A matrix as it lies in memory; element (outer, k) is at outer * outer_step + k * k_step. One of
// the two steps is 1.
typedef struct operand {
  const brim_tensor *t;
  int64_t outer, outer_step, k_step;
} operand;

typedef struct product {
  operand a, b;
  int64_t k;
  const brim_op_call *call;
  // One line of a finished block: C(i, j .. j + count).
  void (*finish)(const brim_op_call *call, int64_t i, int64_t j, int64_t count, double *line);
} product;

typedef struct scratch {
  double a[BLOCK_I * BLOCK_K];
  double b[BLOCK_J * BLOCK_K];
  double c[BLOCK_I * BLOCK_J];
} scratch;

size_t brim_ref_linear_workspace(const brim_op_call *call) {
  (void)call;
  return sizeof(scratch);
}

// Panels of `tile` lines: out[panel][k][line in panel], zero where the matrix ends.
static void pack(const operand *m, int64_t outer0, int64_t outers, int64_t k0, int64_t ks, int tile,
                 double *out) {
  double line[REF_CHUNK];
  for (int64_t o = 0; o < outers; o += tile) {
    double *panel = out + o * ks;
    int64_t width = ref_min(tile, outers - o);
    if (width < tile) memset(panel, 0, (size_t)(tile * ks) * sizeof(double));
    if (m->k_step == 1) {
      for (int64_t i = 0; i < width; i++) {
        ref_load(m->t, (outer0 + o + i) * m->outer_step + k0, ks, line);
        for (int64_t k = 0; k < ks; k++) panel[k * tile + i] = line[k];
      }
    } else {
      for (int64_t k = 0; k < ks; k++) {
        ref_load(m->t, (k0 + k) * m->k_step + outer0 + o, width, panel + k * tile);
      }
    }
  }
}

static void tile_product(const double *restrict a, const double *restrict b, int64_t ks,
                         double *restrict c) {
  double sum[TILE_I][TILE_J];
  for (int i = 0; i < TILE_I; i++) {
    for (int j = 0; j < TILE_J; j++) sum[i][j] = c[i * BLOCK_J + j];
  }
  for (int64_t k = 0; k < ks; k++) {
    for (int i = 0; i < TILE_I; i++) {
      for (int j = 0; j < TILE_J; j++) sum[i][j] += a[k * TILE_I + i] * b[k * TILE_J + j];
    }
  }
  for (int i = 0; i < TILE_I; i++) {
    for (int j = 0; j < TILE_J; j++) c[i * BLOCK_J + j] = sum[i][j];
  }
}

static void block_product(scratch *s, int64_t is, int64_t js, int64_t ks) {
  for (int64_t j = 0; j < js; j += TILE_J) {
    for (int64_t i = 0; i < is; i += TILE_I) {
      tile_product(s->a + i * ks, s->b + j * ks, ks, s->c + i * BLOCK_J + j);
    }
  }
}

static void multiply(const product *p) {
  scratch *s = p->call->workspace;
  for (int64_t j0 = 0; j0 < p->b.outer; j0 += BLOCK_J) {
    int64_t js = ref_min(BLOCK_J, p->b.outer - j0);
    for (int64_t i0 = 0; i0 < p->a.outer; i0 += BLOCK_I) {
      int64_t is = ref_min(BLOCK_I, p->a.outer - i0);
      memset(s->c, 0, sizeof(s->c));
      for (int64_t k0 = 0; k0 < p->k; k0 += BLOCK_K) {
        int64_t ks = ref_min(BLOCK_K, p->k - k0);
        pack(&p->a, i0, is, k0, ks, TILE_I, s->a);
        pack(&p->b, j0, js, k0, ks, TILE_J, s->b);
        block_product(s, is, js, ks);
      }
      for (int64_t i = 0; i < is; i++) p->finish(p->call, i0 + i, j0, js, s->c + i * BLOCK_J);
    }
  }
}

static void finish_forward(const brim_op_call *call, int64_t i, int64_t j, int64_t count,
                           double *line) {
  const brim_tensor *y = &call->out[0], *bias = ref_in(call, 2);
  if (bias) {
    double b[BLOCK_J];
    ref_load(bias, j, count, b);
    for (int64_t c = 0; c < count; c++) line[c] += b[c];
  }
  if (call->attr.act != BRIM_ACT_NONE) {
    for (int64_t c = 0; c < count; c++) line[c] = brim_ref_act(call->attr.act, line[c]);
  }
  ref_store(y, i * ref_columns(y) + j, count, line);
}

void brim_ref_linear(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0], *w = &call->in[1];
  int64_t k = ref_columns(x);
  product p = {.a = {x, ref_rows(x), k, 1},
               .b = {w, w->dim[0], k, 1},
               .k = k,
               .call = call,
               .finish = finish_forward};
  multiply(&p);
}

static void finish_data(const brim_op_call *call, int64_t i, int64_t j, int64_t count,
                        double *line) {
  const brim_tensor *dx = &call->out[0];
  if (call->attr.act != BRIM_ACT_NONE) {
    double s[BLOCK_J];
    ref_load(&call->in[2], i * ref_columns(dx) + j, count, s);
    for (int64_t c = 0; c < count; c++) line[c] *= brim_ref_act_slope(call->attr.act, s[c]);
  }
  ref_store(dx, i * ref_columns(dx) + j, count, line);
}

void brim_ref_linear_bwd_data(const brim_op_call *call) {
  const brim_tensor *dy = &call->in[0], *w = &call->in[1];
  int64_t m = ref_columns(dy), k = w->dim[1];
  product p = {.a = {dy, ref_rows(dy), m, 1},
               .b = {w, k, 1, k},
               .k = m,
               .call = call,
               .finish = finish_data};
  multiply(&p);
}

static void add_or_store(const brim_op_call *call, const brim_tensor *t, int64_t at, int64_t count,
                         double *line) {
  if (call->attr.accumulate) {
    double old[BLOCK_J];
    ref_load(t, at, count, old);
    for (int64_t c = 0; c < count; c++) line[c] += old[c];
  }
  ref_store(t, at, count, line);
}

static void finish_weight(const brim_op_call *call, int64_t i, int64_t j, int64_t count,
                          double *line) {
  add_or_store(call, &call->out[0], i * call->out[0].dim[1] + j, count, line);
}

void brim_ref_linear_bwd_weight(const brim_op_call *call) {
  const brim_tensor *dy = &call->in[0], *x = &call->in[1], *db = ref_out(call, 1);
  int64_t n = ref_rows(dy), m = ref_columns(dy), k = ref_columns(x);
  product p = {
      .a = {dy, m, 1, m}, .b = {x, k, 1, k}, .k = n, .call = call, .finish = finish_weight};
  multiply(&p);
  for (int64_t j = 0; db && j < m; j += BLOCK_J) {
    double sum[BLOCK_J] = {0}, line[BLOCK_J];
    int64_t count = ref_min(BLOCK_J, m - j);
    for (int64_t i = 0; i < n; i++) {
      ref_load(dy, i * m + j, count, line);
      for (int64_t c = 0; c < count; c++) sum[c] += line[c];
    }
    add_or_store(call, db, j, count, sum);
  }
}

//---------------------------------- convolution ----------------------------------

// Sizes of a convolution, whichever tensors of it a call has.
typedef struct conv {
  int64_t n, h, w, c;  // image
  int64_t p, q, m;     // its other side
  int64_t r, s;        // window
  int64_t stride, pad;
} conv;

static conv conv_of(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
  if (call->op == BRIM_OP_CONV_BWD_DATA) {
    x = &call->out[0];
    y = &call->in[0];
  } else if (call->op == BRIM_OP_CONV_BWD_WEIGHT) {
    x = &call->in[1];
    w = &call->out[0];
    y = &call->in[0];
  }
  return (conv){.n = x->dim[0],
                .h = x->dim[1],
                .w = x->dim[2],
                .c = x->dim[3],
                .p = y->dim[1],
                .q = y->dim[2],
                .m = y->dim[3],
                .r = w->dim[1],
                .s = w->dim[2],
                .stride = call->attr.stride,
                .pad = call->attr.pad};
}

typedef struct conv_scratch {
  double *weights;  // (M, R, S, C), or (R, S, C, M) for the forward product
  double *image;    // (H, W, C)
  double *other;    // (P, Q, M)
} conv_scratch;

static conv_scratch scratch_of(const brim_op_call *call, const conv *v) {
  double *base = call->workspace;
  int64_t weights = v->m * v->r * v->s * v->c, image = v->h * v->w * v->c;
  return (conv_scratch){base, base + weights, base + weights + image};
}

size_t brim_ref_conv_workspace(const brim_op_call *call) {
  conv v = conv_of(call);
  int64_t count = v.m * v.r * v.s * v.c + v.h * v.w * v.c + v.p * v.q * v.m;
  return (size_t)count * sizeof(double);
}

// Calls `step` for every pair of a place of the window and a pixel under it that is not padding.
typedef void (*pair_step)(const conv *v, const conv_scratch *s, int64_t window, int64_t pixel,
                          int64_t other);

static void each_pair(const conv *v, const conv_scratch *s, pair_step step) {
  for (int64_t p = 0; p < v->p; p++) {
    for (int64_t q = 0; q < v->q; q++) {
      for (int64_t r = 0; r < v->r; r++) {
        int64_t h = p * v->stride - v->pad + r;
        if (h < 0 || h >= v->h) continue;
        for (int64_t c = 0; c < v->s; c++) {
          int64_t w = q * v->stride - v->pad + c;
          if (w < 0 || w >= v->w) continue;
          step(v, s, r * v->s + c, h * v->w + w, p * v->q + q);
        }
      }
    }
  }
}

static void forward_step(const conv *v, const conv_scratch *s, int64_t window, int64_t pixel,
                         int64_t other) {
  const double *x = s->image + pixel * v->c;
  double *restrict y = s->other + other * v->m;
  for (int64_t c = 0; c < v->c; c++) {
    const double *w = s->weights + (window * v->c + c) * v->m;
    for (int64_t m = 0; m < v->m; m++) y[m] += x[c] * w[m];
  }
}

void brim_ref_conv(const brim_op_call *call) {
  conv v = conv_of(call);
  conv_scratch s = scratch_of(call, &v);
  int64_t image = v.h * v.w * v.c, other = v.p * v.q * v.m, taps = v.r * v.s * v.c;
  double line[REF_CHUNK];
  for (int64_t m = 0; m < v.m; m++) {
    for (int64_t at = 0; at < taps; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, taps - at);
      ref_load(&call->in[1], m * taps + at, n, line);
      for (int64_t i = 0; i < n; i++) s.weights[(at + i) * v.m + m] = line[i];
    }
  }
  for (int64_t n = 0; n < v.n; n++) {
    ref_load(&call->in[0], n * image, image, s.image);
    memset(s.other, 0, (size_t)other * sizeof(double));
    each_pair(&v, &s, forward_step);
    ref_store(&call->out[0], n * other, other, s.other);
  }
}

static void data_step(const conv *v, const conv_scratch *s, int64_t window, int64_t pixel,
                      int64_t other) {
  double *restrict dx = s->image + pixel * v->c;
  const double *dy = s->other + other * v->m;
  for (int64_t m = 0; m < v->m; m++) {
    const double *w = s->weights + (m * v->r * v->s + window) * v->c;
    for (int64_t c = 0; c < v->c; c++) dx[c] += dy[m] * w[c];
  }
}

void brim_ref_conv_bwd_data(const brim_op_call *call) {
  conv v = conv_of(call);
  conv_scratch s = scratch_of(call, &v);
  int64_t image = v.h * v.w * v.c, other = v.p * v.q * v.m;
  ref_load(&call->in[1], 0, v.m * v.r * v.s * v.c, s.weights);
  for (int64_t n = 0; n < v.n; n++) {
    ref_load(&call->in[0], n * other, other, s.other);
    memset(s.image, 0, (size_t)image * sizeof(double));
    each_pair(&v, &s, data_step);
    ref_store(&call->out[0], n * image, image, s.image);
  }
}

static void weight_step(const conv *v, const conv_scratch *s, int64_t window, int64_t pixel,
                        int64_t other) {
  const double *x = s->image + pixel * v->c, *dy = s->other + other * v->m;
  for (int64_t m = 0; m < v->m; m++) {
    double *restrict dw = s->weights + (m * v->r * v->s + window) * v->c;
    for (int64_t c = 0; c < v->c; c++) dw[c] += dy[m] * x[c];
  }
}

void brim_ref_conv_bwd_weight(const brim_op_call *call) {
  conv v = conv_of(call);
  conv_scratch s = scratch_of(call, &v);
  int64_t image = v.h * v.w * v.c, other = v.p * v.q * v.m, weights = v.m * v.r * v.s * v.c;
  if (call->attr.accumulate) {
    ref_load(&call->out[0], 0, weights, s.weights);
  } else {
    memset(s.weights, 0, (size_t)weights * sizeof(double));
  }
  for (int64_t n = 0; n < v.n; n++) {
    ref_load(&call->in[0], n * other, other, s.other);
    ref_load(&call->in[1], n * image, image, s.image);
    each_pair(&v, &s, weight_step);
  }
  ref_store(&call->out[0], 0, weights, s.weights);
}
