// Rows of length 1, and the vote of a row's nearest neighbours.
#include <math.h>
#include <stdlib.h>

#include "backend/ref/ref_int.h"

size_t brim_ref_unit_workspace(const brim_op_call *call) {
  return (size_t)call->in[0].dim[1] * sizeof(double);
}

void brim_ref_unit(const brim_op_call *call) {
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

// Neighbours and similarities of a row, then a sum for each class.
size_t brim_ref_knn_workspace(const brim_op_call *call) {
  return neighbour_bytes(call) + (size_t)call->attr.classes * sizeof(int64_t);
}

static int nearer(const void *a, const void *b) {
  const neighbour *x = a, *y = b;
  if (x->s != y->s) return x->s > y->s ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

// The class with most, or -1 when there is no vote.
static int32_t vote(const brim_op_call *call, int64_t row, neighbour *near, double *s,
                    int64_t *votes) {
  const brim_op_attr *a = &call->attr;
  const int32_t *labels = call->in[1].data;
  int64_t m = call->in[0].dim[1], count = 0;
  ref_load(&call->in[0], row * m, m, s);
  for (int64_t i = 0; i < m; i++) {
    if (!isnan(s[i])) near[count++] = (neighbour){s[i], i};
  }
  if (count == 0) return -1;
  qsort(near, (size_t)count, sizeof *near, nearer);
  memset(votes, 0, (size_t)a->classes * sizeof *votes);
  for (int64_t i = 0; i < ref_min(count, a->neighbours); i++) {
    int32_t label = labels[near[i].index];
    if (label < 0 || label >= a->classes) continue;
    double weight =
        near[i].s == near[0].s ? 1 : exp((near[i].s - near[0].s) / (double)a->temperature);
    votes[label] += (int64_t)(weight * 0x1p40 + 0.5);
  }
  int32_t best = 0;
  for (int32_t c = 1; c < a->classes; c++) {
    if (votes[c] > votes[best]) best = c;
  }
  return best;
}

void brim_ref_knn(const brim_op_call *call) {
  int64_t n = call->in[0].dim[0], m = call->in[0].dim[1];
  int64_t valid = ref_valid_rows(&call->in[3], n);
  neighbour *near = call->workspace;
  double *s = (double *)(near + m);
  int64_t *votes = (int64_t *)(s + m);
  const int32_t *truth = call->in[2].data;
  int32_t *guess = ref_out(call, 1) ? call->out[1].data : NULL;
  double sums[BRIM_METRIC_COUNT] = {0};
  for (int64_t i = 0; i < n; i++) {
    int32_t label = i < valid ? vote(call, i, near, s, votes) : -1;
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
  brim_ref_add_metrics(&call->out[0], sums);
}
