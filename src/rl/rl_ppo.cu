// PPO on a GPU: the extension BRIM_PPO_EXTENSION. Each row of an actor, value of a critic or (env, reward) pair has
// a thread. Rows of a few numbers go through shared memory, so that memory is read and written in whole lines. Sums
// have the order of rl_ppo_row.h.
#include "rl/rl_ppo.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "rl/rl_host.cuh"
#include "rl/rl_ppo_row.h"

enum { LANES = BRIM_PPO_LANES, MERGE = BRIM_PPO_MERGE_LANES };

//---------------------------------- types of activations ----------------------------------

__device__ static float ppo_load(const float *p) { return *p; }
__device__ static float ppo_load(const __nv_bfloat16 *p) { return __bfloat162float(*p); }
__device__ static float ppo_load(const __half *p) { return __half2float(*p); }
__device__ static void ppo_store(float *p, float x) { *p = x; }
__device__ static void ppo_store(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }
__device__ static void ppo_store(__half *p, float x) { *p = __float2half_rn(x); }

// Rows of a block of threads in shared memory. An odd stride avoids bank conflicts.
struct ppo_tile {
  int32_t width, stride;
  bool whole;  // the tensor is aligned for 16-byte accesses
};

static ppo_tile ppo_tile_of(const brim_tensor *t, const void *second) {
  ppo_tile tile;
  tile.width = (int32_t)t->dim[1];
  tile.stride = tile.width | 1;
  tile.whole = ((uintptr_t)t->data | (uintptr_t)second) % 16 == 0;
  return tile;
}

static size_t ppo_tile_bytes(ppo_tile t) { return (size_t)(LANES * t.stride) * sizeof(float); }

// Loads `count` numbers, beginning with the first row of a tile.
template <class T>
__device__ static void ppo_fetch(const T *from, int32_t count, ppo_tile tile, float *room) {
  const int32_t each = 16 / (int32_t)sizeof(T), vectors = tile.whole ? count / each : 0;
  for (int32_t v = (int32_t)threadIdx.x; v < vectors; v += LANES) {
    const uint4 pack = __ldcs((const uint4 *)from + v);
    const T *numbers = (const T *)&pack;
    if (tile.width == tile.stride) {
#pragma unroll
      for (int32_t i = 0; i < each; i += 4) {
        ((float4 *)room)[(v * each + i) / 4] =
            make_float4(ppo_load(&numbers[i]), ppo_load(&numbers[i + 1]), ppo_load(&numbers[i + 2]),
                        ppo_load(&numbers[i + 3]));
      }
      continue;
    }
    int32_t row = v * each / tile.width, column = v * each - row * tile.width;
#pragma unroll
    for (int32_t i = 0; i < each; i++) {
      room[row * tile.stride + column] = ppo_load(&numbers[i]);
      if (++column == tile.width) {
        column = 0;
        row++;
      }
    }
  }
  for (int32_t e = vectors * each + (int32_t)threadIdx.x; e < count; e += LANES) {
    const int32_t row = e / tile.width;
    room[row * tile.stride + e - row * tile.width] = ppo_load(&from[e]);
  }
}

template <class T>
__device__ static void ppo_put(T *to, int32_t count, ppo_tile tile, const float *room) {
  const int32_t each = 16 / (int32_t)sizeof(T), vectors = tile.whole ? count / each : 0;
  for (int32_t v = (int32_t)threadIdx.x; v < vectors; v += LANES) {
    uint4 pack;
    T *numbers = (T *)&pack;
    if (tile.width == tile.stride) {
#pragma unroll
      for (int32_t i = 0; i < each; i += 4) {
        const float4 four = ((const float4 *)room)[(v * each + i) / 4];
        ppo_store(&numbers[i], four.x);
        ppo_store(&numbers[i + 1], four.y);
        ppo_store(&numbers[i + 2], four.z);
        ppo_store(&numbers[i + 3], four.w);
      }
    } else {
      int32_t row = v * each / tile.width, column = v * each - row * tile.width;
#pragma unroll
      for (int32_t i = 0; i < each; i++) {
        ppo_store(&numbers[i], room[row * tile.stride + column]);
        if (++column == tile.width) {
          column = 0;
          row++;
        }
      }
    }
    ((uint4 *)to)[v] = pack;
  }
  for (int32_t e = vectors * each + (int32_t)threadIdx.x; e < count; e += LANES) {
    const int32_t row = e / tile.width;
    ppo_store(&to[e], room[row * tile.stride + e - row * tile.width]);
  }
}

