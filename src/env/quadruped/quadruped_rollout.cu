// Rollouts of the quadruped on a GPU: the extension "ars.rollout/quadruped". A block runs a part
// (rl_rollout_plan.h): up to 32 environments of one (direction, sign), four lanes each, one leg per lane. It builds
// its policy in shared memory, holds all states in registers for the whole rollout and writes its results once. The
// headers have physics and task (quadruped_step.h, quadruped_task.h); this file has the work of a block.
// rl_rollout.cuh has the table around the kernel.
#include "rl/rl_rollout.cuh"
#define BRIM_QUADRUPED_TASK
#include "env/quadruped/quadruped_block.h"
#include "env/quadruped/quadruped_lanes.cuh"

//---------------------------------- kernel ----------------------------------

// Blocks that share the registers of a multiprocessor: 3 leave 168 registers to a thread, with which the physics
// nearly fits without spills.
#ifndef BRIM_ROLLOUT_BLOCKS
#define BRIM_ROLLOUT_BLOCKS 3
#endif

enum {
  LANES = BRIM_BLOCK_LANES,
  THREADS = BRIM_ROLLOUT_PART * LANES,
  LANE_STATS = BRIM_BLOCK_STATS,
  NORMAL_FLOATS = BRIM_BLOCK_NORMAL
};

typedef rl_task<brim_quadruped> rollout_task;

extern __shared__ float4 rollout_shared[];

// Adds what an environment observed to its statistics; each of its lanes adds a quarter of the numbers. The sums
// are in shared memory: they are touched once per step, and the physics needs the registers.
__device__ static void add_stats(const brim_quad_lane_seen &seen, double *sums) {
  const int leg = (int)(threadIdx.x & 3);
  double *lane_sums = sums + threadIdx.x;
#pragma unroll
  for (int i = 0; i < LANE_STATS; i++) {
    float x = seen.apart[LANES * i];
#pragma unroll
    for (int k = 1; k < LANES; k++) {
      if (LANES * i + k < BRIM_QUADRUPED_OBS && leg == k) x = seen.apart[LANES * i + k];
    }
    const double d = (double)x;
    double *sum = lane_sums + 2 * i * blockDim.x, *square = sum + blockDim.x;
    *sum += d;
    *square = fma(d, d, *square);
  }
}

