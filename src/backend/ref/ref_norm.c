// Layer normalisation with its gradient, and the norm of all gradients.
#include <math.h>

#include "backend/ref/ref_int.h"

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

void brim_ref_layernorm(const brim_op_call *call) {
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
static void bwd_row(const brim_op_call *call, int64_t row) {
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
      double over = 1 / (double)c;
      for (int64_t i = 0; i < n; i++) d[i] = rstd * (d[i] - sum * over - h[i] * sum_h * over);
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

void brim_ref_layernorm_bwd(const brim_op_call *call) {
  int64_t rows = ref_rows(&call->in[1]), c = ref_columns(&call->in[1]);
  // Parameters first: dx may lie where dy is.
  for (int64_t at = 0; at < c; at += REF_CHUNK) bwd_params(call, at, ref_min(REF_CHUNK, c - at));
  for (int64_t row = 0; row < rows; row++) bwd_row(call, row);
}

void brim_ref_grad_norm(const brim_op_call *call) {
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
