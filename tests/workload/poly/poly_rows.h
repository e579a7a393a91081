// Internals of the polynomial workload: its state, and the declarations of poly_rows.c.
#ifndef BRIM_TESTS_POLY_ROWS_H_
#define BRIM_TESTS_POLY_ROWS_H_

#include "workload/poly/poly.h"

enum { POLY_TERMS = 16 };
enum { POLY_MISFIT, POLY_FARTHEST, POLY_SLOPE, POLY_ROWS };
enum { POLY_SUM_SQUARES, POLY_SUM_POINTS, POLY_SUMS };
enum { POLY_POINTS, POLY_SLICE, POLY_KNOBS };

typedef struct poly_state {
  double c[POLY_TERMS];  // coefficients, starting with x^0
  int64_t step;
  double sums[POLY_SUMS];  // since the last reading
  double slope;            // length of the last gradient
} poly_state;

typedef struct poly {
  const brim_config *config;
  brim_knob knobs[POLY_KNOBS];
  int64_t degree, points, slice, iterations, interval, grid, seed;
  double rate;
  poly_state now, kept;
  double lowest;  // smallest misfit of the evaluations so far; NaN = none
  const volatile sig_atomic_t *stop;
  char description[64];
} poly;

extern const brim_metric_set poly_set;
extern const brim_work_sums poly_sums;
extern const brim_knob_set poly_knob_set;
extern const brim_work_diagnosis poly_diagnosis;
enum { POLY_KOREAN = 17 };
extern const brim_config_section poly_section;
extern const brim_work_options poly_options;
extern const brim_msg_pair poly_korean[POLY_KOREAN];
void poly_make_knobs(poly *p);
size_t poly_start_lines(void *work, brim_work_line *out, size_t most);
void poly_eval_notes(const brim_work_metrics *metrics, brim_str *out);

// poly_save.c
brim_status poly_save(void *work, const char *path, const json_t *extra, bool weights_only);
brim_status poly_load(void *work, const char *path, json_t **extra);
brim_status poly_use(void *work, const char *path, bool averaged);

#endif  // BRIM_TESTS_POLY_ROWS_H_
