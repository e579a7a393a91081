// The reference backend: one device (the host), one thread, everything synchronous, slow and plain on
// purpose. Tests compare other backends with it.
//
// Every kernel is written once for all types: it loads a chunk into doubles, computes in double, and
// stores the chunk rounded to its type. So sums are exact to double, f64 calls are precise enough to check
// gradients, and only load and store depend on the type.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/backend_half.h"
#include "hd/hd_philox.h"

//---------------------------------- types ----------------------------------

#define REF_CHUNK 256  // values per chunk: 2 KiB of stack

typedef struct ref_type {
  // Load or store `count` values from index `at` of a tensor of this type.
  void (*load)(const void *data, int64_t at, int64_t count, double *out);
  void (*store)(void *data, int64_t at, int64_t count, const double *in);
} ref_type;

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

// The float types and u8; the members of other types are NULL.
static const ref_type types[BRIM_DTYPE_COUNT] = {
    [BRIM_F32] = {load_f32, store_f32},    [BRIM_F64] = {load_f64, store_f64},
    [BRIM_BF16] = {load_bf16, store_bf16}, [BRIM_F16] = {load_f16, store_f16},
    [BRIM_U8] = {load_u8, store_u8},
};

static void ref_load(const brim_tensor *t, int64_t at, int64_t count, double *out) {
  types[t->dtype].load(t->data, at, count, out);
}
static void ref_store(const brim_tensor *t, int64_t at, int64_t count, const double *in) {
  types[t->dtype].store(t->data, at, count, in);
}
static int64_t ref_min(int64_t a, int64_t b) { return a < b ? a : b; }
// NULL if the optional tensor was left out.
static const brim_tensor *ref_in(const brim_op_call *call, int i) {
  return i < call->in_count && brim_tensor_count(&call->in[i]) > 0 ? &call->in[i] : NULL;
}
static const brim_tensor *ref_out(const brim_op_call *call, int i) {
  return i < call->out_count && brim_tensor_count(&call->out[i]) > 0 ? &call->out[i] : NULL;
}
// Reads a count of the state (BRIM_STATE_ROWS, BRIM_STATE_SAMPLES), limited to 0 to n.
static int64_t ref_valid(const brim_tensor *state, int which, int64_t n) {
  double count = ((const double *)state->data)[which];
  return count < 0 ? 0 : count < (double)n ? (int64_t)count : n;
}
// The number of rows of a batch that are not padding.
static int64_t ref_valid_rows(const brim_tensor *state, int64_t n) {
  return ref_valid(state, BRIM_STATE_ROWS, n);
}

// Columns and rows of a tensor (..,C).
static int64_t ref_columns(const brim_tensor *t) { return t->dim[t->rank - 1]; }
static int64_t ref_rows(const brim_tensor *t) { return brim_tensor_count(t) / ref_columns(t); }
// The factor of all gradients of losses.
static double ref_loss_scale(const brim_tensor *state) {
  const double *s = (const double *)state->data;
  return s[BRIM_STATE_GRAD_SCALE] * s[BRIM_STATE_LOSS_SCALE];
}

//---------------------------------- activations ----------------------------------

static const double INV_SQRT2 = 0.70710678118654752440;
static const double INV_SQRT_2PI = 0.39894228040143267794;

static double act_value(brim_act act, double x) {
  switch (act) {
    case BRIM_ACT_RELU:
      return x > 0 || isnan(x) ? x : 0;
    case BRIM_ACT_GELU:
      return 0.5 * x * (1 + erf(x * INV_SQRT2));
    case BRIM_ACT_TANH:
      return tanh(x);
    default:
      return x;
  }
}

// s is y for relu and tanh, x for gelu.
static double act_slope(brim_act act, double s) {
  switch (act) {
    case BRIM_ACT_RELU:
      return s > 0 ? 1 : 0;
    case BRIM_ACT_GELU:
      return 0.5 * (1 + erf(s * INV_SQRT2)) + s * INV_SQRT_2PI * exp(-0.5 * s * s);
    case BRIM_ACT_TANH:
      return 1 - s * s;
    default:
      return 1;
  }
}

//---------------------------------- linear ----------------------------------

// The three linear ops are one matrix product. Its sums are in double with k ascending, for any blocking.
// Convolutions are plain loops over one image at a time. The innermost loop of both runs over neighbours in
// memory, so compilers vectorize it without reordering a sum.

enum { TILE_I = 4, TILE_J = 4, BLOCK_I = 32, BLOCK_J = 64, BLOCK_K = 256 };
_Static_assert(BLOCK_K <= REF_CHUNK && BLOCK_J <= REF_CHUNK, "a packed line is one chunk");

// A matrix in memory: element (outer, k) is at outer * outer_step + k * k_step. One of the two steps is 1.
typedef struct operand {
  const brim_tensor *t;
  int64_t outer, outer_step, k_step;
} operand;

typedef struct product {
  operand a, b;
  int64_t k;
  const brim_op_call *call;
  // Stores one line of a finished block: C(i, j .. j + count).
  void (*finish)(const brim_op_call *call, int64_t i, int64_t j, int64_t count, double *line);
} product;

typedef struct scratch {
  double a[BLOCK_I * BLOCK_K];
  double b[BLOCK_J * BLOCK_K];
  double c[BLOCK_I * BLOCK_J];
} scratch;

static size_t ref_linear_workspace(const brim_op_call *call) {
  (void)call;
  return sizeof(scratch);
}

// Packs panels of `tile` lines: out[panel][k][line in panel], zeros after the end of the matrix.
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
    for (int64_t c = 0; c < count; c++) line[c] = act_value(call->attr.act, line[c]);
  }
  ref_store(y, i * ref_columns(y) + j, count, line);
}

static void ref_linear(const brim_op_call *call) {
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
    for (int64_t c = 0; c < count; c++) line[c] *= act_slope(call->attr.act, s[c]);
  }
  ref_store(dx, i * ref_columns(dx) + j, count, line);
}

static void ref_linear_bwd_data(const brim_op_call *call) {
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

static void ref_linear_bwd_weight(const brim_op_call *call) {
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

// Sizes of a convolution or of one of its gradients.
typedef struct conv {
  int64_t n, h, w, c;  // x(n, h, w, c)
  int64_t p, q, m;     // y(n, p, q, m)
  int64_t r, s;        // window of w
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
  double *output;   // (P, Q, M): y or dy
} conv_scratch;

static conv_scratch scratch_of(const brim_op_call *call, const conv *v) {
  double *base = call->workspace;
  int64_t weights = v->m * v->r * v->s * v->c, image = v->h * v->w * v->c;
  return (conv_scratch){base, base + weights, base + weights + image};
}

static size_t ref_conv_workspace(const brim_op_call *call) {
  conv v = conv_of(call);
  int64_t count = v.m * v.r * v.s * v.c + v.h * v.w * v.c + v.p * v.q * v.m;
  return (size_t)count * sizeof(double);
}

// each_pair calls a pair_step for every position in the window of an output pixel whose input pixel is not
// padding.
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
  double *restrict y = s->output + other * v->m;
  for (int64_t c = 0; c < v->c; c++) {
    const double *w = s->weights + (window * v->c + c) * v->m;
    for (int64_t m = 0; m < v->m; m++) y[m] += x[c] * w[m];
  }
}

static void ref_conv(const brim_op_call *call) {
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
    memset(s.output, 0, (size_t)other * sizeof(double));
    each_pair(&v, &s, forward_step);
    ref_store(&call->out[0], n * other, other, s.output);
  }
}

static void data_step(const conv *v, const conv_scratch *s, int64_t window, int64_t pixel,
                      int64_t other) {
  double *restrict dx = s->image + pixel * v->c;
  const double *dy = s->output + other * v->m;
  for (int64_t m = 0; m < v->m; m++) {
    const double *w = s->weights + (m * v->r * v->s + window) * v->c;
    for (int64_t c = 0; c < v->c; c++) dx[c] += dy[m] * w[c];
  }
}

static void ref_conv_bwd_data(const brim_op_call *call) {
  conv v = conv_of(call);
  conv_scratch s = scratch_of(call, &v);
  int64_t image = v.h * v.w * v.c, other = v.p * v.q * v.m;
  ref_load(&call->in[1], 0, v.m * v.r * v.s * v.c, s.weights);
  for (int64_t n = 0; n < v.n; n++) {
    ref_load(&call->in[0], n * other, other, s.output);
    memset(s.image, 0, (size_t)image * sizeof(double));
    each_pair(&v, &s, data_step);
    ref_store(&call->out[0], n * image, image, s.image);
  }
}

static void weight_step(const conv *v, const conv_scratch *s, int64_t window, int64_t pixel,
                        int64_t other) {
  const double *x = s->image + pixel * v->c, *dy = s->output + other * v->m;
  for (int64_t m = 0; m < v->m; m++) {
    double *restrict dw = s->weights + (m * v->r * v->s + window) * v->c;
    for (int64_t c = 0; c < v->c; c++) dw[c] += dy[m] * x[c];
  }
}

