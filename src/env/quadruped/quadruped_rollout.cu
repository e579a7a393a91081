// Rollouts on the GPU: the extension "ars.rollout". A block is a part (env_plan.h): up to 32
// environments of one (direction, sign), four lanes each, one leg to a lane. It makes its policy in
// shared memory, holds all states in registers for the whole rollout and writes what it found once.
// Physics and task are the headers' (quadruped_step.h, quadruped_task.h); this says only how a block
// does it. The update's kernels are env_ars.cuh.
#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/base_status.h"
#include "env/env_ars.cuh"
#include "env/env_cuda.h"
#define BRIM_QUADRUPED_TASK
#include "env/quadruped/quadruped_block.h"
#include "env/quadruped/quadruped_lanes.cuh"

static const brim_host_api *host_api;

void brim_env_cuda_set_host(const brim_host_api *host) { host_api = host; }

static brim_status fail(brim_status status, const char *fmt, ...) {
  char text[768];
  if (host_api->size >= offsetof(brim_host_api, translate) + sizeof(host_api->translate)) {
    fmt = host_api->translate(fmt);
  }
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return host_api->fail(status, text);
}

static brim_status check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return BRIM_OK;
  cudaGetLastError();
  // Memory a launch asks for by itself (spills): with less at once it may do.
  brim_status status = error == cudaErrorMemoryAllocation ? BRIM_EOOM : BRIM_EDEVICE;
  return fail(status, "%s: %s", what, cudaGetErrorString(error));
}

//---------------------------------- kernel ----------------------------------

// Blocks of a multiprocessor that registers are shared out for: 3 leave 168 to a thread, which keeps
// the physics nearly without spills.
#ifndef BRIM_ROLLOUT_BLOCKS
#define BRIM_ROLLOUT_BLOCKS 3
#endif

enum {
  LANES = BRIM_BLOCK_LANES,
  THREADS = BRIM_ENV_PART * LANES,
  LANE_STATS = BRIM_BLOCK_STATS,
  NORMAL_FLOATS = BRIM_BLOCK_NORMAL
};

struct rollout_task {
  brim_quadruped env;
  int32_t hidden, steps, filter, once, zero;
  int32_t envs;   // of a (direction, sign), or of an evaluation
  int32_t parts;  // of them
  int32_t first_dir;
  int64_t iteration;
  float noise;
  uint64_t delta_key, start_key, push_key;
  const float *theta, *normal;
  brim_env_found *part;            // of a rollout
  brim_rollout_episode *episodes;  // of an evaluation
};

extern __shared__ float4 rollout_shared[];

