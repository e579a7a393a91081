// The limits of rollouts: one episode per environment, states that no body reaches, policies around the default shared
// memory of a GPU's block, and policies that do not fit it.
#define BRIM_QUADRUPED_TASK
#include "rollout_test.h"

#include "env/quadruped/quadruped_block.h"
#include "env/quadruped/quadruped_simd.h"
#include "rl/rl_int.h"

//---------------------------------- one episode each ----------------------------------

// Pushes that overturn most robots, each at its own time.
static brim_rollout_shape falling_shape(void) {
  brim_rollout_shape s = small_shape();
  robot_set(&s, push_speed, 9);
  robot_set(&s, push_every, 10);
  s.num_envs = 2 * (2 * BRIM_ROLLOUT_PART + 5);
  s.num_dirs = s.dir_chunk = 2;
  s.once = 1;
  return s;
}

static void get_tally(ground *g, brim_rollout_tally t[4]) {
  assert_int_equal(g->shape.num_dirs, 2);
  ground_get(g, g->at.tally, t, 4 * sizeof *t);
}

// Random numbers do not depend on episode_length: a longer rollout adds only the steps of environments that are still
// in their episode.
static void once_counts_first_episodes(void **state) {
  EACH_PLACE(g) {
    brim_rollout_tally before[4] = {{0}}, t[4];
    brim_rollout_shape shape = falling_shape();
    const int64_t envs = shape.num_envs / 2;
    for (shape.episode_length = 1; shape.episode_length <= 40; shape.episode_length++) {
      ground_prepare(g, &shape);
      ground_run(g, 0, 0.05f, 0.0f);
      get_tally(g, t);
      for (int i = 0; i < 4; i++) {
        int64_t ended = before[i].terminated + before[i].diverged;
        assert_int_equal(t[i].envs, envs);
        assert_int_equal(t[i].steps, before[i].steps + envs - ended);
        assert_int_equal(t[i].terminated + t[i].diverged + t[i].truncated, envs);
        assert_true(t[i].terminated >= before[i].terminated);
      }
      memcpy(before, t, sizeof t);
    }
    printf("falls %d of %d\n", (int)t[0].terminated, (int)envs);
    for (int i = 0; i < 4; i++) assert_true(t[i].terminated > envs / 4 && t[i].truncated > 0);
    ground_update(g, 0, 0, 0.05f);
    double count;
    ground_get(g, g->at.filter, &count, sizeof count);
    assert_true(count == (double)(t[0].steps + t[1].steps + t[2].steps + t[3].steps));
    // All environments make all steps if `once` is off, and begin second episodes.
    shape.episode_length = 40;
    shape.once = 0;
    ground_prepare(g, &shape);
    ground_run(g, 0, 0.05f, 0.0f);
    get_tally(g, t);
    assert_int_equal(t[0].steps, envs * 40);
    assert_true(t[0].terminated > before[0].terminated);
  }
}

// The CPU's evaluation of exactly the episodes that training starts with.
static void once_is_the_first_episode(void **state) {
  ground *g = &((places *)*state)->at[0];
  brim_rollout_shape shape = falling_shape();
  brim_rollout_tally t[4];
  ground_prepare(g, &shape);
  ground_run(g, 3, 0.05f, 0.5f);
  get_tally(g, t);
  float theta[8 * BRIM_QUADRUPED_OBS], normal[2 * BRIM_QUADRUPED_OBS], returns[4];
  float policy[8 * BRIM_QUADRUPED_LINEAR_ROW];
  ground_get(g, g->at.theta, theta, sizeof theta);
  ground_get(g, g->at.normal, normal, sizeof normal);
  ground_get(g, g->at.returns, returns, sizeof returns);
  for (int i = 0; i < 4; i++) {
    brim_rollout_build_policy(&shape, theta, 3, i / 2, i % 2 ? -0.05f : 0.05f, policy);
    double reward = 0;
    int64_t steps = 0, falls = 0;
    for (int e = 0; e < shape.num_envs / 2; e++) {
      brim_rollout_episode end = {0};
      float far;
      brim_rollout_work work = {.env = shape.env.bytes,
                                .steps = shape.episode_length,
                                .policy = policy,
                                .normal = normal,
                                .ids = brim_env_training(shape.seed, 3, i / 2, e),
                                .envs = 1,
                                .episodes = &end,
                                .figures = &far};
      brim_quadruped_row.run()(&work);
      reward += (double)end.reward;
      steps += end.length;
      falls += end.outcome == 1;
    }
    assert_int_equal(t[i].steps, steps);
    assert_int_equal(t[i].terminated, falls);
    assert_near(t[i].reward, reward, 1e-2);
    assert_near(returns[i], (reward - 0.5 * (double)steps) / (shape.num_envs / 2), 1e-3);
  }
}

