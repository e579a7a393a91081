// Fused rollouts of an environment (rl_fused.h), a template over its header like rl_collect_each.cuh: the .cu
// file that includes rl_collect_each.cuh includes this file after it and gets the table
// brim_NAME_fused_rollout_cuda. One launch runs all steps. The threads of a block form teams of 4 warps; each team
// has environments of its own, whose states stay in shared memory beside the actor's weights:
//   1. look, act   a warp takes 32 rows (agents) at a time: a lane writes what its agent sees, the warp
//                  computes the actor's outputs, a lane draws its agent's action
//   2. step        a lane for each environment; the warps that had the fewest rows do it
// Teams do not wait for each other, so some multiply while others step. Results do not depend on which team has an
// environment.
#ifndef BRIM_RL_FUSED_ROLLOUT_CUH_
#define BRIM_RL_FUSED_ROLLOUT_CUH_

#include "backend/backend_mma.cuh"
#include "rl/rl_fused.h"
#include "rl/rl_ppo_row.h"

//---------------------------------- the actor ----------------------------------

enum {
  ROLLOUT_ROWS = 32,                    // rows of a tile: a lane for each, two products of 16 rows
  ROLLOUT_OUTPUTS = BRIM_FUSED_MAX_ACT  // columns of the last product
};

// Weights for K inputs and H units in both hidden layers; a smaller network is filled up with zeros. Rows are 8
// numbers longer than needed, so that the 8 rows that ldmatrix reads at once never share a bank.
template <int K, int H>
struct rollout_net {
  // numbers from one row to the next: TILE for w0 and inputs, WIDE for w1 and w2
  enum { TILE = K + 8, WIDE = H + 8 };
  alignas(16) uint16_t w0[H * TILE], w1[H * WIDE], w2[ROLLOUT_OUTPUTS * WIDE];
  float b0[H], b1[H], b2[ROLLOUT_OUTPUTS];
};

//---------------------------------- weights ----------------------------------

// Copies a matrix `from` (rows, columns) and fills up with zeros; all threads of the block call it.
template <int PITCH>
__device__ static inline void rollout_fill(uint16_t *to, int32_t all, const void *from,
                                           int32_t rows, int32_t columns) {
  for (int32_t i = (int32_t)threadIdx.x; i < all * PITCH; i += (int32_t)blockDim.x) {
    const int32_t row = i / PITCH, column = i - row * PITCH;
    const bool there = row < rows && column < columns;
    to[i] = there ? ((const uint16_t *)from)[row * columns + column] : (uint16_t)0;
  }
}

__device__ static inline void rollout_biases(float *to, int32_t all, const void *from,
                                             int32_t count) {
  for (int32_t i = (int32_t)threadIdx.x; i < all; i += (int32_t)blockDim.x) {
    to[i] = i < count ? brim_unpack<__nv_bfloat16>(((const uint16_t *)from)[i]).x : 0.0f;
  }
}

// `act`: number of outputs that are used; they come first.
template <int K, int H>
__device__ static void rollout_weights(rollout_net<K, H> *net, const brim_fused_net &from,
                                       int32_t act) {
  rollout_fill<K + 8>(net->w0, H, from.weight[0], from.hidden, from.inputs);
  rollout_fill<H + 8>(net->w1, H, from.weight[1], from.hidden, from.hidden);
  rollout_fill<H + 8>(net->w2, ROLLOUT_OUTPUTS, from.weight[2], act, from.hidden);
  rollout_biases(net->b0, H, from.bias[0], from.hidden);
  rollout_biases(net->b1, H, from.bias[1], from.hidden);
  rollout_biases(net->b2, ROLLOUT_OUTPUTS, from.bias[2], act);
}

//---------------------------------- outputs ----------------------------------

template <bool TANH>
__device__ static inline float rollout_act(float x) {
  if (!TANH) return x < 0.0f ? 0.0f : x;  // NaN stays NaN
  return brim_tanh_fast(x);
}

// Sums of 32 rows and 16 columns: [16 rows][8 columns][register layout of a product].
typedef float rollout_sums[2][2][4];