// Adds up the block's environments in their order, one thread for each number.
__device__ static void add_up(const rollout_task &t, const brim_quadruped_track *tracks,
                              const double *sums, int32_t count) {
  brim_rollout_found *out = brim_rollout_found_at(t.part, BRIM_QUADRUPED_OBS, (int64_t)blockIdx.x);
  double *stats = brim_rollout_found_stats(out);
  const int j = (int)threadIdx.x;
  if (j == 0) {
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
  // a small part has fewer threads than there are numbers
  for (int n = j; n < BRIM_QUADRUPED_OBS; n += (int)blockDim.x) {
    double sum = 0, square = 0;
    for (int32_t e = 0; t.filter && e < count; e++) {
      const double *at = sums + 2 * (n / LANES) * blockDim.x + LANES * e + n % LANES;
      sum += at[0];
      square += at[blockDim.x];
    }
    stats[n] = sum;
    stats[BRIM_QUADRUPED_OBS + n] = square;
  }
}

__device__ static void note_episode(const rollout_task &t, const brim_quadruped_track &track,
                                    int32_t env, float x) {
  brim_rollout_episode e;
  e.reward = (float)track.reward;
  e.length = track.step;
  e.outcome = track.outcome;
  t.episodes[env] = e;
  t.figures[env] = track.outcome == BRIM_ENV_DIVERGED ? nanf("") : x - track.start_x;
}

// Fills the block's shared memory before its first step: the statistics that normalise observations, and sums of
// zero.
template <bool EVALUATE>
__device__ static inline void fill_shared(const rollout_task &t, float *normal, double *sums) {
  for (int i = (int)threadIdx.x; i < 2 * BRIM_QUADRUPED_OBS; i += (int)blockDim.x) {
    normal[i] = t.normal[i];
  }
  for (int i = (int)threadIdx.x; i < 2 * LANE_STATS * (int)blockDim.x; i += (int)blockDim.x) {
    if (!EVALUATE && t.filter) sums[i] = 0;
  }
}

__device__ static inline brim_env_ids ids_of(const rollout_task &t, int32_t dir, int32_t env) {
  brim_env_ids ids;
  ids.start_key = t.start_key;
  ids.event_key = t.event_key;
  ids.iteration = (uint32_t)t.iteration;
  ids.dir = (uint32_t)dir;
  // lanes after the last environment run a copy of it, because a warp steps as a whole
  ids.env = (uint32_t)(env < t.envs ? env : t.envs - 1);
  return ids;
}

template <bool HIDDEN, bool RK4, bool EVALUATE>
__global__ void __launch_bounds__(THREADS, BRIM_ROLLOUT_BLOCKS)
    rollout_kernel(const __grid_constant__ rollout_task t) {
  float *normal = (float *)rollout_shared, *policy = normal + NORMAL_FLOATS;
  double *sums =
      (double *)(policy + (brim_rollout_packed(brim_quadruped_net(t.hidden)) + 3) / 4 * 4);
  const int32_t pair = EVALUATE ? 0 : (int32_t)blockIdx.x / t.parts;
  const int32_t part = (int32_t)blockIdx.x - pair * t.parts;
  const int32_t dir = t.first_dir + pair / 2;
  fill_shared<EVALUATE>(t, normal, sums);
  rl_build_policy(t, brim_quadruped_net(t.hidden), dir, pair % 2 ? -t.noise : t.noise, policy);
  __syncthreads();

  const int32_t env = part * BRIM_ROLLOUT_PART + (int32_t)threadIdx.x / LANES;
  const int32_t left = t.envs - part * BRIM_ROLLOUT_PART;
  const int32_t count = left < BRIM_ROLLOUT_PART ? left : BRIM_ROLLOUT_PART;
  brim_quad_lane_task scene;
  scene.env = &t.env;
  scene.world = brim_quad_lane_world_make(t.env.timestep, t.env.margin, RK4);
  scene.hidden = HIDDEN ? t.hidden : 0;
  scene.policy = t.zero ? NULL : policy;
  scene.normal = normal;
  brim_quadruped_track track = brim_quadruped_track_of(ids_of(t, dir, env));
  brim_quad_lane_state state;
  bool over = true;  // true: a new episode begins

  for (int32_t step = 0; step < t.steps; step++) {
    if (over) brim_quad_lane_begin(&scene, &state, &track, 0);
    brim_quad_lane_push(&scene, &state, &track, 0);
    float ctrl[1][2];
    {
      brim_quad_lane_seen seen;
      brim_quad_lane_observe(&scene, &state, &seen);
      if (!EVALUATE && t.filter && !(t.once && track.episode > 0)) add_stats(seen, sums);
      brim_quad_lane_act(&scene, &seen, ctrl);
    }
    const float from = state.pos[0];
#pragma unroll 1
    for (int k = 0; k < t.env.frame_skip; k++) {
      brim_quad_lane_step(&scene.world, &state, ctrl, NULL);
    }
    const brim_quad_lane_outcome o = brim_quad_lane_measure(&scene, &state, ctrl, from);
    // With `once`, an environment that has finished its episode steps on from a second start, but nothing counts.
    over = (EVALUATE || !t.once || track.episode == 0) &&
           brim_quadruped_after(&track, o.reward, o.fell > 0.0f, o.diverged > 0.0f, t.steps);
    if (EVALUATE && over && track.episode == 0 && env < t.envs && threadIdx.x % LANES == 0) {
      note_episode(t, track, env, state.pos[0]);
    }
    track.episode += over;
    if ((EVALUATE || t.once) && __all_sync(0xffffffffu, track.episode > 0)) break;
  }
  if (EVALUATE) return;

  __shared__ brim_quadruped_track tracks[BRIM_ROLLOUT_PART];
  if (threadIdx.x % LANES == 0) tracks[threadIdx.x / LANES] = track;
  __syncthreads();
  add_up(t, tracks, sums, count);
}

//---------------------------------- launching ----------------------------------

template <bool HIDDEN, bool RK4, bool EVALUATE>
static brim_status launch(const rollout_task *t, int64_t blocks, cudaStream_t stream) {
  const unsigned threads = (unsigned)brim_block_threads(t->envs);
  const size_t bytes = brim_block_dynamic(t->hidden, !EVALUATE && t->filter, t->envs);
  BRIM_TRY(rl_cuda_allow(rollout_kernel<HIDDEN, RK4, EVALUATE>, bytes));
  rollout_kernel<HIDDEN, RK4, EVALUATE><<<(unsigned)blocks, threads, bytes, stream>>>(*t);
  return rl_cuda_check(cudaGetLastError(), "ars.rollout");
}

template <bool EVALUATE>
static brim_status launch_form(const rollout_task *t, int64_t blocks, cudaStream_t s) {
  if (t->hidden) {
    return t->env.rk4 ? launch<true, true, EVALUATE>(t, blocks, s)
                      : launch<true, false, EVALUATE>(t, blocks, s);
  }
  return t->env.rk4 ? launch<false, true, EVALUATE>(t, blocks, s)
                    : launch<false, false, EVALUATE>(t, blocks, s);
}

struct quadruped_kernels {
  typedef brim_quadruped values;
  static int32_t hidden(const brim_rollout_shape *shape, size_t most) {
    return brim_block_hidden(shape->hidden, shape->filter, shape->num_envs / 2, most);
  }
  static brim_status launch(const rollout_task *t, bool evaluate, int64_t blocks, cudaStream_t s) {
    return evaluate ? launch_form<true>(t, blocks, s) : launch_form<false>(t, blocks, s);
  }
};

BRIM_ROLLOUT_CUDA_TABLE(brim_quadruped_cuda, brim_quadruped_cuda_set_host, quadruped_kernels)
