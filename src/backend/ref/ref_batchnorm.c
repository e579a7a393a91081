// Batch normalisation with its sum, its ReLU and its gradient, a chunk of channels at a time, whole or
// in parts of several ranks.
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

// Mean and sum of squared deviations from it over `rows` rows, in two passes.
static void moments(const brim_tensor *x, int64_t rows, chunk *k, double *squares) {
  int64_t c = x->dim[3];
  double v[REF_CHUNK], over = 1 / (double)(rows > 0 ? rows : 1);
  memset(k->mean, 0, sizeof(k->mean));
  memset(squares, 0, REF_CHUNK * sizeof(double));
  for (int64_t row = 0; row < rows; row++) {
    ref_load(x, row * c + k->at, k->n, v);
    for (int64_t i = 0; i < k->n; i++) k->mean[i] += v[i];
  }
  for (int64_t i = 0; i < k->n; i++) k->mean[i] *= over;
  for (int64_t row = 0; row < rows; row++) {
    ref_load(x, row * c + k->at, k->n, v);
    for (int64_t i = 0; i < k->n; i++) {
      squares[i] += (v[i] - k->mean[i]) * (v[i] - k->mean[i]);
    }
  }
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

// What mean and squares of `count` values say: mean and rstd go to outputs 0 and 1 from `first` on,
// rmean and rvar, where they are, to 3 and 4. The chunk gets mean and rstd as they were stored.
static void finish(const brim_op_call *call, int first, double count, const double *squares,
                   chunk *k) {
  const brim_tensor *mean = &call->out[first], *rstd = &call->out[first + 1];
  const brim_tensor *running_mean = ref_out(call, 3);
  double unbiased = count > 1 ? count / (count - 1) : 1, over = 1 / (count > 0 ? count : 1);
  double variance[REF_CHUNK];
  for (int64_t i = 0; i < k->n; i++) {
    k->rstd[i] = 1 / sqrt(squares[i] * over + (double)call->attr.eps);
    variance[i] = squares[i] * over * unbiased;
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

void brim_ref_batchnorm(const brim_op_call *call) {
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

//---------------------------------- parts ----------------------------------

void brim_ref_batchnorm_part(const brim_op_call *call) {
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

// One part joins those before it (Chan, Golub, LeVeque).
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

void brim_ref_batchnorm_join(const brim_op_call *call) {
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

// One row of a chunk: d = the gradient that passed the activation, h = norm(x).
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

// Sums of what passed, and of its products with norm(x), over the valid rows.
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

// dx = g rstd (d - mean(d) - h mean(d h)) with means over `count` values
static void bwd_rows(const brim_op_call *call, const chunk *k, int64_t valid, const bwd_sums *sums,
                     double count) {
  const brim_tensor *dx = &call->out[0];
  const brim_tensor *dz = ref_out(call, call->op == BRIM_OP_BATCHNORM_BWD ? 3 : 1);
  static const double zeros[REF_CHUNK];
  double d[REF_CHUNK], h[REF_CHUNK], over = 1 / (count > 0 ? count : 1);
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
      d[i] = k->gain[i] * k->rstd[i] * (d[i] - sums->d[i] * over - h[i] * sums->dh[i] * over);
    }
    ref_store(dx, row * c + k->at, k->n, d);
  }
}

static void load_channels(const brim_op_call *call, int64_t at, chunk *k) {
  load_gain(call, 2, at, ref_min(REF_CHUNK, call->in[1].dim[3] - at), k);
  ref_load(&call->in[4], at, k->n, k->mean);
  ref_load(&call->in[5], at, k->n, k->rstd);
}

void brim_ref_batchnorm_bwd(const brim_op_call *call) {
  int64_t c = call->in[1].dim[3], valid = valid_pixels(&call->in[1], &call->in[6]);
  bwd_sums sums;
  chunk k;
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    load_channels(call, at, &k);
    add_rows(call, &k, valid, &sums);
    bwd_rows(call, &k, valid, &sums, (double)valid);
  }
}

void brim_ref_batchnorm_bwd_sums(const brim_op_call *call) {
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

void brim_ref_batchnorm_bwd_joined(const brim_op_call *call) {
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
