// Figures and diagnoses of a run by name.
#ifndef BRIM_TESTS_RUN_FIGURES_H_
#define BRIM_TESTS_RUN_FIGURES_H_

#include <math.h>

#include "metric_value.h"
#include "run/run.h"
#include "test.h"
#include "workload/learn/learn.h"

// Figures of a run by their key; NaN = unknown.
static inline double train_of(const brim_run_result *r, const char *key) {
  return metric_value(r->metrics, r->train, key);
}
static inline double eval_of(const brim_run_result *r, const char *key) {
  return metric_value(r->metrics, r->eval, key);
}
static inline double best_of(const brim_run_result *r, const char *key) {
  return metric_value(r->metrics, r->best, key);
}

// The metric that ranks evaluations; NaN = unknown.
static inline double evaluated(const brim_run_result *r) {
  int row = brim_metric_deciding(r->metrics, BRIM_METRIC_EVAL, r->eval, false);
  return row < 0 ? (double)NAN : r->eval[row];
}

// The row of a diagnosis by its name.
static inline int trouble(const brim_run_result *r, const char *name) {
  for (size_t i = 0; i < r->diagnosis->count; i++) {
    if (strcmp(r->diagnosis->rows[i].name, name) == 0) return (int)i;
  }
  fail_msg("nothing watches for %s", name);
  return 0;
}

#endif  // BRIM_TESTS_RUN_FIGURES_H_
