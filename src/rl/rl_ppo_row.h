// The arithmetic of PPO for one row, one value and one step, and how sums are ordered: shared by the CPU's
// code and the kernels, so that both give the same bits.
#ifndef BRIM_RL_PPO_ROW_H_
#define BRIM_RL_PPO_ROW_H_

#include "base/base_msg.h"
#include "hd/hd_exp.h"
#include "hd/hd_shuffle.h"
#include "rl/rl_ppo.h"

// The order of sums. In a chunk, lane l adds the numbers l, l + LANES, ... in order; then the upper
// half of the lanes is added to the lower until one is left. MERGE_LANES lanes merge the chunks'
// sums the same way.
enum {
  BRIM_PPO_LANES = 128,
  BRIM_PPO_CHUNK = 4 * BRIM_PPO_LANES,  // rows or values of a sum of losses
  BRIM_PPO_COLUMNS = BRIM_PPO_LANES,    // (env, reward) pairs of a sum of advantages, all steps
  BRIM_PPO_MERGE_LANES = 256
};

// Sums of the first pass over the advantages, and of the second (squared deviations from the means).
enum { BRIM_PPO_SUM_ADV, BRIM_PPO_SUM_RET, BRIM_PPO_SUM_SQUARE, BRIM_PPO_SUM_BAD, BRIM_PPO_SUMS };
enum { BRIM_PPO_DEV_ADV, BRIM_PPO_DEV_RET, BRIM_PPO_DEVS };

// Rows that lie in registers must not be indexed by a variable.
#ifdef __CUDA_ARCH__
#define BRIM_PPO_UNROLL _Pragma("unroll")
#else
#define BRIM_PPO_UNROLL
#endif

BRIM_HD int64_t brim_ppo_chunks(int64_t numbers, int64_t chunk) {
  return (numbers + chunk - 1) / chunk;
}

//---------------------------------- what callers give ----------------------------------

BRIM_HD const char *brim_ppo_problem(const brim_ppo_shape *s) {
  if (s->steps < 1 || s->envs < 1 || s->agents < 1 || s->finals < 0 || s->batch < 0) {
    return BRIM_N_("PPO needs at least 1 step, 1 environment and 1 agent");
  }
  if (s->act < 1 || s->act > BRIM_PPO_MAX_WIDTH) {
    return BRIM_N_("PPO needs 1 to 64 discrete actions");
  }
  if (s->rewards != 1 && s->rewards != s->agents) {
    return BRIM_N_("a step has to have 1 reward, or 1 for each agent");
  }
  const int64_t most = INT32_MAX;
  const int64_t states = (int64_t)s->steps + 1 + s->finals, each = most / s->envs;
  if (states > each || (int64_t)s->steps * s->agents > each || s->batch > most / s->agents) {
    return BRIM_N_("a rollout has at most 2147483647 states and actions of agents");
  }
  return NULL;
}

// True if t is a matrix of f32, bf16 or f16 with `rows` rows or more and from..to columns.
BRIM_HD int brim_ppo_fits(const brim_tensor *t, int64_t rows, int64_t from, int64_t to) {
  const int type = t->dtype == BRIM_F32 || t->dtype == BRIM_BF16 || t->dtype == BRIM_F16;
  return type && t->data && t->rank == 2 && t->dim[0] >= rows && t->dim[1] >= from &&
         t->dim[1] <= to;
}

BRIM_HD const char *brim_ppo_sample_problem(const brim_ppo_shape *s, const brim_ppo_sample *w) {
  if (w->rows < 0 || w->first < 0 || w->first > (int64_t)s->envs * s->agents - w->rows) {
    return BRIM_N_("actions are drawn for rows of one step only");
  }
  if (!brim_ppo_fits(&w->outputs, w->rows, s->act, BRIM_PPO_MAX_WIDTH)) {
    return BRIM_N_("the actor's outputs do not fit the rows and actions of the rollout");
  }
  return NULL;
}

BRIM_HD const char *brim_ppo_advantages_problem(const brim_ppo_shape *s,
                                                const brim_ppo_advantages *w) {
  const int64_t states = ((int64_t)s->steps + 1 + s->finals) * s->envs;
  if (!brim_ppo_fits(&w->values, states, s->rewards, INT32_MAX)) {
    return BRIM_N_("the critic's values do not fit the states and rewards of the rollout");
  }
  if (!(w->beta >= 0.0f && w->beta < 1.0f)) {
    return BRIM_N_("the decay of value normalisation has to be from 0 to below 1");
  }
  return NULL;
}

