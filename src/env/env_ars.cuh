// The kernels of an ARS update, and what fills a block of memory first. A few blocks each; every sum
// has one order, so that the same returns give the same bits.
#ifndef BRIM_ENV_ARS_CUH_
#define BRIM_ENV_ARS_CUH_

#include "env/env_ars.h"

enum { ARS_THREADS = 128 };

// Pointers into a caller's block.
struct ars_block {
  float *theta, *normal, *returns;
  double *filter, *weight, *norms;
  void *found, *part;  // brim_env_found
  brim_rollout_tally *tally;
  brim_rollout_episode *episodes;
  brim_rollout_update *update;
  float *figures;
  int32_t *kept;
  brim_env_net net;
  int32_t agents;
};

static ars_block ars_block_of(const brim_rollout_shape *shape, void *memory) {
  brim_rollout_layout at;
  brim_env_layout(shape, &at);
  const brim_env_scratch in = brim_env_scratch_of(shape);
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
  b.net = brim_env_policy_of(shape);
  b.agents = brim_env_sizes_of(shape).agents;
  return b;
}

// After the block was filled with zeros.
static __global__ void ars_init_kernel(ars_block b, uint64_t key) {
  const int32_t p = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  if (p < b.net.obs) b.normal[b.net.obs + p] = 1.0f;
  if (!b.net.hidden || p >= brim_env_params(b.net)) return;
  float four[4];
  brim_env_delta(key, 0, 0, p / 4, four);
  b.theta[p] = four[p % 4] * brim_env_init_scale(b.net, p);
}

// The parts of a (direction, sign), in their order; one thread for each number, and
// the last thread for the tally.
static __global__ void ars_gather_kernel(ars_block b, int32_t first_dir, int32_t parts,
                                         int32_t half, float shift) {
  const int32_t obs = b.net.obs;
  const size_t each = brim_env_found_bytes(obs);
  const char *part = (const char *)b.part + (size_t)blockIdx.x * parts * each;
  const size_t to = 2 * (size_t)first_dir + blockIdx.x;
  brim_env_found *found = brim_env_found_at(b.found, obs, (int64_t)to);
  for (int32_t j = (int32_t)threadIdx.x; j < obs; j += (int32_t)blockDim.x) {
    double sum = 0, square = 0;
    for (int32_t p = 0; p < parts; p++) {
      const double *stats = (const double *)(part + p * each + sizeof(brim_env_found));
      sum += stats[j];
      square += stats[obs + j];
    }
    double *stats = brim_env_stats(found);
    stats[j] = sum;
    stats[obs + j] = square;
  }
  // The last thread: with fewer numbers than threads it has none of them.
  if (threadIdx.x != blockDim.x - 1) return;
  brim_rollout_tally t = {};
  t.envs = half;
  for (int32_t p = 0; p < parts; p++) {
    const brim_env_found *f = (const brim_env_found *)(part + p * each);
    t.reward += f->reward;
    t.reward_sq += f->reward_sq;
    t.steps += f->steps;
    t.terminated += f->terminated;
    t.truncated += f->truncated;
    t.diverged += f->diverged;
  }
  found->steps = t.steps;
  b.tally[to] = t;
  b.returns[to] = brim_env_return(t.reward, t.steps, shift, half);
}

//---------------------------------- directions ----------------------------------

__device__ static bool ars_usable(const float *returns, int32_t dir) {
  return isfinite(returns[2 * dir]) && isfinite(returns[2 * dir + 1]);
}

__device__ static float ars_best(const float *returns, int32_t dir) {
  float plus = returns[2 * dir], minus = returns[2 * dir + 1];
  return plus > minus ? plus : minus;
}

// A direction's rank is the number of better ones; of equal ones the first is better.
static __global__ void ars_rank_kernel(ars_block b, int32_t dirs) {
  const int32_t d = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  if (d >= dirs || !ars_usable(b.returns, d)) return;
  const float mine = ars_best(b.returns, d);
  int32_t rank = 0;
  for (int32_t o = 0; o < dirs; o++) {
    if (!ars_usable(b.returns, o)) continue;
    float other = ars_best(b.returns, o);
    rank += other > mine || (other == mine && o < d);
  }
  b.kept[rank] = d;
}

