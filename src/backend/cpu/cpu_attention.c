// ATTENTION and its gradient: one (sample, head) at a time on one thread, all in f32 and in cache.
// Queries go in blocks of rows: a block's scores are a small product, a softmax over whole rows and
// another small product. The gradient recomputes the scores from lse. No two heads write to the same
// place, so the bits do not depend on the thread count.
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

enum { BLOCK_ROWS = 24 };

// clang does not vectorize a maximum that respects NaN, and warns when the pragma asks for it.
#if defined(__clang__)
#define SIMD_MAX
#else
#define SIMD_MAX _Pragma("omp simd reduction(max : max)")
#endif

typedef struct attention_arg {
  const void *qkv, *dy, *y;
  void *out;  // y, or dqkv
  float *lse;
  brim_dtype type;
  int64_t n, l, c, heads, d;
  int64_t l_pad, d_pad;
  float scale;
  bool backward;
  char *workspace;
  size_t thread_bytes;
} attention_arg;

// Matrices of one head. The transposed matrices are (d, l_pad), the others (l, d_pad). Forward uses q, k, v,
// k_transposed, p and dq.
typedef struct head {
  float *q, *k, *v;
  float *k_transposed, *v_transposed;
  float *dy, *dq, *dk, *dv;
  float *p, *dp;  // (BLOCK_ROWS, l_pad): probabilities and their gradient
  float *delta;   // (l)
} head;

static attention_arg shape_of(const brim_op_call *call) {
  const brim_tensor *qkv = &call->in[call->op == BRIM_OP_ATTENTION ? 0 : 1];
  attention_arg a = {.type = qkv->dtype,
                     .n = qkv->dim[0],
                     .l = qkv->dim[1],
                     .c = qkv->dim[2] / 3,
                     .heads = call->attr.heads,
                     .backward = call->op == BRIM_OP_ATTENTION_BWD};
  a.d = a.c / a.heads;
  a.l_pad = brim_cpu_round_up(a.l, BRIM_CPU_SMALL_COLS);
  a.d_pad = brim_cpu_round_up(a.d, BRIM_CPU_SMALL_COLS);
  a.scale = (float)(1.0 / sqrt((double)a.d));
  size_t wide = (size_t)(a.l * a.d_pad), transposed = (size_t)(a.d * a.l_pad);
  size_t block = (size_t)(BLOCK_ROWS * a.l_pad);
  size_t floats = a.backward ? 7 * wide + 2 * transposed + 2 * block + (size_t)a.l_pad
                             : 2 * wide + transposed + block + (size_t)(BLOCK_ROWS * a.d_pad);
  a.thread_bytes = brim_cpu_round64(floats * sizeof(float));
  return a;
}

static brim_status attention_prepare(void *impl, brim_op_call *call) {
  const brim_cpu_device *device = impl;
  attention_arg a = shape_of(call);
  call->workspace_bytes = a.thread_bytes * (size_t)device->threads;
  return BRIM_OK;
}

//---------------------------------- loading ----------------------------------

// Loads columns [col, col + d) of l rows that are `ld` apart, as f32, times `factor`.
BRIM_CPU_CLONES static void load_rows(const attention_arg *a, const void *data, int64_t at,
                                      int64_t ld, float factor, float *restrict to) {
  for (int64_t i = 0; i < a->l; i++, at += ld, to += a->d_pad) {
    if (a->type == BRIM_F32) {
      for (int64_t j = 0; j < a->d; j++) to[j] = brim_cpu_get(data, BRIM_F32, at + j) * factor;
    } else {
      for (int64_t j = 0; j < a->d; j++) to[j] = brim_cpu_get(data, BRIM_BF16, at + j) * factor;
    }
    for (int64_t j = a->d; j < a->d_pad; j++) to[j] = 0.0f;
  }
}

BRIM_CPU_CLONES static void store_rows(const attention_arg *a, const float *from, int64_t rows,
                                       int64_t at, int64_t ld) {
  for (int64_t i = 0; i < rows; i++, from += a->d_pad) {
    if (a->type == BRIM_F32) {
      memcpy((float *)a->out + at + i * ld, from, (size_t)a->d * sizeof *from);
    } else {
      brim_cpu_flush(a->out, a->type, at + i * ld, a->d, from);
    }
  }
}

BRIM_CPU_CLONES static void transpose(const attention_arg *a, const float *restrict from,
                                      float *restrict to) {
  for (int64_t j = 0; j < a->d; j++) {
    for (int64_t i = 0; i < a->l; i++) to[j * a->l_pad + i] = from[i * a->d_pad + j];
    for (int64_t i = a->l; i < a->l_pad; i++) to[j * a->l_pad + i] = 0.0f;
  }
}

