// A minibatch from inputs to gradients in one kernel, in bf16. A block stays on its multiprocessor and takes tiles
// of M rows. Weights lie in shared memory. Gradients of weights are summed in registers over all tiles of the block
// and written once. Intermediate results stay on the chip. The form REST is for networks whose first layer is the
// caller's: it reads that layer's output z, and writes the hidden activations and gradients from which the caller
// computes the gradients of the two large weight matrices.
//
//   forward   A = act(x W0'), B = act(A W1'), outputs = B W2'; losses; G = gradient of the outputs
//   back      W2 += G' B; B = (G W2) act'(B); W1 += B' A; A = (B W1) act'(A); W0 += A' x
#ifndef BRIM_RL_FUSED_UPDATE_CUH_
#define BRIM_RL_FUSED_UPDATE_CUH_

#include "backend/backend.h"
#include "backend/backend_mma.cuh"
#include "rl/rl_fused.h"
#include "rl/rl_ppo_row.h"

//---------------------------------- losses ----------------------------------

// Losses of the rows of a tile: the outputs in shared memory are replaced by their gradients. A thread has a row,
// the same one in every tile. rl_ppo_row.h has the arithmetic.

enum {
  FUSED_METRICS = BRIM_PPO_METRIC_COUNT - BRIM_PPO_ACTOR_METRICS,  // most metrics of a network
  FUSED_L = BRIM_FUSED_MAX_OUTPUTS + 1  // floats from one row of outputs to the next
};
static_assert((int)FUSED_METRICS >= (int)BRIM_PPO_ACTOR_METRICS, "sums of either network fit");

// Splits row i of a minibatch into a listed number and a rest (the agent), without a division.
struct fused_divide {
  uint32_t by, factor;
  int32_t shift;

  // exact for i below 2^31
  static fused_divide of(int32_t agents) {
    fused_divide d;
    d.by = (uint32_t)agents;
    for (d.shift = 0; (1u << d.shift) < d.by; d.shift++) continue;
    d.factor = (uint32_t)((((uint64_t)1 << (31 + d.shift)) + d.by - 1) / d.by);
    return d;
  }
  __device__ uint32_t number(uint32_t i) const {
    return (uint32_t)((uint64_t)i * factor >> (31 + shift));
  }
  __device__ uint32_t rest(uint32_t i) const { return i - number(i) * by; }
};

// Inputs of the losses of one network.
struct fused_loss {
  const int32_t *rows, *action;
  const uint64_t *mask;
  const uint8_t *allowed;
  const float *logp, *adv, *ret, *old;
  const brim_ppo_norm *norm;
  const brim_ppo_moments *moments;
  const double *state;
  float clip, value_clip, value_coef, entropy, huber;
  fused_divide agents;  // divides rows by the agents per number (1 for a critic)
  int32_t act, rewards, critic;
};

// Inputs of a row's loss besides the outputs. They are read long before the outputs are computed.
struct fused_case {
  uint32_t mask;  // there are at most 8 actions
  int64_t from;
  int32_t action;
  float logp, adv;
};

// `listed`: the entry of w.rows for row i.
__device__ static fused_case fused_case_of(const fused_loss &w, uint32_t i, int32_t listed) {
  fused_case c = {};
  c.from = (int64_t)listed * w.agents.by + w.agents.rest(i);
  if (w.critic) return c;
  c.mask = ~0u;
  if (w.mask) {
    c.mask = ((const uint32_t *)w.mask)[2 * (int64_t)i];
  } else if (w.allowed) {
    c.mask = w.allowed[c.from];
  }
  c.action = w.action[c.from];
  c.logp = w.logp[c.from];
  c.adv = w.adv[w.rewards == 1 ? (int64_t)listed : c.from];
  return c;
}

// Values that all rows share.
struct fused_scales {
  float gradient, shift, by;
  brim_ppo_scale norm;
  uint32_t valid;

  __device__ fused_scales(const fused_loss &w) {
    const double *s = w.state;
    valid = (uint32_t)s[BRIM_STATE_ROWS];
    gradient = (float)(s[BRIM_STATE_GRAD_SCALE] * s[BRIM_STATE_LOSS_SCALE]);
    if (w.critic) gradient = brim_ppo_value_scale(w.value_coef, w.rewards, gradient);
    shift = w.moments ? w.moments->shift : 0.0f;
    by = w.moments ? w.moments->scale : 1.0f;
    norm = brim_ppo_scale_of(w.norm);
  }
};