// A thread's row for the arithmetic: in registers for few actions (the mask hides those past the last), else in
// shared memory.
template <int ACT>
struct ppo_row {
  float x[ACT];
  __device__ ppo_row(float *at, int32_t act) {
#pragma unroll
    for (int a = 0; a < ACT; a++) x[a] = a < act ? at[a] : 0.0f;
  }
  __device__ float *numbers() { return x; }
  __device__ static int32_t count(int32_t) { return ACT; }
  __device__ void write_back(float *at, int32_t act) const {
#pragma unroll
    for (int a = 0; a < ACT; a++) {
      if (a < act) at[a] = x[a];
    }
  }
};

template <>
struct ppo_row<0> {
  float *x;
  __device__ ppo_row(float *at, int32_t) : x(at) {}
  __device__ float *numbers() { return x; }
  __device__ static int32_t count(int32_t act) { return act; }
  __device__ void write_back(float *, int32_t) const {}
};

//---------------------------------- sums ----------------------------------

// Sums over the threads; thread 0 gets the result. THREADS is 128 or 256; `room` holds half as many sets.
template <int THREADS, int COUNT>
__device__ static void ppo_tree(double (&sum)[COUNT], double (*room)[COUNT]) {
  const int lane = (int)threadIdx.x;
#pragma unroll
  for (int width = THREADS / 2; width >= 32; width /= 2) {
    __syncthreads();
    if (lane >= width && lane < 2 * width) {
#pragma unroll
      for (int k = 0; k < COUNT; k++) room[lane - width][k] = sum[k];
    }
    __syncthreads();
    if (lane < width) {
#pragma unroll
      for (int k = 0; k < COUNT; k++) sum[k] += room[lane][k];
    }
  }
  if (lane >= 32) return;
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) sum[k] += __shfl_down_sync(0xffffffffu, sum[k], width);
  }
}

// Sums the parts; thread 0 gets the result.
__device__ static double ppo_merge(const double *parts, int64_t count, double (*room)[1]) {
  double sum[1] = {0};
  for (int64_t i = threadIdx.x; i < count; i += MERGE) sum[0] += parts[i];
  ppo_tree<MERGE, 1>(sum, room);
  return sum[0];
}

//---------------------------------- actions ----------------------------------

template <class T>
struct ppo_sample_args {
  const T *outputs;
  ppo_tile tile;
  int64_t rows, first;
  const uint64_t *mask, *clock;
  uint64_t key;
  int32_t act, t, best;
  int32_t *action;
  float *logp;
  int64_t *bad;
};

template <class T, int ACT>
static __global__ void __launch_bounds__(LANES) ppo_sample_kernel(ppo_sample_args<T> w) {
  extern __shared__ __align__(16) float ppo_room[];
  const int64_t tile = (int64_t)blockIdx.x * LANES, i = tile + threadIdx.x;
  const int32_t here = (int32_t)(w.rows - tile < LANES ? w.rows - tile : LANES);
  const bool on = i < w.rows;
  const uint64_t mask = (on && w.mask ? w.mask[i] : ~0ull) & brim_ppo_mask_all(w.act);
  const uint64_t when = *w.clock + (uint64_t)w.t;
  ppo_fetch(w.outputs + tile * w.tile.width, here * w.tile.width, w.tile, ppo_room);
  const uint32_t bits = brim_ppo_bits(w.key, when, w.first + i);
  __syncthreads();
  bool bad = false;
  if (on) {
    ppo_row<ACT> row(ppo_room + (int32_t)threadIdx.x * w.tile.stride, w.act);
    const brim_ppo_choice c =
        brim_ppo_choose(row.numbers(), ppo_row<ACT>::count(w.act), mask, bits, w.best);
    bad = c.action < 0;
    w.action[i] = bad ? 0 : c.action;
    if (w.logp) w.logp[i] = c.logp;
  }
  const int lost = __syncthreads_count(bad);
  if (threadIdx.x == 0 && lost) atomicAdd((unsigned long long *)w.bad, (unsigned long long)lost);
}