__device__ static inline void rollout_begin(rollout_sums c, const float *bias) {
  const int32_t column = 2 * ((int32_t)threadIdx.x & 3);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float2 b = *(const float2 *)(bias + 8 * h + column);
#pragma unroll
    for (int m = 0; m < 2; m++) {
      c[m][h][0] = c[m][h][2] = b.x;
      c[m][h][1] = c[m][h][3] = b.y;
    }
  }
}

// Adds a product over 16 inputs; w: 16 columns.
__device__ static inline void rollout_product(rollout_sums c, const uint32_t (&a)[2][4],
                                              const uint16_t *w, int pitch) {
  uint32_t b[4];
  brim_load_b(b, w, pitch);
#pragma unroll
  for (int m = 0; m < 2; m++) {
    brim_mma<__nv_bfloat16>(c[m][0], a[m], b[0], b[1]);
    brim_mma<__nv_bfloat16>(c[m][1], a[m], b[2], b[3]);
  }
}

// Applies the activation and packs the input of the next product.
template <bool TANH>
__device__ static inline void rollout_pack(uint32_t (&a)[2][4], const rollout_sums c) {
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *v = c[m][i >> 1] + 2 * (i & 1);
      a[m][i] = brim_pack<__nv_bfloat16>(rollout_act<TANH>(v[0]), rollout_act<TANH>(v[1]));
    }
  }
}

// Computes the first layer's activations of a tile. Inputs are read once if registers have room for them.
template <int K, int H, bool TANH>
__device__ static inline void rollout_first(const rollout_net<K, H> *net, const uint16_t *tile,
                                            uint32_t (&h)[H / 16][2][4]) {
  enum { PITCH = K + 8, ONCE = K <= 32 };
  uint32_t x[ONCE ? K / 16 : 1][2][4];
#pragma unroll
  for (int k = 0; ONCE && k < K / 16; k++) {
    brim_load_a(x[k][0], tile + 16 * k, PITCH);
    brim_load_a(x[k][1], tile + 16 * PITCH + 16 * k, PITCH);
  }
#pragma unroll
  for (int j = 0; j < H / 16; j++) {
    rollout_sums c;
    rollout_begin(c, net->b0 + 16 * j);
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
      if (!ONCE) {
        brim_load_a(x[0][0], tile + 16 * k, PITCH);
        brim_load_a(x[0][1], tile + 16 * PITCH + 16 * k, PITCH);
      }
      rollout_product(c, x[ONCE ? k : 0], net->w0 + 16 * j * PITCH + 16 * k, PITCH);
    }
    rollout_pack<TANH>(h[j], c);
  }
}

// Writes the outputs of the 32 rows of `tile` to `strip`, rows `stride` numbers apart; `strip` may overlap the
// tile. The second layer's activations go into the last product 16 columns at a time.
template <int K, int H, bool TANH>
__device__ static inline void rollout_outputs(const rollout_net<K, H> *net, const uint16_t *tile,
                                              float *strip, int32_t stride) {
  const int32_t lane = (int32_t)threadIdx.x & 31, g = lane >> 2, two = 2 * (lane & 3);
  uint32_t h[H / 16][2][4];
  rollout_first<K, H, TANH>(net, tile, h);
  float out[2][4];
#pragma unroll
  for (int m = 0; m < 2; m++) {
    out[m][0] = out[m][2] = net->b2[two];
    out[m][1] = out[m][3] = net->b2[two + 1];
  }
#pragma unroll 1
  for (int j = 0; j < H / 16; j++) {
    rollout_sums c;
    rollout_begin(c, net->b1 + 16 * j);
#pragma unroll
    for (int k = 0; k < H / 16; k++) {
      rollout_product(c, h[k], net->w1 + 16 * j * (H + 8) + 16 * k, H + 8);
    }
    uint32_t a[2][4];
    rollout_pack<TANH>(a, c);
    const uint16_t *w = net->w2 + g * (H + 8) + 16 * j + two;
    const uint32_t b0 = *(const uint32_t *)w, b1 = *(const uint32_t *)(w + 8);
    brim_mma<__nv_bfloat16>(out[0], a[0], b0, b1);
    brim_mma<__nv_bfloat16>(out[1], a[1], b0, b1);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 8; i++) {
    strip[(16 * (i >> 2) + 8 * (i >> 1 & 1) + g) * stride + two + (i & 1)] = out[i >> 2][i & 3];
  }
  __syncwarp();
}