static void ref_conv_bwd_weight(const brim_op_call *call) {
  conv v = conv_of(call);
  conv_scratch s = scratch_of(call, &v);
  int64_t image = v.h * v.w * v.c, other = v.p * v.q * v.m, weights = v.m * v.r * v.s * v.c;
  if (call->attr.accumulate) {
    ref_load(&call->out[0], 0, weights, s.weights);
  } else {
    memset(s.weights, 0, (size_t)weights * sizeof(double));
  }
  for (int64_t n = 0; n < v.n; n++) {
    ref_load(&call->in[0], n * other, other, s.output);
    ref_load(&call->in[1], n * image, image, s.image);
    each_pair(&v, &s, weight_step);
  }
  ref_store(&call->out[0], 0, weights, s.weights);
}

//---------------------------------- pointwise ops ----------------------------------

static void ref_act_fwd(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double x[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, x);
    for (int64_t i = 0; i < n; i++) x[i] = act_value(call->attr.act, x[i]);
    ref_store(&call->out[0], at, n, x);
  }
}

static void ref_act_bwd(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double dy[REF_CHUNK], s[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, dy);
    ref_load(&call->in[1], at, n, s);
    for (int64_t i = 0; i < n; i++) dy[i] *= act_slope(call->attr.act, s[i]);
    ref_store(&call->out[0], at, n, dy);
  }
}

static void ref_dropout(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0];
  const double *state = call->in[1].data;
  int64_t count = brim_tensor_count(x), columns = count / x->dim[0];
  uint64_t key = brim_rng_key((uint64_t)state[BRIM_STATE_SEED], BRIM_RNG_DROPOUT);
  uint64_t stream = (uint64_t)state[BRIM_STATE_STEP] << 16 | call->attr.layer;
  uint64_t first = (uint64_t)state[BRIM_STATE_ROW_OFFSET] * (uint64_t)columns;
  double keep = 1 - (double)call->attr.p;
  double v[REF_CHUNK];
  brim_philox4 bits = {{0}};
  uint64_t block = UINT64_MAX;
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(x, at, n, v);
    for (int64_t i = 0; i < n; i++) {
      uint64_t e = first + (uint64_t)(at + i);
      if (e / 4 != block) {
        block = e / 4;
        bits = brim_philox(key, stream, block);
      }
      bool dropped = brim_rng_uniform(bits.v[e % 4]) < call->attr.p;
      v[i] = dropped ? 0 : v[i] / keep;
    }
    ref_store(&call->out[0], at, n, v);
  }
}

static void ref_add(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double a[REF_CHUNK], b[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, a);
    ref_load(&call->in[1], at, n, b);
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
    ref_store(&call->out[0], at, n, a);
  }
}

static void ref_cast(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double x[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, x);
    ref_store(&call->out[0], at, n, x);
  }
}

// Turns pixels of `channels` values into pixels of `wide` values, the last of which are 0.
static void input_padded(const brim_op_call *call, int64_t wide) {
  const brim_op_attr *a = &call->attr;
  int64_t pixels = brim_tensor_count(&call->out[0]) / wide;
  double x[4];
  static const double zeros[REF_CHUNK];
  for (int64_t i = 0; i < pixels; i++) {
    ref_load(&call->in[0], i * a->channels, a->channels, x);
    for (int c = 0; c < a->channels; c++) {
      x[c] = x[c] * (double)a->scale[c] + (double)a->shift[c];
    }
    ref_store(&call->out[0], i * wide, a->channels, x);
    for (int64_t at = a->channels; at < wide; at += REF_CHUNK) {
      ref_store(&call->out[0], i * wide + at, ref_min(REF_CHUNK, wide - at), zeros);
    }
  }
}

static void ref_input(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  int64_t count = brim_tensor_count(&call->in[0]);
  if (count != brim_tensor_count(&call->out[0])) {
    input_padded(call, ref_columns(&call->out[0]));
    return;
  }
  double x[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, x);
    for (int64_t i = 0; i < n; i++) {
      // Rows have a whole number of pixels, so the channel follows from the flat index.
      int64_t c = (at + i) % a->channels;
      x[i] = x[i] * (double)a->scale[c] + (double)a->shift[c];
    }
    ref_store(&call->out[0], at, n, x);
  }
}

//---------------------------------- layer norm, and the norm of gradients ----------------------------------

// Mean and biased variance of one row, in two passes.
static void row_moments(const brim_tensor *x, int64_t row, double *mean, double *variance) {
  int64_t c = ref_columns(x);
  double v[REF_CHUNK], sum = 0, squares = 0;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, c - at);
    ref_load(x, row * c + at, n, v);
    for (int64_t i = 0; i < n; i++) sum += v[i];
  }
  *mean = sum / (double)c;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, c - at);
    ref_load(x, row * c + at, n, v);
    for (int64_t i = 0; i < n; i++) squares += (v[i] - *mean) * (v[i] - *mean);
  }
  *variance = squares / (double)c;
}

static void ref_layernorm(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0], *g = &call->in[1], *b = &call->in[2];
  int64_t rows = ref_rows(x), c = ref_columns(x);
  double v[REF_CHUNK], gain[REF_CHUNK], bias[REF_CHUNK];
  for (int64_t row = 0; row < rows; row++) {
    double mean, variance;
    row_moments(x, row, &mean, &variance);
    double rstd = 1 / sqrt(variance + (double)call->attr.eps);
    for (int64_t at = 0; at < c; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, c - at);
      ref_load(x, row * c + at, n, v);
      ref_load(g, at, n, gain);
      ref_load(b, at, n, bias);
      for (int64_t i = 0; i < n; i++) v[i] = (v[i] - mean) * rstd * gain[i] + bias[i];
      ref_store(&call->out[0], row * c + at, n, v);
    }
    ref_store(&call->out[1], row, 1, &mean);
    ref_store(&call->out[2], row, 1, &rstd);
  }
}

// dx = rstd * (dy g - mean(dy g) - h mean(dy g h)), h = (x - mean) rstd
static void norm_bwd_row(const brim_op_call *call, int64_t row) {
  const brim_tensor *dy = &call->in[0], *x = &call->in[1], *g = &call->in[2];
  int64_t c = ref_columns(x);
  double d[REF_CHUNK], h[REF_CHUNK], gain[REF_CHUNK];
  double mean, rstd, sum = 0, sum_h = 0;
  ref_load(&call->in[3], row, 1, &mean);
  ref_load(&call->in[4], row, 1, &rstd);
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t at = 0; at < c; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, c - at);
      ref_load(dy, row * c + at, n, d);
      ref_load(x, row * c + at, n, h);
      ref_load(g, at, n, gain);
      for (int64_t i = 0; i < n; i++) {
        h[i] = (h[i] - mean) * rstd;
        d[i] *= gain[i];
      }
      for (int64_t i = 0; pass == 0 && i < n; i++) {
        sum += d[i];
        sum_h += d[i] * h[i];
      }
      if (pass == 0) continue;
      double inverse_count = 1 / (double)c;
      for (int64_t i = 0; i < n; i++)
        d[i] = rstd * (d[i] - sum * inverse_count - h[i] * sum_h * inverse_count);
      ref_store(&call->out[0], row * c + at, n, d);
    }
  }
}

// dg = sum of dy h, db = sum of dy, for one chunk of columns.
static void bwd_params(const brim_op_call *call, int64_t at, int64_t n) {
  const brim_tensor *dy = &call->in[0], *x = &call->in[1];
  int64_t rows = ref_rows(x), c = ref_columns(x);
  double d[REF_CHUNK], h[REF_CHUNK], dg[REF_CHUNK] = {0}, db[REF_CHUNK] = {0};
  if (call->attr.accumulate) {
    ref_load(&call->out[1], at, n, dg);
    ref_load(&call->out[2], at, n, db);
  }
  for (int64_t row = 0; row < rows; row++) {
    double mean, rstd;
    ref_load(&call->in[3], row, 1, &mean);
    ref_load(&call->in[4], row, 1, &rstd);
    ref_load(dy, row * c + at, n, d);
    ref_load(x, row * c + at, n, h);
    for (int64_t i = 0; i < n; i++) {
      dg[i] += d[i] * (h[i] - mean) * rstd;
      db[i] += d[i];
    }
  }
  ref_store(&call->out[1], at, n, dg);
  ref_store(&call->out[2], at, n, db);
}

static void ref_layernorm_bwd(const brim_op_call *call) {
  int64_t rows = ref_rows(&call->in[1]), c = ref_columns(&call->in[1]);
  // Parameters first: dx may be written over dy.
  for (int64_t at = 0; at < c; at += REF_CHUNK) bwd_params(call, at, ref_min(REF_CHUNK, c - at));
  for (int64_t row = 0; row < rows; row++) norm_bwd_row(call, row);
}

static void ref_grad_norm(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double v[REF_CHUNK], norm[2] = {0, 0};
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, v);
    for (int64_t i = 0; i < n; i++) {
      if (isfinite(v[i])) {
        norm[0] += v[i] * v[i];
      } else {
        norm[1] += 1;
      }
    }
  }
  ref_store(&call->out[0], 0, 2, norm);
}

//---------------------------------- batch norm ----------------------------------

// Batch norm with add, ReLU and gradient, a chunk of channels at a time, whole or in parts of several
// ranks. Statistics are over the rows that are not padding; all rows are normalized by them. They are
// rounded to the type they are stored in before they are used, so that applying them later gives the
// same bits.

// A chunk of channels: what to normalize them with.
typedef struct chunk {
  int64_t at, n;
  double gain[REF_CHUNK], bias[REF_CHUNK], mean[REF_CHUNK], rstd[REF_CHUNK];
} chunk;