// theta +- noise * delta, as the lanes read it.
__device__ static void build_policy(const rollout_task &t, int32_t dir, float noise,
                                    float *policy) {
  const int32_t params = brim_env_params(t.hidden);
  // Rows have gaps, and what is read with them has to be a number.
  for (int32_t i = (int32_t)threadIdx.x; i < brim_env_packed(t.hidden); i += (int32_t)blockDim.x) {
    policy[i] = 0.0f;
  }
  __syncthreads();
  for (int32_t quad = (int32_t)threadIdx.x; 4 * quad < params; quad += (int32_t)blockDim.x) {
    float delta[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (noise != 0.0f) brim_env_delta(t.delta_key, t.iteration, dir, quad, delta);
    for (int j = 0; j < 4 && 4 * quad + j < params; j++) {
      policy[brim_env_pack(t.hidden, 4 * quad + j)] =
          brim_fmaf(noise, delta[j], t.theta[4 * quad + j]);
    }
  }
}

// Statistics of what the lanes of an environment saw, a quarter of the numbers to each. In shared
// memory: they are touched once in a step, and registers are for the physics.
__device__ static void look(const brim_quad_lane_seen &seen, double *sums) {
  const int leg = (int)(threadIdx.x & 3);
  double *mine = sums + threadIdx.x;
#pragma unroll
  for (int i = 0; i < LANE_STATS; i++) {
    float x = seen.apart[LANES * i];
#pragma unroll
    for (int k = 1; k < LANES; k++) {
      if (LANES * i + k < BRIM_QUADRUPED_OBS && leg == k) x = seen.apart[LANES * i + k];
    }
    const double d = (double)x;
    double *sum = mine + 2 * i * blockDim.x, *square = sum + blockDim.x;
    *sum += d;
    *square = fma(d, d, *square);
  }
}

// One thread for each number, over the block's environments in their order.
__device__ static void add_up(const rollout_task &t, const brim_env_track *tracks,
                              const double *sums, int32_t count) {
  brim_env_found *out = &t.part[blockIdx.x];
  const int j = (int)threadIdx.x;
  if (j == 0) {
    brim_env_found f = {};
    for (int32_t e = 0; e < count; e++) {
      f.reward += tracks[e].reward;
      f.reward_sq += tracks[e].reward * tracks[e].reward;
      f.steps += tracks[e].steps;
      f.falls += tracks[e].falls;
      f.truncated += tracks[e].truncated;
      f.diverged += tracks[e].diverged;
    }
    out->reward = f.reward;
    out->reward_sq = f.reward_sq;
    out->steps = f.steps;
    out->falls = f.falls;
    out->truncated = f.truncated;
    out->diverged = f.diverged;
  }
  // Small parts have fewer threads than there are numbers.
  for (int n = j; n < BRIM_QUADRUPED_OBS; n += (int)blockDim.x) {
    double sum = 0, square = 0;
    for (int32_t e = 0; t.filter && e < count; e++) {
      const double *at = sums + 2 * (n / LANES) * blockDim.x + LANES * e + n % LANES;
      sum += at[0];
      square += at[blockDim.x];
    }
    out->sum[n] = sum;
    out->square[n] = square;
  }
}

__device__ static void note_episode(const rollout_task &t, const brim_env_track &track, int32_t env,
                                    float x) {
  brim_rollout_episode e;
  e.reward = (float)track.reward;
  e.distance = track.outcome == 2 ? nanf("") : x - track.start_x;
  e.length = track.step;
  e.outcome = track.outcome;
  t.episodes[env] = e;
}

template <bool HIDDEN, bool RK4, bool JUDGE>
__global__ void __launch_bounds__(THREADS, BRIM_ROLLOUT_BLOCKS)
    rollout_kernel(const __grid_constant__ rollout_task t) {
  float *normal = (float *)rollout_shared, *policy = normal + NORMAL_FLOATS;
  double *sums = (double *)(policy + (brim_env_packed(t.hidden) + 3) / 4 * 4);
  const int32_t pair = JUDGE ? 0 : (int32_t)blockIdx.x / t.parts;
  const int32_t part = (int32_t)blockIdx.x - pair * t.parts;
  const int32_t dir = t.first_dir + pair / 2;
  for (int i = (int)threadIdx.x; i < 2 * BRIM_QUADRUPED_OBS; i += (int)blockDim.x) {
    normal[i] = t.normal[i];
  }
  for (int i = (int)threadIdx.x; i < 2 * LANE_STATS * (int)blockDim.x; i += (int)blockDim.x) {
    if (!JUDGE && t.filter) sums[i] = 0;
  }
  build_policy(t, dir, pair % 2 ? -t.noise : t.noise, policy);
  __syncthreads();

  const int32_t env = part * BRIM_ENV_PART + (int32_t)threadIdx.x / LANES;
  const int32_t left = t.envs - part * BRIM_ENV_PART;
  const int32_t count = left < BRIM_ENV_PART ? left : BRIM_ENV_PART;
  brim_env_who who;
  who.start_key = t.start_key;
  who.push_key = t.push_key;
  who.iteration = (uint32_t)t.iteration;
  who.dir = (uint32_t)dir;
  // Lanes past the last environment run a copy of it: a warp steps as a whole.
  who.env = (uint32_t)(env < t.envs ? env : t.envs - 1);
  brim_quad_lane_task scene;
  scene.env = &t.env;
  scene.world = brim_quad_lane_world_make(t.env.timestep, t.env.margin, RK4);
  scene.hidden = HIDDEN ? t.hidden : 0;
  scene.policy = t.zero ? NULL : policy;
  scene.normal = normal;
  brim_env_track track = brim_env_track_of(who);
  brim_quad_lane_state state;
  bool over = true;  // a new episode begins

  for (int32_t step = 0; step < t.steps; step++) {
    if (over) brim_quad_lane_begin(&scene, &state, &track, 0);
    brim_quad_lane_push(&scene, &state, &track, 0);
    float ctrl[1][2];
    {
      brim_quad_lane_seen seen;
      brim_quad_lane_observe(&scene, &state, &seen);
      if (!JUDGE && t.filter && !(t.once && track.episode > 0)) look(seen, sums);
      brim_quad_lane_act(&scene, &seen, ctrl);
    }
    const float from = state.pos[0];
#pragma unroll 1
    for (int k = 0; k < t.env.frame_skip; k++) {
      brim_quad_lane_step(&scene.world, &state, ctrl, NULL);
    }
    const brim_quad_lane_outcome o = brim_quad_lane_judge(&scene, &state, ctrl, from);
    // With `once`, who is through steps on from a second start, and nothing of it counts.
    over = (JUDGE || !t.once || track.episode == 0) &&
           brim_env_after(&track, o.reward, o.fell > 0.0f, o.diverged > 0.0f, t.steps);
    if (JUDGE && over && track.episode == 0 && env < t.envs && threadIdx.x % LANES == 0) {
      note_episode(t, track, env, state.pos[0]);
    }
    track.episode += over;
    if ((JUDGE || t.once) && __all_sync(0xffffffffu, track.episode > 0)) break;
  }
  if (JUDGE) return;

  __shared__ brim_env_track tracks[BRIM_ENV_PART];
  if (threadIdx.x % LANES == 0) tracks[threadIdx.x / LANES] = track;
  __syncthreads();
  add_up(t, tracks, sums, count);
}

//---------------------------------- the table ----------------------------------

static brim_status refuse(const brim_rollout_shape *shape) {
  const char *problem = brim_env_problem(shape);
  return problem ? fail(BRIM_EINVAL, problem) : BRIM_OK;  // without conversions
}

// A block's policy lies in shared memory, of which GPUs have 48 to 227 KiB for one block. Asked of the
// device this thread works with.
static brim_status refuse_large(const brim_rollout_shape *shape) {
  int device, most;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess) {
    cudaGetLastError();  // no GPU: nothing runs here, and that is told elsewhere
    return BRIM_OK;
  }
  const int32_t envs = shape->num_envs / 2;
  const int32_t hidden = brim_block_hidden(shape->hidden, shape->filter, envs, (size_t)most);
  if (hidden == shape->hidden) return BRIM_OK;
  return fail(BRIM_EUNSUPPORTED,
              BRIM_N_("a hidden layer of %d units does not fit into the %d KiB of shared memory "
                      "that this GPU has for a policy; take at most %d units, or the CPU"),
              shape->hidden, most >> 10, hidden);
}