enum {
  // 16 warps leave 128 registers per thread; 64 of them hold the first layer's activations.
  ROLLOUT_WARPS = 16,
  ROLLOUT_TEAM = 4,  // warps
  ROLLOUT_TEAMS = ROLLOUT_WARPS / ROLLOUT_TEAM,
  ROLLOUT_THREADS = 32 * ROLLOUT_WARPS,
  ROLLOUT_TEAM_THREADS = 32 * ROLLOUT_TEAM,
  ROLLOUT_STRIP = ROLLOUT_OUTPUTS + 1  // numbers from one row of outputs to the next; odd
};

// A warp's place in its team, and the environments that the team has in shared memory.
struct rollout_team {
  int32_t barrier, rank, thread;
  int32_t first, count;  // environments
  brim_collect_track *tracks;
  char *states;
  int32_t *acts;
  float *gains;
};

__device__ static inline void rollout_wait(const rollout_team &m) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(m.barrier), "r"(ROLLOUT_TEAM_THREADS + 0) : "memory");
}

static int32_t rollout_min(int32_t a, int32_t b) { return a < b ? a : b; }

// The current device. processors 0: it lacks these products (compute capability below 8).
struct rollout_device {
  int processors;
  size_t shared;  // bytes of shared memory that a block can have
};

static rollout_device rollout_device_of(void) {
  static const cudaDeviceAttr asked[3] = {cudaDevAttrMultiProcessorCount,
                                          cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                          cudaDevAttrComputeCapabilityMajor};
  int device = 0, found[3] = {0};
  bool good = cudaGetDevice(&device) == cudaSuccess;
  for (int i = 0; good && i < 3; i++) {
    good = cudaDeviceGetAttribute(&found[i], asked[i], device) == cudaSuccess;
  }
  if (!good) cudaGetLastError();
  rollout_device d = {0, 0};
  if (good && found[2] >= 8) d = {found[0], (size_t)found[1]};
  return d;
}

#endif  // BRIM_RL_FUSED_ROLLOUT_CUH_

static_assert((int)BRIM_ENV(ACT) <= (int)ROLLOUT_OUTPUTS, "an action is a bit of a byte");

struct BRIM_ENV(rollout_call) {
  BRIM_ENV(values) env;
  brim_collect_task c;
  brim_fused_net actor;
  uint16_t *actor_seen;
  uint32_t *critic_seen;  // two numbers per word
  uint8_t *allowed;
  float *logp;
  int64_t *bad;
  uint64_t key;          // key of the actions' random numbers
  int32_t critic_words;  // words per row
  int32_t flags;         // number of flags, which are the first numbers of an observation
  int32_t each;          // most environments that a team has at once
  int32_t room;          // bytes of shared memory per team for them
  int32_t stride;        // bytes from one state to the next in shared memory
  int32_t acts, gains;   // words per environment for actions and for rewards
  uint32_t by_agents, by_rewards, by_pieces, by_words;  // factors of collect_divide
};

extern __shared__ uint4 BRIM_ENV(rollout_shared)[];

__device__ static inline BRIM_ENV(state) *
    BRIM_ENV(rollout_state)(const BRIM_ENV(rollout_call) & p, const rollout_team &m, int32_t e) {
  return (BRIM_ENV(state) *)(m.states + e * p.stride);
}

//---------------------------------- what networks read ----------------------------------