static void load_gain(const brim_op_call *call, int first, int64_t at, int64_t n, chunk *k) {
  k->at = at;
  k->n = n;
  ref_load(&call->in[first], at, n, k->gain);
  ref_load(&call->in[first + 1], at, n, k->bias);
}

static double normalised(const chunk *k, int64_t i, double x) {
  return (x - k->mean[i]) * k->rstd[i] * k->gain[i] + k->bias[i];
}

// y = act(norm(x) g + b + z) for all rows.
static void apply(const brim_op_call *call, const chunk *k, const brim_tensor *z) {
  const brim_tensor *x = &call->in[0];
  int64_t c = x->dim[3], rows = ref_rows(x);
  double v[REF_CHUNK], add[REF_CHUNK] = {0};
  for (int64_t row = 0; row < rows; row++) {
    ref_load(x, row * c + k->at, k->n, v);
    if (z) ref_load(z, row * c + k->at, k->n, add);
    for (int64_t i = 0; i < k->n; i++) {
      v[i] = act_value(call->attr.act, normalised(k, i, v[i]) + add[i]);
    }
    ref_store(&call->out[0], row * c + k->at, k->n, v);
  }
}

// The mean, and the sum of squared deviations from it, over `rows` rows, in two passes.
static void moments(const brim_tensor *x, int64_t rows, chunk *k, double *squares) {
  int64_t c = x->dim[3];
  double v[REF_CHUNK], inverse_count = 1 / (double)(rows > 0 ? rows : 1);
  memset(k->mean, 0, sizeof(k->mean));
  memset(squares, 0, REF_CHUNK * sizeof(double));
  for (int64_t row = 0; row < rows; row++) {
    ref_load(x, row * c + k->at, k->n, v);
    for (int64_t i = 0; i < k->n; i++) k->mean[i] += v[i];
  }
  for (int64_t i = 0; i < k->n; i++) k->mean[i] *= inverse_count;
  for (int64_t row = 0; row < rows; row++) {
    ref_load(x, row * c + k->at, k->n, v);
    for (int64_t i = 0; i < k->n; i++) {
      squares[i] += (v[i] - k->mean[i]) * (v[i] - k->mean[i]);
    }
  }
}

// Moves running statistics towards `value`. `other` are the batch's other moments: one bad sample must not
// stay in the mean or the variance.
static void move_towards(const brim_tensor *running, const chunk *k, double momentum,
                         const double *value, const double *other) {
  double old[REF_CHUNK];
  ref_load(running, k->at, k->n, old);
  for (int64_t i = 0; i < k->n; i++) {
    if (!isfinite((float)value[i]) || !isfinite((float)other[i])) continue;
    old[i] += momentum * (value[i] - old[i]);
  }
  ref_store(running, k->at, k->n, old);
}

static int64_t valid_pixels(const brim_tensor *x, const brim_tensor *state) {
  return ref_valid_rows(state, x->dim[0]) * x->dim[1] * x->dim[2];
}

// Makes the outputs of `count` values from their mean and squared distances. mean and rstd go to outputs
// `first` and `first` + 1; rmean and rvar, if given, to outputs 3 and 4. The chunk gets mean and rstd as
// they were stored.
static void finish(const brim_op_call *call, int first, double count, const double *squares,
                   chunk *k) {
  const brim_tensor *mean = &call->out[first], *rstd = &call->out[first + 1];
  const brim_tensor *running_mean = ref_out(call, 3);
  double unbiased = count > 1 ? count / (count - 1) : 1,
         inverse_count = 1 / (count > 0 ? count : 1);
  double variance[REF_CHUNK];
  for (int64_t i = 0; i < k->n; i++) {
    k->rstd[i] = 1 / sqrt(squares[i] * inverse_count + (double)call->attr.eps);
    variance[i] = squares[i] * inverse_count * unbiased;
  }
  if (running_mean && count > 0) {
    move_towards(running_mean, k, (double)call->attr.momentum, k->mean, variance);
    move_towards(&call->out[4], k, (double)call->attr.momentum, variance, k->mean);
  }
  ref_store(mean, k->at, k->n, k->mean);
  ref_store(rstd, k->at, k->n, k->rstd);
  ref_load(mean, k->at, k->n, k->mean);
  ref_load(rstd, k->at, k->n, k->rstd);
}

static void ref_batchnorm(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0];
  int64_t c = x->dim[3], rows = valid_pixels(x, &call->in[3]);
  double squares[REF_CHUNK];
  chunk k;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    load_gain(call, 1, at, ref_min(REF_CHUNK, c - at), &k);
    moments(x, rows, &k, squares);
    finish(call, 1, (double)rows, squares, &k);
    apply(call, &k, ref_in(call, 4));
  }
}

static void ref_batchnorm_apply(const brim_op_call *call) {
  int64_t c = call->in[0].dim[3];
  chunk k;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    load_gain(call, 1, at, ref_min(REF_CHUNK, c - at), &k);
    ref_load(&call->in[3], at, k.n, k.mean);
    ref_load(&call->in[4], at, k.n, k.rstd);
    for (int64_t i = 0; call->attr.variance && i < k.n; i++) {
      k.rstd[i] = 1 / sqrt(k.rstd[i] + (double)call->attr.eps);
    }
    apply(call, &k, ref_in(call, 5));
  }
}

//---------------------------------- parts ----------------------------------

static void ref_batchnorm_part(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0], *part = &call->out[0];
  int64_t c = x->dim[3], rows = valid_pixels(x, &call->in[1]);
  double squares[REF_CHUNK], counts[REF_CHUNK];
  chunk k;
  for (int64_t i = 0; i < REF_CHUNK; i++) counts[i] = (double)rows;
  for (k.at = 0; k.at < c; k.at += REF_CHUNK) {
    k.n = ref_min(REF_CHUNK, c - k.at);
    moments(x, rows, &k, squares);
    ref_store(part, k.at, k.n, counts);
    ref_store(part, c + k.at, k.n, k.mean);
    ref_store(part, 2 * c + k.at, k.n, squares);
  }
}

// Joins one part with the parts before it (Chan, Golub, LeVeque).
static void join(const brim_tensor *parts, int64_t part, chunk *k, double *counts,
                 double *squares) {
  int64_t c = parts->dim[2], from = part * 3 * c + k->at;
  double count[REF_CHUNK], mean[REF_CHUNK], square[REF_CHUNK];
  ref_load(parts, from, k->n, count);
  ref_load(parts, from + c, k->n, mean);
  ref_load(parts, from + 2 * c, k->n, square);
  for (int64_t i = 0; i < k->n; i++) {
    if (!(count[i] > 0)) continue;
    double share = count[i] / (counts[i] + count[i]), delta = mean[i] - k->mean[i];
    k->mean[i] += delta * share;
    squares[i] += square[i] + delta * delta * counts[i] * share;
    counts[i] += count[i];
  }
}

static void ref_batchnorm_join(const brim_op_call *call) {
  const brim_tensor *parts = &call->in[0];
  int64_t c = parts->dim[2];
  double counts[REF_CHUNK], squares[REF_CHUNK];
  chunk k;
  for (k.at = 0; k.at < c; k.at += REF_CHUNK) {
    k.n = ref_min(REF_CHUNK, c - k.at);
    memset(counts, 0, sizeof(counts));
    memset(squares, 0, sizeof(squares));
    memset(k.mean, 0, sizeof(k.mean));
    for (int64_t part = 0; part < parts->dim[0]; part++) join(parts, part, &k, counts, squares);
    if (k.at == 0) ref_store(&call->out[2], 0, 1, counts);
    finish(call, 0, counts[0], squares, &k);
  }
}

//---------------------------------- gradient ----------------------------------

// One row of a chunk: d = the gradient that passes the activation, h = norm(x).
static void bwd_row(const brim_op_call *call, const chunk *k, int64_t row, double *d, double *h) {
  int optional = call->op == BRIM_OP_BATCHNORM_BWD_JOINED ? 9 : 7;
  const brim_tensor *y = ref_in(call, optional), *second = ref_in(call, optional + 1);
  int64_t from = row * call->in[1].dim[3] + k->at;
  double v[REF_CHUNK];
  ref_load(&call->in[0], from, k->n, d);
  if (second) {
    ref_load(second, from, k->n, v);
    for (int64_t i = 0; i < k->n; i++) d[i] += v[i];
  }
  ref_load(&call->in[1], from, k->n, h);
  if (call->attr.act == BRIM_ACT_RELU) {
    if (y) ref_load(y, from, k->n, v);
    for (int64_t i = 0; i < k->n; i++) {
      double s = y ? v[i] : normalised(k, i, h[i]);
      d[i] *= act_slope(BRIM_ACT_RELU, s);
    }
  }
  for (int64_t i = 0; i < k->n; i++) h[i] = (h[i] - k->mean[i]) * k->rstd[i];
}

static void store_sums(const brim_op_call *call, int out, const chunk *k, const double *sums) {
  double v[REF_CHUNK] = {0};
  if (call->attr.accumulate) ref_load(&call->out[out], k->at, k->n, v);
  for (int64_t i = 0; i < k->n; i++) v[i] += sums[i];
  ref_store(&call->out[out], k->at, k->n, v);
}

