// A workload that exists only in the tests: it fits a polynomial to points of a cubic by gradient descent. It shows
// that a workload is its folder and one registration: no other code knows the names of its metric, knob, key and
// diagnosis.
#ifndef BRIM_TESTS_POLY_H_
#define BRIM_TESTS_POLY_H_

#include "workload/workload.h"

extern const brim_workload_table poly_workload;

#endif  // BRIM_TESTS_POLY_H_
