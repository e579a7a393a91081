// Advantages, returns and their statistics against a reference in double precision: episodes that end in
// every way, one reward for the team and one for each agent, value normalisation over iterations.
#include "ppo_test.h"

enum { FINALS = 2 };

typedef struct rollout {
  brim_ppo_shape shape;
  int64_t states, columns, numbers;
  float *outputs;  // (states, envs, rewards)
  float *reward;
  int8_t *end;
  int32_t *final;
} rollout;

static rollout rollout_make(int32_t steps, int32_t envs, int32_t agents, int32_t rewards) {
  rollout r = {.shape = {.steps = steps,
                         .envs = envs,
                         .agents = agents,
                         .act = 5,
                         .rewards = rewards,
                         .finals = FINALS}};
  r.states = ((int64_t)steps + 1 + FINALS) * envs;
  r.columns = (int64_t)envs * rewards;
  r.numbers = steps * r.columns;
  r.outputs = malloc((size_t)(r.states * rewards) * sizeof(float));
  r.reward = malloc((size_t)r.numbers * sizeof(float));
  r.end = malloc((size_t)(steps * envs));
  r.final = malloc((size_t)(steps * envs) * sizeof(int32_t));
  assert_true(r.outputs && r.reward && r.end && r.final);
  for (int64_t i = 0; i < r.states * rewards; i++) r.outputs[i] = (float)ppo_normal((uint64_t)i);
  for (int64_t i = 0; i < r.numbers; i++) {
    r.reward[i] = (float)(1.5 * ppo_normal((uint64_t)(i + 1000000)) + 0.25);
  }
  int32_t used[1024] = {0};
  for (int64_t i = 0; i < steps * envs; i++) {
    const double u = ppo_uniform((uint64_t)(i + 5000));
    const int64_t env = i % envs;
    r.end[i] = BRIM_ENV_RUNNING;
    r.final[i] = -1;
    if (u < 0.08) r.end[i] = BRIM_ENV_TERMINATED;
    if (u > 0.97) r.end[i] = BRIM_ENV_DIVERGED;
    if (u > 0.5 && u < 0.6) {
      r.end[i] = BRIM_ENV_TRUNCATED;
      // episodes beyond these have no value of a final state
      if (used[env] < FINALS) r.final[i] = used[env]++;
    }
  }
  return r;
}

static void rollout_free(rollout *r) {
  free(r->outputs);
  free(r->reward);
  free(r->end);
  free(r->final);
}

typedef struct result {
  float *adv, *ret, *old;
  brim_ppo_norm norm;
  brim_ppo_moments moments;
} result;

typedef struct setting {
  float gamma, lambda, beta;
  bool norm;
  brim_ppo_norm has;
  brim_dtype type;
  int64_t width;  // columns of the critic's outputs; 0 = rewards
} setting;

static result estimate(ppo_place *p, const rollout *r, const setting *s) {
  const size_t bytes = (size_t)r->numbers * sizeof(float);
  const int64_t rewards = r->shape.rewards, width = s->width ? s->width : rewards;
  const size_t pairs = (size_t)r->shape.steps * (size_t)r->shape.envs;
  float *wide = malloc((size_t)(r->states * width) * sizeof *wide);
  result got = {.adv = malloc(bytes), .ret = malloc(bytes), .old = malloc(bytes)};
  assert_true(wide && got.adv && got.ret && got.old);
  for (int64_t i = 0; i < r->states * width; i++) {
    wide[i] = i % width < rewards ? r->outputs[i / width * rewards + i % width] : NAN;
  }
  brim_ppo_advantages w = {.values = ppo_give_tensor(p, s->type, r->states, width, wide),
                           .reward = ppo_give(p, r->reward, bytes),
                           .end = ppo_give(p, r->end, pairs),
                           .final = ppo_give(p, r->final, pairs * sizeof(int32_t)),
                           .gamma = s->gamma,
                           .lambda = s->lambda,
                           .beta = s->beta,
                           .norm = s->norm ? ppo_give(p, &s->has, sizeof s->has) : NULL,
                           .adv = ppo_give(p, NULL, bytes),
                           .ret = ppo_give(p, NULL, bytes),
                           .old = ppo_give(p, NULL, bytes),
                           .moments = ppo_give(p, NULL, sizeof(brim_ppo_moments)),
                           .scratch = ppo_scratch(p, &r->shape)};
  free(wide);
  assert_ok(p->table->advantages(&p->where, &r->shape, &w));
  ppo_take(p, got.adv, w.adv, bytes);
  ppo_take(p, got.ret, w.ret, bytes);
  ppo_take(p, got.old, w.old, bytes);
  ppo_take(p, &got.moments, w.moments, sizeof got.moments);
  if (s->norm) ppo_take(p, &got.norm, w.norm, sizeof got.norm);
  ppo_clear(p);
  return got;
}