// Sums over the valid rows: of the gradient d that passes, and of d * norm(x).
typedef struct bwd_sums {
  double d[REF_CHUNK], dh[REF_CHUNK];
} bwd_sums;

static void add_rows(const brim_op_call *call, const chunk *k, int64_t valid, bwd_sums *sums) {
  double d[REF_CHUNK], h[REF_CHUNK];
  *sums = (bwd_sums){{0}, {0}};
  for (int64_t row = 0; row < valid; row++) {
    bwd_row(call, k, row, d, h);
    for (int64_t i = 0; i < k->n; i++) {
      sums->d[i] += d[i];
      sums->dh[i] += d[i] * h[i];
    }
  }
  store_sums(call, 1, k, sums->dh);
  store_sums(call, 2, k, sums->d);
}

// dx = g rstd (d - mean(d) - h mean(d h)), with means over `count` values.
static void bwd_rows(const brim_op_call *call, const chunk *k, int64_t valid, const bwd_sums *sums,
                     double count) {
  const brim_tensor *dx = &call->out[0];
  const brim_tensor *dz = ref_out(call, call->op == BRIM_OP_BATCHNORM_BWD ? 3 : 1);
  static const double zeros[REF_CHUNK];
  double d[REF_CHUNK], h[REF_CHUNK], inverse_count = 1 / (count > 0 ? count : 1);
  int64_t c = dx->dim[3], rows = ref_rows(dx);
  for (int64_t row = 0; row < rows; row++) {
    if (row >= valid) {
      ref_store(dx, row * c + k->at, k->n, zeros);
      if (dz) ref_store(dz, row * c + k->at, k->n, zeros);
      continue;
    }
    bwd_row(call, k, row, d, h);
    if (dz) ref_store(dz, row * c + k->at, k->n, d);
    for (int64_t i = 0; i < k->n; i++) {
      d[i] = k->gain[i] * k->rstd[i] *
             (d[i] - sums->d[i] * inverse_count - h[i] * sums->dh[i] * inverse_count);
    }
    ref_store(dx, row * c + k->at, k->n, d);
  }
}

static void load_channels(const brim_op_call *call, int64_t at, chunk *k) {
  load_gain(call, 2, at, ref_min(REF_CHUNK, call->in[1].dim[3] - at), k);
  ref_load(&call->in[4], at, k->n, k->mean);
  ref_load(&call->in[5], at, k->n, k->rstd);
}

static void ref_batchnorm_bwd(const brim_op_call *call) {
  int64_t c = call->in[1].dim[3], valid = valid_pixels(&call->in[1], &call->in[6]);
  bwd_sums sums;
  chunk k;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    load_channels(call, at, &k);
    add_rows(call, &k, valid, &sums);
    bwd_rows(call, &k, valid, &sums, (double)valid);
  }
}

static void ref_batchnorm_bwd_sums(const brim_op_call *call) {
  int64_t c = call->in[1].dim[3], valid = valid_pixels(&call->in[1], &call->in[6]);
  bwd_sums sums;
  chunk k;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    load_channels(call, at, &k);
    add_rows(call, &k, valid, &sums);
    ref_store(&call->out[0], at, k.n, sums.d);
    ref_store(&call->out[0], c + at, k.n, sums.dh);
  }
}

static void ref_batchnorm_bwd_joined(const brim_op_call *call) {
  int64_t c = call->in[1].dim[3], valid = valid_pixels(&call->in[1], &call->in[8]);
  double total;
  bwd_sums sums;
  chunk k;
  ref_load(&call->in[7], 0, 1, &total);
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    load_channels(call, at, &k);
    ref_load(&call->in[6], at, k.n, sums.d);
    ref_load(&call->in[6], c + at, k.n, sums.dh);
    bwd_rows(call, &k, valid, &sums, total);
  }
}

//---------------------------------- pooling, positions, concatenation ----------------------------------

// Finds the maximum of the window of output (p, q), for one chunk of channels.
static void pool_window(const brim_op_call *call, int64_t image, int64_t p, int64_t q, int64_t at) {
  const brim_tensor *x = &call->in[0], *y = &call->out[0];
  int64_t window = call->attr.window, stride = call->attr.stride, pad = call->attr.pad;
  int64_t c = x->dim[3], n = ref_min(REF_CHUNK, c - at);
  double best[REF_CHUNK], place[REF_CHUNK], v[REF_CHUNK];
  bool first = true;
  for (int64_t r = 0; r < window; r++) {
    int64_t h = p * stride - pad + r;
    if (h < 0 || h >= x->dim[1]) continue;
    for (int64_t s = 0; s < window; s++) {
      int64_t w = q * stride - pad + s;
      if (w < 0 || w >= x->dim[2]) continue;
      ref_load(x, ((image * x->dim[1] + h) * x->dim[2] + w) * c + at, n, v);
      for (int64_t i = 0; i < n; i++) {
        if (!first && !(v[i] > best[i]) && !isnan(v[i])) continue;
        best[i] = v[i];
        place[i] = (double)(r * window + s);
      }
      first = false;
    }
  }
  int64_t to = ((image * y->dim[1] + p) * y->dim[2] + q) * c + at;
  ref_store(y, to, n, best);
  ref_store(&call->out[1], to, n, place);
}

static void ref_maxpool(const brim_op_call *call) {
  const brim_tensor *y = &call->out[0];
  for (int64_t image = 0; image < y->dim[0]; image++) {
    for (int64_t p = 0; p < y->dim[1]; p++) {
      for (int64_t q = 0; q < y->dim[2]; q++) {
        for (int64_t at = 0; at < y->dim[3]; at += REF_CHUNK) pool_window(call, image, p, q, at);
      }
    }
  }
}

// Sums the gradient of pixel (h, w) over the windows whose maximum it was.
static void pool_pixel(const brim_op_call *call, int64_t image, int64_t h, int64_t w, int64_t at) {
  const brim_tensor *dy = &call->in[0], *dx = &call->out[0];
  int64_t window = call->attr.window, stride = call->attr.stride, pad = call->attr.pad;
  int64_t c = dx->dim[3], n = ref_min(REF_CHUNK, c - at);
  double sum[REF_CHUNK] = {0}, d[REF_CHUNK], place[REF_CHUNK];
  for (int64_t r = 0; r < window; r++) {
    int64_t above = h + pad - r;  // p * stride
    if (above < 0 || above % stride != 0 || above / stride >= dy->dim[1]) continue;
    for (int64_t s = 0; s < window; s++) {
      int64_t left = w + pad - s;
      if (left < 0 || left % stride != 0 || left / stride >= dy->dim[2]) continue;
      int64_t from = ((image * dy->dim[1] + above / stride) * dy->dim[2] + left / stride) * c + at;
      ref_load(dy, from, n, d);
      ref_load(&call->in[1], from, n, place);
      for (int64_t i = 0; i < n; i++) {
        if (place[i] == (double)(r * window + s)) sum[i] += d[i];
      }
    }
  }
  ref_store(dx, ((image * dx->dim[1] + h) * dx->dim[2] + w) * c + at, n, sum);
}

static void ref_maxpool_bwd(const brim_op_call *call) {
  const brim_tensor *dx = &call->out[0];
  for (int64_t image = 0; image < dx->dim[0]; image++) {
    for (int64_t h = 0; h < dx->dim[1]; h++) {
      for (int64_t w = 0; w < dx->dim[2]; w++) {
        for (int64_t at = 0; at < dx->dim[3]; at += REF_CHUNK) pool_pixel(call, image, h, w, at);
      }
    }
  }
}

//---------------------------------- mean, positions ----------------------------------

static void ref_mean(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0];
  int64_t rows = x->dim[0], c = ref_columns(x), places = brim_tensor_count(x) / rows / c;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t at = 0; at < c; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, c - at);
      double v[REF_CHUNK], sum[REF_CHUNK] = {0};
      for (int64_t k = 0; k < places; k++) {
        ref_load(x, (row * places + k) * c + at, n, v);
        for (int64_t i = 0; i < n; i++) sum[i] += v[i];
      }
      for (int64_t i = 0; i < n; i++) sum[i] /= (double)places;
      ref_store(&call->out[0], row * c + at, n, sum);
    }
  }
}

static void ref_mean_bwd(const brim_op_call *call) {
  const brim_tensor *dx = &call->out[0];
  int64_t rows = dx->dim[0], c = ref_columns(dx), places = brim_tensor_count(dx) / rows / c;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t at = 0; at < c; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, c - at);
      double v[REF_CHUNK];
      ref_load(&call->in[0], row * c + at, n, v);
      for (int64_t i = 0; i < n; i++) v[i] /= (double)places;
      for (int64_t k = 0; k < places; k++) ref_store(dx, (row * places + k) * c + at, n, v);
    }
  }
}

static void ref_pos(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0];
  int64_t rows = x->dim[0], one = x->dim[1] * x->dim[2];
  double v[REF_CHUNK], p[REF_CHUNK];
  for (int64_t at = 0; at < one; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, one - at);
    ref_load(&call->in[1], at, n, p);
    for (int64_t row = 0; row < rows; row++) {
      ref_load(x, row * one + at, n, v);
      for (int64_t i = 0; i < n; i++) v[i] += p[i];
      ref_store(&call->out[0], row * one + at, n, v);
    }
  }
}

