// Order statistics by sorting a copy, and a bootstrap whose draws are Philox numbers of (seed, round, index), so
// that the interval is the same on every machine.
#include "base/base_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "hd/hd_philox.h"

enum { SUMMARY_ROUNDS = 1000 };

static int compare_f64(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// A sorted copy of v (brim_free).
static brim_status sorted_copy(const double *v, size_t n, double **out) {
  *out = NULL;
  if (!v || n == 0) return brim_fail(BRIM_EINVAL, "no statistics: the sample is empty");
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(v[i])) {
      return brim_fail(BRIM_EINVAL, "value %zu of the sample is not a finite number", i);
    }
  }
  double *copy = brim_calloc(n, sizeof *copy);
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory for a sample of %zu values", n);
  memcpy(copy, v, n * sizeof *copy);
  qsort(copy, n, sizeof *copy, compare_f64);
  *out = copy;
  return BRIM_OK;
}

// Percentile by type 7 of Hyndman and Fan; p in [0, 100].
static double percentile_sorted(const double *s, size_t n, double p) {
  double at = (double)(n - 1) * p / 100.0;
  size_t low = (size_t)at;
  if (low + 1 >= n) return s[n - 1];
  double part = at - (double)low;
  return part == 0 ? s[low] : s[low] + (s[low + 1] - s[low]) * part;
}

static double median_sorted(const double *s, size_t n) {
  return n % 2 ? s[n / 2] : s[n / 2 - 1] + (s[n / 2] - s[n / 2 - 1]) * 0.5;
}

// Median absolute deviation; `work` has room for n values.
static double mad_sorted(const double *s, size_t n, double *work) {
  double median = median_sorted(s, n);
  for (size_t i = 0; i < n; i++) work[i] = fabs(s[i] - median);
  qsort(work, n, sizeof *work, compare_f64);
  return median_sorted(work, n);
}

brim_status brim_stats_median(const double *v, size_t n, double *out) {
  double *s;
  BRIM_TRY(sorted_copy(v, n, &s));
  *out = median_sorted(s, n);
  brim_free(s);
  return BRIM_OK;
}

// Returns the median of one resample of the sorted sample. It counts how often each index is drawn, so it needs no
// sorting.
static double resample_median(const double *s, size_t n, uint64_t key, uint64_t round,
                              uint32_t *counts) {
  memset(counts, 0, n * sizeof *counts);
  for (size_t i = 0; i < n; i += 2) {
    brim_philox4 r = brim_philox(key, round, i / 2);
    counts[brim_rng_below(r.v[0], r.v[1], n)]++;
    if (i + 1 < n) counts[brim_rng_below(r.v[2], r.v[3], n)]++;
  }
  size_t low_rank = (n - 1) / 2, high_rank = n / 2, seen = 0, i = 0;
  while (seen + counts[i] <= low_rank) seen += counts[i++];
  double low = s[i];
  while (seen + counts[i] <= high_rank) seen += counts[i++];
  return low + (s[i] - low) * 0.5;
}

static brim_status bootstrap_sorted(const double *s, size_t n, double confidence, int rounds,
                                    uint64_t seed, double *low, double *high) {
  if (n > UINT32_MAX) return brim_fail(BRIM_ELIMIT, "sample of %zu values is too large", n);
  brim_status status = BRIM_ENOMEM;
  uint32_t *counts = brim_calloc(n, sizeof *counts);
  double *medians = brim_calloc((size_t)rounds, sizeof *medians);
  if (!counts || !medians) {
    brim_fail(BRIM_ENOMEM, "out of memory for a bootstrap of %zu values", n);
    goto done;
  }
  uint64_t key = brim_rng_key(seed, BRIM_RNG_STATS);
  for (int r = 0; r < rounds; r++) medians[r] = resample_median(s, n, key, (uint64_t)r, counts);
  qsort(medians, (size_t)rounds, sizeof *medians, compare_f64);
  double tail = (1 - confidence) / 2 * 100;
  *low = percentile_sorted(medians, (size_t)rounds, tail);
  *high = percentile_sorted(medians, (size_t)rounds, 100 - tail);
  status = BRIM_OK;
done:
  brim_free(medians);
  brim_free(counts);
  return status;
}

brim_status brim_stats_bootstrap_median(const double *v, size_t n, double confidence, int rounds,
                                        uint64_t seed, double *low, double *high) {
  if (!(confidence > 0 && confidence < 1)) {
    return brim_fail(BRIM_EINVAL, "confidence %g is not between 0 and 1", confidence);
  }
  if (rounds < 1) return brim_fail(BRIM_EINVAL, "a bootstrap needs at least one round");
  double *s;
  BRIM_TRY(sorted_copy(v, n, &s));
  brim_status status = bootstrap_sorted(s, n, confidence, rounds, seed, low, high);
  brim_free(s);
  return status;
}

double brim_stats_t95(double df) {
  static const double few[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  const double z = 1.959964;
  if (!(df >= 10)) return few[(int)fmax(df, 1) - 1];
  return z + (z * z * z + z) / (4 * df) + (5 * pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * df * df);
}

brim_status brim_stats_summarize(const double *v, size_t n, uint64_t seed,
                                 brim_stats_summary *out) {
  double *s;
  BRIM_TRY(sorted_copy(v, n, &s));
  brim_status status = BRIM_OK;
  double *work = brim_calloc(n, sizeof *work);
  if (!work) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for a sample of %zu values", n);
    goto done;
  }
  brim_stats_summary r = {.n = n, .min = s[0], .max = s[n - 1]};
  // Welford's running mean and squares avoid overflow and cancellation. They run in sorted order, so that the order
  // of the values does not matter.
  double squares = 0;
  for (size_t i = 0; i < n; i++) {
    double delta = s[i] - r.mean;
    r.mean += delta / (double)(i + 1);
    squares += delta * (s[i] - r.mean);
  }
  r.stddev = n < 2 ? 0 : sqrt(squares / (double)(n - 1));
  r.median = median_sorted(s, n);
  r.mad = mad_sorted(s, n, work);
  r.p05 = percentile_sorted(s, n, 5);
  r.p95 = percentile_sorted(s, n, 95);
  r.p99 = percentile_sorted(s, n, 99);
  status = bootstrap_sorted(s, n, 0.95, SUMMARY_ROUNDS, seed, &r.ci_low, &r.ci_high);
  if (!status) *out = r;
done:
  brim_free(work);
  brim_free(s);
  return status;
}