// The sum of the threads' values in every one of them.
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

// One block: how many directions, their deviation, and their weights in theta's step.
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
  u.skipped = !(used && brim_env_sigma_usable(u.sigma, mean));
  *b.update = u;
}

// A block for four numbers of theta, its threads over the directions that were kept.
static __global__ void __launch_bounds__(ARS_THREADS)
    ars_step_kernel(ars_block b, int32_t params, uint64_t key, int64_t iteration, float step_size) {
  __shared__ double room[ARS_THREADS];
  const int32_t quad = (int32_t)blockIdx.x;
  const brim_rollout_update u = *b.update;
  double sum[4] = {};
  for (int32_t i = (int32_t)threadIdx.x; !u.skipped && i < u.used; i += ARS_THREADS) {
    float delta[4];
    brim_env_delta(key, iteration, b.kept[i], quad, delta);
    for (int j = 0; j < 4; j++) sum[j] += b.weight[i] * (double)delta[j];
  }
  for (int j = 0; !u.skipped && j < 4; j++) sum[j] = ars_sum(sum[j], room);
  if (threadIdx.x) return;
  const double scale = u.skipped ? 0 : (double)step_size / (u.used * u.sigma);
  double change = 0, square = 0;
  for (int j = 0; j < 4 && 4 * quad + j < params; j++) {
    float was = b.theta[4 * quad + j];
    float is = u.skipped ? was : (float)((double)was + scale * sum[j]);
    b.theta[4 * quad + j] = is;
    change += ((double)is - (double)was) * ((double)is - (double)was);
    square += (double)is * (double)is;
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
  for (int far = 16; far > 0; far /= 2) x += __shfl_xor_sync(0xffffffffu, x, far);
  return x;
}

// A warp for each number of an observation. Up to 32 numbers they are one block, which also writes the
// count, when all have read it; else ars_count_kernel does.
enum { ARS_FILTER_WARPS = 32 };

static __global__ void __launch_bounds__(32 * ARS_FILTER_WARPS)
    ars_filter_kernel(ars_block b, int32_t dirs) {
  const int32_t obs = b.net.obs;
  const int j = (int)(blockIdx.x * ARS_FILTER_WARPS + threadIdx.x / 32);
  if (j >= obs) return;  // of several blocks: one has a warp for each number
  double steps = 0, sum = 0, square = 0;
  for (int32_t d = (int32_t)threadIdx.x % 32; d < 2 * dirs; d += 32) {
    const brim_env_found *found = brim_env_found_at(b.found, obs, d);
    const double *stats = brim_env_stats(found);
    steps += (double)found->steps;
    sum += stats[j];
    square += stats[obs + j];
  }
  steps = ars_warp_sum(steps);
  brim_env_seen s;
  s.had = b.filter[0];
  s.count = steps * b.agents;
  s.sum = ars_warp_sum(sum);
  s.square = ars_warp_sum(square);
  s.shift = (double)b.normal[j];
  if (gridDim.x == 1) __syncthreads();
  if (threadIdx.x % 32 || !(steps > 0)) return;
  double mean = b.filter[1 + j], m2 = b.filter[1 + obs + j];
  brim_env_filter_merge(s, &mean, &m2);
  b.filter[1 + j] = mean;
  b.filter[1 + obs + j] = m2;
  b.normal[j] = (float)mean;
  b.normal[obs + j] = brim_env_inverse_std(s.had + s.count, m2);
  if (gridDim.x == 1 && j == 0) b.filter[0] = s.had + s.count;
}

static __global__ void ars_count_kernel(ars_block b, int32_t dirs) {
  double steps = 0;
  for (int32_t d = (int32_t)threadIdx.x; d < 2 * dirs; d += 32) {
    steps += (double)brim_env_found_at(b.found, b.net.obs, d)->steps;
  }
  steps = ars_warp_sum(steps);
  if (threadIdx.x == 0 && steps > 0) b.filter[0] += steps * b.agents;
}

#endif  // BRIM_ENV_ARS_CUH_
