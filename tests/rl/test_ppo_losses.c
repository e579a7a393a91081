// Losses and gradients of PPO against a reference in double precision and its finite differences, on both sides of
// every clip; masks, padding, scales; and the order of rows between actor, critic and rollout.
#include "ppo_test.h"

enum { STEPS = 5, ENVS = 7, AGENTS = 3, ROWS = STEPS * ENVS, BATCH = 16, VALID = 13, MAX_ACT = 64 };

// A rollout, a minibatch of it and the settings.
typedef struct scene {
  int32_t act, width, rewards, critic_width;
  brim_dtype type;
  int32_t rows[BATCH];
  float actor[BATCH * AGENTS * MAX_ACT], critic[BATCH * (AGENTS + 2)];
  uint64_t mask[BATCH * AGENTS];
  bool masked;
  int32_t action[ROWS * AGENTS];
  float logp[ROWS * AGENTS], adv[ROWS * AGENTS], ret[ROWS * AGENTS], old[ROWS * AGENTS];
  bool has_norm, has_moments;
  brim_ppo_norm norm;
  brim_ppo_moments moments;
  float clip, value_clip, value_coef, entropy, huber;
  double actor_state[BRIM_STATE_COUNT], critic_state[BRIM_STATE_COUNT];
} scene;

typedef struct outcome {
  float actor[BATCH * AGENTS * MAX_ACT], critic[BATCH * (AGENTS + 2)];
  double metrics[BRIM_PPO_METRIC_COUNT];
} outcome;

static brim_ppo_shape shape_of(const scene *s) {
  return (brim_ppo_shape){.steps = STEPS,
                          .envs = ENVS,
                          .agents = AGENTS,
                          .act = s->act,
                          .rewards = s->rewards,
                          .batch = BATCH};
}

static brim_ppo_net net_of(ppo_place *p, const scene *s, int64_t rows, int64_t width,
                           const float *output, const double *state) {
  return (brim_ppo_net){.output = ppo_give_tensor(p, s->type, rows, width, output),
                        .gradient = ppo_give_tensor(p, s->type, rows, width, NULL),
                        .state = ppo_give(p, state, BRIM_STATE_COUNT * sizeof(double))};
}

// Runs twice, with metrics that begin at 1, because losses add to them.
static void run(ppo_place *p, const scene *s, outcome *out) {
  const brim_ppo_shape shape = shape_of(s);
  const size_t per_agent = sizeof s->logp, per_reward = (size_t)(ROWS * s->rewards) * 4;
  double ones[BRIM_PPO_METRIC_COUNT];
  for (int k = 0; k < BRIM_PPO_METRIC_COUNT; k++) ones[k] = 1;
  brim_ppo_losses w = {
      .rows = ppo_give(p, s->rows, sizeof s->rows),
      .actor = net_of(p, s, BATCH * AGENTS, s->width, s->actor, s->actor_state),
      .critic = net_of(p, s, BATCH, s->critic_width, s->critic, s->critic_state),
      .mask = s->masked ? ppo_give(p, s->mask, sizeof s->mask) : NULL,
      .action = ppo_give(p, s->action, sizeof s->action),
      .logp = ppo_give(p, s->logp, per_agent),
      .adv = ppo_give(p, s->adv, per_reward),
      .ret = ppo_give(p, s->ret, per_reward),
      .old = ppo_give(p, s->old, per_reward),
      .norm = s->has_norm ? ppo_give(p, &s->norm, sizeof s->norm) : NULL,
      .moments = s->has_moments ? ppo_give(p, &s->moments, sizeof s->moments) : NULL,
      .clip = s->clip,
      .value_clip = s->value_clip,
      .value_coef = s->value_coef,
      .entropy = s->entropy,
      .huber = s->huber,
      .metrics = ppo_give(p, ones, sizeof ones),
      .scratch = ppo_scratch(p, &shape)};
  for (int i = 0; i < 2; i++) assert_ok(p->table->losses(&p->where, &shape, &w));
  ppo_take_tensor(p, &w.actor.gradient, out->actor);
  ppo_take_tensor(p, &w.critic.gradient, out->critic);
  ppo_take(p, out->metrics, w.metrics, sizeof out->metrics);
  for (int k = 0; k < BRIM_PPO_METRIC_COUNT; k++) out->metrics[k] = (out->metrics[k] - 1) / 2;
  ppo_clear(p);
}

