// One iteration from actions to losses with networks that are plain functions of (step, env, agent). The orders of
// rollout, actor and critic have to agree, or ratios are not 1 and old values are not the critic's. Large enough for
// several chunks, with the same bits on every device.
#include "ppo_test.h"

enum {
  STEPS = 9,
  ENVS = 301,
  AGENTS = 4,
  ACT = 5,
  ROWS = STEPS * ENVS,
  NUMBERS = ROWS * AGENTS,
  BATCH = 950,  // three minibatches, the last one shorter
  EPOCH = 2
};

static float actor_of(int64_t row, int64_t agent, int64_t a) {
  return (float)(2 * ppo_normal((uint64_t)((row * AGENTS + agent) * ACT + a)));
}

static float critic_of(int64_t state, int64_t reward) {
  return (float)ppo_normal((uint64_t)(state * AGENTS + reward) + 900000);
}

static uint64_t mask_of(int64_t row, int64_t agent) {
  return (uint64_t)((row * 7 + agent * 3) % 31 + 1);
}

// Order of the network's rows at the losses.
typedef enum mix { AS_IS, AGENTS_FIRST, CRITIC_SHIFTED } mix;

typedef struct iteration {
  int32_t rewards;
  int32_t action[NUMBERS];
  float logp[NUMBERS], adv[NUMBERS], ret[NUMBERS];
  brim_ppo_norm norm;
  brim_ppo_moments moments;
  double metrics[BRIM_PPO_METRIC_COUNT];
  float actor[BATCH * AGENTS * ACT];  // gradients of the last minibatch
  float critic[BATCH * AGENTS];
} iteration;

typedef struct memory {
  brim_ppo_shape shape;
  int32_t *action, *rows;
  float *logp, *adv, *ret, *old;
  uint64_t *clock;
  brim_ppo_norm *norm;
  brim_ppo_moments *moments;
  double *metrics;
  void *scratch;
} memory;

static memory memory_make(ppo_place *p, int32_t rewards) {
  memory m = {.shape = {.steps = STEPS,
                        .envs = ENVS,
                        .agents = AGENTS,
                        .act = ACT,
                        .rewards = rewards,
                        .finals = 1,
                        .batch = BATCH}};
  const uint64_t clock = 5 * STEPS;
  const brim_ppo_norm norm = {0};
  const double none[BRIM_PPO_METRIC_COUNT] = {0};
  m.action = ppo_give(p, NULL, NUMBERS * sizeof(int32_t));
  m.rows = ppo_give(p, NULL, BATCH * sizeof(int32_t));
  m.logp = ppo_give(p, NULL, NUMBERS * sizeof(float));
  m.adv = ppo_give(p, NULL, NUMBERS * sizeof(float));
  m.ret = ppo_give(p, NULL, NUMBERS * sizeof(float));
  m.old = ppo_give(p, NULL, NUMBERS * sizeof(float));
  m.clock = ppo_give(p, &clock, sizeof clock);
  m.norm = ppo_give(p, &norm, sizeof norm);
  m.moments = ppo_give(p, NULL, sizeof *m.moments);
  m.metrics = ppo_give(p, none, sizeof none);
  m.scratch = ppo_scratch(p, &m.shape);
  return m;
}

static void collect(ppo_place *p, const memory *m) {
  static float outputs[ENVS * AGENTS * ACT];
  static uint64_t mask[ENVS * AGENTS];
  const int64_t none = 0;
  int64_t *bad = ppo_give(p, &none, sizeof none), found;
  for (int64_t t = 0; t < STEPS; t++) {
    for (int64_t i = 0; i < ENVS * AGENTS; i++) {
      const int64_t row = t * ENVS + i / AGENTS;
      mask[i] = mask_of(row, i % AGENTS);
      for (int64_t a = 0; a < ACT; a++) outputs[i * ACT + a] = actor_of(row, i % AGENTS, a);
    }
    const brim_ppo_sample w = {.outputs = ppo_give_tensor(p, BRIM_F32, ENVS * AGENTS, ACT, outputs),
                               .rows = ENVS * AGENTS,
                               .mask = ppo_give(p, mask, sizeof mask),
                               .clock = m->clock,
                               .t = (int32_t)t,
                               .seed = 4,
                               .action = m->action + t * ENVS * AGENTS,
                               .logp = m->logp + t * ENVS * AGENTS,
                               .bad = bad};
    assert_ok(p->table->sample(&p->where, &m->shape, &w));
  }
  ppo_take(p, &found, bad, sizeof found);
  assert_int_equal(found, 0);
}