// Episodes that end after one step leave the same bits as a rollout of one step.
static void nothing_counts_after_the_end(void **state) {
  EACH_PLACE(g) {
    double filter[2][FILTER];
    float returns[2][4], bad = NAN;
    brim_rollout_tally t[2][4];
    brim_rollout_shape shape = falling_shape();
    for (int i = 0; i < 2; i++) {
      shape.episode_length = i ? 1 : 40;
      ground_prepare(g, &shape);
      ground_put(g, g->at.theta, &bad, sizeof bad);
      ground_run(g, 0, 0.05f, 0.25f);
      get_tally(g, t[i]);
      ground_get(g, g->at.returns, returns[i], sizeof returns[i]);
      ground_update(g, 0, 0, 0.05f);
      ground_get(g, g->at.filter, filter[i], sizeof filter[i]);
    }
    assert_int_equal(t[0][0].diverged, shape.num_envs / 2);
    assert_int_equal(t[0][0].steps, shape.num_envs / 2);
    assert_memory_equal(t[0], t[1], sizeof t[0]);
    assert_memory_equal(returns[0], returns[1], sizeof returns[0]);
    assert_memory_equal(filter[0], filter[1], sizeof filter[0]);
    assert_true(filter[0][0] == 2.0 * shape.num_envs);
    assert_near(returns[0][0], -(double)BRIM_FALL_COST - 0.25, 1e-6);
  }
}

static int best_of(ground *g, float shift) {
  float returns[2 * 8];
  assert_int_equal(g->shape.num_dirs, 8);
  ground_run(g, 0, 0.2f, shift);
  ground_get(g, g->at.returns, returns, sizeof returns);
  int best = 0;
  for (int i = 1; i < 16; i++) best = returns[i] > returns[best] ? i : best;
  return best;
}

static void the_shift_ranks_directions_anew(void **state) {
  EACH_PLACE(g) {
    brim_rollout_shape shape = falling_shape();
    shape.num_dirs = shape.dir_chunk = 8;
    ground_prepare(g, &shape);
    assert_int_not_equal(best_of(g, 0.0f), best_of(g, 40.0f));
    shape.once = 0;
    ground_prepare(g, &shape);
    assert_int_equal(best_of(g, 0.0f), best_of(g, 40.0f));
  }
}

//---------------------------------- divergence ----------------------------------

static bool diverged(int task, int number, float value) {
  brim_quadruped env = {.task = task};
  brim_quadruped_row.defaults(0, &env);
  brim_quad_simd_task scene = {.env = &env};
  float qpos[15] = {0, 0, 0.55f, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1}, qvel[14] = {0};
  if (number >= 15) {
    qvel[number - 15] = value;
  } else if (number >= 0) {
    qpos[number] = value;
  }
  brim_quad_simd_state s;
  brim_vf ctrl[4][2];
  float act[8] = {0};
  for (int l = 0; l < QUAD_LANES; l++) {
    brim_quad_simd_load(&s, l, qpos, qvel);
    brim_quad_simd_load_ctrl(ctrl, l, act);
  }
  brim_quad_simd_outcome o = brim_quad_simd_measure(&scene, &s, ctrl, s.pos[0]);
  return o.diverged[0] > 0;
}

static void what_no_body_reaches_is_diverged(void **state) {
  (void)state;
  for (int task = BRIM_QUADRUPED_STAND; task <= BRIM_QUADRUPED_WALK; task++) {
    assert_false(diverged(task, -1, 0));
    for (int i = 0; i < 29; i++) {
      if (i >= 3 && i < 7) continue;  // a quaternion's length is 1
      float bound = i < 15 ? 1e5f : 1e3f;
      assert_false(diverged(task, i, 0.99f * bound));
      assert_false(diverged(task, i, -0.99f * bound));
      assert_true(diverged(task, i, 1.01f * bound));
      assert_true(diverged(task, i, -1.01f * bound));
      assert_true(diverged(task, i, INFINITY));
      assert_true(diverged(task, i, NAN));
    }
  }
}