//---------------------------------- rows ----------------------------------

static __global__ void ppo_rows_kernel(brim_ppo_rows w) {
  __shared__ brim_shuffle order;
  if (threadIdx.x == 0) order = brim_ppo_order(w.seed, *w.clock, w.epoch, w.total);
  __syncthreads();
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < w.count) w.rows[i] = (int32_t)brim_shuffle_at(&order, (uint64_t)(w.first + i));
}

//---------------------------------- advantages ----------------------------------

template <class T>
struct ppo_back_args {
  const T *values;
  int64_t width;  // numbers per row of `values`
  const float *reward;
  const int8_t *end;
  const int32_t *final;
  float gamma, decay;
  const brim_ppo_norm *norm;
  float *adv, *ret, *old;
  double *parts;  // (number, chunk), followed by the sums of the first pass
  int64_t columns;
  int32_t steps, envs, rewards, finals;
};

enum {
  PPO_AHEAD = 8
};  // steps whose numbers are read at once, so that the recursion does not wait for them

template <class T>
struct ppo_ahead {
  float reward[PPO_AHEAD], value[PPO_AHEAD];
  int32_t end[PPO_AHEAD];

  // Reads steps t, t - 1, ... down to 0.
  __device__ void read(const ppo_back_args<T> &w, int32_t t, int64_t env, int64_t column,
                       int64_t at) {
#pragma unroll
    for (int i = 0; i < PPO_AHEAD; i++) {
      const int64_t step = t - i;
      if (step < 0) continue;
      reward[i] = w.reward[step * w.columns + column];
      end[i] = w.end[step * w.envs + env];
      value[i] = ppo_load(&w.values[(step * w.envs + env) * w.width + at]);
    }
  }
};

template <class T>
__device__ static void ppo_go_back(const ppo_back_args<T> &w, int64_t column, double *sums) {
  const brim_ppo_scale scale = brim_ppo_scale_of(w.norm);
  const int64_t env = column / w.rewards, reward = column - env * w.rewards;
  const T *last = w.values + ((int64_t)w.steps * w.envs + env) * w.width + reward;
  float after = brim_ppo_value_of(scale, ppo_load(last)), carry = 0.0f;
  ppo_ahead<T> next;
  next.read(w, w.steps - 1, env, column, reward);
  for (int32_t t = w.steps - 1; t >= 0; t -= PPO_AHEAD) {
    const ppo_ahead<T> now = next;
    next.read(w, t - PPO_AHEAD, env, column, reward);
#pragma unroll
    for (int i = 0; i < PPO_AHEAD; i++) {
      const int64_t step = t - i;
      if (step < 0) continue;
      if (now.end[i] != BRIM_ENV_RUNNING) {
        int32_t final = -1;
        if (now.end[i] == BRIM_ENV_TRUNCATED) final = w.final[step * w.envs + env];
        after = carry = 0.0f;
        if (final >= 0 && final < w.finals) {
          const int64_t state = ((int64_t)w.steps + 1 + final) * w.envs + env;
          after = brim_ppo_value_of(scale, ppo_load(&w.values[state * w.width + reward]));
        }
      }
      const float value = brim_ppo_value_of(scale, now.value[i]);
      const float adv = brim_ppo_step_back(now.reward[i], value, after, w.gamma, w.decay, carry);
      const float ret = adv + value;
      const int64_t to = step * w.columns + column;
      w.adv[to] = adv;
      w.ret[to] = ret;
      w.old[to] = value;
      carry = adv;
      after = value;
      if (!brim_ppo_finite(adv) || !brim_ppo_finite(ret)) {
        sums[BRIM_PPO_SUM_BAD] += 1;
        continue;
      }
      sums[BRIM_PPO_SUM_ADV] += (double)adv;
      sums[BRIM_PPO_SUM_RET] += (double)ret;
      sums[BRIM_PPO_SUM_SQUARE] += (double)ret * (double)ret;
    }
  }
}

