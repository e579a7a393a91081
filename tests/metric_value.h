// A figure of a metric set by its key; NaN = no such row, or unknown.
#ifndef BRIM_TESTS_METRIC_VALUE_H_
#define BRIM_TESTS_METRIC_VALUE_H_

#include <math.h>

#include "record/record_metric.h"

static inline double metric_value(const brim_metric_set *set, const double *values,
                                  const char *key) {
  int row = brim_metric_find(set, key);
  return row < 0 ? (double)NAN : values[row];
}

#endif  // BRIM_TESTS_METRIC_VALUE_H_