static void estimate(ppo_place *p, const memory *m) {
  enum { STATES = ROWS + 2 * ENVS };
  static float outputs[STATES * AGENTS], reward[NUMBERS];
  static int8_t end[ROWS];
  static int32_t final[ROWS];
  const int64_t rewards = m->shape.rewards;
  for (int64_t i = 0; i < STATES * rewards; i++) outputs[i] = critic_of(i / rewards, i % rewards);
  for (int64_t i = 0; i < ROWS * rewards; i++) {
    reward[i] = (float)ppo_normal((uint64_t)i + 70000000);
  }
  for (int64_t i = 0; i < ROWS; i++) {
    end[i] = i % 23 == 5 ? BRIM_ENV_TERMINATED : BRIM_ENV_RUNNING;
    final[i] = -1;
    if (i / ENVS != i % ENVS % STEPS) continue;  // each environment is truncated once
    end[i] = BRIM_ENV_TRUNCATED;
    final[i] = 0;
  }
  const brim_ppo_advantages w = {
      .values = ppo_give_tensor(p, BRIM_F32, STATES, rewards, outputs),
      .reward = ppo_give(p, reward, (size_t)(ROWS * rewards) * sizeof(float)),
      .end = ppo_give(p, end, sizeof end),
      .final = ppo_give(p, final, sizeof final),
      .gamma = 0.99f,
      .lambda = 0.95f,
      .beta = 0.9f,
      .norm = m->norm,
      .adv = m->adv,
      .ret = m->ret,
      .old = m->old,
      .moments = m->moments,
      .scratch = m->scratch};
  assert_ok(p->table->advantages(&p->where, &m->shape, &w));
}

static brim_ppo_net net_make(ppo_place *p, int64_t rows, int64_t width, const float *output,
                             int64_t valid) {
  double state[BRIM_STATE_COUNT] = {0};
  state[BRIM_STATE_ROWS] = (double)valid;
  state[BRIM_STATE_GRAD_SCALE] = 1.0 / (double)valid;
  state[BRIM_STATE_LOSS_SCALE] = 1;
  return (brim_ppo_net){.output = ppo_give_tensor(p, BRIM_F32, rows, width, output),
                        .gradient = ppo_give_tensor(p, BRIM_F32, rows, width, NULL),
                        .state = ppo_give(p, state, sizeof state)};
}

// Learns from a minibatch. The critic's outputs are normalised with the new statistics, so its values equal the old
// ones.
static void learn(ppo_place *p, const memory *m, mix how, int64_t first, iteration *out) {
  static float actor[BATCH * AGENTS * ACT], critic[BATCH * AGENTS];
  static uint64_t mask[BATCH * AGENTS];
  static int32_t rows[BATCH];
  const int64_t rewards = m->shape.rewards, left = ROWS - first;
  const int64_t count = left < BATCH ? left : BATCH;
  const brim_ppo_rows r = {.seed = 4,
                           .clock = m->clock,
                           .epoch = EPOCH,
                           .total = ROWS,
                           .first = first,
                           .count = count,
                           .rows = m->rows};
  assert_ok(p->table->rows(&p->where, &r));
  ppo_take(p, rows, m->rows, sizeof rows);
  const brim_ppo_scale scale = brim_ppo_scale_of(&out->norm);
  for (int64_t i = 0; i < BATCH * AGENTS; i++) {
    int64_t number = i / AGENTS, agent = i % AGENTS;
    if (how == AGENTS_FIRST && i < count * AGENTS) {
      number = i % count;
      agent = i / count;
    }
    const int64_t row = number < count ? rows[number] : 0;
    mask[i] = how == AGENTS_FIRST ? 31 : mask_of(row, agent);
    for (int64_t a = 0; a < ACT; a++) actor[i * ACT + a] = actor_of(row, agent, a);
  }
  for (int64_t i = 0; i < count * rewards; i++) {
    const int64_t number = (i / rewards + (how == CRITIC_SHIFTED)) % count;
    critic[i] = brim_ppo_normal_of(scale, critic_of(rows[number], i % rewards));
  }
  const brim_ppo_losses w = {.rows = m->rows,
                             .actor = net_make(p, BATCH * AGENTS, ACT, actor, count * AGENTS),
                             .critic = net_make(p, BATCH, rewards, critic, count),
                             .mask = ppo_give(p, mask, sizeof mask),
                             .action = m->action,
                             .logp = m->logp,
                             .adv = m->adv,
                             .ret = m->ret,
                             .old = m->old,
                             .norm = m->norm,
                             .moments = m->moments,
                             .clip = 0.2f,
                             .value_clip = 0.2f,
                             .value_coef = 1,
                             .entropy = 0.01f,
                             .metrics = m->metrics,
                             .scratch = m->scratch};
  assert_ok(p->table->losses(&p->where, &m->shape, &w));
  ppo_take_tensor(p, &w.actor.gradient, out->actor);
  ppo_take_tensor(p, &w.critic.gradient, out->critic);
}