// brim_ppo_policy with exp2 and log2 of the special function unit, accurate to about 2^-20.
template <int ACT>
__device__ static brim_ppo_policy_loss fused_policy_fast(float *x, const brim_ppo_policy_input *c) {
  const float log2e = 1.44269504f;
  const uint32_t mask = (uint32_t)c->mask;
  float most = -INFINITY, e[ACT], sum = 0.0f, weighted = 0.0f, chosen = 0.0f;
  bool finite = true;
#pragma unroll
  for (int a = 0; a < ACT; a++) {
    const bool on = mask >> a & 1;
    finite = finite && (!on || brim_ppo_finite(x[a]));
    most = on ? fmaxf(most, x[a]) : most;
  }
  const bool can = (uint32_t)c->action < (uint32_t)ACT && (mask >> c->action & 1);
  if (!can) return brim_ppo_bad_row(x, ACT, 0.0f);
#pragma unroll
  for (int a = 0; a < ACT; a++) {
    x[a] -= most;
    e[a] = mask >> a & 1 ? brim_exp2_fast(x[a] * log2e) : 0.0f;
    sum += e[a];
    weighted = mask >> a & 1 ? __fmaf_rn(e[a], x[a], weighted) : weighted;
    chosen = a == c->action ? x[a] : chosen;
  }
  const float log_sum = __log2f(sum) * 0.69314718f, inverse = __fdividef(1.0f, sum);
  const float log_ratio = (chosen - log_sum) - c->logp, ratio = brim_exp2_fast(log_ratio * log2e);
  const float kept = fminf(fmaxf(ratio, 1.0f - c->clip), 1.0f + c->clip);
  const float plain = ratio * c->adv, held = kept * c->adv;
  brim_ppo_policy_loss f;
  f.loss = plain <= held ? -plain : -held;
  f.entropy = __fmaf_rn(-weighted, inverse, log_sum);
  f.kl = (ratio - 1.0f) - log_ratio;
  f.clipped = kept != ratio;
  f.bad =
      !finite || !brim_ppo_finite(f.loss) || !brim_ppo_finite(f.kl) || !brim_ppo_finite(f.entropy);
  if (f.bad) return brim_ppo_bad_row(x, ACT, NAN);
  const float slope = plain <= held ? -plain : 0.0f;
#pragma unroll
  for (int a = 0; a < ACT; a++) {
    const float p = e[a] * inverse, own = (a == c->action ? 1.0f : 0.0f) - p;
    const float spread = c->entropy * p * ((x[a] - log_sum) + f.entropy);
    const bool on = mask >> a & 1;
    x[a] = on ? __fmaf_rn(slope, own, spread) * c->scale : 0.0f;
  }
  return f;
}

// Replaces the outputs x of a row by their gradient; columns after the actions get 0. The sums of a row's losses
// lie SUMS doubles apart.
template <bool FAST, int SUMS, int ACT = BRIM_FUSED_MAX_ACT>
__device__ static void fused_policy(const fused_loss &w, const fused_scales &s, const fused_case &c,
                                    float *x, double *sums) {
  float v[ACT];
#pragma unroll
  for (int a = 0; a < ACT; a++) v[a] = x[a];
  brim_ppo_policy_input p;
  p.mask = c.mask & brim_ppo_mask_all(w.act);
  p.action = c.action;
  p.logp = c.logp;
  p.adv = (c.adv - s.shift) * s.by;
  p.clip = w.clip;
  p.entropy = w.entropy;
  p.scale = s.gradient;
  const brim_ppo_policy_loss f = FAST ? fused_policy_fast<ACT>(v, &p) : brim_ppo_policy(v, ACT, &p);
  double own[BRIM_PPO_ACTOR_METRICS] = {};
  brim_ppo_count_row(&f, own);
#pragma unroll
  for (int k = 0; k < BRIM_PPO_ACTOR_METRICS; k++) sums[k * SUMS] += own[k];
#pragma unroll
  for (int a = 0; a < ACT; a++) x[a] = a < w.act ? v[a] : 0.0f;
}

// Takes row i of an actor's minibatch; `x` has BRIM_FUSED_MAX_ACT columns.
template <int SUMS>
__device__ static void fused_take_policy(const fused_loss &w, const fused_scales &s,
                                         const fused_case &c, int64_t i, float *x, double *sums) {
  enum { FEW = 5 };
  if (i < s.valid && w.act <= FEW) {
    fused_policy<true, SUMS, FEW>(w, s, c, x, sums);
    for (int k = FEW; k < BRIM_FUSED_MAX_ACT; k++) x[k] = 0.0f;
    return;
  }
  if (i < s.valid) {
    fused_policy<true, SUMS>(w, s, c, x, sums);
    return;
  }
#pragma unroll
  for (int k = 0; k < BRIM_FUSED_MAX_ACT; k++) x[k] = 0.0f;
}

template <int SUMS>
__device__ static void fused_value(const fused_loss &w, const fused_scales &s, const fused_case &c,
                                   float *x, double *sums) {
  double own[FUSED_METRICS] = {};
#pragma unroll 4
  for (int32_t k = 0; k < w.rewards; k++) {
    const int64_t at = c.from * w.rewards + k;
    const float target = brim_ppo_normal_of(s.norm, w.ret[at]);
    const float old = brim_ppo_normal_of(s.norm, w.old[at]), value = x[k];
    const brim_ppo_value_loss v = brim_ppo_value(value, old, target, w.value_clip, w.huber);
    brim_ppo_count_value(&v, value, target, own);
    x[k] = v.slope * s.gradient;
  }
#pragma unroll
  for (int k = 0; k < FUSED_METRICS; k++) sums[k * SUMS] += own[k];
  for (int32_t k = w.rewards; k < BRIM_FUSED_MAX_OUTPUTS; k++) x[k] = 0.0f;
}

// Takes row i of the minibatch; rows after the valid ones get gradient 0. FAST: exp and log of the special function
// unit.
template <bool FAST, int SUMS>
__device__ static void fused_take_loss(const fused_loss &w, const fused_scales &s,
                                       const fused_case &c, int64_t i, float *x, double *sums) {
  if (i >= s.valid) {
    for (int k = 0; k < BRIM_FUSED_MAX_OUTPUTS; k++) x[k] = 0.0f;
    return;
  }
  if (w.critic) {
    fused_value<SUMS>(w, s, c, x, sums);
  } else {
    fused_policy<FAST, SUMS>(w, s, c, x, sums);
    for (int k = BRIM_FUSED_MAX_ACT; k < BRIM_FUSED_MAX_OUTPUTS; k++) x[k] = 0.0f;
  }
}

//---------------------------------- tiles ----------------------------------

// Products of tiles in shared memory on tensor cores, for kernels that keep a network on the chip: bf16 numbers
// with f32 sums. A tile of activations has M rows of H numbers; 8 warps divide it into pieces of 32 rows and some
// columns. Rows in shared memory have 8 numbers of padding, so that ldmatrix uses no bank twice.

