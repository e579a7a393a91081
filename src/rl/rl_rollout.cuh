// The table of an environment's rollouts on a GPU (brim_rollout_table) around its kernel: a template over a class
// E with
//   values                                      the environment's struct
//   hidden(shape, bytes)                        the largest hidden layer, up to the shape's, whose policy
//                                               fits into `bytes` bytes of a block's shared memory
//   launch(task, evaluate, blocks, stream)      launches one block for each part
// The kernels of the update come first. Every sum has a fixed order, so the same returns give the same bits. Each
// environment's .cu has its own copy of this file.
#ifndef BRIM_RL_ROLLOUT_CUH_
#define BRIM_RL_ROLLOUT_CUH_

#include "rl/rl_host.cuh"
#include "rl/rl_rollout_plan.h"

//---------------------------------- the update ----------------------------------

enum { ARS_THREADS = 128 };

// Pointers into a caller's block.
struct ars_block {
  float *theta, *normal, *returns;
  double *filter, *weight, *norms;
  void *found, *part;  // brim_rollout_found
  brim_rollout_tally *tally;
  brim_rollout_episode *episodes;
  brim_rollout_update *update;
  float *figures;
  int32_t *kept;
  brim_rollout_net net;
  int32_t agents;
};

static ars_block ars_block_of(const brim_rollout_shape *shape, void *memory) {
  brim_rollout_layout at;
  brim_rollout_layout_of(shape, &at);
  const brim_rollout_scratch in = brim_rollout_scratch_of(shape);
  char *base = (char *)memory, *scratch = base + at.scratch;
  ars_block b;
  b.theta = (float *)(base + at.theta);
  b.normal = (float *)(base + at.normal);
  b.returns = (float *)(base + at.returns);
  b.filter = (double *)(base + at.filter);
  b.weight = (double *)(scratch + in.weight);
  b.norms = (double *)(scratch + in.norms);
  b.found = scratch + in.found;
  b.part = scratch + in.part;
  b.tally = (brim_rollout_tally *)(base + at.tally);
  b.episodes = (brim_rollout_episode *)(base + at.episodes);
  b.update = (brim_rollout_update *)(base + at.update);
  b.figures = (float *)(base + at.figures);
  b.kept = (int32_t *)(scratch + in.kept);
  b.net = brim_rollout_policy_of(shape);
  b.agents = brim_rollout_sizes_of(shape).agents;
  return b;
}

// Runs after the block was filled with zeros.
static __global__ void ars_init_kernel(ars_block b, uint64_t key) {
  const int32_t p = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  if (p < b.net.obs) b.normal[b.net.obs + p] = 1.0f;
  if (!b.net.hidden || p >= brim_rollout_params(b.net)) return;
  float four[4];
  brim_rollout_delta(key, 0, 0, p / 4, four);
  b.theta[p] = four[p % 4] * brim_rollout_init_scale(b.net, p);
}

// Adds the parts of a (direction, sign) in their order: one thread for each number, and the last thread for the
// tally.
static __global__ void ars_gather_kernel(ars_block b, int32_t first_dir, int32_t parts,
                                         int32_t half, float shift) {
  const int32_t obs = b.net.obs;
  const size_t each = brim_rollout_found_bytes(obs);
  const char *part = (const char *)b.part + (size_t)blockIdx.x * parts * each;
  const size_t to = 2 * (size_t)first_dir + blockIdx.x;
  brim_rollout_found *found = brim_rollout_found_at(b.found, obs, (int64_t)to);
  for (int32_t j = (int32_t)threadIdx.x; j < obs; j += (int32_t)blockDim.x) {
    double sum = 0, square = 0;
    for (int32_t p = 0; p < parts; p++) {
      const double *stats = (const double *)(part + p * each + sizeof(brim_rollout_found));
      sum += stats[j];
      square += stats[obs + j];
    }
    double *stats = brim_rollout_found_stats(found);
    stats[j] = sum;
    stats[obs + j] = square;
  }
  // The last thread adds the tally, since it often has no numbers.
  if (threadIdx.x != blockDim.x - 1) return;
  brim_rollout_tally t = {};
  t.envs = half;
  for (int32_t p = 0; p < parts; p++) {
    const brim_rollout_found *f = (const brim_rollout_found *)(part + p * each);
    t.reward += f->reward;
    t.reward_sq += f->reward_sq;
    t.steps += f->steps;
    t.terminated += f->terminated;
    t.truncated += f->truncated;
    t.diverged += f->diverged;
  }
  found->steps = t.steps;
  b.tally[to] = t;
  b.returns[to] = brim_rollout_return(t.reward, t.steps, shift, half);
}