template <class T>
static __global__ void __launch_bounds__(LANES) ppo_back_kernel(ppo_back_args<T> w) {
  __shared__ double room[LANES / 2][BRIM_PPO_SUMS];
  const int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x;
  double sums[BRIM_PPO_SUMS] = {};
  if (column < w.columns) ppo_go_back(w, column, sums);
  ppo_tree<LANES, BRIM_PPO_SUMS>(sums, room);
  if (threadIdx.x) return;
  for (int k = 0; k < BRIM_PPO_SUMS; k++) w.parts[k * (int64_t)gridDim.x + blockIdx.x] = sums[k];
}

// One block. It writes the sums after the parts.
static __global__ void __launch_bounds__(MERGE) ppo_sums_kernel(double *parts, int64_t chunks) {
  __shared__ double room[MERGE / 2][1];
  for (int k = 0; k < BRIM_PPO_SUMS; k++) {
    const double sum = ppo_merge(parts + k * chunks, chunks, room);
    if (threadIdx.x == 0) parts[BRIM_PPO_SUMS * chunks + k] = sum;
  }
}

static __global__ void __launch_bounds__(LANES)
    ppo_devs_kernel(const float *advs, const float *rets, double *parts, int64_t columns,
                    int32_t steps) {
  __shared__ double room[LANES / 2][BRIM_PPO_DEVS];
  const int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x, chunks = gridDim.x;
  double devs[BRIM_PPO_DEVS] = {}, adv_mean, ret_mean;
  brim_ppo_means(parts + BRIM_PPO_SUMS * chunks, columns * steps, &adv_mean, &ret_mean);
  if (column < columns) {
#pragma unroll 8
    for (int32_t t = steps - 1; t >= 0; t--) {
      const float adv = advs[t * columns + column], ret = rets[t * columns + column];
      if (!brim_ppo_finite(adv) || !brim_ppo_finite(ret)) continue;
      const double x = (double)adv - adv_mean, y = (double)ret - ret_mean;
      devs[BRIM_PPO_DEV_ADV] += x * x;
      devs[BRIM_PPO_DEV_RET] += y * y;
    }
  }
  ppo_tree<LANES, BRIM_PPO_DEVS>(devs, room);
  if (threadIdx.x) return;
  for (int k = 0; k < BRIM_PPO_DEVS; k++) parts[k * chunks + blockIdx.x] = devs[k];
}

static __global__ void __launch_bounds__(MERGE)
    ppo_moments_kernel(const double *parts, int64_t chunks, int64_t numbers,
                       brim_ppo_moments *moments, brim_ppo_norm *norm, float beta) {
  __shared__ double room[MERGE / 2][1];
  double devs[BRIM_PPO_DEVS];
  for (int k = 0; k < BRIM_PPO_DEVS; k++) devs[k] = ppo_merge(parts + k * chunks, chunks, room);
  if (threadIdx.x) return;
  const double *sums = parts + BRIM_PPO_SUMS * chunks;
  brim_ppo_finish(sums, devs, numbers, moments);
  brim_ppo_norm_take(norm, sums, moments, beta);
}

//---------------------------------- losses ----------------------------------

template <class T>
struct ppo_net {
  const T *output;
  T *gradient;
  const double *state;
};

template <class T>
struct ppo_loss_args {
  ppo_net<T> actor;
  ppo_net<T> critic;
  ppo_tile tile;
  int64_t critic_width;
  const int32_t *rows, *action;
  const uint64_t *mask;
  const float *logp, *adv, *ret, *old;
  const brim_ppo_norm *norm;
  const brim_ppo_moments *moments;
  float clip, value_clip, value_coef, entropy, huber;
  int32_t act, agents, rewards;
  int64_t actor_rows, values;
  brim_ppo_parts parts;
  double *sums;
};

__device__ static float ppo_gradient_scale(const double *state) {
  return (float)(state[BRIM_STATE_GRAD_SCALE] * state[BRIM_STATE_LOSS_SCALE]);
}