typedef __nv_bfloat16 fused_half;

enum {
  FUSED_WARPS = 8,
  FUSED_THREADS = 32 * FUSED_WARPS,
  FUSED_OUT = 16,  // columns of the last layer, padding included
  FUSED_GAP = 8
};

// The first row and column of a warp's piece of a tile of M x H, and its number of columns N.
template <int M, int H>
struct fused_piece {
  enum { DOWN = M / 32, ACROSS = FUSED_WARPS / DOWN, N = H / ACROSS, TILES = N / 8 };
  int row, column;
  __device__ fused_piece(int warp) : row(warp % DOWN * 32), column(warp / DOWN * N) {}
};

// Sums of 32 rows and 8 * TILES columns.
template <int TILES>
struct fused_sums {
  float at[2][TILES][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int n = 0; n < TILES; n++) {
#pragma unroll
        for (int k = 0; k < 4; k++) at[i][n][k] = 0.0f;
      }
    }
  }

  // Sets every row to `bias`, which begins at the first column of the piece.
  __device__ void start(const float *bias) {
    const int t = (int)threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      const float2 b = *(const float2 *)(bias + n * 8 + 2 * t);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        at[i][n][0] = at[i][n][2] = b.x;
        at[i][n][1] = at[i][n][3] = b.y;
      }
    }
  }

  __device__ void add(int n, const uint32_t a[2][4], const uint32_t b[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      brim_mma<fused_half>(at[i][n], a[i], b[0], b[1]);
      brim_mma<fused_half>(at[i][n + 1], a[i], b[2], b[3]);
    }
  }
};

// sums += x (32 rows, K numbers) times w' (columns, K), or with BACK times w (K, columns).
template <int K, bool BACK, int TILES>
__device__ static void fused_times(fused_sums<TILES> &sums, const uint16_t *x, int x_pitch,
                                   const uint16_t *w, int w_pitch) {
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    uint32_t a[2][4];
    brim_load_a(a[0], x + k, x_pitch);
    brim_load_a(a[1], x + 16 * x_pitch + k, x_pitch);
#pragma unroll
    for (int n = 0; n < TILES; n += 2) {
      uint32_t b[4];
      if constexpr (BACK) {
        brim_load_bt(b, w + k * w_pitch + n * 8, w_pitch);
      } else {
        brim_load_b(b, w + n * 8 * w_pitch + k, w_pitch);
      }
      sums.add(n, a, b);
    }
  }
}

// A pair of bf16 ones. Multiplying by it adds up columns.
__device__ static uint32_t fused_ones() { return 0x3f803f80u; }

// sums += d' x over M rows: d (M, 32 columns from d on), x (M, 8 * TILES columns from x on). If `wanted`, also adds
// the sums of the columns of d to `column`.
template <int M, int TILES>
__device__ static void fused_times_rows(fused_sums<TILES> &sums, float (&column)[2][4], bool wanted,
                                        const uint16_t *d, int d_pitch, const uint16_t *x,
                                        int x_pitch) {
#pragma unroll 4
  for (int k = 0; k < M; k += 16) {
    uint32_t a[2][4];
    brim_load_at(a[0], d + k * d_pitch, d_pitch);
    brim_load_at(a[1], d + k * d_pitch + 16, d_pitch);
#pragma unroll
    for (int n = 0; n < TILES; n += 2) {
      uint32_t b[4];
      brim_load_bt(b, x + k * x_pitch + n * 8, x_pitch);
      sums.add(n, a, b);
    }
    if (!wanted) continue;
    brim_mma<fused_half>(column[0], a[0], fused_ones(), fused_ones());
    brim_mma<fused_half>(column[1], a[1], fused_ones(), fused_ones());
  }
}

// Adds the sums of 32 columns of d over M rows to `column`.
template <int M>
__device__ static void fused_add_columns(float (&column)[2][4], const uint16_t *d, int d_pitch) {
#pragma unroll
  for (int k = 0; k < M; k += 16) {
    uint32_t a[2][4];
    brim_load_at(a[0], d + k * d_pitch, d_pitch);
    brim_load_at(a[1], d + k * d_pitch + 16, d_pitch);
    brim_mma<fused_half>(column[0], a[0], fused_ones(), fused_ones());
    brim_mma<fused_half>(column[1], a[1], fused_ones(), fused_ones());
  }
}

// sums += d' x for 16 columns of d: x has 16 * PIECES columns; `column` as in fused_times_rows.
template <int M, int PIECES>
__device__ static void fused_times_few(float (&sums)[2 * PIECES][4], float (&column)[4],
                                       bool wanted, const uint16_t *d, int d_pitch,
                                       const uint16_t *x, int x_pitch) {
#pragma unroll 4
  for (int k = 0; k < M; k += 16) {
    uint32_t a[4];
    brim_load_at(a, d + k * d_pitch, d_pitch);
#pragma unroll
    for (int n = 0; n < PIECES; n++) {
      uint32_t b[4];
      brim_load_bt(b, x + k * x_pitch + n * 16, x_pitch);
      brim_mma<fused_half>(sums[2 * n], a, b[0], b[1]);
      brim_mma<fused_half>(sums[2 * n + 1], a, b[2], b[3]);
    }
    if (wanted) brim_mma<fused_half>(column, a, fused_ones(), fused_ones());
  }
}

//---------------------------------- activations ----------------------------------

// Keeps a NaN, so that the loss of its row is not finite and counts as bad.
__device__ static float fused_relu(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}