// Steps of 0.1 s are too long for this body: its state diverges. Its rewards and observations must not outweigh all
// others.
static brim_rollout_shape long_steps(void) {
  brim_rollout_shape shape = small_shape();
  robot_defaults(&shape, BRIM_QUADRUPED_WALK);
  robot_set(&shape, timestep, 0.1f);
  shape.episode_length = 200;
  return shape;
}

static void no_step_earns_by_blowing_up(void **state) {
  (void)state;
  enum { LENGTH = 200, EPISODES = 200 };
  static float frames[(LENGTH + 1) * BRIM_QUADRUPED_FRAME], reward[LENGTH + 1];
  brim_rollout_shape shape = long_steps();
  float theta[8 * BRIM_QUADRUPED_OBS], normal[2 * BRIM_QUADRUPED_OBS] = {0}, most = 0;
  for (int j = 0; j < BRIM_QUADRUPED_OBS; j++) normal[BRIM_QUADRUPED_OBS + j] = 1;
  int away = 0;
  for (int e = 0; e < EPISODES; e++) {
    for (int p = 0; p < 8 * BRIM_QUADRUPED_OBS; p += 4) {
      brim_rollout_delta(5, 0, e, p / 4, &theta[p]);
      for (int i = 0; i < 4; i++) theta[p + i] *= 5;
    }
    brim_rollout_eval eval = {.episodes = EPISODES, .stream = 3};
    brim_rollout_record r = {.capacity = LENGTH + 1, .frames = frames, .reward = reward};
    assert_ok(brim_rollout_trace(&shape, theta, normal, &eval, e, &r));
    away += r.outcome == BRIM_ENV_DIVERGED;
    for (int64_t i = 0; i < r.states; i++) most = fmaxf(most, fabsf(reward[i]));
  }
  printf("%d of %d diverged, the largest reward is %g\n", away, EPISODES, (double)most);
  assert_true(away > 0);
  assert_true(most < (float)QUAD_DIVERGED_SPEED);
}

static void blowing_up_is_not_remembered(void **state) {
  EACH_PLACE(g) {
    brim_rollout_shape shape = long_steps();
    ground_prepare(g, &shape);
    ground_run(g, 0, 5.0f, 0.0f);
    brim_rollout_tally t[12];
    ground_get(g, g->at.tally, t, sizeof t);
    int64_t away = 0;
    for (int i = 0; i < 12; i++) away += t[i].diverged;
    assert_true(away > 0);
    ground_update(g, 0, 0, 0.01f);
    double filter[FILTER], most = 0;
    ground_get(g, g->at.filter, filter, sizeof filter);
    for (int j = 15; j < BRIM_QUADRUPED_OBS; j++) {
      most = fmax(most, sqrt(filter[1 + BRIM_QUADRUPED_OBS + j] / filter[0]));
    }
    printf("%lld diverged, velocities deviate by at most %g\n", (long long)away, most);
    assert_true(most < QUAD_DIVERGED_SPEED);
  }
}

//---------------------------------- sizes ----------------------------------

static void run_size(ground *g, int32_t hidden, int32_t filter) {
  brim_rollout_shape shape = small_shape();
  shape.hidden = hidden;
  shape.filter = filter;
  shape.num_envs = 2 * BRIM_ROLLOUT_PART;
  shape.num_dirs = shape.dir_chunk = 1;
  shape.episode_length = 2;
  shape.eval_episodes = BRIM_ROLLOUT_PART;
  brim_rollout_layout at;
  brim_status status = g->table->layout(&shape, &at);
  if (g->device && status == BRIM_EUNSUPPORTED) return;  // a smaller GPU refuses it
  assert_ok(status);
  ground_prepare(g, &shape);
  ground_run(g, 0, 0.05f, 0.0f);
  ground_evaluate(g, BRIM_ROLLOUT_PART, 0, 0, NULL);
  float returns[2];
  ground_get(g, g->at.returns, returns, sizeof returns);
  assert_true(isfinite(returns[0]) && isfinite(returns[1]) && returns[0] != returns[1]);
}

