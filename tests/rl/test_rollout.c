// Rollouts and the update of ARS: the same bits for every division of directions into chunks and threads, and in every
// run; the update and the filter against plain computations; starts, ends and NaN. Every test runs on the CPU, and
// again on CUDA if there is a GPU.
#include "rollout_test.h"

#include "env/quadruped/quadruped_episode.h"

// All results of a few iterations.
typedef struct snapshot {
  float theta[40 * BRIM_QUADRUPED_OBS * 4], returns[64], normal[2 * BRIM_QUADRUPED_OBS];
  double filter[FILTER];
  brim_rollout_tally tally[64];
  brim_rollout_update update;
} snapshot;

static void take(ground *g, snapshot *s) {
  memset(s, 0, sizeof *s);
  size_t dirs = (size_t)g->shape.num_dirs;
  assert_true(g->at.params <= sizeof s->theta / sizeof *s->theta && dirs <= 32);
  ground_get(g, g->at.theta, s->theta, g->at.params * sizeof *s->theta);
  ground_get(g, g->at.returns, s->returns, dirs * 2 * sizeof *s->returns);
  ground_get(g, g->at.normal, s->normal, sizeof s->normal);
  ground_get(g, g->at.filter, s->filter, sizeof s->filter);
  ground_get(g, g->at.tally, s->tally, dirs * 2 * sizeof *s->tally);
  ground_get(g, g->at.update, &s->update, sizeof s->update);
}

static void learn(ground *g, const brim_rollout_shape *shape, int iterations, snapshot *out) {
  ground_prepare(g, shape);
  for (int i = 0; i < iterations; i++) {
    ground_run(g, i, 0.05f, 0.0f);
    ground_update(g, i, shape->num_dirs / 2, 0.05f);
  }
  take(g, out);
}

//---------------------------------- the same bits ----------------------------------

static void same_for_every_chunk(void **state) {
  static const int32_t chunks[] = {6, 1, 4};
  EACH_PLACE(g) {
    for (int hidden = 0; hidden <= 16; hidden += 16) {
      static snapshot first, other;
      brim_rollout_shape shape = small_shape();
      shape.hidden = hidden;
      for (size_t i = 0; i < 3; i++) {
        shape.dir_chunk = chunks[i];
        learn(g, &shape, 3, i ? &other : &first);
        if (i) assert_memory_equal(&first, &other, sizeof first);
      }
      // Repeats them, in a block that held another run.
      learn(g, &shape, 3, &other);
      assert_memory_equal(&first, &other, sizeof first);
      assert_int_equal(first.update.skipped, 0);
      assert_true(first.update.step_norm > 0);
    }
  }
}

// Several parts for each sign, an odd number of them, the last one not full; parts smaller than a warp; chunks that do
// not divide the directions; rollouts of one episode.
static void same_for_every_chunk_of_parts(void **state) {
  static const struct {
    int32_t envs, dirs, chunks[3], once;
  } cases[] = {{2 * (BRIM_ROLLOUT_PART + 7), 5, {5, 2, 3}, 0},
               {2 * (2 * BRIM_ROLLOUT_PART + 5), 5, {5, 1, 4}, 0},
               {2 * (2 * BRIM_ROLLOUT_PART + 5), 5, {5, 1, 4}, 1},
               {2 * 3 * BRIM_ROLLOUT_PART, 3, {3, 2, 1}, 1},
               {2, 7, {7, 3, 2}, 0},
               {2, 1, {1, 1, 1}, 1}};
  EACH_PLACE(g) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
      static snapshot first, other;
      brim_rollout_shape shape = small_shape();
      shape.num_envs = cases[c].envs;
      shape.num_dirs = cases[c].dirs;
      shape.once = cases[c].once;
      robot_set(&shape, push_speed, 30);
      robot_set(&shape, push_every, 10);
      for (int i = 0; i < 3; i++) {
        shape.dir_chunk = cases[c].chunks[i];
        ground_prepare(g, &shape);
        for (int k = 0; k < 2; k++) {
          ground_run(g, k, 0.05f, 0.1f);
          ground_update(g, k, 0, 0.05f);
        }
        take(g, i ? &other : &first);
        if (i) assert_memory_equal(&first, &other, sizeof first);
      }
      assert_int_equal(first.update.skipped, 0);
      for (int d = 0; d < 2 * shape.num_dirs; d++) {
        int64_t all = shape.num_envs / 2 * (int64_t)shape.episode_length;
        assert_int_equal(first.tally[d].envs, shape.num_envs / 2);
        if (!shape.once) assert_int_equal(first.tally[d].steps, all);
        if (shape.once) assert_true(first.tally[d].steps <= all);
      }
    }
  }
}