static brim_status layout(const brim_rollout_shape *shape, brim_rollout_layout *out) {
  BRIM_TRY(refuse(shape));
  BRIM_TRY(refuse_large(shape));
  brim_env_layout(shape, out);
  return BRIM_OK;
}

// A thread may hold several devices; memory of one says which is meant.
static brim_status enter(const void *memory) {
  cudaPointerAttributes at;
  BRIM_TRY(check(cudaPointerGetAttributes(&at, memory), "ars.rollout: the device's memory"));
  BRIM_TRY(check(cudaSetDevice(at.device), "cudaSetDevice"));
  cudaGetLastError();  // what other calls left behind is not ours
  return BRIM_OK;
}

static brim_status init(const brim_rollout_where *where, const brim_rollout_shape *shape,
                        void *block) {
  brim_rollout_layout at;
  BRIM_TRY(layout(shape, &at));
  BRIM_TRY(enter(block));
  cudaStream_t stream = (cudaStream_t)where->stream;
  BRIM_TRY(check(cudaMemsetAsync(block, 0, at.bytes, stream), "ars.rollout: init"));
  unsigned blocks = (unsigned)((at.params + ARS_THREADS - 1) / ARS_THREADS);
  ars_init_kernel<<<blocks, ARS_THREADS, 0, stream>>>(ars_block_of(shape, block), shape->hidden,
                                                      brim_rng_key(shape->seed, BRIM_RNG_INIT));
  return check(cudaGetLastError(), "ars.rollout: init");
}

