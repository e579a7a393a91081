// Gradients by central differences in f64 on ref, over the case list. For every op with a gradient the scalar is L =
// sum of r * output 0 with random r (for losses, the loss itself times its scales); the analytic gradient comes from
// the backward ops. On ref, device memory is host memory, so calls point straight at arrays. Shared by the gradient
// tests.
#ifndef BRIM_TESTS_CASES_GRADIENT_H_
#define BRIM_TESTS_CASES_GRADIENT_H_

#include "cases/cases.h"

int gradient_setup(void **state);
int gradient_teardown(void **state);

double *gradient_numbers(int64_t count);  // zeros
double *gradient_random(int64_t count, uint64_t slot);
double *gradient_copy(const brim_tensor *t);  // the data of an f64 tensor
brim_tensor gradient_vec(double *data, int64_t n);
brim_tensor gradient_mat(double *data, int64_t n, int64_t m);
brim_tensor gradient_like(const brim_tensor *t, double *data);  // the same shape with other data
void gradient_run(brim_op_call *call);

// A scalar function of all tensors of the case.
typedef struct gradient_scalar {
  double (*value)(const struct gradient_scalar *s);
  brim_case c;
  brim_op_call call;  // the case's call, with data
  double *r;          // weights of output 0
} gradient_scalar;

double gradient_weighted_output(const gradient_scalar *s);
double gradient_scaled_loss(const gradient_scalar *s);
// Compares some coordinates of `gradient` with differences of s in x; counts them in *checked.
void gradient_check(const gradient_scalar *s, const char *what, double *x, const double *gradient,
                    int64_t count, int *checked);
// Makes the case in f64 with its values. False if it is another op, too large for differences, or has values where no
// difference can be taken.
bool gradient_open(size_t index, brim_op op, gradient_scalar *s, brim_case_data *data);
void gradient_close(gradient_scalar *s, brim_case_data *data);

#endif  // BRIM_TESTS_CASES_GRADIENT_H_