BRIM_HD const char *brim_ppo_rows_problem(const brim_ppo_rows *w) {
  if (w->total < 1 || w->total > INT32_MAX || w->first < 0 || w->count < 0 ||
      w->first > w->total - w->count || w->epoch < 0 || w->epoch >= BRIM_PPO_MAX_EPOCHS) {
    return BRIM_N_("a minibatch has to be a range of the rows of an epoch");
  }
  return NULL;
}

BRIM_HD int brim_ppo_net_fits(const brim_ppo_net *n, int64_t rows, int64_t from, int64_t to) {
  return brim_ppo_fits(&n->output, rows, from, to) && n->output.dim[0] == rows && n->state &&
         n->gradient.data && n->gradient.rank == 2 && n->gradient.dtype == n->output.dtype &&
         n->gradient.dim[0] == rows && n->gradient.dim[1] == n->output.dim[1];
}

BRIM_HD const char *brim_ppo_losses_problem(const brim_ppo_shape *s, const brim_ppo_losses *w) {
  const int64_t batch = w->critic.output.dim[0];
  if (batch > s->batch || !brim_ppo_net_fits(&w->critic, batch, s->rewards, INT32_MAX)) {
    return BRIM_N_("the critic's tensors do not fit the minibatch");
  }
  if (!brim_ppo_net_fits(&w->actor, batch * s->agents, s->act, BRIM_PPO_MAX_WIDTH) ||
      w->actor.output.dtype != w->critic.output.dtype) {
    return BRIM_N_("the actor's tensors do not fit the minibatch");
  }
  if (!(w->clip >= 0.0f) || !(w->value_clip >= 0.0f) || !(w->huber >= 0.0f)) {
    return BRIM_N_("clip, value_clip and huber have to be 0 or more");
  }
  return NULL;
}

// Parts of sums of losses: the actor's metrics, then the critic's, each (metric, chunk).
typedef struct brim_ppo_parts {
  int64_t actor, critic;  // chunks
} brim_ppo_parts;

BRIM_HD brim_ppo_parts brim_ppo_parts_of(const brim_ppo_shape *s, int64_t batch) {
  brim_ppo_parts p;
  p.actor = brim_ppo_chunks(batch * s->agents, BRIM_PPO_CHUNK);
  p.critic = brim_ppo_chunks(batch * s->rewards, BRIM_PPO_CHUNK);
  return p;
}

BRIM_HD int64_t brim_ppo_part_at(brim_ppo_parts p, int32_t metric) {
  const int32_t n = BRIM_PPO_ACTOR_METRICS;
  return metric < n ? metric * p.actor : n * p.actor + (metric - n) * p.critic;
}

BRIM_HD size_t brim_ppo_scratch_of(const brim_ppo_shape *s) {
  const int64_t columns = brim_ppo_chunks((int64_t)s->envs * s->rewards, BRIM_PPO_COLUMNS);
  const int64_t losses = brim_ppo_part_at(brim_ppo_parts_of(s, s->batch), BRIM_PPO_METRIC_COUNT);
  const int64_t moments = (columns + 1) * BRIM_PPO_SUMS;  // and their sums
  const size_t bytes = (size_t)(losses > moments ? losses : moments) * sizeof(double);
  return (bytes + 255) / 256 * 256;
}

BRIM_HD int brim_ppo_finite(float x) { return x - x == 0.0f; }

//---------------------------------- actions ----------------------------------

BRIM_HD uint64_t brim_ppo_mask_all(int32_t act) { return act >= 64 ? ~0ull : (1ull << act) - 1; }

BRIM_HD int brim_ppo_allows(uint64_t mask, int32_t a) { return (int)(mask >> a & 1); }

BRIM_HD uint64_t brim_ppo_action_key(uint64_t seed, uint64_t stream) {
  if (stream) seed = brim_rng_key(seed, BRIM_RNG_HELD_OUT) ^ stream;
  return brim_rng_key(seed, BRIM_RNG_ACTION);
}

