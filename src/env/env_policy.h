// What a policy does with observations, one agent at a time, for environments that bring no lanes of
// their own: host and device round alike.
#ifndef BRIM_ENV_POLICY_H_
#define BRIM_ENV_POLICY_H_

#include "env/env_plan.h"

// To 3e-7; Eigen's rational function.
BRIM_HD float brim_env_tanh(float x) {
  x = x < -7.9f ? -7.9f : x;
  x = x > 7.9f ? 7.9f : x;
  float z = x * x;
  float p = brim_fmaf(z, -2.76076847742355e-16f, 2.00018790482477e-13f);
  p = brim_fmaf(z, p, -8.60467152213735e-11f);
  p = brim_fmaf(z, p, 5.12229709037114e-08f);
  p = brim_fmaf(z, p, 1.48572235717979e-05f);
  p = brim_fmaf(z, p, 6.37261928875436e-04f);
  p = brim_fmaf(z, p, 4.89352455891786e-03f);
  float q = brim_fmaf(z, 1.19825839466702e-06f, 1.18534705686654e-04f);
  q = brim_fmaf(z, q, 2.26843463243900e-03f);
  q = brim_fmaf(z, q, 4.89352518554385e-03f);
  return x * p / q;
}

// The outputs of a packed policy for observations that are normalised already.
BRIM_HD void brim_env_outputs(brim_env_net n, const float *policy, const float *x, float *y) {
  if (!n.hidden) {
    const int32_t row = brim_env_linear_row(n.obs);
    for (int32_t a = 0; a < n.act; a++) {
      y[a] = 0.0f;
      for (int32_t j = 0; j < n.obs; j++) y[a] = brim_fmaf(x[j], policy[a * row + j], y[a]);
    }
    return;
  }
  const int32_t row = brim_env_hidden_row(n.obs, n.act), to = brim_env_hidden_out(n.obs);
  for (int32_t a = 0; a < n.act; a++) y[a] = policy[n.hidden * row + a];
  for (int32_t u = 0; u < n.hidden; u++) {
    const float *w = policy + u * row;
    float unit = w[n.obs];
    for (int32_t j = 0; j < n.obs; j++) unit = brim_fmaf(x[j], w[j], unit);
    unit = unit < 0.0f ? 0.0f : unit;
    for (int32_t a = 0; a < n.act; a++) y[a] = brim_fmaf(unit, w[to + a], y[a]);
  }
}

// Discrete: the action with the largest output among those the mask allows, the first of equal ones. -1:
// an output is no number, or nothing is allowed.
BRIM_HD int32_t brim_env_choose(const float *y, int32_t act, uint64_t mask) {
  int32_t best = -1;
  for (int32_t a = 0; a < act; a++) {
    if (!(y[a] == y[a])) return -1;
    if ((mask >> a & 1) && (best < 0 || y[a] > y[best])) best = a;
  }
  return best;
}

// Discrete: one of the actions the mask allows, each as likely, by random bits. 0 where it allows none.
BRIM_HD int32_t brim_env_any(uint64_t mask, uint32_t bits) {
  int32_t count = 0;
  for (uint64_t left = mask; left; left &= left - 1) count++;
  uint32_t skip = brim_mulhi32(bits, (uint32_t)count);
  for (; skip; skip--) mask &= mask - 1;
  int32_t action = 0;
  while (mask && !(mask >> action & 1)) action++;
  return action;
}

// Continuous: from -1 to 1; what is no number stays so.
BRIM_HD float brim_env_clamp(float y, int32_t hidden) {
  if (hidden) y = brim_env_tanh(y);
  y = y < -1.0f ? -1.0f : y;
  return y > 1.0f ? 1.0f : y;
}

#endif  // BRIM_ENV_POLICY_H_