static void same_for_every_number_of_threads(void **state) {
  ground *g = &((places *)*state)->at[0];
  static snapshot first, other;
  brim_rollout_shape shape = small_shape();
  // More than one part for each sign, the last one not full.
  shape.num_envs = 2 * (BRIM_ROLLOUT_PART + 7);
  shape.num_dirs = shape.dir_chunk = 3;
  for (int threads = 1; threads <= 4; threads++) {
    g->where.threads = threads;
    learn(g, &shape, 2, threads > 1 ? &other : &first);
    if (threads > 1) assert_memory_equal(&first, &other, sizeof first);
  }
  g->where.threads = 2;
  // Runs with the caller's threads.
  assert_ok(brim_pool_create(3, &g->where.pool));
  learn(g, &shape, 2, &other);
  assert_memory_equal(&first, &other, sizeof first);
  brim_pool_destroy(g->where.pool);
  g->where.pool = NULL;
}

static void signs_differ_by_the_noise_alone(void **state) {
  EACH_PLACE(g) {
    snapshot s;
    brim_rollout_shape shape = small_shape();
    ground_prepare(g, &shape);
    ground_run(g, 0, 0.0f, 0.0f);
    take(g, &s);
    for (int d = 0; d < shape.num_dirs; d++) {
      assert_memory_equal(&s.returns[2 * d], &s.returns[2 * d + 1], sizeof(float));
      assert_memory_equal(&s.tally[2 * d], &s.tally[2 * d + 1], sizeof s.tally[0]);
      // Directions have their own starts.
      if (d) assert_true(s.returns[2 * d] != s.returns[0]);
    }
    ground_run(g, 0, 0.1f, 0.0f);
    take(g, &s);
    for (int d = 0; d < shape.num_dirs; d++) {
      assert_true(s.returns[2 * d] != s.returns[2 * d + 1]);
    }
  }
}

static void the_shift_comes_off_every_step(void **state) {
  EACH_PLACE(g) {
    snapshot plain, shifted;
    brim_rollout_shape shape = small_shape();
    ground_prepare(g, &shape);
    ground_run(g, 0, 0.05f, 0.0f);
    take(g, &plain);
    ground_run(g, 0, 0.05f, 0.75f);
    take(g, &shifted);
    for (int i = 0; i < 2 * shape.num_dirs; i++) {
      const brim_rollout_tally *t = &plain.tally[i];
      assert_memory_equal(t, &shifted.tally[i], sizeof *t);
      assert_int_equal(t->envs, shape.num_envs / 2);
      assert_int_equal(t->steps, t->envs * shape.episode_length);
      assert_near(plain.returns[i], t->reward / (double)t->envs, 1e-4);
      assert_near(shifted.returns[i], plain.returns[i] - 0.75f * 40, 1e-3);
      assert_true(t->reward_sq >= t->reward * t->reward / (double)t->envs * (1 - 1e-9));
    }
  }
}

//---------------------------------- update ----------------------------------

