// Episodes of rollouts and evaluations: different starts, the kinds of ends, pushes, a state that is NaN, the trace,
// and the CPU against CUDA if there is a GPU.
#include "rollout_test.h"

#include "env/quadruped/quadruped_episode.h"

//---------------------------------- random numbers ----------------------------------

static void normals_are_normal(void **state) {
  (void)state;
  enum { QUADS = 50000 };
  double sum = 0, square = 0, fourth = 0, next = 0, last = 0;
  for (int q = 0; q < QUADS; q++) {
    float x[4];
    brim_rollout_delta(99, 5, q / 1000, q % 1000, x);
    for (int i = 0; i < 4; i++) {
      double v = (double)x[i];
      sum += v;
      square += v * v;
      fourth += v * v * v * v;
      next += v * last;
      last = v;
    }
  }
  const double n = 4.0 * QUADS;
  assert_near(sum / n, 0, 0.01);
  assert_near(square / n, 1, 0.015);
  assert_near(fourth / n, 3, 0.1);
  assert_near(next / n, 0, 0.01);
  // The functions below rollouts, over their whole range.
  for (uint32_t i = 1; i <= 1000; i++) {
    float u = (float)(i * 16777u) * (1.0f / 16777216.0f);
    if (u < 1) assert_near(brim_env_log(u), log((double)u), 3e-7);
    brim_env_pair t = brim_env_turn(i * 4294967u);
    assert_near(t.a * t.a + t.b * t.b, 1, 5e-7);
  }
  assert_true(brim_env_log(1.0f) == 0.0f);
  assert_near(brim_env_log(1.0f / 16777216.0f), -16.635532333438686, 2e-6);
}

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

// Starts differ between directions, environments, episodes, iterations, seeds and streams.
static void no_two_starts_are_alike(void **state) {
  (void)state;
  enum { N = 4 * 4 * 4 * 4 * 3 };
  static float first[N];
  brim_quadruped env = {.task = BRIM_QUADRUPED_STAND};
  brim_quadruped_row.defaults(0, &env);
  int n = 0;
  for (int i = 0; i < N / 3; i++) {
    for (uint64_t kind = 0; kind < 3; kind++) {
      brim_env_ids ids = brim_env_training(kind, i & 3, i >> 2 & 3, i >> 4 & 3);
      if (kind == 2) ids = brim_env_held_out(0, (uint64_t)(i & 15), i >> 4 & 3);
      brim_quadruped_track t = brim_quadruped_track_of(ids);
      t.episode = i >> 6;
      brim_quadruped_base b;
      brim_quadruped_start(&env, &t, &b);
      first[n++] = b.pos[0] + 10 * b.pos[1];
      assert_true(b.pos[2] >= 0.55f && b.pos[2] < 0.651f);
      float q[2], qd[2];
      for (int leg = 0; leg < 4; leg++) {
        brim_quadruped_start_leg(&env, &t, leg, q, qd);
        assert_true(fabsf(q[0]) <= 0.1f && fabsf(fabsf(q[1]) - 1) <= 0.1f + 1e-6f);
      }
    }
  }
  qsort(first, N, sizeof *first, by_value);
  for (int i = 1; i < N; i++) assert_true(first[i] > first[i - 1]);
}

static void pushes_come_as_often_as_asked(void **state) {
  (void)state;
  brim_quadruped env = {.task = BRIM_QUADRUPED_STAND};
  brim_quadruped_row.defaults(0, &env);
  env.push_every = 25;
  env.push_speed = 2;
  double steps = 0, x = 0, speed = 0;
  brim_quadruped_track t = brim_quadruped_track_of(brim_env_training(1, 2, 3, 4));
  brim_quadruped_begin(&env, &t);
  enum { N = 20000 };
  for (int i = 0; i < N; i++) {
    int32_t wait = t.next_push - t.step;
    assert_true(wait >= 1 && wait <= 49);
    steps += wait;
    t.step = t.next_push;
    brim_env_pair v = brim_quadruped_push(&env, &t);
    x += (double)v.a;
    double s = sqrt((double)v.a * v.a + (double)v.b * v.b);
    assert_true(s < 2.0001);
    speed += s;
  }
  assert_near(steps / N, 25, 0.5);
  assert_near(x / N, 0, 0.05);
  assert_near(speed / N, 1, 0.02);
  env.push_speed = 0;
  brim_quadruped_begin(&env, &t);
  assert_int_equal(t.next_push, -1);
}