// The default 48 KiB of shared memory end within these sizes, with a filter and without.
static void sizes_around_a_blocks_memory(void **state) {
  EACH_PLACE(g) {
    for (int32_t filter = 0; filter < 2; filter++) {
      for (int32_t h = 188; h <= 206; h++) run_size(g, h, filter);
      for (int32_t h = 288; h <= 306; h++) run_size(g, h, filter);
      run_size(g, 512, filter);
      run_size(g, BRIM_ROLLOUT_MAX_HIDDEN, filter);
    }
  }
}

static void the_largest_policy_of_a_gpu(void **state) {
  (void)state;
  static const size_t shared[] = {48 << 10, 99 << 10, 163 << 10, 227 << 10};
  for (size_t i = 0; i < 4; i++) {
    for (int32_t filter = 0; filter < 2; filter++) {
      int32_t h = brim_block_hidden(BRIM_ROLLOUT_MAX_HIDDEN, filter, 32, shared[i]);
      assert_true(brim_block_shared(h, filter, 32) <= shared[i]);
      if (h < BRIM_ROLLOUT_MAX_HIDDEN)
        assert_true(brim_block_shared(h + 1, filter, 32) > shared[i]);
      assert_int_equal(h == BRIM_ROLLOUT_MAX_HIDDEN, i == 3 || (i == 2 && !filter));
      assert_int_equal(brim_block_hidden(7, filter, 32, shared[i]), 7);
      assert_int_equal(brim_block_hidden(0, filter, 32, shared[i]), 0);
    }
  }
  // The policy, the sums of 128 threads, 32 tracks.
  assert_int_equal(brim_block_shared(200, 1, 32), (64 + 200 * 40 + 8) * 4 + 16384 + 2560);
  assert_true(brim_block_dynamic(200, 1, 32) < 48 << 10 &&
              brim_block_shared(200, 1, 32) > 48 << 10);
  assert_int_equal(brim_block_threads(1), 32);
  assert_int_equal(brim_block_threads(10), 64);
  assert_int_equal(brim_block_threads(1000), 128);
}

// The largest policies for a GPU's block, computed without a GPU.
static void policies_a_block_cannot_hold(void **state) {
  (void)state;
  enum { NORMAL = 8, KIB = 1024 };
  const brim_rollout_net small = {.obs = 4, .act = 2, .hidden = 0};
  brim_rollout_net wide = {.obs = 6000, .act = 20, .hidden = 0}, mlp = {.obs = 4, .act = 2};
  mlp.hidden = 256;
  assert_int_equal(brim_rollout_block_hidden(small, NORMAL, 1, 48 * KIB), 0);
  // a linear policy that is too large does not fit: there is no smaller one
  assert_true(brim_rollout_block_bytes(wide, NORMAL, 0) > 227 * KIB);
  assert_int_equal(brim_rollout_block_hidden(wide, NORMAL, 0, 227 * KIB), -1);
  // the largest hidden layer that fits; one more unit does not
  const int32_t most = brim_rollout_block_hidden(mlp, NORMAL, 1, 8 * KIB);
  assert_true(most > 0 && most < mlp.hidden);
  mlp.hidden = most;
  assert_true(brim_rollout_block_bytes(mlp, NORMAL, 1) <= 8 * KIB);
  mlp.hidden = most + 1;
  assert_true(brim_rollout_block_bytes(mlp, NORMAL, 1) > 8 * KIB);
  assert_int_equal(brim_rollout_block_hidden(mlp, NORMAL, 1, 227 * KIB), most + 1);
  // not even one unit
  wide.hidden = 32;
  assert_int_equal(brim_rollout_block_hidden(wide, NORMAL, 1, 227 * KIB), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(once_counts_first_episodes),
      cmocka_unit_test(once_is_the_first_episode),
      cmocka_unit_test(nothing_counts_after_the_end),
      cmocka_unit_test(the_shift_ranks_directions_anew),
      cmocka_unit_test(what_no_body_reaches_is_diverged),
      cmocka_unit_test(no_step_earns_by_blowing_up),
      cmocka_unit_test(blowing_up_is_not_remembered),
      cmocka_unit_test(sizes_around_a_blocks_memory),
      cmocka_unit_test(the_largest_policy_of_a_gpu),
      cmocka_unit_test(policies_a_block_cannot_hold),
  };
  test_filter();
  return cmocka_run_group_tests(tests, open_places, close_places);
}