static void ref_pos_bwd(const brim_op_call *call) {
  const brim_tensor *dy = &call->in[0], *dp = &call->out[0];
  int64_t rows = dy->dim[0], one = dy->dim[1] * dy->dim[2];
  for (int64_t at = 0; at < one; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, one - at);
    double v[REF_CHUNK], sum[REF_CHUNK] = {0};
    if (call->attr.accumulate) ref_load(dp, at, n, sum);
    for (int64_t row = 0; row < rows; row++) {
      ref_load(dy, row * one + at, n, v);
      for (int64_t i = 0; i < n; i++) sum[i] += v[i];
    }
    ref_store(dp, at, n, sum);
  }
}

//---------------------------------- side by side ----------------------------------

// Copies `columns` columns, from column first_from of `from` to column first_to of `to`.
static void copy_columns(const brim_tensor *from, int64_t first_from, const brim_tensor *to,
                         int64_t first_to, int64_t columns) {
  int64_t rows = to->dim[0];
  double v[REF_CHUNK];
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t at = 0; at < columns; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, columns - at);
      ref_load(from, row * from->dim[1] + first_from + at, n, v);
      ref_store(to, row * to->dim[1] + first_to + at, n, v);
    }
  }
}

static void ref_concat(const brim_op_call *call) {
  const brim_tensor *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
  copy_columns(a, 0, y, 0, a->dim[1]);
  copy_columns(b, 0, y, a->dim[1], b->dim[1]);
}

static void ref_concat_bwd(const brim_op_call *call) {
  const brim_tensor *dy = &call->in[0], *da = &call->out[0], *db = &call->out[1];
  copy_columns(dy, 0, da, 0, da->dim[1]);
  copy_columns(dy, da->dim[1], db, 0, db->dim[1]);
}

//---------------------------------- attention ----------------------------------

// Computes one head of one sequence at a time. The score matrix is never kept: its rows are computed again
// where they are needed. The workspace holds queries, keys and values of the head as doubles.

typedef struct head {
  int64_t n, l, c, a, d;  // sequences, tokens, channels, heads, channels of a head
  double scale;           // 1 / sqrt(d)
} head;

static head head_of(const brim_op_call *call) {
  const brim_tensor *y = call->op == BRIM_OP_ATTENTION ? &call->out[0] : &call->in[2];
  head h = {.n = y->dim[0], .l = y->dim[1], .c = y->dim[2], .a = call->attr.heads};
  h.d = h.c / h.a;
  h.scale = 1 / sqrt((double)h.d);
  return h;
}

// Blocks of (L, D) in the workspace; one row of scores follows them.
enum { Q, K, V, Y, DY, DQ, DK, DV, BLOCKS };

static size_t ref_attention_workspace(const brim_op_call *call) {
  head h = head_of(call);
  return (size_t)(BLOCKS * h.l * h.d + h.l) * sizeof(double);
}

static double *block(const brim_op_call *call, const head *h, int index) {
  return (double *)call->workspace + index * h->l * h->d;
}

// Index of the first column of a head in a row of sequence n. `third` is 0, 1 or 2 for q, k or v of qkv, and
// 0 for a tensor of C columns.
static int64_t column(const brim_tensor *t, const head *h, int64_t n, int64_t row, int64_t a,
                      int third) {
  return (n * h->l + row) * t->dim[2] + third * h->c + a * h->d;
}

static void load_block(const brim_tensor *t, const head *h, int64_t n, int64_t a, int third,
                       double *out) {
  for (int64_t i = 0; i < h->l; i++) {
    ref_load(t, column(t, h, n, i, a, third), h->d, out + i * h->d);
  }
}

static void store_block(const brim_tensor *t, const head *h, int64_t n, int64_t a, int third,
                        const double *in) {
  for (int64_t i = 0; i < h->l; i++) {
    ref_store(t, column(t, h, n, i, a, third), h->d, in + i * h->d);
  }
}

static double dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

// Computes row i of the scaled scores.
static void score_row(const head *h, const double *q, const double *k, int64_t i, double *s) {
  for (int64_t j = 0; j < h->l; j++) s[j] = dot(q + i * h->d, k + j * h->d, h->d) * h->scale;
}

static void forward_head(const brim_op_call *call, const head *h, int64_t n, int64_t a) {
  double *q = block(call, h, Q), *k = block(call, h, K), *v = block(call, h, V);
  double *y = block(call, h, Y), *s = block(call, h, BLOCKS);
  load_block(&call->in[0], h, n, a, 0, q);
  load_block(&call->in[0], h, n, a, 1, k);
  load_block(&call->in[0], h, n, a, 2, v);
  memset(y, 0, (size_t)(h->l * h->d) * sizeof(double));
  for (int64_t i = 0; i < h->l; i++) {
    score_row(h, q, k, i, s);
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < h->l; j++) max = s[j] > max ? s[j] : max;
    for (int64_t j = 0; j < h->l; j++) sum += exp(s[j] - max);
    double lse = max + log(sum);
    for (int64_t j = 0; j < h->l; j++) {
      double p = exp(s[j] - lse);
      for (int64_t c = 0; c < h->d; c++) y[i * h->d + c] += p * v[j * h->d + c];
    }
    ref_store(&call->out[1], (n * h->a + a) * h->l + i, 1, &lse);
  }
  store_block(&call->out[0], h, n, a, 0, y);
}

static void ref_attention(const brim_op_call *call) {
  head h = head_of(call);
  for (int64_t n = 0; n < h.n; n++) {
    for (int64_t a = 0; a < h.a; a++) forward_head(call, &h, n, a);
  }
}

// Adds one query's part: ds = p (dp - dy . y), then dq, dk, dv.
static void backward_row(const brim_op_call *call, const head *h, int64_t i, double lse) {
  const double *q = block(call, h, Q), *k = block(call, h, K), *v = block(call, h, V);
  const double *y = block(call, h, Y) + i * h->d, *dy = block(call, h, DY) + i * h->d;
  double *dq = block(call, h, DQ) + i * h->d, *dk = block(call, h, DK), *dv = block(call, h, DV);
  double *s = block(call, h, BLOCKS), along = dot(dy, y, h->d);
  score_row(h, q, k, i, s);
  for (int64_t j = 0; j < h->l; j++) {
    double p = exp(s[j] - lse);
    double ds = p * (dot(dy, v + j * h->d, h->d) - along) * h->scale;
    for (int64_t c = 0; c < h->d; c++) {
      dv[j * h->d + c] += p * dy[c];
      dq[c] += ds * k[j * h->d + c];
      dk[j * h->d + c] += ds * q[i * h->d + c];
    }
  }
}

static void ref_attention_bwd(const brim_op_call *call) {
  const brim_tensor *dy = &call->in[0], *qkv = &call->in[1], *y = &call->in[2];
  head h = head_of(call);
  for (int64_t at = 0; at < h.n * h.a; at++) {
    int64_t n = at / h.a, a = at % h.a;
    for (int third = 0; third < 3; third++) {
      load_block(qkv, &h, n, a, third, block(call, &h, Q + third));
    }
    load_block(y, &h, n, a, 0, block(call, &h, Y));
    load_block(dy, &h, n, a, 0, block(call, &h, DY));
    memset(block(call, &h, DQ), 0, (size_t)(3 * h.l * h.d) * sizeof(double));
    for (int64_t i = 0; i < h.l; i++) {
      double lse;
      ref_load(&call->in[3], at * h.l + i, 1, &lse);
      backward_row(call, &h, i, lse);
    }
    for (int third = 0; third < 3; third++) {
      store_block(&call->out[0], &h, n, a, third, block(call, &h, DQ + third));
    }
  }
}

//---------------------------------- losses ----------------------------------

// Softmax cross-entropy, squared error and binary cross-entropy, each with its gradient. Padding rows
// (at and after state[ROWS]) are not counted and get a gradient of exactly 0. A row whose label is no class
// is counted as bad, and gets a gradient of 0 too.

static void ref_add_metrics(const brim_tensor *metrics, const double *sums) {
  double m[BRIM_METRIC_COUNT];
  ref_load(metrics, 0, BRIM_METRIC_COUNT, m);
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) m[i] += sums[i];
  ref_store(metrics, 0, BRIM_METRIC_COUNT, m);
}

static void ref_clear_row(const brim_tensor *t, int64_t row) {
  static const double zeros[REF_CHUNK];
  int64_t c = t->dim[1];
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    ref_store(t, row * c + at, ref_min(REF_CHUNK, c - at), zeros);
  }
}

static void ref_add_loss(double *sums, double loss, double correct) {
  sums[BRIM_METRIC_ROWS] += 1;
  if (isfinite(loss)) {
    sums[BRIM_METRIC_LOSS] += loss;
    sums[BRIM_METRIC_CORRECT] += correct;
  } else {
    sums[BRIM_METRIC_BAD] += 1;
  }
}

typedef struct softmax_row {
  double max, log_sum;  // log of the sum of exp(logit - max)
  double mean;          // mean of the logits, for smoothing
  double at_label;
  int64_t best;  // column of the largest logit, the first of equals
} softmax_row;

