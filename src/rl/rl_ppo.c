// PPO on the CPU (brim_ppo_table). Threads share chunks; the number of threads changes no bit of the results.
#include "rl/rl_ppo.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/backend_half.h"
#include "base/base.h"
#include "rl/rl_int.h"
#include "rl/rl_ppo_row.h"

static brim_status refuse(const char *problem) {
  return problem ? brim_fail(BRIM_EINVAL, "%s", brim_tr(problem)) : BRIM_OK;
}

// Work below this number of exponentials (about 100 us) stays on one thread.
enum { INLINE_WORK = 16384 };

static brim_status run_ranges(const brim_rollout_where *where, int64_t count, int64_t work,
                              brim_range_fn fn, void *ctx) {
  if (work < INLINE_WORK) {
    fn(ctx, 0, count, 0);
    return BRIM_OK;
  }
  brim_pool *pool;
  BRIM_TRY(brim_rl_pool(where, &pool));
  brim_pool_run(pool, count, fn, ctx);
  brim_rl_pool_done(where, pool);
  return BRIM_OK;
}

static float load(const brim_tensor *t, int64_t at) {
  if (t->dtype == BRIM_F32) return ((const float *)t->data)[at];
  const uint16_t half = ((const uint16_t *)t->data)[at];
  return t->dtype == BRIM_BF16 ? brim_bf16_to_f32(half) : brim_f16_to_f32(half);
}

static void store(const brim_tensor *t, int64_t at, float value) {
  if (t->dtype == BRIM_F32) {
    ((float *)t->data)[at] = value;
  } else {
    ((uint16_t *)t->data)[at] =
        t->dtype == BRIM_BF16 ? brim_f32_to_bf16(value) : brim_f32_to_f16(value);
  }
}

static brim_status scratch(const brim_ppo_shape *shape, size_t *bytes) {
  BRIM_TRY(refuse(brim_ppo_problem(shape)));
  *bytes = brim_ppo_scratch_of(shape);
  return BRIM_OK;
}

//---------------------------------- sums ----------------------------------

// Sums number `k` of all lanes, `stride` numbers apart, as a tree in a fixed order.
static double tree(double *lanes, int count, int stride, int k) {
  for (int width = count / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; i++) lanes[i * stride + k] += lanes[(i + width) * stride + k];
  }
  return lanes[k];
}

static double merge(const double *parts, int64_t count) {
  double lanes[BRIM_PPO_MERGE_LANES] = {0};
  for (int64_t i = 0; i < count; i++) lanes[i % BRIM_PPO_MERGE_LANES] += parts[i];
  return tree(lanes, BRIM_PPO_MERGE_LANES, 1, 0);
}

//---------------------------------- actions ----------------------------------

typedef struct sample_work {
  const brim_ppo_sample *w;
  int32_t act;
  uint64_t key, when;
  atomic_llong bad;
} sample_work;

static void sample_range(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  sample_work *s = ctx;
  const brim_ppo_sample *w = s->w;
  int64_t bad = 0;
  for (int64_t i = begin; i < end; i++) {
    float x[BRIM_PPO_MAX_WIDTH];
    for (int32_t a = 0; a < s->act; a++) x[a] = load(&w->outputs, i * w->outputs.dim[1] + a);
    const uint64_t mask = w->mask ? w->mask[i] : brim_ppo_mask_all(s->act);
    const uint32_t bits = brim_ppo_bits(s->key, s->when, w->first + i);
    const brim_ppo_choice c = brim_ppo_choose(x, s->act, mask, bits, w->best);
    bad += c.action < 0;
    w->action[i] = c.action < 0 ? 0 : c.action;
    if (w->logp) w->logp[i] = c.logp;
  }
  if (bad) atomic_fetch_add(&s->bad, (long long)bad);
}

static brim_status sample(const brim_rollout_where *where, const brim_ppo_shape *shape,
                          const brim_ppo_sample *work) {
  BRIM_TRY(refuse(brim_ppo_problem(shape)));
  BRIM_TRY(refuse(brim_ppo_sample_problem(shape, work)));
  sample_work s = {.w = work,
                   .act = shape->act,
                   .key = brim_ppo_action_key(work->seed, work->stream),
                   .when = *work->clock + (uint64_t)work->t};
  BRIM_TRY(run_ranges(where, work->rows, work->rows * (shape->act + 4), sample_range, &s));
  *work->bad += (int64_t)atomic_load(&s.bad);
  return BRIM_OK;
}

