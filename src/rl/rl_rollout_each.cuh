// Rollouts of an environment on a GPU, a template over its header like rl_rollout_each.h, without include guard: a
// .cu includes the environment's header, defines BRIM_ENV(x) and includes this file. It gets the table
// brim_NAME_cuda and brim_NAME_cuda_set_host. A block runs a part (rl_rollout_plan.h): up to 32 environments of one
// (direction, sign), a thread each. It builds its policy in shared memory, holds all states in registers for the
// whole rollout and writes its results once.
#include "rl/rl_rollout.cuh"
#include "rl/rl_rollout_step.h"

enum {
  BRIM_ENV(NORMAL) = (2 * BRIM_ENV(OBS) + 3) / 4 * 4
};  // floats up to where the policy begins

typedef rl_task<BRIM_ENV(values)> BRIM_ENV(task);

extern __shared__ double BRIM_ENV(shared)[];

// Adds up the block's environments in their order, one thread for each number.
__device__ static void BRIM_ENV(add_up)(const BRIM_ENV(task) & t, const brim_env_track *tracks,
                                        const double *sums, int32_t count, int32_t obs) {
  brim_rollout_found *out = brim_rollout_found_at(t.part, obs, (int64_t)blockIdx.x);
  double *stats = brim_rollout_found_stats(out);
  if (threadIdx.x == 0) {
    brim_rollout_found f = {};
    for (int32_t e = 0; e < count; e++) {
      f.reward += tracks[e].reward;
      f.reward_sq += tracks[e].reward * tracks[e].reward;
      f.steps += tracks[e].steps;
      f.terminated += tracks[e].terminated;
      f.truncated += tracks[e].truncated;
      f.diverged += tracks[e].diverged;
    }
    *out = f;
  }
  for (int32_t n = (int32_t)threadIdx.x; n < 2 * obs; n += BRIM_ROLLOUT_PART) {
    double sum = 0;
    for (int32_t e = 0; t.filter && e < count; e++) sum += sums[n * BRIM_ROLLOUT_PART + e];
    stats[n] = sum;
  }
}

template <bool EVALUATE>
__global__ void __launch_bounds__(BRIM_ROLLOUT_PART)
    BRIM_ENV(rollout_kernel)(const __grid_constant__ BRIM_ENV(task) t) {
  const brim_env_sizes z = BRIM_ENV(sizes)(&t.env);
  const brim_rollout_net net = brim_rollout_net_of(z, t.hidden);
  const int32_t lane = (int32_t)threadIdx.x;
  double *sums = BRIM_ENV(shared);  // (2 obs, 32), if statistics are kept
  const bool seen = !EVALUATE && t.filter;
  float *normal = (float *)(sums + (seen ? 2 * z.obs * BRIM_ROLLOUT_PART : 0));
  float *policy = normal + BRIM_ENV(NORMAL);
  const int32_t pair = EVALUATE ? 0 : (int32_t)blockIdx.x / t.parts;
  const int32_t part = (int32_t)blockIdx.x - pair * t.parts;
  const int32_t dir = t.first_dir + pair / 2;
  for (int32_t i = lane; i < 2 * z.obs; i += BRIM_ROLLOUT_PART) normal[i] = t.normal[i];
  for (int32_t i = lane; seen && i < 2 * z.obs * BRIM_ROLLOUT_PART; i += BRIM_ROLLOUT_PART)
    sums[i] = 0;
  rl_build_policy(t, net, dir, pair % 2 ? -t.noise : t.noise, policy);
  __syncthreads();

  const int32_t first = part * BRIM_ROLLOUT_PART, env = first + lane;
  const int32_t count = t.envs - first < BRIM_ROLLOUT_PART ? t.envs - first : BRIM_ROLLOUT_PART;
  brim_env_ids ids;
  ids.start_key = t.start_key;
  ids.event_key = t.event_key;
  ids.iteration = (uint32_t)t.iteration;
  ids.dir = (uint32_t)dir;
  ids.env = (uint32_t)env;
  const BRIM_ENV(scene) scene = {&t.env, t.zero ? NULL : policy, normal, t.hidden, t.steps};
  brim_env_track track = brim_env_track_of(ids);
  if (lane < count) {
    BRIM_ENV(state) state;
    BRIM_ENV(reset)(&t.env, &track, &state);
    for (int32_t step = 0; step < t.steps; step++) {
      const brim_env_outcome o =
          BRIM_ENV(advance)(&scene, &track, &state, seen ? sums + lane : NULL, BRIM_ROLLOUT_PART);
      if (!brim_env_after(&track, o, t.steps)) continue;
      if (EVALUATE) {
        brim_rollout_episode e;
        e.reward = (float)track.reward;
        e.length = track.step;
        e.outcome = track.outcome;
        t.episodes[env] = e;
        if (z.figures) BRIM_ENV(figures)(&t.env, &state, t.figures + (int64_t)env * z.figures);
      }
      if (EVALUATE || t.once) break;
      track.episode++;
      track.step = 0;
      BRIM_ENV(reset)(&t.env, &track, &state);
    }
  }
  if (EVALUATE) return;

  __shared__ brim_env_track tracks[BRIM_ROLLOUT_PART];
  tracks[lane] = track;
  __syncthreads();
  BRIM_ENV(add_up)(t, tracks, sums, count, z.obs);
}

template <bool EVALUATE>
static brim_status BRIM_ENV(launch)(const BRIM_ENV(task) * t, int64_t blocks, cudaStream_t s) {
  const brim_rollout_net net = brim_rollout_net_of(BRIM_ENV(sizes)(&t->env), t->hidden);
  const size_t bytes = brim_rollout_block_bytes(net, BRIM_ENV(NORMAL), !EVALUATE && t->filter);
  BRIM_TRY(rl_cuda_allow(BRIM_ENV(rollout_kernel) < EVALUATE >, bytes));
  BRIM_ENV(rollout_kernel)<EVALUATE><<<(unsigned)blocks, BRIM_ROLLOUT_PART, bytes, s>>>(*t);
  return rl_cuda_check(cudaGetLastError(), "ars.rollout");
}

struct BRIM_ENV(kernels) {
  typedef BRIM_ENV(values) values;
  static int32_t hidden(const brim_rollout_shape *shape, size_t most) {
    // static shared memory of the kernel
    const size_t fixed = BRIM_ROLLOUT_PART * sizeof(brim_env_track);
    return brim_rollout_block_hidden(brim_rollout_policy_of(shape), BRIM_ENV(NORMAL), shape->filter,
                                     most > fixed ? most - fixed : 0);
  }
  static brim_status launch(const BRIM_ENV(task) * t, bool evaluate, int64_t blocks,
                            cudaStream_t s) {
    return evaluate ? BRIM_ENV(launch)<true>(t, blocks, s) : BRIM_ENV(launch)<false>(t, blocks, s);
  }
};

BRIM_ROLLOUT_CUDA_TABLE(BRIM_ENV(cuda), BRIM_ENV(cuda_set_host), BRIM_ENV(kernels))
