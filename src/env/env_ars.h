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

// What the filter takes in of one number of the observations of an iteration.
typedef struct brim_env_seen {
  double had;          // observations the filter has
  double count;        // observations of the iteration
  double sum, square;  // of the number, less `shift`
  double shift;        // the mean policies used
} brim_env_seen;

// Goes into that number's mean and sum of squared deviations (Chan et al.).
BRIM_HD void brim_env_filter_merge(brim_env_seen s, double *mean, double *m2) {
  double n = s.had + s.count;
  double new_mean = s.shift + s.sum / s.count, new_m2 = s.square - s.sum * s.sum / s.count;
  double apart = new_mean - *mean;
  if (new_m2 < 0) new_m2 = 0;
  *mean = *mean + apart * (s.count / n);
  *m2 = *m2 + new_m2 + apart * apart * (s.had * s.count / n);
}

// A component that never moved says nothing: it is dropped.
BRIM_HD float brim_env_inverse_std(double count, double m2) {
  double std = count > 1 ? sqrt(m2 / (count - 1)) : 0;
  return std < 1e-7 ? 0.0f : (float)(1.0 / (std + 1e-8));
}

// Of initial weights of an MLP: number p of theta is a standard normal times this. The second layer
// starts small, so that the first policy is nearly that of no action.
BRIM_HD float brim_env_init_scale(brim_env_net n, int32_t p) {
  if (p < n.obs * n.hidden) return 1.0f / sqrtf((float)n.obs);
  p -= (n.obs + 1) * n.hidden;
  if (p >= 0 && p < n.act * n.hidden) return 0.1f / sqrtf((float)n.hidden);
  return 0.0f;
}

#endif  // BRIM_ENV_ARS_H_
