// The cart-pole: one step against the equations of motion, solved in another way; bounds, starts and rewards of
// CartPole-v1; and ARS, which solves it.
#include "rl/rollout_test.h"

#include "env/cartpole/cartpole.h"
#include "rl/rl_rollout_plan.h"

//---------------------------------- dynamics ----------------------------------

// The Lagrangian's two equations for a cart and a uniform rod without friction,
//   (M + m) x'' + m l cos(a) a''     = F + m l sin(a) a'^2
//   m l cos(a) x'' + 4/3 m l^2 a''   = m g l sin(a),
// solved for x'' and a'' by Cramer's rule, in long double; then a step of Euler.
static void model(const double from[4], int right, double to[4]) {
  const long double cart = 1.0L, pole = 0.1L, half = 0.5L, g = 9.8L, step = 0.02L;
  const long double s = sinl((long double)from[2]), c = cosl((long double)from[2]);
  const long double rate = (long double)from[3];
  const long double a11 = cart + pole, a12 = pole * half * c, a22 = pole * half * half * 4 / 3;
  const long double b1 = (right ? 10.0L : -10.0L) + pole * half * rate * rate * s;
  const long double b2 = pole * g * half * s;
  const long double det = a11 * a22 - a12 * a12;
  const long double moving = (b1 * a22 - a12 * b2) / det, turning = (a11 * b2 - a12 * b1) / det;
  to[0] = (double)((long double)from[0] + step * (long double)from[1]);
  to[1] = (double)((long double)from[1] + step * moving);
  to[2] = (double)((long double)from[2] + step * rate);
  to[3] = (double)(rate + step * turning);
}

static double uniform(uint32_t *state) {  // [-1, 1)
  *state = *state * 1664525u + 1013904223u;
  return (double)(*state >> 8) / 8388608.0 - 1.0;
}

static void steps_as_the_equations_say(void **unused) {
  (void)unused;
  enum { STATES = 10000 };
  static const double range[4] = {2.4, 4.0, 0.22, 4.0};
  uint32_t seed = 1;
  double worst = 0;
  for (int i = 0; i < STATES; i++) {
    // one in ten states is beyond all bounds: any angle
    const double wider = i % 10 ? 1 : 14;
    double from[4], want[4];
    for (int k = 0; k < 4; k++) from[k] = wider * range[k] * uniform(&seed);
    brim_cartpole_state s = {from[0], from[1], from[2], from[3]};
    brim_cartpole_move(&s, i & 1);
    model(from, i & 1, want);
    const double got[4] = {s.x, s.speed, s.angle, s.turn};
    for (int k = 0; k < 4; k++) {
      double apart = fabs(got[k] - want[k]);
      worst = apart > worst ? apart : worst;
    }
  }
  printf("%d states, at most %.3g apart\n", STATES, worst);
  assert_true(worst <= 1e-12);
}

static brim_env_outcome step_from(double x, double angle, int32_t right) {
  const brim_cartpole_values v = {0.05f};
  brim_cartpole_state s = {x, 0, angle, 0};
  const brim_env_track t = brim_env_track_of(brim_env_training(0, 0, 0, 0));
  return brim_cartpole_step(&v, &t, &s, &right);
}

// A step from rest does not move anything yet: Euler uses the speeds before the step.
static void ends_beyond_the_bounds(void **unused) {
  (void)unused;
  const double tilt = 12 * 2 * 3.141592653589793 / 360;
  for (int right = 0; right < 2; right++) {
    assert_int_equal(step_from(2.4, 0, right).end, BRIM_ENV_RUNNING);
    assert_int_equal(step_from(-2.4, 0, right).end, BRIM_ENV_RUNNING);
    assert_int_equal(step_from(nextafter(2.4, 3), 0, right).end, BRIM_ENV_TERMINATED);
    assert_int_equal(step_from(nextafter(-2.4, -3), 0, right).end, BRIM_ENV_TERMINATED);
    assert_int_equal(step_from(0, tilt, right).end, BRIM_ENV_RUNNING);
    assert_int_equal(step_from(0, nextafter(tilt, 1), right).end, BRIM_ENV_TERMINATED);
    assert_int_equal(step_from(0, nextafter(-tilt, -1), right).end, BRIM_ENV_TERMINATED);
    assert_true(step_from(0, 0, right).reward == 1);
    assert_true(step_from(9, 0, right).reward == 1);  // the last step counts too
  }
}

static void starts_are_uniform(void **unused) {
  (void)unused;
  enum { N = 20000 };
  const brim_cartpole_values v = {0.05f};
  double sum[4] = {0}, square[4] = {0};
  for (int i = 0; i < N; i++) {
    brim_cartpole_state s;
    brim_env_track t = brim_env_track_of(brim_env_training(3, i % 7, i % 11, i));
    t.episode = i % 3;
    brim_cartpole_reset(&v, &t, &s);
    const double x[4] = {s.x, s.speed, s.angle, s.turn};
    for (int k = 0; k < 4; k++) {
      assert_true(fabs(x[k]) <= (double)v.reset);
      sum[k] += x[k];
      square[k] += x[k] * x[k];
    }
  }
  for (int k = 0; k < 4; k++) {
    assert_near(sum[k] / N, 0, 6 * 0.05 / sqrt(3.0 * N));
    assert_near(square[k] / N, 0.05 * 0.05 / 3, 0.05 * 0.05 * 6 / sqrt((double)N));
  }
}

