// An actor's minibatch in one kernel, in bf16, for small networks, where it is faster than rl_fused_update.cuh.
// Warps have roles. A team of 4 warps takes 64 rows at a time, 16 per warp, from inputs to the gradient by the first
// layer: activations stay in registers, and no warp waits for another. Two teams and 8 adder warps, which add up the
// gradients of weights, work at the same time: tensor cores have work while other warps compute tanh and losses. A
// team leaves its results for the adders in one buffer in shared memory. It writes there again a good part of a tile
// later, when the adders have usually read it.
//
//   team     x -> A, B, outputs, losses; [free 1] G, A, B and C = (G W2) act'(B) to memory; [full 1]
//            [free 2] D = (C W1) act'(A) to memory; [full 2]
//   adders   [full 1] W2 += G' B, W1 += C' A; [free 1]; [full 2] W0 += D' x; [free 2]
#ifndef BRIM_RL_FUSED_ROLES_CUH_
#define BRIM_RL_FUSED_ROLES_CUH_

#include "rl/rl_fused_update.cuh"

enum {
  ROLES_ROWS = 64,  // rows of a team's tile
  ROLES_TEAM = 128,
  ROLES_TEAMS = 2,
  ROLES_THREADS = ROLES_TEAM * ROLES_TEAMS + FUSED_THREADS,
  ROLES_MEET = ROLES_TEAM + FUSED_THREADS,  // threads of a barrier: a team and the adders
  ROLES_K = 32,
  ROLES_L = BRIM_FUSED_MAX_ACT + 1,  // floats from one row of outputs to the next
  // barriers of team 0; team 1 has the next number
  ROLES_FULL_1 = 1,
  ROLES_FULL_2 = ROLES_FULL_1 + ROLES_TEAMS,
  ROLES_FREE_1 = ROLES_FULL_2 + ROLES_TEAMS,
  ROLES_FREE_2 = ROLES_FREE_1 + ROLES_TEAMS
};

template <int H>
struct roles_sizes {
  enum {
    HP = H + FUSED_GAP,
    KP = ROLES_K + FUSED_GAP,
    GP = FUSED_OUT + FUSED_GAP,
    PIECES = H / 16
  };
};

template <int H>
struct roles_stage {
  typedef roles_sizes<H> Z;
  uint16_t a[ROLES_ROWS * Z::HP], b[ROLES_ROWS * Z::HP], c[ROLES_ROWS * Z::HP];
  uint16_t d[ROLES_ROWS * Z::HP], g[ROLES_ROWS * Z::GP], x[2][ROLES_ROWS * Z::KP];
};

template <int H>
struct roles_shared {
  typedef roles_sizes<H> Z;
  alignas(16) uint16_t w0[H * Z::KP];
  uint16_t w1[H * Z::HP], w2[FUSED_OUT * Z::HP];
  roles_stage<H> stage[ROLES_TEAMS];
  float bias[2 * H + FUSED_OUT];
  float out[ROLES_TEAMS * ROLES_ROWS * ROLES_L];
  double sums[BRIM_PPO_ACTOR_METRICS][ROLES_TEAMS * ROLES_ROWS];
  int32_t listed[ROLES_TEAMS * ROLES_TEAM / 32][2][16];  // indices of each warp's rows
};

__device__ static inline void roles_wait(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"((int)ROLES_MEET) : "memory");
}
__device__ static inline void roles_tell(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"((int)ROLES_MEET) : "memory");
}

//---------------------------------- a team ----------------------------------

// Sums of 16 rows and 16 columns, in the register layout of two products.
typedef float roles_sums[2][4];

__device__ static inline void roles_start(roles_sums c, const float *bias) {
  const int column = 2 * ((int)threadIdx.x & 3);
#pragma unroll
  for (int n = 0; n < 2; n++) {
    const float2 b = *(const float2 *)(bias + 8 * n + column);
    c[n][0] = c[n][2] = b.x;
    c[n][1] = c[n][3] = b.y;
  }
}