//---------------------------------- directions ----------------------------------

__device__ static bool ars_usable(const float *returns, int32_t dir) {
  return isfinite(returns[2 * dir]) && isfinite(returns[2 * dir + 1]);
}

__device__ static float ars_best(const float *returns, int32_t dir) {
  float plus = returns[2 * dir], minus = returns[2 * dir + 1];
  return plus > minus ? plus : minus;
}

// The rank of a direction is the number of better ones; among equal ones the first is better.
static __global__ void ars_rank_kernel(ars_block b, int32_t dirs) {
  const int32_t d = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  if (d >= dirs || !ars_usable(b.returns, d)) return;
  const float best = ars_best(b.returns, d);
  int32_t rank = 0;
  for (int32_t o = 0; o < dirs; o++) {
    if (!ars_usable(b.returns, o)) continue;
    float other = ars_best(b.returns, o);
    rank += other > best || (other == best && o < d);
  }
  b.kept[rank] = d;
}

// Sums x over the threads; every thread gets the result.
__device__ static double ars_sum(double x, double *room) {
  __syncthreads();
  room[threadIdx.x] = x;
  __syncthreads();
  for (int width = ARS_THREADS / 2; width > 0; width /= 2) {
    if ((int)threadIdx.x < width) room[threadIdx.x] += room[threadIdx.x + width];
    __syncthreads();
  }
  return room[0];
}

// One block: finds the number of directions used, the deviation of their returns, and their weights in theta's
// step.
static __global__ void ars_select_kernel(ars_block b, int32_t dirs, int32_t top) {
  __shared__ double room[ARS_THREADS];
  double usable = 0, sum = 0, square = 0;
  for (int32_t d = (int32_t)threadIdx.x; d < dirs; d += ARS_THREADS) {
    usable += ars_usable(b.returns, d);
  }
  int32_t used = (int32_t)ars_sum(usable, room);
  if (top > 0 && used > top) used = top;
  for (int32_t i = (int32_t)threadIdx.x; i < used; i += ARS_THREADS) {
    const float *r = &b.returns[2 * b.kept[i]];
    sum += (double)r[0] + (double)r[1];
    b.weight[i] = (double)r[0] - (double)r[1];
  }
  const double mean = used ? ars_sum(sum, room) / (2.0 * used) : 0;
  for (int32_t i = (int32_t)threadIdx.x; i < used; i += ARS_THREADS) {
    const float *r = &b.returns[2 * b.kept[i]];
    double plus = (double)r[0] - mean, minus = (double)r[1] - mean;
    square += plus * plus;
    square += minus * minus;
  }
  if (used) square = ars_sum(square, room);
  if (threadIdx.x) return;
  brim_rollout_update u = {};
  u.sigma = used ? sqrt(square / (2.0 * used)) : nan("");
  u.used = used;
  u.skipped = !(used && brim_rollout_sigma_usable(u.sigma, mean));
  *b.update = u;
}