// The place of row i of the actor: its number and agent in the minibatch, its row in the rollout.
struct ppo_spot {
  uint32_t number, agent;
  int32_t from;
};

template <class T>
__device__ static ppo_spot ppo_spot_of(const ppo_loss_args<T> &w, int64_t i) {
  ppo_spot s;
  s.number = (uint32_t)i / (uint32_t)w.agents;
  s.agent = (uint32_t)i - s.number * (uint32_t)w.agents;
  s.from = w.rows[s.number];
  return s;
}

// Returns the inputs of a row's loss besides the outputs; read before the outputs arrive.
template <class T>
__device__ static brim_ppo_policy_input ppo_case_of(const ppo_loss_args<T> &w, int64_t i,
                                                    ppo_spot s) {
  const int64_t at = (int64_t)s.from * w.agents + s.agent;
  brim_ppo_policy_input c;
  c.mask = (w.mask ? w.mask[i] : ~0ull) & brim_ppo_mask_all(w.act);
  c.action = w.action[at];
  c.logp = w.logp[at];
  c.adv = w.adv[w.rewards == 1 ? s.from : at];
  c.clip = w.clip;
  c.entropy = w.entropy;
  return c;
}

template <class T, int ACT>
__device__ static void ppo_actor_chunk(const ppo_loss_args<T> &w, float *room, double *sums) {
  const int64_t valid = (int64_t)w.actor.state[BRIM_STATE_ROWS];
  const float scale = ppo_gradient_scale(w.actor.state);
  const float shift = w.moments ? w.moments->shift : 0.0f;
  const float adv_scale = w.moments ? w.moments->scale : 1.0f;
  float *mine = room + (int32_t)threadIdx.x * w.tile.stride;
  const int64_t first = (int64_t)blockIdx.x * BRIM_PPO_CHUNK + threadIdx.x;
  ppo_spot spot = {};
  if (first < valid) spot = ppo_spot_of(w, first);
  int32_t rows = 0, bad = 0, clipped = 0;  // integers: exact, and cheaper to add
  for (int32_t k = 0; k < BRIM_PPO_CHUNK / LANES; k++) {
    const int64_t tile = (int64_t)blockIdx.x * BRIM_PPO_CHUNK + k * LANES, i = tile + threadIdx.x;
    if (tile >= w.actor_rows) break;
    const int32_t here = (int32_t)(w.actor_rows - tile < LANES ? w.actor_rows - tile : LANES);
    brim_ppo_policy_input c = {};
    if (i < valid) c = ppo_case_of(w, i, spot);
    if (i + LANES < valid) spot = ppo_spot_of(w, i + LANES);  // for the next tile, ahead of time
    ppo_fetch(w.actor.output + tile * w.tile.width, here * w.tile.width, w.tile, room);
    __syncthreads();
    if (i < valid) {
      c.adv = (c.adv - shift) * adv_scale;
      c.scale = scale;
      ppo_row<ACT> row(mine, w.act);
      const brim_ppo_policy_loss f = brim_ppo_policy(row.numbers(), ppo_row<ACT>::count(w.act), &c);
      row.write_back(mine, w.act);
      rows += 1;
      bad += f.bad;
      clipped += f.clipped;
      sums[BRIM_PPO_POLICY_LOSS] += (double)f.loss;
      sums[BRIM_PPO_ENTROPY] += (double)f.entropy;
      sums[BRIM_PPO_KL] += (double)f.kl;
      for (int32_t a = w.act; a < w.tile.width; a++) mine[a] = 0.0f;
    } else {
      for (int32_t a = 0; a < w.tile.width; a++) mine[a] = 0.0f;
    }
    __syncthreads();
    ppo_put(w.actor.gradient + tile * w.tile.width, here * w.tile.width, w.tile, room);
    __syncthreads();
  }
  sums[BRIM_PPO_ROWS] = rows;
  sums[BRIM_PPO_BAD] = bad;
  sums[BRIM_PPO_CLIPPED] = clipped;
}