//---------------------------------- rows ----------------------------------

typedef struct rows_work {
  const brim_ppo_rows *w;
  brim_shuffle order;
} rows_work;

static void rows_range(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const rows_work *r = ctx;
  for (int64_t i = begin; i < end; i++) {
    r->w->rows[i] = (int32_t)brim_shuffle_at(&r->order, (uint64_t)(r->w->first + i));
  }
}

static brim_status rows(const brim_rollout_where *where, const brim_ppo_rows *work) {
  BRIM_TRY(refuse(brim_ppo_rows_problem(work)));
  rows_work r = {.w = work,
                 .order = brim_ppo_order(work->seed, *work->clock, work->epoch, work->total)};
  return run_ranges(where, work->count, 2 * work->count, rows_range, &r);
}

//---------------------------------- advantages ----------------------------------

typedef struct adv_work {
  const brim_ppo_shape *shape;
  const brim_ppo_advantages *w;
  brim_ppo_scale scale;
  int64_t columns, chunks;
  float decay;                // gamma * lambda
  double adv_mean, ret_mean;  // means that the second pass subtracts
  double *parts;              // (number, chunk)
} adv_work;

static float value_at(const adv_work *a, int64_t state, int64_t column) {
  const int64_t env = column / a->shape->rewards, reward = column % a->shape->rewards;
  const int64_t row = state * a->shape->envs + env;
  return brim_ppo_value_of(a->scale, load(&a->w->values, row * a->w->values.dim[1] + reward));
}

// Computes all steps of one (env, reward), from the last to the first.
static void go_back(const adv_work *a, int64_t column, double *sums) {
  const brim_ppo_shape *s = a->shape;
  const int64_t env = column / s->rewards;
  float after = value_at(a, s->steps, column), carry = 0.0f;
  for (int64_t t = s->steps - 1; t >= 0; t--) {
    const int64_t at = t * s->envs + env, to = t * a->columns + column;
    const int end = a->w->end[at];
    if (end != BRIM_ENV_RUNNING) {
      const int32_t last = end == BRIM_ENV_TRUNCATED ? a->w->final[at] : -1;
      after = last >= 0 && last < s->finals ? value_at(a, s->steps + 1 + last, column) : 0.0f;
      carry = 0.0f;
    }
    const float value = value_at(a, t, column);
    const float adv =
        brim_ppo_step_back(a->w->reward[to], value, after, a->w->gamma, a->decay, carry);
    const float ret = adv + value;
    a->w->adv[to] = adv;
    a->w->ret[to] = ret;
    a->w->old[to] = value;
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

static void first_pass(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const adv_work *a = ctx;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    double lanes[BRIM_PPO_COLUMNS][BRIM_PPO_SUMS] = {{0}};
    for (int64_t i = 0; i < BRIM_PPO_COLUMNS; i++) {
      const int64_t column = chunk * BRIM_PPO_COLUMNS + i;
      if (column < a->columns) go_back(a, column, lanes[i]);
    }
    for (int k = 0; k < BRIM_PPO_SUMS; k++) {
      a->parts[k * a->chunks + chunk] = tree(lanes[0], BRIM_PPO_COLUMNS, BRIM_PPO_SUMS, k);
    }
  }
}

static void second_pass(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const adv_work *a = ctx;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    double lanes[BRIM_PPO_COLUMNS][BRIM_PPO_DEVS] = {{0}};
    for (int64_t i = 0; i < BRIM_PPO_COLUMNS; i++) {
      const int64_t column = chunk * BRIM_PPO_COLUMNS + i;
      for (int64_t t = a->shape->steps - 1; column < a->columns && t >= 0; t--) {
        const float adv = a->w->adv[t * a->columns + column];
        const float ret = a->w->ret[t * a->columns + column];
        if (!brim_ppo_finite(adv) || !brim_ppo_finite(ret)) continue;
        const double x = (double)adv - a->adv_mean, y = (double)ret - a->ret_mean;
        lanes[i][BRIM_PPO_DEV_ADV] += x * x;
        lanes[i][BRIM_PPO_DEV_RET] += y * y;
      }
    }
    for (int k = 0; k < BRIM_PPO_DEVS; k++) {
      a->parts[k * a->chunks + chunk] = tree(lanes[0], BRIM_PPO_COLUMNS, BRIM_PPO_DEVS, k);
    }
  }
}