// The change of theta by the published equations, in double.
static void plain_update(const brim_rollout_shape *shape, const float *returns, int64_t iteration,
                         int top, double step_size, double *theta, brim_rollout_update *out) {
  int order[64], n = 0;
  for (int d = 0; d < shape->num_dirs; d++) {
    if (isfinite(returns[2 * d]) && isfinite(returns[2 * d + 1])) order[n++] = d;
  }
  for (int i = 1; i < n; i++) {
    for (int k = i; k > 0; k--) {
      const float *a = &returns[2 * order[k - 1]], *b = &returns[2 * order[k]];
      if (fmaxf(b[0], b[1]) <= fmaxf(a[0], a[1])) break;
      int other = order[k];
      order[k] = order[k - 1];
      order[k - 1] = other;
    }
  }
  if (top && n > top) n = top;
  double mean = 0, square = 0;
  for (int i = 0; i < n; i++)
    mean += (returns[2 * order[i]] + returns[2 * order[i] + 1]) / (2.0 * n);
  for (int i = 0; i < 2 * n; i++) {
    double d = returns[2 * order[i / 2] + i % 2] - mean;
    square += d * d / (2.0 * n);
  }
  out->used = n;
  out->sigma = sqrt(square);
  out->step_norm = 0;
  const uint64_t key = brim_rng_key(shape->seed, BRIM_RNG_DELTA);
  for (int p = 0; p < brim_rollout_params(brim_rollout_policy_of(shape)); p++) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
      float delta[4];
      brim_rollout_delta(key, iteration, order[i], p / 4, delta);
      sum += ((double)returns[2 * order[i]] - returns[2 * order[i] + 1]) * delta[p % 4];
    }
    double step = step_size / (n * out->sigma) * sum;
    theta[p] += step;
    out->step_norm += step * step;
  }
  out->step_norm = sqrt(out->step_norm);
}

static void check_update(ground *g, const float *returns, int top) {
  static snapshot before, after;
  double theta[8 * BRIM_QUADRUPED_OBS];
  brim_rollout_update want;
  ground_put(g, g->at.returns, returns, (size_t)g->shape.num_dirs * 2 * sizeof *returns);
  take(g, &before);
  for (size_t p = 0; p < g->at.params; p++) theta[p] = before.theta[p];
  plain_update(&g->shape, returns, 3, top, 0.25, theta, &want);
  ground_update(g, 3, top, 0.25f);
  take(g, &after);
  assert_int_equal(after.update.used, want.used);
  assert_int_equal(after.update.skipped, 0);
  assert_near(after.update.sigma, want.sigma, 1e-9 * want.sigma);
  assert_near(after.update.step_norm, want.step_norm, 1e-6 * want.step_norm);
  for (size_t p = 0; p < g->at.params; p++) {
    if (!(fabs(after.theta[p] - theta[p]) < 1e-6)) {
      fail_msg("theta[%zu] is %g, %g wanted", p, (double)after.theta[p], theta[p]);
    }
  }
}

static void update_is_the_papers(void **state) {
  // Directions 1 and 4 are equally good: the first of them is kept.
  static const float returns[12] = {1, 2, -3, 9, 5, 4, 0.5f, 0.25f, 9, 1, 7, -20};
  float bad[12];
  memcpy(bad, returns, sizeof bad);
  bad[2] = NAN;
  bad[9] = INFINITY;
  EACH_PLACE(g) {
    brim_rollout_shape shape = small_shape();
    shape.filter = 0;
    ground_prepare(g, &shape);
    for (int top = 0; top <= 6; top++) check_update(g, returns, top);
    for (int top = 0; top <= 6; top += 2) check_update(g, bad, top);
  }
}

static void update_is_left_out_without_deviation(void **state) {
  EACH_PLACE(g) {
    static snapshot s;
    float returns[12];
    brim_rollout_shape shape = small_shape();
    shape.filter = 0;
    ground_prepare(g, &shape);
    float theta = 0.5f;
    ground_put(g, g->at.theta, &theta, sizeof theta);
    for (int kind = 0; kind < 2; kind++) {
      for (int i = 0; i < 12; i++) returns[i] = kind ? NAN : 123.25f;
      ground_put(g, g->at.returns, returns, sizeof returns);
      ground_update(g, 0, 3, 0.1f);
      take(g, &s);
      assert_int_equal(s.update.skipped, 1);
      assert_int_equal(s.update.used, kind ? 0 : 3);
      assert_true(s.update.step_norm == 0);
      assert_near(s.update.theta_norm, 0.5, 1e-12);
      assert_true(s.theta[0] == 0.5f && s.theta[1] == 0.0f);
    }
  }
}

//---------------------------------- filter ----------------------------------

