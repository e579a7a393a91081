// Internals of the cases: the parts of the list.
#ifndef BRIM_TESTS_CASES_INT_H_
#define BRIM_TESTS_CASES_INT_H_

#include "cases/cases.h"

// The form of an op's random shapes.
typedef enum case_kind {
  CASE_LINEAR,
  CASE_FLAT,       // (n, k) or (n, l, k)
  CASE_NORM,       // the same with three columns or more
  CASE_ROW,        // (n, k)
  CASE_PARAM,      // n values
  CASE_INPUT,      // rows of whole pixels
  CASE_CONV,       // image, window, both channels
  CASE_POOL,       // image and window
  CASE_IMAGE,      // (n, h, w, k), enough values per channel for its statistics
  CASE_PARTS,      // n parts of k channels
  CASE_TOKEN,      // (n, l, k)
  CASE_MEAN,       // (n, l, k) or (n, h, w, k)
  CASE_ATTENTION,  // (n, l, k), k a multiple of the heads
  CASE_CONCAT,     // (n, k) and (n, m)
  CASE_VIEWS,      // (n, k), n even
  CASE_RING        // n rows
} case_kind;

typedef struct case_shape {
  int64_t n, k, m, l, h, w, r, s;
  int32_t stride, pad, heads;
} case_shape;

// Differences between the cases of one op, besides the shape.
typedef struct case_variant {
  const char *text;
  brim_op_attr attr;
  brim_dtype type2;  // 0 = none; BRIM_F32 itself is written as CASE_F32
  bool optional, padding, bad_labels, nonfinite, offset, ties;
  bool empty;  // all rows are padding
  bool rare;   // does not matter for speed
  unsigned with;
  int in_place;
  int64_t wide;                                           // INPUT: channels of y
  double step, loss_scale, good_steps, clip, row_offset;  // 0 = default
} case_variant;

#define CASE_F32 BRIM_DTYPE_COUNT

typedef struct case_group {
  brim_op op;
  case_kind kind;
  const case_shape *shapes;
  size_t shape_count;
  const case_shape *speed;
  size_t speed_count;
  const case_variant *variants;
  size_t variant_count;
} case_group;

// Only the first fuzz_count groups take random shapes. The groups after them repeat ops in large shapes and in tf32;
// random shapes are too small for tf32's tolerance.
const case_group *brim_case_groups(size_t *count, size_t *fuzz_count);
#define CASE_MAX_CHANNELS 2048  // channels of BATCHNORM*

// Sets special values of an op, after all inputs have been drawn uniformly.
void brim_case_fill_image(const brim_case *c, const brim_op_call *call, brim_case_data *d);
void brim_case_fill_tokens(const brim_case *c, const brim_op_call *call, brim_case_data *d);
void brim_case_round(brim_dtype type, double *values, int64_t count);

#endif  // BRIM_TESTS_CASES_INT_H_
