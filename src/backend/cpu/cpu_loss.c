// XENT, MSE and BCE: per-row losses, their gradient, and the metrics. Rows beyond state[ROWS] are
// padding. Losses are summed in double, chunk by chunk in row order, for any thread count.
#include <math.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

enum { CHUNK_ROWS = 16 };

typedef struct loss_sums {
  double loss, correct, bad, unused;
} loss_sums;

typedef struct loss_arg {
  const void *x;  // (rows, cols): logits or predictions
  brim_dtype type;
  const int32_t *labels;
  const float *target;
  bool binary;  // BCE, else MSE
  void *dx;     // may be NULL
  int64_t rows, cols, valid;
  float smoothing, scale;
  loss_sums *chunks;
} loss_arg;

static int64_t block_size(int64_t i, int64_t end) {
  return end - i < BRIM_CPU_BLOCK ? end - i : BRIM_CPU_BLOCK;
}

static int64_t chunk_count(int64_t rows) { return (rows + CHUNK_ROWS - 1) / CHUNK_ROWS; }

static brim_status loss_prepare(void *impl, brim_op_call *call) {
  (void)impl;
  call->workspace_bytes = (size_t)chunk_count(brim_cpu_rows(&call->in[0])) * sizeof(loss_sums);
  return BRIM_OK;
}

static void zero_row(const loss_arg *a, int64_t row) {
  size_t size = a->type == BRIM_F32 ? 4 : 2;
  memset((char *)a->dx + (size_t)(row * a->cols) * size, 0, (size_t)a->cols * size);
}

// Adds a row's loss to the sums, or counts the row as bad.
static void add_row(loss_sums *sums, double loss, double correct) {
  if (isfinite(loss)) {
    sums->loss += loss;
    sums->correct += correct;
  } else {
    sums->bad += 1;
  }
}

//---------------------------------- cross-entropy ----------------------------------

static float value_at(const loss_arg *a, int64_t i) {
  return a->type == BRIM_F32 ? ((const float *)a->x)[i]
                             : brim_cpu_from_bf16(((const uint16_t *)a->x)[i]);
}

// Returns the largest value of a row; *arg_max is its first column.
BRIM_CPU_INLINE float row_max(const loss_arg *a, int64_t row, int64_t *arg_max) {
  float buffer[BRIM_CPU_BLOCK], best = -INFINITY;
  *arg_max = 0;
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = block_size(c, a->cols);
    const float *x = brim_cpu_read(a->x, a->type, row * a->cols + c, n, buffer);
    for (int64_t j = 0; j < n; j++) {
      if (x[j] > best) best = x[j], *arg_max = c + j;
    }
  }
  return best;
}

// Returns the sum of e^(x - max); *plain is the sum of x - max.
BRIM_CPU_INLINE double row_exp_sum(const loss_arg *a, int64_t row, float max, double *plain) {
  float buffer[BRIM_CPU_BLOCK];
  double total = 0, total_plain = 0;
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = block_size(c, a->cols);
    const float *x = brim_cpu_read(a->x, a->type, row * a->cols + c, n, buffer);
    float sum = 0, sum_plain = 0;
#pragma omp simd reduction(+ : sum, sum_plain)
    for (int64_t j = 0; j < n; j++) {
      sum += brim_cpu_exp(x[j] - max);
      sum_plain += x[j] - max;
    }
    total += (double)sum;
    total_plain += (double)sum_plain;
  }
  *plain = total_plain;
  return total;
}

BRIM_CPU_INLINE void row_gradient(const loss_arg *a, int64_t row, int64_t label, float max,
                                  float inverse) {
  float in[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  float rest = a->smoothing / (float)a->cols, hit = 1.0f - a->smoothing;
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = block_size(c, a->cols), at = row * a->cols + c;
    const float *x = brim_cpu_read(a->x, a->type, at, n, in);
    for (int64_t j = 0; j < n; j++) out[j] = brim_cpu_exp(x[j] - max) * inverse - rest;
    if (label >= c && label < c + n) out[label - c] -= hit;
    float *dx = brim_cpu_write(a->dx, a->type, at, out);
    for (int64_t j = 0; j < n; j++) dx[j] = out[j] * a->scale;
    brim_cpu_flush(a->dx, a->type, at, n, out);
  }
}

BRIM_CPU_INLINE void xent_row(const loss_arg *a, int64_t row, loss_sums *sums) {
  int64_t label = a->labels[row], arg_max;
  float max = row_max(a, row, &arg_max);
  bool known = label >= 0 && label < a->cols;
  double plain, sum = row_exp_sum(a, row, max, &plain), loss = NAN;
  if (known) {
    double s = (double)a->smoothing;
    loss = log(sum) - (1 - s) * ((double)value_at(a, row * a->cols + label) - (double)max) -
           (s > 0 ? s * plain / (double)a->cols : 0);
  }
  add_row(sums, loss, arg_max == label);
  if (!a->dx) return;
  if (known) {
    row_gradient(a, row, label, max, (float)(1.0 / sum));
  } else {
    zero_row(a, row);
  }
}

//---------------------------------- squared error ----------------------------------