//---------------------------------- ends ----------------------------------

static void ends_are_told_apart(void **state) {
  EACH_PLACE(g) {
    brim_rollout_episode *e = calloc(100, sizeof *e);
    assert_non_null(e);
    brim_rollout_shape shape = small_shape();
    robot_set(&shape, push_speed, 0);
    ground_prepare(g, &shape);
    // Without pushes the zero policy stands until time is up.
    outcome o = ground_evaluate(g, 100, 1, 0, e);
    assert_int_equal(o.truncated, 100);
    for (int i = 0; i < 100; i++) assert_int_equal(e[i].length, shape.episode_length);
    assert_true(o.reward > 0.8 * shape.episode_length && o.reward <= shape.episode_length);
    // Pushed over: terminated, before the end, with a cost.
    robot_set(&shape, push_speed, 60);
    robot_set(&shape, push_every, 3);
    ground_prepare(g, &shape);
    outcome pushed = ground_evaluate(g, 100, 1, 0, e);
    assert_true(pushed.falls > 80);
    for (int i = 0; i < 100; i++) {
      if (e[i].outcome == 1) assert_true(e[i].length <= shape.episode_length);
      if (e[i].outcome == 0) assert_int_equal(e[i].length, shape.episode_length);
    }
    assert_true(pushed.reward < o.reward - 10);
    // A robot that falls in a rollout restarts at once: no step is lost.
    ground_run(g, 0, 0.0f, 0.0f);
    brim_rollout_tally t;
    ground_get(g, g->at.tally, &t, sizeof t);
    assert_int_equal(t.steps, (shape.num_envs / 2) * shape.episode_length);
    assert_true(t.terminated >= shape.num_envs / 2);
    assert_int_equal(t.diverged, 0);
    free(e);
  }
}

static void zero_is_the_policy_that_does_nothing(void **state) {
  enum { N = 300 };
  EACH_PLACE(g) {
    static brim_rollout_episode zero[N], policy[N], other[N];
    brim_rollout_shape shape = small_shape();
    shape.episode_length = 200;
    ground_prepare(g, &shape);
    outcome o = ground_evaluate(g, N, 1, 5, zero);
    ground_evaluate(g, N, 0, 5, policy);
    assert_memory_equal(zero, policy, sizeof zero);
    // Pushes of the default strength overturn it often, not always.
    assert_true(o.falls > N / 5 && o.falls < N * 3 / 4);
    // Another stream has other episodes. A smaller number takes the first ones.
    ground_evaluate(g, N, 1, 6, other);
    assert_memory_not_equal(zero, other, sizeof zero);
    ground_evaluate(g, 7, 1, 5, other);
    assert_memory_equal(zero, other, 7 * sizeof *zero);
  }
}

//---------------------------------- what is no number ----------------------------------