// Writes what critics see of part.y environments of a team, from part.x on, to a slot; thread.x of thread.y
// threads.
__device__ static void BRIM_ENV(rollout_critic)(const BRIM_ENV(rollout_call) & p,
                                                const rollout_team &m, int32_t slot, int2 part,
                                                int2 thread) {
  const int32_t words = p.critic_words;
  uint32_t *to = p.critic_seen + ((int64_t)slot * p.c.envs + m.first + part.x) * words;
  for (int32_t i = thread.x; i < part.y * words; i += thread.y) {
    const int32_t e = collect_divide(i, p.by_words), index = 2 * (i - e * words);
    const BRIM_ENV(state) *s = BRIM_ENV(rollout_state)(p, m, part.x + e);
    float x = 0.0f, y = 0.0f;
    if (index < p.c.critic) x = BRIM_ENV(collect_critic)(&p.c, &p.env, s, index);
    if (index + 1 < p.c.critic) y = BRIM_ENV(collect_critic)(&p.c, &p.env, s, index + 1);
    to[i] = brim_pack<__nv_bfloat16>(x, y);
  }
}

// Writes the observation of one agent as K numbers of a tile's row. Flags are first written as bits into the
// padding of the row.
template <int K>
__device__ static inline void BRIM_ENV(rollout_sees)(const BRIM_ENV(rollout_call) & p,
                                                     const BRIM_ENV(state) * s, int32_t agent,
                                                     uint16_t *row) {
  uint32_t *bits = (uint32_t *)(row + K);
  if (p.flags) BRIM_ENV(flags)(&p.env, s, agent, bits);
  const int32_t whole = p.flags / 8;  // pieces that contain only flags
  for (int32_t i = 0; i < whole; i++) {
    ((uint4 *)row)[i] = collect_piece(BRIM_BF16, bits[i / 4] >> 8 * (i & 3));
  }
  const auto number = [&](int32_t index) {
    if (index < p.flags) return (float)(bits[index / 32] >> (index & 31) & 1);
    return index < p.c.obs ? BRIM_ENV(sees)(&p.env, s, agent, index) : 0.0f;
  };
#pragma unroll 1
  for (int32_t i = 4 * whole; i < K / 2; i++) {
    const float x = number(2 * i);
    ((uint32_t *)row)[i] = brim_pack<__nv_bfloat16>(x, number(2 * i + 1));
  }
}

// Copies rows of a tile to rows `at`, at + 1, ... of the rollout, 16 bytes per lane.
template <int K>
__device__ static inline void BRIM_ENV(rollout_keep)(const BRIM_ENV(rollout_call) & p,
                                                     const uint16_t *tile, int64_t at,
                                                     int32_t rows) {
  const int32_t pieces = p.actor.inputs / 8;
  uint4 *to = (uint4 *)(p.actor_seen + at * p.actor.inputs);
  for (int32_t i = (int32_t)threadIdx.x & 31; i < rows * pieces; i += 32) {
    const int32_t row = collect_divide(i, p.by_pieces);
    to[i] = *(const uint4 *)(tile + row * (K + 8) + 8 * (i - row * pieces));
  }
}

//---------------------------------- actions ----------------------------------

// Draws and stores the action of row n of a team, which is row `at` of the rollout. Returns 1 if the row is bad.
__device__ static inline int BRIM_ENV(rollout_draw)(const BRIM_ENV(rollout_call) & p,
                                                    const rollout_team &m, int32_t n, int64_t at,
                                                    uint64_t when, const float *outputs) {
  const int32_t e = collect_divide(n, p.by_agents), agent = n - e * p.c.agents;
  const uint64_t mask = BRIM_ENV(mask)(&p.env, BRIM_ENV(rollout_state)(p, m, e), agent);
  float x[BRIM_ENV(ACT)];
#pragma unroll
  for (int a = 0; a < BRIM_ENV(ACT); a++) x[a] = outputs[a];
  const uint32_t bits = brim_ppo_bits(p.key, when, (int64_t)m.first * p.c.agents + n);
  const brim_ppo_choice c =
      brim_ppo_choose(x, BRIM_ENV(ACT), mask & brim_ppo_mask_all(p.c.act), bits, 0);
  const int32_t action = c.action < 0 ? 0 : c.action;
  m.acts[e * p.acts + agent] = action;
  p.c.action[at] = action;
  p.logp[at] = c.logp;
  if (p.allowed) p.allowed[at] = (uint8_t)mask;
  return c.action < 0;
}