static void result_free(result *r) {
  free(r->adv);
  free(r->ret);
  free(r->old);
}

static double value_of(const rollout *r, const setting *s, int64_t state, int64_t column) {
  const int64_t env = column / r->shape.rewards, reward = column % r->shape.rewards;
  const float output = r->outputs[(state * r->shape.envs + env) * r->shape.rewards + reward];
  const double x = (double)ppo_rounded(s->type, output);
  return s->norm && s->has.weight > 0 ? x * (double)s->has.std + (double)s->has.mean : x;
}

// Advantages by definition: a sum over all later steps of the episode, not a recursion.
static double advantage_of(const rollout *r, const setting *s, int64_t t, int64_t column) {
  const int64_t steps = r->shape.steps, envs = r->shape.envs, env = column / r->shape.rewards;
  double sum = 0, weight = 1;
  for (; t < steps; t++) {
    const int end = r->end[t * envs + env];
    const int32_t final = r->final[t * envs + env];
    double next = 0;
    if (end == BRIM_ENV_RUNNING) next = value_of(r, s, t + 1, column);
    if (end == BRIM_ENV_TRUNCATED && final >= 0) next = value_of(r, s, steps + 1 + final, column);
    const double reward = (double)r->reward[t * r->columns + column];
    sum += weight * (reward + (double)s->gamma * next - value_of(r, s, t, column));
    weight *= (double)s->gamma * (double)s->lambda;
    if (end != BRIM_ENV_RUNNING) break;
  }
  return sum;
}

static void check_against_reference(const rollout *r, const setting *s, const result *got) {
  for (int64_t i = 0; i < r->numbers; i++) {
    const int64_t t = i / r->columns, column = i % r->columns;
    const double want = advantage_of(r, s, t, column), value = value_of(r, s, t, column);
    const double size = 1 + fabs(want) + fabs(value);
    assert_close(got->adv[i], want, 2e-6 * size);
    assert_close(got->old[i], value, 3e-7 * size);
    assert_close(got->ret[i], want + value, 2e-6 * size);
  }
}

static void test_reference(void **state) {
  static const int32_t shapes[][4] = {// steps, environments, agents, rewards
                                      {1, 1, 1, 1},
                                      {13, 37, 3, 1},
                                      {13, 37, 3, 3},
                                      {40, 130, 2, 1},
                                      {9, 50, 10, 10}};
  static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16};
  EACH_PPO_PLACE(p) {
    for (int i = 0; i < 5; i++) {
      rollout r = rollout_make(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
      for (int k = 0; k < 3; k++) {
        const setting s = {.gamma = 0.97f,
                           .lambda = 0.9f,
                           .beta = 0.9f,
                           .norm = k > 0,
                           .has = {.weight = 1, .mean = 0.75f, .std = 2.5f, .inverse = 0.4f},
                           .type = types[k],
                           .width = k == 2 ? shapes[i][3] + 3 : 0};
        result got = estimate(p, &r, &s);
        check_against_reference(&r, &s, &got);
        result_free(&got);
      }
      rollout_free(&r);
    }
  }
}

