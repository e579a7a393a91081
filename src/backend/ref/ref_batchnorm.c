// Batch normalisation with its sum, its ReLU and its gradient, a chunk of channels at a time.
// Statistics are over the rows that are not padding; all rows are normalised by them. The
// statistics are rounded to the type they are kept in before they are used, so that applying them
// later gives the same bits.
#include <math.h>

#include "backend/ref/ref_int.h"

// A chunk of channels with what normalises them.
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
      v[i] = brim_ref_act(call->attr.act, normalised(k, i, v[i]) + add[i]);
    }
    ref_store(&call->out[0], row * c + k->at, k->n, v);
  }
}

// Mean and biased variance over `rows` rows, in two passes.
static void moments(const brim_tensor *x, int64_t rows, chunk *k, double *variance) {
  int64_t c = x->dim[3];
  double v[REF_CHUNK], over = 1 / (double)(rows > 0 ? rows : 1);
  memset(k->mean, 0, sizeof(k->mean));
  memset(variance, 0, REF_CHUNK * sizeof(double));
  for (int64_t row = 0; row < rows; row++) {
    ref_load(x, row * c + k->at, k->n, v);
    for (int64_t i = 0; i < k->n; i++) k->mean[i] += v[i];
  }
  for (int64_t i = 0; i < k->n; i++) k->mean[i] *= over;
  for (int64_t row = 0; row < rows; row++) {
    ref_load(x, row * c + k->at, k->n, v);
    for (int64_t i = 0; i < k->n; i++) {
      variance[i] += (v[i] - k->mean[i]) * (v[i] - k->mean[i]);
    }
  }
  for (int64_t i = 0; i < k->n; i++) variance[i] *= over;
}

// `other` are the batch's other moments: one bad sample must not stay in either.
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

void brim_ref_batchnorm(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0], *running_mean = ref_out(call, 3);
  int64_t c = x->dim[3], rows = valid_pixels(x, &call->in[3]);
  double unbiased = rows > 1 ? (double)rows / (double)(rows - 1) : 1;
  double variance[REF_CHUNK];
  chunk k;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    load_gain(call, 1, at, ref_min(REF_CHUNK, c - at), &k);
    moments(x, rows, &k, variance);
    for (int64_t i = 0; i < k.n; i++) {
      k.rstd[i] = 1 / sqrt(variance[i] + (double)call->attr.eps);
      variance[i] *= unbiased;
    }
    if (running_mean && rows > 0) {
      move_towards(running_mean, &k, (double)call->attr.momentum, k.mean, variance);
      move_towards(&call->out[4], &k, (double)call->attr.momentum, variance, k.mean);
    }
    ref_store(&call->out[1], at, k.n, k.mean);
    ref_store(&call->out[2], at, k.n, k.rstd);
    ref_load(&call->out[1], at, k.n, k.mean);
    ref_load(&call->out[2], at, k.n, k.rstd);
    apply(call, &k, ref_in(call, 4));
  }
}

void brim_ref_batchnorm_apply(const brim_op_call *call) {
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

//---------------------------------- gradient ----------------------------------

// One row of a chunk: d = the gradient that passed the activation, h = norm(x).
static void bwd_row(const brim_op_call *call, const chunk *k, int64_t row, double *d, double *h) {
  const brim_tensor *y = ref_in(call, 7), *second = ref_in(call, 8);
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
      d[i] *= brim_ref_act_slope(BRIM_ACT_RELU, s);
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

// dx = g rstd (d - mean(d) - h mean(d h))
static void bwd_chunk(const brim_op_call *call, const chunk *k, int64_t valid) {
  const brim_tensor *dx = &call->out[0], *dz = ref_out(call, 3);
  static const double zeros[REF_CHUNK];
  double d[REF_CHUNK], h[REF_CHUNK], sum[REF_CHUNK] = {0}, sum_h[REF_CHUNK] = {0};
  int64_t c = dx->dim[3], rows = ref_rows(dx);
  for (int64_t row = 0; row < valid; row++) {
    bwd_row(call, k, row, d, h);
    for (int64_t i = 0; i < k->n; i++) {
      sum[i] += d[i];
      sum_h[i] += d[i] * h[i];
    }
  }
  store_sums(call, 1, k, sum_h);
  store_sums(call, 2, k, sum);
  double over = 1 / (double)(valid > 0 ? valid : 1);
  for (int64_t row = 0; row < rows; row++) {
    if (row >= valid) {
      ref_store(dx, row * c + k->at, k->n, zeros);
      if (dz) ref_store(dz, row * c + k->at, k->n, zeros);
      continue;
    }
    bwd_row(call, k, row, d, h);
    if (dz) ref_store(dz, row * c + k->at, k->n, d);
    for (int64_t i = 0; i < k->n; i++) {
      d[i] = k->gain[i] * k->rstd[i] * (d[i] - sum[i] * over - h[i] * sum_h[i] * over);
    }
    ref_store(dx, row * c + k->at, k->n, d);
  }
}

void brim_ref_batchnorm_bwd(const brim_op_call *call) {
  int64_t c = call->in[1].dim[3], valid = valid_pixels(&call->in[1], &call->in[6]);
  chunk k;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    load_gain(call, 2, at, ref_min(REF_CHUNK, c - at), &k);
    ref_load(&call->in[4], at, k.n, k.mean);
    ref_load(&call->in[5], at, k.n, k.rstd);
    bwd_chunk(call, &k, valid);
  }
}