// A block for four numbers of theta; its threads share the directions that were kept.
static __global__ void __launch_bounds__(ARS_THREADS)
    ars_step_kernel(ars_block b, int32_t params, uint64_t key, int64_t iteration, float step_size) {
  __shared__ double room[ARS_THREADS];
  const int32_t quad = (int32_t)blockIdx.x;
  const brim_rollout_update u = *b.update;
  double sum[4] = {};
  for (int32_t i = (int32_t)threadIdx.x; !u.skipped && i < u.used; i += ARS_THREADS) {
    float delta[4];
    brim_rollout_delta(key, iteration, b.kept[i], quad, delta);
    for (int j = 0; j < 4; j++) sum[j] += b.weight[i] * (double)delta[j];
  }
  for (int j = 0; !u.skipped && j < 4; j++) sum[j] = ars_sum(sum[j], room);
  if (threadIdx.x) return;
  const double scale = u.skipped ? 0 : (double)step_size / (u.used * u.sigma);
  double change = 0, square = 0;
  for (int j = 0; j < 4 && 4 * quad + j < params; j++) {
    float before = b.theta[4 * quad + j];
    float after = u.skipped ? before : (float)((double)before + scale * sum[j]);
    b.theta[4 * quad + j] = after;
    change += ((double)after - (double)before) * ((double)after - (double)before);
    square += (double)after * (double)after;
  }
  b.norms[2 * quad] = change;
  b.norms[2 * quad + 1] = square;
}

static __global__ void ars_norm_kernel(ars_block b, int32_t quads) {
  __shared__ double room[ARS_THREADS];
  double change = 0, square = 0;
  for (int32_t i = (int32_t)threadIdx.x; i < quads; i += ARS_THREADS) {
    change += b.norms[2 * i];
    square += b.norms[2 * i + 1];
  }
  change = ars_sum(change, room);
  square = ars_sum(square, room);
  if (threadIdx.x) return;
  b.update->step_norm = sqrt(change);
  b.update->theta_norm = sqrt(square);
}

//---------------------------------- filter ----------------------------------