// Computed by hand: two steps, gamma = lambda = 1/2, values 1 and 2, then 4; 8 in the final state.
static void test_ends_by_hand(void **state) {
  static const struct {
    int8_t end[2];
    int32_t final[2];
    float adv[2];
  } cases[] = {
      {{-1, -1}, {-1, -1}, {10 + 1 - 1 + 0.25f * 20, 20 + 2 - 2}},
      {{-1, BRIM_ENV_TERMINATED}, {-1, -1}, {10 + 1 - 1 + 0.25f * 18, 18}},
      {{-1, BRIM_ENV_DIVERGED}, {-1, -1}, {10 + 1 - 1 + 0.25f * 18, 18}},
      {{-1, BRIM_ENV_TRUNCATED}, {-1, 0}, {10 + 1 - 1 + 0.25f * 22, 22}},
      {{BRIM_ENV_TERMINATED, -1}, {-1, -1}, {9, 20}},
      {{BRIM_ENV_TRUNCATED, -1}, {0, -1}, {13, 20}},
      {{BRIM_ENV_TRUNCATED, -1}, {-1, -1}, {9, 20}},
  };
  const setting s = {.gamma = 0.5f, .lambda = 0.5f};
  EACH_PPO_PLACE(p) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      rollout r = rollout_make(2, 1, 1, 1);
      const float outputs[] = {1, 2, 4, 8, NAN}, reward[] = {10, 20};
      memcpy(r.outputs, outputs, sizeof outputs);
      memcpy(r.reward, reward, sizeof reward);
      memcpy(r.end, cases[i].end, 2);
      memcpy(r.final, cases[i].final, 8);
      result got = estimate(p, &r, &s);
      assert_true(got.adv[0] == cases[i].adv[0] && got.adv[1] == cases[i].adv[1]);
      assert_true(got.ret[0] == got.adv[0] + 1 && got.ret[1] == got.adv[1] + 2);
      result_free(&got);
      rollout_free(&r);
    }
  }
}

static void moments_of(const float *x, int64_t n, double *mean, double *std) {
  double sum = 0, square = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i];
  *mean = sum / (double)n;
  for (int64_t i = 0; i < n; i++) square += ((double)x[i] - *mean) * ((double)x[i] - *mean);
  *std = sqrt(square / (double)n);
}

static void test_moments(void **state) {
  rollout r = rollout_make(40, 333, 2, 2);
  const setting s = {.gamma = 0.99f, .lambda = 0.95f};
  EACH_PPO_PLACE(p) {
    result got = estimate(p, &r, &s);
    const brim_ppo_moments *m = &got.moments;
    double adv_mean, adv_std, ret_mean, ret_std, error_mean, error_std;
    moments_of(got.adv, r.numbers, &adv_mean, &adv_std);
    moments_of(got.ret, r.numbers, &ret_mean, &ret_std);
    assert_close(m->adv_mean, adv_mean, 1e-12);
    assert_close(m->adv_std, adv_std, 1e-12);
    assert_close(m->ret_mean, ret_mean, 1e-12);
    assert_close(m->ret_std, ret_std, 1e-12);
    assert_close(m->shift, adv_mean, 1e-6);
    assert_close(m->scale * adv_std, 1, 1e-6);
    assert_int_equal(m->count, r.numbers);
    assert_int_equal(m->bad, 0);
    for (int64_t i = 0; i < r.numbers; i++) got.adv[i] = got.ret[i] - got.old[i];
    moments_of(got.adv, r.numbers, &error_mean, &error_std);
    assert_close(m->explained, 1 - error_std * error_std / (ret_std * ret_std), 1e-6);
    result_free(&got);
  }
  rollout_free(&r);
}

// Constant rewards have no spread to normalise by.
static void test_equal_advantages(void **state) {
  rollout r = rollout_make(1, 200, 1, 1);
  for (int64_t i = 0; i < r.states; i++) r.outputs[i] = 0;
  for (int64_t i = 0; i < r.numbers; i++) r.reward[i] = 0.1f;
  const setting s = {.gamma = 0.99f, .lambda = 0.95f, .norm = true};
  EACH_PPO_PLACE(p) {
    result got = estimate(p, &r, &s);
    assert_true(got.moments.scale == 0.0f);
    assert_close(got.moments.adv_mean, (double)0.1f, 1e-9);
    assert_close(got.norm.std, 0.01, 1e-9);  // the smallest allowed
    result_free(&got);
  }
  rollout_free(&r);
}

// Debiased exponential averages over iterations, against plain weighted means.
static void test_value_norm(void **state) {
  const double beta = (double)0.8f;
  EACH_PPO_PLACE(p) {
    setting s = {.gamma = 0.9f, .lambda = 0.8f, .beta = 0.8f, .norm = true};
    double means[6], squares[6];
    for (int k = 0; k < 6; k++) {
      rollout r = rollout_make(7, 29, 1, 1);
      for (int64_t i = 0; i < r.numbers; i++) r.reward[i] += (float)(k * k);
      result got = estimate(p, &r, &s);
      check_against_reference(&r, &s, &got);  // with the earlier statistics
      means[k] = squares[k] = 0;
      for (int64_t i = 0; i < r.numbers; i++) {
        means[k] += (double)got.ret[i] / (double)r.numbers;
        squares[k] += (double)got.ret[i] * (double)got.ret[i] / (double)r.numbers;
      }
      double mean = 0, square = 0, sum = 0;
      for (int j = 0; j <= k; j++) {
        const double weight = pow(beta, k - j);
        mean += weight * means[j];
        square += weight * squares[j];
        sum += weight;
      }
      mean /= sum;
      const double std = sqrt(square / sum - mean * mean);
      assert_close(got.norm.mean, mean, 1e-6 * (1 + fabs(mean)));
      assert_close(got.norm.std, std, 1e-6 * std);
      assert_close(got.norm.inverse, 1 / std, 1e-6 / std);
      if (k == 0) assert_close(got.norm.mean, means[0], 1e-6);  // the initial zeros leave no trace
      s.has = got.norm;
      result_free(&got);
      rollout_free(&r);
    }
  }
}

