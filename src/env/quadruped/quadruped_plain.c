// Rollouts of the quadruped for the vectors that every CPU of this architecture has: compiles quadruped_run.h with
// them.
#define BRIM_QUADRUPED_TASK
#include "env/quadruped/quadruped_episode.h"
#include "env/quadruped/quadruped_int.h"
#include "env/quadruped/quadruped_simd.h"

void brim_quadruped_run_plain(const brim_rollout_work *work) { brim_quad_simd_run(work); }
