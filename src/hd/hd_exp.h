// exp and log in single precision with the same bits on host and device, whose own functions round differently. Within 2e-7
// of the true value (relative). Without fused multiply-adds, which are function calls on CPUs that lack them.
#ifndef BRIM_HD_EXP_H_
#define BRIM_HD_EXP_H_

#include <string.h>

#include "hd/hd.h"

// 2^k for k from -126 to 127.
BRIM_HD float brim_hd_pow2(int32_t k) {
  const uint32_t bits = (uint32_t)(k + 127) << 23;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

// x = k ln 2 + r with the nearest integer k; returns exp(r).
BRIM_HD float brim_hd_exp_part(float x, int32_t *k) {
  // round by adding a number whose last place is 1
  const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  float r = x - n * 0.693359375f;  // ln 2 in two parts: n times the first is exact
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  *k = (int32_t)n;
  return (p * (r * r) + r) + 1.0f;
}

// 0 below -87; infinity on overflow; NaN for NaN.
BRIM_HD float brim_hd_exp(float x) {
  if (x < -87.0f) return 0.0f;
  if (!(x < 88.72283f)) return x * brim_hd_pow2(127);
  int32_t k;
  const float p = brim_hd_exp_part(x, &k);
  const int32_t half = k / 2;  // in two steps, since 2^128 is no float
  return (p * brim_hd_pow2(half)) * brim_hd_pow2(k - half);
}

// The same for x <= 0, without a branch.
BRIM_HD float brim_hd_exp_below(float x) {
  int32_t k;
  const float p = brim_hd_exp_part(x < -87.0f ? -87.0f : x, &k);
  const float e = p * brim_hd_pow2(k);
  return x < -87.0f ? 0.0f : e;
}

// For positive normal numbers.
BRIM_HD float brim_hd_log(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;  // mantissa from sqrt(1/2) to sqrt(2)
  bits -= (uint32_t)e << 23;
  float m;
  memcpy(&m, &bits, sizeof m);
  m = m - 1.0f;
  float y = 7.0376836292e-2f;
  y = y * m + -1.1514610310e-1f;
  y = y * m + 1.1676998740e-1f;
  y = y * m + -1.2420140846e-1f;
  y = y * m + 1.4249322787e-1f;
  y = y * m + -1.6668057665e-1f;
  y = y * m + 2.0000714765e-1f;
  y = y * m + -2.4999993993e-1f;
  y = y * m + 3.3333331174e-1f;
  const float z = m * m, k = (float)e;
  y = (y * m) * z;
  y = y + k * -2.12194440e-4f;
  y = y - 0.5f * z;
  return (m + y) + k * 0.693359375f;
}

#endif  // BRIM_HD_EXP_H_