BRIM_CPU_INLINE void mse_row(const loss_arg *a, int64_t row, loss_sums *sums) {
  float in[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  float factor = 2.0f * a->scale / (float)a->cols;
  double total = 0;
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = block_size(c, a->cols), at = row * a->cols + c;
    const float *x = brim_cpu_read(a->x, a->type, at, n, in), *t = a->target + at;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) sum += (x[j] - t[j]) * (x[j] - t[j]);
    total += (double)sum;
    if (!a->dx) continue;
    float *dx = brim_cpu_write(a->dx, a->type, at, out);
    for (int64_t j = 0; j < n; j++) dx[j] = (x[j] - t[j]) * factor;
    brim_cpu_flush(a->dx, a->type, at, n, out);
  }
  add_row(sums, total / (double)a->cols, false);
}

//---------------------------------- binary cross-entropy ----------------------------------

BRIM_CPU_INLINE void bce_row(const loss_arg *a, int64_t row, loss_sums *sums) {
  float in[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  float factor = a->scale / (float)a->cols;
  double total = 0, correct = 0;
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = block_size(c, a->cols), at = row * a->cols + c;
    const float *x = brim_cpu_read(a->x, a->type, at, n, in), *t = a->target + at;
    for (int64_t j = 0; j < n; j++) {
      float z = x[j];
      total += (double)((z > 0 ? z : 0) - z * t[j] + log1pf(expf(-fabsf(z))));
      correct += (z > 0) == (t[j] > 0.5f);
    }
    if (!a->dx) continue;
    float *dx = brim_cpu_write(a->dx, a->type, at, out);
    for (int64_t j = 0; j < n; j++) dx[j] = (1.0f / (1.0f + expf(-x[j])) - t[j]) * factor;
    brim_cpu_flush(a->dx, a->type, at, n, out);
  }
  add_row(sums, total / (double)a->cols, correct / (double)a->cols);
}

//---------------------------------- all ----------------------------------

BRIM_CPU_CLONES static void loss_body(void *arg, int rank, int size) {
  const loss_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(chunk_count(a->rows), 1, rank, size, &lo, &hi);
  for (int64_t chunk = lo; chunk < hi; chunk++) {
    loss_sums sums = {0};
    int64_t end = (chunk + 1) * CHUNK_ROWS < a->rows ? (chunk + 1) * CHUNK_ROWS : a->rows;
    for (int64_t r = chunk * CHUNK_ROWS; r < end; r++) {
      if (r >= a->valid) {
        if (a->dx) zero_row(a, r);
      } else if (a->labels) {
        xent_row(a, r, &sums);
      } else if (a->binary) {
        bce_row(a, r, &sums);
      } else {
        mse_row(a, r, &sums);
      }
    }
    a->chunks[chunk] = sums;
  }
}

static brim_status run_loss(void *impl, const brim_op_call *call, loss_arg *a) {
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  const double *state = call->in[2].data;
  const brim_tensor *dx = brim_cpu_out(call, 1);
  a->x = call->in[0].data;
  a->type = call->in[0].dtype;
  a->dx = dx ? dx->data : NULL;
  a->rows = brim_cpu_rows(&call->in[0]);
  a->cols = brim_cpu_cols(&call->in[0]);
  a->valid = brim_cpu_valid_rows(state, a->rows);
  a->scale = (float)(state[BRIM_STATE_GRAD_SCALE] * state[BRIM_STATE_LOSS_SCALE]);
  a->chunks = call->workspace;
  brim_cpu_team_run(
      brim_cpu_team_for(device->threads, (double)(a->rows * a->cols), BRIM_CPU_TEAM_EXPS),
      loss_body, a);
  loss_sums total = {0};
  for (int64_t i = 0; i < chunk_count(a->rows); i++) {
    total.loss += a->chunks[i].loss;
    total.correct += a->chunks[i].correct;
    total.bad += a->chunks[i].bad;
  }
  float *metrics = call->out[0].data;
  metrics[BRIM_METRIC_LOSS] += (float)total.loss;
  metrics[BRIM_METRIC_CORRECT] += (float)total.correct;
  metrics[BRIM_METRIC_ROWS] += (float)a->valid;
  metrics[BRIM_METRIC_BAD] += (float)total.bad;
  return BRIM_OK;
}

static brim_status xent_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  loss_arg a = {.labels = call->in[1].data, .smoothing = call->attr.label_smoothing};
  return run_loss(impl, call, &a);
}

static brim_status mse_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  loss_arg a = {.target = call->in[1].data};
  return run_loss(impl, call, &a);
}

static brim_status bce_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  loss_arg a = {.target = call->in[1].data, .binary = true};
  return run_loss(impl, call, &a);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_XENT, brim_cpu_validate, loss_prepare, xent_run, NULL},
    {BRIM_OP_MSE, brim_cpu_validate, loss_prepare, mse_run, NULL},
    {BRIM_OP_BCE, brim_cpu_validate, loss_prepare, bce_run, NULL},
};

const brim_op_family brim_cpu_loss_ops = {rows, sizeof rows / sizeof *rows};