//---------------------------------- the reference ----------------------------------

static void log_softmax(const double *x, int32_t act, uint64_t mask, double *out) {
  double top = -INFINITY, sum = 0;
  for (int32_t a = 0; a < act; a++) top = mask >> a & 1 ? fmax(top, x[a]) : top;
  for (int32_t a = 0; a < act; a++) sum += mask >> a & 1 ? exp(x[a] - top) : 0;
  for (int32_t a = 0; a < act; a++) out[a] = mask >> a & 1 ? x[a] - top - log(sum) : -INFINITY;
}

static uint64_t mask_of(const scene *s, int64_t row) {
  const uint64_t all = s->act == 64 ? ~0ull : (1ull << s->act) - 1;
  return s->masked ? s->mask[row] & all : all;
}

typedef struct policy_terms {
  double loss, entropy, kl, ratio;
} policy_terms;

static policy_terms policy_reference(const scene *s, int64_t row, const double *x) {
  const int64_t from = s->rows[row / AGENTS], at = from * AGENTS + row % AGENTS;
  double logp[MAX_ACT], adv = (double)s->adv[s->rewards == 1 ? from : at];
  if (s->has_moments) adv = (adv - (double)s->moments.shift) * (double)s->moments.scale;
  log_softmax(x, s->act, mask_of(s, row), logp);
  policy_terms t = {0};
  const double apart = logp[s->action[at]] - (double)s->logp[at];
  t.ratio = exp(apart);
  const double low = 1 - (double)s->clip, high = 1 + (double)s->clip;
  t.loss = -fmin(t.ratio * adv, fmin(fmax(t.ratio, low), high) * adv);
  t.kl = t.ratio - 1 - apart;
  for (int32_t a = 0; a < s->act; a++) {
    if (logp[a] > -1e300) t.entropy -= exp(logp[a]) * logp[a];
  }
  return t;
}

static double error_reference(double e, double huber) {
  return huber > 0 && fabs(e) > huber ? huber * (fabs(e) - huber / 2) : e * e / 2;
}

static double normal_reference(const scene *s, float x) {
  return s->has_norm ? ((double)x - (double)s->norm.mean) / (double)s->norm.std : (double)x;
}

static double value_reference(const scene *s, int64_t row, int64_t reward, double value) {
  const int64_t at = (int64_t)s->rows[row] * s->rewards + reward;
  const double target = normal_reference(s, s->ret[at]), old = normal_reference(s, s->old[at]);
  const double plain = error_reference(value - target, (double)s->huber);
  if (s->value_clip <= 0) return plain;
  const double limit = (double)s->value_clip;
  const double held = old + fmin(fmax(value - old, -limit), limit);
  return fmax(plain, error_reference(held - target, (double)s->huber));
}

static double slope(double a, double b, double step) { return (a - b) / (2 * step); }

// The derivative of a row's whole loss by output `a`.
static double policy_slope(const scene *s, int64_t row, int32_t a) {
  double x[MAX_ACT], side[2];
  const double step = 1e-6;
  for (int k = 0; k < 2; k++) {
    for (int32_t j = 0; j < s->act; j++) {
      x[j] = (double)ppo_rounded(s->type, s->actor[row * s->width + j]);
    }
    x[a] += k ? -step : step;
    const policy_terms t = policy_reference(s, row, x);
    side[k] = t.loss - (double)s->entropy * t.entropy;
  }
  return slope(side[0], side[1], step);
}