static void test_bad_values(void **state) {
  rollout r = rollout_make(4, 10, 1, 1);
  for (int64_t i = 0; i < r.numbers; i++) r.end[i] = BRIM_ENV_RUNNING;
  r.outputs[2 * 10 + 3] = NAN;  // state 2 of environment 3: its steps 0 to 2
  const setting s = {
      .gamma = 0.9f,
      .lambda = 0.8f,
      .beta = 0.5f,
      .norm = true,
      .has = {
          .weight = 0.5, .mean_sum = 1, .square_sum = 9, .mean = 2, .std = 3, .inverse = 1.0f / 3}};
  EACH_PPO_PLACE(p) {
    result got = estimate(p, &r, &s);
    assert_int_equal(got.moments.bad, 3);
    assert_int_equal(got.moments.count, 37);
    assert_true(isfinite(got.moments.adv_mean) && isfinite(got.moments.adv_std));
    assert_true(isnan(got.adv[3]) && isnan(got.adv[23]) && isfinite(got.adv[33]));
    assert_memory_equal(&got.norm, &s.has, sizeof s.has);
    result_free(&got);
  }
  rollout_free(&r);
}

// Any number of threads, and CUDA, give the same bits.
static void test_places_agree(void **state) {
  static const int32_t shapes[][4] = {{5, 700, 3, 1}, {21, 300, 4, 4}, {64, 129, 1, 1}};
  for (int i = 0; i < 3; i++) {
    rollout r = rollout_make(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
    const setting s = {.gamma = 0.99f,
                       .lambda = 0.95f,
                       .beta = 0.9f,
                       .norm = true,
                       .type = BRIM_BF16,
                       .has = {.weight = 1,
                               .mean_sum = 0.3,
                               .square_sum = 4,
                               .mean = 0.3f,
                               .std = 1.9f,
                               .inverse = 0.52f}};
    result first = {0};
    EACH_PPO_PLACE(p) {
      result got = estimate(p, &r, &s);
      if (!first.adv) {
        first = got;
        continue;
      }
      const size_t bytes = (size_t)r.numbers * sizeof(float);
      assert_memory_equal(first.adv, got.adv, bytes);
      assert_memory_equal(first.ret, got.ret, bytes);
      assert_memory_equal(first.old, got.old, bytes);
      assert_memory_equal(&first.norm, &got.norm, sizeof got.norm);
      assert_memory_equal(&first.moments, &got.moments, sizeof got.moments);
      result_free(&got);
    }
    result_free(&first);
    rollout_free(&r);
  }
}

static void test_shapes_are_checked(void **state) {
  EACH_PPO_PLACE(p) {
    const brim_ppo_shape shape = {.steps = 4, .envs = 4, .agents = 1, .act = 5, .rewards = 1};
    float outputs[20] = {0};
    brim_ppo_advantages w = {.values = ppo_give_tensor(p, BRIM_F32, 19, 1, outputs)};
    // the outputs lack state T
    assert_status(p->table->advantages(&p->where, &shape, &w), BRIM_EINVAL);
    w.values = ppo_give_tensor(p, BRIM_F32, 20, 1, outputs);
    w.beta = 1;
    assert_status(p->table->advantages(&p->where, &shape, &w), BRIM_EINVAL);
    ppo_clear(p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference),    cmocka_unit_test(test_ends_by_hand),
      cmocka_unit_test(test_moments),      cmocka_unit_test(test_equal_advantages),
      cmocka_unit_test(test_value_norm),   cmocka_unit_test(test_bad_values),
      cmocka_unit_test(test_places_agree), cmocka_unit_test(test_shapes_are_checked),
  };
  return cmocka_run_group_tests(tests, ppo_open_places, ppo_close_places);
}