static void what_is_no_number_does_not_spread(void **state) {
  EACH_PLACE(g) {
    brim_rollout_shape shape = small_shape();
    shape.dir_chunk = 1;
    brim_rollout_tally clean[12], t[12];
    float returns[12];
    ground_prepare(g, &shape);
    ground_run(g, 0, 0.05f, 0.0f);
    ground_get(g, g->at.tally, clean, sizeof clean);
    float theta[3] = {0}, bad[3] = {NAN, INFINITY, 1e38f};
    for (int kind = 0; kind < 3; kind++) {
      ground_prepare(g, &shape);
      for (int32_t d = 0; d < shape.num_dirs; d++) {
        brim_rollout_job job = {.first_dir = d, .dirs = 1, .noise_std = 0.05f};
        ground_put(g, g->at.theta, d == 2 ? &bad[kind] : theta, sizeof *theta);
        assert_ok(g->table->run(&g->where, &shape, g->block, &job));
      }
      ground_get(g, g->at.tally, t, sizeof t);
      ground_get(g, g->at.returns, returns, sizeof returns);
      for (int i = 0; i < 12; i++) {
        assert_true(isfinite(returns[i]));
        if (i / 2 != 2) assert_memory_equal(&t[i], &clean[i], sizeof t[i]);
      }
      if (kind == 0) {
        assert_int_equal(t[4].diverged, t[4].steps);
        assert_near(t[4].reward, -(double)BRIM_FALL_COST * (double)t[4].steps, 1e-6);
      }
      // A state that is NaN does not enter the filter.
      ground_put(g, g->at.theta, theta, sizeof *theta);
      ground_update(g, 0, 0, 0.01f);
      double filter[FILTER];
      ground_get(g, g->at.filter, filter, sizeof filter);
      for (int i = 0; i < FILTER; i++) assert_true(isfinite(filter[i]));
    }
    ground_put(g, g->at.theta, &bad[0], sizeof bad[0]);
    outcome o = ground_evaluate(g, 50, 0, 0, NULL);
    assert_int_equal(o.diverged, 50);
  }
}

//---------------------------------- trace, places ----------------------------------

static void the_trace_is_the_episode(void **state) {
  ground *g = &((places *)*state)->at[0];
  enum { N = 20, LENGTH = 120 };
  static brim_rollout_episode e[N];
  static float frames[LENGTH + 1][BRIM_QUADRUPED_FRAME], reward[LENGTH + 1], far[N];
  brim_rollout_shape shape = small_shape();
  shape.episode_length = LENGTH;
  ground_prepare(g, &shape);
  ground_run(g, 0, 0.05f, 0.0f);
  ground_update(g, 0, 0, 0.05f);
  ground_evaluate(g, N, 0, 3, e);
  ground_get(g, g->at.figures, far, sizeof far);
  float theta[8 * BRIM_QUADRUPED_OBS], normal[2 * BRIM_QUADRUPED_OBS];
  ground_get(g, g->at.theta, theta, sizeof theta);
  ground_get(g, g->at.normal, normal, sizeof normal);
  brim_rollout_eval eval = {.episodes = N, .stream = 3};
  int pushes = 0;
  for (int i = 0; i < N; i++) {
    brim_rollout_record r = {.capacity = LENGTH + 1, .frames = frames[0], .reward = reward};
    assert_ok(brim_rollout_trace(&shape, theta, normal, &eval, i, &r));
    assert_int_equal(r.states, e[i].length + 1);
    assert_int_equal(r.outcome, e[i].outcome);
    double sum = 0;
    for (int64_t k = 0; k < r.states; k++) {
      const float *push = frames[k] + BRIM_QUADRUPED_QPOS;
      sum += (double)reward[k];
      pushes += push[0] != 0 || push[1] != 0;
      assert_true(push[2] == 0);
    }
    assert_near(sum, e[i].reward, 1e-3);
    assert_near(frames[r.states - 1][0] - frames[0][0], far[i], 1e-6);
    // Less room than states: the trace has as many as fit.
    r.capacity = 4;
    assert_ok(brim_rollout_trace(&shape, theta, normal, &eval, i, &r));
    assert_int_equal(r.states, 4);
    assert_int_equal(r.outcome, e[i].outcome);
  }
  assert_true(pushes > N);
}