template <class T>
__device__ static void ppo_critic_chunk(const ppo_loss_args<T> &w, int64_t chunk, double *sums) {
  const int64_t valid = (int64_t)w.critic.state[BRIM_STATE_ROWS];
  const float scale =
      brim_ppo_value_scale(w.value_coef, w.rewards, ppo_gradient_scale(w.critic.state));
  const brim_ppo_scale norm = brim_ppo_scale_of(w.norm);
#pragma unroll 4
  for (int32_t k = 0; k < BRIM_PPO_CHUNK / LANES; k++) {
    const int64_t i = chunk * BRIM_PPO_CHUNK + k * LANES + threadIdx.x;
    if (i >= w.values) continue;
    const uint32_t row = (uint32_t)i / (uint32_t)w.rewards;
    const int64_t reward = (uint32_t)i - row * (uint32_t)w.rewards;
    const int64_t to = row * w.critic_width + reward;
    float slope = 0.0f;
    if (row < valid) {
      const int64_t at = (int64_t)w.rows[row] * w.rewards + reward;
      const float value = ppo_load(&w.critic.output[to]);
      const float target = brim_ppo_normal_of(norm, w.ret[at]);
      const float old = brim_ppo_normal_of(norm, w.old[at]);
      const brim_ppo_value_loss v = brim_ppo_value(value, old, target, w.value_clip, w.huber);
      brim_ppo_count_value(&v, value, target, sums);
      slope = v.slope * scale;
    }
    ppo_store(&w.critic.gradient[to], slope);
    for (int64_t c = w.rewards; reward == 0 && c < w.critic_width; c++) {
      ppo_store(&w.critic.gradient[to + c], 0.0f);
    }
  }
}

template <class T, int ACT>
static __global__ void __launch_bounds__(LANES) ppo_loss_kernel(ppo_loss_args<T> w) {
  enum { ACTOR = BRIM_PPO_ACTOR_METRICS, CRITIC = BRIM_PPO_METRIC_COUNT - ACTOR };
  extern __shared__ __align__(16) float ppo_room[];
  __shared__ double room[LANES / 2 * CRITIC];
  if (blockIdx.x < w.parts.actor) {
    double sums[ACTOR] = {};
    ppo_actor_chunk<T, ACT>(w, ppo_room, sums);
    ppo_tree<LANES, ACTOR>(sums, (double(*)[ACTOR])room);
    if (threadIdx.x) return;
    for (int k = 0; k < ACTOR; k++) w.sums[brim_ppo_part_at(w.parts, k) + blockIdx.x] = sums[k];
    return;
  }
  const int64_t chunk = blockIdx.x - w.parts.actor;
  double sums[CRITIC] = {};
  ppo_critic_chunk(w, chunk, sums);
  ppo_tree<LANES, CRITIC>(sums, (double(*)[CRITIC])room);
  if (threadIdx.x) return;
  for (int k = 0; k < CRITIC; k++) {
    w.sums[brim_ppo_part_at(w.parts, ACTOR + k) + chunk] = sums[k];
  }
}

// Each block sums one metric.
static __global__ void __launch_bounds__(MERGE)
    ppo_metrics_kernel(const double *sums, brim_ppo_parts parts, double *metrics) {
  __shared__ double room[MERGE / 2][1];
  const int32_t k = (int32_t)blockIdx.x;
  const int64_t count = k < BRIM_PPO_ACTOR_METRICS ? parts.actor : parts.critic;
  const double sum = ppo_merge(sums + brim_ppo_part_at(parts, k), count, room);
  if (threadIdx.x == 0) metrics[k] += sum;
}

//---------------------------------- the table ----------------------------------

static brim_status ppo_refuse(const char *problem) {
  return problem ? rl_cuda_fail(BRIM_EINVAL, "%s", rl_cuda_tr(problem)) : BRIM_OK;
}

static unsigned ppo_blocks(int64_t numbers, int64_t each) {
  return (unsigned)brim_ppo_chunks(numbers, each);
}

static brim_status ppo_scratch(const brim_ppo_shape *shape, size_t *bytes) {
  BRIM_TRY(ppo_refuse(brim_ppo_problem(shape)));
  *bytes = brim_ppo_scratch_of(shape);
  return BRIM_OK;
}