__device__ static inline void roles_add(roles_sums c, const uint32_t a[4], const uint32_t b[4]) {
  brim_mma<fused_half>(c[0], a, b[0], b[1]);
  brim_mma<fused_half>(c[1], a, b[2], b[3]);
}

// Computes act(sums) in the register layout that the next product reads.
template <bool RELU>
__device__ static inline void roles_act(uint32_t a[4], const roles_sums c) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float *v = c[i >> 1] + 2 * (i & 1);
    a[i] = RELU ? brim_pack<fused_half>(fused_relu(v[0]), fused_relu(v[1]))
                : brim_pack<fused_half>(brim_tanh_fast(v[0]), brim_tanh_fast(v[1]));
  }
}

// Computes sums times act'(y); y and the result have the register layout that products read.
template <bool RELU>
__device__ static inline void roles_slope(uint32_t d[4], const roles_sums c, const uint32_t y[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float *v = c[i >> 1] + 2 * (i & 1);
    d[i] = fused_slope(y[i], v[0], v[1], RELU);
  }
}

// Writes 16 x 16 numbers from the register layout of products to rows of shared memory.
__device__ static inline void roles_put(uint16_t *to, int pitch, const uint32_t a[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(brim_rows_first(to, pitch));
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(a[0]),
               "r"(a[1]), "r"(a[2]), "r"(a[3])
               : "memory");
#else
  const int lane = (int)threadIdx.x & 31;
  uint16_t *at = to + (lane >> 2) * pitch + 2 * (lane & 3);
  *(uint32_t *)at = a[0];
  *(uint32_t *)(at + 8 * pitch) = a[1];
  *(uint32_t *)(at + 8) = a[2];
  *(uint32_t *)(at + 8 * pitch + 8) = a[3];
#endif
}

//---------------------------------- rows ahead ----------------------------------

// Starts to copy the listed indices of the 16 rows from `first` on to shared memory.
__device__ static inline void roles_find(const fused_update_args &w, uint32_t first, int32_t *to) {
  const int lane = (int)threadIdx.x & 31;
  const uint32_t i = first + (uint32_t)lane;
  if (lane < 16) {
    const bool in = i < (uint32_t)w.count;
    brim_copy4(to + lane, w.loss.rows + (in ? w.loss.agents.number(i) : 0), in);
  }
  brim_copy_commit();
}

// Starts to copy the inputs of these rows; a lane copies 16 bytes of two rows.
__device__ static inline void roles_read(const fused_update_args &w, uint32_t first,
                                         const int32_t *listed, uint16_t *to, int pitch) {
  const int lane = (int)threadIdx.x & 31, piece = lane & 3;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = lane / 4 + 8 * r;
    const uint32_t i = first + (uint32_t)row;
    const bool in = i < (uint32_t)w.count && piece * 8 < w.inputs;
    // a rollout has less than 2^31 rows
    const uint32_t from =
        w.listed ? (uint32_t)listed[row] * w.loss.agents.by + w.loss.agents.rest(i) : i;
    brim_copy16(to + row * pitch + piece * 8,
                w.input + (in ? (int64_t)from * w.inputs + piece * 8 : 0), in);
  }
  brim_copy_commit();
}

// Waits for the copies, until all lanes see them.
__device__ static inline void roles_wait_copies() {
  brim_copy_wait<0>();
  __syncwarp();
}

//---------------------------------- layers ----------------------------------

// Computes the activations of the first layer; x: the warp's rows.
template <int H, bool RELU>
__device__ static inline void roles_first(const roles_shared<H> &s, const uint16_t *x,
                                          uint32_t (&a)[H / 16][4]) {
  typedef roles_sizes<H> Z;
  uint32_t in[ROLES_K / 16][4];
#pragma unroll
  for (int k = 0; k < ROLES_K / 16; k++) brim_load_a(in[k], x + 16 * k, Z::KP);
#pragma unroll
  for (int j = 0; j < Z::PIECES; j++) {
    roles_sums c;
    roles_start(c, s.bias + 16 * j);
#pragma unroll
    for (int k = 0; k < ROLES_K / 16; k++) {
      uint32_t b[4];
      brim_load_b(b, s.w0 + 16 * j * Z::KP + 16 * k, Z::KP);
      roles_add(c, in[k], b);
    }
    roles_act<RELU>(a[j], c);
  }
}