// The start of an episode as observed. Episodes of one step have no other observation.
static void observe_start(const brim_rollout_shape *s, int iteration, int dir, int env,
                          double out[BRIM_QUADRUPED_OBS]) {
  brim_quadruped_base b;
  const brim_quadruped robot = brim_quadruped_of(s->env.bytes);
  brim_quadruped_track t = brim_quadruped_track_of(brim_env_training(s->seed, iteration, dir, env));
  brim_quadruped_start(&robot, &t, &b);
  for (int i = 0; i < 3; i++) {
    out[i] = i < 2 && robot.task == BRIM_QUADRUPED_WALK ? 0 : b.pos[i];
    out[15 + i] = b.vel[i];
    out[18 + i] = b.omega[i];
  }
  for (int i = 0; i < 4; i++) out[3 + i] = b.quat[i];
  for (int leg = 0; leg < 4; leg++) {
    float q[2], qd[2];
    brim_quadruped_start_leg(&robot, &t, leg, q, qd);
    for (int k = 0; k < 2; k++) {
      out[7 + 2 * leg + k] = q[k];
      out[21 + 2 * leg + k] = qd[k];
    }
  }
}

static void filter_is_welfords(void **state) {
  enum { OBS = BRIM_QUADRUPED_OBS, ITERATIONS = 3 };
  EACH_PLACE(g) {
    brim_rollout_shape shape = small_shape();
    shape.episode_length = 1;
    shape.num_envs = 2 * (BRIM_ROLLOUT_PART + 3);
    robot_set(&shape, task, BRIM_QUADRUPED_WALK);
    ground_prepare(g, &shape);
    double count = 0, mean[OBS] = {0}, m2[OBS] = {0};
    static snapshot s;
    for (int it = 0; it < ITERATIONS; it++) {
      ground_run(g, it, 0.02f, 0.0f);
      take(g, &s);
      // normalization does not change while an iteration runs
      for (int j = 0; it == 0 && j < OBS; j++) {
        assert_true(s.normal[j] == 0.0f && s.normal[OBS + j] == 1.0f);
      }
      ground_update(g, it, 0, 0.01f);
      for (int i = 0; i < shape.num_dirs * shape.num_envs; i++) {
        double x[OBS];
        observe_start(&shape, it, i / shape.num_envs, i % shape.num_envs / 2, x);
        count++;
        for (int j = 0; j < OBS; j++) {
          double d = x[j] - mean[j];
          mean[j] += d / count;
          m2[j] += d * (x[j] - mean[j]);
        }
      }
    }
    take(g, &s);
    assert_true(s.filter[0] == count);
    for (int j = 0; j < OBS; j++) {
      double std = sqrt(m2[j] / (count - 1));
      assert_near(s.filter[1 + j], mean[j], 1e-6);
      assert_near(s.filter[1 + OBS + j], m2[j], 1e-5 * (m2[j] + 1e-3));
      assert_near(s.normal[j], mean[j], 1e-6);
      assert_near(s.normal[OBS + j] * std, j < 2 ? 0 : 1, 1e-5);
    }
  }
}

static void without_a_filter_nothing_is_normalised(void **state) {
  EACH_PLACE(g) {
    static snapshot s;
    brim_rollout_shape shape = small_shape();
    shape.filter = 0;
    learn(g, &shape, 2, &s);
    assert_true(s.filter[0] == 0);
    for (int j = 0; j < BRIM_QUADRUPED_OBS; j++) {
      assert_true(s.normal[j] == 0.0f && s.normal[BRIM_QUADRUPED_OBS + j] == 1.0f);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(same_for_every_chunk),
      cmocka_unit_test(same_for_every_chunk_of_parts),
      cmocka_unit_test(same_for_every_number_of_threads),
      cmocka_unit_test(signs_differ_by_the_noise_alone),
      cmocka_unit_test(the_shift_comes_off_every_step),
      cmocka_unit_test(update_is_the_papers),
      cmocka_unit_test(update_is_left_out_without_deviation),
      cmocka_unit_test(filter_is_welfords),
      cmocka_unit_test(without_a_filter_nothing_is_normalised),
  };
  test_filter();
  return cmocka_run_group_tests(tests, open_places, close_places);
}