__device__ static double ars_warp_sum(double x) {
  for (int distance = 16; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// A warp for each number of an observation. Up to 32 numbers are one block, which also writes the count once all
// warps have read it; for more numbers ars_count_kernel writes it.
enum { ARS_FILTER_WARPS = 32 };

static __global__ void __launch_bounds__(32 * ARS_FILTER_WARPS)
    ars_filter_kernel(ars_block b, int32_t dirs) {
  const int32_t obs = b.net.obs;
  const int j = (int)(blockIdx.x * ARS_FILTER_WARPS + threadIdx.x / 32);
  if (j >= obs) return;  // only with several blocks: a single block has a warp for each number
  double steps = 0, sum = 0, square = 0;
  for (int32_t d = (int32_t)threadIdx.x % 32; d < 2 * dirs; d += 32) {
    const brim_rollout_found *found = brim_rollout_found_at(b.found, obs, d);
    const double *stats = brim_rollout_found_stats(found);
    steps += (double)found->steps;
    sum += stats[j];
    square += stats[obs + j];
  }
  steps = ars_warp_sum(steps);
  brim_rollout_seen s;
  s.had = b.filter[0];
  s.count = steps * b.agents;
  s.sum = ars_warp_sum(sum);
  s.square = ars_warp_sum(square);
  s.shift = (double)b.normal[j];
  if (gridDim.x == 1) __syncthreads();
  if (threadIdx.x % 32 || !(steps > 0)) return;
  double mean = b.filter[1 + j], m2 = b.filter[1 + obs + j];
  brim_rollout_filter_merge(s, &mean, &m2);
  b.filter[1 + j] = mean;
  b.filter[1 + obs + j] = m2;
  b.normal[j] = (float)mean;
  b.normal[obs + j] = brim_rollout_inverse_std(s.had + s.count, m2);
  if (gridDim.x == 1 && j == 0) b.filter[0] = s.had + s.count;
}

static __global__ void ars_count_kernel(ars_block b, int32_t dirs) {
  double steps = 0;
  for (int32_t d = (int32_t)threadIdx.x; d < 2 * dirs; d += 32) {
    steps += (double)brim_rollout_found_at(b.found, b.net.obs, d)->steps;
  }
  steps = ars_warp_sum(steps);
  if (threadIdx.x == 0 && steps > 0) b.filter[0] += steps * b.agents;
}

//---------------------------------- for kernels ----------------------------------

template <class V>
struct rl_task {
  V env;
  int32_t hidden, steps, filter, once, zero;
  int32_t envs;   // environments of a (direction, sign), or of an evaluation
  int32_t parts;  // parts of these environments
  int32_t first_dir;
  int64_t iteration;
  float noise;
  uint64_t delta_key, start_key, event_key;
  const float *theta, *normal;
  void *part;                      // brim_rollout_found of each part of a rollout
  brim_rollout_episode *episodes;  // episodes of an evaluation
  float *figures;                  // figures of these episodes
};

// Builds theta +- noise * delta, packed as rollouts read it.
template <class V>
__device__ static void rl_build_policy(const rl_task<V> &t, brim_rollout_net net, int32_t dir,
                                       float noise, float *policy) {
  const int32_t params = brim_rollout_params(net);
  // Rollouts also read the gaps between rows, so fill them with a number.
  for (int32_t i = (int32_t)threadIdx.x; i < brim_rollout_packed(net); i += (int32_t)blockDim.x) {
    policy[i] = 0.0f;
  }
  __syncthreads();
  for (int32_t quad = (int32_t)threadIdx.x; 4 * quad < params; quad += (int32_t)blockDim.x) {
    float delta[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (noise != 0.0f) brim_rollout_delta(t.delta_key, t.iteration, dir, quad, delta);
    for (int j = 0; j < 4 && 4 * quad + j < params; j++) {
      policy[brim_rollout_pack(net, 4 * quad + j)] =
          brim_fmaf(noise, delta[j], t.theta[4 * quad + j]);
    }
  }
}

// Allows a kernel `bytes` of dynamic shared memory, if that is more than the default limit.
template <class K>
static brim_status rl_cuda_allow(K kernel, size_t bytes) {
  cudaFuncAttributes has;
  BRIM_TRY(rl_cuda_check(cudaFuncGetAttributes(&has, kernel), "ars.rollout: shared memory"));
  // The default limit holds for static and dynamic memory together.
  if (has.sharedSizeBytes + bytes <= (size_t)48 << 10) return BRIM_OK;
  // Prefer shared memory to L1 cache, so that more blocks with large policies fit.
  BRIM_TRY(
      rl_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared),
                    "ars.rollout: shared memory"));
  return rl_cuda_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
      "ars.rollout: shared memory");
}

//---------------------------------- the table ----------------------------------

static inline brim_status rl_cuda_refuse(const brim_rollout_shape *shape) {
  const char *problem = brim_rollout_problem(shape);
  // a plug-in's text may have a %
  return problem ? rl_cuda_fail(BRIM_EINVAL, "%s", rl_cuda_tr(problem)) : BRIM_OK;
}