// Short episodes, so that rounding errors have not grown; prints the largest difference beside its bound.
static void cpu_and_cuda_agree(void **state) {
  places *p = *state;
  if (p->count < 2) BRIM_SKIP("no GPU here");
  for (int hidden = 0; hidden <= 32; hidden += 32) {
    for (int rk4 = 0; rk4 < 2; rk4++) {
      float returns[2][12], theta[2][2000];
      double filter[2][FILTER];
      brim_rollout_shape shape = small_shape();
      shape.hidden = hidden;
      robot_set(&shape, rk4, rk4);
      shape.episode_length = 8;
      shape.num_envs = 80;
      for (int i = 0; i < 2; i++) {
        ground *g = &p->at[i];
        ground_prepare(g, &shape);
        ground_get(g, g->at.theta, theta[i], g->at.params * sizeof(float));
        ground_run(g, 0, 0.05f, 0.0f);
        ground_update(g, 0, 3, 0.05f);
        ground_get(g, g->at.returns, returns[i], sizeof returns[i]);
        ground_get(g, g->at.filter, filter[i], sizeof filter[i]);
      }
      assert_memory_equal(theta[0], theta[1], p->at[0].at.params * sizeof(float));
      double apart = 0;
      for (int i = 0; i < 12; i++) {
        double d = fabs((double)returns[0][i] - (double)returns[1][i]);
        if (!(d <= apart)) apart = d;
      }
      printf("hidden %d, rk4 %d: returns at most %.3g apart, 0.02 allowed\n", hidden, rk4, apart);
      for (int i = 0; i < 12; i++) assert_near(returns[0][i], returns[1][i], 0.02);
      for (int i = 0; i < FILTER; i++) {
        assert_near(filter[0][i], filter[1][i], 1e-3 * (1 + fabs(filter[0][i])));
      }
    }
  }
}

static void senseless_shapes_are_refused(void **state) {
  EACH_PLACE(g) {
    brim_rollout_layout at;
    for (int i = 0; i < 12; i++) {
      brim_rollout_shape s = small_shape();
      assert_ok(g->table->layout(&s, &at));
      if (i == 0) s.num_envs = 3;
      if (i == 1) s.num_envs = 0;
      if (i == 2) s.num_dirs = 0;
      if (i == 3) s.dir_chunk = 7;
      if (i == 4) s.episode_length = 0;
      if (i == 5) s.hidden = -4;
      if (i == 6) robot_set(&s, task, 9);
      if (i == 7) robot_set(&s, timestep, 0);
      if (i == 8) robot_set(&s, push_speed, NAN);
      if (i == 9) robot_set(&s, push_every, 0);
      if (i == 10) s.eval_episodes = -1;
      if (i == 11) robot_set(&s, frame_skip, 0);
      assert_status(g->table->layout(&s, &at), BRIM_EINVAL);
      assert_true(strlen(brim_status_detail()) > 10);
    }
    brim_rollout_shape s = small_shape();
    ground_prepare(g, &s);
    brim_rollout_job job = {.first_dir = 5, .dirs = 2};
    assert_status(g->table->run(&g->where, &s, g->block, &job), BRIM_EINVAL);
    assert_status(g->table->update(&g->where, &s, g->block, 0, 7, 0.1f), BRIM_EINVAL);
    brim_rollout_eval eval = {.episodes = 1001};
    assert_status(g->table->evaluate(&g->where, &s, g->block, &eval), BRIM_EINVAL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(normals_are_normal),
      cmocka_unit_test(no_two_starts_are_alike),
      cmocka_unit_test(pushes_come_as_often_as_asked),
      cmocka_unit_test(ends_are_told_apart),
      cmocka_unit_test(zero_is_the_policy_that_does_nothing),
      cmocka_unit_test(what_is_no_number_does_not_spread),
      cmocka_unit_test(the_trace_is_the_episode),
      cmocka_unit_test(cpu_and_cuda_agree),
      cmocka_unit_test(senseless_shapes_are_refused),
  };
  test_filter();
  return cmocka_run_group_tests(tests, open_places, close_places);
}