template <bool HIDDEN, bool RK4, bool JUDGE>
static brim_status launch(const rollout_task *t, int64_t blocks, cudaStream_t stream) {
  const unsigned threads = (unsigned)brim_block_threads(t->envs);
  const size_t bytes = brim_block_dynamic(t->hidden, !JUDGE && t->filter, t->envs);
  if (blocks > INT32_MAX) {
    return fail(BRIM_EINVAL, "ars.rollout: %lld parts in one chunk: lower dir_chunk",
                (long long)blocks);
  }
  cudaFuncAttributes has;
  BRIM_TRY(check(cudaFuncGetAttributes(&has, rollout_kernel<HIDDEN, RK4, JUDGE>),
                 "ars.rollout: shared memory"));
  // What a block may have without asking is of static and dynamic memory together.
  if (has.sharedSizeBytes + bytes > (size_t)48 << 10) {
    // Large policies: as many blocks side by side as registers allow.
    BRIM_TRY(check(cudaFuncSetAttribute(rollout_kernel<HIDDEN, RK4, JUDGE>,
                                        cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared),
                   "ars.rollout: shared memory"));
    BRIM_TRY(check(cudaFuncSetAttribute(rollout_kernel<HIDDEN, RK4, JUDGE>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "ars.rollout: shared memory"));
  }
  rollout_kernel<HIDDEN, RK4, JUDGE><<<(unsigned)blocks, threads, bytes, stream>>>(*t);
  return check(cudaGetLastError(), "ars.rollout");
}

template <bool JUDGE>
static brim_status launch_form(const rollout_task *t, int64_t blocks, void *stream) {
  cudaStream_t s = (cudaStream_t)stream;
  if (t->hidden) {
    return t->env.rk4 ? launch<true, true, JUDGE>(t, blocks, s)
                      : launch<true, false, JUDGE>(t, blocks, s);
  }
  return t->env.rk4 ? launch<false, true, JUDGE>(t, blocks, s)
                    : launch<false, false, JUDGE>(t, blocks, s);
}

static rollout_task task_of(const brim_rollout_shape *shape, const ars_block &b,
                            const brim_env_who &who) {
  rollout_task t = {};
  t.env = shape->env;
  t.hidden = shape->hidden;
  t.steps = shape->episode_length;
  t.start_key = who.start_key;
  t.push_key = who.push_key;
  t.delta_key = brim_rng_key(shape->seed, BRIM_RNG_DELTA);
  t.theta = b.theta;
  t.normal = b.normal;
  return t;
}

static brim_status run(const brim_rollout_where *where, const brim_rollout_shape *shape,
                       void *block, const brim_rollout_job *job) {
  BRIM_TRY(refuse(shape));
  if (job->first_dir < 0 || job->dirs < 1 || job->dirs > shape->dir_chunk ||
      job->first_dir > shape->num_dirs - job->dirs) {
    return fail(BRIM_EINVAL, "ars.rollout: directions %d to %d are not a chunk of %d of %d",
                job->first_dir, job->first_dir + job->dirs - 1, shape->dir_chunk, shape->num_dirs);
  }
  BRIM_TRY(enter(block));
  BRIM_TRY(refuse_large(shape));
  const ars_block b = ars_block_of(shape, block);
  rollout_task t = task_of(shape, b, brim_env_training(shape->seed, 0, 0, 0));
  t.filter = shape->filter;
  t.once = shape->once;
  t.envs = shape->num_envs / 2;
  t.parts = brim_env_parts(t.envs);
  t.first_dir = job->first_dir;
  t.iteration = job->iteration;
  t.noise = job->noise_std;
  t.part = b.part;
  BRIM_TRY(launch_form<false>(&t, 2 * (int64_t)job->dirs * t.parts, where->stream));
  ars_gather_kernel<<<2 * (unsigned)job->dirs, 32, 0, (cudaStream_t)where->stream>>>(
      b, job->first_dir, t.parts, t.envs, job->shift);
  return check(cudaGetLastError(), "ars.rollout: returns");
}

static brim_status update(const brim_rollout_where *where, const brim_rollout_shape *shape,
                          void *block, int64_t iteration, int32_t top, float step_size) {
  BRIM_TRY(refuse(shape));
  if (top < 0 || top > shape->num_dirs) {
    return fail(BRIM_EINVAL, "ars.rollout: the best %d of %d directions cannot be kept", top,
                shape->num_dirs);
  }
  BRIM_TRY(enter(block));
  cudaStream_t s = (cudaStream_t)where->stream;
  const ars_block b = ars_block_of(shape, block);
  const int32_t dirs = shape->num_dirs, params = brim_env_params(shape->hidden);
  const unsigned rows = (unsigned)((dirs + ARS_THREADS - 1) / ARS_THREADS);
  const int32_t quads = (params + 3) / 4;
  ars_rank_kernel<<<rows, ARS_THREADS, 0, s>>>(b, dirs);
  ars_select_kernel<<<1, ARS_THREADS, 0, s>>>(b, dirs, top);
  ars_step_kernel<<<(unsigned)quads, ARS_THREADS, 0, s>>>(
      b, params, brim_rng_key(shape->seed, BRIM_RNG_DELTA), iteration, step_size);
  ars_norm_kernel<<<1, ARS_THREADS, 0, s>>>(b, quads);
  if (shape->filter) ars_filter_kernel<<<1, 32 * BRIM_QUADRUPED_OBS, 0, s>>>(b, dirs);
  return check(cudaGetLastError(), "ars.rollout: update");
}

static brim_status judge(const brim_rollout_where *where, const brim_rollout_shape *shape,
                         void *block, const brim_rollout_judge *j) {
  BRIM_TRY(refuse(shape));
  if (j->episodes < 1 || j->episodes > shape->eval_episodes) {
    return fail(BRIM_EINVAL, "ars.rollout: an evaluation of %d episodes where there is room for %d",
                j->episodes, shape->eval_episodes);
  }
  BRIM_TRY(enter(block));
  BRIM_TRY(refuse_large(shape));
  const ars_block b = ars_block_of(shape, block);
  rollout_task t = task_of(shape, b, brim_env_held_out(shape->seed, j->stream, 0));
  t.zero = j->zero;
  t.envs = j->episodes;
  t.parts = brim_env_parts(t.envs);
  t.episodes = b.episodes;
  return launch_form<true>(&t, t.parts, where->stream);
}

const brim_rollout_table brim_env_cuda_rollout = {BRIM_ROLLOUT_ABI, layout, init, run,
                                                  update,           judge};
