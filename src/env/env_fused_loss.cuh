// Losses of the rows of a tile: outputs in shared memory become their gradients there. A thread has a row, the
// same one of every tile. The arithmetic is env_ppo_row.h's.
#ifndef BRIM_ENV_FUSED_LOSS_CUH_
#define BRIM_ENV_FUSED_LOSS_CUH_

#include "backend/backend_mma.cuh"
#include "env/env_fused.h"
#include "env/env_ppo_row.h"

enum {
  FUSED_METRICS = BRIM_PPO_METRIC_COUNT - BRIM_PPO_ACTOR_METRICS,  // of a network, at most
  FUSED_L = BRIM_FUSED_MAX_OUTPUTS + 1  // floats from one row of outputs to the next
};
static_assert((int)FUSED_METRICS >= (int)BRIM_PPO_ACTOR_METRICS, "sums of either network fit");

// Which of several rows of a number a row of the minibatch is, without a division.
struct fused_divide {
  uint32_t by, factor;
  int32_t shift;

  // Exact below 2^31.
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

// What the losses of one network read.
struct fused_loss {
  const int32_t *rows, *action;
  const uint64_t *mask;
  const uint8_t *allowed;
  const float *logp, *adv, *ret, *old;
  const brim_ppo_norm *norm;
  const brim_ppo_moments *moments;
  const double *state;
  float clip, value_clip, value_coef, entropy, huber;
  fused_divide agents;  // rows of each number, 1 for a critic
  int32_t act, rewards, critic;
};

// What a row's loss needs besides the outputs: read long before those are there.
struct fused_case {
  uint32_t mask;  // actions are at most 8
  int64_t from;
  int32_t action;
  float logp, adv;
};

// `listed` is what w.rows has of row i's number.
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

// Numbers that all rows share.
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

// brim_ppo_policy with the special function unit's exp2 and log2: to 2^-20 or so.
template <int ACT>
__device__ static brim_ppo_found fused_policy_fast(float *x, const brim_ppo_case *c) {
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
  if (!can) return brim_ppo_refuse(x, ACT, 0.0f);
#pragma unroll
  for (int a = 0; a < ACT; a++) {
    x[a] -= most;
    e[a] = mask >> a & 1 ? brim_exp2_fast(x[a] * log2e) : 0.0f;
    sum += e[a];
    weighted = mask >> a & 1 ? __fmaf_rn(e[a], x[a], weighted) : weighted;
    chosen = a == c->action ? x[a] : chosen;
  }
  const float log_sum = __log2f(sum) * 0.69314718f, inverse = __fdividef(1.0f, sum);
  const float apart = (chosen - log_sum) - c->logp, ratio = brim_exp2_fast(apart * log2e);
  const float kept = fminf(fmaxf(ratio, 1.0f - c->clip), 1.0f + c->clip);
  const float plain = ratio * c->adv, held = kept * c->adv;
  brim_ppo_found f;
  f.loss = plain <= held ? -plain : -held;
  f.entropy = __fmaf_rn(-weighted, inverse, log_sum);
  f.kl = (ratio - 1.0f) - apart;
  f.clipped = kept != ratio;
  f.bad =
      !finite || !brim_ppo_finite(f.loss) || !brim_ppo_finite(f.kl) || !brim_ppo_finite(f.entropy);
  if (f.bad) return brim_ppo_refuse(x, ACT, NAN);
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

// x: outputs of a row, which become their gradient; columns past the actions get 0. Sums of losses of a row
// lie SUMS doubles apart.
template <bool FAST, int SUMS, int ACT = BRIM_FUSED_MAX_ACT>
__device__ static void fused_policy(const fused_loss &w, const fused_scales &s, const fused_case &c,
                                    float *x, double *sums) {
  float v[ACT];
#pragma unroll
  for (int a = 0; a < ACT; a++) v[a] = x[a];
  brim_ppo_case p;
  p.mask = c.mask & brim_ppo_all(w.act);
  p.action = c.action;
  p.logp = c.logp;
  p.adv = (c.adv - s.shift) * s.by;
  p.clip = w.clip;
  p.entropy = w.entropy;
  p.scale = s.gradient;
  const brim_ppo_found f = FAST ? fused_policy_fast<ACT>(v, &p) : brim_ppo_policy(v, ACT, &p);
  double own[BRIM_PPO_ACTOR_METRICS] = {};
  brim_ppo_count_row(&f, own);
#pragma unroll
  for (int k = 0; k < BRIM_PPO_ACTOR_METRICS; k++) sums[k * SUMS] += own[k];
#pragma unroll
  for (int a = 0; a < ACT; a++) x[a] = a < w.act ? v[a] : 0.0f;
}

// Row i of an actor's minibatch; `x` has no more columns than actions may be.
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
    const brim_ppo_worth v = brim_ppo_value(value, old, target, w.value_clip, w.huber);
    brim_ppo_count_value(&v, value, target, own);
    x[k] = v.slope * s.gradient;
  }
#pragma unroll
  for (int k = 0; k < FUSED_METRICS; k++) sums[k * SUMS] += own[k];
  for (int32_t k = w.rewards; k < BRIM_FUSED_MAX_OUTPUTS; k++) x[k] = 0.0f;
}

// Row i of the minibatch; rows past the valid ones have no gradient. FAST: exp and log of the special function
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

#endif  // BRIM_ENV_FUSED_LOSS_CUH_
