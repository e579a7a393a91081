// Statistics of a sample. Values may be unsorted and are not changed.
#ifndef BRIM_BASE_STATS_H_
#define BRIM_BASE_STATS_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_stats_summary {
  size_t n;
  double min, max, mean, stddev;  // stddev: n-1; 0 for n < 2
  double median, mad;             // mad: raw median absolute deviation
  double p05, p95, p99;
  double ci_low, ci_high;  // 95 % bootstrap interval of the median
} brim_stats_summary;

// All functions need n >= 1 and finite values, else BRIM_EINVAL. Percentiles interpolate linearly (type 7).
brim_status brim_stats_median(const double *v, size_t n, double *out);
// Percentile bootstrap of the median: `rounds` resamples drawn by Philox from `seed`.
brim_status brim_stats_bootstrap_median(const double *v, size_t n, double confidence, int rounds,
                                        uint64_t seed, double *low, double *high);
// 97.5 % point of Student's t: half a 95 % interval, in standard errors. df below 1 counts as 1.
double brim_stats_t95(double df);
brim_status brim_stats_summarize(const double *v, size_t n, uint64_t seed, brim_stats_summary *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_STATS_H_
