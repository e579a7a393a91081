// The quadruped's loops over environments, one for each kind of vector instructions.
#ifndef BRIM_QUADRUPED_INT_H_
#define BRIM_QUADRUPED_INT_H_

#include "rl/rl_rollout_plan.h"

void brim_quadruped_run_plain(const brim_rollout_work *work);
void brim_quadruped_run_avx2(const brim_rollout_work *work);
void brim_quadruped_run_avx512(const brim_rollout_work *work);

#endif  // BRIM_QUADRUPED_INT_H_
