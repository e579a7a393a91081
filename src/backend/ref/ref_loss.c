// Losses: softmax cross-entropy, squared error and binary cross-entropy, each with its gradient. Padding rows (those at
// and after state[ROWS]) count nowhere and get a gradient of exactly 0; so does a row whose label
// is no class, which is counted as bad.
#include <math.h>

#include "backend/ref/ref_int.h"

void brim_ref_add_metrics(const brim_tensor *metrics, const double *sums) {
  double m[BRIM_METRIC_COUNT];
  ref_load(metrics, 0, BRIM_METRIC_COUNT, m);
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) m[i] += sums[i];
  ref_store(metrics, 0, BRIM_METRIC_COUNT, m);
}

void brim_ref_clear_row(const brim_tensor *t, int64_t row) {
  static const double zeros[REF_CHUNK];
  int64_t c = t->dim[1];
  for (int64_t at = 0; at < c; at += REF_CHUNK) {
    ref_store(t, row * c + at, ref_min(REF_CHUNK, c - at), zeros);
  }
}

void brim_ref_add_loss(double *sums, double loss, double correct) {
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
  double mean;          // of the logits, for smoothing
  double at_label;
  int64_t best;  // first of equals
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

void brim_ref_xent(const brim_op_call *call) {
  const brim_tensor *logits = &call->in[0], *gradient = ref_out(call, 1);
  const int32_t *labels = call->in[1].data;
  int64_t rows = logits->dim[0], c = logits->dim[1];
  double scale = ref_loss_scale(&call->in[2]);
  int64_t valid = ref_valid_rows(&call->in[2], rows);
  double sums[BRIM_METRIC_COUNT] = {0}, smoothing = (double)call->attr.label_smoothing;
  for (int64_t row = 0; row < valid; row++) {
    int64_t label = labels[row];
    if (label < 0 || label >= c) {
      brim_ref_add_loss(sums, NAN, false);
      if (gradient) brim_ref_clear_row(gradient, row);
      continue;
    }
    softmax_row r = softmax(logits, row, label);
    double at_target = (1 - smoothing) * r.at_label + (smoothing > 0 ? smoothing * r.mean : 0);
    brim_ref_add_loss(sums, r.max + r.log_sum - at_target, r.best == label);
    if (gradient) xent_gradient(call, row, label, &r, scale);
  }
  for (int64_t row = valid; gradient && row < rows; row++) brim_ref_clear_row(gradient, row);
  brim_ref_add_metrics(&call->out[0], sums);
}

void brim_ref_mse(const brim_op_call *call) {
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
    brim_ref_add_loss(sums, loss / (double)c, false);
  }
  for (int64_t row = valid; gradient && row < rows; row++) brim_ref_clear_row(gradient, row);
  brim_ref_add_metrics(&call->out[0], sums);
}

void brim_ref_bce(const brim_op_call *call) {
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
    brim_ref_add_loss(sums, loss / (double)c, correct / (double)c);
  }
  for (int64_t row = valid; gradient && row < rows; row++) brim_ref_clear_row(gradient, row);
  brim_ref_add_metrics(&call->out[0], sums);
}