static double value_slope(const scene *s, int64_t row, int64_t reward) {
  const double step = 1e-6;
  const double v = (double)ppo_rounded(s->type, s->critic[row * s->critic_width + reward]);
  return (double)s->value_coef / s->rewards *
         slope(value_reference(s, row, reward, v + step), value_reference(s, row, reward, v - step),
               step);
}

static double scale_of(const double *state) {
  return state[BRIM_STATE_GRAD_SCALE] * state[BRIM_STATE_LOSS_SCALE];
}

// The rounding error of a gradient in its type.
static double within(const scene *s, double want, double scale) {
  const double unit = s->type == BRIM_F32 ? 2e-6 : s->type == BRIM_BF16 ? 4e-3 : 6e-4;
  return unit * fabs(want) + 5e-6 * scale + (s->type == BRIM_F16 ? 3e-8 : 0);
}

static void check_gradients(const scene *s, const outcome *got) {
  const double actor = scale_of(s->actor_state), critic = scale_of(s->critic_state);
  for (int64_t row = 0; row < BATCH * AGENTS; row++) {
    for (int32_t a = 0; a < s->width; a++) {
      const float is = got->actor[row * s->width + a];
      const bool counts = row < VALID * AGENTS && a < s->act && mask_of(s, row) >> a & 1;
      const double want = counts ? policy_slope(s, row, a) * actor : 0;
      if (!counts) assert_true(is == 0.0f);
      assert_close(is, want, within(s, want, actor));
    }
  }
  for (int64_t row = 0; row < BATCH; row++) {
    for (int32_t c = 0; c < s->critic_width; c++) {
      const float is = got->critic[row * s->critic_width + c];
      const bool counts = row < VALID && c < s->rewards;
      const double want = counts ? value_slope(s, row, c) * critic : 0;
      if (!counts) assert_true(is == 0.0f);
      assert_close(is, want, within(s, want, critic));
    }
  }
}

static void check_metrics(const scene *s, const outcome *got) {
  double want[BRIM_PPO_METRIC_COUNT] = {0};
  for (int64_t row = 0; row < VALID * AGENTS; row++) {
    double x[MAX_ACT];
    for (int32_t j = 0; j < s->act; j++) {
      x[j] = (double)ppo_rounded(s->type, s->actor[row * s->width + j]);
    }
    const policy_terms t = policy_reference(s, row, x);
    want[BRIM_PPO_ROWS] += 1;
    want[BRIM_PPO_POLICY_LOSS] += t.loss;
    want[BRIM_PPO_ENTROPY] += t.entropy;
    want[BRIM_PPO_KL] += t.kl;
    want[BRIM_PPO_CLIPPED] += fabs(t.ratio - 1) > (double)s->clip;
  }
  for (int64_t i = 0; i < VALID * s->rewards; i++) {
    const int64_t row = i / s->rewards, c = i % s->rewards;
    const int64_t at = (int64_t)s->rows[row] * s->rewards + c;
    const double v = (double)ppo_rounded(s->type, s->critic[row * s->critic_width + c]);
    const double target = normal_reference(s, s->ret[at]), old = normal_reference(s, s->old[at]);
    want[BRIM_PPO_VALUES] += 1;
    want[BRIM_PPO_VALUE_LOSS] += value_reference(s, row, c, v);
    want[BRIM_PPO_VALUE_CLIPPED] += s->value_clip > 0 && fabs(v - old) > (double)s->value_clip;
    want[BRIM_PPO_ERROR] += target - v;
    want[BRIM_PPO_ERROR_SQUARE] += (target - v) * (target - v);
    want[BRIM_PPO_TARGET] += target;
    want[BRIM_PPO_TARGET_SQUARE] += target * target;
  }
  for (int k = 0; k < BRIM_PPO_METRIC_COUNT; k++) {
    assert_close(got->metrics[k], want[k], 2e-6 * (20 + fabs(want[k])));
  }
}

//---------------------------------- scenes ----------------------------------