// Handles up to 32 rows of a team from row `base` on: writes what they see, computes outputs, draws actions.
template <int K, int H, bool TANH>
__device__ static inline void BRIM_ENV(rollout_tile)(const BRIM_ENV(rollout_call) & p,
                                                     const rollout_team &m, int32_t t, int32_t base,
                                                     uint64_t when, uint16_t *tile) {
  const rollout_net<K, H> *net = (const rollout_net<K, H> *)BRIM_ENV(rollout_shared);
  const int32_t lane = (int32_t)threadIdx.x & 31, n = base + lane;
  const int32_t rows = min(ROLLOUT_ROWS + 0, m.count * p.c.agents - base);
  const int64_t at = ((int64_t)t * p.c.envs + m.first) * p.c.agents + base;
  if (lane < rows) {
    const int32_t e = collect_divide(n, p.by_agents);
    BRIM_ENV(rollout_sees)<K>(p, BRIM_ENV(rollout_state)(p, m, e), n - e * p.c.agents,
                              tile + lane * (K + 8));
  }
  __syncwarp();
  BRIM_ENV(rollout_keep)<K>(p, tile, at, rows);
  float *strip = (float *)tile;
  rollout_outputs<K, H, TANH>(net, tile, strip, ROLLOUT_STRIP);
  int bad = 0;
  if (lane < rows) {
    bad = BRIM_ENV(rollout_draw)(p, m, n, at + lane, when, strip + lane * ROLLOUT_STRIP);
  }
  const uint32_t lost = __ballot_sync(~0u, bad);
  __syncwarp();  // no lane reads the strip from here on
  if (lost && lane == 0) atomicAdd((unsigned long long *)p.bad, (unsigned long long)__popc(lost));
}

//---------------------------------- steps ----------------------------------

// Steps environments part.x + lane of a team, by a warp; part.y: number of environments.
__device__ static inline void BRIM_ENV(rollout_step)(const BRIM_ENV(rollout_call) & p,
                                                     const rollout_team &m, int32_t t, int2 part) {
  const brim_collect_task *c = &p.c;
  const int32_t lane = (int32_t)threadIdx.x & 31, e = part.x + lane, env = m.first + e;
  BRIM_ENV(state) *s = BRIM_ENV(rollout_state)(p, m, e);
  brim_collect_track k;
  int32_t over = BRIM_ENV_RUNNING, final = -1;
  if (lane < part.y) {
    k = m.tracks[e];
    over =
        BRIM_ENV(collect_move)(c, &p.env, env, &k, s, m.acts + e * p.acts, m.gains + e * p.gains);
    if (over != BRIM_ENV_RUNNING) BRIM_ENV(collect_note)(c, &p.env, env, &k, s, over);
    final = brim_collect_final(c, t, over);
    c->end[(int64_t)t * c->envs + env] = (int8_t)over;
    c->final[(int64_t)t * c->envs + env] = final;
  }
  __syncwarp();
  // write what critics see of final states, before the next episodes replace them
  for (uint32_t left = __ballot_sync(~0u, final >= 0); left; left &= left - 1) {
    const int32_t from = __ffs((int)left) - 1, slot = c->steps + 1 + __shfl_sync(~0u, final, from);
    BRIM_ENV(rollout_critic)(p, m, slot, make_int2(part.x + from, 1), make_int2(lane, 32));
  }
  __syncwarp();
  if (over != BRIM_ENV_RUNNING) BRIM_ENV(collect_next)(c, &p.env, env, &k, s, over);
  if (lane < part.y) m.tracks[e] = k;
}

// Copies the rewards of step t from shared memory.
__device__ static inline void BRIM_ENV(rollout_gains)(const BRIM_ENV(rollout_call) & p,
                                                      const rollout_team &m, int32_t t) {
  const int32_t rewards = p.c.rewards;
  float *to = p.c.reward + ((int64_t)t * p.c.envs + m.first) * rewards;
  for (int32_t i = m.thread; i < m.count * rewards; i += ROLLOUT_TEAM_THREADS) {
    const int32_t e = collect_divide(i, p.by_rewards);
    to[i] = m.gains[e * p.gains + (i - e * rewards)];
  }
}

