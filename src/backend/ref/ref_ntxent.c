// NT-Xent (Chen et al. 2020): for every row the softmax cross-entropy of its cosine similarities
// with all other rows, the other view of its sample being the label; with the gradient. Rows of
// padding are left out as if they were not there.
#include <math.h>

#include "backend/ref/ref_int.h"

typedef struct views {
  int64_t half, d, samples;  // rows i and i + half are one sample
  double over;               // 1 / temperature
  double *unit;              // (N, D) rows of length 1
  double *length;            // (N) of the rows before
  double *lse;               // (N) log of the sum of exp of the similarities
  double *push;              // (D) gradient of one unit row
} views;

size_t brim_ref_ntxent_workspace(const brim_op_call *call) {
  int64_t n = call->in[0].dim[0], d = call->in[0].dim[1];
  return (size_t)(n * d + 2 * n + d) * sizeof(double);
}

static views views_of(const brim_op_call *call) {
  int64_t n = call->in[0].dim[0], d = call->in[0].dim[1];
  double *base = call->workspace;
  return (views){.half = n / 2,
                 .d = d,
                 .samples = ref_valid(&call->in[1], BRIM_STATE_SAMPLES, n / 2),
                 .over = 1 / (double)call->attr.temperature,
                 .unit = base,
                 .length = base + n * d,
                 .lse = base + n * d + n,
                 .push = base + n * d + 2 * n};
}

// The k-th row that is not padding, of 2 * samples.
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
  return sum * v->over;
}

static void normalise(const brim_op_call *call, const views *v) {
  for (int64_t k = 0; k < 2 * v->samples; k++) {
    int64_t row = row_of(v, k);
    double *u = v->unit + row * v->d, squares = 0;
    ref_load(&call->in[0], row * v->d, v->d, u);
    for (int64_t c = 0; c < v->d; c++) squares += u[c] * u[c];
    // A row of zeros stays one, and not a number stays that.
    double length = sqrt(squares);
    v->length[row] = length < 1e-12 ? 1e-12 : length;
    for (int64_t c = 0; c < v->d; c++) u[c] /= v->length[row];
  }
}

// Loss of one row; notes its lse and its arg max.
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

// Row i is pulled by its own softmax and by those of all others, and the length takes no part.
static void row_gradient(const brim_op_call *call, const views *v, int64_t i, double scale) {
  int64_t pair = pair_of(v, i);
  const double *u = v->unit + i * v->d;
  double *g = v->push, along = 0;
  memset(g, 0, (size_t)v->d * sizeof(double));
  for (int64_t k = 0; k < 2 * v->samples; k++) {
    int64_t j = row_of(v, k);
    if (j == i) continue;
    double s = similarity(v, i, j);
    double weight = exp(s - v->lse[i]) + exp(s - v->lse[j]) - (j == pair ? 2 : 0);
    for (int64_t c = 0; c < v->d; c++) g[c] += weight * v->unit[j * v->d + c];
  }
  for (int64_t c = 0; c < v->d; c++) along += g[c] * u[c];
  double factor = scale * 0.5 * v->over / v->length[i];  // a sample's loss is the mean of two
  for (int64_t c = 0; c < v->d; c++) g[c] = (g[c] - along * u[c]) * factor;
  ref_store(&call->out[1], i * v->d, v->d, g);
}

void brim_ref_ntxent(const brim_op_call *call) {
  const brim_tensor *gradient = ref_out(call, 1);
  views v = views_of(call);
  double sums[BRIM_METRIC_COUNT] = {0};
  normalise(call, &v);
  for (int64_t i = 0; i < v.samples; i++) {
    int64_t best, other;
    double first = row_loss(&v, i, &best), second = row_loss(&v, i + v.half, &other);
    brim_ref_add_loss(sums, 0.5 * (first + second), best == i + v.half);
  }
  for (int64_t i = 0; gradient && i < v.half; i++) {
    for (int64_t row = i; row < 2 * v.half; row += v.half) {
      if (i < v.samples) {
        row_gradient(call, &v, row, ref_loss_scale(&call->in[1]));
      } else {
        brim_ref_clear_row(gradient, row);
      }
    }
  }
  brim_ref_add_metrics(&call->out[0], sums);
}