static softmax_row softmax(const brim_tensor *logits, int64_t row, int64_t label) {
  int64_t c = logits->dim[1];
  softmax_row r = {.max = -INFINITY};
  double v[REF_CHUNK], sum = 0;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, c - at);
    ref_load(logits, row * c + at, n, v);
    for (int64_t i = 0; i < n; i++) {
      if (v[i] > r.max) {
        r.max = v[i];
        r.best = at + i;
      }
      if (at + i == label) r.at_label = v[i];
      r.mean += v[i] / (double)c;
    }
  }
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, c - at);
    ref_load(logits, row * c + at, n, v);
    for (int64_t i = 0; i < n; i++) sum += exp(v[i] - r.max);
  }
  r.log_sum = log(sum);
  return r;
}

static void xent_gradient(const brim_op_call *call, int64_t row, int64_t label,
                          const softmax_row *r, double scale) {
  const brim_tensor *logits = &call->in[0];
  int64_t c = logits->dim[1];
  double smoothing = (double)call->attr.label_smoothing;
  double v[REF_CHUNK];
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, c - at);
    ref_load(logits, row * c + at, n, v);
    for (int64_t i = 0; i < n; i++) {
      double target = smoothing / (double)c + (at + i == label ? 1 - smoothing : 0);
      v[i] = (exp(v[i] - r->max - r->log_sum) - target) * scale;
    }
    ref_store(&call->out[1], row * c + at, n, v);
  }
}

static void ref_xent(const brim_op_call *call) {
  const brim_tensor *logits = &call->in[0], *gradient = ref_out(call, 1);
  const int32_t *labels = call->in[1].data;
  int64_t rows = logits->dim[0], c = logits->dim[1];
  double scale = ref_loss_scale(&call->in[2]);
  int64_t valid = ref_valid_rows(&call->in[2], rows);
  double sums[BRIM_METRIC_COUNT] = {0}, smoothing = (double)call->attr.label_smoothing;
  for (int64_t row = 0; row < valid; row++) {
    int64_t label = labels[row];
    if (label < 0 || label >= c) {
      ref_add_loss(sums, NAN, false);
      if (gradient) ref_clear_row(gradient, row);
      continue;
    }
    softmax_row r = softmax(logits, row, label);
    double at_target = (1 - smoothing) * r.at_label + (smoothing > 0 ? smoothing * r.mean : 0);
    ref_add_loss(sums, r.max + r.log_sum - at_target, r.best == label);
    if (gradient) xent_gradient(call, row, label, &r, scale);
  }
  for (int64_t row = valid; gradient && row < rows; row++) ref_clear_row(gradient, row);
  ref_add_metrics(&call->out[0], sums);
}

static void ref_mse(const brim_op_call *call) {
  const brim_tensor *pred = &call->in[0], *target = &call->in[1], *gradient = ref_out(call, 1);
  int64_t rows = pred->dim[0], c = pred->dim[1];
  int64_t valid = ref_valid_rows(&call->in[2], rows);
  double scale = ref_loss_scale(&call->in[2]) * 2 / (double)c;
  double sums[BRIM_METRIC_COUNT] = {0}, p[REF_CHUNK], t[REF_CHUNK];
  for (int64_t row = 0; row < valid; row++) {
    double loss = 0;
    for (int64_t at = 0; at < c; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, c - at);
      ref_load(pred, row * c + at, n, p);
      ref_load(target, row * c + at, n, t);
      for (int64_t i = 0; i < n; i++) {
        double error = p[i] - t[i];
        loss += error * error;
        p[i] = error * scale;
      }
      if (gradient) ref_store(gradient, row * c + at, n, p);
    }
    ref_add_loss(sums, loss / (double)c, false);
  }
  for (int64_t row = valid; gradient && row < rows; row++) ref_clear_row(gradient, row);
  ref_add_metrics(&call->out[0], sums);
}

static void ref_bce(const brim_op_call *call) {
  const brim_tensor *logits = &call->in[0], *target = &call->in[1], *gradient = ref_out(call, 1);
  int64_t rows = logits->dim[0], c = logits->dim[1];
  int64_t valid = ref_valid_rows(&call->in[2], rows);
  double scale = ref_loss_scale(&call->in[2]) / (double)c;
  double sums[BRIM_METRIC_COUNT] = {0}, z[REF_CHUNK], t[REF_CHUNK];
  for (int64_t row = 0; row < valid; row++) {
    double loss = 0, correct = 0;
    for (int64_t at = 0; at < c; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, c - at);
      ref_load(logits, row * c + at, n, z);
      ref_load(target, row * c + at, n, t);
      for (int64_t i = 0; i < n; i++) {
        loss += fmax(z[i], 0) - z[i] * t[i] + log1p(exp(-fabs(z[i])));
        correct += (z[i] > 0) == (t[i] > 0.5);
        z[i] = (1 / (1 + exp(-z[i])) - t[i]) * scale;
      }
      if (gradient) ref_store(gradient, row * c + at, n, z);
    }
    ref_add_loss(sums, loss / (double)c, correct / (double)c);
  }
  for (int64_t row = valid; gradient && row < rows; row++) ref_clear_row(gradient, row);
  ref_add_metrics(&call->out[0], sums);
}

//---------------------------------- NT-Xent ----------------------------------

// Chen et al. 2020: for every row the softmax cross-entropy of its cosine similarities with all other
// rows, with the gradient. The label is the other view of the row's sample. Padding rows are left out.

typedef struct views {
  int64_t half, d, samples;    // rows i and i + half are two views of one sample
  double inverse_temperature;  // 1 / temperature
  double *unit;                // (N, D) rows of length 1
  double *length;              // (N) lengths of the rows of z
  double *lse;                 // (N) log of the sum of exp of the similarities
  double *unit_gradient;       // (D) gradient of one unit row
} views;

static size_t ref_ntxent_workspace(const brim_op_call *call) {
  int64_t n = call->in[0].dim[0], d = call->in[0].dim[1];
  return (size_t)(n * d + 2 * n + d) * sizeof(double);
}

static views views_of(const brim_op_call *call) {
  int64_t n = call->in[0].dim[0], d = call->in[0].dim[1];
  double *base = call->workspace;
  return (views){.half = n / 2,
                 .d = d,
                 .samples = ref_valid(&call->in[1], BRIM_STATE_SAMPLES, n / 2),
                 .inverse_temperature = 1 / (double)call->attr.temperature,
                 .unit = base,
                 .length = base + n * d,
                 .lse = base + n * d + n,
                 .unit_gradient = base + n * d + 2 * n};
}

// The k-th of the 2 * samples rows that are not padding.
static int64_t row_of(const views *v, int64_t k) {
  return k < v->samples ? k : v->half + k - v->samples;
}

static int64_t pair_of(const views *v, int64_t row) {
  return row < v->half ? row + v->half : row - v->half;
}

static double similarity(const views *v, int64_t i, int64_t j) {
  const double *a = v->unit + i * v->d, *b = v->unit + j * v->d;
  double sum = 0;
  for (int64_t c = 0; c < v->d; c++) sum += a[c] * b[c];
  return sum * v->inverse_temperature;
}

static void normalise(const brim_op_call *call, const views *v) {
  for (int64_t k = 0; k < 2 * v->samples; k++) {
    int64_t row = row_of(v, k);
    double *u = v->unit + row * v->d, squares = 0;
    ref_load(&call->in[0], row * v->d, v->d, u);
    for (int64_t c = 0; c < v->d; c++) squares += u[c] * u[c];
    // A row of zeros stays 0, and a NaN stays a NaN.
    double length = sqrt(squares);
    v->length[row] = length < 1e-12 ? 1e-12 : length;
    for (int64_t c = 0; c < v->d; c++) u[c] /= v->length[row];
  }
}

// Returns the loss of one row. Stores its lse; *best is its arg max.
static double row_loss(const views *v, int64_t i, int64_t *best) {
  double max = -INFINITY, sum = 0, at_pair = 0;
  int64_t pair = pair_of(v, i);
  *best = -1;
  for (int64_t k = 0; k < 2 * v->samples; k++) {
    int64_t j = row_of(v, k);
    if (j == i) continue;
    double s = similarity(v, i, j);
    if (j == pair) at_pair = s;
    if (s > max) {
      max = s;
      *best = j;
    }
  }
  for (int64_t k = 0; k < 2 * v->samples; k++) {
    int64_t j = row_of(v, k);
    if (j != i) sum += exp(similarity(v, i, j) - max);
  }
  v->lse[i] = max + log(sum);
  return v->lse[i] - at_pair;
}

// Row i gets gradients from its own softmax and from those of all other rows. The part along the row
// vanishes, as rows are divided by their length.
static void row_gradient(const brim_op_call *call, const views *v, int64_t i, double scale) {
  int64_t pair = pair_of(v, i);
  const double *u = v->unit + i * v->d;
  double *g = v->unit_gradient, along = 0;
  memset(g, 0, (size_t)v->d * sizeof(double));
  for (int64_t k = 0; k < 2 * v->samples; k++) {
    int64_t j = row_of(v, k);
    if (j == i) continue;
    double s = similarity(v, i, j);
    double weight = exp(s - v->lse[i]) + exp(s - v->lse[j]) - (j == pair ? 2 : 0);
    for (int64_t c = 0; c < v->d; c++) g[c] += weight * v->unit[j * v->d + c];
  }
  for (int64_t c = 0; c < v->d; c++) along += g[c] * u[c];
  // A sample's loss is the mean of the losses of two rows.
  double factor = scale * 0.5 * v->inverse_temperature / v->length[i];
  for (int64_t c = 0; c < v->d; c++) g[c] = (g[c] - along * u[c]) * factor;
  ref_store(&call->out[1], i * v->d, v->d, g);
}