//---------------------------------- a rollout ----------------------------------

__device__ static inline void BRIM_ENV(rollout_load)(const BRIM_ENV(rollout_call) & p,
                                                     const rollout_team &m) {
  const int32_t words = p.c.stored / 4, lane = m.thread & 31;
  for (int32_t e = m.thread / 32; e < m.count; e += ROLLOUT_TEAM) {
    const int32_t *from = (const int32_t *)brim_collect_state(&p.c, m.first + e);
    int32_t *to = (int32_t *)(m.states + e * p.stride);
    for (int32_t w = lane; w < words; w += 32) to[w] = from[w];
  }
  for (int32_t e = m.thread; e < m.count; e += ROLLOUT_TEAM_THREADS) {
    m.tracks[e] = p.c.tracks[m.first + e];
  }
}

__device__ static inline void BRIM_ENV(rollout_save)(const BRIM_ENV(rollout_call) & p,
                                                     const rollout_team &m) {
  const int64_t row = (int64_t)p.c.steps * p.c.envs + m.first;
  for (int32_t e = m.thread / 32; e < m.count; e += ROLLOUT_TEAM) {
    collect_store_one(&p.c, m.states + e * p.stride, row + e);
  }
  for (int32_t e = m.thread; e < m.count; e += ROLLOUT_TEAM_THREADS) {
    p.c.tracks[m.first + e] = m.tracks[e];
  }
}

// Runs all steps of the environments that a team has in shared memory.
template <int K, int H, bool TANH>
__device__ static inline void BRIM_ENV(rollout_run)(const BRIM_ENV(rollout_call) & p,
                                                    const rollout_team &m, uint16_t *tile) {
  // the highest ranks have the fewest tiles, so they step
  const int32_t first_env = 32 * (ROLLOUT_TEAM - 1 - m.rank);
  const uint64_t now = p.c.clock->now;
  BRIM_ENV(rollout_load)(p, m);
  rollout_wait(m);
  for (int32_t t = 0;; t++) {
    if (t) BRIM_ENV(rollout_gains)(p, m, t - 1);
    BRIM_ENV(rollout_critic)
    (p, m, t, make_int2(0, m.count), make_int2(m.thread, ROLLOUT_TEAM_THREADS));
    if (t == p.c.steps) break;
    for (int32_t base = ROLLOUT_ROWS * m.rank; base < m.count * p.c.agents;
         base += ROLLOUT_ROWS * ROLLOUT_TEAM) {
      BRIM_ENV(rollout_tile)<K, H, TANH>(p, m, t, base, now + (uint64_t)t, tile);
    }
    rollout_wait(m);
    if (first_env < m.count) {
      BRIM_ENV(rollout_step)(p, m, t, make_int2(first_env, min(32, m.count - first_env)));
    }
    rollout_wait(m);
  }
  BRIM_ENV(rollout_save)(p, m);
  rollout_wait(m);
}

template <int K, int H, bool TANH>
__global__ void __launch_bounds__(ROLLOUT_THREADS, 1)
    BRIM_ENV(fused_kernel)(const __grid_constant__ BRIM_ENV(rollout_call) p) {
  enum { TILE = ROLLOUT_ROWS * (K + 8) };
  rollout_net<K, H> *net = (rollout_net<K, H> *)BRIM_ENV(rollout_shared);
  uint16_t *tiles = (uint16_t *)(net + 1);
  const int32_t warp = (int32_t)threadIdx.x / 32, team = warp / ROLLOUT_TEAM;
  rollout_weights(net, p.actor, p.c.act);
  __syncthreads();
  rollout_team m;
  m.barrier = 1 + team;
  // ranks are rotated from team to team, so that the four parts of the processor get equal numbers of tiles
  m.rank = (warp + team) % ROLLOUT_TEAM;
  m.thread = (int32_t)threadIdx.x % ROLLOUT_TEAM_THREADS;
  m.tracks = (brim_collect_track *)((char *)(tiles + ROLLOUT_WARPS * TILE) + team * p.room);
  m.states = (char *)(m.tracks + p.each);
  m.acts = (int32_t *)(m.states + p.each * p.stride);
  m.gains = (float *)(m.acts + p.each * p.acts);
  const int64_t teams = (int64_t)gridDim.x * ROLLOUT_TEAMS;
  const int64_t team_index = (int64_t)blockIdx.x * ROLLOUT_TEAMS + team;
  const int32_t end = (int32_t)(p.c.envs * (team_index + 1) / teams);
  for (m.first = (int32_t)(p.c.envs * team_index / teams); m.first < end; m.first += p.each) {
    m.count = min(p.each, end - m.first);
    BRIM_ENV(rollout_run)<K, H, TANH>(p, m, tiles + warp * TILE);
  }
}