// Writes act(sums) to a tile in shared memory, from the warp's piece on.
template <int TILES>
__device__ static void fused_put(const fused_sums<TILES> &sums, int relu, uint16_t *tile,
                                 int pitch) {
  const int g = ((int)threadIdx.x & 31) >> 2, t = (int)threadIdx.x & 3;
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      const float *v = sums.at[i][n];
      uint16_t *to = tile + (i * 16 + g) * pitch + n * 8 + 2 * t;
      uint32_t low, high;
      if (relu) {
        low = brim_pack<fused_half>(fused_relu(v[0]), fused_relu(v[1]));
        high = brim_pack<fused_half>(fused_relu(v[2]), fused_relu(v[3]));
      } else {
        low = brim_pack<fused_half>(brim_tanh_fast(v[0]), brim_tanh_fast(v[1]));
        high = brim_pack<fused_half>(brim_tanh_fast(v[2]), brim_tanh_fast(v[3]));
      }
      *(uint32_t *)to = low;
      *(uint32_t *)(to + 8 * pitch) = high;
    }
  }
}

// Multiplies two derivatives d by act'(), computed from the activations y.
__device__ static uint32_t fused_slope(uint32_t y, float d0, float d1, int relu) {
  const float2 v = brim_unpack<fused_half>(y);
  if (relu) return brim_pack<fused_half>(v.x > 0.0f ? d0 : 0.0f, v.y > 0.0f ? d1 : 0.0f);
  return brim_pack<fused_half>(d0 * __fmaf_rn(-v.x, v.x, 1.0f), d1 * __fmaf_rn(-v.y, v.y, 1.0f));
}

// Replaces the activations in the tile by the derivatives by their sums.
template <int TILES>
__device__ static void fused_put_slope(const fused_sums<TILES> &sums, int relu, uint16_t *tile,
                                       int pitch) {
  const int g = ((int)threadIdx.x & 31) >> 2, t = (int)threadIdx.x & 3;
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      const float *v = sums.at[i][n];
      uint32_t *low = (uint32_t *)(tile + (i * 16 + g) * pitch + n * 8 + 2 * t);
      uint32_t *high = (uint32_t *)(tile + (i * 16 + g + 8) * pitch + n * 8 + 2 * t);
      *low = fused_slope(*low, v[0], v[1], relu);
      *high = fused_slope(*high, v[2], v[3], relu);
    }
  }
}

//---------------------------------- memory ----------------------------------

// Starts to copy a matrix (rows, columns) into shared memory of ROWS x COLUMNS, with zeros around it. All threads
// call it, then brim_copy_wait. Rows are aligned to 16 bytes if their length is a multiple of that.
template <int ROWS, int COLUMNS>
__device__ static void fused_load(uint16_t *to, const uint16_t *from, int rows, int columns) {
  enum { PIECES = COLUMNS / 8 };
  const bool whole = columns % 8 == 0;
  for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += (int)blockDim.x) {
    const int row = i / PIECES, column = i % PIECES * 8;
    uint16_t *at = to + row * (COLUMNS + FUSED_GAP) + column;
    const bool in = row < rows && column < columns;
    const uint16_t *source = from + (in ? row * columns + column : 0);
    if (whole) {
      brim_copy16(at, source, in);
      continue;
    }
    for (int k = 0; k < 8; k++) at[k] = in && column + k < columns ? source[k] : (uint16_t)0;
  }
  brim_copy_commit();
}

template <int COUNT>
__device__ static void fused_load_bias(float *to, const uint16_t *from, int count) {
  for (int i = (int)threadIdx.x; i < COUNT; i += (int)blockDim.x) {
    to[i] = i < count ? __uint_as_float((uint32_t)from[i] << 16) : 0.0f;
  }
}

//---------------------------------- a minibatch ----------------------------------

struct fused_update_args {
  const uint16_t *weight[BRIM_FUSED_LAYERS], *bias[BRIM_FUSED_LAYERS];
  const uint16_t *input;
  uint16_t *z, *h, *g;
  int32_t inputs, hidden, outputs, relu, listed;
  int64_t count;  // rows of the minibatch
  fused_loss loss;
  // For each team of each block: gradients in the order of the layers, weights before biases; then sums of losses.
  float *grads;
  int64_t grads_each;
  double *sums;
};

// Offsets of weights and biases in the gradients of a team.
struct fused_places {
  int64_t weight[BRIM_FUSED_LAYERS], bias[BRIM_FUSED_LAYERS], all;
};

__host__ __device__ static inline fused_places fused_places_of(int32_t inputs, int32_t hidden,
                                                               int32_t outputs, bool whole) {
  const int64_t sizes[BRIM_FUSED_LAYERS][2] = {
      {hidden, inputs}, {hidden, hidden}, {outputs, hidden}};
  fused_places p;
  p.all = 0;
  for (int i = 0; i < BRIM_FUSED_LAYERS; i++) {
    const bool here = whole || i == BRIM_FUSED_LAYERS - 1;
    p.weight[i] = p.all;
    p.all += here ? sizes[i][0] * sizes[i][1] : 0;
    p.bias[i] = p.all;
    p.all += sizes[i][0];
  }
  return p;
}

// H: hidden units, K: inputs, both padded; K = 0 means REST.
template <int H, int K>
struct fused_sizes {
  enum {
    // REST keeps no sums of large gradients in registers: the threads of a block form two teams with tiles and
    // barriers of their own, so that one multiplies while the other computes losses
    TEAMS = K ? 1 : 2,
    M = K         ? 128
        : H > 128 ? 32
                  : 64,
    BLOCK = FUSED_THREADS * TEAMS,
    HP = H + FUSED_GAP,  // pitches
    KP = K + FUSED_GAP,
    GP = FUSED_OUT + FUSED_GAP,
    LAST = H / 16 > FUSED_WARPS ? 2 : 1,  // pieces of 16 columns of W2 per warp
    LAST_WARPS = H / (16 * LAST),         // warps that have pieces of W2
    FIRST_WARPS = H / 16,                 // warps that have 16 rows of W0
    BIAS_WARPS = H / 32                   // warps that sum 32 columns of biases (REST)
  };
};

