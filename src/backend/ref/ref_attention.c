// Attention and its gradient, one head of one sequence at a time: the score matrix is never kept,
// its rows are made again where they are needed. Queries, keys and values of the head lie in the
// workspace as doubles.
#include <math.h>

#include "backend/ref/ref_int.h"

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

// Blocks of (L, D) in the workspace, then one row of scores.
enum { Q, K, V, Y, DY, DQ, DK, DV, BLOCKS };

size_t brim_ref_attention_workspace(const brim_op_call *call) {
  head h = head_of(call);
  return (size_t)(BLOCKS * h.l * h.d + h.l) * sizeof(double);
}

static double *block(const brim_op_call *call, const head *h, int index) {
  return (double *)call->workspace + index * h->l * h->d;
}

// A head's columns of sequence n: `third` is 0, 1, 2 of qkv, or 0 of a tensor of C columns.
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

// Row i of the scaled scores.
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

void brim_ref_attention(const brim_op_call *call) {
  head h = head_of(call);
  for (int64_t n = 0; n < h.n; n++) {
    for (int64_t a = 0; a < h.a; a++) forward_head(call, &h, n, a);
  }
}

// One query's share: ds = p (dp - dy . y), then dq, dk, dv.
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

void brim_ref_attention_bwd(const brim_op_call *call) {
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