template <class E>
struct rl_cuda_table {
  // A block's policy lies in shared memory; GPUs have 48 to 227 KiB of it for one block. Asks the current device.
  static brim_status refuse_large(const brim_rollout_shape *shape) {
    int device, most;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
            cudaSuccess) {
      cudaGetLastError();  // no GPU: nothing can run here, and other code reports that
      return BRIM_OK;
    }
    const int32_t hidden = E::hidden(shape, (size_t)most);
    if (hidden == shape->hidden) return BRIM_OK;
    if (hidden < 1) {
      const brim_env_sizes z = brim_rollout_sizes_of(shape);
      return rl_cuda_fail(BRIM_EUNSUPPORTED,
                          BRIM_N_("a policy from %d observations to %d actions does not fit into "
                                  "the %d KiB of shared memory that this GPU has for a policy; use "
                                  "device=cpu"),
                          z.obs, z.act, most >> 10);
    }
    return rl_cuda_fail(
        BRIM_EUNSUPPORTED,
        BRIM_N_("a hidden layer of %d units does not fit into the %d KiB of shared memory "
                "that this GPU has for a policy; take at most %d units, or the CPU"),
        shape->hidden, most >> 10, hidden);
  }

  static brim_status layout(const brim_rollout_shape *shape, brim_rollout_layout *out) {
    BRIM_TRY(rl_cuda_refuse(shape));
    BRIM_TRY(refuse_large(shape));
    brim_rollout_layout_of(shape, out);
    return BRIM_OK;
  }

  static brim_status init(const brim_rollout_where *where, const brim_rollout_shape *shape,
                          void *block) {
    brim_rollout_layout at;
    BRIM_TRY(layout(shape, &at));
    BRIM_TRY(rl_cuda_enter(block, "ars.rollout: the device's memory"));
    cudaStream_t stream = (cudaStream_t)where->stream;
    BRIM_TRY(rl_cuda_check(cudaMemsetAsync(block, 0, at.bytes, stream), "ars.rollout: init"));
    const size_t obs = (size_t)brim_rollout_sizes_of(shape).obs;
    const size_t numbers = at.params > obs ? at.params : obs;
    unsigned blocks = (unsigned)((numbers + ARS_THREADS - 1) / ARS_THREADS);
    ars_init_kernel<<<blocks, ARS_THREADS, 0, stream>>>(ars_block_of(shape, block),
                                                        brim_rng_key(shape->seed, BRIM_RNG_INIT));
    return rl_cuda_check(cudaGetLastError(), "ars.rollout: init");
  }

  static rl_task<typename E::values> task_of(const brim_rollout_shape *shape, const ars_block &b,
                                             const brim_env_ids &ids) {
    rl_task<typename E::values> t = {};
    memcpy(&t.env, shape->env.bytes, sizeof t.env);
    t.hidden = shape->hidden;
    t.steps = shape->episode_length;
    t.start_key = ids.start_key;
    t.event_key = ids.event_key;
    t.delta_key = brim_rng_key(shape->seed, BRIM_RNG_DELTA);
    t.theta = b.theta;
    t.normal = b.normal;
    return t;
  }

  static brim_status launch(const rl_task<typename E::values> *t, bool evaluate, int64_t blocks,
                            void *stream) {
    if (blocks > INT32_MAX) {
      return rl_cuda_fail(BRIM_EINVAL, "ars.rollout: %lld parts in one chunk: lower dir_chunk",
                          (long long)blocks);
    }
    return E::launch(t, evaluate, blocks, (cudaStream_t)stream);
  }

  static brim_status run(const brim_rollout_where *where, const brim_rollout_shape *shape,
                         void *block, const brim_rollout_job *job) {
    BRIM_TRY(rl_cuda_refuse(shape));
    if (job->first_dir < 0 || job->dirs < 1 || job->dirs > shape->dir_chunk ||
        job->first_dir > shape->num_dirs - job->dirs) {
      return rl_cuda_fail(
          BRIM_EINVAL, "ars.rollout: directions %d to %d are not a chunk of %d of %d",
          job->first_dir, job->first_dir + job->dirs - 1, shape->dir_chunk, shape->num_dirs);
    }
    BRIM_TRY(rl_cuda_enter(block, "ars.rollout: the device's memory"));
    BRIM_TRY(refuse_large(shape));
    const ars_block b = ars_block_of(shape, block);
    rl_task<typename E::values> t = task_of(shape, b, brim_env_training(shape->seed, 0, 0, 0));
    t.filter = shape->filter;
    t.once = shape->once;
    t.envs = shape->num_envs / 2;
    t.parts = brim_rollout_parts(t.envs);
    t.first_dir = job->first_dir;
    t.iteration = job->iteration;
    t.noise = job->noise_std;
    t.part = b.part;
    BRIM_TRY(launch(&t, false, 2 * (int64_t)job->dirs * t.parts, where->stream));
    ars_gather_kernel<<<2 * (unsigned)job->dirs, 32, 0, (cudaStream_t)where->stream>>>(
        b, job->first_dir, t.parts, t.envs, job->shift);
    return rl_cuda_check(cudaGetLastError(), "ars.rollout: returns");
  }

  static void take_in(const ars_block &b, int32_t dirs, cudaStream_t s) {
    const int32_t obs = b.net.obs;
    if (obs <= ARS_FILTER_WARPS) {
      ars_filter_kernel<<<1, 32 * (unsigned)obs, 0, s>>>(b, dirs);
      return;
    }
    const unsigned blocks = (unsigned)((obs + ARS_FILTER_WARPS - 1) / ARS_FILTER_WARPS);
    ars_filter_kernel<<<blocks, 32 * ARS_FILTER_WARPS, 0, s>>>(b, dirs);
    ars_count_kernel<<<1, 32, 0, s>>>(b, dirs);
  }

  static brim_status update(const brim_rollout_where *where, const brim_rollout_shape *shape,
                            void *block, int64_t iteration, int32_t top, float step_size) {
    BRIM_TRY(rl_cuda_refuse(shape));
    if (top < 0 || top > shape->num_dirs) {
      return rl_cuda_fail(BRIM_EINVAL, "ars.rollout: the best %d of %d directions cannot be kept",
                          top, shape->num_dirs);
    }
    BRIM_TRY(rl_cuda_enter(block, "ars.rollout: the device's memory"));
    cudaStream_t s = (cudaStream_t)where->stream;
    const ars_block b = ars_block_of(shape, block);
    const int32_t dirs = shape->num_dirs, params = brim_rollout_params(b.net);
    const unsigned rows = (unsigned)((dirs + ARS_THREADS - 1) / ARS_THREADS);
    const int32_t quads = (params + 3) / 4;
    ars_rank_kernel<<<rows, ARS_THREADS, 0, s>>>(b, dirs);
    ars_select_kernel<<<1, ARS_THREADS, 0, s>>>(b, dirs, top);
    ars_step_kernel<<<(unsigned)quads, ARS_THREADS, 0, s>>>(
        b, params, brim_rng_key(shape->seed, BRIM_RNG_DELTA), iteration, step_size);
    ars_norm_kernel<<<1, ARS_THREADS, 0, s>>>(b, quads);
    if (shape->filter) take_in(b, dirs, s);
    return rl_cuda_check(cudaGetLastError(), "ars.rollout: update");
  }

  static brim_status evaluate(const brim_rollout_where *where, const brim_rollout_shape *shape,
                              void *block, const brim_rollout_eval *eval) {
    BRIM_TRY(rl_cuda_refuse(shape));
    if (eval->episodes < 1 || eval->episodes > shape->eval_episodes) {
      return rl_cuda_fail(BRIM_EINVAL,
                          "ars.rollout: an evaluation of %d episodes where there is room for %d",
                          eval->episodes, shape->eval_episodes);
    }
    BRIM_TRY(rl_cuda_enter(block, "ars.rollout: the device's memory"));
    BRIM_TRY(refuse_large(shape));
    const ars_block b = ars_block_of(shape, block);
    rl_task<typename E::values> t =
        task_of(shape, b, brim_env_held_out(shape->seed, eval->stream, 0));
    t.zero = eval->zero;
    t.envs = eval->episodes;
    t.parts = brim_rollout_parts(t.envs);
    t.episodes = b.episodes;
    t.figures = b.figures;
    return launch(&t, true, t.parts, where->stream);
  }
};

// Defines the table `name` of the kernels E, and the function `set_host`, to be called before the table is used.
#define BRIM_ROLLOUT_CUDA_TABLE(name, set_host, E)                                        \
  extern "C" {                                                                            \
  extern const brim_rollout_table name;                                                   \
  const brim_rollout_table name = {BRIM_ROLLOUT_ABI,         rl_cuda_table<E>::layout,    \
                                   rl_cuda_table<E>::init,   rl_cuda_table<E>::run,       \
                                   rl_cuda_table<E>::update, rl_cuda_table<E>::evaluate}; \
  void set_host(const brim_host_api *host) { rl_cuda_host = host; }                       \
  }

#endif  // BRIM_RL_ROLLOUT_CUH_
