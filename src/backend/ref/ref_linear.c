// The three linear ops over one matrix product: C(i,j) = sum over k of A(i,k) B(k,j), summed in
// double with k ascending, so the result does not depend on the blocking. Blocks of A and B are
// packed into doubles; what the ops do with a finished block of C differs.
#include "backend/ref/ref_int.h"

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
