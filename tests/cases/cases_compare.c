// Compares two results of a case: norms of differences, and exact equality where rules are exact.
#include <math.h>
#include <stdio.h>

#include "cases/cases.h"

static double type_tolerance(brim_dtype type) {
  switch (type) {
    case BRIM_F64:
      return 1e-12;
    case BRIM_BF16:
      return 1e-2;
    case BRIM_F16:
      return 2e-3;
    default:
      return 1e-5;
  }
}

double brim_case_tolerance(const brim_case *c) {
  double tolerance = c->attr.tf32 && c->type == BRIM_F32 ? 3e-4 : type_tolerance(c->type);
  bool second = c->op == BRIM_OP_CAST && c->type2 != BRIM_DTYPE_COUNT;
  double other = second ? type_tolerance(c->type2) : 0;
  return other > tolerance ? other : tolerance;
}

// Rules of agreement between two values that are not finite.
typedef enum nonfinite_rule {
  NONE_EXPECTED,
  SAME_KIND,  // a NaN for a NaN, an infinity for the same
  ANY_KIND    // sums: an infinity may become a NaN, depending on the order
} nonfinite_rule;

static bool same_nonfinite(double got, double want, nonfinite_rule rule) {
  if (rule == ANY_KIND) return !isfinite(got) && !isfinite(want);
  return rule == SAME_KIND && isnan(got) && isnan(want);
}

static nonfinite_rule expected_nonfinite(const brim_case *c) {
  if (!c->nonfinite) return NONE_EXPECTED;
  switch (c->op) {
    case BRIM_OP_MAXPOOL:
      return SAME_KIND;
    case BRIM_OP_BATCHNORM_PART:
    case BRIM_OP_BATCHNORM_JOIN:
    case BRIM_OP_BATCHNORM_BWD_SUMS:
    case BRIM_OP_BATCHNORM_BWD_JOINED:
      return ANY_KIND;
    default:
      return NONE_EXPECTED;
  }
}

static double relative_norm(const double *got, const double *want, int64_t count,
                            nonfinite_rule rule) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < count; i++) {
    if (isfinite(want[i])) size += want[i] * want[i];
    if (got[i] == want[i] || same_nonfinite(got[i], want[i], rule)) continue;
    if (!isfinite(got[i]) || !isfinite(want[i])) return INFINITY;
    difference += (got[i] - want[i]) * (got[i] - want[i]);
  }
  if (difference == 0) return 0;
  return size > 0 ? sqrt(difference / size) : INFINITY;
}

// Counts are exact for every type; values that the op does not own stay unchanged. BCE adds shares of rows, in float.
static brim_status compare_metrics(const brim_case *c, const double *got, const double *want,
                                   double *error, char why[160]) {
  for (int i = 0; i < BRIM_METRIC_COUNT; i++) {
    if (i == BRIM_METRIC_LOSS || got[i] == want[i]) continue;
    bool share = c->op == BRIM_OP_BCE && i == BRIM_METRIC_CORRECT;
    if (share && fabs(got[i] - want[i]) <= 1e-5 * fabs(want[i])) continue;
    snprintf(why, 160, "metric %d is %g, expected %g", i, got[i], want[i]);
    return BRIM_EINTERNAL;
  }
  *error = relative_norm(got, want, 1, NONE_EXPECTED);
  return BRIM_OK;
}

// True if row i of the batch is padding. NT-Xent has two rows for each sample.
static bool is_padding(const brim_case *c, int64_t row) {
  if (c->op != BRIM_OP_NTXENT) return (double)row >= c->state[BRIM_STATE_ROWS];
  return (double)(row % (c->n / 2)) >= c->state[BRIM_STATE_SAMPLES];
}

static brim_status compare_padding(const brim_case *c, const double *gradient, int64_t columns,
                                   char why[160]) {
  for (int64_t i = 0; i < c->n * columns; i++) {
    if (gradient[i] == 0 || !is_padding(c, i / columns)) continue;
    snprintf(why, 160, "gradient of padding row %lld is %g", (long long)(i / columns), gradient[i]);
    return BRIM_EINTERNAL;
  }
  return BRIM_OK;
}

static brim_status compare_exact(const double *got, const double *want, int64_t count,
                                 char why[160]) {
  for (int64_t i = 0; i < count; i++) {
    if (got[i] == want[i]) continue;
    snprintf(why, 160, "value %lld is %g, expected exactly %g", (long long)i, got[i], want[i]);
    return BRIM_EINTERNAL;
  }
  return BRIM_OK;
}

// Rows of figures, each of one kind: compared separately, because a large norm would hide the errors of another row.
// Counts are exact.
static brim_status compare_figures(const brim_case *c, const double *got, const double *want,
                                   int64_t rows, double *error, char why[160]) {
  bool counts = c->op == BRIM_OP_BATCHNORM_PART;
  if (counts) BRIM_TRY(compare_exact(got, want, c->k, why));
  for (int64_t row = counts ? 1 : 0; row < rows; row++) {
    double e = relative_norm(got + row * c->k, want + row * c->k, c->k, expected_nonfinite(c));
    if (!(e <= *error)) *error = e;
  }
  return BRIM_OK;
}

static brim_status compare_output(const brim_case *c, const brim_tensor *t, int index,
                                  const double *got, const double *want, double *error,
                                  char why[160]) {
  int64_t count = brim_tensor_count(t);
  bool loss = c->op == BRIM_OP_XENT || c->op == BRIM_OP_MSE || c->op == BRIM_OP_BCE ||
              c->op == BRIM_OP_NTXENT;
  if ((loss || c->op == BRIM_OP_KNN) && index == 0)
    return compare_metrics(c, got, want, error, why);
  if (c->op == BRIM_OP_STEP_END && index == 0) return compare_exact(got, want, count, why);
  if (t->dtype == BRIM_U8 || t->dtype == BRIM_I32) return compare_exact(got, want, count, why);
  if (c->op == BRIM_OP_GRAD_NORM) {
    if (got[1] != want[1]) {
      snprintf(why, 160, "%g non-finite values, expected %g", got[1], want[1]);
      return BRIM_EINTERNAL;
    }
    count = 1;
  }
  bool parted = c->op == BRIM_OP_BATCHNORM_PART || c->op == BRIM_OP_BATCHNORM_BWD_SUMS;
  if (parted && index == 0) return compare_figures(c, got, want, t->dim[0], error, why);
  bool normed = c->op == BRIM_OP_BATCHNORM_BWD_JOINED ||
                (c->op == BRIM_OP_BATCHNORM_BWD && (index == 0 || index == 3));
  if (loss || normed) BRIM_TRY(compare_padding(c, got, count / c->n, why));
  *error = relative_norm(got, want, count, expected_nonfinite(c));
  // The low-precision copy of the parameters differs from the oracle's by one rounding at most.
  if (c->op == BRIM_OP_OPTIMIZER && index == 3) *error *= type_tolerance(c->type) / 1e-2;
  return BRIM_OK;
}

brim_status brim_case_compare(const brim_case *c, const brim_case_data *got,
                              const brim_case_data *want, double *error, char why[160]) {
  brim_op_call call;
  brim_case_call(c, &call);
  *error = 0;
  why[0] = '\0';
  for (int i = 0; i < call.out_count; i++) {
    double e = 0;
    BRIM_TRY(compare_output(c, &call.out[i], i, got->out[i], want->out[i], &e, why));
    if (e > *error) {
      *error = e;
      snprintf(why, 160, "output %d", i);
    }
  }
  return BRIM_OK;
}