static brim_status advantages(const brim_rollout_where *where, const brim_ppo_shape *shape,
                              const brim_ppo_advantages *work) {
  BRIM_TRY(refuse(brim_ppo_problem(shape)));
  BRIM_TRY(refuse(brim_ppo_advantages_problem(shape, work)));
  const int64_t columns = (int64_t)shape->envs * shape->rewards;
  adv_work a = {.shape = shape,
                .w = work,
                .scale = brim_ppo_scale_of(work->norm),
                .columns = columns,
                .chunks = brim_ppo_chunks(columns, BRIM_PPO_COLUMNS),
                .decay = work->gamma * work->lambda,
                .parts = work->scratch};
  double sums[BRIM_PPO_SUMS], devs[BRIM_PPO_DEVS];
  BRIM_TRY(run_ranges(where, a.chunks, columns * shape->steps, first_pass, &a));
  for (int k = 0; k < BRIM_PPO_SUMS; k++) sums[k] = merge(a.parts + k * a.chunks, a.chunks);
  brim_ppo_means(sums, columns * shape->steps, &a.adv_mean, &a.ret_mean);
  BRIM_TRY(run_ranges(where, a.chunks, columns * shape->steps, second_pass, &a));
  for (int k = 0; k < BRIM_PPO_DEVS; k++) devs[k] = merge(a.parts + k * a.chunks, a.chunks);
  brim_ppo_finish(sums, devs, columns * shape->steps, work->moments);
  brim_ppo_norm_take(work->norm, sums, work->moments, work->beta);
  return BRIM_OK;
}

//---------------------------------- losses ----------------------------------

typedef struct loss_work {
  const brim_ppo_shape *shape;
  const brim_ppo_losses *w;
  brim_ppo_parts parts;
  brim_ppo_scale scale;
  float shift, adv_scale;
  int64_t batch;
} loss_work;

static float gradient_scale(const double *state) {
  return (float)(state[BRIM_STATE_GRAD_SCALE] * state[BRIM_STATE_LOSS_SCALE]);
}

static brim_ppo_policy_loss actor_row(const loss_work *l, int64_t row, float scale, float *x) {
  const brim_ppo_shape *s = l->shape;
  const brim_ppo_losses *w = l->w;
  const int64_t from = w->rows[row / s->agents], agent = row % s->agents;
  const int64_t at = from * s->agents + agent;
  const float adv = w->adv[s->rewards == 1 ? from : at];
  for (int32_t a = 0; a < s->act; a++) {
    x[a] = load(&w->actor.output, row * w->actor.output.dim[1] + a);
  }
  const brim_ppo_policy_input c = {.mask = w->mask ? w->mask[row] : brim_ppo_mask_all(s->act),
                                   .action = w->action[at],
                                   .logp = w->logp[at],
                                   .adv = (adv - l->shift) * l->adv_scale,
                                   .clip = w->clip,
                                   .entropy = w->entropy,
                                   .scale = scale};
  return brim_ppo_policy(x, s->act, &c);
}

static void actor_chunk(const loss_work *l, int64_t chunk) {
  const brim_ppo_net *net = &l->w->actor;
  const int64_t width = net->output.dim[1], first = chunk * BRIM_PPO_CHUNK;
  const int64_t valid = (int64_t)net->state[BRIM_STATE_ROWS];
  const float scale = gradient_scale(net->state);
  double lanes[BRIM_PPO_LANES][BRIM_PPO_ACTOR_METRICS] = {{0}};
  for (int64_t i = 0; i < BRIM_PPO_CHUNK && first + i < net->output.dim[0]; i++) {
    float x[BRIM_PPO_MAX_WIDTH] = {0};
    if (first + i < valid) {
      const brim_ppo_policy_loss f = actor_row(l, first + i, scale, x);
      brim_ppo_count_row(&f, lanes[i % BRIM_PPO_LANES]);
    }
    for (int64_t a = 0; a < width; a++) store(&net->gradient, (first + i) * width + a, x[a]);
  }
  double *parts = l->w->scratch;
  for (int32_t k = 0; k < BRIM_PPO_ACTOR_METRICS; k++) {
    parts[brim_ppo_part_at(l->parts, k) + chunk] =
        tree(lanes[0], BRIM_PPO_LANES, BRIM_PPO_ACTOR_METRICS, k);
  }
}