template <int H, int K>
struct fused_weights {
  typedef fused_sizes<H, K> Z;
  alignas(16) uint16_t w0[K ? H * Z::KP : 8];
  uint16_t w1[H * Z::HP], w2[FUSED_OUT * Z::HP];
  float bias[2 * H + FUSED_OUT];
};

// The state of a team.
template <int H, int K>
struct fused_tiles {
  typedef fused_sizes<H, K> Z;
  alignas(16) uint16_t x[K ? 2 : 1][K ? Z::M * Z::KP : 8];
  uint16_t a[Z::M * Z::HP], b[Z::M * Z::HP], g[Z::M * Z::GP];
  float out[Z::M * FUSED_L];
  double sums[FUSED_METRICS][Z::M];
};

template <int H, int K>
struct fused_shared {
  fused_weights<H, K> weights;
  fused_tiles<H, K> tiles[fused_sizes<H, K>::TEAMS];
};

// The index of a thread and of a warp in its team.
__device__ static int fused_thread() { return (int)threadIdx.x % FUSED_THREADS; }
__device__ static int fused_warp() { return fused_thread() / 32; }

// Waits for all threads of the team.
template <int TEAMS>
__device__ static void fused_meet() {
  if constexpr (TEAMS == 1) {
    __syncthreads();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + (int)threadIdx.x / FUSED_THREADS),
                 "n"((int)FUSED_THREADS)
                 : "memory");
  }
}

//---------------------------------- inputs ----------------------------------

// Returns the list entry of row i of the minibatch.
__device__ static int32_t fused_listed(const fused_update_args &w, int64_t i, bool wanted) {
  return wanted && i < w.count ? w.loss.rows[w.loss.agents.number((uint32_t)i)] : 0;
}

// Copies rows of inputs; a thread copies 16 bytes of each of its rows.
template <int H, int K>
struct fused_reader {
  typedef fused_sizes<H, K> Z;
  enum { PIECES = K / 8, STEP = FUSED_THREADS / PIECES, ROWS = Z::M / STEP };
  int32_t listed[ROWS];  // list entries of the thread's rows; the next tile needs them first
  int row, piece;

  __device__ fused_reader() : row((int)threadIdx.x / PIECES), piece((int)threadIdx.x % PIECES) {}

  // Looks up the list entries of a tile's rows, a tile ahead.
  __device__ void find(const fused_update_args &w, int64_t first) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const int64_t i = first + row + r * STEP;
      listed[r] = w.listed && i < w.count ? w.loss.rows[w.loss.agents.number((uint32_t)i)] : 0;
    }
  }

  // Starts to copy the rows that `find` looked up.
  __device__ void read(const fused_update_args &w, int64_t first, uint16_t *x) const {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const int64_t i = first + row + r * STEP;
      const bool in = i < w.count && piece * 8 < w.inputs;
      const int64_t from =
          w.listed ? (int64_t)listed[r] * w.loss.agents.by + w.loss.agents.rest((uint32_t)i) : i;
      const uint16_t *at = w.input + (in ? from * w.inputs + piece * 8 : 0);
      brim_copy16(x + (row + r * STEP) * Z::KP + piece * 8, at, in);
    }
    brim_copy_commit();
  }
};

// REST: the thread's numbers of z, read one tile ahead.
template <int H>
struct fused_ahead {
  typedef fused_sizes<H, 0> Z;
  enum { PIECES = H / 8, EACH = Z::M * PIECES / FUSED_THREADS };
  uint4 at[EACH];

  __device__ void read(const fused_update_args &w, int64_t first) {
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int n = e * FUSED_THREADS + fused_thread(), row = n / PIECES, piece = n % PIECES;
      at[e] = make_uint4(0, 0, 0, 0);
      if (first + row < w.count && piece * 8 < w.hidden) {
        at[e] = *(const uint4 *)(w.z + (first + row) * w.hidden + piece * 8);
      }
    }
  }

  // Writes act(z) to the tile and to h.
  __device__ void put(const fused_update_args &w, int64_t first, uint16_t *tile) const {
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int n = e * FUSED_THREADS + fused_thread(), row = n / PIECES, piece = n % PIECES;
      uint4 v = at[e];
      uint32_t *pair = (uint32_t *)&v;
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const float2 x = brim_unpack<fused_half>(pair[k]);
        pair[k] = w.relu ? brim_pack<fused_half>(fused_relu(x.x), fused_relu(x.y))
                         : brim_pack<fused_half>(brim_tanh_fast(x.x), brim_tanh_fast(x.y));
      }
      *(uint4 *)(tile + row * Z::HP + piece * 8) = v;
      if (first + row < w.count && piece * 8 < w.hidden) {
        *(uint4 *)(w.h + (first + row) * w.hidden + piece * 8) = v;
      }
    }
  }
};

// Writes a tile of shared memory to rows of memory.
template <int H>
__device__ static void fused_write(const fused_update_args &w, int64_t first, const uint16_t *tile,
                                   uint16_t *to) {
  typedef fused_sizes<H, 0> Z;
  enum { PIECES = H / 8 };
  for (int n = fused_thread(); n < Z::M * PIECES; n += FUSED_THREADS) {
    const int row = n / PIECES, piece = n % PIECES;
    if (first + row >= w.count || piece * 8 >= w.hidden) continue;
    *(uint4 *)(to + (first + row) * w.hidden + piece * 8) =
        *(const uint4 *)(tile + row * Z::HP + piece * 8);
  }
}