static void log_probabilities(const scene *s, int64_t row, double *out) {
  double x[MAX_ACT];
  for (int32_t j = 0; j < s->act; j++) {
    x[j] = (double)ppo_rounded(s->type, s->actor[row * s->width + j]);
  }
  log_softmax(x, s->act, mask_of(s, row), out);
}

// Rows of the rollout outside of the minibatch are NaN, and so is padding. Ratios and values are well to either side of
// every clip, because finite differences mean nothing on an edge.
static void scene_fill(scene *s, uint64_t n) {
  static const double ratios[] = {0.5, 0.93, 1.08, 1.6, 0.72, 1.31};
  static const double moves[] = {-0.5, -0.1, 0.12, 0.4}, errors[] = {-3.2, -0.7, 0.55, 2.9};
  for (int i = 0; i < ROWS * AGENTS; i++) {
    s->logp[i] = s->adv[i] = s->ret[i] = s->old[i] = NAN;
    s->action[i] = -1;
  }
  for (int i = 0; i < BATCH; i++) s->rows[i] = i < VALID ? (i * 8 + 3) % ROWS : -1;
  for (int64_t i = 0; i < BATCH * AGENTS; i++) {
    const bool valid = i < VALID * AGENTS;
    s->mask[i] = (uint64_t)(ppo_uniform(n + (uint64_t)i) * 1e19) | 1ull << i % s->act;
    for (int32_t a = 0; a < s->width; a++) {
      const double x = 1.5 * ppo_normal(n + (uint64_t)(i * s->width + a));
      s->actor[i * s->width + a] = valid && a < s->act ? (float)x : NAN;
    }
  }
  for (int64_t i = 0; i < VALID * AGENTS; i++) {
    const int64_t from = s->rows[i / AGENTS], agent = i % AGENTS, at = from * AGENTS + agent;
    double logp[MAX_ACT];
    log_probabilities(s, i, logp);
    s->action[at] = (int32_t)(i % s->act);
    s->logp[at] = (float)(logp[i % s->act] - log(ratios[(i + (int64_t)n) % 6]));
    const double adv = (0.3 + ppo_uniform(n + 77 + (uint64_t)i)) * (i % 5 < 2 ? -1 : 1);
    if (s->rewards > 1 || agent == 0) s->adv[s->rewards == 1 ? from : at] = (float)adv;
  }
  for (int64_t i = 0; i < BATCH * s->critic_width; i++) s->critic[i] = NAN;
  for (int64_t i = 0; i < VALID * s->rewards; i++) {
    const int64_t row = i / s->rewards, c = i % s->rewards;
    const int64_t at = (int64_t)s->rows[row] * s->rewards + c;
    const float v = ppo_rounded(s->type, (float)ppo_normal(n + 5000 + (uint64_t)i));
    const double std = s->has_norm ? (double)s->norm.std : 1;
    const double mean = s->has_norm ? (double)s->norm.mean : 0;
    s->critic[row * s->critic_width + c] = v;
    s->old[at] = (float)(((double)v - moves[i % 4]) * std + mean);
    s->ret[at] = (float)(((double)v - errors[i / 4 % 4]) * std + mean);
  }
}

static scene scene_make(int32_t act, int32_t rewards, brim_dtype type) {
  scene s = {.act = act,
             .width = act,
             .rewards = rewards,
             .critic_width = rewards,
             .type = type,
             .clip = 0.2f,
             .value_clip = 0.25f,
             .value_coef = 0.7f,
             .entropy = 0.03f,
             .norm = {.weight = 1, .mean = 3.5f, .std = 2.0f, .inverse = 0.5f},
             .moments = {.shift = 0.125f, .scale = 1.75f}};
  s.actor_state[BRIM_STATE_ROWS] = VALID * AGENTS;
  s.actor_state[BRIM_STATE_GRAD_SCALE] = 1.0 / (VALID * AGENTS);
  s.critic_state[BRIM_STATE_ROWS] = VALID;
  s.critic_state[BRIM_STATE_GRAD_SCALE] = 1.0 / (3 * VALID);
  s.actor_state[BRIM_STATE_LOSS_SCALE] = s.critic_state[BRIM_STATE_LOSS_SCALE] = 1;
  return s;
}