// Computes the activations of the second layer, and writes the outputs to rows of `out`.
template <int H, bool RELU>
__device__ static inline void roles_second(const roles_shared<H> &s, const uint32_t (&a)[H / 16][4],
                                           uint32_t (&b)[H / 16][4], float *out) {
  typedef roles_sizes<H> Z;
  const int lane = (int)threadIdx.x & 31;
  float sums[4];
  const float2 start = *(const float2 *)(s.bias + 2 * H + 2 * (lane & 3));
  sums[0] = sums[2] = start.x;
  sums[1] = sums[3] = start.y;
#pragma unroll
  for (int j = 0; j < Z::PIECES; j += 2) {
    roles_sums c[2];
    roles_start(c[0], s.bias + H + 16 * j);
    roles_start(c[1], s.bias + H + 16 * j + 16);
#pragma unroll
    for (int k = 0; k < Z::PIECES; k++) {
      uint32_t w[2][4];
      brim_load_b(w[0], s.w1 + 16 * j * Z::HP + 16 * k, Z::HP);
      brim_load_b(w[1], s.w1 + (16 * j + 16) * Z::HP + 16 * k, Z::HP);
      roles_add(c[0], a[k], w[0]);
      roles_add(c[1], a[k], w[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t w[4];
      roles_act<RELU>(b[j + i], c[i]);
      brim_load_b(w, s.w2 + 16 * (j + i), Z::HP);  // of the 16 outputs only the first 8 exist
      brim_mma<fused_half>(sums, b[j + i], w[0], w[1]);
    }
  }
  float *to = out + (lane >> 2) * ROLES_L + 2 * (lane & 3);
  to[0] = sums[0];
  to[1] = sums[1];
  to[8 * ROLES_L] = sums[2];
  to[8 * ROLES_L + 1] = sums[3];
  __syncwarp();
}

// Copies the gradients of the outputs from `out` to rows of G.
template <int H>
__device__ static inline void roles_gradient(const float *out, uint16_t *g) {
  const int lane = (int)threadIdx.x & 31;
  if (lane < 16) {
    uint32_t *to = (uint32_t *)(g + lane * roles_sizes<H>::GP);
    const float *x = out + lane * ROLES_L;
#pragma unroll
    for (int n = 0; n < BRIM_FUSED_MAX_ACT / 2; n++) {
      to[n] = brim_pack<fused_half>(x[2 * n], x[2 * n + 1]);
    }
  }
  __syncwarp();
}

// Writes the activations of both layers to the stage. Replaces those in `b` by the gradient by the second layer's
// sums, and writes it there too.
template <int H, bool RELU>
__device__ static inline void roles_stage_layers(const roles_shared<H> &s, roles_stage<H> &to,
                                                 int row, const uint32_t (&a)[H / 16][4],
                                                 uint32_t (&b)[H / 16][4]) {
  typedef roles_sizes<H> Z;
  uint32_t g[4];
  brim_load_a(g, to.g + row * Z::GP, Z::GP);
#pragma unroll
  for (int j = 0; j < Z::PIECES; j++) {
    const int at = row * Z::HP + 16 * j;
    roles_sums c = {};
    uint32_t w[4];
    brim_load_bt(w, s.w2 + 16 * j, Z::HP);
    roles_add(c, g, w);
    roles_put(to.a + at, Z::HP, a[j]);
    roles_put(to.b + at, Z::HP, b[j]);
    roles_slope<RELU>(b[j], c, b[j]);
    roles_put(to.c + at, Z::HP, b[j]);
  }
}

// Writes the gradient by the first layer's sums to the stage; calls `ready` before the first write.
template <int H, bool RELU, class F>
__device__ static inline void roles_back(const roles_shared<H> &s, roles_stage<H> &to, int row,
                                         const uint32_t (&a)[H / 16][4],
                                         const uint32_t (&c)[H / 16][4], F ready) {
  typedef roles_sizes<H> Z;
#pragma unroll
  for (int j = 0; j < Z::PIECES; j += 2) {
    roles_sums d[2] = {};
#pragma unroll
    for (int k = 0; k < Z::PIECES; k++) {
      uint32_t w[2][4];
      brim_load_bt(w[0], s.w1 + 16 * k * Z::HP + 16 * j, Z::HP);
      brim_load_bt(w[1], s.w1 + 16 * k * Z::HP + 16 * j + 16, Z::HP);
      roles_add(d[0], c[k], w[0]);
      roles_add(d[1], c[k], w[1]);
    }
    if (j == 0) ready();
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t v[4];
      roles_slope<RELU>(v, d[i], a[j + i]);
      roles_put(to.d + row * Z::HP + 16 * (j + i), Z::HP, v);
    }
  }
}

template <int H, bool RELU>
__device__ static inline void roles_team_run(const fused_update_args &w, roles_shared<H> &s,
                                             int team) {
  typedef roles_sizes<H> Z;
  const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x & 31, row = warp * 16;
  const fused_scales scales(w.loss);
  roles_stage<H> &stage = s.stage[team];
  float *out = s.out + (team * ROLES_ROWS + row) * ROLES_L;
  double *sums = &s.sums[0][team * ROLES_ROWS + row + (lane & 15)];
  // indices of the rows of this tile and of the next
  int32_t(*listed)[16] = s.listed[team * 4 + warp];
  // a minibatch has less than 2^31 rows
  const uint32_t step = gridDim.x * (uint32_t)(ROLES_ROWS * ROLES_TEAMS);
  uint32_t first = ((uint32_t)team * gridDim.x + blockIdx.x) * ROLES_ROWS + (uint32_t)row;
  bool used = false;
  int turn = 0;
  roles_find(w, first, listed[0]);
  roles_wait_copies();
  roles_read(w, first, listed[0], stage.x[0] + row * Z::KP, Z::KP);
  // The first row of the team's tile decides: all warps of a team have the same number of tiles.
  for (; first - (uint32_t)row < (uint32_t)w.count; first += step, turn ^= 1) {
    const uint32_t i = first + (uint32_t)lane;
    roles_wait_copies();
    roles_find(w, first + step, listed[turn ^ 1]);
    uint32_t a[Z::PIECES][4], b[Z::PIECES][4];
    roles_first<H, RELU>(s, stage.x[turn] + row * Z::KP, a);
    fused_case c = {};
    if (lane < 16 && i < scales.valid) c = fused_case_of(w.loss, i, listed[turn][lane]);
    roles_second<H, RELU>(s, a, b, out);
    if (lane < 16) {
      fused_take_policy<ROLES_TEAMS * ROLES_ROWS>(w.loss, scales, c, i, out + lane * ROLES_L, sums);
    }
    if (used) roles_wait(ROLES_FREE_1 + team);
    roles_gradient<H>(out, stage.g + row * Z::GP);
    roles_stage_layers<H, RELU>(s, stage, row, a, b);
    roles_tell(ROLES_FULL_1 + team);
    roles_back<H, RELU>(s, stage, row, a, b, [&] {
      if (used) roles_wait(ROLES_FREE_2 + team);
      // wait for the list; the adders have read the inputs that the next ones replace
      roles_wait_copies();
      roles_read(w, first + step, listed[turn ^ 1], stage.x[turn ^ 1] + row * Z::KP, Z::KP);
    });
    roles_tell(ROLES_FULL_2 + team);
    used = true;
  }
  roles_wait_copies();
  if (used) {
    roles_wait(ROLES_FREE_1 + team);
    roles_wait(ROLES_FREE_2 + team);
  }
}

//---------------------------------- the adders ----------------------------------

template <int H>
__device__ static inline void roles_adders_run(const fused_update_args &w, roles_shared<H> &s) {
  typedef roles_sizes<H> Z;
  typedef fused_sizes<H, ROLES_K> F;
  const int warp = (int)threadIdx.x / 32 - ROLES_TEAMS * ROLES_TEAM / 32;
  const fused_piece<H, H> q(warp);
  fused_grads<H, ROLES_K> f;
  f.clear();
  int team = 0, turn = 0;
  for (uint32_t first = blockIdx.x * ROLES_ROWS; first < (uint32_t)w.count;
       first += gridDim.x * ROLES_ROWS) {
    roles_stage<H> &stage = s.stage[team];
    roles_wait(ROLES_FULL_1 + team);
    if (warp < F::LAST_WARPS) {
      fused_times_few<ROLES_ROWS, F::LAST>(f.w2, f.b2, warp == 0, stage.g, Z::GP,
                                           stage.b + warp * 16 * F::LAST, Z::HP);
    }
    fused_times_rows<ROLES_ROWS>(f.w1, f.b1, q.column == 0, stage.c + q.row, Z::HP,
                                 stage.a + q.column, Z::HP);
    roles_tell(ROLES_FREE_1 + team);
    roles_wait(ROLES_FULL_2 + team);
    if (warp < F::FIRST_WARPS) {
      fused_times_few<ROLES_ROWS, ROLES_K / 16>(f.w0, f.b0, true, stage.d + warp * 16, Z::HP,
                                                stage.x[turn], Z::KP);
    }
    roles_tell(ROLES_FREE_2 + team);
    turn ^= team;  // changes once both teams had a turn
    team ^= 1;
  }
  fused_give_all(w, f, warp, blockIdx.x);
}

template <int H, bool RELU>
static __global__ void __launch_bounds__(ROLES_THREADS, 1)
    roles_kernel(const __grid_constant__ fused_update_args w) {
  extern __shared__ __align__(16) unsigned char fused_room[];
  roles_shared<H> &s = *(roles_shared<H> *)fused_room;
  const int team = (int)threadIdx.x / ROLES_TEAM;
  fused_load<H, ROLES_K>(s.w0, w.weight[0], w.hidden, w.inputs);
  fused_load<H, H>(s.w1, w.weight[1], w.hidden, w.hidden);
  fused_load<FUSED_OUT, H>(s.w2, w.weight[2], w.outputs, w.hidden);
  fused_load_bias<H>(s.bias, w.bias[0], w.hidden);
  fused_load_bias<H>(s.bias + H, w.bias[1], w.hidden);
  fused_load_bias<FUSED_OUT>(s.bias + 2 * H, w.bias[2], w.outputs);
  for (int i = (int)threadIdx.x; i < ROLES_TEAMS * ROLES_ROWS; i += ROLES_THREADS) {
    for (int k = 0; k < BRIM_PPO_ACTOR_METRICS; k++) s.sums[k][i] = 0;
    // clear the columns of the outputs' gradients beyond the largest number of actions
    uint16_t *g = s.stage[i / ROLES_ROWS].g + i % ROLES_ROWS * roles_sizes<H>::GP;
    *(uint4 *)(g + BRIM_FUSED_MAX_ACT) = make_uint4(0, 0, 0, 0);
  }
  brim_copy_wait<0>();
  __syncthreads();
  if (team < ROLES_TEAMS) {
    roles_team_run<H, RELU>(w, s, team);
  } else {
    roles_adders_run<H>(w, s);
  }
  __syncthreads();
  const int k = (int)threadIdx.x;
  if (k >= FUSED_METRICS) return;
  double sum = 0;
  for (int r = 0; k < BRIM_PPO_ACTOR_METRICS && r < ROLES_TEAMS * ROLES_ROWS; r++) {
    sum += s.sums[k][r];
  }
  w.sums[(int64_t)blockIdx.x * FUSED_METRICS + k] = sum;
}

#endif  // BRIM_RL_FUSED_ROLES_CUH_