// Subtracts the largest allowed output from every output, so that the largest exp is 1; masked outputs
// become 0. Returns 0 if nothing is allowed or an allowed output is not finite, else 1.
BRIM_HD int brim_ppo_center(float *x, int32_t act, uint64_t mask) {
  float top = -INFINITY;
  int good = 0, lost = 0;
  BRIM_PPO_UNROLL
  for (int32_t a = 0; a < act; a++) {
    const int on = brim_ppo_allows(mask, a);
    good |= on;
    lost |= on && !brim_ppo_finite(x[a]);
    top = on && x[a] > top ? x[a] : top;
  }
  BRIM_PPO_UNROLL
  for (int32_t a = 0; a < act; a++) x[a] = brim_ppo_allows(mask, a) ? x[a] - top : 0.0f;
  return good && !lost;
}

// exp of a centred output; exactly 0 where masked.
BRIM_HD float brim_ppo_exp(const float *x, int32_t a, uint64_t mask) {
  const float e = brim_hd_exp_below(x[a]);
  return brim_ppo_allows(mask, a) ? e : 0.0f;
}

typedef struct brim_ppo_choice {
  int32_t action;  // -1: none, the row is bad
  float logp;
} brim_ppo_choice;

// Chooses an action from the outputs x, which it changes. best 0: draws with the random `bits`; best 1:
// takes the first of the most probable actions.
BRIM_HD brim_ppo_choice brim_ppo_choose(float *x, int32_t act, uint64_t mask, uint32_t bits,
                                        int32_t best) {
  brim_ppo_choice c;
  c.action = -1;
  c.logp = 0.0f;
  if (!brim_ppo_center(x, act, mask)) return c;
  float sum = 0.0f, chosen = 0.0f;
  BRIM_PPO_UNROLL
  for (int32_t a = 0; a < act; a++) sum = sum + brim_ppo_exp(x, a, mask);
  const float goal = brim_rng_uniform(bits) * sum;
  float upto = 0.0f;
  int found = 0;
  // Takes the first action whose cumulated probability exceeds the goal. If rounding keeps the sum
  // below the goal, the last action of positive probability stays.
  BRIM_PPO_UNROLL
  for (int32_t a = 0; a < act; a++) {
    const float e = brim_ppo_exp(x, a, mask);
    upto = upto + e;
    const int takes = best ? brim_ppo_allows(mask, a) && x[a] == 0.0f : e > 0.0f;
    if (!found && takes) {
      c.action = a;
      chosen = x[a];
      found = best || upto > goal;
    }
  }
  c.logp = chosen - brim_hd_log(sum);
  return c;
}

// Random bits of a row at the clock value `when`.
BRIM_HD uint32_t brim_ppo_bits(uint64_t key, uint64_t when, int64_t row) {
  return brim_philox(key, when, (uint64_t)row).v[0];
}

// The order of an epoch's rows.
BRIM_HD brim_shuffle brim_ppo_order(uint64_t seed, uint64_t clock, int32_t epoch, int64_t total) {
  return brim_shuffle_make(brim_rng_key(seed, BRIM_RNG_ROWS), clock << 16 | (uint32_t)epoch,
                           (uint64_t)total);
}

//---------------------------------- advantages ----------------------------------

// Value normalization: value = output * std + mean; inverse = 1 / std.
typedef struct brim_ppo_scale {
  float mean, std, inverse;
} brim_ppo_scale;

BRIM_HD brim_ppo_scale brim_ppo_scale_of(const brim_ppo_norm *norm) {
  brim_ppo_scale s = {0.0f, 1.0f, 1.0f};
  if (norm && norm->weight > 0) {
    s.mean = norm->mean;
    s.std = norm->std;
    s.inverse = norm->inverse;
  }
  return s;
}

BRIM_HD float brim_ppo_value_of(brim_ppo_scale s, float output) { return output * s.std + s.mean; }
BRIM_HD float brim_ppo_normal_of(brim_ppo_scale s, float value) {
  return (value - s.mean) * s.inverse;
}

// One step back. `after` is the value behind the step, `carry` the advantage of the next step: both 0
// where there is none.
BRIM_HD float brim_ppo_step_back(float reward, float value, float after, float gamma, float decay,
                                 float carry) {
  const float delta = (reward + gamma * after) - value;
  return delta + decay * carry;
}

// Means from the sums of the first pass.
BRIM_HD void brim_ppo_means(const double *sums, int64_t numbers, double *adv, double *ret) {
  const double count = (double)numbers - sums[BRIM_PPO_SUM_BAD], n = count > 0 ? count : 1;
  *adv = sums[BRIM_PPO_SUM_ADV] / n;
  *ret = sums[BRIM_PPO_SUM_RET] / n;
}