//---------------------------------- gradients ----------------------------------

// Gradients of weights, summed in registers over all tiles of the block.
template <int H, int K>
struct fused_grads {
  typedef fused_sizes<H, K> Z;
  fused_sums<K ? fused_piece<H, H>::TILES : 2> w1;
  float b1[2][4];
  float w0[K ? K / 8 : 1][4], b0[4];
  float rest[K ? 1 : 2][2][4];  // REST: biases of the second and of the first layer
  float w2[2 * Z::LAST][4], b2[4];

  __device__ void clear() {
    w1.clear();
#pragma unroll
    for (int k = 0; k < 4; k++) {
      b1[0][k] = b1[1][k] = b0[k] = b2[k] = 0.0f;
#pragma unroll
      for (int n = 0; n < (K ? 1 : 2); n++) rest[n][0][k] = rest[n][1][k] = 0.0f;
#pragma unroll
      for (int n = 0; n < (K ? K / 8 : 1); n++) w0[n][k] = 0.0f;
#pragma unroll
      for (int n = 0; n < 2 * Z::LAST; n++) w2[n][k] = 0.0f;
    }
  }
};

// Writes two neighbouring numbers of a row to a matrix (rows, columns) in memory.
__device__ static void fused_give(float *to, int rows, int columns, int row, int column, float x,
                                  float y) {
  if (row >= rows) return;
  if (column < columns) to[row * columns + column] = x;
  if (column + 1 < columns) to[row * columns + column + 1] = y;
}

__device__ static void fused_give_tile(float *to, int rows, int columns, int row, int column,
                                       const float v[4]) {
  const int g = ((int)threadIdx.x & 31) >> 2, t = (int)threadIdx.x & 3;
  fused_give(to, rows, columns, row + g, column + 2 * t, v[0], v[1]);
  fused_give(to, rows, columns, row + g + 8, column + 2 * t, v[2], v[3]);
}

// Writes sums of columns; all lanes of a row have the same numbers.
__device__ static void fused_give_bias(float *to, int count, int row, const float v[4]) {
  const int g = ((int)threadIdx.x & 31) >> 2;
  if ((threadIdx.x & 3) != 0) return;
  if (row + g < count) to[row + g] = v[0];
  if (row + g + 8 < count) to[row + g + 8] = v[2];
}

template <int H, int K>
__device__ static void fused_give_all(const fused_update_args &w, const fused_grads<H, K> &f,
                                      int warp, int64_t part) {
  typedef fused_sizes<H, K> Z;
  const fused_places p = fused_places_of(w.inputs, w.hidden, w.outputs, K > 0);
  float *to = w.grads + part * w.grads_each;
  if (warp < Z::LAST_WARPS) {
#pragma unroll
    for (int n = 0; n < 2 * Z::LAST; n++) {
      fused_give_tile(to + p.weight[2], w.outputs, w.hidden, 0, warp * 16 * Z::LAST + n * 8,
                      f.w2[n]);
    }
  }
  if (warp == 0) fused_give_bias(to + p.bias[2], w.outputs, 0, f.b2);
  if constexpr (K > 0) {
    const fused_piece<H, H> at(warp);
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int n = 0; n < fused_piece<H, H>::TILES; n++) {
        fused_give_tile(to + p.weight[1], w.hidden, w.hidden, at.row + i * 16, at.column + n * 8,
                        f.w1.at[i][n]);
      }
      if (at.column == 0) fused_give_bias(to + p.bias[1], w.hidden, at.row + i * 16, f.b1[i]);
    }
    if (warp >= Z::FIRST_WARPS) return;
#pragma unroll
    for (int n = 0; n < K / 8; n++) {
      fused_give_tile(to + p.weight[0], w.hidden, w.inputs, warp * 16, n * 8, f.w0[n]);
    }
    fused_give_bias(to + p.bias[0], w.hidden, warp * 16, f.b0);
  } else if (warp < Z::BIAS_WARPS) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      fused_give_bias(to + p.bias[1 - i / 2], w.hidden, warp * 32 + i % 2 * 16,
                      f.rest[i / 2][i % 2]);
    }
  }
}

//---------------------------------- a tile ----------------------------------

// Computes the outputs of the warp's 16 rows from a tile of activations, w and bias.
template <int H>
__device__ static void fused_outputs(const uint16_t *tile, const uint16_t *w, const float *bias,
                                     float *out, int warp) {
  enum { HP = H + FUSED_GAP };
  const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  float sums[2][4];
#pragma unroll
  for (int n = 0; n < 2; n++) {
    const float2 b = *(const float2 *)(bias + n * 8 + 2 * t);
    sums[n][0] = sums[n][2] = b.x;
    sums[n][1] = sums[n][3] = b.y;
  }
#pragma unroll
  for (int k = 0; k < H; k += 16) {
    uint32_t a[4], b[4];
    brim_load_a(a, tile + warp * 16 * HP + k, HP);
    brim_load_b(b, w + k, HP);
    brim_mma<fused_half>(sums[0], a, b[0], b[1]);
    brim_mma<fused_half>(sums[1], a, b[2], b[3]);
  }
  float *to = out + (warp * 16 + g) * FUSED_L + 2 * t;
#pragma unroll
  for (int n = 0; n < 2; n++) {
    to[n * 8] = sums[n][0];
    to[n * 8 + 1] = sums[n][1];
    to[n * 8 + 8 * FUSED_L] = sums[n][2];
    to[n * 8 + 8 * FUSED_L + 1] = sums[n][3];
  }
  __syncwarp();
}