//---------------------------------- the table ----------------------------------

// One of the kernels, with the shared memory that it needs besides environments.
struct BRIM_ENV(rollout_form) {
  void (*kernel)(BRIM_ENV(rollout_call));
  size_t fixed;  // bytes of shared memory
};

template <int K, int H>
static BRIM_ENV(rollout_form) BRIM_ENV(rollout_form_of)(bool tanh) {
  BRIM_ENV(rollout_form) f;
  f.kernel = tanh ? BRIM_ENV(fused_kernel)<K, H, true> : BRIM_ENV(fused_kernel)<K, H, false>;
  f.fixed = sizeof(rollout_net<K, H>) + (size_t)ROLLOUT_WARPS * ROLLOUT_ROWS * (K + 8) * 2;
  return f;
}

static BRIM_ENV(rollout_form) BRIM_ENV(rollout_choose)(const brim_fused_net *net) {
  const bool tanh = net->act == BRIM_ACT_TANH;
  if (net->hidden <= 64) {
    return net->inputs <= 32 ? BRIM_ENV(rollout_form_of)<32, 64>(tanh)
                             : BRIM_ENV(rollout_form_of)<64, 64>(tanh);
  }
  return net->inputs <= 32 ? BRIM_ENV(rollout_form_of)<32, 128>(tanh)
                           : BRIM_ENV(rollout_form_of)<64, 128>(tanh);
}

// Returns the bytes of shared memory for one environment.
static size_t BRIM_ENV(rollout_one)(const BRIM_ENV(rollout_call) * p) {
  return sizeof(brim_collect_track) + (size_t)(p->stride + 4 * (p->acts + p->gains));
}

// Fills p for a shape and an actor, and counts the environments that fit in `most` bytes of shared memory.
static void BRIM_ENV(rollout_fit)(const brim_collect_shape *shape, const brim_fused_net *actor,
                                  size_t most, BRIM_ENV(rollout_call) * p) {
  const brim_env_sizes z = brim_collect_sizes(shape);
  const int32_t rewards = z.rewards > 1 ? z.rewards : 1;
  const size_t fixed = BRIM_ENV(rollout_choose)(actor).fixed;
  memset((void *)p, 0, sizeof *p);
  memcpy(&p->env, shape->env.bytes, sizeof p->env);
  p->actor = *actor;
  p->flags = BRIM_ENV(flags)(&p->env, NULL, 0, NULL);
  p->stride = BRIM_ENV(collect_stride)(BRIM_ENV(stored)(&p->env));
  p->acts = z.agents | 1;
  p->gains = rewards | 1;
  p->by_agents = collect_divisor(z.agents);
  p->by_rewards = collect_divisor(rewards);
  p->by_pieces = collect_divisor(actor->inputs / 8);
  const size_t left = most > fixed ? (most - fixed) / ROLLOUT_TEAMS / 16 * 16 : 0;
  p->each = rollout_min(ROLLOUT_TEAM_THREADS, (int32_t)(left / BRIM_ENV(rollout_one)(p)));
}