// Moments from the sums of both passes. scale is 0 if the deviation may be rounding alone.
BRIM_HD void brim_ppo_finish(const double *sums, const double *devs, int64_t numbers,
                             brim_ppo_moments *m) {
  m->bad = (int64_t)sums[BRIM_PPO_SUM_BAD];
  m->count = numbers - m->bad;
  const double n = m->count > 0 ? (double)m->count : 1;
  brim_ppo_means(sums, numbers, &m->adv_mean, &m->ret_mean);
  m->adv_std = sqrt(devs[BRIM_PPO_DEV_ADV] / n);
  m->ret_std = sqrt(devs[BRIM_PPO_DEV_RET] / n);
  const double mean = m->adv_mean < 0 ? -m->adv_mean : m->adv_mean;
  const double least = 1e-6 * mean > 1e-8 ? 1e-6 * mean : 1e-8;
  m->shift = (float)m->adv_mean;
  m->scale = m->adv_std > least ? (float)(1.0 / m->adv_std) : 0.0f;
  const double share = m->adv_std / m->ret_std;
  m->explained = m->ret_std > 0 ? 1.0 - share * share : (double)NAN;
}

// Takes in an iteration's returns. Variances below 1e-4 are not trusted.
BRIM_HD void brim_ppo_norm_take(brim_ppo_norm *norm, const double *sums,
                                const brim_ppo_moments *found, float decay) {
  if (!norm || found->bad || found->count < 1) return;
  const double beta = (double)decay, mean = found->ret_mean;
  const double square = sums[BRIM_PPO_SUM_SQUARE] / (double)found->count;
  norm->mean_sum = beta * norm->mean_sum + (1.0 - beta) * mean;
  norm->square_sum = beta * norm->square_sum + (1.0 - beta) * square;
  norm->weight = beta * norm->weight + (1.0 - beta);
  const double m = norm->mean_sum / norm->weight;
  const double variance = norm->square_sum / norm->weight - m * m;
  const double std = sqrt(variance > 1e-4 ? variance : 1e-4);
  norm->mean = (float)m;
  norm->std = (float)std;
  norm->inverse = (float)(1.0 / std);
  norm->reserved = 0.0f;
}

//---------------------------------- losses ----------------------------------

// What brim_ppo_policy reads of a row and of the settings.
typedef struct brim_ppo_policy_input {
  uint64_t mask;
  int32_t action;
  float logp, adv;  // old log probability, normalised advantage
  float clip, entropy, scale;
} brim_ppo_policy_input;

typedef struct brim_ppo_policy_loss {
  float loss, entropy, kl;
  int32_t clipped, bad;
} brim_ppo_policy_loss;

// The result of a bad row, whose gradient becomes `gradient`.
BRIM_HD brim_ppo_policy_loss brim_ppo_bad_row(float *x, int32_t act, float gradient) {
  brim_ppo_policy_loss f = {0.0f, 0.0f, 0.0f, 0, 1};
  BRIM_PPO_UNROLL
  for (int32_t a = 0; a < act; a++) x[a] = gradient;
  return f;
}

// x: outputs, which become their gradient.
BRIM_HD brim_ppo_policy_loss brim_ppo_policy(float *x, int32_t act,
                                             const brim_ppo_policy_input *c) {
  brim_ppo_policy_loss f;
  const int can = c->action >= 0 && c->action < act && brim_ppo_allows(c->mask, c->action);
  if (!can) return brim_ppo_bad_row(x, act, 0.0f);
  if (!brim_ppo_center(x, act, c->mask)) return brim_ppo_bad_row(x, act, NAN);
  float sum = 0.0f, weighted = 0.0f, chosen = 0.0f;
  BRIM_PPO_UNROLL
  for (int32_t a = 0; a < act; a++) {
    const float e = brim_ppo_exp(x, a, c->mask);
    sum = sum + e;
    weighted = weighted + e * x[a];
    chosen = a == c->action ? x[a] : chosen;
  }
  const float log_sum = brim_hd_log(sum), inverse = 1.0f / sum;
  const float log_ratio = (chosen - log_sum) - c->logp, ratio = brim_hd_exp(log_ratio);
  const float low = 1.0f - c->clip, high = 1.0f + c->clip;
  const float kept = ratio < low ? low : ratio > high ? high : ratio;
  const float plain = ratio * c->adv, held = kept * c->adv;
  f.loss = plain <= held ? -plain : -held;
  f.entropy = log_sum - weighted * inverse;
  f.kl = (ratio - 1.0f) - log_ratio;
  f.clipped = ratio < low || ratio > high;
  // The outputs are finite, but the difference of two may overflow.
  f.bad = !brim_ppo_finite(f.loss) || !brim_ppo_finite(f.kl) || !brim_ppo_finite(f.entropy);
  if (f.bad) return brim_ppo_bad_row(x, act, NAN);
  const float slope = plain <= held ? -plain : 0.0f;  // of the loss by the log probability
  BRIM_PPO_UNROLL
  for (int32_t a = 0; a < act; a++) {
    const float p = brim_ppo_exp(x, a, c->mask) * inverse;
    const float own = a == c->action ? 1.0f - p : -p;
    const float spread = c->entropy * (p * ((x[a] - log_sum) + f.entropy));
    x[a] = (slope * own + spread) * c->scale;
  }
  return f;
}