template <int H, int K>
__device__ static void fused_losses(const fused_update_args &w, fused_tiles<H, K> &s,
                                    const fused_scales &scales, const fused_case &c, int64_t first,
                                    int row) {
  typedef fused_sizes<H, K> Z;
  float *x = s.out + row * FUSED_L;
  fused_take_loss<true, Z::M>(w.loss, scales, c, first + row, x, &s.sums[0][row]);
  uint32_t *to = (uint32_t *)(s.g + row * Z::GP);
#pragma unroll
  for (int n = 0; n < FUSED_OUT / 2; n++) to[n] = brim_pack<fused_half>(x[2 * n], x[2 * n + 1]);
}

// Computes back from the outputs' gradients to the inputs. When it returns, all threads of the team are done.
template <int H, int K>
__device__ static void fused_back(const fused_update_args &w, const fused_weights<H, K> &v,
                                  fused_tiles<H, K> &s, fused_grads<H, K> &f, int turn,
                                  int64_t first) {
  typedef fused_sizes<H, K> Z;
  typedef fused_piece<Z::M, H> P;
  const int warp = fused_warp();
  const P p(warp);
  fused_sums<P::TILES> sums;
  sums.clear();
  fused_times<FUSED_OUT, true>(sums, s.g + p.row * Z::GP, Z::GP, v.w2 + p.column, Z::HP);
  if (warp < Z::LAST_WARPS) {
    fused_times_few<Z::M, Z::LAST>(f.w2, f.b2, warp == 0, s.g, Z::GP, s.b + warp * 16 * Z::LAST,
                                   Z::HP);
  }
  fused_meet<Z::TEAMS>();
  fused_put_slope(sums, w.relu, s.b + p.row * Z::HP + p.column, Z::HP);
  fused_meet<Z::TEAMS>();
  sums.clear();
  fused_times<H, true>(sums, s.b + p.row * Z::HP, Z::HP, v.w1 + p.column, Z::HP);
  if constexpr (K > 0) {
    const fused_piece<H, H> q(warp);
    fused_times_rows<Z::M>(f.w1, f.b1, q.column == 0, s.b + q.row, Z::HP, s.a + q.column, Z::HP);
  } else {
    if (warp < Z::BIAS_WARPS) fused_add_columns<Z::M>(f.rest[0], s.b + warp * 32, Z::HP);
    fused_write<H>(w, first, s.b, w.g);
  }
  fused_meet<Z::TEAMS>();
  fused_put_slope(sums, w.relu, s.a + p.row * Z::HP + p.column, Z::HP);
  fused_meet<Z::TEAMS>();
  if constexpr (K > 0) {
    if (warp < Z::FIRST_WARPS) {
      fused_times_few<Z::M, K / 16>(f.w0, f.b0, true, s.a + warp * 16, Z::HP, s.x[turn], Z::KP);
    }
  } else {
    if (warp < Z::BIAS_WARPS) fused_add_columns<Z::M>(f.rest[1], s.a + warp * 32, Z::HP);
    fused_write<H>(w, first, s.a, w.z);
  }
  fused_meet<Z::TEAMS>();
}

// Loads the weights with all threads of the block and clears the sums of each team's tiles.
template <int H, int K>
__device__ static void fused_begin(const fused_update_args &w, fused_weights<H, K> &v,
                                   fused_tiles<H, K> &s) {
  typedef fused_sizes<H, K> Z;
  if constexpr (K > 0) fused_load<H, K>(v.w0, w.weight[0], w.hidden, w.inputs);
  fused_load<H, H>(v.w1, w.weight[1], w.hidden, w.hidden);
  fused_load<FUSED_OUT, H>(v.w2, w.weight[2], w.outputs, w.hidden);
  fused_load_bias<H>(v.bias, w.bias[0], w.hidden);
  fused_load_bias<H>(v.bias + H, w.bias[1], w.hidden);
  fused_load_bias<FUSED_OUT>(v.bias + 2 * H, w.bias[2], w.outputs);
  for (int i = fused_thread(); i < Z::M * FUSED_METRICS; i += FUSED_THREADS) {
    s.sums[i / Z::M][i % Z::M] = 0;
  }
  brim_copy_wait<0>();
  __syncthreads();
}

// Sums the rows of the tile in their order and writes the sums.
template <int H, int K>
__device__ static void fused_give_sums(const fused_update_args &w, const fused_tiles<H, K> &s,
                                       int64_t part) {
  const int k = fused_thread();
  if (k >= FUSED_METRICS) return;
  double sum = 0;
  for (int row = 0; row < fused_sizes<H, K>::M; row++) sum += s.sums[k][row];
  w.sums[part * FUSED_METRICS + k] = sum;
}

// The input of a tile: the inputs, or with REST the output of the caller's first layer.
template <int H, int K>
struct fused_source {
  fused_reader<H, K ? K : 8> reader;
  fused_ahead<H> ahead;

  __device__ void start(const fused_update_args &w, fused_tiles<H, K> &s, int64_t first,
                        int64_t step) {
    if constexpr (K > 0) {
      reader.find(w, first);
      reader.read(w, first, s.x[0]);
      reader.find(w, first + step);
    } else {
      ahead.read(w, first);
    }
  }