static void critic_chunk(const loss_work *l, int64_t chunk) {
  enum { METRICS = BRIM_PPO_METRIC_COUNT - BRIM_PPO_ACTOR_METRICS };
  const brim_ppo_losses *w = l->w;
  const brim_ppo_net *net = &w->critic;
  const int64_t width = net->output.dim[1], rewards = l->shape->rewards;
  const int64_t first = chunk * BRIM_PPO_CHUNK, numbers = l->batch * rewards;
  const int64_t valid = (int64_t)net->state[BRIM_STATE_ROWS];
  const float scale =
      brim_ppo_value_scale(w->value_coef, l->shape->rewards, gradient_scale(net->state));
  double lanes[BRIM_PPO_LANES][METRICS] = {{0}};
  for (int64_t i = 0; i < BRIM_PPO_CHUNK && first + i < numbers; i++) {
    const int64_t row = (first + i) / rewards, reward = (first + i) % rewards;
    float slope = 0.0f;
    if (row < valid) {
      const int64_t at = w->rows[row] * rewards + reward;
      const float value = load(&net->output, row * width + reward);
      const float target = brim_ppo_normal_of(l->scale, w->ret[at]);
      const float old = brim_ppo_normal_of(l->scale, w->old[at]);
      const brim_ppo_value_loss v = brim_ppo_value(value, old, target, w->value_clip, w->huber);
      brim_ppo_count_value(&v, value, target, lanes[i % BRIM_PPO_LANES]);
      slope = v.slope * scale;
    }
    store(&net->gradient, row * width + reward, slope);
    for (int64_t c = rewards; reward == 0 && c < width; c++) {
      store(&net->gradient, row * width + c, 0.0f);
    }
  }
  double *parts = w->scratch;
  for (int32_t k = 0; k < METRICS; k++) {
    parts[brim_ppo_part_at(l->parts, BRIM_PPO_ACTOR_METRICS + k) + chunk] =
        tree(lanes[0], BRIM_PPO_LANES, METRICS, k);
  }
}

static void loss_chunks(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const loss_work *l = ctx;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    if (chunk < l->parts.actor) {
      actor_chunk(l, chunk);
    } else {
      critic_chunk(l, chunk - l->parts.actor);
    }
  }
}

static brim_status losses(const brim_rollout_where *where, const brim_ppo_shape *shape,
                          const brim_ppo_losses *work) {
  BRIM_TRY(refuse(brim_ppo_problem(shape)));
  BRIM_TRY(refuse(brim_ppo_losses_problem(shape, work)));
  const int64_t batch = work->critic.output.dim[0];
  loss_work l = {.shape = shape,
                 .w = work,
                 .parts = brim_ppo_parts_of(shape, batch),
                 .scale = brim_ppo_scale_of(work->norm),
                 .shift = work->moments ? work->moments->shift : 0.0f,
                 .adv_scale = work->moments ? work->moments->scale : 1.0f,
                 .batch = batch};
  BRIM_TRY(run_ranges(where, l.parts.actor + l.parts.critic,
                      batch * shape->agents * (2 * shape->act + 4), loss_chunks, &l));
  const double *parts = work->scratch;
  for (int32_t k = 0; k < BRIM_PPO_METRIC_COUNT; k++) {
    const int64_t count = k < BRIM_PPO_ACTOR_METRICS ? l.parts.actor : l.parts.critic;
    work->metrics[k] += merge(parts + brim_ppo_part_at(l.parts, k), count);
  }
  return BRIM_OK;
}

const brim_ppo_table *brim_ppo_cpu(void) {
  static const brim_ppo_table table = {.abi = BRIM_PPO_ABI,
                                       .scratch = scratch,
                                       .sample = sample,
                                       .advantages = advantages,
                                       .rows = rows,
                                       .losses = losses};
  return &table;
}