static int32_t BRIM_ENV(rollout_can)(const brim_collect_shape *shape, const brim_fused_net *actor) {
  if (shape->once || brim_collect_problem(shape)) return 0;
  const brim_env_sizes z = brim_collect_sizes(shape);
  const bool fits = actor->dtype == BRIM_BF16 && actor->inputs % 8 == 0 && actor->inputs >= z.obs &&
                    actor->inputs <= BRIM_FUSED_MAX_INPUTS && actor->hidden >= 1 &&
                    actor->hidden <= BRIM_FUSED_MAX_WHOLE && actor->outputs >= z.act &&
                    actor->outputs <= BRIM_FUSED_MAX_OUTPUTS && z.act <= BRIM_ENV(ACT);
  if (!fits || (actor->act != BRIM_ACT_TANH && actor->act != BRIM_ACT_RELU)) return 0;
  const rollout_device d = rollout_device_of();
  BRIM_ENV(rollout_call) p;
  BRIM_ENV(rollout_fit)(shape, actor, d.shared, &p);
  return d.processors > 0 && p.each >= 1;
}

static brim_status BRIM_ENV(rollout_start)(BRIM_ENV(rollout_call) * p, int32_t blocks,
                                           cudaStream_t stream) {
  const BRIM_ENV(rollout_form) f = BRIM_ENV(rollout_choose)(&p->actor);
  blocks = rollout_min(blocks, p->c.envs);
  // take no more than a team has: the L1 cache gets the rest
  p->each = rollout_min(p->each, (int32_t)collect_blocks(p->c.envs, blocks * ROLLOUT_TEAMS));
  p->room = (int32_t)(((size_t)p->each * BRIM_ENV(rollout_one)(p) + 15) / 16 * 16);
  const int32_t bytes = (int32_t)f.fixed + ROLLOUT_TEAMS * p->room;
  BRIM_TRY(rl_cuda_check(cudaFuncSetAttribute((const void *)f.kernel,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                         BRIM_FUSED_ROLLOUT_EXTENSION));
  f.kernel<<<(unsigned)blocks, ROLLOUT_THREADS, (size_t)bytes, stream>>>(*p);
  return rl_cuda_check(cudaGetLastError(), BRIM_FUSED_ROLLOUT_EXTENSION);
}

static brim_status BRIM_ENV(rollout_cuda_run)(const brim_rollout_where *where,
                                              const brim_collect_shape *shape, void *block,
                                              const brim_fused_rollout *work) {
  brim_collect_layout at;
  BRIM_TRY(BRIM_ENV(collect_cuda_layout)(shape, &at));
  BRIM_TRY(rl_cuda_enter(block, BRIM_FUSED_ROLLOUT_EXTENSION));
  if (!BRIM_ENV(rollout_can)(shape, &work->actor) || work->critic_inputs < at.critic ||
      work->critic_inputs % 2 != 0 || (uintptr_t)work->actor_seen % 16 != 0) {
    return rl_cuda_fail(BRIM_EINVAL,
                        BRIM_N_("a fused rollout does not take such an actor or environment"));
  }
  const rollout_device d = rollout_device_of();
  BRIM_ENV(rollout_call) p;
  BRIM_ENV(rollout_fit)(shape, &work->actor, d.shared, &p);
  p.c = brim_collect_task_of(shape, &at, BRIM_ENV(stored)(&p.env), block);
  p.actor_seen = (uint16_t *)work->actor_seen;
  p.critic_seen = (uint32_t *)work->critic_seen;
  p.critic_words = work->critic_inputs / 2;
  p.by_words = collect_divisor(p.critic_words);
  p.allowed = work->allowed;
  p.logp = (float *)((char *)block + at.logp);
  p.bad = work->bad;
  p.key = brim_ppo_action_key(work->seed, 0);
  const cudaStream_t stream = (cudaStream_t)where->stream;
  BRIM_TRY(collect_begin(&p.c, stream));
  const bool fewer = work->blocks > 0 && work->blocks < d.processors;
  return BRIM_ENV(rollout_start)(&p, fewer ? work->blocks : d.processors, stream);
}

extern "C" {
extern const brim_fused_rollout_table BRIM_ENV(fused_rollout_cuda);
const brim_fused_rollout_table BRIM_ENV(fused_rollout_cuda) = {
    BRIM_FUSED_ABI,
    BRIM_ENV(rollout_can),
    BRIM_ENV(rollout_cuda_run),
};
}