static head lay_out(const attention_arg *a, int rank) {
  float *at = (float *)(void *)(a->workspace + (size_t)rank * a->thread_bytes);
  int64_t wide = a->l * a->d_pad, transposed = a->d * a->l_pad, block = BLOCK_ROWS * a->l_pad;
  head h = {.q = at, .v = at + wide, .k_transposed = at + 2 * wide};
  at += 2 * wide + transposed;
  h.p = at;
  at += block;
  // Forward needs k only transposed: k is loaded into the room of v and transposed before v is loaded.
  h.k = h.v;
  h.dq = at;  // forward: a block of results
  if (!a->backward) return h;
  h.k = at, h.dy = at + wide, h.dq = at + 2 * wide, h.dk = at + 3 * wide, h.dv = at + 4 * wide;
  at += 5 * wide;
  h.v_transposed = at;
  h.dp = at + transposed;
  h.delta = h.dp + block;
  return h;
}

//---------------------------------- forward ----------------------------------

// Turns scores (rows, l_pad) into weights e^(s - max) in place, and padding into 0. Also returns the sum and
// the maximum of the row. n is the number of keys.
BRIM_CPU_CLONES static void softmax_row(float *s, int64_t n, int64_t padded, float *max_out,
                                        float *sum_out) {
  float max = s[0], sum = 0;
  SIMD_MAX
  for (int64_t j = 0; j < n; j++) max = s[j] > max ? s[j] : max;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; j++) {
    float e = brim_cpu_exp_down(s[j] - max);
    s[j] = e;
    sum += e;
  }
  for (int64_t j = n; j < padded; j++) s[j] = 0.0f;
  *max_out = max;
  *sum_out = sum;
}

static brim_cpu_small product(int64_t m, int64_t n, int64_t k) {
  return (brim_cpu_small){.m = m, .n = n, .k = k, .a_step = 1};
}

static void forward_head(const attention_arg *a, int64_t sample, int64_t head_index, int rank) {
  head h = lay_out(a, rank);
  int64_t ld = 3 * a->c, first = sample * a->l * ld + head_index * a->d;
  load_rows(a, a->qkv, first + a->c, ld, 1.0f, h.k);
  transpose(a, h.k, h.k_transposed);
  load_rows(a, a->qkv, first, ld, a->scale, h.q);
  load_rows(a, a->qkv, first + 2 * a->c, ld, 1.0f, h.v);
  float *lse = a->lse + (sample * a->heads + head_index) * a->l;
  for (int64_t r = 0; r < a->l; r += BLOCK_ROWS) {
    int64_t rows = brim_cpu_min(BLOCK_ROWS, a->l - r);
    brim_cpu_small s = product(rows, a->l, a->d);
    s.a = h.q + r * a->d_pad, s.a_row = a->d_pad;
    s.b = h.k_transposed, s.b_ld = a->l_pad;
    s.c = h.p, s.c_ld = a->l_pad;
    brim_cpu_small_run(&s);
    float inverse[BLOCK_ROWS];
    for (int64_t i = 0; i < rows; i++) {
      float max, sum;
      softmax_row(h.p + i * a->l_pad, a->l, a->l_pad, &max, &sum);
      lse[r + i] = max + logf(sum);
      inverse[i] = 1.0f / sum;
    }
    brim_cpu_small o = product(rows, a->d, a->l);
    o.a = h.p, o.a_row = a->l_pad;
    o.b = h.v, o.b_ld = a->d_pad;
    o.c = h.dq, o.c_ld = a->d_pad;
    brim_cpu_small_run(&o);
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = 0; j < a->d_pad; j++) h.dq[i * a->d_pad + j] *= inverse[i];
    }
    store_rows(a, h.dq, rows, (sample * a->l + r) * a->c + head_index * a->d, a->c);
  }
}

//---------------------------------- backward ----------------------------------

// delta(i) = sum over the head's columns of dy * y.
BRIM_CPU_CLONES static void load_delta(const attention_arg *a, const head *h, int64_t at) {
  float wide[BRIM_CPU_BLOCK];
  for (int64_t i = 0; i < a->l; i++) {
    float total = 0;
    for (int64_t c = 0; c < a->d; c += BRIM_CPU_BLOCK) {
      int64_t n = brim_cpu_min(BRIM_CPU_BLOCK, a->d - c);
      const float *y = brim_cpu_read(a->y, a->type, at + i * a->c + c, n, wide);
      const float *dy = h->dy + i * a->d_pad + c;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; j++) sum += dy[j] * y[j];
      total += sum;
    }
    h->delta[i] = total;
  }
}

// Turns scores p into probabilities e^(s - lse), and dp into the gradient of the scaled scores.
BRIM_CPU_CLONES static void scores_row(float *restrict p, float *restrict dp, float lse,
                                       float delta, int64_t n, int64_t padded) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    float e = brim_cpu_exp(p[j] - lse);
    p[j] = e;
    dp[j] = e * (dp[j] - delta);
  }
  for (int64_t j = n; j < padded; j++) p[j] = dp[j] = 0.0f;
}

