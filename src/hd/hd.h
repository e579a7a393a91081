// BRIM_HD: one function body for the C compiler and for nvcc. Header-only, includes nothing of brim. Such code is
// compiled with -ffp-contract=off / -fmad=false, so that host and device round alike. It calls brim_fma where it
// needs a fused multiply-add.
#ifndef BRIM_HD_H_
#define BRIM_HD_H_

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define BRIM_HD __host__ __device__ static inline
#else
#define BRIM_HD static inline
#endif

BRIM_HD float brim_fmaf(float a, float b, float c) { return fmaf(a, b, c); }
BRIM_HD double brim_fma(double a, double b, double c) { return fma(a, b, c); }

#endif  // BRIM_HD_H_