// Adds a row to the actor's metrics.
BRIM_HD void brim_ppo_count_row(const brim_ppo_policy_loss *f, double *sums) {
  sums[BRIM_PPO_ROWS] += 1;
  sums[BRIM_PPO_BAD] += f->bad;
  sums[BRIM_PPO_POLICY_LOSS] += (double)f->loss;
  sums[BRIM_PPO_ENTROPY] += (double)f->entropy;
  sums[BRIM_PPO_KL] += (double)f->kl;
  sums[BRIM_PPO_CLIPPED] += f->clipped;
}

// The loss of an error e, and its derivative in *slope: e^2 / 2, or Huber's loss if huber > 0.
BRIM_HD float brim_ppo_error(float e, float huber, float *slope) {
  const float size = e < 0.0f ? -e : e;
  if (huber > 0.0f && size > huber) {
    *slope = e < 0.0f ? -huber : huber;
    return huber * (size - 0.5f * huber);
  }
  *slope = e;
  return 0.5f * (e * e);
}

typedef struct brim_ppo_value_loss {
  float loss, slope;
  int32_t clipped, bad;
} brim_ppo_value_loss;

// Value, old value and target are normalised.
BRIM_HD brim_ppo_value_loss brim_ppo_value(float value, float old, float target, float clip,
                                           float huber) {
  brim_ppo_value_loss w;
  w.loss = brim_ppo_error(value - target, huber, &w.slope);
  const float moved = value - old;
  w.clipped = clip > 0.0f && (moved > clip || moved < -clip);
  if (w.clipped) {
    float none;
    const float held = moved > 0.0f ? old + clip : old - clip;
    const float other = brim_ppo_error(held - target, huber, &none);
    if (other > w.loss) {
      w.loss = other;
      w.slope = 0.0f;
    }
  }
  w.bad = !brim_ppo_finite(w.loss);
  if (w.bad) w.slope = NAN;
  return w;
}

// The factor from the slope of the value loss to the gradient of an output.
BRIM_HD float brim_ppo_value_scale(float coef, int32_t rewards, float scale) {
  return coef / (float)rewards * scale;
}

// Adds a value to the critic's metrics; sums[0] is the first of them.
BRIM_HD void brim_ppo_count_value(const brim_ppo_value_loss *w, float value, float target,
                                  double *sums) {
  sums[BRIM_PPO_VALUES - BRIM_PPO_ACTOR_METRICS] += 1;
  sums[BRIM_PPO_BAD_VALUES - BRIM_PPO_ACTOR_METRICS] += w->bad;
  if (w->bad) return;
  const double error = (double)target - (double)value;
  sums[BRIM_PPO_VALUE_LOSS - BRIM_PPO_ACTOR_METRICS] += (double)w->loss;
  sums[BRIM_PPO_VALUE_CLIPPED - BRIM_PPO_ACTOR_METRICS] += w->clipped;
  sums[BRIM_PPO_ERROR - BRIM_PPO_ACTOR_METRICS] += error;
  sums[BRIM_PPO_ERROR_SQUARE - BRIM_PPO_ACTOR_METRICS] += error * error;
  sums[BRIM_PPO_TARGET - BRIM_PPO_ACTOR_METRICS] += (double)target;
  sums[BRIM_PPO_TARGET_SQUARE - BRIM_PPO_ACTOR_METRICS] += (double)target * (double)target;
}

#endif  // BRIM_RL_PPO_ROW_H_