static void check(ppo_place *p, scene *s, uint64_t n) {
  static outcome got;
  scene_fill(s, n);
  run(p, s, &got);
  check_gradients(s, &got);
  check_metrics(s, &got);
}

static void test_reference(void **state) {
  static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16};
  static const int32_t acts[] = {2, 5, 9, 64};
  EACH_PPO_PLACE(p) {
    uint64_t n = 0;
    for (int i = 0; i < 3 * 4 * 2; i++) {
      scene s = scene_make(acts[i / 2 % 4], i % 2 ? AGENTS : 1, types[i / 8]);
      check(p, &s, n += 10000);
    }
  }
}

// Each setting alone, and all of them together.
static void test_settings(void **state) {
  EACH_PPO_PLACE(p) {
    for (int i = 0; i < 64; i++) {
      scene s = scene_make(5, i & 1 ? AGENTS : 1, BRIM_F32);
      s.masked = i & 2;
      s.has_norm = i & 4;
      s.has_moments = i & 8;
      if (i & 16) s.huber = 1.5f;  // errors are on both sides of it
      if (i & 32) {
        s.width += 3;  // columns that are not read
        s.critic_width += 2;
        s.value_clip = 0;
        s.entropy = 0;
      }
      check(p, &s, (uint64_t)i * 100);
    }
  }
}

static void test_scales(void **state) {
  EACH_PPO_PLACE(p) {
    for (int i = 0; i < 3; i++) {
      scene s = scene_make(5, 1, i == 2 ? BRIM_F16 : BRIM_F32);
      s.actor_state[BRIM_STATE_LOSS_SCALE] = i ? 1024 : 1;
      s.critic_state[BRIM_STATE_LOSS_SCALE] = i ? 256 : 1;
      s.critic_state[BRIM_STATE_GRAD_SCALE] = 0.01;
      check(p, &s, 31);
    }
  }
}

// Both sides of the clip, by hand: a gradient where the objective pulls the ratio back, none where it pushes the ratio
// further out.
static void test_clip_sides(void **state) {
  static const struct {
    double ratio;
    float adv;
    bool passes;
  } cases[] = {{1.5, 1, false},  {1.5, -1, true}, {0.5, 1, true},
               {0.5, -1, false}, {1.1, 1, true},  {0.9, -1, true}};
  EACH_PPO_PLACE(p) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      static outcome got;
      scene s = scene_make(4, 1, BRIM_F32);
      s.entropy = 0;
      scene_fill(&s, 3);
      for (int64_t row = 0; row < VALID * AGENTS; row++) {
        const int64_t from = s.rows[row / AGENTS], at = from * AGENTS + row % AGENTS;
        double logp[MAX_ACT];
        log_probabilities(&s, row, logp);
        s.logp[at] = (float)(logp[s.action[at]] - log(cases[i].ratio));
        s.adv[from] = cases[i].adv;
      }
      run(p, &s, &got);
      for (int64_t row = 0; row < VALID * AGENTS; row++) {
        const int64_t at = s.rows[row / AGENTS] * AGENTS + row % AGENTS;
        const float g = got.actor[row * 4 + s.action[at]];
        assert_true(cases[i].passes ? g * cases[i].adv < 0 : g == 0.0f);
      }
      const double kept = fmin(fmax(cases[i].ratio, 0.8), 1.2), adv = (double)cases[i].adv;
      const double want = -fmin(cases[i].ratio * adv, kept * adv) * VALID * AGENTS;
      assert_close(got.metrics[BRIM_PPO_POLICY_LOSS], want, 1e-4);
      assert_true(got.metrics[BRIM_PPO_CLIPPED] ==
                  (fabs(cases[i].ratio - 1) > 0.2 ? VALID * AGENTS : 0));
    }
  }
}

