// Vectors of the quadruped: an environment's numbers do not depend on its neighbours', and a state that is not finite
// ends and stays unchanged.
#include <math.h>

#include "env/quadruped/quadruped_simd.h"
#include "quadruped_forms.h"
#include "test.h"

enum { ENVS = 64, STEPS = 200 };

static float draw(uint64_t *s) {
  *s = *s * 6364136223846793005u + 1442695040888963407u;
  return (float)(*s >> 40) / 8388608.0f - 1;
}

typedef struct env {
  float qpos[15], qvel[14], act[8];
} env;

static void start(env *e, uint64_t seed) {
  static const float sign[4] = {1, -1, -1, 1};
  memset(e, 0, sizeof(*e));
  e->qpos[2] = 0.5f + 0.3f * draw(&seed);  // some in the air, some on the floor
  e->qpos[3] = 1;
  for (int i = 4; i < 7; i++) e->qpos[i] = 0.3f * draw(&seed);
  for (int k = 0; k < 4; k++) e->qpos[8 + 2 * k] = sign[k] * (0.9f + 0.4f * draw(&seed));
  for (int i = 0; i < 14; i++) e->qvel[i] = draw(&seed);
  for (int i = 0; i < 8; i++) e->act[i] = draw(&seed);
}

// Steps all environments; `order[i]` is the one at place i.
static void run(env *envs, const int *order, int rk4, int steps) {
  brim_quadruped world = {.rk4 = rk4, .timestep = 0.01f, .margin = 0.01f};
  for (int i = 0; i < ENVS; i += QUAD_LANES) {
    brim_quad_simd_state s;
    brim_vf ctrl[4][2];
    for (int l = 0; l < QUAD_LANES; l++) {
      const env *e = &envs[order[i + l]];
      brim_quad_simd_load(&s, l, e->qpos, e->qvel);
      brim_quad_simd_load_ctrl(ctrl, l, e->act);
    }
    for (int t = 0; t < steps; t++) brim_quad_simd_substep(&world, &s, ctrl, NULL);
    for (int l = 0; l < QUAD_LANES; l++) {
      env *e = &envs[order[i + l]];
      brim_quad_simd_store(&s, l, e->qpos, e->qvel);
    }
  }
}

static void neighbours_do_not_matter(void **state) {
  (void)state;
  static env a[ENVS], b[ENVS];
  int order[ENVS], mixed[ENVS];
  for (int i = 0; i < ENVS; i++) {
    order[i] = i;
    mixed[i] = i * 27 % ENVS;
  }
  for (int rk4 = 0; rk4 < 2; rk4++) {
    for (int i = 0; i < ENVS; i++) {
      start(&a[i], (uint64_t)i);
      b[i] = a[i];
    }
    run(a, order, rk4, STEPS);
    run(b, mixed, rk4, STEPS);
    assert_memory_equal(a, b, sizeof(a));
    for (int i = 0; i < ENVS; i++) assert_true(isfinite(a[i].qpos[2]));
  }
}

static void not_finite_ends(void **state) {
  (void)state;
  static env a[ENVS], b[ENVS];
  int order[ENVS];
  const float bad[4] = {NAN, INFINITY, -INFINITY, 1e30f};
  for (int i = 0; i < ENVS; i++) {
    order[i] = i;
    start(&a[i], (uint64_t)i);
    b[i] = a[i];
  }
  // The second environment of every vector is spoilt, each in another number.
  for (int i = 1, k = 0; i < ENVS; i += QUAD_LANES, k++) {
    float *number = k % 29 < 15 ? &b[i].qpos[k % 29] : &b[i].qvel[k % 29 - 15];
    *number = bad[k % 4];
  }
  run(a, order, 0, 20);
  run(b, order, 0, 20);
  int spoilt = 0;
  for (int i = 0; i < ENVS; i++) {
    if (i % QUAD_LANES == 1) {
      spoilt++;
    } else {
      assert_memory_equal(&a[i], &b[i], sizeof(a[i]));
    }
  }
  assert_true(spoilt > 0);
  // The same one environment at a time, in every form.
  for (int f = 0; f < FORM_COUNT; f++) {
    for (int i = 0; i < 29; i++) {
      sample s = {.qpos = {0, 0, 0.3, 1}};
      setting set = {.timestep = 0.01, .margin = 0.01};
      if (i < 15) {
        s.qpos[i] = (double)NAN;
      } else {
        s.qvel[i - 15] = (double)NAN;
      }
      if (f != FORM_FOUR) forms[f].step(&set, 1, &s);
    }
  }
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(neighbours_do_not_matter),
      cmocka_unit_test(not_finite_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