static void ref_ntxent(const brim_op_call *call) {
  const brim_tensor *gradient = ref_out(call, 1);
  views v = views_of(call);
  double sums[BRIM_METRIC_COUNT] = {0};
  normalise(call, &v);
  for (int64_t i = 0; i < v.samples; i++) {
    int64_t best, other;
    double first = row_loss(&v, i, &best), second = row_loss(&v, i + v.half, &other);
    ref_add_loss(sums, 0.5 * (first + second), best == i + v.half);
  }
  for (int64_t i = 0; gradient && i < v.half; i++) {
    for (int64_t row = i; row < 2 * v.half; row += v.half) {
      if (i < v.samples) {
        row_gradient(call, &v, row, ref_loss_scale(&call->in[1]));
      } else {
        ref_clear_row(gradient, row);
      }
    }
  }
  ref_add_metrics(&call->out[0], sums);
}

//---------------------------------- nearest neighbours ----------------------------------

static size_t ref_unit_workspace(const brim_op_call *call) {
  return (size_t)call->in[0].dim[1] * sizeof(double);
}

static void ref_unit(const brim_op_call *call) {
  int64_t n = call->in[0].dim[0], d = call->in[0].dim[1];
  double *row = call->workspace;
  for (int64_t i = 0; i < n; i++) {
    double squares = 0;
    ref_load(&call->in[0], i * d, d, row);
    for (int64_t c = 0; c < d; c++) squares += row[c] * row[c];
    double length = sqrt(squares);
    if (length < 1e-12) length = 1e-12;
    for (int64_t c = 0; c < d; c++) row[c] /= length;
    ref_store(&call->out[0], i * d, d, row);
  }
}

typedef struct neighbour {
  double s;
  int64_t index;
} neighbour;

static size_t neighbour_bytes(const brim_op_call *call) {
  return (size_t)call->in[0].dim[1] * (sizeof(neighbour) + sizeof(double));
}

// Workspace: neighbours and similarities of a row, then a sum for each class.
static size_t ref_knn_workspace(const brim_op_call *call) {
  return neighbour_bytes(call) + (size_t)call->attr.classes * sizeof(int64_t);
}

static int nearer(const void *a, const void *b) {
  const neighbour *x = a, *y = b;
  if (x->s != y->s) return x->s > y->s ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

// The class with the largest vote, or -1 if the row has no neighbours.
static int32_t vote(const brim_op_call *call, int64_t row, neighbour *neighbours, double *s,
                    int64_t *votes) {
  const brim_op_attr *a = &call->attr;
  const int32_t *labels = call->in[1].data;
  int64_t m = call->in[0].dim[1], count = 0;
  ref_load(&call->in[0], row * m, m, s);
  for (int64_t i = 0; i < m; i++) {
    if (!isnan(s[i])) neighbours[count++] = (neighbour){s[i], i};
  }
  if (count == 0) return -1;
  qsort(neighbours, (size_t)count, sizeof *neighbours, nearer);
  memset(votes, 0, (size_t)a->classes * sizeof *votes);
  for (int64_t i = 0; i < ref_min(count, a->neighbours); i++) {
    int32_t label = labels[neighbours[i].index];
    if (label < 0 || label >= a->classes) continue;
    double weight = neighbours[i].s == neighbours[0].s
                        ? 1
                        : exp((neighbours[i].s - neighbours[0].s) / (double)a->temperature);
    votes[label] += (int64_t)(weight * 0x1p40 + 0.5);
  }
  int32_t best = 0;
  for (int32_t c = 1; c < a->classes; c++) {
    if (votes[c] > votes[best]) best = c;
  }
  return best;
}

static void ref_knn(const brim_op_call *call) {
  int64_t n = call->in[0].dim[0], m = call->in[0].dim[1];
  int64_t valid = ref_valid_rows(&call->in[3], n);
  neighbour *neighbours = call->workspace;
  double *s = (double *)(neighbours + m);
  int64_t *votes = (int64_t *)(s + m);
  const int32_t *truth = call->in[2].data;
  int32_t *guess = ref_out(call, 1) ? call->out[1].data : NULL;
  double sums[BRIM_METRIC_COUNT] = {0};
  for (int64_t i = 0; i < n; i++) {
    int32_t label = i < valid ? vote(call, i, neighbours, s, votes) : -1;
    if (guess) guess[i] = label;
    if (i >= valid) continue;
    bool known = truth[i] >= 0 && truth[i] < call->attr.classes;
    sums[BRIM_METRIC_ROWS]++;
    if (label < 0 || !known) {
      sums[BRIM_METRIC_BAD]++;
    } else if (label == truth[i]) {
      sums[BRIM_METRIC_CORRECT]++;
    }
  }
  ref_add_metrics(&call->out[0], sums);
}

//---------------------------------- the optimizer step ----------------------------------

// One step over all parameters: unscale, clip by the global norm, update, cast. The rules are
// PyTorch's (SGD with momentum and Nesterov, Adam, AdamW). A step with gradients that are not finite
// changes nothing. AVERAGE averages other values by the same rule. STEP_END records the norm and changes the
// loss scale.

typedef struct rule {
  const brim_op_attr *attr;
  double lr, scale;
  double correction1, correction2;  // Adam's 1 - beta^step
  double rate;  // how far the average moves: 1 - decay, or more in the first steps
} rule;

static void step_sgd(const rule *r, int64_t n, double *p, double *m, const double *grad) {
  double mu = (double)r->attr->momentum, decay = (double)r->attr->weight_decay;
  for (int64_t i = 0; i < n; i++) {
    double g = grad[i] * r->scale + decay * p[i];
    if (mu != 0) {
      m[i] = mu * m[i] + g;  // m is 0 in the first step, so m becomes g
      g = r->attr->nesterov ? g + mu * m[i] : m[i];
    }
    p[i] -= r->lr * g;
  }
}

static void step_adam(const rule *r, int64_t n, double *p, double *m, double *v,
                      const double *grad) {
  const brim_op_attr *a = r->attr;
  bool decoupled = a->optimizer == BRIM_OPTIMIZER_ADAMW;
  double b1 = (double)a->beta1, b2 = (double)a->beta2, decay = (double)a->weight_decay;
  for (int64_t i = 0; i < n; i++) {
    double g = grad[i] * r->scale;
    if (decoupled) {
      p[i] -= r->lr * decay * p[i];
    } else {
      g += decay * p[i];
    }
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * g * g;
    double denominator = sqrt(v[i] / r->correction2) + (double)a->eps;
    p[i] -= r->lr * (m[i] / r->correction1) / denominator;
  }
}

static double average_rate(const brim_op_call *call, const double *state) {
  return fmax((double)call->attr.average_rate, 9 / (state[BRIM_STATE_UPDATES] + 10));
}

static void ref_optimizer(const brim_op_call *call) {
  const double *state = call->in[0].data;
  double norm[2];
  ref_load(&call->in[1], 0, 2, norm);
  if (norm[1] > 0) return;
  double inverse = 1 / state[BRIM_STATE_LOSS_SCALE], clip = state[BRIM_STATE_CLIP];
  double length = sqrt(norm[0]) * inverse;
  rule r = {.attr = &call->attr, .lr = state[BRIM_STATE_LR], .scale = inverse};
  if (clip > 0 && length > clip) r.scale *= clip / (length + 1e-6);
  r.correction1 = 1 - pow((double)call->attr.beta1, state[BRIM_STATE_UPDATES] + 1);
  r.correction2 = 1 - pow((double)call->attr.beta2, state[BRIM_STATE_UPDATES] + 1);
  r.rate = average_rate(call, state);

  const brim_tensor *params = &call->out[0], *copy = ref_out(call, 3);
  const brim_tensor *average = ref_out(call, 4);
  bool sgd = call->attr.optimizer == BRIM_OPTIMIZER_SGD;
  bool with_m = !sgd || call->attr.momentum != 0;
  int64_t count = brim_tensor_count(params);
  double g[REF_CHUNK], p[REF_CHUNK], m[REF_CHUNK] = {0}, v[REF_CHUNK] = {0};
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[2], at, n, g);
    ref_load(params, at, n, p);
    if (with_m) ref_load(&call->out[1], at, n, m);
    if (!sgd) ref_load(&call->out[2], at, n, v);
    if (sgd) {
      step_sgd(&r, n, p, m, g);
    } else {
      step_adam(&r, n, p, m, v, g);
    }
    ref_store(params, at, n, p);
    if (with_m) ref_store(&call->out[1], at, n, m);
    if (!sgd) ref_store(&call->out[2], at, n, v);
    if (copy) ref_store(copy, at, n, p);
    if (!average) continue;
    ref_load(average, at, n, g);
    for (int64_t i = 0; i < n; i++) g[i] += r.rate * (p[i] - g[i]);
    ref_store(average, at, n, g);
  }
}

static void ref_average(const brim_op_call *call) {
  double norm[2], rate = average_rate(call, call->in[0].data);
  ref_load(&call->in[1], 0, 2, norm);
  if (norm[1] > 0) return;
  int64_t count = brim_tensor_count(&call->in[2]);
  double value[REF_CHUNK], average[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[2], at, n, value);
    ref_load(&call->out[0], at, n, average);
    for (int64_t i = 0; i < n; i++) average[i] += rate * (value[i] - average[i]);
    ref_store(&call->out[0], at, n, average);
  }
}