// Computes dq of queries [r, r + rows), and their part of dk and dv.
static void backward_block(const attention_arg *a, const head *h, const float *lse, int64_t r,
                           int64_t rows) {
  brim_cpu_small s = product(rows, a->l, a->d);
  s.a = h->q + r * a->d_pad, s.a_row = a->d_pad;
  s.b = h->k_transposed, s.b_ld = a->l_pad;
  s.c = h->p, s.c_ld = a->l_pad;
  brim_cpu_small_run(&s);
  s.a = h->dy + r * a->d_pad, s.b = h->v_transposed, s.c = h->dp;
  brim_cpu_small_run(&s);
  for (int64_t i = 0; i < rows; i++) {
    scores_row(h->p + i * a->l_pad, h->dp + i * a->l_pad, lse[r + i], h->delta[r + i], a->l,
               a->l_pad);
  }
  brim_cpu_small dq = product(rows, a->d, a->l);
  dq.a = h->dp, dq.a_row = a->l_pad;
  dq.b = h->k, dq.b_ld = a->d_pad;
  dq.c = h->dq + r * a->d_pad, dq.c_ld = a->d_pad;
  brim_cpu_small_run(&dq);
  // dv and dk are sums over the block's rows, so p and dp are read transposed.
  brim_cpu_small dv = product(a->l, a->d, rows);
  dv.a = h->p, dv.a_row = 1, dv.a_step = a->l_pad;
  dv.b = h->dy + r * a->d_pad, dv.b_ld = a->d_pad;
  dv.c = h->dv, dv.c_ld = a->d_pad, dv.add = r > 0;
  brim_cpu_small_run(&dv);
  dv.a = h->dp, dv.b = h->q + r * a->d_pad, dv.c = h->dk;
  brim_cpu_small_run(&dv);
}

static void backward_head(const attention_arg *a, int64_t sample, int64_t head_index, int rank) {
  head h = lay_out(a, rank);
  int64_t ld = 3 * a->c, first = sample * a->l * ld + head_index * a->d;
  int64_t y_at = sample * a->l * a->c + head_index * a->d;
  load_rows(a, a->qkv, first, ld, a->scale, h.q);
  load_rows(a, a->qkv, first + a->c, ld, 1.0f, h.k);
  load_rows(a, a->qkv, first + 2 * a->c, ld, 1.0f, h.v);
  load_rows(a, a->dy, y_at, a->c, 1.0f, h.dy);
  transpose(a, h.k, h.k_transposed);
  transpose(a, h.v, h.v_transposed);
  load_delta(a, &h, y_at);
  const float *lse = a->lse + (sample * a->heads + head_index) * a->l;
  for (int64_t r = 0; r < a->l; r += BLOCK_ROWS) {
    backward_block(a, &h, lse, r, brim_cpu_min(BLOCK_ROWS, a->l - r));
  }
  // q was scaled when it was loaded, so dk has the factor; dq does not have it yet.
  for (int64_t i = 0; i < a->l * a->d_pad; i++) h.dq[i] *= a->scale;
  store_rows(a, h.dq, a->l, first, ld);
  store_rows(a, h.dk, a->l, first + a->c, ld);
  store_rows(a, h.dv, a->l, first + 2 * a->c, ld);
}

static void attention_body(void *arg, int rank, int size) {
  const attention_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->n * a->heads, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    if (a->backward) {
      backward_head(a, i / a->heads, i % a->heads, rank);
    } else {
      forward_head(a, i / a->heads, i % a->heads, rank);
    }
  }
}

static brim_status run_heads(void *impl, attention_arg *a) {
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  double work = (double)(a->n * a->l) * (double)(a->l * a->c);
  brim_cpu_team_run(brim_cpu_team_for(device->threads, work, BRIM_CPU_TEAM_PRODUCTS),
                    attention_body, a);
  return BRIM_OK;
}

static brim_status attention_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  attention_arg a = shape_of(call);
  a.qkv = call->in[0].data;
  a.out = call->out[0].data;
  a.lse = call->out[1].data;
  a.workspace = call->workspace;
  return run_heads(impl, &a);
}

static brim_status attention_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  attention_arg a = shape_of(call);
  a.dy = call->in[0].data;
  a.qkv = call->in[1].data;
  a.y = call->in[2].data;
  a.lse = call->in[3].data;
  a.out = call->out[0].data;
  a.workspace = call->workspace;
  return run_heads(impl, &a);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_ATTENTION, brim_cpu_validate, attention_prepare, attention_run, NULL},
    {BRIM_OP_ATTENTION_BWD, brim_cpu_validate, attention_prepare, attention_bwd_run, NULL},
};

const brim_op_family brim_cpu_attention_ops = {rows, sizeof rows / sizeof *rows};