// Calls fn with a null pointer of the tensor's type.
template <class F>
static void ppo_by_type(brim_dtype type, F fn) {
  if (type == BRIM_F32) fn((float *)NULL);
  if (type == BRIM_BF16) fn((__nv_bfloat16 *)NULL);
  if (type == BRIM_F16) fn((__half *)NULL);
}

template <class T>
static void ppo_sample_launch(const ppo_sample_args<T> &a, cudaStream_t stream) {
  const unsigned blocks = ppo_blocks(a.rows, LANES);
  const size_t room = ppo_tile_bytes(a.tile);
  if (a.act <= 5) {
    ppo_sample_kernel<T, 5><<<blocks, LANES, room, stream>>>(a);
  } else if (a.act <= 8) {
    ppo_sample_kernel<T, 8><<<blocks, LANES, room, stream>>>(a);
  } else {
    ppo_sample_kernel<T, 0><<<blocks, LANES, room, stream>>>(a);
  }
}

static brim_status ppo_sample(const brim_rollout_where *where, const brim_ppo_shape *shape,
                              const brim_ppo_sample *work) {
  BRIM_TRY(ppo_refuse(brim_ppo_problem(shape)));
  BRIM_TRY(ppo_refuse(brim_ppo_sample_problem(shape, work)));
  if (!work->rows) return BRIM_OK;
  BRIM_TRY(rl_cuda_enter(work->action, BRIM_PPO_EXTENSION));
  ppo_by_type(work->outputs.dtype, [&](auto *type) {
    ppo_sample_args<std::remove_pointer_t<decltype(type)>> a = {};
    a.outputs = (decltype(type))work->outputs.data;
    a.tile = ppo_tile_of(&work->outputs, NULL);
    a.rows = work->rows;
    a.first = work->first;
    a.mask = work->mask;
    a.clock = work->clock;
    a.key = brim_ppo_action_key(work->seed, work->stream);
    a.act = shape->act;
    a.t = work->t;
    a.best = work->best;
    a.action = work->action;
    a.logp = work->logp;
    a.bad = work->bad;
    ppo_sample_launch(a, (cudaStream_t)where->stream);
  });
  return rl_cuda_check(cudaGetLastError(), BRIM_PPO_EXTENSION);
}

static brim_status ppo_rows(const brim_rollout_where *where, const brim_ppo_rows *work) {
  BRIM_TRY(ppo_refuse(brim_ppo_rows_problem(work)));
  if (!work->count) return BRIM_OK;
  BRIM_TRY(rl_cuda_enter(work->rows, BRIM_PPO_EXTENSION));
  ppo_rows_kernel<<<ppo_blocks(work->count, 256), 256, 0, (cudaStream_t)where->stream>>>(*work);
  return rl_cuda_check(cudaGetLastError(), BRIM_PPO_EXTENSION);
}

static brim_status ppo_advantages(const brim_rollout_where *where, const brim_ppo_shape *shape,
                                  const brim_ppo_advantages *work) {
  BRIM_TRY(ppo_refuse(brim_ppo_problem(shape)));
  BRIM_TRY(ppo_refuse(brim_ppo_advantages_problem(shape, work)));
  BRIM_TRY(rl_cuda_enter(work->adv, BRIM_PPO_EXTENSION));
  cudaStream_t s = (cudaStream_t)where->stream;
  const int64_t columns = (int64_t)shape->envs * shape->rewards;
  const unsigned chunks = ppo_blocks(columns, BRIM_PPO_COLUMNS);
  double *parts = (double *)work->scratch;
  ppo_by_type(work->values.dtype, [&](auto *type) {
    ppo_back_args<std::remove_pointer_t<decltype(type)>> a = {};
    a.values = (decltype(type))work->values.data;
    a.width = work->values.dim[1];
    a.reward = work->reward;
    a.end = work->end;
    a.final = work->final;
    a.gamma = work->gamma;
    a.decay = work->gamma * work->lambda;
    a.norm = work->norm;
    a.adv = work->adv;
    a.ret = work->ret;
    a.old = work->old;
    a.parts = parts;
    a.columns = columns;
    a.steps = shape->steps;
    a.envs = shape->envs;
    a.rewards = shape->rewards;
    a.finals = shape->finals;
    ppo_back_kernel<<<chunks, LANES, 0, s>>>(a);
  });
  ppo_sums_kernel<<<1, MERGE, 0, s>>>(parts, chunks);
  ppo_devs_kernel<<<chunks, LANES, 0, s>>>(work->adv, work->ret, parts, columns, shape->steps);
  ppo_moments_kernel<<<1, MERGE, 0, s>>>(parts, chunks, columns * shape->steps, work->moments,
                                         work->norm, work->beta);
  return rl_cuda_check(cudaGetLastError(), BRIM_PPO_EXTENSION);
}