static void ref_step_end(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  double *state = call->out[0].data;
  const brim_tensor *ring = &call->out[1];
  double norm[2], scale = state[BRIM_STATE_LOSS_SCALE];
  ref_load(&call->in[0], 0, 2, norm);
  int64_t row = ((int64_t)state[BRIM_STATE_STEP] - 1) % ring->dim[0];
  double note[4] = {norm[0] / (scale * scale), norm[1], scale, 0};
  ref_store(ring, row * 4, 4, note);
  if (!(norm[1] > 0)) state[BRIM_STATE_UPDATES] += 1;
  if (!a->dynamic_scale) return;
  if (norm[1] > 0) {
    state[BRIM_STATE_LOSS_SCALE] = fmax(scale / 2, 1);
    state[BRIM_STATE_GOOD_STEPS] = 0;
  } else {
    state[BRIM_STATE_GOOD_STEPS] += 1;
    if (state[BRIM_STATE_GOOD_STEPS] >= a->growth_interval) {
      state[BRIM_STATE_LOSS_SCALE] = fmin(scale * 2, 16777216);
      state[BRIM_STATE_GOOD_STEPS] = 0;
    }
  }
}

//---------------------------------- the table ----------------------------------

static brim_status device_count(int *count) {
  *count = 1;
  return BRIM_OK;
}

static brim_status device_info(int index, brim_device_info *info) {
  if (index != 0) return brim_fail(BRIM_ENOENT, "ref has only device 0, not %d", index);
  *info = (brim_device_info){.kind = BRIM_DEVICE_CPU, .host_memory = true, .threads = 1};
  char cpu[96];
  brim_machine_cpu_name("", cpu, sizeof(cpu));
  snprintf(info->name, sizeof(info->name), "%s, 1 thread", cpu);
  snprintf(info->library, sizeof(info->library), "brim reference loops");
  brim_machine_free_memory("", &info->free_bytes, &info->total_bytes);
  return BRIM_OK;
}

// ref has no state: the address only shows that the device is open.
static const char the_device;

static brim_status device_open(int index, const brim_device_options *options, void **impl) {
  (void)options;
  if (index != 0) return brim_fail(BRIM_ENOENT, "ref has only device 0, not %d", index);
  *impl = (void *)(uintptr_t)&the_device;
  return BRIM_OK;
}

static void device_close(void *impl) { (void)impl; }

static brim_status device_memory(void *impl, uint64_t *free_bytes, uint64_t *total_bytes) {
  (void)impl;
  brim_machine_free_memory("", free_bytes, total_bytes);
  return BRIM_OK;
}

static brim_status buffer_alloc(void *impl, brim_buffer_kind kind, size_t bytes, void **ptr) {
  (void)impl;
  *ptr = brim_alloc_tagged(bytes, BRIM_MEM_PLANNED);
  if (*ptr) return BRIM_OK;
  char text[32];
  brim_format_bytes(bytes, text);
  return brim_fail(kind == BRIM_BUFFER_DEVICE ? BRIM_EOOM : BRIM_ENOMEM,
                   "ref: no memory for a buffer of %s", text);
}

static void buffer_free(void *impl, brim_buffer_kind kind, void *ptr) {
  (void)impl;
  (void)kind;
  brim_free(ptr);
}

static brim_status copy(void *impl, void *stream, void *dst, const void *src, size_t bytes,
                        brim_copy direction) {
  (void)impl;
  (void)stream;
  (void)direction;
  memmove(dst, src, bytes);
  return BRIM_OK;
}

static brim_status fill(void *impl, void *stream, void *dst, int byte, size_t bytes) {
  (void)impl;
  (void)stream;
  memset(dst, byte, bytes);
  return BRIM_OK;
}

//---------------------------------- ops ----------------------------------

// A kernel and its need for workspace; NULL = none.
typedef struct kernel {
  void (*run)(const brim_op_call *call);
  size_t (*workspace)(const brim_op_call *call);
} kernel;

static const kernel kernels[BRIM_OP_COUNT] = {
    [BRIM_OP_LINEAR] = {ref_linear, ref_linear_workspace},
    [BRIM_OP_LINEAR_BWD_DATA] = {ref_linear_bwd_data, ref_linear_workspace},
    [BRIM_OP_LINEAR_BWD_WEIGHT] = {ref_linear_bwd_weight, ref_linear_workspace},
    [BRIM_OP_CONV] = {ref_conv, ref_conv_workspace},
    [BRIM_OP_CONV_BWD_DATA] = {ref_conv_bwd_data, ref_conv_workspace},
    [BRIM_OP_CONV_BWD_WEIGHT] = {ref_conv_bwd_weight, ref_conv_workspace},
    [BRIM_OP_BATCHNORM] = {ref_batchnorm, NULL},
    [BRIM_OP_BATCHNORM_APPLY] = {ref_batchnorm_apply, NULL},
    [BRIM_OP_BATCHNORM_BWD] = {ref_batchnorm_bwd, NULL},
    [BRIM_OP_BATCHNORM_PART] = {ref_batchnorm_part, NULL},
    [BRIM_OP_BATCHNORM_JOIN] = {ref_batchnorm_join, NULL},
    [BRIM_OP_BATCHNORM_BWD_SUMS] = {ref_batchnorm_bwd_sums, NULL},
    [BRIM_OP_BATCHNORM_BWD_JOINED] = {ref_batchnorm_bwd_joined, NULL},
    [BRIM_OP_MAXPOOL] = {ref_maxpool, NULL},
    [BRIM_OP_MAXPOOL_BWD] = {ref_maxpool_bwd, NULL},
    [BRIM_OP_MEAN] = {ref_mean, NULL},
    [BRIM_OP_MEAN_BWD] = {ref_mean_bwd, NULL},
    [BRIM_OP_POS] = {ref_pos, NULL},
    [BRIM_OP_POS_BWD] = {ref_pos_bwd, NULL},
    [BRIM_OP_ATTENTION] = {ref_attention, ref_attention_workspace},
    [BRIM_OP_ATTENTION_BWD] = {ref_attention_bwd, ref_attention_workspace},
    [BRIM_OP_CONCAT] = {ref_concat, NULL},
    [BRIM_OP_CONCAT_BWD] = {ref_concat_bwd, NULL},
    [BRIM_OP_ACT] = {ref_act_fwd, NULL},
    [BRIM_OP_ACT_BWD] = {ref_act_bwd, NULL},
    [BRIM_OP_LAYERNORM] = {ref_layernorm, NULL},
    [BRIM_OP_LAYERNORM_BWD] = {ref_layernorm_bwd, NULL},
    [BRIM_OP_DROPOUT] = {ref_dropout, NULL},
    [BRIM_OP_ADD] = {ref_add, NULL},
    [BRIM_OP_CAST] = {ref_cast, NULL},
    [BRIM_OP_INPUT] = {ref_input, NULL},
    [BRIM_OP_XENT] = {ref_xent, NULL},
    [BRIM_OP_MSE] = {ref_mse, NULL},
    [BRIM_OP_BCE] = {ref_bce, NULL},
    [BRIM_OP_NTXENT] = {ref_ntxent, ref_ntxent_workspace},
    [BRIM_OP_UNIT] = {ref_unit, ref_unit_workspace},
    [BRIM_OP_KNN] = {ref_knn, ref_knn_workspace},
    [BRIM_OP_GRAD_NORM] = {ref_grad_norm, NULL},
    [BRIM_OP_OPTIMIZER] = {ref_optimizer, NULL},
    [BRIM_OP_AVERAGE] = {ref_average, NULL},
    [BRIM_OP_STEP_END] = {ref_step_end, NULL},
};

// ref has every float type, so it can run every call that passes brim_op_check.
static brim_status validate(void *impl, const brim_op_call *call) {
  (void)impl;
  return brim_op_check(call);
}

static brim_status prepare(void *impl, brim_op_call *call) {
  (void)impl;
  const kernel *k = &kernels[call->op];
  call->workspace_bytes = k->workspace ? k->workspace(call) : 0;
  return BRIM_OK;
}

static brim_status run(void *impl, void *stream, const brim_op_call *call) {
  (void)impl;
  (void)stream;
  const kernel *k = &kernels[call->op];
  if (k->workspace && !call->workspace) {
    return brim_fail(BRIM_ESTATE, "%s: no workspace; prepare the call first",
                     brim_op_name(call->op));
  }
  k->run(call);
  return BRIM_OK;
}

static const brim_op_row rows[] = {
#define X(id, name) {.op = BRIM_OP_##id, .validate = validate, .prepare = prepare, .run = run},
    BRIM_OP_MAP(X)
#undef X
};
_Static_assert(sizeof(rows) / sizeof(rows[0]) == BRIM_OP_BACKEND_COUNT, "ref has every op");
static const brim_op_family family = {rows, sizeof(rows) / sizeof(rows[0])};
static const brim_op_family *const families[] = {&family};

static const brim_backend table = {
    .abi = BRIM_BACKEND_ABI,
    .name = "ref",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_memory = device_memory,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .copy = copy,
    .fill = fill,
    .ops = families,
    .op_families = 1,
};

const brim_backend *brim_backend_ref(void) { return &table; }
