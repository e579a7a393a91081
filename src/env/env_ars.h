// What the CPU's update and the kernels' have in common: filter statistics to what policies use, and
// the guard of an update.
#ifndef BRIM_ENV_ARS_H_
#define BRIM_ENV_ARS_H_

#include "env/env_plan.h"

// What an environment's rollout was worth on average.
BRIM_HD float brim_env_return(double reward, int64_t steps, float shift, int32_t envs) {
  return (float)((reward - (double)shift * (double)steps) / envs);
}

// Whether a deviation of returns can be divided by: they are floats, and equal ones differ by
// rounding.
BRIM_HD int brim_env_sigma_usable(double sigma, double mean) {
  double least = 1e-6 * (mean < 0 ? -mean : mean);
  return sigma > (least > 1e-6 ? least : 1e-6);
}

// Observations of an iteration, their sums taken around the mean policies used, go into component j
// of the filter (Chan et al.); then the mean and 1/std of the next iteration.
BRIM_HD void brim_env_filter_merge(const double *filter, double had, double steps, double sum,
                                   double square, double shift, int j, double *mean, double *m2) {
  const int obs = BRIM_QUADRUPED_OBS;
  double n = had + steps;
  double new_mean = shift + sum / steps, new_m2 = square - sum * sum / steps;
  double apart = new_mean - filter[1 + j];
  if (new_m2 < 0) new_m2 = 0;
  *mean = filter[1 + j] + apart * (steps / n);
  *m2 = filter[1 + obs + j] + new_m2 + apart * apart * (had * steps / n);
}

// A component that never moved says nothing: it is dropped.
BRIM_HD float brim_env_inverse_std(double count, double m2) {
  double std = count > 1 ? sqrt(m2 / (count - 1)) : 0;
  return std < 1e-7 ? 0.0f : (float)(1.0 / (std + 1e-8));
}

// Of initial weights of an MLP: number p of theta is a standard normal times this. The second layer
// starts small, so that the first policy is nearly that of no action.
BRIM_HD float brim_env_init_scale(int32_t hidden, int32_t p) {
  const int32_t obs = BRIM_QUADRUPED_OBS;
  if (p < obs * hidden) return 1.0f / sqrtf((float)obs);
  p -= (obs + 1) * hidden;
  if (p >= 0 && p < BRIM_QUADRUPED_ACT * hidden) return 0.1f / sqrtf((float)hidden);
  return 0.0f;
}

#endif  // BRIM_ENV_ARS_H_