template <class T>
static void ppo_loss_launch(const ppo_loss_args<T> &a, cudaStream_t stream) {
  const unsigned blocks = (unsigned)(a.parts.actor + a.parts.critic);
  const size_t room = ppo_tile_bytes(a.tile);
  if (a.act <= 5) {
    ppo_loss_kernel<T, 5><<<blocks, LANES, room, stream>>>(a);
  } else if (a.act <= 8) {
    ppo_loss_kernel<T, 8><<<blocks, LANES, room, stream>>>(a);
  } else {
    ppo_loss_kernel<T, 0><<<blocks, LANES, room, stream>>>(a);
  }
}

template <class T>
static ppo_net<T> ppo_net_of(const brim_ppo_net *net) {
  ppo_net<T> n = {(const T *)net->output.data, (T *)net->gradient.data, net->state};
  return n;
}

template <class T>
static ppo_loss_args<T> ppo_loss_args_of(const brim_ppo_shape *shape, const brim_ppo_losses *work) {
  const int64_t batch = work->critic.output.dim[0];
  ppo_loss_args<T> a = {};
  a.actor = ppo_net_of<T>(&work->actor);
  a.critic = ppo_net_of<T>(&work->critic);
  a.tile = ppo_tile_of(&work->actor.output, work->actor.gradient.data);
  a.critic_width = work->critic.output.dim[1];
  a.rows = work->rows;
  a.action = work->action;
  a.mask = work->mask;
  a.logp = work->logp;
  a.adv = work->adv;
  a.ret = work->ret;
  a.old = work->old;
  a.norm = work->norm;
  a.moments = work->moments;
  a.clip = work->clip;
  a.value_clip = work->value_clip;
  a.value_coef = work->value_coef;
  a.entropy = work->entropy;
  a.huber = work->huber;
  a.act = shape->act;
  a.agents = shape->agents;
  a.rewards = shape->rewards;
  a.actor_rows = batch * shape->agents;
  a.values = batch * shape->rewards;
  a.parts = brim_ppo_parts_of(shape, batch);
  a.sums = (double *)work->scratch;
  return a;
}

static brim_status ppo_losses(const brim_rollout_where *where, const brim_ppo_shape *shape,
                              const brim_ppo_losses *work) {
  BRIM_TRY(ppo_refuse(brim_ppo_problem(shape)));
  BRIM_TRY(ppo_refuse(brim_ppo_losses_problem(shape, work)));
  BRIM_TRY(rl_cuda_enter(work->actor.gradient.data, BRIM_PPO_EXTENSION));
  cudaStream_t s = (cudaStream_t)where->stream;
  ppo_by_type(work->actor.output.dtype, [&](auto *actor) {
    typedef std::remove_pointer_t<decltype(actor)> T;
    ppo_loss_launch(ppo_loss_args_of<T>(shape, work), s);
  });
  const brim_ppo_parts parts = brim_ppo_parts_of(shape, work->critic.output.dim[0]);
  ppo_metrics_kernel<<<BRIM_PPO_METRIC_COUNT, MERGE, 0, s>>>((const double *)work->scratch, parts,
                                                             work->metrics);
  return rl_cuda_check(cudaGetLastError(), BRIM_PPO_EXTENSION);
}

extern "C" {
const brim_ppo_table brim_ppo_cuda = {BRIM_PPO_ABI,   ppo_scratch, ppo_sample,
                                      ppo_advantages, ppo_rows,    ppo_losses};
void brim_ppo_cuda_set_host(const brim_host_api *host) { rl_cuda_host = host; }
}