//---------------------------------- policies ----------------------------------

static void the_largest_output_is_chosen(void **unused) {
  (void)unused;
  const float y[3] = {1, 2, 2}, bad[3] = {1, NAN, 2};
  assert_int_equal(brim_rollout_choose(y, 3, 7), 1);  // the first of equal outputs
  assert_int_equal(brim_rollout_choose(y, 3, 5), 2);  // among the allowed actions
  assert_int_equal(brim_rollout_choose(y, 3, 1), 0);
  assert_int_equal(brim_rollout_choose(y, 3, 0), -1);
  assert_int_equal(brim_rollout_choose(bad, 3, 1), -1);
}

static brim_rollout_shape cartpole_shape(void) {
  brim_rollout_shape s = {.row = &brim_cartpole_row,
                          .num_envs = 16,
                          .num_dirs = 32,
                          .dir_chunk = 32,
                          .episode_length = BRIM_CARTPOLE_LENGTH,
                          .filter = 1,
                          .once = 1,
                          .eval_episodes = 100,
                          .seed = 5};
  s.row->defaults(0, s.env.bytes);
  return s;
}

// A policy that always pushes to the left (action 0) lets the pole fall within a dozen steps.
static void an_episode_earns_its_length(void **state) {
  EACH_PLACE(g) {
    brim_rollout_episode e[100];
    brim_rollout_shape shape = cartpole_shape();
    ground_prepare(g, &shape);
    ground_episodes(g, 100, 1, 0, e);
    for (int i = 0; i < 100; i++) {
      assert_int_equal(e[i].outcome, BRIM_ENV_TERMINATED);
      assert_true(e[i].reward == (float)e[i].length);
      assert_in_range(e[i].length, 7, 13);
    }
    // truncated before it falls
    shape.episode_length = 5;
    ground_prepare(g, &shape);
    ground_episodes(g, 100, 1, 0, e);
    for (int i = 0; i < 100; i++) {
      assert_int_equal(e[i].outcome, BRIM_ENV_TRUNCATED);
      assert_int_equal(e[i].length, 5);
    }
  }
}

static void ars_solves_it(void **state) {
  EACH_PLACE(g) {
    brim_rollout_episode e[100];
    brim_rollout_shape shape = cartpole_shape();
    ground_prepare(g, &shape);
    for (int i = 0; i < 15; i++) {
      ground_run(g, i, 0.05f, 0);
      ground_update(g, i, 16, 0.05f);
    }
    ground_episodes(g, 100, 0, 9, e);
    for (int i = 0; i < 100; i++) assert_int_equal(e[i].length, BRIM_CARTPOLE_LENGTH);
  }
}

// A policy with NaN does not act: its episodes diverge, and its directions are not ranked.
static void a_policy_of_no_numbers_diverges(void **state) {
  EACH_PLACE(g) {
    brim_rollout_episode e[100];
    float bad = NAN;
    brim_rollout_shape shape = cartpole_shape();
    ground_prepare(g, &shape);
    ground_put(g, g->at.theta, &bad, sizeof bad);
    ground_episodes(g, 100, 0, 0, e);
    for (int i = 0; i < 100; i++) {
      assert_int_equal(e[i].outcome, BRIM_ENV_DIVERGED);
      assert_int_equal(e[i].length, 1);
    }
  }
}

// The dynamics contain no operation that machines round differently.
static void cpu_and_cuda_have_the_same_bits(void **state) {
  places *p = *state;
  if (p->count < 2) BRIM_SKIP("no GPU here");
  for (int hidden = 0; hidden <= 8; hidden += 8) {
    float returns[2][64];
    brim_rollout_tally tally[2][64];
    for (int i = 0; i < 2; i++) {
      brim_rollout_shape shape = cartpole_shape();
      shape.hidden = hidden;
      shape.num_envs = 2 * (BRIM_ROLLOUT_PART + 5);
      ground_prepare(&p->at[i], &shape);
      ground_run(&p->at[i], 2, 0.2f, 0);
      ground_get(&p->at[i], p->at[i].at.returns, returns[i], sizeof returns[i]);
      ground_get(&p->at[i], p->at[i].at.tally, tally[i], sizeof tally[i]);
    }
    assert_memory_equal(returns[0], returns[1], sizeof returns[0]);
    assert_memory_equal(tally[0], tally[1], sizeof tally[0]);
  }
}

static int open_cartpole(void **state) {
  return open_places_of(state, BRIM_ROLLOUT_EXTENSION "cartpole");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_as_the_equations_say),
      cmocka_unit_test(ends_beyond_the_bounds),
      cmocka_unit_test(starts_are_uniform),
      cmocka_unit_test(the_largest_output_is_chosen),
      cmocka_unit_test(an_episode_earns_its_length),
      cmocka_unit_test(ars_solves_it),
      cmocka_unit_test(a_policy_of_no_numbers_diverges),
      cmocka_unit_test(cpu_and_cuda_have_the_same_bits),
  };
  return cmocka_run_group_tests(tests, open_cartpole, close_places);
}