// No action or a masked action: counted, with gradient 0. NaN outputs or advantages: counted, and the gradient is NaN
// so that the step is skipped.
static void test_bad_rows(void **state) {
  EACH_PPO_PLACE(p) {
    static outcome got, good;
    scene s = scene_make(5, AGENTS, BRIM_F32);
    s.masked = true;
    scene_fill(&s, 8);
    run(p, &s, &good);
    s.mask[4] = 0;
    const int64_t at5 = s.rows[5 / AGENTS] * AGENTS + 5 % AGENTS;
    s.mask[5] &= ~(1ull << s.action[at5]);
    s.mask[7] = 31;
    s.actor[7 * 5 + 2] = INFINITY;
    s.adv[s.rows[8 / AGENTS] * AGENTS + 8 % AGENTS] = NAN;
    s.mask[10] = 31;
    s.actor[10 * 5] = 3e38f;  // each is finite, their difference is not
    s.actor[10 * 5 + 1] = -3e38f;
    s.critic[2 * AGENTS + 1] = NAN;
    run(p, &s, &got);
    assert_true(got.metrics[BRIM_PPO_ROWS] == VALID * AGENTS && got.metrics[BRIM_PPO_BAD] == 5);
    assert_true(got.metrics[BRIM_PPO_VALUES] == VALID * AGENTS);
    assert_true(got.metrics[BRIM_PPO_BAD_VALUES] == 1);
    for (int k = 0; k < BRIM_PPO_METRIC_COUNT; k++) assert_true(isfinite(got.metrics[k]));
    for (int a = 0; a < 5; a++) {
      assert_true(got.actor[4 * 5 + a] == 0.0f && got.actor[5 * 5 + a] == 0.0f);
      assert_true(isnan(got.actor[7 * 5 + a]) && isnan(got.actor[8 * 5 + a]));
      assert_true(isnan(got.actor[10 * 5 + a]));
    }
    assert_true(isnan(got.critic[2 * AGENTS + 1]));
    assert_memory_equal(got.actor, good.actor, 4 * 5 * sizeof(float));
    assert_memory_equal(got.actor + 11 * 5, good.actor + 11 * 5, 100 * sizeof(float));
    assert_memory_equal(got.critic, good.critic, 2 * AGENTS * sizeof(float));
  }
}

static void test_shapes_are_checked(void **state) {
  EACH_PPO_PLACE(p) {
    scene s = scene_make(5, 1, BRIM_F32);
    scene_fill(&s, 1);
    brim_ppo_shape shape = shape_of(&s);
    brim_ppo_losses good = {.actor = net_of(p, &s, BATCH * AGENTS, 5, s.actor, s.actor_state),
                            .critic = net_of(p, &s, BATCH, 1, s.critic, s.critic_state)},
                    bad = good;
    shape.batch = BATCH - 1;
    assert_status(p->table->losses(&p->where, &shape, &bad), BRIM_EINVAL);
    shape.batch = BATCH;
    bad.actor.output.dim[0]--;
    assert_status(p->table->losses(&p->where, &shape, &bad), BRIM_EINVAL);
    bad = good;
    bad.critic.gradient.dtype = BRIM_BF16;
    assert_status(p->table->losses(&p->where, &shape, &bad), BRIM_EINVAL);
    bad = good;
    bad.clip = -0.1f;
    assert_status(p->table->losses(&p->where, &shape, &bad), BRIM_EINVAL);
    bad = good;
    bad.actor.output.dim[1] = bad.actor.gradient.dim[1] = 4;
    assert_status(p->table->losses(&p->where, &shape, &bad), BRIM_EINVAL);
    ppo_clear(p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference), cmocka_unit_test(test_settings),
      cmocka_unit_test(test_scales),    cmocka_unit_test(test_clip_sides),
      cmocka_unit_test(test_bad_rows),  cmocka_unit_test(test_shapes_are_checked),
  };
  return cmocka_run_group_tests(tests, ppo_open_places, ppo_close_places);
}
