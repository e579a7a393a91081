// Rollouts of the quadruped for CPUs with AVX2 and FMA: compiles quadruped_run.h with these instructions.
#define BRIM_QUADRUPED_TASK
#include "env/quadruped/quadruped_episode.h"
#include "env/quadruped/quadruped_int.h"
#include "env/quadruped/quadruped_simd.h"

void brim_quadruped_run_avx2(const brim_rollout_work *work) { brim_quad_simd_run(work); }