static void iterate(ppo_place *p, int32_t rewards, mix how, iteration *out) {
  memset(out, 0, sizeof *out);
  out->rewards = rewards;
  const memory m = memory_make(p, rewards);
  collect(p, &m);
  estimate(p, &m);
  ppo_take(p, &out->norm, m.norm, sizeof out->norm);
  ppo_take(p, &out->moments, m.moments, sizeof out->moments);
  for (int64_t first = 0; first < ROWS; first += BATCH) learn(p, &m, how, first, out);
  ppo_take(p, out->action, m.action, sizeof out->action);
  ppo_take(p, out->logp, m.logp, sizeof out->logp);
  ppo_take(p, out->adv, m.adv, (size_t)(ROWS * rewards) * sizeof(float));
  ppo_take(p, out->ret, m.ret, (size_t)(ROWS * rewards) * sizeof(float));
  ppo_take(p, out->metrics, m.metrics, sizeof out->metrics);
  ppo_clear(p);
}

static void test_orders_agree(void **state) {
  static iteration it;
  EACH_PPO_PLACE(p) {
    for (int32_t rewards = 1; rewards <= AGENTS; rewards += AGENTS - 1) {
      iterate(p, rewards, AS_IS, &it);
      const double *got = it.metrics;
      assert_true(got[BRIM_PPO_ROWS] == NUMBERS && got[BRIM_PPO_BAD] == 0);
      assert_true(got[BRIM_PPO_KL] == 0 && got[BRIM_PPO_CLIPPED] == 0);  // every ratio is 1
      assert_close(got[BRIM_PPO_POLICY_LOSS], 0,
                   1e-3);  // so this is a sum of normalised advantages
      assert_true(got[BRIM_PPO_VALUES] == ROWS * rewards && got[BRIM_PPO_BAD_VALUES] == 0);
      assert_true(got[BRIM_PPO_VALUE_CLIPPED] == 0);
      const double std = (double)it.norm.std;
      const double adv = it.moments.adv_mean * it.moments.adv_mean +
                         it.moments.adv_std * it.moments.adv_std;  // target - value, squared
      assert_close(got[BRIM_PPO_ERROR_SQUARE] / (ROWS * rewards), adv / (std * std), 1e-5);
      assert_close(got[BRIM_PPO_VALUE_LOSS], got[BRIM_PPO_ERROR_SQUARE] / 2, 1e-3);
      assert_close(got[BRIM_PPO_TARGET] / (ROWS * rewards), 0, 1e-6);
      assert_close(got[BRIM_PPO_TARGET_SQUARE] / (ROWS * rewards), 1, 1e-5);
    }
  }
}

// The test above detects a network in another order.
static void test_orders_that_disagree(void **state) {
  static iteration it;
  EACH_PPO_PLACE(p) {
    iterate(p, AGENTS, AGENTS_FIRST, &it);
    assert_true(it.metrics[BRIM_PPO_KL] > 0.1 * NUMBERS);
    assert_true(it.metrics[BRIM_PPO_CLIPPED] > 0.5 * NUMBERS);
    assert_true(it.metrics[BRIM_PPO_VALUE_CLIPPED] == 0);
    iterate(p, AGENTS, CRITIC_SHIFTED, &it);
    assert_true(it.metrics[BRIM_PPO_KL] == 0);
    assert_true(it.metrics[BRIM_PPO_VALUE_CLIPPED] > 0.3 * NUMBERS);
  }
}

static void test_places_agree(void **state) {
  static iteration first, it;
  for (int32_t rewards = 1; rewards <= AGENTS; rewards += AGENTS - 1) {
    for (int how = AS_IS; how <= CRITIC_SHIFTED; how++) {
      iterate(&((ppo_places *)*state)->at[0], rewards, (mix)how, &first);
      EACH_PPO_PLACE(p) {
        iterate(p, rewards, (mix)how, &it);
        assert_memory_equal(&first, &it, sizeof it);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_orders_agree),
      cmocka_unit_test(test_orders_that_disagree),
      cmocka_unit_test(test_places_agree),
  };
  return cmocka_run_group_tests(tests, ppo_open_places, ppo_close_places);
}