  // Writes the activations of the first layer to s.a, while the next tile is being copied.
  __device__ void layer(const fused_update_args &w, const fused_weights<H, K> &v,
                        fused_tiles<H, K> &s, int64_t first, int64_t step, int turn) {
    typedef fused_sizes<H, K> Z;
    if constexpr (K > 0) {
      const fused_piece<Z::M, H> p(fused_warp());
      fused_sums<fused_piece<Z::M, H>::TILES> sums;
      reader.read(w, first + step, s.x[turn ^ 1]);
      reader.find(w, first + 2 * step);
      brim_copy_wait<1>();
      __syncthreads();
      sums.start(v.bias + p.column);
      fused_times<K, false>(sums, s.x[turn] + p.row * Z::KP, Z::KP, v.w0 + p.column * Z::KP, Z::KP);
      fused_put(sums, w.relu, s.a + p.row * Z::HP + p.column, Z::HP);
    } else {
      ahead.put(w, first, s.a);
      ahead.read(w, first + step);
    }
  }
};

template <int H, int K>
static __global__ void __launch_bounds__(fused_sizes<H, K>::BLOCK, 1)
    fused_update_kernel(const __grid_constant__ fused_update_args w) {
  typedef fused_sizes<H, K> Z;
  typedef fused_piece<Z::M, H> P;
  extern __shared__ __align__(16) unsigned char fused_room[];
  fused_weights<H, K> &v = ((fused_shared<H, K> *)fused_room)->weights;
  const int team = Z::TEAMS > 1 ? (int)threadIdx.x / FUSED_THREADS : 0;
  fused_tiles<H, K> &s = ((fused_shared<H, K> *)fused_room)->tiles[team];
  const int warp = fused_warp(), lane = (int)threadIdx.x & 31, row = warp * 16 + lane;
  const bool has_row = lane < 16 && warp * 16 < Z::M;
  const fused_scales scales(w.loss);
  const P p(warp);
  const int64_t part = (int64_t)blockIdx.x * Z::TEAMS + team;
  const int64_t step = (int64_t)gridDim.x * Z::TEAMS * Z::M;
  int64_t first = part * Z::M;
  fused_grads<H, K> f;
  f.clear();
  fused_begin(w, v, s);
  fused_source<H, K> source;
  source.start(w, s, first, step);
  int32_t listed = fused_listed(w, first + row, has_row);
  int turn = 0;
  for (; first < w.count; first += step) {
    fused_case c = {};
    if (has_row && first + row < scales.valid) {
      c = fused_case_of(w.loss, (uint32_t)(first + row), listed);
    }
    listed = fused_listed(w, first + step + row, has_row);
    source.layer(w, v, s, first, step, turn);
    fused_meet<Z::TEAMS>();
    fused_sums<P::TILES> sums;
    sums.start(v.bias + H + p.column);
    fused_times<H, false>(sums, s.a + p.row * Z::HP, Z::HP, v.w1 + p.column * Z::HP, Z::HP);
    fused_put(sums, w.relu, s.b + p.row * Z::HP + p.column, Z::HP);
    fused_meet<Z::TEAMS>();
    if (warp * 16 < Z::M) fused_outputs<H>(s.b, v.w2, v.bias + 2 * H, s.out, warp);
    if (has_row) fused_losses(w, s, scales, c, first, row);
    fused_meet<Z::TEAMS>();
    fused_back(w, v, s, f, turn, first);
    turn ^= K > 0;
  }
  brim_copy_wait<0>();
  fused_meet<Z::TEAMS>();
  fused_give_all(w, f, warp, part);
  fused_give_sums(w, s, part);
}

//---------------------------------- outputs alone ----------------------------------

struct fused_values_args {
  fused_update_args net;  // weights, biases and inputs of the network
  uint16_t *outputs;      // (count, net.outputs)
};

template <int H, int K>
static __global__ void __launch_bounds__(FUSED_THREADS, 1)
    fused_values_kernel(const __grid_constant__ fused_values_args v) {
  typedef fused_sizes<H, K> Z;
  typedef fused_piece<Z::M, H> P;
  extern __shared__ __align__(16) unsigned char fused_room[];
  fused_weights<H, K> &m = ((fused_shared<H, K> *)fused_room)->weights;
  fused_tiles<H, K> &s = ((fused_shared<H, K> *)fused_room)->tiles[0];
  const fused_update_args &w = v.net;
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31;
  const P p(warp);
  fused_begin(w, m, s);
  fused_reader<H, K> reader;
  const int64_t step = (int64_t)gridDim.x * Z::M;
  int64_t first = (int64_t)blockIdx.x * Z::M;
  int turn = 0;
  reader.find(w, first);
  reader.read(w, first, s.x[0]);
  for (; first < w.count; first += step, turn ^= 1) {
    fused_sums<P::TILES> sums;
    reader.find(w, first + step);
    reader.read(w, first + step, s.x[turn ^ 1]);
    brim_copy_wait<1>();
    __syncthreads();
    sums.start(m.bias + p.column);
    fused_times<K, false>(sums, s.x[turn] + p.row * Z::KP, Z::KP, m.w0 + p.column * Z::KP, Z::KP);
    fused_put(sums, w.relu, s.a + p.row * Z::HP + p.column, Z::HP);
    __syncthreads();
    sums.start(m.bias + H + p.column);
    fused_times<H, false>(sums, s.a + p.row * Z::HP, Z::HP, m.w1 + p.column * Z::HP, Z::HP);
    fused_put(sums, w.relu, s.b + p.row * Z::HP + p.column, Z::HP);
    __syncthreads();
    fused_outputs<H>(s.b, m.w2, m.bias + 2 * H, s.out, warp);
    const int here = (int)min((int64_t)16, w.count - first - warp * 16);
    for (int n = lane; n < here * w.outputs; n += 32) {
      const int row = n / w.outputs;
      v.outputs[(first + warp * 16) * w.outputs + n] =
          brim_to_bits16<fused_half>(s.out[(warp * 16 + row) * FUSED_L + n - row * w.outputs]);
    }
  }
  brim_copy_wait<0>();
}

#endif  // BRIM_RL_FUSED_UPDATE_CUH_
